"""`make lab` as a new reader meets it: three notebooks in JupyterLab, before they are trusted and after they ran.

One server and one kernel serve all of it. JupyterLab draws only what is in sight, so cells are brought there first,
through the program's own object, which the page gives when the server is told to.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SHOTS = ROOT / "_build" / "screenshots"
BOOK = "jupyterapp.shell.currentWidget"
SHOWN = f"name => window.jupyterapp && {BOOK}?.context?.path === name && {BOOK}.content.widgets.length > 5"
OPEN = f"""name => {{
  const kernel = {BOOK}?.sessionContext?.session?.kernel;
  jupyterapp.commands.execute('docmanager:open', {{path: name, ...(kernel ? {{kernel: {{id: kernel.id}}}} : {{}})}});
}}"""
BRING = f"at => {BOOK}.content.scrollToItem(at, 'start').then(() => true)"
RUN = f"""at => {{
  {BOOK}.content.activeCellIndex = at;
  jupyterapp.commands.execute('notebook:run-cell');
}}"""
WRITE = f"([at, text]) => {{ {BOOK}.content.widgets[at].model.sharedModel.setSource(text); }}"
READY = f"() => {BOOK}.sessionContext.session?.kernel?.status === 'idle'"
SOFTMAX = """
import math
def my_softmax(row):
    exponentials = [math.exp(x - max(row)) for x in row]
    return [e / sum(exponentials) for e in exponentials]
check_softmax(my_softmax)
"""
SMALL_VIEW = "import torch, mha\nmha.HeadView(torch.eye(3).repeat(2, 1, 1), ['the', 'cat', 'sat'])"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The reader's folder."""
    if find_spec("jupyterlab") is None:
        pytest.skip("JupyterLab is not installed: `make lab` installs it, or pip install -e '.[lab]'")
    return tmp_path_factory.mktemp("lab") / "my-course"


