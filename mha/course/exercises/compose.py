"""Checkers: talking heads, the matrices that tokens ask for, the side of the keys, the bill."""

import torch
from torch import Tensor

from mha.course.exercises.exercise import Exercise
from mha.course.exercises.legal import Draw
from mha.course.exercises.plain import compose as plain


def _random(*shape: int, seed: int = 17) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _mix(x: Tensor, mixing: Tensor) -> Tensor:
    return torch.einsum("gij,gh->hij", x, mixing)


def _hide(x: Tensor, mask: Tensor, low: float = -torch.inf) -> Tensor:
    return x.masked_fill(~mask, low)


def _talk(scores: Tensor, before: Tensor, after: Tensor, mask: Tensor) -> Tensor:
    return _mix(_hide(_mix(scores, before), mask).softmax(-1), after)


def _texts() -> list[tuple]:
    """Scores (h, i, j), two mixing matrices (h, h), a mask (i, j) that shows at least one key to each query."""
    cases = []
    for h, i, j in ((2, 2, 2), (3, 3, 3), (4, 2, 5)):
        mask = torch.ones(i, j, dtype=torch.bool).tril(j - i)
        cases.append((_random(h, i, j), _random(h, h, seed=1), _random(h, h, seed=2), mask))
    return cases


def _any_text(draw: Draw) -> tuple:
    heads, i, j = draw.whole(1, 5), draw.whole(1, 5), draw.whole(1, 5)
    mask = draw.yes_or_no(i, j, share=draw.one_of([0.3, 0.7, 1.0]))
    mask |= torch.arange(j) == draw.integers(0, j - 1, i, 1)  # one key at least
    return draw.normal(heads, i, j, scales=(1.0, 10.0)), draw.normal(heads, heads), draw.normal(heads, heads), mask


check_talk = Exercise(
    name="talking heads",
    solution=_talk,
    cases=_texts,
    legal=_any_text,
    mistakes={
        "mix_scores goes from column to row: it is transposed": lambda s, a, b, m: _talk(s, a.mT, b, m),
        "mix_weights goes from column to row: it is transposed": lambda s, a, b, m: _talk(s, a, b.mT, m),
        "the weights are not mixed": lambda s, a, b, m: _talk(s, a, torch.eye(len(b)).to(b), m),
        "the scores are not mixed": lambda s, a, b, m: _talk(s, torch.eye(len(a)).to(a), b, m),
        "the two mixing matrices are swapped": lambda s, a, b, m: _talk(s, b, a, m),
        "both matrices act after the softmax": lambda s, a, b, m: _mix(_hide(s, m).softmax(-1), a @ b),
        "the unmixed scores are added to the mixed ones": lambda s, a, b, m: _talk(
            s, a + torch.eye(len(a)).to(a), b, m
        ),
        "the mask is not used": lambda s, a, b, m: _mix(_mix(s, a).softmax(-1), b),
        "hidden scores are set to a large negative number before they are mixed": (
            lambda s, a, b, m: _mix(_mix(_hide(s, m, -1e4), a).softmax(-1), b)
        ),
        "hidden weights are set to 0 after the softmax": (
            lambda s, a, b, m: _mix(_hide(_mix(s, a).softmax(-1), m, 0.0), b)
        ),
        "the softmax runs over the heads": lambda s, a, b, m: _mix(_hide(_mix(s, a), m, -1e4).softmax(0), b),
        "the mixing matrices went through a softmax: they are used as they are": lambda s, a, b, m: _talk(
            s, a.softmax(0), b.softmax(0), m
        ),
        "both matrices act before the softmax": lambda s, a, b, m: _hide(_mix(s, a @ b), m).softmax(-1),
        "both mixing matrices are transposed": lambda s, a, b, m: _talk(s, a.mT, b.mT, m),
    },
    next_step="Next: matrices made from tokens.",
)


def _norm(w: Tensor, axis: int = -1) -> Tensor:
    return w / (w.square().mean(axis, keepdim=True) + 1e-6).sqrt()


def _said() -> list[tuple]:
    """w1 and w2 (n, r, h), gates (n, h), a base (h, h)."""
    sizes = [(1, 1, 2), (3, 2, 3), (2, 2, 4)]
    return [
        (2 * _random(n, r, h), _random(n, r, h, seed=1), 2 * _random(n, h, seed=2), _random(h, h, seed=3))
        for n, r, h in sizes
    ]


def _matrices(w1: Tensor, w2: Tensor, gate: Tensor, base: Tensor) -> Tensor:
    return base + _norm(w1).mT @ w2 + torch.diag_embed(gate.tanh())


def _any_said(draw: Draw) -> tuple:
    n, rank, heads = draw.whole(1, 4), draw.whole(1, 3), draw.whole(1, 5)
    w1 = draw.normal(n, rank, heads, scales=(1.0, 1e-3, 100.0))
    return w1, draw.normal(n, rank, heads), draw.normal(n, heads, scales=(1.0, 5.0)), draw.normal(heads, heads)


