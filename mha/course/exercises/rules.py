"""Rules of an exercise besides right numbers: what must be written by hand, and how large a tensor may be."""

import contextlib
import inspect
import warnings
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mha.course.exercises.compare import compare, show_case
from mha.course.exercises.sandbox import TimeIsUpError, call

COARSE = 1e-4  # what float32 may lose


def find_later_bugs(exercise: Any, answer: Callable) -> str:
    """Say what is wrong with an answer whose values are right, or nothing.

    Each case is tried in the other of float32 and float64, and the gradients of the inputs are compared, wherever
    the solution itself has an answer there.
    """
    for case in exercise.cases():
        for change, tolerance, when in ((_other_type, COARSE, ""), (None, 100 * exercise.tolerance, "the gradients")):
            if change is None and "autograd" in exercise.forbidden:
                continue  # a backward pass by hand: nobody asks for its own gradient
            found = _bug(exercise, answer, case, change, tolerance)
            if found:
                return f"right on the first try, but {found}" if not when else f"the values are right, but {found}"
    return ""


def _bug(exercise: Any, answer: Callable, case: tuple, change: Callable | None, tolerance: float) -> str:
    """Compare answer and solution on a changed case, or in their gradients where nothing is changed."""
    tried = case if change is None else change(case)
    wrap = _with_gradients if change is None else (lambda function: function)
    try:
        right = call(wrap(exercise.solution), tried, 60.0, shown=False)[0]
    except Exception:  # the exercise has no such side: a list, an array, a number
        return ""
    if right is None:
        return ""
    try:
        with warnings.catch_warnings():  # such as "converting a tensor with requires_grad to a scalar"
            warnings.simplefilter("ignore")
            result = call(wrap(answer), tried, exercise.seconds, shown=False)[0]
    except (Exception, SystemExit, TimeIsUpError) as error:
        if change is None and not exercise.gradients:
            return ""  # NumPy, or a change in place that a backward pass does not survive: nobody asks for one
        return f"{show_case(answer, tried)} raised {type(error).__name__}: {error}"
    if change is None:
        return _in_words(result, right, tolerance, asked=exercise.gradients)
    found = compare(result, right, tolerance)
    return f"in another number type {found}\n  input: {show_case(answer, tried)} ({_type(tried)})" if found else ""


def _in_words(result: list[Tensor | None] | None, right: list[Tensor | None], tolerance: float, *, asked: bool) -> str:
    pairs = list(zip(result or [None] * len(right), right, strict=True))
    pairs = [pair for pair in pairs if pair[1] is not None]  # the inputs on which the solution depends
    if not asked:  # NumPy or .item() on purpose, and no sentence of the exercise forbids it
        pairs = [pair for pair in pairs if pair[0] is not None]
    if any(found is None for found, _ in pairs):
        return "no gradient flows back through it. Is there a .detach(), .item(), .data, no_grad() or NumPy in it?"
    found = compare([found for found, _ in pairs], [wanted for _, wanted in pairs], tolerance)
    return f"not the gradients of the inputs: {found}" if found else ""


def _with_gradients(function: Callable) -> Callable:
    """Return the gradients of a fixed weighted sum of all results, for each input; None where there is none."""

    def gradients(*case: Any) -> list[Tensor | None] | None:
        inputs = [x.requires_grad_() for x in _tensors(case) if x.is_floating_point()]
        results = [y for y in _tensors(function(*case)) if y.requires_grad]
        if not inputs or not results:
            return None
        total: Any = sum((y * torch.linspace(-1, 2, y.numel(), dtype=y.dtype).view_as(y)).sum() for y in results)
        return list(torch.autograd.grad(total, inputs, allow_unused=True))

    return gradients


def _tensors(value: Any) -> list[Tensor]:
    """List the tensors in a value, in order."""
    if isinstance(value, Tensor):
        return [value]
    return [x for part in value for x in _tensors(part)] if isinstance(value, (list, tuple)) else []


