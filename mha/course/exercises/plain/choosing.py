"""Checkers: a paired difference with its interval, an equal budget, a choice by rule."""

from mha.course.exercises.plain.draw import Draw
from mha.course.exercises.plain.judge import Plain


def _widest(weights, heads, *, bias=4, squares=4.0, step=None):
    step = heads if step is None else step
    return max(d for d in range(0, 4000, step) if squares * d * d + bias * d <= max(weights, 0))


def _any_budget(draw: Draw) -> tuple:
    heads = draw.integer(1, 16)
    width = heads * draw.integer(1, draw.one_of([3, 60]))
    fits = 4 * width * width + 4 * width
    return fits + draw.one_of([0, -1, draw.integer(0, 5000)]), heads


check_budget = Plain(
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
    left = [i for i in range(len(lows)) if passes(lows[i], highs[i], worse)]
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


check_choose = Plain(
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
