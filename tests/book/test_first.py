"""What a reader sees first: a drawing before the code of each chapter, imports as one line, parts that fold."""

import json
import re
import sys
from html import unescape
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from docutils import nodes
from docutils.utils import new_document
from programs import load

from mha.reference import EXAMPLE, attention

ROOT = Path(__file__).resolve().parents[2]
EXTENSIONS = ROOT / "book" / "_ext"
CHAPTERS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
FIGURE = re.compile(
    r'<figure class="mha-first" data-drawing="(\w+)"><p class="still">(.*?)</p>\s*'
    r"<figcaption>(.*?)</figcaption></figure>",
    re.DOTALL,
)
ON_A_DESK = {1: 480, 2: 340}  # pixels: how wide a panel is where it is alone, and where two are side by side
NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")


@pytest.fixture(scope="module")
def first():
    """The extension and its drawings, as Sphinx finds them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXTENSIONS)
        names = ("course_first", "course_drawings")
        for name in names:
            __import__(name)
        yield [sys.modules[name] for name in names]
        for name in [one for one in sys.modules if one.split(".")[0] in names]:
            sys.modules.pop(name)


def cells_of(path):
    return [(one, "".join(one["source"])) for one in json.loads(path.read_text("utf8"))["cells"]]


def figures():
    """Name, words and caption of each drawing."""
    return {one[1]: one for path in CHAPTERS for _, text in cells_of(path) for one in FIGURE.finditer(text)}


def told(svg):
    return " ".join(unescape(text) for text in re.findall(r"<text[^>]*>(.*?)</text>", svg))


# ---- the drawing


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_picture_stands_before_the_first_code_that_a_chapter_shows(path):
    quiet = load("book/_ext/course_quiet.py")
    cells = cells_of(path)
    code = [text for one, text in cells if one["cell_type"] == "code" and not quiet.only_imports(text)]
    shown = iter(quiet.fold_ahead(code, [True] * (len(code) - 1)))
    for one, text in cells:
        if one["cell_type"] == "markdown" and re.search(r'<figure class="mha-(first|live)"', text):
            return
        if one["cell_type"] == "code" and not quiet.only_imports(text):
            assert next(shown)[0] == "", "code is shown before the first picture"
            if "_repr_html_" in text or any("text/html" in out.get("data", {}) for out in one["outputs"]):
                return
    pytest.fail("no picture")


def test_each_drawing_is_used_once_and_one_with_the_name_of_a_chapter_in_that_chapter(first):
    for path in CHAPTERS:
        text = path.read_text("utf8")
        assert (path.stem[3:] in first[1].DRAWINGS) == (f'data-drawing=\\"{path.stem[3:]}\\"' in text), path
    texts = "".join(text for path in CHAPTERS for _, text in cells_of(path))
    assert set(figures()) == set(first[1].DRAWINGS)
    for name in first[1].DRAWINGS:
        assert texts.count(f'data-drawing="{name}"') == 1


def test_a_drawing_is_told_in_words_with_the_numbers_that_it_shows(first):
    for name, found in figures().items():
        words, caption = found[2], found[3]
        assert len(words) >= 100, name
        assert len(caption) >= 40, name
        page = first[0].drawn(name, words)
        shows = NUMBER.findall(told(page))
        assert not [one for one in NUMBER.findall(words) if one not in shows], name
        assert BeautifulSoup(page, "html.parser").div["aria-label"] == " ".join(words.split())


def test_the_numbers_of_the_running_example_are_its_own(first):
    x, sizes = EXAMPLE["x"], slice(0, 2)
    q, k, v = (
        [[sum(a * m[i][j] for i, a in enumerate(row)) for j in range(4)][sizes] for row in x]
        for m in (EXAMPLE["w_q"], EXAMPLE["w_k"], EXAMPLE["w_v"])
    )
    water, money = attention(q, k, v)[2]
    assert f"water after {water:.2g} money after {money:.1f}" in told(first[0].drawn("why_attention", ""))
    assert f"{water:.2f} head 0 {money:.2f}" in told(first[0].drawn("output_projection", ""))


def test_the_weights_of_the_drawing_on_entmax_are_those_of_the_package(first):
    torch = pytest.importorskip("torch")
    from mha.functional import entmax

    exact = entmax(torch.tensor([[[3.0, 2.0, 1.0, 0.0, -1.0]]], dtype=torch.float64), 1.5)[0, 0]
    for weight in exact[:2].tolist():
        assert f"{weight:.3f}" in told(first[0].drawn("sparsify", ""))
    assert (exact[2:] == 0).all()


def test_no_drawing_is_higher_than_a_screen(first):
    for name, draw in first[1].DRAWINGS.items():
        panels = draw()
        assert len(panels) in ON_A_DESK, name
        assert max(one.high for one in panels) * ON_A_DESK[len(panels)] / first[0].WIDE <= 520, name


def test_all_letters_are_inside_their_drawing_and_large_enough_on_a_phone(first, browser):
    tab = browser.new_page(viewport={"width": 390, "height": 844})
    style = (ROOT / "book/_static/first.css").read_text("utf8")
    drawings = [f'<figure class="mha-first">{first[0].drawn(name, name)}</figure>' for name in first[1].DRAWINGS]
    style += "body { margin: 16px } figure { margin: 0 } text { font-family: sans-serif }"
    tab.set_content(f"<!DOCTYPE html><style>{style}</style>{''.join(drawings)}")
    outside = """() => [...document.querySelectorAll("svg text")].filter(text => {
        const box = text.getBBox(), all = text.ownerSVGElement.viewBox.baseVal;
        return box.x < 0 || box.x + box.width > all.width || box.y < 0 || box.y + box.height > all.height;
    }).map(text => text.textContent)"""
    assert tab.evaluate(outside) == []
    small = """() => Math.min(...[...document.querySelectorAll("svg text")].map(
        text => text.getAttribute("font-size") * text.getScreenCTM().a))"""
    assert tab.evaluate(small) >= 11
    tab.close()


def test_a_page_gets_its_drawing_once(first, tmp_path):
    page = tmp_path / "a.html"
    page.write_text('<figure class="mha-first" data-drawing="select"><p class="still">six &lt; keys</p>\n<figcaption>x')
    for _ in range(2):  # a second build changes nothing
        first[0].draw_first(tmp_path)
        found = BeautifulSoup(page.read_text("utf8"), "html.parser")
        assert len(found.select("figure.mha-first > .panels.one > svg")) == 1
        assert found.select_one(".panels")["aria-label"] == "six < keys"
        assert found.select_one("figure.mha-first > figcaption").text == "x"


# ---- imports


def test_a_cell_that_only_imports_is_known():
    only_imports = load("book/_ext/course_quiet.py").only_imports
    assert only_imports("import a\nfrom b import c\n\n# everywhere\ntorch.set_default_dtype(torch.float64)")
    assert not only_imports("import a\na.run()")
    assert not only_imports("import a\nx = 1")
    assert not only_imports("# nothing")
    assert not only_imports("import a\n!ls")


def test_cells_that_only_import_become_one_line():
    quiet = load("book/_ext/course_quiet.py")
    page = new_document("page")
    for source in ("import a", "import b", "a.run()", "import c"):
        block = nodes.literal_block(source, source, language="python", classes=[])
        box = nodes.container("", block, classes=["cell_input"])
        page += nodes.container("", box, classes=["cell"])
    quiet.quiet(None, page)
    texts = [one.astext() for one in page.children]
    assert len(page.children) == 3
    begin, end = '<details class="quiet imports"><summary>imports</summary>', "</details>"
    assert re.fullmatch(rf"{begin}\s*import a\s+import b\s*{end}", texts[0])
    assert texts[1] == "a.run()"
    assert "import c" in texts[2]


# ---- the parts at the side


def test_only_the_part_of_a_page_is_open_at_the_side():
    caption = '<p aria-level="2" class="caption" role="heading"><span class="caption-text">{}</span></p>\n'
    one = '<ul class="nav bd-sidenav"><li>1<ul><li>2</li></ul></li></ul>\n'
    two = '<ul class="current nav bd-sidenav"><li>3</li></ul>\n'
    inside = f"<div>{caption.format('A & B')}{one}{caption.format('C')}{two}</div>"
    nav = f'<nav class="bd-links bd-docs-nav" aria-label="Main">{inside}</nav>'
    fold_parts = load("book/_ext/course_book.py").fold_parts
    page = fold_parts(f"<p>before</p>{nav}<p>after</p>")
    found = BeautifulSoup(page, "html.parser")
    parts = found.select("nav > div > details.part")
    assert [part.has_attr("open") for part in parts] == [False, True]
    assert [part.select_one("summary > [role=heading]")["aria-level"] for part in parts] == ["2", "2"]
    assert [len(part.select("li")) for part in parts] == [2, 1]
    assert fold_parts(page) == page
    assert found.select("p")[-1].text == "after"
    assert len(found.select("nav")) == len(found.select("nav > div")) == 1
