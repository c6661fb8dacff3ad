"""Mixing heads by matrices that depend on the query and on the key.

For query i and key j the heads x (h numbers) become x · (base + query_i + key_j). What depends on the query is one
h × h matrix for each i. What depends on the key stays in pieces: for each j ``rank`` columns that collect the heads,
``rank`` rows that spread what was collected, and one factor for each head.

Taught in: chapter 17.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mha._chunks import attend_in_chunks, unpack

__all__ = ["Composition", "HeadWeights", "attend_in_chunks"]

Side = tuple[Float[Tensor, "b n r h"], Float[Tensor, "b n r h"], Float[Tensor, "b n h"]]


class HeadWeights(nn.Module):
    """Say, from a word alone, how its heads are to be mixed: a matrix of low rank, and a gate for each head.

    Costs: 2·r·h · (width + 2·r·h) + width · h weights, where r is the rank.
    Shapes: words (b, n, width) give what collects (b, n, r, h), what spreads (b, n, r, h) and gates (b, n, h).
    Source: Xiao et al. 2024, section 2.2; the sizes and the first numbers are those of its released code.
    Taught in: chapter 17.
    """

    def __init__(self, width: int, heads: int, rank: int) -> None:
        """Make the weights: what collects begins with size 1 and what spreads near 0."""
        super().__init__()
        inner, self.shape = 2 * rank * heads, (2, rank, heads)
        self.widen, self.narrow = nn.Linear(width, inner, bias=False), nn.Linear(inner, inner, bias=False)
        self.gate = nn.Linear(width, heads, bias=False)
        nn.init.normal_(self.widen.weight, 0, math.sqrt(2 / (width + inner)))
        nn.init.normal_(self.narrow.weight, 0, 0.02 / (math.sqrt(inner) * (heads + rank)))
        nn.init.normal_(self.gate.weight, 0, 0.05 * math.sqrt(2 / (heads + width)))

    def forward(self, x: Float[Tensor, "b n m"]) -> Side:
        """Collectors have root mean square 1 over the heads; gates lie between −1 and 1."""
        collect, spread = self.narrow(F.gelu(self.widen(x))).unflatten(-1, self.shape).unbind(2)
        return F.rms_norm(collect, collect.shape[-1:], eps=1e-6), spread, self.gate(x).tanh()


class Composition(nn.Module):
    """Hold what mixes heads at one place: a matrix for all words, weights made from queries, weights made from keys.

    Plain when: ``base`` is the identity, and ``gate`` and what spreads (the second half of ``narrow``) are zero.
    Shapes: x (b, h, i, j) with matrices (b, i, h, h) and pieces (b, 2·r + 1, h, j) gives (b, h, i, j).
    Taught in: chapter 17.
    """

    def __init__(self, width: int, key_width: int, heads: int, rank: int) -> None:
        """Begin with the identity and small dynamic weights."""
        super().__init__()
        self.base = nn.Parameter(torch.eye(heads))
        self.of_query, self.of_key = HeadWeights(width, heads, rank), HeadWeights(key_width, heads, rank)

    def matrices(self, query: Float[Tensor, "b i m"]) -> Float[Tensor, "b i h h"]:
        """Make one matrix for each query, the base included; it maps from column to row."""
        collect, spread, gate = self.of_query(query)
        return spread.mT @ collect + torch.diag_embed(gate) + self.base.mT

    def pieces(self, key: Float[Tensor, "b j m"]) -> Float[Tensor, "b p h j"]:
        """Make the pieces for each key: what collects, what spreads, the gates."""
        collect, spread, gate = self.of_key(key)
        return torch.cat([collect, spread, gate[:, :, None]], 2).permute(0, 2, 3, 1).contiguous()

    def forward(
        self, x: Float[Tensor, "b h i j"], matrices: Float[Tensor, "b i h h"], pieces: Float[Tensor, "b p h j"]
    ) -> Float[Tensor, "b h i j"]:
        """Mix the heads, with gradients: memory grows with all queries times all keys."""
        collect, spread, gate = (one.permute(0, 3, 1, 2) for one in unpack(pieces, 1))  # (b, j, p, h)
        heads = x.permute(0, 3, 2, 1)  # (b, j, i, h)
        by_key = heads @ collect.mT @ spread + heads * gate
        return (matrices @ x.transpose(1, 2)).transpose(1, 2) + by_key.permute(0, 3, 2, 1)
