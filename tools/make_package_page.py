"""Write book/package.md: the public names of the package, room by room, with the first line of each docstring.

    python tools/make_package_page.py

A test compares the page with what the package says now.
"""

import importlib
import inspect
import json
import pkgutil
import re
import sys
from functools import cache
from pathlib import Path

from chapters import CHAPTERS, ROOMS, topic

import mha

PAGE = Path(__file__).resolve().parents[1] / "book" / "package.md"
PARTS = ("functional", "layers", "models", "analysis", "systems", "data", "viz", "interop", "reference")
NUMBERS = {topic(path): path for path in CHAPTERS}
TAUGHT = re.compile(r"\s*:Taught in: ([\w,\s]+)\.")

HEAD = """# The package

`mha` also serves without the course. `pip install .` in a copy of the repository installs it with what it needs, and
[Set-up](set_up.md#the-package-alone) names the extras. Every name below has a docstring: `help(mha.watch)` shows it,
with shapes, costs, sources and errors. Bad input is refused with what was given, why it cannot work, and what to do.
Which layer takes a cache or can lose heads is tried in [What goes together](compatibility.md).

Nobody typed these tables: `python tools/make_package_page.py` takes them from the docstrings. Where a room has no list
of its own, the names are those that the chapters use. `mha.course` is not here: only the pages of the book use it.
"""


def first_line(thing):
    """The first line of a docstring, as Markdown in a cell of a table."""
    line = TAUGHT.sub("", inspect.getdoc(thing).splitlines()[0])
    line = re.sub(r":\w+:`([^`]+)`", r"`\1`", line).replace("``", "`")
    return re.sub(r"([|$])", r"\\\1", line)


def chapters(thing):
    """Links to the chapters that teach a name, or else the file it stands in."""
    docs = (inspect.getdoc(thing) or "", sys.modules[thing.__module__].__doc__ or "")
    found = next(filter(None, map(TAUGHT.search, docs)), None)
    paths = [NUMBERS[name] for name in re.split(r",\s+", found[1]) if name in NUMBERS] if found else []
    return " ".join(f"[{path.stem[:2]}](../notebooks/{path.name})" for path in paths)


def own(module):
    """The public functions and classes of a file that the chapters use, or, of the oracle, all."""
    things = vars(module).items()
    names = [name for name, one in things if name[0] != "_" and getattr(one, "__module__", "") == module.__name__]
    return [name for name in names if module.__name__ == "mha.reference" or used(module.__name__, name)]


@cache
def text():
    """All text and code of all notebooks."""
    cells = [cell for path in (*CHAPTERS, *ROOMS) for cell in json.loads(path.read_text("utf8"))["cells"]]
    return "\n".join("".join(cell["source"]) for cell in cells)


def used(file, name):
    """Whether a notebook imports a name from its file, takes it from there, or tells of it."""
    short = file.rpartition(".")[2]
    return re.search(rf"from {file} import .*\b{name}\b|\b{short}\.{name}\b|`{name}[`(]", text())


def table(module, names):
    """One row for each name: what it is, in a line, and where it is taught."""
    lines = ["| name | what it is | chapter |", "|---|---|---|"]
    for name in sorted(names, key=str.lower):
        thing = getattr(module, name)
        lines.append(f"| `{name}` | {first_line(thing)} | {chapters(thing)} |")
    return "\n".join(lines)


def room(name):
    """The section of one room; a room without a list of its own names is told file by file."""
    module = importlib.import_module(f"mha.{name}")
    head = f"## mha.{name}\n\n{first_line(module)}"
    if hasattr(module, "__all__"):
        return [head, table(module, set(module.__all__) - set(mha.__all__))]
    if not hasattr(module, "__path__"):
        return [head, table(module, own(module))]
    files = [importlib.import_module(f"mha.{name}.{file.name}") for file in pkgutil.iter_modules(module.__path__)]
    parts = [[f"`{file.__name__}`: {first_line(file)}", table(file, own(file))] for file in files if own(file)]
    return [head, *(part for both in parts for part in both)]


def page():
    """The whole page as text."""
    face = ["## mha\n\nWhat one needs every day. It is not repeated in the rooms below.", table(mha, mha.__all__)]
    return "\n\n".join([HEAD.strip(), *face, *(part for name in PARTS for part in room(name))]) + "\n"


def main():
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
