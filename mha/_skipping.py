"""Reading for some of the queries of each head: for the others nothing is computed."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from mha import core
from mha._count import Cost, Part

PIECE = 128  # queries of a head that share one run of keys: fewer see fewer keys in vain, more multiply faster


def read_where(
    gates: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, is_causal=False, dropout=0.0
) -> Tensor:
    """Read as :func:`mha.attend` where a gate (b, h, i) is not 0, times the gate; leave zeros elsewhere: (b, h, i, d).

    The leading heads that work for every query are read together by the fused kernel. The others read only for the
    queries that they work for.
    """
    b, h, i, _ = q.shape
    works = gates != 0
    mask = mask if mask is None or mask.ndim == 4 else mask[None, None]
    mask = None if mask is None else mask.expand(b, h, i, -1)
    how = {"is_causal": is_causal, "dropout": dropout}
    read = q.new_zeros(b, i, h, v.shape[3])  # merging copies nothing in this order
    always = int(works.all(2).all(0).int().cumprod(0).sum())
    if always:
        together = [x if x is None else x[:, :always] for x in (q, k, v, mask)]
        read[:, :, :always] = (core.attend(*together, **how) * gates[:, :always, :, None]).transpose(1, 2)
    one, head, row = works[:, always:].nonzero(as_tuple=True)
    if len(row):
        at = (one * i + row) * h + always + head  # the place in ``read``, and that of the query in its like
        queries, shares = (x.transpose(1, 2).reshape(b * i * h, -1).index_select(0, at) for x in (q, gates[..., None]))
        counts = works[:, always:].sum(2).tolist()
        others = (x if x is None else x[:, always:] for x in (k, v, mask))  # what is read, and what may be seen
        found = _read_apart(queries, counts, row + k.shape[2] - i, *others, **how)
        read.view(b * i * h, -1).index_copy_(0, at, found * shares)
    return read.transpose(1, 2)


def _read_apart(
    q: Tensor, counts: list[list[int]], at: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal, dropout
) -> Tensor:
    """Read for gathered queries (n, d), ``counts`` for each head in each batch entry, that stand at keys ``at``."""
    if is_causal and mask is None:
        of_each = (x.split([sum(heads) for heads in counts]) for x in (q, at))
        return torch.cat([_read_past(*one, dropout) for one in zip(*of_each, counts, k, v, strict=True)])
    found, end = [q.new_zeros(0, v.shape[3])], 0
    for one, heads in enumerate(counts):
        for head, count in enumerate(heads):
            some, end = slice(end, end + count), end + count
            part = slice(one, one + 1), slice(head, head + 1)
            seen = None if mask is None else mask[one, head, at[some] - k.shape[2] + mask.shape[2]]
            if is_causal:
                seen = seen & (torch.arange(k.shape[2], device=k.device) <= at[some, None])
            found += [core.attend(q[None, None, some], k[part], v[part], seen, dropout=dropout)[0, 0]] if count else []
    return torch.cat(found)


def _read_past(q: Tensor, at: Tensor, counts: list[int], k: Tensor, v: Tensor, dropout: float) -> Tensor:
    """Read in one batch entry for the next ``counts`` queries of each head: for all heads at once, in pieces.

    A piece holds neighbors in time of every head that still has some, and keys later than all of them are left out of
    the products. What is hidden differs only between the first and the last of them; there −inf is added, row by row a
    window on a vector that is 0 up to the present and −inf after it. Without gradients all is written in one ``room``.
    """
    places = [of_head.tolist() for of_head in at.split(counts)]
    queries, rows = (pad_sequence(x.split(counts), batch_first=True) for x in (q * q.shape[1] ** -0.5, at))
    present = torch.cat([q.new_zeros(k.shape[1]), q.new_full((k.shape[1],), -torch.inf)])
    read = q.new_zeros(*rows.shape, v.shape[2])
    room = None if torch.is_grad_enabled() else q.new_empty(len(counts) * PIECE * k.shape[1])
    for start in range(0, rows.shape[1], PIECE):
        piece, busy = slice(start, start + PIECE), [n for n, of_head in enumerate(places) if len(of_head) > start]
        first, end = min(places[n][start] for n in busy), max(places[n][piece][-1] for n in busy) + 1
        busy = slice(None) if len(busy) == len(counts) else busy  # a list would copy all keys
        some, ahead = queries[busy, piece], end - 1 - rows[busy, piece].clamp(min=first)
        out = None if room is None else room[: ahead.numel() * end].view(*ahead.shape, end)
        scores = torch.bmm(some, k[busy, :end].mT, out=out)
        windows = present[k.shape[1] - end + first :].unfold(0, end - first, 1)
        scores[..., first:] += windows.index_select(0, ahead.flatten()).view(*ahead.shape, -1)
        weights = torch.softmax(scores, -1, out=out)
        read[busy, piece] = (F.dropout(weights, dropout) if dropout else weights) @ v[busy, :end]
    return torch.cat([of_head[:count] for of_head, count in zip(read, counts, strict=True)])


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
