"""Checkers: the standard deviation of scores, the scale of several heads, QK-norm, the backward pass."""

import math

import torch
import torch.nn.functional as F

from mha.course.exercises.exercise import Exercise
from mha.course.exercises.legal import Draw
from mha.course.exercises.plain import why_scale as plain
from mha.functional.attention import attention_weights

check_std = Exercise(**vars(plain.check_std))


def _scaled(q, k, scale, after=1.0):
    return (q @ k.mT * scale).softmax(-1) * after


def _heads() -> list[tuple]:
    random = torch.Generator().manual_seed(2)
    sizes = [(1, 2, 3, 4), (2, 3, 5, 7), (2, 8, 4, 2)]
    return [tuple(torch.randn(s, generator=random, dtype=torch.float64) for _ in range(2)) for s in sizes]


def _any_heads(draw: Draw) -> tuple:
    shape = draw.whole(1, 3), draw.whole(1, 4), draw.whole(1, 6), draw.whole(1, 5)
    return draw.normal(*shape, scales=(1.0, 3.0, 0.01, 40.0)), draw.normal(*shape, scales=(1.0, 3.0))


check_heads = Exercise(
    name="the weights of several heads",
    solution=lambda q, k: attention_weights(q, k),
    cases=_heads,
    legal=_any_heads,
    mistakes={
        "scaled by √ of the model's width h·d instead of one head's": lambda q, k: _scaled(
            q, k, 1 / math.sqrt(q.shape[1] * q.shape[-1])
        ),
        "the scores are not scaled": lambda q, k: _scaled(q, k, 1.0),
        "scaled by d instead of √d": lambda q, k: _scaled(q, k, 1 / q.shape[-1]),
        "scaled after the softmax": lambda q, k: _scaled(q, k, 1.0, 1 / math.sqrt(q.shape[-1])),
        "scaled before and again after the softmax": lambda q, k: _scaled(
            q, k, 1 / math.sqrt(q.shape[-1]), 1 / math.sqrt(q.shape[-1])
        ),
        "scaled by √ of the number of words": lambda q, k: _scaled(q, k, 1 / math.sqrt(q.shape[-2])),
        "multiplied by √d instead of divided": lambda q, k: _scaled(q, k, math.sqrt(q.shape[-1])),
        "softmax over the queries (the wrong axis)": lambda q, k: (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-2),
        "softmax over the heads": lambda q, k: (q @ k.mT / math.sqrt(q.shape[-1])).softmax(1),
    },
    by_hand=True,
    next_step="Next: scores that cannot grow.",
)


def _cosines(q, k, gain):
    return gain * F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT


def _gains() -> list[tuple]:
    return [(*case, gain) for case, gain in zip(_heads(), (1.0, 10.0, 2.5), strict=True)]


def _any_gain(draw: Draw) -> tuple:
    shape = draw.whole(1, 3), draw.whole(1, 4), draw.whole(1, 6), draw.whole(2, 5)
    gain = draw.one_of([1.0, 100.0, 1e-3]) * draw.number(0.5, 2.0)
    return draw.normal(*shape, scales=(1.0, 1e4, 0.01)), draw.normal(*shape, scales=(1.0, 1e4, 0.01)), gain


check_qk_norm = Exercise(
    name="scores with QK-norm",
    solution=_cosines,
    cases=_gains,
    legal=_any_gain,
    mistakes={
        "divided by √d as well": lambda q, k, g: _cosines(q, k, g) / math.sqrt(q.shape[-1]),
        "only the queries are normalized": lambda q, k, g: g * F.normalize(q, dim=-1) @ k.mT,
        "only the keys are normalized": lambda q, k, g: g * q @ F.normalize(k, dim=-1).mT,
        "normalized along the words instead of the channels": lambda q, k, g: (
            g * F.normalize(q, dim=-2) @ F.normalize(k, dim=-2).mT
        ),
        "divided by the squared lengths": lambda q, k, g: (
            g * (q / q.square().sum(-1, True)) @ (k / k.square().sum(-1, True)).mT
        ),
        "divided by the root mean square: each length is √d, not 1": lambda q, k, g: _cosines(q, k, g) * q.shape[-1],
        "the gain is left out": lambda q, k, g: _cosines(q, k, 1.0),
        "divided by the gain": lambda q, k, g: _cosines(q, k, 1 / g),
        "normalized by the sum of absolute values": lambda q, k, g: (
            g * F.normalize(q, p=1, dim=-1) @ F.normalize(k, p=1, dim=-1).mT
        ),
    },
    next_step="Now no training step can make the scores large.",
)


