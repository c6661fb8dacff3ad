"""Read the questions of a chapter from its YAML file, and refuse a file in which something is missing.

A file is a list. Of each question it says the text, the one right answer, and the wrong ones::

    - question: How many heads has a layer of one head?
      right:
        answer: one
        reason: So its name says.
      wrong:
        - answer: none
          reason: >-
            What is too long for its line, or what YAML would read as something else, stands in such a block or in
            quotes: a colon with a space ends a name, and a # behind a space starts a comment.

All that is read is text, ``no`` and ``10`` too, in quotes or without. What stands between backticks is shown as code.

:Taught in: every chapter.
"""

from pathlib import Path
from typing import Any

import yaml

from mha.course.quiz.page import Question


class _Texts(yaml.BaseLoader):
    """YAML whose values are texts, lists and fields; the base would let the second of two equal names win unseen."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        found = super().construct_mapping(node, deep)
        names = [name.value for name, _ in node.value]
        if twice := [name for name in found if names.count(name) > 1]:
            raise yaml.MarkedYAMLError(problem=f"{twice[0]!r} stands twice", problem_mark=node.start_mark)
        return found


def read(file: Path) -> tuple[Question, ...]:
    """Read all questions of a file.

    :Raises: ValueError for a file that is no YAML, and for a question that lacks something or has something unknown; it
        names the file, the question and what is wrong.
    :Taught in: every chapter.
    """
    try:
        found = yaml.load(file.read_text("utf8"), _Texts)
    except yaml.YAMLError as error:
        raise ValueError(f"{file.name}: {error}") from None
    return tuple(_question(one, where) for where, one in _numbered(found, f"{file.name}, question"))


def _question(found: Any, where: str) -> Question:
    text, right, wrong = _fields(found, ("question", "right", "wrong"), where)
    answers = (_answer(one, place) for place, one in _numbered(wrong, f"{where}, wrong answer"))
    return Question(_text(text, "question", where), _answer(right, f"{where}, right answer"), tuple(answers))


def _answer(found: Any, where: str) -> tuple[str, str]:
    text, reason = _fields(found, ("answer", "reason"), where)
    return _text(text, "answer", where), _text(reason, "reason", where)


def _numbered(found: Any, what: str) -> list[tuple[str, Any]]:
    if not isinstance(found, list) or not found:
        raise ValueError(f"{what} 1 is missing: they are a list, and each begins with a hyphen")
    return [(f"{what} {n}", one) for n, one in enumerate(found, 1)]


def _fields(found: Any, names: tuple[str, ...], where: str) -> list:
    if not isinstance(found, dict):
        raise ValueError(f"{where} is not written as fields: it must have {', '.join(names)}")
    if unlike := [*(name for name in names if name not in found), *(name for name in found if name not in names)]:
        problem = "is missing" if unlike[0] in names else "is unknown"
        raise ValueError(
            f"{where}: {unlike[0]!r} {problem}: it has {', '.join(found)}, and must have {', '.join(names)}"
        )
    return [found[name] for name in names]


def _text(found: Any, name: str, where: str) -> str:
    if not isinstance(found, str) or not found.strip():
        raise ValueError(f"{where}: {name!r} is empty, or no text")
    if found != found.strip() or "\n" in found:
        raise ValueError(f"{where}: {name!r} is more than one paragraph, or ends with a line break: begin it with >-")
    return found
