"""A smaller layer from some heads of a larger one: the projections are really cut."""

import copy
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from mha._taps import Tap


@torch.no_grad()
def take_heads(layer: nn.Module, heads: Iterable[int]) -> nn.Module:
    """Copy a layer with only some of its heads: fewer rows of ``W_q W_k W_v``, fewer columns of ``W_o``."""
    chosen = check_choice(layer, heads)
    group = layer.heads // layer.kv_heads
    shared = sorted({h // group for h in chosen})
    new = copy.deepcopy(layer)
    new.heads, new.kv_heads = len(chosen), len(shared)
    new.at_scores, new.at_weights, new.at_heads = Tap(), Tap(), Tap()  # who watches the old layer watches only that
    for name, kept in (("W_q", chosen), ("W_k", shared), ("W_v", shared)):
        setattr(new, name, _cut(getattr(layer, name), _channels(layer, kept), 0))
    new.W_o = _cut(layer.W_o, _channels(layer, chosen), 1)
    if layer.positions is not None:
        new.positions = layer.positions.take(chosen, layer.heads)
    return new


def check_choice(layer: nn.Module, heads: Iterable[int]) -> list[int]:
    """Return the chosen heads in the layer's order; refuse what cannot be taken out."""
    chosen, name = list(heads), type(layer).__name__
    if not layer.heads_apart:
        raise ValueError(f"{name} does not say that its heads can be computed apart: none can be taken out")
    if not chosen or len(set(chosen)) < len(chosen) or not set(chosen) <= set(range(layer.heads)):
        raise ValueError(
            f"heads {chosen} of a layer with {layer.heads}: give at least one, each once, from 0 to {layer.heads - 1}"
        )
    group = layer.heads // layer.kv_heads
    groups = [list(range(start, start + group)) for start in range(0, layer.heads, group)]
    torn = [one for one in groups if 0 < len(set(one) & set(chosen)) < group]
    if torn:
        raise ValueError(f"{name} shares keys within the groups {groups}: take or leave all of {torn[0]} together")
    return sorted(chosen)


def _channels(layer: nn.Module, heads: list[int]) -> Tensor:
    """List the channels of some heads."""
    return (torch.tensor(heads)[:, None] * layer.d_head + torch.arange(layer.d_head)).flatten()


def _cut(linear: nn.Linear, channels: Tensor, axis: int) -> nn.Linear:
    """Keep some output channels (axis 0) or input channels (axis 1) of a projection."""
    weight = linear.weight.index_select(axis, channels.to(linear.weight.device))
    new = nn.Linear(weight.shape[1], weight.shape[0], bias=linear.bias is not None, device="meta")  # draws no numbers
    new.weight = nn.Parameter(weight, requires_grad=linear.weight.requires_grad)
    if linear.bias is not None:
        bias = linear.bias if axis == 1 else linear.bias[channels.to(linear.bias.device)]
        new.bias = nn.Parameter(bias.clone(), requires_grad=linear.bias.requires_grad)
    return new.train(linear.training)
