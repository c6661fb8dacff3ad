"""A question with its answers, each with the reason why it is right or wrong."""

import hashlib
from typing import NamedTuple


class Question(NamedTuple):
    """One question, one right answer, and wrong answers; an answer is a pair of a text and its reason.

    Texts are plain, with `code` between backticks.
    """

    text: str
    right: tuple[str, str]
    wrong: tuple[tuple[str, str], ...]

    def answers(self) -> list[tuple[str, str, bool]]:
        """List all answers as (text, reason, is it right) in an order that looks random and never changes."""
        every = [(*self.right, True), *((*answer, False) for answer in self.wrong)]
        return sorted(every, key=lambda answer: hashlib.sha256((self.text + answer[0]).encode()).digest())
