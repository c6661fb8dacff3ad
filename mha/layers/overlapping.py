"""Heads that overlap: each also reads a few channels of the heads next to it.

:Taught in: overlap.
"""

import copy
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha.checks import check_tensor, check_whole, checked
from mha.functional.attention import merge_heads
from mha.layers.base import Heads, attention_layers
from mha.layers.cache import KeyValueCache, MemoryCache
from mha.layers.cost import Cost, Part, count_attention


class OverlappingAttention(Heads):
    """Attend with heads that also read the nearest ``overlap`` channels of both neighbors: queries, keys and values.

    Channels are meant, not words. The first and the last head have one neighbor; zeros stand where the other would be.

    :Plain when: ``overlap`` is 0.
    :Changes: queries, keys and values after the projection; ``W_o`` reads heads · (d + 2 · overlap) channels.
    :Costs: heads · 2 · overlap · d_model weights more in ``W_o``, and 8·n²·heads·overlap operations more to attend; a
        cache stays as it is.
    :Shapes: as :class:`mha.MultiHeadAttention`; ``d_head`` is d + 2 · overlap, what a head reads.
    :Raises: ValueError for an overlap below 0 or wider than a neighbor, and where heads are taken out.
    :Source: Zhang et al. 2024, section 3.
    :Differs from the released code: an overlap beyond the neighbors is refused, and a single head keeps its ``W_o``.
        As there, scores are divided by √d of the head's own channels, not of the wider head.
    :Taught in: overlap.
    """

    @checked
    def __init__(
        self,
        d_model: int,
        heads: int,
        overlap: int = 0,
        *,
        d_head: int | None = None,
        kdim: int | None = None,
        vdim: int | None = None,
        bias: bool | str = True,
        dropout: float = 0.0,
    ) -> None:
        """Make the layer; every other keyword is one of :class:`mha.Heads`, with ``d_head`` the own channels."""
        super().__init__(d_model, heads, d_head=d_head, kdim=kdim, vdim=vdim, bias=bias, dropout=dropout)
        if not 0 <= overlap <= self.d_head:
            raise ValueError(f"overlap = {overlap}: a neighbor has {self.d_head} channels, so take 0 to {self.d_head}")
        self.overlap, self.own = overlap, self.d_head
        self.d_head += 2 * overlap
        self.W_o = nn.Linear(heads * self.d_head, d_model, bias=self.W_o.bias is not None)

    @classmethod
    @checked
    @torch.no_grad()
    def from_plain(cls, layer: Heads, overlap: int = 0) -> "OverlappingAttention":
        """Make the layer from a plain one; what it reads from neighbors gets weights of 0 in ``W_o``."""
        new = cls(**layer.settings(positions=False), overlap=overlap).to(layer.W_q.weight).train(layer.training)
        for name in ("W_q", "W_k", "W_v"):
            getattr(new, name).load_state_dict(getattr(layer, name).state_dict())
        blocks = layer.W_o.weight.unflatten(1, (layer.heads, -1))
        new.W_o.weight.copy_(F.pad(blocks, (overlap, overlap)).flatten(1))
        if layer.W_o.bias is not None:
            new.W_o.bias.copy_(layer.W_o.bias)
        return new

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
        """Project, widen, attend, merge."""
        q, k, v = self.project(query, key, value, mask, is_causal=is_causal, cache=cache)
        return self.merge(self.attend(q, k, v, mask, is_causal=is_causal, scale=1 / math.sqrt(self.own)))

    def project(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        is_causal: bool = False,
        cache: KeyValueCache | MemoryCache | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Make queries, keys and values, and widen each head; a cache stores them before they are widened."""
        q, k, v = super().project(query, key, value, mask, is_causal=is_causal, cache=cache)
        return widen(q, self.overlap), widen(k, self.overlap), widen(v, self.overlap)

    @checked
    def take_heads(self, heads: Iterable[int]) -> "OverlappingAttention":
        """Refuse: a head without its neighbors is another head."""
        raise ValueError(
            f"the heads of OverlappingAttention read {self.overlap} channels of their neighbors: none can be taken out"
        )

    @checked
    def cost(self, b: int, i: int, j: int | None = None, *, fresh: int | None = None, stored: bool = False) -> Cost:
        """Count one call on paper, as :meth:`mha.Heads.cost`."""
        if not self.overlap:
            return super().cost(b, i, j, fresh=fresh, stored=stored)
        plain, j = count_attention(self, b, i, j, fresh, heads=self.heads, kv_heads=self.heads, stored=stored), j or i
        size, scores, made = self.W_q.weight.element_size(), b * self.heads * i * j, b * (i + 2 * j)
        q, k, twice = b * i * self.heads * self.d_head, b * j * self.heads * self.d_head, 2 * scores * stored
        one, narrow = Part(2 * scores * self.d_head, size * (q + k + twice)), self.heads * self.own
        parts = plain.parts | {"widen": Part(0, size * (made * narrow + q + 2 * k)), "scores": one, "read": one}
        before = b * (i + 2 * (j if fresh is None else fresh)) * narrow
        then = q + (twice + q + k if stored else max(b * i * self.d_model, b * self.heads * i))
        return replace(plain, parts=parts, peak=size * (made * (narrow + 2 * self.overlap) + max(before, then)))


def check_neighbors(overlap: int, own: int) -> None:
    """Refuse to reach beyond the neighbors."""
    if overlap > own:
        raise ValueError(f"overlap = {overlap}: the neighbors have {own} channels each, so 0 to {own} can be read")


def widen(x: Float[Tensor, "b h n d"], overlap: int) -> Float[Tensor, "b h n e"]:
    """Give each head ``overlap`` channels of both neighbors, zeros at the ends.

    :Taught in: overlap.
    """
    check_whole(0, overlap=overlap)
    check_tensor(4, x=x)
    if overlap == 0:
        return x
    check_neighbors(overlap, x.shape[-1])
    padded = F.pad(merge_heads(x), (overlap, overlap))
    return padded.unfold(-1, x.shape[-1] + 2 * overlap, x.shape[-1]).transpose(1, 2)


@checked
def overlap_schedule(layers: int, *, first: int = 0, every: int = 1, falling: bool = False) -> list[int]:
    """Say how far each layer of a model overlaps: one channel more ``every`` so many layers, or one less.

    :Raises: ValueError where a number is out of range.
    :Source: Zhang et al. 2024; ``first=0, every=1`` is what the released code does: the first layer stays plain.
    :Taught in: overlap.
    """
    if layers < 1 or first < 0 or every < 1:
        raise ValueError(f"layers = {layers}, first = {first}, every = {every}: at least 1, 0 and 1")
    rising = [first + layer // every for layer in range(layers)]
    return rising[::-1] if falling else rising


@checked
def overlap_heads(model: nn.Module, overlaps: Sequence[int]) -> nn.Module:
    """Copy a model and let the heads of its layers overlap, layer by layer, as :meth:`OverlappingAttention.from_plain`.

    :Raises: ValueError where there is not one overlap for each layer that attends.
    :Taught in: overlap.
    """
    layers = attention_layers(model := copy.deepcopy(model))
    if len(overlaps) != len(layers):
        raise ValueError(f"{len(overlaps)} overlaps for {len(layers)} layers with heads: give one for each")
    for (path, layer), overlap in zip(layers.items(), overlaps, strict=True):
        wider = OverlappingAttention.from_plain(layer, overlap)
        if not path:
            return wider
        model.set_submodule(path, wider)
    return model
