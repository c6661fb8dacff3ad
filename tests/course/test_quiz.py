"""Every chapter asks at least five questions, every answer has its reason, and the page shows them safely.

A mistake in a file of questions is named with its file and its place.
"""

import json
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from untrusted import cleaned

from mha.course import TOPICS, quiz
from mha.course.quiz.page import Question, page, plain
from mha.course.quiz.reader import read

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = {path.stem[3:]: path for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))}
every_chapter = pytest.mark.parametrize("chapter", ["start", *TOPICS])

SMALL = (
    Question("Is `a<b` & c?", ("yes", "Because `a` is small."), (("no", "It is."), ("<script>x</script>", "Never."))),
)


def questions(chapter):
    return quiz.ask(chapter).questions


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


@every_chapter
def test_a_program_that_takes_the_style_away_shows_numbers_letters_and_what_to_do(chapter):
    """They are text, and only a style hides it."""
    left = cleaned(page(chapter, questions(chapter)))
    assert next(left.stripped_strings) == "Run this cell to answer."
    for n, (section, question) in enumerate(zip(left.find_all("section"), questions(chapter), strict=True), 1):
        assert section.p.text == f"{n}. {question.text.replace('`', '')}"
        texts = [
            f"{letter}) {text.replace('`', '')}"
            for letter, (text, _, _) in zip("abcde", question.answers(), strict=False)
        ]
        assert [answer.summary.text for answer in section.find_all("details")] == texts
    assert ".mha-quiz .bare{display:none}" in page(chapter, questions(chapter))


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


# ---- the files


def test_every_file_of_questions_belongs_to_a_chapter():
    assert {path.stem for path in Path(quiz.__file__).parent.glob("*.yml")} == {"start", *TOPICS}


WRITTEN = """
- question: Is `a<b` & c?
  right: {answer: yes, reason: Because `a` is small.}
  wrong:
    - {answer: no, reason: It is.}
    - answer: <script>x</script>
      reason: >-
        Never,
        never.
- question: >-
    How many?
  right: {answer: 10, reason: "Two: five, twice."}
  wrong: [{answer: null, reason: "#1"}]
"""


def written(folder, text):
    file = folder / "some.yml"
    file.write_text(text, encoding="utf-8")
    return file


def test_all_that_is_read_is_text(tmp_path):
    assert read(written(tmp_path, WRITTEN)) == (
        Question(
            "Is `a<b` & c?",
            ("yes", "Because `a` is small."),
            (("no", "It is."), ("<script>x</script>", "Never, never.")),
        ),
        Question("How many?", ("10", "Two: five, twice."), (("null", "#1"),)),
    )


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (WRITTEN, "", r"some\.yml, question 1 is missing"),
        (WRITTEN, "question: Which?", r"some\.yml, question 1 is missing"),
        (WRITTEN, "- Which?", r"some\.yml, question 1 is not written as fields: it must have question, right, wrong"),
        ("question: >-", "text: >-", r"some\.yml, question 2: 'question' is missing: it has text, right, wrong"),
        ("  right: {answer: 10", "  rigth: {answer: 10", r"some\.yml, question 2: 'right' is missing"),
        ("  wrong: [", "  level: 3\n  wrong: [", r"some\.yml, question 2: 'level' is unknown"),
        ("{answer: yes, ", "{", r"some\.yml, question 1, right answer: 'answer' is missing"),
        (", reason: It is.", "", r"some\.yml, question 1, wrong answer 1: 'reason' is missing"),
        ("answer: no", "answer: no, right: 1", r"some\.yml, question 1, wrong answer 1: 'right' is unknown"),
        ("{answer: 10, ", "{answer: 10, reason: x}\n  right: {", r"(?s)some\.yml: 'right' stands twice.*line 10"),
        ('{answer: 10, reason: "Two: five, twice."}', "10", r"some\.yml, question 2, right answer is not written as"),
        (
            "right: {answer: 10,",
            "right:\n  - {answer: 9, reason: x}\n  - {answer: 10,",
            r"question 2, right answer is not written",
        ),
        ('[{answer: null, reason: "#1"}]', "[]", r"some\.yml, question 2, wrong answer 1 is missing"),
        ('[{answer: null, reason: "#1"}]', "none", r"some\.yml, question 2, wrong answer 1 is missing"),
        ("answer: null", "answer: ", r"some\.yml, question 2, wrong answer 1: 'answer' is empty, or no text"),
        ("answer: null", "answer: [1]", r"some\.yml, question 2, wrong answer 1: 'answer' is empty, or no text"),
        ("reason: >-", "reason: >", r"some\.yml, question 1, wrong answer 2: 'reason' is more than one paragraph"),
        ("reason: >-", "reason: |-", r"some\.yml, question 1, wrong answer 2: 'reason' is more than one paragraph"),
        ("- question: >-", "  question: >-", r"(?s)some\.yml: 'question' stands twice.*line 2"),
        ('"Two: five, twice."', "Two: five", r"(?s)some\.yml: .*line 12"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_its_file_and_its_place(tmp_path, old, new, says):
    assert WRITTEN.count(old) == 1
    with pytest.raises(ValueError, match=says):
        read(written(tmp_path, WRITTEN.replace(old, new)))
