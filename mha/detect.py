"""What a head does: how widely it looks, how far, and whether it finds the keys that a rule calls right.

A rule is a boolean tensor of *targets*, True where a query would find its right key; :mod:`mha.targets` makes them,
:func:`found` says how often a head agrees. A number means little alone: compare it with those of :mod:`mha.null`.

Taught in: chapter 09.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor


class Found(NamedTuple):
    """How well each head finds its targets: ``weight`` and ``argmax`` (h,), over ``queries`` that have any.

    ``weight`` is the mean weight on the targets, ``argmax`` the share of queries whose largest weight is on one.

    Taught in: chapter 09.
    """

    weight: Tensor
    argmax: Tensor
    queries: int


def found(weights: Float[Tensor, "b h i j"], targets: Bool[Tensor, "..."]) -> Found:
    """Say how often each head looks at the right key; queries without one, or that look at nothing, do not count.

    Of several equally large weights the share that is right counts, so that a uniform head gets what chance gives.

    Shapes: weights (b, h, i, j), targets (i, j) or (b, i, j).
    Raises: ValueError for targets of another shape, or none at all.
    Taught in: chapter 09.
    """
    b, _, i, j = weights.shape
    if targets.dtype != torch.bool or targets.shape not in ((i, j), (b, i, j)):
        raise ValueError(
            f"targets are {targets.dtype} {tuple(targets.shape)}, but must be boolean, of shape {(i, j)} or {(b, i, j)}"
        )
    targets = targets.expand(b, i, j)[:, None]
    counts = (targets.any(-1) & (weights != 0).any(-1)).to(weights)
    if not counts.any():
        raise ValueError("no query has a target: the rule does not apply to these words")
    largest = (weights == weights.amax(-1, keepdim=True)).to(weights)
    agrees = (largest * targets).sum(-1) / largest.sum(-1)
    each = counts.sum((0, 2)).clamp_min(1)
    means = ((share * counts).sum((0, 2)) / each for share in ((weights * targets).sum(-1), agrees))
    return Found(*means, int(targets.any(-1).sum()))


def entropy(weights: Float[Tensor, "b h i j"]) -> Float[Tensor, "h"]:
    """Say how widely each head looks: 0 at one key, log n evenly at n keys; in nats, mean over queries.

    Queries that look at nothing do not count.

    Source: Clark et al. 2019, section 3.3.
    Differs from the released code: nothing is added to the weights before the logarithm.
    Taught in: chapter 09.
    """
    return _mean(-torch.special.xlogy(weights, weights).sum(-1), weights)


def distance(weights: Float[Tensor, "b h i j"]) -> Float[Tensor, "h"]:
    """Say how far each head looks: the weighted mean of |i − j|, mean over queries; uniform: (n² − 1) / 3n.

    With fewer queries than keys the last query stands at the last key.

    Taught in: chapter 09.
    """
    i, j = weights.shape[-2:]
    apart = (torch.arange(i)[:, None] + (j - i) - torch.arange(j)).abs().to(weights)
    return _mean((weights * apart).sum(-1), weights)


def _mean(numbers: Tensor, weights: Tensor) -> Tensor:
    """Take the mean over batch and queries, leaving out queries that look at nothing."""
    looks = (weights != 0).any(-1).to(numbers)
    return (numbers * looks).sum((0, 2)) / looks.sum((0, 2)).clamp_min(1)
