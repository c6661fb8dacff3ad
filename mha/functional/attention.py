"""Attention as functions: from queries, keys and values to weights and head outputs. Layers only add parameters.

Each function checks what it was given, and passes it to its namesake in :mod:`mha.functional.core`, which is the
formula alone.

:Taught in: why_scale, masking, why_many_heads, split_and_merge.
"""

from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from mha.checks import (
    check_flag,
    check_floating,
    check_functions,
    check_is_tensor,
    check_number,
    check_padded,
    check_whole,
)
from mha.functional import core
from mha.functional.core import Change, Changes
from mha.functional.masks import check_mask


def check_dropout(dropout: float) -> None:
    """Refuse what is no share of weights to drop."""
    check_number(False, dropout=dropout)
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout = {dropout}: it is the share of weights dropped, at least 0 and below 1")


def split_heads(x: Shaped[Tensor, "b n m"], heads: int) -> Shaped[Tensor, "b h n d"]:
    """Split the channels of every position into heads; nothing is copied.

    :param x: the channels of all heads side by side, (b, n, h·d).
    :param heads: how many heads, h.
    :Shapes: returns (b, h, n, d), a view of the same numbers.
    :Raises: ValueError where ``heads`` does not divide the channels, or x has not three axes.
    :Taught in: split_and_merge.
    """
    check_whole(heads=heads)
    check_is_tensor("x", x)
    if x.ndim != 3:
        raise ValueError(f"x has shape {tuple(x.shape)}, but must be (batch, sequence, channels)")
    if x.shape[-1] % heads:
        raise ValueError(f"cannot cut {x.shape[-1]} channels into {heads} heads of equal width")
    return core.split_heads(x, heads)


def merge_heads(heads: Shaped[Tensor, "b h n d"]) -> Shaped[Tensor, "b n m"]:
    """Put the heads of every position side by side again: the inverse of :func:`split_heads`.

    :param heads: the heads apart, (b, h, n, d).
    :Shapes: returns (b, n, h·d).
    :Raises: ValueError where there are not four axes.
    :Taught in: split_and_merge.
    """
    check_is_tensor("heads", heads)
    if heads.ndim != 4:
        raise ValueError(f"heads have shape {tuple(heads.shape)}, but must be (batch, heads, sequence, width)")
    return core.merge_heads(heads)


