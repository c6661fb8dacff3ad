"""The layer that models of 2025 need: each part alone is a layer of the course, and together they are theirs."""

import importlib
import warnings

import pytest
import torch
from torch import nn

import mha
from mha.analysis import circuits
from mha.analysis.head_detection import untrained
from mha.interop import ReleasedAttention, from_transformers, relayout, to_transformers
from mha.interop.rotary import BentRotary, PartialRotary, rotary_of

# said of every window, however long; below they are longer than the texts, or given as a mask
pytestmark = pytest.mark.filterwarnings("ignore:the model of this:UserWarning")

D, HEADS, SHARED = 24, 6, 2


def made(**parts):
    layer = ReleasedAttention(D, HEADS, SHARED, **parts)
    with torch.no_grad():
        for weight in layer.parameters():
            nn.init.normal_(weight, 0, 0.4)
    return layer.to(torch.float64)


def words(n=7, seed=0):
    return torch.randn(2, n, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


ALL = {"norm_eps": 1e-6, "norm_offset": 1.0, "gated": True, "sinks": True}
EACH = [{}, {"norm_eps": 1e-6}, {"gated": True}, {"sinks": True}, ALL]


def test_without_any_part_it_is_grouped_attention():
    layer, plain = made(), mha.GroupedAttention(D, HEADS, SHARED).to(torch.float64)
    plain.load_state_dict(layer.state_dict())
    assert torch.equal(layer(words(), is_causal=True), plain(words(), is_causal=True))
    assert layer.cost(2, 7).flops == plain.cost(2, 7).flops
    assert layer.cost(2, 7).parameters == plain.cost(2, 7).parameters


def test_a_gate_alone_is_gated_attention():
    layer = ReleasedAttention(D, HEADS, HEADS, gated=True).to(torch.float64)
    gated = mha.GatedAttention(D, HEADS, gate="channel").to(torch.float64)
    gated.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(words()), gated(words()))


def test_sinks_alone_are_sink_attention():
    layer = ReleasedAttention(D, HEADS, HEADS, sinks=True).to(torch.float64)
    nn.init.normal_(layer.sinks)
    beside = mha.SinkAttention(D, HEADS).to(torch.float64)
    weights = dict(layer.state_dict())
    weights["sink"] = weights.pop("sinks")
    beside.load_state_dict(weights)
    torch.testing.assert_close(layer(words(), is_causal=True), beside(words(), is_causal=True))


def test_normed_queries_and_keys_do_not_notice_how_long_they_were():
    layer = made(norm_eps=1e-12, bias=False)
    before = layer(words())
    with torch.no_grad():
        layer.W_q.weight *= 3
        layer.W_k.weight *= 0.2
    torch.testing.assert_close(layer(words()), before)


@pytest.mark.parametrize("parts", EACH)
def test_word_by_word_behind_a_cache_it_says_the_same(parts):
    layer, x = made(positions=PartialRotary(2), **parts), words()
    whole, cache = layer(x, is_causal=True), layer.new_cache(16)
    with torch.no_grad():
        parts = [layer(chunk, cache=cache, is_causal=True) for chunk in x.split([3, 1, 2, 1], 1)]
    torch.testing.assert_close(torch.cat(parts, 1), whole)


@pytest.mark.parametrize("parts", EACH)
def test_heads_taken_out_compute_as_before(parts):
    layer, x = made(**parts), words()
    keep = torch.tensor([0, 0, 0, 1, 1, 1], dtype=torch.float64)[:, None, None]
    smaller = layer.take_heads([3, 4, 5])
    with mha.edit(layer, heads=lambda z: z * keep):
        torch.testing.assert_close(smaller(x), layer(x))
    assert smaller.cost(2, 7).parameters == sum(p.numel() for p in smaller.parameters())


@pytest.mark.parametrize("parts", EACH)
def test_gradients_reach_every_weight(parts):
    layer = made(**parts)
    layer(words()).pow(2).sum().backward()
    assert all(weight.grad is not None for weight in layer.parameters())
    assert torch.autograd.gradcheck(lambda x: layer(x, is_causal=True), words(3).requires_grad_())


