"""Questions at the end of a chapter: every answer unfolds its reason, in Jupyter, in the page, and without a script.

:Taught in: every chapter.
"""

import re
import string
from pathlib import Path

from mha.course import TOPICS, record
from mha.course.quiz.page import Question, page, plain
from mha.course.quiz.reader import read


class Quiz:
    """The questions of one chapter, shown as a list in which each answer opens its reason.

    :Taught in: every chapter.
    """

    def __init__(self, chapter: str, questions: tuple[Question, ...]) -> None:
        """Keep the questions; a notebook shows them by itself."""
        self.chapter, self.questions = chapter, questions

    def answer(self, letters: str) -> None:
        """Say how many answers are right, and keep the result for ``mha.course.exercises.progress()``.

        :param letters: one for each question, in their order: "b a c a d"; what is between them does not count.
        :Raises: ValueError for another number of letters than questions, or a letter that a question does not have.
        """
        if not isinstance(letters, str):
            raise TypeError(f"letters = {letters!r}: give one text, a letter for each question, such as 'b a c a d'")
        given, number = re.findall(r"[^\W\d_]", letters.lower()), len(self.questions)
        if len(given) != number:
            raise ValueError(f"letters = {letters!r} are {len(given)}, but there are {number} questions: one for each")
        rights = []
        for n, (letter, question) in enumerate(zip(given, self.questions, strict=True), 1):
            known = dict(zip(string.ascii_lowercase, (right for _, _, right in question.answers()), strict=False))
            if letter not in known:
                there = ", ".join(known)
                raise ValueError(f"letters = {letters!r}: question {n} has no answer {letter!r}, but {there}")
            rights.append(known[letter])
        wrong = ", ".join(f"{n}{given[n - 1]}" for n, right in enumerate(rights, 1) if not right)
        print(f"{sum(rights)} of {number} right." + (f" Open these answers and read why: {wrong}." if wrong else ""))
        record.note_quiz(self.chapter, sum(rights), number)

    def _repr_html_(self) -> str:
        return page(self.chapter, self.questions)

    def __repr__(self) -> str:
        return plain(self.questions)


def ask(chapter: str) -> Quiz:
    """Show the quiz of a chapter, given by its topic: ``ask("masking")``.

    :Raises: ValueError for a chapter that has no quiz.
    :Taught in: every chapter.
    """
    file = Path(__file__).with_name(f"{chapter}.yml")
    if not file.is_file():
        raise ValueError(f"there is no quiz {chapter!r}: give one of {', '.join(TOPICS)}")
    return Quiz(chapter, read(file))
