"""Drawings made of text: a picture for a notebook, a text for everybody else."""

import json
import re
import xml.etree.ElementTree as ET
from html import unescape
from pathlib import Path

import pytest
import torch
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from mha.viz import diagram
from mha.viz.diagram import Diagram
from mha.viz.heatmap import Looks

WRITTEN, SOURCE = ["年", "<"], ["a", " ", "&"]


def weights(heads=2):
    w = torch.zeros(heads, 2, 3)
    w[:, 0, 0], w[:, 0, 1], w[0, 1, 2], w[1:, 1, 1] = 0.72, 0.28, 1.0, 1.0
    return w


def parsed(drawing):
    return ET.fromstring(drawing._repr_html_())


def texts(tree):
    return ["".join(node.itertext()) for node in tree.iter("text")]


# ---- who looks at whom


def test_every_character_is_text_and_every_head_has_its_picture():
    tree = parsed(Looks(weights(3), WRITTEN, SOURCE, "what is & seen"))
    assert texts(tree) == [*SOURCE, *WRITTEN] * 3
    assert [node.text for node in tree.iter("div") if node.text] == ["head 0", "head 1", "head 2"]
    assert tree.find("figcaption").text == "what is & seen"
    assert parsed(Looks(weights(), WRITTEN, SOURCE)).find("figcaption") is None


def test_a_square_is_as_strong_as_its_weight_in_tenths():
    tree = parsed(Looks(weights(1), WRITTEN, SOURCE))
    squares = [(r.get("x"), r.get("y"), r.get("fill-opacity")) for r in tree.iter("rect")]
    assert [opacity for *_, opacity in squares] == ["0.7", "0.3", "1.0"]
    assert squares[0][1] == squares[1][1] != squares[2][1], "one row for each written character"
    assert len({x for x, *_ in squares}) == 3, "one column for each character of the source"


def test_the_text_names_where_each_written_character_looks_most():
    looks = Looks(weights(), WRITTEN, SOURCE)
    assert repr(looks) == "head 0: 年←a, <←&\nhead 1: 年←a, <←␣"
    labels = [svg.get("aria-label") for svg in parsed(looks).iter("svg")]
    assert [label.endswith(line[8:]) for label, line in zip(labels, repr(looks).split("\n"), strict=True)] == [True] * 2
    assert all(svg.get("role") == "img" for svg in parsed(looks).iter("svg"))


def test_weights_that_do_not_fit_the_texts_are_refused():
    with pytest.raises(ValueError, match=r"\(2, 2, 3\), but must be .* \(heads, 3, 2\)"):
        Looks(weights(), SOURCE, WRITTEN)
    for wrong in (weights() - 0.5, weights() * 2, weights() * torch.nan):
        with pytest.raises(ValueError, match="pass the weights, not the scores"):
            Looks(wrong, WRITTEN, SOURCE)


# ---- boxes and arrows

BOXES = {"in": (0, 0, "(2, 5)"), "*strong": (0, 1, "first\nsecond"), "a < b": (1, 1, "")}
ARROWS = [("in", "strong", "q"), ("strong", "a < b", "k, v"), ("strong", "in", ""), ("a < b", "in", "")]


def test_boxes_and_labels_are_text():
    tree = parsed(Diagram(BOXES, ARROWS, "a picture"))
    assert len(list(tree.iter("rect"))) == 3
    assert sorted(texts(tree)) == sorted(["in", "(2, 5)", "strong", "first", "second", "a < b", "q", "k, v"])
    assert tree.find("figcaption").text == "a picture"
    strong = [r for r in tree.iter("rect") if "stroke-width: 3" in r.get("style")]
    assert len(strong) == 1


def test_the_arrows_are_told_in_words_too():
    diagram = Diagram(BOXES, ARROWS)
    assert repr(diagram) == "in → strong (q)\nstrong → a < b (k, v)\nstrong → in\na < b → in"
    assert next(parsed(diagram).iter("svg")).get("aria-label").split("; ") == repr(diagram).split("\n")


@pytest.mark.parametrize("arrow", ARROWS)
def test_an_arrow_ends_at_its_box(arrow):
    path = next(parsed(Diagram(BOXES, [arrow])).iter("path")).get("d")
    ends = {"strong": "V91", "a < b": "H198", "in": "V61" if arrow[0] == "strong" else "H162"}
    assert ends[arrow[1]] in path


