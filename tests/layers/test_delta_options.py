"""What released delta layers have around the rule: decays of channels, β up to 2, convolution, norm, gates, sizes."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import LIMIT, error
from test_linear import by_head, drawn, every_form, looped_delta
from torch import nn

import mha
from mha.functional import delta_rule, delta_weights
from mha.layers.linear import Decay, ShortConvolution

# ---- the rule


def channels(q, seed=3):
    return torch.rand(q.shape, generator=torch.Generator().manual_seed(seed))


@every_form
@pytest.mark.parametrize("erase", [True, False])
def test_decays_of_channels_are_those_of_the_loop(form, chunk, erase):
    q, k, v, beta, _, state = drawn()
    alpha, beta = channels(q), 2 * beta

    def loop(q, k, v, state, beta, alpha):
        return looped_delta(q, k, v, beta, alpha, erase=erase, state=state)

    right = by_head(loop, q, k, v, state, beta, alpha)
    how = {"erase": erase, "negative_eigenvalues": True}
    found = delta_rule(q, k, v, beta, alpha.log(), state=state, form=form, chunk=chunk, **how)
    assert error(found, right) < 1e-10
    alone = delta_rule(q, k, v, beta, alpha.log(), form=form, chunk=chunk, **how)[0]
    assert error(delta_weights(q, k, beta, alpha.log(), **how) @ v, alone) < LIMIT


@settings(max_examples=15)
@given(st.integers(1, 40), st.integers(1, 20), st.booleans())
def test_all_forms_with_decays_of_channels_are_one_in_value_and_gradient(n, chunk, erase):
    q, k, v, beta, _, state = drawn(n=n, seed=n)
    logs = channels(q, n).log()
    inputs = [x.requires_grad_() for x in (q, k, v, beta, logs, state)]
    weight = torch.randn(v.shape)

    def everything(form):
        read, last = delta_rule(*inputs[:5], erase=erase, state=state, form=form, chunk=chunk)
        return read, last, *torch.autograd.grad((read * weight).sum() + last.square().sum(), inputs)

    right = everything("recurrent")
    for form in ("chunked", "parallel"):
        assert error(everything(form), right) < 1e-10


@every_form
def test_channels_that_decay_alike_are_one_decay_of_the_head(form, chunk):
    q, k, v, beta, alpha, state = drawn(n=50)
    right = delta_rule(q, k, v, beta, alpha.log(), state=state, form=form, chunk=chunk)
    alike = alpha.log()[..., None].expand(k.shape)
    assert error(delta_rule(q, k, v, beta, alike, state=state, form=form, chunk=chunk), right) < LIMIT


@every_form
@pytest.mark.parametrize("strength", [30.0, 1000.0, math.inf])
def test_strong_decays_of_channels_give_finite_numbers_and_slopes(form, chunk, strength):
    q, k, v, beta, _, _ = (x.float() for x in drawn(n=130))
    logs = torch.where(channels(q) < 0.5, -strength, -0.01).float().requires_grad_()
    q.requires_grad_()
    read, last = delta_rule(q, k, v, beta, logs, form=form, chunk=chunk)
    assert error((read, last), delta_rule(q, k, v, beta, logs, form="recurrent")) < 1e-5
    for slope in torch.autograd.grad(read.square().sum() + last.sum(), [q, logs]):
        assert slope.isfinite().all()


@every_form
def test_a_beta_of_two_turns_the_sign_and_counts_parity(form, chunk):
    bits = torch.randint(0, 2, (1, 1, 300), generator=torch.Generator().manual_seed(0))
    key = torch.zeros(1, 1, 300, 3)
    key[..., 0] = 1
    start, nothing = torch.zeros(1, 1, 3, 1), torch.zeros(1, 1, 300, 1)
    start[..., 0, 0] = 1
    beta = 2 * bits.to(key)
    read, _ = delta_rule(key, key, nothing, beta, negative_eigenvalues=True, state=start, form=form, chunk=chunk)
    assert torch.equal(read[..., 0], 1.0 - 2 * (bits.cumsum(-1) % 2))


def test_rates_out_of_range_or_of_another_shape_are_refused(reader):
    q, k, v, beta, _, _ = drawn()
    with pytest.raises(ValueError, match=r"beta .*outside \[0, 1\]: use torch\.sigmoid, or negative_eigenvalues=True"):
        delta_rule(q, k, v, beta + 1)
    with pytest.raises(ValueError, match=r"beta .*outside \[0, 2\]: use 2 \* torch\.sigmoid"):
        delta_weights(q, k, beta + 2, negative_eigenvalues=True)
    with pytest.raises(TypeError, match="negative_eigenvalues = 1"):
        delta_rule(q, k, v, beta, negative_eigenvalues=1)
    with pytest.raises(ValueError, match=rf"must be \(2, 2, 6\) or \(2, 2, 6, 3\) on {q.device}.*one for each channel"):
        delta_rule(q, k, v, beta, torch.zeros(2, 2, 6, 4))
    with pytest.raises(ValueError, match=r"log_decay .*numbers above 0"):
        delta_rule(q, k, v, beta, channels(q))


# ---- the layer


def released(model="Kimi Linear", d_model=6, heads=2, **sizes):
    return mha.DeltaAttention.as_released(model, d_model, heads, **sizes).eval()


def test_without_options_the_layer_is_drawn_as_it_was():
    """Stored results of chapters and of the comparison belong to these draws."""
    torch.manual_seed(4)
    layer = mha.DeltaAttention(6, 3)
    torch.manual_seed(4)
    drawn = [nn.Linear(6, width) for width in (6, 6, 6, 6, 3, 3)]
    names = ["W_q", "W_k", "W_v", "W_o", "write", "decay"]
    assert list(layer.state_dict()) == [f"{name}.{kind}" for name in names for kind in ("weight", "bias")]
    for name, linear in zip(names, drawn, strict=True):
        assert torch.equal(getattr(layer, name).weight, linear.weight), name


def test_the_convolution_is_the_formula_and_its_state_the_last_tokens():
    convolve, x = ShortConvolution(2, 2, 3, 3), torch.randn(2, 14, 5)
    found, kept = convolve(x)
    for n in range(5):
        seen = [x[..., n - back] if n >= back else torch.zeros(2, 14) for back in (2, 1, 0)]
        assert error(found[..., n], sum(w * one for w, one in zip(convolve.weight.T, seen, strict=True))) < LIMIT
    assert torch.equal(kept, x[..., 3:])
    first, state = convolve(x[..., :1])
    rest, _ = convolve(x[..., 1:], state)
    assert error(torch.cat([first, rest], -1), found) < LIMIT


def test_a_token_that_is_hidden_enters_the_convolution_as_zeros():
    layer, x = mha.DeltaAttention(6, 2, convolution=3, decay=False), torch.randn(1, 5, 6)
    tokens = torch.tensor([True, True, False, True, True])[None, None, None]
    q, _, _ = layer.project(x, mask=tokens, is_causal=True)
    raw = layer._project(x, x, x, None)[0].masked_fill(~tokens.mT, 0).transpose(1, 2).flatten(2)
    weight = layer.convolve.weight[:6]
    assert error(q[0, :, 3].flatten(), weight[:, 2] * raw[0, 3] + weight[:, 0] * raw[0, 1]) < LIMIT


def test_the_decay_is_the_formula_and_begins_between_slow_and_fast():
    decay, x = Decay(6, 2, 3, 4), torch.randn(2, 5, 6)
    up = (x @ decay.down.weight.T @ decay.up.weight.T + decay.up.bias).unflatten(-1, (2, 3))
    right = -decay.rate.exp()[:, None] * F.softplus(up)
    assert error(decay(x), right.transpose(1, 2)) < LIMIT
    rate, step = Decay(6, 500).rate.exp(), F.softplus(Decay(6, 500).up.bias)
    assert 1 <= rate.min() < 2
    assert 14 < rate.max() <= 16
    assert 0.000999 < step.min() < 0.0015
    assert 0.06 < step.max() < 0.1001


def test_norm_and_gate_are_the_formula():
    layer = mha.DeltaAttention(6, 2, d_value=5, norm=1e-3, gate="sigmoid", rank=2)
    heads, x = torch.randn(1, 2, 4, 5), torch.randn(1, 4, 6)
    with torch.no_grad():
        layer.norm.weight.uniform_()
    size = (heads.square().mean(-1, keepdim=True) + 1e-3).rsqrt()
    gates = (x @ layer.gate_down.weight.T @ layer.W_g.weight.T).sigmoid().unflatten(-1, (2, 5)).transpose(1, 2)
    with mha.watch(layer, "gates", "heads") as seen:
        layer(x, is_causal=True)
    assert error(layer._finished(heads, x), heads * size * layer.norm.weight * gates) < LIMIT
    assert error(seen.gates, gates) < LIMIT
    assert seen.heads.shape == (1, 2, 4, 5)


def test_beta_reaches_two_and_lengths_keep_their_eps():
    layer, x = mha.DeltaAttention(6, 2, negative_eigenvalues=True, eps=0.5), torch.randn(2, 5, 6)
    plain = mha.DeltaAttention(6, 2)
    plain.load_state_dict(layer.state_dict())
    assert torch.equal(layer.rates(x)[0], 2 * plain.rates(x)[0])
    k = torch.tensor([3.0, 4.0])
    assert error(layer._of_length_one(k), k / 25.5**0.5) < LIMIT


def test_an_activation_alone_is_silu_of_queries_keys_and_values():
    layer, x = mha.DeltaAttention(6, 2, activation=True), torch.randn(2, 5, 6)
    for found, linear in zip(layer.project(x, is_causal=True), (layer.W_q, layer.W_k, layer.W_v), strict=True):
        assert error(found.transpose(1, 2).flatten(2), F.silu(linear(x))) < LIMIT


BAD = [
    ({"decay": "token"}, ValueError, r"decay = 'token': it is True, False or one of \['head', 'channel'\]"),
    ({"gate": "relu"}, ValueError, r"gate = 'relu': it is None or one of \['silu', 'sigmoid'\]"),
    ({"convolution": 1}, ValueError, "convolution = 1: over one token it mixes none"),
    ({"convolution": 0}, ValueError, "convolution = 0: it must be at least 1"),
    ({"norm": -1.0}, ValueError, r"norm = -1\.0: it is True, False or the eps"),
    ({"norm": math.nan}, ValueError, "norm = nan"),
    ({"eps": -1e-6}, ValueError, "eps = -1e-06: it is added to squared lengths"),
    ({"rank": 2}, ValueError, "rank = 2 is for gates and for a decay of each channel"),
    ({"rank": 0, "gate": "silu"}, ValueError, "rank = 0"),
    ({"d_value": 0}, ValueError, "d_value = 0"),
    ({"activation": "silu"}, TypeError, "activation = 'silu'"),
    ({"negative_eigenvalues": None}, TypeError, "negative_eigenvalues = None"),
]


@pytest.mark.parametrize(("options", "kind", "message"), BAD, ids=lambda x: str(x) if isinstance(x, dict) else "")
def test_options_that_do_not_exist_are_refused(reader, options, kind, message):
    with pytest.raises(kind, match=message):
        mha.DeltaAttention(6, 2, **options)


def test_a_model_that_is_not_known_is_refused(reader):
    with pytest.raises(ValueError, match=r"model = 'Mamba': it is one of \['Qwen3-Next', 'Kimi Linear', 'OLMo Hybr"):
        mha.DeltaAttention.as_released("Mamba", 6, 2)


def test_kernels_of_the_library_have_one_decay_for_each_head(monkeypatch):
    monkeypatch.setattr("mha.functional.linear._kernel", lambda *_: None)
    q, k, v, beta, _, _ = (x.bfloat16() for x in drawn())
    with pytest.raises(ValueError, match=r'a decay for each channel with form = "fla".*form="chunked"'):
        delta_rule(q, k, v, beta, -channels(q).float(), form="fla")


@pytest.mark.parametrize("model", ["Qwen3-Next", "Kimi Linear", "OLMo Hybrid"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_every_released_layer_learns(model, dtype):
    layer = released(model, 8, 2, d_head=3, d_value=5).to(dtype).train()
    layer(torch.randn(2, 9, 8, dtype=dtype), is_causal=True).float().square().sum().backward()
    assert all(weight.grad.isfinite().all() and weight.grad.abs().max() > 0 for weight in layer.parameters())
