"""What the page for teachers counts when the book is built: the minutes of each part, and all exercises."""

import json
import os
import re
from pathlib import Path

import yaml

TIMES = re.compile(r"\*\*(\d+) min to read(?: · (\d+) min of exercises)?\*\*")
EXERCISE = re.compile(r":::\{exercise\} (.+)\n:label: (\S+)\n\n\*\*(\d+) minutes · (\w+)\.\*\*")
LEVELS = ("easy", "medium", "harder")


def texts(path):
    """The text cells of a notebook."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]


def parts(root):
    """The parts of the main path, each with the notebooks of its chapters."""
    for part in yaml.safe_load((root / "book" / "_toc.yml").read_text(encoding="utf-8"))["parts"]:
        files = [root / f"{chapter['file']}.ipynb" for chapter in part["chapters"]]
        if all(re.match(r"\d\d_", path.name) for path in files):
            yield part["caption"], files


def course_plan(root):
    """A table of the parts: their chapters, and the minutes to read and of exercises."""
    lines = ["| part | chapters | to read | exercises |", "|---|---|---|---|"]
    for caption, files in parts(root):
        times = [TIMES.search(texts(path)[0]).groups() for path in files]
        chapters = " ".join(f"[{path.stem[:2]}](../notebooks/{path.name})" for path in files)
        lines.append(
            f"| {caption} | {chapters} | {sum(int(read) for read, _ in times)}\xa0min "
            f"| {sum(int(exercises or 0) for _, exercises in times)}\xa0min |"
        )
    return "\n".join(lines)


def problem_sets(root):
    """A table of all exercises: one row for each chapter, one column for each level, with their minutes."""
    lines = [f"| chapter | {' | '.join(LEVELS)} |", "|---" * (1 + len(LEVELS)) + "|"]
    for _, files in parts(root):
        for path in files:
            found = [match for text in texts(path) for match in EXERCISE.findall(text)]
            cells = [
                ", ".join(
                    f"{{ref}}`{title} <{label}>` ({minutes})" for title, label, minutes, of in found if level == of
                )
                for level in LEVELS
            ]
            lines.append(f"| [{path.stem[:2]}](../notebooks/{path.name}) | {' | '.join(cells)} |")
    return "\n".join(lines)


def downloads(root):
    """Where the PDF and the zip lie: the workflow puts them beside the pages, whose address it knows."""
    site = os.environ.get("COURSE_SITE", "").rstrip("/")
    links = [f"[{kind}]({site}/multi-head-attention.{kind.lower()})" for kind in ("PDF", "ZIP")]
    return f"Both lie beside these pages: {' and '.join(links)}." if site else ""


MAKE = {"<!-- course-plan -->": course_plan, "<!-- problem-sets -->": problem_sets, "<!-- downloads -->": downloads}


def plan(text, root: Path):
    """Write the tables into a page that asks for them."""
    for mark, make in MAKE.items():
        if mark in text:
            text = text.replace(mark, make(root))
    return text
