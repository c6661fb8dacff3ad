"""Heads that are recombined anew for every query and every key.

:Taught in: compose.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor

from mha.checks import checked
from mha.functional import core
from mha.functional.composed import attend_in_chunks, unpack
from mha.functional.core import Changes
from mha.layers.cache import KeyValueCache, LayerCache
from mha.layers.cost import Cost, Part, count_linear
from mha.layers.multi_head import Heads
from mha.layers.positions import RelativePositions


class ComposedCache(KeyValueCache):
    """Remember keys, values, and how each position mixes the heads.

    :Costs: 2·h·(2·r + 1) numbers for each position more than a :class:`mha.KeyValueCache`, with h heads and rank r.
    :Shapes: pieces (b, 2·r + 1, h, n) for scores and for weights, stored with the positions last.
    :Raises: ValueError as KeyValueCache, and where the pieces do not continue those in the cache.
    :Source: Xiao et al. 2024, released code, whose cache keeps the whole h × h matrix of each position.
    :Taught in: compose.
    """

    @checked
    def __init__(self, capacity: int = 1024, padding: Tensor | list[int] | None = None) -> None:
        """Reserve memory; the arguments are those of :class:`mha.KeyValueCache`."""
        super().__init__(capacity, padding)
        self._pieces = KeyValueCache(capacity)

    @property
    def bytes(self) -> int:
        """How much memory is taken, pieces included: all of it at the first call."""
        return super().bytes + self._pieces.bytes

    def _move(self, rows: Callable[[Tensor], Tensor]) -> None:
        super()._move(rows)
        self._pieces._move(rows)

    def update_pieces(self, before: Tensor, after: Tensor) -> list[Tensor]:
        """Store the pieces of the positions whose keys were appended last, and return those of all positions.

        :param before: of the new keys, for the scores, (b, 2·r + 1, h, n).
        :param after: of the new keys, for the weights, (b, 2·r + 1, h, n).
        """
        self._pieces._length = self._length - before.shape[-1]
        try:
            stored = self._pieces.update(before.flatten(1, 2)[..., None], after.flatten(1, 2)[..., None])
        except ValueError:
            self._length = self._pieces._length  # a refused call leaves the cache as it was
            raise
        return [one[..., 0].unflatten(1, before.shape[1:3]) for one in stored]


Composed = tuple[
    Float[Tensor, "b i h h"], Float[Tensor, "b p h j"]
]  # what mixes heads at one place: of queries, of keys


def check_rank(rank: int, heads: int) -> int:
    """Return the rank; refuse one that no matrix of this size has."""
    if not 1 <= rank <= heads:
        raise ValueError(
            f"rank = {rank} for {heads} heads: a matrix of {heads} × {heads} has rank 1 to {heads}; the paper takes 2"
        )
    return rank


def check_serves(cache: object) -> None:
    """Refuse a cache that would lose how earlier positions mix the heads."""
    if isinstance(cache, KeyValueCache) and not isinstance(cache, ComposedCache):
        raise ValueError(
            f"{type(cache).__name__} keeps keys and values, but this layer also needs how each earlier token mixes the "
            "heads: use layer.new_cache(), which makes a ComposedCache"
        )


@checked
def count_composition(place: "Composition", heads: int, rank: int, rows: tuple[int, int, int, int]) -> dict[str, Part]:
    """Count one place: making the weights of queries and of new keys, then mixing the scores with all keys' pieces.

    :param place: what mixes the heads there.
    :param heads: how many heads it mixes.
    :param rank: of the matrix that each token makes.
    :param rows: how many queries, new keys, keys and scores there are, over the whole batch.
    """
    queries, fresh, keys, scores = rows
    size, piece = place.base.element_size(), (2 * rank + 1) * heads  # of one token: collect, spread, gate
    making = Part(2 * queries * rank * heads**2, size * (queries * (piece + heads**2) + heads**2 + 2 * fresh * piece))
    for side, count in ((place.of_query, queries), (place.of_key, fresh)):
        making = sum((count_linear(one, count) for one in (side.widen, side.narrow, side.gate)), making)
    mixed = 2 * scores + queries * heads**2 + keys * piece
    return {"make": making, "mix": Part(2 * scores * (heads + 2 * rank), size * mixed)}


@checked
def add_compositions(plain: Cost, layer: "ComposableAttention", b: int, i: int, j: int, fresh: int) -> Cost:
    """Add both places to the cost of plain heads.

    :param plain: the cost of the same heads without compositions.
    :param layer: the layer whose compositions are counted.
    :param b: how many sequences are in the batch.
    :param i: how many queries each has.
    :param j: how many keys each has.
    :param fresh: how many of these keys are projected.
    """
    size, scores, parts = layer.W_q.weight.element_size(), b * layer.heads * i * j, dict(plain.parts)
    for name, place in (("before", layer.before), ("after", layer.after)):
        counted = count_composition(place, layer.heads, layer.rank, (b * i, b * fresh, b * j, scores))
        parts |= {f"{step} {name}": part for step, part in counted.items()}
    more = sum(p.numel() for place in (layer.before, layer.after) for p in place.parameters())
    kept = size * b * j * 2 * layer.heads * (2 * layer.rank + 1)
    return replace(
        plain,
        parts=parts,
        parameters=plain.parameters + more,
        weights=plain.weights + size * more,
        cache=plain.cache + kept,
        peak=plain.peak + 2 * size * scores,
    )


Side = tuple[Float[Tensor, "b n r h"], Float[Tensor, "b n r h"], Float[Tensor, "b n h"]]


class HeadWeights(nn.Module):
    """Compute, from a token alone, how its heads are to be mixed: a matrix of low rank, and a gate for each head.

    :Costs: 2·r·h · (width + 2·r·h) + width · h parameters, where r is the rank.
    :Shapes: tokens (b, n, width) give what collects (b, n, r, h), what spreads (b, n, r, h) and gates (b, n, h).
    :Source: Xiao et al. 2024, section 2.2; the sizes and the first numbers are those of its released code.
    :Taught in: compose.
    """

    @checked
    def __init__(self, width: int, heads: int, rank: int) -> None:
        """Make the parameters: what collects is initialized with size 1 and what spreads near 0.

        :param width: of the input, in channels.
        :param heads: how many heads are mixed.
        :param rank: of the matrix that each token makes.
        """
        super().__init__()
        inner, self.shape = 2 * rank * heads, (2, rank, heads)
        self.widen, self.narrow = nn.Linear(width, inner, bias=False), nn.Linear(inner, inner, bias=False)
        self.gate = nn.Linear(width, heads, bias=False)
        nn.init.normal_(self.widen.weight, 0, math.sqrt(2 / (width + inner)))
        nn.init.normal_(self.narrow.weight, 0, 0.02 / (math.sqrt(inner) * (heads + rank)))
        nn.init.normal_(self.gate.weight, 0, 0.05 * math.sqrt(2 / (heads + width)))

    def forward(self, x: Float[Tensor, "b n m"]) -> Side:
        """Collectors have root mean square 1 over the heads; gates lie between −1 and 1.

        :param x: the layer's input.
        """
        collect, spread = self.narrow(F.gelu(self.widen(x))).unflatten(-1, self.shape).unbind(2)
        return F.rms_norm(collect, collect.shape[-1:], eps=1e-6), spread, self.gate(x).tanh()


class Composition(nn.Module):
    """Hold what mixes heads, of scores or of weights: a matrix for all tokens, parts made from queries and from keys.

    :Plain when: ``base`` is the identity, and ``gate`` and what spreads (the second half of ``narrow``) are zero.
    :Shapes: x (b, h, i, j) with matrices (b, i, h, h) and pieces (b, 2·r + 1, h, j) gives (b, h, i, j).
    :Taught in: compose.
    """

    @checked
    def __init__(self, width: int, key_width: int, heads: int, rank: int) -> None:
        """Initialize with the identity and small dynamic parts.

        :param width: of the queries' input, in channels.
        :param key_width: of the keys' input, in channels.
        :param heads: how many heads are mixed.
        :param rank: of the matrix that each token makes.
        """
        super().__init__()
        self.base = nn.Parameter(torch.empty(heads, heads))
        self.of_query, self.of_key = HeadWeights(width, heads, rank), HeadWeights(key_width, heads, rank)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize with the identity; what the tokens add has its own initialization."""
        nn.init.eye_(self.base)

    def matrices(self, query: Float[Tensor, "b i m"]) -> Float[Tensor, "b i h h"]:
        """Make one matrix for each query, the base included; it maps from column to row.

        :param query: the queries' input.
        """
        collect, spread, gate = self.of_query(query)
        return spread.mT @ collect + torch.diag_embed(gate) + self.base.mT

    def pieces(self, key: Float[Tensor, "b j m"]) -> Float[Tensor, "b p h j"]:
        """Make the pieces for each key: what collects, what spreads, the gates.

        :param key: the keys' input.
        """
        collect, spread, gate = self.of_key(key)
        return torch.cat([collect, spread, gate[:, :, None]], 2).permute(0, 2, 3, 1).contiguous()

    def forward(
        self, x: Float[Tensor, "b h i j"], matrices: Float[Tensor, "b i h h"], pieces: Float[Tensor, "b p h j"]
    ) -> Float[Tensor, "b h i j"]:
        """Mix the heads, with gradients: memory grows with all queries times all keys.

        :param x: the scores or weights of all heads.
        :param matrices: what :meth:`matrices` made of the queries.
        :param pieces: what :meth:`pieces` made of the keys, p = 2·r + 1.
        """
        collect, spread, gate = (one.permute(0, 3, 1, 2) for one in unpack(pieces, 1))  # (b, j, p, h)
        heads = x.permute(0, 3, 2, 1)  # (b, j, i, h)
        by_key = heads @ collect.mT @ spread + heads * gate
        return (matrices @ x.transpose(1, 2)).transpose(1, 2) + by_key.permute(0, 3, 2, 1)


