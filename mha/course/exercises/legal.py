"""Draw inputs that an exercise allows, so that an answer meets more than the few cases it was written for."""

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from mha.course.exercises.compare import compare, largest_number, show_case
from mha.course.exercises.sandbox import TimeIsUpError, call

Choice = TypeVar("Choice")

SIZES = 14  # how many forms are drawn for a checker; of each, two cases with other numbers in them
OWN = 3_141_592_653  # seeds from here on: nobody's own, as those after torch.manual_seed(0) would be
CLOSE = 1e-6  # how far two right answers may lie apart, as a share of the largest number


class Draw:
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


def drawn_cases(legal: Callable[[Draw], tuple], forms: int = SIZES, *, first: int = 0) -> list[tuple]:
    """Draw cases: of each form two, that differ in their numbers."""
    return [legal(Draw(form, numbers)) for form in range(first, first + forms) for numbers in (0, 1)]


def find_rare_bug(exercise: Any, answer: Callable) -> str:
    """Try an answer on drawn inputs; say what is wrong with it, or nothing."""
    for case in drawn_cases(exercise.legal) if exercise.legal else []:
        right = call(exercise.solution, case, 60.0, shown=False)[0]
        try:
            result = call(answer, copy.deepcopy(case), exercise.seconds, shown=False)[0]
        except TimeIsUpError:
            found = f"did not finish within {exercise.seconds:g} seconds"
        except (Exception, SystemExit) as error:
            found = f"raised {type(error).__name__}: {error}"
        else:
            found = differs(result, right, exercise.tolerance)
        if found:
            return f"right on the first cases, but not on every input: {found}\n  input: {show_case(answer, case)}"
    return ""


def differs(result: Any, right: Any, tolerance: float = CLOSE) -> str:
    """Say how two answers differ, or nothing: numbers may differ by a share of the largest one."""
    return compare(result, right, tolerance * min(largest_number(right), 1.0) + 1e-12)
