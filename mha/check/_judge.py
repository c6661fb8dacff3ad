"""Compare an answer with the solution, and a wrong answer with the mistakes people make."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from mha.check._compare import compare, same, show

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
        except (Exception, SystemExit) as error:
            return False, f"✗ {exercise.name}: {show(case)} raised {type(error).__name__}: {error}"
        if result is None or result is ...:
            return False, UNSOLVED
        if not same(given, case, 0.0):
            return False, f"✗ {exercise.name}: your function changes its arguments. Work on a copy."
        problem = compare(result, right, exercise.tolerance)
        if problem:
            return False, f"✗ {exercise.name}: {problem}\n  input: {show(case)}{_diagnose(exercise, answer)}"
    return True, f"✓ {exercise.name}: right on {len(exercise.cases())} cases. {exercise.next_step}".rstrip()


def _diagnose(exercise: Exercise, answer: Callable) -> str:
    """Name the known mistake that gives what this answer gives, on every case."""
    for diagnosis, mistake in exercise.mistakes.items():
        if all(same(_try(answer, case), _try(mistake, case), exercise.tolerance) for case in exercise.cases()):
            return f"\n  It looks like this: {diagnosis}."
    return ""


def _try(function: Callable, case: tuple) -> Any:
    try:
        with torch.random.fork_rng():
            return function(*copy.deepcopy(case))
    except (Exception, SystemExit) as error:
        return type(error).__name__
