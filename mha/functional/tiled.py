"""Attention without ever materializing all weights: keys come in tiles, and a running softmax corrects what was read.

:Taught in: counting_cost.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mha.checks import check_whole, checked
from mha.functional.attention import check_qkv, check_visible
from mha.functional.core import visible


@checked
def tiled_attention(
    q: Float[Tensor, "*l i d"],
    k: Float[Tensor, "*l j d"],
    v: Float[Tensor, "*l j c"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    is_causal: bool = False,
    tile: int = 64,
) -> Float[Tensor, "*l i c"]:
    """Read from the values like :func:`mha.attend`, holding the weights of one tile of keys at a time.

    Each query keeps three things: the largest score so far, the sum of exp(score − largest), and what it has read.
    When a larger score turns up, the last two shrink by exp(old largest − new largest), and the next tile is added.

    :param q: the queries, (…, i, d).
    :param k: the keys, (…, j, d).
    :param v: the values, (…, j, c).
    :param mask: (i, j) or (b, h, i, j), True = may attend; every key may be attended to unless given.
    :param is_causal: whether each query attends only to itself and to what came before; False unless given.
    :param tile: how many keys are in a tile; 64 unless given.
    :Costs: (…, i, tile) numbers of memory for weights instead of (…, i, j); the same FLOPs.
    :Shapes: returns the head output (…, i, c).
    :Raises: ValueError for a tile below 1, and what :func:`mha.attend` refuses.
    :Source: Milakov and Gimelshein 2018 for the running softmax; Dao et al. 2022, algorithm 1, for the tiles.
    :Differs from the released code: queries are not cut into tiles, and the backward pass is torch's own, which stores.
    :Taught in: counting_cost.
    """
    check_qkv(q, k, v)
    check_whole(tile=tile)
    check_visible(q, k, mask)
    mask = visible(q, k, mask, is_causal)
    largest = q.new_full((*q.shape[:-1], 1), -math.inf)
    total, read = torch.zeros_like(largest), v.new_zeros(*q.shape[:-1], v.shape[-1])
    for start in range(0, k.shape[-2], tile):
        here = slice(start, start + tile)
        scores = q / math.sqrt(q.shape[-1]) @ k[..., here, :].mT
        if mask is not None:
            scores = scores.masked_fill(~(mask[..., here] if mask.shape[-1] > 1 else mask), -math.inf)
        old, largest = largest, torch.maximum(largest, scores.amax(-1, keepdim=True))
        floor = largest.clamp(min=torch.finfo(q.dtype).min)  # nothing seen yet: −inf − −inf would be NaN
        weights, shrink = (scores - floor).exp(), (old - floor).exp()
        total = shrink * total + weights.sum(-1, keepdim=True)
        read = shrink * read + weights @ v[..., here, :]
    return read / total.masked_fill(total == 0, 1)
