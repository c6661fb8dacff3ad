"""Compare an answer with the solution, and a wrong answer with the mistakes people make."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import wrap
from typing import Any

from mha.course import TOPICS, record
from mha.course.exercises.compare import WORDS, argument_names
from mha.course.exercises.legal import Draw, drawn_cases
from mha.course.exercises.plain.judge import Judge
from mha.course.exercises.rules import broken_rule, find_later_bugs
from mha.course.exercises.sandbox import call

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


def progress(add: str | Path | None = None) -> None:
    """Print a table: for each chapter its exercises, solved (●) or not (○), the quiz, and which exercise comes next.

    Solved are those that a checker accepted from a function whose name begins with ``my_``. Of a quiz it is the best
    result of ``quiz.ask(…).answer(…)``. Both are kept in ``.mha_progress.json`` in your home folder, or in the file
    that the variable ``MHA_PROGRESS`` names; ``mha.course.record`` describes it.

    :param add: a file that the course's page has saved, "mha_progress.json": its results are added first.
    :Raises: FileNotFoundError where there is no such file; ValueError where it is no record of progress.
    :Taught in: the page "How to use this course".
    """
    if add is not None:
        solved, quizzes = record.add(add, _today)
        print(f"Added what was not here. Exercises: {solved}. Quizzes: {quizzes}.")
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


class _Judge(Judge):
    """Judge with torch: a function cannot hurt, tensors are compared, and rules and gradients count."""

    words = WORDS

    def call(self, function: Callable, case: tuple, seconds: float, shown: bool = True) -> tuple[Any, tuple]:
        return call(function, case, seconds, shown=shown)

    def names(self, answer: Callable, case: tuple) -> list[str]:
        return argument_names(answer, case)

    def later_problem(self, exercise: Exercise, answer: Callable) -> str:
        return broken_rule(exercise, answer) or find_later_bugs(exercise, answer)

    def drawn(self, exercise: Exercise) -> list[tuple]:
        return drawn_cases(exercise.legal) if exercise.legal else []


_JUDGE = _Judge()
differs = _JUDGE.differs


def judge(exercise: Exercise, answer: Callable) -> tuple[bool, str]:
    """Say whether an answer is right and, if not, what it looks like; never raises what the answer raises."""
    return _JUDGE.judge(exercise, answer)
