"""The best rotation of one head towards another, of a group towards its mean, and groups of heads that are alike.

:Taught in: cache_and_sharing.
"""

from collections.abc import Callable
from itertools import chain

import torch
from jaxtyping import Float
from torch import Tensor

from mha.checks import check_finite, check_whole, checked

STARTS = 10**4  # more orders of some heads than are worth a look


@checked
def best_rotation(
    heads: Float[Tensor, "h n d"], layout: str | None, target: Float[Tensor, "t n d"] | None = None
) -> tuple[Tensor, Tensor]:
    """Rotate each head towards each target, as near as it comes (orthogonal Procrustes).

    Without a rotary layout any orthogonal matrix is allowed: with the singular values of headᵀ target = U S Vᵀ it is
    U Vᵀ, and the inner product becomes the sum of S. With a layout each pair of channels is one complex number, and the
    best angle is that of the sum of conj(head) · target; a reflection is not among them.

    :param heads: what each head makes of n tokens, (h, n, d).
    :param layout: how rotary positions pair the channels, "half" or "interleaved"; None where they do not.
    :param target: what they are aligned with, (t, n, d); the heads themselves unless given.
    :Shapes: returns the rotations (h, t, d, d) and the cosines they reach (h, t).
    """
    check_finite(heads=heads)
    if layout not in (None, "half", "interleaved"):
        raise ValueError(f"layout = {layout!r}: it is None, 'half' or 'interleaved'")
    target = heads if target is None else target
    check_finite(target=target)
    if 0 in heads.shape or target.shape[1:] != heads.shape[1:]:
        raise ValueError(f"target has shape {tuple(target.shape)}, but heads have {tuple(heads.shape)}: as many tokens")
    rotations, inner = _rotations(heads, layout, target)
    return rotations, inner / (heads.flatten(1).norm(dim=1)[:, None] * target.flatten(1).norm(dim=1))


def _rotations(heads: Tensor, layout: str | None, target: Tensor) -> tuple[Tensor, Tensor]:
    """Find the rotations, and the inner products that they reach."""
    products = torch.einsum("hnd,tne->htde", heads, target)
    if layout is None:
        u, s, vt = torch.linalg.svd(products)
        return u @ vt, s.sum(-1)
    d = heads.shape[-1]
    even, odd = pairs(d, layout)
    straight = products[..., even, even] + products[..., odd, odd]
    across = products[..., even, odd] - products[..., odd, even]
    angle, rotations = torch.atan2(across, straight), products.new_zeros(products.shape)
    rotations[..., even, even] = rotations[..., odd, odd] = angle.cos()
    rotations[..., even, odd], rotations[..., odd, even] = angle.sin(), -angle.sin()
    return rotations, torch.hypot(straight, across).sum(-1)


