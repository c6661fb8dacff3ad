"""What a head does: how widely it looks, how far, and whether it finds the keys that a rule calls right.

A rule is a boolean tensor of *targets*, True where a query would find its right key; :mod:`mha.analysis.patterns`
makes them, :func:`score_heads` says how often a head agrees. A number means little alone: compare it with what other
heads reach by chance, :func:`baseline`.

:Taught in: reading_heads.
"""

import copy
import inspect
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha.analysis.patterns import offset
from mha.checks import check_finite, check_whole, checked, described


class HeadScores(NamedTuple):
    """How well each head finds its targets: ``weight`` and ``argmax`` (h,), over ``queries`` that have any.

    ``weight`` is the mean weight on the targets, ``argmax`` the share of queries whose largest weight is on one.

    :Taught in: reading_heads.
    """

    weight: Tensor
    argmax: Tensor
    queries: int


@checked
def score_heads(weights: Float[Tensor, "b h i j"], targets: Bool[Tensor, "..."]) -> HeadScores:
    """Say how often each head looks at the right key; queries without one, or that look at nothing, do not count.

    Of several equally large weights the share that is right counts, so that a uniform head gets what chance gives.

    :param weights: attention weights, (b, h, i, j).
    :param targets: True at the right keys, (i, j) or (b, i, j).
    :Raises: ValueError for targets of another shape, or none at all.
    :Taught in: reading_heads.
    """
    check_finite(weights=weights)
    b, _, i, j = weights.shape
    if targets.dtype != torch.bool or targets.shape not in ((i, j), (b, i, j)):
        raise ValueError(
            f"targets are {targets.dtype} {tuple(targets.shape)}, but must be boolean, of shape {(i, j)} or {(b, i, j)}"
        )
    targets = targets.expand(b, i, j)[:, None]
    counts = (targets.any(-1) & (weights != 0).any(-1)).to(weights)
    if not counts.any():
        raise ValueError("no query has a target: the rule does not apply to these tokens")
    largest = (weights == weights.amax(-1, keepdim=True)).to(weights)
    agrees = (largest * targets).sum(-1) / largest.sum(-1)
    each = counts.sum((0, 2)).clamp_min(1)
    weight, argmax = ((share * counts).sum((0, 2)) / each for share in ((weights * targets).sum(-1), agrees))
    return HeadScores(weight, argmax, int(targets.any(-1).sum()))


@checked
def entropy(weights: Float[Tensor, "b h i j"]) -> Float[Tensor, "h"]:
    """Say how widely each head looks: 0 at one key, log n evenly at n keys; in nats, mean over queries.

    Queries that look at nothing do not count.

    :param weights: attention weights, (b, h, i, j), none below 0.
    :Raises: ValueError for weights below 0, as the delta rule and talking heads have them: they have no entropy.
    :Source: Clark et al. 2019, section 3.3.
    :Differs from the released code: nothing is added to the weights before the logarithm.
    :Taught in: reading_heads.
    """
    check_finite(weights=weights)
    if bool((weights < 0).any()):
        raise ValueError(
            f"weights = {described(weights)}, down to {weights.min():.3g}: entropy is for shares, no share is below "
            "0. Weights of the delta rule or of talking heads have none"
        )
    return _mean(-torch.special.xlogy(weights, weights).sum(-1), weights)


@checked
def distance(weights: Float[Tensor, "b h i j"]) -> Float[Tensor, "h"]:
    """Say how far each head looks: the weighted mean of their distance, mean over queries; uniform: (n² − 1) / 3n.

    With fewer queries than keys the last query is at the last key.

    :param weights: attention weights, (b, h, i, j).
    :Taught in: reading_heads.
    """
    check_finite(weights=weights)
    i, j = weights.shape[-2:]
    apart = (torch.arange(i)[:, None] + (j - i) - torch.arange(j)).abs().to(weights)
    return _mean((weights * apart).sum(-1), weights)


def _mean(numbers: Tensor, weights: Tensor) -> Tensor:
    """Take the mean over batch and queries, leaving out queries that look at nothing."""
    looks = (weights != 0).any(-1).to(numbers)
    return (numbers * looks).sum((0, 2)) / looks.sum((0, 2)).clamp_min(1)


@checked
def uniform(weights: Float[Tensor, "b h i j"]) -> Float[Tensor, "b h i j"]:
    """Attend evenly to all keys that have any weight.

    :param weights: attention weights, (b, h, i, j).
    :Taught in: reading_heads.
    """
    check_finite(weights=weights)
    visible = (weights != 0).to(weights)
    return visible / visible.sum(-1, keepdim=True).clamp_min(1)


@checked
def shuffled(weights: Float[Tensor, "b h i j"], *, generator: torch.Generator) -> Float[Tensor, "b h i j"]:
    """Keep the weights of each query but distribute them anew, among the keys that have any weight.

    :param weights: attention weights, (b, h, i, j).
    :param generator: where the random numbers come from.
    :Taught in: reading_heads.
    """
    check_finite(weights=weights)
    visible = weights != 0
    draw = torch.rand(weights.shape, generator=generator, dtype=torch.float64).masked_fill(~visible, 2)
    ranks = torch.where(visible, visible.cumsum(-1) - 1, visible.sum(-1, keepdim=True) + (~visible).cumsum(-1) - 1)
    packed = torch.zeros_like(weights).scatter(-1, ranks, weights)  # the visible weights first, in their order
    return torch.zeros_like(weights).scatter(-1, draw.argsort(-1), packed)


