"""Checkers: how alike tokens are, pre-norm and post-norm, LayerNorm."""

import torch
from torch import Tensor

from mha.course.exercises.exercise import Exercise
from mha.course.exercises.legal import Draw


def _random(*shape: int, seed: int = 8) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _batches() -> list[tuple]:
    """Tokens (b, n, m); in the second case they are alike but for a little, in the last they are large."""
    near = _random(1, 1, 4) + 0.01 * _random(2, 3, 4, seed=1)
    return [(_random(1, 2, 3),), (near,), (_random(3, 5, 4, seed=2) + 1,), (100 * _random(2, 4, 6, seed=3),)]


def _unlike(x: Tensor, *, axis: int = -2, over: tuple[int, ...] = (-2, -1), power: float = 0.5) -> Tensor:
    """The share of the tokens that they do not have in common, with arguments for the usual mistakes."""
    rest = x - x.mean(axis, keepdim=True)
    return (rest.square().sum(over) / x.square().sum(over)) ** power


def _size(x: Tensor) -> Tensor:
    return x.square().sum((-2, -1)).sqrt()


def _any_batch(draw: Draw) -> tuple:
    b, n, m = draw.whole(1, 4), draw.whole(1, 5), draw.whole(1, 5)
    common = draw.normal(b, 1, m, scales=(1.0, 5.0, 0.1))
    return (draw.one_of([1.0, 1e-4, 1e4]) * (common + draw.normal(b, n, m, scales=(1.0, 0.05))),)


check_unlike = Exercise(
    name="unlikeness",
    solution=_unlike,
    cases=_batches,
    legal=_any_batch,
    mistakes={
        "the mean is taken over the channels of a token, not over the tokens": lambda x: _unlike(x, axis=-1),
        "the mean is taken over the batch: sequences have nothing to do with each other": lambda x: _unlike(x, axis=0),
        "a share of squares: the square root is missing": lambda x: _unlike(x, power=1.0),
        "the size of the rest, not its share of the whole": lambda x: _size(x - x.mean(-2, keepdim=True)),
        "the share that the tokens have in common": lambda x: _size(x.mean(-2, keepdim=True).expand_as(x)) / _size(x),
        "divided by the size of the mean, not of the tokens": lambda x: (
            _size(x - x.mean(-2, keepdim=True)) / _size(x.mean(-2, keepdim=True).expand_as(x))
        ),
        "one minus the share": lambda x: 1 - _unlike(x),
        "the tokens are compared with the first one, not with their mean": lambda x: _size(x - x[:, :1]) / _size(x),
        "absolute values instead of squares": lambda x: (
            (x - x.mean(-2, keepdim=True)).abs().sum((-2, -1)) / x.abs().sum((-2, -1))
        ),
    },
    next_step="Next: where the norm is.",
)


def _layers() -> list[tuple]:
    """Tokens (b, n, m), a matrix (m, m), and whether the norm comes first."""
    return [
        (_random(b, n, m, seed=n), _random(m, m, seed=m) / m**0.5, first)
        for b, n, m in ((1, 2, 4), (2, 3, 6))
        for first in (True, False)
    ]


