"""Write a quiz as HTML without a script, and as plain text.

A program that does not trust a notebook yet takes the style away. Numbers, letters and a line that says what to do are
text then; the style hides this text (class ``bare``) and draws them itself.
"""

import hashlib
import html
import re
import string
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


STYLE = (
    ".mha-quiz{counter-reset:q;max-width:46em}.mha-quiz .bare{display:none}"
    ".mha-quiz section{counter-increment:q;counter-reset:a;margin:0 0 1.4em}"
    '.mha-quiz section>p{margin:0 0 .4em}.mha-quiz section>p::before{content:counter(q) ". ";font-weight:600}'
    ".mha-quiz details{counter-increment:a;margin:.15em 0;padding:0 .7em 0 2.5em}"
    ".mha-quiz summary{cursor:pointer;padding:.3em 0;list-style:none;position:relative}"
    ".mha-quiz summary::-webkit-details-marker{display:none}"
    ".mha-quiz summary::before{content:counter(a,lower-alpha);position:absolute;left:-2.4em;width:1.7em;height:1.7em;"
    "line-height:1.6em;text-align:center;border:1px solid;border-radius:50%}"
    ".mha-quiz summary:hover::before{background:color-mix(in srgb,currentColor 15%,transparent)}"
    ".mha-quiz details p{margin:.1em 0 .6em}.mha-quiz details[open]>summary{font-weight:600}"
    '.mha-quiz details[open]>summary::before{content:"✗";color:#fff;background:#c2410c;border-color:#c2410c}'
    '.mha-quiz details.right[open]>summary::before{content:"✓";background:#15803d;border-color:#15803d}'
)


BARE = '<p class="bare"><b>Run this cell to answer.</b></p>'


def page(chapter: str, questions: tuple[Question, ...]) -> str:
    """Write the questions so that choosing an answer unfolds its reason; it works by keyboard and on paper."""
    body = "".join(_section(f"quiz-{chapter}-{n}", n, question) for n, question in enumerate(questions, 1))
    return f'<div class="mha-quiz"><style>{STYLE}</style>{BARE}{body}</div>'


def _section(name: str, n: int, question: Question) -> str:
    lettered = zip(string.ascii_lowercase, question.answers(), strict=False)
    answers = "".join(_answer(f"{letter})", *answer) for letter, answer in lettered)
    text = f"{_bare(f'{n}.')}{_marked(question.text)}"
    return f'<section aria-labelledby="{name}"><p id="{name}">{text}</p>{answers}</section>'


def _answer(letter: str, text: str, reason: str, right: bool) -> str:
    verdict = "✓ Right." if right else "✗ No."
    kind = ' class="right"' if right else ""
    shown = f"<summary>{_bare(letter)}{_marked(text)}</summary>"
    return f"<details{kind}>{shown}<p><b>{verdict}</b> {_marked(reason)}</p></details>"


def _bare(sign: str) -> str:
    return f'<b class="bare">{sign} </b>'


def _marked(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))


def plain(questions: tuple[Question, ...]) -> str:
    """Write the questions as text, and the right letters in a last line."""
    lines, letters = [], []
    for n, question in enumerate(questions, 1):
        lines.append(f"{n}. {question.text}")
        for letter, (text, _, right) in zip(string.ascii_lowercase, question.answers(), strict=False):
            lines.append(f"   {letter}) {text}")
            letters += [f"{n}{letter}"] if right else []
    return "\n".join([*lines, f"Right: {', '.join(letters)}"])
