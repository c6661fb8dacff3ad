"""Who may look at whom. One rule everywhere: a mask is boolean and True means *may look*.

A mask has shape (i, j), one row for each query and one column for each key, or four axes (b, h, i, j) of which any
may be 1. Everything else is refused with the way to convert it. The converters below come from the conventions of
other libraries.

:Taught in: masking.
"""

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from mha.checks import check_device, check_is_tensor, check_no_nan, check_whole, checked, refuse_sizes


@checked
def causal_mask(i: int, j: int | None = None, *, device: torch.device | str | None = None) -> Bool[Tensor, "i j"]:
    """Let each position look at itself and at what came before.

    With fewer queries than keys the queries are the *last* positions, as they are with a cache: the last query
    sees every key.

    :param i: how many queries.
    :param j: how many keys; ``i`` unless given.
    :param device: where the mask is made; torch's default unless given.
    :Shapes: returns (i, j).
    :Raises: ValueError where a length is below 1.
    :Taught in: masking.
    """
    j = i if j is None else j
    check_whole(i=i, j=j)
    check_device(device)
    return past_mask(i, j, device)


def past_mask(i: int, j: int, device: torch.device | str | None) -> Bool[Tensor, "i j"]:
    """Make the mask of :func:`causal_mask` without checking what was given.

    :param i: how many queries.
    :param j: how many keys.
    :param device: where the mask is made; torch's default where it is None.
    """
    return torch.ones(i, j, dtype=torch.bool, device=device).tril(j - i)


@checked
def sliding_window(
    i: int, window: int, j: int | None = None, *, device: torch.device | str | None = None
) -> Bool[Tensor, "i j"]:
    """Let each position look at itself and at the ``window - 1`` positions before it.

    :param i: how many queries.
    :param window: how many positions each query attends to, with its own.
    :param j: how many keys; ``i`` unless given.
    :param device: where the mask is made; torch's default unless given.
    :Shapes: returns (i, j), aligned to the last key like :func:`causal_mask`.
    :Raises: ValueError where a length or the window is below 1.
    :Taught in: masking.
    """
    check_whole(window=window)
    mask = causal_mask(i, j, device=device)
    return mask & ~mask.tril(mask.shape[1] - i - window)


def padding_mask(lengths: Int[Tensor, "b"] | list[int], n: int | None = None) -> Bool[Tensor, "b 1 1 n"]:
    """Hide the padding after each sequence of a batch.

    The result has four axes on purpose: a mask of shape (batch, key) would be read as (query, key) as soon as the
    batch is as large as the sequence is long.

    :param lengths: how many tokens each sequence has, (b,).
    :param n: the length with padding; the longest unless given.
    :Shapes: returns (b, 1, 1, n).
    :Raises: ValueError for a negative length, for a length above ``n``, for an empty batch.
    :Taught in: masking.
    """
    if not isinstance(lengths, Tensor):
        for length in lengths if isinstance(lengths, list | tuple) else [lengths]:
            check_whole(None, lengths=length)
        lengths = torch.as_tensor(lengths)
    if lengths.ndim != 1 or len(lengths) == 0 or lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise ValueError(f"lengths must be whole numbers of shape (batch,), got {lengths.dtype} {_shape(lengths)}")
    longest = int(lengths.max())
    n = longest if n is None else n
    check_whole(n=n)
    if int(lengths.min()) < 0 or longest > n:
        raise ValueError(f"lengths must lie between 0 and n = {n}, got {lengths.tolist()}")
    try:
        return (torch.arange(n, device=lengths.device) < lengths[:, None])[:, None, None, :]
    except RuntimeError as error:
        refuse_sizes(error, {"lengths": longest, "n": n})
        raise


def combine(*masks: Bool[Tensor, "..."] | None) -> Bool[Tensor, "..."] | None:
    """Allow only what every mask allows; None allows everything.

    :param masks: masks of shapes that broadcast to one, such as (i, j) and (b, 1, 1, j), True = may look, or None.
    :Shapes: returns a mask of the shape they broadcast to, or None where all are None.
    :Raises: TypeError for a mask that is not boolean; ValueError for shapes that do not broadcast, or several devices.
    """
    given = [mask for mask in masks if mask is not None]
    for mask in given:
        check_boolean(mask, "True = 'may look'")
    if not given:
        return None
    result = given[0]
    for mask in given[1:]:
        if not _broadcasts(result, mask) or result.device != mask.device:
            raise ValueError(
                f"masks of shapes {_shape(result)} on {result.device} and {_shape(mask)} on {mask.device} cannot be "
                "combined: their last axes must be equal or 1, as of (i, j) and (b, 1, 1, j), on one device"
            )
        result = result & mask
    return result


def from_hidden(mask: Bool[Tensor, "..."]) -> Bool[Tensor, "..."]:
    """Convert from *True means hide*, as ``attn_mask`` and ``key_padding_mask`` of ``nn.MultiheadAttention``.

    :param mask: True = hide, of any shape.
    """
    check_boolean(mask, "True = 'hide'")
    return ~mask


