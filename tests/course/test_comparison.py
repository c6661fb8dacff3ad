"""The comparison of all layers: what is stored belongs to this code, its table says the same, its parts are right."""

import copy
import importlib
import linecache
import math
import re
import sys
from pathlib import Path

import pytest
import torch
from programs import load

import mha
from mha.course.comparison import candidates, fingerprint, results, tasks
from mha.models.training import DivergenceError

ROOT = Path(__file__).resolve().parents[2]
CELLS = [(task, name) for task in candidates.TASKS for name, c in candidates.EVERY.items() if task not in c.refuses]


@pytest.fixture(scope="module")
def benchmark():
    """The program that trains."""
    return load("benchmarks/choosing.py")


@pytest.fixture(autouse=True)
def single_precision():
    torch.set_default_dtype(torch.float32)


# ---- what is stored


@pytest.mark.parametrize(("task", "layer", "budget"), results.planned())
def test_what_is_stored_was_made_by_this_code(task, layer, budget):
    row = results.row(task, layer, budget)
    assert (row["layer"], row["budget"]) == (layer, budget)
    assert row["code"] == results.code_hash(task, layer), "python benchmarks/choosing.py, until all is there"
    assert list(row["runs"]) == [str(rate) for rate in candidates.TASKS[task].rates]
    for run in row["runs"].values():
        assert list(run) == ["validation", "test"]
        for values in run.values():
            assert len(values) == 5
            assert all(0 <= value <= 5 for value in values)


def test_nothing_else_is_stored():
    kept = [(task, name) for task, rows in results.stored()["rows"].items() for name in rows]
    assert kept == [(task, results.label(layer, budget)) for task, layer, budget in results.planned()]


def test_baselines_are_as_large_as_what_they_are_compared_with():
    def weights(name):
        return sum(weight.numel() for weight in candidates.EVERY[name].make(tasks.WIDTH, tasks.HEADS).parameters())

    for layer, baselines in {"composable": ["plain, 2 × 30", "plain, 4 × 15"], "overlapping": ["plain, 4 × 9"]}.items():
        for baseline in baselines:
            assert weights(layer) <= weights(baseline) <= 1.01 * weights(layer)
    assert weights("plain") < weights("talking") < 1.01 * weights("plain")
    for one in ("plain, rotary", "plain, ALiBi", "plain, steep ALiBi"):
        assert weights(one) == weights("plain")


def test_slopes_for_short_texts_are_those_of_the_referee():
    layer = candidates.EVERY["plain, steep ALiBi"].make(tasks.WIDTH, tasks.HEADS)
    assert layer.positions.steep.tolist() == [4.0, 2.0, 1.0, 0.5]


def test_plain_gets_the_time_of_a_slower_layer_and_no_less_than_its_own():
    for task, layer in CELLS:
        if layer not in candidates.SIZES:
            ratio, budget = results.stored()["times"][task][layer], results.bought(task, layer)
            assert budget in results.BUDGETS
            assert ratio / 1.3 < budget or budget == results.BUDGETS[-1]
            assert budget < 1.3 * ratio or budget == 1.0
            assert len(results.values(task, "plain", budget)) == 5
    with pytest.raises(KeyError):
        results.values("dates", "plain", 11.0)


def test_the_validation_part_chooses_the_rate(monkeypatch):
    runs = {
        "0.01": {"validation": [0.5, 0.7], "test": [0.1, 0.2]},
        "0.02": {"validation": [0.9, 0.2], "test": [0.8, 0.9]},
    }
    monkeypatch.setattr(results, "row", lambda *_: {"runs": runs})
    assert results.rate("recall", "plain") == 0.01  # 1.2 in all, against 1.1: the test part has no say
    assert results.rate("English", "plain") == 0.02  # a loss: less is better
    assert results.values("recall", "plain") == [0.1, 0.2]
    assert results.values("recall", "plain", at=0.02) == [0.8, 0.9]


def test_gaps_are_paired_and_plus_is_better():
    mean = {task: sum(results.gaps(task, "plain", "plain, 2 × 30")) for task in ("recall", "English")}
    for task, sign in {"recall": 1, "English": -1}.items():
        gap = sum(results.values(task, "plain")) - sum(results.values(task, "plain, 2 × 30"))
        assert mean[task] == pytest.approx(sign * gap)


def test_a_budget_is_a_number_of_times_the_steps(monkeypatch, reader):
    asked = []
    monkeypatch.setattr(candidates, "learn", lambda contest, _, __, rate: asked.append((contest.steps, rate)))
    for budget in (1.0, 2.0, 0.5):
        candidates.quality("recall", "plain", 0, budget=budget)
    candidates.quality("recall", "plain", 0, rate=0.5)
    assert asked == [(100, 0.01), (200, 0.01), (50, 0.01), (100, 0.5)]
    with pytest.raises(ValueError, match=r"budget = 0.001: 100 steps times that is no step at all"):
        candidates.quality("recall", "plain", 0, budget=0.001)
    with pytest.raises(ValueError, match=r"rate = 0.0: a learning rate is above 0, such as 0.01"):
        candidates.quality("recall", "plain", 0, rate=0.0)


