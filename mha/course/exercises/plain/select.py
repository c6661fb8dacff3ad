"""Checkers: what an indexed layer costs, the keys that an index chooses, the blocks of keys that it chooses."""

from mha.course.exercises.plain.draw import Draw
from mha.course.exercises.plain.judge import Plain


def _bills() -> list[tuple]:
    return [
        (8_192, 2_048, 128, 512, 64, 64, 128),
        (100, 2_048, 128, 512, 64, 64, 128),
        (1_000, 16, 4, 8, 2, 1, 8),
        (16, 16, 3, 5, 0, 2, 4),
    ]


def _bill(n: int, k: int, heads: int, d_latent: int, d_rotary: int, index_heads: int, d_index: int) -> list[int]:
    each = 2 * heads * (2 * d_latent + d_rotary)
    if n <= k:
        return [each * n, each * n]
    return [each * n, 2 * index_heads * d_index * n + each * k]


def _any_bill(draw: Draw) -> tuple:
    k = draw.whole(1, 60)
    n = draw.one_of([k, max(1, k - 1), k + 1, 5 * k, 100 * k])
    return n, k, draw.whole(1, 16), draw.whole(1, 64), draw.whole(0, 16), draw.whole(1, 8), draw.whole(1, 16)


check_bill = Plain(
    name="the bill of an indexed layer",
    solution=_bill,
    cases=_bills,
    legal=_any_bill,
    mistakes={
        "the index is counted where n ≤ k, too: there it is not asked": lambda n, k, h, c, r, hi, di: [
            2 * h * (2 * c + r) * n,
            2 * hi * di * n + 2 * h * (2 * c + r) * min(k, n),
        ],
        "k keys are counted where only n exist": lambda n, k, h, c, r, hi, di: [
            2 * h * (2 * c + r) * n,
            2 * h * (2 * c + r) * k + (2 * hi * di * n if n > k else 0),
        ],
        "the index is not counted": lambda n, k, h, c, r, hi, di: [
            2 * h * (2 * c + r) * n,
            2 * h * (2 * c + r) * min(k, n),
        ],
        "the index scores only the k chosen keys: it must score all of them to choose": lambda n, k, h, c, r, hi, di: [
            2 * h * (2 * c + r) * n,
            2 * h * (2 * c + r) * min(k, n) + (2 * hi * di * k if n > k else 0),
        ],
        "only the scores are counted: the weighted sum of the latents costs 2 · heads · d_latent more per key": (
            lambda n, k, h, c, r, hi, di: [
                2 * h * (c + r) * n,
                2 * h * (c + r) * min(k, n) + (2 * hi * di * n if n > k else 0),
            ]
        ),
        "the rotated key is read as a value, too: the weighted sum is of latents alone": lambda n, k, h, c, r, hi, di: [
            4 * h * (c + r) * n,
            4 * h * (c + r) * min(k, n) + (2 * hi * di * n if n > k else 0),
        ],
        "a multiplication and an addition are counted as one FLOP": lambda n, k, h, c, r, hi, di: [
            x // 2 for x in _bill(n, k, h, c, r, hi, di)
        ],
        "the latent is counted once: in the absorbed form every head reads it": lambda n, k, h, c, r, hi, di: [
            2 * (2 * c + r) * n,
            2 * (2 * c + r) * min(k, n) + (2 * hi * di * n if n > k else 0),
        ],
    },
    next_step="Next: choose the keys.",
)
