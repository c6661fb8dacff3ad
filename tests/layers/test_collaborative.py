"""Heads that share one key space, and a trained layer that is compressed into it."""

import itertools
import math

import pytest
import torch
from oracle import LIMIT, error
from test_cost import peak
from torch import nn

import mha
from mha.analysis import pruning
from mha.functional import Shared, fit_shared, keep_largest
from mha.layers import MemoryCache, collaborate, products
from mha.systems import tensor_parallel


def by_formula(layer, x, y, mask=None):
    """The paper's equation, head by head: softmax((X W_q diag(m) (Y W_k)ᵀ + 1 c(Y)ᵀ) / √d) Y W_v, then W_o."""
    d, shared = layer.d_model // layer.heads, layer.d_shared
    rows, heads = layer.W_k.weight, []
    for h in range(layer.heads):
        scores = x @ layer.W_q.weight.T @ torch.diag(layer.mixing[h]) @ (y @ rows[:shared].T).mT
        if len(rows) > shared:
            scores = scores + (y @ rows[shared + h])[:, None, :]
        scores = scores / math.sqrt(d)
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf)
        values = y @ layer.W_v.weight[h * d : (h + 1) * d].T
        values = values if layer.W_v.bias is None else values + layer.W_v.bias[h * d : (h + 1) * d]
        heads.append(scores.softmax(-1) @ values)
    out = torch.cat(heads, -1) @ layer.W_o.weight.T
    return out if layer.W_o.bias is None else out + layer.W_o.bias


@pytest.mark.parametrize("bias", [True, False, "q", "vo"])
@pytest.mark.parametrize("d_shared", [1, 5, 12, 17])
def test_the_layer_is_the_formula_of_the_paper(bias, d_shared):
    layer = mha.CollaborativeAttention(12, 3, d_shared, bias=bias)
    x, memory = torch.randn(2, 5, 12), torch.randn(2, 7, 12)
    assert error(layer(x), by_formula(layer, x, x)) < LIMIT
    assert error(layer(x, memory), by_formula(layer, x, memory)) < LIMIT
    assert error(layer(x, is_causal=True), by_formula(layer, x, x, mha.causal_mask(5))) < LIMIT


def test_scores_begin_as_large_as_those_of_plain_heads():
    x = torch.randn(4, 40, 64)
    spreads = []
    for layer in (mha.MultiHeadAttention(64, 8, bias=False), *sharing(64, 8, (64, 24, 8))):
        with mha.watch(layer, "scores") as seen:
            layer(x)
        spreads.append(seen.scores.std().item())
    assert max(spreads) < 1.25 * min(spreads)


def sharing(d_model, heads, widths):
    return [mha.CollaborativeAttention(d_model, heads, width, bias=False) for width in widths]


def test_three_ways_to_fuse_heads():
    side_by_side = mha.CollaborativeAttention(12, 3, fusion="concatenate").mixing
    assert torch.equal(side_by_side, torch.block_diag(*[torch.ones(1, 4)] * 3))
    assert mha.CollaborativeAttention(12, 3, 6, fusion="concatenate").mixing.sum(1).tolist() == [2, 2, 2]
    shared, compressed = mha.CollaborativeAttention(12, 3), mha.CollaborativeAttention(12, 3, 5)
    assert shared.mixing.shape == (3, 12)
    assert compressed.mixing.shape == (3, 5)
    assert (shared.mixing != 0).all()


def test_one_cache_entry_serves_all_heads():
    layer, x = mha.CollaborativeAttention(12, 3, 5).eval(), torch.randn(2, 6, 12)
    cache = layer.new_cache(6)
    with torch.no_grad():
        steps = torch.cat([layer(word, cache=cache, is_causal=True) for word in x.split(1, 1)], 1)
        assert error(steps, layer(x, is_causal=True)) < LIMIT
    assert cache._k.shape == (2, 1, 6, 5 + 3)
    assert cache.bytes == layer.cost(2, 6).cache == 2 * 6 * (5 + 3 + 12) * 8
    memory, kept = torch.randn(2, 4, 12), MemoryCache()
    with torch.no_grad():
        for word in x.split(1, 1):
            assert error(layer(word, memory, cache=kept), layer(word, memory)) < LIMIT


