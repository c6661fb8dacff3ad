"""What chance gives: numbers that a head must beat before its number means anything.

The null of a rule is the larger of two: the best head of an untrained model, and the best fixed offset.

Taught in: chapter 09.
"""

import copy

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha.detect import found
from mha.targets import offset


def uniform(weights: Float[Tensor, "b h i j"]) -> Float[Tensor, "b h i j"]:
    """Look evenly at all keys that have any weight. Taught in: chapter 09."""
    visible = (weights != 0).to(weights)
    return visible / visible.sum(-1, keepdim=True).clamp_min(1)


def shuffled(weights: Float[Tensor, "b h i j"], *, generator: torch.Generator) -> Float[Tensor, "b h i j"]:
    """Keep the weights of each query but deal them out anew, among the keys that have any weight.

    Taught in: chapter 09.
    """
    visible = weights != 0
    draw = torch.rand(weights.shape, generator=generator, dtype=torch.float64).masked_fill(~visible, 2)
    ranks = torch.where(visible, visible.cumsum(-1) - 1, visible.sum(-1, keepdim=True) + (~visible).cumsum(-1) - 1)
    packed = torch.zeros_like(weights).scatter(-1, ranks, weights)  # the visible weights first, in their order
    return torch.zeros_like(weights).scatter(-1, draw.argsort(-1), packed)


def untrained(model: nn.Module, *, seed: int) -> nn.Module:
    """Copy a model and give every weight a new initial value, drawn from ``seed``; the model itself stays.

    Raises: ValueError where a module has weights but does not say how they begin (no ``reset_parameters``).
    Taught in: chapter 09.
    """
    fresh = copy.deepcopy(model)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for path, module in fresh.named_modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
            elif list(module.parameters(recurse=False)):
                raise ValueError(f"{path or 'the model'} ({type(module).__name__}) has no reset_parameters: build anew")
    return fresh


def best_offset(targets: Bool[Tensor, "..."], visible: Bool[Tensor, "..."] | None = None) -> tuple[int, float]:
    """Find the fixed number of steps that meets most targets, and the share of queries for which it does.

    Shapes: targets (i, j) or (b, i, j); ``visible`` the same, True where a query can look (everywhere unless given).
    Raises: ValueError where no query has a target.
    Source: the baseline of Voita et al. 2019, section 5.2.2.
    Taught in: chapter 09.
    """
    i, j = targets.shape[-2:]
    targets = targets if visible is None else targets & visible
    queries = int(targets.any(-1).sum())
    if not queries:
        raise ValueError("no query has a target: the rule does not apply to these words")
    hits = {steps: int((targets & offset(i, steps, keys=j)).sum()) for steps in range(1 - j, i)}
    steps = max(hits, key=lambda s: (hits[s], -abs(s)))
    return steps, hits[steps] / queries


def null(untrained_weights: list[Float[Tensor, "b _h i j"]], targets: Bool[Tensor, "..."]) -> float:
    """Say what a trained head must beat: the best untrained head or the best fixed offset, whichever is larger.

    ``untrained_weights`` are the weights of each layer of an untrained copy on the same words.

    Taught in: chapter 09.
    """
    heads = [float(found(weights, targets).argmax.max()) for weights in untrained_weights]
    return max([best_offset(targets)[1], *heads])
