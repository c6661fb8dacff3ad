"""Checkers: FLOPs of a call, time under two ceilings, arithmetic intensity with a cache, merged softmaxes, kernels."""

from mha.course.exercises.plain.draw import Draw
from mha.course.exercises.plain.judge import Plain


def _calls() -> list[tuple]:
    """Batch, queries, keys, how many of the keys are projected now, width and heads of one call."""
    return [(1, 3, 3, 3, 4, 2), (1, 1, 100, 1, 8, 4), (3, 5, 40, 5, 6, 2), (2, 7, 11, 11, 10, 5)]


def _count(b, i, j, fresh, d, _heads=1, *, into=2, out=2, each=2, scores=1, read=1) -> int:
    """Count a call with places for the usual mistakes: projections of the queries' side and of the keys' side."""
    return each * (into * b * i * d * d + out * b * fresh * d * d + (scores + read) * b * i * j * d)


def _any_call(draw: Draw) -> tuple:
    keys, heads = draw.integer(1, 50), draw.integer(1, 6)
    width = heads * draw.integer(1, 9)
    return draw.integer(1, 5), draw.integer(1, 50), keys, draw.integer(0, keys), width, heads


check_operations = Plain(
    name="FLOPs of one call",
    solution=_count,
    cases=_calls,
    legal=_any_call,
    mistakes={
        "a multiplication and its addition are counted as one FLOP": lambda *a: _count(*a, each=1),
        "all keys and values are projected again, though the cache holds the old ones": (
            lambda b, i, j, fresh, d, h: _count(b, i, j, j, d, h)
        ),
        "the output matrix W_o is forgotten": lambda *a: _count(*a, into=1),
        "the values are not projected": lambda *a: _count(*a, out=1),
        "the scores are counted, but not the head outputs": lambda *a: _count(*a, read=0),
        "scores and head outputs are forgotten: only the projections are counted": lambda *a: _count(
            *a, scores=0, read=0
        ),
        "scores and head outputs are multiplied by the number of heads, but each head has only d / h channels": (
            lambda b, i, j, fresh, d, h: _count(b, i, j, fresh, d, scores=h, read=h)
        ),
        "everything is multiplied by the number of heads": lambda *a: a[-1] * _count(*a),
        "each query is compared with the new keys only": (
            lambda b, i, j, fresh, d, h: _count(b, i, j, fresh, d) - 4 * b * i * (j - fresh) * d
        ),
        "the batch is forgotten": lambda b, *rest: _count(1, *rest),
    },
    next_step="Next: from FLOPs to time.",
)


def _steps() -> list[tuple]:
    """Steps (FLOPs, bytes), and the two ceilings of a machine."""
    return [
        ([(100, 10), (10, 100)], 100.0, 10.0),
        ([(300, 20), (40, 160), (10, 10)], 50.0, 20.0),
        ([(8, 64), (512, 64), (8, 128), (900, 30)], 16.0, 8.0),
    ]


def _any_steps(draw: Draw) -> tuple:
    most = draw.one_of([10, 1000, 10**12])
    steps = [(draw.integer(0, most), draw.integer(0, most)) for _ in range(draw.whole(1, 6))]
    return steps, draw.one_of([1.0, 1e9]) * draw.number(1.0, 50.0), draw.one_of([1.0, 1e9]) * draw.number(1.0, 50.0)


check_time = Plain(
    name="time under two ceilings",
    solution=lambda steps, flops, bandwidth: sum(max(f / flops, m / bandwidth) for f, m in steps),
    cases=_steps,
    legal=_any_steps,
    mistakes={
        "only the FLOPs take time": lambda steps, flops, _b: sum(f / flops for f, _ in steps),
        "only the bytes take time": lambda steps, _f, bandwidth: sum(m / bandwidth for _, m in steps),
        "both times are added, but a step computes while it reads": (
            lambda steps, flops, bandwidth: sum(f / flops + m / bandwidth for f, m in steps)
        ),
        "the shorter of the two times is taken": (
            lambda steps, flops, bandwidth: sum(min(f / flops, m / bandwidth) for f, m in steps)
        ),
        "first all steps are added up, then the larger sum is taken: each step has its own limit": (
            lambda steps, flops, bandwidth: max(sum(f for f, _ in steps) / flops, sum(m for _, m in steps) / bandwidth)
        ),
        "only the slowest step is counted": (
            lambda steps, flops, bandwidth: max(max(f / flops, m / bandwidth) for f, m in steps)
        ),
        "the two ceilings have changed places": (
            lambda steps, flops, bandwidth: sum(max(f / bandwidth, m / flops) for f, m in steps)
        ),
    },
    next_step="Next: what limits the decoding of a token.",
)


def _caches() -> list[tuple]:
    """Batch, context, width, heads, KV heads and bytes of a number."""
    return [(1, 16, 8, 4, 4, 4), (2, 32, 8, 4, 2, 2), (4, 20, 12, 6, 1, 2), (8, 50, 16, 8, 4, 1)]


def _intensity(b, j, d, h, kv, size, *, ops=4, sides=2, share=None, ends=2, extra=0, per_byte=True) -> float:
    """FLOPs per byte of scores and head outputs in one step, with places for the usual mistakes."""
    numbers = sides * b * j * d * (kv / h if share is None else share) + ends * b * d + extra * b * h * j
    return ops * b * j * d / (numbers * (size if per_byte else 1))


def _any_cache(draw: Draw) -> tuple:
    kv_heads = draw.integer(1, 4)
    heads = kv_heads * draw.integer(1, 4)
    d = heads * draw.integer(1, 6)
    return draw.integer(1, 5), draw.integer(1, 300), d, heads, kv_heads, draw.integer(1, 8)


