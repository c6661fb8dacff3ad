"""The delta layers of Qwen3-Next, Kimi Linear and OLMo Hybrid: ours is theirs, both ways, cached and padded."""

import copy

import pytest
import torch
from oracle import error
from torch import nn

import mha
from mha.interop.hugging_face import from_transformers, to_transformers
from mha.interop.swapping import swap
from mha.layers.linear import Decay

transformers = pytest.importorskip("transformers", reason="transformers is missing: pip install -e '.[interop]'")
from transformers.models.kimi_linear import modeling_kimi_linear as kimi  # noqa: E402
from transformers.models.olmo_hybrid import modeling_olmo_hybrid as olmo  # noqa: E402
from transformers.models.qwen3_next import modeling_qwen3_next as qwen  # noqa: E402

D, HEADS, N = 24, 4, 37
NEAR = 2e-6  # theirs computes the rule in float32


def made(kind, **own):
    """A module of theirs with random weights."""
    sizes = {"hidden_size": D, "num_hidden_layers": 1, "num_attention_heads": HEADS}
    like = {"linear_num_key_heads": HEADS, "linear_num_value_heads": HEADS, "linear_key_head_dim": 6}
    like |= {"linear_value_head_dim": 10, "layer_types": ["linear_attention"]}
    torch.manual_seed(0)
    if kind == "Kimi Linear":
        config = transformers.KimiLinearConfig(**sizes | {"linear_num_heads": HEADS, "linear_head_dim": 6} | own)
        module = kimi.KimiLinearDeltaAttention(config, 0)
    elif kind == "Qwen3-Next":
        module = qwen.Qwen3NextGatedDeltaNet(transformers.Qwen3NextConfig(**sizes | like | own), 0)
    else:
        config = transformers.OlmoHybridConfig(
            **sizes | like | {"layer_types": ["linear_attention", "full_attention"]} | {"num_hidden_layers": 2} | own
        )
        module = olmo.OlmoHybridGatedDeltaNet(config, 0)
    for name, weight in module.named_parameters():
        if name.endswith("norm.weight"):
            nn.init.uniform_(weight, 0.5, 1.5)
        elif not name.endswith("A_log"):
            nn.init.normal_(weight, 0, 0.4)
        else:
            nn.init.uniform_(weight, -3, 1)
    return module.double().eval()


KINDS = {
    "Qwen3-Next": ("Qwen3-Next", {}),
    "Qwen3-Next, two heads share a key": ("Qwen3-Next", {"linear_num_key_heads": 2}),
    "Kimi Linear": ("Kimi Linear", {}),
    "OLMo Hybrid": ("OLMo Hybrid", {}),
    "OLMo Hybrid, β to 1": ("OLMo Hybrid", {"linear_allow_neg_eigval": False}),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def pair(kind):
    module = made(KINDS[kind][0], **KINDS[kind][1])
    return module, from_transformers(module)


@every_kind
@torch.no_grad()
def test_a_whole_module_is_ours(kind):
    module, layer = pair(kind)
    x = torch.randn(2, N, D)
    right = module(x)
    assert error(layer(x, is_causal=True), right) < NEAR
    assert error(layer.float()(x.float(), is_causal=True), module.float()(x.float())) < 1e-5


@every_kind
def test_slopes_are_theirs(kind):
    module, layer = pair(kind)
    x = torch.randn(1, 9, D, requires_grad=True)
    (right,) = torch.autograd.grad(module(x).square().sum(), x)
    (found,) = torch.autograd.grad(layer(x, is_causal=True).square().sum(), x)
    assert error(found, right) < 1e-5


@every_kind
@torch.no_grad()
def test_token_by_token_is_theirs_at_once(kind):
    module, layer = pair(kind)
    x, cache = torch.randn(2, N, D), layer.new_cache()
    parts = [layer(part, is_causal=True, cache=cache) for part in x.split([20, 1, 2, 1, 13], 1)]
    assert error(torch.cat(parts, 1), module(x)) < NEAR


@every_kind
@torch.no_grad()
def test_padding_in_front_is_theirs(kind):
    module, layer = pair(kind)
    x, mask = torch.randn(2, 9, D), torch.ones(2, 9)
    mask[0, :4] = 0
    right = module(x, attention_mask=mask)
    found = layer(x, mask=mask.bool()[:, None, None], is_causal=True)
    assert error(found[0, 4:], right[0, 4:]) < NEAR
    assert error(found[1], right[1]) < NEAR


@every_kind
@torch.no_grad()
def test_weights_go_there_and_back(kind):
    module, layer = pair(kind)
    other = copy.deepcopy(module)
    for weight in other.parameters():
        weight.zero_()
    assert to_transformers(layer, other) is other
    for (name, right), found in zip(module.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(right, found), name
    again = copy.deepcopy(layer)
    for weight in again.parameters():
        weight.zero_()
    assert from_transformers(module, into=again) is again
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), layer.parameters(), strict=True))


