"""How stored outputs are compared: what a reader could see fails, and what belongs to one processor passes."""

import ast
import base64
import copy
import io
import json
import re
from itertools import pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
from nbformat import v4
from programs import load

from mha import HeadView

ROOT = Path(__file__).resolve().parents[2]
CELLS = [
    (f"{path.stem} cell {number}", cell)
    for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
    for number, cell in enumerate(c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code")
    if "tolerance" in cell.metadata
]
drawn = load("tools/drawn.py")


@pytest.fixture
def plugin(request):
    """The file conftest.py at the root."""
    return request.config.pluginmanager.get_plugin(str(ROOT / "conftest.py"))


@pytest.fixture(autouse=True)
def no_figure_stays():
    yield
    plt.close("all")


def output(stored=True, **change):
    """The output of a cell that draws all kinds of things, with one of them changed."""
    curve, bars, image, dots = (
        np.array(x, dtype=float) for x in ([1, 3, 2], [0.5, 0.25], [[1, 2], [3, 4]], [[0, 1], [2, 3]])
    )
    for name, number in change.items():
        if name in ("curve", "bars", "image", "dots"):
            {"curve": curve, "bars": bars, "image": image, "dots": dots}[name].flat[1] += number
    figure, ((a, b), (c, d)) = plt.subplots(2, 2)
    a.plot(curve, color=change.get("color", "#0b6e99"), label=change.get("label", "first"))
    a.plot([0.0, 0.1, 0.2], label="second")
    a.fill_between(range(3), 0, curve, alpha=0.5)
    a.legend()
    b.bar(["one", change.get("category", "two")], bars, yerr=bars / 10)
    c.imshow(image)
    c.text(0, 0, change.get("written", "0.25"))
    d.scatter(*dots)
    d.set(title=change.get("title", "dots"), xlim=(0, change.get("right", 4)))
    file = io.BytesIO()
    figure.savefig(file)
    png = base64.b64encode(file.getvalue()).decode()
    shown = {"numbers": drawn.numbers(figure)}
    found = v4.new_output("display_data", data={"image/png": png, drawn.DRAWN: shown, "text/plain": "<Figure>"})
    if stored:
        load("tools/run_notebooks.py").normalize_output(found)
    return [found]


def test_the_same_figure_passes_whatever_its_pixels(plugin):
    new = output(stored=False)
    new[0].data["image/png"] = base64.b64encode(b"other pixels").decode()
    assert plugin.different(output(), new) == ""


@pytest.mark.parametrize(
    "kind", ["curve", *(pytest.param(one, marks=pytest.mark.slow) for one in ("bars", "image", "dots"))]
)
def test_one_moved_point_is_seen_and_the_rounding_of_floats_is_not(plugin, kind):
    for moved, seen in ((1e-7, False), (-1e-7, False), (1e-3, True), (-1e-3, True), (np.nan, True)):
        assert bool(plugin.different(output(), output(stored=False, **{kind: moved}))) is seen, moved


@pytest.mark.parametrize(
    "change",
    [
        {"color": "#d1495b"},
        {"label": "last"},
        {"category": "three"},
        {"written": "0.26"},
        {"title": "points"},
        {"right": 5},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_changed_word_color_or_limit_is_seen(plugin, change):
    assert "is stored" in plugin.different(output(), output(stored=False, **change))


def test_a_picture_that_was_not_drawn_with_its_numbers_is_refused(plugin):
    stored = output()
    stored[0].data["image/png"] = base64.b64encode(b"repainted").decode()
    assert "is not what was drawn" in plugin.different(stored, output(stored=False))
    stored = output()
    del stored[0].metadata["drawn"]
    assert "without its picture or its numbers" in plugin.different(stored, output(stored=False))


def test_a_picture_from_a_file_is_compared_as_a_file(plugin):
    one, other = ([v4.new_output("display_data", data={"image/png": png})] for png in ("AAAA", "BBBB"))
    assert plugin.different(one, copy.deepcopy(one)) == ""
    assert "another file" in plugin.different(one, other)


def test_within_a_tolerance_numbers_may_waver_and_words_may_not(plugin):
    def said(text):
        return [v4.new_output("stream", text=text)]

    old = "one head   0.934\ntwo heads −1.2e-1, 12 %"
    for new, seen in (
        (old.replace("0.934", "0.93900"), False),
        (old.replace("0.934", "0.956"), True),
        (old.replace("−1.2e-1", "-0.13"), False),
        (old.replace("12 %", "13 %"), True),
        (old.replace("one head", "1 head"), True),
        (old + " 3", True),
        (old.replace("0.934", "nan"), True),
    ):
        assert bool(plugin.different(said(old), said(new), 0.02)) is seen, new
    assert plugin.different(said(old), said(old.replace("0.934", "0.956"))) == "", "without one, nbval compares text"
    shown, other = ([v4.new_output("display_data", data={"text/plain": text})] for text in ("a 1.0", "a 1.1"))
    assert plugin.different(shown, other, 0.02)
    assert not plugin.different(shown, other, 0.2)


def test_within_a_tolerance_numbers_inside_html_are_read(plugin):
    weights = np.array([[[0.9, 0.1], [0.4, 0.6]]])
    page = [v4.new_output("display_data", data={"text/html": HeadView(weights, ["a", "b"])._repr_html_()})]
    for moved, seen in ((0.0, False), (0.01, False), (0.1, True)):
        near = weights + np.array([[[-moved, moved], [0, 0]]])
        new = [v4.new_output("display_data", data={"text/html": HeadView(near, ["a", "b"])._repr_html_()})]
        assert bool(plugin.different(page, new, 0.03)) is seen, moved
    assert plugin.unpack("0", "1", "AA//") == [0.0, 1.0]


# ---- the cells that state a tolerance


def test_a_tolerance_is_asked_for_by_few():
    assert len(CELLS) <= 8, "train in float64 first: then no tolerance is needed"


def test_a_tolerance_is_a_quarter_of_the_effect_at_most():
    for name, cell in CELLS:
        stated = cell.metadata.tolerance
        assert set(stated) == {"absolute", "effect", "claim"}, name
        assert 0 < stated["absolute"] <= stated["effect"] / 4, name
        assert len(stated["claim"]) >= 20, name
        assert stated["effect"] <= max(map(spread, rows(cell.outputs))), f"{name}: no row of numbers shows that effect"


def rows(outputs):
    """All rows of numbers that an output shows: curves, and the numbers that are printed."""
    for out in outputs:
        yield [float(x) for x in re.findall(r"-?\d+(?:\.\d+)?", out.get("text", ""))] or [0.0]
        for axis in out.get("metadata", {}).get("drawn", {}).get("numbers", {}).get("axes", []):
            yield from ([float(y) for y in artist["y"].split()] for artist in axis["artists"] if "y" in artist)


def spread(row):
    return max(row) - min(row)


def test_within_a_tolerance_no_two_curves_or_rows_can_be_taken_for_each_other(plugin):
    drawing = v4.new_code_cell(outputs=[*output(), v4.new_output("stream", text="one 0.5\ntwo 0.7\n")])
    drawing.metadata["tolerance"] = {"absolute": 0.02}
    for name, cell in [("a drawing", drawing), *CELLS]:
        swapped = list(swaps(cell.outputs))
        assert swapped, f"{name}: nothing in this output could be swapped"
        for other in swapped:
            assert plugin.different(cell.outputs, other, cell.metadata.tolerance["absolute"]), name


def swaps(outputs):
    """The outputs with two neighboring curves of a figure, or two lines of a text with numbers, exchanged."""
    for place, out in enumerate(outputs):
        if "text" in out:
            lines = out.text.splitlines()
            for n in range(len(lines) - 1):
                found = copy.deepcopy(outputs)
                found[place].text = "\n".join([*lines[:n], lines[n + 1], lines[n], *lines[n + 2 :]])
                yield found
        for a, axis in enumerate(out.get("metadata", {}).get("drawn", {}).get("numbers", {}).get("axes", [])):
            curves = [n for n, artist in enumerate(axis["artists"]) if "y" in artist]
            for one, two in pairwise(curves):
                found = as_new(outputs)
                artists = found[place].data[drawn.DRAWN]["numbers"]["axes"][a]["artists"]
                artists[one]["y"], artists[two]["y"] = artists[two]["y"], artists[one]["y"]
                yield found


def as_new(outputs):
    """Stored outputs as a kernel gives them."""
    found = copy.deepcopy(outputs)
    for out in found:
        if "drawn" in out.get("metadata", {}):
            out.data[drawn.DRAWN] = out.metadata.pop("drawn")
    return found


# ---- other processors


processors = load("tools/other_processors.py")


def test_a_processor_skips_by_name_what_it_cannot_play():
    rows = processors.playable("DEFAULT", "aarch64")
    assert [name for name, reason in rows.items() if not reason] == ["this processor"]
    assert "aarch64" in rows["AVX2"]
    rows = processors.playable("AVX2", "x86_64")
    assert [name for name, reason in rows.items() if not reason] == ["this processor", "SSE4.1"]
    assert not any(processors.playable("AVX512", "AMD64").values())


@pytest.mark.slow
def test_a_setting_is_really_played():
    reasons = processors.playable(processors.capability({}), processors.platform.machine())
    for name, settings in processors.SETTINGS.items():
        if settings and not reasons[name]:
            assert processors.capability(settings) == settings["ATEN_CPU_CAPABILITY"].upper()


@pytest.mark.slow
def test_a_failed_cell_is_named_with_its_notebook(tmp_path):
    cells = [v4.new_code_cell(source, execution_count=1) for source in ("1 + 1", "print(2)")]
    cells[0].outputs = [v4.new_output("execute_result", data={"text/plain": "2"}, execution_count=1)]
    cells[1].outputs = [v4.new_output("stream", text="3\n")]
    nbformat.write(v4.new_notebook(cells=cells), tmp_path / "05_wrong.ipynb")
    found = processors.play({}, 1, [tmp_path / "05_wrong.ipynb"], workers=0)
    assert [(failure.notebook, failure.cell) for failure in found.failures] == [("05_wrong", 1)]
    assert found.passed == 1
    assert "Cell outputs differ" in found.failures[0].message


@pytest.mark.slow
def test_a_cell_whose_package_is_missing_is_skipped_by_name_and_does_not_count(tmp_path):
    cells = [v4.new_code_cell(source, execution_count=1) for source in ("a = 1", "import nobody_has_this", "a = 2")]
    cells[1].metadata["needs"] = ["nobody_has_this"]
    nbformat.write(v4.new_notebook(cells=cells), tmp_path / "05_lacking.ipynb")
    found = processors.play({}, 1, [tmp_path / "05_lacking.ipynb"], workers=0)
    assert (found.passed, found.failures) == (2, [])
    assert [reason.partition(":")[0] for reason in found.skipped] == ["nobody_has_this is missing"]


def test_tables_that_are_quoted_are_those_of_the_benchmarks():
    page = (ROOT / "benchmarks" / "README.md").read_text("utf8")
    cells = json.loads((ROOT / "notebooks" / "12e_own_scores.ipynb").read_text("utf8"))["cells"]
    rows = [line for cell in cells for line in "".join(cell["source"]).splitlines() if line.startswith("| ")]
    assert len(rows) == 9
    assert [row for row in rows if row not in page] == []


def test_times_of_the_processor_in_room_12f_are_those_of_the_benchmarks():
    page = (ROOT / "benchmarks" / "README.md").read_text("utf8").partition("<!-- rankings -->")[2]
    cells = json.loads((ROOT / "notebooks" / "12f_fused_kernels.ipynb").read_text("utf8"))["cells"]
    source = next(text for text in ("".join(cell["source"]) for cell in cells) if text.startswith("processor = {"))
    quoted = ast.literal_eval(source.partition("= ")[2])
    assert len(quoted) == 8
    assert [f"| {name} | {times:.2f} |" for name, times in quoted.items()] == page.splitlines()[7:15]
