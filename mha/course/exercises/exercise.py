"""Compare an answer with the solution, and a wrong answer with the mistakes people make."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any

from mha.course import TOPICS, record
from mha.course.exercises.compare import compare, same, show_case
from mha.course.exercises.guess import guess
from mha.course.exercises.legal import Draw, find_rare_bug
from mha.course.exercises.rules import broken_rule, find_later_bugs
from mha.course.exercises.sandbox import SeedSetError, TimeIsUpError, call

PAGE = 72  # columns of a printed message that a small laptop shows without scrolling


def exercises() -> dict[str, Any]:
    """List all exercises by chapter and name: {"split_and_merge.check_split": …}.

    :Taught in: the page "How to use this course".
    """
    found: dict[str, Any] = {}
    for chapter in TOPICS:
        values = vars(importlib.import_module(f"mha.course.exercises.{chapter}")).items()
        found |= {f"{chapter}.{name}": value for name, value in values if name.startswith("check_")}
    return found


def solved(exercise: Any, answer: Callable) -> None:
    """Note an exercise as solved, if the answer is the reader's: its name begins with ``my_``, as in the stubs."""
    name = next((name for name, other in exercises().items() if other is exercise), None)
    given = getattr(answer, "__name__", "")
    if name is None or not given.startswith("my_"):
        if name and not given.startswith(("solved", "_")):
            print(f"  (Not noted as solved: {given or 'your function'} is no name of a stub; they begin with my_.)")
        return
    record.note_solved(name, _today)


def _today(name: str) -> str:
    """Find an exercise that was noted when its file was named after a chapter's number: "ch05.check_split"."""
    return next((new for new in exercises() if new.partition(".")[2] == name.partition(".")[2]), name)


def progress() -> None:
    """Print a table: for each chapter its exercises, solved (●) or not (○), the quiz, and which exercise comes next.

    Solved are those that a checker accepted from a function whose name begins with ``my_``. Of a quiz it is the best
    result of ``quiz.ask(…).answer(…)``. Both are kept in ``.mha_progress.json`` in your home folder, or in the file
    that the variable ``MHA_PROGRESS`` names; ``mha.course.record`` describes it.

    :Taught in: the page "How to use this course".
    """
    every, found = exercises(), record.read()
    done = {_today(name) for name in found["solved"]}
    print(f"{'chapter':18}  {'exercises':9}  {'quiz':6}  next exercise")
    for chapter in TOPICS:
        names = [name for name in every if name.partition(".")[0] == chapter]
        marks = "".join("●" if name in done else "○" for name in names)
        following = next((every[name].name for name in names if name not in done), "")
        result = found["quiz"].get(chapter)
        quiz = f"{result['right']} of {result['of']}" if result else "–"
        print(f"{chapter.replace('_', ' '):18}  {marks:9}  {quiz:6}  {following or 'all solved'}")
    print(f"{len(done & set(every))} of {len(every)} exercises solved.")


UNSOLVED = "Not solved yet."


@dataclass(frozen=True)
class Exercise:
    """One exercise: what is right, on which inputs it is tried, and which wrong answers are known.

    ``cases`` makes the argument lists, smallest first. ``mistakes`` maps a diagnosis ("softmax over queries") to a
    function that makes exactly this mistake; each must differ from the solution on some case. ``seconds`` is the time
    an answer may take for one case.

    ``legal`` draws one more input, any that the text allows: other sizes, all sizes unequal, very large and very small
    numbers, empty rows. An answer that is right on the cases is tried on two dozen of them.

    There may be three rules besides the numbers. ``by_hand``: nothing of this package may be used. ``forbidden`` lists
    names of functions that would do the exercise. ``room`` says how many
    numbers the largest tensor may hold that an answer makes of a case, and ``too_large`` why it would hold more.
    ``gradients`` says that the text asks for them: an answer through which none flow is wrong, where it is right
    otherwise. Gradients that do flow must be right in any case. ``whole`` says that the text asks for a whole number.
    """

    name: str
    solution: Callable
    cases: Callable[[], list[tuple]]
    mistakes: dict[str, Callable] = field(default_factory=dict)
    next_step: str = ""
    tolerance: float = 1e-6
    seconds: float = 10.0
    by_hand: bool = False
    forbidden: tuple[str, ...] = ()
    room: Callable[..., int] | None = None
    too_large: str = ""
    legal: Callable[[Draw], tuple] | None = None
    gradients: bool = False
    whole: bool = False

    def __call__(self, answer: Callable) -> None:
        """Check an answer, print what was found, and note it if solved. (:func:`judge` says it as a value.)"""
        right, message = judge(self, answer)
        print(folded(message))
        if right:
            solved(self, answer)


def folded(message: str) -> str:
    """Fold lines that are wider than the page; the rest of a line is indented."""
    folded = []
    for line in filter(None, message.splitlines()):
        deeper = " " * (len(line) - len(line.lstrip()) + 2)
        folded += wrap(line, PAGE, subsequent_indent=deeper, break_long_words=False, break_on_hyphens=False)
    return "\n".join(folded)


def judge(exercise: Exercise, answer: Callable) -> tuple[bool, str]:
    """Say whether an answer is right and, if not, what it looks like; never raises what the answer raises."""
    for case in exercise.cases():
        problem = _problem(exercise, answer, case)
        if problem == UNSOLVED:
            return False, UNSOLVED
        if problem:
            return False, f"✗ {exercise.name}: {problem}"
    problem = broken_rule(exercise, answer) or find_later_bugs(exercise, answer) or find_rare_bug(exercise, answer)
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
        return (
            f"your function is judged by its result, but {error}. Take a generator of your own: "
            "torch.randn(shape, generator=torch.Generator().manual_seed(0))."
        )
    except (Exception, SystemExit) as error:
        return f"{show_case(answer, case)} raised {type(error).__name__}: {error}"
    if result is None or result is ...:
        return UNSOLVED
    if not same(given, case, 0.0):
        return "your function changes its arguments. Work on a copy."
    found = compare(result, right, exercise.tolerance)
    if not found and exercise.whole and isinstance(result, float):
        return f"a whole number was expected, your function returned {result}: / makes a float, // does not"
    return f"{found}\n  input: {show_case(answer, case)}{_diagnose(exercise, answer)}" if found else ""


def _diagnose(exercise: Exercise, answer: Callable) -> str:
    """Name the known mistake that gives what this answer gives, on every case, or guess what went wrong."""
    if not exercise.mistakes:
        return ""
    results = [_try(answer, case, exercise) for case in exercise.cases()]
    for diagnosis, mistake in exercise.mistakes.items():
        tried = zip(results, exercise.cases(), strict=True)
        if all(same(result, _try(mistake, case, exercise), exercise.tolerance) for result, case in tried):
            return f"\n  It looks like this: {diagnosis}."
    try:
        guessed = guess(exercise, answer, results)
    except Exception:  # a result of any kind, that nobody can compare
        guessed = ""
    return f"\n  It looks like this: {guessed}." if guessed else ""


def _try(function: Callable, case: tuple, exercise: Exercise) -> Any:
    try:
        return call(function, case, exercise.seconds, shown=False)[0]
    except (Exception, SystemExit, TimeIsUpError) as error:
        return type(error).__name__
