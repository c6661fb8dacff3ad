"""The tools and files around the course: what the README promises, and how notebooks are stored."""

import base64
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import matplotlib.figure
import matplotlib.pyplot as plt
import nbformat
import pytest
from matplotlib.image import imread
from nbformat import v4
from programs import load

ROOT = Path(__file__).resolve().parents[2]


runner = load("tools/run_notebooks.py")


def write(path, *sources, tags=()):
    cells = [v4.new_markdown_cell("# A question?"), *map(v4.new_code_cell, sources)]
    cells[-1].metadata.update(tags=list(tags), collapsed=True)
    nbformat.write(v4.new_notebook(cells=cells), path)
    return path


# ---- notebooks are stored the same way on every run


def test_a_second_run_gives_the_same_bytes_and_keeps_the_shown_times(tmp_path):
    path = write(tmp_path / "a.ipynb", "print(1)", "1 + 1", "import time\ntime.time()", tags=["nbval-ignore-output"])
    assert runner.run(path) == "changed"
    first = path.read_bytes()
    assert runner.run(path) == "unchanged"
    assert path.read_bytes() == first
    assert runner.run(path, fresh=True) == "changed"
    assert path.read_bytes() != first


def test_a_figure_is_stored_with_the_numbers_that_were_drawn(tmp_path):
    sources = "import matplotlib.pyplot as plt", "plt.plot([1.0, 3.0, 2.0], label='a')\nplt.show()"
    path = write(tmp_path / "a.ipynb", *sources)
    runner.run(path)
    (output,) = nbformat.read(path, as_version=4).cells[2].outputs
    found = output.metadata["drawn"]
    assert set(output.data) == {"image/png", "text/plain"}
    assert found["numbers"]["axes"][0]["artists"][0]["y"] == "1 3 2"
    assert "call" not in found, "mha.viz.plot did not draw it"
    assert found["picture"] == load("tools/drawn.py").fingerprint(output.data["image/png"])


def test_of_a_grid_its_shape_and_the_names_at_its_sides_are_stored():
    figure, axis = plt.subplots()
    axis.imshow([[1.0, 2.0, 3.0]])
    axis.set_yticks([0], ["river"])
    (seen,) = load("tools/drawn.py").numbers(figure)["axes"]
    plt.close(figure)
    assert seen["artists"][0]["shape"] == "1 3"
    assert seen["ticks"] == [None, ["river"]]


def test_only_what_the_reader_sees_is_stored(tmp_path):
    path = write(tmp_path / "a.ipynb", "1", tags=["hide-input"])
    runner.run(path)
    stored = nbformat.read(path, as_version=4)
    assert stored.metadata == runner.NOTEBOOK_METADATA
    assert stored.cells[1].metadata == {"tags": ["hide-input"]}
    assert stored.cells[1].execution_count == 1
    assert stored.cells[1].outputs[0].data["text/plain"] == "1"


def test_solutions_are_stored_folded_and_what_an_editor_folded_is_not():
    mark, code = v4.new_markdown_cell, v4.new_code_cell
    cells = [
        mark(":::{solution-start} ex-a\n:::"),
        code("1"),
        code("2"),
        mark("Because.\n\n:::{solution-end}\n:::"),
        code("3"),
    ]
    notebook = v4.new_notebook(cells=cells)
    for cell in notebook.cells:
        cell.metadata["jupyter"] = {"source_hidden": True, "lab": 1}
    runner.normalize(notebook)
    folded = {"jupyter": {"source_hidden": True, "outputs_hidden": True}}
    assert [cell.metadata for cell in notebook.cells] == [{}, folded, folded, {}, {}]


def test_a_cell_keeps_its_id_when_its_neighbors_change(tmp_path):
    def ids(*sources):
        notebook = nbformat.read(write(tmp_path / "a.ipynb", *sources), as_version=4)
        runner.normalize(notebook)
        return [cell.id for cell in notebook.cells[1:]]

    before, after = ids("a = 1", "a", "a"), ids("b = 2", "a = 1", "a", "a")
    assert after[1:] == before
    assert len(set(before)) == 3
    assert before[2] == before[1] + "-2"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("assert 1 == 2, 'no'", r'cell 3 \(code cell 2, starts "assert 1 == 2.*raised AssertionError: no'),
        ("import sys\nprint('careful', file=sys.stderr)", r"cell 3 .* wrote to stderr:\s+careful"),
        (f"print({str(ROOT / 'mha')!r})", r"cell 3 .* prints a path of this machine"),
    ],
)
def test_a_cell_that_raises_warns_or_names_this_machine_is_not_stored(tmp_path, source, reason):
    path = write(tmp_path / "a.ipynb", "1", source, "3")
    before = path.read_bytes()
    with pytest.raises(runner.RefusedError, match=reason):
        runner.run(path)
    assert path.read_bytes() == before