@checked
def pairs(d: int, layout: str) -> tuple[Tensor, Tensor]:
    """Name the channels that rotary positions rotate together.

    :param d: the width of a head, even.
    :param layout: "half" or "interleaved".
    :Shapes: returns two rows of d / 2 channels, by number.
    """
    first = torch.arange(d // 2) if layout == "half" else torch.arange(0, d, 2)
    return first, first + (d // 2 if layout == "half" else 1)


@checked
def rotate_group(heads: Float[Tensor, "g n d"], layout: str | None, limit: float = 1e-5, rounds: int = 100) -> Tensor:
    """Find rotations that align the heads of a group: first to head 0, then to their mean.

    It ends when the sum of the cosines of all pairs gains less than ``limit``; two heads need one step.

    :param heads: what each head of the group makes of n tokens, (g, n, d).
    :param layout: how rotary positions pair the channels, "half" or "interleaved"; None where they do not.
    :param limit: the least gain in the sum of all cosines that is worth a round; 1e-5 unless given.
    :param rounds: how many rounds at most; 100 unless given.
    :Shapes: returns the rotations (g, d, d).
    """
    rotations = best_rotation(heads, layout, heads[:1])[0][:, 0]
    rotations[0] = torch.eye(heads.shape[-1]).to(heads)
    rotated = heads @ rotations
    reached = pairwise(rotated).sum()
    for _ in range(rounds if len(heads) > 2 else 0):
        found = _rotations(heads, layout, rotated.mean(0, keepdim=True))[0][:, 0]
        nearer = heads @ found
        now = pairwise(nearer).sum()
        if now > reached:
            rotations, rotated = found, nearer
        if now - reached < limit:
            break
        reached = now
    return rotations


@checked
def pairwise(heads: Float[Tensor, "h n d"]) -> Tensor:
    """Give the cosine of every two heads, each taken as one long vector.

    :param heads: what each head makes of n tokens, (h, n, d).
    :Shapes: returns (h, h).
    """
    long = torch.nn.functional.normalize(heads.flatten(1), dim=1)
    return long @ long.T


@checked
def likeness(heads: Float[Tensor, "h n d"], groups: list[list[int]]) -> float:
    """Give the mean cosine of two heads of the same group; 1 where every head is alone.

    :param heads: what each head makes of n tokens, (h, n, d).
    :param groups: the numbers of the heads in each group, all of one size.
    """
    heads_of = [head for group in groups for head in group] if all(isinstance(g, list) for g in groups) else None
    if not groups or heads_of is None or not all(0 <= head < len(heads) for head in heads_of):
        raise ValueError(f"groups = {groups}: give lists of heads, each from 0 to {len(heads) - 1}")
    size = len(groups[0])
    if size == 1:
        return 1.0
    return sum((pairwise(heads[g]).sum() - size).item() for g in groups) / (len(groups) * size * (size - 1))


@checked
def group_heads(alike: Float[Tensor, "h h"], size: int, *, starts: int = 20, seed: int = 0) -> list[list[int]]:
    """Put heads into groups of ``size`` so that the likeness within groups is as large as can be found.

    From the given order and from random ones, two heads change groups as long as a swap helps.

    :param alike: the likeness of every two heads, (h, h).
    :param size: how many heads are in a group; it divides h.
    :param starts: how many orders are tried, the given one among them, at most 10,000; 20 unless given.
    :param seed: of the random orders; 0 unless given.
    :Raises: ValueError for a ``size`` that does not divide h, for numbers out of range, and for NaN in ``alike``.
    """
    check_whole(size=size)
    check_whole(1, STARTS, starts=starts)
    check_whole(0, seed=seed)
    if alike.shape[0] != alike.shape[1] or len(alike) % size:
        raise ValueError(f"alike has shape {tuple(alike.shape)}, size = {size}: give (h, h), where size divides h")
    check_finite(alike=alike)
    alike, random = alike.double().cpu(), torch.Generator().manual_seed(seed)
    h = len(alike)
    drawn = (torch.randperm(h, generator=random) for _ in range(starts - 1))
    same: Tensor = torch.block_diag(*[torch.ones(size, size, dtype=torch.float64)] * (h // size))

    def worth(order: Tensor) -> float:
        return (alike[order][:, order] * same).sum().item()

    best = max((climb(order, worth) for order in chain([torch.arange(h)], drawn)), key=worth)
    return sorted(sorted(group) for group in best.view(-1, size).tolist())


@checked
def climb(order: Tensor, worth: Callable[[Tensor], float]) -> Tensor:
    """Swap two heads as long as some swap helps.

    :param order: the numbers of the heads, group after group, (h,).
    :param worth: says how good an order is; more is better.
    """
    reached, better = worth(order), True
    while better:
        better = False
        for a, b in torch.combinations(torch.arange(len(order))).tolist():
            other = order.clone()
            other[[a, b]] = order[[b, a]]
            if worth(other) > reached + 1e-12:
                order, reached, better = other, worth(other), True
    return order
