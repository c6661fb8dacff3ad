"""Pictures with sliders and buttons: complete without a script, safe, described, and drawn as they were given."""

import html
import json
import re
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from bs4 import BeautifulSoup
from untrusted import cleaned

from mha.viz import palette, sliders

TWO = {"one <b>": sliders.bars({"a": [0.25, 0.75]}), "two": sliders.bars({"a": [1.0, 0.0]})}
ALT = "Two bars, first a quarter and three quarters, then one and zero."


def moving(frames):
    """What the script puts in place of the one picture."""
    return json.loads(re.search(r"'beforeend',(\".*?\")\);const", frames._repr_html_())[1])


def test_the_script_shows_only_the_first_picture():
    page = moving(sliders.Frames(TWO, "Which?", ALT))
    assert re.findall(r"<svg (hidden )?viewBox", page) == ["", "hidden "]
    assert re.findall(r'<label><input type="radio" name="[^"]+"( checked)?>(.+?)</label>', page) == [
        (" checked", "one &lt;b&gt;"),
        ("", "two"),
    ]
    assert "<b>" not in page
    assert f'aria-label="{ALT}"' in page
    assert "http" not in page


COLORS, SIZES = ("red", "blue", "green <3>"), ("small", "large")
SIX = {(color, size): sliders.bars({f"{size} {color}": [0.5]}) for color in COLORS for size in SIZES}


def test_two_answers_are_buttons_and_more_are_a_slider():
    page = moving(shown := sliders.Frames(SIX, ("Color?", "Size?"), ALT))
    ((question, scale, names),) = re.findall(r'<span>(.+?)</span> <input type="range" (.+?) aria.+?names="(.+?)"', page)
    assert (question, scale) == ("Color?", 'min="0" max="2" value="0"')
    assert tuple(json.loads(html.unescape(names))) == COLORS
    assert "<output>red</output>" in page
    ((question, buttons),) = re.findall(r"<fieldset><legend>(.+?)</legend>(.+?)</fieldset>", page)
    assert question == "Size?"
    assert tuple(re.findall(r">([^<]+)</label>", buttons)) == SIZES
    assert repr(shown) == f"Color? red, blue, green <3>. Size? small, large. {ALT}"


def test_it_opens_on_the_picture_that_is_named():
    shown = sliders.Frames(SIX, ("Color?", "Size?"), ALT, start=("blue", "large"))
    page = moving(shown)
    assert [mark == "" for mark in re.findall(r"<svg (hidden )?viewBox", page)] == [n == 3 for n in range(6)]
    assert 'value="1" aria-valuetext="blue"' in page
    assert "<output>blue</output>" in page
    assert re.findall(r" checked>([^<]+)</label>", page) == ["large"]
    assert repr(shown) == repr(sliders.Frames(SIX, ("Color?", "Size?"), ALT))
    with pytest.raises(ValueError, match="no picture has this name"):
        sliders.Frames(SIX, ("Color?", "Size?"), ALT, start="blue")


def test_each_question_has_a_group_of_buttons_of_its_own():
    four = {(one, other): TWO["two"] for one in "ab" for other in "xy"}
    found = re.findall(r'<input type="radio" name="(.+?)"', moving(sliders.Frames(four, ("One?", "Other?"), ALT)))
    assert found[0] == found[1] != found[2] == found[3]
    again = moving(sliders.Frames(four, ("One?", "Third?"), ALT))
    assert not set(found) & set(re.findall(r'<input type="radio" name="(.+?)"', again))


@pytest.mark.parametrize("clean", [cleaned, lambda page: BeautifulSoup(page, "html.parser")], ids=["bare", "no script"])
def test_without_a_script_there_are_one_picture_and_the_names_of_the_settings(clean):
    page = clean(sliders.Frames(SIX, ("Color?", "Size?"), ALT, start=("blue", "large"))._repr_html_())
    assert not page.find_all(["input", "svg", "fieldset"])
    settings = "Color? red, blue, green <3> (here: blue); Size? small, large (here: large)."
    assert page.p.text == f"{settings} Run this cell to choose."
    (image,) = page.find_all("img")
    assert image["alt"] == ALT
    drawing = ElementTree.fromstring(unquote(image["src"].removeprefix("data:image/svg+xml,")))
    assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
    assert "large blue" in [text.text for text in drawing.iter("{http://www.w3.org/2000/svg}text")]


