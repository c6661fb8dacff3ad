"""Exercises that a page checks: which they are, and that the page's judge says what the notebook's checker says."""

import ast
import dataclasses
import json
import re
import shutil
import sys

import judged
import pytest
import torch
from judged import FOLDER, MICROPYTHON, PLAIN, ROOT

from mha.course.exercises.exercise import Exercise, exercises
from mha.course.exercises.plain import draw, guess
from mha.course.exercises.plain.judge import Judge, PageJudge, Plain, judge_text, names_in

sys.path.append(str(ROOT / "book" / "_ext"))
import addresses
import course_exercises

every_plain = pytest.mark.parametrize("name", PLAIN)
STATIC = ROOT / "book" / "_static"
SCRIPTS = ("exercises.js", "progress.js", "python.js", "quiz.js", "tryit.js", "tryit-worker.mjs")


def holds_tensors(value):
    if isinstance(value, (list, tuple)):
        return any(map(holds_tensors, value))
    return not isinstance(value, (bool, int, float, str))


def test_every_exercise_that_is_about_numbers_and_lists_is_checked_in_the_page():
    about_numbers = set()
    for name, exercise in exercises().items():
        cases = exercise.cases()
        if not holds_tensors(cases) and not holds_tensors([exercise.solution(*case) for case in cases]):
            about_numbers.add(name)
    assert about_numbers - set(PLAIN) == set(course_exercises.OTHER_NEEDS)
    assert set(PLAIN) <= about_numbers
    assert len(PLAIN) >= 23


def test_what_the_page_runs_imports_nothing_that_it_lacks():
    allowed = {"builtins", "math", "mha", "mha.reference"}
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf8"))):
            if isinstance(node, ast.Import):
                assert {alias.name for alias in node.names} <= allowed, path.name
            elif isinstance(node, ast.ImportFrom):
                assert node.module in allowed or node.module.startswith("mha.course.exercises.plain"), path.name


@every_plain
def test_a_notebook_and_a_page_share_solution_cases_and_mistakes(name):
    topic, _, checker = name.partition(".")
    plain = getattr(sys.modules[f"mha.course.exercises.plain.{topic}"], checker)
    for part in dataclasses.fields(Exercise):
        if hasattr(Plain, part.name) or part.name in ("name", "solution", "cases"):
            assert getattr(PLAIN[name], part.name) is getattr(plain, part.name) or (
                part.name not in vars(plain) and getattr(PLAIN[name], part.name) == getattr(plain, part.name)
            )
        else:
            assert getattr(PLAIN[name], part.name) == part.default, "a part that the page's judge does not know"


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What the notebooks' checkers say about right and wrong answers, and what CPython says without torch."""
    folder = tmp_path_factory.mktemp("python")
    judged.put_files(folder)
    torch.set_default_dtype(torch.float32)
    return judged.said_by_notebooks(), json.loads(judged.without_torch(folder, judged.program())), folder


@pytest.mark.slow
@every_plain
def test_without_torch_the_judge_says_the_same(said, name):
    notebook, page, _ = said
    assert page[name] == notebook[name]
    assert page[name]["the solution"][0] is True
    assert page[name]["nothing"] == [False, "Not solved yet."]
    for diagnosis in PLAIN[name].mistakes:
        assert page[name][diagnosis][0] is False
        assert page[name][diagnosis][1].endswith(f"It looks like this: {diagnosis}.")


needs_node = pytest.mark.skipif(
    shutil.which("node") is None or not MICROPYTHON.is_dir(),
    reason="Node or MicroPython is not here: install Node, then `make book` fetches the package",
)


def alike(verdict):
    """A verdict without the last digit of a rounded number, and without what a Python says when it raises."""
    right, message = verdict
    return right, re.sub(r"(\.\d*)\d\b", r"\1", re.sub(r"(raised \w+): .*", r"\1", message))


@pytest.mark.slow
@needs_node
def test_micropython_says_the_same(said):
    notebook, _, folder = said
    page = json.loads(judged.in_micropython(folder, judged.program()))
    assert page.keys() == notebook.keys()
    for name, verdicts in page.items():
        found = {what: alike(verdict) for what, verdict in verdicts.items()}
        assert found == {what: alike(verdict) for what, verdict in notebook[name].items()}, name


