"""Heads that read channels of their neighbors."""

import math

import pytest
import torch
from oracle import LIMIT, error
from test_cost import peak

import mha
from mha.layers import overlap_heads, overlap_schedule, widen
from mha.models import LanguageModel
from mha.systems import tensor_parallel


def by_formula(layer, x, y, mask=None):
    """The paper's definition, head by head: channels h·d − o to (h + 1)·d + o of Q, K and V, zeros beyond the ends."""
    d, o = layer.d_model // layer.heads, layer.overlap
    nothing = torch.zeros(*x.shape[:1], 1, o)
    q, k, v = layer.W_q(x), layer.W_k(y), layer.W_v(y)
    q, k, v = (
        torch.cat([nothing.expand(-1, t.shape[1], -1), t, nothing.expand(-1, t.shape[1], -1)], -1) for t in (q, k, v)
    )
    heads = []
    for h in range(layer.heads):
        part = slice(h * d, (h + 1) * d + 2 * o)
        scores = q[..., part] @ k[..., part].mT / math.sqrt(d)
        scores = scores if mask is None else scores.masked_fill(~mask, -math.inf)
        heads.append(scores.softmax(-1) @ v[..., part])
    return layer.W_o(torch.cat(heads, -1))


@pytest.mark.parametrize(("heads", "overlap"), [(3, 0), (3, 1), (3, 4), (4, 2), (1, 5), (12, 1)])
@pytest.mark.parametrize("bias", [True, False])
def test_the_layer_is_the_formula_of_the_paper(heads, overlap, bias):
    layer = mha.OverlappingAttention(12, heads, overlap, bias=bias)
    x, memory = torch.randn(2, 5, 12), torch.randn(2, 7, 12)
    assert layer.W_o.weight.shape == (12, heads * (12 // heads + 2 * overlap))
    assert error(layer(x), by_formula(layer, x, x)) < LIMIT
    assert error(layer(x, memory), by_formula(layer, x, memory)) < LIMIT
    assert error(layer(x, is_causal=True), by_formula(layer, x, x, mha.causal_mask(5))) < LIMIT


def test_zeros_stand_beyond_the_first_and_the_last_head():
    x = torch.arange(1.0, 7).view(1, 1, 6)
    heads = widen(mha.split_heads(x, 3), 1)[0, :, 0]
    assert heads.tolist() == [[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 0]]
    assert torch.equal(widen(mha.split_heads(x, 3), 2)[0, 0, 0], torch.tensor([0, 0, 1, 2, 3, 4.0]))


def test_a_head_listens_to_its_neighbors_and_to_nobody_else():
    layer, x = mha.OverlappingAttention(12, 4, 3), torch.randn(1, 5, 12)
    heard = torch.zeros(4, 4)
    for h in range(4):
        other = mha.OverlappingAttention(12, 4, 3)
        other.load_state_dict(layer.state_dict())
        with torch.no_grad():
            other.W_v.weight[3 * h : 3 * h + 3] += 1
        with mha.watch(layer) as before:
            layer(x)
        with mha.watch(other) as after:
            other(x)
        heard[:, h] = (after.heads - before.heads).abs().amax((0, 2, 3))
    near = (torch.arange(4)[:, None] - torch.arange(4)).abs() <= 1
    assert torch.equal(heard > 0, near)


def test_plain_heads_hear_only_themselves_until_they_are_merged():
    x = torch.randn(1, 5, 12)
    layer = mha.MultiHeadAttention(12, 4)
    with mha.watch(layer) as before:
        y = layer(x)
    with torch.no_grad():
        for linear in (layer.W_q, layer.W_k, layer.W_v):
            linear.weight[3:6] += 1
    with mha.watch(layer) as after:
        changed = layer(x)
    assert ((after.heads - before.heads).abs().amax((0, 2, 3)) > 0).tolist() == [False, True, False, False]
    assert ((changed - y).abs() > 0).all()


def test_what_heads_add_sums_to_the_output():
    layer, x = mha.OverlappingAttention(12, 3, 2), torch.randn(2, 5, 12)
    with mha.watch(layer) as seen:
        y = layer(x)
    assert error(layer.contributions(seen.heads).sum(1) + layer.W_o.bias, y) < LIMIT


def test_a_cache_is_no_larger_than_that_of_plain_heads():
    layer, x = mha.OverlappingAttention(12, 3, 2).eval(), torch.randn(2, 6, 12)
    cache = layer.new_cache(6)
    with torch.no_grad():
        steps = torch.cat([layer(word, cache=cache, is_causal=True) for word in x.split(1, 1)], 1)
    assert error(steps, layer(x, is_causal=True)) < LIMIT
    assert cache.bytes == layer.cost(2, 6).cache == mha.MultiHeadAttention(12, 3).cost(2, 6).cache


@pytest.mark.parametrize("overlap", [0, 2, 6])
def test_the_peak_is_that_of_the_tensors_alive(overlap):
    layer = mha.OverlappingAttention(24, 4, overlap)
    for b, i, j in ((2, 7, 7), (1, 64, 64), (1, 3, 40)):
        inputs = [torch.randn(b, i, 24)] + ([torch.randn(b, j, 24)] if i != j else [])
        assert layer.cost(b, i, j).peak == peak(layer, *inputs)
        if i == 64:
            with mha.watch(layer):
                assert layer.cost(b, i, j, stored=True).peak == pytest.approx(peak(layer, *inputs), rel=0.1)


def test_weights_and_operations_grow_as_the_formulas_say():
    for n, d_model, heads, o in ((64, 192, 12, 11), (64, 192, 12, 0), (50, 64, 4, 16)):
        cost, wide = mha.OverlappingAttention(d_model, heads, o, bias=False).cost(1, n), d_model // heads + 2 * o
        assert cost.parameters == 3 * d_model**2 + heads * wide * d_model
        assert cost.flops == 6 * n * d_model**2 + 4 * n**2 * heads * wide + 2 * n * heads * wide * d_model


# ---- over depth


@pytest.mark.parametrize(
    ("how", "right"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"first": 1}, [1, 2, 3, 4, 5]),
        ({"every": 2}, [0, 0, 1, 1, 2]),
        ({"first": 1, "every": 2}, [1, 1, 2, 2, 3]),
        ({"falling": True}, [4, 3, 2, 1, 0]),
        ({"first": 1, "falling": True}, [5, 4, 3, 2, 1]),
        ({"every": 2, "falling": True}, [2, 1, 1, 0, 0]),
        ({"first": 1, "every": 2, "falling": True}, [3, 2, 2, 1, 1]),
    ],
)
def test_the_eight_schedules(how, right):
    assert overlap_schedule(5, **how) == right
    assert overlap_schedule(1, **how) == right[-1 if how.get("falling") else 0 :][:1]


