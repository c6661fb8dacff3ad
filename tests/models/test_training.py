"""The training loop, and the small tasks that are made from rules."""

import copy
import hashlib
import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import LIMIT, error
from torch import nn

from mha.data import tasks
from mha.models import LanguageModel, round_weights, smooth, train
from mha.models.training import Muon, MuonAndAdamW, equally_long


def seeded(seed):
    return torch.Generator().manual_seed(seed)


class Number(nn.Module):
    def __init__(self):
        super().__init__()
        self.x = nn.Parameter(torch.tensor(4.0))


# ---- training


def test_training_makes_the_loss_smaller_and_leaves_the_model_in_evaluation():
    model, seen = Number(), []
    losses = train(model, lambda m, step: (m.x - 1) ** 2, 200, lr=0.1, after_step=seen.append)
    assert seen == list(range(200))
    assert len(losses) == 200
    assert losses[0] == 9
    assert losses[-1] < 1e-3
    assert not model.training


def test_the_loss_sees_the_model_in_training_mode_and_the_number_of_the_step():
    model, seen = Number().eval(), []
    train(model, lambda m, step: seen.append((m.training, step)) or m.x**2, 3)
    assert seen == [(True, 0), (True, 1), (True, 2)]


def test_a_given_optimizer_is_used():
    model = Number()
    train(model, lambda m, step: m.x**2, 1, optimizer=torch.optim.SGD(model.parameters(), lr=0.25))
    assert model.x.item() == 2  # 4 − 0.25 · 8


def test_training_that_fails_says_so(reader):
    with pytest.raises(ValueError, match="steps = 0: it must be at least 1"):
        train(Number(), lambda m, step: m.x, 0)
    with pytest.raises(ValueError, match=r"loss is nan at step 2: lower lr = 0\.5"):
        train(Number(), lambda m, step: m.x * (torch.nan if step == 2 else 1), 5, lr=0.5)
    with pytest.raises(ValueError, match=r"returned a tensor of shape \(2,\) .*: it must be one number"):
        train(Number(), lambda m, step: m.x.expand(2), 5)
    with pytest.raises(ValueError, match=r"returned a tensor of shape \(\) and torch.int64: it must be one number"):
        train(Number(), lambda m, step: m.x.detach().long(), 5)
    with pytest.raises(ValueError, match=r"returned 1\.5: it must be one number"):
        train(Number(), lambda m, step: 1.5, 5)
    with pytest.raises(ValueError, match="loss is inf at step 0"):
        train(Number(), lambda m, step: m.x / 0, 5)


UNTRAINABLE = {
    "no parameters": (nn.Identity(), "model = the module Identity: it has no parameter to train"),
    "all frozen": (Number().requires_grad_(False), "model = the module Number: it has no parameter to train"),
    "no gradient": (Number(), "has no gradient: it depends on no parameter that is trained"),
}


@pytest.mark.parametrize("name", UNTRAINABLE)
def test_what_cannot_be_trained_is_refused_by_name(reader, name):
    model, message = UNTRAINABLE[name]
    with pytest.raises(ValueError, match=message):
        train(model, lambda m, step: torch.tensor(1.0), 2)


@pytest.mark.parametrize("steps", [10**9, 10**12, sys.maxsize])
def test_steps_that_never_end_are_refused(reader, steps):
    with pytest.raises(ValueError, match=f"steps = {steps}: it must be at most 10000000"):
        train(Number(), lambda m, step: m.x, steps)
    with pytest.raises(ValueError, match=f"layers = {steps}: it must be at most 10000"):
        LanguageModel(9, 8, 2, layers=steps)


# ---- Muon


@pytest.mark.parametrize("shape", [(6, 3), (3, 6), (4, 4), (1, 5), (5, 1)], ids=str)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_muon_is_its_formula(shape, momentum):
    """Nesterov's step: the mean that comes next, made equally long, at a rate that grows with rows / columns."""
    weight = nn.Parameter(torch.randn(shape))
    optimizer = Muon([weight], lr=0.1, momentum=momentum, weight_decay=0.2)
    right, mean = weight.detach().clone(), torch.zeros(shape)
    for gradient in torch.randn(3, *shape):
        weight.grad = gradient
        optimizer.step()
        mean = momentum * mean + (1 - momentum) * gradient
        ahead = momentum * mean + (1 - momentum) * gradient
        rate = 0.1 * max(1.0, shape[0] / shape[1]) ** 0.5
        right = (1 - 0.1 * 0.2) * right - rate * equally_long(ahead)
        assert error(weight, right) < LIMIT


