"""A layer beside a sink: the formula from its weights, its neighbors in other libraries, its two paths, its cost."""

import copy
from importlib import import_module

import pytest
import torch
from oracle import LIMIT, error
from test_cost import peak
from torch import nn

import mha
from mha.analysis import leaks

SINKS = [-1.0, 0.5, 2.0]


def layer_by_hand(layer, x, memory, mask):
    """The whole layer from its weights, one head, one query, one key at a time."""
    d, rows = layer.d_head, []
    for text, words in zip(x, memory, strict=True):
        for i, word in enumerate(text):
            output = layer.W_o.bias
            for h in range(layer.heads):
                own = slice(h * d, (h + 1) * d)
                q = layer.W_q.weight[own] @ word + layer.W_q.bias[own]
                total, read = layer.sink[h].exp(), 0
                for j, other in enumerate(words):
                    if mask[i, j]:
                        power = (q @ (layer.W_k.weight[own] @ other + layer.W_k.bias[own]) / d**0.5).exp()
                        total = total + power
                        read = read + power * (layer.W_v.weight[own] @ other + layer.W_v.bias[own])
                output = output + layer.W_o.weight[:, own] @ (read / total) if mask[i].any() else output
            rows.append(output)
    return torch.stack(rows).view_as(x)


@pytest.mark.parametrize("fused_from", [1, 100])
def test_the_layer_is_its_formula_in_value_and_gradient(fused_from):
    layer = mha.SinkAttention(6, 3, sink=SINKS)
    layer.fused_from = fused_from
    x, memory = torch.randn(2, 5, 6, requires_grad=True), torch.randn(2, 7, 6, requires_grad=True)
    mask = torch.rand(5, 7) < 0.7
    mask[2] = False  # a query with nothing to look at
    found, right = layer(x, memory, mask=mask), layer_by_hand(layer, x, memory, mask)
    assert error(found, right) < 1e-10
    inputs = [x, memory, *layer.parameters()]
    slopes = [torch.autograd.grad(y.square().sum(), inputs) for y in (found, right)]
    assert error(*slopes) < 1e-10


@pytest.mark.parametrize("i", [1, 5, 70])
@pytest.mark.parametrize(
    "how", [{}, {"is_causal": True}, {"mask": "half"}, {"mask": "half", "is_causal": True}], ids=str
)
def test_many_queries_on_the_fused_kernel_read_what_few_read(i, how):
    layer, x = mha.SinkAttention(8, 4, sink=[-2, 0, 1, 3]), torch.randn(3, i, 8)
    how = how | ({"mask": torch.rand(3, 1, i, i) < 0.5} if "mask" in how else {})
    results = []
    for fused_from in (1, 1000):
        layer.fused_from = fused_from
        y = layer(x, **how)
        results.append([y, *torch.autograd.grad(y.square().sum(), list(layer.parameters()))])
    assert error(*results) < LIMIT
    with mha.watch(layer, "weights") as seen:
        layer(x, **how)
    assert (seen.weights.sum(-1) < 1).all()


