"""A router without weights, for a layer that was trained without one.

Taught in: chapter 16.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mha._taps import Tap
from mha.routing import choose


class NormRouter(nn.Module):
    """Choose the routed heads with the longest queries, and let every head that works count in full.

    It has no weights, and turns a trained layer into one that routes. A gate is 0 or 1; backward the gates of the
    chosen heads have the slope of their probabilities.

    Plain when: all routed heads are chosen.
    Source: Jin et al. 2024, section 3.3, equations 9 and 10.
    Differs from the paper: heads that do not work pass no slope to their probability, because nothing was read.
    Differs from the released code: the lengths' spread, by which they are divided, passes no slope, so that queries
        of equal length, such as zeros, do no harm; a single routed head is allowed.
    Taught in: chapter 16.
    """

    def __init__(self, shared: int, routed: int, chosen: int) -> None:
        """Remember the numbers of heads."""
        super().__init__()
        self.shared, self.routed, self.chosen = shared, routed, chosen
        self.at_probabilities, self.at_gates = Tap(), Tap()

    def forward(self, x: Float[Tensor, "b i m"], q: Float[Tensor, "b h i d"]) -> Float[Tensor, "b h i"]:
        """Return the gates of all heads; the input ``x`` is not asked. Turned queries are as long as before."""
        gates = torch.ones_like(q[..., 0])
        if self.routed:
            lengths = q[:, self.shared :].norm(dim=-1)
            probabilities = self.at_probabilities(_standardize(lengths).softmax(1))
            gates = torch.cat([gates[:, : self.shared], self._hard(probabilities)], 1)
        return self.at_gates(gates)

    def _hard(self, probabilities: Tensor) -> Tensor:
        return choose(probabilities, self.chosen) * (1 + (probabilities - probabilities.detach()))  # exactly 0 or 1


def _standardize(lengths: Tensor) -> Tensor:
    """Measure lengths in their spread over the heads, from their mean, which changes no softmax."""
    apart = lengths - lengths.mean(1, keepdim=True)
    spread = apart.detach().square().sum(1, keepdim=True).div(max(1, lengths.shape[1] - 1)).sqrt()
    return apart / spread.clamp_min(torch.finfo(lengths.dtype).tiny)