@pytest.mark.parametrize("shape", [(6, 3), (3, 6), (4, 4)], ids=str)
def test_equally_long_keeps_the_directions_and_brings_their_lengths_near_one(shape):
    matrix = torch.randn(shape)
    u, sizes, vt = torch.linalg.svd(matrix, full_matrices=False)
    length = sizes / sizes.norm()
    for _ in range(5):
        length = 3.4445 * length - 4.7750 * length**3 + 2.0315 * length**5
    found = equally_long(matrix)
    assert error(found, u * length @ vt) < 1e-10
    assert (torch.linalg.svdvals(found) - 0.95).abs().max() < 0.6
    assert equally_long(0 * matrix).abs().max() == 0


def test_muon_changes_the_matrices_inside_and_adamw_all_others():
    model = LanguageModel(9, 8, 2)
    both = MuonAndAdamW(model, model.decoder, 100, lr=0.03, rest=0.005)
    taken = [[p for group in o.param_groups for p in group["params"]] for o in both.optimizers]
    assert {id(p) for p in taken[0]} == {id(p) for p in model.decoder.parameters() if p.ndim == 2}
    assert sorted(id(p) for some in taken for p in some) == sorted(map(id, model.parameters()))
    rates = []
    for _ in range(100):
        rates.append([o.param_groups[0]["lr"] for o in both.optimizers])
        both.step()
    right = [min(1, (s + 1) / 20, 2 - 2 * s / 100) for s in range(100)]
    assert error(torch.tensor(rates), torch.tensor([[0.03 * r, 0.005 * r] for r in right])) < LIMIT
    assert both.optimizers[0].param_groups[0]["lr"] == 0


def test_without_matrices_there_is_nothing_for_muon(reader):
    for inside in (nn.Identity(), nn.LayerNorm(4)):
        with pytest.raises(ValueError, match=r"inside = the module .*: it has no matrix"):
            MuonAndAdamW(nn.Linear(2, 2), inside, 3)
    with pytest.raises(ValueError, match=r"matrices = \[\]: give at least one"):
        Muon([], lr=0.1)
    only = nn.Linear(2, 2, bias=False)  # nothing is left for AdamW
    before = only.weight.detach().clone()
    train(only, lambda m, step: m.weight.square().sum(), 1, optimizer=MuonAndAdamW(only, only, 3))
    assert not torch.equal(only.weight, before)


def test_the_bar_goes_to_the_screen_not_to_the_error_stream():
    code = "import torch; from mha.models import train; m = torch.nn.Linear(1, 1)\n"
    code += "train(m, lambda m, _: m.weight.square().sum(), 3)"
    loud = {name: value for name, value in os.environ.items() if name != "TQDM_DISABLE"}
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=loud, check=True)
    assert told.stderr == ""
    assert "0/3" in told.stdout


def test_rounded_weights_have_no_more_decimals_and_two_close_models_become_one():
    model = torch.nn.Linear(3, 2).double()
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.weight += 1e-12
    for one in (model, twin):
        round_weights(one, 4)
    assert torch.equal(model.weight, twin.weight)
    assert torch.equal((model.weight * 1e4).round() / 1e4, model.weight)
    assert model.weight.requires_grad


def test_smooth_averages_with_the_values_before():
    assert smooth([1.0, 2.0, 3.0, 4.0], 2) == [1, 1.5, 2.5, 3.5]
    assert smooth(iter([3.0, 5.0]), 20) == [3, 4]
    assert smooth([]) == []
    with pytest.raises(ValueError, match="window = 0"):
        smooth([1.0, 2.0], 0)


# ---- tasks


def test_sentences_become_word_numbers_and_back():
    words = tasks.encode("I saw a saw")
    assert words.shape == (1, 4)
    assert [tasks.WORDS[w] for w in words[0]] == ["I", "saw", "a", "saw"]
    with pytest.raises(ValueError, match=r"unknown words \['dog'\].*'saw'"):
        tasks.encode("I saw a dog")