def test_a_word_with_nothing_to_look_at_reads_nothing():
    layer = made(bias="qkv", **ALL)
    assert torch.equal(
        layer(words(), mask=torch.zeros(7, 7, dtype=torch.bool)), torch.zeros(2, 7, D, dtype=torch.float64)
    )


@pytest.mark.parametrize("eps", [0.0, -1.0])
def test_an_eps_that_does_not_help_is_refused(eps):
    with pytest.raises(ValueError, match=r"norm_eps = .*must be positive"):
        ReleasedAttention(D, HEADS, SHARED, norm_eps=eps)


# ---- theirs ----


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers", reason="transformers is missing: pip install -e '.[interop]'")


def attention(transformers, family, dtype, **more):
    """An attention of theirs with random weights, and the angles and the mask that a model would hand over."""
    from importlib import import_module

    file = {"GptOss": "gpt_oss", "Qwen3Next": "qwen3_next"}.get(family, family.lower())
    theirs = import_module(f"transformers.models.{file}.modeling_{file}")
    kernel = "eager" if family == "GptOss" else "sdpa"
    sizes = {"hidden_size": D, "num_attention_heads": HEADS, "num_key_value_heads": SHARED, "head_dim": 8}
    config = getattr(transformers, f"{family}Config")(**sizes | more, attn_implementation=kernel)
    module = getattr(theirs, f"{family}Attention")(config, layer_idx=0).eval().to(dtype)
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(0.3 * torch.randn(weight.shape))
    x = words().to(dtype)
    angles = getattr(theirs, f"{family}RotaryEmbedding")(config)(x, torch.arange(7)[None])
    hidden = torch.finfo(dtype).min * torch.ones(7, 7, dtype=dtype).triu(1).expand(2, 1, 7, 7)
    return module, x, {"position_embeddings": angles, "attention_mask": hidden}


FAMILIES = ["Llama", "Mistral", "Qwen2", "Qwen3", "Qwen3Next", "GptOss"]
IN_FLOAT32 = {"Qwen3", "Qwen3Next"}  # their norms, whatever the type of the weights


