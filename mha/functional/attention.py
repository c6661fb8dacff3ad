"""Attention as functions: from queries, keys and values to weights and reads. Layers only add weights of their own.

The order never changes, and every variant of later chapters is an edit at a named place of it::

    score → edit_scores → mask → normalize → edit_weights → read

:Taught in: why_scale, masking, why_many_heads, split_and_merge.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from mha.checks import check_flag, check_functions, check_is_tensor, check_number, check_tensor, check_whole
from mha.functional.masks import causal_mask, check_mask, combine, hide


def check_dropout(dropout: float) -> float:
    """Return the share of weights to drop; refuse what is no share."""
    check_number(False, dropout=dropout)
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout = {dropout}: it is the share of weights dropped, at least 0 and below 1")
    return dropout


Edit = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Edits:
    """What a layer changes at the three named places, each a function from (…, i, j) to (…, i, j), or None.

    It is true where something is changed.

    :Taught in: split_and_merge.
    """

    scores: Edit | None = None
    normalize: Edit | None = None
    weights: Edit | None = None

    def __post_init__(self) -> None:
        check_functions(scores=self.scores, normalize=self.normalize, weights=self.weights)

    def __bool__(self) -> bool:
        return not (self.scores is self.normalize is self.weights is None)

    def then(self, scores: Edit | None = None, weights: Edit | None = None) -> "Edits":
        """Put functions behind those that are there."""
        if scores is weights is None:
            return self
        check_functions(scores=scores, weights=weights)
        return Edits(_behind(self.scores, scores), self.normalize, _behind(self.weights, weights))


NOTHING = Edits()


def _behind(first: Edit | None, second: Edit | None) -> Edit | None:
    if first is None or second is None:
        return first or second
    return lambda t: second(first(t))


def split_heads(x: Shaped[Tensor, "b n m"], heads: int) -> Shaped[Tensor, "b h n d"]:
    """Cut the channels of every position into heads; nothing is copied.

    :Shapes: (b, n, h·d) gives (b, h, n, d), a view of the same numbers.
    :Raises: ValueError where ``heads`` does not divide the channels, or x has not three axes.
    :Taught in: split_and_merge.
    """
    check_whole(heads=heads)
    check_is_tensor("x", x)
    if x.ndim != 3:
        raise ValueError(f"x has shape {tuple(x.shape)}, but must be (batch, sequence, channels)")
    if x.shape[-1] % heads:
        raise ValueError(f"cannot cut {x.shape[-1]} channels into {heads} heads of equal width")
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(heads: Shaped[Tensor, "b h n d"]) -> Shaped[Tensor, "b n m"]:
    """Put the heads of every position side by side again: the inverse of :func:`split_heads`.

    :Shapes: (b, h, n, d) gives (b, n, h·d).
    :Raises: ValueError where there are not four axes.
    :Taught in: split_and_merge.
    """
    check_is_tensor("heads", heads)
    if heads.ndim != 4:
        raise ValueError(f"heads have shape {tuple(heads.shape)}, but must be (batch, heads, sequence, width)")
    return heads.transpose(1, 2).flatten(2)


def attention_weights(
    q: Float[Tensor, "*l i d"],
    k: Float[Tensor, "*g j d"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    edit_scores: Edit | None = None,
    normalize: Edit | None = None,
    edit_weights: Edit | None = None,
) -> Float[Tensor, "*l i j"]:
    """Say how much each query takes from each key: softmax(q kᵀ · scale), row by row.

    A query with nothing to look at gets a row of zeros.

    :Shapes: q (…, i, d), k (…, j, d), mask (i, j) or (b, h, i, j), True = may look; returns (…, i, j).
        ``scale`` is 1/√d unless it is given. Each edit takes and returns a tensor of shape (…, i, j). With
        ``enable_gqa`` there may be fewer key heads than query heads: k (b, g, j, d), each shared by h / g neighbors.
    :Raises: ValueError or TypeError for shapes, dtypes or masks that do not fit.
    :Source: Vaswani et al. 2017, section 3.2.1.
    :Taught in: why_scale, masking.
    """
    _check_settings(scale, is_causal=is_causal, enable_gqa=enable_gqa)
    check_functions(edit_scores=edit_scores, normalize=normalize, edit_weights=edit_weights)
    _check(q, k, k, enable_gqa)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = edited("edit_scores", edit_scores, _by_heads(q * scale, k.mT))
    mask = _visible(q, k, mask, is_causal)
    if mask is not None:
        scores = hide(scores, mask)
    weights = scores.softmax(-1) if normalize is None else edited("normalize", normalize, scores)
    if mask is not None:
        weights = weights.masked_fill(~mask.any(-1, keepdim=True), 0)
    return edited("edit_weights", edit_weights, weights)


def edited(name: str, edit: Edit | None, x: Tensor) -> Tensor:
    """Change a tensor with the caller's function; refuse what is no tensor of the same shape."""
    if edit is None:
        return x
    new = edit(x)
    if not isinstance(new, Tensor) or new.shape != x.shape:
        found = f"shape {tuple(new.shape)}" if isinstance(new, Tensor) else type(new).__name__
        raise ValueError(f"{name} was given shape {tuple(x.shape)} and returned {found}: return a tensor of that shape")
    return new


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
    edit_scores: Edit | None = None,
    normalize: Edit | None = None,
    edit_weights: Edit | None = None,
) -> Float[Tensor, "*l i c"]:
    """Read from the values with the attention weights: softmax(q kᵀ · scale) v.

    Where nothing is edited torch's fused kernel runs, which never stores the weights; an edit, or ``explicit``,
    writes the formula out. Both give the same numbers. A query with nothing to look at reads zeros. A NaN in a key
    or a value is not repaired: it may reach every query, masked or not, because 0 · NaN is NaN.

    :Shapes: q (…, i, d), k (…, j, d), v (…, j, c); mask, ``scale`` and edits as in :func:`attention_weights`;
        returns (…, i, c). ``dropout`` is the share of weights dropped; a layer passes 0 outside training.
    :Raises: ValueError or TypeError for shapes, dtypes or masks that do not fit, and for a dropout outside [0, 1).
    :Source: Vaswani et al. 2017, equation 1; the fused kernel is ``scaled_dot_product_attention``.
    :Taught in: why_scale, masking, split_and_merge.
    """
    _check_settings(scale, is_causal=is_causal, enable_gqa=enable_gqa, explicit=explicit)
    _check(q, k, v, enable_gqa)
    dropout = check_dropout(dropout)
    if explicit or not (edit_scores is normalize is edit_weights is None):
        weights = attention_weights(
            q,
            k,
            mask,
            is_causal=is_causal,
            scale=scale,
            enable_gqa=enable_gqa,
            edit_scores=edit_scores,
            normalize=normalize,
            edit_weights=edit_weights,
        )
        return _by_heads(F.dropout(weights, dropout) if dropout else weights, v)
    if mask is None and q.shape[-2] in (1, k.shape[-2]):  # one last query sees everything; a square needs no mask
        causal = is_causal and q.shape[-2] > 1
        return _fused(q, k, v, dropout_p=dropout, is_causal=causal, scale=scale)
    mask = _visible(q, k, mask, is_causal)
    empty = None if mask is None else ~mask.any(-1, keepdim=True)  # kernels disagree about empty rows: open and zero
    mask = None if mask is None or empty is None else mask | empty
    read = _fused(q, k, v, mask, dropout_p=dropout, scale=scale)
    return read if empty is None else read.masked_fill(empty, 0)