def test_a_box_is_as_high_as_the_most_lines_need():
    for lines, high in ((1, 46), (2, 61), (3, 76)):
        (box,) = parsed(Diagram({"a": (0, 0, "\n".join("b" * lines))}, [])).iter("rect")
        assert box.get("height") == str(high)


def test_arrows_there_and_back_do_not_lie_on_one_another():
    def points(arrow, arrows):
        path = list(parsed(Diagram(BOXES, arrows)).iter("path"))[arrows.index(arrow)].get("d")
        return re.match(r"M([\d.]+) ([\d.]+)", path).groups()

    for a, b in (("in", "strong"), ("strong", "a < b")):
        there, back = (a, b, ""), (b, a, "")
        (x, y), (to_x, to_y) = (points(one, [there, back]) for one in (there, back))
        assert (x != to_x) if a == "in" else (y != to_y)
    x = Diagram({"x": (0, 0, ""), "f": (1, 1, ""), "sum": (0, 2, "")}, [("x", "f", ""), ("f", "sum", "")])
    into, out = (path.get("d") for path in parsed(x).iter("path"))
    assert re.search(r"V([\d.]+)H198", into)[1] != re.match(r"M198 ([\d.]+)", out)[1], "a loop is seen as one"


@pytest.mark.parametrize(("columns", "rows"), [(4, 2), (3, 3), (4, 4), (2, 5)])
def test_a_wide_drawing_has_a_second_form_for_a_phone_with_letters_as_large_as_they_say(columns, rows):
    places = [(column, row) for column in range(columns) for row in range(rows)]
    boxes = {f"box {n}": (*place, "long words below its name") for n, place in enumerate(places)}
    drawn = Diagram(boxes, [("box 0", f"box {len(places) - 1}", "")])._repr_html_()
    both = [ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", drawn, re.DOTALL)]
    assert [svg.get("class") for svg in both] == (["wide", "phone"] if columns > 2 else [None])
    small, most = both[-1], {2: 364, 3: 344, 4: 344}[columns]
    assert float(small.get("viewBox").split()[2]) <= most
    said = [" ".join(texts(svg)) for svg in both]
    assert len({" ".join(sorted(words.split())) for words in said}) == 1, "the same words"
    for box in small.iter("rect"):
        inside = float(box.get("width")) / 6.2
        assert all(len(text) <= inside for text in texts(small)) or columns == 2


def test_two_drawings_on_a_page_share_no_id():
    for drawing in (Diagram(BOXES, ARROWS), Looks(weights(), WRITTEN, SOURCE)):
        assert not [node for node in parsed(drawing).iter() if node.get("id")]


def test_boxes_that_cannot_be_drawn_are_refused():
    with pytest.raises(ValueError, match=r"arrows lead to \['elsewhere'\]"):
        Diagram(BOXES, [("in", "elsewhere", "")])
    with pytest.raises(ValueError, match="one column and row"):
        Diagram({"a": (0, 0, ""), "b": (0, 0, "")}, [])


def titles_in_notebooks():
    """Every bold text in a stored drawing, with its size and the width of its box."""
    for path in sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb")):
        for cell in json.loads(path.read_text("utf8"))["cells"]:
            for output in cell.get("outputs", []):
                page = "".join(output.get("data", {}).get("text/html", ""))
                for box, texts in re.findall(r'<rect [^>]*?width="(\d+)"[^>]*/>((?:<text.*?</text>)*)', page):
                    for size, title in re.findall(r'font-size="([0-9.]+)" font-weight="bold"[^>]*>([^<]*)<', texts):
                        yield int(box), float(size), unescape(title)


def test_no_title_is_wider_than_its_box():
    """Measured in a wide font: a long title has several lines, and its letters can still be read on a phone."""
    measured = 0
    for box, size, title in titles_in_notebooks():
        bold = FontProperties(family="DejaVu Sans", weight="bold", size=size)
        width = TextPath((0, 0), title, prop=bold).get_extents().width
        measured += 1
        assert width <= box - 2 * diagram.BESIDE, title
        assert size >= 12, title
    assert measured > 30
