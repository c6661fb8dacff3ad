"""Attention as functions: from queries, keys and values to weights and reads. Layers only add weights of their own.

The order never changes, and every variant of later chapters is an edit at a named place of it::

    score → edit_scores → mask → normalize → edit_weights → read

Taught in: why_scale, masking, why_many_heads, split_and_merge.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from mha.functional.masks import causal_mask, check_mask, combine, hide


def share(dropout: float) -> float:
    """Return the share of weights to drop; refuse what is no share."""
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout = {dropout}: it is the share of weights dropped, at least 0 and below 1")
    return dropout


Edit = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Edits:
    """What a layer changes at the three named places, each a function from (…, i, j) to (…, i, j), or None.

    It is true where something is changed. Taught in: split_and_merge.
    """

    scores: Edit | None = None
    normalize: Edit | None = None
    weights: Edit | None = None

    def __bool__(self) -> bool:
        return not (self.scores is self.normalize is self.weights is None)

    def then(self, scores: Edit | None = None, weights: Edit | None = None) -> "Edits":
        """Put functions behind those that are there."""
        return Edits(_behind(self.scores, scores), self.normalize, _behind(self.weights, weights))


NOTHING = Edits()


def _behind(first: Edit | None, second: Edit | None) -> Edit | None:
    if first is None or second is None:
        return first or second
    return lambda t: second(first(t))


def split_heads(x: Float[Tensor, "b n m"], heads: int) -> Float[Tensor, "b h n d"]:
    """Cut the channels of every position into heads; nothing is copied.

    Shapes: (b, n, h·d) gives (b, h, n, d), a view of the same numbers.
    Raises: ValueError where ``heads`` does not divide the channels.
    Taught in: split_and_merge.
    """
    if heads < 1 or x.shape[-1] % heads:
        raise ValueError(f"cannot cut {x.shape[-1]} channels into {heads} heads of equal width")
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(heads: Float[Tensor, "b h n d"]) -> Float[Tensor, "b n m"]:
    """Put the heads of every position side by side again: the inverse of :func:`split_heads`.

    Shapes: (b, h, n, d) gives (b, n, h·d).
    Taught in: split_and_merge.
    """
    return heads.transpose(1, 2).flatten(2)


def attention_weights(
    q: Float[Tensor, "*l i d"],
    k: Float[Tensor, "*l j d"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    edit_scores: Edit | None = None,
    normalize: Edit | None = None,
    edit_weights: Edit | None = None,
) -> Float[Tensor, "*l i j"]:
    """Say how much each query takes from each key: softmax(q kᵀ · scale), row by row.

    A query with nothing to look at gets a row of zeros.

    Shapes: q (…, i, d), k (…, j, d), mask (i, j) or (b, h, i, j), True = may look; returns (…, i, j).
        ``scale`` is 1/√d unless it is given. Each edit takes and returns a tensor of shape (…, i, j).
    Raises: ValueError or TypeError for shapes, dtypes or masks that do not fit.
    Source: Vaswani et al. 2017, section 3.2.1.
    Taught in: why_scale, masking.
    """
    _check(q, k, k)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = (q * scale) @ k.mT
    if edit_scores is not None:
        scores = edit_scores(scores)
    mask = _visible(q, k, mask, is_causal)
    if mask is not None:
        scores = hide(scores, mask)
    weights = scores.softmax(-1) if normalize is None else normalize(scores)
    if mask is not None:
        weights = weights.masked_fill(~mask.any(-1, keepdim=True), 0)
    return weights if edit_weights is None else edit_weights(weights)


def attend(
    q: Float[Tensor, "*l i d"],
    k: Float[Tensor, "*l j d"],
    v: Float[Tensor, "*l j c"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
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

    Shapes: q (…, i, d), k (…, j, d), v (…, j, c); mask, ``scale`` and edits as in :func:`attention_weights`;
        returns (…, i, c). ``dropout`` is the share of weights dropped; a layer passes 0 outside training.
    Raises: ValueError or TypeError for shapes, dtypes or masks that do not fit, and for a dropout outside [0, 1).
    Source: Vaswani et al. 2017, equation 1; the fused kernel is ``scaled_dot_product_attention``.
    Taught in: why_scale, masking, split_and_merge.
    """
    _check(q, k, v)
    dropout = share(dropout)
    if explicit or Edits(edit_scores, normalize, edit_weights):
        weights = attention_weights(
            q,
            k,
            mask,
            is_causal=is_causal,
            scale=scale,
            edit_scores=edit_scores,
            normalize=normalize,
            edit_weights=edit_weights,
        )
        return F.dropout(weights, dropout) @ v if dropout else weights @ v
    if mask is None and q.shape[-2] in (1, k.shape[-2]):  # one last query sees everything; a square needs no mask
        causal = is_causal and q.shape[-2] > 1
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=causal, scale=scale)
    mask = _visible(q, k, mask, is_causal)
    empty = None if mask is None else ~mask.any(-1, keepdim=True)  # kernels disagree about empty rows: open and zero
    mask = None if mask is None or empty is None else mask | empty
    read = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, scale=scale)
    return read if empty is None else read.masked_fill(empty, 0)


def _visible(q: Tensor, k: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor | None:
    """Check the caller's mask and add the causal one."""
    i, j = q.shape[-2], k.shape[-2]
    if mask is not None:
        check_mask(mask, (*q.shape[:-1], j), q.device)
    return combine(mask, causal_mask(i, j, device=q.device) if is_causal else None)


def _check(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Refuse queries, keys and values that do not belong together."""
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if not q.is_floating_point():
        raise TypeError(f"attention needs floating-point numbers, got {q.dtype}: convert with .float() first")
    if not (q.dtype == k.dtype == v.dtype):
        raise TypeError(f"q, k and v have different dtypes {q.dtype}, {k.dtype}, {v.dtype}: convert them to one")
    if not (q.ndim == k.ndim == v.ndim and q.ndim >= 2 and q.shape[:-2] == k.shape[:-2] == v.shape[:-2]):
        raise ValueError(f"q, k and v differ in batch or heads: {shapes}")
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"a query can only be compared with a key of its own width: {shapes}")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"every key needs its value, but there are different numbers of them: {shapes}")
    if 0 in q.shape or 0 in k.shape or 0 in v.shape:
        raise ValueError(f"an empty sequence, batch or width cannot be attended to: {shapes}")