def test_a_window_that_only_the_model_knows_is_said(transformers):
    settings = {"hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1, "attn_implementation": "sdpa"}
    made = importlib.import_module("transformers.models.mistral.modeling_mistral")
    config = transformers.MistralConfig(**settings, sliding_window=3)
    module, x = made.MistralAttention(config, 0).double().eval(), torch.randn(1, 7, 8, dtype=torch.float64)
    with pytest.warns(UserWarning, match=r"MistralAttention.*last 3 only.*mask=mha\.sliding_window\(n, 3\)"):
        layer = from_transformers(module)
    angles = made.MistralRotaryEmbedding(config)(x, torch.arange(7)[None])
    seen = mha.sliding_window(7, 3)
    wanted = module(x, position_embeddings=angles, attention_mask=seen[None, None])[0]
    assert (layer(x, mask=seen) - wanted).abs().max() < 1e-6
    assert (layer(x, is_causal=True) - wanted).abs().max() > 0.01
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_transformers(made.MistralAttention(transformers.MistralConfig(**settings, sliding_window=None), 0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("family", FAMILIES)
def test_values_and_gradients_are_theirs(transformers, family, dtype):
    module, x, how = attention(transformers, family, dtype)
    ours, limit = from_transformers(module), 1e-12 if dtype == torch.float64 and family not in IN_FLOAT32 else 1e-6
    mine, yours = x.clone().requires_grad_(), x.clone().requires_grad_()
    found, wanted = ours(mine, is_causal=True), module(yours, **how)[0]
    assert (found - wanted).abs().max() <= limit * wanted.abs().max()
    found.pow(2).sum().backward()
    wanted.pow(2).sum().backward()
    assert (mine.grad - yours.grad).abs().max() <= 5 * limit * yours.grad.abs().max()
    for weight in module.parameters():  # our gradients stand where theirs would be read from
        weight.data = weight.grad
    for name, weight in from_transformers(module).named_parameters():
        mine, yours = ours.get_parameter(name).grad, weight
        assert (mine - yours).abs().max() <= 10 * limit * yours.abs().max() + 1e-5 * (name == "W_k.bias")


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_go_back_bit_by_bit(transformers, family):
    module, _, _ = attention(transformers, family, torch.float32)
    other, _, _ = attention(transformers, family, torch.float32)
    to_transformers(from_transformers(module), other)
    assert all(torch.equal(weight, other.get_parameter(name)) for name, weight in module.named_parameters())


def test_another_family_is_refused_by_name(transformers):
    module, _, _ = attention(transformers, "Qwen3", torch.float32)
    with pytest.raises(
        ValueError, match="GroupedAttention computes something other than Qwen3Attention: only ReleasedA"
    ):
        to_transformers(mha.GroupedAttention(D, HEADS, SHARED, d_head=8), module)
    other, _, _ = attention(transformers, "GptOss", torch.float32)
    with pytest.raises(ValueError, match=r"norm_eps: the layer has None, Qwen3Attention has 1e-06 .*rms_norm_eps"):
        to_transformers(from_transformers(other), module)


def test_a_gate_with_a_bias_is_refused(transformers):
    module, _, _ = attention(transformers, "Qwen3Next", torch.float32, attention_bias=True)
    with pytest.raises(ValueError, match="attention_bias = True: here the gate"):
        from_transformers(module)


# ---- positions ----


@pytest.mark.parametrize("turned", [0, 3, -2])
def test_channels_are_turned_in_pairs(turned):
    with pytest.raises(ValueError, match="even number of channels"):
        PartialRotary(turned)


def test_heads_of_another_width_are_refused():
    with pytest.raises(ValueError, match="heads of width 4 have no 6 channels"):
        PartialRotary(6).rotate(torch.zeros(1, 1, 2, 4))
    with pytest.raises(ValueError, match="heads of width 6 came, but there are angles for 4 pairs"):
        BentRotary(torch.ones(4), 1.0, 1e4, "yarn").rotate(torch.zeros(1, 1, 2, 6))


def test_bent_angles_are_made_where_the_layer_is():
    rotary = BentRotary(torch.rand(3), 1.5, 1e4, "yarn").to("meta")  # no number could be brought from there
    assert rotary.rotate(torch.zeros(1, 1, 2, 6, device="meta"), 5).is_meta


def test_a_part_of_each_head_is_not_laid_out_anew():
    with pytest.raises(ValueError, match="need RotaryPositions"):
        relayout(made(positions=PartialRotary(2)), "interleaved")


def test_yarn_is_told_from_plain_positions(transformers):
    code = importlib.import_module("transformers.models.gpt_oss.modeling_gpt_oss")
    with torch.device("meta"):
        module = code.GptOssAttention(transformers.GptOssConfig(head_dim=64), 0)
    positions, reasons = rotary_of(module, 64)
    assert not reasons
    assert "yarn with beta_fast=32.0" in str(positions)
    assert positions.factor == pytest.approx(1.3466, abs=1e-4)


@pytest.mark.parametrize("options", [{"norm_offset": -1.0, "norm_eps": 1e-6}, {"norm_offset": 1.0}])
def test_an_offset_that_cannot_be_is_refused(options):
    with pytest.raises(ValueError, match=r"norm_offset = .*must not be negative"):
        ReleasedAttention(16, 4, 2, **options)


# ---- the parts, read by those who take a layer apart ----


NEIGHBORS = {
    "nothing": {},
    "norms": {"norm_eps": 1e-6},
    "norms of 1 + gain": {"norm_eps": 1e-6, "norm_offset": 1.0},
    "gate": {"gated": True},
    "sinks": {"sinks": True},
    "soft cap": {"softcap": 1.5},
    "partial rotary": {"positions": PartialRotary(2)},
    "all": {**ALL, "positions": PartialRotary(2)},
}
every_neighbor = pytest.mark.parametrize("parts", NEIGHBORS.values(), ids=NEIGHBORS)


def silent_biases(layer):
    with torch.no_grad():
        for name, bias in layer.named_parameters():
            if name.endswith("bias"):
                bias.zero_()
    return layer


@every_neighbor
@pytest.mark.parametrize("mask", [None, mha.sliding_window(7, 3)], ids=["all", "window"])
def test_contributions_sum_to_the_output_up_to_its_bias(parts, mask):
    layer = made(**parts)
    with mha.watch(layer, "heads") as seen:
        y = layer(words(), mask=mask)
    torch.testing.assert_close(layer.contributions(seen.heads).sum(1) + layer.W_o.bias, y)


@every_neighbor
@pytest.mark.parametrize("scale", [None, 0.2])
def test_circuits_are_right_or_refused_by_name(parts, scale):
    layer, x = silent_biases(made(**parts)), words()
    layer.scale = scale
    with mha.watch(layer) as seen:
        y = layer(x, is_causal=True)
    if parts.get("gated"):
        with pytest.raises(
            ValueError, match="ov_circuit of ReleasedAttention: its head outputs are multiplied by gates"
        ):
            circuits.ov_circuit(layer)
    else:
        written = torch.einsum("bhij,hmn,bjn->bim", seen.weights, circuits.ov_circuit(layer), x)
        torch.testing.assert_close(written, y)
    told = {"norm_eps": "its W_q is a NormedLinear, which is no linear map", "softcap": "its scores are changed"}
    if reason := next((told[name] for name in parts if name in told), None):
        with pytest.raises(ValueError, match=f"qk_circuit of ReleasedAttention: {reason}.*Measure on tokens instead"):
            circuits.qk_circuit(layer)
    elif "positions" not in parts:
        torch.testing.assert_close(torch.einsum("bim,hmn,bjn->bhij", x, circuits.qk_circuit(layer), x), seen.scores)


@every_neighbor
def test_the_steps_one_by_one_are_the_layer_and_gates_are_asked_for_only_where_there_are_any(parts):
    layer, x = made(**parts), words()
    q, k, v = layer.project(x)
    if parts.get("gated"):
        with pytest.raises(ValueError, match="gates = None: ReleasedAttention multiplies"):
            layer.attend(q, k, v)
        with mha.watch(layer, "gates") as seen:
            layer(x)
        assert seen.gates.shape == (2, HEADS, 7, layer.d_head)
    gates = seen.gates if parts.get("gated") else None
    torch.testing.assert_close(layer.merge(layer.attend(q, k, v, gates=gates)), layer(x))


# ---- another number of KV heads ----


@every_neighbor
@pytest.mark.parametrize("scale", [None, 0.2])
def test_the_same_number_of_shared_heads_is_the_same_layer(parts, scale):
    layer = made(**parts)
    layer.scale = scale
    again = ReleasedAttention.from_plain(layer)
    assert torch.equal(again(words()), layer(words()))
    assert again.state_dict().keys() == layer.state_dict().keys()
    assert not any(w.data_ptr() == layer.get_parameter(name).data_ptr() for name, w in again.named_parameters())


@every_neighbor
def test_fewer_shared_heads_are_means_and_more_are_copies(parts):
    layer, x = made(**parts), words()
    more = ReleasedAttention.from_plain(layer, kv_heads=HEADS)
    torch.testing.assert_close(more(x), layer(x))
    with torch.no_grad():
        for weight in (w for name, w in more.named_parameters() if name[:3] in ("W_k", "W_v") and "norm" not in name):
            nn.init.normal_(weight)
    one = ReleasedAttention.from_plain(more, kv_heads=1)
    heads = more.W_k.weight.unflatten(0, (HEADS, -1))
    torch.testing.assert_close(one.W_k.weight, heads.mean(0))
    torch.testing.assert_close(
        one.state_dict(),
        ReleasedAttention.from_plain(ReleasedAttention.from_plain(more, kv_heads=SHARED), kv_heads=1).state_dict(),
    )
    assert one.new_cache(7).bytes == 0
    assert (one(x) - more(x)).abs().max() > 1e-3


def test_what_is_frozen_stays_frozen_and_nothing_else():
    layer = made(**ALL).eval()
    frozen = {"W_q.weight", "W_k.norm", "W_v.bias", "W_g.weight", "sinks"}
    for name in frozen:
        layer.get_parameter(name).requires_grad_(False)
    fewer = ReleasedAttention.from_plain(layer, kv_heads=1)
    assert {name for name, w in fewer.named_parameters() if not w.requires_grad} == frozen
    assert not fewer.training
    assert {name for name, w in layer.take_heads([0, 1, 2]).named_parameters() if not w.requires_grad} == frozen


@pytest.mark.parametrize(
    "build",
    [
        lambda: mha.GatedAttention(D, HEADS),
        lambda: mha.GatedAttention(D, HEADS, gate="channel", positions=mha.RotaryPositions()),
        lambda: mha.SinkAttention(D, HEADS, sink=[1.0, 0, -1, 2, 0.5, 3]),
        lambda: mha.SinkAttention(D, HEADS, learned=False),
        lambda: mha.GroupedAttention(D, HEADS, SHARED),
        lambda: mha.MultiHeadAttention(D, HEADS, kdim=D, d_head=8),
    ],
)
def test_gated_and_sinking_layers_become_one_whose_heads_can_share(build):
    layer = build().double()
    same = ReleasedAttention.from_plain(layer)
    torch.testing.assert_close(same(words(), is_causal=True), layer(words(), is_causal=True))
    assert same.sinks is None or same.sinks.requires_grad == layer.learned
    assert ReleasedAttention.from_plain(layer, kv_heads=1).W_k.out_features == layer.d_head


class Added(nn.Module):
    """A projection with an adapter around it."""

    def __init__(self, linear):
        super().__init__()
        self.base_layer, self.more = linear, nn.Linear(linear.in_features, linear.out_features, bias=False)

    def forward(self, x):
        return self.base_layer(x) + self.more(x)


@pytest.mark.parametrize("name", ["W_k", "W_v", "W_g"])
def test_an_adapter_comes_along(name):
    layer = made(gated=True)
    setattr(layer, name, Added(getattr(layer, name)).double())
    torch.testing.assert_close(ReleasedAttention.from_plain(layer, kv_heads=HEADS)(words()), layer(words()))


def test_what_has_no_other_number_of_shared_heads_is_refused_with_the_way_out():
    normed = made(norm_eps=1e-6)
    with pytest.raises(
        ValueError, match=r"ReleasedAttention is no plain layer.*ReleasedAttention.from_plain\(layer, kv_"
    ):
        mha.GroupedAttention.from_plain(normed, kv_heads=1)
    with pytest.raises(ValueError, match=r"kv_heads = 4 .*\[1, 2, 3, 6\]"):
        ReleasedAttention.from_plain(normed, kv_heads=4)
    whole = made(norm_eps=1e-6, norm_whole=True)
    torch.testing.assert_close(ReleasedAttention.from_plain(whole)(words()), whole(words()))
    with pytest.raises(ValueError, match=r"W_k.norm: the norms of ReleasedAttention take all 2 KV heads together"):
        ReleasedAttention.from_plain(whole, kv_heads=1)
    with pytest.raises(ValueError, match="EntmaxAttention is no plain layer"):
        ReleasedAttention.from_plain(mha.EntmaxAttention(D, HEADS))


@pytest.mark.parametrize("parts", EACH)
def test_an_untrained_copy_forgets_norms_and_sinks(parts):
    fresh = untrained(made(**parts), seed=0)
    for name, weight in fresh.named_parameters():
        if "norm" in name:
            assert bool((weight == 1 - fresh.norm_offset).all())
        if name == "sinks":
            assert not weight.any()
        if name == "W_q.weight":
            assert weight.abs().max() <= D**-0.5
