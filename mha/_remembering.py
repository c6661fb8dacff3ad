"""What feedback attention remembers, and what it refuses. Public through :mod:`mha.feedback`."""

from collections.abc import Callable

import torch
from torch import Tensor

from mha._memory import MemoryCache
from mha.cache import ModelCache


class FeedbackMemory(MemoryCache):
    """Keep the keys and values of all earlier steps, with their gradients: training runs through them.

    Each call of a layer hands over one memory, ``layer(x, newest, cache=memory)``, and reads all so far. The same
    memory handed over again, by a layer that shares the projections, is kept once.

    Shapes: keys and values (b, h, t, d), where t grows by one a step.
    Raises: ValueError for a mask that has no column for each step.
    Taught in: chapter 20.
    """

    def __init__(self) -> None:
        super().__init__()
        self.length = 0

    def check(self, query: Tensor, key: Tensor, mask: Tensor | None, heads: int) -> None:
        """Refuse a mask that does not fit, before anything is kept."""
        total = self.length + (0 if key is self._memory else key.shape[1])
        if mask is not None and mask.shape[-1] not in (1, total):
            raise ValueError(f"mask {tuple(mask.shape)}: give it a column for each of the {total} steps in the memory")

    def recall(self, key: Tensor, fresh: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Add the keys and values of a new memory, and return all of them, oldest first."""
        if key is not self._memory:
            k, v = fresh()
            if self._found is not None:
                k, v = (torch.cat(pair, 2) for pair in zip(self._found, (k, v), strict=True))
            self._memory, self._found, self.length = key, (k, v), k.shape[2]
        return self._found


class FeedbackCache(ModelCache):
    """Where a feedback stack stands: the memory of each layer, and the newest one, which no layer has read yet.

    Taught in: chapter 20.
    """

    length = 0  # words fed so far: the memories of the layers are one step behind
    newest: Tensor | None = None

    def mask(self, new: int) -> None:
        """Hide nothing: this cache knows of no filling."""


def check_reading(key: Tensor | None, cache: object, is_causal: bool) -> None:
    """Refuse a call without a memory, and a cache that keeps something else."""
    if key is None:
        raise ValueError(
            "a feedback layer never looks at the present word, only at the memory of earlier steps: call "
            "layer(x, memory); at the first step there is none, and nothing to call"
        )
    if is_causal:
        raise ValueError("is_causal with a separate key: a memory holds earlier steps only and has no future to hide")
    if cache is not None and not isinstance(cache, FeedbackMemory):
        raise ValueError(
            f"{type(cache).__name__} keeps the keys of this layer's own words, but feedback reads what all layers "
            "made of them: use layer.new_cache()"
        )


def check_tables(heads: int, steps: int, keys: Tensor) -> None:
    """Refuse a memory that the tables of positions do not reach."""
    if keys.shape[1] != heads:
        raise ValueError(f"the tables belong to {heads} heads, but {keys.shape[1]} came: keep the layer in one process")
    if keys.shape[2] > steps:
        raise ValueError(
            f"the memory holds {keys.shape[2]} steps, but the tables know {steps}: make the layer with "
            f"steps={keys.shape[2]} or more"
        )
