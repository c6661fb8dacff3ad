"""Checkers: a running average, the depth-scaled initialization, merged attention."""

import math

import torch

from mha.course.exercises.exercise import Exercise
from mha.course.exercises.legal import Draw
from mha.course.exercises.plain import merge_and_deepen as plain


def _average(v):
    return v.cumsum(2) / torch.arange(1, v.shape[2] + 1)[:, None].to(v)


def _values() -> list[tuple]:
    random = torch.Generator().manual_seed(1)
    return [
        (torch.randn(s, generator=random, dtype=torch.float64),) for s in ((1, 1, 3, 2), (2, 3, 5, 4), (1, 2, 4, 3))
    ]


def _any_values(draw: Draw) -> tuple:
    return (draw.normal(draw.whole(1, 3), draw.whole(1, 4), draw.whole(1, 7), draw.whole(1, 4), scales=(1.0, 1e3)),)


check_average = Exercise(
    name="a running average",
    solution=_average,
    cases=_values,
    legal=_any_values,
    mistakes={
        "a sum, not divided": lambda v: v.cumsum(2),
        "the average of the whole sequence: it sees the future": lambda v: v.mean(2, keepdim=True).expand_as(v),
        "divided by the length of the sequence at every position": lambda v: v.cumsum(2) / v.shape[2],
        "summed over the heads": lambda v: v.cumsum(1) / torch.arange(1, v.shape[2] + 1)[:, None].to(v),
        "summed over the channels": lambda v: v.cumsum(3) / torch.arange(1, v.shape[2] + 1)[:, None].to(v),
        "counted from 2": lambda v: v.cumsum(2) / torch.arange(2, v.shape[2] + 2)[:, None].to(v),
        "the current token is left out": lambda v: (
            (v.cumsum(2) - v) / torch.arange(v.shape[2])[:, None].clamp(min=1).to(v)
        ),
        "averaged from the back": lambda v: _average(v.flip(2)).flip(2),
        "averaged over the channels": lambda v: v.cumsum(3) / torch.arange(1, v.shape[3] + 1).to(v),
        "divided by the square root of the count": lambda v: (
            v.cumsum(2) / torch.arange(1, v.shape[2] + 1)[:, None].sqrt().to(v)
        ),
        "the largest so far, not the average": lambda v: v.cummax(2).values,
    },
    next_step="Next: how large an initialization may be.",
)


check_start = Exercise(**vars(plain.check_start))


def _merged(x, memory, w_q, w_k, w_v, w_o, *, own=None, scale=None, late=False, share=1.0):
    scale = 1 / math.sqrt(w_q.shape[1]) if scale is None else scale
    read = (x @ w_q @ (memory @ w_k).mT * scale).softmax(-1) @ (memory @ w_v)
    counts = torch.arange(1, x.shape[0] + 1)[:, None].to(x)
    own = (x @ w_v).cumsum(0) / counts if own is None else own
    return read @ w_o + own if late else (share * read + own) @ w_o


def _whole() -> list[tuple]:
    random = torch.Generator().manual_seed(2)
    cases = []
    for n, j, m in ((2, 3, 2), (4, 5, 3), (5, 3, 4)):
        shapes = [(n, m), (j, m), *[(m, m)] * 4]
        cases.append(tuple(torch.randn(s, generator=random, dtype=torch.float64) for s in shapes))
    return cases


def _summed(x, memory, w_q, w_k, w_v, w_o):
    return _merged(x, memory, w_q, w_k, w_v, w_o, own=(x @ w_v).cumsum(0))


def _future(x, memory, w_q, w_k, w_v, w_o):
    return _merged(x, memory, w_q, w_k, w_v, w_o, own=(x @ w_v).mean(0, keepdim=True).expand(x.shape[0], -1))


def _of_keys(x, memory, w_q, w_k, w_v, w_o):
    counts = torch.arange(1, x.shape[0] + 1)[:, None].to(x)
    return _merged(x, memory, w_q, w_k, w_v, w_o, own=(x @ w_k).cumsum(0) / counts)


def _bare(x, memory, w_q, w_k, w_v, w_o):
    counts = torch.arange(1, x.shape[0] + 1)[:, None].to(x)
    return _merged(x, memory, w_q, w_k, w_v, w_o, own=x.cumsum(0) / counts)


def _any_whole(draw: Draw) -> tuple:
    n, j, m = draw.whole(1, 6), draw.whole(1, 6), draw.whole(1, 5)
    w_q, w_k, w_v, w_o = (draw.normal(m, m, scales=(0.5, 1.0)) for _ in range(4))
    return draw.normal(n, m), draw.normal(j, m), w_q, w_k, w_v, w_o


check_merged = Exercise(
    name="merged attention",
    solution=_merged,
    cases=_whole,
    legal=_any_whole,
    mistakes={
        "the average of the decoder's own tokens is missing": lambda *a: _merged(*a, own=torch.zeros_like(a[0])),
        "the average is added after w_o": lambda *a: _merged(*a, late=True),
        "a sum in place of the average": _summed,
        "the average of the whole sequence: it sees the future": _future,
        "the decoder's own values were made with w_k": _of_keys,
        "the decoder's own tokens were not projected": _bare,
        "the scores are not divided by √m": lambda *a: _merged(*a, scale=1.0),
        "half of each is taken: the two are added": lambda *a: 0.5 * _merged(*a),
        "only the decoder's own tokens, no memory": lambda *a: _merged(*a, share=0.0),
        "w_o is left out": lambda x, memory, q, k, v, o: _merged(x, memory, q, k, v, torch.eye(len(o)).to(o)),
    },
    next_step="That is one sublayer of a deep decoder.",
)
