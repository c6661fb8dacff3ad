"""Checkers: a running average, the depth-scaled initialization, merged attention."""

import math

from mha.course.exercises.plain.draw import Draw
from mha.course.exercises.plain.judge import Plain


def _bound(d_in, d_out, layer, alpha):
    return alpha * math.sqrt(6 / (d_in + d_out)) / math.sqrt(layer)


def _any_layer(draw: Draw) -> tuple:
    return draw.integer(1, 900), draw.integer(1, 900), draw.integer(1, 60), draw.number(0.1, 3.0)


check_start = Plain(
    name="the depth-scaled initialization",
    solution=_bound,
    cases=lambda: [(64, 64, 1, 1.0), (64, 256, 4, 1.0), (512, 512, 12, 0.5), (10, 30, 3, 2.0)],
    legal=_any_layer,
    mistakes={
        "the fourth root of the layer: the released code, for α = 1": lambda i, o, k, a: _bound(i, o, 1, a) / k**0.25,
        "divided by the layer, not by its square root": lambda i, o, k, a: _bound(i, o, 1, a) / k,
        "Xavier initialization in every layer": lambda i, o, k, a: _bound(i, o, 1, a),
        "the layer counted from 2": lambda i, o, k, a: _bound(i, o, k + 1, a),
        "multiplied by the square root of the layer": lambda i, o, k, a: _bound(i, o, 1, a) * math.sqrt(k),
        "that is the standard deviation: smaller by √3": lambda i, o, k, a: _bound(i, o, k, a) / math.sqrt(3),
        "only the incoming channels count": lambda i, o, k, a: a * math.sqrt(6 / i) / math.sqrt(k),
        "α under the square root": lambda i, o, k, a: math.sqrt(a) * _bound(i, o, k, 1.0),
        "α is left out": lambda i, o, k, a: _bound(i, o, k, 1.0),
        "the square root of 6 / (d_in + d_out) is missing": lambda i, o, k, a: a * 6 / (i + o) / math.sqrt(k),
        "d_in and d_out are multiplied, not added": lambda i, o, k, a: a * math.sqrt(6 / (i * o)) / math.sqrt(k),
    },
    next_step="Next: the whole layer.",
)
