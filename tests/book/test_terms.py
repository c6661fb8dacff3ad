"""No chapter uses a word before the main path has explained it."""

import json
import re
from pathlib import Path

import pytest
import yaml
from chapters import CHAPTERS

TERMS = yaml.safe_load((Path(__file__).parent / "terms.yml").read_text(encoding="utf-8"))
UNTOLD = re.compile(  # formulas, code, links, citations, the glossary in the margin, headings
    r"```\{math\}.*?```|\$[^$]*\$|(?:\{\w+\})?`[^`]*`|\[[^\]]*\]\([^)]*\)|:::\{margin\}.*?\n:::|^#.*?$",
    re.DOTALL | re.MULTILINE,
)


def told(path):
    """The paragraphs of a chapter: those of its first cell, which says what is coming, and all others."""
    cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "markdown"]
    first, *others = ("".join(cell["source"]).split("\n\n") for cell in cells)
    return first, [part for cell in others for part in cell]


PROSE = {path.stem[:2]: told(path) for path in CHAPTERS}


def uses(term, paragraphs):
    """The paragraphs in which a term stands, in the singular or the plural."""
    word = re.compile(rf"(?<![\w-]){re.escape(term)}(?:s|es)?(?![\w-])", re.IGNORECASE)
    return [one for one in paragraphs if word.search(" ".join(UNTOLD.sub(" ", one).split()))]


@pytest.mark.parametrize("term", TERMS)
def test_no_chapter_uses_a_word_before_it_is_explained(term):
    chapter, words = TERMS[term]
    first, others = PROSE[chapter]
    explained = [n for n, one in enumerate([*first, *others]) if words in " ".join(one.split())]
    assert explained, f"chapter {chapter} does not say {words!r}"
    earlier = {number: found for number, (_, said) in PROSE.items() if number < chapter and (found := uses(term, said))}
    assert earlier == {}
    assert uses(term, others[: max(0, explained[0] - len(first))]) == []


def test_a_word_used_too_early_is_seen():
    assert uses("gate", ["No Gates here.", "a `gate`, a [gate](11.ipynb), $gate$", "a gatekeeper", "a\ngate"]) == [
        "No Gates here.", "a\ngate",
    ]  # fmt: skip
