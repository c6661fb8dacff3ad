"""Train matrices with Muon and everything else with AdamW: small Transformers learn to look back much sooner.

Taught in: chapters 09 and 10.
"""

import torch
from torch import nn


class MuonAndAdamW:
    """Step both optimizers as one: the matrices inside the layers with Muon, all other weights with AdamW.

    Both rates rise over the first 20 steps and fall to zero over the second half of ``steps``. Muon makes all
    directions of a matrix's step equally long, so that rare directions are learned as fast as common ones.

    Source: Jordan et al. 2024, "Muon: an optimizer for hidden layers"; the optimizer itself is torch's.
    Taught in: chapter 09.
    """

    def __init__(
        self, model: nn.Module, inside: nn.Module, steps: int, *, lr: float = 0.02, rest: float = 6e-3
    ) -> None:
        """Take the matrices of ``inside``, a part of the model, at rate ``lr`` and all else at rate ``rest``."""
        matrices = [p for p in inside.parameters() if p.ndim == 2]
        taken = {id(p) for p in matrices}
        others = [p for p in model.parameters() if id(p) not in taken]
        muon = torch.optim.Muon(matrices, lr=lr, weight_decay=0.0)
        self.optimizers = [muon, torch.optim.AdamW(others, lr=rest, weight_decay=0.0)]
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
