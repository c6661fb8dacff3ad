"""Checkers: contributions of heads, folding W^O, the OV circuit."""

import math

import torch

from mha.course.exercises.exercise import Exercise
from mha.course.exercises.legal import Draw


def _reads() -> list[tuple]:
    random = torch.Generator().manual_seed(6)
    sizes = [(1, 2, 2, 3, 5), (2, 3, 4, 2, 7), (3, 2, 5, 3, 6)]
    return [
        (torch.randn(b, h, n, d, generator=random).double(), torch.randn(h * d, m, generator=random).double())
        for b, h, n, d, m in sizes
    ]


def _blocks(z: torch.Tensor, w_o: torch.Tensor) -> torch.Tensor:
    return w_o.unflatten(0, (z.shape[1], z.shape[3]))


def _each(z: torch.Tensor, w_o: torch.Tensor) -> torch.Tensor:
    return torch.einsum("bhid,hdm->bhim", z, _blocks(z, w_o))


def _any_reads(draw: Draw) -> tuple:
    heads, d = draw.whole(1, 5), draw.whole(1, 4)
    z = draw.normal(draw.whole(1, 3), heads, draw.whole(1, 5), d)
    return z, draw.normal(heads * d, draw.whole(1, 6))


check_contributions = Exercise(
    name="what each head adds",
    solution=_each,
    cases=_reads,
    legal=_any_reads,
    mistakes={
        "every head is multiplied by the first block of W_o": lambda z, w: z @ w[: z.shape[3]],
        "the blocks are taken in the wrong order": lambda z, w: torch.einsum(
            "bhid,hdm->bhim", z, _blocks(z, w).flip(0)
        ),
        "W_o is cut into interleaved rows instead of blocks": lambda z, w: torch.einsum(
            "bhid,dhm->bhim", z, w.unflatten(0, (z.shape[3], z.shape[1]))
        ),
        "every head gets the sum of all heads": lambda z, w: _each(z, w).sum(1, keepdim=True).expand_as(_each(z, w)),
        "every head gets an equal share of the output": lambda z, w: (
            _each(z, w).mean(1, keepdim=True).expand_as(_each(z, w))
        ),
        "all blocks are averaged into one": lambda z, w: z @ _blocks(z, w).mean(0),
        "the contributions are divided by √d": lambda z, w: _each(z, w) / math.sqrt(z.shape[3]),
    },
    next_step="Next: what stays the same when the basis changes.",
)


def _values() -> list[tuple]:
    random = torch.Generator().manual_seed(7)
    sizes = [(2, 4), (3, 5), (2, 7)]
    return [
        (
            torch.randn(m, d, generator=random).double(),
            torch.randn(d, m, generator=random).double(),
            torch.randn(d, d, generator=random).double() + 3 * torch.eye(d).double(),
        )
        for d, m in sizes
    ]


def _any_basis(draw: Draw) -> tuple:
    m, d = draw.whole(1, 6), draw.whole(1, 4)
    r = draw.one_of([1.0, 100.0, 0.01]) * (draw.normal(d, d, scales=(1.0,)) + 4 * torch.eye(d))
    return draw.normal(m, d), draw.normal(d, m), r


check_change_of_basis = Exercise(
    name="a change of basis that nobody notices",
    solution=lambda v, o, r: [v @ r, torch.linalg.inv(r) @ o],
    cases=_values,
    legal=_any_basis,
    mistakes={
        "W_o is multiplied by R instead of its inverse": lambda v, o, r: [v @ r, r @ o],
        "W_o is multiplied by the transpose of R (right only for rotations)": lambda v, o, r: [v @ r, r.T @ o],
        "only W_v is changed": lambda v, o, r: [v @ r, o],
        "only W_o is changed": lambda v, o, r: [v, torch.linalg.inv(r) @ o],
        "R and its inverse have changed places": lambda v, o, r: [v @ torch.linalg.inv(r), r @ o],
        "the transposed inverse is used, as it would be for W_k": lambda v, o, r: [v @ r, torch.linalg.inv(r).T @ o],
    },
    next_step="Next: fold the two matrices into one.",
)


def _one_head() -> list[tuple]:
    random = torch.Generator().manual_seed(8)
    sizes = [(1, 3, 4, 2), (2, 4, 5, 3), (1, 6, 3, 3)]
    return [
        tuple(t.double() for t in (
            torch.randn(b, n, n, generator=random).softmax(-1), torch.randn(b, n, m, generator=random),
            torch.randn(m, d, generator=random), torch.randn(d, m, generator=random)))
        for b, n, m, d in sizes
    ]  # fmt: skip


def _any_head(draw: Draw) -> tuple:
    b, n, m, d = draw.whole(1, 3), draw.whole(1, 5), draw.whole(1, 5), draw.whole(1, 4)
    return draw.normal(b, n, n).softmax(-1), draw.normal(b, n, m), draw.normal(m, d), draw.normal(d, m)


check_fold = Exercise(
    name="one matrix instead of two",
    solution=lambda a, x, v, o: [v @ o, a @ x @ (v @ o)],
    cases=_one_head,
    legal=_any_head,
    mistakes={
        "the product is taken the other way round, transposed": lambda a, x, v, o: [(v @ o).T, a @ x @ (v @ o).T],
        "the output forgets the attention weights": lambda a, x, v, o: [v @ o, x @ (v @ o)],
        "the weights are used transposed": lambda a, x, v, o: [v @ o, a.mT @ x @ (v @ o)],
        "the input is added, as by a residual connection": lambda a, x, v, o: [v @ o, x + a @ x @ (v @ o)],
        "the folded matrix is divided by √d": lambda a, x, v, o: [v @ o / math.sqrt(v.shape[1]), a @ x @ (v @ o)],
        "the transpose of W_v takes the place of W_o": lambda a, x, v, o: [v @ v.T, a @ x @ (v @ v.T)],
    },
    next_step="Next: all of it inside a Transformer.",
)
