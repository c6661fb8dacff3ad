"""Checkers: cut into heads, join them again, fold a mask, a whole layer from stored parameters."""

import math

import torch
from torch import Tensor

from mha.course.exercises.exercise import Exercise
from mha.course.exercises.legal import Draw
from mha.functional.attention import merge_heads, split_heads


def _random(*shape: int, seed: int = 5) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _words() -> list[tuple]:
    """Tokens (b, n, m) and a number of heads; the smallest can be read with the eye: 23 is channel 3 of token 2."""
    named = torch.tensor([[[11.0, 12, 13, 14], [21, 22, 23, 24], [31, 32, 33, 34]]])
    return [(named, 2), (_random(2, 4, 6), 3), (_random(3, 5, 12), 4), (_random(2, 6, 8), 2)]


def _width(x: Tensor, heads: int) -> int:
    return x.shape[-1] // heads


def _any_words(draw: Draw) -> tuple:
    heads = draw.whole(1, 5)
    return draw.normal(draw.whole(1, 4), draw.whole(1, 5), heads * draw.whole(1, 4)), heads


check_split = Exercise(
    name="cut into heads",
    solution=split_heads,
    cases=_words,
    legal=_any_words,
    mistakes={
        "one reshape to the final shape: the heads cut the sequence into pieces, not the channels": (
            lambda x, heads: x.reshape(x.shape[0], heads, x.shape[1], -1)
        ),
        "head 0 takes every h-th channel instead of the first d": (
            lambda x, heads: x.unflatten(-1, (-1, heads)).permute(0, 3, 1, 2)
        ),
        "tokens and channels change places before a reshape: each token is torn apart": (
            lambda x, heads: x.mT.reshape(x.shape[0], heads, x.shape[1], -1)
        ),
        "the heads are in reverse order": lambda x, heads: split_heads(x, heads).flip(1),
        "the channels inside a head are in reverse order": lambda x, heads: split_heads(x, heads).flip(-1),
        "every head gets the first d channels": (
            lambda x, heads: x[:, None, :, : _width(x, heads)].expand(-1, heads, -1, -1)
        ),
        "every head gets the last d channels": (
            lambda x, heads: x[:, None, :, -_width(x, heads) :].expand(-1, heads, -1, -1)
        ),
        "batch and heads are mixed: the view starts with the heads": (
            lambda x, heads: x.reshape(heads, x.shape[0], x.shape[1], -1).transpose(0, 1)
        ),
    },
    by_hand=True,
    next_step="Next: the way back.",
)


def _reads() -> list[tuple]:
    named = torch.tensor([[[[11.0, 12], [21, 22], [31, 32]], [[13, 14], [23, 24], [33, 34]]]])
    return [(named,), (_random(2, 3, 4, 2),), (_random(3, 4, 5, 3),), (_random(2, 2, 6, 4),)]


def _narrow(z: Tensor) -> Tensor:
    return z.mean(1).repeat(1, 1, z.shape[1])


def _any_reads(draw: Draw) -> tuple:
    return (draw.normal(draw.whole(1, 4), draw.whole(1, 5), draw.whole(1, 5), draw.whole(1, 4)),)


check_merge = Exercise(
    name="join the heads",
    solution=merge_heads,
    cases=_reads,
    legal=_any_reads,
    mistakes={
        "one reshape without the transposition: a row holds several tokens of one head": (
            lambda z: z.reshape(z.shape[0], z.shape[2], -1)
        ),
        "the channels of the heads alternate: heads and channels were swapped before the join": (
            lambda z: z.permute(0, 2, 3, 1).flatten(2)
        ),
        "channels and tokens were swapped, not heads and tokens": (
            lambda z: z.transpose(1, 3).reshape(z.shape[0], z.shape[2], -1)
        ),
        "the heads are in reverse order": lambda z: merge_heads(z.flip(1)),
        "the heads are averaged, and the average is repeated": _narrow,
        "the heads are added up, and the sum is repeated": lambda z: _narrow(z) * z.shape[1],
        "only the first head, repeated": lambda z: z[:, 0].repeat(1, 1, z.shape[1]),
        "the tokens are in reverse order": lambda z: merge_heads(z.flip(2)),
    },
    next_step="Next: the whole layer.",
)


def _masks() -> list[tuple]:
    """Masks (b, i, j), a different one for each sequence, and a number of heads."""
    mixed = _random(3, 4, 5) > 0
    return [
        (torch.tensor([[[True, True]], [[True, False]]]), 2),
        (mixed, 2),
        (mixed[:2, :, :4], 4),
        (_random(4, 3, 3, seed=6) > 0, 3),
    ]


def _any_masks(draw: Draw) -> tuple:
    return draw.yes_or_no(draw.whole(1, 4), draw.whole(1, 5), draw.whole(1, 5)), draw.whole(1, 5)


