"""Checkers: importance, a cut, the chance that a gate is open, the patient search."""

import math

import torch
from torch import Tensor

from mha.course.exercises.exercise import Exercise
from mha.course.exercises.legal import Draw
from mha.course.exercises.plain import pruning_heads as plain


def _random(*shape: int, seed: int = 10) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _reads() -> list[tuple]:
    """Head outputs (b, h, i, d) and the gradient with respect to them."""
    sizes = [(2, 2, 2, 3), (3, 4, 5, 2), (4, 3, 2, 4)]
    return [(_random(*size, seed=1), _random(*size, seed=2)) for size in sizes]


def _unit(x: Tensor) -> Tensor:
    return x / x.norm()


def _any_reads(draw: Draw) -> tuple:
    shape = draw.whole(1, 4), draw.whole(1, 4), draw.whole(1, 4), draw.whole(1, 4)
    return draw.normal(*shape, scales=(1.0, 1e3)), draw.normal(*shape, scales=(1.0, 1e-3))


check_importance = Exercise(
    name="importance",
    solution=lambda z, s: _unit((z * s).sum((2, 3)).abs().mean(0)),
    cases=_reads,
    legal=_any_reads,
    mistakes={
        "the absolute value is taken after the mean over examples: helping here and hurting there cancels": (
            lambda z, s: _unit((z * s).sum((2, 3)).mean(0).abs())
        ),
        "the absolute value is taken for each token, as in the released code, not for each example": (
            lambda z, s: _unit((z * s).sum(3).abs().sum(2).mean(0))
        ),
        "the absolute value is taken of each number before anything is summed": lambda z, s: _unit(
            (z * s).abs().sum((2, 3)).mean(0)
        ),
        "the sign is kept": lambda z, s: _unit((z * s).sum((2, 3)).mean(0)),
        "the gradient is not multiplied by the head output": lambda z, s: _unit(s.sum((2, 3)).abs().mean(0)),
        "only the size of the head output counts, the gradient is not used": lambda z, s: _unit(
            z.norm(dim=(2, 3)).mean(0)
        ),
        "not divided by the norm": lambda z, s: (z * s).sum((2, 3)).abs().mean(0),
        "divided by the sum, not by the norm": (
            lambda z, s: (z * s).sum((2, 3)).abs().mean(0) / (z * s).sum((2, 3)).abs().mean(0).sum()
        ),
        "the slope is squared": lambda z, s: _unit((z * s).sum((2, 3)).square().mean(0)),
    },
    next_step="Next: cut.",
)


def _matrices() -> list[tuple]:
    """Weight matrices w_v (h·d, m) and w_o (m, h·d) with m = h·d, the number of heads, half of them in some order."""
    sizes = [(2, 2, [1]), (4, 3, [3, 0]), (4, 4, [2, 1]), (12, 1, [10, 2, 0])]
    return [(_random(h * d, h * d, seed=3), _random(h * d, h * d, seed=4), h, keep) for h, d, keep in sizes]


def _rows(w: Tensor, heads: int, keep: list[int]) -> Tensor:
    return w.unflatten(0, (heads, -1))[keep].flatten(0, 1)


def _cut(w_v: Tensor, w_o: Tensor, heads: int, keep: list[int]) -> list[Tensor]:
    return [_rows(w_v, heads, keep), _rows(w_o.T, heads, keep).T]


def _others(heads: int, keep: list[int]) -> list[int]:
    return [h for h in range(heads) if h not in keep]


def _scattered(w: Tensor, heads: int, keep: list[int]) -> Tensor:
    """Take rows as if the heads were dealt out like cards."""
    return w.unflatten(0, (-1, heads))[:, keep].flatten(0, 1)


def _any_matrices(draw: Draw) -> tuple:
    heads, d, m = draw.one_of([1, 2, 3, 4, 5, 12]), draw.whole(1, 3), draw.whole(1, 7)
    keep = draw.order(heads)[: draw.whole(1, heads)]
    return draw.normal(heads * d, m), draw.normal(m, heads * d), heads, keep


