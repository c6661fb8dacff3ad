"""Heads that overlap: each also reads a few channels of the heads next to it.

:Taught in: overlap.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mha.checks import LAYERS, check_tensor, check_whole, checked
from mha.functional import devices
from mha.functional.attention import merge_heads
from mha.layers.cache import LayerCache
from mha.layers.cost import Cost, Part, count_attention
from mha.layers.multi_head import Heads, attention_layers


class OverlappingAttention(Heads):
    """Attend with overlapping heads (MOHSA): each also reads the nearest channels of both neighbors.

    Channels overlap, not tokens. The first and the last head have one neighbor; zeros replace the other one.

    :Plain when: ``overlap`` is 0.
    :Changes: queries, keys and values after the projection; ``W_o`` reads heads · (d + 2 · overlap) channels.
    :Costs: heads · 2 · overlap · d_model parameters more in ``W_o``, and 8·n²·heads·overlap FLOPs more to attend; a
        cache stays as it is.
    :Shapes: as :class:`mha.MultiHeadAttention`; ``d_head`` is d + 2 · overlap, what a head reads.
    :Raises: ValueError for an overlap below 0 or wider than a neighbor, and where heads are taken out.
    :Source: Zhang et al. 2024, section 3.
    :Differs from the released code: an overlap beyond the neighbors is refused, and a single head keeps its ``W_o``.
        As there, scores are divided by √d of the head's own channels, not of the wider head.
    :Taught in: overlap.
    """

    inseparable = "each head reads channels of its neighbors"

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
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Make the layer; the other keywords are those of :class:`mha.Heads`.

        :param overlap: how many channels of each neighbor a head reads, 0 to d; 0 unless given.
        :param d_head: how many channels of its own a head has, d; d_model / heads unless given.
        """
        like: Any = {"device": device, "dtype": dtype}
        super().__init__(
            d_model, heads, d_head=d_head, kdim=kdim, vdim=vdim, bias=bias, dropout=dropout, replaced=("W_o",), **like
        )
        if not 0 <= overlap <= self.d_head:
            raise ValueError(f"overlap = {overlap}: a neighbor has {self.d_head} channels, so take 0 to {self.d_head}")
        self.overlap, self.own = overlap, self.d_head
        self.d_head += 2 * overlap
        self.scale = 1 / math.sqrt(self.own)
        self.W_o = nn.Linear(heads * self.d_head, d_model, bias=self.W_o.bias is not None, **like)

    def _project(self, query: Tensor, key: Tensor, value: Tensor, cache: LayerCache | None) -> tuple[Tensor, ...]:
        """Make queries, keys and values, and widen each head; a cache stores them before they are widened."""
        wider = (widen(x, self.overlap) for x in super()._project(query, key, value, cache))
        return tuple(x.contiguous() if devices.is_card(x) else x for x in wider)  # kernels take no heads that overlap

    @classmethod
    def plain_settings(cls, layer: Heads) -> dict[str, Any]:
        """Let nothing overlap."""
        return layer.settings(positions=False)

    def _become(self, layer: Heads) -> None:
        """Let ``W_o`` multiply what is read from neighbors by 0."""
        for name in ("W_q", "W_k", "W_v"):
            getattr(self, name).load_state_dict(getattr(layer, name).state_dict())
        blocks = layer.W_o.weight.unflatten(1, (layer.heads, -1))
        self.W_o.weight.copy_(F.pad(blocks, (self.overlap, self.overlap)).flatten(1))
        if layer.W_o.bias is not None:
            self.W_o.bias.copy_(layer.W_o.bias)

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
    """Give each head channels of both neighbors, zeros at the ends.

    :param x: queries, keys or values of all heads.
    :param overlap: how many channels of each neighbor, 0 to d.
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

    :param layers: how many layers the model has.
    :param first: the overlap of the first layer, in channels; 0 unless given.
    :param every: after how many layers the overlap is one channel larger; 1 unless given.
    :param falling: whether the order is reversed, so that the last layer has ``first``.
    :Raises: ValueError where a number is out of range.
    :Source: Zhang et al. 2024; ``first=0, every=1`` is what the released code does: the first layer stays plain.
    :Taught in: overlap.
    """
    if layers < 1 or first < 0 or every < 1:
        raise ValueError(f"layers = {layers}, first = {first}, every = {every}: at least 1, 0 and 1")
    check_whole(1, LAYERS, layers=layers)
    rising = [first + layer // every for layer in range(layers)]
    return rising[::-1] if falling else rising


@checked
def overlap_heads(model: nn.Module, overlaps: Sequence[int]) -> nn.Module:
    """Copy a model and let the heads of its layers overlap, layer by layer, as :meth:`OverlappingAttention.from_plain`.

    :param model: a model with plain layers; it stays as it is.
    :param overlaps: in channels, one for each layer with heads, first layer first.
    :Raises: ValueError where there is not one overlap for each layer that attends.
    :Taught in: overlap.
    """
    layers = attention_layers(model := copy.deepcopy(model))
    if len(overlaps) != len(layers):
        raise ValueError(f"{len(overlaps)} overlaps for {len(layers)} layers with heads: give one for each")
    for (path, layer), overlap in zip(layers.items(), overlaps, strict=True):
        wider = OverlappingAttention.from_plain(layer, overlap=overlap)
        if not path:
            return wider
        model.set_submodule(path, wider)
    return model