@pytest.mark.parametrize("bias", [True, False])
def test_some_heads_are_the_layer_with_the_others_silent(bias):
    layer, x = mha.CollaborativeAttention(12, 4, 7, bias=bias).eval(), torch.randn(2, 5, 12)
    for heads in ([0], [3, 1], [0, 1, 2, 3]):
        smaller = layer.take_heads(heads)
        with pruning.mask_heads(layer, {"": heads}):
            right = layer(x, is_causal=True)
        assert error(smaller(x, is_causal=True), right) < LIMIT
        assert smaller.cost(2, 5).parameters == sum(p.numel() for p in smaller.parameters())
    for wrong in ([], [4], [-1]):
        with pytest.raises(ValueError, match="of a layer with 4: give at least one, each once, from 0 to 3"):
            layer.take_heads(wrong)
    with pytest.raises(ValueError, match="CollaborativeAttention cannot be computed apart: all heads share"):
        tensor_parallel.check_divisible(layer, 2)


@pytest.mark.parametrize("sizes", [(24, 4, 13), (24, 4, 24), (8, 2, 1)])
@pytest.mark.parametrize("bias", [True, False])
def test_the_peak_is_that_of_the_tensors_alive(sizes, bias):
    layer = mha.CollaborativeAttention(*sizes, bias=bias)
    for b, i, j in ((2, 7, 7), (1, 64, 64), (1, 3, 40)):
        inputs = [torch.randn(b, i, sizes[0])] + ([torch.randn(b, j, sizes[0])] if i != j else [])
        assert layer.cost(b, i, j).peak == pytest.approx(peak(layer, *inputs), rel=0.1)


