"""Every exercise accepts its solution, rejects each known mistake by its name, and survives any answer."""

import contextlib
import dataclasses
import importlib
import json
import random
import re
import sys
from pathlib import Path

import chapters
import nbformat
import numpy as np
import pytest
import torch
from programs import load
from torch import Tensor

import mha
from mha.course import TOPICS, quiz
from mha.course.exercises import (
    cache_and_sharing,
    compose,
    depth_and_norms,
    exercise,
    split_and_merge,
    why_attention,
    why_scale,
)
from mha.course.exercises.compare import compare, same
from mha.course.exercises.exercise import Exercise, judge
from mha.course.exercises.legal import Draw, drawn_cases
from mha.course.exercises.plain.judge import UNSOLVED

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def exercises():
    """Every exercise of every chapter, by the name that a notebook imports."""
    found = []
    for module in (*TOPICS, "final_project"):
        for name, value in vars(importlib.import_module(f"mha.course.exercises.{module}")).items():
            found += [pytest.param(value, id=f"{module}.{name}")] if isinstance(value, Exercise) else []
    return found


EXERCISES = exercises()
OF_CHAPTERS = [p for p in EXERCISES if not p.id.startswith("final_project")]
MISTAKES = [
    pytest.param(e, diagnosis, id=f"{p.id}: {diagnosis}")
    for p in EXERCISES
    for e in p.values
    for diagnosis in e.mistakes
]
every_exercise = pytest.mark.parametrize("exercise", EXERCISES)


@pytest.fixture(autouse=True)
def float32():
    """Check in the number type that a reader's notebook has."""
    torch.set_default_dtype(torch.float32)


# ---- every exercise of the course


def test_every_chapter_has_three_exercises_under_names_of_their_own():
    chapters = [p.id.partition(".")[0] for p in OF_CHAPTERS]
    assert chapters
    assert all(chapters.count(chapter) >= 3 for chapter in chapters)
    assert all(p.id.partition(".")[2].startswith("check_") for p in EXERCISES)


@every_exercise
def test_the_solution_is_accepted(exercise):
    right, message = judge(exercise, exercise.solution)
    assert right, message
    assert message.startswith(f"✓ {exercise.name}: right on {len(exercise.cases())} cases.")
    assert message.endswith(exercise.next_step)


@every_exercise
def test_the_cases_are_the_same_every_time_and_there_are_several(exercise):
    first, again = exercise.cases(), exercise.cases()
    assert same(numbers(first), numbers(again), 0.0)
    assert len(first) >= 2
    assert any(not same(numbers(first[0]), numbers(case), 0.0) for case in first) or callable(first[0][0])


def numbers(value):
    """The numbers in a list of cases; of a function, its kind."""
    if isinstance(value, (list, tuple)):
        return [numbers(x) for x in value]
    return value if isinstance(value, (Tensor, int, float)) else type(value).__name__


@pytest.mark.slow
@every_exercise
def test_there_are_six_known_mistakes_and_no_two_are_alike(exercise):
    assert len(exercise.mistakes) >= 6
    answers = {name: [mistake(*case) for case in exercise.cases()] for name, mistake in exercise.mistakes.items()}
    for name, answer in answers.items():
        twins = [other for other in answers if same(answer, answers[other], exercise.tolerance)]
        assert twins == [name]


@every_exercise
def test_a_known_mistake_is_rejected_by_its_name(exercise):
    """The first one of each exercise; all of them in the second tier."""
    rejected_by_name(exercise, next(iter(exercise.mistakes)))


@pytest.mark.slow
@pytest.mark.parametrize(("exercise", "diagnosis"), MISTAKES)
def test_every_known_mistake_is_rejected_by_its_name_and_only_its_numbers_are_wrong(exercise, diagnosis):
    rejected_by_name(exercise, diagnosis)


