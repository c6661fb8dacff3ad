"""Positions that act inside a layer: rotary and linear bias."""

import math

import pytest
import torch

import mha
from mha.analysis import leaks
from mha.functional import attention
from mha.interop.rotary import relayout, reorder_rows
from mha.layers import SinusoidalPositions, sinusoidal_positions, slopes

LAYOUTS = ("half", "interleaved")


def layer_with(positions, d_model=24, heads=3, **sizes):
    torch.manual_seed(1)
    return mha.MultiHeadAttention(d_model, heads, positions=positions, **sizes).double().eval()


def noise(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_pair_is_turned_like_a_complex_number(layout):
    x, start, d = noise(2, 3, 5, 8), 4, 8
    turned = mha.RotaryPositions(100.0, layout).turn(x, start)
    for n in range(5):
        for c in range(d // 2):
            one, two = (c, c + d // 2) if layout == "half" else (2 * c, 2 * c + 1)
            angle = (start + n) * 100.0 ** (-2 * c / d)
            z = torch.complex(x[:, :, n, one], x[:, :, n, two]) * complex(math.cos(angle), math.sin(angle))
            torch.testing.assert_close(turned[:, :, n, one], z.real, rtol=0, atol=1e-13)
            torch.testing.assert_close(turned[:, :, n, two], z.imag, rtol=0, atol=1e-13)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_score_depends_on_the_distance_only(layout):
    rotary, q, k = mha.RotaryPositions(layout=layout), noise(1, 2, 4, 6), noise(1, 2, 4, 6, seed=1)
    here = rotary.turn(q) @ rotary.turn(k).mT
    far = rotary.turn(q, 1000) @ rotary.turn(k, 1000).mT
    torch.testing.assert_close(here, far, rtol=0, atol=1e-11)
    shifted = rotary.turn(q, 3) @ rotary.turn(k).mT
    assert (here - shifted).abs().max() > 0.1


def test_turning_keeps_lengths_and_position_zero():
    x = noise(2, 3, 7, 10)
    turned = mha.RotaryPositions().turn(x)
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(turned[:, :, 0], x[:, :, 0])


@pytest.mark.parametrize(
    "positions", [mha.RotaryPositions(), mha.RotaryPositions(layout="interleaved"), mha.LinearBias()]
)
@pytest.mark.parametrize("chunks", [(1,) * 7, (3, 4), (4, 2, 1), (7,)])
def test_a_cache_gives_the_same_numbers_as_all_at_once(positions, chunks):
    layer, x = layer_with(positions), noise(2, 7, 24)
    with torch.no_grad():
        cache = mha.KeyValueCache(7)
        fed = torch.cat([layer(part, cache=cache, is_causal=True) for part in x.split(chunks, 1)], 1)
        torch.testing.assert_close(fed, layer(x, is_causal=True), rtol=0, atol=1e-12)


@pytest.mark.parametrize("positions", [mha.RotaryPositions(), mha.LinearBias()])
def test_positions_do_not_let_the_future_leak(positions):
    report = leaks(layer_with(positions, 8, 2), cache=mha.KeyValueCache, is_causal=True)
    assert not report
    assert set(report.pairs) == {"train", "eval", "cached"}
    assert not any(report.blind.values())


@pytest.mark.parametrize("positions", [mha.RotaryPositions(), mha.LinearBias()])
def test_the_order_of_the_words_counts_once_there_are_positions(positions):
    x, order = noise(1, 5, 24), torch.tensor([3, 0, 4, 1, 2])
    plain, placed = layer_with(None), layer_with(positions)
    torch.testing.assert_close(plain(x)[:, order], plain(x[:, order]))
    assert (placed(x)[:, order] - placed(x[:, order])).abs().max() > 1e-3


@pytest.mark.parametrize("positions", [mha.RotaryPositions(), mha.LinearBias()])
def test_cross_attention_with_positions_is_refused(positions):
    with pytest.raises(ValueError, match=rf"{type(positions).__name__}.*another sequence.*without positions"):
        layer_with(positions)(noise(1, 3, 24), noise(1, 4, 24))


@pytest.mark.parametrize("heads", [1, 3, 8])
def test_linear_bias_takes_slope_times_distance(heads):
    scores = noise(2, heads, 3, 5)
    biased = mha.LinearBias().bias(scores)
    for h in range(heads):
        for i in range(3):
            for j in range(5):
                expected = scores[:, h, i, j] - 2 ** (-8 * (h + 1) / heads) * abs(i + 2 - j)
                torch.testing.assert_close(biased[:, h, i, j], expected, rtol=0, atol=1e-14)


def test_linear_bias_is_seen_by_a_watcher_and_comes_before_the_mask():
    layer, x = layer_with(mha.LinearBias()), noise(1, 4, 24)
    q, k, _ = layer.project(x)
    with mha.watch(layer) as seen:
        layer(x, is_causal=True)
    expected = mha.LinearBias().bias(q @ k.mT / math.sqrt(8))
    torch.testing.assert_close(seen.scores, expected)
    torch.testing.assert_close(
        seen.weights, attention.attention_weights(q, k, is_causal=True, edit_scores=layer.positions.bias)
    )


def test_slopes_of_eight_heads_are_halves_of_halves():
    assert slopes(8).tolist() == [2.0**-n for n in range(1, 9)]


def test_watching_a_rotary_layer_changes_nothing():
    layer, x = layer_with(mha.RotaryPositions()), noise(2, 5, 24)
    with mha.watch(layer) as seen:
        watched = layer(x)
    torch.testing.assert_close(watched, layer(x), rtol=0, atol=1e-13)
    assert seen.scores.shape == (2, 3, 5, 5)


@pytest.mark.parametrize("bias", [True, False])
def test_relayout_changes_rows_and_not_outputs(bias):
    layer, x = layer_with(mha.RotaryPositions(layout="interleaved"), bias=bias), noise(2, 6, 24)
    before, rows = layer(x, is_causal=True), layer.W_q.weight.clone()
    relayout(layer, "half")
    torch.testing.assert_close(layer(x, is_causal=True), before, rtol=0, atol=1e-13)
    assert not torch.equal(layer.W_q.weight, rows)
    assert torch.equal(relayout(layer, "interleaved").W_q.weight, rows)


def test_rows_of_one_head_of_six_channels_in_both_orders():
    assert reorder_rows(torch.arange(6.0), 6, "half").tolist() == [0, 2, 4, 1, 3, 5]
    assert reorder_rows(torch.tensor([0.0, 2, 4, 1, 3, 5]), 6, "interleaved").tolist() == [0, 1, 2, 3, 4, 5]


def test_angles_of_a_low_precision_layer_stay_exact():
    x = noise(1, 1, 2, 64)
    exact = mha.RotaryPositions().turn(x, 5000)
    half = mha.RotaryPositions().turn(x.bfloat16(), 5000)
    assert (half.double() - exact).abs().max() < 0.05


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match=r"'halves'.*half.*interleaved"):
        mha.RotaryPositions(layout="halves")
    with pytest.raises(ValueError, match=r"base = 0.*positive"):
        mha.RotaryPositions(0.0)
    with pytest.raises(ValueError, match=r"width 5.*even"):
        layer_with(mha.RotaryPositions(), 15, 3)(noise(1, 2, 15))
    with pytest.raises(ValueError, match="RotaryPositions"):
        relayout(layer_with(None), "half")
    with pytest.raises(ValueError, match="7 rows"):
        reorder_rows(torch.zeros(7), 2, "half")
    with pytest.raises(ValueError, match="at least 1"):
        slopes(0)


def test_sinusoidal_positions_as_a_module_continue_where_they_are_told():
    x, module = noise(2, 6, 8), SinusoidalPositions()
    torch.testing.assert_close(module(x) - x, sinusoidal_positions(6, 8).double().expand(2, 6, 8))
    torch.testing.assert_close(module(x[:, 4:], 4), module(x)[:, 4:])
    assert not list(module.parameters())
