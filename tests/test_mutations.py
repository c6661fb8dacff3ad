"""The guard works: a change of one number, one picture or one output of a notebook makes pytest fail.

The beginning of a real chapter, up to its first picture, is copied and changed; pytest runs all copies with the
project's own settings.
"""

import base64
import copy
import io
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
CHAPTER = ROOT / "notebooks" / "01_why_attention.ipynb"


def is_code(cell):
    return cell.cell_type == "code"


def has_picture(cell):
    return is_code(cell) and any("image/png" in output.get("data", {}) for output in cell.outputs)


def beginning():
    """The cells of the chapter up to its first picture."""
    notebook = nbformat.read(CHAPTER, as_version=4)
    end = next(i for i, cell in enumerate(notebook.cells) if has_picture(cell)) + 1
    notebook.cells = notebook.cells[:end]
    return notebook


def printing(notebook):
    """The last cell that prints a number."""
    return [c for c in notebook.cells if is_code(c) and any(re.search(r"\d", o.get("text", "")) for o in c.outputs)][-1]


def nothing(notebook):
    pass


def one_digit(notebook):
    (output,) = printing(notebook).outputs
    output.text = re.sub(r"\d", lambda digit: str((int(digit[0]) + 1) % 10), output.text, count=1)


def one_output_deleted(notebook):
    printing(notebook).outputs = []


def all_outputs_cleared(notebook):
    for cell in filter(is_code, notebook.cells):
        cell.update(outputs=[], execution_count=None)


def one_picture_deleted(notebook):
    for output in notebook.cells[-1].outputs:
        output.get("data", {}).pop("image/png", None)


def one_picture_repainted(notebook):
    data = next(output.data for output in notebook.cells[-1].outputs if "image/png" in output.get("data", {}))
    file, picture = io.BytesIO(), plt.imread(io.BytesIO(base64.b64decode(data["image/png"])))
    plt.imsave(file, np.roll(picture, 3, axis=0), format="png")
    data["image/png"] = base64.b64encode(file.getvalue()).decode()


def data_of_the_figure(notebook):
    """The code draws other numbers, and the stored picture stays."""
    cell = notebook.cells[-1]
    changed = re.sub(r"(plot\.\w+\(\{\"[^\"]+\": )(\w+)\}", r"\1 0.9 * \2}", cell.source)
    assert changed != cell.source, f"no plot.…({{'title': data}}, …) in the first picture of {CHAPTER.name}"
    cell.source = changed


CHANGES = [
    nothing, one_digit, one_output_deleted, all_outputs_cleared,
    one_picture_deleted, one_picture_repainted, data_of_the_figure,
]  # fmt: skip


@pytest.fixture(scope="module")
def failures(tmp_path_factory):
    """For each change the messages of the cells that failed, from one run of pytest over all changed copies."""
    folder = tmp_path_factory.mktemp("course")
    for name in ("pyproject.toml", "conftest.py", "tests/nbval.cfg"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "notebooks").mkdir()
    original = beginning()
    for change in CHANGES:
        notebook = copy.deepcopy(original)
        change(notebook)
        nbformat.write(notebook, folder / "notebooks" / f"{change.__name__}.ipynb")
    command = [sys.executable, "-m", "pytest", "--junitxml=result.xml", "-p", "no:cacheprovider", "notebooks"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stdout + run.stderr  # 1: tests ran, and some failed
    found = {change.__name__: [] for change in CHANGES}
    cells = ElementTree.parse(folder / "result.xml").getroot().iter("testcase")
    for cell in cells:
        notebook = re.search(r"notebooks\W(\w+)", cell.get("classname") + cell.get("file", ""))[1]
        found[notebook] += ["".join(problem.itertext()) for problem in cell if problem.tag in ("failure", "error")]
    return found


def test_the_untouched_copy_passes(failures):
    assert failures["nothing"] == []


@pytest.mark.parametrize("change", [change.__name__ for change in CHANGES[1:]])
def test_this_change_is_noticed(failures, change):
    assert failures[change]


@pytest.mark.parametrize("moved", [0.0, 1e-5, 0.02])
def test_one_moved_point_is_seen_and_the_last_digits_of_a_float_are_not(request, moved):
    """Of thirty points one moves by a hundredth of the axis; other machines differ by far less."""
    conftest = request.config.pluginmanager.get_plugin(str(ROOT / "conftest.py"))

    def draw(shift):
        figure, file = plt.figure(figsize=(6, 3)), io.BytesIO()
        heights = np.sin(np.arange(30) / 5)
        heights[10] += shift
        figure.add_subplot().plot(heights, marker="o")
        figure.savefig(file)
        plt.close(figure)
        png = base64.b64encode(file.getvalue()).decode()
        return [{"data": {"image/png": png}}]

    assert bool(conftest.different_pictures(draw(0.0), draw(moved))) == (moved > 1e-3)


def test_the_message_says_what_changed(failures):
    assert "without having run" in failures["all_outputs_cleared"][0]
    assert "0 pictures are stored, 1 were drawn" in failures["one_picture_deleted"][0]
    for change in ("one_picture_repainted", "data_of_the_figure"):
        assert "picture 1 differs from the stored one" in failures[change][0]


def test_a_trained_picture_may_waver_and_not_change_its_meaning(request):
    """A curve that another processor draws a little higher passes; a curve that falls instead of rising does not."""

    conftest = request.config.pluginmanager.get_plugin(str(ROOT / "conftest.py"))

    def curve(y):
        figure = plt.figure(figsize=(4, 3))
        figure.add_subplot().plot(y, lw=2)
        data = io.BytesIO()
        figure.savefig(data, format="png")
        plt.close(figure)
        return [{"data": {"image/png": base64.b64encode(data.getvalue()).decode()}}]

    x = np.linspace(0, 1, 50)
    assert conftest.different_pictures(curve(x), curve(x**1.01))
    assert not conftest.different_pictures(curve(x), curve(x**1.01), conftest.TRAINED_LIMITS)
    assert conftest.different_pictures(curve(x), curve(1 - x), conftest.TRAINED_LIMITS)
