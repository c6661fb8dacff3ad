"""Checkers: the size of a cache, masks with a cache, shared heads, aligning one head with another."""

import torch
from torch import Tensor

from mha.course.exercises.exercise import Exercise
from mha.course.exercises.legal import Draw
from mha.course.exercises.plain import cache_and_sharing as plain
from mha.functional.attention import attend


def _random(*shape: int, seed: int = 12) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


check_bytes = Exercise(**vars(plain.check_bytes))


def _paddings() -> list[tuple]:
    """Padding of each sequence, columns in the cache, new columns."""
    return [([0], 2, 1), ([0, 1], 0, 3), ([0, 2, 1], 3, 2), ([4, 0], 2, 3)]


def _mask(padding: list[int], old: int, new: int, *, start: int | None = None, late: int = 0, causal=True) -> Tensor:
    """Say who may look at whom, with arguments for the usual mistakes."""
    column = torch.arange(old + new)
    start = old if start is None else start
    past = column <= start + late + torch.arange(new)[:, None]
    word = column >= torch.tensor(padding)[:, None, None, None]
    return past & word if causal else (word & torch.ones_like(past))


def _behind(padding: list[int], old: int, new: int) -> Tensor:
    column = torch.arange(old + new)
    return _mask([0] * len(padding), old, new) & (column < old + new - torch.tensor(padding)[:, None, None, None])


def _any_padding(draw: Draw) -> tuple:
    old, new = draw.whole(0, 4), draw.whole(1, 4)
    return [draw.integer(0, old + new) for _ in range(draw.whole(1, 4))], old, new


check_mask = Exercise(
    name="the causal mask with padding and a cache",
    solution=_mask,
    cases=_paddings,
    legal=_any_padding,
    mistakes={
        "the triangle is aligned to the first key: with a cache, it must end at the last": (
            lambda f, old, new: _mask(f, old, new, start=0)
        ),
        "the padding is visible": lambda f, old, new: _mask([0] * len(f), old, new),
        "the padding is hidden at the end, but it is in front": _behind,
        "the future is visible": lambda f, old, new: _mask(f, old, new, causal=False),
        "a token may not attend to itself": lambda f, old, new: _mask(f, old, new, late=-1),
        "a token sees the one that follows": lambda f, old, new: _mask(f, old, new, late=1),
        "True and False are exchanged: True means may look": lambda f, old, new: ~_mask(f, old, new),
        "one token too many is hidden: the first token is at position `padding`": (
            lambda f, old, new: _mask([n + 1 for n in f], old, new)
        ),
        "all sequences have the padding of the first": lambda f, old, new: _mask(f[:1] * len(f), old, new),
        "one padded position is visible: the first token is at position `padding`": (
            lambda f, old, new: _mask([n - 1 for n in f], old, new)
        ),
    },
    next_step="Next: sharing.",
)


def _groups() -> list[tuple]:
    """Queries (b, h, i, d), keys and values (b, g, j, d); g is neither 1 nor h in most cases."""
    sizes = [(1, 4, 2, 1, 3, 2), (2, 6, 2, 3, 4, 3), (1, 6, 3, 2, 5, 4), (1, 3, 1, 2, 4, 2)]
    return [(_random(b, h, i, d), *(_random(b, g, j, d, seed=s) for s in (1, 2))) for b, h, g, i, j, d in sizes]


def _shared(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return attend(q.reshape(len(q), k.shape[1], -1, q.shape[3]), k, v).view_as(q)


def _copied(q: Tensor, k: Tensor, v: Tensor, **how) -> Tensor:
    return attend(q, *(t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v)), **how)


