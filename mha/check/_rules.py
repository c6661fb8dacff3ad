"""Rules of an exercise besides right numbers: what must be written by hand, and how large a tensor may be."""

import contextlib
from collections.abc import Callable, Iterator
from types import CodeType, ModuleType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mha.check._compare import show_case
from mha.check._run import call

PACKAGE = __name__.partition(".")[0]


def broken_rule(exercise: Any, answer: Callable) -> str:
    """Say which rule an answer with right numbers breaks, or nothing."""
    name = used_of_package(answer) if exercise.by_hand else ""
    if name:
        return f"the numbers are right, but your function uses `{name}` of the package. Write that part yourself."
    for case in exercise.cases() if exercise.room else []:
        size, room = largest(answer, case, exercise.seconds), exercise.room(*case)
        if size > room:
            most = f"your function makes a tensor of {size} numbers, and {room} are enough"
            return f"the numbers are right, but {most}. {exercise.too_large}\n  input: {show_case(answer, case)}"
    return ""


def used_of_package(answer: Callable) -> str:
    """Name something of this package that a function mentions, itself no part of the package; or nothing."""
    if _is_ours(answer) or not isinstance(getattr(answer, "__code__", None), CodeType):
        return ""
    known = dict(answer.__globals__)
    for name, cell in zip(answer.__code__.co_freevars, answer.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # a name that has no value yet
            known[name] = cell.cell_contents
    return next((name for name in _names(answer.__code__) if _is_ours(known.get(name, name))), "")


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
    """Count the numbers in the largest tensor that a function makes; a view of another one counts as that one."""
    sizes = _Sizes()

    def watched(*given: Any) -> Any:
        with sizes:
            return answer(*given)

    call(watched, case, seconds, shown=False)
    return max(sizes.seen, default=0)


class _Sizes(TorchDispatchMode):
    """Note how many numbers the memory of each new tensor holds."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for one in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(one, torch.Tensor):
                self.seen.append(one.untyped_storage().nbytes() // one.element_size())
        return result
