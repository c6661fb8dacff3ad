"""The layer that models of 2025 need: each part alone is a layer of the course, and together they are theirs."""

import pytest
import torch
from torch import nn

import mha
from mha.interop import ReleasedAttention, from_transformers, relayout, to_transformers
from mha.interop.rotary import BentRotary, PartialRotary, rotary_of

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
    with pytest.raises(ValueError, match="heads of width 6 came, but there are angles for 2 pairs"):
        BentRotary(torch.ones(2), 1.0, 1e4, "yarn").rotate(torch.zeros(1, 1, 2, 6))


def test_a_part_of_each_head_is_not_laid_out_anew():
    with pytest.raises(ValueError, match="need RotaryPositions"):
        relayout(made(positions=PartialRotary(2)), "interleaved")


def test_yarn_is_told_from_plain_positions(transformers):
    positions, reasons = rotary_of(transformers.GptOssConfig(head_dim=64), 64)
    assert not reasons
    assert "yarn with beta_fast=32.0" in str(positions)
    assert positions.factor == pytest.approx(1.3466, abs=1e-4)


@pytest.mark.parametrize("options", [{"norm_offset": -1.0, "norm_eps": 1e-6}, {"norm_offset": 1.0}])
def test_an_offset_that_cannot_be_is_refused(options):
    with pytest.raises(ValueError, match=r"norm_offset = .*must not be negative"):
        ReleasedAttention(16, 4, 2, **options)
