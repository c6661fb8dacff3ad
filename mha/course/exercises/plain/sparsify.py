"""Checkers: when a key is out, heads of their own kind, the backward pass with zeros."""

from mha.course.exercises.plain.draw import Draw
from mha.course.exercises.plain.judge import Plain


def _any_alpha(draw: Draw) -> tuple:
    return (draw.one_of([draw.number(1.01, 1.2), draw.number(1.2, 2.0), draw.number(2.0, 4.0)]),)


check_gap = Plain(
    name="out of the race",
    solution=lambda alpha: 1 / (alpha - 1),
    cases=lambda: [(1.5,), (2.0,), (1.25,), (1.1,)],
    legal=_any_alpha,
    mistakes={
        "the threshold itself, not the gap": lambda alpha: -1.0,
        "1/α; the factor in the formula is α − 1": lambda alpha: 1 / alpha,
        "α − 1 instead of 1/(α − 1)": lambda alpha: alpha - 1,
        "the exponent was applied once more": lambda alpha: 1 / (alpha - 1) ** 2,
        "counted from equal weights: half of the gap": lambda alpha: 0.5 / (alpha - 1),
        "the sign is wrong": lambda alpha: -1 / (alpha - 1),
        "that is where softmax underflows in float32": lambda alpha: 104.0,
        "2 − α in place of α − 1": lambda alpha: 1 / (3 - alpha),
        "1 is right at α = 2 only": lambda alpha: 1.0,
    },
    next_step="Next: one α for each head.",
)