@pytest.mark.slow
@needs_node
def test_the_solution_in_the_notebook_is_accepted_in_the_page(said):
    """Each text is judged as a reader's would be, after the solutions that come before it."""
    worker = (STATIC / "tryit-worker.mjs").read_text("utf8")
    text = [re.search(r"const BEGIN = `\n(.*?)`;", worker, re.DOTALL)[1], "import math", "found = {}"]
    for name, (function, source) in judged.solutions().items():
        topic, _, checker = name.partition(".")
        text += [
            source,
            f"from mha.course.exercises.plain import judge, {topic} as home",
            f"found[{name!r}] = judge.judge_text(home.{checker}, {source!r}, {function!r}, globals())",
        ]
    text += ["import json", "print(json.dumps(found))", ""]
    found = json.loads(judged.in_micropython(said[2], "\n".join(text)))
    assert found.keys() == PLAIN.keys()
    assert {name: message for name, (right, message) in found.items() if not right} == {}


# ---- rules of the page's judge


SOFTMAX = PLAIN["why_attention.check_softmax"]
RIGHT = "def my_softmax(row):\n    e = [math.exp(x - max(row)) for x in row]\n    return [x / sum(e) for x in e]\n"


def judged_text(source, exercise=SOFTMAX, function="my_softmax"):
    import math

    space = {"math": math}
    exec(source, space)  # a text of this file
    return judge_text(exercise, source, function, space)


def test_a_right_text_is_accepted():
    assert judged_text(RIGHT) == (True, "✓ softmax: right on 5 cases. Next: use it to read for one query.")


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("from mha.reference import softmax\n\n\ndef my_softmax(row):\n    return softmax(row)\n", "softmax"),
        ("from mha import reference as r\n\n\ndef my_softmax(row):\n    return r.softmax(row)\n", "r"),
        ("def my_softmax(row):\n    import mha.reference as r\n    return r.softmax(row)\n", "mha"),
        ("import mha.reference\nmy_softmax = mha.reference.softmax\n", "my_softmax"),
    ],
)
def test_what_must_be_written_by_hand_may_not_use_the_package(source, word):
    right, message = judged_text(source)
    assert not right
    assert f"uses `{word}` of the package. Write that part yourself." in message


def test_a_forbidden_name_is_named_and_one_in_a_comment_is_not():
    exercise = dataclasses.replace(SOFTMAX, forbidden=("exp",))
    assert "uses `exp`, which does the exercise for you." in judged_text(RIGHT, exercise)[1]
    assert judged_text(RIGHT.replace("math.exp(x - max(row))", "math.e ** (x - max(row))") + "    # exp\n", exercise)[0]


def test_other_ways_to_go_wrong_are_said():
    assert judged_text("x = 1") == (
        False,
        "✗ softmax: there is no function `my_softmax`. Keep the name that the stub has.",
    )
    assert judged_text("def my_softmax(row):\n    ...")[1] == "Not solved yet."
    assert "changes its arguments" in judged_text("def my_softmax(row):\n    row.reverse()\n    return row")[1]
    assert "row = [0, 1] raised ZeroDivisionError" in judged_text("def my_softmax(row):\n    return 1 / 0")[1]
    assert "the right one" in judged_text(RIGHT.replace("x / sum(e)", "3 * x / sum(e)"))[1]
    rare = RIGHT.replace("    return", "    if len(row) == 1:\n        return [0.5]\n    return")
    assert "right on the first cases, but not on every input" in judged_text(rare)[1]


def test_names_of_arguments_are_read_from_the_text():
    page = PageJudge("x = 1\ndef f(a, b: int = 3,\n      c=None):\n    pass", "f", {})
    assert page.names(None, ()) == ["a", "b", "c"]
    assert PageJudge("def f():\n    pass", "f", {}).names(None, ()) == []
    assert PageJudge("f = print", "f", {}).names(None, ()) == []
    assert names_in("import torch\nfrom os import path\na1 = b_2  # c\n  d.e(3f)") == ["a1", "b_2", "d", "e", "f"]


def test_prints_of_a_diagnosis_are_not_shown(capsys):
    judged_text("def my_softmax(row):\n    print('row', row)\n    return row")
    assert capsys.readouterr().out == "row [0.0, 1.0]\n"


