"""Train matrices with Muon and everything else with AdamW: small Transformers learn to look back much sooner.

Taught in: chapters 09 and 10.
"""

import torch
from torch import Tensor, nn


class Muon(torch.optim.Optimizer):
    """Make all directions of a matrix's step equally long, as torch's Muon does, in the matrix's own number type.

    torch's own (2.9 and later) rounds each step to bfloat16. That is quick on a graphics card, but every processor
    rounds in its own way, and after a few hundred steps they have trained different heads.

    Source: Jordan et al. 2024, "Muon: an optimizer for hidden layers".
    Taught in: chapter 09.
    """

    def __init__(self, matrices, *, lr: float, momentum: float = 0.95, weight_decay: float = 0.0) -> None:
        """Take matrices, and the settings of torch's Muon."""
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:
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

    Shapes: (rows, columns), and the same again.
    Source: Jordan et al. 2024, "Muon: an optimizer for hidden layers".
    Taught in: chapter 09.
    """
    wide = matrix.mT if matrix.shape[0] > matrix.shape[1] else matrix
    wide = wide / wide.norm().clamp_min(1e-7)
    a, b, c = 3.4445, -4.7750, 2.0315  # chosen to lift small values quickly
    for _ in range(5):
        products = wide @ wide.mT
        wide = a * wide + (b * products + c * products @ products) @ wide
    return wide.mT if matrix.shape[0] > matrix.shape[1] else wide


class MuonAndAdamW:
    """Step both optimizers as one: the matrices inside the layers with Muon, all other weights with AdamW.

    Both rates rise over the first 20 steps and fall to zero over the second half of ``steps``. Muon makes all
    directions of a matrix's step equally long, so that rare directions are learned as fast as common ones.

    Source: Jordan et al. 2024, "Muon: an optimizer for hidden layers".
    Taught in: chapter 09.
    """

    def __init__(
        self, model: nn.Module, inside: nn.Module, steps: int, *, lr: float = 0.02, rest: float = 6e-3
    ) -> None:
        """Take the matrices of ``inside``, a part of the model, at rate ``lr`` and all else at rate ``rest``."""
        matrices = [p for p in inside.parameters() if p.ndim == 2]
        taken = {id(p) for p in matrices}
        others = [p for p in model.parameters() if id(p) not in taken]
        muon = Muon(matrices, lr=lr)
        self.optimizers = [muon, torch.optim.AdamW(others, lr=rest, weight_decay=0.0, fused=True)]
        self.rates = [torch.optim.lr_scheduler.LambdaLR(o, lambda s: _share(s, steps)) for o in self.optimizers]

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def step(self) -> None:
        """Change all weights, then the rates."""
        for each in [*self.optimizers, *self.rates]:
            each.step()


def _share(step: int, steps: int) -> float:
    """Say which share of the full rate is used at a step."""
    return min(1.0, (step + 1) / 20, max(2 - 2 * step / steps, 0.0))
