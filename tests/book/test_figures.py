"""The figures of the pages: drawn again from the stored numbers, the same on a desk, with large letters on a phone."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from programs import load

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
EVERY_KIND = ("01_", "02_", "03c", "13_", "25_")  # links, lines, grids, bars, upright lines, tiles, bars with errors
ON_A_PHONE = 336  # pixels: what a page of 390 leaves for a figure


@pytest.fixture(scope="module")
def figures():
    return load("book/_ext/course_figures.py")


def some(chosen, others):
    slow = pytest.mark.slow
    return [
        pytest.param(path, id=path.stem, marks=() if path.name.startswith(chosen) else others and slow)
        for path in NOTEBOOKS
        if '"drawn"' in path.read_text("utf8")
    ]


@pytest.mark.parametrize("path", some(EVERY_KIND, others=True))
def test_every_figure_is_drawn_again_with_the_same_numbers_and_can_be_read_on_a_phone(figures, path):
    for picture, numbers in figures.numbers_of(path).items():
        both = figures.drawings(numbers)  # nothing, if the numbers differ
        assert both, picture
        wide, small = (figures.size(drawing)[0] for drawing in both)
        assert wide <= 96 * figures.COLUMN + 8
        for drawing, scale in zip(both, (1, min(1, ON_A_PHONE / small)), strict=True):
            letters = [float(size) for size in re.findall(r"font(?:-size)?: [^;\"]*?([\d.]+)px", drawing)]
            assert letters
            assert min(letters) * scale * 96 / 72 >= 11
        assert all(ElementTree.fromstring(drawing) is not None and "DejaVu" not in drawing for drawing in both)


def test_other_numbers_are_not_taken_for_the_figure(figures):
    numbers = next(iter(figures.numbers_of(NOTEBOOKS[0]).values()))
    assert figures.fitting(numbers)[0] == "links"
    numbers["axes"][0]["artists"][1]["y"] = "0 -0.5"
    assert figures.fitting(numbers) is None
    assert figures.calls({"axes": [{"artists": [{"kind": "PolyCollection"}]}]}) == []


def test_a_page_shows_drawings_as_links_to_themselves_and_other_pictures_as_they_are(figures, tmp_path):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "_images").mkdir()
    name, _ = next(iter(figures.numbers_of(NOTEBOOKS[0]).items()))
    page, one, other = tmp_path / "notebooks" / f"{NOTEBOOKS[0].stem}.html", name + "0" * 52, "1" * 64
    page.write_text(
        f'<img alt="a" src="../_images/{one}.png"><img alt="b" src="../_images/{other}.png"><img src="c.png">'
    )
    for _ in range(2):  # a second build changes nothing
        figures.draw_figures(ROOT, tmp_path)
        shown = page.read_text()
        assert shown.count("<a ") == shown.count('<a class="large" href="../_images/') == 2
        assert re.search(
            rf'srcset="../_images/{one}-phone.svg"><img width="\d+" height="\d+" alt="a" src="[^"]*{one}.svg"', shown
        )
        assert f'href="../_images/{other}.png"' in shown
        assert '<img src="c.png">' in shown
    assert sorted(path.name for path in (tmp_path / "_images").iterdir()) == [f"{one}-phone.svg", f"{one}.svg"]