def test_a_cell_that_needs_a_missing_package_is_not_stored_and_one_with_it_keeps_saying_so(tmp_path):
    path = write(tmp_path / "a.ipynb", "1", "2")
    notebook = nbformat.read(path, as_version=4)
    for needed, refused in (("torch", False), ("nobody_has_this", True)):
        notebook.cells[2].metadata["needs"] = [needed]
        nbformat.write(notebook, path)
        if refused:
            with pytest.raises(runner.RefusedError, match=r"cell 3 \(code cell 2.*needs nobody_has_this: pip install"):
                runner.run(path)
        else:
            runner.run(path)
            assert nbformat.read(path, as_version=4).cells[2].metadata["needs"] == ["torch"]


def test_a_cell_that_does_not_end_is_stopped_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "TIMEOUT", 1)
    path = write(tmp_path / "a.ipynb", "1", "while True:\n    pass", "3")
    with pytest.raises(runner.RefusedError, match=r"cell 3 \(code cell 2, .* did not finish within 1 seconds"):
        runner.run(path)


def test_an_expected_error_is_stored_without_the_traceback_of_this_machine(tmp_path):
    path = write(tmp_path / "a.ipynb", "import mha\nmha.causal_mask(-1)", tags=["raises-exception"])
    runner.run(path)
    (error,) = nbformat.read(path, as_version=4).cells[1].outputs
    assert error.traceback == [f"{error.ename}: {error.evalue}"]
    assert str(ROOT) not in path.read_text(encoding="utf-8")


def test_a_picture_keeps_its_pixels_and_loses_its_comments():
    def draw(software):
        figure, file = matplotlib.figure.Figure(figsize=(1, 1)), io.BytesIO()
        figure.add_subplot().plot([1, 3, 2])
        figure.savefig(file, metadata={"Software": software})
        return base64.b64encode(file.getvalue()).decode()

    one, two = draw("version 1"), draw("version 2")
    assert one != two
    assert runner.plain_png(one) == runner.plain_png(two)
    pixels = [imread(io.BytesIO(base64.b64decode(png))) for png in (one, runner.plain_png(one))]
    assert (pixels[0][..., :3] == pixels[1]).all()
    assert (pixels[0][..., 3] == 1).all()


# ---- the first command


@pytest.mark.parametrize(
    ("version", "words"), [((3, 9), "older than the course supports"), ((3, 14), "newer than the course supports")]
)
def test_a_python_that_is_too_old_or_too_new_is_named(monkeypatch, capsys, version, words):
    monkeypatch.setattr(sys, "version_info", version)
    assert load("tools/check_python.py").main() == 1
    said = capsys.readouterr().out
    assert words in said
    assert "3.10 to 3.13" in said


def test_this_python_is_accepted_without_a_word(capsys):
    assert load("tools/check_python.py").main() == 0
    assert capsys.readouterr().out == ""


def test_the_supported_pythons_are_the_same_everywhere():
    check, project = load("tools/check_python.py"), (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (low, high), workflow = (check.OLDEST, check.NEWEST), (ROOT / ".github/workflows/course.yml").read_text()
    assert f'requires-python = ">={low[0]}.{low[1]},<{high[0]}.{high[1] + 1}"' in project
    assert "python: " + str([f"3.{i}" for i in range(low[1], high[1] + 1)]).replace("'", '"') in workflow


def test_constraints_pin_everything_and_name_no_host():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert all(re.match(r"[a-z0-9-]+==[^ ]+( ; .+)?$", line) for line in lines)
    assert not [line for line in lines if line.startswith(("cuda", "nvidia", "triton")) or "://" in line]
    assert load("tools/make_constraints.py").TORCH in lines


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "book/set_up.md"])
def test_every_make_command_of_the_pages_exists(page):
    named = set(re.findall(r"(?:^|`)make ([a-z]+(?:-[a-z]+)*)", (ROOT / page).read_text(encoding="utf-8"), re.M))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    assert {"book", "test"} & named
    assert named <= targets


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_every_link_of_the_pages_leads_to_a_file(page):
    links = re.findall(r"\]\((?!https?://)([^)#]+)\)", (ROOT / page).read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []


# ---- which torch


FAKE = """#!/bin/sh
echo "$*" >> asked
case "$*" in *--torch-backend=*) test ! -e silent;; esac
"""


@pytest.fixture
def project(tmp_path):
    """The Makefile and an environment whose Python only writes down what it is asked; with ``silent``, uv fails."""
    if os.name == "nt":
        pytest.skip("make")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "activate").write_text(str(tmp_path / ".venv"))
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    program(tmp_path / ".venv" / "bin" / "python", FAKE)
    mark(tmp_path, ".made")
    return tmp_path


def program(path, script):
    path.write_text(script)
    path.chmod(0o755)


def mark(project, name):
    """A mark in the environment, older than everything."""
    (project / ".venv" / name).touch()
    os.utime(project / ".venv" / name, (1, 1))


