"""The comparison of all layers: what is stored belongs to this code, its table says the same, its parts are right."""

import importlib
import json
import linecache
import re
import sys
from pathlib import Path

import pytest
import torch
from programs import load

import mha
from mha.course.comparison import candidates, fingerprint, results, tasks

ROOT = Path(__file__).resolve().parents[2]
CELLS = [(task, name) for task in candidates.TASKS for name, c in candidates.LAYERS.items() if task not in c.refuses]


@pytest.fixture(scope="module")
def benchmark():
    """The program that trains."""
    return load("benchmarks/choosing.py")


@pytest.fixture(autouse=True)
def single_precision():
    torch.set_default_dtype(torch.float32)


# ---- what is stored


@pytest.mark.parametrize(("task", "layer"), CELLS)
def test_what_is_stored_was_made_by_this_code(task, layer):
    row = results.stored()["quality"][task][layer]
    assert row["code"] == results.code_hash(task, layer), "python benchmarks/choosing.py, until all is there"
    assert len(row["values"]) >= 5
    assert all(0 <= value <= 5 for value in row["values"])


def test_nothing_else_is_stored():
    assert [(task, layer) for task, rows in results.stored()["quality"].items() for layer in rows] == CELLS
    more = [(task, name) for task, rows in results.stored()["more"].items() for name in rows]
    assert more == [(task, results.label(layer, budget)) for task, layer, budget in results.extras()]


@pytest.mark.parametrize(("task", "layer", "budget"), results.extras())
def test_rivals_and_longer_trainings_were_made_by_this_code(task, layer, budget):
    row = results.stored()["more"][task][results.label(layer, budget)]
    assert (row["layer"], row["budget"]) == (layer, budget)
    assert row["code"] == results.code_hash(task, layer), "python benchmarks/choosing.py, until all is there"
    assert len(row["values"]) == len(results.stored()["quality"][task]["plain"]["values"])


def test_rivals_are_as_large_as_what_they_are_compared_with():
    def weights(name):
        return sum(weight.numel() for weight in candidates.EVERY[name].make(tasks.WIDTH, tasks.HEADS).parameters())

    for layer, rivals in {"composable": ["plain, 2 × 30", "plain, 4 × 15"], "overlapping": ["plain, 4 × 9"]}.items():
        for rival in rivals:
            assert weights(layer) <= weights(rival) <= 1.01 * weights(layer)
    assert weights("plain") < weights("talking") < 1.01 * weights("plain")


def test_plain_gets_the_time_of_a_slower_layer_and_no_less_than_its_own():
    for task, layer in CELLS:
        ratio = results.stored()["times"][task][layer]
        assert results.bought(task, layer) == min(max(round(ratio, 1), 1.0), 7.0)
        assert len(results.values(task, "plain", results.bought(task, layer))) == 5
    with pytest.raises(KeyError):
        results.values("dates", "plain", 11.0)


def test_a_budget_is_a_number_of_times_the_steps(monkeypatch, reader):
    steps = []
    monkeypatch.setattr(candidates, "learn", lambda contest, *_: steps.append(contest.steps) or 0.0)
    for budget in (1.0, 2.0, 0.5):
        candidates.quality("recall", "plain", 0, budget=budget)
    assert steps == [150, 300, 75]
    with pytest.raises(ValueError, match=r"budget = 0.001: 150 steps times that is no step at all"):
        candidates.quality("recall", "plain", 0, budget=0.001)


@pytest.mark.parametrize("layer", candidates.LAYERS)
def test_stored_counts_are_those_of_this_code(layer):
    cost = results.large_cost(layer)
    kept = {"parameters": cost.parameters, "flops": cost.flops, "peak": cost.peak, "cache": cost.cache}
    assert results.stored()["cost"][layer] == kept


def test_the_table_and_the_store_agree(benchmark):
    assert benchmark.PAGE.read_text("utf8") == benchmark.page(results.stored()), "benchmarks/choosing.py --table"


def test_rows_of_older_code_are_trained_anew(benchmark, monkeypatch, tmp_path):
    found = results.stored()
    found["quality"]["recall"]["grouped"]["code"] = "older"
    monkeypatch.setattr(results, "STORE", tmp_path / "choosing.json")
    results.STORE.write_text(json.dumps(found), "utf8")
    rows = benchmark.load()["quality"]
    assert rows["recall"]["grouped"]["values"] == []
    assert rows["recall"]["plain"] == found["quality"]["recall"]["plain"]


# ---- the hash


CODE = {
    "one": '''"""A text."""

from mha import two
from mha.checks import checked
from mha.two import LIMIT


def f(x: int) -> int:
    """Add."""
    if x > LIMIT:
        raise ValueError("large")
    return two.add(x, 1)


def unused(x):
    return x
''',
    "two": '''"""Another."""

LIMIT = 3


def add(x, y):
    return x + y
''',
}


