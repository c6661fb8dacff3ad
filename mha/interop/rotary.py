"""Two ways of pairing channels for rotary positions, and how parameters move between them.

:Taught in: positions.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mha.checks import checked, described
from mha.layers.multi_head import Heads
from mha.layers.positions import LAYOUTS, RotaryPositions


@checked
def plain_base(config: Any) -> tuple[float, list[str]]:
    """Read the base of rotary positions from a configuration, and why its angles are not the plain ones, if so.

    :param config: of a model of ``transformers``.
    """
    rope = getattr(config, "rope_parameters", None)
    rope = rope or {**(config.rope_scaling or {}), "rope_theta": config.rope_theta}  # as transformers 4 has it
    kind, part = rope.get("rope_type", "default"), rope.get("partial_rotary_factor") or 1.0
    reasons = [f"rope_type = {kind!r} bends the angles; only 'default' is plain"] * (kind != "default")
    reasons += [f"partial_rotary_factor = {part} rotates a part of each head only"] * (part != 1.0)
    return float(rope["rope_theta"]), reasons


@checked
def rotary_of(config: Any, width: int) -> tuple[RotaryPositions, list[str]]:
    """Read rotary positions from a configuration: plain, bent as "yarn" and "llama3" do, or of a part of each head.

    The second result says why they cannot be had, if so. Angles are computed in float32, as theirs are.

    :param config: of a model of ``transformers``.
    :param width: of a head.
    """
    rope = getattr(config, "rope_parameters", None)
    rope = rope or {**(config.rope_scaling or {}), "rope_theta": config.rope_theta}  # as transformers 4 has it
    kind, part, base = rope.get("rope_type", "default"), rope.get("partial_rotary_factor") or 1.0, rope["rope_theta"]
    if kind == "default" and part == 1.0:
        return RotaryPositions(float(base), precision=torch.float32), []
    if kind == "default":
        return PartialRotary(int(width * part), float(base)), []
    if kind not in BENT or part != 1.0:
        reason = f"rope_type = {kind!r} bends the angles; only 'default' is plain, and of the others {BENT} are known"
        return RotaryPositions(float(base), precision=torch.float32), [reason]
    rates, factor = import_module("transformers.modeling_rope_utils").ROPE_INIT_FUNCTIONS[kind](config, "cpu")
    described = ", ".join(f"{name}={rope[name]}" for name in sorted(rope) if name not in ("rope_theta", "rope_type"))
    return BentRotary(rates, float(factor), float(base), f"{kind} with {described}"), []


BENT = ("llama3", "yarn")


class BentRotary(RotaryPositions):
    """Rotary positions of longer sequences than those of training: slow waves are slowed down further, and all scaled.

    :Shapes: returns (b, h, n, d), where d = 2 · pairs.
    :Raises: ValueError for heads of another width.
    :Taught in: positions.
    """

    rates: Tensor

    @checked
    def __init__(self, rates: Float[Tensor, "pairs"], factor: float, base: float, kind: str) -> None:
        """Take what a configuration's rule has computed.

        :param rates: the angle of one step for each pair of channels, (pairs,).
        :param factor: what all cosines and sines are multiplied by.
        :param base: of the plain positions, shown when the layer is printed.
        :param kind: the name of the rule that made the rates.
        """
        super().__init__(base, precision=torch.float32)
        self.factor, self.kind = factor, kind
        self.register_buffer("rates", rates)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "BentRotary":
        """Let the rates move with the layer, but never to fewer bits: at position 10,000 an angle would be wrong."""
        exact = self.rates
        super()._apply(fn, recurse)
        self.rates = exact.to(self.rates.device)
        return self

    def _waves(self, x: Tensor, start: int) -> tuple[Tensor, Tensor]:
        n, d = x.shape[-2:]
        if d != 2 * len(self.rates):
            raise ValueError(f"heads of width {d} came, but there are angles for {len(self.rates)} pairs of channels")
        rates = self.rates.to("cpu", torch.float32)
        angles = torch.arange(start, start + n, dtype=torch.float32)[:, None] * rates
        return (angles.cos() * self.factor).to(x), (angles.sin() * self.factor).to(x)

    def extra_repr(self) -> str:
        """Show the rule when the layer is printed."""
        return f"{super().extra_repr()}, {self.kind}"


class PartialRotary(RotaryPositions):
    """Rotary positions of the first channels of each head; the others stay as they are.

    :Shapes: returns (b, h, n, d).
    :Raises: ValueError where that many do not exist, or cannot be cut into pairs.
    :Taught in: positions.
    """

    @checked
    def __init__(self, rotated: int, base: float = 10000.0) -> None:
        """Choose the channels and their waves.

        :param rotated: how many channels of each head are rotated, the first ones; even, at least 2.
        :param base: of the longest wave; 10000 unless given.
        """
        super().__init__(base, precision=torch.float32)
        if rotated < 2 or rotated % 2:
            raise ValueError(f"rotated = {rotated}: give an even number of channels, at least 2")
        self.rotated = rotated

    def rotate(self, x: Float[Tensor, "b h n d"], start: int = 0) -> Float[Tensor, "b h n d"]:
        """Rotate the first channels.

        :param x: queries or keys, (b, h, n, d).
        :param start: the position of the first one; 0 unless given.
        """
        if x.shape[-1] < self.rotated:
            raise ValueError(f"heads of width {x.shape[-1]} have no {self.rotated} channels that could be rotated")
        return torch.cat([super().rotate(x[..., : self.rotated], start), x[..., self.rotated :]], -1)

    def extra_repr(self) -> str:
        """Show the settings when the layer is printed."""
        return f"{super().extra_repr()}, rotated={self.rotated}"


@checked
@torch.no_grad()
def relayout(layer: Heads, layout: str) -> Heads:
    """Move a layer's parameters to the other way of pairing channels; its outputs stay the same.

    Only the rows of ``W_q`` and ``W_k`` are reordered, head by head: scores do not mind the order of channels as long
    as queries and keys agree.

    :param layer: a layer with rotary positions; it is changed in place and returned.
    :param layout: "half" or "interleaved".
    :Raises: ValueError where the layer has no rotary positions, or the layout is unknown.
    :Taught in: positions.
    """
    whole = isinstance(layer.positions, RotaryPositions) and not isinstance(layer.positions, PartialRotary)
    plain = type(layer.W_q) is type(layer.W_k) is nn.Linear  # a norm after them would have to move too
    if not isinstance(layer.positions, RotaryPositions) or not whole or not plain or layout not in LAYOUTS:
        inside = described(layer.positions)
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
    """Put the rows of each head into the order of one layout, coming from the other.

    :param rows: of a weight or a bias, (heads · d_head, …).
    :param d_head: the width of a head, even.
    :param layout: the one that comes out, "half" or "interleaved".
    :Shapes: returns (heads · d_head, …).
    :Raises: ValueError where the rows are not whole heads of even width, or the layout is unknown.
    :Taught in: positions.
    """
    if layout not in LAYOUTS or d_head < 1 or rows.ndim == 0 or d_head % 2 or len(rows) % d_head:
        raise ValueError(
            f"rows {tuple(rows.shape)}, d_head = {d_head}, layout = {layout!r}: need whole heads of even width"
        )
    pairs = rows.unflatten(0, (-1, d_head // 2, 2) if layout == "half" else (-1, 2, d_head // 2))
    return pairs.transpose(1, 2).flatten(0, 2)
