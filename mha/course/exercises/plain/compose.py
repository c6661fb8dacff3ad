"""Checkers: talking heads, the matrices that tokens ask for, the side of the keys, the bill."""

from mha.course.exercises.plain.draw import Draw
from mha.course.exercises.plain.judge import Plain


def _extra(d: int, h: int, rank: int, *, networks: int = 4, bases: int = 2, gates: bool = True, second: int = 1) -> int:
    """The parameters beyond a plain layer, with arguments for the usual mistakes."""
    hidden = 2 * rank * h
    return networks * (d * hidden + second * hidden**2 + gates * d * h) + bases * h * h


def _any_layer(draw: Draw) -> tuple:
    return draw.integer(1, 1024), draw.integer(1, 32), draw.integer(1, 6)


check_extra = Plain(
    name="the parameters of composition",
    solution=_extra,
    cases=lambda: [(6, 3, 1), (32, 4, 2), (1024, 16, 2), (96, 6, 3)],
    legal=_any_layer,
    mistakes={
        "two small networks instead of four: both mixings have both sides": lambda *a: _extra(*a, networks=2),
        "one small network for everything": lambda *a: _extra(*a, networks=1),
        "the gates are left out": lambda *a: _extra(*a, gates=False),
        "the bases are left out": lambda *a: _extra(*a, bases=0),
        "one base instead of two": lambda *a: _extra(*a, bases=1),
        "a base for each network instead of each mixing": lambda *a: _extra(*a, bases=4),
        "the second linear map is left out": lambda *a: _extra(*a, second=0),
        "hidden width rank · h: enough for w1 only": lambda d, h, r: 4 * (d * r * h + (r * h) ** 2 + d * h) + 2 * h * h,
        "biases are counted": lambda d, h, r: _extra(d, h, r) + 4 * (4 * r * h + h),
        "the gates are counted at one of the two mixings only": lambda d, h, r: _extra(d, h, r) - 2 * d * h,
        "hidden width 2 · rank: both vectors have an entry for each head": lambda d, h, r: (
            4 * (2 * d * r + 4 * r * r + d * h) + 2 * h * h
        ),
        "both maps begin with d_model channels: the second begins with the hidden ones": lambda d, h, r: (
            4 * (4 * d * r * h + d * h) + 2 * h * h
        ),
    },
    next_step="That is 8 percent of a plain layer of width 1024 with 16 heads.",
    tolerance=0.0,
)