def _other_type(value: Any) -> Any:
    """Turn float64 into float32 and the other way round, everywhere in a value."""
    if isinstance(value, Tensor) and value.dtype in (torch.float32, torch.float64):
        return value.to(torch.float32 if value.dtype == torch.float64 else torch.float64)
    if isinstance(value, torch.nn.Module):
        return value.float() if next(value.parameters(), torch.zeros(1)).dtype == torch.float64 else value.double()
    return type(value)(map(_other_type, value)) if type(value) in (list, tuple) else value


def _type(value: Any) -> str:
    return str(next((x.dtype for x in _tensors(value) if x.is_floating_point()), "numbers")).removeprefix("torch.")


PACKAGE = __name__.partition(".")[0]


def broken_rule(exercise: Any, answer: Callable) -> str:
    """Say which rule an answer with right numbers breaks, or nothing."""
    name = used_of_package(answer) if exercise.by_hand else ""
    if name:
        return f"the numbers are right, but your function uses `{name}` of the package. Write that part yourself."
    named = [name for function in reached(answer) for name in _names(function.__code__)]
    name = next((name for name in named if name in exercise.forbidden), "")
    if name:
        return f"the numbers are right, but your function uses `{name}`, which does the exercise for you."
    for case in exercise.cases() if exercise.room else []:
        size, room = largest(answer, case, exercise.seconds), exercise.room(*case)
        if size > room:
            most = f"your function makes a tensor of {size} numbers, and {room} are enough"
            return f"the numbers are right, but {most}. {exercise.too_large}\n  input: {show_case(answer, case)}"
    return ""


def reached(answer: Callable) -> list[FunctionType]:
    """List an answer and the functions of its own file that it names, directly or not; nothing of this package."""
    found: list[FunctionType] = []
    new = [inspect.unwrap(answer)] if callable(answer) else []
    while new:
        function = new.pop()
        if isinstance(function, FunctionType) and function not in found and not _is_ours(function):
            found.append(function)
            others = [_known(function).get(name) for name in _names(function.__code__)]
            new += [other for other in others if getattr(other, "__module__", "") == function.__module__]
    return found


def _known(function: FunctionType) -> dict[str, Any]:
    """Give the values of the names that a function can see."""
    known = dict(function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # a name that has no value yet
            known[name] = cell.cell_contents
    return known


def used_of_package(answer: Callable) -> str:
    """Name something of this package that a function uses, itself no part of the package; or nothing."""
    for function in reached(answer):
        known = _known(function)
        for name in _names(function.__code__):
            if _is_ours(known.get(name, name)):
                return name
    return ""


def _names(code: CodeType) -> Iterator[str]:
    """List the names that a function reads or imports, with those of the functions in it."""
    yield from (*code.co_names, *code.co_freevars)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_ours(value: Any) -> bool:
    """Say whether a value belongs to this package; a text is the name of something that is still to be imported."""
    home = value if isinstance(value, str) else getattr(value, "__module__", None)
    home = value.__name__ if isinstance(value, ModuleType) else home
    return isinstance(home, str) and home.partition(".")[0] == PACKAGE


def largest(answer: Callable, case: tuple, seconds: float) -> int:
    """Count the numbers in the largest tensor that a function makes of a case.

    A view of another tensor counts as that one. What is no floating-point number, such as a mask, does not count, and
    neither does what is not made of the case, such as a triangle of ones.
    """
    sizes = _Sizes()

    def watched(*given: Any) -> Any:
        sizes.known = _tensors(given)
        with sizes:
            return answer(*given)

    call(watched, case, seconds, shown=False)
    return max(sizes.seen, default=0)


class _Sizes(TorchDispatchMode):
    """Note how many numbers the memory of each tensor holds that is made of known ones."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []
        self.known: list[Tensor] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        given, known = tree_leaves((args, kwargs)), {id(one) for one in self.known}
        made = [one for one in tree_leaves(result) if isinstance(one, Tensor)]
        if any(id(one) in known for one in given):
            self.known += made
            self.seen += [
                one.untyped_storage().nbytes() // one.element_size() for one in made if one.is_floating_point()
            ]
        return result