def test_weights_fall_but_the_operations_of_scores_rise():
    plain, n = mha.MultiHeadAttention(512, 8, bias=False).cost(1, 1024), 1024
    for share in (1, 2, 3, 4, 8):
        layer = mha.CollaborativeAttention(512, 8, 512 // share, bias=False)
        cost, width = layer.cost(1, n), 512 // share
        assert cost.parameters == 2 * 512 * width + 8 * width + 2 * 512**2
        assert cost.flops == 4 * n * 512 * width + 2 * n**2 * 8 * width + 4 * n * 512**2 + 2 * n**2 * 512
        assert cost.parts["scores"].flops == 8 * width / 512 * plain.parts["scores"].flops


# ---- bad input


def test_widths_and_fusions_that_make_no_layer_are_refused(reader):
    for d_shared, fusion, message in (
        (0, "share", "d_shared = 0.*at least 1"),
        (4, "mix", r"fusion = 'mix'.*one of \('concatenate', 'share'\)"),
        (7, "concatenate", "3 heads cannot own equal blocks of 7 channels"),
    ):
        with pytest.raises(ValueError, match=message):
            mha.CollaborativeAttention(12, 3, d_shared, fusion=fusion)


def test_only_a_plain_layer_can_be_made_collaborative(reader):
    grouped, rotary = mha.GroupedAttention(8, 4, 2), mha.MultiHeadAttention(8, 2, positions=mha.RotaryPositions())
    for layer, message in ((grouped, "GroupedAttention is no plain layer"), (rotary, "RotaryPositions inside")):
        with pytest.raises(ValueError, match=message):
            collaborate(layer, 4)
        with pytest.raises(ValueError, match=message):
            mha.CollaborativeAttention.from_plain(layer)


@pytest.mark.parametrize("rank", [0, -1, 13])
def test_ranks_out_of_range_are_refused(reader, rank):
    with pytest.raises(ValueError, match=rf"d_shared = {rank}: 1 to 12"):
        collaborate(mha.MultiHeadAttention(12, 3), rank)
    with pytest.raises(ValueError, match=rf"rank = {3 * rank}: .*1 to 36"):
        fit_shared(torch.randn(3, 12, 12), 3 * rank)
    with pytest.raises(ValueError, match="rounds = -1"):
        fit_shared(torch.randn(3, 12, 12), 4, rounds=-1)


# ---- from a plain layer


@pytest.mark.parametrize("bias", [True, False, "qo", "kv"])
def test_at_full_width_nothing_changes(bias):
    plain = mha.MultiHeadAttention(12, 3, kdim=5, vdim=7, bias=bias)
    x, key, value = torch.randn(2, 4, 12), torch.randn(2, 6, 5), torch.randn(2, 6, 7)
    for layer in (mha.CollaborativeAttention.from_plain(plain), collaborate(plain, 12)):
        assert error(layer(x, key, value), plain(x, key, value)) < LIMIT
    assert collaborate(plain.eval(), 5).training is False


def test_a_model_is_compressed_and_still_trains():
    layer = collaborate(mha.MultiHeadAttention(12, 3), 5)
    layer(torch.randn(2, 4, 12)).square().sum().backward()
    assert all(p.grad.abs().max() > 0 for p in layer.parameters())
    assert layer.mixing.shape == (3, 5)
    assert isinstance(layer.W_q, nn.Linear)


def test_the_temperature_stays():
    """A layer that needs 4 shared channels keeps its numbers with 4: only the original √d gives them back."""
    plain = mha.MultiHeadAttention(12, 3, bias=False)
    with torch.no_grad():
        left, right, mixing = torch.randn(12, 4), torch.randn(12, 4), torch.randn(3, 4)
        plain.W_q.weight.copy_((left * mixing[:, None]).mT.reshape(12, 12))
        plain.W_k.weight.copy_(right.T.repeat(3, 1))
    layer, x = collaborate(plain, 4, rounds=300), torch.randn(2, 5, 12)
    assert error(layer(x), plain(x)) < 0.01
    with torch.no_grad():
        layer.W_q.weight.mul_(math.sqrt(4 / (4 / 3)))  # divided by √(d_shared / heads), as released, instead of √d
    assert error(layer(x), plain(x)) > 0.1


# ---- the decomposition


def matrices(h=4, d=24, seed=0):
    random = torch.Generator().manual_seed(seed)
    q, k = (torch.randn(h, d // h, d, generator=random, dtype=torch.float64) for _ in range(2))
    return q.mT @ k


def each_cut(t, rank):
    """Per-head truncated singular values: so many pairs for every head."""
    sizes = torch.linalg.svdvals(t)
    return float(sizes[:, rank // len(t) :].norm() / t.norm())


def test_the_error_falls_with_the_rank_and_beats_heads_cut_one_by_one():
    t = matrices()
    found = {rank: fit_shared(t, rank, rounds=60).error(t) for rank in (4, 8, 12, 16, 20, 24)}
    assert all(a > b for a, b in itertools.pairwise(found.values()))
    assert found[24] < 1e-12
    for rank, mistake in list(found.items())[:-1]:
        assert mistake < 0.999 * keep_largest(t, rank).error(t) <= 1.001 * each_cut(t, rank)


def test_shared_directions_are_found():
    """Four heads that differ only in how they weigh six pairs: six terms say it all, heads one by one need 24."""
    random = torch.Generator().manual_seed(1)
    true = Shared(*(torch.randn(n, 6, generator=random, dtype=torch.float64) for n in (24, 4, 24)))
    t = true.matrices()
    assert each_cut(t, 8) > 0.3
    assert fit_shared(t, 6, rounds=1000).error(t) < 0.02


def test_a_round_never_makes_it_worse():
    t = matrices(3, 12)
    errors = [fit_shared(t, 7, rounds=rounds).error(t) for rounds in range(12)]
    assert all(a >= b - 1e-12 for a, b in itertools.pairwise(errors))
    assert errors[0] == pytest.approx(keep_largest(t, 7).error(t))


def test_terms_are_balanced():
    found = fit_shared(matrices(), 9, rounds=5)
    assert error(found.left.norm(dim=0), found.right.norm(dim=0)) < 1e-9
    assert error(found.mixing.norm(dim=0), torch.ones(9)) < 1e-9


def test_matrices_of_zeros_are_decomposed_into_zeros():
    assert fit_shared(torch.zeros(2, 4, 4), 3).matrices().abs().max() == 0


def test_products_are_what_heads_compare():
    layer, x = mha.MultiHeadAttention(12, 3, bias=False), torch.randn(2, 5, 12)
    with mha.watch(layer, "scores") as seen:
        layer(x)
    assert error(x[:, None] @ products(layer) @ x[:, None].mT / 2, seen.scores) < LIMIT
