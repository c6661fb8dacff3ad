"""A short training loop with a progress bar.

:Taught in: why_attention.
"""

import sys
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from tqdm import tqdm

from mha.checks import LOOPS, check_number, check_whole, checked, described


def check_rates(**rates: float) -> None:
    """Refuse a learning rate that is not positive."""
    for name, rate in rates.items():
        if not rate > 0:
            raise ValueError(f"{name} = {rate}: a rate must be positive")


class DivergenceError(ValueError):
    """Say that a loss is infinite or no number any more.

    :Taught in: why_scale.
    """


class Muon(torch.optim.Optimizer):
    """Make all directions of a matrix's step equally long, as torch's Muon does, in the matrix's own number type.

    torch's own (2.9 and later) rounds each step to bfloat16. That is quick on a GPU, but every processor
    rounds in its own way, and after a few hundred steps they have trained different heads.

    :Source: Jordan et al. 2024, "Muon: an optimizer for hidden layers".
    :Taught in: reading_heads.
    """

    @checked
    def __init__(self, matrices, *, lr: float, momentum: float = 0.95, weight_decay: float = 0.0) -> None:
        """Take the matrices; the settings are those of torch's Muon.

        :param matrices: parameters of two axes, one or several.
        :param lr: the rate, positive.
        :param momentum: the share of the old mean in the new mean of gradients, at least 0 and below 1; 0.95 unless
            given.
        :param weight_decay: the share of a parameter, times ``lr``, that each step takes away, at least 0; 0 unless
            given.
        :Raises: ValueError for a rate that is not positive, and for what is no list of matrices.
        """
        matrices = list(matrices) if isinstance(matrices, Iterable) and not isinstance(matrices, Tensor) else [matrices]
        if not matrices:
            raise ValueError("matrices = []: give at least one parameter of two axes")
        for matrix in matrices:
            if not isinstance(matrix, nn.Parameter) or matrix.ndim != 2:
                raise TypeError(f"matrices hold {described(matrix)}: give parameters of two axes, no others")
        check_rates(lr=lr)
        if not 0 <= momentum < 1 or weight_decay < 0:
            raise ValueError(f"momentum = {momentum}, weight_decay = {weight_decay}: at least 0, momentum below 1")
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # a closure would change nothing here
        """Change all matrices."""
        for group in self.param_groups:
            for matrix in (p for p in group["params"] if p.grad is not None):
                mean = self.state[matrix].setdefault("momentum_buffer", torch.zeros_like(matrix))
                mean.lerp_(matrix.grad, 1 - group["momentum"])
                ahead = matrix.grad.lerp(mean, group["momentum"])
                rate = group["lr"] * max(1.0, matrix.shape[0] / matrix.shape[1]) ** 0.5
                matrix.mul_(1 - group["lr"] * group["weight_decay"])
                matrix.sub_(equally_long(ahead), alpha=rate)


def equally_long(matrix: Tensor) -> Tensor:
    """Bring all singular values of a matrix near 1, between about 0.5 and 1.5 (Newton and Schulz's iteration).

    :param matrix: (rows, columns).
    :Shapes: returns (rows, columns).
    :Source: Jordan et al. 2024, "Muon: an optimizer for hidden layers".
    :Taught in: reading_heads.
    """
    wide = matrix.mT if matrix.shape[0] > matrix.shape[1] else matrix
    wide = wide / wide.norm().clamp_min(1e-7)
    a, b, c = 3.4445, -4.7750, 2.0315  # chosen to lift small values quickly
    for _ in range(5):
        products = wide @ wide.mT
        wide = a * wide + (b * products + c * products @ products) @ wide
    return wide.mT if matrix.shape[0] > matrix.shape[1] else wide


