"""Heads that are taken out, guessed to matter, or gated: pruned is masked, formulas are the paper's."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from oracle import LIMIT, error
from registry import QUERIES, every
from torch import nn

import mha
from mha.analysis import gates, importance, pruning
from mha.layers import multi_head
from mha.models import EncoderDecoder, LanguageModel

NAMES = ("W_q", "W_k", "W_v", "W_o")


def whole_groups(layer):
    """Every way to keep some groups of heads that share their keys."""
    group = layer.heads // layer.kv_heads
    for bits in range(1, 2**layer.kv_heads):
        yield [h for h in range(layer.heads) if bits >> (h // group) & 1]


def model(**how):
    return LanguageModel(7, 12, 3, layers=2, **how).eval()


def text(b=5, n=6):
    return torch.randint(7, (b, n), generator=torch.Generator().manual_seed(0))


def losses(model, words):
    """One loss for each text: how badly each next word is guessed."""
    logits = model(words[:, :-1])
    return F.cross_entropy(logits.mT, words[:, 1:], reduction="none").mean(-1)


# ---- taking heads out


@every(caches=True, apart=True)
def test_a_layer_of_some_heads_is_the_whole_layer_with_the_others_silent(entry):
    layer = entry.build().eval()
    x = entry.words()
    memory = () if entry.alone else entry.memory(layer)
    hows = [{}, {"mask": mha.padding_mask([QUERIES, 0, 2])}, {"is_causal": True}] if entry.alone else [{}]
    for heads in whole_groups(layer):
        smaller = layer.take_heads(heads)
        for how in hows:
            with pruning.mask_heads(layer, {"": heads}):
                right = layer(x, *memory, **how)
            assert error(smaller(x, *memory, **how), right) < LIMIT


@every(caches=True, apart=True)
def test_what_is_taken_is_a_copy_of_its_own_and_really_smaller(entry):
    layer = entry.build()
    heads = next(whole_groups(layer))
    before, state = copy.deepcopy(layer.state_dict()), torch.get_rng_state()
    with mha.watch(layer, "heads") as seen:
        smaller = layer.take_heads(heads)
        assert torch.equal(state, torch.get_rng_state())
        smaller(entry.words(), *(() if entry.alone else entry.memory(layer)))
    assert not seen  # who watches the layer does not watch its copy
    assert type(smaller) is type(layer)
    share = len(heads) / layer.heads
    for name in NAMES:
        old, new = getattr(layer, name), getattr(smaller, name)
        if name not in entry.whole:
            assert new.weight.numel() == share * old.weight.numel()
        assert (new.out_features, new.in_features) == tuple(new.weight.shape)
        assert new.weight.dtype == old.weight.dtype
    for weight in smaller.parameters():
        assert weight.requires_grad
        nn.init.zeros_(weight)
    assert all(torch.equal(w, before[name]) for name, w in layer.state_dict().items())


@every(alone=True, caches=True, apart=True)
@torch.no_grad()
def test_a_smaller_layer_still_caches_and_counts_its_cost(entry):
    layer = entry.build().eval()
    smaller, x = layer.take_heads(next(whole_groups(layer))), entry.words()
    cache = smaller.new_cache()
    steps = torch.cat([smaller(x[:, n : n + 1], is_causal=True, cache=cache) for n in range(QUERIES)], 1)
    assert error(steps, smaller(x, is_causal=True)) < LIMIT
    assert smaller.cost(3, 5).parameters == sum(p.numel() for p in smaller.parameters())
    if len(list(whole_groups(layer))) > 1:
        assert smaller.cost(3, 5).flops < layer.cost(3, 5).flops


def test_the_heads_of_a_smaller_layer_are_those_that_were_chosen():
    layer, x = mha.MultiHeadAttention(6, 3), torch.randn(2, 5, 6)
    smaller = layer.take_heads([2, 0])  # in the order of the layer
    with mha.watch(layer) as seen:
        layer(x)
    with mha.watch(smaller) as left:
        smaller(x)
    for place in ("scores", "weights", "heads"):
        assert error(getattr(left, place), getattr(seen, place)[:, [0, 2]]) < LIMIT
    again = smaller.take_heads([1])
    assert error(again.W_q.weight, layer.W_q.weight[4:]) == 0


def test_heads_that_cannot_be_taken_are_refused():
    layer, shared = mha.MultiHeadAttention(6, 3), mha.GroupedAttention(8, 4, 2)
    for wrong in ([], [3], [-1], [0, 0]):
        with pytest.raises(ValueError, match=r"of a layer with 3: give at least one, each once, from 0 to 2"):
            layer.take_heads(wrong)
    with pytest.raises(ValueError, match=r"within the groups \[\[0, 1\], \[2, 3\]\]: take or leave all of \[2, 3\]"):
        shared.take_heads([0, 1, 2])
    with pytest.raises(ValueError, match="of Heads cannot be taken out: its class does not say"):
        mha.Heads(6, 3).take_heads([0])


# ---- pruning a model


def test_a_pruned_model_is_the_masked_one_and_the_model_stays_as_it_was():
    whole, words = model(), text()
    before = whole(words)
    keep = {"decoder.0.attention": [1], "decoder.1.attention": [0, 2]}
    with pruning.mask_heads(whole, keep):
        right = whole(words)
    smaller = pruning.prune_heads(whole, keep)
    assert error(smaller(words), right) < LIMIT
    assert error(right, before) > 1e-3
    assert torch.equal(whole(words), before)
    heads = {path: layer.heads for path, layer in multi_head.attention_layers(smaller).items()}
    assert heads == {"decoder.0.attention": 1, "decoder.1.attention": 2}
    assert error(smaller.generate(words[:, :2], 3), smaller.generate(words[:, :2], 3, cached=False)) == 0


def test_an_encoder_and_a_decoder_are_pruned_by_path():
    whole = EncoderDecoder(7, 7, 12, 3).eval()
    keep = {path: [0] for path in multi_head.attention_layers(whole)}
    assert len(keep) == 3
    with pruning.mask_heads(whole, keep):
        right = whole(text(), text(5, 4))
    assert error(pruning.prune_heads(whole, keep)(text(), text(5, 4)), right) < LIMIT


def test_layers_that_do_not_exist_are_refused():
    with pytest.raises(ValueError, match=r"no layer \['decoder.2.attention'\]: the layers with heads are \['decoder.0"):
        pruning.prune_heads(model(), {"decoder.2.attention": [0]})
    with pytest.raises(ValueError, match="Linear has no layer with heads"):
        multi_head.attention_layers(nn.Linear(2, 2))


def test_the_strongest_heads_are_chosen_over_all_layers():
    scores = {"a": torch.tensor([0.1, 0.9, 0.2]), "b": torch.tensor([0.05, 0.04])}
    assert pruning.top_heads(scores, 2, at_least=0) == {"a": [1, 2], "b": []}
    assert pruning.top_heads(scores, 2) == {"a": [1], "b": [0]}
    assert pruning.top_heads(scores, 4) == {"a": [0, 1, 2], "b": [0]}
    with pytest.raises(ValueError, match="with at least 1 in each layer take 2 to 5 heads"):
        pruning.top_heads(scores, 1)
    with pytest.raises(ValueError, match="take 0 to 5 heads"):
        pruning.top_heads(scores, 6, at_least=0)


# ---- importance


def test_importance_is_the_mean_size_of_each_examples_slope():
    whole, words = model(), text()
    right = {path: torch.zeros(3) for path in multi_head.attention_layers(whole)}
    step = 1e-5
    for path, layer in multi_head.attention_layers(whole).items():
        for h in range(3):
            found = []
            for sign in (1, -1):  # the slope, by small steps
                gate = torch.ones(3, 1, 1)
                gate[h] += sign * step
                with mha.edit(layer, heads=lambda z, gate=gate: z * gate):
                    found.append(losses(whole, words).detach())
            right[path][h] = ((found[0] - found[1]) / (2 * step)).abs().mean()
    batches = [words[:2], words[2:]]  # unequal batches: each example counts the same
    found = importance.head_importance(whole, losses, batches, normalize=False)
    for path in right:
        assert error(found[path], right[path]) < 1e-6
    scaled = importance.head_importance(whole, losses, [words])
    for path in right:
        assert error(scaled[path], right[path] / right[path].norm()) < 1e-6


def test_importance_is_the_read_times_its_gradient():
    whole, words = model(), text()
    with mha.watch(whole, "heads", detach=False) as seen:
        loss = losses(whole, words).sum()
    found = importance.head_importance(whole, losses, [words], normalize=False)
    for path, z in seen.items():
        slope = (torch.autograd.grad(loss, z, retain_graph=True)[0] * z).sum((2, 3)).abs().mean(0)
        assert error(found[path.removesuffix(".heads")], slope) < LIMIT


def test_importance_leaves_the_model_alone():
    whole = model(dropout=0.3).train()
    one = importance.head_importance(whole, losses, [text()])
    other = importance.head_importance(whole, losses, [text()])
    assert all(torch.equal(one[path], other[path]) for path in one)  # without dropout nothing is random
    assert whole.training
    assert all(p.grad is None for p in whole.parameters())


def test_a_head_that_adds_nothing_has_no_importance_and_a_layer_of_them_no_nan():
    whole = model()
    with torch.no_grad():
        whole.decoder[0].attention.W_o.weight[:, :4] = 0
        whole.decoder[1].attention.W_o.weight.zero_()
    found = importance.head_importance(whole, losses, [text()])
    assert found["decoder.0.attention"][0] == 0
    assert found["decoder.0.attention"][1:].min() > 0
    assert found["decoder.1.attention"].abs().max() == 0


def test_losses_that_are_not_one_for_each_example_are_refused(reader):
    with pytest.raises(ValueError, match=r"losses have shape \(\): give one for each of \[5\] examples"):
        importance.head_importance(model(), lambda m, w: losses(m, w).mean(), [text()])
    with pytest.raises(ValueError, match="there is no batch"):
        importance.head_importance(model(), losses, [])


# ---- gates


def test_gates_in_evaluation_follow_the_formula():
    gate = gates.HardConcrete(5).eval()
    odds = [-4.0, -2.0, -0.1, 1.0, 4.0]
    gate.log_a.data = torch.tensor(odds)
    right = [min(1.0, max(0.0, 1.2 / (1 + math.exp(-a)) - 0.1)) for a in odds]
    assert error(gate(), torch.tensor(right)) < LIMIT
    assert torch.equal(gate(), gate())
    assert gate.decided().tolist() == [0, 0, 0, 1, 1]


def test_gates_in_training_follow_the_formula_on_the_drawn_noise():
    gate = gates.HardConcrete(3, log_a=0.4)
    torch.manual_seed(5)
    found = gate()
    torch.manual_seed(5)
    u = torch.empty(3).uniform_(1e-6, 1 - 1e-6).tolist()
    odds = [(math.log(x) - math.log(1 - x) + 0.4) / 0.33 for x in u]
    right = [min(1.0, max(0.0, 1.2 / (1 + math.exp(-a)) - 0.1)) for a in odds]
    assert error(found, torch.tensor(right)) < LIMIT
    assert not torch.equal(found, gate())


@torch.no_grad()
def test_the_chances_of_gates_agree_with_many_draws():
    gate = gates.HardConcrete(400_000)
    for odds in (-2.0, -0.5, 0.0, 0.7, 2.0):
        nn.init.constant_(gate.log_a, odds)
        drawn = gate()
        assert abs(float((drawn != 0).double().mean()) - float(gate.open_probability()[0])) < 0.003
        assert abs(float((drawn == 1).double().mean()) - float(gate.full_probability()[0])) < 0.003
        assert float(gate.penalty()) == pytest.approx(400_000 * float(gate.open_probability()[0]))


def test_gates_of_other_shape_decide_by_the_likelier_of_the_two_ends():
    gate = gates.HardConcrete(41, low=-0.5, high=1.1)
    gate.log_a.data = torch.linspace(-2, 2, 41)
    right = gate.full_probability() > 1 - gate.open_probability()
    assert torch.equal(gate.decided().bool(), right)
    assert 0 < right.sum() < 41
    with pytest.raises(ValueError, match=r"low = 0\.0, high = 1.1, beta = 0.33: they must be"):
        gates.HardConcrete(2, low=0.0)


def test_open_gates_change_nothing_and_closed_ones_are_pruned_heads():
    whole, words = model(), text()
    before, some = whole(words), gates.Gates(whole, log_a=50.0).eval()
    with some.on(whole):
        assert error(whole(words), before) < LIMIT
    some.each[0].log_a.data = torch.tensor([-50.0, 50.0, 50.0])
    some.each[1].log_a.data = torch.tensor([50.0, -50.0, -50.0])
    keep = some.keep()
    assert keep == {"decoder.0.attention": [1, 2], "decoder.1.attention": [0]}
    smaller = pruning.prune_heads(whole, keep)
    for decided in (False, True):
        with some.on(whole, decided=decided):
            assert error(smaller(words), whole(words)) < LIMIT
    assert torch.equal(whole(words), before)
    assert some.penalty().item() == pytest.approx(3)


def test_a_layer_whose_gates_all_close_keeps_its_likeliest_head_on_demand():
    some = gates.Gates(model())
    some.each[0].log_a.data = torch.tensor([-5.0, -3.0, -4.0])
    assert some.keep()["decoder.0.attention"] == []
    assert some.keep(at_least=1) == {"decoder.0.attention": [1], "decoder.1.attention": [0, 1, 2]}


@pytest.mark.parametrize(
    ("layer", "idle", "groups", "closed", "kept"),
    [(lambda: mha.MultiHeadAttention(6, 3), slice(2, 4), False, 1, [0, 2]),
     (lambda: mha.GroupedAttention(8, 4, 2), slice(4), True, 0, [1])],
    ids=["heads", "groups"],
)  # fmt: skip
def test_the_penalty_closes_gates_that_nothing_needs_and_the_loss_opens_those_it_needs(
    layer, idle, groups, closed, kept
):
    layer = layer()
    x = torch.randn(8, 5, layer.d_model)
    with torch.no_grad():
        layer.W_o.weight[:, idle] = 0  # what the closed one reads goes nowhere
        layer.W_o.weight *= 5
        target = layer(x)
    some = gates.Gates(layer, log_a=0.0, groups=groups)
    optimizer = torch.optim.Adam(some.parameters(), lr=0.1)
    for _ in range(150):
        with some.on(layer):
            loss = (layer(x) - target).square().sum((1, 2)).mean() + 0.1 * some.penalty()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert some.keep() == {"": kept}
    assert some.each[0].open_probability()[closed] < 0.1


def test_a_layer_alone_is_pruned_under_its_empty_path(reader):
    layer, x = mha.MultiHeadAttention(12, 3).eval(), torch.randn(2, 5, 12)
    with pruning.mask_heads(layer, {"": [2, 0]}):
        masked = layer(x)
    assert error(pruning.prune_heads(layer, {"": [2, 0]})(x), masked) < LIMIT
    assert error(layer(x), masked) > 0.01
    told = r"of a layer with 3: give .*each once, from 0 to 2"
    for wrong in ([-1], [3], [0, 0]):
        with pytest.raises(ValueError, match=told):
            pruning.prune_heads(layer, {"": wrong})
        with pytest.raises(ValueError, match=told), pruning.mask_heads(layer, {"": wrong}):
            pass


def test_scores_and_losses_that_are_no_numbers_are_refused(reader):
    with pytest.raises(ValueError, match=r"scores\['a'\] = \[0.5, nan\]: NaN is neither high nor low"):
        pruning.top_heads({"a": torch.tensor([0.5, math.nan])}, 1)
    broken = lambda model, words: losses(model, words) * math.nan  # noqa: E731
    with pytest.raises(ValueError, match=r"losses = \[nan.*not finite has no slope"):
        importance.head_importance(model(), broken, [text()])