def test_a_model_overlaps_as_its_schedule_says():
    model = LanguageModel(7, 12, 3, layers=3)
    wider = overlap_heads(model, overlap_schedule(3))
    assert [layer.attention.overlap for layer in wider.decoder] == [0, 1, 2]
    assert type(model.decoder[0].attention) is mha.MultiHeadAttention
    words = torch.randint(7, (2, 6))
    assert error(overlap_heads(model, [0, 0, 0])(words), model(words)) == 0
    assert error(wider(words), model(words)) > 1e-3
    assert type(overlap_heads(mha.MultiHeadAttention(4, 2), [1])) is mha.OverlappingAttention


def test_made_from_a_plain_layer_neighbors_are_read_but_not_yet_used():
    plain = mha.MultiHeadAttention(12, 3)
    wider = mha.OverlappingAttention.from_plain(plain, overlap=2)
    blocks = wider.W_o.weight.unflatten(1, (3, 8))
    assert blocks[..., [0, 1, 6, 7]].abs().max() == 0
    assert torch.equal(blocks[..., 2:6].flatten(1), plain.W_o.weight)


# ---- bad input


@pytest.mark.parametrize("overlap", [-1, 5, 12])
def test_an_overlap_wider_than_a_neighbor_is_refused(reader, overlap):
    with pytest.raises(ValueError, match=rf"overlap = {overlap}: a neighbor has 4 channels, so take 0 to 4"):
        mha.OverlappingAttention(12, 3, overlap)


@pytest.mark.parametrize("overlap", [-1, 1.0, "1"])
def test_widening_by_what_is_no_number_of_channels_is_refused(reader, overlap):
    with pytest.raises((TypeError, ValueError), match=f"overlap = {overlap!r}"):
        widen(torch.randn(1, 3, 2, 4), overlap)


def test_a_schedule_of_the_wrong_length_is_refused(reader):
    model = LanguageModel(7, 12, 3, layers=3)
    for overlaps in ([], [1, 2], [0, 1, 2, 3]):
        with pytest.raises(ValueError, match=f"{len(overlaps)} overlaps for 3 layers with heads: give one for each"):
            overlap_heads(model, overlaps)
    with pytest.raises(ValueError, match="overlap = 5: a neighbor has 4"):
        overlap_heads(model, [3, 4, 5])
    for wrong in ({"layers": 0}, {"layers": 2, "first": -1}, {"layers": 2, "every": 0}):
        with pytest.raises(ValueError, match="at least 1, 0 and 1"):
            overlap_schedule(**wrong)


def test_heads_that_need_each_other_are_not_taken_apart(reader):
    layer = mha.OverlappingAttention(12, 3, 2)
    with pytest.raises(ValueError, match=r"cannot be taken out: each head reads channels of its neighbors"):
        layer.take_heads([0])
    with pytest.raises(ValueError, match="cannot be computed apart: each head reads"):
        tensor_parallel.check_divisible(layer, 3)


def test_only_a_plain_layer_can_be_made_to_overlap(reader):
    for layer, message in (
        (mha.GroupedAttention(8, 4, 2), "GroupedAttention is no plain layer"),
        (mha.MultiHeadAttention(8, 2, positions=mha.RotaryPositions()), "RotaryPositions inside"),
    ):
        with pytest.raises(ValueError, match=message):
            mha.OverlappingAttention.from_plain(layer, overlap=1)
