"""Two tasks on which layers are compared, both of which name something: digits, and the values of keys.

Taught in: chapter 21.
"""

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mha import tasks
from mha.contests import WIDTH, Contest, Stacks
from mha.positions import SinusoidalPositions


class Reader(nn.Module):
    """Read inputs, pass them through a stack of layers, and score the answers at every word.

    Shapes: what ``read`` takes; returns (b, n, answers).
    Taught in: chapter 21.
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
    """Name handwritten digits: 16 patches of 2 × 2 pixels, two layers, 1000 pictures to learn from, 797 to judge.

    Source: Alpaydin and Kaynak 1998, as scikit-learn ships them.
    Taught in: chapter 21.
    """

    words, steps = 16, 300

    def __init__(self, seed: int) -> None:
        """Divide the pictures."""
        super().__init__(seed)
        self.patches, self.names = digits()
        self.order = torch.randperm(len(self.names), generator=self.random)

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

    def judge(self, model: nn.Module) -> float:
        """Say which share of the unseen pictures is named rightly."""
        unseen = self.order[1000:]
        return (self.scores(model, unseen).argmax(-1) == self.names[unseen]).double().mean().item()


@cache
def digits() -> tuple[Tensor, Tensor]:
    """Load the pictures as patches (1797, 16, 4) and what they show (1797,). Taught in: chapter 21."""
    from sklearn.datasets import load_digits

    pictures, names = map(torch.tensor, load_digits(return_X_y=True))
    return (pictures / 16).view(-1, 4, 2, 4, 2).transpose(2, 3).reshape(-1, 16, 4), names


class Pairs(nn.Module):
    """Turn pairs of a key and a value into words; a question is a key alone. Taught in: chapter 21."""

    def __init__(self) -> None:
        """Make a vector for each key and each value."""
        super().__init__()
        self.keys, self.values = nn.Embedding(64, WIDTH), nn.Embedding(16, WIDTH)

    def forward(self, keys: Tensor, values: Tensor, asked: Tensor) -> Tensor:
        """Put the questions behind the pairs."""
        return torch.cat([self.keys(keys) + self.values(values), self.keys(asked)], 1)


class Recall(Contest):
    """Hear 16 pairs of a key and a value, then look up all 16 keys in another order, from left to right. Two layers.

    Source: Arora et al. 2024, multi-query associative recall, here with a key and its value in one word.
    Taught in: chapter 21.
    """

    words, steps = 32, 150

    def model(self, stacks: Stacks) -> nn.Module:
        """Make a small model without positions: the order tells nothing."""
        return Reader(Pairs(), stacks(2), 16)

    def draw(self, count: int) -> tuple[Tensor, ...]:
        """Draw lists, questions and answers, each (count, 16)."""
        keys, values, _, _ = tasks.recall(count, generator=self.random)
        order = torch.rand(keys.shape, generator=self.random, dtype=torch.float64).argsort(1)
        return keys, values, keys.gather(1, order), values.gather(1, order)

    def loss(self, model: nn.Module) -> Tensor:
        """Draw 16 lists."""
        *heard, answers = self.draw(16)
        return F.cross_entropy(model(*heard, is_causal=True)[:, 16:].mT, answers)

    def judge(self, model: nn.Module) -> float:
        """Say which share of the questions about 300 new lists is answered rightly."""
        *heard, answers = self.draw(300)
        return (model(*heard, is_causal=True)[:, 16:].argmax(-1) == answers).double().mean().item()
