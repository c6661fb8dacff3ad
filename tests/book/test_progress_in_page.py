"""In a browser, on small pages: an exercise is solved, a quiz answered, and the record goes out and comes in."""

import functools
import http.server
import json
import shutil
import threading

import pytest
from judged import MICROPYTHON, ROOT
from live_figures import BOOK, SIZES
from test_exercises_in_page import CELL, RIGHT, STATIC, course_exercises

from mha.course import quiz, record
from mha.course.exercises import progress

pytestmark = pytest.mark.slow
PAGE = "notebooks/01_why_attention.html"
NAMES = ("softmax", "read", "attention")
TITLE = '<div class="exercise admonition"><p class="admonition-title">Exercise ({name})</p></div><details></details>'
HEAD = '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
HEAD += '<link rel="icon" href="data:,">'
COLORS = """<style>:root { --pst-color-background: #fff; --pst-color-text-base: #222832; }
html[data-theme=dark] { --pst-color-background: #14181e; --pst-color-text-base: #ced6dd; }
a { color: var(--pst-color-link); } nav li { margin: 1rem 0; }</style>"""  # what the book's theme adds here
SIDE = """<nav class="bd-links" aria-label="The book"><ul>
<li class="toctree-l1"><a href="../notebooks/01_why_attention.html">01</a></li>
<li class="toctree-l1"><a href="../notebooks/02_why_scale.html">02</a></li>
<li class="toctree-l1"><a href="../notebooks/03_masking.html">03</a></li></ul></nav>"""
MAP = """<div class="mha-progress"></div><table><thead><tr><th>chapter</th><th>needs</th></tr></thead>
<tbody><tr><td><a href="../notebooks/02_why_scale.html">Scale</a></td>
<td><a href="../notebooks/01_why_attention.html">chapter 01</a></td></tr></tbody></table>"""
READ = """def my_read(q, keys, values):
    scores = [sum(a * b for a, b in zip(q, key, strict=True)) / len(q) ** 0.5 for key in keys]
    weights = my_softmax(scores)
    return [sum(w * x for w, x in zip(weights, column, strict=True)) for column in zip(*values, strict=True)]
"""
SOLVED = {"why_attention.check_softmax": "2026-01-02T03:04:05+00:00", "masking.check_causal": None}


