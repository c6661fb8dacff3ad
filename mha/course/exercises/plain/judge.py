"""Judge an answer: is it right on every case and, if not, which known mistake does it look like?

A notebook's checker is a :class:`Judge` with torch (``mha.course.exercises.exercise``), a page's is :class:`PageJudge`.
"""

import builtins

from mha import reference
from mha.course.exercises.plain.draw import Draw
from mha.course.exercises.plain.guess import guess
from mha.course.exercises.plain.words import Words

UNSOLVED = "Not solved yet."
FORMS = 14  # how many forms are drawn for a checker; of each, two cases with other numbers in them
CLOSE = 1e-6  # how far two right answers may lie apart, as a share of the largest number


class TimeIsUpError(BaseException):
    """The function did not finish in time. No ``except Exception`` of the reader catches it."""


class SeedSetError(Exception):
    """The function set torch's global seed."""


class Plain:
    """One exercise in plain Python, with the parts of ``mha.course.exercises.Exercise``."""

    mistakes: dict = {}  # noqa: RUF012 - MicroPython has no ClassVar
    next_step = ""
    tolerance = 1e-6
    seconds = 10.0
    by_hand = False
    forbidden: tuple = ()
    legal = None
    whole = False

    def __init__(self, **parts):
        """Keep the parts; what is left out is as above."""
        for name in parts:
            setattr(self, name, parts[name])


class Judge:
    """Say whether an answer to an exercise is right, in words. A subclass knows how to call it and what else to try."""

    words = Words()
    stopped: type = TimeIsUpError

    def judge(self, exercise, answer):
        """Say whether an answer is right and, if not, what it looks like; never raises what the answer raises."""
        cases = exercise.cases()
        for case in cases:
            problem = self._problem(exercise, answer, case)
            if problem == UNSOLVED:
                return False, UNSOLVED
            if problem:
                return False, f"✗ {exercise.name}: {problem}"
        problem = self.later_problem(exercise, answer) or self._rare_problem(exercise, answer)
        if problem:
            return False, f"✗ {exercise.name}: {problem}"
        return True, f"✓ {exercise.name}: right on {len(cases)} cases. {exercise.next_step}".rstrip()

    def call(self, function, case, seconds, shown=True):
        """Call a function with a copy of a case: its result, and what became of the copy."""
        given = copied(case)
        say = builtins.print
        if not shown:
            builtins.print = _silent
        try:
            return function(*given), given
        finally:
            builtins.print = say

    def names(self, answer, case):
        """List the names that an answer has for what it is given, or nothing where they are not known."""
        return []

    def later_problem(self, exercise, answer):
        """Say what is wrong with an answer whose numbers are right on the cases, or nothing."""
        return ""

    def drawn(self, exercise):
        """Draw more cases, any that the text of the exercise allows."""
        if not exercise.legal:
            return []
        return [exercise.legal(Draw(form, numbers)) for form in range(FORMS) for numbers in (0, 1)]

    def differs(self, result, right, tolerance=CLOSE):
        """Say how two answers differ, or nothing: numbers may differ by a share of the largest one."""
        share = tolerance * min(self.words.largest_number(right), 1.0) + 1e-12
        return self.words.compare(result, right, share)

    def show_case(self, answer, case):
        """Write what an answer was given in one short line."""
        return self.words.show_case(self.names(answer, case), case)

    def _problem(self, exercise, answer, case):
        """Say what is wrong with an answer on one case, or nothing."""
        right = self.call(exercise.solution, case, 60.0, shown=False)[0]
        try:
            result, given = self.call(answer, case, exercise.seconds)
        except TimeIsUpError:
            tried = self.show_case(answer, case)
            return f"{tried} did not finish within {exercise.seconds:g} seconds. Is there a loop that never ends?"
        except SeedSetError as error:
            return (
                f"your function is judged by its result, but {error}. Take a generator of your own: "
                "torch.randn(shape, generator=torch.Generator().manual_seed(0))."
            )
        except (Exception, SystemExit) as error:
            return f"{self.show_case(answer, case)} raised {type(error).__name__}: {error}"
        if result is None or result is ...:
            return UNSOLVED
        if not self.words.same(given, case, 0.0):
            return "your function changes its arguments. Work on a copy."
        found = self.words.compare(result, right, exercise.tolerance)
        if not found and exercise.whole and isinstance(result, float):
            return f"a whole number was expected, your function returned {result}: / makes a float, // does not"
        if not found:
            return ""
        return f"{found}\n  input: {self.show_case(answer, case)}{self._diagnose(exercise, answer)}"

    def _diagnose(self, exercise, answer):
        """Name the known mistake that gives what this answer gives, on every case, or guess what went wrong."""
        if not exercise.mistakes:
            return ""
        cases = exercise.cases()
        results = [self._try(answer, case, exercise) for case in cases]
        for diagnosis, mistake in exercise.mistakes.items():
            if all(
                self.words.same(results[n], self._try(mistake, cases[n], exercise), exercise.tolerance)
                for n in range(len(cases))
            ):
                return f"\n  It looks like this: {diagnosis}."
        try:
            guessed = guess(self, exercise, answer, results)
        except Exception:  # a result of any kind, that nobody can compare
            guessed = ""
        return f"\n  It looks like this: {guessed}." if guessed else ""

    def _try(self, function, case, exercise):
        try:
            return self.call(function, case, exercise.seconds, shown=False)[0]
        except (Exception, SystemExit, TimeIsUpError) as error:
            return type(error).__name__

    def _rare_problem(self, exercise, answer):
        """Try an answer on drawn inputs; say what is wrong with it, or nothing."""
        for case in self.drawn(exercise):
            right = self.call(exercise.solution, case, 60.0, shown=False)[0]
            try:
                result = self.call(answer, case, exercise.seconds, shown=False)[0]
            except TimeIsUpError:
                found = f"did not finish within {exercise.seconds:g} seconds"
            except (Exception, SystemExit) as error:
                found = f"raised {type(error).__name__}: {error}"
            else:
                found = self.differs(result, right, exercise.tolerance)
            if found:
                tried = self.show_case(answer, case)
                return f"right on the first cases, but not on every input: {found}\n  input: {tried}"
        return ""


