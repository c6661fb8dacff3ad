"""The bug museum: every broken exhibit fails its test, every mended one passes, and the page shows them."""

import re
from pathlib import Path

import pytest
import torch
from chapters import CHAPTERS, ROOMS, topic
from programs import load

from mha.course.bugs import EXHIBITS

ROOT = Path(__file__).resolve().parents[2]
every_exhibit = pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda exhibit: exhibit.title)


@pytest.fixture(autouse=True)
def float32():
    torch.set_default_dtype(torch.float32)


@every_exhibit
def test_the_test_tells_broken_from_mended_and_the_weak_check_does_not(exhibit):
    assert exhibit.weak(exhibit.broken)
    assert exhibit.weak(exhibit.mended)
    assert not exhibit.test(exhibit.broken)
    assert exhibit.test(exhibit.mended)


@every_exhibit
def test_it_names_its_source_and_its_chapter(exhibit):
    assert exhibit.threads
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", thread) for thread in exhibit.threads)
    assert exhibit.place.partition("#")[0] in map(topic, (*CHAPTERS, *ROOMS))
    assert exhibit.symptom.endswith(".")
    assert exhibit.who.endswith(".")


def test_there_are_many_and_no_two_are_the_same():
    assert len(EXHIBITS) >= 20
    assert len({exhibit.title for exhibit in EXHIBITS}) == len(EXHIBITS)
    assert len({exhibit.symptom for exhibit in EXHIBITS}) == len(EXHIBITS)
    assert len({exhibit.broken for exhibit in EXHIBITS}) == len(EXHIBITS)


def test_the_page_shows_what_the_museum_holds():
    tool = load("tools/make_bugs.py")
    assert (ROOT / "book" / "bug_museum.md").read_text("utf8") == tool.museum_page(), "python tools/make_bugs.py"


def test_every_exhibit_is_a_cause_of_some_symptom():
    tool, titles = load("tools/make_bugs.py"), [exhibit.title for exhibit in EXHIBITS]
    assert tool.unfiled(titles) == [], "name it in book/symptoms.yml"
    assert tool.unfiled([*titles, "A bug that nobody filed"]) == ["A bug that nobody filed"]
    assert tool.unfiled(titles[1:]) == titles[:1], "a symptom names an exhibit that is not there"
