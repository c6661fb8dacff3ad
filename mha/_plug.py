"""How an attention layer is plugged into a Transformer layer."""

import inspect
from collections.abc import Callable

from torch import nn

from mha.attention import MultiHeadAttention

Make = Callable[[], nn.Module]


def make_attention(d_model: int, attention: int | Make, dropout: float) -> nn.Module:
    """Make plain attention from a number of heads, or whatever layer the function makes."""
    if isinstance(attention, int):
        return MultiHeadAttention(d_model, attention, dropout=dropout)
    return attention()


def given(cache) -> dict:
    """Name the cache only where there is one: not every layer takes one."""
    return {} if cache is None else {"cache": cache}


def check_cacheable(*layers: nn.Module) -> None:
    """Refuse a cache for layers that would not use it."""
    for layer in layers:
        if "cache" not in inspect.signature(layer.forward).parameters:
            raise ValueError(f"{type(layer).__name__} takes no cache: generate with cached=False")


def check_crossing(layer: nn.Module) -> None:
    """Refuse positions that would compare places of two different sequences."""
    positions = getattr(layer, "positions", None)
    if positions is not None:
        raise ValueError(
            f"the cross-attention was made with {type(positions).__name__}, which compare places within one sequence: "
            "give cross_attention=, a number of heads or a function that makes a layer without positions"
        )