def copied(value):
    """Copy a value of lists and tuples."""
    if isinstance(value, list):
        return [copied(x) for x in value]
    return tuple([copied(x) for x in value]) if isinstance(value, tuple) else value


def _silent(*_, **__):
    pass


# ---- in the page


class PageJudge(Judge):
    """Judge the function in a piece of source text, where functions cannot be looked into."""

    def __init__(self, source, function, space):
        """Keep what is judged.

        :param source: the text, as the reader wrote it.
        :param function: the name of the function in it that is judged.
        :param space: the names that were defined when the text was run, and what they mean.
        """
        self.source, self.function, self.space = source, function, space

    def names(self, answer, case):
        """Read the names of the arguments in the first line of the function."""
        begin = self.source.find(f"def {self.function}(")
        inside = self.source[begin + len(f"def {self.function}(") :] if begin >= 0 else ")"
        parts = inside[: inside.find(")")].split(",")
        return [name for name in [part.split(":")[0].split("=")[0].strip() for part in parts] if name]

    def later_problem(self, exercise, answer):
        """Say which rule the text breaks, or nothing: the names in it are all that can be looked at."""
        words = names_in(self.source)
        ours = [getattr(reference, name) for name in dir(reference) if name[:1] != "_" and name != "math"]
        for name in words if exercise.by_hand else []:
            value = self.space.get(name)
            if name == "mha" or value is reference or any(value is one for one in ours):
                said = f"your function uses `{name}` of the package. Write that part yourself."
                return f"the numbers are right, but {said}"
        for name in words:
            if name in exercise.forbidden:
                return f"the numbers are right, but your function uses `{name}`, which does the exercise for you."
        return ""


def names_in(source):
    """List the names in a text, without its comments and without the lines that import at its left margin."""
    found = []
    for line in source.split("\n"):
        if line.startswith("import ") or line.startswith("from "):
            continue
        name = ""
        for sign in line.split("#")[0] + " ":
            if sign == "_" or sign.isalpha() or (name and sign.isdigit()):
                name += sign
            else:
                found += [name] if name else []
                name = ""
    return found


def judge_text(exercise, source, function, space):
    """Judge the function in a text that was run: is it right, and what is there to say?

    :param space: as for :class:`PageJudge`.
    """
    answer = space.get(function)
    if not callable(answer):
        return False, f"✗ {exercise.name}: there is no function `{function}`. Keep the name that the stub has."
    return PageJudge(source, function, space).judge(exercise, answer)
