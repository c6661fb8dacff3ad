"""Write book/checkers.md: every checker of the course, the wrong answers it comes with, and whether it names them.

    python tools/make_checker_table.py

A test compares the page with what the checkers do now.
"""

import importlib
import json
import re
import sys
from pathlib import Path

import nbformat
from chapters import CHAPTERS, rooms, topic

from mha.course.exercises.exercise import judge

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "book" / "checkers.md"
MUTANTS = json.loads((ROOT / "benchmarks" / "mutants.json").read_text("utf8"))

HEAD = """# The checkers and the wrong answers they catch

A checker that says "correct" to a wrong answer is worse than none. So every checker of this course comes with wrong
answers that are finite, have the right shape, and repeat mistakes that people really make. A program passes each of
them to its checker and writes this page (`python tools/make_checker_table.py`); a test repeats it. *Caught* means
rejected. *Named* means that the reader is told which mistake it looks like.

After the values, each checker compares the gradients of the inputs and tries a second number type, wherever the
exercise has them. Then it draws inputs of its own: other sizes, very large and very small numbers, empty rows, all that
the text allows.

People thought of those wrong answers. A second program thinks of nothing: it changes our own solution in every way it
knows, one thing at a time (an operator, a constant, an axis, a comparison, a term or a call left out, arguments
exchanged, an argument ignored, a first result kept), and asks the checker (`make mutants`). A change that gives the
solution's result on 1,000 drawn inputs is no mistake, and is not counted. The column *by machine* says how many of the
others were rejected. `mha.course.exercises.progress()` shows what you have solved yourself.
"""


def chapters():
    """The notebook and the checkers of each chapter that is in the book."""
    for path in CHAPTERS:
        module = importlib.import_module(f"mha.course.exercises.{topic(path)}")
        yield path, {name: value for name, value in vars(module).items() if name.startswith("check_")}


def labels(path):
    """For each checker the label of its exercise, read from the notebook."""
    label, found = "", {}
    for cell in (cell for one in (path, *rooms(path)) for cell in nbformat.read(one, as_version=4).cells):
        if cell.cell_type == "markdown":
            label = (re.findall(r":::\{exercise\}[^\n]*\n:label: (\S+)", cell.source) or [label])[-1]
        else:
            found |= dict.fromkeys(re.findall(r"^(check_\w+)\(", cell.source, re.MULTILINE), label)
    return found


def machine(name):
    """How many mutants of a solution were rejected, of how many that are none of it."""
    found = MUTANTS[name]
    return found["rejected"], found["rejected"] + len(found["survived"])


def row(exercise, label, mutants):
    """One line of the table, and how many wrong answers there were, were caught, and were named."""
    told = [(diagnosis, *judge(exercise, wrong)) for diagnosis, wrong in exercise.mistakes.items()]
    caught = sum(not right for _, right, _ in told)
    named = sum(message.endswith(f"It looks like this: {diagnosis}.") for diagnosis, _, message in told)
    wrong = " · ".join(exercise.mistakes).replace("|", "\\|").replace("$", "\\$").replace("\n    ", " ")
    name = exercise.name.replace("|", "\\|")
    counts = f"{caught} of {len(told)} | {named} of {len(told)} | {mutants[0]} of {mutants[1]}"
    return f"| {{ref}}`{name} <{label}>` | {counts} | {wrong} |", (len(told), caught, named, *mutants)


def page():
    """The whole page as text."""
    parts, totals = [], []
    for path, checkers in chapters():
        title = nbformat.read(path, as_version=4).cells[0].source.splitlines()[0].removeprefix("# ")
        where = labels(path)
        topic = path.stem[3:]
        rows, counts = zip(
            *(row(value, where[name], machine(f"{topic}.{name}")) for name, value in checkers.items()), strict=True
        )
        totals += counts
        parts += [
            f"\n## {path.stem[:2]} {title}\n",
            "| exercise | caught | named | by machine | the wrong answers |",
            "|---|---|---|---|---|",
            *rows,
        ]
    known, caught, named, rejected, mutants = map(sum, zip(*totals, strict=True))
    total = (
        f"\n**{len(totals)} checkers, {known} wrong answers: {caught} caught, {named} named. "
        f"{mutants:,} more made by machine: {rejected:,} rejected.**\n"
    )
    return "\n".join([HEAD.rstrip(), total.rstrip(), *parts]) + "\n"


def main():
    PAGE.write_text(page(), encoding="utf-8", newline="\n")
    print(PAGE.read_text("utf8").split("**")[1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
