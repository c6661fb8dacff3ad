"""`make lab` without a browser: the reader's folder keeps the reader's work, and gets what is new in the course."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from programs import ROOT, load

lab = load("tools/open_lab.py")


class Course:
    """Some notebooks as the course has them now, instead of all of them."""

    def __init__(self):
        self.now = {"01_a.ipynb": "one", "02_b.ipynb": "two"}

    def __call__(self, folder):
        for name, text in self.now.items():
            (folder / name).write_text(text, encoding="utf-8")
        return [folder / name for name in self.now]


@pytest.fixture
def course():
    return Course()


@pytest.fixture
def folder(tmp_path, course):
    """The folder after the first call."""
    place = tmp_path / "my-course"
    assert lab.update(place, course) == (["01_a.ipynb", "02_b.ipynb"], {})
    return place


def held(folder):
    return {path.name: path.read_text("utf8") for path in sorted(folder.glob("[!.]*"))}


def test_a_second_call_changes_nothing(folder, course):
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert lab.update(folder, course)[1] == {}
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert held(folder) == course.now


def test_what_the_reader_changed_stays(folder, course):
    (folder / "01_a.ipynb").write_text("mine")
    (folder / "notes.txt").write_text("mine, too")
    assert lab.update(folder, course)[1] == {}
    assert held(folder) == {"01_a.ipynb": "mine", "02_b.ipynb": "two", "notes.txt": "mine, too"}


def test_what_nobody_changed_is_replaced_and_what_was_removed_comes_back(folder, course):
    course.now |= {"01_a.ipynb": "one, better", "03_c.ipynb": "three"}
    (folder / "02_b.ipynb").unlink()
    assert lab.update(folder, course)[1] == {}
    assert held(folder) == course.now


def test_where_both_changed_it_the_new_one_is_beside_and_said_once(folder, course):
    (folder / "01_a.ipynb").write_text("mine")
    course.now["01_a.ipynb"] = "one, better"
    beside = folder / "01_a.new.ipynb"
    assert lab.update(folder, course)[1] == {"01_a.ipynb": beside}
    assert held(folder) == {"01_a.ipynb": "mine", "01_a.new.ipynb": "one, better", "02_b.ipynb": "two"}
    assert lab.update(folder, course)[1] == {}
    course.now["01_a.ipynb"] = "one, best"
    assert lab.update(folder, course)[1] == {"01_a.ipynb": beside}
    assert beside.read_text() == "one, best"
    beside.write_text("mine as well")
    course.now["01_a.ipynb"] = "one, at last"
    assert lab.update(folder, course)[1] == {"01_a.ipynb": folder / "01_a.new2.ipynb"}
    assert held(folder)["01_a.ipynb"] == "mine"
    assert held(folder)["01_a.new.ipynb"] == "mine as well"


def test_the_reader_who_takes_the_new_one_gets_the_next_one(folder, course):
    (folder / "01_a.ipynb").write_text("mine")
    course.now["01_a.ipynb"] = "one, better"
    lab.update(folder, course)
    (folder / "01_a.new.ipynb").replace(folder / "01_a.ipynb")
    course.now["01_a.ipynb"] = "one, best"
    assert lab.update(folder, course)[1] == {}
    assert held(folder) == course.now


@pytest.mark.parametrize("broken", ["", "{", "[]", None])
def test_without_its_list_everything_is_taken_for_the_readers(folder, course, broken):
    course.now["01_a.ipynb"] = "one, better"
    made = folder / lab.MADE
    made.unlink() if broken is None else made.write_text(broken)
    assert lab.update(folder, course)[1] == {"01_a.ipynb": folder / "01_a.new.ipynb"}
    assert held(folder)["01_a.ipynb"] == "one"


def test_what_jupyterlab_notes_when_a_notebook_is_opened_is_no_change():
    """It writes its own version, takes counts away, and joins or splits lines."""
    out = {"output_type": "stream", "name": "stdout", "text": ["a\n", "b"]}
    shown = {"output_type": "execute_result", "data": {"text/plain": ["1"]}, "metadata": {}, "execution_count": 1}
    cell = {
        "cell_type": "code",
        "source": ["x = 1\n", "x"],
        "outputs": [out, shown],
        "metadata": {},
        "execution_count": 1,
    }
    opened = {**cell, "source": "x = 1\nx", "metadata": {"trusted": True}, "execution_count": None}
    opened["outputs"] = [{**out, "text": "a\nb"}, {**shown, "data": {"text/plain": "1"}, "execution_count": 7}]

    def named(cell, **metadata):
        return lab.digest(json.dumps({"cells": [cell], "metadata": metadata}).encode())

    assert named(cell) == named(opened, kernelspec={"display_name": "other"})
    for change in (
        {"source": ["x = 2\n", "x"]},
        {"cell_type": "markdown"},
        {"outputs": [out]},
        {"outputs": [{**out, "text": "c"}, shown]},
        {"outputs": [out, {**shown, "data": {"text/plain": "2"}}]},
    ):
        assert named({**cell, **change}) != named(cell)
    assert lab.digest(b"no notebook") != lab.digest(b"neither")


def test_the_kernel_is_the_python_that_opens_the_course(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_PATH", "mine")
    found = lab.settings(tmp_path)
    assert found["JUPYTER_PATH"] == os.pathsep.join([str(tmp_path), "mine"])
    spec = json.loads((tmp_path / "kernels" / "python3" / "kernel.json").read_text("utf8"))
    assert spec["argv"] == [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]


def test_jupyterlab_opens_the_first_chapter_on_this_machine_only(tmp_path):
    begin = lab.command(tmp_path, "01_a.ipynb", 8901, browser=False, more=["--allow-root"])
    assert begin[:4] == [sys.executable, "-m", "jupyterlab", str(tmp_path / "01_a.ipynb")]
    assert {"--ip=127.0.0.1", "--port=8901", "--no-browser", "--allow-root"} <= set(begin)
    assert not {"--no-browser", "--port=None"} & set(lab.command(tmp_path, "01_a.ipynb"))


@pytest.mark.slow
def test_all_notebooks_are_written_and_git_and_the_tools_do_not_see_them(tmp_path):
    run = [sys.executable, "tools/open_lab.py", "--only-write", str(tmp_path)]
    told = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = sorted(path.name for path in tmp_path.glob("*.ipynb"))
    assert names == sorted(path.name for path in (ROOT / "notebooks").glob("[0-9]*.ipynb"))
    assert told == f"{len(names)} notebooks: {tmp_path}\n"
    assert lab.FOLDER.parent == Path(ROOT)
    for file, line in ((".gitignore", "/my-course/"), ("pyproject.toml", '"my-course"'), ("_config.yml", "my-course]")):
        assert line in (ROOT / file).read_text("utf8")
