"""Attention, and nothing else: no argument is checked here, because the caller has checked it already.

:func:`mha.attend` and its neighbors in :mod:`mha.functional.attention` are the same functions for users: they check
what they were given, and call these. The layers check their input once, and call these too. The order never changes,
and every variant of later chapters is a change at a named place of it::

    scores → changes.scores → mask → softmax, or changes.normalize → changes.weights → read

:Taught in: why_scale, masking, why_many_heads, split_and_merge.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from mha.checks import check_functions
from mha.functional import devices
from mha.functional.masks import hide, past_mask

Change = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Changes:
    """What a layer changes at the three named places, each a function from (…, i, j) to (…, i, j), or None.

    It is true where something is changed.

    :param scores: acts on the scores, before the mask.
    :param normalize: replaces the softmax.
    :param weights: acts on the attention weights, before dropout.
    :Taught in: split_and_merge.
    """

    scores: Change | None = None
    normalize: Change | None = None
    weights: Change | None = None

    def __post_init__(self) -> None:
        check_functions(scores=self.scores, normalize=self.normalize, weights=self.weights)

    def __bool__(self) -> bool:
        return not (self.scores is self.normalize is self.weights is None)

    def then(self, later: "Changes") -> "Changes":
        """Append other changes to these; of two that replace the softmax the later one counts.

        :param later: the changes that come after these.
        """
        if not later:
            return self
        if not self:
            return later
        normalize = self.normalize if later.normalize is None else later.normalize
        return Changes(_behind(self.scores, later.scores), normalize, _behind(self.weights, later.weights))


NO_CHANGES = Changes()


def _behind(first: Change | None, second: Change | None) -> Change | None:
    if first is None or second is None:
        return first or second
    return lambda t: second(first(t))


def changed(name: str, change: Change | None, x: Tensor) -> Tensor:
    """Change a tensor with the caller's function; refuse a result that is no tensor of the same shape, type and device.

    :param name: what the change is called in an error.
    :param change: the function; None changes nothing.
    :param x: the tensor, of any shape.
    """
    if change is None:
        return x
    new = change(x)
    if not isinstance(new, Tensor) or new.shape != x.shape:
        found = f"shape {tuple(new.shape)}" if isinstance(new, Tensor) else type(new).__name__
        raise ValueError(f"{name} was given shape {tuple(x.shape)} and returned {found}: return a tensor of that shape")
    if new.device != x.device or (new.dtype != x.dtype and not torch.is_autocast_enabled(x.device.type)):
        raise ValueError(
            f"{name} was given {x.dtype} on {x.device} and returned {new.dtype} on {new.device}: return the same, "
            "result.to(given)"
        )
    return new


def split_heads(x: Shaped[Tensor, "b n m"], heads: int) -> Shaped[Tensor, "b h n d"]:
    """Split the channels of every position into heads; nothing is copied.

    :param x: the channels of all heads side by side, (b, n, h·d).
    :param heads: how many heads, h.
    """
    return x.view(x.shape[0], x.shape[1], heads, x.shape[2] // heads).transpose(1, 2)


def merge_heads(heads: Shaped[Tensor, "b h n d"]) -> Shaped[Tensor, "b n m"]:
    """Put the heads of every position side by side again: the inverse of :func:`split_heads`.

    :param heads: the heads apart, (b, h, n, d).
    """
    return heads.transpose(1, 2).flatten(2)


def attention_weights(
    q: Float[Tensor, "*l i d"],
    k: Float[Tensor, "*g j d"],
    mask: Bool[Tensor, "..."] | None,
    *,
    is_causal: bool,
    scale: float | None,
    changes: Changes,
) -> Float[Tensor, "*l i j"]:
    """Say how much each query takes from each key, as :func:`mha.attention_weights` does.

    :param q: the queries, (…, i, d).
    :param k: the keys, (…, j, d).
    :param mask: (i, j) or (b, h, i, j), True = may attend; None hides nothing.
    :param is_causal: whether each query attends only to itself and to what came before.
    :param scale: what the scores are multiplied by; 1/√d where it is None.
    :param changes: what is changed at the three named places.
    """
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = changed("edit_scores", changes.scores, multiply(q * scale, k.mT))
    mask = visible(q, k, mask, is_causal)
    if mask is not None:
        scores = hide(scores, mask)
    weights = scores.softmax(-1) if changes.normalize is None else changed("normalize", changes.normalize, scores)
    if mask is not None:
        weights = weights.masked_fill(~mask.any(-1, keepdim=True), 0)
    return changed("edit_weights", changes.weights, weights)


def attend(
    q: Float[Tensor, "*l i d"],
    k: Float[Tensor, "*g j d"],
    v: Float[Tensor, "*g j c"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
    explicit: bool = False,
    changes: Changes = NO_CHANGES,
) -> Float[Tensor, "*l i c"]:
    """Read from the values with the attention weights, as :func:`mha.attend` does: softmax(q kᵀ · scale) v.

    :param q: the queries, (…, i, d).
    :param k: the keys, (…, j, d).
    :param v: the values, (…, j, c).
    :param mask: (i, j) or (b, h, i, j), True = may attend; every key may be attended to unless given.
    :param is_causal: whether each query attends only to itself and to what came before; False unless given.
    :param scale: what the scores are multiplied by; 1/√d unless given.
    :param dropout: the share of weights dropped, at least 0 and below 1; 0 unless given.
    :param explicit: whether the explicit formula runs even where nothing is changed; False unless given.
    :param changes: what is changed at the three named places; nothing unless given.
    """
    if not (explicit or (changes is not NO_CHANGES and changes)):
        try:
            return _by_kernel(q, k, v, mask, dropout, is_causal, scale)
        except NotImplementedError as error:
            if "forward AD" not in str(error):  # no kernel has derivatives in forward mode (torch.func.jvp); sums have
                raise
    weights = attention_weights(q, k, mask, is_causal=is_causal, scale=scale, changes=changes)
    return multiply(F.dropout(weights, dropout) if dropout else weights, v)


def attend_biased(
    q: Float[Tensor, "b h i d"],
    k: Float[Tensor, "b h j d"],
    v: Float[Tensor, "b h j c"],
    bias: Float[Tensor, "..."],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "b h i c"]:
    """Read with numbers added to the scores, on torch's fused kernel, which takes them as a mask.

    :param q: the queries, (b, h, i, d).
    :param k: the keys, (b, h, j, d).
    :param v: the values, (b, h, j, c).
    :param bias: what is added to the scores, (b or 1, h, i, j), in the type of the queries; −inf hides, though not
        every key of a row.
    :param mask: (i, j) or (b, h, i, j), True = may attend; nothing more is hidden unless given.
    :param scale: what the scores are multiplied by; 1/√d unless given.
    :param dropout: the share of weights dropped, at least 0 and below 1; 0 unless given.
    """
    empty = None
    if mask is not None:
        empty = ~(mask & (bias > -torch.inf)).any(-1, keepdim=True)
        bias = bias.masked_fill(~(mask | empty), -torch.inf)
    try:
        read = _fused(q, k, v, bias, dropout, False, scale)
    except NotImplementedError as error:
        if "forward AD" not in str(error):
            raise
        read = attend(q, k, v, scale=scale, dropout=dropout, changes=Changes(scores=lambda scores: scores + bias))
    return read if empty is None else read.masked_fill(empty, 0)


def visible(q: Tensor, k: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor | None:
    """Add the causal mask to the caller's.

    :param q: the queries, (…, i, d).
    :param k: the keys, (…, j, d).
    :param mask: the caller's mask; None hides nothing.
    :param is_causal: whether the causal mask is added.
    :Shapes: returns a mask, or None where nothing is hidden.
    """
    if not is_causal:
        return mask
    past = past_mask(q.shape[-2], k.shape[-2], q.device)
    return past if mask is None else mask & past


def multiply(x: Tensor, y: Tensor) -> Tensor:
    """Multiply matrices head by head. Heads that share a ``y`` are stacked, so that it is read once.

    :param x: (…, h, i, n), or (i, n).
    :param y: (…, g, n, j), where g divides h, or (n, j).
    :Shapes: returns (…, h, i, j), or (i, j).
    """
    if x.ndim == 2 or x.shape[-3] == y.shape[-3]:
        return x @ y
    shared: Tensor = x.unflatten(-3, (y.shape[-3], -1)).flatten(-3, -2)
    return (shared @ y).view(*x.shape[:-1], y.shape[-1])


def _by_kernel(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, is_causal: bool, scale: float | None
) -> Tensor:
    """Read on torch's fused kernel, whatever is hidden."""
    if mask is None and q.shape[-2] in (1, k.shape[-2]):  # one last query sees everything; a square needs no mask
        if q.shape[-2] == 1:
            is_causal = False
        return _fused(q, k, v, None, dropout, is_causal, scale)
    mask = visible(q, k, mask, is_causal)
    if mask is None:
        return _fused(q, k, v, None, dropout, False, scale)
    empty = ~mask.any(-1, keepdim=True)  # kernels disagree about empty rows: such a row is opened, and then zeroed
    return _fused(q, k, v, mask | empty, dropout, False, scale).masked_fill(empty, 0)


