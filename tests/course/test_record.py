"""The record of what is solved: its format, old files, broken files, and two notebooks at once."""

import json
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import chapters
import pytest

from mha.course import TOPICS, quiz, record
from mha.course.exercises import progress
from mha.course.exercises.exercise import exercises

NAMES = list(exercises())
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "solved.json"
    monkeypatch.setenv("MHA_PROGRESS", str(path))
    return path


def stored(file):
    return json.loads(file.read_text("utf8"))


def test_the_chapters_are_in_the_order_of_the_book():
    assert [chapters.topic(path) for path in chapters.CHAPTERS] == list(TOPICS)


def test_the_file_is_as_its_description_says(file):
    record.note_solved(NAMES[0])
    record.note_quiz("masking", 4, 5)
    assert not list(file.parent.glob("*.part")) + list(file.parent.glob("*.lock"))
    found, lines = stored(file), record.__doc__.splitlines()
    described = json.loads("\n".join(lines[lines.index("    {") : lines.index("    }") + 1]))
    assert found.keys() == described.keys()
    assert found["version"] == described["version"] == record.VERSION
    assert found["quiz"]["masking"].keys() == described["quiz"]["masking"].keys()
    assert list(found["solved"]) == NAMES[:1]
    times = [at for one in (found, described) for at in one["solved"].values() if at]
    for at in (*times, found["quiz"]["masking"]["first"]):
        assert datetime.fromisoformat(at).utcoffset() == timedelta(0)
    assert set(described["solved"]) <= {*NAMES}
    assert "``quiz-masking-1``" in record.__doc__
    assert 'id="quiz-masking-1"' in quiz.ask("masking")._repr_html_()


def test_the_first_time_counts(file, monkeypatch):
    for at in ("2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00"):
        monkeypatch.setattr(record, "now", lambda at=at: at)
        record.note_solved("masking.check_x")
        record.note_quiz("masking", 3, 5)
    assert stored(file)["solved"] == {"masking.check_x": "2026-01-01T00:00:00+00:00"}
    assert stored(file)["quiz"]["masking"]["first"] == "2026-01-01T00:00:00+00:00"
    record.note_quiz("masking", 2, 5)
    assert stored(file)["quiz"]["masking"] == {"right": 3, "of": 5, "first": "2026-01-01T00:00:00+00:00"}
    record.note_quiz("masking", 5, 5)
    assert stored(file)["quiz"]["masking"] == {"right": 5, "of": 5, "first": "2026-01-02T00:00:00+00:00"}


def test_an_old_file_is_read_and_carried_over(file, capsys):
    """Version 1 had names without times, at first with a chapter's number."""
    old = "ch05." + next(name for name in NAMES if name.startswith("split_and_merge.")).partition(".")[2]
    file.write_text(json.dumps({"solved": [old, NAMES[0]], "mine": 1}), "utf8")
    progress()
    assert capsys.readouterr().out.endswith(f"2 of {len(NAMES)} exercises solved.\n")
    assert stored(file)["solved"] == [old, NAMES[0]], "reading changes nothing"
    record.note_solved("x.y")
    found = stored(file)
    assert set(found) == {"version", "solved", "quiz", "mine"}
    assert found["solved"] == {old: None, NAMES[0]: None, "x.y": found["solved"]["x.y"]}


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"solved": 3}', "\0", '{"solved": {"a": 1}}', '{"solved": [], "quiz": {"a": 5}}', "[" * 10**5],
    ids=range(7),
)
def test_a_broken_file_is_put_aside_and_nothing_is_lost(file, capsys, text):
    taken = file.with_name("solved.json.unreadable")
    taken.write_text("an older one", "utf8")
    file.write_text(text, "utf8")
    progress()
    said = capsys.readouterr().out
    assert "solved.json could not be read. It is kept as solved.json.unreadable-2" in said
    assert said.endswith(f"0 of {len(NAMES)} exercises solved.\n")
    assert file.with_name("solved.json.unreadable-2").read_text("utf8") == text
    assert taken.read_text("utf8") == "an older one"
    record.note_solved(NAMES[0])
    assert list(stored(file)["solved"]) == NAMES[:1]


def test_a_file_that_is_no_text_is_put_aside(file):
    file.write_bytes(b"\xff\xfe\x00")
    assert record.read()["solved"] == {}
    assert file.with_name("solved.json.unreadable").read_bytes() == b"\xff\xfe\x00"


WRITER = """
import sys, types
sys.path.insert(0, sys.argv[1])
mha, course = types.ModuleType("mha"), types.ModuleType("mha.course")
mha.__path__, course.__path__ = [sys.argv[1] + "/mha"], [sys.argv[1] + "/mha/course"]
sys.modules |= {"mha": mha, "mha.course": course}  # without torch: it takes seconds
from mha.course import record
print("ready", flush=True)
sys.stdin.readline()
for n in range(40):
    record.note_solved(f"{sys.argv[2]}.{n}")
"""


