"""What a layer refuses, and how it says so."""

import torch
from torch import Tensor, nn


def fill_in(query: Tensor, key: Tensor | None, value: Tensor | None, is_causal: bool) -> tuple[Tensor, Tensor]:
    """Let key default to query and value to key; refuse a causal mask over somebody else's sequence."""
    if key is None and value is not None:
        raise ValueError("a value was given without a key: give both, or neither")
    if is_causal and key is not None and key is not query:
        raise ValueError(
            "is_causal with a separate key: another sequence has no future to hide. Leave is_causal out, or give a mask"
        )
    key = query if key is None else key
    return key, key if value is None else value


def check_inputs(layer: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> None:
    """Refuse inputs that the projections cannot take, by name, shape and remedy."""
    for name, x, linear in (("query", query, layer.W_q), ("key", key, layer.W_k), ("value", value, layer.W_v)):
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
    if query.shape[0] != key.shape[0] or key.shape[:2] != value.shape[:2]:
        raise ValueError(
            f"query {tuple(query.shape)}, key {tuple(key.shape)} and value {tuple(value.shape)} must have one batch "
            "size, and key and value one length"
        )


def check_positions(positions: nn.Module | None, query: Tensor, key: Tensor) -> None:
    """Refuse to compare positions of two different sequences."""
    if positions is not None and key is not query:
        raise ValueError(
            f"this layer has {type(positions).__name__}, which compare places within one sequence, but the key is "
            "another sequence: use a layer without positions for cross-attention"
        )


def head_width(d_model: int, heads: int, d_head: int | None) -> int:
    """Return the width of one head; refuse heads that do not divide the model's width."""
    if d_model < 1 or heads < 1 or (d_head is not None and d_head < 1):
        raise ValueError(f"d_model = {d_model}, heads = {heads}, d_head = {d_head}: each must be at least 1")
    if d_head is None and d_model % heads:
        fits = [h for h in range(1, d_model + 1) if d_model % h == 0]
        raise ValueError(
            f"{heads} heads do not divide d_model = {d_model}: take a divisor ({fits}), or give d_head yourself"
        )
    return d_model // heads if d_head is None else d_head


def input_widths(d_model: int, kdim: int | None, vdim: int | None) -> tuple[int, int]:
    """Return the widths of key and value inputs; refuse a width below one."""
    kdim, vdim = d_model if kdim is None else kdim, d_model if vdim is None else vdim
    if kdim < 1 or vdim < 1:
        raise ValueError(f"kdim = {kdim}, vdim = {vdim}: each must be at least 1")
    return kdim, vdim


def check_groups(heads: int, kv_heads: int) -> int:
    """Return the number of key heads; refuse groups of unequal size."""
    if kv_heads < 1 or heads % kv_heads:
        fits = [h for h in range(1, heads + 1) if heads % h == 0]
        raise ValueError(f"{kv_heads} key heads cannot be shared evenly by {heads} query heads: take one of {fits}")
    return kv_heads


def biased(bias: bool | str) -> str:
    """Return the letters of the projections that have a bias: True means all four, False none."""
    letters = {True: "qkvo", False: ""}.get(bias, bias)
    if not isinstance(letters, str) or set(letters) - set("qkvo"):
        raise ValueError(f"bias = {bias!r}: give True, False or some of the letters 'qkvo'")
    return letters


def share(dropout: float) -> float:
    """Return the share of weights to drop; refuse what is no share."""
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout = {dropout}: it is the share of weights dropped, at least 0 and below 1")
    return dropout


def check_words(words: Tensor, known: int) -> None:
    """Refuse what is no batch of word numbers from 0 to ``known - 1``."""
    if words.is_floating_point() or words.dtype == torch.bool:
        raise TypeError(f"words have dtype {words.dtype}, but must be whole numbers, one for each word: torch.long")
    if words.ndim != 2 or 0 in words.shape:
        raise ValueError(f"words have shape {tuple(words.shape)}, but must be (batch, sequence), neither of them empty")
    low, high = words.min().item(), words.max().item()
    if low < 0 or high >= known:
        wrong = low if low < 0 else high
        raise ValueError(f"word number {wrong} is unknown: this model knows {known} words, numbered 0 to {known - 1}")


def check_source(source: Tensor, mask: Tensor | None) -> None:
    """Refuse a source with nothing in it: there is nothing to translate."""
    if source.ndim == 2 and source.shape[1] == 0:
        raise ValueError(f"the source is empty: it has shape {tuple(source.shape)}, so there is nothing to read")
    if mask is not None and mask.dtype == torch.bool and mask.ndim == 4:
        empty = (~mask.flatten(1).any(1)).nonzero().flatten().tolist()
        if empty:
            raise ValueError(f"source {empty} of the batch is empty: its mask hides every word. Leave it out")
