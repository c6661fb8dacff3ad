"""Reading for some of the queries of each head: for the others nothing is computed."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mha import core
from mha._count import Cost, Part

PIECE = 128  # gathered queries that share one run of keys: fewer see fewer keys in vain, more multiply faster


def read_where(
    gates: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, is_causal=False, dropout=0.0
) -> Tensor:
    """Read as :func:`mha.attend` where a gate (b, h, i) is not 0, times the gate; leave zeros elsewhere: (b, h, i, d).

    The leading heads that work for every query are read together by the fused kernel. Each other head reads alone,
    for the queries that it works for.
    """
    b, h, i, _ = q.shape
    mask = mask if mask is None or mask.ndim == 4 else mask[None, None]
    mask = None if mask is None else mask.expand(b, h, i, -1)
    read = q.new_zeros(b, i, h, v.shape[3]).transpose(1, 2)  # merging copies nothing in this order
    always = int((gates != 0).all(2).all(0).int().cumprod(0).sum())
    first, rest = ([None if x is None else x[:, part] for x in (gates, q, k, v, mask)] for part in _halves(always))
    if always:
        read[:, :always] = _read_together(*first, is_causal, dropout)
    if always < h:
        where, found = _read_apart(*rest, is_causal, dropout)
        read[:, always:][where] = found * rest[0][where][:, None]
    return read


def _halves(at: int) -> tuple[slice, slice]:
    return slice(at), slice(at, None)


def _read_together(
    gates: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, dropout: float
) -> Tensor:
    """Read with heads that work for every query."""
    return core.attend(q, k, v, mask, is_causal=is_causal, dropout=dropout) * gates[..., None]


def _read_apart(
    gates: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, dropout: float
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Gather the queries of each head in each batch entry and read; say where the results (n, d) belong."""
    where = (gates != 0).nonzero(as_tuple=True)
    counts = (gates != 0).sum(2).flatten().tolist()
    at = where[2] + k.shape[2] - q.shape[2]  # the last query stands at the last key
    past = is_causal and mask is None
    room = q.new_empty(PIECE * k.shape[2]) if past and not torch.is_grad_enabled() else None
    found = [q.new_zeros(0, v.shape[3])]  # where nobody asks, nothing is found
    for n, (queries, rows, places) in enumerate(zip(*(x.split(counts) for x in (q[where], where[2], at)), strict=True)):
        one, head = divmod(n, gates.shape[1])
        if len(rows) and past:
            found += _read_past(queries, k[one, head], v[one, head], places, dropout, room)
        elif len(rows):
            seen = None if mask is None else mask[one, head, rows]
            found.append(_read_one(queries, k[one, head], v[one, head], seen, places if is_causal else None, dropout))
    return where, torch.cat(found)


def _read_one(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, at: Tensor | None, dropout: float) -> Tensor:
    """Read for some queries (n, d) of one head; ``at`` are their positions where the future is hidden."""
    if at is not None:
        mask = mask & (torch.arange(len(k), device=k.device) <= at[:, None])
    q, k, v = (x[None, None] for x in (q, k, v))
    return core.attend(q, k, v, mask, dropout=dropout)[0, 0]


def _read_past(q: Tensor, k: Tensor, v: Tensor, at: Tensor, dropout: float, room: Tensor | None) -> list[Tensor]:
    """Read in pieces of neighbors in time: later keys than the last of them are left out of the products.

    What is hidden differs only between the first and the last of them; there −inf is added, row by row a window on a
    vector that is 0 up to the present and −inf after it. ``room`` is where numbers without gradients are written.
    """
    places, reads = at.tolist(), []
    present = torch.cat([q.new_zeros(len(k)), q.new_full((len(k),), -torch.inf)])
    for n, (some, rows) in enumerate(zip((q * q.shape[1] ** -0.5).split(PIECE), at.split(PIECE), strict=True)):
        first, end = places[n * PIECE], places[n * PIECE + len(rows) - 1] + 1
        out = None if room is None else room[: len(rows) * end].view(-1, end)
        scores = torch.mm(some, k[:end].T, out=out)
        windows = present[len(k) - end + first : len(k) + end - first].unfold(0, end - first, 1)
        scores[:, first:].add_(windows.index_select(0, end - 1 - rows))
        weights = torch.softmax(scores, -1, out=out)
        reads.append((F.dropout(weights, dropout) if dropout else weights) @ v[:end])
    return reads


def leave_out(cost: Cost, shared: int, chosen: int, heads: int, linear: nn.Linear, queries: int) -> Cost:
    """Take away what :func:`read_where` does not compute, where each query has ``shared + chosen`` of the heads."""
    numbers = queries * linear.out_features // heads  # of the queries of one head
    unread = numbers * (heads - shared - chosen) * linear.weight.element_size()
    together, apart = (heads, 0) if shared + chosen == heads else (shared, chosen)
    heads_more = max(0, 2 * together - heads, 3 * apart - heads)  # copies of queries and reads, at the fullest moment
    parts = dict(cost.parts)
    for name in ("scores", "read"):
        parts[name] = Part(parts[name].flops * (shared + chosen) // heads, parts[name].moved - unread)
    return replace(cost, parts=parts, peak=cost.peak + heads_more * numbers * linear.weight.element_size())
