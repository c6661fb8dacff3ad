"""Attention with a sink: one more thing that every query may attend to, and where there is nothing to read.

:Taught in: say_nothing.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from mha.checks import check_flag, check_is_tensor, check_number, check_tensor
from mha.functional import core
from mha.functional.attention import check_dropout, check_qkv, check_visible
from mha.functional.masks import past_mask

NOTHING_TAKEN = -1e4  # a logit: exp(-1e4) is 0 in every type of numbers, and float16 can hold it


def softmax_with_sink(scores: Float[Tensor, "*l h i j"], sink: Float[Tensor, "h"]) -> Float[Tensor, "*l h i j"]:
    """Turn scores into weights that sum to less than 1: the sink takes the rest of each row, and gives nothing.

    A weight is exp(score) / (exp(sink) + the sum of exp over the row). A sink of 0 is softmax off by one.

    :param scores: (…, h, i, j).
    :param sink: one logit for each head, (h,).
    :Shapes: returns the weights (…, h, i, j).
    :Raises: ValueError for a ``sink`` of another number of heads.
    :Source: OpenAI 2025, gpt-oss, released code; Miller 2023 for a sink of 0.
    :Taught in: say_nothing.
    """
    check_tensor(scores=scores)
    if scores.ndim < 3:
        raise ValueError(f"scores have shape {tuple(scores.shape)}, but must be (…, heads, queries, keys)")
    check_logits(sink, scores.shape[-3], scores)
    return softmax_beside(scores, sink)


def softmax_beside(scores: Float[Tensor, "*l h i j"], sink: Float[Tensor, "h"]) -> Float[Tensor, "*l h i j"]:
    """Do what :func:`softmax_with_sink` does, without checking its arguments.

    :param scores: (…, h, i, j).
    :param sink: one logit for each head, (h,).
    """
    column = _logits(sink, scores)[:, None, None].expand(*scores.shape[:-1], 1)
    return torch.cat([scores, column], -1).softmax(-1)[..., :-1]


def attend_with_sink(
    q: Float[Tensor, "b h i d"],
    k: Float[Tensor, "b g j d"],
    v: Float[Tensor, "b g j c"],
    sink: Float[Tensor, "h"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    dropout: float = 0.0,
) -> Float[Tensor, "b h i c"]:
    """Read with :func:`softmax_with_sink` in place of softmax, on torch's fused kernel.

    A sink is a key that every query of a head scores alike. So one more token is added in front: its value is 0, and a
    channel of its own, which no other key has, makes its scores. That token asks too, which keeps the causal mask
    square, and what it reads is thrown away.

    :param q: the queries, (b, h, i, d).
    :param k: the keys, (b, g, j, d).
    :param v: the values, (b, g, j, c).
    :param sink: one logit for each head, (h,).
    :param mask: (i, j) or (b, h, i, j), True = may attend; every key may be attended to unless given.
    :param is_causal: whether each query attends only to itself and to what came before; False unless given.
    :param scale: what the scores are multiplied by; 1/√d unless given.
    :param enable_gqa: whether there may be fewer KV heads than query heads, g < h; False unless given.
    :param dropout: the share of weights dropped, at least 0 and below 1; 0 unless given.
    :Costs: copies of q, k and v; one query, one key and one channel more.
    :Shapes: returns the head output (b, h, i, c).
    :Raises: as :func:`mha.attend`, and ValueError for a ``sink`` of another number of heads.
    :Taught in: say_nothing.
    """
    check_flag(is_causal=is_causal, enable_gqa=enable_gqa)
    check_qkv(q, k, v, enable_gqa)
    check_tensor(4, q=q, k=k, v=v)
    check_logits(sink, q.shape[1], q)
    check_visible(q, k, mask)
    check_dropout(dropout)
    if scale is not None:
        check_number(scale=scale)
    return attend_beside(q, k, v, sink, mask, is_causal=is_causal, scale=scale, dropout=dropout)


def attend_beside(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sink: Tensor,
    mask: Tensor | None,
    *,
    is_causal: bool,
    scale: float | None,
    dropout: float,
) -> Float[Tensor, "b h i c"]:
    """Do what :func:`attend_with_sink` does, without checking its arguments.

    :param q: the queries, (b, h, i, d).
    :param k: the keys, (b, g, j, d).
    :param v: the values, (b, g, j, c).
    :param sink: one logit for each head, (h,).
    :param mask: (i, j) or (b, h, i, j), True = may attend; None hides nothing.
    :param is_causal: whether each query attends only to itself and to what came before.
    :param scale: what the scores are multiplied by; 1/√d where it is None.
    :param dropout: the share of weights dropped.
    """
    i, j, d, c = q.shape[2], k.shape[2], q.shape[3], v.shape[3]
    scale, sink = 1 / math.sqrt(d) if scale is None else scale, _logits(sink, q)
    if mask is not None:
        mask = mask & past_mask(i, j, q.device) if is_causal else mask
        mask = F.pad(mask.expand(*mask.shape[:-2], i, j), (1, 0, 1, 0), value=True)
    wide = max(d + 1, c)  # the kernel wants values as wide as keys
    q = torch.cat([q * scale, sink[:, None, None].expand(*q.shape[:3], 1)], -1)
    q, k, v = (F.pad(x, (0, wide - x.shape[3], 1, 0)) for x in (q, k, v))
    k[:, :, 0, d] = 1
    causal = is_causal and mask is None
    return core.attend(q, k, v, mask, is_causal=causal, scale=1.0, dropout=dropout)[:, :, 1:, :c]


def check_logits(sink: Tensor, heads: int, like: Tensor) -> None:
    """Refuse logits of another number of heads."""
    check_is_tensor("sink", sink)
    if tuple(sink.shape) != (heads,) or not sink.is_floating_point():
        raise ValueError(
            f"sink has shape {tuple(sink.shape)} and {sink.dtype}, but there are {heads} heads in a tensor of shape "
            f"{tuple(like.shape)}: give one real number for each"
        )
    if sink.device != like.device:
        raise ValueError(f"sink is on {sink.device}, the scores on {like.device}: use sink.to('{like.device}')")


def _logits(sink: Tensor, like: Tensor) -> Tensor:
    """Return the logits in the type of the scores."""
    return sink.to(like.dtype).clamp(min=NOTHING_TAKEN)
