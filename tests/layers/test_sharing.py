"""Shared KV heads by singular values: exact where the rank allows it, closer than the mean elsewhere."""

import pytest
import torch

import mha
from mha.layers import GroupedAttention, share_heads


def plain(**how):
    torch.manual_seed(0)
    layer = mha.MultiHeadAttention(16, 4, **how).double().eval()
    for name, bias in layer.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(bias)
    return layer


def text(n=9, width=16, seed=1):
    return torch.randn(3, n, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("bias", [False, True, "qk", "v", "qkvo"])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_nothing_changes_where_heads_of_a_group_need_no_more_than_one_head_has(kv_heads, bias):
    layer, x = plain(bias=bias, positions=mha.LinearBias()), text()
    with torch.no_grad():
        for linear in (layer.W_k, layer.W_v):  # all heads of a group are mixtures of four channels
            of_groups = linear.weight.view(kv_heads, -1, 16)
            mixture = torch.randn(kv_heads, 16 // kv_heads, 4, dtype=torch.float64)
            of_groups.copy_(mixture @ of_groups[:, :4])
    new = share_heads(layer, kv_heads)
    assert type(new) is GroupedAttention
    assert new.kv_heads == kv_heads
    torch.testing.assert_close(new(x, is_causal=True), layer(x, is_causal=True))


@pytest.mark.parametrize("tokens", [False, True])
def test_it_is_closer_than_the_mean(tokens):
    layer, x = plain(), text(200)
    right = layer(x)
    of_svd = share_heads(layer, 2, x if tokens else None)(x) - right
    of_mean = GroupedAttention.from_plain(layer, kv_heads=2)(x) - right
    assert of_svd.norm() < 0.8 * of_mean.norm()


def test_for_tokens_of_few_directions_nothing_is_lost():
    layer, x = plain(), text(200, 4) @ torch.randn(4, 16, dtype=torch.float64)
    assert (share_heads(layer, 1, x)(x) - layer(x)).abs().max() < 0.05
    assert (share_heads(layer, 1)(x) - layer(x)).abs().max() > 0.2


def test_the_old_layer_is_untouched_and_the_new_one_trains():
    layer = plain().train()
    before = [p.clone() for p in layer.parameters()]
    new = share_heads(layer, 2)
    new(text()).sum().backward()
    assert new.training
    assert all(p.grad is not None for p in new.parameters())
    assert all(torch.equal(p, q) for p, q in zip(before, layer.parameters(), strict=True))


@pytest.mark.parametrize(
    ("make", "kv_heads", "tokens", "says"),
    [
        (lambda: plain(positions=mha.RotaryPositions()), 2, None, "rotate keys"),
        (plain, 3, None, "no such equal groups"),
        (lambda: mha.GroupedAttention(16, 4, 2), 1, None, "share 2 KV heads already"),
        (lambda: mha.GatedAttention(16, 4), 2, None, "does more than project"),
        (plain, 2, text(width=8), "tokens of 16 numbers"),
    ],
)
def test_what_cannot_be_shared_is_refused(make, kv_heads, tokens, says):
    with pytest.raises(ValueError, match=says):
        share_heads(make(), kv_heads, tokens)
