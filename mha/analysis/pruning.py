"""A model without some of its heads.

:Taught in: pruning_heads.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from mha.checks import check_flag, check_tensor, check_whole, checked
from mha.layers.hooks import edit
from mha.layers.multi_head import Heads, attention_layers
from mha.layers.surgery import head_numbers, heads_in


@checked
def top_heads(scores: Mapping[str, Tensor], count: int, *, at_least: int = 1) -> dict[str, list[int]]:
    """Choose the heads with the highest scores of the whole model, and some in each layer.

    From scores of groups it chooses groups.

    :param scores: one number for each head, (h,), or for each group, (g,), by the path of its layer.
    :param count: how many heads are chosen in the whole model.
    :param at_least: how many of them each layer has in any case; 1 unless given.
    :Raises: ValueError where the model has fewer heads, or the layers need more.
    :Taught in: pruning_heads.
    """
    check_whole(0, count=count, at_least=at_least)
    for path, score in scores.items():
        check_tensor(1, **{f"scores[{path!r}]": score})
        if bool(score.isnan().any()):
            raise ValueError(f"scores[{path!r}] = {score.tolist()}: NaN is neither high nor low")
    sizes = [len(score) for score in scores.values()]
    needed = sum(min(at_least, size) for size in sizes)
    if not needed <= count <= sum(sizes):
        raise ValueError(f"count = {count}: with at least {at_least} in each layer take {needed} to {sum(sizes)} heads")
    order = {path: score.argsort(descending=True, stable=True).tolist() for path, score in scores.items()}
    chosen = {(path, h) for path, heads in order.items() for h in heads[:at_least]}
    rest = [(float(scores[path][h]), path, h) for path in order for h in order[path] if (path, h) not in chosen]
    rest.sort(key=lambda one: -one[0])
    chosen |= {(path, h) for _, path, h in rest[: count - len(chosen)]}
    return {path: sorted(h for p, h in chosen if p == path) for path in scores}


@checked
def prune_heads(model: nn.Module, keep: Mapping[str, Iterable[int]], *, groups: bool = False) -> nn.Module:
    """Copy a model with only some heads: the others are cut out of its matrices, which makes it smaller and faster.

    Where query heads share KV heads, only whole groups can be cut out, and with each group its share of the KV cache.

    :param model: any module with attention layers; it stays as it is.
    :param keep: the heads that stay, by the path of their layer; layers that it does not name keep all. A layer that
        several blocks share has the path of its first place, and is cut in all of them.
    :param groups: whether ``keep`` numbers groups in the place of heads: a KV head with the query heads that share it,
        0 to kv_heads − 1.
    :Raises: ValueError for an unknown layer, and as :meth:`mha.Heads.take_heads`.
    :Taught in: pruning_heads.
    """
    _known(model, keep, groups)
    layers = attention_layers(model := copy.deepcopy(model))
    for path, numbers in sorted(keep.items(), reverse=True):  # the model itself, whose path is empty, comes last
        smaller = layers[path].take_heads(heads_in(layers[path], numbers) if groups else numbers)
        if not path:
            return smaller
        _replace_everywhere(model, layers[path], smaller)
    return model


def _replace_everywhere(model: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Put a module in the place of another one, in all places where blocks share it."""
    for parent in list(model.modules()):
        for name, part in list(parent._modules.items()):
            if part is old:
                setattr(parent, name, new)


@checked
@contextmanager
def mask_heads(model: nn.Module, keep: Mapping[str, Iterable[int]], *, groups: bool = False) -> Iterator[None]:
    """Silence all other heads for a while: their outputs become zero, nothing is cut.

    :param model: any module with attention layers.
    :param keep: the heads that stay, by the path of their layer; layers that it does not name keep all.
    :param groups: whether ``keep`` numbers groups in the place of heads, as in :func:`prune_heads`.
    :Raises: ValueError for an unknown layer, and for numbers of heads that it does not have.
    :Taught in: pruning_heads.
    """
    layers = _known(model, keep, groups)
    with ExitStack() as stack:
        for path, numbers in keep.items():
            layer = layers[path]
            gate = torch.zeros(layer.heads, 1, 1)
            some = heads_in(layer, numbers, some=False) if groups else head_numbers(layer.heads, numbers, some=False)
            gate[some] = 1
            stack.enter_context(edit(layer, heads=_times(gate)))
        yield


def _times(gate: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda z: z * gate.to(z)


def _known(model: nn.Module, keep: Mapping[str, Iterable[int]], groups: bool) -> dict[str, Heads]:
    check_flag(groups=groups)
    layers = attention_layers(model)
    if not isinstance(keep, Mapping):
        raise TypeError(f"keep = {keep!r}: give the heads that stay by the path of their layer, such as {{path: [0]}}")
    if not set(keep) <= set(layers):
        raise ValueError(f"no layer {sorted(set(keep) - set(layers))}: the layers with heads are {list(layers)}")
    return layers