def test_a_style_hides_what_is_said_to_readers_of_notebooks():
    page = sliders.Frames(TWO, "Which?", ALT)._repr_html_()
    assert ".mha-frames .bare{display:none}" in page
    assert '<b class="bare">Run this cell to choose.</b>' in page


def test_nothing_in_a_picture_ends_the_script():
    evil = TWO["two"].replace(">a<", ">&lt;/script&gt;</text><style>/*</style>*/</style><text>a<")
    page = sliders.Frames({"</script>": evil, "<!--<script>": evil}, "Which?", ALT)._repr_html_()
    assert len(re.findall("</script>", page)) == 1
    assert "<!--" not in page


def test_only_a_page_with_buttons_carries_their_style():
    three = {str(n): TWO["two"] for n in range(3)}
    assert "fieldset{" not in sliders.Frames(three, "Which?", ALT)._repr_html_()
    assert "fieldset{" in sliders.Frames(TWO, "Which?", ALT)._repr_html_()


@pytest.mark.parametrize(
    ("names", "questions"),
    [
        (list(SIX)[:-1], ("Color?", "Size?")),  # nothing for large and green
        (list(SIX)[::-2] + list(SIX)[::2], ("Color?", "Size?")),  # in another order
        (list(SIX), ("Color?", "Size?", "And?")),
        (list(SIX), "Which?"),
        ([*list(SIX)[:-1], ("green <3>",)], ("Color?", "Size?")),
    ],
)
def test_a_choice_without_a_picture_is_refused(names, questions):
    with pytest.raises(ValueError, match="need a picture for every combination of answers, in the order"):
        sliders.Frames(dict.fromkeys(names, TWO["two"]), questions, ALT)


def test_two_sliders_on_a_page_do_not_meet():
    one, other = (sliders.Frames(TWO, question, ALT)._repr_html_() for question in ("Which?", "And which?"))
    ids = [re.search(r'id="(frames-\w+)"', page)[1] for page in (one, other)]
    assert ids[0] != ids[1]
    assert all(page.count(f'"{name}"') == 2 for page, name in zip((one, other), ids, strict=True))


def test_the_pictures_are_whole_and_carry_their_numbers():
    heads = [[0, 1], [1, 0]]
    for picture, shown in (
        (sliders.bars({"a": [0.25, 0.75], "b": [1, 0]}), ["0.25", "0.75", "1.00", "0.00", "a", "b"]),
        (sliders.cells([[0.5, 1], [0, 0.25]], "xy", "pq"), ["0.50", "1.00", "0.00", "0.25", "x", "y", "p", "q"]),
        (sliders.cells([[11, 12], [21, 22]], "xy", "pq", heads), ["11", "12", "21", "22"]),
    ):
        tree = ElementTree.fromstring(picture)
        texts = " ".join(node.text for node in tree.iter("text"))
        assert all(text in texts for text in shown)
        assert len(picture) < 6000


def test_colors_are_those_of_the_figures_and_letters_on_them_can_be_read():
    drawn = sliders.cells([[1, 2, 3, 4]], ["a"], list("wxyz"), heads=[[0, 1, 2, 3]])
    squares = re.findall(r'<rect [^>]*fill="(#\w{6})"', drawn)
    assert squares == list(palette.ON_LIGHT[:4])
    letters = re.findall(r'fill="(#\w{6})">\d</text>', drawn)
    for square, letter in zip(squares, letters, strict=True):
        assert palette._contrast(square, letter) > 4.5


def test_a_bar_is_as_high_as_its_number():
    heights = [float(h) for h in re.findall(r'<rect [^>]*height="([\d.]+)"', TWO["one <b>"])]
    assert heights[1] == pytest.approx(3 * heights[0])


@pytest.mark.parametrize(("pictures", "alt"), [({"one": TWO["two"]}, ALT), (TWO, "too short")])
def test_a_picture_alone_or_without_words_is_refused(pictures, alt):
    with pytest.raises(ValueError, match="at least 2 and 40 are needed"):
        sliders.Frames(pictures, "Which?", alt)