def _tiled(q: Tensor, t: Tensor) -> Tensor:
    return t.tile(1, q.shape[1] // t.shape[1], 1, 1)


def _averaged(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Let the mean query of a group ask for all."""
    mean = q.unflatten(1, (k.shape[1], -1)).mean(2)
    return attend(mean, k, v).repeat_interleave(q.shape[1] // k.shape[1], 1)


def _any_groups(draw: Draw) -> tuple:
    b, groups, d = draw.whole(1, 3), draw.whole(1, 4), draw.whole(1, 4)
    q = draw.normal(b, groups * draw.whole(1, 3), draw.whole(1, 4), d, scales=(1.0, 20.0))
    keys = draw.whole(1, 5)
    return q, draw.normal(b, groups, keys, d), draw.normal(b, groups, keys, d)


check_shared = Exercise(
    name="shared heads without a copy",
    solution=_shared,
    cases=_groups,
    legal=_any_groups,
    mistakes={
        "head a uses KV head a mod g, as `tile` gives; it should be a // (h/g)": (
            lambda q, k, v: attend(q, _tiled(q, k), _tiled(q, v))
        ),
        "the keys are in the right order, the values are tiled": (
            lambda q, k, v: attend(q, k.repeat_interleave(q.shape[1] // k.shape[1], 1), _tiled(q, v))
        ),
        "all heads use the first KV head": lambda q, k, v: _copied(q, k[:, :1], v[:, :1]),
        "the groups are in reverse order": lambda q, k, v: _copied(q, k.flip(1), v.flip(1)),
        "the queries of a group are averaged: each head asks for itself": _averaged,
        "the scale is forgotten": lambda q, k, v: _copied(q, k, v, scale=1.0),
        "divided by d, not by its square root": lambda q, k, v: _copied(q, k, v, scale=1 / q.shape[-1]),
        "the softmax runs over the queries, not over the keys": (
            lambda q, k, v: _copied(q, k, v, normalize=lambda scores: scores.softmax(-2))
        ),
        "keys and values are exchanged": lambda q, k, v: _copied(q, v, k),
    },
    room=lambda q, k, v: max(q.numel(), k.numel(), q.numel() // q.shape[-1] * k.shape[2]),
    too_large="The keys are copied; a matrix product copies them too where it must first stretch an axis of length 1.",
    next_step="Next: several machines.",
)


def _heads() -> list[tuple]:
    """Values of two heads (n, d): one is a reflected copy, the others are random and not centered."""
    a = _random(5, 2)
    mirrored = a @ torch.tensor([[0.6, 0.8], [0.8, -0.6]], dtype=torch.float64)
    return [(a, mirrored), *((_random(n, d, seed=n) + 0.5, _random(n, d, seed=d)) for n, d in ((7, 3), (9, 4)))]


def _turn(a: Tensor, b: Tensor, *, proper: bool = False) -> Tensor:
    u, _, vt = torch.linalg.svd(a.mT @ b)
    if proper and torch.linalg.det(u @ vt) < 0:
        u = u * torch.tensor([1.0] * (len(u) - 1) + [-1.0], dtype=u.dtype)
    return u @ vt


def _wrong_product(a: Tensor, b: Tensor) -> Tensor:
    u, _, vt = torch.linalg.svd(a.mT @ b)
    return u @ vt.mT


def _any_heads(draw: Draw) -> tuple:
    d = draw.whole(1, 4)
    n = d + draw.whole(2, 6)
    return draw.normal(n, d) + draw.one_of([0.0, 1.0]), draw.normal(n, d, scales=(1.0, 10.0)) + draw.one_of([0.0, 1.0])


check_rotation = Exercise(
    name="align one head with another",
    solution=_turn,
    cases=_heads,
    legal=_any_heads,
    mistakes={
        "this rotates b toward a: the transpose is wanted": lambda a, b: _turn(b, a),
        "svd returns V transposed already, and it was transposed again": _wrong_product,
        "the singular values are still in it: this is aᵀ b, not a rotation": lambda a, b: a.mT @ b,
        "this is least squares: it stretches, and W_o cannot undo that without harm": (
            lambda a, b: torch.linalg.lstsq(a, b).solution
        ),
        "the means were taken away first: the layer does not do that": (
            lambda a, b: _turn(a - a.mean(0), b - b.mean(0))
        ),
        "reflections are left out: for values they are allowed": lambda a, b: _turn(a, b, proper=True),
        "nothing is rotated": lambda a, b: torch.eye(a.shape[1], dtype=a.dtype),
        "orthogonal, but not the nearest: this is the Q of a QR decomposition": (
            lambda a, b: torch.linalg.qr(a.mT @ b)[0]
        ),
        "only U: both sides of the decomposition are needed": lambda a, b: torch.linalg.svd(a.mT @ b)[0],
        "only Vᵀ: both sides of the decomposition are needed": lambda a, b: torch.linalg.svd(a.mT @ b)[2],
    },
    next_step="So heads can merge.",
)
