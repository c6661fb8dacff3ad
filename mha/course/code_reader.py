"""The small model of chapter 10 and its side rooms: it reads Python code, and random tokens that repeat.

:Taught in: reading_heads.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from mha.course.once import once
from mha.data import python_source, texts
from mha.data.python_source import Code
from mha.layers.multi_head import MultiHeadAttention
from mha.layers.positions import RotaryPositions
from mha.models.blocks import FeedForward
from mha.models.language_model import LanguageModel
from mha.models.training import MuonAndAdamW, train


class TestSet(NamedTuple):
    """Texts that the model was not trained on, and what Python says about its own: where each name got its value."""

    python: Int[Tensor, "b n"]
    names: Tensor
    repeat: Int[Tensor, "b n"]


@cache
def training_code() -> Code:
    """Give the Python code of the lessons.

    :Taught in: reading_heads.
    """
    return python_source.numbered(python_source.course_code())


@cache
def test_set() -> TestSet:
    """Draw 100 pieces of code from files that are in no lesson, and 100 repeats, of 64 tokens each.

    :Taught in: reading_heads.
    """
    unseen = python_source.numbered(python_source.course_code("test"), like=training_code())
    random = torch.Generator().manual_seed(99)
    python, names = python_source.pieces(unseen, 100, 64, generator=random)
    return TestSet(python, names, texts.repeats(100, 64, generator=random))


def small_model(vocabulary: int, width: int, heads: int, layers: int = 2) -> LanguageModel:
    """Make a language model with rotary positions and a feed-forward part that is no wider than the model.

    :Taught in: reading_heads.
    """
    return LanguageModel(
        vocabulary,
        width,
        lambda: MultiHeadAttention(width, heads, positions=RotaryPositions()),
        layers=layers,
        positions=None,
        feed_forward=lambda: FeedForward(width, width),
    )


def token_losses(model: nn.Module, tokens: Int[Tensor, "b n"]) -> Float[Tensor, "b n-1"]:
    """Give the loss at each next token, in nats.

    :Taught in: reading_heads.
    """
    right = tokens[:, 1:]
    logits = model(tokens[:, :-1])
    losses = F.cross_entropy(logits.flatten(0, 1), right.flatten(), reduction="none")  # over 290 names .mT is slower
    return losses.view(right.shape)


def fit(
    model: LanguageModel, batch: Callable[[torch.Generator], Tensor], seed: int, steps: int = 600, **rates: Any
) -> LanguageModel:
    """Train a model on the texts that ``batch`` draws; Muon for the matrices inside the layers, AdamW for the rest.

    :Taught in: reading_heads.
    """
    random = torch.Generator().manual_seed(seed)
    optimizer = MuonAndAdamW(model, model.decoder, steps, **rates)
    train(model, lambda model, _: token_losses(model, batch(random)).mean(), steps, optimizer=optimizer)
    return model


@cache
def reader(seed: int = 0, kind: str = "mixed", layers: int = 2) -> LanguageModel:
    """Train the model of the chapter: 64 channels, four heads a layer, on the ``mixed`` lessons or on ``code`` alone.

    :Taught in: reading_heads.
    """
    torch.manual_seed(seed)
    model = small_model(len(training_code().names), 64, 4, layers)

    def batch(random: torch.Generator) -> Tensor:
        if kind == "code":
            return python_source.pieces(training_code(), 16, 64, generator=random)[0]
        return texts.mixed(training_code(), 16, 64, generator=random)

    once(f"reader {seed} {kind} {layers}", model, lambda: fit(model, batch, seed))
    return model
