"""Checkers: softmax, what one query reads, a whole attention head."""

import math

import torch

from mha.course.exercises.exercise import Exercise
from mha.course.exercises.legal import Draw
from mha.course.exercises.plain import why_attention as plain
from mha.functional.attention import attend

check_softmax = Exercise(**vars(plain.check_softmax))


check_read = Exercise(**vars(plain.check_read))


def _heads() -> list[tuple]:
    random = torch.Generator().manual_seed(1)
    sizes = [(1, 2, 3, 2, 2), (2, 5, 7, 3, 4), (3, 4, 5, 5, 2)]
    return [
        tuple(torch.randn(s, generator=random, dtype=torch.float64) for s in ((b, n, m), (m, k), (m, k), (m, v)))
        for b, n, m, k, v in sizes
    ]


def _any_head(draw: Draw) -> tuple:
    words, d_k, d_v = draw.whole(1, 6), draw.whole(1, 5), draw.whole(1, 5)
    x = draw.normal(draw.whole(1, 3), draw.whole(1, 6), words, scales=(1.0, 1.0, 0.01, 30.0))
    return x, draw.normal(words, d_k), draw.normal(words, d_k), draw.normal(words, d_v)


def _head(x, w_q, w_k, w_v, *, scale=None, softmax=lambda s: s.softmax(-1), swap=False, after=1.0):
    """One head with places for the usual mistakes."""
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    q, k = (k, q) if swap else (q, k)
    return softmax(q @ k.mT * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)) @ v * after


def _right(x, w_q, w_k, w_v):
    return attend(x @ w_q, x @ w_k, x @ w_v, explicit=True)


check_attention = Exercise(
    name="a whole attention head",
    solution=_right,
    cases=_heads,
    legal=_any_head,
    mistakes={
        "softmax over the queries (the wrong axis)": lambda *a: _head(*a, softmax=lambda s: s.softmax(-2)),
        "softmax over the whole matrix": lambda *a: _head(*a, softmax=lambda s: s.flatten(1).softmax(-1).view_as(s)),
        "softmax over the batch": lambda *a: _head(*a, softmax=lambda s: s.softmax(0)),
        "queries and keys are swapped": lambda *a: _head(*a, swap=True),
        "the scores are not scaled": lambda *a: _head(*a, scale=1.0),
        "scaled by √ of the word's width instead of √d_k": lambda *a: _head(*a, scale=1 / math.sqrt(a[0].shape[-1])),
        "divided by √d_k after the softmax": lambda *a: _head(*a, scale=1.0, after=1 / math.sqrt(a[1].shape[-1])),
        "no softmax": lambda *a: _head(*a, softmax=lambda s: s),
    },
    by_hand=True,
    next_step="The next chapter asks why the scale is there.",
)
