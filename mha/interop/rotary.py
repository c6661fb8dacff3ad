"""Two ways of pairing channels for rotary positions, and how parameters move between them.

:Taught in: positions.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mha.checks import checked, described
from mha.functional.masks import past_mask
from mha.layers.multi_head import Heads
from mha.layers.positions import LAYOUTS, RelativePositions, RotaryPositions
from mha.layers.projections import check_own_weights

MOVING = ("dynamic", "longrope")  # their angles depend on the length of the sequence


@checked
def kind_of_layer(module: Any) -> str | None:
    """Say of which kind a layer is in a model whose layers have different angles; None where all have the same.

    :param module: an attention of a model of ``transformers``.
    """
    kinds, number = getattr(module.config, "layer_types", None), getattr(module, "layer_idx", None)
    told = getattr(module, "layer_type", None) or (kinds[number] if kinds and isinstance(number, int) else None)
    return told if told in (getattr(module.config, "rope_parameters", None) or {}) else None


@checked
def rotary_classes(module: nn.Module) -> list[Any]:
    """Make the objects that compute angles in the code which a module comes from, one of each class.

    :param module: an attention of a model of ``transformers``.
    """
    made = []
    for name, kind in vars(sys.modules[type(module).__module__]).items():
        if name.endswith("RotaryEmbedding") and isinstance(kind, type):
            with contextlib.suppress(Exception):  # that of another tower wants another configuration
                made.append(kind(config=module.config))
    return made


@checked
def model_angles(module: nn.Module) -> tuple[Tensor, float] | None:
    """Ask the code that a module comes from for its angles: of one step for each pair of channels, and their factor.

    A configuration may say more than the code reads: Llama's rotates whole heads whatever its
    ``partial_rotary_factor``. None where the code has no rotary class of its own.

    :param module: an attention of a model of ``transformers``.
    """
    kind = kind_of_layer(module)
    before = "" if kind is None else f"{kind}_"
    for rotary in rotary_classes(module):
        rates = getattr(rotary, f"{before}inv_freq", None)
        if isinstance(rates, Tensor):
            return rates.detach().float(), float(getattr(rotary, f"{before}attention_scaling", 1.0))
    return None


@checked
def rotary_of(module: Any, width: int) -> tuple[RotaryPositions, list[str]]:
    """Make the rotary positions of a module: plain, with bent angles, or of a part of each head.

    The second result says why a layer alone cannot have them, if so: then only the model can pass the right angles.
    Angles are computed in float32, as theirs are.

    :param module: an attention of a model of ``transformers``.
    :param width: of a head.
    """
    config = module.config
    rope = getattr(config, "rope_parameters", None) or {}
    rope = rope.get(kind_of_layer(module), rope)
    if not rope:  # as transformers 4 has it
        rope = {**(getattr(config, "rope_scaling", None) or {}), "rope_theta": getattr(config, "rope_theta", 10000.0)}
    kind, base = rope.get("rope_type", "default"), float(rope.get("rope_theta", 10000.0))
    found = model_angles(module)
    if found is None:
        return RotaryPositions(base, precision=torch.float32), ["its code has no rotary positions that could be asked"]
    rates, factor = found
    if kind == "default" and factor == 1.0:
        whole = 2 * len(rates) == width
        return RotaryPositions(base, precision=torch.float32) if whole else PartialRotary(2 * len(rates), base), []
    told = ", ".join(f"{name}={rope[name]}" for name in sorted(rope) if name not in ("rope_theta", "rope_type"))
    reason = f"rope_type = {kind!r} makes angles that depend on the length of the sequence"
    return BentRotary(rates, factor, base, f"{kind} with {told}"), [reason] * (kind in MOVING)


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

    def rotate(self, x: Float[Tensor, "b h n d"], start: int = 0) -> Float[Tensor, "b h n d"]:
        """Rotate as many channels as there are angles for, the first ones.

        :param x: queries or keys, (b, h, n, d).
        :param start: the position of the first one; 0 unless given.
        """
        rotated = 2 * len(self.rates)
        return torch.cat([super().rotate(x[..., :rotated], start), x[..., rotated:]], -1)

    def _waves(self, x: Tensor, start: int) -> tuple[Tensor, Tensor]:
        n, d = x.shape[-2:]
        if d != 2 * len(self.rates):
            raise ValueError(f"heads of width {d} came, but there are angles for {len(self.rates)} pairs of channels")
        rates = self.rates.to(x.device, torch.float32)
        angles = torch.arange(start, start + n, dtype=torch.float32, device=x.device)[:, None] * rates
        return (angles.cos() * self.factor).to(x.dtype), (angles.sin() * self.factor).to(x.dtype)

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
    check_own_weights(layer)
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


class GivenBias(RelativePositions):
    """A bias for each pair of positions that the model computes, as T5's and MPNet's do: it is added to the scores.

    :Costs: no parameters; on a CPU the explicit formula runs, on a GPU the fused kernel takes the bias as a mask.
    :Shapes: scores (b, h, i, j); i and j may come from two sequences.
    :Raises: ValueError where no bias came from a model.
    :Taught in: positions.
    """

    across = True

    @checked
    def __init__(self, chosen: list[int] | None = None) -> None:
        """Choose the heads whose biases are read.

        :param chosen: their numbers in the model's bias; all unless given.
        """
        super().__init__()
        self.chosen, self.given = chosen, None

    @checked
    def take_heads(self, chosen: list[int], heads: int) -> "GivenBias":
        """Let each chosen head keep its bias."""
        before = list(range(heads)) if self.chosen is None else self.chosen
        return GivenBias([before[number] for number in chosen])

    given: Any

    def bias(self, scores: Float[Tensor, "b h i j"]) -> Float[Tensor, "b h i j"]:
        """Add what the model passed in this call.

        :param scores: before the mask.
        """
        return scores + self._passed(scores.shape[-1])

    def _passed(self, j: int) -> Tensor:
        """Return what the model passed for so many keys, for the heads that are left."""
        if self.given is None:
            raise ValueError("the bias of this layer comes from the model that it was swapped into: call that model")
        given: Tensor = self.given(j) if callable(self.given) else self.given
        return given if self.chosen is None else given[:, self.chosen]

    def _added(self, q: Tensor, j: int, *, is_causal: bool) -> Tensor:
        """Return what is added to the scores, in the type of the queries; −inf hides what comes after a query."""
        bias = self._passed(j).to(q.dtype)
        return bias.masked_fill(~past_mask(q.shape[2], j, q.device), -torch.inf) if is_causal else bias

    def extra_repr(self) -> str:
        """Show which heads are left when the layer is printed."""
        return "" if self.chosen is None else f"chosen={self.chosen}"


class GivenAngles(RotaryPositions):
    """Rotary positions whose angles the model passes: cosines and sines of each token of each sequence."""

    @checked
    def __init__(self, cos: Tensor, sin: Tensor, layout: str) -> None:
        """Take the waves of one call.

        :param cos: cosines, (b, n, pairs).
        :param sin: sines, (b, n, pairs).
        :param layout: which channels are a pair, "half" or "interleaved".
        """
        super().__init__(layout=layout)
        self.waves = cos[:, None], sin[:, None]

    def rotate(self, x: Float[Tensor, "b h n d"], start: int = 0) -> Float[Tensor, "b h n d"]:
        """Rotate as many channels as there are angles for, the first ones.

        :param x: queries or keys, (b, h, n, d).
        :param start: without effect: the angles are given.
        """
        rotated = 2 * self.waves[0].shape[-1]
        return torch.cat([super().rotate(x[..., :rotated], start), x[..., rotated:]], -1)

    def _waves(self, x: Tensor, start: int) -> tuple[Tensor, Tensor]:
        cos, sin = self.waves
        return cos.to(x), sin.to(x)


@checked
@contextmanager
def turned_by(layer: Heads, angles: Any, bias: Any = None) -> Iterator[None]:
    """Let the model's angles replace the layer's own for one call, and its bias be added to the scores.

    :param layer: a layer of ours; without rotary positions angles change nothing.
    :param angles: a pair (cos, sin), (b, n, …) each, or complex numbers, (b, n, pairs); None changes nothing.
    :param bias: for each pair of positions, (1 or b, h, i, j), or a function that makes it for so many keys; it is read
        by a layer with :class:`GivenBias`.
    """
    if isinstance(layer.positions, GivenBias):
        layer.positions.given = bias
        try:
            yield
        finally:
            layer.positions.given = None
        return
    if angles is None or not isinstance(layer.positions, RotaryPositions):
        yield
        return
    own, pairs = layer.positions, rotated_channels(layer.positions, getattr(layer, "d_rotary", layer.d_head)) // 2
    if isinstance(angles, Tensor):  # DeepSeek-V2 passes complex numbers, one for each pair
        cos, sin = angles.real, angles.imag
    else:  # most list every angle twice, once for each half of a head; gpt-oss writes it once
        cos, sin = (wave[..., :pairs] for wave in angles)
    layer.positions = GivenAngles(cos, sin, own.layout)
    try:
        yield
    finally:
        layer.positions = own


@checked
def rotated_channels(positions: nn.Module | None, width: int) -> int:
    """Count the channels of a head that positions rotate.

    :param positions: what acts inside the layer, or None.
    :param width: of a head.
    """
    if isinstance(positions, PartialRotary):
        return positions.rotated
    if isinstance(positions, BentRotary):
        return 2 * len(positions.rates)
    return width if isinstance(positions, RotaryPositions) else 0