def make(project, *arguments):
    """What make prints, and what it asks Python about torch."""
    clean = {name: value for name, value in os.environ.items() if name not in ("TORCH", "MAKEFLAGS", "MAKELEVEL")}
    clean["PATH"] = f"{project}{os.pathsep}{clean['PATH']}"
    done = subprocess.run(["make", *arguments], capture_output=True, text=True, cwd=project, env=clean)
    assert done.returncode == 0, done.stderr
    asked = project / "asked"
    return done.stdout, [line for line in asked.read_text().splitlines() if "torch" in line] if asked.exists() else []


@pytest.mark.parametrize(("card", "build"), [("exit 0", "auto"), ("echo 'GPU 0'; exit 9", "cpu")])
def test_where_nobody_has_chosen_only_a_card_that_answers_brings_the_large_torch(project, card, build):
    program(project / "nvidia-smi", f"#!/bin/sh\n{card}\n")
    told, (asked,) = make(project, ".venv/.torch")
    assert asked.endswith(f"--torch-backend={build} -c constraints.txt torch")
    for words in (f"index: {build}", "0.2 GB", "TORCH=cpu"):
        assert words in told
    assert "did not work" not in told


def test_where_the_index_of_torch_does_not_answer_pip_takes_over_and_says_so(project):
    (project / "silent").touch()
    told, asked = make(project, ".venv/.torch")
    assert "--torch-backend=" in asked[0]
    assert asked[1:] == ["-m pip --disable-pip-version-check install -c constraints.txt torch"]
    for words in ("That did not work", "5 GB", "TORCH=cpu"):
        assert words in told


def test_a_build_that_somebody_has_chosen_is_never_replaced_by_another(project):
    (project / "silent").touch()
    with pytest.raises(AssertionError, match="torch-cu126"):
        make(project, ".venv/.torch-cu126", "TORCH=cu126")
    assert "-m pip --disable-pip-version-check install -c constraints.txt torch" not in (project / "asked").read_text()


@pytest.mark.parametrize(
    ("marks", "given", "build"),
    [
        ([], [], "$build"),
        ([], ["TORCH=cu126"], "cu126"),
        ([".torch-cpu"], [], "cpu"),
        ([".torch-cpu"], ["TORCH=auto"], "auto"),
    ],
)
def test_a_choice_is_kept_in_the_environment(project, marks, given, build):
    """New constraints take the new version of the same build."""
    for name in marks:
        mark(project, name)
    told, _ = make(project, "--dry-run", *given, ".venv/.with-book,test")
    assert re.findall(r"--torch-backend=(\S+)", told) == [build]
    assert "pip --disable-pip-version-check install -c constraints.txt -e '.[book,test]'" in told


# ---- an environment of its own


USE = """
import mha, torch
from mha.course import TOPICS, quiz
from mha.course.comparison import results
from mha.viz.headview import HeadView
layer = mha.MultiHeadAttention(8, 2)
with mha.watch(layer, "weights") as seen:
    layer(torch.zeros(1, 3, 8))
assert "mha-hv" in HeadView(seen.weights[0], ["a", "b", "c"])._repr_html_()
assert results.stored()["rows"]
assert all(quiz.ask(topic).questions for topic in ("start", *TOPICS))
print(mha.__file__)
"""


@pytest.mark.slow
def test_the_installed_package_holds_all_that_it_needs(tmp_path):
    """Built and installed into a second environment, which borrows torch and the rest from this one."""
    venv.create(tmp_path / "second", with_pip=False)
    (packages,) = (tmp_path / "second").glob("**/site-packages")
    (packages / "borrowed.pth").write_text(
        sysconfig.get_path("purelib")
    )  # its own .pth files, so this checkout, are not read
    source = tmp_path / "source"  # a build leaves its traces there
    shutil.copytree(ROOT / "mha", source / "mha", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", f"--target={packages}", str(source)]
    built = subprocess.run(build, capture_output=True, text=True, cwd=tmp_path)
    if "setuptools" in built.stderr and built.returncode:
        pytest.skip("building a package needs setuptools from the network")
    assert built.returncode == 0, built.stderr[-2000:]
    python = tmp_path / "second" / ("Scripts" if os.name == "nt" else "bin") / "python"
    used = subprocess.run([python, "-W", "error", "-c", USE], capture_output=True, text=True, cwd=tmp_path)
    assert used.returncode == 0, used.stderr[-2000:]
    assert Path(used.stdout.strip()).is_relative_to(packages)


# ---- continuous integration


def test_every_action_is_pinned_by_commit_and_may_only_read_but_to_publish():
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        text = path.read_text(encoding="utf-8")
        uses = re.findall(r"uses: (.*)", text)
        assert uses
        assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", use) for use in uses), uses
        assert "\npermissions:\n  contents: read\n\n" in text
        assert re.findall(r"(\S+): write", text) == ["contents", "pages", "id-token"]