class ComposableAttention(Heads):
    """Attend with composed heads (DCMHA): mixed before and after the softmax, by matrices made from the tokens.

    At query i and key j the heads' scores are multiplied by base + (a part from token i) + (a part from token j), and
    so are their weights. The part of a token is a matrix of low rank and a gate for each head, made from the layer's
    input.

    :Plain when: both ``base`` are the identity, and on all four sides ``gate`` and what spreads (the second half of
        ``narrow``) are zero. With zeros there and any ``base`` it is :class:`mha.TalkingAttention`.
    :Changes: ``before`` acts on the scores before the mask, ``after`` on the weights.
    :Costs: with heads h and rank r, 4·(2·r·h·(d_model + 2·r·h) + h·d_model) + 2·h² parameters more and
        4·n²·h·(h + 2·r) FLOPs more. Without gradients memory grows with n; with them, or watched, with n².
    :Shapes: as :class:`mha.MultiHeadAttention`; composed weights need not sum to 1 and may be negative.
    :Raises: ValueError for a rank outside 1 to heads, for a cache that keeps no compositions, where heads are to be
        taken out, and as MultiHeadAttention.
    :Source: Xiao et al. 2024, section 2.2.
    :Differs from the paper: the base is a full matrix that begins as the identity.
    :Differs from the released code: one base in all paths; there training adds it to 2·I, a prompt takes it alone, and
        single steps add it to I. The published models switch it off.
    :Taught in: compose.
    """

    inseparable = "each head mixes in the scores and weights of all others"
    beyond_steps = "the matrices that mix heads come from the layer's input"

    @checked
    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        rank: int = 2,
        d_head: int | None = None,
        kdim: int | None = None,
        vdim: int | None = None,
        bias: bool | str = True,
        dropout: float = 0.0,
        positions: RelativePositions | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Make the layer; the other keywords are those of :class:`mha.Heads`.

        :param rank: of the matrix that each token makes, 1 to heads; 2 unless given.
        """
        like: Any = {"device": device, "dtype": dtype}
        super().__init__(
            d_model, heads, d_head=d_head, kdim=kdim, vdim=vdim, bias=bias, dropout=dropout, positions=positions, **like
        )
        self.rank = check_rank(rank, heads)
        widths = self.W_q.in_features, self.W_k.in_features
        self.before, self.after = (Composition(*widths, heads, rank).to(self.W_q.weight) for _ in range(2))

    def forward(
        self,
        query: Float[Tensor, "b i m"],
        key: Float[Tensor, "b j mk"] | None = None,
        value: Float[Tensor, "b j mv"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        *,
        is_causal: bool = False,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "b i m"]:
        """Project, attend with composed scores and composed weights, merge."""
        check_serves(cache)
        key, value, mask = self._check_call(query, key, value, mask, is_causal, cache)
        q, k, v = self._project(query, key, value, cache)
        heads = self._attend_composed(q, k, v, mask, is_causal, *self.compositions(query, key, cache))
        return self.W_o(core.merge_heads(heads))

    def compositions(self, query: Tensor, key: Tensor, cache: LayerCache | None) -> list[Composed]:
        """Make for both places the matrices of the queries (b, i, h, h) and the pieces of the keys (b, p, h, j).

        :param query: the queries' input, (b, i, d_model).
        :param key: the input of the new keys, (b, n, kdim).
        :param cache: where the pieces of earlier keys are kept; only the new keys count unless given.
        """
        pieces = [place.pieces(key) for place in (self.before, self.after)]
        if isinstance(cache, ComposedCache):
            pieces = cache.update_pieces(*pieces)
        return [(place.matrices(query), one) for place, one in zip((self.before, self.after), pieces, strict=True)]

    def _attend_composed(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        is_causal: bool,
        before: Composed,
        after: Composed,
    ) -> Tensor:
        """Read chunk by chunk where nobody asks for gradients or watches; else with the explicit formula."""
        if self.needs_all(q, k, v, *before, *after):
            composed = Changes(scores=lambda s: self.before(s, *before), weights=lambda w: self.after(w, *after))
            return self._attend(q, k, v, mask, is_causal, changes=composed)
        return self.at_heads(attend_in_chunks(q, k, v, before, after, mask, is_causal=is_causal))

    def needs_all(self, *tensors: Tensor) -> bool:
        """Say whether all weights must exist at once: for gradients, dropout, a watcher, a bias, mixed precision.

        So they must under vmap and in forward mode, which cannot write into buffers, and in a graph that is compiled.
        """
        if torch.compiler.is_compiling():
            return True
        watched = self.at_scores.is_open or self.at_weights.is_open
        changed = watched or getattr(self.positions, "bias", None) is not None
        gradients = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        mixed = len({t.dtype for t in tensors}) > 1  # as autocast leaves them
        transformed = any(map(is_functorch_wrapped_tensor, tensors))
        return changed or gradients or mixed or transformed or (self.training and self.dropout > 0)

    @classmethod
    def plain_settings(cls, layer: Heads) -> dict[str, Any]:
        """Take the paper's rank, or less where there are fewer heads."""
        return layer.settings() | {"rank": min(2, layer.heads)}

    def _become(self, layer: Heads) -> None:
        """Let tokens mix no heads yet, but so that they can learn to."""
        super()._become(layer)
        for name, weight in self.named_parameters():
            if name.endswith(("narrow.weight", "gate.weight")):  # what collects stays: with both zero none would learn
                weight[len(weight) // 2 if "narrow" in name else 0 :] = 0

    @checked
    def cost(self, b: int, i: int, j: int | None = None, *, fresh: int | None = None, stored: bool = True) -> Cost:
        """Count one call of the explicit formula, as :meth:`Heads.cost` does; ``peak`` is that with all weights."""
        plain, j = super().cost(b, i, j, fresh=fresh, stored=True), i if j is None else j
        return add_compositions(plain, self, b, i, j, j if fresh is None else fresh)

    @checked
    def new_cache(self, capacity: int = 1024, padding: Tensor | list[int] | None = None) -> ComposedCache:
        """Make an empty cache for this layer: it also keeps how each position mixes the heads."""
        return ComposedCache(capacity, padding)
