"""The two products that say what a head can do: which tokens it compares as alike, and what it writes.

:Taught in: output_projection, reading_heads.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from mha.checks import check_finite, checked
from mha.layers.multi_head import Heads


@checked
@torch.no_grad()
def qk_circuit(layer: Heads) -> Float[Tensor, "h m mk"]:
    """Fold the query and key projections of each head into one matrix: score = x_i · M · x_j.

    Biases, and positions inside the layer, are not part of it.

    :param layer: any layer with heads.
    :Source: Elhage et al. 2021, section "Attention heads as information movement".
    :Taught in: reading_heads.
    """
    q, k = _cut(layer.W_q.weight, layer), _cut(layer.W_k.weight, layer)
    return q.mT @ k / math.sqrt(layer.d_head)


@checked
@torch.no_grad()
def ov_circuit(layer: Heads) -> Float[Tensor, "h m mv"]:
    """Fold the value projection of each head and its part of the output projection: written = M · x_j.

    Biases are not part of it.

    :param layer: any layer with heads.
    :Source: Elhage et al. 2021, section "Attention heads as information movement".
    :Taught in: reading_heads.
    """
    out = layer.W_o.weight.unflatten(1, (layer.heads, layer.d_head)).transpose(0, 1)
    return out @ _cut(layer.W_v.weight, layer)


@checked
def copying(circuits: Float[Tensor, "h m m"]) -> Float[Tensor, "h"]:
    """Say whether a head writes what it reads: sum of eigenvalues over sum of their sizes, from −1 to 1.

    Near 1 what is written points to where what was read pointed, near 0 a random map. A circuit of zeros gives 0.

    :param circuits: one square matrix for each head, such as of :func:`ov_circuit`, (h, m, m).
    :Source: Elhage et al. 2021, section "Detecting copying behavior"; there with the token embeddings on both sides.
    :Taught in: reading_heads.
    """
    if circuits.shape[1] != circuits.shape[2]:
        raise ValueError(f"circuits have shape {tuple(circuits.shape)}: each must be square, from tokens to tokens")
    check_finite(circuits=circuits)
    values = torch.linalg.eigvals(circuits)
    return values.sum(-1).real / values.abs().sum(-1).clamp_min(torch.finfo(circuits.dtype).tiny)


def _cut(weight: Tensor, layer: Heads) -> Tensor:
    """Split a projection into heads (h, d, m); shared heads are repeated for every query head that uses them."""
    cut = weight.unflatten(0, (-1, layer.d_head))
    return cut.repeat_interleave(layer.heads // len(cut), 0)
