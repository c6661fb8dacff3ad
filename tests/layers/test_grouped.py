"""Query heads that share keys and values."""

import pytest
import torch

import mha
from mha.analysis import leaks
from mha.functional import attention
from mha.layers import MemoryCache

B, N, D_MODEL, HEADS, WIDTH = 2, 5, 18, 6, 4


def noise(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def grouped(kv_heads, **sizes):
    torch.manual_seed(2)
    return mha.GroupedAttention(D_MODEL, HEADS, kv_heads, d_head=WIDTH, **sizes).double().eval()


def by_repeating(layer, x, memory=None, mask=None, is_causal=False):
    """The definition: copy each key head for the queries that share it, then attend as usual."""
    q, k, v = layer.project(x, memory)
    group = layer.heads // layer.kv_heads
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    return layer.merge(attention.attend(q, k, v, mask, is_causal=is_causal))


MASKS = {
    "none": None,
    "query and key": noise(N, N) > -0.5,
    "padding": mha.padding_mask([2, 4], N),
    "per head": noise(1, HEADS, N, N) > 0,
    "per head and key": noise(B, HEADS, 1, N) > 0,
    "everything": noise(B, HEADS, N, N) > 0,
    "an empty row": torch.ones(N, N, dtype=torch.bool).tril(-1),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 2, 3, 6])
def test_shared_keys_give_what_copied_keys_give(kv_heads, is_causal, mask):
    layer, x = grouped(kv_heads), noise(B, N, D_MODEL).requires_grad_()
    ours, theirs = layer(x, mask=mask, is_causal=is_causal), by_repeating(layer, x, mask=mask, is_causal=is_causal)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-13)
    pull = noise(B, N, D_MODEL, seed=1)
    ours, theirs = (torch.autograd.grad(y, x, pull, retain_graph=True)[0] for y in (ours, theirs))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-13)


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
def test_cross_attention_and_a_memory_cache(kv_heads):
    layer, x, memory = grouped(kv_heads, kdim=7, vdim=7), noise(B, N, D_MODEL), noise(B, 3, 7)
    torch.testing.assert_close(layer(x, memory), by_repeating(layer, x, memory))
    with torch.no_grad():
        cache = MemoryCache()
        for word in x.split(1, 1):
            torch.testing.assert_close(layer(word, memory, cache=cache), by_repeating(layer, word, memory))


@pytest.mark.parametrize("positions", [None, mha.RotaryPositions(), mha.LinearBias()])
@pytest.mark.parametrize("chunks", [(1,) * N, (2, 3), (N,)])
def test_a_cache_of_shared_heads_gives_the_same_numbers(positions, chunks):
    layer, x = grouped(2, positions=positions), noise(B, N, D_MODEL)
    with torch.no_grad():
        cache = mha.KeyValueCache(N)
        fed = torch.cat([layer(part, cache=cache, is_causal=True) for part in x.split(chunks, 1)], 1)
        torch.testing.assert_close(fed, layer(x, is_causal=True), rtol=0, atol=1e-13)
        assert cache.append(*(torch.zeros(B, 2, 0, WIDTH, dtype=torch.float64),) * 2)[0].shape == (B, 2, N, WIDTH)


def test_a_watcher_sees_every_query_head_and_changes_nothing():
    layer, x = grouped(3), noise(B, N, D_MODEL)
    with mha.watch(layer) as seen:
        watched = layer(x, is_causal=True)
    torch.testing.assert_close(watched, layer(x, is_causal=True), rtol=0, atol=1e-13)
    assert seen.scores.shape == seen.weights.shape == (B, HEADS, N, N)
    assert seen.heads.shape == (B, HEADS, N, WIDTH)
    q, k, _ = layer.project(x)
    expected = attention.attention_weights(q, k.repeat_interleave(2, 1), is_causal=True)
    torch.testing.assert_close(seen.weights, expected)


def test_nothing_leaks():
    torch.manual_seed(0)
    report = leaks(mha.GroupedAttention(8, 4, 2), cache=mha.KeyValueCache, is_causal=True)
    assert not report
    assert not any(report.blind.values())


def test_as_many_key_heads_as_query_heads_is_plain_attention():
    torch.manual_seed(0)
    plain = mha.MultiHeadAttention(12, 3, kdim=5, vdim=7, bias="qvo").double().eval()
    layer, x = mha.GroupedAttention.from_plain(plain), noise(2, 4, 12)
    assert layer.state_dict().keys() == plain.state_dict().keys()
    key, value = noise(2, 3, 5), noise(2, 3, 7)
    assert torch.equal(layer(x, key, value), plain(x, key, value))


def test_fewer_key_heads_are_means_of_the_old_ones():
    torch.manual_seed(0)
    plain = mha.MultiHeadAttention(8, 4)
    shared = mha.GroupedAttention.from_plain(plain, 2)
    torch.testing.assert_close(shared.W_k.weight[:2], (plain.W_k.weight[:2] + plain.W_k.weight[2:4]) / 2)
    torch.testing.assert_close(shared.W_v.bias[2:], (plain.W_v.bias[4:6] + plain.W_v.bias[6:]) / 2)
    assert torch.equal(shared.W_q.weight, plain.W_q.weight)


@pytest.mark.parametrize("kv_heads", [0, 4, 12])
def test_groups_of_unequal_size_are_refused(kv_heads):
    with pytest.raises(ValueError, match=rf"{kv_heads} key heads.*6 query heads.*\[1, 2, 3, 6\]"):
        mha.GroupedAttention(12, 6, kv_heads)


def test_a_mask_that_does_not_fit_is_refused_with_all_heads_named():
    with pytest.raises(ValueError, match=r"\(2, 2, 5, 5\).*\(2, 6, 5, 5\)"):
        grouped(2)(noise(B, N, D_MODEL), mask=torch.ones(B, 2, N, N, dtype=torch.bool))
