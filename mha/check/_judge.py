"""Compare an answer with the solution, and a wrong answer with the mistakes people make."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mha.check._again import find_later_faults
from mha.check._compare import compare, same, show_case
from mha.check._progress import solved
from mha.check._rules import broken_rule
from mha.check._run import SeedSetError, TimeIsUpError, call

UNSOLVED = "Not solved yet."


@dataclass(frozen=True)
class Exercise:
    """One exercise: what is right, on which inputs it is tried, and which wrong answers are known.

    ``cases`` makes the argument lists, smallest first. ``mistakes`` maps a diagnosis ("softmax over queries") to a
    function that makes exactly this mistake; each must differ from the solution on some case. ``seconds`` is the time
    an answer may take for one case.

    Two rules may stand besides the numbers. ``by_hand``: nothing of this package may be used. ``room`` says how many
    numbers the largest tensor may hold that an answer makes of a case, and ``too_large`` why it would hold more.
    """

    name: str
    solution: Callable
    cases: Callable[[], list[tuple]]
    mistakes: dict[str, Callable] = field(default_factory=dict)
    next_step: str = ""
    tolerance: float = 1e-6
    seconds: float = 10.0
    by_hand: bool = False
    room: Callable[..., int] | None = None
    too_large: str = ""

    def __call__(self, answer: Callable) -> None:
        """Check an answer, print what was found, and note it if solved. (:func:`judge` says it as a value.)"""
        right, message = judge(self, answer)
        print(message)
        if right:
            solved(self, answer)


def judge(exercise: Exercise, answer: Callable) -> tuple[bool, str]:
    """Say whether an answer is right and, if not, what it looks like; never raises what the answer raises."""
    for case in exercise.cases():
        problem = _problem(exercise, answer, case)
        if problem == UNSOLVED:
            return False, UNSOLVED
        if problem:
            return False, f"✗ {exercise.name}: {problem}"
    problem = broken_rule(exercise, answer) or find_later_faults(exercise, answer)
    if problem:
        return False, f"✗ {exercise.name}: {problem}"
    return True, f"✓ {exercise.name}: right on {len(exercise.cases())} cases. {exercise.next_step}".rstrip()


def _problem(exercise: Exercise, answer: Callable, case: tuple) -> str:
    """Say what is wrong with an answer on one case, or nothing."""
    right, _ = call(exercise.solution, case, 60.0, shown=False)
    try:
        result, given = call(answer, case, exercise.seconds)
    except TimeIsUpError:
        tried = show_case(answer, case)
        return f"{tried} did not finish within {exercise.seconds:g} seconds. Is there a loop that never ends?"
    except SeedSetError as error:
        return f"your function is judged by its result, but {error}. Take a generator of your own."
    except (Exception, SystemExit) as error:
        return f"{show_case(answer, case)} raised {type(error).__name__}: {error}"
    if result is None or result is ...:
        return UNSOLVED
    if not same(given, case, 0.0):
        return "your function changes its arguments. Work on a copy."
    found = compare(result, right, exercise.tolerance)
    return f"{found}\n  input: {show_case(answer, case)}{_diagnose(exercise, answer)}" if found else ""


def _diagnose(exercise: Exercise, answer: Callable) -> str:
    """Name the known mistake that gives what this answer gives, on every case."""
    for diagnosis, mistake in exercise.mistakes.items():
        if all(
            same(_try(answer, case, exercise), _try(mistake, case, exercise), exercise.tolerance)
            for case in exercise.cases()
        ):
            return f"\n  It looks like this: {diagnosis}."
    return ""


def _try(function: Callable, case: tuple, exercise: Exercise) -> Any:
    try:
        return call(function, case, exercise.seconds, shown=False)[0]
    except (Exception, SystemExit, TimeIsUpError) as error:
        return type(error).__name__
