"""The checks of a layer's input, made once: everything after them takes what it gets.

What would go wrong silently is asked before anything is computed: a mask of the wrong kind, a causal mask over another
sequence, another layer's cache, a batch that broadcasts. A tensor that fits is recognized by a few comparisons; only
one that does not fit is looked at in detail, to say why.

:Taught in: why_attention, masking.
"""

from collections.abc import Collection
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from mha.checks import check_flag, check_is_tensor, check_like_weights, check_tensor, described
from mha.functional.masks import check_mask
from mha.layers.cache import LayerCache
from mha.layers.projections import as_linear, weight_of


@runtime_checkable
class Projecting(Protocol):
    """A layer, as far as the checks of its input must know it."""

    W_q: nn.Linear
    W_k: nn.Linear
    W_v: nn.Linear


@runtime_checkable
class Reading(Protocol):
    """A layer, as far as the check of its cache must know it."""

    reads: tuple[str, ...]


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
    if is_causal and not is_same(key, query):
        raise ValueError(
            "is_causal with a separate key: another sequence has no future to hide. Leave is_causal out, or give a mask"
        )
    return key, key if value is None else value


def nested_ones(**inputs: Any) -> list[str]:
    """Name the nested tensors among a layer's inputs.

    :param inputs: query, key and value as they were given.
    """
    return [name for name, x in inputs.items() if isinstance(x, Tensor) and x.is_nested]


def check_nested(layer: nn.Module, nested: list[str], plain: bool) -> None:
    """Refuse nested tensors where torch has no kernel for what a layer does with them.

    :param layer: the layer that was called.
    :param nested: which of its inputs are nested.
    :param plain: whether nothing but the four projections and torch's kernel is asked for, of nested inputs only.
    """
    if not plain:
        raise ValueError(
            f"{nested[0]} is a nested tensor: {type(layer).__name__} can read it only without masks, a "
            "cache, positions, shared heads and changes, and beside inputs that are nested too. Pad it with "
            "torch.nested.to_padded_tensor(x, 0.0) and give mask=mha.padding_mask(lengths)"
        )


def is_same(key: Tensor, query: Tensor) -> bool:
    """Whether two arguments are one sequence: one tensor, or as in ``layer(norm(x), norm(x), norm(x))`` equal numbers.

    Numbers are compared only where the tensors are two, which waits for the device.

    :param key: one of them.
    :param query: the other one.
    """
    if key is query:
        return True
    both = isinstance(key, Tensor) and isinstance(query, Tensor) and not (key.is_meta or query.is_meta)
    alike = both and key.shape == query.shape and key.dtype == query.dtype and key.device == query.device
    return alike and torch.equal(key, query)


def check_inputs(layer: Projecting, query: Tensor, key: Tensor, value: Tensor) -> None:
    """Refuse inputs that the projections cannot take, by name, shape and remedy."""
    check_input("query", query, layer.W_q)
    try:
        one_width = layer.W_q.in_features == layer.W_k.in_features == layer.W_v.in_features
    except AttributeError:  # an adapter in the place of a projection need not say
        one_width = False
    if query is key is value and one_width:
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


def check_input(name: str, x: Any, linear: nn.Module) -> None:
    """Refuse an input that a projection cannot take."""
    weight, width = weight_of(linear), getattr(linear, "in_features", None)
    if (
        isinstance(x, Tensor)
        and x.layout is torch.strided
        and not x.is_nested
        and x.ndim == 3
        and x.shape[2] == width
        and weight is not None
        and x.dtype == weight.dtype
        and x.device == weight.device
        and x.shape[0] > 0
        and x.shape[1] > 0
    ):
        return
    check_is_tensor(name, x)
    if x.ndim != 3:
        channels = "channels" if width is None else width
        raise ValueError(f"{name} has shape {tuple(x.shape)}, but must be (batch, sequence, {channels})")
    if width is not None and x.shape[-1] != width:
        raise ValueError(
            f"{name} of shape {tuple(x.shape)} has {x.shape[-1]} channels, but this layer was built for {width}"
        )
    if not x.is_floating_point():
        raise TypeError(f"{name} has dtype {x.dtype}, but must be floating point: embed token numbers first")
    if 0 in x.shape:
        raise ValueError(f"{name} has shape {tuple(x.shape)}: an empty batch or sequence cannot be attended to")
    if weight is not None:
        check_like_weights(name, x, weight, linear)


