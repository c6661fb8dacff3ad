"""Checkers: what is cached per token, attention without keys, one latent for two projections."""

import torch
from torch import Tensor

from mha.course.exercises.exercise import Exercise
from mha.course.exercises.legal import Draw
from mha.course.exercises.plain import compress as plain
from mha.functional.latent import fit_latent


def _random(*shape: int, seed: int = 23) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# ---- what is cached


check_kept = Exercise(**vars(plain.check_kept))


# ---- attention to latents


def _latents() -> list[tuple]:
    """Queries (h, d), latents (j, r), W_k and W_v (h, r, d)."""
    sizes = [(2, 3, 40, 2), (3, 5, 60, 4), (2, 4, 50, 6)]
    return [(_random(h, d), _random(j, r, seed=j), *(_random(h, r, d, seed=s) for s in (1, 2))) for h, d, j, r in sizes]


def _absorbed(
    q: Tensor,
    c: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    *,
    scale: float | None = None,
    weigh=lambda scores: scores.softmax(-1),
) -> Tensor:
    asked = torch.einsum("hd,hrd->hr", q, w_k)
    weights = weigh(asked @ c.mT * (q.shape[-1] ** -0.5 if scale is None else scale))
    return torch.einsum("hr,hrd->hd", weights @ c, w_v)


def _any_latents(draw: Draw) -> tuple:
    h, d, r = draw.whole(1, 4), draw.whole(1, 5), draw.whole(1, 6)
    j = 40 + draw.whole(0, 20)
    q = draw.normal(h, d, scales=(1.0, 0.1, 3.0))
    return q, draw.normal(j, r, scales=(1.0,)), draw.normal(h, r, d, scales=(1.0,)), draw.normal(h, r, d, scales=(1.0,))


check_absorbed = Exercise(
    name="attention without keys",
    solution=_absorbed,
    cases=_latents,
    legal=_any_latents,
    mistakes={
        "divided by the square root of the latent's width: the scores are those of the heads": (
            lambda q, c, k, v: _absorbed(q, c, k, v, scale=c.shape[-1] ** -0.5)
        ),
        "the scale is forgotten": lambda q, c, k, v: _absorbed(q, c, k, v, scale=1.0),
        "W_k and W_v are exchanged": lambda q, c, k, v: _absorbed(q, c, v, k),
        "W_k serves for both": lambda q, c, k, v: _absorbed(q, c, k, k),
        "all heads use the W_k of the first": lambda q, c, k, v: _absorbed(q, c, k[:1].expand_as(k), v),
        "all heads use the W_v of the first": lambda q, c, k, v: _absorbed(q, c, k, v[:1].expand_as(v)),
        "the mean of all tokens is returned, whatever the query is": lambda q, c, k, v: _absorbed(0 * q, c, k, v),
        "no softmax: scores are used as weights": lambda *a: _absorbed(*a, weigh=lambda scores: scores),
        "the softmax runs over the heads, not over the tokens": lambda *a: _absorbed(*a, weigh=lambda s: s.softmax(0)),
        "divided by √ of the number of heads": lambda *a: _absorbed(*a, scale=len(a[0]) ** -0.5),
    },
    room=lambda q, c, w_k, w_v: max(c.numel(), w_k.numel(), len(q) * len(c)),
    too_large="Keys or values of all tokens were made. Project the query to the latents instead.",
    next_step="Next: where a latent comes from.",
)


# ---- one latent for two projections


def _pairs() -> list[tuple]:
    """W_k (m, k), W_v (m, v), and how many numbers may be kept: even, so that half of it exists."""
    sizes = [(6, 4, 4, 2), (7, 5, 3, 4), (8, 6, 6, 4)]
    return [(_random(m, k), _random(m, v, seed=m), kept) for m, k, v, kept in sizes]


def _joint(w_k: Tensor, w_v: Tensor, kept: int) -> list[Tensor]:
    found = fit_latent(w_k.mT, w_v.mT, kept)
    return [(found.keys @ found.down).mT, (found.values @ found.down).mT]


def _cut(w: Tensor, kept: int) -> Tensor:
    u, s, vt = torch.linalg.svd(w, full_matrices=False)
    return (u[:, :kept] * s[:kept]) @ vt[:kept]


def _below(w_k: Tensor, w_v: Tensor, kept: int) -> list[Tensor]:
    """Cut the two laid below each other, padded to one width: they then share outputs, not inputs."""
    wide = max(w_k.shape[1], w_v.shape[1])
    padded = [torch.nn.functional.pad(w, (0, wide - w.shape[1])) for w in (w_k, w_v)]
    one, other = _cut(torch.cat(padded), kept).chunk(2)
    return [one[:, : w_k.shape[1]], other[:, : w_v.shape[1]]]


def _smallest(w_k: Tensor, w_v: Tensor, kept: int) -> list[Tensor]:
    u, s, vt = torch.linalg.svd(torch.cat([w_k, w_v], 1), full_matrices=False)
    return list(((u[:, -kept:] * s[-kept:]) @ vt[-kept:]).split([w_k.shape[1], w_v.shape[1]], 1))


def _unscaled(w_k: Tensor, w_v: Tensor, kept: int) -> list[Tensor]:
    u, _, vt = torch.linalg.svd(torch.cat([w_k, w_v], 1), full_matrices=False)
    return list((u[:, :kept] @ vt[:kept]).split([w_k.shape[1], w_v.shape[1]], 1))


def _any_pair(draw: Draw) -> tuple:
    m, k, v = draw.whole(3, 8), draw.whole(2, 6), draw.whole(2, 6)
    return draw.normal(m, k), draw.normal(m, v), 2 * draw.whole(1, min(m, k + v) // 2)


check_joint = Exercise(
    name="one latent for keys and values",
    solution=_joint,
    cases=_pairs,
    legal=_any_pair,
    mistakes={
        "the two are cut separately, so twice as many numbers are kept": (
            lambda k, v, n: [_cut(k, min(n, *k.shape)), _cut(v, min(n, *v.shape))]
        ),
        "the two are cut separately, half of the numbers for each": lambda k, v, n: [_cut(k, n // 2), _cut(v, n // 2)],
        "they were laid below each other: lay them side by side, both are applied to the same token": _below,
        "the smallest singular values were kept": _smallest,
        "values are left out: nothing of W_v was cut": lambda k, v, n: [_joint(k, v, n)[0], v],
        "keys decide alone what is kept": lambda k, v, n: [
            _cut(k, min(n, *k.shape)),
            _cut(k, min(n, *k.shape)) @ torch.linalg.pinv(k) @ v,
        ],
        "one number too few is kept": lambda k, v, n: _joint(k, v, n - 1),
        "the singular values are left out of the product": _unscaled,
        "half of the numbers are kept: keys and values share all of them": lambda k, v, n: _joint(k, v, n // 2),
        "nothing was cut": lambda k, v, n: [k, v],
    },
    next_step="So a trained layer gets a smaller KV cache.",
)
