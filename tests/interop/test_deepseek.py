"""Latent attention as ``transformers`` builds it: values, gradients, caches, both ways, and what does not fit."""

import copy

import pytest
import torch
from oracle import error
from torch import nn

import mha
from mha.interop.hugging_face import from_transformers, to_transformers

transformers = pytest.importorskip("transformers", reason="transformers is missing: pip install -e '.[interop]'")
from transformers.models.deepseek_v2 import modeling_deepseek_v2  # noqa: E402
from transformers.models.deepseek_v3 import modeling_deepseek_v3  # noqa: E402

D, HEADS, N = 24, 3, 7
KINDS = {
    "V2": (2, {}),
    "V3": (3, {}),
    "V3, halves": (3, {"rope_interleave": False}),
    "V3, plain": (3, {"q_lora_rank": None}),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def theirs(kind, paths="sdpa", **made):
    """A module with random weights, and what it is called with."""
    version, own = KINDS[kind]
    code = {2: modeling_deepseek_v2, 3: modeling_deepseek_v3}[version]
    sizes = {"kv_lora_rank": 10, "q_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 6, "v_head_dim": 6}
    config = getattr(transformers, f"DeepseekV{version}Config")(
        hidden_size=D, num_attention_heads=HEADS, num_key_value_heads=HEADS, attn_implementation=paths,
        **(sizes | own | made),
    )  # fmt: skip
    module = getattr(code, f"DeepseekV{version}Attention")(config, layer_idx=0).double().eval()
    for weight in module.parameters():
        nn.init.normal_(weight, 0.1, 0.4)
    return module, getattr(code, f"DeepseekV{version}RotaryEmbedding")(config)


def run(module, rotary, x, start=0, cache=None):
    """Call their module causally, as their models do."""
    i, places = x.shape[1], torch.arange(start, start + x.shape[1])[None]
    mask = torch.zeros(i, start + i).masked_fill(~mha.causal_mask(i, start + i), -torch.inf)
    angles = rotary(x, places)
    return module(x, attention_mask=mask[None, None].to(x), position_embeddings=angles, past_key_values=cache)[0]


def exact(module):
    """Let their norms compute in the type of the weights."""
    for name in ("q_a_layernorm", "kv_a_layernorm"):
        old = getattr(module, name)
        if old is not None:
            new = nn.RMSNorm(old.weight.numel(), eps=1e-6).double()
            new.weight.data, new.variance_epsilon = old.weight.data, 1e-6
            setattr(module, name, new)
    return module


@every_kind
def test_values_and_gradients_are_theirs(kind):
    module, rotary = theirs(kind)
    layer, pull = from_transformers(module), torch.randn(2, N, D)
    x, y = (torch.linspace(-1, 1, 2 * N * D).sin().view(2, N, D).requires_grad_() for _ in range(2))
    right = run(module, rotary, x)
    for absorb in (False, True):
        found = layer(y, is_causal=True, absorb=absorb)
        assert error(found, right) < 1e-6
        y.grad = None
        found.backward(pull)
        if absorb is False:
            right.backward(pull, retain_graph=True)
        assert error(y.grad, x.grad) < 1e-5
    of_latent, of_key = module.kv_a_proj_with_mqa.weight.grad.split([10, 4])
    assert error(layer.W_down.weight.grad / 2, of_latent) < 1e-5
    assert error(layer.W_rotary_k.weight.grad / 2, of_key) < 1e-5


@pytest.mark.parametrize("kind", ["V3", "V3, halves", "V3, plain"])
def test_where_their_class_computes_in_float64_throughout_the_two_are_equal(kind):
    module, rotary = theirs(kind)
    exact(module)
    x = torch.randn(2, N, D)
    assert error(from_transformers(module)(x, is_causal=True), run(module, rotary, x)) < 1e-12


def test_their_own_two_paths_differ_by_what_a_softmax_in_float32_loses():
    module, rotary = theirs("V3")
    exact(module)
    x, fused = torch.randn(2, N, D), None
    for paths in ("sdpa", "eager"):
        module.config._attn_implementation = paths
        y = run(module, rotary, x)
        fused = y if fused is None else fused
    assert 1e-9 < error(y, fused) < 1e-6


@every_kind
@torch.no_grad()
def test_behind_a_cache_both_keep_the_same_rows_and_say_the_same(kind):
    module, rotary = theirs(kind)
    layer, x = from_transformers(module), torch.randn(2, N, D)
    ours, cache, start = layer.new_cache(N), transformers.DynamicCache(), 0
    for part in x.split((4, 1, 2), 1):
        right = run(module, rotary, part, start, cache)
        assert error(layer(part, is_causal=True, cache=ours), right) < 1e-6
        start += part.shape[1]
    kept = cache.layers[0]
    latents = ours._k[:, :, :N, :10]
    assert error(latents, kept.keys) < 1e-6
    assert kept.keys.numel() + kept.values.numel() == ours._k[:, :, :N].numel()


@every_kind
@torch.no_grad()
def test_our_weights_go_into_their_module_and_come_back(kind):
    module, rotary = theirs(kind)
    layer, x = from_transformers(module), torch.randn(2, N, D)
    for weight in layer.parameters():
        nn.init.normal_(weight, 0.2, 0.3)
    assert to_transformers(layer, module) is module
    assert error(layer(x, is_causal=True), run(module, rotary, x)) < 1e-6
    back = from_transformers(module).state_dict()
    assert all(torch.equal(weight, back[name]) for name, weight in layer.state_dict().items())


@torch.no_grad()
def test_in_float32_they_agree_to_six_digits():
    module, rotary = theirs("V3")
    x = torch.randn(2, N, D)
    assert error(from_transformers(module.float())(x.float(), is_causal=True), run(module, rotary, x.float())) < 3e-6


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ({"v_head_dim": 8}, "v_head_dim = 8, qk_nope_head_dim = 6: here values are as wide as keys"),
        ({"attention_bias": True}, "attention_bias = True: here the compressing maps have none"),
        (
            {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
            r"(?s)rope_type = 'dynamic'.*length of the sequence.*interop\.swap",
        ),
    ],
)
def test_an_option_without_a_counterpart_is_refused(made, reason):
    module, _ = theirs("V3", **made)
    with pytest.raises(ValueError, match=reason):
        from_transformers(module)


def test_a_layer_that_does_not_fit_names_each_difference_and_changes_nothing():
    module, _ = theirs("V3")
    before = copy.deepcopy(module.state_dict())
    layer = mha.LatentAttention(D, HEADS, 9, d_rotary=2, d_head=6, bias=False)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is looked at below
        to_transformers(layer.double(), module)
    for line in (
        "d_latent: the layer has 9, DeepseekV3Attention has 10 (its option kv_lora_rank)",
        "d_rotary: the layer has 2, DeepseekV3Attention has 4 (its option qk_rope_head_dim)",
        "d_query: the layer has None, DeepseekV3Attention has 8 (its option q_lora_rank)",
        "norm: the layer has False, DeepseekV3Attention has True",
        "angles in torch.float64",
    ):
        assert line in str(caught.value)
    assert all(torch.equal(before[name], p) for name, p in module.state_dict().items())
    with pytest.raises(
        ValueError, match=r"MultiHeadAttention computes something other than .*: only LatentAttention fits"
    ):
        to_transformers(mha.MultiHeadAttention(D, HEADS), module)
