"""The guard works: a change of one number, one picture or one output of a notebook makes pytest fail.

The beginning of a real chapter, up to its first picture, is copied and changed, and so is a small training that states
a tolerance; pytest runs all copies with the project's own settings. `tests/book/test_outputs.py` asks the comparison.
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
from nbformat import v4
from programs import load

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
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


def one_drawn_number(notebook):
    artist = drawn(notebook)["axes"][0]["artists"][0]
    name = next(name for name in ("y", "values", "corners", "points") if name in artist)
    artist[name] = moved(artist[name], 0.01, only=1)


def moved(row, far, only=None):
    """A row of drawn numbers, all of them moved, or only one."""
    return " ".join(f"{float(x) + far * (only in (None, n)):.7g}" for n, x in enumerate(row.split()))


def drawn(notebook):
    (picture,) = (o for o in notebook.cells[-1].outputs if "image/png" in o.get("data", {}))
    return picture.metadata["drawn"]["numbers"]


def data_of_the_figure(notebook):
    """The code draws other numbers, and the stored picture stays."""
    cell = notebook.cells[-1]
    changed = re.sub(r"(plot\.\w+\(\{\"[^\"]+\": )(\w+)\}", r"\1 0.9 * \2}", cell.source)
    assert changed != cell.source, f"no plot.…({{'title': data}}, …) in the first picture of {CHAPTER.name}"
    cell.source = changed


CHANGES = [
    nothing, one_digit, one_output_deleted, all_outputs_cleared,
    one_picture_deleted, one_picture_repainted, one_drawn_number, data_of_the_figure,
]  # fmt: skip


# ---- a training that states a tolerance

TRAINING = [
    "import torch\n\nfrom mha.viz import plot",
    """torch.manual_seed(0)
curves = {}
for name, goal in (("up", 1.0), ("down", -1.0)):
    weight, way = torch.zeros(1, requires_grad=True), []
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(30):
        optimizer.zero_grad()
        (weight - goal).square().sum().backward()
        optimizer.step()
        way.append(weight.item())
    curves[name] = range(30), way
    print(f"{name:5} {way[-1]:.3f}")
plot.lines(curves, "step", "weight")""",
]
WITHIN, TOLERANCE = 0.005, 0.02


def within_the_tolerance(notebook):
    move(notebook, WITHIN)


def beyond_the_tolerance(notebook):
    move(notebook, 2 * TOLERANCE)


def one_point_beyond_the_tolerance(notebook):
    artist = drawn(notebook)["axes"][0]["artists"][0]
    artist["y"] = moved(artist["y"], 2 * TOLERANCE, only=7)


def two_curves_swapped(notebook):
    one, two = drawn(notebook)["axes"][0]["artists"][:2]
    one["y"], two["y"] = two["y"], one["y"]


def two_rows_swapped(notebook):
    rows = notebook.cells[-1].outputs[0].text.splitlines()
    notebook.cells[-1].outputs[0].text = "\n".join(reversed(rows)) + "\n"


def move(notebook, far):
    """Move every number that was trained."""
    output = notebook.cells[-1].outputs[0]
    output.text = re.sub(r"-?\d\.\d+", lambda number: f"{float(number[0]) + far:.3f}", output.text)
    for artist in drawn(notebook)["axes"][0]["artists"]:
        artist["y"] = moved(artist["y"], far)


TRAINED_CHANGES = [
    within_the_tolerance, beyond_the_tolerance, one_point_beyond_the_tolerance, two_curves_swapped, two_rows_swapped,
]  # fmt: skip


def trained(folder):
    """The small training, as `make notebooks` stores it."""
    notebook = v4.new_notebook(cells=[v4.new_markdown_cell("# A question?"), *map(v4.new_code_cell, TRAINING)])
    claim = "one weight goes up and the other goes down"
    notebook.cells[-1].metadata["tolerance"] = {"absolute": TOLERANCE, "effect": 2.0, "claim": claim}
    path = folder / "trained.ipynb"
    nbformat.write(notebook, path)
    load("tools/run_notebooks.py").run(path)
    return nbformat.read(path, as_version=4)


@pytest.fixture(scope="module")
def failures(tmp_path_factory):
    """For each change the messages of the cells that failed, from one run of pytest over all changed copies."""
    folder = tmp_path_factory.mktemp("course")
    own = ("drawn", "other_processors", "warm_kernels")  # what conftest.py imports from tools/
    for name in ("pyproject.toml", "conftest.py", "tests/nbval.cfg", *(f"tools/{module}.py" for module in own)):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "notebooks").mkdir()
    originals = {change: beginning() for change in CHANGES}
    originals |= dict.fromkeys(TRAINED_CHANGES, trained(folder))
    for change, original in originals.items():
        notebook = copy.deepcopy(original)
        change(notebook)
        nbformat.write(notebook, folder / "notebooks" / f"{change.__name__}.ipynb")
    command = [sys.executable, "-m", "pytest", "--junitxml=result.xml", "-p", "no:cacheprovider", "notebooks"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stdout + run.stderr  # 1: tests ran, and some failed
    found = {change.__name__: [] for change in originals}
    cells = ElementTree.parse(folder / "result.xml").getroot().iter("testcase")
    for cell in cells:
        notebook = re.search(r"notebooks\W(\w+)", cell.get("classname") + cell.get("file", ""))[1]
        found[notebook] += ["".join(problem.itertext()) for problem in cell if problem.tag in ("failure", "error")]
    return found


def test_the_untouched_copy_passes_and_what_stays_within_the_tolerance(failures):
    assert failures["nothing"] == []
    assert failures["within_the_tolerance"] == []


@pytest.mark.parametrize("change", [change.__name__ for change in [*CHANGES[1:], *TRAINED_CHANGES[1:]]])
def test_this_change_is_noticed(failures, change):
    assert failures[change]


def test_the_message_says_what_changed(failures):
    assert "without having run" in failures["all_outputs_cleared"][0]
    assert "without its picture or its numbers" in failures["one_picture_deleted"][0]
    assert "is not what was drawn with these numbers" in failures["one_picture_repainted"][0]
    for change in ("one_drawn_number", "data_of_the_figure", "one_point_beyond_the_tolerance"):
        assert re.search(r"picture 1.*is stored as \S+, and \S+ was computed", failures[change][0]), change
    assert "output" in failures["two_rows_swapped"][0]
