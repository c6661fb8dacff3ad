"""Exercises in the page: the stubs of those in plain Python become editors, and the others lead to the notebook.

The judge and the exercises are the files of `mha/course/exercises/plain`, which the notebooks' checkers use too; they
are copied beside MicroPython. A stub is the cell that calls a checker with a function whose name begins with `my_`.
"""

import html
import json
import re
import shutil

from course_readers import addresses

TAGS = re.compile(r"<[^>]+>")
CELL = re.compile(r'<div class="cell\b[^>]*>')
INPUT = re.compile(r'<div class="cell_input\b.*?</pre>', re.DOTALL)
CALL = re.compile(r"^(check_\w+)\((my_\w+)\)", re.MULTILINE)
ELSEWHERE = (
    '<p class="mha-elsewhere">This exercise needs {needs}, which a page does not have. '
    "Solve it in the notebook, {ways}.</p>"
)
OTHER_NEEDS = {"choosing.check_paired": "the package"}  # all others need PyTorch
MARK = "const CHAPTERS = {};"
SCRIPT = '<script defer src="{up}_static/{name}.js"></script>'


def chapters(runs):
    """Of each chapter its page and its exercises: {topic: [page, {checker: 1 if it runs in the page, else 0}]}."""
    from chapters import CHAPTERS, topic

    from mha.course.exercises.exercise import exercises

    pages = {topic(path): path.stem for path in CHAPTERS}
    found = {name: [page, {}] for name, page in pages.items()}
    for name in exercises():
        chapter, _, checker = name.partition(".")
        found[chapter][1][checker] = int(runs and is_plain(chapter, checker))
    return found


def is_plain(topic, checker):
    """Whether an exercise is in plain Python, so that a page can judge it."""
    from importlib import import_module
    from importlib.util import find_spec

    name = f"mha.course.exercises.plain.{topic}"
    return find_spec(name) is not None and hasattr(import_module(name), checker)


def copy_judge(source, folder):
    """Copy the judge and the exercises in plain Python to where a page finds them."""
    target = folder / "_static" / "vendor" / "micropython" / "plain"
    target.mkdir(parents=True, exist_ok=True)
    for path in (source / "mha" / "course" / "exercises" / "plain").glob("*.py"):
        shutil.copy2(path, target / path.name)


def ways(stem, known):
    """Links to where a notebook can be run: Colab and Binder where the repository is known, else how to run it."""
    offered = [(known.colab(stem), "in Colab"), (known.binder(stem), "in Binder")]
    links = [f'<a href="{html.escape(url)}">{name}</a>' for url, name in offered if url]
    own = '<a href="../book/how_to_use.html#run-it">on your machine</a>'
    return f"{', '.join(links)} or {own}" if links else own


def with_exercises(page, topic, stem, checkers, known):
    """Mark the stubs in a page; say below those that the page cannot check where they can be solved."""
    parts, last = [], 0
    for cell in CELL.finditer(page):
        code = INPUT.search(page, cell.end())
        if not code or '<div class="cell ' in page[cell.end() : code.start()]:
            continue
        call = CALL.search(html.unescape(TAGS.sub("", code[0])))
        if not call or call[1] not in checkers:
            continue
        name = f"{topic}.{call[1]}"
        runs = f' data-function="{call[2]}"' if checkers[call[1]] else ""
        needs = OTHER_NEEDS.get(name, "PyTorch")
        said = "" if runs else ELSEWHERE.format(needs=needs, ways=ways(stem, known))
        parts += [page[last : cell.start()], said, f'<div data-exercise="{name}"{runs} ', cell[0][len("<div ") :]]
        last = cell.end()
    return "".join([*parts, page[last:]])


def offer_exercises(source, folder, *, runs):
    """Make the exercises of all pages ready, and load the scripts that the pages need."""
    found, known = chapters(runs), addresses.known()
    script = folder / "_static" / "progress.js"
    filled = f"const CHAPTERS = {json.dumps(found, separators=(',', ':'))};"
    if script.is_file():
        script.write_text(script.read_text("utf8").replace(MARK, filled, 1), "utf8")
    if runs:
        copy_judge(source, folder)
    topics = {stem[:2]: topic for topic, (stem, _) in found.items()}
    for path in (folder / "notebooks").glob("[0-9][0-9]*.html"):  # side rooms, 03b, hold exercises of their chapter
        topic, page = topics[path.stem[:2]], path.read_text("utf8")
        if "data-exercise=" not in page:
            path.write_text(with_exercises(page, topic, path.stem, found[topic][1], known), "utf8")
    for path in folder.rglob("*.html"):
        page = path.read_text("utf8")
        names = ["python", "exercises"] if 'data-function="' in page else []
        names += ["quiz"] if 'class="mha-quiz"' in page else []
        up = "../" * (len(path.relative_to(folder).parts) - 1)
        new = [SCRIPT.format(up=up, name=name) for name in names if f"_static/{name}.js" not in page]
        if new:
            path.write_text(page.replace("</head>", f"{''.join(new)}</head>", 1), "utf8")
