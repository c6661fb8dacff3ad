"""Checkers: the standard deviation of scores, the scale of several heads, QK-norm, the backward pass."""

import math

from mha.course.exercises.plain.draw import Draw
from mha.course.exercises.plain.judge import Plain


def _row_std(d_k, mean_q, std_q, mean_k, std_k):
    return std_k * math.sqrt(std_q**2 + mean_q**2)


def _numbers() -> list[tuple]:
    return [(4, 0.0, 1.0, 0.0, 1.0), (16, 0.0, 2.0, 0.0, 0.5), (456, 1.56, 0.36, -0.34, 1.2), (64, -0.7, 1.1, 2.0, 0.8)]


def _any_numbers(draw: Draw) -> tuple:
    means = [draw.one_of([1.0, 0.0, 30.0, 1e-3]) * draw.number(-1.0, 1.0) for _ in range(2)]
    deviations = [draw.one_of([1.0, 0.1, 20.0]) * draw.number(0.1, 1.0) for _ in range(2)]
    return draw.integer(1, 600), means[0], deviations[0], means[1], deviations[1]


check_std = Plain(
    name="the standard deviation inside a row",
    solution=_row_std,
    cases=_numbers,
    legal=_any_numbers,
    mistakes={
        "the scores are not scaled": lambda d, *a: math.sqrt(d) * _row_std(d, *a),
        "scaled by d_k instead of √d_k": lambda d, *a: _row_std(d, *a) / math.sqrt(d),
        "the variance, not its square root": lambda *a: _row_std(*a) ** 2,
        "the means are left out": lambda d, mq, sq, mk, sk: sq * sk,
        "the key mean is counted, though it shifts a whole row and cancels": lambda d, mq, sq, mk, sk: math.sqrt(
            sq**2 * sk**2 + sq**2 * mk**2 + sk**2 * mq**2
        ),
        "queries and keys are swapped": lambda d, mq, sq, mk, sk: _row_std(d, mk, sk, mq, sq),
        "standard deviation and mean are added; it is their squares that add": lambda d, mq, sq, mk, sk: (
            sk * (sq + abs(mq))
        ),
        "always 1, as if every mean were 0 and every standard deviation 1": lambda *a: 1.0,
    },
    next_step="Next: which width counts.",
)
