"""A gate behind each read: the formula from the weights, the gate of Qwen3-Next, smaller layers, cost."""

from importlib import import_module

import pytest
import torch
from oracle import LIMIT, error
from test_cost import counted, peak
from torch import nn

import mha
from mha.analysis import leaks

KINDS = ("head", "channel")


def layer_by_hand(layer, x, memory, mask):
    """The whole layer from its weights, one head and one query at a time; the gate is asked of the query's word."""
    d, rows = layer.d_head, []
    for text, words in zip(x, memory, strict=True):
        for i, word in enumerate(text):
            output, seen = layer.W_o.bias, words[mask[i]]
            for h in range(layer.heads):
                own = slice(h * d, (h + 1) * d)
                q = layer.W_q.weight[own] @ word + layer.W_q.bias[own]
                powers = [(q @ (layer.W_k.weight[own] @ w + layer.W_k.bias[own]) / d**0.5).exp() for w in seen]
                values = [layer.W_v.weight[own] @ w + layer.W_v.bias[own] for w in seen]
                read = sum(p * v for p, v in zip(powers, values, strict=True)) / sum(powers) if powers else 0 * q
                gate = layer.W_g.weight[h : h + 1] if layer.gate == "head" else layer.W_g.weight[own]
                output = output + layer.W_o.weight[:, own] @ (read / (1 + (-gate @ word).exp()))
            rows.append(output)
    return torch.stack(rows).view_as(x)


@pytest.mark.parametrize("gate", KINDS)
def test_the_layer_is_its_formula_in_value_and_gradient(gate):
    layer = mha.GatedAttention(6, 2, gate=gate)
    nn.init.normal_(layer.W_g.weight)
    x, memory = torch.randn(2, 5, 6, requires_grad=True), torch.randn(2, 7, 6, requires_grad=True)
    mask = torch.rand(5, 7) < 0.7
    mask[2] = False  # a query with nothing to look at
    found, right = layer(x, memory, mask=mask), layer_by_hand(layer, x, memory, mask)
    assert error(found, right) < 1e-10
    inputs = [x, memory, *layer.parameters()]
    assert error(*(torch.autograd.grad(y.square().sum(), inputs) for y in (found, right))) < 1e-10


def test_the_gates_of_channels_are_those_of_qwen3_next_in_value_and_gradient():
    """Their norms of queries and keys, which ours has not, cast to float32 and are left out here."""
    theirs = import_module("transformers.models.qwen3_next.modeling_qwen3_next")
    config = import_module("transformers").Qwen3NextConfig(
        hidden_size=12, num_attention_heads=3, num_key_value_heads=3, head_dim=4, num_hidden_layers=1,
        attention_bias=False, attn_implementation="sdpa",
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0},
    )  # fmt: skip
    module = theirs.Qwen3NextAttention(config, 0).double()
    module.q_norm, module.k_norm = nn.Identity(), nn.Identity()
    layer = mha.GatedAttention(
        12, 3, gate="channel", bias=False, positions=mha.RotaryPositions(precision=torch.float32)
    )
    pairs = [(layer.W_k, module.k_proj), (layer.W_v, module.v_proj), (layer.W_o, module.o_proj)]
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(0.4 * torch.randn_like(weight))
        for our, their in pairs:
            our.load_state_dict(their.state_dict())
        for linear, rows in zip((layer.W_q, layer.W_g), _halves(module.q_proj.weight), strict=True):
            linear.weight.copy_(rows)
    x = torch.randn(2, 7, 12)
    turns = theirs.Qwen3NextRotaryEmbedding(config)(x, torch.arange(7)[None])
    added = mha.functional.to_additive(mha.causal_mask(7), torch.float64)[None, None]
    right, _ = module(x, position_embeddings=turns, attention_mask=added)
    found = layer(x, is_causal=True)
    assert error(found, right) < 1e-12
    ours = torch.autograd.grad(
        found.square().sum(), [layer.W_q.weight, layer.W_g.weight, *(a.weight for a, _ in pairs)]
    )
    wide, *others = torch.autograd.grad(right.square().sum(), [module.q_proj.weight, *(b.weight for _, b in pairs)])
    assert error(ours, [*_halves(wide), *others]) < 1e-12


def _halves(weight):
    """The rows of queries and those of gates, which stand side by side in each head of the widened matrix."""
    return [half.flatten(0, 1) for half in weight.unflatten(0, (3, 2, 4)).unbind(1)]


# ---- the layer


@pytest.mark.parametrize("gate", KINDS)
def test_closed_gates_say_nothing_and_open_ones_everything(gate):
    plain = mha.MultiHeadAttention(6, 3)
    layer, x = mha.GatedAttention.from_plain(plain, gate=gate), torch.randn(2, 5, 6)
    shape = (2, 3, 5) if gate == "head" else (2, 3, 5, 2)
    with mha.watch(layer, "gates") as seen:
        assert error(layer(x), plain(x)) < LIMIT
    assert torch.equal(seen.gates, torch.full(shape, 0.5))
    with mha.edit(layer, gates=torch.zeros_like):
        assert error(layer(x), layer.W_o.bias.expand(2, 5, 6)) == 0
    with mha.edit(layer, gates=torch.ones_like):
        assert error(layer(x) - layer.W_o.bias, 2 * (plain(x) - plain.W_o.bias)) < LIMIT
    layer(x).square().sum().backward()
    assert layer.W_g.weight.grad.abs().min() > 0  # the neutral setting can learn