check_matrices = Exercise(
    name="the matrices that tokens ask for",
    solution=_matrices,
    cases=_said,
    legal=_any_said,
    mistakes={
        "w1 is not brought to size 1": lambda a, b, g, w: w + a.mT @ b + torch.diag_embed(g.tanh()),
        "w1 is divided by its length; root mean square 1 is √h times as much": (
            lambda a, b, g, w: _matrices(a, b / a.shape[-1] ** 0.5, g, w)
        ),
        "w1 is normalized over the ranks, not over the heads": (
            lambda a, b, g, w: w + _norm(a, 1).mT @ b + torch.diag_embed(g.tanh())
        ),
        "w2 is normalized as well": lambda a, b, g, w: _matrices(a, _norm(b), g, w),
        "w2 is normalized in place of w1": lambda a, b, g, w: w + a.mT @ _norm(b) + torch.diag_embed(g.tanh()),
        "w1 and w2 are swapped: from column to row": lambda a, b, g, w: (
            w + b.mT @ _norm(a) + torch.diag_embed(g.tanh())
        ),
        "the base is transposed": lambda a, b, g, w: _matrices(a, b, g, w.mT),
        "the base is left out": lambda a, b, g, w: _matrices(a, b, g, w) - w,
        "the gates have no tanh": lambda a, b, g, w: w + _norm(a).mT @ b + torch.diag_embed(g),
        "the gates go through a sigmoid; they must be able to be negative": (
            lambda a, b, g, w: w + _norm(a).mT @ b + torch.diag_embed(g.sigmoid())
        ),
        "the gates are added to whole rows, not to the diagonal": (
            lambda a, b, g, w: w + _norm(a).mT @ b + g.tanh()[..., None]
        ),
        "the gates are left out": lambda a, b, g, w: w + _norm(a).mT @ b,
        "divided by the mean square, not by its root": lambda a, b, g, w: (
            w + (a / (a.square().mean(-1, keepdim=True) + 1e-6)).mT @ b + torch.diag_embed(g.tanh())
        ),
    },
    next_step="Next: how many parameters this takes.",
)


def _keys() -> list[tuple]:
    """Scores (h, n, n), w1 and w2 (n, r, h): as many queries as keys, so that mixed-up axes keep the shape."""
    sizes = [(2, 2, 1), (3, 4, 2), (4, 3, 2)]
    return [(_random(h, n, n), _random(n, r, h, seed=1), _random(n, r, h, seed=2)) for h, n, r in sizes]


def _key_side(x: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
    return torch.einsum("rij,jrh->hij", torch.einsum("gij,jrg->rij", x, w1), w2)


def _query_side(x: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
    return torch.einsum("rij,irh->hij", torch.einsum("gij,irg->rij", x, w1), w2)


def _any_keys(draw: Draw) -> tuple:
    heads, i, j, rank = draw.whole(1, 4), draw.whole(1, 5), draw.whole(1, 5), draw.whole(1, 3)
    return draw.normal(heads, i, j), draw.normal(j, rank, heads), draw.normal(j, rank, heads)


check_key_side = Exercise(
    name="the side of the keys",
    solution=_key_side,
    cases=_keys,
    legal=_any_keys,
    mistakes={
        "the weights are taken at the query, not at the key": _query_side,
        "w1 is taken at the query, w2 at the key": lambda x, a, b: torch.einsum(
            "rij,jrh->hij", torch.einsum("gij,irg->rij", x, a), b
        ),
        "w1 is taken at the key, w2 at the query": lambda x, a, b: torch.einsum(
            "rij,irh->hij", torch.einsum("gij,jrg->rij", x, a), b
        ),
        "w1 and w2 are swapped": lambda x, a, b: _key_side(x, b, a),
        "all keys are summed up while collecting": lambda x, a, b: torch.einsum(
            "ri,jrh->hij", torch.einsum("gij,jrg->ri", x, a), b
        ),
        "w1 and w2 are each summed over the ranks before they meet": lambda x, a, b: _key_side(
            x, a.sum(1, keepdim=True), 2 * b.sum(1, keepdim=True)
        ),
        "each head is mixed with itself only: x · w1 · w2 without a sum over the heads": lambda x, a, b: (
            x * torch.einsum("jrh,jrh->hj", a, b)[:, None]
        ),
        "what is collected is averaged over the heads, not summed": lambda x, a, b: _key_side(x, a, b) / len(x),
        "what was there is added to the result": lambda x, a, b: x + _key_side(x, a, b),
        "one matrix for all keys: the mean of their matrices": lambda x, a, b: torch.einsum(
            "gij,gh->hij", x, torch.einsum("jrg,jrh->gh", a, b) / len(a)
        ),
    },
    room=lambda x, w1, w2: max(x.numel(), w1.numel(), w1.shape[1] * x[0].numel()),
    too_large="There is a matrix for every key or every pair: collect the heads first, then spread.",
    next_step="So the low-rank form is enough.",
)


check_extra = Exercise(**vars(plain.check_extra))
