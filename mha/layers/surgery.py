"""Taking heads out of a layer: which ones can be removed, and cutting the matrices.

:Taught in: pruning_heads.
"""

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from mha.checks import check_whole


@runtime_checkable
class Divided(Protocol):
    """A layer, as far as one must know it to divide its heads."""

    heads: int
    kv_heads: int
    d_head: int
    inseparable: str | None


def check_choice(layer: Divided, heads: Iterable[int]) -> list[int]:
    """Return the chosen heads in the layer's order; refuse what cannot be taken out."""
    name = type(layer).__name__
    if layer.inseparable is not None:
        shown = list(heads) if isinstance(heads, Iterable) else heads
        raise ValueError(
            f"heads {shown} of {name} cannot be taken out: {layer.inseparable}. Silence them with mha.edit, or take "
            "heads of the plain layer, and then from_plain"
        )
    if "forward" in vars(layer):
        raise ValueError(
            f"the forward of this {name} was replaced, as offloading does, and a smaller layer would go on with "
            "the old one: take that back first (remove_hook_from_module of accelerate, or del layer.forward)"
        )
    chosen = head_numbers(layer.heads, heads)
    group = layer.heads // layer.kv_heads
    groups = [list(range(start, start + group)) for start in range(0, layer.heads, group)]
    torn = [one for one in groups if 0 < len(set(one) & set(chosen)) < group]
    if torn:
        raise ValueError(
            f"{name} shares keys within the groups {groups}: take or leave all of {torn[0]} together. The functions of "
            "mha.analysis count groups in the place of heads with groups=True"
        )
    return chosen


def head_numbers(number: int, heads: Iterable[int], *, some: bool = True, name: str = "heads") -> list[int]:
    """Return the numbers of heads in the layer's order; refuse what is none of its ``number`` heads, and none where
    ``some`` are needed.

    :param number: how many heads there are.
    :param heads: the chosen numbers, each once.
    :param some: whether at least one is needed.
    :param name: what an error calls them.
    """
    if isinstance(heads, int | str) or not isinstance(heads, Iterable):
        raise TypeError(f"{name} = {heads!r}: give their numbers in a list")
    chosen = list(heads)
    check_whole(None, **{f"{name}[{n}]": head for n, head in enumerate(chosen)})
    if len(set(chosen)) < len(chosen) or not set(chosen) <= set(range(number)) or (some and not chosen):
        least = "at least one, " if some else ""
        raise ValueError(f"{name} {chosen} of a layer with {number}: give {least}each once, from 0 to {number - 1}")
    return sorted(chosen)


def heads_in(layer: Divided, groups: Iterable[int], *, some: bool = True) -> list[int]:
    """List the query heads of some groups; a group is a KV head with the query heads that share it.

    :param layer: the layer; where no heads share keys, every head is a group.
    :param groups: the numbers of the groups, each once.
    :param some: whether at least one is needed.
    """
    size = layer.heads // layer.kv_heads
    chosen = head_numbers(layer.kv_heads, groups, some=some, name="groups")
    return [head for group in chosen for head in range(group * size, (group + 1) * size)]


def rows_of(heads: list[int], width: int) -> Tensor:
    """List the rows, ``width`` for each, of some heads.

    :param heads: the numbers of heads.
    :param width: how many rows each head has.
    """
    return (torch.tensor(heads)[:, None] * width + torch.arange(width)).flatten()


def cut_linear(linear: nn.Linear, channels: Tensor, axis: int) -> nn.Linear:
    """Keep some output channels (axis 0) or input channels (axis 1) of a projection.

    :param linear: the projection; it stays as it is.
    :param channels: the numbers of the channels that stay.
    :param axis: 0 for output channels, 1 for input channels.
    """
    weight = linear.weight.index_select(axis, channels.to(linear.weight.device))
    new = nn.Linear(weight.shape[1], weight.shape[0], bias=linear.bias is not None, device="meta")  # draws no numbers
    new.weight = nn.Parameter(weight, requires_grad=linear.weight.requires_grad)
    if linear.bias is not None:
        bias = linear.bias if axis == 1 else linear.bias[channels.to(linear.bias.device)]
        new.bias = nn.Parameter(bias.clone(), requires_grad=linear.bias.requires_grad)
    return new.train(linear.training)


def cut_part(part: Any, chosen: list[int], heads: int) -> Any:
    """Keep what belongs to some heads of a part that has equally many rows for each: a projection, numbers, a list, or
    a module that knows how (``take_heads``).

    :param part: the part, or None.
    :param chosen: the numbers of the heads that stay.
    :param heads: how many there are now.
    """
    if part is None:
        return None
    if isinstance(part, list):
        return [part[head] for head in chosen]
    if hasattr(part, "take_heads"):
        return part.take_heads(chosen, heads)
    if isinstance(part, nn.Linear):
        return cut_linear(part, rows_of(chosen, part.out_features // heads), 0)
    rows = part.detach()[rows_of(chosen, len(part) // heads).to(part.device)].clone()
    return nn.Parameter(rows, requires_grad=part.requires_grad) if isinstance(part, nn.Parameter) else rows
