"""Pictures with a slider: complete without a script, safe, described, and what they draw is what they were given."""

import re
from xml.etree import ElementTree

import pytest

from mha import frames

TWO = {"one <b>": frames.bars({"a": [0.25, 0.75]}), "two": frames.bars({"a": [1.0, 0.0]})}
ALT = "Two bars, first a quarter and three quarters, then one and zero."


def test_only_the_first_picture_is_shown_without_a_script():
    page = frames.Frames(TWO, "Which?", ALT)._repr_html_()
    assert re.findall(r'<svg data-name="([^"]+)"( hidden)? ', page) == [("one &lt;b&gt;", ""), ("two", " hidden")]
    assert "<b>" not in page
    assert f'aria-label="{ALT}"' in page
    assert '<input type="range" min="0" max="1" value="0"' in page
    assert "http" not in page


def test_two_sliders_on_a_page_do_not_meet():
    one, other = (frames.Frames(TWO, question, ALT)._repr_html_() for question in ("Which?", "And which?"))
    ids = [re.search(r'id="(frames-\w+)"', page)[1] for page in (one, other)]
    assert ids[0] != ids[1]
    assert all(page.count(f'"{name}"') == 2 for page, name in zip((one, other), ids, strict=True))


def test_the_pictures_are_whole_and_carry_their_numbers():
    heads = [[0, 1], [1, 0]]
    for picture, shown in (
        (frames.bars({"a": [0.25, 0.75], "b": [1, 0]}), ["0.25", "0.75", "1.00", "0.00", "a", "b"]),
        (frames.cells([[0.5, 1], [0, 0.25]], "xy", "pq"), ["0.50", "1.00", "0.00", "0.25", "x", "y", "p", "q"]),
        (frames.cells([[11, 12], [21, 22]], "xy", "pq", heads), ["11", "12", "21", "22"]),
        (frames.roof(100, {"half": 50, "over": 1000}), ["half: 50 per byte, 50.0% of the peak", "over: 1e+03 per"]),
    ):
        tree = ElementTree.fromstring(picture)
        texts = " ".join(node.text for node in tree.iter("text"))
        assert all(text in texts for text in shown)
        assert len(picture) < 6000


def test_a_bar_is_as_high_as_its_number():
    heights = [float(h) for h in re.findall(r'<rect [^>]*height="([\d.]+)"', TWO["one <b>"])]
    assert heights[1] == pytest.approx(3 * heights[0])


@pytest.mark.parametrize(("pictures", "alt"), [({"one": TWO["two"]}, ALT), (TWO, "too short")])
def test_a_picture_alone_or_without_words_is_refused(pictures, alt):
    with pytest.raises(ValueError, match="at least 2 and 40 are needed"):
        frames.Frames(pictures, "Which?", alt)