check_fold = Exercise(
    name="fold a mask",
    solution=lambda mask, heads: mask.repeat_interleave(heads, dim=0),
    cases=_masks,
    legal=_any_masks,
    mistakes={
        "the masks are tiled: sequence 0, sequence 1, … and again, so heads get the mask of another sequence": (
            lambda mask, heads: mask.repeat(heads, 1, 1)
        ),
        "every sequence gets the mask of the first": (lambda mask, heads: mask[:1].expand(len(mask) * heads, -1, -1)),
        "every sequence gets the mask of the last": (lambda mask, heads: mask[-1:].expand(len(mask) * heads, -1, -1)),
        "True and False have changed places": lambda mask, heads: ~mask.repeat_interleave(heads, dim=0),
        "the sequences are in reverse order": lambda mask, heads: mask.flip(0).repeat_interleave(heads, dim=0),
        "a key is visible only where all sequences allow it": (
            lambda mask, heads: mask.all(0, keepdim=True).expand(len(mask) * heads, -1, -1)
        ),
        "a key is visible where any sequence allows it": (
            lambda mask, heads: mask.any(0, keepdim=True).expand(len(mask) * heads, -1, -1)
        ),
    },
    next_step="Torch's own layer wants its masks in this order, too.",
)


def _layers() -> list[tuple]:
    """Tokens (b, n, m), four square matrices as nn.Linear stores them, (out, in), and a number of heads."""
    sizes = [(1, 3, 4, 2), (2, 6, 6, 3), (2, 4, 8, 4)]
    return [
        (_random(b, n, m), *(_random(m, m, seed=s) / math.sqrt(m) for s in (1, 2, 3, 4)), heads)
        for b, n, m, heads in sizes
    ]


def _layer(
    x, w_q, w_k, w_v, w_o, heads, *, split=split_heads, merge=merge_heads, scale=None,
    turn=lambda w: w.T, softmax=lambda s: s.softmax(-1),
):  # fmt: skip
    """A whole layer with places for the usual mistakes."""
    q, k, v = (split(x @ turn(w), heads) for w in (w_q, w_k, w_v))
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    return merge(softmax(q @ k.mT * scale) @ v) @ turn(w_o)


def _viewed(x: Tensor, heads: int) -> Tensor:
    return x.reshape(x.shape[0], heads, x.shape[1], -1)


def _unviewed(z: Tensor) -> Tensor:
    return z.reshape(z.shape[0], z.shape[2], -1)


def _woven(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (-1, heads)).permute(0, 3, 1, 2)


def _any_layer(draw: Draw) -> tuple:
    heads = draw.whole(1, 4)
    m = heads * draw.whole(1, 3)
    x = draw.normal(draw.whole(1, 3), draw.whole(1, 5), m, scales=(1.0, 3.0, 0.1))
    w_q, w_k, w_v, w_o = (draw.normal(m, m, scales=(1.0, 0.5)) for _ in range(4))
    return x, w_q, w_k, w_v, w_o, heads


check_layer = Exercise(
    name="a whole layer",
    solution=_layer,
    cases=_layers,
    legal=_any_layer,
    mistakes={
        "the stored matrices are not transposed (nn.Linear computes x @ weight.T)": (
            lambda *a: _layer(*a, turn=lambda w: w)
        ),
        "the heads were cut and joined with one reshape each: they cut the sequence": (
            lambda *a: _layer(*a, split=_viewed, merge=_unviewed)
        ),
        "the heads were joined with one reshape: the tokens are mixed up": lambda *a: _layer(*a, merge=_unviewed),
        "the heads were cut with one reshape, but joined correctly": lambda *a: _layer(*a, split=_viewed),
        "the heads take every h-th channel": lambda *a: _layer(*a, split=_woven),
        "scaled by √d_model instead of √d": lambda *a: _layer(*a, scale=1 / math.sqrt(a[0].shape[-1])),
        "the scores are not scaled": lambda *a: _layer(*a, scale=1.0),
        "softmax over the queries": lambda *a: _layer(*a, softmax=lambda s: s.softmax(-2)),
        "softmax over the heads": lambda *a: _layer(*a, softmax=lambda s: s.softmax(1)),
        "one wide head: the heads were never cut": lambda x, q, k, v, o, _: _layer(x, q, k, v, o, 1),
        "W_o is left out": lambda x, q, k, v, o, h: _layer(x, q, k, v, torch.eye(len(o), dtype=o.dtype), h),
        "W_o is not transposed": lambda x, q, k, v, o, h: _layer(x, q, k, v, o.T, h),
    },
    by_hand=True,
    next_step="The next chapter asks what W_o is for.",
)
