"""What stands around attention: embedding, feed-forward part, residual connections with norms, a stack of layers.

:Taught in: in_the_transformer, positions, depth_and_norms.
"""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from mha.checks import (
    check_functions,
    check_is_tensor,
    check_like_weights,
    check_tensor,
    check_whole,
    checked,
    described,
)
from mha.functional.attention import check_dropout
from mha.layers.cache import ModelCache
from mha.layers.cost import Cost, count_linear, count_weights
from mha.layers.multi_head import MultiHeadAttention
from mha.layers.positions import SinusoidalPositions

Make = Callable[[], nn.Module]


@checked
def make_attention(d_model: int, attention: int | Make, dropout: float, name: str = "attention") -> nn.Module:
    """Make plain attention from a number of heads, or whatever layer the function makes."""
    if isinstance(attention, int):
        check_whole(**{name: attention})
        return MultiHeadAttention(d_model, attention, dropout=dropout)
    return made(name, attention)


def made(name: str, make: Callable[..., Any], *sizes: int) -> Any:
    """Call a function of the caller's that makes a module; refuse what it returns if that cannot be called."""
    module = make(*sizes)
    if not callable(module):
        raise TypeError(f"{name} = {described(make)} returned {described(module)}: it must return a module of torch")
    return module


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


def check_words(words: Tensor, known: int, name: str = "words") -> None:
    """Refuse what is no batch of word numbers from 0 to ``known - 1``."""
    check_is_tensor(name, words)
    if words.is_floating_point() or words.is_complex() or words.dtype == torch.bool:
        raise TypeError(f"{name} have dtype {words.dtype}, but must be whole numbers, one for each word: torch.long")
    if words.ndim != 2 or 0 in words.shape:
        raise ValueError(
            f"{name} have shape {tuple(words.shape)}, but must be (batch, sequence), neither of them empty"
        )
    if words.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"{name} have dtype {words.dtype}, but must be torch.long: use {name}.long()")
    if words.is_meta:
        raise ValueError(f"{name} of shape {tuple(words.shape)} are on the meta device and hold no numbers")
    low, high = words.min().item(), words.max().item()
    if low < 0 or high >= known:
        wrong = low if low < 0 else high
        raise ValueError(f"word number {wrong} is unknown: this model knows {known} words, numbered 0 to {known - 1}")


def check_padding(name: str, mask: Tensor | None, words: Tensor) -> None:
    """Refuse a mask that does not say of each of the words whether it is one."""
    if mask is None:
        return
    check_is_tensor(name, mask)
    if mask.dtype != torch.bool:
        raise TypeError(f"{name} has dtype {mask.dtype}, but must be torch.bool with True = 'may look'")
    if mask.ndim != 4 or mask.shape[1:3] != (1, 1):
        raise ValueError(
            f"{name} has shape {tuple(mask.shape)}, but must be (batch, 1, 1, words), as of mha.padding_mask"
        )
    if mask.device != words.device:
        raise ValueError(f"{name} is on {mask.device}, the words are on {words.device}: move one of them")


def check_named(name: str, mask: Tensor | None) -> None:
    """Refuse what is no mask, by the name that the caller knows it by."""
    if mask is not None:
        check_is_tensor(name, mask)
        if mask.dtype != torch.bool or mask.ndim not in (2, 4):
            raise TypeError(f"{name} is {described(mask)}, but must be torch.bool of 2 or 4 axes, True = 'may look'")


def check_cache(cache: object, *kinds: type) -> None:
    """Refuse what is no cache of these kinds; None is no cache, and allowed."""
    if cache is not None and not isinstance(cache, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"cache = {described(cache)}: it must be a {names}, as new_cache() makes one")


def check_is_cache(cache: object, kind: type) -> None:
    """Refuse what is no cache of this kind, where one is needed."""
    if cache is None:
        raise TypeError(f"cache = None: a {kind.__name__} is needed, as new_cache() makes one")
    check_cache(cache, kind)


def check_source(source: Tensor, mask: Tensor | None) -> None:
    """Refuse a source with nothing in it: there is nothing to translate."""
    check_is_tensor("source", source)
    check_padding("source_mask", mask, source)
    if source.ndim == 2 and source.shape[1] == 0:
        raise ValueError(f"the source is empty: it has shape {tuple(source.shape)}, so there is nothing to read")
    if mask is not None and mask.dtype == torch.bool and mask.ndim == 4:
        empty = (~mask.flatten(1).any(1)).nonzero().flatten().tolist()
        if empty:
            raise ValueError(f"source {empty} of the batch is empty: its mask hides every word. Leave it out")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "relu": F.relu}


