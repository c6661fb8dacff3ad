"""Keys and values of all heads made from one short vector a word: how to find it, and two ways to read from it.

    k_h = W_k,h c      v_h = W_v,h c      q · (W_k,h c) = (W_k,hᵀ q) · c      Σ_j p_j W_v,h c_j = W_v,h Σ_j p_j c_j

Taught in: compress.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from mha.checks import check_finite, check_whole, checked


class Latent(NamedTuple):
    """Two projections in three factors: ``keys @ down`` and ``values @ down``.

    Shapes: down (c, m), keys (k, c), values (v, c).
    Taught in: compress.
    """

    down: Tensor
    keys: Tensor
    values: Tensor


@checked
def fit_latent(w_k: Float[Tensor, "k m"], w_v: Float[Tensor, "v m"], d_latent: int) -> Latent:
    """Find the shortest way through ``d_latent`` numbers that changes two projections least.

    It cuts the singular values of both, laid below each other: no other factors of that width come closer to the two
    together (Frobenius norm). From the rank of the pair on nothing changes.

    Shapes: weights as ``nn.Linear`` stores them; in the result the rows of ``down`` are orthonormal.
    Raises: ValueError where the two read words of different width, where ``d_latent`` is below 1 or above that width.
    Source: Eckart and Young 1936.
    Taught in: compress.
    """
    check_finite(w_k=w_k, w_v=w_v)
    if w_k.shape[1] != w_v.shape[1] or w_k.dtype != w_v.dtype or w_k.device != w_v.device:
        raise ValueError(
            f"w_k {tuple(w_k.shape)} {w_k.dtype} and w_v {tuple(w_v.shape)} {w_v.dtype} must read the same words: one "
            "number of columns, one type, one device"
        )
    if 0 in (*w_k.shape, *w_v.shape):
        raise ValueError(f"w_k {tuple(w_k.shape)} and w_v {tuple(w_v.shape)}: neither may be empty")
    if not 1 <= d_latent <= w_k.shape[1]:
        raise ValueError(f"d_latent = {d_latent}: 1 to {w_k.shape[1]}, the width of a word, where nothing changes")
    left, sizes, right = torch.linalg.svd(torch.cat([w_k, w_v]).double(), full_matrices=True)
    up = torch.zeros(len(left), w_k.shape[1], dtype=left.dtype, device=left.device)
    up[:, : len(sizes)] = left[:, : len(sizes)] * sizes
    keys, values = up[:, :d_latent].to(w_k).split([len(w_k), len(w_v)])
    return Latent(right[:d_latent].to(w_k), keys, values)


class Operations(NamedTuple):
    """What reading takes in each of the two forms. Taught in: compress."""

    expanded: int
    absorbed: int


@checked
def count_forms(i: int, j: int, heads: int, d_head: int, d_latent: int, d_rotary: int = 0) -> Operations:
    """Count the operations of reading with i queries from j latents that are there already, for one text.

    Expanded, keys and values of all j words are made anew. Absorbed, queries are brought to the width of the latents,
    and what was read is brought back: i words instead of j, but each score is longer.

    Raises: ValueError for a number below 1 (``d_rotary``: below 0).
    Taught in: compress.
    """
    check_whole(i=i, j=j, heads=heads, d_head=d_head, d_latent=d_latent)
    check_whole(0, d_rotary=d_rotary)
    between = 4 * heads * d_head * d_latent  # W_k and W_v of one word
    expanded = between * j + 2 * i * j * heads * (2 * d_head + d_rotary)
    absorbed = between * i + 2 * i * j * heads * (2 * d_latent + d_rotary)
    return Operations(expanded, absorbed)
