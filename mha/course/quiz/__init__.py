"""Questions at the end of a chapter: every answer unfolds its reason, in Jupyter, in the page, and without a script.

:Taught in: every chapter.
"""

from pathlib import Path

from mha.course import TOPICS
from mha.course.quiz.page import Question, page, plain
from mha.course.quiz.reader import read


class Quiz:
    """The questions of one chapter, shown as a list in which each answer opens its reason.

    :Taught in: every chapter.
    """

    def __init__(self, chapter: str, questions: tuple[Question, ...]) -> None:
        """Keep the questions; a notebook shows them by itself."""
        self.chapter, self.questions = chapter, questions

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