check_intensity = Plain(
    name="arithmetic intensity with a cache",
    solution=_intensity,
    cases=_caches,
    legal=_any_cache,
    mistakes={
        "every query head reads keys of its own, though heads share them": lambda *a: _intensity(*a, share=1),
        "the FLOPs shrink with the shared heads too: every query head still compares and reads": (
            lambda *a: _intensity(*a, ops=4 * a[4] / a[3])
        ),
        "FLOPs per number, not per byte": lambda *a: _intensity(*a, per_byte=False),
        "bytes per FLOP: upside down": lambda *a: 1 / _intensity(*a),
        "only the keys are read, the values are forgotten": lambda *a: _intensity(*a, sides=1),
        "only the scores are counted, not the head outputs": lambda *a: _intensity(*a, ops=2),
        "a multiplication and its addition are counted as one FLOP, and the values are not read": (
            lambda *a: _intensity(*a, ops=2, sides=1)
        ),
        "the query that comes in and the head output that goes out are forgotten": lambda *a: _intensity(*a, ends=0),
        "the query comes in, but the head output that goes out is forgotten": lambda *a: _intensity(*a, ends=1),
        "the batch shares one cache: it is read once for all sequences": (
            lambda b, *rest: b * _intensity(1, *rest) if b > 1 else _intensity(b, *rest)
        ),
        "the attention weights are materialized and read once more, which the fused kernel does not do": (
            lambda *a: _intensity(*a, extra=4)
        ),
    },
    next_step="Next: halves of a softmax.",
)


def _shapes() -> list[tuple]:
    """Heads, queries, keys, width of a head, width of a value, and bytes of a number."""
    return [(1, 4, 4, 2, 2, 4), (2, 3, 5, 4, 2, 2), (3, 8, 6, 1, 5, 2), (4, 1, 9, 3, 3, 1)]


def _moved(h, i, j, d, c, size, *, ends=4, crossings=4, every_head=True) -> int:
    """Bytes of the explicit formula in three kernels, with places for the usual mistakes."""
    inputs = (i * d + j * d + j * c + i * c) if ends == 4 else (i * d + j * d + j * c)
    return size * (h * (inputs + crossings * i * j) if every_head else h * inputs + crossings * i * j)


def _any_shape(draw: Draw) -> tuple:
    return tuple(draw.integer(1, most) for most in (9, 60, 60, 40, 40, 8))


check_explicit_bytes = Plain(
    name="bytes of the explicit formula",
    solution=_moved,
    cases=_shapes,
    legal=_any_shape,
    whole=True,
    mistakes={
        "this is the fused kernel: no matrix of scores or weights is moved": lambda *a: _moved(*a, crossings=0),
        "scores and weights are written, but not read again": lambda *a: _moved(*a, crossings=2),
        "the scores move, but the weights do not": lambda *a: _moved(*a, crossings=2, ends=3),
        "the softmax reads the scores, and the last product the weights; one of the four crossings is missing": (
            lambda *a: _moved(*a, crossings=3)
        ),
        "the head outputs are not written": lambda *a: _moved(*a, ends=3),
        "one matrix of scores serves all heads": lambda *a: _moved(*a, every_head=False),
        "numbers are counted, not bytes": lambda *a: _moved(*a) // a[-1],
    },
    next_step="Next: how many tiles does a block load?",
)


def _blocks() -> list[tuple]:
    """Number of a block, queries, keys, rows of a block, keys of a tile."""
    return [(0, 8, 8, 4, 4), (1, 8, 8, 4, 4), (0, 4, 12, 4, 4), (2, 10, 7, 4, 2), (0, 9, 3, 4, 2), (1, 6, 20, 4, 8)]


def _last(block, i, j, rows, shift=True, last=1) -> int:
    """How many keys the block sees, from the first on, with places for the usual mistakes."""
    behind = min((block + last) * rows, i)
    return max(0, min(j, behind + (j - i if shift else 0)))


def _tiles(block, i, j, rows, tile, **how) -> int:
    return -(-_last(block, i, j, rows, **how) // tile)


def _any_block(draw: Draw) -> tuple:
    i, j, rows = draw.integer(1, 70), draw.integer(1, 70), draw.integer(1, 20)
    return draw.integer(0, (i - 1) // rows), i, j, rows, draw.integer(1, 20)


check_tiles = Plain(
    name="tiles that a block loads",
    solution=_tiles,
    cases=_blocks,
    legal=_any_block,
    whole=True,
    mistakes={
        "the triangle begins at the first key: with other lengths the last query must see the last key": (
            lambda *a: _tiles(*a, shift=False)
        ),
        "the last tile is left out where it is not full": lambda block, i, j, rows, tile: (
            _last(block, i, j, rows) // tile
        ),
        "all tiles are loaded, though the block sees only the first ones": lambda _b, _i, j, _r, tile: -(-j // tile),
        "only what the first row of the block sees is loaded": (
            lambda block, i, j, rows, tile: -(-max(0, min(j, block * rows + 1 + j - i)) // tile)
        ),
        "the blocks are counted from 1": lambda *a: _tiles(*a, last=0),
        "keys are counted, not tiles": lambda block, i, j, rows, _t: _last(block, i, j, rows),
        "a block whose rows see nothing needs no tile, not fewer than none": (
            lambda block, i, j, rows, tile: -(-min(j, min((block + 1) * rows, i) + j - i) // tile)
        ),
    },
)
