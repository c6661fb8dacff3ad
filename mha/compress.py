"""A trained layer with fewer channels to compare in: its heads share what they have in common.

Taught in: chapter 14.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mha.attention import MultiHeadAttention
from mha.collaborative import CollaborativeAttention
from mha.decompose import fit_shared


@torch.no_grad()
def collaborate(layer: MultiHeadAttention, d_shared: int, *, rounds: int = 200) -> CollaborativeAttention:
    """Give a trained layer ``d_shared`` shared channels instead of heads · d, so that its scores change little.

    The products W_qᵀ W_k of all heads are fitted by :func:`fit_shared`; values, outputs, biases and the temperature
    stay. With heads · d channels nothing changes.

    Raises: ValueError where ``d_shared`` is below 1 or above heads · d, and where the layer is not a plain one.
    Source: Cordonnier et al. 2020, section 4.
    Differs from the released code: it starts from singular vectors, not from random ones, and ``scale`` stays.
    Taught in: chapter 14.
    """
    new = CollaborativeAttention.from_plain(layer)
    if not 1 <= d_shared <= new.d_shared:
        raise ValueError(f"d_shared = {d_shared}: 1 to {new.d_shared}, where nothing changes any more")
    if d_shared == new.d_shared:
        return new
    terms = fit_shared(products(layer).double().cpu(), d_shared, rounds=rounds)
    content = new.W_k.weight[new.d_shared :]
    new.d_shared, new.fusion = d_shared, "share"
    new.W_q = _linear(terms.left.T.to(content))
    new.W_k = _linear(torch.cat([terms.right.T.to(content), content]))
    new.mixing = nn.Parameter(terms.mixing.to(content))
    return new


def products(layer: MultiHeadAttention) -> Float[Tensor, "h m k"]:
    """Multiply the projections of each head: what it compares, W_qᵀ W_k. Taught in: chapter 14."""
    q, k = (linear.weight.unflatten(0, (layer.heads, -1)) for linear in (layer.W_q, layer.W_k))
    return q.mT @ k


def _linear(weight: Tensor) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")  # draws no numbers
    linear.weight = nn.Parameter(weight)
    return linear