@pytest.fixture(scope="module")
def server(folder):
    """JupyterLab as `make lab` starts it, without a password; gives its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    run = [sys.executable, str(ROOT / "tools" / "open_lab.py"), str(folder), "--no-browser", f"--port={port}"]
    run += ["--allow-root", "--IdentityProvider.token=", "--LabApp.expose_app_in_browser=True"]
    home = {"MHA_PROGRESS": str(folder.with_name("solved.json")), "JUPYTER_CONFIG_DIR": str(folder.with_name("config"))}
    home |= {"JUPYTER_DATA_DIR": str(folder.with_name("data")), "JUPYTER_RUNTIME_DIR": str(folder.with_name("runtime"))}
    log, address = folder.with_name("log.txt"), f"http://127.0.0.1:{port}"
    own = {"stdout": log.open("w"), "stderr": subprocess.STDOUT, "env": os.environ | home, "start_new_session": True}
    with own["stdout"], subprocess.Popen(run, **own) as process:
        try:
            wait_for(lambda: answers(address), process, log)
            yield address
        finally:
            os.killpg(process.pid, signal.SIGTERM)  # the server, which ends its kernel, and what started it


def answers(address):
    try:
        with urllib.request.urlopen(f"{address}/api/status", timeout=5):
            return True
    except OSError:
        return False


def wait_for(done, process, log):
    for _ in range(600):
        if done():
            return
        assert process.poll() is None, log.read_text("utf8")
        time.sleep(0.2)
    raise AssertionError(log.read_text("utf8"))


@pytest.fixture(scope="module")
def tab(browser, server):
    context = browser.new_context(viewport={"width": 1366, "height": 900}, color_scheme="light")
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.goto(f"{server}/lab/tree/01_why_attention.ipynb")
    page.wait_for_function(SHOWN, arg="01_why_attention.ipynb")
    page.wait_for_function(READY)
    yield page
    context.close()


def cells(folder, name):
    return json.loads((folder / name).read_text("utf8"))["cells"]


def find(folder, name, text):
    """The first cell with a text in its source or in its outputs."""
    return next(at for at, cell in enumerate(cells(folder, name)) if text in json.dumps(cell, ensure_ascii=False))


def opened(tab, name):
    tab.evaluate(OPEN, name)
    tab.wait_for_function(SHOWN, arg=name)


def cell(tab, at):
    """Bring a cell into sight."""
    tab.evaluate(BRING, at)
    found = tab.locator(f".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell[data-windowed-list-index='{at}']")
    found.wait_for()
    return found


def shot(tab, name):
    SHOTS.mkdir(parents=True, exist_ok=True)
    tab.screenshot(path=SHOTS / f"lab_{name}.png")


CHAPTER = "01_why_attention.ipynb"


def test_the_first_chapter_opens_and_nothing_asks_anything(tab):
    shot(tab, "title")
    assert tab.locator(".jp-Notebook h1").first.inner_text().startswith("Self-attention")
    tab.wait_for_timeout(1000)
    assert tab.locator(".jp-toast-message, .Toastify__toast").count() == 0
    assert "Python 3 (the course)" in tab.locator(".jp-NotebookPanel-toolbar").first.inner_text()


def test_solutions_are_last_and_closed(tab, folder):
    every = cells(folder, CHAPTER)
    at = find(folder, CHAPTER, "## Solutions")
    solutions = [n for n, one in enumerate(every) if one["metadata"].get("jupyter", {}).get("source_hidden")]
    solutions = [n for n in solutions if n > at]
    assert len(solutions) >= 3
    for n in solutions:
        source = "".join(every[n]["source"]).splitlines()[-1]
        shown = cell(tab, n)
        shown.locator(".jp-Placeholder").first.wait_for()
        assert source not in shown.inner_text()
        assert not shown.locator(".jp-InputArea .cm-content").is_visible()
    shot(tab, "solutions")


def test_the_quiz_can_be_read_before_it_is_trusted_and_be_answered_after_it_ran(tab, folder):
    at = find(folder, CHAPTER, "quiz.ask")
    output = cell(tab, at).locator(".jp-OutputArea")
    output.get_by_text("Run this cell to answer.").wait_for()
    shot(tab, "quiz_untrusted")
    assert output.locator("style, script").count() == 0
    lines = output.inner_text().splitlines()
    number = sum(line.startswith("a) ") for line in lines)
    assert number >= 5
    assert [line[:2] for line in lines if re.match(r"\d\. ", line)] == [f"{n}." for n in range(1, number + 1)]
    assert "Right." not in output.inner_text()

    start = next(
        n for n, one in enumerate(cells(folder, CHAPTER)) if "from mha.course import quiz" in "".join(one["source"])
    )
    tab.evaluate(RUN, start)
    tab.evaluate(RUN, at)
    output = cell(tab, at).locator(".jp-OutputArea")
    output.locator("style").wait_for(state="attached")
    assert not output.get_by_text("Run this cell to answer.").is_visible()
    assert not output.get_by_text("a)").first.is_visible()
    answer = output.locator("details.right").first
    answer.locator("summary").click()
    assert answer.locator("p").inner_text().startswith("✓ Right.")
    shot(tab, "quiz")


def test_an_exercise_is_solved_and_noted(tab, folder):
    """As a new reader would: the stub is filled in, and the cell runs."""
    at = find(folder, CHAPTER, "check_softmax(my_softmax)")
    assert "Not solved yet." in cell(tab, at).inner_text()
    before = "".join(cells(folder, CHAPTER)[at]["source"]).partition("def ")[0]  # what it imports
    tab.evaluate(WRITE, [at, before + SOFTMAX])
    tab.evaluate(RUN, at)
    cell(tab, at).get_by_text("✓ softmax: right on").wait_for()
    shot(tab, "exercise")
    assert list(json.loads(folder.with_name("solved.json").read_text("utf8"))["solved"]) == [
        "why_attention.check_softmax"
    ]


def test_a_slider_shows_its_picture_and_its_settings_before_it_is_trusted(tab, folder):
    name = "02_why_scale.ipynb"
    at = find(folder, name, "mha-frames")
    opened(tab, name)
    output = cell(tab, at).locator(".jp-OutputArea")
    output.get_by_text("Run this cell to choose.").wait_for()
    assert "Width of the head: d_k = 1, d_k = 4" in output.inner_text()
    assert output.locator("img").evaluate("image => image.decode().then(() => image.naturalWidth > 100)")
    assert output.locator("input").count() == 0
    shot(tab, "slider_untrusted")


def test_the_head_view_is_a_table_before_it_is_trusted_and_moves_after_it_ran(tab, folder):
    """The chapter trains its model first, so what runs here is a small view in its place."""
    name = "10_reading_heads.ipynb"
    at = find(folder, name, "mha-hv")
    opened(tab, name)
    output = cell(tab, at).locator(".jp-OutputArea")
    output.get_by_text("Run this cell to choose heads and tokens.").wait_for()
    assert output.locator("table").count() >= 2
    assert output.locator("button").count() == 0
    shot(tab, "headview_untrusted")
    tab.evaluate(WRITE, [at, SMALL_VIEW])
    tab.evaluate(RUN, at)
    output = cell(tab, at).locator(".jp-OutputArea")
    output.locator(".col button").nth(1).hover()
    assert (
        output.locator("p[aria-live]").inner_text() == "layer, head 0: “cat” gives “cat” 1.00, the most of all tokens."
    )
    assert not output.get_by_text("Run this cell").is_visible()
    shot(tab, "headview")