def attention_weights(
    q: Float[Tensor, "*l i d"],
    k: Float[Tensor, "*g j d"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    edit_scores: Change | None = None,
    normalize: Change | None = None,
    edit_weights: Change | None = None,
) -> Float[Tensor, "*l i j"]:
    """Say how much each query takes from each key: softmax(q kᵀ · scale), row by row.

    A query with nothing to look at gets a row of zeros.

    :param q: the queries, (…, i, d).
    :param k: the keys, (…, j, d).
    :param mask: (i, j) or (b, h, i, j), True = may attend; every key may be attended to unless given.
    :param is_causal: whether each query attends only to itself and to what came before; False unless given.
    :param scale: what the scores are multiplied by; 1/√d unless given.
    :param enable_gqa: whether k and v may have fewer heads, (b, g, j, d), each shared by h / g neighbors; False unless
        given.
    :param edit_scores: what acts on the scores (…, i, j) before the mask, and returns as many; nothing unless given.
    :param normalize: what turns scores into weights, both (…, i, j); softmax unless given.
    :param edit_weights: what acts on the weights (…, i, j) before dropout, and returns as many; nothing unless given.
    :Shapes: returns the weights (…, i, j).
    :Raises: ValueError or TypeError for shapes, dtypes or masks that do not fit.
    :Source: Vaswani et al. 2017, section 3.2.1.
    :Taught in: why_scale, masking.
    """
    check_settings(scale, is_causal=is_causal, enable_gqa=enable_gqa)
    check_functions(edit_scores=edit_scores, normalize=normalize, edit_weights=edit_weights)
    check_qkv(q, k, k, enable_gqa)
    check_padded(q=q)
    check_visible(q, k, mask)
    changes = Changes(edit_scores, normalize, edit_weights)
    return core.attention_weights(q, k, mask, is_causal=is_causal, scale=scale, changes=changes)


def attend(
    q: Float[Tensor, "*l i d"],
    k: Float[Tensor, "*g j d"],
    v: Float[Tensor, "*g j c"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    dropout: float = 0.0,
    explicit: bool = False,
    edit_scores: Change | None = None,
    normalize: Change | None = None,
    edit_weights: Change | None = None,
) -> Float[Tensor, "*l i c"]:
    """Read from the values with the attention weights: softmax(q kᵀ · scale) v.

    If nothing is edited torch's fused kernel runs, which never materializes the weights; an edit, or ``explicit``,
    makes the explicit formula run. Both give the same numbers. A query with nothing to attend to reads zeros. A NaN in
    a key or a value is not repaired: it may reach every query, masked or not, because 0 · NaN is NaN. A NaN in a query
    reaches its own row only; the explicit formula writes NaN there, the kernel of a CPU zeros where no mask is given.

    :param q: the queries, (…, i, d).
    :param k: the keys, (…, j, d).
    :param v: the values, (…, j, c).
    :param mask: (i, j) or (b, h, i, j), True = may attend; every key may be attended to unless given.
    :param is_causal: whether each query attends only to itself and to what came before; False unless given.
    :param scale: what the scores are multiplied by; 1/√d unless given.
    :param enable_gqa: whether k and v may have fewer heads, (b, g, j, d), each shared by h / g neighbors; False unless
        given.
    :param dropout: the share of weights dropped, at least 0 and below 1; a layer passes 0 outside training.
    :param explicit: whether the explicit formula runs even where nothing is edited; False unless given.
    :param edit_scores: what acts on the scores (…, i, j) before the mask, and returns as many; nothing unless given.
    :param normalize: what turns scores into weights, both (…, i, j); softmax unless given.
    :param edit_weights: what acts on the weights (…, i, j) before dropout, and returns as many; nothing unless given.
    :Shapes: returns the head output (…, i, c).
    :Raises: ValueError or TypeError for shapes, dtypes or masks that do not fit, and for a dropout outside [0, 1).
    :Source: Vaswani et al. 2017, equation 1; the fused kernel is ``scaled_dot_product_attention``.
    :Taught in: why_scale, masking, split_and_merge.
    """
    check_settings(scale, is_causal=is_causal, enable_gqa=enable_gqa, explicit=explicit)
    check_functions(edit_scores=edit_scores, normalize=normalize, edit_weights=edit_weights)
    check_qkv(q, k, v, enable_gqa)
    changes = Changes(edit_scores, normalize, edit_weights)
    if explicit or changes or is_causal or enable_gqa or mask is not None:
        check_padded(q=q)
    check_visible(q, k, mask)
    check_dropout(dropout)
    return core.attend(
        q, k, v, mask, is_causal=is_causal, scale=scale, dropout=dropout, explicit=explicit, changes=changes
    )


def check_settings(scale: float | None, **flags: bool) -> None:
    """Refuse a scale that is no number, and flags that are neither True nor False."""
    check_flag(**flags)
    if scale is not None:
        check_number(scale=scale)


def check_visible(q: Tensor, k: Tensor, mask: Tensor | None) -> None:
    """Refuse a mask that does not fit the scores of these queries and keys."""
    if mask is not None:
        check_mask(mask, (*q.shape[:-1], k.shape[-2]), q.device)


def check_qkv(q: Tensor, k: Tensor, v: Tensor, enable_gqa: bool = False) -> None:
    """Refuse queries, keys and values that do not belong together."""
    check_floating(q=q, k=k, v=v)
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if not (q.dtype == k.dtype == v.dtype):
        raise TypeError(f"q, k and v have different dtypes {q.dtype}, {k.dtype}, {v.dtype}: convert them to one")
    if not q.device == k.device == v.device:
        raise ValueError(f"q, k and v are on {q.device}, {k.device}, {v.device}: move them to one device")
    if not q.is_nested == k.is_nested == v.is_nested:
        raise ValueError(f"q, k and v must all be nested tensors, or none: {shapes}")
    shared = enable_gqa and q.ndim == 4 == k.ndim and q.shape[0] == k.shape[0] and 0 not in k.shape
    alike = q.shape[:-2] == k.shape[:-2] or (shared and q.shape[1] % k.shape[1] == 0)
    if not (q.ndim == k.ndim == v.ndim >= 2 and k.shape[:-2] == v.shape[:-2] and alike):
        raise ValueError(f"q, k and v differ in batch or heads: {shapes}")
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"a query can only be compared with a key of its own width: {shapes}")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"every key needs its value, but there are different numbers of them: {shapes}")
    if 0 in q.shape or 0 in k.shape or 0 in v.shape:
        raise ValueError(f"an empty sequence, batch or width cannot be attended to: {shapes}")