def _by_heads(x: Tensor, y: Tensor) -> Tensor:
    """Multiply matrices head by head. Heads that share a ``y`` are laid below each other, so that it is read once."""
    if x.ndim == 2 or x.shape[-3] == y.shape[-3]:
        return x @ y
    shared = x.unflatten(-3, (y.shape[-3], -1)).flatten(-3, -2)
    return (shared @ y).view(*x.shape[:-1], y.shape[-1])


def _fused(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, **how: Any) -> Tensor:
    """Call torch's kernel. For single queries it would read shared keys once a head: they are laid below each other."""
    shared = q.ndim > 2 and q.shape[-3] > k.shape[-3]
    if not shared or q.shape[-2] > 1:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=shared, **how)
    stacked = (q.shape[0], k.shape[-3], -1)
    if mask is not None and mask.ndim > 2 and mask.shape[-3] > 1:
        mask = mask.expand(q.shape[0], -1, -1, -1).reshape(*stacked, mask.shape[-1])
    read = F.scaled_dot_product_attention(q.reshape(*stacked, q.shape[-1]), k, v, attn_mask=mask, **how)
    return read.reshape(*q.shape[:-1], v.shape[-1])


def _check_settings(scale: float | None, **flags: bool) -> None:
    check_flag(**flags)
    if scale is not None:
        check_number(scale=scale)


def _visible(q: Tensor, k: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor | None:
    """Check the caller's mask and add the causal one."""
    i, j = q.shape[-2], k.shape[-2]
    if mask is not None:
        check_mask(mask, (*q.shape[:-1], j), q.device)
    return combine(mask, causal_mask(i, j, device=q.device) if is_causal else None)


def _check(q: Tensor, k: Tensor, v: Tensor, enable_gqa: bool = False) -> None:
    """Refuse queries, keys and values that do not belong together."""
    check_tensor(q=q, k=k, v=v)
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if not (q.dtype == k.dtype == v.dtype):
        raise TypeError(f"q, k and v have different dtypes {q.dtype}, {k.dtype}, {v.dtype}: convert them to one")
    if not q.device == k.device == v.device:
        raise ValueError(f"q, k and v are on {q.device}, {k.device}, {v.device}: move them to one device")
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


def check_qkv(q: Tensor, k: Tensor, v: Tensor, enable_gqa: bool = False) -> None:
    """Refuse queries, keys and values that do not belong together, as :func:`attend` does."""
    _check(q, k, v, enable_gqa)
