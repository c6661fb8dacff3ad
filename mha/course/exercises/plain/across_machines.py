"""Checkers: who owns which head, the term of one process, the time on paper, outputs that are joined."""

from mha.course.exercises.plain.draw import Draw
from mha.course.exercises.plain.judge import Plain


def _block(rank: int, size: int) -> list[int]:
    return list(range(rank * size, (rank + 1) * size))


def _share(rank: int, processes: int, heads: int, kv_heads: int) -> list[list[int]]:
    return [_block(rank, heads // processes), _block(rank, kv_heads // processes)]


def _any_share(draw: Draw) -> tuple:
    processes = draw.integer(1, 6)
    kv_heads = processes * draw.integer(1, 4)
    return draw.integer(0, processes - 1), processes, kv_heads * draw.integer(1, 4), kv_heads


check_share = Plain(
    name="who owns which head",
    solution=_share,
    cases=lambda: [(1, 2, 4, 2), (2, 4, 32, 8), (0, 1, 6, 3), (7, 8, 64, 8), (1, 3, 12, 12)],
    legal=_any_share,
    mistakes={
        "the heads are dealt out one by one: a process then owns queries without their keys": lambda r, p, h, g: [
            list(range(r, h, p)),
            list(range(r, g, p)),
        ],
        "the query heads are a block, but the KV heads are dealt out": lambda r, p, h, g: [
            _block(r, h // p),
            list(range(r, g, p)),
        ],
        "KV heads got the numbers of the query heads: several of these share one": lambda r, p, h, g: (
            [_block(r, h // p)] * 2
        ),
        "every process got all KV heads: then the cache does not shrink": lambda r, p, h, g: [
            _block(r, h // p),
            _block(0, g),
        ],
        "every process got the first block: where does `rank` come in?": lambda r, p, h, g: _share(0, p, h, g),
        "this is the next process's block: ranks begin at 0": lambda r, p, h, g: _share(r + 1, p, h, g),
        "the last head of each block is missing: `range` stops before its end": lambda r, p, h, g: [
            block[:-1] for block in _share(r, p, h, g)
        ],
        "keys first: the query heads come first": lambda r, p, h, g: _share(r, p, h, g)[::-1],
        "these are all heads: a process owns a share": lambda r, p, h, g: [_block(0, h), _block(0, g)],
        "the blocks begin at `rank`, they should begin at `rank` times their size": lambda r, p, h, g: [
            list(range(r, r + h // p)),
            list(range(r, r + g // p)),
        ],
    },
    next_step="Next: the term of one process.",
)


def _seconds(
    operations: float | int, numbers: float | int, bits: int, processes: int, speed: float | int, link: float | int
) -> float:
    sent = 2 * (processes - 1) / processes * numbers * bits / 8
    return operations / speed / processes + sent / link


def _any_machine(draw: Draw) -> tuple:
    operations, numbers = (draw.one_of([1.0, 1e9]) * draw.number(1.0, 100.0) for _ in range(2))
    speed, link = (draw.one_of([1.0, 1e6]) * draw.number(1.0, 100.0) for _ in range(2))
    return operations, numbers, draw.integer(1, 64), draw.integer(1, 16), speed, link


check_seconds = Plain(
    name="the time on several devices",
    solution=_seconds,
    cases=lambda: [
        (600.0, 40.0, 16, 2, 10.0, 4.0),
        (1e6, 1e3, 32, 1, 1e3, 10.0),
        (9e12, 7e7, 16, 8, 1e15, 4.5e11),
        (9e12, 7e7, 8, 64, 1e15, 5e10),
    ],
    legal=_any_machine,
    mistakes={
        "the tensor goes around once: in a ring the terms go around, then the sums": lambda o, n, b, p, s, w: _seconds(
            o, n / 2, b, p, s, w
        ),
        "one device would send to itself: where is (p − 1)/p?": lambda o, n, b, p, s, w: o / s / p + 2 * n * b / 8 / w,
        "the bytes are divided by the number of devices: they do not fall": lambda o, n, b, p, s, w: (
            o / s / p + 2 * (p - 1) / p**2 * n * b / 8 / w
        ),
        "the bytes grow with the number of devices: each sends only pieces": lambda o, n, b, p, s, w: (
            o / s / p + 2 * (p - 1) * n * b / 8 / w
        ),
        "these are bits: a byte has 8 of them": lambda o, n, b, p, s, w: _seconds(o, 8 * n, b, p, s, w),
        "these are numbers: how many bytes has each?": lambda o, n, b, p, s, w: _seconds(o, n, 8, p, s, w),
        "every device computes everything: its share is a p-th": lambda o, n, b, p, s, w: (
            o / s + _seconds(0, n, b, p, s, w)
        ),
        "communication is left out": lambda o, n, b, p, s, w: o / s / p,
        "this is the larger of both: nothing is computed while waiting, so they add up": lambda o, n, b, p, s, w: max(
            o / s / p, _seconds(0, n, b, p, s, w)
        ),
        "the communication is divided by the number of devices too": lambda o, n, b, p, s, w: (
            (o / s + 2 * n * b / 8 / w) / p
        ),
        "each device sends the whole tensor to all: in a ring only pieces go round": lambda o, n, b, p, s, w: (
            o / s / p + 2 * p * n * b / 8 / w
        ),
    },
    next_step="Next: the quiz.",
)
