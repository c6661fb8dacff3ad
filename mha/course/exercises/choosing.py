"""Checkers: a paired difference with its interval, an equal budget, a choice by rule."""

import math
from statistics import mean, median, pstdev, stdev, variance

from mha.course.comparison.results import STUDENT
from mha.course.exercises.exercise import Exercise
from mha.course.exercises.legal import Draw


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
        "not paired: the standard deviations of both layers came together": _unpaired,
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
        "the means of the two layers, no interval": lambda a, b: (mean(a), mean(b)),
    },
    next_step="Next: make the baseline as large as the new layer.",
)


def _widest(weights, heads, *, bias=4, squares=4.0, step=None):
    step = heads if step is None else step
    return max(d for d in range(0, 4000, step) if squares * d * d + bias * d <= max(weights, 0))


def _any_budget(draw: Draw) -> tuple:
    heads = draw.integer(1, 16)
    width = heads * draw.integer(1, draw.one_of([3, 60]))
    fits = 4 * width * width + 4 * width
    return fits + draw.one_of([0, -1, draw.integer(0, 5000)]), heads


check_budget = Exercise(
    name="an equal budget",
    solution=_widest,
    cases=lambda: [(4223, 4), (5000, 4), (4 * 64 * 64 + 4 * 64, 8), (1136768, 8), (1182000, 16), (79, 4)],
    legal=_any_budget,
    mistakes={
        "the biases are forgotten": lambda w, h: _widest(w, h, bias=0),
        "the heads must divide the width": lambda w, h: _widest(w, h, step=1),
        "over the budget: rounded up": lambda w, h: _widest(w, h) + h,
        "the nearest multiple, which may be over the budget": lambda w, h: h * round(_widest(w, h, step=1) / h),
        "W_o is forgotten": lambda w, h: _widest(w, h, bias=3, squares=3.0),
        "parameters do not grow with the number of heads": lambda w, h: _widest(w, h, squares=4.0 * h),
        "the width of one head": lambda w, h: _widest(w, h) // h,
        "a budget that is met exactly is met": lambda w, h: _widest(w - 1, h),
        "over the budget where not even the smallest width fits": lambda w, h: max(h, _widest(w, h)),
    },
    next_step="Next: a rule that decides before you look.",
)


def _cheapest(lows, highs, costs, worse, *, passes=lambda low, high, worse: low >= -worse, pick=min):
    left = [i for i, (low, high) in enumerate(zip(lows, highs, strict=True)) if passes(low, high, worse)]
    return pick(left, key=lambda i: costs[i], default=0)


def _any_choice(draw: Draw) -> tuple:
    count, plain, worse = draw.whole(1, 6), draw.integer(0, 20), draw.number(0.0, 0.1)
    lows = [draw.number(-0.4, 0.1) for _ in range(count)]
    lows[0] = draw.one_of([lows[0], -worse])  # no worse than the margin is good enough
    highs = [low + draw.number(0.0, 0.3) for low in lows]
    place = plain % (count + 1)
    lows.insert(place, 0.0)
    highs.insert(place, 0.0)
    return lows, highs, [float(n + 1) for n in draw.order(count + 1)], worse


check_choose = Exercise(
    name="a choice by rule",
    solution=_cheapest,
    cases=lambda: [
        ([0.0, -0.05, 0.02, -0.01], [0.0, 0.04, 0.06, 0.02], [10, 5, 12, 8], 0.02),
        ([0.0, -0.30, -0.02, 0.01, -0.06], [0.0, -0.10, 0.03, 0.09, 0.20], [10, 4, 9, 14, 6], 0.02),
        ([0.0, 0.03, -0.03, 0.01], [0.0, 0.05, 0.01, 0.30], [10, 11, 7, 20], 0.05),
        ([0.0, -0.20, -0.25], [0.0, -0.10, 0.30], [10, 2, 3], 0.01),
        ([0.0, -0.40, -0.10], [0.0, 0.05, 0.20], [10, 3, 6], 0.02),
        ([-0.40, -0.01, 0.08, 0.0], [0.01, 0.02, 0.30, 0.0], [3, 6, 8, 10], 0.02),
    ],
    legal=_any_choice,
    mistakes={
        "the best mean, whatever it costs": lambda lo, hi, c, w: max(range(len(c)), key=lambda i: lo[i] + hi[i]),
        "the cheapest, whatever it can do": lambda lo, hi, c, w: c.index(min(c)),
        "the upper end was used: the layer could be as good, but also far worse": lambda lo, hi, c, w: _cheapest(
            lo, hi, c, w, passes=lambda low, high, worse: high >= -worse
        ),
        "the mean was used, not the end of the interval": lambda lo, hi, c, w: _cheapest(
            lo, hi, c, w, passes=lambda low, high, worse: (low + high) / 2 >= -worse
        ),
        "the most expensive of those that pass": lambda lo, hi, c, w: _cheapest(lo, hi, c, w, pick=max),
        "only layers that are surely better passed; not worse is enough": lambda lo, hi, c, w: _cheapest(
            lo, hi, c, w, passes=lambda low, high, worse: low > 0
        ),
        "the margin has the wrong sign": lambda lo, hi, c, w: _cheapest(
            lo, hi, c, w, passes=lambda low, high, worse: low >= worse
        ),
        "the last that passes, not the cheapest": lambda lo, hi, c, w: max(i for i in range(len(c)) if lo[i] >= -w),
        "the first that passes, not the cheapest": lambda lo, hi, c, w: next(i for i in range(len(c)) if lo[i] >= -w),
        "the cost is returned, not the number of the layer": lambda lo, hi, c, w: c[_cheapest(lo, hi, c, w)],
    },
    next_step="Write such a rule down before you train.",
)