def _normed(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / (_variance(x) + 1e-5).sqrt()


def _around(x: Tensor, w: Tensor, first: bool) -> Tensor:
    """One part with its sum and its norm."""
    return x + torch.tanh(_normed(x) @ w) if first else _normed(x + torch.tanh(x @ w))


def _any_part(draw: Draw) -> tuple:
    m = draw.whole(2, 6)
    x = draw.normal(draw.whole(1, 3), draw.whole(1, 4), m, scales=(1.0, 10.0, 0.1))
    return x, draw.normal(m, m, scales=(0.5, 1.0)), draw.chance()


check_around = Exercise(
    name="pre-norm and post-norm",
    solution=_around,
    cases=_layers,
    legal=_any_part,
    mistakes={
        "`first` is inverted: pre-norm and post-norm are exchanged": lambda x, w, first: _around(x, w, not first),
        "the norm is before the part in both cases (pre-norm)": lambda x, w, _: _around(x, w, True),
        "the norm is after the sum in both cases (post-norm)": lambda x, w, _: _around(x, w, False),
        "the norm overwrites the x that the sum should carry on": lambda x, w, first: (
            _normed(x) + torch.tanh(_normed(x) @ w) if first else _around(x, w, first)
        ),
        "norm before the part and after the sum": lambda x, w, first: (
            _normed(_around(x, w, True)) if first else _normed(x + torch.tanh(_normed(x) @ w))
        ),
        "the sum is missing": lambda x, w, first: torch.tanh(_normed(x) @ w) if first else _normed(torch.tanh(x @ w)),
        "the norm acts on the output of the part, before the sum": lambda x, w, first: (
            _around(x, w, first) if first else x + _normed(torch.tanh(x @ w))
        ),
        "tanh acts on the sum": lambda x, w, first: (
            torch.tanh(x + _normed(x) @ w) if first else _normed(torch.tanh(x + x @ w))
        ),
        "w is transposed": lambda x, w, first: _around(x, w.T, first),
        "there is no norm": lambda x, w, _: x + torch.tanh(x @ w),
    },
    next_step="Next: the norm itself.",
)


def _words() -> list[tuple]:
    """Tokens (b, n, m), gain, shift, eps; the last eps is large, so that its position is seen."""
    sizes = [(1, 2, 4, 1e-6), (2, 3, 5, 1e-6), (3, 5, 6, 0.5)]
    return [(_random(b, n, m) + 1, _random(m, seed=1), _random(m, seed=2), eps) for b, n, m, eps in sizes]


def _norm(x: Tensor, gain: Tensor, shift: Tensor, eps: float, *, axes=(-1,), unbiased=False, center=True) -> Tensor:
    """LayerNorm with arguments for the usual mistakes."""
    mean = x.mean(axes, keepdim=True)
    square = x.var(axes, unbiased=unbiased, keepdim=True) if center else (x * x).mean(axes, keepdim=True)
    return gain * (x - mean if center else x) / (square + eps).sqrt() + shift


def _variance(x: Tensor) -> Tensor:
    return x.var(-1, unbiased=False, keepdim=True)


def _any_words(draw: Draw) -> tuple:
    m = draw.whole(1, 6)
    x = draw.normal(draw.whole(1, 3), draw.whole(1, 4), m, scales=(1.0, 100.0, 1e-2)) + draw.one_of([0.0, 3.0, 1e6])
    return x, draw.normal(m), draw.normal(m), draw.one_of([1e-6, 1e-3, 2.0])


check_norm = Exercise(
    name="LayerNorm",
    solution=_norm,
    cases=_words,
    legal=_any_words,
    mistakes={
        "the mean is not subtracted: this is RMSNorm": lambda *a: _norm(*a, center=False),
        "mean and variance run over the tokens of a sequence, not over the channels of a token": (
            lambda *a: _norm(*a, axes=(-2,))
        ),
        "mean and variance run over tokens and channels together": lambda *a: _norm(*a, axes=(-2, -1)),
        "mean and variance run over the batch": lambda *a: _norm(*a, axes=(0,)),
        "the variance divides by m − 1 (torch's default), not by m": lambda *a: _norm(*a, unbiased=True),
        "eps is added outside the square root": (
            lambda x, g, s, eps: g * (x - x.mean(-1, keepdim=True)) / (_variance(x).sqrt() + eps) + s
        ),
        "divided by the variance, not by its square root": (
            lambda x, g, s, eps: g * (x - x.mean(-1, keepdim=True)) / (_variance(x) + eps) + s
        ),
        "the gain is forgotten": lambda x, g, s, eps: _norm(x, torch.ones_like(g), s, eps),
        "the shift is forgotten": lambda x, g, s, eps: _norm(x, g, torch.zeros_like(s), eps),
        "the shift is added before the gain is applied": lambda x, g, s, eps: _norm(x, g, g * s, eps),
    },
    forbidden=("layer_norm", "LayerNorm", "group_norm", "batch_norm", "instance_norm"),
    next_step="The next chapter reads what trained heads do.",
)
