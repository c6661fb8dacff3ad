"""Checkers: softmax, what one query reads, a whole attention head."""

import math

from mha import reference
from mha.course.exercises.plain.draw import Draw
from mha.course.exercises.plain.judge import Plain


def _rows() -> list[tuple]:
    return [
        ([0.0, 1.0],),
        ([5.0, 2.0, 1.0, 2.0],),
        ([-3.0, 0.5, 0.5],),
        ([800.0, 801.0, 799.0],),
        ([-1000.0, -1001.0],),
    ]


def _any_row(draw: Draw) -> tuple:
    scale = draw.one_of([1e-3, 1.0, 5.0, 300.0])
    return ([draw.one_of([0.0, 1000.0, -1000.0]) + scale * x for x in draw.normals(draw.whole(1, 6))],)


def _two_to_the(row: list[float]) -> list[float]:
    return reference.softmax([x * math.log(2) for x in row])


check_softmax = Plain(
    name="softmax",
    solution=reference.softmax,
    cases=_rows,
    legal=_any_row,
    mistakes={
        "each number divided by the sum, without the exponential": lambda row: [x / sum(row) for x in row],
        "the exponentials, not divided by their sum": lambda row: [math.exp(x - max(row)) for x in row],
        "divided by the largest number instead of the sum": lambda row: [x / max(row) for x in row],
        "powers of 2 instead of powers of e": _two_to_the,
        "the logarithm of the softmax": lambda row: [math.log(p) for p in reference.softmax(row)],
        "the largest number takes all (a hard maximum)": lambda row: [float(x == max(row)) for x in row],
        "equal weights": lambda row: [1 / len(row) for _ in row],
        "the signs are flipped: the smallest number wins": lambda row: reference.softmax([-x for x in row]),
    },
    by_hand=True,
    forbidden=("torch",),
    next_step="Next: use it to read for one query.",
)


def _queries() -> list[tuple]:
    keys, values = [[0.0, 1.0], [2.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [2.0, 0.0], [1.0, 1.0]]
    more = [
        [0.3, -1.0, 0.5, 2.0],
        [1.0, 0.2, -0.7, 0.4],
        [-1.5, 0.8, 0.1, 0.9],
        [0.6, 0.6, -0.2, 0.0],
        [1.0, -1.0, 1.0, 0.5],
    ]
    return [
        ([2.0, 0.0], keys, values),
        ([1.5, -0.5, 0.8, 1.2], more, [[row[1], row[3], row[0], row[2]] for row in more]),
    ]


def _any_query(draw: Draw) -> tuple:
    count, width, of_value = draw.whole(1, 5), draw.whole(1, 5), draw.whole(1, 4)
    query = draw.normals(width, scales=(1.0, 3.0, 10.0))
    return query, draw.normals(count, width), draw.normals(count, of_value, scales=(1.0, 1e-3, 1e3))


def _read(q: list, keys: list, values: list, scale: float | None = None) -> list[float]:
    return reference.attention([q], keys, values, scale=scale)[0]


def _unnormalized(q: list, keys: list, values: list) -> list[float]:
    powers = [math.exp(s) for s in reference.attention_scores([q], keys)[0]]
    return reference.matmul([powers], values)[0]


def _hard(q: list, keys: list, values: list) -> list[float]:
    scores = reference.attention_scores([q], keys)[0]
    return values[scores.index(max(scores))]


check_read = Plain(
    name="what one query reads",
    solution=_read,
    cases=_queries,
    legal=_any_query,
    mistakes={
        "the scores are not scaled": lambda q, k, v: _read(q, k, v, scale=1.0),
        "scaled by d instead of √d": lambda q, k, v: _read(q, k, v, scale=1 / len(q)),
        "multiplied by √d instead of divided": lambda q, k, v: _read(q, k, v, scale=math.sqrt(len(q))),
        "the weights do not sum to one": _unnormalized,
        "the keys are read instead of the values": lambda q, k, v: _read(q, k, k),
        "the query is compared with the values": lambda q, k, v: _read(q, v, v),
        "only the best value is taken (a hard maximum)": _hard,
        "all values count the same": lambda q, k, v: _read([0.0 for _ in q], k, v),
        "divided by √d after the softmax": lambda q, k, v: [x / math.sqrt(len(q)) for x in _read(q, k, v, scale=1.0)],
    },
    by_hand=True,
    forbidden=("torch",),
    next_step="Next: all queries at once, as matrices.",
)
