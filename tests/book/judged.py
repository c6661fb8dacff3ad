"""What tests of the exercises in the page share: the folder that a page gives to Python, and what is said there."""

import ast
import dataclasses
import importlib
import inspect
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import mha.course.exercises.plain
from mha.course.exercises.exercise import exercises, judge

ROOT = Path(__file__).resolve().parents[2]
MICROPYTHON = ROOT / "node_modules" / "@micropython" / "micropython-webassembly-pyscript"
FOLDER = Path(mha.course.exercises.plain.__file__).parent
STUB = re.compile(r"^def (my_\w+)\(([^)]*)\):.*?^(check_\w+)\(\1\)", re.DOTALL | re.MULTILINE)


def is_plain(name):
    """Whether an exercise, "masking.check_causal", is one of those in plain Python."""
    topic, _, checker = name.partition(".")
    path = FOLDER / f"{topic}.py"
    return path.is_file() and hasattr(importlib.import_module(f"mha.course.exercises.plain.{topic}"), checker)


PLAIN = {name: exercise for name, exercise in exercises().items() if is_plain(name)}


def lines(cell):
    return cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])


def cells():
    """All code cells of all notebooks, each with the number of its chapter."""
    for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]*.ipynb")):
        for cell in json.loads(path.read_text("utf8"))["cells"]:
            if cell["cell_type"] == "code":
                yield path.stem, lines(cell)


def stubs():
    """Of each exercise in plain Python the stub: {exercise: (function, its arguments)}."""
    from chapters import CHAPTERS, topic

    topics = {path.stem[:2]: topic(path) for path in CHAPTERS}
    found = {}
    for stem, text in cells():
        for function, arguments, checker in STUB.findall(text):
            found[f"{topics[stem[:2]]}.{checker}"] = function, arguments
    return {name: found[name] for name in PLAIN}


def solutions():
    """Of each exercise in plain Python the solution in the notebook: {exercise: (function, text)}."""
    from chapters import CHAPTERS, topic

    topics = {path.stem[:2]: topic(path) for path in CHAPTERS}
    found = {}
    for stem, text in cells():
        call = re.search(r"^(check_\w+)\((solved_\w+)\)", text, re.MULTILINE)
        if call and (name := f"{topics[stem[:2]]}.{call[1]}") in PLAIN:
            functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
            found[name] = call[2], "\n\n\n".join(map(ast.unparse, functions))
    return found


def put_files(folder):
    """Lay out what a page lays out for Python: empty packages, the oracle, the judge and the exercises."""
    target = folder / "mha" / "course" / "exercises" / "plain"
    target.mkdir(parents=True)
    for package in (target.parent, target.parent.parent, folder / "mha"):
        (package / "__init__.py").write_text("", "utf8")
    shutil.copy2(ROOT / "mha" / "reference.py", folder / "mha" / "reference.py")
    for path in FOLDER.glob("*.py"):
        shutil.copy2(path, target / path.name)


OTHER_ANSWERS = """
def OTHERS(one):
    def changed(change):
        return lambda *case: change(one.solution(*case))

    def silent(*case):
        return None

    def twice(x):
        return [twice(part) for part in x] if isinstance(x, (list, tuple)) else 2 * x

    return [
        ("the solution", lambda *case: one.solution(*case)),
        ("nothing", silent),
        ("no number", lambda *case: "text"),
        ("the first argument", lambda *case: case[0]),
        ("in a list", changed(lambda x: [x])),
        ("twice", changed(twice)),
        ("with another sign", changed(lambda x: [-y for y in x] if isinstance(x, list) else -x)),
        ("one more", changed(lambda x: x + 1)),
    ]
"""
HERE = {}
exec(OTHER_ANSWERS, HERE)  # the same functions here, and where a page's Python runs


def program():
    """A program that judges right and wrong answers to each exercise, and prints what is said as JSON."""
    text = ["import json", "from mha.course.exercises.plain import judge", "found = {}", OTHER_ANSWERS]
    for name, (function, arguments) in stubs().items():
        topic, _, checker = name.partition(".")
        text += [
            f"from mha.course.exercises.plain import {topic} as home",
            f"one, source = home.{checker}, 'def {function}({arguments}):'",
            "found[NAME] = {}".replace("NAME", repr(name)),
            "for what, answer in list(one.mistakes.items()) + OTHERS(one):",
            f"    found[{name!r}][what] = list(judge.judge_text(one, source, {function!r}, {{{function!r}: answer}}))",
        ]
    return "\n".join([*text, "print(json.dumps(found))", ""])


def said_by_notebooks():
    """What the notebooks' checkers say about the same answers."""
    found = {}
    for name, (_, arguments) in stubs().items():
        exercise = PLAIN[name]
        free = dataclasses.replace(exercise, by_hand=False, forbidden=())  # the solution may call the package
        answers = [*exercise.mistakes.items(), *HERE["OTHERS"](exercise)]
        found[name] = {what: list(judge(free, renamed(answer, arguments))) for what, answer in answers}
    return found


def renamed(answer, arguments):
    """The same function, with the arguments' names of the stub."""
    names = [name.strip() for name in arguments.split(",")]

    def called(*given):
        return answer(*given)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    called.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    return called


def without_torch(folder, text):
    """What CPython prints that has nothing but a folder and no torch."""
    begin = (
        f"import sys\nsys.path[:0] = [{str(folder)!r}]\nfor name in ('torch', 'numpy'):\n    sys.modules[name] = None\n"
    )
    run = subprocess.run([sys.executable, "-I", "-c", begin + text], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return run.stdout


NODE = """
import { readFileSync } from "fs";
const { loadMicroPython } = await import(process.argv[1]);
const lines = [];
const python = await loadMicroPython({ stdout: (line) => lines.push(line), linebuffer: true, heapsize: 16777216 });
const files = JSON.parse(readFileSync(process.argv[2], "utf8"));
for (const [name, text] of Object.entries(files)) {
  python.FS.mkdirTree("/lib/" + name.split("/").slice(0, -1).join("/"));
  python.FS.writeFile("/lib/" + name, text);
}
python.runPython("import sys\\nif '/lib' not in sys.path:\\n    sys.path.append('/lib')\\n");
python.runPython(readFileSync(0, "utf8"));
process.stdout.write(lines.join("\\n") + "\\n");
"""


def in_micropython(folder, text):
    """What MicroPython prints that has the same folder."""
    files = {path.relative_to(folder).as_posix(): path.read_text("utf8") for path in folder.rglob("*.py")}
    (folder / "files.json").write_text(json.dumps(files), "utf8")
    command = [
        "node",
        "--input-type=module",
        "-e",
        NODE,
        (MICROPYTHON / "micropython.mjs").as_uri(),
        folder / "files.json",
    ]
    run = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return run.stdout
