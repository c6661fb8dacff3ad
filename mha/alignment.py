"""Make the heads of a trained layer look alike, without changing what the layer does, before heads are merged.

A head may be turned: values by any rotation or reflection that ``W_o`` turns back, and keys by any that the queries
follow. With rotary positions a key may be turned only within its pairs of channels, because anything else would not
commute with the angle of its place. Heads may also change places. Averages of heads that were turned towards each other
lose less.

Taught in: chapter 12.
"""

import copy
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from mha._turning import best_turn, group_heads, likeness, turn_group
from mha.attention import Heads
from mha.core import split_heads

__all__ = ["Aligned", "align_heads"]


@dataclass(frozen=True)
class Aligned:
    """An aligned layer, which heads of the old one each group holds, and how alike a group's heads are.

    ``before`` and ``after`` give the mean cosine of the keys and of the values of two heads that will share; before,
    the groups are the neighbors of the old layer.

    Taught in: chapter 12.
    """

    layer: Heads
    groups: list[list[int]]
    before: dict[str, float]
    after: dict[str, float]


@torch.no_grad()
def align_heads(layer: Heads, x: Float[Tensor, "b n m"], kv_heads: int, *, regroup: bool = True) -> Aligned:
    """Turn the heads of a plain layer towards each other, and put those side by side that are most alike.

    The new layer computes what the old one does. ``GroupedAttention.from_plain(aligned.layer, kv_heads)`` then merges
    heads that fit together. ``x`` is what the layer usually reads: likeness is measured on its keys and values, before
    positions turn them. With ``regroup=False`` the heads keep their places.

    Shapes: x (b, n, d_model), with more rows than a head has channels; random rows say little.
    Raises: ValueError where ``kv_heads`` does not divide the heads, where heads share keys already, where keys and
        values come from inputs of other widths.
    Source: Jin et al. 2024, "Align Attention Heads Before Merging Them".
    Differs from the paper: groups are found from the likeness that the best turns reach, in closed form, and by swaps
        from several random starts; the later gradual change with gates is left out.
    Taught in: chapter 12.
    """
    _check(layer, kv_heads)
    k, v = (split_heads(linear(x), layer.heads).transpose(0, 1).flatten(1, 2) for linear in (layer.W_k, layer.W_v))
    rotary = getattr(layer.positions, "layout", None)
    size = layer.heads // kv_heads
    groups = torch.arange(layer.heads).view(kv_heads, size).tolist()
    before = {"keys": likeness(k, groups), "values": likeness(v, groups)}
    if regroup and 1 < size < layer.heads:
        groups = group_heads(best_turn(k, rotary)[1] + best_turn(v, None)[1], size)
    new = copy.deepcopy(layer)
    turn_k, turn_v = torch.eye(layer.d_head).to(k).expand(2, layer.heads, -1, -1).clone()
    for group in groups:
        turn_k[group], turn_v[group] = turn_group(k[group], rotary), turn_group(v[group], None)
    order = [head for group in groups for head in group]
    _write(new, order, turn_k, turn_v)
    after = {"keys": likeness(k @ turn_k, groups), "values": likeness(v @ turn_v, groups)}
    return Aligned(new, groups, before, after)


def _write(layer: Heads, order: list[int], turn_k: Tensor, turn_v: Tensor) -> None:
    """Turn the heads inside the weights, and put them into their new order."""
    for linear, turn in ((layer.W_q, turn_k), (layer.W_k, turn_k), (layer.W_v, turn_v)):
        rows = turn.mT @ linear.weight.unflatten(0, (layer.heads, -1))
        linear.weight.copy_(rows[order].flatten(0, 1))
        if linear.bias is not None:
            linear.bias.copy_((linear.bias.view(layer.heads, 1, -1) @ turn)[order].flatten())
    columns = layer.W_o.weight.unflatten(1, (layer.heads, -1)).transpose(0, 1) @ turn_v
    layer.W_o.weight.copy_(columns[order].transpose(0, 1).flatten(1))
    if layer.positions is not None:
        layer.positions = layer.positions.take(order, layer.heads)


def _check(layer: Heads, kv_heads: int) -> None:
    """Refuse what cannot be aligned."""
    if layer.kv_heads != layer.heads:
        raise ValueError(f"{layer.heads} heads share {layer.kv_heads} key heads already: align the plain layer")
    if kv_heads < 1 or layer.heads % kv_heads:
        fits = [h for h in range(1, layer.heads + 1) if layer.heads % h == 0]
        raise ValueError(f"{layer.heads} heads cannot be merged into {kv_heads} equal groups: take one of {fits}")
    widths = layer.W_k.in_features, layer.W_v.in_features
    if set(widths) != {layer.d_model}:
        raise ValueError(
            f"keys and values come from widths {widths}, queries from {layer.d_model}: one x feeds only one"
        )