def test_off_by_one_is_the_layer_of_torch_with_a_zero_added():
    theirs = nn.MultiheadAttention(12, 3, batch_first=True, add_zero_attn=True)
    ours = mha.SinkAttention(12, 3, learned=False)
    with torch.no_grad():
        for linear, weight in zip((ours.W_q, ours.W_k, ours.W_v), theirs.in_proj_weight.chunk(3), strict=True):
            linear.weight.copy_(weight)
            linear.bias.zero_()
        ours.W_o.load_state_dict(theirs.out_proj.state_dict())
    x = torch.randn(2, 5, 12)
    right, weights = theirs(x, x, x, average_attn_weights=False)
    with mha.watch(ours, "weights") as seen:
        assert error(ours(x), right) < LIMIT
    assert weights.shape[-1] == 6  # one more than there are keys
    assert error(seen.weights, weights[..., :-1]) < LIMIT


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("fused_from", [1, 100])
def test_the_layer_is_that_of_gpt_oss_in_value_and_gradient(window, fused_from):
    """Their code computes in the type of its inputs throughout."""
    theirs = import_module("transformers.models.gpt_oss.modeling_gpt_oss")
    config = import_module("transformers").GptOssConfig(
        hidden_size=12, num_attention_heads=3, num_key_value_heads=3, head_dim=4, num_hidden_layers=1,
        attention_bias=True, attention_dropout=0.0, attn_implementation="eager",
        rope_parameters={"rope_type": "default", "rope_theta": 150000.0},
    )  # fmt: skip
    module = theirs.GptOssAttention(config, 0).double()
    positions = mha.RotaryPositions(150000.0, precision=torch.float32)
    layer = mha.SinkAttention(12, 3, positions=positions)
    layer.fused_from = fused_from
    pairs = [(getattr(layer, f"W_{n}"), getattr(module, f"{n}_proj")) for n in "qkvo"]
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(0.4 * torch.randn_like(weight))
        for our, their in pairs:
            our.load_state_dict(their.state_dict())
        layer.sink.copy_(module.sinks)
    x = torch.randn(2, 7, 12)
    mask = mha.causal_mask(7) if window is None else mha.sliding_window(7, window)
    turns = theirs.GptOssRotaryEmbedding(config)(x, torch.arange(7)[None])
    added = mha.functional.to_additive(mask, torch.float64)[None, None]
    right, _ = module(x, position_embeddings=turns, attention_mask=added)
    found = layer(x, mask=mask)
    assert error(found, right) < 1e-12
    ours = [layer.sink, *(w for one, _ in pairs for w in one.parameters())]
    others = [module.sinks, *(w for _, one in pairs for w in one.parameters())]
    slopes = [torch.autograd.grad(y.square().sum(), ws) for y, ws in ((found, ours), (right, others))]
    assert error(*slopes) < 1e-12


# ---- the layer


CHANGED = {
    "scores": {"scores": lambda s: 2 * s + torch.arange(s.shape[-1])},
    "weights": {"weights": lambda w: w.flip(-1)},
    "heads": {"heads": lambda z: z.flip(1)},
    "all": {"scores": lambda s: s.square(), "weights": lambda w: w**2, "heads": lambda z: 3 * z},
}


@pytest.mark.parametrize("change", CHANGED)
def test_edits_and_watchers_count_for_as_many_queries_as_the_fused_kernel_takes(change):
    layer, x = mha.SinkAttention(8, 4, sink=[-2, 0, 1, 3]), torch.randn(2, mha.SinkAttention.fused_from, 8)
    plain, results = layer(x), []
    for fused_from in (layer.fused_from, 1, 1000):
        layer.fused_from = fused_from
        with mha.edit(layer, **CHANGED[change]), mha.watch(layer) as seen:
            results.append([layer(x), seen.scores, seen.weights, seen.heads])
        assert error(results[-1], results[0]) < LIMIT
    assert error(results[0][0], plain) > 1e-2


@pytest.mark.parametrize("scale", [0.0, 0.1, 2.0])
@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize("fused_from", [1, 1000])
def test_a_scale_counts_on_both_paths(scale, explicit, fused_from):
    layer = mha.SinkAttention(8, 2, sink=[0.5, 1.0])
    layer.fused_from = fused_from
    q, k, v = torch.randn(3, 2, 2, 70, 4)
    powers = (scale * q @ k.mT).exp()
    right = powers @ v / (powers.sum(-1, keepdim=True) + layer.sink.exp()[:, None, None])
    assert error(layer.attend(q, k, v, scale=scale, explicit=explicit), right) < 1e-10
    layer.scale = scale
    assert error(layer.attend(q, k, v, explicit=explicit), right) < 1e-10


@pytest.mark.parametrize("fused_from", [1, 1000])
def test_weights_are_dropped_in_training_only(fused_from):
    layer, x = mha.SinkAttention(8, 2, dropout=0.5), torch.randn(2, 70, 8)
    layer.fused_from = fused_from
    with mha.watch(layer, "heads") as seen:
        layer.eval()(x)
        right = seen.heads
        layer.train()(x)
        assert error(seen.heads, right) > 0.1
        drawn = [layer(x) is None or seen.heads for _ in range(200)]
    assert error(torch.stack(drawn).mean(0), right) < 0.2


def test_a_very_low_sink_is_plain_attention_on_both_paths():
    plain = mha.MultiHeadAttention(12, 3, kdim=5, vdim=7, bias="qvo")
    layer = mha.SinkAttention.from_plain(plain)
    x, key, value = torch.randn(2, 4, 12), torch.randn(2, 3, 5), torch.randn(2, 3, 7)
    for fused_from in (1, 100):
        layer.fused_from = fused_from
        assert error(layer(x, key, value), plain(x, key, value)) < 1e-14
        halved = copy.deepcopy(layer).half()(x.half(), key.half(), value.half())
        assert error(halved.double(), plain(x, key, value)) < 1e-2
    assert (mha.SinkAttention.from_plain(plain, sink=1.0)(x, key, value) - plain(x, key, value)).abs().max() > 0.01