@pytest.mark.parametrize("model", ["Qwen3-Next", "Kimi Linear", "OLMo Hybrid"])
def test_a_layer_made_as_released_has_their_options_and_sizes(model):
    own = {} if model == "Kimi Linear" else {"d_value": 10}
    layer = mha.DeltaAttention.as_released(model, D, HEADS, d_head=6, **own)
    module = made(model)
    to_transformers(layer, module)
    x = torch.randn(1, N, D)
    assert error(layer(x, is_causal=True), module(x)) < NEAR
    assert layer.cost(1, 1).parameters == sum(weight.numel() for weight in module.parameters())


def test_heads_that_share_a_key_there_and_differ_here_are_refused(reader):
    module, layer = pair("Qwen3-Next, two heads share a key")
    before = copy.deepcopy(module.state_dict())
    with torch.no_grad():
        layer.W_k.weight[0] += 1
    with pytest.raises(
        ValueError, match=r"W_k\.weight: heads that share it there differ here\nMake the module with keys of their own"
    ):
        to_transformers(layer, module)
    assert all(torch.equal(before[name], x) for name, x in module.state_dict().items())


def test_what_differs_is_named(reader):
    module = made("Qwen3-Next")
    with pytest.raises(ValueError, match="MultiHeadAttention computes something other than Qwen3NextGatedDeltaNet"):
        to_transformers(mha.MultiHeadAttention(D, HEADS), module)
    other = mha.DeltaAttention.as_released("OLMo Hybrid", D, HEADS, d_head=6, d_value=10)
    with pytest.raises(
        ValueError, match=r"negative_eigenvalues: the layer has True, .* has False\n  - norm: the layer"
    ):
        to_transformers(other, module)
    with pytest.raises(ValueError, match=r"W_q\.weight: the layer has \(24, 24\), .* has \(16, 24\)"):
        from_transformers(made("Qwen3-Next", linear_key_head_dim=4), into=mha.DeltaAttention(D, HEADS))
    with pytest.raises(ValueError, match="hidden_act = 'relu': here it is SiLU"):
        from_transformers(made("Qwen3-Next", hidden_act="relu"))


def test_swap_says_that_it_does_not_replace_linear_attention(reader):
    config = transformers.KimiLinearConfig(
        hidden_size=D, num_hidden_layers=1, num_attention_heads=HEADS, linear_num_heads=HEADS, linear_head_dim=6,
        vocab_size=20, intermediate_size=8, layer_types=["linear_attention"], first_k_dense_replace=1,
        pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    model = kimi.KimiLinearModel(config)
    before = str(model)
    with pytest.raises(ValueError, match=r"linear attention, which .*from_transformers reads and swap does not"):
        swap(model)
    assert str(model) == before


# ---- their functions


@pytest.mark.parametrize("name", ["chunk_kimi_delta_attention", "recurrent_kimi_delta_attention"])
@pytest.mark.parametrize("n", [1, 5, 16, 70])
def test_decay_by_channel_is_that_of_kimi(name, n):
    """Theirs wants (batch, tokens, heads, width), brings keys to length one, and divides queries by √d."""
    random = torch.Generator().manual_seed(n)
    q, k, v = (torch.randn(2, n, 3, d, generator=random).float() for d in (8, 8, 6))
    beta, logs = torch.rand(2, n, 3, generator=random).float(), -torch.rand(2, n, 3, 8, generator=random).float()
    state = torch.randn(2, 3, 8, 6, generator=random).float()
    how = {"initial_state": state, "output_final_state": True, "use_qk_l2norm_in_kernel": True}
    right = getattr(kimi, name)(q, k, v, logs, beta, **how)
    q, k = (x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for x in (q, k))
    q, k, v, beta, logs = (x.transpose(1, 2) for x in (q / 8**0.5, k, v, beta, logs))
    for form in ("recurrent", "chunked", "parallel"):
        read, last = mha.functional.delta_rule(q, k, v, beta, logs, state=state, form=form)
        assert error((read.transpose(1, 2), last), right) < 3e-6


def test_the_decay_of_a_channel_is_that_of_kimi():
    module = made("Kimi Linear")
    x = torch.randn(2, 5, D)
    decay = from_transformers(module).decay
    assert isinstance(decay, Decay)
    assert error(decay(x), module.forget_gate(x).transpose(1, 2)) < NEAR
