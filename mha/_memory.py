"""The cache of cross-attention: a memory that does not grow. Public as :class:`mha.MemoryCache`."""

from collections.abc import Callable

from torch import Tensor


class MemoryCache:
    """Remember the keys and values of a memory that does not grow, such as an encoder's output.

    Hand it to a cross-attention layer, ``layer(x_new, memory, cache=cache)``: the memory is projected at the first
    call only.

    Raises: ValueError where another memory is handed in later, or where gradients are asked for.
    Taught in: chapter 07.
    """

    length = 0  # the queries of cross-attention do not continue the keys

    def __init__(self) -> None:
        self._memory: Tensor | None = None
        self._found: tuple[Tensor, Tensor] | None = None

    def check(self, query: Tensor, key: Tensor, mask: Tensor | None, heads: int) -> None:
        """Refuse nothing: a memory has no order of its own, and nothing is stored that a refused call could spoil."""

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
