"""Checkers: when a key is out, heads of their own kind, the backward pass with zeros."""

import math

import torch

from mha.course.exercises.exercise import Exercise
from mha.course.exercises.legal import Draw
from mha.course.exercises.plain import sparsify as plain
from mha.functional.entmax import entmax

check_gap = Exercise(**vars(plain.check_gap))


def _weights(scores, raw, mask):
    return entmax(scores.masked_fill(~mask, -torch.inf), 1 + raw.sigmoid())


def _hidden_late(scores, raw, mask, *, again=False):
    weights = entmax(scores, 1 + raw.sigmoid()) * mask
    return weights / weights.sum(-1, keepdim=True).clamp(min=1e-9) if again else weights


def _scored() -> list[tuple]:
    random = torch.Generator().manual_seed(1)
    sizes = [(1, 2, 2, 3), (2, 3, 4, 5)]
    masks = [[[1, 1, 0], [0, 1, 1]], [[1, 0, 1, 1, 0], [1, 1, 1, 1, 1], [0, 0, 1, 0, 1], [1, 1, 0, 1, 0]]]
    return [
        (
            1.5 * torch.randn(s, generator=random, dtype=torch.float64),
            torch.randn(s[1], generator=random, dtype=torch.float64),
            torch.tensor(mask).bool(),
        )
        for s, mask in zip(sizes, masks, strict=True)
    ]


def _any_scored(draw: Draw) -> tuple:
    heads, i, j = draw.whole(1, 4), draw.whole(1, 5), draw.whole(1, 6)
    mask = draw.yes_or_no(i, j, share=draw.one_of([0.3, 0.7, 1.0]))
    mask |= torch.arange(j) == draw.integers(0, j - 1, i, 1)  # one key at least
    scores = draw.normal(draw.whole(1, 3), heads, i, j, scales=(1.0, 5.0, 0.2))
    return scores, draw.normal(heads, scales=(1.0, 2.0)), mask


check_heads = Exercise(
    name="heads of their own kind, and a mask",
    solution=_weights,
    cases=_scored,
    gradients=True,
    legal=_any_scored,
    mistakes={
        "the mask is left out": lambda s, a, m: _weights(s, a, torch.ones_like(m)),
        "hidden after the weights were made: the rows no longer sum to 1": _hidden_late,
        "hidden too late, then divided by the sum: that works for softmax only": lambda s, a, m: _hidden_late(
            s, a, m, again=True
        ),
        "True was read as hidden": lambda s, a, m: _weights(s, a, ~m),
        "hidden scores are 0: an ordinary score": lambda s, a, m: entmax(s * m, 1 + a.sigmoid()),
        "softmax in every head": lambda s, a, m: s.masked_fill(~m, -torch.inf).softmax(-1),
        "α = 1.5 in every head": lambda s, a, m: entmax(s.masked_fill(~m, -torch.inf), 1.5),
        "the α of the heads in the wrong order": lambda s, a, m: _weights(s, a.flip(0), m),
        "sigmoid of −a: large numbers make softmax heads": lambda s, a, m: _weights(s, -a, m),
        "the mean of all α in every head": lambda s, a, m: entmax(
            s.masked_fill(~m, -torch.inf), 1 + a.sigmoid().mean().expand_as(a)
        ),
        "α = 2 in every head": lambda s, a, m: entmax(s.masked_fill(~m, -torch.inf), 2.0),
    },
    next_step="Next: what the zeros learn.",
)


def _backward(p, dp, alpha, *, r=None, count=None):
    r = torch.where(p > 0, torch.where(p > 0, p, 1) ** (2 - alpha), 0) if r is None else r
    count = r.sum(-1, keepdim=True) if count is None else count
    return r * (dp - (r * dp).sum(-1, keepdim=True) / count)


def _sparse_rows() -> list[tuple]:
    random = torch.Generator().manual_seed(2)
    cases = []
    for alpha, shape in ((1.5, (1, 1, 4)), (2.0, (2, 3, 5)), (1.25, (2, 2, 6))):
        scores = 2 * torch.randn(shape, generator=random, dtype=torch.float64)
        cases.append((entmax(scores[None], alpha)[0], torch.randn(shape, generator=random, dtype=torch.float64), alpha))
    return cases


def _any_sparse_rows(draw: Draw) -> tuple:
    n, alpha = draw.whole(1, 7), draw.one_of([2.0, 1.5, draw.number(1.05, 1.95)])
    before = draw.one_of([(), (draw.whole(1, 4),), (2, draw.whole(1, 4)), (2, 3, draw.whole(1, 3))])
    scores = draw.normal(*before, n, scales=(1.0, 3.0, 0.2))
    weights = entmax(scores.reshape(1, 1, -1, n), alpha).view_as(scores)
    return weights, draw.normal(*before, n), alpha


check_backward = Exercise(
    name="the backward pass with zeros",
    solution=_backward,
    cases=_sparse_rows,
    legal=_any_sparse_rows,
    mistakes={
        "that is softmax: p in place of r": lambda p, dp, a: _backward(p, dp, a, r=p),
        "keys without weight take part at α = 2, where 0⁰ is 1": lambda p, dp, a: _backward(p, dp, a, r=p ** (2 - a)),
        "the average is not divided by the sum of r": lambda p, dp, a: _backward(p, dp, a, count=1.0),
        "the average is not subtracted": lambda p, dp, a: torch.where(p > 0, p ** (2 - a), 0) * dp,
        "a plain mean over the row": lambda p, dp, a: (
            torch.where(p > 0, p ** (2 - a), 0) * (dp - dp.mean(-1, keepdim=True))
        ),
        "the exponent is α − 1, not 2 − α": lambda p, dp, a: _backward(p, dp, a, r=torch.where(p > 0, p ** (a - 1), 0)),
        "every key of the support counts alike: right at α = 2 only": lambda p, dp, a: _backward(
            p, dp, a, r=(p > 0).to(p)
        ),
        "the sums run down the columns": lambda p, dp, a: (
            torch.where(p > 0, p ** (2 - a), 0)
            * (
                dp
                - (torch.where(p > 0, p ** (2 - a), 0) * dp).sum(-2, keepdim=True)
                / torch.where(p > 0, p ** (2 - a), 0).sum(-2, keepdim=True).clamp(min=math.ulp(1.0))
            )
        ),
        "the sign is wrong": lambda p, dp, a: -_backward(p, dp, a),
        "the average is taken with p, not with r": lambda p, dp, a: (
            torch.where(p > 0, p ** (2 - a), 0) * (dp - (p * dp).sum(-1, keepdim=True))
        ),
    },
    forbidden=("autograd", "backward", "grad", "vjp", "vmap", "jacobian", "entmax"),
    next_step="That is what the library does in its backward pass.",
)
