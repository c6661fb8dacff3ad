"""Looking into a layer changes nothing; editing changes what it says it changes."""

import pytest
import torch
from oracle import LIMIT, error
from registry import BATCH, QUERIES, every
from torch import nn

import mha
from mha.functional import core
from mha.layers import Seen


class Two(nn.Module):
    """Two layers, one inside the other, as a model has them."""

    def __init__(self):
        super().__init__()
        self.first = mha.MultiHeadAttention(6, 2)
        self.rest = nn.ModuleDict({"attention": mha.SelfAttention(6)})

    def forward(self, x):
        return self.rest["attention"](self.first(x))


def value_and_gradients(layer, x, **how):
    x = x.detach().requires_grad_()
    torch.manual_seed(1)  # the same dropout each time
    y = layer(x, **how)
    weight = torch.linspace(-1, 2, y.numel()).view_as(y)
    learned = [w for name, w in layer.named_parameters() if not name.startswith("indexer.")]  # a loss of their own
    return [y.detach(), *torch.autograd.grad((y * weight).sum(), [x, *learned])]


@every(alone=True)
@pytest.mark.parametrize("places", [(), ("scores",), ("weights",), ("heads",), ("weights", "heads")], ids=str)
def test_watched_is_unwatched_in_value_and_gradient(entry, places):
    layer, x = entry.build().eval(), entry.words()
    for how in ({}, {"is_causal": True}, {"mask": mha.padding_mask([QUERIES, 0, 2])}):
        right = value_and_gradients(layer, x, **how)
        with mha.watch(layer, *places) as seen:
            found = value_and_gradients(layer, x, **how)
        assert error(found, right) < LIMIT
        assert set(seen) == set(places or ("scores", "weights", "heads"))
        assert error(value_and_gradients(layer, x, **how), right) == 0  # nothing is left behind


@every(alone=True)
def test_what_is_seen_is_what_happens(entry):
    layer, x, mask = entry.build().eval(), entry.words(), mha.padding_mask([QUERIES, 3, 1])
    with mha.watch(layer) as seen:
        y = layer(x, mask=mask)
    heads = seen.heads.shape[1]
    assert seen.scores.shape == seen.weights.shape == (BATCH, heads, QUERIES, QUERIES)
    if entry.softmax:
        hidden = seen.scores.masked_fill(~mask, -torch.inf)
        assert error(seen.weights, hidden.softmax(-1)) < LIMIT
    assert seen.weights.masked_select(~mask).abs().max() == 0
    assert seen.scores.isfinite().all()  # before the mask
    if hasattr(layer, "W_o"):
        assert error(layer.merge(seen.heads), y) < LIMIT
    else:
        assert error(seen.heads[:, 0], y) < LIMIT


def test_the_weights_are_those_before_dropout():
    layer, x = mha.MultiHeadAttention(6, 2, dropout=0.5).train(), torch.randn(2, 5, 6)
    with mha.watch(layer) as seen:
        layer(x)
    assert error(seen.weights.sum(-1), torch.ones(2, 2, 5)) < LIMIT


def test_every_layer_of_a_model_is_seen_under_its_path():
    model, x = Two(), torch.randn(2, 5, 6)
    with mha.watch(model, "weights") as seen:
        model(x)
    assert list(seen) == ["first.weights", "rest.attention.weights"]
    assert [w.shape[1] for w in seen.all("weights")] == [2, 1]
    assert seen["first.weights"] is seen.all("weights")[0]
    with mha.watch(model.first, "weights", "heads") as seen:
        model(x)
    assert list(seen) == ["weights", "heads"]


def test_the_last_call_counts_and_what_was_seen_stays():
    layer = mha.MultiHeadAttention(6, 2)
    with mha.watch(layer) as seen:
        layer(torch.randn(2, 5, 6))
        layer(torch.randn(2, 3, 6))
    layer(torch.randn(2, 4, 6))
    assert seen.weights.shape == (2, 2, 3, 3)


def test_gradients_are_kept_on_demand_only():
    layer, x = mha.MultiHeadAttention(6, 2), torch.randn(2, 5, 6)
    with mha.watch(layer) as seen:
        layer(x)
    assert not seen.weights.requires_grad
    with mha.watch(layer, detach=False) as seen:
        y = layer(x)
    assert torch.autograd.grad(y.sum(), seen.weights)[0].shape == (2, 2, 5, 5)


def test_watchers_can_be_nested_and_end_with_an_error():
    layer, x = mha.MultiHeadAttention(6, 2), torch.randn(2, 5, 6)
    with mha.watch(layer, "weights") as outer, mha.watch(layer, "weights") as inner:
        layer(x)
    assert torch.equal(outer.weights, inner.weights)
    with mha.watch(layer):
        assert layer.at_weights.is_open
        layer(x)
    with pytest.raises(RuntimeError, match="stop"), mha.watch(layer):
        raise RuntimeError("stop")
    assert not any(tap.is_open for tap in (layer.at_scores, layer.at_weights, layer.at_heads))