def from_additive(mask: Float[Tensor, "..."]) -> Bool[Tensor, "..."]:
    """Convert from numbers added to the scores: 0 lets look, −inf or a huge negative number hides.

    :param mask: the numbers added, of any shape.
    :Raises: ValueError where a number is neither 0 nor below −1000: such a bias is more than a mask. TypeError for a
        mask that is boolean already.
    """
    check_is_tensor("mask", mask)
    if mask.dtype == torch.bool:
        raise TypeError("mask has dtype torch.bool, so use it as it is, or from_hidden(mask) where True means hide")
    if not mask.is_floating_point() or mask.is_meta:
        raise TypeError(f"mask is {mask.dtype} on {mask.device}, but must be real numbers to add to scores")
    check_no_nan("mask", mask)
    see = mask == 0
    if not bool((see | (mask < -1000)).all()):
        raise ValueError(
            f"mask of shape {_shape(mask)}: an additive mask may hold 0 and large negative numbers only"
            + (
                "; this one holds 0 and 1: use mask.bool() where 1 means 'may look', else from_hidden(mask.bool())"
                if bool((see | (mask == 1)).all())
                else "; this one changes scores too"
            )
        )
    return see


def from_key_padding(mask: Bool[Tensor, "b j"]) -> Bool[Tensor, "b 1 1 j"]:
    """Convert a (batch, key) mask by giving it the axes of heads and queries.

    :param mask: (b, j), True = keep.
    :Shapes: returns (b, 1, 1, j).
    """
    check_boolean(mask, "True = 'may look'", "batch, key")
    return mask[:, None, None, :]


def from_batch_first(mask: Bool[Tensor, "b i j"]) -> Bool[Tensor, "b 1 i j"]:
    """Convert a (batch, query, key) mask by giving it the axis of heads.

    :param mask: (b, i, j), True = may attend.
    :Shapes: returns (b, 1, i, j).
    """
    check_boolean(mask, "True = 'may look'", "batch, query, key")
    return mask[:, None]


def from_seq_first(mask: Bool[Tensor, "i j b"]) -> Bool[Tensor, "b 1 i j"]:
    """Convert a (query, key, batch) mask, as sequence-first libraries write it.

    :param mask: (i, j, b), True = may attend.
    :Shapes: returns (b, 1, i, j).
    """
    check_boolean(mask, "True = 'may look'", "query, key, batch")
    return mask.permute(2, 0, 1)[:, None]


def to_additive(mask: Bool[Tensor, "*s"], dtype: torch.dtype = torch.float32) -> Float[Tensor, "*s"]:
    """Write a mask as numbers to add to the scores: 0 where a query may attend, −inf where not.

    :param mask: True = may attend, of any shape.
    :param dtype: that of the scores; torch.float32 unless given.
    """
    check_boolean(mask, "True = 'may look'")
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(f"dtype = {dtype!r}: it must be that of the scores, such as torch.float32")
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, -torch.inf)


def hide(scores: Float[Tensor, "*s"], mask: Bool[Tensor, "..."]) -> Float[Tensor, "*s"]:
    """Put −inf where a query may not attend, except in rows with nothing to attend to: their weights are zeroed later.

    A row of nothing but −inf has no softmax (0/0), and its NaN would spread through the backward pass.

    :param scores: (…, i, j).
    :param mask: True = may attend, of a shape that broadcasts to that of the scores.
    """
    return scores.masked_fill(~(mask | ~mask.any(-1, keepdim=True)), -torch.inf)


def check_boolean(mask: Shaped[Tensor, "..."], means: str, axes: str = "") -> None:
    """Refuse a mask of other numbers than True and False, or without the named axes."""
    check_is_tensor("mask", mask)
    if mask.dtype != torch.bool:
        one, additive = means.rpartition("= ")[2], "mha.functional.masks.from_additive(mask)"
        how = additive if mask.is_floating_point() else f"mask.bool() if 1 means {one}"
        raise TypeError(f"mask has dtype {mask.dtype}, but must be torch.bool with {means}: use {how}")
    if axes and mask.ndim != axes.count(",") + 1:
        raise ValueError(f"mask has shape {_shape(mask)}, but must be ({axes})")


@checked
def check_mask(mask: Shaped[Tensor, "..."], shape: tuple[int, ...], device: torch.device) -> None:
    """Refuse a mask that does not say plainly who may look at whom.

    :Raises: TypeError for a mask that is not boolean, ValueError for a wrong shape or device.
    """
    check_boolean(mask, "True = 'may look'")
    if mask.ndim != 2 and mask.ndim != len(shape):
        raise ValueError(
            f"mask has {mask.ndim} axes {_shape(mask)}, but must be (query, key) or (batch, head, query, key): "
            "see mha.functional.masks.from_key_padding, from_batch_first and from_seq_first"
        )
    wanted = shape[-2:] if mask.ndim == 2 else shape
    fits = [m == s or (m == 1 and mask.ndim > 2) for m, s in zip(mask.shape, wanted, strict=True)]
    if not all(fits):
        raise ValueError(f"mask of shape {_shape(mask)} does not fit the scores of shape {tuple(wanted)}")
    if mask.device != device:
        raise ValueError(f"mask is on {mask.device}, the queries are on {device}: use mask.to('{device}')")


def _broadcasts(x: Tensor, y: Tensor) -> bool:
    pairs = zip(reversed(x.shape), reversed(y.shape), strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs)


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)
