"""The checks of a layer's input, made once: everything after them takes what it gets.

What would go wrong silently is asked before anything is computed: a mask of the wrong kind, a causal mask over another
sequence, another layer's cache, a batch that broadcasts. A tensor that fits is recognized by a few comparisons; only
one that does not fit is looked at in detail, to say why.

:Taught in: why_attention, masking.
"""

from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from mha.checks import check_flag, check_is_tensor, check_like_weights, described
from mha.functional.masks import check_mask
from mha.layers.cache import LayerCache


@runtime_checkable
class Projecting(Protocol):
    """A layer, as far as the checks of its input must know it."""

    W_q: nn.Linear
    W_k: nn.Linear
    W_v: nn.Linear


def default_inputs(query: Tensor, key: Tensor | None, value: Tensor | None, is_causal: bool) -> tuple[Tensor, Tensor]:
    """Let key default to query and value to key; refuse a causal mask over another sequence.

    :param query: what asks, (b, i, d_model).
    :param key: what is compared with; the query unless given.
    :param value: what is read; the key unless given.
    :param is_causal: whether each token sees only itself and what came before.
    """
    if is_causal is not True and is_causal is not False:
        check_flag(is_causal=is_causal)
    if key is None:
        if value is not None:
            raise ValueError(f"value = {described(value)} was given without a key: give both, or neither")
        return query, query
    if is_causal and key is not query:
        raise ValueError(
            "is_causal with a separate key: another sequence has no future to hide. Leave is_causal out, or give a mask"
        )
    return key, key if value is None else value


def check_inputs(layer: Projecting, query: Tensor, key: Tensor, value: Tensor) -> None:
    """Refuse inputs that the projections cannot take, by name, shape and remedy."""
    check_input("query", query, layer.W_q)
    if query is key is value and layer.W_q.in_features == layer.W_k.in_features == layer.W_v.in_features:
        return
    check_input("key", key, layer.W_k)
    check_input("value", value, layer.W_v)
    check_batch(query, key, value)


def check_batch(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Refuse inputs of different batches, and keys without values."""
    if query.shape[0] != key.shape[0] or key.shape[:2] != value.shape[:2]:
        raise ValueError(
            f"query {tuple(query.shape)}, key {tuple(key.shape)} and value {tuple(value.shape)} must have one batch "
            "size, and key and value one length"
        )


def check_input(name: str, x: Any, linear: nn.Linear) -> None:
    """Refuse an input that a projection cannot take."""
    weight = linear.weight
    if (
        isinstance(x, Tensor)
        and x.ndim == 3
        and x.shape[2] == linear.in_features
        and x.dtype == weight.dtype
        and x.device == weight.device
        and x.shape[0] > 0
        and x.shape[1] > 0
    ):
        return
    check_is_tensor(name, x)
    if x.ndim != 3:
        raise ValueError(f"{name} has shape {tuple(x.shape)}, but must be (batch, sequence, {linear.in_features})")
    if x.shape[-1] != linear.in_features:
        raise ValueError(
            f"{name} of shape {tuple(x.shape)} has {x.shape[-1]} channels, "
            f"but this layer was built for {linear.in_features}"
        )
    if not x.is_floating_point():
        raise TypeError(f"{name} has dtype {x.dtype}, but must be floating point: embed token numbers first")
    if 0 in x.shape:
        raise ValueError(f"{name} has shape {tuple(x.shape)}: an empty batch or sequence cannot be attended to")
    check_like_weights(name, x, weight)


def check_positions(positions: nn.Module | None, query: Tensor, key: Tensor) -> None:
    """Refuse to compare positions of two different sequences."""
    if positions is not None and key is not query:
        raise ValueError(
            f"this layer has {type(positions).__name__}, which compare positions within one sequence, but the key is "
            "another sequence: use a layer without positions for cross-attention"
        )


def check_cache(cache: object) -> None:
    """Refuse what is no cache of a layer."""
    if not isinstance(cache, LayerCache):
        raise TypeError(f"cache = {described(cache)}: give layer.new_cache(), or mha.layers.MemoryCache() for a memory")


def check_visible(mask: Tensor, query: Tensor, key: Tensor, heads: int) -> None:
    """Refuse a mask that does not say plainly who may look at whom."""
    i, j = query.shape[1], key.shape[1]
    plain = isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.device == query.device
    if not (plain and mask.ndim == 2 and mask.shape[0] == i and mask.shape[1] == j):
        check_mask(mask, (query.shape[0], heads, i, j), query.device)


def check_heads(heads: Tensor, number: int, linear: nn.Linear) -> None:
    """Refuse what is not the output of a layer's heads."""
    check_is_tensor("heads", heads)
    inner = linear.in_features
    if heads.ndim != 4 or heads.shape[1] * heads.shape[3] != inner:
        raise ValueError(
            f"heads have shape {tuple(heads.shape)}, but must be (batch, {number}, sequence, "
            f"{inner // number}), as seen.heads shows them"
        )
    if not heads.is_floating_point():
        raise TypeError(f"heads have dtype {heads.dtype}, but must be floating point")
    check_like_weights("heads", heads, linear.weight)


def head_width(d_model: int, heads: int, d_head: int | None) -> int:
    """Return the width of one head; refuse heads that do not divide the model's width.

    :param d_model: the width of the model.
    :param heads: how many heads there are.
    :param d_head: the width of a head; d_model / heads unless given.
    """
    if d_model < 1 or heads < 1 or (d_head is not None and d_head < 1):
        raise ValueError(f"d_model = {d_model}, heads = {heads}, d_head = {d_head}: each must be at least 1")
    if d_head is None and d_model % heads:
        fits = [h for h in range(1, d_model + 1) if d_model % h == 0]
        raise ValueError(
            f"{heads} heads do not divide d_model = {d_model}: take a divisor ({fits}), or give d_head yourself"
        )
    return d_model // heads if d_head is None else d_head


def input_widths(d_model: int, kdim: int | None, vdim: int | None) -> tuple[int, int]:
    """Return the widths of key and value inputs; refuse a width below one.

    :param d_model: the width of the model.
    :param kdim: the width of the keys' input; ``d_model`` unless given.
    :param vdim: the width of the values' input; ``d_model`` unless given.
    """
    kdim, vdim = d_model if kdim is None else kdim, d_model if vdim is None else vdim
    if kdim < 1 or vdim < 1:
        raise ValueError(f"kdim = {kdim}, vdim = {vdim}: each must be at least 1")
    return kdim, vdim


def check_groups(heads: int, kv_heads: int) -> None:
    """Refuse groups of unequal size."""
    if kv_heads < 1 or heads % kv_heads:
        fits = [h for h in range(1, heads + 1) if heads % h == 0]
        raise ValueError(f"kv_heads = {kv_heads} cannot be shared evenly by {heads} query heads: take one of {fits}")


def biased(bias: bool | str) -> str:
    """Return the letters of the projections that have a bias: True means all four, False none.

    :param bias: True, False, or some of the letters "qkvo".
    """
    letters = bias if isinstance(bias, str) else "qkvo" if bias is True else ""
    if not isinstance(bias, bool | str) or set(letters) - set("qkvo"):
        raise ValueError(f"bias = {bias!r}: give True, False or some of the letters 'qkvo'")
    return letters


def check_no_padding(layer: nn.Module, padding: Tensor | list[int] | None) -> None:
    """Refuse padding where the cache does not know which of the earlier tokens it is."""
    if padding is not None:
        raise ValueError(
            f"padding = {described(padding)}: the cache of {type(layer).__name__} keeps nothing for each token, so it "
            "cannot hide padding: leave it out, and feed sequences of one length"
        )