def rejected_by_name(exercise, diagnosis):
    right, message = judge(exercise, exercise.mistakes[diagnosis])
    assert not right
    assert message.startswith(f"✗ {exercise.name}: ")
    assert message.endswith(f"It looks like this: {diagnosis}.")
    assert "was expected" not in message
    assert "the shape is" not in message
    assert "nan" not in message


# ---- rules besides the numbers


def imported_inside(x, heads):
    from mha import split_heads

    return split_heads(x, heads)


def by_a_closure(function):
    return lambda *case: function(*case)


@pytest.mark.parametrize(
    ("cheat", "name"),
    [
        (lambda x, heads: mha.split_heads(x, heads), "mha"),
        (imported_inside, "mha"),
        (by_a_closure(mha.split_heads), "function"),
    ],
)
def test_what_is_to_be_written_by_hand_may_not_be_called(cheat, name):
    right, message = judge(split_and_merge.check_split, cheat)
    assert not right
    assert f"your function uses `{name}` of the package. Write that part yourself." in message
    assert judge(split_and_merge.check_split, lambda x, heads: x.unflatten(-1, (heads, -1)).transpose(1, 2))[0]


def asking(words):
    """The checkers of exercises whose text says something."""
    for path in (*chapters.CHAPTERS, *chapters.ROOMS):
        topic, text = chapters.topic(chapters.chapter_of(path)), ""
        for cell in nbformat.read(path, as_version=4).cells:
            if ":::{exercise}" in cell.source:
                text = cell.source.rpartition(":::{exercise}")[2].partition(":::")[0]
            elif cell.cell_type == "code" and re.search(words, text):
                yield from (f"{topic}.{name}" for name in re.findall(r"^(check_\w+)\(", cell.source, re.MULTILINE))


def test_where_the_page_says_by_hand_the_checker_does():
    by_hand = set(asking(r"Do\s+not\s+use|[Pp]lain\s+Python|without\s+the\s+package"))
    assert by_hand == {p.id for p in OF_CHAPTERS if p.values[0].by_hand}
    instead = set(asking(r"[Pp]lain\s+Python|[Ww]ithout\s+autograd|No\s+autograd|not\s+torch's\s+own\s+function"))
    assert instead == {p.id for p in OF_CHAPTERS if p.values[0].forbidden}


def solved_elsewhere(x, heads):
    return mha.split_heads(x, heads)


def by_a_helper(x, heads):
    return solved_elsewhere(x, heads)


def gradients_by_autograd(q, k, v, g):
    inputs = [t.detach().requires_grad_() for t in (q, k, v)]
    read = (inputs[0] @ inputs[1].mT / q.shape[-1] ** 0.5).softmax(-1) @ inputs[2]
    return torch.autograd.grad(read, inputs, g)


@pytest.mark.parametrize(
    ("exercise", "cheat", "name"),
    [
        (split_and_merge.check_split, by_a_helper, "mha"),
        (why_scale.check_backward, gradients_by_autograd, "autograd"),
        (why_attention.check_softmax, lambda row: torch.tensor(row).double().softmax(0).tolist(), "torch"),
        (
            depth_and_norms.check_norm,
            lambda x, gain, shift, eps: torch.layer_norm(x, x.shape[-1:], gain, shift, eps),
            "layer_norm",
        ),
    ],
)
def test_what_does_the_exercise_is_found_in_helpers_and_by_its_name(exercise, cheat, name):
    right, message = judge(exercise, cheat)
    assert not right
    assert f"the numbers are right, but your function uses `{name}`" in message


def grouped(q, k, v):
    b, _, i, d = q.shape
    return q.reshape(b, k.shape[1], -1, i, d), k[:, :, None], v[:, :, None]