def check_positions(positions: nn.Module | None, query: Tensor, key: Tensor) -> None:
    """Refuse to compare positions of two different sequences."""
    if positions is not None and not getattr(positions, "across", False) and not is_same(key, query):
        raise ValueError(
            f"this layer has {type(positions).__name__}, which compare positions within one sequence, but the key is "
            "another sequence: use a layer without positions for cross-attention"
        )


def check_cache(cache: object, layer: Reading) -> None:
    """Refuse what is no cache of a layer, and one that keeps something other than this layer can go on from."""
    if not isinstance(cache, LayerCache):
        raise TypeError(f"cache = {described(cache)}: give layer.new_cache(), or mha.layers.MemoryCache() for a memory")
    if cache.keeps not in layer.reads:
        raise ValueError(
            f"cache is a {type(cache).__name__}, which keeps {cache.keeps}, but {type(layer).__name__} goes on from "
            f"{layer.reads[0]}: use layer.new_cache()"
        )


def check_order(cache: LayerCache, query: Tensor, mask: Tensor | None, is_causal: bool) -> None:
    """Refuse several new tokens of which each sees those after it, which it could not if they came one by one."""
    if cache.grows and not is_causal and query.shape[1] > 1 and (mask is None or mask.shape[-2] == 1):
        raise ValueError(
            f"{query.shape[1]} new tokens came with a cache that grows, and nothing hides the later ones from the "
            "earlier ones, as if they had come one by one: say is_causal=True. For a prompt in which each may look at "
            "all, give a mask with a row for each token"
        )


def check_visible(mask: Tensor, query: Tensor, key: Tensor, heads: int) -> None:
    """Refuse a mask that does not say plainly who may look at whom."""
    i, j = query.shape[1], key.shape[1]
    plain = isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.device == query.device
    plain = plain and mask.layout is torch.strided and not mask.is_nested
    if not (plain and mask.ndim == 2 and mask.shape[0] == i and mask.shape[1] == j):
        check_mask(mask, (query.shape[0], heads, i, j), query.device)


def check_heads(heads: Tensor, number: int, linear: nn.Module) -> None:
    """Refuse what is not the output of a layer's heads."""
    check_is_tensor("heads", heads)
    inner = getattr(linear, "in_features", None) or as_linear(linear, "W_o").in_features
    if heads.ndim != 4 or heads.shape[1] * heads.shape[3] != inner:
        raise ValueError(
            f"heads have shape {tuple(heads.shape)}, but must be (batch, {number}, sequence, "
            f"{inner // number}), as seen.heads shows them"
        )
    if not heads.is_floating_point():
        raise TypeError(f"heads have dtype {heads.dtype}, but must be floating point")
    check_like_weights("heads", heads, as_linear(linear, "W_o").weight)


def fitting_gates(gates: Tensor, q: Tensor, v: Tensor) -> Tensor:
    """Return gates with an axis of channels; refuse those of other heads, tokens, widths or types.

    :param gates: (b, h, i) or (b, h, i, d).
    :param q: the queries, (b, h, i, …).
    :param v: the values, (…, d).
    """
    check_tensor(gates=gates)
    whole = (*q.shape[:-1], v.shape[-1])
    if tuple(gates.shape) not in (whole[:-1], whole) or gates.dtype != q.dtype or gates.device != q.device:
        raise ValueError(
            f"gates has shape {tuple(gates.shape)} and {gates.dtype} on {gates.device}, but must have shape "
            f"{whole[:-1]} or {whole} and {q.dtype} on {q.device}"
        )
    return gates[..., None] if gates.ndim < len(whole) else gates


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


def check_replaced(replaced: Collection[str]) -> None:
    """Refuse names that are none of the four projections."""
    if isinstance(replaced, str) or not set(replaced) <= {"W_q", "W_k", "W_v", "W_o"}:
        raise ValueError(f"replaced = {described(replaced)}: give names of projections, such as ('W_k', 'W_v')")


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