def _fused(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, is_causal: bool, scale: float | None
) -> Tensor:
    """Call torch's kernel. Single queries that share keys are stacked where that is faster, or keys are repeated."""
    if q.ndim == 2 or q.shape[-3] == k.shape[-3]:
        return F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal, scale=scale)
    if q.shape[-2] != 1 and devices.repeats_heads(q, v, mask):
        k, v = (_repeated(x, q.shape[-3]) for x in (k, v))
        return F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal, scale=scale)
    if q.shape[-2] != 1 or not devices.folds_queries(q, v, mask):
        return F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal, scale=scale, enable_gqa=True)
    stacked = (q.shape[0], k.shape[-3], -1)
    if mask is not None and mask.ndim > 2 and mask.shape[-3] > 1:
        mask = mask.expand(q.shape[0], -1, -1, -1).reshape(*stacked, mask.shape[-1])
    read = F.scaled_dot_product_attention(q.reshape(*stacked, q.shape[-1]), k, v, mask, dropout, scale=scale)
    return read.reshape(*q.shape[:-1], v.shape[-1])


def _repeated(x: Tensor, heads: int) -> Tensor:
    """Show each shared head once for every head that reads it; where all heads share one, nothing is copied."""
    return x.unsqueeze(-3).expand(*x.shape[:-2], heads // x.shape[-3], *x.shape[-2:]).flatten(-4, -3)
