"""The museum by symptom and topic: what is shown, told and remembered, with mouse and keyboard, on desk and phone.

The script is read as it is in the repository, in a page that has the exhibits as Sphinx writes them, without code.
"""

import html
import json
import re

import pytest
from live_figures import BOOK, SIZES, STATIC
from programs import load

TOOL = load("tools/make_bugs.py")
MUSEUM = TOOL.museum()
EXHIBITS = MUSEUM["exhibits"]
SYMPTOMS = [name for _, names in MUSEUM["symptoms"] for name, _ in names]
SHOWN = "all => all.filter(one => one.checkVisibility()).map(one => one.querySelector('span').id)"
PART = '<section id="{anchor}-section"><span id="{anchor}"></span><h3>{anchor}</h3><p>An exhibit.</p></section>'
ENTRY = '<li><a href="#{anchor}-section">{anchor}</a></li>'


def page():
    """The museum without its code, with the contents at the side."""
    data = html.escape(json.dumps(MUSEUM))
    parts = "".join(PART.format(anchor=anchor) for anchor in EXHIBITS)
    entries = "".join(ENTRY.format(anchor=anchor) for anchor in EXHIBITS)
    return (
        f"{BOOK}<style>{(STATIC / 'museum.css').read_text('utf8')} nav li {{ line-height: 2; }}</style>"
        f'<main><h1>The museum</h1><section id="the-exhibits"><h2>The exhibits</h2>'
        f'<div class="museum-filter" data-museum="{data}"></div>{parts}</section></main>'
        f'<nav id="pst-page-toc-nav" aria-label="Contents"><ul>{entries}</ul></nav>'
        f"<script>{(STATIC / 'museum.js').read_text('utf8')}</script>"
    )


def expected(symptom="", topic=""):
    """The exhibits that belong to a choice, in their order."""
    fit = {name: (not symptom or symptom in names) and topic in ("", one) for name, (names, one) in EXHIBITS.items()}
    return [name for name in EXHIBITS if fit[name]]


@pytest.fixture
def museum(opened):
    """Open the museum; `address` is what follows its name, as "?topic=03"."""

    def open_it(address="", size="desktop", **how):
        tab = opened(page(), "The museum", SIZES[size], **how)
        if address:
            home = tab.url
            tab.goto("about:blank")  # or a new hash would open no new page
            tab.goto(home + address)
        return tab

    return open_it


def shown(tab):
    return tab.locator("section section").evaluate_all(SHOWN)


def choose(tab, **values):
    for name, value in values.items():
        tab.locator(f"select[name={name}]").select_option(value)


def said(tab):
    return tab.inner_text(".museum-filter [role=status]")


def test_the_page_of_the_museum_has_what_the_script_needs():
    text = TOOL.museum_page()
    assert json.loads(html.unescape(re.search(r'data-museum="([^"]*)"', text)[1])) == json.loads(json.dumps(MUSEUM))
    assert all(f"({anchor})=\n### " in text for anchor in EXHIBITS)
    assert '<script defer src="../_static/museum.js"></script>' in text
    assert (STATIC / "museum.js").stat().st_size <= 8192
    assert all(names for names, _ in EXHIBITS.values())


@pytest.mark.slow
def test_without_a_script_all_exhibits_are_there(museum):
    tab = museum(scripts=False)
    assert tab.locator("section section").count() == len(EXHIBITS)
    assert tab.locator("section section:visible").count() == len(EXHIBITS)
    assert tab.locator("select, button").count() == 0


@pytest.mark.slow
def test_each_symptom_and_each_topic_shows_its_exhibits_and_says_how_many(museum):
    tab = museum()
    assert shown(tab) == list(EXHIBITS)
    assert said(tab) == f"All {len(EXHIBITS)} exhibits are shown."
    for name, values in (("symptom", SYMPTOMS), ("topic", [number for number, _ in MUSEUM["topics"]])):
        for value in values:
            choose(tab, **{name: value})
            right = expected(**{name: value})
            assert shown(tab) == right
            assert right
            assert said(tab).startswith(f"{len(right)} of {len(EXHIBITS)} exhibit")
            assert tab.url.endswith(f"?{name}={value}")
        choose(tab, **{name: ""})
    assert "?" not in tab.url