def test_a_training_that_diverges_is_a_guess(monkeypatch, reader):
    """Feedback at the higher rate did, once: its loss was no number."""

    def diverges(*_):
        raise DivergenceError("the loss is nan at step 90")

    monkeypatch.setattr(candidates, "learn", diverges)
    assert candidates.quality("recall", "plain") == (0, 0)
    assert candidates.quality("English", "plain").test == pytest.approx(math.log(len(set(tasks.tasks.course_text()))))


def test_many_comparisons_are_judged_together():
    chances = [0.01, 0.04, 0.03, 0.005]  # Holm 1979: 0.005 < 0.05/4, 0.01 < 0.05/3, but 0.03 > 0.05/2
    assert results.holm(chances) == [True, False, False, True]
    assert results.discoveries(chances) == [True, True, True, True]  # 0.04 ≤ 0.05 · 4/4
    assert results.discoveries([0.01, 0.04, 0.03, 0.2]) == [True, False, False, False]
    assert results.chance([0.0, 0.0]) == 1
    assert results.chance([0.5, 0.5]) == 0
    assert results.chance([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(0.0132, abs=1e-3)


@pytest.mark.parametrize("layer", candidates.LAYERS)
def test_stored_counts_are_those_of_this_code(layer):
    cost = results.large_cost(layer)
    kept = {"parameters": cost.parameters, "flops": cost.flops, "peak": cost.peak, "cache": cost.cache}
    assert results.stored()["cost"][layer] == kept


def test_the_table_and_the_store_agree(benchmark):
    assert benchmark.PAGE.read_text("utf8") == benchmark.page(results.stored()), "benchmarks/choosing.py --table"


def test_rows_of_older_code_are_trained_anew(benchmark, monkeypatch):
    found = copy.deepcopy(results.stored())
    found["rows"]["recall"]["grouped"]["code"] = "older"
    monkeypatch.setattr(results, "stored", lambda: found)
    rows = benchmark.load()["rows"]
    assert rows["recall"]["grouped"]["runs"]["0.02"] == {"validation": [], "test": []}
    assert rows["recall"]["plain"] == found["rows"]["recall"]["plain"]


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


@pytest.mark.parametrize("layer", candidates.EVERY)
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
        assert 0 <= contest.judge(model.eval(), "test") <= 1


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
        contest.judge(model, "test")
        drawn.append(torch.cat([random.get_state() for random in contest.random.values()]))
    assert torch.equal(*drawn)


@pytest.mark.parametrize("task", ["digits", "recall", "English"])
def test_the_test_part_is_the_same_however_long_the_training_was(task):
    """What was drawn in training once moved the test: differences between budgets were not paired then."""
    states = []
    for steps in (1, 3):
        contest, model = candidates.built(task, "plain", 0)
        for _ in range(steps):
            contest.loss(model)
        states.append(contest.random["test"].get_state())
    assert torch.equal(*states)
    assert not torch.equal(states[0], contest.random["validation"].get_state())


def test_no_day_is_in_two_parts():
    days = {part: {tuple(row.tolist()) for row in tasks.written(part)[0][0]} for part in tasks.PARTS}
    assert [len(days[part]) for part in ("validation", "test")] == [300, 500]
    assert not days["validation"] & days["test"]
    assert not days["training"] & (days["validation"] | days["test"])


def test_no_piece_of_text_is_in_two_parts(monkeypatch):
    monkeypatch.setattr(tasks, "english", lambda: torch.arange(3000))
    contest, read = tasks.English(0), []

    class Model(torch.nn.Module):
        def forward(self, tokens):
            read.append((int(tokens.min()), int(tokens.max())))
            return torch.zeros(*tokens.shape, 3000)

    for part in tasks.PARTS:
        contest.measure(Model(), 200, part)
    training, validation, test = read
    assert training[1] < 2400 <= validation[0] < validation[1] < 2700 <= test[0]
    assert training[0] < 100  # most of it is read
    assert training[1] > 2300


def test_one_seed_gives_one_number():
    short = type("Short", (tasks.Recall,), {"steps": 3})
    numbers = []
    for _ in range(2):
        torch.manual_seed(1)
        contest = short(1)
        model = contest.model(lambda count: candidates.stack("plain", count))
        numbers.append(tasks.learn(contest, model, contest.loss, 0.01))
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