def test_a_sink_is_learned_in_each_head_unless_it_is_not():
    layer, fixed = mha.SinkAttention(6, 3, sink=SINKS), mha.SinkAttention(6, 3, sink=SINKS, learned=False)
    assert "sink" in dict(layer.named_parameters())
    assert "sink" not in dict(fixed.named_parameters())
    fixed.load_state_dict(layer.state_dict())
    x = torch.randn(2, 5, 6)
    assert torch.equal(layer(x), fixed(x))
    layer(x).square().sum().backward()
    assert layer.sink.grad.abs().min() > 0


def test_a_smaller_layer_keeps_the_sink_of_each_head():
    for learned in (True, False):
        layer, x = mha.SinkAttention(6, 3, sink=SINKS, learned=learned), torch.randn(2, 5, 6)
        smaller = layer.take_heads(iter([2, 0]))
        assert smaller.sink.tolist() == [-1, 2]
        keep = torch.tensor([1.0, 0.0, 1.0])[:, None, None]
        with mha.edit(layer, heads=lambda z: z * keep):  # noqa: B023
            assert error(smaller(x), layer(x)) < LIMIT
        smaller.reset_parameters()
        assert smaller.sink.tolist() == [-1, 2]


@pytest.mark.parametrize("fused_from", [1, 100])
def test_nothing_leaks_from_the_future(fused_from):
    layer = mha.SinkAttention(8, 2, positions=mha.RotaryPositions())
    layer.fused_from = fused_from
    found = leaks(layer, is_causal=True, cache=mha.KeyValueCache)
    assert not found, found
    assert not any(found.blind.values())


def test_what_the_copies_cost_is_counted():
    layer, plain = mha.SinkAttention(16, 4), mha.MultiHeadAttention(16, 4)
    few, many = layer.cost(2, 63), layer.cost(2, 64)
    assert few.flops == plain.cost(2, 63).flops
    products = 2 * 2 * 2 * 4 * 65 * 65 * 5  # two products of 65 queries and 65 keys, five channels wide
    projections = sum(many.parts[f"W_{n}"].flops for n in "qkvo")
    assert many.flops == projections + products
    assert few.parts["sink"].moved == 2 * 8 * 2 * 4 * 63 * 64
    assert many.parts["sink"].moved == 2 * 8 * 2 * 4 * 65 * 5 * 4
    assert many.parameters == plain.cost(2, 64).parameters + 4
    sloped = mha.SinkAttention(16, 4, positions=mha.LinearBias())
    assert sloped.cost(2, 64).parts["sink"].moved == 2 * 8 * 2 * 4 * 64 * 65


@pytest.mark.parametrize("lengths", [(2, 80, 80), (1, 200, 90), (2, 1, 150)])
def test_the_peak_is_near_that_of_the_tensors_alive(lengths):
    b, i, j = lengths
    layer, x = mha.SinkAttention(32, 4), torch.randn(b, i, 32)
    inputs = [x] if i == j else [x, torch.randn(b, j, 32)]
    assert layer.cost(b, i, j).peak == pytest.approx(peak(layer, *inputs), rel=0.15)


# ---- bad input


def test_sinks_that_are_none_are_refused(reader):
    for sink in ("low", None, [0, "1"], [True, False], 1j):
        with pytest.raises(TypeError, match=r"sink.* = .*must be a number"):
            mha.SinkAttention(4, 2, sink=sink)
    for sink in (float("nan"), float("-inf"), [0.0, float("inf")]):
        with pytest.raises(ValueError, match=r"sink.* = .*must be finite"):
            mha.SinkAttention(4, 2, sink=sink)
    for sink in ([0.0], (1, 2, 3), torch.zeros(3)):
        with pytest.raises(ValueError, match=r"sink = .*there are 2 heads, give one number, or one for each"):
            mha.SinkAttention(4, 2, sink=sink)
    with pytest.raises(ValueError, match="sink is on the meta device"):
        mha.SinkAttention(4, 2, sink=torch.zeros(2, device="meta"))
    assert mha.SinkAttention(4, 2, sink=torch.tensor(3.0)).sink.tolist() == [3, 3]
