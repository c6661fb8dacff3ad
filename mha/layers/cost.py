"""Counting what one call multiplies, moves and keeps.

:Taught in: counting_cost.
"""

from dataclasses import dataclass

from torch import nn

from mha.checks import checked
from mha.layers.inputs import Projecting


@dataclass(frozen=True)
class Part:
    """One step of a call: its FLOPs, and the bytes it must read or write.

    :Taught in: counting_cost.
    """

    flops: int
    moved: int

    @property
    def intensity(self) -> float:
        """FLOPs for each byte that is moved."""
        return self.flops / self.moved

    def __add__(self, other: "Part") -> "Part":
        return Part(self.flops + other.flops, self.moved + other.moved)


@dataclass(frozen=True)
class Cost:
    """What one call of a layer costs, counted on paper: FLOPs, bytes moved, parameters and memory.

    ``parts`` holds the steps by name. FLOPs are those of matrix products, a multiplication and an addition
    counted as two; a causal mask does not lower them, because a plain product makes hidden scores too. Bytes are the
    fewest that must move: each step reads its inputs once and writes its result once. ``weights`` (the parameters),
    ``cache`` (keys and values kept for the next call) and ``peak`` (temporary tensors at the fullest moment, without
    those of masks and positions) are bytes of memory.

    :Differs from the released code: torch's counter of FLOPs knows nothing of the fused kernel on a CPU; watch the
        layer, and it counts the same as this.
    :Taught in: counting_cost.
    """

    parameters: int
    parts: dict[str, Part]
    weights: int
    cache: int
    peak: int

    @property
    def total(self) -> Part:
        """All parts together."""
        return sum(self.parts.values(), Part(0, 0))

    @property
    def flops(self) -> int:
        """FLOPs of all parts."""
        return self.total.flops

    @property
    def moved(self) -> int:
        """Bytes that all parts read or write."""
        return self.total.moved

    @property
    def intensity(self) -> float:
        """FLOPs for each byte that is moved."""
        return self.total.intensity

    def __add__(self, other: "Cost") -> "Cost":
        """Cost of two calls, one after the other: only the larger of the two peaks counts."""
        parts = dict(self.parts)
        for name, part in other.parts.items():
            parts[name] = parts.get(name, Part(0, 0)) + part
        parameters, weights = self.parameters + other.parameters, self.weights + other.weights
        return Cost(parameters, parts, weights, self.cache + other.cache, max(self.peak, other.peak))


def count_linear(linear: nn.Linear, rows: int) -> Part:
    """Count a projection of ``rows`` vectors: the parameters are read once, whatever the number of rows.

    :param linear: the projection.
    :param rows: how many vectors it takes, over the whole batch.
    """
    wide = linear.in_features + linear.out_features
    numbers = rows * wide + count_weights(linear) if rows else 0
    return Part(2 * rows * linear.in_features * linear.out_features, numbers * linear.weight.element_size())


def count_weights(*linears: nn.Linear) -> int:
    """Count the parameters, biases included, from the sizes of the projections."""
    return sum((one.in_features + (one.bias is not None)) * one.out_features for one in linears)


@checked
def count_attention(
    layer: Projecting,
    b: int,
    i: int,
    j: int | None,
    fresh: int | None,
    *,
    heads: int = 1,
    kv_heads: int = 1,
    stored: bool = False,
) -> Cost:
    """Count a layer with the usual projections.

    :param layer: a layer with ``W_q``, ``W_k`` and ``W_v``, and perhaps ``W_o``.
    :param b: how many sequences are in the batch.
    :param i: how many queries each has.
    :param j: how many keys; i unless given.
    :param fresh: how many keys are projected, where a cache holds the others; all unless given.
    :param heads: how many heads attend; 1 unless given.
    :param kv_heads: how many KV heads they share; 1 unless given.
    :param stored: whether the weights are materialized.
    """
    j, fresh = _lengths(b, i, j, fresh)
    rows = {"W_q": b * i, "W_k": b * fresh, "W_v": b * fresh, "W_o": b * i}
    linears = {name: getattr(layer, name) for name in rows if hasattr(layer, name)}
    parts = {name: count_linear(linear, rows[name]) for name, linear in linears.items()}
    size, wide = layer.W_q.weight.element_size(), {name: linear.out_features for name, linear in linears.items()}
    scores = b * heads * i * j
    q, k, v = b * i * wide["W_q"], b * wide["W_k"], b * wide["W_v"]  # k and v for one position
    read, y = scores // (j * kv_heads) * wide["W_v"], rows["W_q"] * wide.get("W_o", 0)
    twice = 2 * scores if stored else 0  # written by one step and read by the next
    parts["scores"] = Part(2 * scores * wide["W_k"] // kv_heads, size * (q + k * j + twice))
    parts["read"] = Part(2 * scores * wide["W_v"] // kv_heads, size * (v * j + read + twice))
    kept = (k + v) * j if fresh == j else 0  # with a cache they live in the cache
    copies = twice + q + k * j  # a batched product copies what it multiplies
    then = max(y, copies) if stored else max(y, b * heads * i)  # the kernel stores one number for each query
    peak = max(q + (k + v) * fresh, q + kept + read + then)
    parameters = count_weights(*linears.values())
    return Cost(parameters, parts, size * parameters, size * (k + v) * j, size * peak)


def _lengths(b: int, i: int, j: int | None, fresh: int | None) -> tuple[int, int]:
    """Complete the numbers of keys and of newly projected ones; refuse lengths that no call can have."""
    j = i if j is None else j
    fresh = j if fresh is None else fresh
    if min(b, i, j) < 1 or not 0 <= fresh <= j:
        raise ValueError(f"b = {b}, i = {i}, j = {j}, fresh = {fresh}: at least 1, and 0 to {max(j, 0)} fresh keys")
    return j, fresh
