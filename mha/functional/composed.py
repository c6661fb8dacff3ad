"""Composed attention for a few queries at a time.

:Taught in: compose.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mha.functional.masks import causal_mask, combine

QUERIES = 128  # queries at a time: many of their scores stay in the processor's caches


@torch.no_grad()
def attend_in_chunks(
    q: Float[Tensor, "b h i d"],
    k: Float[Tensor, "b h j d"],
    v: Float[Tensor, "b h j c"],
    before: tuple[Tensor, Tensor],
    after: tuple[Tensor, Tensor],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    is_causal: bool = False,
) -> Float[Tensor, "b h i c"]:
    """Compose, hide, normalize, compose and read for a few queries at a time, in buffers that are used again.

    It gives the numbers of the explicit formula, without gradients; memory grows with h · j · 128, not with i · j.

    :param q: the queries, (b, h, i, d).
    :param k: the keys, (b, h, j, d).
    :param v: the values, (b, h, j, c).
    :param before: how scores are composed: matrices (b, i, h, h) and pieces (b, 2·r + 1, h, j).
    :param after: how weights are composed, likewise.
    :param mask: (i, j) or (b, h, i, j), True = may attend; every key may be attended to unless given.
    :param is_causal: whether each query attends only to itself and to what came before; False unless given.
    :Shapes: returns the head output (b, h, i, c).
    :Taught in: compose.
    """
    b, h, i, j = *q.shape[:3], k.shape[2]
    read, q = q.new_empty(b, i, h, v.shape[-1]), q / math.sqrt(q.shape[-1])
    k, v = (k.mT.contiguous().mT, v.contiguous()) if i > QUERIES else (k, v)  # a copy pays where many chunks read it
    rooms = [q.new_empty(min(QUERIES, i) * j * wide) for wide in (h, h, *[1] * (before[1].shape[1] // 2))]
    mask = mask if mask is None else (mask if mask.ndim == 4 else mask[None, None]).expand(b, -1, i, j)
    for n, start in ((n, start) for n in range(b) for start in range(0, i, QUERIES)):
        rows = slice(start, min(start + QUERIES, i))
        seen = slice(j - i + rows.stop if is_causal else j)
        first, last = ((matrices[n, rows], pieces[n, ..., seen]) for matrices, pieces in (before, after))
        shown = None if mask is None else mask[n, :, rows, seen].transpose(0, 1)
        if is_causal:
            shown = combine(shown, causal_mask(rows.stop - start, seen.stop, device=q.device)[:, None])
        weights = _weights(q[n, :, rows], k[n, :, seen], shown, first, last, rooms)
        torch.bmm(weights.transpose(0, 1), v[n, :, seen], out=read[n, rows].transpose(0, 1))
    return read.transpose(1, 2)


def _weights(
    q: Tensor,
    k: Tensor,
    shown: Tensor | None,
    before: tuple[Tensor, Tensor],
    after: tuple[Tensor, Tensor],
    rooms: list[Tensor],
) -> Tensor:
    """Return the composed weights of a few queries: (i, h, j), so that the products of each query lie together."""
    i, h, j = q.shape[1], *k.shape[:2]
    x, y, *sums = (room[: i * j * (h if n < 2 else 1)] for n, room in enumerate(rooms))
    x, y, sums = x.view(i, h, j), y.view(i, h, j), [one.view(i, j) for one in sums]
    torch.bmm(q, k.mT, out=x.transpose(0, 1))
    _compose(x, y, sums, *before)
    if shown is not None:
        empty = ~shown.any(-1, keepdim=True)  # as in mha.functional.masks.hide: no softmax of nothing
        y.masked_fill_(~(shown | empty), -torch.inf)
    torch.softmax(y, -1, out=x)
    if shown is not None:
        x.masked_fill_(empty, 0)
    _compose(x, y, sums, *after)
    return y


def _compose(x: Tensor, y: Tensor, sums: list[Tensor], matrices: Tensor, pieces: Tensor) -> None:
    """Write the mixed heads of x into y: one small product for each query, then the keys' part on top."""
    collect, spread, gate = unpack(pieces, 0)
    torch.bmm(matrices, x, out=y)
    y.addcmul_(x, gate[0])
    heads = x.unbind(1)
    for collected, weights, back in zip(sums, collect, spread, strict=True):
        weights = weights.unbind(0)
        torch.mul(heads[0], weights[0], out=collected)
        for head, weight in zip(heads[1:], weights[1:], strict=True):
            collected.addcmul_(head, weight)
        y.addcmul_(collected[:, None], back)


def unpack(pieces: Tensor, axis: int) -> tuple[Tensor, Tensor, Tensor]:
    """Part the pieces of the keys: what collects, what spreads, the gates.

    :param pieces: the pieces of the keys, 2·r + 1 along ``axis``.
    :param axis: the axis of the pieces, by number.
    :Shapes: returns r, r and 1 of them.
    """
    rank = pieces.shape[axis] // 2
    return pieces.split([rank, rank, 1], axis)  # type: ignore[no-any-return]