def in_one_product(q, k, v):
    """Broadcasts the keys over the group: nobody wrote a copy, and yet there is one."""
    several, k, v = grouped(q, k, v)
    return ((several @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v).view_as(q)


def repeated(q, k, v):
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v


def chosen(q, k, v):
    head = torch.arange(q.shape[1]) // (q.shape[1] // k.shape[1])
    return (q @ k[:, head].mT / q.shape[-1] ** 0.5).softmax(-1) @ v[:, head]


def head_by_head(q, k, v):
    group = q.shape[1] // k.shape[1]
    heads = [
        (q[:, n] @ k[:, n // group].mT / q.shape[-1] ** 0.5).softmax(-1) @ v[:, n // group] for n in range(q.shape[1])
    ]
    return torch.stack(heads, 1)


def by_einsum(q, k, v):
    several, k, v = grouped(q, k, v)
    weights = (torch.einsum("bgaid,bgjd->bgaij", several, k[:, :, 0]) / q.shape[-1] ** 0.5).softmax(-1)
    return torch.einsum("bgaij,bgjd->bgaid", weights, v[:, :, 0]).reshape(q.shape)


def matrix_for_every_key(x, w1, w2):
    return torch.einsum("gij,jgh->hij", x, torch.einsum("jrg,jrh->jgh", w1, w2))


@pytest.mark.parametrize(
    ("exercise", "answer", "lean"),
    [
        (cache_and_sharing.check_shared, repeated, False),
        (cache_and_sharing.check_shared, chosen, False),
        (cache_and_sharing.check_shared, in_one_product, False),
        (cache_and_sharing.check_shared, head_by_head, True),
        (cache_and_sharing.check_shared, by_einsum, True),
        (compose.check_key_side, matrix_for_every_key, False),
        (compose.check_key_side, lambda x, w1, w2: ((x.permute(2, 1, 0) @ w1.mT) @ w2).permute(2, 1, 0), True),
    ],
)
def test_right_numbers_that_need_too_much_room_are_told_so(exercise, answer, lean):
    right, message = judge(exercise, answer)
    assert right is lean
    assert ("the numbers are right, but your function makes a tensor of" in message) is not lean


# ---- solutions that a machine has changed


MUTANTS = json.loads((NOTEBOOKS.parent / "benchmarks" / "mutants.json").read_text("utf8"))


@every_exercise
def test_machine_made_wrong_answers_were_tried_on_this_code(exercise, request):
    name = request.node.callspec.id
    found = MUTANTS[name]
    assert found["code"] == load("tools/mutate_solutions.py").code_of(name), f"make mutants (or --only {name})"
    assert found["mutants"] == found["rejected"] + len(found["equivalent"]) + len(found["survived"])
    assert found["mutants"] >= 20
    assert found["rejected"] >= 0.98 * (found["mutants"] - len(found["equivalent"]))


@pytest.mark.slow
@every_exercise
def test_some_machine_made_wrong_answers_are_still_rejected(exercise, request):
    """One in six, from the first to the last."""
    tool, name = load("tools/mutate_solutions.py"), request.node.callspec.id
    known = [*MUTANTS[name]["equivalent"], *MUTANTS[name]["survived"]]
    every = list(tool.mutants(name, exercise.solution, len(exercise.cases()[0])))
    chosen = [(what, mutant) for what, mutant in every[::6] if what not in known]
    assert chosen
    quick = dataclasses.replace(exercise, mistakes={}, seconds=2.0)
    for what, mutant in chosen:
        assert not judge(quick, mutant)[0], what


# ---- any answer at all


def raises(*_):
    raise ValueError("no idea")


def leaves(*_):
    sys.exit(3)


class Odd:
    """Cannot be compared, cannot be shown."""

    __array__ = None

    def __eq__(self, other):
        raise RuntimeError("not comparable")

    def __str__(self):
        raise RuntimeError("not showable")

    __hash__ = __repr__ = __str__


def endless():
    knot = []
    knot.append(knot)
    return knot


ODD_RESULTS = {
    "a string": "attention",
    "a number": 3,
    "nan": float("nan"),
    "a huge number": 10**400,
    "a complex number": 1j,
    "a list": [1.0, 2.0],
    "a list of lists of unequal length": [[1.0], [1.0, 2.0]],
    "an empty list": [],
    "an endless list": endless(),
    "a dictionary": {"weights": torch.zeros(2)},
    "an array": np.zeros(3),
    "an array of objects": np.array([None, "x"], dtype=object),
    "a number of numpy": np.float32(2),
    "a tensor": torch.zeros(2),
    "an empty tensor": torch.zeros(0),
    "a tensor without axes": torch.tensor(1.0),
    "a tensor of nan": torch.full((2, 3), float("nan")),
    "a tensor that is nowhere": torch.zeros(2, device="meta"),
    "a complex tensor": torch.zeros(2, dtype=torch.complex64),
    "a sparse tensor": torch.eye(2).to_sparse(),
    "a type": int,
    "a function": len,
    "a generator": (x for x in "ab"),
    "something odd": Odd(),
    "NotImplemented": NotImplemented,
}


@every_exercise
def test_the_untouched_stub_is_not_solved_yet(exercise):
    assert judge(exercise, lambda *_: None) == (False, UNSOLVED)
    assert judge(exercise, lambda *_: ...) == (False, UNSOLVED)


@pytest.mark.parametrize("number", range(len(EXERCISES)))
def test_no_result_crashes_the_checker(number):
    """Each checker is given one odd result, the next one another; in the second tier, a third of all."""
    names = list(ODD_RESULTS)
    no_crash(EXERCISES[number].values[0], [names[number % len(names)]])


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(EXERCISES)))
def test_many_results_crash_no_checker(number):
    no_crash(EXERCISES[number].values[0], list(ODD_RESULTS)[number % 3 :: 3])


def no_crash(exercise, names):
    for name in names:
        right, message = judge(exercise, lambda *_, name=name: ODD_RESULTS[name])
        assert not right, name
        assert message.startswith(f"✗ {exercise.name}: "), name
        assert len(message) < 2000, name


@every_exercise
def test_no_failing_answer_crashes_the_checker(reader, exercise):
    for answer, named in (
        (raises, "raised ValueError: no idea"),
        (leaves, "raised SystemExit: 3"),
        (lambda: 1, "raised TypeError"),
        (None, "raised TypeError"),
        ("not a function", "raised TypeError"),
        (lambda *_: endless_call(), "raised RecursionError"),
    ):
        right, message = judge(exercise, answer)
        assert not right
        assert named in message


def endless_call():
    return endless_call()


@pytest.mark.slow
@every_exercise
def test_the_right_numbers_of_the_wrong_kind_are_told_by_their_kind(exercise):
    right = exercise.solution(*exercise.cases()[0])
    if isinstance(right, Tensor):
        verdict, message = judge(exercise, lambda *case: exercise.solution(*case).tolist())
        assert not verdict
        assert "a tensor was expected, your function returned list" in message or "returned float" in message
        other = torch.float16 if right.is_floating_point() else torch.float32
        verdict, message = judge(exercise, lambda *case: exercise.solution(*case).to(other))
        assert not verdict
        assert f"the dtype is {other}, it should be {right.dtype}" in message
        verdict, message = judge(exercise, lambda *case: exercise.solution(*case)[None])
        assert not verdict
        assert "the shape is (1, " in message or "the shape is (1,)" in message
    elif isinstance(right, (list, tuple)):
        verdict, message = judge(exercise, lambda *case: [*exercise.solution(*case), 0.0])
        assert not verdict
        assert "entries were expected, your function returned" in message
        verdict, message = judge(exercise, lambda *case: torch.zeros(3))
        assert not verdict
        assert "a list was expected, your function returned Tensor: use .tolist()" in message
    else:
        assert judge(exercise, lambda *case: torch.tensor(exercise.solution(*case), dtype=torch.float64))[0]
        verdict, message = judge(exercise, lambda *case: torch.tensor([float(exercise.solution(*case))]))
        assert not verdict
        assert "a number was expected, your function returned Tensor: use .item()" in message


@pytest.mark.slow
@every_exercise
def test_an_answer_that_prints_or_draws_random_numbers_is_judged_by_its_result(exercise, capsys):
    def talkative(*case):
        print("hello")
        torch.rand(3)
        return exercise.solution(*case)

    state = torch.get_rng_state()
    assert judge(dataclasses.replace(exercise, by_hand=False, forbidden=()), talkative)[0]
    assert torch.equal(torch.get_rng_state(), state)
    assert capsys.readouterr().out == "hello\n" * len(exercise.cases())


def spoiled(value):
    """Change the first number or tensor inside a value, in place; say whether there was one."""
    if isinstance(value, Tensor):
        value.zero_()
        return True
    if isinstance(value, list) and value and isinstance(value[0], float):
        value[0] += 1
        return True
    return isinstance(value, (list, tuple)) and any(spoiled(x) for x in value)


@every_exercise
def test_an_answer_that_changes_its_arguments_is_told_so(exercise):
    def careless(*case):
        right = exercise.solution(*case)
        right = right.clone() if isinstance(right, Tensor) else right
        spoiled(case)
        return right

    changed = spoiled(exercise.cases()[0])
    right, message = judge(exercise, careless)
    assert right is not changed
    assert ("changes its arguments. Work on a copy." in message) is changed


# ---- the judge itself


DOUBLE = Exercise(
    name="double",
    solution=lambda x: 2 * x,
    cases=lambda: [(1.5,), (3.0,)],
    mistakes={"squared": lambda x: x * x, "half": lambda x: x / 2},
    next_step="Next: triple.",
)


def test_a_call_prints_what_the_judge_says(capsys):
    assert DOUBLE(lambda x: x + x) is None
    assert capsys.readouterr().out == "✓ double: right on 2 cases. Next: triple.\n"
    DOUBLE(lambda x: x / 2)
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["✗ double: yours gives 0.75, right is 3", "  input: x = 1.5", "  It looks like this: half."]


def test_a_long_message_is_folded_where_the_page_ends(capsys):
    def failing(x):
        raise ValueError("a message of many words, " * 9)

    DOUBLE(failing)
    first, *more = capsys.readouterr().out.splitlines()
    assert max(map(len, (first, *more))) <= 72
    assert all(line.startswith("  ") for line in more)
    assert " ".join([first, *(line.strip() for line in more)]) == judge(DOUBLE, failing)[1].rstrip()


def test_a_mistake_must_fit_on_every_case_to_be_named():
    right, message = judge(DOUBLE, lambda x: x * x if x < 2 else 0.0)
    assert not right
    assert "It looks like this" not in message


def test_small_differences_are_forgiven_and_larger_ones_are_not():
    assert judge(DOUBLE, lambda x: 2 * x * (1 + 1e-8))[0]
    assert not judge(DOUBLE, lambda x: 2 * x * (1 + 1e-4))[0]


def test_a_mask_may_leave_the_spreading_to_broadcasting_and_no_other_tensor():
    keep = torch.tensor([[True, False, True]])
    assert compare(keep, keep.expand(4, 3), 1e-6) == ""
    assert "right is" in compare(~keep, keep.expand(4, 3), 1e-6)
    assert compare(keep[0], keep.expand(4, 3), 1e-6) == "the shape is (3,), it should be (4, 3)"
    assert compare(keep.expand(4, 3), keep, 1e-6) == "the shape is (4, 3), it should be (1, 3)"
    assert compare(keep.double(), keep.double().expand(4, 3), 1e-6) == "the shape is (1, 3), it should be (4, 3)"


def test_a_difference_on_a_later_case_is_found():
    assert not judge(DOUBLE, lambda x: 3.0)[0]


def test_a_difference_behind_the_entries_that_are_shown_is_named():
    right = torch.arange(12.0).view(3, 4)
    late, early = right.clone(), right.clone()
    late[2, 3], early[0, 0] = 0, 5
    assert compare(late, right, 1e-6).endswith("they differ first at [2, 3], where yours is 0 and right is 11")
    assert compare(early, right, 1e-6).endswith("of shape (3, 4)")
    assert compare(right / 0, right, 1e-6).endswith("nan comes from 0/0, or from a softmax of nothing but −∞")


def test_an_answer_that_never_ends_is_stopped():
    quick = dataclasses.replace(DOUBLE, seconds=0.2)

    def endless(x):
        while True:
            with contextlib.suppress(Exception):
                x += 1

    right, message = judge(quick, endless)
    assert not right
    assert message == "✗ double: x = 1.5 did not finish within 0.2 seconds. Is there a loop that never ends?"
    assert judge(quick, lambda x: 2 * x)[0]


def test_the_screen_is_not_flooded(capsys):
    def shouting(x):
        for _ in range(10_000):
            print("hello")
        return 2 * x

    assert judge(DOUBLE, shouting)[0]
    printed = capsys.readouterr().out
    assert len(printed) < 5000
    assert printed.endswith("(print stopped)\n")


def test_setting_the_global_seed_is_told_and_undone():
    def seeding(x):
        torch.manual_seed(3)
        np.random.seed(3)  # noqa: NPY002
        random.seed(3)
        torch.set_default_dtype(torch.float64)
        return 2 * x

    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    right, message = judge(DOUBLE, seeding)
    assert not right
    assert "it sets the global seed" in message
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before[1:]  # noqa: NPY002
    assert torch.get_default_dtype() == torch.float32


TRIPLE = Exercise(
    name="triple",
    solution=lambda x: 3 * x,
    cases=lambda: [(torch.ones(2, dtype=torch.float64),), (torch.arange(3.0, dtype=torch.float64),)],
    legal=lambda draw: (draw.normal(draw.whole(0, 4)),),
    gradients=True,
)


def test_right_values_with_wrong_gradients_are_rejected():
    assert judge(TRIPLE, lambda x: x + 2 * x)[0]
    for wrong in (
        lambda x: 3 * x.detach(),
        lambda x: torch.tensor([3 * float(y) for y in x], dtype=x.dtype),
        lambda x: torch.from_numpy(3 * x.detach().numpy()),
    ):
        right, message = judge(TRIPLE, wrong)
        assert not right
        assert "the values are right, but no gradient flows back through it" in message
    right, message = judge(TRIPLE, lambda x: 2 * x.detach() + x)
    assert not right
    assert "the values are right, but not the gradients of the inputs: entry 0: yours gives" in message


def test_a_number_type_that_is_fixed_is_found():
    assert judge(TRIPLE, lambda x: 3 * x.double())[0]  # more digits than were asked for
    right, message = judge(TRIPLE, lambda x: 3 * x.float())
    assert not right
    assert "the dtype is torch.float32, it should be torch.float64" in message
    right, message = judge(TRIPLE, lambda x: x @ torch.eye(len(x), dtype=torch.float64) * 3)
    assert not right
    assert "raised RuntimeError" in message


def test_an_answer_without_gradients_is_right_where_the_text_asks_for_none():
    by_numpy = dataclasses.replace(TRIPLE, gradients=False)
    assert judge(by_numpy, lambda x: torch.from_numpy(3 * x.detach().numpy()))[0]
    right, message = judge(by_numpy, lambda x: 2 * x.detach() + x)
    assert not right
    assert "not the gradients of the inputs: entry 0: yours gives" in message


def test_what_is_right_on_the_cases_alone_is_rejected_on_a_drawn_input():
    for wrong in (
        lambda x: 3 * x.clamp(max=2),
        lambda x: 3 * x if len(x) > 1 else 2 * x,
        lambda x: 3 * x if len(x) else x + None,
    ):
        right, message = judge(TRIPLE, wrong)
        assert not right
        assert "right on the first cases, but not on every input: " in message


def test_a_first_result_that_is_kept_is_found():
    kept = {}
    right, message = judge(TRIPLE, lambda x: kept.setdefault(len(x), 3 * x))
    assert not right
    assert "not on every input" in message or "right is" in message or "gradient" in message


def test_two_draws_of_one_form_have_the_same_sizes_and_other_numbers():
    first, second, third = (Draw(4, 0), Draw(4, 1), Draw(4, 0))
    x, y, z = (draw.normal(draw.whole(1, 9), draw.one_of([2, 3])) for draw in (first, second, third))
    assert x.shape == y.shape == z.shape
    assert torch.equal(x, z)
    assert not torch.equal(x, y)
    assert len({Draw(form).whole(1, 9) for form in range(50)}) == 9


@every_exercise
def test_what_is_drawn_is_the_same_every_time(exercise):
    first, again = (drawn_cases(exercise.legal, 3) for _ in range(2))
    assert same(numbers(first), numbers(again), 0.0)


def test_a_result_may_share_memory_with_an_argument():
    reshaped = dataclasses.replace(TRIPLE, solution=lambda x: x[None] + 0.0)
    assert judge(reshaped, lambda x: x[None])[0]


# ---- what is solved


@pytest.fixture
def record(tmp_path, monkeypatch):
    """Where this test keeps what is solved; the format is tested in test_record.py."""
    path = tmp_path / "solved.json"
    monkeypatch.setenv("MHA_PROGRESS", str(path))
    return path


def solve(exercise):
    def my_answer(*case, solution=exercise.solution):  # an argument: rules look at names
        return solution(*case)

    exercise(my_answer)


def test_an_own_answer_is_remembered_and_a_shown_solution_is_not(record, capsys):
    first, second = (p.values[0] for p in EXERCISES[:2])
    first(first.solution)
    assert not record.exists()
    solve(first)
    solve(second)
    solve(first)
    assert sorted(json.loads(record.read_text())["solved"]) == sorted(p.id for p in EXERCISES[:2])
    quiz.ask("why_attention").answer("a" * len(quiz.ask("why_attention").questions))
    capsys.readouterr()
    exercise.progress()
    head, line, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["chapter", "exercises", "quiz", "next", "exercise"]
    assert re.match(r"why attention       ●●○* +\d of \d  \w", line)
    assert re.match(r"why scale           ○+ +–       \w", lines[0])
    assert lines[-1] == f"2 of {len(OF_CHAPTERS)} exercises solved."


def test_a_wrong_answer_is_not_remembered(record):
    def my_answer(*_):
        return 0.0

    EXERCISES[0].values[0](my_answer)
    assert not record.exists()


def test_a_record_that_cannot_be_written_is_no_error(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("MHA_PROGRESS", str(tmp_path / "missing" / "solved.json"))
    solve(EXERCISES[0].values[0])
    assert "It could not be noted in solved.json" in capsys.readouterr().out


def test_values_are_the_same_only_if_kind_form_and_numbers_are():
    one = torch.tensor([1.0, float("nan")])
    assert same(one, one.clone(), 0.0)
    assert same([float("nan"), float("inf")], (float("nan"), float("inf")), 0.0)
    assert same(np.arange(3.0), np.arange(3.0), 0.0)
    assert same(torch.nn.Parameter(torch.ones(2)), torch.ones(2), 0.0)
    assert same(None, None, 0.0)
    for a, b in (
        (one, one.double()),
        (one, one[None]),
        (one, [1.0, float("nan")]),
        (torch.ones(2), np.ones(2, dtype=np.float32)),
        ([1.0], [1.0, 1.0]),
        ([1.0], [1.1]),
        (float("inf"), float("-inf")),
        (1.0, float("inf")),
        ("a", "b"),
        (1, "1"),
        (10**400, 1.0),
        ({"a": one}, {"a": one.clone()}),
    ):
        assert not same(a, b, 1e-6)
