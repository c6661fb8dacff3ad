"""Guess what went wrong where an answer is none of an exercise's known mistakes: what holds for any exercise."""

import contextlib
import inspect
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from mha.course.exercises.compare import same
from mha.course.exercises.sandbox import TimeIsUpError, call

Change = Callable[[Any], Any]


def guess(exercise: Any, answer: Callable, results: list) -> str:
    """Say how wrong results lie to the right ones, or nothing.

    First the solution is given other arguments (exchanged, without one of them, one transposed, …), then its result is
    changed (another sign, reversed, …), and last a factor is looked for. A guess must fit on every case.

    :param results: what the answer gives for each case of the exercise.
    """
    cases = exercise.cases()

    def fits(change_case: Change, change_result: Callable = lambda right, _: right) -> bool:
        for case, result in zip(cases, results, strict=True):
            try:
                right = call(exercise.solution, change_case(case), exercise.seconds, shown=False)[0]
                if not same(change_result(right, result), result, exercise.tolerance):
                    return False
            except (Exception, SystemExit, TimeIsUpError):
                return False
        return True

    rights = [call(exercise.solution, case, exercise.seconds, shown=False)[0] for case in cases]
    if all(_reshaped(result, right) for result, right in zip(results, rights, strict=True)):
        return "the numbers are right, only the shape is not"
    names = _names(answer, cases[0])
    for said, change in _other_arguments(names, cases[0]):
        if fits(change):
            return said
    for said, change in RESULTS.items():
        if fits(lambda case: case, lambda right, result, change=change: _where_wrong(right, result, change)):
            return said
    by_arguments = _beside(names, cases, results, rights, exercise.tolerance)
    return by_arguments or _term(names, cases, results, rights) or _factor(results, rights, exercise.tolerance)


def _reshaped(result: Any, right: Any) -> bool:
    if not (isinstance(result, Tensor) and isinstance(right, Tensor)) or result.shape == right.shape:
        return False
    return result.numel() == right.numel() and same(result.reshape(right.shape), right, 1e-6)


def _names(answer: Callable, case: tuple) -> list[str]:
    """List the names that an answer has for what it is given, or nothing where it has none."""
    try:
        names = list(inspect.signature(answer).bind(*case).arguments)
    except (TypeError, ValueError):
        return []
    return names if len(names) == len(case) else []


def _other_arguments(names: list[str], case: tuple) -> Iterator[tuple[str, Change]]:
    """Make all changes of a case, each with the words for it."""
    for n, name in enumerate(names):
        for other in range(len(names)):
            if other != n and type(case[n]) is type(case[other]):
                if other > n:
                    yield f"`{name}` and `{names[other]}` have changed places", _exchanged(n, other)
                yield f"`{names[other]}` is used in place of `{name}`", _instead(n, other)
        for said, change in ARGUMENTS.items():
            yield said.format(name), _with(n, change)
    yield "all matrices are transposed", lambda case: tuple(x.mT if _is_matrix(x) else x for x in case)


def _is_matrix(x: Any) -> bool:
    return isinstance(x, Tensor) and x.ndim == 2 and x.shape[0] == x.shape[1]


def _instead(n: int, other: int) -> Change:
    return lambda case: (*case[:n], case[other], *case[n + 1 :])


def _exchanged(n: int, other: int) -> Change:
    def change(case: tuple) -> tuple:
        changed = list(case)
        changed[n], changed[other] = case[other], case[n]
        return tuple(changed)

    return change


def _with(n: int, change: Change) -> Change:
    return lambda case: (*case[:n], change(case[n]), *case[n + 1 :])


def _number(change: Change) -> Change:
    """Apply a change to a number or to a tensor of numbers, and refuse anything else."""

    def changed(value: Any) -> Any:
        whole = isinstance(value, (bool, str, list, tuple)) or (isinstance(value, Tensor) and value.dtype == torch.bool)
        if whole or not isinstance(value, (int, float, Tensor)):
            raise TypeError(type(value).__name__)
        return change(value)

    return changed


