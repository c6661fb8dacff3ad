"""Keys and values of the past, kept so that they are not computed again for every new word.

Taught in: chapters 03 and 12.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


class KeyValueCache:
    """Remember the keys and values of one layer, for reading one word, or one chunk, at a time.

    Hand it to a layer, ``layer(x_new, cache=cache, is_causal=True)``: the new queries see everything fed so far.

    Shapes: keys (b, h, n, d) and values (b, h, n, c), where n grows with each call up to ``capacity``.
    Raises: ValueError where a chunk does not fit the cache or overflows it, or where gradients are asked for.
    Taught in: chapters 03 and 12.
    """

    def __init__(self, capacity: int = 1024) -> None:
        """Reserve room for ``capacity`` positions; memory is taken at the first call."""
        if capacity < 1:
            raise ValueError(f"capacity = {capacity}: it must be at least 1")
        self.capacity, self.length = capacity, 0
        self._k: Tensor | None = None
        self._v: Tensor | None = None

    def recall(self, _key: Tensor, fresh: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Make the new keys and values, store them behind the old ones, and return all of them."""
        return self.append(*fresh())

    def append(
        self, k: Float[Tensor, "b h n d"], v: Float[Tensor, "b h n c"]
    ) -> tuple[Float[Tensor, "b h t d"], Float[Tensor, "b h t c"]]:
        """Store the new keys and values and return all of them, oldest first."""
        end = self.length + k.shape[2]
        if k.requires_grad or v.requires_grad:
            raise ValueError("a cache is for inference and stores no gradients: call the layer under torch.no_grad()")
        if end > self.capacity:
            raise ValueError(
                f"the cache holds {self.capacity} positions, but {end} were fed: make it with capacity={end}"
            )
        if self._k is None:
            self._k, self._v = _room(k, self.capacity), _room(v, self.capacity)
        if _row(k) != _row(self._k) or _row(v) != _row(self._v):
            raise ValueError(
                f"keys {tuple(k.shape)} and values {tuple(v.shape)} of {k.dtype} do not continue what the cache was "
                f"begun with (batch, heads, width, type {_row(self._k)} and {_row(self._v)}): use a new cache, one for "
                "each layer"
            )
        self._k[:, :, self.length : end], self._v[:, :, self.length : end] = k, v
        self.length = end
        return self._k[:, :, :end], self._v[:, :, :end]


class MemoryCache:
    """Remember the keys and values of a memory that does not grow, such as an encoder's output.

    Hand it to a cross-attention layer, ``layer(x_new, memory, cache=cache)``: the memory is projected at the first
    call only.

    Raises: ValueError where another memory is handed in later, or where gradients are asked for.
    Taught in: chapter 07.
    """

    length = 0  # the queries of cross-attention do not continue the keys

    def __init__(self) -> None:
        """Begin empty; the first call fills it."""
        self._memory: Tensor | None = None
        self._found: tuple[Tensor, Tensor] | None = None

    def recall(self, key: Tensor, fresh: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Make keys and values the first time, and return the same ones ever after."""
        if self._found is None:
            k, v = fresh()
            if k.requires_grad or v.requires_grad:
                raise ValueError("a cache stores no gradients: call the layer under torch.no_grad()")
            self._memory, self._found = key, (k, v)
        if key is not self._memory:
            raise ValueError(
                f"this cache was filled from a memory of shape {tuple(self._memory.shape)}, and now another one of "
                f"shape {tuple(key.shape)} came: use a new cache for each memory and each layer"
            )
        return self._found


@dataclass
class DecoderCache:
    """The two caches of one decoder layer: its own words so far, and the memory. Taught in: chapter 07."""

    own: KeyValueCache
    memory: MemoryCache

    @property
    def length(self) -> int:
        """How many words were fed so far."""
        return self.own.length


class ModelCache(list):
    """The caches of a whole stack of layers, first layer first. Taught in: chapter 07."""

    @property
    def length(self) -> int:
        """How many words were fed so far."""
        return self[0].length


def _room(x: Tensor, capacity: int) -> Tensor:
    return torch.empty(*x.shape[:2], capacity, x.shape[3], dtype=x.dtype, device=x.device)


def _row(x: Tensor) -> tuple[int, int, int, torch.dtype]:
    return x.shape[0], x.shape[1], x.shape[3], x.dtype
