"""The record of what a reader has solved: a small file, the same for all notebooks.

It is ``.mha_progress.json`` in the home folder, or the file that the variable ``MHA_PROGRESS`` names: JSON in UTF-8 ::

    {
     "version": 2,
     "solved": {"masking.check_causal": "2026-05-01T18:30:00+00:00", "split_and_merge.check_split": null},
     "quiz": {"masking": {"right": 4, "of": 6, "first": "2026-05-01T18:45:00+00:00"}}
    }

- ``version``: of this format. Files of version 1, a list of names under ``solved``, are read and carried over.
- ``solved``: exercises by name, each with the time at which its checker first accepted the reader's function (ISO 8601,
  UTC), or null where version 1 did not keep it. A name is the chapter's topic, a dot, and the checker that the exercise
  calls.
- ``quiz``: chapters by topic, each with the best result so far, the number of questions, and when it was first reached.
- Other keys are kept as they are.

A page has no such file. It keeps this same JSON under one key of ``localStorage``, ``mha-progress``
(``book/_static/progress.js``). One more key, ``answers``, holds which answers of a quiz were opened, question by
question in their order. The names are the same: the exercise is the one whose stub calls ``masking.check_causal``; the
questions of the quiz ``masking`` have the ids ``quiz-masking-1``, ``quiz-masking-2`` and so on. A page saves its record
as a file, and :func:`add` takes such a file in.

A file is written whole or not at all. Two notebooks may write at the same time: each adds to what is there. A file that
cannot be read is put aside under another name and never removed.

:Taught in: the page "How to use this course".
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

VERSION = 2
PATIENCE = 5.0  # seconds: a lock that is older was left by a program that ended


def file() -> Path:
    """Name the file of the record."""
    return Path(os.environ.get("MHA_PROGRESS") or Path.home() / ".mha_progress.json")


def now() -> str:
    """Say the time as the record writes it."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def read() -> dict[str, Any]:
    """Read the record; an empty one where there is none.

    A file that cannot be read is put aside, and a line says where.
    """
    try:
        return _checked(json.loads(file().read_text(encoding="utf-8")))
    except FileNotFoundError:
        pass
    except (ValueError, RecursionError):
        if aside := _put_aside():
            print(f"  ({file().name} could not be read. It is kept as {aside.name}, and a new record begins.)")
    return {"version": VERSION, "solved": {}, "quiz": {}}


def _checked(found: Any) -> dict[str, Any]:
    solved, quiz = (found.get("solved"), found.get("quiz", {})) if isinstance(found, dict) else (None, None)
    if isinstance(solved, list) and all(isinstance(name, str) for name in solved):  # version 1
        solved = dict.fromkeys(solved)
    whole = isinstance(solved, dict) and all(at is None or isinstance(at, str) for at in solved.values())
    if not whole or not isinstance(quiz, dict) or not all(map(_is_result, quiz.values())):
        raise ValueError("this is no record")
    return {**found, "version": VERSION, "solved": solved, "quiz": quiz}


def _is_result(found: Any) -> bool:
    return isinstance(found, dict) and all(isinstance(found.get(key), int) for key in ("right", "of"))


def _put_aside() -> Path | None:
    """Rename the file; names that are taken stay. Nothing where another notebook did it first."""
    for number in range(1, 1000):
        aside = file().with_name(f"{file().name}.unreadable{f'-{number}' if number > 1 else ''}")
        if not aside.exists():
            with contextlib.suppress(FileNotFoundError):
                return file().rename(aside)
            return None
    return None


def change(add: Callable[[dict[str, Any]], None]) -> None:
    """Read the record, let ``add`` change it, and write it. Nobody else writes in between.

    What goes wrong is said in one line and raises nothing: the reader's work is not in this file.

    :param add: changes the record in place.
    """
    try:
        with _alone():
            add(found := read())
            part = file().with_name(f"{file().name}.{os.getpid()}.part")
            part.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            os.replace(part, file())
    except OSError as error:
        print(f"  (It could not be noted in {file().name}: {error.strerror}. Nothing else is affected.)")


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Hold a lock, a file beside the record, which exists while one program writes."""
    lock, begin = file().with_name(file().name + ".lock"), time.monotonic()
    while True:
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            break
        except (FileExistsError, PermissionError):  # the second: Windows, while the other removes it
            if time.monotonic() - begin > PATIENCE:
                lock.unlink(missing_ok=True)
                begin = time.monotonic()
            time.sleep(0.01)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def add(path: str | Path, today: Callable[[str], str] = str) -> tuple[int, int]:
    """Add what another file of this format holds, such as one that a page has saved.

    Of two times the earlier stays, and of two quiz results the better one. The other file is not changed.

    :param path: the other file.
    :param today: gives for a name in an old file the name it has now; the same unless given.
    :Shapes: returns how many exercises and how many quizzes are new.
    :Raises: FileNotFoundError where there is no such file; ValueError where it is no record.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: save one from the course's map, in the page")
    try:
        other = _checked(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, RecursionError):
        raise ValueError(f"{path} is no record of progress: save one from the course's map, in the page") from None
    new = [0, 0]

    def take(record: dict[str, Any]) -> None:
        record["solved"] = {today(name): at for name, at in record["solved"].items()}
        for name, at in ((today(name), at) for name, at in other["solved"].items()):
            new[0] += name not in record["solved"]
            times = [time for time in (record["solved"].get(name), at) if time]
            record["solved"][name] = min(times, default=None)
        for chapter, result in other["quiz"].items():
            before = record["quiz"].get(chapter)
            new[1] += before is None
            if before is None or result["right"] * before["of"] > before["right"] * result["of"]:
                record["quiz"][chapter] = result
        for key in other.keys() - record.keys():
            record[key] = other[key]

    change(take)
    return new[0], new[1]


def note_solved(name: str, today: Callable[[str], str] = str) -> None:
    """Note an exercise as solved; the first time counts.

    :param name: the chapter's topic, a dot, the checker: "masking.check_causal".
    :param today: gives for a name in an old file the name it has now; the same unless given.
    """

    def add(record: dict[str, Any]) -> None:
        record["solved"] = {today(old): at for old, at in record["solved"].items()}
        record["solved"][name] = record["solved"].get(name) or now()

    change(add)


def note_quiz(chapter: str, right: int, of: int) -> None:
    """Note the result of a quiz; of several results the best one stays, with the time it was first reached.

    :param chapter: its topic.
    :param right: the number of right answers.
    :param of: the number of questions.
    """

    def add(record: dict[str, Any]) -> None:
        before = record["quiz"].get(chapter)
        if before is None or right * before["of"] > before["right"] * of:
            record["quiz"][chapter] = {"right": right, "of": of, "first": now()}

    change(add)
