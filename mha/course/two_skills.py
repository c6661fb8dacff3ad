"""The small model of chapter 11 and its side rooms: it continues English, and chants of eight characters.

:Taught in: pruning_heads.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from mha.analysis.pruning import mask_heads
from mha.course.once import once
from mha.data import tasks
from mha.layers.multi_head import MultiHeadAttention
from mha.layers.positions import RotaryPositions
from mha.models.blocks import FeedForward
from mha.models.language_model import LanguageModel
from mha.models.training import train


@cache
def characters() -> tuple[Int[Tensor, " known"], Int[Tensor, " new"], int]:
    """Give the English of the training set, the English of the test set, and the number of different characters.

    :Taught in: pruning_heads.
    """
    text = tasks.course_text()
    alphabet = sorted(set(text))
    data = torch.tensor([alphabet.index(c) for c in text])
    cut = len(data) * 9 // 10
    return data[:cut], data[cut:], len(alphabet)


def english(part: Int[Tensor, " n"], count: int, random: torch.Generator) -> Int[Tensor, "b 33"]:
    """Draw pieces of 33 characters.

    :Taught in: pruning_heads.
    """
    start = torch.randint(len(part) - 32, (count, 1), generator=random)
    return part[start + torch.arange(33)]


def chants(count: int, random: torch.Generator) -> Int[Tensor, "b 33"]:
    """Draw chants: eight random characters, then the same eight again, and again.

    :Taught in: pruning_heads.
    """
    return torch.randint(32, (count, 8), generator=random).repeat(1, 5)[:, :33]


def training_batch(count: int, random: torch.Generator) -> Int[Tensor, "b 33"]:
    """Draw a training batch, one half English, the other half chants.

    :Taught in: pruning_heads.
    """
    return torch.cat([english(characters()[0], count // 2, random), chants(count // 2, random)])


def make(heads: int = 8, d: int = 64, layers: int = 2) -> LanguageModel:
    """Make a language model with rotary positions.

    :Taught in: pruning_heads.
    """
    return LanguageModel(
        characters()[2],
        d,
        lambda: MultiHeadAttention(d, heads, positions=RotaryPositions()),
        layers=layers,
        positions=None,
        feed_forward=lambda: FeedForward(d, 2 * d),
    )


def losses(model: nn.Module, tokens: Int[Tensor, "b n"]) -> Float[Tensor, " b"]:
    """Say what the model pays for each example, in nats per character.

    :Taught in: pruning_heads.
    """
    logits = model(tokens[:, :-1])
    return F.cross_entropy(logits.mT, tokens[:, 1:], reduction="none").mean(1)


def teach(
    model: nn.Module, loss: Callable[[Any], Tensor], steps: int, lr: float, extra: Iterable[dict[str, Any]] = ()
) -> list[float]:
    """Train with Adam and give the losses; the learning rate grows for 20 steps and shrinks in the second half.

    :Taught in: pruning_heads.
    """
    adam = torch.optim.Adam([{"params": model.parameters(), "lr": lr}, *extra], betas=(0.9, 0.99), fused=True)
    full = [group["lr"] for group in adam.param_groups]

    def scheduled(model: nn.Module, step: int) -> Tensor:
        for group, rate in zip(adam.param_groups, full, strict=True):
            group["lr"] = rate * min(1, (step + 1) / 20, 2 * (1 - step / steps))
        return loss(model)

    return train(model, scheduled, steps, optimizer=adam)


@cache
def trained(seed: int = 0) -> nn.Module:
    """Train the model of the chapter: two layers of eight heads, 64 channels, 400 steps.

    :Taught in: pruning_heads.
    """
    torch.manual_seed(seed)
    random = torch.Generator().manual_seed(seed)
    model = make()

    def loss(model: nn.Module) -> Tensor:
        return losses(model, training_batch(16, random)).mean()

    return once(f"two skills {seed}", model, lambda: teach(model, loss, 400, lr=5e-3))


@cache
def test_set() -> dict[str, tuple[Int[Tensor, "b n"], int]]:
    """Draw 100 new texts for each skill, and say from which place on they count: a chant from its second round.

    :Taught in: pruning_heads.
    """
    random = torch.Generator().manual_seed(99)
    return {"English": (english(characters()[1], 100, random), 0), "chants": (chants(100, random), 8)}


@torch.no_grad()
def loss_on(model: nn.Module, skill: str, keep: Mapping[str, Iterable[int]] | None = None) -> float:
    """Compute the loss on the test set, in nats per character; heads that ``keep`` leaves out are silent.

    :Taught in: pruning_heads.
    """
    tokens, start = test_set()[skill]
    with mask_heads(model, keep or {}):
        logits = model(tokens[:, :-1])[:, start:]
    return F.cross_entropy(logits.mT, tokens[:, 1 + start :]).item()


def both(model: nn.Module, keep: Mapping[str, Iterable[int]] | None = None) -> float:
    """Give the mean price of the two skills.

    :Taught in: pruning_heads.
    """
    return sum(loss_on(model, skill, keep) for skill in test_set()) / 2
