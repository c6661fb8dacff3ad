"""Checkers: which channels a head reads, heads that are widened, how many parameters they add."""

from mha.course.exercises.plain.draw import Draw
from mha.course.exercises.plain.judge import Plain


def _extra(d_model, heads, overlaps):
    return sum(2 * overlap * heads * d_model for overlap in overlaps)


def _any_model(draw: Draw) -> tuple:
    heads = draw.integer(1, 12)
    return heads * draw.integer(1, 64), heads, [draw.integer(0, 16) for _ in range(draw.whole(0, 6))]


check_extra = Plain(
    name="the parameters that overlap adds",
    solution=_extra,
    cases=lambda: [(12, 3, [1]), (192, 12, list(range(12))), (64, 4, [16, 8, 0]), (32, 8, [2, 2])],
    legal=_any_model,
    mistakes={
        "a head has two neighbors, and only one was counted": lambda d, h, os: _extra(d, h, os) // 2,
        "the first and the last head were given one neighbor, but W_o has columns for the zeros too": lambda d, h, os: (
            _extra(d, h - 1, os)
        ),
        "queries, keys and values get no more parameters: only W_o grows": lambda d, h, os: 4 * _extra(d, h, os),
        "only one head was counted": lambda d, h, os: _extra(d, 1, os),
        "the layers were counted, not their overlaps": lambda d, h, os: 2 * len(os) * h * d,
        "only the last layer was counted": lambda d, h, os: _extra(d, h, os[-1:]),
        "all of W_o was counted, not what is added": lambda d, h, os: _extra(d, h, os) + len(os) * d * d,
        "only the largest overlap was counted": lambda d, h, os: _extra(d, h, [max(os)]),
    },
    next_step="Nothing else in the layer grows.",
)