@pytest.mark.slow
def test_two_choices_hold_together_and_none_leads_to_an_empty_museum(museum):
    tab = museum()
    choose(tab, symptom="loss-too-low")
    open_topics = tab.locator("select[name=topic] option:not([disabled])").evaluate_all(
        "all => all.map(one => one.value)"
    )
    assert open_topics == ["", *(number for number, _ in MUSEUM["topics"] if expected("loss-too-low", number))]
    assert 1 < len(open_topics) <= len(MUSEUM["topics"])
    choose(tab, topic=open_topics[1])
    assert shown(tab) == expected("loss-too-low", open_topics[1])
    tab.get_by_role("button", name="Show all").click()
    assert shown(tab) == list(EXHIBITS)
    assert tab.locator("option[disabled]").count() == 0
    assert tab.get_by_role("button", name="Show all").is_disabled()


@pytest.mark.slow
def test_the_address_leads_to_a_part_of_the_museum(museum):
    tab = museum("?symptom=nan-gradient#the-exhibits")
    assert shown(tab) == expected("nan-gradient")
    assert tab.locator("select[name=symptom]").input_value() == "nan-gradient"
    assert tab.locator("nav li:visible").count() == len(expected("nan-gradient"))
    tab.reload()
    assert shown(tab) == expected("nan-gradient")


@pytest.mark.slow
@pytest.mark.parametrize("address", ["?symptom=nothing&topic=99", "?topic=%3Cb%3E", "#nowhere", "?symptom="])
def test_an_address_that_nobody_can_have_chosen_shows_all(museum, address):
    assert shown(museum(address)) == list(EXHIBITS)


@pytest.mark.slow
def test_an_impossible_pair_keeps_the_symptom(museum):
    topic = next(number for number, _ in MUSEUM["topics"] if not expected("nan-gradient", number))
    assert shown(museum(f"?symptom=nan-gradient&topic={topic}")) == expected("nan-gradient")


@pytest.mark.slow
def test_a_link_to_a_hidden_exhibit_shows_it(museum):
    tab = museum("?symptom=nan-gradient")
    other = expected(topic="14")[0]
    tab.evaluate("name => { location.hash = name; }", other)
    tab.wait_for_function("() => !document.querySelector('section[hidden]')")
    assert tab.url.endswith(f"#{other}")
    assert tab.locator(f"#{other}-section").is_visible()
    tab = museum(f"?symptom=nan-gradient#{other}")
    assert shown(tab) == list(EXHIBITS)
    mine = expected("nan-gradient")[0]
    assert shown(museum(f"?symptom=nan-gradient#{mine}")) == expected("nan-gradient")


@pytest.mark.slow
def test_the_keyboard_is_enough(museum):
    tab = museum()
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.name") == "symptom"
    tab.keyboard.press("ArrowDown")
    assert shown(tab) == expected(SYMPTOMS[0])
    tab.keyboard.press("Tab")
    tab.keyboard.press("ArrowDown")
    topic = tab.locator("select[name=topic]").input_value()
    assert topic
    assert shown(tab) == expected(SYMPTOMS[0], topic)
    tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")
    assert shown(tab) == list(EXHIBITS)
    assert tab.evaluate("document.activeElement.name") == "symptom", "the button that was pressed is disabled now"


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everybody_can_use_it(museum, violations, size, theme):
    tab = museum("?symptom=batch-differs", size, theme=theme)
    assert tab.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
    assert all(box["height"] >= 24 for box in (one.bounding_box() for one in tab.locator("select, button").all()))
    assert violations(tab, 5) == {}
