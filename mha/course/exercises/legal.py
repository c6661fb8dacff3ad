"""Draw inputs that an exercise allows, so that an answer meets more than the few cases it was written for."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from mha.course.exercises.plain import draw
from mha.course.exercises.plain.judge import FORMS

Choice = TypeVar("Choice")

OWN = 3_141_592_653  # seeds from here on: nobody's own, as those after torch.manual_seed(0) would be


class Draw(draw.Draw):
    """Draw sizes and numbers. Two draws with one ``form`` have the same sizes, and other numbers in them.

    :Taught in: the page about the checkers.
    """

    def __init__(self, form: int, numbers: int = 0) -> None:
        """Begin two streams of random numbers: one decides the sizes, the other fills them."""
        self._form = torch.Generator().manual_seed(1000 + form)
        self.generator = torch.Generator().manual_seed(OWN + 7919 * form + numbers)

    def whole(self, low: int, high: int) -> int:
        """Draw a size from ``low`` to ``high``, both included."""
        return int(torch.randint(low, high + 1, (), generator=self._form))

    def one_of(self, options: Sequence[Choice]) -> Choice:
        """Choose an option."""
        return options[self.whole(0, len(options) - 1)]

    def chance(self, share: float = 0.5) -> bool:
        """Say yes in a share of all forms."""
        return float(torch.rand((), generator=self._form)) < share

    def number(self, low: float, high: float) -> float:
        """Draw one number between two others, another one in each case."""
        return low + (high - low) * float(torch.rand((), generator=self.generator, dtype=torch.float64))

    def integer(self, low: int, high: int) -> int:
        """Draw a whole number that is no size, from ``low`` to ``high``, another one in each case."""
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def normal(self, *shape: int, scales: Sequence[float] = (1.0, 1.0, 0.1, 4.0)) -> Tensor:
        """Draw float64 numbers around 0, whose size is one of ``scales``."""
        return self.one_of(scales) * torch.randn(shape, generator=self.generator, dtype=torch.float64)

    def normals(self, *shape: int, scales: Sequence[float] = (1.0, 1.0, 0.1, 4.0)) -> list:
        """Draw the same as a list of numbers, or of lists."""
        return self.normal(*shape, scales=scales).tolist()

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Draw float64 numbers between two others."""
        return low + (high - low) * torch.rand(shape, generator=self.generator, dtype=torch.float64)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Draw whole numbers from ``low`` to ``high``, both included."""
        return torch.randint(low, high + 1, shape, generator=self.generator)

    def yes_or_no(self, *shape: int, share: float = 0.6) -> Tensor:
        """Draw a boolean tensor with a share of True."""
        return torch.rand(shape, generator=self.generator) < share

    def order(self, count: int) -> list[int]:
        """Draw the numbers below ``count`` in some order."""
        return torch.randperm(count, generator=self.generator).tolist()


def drawn_cases(legal: Callable[[Draw], tuple], forms: int = FORMS, *, first: int = 0) -> list[tuple]:
    """Draw cases: of each form two, that differ in their numbers."""
    return [legal(Draw(form, numbers)) for form in range(first, first + forms) for numbers in (0, 1)]
