"""Heads that overlap more, or less, from one layer of a model to the next.

Taught in: chapter 15.
"""

import copy
from collections.abc import Sequence

from torch import nn

from mha.overlapping import OverlappingAttention
from mha.prune import attention_layers


def overlap_schedule(layers: int, *, first: int = 0, every: int = 1, falling: bool = False) -> list[int]:
    """Say how far each layer of a model overlaps: one channel more ``every`` so many layers, or one less.

    Raises: ValueError where a number is out of range.
    Source: Zhang et al. 2024; ``first=0, every=1`` is what the released code does: the first layer stays plain.
    Taught in: chapter 15.
    """
    if layers < 1 or first < 0 or every < 1:
        raise ValueError(f"layers = {layers}, first = {first}, every = {every}: at least 1, 0 and 1")
    rising = [first + layer // every for layer in range(layers)]
    return rising[::-1] if falling else rising


def overlap_heads(model: nn.Module, overlaps: Sequence[int]) -> nn.Module:
    """Copy a model and let the heads of its layers overlap, layer by layer, as :meth:`OverlappingAttention.from_plain`.

    Raises: ValueError where there is not one overlap for each layer that attends.
    Taught in: chapter 15.
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
