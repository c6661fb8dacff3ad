"""The notebooks of the course: chapters, and the side rooms beside them.

A chapter is `notebooks/04_why_many_heads.ipynb`. A side room of it is a notebook with the same number and a letter from
b on, `notebooks/04b_narrow_heads.ipynb`: what is true, and would stand in the way on the main path.
"""

from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "notebooks"
CHAPTERS = sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))
ROOMS = sorted(NOTEBOOKS.glob("[0-9][0-9][b-z]_*.ipynb"))


def contents():
    """The pages of the book in their order, as (title of the part, file); the first one belongs to no part."""
    table = yaml.safe_load((ROOT / "book" / "_toc.yml").read_text(encoding="utf-8"))

    def walk(pages):
        for page in pages:
            yield page["file"]
            yield from walk(page.get("sections", ()))

    return [(None, table["root"])] + [
        (part["caption"], file) for part in table["parts"] for file in walk(part["chapters"])
    ]


def topic(path):
    """How a notebook is called without its number: `narrow_heads`."""
    return path.stem.partition("_")[2]


def named(name):
    """The chapter or side room with this topic."""
    (path,) = (path for path in (*CHAPTERS, *ROOMS) if topic(path) == name)
    return path


def rooms(chapter):
    """The side rooms of a chapter."""
    return [path for path in ROOMS if path.stem[:2] == chapter.stem[:2]]


def chapter_of(room):
    """The chapter beside which a side room lies; a chapter lies beside itself."""
    return next(path for path in CHAPTERS if path.stem[:2] == room.stem[:2])


def family(name):
    """A chapter, by its topic, and its side rooms; nothing where no chapter is called so."""
    return [path for chapter in CHAPTERS if topic(chapter) == name for path in (chapter, *rooms(chapter))]
