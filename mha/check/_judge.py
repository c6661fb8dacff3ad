"""Compare an answer with the solution, and a wrong answer with the mistakes people make."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

UNSOLVED = "Not solved yet."


@dataclass(frozen=True)
class Exercise:
    """One exercise: what is right, on which inputs it is tried, and which wrong answers are known.

    ``cases`` makes the argument lists, smallest first. ``mistakes`` maps a diagnosis ("softmax over queries") to a
    function that makes exactly this mistake; each must differ from the solution on some case.
    """

    name: str
    solution: Callable
    cases: Callable[[], list[tuple]]
    mistakes: dict[str, Callable] = field(default_factory=dict)
    next_step: str = ""
    tolerance: float = 1e-6

    def __call__(self, answer: Callable) -> None:
        """Check an answer and print what was found. (:func:`judge` says it as a value.)"""
        print(judge(self, answer)[1])


def judge(exercise: Exercise, answer: Callable) -> tuple[bool, str]:
    """Say whether an answer is right and, if not, what it looks like; never raises what the answer raises."""
    for case in exercise.cases():
        right = exercise.solution(*copy.deepcopy(case))
        given = copy.deepcopy(case)
        try:
            with torch.random.fork_rng():
                result = answer(*given)
        except Exception as error:
            return False, f"✗ {exercise.name}: {_show(case)} raised {type(error).__name__}: {error}"
        if result is None or result is ...:
            return False, UNSOLVED
        if not _same(given, case, 0.0):
            return False, f"✗ {exercise.name}: your function changes its arguments. Work on a copy."
        problem = _compare(result, right, exercise.tolerance)
        if problem:
            return False, f"✗ {exercise.name}: {problem}\n  input: {_show(case)}{_diagnose(exercise, answer)}"
    return True, f"✓ {exercise.name}: right on {len(exercise.cases())} cases. {exercise.next_step}".rstrip()


def _diagnose(exercise: Exercise, answer: Callable) -> str:
    """Name the known mistake that gives what this answer gives, on every case."""
    for diagnosis, mistake in exercise.mistakes.items():
        if all(_same(_try(answer, case), _try(mistake, case), exercise.tolerance) for case in exercise.cases()):
            return f"\n  It looks like this: {diagnosis}."
    return ""


def _try(function: Callable, case: tuple) -> Any:
    try:
        with torch.random.fork_rng():
            return function(*copy.deepcopy(case))
    except Exception as error:
        return type(error).__name__


def _compare(result: Any, right: Any, tolerance: float) -> str:
    if isinstance(right, Tensor) and not isinstance(result, Tensor):
        return f"a tensor was expected, your function returned {type(result).__name__}"
    if isinstance(right, Tensor) and result.shape != right.shape:
        return f"the shape is {tuple(result.shape)}, it should be {tuple(right.shape)}"
    if isinstance(right, Tensor) and result.dtype != right.dtype:
        return f"the dtype is {result.dtype}, it should be {right.dtype}"
    return "" if _same(result, right, tolerance) else f"yours gives {_show(result)}, right is {_show(right)}"


def _same(a: Any, b: Any, tolerance: float) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return (
            a.shape == b.shape
            and a.dtype == b.dtype
            and torch.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
        )
    if hasattr(a, "__array__") and hasattr(b, "__array__"):
        return _same(torch.as_tensor(a), torch.as_tensor(b), tolerance)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(_same(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return abs(a - b) <= tolerance * max(1.0, abs(b)) or a == b
    return type(a) is type(b) and not isinstance(a, (Tensor, list, tuple, int, float)) and bool(a == b)


def _show(value: Any) -> str:
    if isinstance(value, Tensor):
        rows = value.detach()
        short = str([round(x, 4) if isinstance(x, float) else x for x in rows.flatten()[:6].tolist()])
        return (
            f"{short[:-1]}, …] of shape {tuple(rows.shape)}"
            if rows.numel() > 6
            else f"{short} of shape {tuple(rows.shape)}"
        )
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_show(v) for v in value) + "]"
    return str(value)