def _backward(q, k, v, g, *, center=True, jacobian=None, scale=None):
    """The gradients of sum(g · attention(q, k, v)), with places for the usual mistakes."""
    weights = attention_weights(q, k)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    d_weights = g @ v.mT
    mean = (weights * d_weights).sum(-1, keepdim=True) if center else 0.0
    d_scores = weights * (d_weights - mean) if jacobian is None else jacobian(weights, d_weights)
    return d_scores @ k * scale, d_scores.mT @ q * scale, weights.mT @ g


def _upstream() -> list[tuple]:
    random = torch.Generator().manual_seed(3)
    sizes = [(1, 3, 2), (2, 4, 3), (2, 5, 6)]
    return [tuple(torch.randn(s, generator=random, dtype=torch.float64) for _ in range(4)) for s in sizes]


def _swap(dq, dk, dv):
    return dk, dq, dv


def _untransposed(q, k, v, g):
    dq, dk, _ = _backward(q, k, v, g)
    return dq, dk, attention_weights(q, k) @ g


def _keys_untransposed(q, k, v, g):
    dq, _, dv = _backward(q, k, v, g)
    weights, d_weights = attention_weights(q, k), g @ v.mT
    d_scores = weights * (d_weights - (weights * d_weights).sum(-1, keepdim=True))
    return dq, d_scores @ q / math.sqrt(q.shape[-1]), dv


def _any_upstream(draw: Draw) -> tuple:
    shape = draw.whole(1, 3), draw.whole(1, 5), draw.whole(1, 4)
    q, k, v, g = (draw.normal(*shape, scales=(1.0, 0.3, 3.0)) for _ in range(4))
    return q, k, v, g


check_backward = Exercise(
    name="the backward pass of attention",
    solution=_backward,
    cases=_upstream,
    legal=_any_upstream,
    mistakes={
        "the row's average is not taken away: dS = P∘dP": lambda *a: _backward(*a, center=False),
        "only the diagonal of the softmax's Jacobian: dS = P∘(1−P)∘dP": lambda *a: _backward(
            *a, jacobian=lambda p, dp: p * (1 - p) * dp
        ),
        "the average without the weights: a plain mean of dP": lambda *a: _backward(
            *a, jacobian=lambda p, dp: p * (dp - dp.mean(-1, keepdim=True))
        ),
        "the sum runs down the columns instead of along the rows": lambda *a: _backward(
            *a, jacobian=lambda p, dp: p * (dp - (p * dp).sum(-2, keepdim=True))
        ),
        "the plain sum of dP, without the weights": lambda *a: _backward(
            *a, jacobian=lambda p, dp: p * (dp - dp.sum(-1, keepdim=True))
        ),
        "the softmax is skipped: dS = dP": lambda *a: _backward(*a, jacobian=lambda p, dp: dp),
        "the scale is missing from dQ and dK": lambda *a: _backward(*a, scale=1.0),
        "the scale is applied twice": lambda q, *a: _backward(q, *a, scale=1 / q.shape[-1]),
        "dQ and dK are swapped": lambda *a: _swap(*_backward(*a)),
        "dV = P·g; the weights must be transposed": _untransposed,
        "dK = dS·Q/√d; dS must be transposed": _keys_untransposed,
        "the sign is flipped": lambda *a: tuple(-t for t in _backward(*a)),
        "dV = g; the weights are missing": lambda *a: (*_backward(*a)[:2], a[3]),
    },
    forbidden=("autograd", "backward", "grad", "vjp", "vmap", "jacobian"),
    next_step="That is what autograd does for every attention layer.",
)