def write_pages(folder):
    """A chapter, another one, and the map, with the scripts and the Python that the book has."""
    static = folder / "_static"
    (static / "vendor" / "micropython").mkdir(parents=True)
    for name in ("progress.js", "python.js", "exercises.js", "quiz.js", "tryit-worker.mjs"):
        shutil.copy2(STATIC / name, static / name)
    style = "".join((STATIC / name).read_text("utf8") for name in ("book.css", "exercises.css"))
    for name in ("micropython.mjs", "micropython.wasm"):
        shutil.copy2(MICROPYTHON / name, static / "vendor" / "micropython" / name)
    shutil.copy2(ROOT / "mha" / "reference.py", static / "vendor" / "micropython" / "reference.py")
    cells = [TITLE.format(name=n) + CELL.format(function=f"my_{n}", checker=f"check_{n}") for n in NAMES]
    asked = quiz.ask("why_attention")._repr_html_()
    scale = TITLE.format(name="std") + CELL.format(function="my_std", checker="check_std")
    bodies = {PAGE: "".join(cells) + asked, "notebooks/02_why_scale.html": scale, "book/map.html": MAP}
    for name, body in bodies.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        script = '<script defer src="../_static/progress.js"></script>'
        path.write_text(
            f"{HEAD}<title>A page</title>{BOOK}<style>{style}</style>{COLORS}{script}</head>"
            f"<body>{SIDE}<main><h1>A page</h1>{body}</main></body></html>",
            "utf8",
        )
    course_exercises.offer_exercises(ROOT, folder, runs=True)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Serve the pages on this machine only."""
    if not MICROPYTHON.is_dir():
        pytest.skip("MicroPython is not here: install Node, then `make book` fetches the package")
    folder = tmp_path_factory.mktemp("site")
    write_pages(folder)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, ".mjs": "text/javascript"}  # noqa: RUF012

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def visit(browser, address):
    """Open pages one after the other in one new browser; any error in a page fails the test at its end."""
    contexts, problems = [], []

    def open_it(page, size="desktop", theme="light"):
        if not contexts:
            viewport = dict(zip(("width", "height"), SIZES[size], strict=True))
            contexts.append(browser.new_context(viewport=viewport, color_scheme=theme))
        tab = contexts[0].new_page()
        tab.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.goto(f"{address}/{page}")
        return tab

    yield open_it
    for context in contexts:
        context.close()
    assert problems == []


def answer(tab, name, text, by="keyboard"):
    """Write an answer and have it checked; gives what the checker says."""
    cell = tab.locator(f"[data-exercise='{name}']")
    cell.locator("textarea").fill(text)
    if by == "keyboard":
        cell.locator("textarea").press("Control+Enter")
    else:
        cell.get_by_role("button", name=by).click()
    done = f"[data-exercise='{name}'] .answer-output:is([data-state=done], [data-state=right], [data-state=error])"
    tab.wait_for_selector(done, timeout=30_000)
    return cell.locator(".answer-output").text_content()


def marks(tab, where):
    """The mark of each link, by the number of its chapter."""
    read = "links => links.map(a => [a.firstChild.textContent, a.querySelector('.mha-mark')?.textContent ?? ''])"
    return dict(tab.locator(where).evaluate_all(read))


def kept(tab):
    return json.loads(tab.evaluate("localStorage.getItem('mha-progress')"))


def test_a_stub_is_an_editor_and_nothing_says_for_ever_that_it_is_not_solved(visit):
    tab = visit(PAGE)
    assert tab.locator("textarea").count() == 2
    assert tab.locator("textarea").first.input_value() == "def my_softmax(x):\n    return None"
    assert tab.get_by_text("Not solved yet.").locator("visible=true").count() == 1, "the one that needs PyTorch"
    assert "needs PyTorch" in tab.locator("p.mha-elsewhere").inner_text()


def test_an_exercise_is_solved_in_the_page(visit):
    tab = visit(PAGE)
    name = "why_attention.check_softmax"
    said = answer(tab, name, "def my_softmax(row):\n    return [x / sum(row) for x in row]")
    assert said == (
        "✗ softmax: yours gives [0, 1], right is [0.2689, 0.7311]\n  input: row = [0, 1]\n"
        "  It looks like this: each number divided by the sum, without the exponential."
    )
    assert tab.locator(".mha-mark").count() == 0
    assert answer(tab, name, "def my_softmax(row):\n    return None", by="Check") == "Not solved yet."
    assert "NameError" in answer(tab, name, "def my_softmax(row):\n    return np.exp(row)")
    assert "The page has plain Python only" in tab.locator(".answer-output").first.text_content()
    assert answer(tab, name, f"{RIGHT}print(my_softmax([0, 0]))", by="Run") == "[0.5, 0.5]\n"
    assert tab.locator(".mha-mark").count() == 0, "Run does not judge"
    assert answer(tab, name, RIGHT).startswith("✓ softmax: right on 5 cases.")
    assert tab.locator(".exercise .mha-mark").all_inner_texts() == ["✓ solved"]
    assert marks(tab, "nav a") == {"01": "1/2", "02": "", "03": ""}
    said = answer(tab, "why_attention.check_read", READ)
    assert said.startswith("✓ what one query reads: right on 2 cases."), "it may call the softmax above"
    assert marks(tab, "nav a") == {"01": "✓", "02": "", "03": ""}
    other = visit("notebooks/02_why_scale.html")
    assert marks(other, "nav a") == {"01": "✓", "02": "", "03": ""}
    again = visit(PAGE)
    assert again.locator("textarea").first.input_value() == RIGHT, "what was written is kept"
    again.get_by_role("button", name="Reset").first.click()
    assert again.locator("textarea").first.input_value() == "def my_softmax(x):\n    return None"
    assert sorted(kept(again)["solved"]) == ["why_attention.check_read", name]


def test_enter_keeps_the_indentation(visit):
    area = visit(PAGE).locator("textarea").first
    area.fill("")
    area.press_sequentially("def f(x):\nif x:\nreturn 1\ny")
    assert area.input_value() == "def f(x):\n    if x:\n        return 1\n        y"


def test_a_loop_without_end_is_stopped(visit):
    tab = visit(PAGE)
    cell = tab.locator("[data-exercise='why_attention.check_softmax']")
    cell.locator("textarea").fill("def my_softmax(row):\n    while True:\n        pass")
    cell.get_by_role("button", name="Check").click()
    tab.wait_for_selector(".answer-output[data-state=stopped]", timeout=30_000)
    assert "is there a loop that never ends?" in cell.locator(".answer-output").text_content()
    assert answer(tab, "why_attention.check_softmax", RIGHT).startswith("✓")


def test_first_answers_to_a_quiz_count_and_all_are_kept(visit):
    tab = visit(PAGE)
    questions = tab.locator(".mha-quiz section").all()
    questions[0].locator("details:not(.right) summary").first.click()
    for question in questions:
        question.locator("details.right summary").click()
    tab.wait_for_function("localStorage.getItem('mha-progress')?.includes('first')")
    assert "quiz" in kept(tab)
    found = kept(tab)["quiz"]["why_attention"]
    assert (found["right"], found["of"]) == (len(questions) - 1, len(questions))
    assert f"{len(questions) - 1} of {len(questions)} right" in tab.locator(".mha-quiz-said").inner_text()
    again = visit(PAGE)
    assert again.locator(".mha-quiz details[open]").count() == len(questions) + 1
    again.get_by_role("button", name="Answer again").click()
    assert again.locator(".mha-quiz details[open]").count() == 0
    assert "answers" in kept(again)
    assert kept(again)["quiz"]["why_attention"] == found, "the best result stays"


def test_the_record_of_notebooks_comes_in_and_goes_out(visit, tmp_path, monkeypatch, capsys):
    notebook = tmp_path / ".mha_progress.json"
    monkeypatch.setenv("MHA_PROGRESS", str(notebook))
    notebook.write_text(json.dumps({"version": 1, "solved": list(SOLVED), "mine": [1]}), "utf8")
    record.note_quiz("masking", 4, 5)
    tab = visit("book/map.html")
    assert "0 of" in tab.locator(".mha-progress").inner_text()
    tab.locator(".mha-progress input").set_input_files(notebook)
    tab.get_by_text("Exercises: 2. Quizzes: 1.").wait_for()
    assert marks(tab, "nav a") == {"01": "1/2", "02": "", "03": "1/4"}
    page = visit(PAGE)
    assert answer(page, "why_attention.check_read", "def my_read(*_):\n    return 1").startswith("✗")
    page.evaluate("mhaProgress.solve('why_scale.check_std')")
    assert tab.locator("td .mha-mark").all_inner_texts() == ["✓"], "the other page sees it"
    with tab.expect_download() as download:
        tab.get_by_role("button", name="Save as a file").click()
    saved = tmp_path / download.value.suggested_filename
    download.value.save_as(saved)
    assert saved.name == "mha_progress.json"
    before = json.loads(notebook.read_text("utf8"))
    notebook.unlink()
    progress(add=saved)
    assert "Exercises: 3. Quizzes: 1." in capsys.readouterr().out
    found = record.read()
    assert found["solved"].pop("why_scale.check_std")
    assert (found["solved"], found["quiz"], found["mine"]) == (before["solved"], before["quiz"], [1])


def test_what_is_no_record_changes_nothing_and_all_can_be_forgotten(visit, tmp_path):
    tab = visit("book/map.html")
    tab.evaluate("mhaProgress.solve('why_scale.check_std')")
    before, file = kept(tab), tmp_path / "other.json"
    for text in ("[]", "{", '{"solved": 3}', '{"solved": {"a": 1}}', '{"solved": {}, "quiz": {"a": {"right": "1"}}}'):
        file.write_text(text, "utf8")
        tab.locator(".mha-progress input").set_input_files(file)
        tab.get_by_text("no record of progress").wait_for()
        assert kept(tab) == before
    tab.once("dialog", lambda dialog: dialog.dismiss())
    tab.get_by_role("button", name="Forget everything").click()
    assert kept(tab) == before
    tab.once("dialog", lambda dialog: dialog.accept())
    tab.get_by_role("button", name="Forget everything").click()
    assert kept(tab)["solved"] == {}
    assert tab.locator(".mha-mark").count() == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_everybody_can_use_it(visit, violations, size, theme):
    tab = visit(PAGE, size, theme)
    answer(tab, "why_attention.check_softmax", f"{RIGHT}print('a long line ' * 20)")
    tab.locator(".mha-quiz summary").first.click()
    assert violations(tab, 15, "best-practice") == {}
    assert tab.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    overview = visit("book/map.html")
    assert overview.locator(".mha-mark").count() > 0
    assert violations(overview, 10, "best-practice") == {}
