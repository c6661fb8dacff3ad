"""All layers of the course in the same small models on the same tasks: ``quality(task, layer, seed)``.

:Taught in: choosing.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import mha
from mha.checks import checked
from mha.course.comparison.tasks import HEADS, WIDTH, Contest, Dates, Digits, English, Recall, Score, english, learn
from mha.layers.multi_head import Heads
from mha.layers.routers import balance_loss
from mha.models.blocks import Stack
from mha.models.feedback_transformer import FeedbackLayer, FeedbackStack
from mha.models.merged_decoder import MergedDecoderLayer
from mha.models.training import DivergenceError
from mha.models.transformer import DecoderLayer, EncoderLayer

TASKS: dict[str, type[Contest]] = {"digits": Digits, "recall": Recall, "English": English, "dates": Dates}


BETA = 0.01  # how much the balance loss of routed heads counts


NO_SOURCE = "it reads a source and averages its own tokens: only a decoder with a source has both"


NOT_ALWAYS_FORWARD = "it steps from left to right and sees earlier steps only"


@dataclass(frozen=True)
class Candidate:
    """One way to compose heads: ``make(d_model, heads)`` makes the layer; ``refuses`` says on which tasks not, and why.

    ``last`` names the candidate that the last layer of a stack is made of, where it is another one.

    :Taught in: choosing.
    """

    make: Callable[[int, int], Heads]
    refuses: dict[str, str] = field(default_factory=dict)
    last: str = ""


def _plain(d_model: int, heads: int) -> Heads:
    return mha.MultiHeadAttention(d_model, heads)


LAYERS = {
    "plain": Candidate(_plain),
    "plain, half the heads": Candidate(lambda d, h: _plain(d, h // 2)),
    "grouped": Candidate(lambda d, h: mha.GroupedAttention(d, h, h // 2)),
    "collaborative": Candidate(lambda d, h: mha.CollaborativeAttention(d, h, d // 2)),
    "overlapping": Candidate(lambda d, h: mha.OverlappingAttention(d, h, d // h // 4)),
    "routed": Candidate(lambda d, h: mha.RoutedAttention(d, h, h // 4, h // 2)),
    "talking": Candidate(lambda d, h: mha.TalkingAttention(d, h)),
    "composable": Candidate(lambda d, h: mha.ComposableAttention(d, h)),
    "sparse": Candidate(lambda d, h: mha.EntmaxAttention(d, h)),
    "merged": Candidate(
        lambda d, h: mha.MergedAttention(d, h), dict.fromkeys(("digits", "recall", "English"), NO_SOURCE)
    ),
    "feedback": Candidate(
        lambda d, h: mha.FeedbackAttention(d, h, steps=32), dict.fromkeys(("digits", "dates"), NOT_ALWAYS_FORWARD)
    ),
}


IN_ORDER = "what a token reads depends on the order in which the tokens before it were written"


NO_DISTANCES = "a source has no distances"

# Plain layers with other sizes: two and four heads with the weights of the composable layer (7,892 beside 7,840), four
# with those of the overlapping one (4,748 beside 4,736), and a step between. And plain layers that know how far back a
# token is, as layers do that write one token after the other: rotary positions, ALiBi as published, and ALiBi with
# slopes for texts of 32 tokens, four to half a unit per token.
BASELINES = {
    "plain, 2 × 30": Candidate(lambda d, h: mha.MultiHeadAttention(d, 2, d_head=30)),
    "plain, 4 × 15": Candidate(lambda d, h: mha.MultiHeadAttention(d, 4, d_head=15)),
    "plain, 4 × 12": Candidate(lambda d, h: mha.MultiHeadAttention(d, 4, d_head=12)),
    "plain, 4 × 9": Candidate(lambda d, h: mha.MultiHeadAttention(d, 4, d_head=9)),
    "plain, rotary": Candidate(
        lambda d, h: mha.MultiHeadAttention(d, h, positions=mha.RotaryPositions()), {"dates": NO_DISTANCES}
    ),
    "plain, ALiBi": Candidate(
        lambda d, h: mha.MultiHeadAttention(d, h, positions=mha.LinearBias()), {"dates": NO_DISTANCES}
    ),
    "plain, steep ALiBi": Candidate(
        lambda d, h: mha.MultiHeadAttention(d, h, positions=mha.LinearBias(2.0 ** (2 - torch.arange(h)))),
        {"dates": NO_DISTANCES},
    ),
}
SIZES = [name for name in BASELINES if " × " in name]


def _released(d_model: int, heads: int) -> Heads:
    """Make a delta layer with what released ones have beside the rule: convolution, SiLU, norm and gate."""
    around: Any = {"convolution": 4, "activation": True, "norm": torch.finfo(torch.float32).eps, "gate": "silu"}
    return mha.DeltaAttention(d_model, heads, **around)


def _latent(d_model: int, heads: int) -> Heads:
    return mha.LatentAttention(d_model, heads, d_model // 2, norm=True)  # every released one has the norm


def _delta(share: int) -> Candidate:
    return Candidate(lambda d, h: mha.DeltaAttention(d, h // share), dict.fromkeys(("digits", "dates"), IN_ORDER))


# Layers of current LLMs. One KV head for all (MQA) keeps 16 numbers per token, as the latent layer does. A state of h
# heads of d channels has h·d² numbers: half the heads, each twice as wide, have twice the state. A hybrid is of two
# kinds.
TODAY = {
    "sink": Candidate(lambda d, h: mha.SinkAttention(d, h)),
    "gated": Candidate(lambda d, h: mha.GatedAttention(d, h)),
    "one KV head": Candidate(lambda d, h: mha.GroupedAttention(d, h, 1)),
    "latent": Candidate(_latent),
    "latent, no norm": Candidate(lambda d, h: mha.LatentAttention(d, h, d // 2)),
    "linear": Candidate(lambda d, h: mha.LinearAttention(d, h)),
    "linear, half the heads": Candidate(lambda d, h: mha.LinearAttention(d, h // 2)),
    "linear, one head": Candidate(lambda d, h: mha.LinearAttention(d, 1)),
    "delta": _delta(1),
    "delta, half the heads": _delta(2),
    "delta, one head": _delta(4),
    "delta, as released": Candidate(_released, dict.fromkeys(("digits", "dates"), IN_ORDER)),
    "delta, then plain": Candidate(
        lambda d, h: mha.DeltaAttention(d, h), dict.fromkeys(("digits", "dates"), IN_ORDER), last="plain"
    ),
}

EVERY = LAYERS | BASELINES | TODAY


def stack(layer: str, count: int, *, sources: bool = False) -> nn.Module:
    """Make a stack of layers around one way to compose heads; ``sources`` where each has a source to read.

    :Taught in: choosing.
    """
    kind: type[nn.Module]
    make: Any = partial(EVERY[layer].make, WIDTH, HEADS)
    if layer == "feedback":
        return FeedbackStack(FeedbackLayer(WIDTH, make) for _ in range(count))
    if layer == "merged":
        kind, make = (MergedDecoderLayer, make) if sources else (EncoderLayer, HEADS)
    else:
        kind = DecoderLayer if sources else EncoderLayer
    makes = [make] * count
    if EVERY[layer].last:
        makes[-1] = partial(EVERY[EVERY[layer].last].make, WIDTH, HEADS)
    return Stack(kind(WIDTH, make) for make in makes)


def built(task: str, layer: str, seed: int) -> tuple[Contest, nn.Module]:
    """Draw the data of a task and make a new model for it, all from one seed.

    :Taught in: choosing.
    """
    if task not in TASKS or layer not in EVERY:
        raise ValueError(f"task = {task!r}, layer = {layer!r}: one of {list(TASKS)}, and one of {list(EVERY)}")
    if task in EVERY[layer].refuses:
        raise ValueError(f"{layer} cannot do {task}: {EVERY[layer].refuses[task]}")
    torch.manual_seed(seed)
    contest = TASKS[task](seed)
    return contest, contest.model(partial(stack, layer))


def balanced(contest: Contest, model: nn.Module) -> Tensor:
    """Add the balance loss of all routers to the loss of the task.

    :Taught in: choosing.
    """
    with mha.watch(model, "probabilities", "gates", detach=False) as seen:
        loss = contest.loss(model)
    both = zip(seen.all("probabilities"), seen.all("gates"), strict=True)
    return loss + BETA * sum(balance_loss(*pair) for pair in both)


@checked
def quality(task: str, layer: str, seed: int = 0, *, budget: float = 1.0, rate: float | None = None) -> Score:
    """Train one model and judge it; routed heads add their balance loss, as their paper does.

    ``budget`` says how many times the task's own number of steps it is trained, ``rate`` the highest learning rate; the
    lower one of the task's two unless given. A training run that diverges is judged as :func:`guessing`.

    :Raises: ValueError for a task that the layer cannot do, a budget of no step, or a rate that is not above 0.
    :Taught in: choosing.
    """
    contest, model = built(task, layer, seed)
    rate = contest.rates[0] if rate is None else rate
    if not rate > 0:
        raise ValueError(f"rate = {rate}: a learning rate is above 0, such as {contest.rates[0]}")
    contest.steps = round(budget * contest.steps)
    if contest.steps < 1:
        raise ValueError(f"budget = {budget}: {TASKS[task].steps} steps times that is no step at all")
    loss = partial(balanced, contest) if layer == "routed" else contest.loss
    try:
        return learn(contest, model, loss, rate)
    except DivergenceError:
        return guessing(task)


def guessing(task: str) -> Score:
    """Judge a model that knows nothing: no answer is right, and all characters are equally likely.

    A training run that diverges leaves such a model.

    :Taught in: choosing.
    """
    worst = math.log(int(english().max()) + 1) if task == "English" else 0.0
    return Score(worst, worst)
