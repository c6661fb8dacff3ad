"""Checkers: a paired difference with its interval, an equal budget, a choice by rule."""

import math
from statistics import mean, median, pstdev, stdev, variance

from mha.course.comparison.results import STUDENT
from mha.course.exercises.exercise import Exercise
from mha.course.exercises.legal import Draw
from mha.course.exercises.plain import choosing as plain


def _paired(layer, plain, *, deviation=stdev, middle=mean, factor=None, root=True, sign=1, width=1.0):
    differences = [sign * (one - other) for one, other in zip(layer, plain, strict=True)]
    n = len(differences)
    half = width * (STUDENT[n] if factor is None else factor) * deviation(differences) / (math.sqrt(n) if root else 1)
    return middle(differences) - half, middle(differences) + half


def _unpaired(layer, plain):
    n = len(layer)
    half = STUDENT[n] * math.sqrt((stdev(layer) ** 2 + stdev(plain) ** 2) / n)
    return mean(layer) - mean(plain) - half, mean(layer) - mean(plain) + half


def _any_results(draw: Draw) -> tuple:
    seeds, scale = draw.whole(2, 10), draw.one_of([1.0, 100.0, 0.01])
    return tuple((scale * draw.uniform(seeds, low=0.5)).tolist() for _ in range(2))


check_paired = Exercise(
    name="a paired difference",
    solution=_paired,
    cases=lambda: [
        ([0.5, 0.7, 0.9], [0.4, 0.7, 0.7]),
        ([0.91, 0.84, 0.96, 0.88, 0.90], [0.89, 0.85, 0.91, 0.86, 0.84]),
        ([2.33, 2.21, 2.40, 2.18], [2.35, 2.26, 2.38, 2.25]),
    ],
    legal=_any_results,
    mistakes={
        "not paired: the standard deviations of both layers were combined": _unpaired,
        "divided by n, not by n − 1": lambda a, b: _paired(a, b, deviation=pstdev),
        "how far single seeds scatter, not their mean: √n is missing": lambda a, b: _paired(a, b, root=False),
        "1.96 is for many seeds; for a few, Student's value is larger": lambda a, b: _paired(a, b, factor=1.96),
        "plain minus the layer: the sign is wrong": lambda a, b: _paired(a, b, sign=-1),
        "Student's value for one seed fewer": lambda a, b: _paired(a, b, factor=STUDENT[len(a) - 1]),
        "the whole width went to each side": lambda a, b: _paired(a, b, width=2.0),
        "the median instead of the mean": lambda a, b: _paired(a, b, middle=median),
        "the smallest and the largest difference": lambda a, b: (
            min(x - y for x, y in zip(a, b, strict=True)),
            max(x - y for x, y in zip(a, b, strict=True)),
        ),
        "2 is for many seeds; for a few, Student's value is larger": lambda a, b: _paired(a, b, factor=2.0),
        "Student's value is left out": lambda a, b: _paired(a, b, factor=1.0),
        "the variance in place of the standard deviation": lambda a, b: _paired(a, b, deviation=variance),
        "the means of the two layers, not an interval": lambda a, b: (mean(a), mean(b)),
    },
    next_step="Next: make the baseline as large as the new layer.",
)


check_budget = Exercise(**vars(plain.check_budget))


check_choose = Exercise(**vars(plain.check_choose))
