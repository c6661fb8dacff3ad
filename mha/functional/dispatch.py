"""Reading for some of the queries of each head: for the others next to nothing is computed.

:Taught in: route.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from mha.functional.attention import attend

PIECE = 128  # queries of a head that share one run of keys: fewer see fewer keys in vain, more multiply faster


FILLED = 1.2  # heads are read together while that reads for at most so many times the queries that ask them


def check_causal_lengths(i: int, j: int, mask: Tensor | None, is_causal: bool) -> None:
    """Refuse queries that are before the first key: without a mask the pieces of the causal read cannot hold them."""
    if is_causal and mask is None and i > j:
        raise ValueError(f"is_causal with {i} queries and {j} keys: the first {i - j} would see nothing. Give a mask")


def read_where(
    gates: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    is_causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """Read as :func:`mha.attend` where a gate is not 0, times the gate; leave zeros elsewhere.

    The leading heads that work for every query are read by the fused kernel. The others read together, so that all
    threads have work, each for as many queries as the busiest of them: a head with fewer is padded with queries that do
    not ask it, and their output is thrown away. If that would be much, the heads read one after the other.

    :param gates: what each head output is multiplied by, (b, h, i); where it is 0 nothing is read.
    :param q: the queries, (b, h, i, d).
    :param k: the keys, (b, h, j, d).
    :param v: the values, (b, h, j, c).
    :param mask: (i, j) or (b, h, i, j), True = may attend; every key may be attended to unless given.
    :param is_causal: whether each query attends only to itself and to what came before; False unless given.
    :param dropout: the share of weights dropped, at least 0 and below 1; 0 unless given.
    :Shapes: returns (b, h, i, c).
    """
    check_causal_lengths(q.shape[2], k.shape[2], mask, is_causal)
    b, h, i, _ = q.shape
    mask = mask if mask is None or mask.ndim == 4 else mask[None, None]
    mask = None if mask is None else mask.expand(b, h, i, -1)
    asked = gates != 0
    counts = list(zip(*asked.sum(2).tolist(), strict=True))  # of each head, in each batch entry: a GPU is waited for
    always = next((head for head, count in enumerate(counts) if min(count) < i), h)
    read = q.new_zeros(b * i * h + 1, v.shape[3])  # merging copies nothing in this order; into the last row goes waste
    if always:
        some = None if mask is None else mask[:, :always]
        found = attend(q[:, :always], k[:, :always], v[:, :always], some, is_causal=is_causal, dropout=dropout)
        read[:-1].view(b, i, h, -1)[:, :, :always] = found.transpose(1, 2)
    for part, longest in _read_together(counts, always):
        rows = _rows(asked[:, part], longest, in_order=is_causal)
        at = _places(rows, i, h, part)
        queries = q.transpose(1, 2).reshape(b * i * h, -1).index_select(0, at.flatten()).view(*rows.shape, -1)
        some = None if mask is None else mask[:, part]
        found = _read_apart(queries, rows, i, k[:, part], v[:, part], some, is_causal, dropout)
        at = at.where(asked[:, part].gather(2, rows), len(read) - 1)
        read.index_copy_(0, at.flatten(), found.reshape(at.numel(), -1))
    return read[:-1].view(b, i, h, -1).mul_(gates.transpose(1, 2)[..., None]).transpose(1, 2)


def _read_together(counts: list[tuple[int, ...]], first: int) -> list[tuple[slice, int]]:
    """Which heads from the first one on are read together, and for how many queries of each.

    All of them, or each alone if padding would be much; none that no query asks.
    """
    others = [count for of_head in counts[first:] for count in of_head]
    if not others:
        return []
    if len(others) * max(others) <= FILLED * sum(others):
        parts = [slice(first, len(counts))]
    else:
        parts = [slice(head, head + 1) for head in range(first, len(counts))]
    longest = [max(max(of_head) for of_head in counts[part]) for part in parts]
    return [(part, most) for part, most in zip(parts, longest, strict=True) if most]


def _rows(asked: Tensor, count: int, *, in_order: bool) -> Tensor:
    """The queries that ask each head, and others up to ``count``: (b, h, count)."""
    rows = asked.to(torch.uint8).topk(count, 2).indices
    return rows.sort(2).values if in_order else rows


def _places(rows: Tensor, i: int, h: int, part: slice) -> Tensor:
    """Where rows (b, r, n) of some of the heads lie among those of all: row by row, in each the heads."""
    one, head = (torch.arange(n, device=rows.device) for n in (len(rows), h))
    return (one[:, None, None] * i + rows) * h + head[part, None]


def _read_apart(
    q: Tensor, rows: Tensor, i: int, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, dropout: float
) -> Tensor:
    """Read for gathered queries (b, h, n, d), which are ``rows`` (b, h, n) of i queries."""
    at = rows + k.shape[2] - i  # the keys at whose positions they are
    if is_causal and mask is None:
        found = [_read_past(*one, dropout) for one in zip(q, at, k, v, strict=True)]
        return torch.stack(found) if len(found) > 1 else found[0][None]
    seen = None if mask is None else mask.gather(2, rows[..., None].expand(-1, -1, -1, mask.shape[3]))
    if is_causal and seen is not None:
        seen = seen & (torch.arange(k.shape[2], device=k.device) <= at[..., None])
    return attend(q, k, v, seen, dropout=dropout)


def _read_past(q: Tensor, at: Tensor, k: Tensor, v: Tensor, dropout: float) -> Tensor:
    """Read in one batch entry, where queries (h, n, d) are ``at`` (h, n) keys, in order: for all heads, in pieces.

    A piece holds queries of every head, in their order; keys later than all of them are left out of the products.
    To the scores is added, row by row, a window on a vector that is 0 up to the present and −inf after it. Without
    gradients windows, scores and weights are written into one buffer, ``room``.
    """
    read, scale = [], q.shape[2] ** -0.5
    present = torch.cat([q.new_zeros(k.shape[1]), q.new_full((k.shape[1],), -torch.inf)])
    room = None if torch.is_grad_enabled() else q.new_empty(len(q) * min(PIECE, q.shape[1]) * k.shape[1])
    pieces = at.split(PIECE, 1)
    last = torch.stack([rows[:, -1].max() for rows in pieces]).tolist()  # waits for a GPU once, not for each piece
    for some, rows, end in zip(q.split(PIECE, 1), pieces, (one + 1 for one in last), strict=True):
        out = None if room is None else room[: rows.numel() * end].view(rows.numel(), end)
        windows = present[k.shape[1] - end :].unfold(0, end, 1)
        hidden = torch.index_select(windows, 0, end - 1 - rows.flatten(), out=out).view(*rows.shape, end)
        out = None if out is None else hidden
        scores = torch.baddbmm(hidden, some, k[:, :end].mT, alpha=scale, out=out)
        weights = torch.softmax(scores, -1, out=out)
        read.append((F.dropout(weights, dropout) if dropout else weights) @ v[:, :end])
    return torch.cat(read, 1)
