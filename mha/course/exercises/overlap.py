"""Checkers: which channels a head reads, heads that are widened, how many parameters they add."""

import torch
import torch.nn.functional as F

from mha.course.exercises.exercise import Exercise
from mha.course.exercises.legal import Draw
from mha.course.exercises.plain import overlap as plain
from mha.functional.attention import merge_heads


def _channels(heads, d, overlap, *, left=None, right=None, step=None, edge=None):
    left, right, step = overlap if left is None else left, overlap if right is None else right, step or d
    rows = torch.arange(heads)[:, None] * step + torch.arange(-left, d + right)
    return edge(rows, heads * d) if edge else rows.masked_fill((rows < 0) | (rows >= heads * d), -1)


def _any_channels(draw: Draw) -> tuple:
    d = draw.integer(1, 5)
    return draw.integer(1, 6), d, draw.integer(0, 2 * d)


check_channels = Exercise(
    name="the channels of each head",
    solution=_channels,
    cases=lambda: [(2, 3, 1), (4, 2, 2), (3, 4, 3), (5, 2, 1)],
    legal=_any_channels,
    mistakes={
        "channels beyond the ends wrap around to the other end": lambda h, d, o: _channels(
            h, d, o, edge=lambda rows, n: rows % n
        ),
        "the first and the last channel are repeated beyond the ends": lambda h, d, o: _channels(
            h, d, o, edge=lambda rows, n: rows.clamp(0, n - 1)
        ),
        "channels beyond the ends are still numbered": lambda h, d, o: _channels(h, d, o, edge=lambda rows, n: rows),
        "both extra parts come from the right neighbor": lambda h, d, o: _channels(h, d, o, left=0, right=2 * o),
        "both extra parts come from the left neighbor": lambda h, d, o: _channels(h, d, o, left=2 * o, right=0),
        "heads begin every d + overlap channels instead of every d": lambda h, d, o: _channels(h, d, o, step=d + o),
        "heads begin every d + 2 · overlap channels: they do not overlap": lambda h, d, o: _channels(
            h, d, o, step=d + 2 * o
        ),
        "every head reads as the first one does": lambda h, d, o: _channels(h, d, o)[:1].expand(h, -1) + 0,
        "0 is the number of a channel: where a head gets a zero, −1 belongs": lambda h, d, o: _channels(
            h, d, o, edge=lambda rows, n: rows.masked_fill((rows < 0) | (rows >= n), 0)
        ),
    },
    next_step="Next: do it with tensors.",
)


def _widen(x, overlap, *, mode="constant", flip=False, swap=False):
    h, d = x.shape[1], x.shape[3]
    padded = F.pad(merge_heads(x), (overlap, overlap), mode=mode)
    parts = [padded[..., i * d : (i + 1) * d + 2 * overlap] for i in range(h)]
    if flip or swap:
        left, own, right = (
            torch.stack(p, 1) for p in zip(*(part.split([overlap, d, overlap], -1) for part in parts), strict=True)
        )
        left, right = (right, left) if swap else (left.flip(-1), right.flip(-1))
        return torch.cat([left, own, right], -1)
    return torch.stack(parts, 1)


def _far(x, overlap):
    """The channels of the neighbors that are farthest away."""
    zeros = torch.zeros_like(x[:, :1, :, :overlap])
    left = torch.cat([zeros, x[:, :-1, :, :overlap]], 1)
    right = torch.cat([x[:, 1:, :, x.shape[3] - overlap :], zeros], 1)
    return torch.cat([left, x, right], -1)


def _half_far(x, overlap, side):
    """Take the farthest channels of one neighbor and the nearest of the other."""
    near, far = _widen(x, overlap), _far(x, overlap)
    cut = overlap if side == "left" else overlap + x.shape[3]
    return torch.cat([far[..., :cut], near[..., cut:]] if side == "left" else [near[..., :cut], far[..., cut:]], -1)


def _heads() -> list[tuple]:
    random = torch.Generator().manual_seed(15)
    sizes = [((1, 3, 2, 4), 2), ((2, 4, 3, 5), 3), ((2, 5, 4, 3), 2)]
    return [(torch.randn(s, generator=random, dtype=torch.float64), o) for s, o in sizes]


def _any_heads(draw: Draw) -> tuple:
    d = draw.whole(1, 5)
    return draw.normal(draw.whole(1, 3), draw.whole(1, 5), draw.whole(1, 4), d), draw.whole(0, d)


check_widen = Exercise(
    name="widened heads",
    solution=_widen,
    cases=_heads,
    legal=_any_heads,
    mistakes={
        "the ends wrap around: the first head reads from the last": lambda x, o: _widen(x, o, mode="circular"),
        "the outermost channel is repeated where zeros belong": lambda x, o: _widen(x, o, mode="replicate"),
        "the ends are reflected: the first head reads itself twice": lambda x, o: _widen(x, o, mode="reflect"),
        "the neighbors' channels are in the wrong order": lambda x, o: _widen(x, o, flip=True),
        "left and right neighbor are swapped": lambda x, o: _widen(x, o, swap=True),
        "the neighbors' farthest channels, not the nearest": _far,
        "the neighbors are left out: only zeros were added": lambda x, o: F.pad(x, (o, o)),
        "the first channels of the left neighbor: its last ones are the nearest": lambda x, o: _half_far(x, o, "left"),
        "the last channels of the right neighbor: its first ones are the nearest": lambda x, o: _half_far(
            x, o, "right"
        ),
        "each head got its own channels twice, not those of its neighbors": lambda x, o: torch.cat(
            [x[..., x.shape[3] - o :], x, x[..., :o]], -1
        ),
        "the neighboring tokens were read, not the neighboring heads": lambda x, o: _widen(
            x.transpose(1, 2), o
        ).transpose(1, 2),
    },
    next_step="Next: how many more parameters that takes.",
)


check_extra = Exercise(**vars(plain.check_extra))
