"""Checkers: counting shared parameters, scores in a shared space, the best mixing vectors."""

from mha.course.exercises.plain.draw import Draw
from mha.course.exercises.plain.judge import Plain


def _count(d_model, heads, d_shared):
    return 2 * d_model * d_shared + heads * d_shared + 2 * d_model**2


def _any_sizes(draw: Draw) -> tuple:
    return draw.integer(1, 800), draw.integer(1, 16), draw.integer(1, 800)


check_count = Plain(
    name="the parameters of a shared layer",
    solution=_count,
    cases=lambda: [(12, 3, 4), (512, 8, 512), (512, 8, 171), (768, 12, 256)],
    legal=_any_sizes,
    mistakes={
        "the mixing vectors are forgotten": lambda d, h, r: 2 * d * r + 2 * d * d,
        "every head has a W_q and a W_k of its own": lambda d, h, r: 2 * h * d * r + h * r + 2 * d * d,
        "values and outputs shrink as well": lambda d, h, r: 4 * d * r + h * r,
        "nothing shrinks": lambda d, h, r: 4 * d * d + h * r,
        "only queries shrink": lambda d, h, r: d * r + h * r + 3 * d * d,
        "keys have mixing vectors too": lambda d, h, r: 2 * d * r + 2 * h * r + 2 * d * d,
        "one mixing vector for all heads": lambda d, h, r: 2 * d * r + r + 2 * d * d,
        "W_o is left out": lambda d, h, r: 2 * d * r + h * r + d * d,
        "a plain layer: queries and keys have d_shared channels": lambda d, h, r: 4 * d * d,
        "one mixing number for each head: a vector has d_shared": lambda d, h, r: 2 * d * r + h + 2 * d * d,
        "a mixing matrix for each head: it is a vector": lambda d, h, r: 2 * d * r + h * r * r + 2 * d * d,
        "values and outputs were left out, as if they were free": lambda d, h, r: 2 * d * r + h * r,
    },
    next_step="Next: the scores themselves.",
)
