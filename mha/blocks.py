"""What stands around attention: embedding, feed-forward part, residual connections with norms, a stack of layers.

Taught in: chapters 07 and 08.
"""

from collections.abc import Callable, Iterable

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from mha._count import Cost, count_linear, count_weights
from mha._inputs import check_words
from mha.cache import ModelCache
from mha.positions import SinusoidalPositions

ACTIVATIONS = {"gelu": F.gelu, "relu": F.relu}


class Embedding(nn.Module):
    """Turn word numbers into vectors, and mark their positions.

    Shapes: (b, n) whole numbers from 0 to words − 1 give (b, n, d_model).
    Raises: ValueError for an empty sequence and for a number that is no word, TypeError for numbers that are not whole.
    Taught in: chapter 07.
    """

    def __init__(
        self, words: int, d_model: int, positions: Callable[[], nn.Module] | None = SinusoidalPositions
    ) -> None:
        """Make the table; ``positions`` makes the module that adds positions, and None adds none."""
        super().__init__()
        self.table = nn.Embedding(words, d_model)
        self.positions = None if positions is None else positions()

    def forward(self, words: Int[Tensor, "b n"], start: int = 0) -> Float[Tensor, "b n m"]:
        """Look up each word; the first one stands at position ``start``."""
        check_words(words, self.table.num_embeddings)
        x = self.table(words)
        return x if self.positions is None else self.positions(x, start)


class FeedForward(nn.Module):
    """Think about each word by itself: widen, bend, narrow again.

    Costs: 2 · d_model · width weights.
    Shapes: (b, n, d_model) gives (b, n, d_model).
    Raises: ValueError for an unknown activation.
    Source: Vaswani et al. 2017, section 3.3.
    Taught in: chapter 07.
    """

    def __init__(self, d_model: int, width: int, activation: str = "gelu", dropout: float = 0.0) -> None:
        """Make two linear maps with a bend ("gelu" or "relu") and dropout between them."""
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation = {activation!r}: it is one of {list(ACTIVATIONS)}")
        self.widen, self.narrow = nn.Linear(d_model, width), nn.Linear(width, d_model)
        self.activation, self.dropout = activation, nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "b n m"]) -> Float[Tensor, "b n m"]:
        """Widen, bend, drop, narrow."""
        return self.narrow(self.dropout(ACTIVATIONS[self.activation](self.widen(x))))

    def cost(self, b: int, n: int) -> Cost:
        """Count one call on paper: a batch of b, n words. Taught in: chapter 11."""
        parts = {name: count_linear(getattr(self, name), b * n) for name in ("widen", "narrow")}
        parameters, wide = count_weights(self.widen, self.narrow), self.widen.out_features
        size = self.widen.weight.element_size()
        return Cost(
            parameters, parts, size * parameters, 0, size * b * n * (wide + max(wide, self.narrow.out_features))
        )


class Residual(nn.Module):
    """Add what a part says to what went in, and keep the numbers in range with a norm.

    Shapes: x (b, n, d_model); ``part`` is a function from (b, n, d_model) to (b, n, d_model).
    Source: He et al. 2016 for the sum; Xiong et al. 2020 for the two places of the norm.
    Taught in: chapters 07 and 08.
    """

    def __init__(self, d_model: int, norm: Callable[[int], nn.Module], norm_first: bool, dropout: float) -> None:
        """Make the norm: before the part (``norm_first``), or after the sum."""
        super().__init__()
        self.norm, self.norm_first, self.dropout = norm(d_model), norm_first, nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "b n m"], part: Callable[[Tensor], Tensor]) -> Float[Tensor, "b n m"]:
        """Return x + part(norm(x)), or norm(x + part(x))."""
        if self.norm_first:
            return x + self.dropout(part(self.norm(x)))
        return self.norm(x + self.dropout(part(x)))


class Stack(nn.ModuleList):
    """Call one layer after the other.

    Shapes: (b, n, d_model) gives (b, n, d_model).
    Raises: ValueError where there is no layer.
    Taught in: chapter 07.
    """

    def __init__(self, layers: Iterable[nn.Module]) -> None:
        """Take the layers, first one first."""
        super().__init__(layers)
        if not len(self):
            raise ValueError("there is no layer: a stack needs at least 1")

    def forward(self, x: Float[Tensor, "b n m"], *memory, cache: ModelCache | None = None, **how) -> Tensor:
        """Pass x through; ``memory``, masks and ``is_causal`` go to every layer, caches to their own."""
        for layer, own in zip(self, cache or [None] * len(self), strict=True):
            x = layer(x, *memory, cache=own, **how)
        return x

    def new_cache(self, capacity: int = 1024, **how) -> ModelCache:
        """Make an empty cache for every layer; keywords are those of :class:`mha.KeyValueCache`."""
        return ModelCache(layer.new_cache(capacity, **how) for layer in self)
