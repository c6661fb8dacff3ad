"""Heads that are recombined anew for every query and every key.

Taught in: chapter 17.
"""

from collections.abc import Iterable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha._composed import ComposedCache, add_compositions, check_rank, check_serves
from mha._count import Cost
from mha.attention import Heads
from mha.cache import KeyValueCache, MemoryCache
from mha.composing import Composition, attend_in_chunks
from mha.masks import check_mask

__all__ = ["ComposableAttention", "ComposedCache"]


class ComposableAttention(Heads):
    """Attend with heads that are mixed before and after the softmax, by weights made from the words themselves.

    At query i and key j the heads' scores are multiplied by base + (what word i says) + (what word j says), and so are
    their weights. Each word speaks through a matrix of low rank and a gate for each head, made from the layer's input.

    Plain when: both ``base`` are the identity, and on all four sides ``gate`` and what spreads (the second half of
        ``narrow``) are zero. With zeros there and any ``base`` it is :class:`mha.TalkingAttention`.
    Changes: ``before`` acts on the scores before the mask, ``after`` on the weights.
    Costs: with heads h and rank r, 4·(2·r·h·(d_model + 2·r·h) + h·d_model) + 2·h² weights more and
        4·n²·h·(h + 2·r) operations more. Without gradients memory grows with n; with them, or watched, with n².
    Shapes: as :class:`mha.MultiHeadAttention`; composed weights need not sum to 1 and may be negative.
    Raises: ValueError for a rank outside 1 to heads, for a cache that keeps no compositions, where heads are to be
        taken out, and as MultiHeadAttention.
    Source: Xiao et al. 2024, section 2.2.
    Differs from the paper: the base is a full matrix that begins as the identity.
    Differs from the released code: one base in all paths; there training adds it to 2·I, a prompt takes it alone, and
        single steps add it to I. The published models switch it off.
    Taught in: chapter 17.
    """

    def __init__(self, d_model: int, heads: int, *, rank: int = 2, positions: nn.Module | None = None, **sizes) -> None:
        """Make the layer; ``rank`` is that of each word's matrix, every other keyword is one of :class:`mha.Heads`."""
        super().__init__(d_model, heads, **sizes)
        self.positions, self.rank = positions, check_rank(rank, heads)
        widths = self.W_q.in_features, self.W_k.in_features
        self.before, self.after = Composition(*widths, heads, rank), Composition(*widths, heads, rank)

    @classmethod
    @torch.no_grad()
    def from_plain(cls, layer: Heads, *, rank: int | None = None) -> "ComposableAttention":
        """Make the layer that does what a plain one does: words do not mix heads yet, but can learn to."""
        rank = min(2, layer.heads) if rank is None else rank
        sizes = {"d_head": layer.d_head, "kdim": layer.W_k.in_features, "vdim": layer.W_v.in_features, "rank": rank}
        bias = "".join(letter for letter in "qkvo" if getattr(layer, f"W_{letter}").bias is not None)
        how = {"positions": layer.positions, "bias": bias, "dropout": layer.dropout}
        new = cls(layer.d_model, layer.heads, **sizes, **how).to(layer.W_q.weight)
        for name, weight in layer.named_parameters():
            new.get_parameter(name).copy_(weight)
        for name, weight in new.named_parameters():
            if name.endswith(("narrow.weight", "gate.weight")):  # what collects stays: with both zero none would learn
                weight[len(weight) // 2 if "narrow" in name else 0 :] = 0
        return new.train(layer.training)

    def forward(
        self,
        query: Float[Tensor, "b i m"],
        key: Float[Tensor, "b j mk"] | None = None,
        value: Float[Tensor, "b j mv"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        *,
        is_causal: bool = False,
        cache: KeyValueCache | MemoryCache | None = None,
    ) -> Float[Tensor, "b i m"]:
        """Project, attend with composed scores and composed weights, merge."""
        check_serves(cache)
        q, k, v = self.project(query, key, value, mask, is_causal=is_causal, cache=cache)
        before, after = self.compositions(query, query if key is None else key, cache)
        return self.merge(self.attend(q, k, v, mask, before=before, after=after, is_causal=is_causal))

    def compositions(self, query: Tensor, key: Tensor, cache: KeyValueCache | MemoryCache | None) -> list[tuple]:
        """Make for both places the matrices of the queries (b, i, h, h) and the pieces of the keys (b, p, h, j)."""
        pieces = [place.pieces(key) for place in (self.before, self.after)]
        if isinstance(cache, ComposedCache):
            pieces = cache.append_pieces(*pieces)
        return [(place.matrices(query), one) for place, one in zip((self.before, self.after), pieces, strict=True)]

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, before: tuple, after: tuple, **how
    ) -> Tensor:
        """Read chunk by chunk where nobody asks for gradients or watches; else with the explicit formula."""
        edits = {"edit_scores": lambda s: self.before(s, *before), "edit_weights": lambda w: self.after(w, *after)}
        if self.needs_all(q, k, v, *before, *after):
            return super().attend(q, k, v, mask, **edits, **how)
        if mask is not None:
            check_mask(mask, (*q.shape[:3], k.shape[2]), q.device)
        return self.at_heads(attend_in_chunks(q, k, v, before, after, mask, **how))

    def needs_all(self, *tensors: Tensor) -> bool:
        """Say whether all weights must exist at once: for gradients, for dropout, for who watches, for a bias."""
        changed = self.at_scores.is_open or self.at_weights.is_open or getattr(self.positions, "bias", None) is not None
        gradients = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        return changed or gradients or (self.training and self.dropout > 0)

    def take(self, heads: Iterable[int]) -> "ComposableAttention":
        """Refuse: each head uses the scores and weights of all others."""
        raise ValueError(
            f"heads {list(heads)} of ComposableAttention cannot be taken out: each head mixes in the scores and "
            "weights of all others. Silence them with mha.edit, or train without them"
        )

    def cost(self, b: int, i: int, j: int | None = None, *, fresh: int | None = None, stored: bool = True) -> Cost:
        """Count one call of the explicit formula, as :meth:`Heads.cost` does; ``peak`` is that with all weights."""
        plain, j = super().cost(b, i, j, fresh=fresh, stored=True), i if j is None else j
        return add_compositions(plain, self, b, i, j, j if fresh is None else fresh)

    def new_cache(self, capacity: int = 1024, filling: Tensor | list[int] | None = None) -> ComposedCache:
        """Make an empty cache for this layer: it also keeps how each position mixes the heads."""
        return ComposedCache(capacity, filling)
