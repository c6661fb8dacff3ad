"""The two products that say what a head can do: which tokens it compares as alike, and what it writes.

:Taught in: output_projection, reading_heads.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from mha.checks import check_finite, checked
from mha.layers.multi_head import Heads
from mha.layers.projections import as_linear


@checked
@torch.no_grad()
def qk_circuit(layer: Heads) -> Float[Tensor, "h m mk"]:
    """Fold the query and key projections of each head into one matrix: score = x_i · M · x_j.

    Biases, and positions inside the layer, are not part of it.

    :param layer: a layer with heads, whose scores are products of queries and keys.
    :Raises: ValueError for other layers, and for norms of queries or keys.
    :Source: Elhage et al. 2021, section "Attention heads as information movement".
    :Taught in: reading_heads.
    """
    _check_products(layer, "qk_circuit")
    q, k = (_cut(_matrix(layer, name, "qk_circuit"), layer) for name in ("W_q", "W_k"))
    return q.mT @ k * (1 / math.sqrt(layer.d_head) if layer.scale is None else layer.scale)


@checked
@torch.no_grad()
def ov_circuit(layer: Heads) -> Float[Tensor, "h m mv"]:
    """Fold the value projection of each head and its part of the output projection: written = M · x_j.

    Biases are not part of it.

    :param layer: a layer with heads, whose outputs are weighted sums of values.
    :Raises: ValueError for other layers, such as those with gates.
    :Source: Elhage et al. 2021, section "Attention heads as information movement".
    :Taught in: reading_heads.
    """
    _check_products(layer, "ov_circuit")
    out = _matrix(layer, "W_o", "ov_circuit").unflatten(1, (layer.heads, layer.d_head)).transpose(0, 1)
    return out @ _cut(_matrix(layer, "W_v", "ov_circuit"), layer)


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


def _check_products(layer: Heads, circuit: str) -> None:
    """Refuse a layer whose heads do more than one matrix can say."""
    more = {
        "its queries, keys and values are not made by the four projections alone": (
            type(layer)._project is not Heads._project
        ),
        "its head outputs are multiplied by gates, which depend on the token": (
            circuit == "ov_circuit" and layer.is_gated
        ),
        "an average of the tokens before is added to its head outputs": (
            circuit == "ov_circuit" and getattr(layer, "average", False)
        ),
        "its scores are changed after queries and keys are compared": (
            circuit == "qk_circuit" and layer.changes().scores is not None
        ),
        "its weights are changed after the softmax": circuit == "ov_circuit" and layer.changes().weights is not None,
        str(layer.beyond_steps): layer.beyond_steps is not None,
    }
    for reason, holds in more.items():
        if holds:
            raise _refusal(circuit, layer, reason)


def _refusal(circuit: str, layer: Heads, reason: str) -> ValueError:
    return ValueError(
        f"{circuit} of {type(layer).__name__}: {reason}, so no one matrix for each head says what it does. "
        "Measure on tokens instead, with mha.watch and layer.contributions"
    )


def _matrix(layer: Heads, name: str, circuit: str) -> Tensor:
    """Return the matrix of a projection, or of what is in its place."""
    part = getattr(layer, name)
    try:
        return as_linear(part, name).weight
    except ValueError as error:
        reason = f"its {name} is a {type(part).__name__}, which is no linear map (such as one with a norm after it)"
        raise _refusal(circuit, layer, reason) from error


def _cut(weight: Tensor, layer: Heads) -> Tensor:
    """Split a projection into heads (h, d, m); shared heads are repeated for every query head that uses them."""
    cut = weight.unflatten(0, (-1, layer.d_head))
    return cut.repeat_interleave(layer.heads // len(cut), 0)
