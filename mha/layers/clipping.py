"""Make the queries and keys of a trained layer smaller where its scores have grown too large (QK-Clip).

:Taught in: why_scale.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mha.checks import check_finite, check_number, check_tensor, checked
from mha.layers.gated import GatedAttention
from mha.layers.grouped import GroupedAttention
from mha.layers.latent import LatentAttention
from mha.layers.multi_head import Heads, MultiHeadAttention
from mha.layers.projections import check_own_weights
from mha.layers.sinks import SinkAttention

CAN = (MultiHeadAttention, GroupedAttention, LatentAttention, GatedAttention, SinkAttention)


@checked
@torch.no_grad()
def clip_query_keys(layer: Heads, largest: Float[Tensor, "h"], limit: float = 100.0) -> Float[Tensor, "h"]:
    """Scale the projections of each head whose largest score passes the limit, so that it becomes the limit (QK-Clip).

    A head with the largest score s gets the factor γ = limit / s where s is above the limit, and 1 elsewhere. All its
    scores are multiplied by γ: its queries and its keys by √γ each. What other heads read too is never touched: where
    KV heads are shared, and for the shared rotated key of latents, γ goes into the query alone. Biases are scaled with
    their matrices. Call it after the step of the optimizer, with the scores of the forward pass before it.

    :param layer: a layer of plain scores q · k; it is changed in place.
    :param largest: the largest score of each head, over batch, queries and the keys that each may look at.
    :param limit: what no score should pass, positive; 100 unless given.
    :Shapes: largest (h,); returns the factors γ (h,).
    :Raises: ValueError for a limit that is not positive, another number of heads, a number that is not finite, for a
        layer whose scores are not q · k alone, and where what is written into the projections would be lost.
    :Source: Kimi Team 2025, "Kimi K2", section 2.1.
    :Taught in: why_scale.
    """
    name, positions = type(layer).__name__, layer.positions
    biased = positions is not None and positions.bias is not None
    if type(layer) not in CAN or biased:
        more = f" and {type(positions).__name__}, which changes scores" if biased else ""
        raise ValueError(
            f"layer is a {name}{more}: its scores do not shrink with its queries and keys. Give one of "
            f"{', '.join(kind.__name__ for kind in CAN)} with positions that rotate, or with none"
        )
    check_tensor(1, largest=largest)
    check_finite(largest=largest)
    check_number(limit=limit)
    if limit <= 0 or len(largest) != layer.heads:
        raise ValueError(
            f"largest {tuple(largest.shape)}, limit = {limit}: give one score for each of {layer.heads} heads, and a "
            "positive limit"
        )
    check_own_weights(layer)
    factors = torch.where(largest > limit, limit / largest, 1.0).to(layer.W_q.weight)
    shared = layer.kv_heads != layer.heads
    _scale(layer.W_q, factors if shared else factors.sqrt())
    if not shared:
        _scale(layer.W_k, factors.sqrt())
    rotary = getattr(layer, "W_rotary_q", None)
    if rotary is not None:
        _scale(rotary, factors)
    return factors


def _scale(linear: nn.Linear, factors: Tensor) -> None:
    """Multiply the rows of each head by its factor, and the bias with them."""
    for rows in (linear.weight, linear.bias):
        if rows is not None:
            rows.unflatten(0, (len(factors), -1)).mul_(factors.view(-1, *[1] * rows.ndim))
