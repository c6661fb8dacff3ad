"""What makes a KV cache smaller after training: numbers of few bits, and keys that are dropped.

:Taught in: cache_and_sharing.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from mha.checks import check_finite, check_no_nan, check_whole, checked

MOST_BITS = 16  # codes of more bits are no smaller than the numbers that models compute with


@checked
def round_to_bits(x: Float[Tensor, "... n"], bits: int, *, along: int = -1, group: int | None = None) -> Tensor:
    """Round numbers to 2^bits equally spaced values between the smallest and the largest of their group.

    A cache would keep the codes, whole numbers from 0 to 2^bits − 1, and two numbers per group: the smallest, and the
    step between two codes. This returns what it would give back, smallest + step · code.

    :param x: finite numbers, such as keys or values (b, g, j, d).
    :param bits: of a code, 1 to 16.
    :param along: the axis along which numbers share their range: -1 for one range per token, -2 for one per channel;
        -1 unless given.
    :param group: how many neighbors on that axis share a range; all of them unless given.
    :Shapes: returns the shape of ``x``.
    :Raises: ValueError for numbers that are not finite, for bits or an axis out of range, and where groups of this
        size do not fill the axis.
    :Source: Liu et al. 2024, "KIVI", equation 1.
    :Taught in: cache_and_sharing.
    """
    check_whole(1, MOST_BITS, bits=bits)
    check_finite(x=x)
    if not -x.ndim <= along < x.ndim:
        raise ValueError(f"along = {along}: x {tuple(x.shape)} has axes {-x.ndim} to {x.ndim - 1}")
    n = x.shape[along]
    group = n if group is None else group
    check_whole(group=group)
    if n % group:
        raise ValueError(f"group = {group}: axis {along} has {n} numbers, which groups of {group} do not fill")
    groups = x.movedim(along, -1).unflatten(-1, (n // group, group))
    low = groups.amin(-1, keepdim=True)
    step = (groups.amax(-1, keepdim=True) - low) / (2**bits - 1)
    codes = ((groups - low) / step.where(step > 0, torch.ones_like(step))).round()
    rounded: Tensor = low + step * codes
    return rounded.flatten(-2).movedim(-1, along)


@checked
def heaviest_keys(
    weights: Float[Tensor, "b h i j"],
    kept: int,
    *,
    queries: int | None = None,
    smooth: int = 1,
    kv_heads: int | None = None,
) -> Bool[Tensor, "b g j"]:
    """Choose the keys that some queries attended to most: their weights are added up, and the largest sums stay.

    With all queries this is the measure of H2O; with the last few ones, the *observation window*, that of SnapKV. Heads
    that share keys must agree, so the sums of a group are added up. Of equal sums any may stay.

    :param weights: attention weights, of queries of the past.
    :param kept: how many keys stay for each KV head, 1 to j.
    :param queries: how many of the last queries are counted, 1 to i; all of them unless given.
    :param smooth: over how many neighbors, an odd number, the sums are averaged before the choice, so that a key keeps
        its neighbors; 1 unless given.
    :param kv_heads: how many KV heads the heads share, g; as many as heads unless given.
    :Shapes: returns (b, g, j), True where a key stays.
    :Raises: ValueError where a number is out of range, ``smooth`` is even, or the KV heads do not divide the heads.
    :Source: Zhang et al. 2023, "H2O"; Li et al. 2024, "SnapKV".
    :Differs from the papers: H2O chooses at every step, and keeps the newest keys beside the heaviest ones; SnapKV
        keeps its window too. This is the choice alone, made once.
    :Taught in: cache_and_sharing.
    """
    h, i, j = weights.shape[1:]
    queries, kv_heads = i if queries is None else queries, h if kv_heads is None else kv_heads
    check_whole(kept=kept, queries=queries, kv_heads=kv_heads, smooth=smooth)
    check_no_nan("weights", weights)
    for name, asked, there in ("kept", kept, j), ("queries", queries, i):
        if asked > there:
            what = "keys" if name == "kept" else "queries"
            raise ValueError(f"{name} = {asked}: weights {tuple(weights.shape)} are of {there} {what}")
    if h % kv_heads:
        raise ValueError(f"kv_heads = {kv_heads}: {h} heads cannot be shared out among {kv_heads} KV heads")
    if smooth % 2 == 0:
        raise ValueError(f"smooth = {smooth}: give an odd number, the key and as many neighbors on both sides")
    sums = weights[:, :, i - queries :].sum(2).unflatten(1, (kv_heads, h // kv_heads)).sum(2)
    if smooth > 1:
        sums = F.avg_pool1d(sums, smooth, stride=1, padding=smooth // 2, count_include_pad=False)
    chosen = sums.topk(kept, dim=-1).indices
    return torch.zeros_like(sums, dtype=torch.bool).scatter_(-1, chosen, True)
