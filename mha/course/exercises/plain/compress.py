"""Checkers: what is cached per token, attention without keys, one latent for two projections."""

from mha.course.exercises.plain.draw import Draw
from mha.course.exercises.plain.judge import Plain


def _sizes() -> list[tuple]:
    """Heads, groups, width of a head, width of the latent, width of the rotated key."""
    return [(4, 2, 8, 16, 6), (6, 3, 4, 10, 2), (128, 8, 128, 512, 64), (12, 1, 64, 96, 0)]


def _kept(heads: int, groups: int, d_head: int, d_latent: int, d_rotary: int) -> list[int]:
    return [2 * heads * d_head, 2 * groups * d_head, d_latent + d_rotary]


def _any_sizes(draw: Draw) -> tuple:
    groups = draw.integer(1, 8)
    return groups * draw.integer(1, 8), groups, draw.integer(1, 128), draw.integer(1, 600), 2 * draw.integer(0, 40)


check_kept = Plain(
    name="what is cached per token",
    solution=_kept,
    cases=_sizes,
    legal=_any_sizes,
    mistakes={
        "only keys are counted for the first two: values are cached too": lambda h, g, d, c, r: [h * d, g * d, c + r],
        "the latent is counted twice: keys and values come from the same one": (
            lambda h, g, d, c, r: [2 * h * d, 2 * g * d, 2 * c + r]
        ),
        "the rotated key is counted for each head: all heads share it": (
            lambda h, g, d, c, r: [2 * h * d, 2 * g * d, c + h * r]
        ),
        "the rotated key is forgotten": lambda h, g, d, c, r: [2 * h * d, 2 * g * d, c],
        "the rotated key has no value": lambda h, g, d, c, r: [2 * h * d, 2 * g * d, c + 2 * r],
        "the latent is counted for each head": lambda h, g, d, c, r: [2 * h * d, 2 * g * d, h * c + r],
        "groups and heads are exchanged": lambda h, g, d, c, r: [2 * g * d, 2 * h * d, c + r],
        "the latent and the rotated key are kept once: keys and values come from the same": lambda h, g, d, c, r: [
            2 * h * d,
            2 * g * d,
            2 * (c + r),
        ],
        "the heads of a group are counted, not the groups": lambda h, g, d, c, r: [2 * h * d, 2 * h * d // g, c + r],
        "the latent is counted for each group": lambda h, g, d, c, r: [2 * h * d, 2 * g * d, g * c + r],
    },
    next_step="Next: attend without keys.",
)
