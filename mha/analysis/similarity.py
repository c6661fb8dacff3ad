"""How alike heads are: in where they attend, and in their outputs.

:Taught in: reading_heads.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from mha.checks import check_finite, checked


@checked
def divergence(weights: Float[Tensor, "b h i j"]) -> Float[Tensor, "h h"]:
    """Compare where heads attend, by the Jensen–Shannon divergence: 0 for the same weights, 1 for no common key.

    It is the mean over queries, in bits.

    :param weights: attention weights, (b, h, i, j); for heads of several layers put side by side with torch.cat.
    :Source: Clark et al. 2019, section 6.
    :Differs from the paper: the mean over queries instead of the sum, bits instead of nats.
    :Differs from the released code: nothing is added to the weights before the logarithm.
    :Taught in: reading_heads.
    """
    check_finite(weights=weights)
    weights = weights.double()  # of nearly equal heads nothing but rounding is left otherwise
    own = -torch.special.xlogy(weights, weights).sum(-1)
    rows = []
    for h in range(weights.shape[1]):
        middle = (weights + weights[:, h : h + 1]) / 2
        both = -torch.special.xlogy(middle, middle).sum(-1)
        rows.append((both - (own + own[:, h : h + 1]) / 2).mean((0, 2)))
    return (torch.stack(rows) / math.log(2)).clamp(0, 1)


@checked
def kernel_alignment(heads: Float[Tensor, "b h i d"]) -> Float[Tensor, "h h"]:
    """Compare head outputs, by linear CKA: 1 where one is a rotated and scaled copy of the other, 0 for nothing.

    Every token is one sample; their number should be well above d, or chance alone makes heads look alike. A head
    that reads the same everywhere is like nothing, not even itself: 0.

    :param heads: the head outputs, as ``seen.heads`` shows them, (b, h, i, d).
    :Source: Kornblith et al. 2019, section 3.
    :Taught in: reading_heads.
    """
    check_finite(heads=heads)
    x = heads.transpose(0, 1).flatten(1, 2).double()
    x = x - x.mean(1, keepdim=True)
    cross = torch.einsum("gnc,hnd->ghcd", x, x).square().sum((2, 3))
    size = cross.diagonal().sqrt()
    return cross / (size[:, None] * size).clamp_min(torch.finfo(torch.float64).tiny)