def _integer(change: Change) -> Change:
    def changed(value: Any) -> Any:
        if type(value) is not int:
            raise TypeError(type(value).__name__)
        return change(value)

    return changed


def _yes_or_no(change: Change) -> Change:
    def changed(value: Any) -> Any:
        if not isinstance(value, Tensor) or value.dtype != torch.bool:
            raise TypeError(type(value).__name__)
        return change(value)

    return changed


def _root(x: Any) -> Any:
    return x.sqrt() if isinstance(x, Tensor) else math.sqrt(x)


ARGUMENTS: dict[str, Change] = {
    "`{}` is left out: the result is the one for 0": _number(lambda x: x * 0),
    "`{}` is left out: the result is the one for 1": _number(lambda x: x * 0 + 1),
    "the sign of `{}` is wrong": _number(lambda x: -x),
    "`{}` is taken one too small": _integer(lambda x: x - 1),
    "`{}` is taken one too large": _integer(lambda x: x + 1),
    "`{}` divides where it should multiply, or the other way round": _number(lambda x: 1 / x),
    "`{}` is squared": _number(lambda x: x * x),
    "the square root of `{}` is taken": _number(_root),
    "`{}` is divided by the square root of its last axis' length, once too often": _number(
        lambda x: x / x.shape[-1] ** 0.5
    ),
    "`{}` is multiplied by the square root of its last axis' length, once too often": _number(
        lambda x: x * x.shape[-1] ** 0.5
    ),
    "`{}` went through a softmax first": _number(lambda x: x.softmax(-1)),
    "`{}` went through a softmax over its first axis": _number(lambda x: x.softmax(0)),
    "`{}` went through a sigmoid first": _number(lambda x: x.sigmoid()),
    "the exponential of `{}` is taken first": _number(lambda x: x.exp() if isinstance(x, Tensor) else math.exp(x)),
    "one minus `{}` is used": _number(lambda x: 1 - x),
    "`{}` counts twice": _number(lambda x: 2 * x),
    "`{}` counts by half only": _number(lambda x: x / 2),
    "True and False of `{}` have changed places": _yes_or_no(lambda x: ~x),
    "`{}` is not used": _yes_or_no(torch.ones_like),
    "`{}` is transposed: its last two axes have changed places": lambda x: x.mT,
    "`{}` is read in reverse order": lambda x: x.flip(0) if isinstance(x, Tensor) else x[::-1],
    "the last axis of `{}` is read in reverse order": lambda x: x.flip(-1),
    "only the first of `{}` is used, for all": lambda x: x[:1].expand_as(x),
    "only the last of `{}` is used, for all": lambda x: x[-1:].expand_as(x),
    "the mean of `{}` over its first axis is used": lambda x: x.mean(0, keepdim=True).expand_as(x),
}


def _where_wrong(right: Any, result: Any, change: Change) -> Any:
    """Change a right result; of a list, only the entries that the answer has wrong."""
    if change is _reversed or not isinstance(right, (list, tuple)):
        return change(right)
    if not all(isinstance(x, (bool, int, float)) for x in right):
        return [x if same(x, y, 1e-6) else change(x) for x, y in zip(right, result, strict=True)]
    return change(right)


def _reversed(right: Any) -> Any:
    return right.flip(0) if isinstance(right, Tensor) else right[::-1]


def _matrix(right: Tensor) -> Tensor:
    return right.mT if right.ndim > 1 else right[None]


