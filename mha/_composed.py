"""What composed attention keeps between calls, refuses, and costs."""

from dataclasses import replace

from torch import Tensor, nn

from mha._count import Cost, Part, count_linear
from mha.cache import KeyValueCache


class ComposedCache(KeyValueCache):
    """Remember keys, values, and how each position mixes the heads.

    Costs: 2·h·(2·r + 1) numbers for each position more than a :class:`mha.KeyValueCache`, with h heads and rank r.
    Shapes: pieces (b, 2·r + 1, h, n) at both places, stored with the positions last.
    Raises: ValueError as KeyValueCache, and where the pieces do not continue those in the cache.
    Source: Xiao et al. 2024, released code, whose cache keeps the whole h × h matrix of each position.
    Taught in: chapter 17.
    """

    def __init__(self, capacity: int = 1024, filling: Tensor | list[int] | None = None) -> None:
        """Reserve room for ``capacity`` positions; ``filling`` is that of :class:`mha.KeyValueCache`."""
        super().__init__(capacity, filling)
        self._pieces = KeyValueCache(capacity)

    @property
    def bytes(self) -> int:
        """How much memory is taken, pieces included: all of it at the first call."""
        return super().bytes + self._pieces.bytes

    def append_pieces(self, before: Tensor, after: Tensor) -> list[Tensor]:
        """Store the pieces of the positions whose keys were appended last, and return those of all positions."""
        self._pieces.length = self.length - before.shape[-1]
        try:
            stored = self._pieces.append(before.flatten(1, 2)[..., None], after.flatten(1, 2)[..., None])
        except ValueError:
            self.length = self._pieces.length  # a refused call leaves the cache as it was
            raise
        return [one[..., 0].unflatten(1, before.shape[1:3]) for one in stored]


def check_rank(rank: int, heads: int) -> int:
    """Return the rank; refuse one that no matrix of this size has."""
    if not 1 <= rank <= heads:
        raise ValueError(
            f"rank = {rank} for {heads} heads: a matrix of {heads} × {heads} has rank 1 to {heads}; the paper takes 2"
        )
    return rank


def check_serves(cache: object) -> None:
    """Refuse a cache that would lose how earlier positions mix the heads."""
    if isinstance(cache, KeyValueCache) and not isinstance(cache, ComposedCache):
        raise ValueError(
            f"{type(cache).__name__} keeps keys and values, but this layer also needs how each earlier word mixes the "
            "heads: use layer.new_cache(), which makes a ComposedCache"
        )


def count_composition(place: nn.Module, heads: int, rank: int, rows: tuple[int, int, int]) -> dict[str, Part]:
    """Count one place: making the weights of ``rows`` queries and keys, then mixing as many scores as there are."""
    queries, keys, scores = rows
    size = place.base.element_size()
    making = Part(2 * queries * rank * heads**2, size * queries * (3 * rank * heads + 2 * heads**2))
    for side, count in ((place.of_query, queries), (place.of_key, keys)):
        making = sum((count_linear(one, count) for one in (side.widen, side.narrow, side.gate)), making)
    pieces = (queries * heads + scores // (queries * heads) * (2 * rank + 1)) * heads
    return {"make": making, "mix": Part(2 * scores * (heads + 2 * rank), size * (2 * scores + pieces))}


def add_compositions(plain: Cost, layer: nn.Module, b: int, i: int, j: int, fresh: int) -> Cost:
    """Add both places to the cost of plain heads."""
    size, scores, parts = layer.W_q.weight.element_size(), b * layer.heads * i * j, dict(plain.parts)
    for name, place in (("before", layer.before), ("after", layer.after)):
        counted = count_composition(place, layer.heads, layer.rank, (b * i, b * fresh, scores))
        parts |= {f"{step} {name}": part for step, part in counted.items()}
    more = sum(p.numel() for place in (layer.before, layer.after) for p in place.parameters())
    kept = size * b * j * 2 * layer.heads * (2 * layer.rank + 1)
    return replace(
        plain,
        parts=parts,
        parameters=plain.parameters + more,
        weights=plain.weights + size * more,
        cache=plain.cache + kept,
        peak=plain.peak + 2 * size * scores,
    )
