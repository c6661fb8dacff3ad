"""Checkers: biases that can go, linear bias with a cache, rotary positions."""

import torch
from torch import Tensor

from mha.course.exercises.exercise import Exercise
from mha.course.exercises.legal import Draw
from mha.layers.positions import RotaryPositions, slopes


def _random(*shape: int, seed: int = 8) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _biases() -> list[tuple]:
    """Biases b_q, b_k, b_v, the matrix w_o (h·d, m) and b_o; h·d = m, so that a forgotten matrix keeps the shape."""
    return [(*(_random(m, seed=s) for s in (1, 2, 3)), _random(m, m, seed=4), _random(m, seed=5)) for m in (2, 4, 6)]


def _any_biases(draw: Draw) -> tuple:
    width, m = draw.whole(1, 6), draw.whole(1, 6)
    b_q, b_k, b_v = (draw.normal(width, scales=(1.0, 10.0)) for _ in range(3))
    return b_q, b_k, b_v, draw.normal(width, m), draw.normal(m)


check_lean = Exercise(
    name="two biases instead of four",
    solution=lambda q, k, v, w, o: [q, o + v @ w],
    cases=_biases,
    legal=_any_biases,
    mistakes={
        "the bias of the values is dropped, but it reaches the output": lambda q, k, v, w, o: [q, o],
        "the bias of the values does not go through w_o": lambda q, k, v, w, o: [q, o + v],
        "w_o is transposed": lambda q, k, v, w, o: [q, o + w @ v],
        "b_o goes through w_o as well": lambda q, k, v, w, o: [q, (o + v) @ w],
        "b_o is lost": lambda q, k, v, w, o: [q, v @ w],
        "the key bias is added to the query bias: it belongs nowhere": lambda q, k, v, w, o: [q + k, o + v @ w],
        "the key bias is treated like the value bias": lambda q, k, v, w, o: [q, o + (k + v) @ w],
        "the query bias is dropped, but it changes the scores": lambda q, k, v, w, o: [torch.zeros_like(q), o + v @ w],
        "query and key bias have changed places": lambda q, k, v, w, o: [k, o + v @ w],
    },
    next_step="Next: with a cache.",
)


def _scores() -> list[tuple]:
    """Scores (b, h, i, j) and slopes (h,); a cache is in use where i < j."""
    sizes = [(1, 2, 1, 3), (1, 2, 3, 3), (2, 4, 2, 5), (2, 3, 4, 6)]
    return [(_random(b, h, i, j), slopes(h)) for b, h, i, j in sizes]


def _far(scores: Tensor, *, start: int | None = None, power: int = 1, signed: bool = False) -> Tensor:
    i, j = scores.shape[-2:]
    places = torch.arange(j, dtype=scores.dtype)
    start = j - i if start is None else start
    distance = places[start : start + i, None] - places
    return (distance if signed else distance.abs()) ** power


def _lowered(scores: Tensor, slope: Tensor, sign: int = -1, **how) -> Tensor:
    return scores + sign * slope[:, None, None] * _far(scores, **how)


def _any_scores(draw: Draw) -> tuple:
    heads, i = draw.whole(1, 5), draw.whole(1, 5)
    scores = draw.normal(draw.whole(1, 3), heads, i, i + draw.one_of([0, 1, 4]), scales=(1.0, 10.0))
    return scores, draw.uniform(heads, high=draw.one_of([1.0, 0.01]))


check_distance = Exercise(
    name="linear bias with a cache",
    solution=lambda scores, slope: _lowered(scores, slope),
    cases=_scores,
    legal=_any_scores,
    mistakes={
        "the queries are taken for the first positions; with a cache they are the last": (
            lambda s, m: _lowered(s, m, start=0)
        ),
        "the bias is added: far tokens are favored": lambda s, m: _lowered(s, m, sign=1),
        "the distance keeps its sign: the scores of later tokens are raised": lambda s, m: _lowered(s, m, signed=True),
        "the distance is squared": lambda s, m: _lowered(s, m, power=2),
        "all heads have the slope of the first": lambda s, m: _lowered(s, m[:1].expand_as(m)),
        "all heads have the mean slope": lambda s, m: _lowered(s, m.mean().expand_as(m)),
        "the slopes are in reverse order": lambda s, m: _lowered(s, m.flip(0)),
        "the slopes are not used": lambda s, m: _lowered(s, torch.ones_like(m)),
        "the scores are multiplied by the bias": lambda s, m: s * m[:, None, None] * _far(s),
        "the bias is divided by the number of keys": lambda s, m: _lowered(s, m / s.shape[-1]),
    },
    next_step="Next: rotary positions.",
)


def _queries() -> list[tuple]:
    """Queries (b, h, n, d) and the position of the first one."""
    sizes = [(1, 1, 2, 4, 0), (1, 2, 4, 6, 0), (2, 2, 3, 8, 5), (2, 1, 1, 8, 9)]
    return [(_random(b, h, n, d), start) for b, h, n, d, start in sizes]


def _turned(x: Tensor, start: int, *, exponent: float = 2.0, direction: int = 1, sign: int = 1, flat=False) -> Tensor:
    """Rotary positions with arguments for the usual mistakes."""
    n, half = x.shape[-2], x.shape[-1] // 2
    pairs = torch.zeros(half) if flat else torch.arange(half)
    rates = 10000.0 ** (-exponent * pairs.to(x.dtype) / (2 * half))
    angles = direction * torch.arange(start, start + n, dtype=x.dtype)[:, None] * rates
    (a, b), cos, sin = x.chunk(2, -1), angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, sign * (b * cos + a * sin)], -1)


def _half_turned(x: Tensor, start: int) -> Tensor:
    """Leave the second half as it was: only one of the two lines."""
    return torch.cat([_turned(x, start).chunk(2, -1)[0], x.chunk(2, -1)[1]], -1)


def _any_queries(draw: Draw) -> tuple:
    x = draw.normal(draw.whole(1, 3), draw.whole(1, 3), draw.whole(1, 6), 2 * draw.whole(1, 5), scales=(1.0, 100.0))
    return x, draw.integer(0, draw.one_of([0, 9, 3000]))


check_rotation = Exercise(
    name="rotary positions",
    solution=lambda x, start: RotaryPositions().rotate(x, start),
    cases=_queries,
    legal=_any_queries,
    mistakes={
        "channels 2c and 2c + 1 are paired: that is the interleaved layout": (
            lambda x, start: RotaryPositions(layout="interleaved").rotate(x, start)
        ),
        "the positions begin at 0 whatever `start` is, as they do when a cache is forgotten": (
            lambda x, _start: _turned(x, 0)
        ),
        "the positions begin at start + 1": lambda x, start: _turned(x, start + 1),
        "rotated the other way: the signs of both sines are swapped": lambda x, start: _turned(x, start, direction=-1),
        "the second half has the wrong sign": lambda x, start: _turned(x, start, sign=-1),
        "the exponent is −c/d, it should be −2c/d": lambda x, start: _turned(x, start, exponent=1.0),
        "the exponent is −4c/d: the factor 2 was taken twice": lambda x, start: _turned(x, start, exponent=4.0),
        "all pairs are rotated by the same angle": lambda x, start: _turned(x, start, flat=True),
        "only the first half is changed": _half_turned,
    },
    next_step="The next chapter stacks layers.",
)
