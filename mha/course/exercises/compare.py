"""Compare two values of any kind, tensors and arrays among them, and say in words how they differ."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mha.course.exercises.plain.words import Words

SHOWN = 6  # entries of a tensor


class TensorWords(Words):
    """Compare values, with tensors and arrays among them.

    A number of NumPy is a number, and so is a tensor without axes. float64 is as good as the float32 that was expected,
    and so is a mask whose axes of length 1 stand for all of an axis.
    """

    kinds = ((Tensor, "a tensor"), (np.ndarray, "an array"), *Words.kinds)

    def as_expected(self, result: Any, right: Any) -> Any:
        """Write a right answer of a neighboring type as the expected one."""
        number = isinstance(result, np.generic) or (isinstance(result, Tensor) and result.ndim == 0)
        if number and isinstance(right, (bool, int, float)):
            return result.item()
        if isinstance(result, Tensor) and isinstance(right, Tensor):
            if result.dtype == right.dtype == torch.bool and _spreads(result.shape, right.shape):
                return result.expand_as(right)
            wider = result.dtype == torch.float64 and right.dtype == torch.float32
            return result.to(right.dtype) if wider else result
        if isinstance(result, (list, tuple)) and isinstance(right, (list, tuple)) and len(result) == len(right):
            try:
                return [self.as_expected(x, y) for x, y in zip(result, right, strict=True)]
            except RecursionError:  # a list that holds itself
                return result
        return result

    def cure(self, result: Any, right: Any) -> str:
        """Say how to turn a tensor or an array into plain numbers, where these were asked for."""
        plain = {"a list": ": use .tolist()", "a number": ": use .item()"}.get(self.kind(right), "")
        return plain if isinstance(result, (Tensor, np.ndarray, np.generic)) else ""

    def form(self, result: Any, right: Any) -> str:
        """Compare shapes and number types, or lengths."""
        if not isinstance(right, (Tensor, np.ndarray)):
            return super().form(result, right)
        for name in ("shape", "dtype"):
            found, wanted = getattr(result, name), getattr(right, name)
            if found != wanted:
                found, wanted = (tuple(found), tuple(wanted)) if name == "shape" else (found, wanted)
                return f"the {name} is {found}, it should be {wanted}"
        return ""

    def first_difference(self, result: Any, right: Any, tolerance: float) -> str:
        """Say where two tensors differ first, if that is after the entries that are shown, or where nan comes from."""
        if not isinstance(right, (Tensor, np.ndarray)):
            return ""
        try:
            return self._place(torch.as_tensor(result), torch.as_tensor(right), tolerance)
        except Exception:  # a tensor without numbers, as on the device "meta"
            return ""

    def _place(self, result: Tensor, right: Tensor, tolerance: float) -> str:
        if result.isnan().any() and not right.isnan().any():
            return "; nan comes from 0/0, or from a softmax of nothing but −∞"
        pairs = zip(result.flatten().tolist(), right.flatten().tolist(), strict=True)
        first = next((n for n, (a, b) in enumerate(pairs) if not self.equal(a, b, tolerance)), 0)
        if first < SHOWN:
            return ""
        place = tuple(int(i) for i in torch.unravel_index(torch.tensor(first), right.shape))
        yours, other = (self.write(one[place].item()) for one in (result, right))
        return f"; they differ first at {list(place)}, where yours is {yours} and right is {other}"

    def largest_number(self, value: Any) -> float:
        """Find the largest magnitude among all finite numbers in a value, or 1 where there is none."""
        if isinstance(value, (Tensor, np.ndarray)):
            numbers = torch.as_tensor(value).detach().double().abs()
            return float(numbers[numbers.isfinite()].max()) if numbers.isfinite().any() else 1.0
        return super().largest_number(value)

    def equal(self, a: Any, b: Any, tolerance: float) -> bool:
        """Compare; tensors and arrays must have the same shape and number type."""
        if any(isinstance(a, kind) and isinstance(b, kind) for kind in (Tensor, np.ndarray)):
            a, b = torch.as_tensor(a), torch.as_tensor(b)
            alike = a.shape == b.shape and a.dtype == b.dtype
            return alike and torch.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
        return super().equal(a, b, tolerance)

    def write(self, value: Any, digits: int = 4) -> str:
        """Write a value in one line, of a tensor the first entries and the shape."""
        if not isinstance(value, (Tensor, np.ndarray)):
            return super().write(value, digits)
        numbers = torch.as_tensor(value).detach().flatten()
        short = [_rounded(x, digits) if isinstance(x, float) else x for x in numbers[:SHOWN].tolist()]
        return f"{str(short)[:-1]}{', …' if len(numbers) > SHOWN else ''}] of shape {tuple(value.shape)}"


def _spreads(small: torch.Size, large: torch.Size) -> bool:
    return len(small) == len(large) and all(a in (1, b) for a, b in zip(small, large, strict=True))


def _rounded(number: float, digits: int) -> float:
    """Round to some decimals, or to some digits where decimals would leave nothing."""
    return round(number, digits) if abs(number) >= 10**-digits or number == 0 else float(f"{number:.{digits}g}")


WORDS = TensorWords()
compare, same, show, largest_number = WORDS.compare, WORDS.same, WORDS.show, WORDS.largest_number


def argument_names(function: Callable, case: tuple) -> list[str]:
    """List the names that a function has for what it is given, or nothing where not even their number fits."""
    try:
        names = list(inspect.signature(function).bind(*case).arguments)
    except (TypeError, ValueError):
        return []
    return names if len(names) == len(case) else []


def show_case(function: Callable, case: tuple) -> str:
    """Write what a function was given in one short line, each value by the name that the function has for it."""
    return WORDS.show_case(argument_names(function, case), case)
