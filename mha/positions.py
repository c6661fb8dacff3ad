"""Tell a layer where each word stands: attention alone cannot know.

Taught in: chapters 01 and 08.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn


def one_hot_positions(n: int) -> Float[Tensor, "n n"]:
    """Mark each position with a 1 in a channel of its own: the first code that comes to mind.

    Shapes: (n, n); concatenate it to the words.
    Raises: ValueError where n is below 1.
    Taught in: chapter 01.
    """
    _check(n, 1)
    return torch.eye(n)


def sinusoidal_positions(n: int, d_model: int, *, base: float = 10000.0) -> Float[Tensor, "n d_model"]:
    """Mark each position with waves of many lengths: sines in even channels, cosines in odd ones.

    Shapes: (n, d_model); add it to the words. Channels 2c and 2c+1 have wavelength 2π · base^(2c/d_model) positions.
    Raises: ValueError where n is below 1, or d_model is not a positive even number.
    Source: Vaswani et al. 2017, section 3.5.
    Taught in: chapters 01 and 08.
    """
    _check(n, d_model)
    if d_model % 2:
        raise ValueError(f"d_model = {d_model}: sines and cosines come in pairs, so it must be even")
    rates = base ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angles = torch.arange(n, dtype=torch.float64)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1).to(torch.get_default_dtype())


class SinusoidalPositions(nn.Module):
    """Add the waves of :func:`sinusoidal_positions` to the words; there is nothing to learn and no longest sequence.

    Shapes: x (b, n, d_model) gives (b, n, d_model); d_model must be even.
    Raises: ValueError where d_model is odd.
    Source: Vaswani et al. 2017, section 3.5.
    Taught in: chapters 07 and 08.
    """

    def forward(self, x: Float[Tensor, "b n m"], start: int = 0) -> Float[Tensor, "b n m"]:
        """Add the vectors of positions ``start`` to ``start + n - 1``."""
        return x + sinusoidal_positions(start + x.shape[1], x.shape[2])[start:].to(x)


class LearnedPositions(nn.Module):
    """Mark each position with a vector that is learned like any other weight, and add it to the words.

    Costs: longest · d_model weights.
    Shapes: x (b, n, d_model) gives (b, n, d_model), for n up to ``longest``.
    Raises: ValueError for a sequence longer than ``longest``: a position that was never learned has no vector; and for
        words of another width.
    Source: Gehring et al. 2017, section 3.1; Devlin et al. 2019.
    Taught in: chapters 01 and 08.
    """

    def __init__(self, longest: int, d_model: int) -> None:
        """Make a table for positions 0 to ``longest - 1``."""
        super().__init__()
        _check(longest, d_model)
        self.table = nn.Parameter(0.02 * torch.randn(longest, d_model))

    def forward(self, x: Float[Tensor, "b n m"], start: int = 0) -> Float[Tensor, "b n m"]:
        """Add the vectors of positions ``start`` to ``start + n - 1``."""
        end = start + x.shape[1]
        if x.shape[-1] != self.table.shape[1]:
            raise ValueError(f"words {tuple(x.shape)} do not have width {self.table.shape[1]}, as the positions do")
        if start < 0 or end > len(self.table):
            wrong = start if start < 0 else end - 1
            raise ValueError(f"position {wrong} was asked for, but only 0 to {len(self.table) - 1} were learned")
        return x + self.table[start:end]


def _check(n: int, d_model: int) -> None:
    if n < 1 or d_model < 1:
        raise ValueError(f"n = {n}, d_model = {d_model}: each must be at least 1")
