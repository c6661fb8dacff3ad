"""What a task must have so that layers can be compared on it: data, a model around a stack of layers, and a judge.

:Taught in: choosing.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mha.data import dates, tasks
from mha.layers.positions import SinusoidalPositions
from mha.models.encoder_decoder import EncoderDecoder
from mha.models.language_model import LanguageModel
from mha.models.training import train

WIDTH, HEADS = 32, 4  # of every model


WARM = 0.1  # the share of the steps in which the learning rate climbs


PARTS = {"training": 0, "validation": 1000, "test": 2000}  # what is added to the seed of each part


Stacks = Callable[..., Any]  # makes a stack of so many layers


class Contest:
    """One task with its data for one seed: ``model`` makes a model, ``loss`` draws a batch, ``judge`` measures.

    Each part of the data is drawn from a seed of its own, so that all layers meet the same questions in validation and
    test, however long they were trained.

    :Taught in: choosing.
    """

    unit = "share right"
    tokens: int  # in one text
    steps: int  # of training: the plain layer has not finished then
    rates: tuple[
        float, float
    ]  # the highest learning rates that are tried, the plain layer's best of them and a neighbor
    model: Callable[[Stacks], nn.Module]
    loss: Callable[[nn.Module], Tensor]
    judge: Callable[[nn.Module, str], float]

    def __init__(self, seed: int) -> None:
        """Begin the random numbers from which the data are drawn, one generator for each part."""
        self.random = {part: torch.Generator().manual_seed(seed + more) for part, more in PARTS.items()}

    def some(self, count: int, of: int, part: str = "training") -> Tensor:
        """Draw ``count`` numbers below ``of``."""
        return torch.randint(of, (count,), generator=self.random[part])


class Score(NamedTuple):
    """How good a trained model is, on the part of the data that chooses its learning rate, and on the other one.

    :Taught in: choosing.
    """

    validation: float
    test: float


def learn(contest: Contest, model: nn.Module, loss: Callable[[nn.Module], Tensor], rate: float) -> Score:
    """Train a model and judge it: Adam, with a learning rate that climbs to ``rate`` and then falls to nothing.

    :Taught in: choosing.
    """
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    climbs = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, contest.steps, pct_start=WARM)
    train(model, lambda model, _: loss(model), contest.steps, optimizer=optimizer, after_step=lambda _: climbs.step())
    with torch.no_grad():
        return Score(contest.judge(model, "validation"), contest.judge(model, "test"))


class Reader(nn.Module):
    """Read inputs, pass them through a stack of layers, and score the answers at every token.

    :Shapes: what ``read`` takes; returns (b, n, answers).
    :Taught in: choosing.
    """

    def __init__(self, read: nn.Module, stack: nn.Module, answers: int) -> None:
        """Make the model from its reading part and its stack."""
        super().__init__()
        self.read, self.stack = read, stack
        self.norm, self.answer = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, answers)

    def forward(self, *x: Tensor, is_causal: bool = False) -> Tensor:
        """Read, attend, answer."""
        return self.answer(self.norm(self.stack(self.read(*x), is_causal=is_causal)))


class Digits(Contest):
    """Name handwritten digits: 16 patches of 2 × 2 pixels, two layers, 1000 pictures to learn from.

    Another 300 choose, the last 497 judge.

    :Source: Alpaydin and Kaynak 1998, as scikit-learn ships them.
    :Taught in: choosing.
    """

    tokens, steps, rates = 16, 300, (5e-3, 1e-2)

    def __init__(self, seed: int) -> None:
        """Divide the pictures."""
        super().__init__(seed)
        self.patches, self.names = digits()
        self.order = torch.randperm(len(self.names), generator=self.random["training"])

    def model(self, stacks: Stacks) -> nn.Module:
        """Make a small vision transformer."""
        read = nn.Sequential(nn.Linear(4, WIDTH), SinusoidalPositions())
        return Reader(read, stacks(2), 10)

    def scores(self, model: nn.Module, chosen: Tensor) -> Tensor:
        """Average the answers of all patches."""
        return model(self.patches[chosen].to(torch.get_default_dtype())).mean(1)

    def loss(self, model: nn.Module) -> Tensor:
        """Draw 32 pictures."""
        chosen = self.order[self.some(32, 1000)]
        return F.cross_entropy(self.scores(model, chosen), self.names[chosen])

    def judge(self, model: nn.Module, part: str) -> float:
        """Say which share of the unseen pictures is named rightly."""
        unseen = self.order[1000:1300] if part == "validation" else self.order[1300:]
        return (self.scores(model, unseen).argmax(-1) == self.names[unseen]).double().mean().item()


@cache
def digits() -> tuple[Tensor, Tensor]:
    """Load the pictures as patches (1797, 16, 4) and what they show (1797,).

    :Taught in: choosing.
    """
    from sklearn.datasets import load_digits

    pictures, names = map(torch.tensor, load_digits(return_X_y=True))
    return (pictures / 16).view(-1, 4, 2, 4, 2).transpose(2, 3).reshape(-1, 16, 4), names


class Pairs(nn.Module):
    """Turn pairs of a key and a value into tokens; a question is a key alone.

    :Taught in: choosing.
    """

    def __init__(self) -> None:
        """Make a vector for each key and each value."""
        super().__init__()
        self.keys, self.values = nn.Embedding(64, WIDTH), nn.Embedding(16, WIDTH)

    def forward(self, keys: Tensor, values: Tensor, asked: Tensor) -> Tensor:
        """Put the questions behind the pairs."""
        return torch.cat([self.keys(keys) + self.values(values), self.keys(asked)], 1)


class Recall(Contest):
    """Hear 16 pairs of a key and a value, then look up all 16 keys in another order, from left to right. Two layers.

    :Source: Arora et al. 2024, multi-query associative recall, here with a key and its value in one token.
    :Taught in: choosing.
    """

    tokens, steps, rates = 32, 100, (1e-2, 2e-2)

    def model(self, stacks: Stacks) -> nn.Module:
        """Make a small model without positions: the order tells nothing."""
        return Reader(Pairs(), stacks(2), 16)

    def draw(self, count: int, part: str = "training") -> tuple[Tensor, ...]:
        """Draw lists, questions and answers, each (count, 16)."""
        random = self.random[part]
        keys, values, _, _ = tasks.recall(count, generator=random)
        order = torch.rand(keys.shape, generator=random, dtype=torch.float64).argsort(1)
        return keys, values, keys.gather(1, order), values.gather(1, order)

    def loss(self, model: nn.Module) -> Tensor:
        """Draw 16 lists."""
        *heard, answers = self.draw(16)
        return F.cross_entropy(model(*heard, is_causal=True)[:, 16:].mT, answers)

    def judge(self, model: nn.Module, part: str) -> float:
        """Say which share of the questions about 300 new lists is answered rightly."""
        *heard, answers = self.draw(300, part)
        return (model(*heard, is_causal=True)[:, 16:].argmax(-1) == answers).double().mean().item()


class English(Contest):
    """Guess each next character of English: paragraphs of this course, two layers, 32 characters at a time.

    Eight tenths are read, one tenth chooses, and the last tenth judges.

    :Taught in: choosing.
    """

    tokens, steps, rates = 32, 200, (1e-2, 2e-2)
    unit = "nats per character"

    def model(self, stacks: Stacks) -> nn.Module:
        """Make a small language model."""
        model = LanguageModel(int(english().max()) + 1, WIDTH, 1, layers=1)
        model.decoder = stacks(2)
        return model

    def measure(self, model: nn.Module, count: int, part: str = "training") -> Tensor:
        """Measure the loss at the next characters of ``count`` pieces of 33 characters, in nats."""
        tenth = len(english()) // 10
        first, last = {"training": (0, 8), "validation": (8, 9), "test": (9, 10)}[part]
        start = first * tenth + self.some(count, (last - first) * tenth - 33, part)
        text = english()[start[:, None] + torch.arange(33)]
        return F.cross_entropy(model(text[:, :-1]).mT, text[:, 1:])

    def loss(self, model: nn.Module) -> Tensor:
        """Draw 16 pieces."""
        return self.measure(model, 16)

    def judge(self, model: nn.Module, part: str) -> float:
        """Measure the loss at 400 pieces of another tenth of the text."""
        return self.measure(model, 400, part).item()


@cache
def english() -> Tensor:
    """Load the text as numbers.

    :Taught in: choosing.
    """
    text = tasks.course_text()
    number = {character: i for i, character in enumerate(sorted(set(text)))}
    return torch.tensor([number[character] for character in text])


class Dates(Contest):
    """Write an English date of middle length in Chinese, one layer to read, one to write; every tenth day is unseen.

    :Source: Unicode CLDR, through babel.
    :Taught in: choosing.
    """

    tokens, steps, rates = 12, 90, (1e-2, 2e-2)

    def model(self, stacks: Stacks) -> nn.Module:
        """Make a small encoder-decoder."""
        _, source, target = written("training")
        model = EncoderDecoder(source, target, WIDTH, 1)
        model.encoder, model.decoder = stacks(1), stacks(1, sources=True)
        return model

    def scores(self, model: nn.Module, source: Tensor, target: Tensor) -> Tensor:
        """Score the next character behind each character of the target."""
        return model(source, target[:, :-1], (source != dates.PAD)[:, None, None])

    def loss(self, model: nn.Module) -> Tensor:
        """Draw 32 dates."""
        source, target = written("training")[0]
        chosen = self.some(32, len(source))
        logits = self.scores(model, source[chosen], target[chosen])
        return F.cross_entropy(logits.mT, target[chosen, 1:], ignore_index=dates.PAD)

    def judge(self, model: nn.Module, part: str) -> float:
        """Say which share of some hundred unseen days is written without a bug.

        Where every next character is the best guess behind the true beginning, writing alone finds the same text.
        """
        source, target = written(part)[0]
        right = (self.scores(model, source, target).argmax(-1) == target[:, 1:]) | (target[:, 1:] == dates.PAD)
        return right.all(1).double().mean().item()


@cache
def written(part: str) -> tuple[tuple[Tensor, Tensor], int, int]:
    """Write dates in both languages: as numbers, and how many characters each language has.

    :Taught in: choosing.
    """

    def drawn(count: int, held_out: bool) -> list[tuple[str, str]]:
        random = torch.Generator().manual_seed(int(held_out))
        return dates.pairs(count, generator=random, held_out=held_out, forms=["medium"])

    known = drawn(4000, False)
    unseen = [*dict.fromkeys(drawn(900, True))]  # no day twice
    wanted = {"training": known, "validation": unseen[:300], "test": unseen[300:800]}[part]
    both = [dates.Characters(texts) for texts in zip(*known, strict=True)]
    sources, targets = zip(*wanted, strict=True)
    return (both[0].encode(sources), both[1].encode(targets, ends=True)), len(both[0]), len(both[1])
