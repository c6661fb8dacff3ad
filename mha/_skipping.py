"""Reading for some of the queries of each head: for the others nothing is computed."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mha import core
from mha._count import Cost, Part

PIECE = 128  # gathered queries that share one run of keys: fewer see fewer keys in vain, more multiply faster


def read_where(
    active: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, is_causal=False, dropout=0.0
) -> Tensor:
    """Read as :func:`mha.attend` where ``active`` (b, h, i), and leave zeros elsewhere: (b, h, i, d).

    The leading heads that work for every query are read together by the fused kernel. Each other head reads alone,
    for the queries that it works for.
    """
    b, h, i, _ = q.shape
    mask = mask if mask is None or mask.ndim == 4 else mask[None, None]
    mask = None if mask is None else mask.expand(b, h, i, -1)
    read = q.new_zeros(b, i, h, v.shape[3]).transpose(1, 2)  # merging copies nothing in this order
    always = int(active.all(2).all(0).int().cumprod(0).sum())
    if always:
        first = [None if x is None else x[:, :always] for x in (q, k, v, mask)]
        read[:, :always] = core.attend(*first, is_causal=is_causal, dropout=dropout)
    if always < h:
        rest = [None if x is None else x[:, always:] for x in (active, q, k, v, mask)]
        where, found = _read_apart(*rest, is_causal, dropout)
        read[:, always:][where] = found
    return read


def _read_apart(
    active: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, dropout: float
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Gather the queries of each head in each batch entry and read; say where the results (n, d) belong."""
    where = active.nonzero(as_tuple=True)
    counts = active.sum(2).flatten().tolist()
    found = [q.new_zeros(0, v.shape[3])]  # where nobody asks, nothing is found
    for n, (queries, rows) in enumerate(zip(q[where].split(counts), where[2].split(counts), strict=True)):
        if len(rows):
            one, head = divmod(n, active.shape[1])
            seen = None if mask is None else mask[one, head, rows]
            at = rows + k.shape[2] - active.shape[2] if is_causal else None  # the last query stands at the last key
            found.append(_read_one(queries, k[one, head], v[one, head], seen, at, dropout))
    return where, torch.cat(found)


def _read_one(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, at: Tensor | None, dropout: float) -> Tensor:
    """Read for some queries (n, d) of one head; ``at`` are their positions where the future is hidden."""
    if at is not None and mask is None:
        pieces = zip(q.split(PIECE), at.split(PIECE), strict=True)
        return torch.cat([_read_causal(some, k, v, places, dropout) for some, places in pieces])
    if at is not None:
        mask = mask & (torch.arange(len(k), device=k.device) <= at[:, None])
    q, k, v = (x[None, None] for x in (q, k, v))
    return core.attend(q, k, v, mask, dropout=dropout)[0, 0]


def _read_causal(q: Tensor, k: Tensor, v: Tensor, at: Tensor, dropout: float) -> Tensor:
    """Read for neighbors in time: none looks beyond the last of them, so later keys are left out of the products.

    What is hidden differs only between the first and the last of them; there −inf is added, row by row a piece of a
    vector that is 0 up to the present and −inf after it.
    """
    first, end = int(at[0]), int(at[-1]) + 1
    scores = (q * q.shape[1] ** -0.5) @ k[:end].mT
    wide = end - first
    present = torch.cat([q.new_zeros(wide), q.new_full((wide,), -torch.inf)])
    scores[:, first:] += present.unfold(0, wide, 1).index_select(0, end - 1 - at)
    weights = scores.softmax(-1)
    return (F.dropout(weights, dropout) if dropout else weights) @ v[:end]


def leave_out(cost: Cost, shared: int, chosen: int, heads: int, linear: nn.Linear, queries: int) -> Cost:
    """Take away what :func:`read_where` does not compute, where each query has ``shared + chosen`` of the heads."""
    numbers = queries * linear.out_features // heads  # of the queries of one head
    unread = numbers * (heads - shared - chosen) * linear.weight.element_size()
    gathered = 3 * chosen - heads  # queries, and reads twice, beyond the room that the gates need later
    parts = dict(cost.parts)
    for name in ("scores", "read"):
        parts[name] = Part(parts[name].flops * (shared + chosen) // heads, parts[name].moved - unread)
    more = max(0, numbers * gathered) * linear.weight.element_size()
    return replace(cost, parts=parts, peak=cost.peak + more)