def test_two_notebooks_at_once_lose_nothing(file):
    command = [sys.executable, "-c", WRITER, str(ROOT)]
    writers = [
        subprocess.Popen([*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for name in "ab"
    ]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("\n")
        writer.stdin.flush()
    said = [writer.communicate(timeout=100) for writer in writers]
    assert [(writer.returncode, out) for writer, (out, _) in zip(writers, said, strict=True)] == [(0, ""), (0, "")]
    assert set(stored(file)["solved"]) == {f"{name}.{n}" for name in "ab" for n in range(40)}


def test_a_lock_that_was_left_behind_is_broken(file, monkeypatch):
    monkeypatch.setattr(record, "PATIENCE", 0.05)
    file.with_name("solved.json.lock").write_text("")
    record.note_solved("a.b")
    assert list(stored(file)["solved"]) == ["a.b"]
    assert not file.with_name("solved.json.lock").exists()


# ---- a file from somewhere else


MINE = {"version": 2, "solved": {"a.x": "2026-02-01T00:00:00+00:00", "a.y": None}, "quiz": {"m": {"right": 3, "of": 5}}}
OTHERS = {
    "version": 2,
    "solved": {"a.x": "2026-01-01T00:00:00+00:00", "a.y": "2026-03-01T00:00:00+00:00", "b.z": None},
    "quiz": {"m": {"right": 2, "of": 5}, "n": {"right": 1, "of": 4, "first": "2026-01-01T00:00:00+00:00"}},
    "answers": {"n": [[0]]},
}


def test_a_file_from_a_page_is_added(file, tmp_path):
    other = tmp_path / "mha_progress.json"
    file.write_text(json.dumps(MINE), "utf8")
    other.write_text(json.dumps(OTHERS), "utf8")
    assert record.add(other) == (1, 1)
    found = stored(file)
    assert found["solved"] == {**OTHERS["solved"]}, "the earlier time, and a time rather than none"
    assert found["quiz"] == {"m": {"right": 3, "of": 5}, "n": OTHERS["quiz"]["n"]}
    assert found["answers"] == OTHERS["answers"]
    assert record.add(str(other)) == (0, 0), "a second time it brings nothing"
    assert stored(file) == found
    assert json.loads(other.read_text("utf8")) == OTHERS


def test_a_better_result_of_a_quiz_is_taken_and_old_names_are_translated(file, tmp_path, capsys):
    old = "ch05." + next(name for name in NAMES if name.startswith("split_and_merge.")).partition(".")[2]
    other = tmp_path / "other.json"
    record.note_quiz("masking", 3, 5)
    other.write_text(json.dumps({"solved": [old], "quiz": {"masking": {"right": 2, "of": 3}}}), "utf8")
    progress(add=other)
    assert capsys.readouterr().out.startswith("Added what was not here. Exercises: 1. Quizzes: 0.\n")
    assert stored(file)["solved"] == {old.replace("ch05", "split_and_merge"): None}
    assert stored(file)["quiz"]["masking"] == {"right": 2, "of": 3}


@pytest.mark.parametrize("text", ["", "[]", '{"solved": 1}', '{"solved": {"a": 1}}', "\x00"])
def test_what_is_no_record_is_not_added(file, tmp_path, text):
    record.note_solved("a.b")
    before, other = stored(file), tmp_path / "other.json"
    other.write_text(text, "utf8")
    with pytest.raises(ValueError, match=r"other\.json is no record of progress: save one"):
        record.add(other)
    with pytest.raises(FileNotFoundError, match=r"there is no file .*missing\.json: save one"):
        record.add(tmp_path / "missing.json")
    assert stored(file) == before
    assert other.exists()


# ---- a quiz


def rights(questions):
    return ["abcde"[[right for *_, right in question.answers()].index(True)] for question in questions]


def test_the_answers_to_a_quiz_are_judged_and_kept(file, capsys):
    asked = quiz.ask("masking")
    letters = rights(asked.questions)
    asked.answer(", ".join(letters).upper())
    number = len(letters)
    assert capsys.readouterr().out == f"{number} of {number} right.\n"
    letters[1] = "b" if letters[1] == "a" else "a"
    asked.answer("".join(letters))
    told = f"{number - 1} of {number} right. Open these answers and read why: 2{letters[1]}.\n"
    assert capsys.readouterr().out == told
    assert stored(file)["quiz"]["masking"]["right"] == number


def test_letters_that_answer_nothing_are_refused(file, reader):
    asked = quiz.ask("masking")
    with pytest.raises(ValueError, match="letters = 'a b' are 2, but there are"):
        asked.answer("a b")
    with pytest.raises(ValueError, match=r"question 1 has no answer 'x', but a, b"):
        asked.answer("x" * len(asked.questions))
    with pytest.raises(TypeError, match="give one text, a letter for each question"):
        asked.answer(list("abcde"))
    assert not file.exists()
