"""Several query heads read from the same keys and values, so that a KV cache has less to store.

:Taught in: cache_and_sharing.
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from mha.checks import check_finite, checked
from mha.functional.attention import split_heads
from mha.functional.procrustes import best_rotation, group_heads, likeness, rotate_group
from mha.layers.inputs import check_input
from mha.layers.multi_head import Heads
from mha.layers.positions import RelativePositions
from mha.layers.projections import settled

SHARED = ("W_k.weight", "W_k.bias", "W_v.weight", "W_v.bias")


class GroupedAttention(Heads):
    """Attend with grouped queries (GQA; with one group MQA): each group of query heads shares one KV head.

    Keys and values are never copied for the queries that share them.

    :Plain when: ``kv_heads`` equals ``heads``. With ``kv_heads`` = 1 it is multi-query attention.
    :Changes: ``W_k`` and ``W_v``, which make ``kv_heads`` heads.
    :Costs: 2 · d_model · d · (heads + kv_heads) parameters; a cache of kv_heads / heads of the usual size.
    :Shapes: as :class:`mha.MultiHeadAttention`; masks, scores and weights have all ``heads``, caches ``kv_heads``.
    :Raises: ValueError where ``kv_heads`` does not divide ``heads``, and as MultiHeadAttention.
    :Source: Ainslie et al. 2023, section 2.2; Shazeer 2019 for one KV head (MQA).
    :Taught in: cache_and_sharing.
    """

    inseparable = None

    @checked
    def __init__(
        self,
        d_model: int,
        heads: int,
        kv_heads: int,
        *,
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

        :param kv_heads: how many KV heads there are; it divides ``heads``.
        """
        super().__init__(
            d_model, heads, kv_heads=kv_heads, d_head=d_head, kdim=kdim, vdim=vdim, bias=bias, dropout=dropout,
            positions=positions, device=device, dtype=dtype,
        )  # fmt: skip

    @classmethod
    def plain_settings(cls, layer: Heads) -> dict[str, Any]:
        """Let the heads of a plain layer have keys and values of their own, and share those that are shared already.

        So ``GroupedAttention.from_plain(layer, kv_heads=4)`` also takes a layer with 8 KV heads, or with 2.
        """
        if isinstance(layer, GroupedAttention) and issubclass(cls, type(layer)):
            return layer._keywords() | {"kv_heads": layer.kv_heads, "positions": layer.positions}
        return layer.settings() | {"kv_heads": layer.heads}

    def _other_way(self) -> str:
        return f", or change its number of KV heads with {type(self).__name__}.from_plain(layer, kv_heads=…)"

    def _become(self, layer: Heads) -> None:
        """Let each KV head be the mean of those that its query heads have read until now."""
        given = dict(layer.named_parameters())
        for name, new in self.named_parameters():
            if name in given:
                new.copy_(self._pooled(given[name], layer) if name in SHARED else given[name])
            elif name.endswith("bias"):
                new.zero_()

    def _pooled(self, rows: Tensor, layer: Heads) -> Tensor:
        if self.kv_heads == layer.kv_heads:
            return rows
        read = rows.unflatten(0, (layer.kv_heads, layer.d_head)).repeat_interleave(layer.heads // layer.kv_heads, 0)
        return read.unflatten(0, (self.kv_heads, -1)).mean(1).flatten(0, 1)


@dataclass(frozen=True)
class Aligned:
    """An aligned layer, which heads of the old one each group holds, and how alike a group's heads are.

    ``before`` and ``after`` give the mean cosine of the keys and of the values of two heads that will share; before,
    the groups are the neighbors of the old layer.

    :Taught in: cache_and_sharing.
    """

    layer: Heads
    groups: list[list[int]]
    before: dict[str, float]
    after: dict[str, float]


@checked
@torch.no_grad()
def align_heads(layer: Heads, x: Float[Tensor, "b n m"], kv_heads: int, *, regroup: bool = True) -> Aligned:
    """Align the heads of a plain layer (Procrustes), and put those side by side that are most alike.

    The new layer computes what the old one does. ``GroupedAttention.from_plain(aligned.layer, kv_heads=…)`` then merges
    heads that fit together. Likeness is measured on keys and values before positions rotate them.

    :param layer: a plain layer.
    :param x: what it usually reads, (b, n, d_model), with more rows than a head has channels; random rows say little.
    :param kv_heads: how many groups of heads there will be.
    :param regroup: whether heads may be reordered; otherwise neighbors make a group.
    :Raises: ValueError where ``kv_heads`` does not divide the heads, where heads share keys already, where keys and
        values come from inputs of other widths, where x has fewer rows than a head has channels; for a layer with
        gates, norms or anything else between projections and output, and for positions that rotate a part of each head.
    :Source: Jin et al. 2024, "Align Attention Heads Before Merging Them".
    :Differs from the paper: groups are found from the similarity that the best rotations reach, in closed form, and by
        swaps from several random initial orders; the later gradual change with gates is left out.
    :Differs from the released code: both stop when the summed cosine gains less than 1e-5, but here the best rotations
        so far are kept and compared, so the number of rounds differs: on one layer 41 for keys and 29 for values, where
        the code took 31 and 42.
    :Taught in: cache_and_sharing.
    """
    layer = settled(layer)
    check_alignable(layer, kv_heads)
    check_input("x", x, layer.W_k)
    check_finite(x=x)
    if x.shape[0] * x.shape[1] < layer.d_head:
        raise ValueError(
            f"x of shape {tuple(x.shape)} has {x.shape[0] * x.shape[1]} rows, fewer than a head's {layer.d_head} "
            "channels: on so few any two heads could be rotated into each other. Give more tokens"
        )
    k, v = (split_heads(_shorter(linear(x)), layer.heads)[0] for linear in (layer.W_k, layer.W_v))
    rotary = getattr(layer.positions, "layout", None)
    size = layer.heads // kv_heads
    groups = torch.arange(layer.heads).view(kv_heads, size).tolist()
    before = {"keys": likeness(k, groups), "values": likeness(v, groups)}
    if regroup and 1 < size < layer.heads:
        groups = group_heads(best_rotation(k, rotary)[1] + best_rotation(v, None)[1], size)
    new = copy.deepcopy(layer)
    rotation_k, rotation_v = torch.eye(layer.d_head).to(k).expand(2, layer.heads, -1, -1).clone()
    for group in groups:
        rotation_k[group], rotation_v[group] = rotate_group(k[group], rotary), rotate_group(v[group], None)
    order = [head for group in groups for head in group]
    _write(new, order, rotation_k, rotation_v)
    check_unchanged(layer, new, x)
    after = {"keys": likeness(k @ rotation_k, groups), "values": likeness(v @ rotation_v, groups)}
    return Aligned(new, groups, before, after)


def _shorter(x: Tensor) -> Tensor:
    """Keep no more rows (b, n, c) than there are channels: (1, ≤ c, c), with the same inner products of channels."""
    rows = x.flatten(0, 1)
    return (torch.linalg.qr(rows, mode="r").R if len(rows) > rows.shape[1] else rows)[None]


def _write(layer: Heads, order: list[int], rotation_k: Tensor, rotation_v: Tensor) -> None:
    """Rotate the heads inside the matrices, and put them into their new order."""
    for linear, rotation in ((layer.W_q, rotation_k), (layer.W_k, rotation_k), (layer.W_v, rotation_v)):
        rows = rotation.mT @ linear.weight.unflatten(0, (layer.heads, -1))
        linear.weight.copy_(rows[order].flatten(0, 1))
        if linear.bias is not None:
            linear.bias.copy_((linear.bias.view(layer.heads, 1, -1) @ rotation)[order].flatten())
    columns = layer.W_o.weight.unflatten(1, (layer.heads, -1)).transpose(0, 1) @ rotation_v
    layer.W_o.weight.copy_(columns[order].transpose(0, 1).flatten(1))
    if layer.positions is not None:
        layer.positions = layer.positions.take_heads(order, layer.heads)


def check_alignable(layer: Heads, kv_heads: int) -> None:
    """Refuse what cannot be aligned."""
    if not layer.is_plain and type(layer) is not GroupedAttention:
        raise ValueError(
            f"{type(layer).__name__} does more than project, attend and mix, and what it does beside would not turn "
            "with its heads: align a plain layer (MultiHeadAttention)"
        )
    if layer.kv_heads != layer.heads:
        raise ValueError(f"{layer.heads} heads share {layer.kv_heads} KV heads already: align the plain layer")
    if kv_heads < 1 or layer.heads % kv_heads:
        fits = [h for h in range(1, layer.heads + 1) if layer.heads % h == 0]
        raise ValueError(f"kv_heads = {kv_heads}: {layer.heads} heads make no such equal groups, take one of {fits}")
    widths = layer.W_k.in_features, layer.W_v.in_features
    if set(widths) != {layer.d_model}:
        raise ValueError(
            f"keys and values come from widths {widths}, queries from {layer.d_model}: one x feeds only one"
        )


def check_unchanged(old: Heads, new: Heads, x: Tensor) -> None:
    """Refuse positions that the rotated heads do not commute with: on a few tokens the output differs."""
    few, training = x.flatten(0, 1)[None, :16], old.training
    try:
        right, found = old.eval()(few), new.eval()(few)
    finally:
        old.train(training)
        new.train(training)
    if not torch.allclose(found, right, rtol=0, atol=1e-3 * float(right.abs().max())):
        raise ValueError(
            f"this layer has {type(old.positions).__name__} inside, and keys that are rotated as the heads want it "
            "would not fit them: align a layer without positions, or whose positions rotate whole heads"
        )
