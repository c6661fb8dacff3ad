"""Compare two values of any kind, and say in words how they differ."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

LONGEST = 300  # characters of a value that are shown


SHOWN = 6  # entries of a tensor


KINDS: dict[type | tuple[type, ...], str] = {
    Tensor: "a tensor",
    np.ndarray: "an array",
    (list, tuple): "a list",
    (int, float): "a number",
}


def compare(result: Any, right: Any, tolerance: float) -> str:
    """Say what is wrong with a result, or nothing: first its kind, then its form, then its numbers.

    A number of NumPy is a number, and so is a tensor without axes. float64 is as good as the float32 that was expected,
    and so is a mask whose axes of length 1 stand for all of an axis.
    """
    result = _as_expected(result, right)
    if _kind(result) != _kind(right):
        return f"{_kind(right)} was expected, your function returned {type(result).__name__}{_cure(result, right)}"
    if isinstance(right, (Tensor, np.ndarray)):
        for name in ("shape", "dtype"):
            found, wanted = getattr(result, name), getattr(right, name)
            if found != wanted:
                found, wanted = (tuple(found), tuple(wanted)) if name == "shape" else (found, wanted)
                return f"the {name} is {found}, it should be {wanted}"
    elif isinstance(right, (list, tuple)) and len(result) != len(right):
        return f"{len(right)} entries were expected, your function returned {len(result)}: {show(result)}"
    if same(result, right, tolerance):
        return ""
    if isinstance(right, (list, tuple)):
        return _in_entry(result, right, tolerance)
    yours, other = _unlike(result, right)
    return f"yours gives {yours}, right is {other}{_first_difference(result, right, tolerance)}"


def _in_entry(result: Any, right: Any, tolerance: float) -> str:
    """Say what is wrong with a list: the whole of a short one, otherwise the first entry that differs."""
    if all(isinstance(x, (bool, int, float, str)) for x in right):
        yours, other = _unlike(result, right)
        return f"yours gives {yours}, right is {other}"
    where = next((n for n, (x, y) in enumerate(zip(result, right, strict=True)) if not same(x, y, tolerance)), 0)
    return f"entry {where}: {compare(result[where], right[where], tolerance)}"


def _unlike(result: Any, right: Any) -> tuple[str, str]:
    """Write two values with as many digits as it takes to tell them apart."""
    for digits in (4, 8, 17):
        yours, other = (show(value, digits) for value in (result, right))
        if yours != other:
            break
    return yours, other


def _as_expected(result: Any, right: Any) -> Any:
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
            return [_as_expected(x, y) for x, y in zip(result, right, strict=True)]
        except RecursionError:  # a list that holds itself
            return result
    return result


def _spreads(small: torch.Size, large: torch.Size) -> bool:
    return len(small) == len(large) and all(a in (1, b) for a, b in zip(small, large, strict=True))


def largest_number(value: Any) -> float:
    """Find the largest magnitude among all finite numbers in a value, or 1 where there is none."""
    if isinstance(value, (Tensor, np.ndarray)):
        numbers = torch.as_tensor(value).detach().double().abs()
        return float(numbers[numbers.isfinite()].max()) if numbers.isfinite().any() else 1.0
    if isinstance(value, (list, tuple)):
        return max(map(largest_number, value), default=1.0)
    return abs(float(value)) if isinstance(value, (int, float)) and math.isfinite(value) else 1.0


def _first_difference(result: Any, right: Any, tolerance: float) -> str:
    """Say where two tensors differ first, if that is after the entries that are shown, or where nan comes from."""
    if not isinstance(right, (Tensor, np.ndarray)):
        return ""
    try:
        return _place(torch.as_tensor(result), torch.as_tensor(right), tolerance)
    except Exception:  # a tensor without numbers, as on the device "meta"
        return ""


def _place(result: Tensor, right: Tensor, tolerance: float) -> str:
    if result.isnan().any() and not right.isnan().any():
        return "; nan comes from 0/0, or from a softmax of nothing but −∞"
    pairs = zip(result.flatten().tolist(), right.flatten().tolist(), strict=True)
    first = next((n for n, (a, b) in enumerate(pairs) if not _equal(a, b, tolerance)), 0)
    if first < SHOWN:
        return ""
    place = tuple(int(i) for i in torch.unravel_index(torch.tensor(first), right.shape))
    yours, other = (_write(one[place].item()) for one in (result, right))
    return f"; they differ first at {list(place)}, where yours is {yours} and right is {other}"


def _kind(value: Any) -> str:
    return next((name for kind, name in KINDS.items() if isinstance(value, kind)), type(value).__name__)


def _cure(result: Any, right: Any) -> str:
    """Say how to turn a tensor or an array into plain numbers, where these were asked for."""
    plain = {"a list": ": use .tolist()", "a number": ": use .item()"}.get(_kind(right), "")
    return plain if isinstance(result, (Tensor, np.ndarray, np.generic)) else ""


def same(a: Any, b: Any, tolerance: float) -> bool:
    """Say whether two values of any kind are equal up to a tolerance, and of the same form."""
    try:
        return _equal(a, b, tolerance)
    except Exception:  # whatever cannot be compared is different
        return False


def _equal(a: Any, b: Any, tolerance: float) -> bool:
    if any(isinstance(a, kind) and isinstance(b, kind) for kind in (Tensor, np.ndarray)):
        a, b = torch.as_tensor(a), torch.as_tensor(b)
        alike = a.shape == b.shape and a.dtype == b.dtype
        return alike and torch.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(_equal(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance) or (math.isnan(a) and math.isnan(b))
    return type(a) is type(b) and bool(a == b)


def show(value: Any, digits: int = 4) -> str:
    """Write a value in one short line."""
    try:
        text = _write(value, digits)
    except Exception:
        text = f"something of type {type(value).__name__}"
    return _shortened(text)


def show_case(function: Callable, case: tuple) -> str:
    """Write what a function was given in one short line, each value by the name that the function has for it."""
    try:
        names = list(inspect.signature(function).bind(*case).arguments)
    except (TypeError, ValueError):  # not even the number of arguments fits
        names = []
    if len(names) != len(case):
        return show(case)
    return _shortened(", ".join(f"{name} = {show(value)}" for name, value in zip(names, case, strict=True)))


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"


def _write(value: Any, digits: int = 4) -> str:
    if isinstance(value, (Tensor, np.ndarray)):
        numbers = torch.as_tensor(value).detach().flatten()
        short = [_rounded(x, digits) if isinstance(x, float) else x for x in numbers[:SHOWN].tolist()]
        return f"{str(short)[:-1]}{', …' if len(numbers) > SHOWN else ''}] of shape {tuple(value.shape)}"
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_write(one, digits) for one in value) + "]"
    return str(value)


def _rounded(number: float, digits: int) -> float:
    """Round to some decimals, or to some digits where decimals would leave nothing."""
    return round(number, digits) if abs(number) >= 10**-digits or number == 0 else float(f"{number:.{digits}g}")