RESULTS: dict[str, Change] = {
    "the sign is wrong": lambda r: [-x for x in r] if isinstance(r, (list, tuple)) else -r,
    "True and False have changed places": _yes_or_no(lambda r: ~r),
    "the result is transposed: its last two axes have changed places": _matrix,
    "the order is reversed": _reversed,
    "each entry of the list is in reverse order": lambda r: r.flip(0) if isinstance(r, Tensor) else r[::-1],
    "the order along the last axis is reversed": lambda r: r.flip(-1),
    "the order along the axis before the last is reversed": lambda r: r.flip(-2),
    "everything is one too small": lambda r: [x - 1 for x in r] if isinstance(r, (list, tuple)) else r - 1,
    "everything is one too large": lambda r: [x + 1 for x in r] if isinstance(r, (list, tuple)) else r + 1,
    "this is one minus the right result": _number(lambda r: 1 - r),
    "it is upside down: this is one divided by the right result": _number(lambda r: 1 / r),
    "it is squared": _number(lambda r: r * r),
    "the square root is taken": _number(_root),
    "the logarithm is taken": lambda r: r.log() if isinstance(r, Tensor) else math.log(r),
    "the exponential is taken": lambda r: r.exp() if isinstance(r, Tensor) else math.exp(r),
    "it went through one more softmax": lambda r: r.softmax(-1),
    "each row is divided by its sum": lambda r: r / r.sum(-1, keepdim=True),
    "it is averaged over the first axis": lambda r: r.mean(0, keepdim=True).expand_as(r),
    "it is rounded to whole numbers": lambda r: r.round() if isinstance(r, Tensor) else round(r),
}


def _beside(names: list[str], cases: list[tuple], results: list, rights: list, tolerance: float) -> str:
    """Say that a result is one of the arguments, or has one added to it or taken away from it."""
    said: dict[str, Callable] = {
        "this is `{}`, as it came": lambda right, x: x,
        "`{}` is added to the result": lambda right, x: right + x,
        "`{}` is taken away from the result": lambda right, x: right - x,
        "the result is taken away from `{}`": lambda right, x: x - right,
        "the result is multiplied by `{}`": lambda right, x: right * x,
        "the result is divided by `{}`": lambda right, x: right / x,
    }
    for words, make in said.items():
        for n, name in enumerate(names):
            pairs = zip(cases, results, rights, strict=True)
            with contextlib.suppress(Exception):
                if not any(isinstance(case[n], bool) for case in cases) and all(
                    same(make(right, case[n]), result, tolerance) for case, result, right in pairs
                ):
                    return words.format(name)
    return ""


def _term(names: list[str], cases: list[tuple], results: list, rights: list) -> str:
    """Say that a count has a term too many or too few: a product of up to three arguments, and of 1, 2, 4 or 8."""
    if not all(type(x) is int for x in (*results, *rights)):
        return ""
    whole = [n for n in range(len(names)) if all(type(case[n]) is int for case in cases)]
    for size in range(4):
        for chosen in itertools.combinations_with_replacement(whole, size):
            products = [math.prod(case[n] for n in chosen) for case in cases]
            for times in (1, 2, 4, 8):
                pairs = list(zip(results, rights, products, strict=True))
                what = " · ".join(
                    [*([str(times)] if times > 1 or not chosen else []), *(f"`{names[n]}`" for n in chosen)]
                )
                if all(result - right == times * product for result, right, product in pairs):
                    return f"the result is too large by {what}"
                if all(right - result == times * product for result, right, product in pairs):
                    return f"the result is too small by {what}"
    return ""


def _factor(results: list, rights: list, tolerance: float) -> str:
    """Say that all numbers are too large or too small by one factor."""
    factors, many = [], True
    for result, right in zip(results, rights, strict=True):
        if isinstance(result, Tensor) and (result.shape != right.shape or not result.is_floating_point()):
            return ""
        a, b = (torch.as_tensor(value, dtype=torch.float64).flatten() for value in (result, right))
        if a.shape != b.shape or not b.any() or not a.any():
            return ""
        factors.append(float(a[b.abs().argmax()] / b[b.abs().argmax()]))
        many &= len(b) > 2
        if not torch.allclose(a, factors[-1] * b, rtol=10 * tolerance, atol=tolerance):
            return ""
    if max(factors) - min(factors) <= 1e-6 * abs(factors[0]):
        return f"every number is {factors[0]:.4g} times the right one"
    if many:
        found = ", ".join(f"{factor:.4g}" for factor in factors)
        return f"a factor is too much or missing: the right numbers are multiplied by {found} in the cases"
    return ""