@pytest.fixture
def hashed(tmp_path, monkeypatch):
    """A function from the texts of two small modules to the hash of f."""
    monkeypatch.setattr(mha, "__path__", [*mha.__path__, str(tmp_path)])
    cached = (fingerprint.definitions, fingerprint.imported, fingerprint.uses, fingerprint.bare)

    def forget():
        for name in ("one", "two"):
            sys.modules.pop(f"mha.{name}", None)
            vars(mha).pop(name, None)
        for function in cached:
            function.cache_clear()

    def hash_of(texts):
        forget()
        for name, text in texts.items():
            (tmp_path / f"{name}.py").write_text(text, "utf8")
        linecache.clearcache()
        importlib.invalidate_caches()
        return fingerprint.fingerprint([importlib.import_module("mha.one").f], [3])

    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield hash_of
    forget()


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("Add.", "Add one.", True),
        ("return", "# why\n    return", True),
        ("x: int", "x: float", True),
        ('"large"', '"too large"', True),
        ("x + y", "(x  +  y)", True),
        ("return x\n", "return 2 * x\n", True),  # nobody calls it
        ("    if x", "    check_whole(x=x)\n    if x", True),
        ("def f", "@checked\ndef f", True),
        ("    if x", "    x = check_whole(x=x)\n    if x", False),
        ("x + y", "x - y", False),
        ("x > LIMIT", "x >= LIMIT", False),
        ("LIMIT = 3", "LIMIT = 4", False),
        ("(x, 1)", "(x, 2)", False),
    ],
)
def test_a_changed_comment_leaves_the_hash_and_a_changed_line_does_not(hashed, old, new, same):
    changed = {name: text.replace(old, new) for name, text in CODE.items()}
    assert changed != CODE
    before = hashed(CODE)
    assert (hashed(changed) == before) is same


def test_a_definition_that_moves_keeps_the_hash(hashed):
    before = hashed(CODE)
    add = CODE["two"].partition("\n\n\n")[2]
    moved = CODE["one"].replace("two.add", "add").replace("from mha import two\n", "")
    assert hashed({"one": f"{moved}\n\n{add}", "two": CODE["two"].replace(add, "")}) == before


def test_the_hash_of_a_row_holds_the_code_of_its_own_layer_and_of_no_other():
    part = candidates.stack("sparse", 1)
    names = {name for _, name in fingerprint.reached(type(piece) for piece in part.modules())}
    assert {"EntmaxAttention", "entmax_of_heads", "Heads", "attend", "past_mask", "Residual"} <= names
    others = {type(candidate.make(16, 4)).__name__ for name, candidate in candidates.LAYERS.items() if name != "sparse"}
    assert not names & (others - {"MultiHeadAttention"})


@pytest.mark.parametrize("layer", candidates.LAYERS)
def test_training_never_calls_what_the_hash_leaves_out(layer, monkeypatch):
    def idle(*args, **how):
        raise AssertionError("training has called it")

    task = "dates" if layer == "merged" else "recall"
    contest, model = candidates.built(task, layer, 0)
    for kind in {type(part) for part in model.modules()}:
        for name in fingerprint.IDLE:
            monkeypatch.setattr(kind, name, idle, raising=False)
    contest.loss(model).backward()
    with torch.no_grad():
        assert 0 <= contest.judge(model.eval()) <= 1


# ---- the parts


@pytest.mark.slow
@pytest.mark.parametrize(("task", "layer"), CELLS)
def test_every_cell_can_be_trained_and_gradients_reach_all_weights(task, layer):
    contest, model = candidates.built(task, layer, 0)
    loss = candidates.balanced(contest, model) if layer == "routed" else contest.loss(model)
    loss.backward()
    missed = [name for name, p in model.named_parameters() if p.grad is None]
    assert not missed


@pytest.mark.parametrize("task", candidates.TASKS)
def test_all_layers_meet_the_same_data(task):
    drawn = []
    for layer in ("plain", "talking"):
        contest, model = candidates.built(task, layer, 3)
        contest.loss(model)
        drawn.append(contest.random.get_state())
    assert torch.equal(*drawn)


def test_one_seed_gives_one_number():
    short = type("Short", (tasks.Recall,), {"steps": 3})
    numbers = []
    for _ in range(2):
        torch.manual_seed(1)
        contest = short(1)
        model = contest.model(lambda count: candidates.stack("plain", count))
        numbers.append(tasks.learn(contest, model, contest.loss))
    assert numbers[0] == numbers[1]


def test_only_a_model_that_looks_back_can_recall():
    """Without attention nothing better than guessing is possible: the answers cannot be learned by heart."""
    contest = tasks.Recall(0)
    keys, values, asked, answers = contest.draw(50)
    found = (keys[:, None] == asked[:, :, None]).int().argmax(-1)
    assert torch.equal(values.gather(1, found), answers)
    assert (answers == values).double().mean() < 0.2


@pytest.mark.parametrize("layer", ["merged", "feedback"])
def test_a_task_that_a_layer_cannot_do_is_refused(reader, layer):
    task, reason = next(iter(candidates.LAYERS[layer].refuses.items()))
    with pytest.raises(ValueError, match=re.escape(f"{layer} cannot do {task}: {reason}")):
        candidates.quality(task, layer)


def test_unknown_names_are_refused(reader):
    with pytest.raises(ValueError, match=r"task = 'chess', layer = 'plain': one of \['digits', "):
        candidates.quality("chess", "plain")


def test_an_interval_is_students(reader):
    mean, low, high = results.interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert mean == 3
    assert (low, high) == pytest.approx((1.0368, 4.9632), abs=1e-3)
    with pytest.raises(ValueError, match="1 values: this table of Student's t knows 2 to 10"):
        results.interval([1.0])


def test_the_cost_of_stepping_is_that_of_all_steps():
    cost, plain = results.large_cost("feedback"), results.large_cost("plain")
    width, _, words = results.LARGE
    scores = 2 * 2 * width * sum(range(1, words))  # each step compares with and reads from all earlier ones
    assert cost.parts["all steps"].flops > scores + 8 * (words - 1) * width**2
    assert plain.flops == 8 * words * width**2 + 4 * words**2 * width
    assert isinstance(results.stored(), dict)
