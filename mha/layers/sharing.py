"""Convert trained heads into heads that share keys and values, with the closest common space of a group.

:Taught in: compress.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from mha.checks import check_finite, checked
from mha.functional.latent import best_factors
from mha.layers.grouped import GroupedAttention, check_alignable
from mha.layers.latent import rotates
from mha.layers.multi_head import Heads
from mha.layers.projections import settled


@checked
@torch.no_grad()
def share_heads(layer: Heads, kv_heads: int, tokens: Float[Tensor, "... m"] | None = None) -> GroupedAttention:
    """Let groups of heads of a trained plain layer share KV heads, and change their keys and values least.

    The keys of a group, stacked, are cut to the width of one head (singular values); the queries absorb the way back,
    and ``W_o`` that of the values. The mean that ``GroupedAttention.from_plain`` takes is one such head, and not the
    closest. With ``tokens`` what changes least is the keys and values of such tokens; without, the matrices. A bias of
    the values moves to ``W_o``, so a row without keys returns it, too.

    :param layer: a plain layer without positions that rotate keys.
    :param kv_heads: how many KV heads there will be; it divides the heads.
    :param tokens: thousands of rows that the layer usually reads, (..., d_model); none unless given.
    :Raises: ValueError where ``kv_heads`` does not divide the heads, where heads share keys already, where keys and
        values come from inputs of other widths, for positions that rotate keys, for tokens of another width, and for a
        layer with gates, norms or anything else between projections and output.
    :Source: Eckart and Young 1936.
    :Taught in: compress.
    """
    layer = settled(layer)
    check_alignable(layer, kv_heads)
    if rotates(layer.positions):
        raise ValueError(
            f"this layer has {type(layer.positions).__name__} inside, which rotate keys after W_k: what a query "
            "absorbs would not rotate with them. Take a layer without them, or mha.layers.align_heads"
        )
    check_finite(**{f"W_{letter}.weight": getattr(layer, f"W_{letter}").weight for letter in "qkvo"})
    of_values = layer.W_v.bias
    bias = "".join(letter for letter in "qo" if getattr(layer, f"W_{letter}").bias is not None)
    bias = bias if of_values is None or "o" in bias else bias + "o"
    new = GroupedAttention(
        layer.d_model,
        layer.heads,
        kv_heads,
        d_head=layer.d_head,
        bias=bias or False,
        dropout=layer.dropout,
        positions=layer.positions,
    ).to(layer.W_q.weight)
    back = []  # from a shared head to each head: (h, d, d)
    for shared, old in ((new.W_k, layer.W_k), (new.W_v, layer.W_v)):
        of_groups = old.weight.chunk(kv_heads)
        factors = [best_factors(group, layer.d_head, tokens) for group in of_groups]
        shared.weight.copy_(torch.cat([down for down, _ in factors]))
        back.append(torch.cat([up for _, up in factors]).unflatten(0, (layer.heads, layer.d_head)))
    keys, values = back
    for part in ("weight", "bias") if layer.W_q.bias is not None else ("weight",):
        rows = getattr(layer.W_q, part).view(layer.heads, layer.d_head, -1)
        getattr(new.W_q, part).copy_((keys.mT @ rows).reshape(getattr(new.W_q, part).shape))
    columns = layer.W_o.weight.unflatten(1, (layer.heads, layer.d_head))
    new.W_o.weight.copy_(torch.einsum("ohd,hdc->ohc", columns, values).flatten(1))
    if new.W_o.bias is not None:
        new.W_o.bias.copy_(torch.zeros_like(new.W_o.bias) if layer.W_o.bias is None else layer.W_o.bias)
        new.W_o.bias.add_(0 if of_values is None else layer.W_o.weight @ of_values)
    return new.train(layer.training)
