"""Every chapter asks at least five questions, every answer has its reason, and the page shows them safely."""

import importlib
import json
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from mha.course import TOPICS, quiz
from mha.course.quiz.page import Question, page, plain

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = {path.stem[3:]: path for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))}
every_chapter = pytest.mark.parametrize("chapter", ["start", *TOPICS])

SMALL = (
    Question("Is `a<b` & c?", ("yes", "Because `a` is small."), (("no", "It is."), ("<script>x</script>", "Never."))),
)


def questions(chapter):
    return importlib.import_module(f"mha.course.quiz.{chapter}").QUESTIONS


def test_every_notebook_asks_its_questions():
    for number, path in NOTEBOOKS.items():
        cells = json.loads(path.read_text("utf8"))["cells"]
        shown = [cell for cell in cells if "".join(cell["source"]) == f'quiz.ask("{number}")']
        assert len(shown) == 1, path.name
        stored = "".join(shown[0]["outputs"][0]["data"]["text/html"])
        assert stored == quiz.ask(number)._repr_html_(), f"make notebooks NB=notebooks/{path.name}"


@every_chapter
def test_there_are_five_questions_and_every_answer_has_a_reason(chapter):
    assert len(questions(chapter)) >= 5
    for question in questions(chapter):
        assert question.text.endswith(("?", ":", ".")), question.text
        assert 2 <= len(question.wrong) <= 4, question.text
        for text, reason, _ in question.answers():
            assert text, question.text
            assert len(reason) >= 25, f"{question.text}: {text}"
            assert reason.endswith((".", "?", "!")), reason
        assert len({text for text, _, _ in question.answers()}) == 1 + len(question.wrong)


@every_chapter
def test_neither_length_nor_place_gives_the_answer_away(chapter):
    longest = [max(q.answers(), key=lambda answer: len(answer[0]))[2] for q in questions(chapter)]
    assert sum(longest) <= len(longest) / 2, "the right answer is too often the longest"
    places = [[right for _, _, right in q.answers()].index(True) for q in questions(chapter)]
    assert len(set(places)) > 1


@every_chapter
def test_it_can_be_read_by_everyone(chapter):
    soup = BeautifulSoup(page(chapter, questions(chapter)), "html.parser")
    assert not soup.find_all(["script", "img", "link", "iframe"])
    assert len(soup.find_all("section")) == len(questions(chapter))
    for section in soup.find_all("section"):
        assert section.find(id=section["aria-labelledby"]).text
        assert len(section.find_all("details", class_="right")) == 1
        for answer in section.find_all("details"):
            assert answer.summary.text
            assert answer.p.b.text == ("✓ Right." if "right" in answer.get("class", []) else "✗ No.")


def test_what_a_question_says_is_text_and_never_markup():
    written = page("start", SMALL)
    assert "<script>" not in written
    assert "<code>a&lt;b</code> &amp; c?" in written


def test_the_plain_text_has_the_answers_in_its_last_line():
    *_, last = plain(SMALL).splitlines()
    assert last in {"Right: 1a", "Right: 1b", "Right: 1c"}
    letter = last[-1]
    assert f"   {letter}) yes" in plain(SMALL)
    assert repr(quiz.Quiz("start", SMALL)) == plain(SMALL)


def test_a_quiz_that_does_not_exist_is_refused_with_the_way_out():
    with pytest.raises(ValueError, match=r"there is no quiz '1': give one of why_attention"):
        quiz.ask("1")