check_cut = Exercise(
    name="cut",
    solution=lambda v, o, h, keep: _cut(v, o, h, sorted(keep)),
    cases=_matrices,
    legal=_any_matrices,
    mistakes={
        "the rows of w_o are cut: its heads are along the columns": (
            lambda v, o, h, keep: [_rows(v, h, sorted(keep)), _rows(o, h, sorted(keep)).T]
        ),
        "the columns of w_v are cut: its heads are along the rows": (
            lambda v, o, h, keep: [_rows(v.T, h, sorted(keep)), _rows(o.T, h, sorted(keep)).T]
        ),
        "both are cut along the wrong axis": (
            lambda v, o, h, keep: [_rows(v.T, h, sorted(keep)), _rows(o, h, sorted(keep)).T]
        ),
        "the heads in the list are removed instead of kept": lambda v, o, h, keep: _cut(v, o, h, _others(h, keep)),
        "the heads are in the order of the list": _cut,
        "the first heads are kept, as many as the list has": lambda v, o, h, keep: _cut(
            v, o, h, list(range(len(keep)))
        ),
        "the channels of a head are taken from all over, but they are neighbors": (
            lambda v, o, h, keep: [_scattered(v, h, sorted(keep)), _scattered(o.T, h, sorted(keep)).T]
        ),
        "w_v keeps the chosen heads and w_o the others": (
            lambda v, o, h, keep: [_cut(v, o, h, sorted(keep))[0], _cut(v, o, h, _others(h, keep))[1]]
        ),
    },
    next_step="Next: the patient search.",
)


def _gates() -> list[tuple]:
    """Numbers log a (h,), then β, low and high."""
    odds = torch.tensor([-3.0, -0.7, 0.0, 0.4, 1.5, 4.0], dtype=torch.float64)
    return [(odds[1:4], 0.33, -0.1, 1.1), (odds, 0.5, -0.2, 1.3), (odds, 0.66, -0.5, 1.1)]


def _open(a: Tensor, beta: float, low: float, high: float, *, sign: int = -1, ratio: float | None = None) -> Tensor:
    return (a + sign * beta * math.log(-low / high if ratio is None else ratio)).sigmoid()


def _gate(a: Tensor, low: float, high: float) -> Tensor:
    return (a.sigmoid() * (high - low) + low).clamp(0, 1)


def _any_gates(draw: Draw) -> tuple:
    low, high = draw.number(-0.9, -0.05), draw.number(1.05, 1.9)
    return draw.normal(draw.whole(1, 6), scales=(2.0, 8.0, 0.1)), draw.number(0.1, 0.95), low, high


check_open = Exercise(
    name="how likely a gate is open",
    solution=lambda a, b, low, high: [_open(a, b, low, high), _gate(a, low, high)],
    cases=_gates,
    legal=_any_gates,
    mistakes={
        "the sign before beta · log is wrong": lambda a, b, low, high: [
            _open(a, b, low, high, sign=1),
            _gate(a, low, high),
        ],
        "beta is forgotten in the probability": lambda a, b, low, high: [_open(a, 1.0, low, high), _gate(a, low, high)],
        "the stretching is forgotten in the probability": lambda a, b, low, high: [a.sigmoid(), _gate(a, low, high)],
        "log a is divided by beta in the probability": (
            lambda a, b, low, high: [_open(a / b, 1.0, low, high), _gate(a, low, high)]
        ),
        "this is the probability that the gate is closed": (
            lambda a, b, low, high: [1 - _open(a, b, low, high), _gate(a, low, high)]
        ),
        "this is the probability that the gate is exactly 1": (
            lambda a, b, low, high: [_open(a, b, low, high, ratio=(1 - low) / (high - 1)), _gate(a, low, high)]
        ),
        "log a is divided by beta in evaluation: that belongs to the noise": (
            lambda a, b, low, high: [_open(a, b, low, high), _gate(a / b, low, high)]
        ),
        "the gate in evaluation is not stretched": lambda a, b, low, high: [_open(a, b, low, high), a.sigmoid()],
        "the gate in evaluation is not cut to 0 and 1": (
            lambda a, b, low, high: [_open(a, b, low, high), a.sigmoid() * (high - low) + low]
        ),
        "the gate is cut before it is stretched": (
            lambda a, b, low, high: [_open(a, b, low, high), a.sigmoid().clamp(0, 1) * (high - low)]
        ),
        "the gate in evaluation is stretched by ζ, not by ζ − γ": (
            lambda a, b, low, high: [_open(a, b, low, high), (a.sigmoid() * high + low).clamp(0, 1)]
        ),
    },
    next_step="Train one and see.",
)


check_order = Exercise(**vars(plain.check_order))
