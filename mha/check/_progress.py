"""Remember which exercises a reader has solved, in one small file."""

import importlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def _file() -> Path:
    return Path(os.environ.get("MHA_PROGRESS") or Path.home() / ".mha_progress.json")


def exercises() -> dict[str, Any]:
    """List all exercises by chapter and name: {"ch05.check_split": …}.

    Taught in: the page "How to use this course".
    """
    found = {}
    for chapter in sorted(path.stem for path in Path(__file__).parent.glob("ch[0-9][0-9].py")):
        values = vars(importlib.import_module(f"mha.check.{chapter}")).items()
        found |= {f"{chapter}.{name}": value for name, value in values if name.startswith("check_")}
    return found


def solved(exercise: Any, answer: Callable) -> None:
    """Note an exercise as solved, if the answer is the reader's: its name begins with ``my_``, as in the stubs."""
    name = next((name for name, other in exercises().items() if other is exercise), None)
    given = getattr(answer, "__name__", "")
    if name is None or not given.startswith("my_"):
        if name and not given.startswith(("solved", "_")):
            print(f"  (Not noted as solved: {given or 'your function'} is no name of a stub; they begin with my_.)")
        return
    try:
        names = sorted({*_read(), name})
        part = _file().with_name(_file().name + ".part")
        part.write_text(json.dumps({"solved": names}, indent=1) + "\n", encoding="utf-8")
        os.replace(part, _file())
    except OSError as error:
        print(f"  (It could not be noted in {_file().name}: {error.strerror}. Nothing else is affected.)")


def _read() -> list[str]:
    """Read the file. One that cannot be read is kept under another name, and the list starts anew."""
    try:
        names = json.loads(_file().read_text(encoding="utf-8"))["solved"]
        return [str(name) for name in names]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError):
        os.replace(_file(), _file().with_name(_file().name + ".unreadable"))
        return []


def progress() -> None:
    """Print how many exercises of each chapter are solved, and which one comes next.

    Solved are those that a checker accepted from a function whose name begins with ``my_``. The list is kept in
    ``.mha_progress.json`` in your home folder, or in the file that the variable ``MHA_PROGRESS`` names.

    Taught in: the page "How to use this course".
    """
    every, done = exercises(), set(_read())
    for chapter in sorted({name.partition(".")[0] for name in every}):
        names = [name for name in every if name.startswith(chapter)]
        marks = "".join("●" if name in done else "○" for name in names)
        following = next((every[name].name for name in names if name not in done), "")
        print(f"chapter {chapter[2:]}  {marks:8} {f'next: {following}' if following else 'all solved'}")
    print(f"{len(done & set(every))} of {len(every)} solved.")
