"""The figures of the pages: drawn again by the stored calls, the same on a desk, with large letters on a phone."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from programs import load

from mha.viz import plot

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
EVERY_KIND = ("01_", "02_", "03c", "13_", "25_")  # links, lines, grids, bars, upright lines, tiles, bars with errors
drawn = load("tools/drawn.py")
ON_A_PHONE = 336  # pixels: what a page of 390 leaves for a figure


@pytest.fixture(scope="module")
def figures():
    return load("book/_ext/course_figures.py")


@pytest.fixture(scope="module")
def plugin(request):
    """The file conftest.py at the root, which compares what is drawn."""
    return request.config.pluginmanager.get_plugin(str(ROOT / "conftest.py"))


def some(chosen, others):
    slow = pytest.mark.slow
    return [
        pytest.param(path, id=path.stem, marks=() if path.name.startswith(chosen) else others and slow)
        for path in NOTEBOOKS
        if '"drawn"' in path.read_text("utf8")
    ]


@pytest.mark.parametrize("path", some(EVERY_KIND, others=True))
@pytest.mark.usefixtures("reader")  # the book is built without checked annotations
def test_every_figure_is_drawn_again_with_the_same_numbers_and_can_be_read_on_a_phone(figures, plugin, path):
    numbers, calls = numbers_of(path), figures.calls_of(path)
    assert calls.keys() == numbers.keys(), "make notebooks"
    for picture, call in calls.items():
        assert not plugin.unlike(numbers[picture], figures.draw(call, drawn.numbers), None, picture)
        by_day, by_night = figures.drawings(call).values()
        assert [figures.size(drawing) for drawing in by_night] == [figures.size(drawing) for drawing in by_day]
        (wide, high), (small, _) = (figures.size(drawing) for drawing in by_day)
        assert wide <= 96 * figures.COLUMN + 8
        assert high <= 500
        for drawing, scale in zip(by_day, (1, min(1, ON_A_PHONE / small)), strict=True):
            letters = [float(size) for size in re.findall(r"font(?:-size)?: [^;\"]*?([\d.]+)px", drawing)]
            assert letters
            assert min(letters) * scale * 96 / 72 >= 11
        for drawing in (*by_day, *by_night):
            assert ElementTree.fromstring(drawing) is not None
            assert "DejaVu" not in drawing
        for drawing in by_night:
            assert "fill: #121212" in drawing


def numbers_of(path):
    """The drawn numbers that a notebook stores for each of its pictures."""
    outputs = [out for cell in json.loads(path.read_text("utf8"))["cells"] for out in cell.get("outputs", ())]
    stored = [out["metadata"]["drawn"] for out in outputs if "drawn" in out.get("metadata", {})]
    return {one["picture"]: one["numbers"] for one in stored}


def test_a_call_that_draws_other_numbers_is_seen(figures, plugin):
    picture, (function, arguments) = next(iter(figures.calls_of(NOTEBOOKS[0]).items()))
    assert function == "links"
    head = next(iter(arguments["heads"].values()))
    head[0][0] += 0.01
    other = figures.draw((function, arguments), drawn.numbers)
    assert plugin.unlike(numbers_of(NOTEBOOKS[0])[picture], other, None, picture)


def test_a_call_is_stored_as_it_was_made_and_only_where_one_is_known():
    figure, given = Figure(), []
    assert drawn.call(figure) == {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plt, "show", lambda: given.append(drawn.call(plt.gcf())))
        plot.lines({"ä": (torch.tensor([1.0, 2.0]), [1 / 3, torch.nan])}, "x", "y", level={"end": 0.25})
        plot.grid({"a": np.eye(2)}, range(2), limits=(0.0, 1.5))
    one, two = (json.loads(text["call"]) for text in given)
    assert "ä" in given[0]["call"]
    assert str(one[1].pop("series")) == "{'ä': [[1.0, 2.0], [0.3333333, nan]]}"
    assert one == [
        "lines",
        {"x_label": "x", "y_label": "y", "x_log": False, "y_log": False, "marks": True, "level": {"end": 0.25},
         "place": None},
    ]  # fmt: skip
    assert two[1]["rows"] == [0, 1]
    assert two[1]["limits"] == [0, 1.5]


def test_a_page_shows_drawings_as_links_to_themselves_and_other_pictures_as_they_are(figures, tmp_path):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "_images").mkdir()
    name, _ = next(iter(figures.calls_of(NOTEBOOKS[0]).items()))
    page, one, other = tmp_path / "notebooks" / f"{NOTEBOOKS[0].stem}.html", name + "0" * 52, "1" * 64
    page.write_text(
        f'<img alt="a" src="../_images/{one}.png"><img alt="b" src="../_images/{other}.png"><img src="c.png">'
    )
    for _ in range(2):  # a second build changes nothing
        figures.draw_figures(ROOT, tmp_path)
        shown = page.read_text()
        assert re.findall(r'<a class="large ?([^"]*)" href="../_images/', shown) == ["by-day", "by-night", ""]
        for theme in ("", "-dark"):
            assert re.search(
                rf'srcset="../_images/{one}-phone{theme}.svg"><img width="\d+" height="\d+" alt="a" '
                rf'src="[^"]*{one}{theme}.svg"',
                shown,
            )
        assert f'href="../_images/{other}.png"' in shown
        assert '<img src="c.png">' in shown
    assert sorted(path.name for path in (tmp_path / "_images").iterdir()) == sorted(
        f"{one}{ending}.svg" for ending in ("", "-dark", "-phone", "-phone-dark")
    )


def test_a_page_shows_the_picture_of_its_theme_at_once_and_fetches_no_other(figures, opened, tmp_path):
    (tmp_path / "_images").mkdir()
    name, call = next(iter(figures.calls_of(NOTEBOOKS[0]).items()))
    long = name + "0" * 52
    image = f'<img alt="a" loading="lazy" src="./_images/{long}.png">'
    links = figures.with_drawings(image, {name: call}, tmp_path / "_images")
    style = (ROOT / "book" / "_static" / "figures.css").read_text("utf8")
    tab = opened(f"<style>{style}</style><main>{links}</main>", "A figure", (1280, 900))
    fetched = []
    tab.on("request", lambda request: fetched.append(request.url.rpartition("/")[2]))
    tab.reload()
    pictures = "[...document.querySelectorAll('img')].filter(e => e.checkVisibility())"
    for theme, wanted in (("light", [""]), ("dark", ["", "-dark"]), ("light", ["", "-dark"])):
        tab.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
        ending = "-dark" if theme == "dark" else ""
        assert tab.evaluate(f"{pictures}.map(e => e.src.split('/').pop())") == [f"{long}{ending}.svg"]
        tab.wait_for_function(f"{pictures}[0].naturalWidth > 0")
        assert {file for file in fetched if file.endswith(".svg")} == {f"{long}{one}.svg" for one in wanted}
    tab.evaluate("document.documentElement.dataset.theme = 'dark'")
    tab.emulate_media(media="print")
    assert tab.evaluate(f"{pictures}.map(e => e.src.split('/').pop())") == [f"{long}.svg"], "paper is light"


def test_a_stored_picture_is_drawn_again_without_executing_and_only_where_it_changed(tmp_path):
    redraw = load("tools/redraw.py").redraw
    notebook = json.loads(NOTEBOOKS[0].read_text("utf8"))
    outputs = [
        out for cell in notebook["cells"] for out in cell.get("outputs", ()) if "drawn" in out.get("metadata", {})
    ]
    old = outputs[0]["metadata"]["drawn"]
    function, arguments = json.loads(old["call"])
    assert function == "links"
    old["call"] = json.dumps([function, arguments | {"columns": ["a", "b", "c"]}])
    path = tmp_path / "one.ipynb"
    path.write_text(json.dumps(notebook), encoding="utf8")
    assert redraw(path) >= 1
    assert redraw(path) == 0, "the second time nothing changes"
    new = json.loads(path.read_text("utf8"))
    (found,) = [out for cell in new["cells"] for out in cell.get("outputs", ()) if "links" in str(out.get("metadata"))]
    written = [text for text, _ in found["metadata"]["drawn"]["numbers"]["axes"][0]["written"]]
    assert {"a", "b", "c"} <= set(written)
    assert found["metadata"]["drawn"]["picture"] == drawn.fingerprint(found["data"]["image/png"])
