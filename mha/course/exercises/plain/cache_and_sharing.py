"""Checkers: the size of a cache, masks with a cache, shared heads, aligning one head with another."""

from mha.course.exercises.plain.draw import Draw
from mha.course.exercises.plain.judge import Plain


def _sizes() -> list[tuple]:
    """Layers, heads, KV heads, width, sequences, length, bits."""
    return [
        (2, 3, 1, 5, 1, 7, 8),
        (2, 4, 2, 4, 1, 6, 4),
        (3, 8, 2, 4, 2, 5, 16),
        (32, 32, 8, 128, 16, 8192, 16),
        (6, 8, 8, 64, 1, 1000, 32),
    ]


def _bytes(layers: int, heads: int, kv_heads: int, d_head: int, texts: int, length: int, bits: int) -> int:
    return 2 * layers * kv_heads * d_head * texts * length * bits // 8


def _any_sizes(draw: Draw) -> tuple:
    kv_heads = draw.integer(1, 8)
    heads, width = kv_heads * draw.integer(1, 8), draw.integer(1, 128)
    return (
        draw.integer(1, 40),
        heads,
        kv_heads,
        width,
        draw.integer(1, 9),
        draw.integer(1, 9000),
        draw.one_of([4, 8, 32]),
    )


check_bytes = Plain(
    name="the size of a cache",
    solution=_bytes,
    cases=_sizes,
    legal=_any_sizes,
    mistakes={
        "only the keys are counted: values are kept too": lambda *a: _bytes(*a) // 2,
        "queries are counted as well, but no cache keeps them": lambda n, h, g, *a: (
            _bytes(n, h, g, *a) + _bytes(n, h, h, *a) // 2
        ),
        "every query head got keys of its own: count `kv_heads`": lambda n, h, g, *a: _bytes(n, h, h, *a),
        "only one layer is counted: each keeps its own": lambda *a: _bytes(1, *a[1:]),
        "only one sequence is counted: each has its own keys": lambda n, h, g, d, texts, *a: _bytes(n, h, g, d, 1, *a),
        "these are bits: a byte has 8 of them": lambda *a: 8 * _bytes(*a),
        "these are numbers: how many bytes has each?": lambda *a: 8 * _bytes(*a) // a[6],
        "the length is squared: attention weights are not kept": lambda *a: _bytes(*a) * a[5],
        "the width of a head is left out": lambda n, h, g, d, *a: _bytes(n, h, g, 1, *a),
    },
    whole=True,
    next_step="Next: the mask with a cache.",
)
