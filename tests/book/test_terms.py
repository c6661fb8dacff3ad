"""No page uses a word before the course has explained it: `book/terms.yml` says where each one is explained."""

import json
import re
from functools import cache
from pathlib import Path

import pytest
import yaml
from chapters import CHAPTERS, rooms, topic

from mha.course import quiz

BOOK = Path(__file__).resolve().parents[2] / "book"
TERMS = yaml.safe_load((BOOK / "terms.yml").read_text("utf8"))
BEFORE = "how_to_use"  # the page that says what a reader should know
# not read in order: names in another language beside the text, headings, labels, sources, code, and where a link leads
ASIDE = r"```.*?```|:::\{margin\}.*?:::|^#+ .*?$|`[^`]*`|^\(\S+\)=$|^:label: .*?$|\{\w+\}`[^`]*`|\]\([^)]*\)"

every_term = pytest.mark.parametrize("entry", TERMS, ids=lambda entry: entry["term"])


def plain(text):
    """The words of a text in one line, without what is not read in order."""
    return " ".join(re.sub(ASIDE, " ", text, flags=re.DOTALL | re.MULTILINE).split())


def blocks(text):
    """The paragraphs and tables of a text, one line each."""
    return [plain(block) for block in re.split(r"\n\s*\n", re.sub(ASIDE, " ", text, flags=re.DOTALL | re.MULTILINE))]


def questions(path):
    """The quiz of a chapter: questions, answers and reasons, as a reader sees them."""
    asked = quiz.ask(topic(path)).questions if path in CHAPTERS else ()
    texts = [text for one in asked for text in (one.text, *one.right, *(part for wrong in one.wrong for part in wrong))]
    return "".join(f"\n\n{text}" for text in texts)


@cache
def pages():
    """Every page in the order of reading: what it announces, and what it says, side rooms behind their chapter."""
    should_know = (BOOK / "how_to_use.md").read_text("utf8").split("\n## ")[1]
    announced, _, told = should_know.partition("\n\n- ")
    found = {BEFORE: (announced, told)}
    for path in (one for chapter in CHAPTERS for one in (chapter, *rooms(chapter))):
        cells = json.loads(path.read_text("utf8"))["cells"]
        first, *rest = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        told = "\n\n".join(rest).split("\n## Sources")[0]
        found[topic(path)] = (first, told + questions(path))
    return found


def early(entry, pages):
    """Where a term stands before it is explained: pages with the words around it."""
    asked = re.compile(rf"\b(?:{entry.get('match', re.escape(entry['term']) + 's?')})\b", re.IGNORECASE)
    leads_there = re.compile(rf"[^.!?|]*\]\([^)]*\d\d[b-z]?_{entry['where']}\.ipynb[^.!?|]*")
    found, names = {}, list(pages)
    for name in names[: names.index(entry["where"])]:
        text = "\n".join(pages[name])
        if asked.search(text):  # else there is nothing to take away
            text = plain(leads_there.sub(" ", text))  # a sentence with a link to the page may use the word
        if hit := asked.search(text):
            found[name] = text[max(0, hit.start() - 60) : hit.end() + 40]
    opening, told = map(blocks, pages[entry["where"]])
    told, says = opening + told, plain(entry["says"])
    here = [number for number, block in enumerate(told) if says in block]
    assert here, f"{entry['where']} does not say: {says}"
    # its own paragraph or table may use the word before the words that explain it, and so may the first cell
    before = " ".join(told[len(opening) : here[0]])
    if hit := asked.search(before):
        found[entry["where"]] = before[max(0, hit.start() - 60) : hit.end() + 40]
    return {name: words for name, words in found.items() if name not in entry.get("glossed", ())}


@every_term
def test_a_word_is_explained_before_it_is_used(entry):
    assert early(entry, pages()) == {}


@every_term
def test_a_term_stands_in_bold_where_it_is_explained(entry):
    (bold,) = re.findall(r"\*\*(.+?)\*\*", entry["says"])
    asked = entry.get("match", re.escape(entry["term"]))
    assert re.search(asked, bold, re.IGNORECASE) or bold.lower() in entry["term"], bold


def test_a_word_that_comes_too_early_is_found():
    made = {
        "one": ("A nat?", "A word. `nat` is code."),
        "two": ("About nats.", "First a nat.\n\nIts unit is the *nat*."),
    }
    entry = {"term": "nat", "where": "two", "says": "Its unit is the *nat*"}
    assert early(entry, made) == {"one": "A nat? A word. is code.", "two": "First a nat."}
    assert early(entry | {"glossed": ["one"]}, made) == {"two": "First a nat."}
    entry = {"term": "nat", "where": "one", "says": "A word"}
    assert early(entry, made) == {}


def test_the_terms_are_listed_once_and_in_the_order_of_reading():
    order, places = list(pages()), []
    for one in TERMS:
        told = " ".join(map(plain, pages()[one["where"]]))
        places.append((order.index(one["where"]), told.index(plain(one["says"]))))
    assert places == sorted(places)
    assert len({one["term"] for one in TERMS}) == len(TERMS) > 60
