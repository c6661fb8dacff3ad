"""Checkers: FLOPs of a call, time under two ceilings, arithmetic intensity with a cache, merged softmaxes, kernels."""

import torch
from torch import Tensor

from mha.course.exercises.exercise import Exercise
from mha.course.exercises.legal import Draw
from mha.course.exercises.plain import counting_cost as plain

check_operations = Exercise(**vars(plain.check_operations))


check_time = Exercise(**vars(plain.check_time))


check_intensity = Exercise(**vars(plain.check_intensity))


def _halves() -> list[tuple]:
    """What two groups of keys left for the same queries: largest score, sum of exponentials, weighted sum of values."""
    cases = []
    for i, c, seed in ((1, 1, 1), (2, 3, 2), (4, 2, 3)):
        random = torch.Generator().manual_seed(seed)
        halves = []
        for keys in (3, 5):
            scores = 2 * torch.randn(i, keys, generator=random, dtype=torch.float64)
            values = torch.randn(keys, c, generator=random, dtype=torch.float64)
            weights = (scores - scores.amax(-1, keepdim=True)).exp()
            halves += [scores.amax(-1, keepdim=True), weights.sum(-1, keepdim=True), weights @ values]
        cases.append(tuple(halves))
    return cases


def _joined(m1, s1, r1, m2, s2, r2, *, sums=1, reads=1, swap=False) -> Tensor:
    """Merge two halves, with places for the usual mistakes."""
    largest = torch.maximum(m1, m2)
    a, b = (m1 - largest).exp(), (m2 - largest).exp()
    a, b = (b, a) if swap else (a, b)
    return (a**reads * r1 + b**reads * r2) / (a**sums * s1 + b**sums * s2)


def _any_halves(draw: Draw) -> tuple:
    i, c, size = draw.whole(1, 5), draw.whole(1, 4), draw.one_of([1.0, 3.0, 500.0])
    halves: list[Tensor] = []
    for keys in (draw.whole(1, 5), draw.whole(1, 5)):
        scores = draw.normal(i, keys, scales=(size,)) + draw.one_of([0.0, 900.0]) * draw.integers(-1, 1, i, 1)
        largest = scores.amax(-1, keepdim=True)
        weights = (scores - largest).exp()
        halves += [largest, weights.sum(-1, keepdim=True), weights @ draw.normal(keys, c)]
    return tuple(halves)


check_join = Exercise(
    name="two halves of a softmax",
    solution=_joined,
    cases=_halves,
    legal=_any_halves,
    mistakes={
        "the outputs of the two halves are averaged: a half with small scores counts as much as the other": (
            lambda m1, s1, r1, m2, s2, r2: (r1 / s1 + r2 / s2) / 2
        ),
        "both kinds of sums are added as they are: they were taken relative to different largest scores": (
            lambda *a: _joined(*a, sums=0, reads=0)
        ),
        "the weighted sums of values shrink, but not the sums of exponentials": lambda *a: _joined(*a, sums=0),
        "the sums of exponentials shrink, but not the weighted sums of values": lambda *a: _joined(*a, reads=0),
        "the wrong half shrinks, by exp(largest − own) or by the factor of the other": lambda *a: _joined(
            *a, swap=True
        ),
        "the first half is lost": lambda m1, s1, r1, m2, s2, r2: r2 / s2,
        "the second half is lost": lambda m1, s1, r1, m2, s2, r2: r1 / s1,
        "the weighted sum of values is not divided by the sum of exponentials": lambda *a: (
            (a[0] - torch.maximum(a[0], a[3])).exp() * a[2] + (a[3] - torch.maximum(a[0], a[3])).exp() * a[5]
        ),
    },
    next_step="Next chapter: the cache.",
)


check_explicit_bytes = Exercise(**vars(plain.check_explicit_bytes))


check_tiles = Exercise(**vars(plain.check_tiles))