@settings(max_examples=10)
@given(st.integers(0, 999))
def test_tagged_sentences_follow_their_two_patterns(seed):
    words, tags = tasks.tagging(64, generator=seeded(seed))
    assert words.shape == tags.shape == (64, 4)
    kinds = {
        "PRONOUN": tasks.PRONOUNS,
        "DETERMINER": tasks.DETERMINERS,
        "NOUN": tasks.AMBIGUOUS,
        "VERB": tasks.AMBIGUOUS,
    }
    patterns = set()
    for sentence, labels in zip(words.tolist(), tags.tolist(), strict=True):
        names = [tasks.TAGS[t] for t in labels]
        patterns.add(tuple(names))
        assert all(tasks.WORDS[w] in kinds[name] for w, name in zip(sentence, names, strict=True))
    assert patterns == {("PRONOUN", "VERB", "DETERMINER", "NOUN"), ("DETERMINER", "NOUN", "VERB", "PRONOUN")}


@settings(max_examples=20)
@given(st.integers(1, 9), st.integers(1, 12), st.integers(1, 5), st.integers(0, 999))
def test_a_look_up_question_has_one_answer_in_its_list(count, pairs, values, seed):
    keys, held, asked, answers = tasks.recall(count, generator=seeded(seed), pairs=pairs, keys=12, values=values)
    assert keys.shape == held.shape == (count, pairs)
    assert asked.shape == (count, 1)
    found = keys == asked
    assert found.sum(1).tolist() == [1] * count
    assert torch.equal(held[found], answers)
    assert all(len(set(row)) == pairs for row in keys.tolist())
    assert min(keys.min(), held.min()) >= 0
    assert keys.max() < 12
    assert held.max() < values


@settings(max_examples=20)
@given(st.integers(1, 9), st.integers(2, 5), st.booleans(), st.integers(0, 999))
def test_a_buyer_asks_for_two_different_fruits_that_lie_on_the_stall(count, kinds, together, seed):
    asked, labels, prices, answers = tasks.two_lookups(count, generator=seeded(seed), kinds=kinds, together=together)
    n = kinds * kinds if together else kinds
    assert labels.shape == (count, n, 2 * kinds)
    assert prices.shape == (count, n, 1)
    assert asked.shape == (count, 1, (4 if together else 2) * kinds)
    colors, tastes = labels[..., :kinds], labels[..., kinds:]
    assert (colors.sum(-1) == 1).all()
    assert (tastes.sum(-1) == 1).all()
    assert torch.equal(colors.sum(1), torch.full((count, kinds), n / kinds))
    assert torch.equal(tastes.sum(1), torch.full((count, kinds), n / kinds))
    one, other = asked[:, 0].chunk(2, -1)
    wanted = [labels @ one[..., None] == 2, labels @ other[..., None] == 2] if together else [
        colors @ one[..., None] == 1, tastes @ other[..., None] == 1
    ]  # fmt: skip
    for w, answer in zip(wanted, answers.T, strict=True):
        assert w.sum((1, 2)).tolist() == [1] * count
        assert torch.equal(prices[w], answer)
    assert not (wanted[0] & wanted[1]).any()


def test_tasks_are_the_same_for_the_same_seed_and_differ_for_another():
    for make in (tasks.tagging, tasks.recall, tasks.two_lookups):
        one, same, other = (make(16, generator=seeded(s)) for s in (0, 0, 1))
        assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
        assert not torch.equal(one[0], other[0])


def test_tasks_refuse_sizes_that_make_no_task(reader):
    for make in (tasks.tagging, tasks.recall, tasks.two_lookups):
        for count in (0, -1):
            with pytest.raises(ValueError, match=f"count = {count}"):
                make(count, generator=seeded(0))
    with pytest.raises(ValueError, match=r"pairs = 9.*at most 8 pairs"):
        tasks.recall(2, generator=seeded(0), pairs=9, keys=8)
    with pytest.raises(ValueError, match=r"kinds = 1.*2 kinds"):
        tasks.two_lookups(2, generator=seeded(0), kinds=1)


def test_the_frozen_text_does_not_change():
    text = tasks.course_text()
    assert hashlib.sha256(f"{text}\n".encode()).hexdigest()[:16] == "a50b89cbee3ec0ad"
    assert text.isascii()
    assert text.count(" the ") > 2000