class MuonAndAdamW:
    """Step both optimizers as one: the matrices inside the layers with Muon, all other parameters with AdamW.

    Both rates rise over the first 20 steps and fall to zero over the second half of the steps. Muon makes all
    directions of a matrix's step equally long, so that rare directions are learned as fast as common ones.

    :Source: Jordan et al. 2024, "Muon: an optimizer for hidden layers".
    :Taught in: reading_heads.
    """

    @checked
    def __init__(
        self, model: nn.Module, inside: nn.Module, steps: int, *, lr: float = 0.02, rest: float = 6e-3
    ) -> None:
        """Make both optimizers, and the schedules of their rates.

        :param model: the model that is trained.
        :param inside: the part of it whose matrices Muon changes.
        :param steps: how many steps the training run has.
        :param lr: Muon's full rate, positive; 0.02 unless given.
        :param rest: AdamW's full rate for all other parameters, positive; 0.006 unless given.
        :Raises: ValueError for a rate that is not positive, and where ``inside`` has no matrix.
        """
        check_whole(steps=steps)
        check_rates(lr=lr, rest=rest)
        matrices = [p for p in inside.parameters() if p.ndim == 2]
        if not matrices:
            raise ValueError(f"inside = {described(inside)}: it has no matrix for Muon to change. Give the layers")
        taken = {id(p) for p in matrices}
        others = [p for p in model.parameters() if id(p) not in taken]
        self.optimizers: list[torch.optim.Optimizer] = [Muon(matrices, lr=lr)]
        if others:
            self.optimizers.append(torch.optim.AdamW(others, lr=rest, weight_decay=0.0, fused=True))
        self.rates = [torch.optim.lr_scheduler.LambdaLR(o, lambda s: _share(s, steps)) for o in self.optimizers]

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def step(self) -> None:
        """Change all parameters, then the rates."""
        for optimizer in self.optimizers:
            optimizer.step()
        for rate in self.rates:
            rate.step()


def _share(step: int, steps: int) -> float:
    """Say which share of the full rate is used at a step."""
    return min(1.0, (step + 1) / 20, max(2 - 2 * step / steps, 0.0))


@checked
def train(
    model: nn.Module,
    loss: Callable[[nn.Module, int], Tensor],
    steps: int,
    *,
    lr: float = 3e-3,
    optimizer: torch.optim.Optimizer | MuonAndAdamW | None = None,
    after_step: Callable[[int], None] | None = None,
) -> list[float]:
    """Make the loss smaller, one small step after the other, and return the losses.

    The bar goes to the screen and is silent where the environment variable ``TQDM_DISABLE`` is 1.

    :param model: any module; it is in evaluation mode afterwards.
    :param loss: ``loss(model, step)`` draws its own batch and returns one number in a tensor.
    :param steps: how many steps are made.
    :param lr: the rate of Adam, positive; 0.003 unless given, without effect beside ``optimizer``.
    :param optimizer: what changes the parameters; Adam unless given.
    :param after_step: is called with the number of each step once it is made; nothing unless given.
    :Raises: ValueError for fewer than one step, for a model without parameters to train, and where the loss is not one
        number, not a finite one, or does not depend on what is trained.
    :Taught in: why_attention.
    """
    check_whole(1, LOOPS, steps=steps)
    check_rates(lr=lr)
    if optimizer is None and not any(p.requires_grad for p in model.parameters()):
        raise ValueError(f"model = {described(model)}: it has no parameter to train, none has requires_grad")
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, fused=True) if optimizer is None else optimizer
    model.train()
    losses = []
    for step in (bar := tqdm(range(steps), file=sys.stdout, leave=False)):
        value = loss(model, step)
        _check_loss(value)
        if not torch.isfinite(value):
            raise DivergenceError(
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


def _check_loss(value: object) -> None:
    """Refuse what no gradient can be taken of."""
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.is_floating_point() or value.is_meta:
        raise ValueError(
            f"loss(model, step) returned {described(value)}: it must be one number in a tensor, such as a mean"
        )
    if not value.requires_grad:
        raise ValueError(
            "loss(model, step) has no gradient: it depends on no parameter that is trained. Compute it of the model's "
            "output, without detach, .item() or torch.no_grad"
        )


@checked
def smooth(losses: Iterable[float], window: int = 20) -> list[float]:
    """Average each value with the values before it, to read a noisy curve.

    :param losses: numbers, in their order.
    :param window: how many values are averaged, at least 1; 20 unless given.
    :Raises: ValueError for a window below 1.
    :Taught in: why_attention.
    """
    check_whole(window=window)
    values = list(losses)
    for value in values:
        check_number(False, losses=value)
    return [
        sum(values[max(0, i - window + 1) : i + 1]) / len(values[max(0, i - window + 1) : i + 1])
        for i in range(len(values))
    ]


@checked
@torch.no_grad()
def round_weights(model: nn.Module, decimals: int) -> None:
    """Round all parameters, in place. After each training step this keeps two processors on one path.

    Processors differ in the last digit of a sum. Where training makes such differences grow, rounding wipes them out
    before they have grown. Steps of the optimizer should be much larger than the last decimal.

    :param model: any module, changed in place.
    :param decimals: how many decimals after the point stay, at least 0.
    :Taught in: why_scale.
    """
    check_whole(0, decimals=decimals)
    for weight in model.parameters():
        weight.copy_(weight.round(decimals=decimals))
