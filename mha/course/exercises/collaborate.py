"""Checkers: counting shared parameters, scores in a shared space, the best mixing vectors."""

import math

import torch

from mha.course.exercises.exercise import Exercise
from mha.course.exercises.legal import Draw
from mha.course.exercises.plain import collaborate as plain

check_count = Exercise(**vars(plain.check_count))


def _scores(q, k, mixing, content, d, *, after=False, root=None, power=1):
    scores = (q * mixing[:, None] ** power) @ k.T
    root = math.sqrt(d) if root is None else root
    return scores / root + content[:, None] if after else (scores + content[:, None]) / root


def _spaces() -> list[tuple]:
    random = torch.Generator().manual_seed(14)
    sizes = [(4, 2, 6, 3), (5, 3, 4, 8), (6, 4, 9, 2)]  # tokens, heads, shared channels, channels of a plain head

    def draw(*shape):
        return torch.randn(shape, generator=random, dtype=torch.float64)

    return [(draw(n, r), draw(n, r), draw(h, r), draw(h, n), d) for n, h, r, d in sizes]


def _any_space(draw: Draw) -> tuple:
    i, j, heads, shared = draw.whole(1, 5), draw.whole(1, 5), draw.whole(1, 4), draw.whole(1, 6)
    q, k, mixing = draw.normal(i, shared), draw.normal(j, shared), draw.normal(heads, shared)
    return q, k, mixing, draw.normal(heads, j, scales=(1.0, 20.0)), draw.integer(1, 9)


check_scores = Exercise(
    name="scores in a shared space",
    solution=_scores,
    cases=_spaces,
    legal=_any_space,
    mistakes={
        "the content bias is left out": lambda q, k, m, c, d: _scores(q, k, m, c * 0, d),
        "the content bias is added after the division": lambda *a: _scores(*a, after=True),
        "the content bias belongs to keys, but it was added along the queries": lambda q, k, m, c, d: (
            ((q * m[:, None]) @ k.T + c[..., None]) / math.sqrt(d)
        ),
        "divided by the square root of the shared width": lambda q, *a: _scores(q, *a, root=math.sqrt(q.shape[1])),
        "divided by √(shared width / heads), as the released package does": lambda q, k, m, *a: _scores(
            q, k, m, *a, root=math.sqrt(q.shape[1] / len(m))
        ),
        "not divided": lambda *a: _scores(*a, root=1.0),
        "divided by d, not by its square root": lambda *a: _scores(*a, root=a[-1]),
        "queries and keys are both mixed, which squares the mixing vectors": lambda *a: _scores(*a, power=2),
        "nothing is mixed: all heads compare alike": lambda q, k, m, c, d: _scores(q, k, torch.ones_like(m), c, d),
        "queries and keys are swapped": lambda q, k, m, c, d: _scores(k, q, m, c, d),
        "the mixing vectors are added, not multiplied": lambda q, k, m, c, d: (
            ((q + m[:, None]) @ k.T + c[:, None]) / math.sqrt(d)
        ),
    },
    next_step="Next: find the mixing vectors of a trained layer.",
)


def _mixing(matrices, left, right, gram=lambda a, b: a * b):
    asked = torch.einsum("hmk,mr,kr->hr", matrices, left, right)
    return asked @ torch.linalg.inv(gram(left.T @ left, right.T @ right))


def _terms() -> list[tuple]:
    random = torch.Generator().manual_seed(41)
    return [
        tuple(torch.randn(s, generator=random, dtype=torch.float64) for s in ((h, m, m), (m, r), (m, r)))
        for h, m, r in ((1, 5, 2), (3, 6, 4), (2, 7, 5))
    ]


def _any_terms(draw: Draw) -> tuple:
    m, k, shared = draw.whole(3, 6), draw.whole(3, 6), draw.whole(1, 4)
    matrices = draw.normal(draw.whole(1, 4), m, k, scales=(1.0, 100.0))
    return matrices, draw.normal(m, shared, scales=(1.0,)), draw.normal(k, shared, scales=(1.0,))


check_mixing = Exercise(
    name="the best mixing vectors",
    solution=_mixing,
    cases=_terms,
    legal=_any_terms,
    mistakes={
        "the terms overlap: their products with each other are left out": lambda t, a, b: torch.einsum(
            "hmk,mr,kr->hr", t, a, b
        ),
        "each term is fitted alone, as if the others were not there": lambda t, a, b: _mixing(
            t, a, b, lambda p, q: torch.diag((p * q).diagonal())
        ),
        "only the left vectors' products are divided out": lambda t, a, b: _mixing(t, a, b, lambda p, q: p),
        "only the right vectors' products are divided out": lambda t, a, b: _mixing(t, a, b, lambda p, q: q),
        "the two tables of products are added, not multiplied": lambda t, a, b: _mixing(t, a, b, lambda p, q: p + q),
        "the two tables of products are multiplied as matrices, not number by number": lambda t, a, b: _mixing(
            t, a, b, lambda p, q: p @ q
        ),
        "left and right vectors are swapped": lambda t, a, b: _mixing(t, b, a),
        "the sign is flipped": lambda t, a, b: -_mixing(t, a, b),
        "the same vector for every head: fit each one": lambda t, a, b: _mixing(t, a, b).sum(0) + 0 * _mixing(t, a, b),
    },
    next_step="Two more such steps, for left and right vectors, are one round of the method.",
)