class Embedding(nn.Module):
    """Turn word numbers into vectors, and mark their positions.

    :Shapes: (b, n) whole numbers from 0 to words − 1 give (b, n, d_model).
    :Raises: ValueError for an empty sequence and for a number that is no word, TypeError for numbers that are not
        whole.
    :Taught in: in_the_transformer.
    """

    @checked
    def __init__(
        self, words: int, d_model: int, positions: Callable[[], nn.Module] | None = SinusoidalPositions
    ) -> None:
        """Make the table; ``positions`` makes the module that adds positions, and None adds none."""
        super().__init__()
        check_whole(words=words, d_model=d_model)
        self.table = nn.Embedding(words, d_model)
        self.positions = None if positions is None else made("positions", positions)

    def forward(self, words: Int[Tensor, "b n"], start: int = 0) -> Float[Tensor, "b n m"]:
        """Look up each word; the first one stands at position ``start``."""
        check_words(words, self.table.num_embeddings)
        x = self.table(words)
        return x if self.positions is None else self.positions(x, start)


class FeedForward(nn.Module):
    """Think about each word by itself: widen, bend, narrow again.

    :Costs: 2 · d_model · width weights.
    :Shapes: (b, n, d_model) gives (b, n, d_model).
    :Raises: ValueError for an unknown activation.
    :Source: Vaswani et al. 2017, section 3.3.
    :Taught in: in_the_transformer.
    """

    @checked
    def __init__(self, d_model: int, width: int, activation: str = "gelu", dropout: float = 0.0) -> None:
        """Make two linear maps with a bend ("gelu" or "relu") and dropout between them."""
        super().__init__()
        check_whole(d_model=d_model, width=width)
        check_dropout(dropout)
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation = {activation!r}: it is one of {list(ACTIVATIONS)}")
        self.widen, self.narrow = nn.Linear(d_model, width), nn.Linear(width, d_model)
        self.activation, self.dropout = activation, nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "b n m"]) -> Float[Tensor, "b n m"]:
        """Widen, bend, drop, narrow."""
        check_tensor(3, x=x)
        if x.shape[-1] != self.widen.in_features:
            raise ValueError(f"x of shape {tuple(x.shape)} has {x.shape[-1]} channels, not {self.widen.in_features}")
        check_like_weights("x", x, self.widen.weight)
        return self.narrow(self.dropout(ACTIVATIONS[self.activation](self.widen(x))))

    @checked
    def cost(self, b: int, n: int) -> Cost:
        """Count one call on paper: a batch of b, n words.

        :Taught in: counting_cost.
        """
        check_whole(b=b, n=n)
        parts = {name: count_linear(getattr(self, name), b * n) for name in ("widen", "narrow")}
        parameters, wide = count_weights(self.widen, self.narrow), self.widen.out_features
        size = self.widen.weight.element_size()
        return Cost(
            parameters, parts, size * parameters, 0, size * b * n * (wide + max(wide, self.narrow.out_features))
        )


class Residual(nn.Module):
    """Add what a part says to what went in, and keep the numbers in range with a norm.

    :Shapes: x (b, n, d_model); ``part`` is a function from (b, n, d_model) to (b, n, d_model).
    :Source: He et al. 2016 for the sum; Xiong et al. 2020 for the two places of the norm.
    :Taught in: in_the_transformer, positions, depth_and_norms.
    """

    @checked
    def __init__(self, d_model: int, norm: Callable[[int], nn.Module], norm_first: bool, dropout: float) -> None:
        """Make the norm: before the part (``norm_first``), or after the sum."""
        super().__init__()
        check_whole(d_model=d_model)
        check_dropout(dropout)
        self.norm, self.norm_first, self.dropout = made("norm", norm, d_model), norm_first, nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "b n m"], part: Callable[[Tensor], Tensor]) -> Float[Tensor, "b n m"]:
        """Return x + part(norm(x)), or norm(x + part(x))."""
        check_tensor(3, x=x)
        check_functions(part=part)
        for weight in self.norm.parameters():
            check_like_weights("x", x, weight)
        if self.norm_first:
            return x + self.dropout(part(self.norm(x)))
        return self.norm(x + self.dropout(part(x)))


class Stack(nn.ModuleList):
    """Call one layer after the other.

    :Shapes: (b, n, d_model) gives (b, n, d_model).
    :Raises: ValueError where there is no layer.
    :Taught in: in_the_transformer.
    """

    @checked
    def __init__(self, layers: Iterable[nn.Module]) -> None:
        """Take the layers, first one first."""
        super().__init__(layers)
        if not len(self):
            raise ValueError("layers = []: a stack needs at least 1")

    def forward(
        self, x: Float[Tensor, "b n m"], *memory: Tensor, cache: ModelCache | None = None, **how: Tensor | bool | None
    ) -> Tensor:
        """Pass x through; what else a layer of its kind takes goes to every layer, caches to their own."""
        check_cache(cache, ModelCache)
        for layer, own in zip(self, cache or [None] * len(self), strict=True):
            x = layer(x, *memory, cache=own, **how)
        return x

    @checked
    def new_cache(self, capacity: int = 1024, padding: Tensor | list[int] | None = None) -> ModelCache:
        """Make an empty cache for every layer, as :class:`mha.KeyValueCache` says."""
        layers: Iterable[Any] = self
        return ModelCache(layer.new_cache(capacity, padding) for layer in layers)
