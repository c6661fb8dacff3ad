"""Keys and values of all heads made from one short vector per token: how to find it, and two ways to read from it.

    k_h = W_k,h c      v_h = W_v,h c      q · (W_k,h c) = (W_k,hᵀ q) · c      Σ_j p_j W_v,h c_j = W_v,h Σ_j p_j c_j

:Taught in: compress.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from mha.checks import check_finite, check_like_weights, check_whole, checked

RIDGE = 1e-2  # added to the tokens in every direction, as a share of their usual size


class Latent(NamedTuple):
    """Two projections in three factors: ``keys @ down`` and ``values @ down``.

    :param down: makes the latent, (c, m).
    :param keys: makes keys from it, (k, c).
    :param values: makes values from it, (v, c).
    :Taught in: compress.
    """

    down: Tensor
    keys: Tensor
    values: Tensor


@checked
def fit_latent(
    w_k: Float[Tensor, "k m"], w_v: Float[Tensor, "v m"], d_latent: int, tokens: Float[Tensor, "... m"] | None = None
) -> Latent:
    """Find the shortest way through ``d_latent`` numbers that changes two projections least.

    It cuts the singular values of both, stacked: no other factors of that width come closer to the two
    together (Frobenius norm). With ``tokens``, the keys and values of these tokens come closest, taken together,
    and not the matrices: what no token ever shows need not be kept. Give thousands of tokens, which the layer really
    reads; a hundredth of their usual size is added to them in every direction, so that few of them do no harm. From the
    rank of the pair on nothing changes.

    :param w_k: the keys' weight matrix as ``nn.Linear`` stores it, (k, m).
    :param w_v: that of the values, (v, m).
    :param d_latent: the width of the latent, c.
    :param tokens: embeddings that the layer reads, (..., m); all directions count alike unless given.
    :Shapes: in the result the rows of ``down`` are orthonormal.
    :Raises: ValueError where matrices and tokens are of different width or type, where ``d_latent`` is below 1 or above
        that width, where there are no tokens or only zeros.
    :Source: Eckart and Young 1936.
    :Taught in: compress.
    """
    check_finite(w_k=w_k, w_v=w_v)
    if w_k.shape[1] != w_v.shape[1] or w_k.dtype != w_v.dtype or w_k.device != w_v.device:
        raise ValueError(
            f"w_k {tuple(w_k.shape)} {w_k.dtype} and w_v {tuple(w_v.shape)} {w_v.dtype} must read the same tokens: one "
            "number of columns, one type, one device"
        )
    if 0 in (*w_k.shape, *w_v.shape):
        raise ValueError(f"w_k {tuple(w_k.shape)} and w_v {tuple(w_v.shape)}: neither may be empty")
    if not 1 <= d_latent <= w_k.shape[1]:
        raise ValueError(f"d_latent = {d_latent}: 1 to {w_k.shape[1]}, the width of a token, where nothing changes")
    down, up = best_factors(torch.cat([w_k, w_v]), d_latent, tokens)
    keys, values = up.split([len(w_k), len(w_v)])
    return Latent(down, keys, values)


def best_factors(matrix: Tensor, width: int, tokens: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the factors ``down`` (width, m) and ``up`` (r, width) whose product comes closest to a matrix (r, m).

    :param matrix: (r, m), as ``nn.Linear`` stores it.
    :param width: of the factors, 1 to m.
    :param tokens: (..., m); where they are given, the outputs for these tokens come closest.
    :Raises: ValueError for tokens of another width or type, and where there are none or only zeros.
    """
    shape = None if tokens is None else _shape_of(tokens, matrix)
    seen = matrix.double() if shape is None else matrix.double() @ shape.mT
    left, sizes, right = torch.linalg.svd(seen, full_matrices=len(seen) < matrix.shape[1])
    up = torch.zeros(len(left), matrix.shape[1], dtype=left.dtype, device=left.device)
    up[:, : len(sizes)] = left[:, : len(sizes)] * sizes
    down, up = right[:width], up[:, :width]
    if shape is not None:  # back from tokens of equal size in all directions, and orthonormal again
        down, turn = torch.linalg.qr(torch.linalg.solve_triangular(shape, down.mT, upper=True))
        down, up = down.mT, up @ turn.mT
    return down.to(matrix), up.to(matrix)


def _shape_of(tokens: Tensor, weight: Tensor) -> Tensor:
    """Return the triangle R of tokens = QR: projections of the tokens are as large as those of its rows."""
    check_like_weights("tokens", tokens, weight)
    check_finite(tokens=tokens)
    if tokens.shape[-1:] != weight.shape[1:] or not tokens.any():
        raise ValueError(
            f"tokens of shape {tuple(tokens.shape)}: give tokens of {weight.shape[1]} numbers, as the matrices read "
            "them, and not only zeros"
        )
    rows = tokens.reshape(-1, tokens.shape[-1]).double()
    little = RIDGE * rows.square().sum().div(rows.shape[1]).sqrt()
    return torch.linalg.qr(  # type: ignore[no-any-return]
        torch.cat([rows, little * torch.eye(rows.shape[1]).to(rows)])
    ).R


class Operations(NamedTuple):
    """What reading takes in each of the two forms.

    :param expanded: FLOPs where all keys and values are made anew.
    :param absorbed: FLOPs where the queries are brought to the width of the latents.
    :Taught in: compress.
    """

    expanded: int
    absorbed: int


@checked
def count_forms(i: int, j: int, heads: int, d_head: int, d_latent: int, d_rotary: int = 0) -> Operations:
    """Count the FLOPs of reading with i queries from j latents that are there already, for one sequence.

    Expanded, keys and values of all j tokens are made anew. Absorbed, queries are brought to the width of the latents,
    and what was read is brought back: i tokens instead of j, but each score is longer.

    :param i: how many queries.
    :param j: how many latents.
    :param heads: how many heads.
    :param d_head: the width of a head.
    :param d_latent: the width of a latent.
    :param d_rotary: channels of a head that carry rotary positions beside it; 0 unless given.
    :Raises: ValueError for a number below 1 (``d_rotary``: below 0).
    :Taught in: compress.
    """
    check_whole(i=i, j=j, heads=heads, d_head=d_head, d_latent=d_latent)
    check_whole(0, d_rotary=d_rotary)
    between = 4 * heads * d_head * d_latent  # W_k and W_v of one token
    expanded = between * j + 2 * i * j * heads * (2 * d_head + d_rotary)
    absorbed = between * i + 2 * i * j * heads * (2 * d_latent + d_rotary)
    return Operations(expanded, absorbed)