@pytest.mark.parametrize("gate", KINDS)
def test_heads_are_seen_behind_their_gates_so_that_they_add_up(gate):
    layer, x = mha.GatedAttention(6, 3, gate=gate), torch.randn(2, 5, 6)
    with mha.watch(layer) as seen:
        y = layer(x)
    assert error(layer.contributions(seen.heads).sum(1) + layer.W_o.bias, y) < LIMIT


@pytest.mark.parametrize("gate", KINDS)
def test_attending_step_by_step_takes_gates_and_passes_every_tap(reader, gate):
    layer, x = mha.GatedAttention(6, 3, gate=gate), torch.randn(2, 5, 6)
    with mha.watch(layer, "scores", "weights", "heads", "gates") as seen:
        y = layer(x)
    q, k, v = layer.project(x)
    with mha.watch(layer) as again:
        heads = layer.attend(q, k, v, gates=seen.gates)
    for place in ("scores", "weights", "heads"):
        assert error(getattr(again, place), getattr(seen, place)) < LIMIT
    assert error(layer.merge(heads), y) < LIMIT
    with mha.edit(layer, heads=torch.zeros_like):
        assert layer.attend(q, k, v, gates=seen.gates).abs().max() == 0
    with pytest.raises(ValueError, match=r"gates = None: GatedAttention multiplies its head outputs by gates"):
        layer.attend(q, k, v)
    for wrong in (torch.rand(5), torch.rand(2, 3, 4), torch.rand(2, 3, 5, 3), torch.rand(2, 3, 5).float(), [1.0]):
        with pytest.raises((TypeError, ValueError), match=r"gates (has|is) .*must"):
            layer.attend(q, k, v, gates=wrong)
    plain = mha.MultiHeadAttention(6, 3)
    with mha.watch(plain, "heads") as seen:
        assert torch.equal(plain.attend(q, k, v), seen.heads)


@pytest.mark.parametrize("gate", KINDS)
def test_a_smaller_layer_keeps_the_gate_of_each_head(gate):
    layer, x = mha.GatedAttention(6, 3, gate=gate, bias="kv"), torch.randn(2, 5, 6)
    smaller = layer.take_heads(iter([2, 0]))
    keep = torch.tensor([1.0, 0.0, 1.0])[:, None, None]
    with mha.edit(layer, heads=lambda z: z * keep):
        assert error(smaller(x), layer(x)) < LIMIT
    with pytest.raises(RuntimeError, match="nothing was seen"), mha.watch(layer, "gates"):
        smaller(x)
    assert smaller.cost(2, 5).parameters == sum(p.numel() for p in smaller.parameters())


def test_each_query_has_its_own_gate_and_keys_have_none():
    layer, x = mha.GatedAttention(6, 2), torch.randn(2, 5, 6)
    memory = torch.randn(2, 7, 6)
    with mha.watch(layer, "gates") as seen:
        layer(x, memory)
        first = seen.gates
        layer(x, memory + 1)
        assert torch.equal(seen.gates, first)
        changed = x.clone()
        changed[:, 3] += 1
        layer(changed, memory)
    moved = (seen.gates != first).any(1)
    assert moved[:, 3].all()
    assert moved.sum() == 2


@pytest.mark.parametrize("gate", KINDS)
def test_nothing_leaks_from_the_future(gate):
    found = leaks(mha.GatedAttention(8, 2, gate=gate), is_causal=True, cache=mha.KeyValueCache)
    assert not found, found
    assert not any(found.blind.values())


@pytest.mark.parametrize(("gate", "wide"), [("head", 3), ("channel", 24)])
def test_what_the_gates_cost_is_counted(gate, wide):
    layer, plain, x = mha.GatedAttention(24, 3, gate=gate), mha.MultiHeadAttention(24, 3), torch.randn(2, 40, 24)
    cost, without = layer.cost(2, 40), plain.cost(2, 40)
    assert cost.flops - without.flops == 2 * 2 * 40 * 24 * wide
    with mha.watch(layer):
        assert cost.flops == counted(lambda: layer(x))
    assert cost.parameters - without.parameters == 24 * wide
    assert cost.parts["gates"].moved == 8 * 2 * 40 * (2 * 24 + wide)
    assert cost.peak == pytest.approx(peak(layer, x), rel=0.15)


def test_an_unknown_gate_is_refused(reader):
    for gate in ("heads", "", "G1"):
        with pytest.raises(ValueError, match=rf"gate = '{gate}': give one of \('head', 'channel'\)"):
            mha.GatedAttention(4, 2, gate=gate)
    with pytest.raises(TypeError, match="gate = None: it must be a text"):
        mha.GatedAttention(4, 2, gate=None)
