"""Entries that stand for several tokens of a cache: how they are made, who may read them, and how they are rotated.

A block of g rows becomes one entry by a softmax over the rows in each channel, Σ_j softmax_j(logits_jc) · x_jc. With
overlap a row has two halves, one for the entry of its own block and one for the entry of the next block.

:Taught in: compress.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from mha.checks import check_device, check_finite, check_whole, checked

Halves = tuple[Tensor, Tensor]


@checked
def compress_blocks(
    x: Float[Tensor, "b n w"],
    logits: Float[Tensor, "b n w"],
    block: int,
    *,
    overlap: bool = False,
    before: tuple[Float[Tensor, "b g w"], Float[Tensor, "b g w"]] | None = None,
) -> Float[Tensor, "b e c"]:
    """Make one entry of each block of rows: a weighted mean with weights of its own in each channel.

    Without overlap an entry is Σ_j softmax_j(logits_jc) · x_jc over the g rows of its block (heavily compressed
    attention, HCA). With overlap (compressed sparse attention, CSA) rows are twice as wide as entries. The first half
    of a row is for the entry of the next block, the second half for the entry of its own block, and the softmax is over
    these 2g rows. The first block has no block before it, so its softmax is over g rows, unless ``before`` gives one.

    Rows after the last whole block make no entry: keep them, and call again when the block is finished.

    :param x: what the entries are made of, (b, n, w); the first row is the first of a block.
    :param logits: of the softmax, (b, n, w); add a bias for each place in the block before, if there is one.
    :param block: how many rows make one entry, g.
    :param overlap: whether entries reach back over the block before; False unless given.
    :param before: ``x`` and ``logits`` of the last block of an earlier call, (b, g, w) each; only with overlap.
    :Costs: about 6·b·n·w FLOPs.
    :Shapes: returns (b, n // g, c), where c is w, or w / 2 with overlap.
    :Raises: ValueError for shapes that do not belong together, for an odd width with overlap, and for ``before``
        without overlap; TypeError for another type or device.
    :Source: DeepSeek-AI 2026, "DeepSeek-V4", released code.
    :Taught in: compress.
    """
    check_whole(block=block)
    _check_alike(x, logits)
    width = x.shape[-1]
    if overlap and width % 2:
        raise ValueError(f"x has shape {tuple(x.shape)}: with overlap a row has two halves, so its width must be even")
    if before is not None:
        _check_before(before, x, block, overlap)
    e = x.shape[1] // block
    rows, scores = (one[:, : e * block].unflatten(1, (e, block)) for one in (x, logits))
    if overlap:
        rows, scores = (
            _with_block_before(one, None if before is None else before[which], empty)
            for which, (one, empty) in enumerate(((rows, 0.0), (scores, -torch.inf)))
        )
    wide = torch.promote_types(x.dtype, torch.float32)
    weights = scores.softmax(2, dtype=wide).to(x.dtype)
    entries: Tensor = (weights * rows).sum(2)
    return entries


def _with_block_before(blocks: Tensor, before: Tensor | None, empty: float) -> Tensor:
    """Put the first halves of each block in front of the second halves of the next one, (b, e, 2g, c)."""
    first, second = blocks.chunk(2, -1)
    if before is None:
        first = F.pad(first[:, :-1], (0, 0, 0, 0, min(1, first.shape[1]), 0), value=empty)
    else:
        first = torch.cat([before[:, None].chunk(2, -1)[0], first], 1)[:, : first.shape[1]]
    return torch.cat([first, second], 2)


def _check_alike(x: Tensor, logits: Tensor) -> None:
    """Refuse logits that are not one for each number."""
    if x.shape != logits.shape:
        raise ValueError(
            f"x {tuple(x.shape)} and logits {tuple(logits.shape)} do not belong together: give one logit for each "
            "number of each row"
        )
    if x.dtype != logits.dtype or x.device != logits.device:
        raise TypeError(f"logits are {logits.dtype} on {logits.device}, x is {x.dtype} on {x.device}: use logits.to(x)")


def _check_before(before: Halves, x: Tensor, block: int, overlap: bool) -> None:
    """Refuse an earlier block that is none, or that nobody reads."""
    for name, one in zip(("before[0]", "before[1]"), before, strict=True):
        if tuple(one.shape) != (len(x), block, x.shape[-1]):
            raise ValueError(
                f"{name} has shape {tuple(one.shape)}, but the block before x {tuple(x.shape)} has shape "
                f"{(len(x), block, x.shape[-1])}"
            )
        if one.dtype != x.dtype or one.device != x.device:
            raise TypeError(f"{name} is {one.dtype} on {one.device}, x is {x.dtype} on {x.device}: use {name}.to(x)")
    if not overlap:
        raise ValueError("before was given, but without overlap no entry reads the block before it: leave it out")


@checked
def finished_entries(
    i: int, block: int, entries: int | None = None, *, start: int = 0, device: torch.device | str | None = None
) -> Bool[Tensor, "i e"]:
    """Let each query read the entries whose last token it may read: entry e is visible where (position + 1) // g > e.

    The query at the last token of a block reads the entry of that block. Put this mask beside that of the window.

    :param i: how many queries.
    :param block: how many tokens make one entry, g.
    :param entries: how many entries there are; as many as the last query reads unless given.
    :param start: the position of the first query; 0 unless given.
    :param device: where the mask is made; torch's default unless given.
    :Shapes: returns (i, entries), True = may attend. Rows without an entry are all False.
    :Raises: ValueError for a number below 1, and for a ``start`` or a number of ``entries`` below 0.
    :Source: DeepSeek-AI 2026, "DeepSeek-V4", released code.
    :Taught in: compress.
    """
    check_whole(i=i, block=block)
    check_whole(0, start=start)
    check_device(device)
    entries = (start + i) // block if entries is None else entries
    check_whole(0, entries=entries)
    numbers = (torch.arange(start, start + i, device=device) + 1) // block
    return numbers[:, None] > torch.arange(entries, device=device)


@checked
def rotate_last(
    x: Float[Tensor, "b h n d"], angles: Float[Tensor, "n pairs"], *, back: bool = False
) -> Float[Tensor, "b h n d"]:
    """Rotate the last channels of each row by the angles of its position (partial RoPE), or rotate them back.

    Channels d − 2p to d − 1 are p pairs of neighbors ("interleaved"); the other channels stay as they are. A head
    output that was read from rotated values is rotated *back* by the angles of its query: what it then takes from a
    key depends on the distance of both.

    :param x: queries, rows, or head outputs, (b, h, n, d).
    :param angles: of n positions and p pairs, (n, p), in radians: position · rate, with :func:`rotary_rates`.
    :param back: whether to rotate by the negative angles; False unless given.
    :Shapes: returns the shape of ``x``.
    :Raises: ValueError for other positions, and for more channels than there are; TypeError for another device.
    :Source: Su et al. 2021, section 3.2; DeepSeek-AI 2026, "DeepSeek-V4", released code.
    :Taught in: compress.
    """
    check_finite(angles=angles)
    n, d, pairs = x.shape[2], x.shape[3], angles.shape[1]
    if angles.shape[0] != n or 2 * pairs > d:
        raise ValueError(
            f"angles {tuple(angles.shape)} do not belong to x {tuple(x.shape)}: give one row for each of {n} "
            f"positions, and at most {d // 2} pairs"
        )
    if angles.device != x.device:
        raise TypeError(f"angles are on {angles.device}, x is on {x.device}: use angles.to(x.device)")
    cos, sin = angles.cos().to(x.dtype), (-angles if back else angles).sin().to(x.dtype)
    still, moved = x[..., : d - 2 * pairs], x[..., d - 2 * pairs :]
    a, b = moved[..., 0::2], moved[..., 1::2]
    moved = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    return torch.cat([still, moved], -1)
