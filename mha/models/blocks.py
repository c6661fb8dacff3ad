"""What is around attention: embedding, feed-forward part, residual connections with norms, a stack of layers.

:Taught in: in_the_transformer, positions, depth_and_norms.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from mha.checks import (
    check_floating,
    check_functions,
    check_like_weights,
    check_whole,
    checked,
    described,
)
from mha.functional.attention import check_dropout
from mha.layers.cache import ModelCache
from mha.layers.cost import Cost, count_linear, count_weights
from mha.layers.multi_head import MultiHeadAttention
from mha.layers.positions import SinusoidalPositions
from mha.layers.projections import weight_of
from mha.models.inputs import check_kind_of_cache, check_token_numbers

Make = Callable[[], nn.Module]


@checked
def make_attention(d_model: int, attention: int | Make, dropout: float, name: str = "attention") -> nn.Module:
    """Make plain attention from a number of heads, or whatever layer the function makes.

    :param d_model: the width of the layer.
    :param attention: a number of heads, or a function that makes the layer.
    :param dropout: the share of attention weights dropped in training; a function's layer keeps its own.
    :param name: what an error calls ``attention``.
    """
    if isinstance(attention, int):
        check_whole(**{name: attention})
        return MultiHeadAttention(d_model, attention, dropout=dropout)
    return made(name, attention)


def made(name: str, make: Callable[..., Any], *sizes: int) -> Any:
    """Call a function of the caller's that makes a module; refuse what it returns if that cannot be called.

    :param name: what an error calls the function.
    :param make: a function of the sizes that returns a module.
    :param sizes: what the function is called with.
    """
    if not callable(make):
        raise TypeError(f"{name} = {described(make)}: it must be a function that makes a module of torch")
    try:
        module = make(*sizes)
    except TypeError as error:
        how = f"the width {sizes[0]}" if sizes else "nothing"
        raise TypeError(f"{name} = {described(make)} makes no module when it is given {how}: {error}") from error
    if not callable(module):
        raise TypeError(f"{name} = {described(make)} returned {described(module)}: it must return a module of torch")
    return module


def given(cache) -> dict:
    """Name the cache only where there is one: not every layer takes one.

    :param cache: an empty or a filled cache, or None.
    """
    return {} if cache is None else {"cache": cache}


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "relu": F.relu}


class Embedding(nn.Module):
    """Turn token numbers into vectors, and mark their positions.

    :Shapes: returns (b, n, d_model).
    :Raises: ValueError for an empty sequence and for a number that is no token, TypeError for numbers that are not
        whole.
    :Taught in: in_the_transformer.
    """

    @checked
    def __init__(
        self, vocab_size: int, d_model: int, positions: Callable[[], nn.Module] | None = SinusoidalPositions
    ) -> None:
        """Make the table.

        :param vocab_size: how many different tokens there are.
        :param d_model: the width of the vectors.
        :param positions: a function that makes what adds positions; sinusoidal unless given, and none for None.
        """
        super().__init__()
        check_whole(vocab_size=vocab_size, d_model=d_model)
        self.table = nn.Embedding(vocab_size, d_model)
        self.positions = None if positions is None else made("positions", positions)

    def forward(self, tokens: Int[Tensor, "b n"], start: int | Tensor = 0) -> Float[Tensor, "b n m"]:
        """Look up each token, and add its position.

        :param tokens: token numbers from 0 on, below the number of different tokens, whole, (b, n).
        :param start: the position of the first one, or the positions of all, (b, n); 0 unless given.
        """
        check_token_numbers(tokens, self.table.num_embeddings)
        x = self.table(tokens)
        return x if self.positions is None else self.positions(x, start)


class FeedForward(nn.Module):
    """Process each token by itself (FFN): widen, apply a nonlinearity, narrow again.

    :Costs: 2 · d_model · width parameters.
    :Shapes: returns (b, n, d_model).
    :Raises: ValueError for an unknown activation.
    :Source: Vaswani et al. 2017, section 3.3.
    :Taught in: in_the_transformer.
    """

    @checked
    def __init__(self, d_model: int, width: int, activation: str = "gelu", dropout: float = 0.0) -> None:
        """Make two linear maps with a nonlinearity and dropout between them.

        :param d_model: the width of input and output.
        :param width: the width in between.
        :param activation: the nonlinearity between the two maps, "gelu" or "relu"; "gelu" unless given.
        :param dropout: the share dropped in training after the nonlinearity; 0 unless given.
        """
        super().__init__()
        check_whole(d_model=d_model, width=width)
        check_dropout(dropout)
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation = {activation!r}: it is one of {list(ACTIVATIONS)}")
        self.widen, self.narrow = nn.Linear(d_model, width), nn.Linear(width, d_model)
        self.activation, self.dropout = activation, nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "b n m"]) -> Float[Tensor, "b n m"]:
        """Widen, apply the nonlinearity, drop, narrow.

        :param x: one vector for each token, (b, n, d_model).
        """
        check_floating(3, x=x)
        if x.shape[-1] != getattr(self.widen, "in_features", x.shape[-1]):
            raise ValueError(f"x of shape {tuple(x.shape)} has {x.shape[-1]} channels, not {self.widen.in_features}")
        weight = weight_of(self.widen)
        if weight is not None:
            check_like_weights("x", x, weight, self.widen)
        return self.narrow(self.dropout(ACTIVATIONS[self.activation](self.widen(x))))

    @checked
    def cost(self, b: int, n: int) -> Cost:
        """Count one call on paper.

        :param b: how many sequences are in the batch.
        :param n: how many tokens each has.
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

    :Shapes: returns (b, n, d_model).
    :Source: He et al. 2016 for the sum; Xiong et al. 2020 for pre-norm and post-norm.
    :Taught in: in_the_transformer, positions, depth_and_norms.
    """

    @checked
    def __init__(self, d_model: int, norm: Callable[[int], nn.Module], norm_first: bool, dropout: float) -> None:
        """Make the norm.

        :param d_model: the width of input and output.
        :param norm: a function that makes a norm from the width.
        :param norm_first: whether the norm comes before the part (pre-norm) instead of after the sum (post-norm).
        :param dropout: the share of what the part adds that is dropped in training.
        """
        super().__init__()
        check_whole(d_model=d_model)
        check_dropout(dropout)
        self.norm, self.norm_first, self.dropout = made("norm", norm, d_model), norm_first, nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "b n m"], part: Callable[[Tensor], Tensor]) -> Float[Tensor, "b n m"]:
        """Return x + part(norm(x)), or norm(x + part(x)).

        :param x: one vector for each token, (b, n, d_model).
        :param part: a function from (b, n, d_model) to (b, n, d_model).
        """
        check_floating(3, x=x)
        check_functions(part=part)
        for weight in self.norm.parameters():
            check_like_weights("x", x, weight, self.norm)
        if self.norm_first:
            return x + self.dropout(part(self.norm(x)))
        return self.norm(x + self.dropout(part(x)))


class Stack(nn.ModuleList):
    """Call one layer after the other.

    :Shapes: returns (b, n, d_model).
    :Raises: ValueError where there is no layer.
    :Taught in: in_the_transformer.
    """

    @checked
    def __init__(self, layers: Iterable[nn.Module]) -> None:
        """Take the layers.

        :param layers: modules that each take what the one before returns, first one first; at least 1.
        """
        super().__init__(layers)
        if not len(self):
            raise ValueError("layers = []: a stack needs at least 1")

    def forward(
        self, x: Float[Tensor, "b n m"], *memory: Tensor, cache: ModelCache | None = None, **how: Tensor | bool | None
    ) -> Tensor:
        """Pass x through; what else a layer of its kind takes goes to every layer, caches to their own.

        :param x: one vector for each token, (b, n, d_model).
        :param memory: what the layers attend to beside x, one tensor, where they take it.
        :param cache: of this stack, by :meth:`new_cache`; no cache unless given.
        :param how: keywords of the layers, such as ``mask``.
        """
        check_kind_of_cache(cache, ModelCache)
        for layer, own in zip(self, cache or [None] * len(self), strict=True):
            x = layer(x, *memory, cache=own, **how)
        return x

    @checked
    def new_cache(self, capacity: int = 1024, padding: Tensor | list[int] | None = None) -> ModelCache:
        """Make an empty cache for every layer.

        :param capacity: in positions; 1024 unless given.
        :param padding: how many positions in front of each sequence are padding, (b,); none unless given.
        """
        layers: Iterable[Any] = self
        return ModelCache(layer.new_cache(capacity, padding) for layer in layers)