@pytest.mark.parametrize("form", range(6))
def test_drawn_numbers_are_in_their_range_and_the_same_every_time(form):
    one, other, again = draw.Draw(form), draw.Draw(form, 1), draw.Draw(form)
    sizes = [[d.whole(2, 5) for _ in range(50)] for d in (one, other, again)]
    assert sizes[0] == sizes[1] == sizes[2]
    assert set(sizes[0]) == {2, 3, 4, 5}
    numbers = [[d.number(-1.0, 3.0) for _ in range(200)] for d in (one, other, again)]
    assert numbers[0] == numbers[2] != numbers[1]
    assert -1 <= min(numbers[0]) < -0.5
    assert 2.5 < max(numbers[0]) < 3
    assert {one.integer(0, 2) for _ in range(50)} == {0, 1, 2}
    assert sorted(one.order(7)) == list(range(7))
    rows = torch.tensor(one.normals(40, 50, scales=(2.0,)))
    assert rows.shape == (40, 50)
    assert abs(rows.mean()) < 0.2
    assert 1.9 < rows.std() < 2.1


def test_the_plain_judge_draws_as_many_cases_as_the_notebooks():
    from mha.course.exercises.legal import drawn_cases

    assert len(Judge().drawn(SOFTMAX)) == len(drawn_cases(SOFTMAX.legal)) == 28


def test_choices_with_repetition_come_in_order():
    assert guess._with_repetition([0, 2], 2) == [[], [0], [2], [0, 0], [0, 2], [2, 2]]


# ---- what is written into a page


CELL = """<p>before</p><div class="cell docutils container">
<div class="cell_input docutils container"><div class="highlight"><pre><span></span>
<span class="k">def</span> <span class="nf">{function}</span>(x):
    <span class="k">return</span> <span class="kc">None</span>


<span class="n">{checker}</span><span class="p">(</span><span class="n">{function}</span><span class="p">)</span>
</pre></div></div><div class="cell_output"><pre>Not solved yet.</pre></div></div>"""
STUBS = CELL.format(function="my_softmax", checker="check_softmax") + CELL.format(
    function="my_attention", checker="check_attention"
)
OWN = addresses.Addresses()
KNOWN = addresses.Addresses("https://github.com/someone/course", "")


def test_a_stub_is_marked_and_what_needs_torch_says_so():
    solved = CELL.format(function="solved_softmax", checker="check_softmax")
    checkers = {"check_softmax": 1, "check_attention": 0}
    page = course_exercises.with_exercises(STUBS + solved, "why_attention", "01_why_attention", checkers, OWN)
    marked = re.findall(r"<div ((?:data-\S+ )+)class=\"cell ", page)
    assert marked == [
        'data-exercise="why_attention.check_softmax" data-function="my_softmax" ',
        'data-exercise="why_attention.check_attention" ',
    ]
    assert re.sub(r' data-\w+="[^"]*"|<p class="mha-elsewhere">.*?</p>', "", page).replace("<div  ", "<div ") == (
        STUBS + solved
    ), "nothing else changes"
    assert page.count("mha-elsewhere") == 1
    assert "needs PyTorch, which a page does not have" in page
    assert "colab" not in page


def test_colab_and_binder_are_offered_where_the_repository_is_known():
    checkers = {"check_softmax": 0, "check_attention": 0}
    page = course_exercises.with_exercises(STUBS, "why_attention", "01_why_attention", checkers, KNOWN)
    assert page.count("mha-elsewhere") == 2
    for url in (KNOWN.colab("01_why_attention"), KNOWN.binder("01_why_attention")):
        assert page.count(f'<a href="{url}">') == 2


def test_the_list_of_exercises_holds_all_of_them():
    found = course_exercises.chapters(True)
    names = {f"{topic}.{one}": runs for topic, (_, every) in found.items() for one, runs in every.items()}
    assert names.keys() == exercises().keys()
    assert {name for name, runs in names.items() if runs} == PLAIN.keys()
    without = course_exercises.chapters(False)
    assert not any(runs for _, every in without.values() for runs in every.values())


def test_scripts_are_small_and_ask_no_other_host():
    for name in SCRIPTS:
        text = (STATIC / name).read_text("utf8")
        assert len(text.encode()) <= 8192, name
        assert not re.search(r"https?://", text), name
        assert '"use strict"' in text or name.endswith(".mjs"), name
    assert course_exercises.MARK in (STATIC / "progress.js").read_text("utf8")
