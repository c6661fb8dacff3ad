"""Two ways of pairing channels for rotary positions, and how weights move between them.

Taught in: positions.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from mha.checks import checked, said
from mha.layers.base import Heads
from mha.layers.positions import LAYOUTS, RotaryPositions


@checked
def plain_base(config: Any) -> tuple[float, list[str]]:
    """Read the base of rotary positions from a configuration, and why its angles are not the plain ones, if so."""
    rope = getattr(config, "rope_parameters", None)
    rope = rope or {**(config.rope_scaling or {}), "rope_theta": config.rope_theta}  # as transformers 4 has it
    kind, part = rope.get("rope_type", "default"), rope.get("partial_rotary_factor") or 1.0
    reasons = [f"rope_type = {kind!r} bends the angles; only 'default' is plain"] * (kind != "default")
    reasons += [f"partial_rotary_factor = {part} turns a part of each head only"] * (part != 1.0)
    return float(rope["rope_theta"]), reasons


@checked
@torch.no_grad()
def relayout(layer: Heads, layout: str) -> Heads:
    """Move a layer's weights to the other way of pairing channels; its outputs stay the same.

    Only the rows of ``W_q`` and ``W_k`` change places, head by head: scores do not mind the order of channels as
    long as queries and keys agree. The layer is changed in place and returned.

    Raises: ValueError where the layer has no rotary positions, or the layout is unknown.
    Taught in: positions.
    """
    if not isinstance(layer.positions, RotaryPositions) or layout not in LAYOUTS:
        inside = said(layer.positions)
        raise ValueError(f"the layer's positions are {inside}, layout = {layout!r}: need RotaryPositions, {LAYOUTS}")
    if layout != layer.positions.layout:
        for linear in (layer.W_q, layer.W_k):
            for rows in (linear.weight, linear.bias):
                if rows is not None:
                    rows.copy_(reorder_rows(rows, layer.d_head, layout))
        layer.positions.layout = layout
    return layer


@checked
def reorder_rows(rows: Float[Tensor, "n *m"], d_head: int, layout: str) -> Float[Tensor, "n *m"]:
    """Put the rows of each head into the order of ``layout``, coming from the other layout.

    Shapes: (heads · d_head, …) gives the same shape.
    Raises: ValueError where the rows are not whole heads of even width, or the layout is unknown.
    Taught in: positions.
    """
    if layout not in LAYOUTS or d_head < 1 or rows.ndim == 0 or d_head % 2 or len(rows) % d_head:
        raise ValueError(
            f"rows {tuple(rows.shape)}, d_head = {d_head}, layout = {layout!r}: need whole heads of even width"
        )
    pairs = rows.unflatten(0, (-1, d_head // 2, 2) if layout == "half" else (-1, 2, d_head // 2))
    return pairs.transpose(1, 2).flatten(0, 2)
