"""The claims ledger: no claim is lost, no verdict stands without an executed cell, and the page is up to date."""

import re
from functools import cache
from pathlib import Path

import chapters
import nbformat
import yaml
from programs import load

ROOT = Path(__file__).resolve().parents[2]
ROWS = yaml.safe_load((ROOT / "book" / "claims.yml").read_text("utf8"))
NUMBERS = [*map(str, range(1, 158)), "138a", "138b", "165", "166", "167", *map(str, range(175, 189))]


def maker():
    return load("tools/make_ledger.py")


@cache
def read(path):
    return nbformat.read(path, as_version=4).cells


def deciding_cells(number):
    """The code cells around the label of a claim: one before it, and those up to the next heading, three at least."""
    for path in (*chapters.CHAPTERS, *chapters.ROOMS):
        cells = read(path)
        for position, cell in enumerate(cells):
            if cell.cell_type == "markdown" and re.search(rf"^\(claim-{number}\)=$", cell.source, re.MULTILINE):
                before = [c for c in cells[:position] if c.cell_type == "code"][-1:]
                headings = [p for p, c in enumerate(cells) if c.cell_type == "markdown" and c.source.startswith("## ")]
                end = min((p for p in headings if p > position), default=len(cells))
                after = [c for c in cells[position:end] if c.cell_type == "code"]
                after += [c for c in cells[end:] if c.cell_type == "code"][: max(0, 3 - len(after))]
                return chapters.topic(chapters.chapter_of(path)), before + after
    return None, []


def test_every_claim_is_there_once():
    assert sorted(row[0] for row in ROWS) == sorted(NUMBERS)


def test_a_verdict_has_a_cell_that_is_executed():
    words = maker().WORDS
    for number, chapter, verdict, claim, why in ROWS:
        assert verdict in words, number
        assert claim.endswith(("?", ".")), number
        assert why.endswith((".", "?")), number
        where, cells = deciding_cells(number)
        if chapter and verdict != "open":
            assert where == chapter, f"the label (claim-{number})= stands in {where}, the ledger says {chapter}"
            assert any("assert " in cell.source for cell in cells), f"no cell beside (claim-{number})= asserts anything"
        elif where is not None:
            assert where == chapter, number


def test_what_the_notebooks_decide_is_in_the_ledger():
    assert set(maker().labels()) <= set(NUMBERS)


def test_the_page_says_what_the_data_say():
    assert (ROOT / "book" / "claims_ledger.md").read_text("utf8") == maker().page(), "python tools/make_ledger.py"