def test_the_fused_kernel_runs_unless_scores_or_weights_are_watched(monkeypatch):
    layer, x = mha.MultiHeadAttention(6, 2), torch.randn(2, 5, 6)
    calls = []
    written_out = core.attention_weights
    monkeypatch.setattr(core, "attention_weights", lambda *a, **k: calls.append(1) or written_out(*a, **k))
    layer(x)
    with mha.watch(layer, "heads"):
        layer(x)
    assert not calls
    for place in ("scores", "weights"):
        with mha.watch(layer, place):
            layer(x)
    assert len(calls) == 2


# ---- editing


def test_an_edit_of_heads_changes_the_output_by_what_the_head_adds():
    layer, x = mha.MultiHeadAttention(6, 3), torch.randn(2, 5, 6)
    with mha.watch(layer) as seen:
        right = layer(x) - layer.contributions(seen.heads)[:, 1]
    keep = torch.tensor([1.0, 0.0, 1.0])[:, None, None]
    with mha.edit(layer, heads=lambda z: z * keep):
        found = layer(x)
    assert error(found, right) < LIMIT
    assert error(layer(x), right) > 1e-3  # and afterwards it is as before


def test_edits_of_scores_and_weights_take_effect_where_they_say():
    layer, x = mha.SelfAttention(6), torch.randn(2, 5, 6)
    with mha.edit(layer, scores=torch.zeros_like):
        assert error(layer(x), layer.W_v(x).mean(1, keepdim=True).expand(2, 5, 6)) < LIMIT
    with mha.edit(layer, weights=lambda w: torch.eye(5).to(w).expand_as(w)):
        assert error(layer(x), layer.W_v(x)) < LIMIT
    with mha.edit(layer, scores=torch.zeros_like), mha.watch(layer) as seen:
        layer(x, is_causal=True)
    assert error(seen.weights[0, 0], mha.causal_mask(5) / torch.arange(1, 6.0)[:, None]) < LIMIT


def test_an_edit_reaches_every_layer_of_a_model_and_ends_with_an_error():
    model, x = Two(), torch.randn(2, 5, 6)
    with mha.edit(model, heads=torch.zeros_like):
        assert model(x).abs().max() == 0
    assert model(x).abs().max() > 0
    with pytest.raises(RuntimeError, match="stop"), mha.edit(model, weights=torch.zeros_like, heads=torch.zeros_like):
        raise RuntimeError("stop")
    assert model(x).abs().max() > 0


# ---- bad input


def test_places_that_do_not_exist_are_refused_and_nothing_is_left_open(reader):
    layer = mha.MultiHeadAttention(6, 2)
    with (
        pytest.raises(
            ValueError, match=r"no place named \['wieghts'\]: its places are \['heads', 'scores', 'weights'\]"
        ),
        mha.watch(layer, "weights", "wieghts"),
    ):
        pass
    with (
        pytest.raises(ValueError, match=r"no place named \['gates'\]"),
        mha.edit(layer, heads=torch.zeros_like, gates=torch.zeros_like),
    ):
        pass
    with pytest.raises(ValueError, match=r"Linear has no place named.*none, because"), mha.watch(nn.Linear(2, 2)):
        pass
    with (
        pytest.raises(ValueError, match=r"its places are \['gates', 'heads', 'probabilities', 'scores', 'weights'\]"),
        mha.watch(mha.RoutedAttention(8, 4, 1, 2), "gate"),
    ):
        pass
    assert not any(tap.is_open for tap in (layer.at_scores, layer.at_weights, layer.at_heads))


def test_asking_for_one_of_many_or_of_none_is_refused_in_words():
    with pytest.raises(RuntimeError, match="nothing was seen"), mha.watch(Two(), "weights") as seen:
        pass
    with pytest.raises(AttributeError, match=r"0 tensors passed at 'weights'.*nothing: call the layer"):
        _ = seen.weights
    seen = Seen({"a.weights": torch.zeros(1), "b.weights": torch.zeros(1)})
    with pytest.raises(AttributeError, match=r"2 tensors passed at 'weights', not one.*a\.weights"):
        _ = seen.weights


def test_an_edit_that_returns_nothing_or_another_shape_is_refused(reader):
    layer, x = mha.MultiHeadAttention(6, 2), torch.randn(2, 5, 6)
    for place, shape in (("scores", "2, 2, 5, 5"), ("weights", "2, 2, 5, 5"), ("heads", "2, 2, 5, 3")):
        for wrong, told in ((lambda t: None, "NoneType"), (lambda t: t[..., :1], r"shape \(2, 2, 5, 1\)")):
            told = rf"{place} was given shape \({shape}\) and returned {told}"
            with pytest.raises(ValueError, match=told), mha.edit(layer, **{place: wrong}):
                layer(x)
        with pytest.raises(TypeError, match=f"{place} = 0: it must be a function"), mha.edit(layer, **{place: 0}):
            layer(x)
