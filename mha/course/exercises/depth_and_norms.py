"""Checkers: LayerNorm."""

import torch
from torch import Tensor

from mha.course.exercises.exercise import Exercise


def _random(*shape: int, seed: int = 8) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _words() -> list[tuple]:
    """Words (b, n, m), gain, shift, eps; the last eps is large, so that its place is seen."""
    sizes = [(1, 2, 4, 1e-6), (2, 3, 5, 1e-6), (3, 5, 6, 0.5)]
    return [(_random(b, n, m) + 1, _random(m, seed=1), _random(m, seed=2), eps) for b, n, m, eps in sizes]


def _norm(x: Tensor, gain: Tensor, shift: Tensor, eps: float, *, axes=(-1,), unbiased=False, center=True) -> Tensor:
    """LayerNorm with places for the usual mistakes."""
    mean = x.mean(axes, keepdim=True)
    square = x.var(axes, unbiased=unbiased, keepdim=True) if center else (x * x).mean(axes, keepdim=True)
    return gain * (x - mean if center else x) / (square + eps).sqrt() + shift


def _spread(x: Tensor) -> Tensor:
    return x.var(-1, unbiased=False, keepdim=True)


check_norm = Exercise(
    name="LayerNorm",
    solution=_norm,
    cases=_words,
    mistakes={
        "the mean is not taken away: this is RMSNorm": lambda *a: _norm(*a, center=False),
        "mean and variance run over the words of a sentence, not over the channels of a word": (
            lambda *a: _norm(*a, axes=(-2,))
        ),
        "mean and variance run over words and channels together": lambda *a: _norm(*a, axes=(-2, -1)),
        "mean and variance run over the batch": lambda *a: _norm(*a, axes=(0,)),
        "the variance divides by m − 1 (torch's default), not by m": lambda *a: _norm(*a, unbiased=True),
        "eps stands outside the root": (
            lambda x, g, s, eps: g * (x - x.mean(-1, keepdim=True)) / (_spread(x).sqrt() + eps) + s
        ),
        "divided by the variance, not by its root": (
            lambda x, g, s, eps: g * (x - x.mean(-1, keepdim=True)) / (_spread(x) + eps) + s
        ),
        "the gain is forgotten": lambda x, g, s, eps: _norm(x, torch.ones_like(g), s, eps),
        "the shift is forgotten": lambda x, g, s, eps: _norm(x, g, torch.zeros_like(s), eps),
        "the shift is added before the gain is applied": lambda x, g, s, eps: _norm(x, g, g * s, eps),
    },
    next_step="Next: read what trained heads do.",
)
