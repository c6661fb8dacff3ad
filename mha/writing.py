"""Two more tasks on which layers are compared, both of which write: English, and Chinese dates for English ones.

Taught in: chapter 21.
"""

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mha import dates, tasks
from mha.contests import WIDTH, Contest, Stacks
from mha.encoder_decoder import EncoderDecoder
from mha.models import LanguageModel


class English(Contest):
    """Guess each next character of English: the help texts of Python, two layers, 32 characters at a time.

    Nine tenths are read, the last tenth judges. The texts differ a little from one version of Python to the next.

    Taught in: chapter 21.
    """

    words, steps = 32, 200
    unit = "nats per character"

    def model(self, stacks: Stacks) -> nn.Module:
        """Make a small language model."""
        model = LanguageModel(int(english().max()) + 1, WIDTH, 1, layers=1)
        model.decoder = stacks(2)
        return model

    def draw(self, count: int, part: Tensor) -> Tensor:
        """Draw pieces of 33 characters."""
        return part[self.some(count, len(part) - 33)[:, None] + torch.arange(33)]

    def surprise(self, model: nn.Module, text: Tensor) -> Tensor:
        """Measure how much the next characters surprise the model."""
        return F.cross_entropy(model(text[:, :-1]).mT, text[:, 1:])

    def loss(self, model: nn.Module) -> Tensor:
        """Draw 16 pieces."""
        return self.surprise(model, self.draw(16, english()[: len(english()) * 9 // 10]))

    def judge(self, model: nn.Module) -> float:
        """Measure the surprise at 400 pieces of the last tenth."""
        return self.surprise(model, self.draw(400, english()[len(english()) * 9 // 10 :])).item()


@cache
def english() -> Tensor:
    """Load the text as numbers. Taught in: chapter 21."""
    text = tasks.english()
    number = {character: i for i, character in enumerate(sorted(set(text)))}
    return torch.tensor([number[character] for character in text])


class Dates(Contest):
    """Write an English date of middle length in Chinese, one layer to read and one to write; every tenth day judges.

    Source: Unicode CLDR, through babel.
    Taught in: chapter 21.
    """

    words, steps = 12, 130

    def model(self, stacks: Stacks) -> nn.Module:
        """Make a small encoder-decoder."""
        _, source, target = written(False)
        model = EncoderDecoder(source, target, WIDTH, 1)
        model.encoder, model.decoder = stacks(1), stacks(1, sources=True)
        return model

    def scores(self, model: nn.Module, source: Tensor, target: Tensor) -> Tensor:
        """Score the next character behind each character of the target."""
        return model(source, target[:, :-1], (source != dates.PAD)[:, None, None])

    def loss(self, model: nn.Module) -> Tensor:
        """Draw 32 dates."""
        source, target = written(False)[0]
        chosen = self.some(32, len(source))
        logits = self.scores(model, source[chosen], target[chosen])
        return F.cross_entropy(logits.mT, target[chosen, 1:], ignore_index=dates.PAD)

    def judge(self, model: nn.Module) -> float:
        """Say which share of 500 unseen days is written without a fault.

        Where every next character is the best guess behind the true beginning, writing alone finds the same text.
        """
        source, target = written(True)[0]
        right = (self.scores(model, source, target).argmax(-1) == target[:, 1:]) | (target[:, 1:] == dates.PAD)
        return right.all(1).double().mean().item()


@cache
def written(held_out: bool) -> tuple[tuple[Tensor, Tensor], int, int]:
    """Write dates in both languages: as numbers, and how many characters each language has. Taught in: chapter 21."""

    def drawn(count: int, held_out: bool) -> list[tuple[str, str]]:
        random = torch.Generator().manual_seed(int(held_out))
        return dates.pairs(count, generator=random, held_out=held_out, forms=["medium"])

    known, wanted = drawn(4000, False), drawn(500 if held_out else 4000, held_out)
    both = [dates.Characters(texts) for texts in zip(*known, strict=True)]
    sources, targets = zip(*wanted, strict=True)
    return (both[0].encode(sources), both[1].encode(targets, ends=True)), len(both[0]), len(both[1])
