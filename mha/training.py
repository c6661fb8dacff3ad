"""A short training loop with a progress bar.

Taught in: chapter 01.
"""

import sys
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from tqdm import tqdm


def train(
    model: nn.Module,
    loss: Callable[[nn.Module, int], Tensor],
    steps: int,
    *,
    lr: float = 3e-3,
    optimizer: torch.optim.Optimizer | None = None,
    after_step: Callable[[int], None] | None = None,
) -> list[float]:
    """Make the loss smaller, one small step after the other, and return the losses.

    ``loss(model, step)`` draws its own batch and returns one number. Adam is the optimizer unless one is given.
    The bar goes to the screen and is silent where the environment variable ``TQDM_DISABLE`` is 1.

    Raises: ValueError for fewer than one step, and where the loss stops being a number (then training has failed).
    Taught in: chapter 01.
    """
    if steps < 1:
        raise ValueError(f"steps = {steps}: training needs at least one")
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, fused=True) if optimizer is None else optimizer
    model.train()
    losses = []
    for step in (bar := tqdm(range(steps), file=sys.stdout, leave=False)):
        value = loss(model, step)
        if not torch.isfinite(value):
            raise ValueError(
                f"the loss is {value.item()} at step {step}: lower lr = {lr}, or look for 0/0 in the model"
            )
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(value.item())
        bar.set_postfix_str(f"loss {losses[-1]:.3f}", refresh=False)
        if after_step is not None:
            after_step(step)
    model.eval()
    return losses


def smooth(losses: Iterable[float], window: int = 20) -> list[float]:
    """Average each value with up to ``window - 1`` values before it, to read a noisy curve.

    Raises: ValueError for a window below 1.
    Taught in: chapter 01.
    """
    if window < 1:
        raise ValueError(f"window = {window}: it must be at least 1")
    values = list(losses)
    return [
        sum(values[max(0, i - window + 1) : i + 1]) / len(values[max(0, i - window + 1) : i + 1])
        for i in range(len(values))
    ]


@torch.no_grad()
def round_weights(model: nn.Module, decimals: int) -> None:
    """Round all weights, in place. After each step of a training it keeps two processors on one path.

    Processors differ in the last digit of a sum. Where a training makes such differences grow, rounding wipes them out
    before they have grown. Steps of the optimizer should be much larger than the last decimal.

    Taught in: chapter 02.
    """
    for weight in model.parameters():
        weight.copy_(weight.round(decimals=decimals))