@checked
def untrained(model: nn.Module, *, seed: int) -> nn.Module:
    """Copy a model and give every parameter a new initial value.

    Each module begins as its ``reset_parameters`` says, and those inside a model of ``transformers`` as the model's own
    rule says (``_init_weights``). Layers that :func:`mha.interop.swap` has put in stay where they are, with linear maps
    drawn by the model's rule; sinks begin at 0. What is frozen or tied stays so.

    :param model: any module; it stays as it is.
    :param seed: of torch's random numbers, at least 0.
    :Raises: ValueError where a parameter has no rule, or its rule needs the old value.
    :Taught in: reading_heads.
    """
    check_whole(0, seed=seed)
    fresh = copy.deepcopy(model)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        for parameter in fresh.parameters():
            vars(parameter).pop("_is_hf_initialized", None)  # transformers draws only what has no such mark
            if parameter.is_floating_point():
                parameter.fill_(math.nan)  # what is still NaN at the end was forgotten
        _begin(fresh, None)
        for path, module in fresh.named_modules():
            if any(not one.is_meta and bool(one.isnan().any()) for one in module.parameters(recurse=False)):
                raise ValueError(f"{path or 'the model'} ({type(module).__name__}) has no reset_parameters: build anew")
    return fresh


def _begin(module: nn.Module, rule: Callable[[nn.Module], None] | None) -> None:
    """Reset a module and all inside it, the inner ones first; ``rule`` is that of the model around them."""
    own = getattr(module, "_init_weights", None)
    rule = own if callable(own) and len(inspect.signature(own).parameters) == 1 else rule
    for child in module.children():
        _begin(child, rule)
    reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
    if reset is not None:
        reset()
    ours = type(module).__module__.startswith("mha.")  # whose classes no rule of another library means
    if rule is not None and (isinstance(module, nn.Linear) or not ours):
        rule(module)


@checked
def best_offset(targets: Bool[Tensor, "..."], visible: Bool[Tensor, "..."] | None = None) -> tuple[int, float]:
    """Find the fixed number of steps that meets most targets, and the share of queries for which it does.

    :param targets: True at the right keys, (i, j) or (b, i, j).
    :param visible: of the same shape, True where a query can look; everywhere unless given.
    :Raises: ValueError where no query has a target.
    :Source: the baseline of Voita et al. 2019, section 5.2.2.
    :Taught in: reading_heads.
    """
    i, j = targets.shape[-2:]
    targets = targets if visible is None else targets & visible
    queries = int(targets.any(-1).sum())
    if not queries:
        raise ValueError("no query has a target: the rule does not apply to these tokens")
    hits = {steps: int((targets & offset(i, steps, keys=j)).sum()) for steps in range(1 - j, i)}
    steps = max(hits, key=lambda s: (hits[s], -abs(s)))
    return steps, hits[steps] / queries


@checked
def baseline(untrained_weights: list[Float[Tensor, "b _h i j"]], targets: Bool[Tensor, "..."]) -> float:
    """Say what a trained head must beat: the best untrained head or the best fixed offset, whichever is larger.

    :param untrained_weights: those of each layer of an untrained copy for the same tokens, (b, h, i, j) each.
    :param targets: True at the right keys, (i, j) or (b, i, j).
    :Taught in: reading_heads.
    """
    heads = [float(score_heads(weights, targets).argmax.max()) for weights in untrained_weights]
    return max([best_offset(targets)[1], *heads])


POSITIONAL = 0.9  # the largest weight on one neighbor in at least 90 % of the cases


BETTER = 0.1  # a head follows a rule of syntax where it beats the best fixed offset by ten points


@checked
def classify(
    weights: Float[Tensor, "b h i j"], rules: Mapping[str, Bool[Tensor, "..."]] | None = None
) -> list[list[str]]:
    """Name what each head does, by the published rules; a head may get several names or none.

    "previous" or "next": the largest weight is on this neighbor in at least 90 % of the cases. A rule of your own,
    such as {"bracket": targets}, names a head whose argmax beats the best fixed offset by ten points.

    :param weights: attention weights, (b, h, i, j).
    :param rules: targets of rules of your own, (i, j) or (b, i, j), by name; none unless given.
    :Shapes: returns one list of names for each of the h heads.
    :Source: Voita et al. 2019, sections 5.2.1 and 5.2.2.
    :Differs from the paper: its ten percent can be read as points, as here, or as a ratio.
    :Taught in: reading_heads.
    """
    i, j = weights.shape[-2:]
    neighbors = {"previous": offset(i, -1, keys=j), "next": offset(i, 1, keys=j)}
    bars = {name: (score_heads(weights, t).argmax, POSITIONAL) for name, t in neighbors.items() if t.any()}
    for name, targets in (rules or {}).items():
        bars[name] = score_heads(weights, targets).argmax, best_offset(targets)[1] + BETTER
    return [[name for name, (share, bar) in bars.items() if share[h] >= bar] for h in range(weights.shape[1])]
