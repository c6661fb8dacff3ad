"""What merged attention remembers between calls, and what it refuses. Public through :mod:`mha.merged`."""

from jaxtyping import Float
from torch import Tensor

from mha._memory import MemoryCache
from mha.masks import check_mask


class MergedCache(MemoryCache):
    """Remember the memory's keys and values, and the sum of the own values so far: one vector a head.

    Hand it to a layer, ``layer(x_new, memory, cache=cache)``; it does not grow with the words.

    Raises: ValueError as :class:`mha.MemoryCache`, and where gradients are asked for.
    Taught in: chapter 19.
    """

    def __init__(self) -> None:
        super().__init__()
        self.length = 0
        self._total: Tensor | None = None
        self._count: Tensor | None = None

    def mask(self, new: int) -> None:
        """Hide nothing: this cache knows of no filling."""

    def add(
        self, total: Float[Tensor, "b h n d"], count: Float[Tensor, "c 1 n 1"]
    ) -> tuple[Float[Tensor, "b h n d"], Float[Tensor, "c 1 n 1"]]:
        """Add what was summed before to the sums of a new chunk, and keep the last of them."""
        if total.requires_grad:
            raise ValueError("a cache stores no gradients: call the layer under torch.no_grad()")
        if self._total is not None:
            total, count = total + self._total, count + self._count
        self._total, self._count = total[:, :, -1:].clone(), count[:, :, -1:].clone()
        self.length += total.shape[2]
        return total, count


def check_width(d_model: int, vdim: int) -> None:
    """Refuse a memory that the same values cannot be made of."""
    if vdim != d_model:
        raise ValueError(
            f"vdim = {vdim}, but d_model = {d_model}: one W_v makes the values of the memory and of the own words, so "
            "both need one width; or say average=False"
        )


def check_call(query: Tensor, key: Tensor | None, own_mask: Tensor | None, cache: MemoryCache | None) -> None:
    """Refuse a call that has nothing to read, or a cache without a running sum."""
    if key is None:
        raise ValueError("a merged layer reads a memory and averages its own words: call layer(x, memory)")
    if cache is not None and not isinstance(cache, MergedCache):
        raise ValueError(f"{type(cache).__name__} keeps no running sum of the own words: use layer.new_cache()")
    if own_mask is not None:
        check_mask(own_mask[..., -query.shape[1] :], (query.shape[0], 1, 1, query.shape[1]), query.device)
