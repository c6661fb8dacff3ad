"""Write book/package.md: the public names of the package, room by room, with the first line of each docstring.

    python tools/make_package_page.py

A test compares the page with what the package says now.
"""

import importlib
import inspect
import pkgutil
import re
import sys
from pathlib import Path

from chapters import CHAPTERS, topic

import mha

PAGE = Path(__file__).resolve().parents[1] / "book" / "package.md"
ROOMS = ("functional", "layers", "models", "analysis", "systems", "data", "viz", "interop", "reference")
NUMBERS = {topic(path): path for path in CHAPTERS}

HEAD = """# The package

`mha` also serves without the course. `pip install .` in a copy of the repository installs it with what it needs, and
[Set-up](set_up.md#the-package-alone) names the extras. Every name below has a docstring: `help(mha.watch)` shows it, with
shapes, costs, sources and errors. Bad input is refused with what was given, why it cannot work, and what to do. Which
layer takes a cache or can lose heads is tried in [What goes together](compatibility.md).

Nobody typed these tables: `python tools/make_package_page.py` takes them from the docstrings. `mha.course` is not listed:
only the pages of the book use it.
"""


def first_line(thing):
    """The first line of a docstring, as Markdown in a cell of a table."""
    line = inspect.getdoc(thing).splitlines()[0]
    line = re.sub(r":\w+:`([^`]+)`", r"`\1`", line).replace("``", "`")
    return re.sub(r"([|$])", r"\\\1", line)


def chapters(thing):
    """Links to the chapters that teach a name, or else the file it stands in."""
    docs = (inspect.getdoc(thing) or "", sys.modules[thing.__module__].__doc__ or "")
    found = next(filter(None, (re.search(r"Taught in: ([\w,\s]+)\.", doc) for doc in docs)), None)
    paths = [NUMBERS[name] for name in re.split(r",\s+", found[1]) if name in NUMBERS] if found else []
    return " ".join(f"[{path.stem[:2]}](../notebooks/{path.name})" for path in paths)


def own(module):
    """The public functions and classes that a file defines."""
    things = vars(module).items()
    return [
        name
        for name, one in things
        if not name.startswith("_") and getattr(one, "__module__", "") == module.__name__ and callable(one)
    ]


def table(prefix, module, names):
    """One row for each name: what it is, in a line, and where it is taught."""
    lines = ["| name | what it is | chapter |", "|---|---|---|"]
    for name in sorted(names, key=str.lower):
        thing = getattr(module, name)
        lines.append(f"| `{prefix}{name}` | {first_line(thing)} | {chapters(thing)} |")
    return "\n".join(lines)


def room(name):
    """The section of one room; a room without a list of its own names is told file by file."""
    module = importlib.import_module(f"mha.{name}")
    parts = [f"\n## mha.{name}\n", first_line(module) + "\n"]
    if hasattr(module, "__all__"):
        return [*parts, table("", module, module.__all__)]
    if not hasattr(module, "__path__"):
        return [*parts, table("", module, own(module))]
    found = [importlib.import_module(f"mha.{name}.{file.name}") for file in pkgutil.iter_modules(module.__path__)]
    for file in found:
        if own(file):
            parts += [f"`{file.__name__}`: {first_line(file)}\n", table("", file, own(file)) + "\n"]
    return parts


def page():
    """The whole page as text."""
    face = ["## mha\n", "What one needs every day.\n", table("", mha, mha.__all__)]
    rest = [line for name in ROOMS for line in room(name)]
    return "\n".join([HEAD, *face, *rest]).strip() + "\n"


def main():
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
