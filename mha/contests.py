"""What a task must have so that layers can be compared on it: data, a model around a stack of layers, and a judge.

Taught in: chapter 21.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from mha.training import train

WIDTH, HEADS = 32, 4  # of every model
RATE, WARM = 5e-3, 0.1  # the highest learning rate, and the share of the steps that climbs to it
Stacks = Callable[..., nn.Module]  # makes a stack of so many layers


class Contest:
    """One task with its data for one seed: ``model`` makes a model, ``loss`` draws a batch, ``judge`` measures.

    Taught in: chapter 21.
    """

    unit = "share right"
    words: int  # in one text
    steps: int  # of training

    def __init__(self, seed: int) -> None:
        """Begin the random numbers from which all data are drawn."""
        self.random = torch.Generator().manual_seed(seed)

    def some(self, count: int, of: int) -> Tensor:
        """Draw ``count`` numbers below ``of``."""
        return torch.randint(of, (count,), generator=self.random)


def learn(contest: Contest, model: nn.Module, loss: Callable[[nn.Module], Tensor]) -> float:
    """Train a model and judge it: Adam, with a learning rate that climbs and then falls to nothing, the same for all.

    Taught in: chapter 21.
    """
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, contest.steps, pct_start=WARM)
    train(model, lambda model, _: loss(model), contest.steps, optimizer=optimizer, after_step=lambda _: rate.step())
    with torch.no_grad():
        return contest.judge(model)
