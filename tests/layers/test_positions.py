"""Marks that say where a word stands: added at the input, turned or subtracted inside a layer."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracle import LIMIT, error

import mha
from mha.analysis import leaks
from mha.functional import attention
from mha.interop.rotary import relayout, reorder_rows
from mha.layers import LearnedPositions, SinusoidalPositions, one_hot_positions, sinusoidal_positions, slopes


@given(st.integers(1, 40), st.integers(1, 6), st.sampled_from([10000.0, 100.0, 2.5]))
def test_sinusoidal_positions_are_those_of_the_paper(n, pairs, base):
    found = sinusoidal_positions(n, 2 * pairs, base=base)
    right = torch.empty(n, 2 * pairs)
    for position in range(n):
        for c in range(pairs):
            angle = position / base ** (2 * c / (2 * pairs))
            right[position, 2 * c], right[position, 2 * c + 1] = math.sin(angle), math.cos(angle)
    assert error(found, right) < LIMIT


def test_sinusoidal_positions_turn_by_the_same_angle_from_each_position_to_the_next():
    code = sinusoidal_positions(50, 8)
    rates = 10000.0 ** (-torch.arange(0, 8, 2) / 8)
    sin, cos = code[:, 0::2], code[:, 1::2]
    assert error(sin[:-3] * (3 * rates).cos() + cos[:-3] * (3 * rates).sin(), sin[3:]) < 1e-11


def test_sinusoidal_positions_are_exact_far_out_and_come_in_the_default_type():
    far = sinusoidal_positions(100_001, 2)[-1, 0]
    assert abs(far - math.sin(100_000)) < 1e-12
    torch.set_default_dtype(torch.float32)
    found = sinusoidal_positions(100_001, 2)
    assert found.dtype == torch.float32
    assert abs(found[-1, 0] - math.sin(100_000)) < 1e-7


@pytest.mark.parametrize("start", [1_000_000, 2**24 + 1])  # the second one is no number of float32
@pytest.mark.parametrize("default", [torch.float32, torch.float64], ids=str)
def test_every_channel_is_exact_far_out_whatever_the_default_type_is(default, start):
    """Also the slow waves: their exponents are fractions, which float32 rounds."""
    torch.set_default_dtype(default)
    d = 12
    found = SinusoidalPositions()(torch.zeros(1, 1, d, dtype=torch.float64), start)[0, 0]
    ones = torch.tensor([1.0, 0.0] * (d // 2), dtype=torch.float64).view(1, 1, 1, d)
    turned = mha.RotaryPositions(layout="interleaved").rotate(ones, start)[0, 0, 0]
    for c in range(d // 2):
        angle = start / 10000.0 ** (2 * c / d)
        assert abs(found[2 * c] - math.sin(angle)) < 1e-7
        assert abs(found[2 * c + 1] - math.cos(angle)) < 1e-7
        assert abs(turned[2 * c] - math.cos(angle)) < 1e-7
        assert abs(turned[2 * c + 1] - math.sin(angle)) < 1e-7
    table = sinusoidal_positions(30_000, d)
    assert table.dtype == default
    right = torch.tensor([[f(29_999 / 10000.0 ** (2 * c / d)) for f in (math.sin, math.cos)] for c in range(d // 2)])
    assert error(table[-1], right.flatten()) < 1e-7


def test_the_module_adds_the_same_waves_from_any_start():
    x = torch.randn(2, 5, 6)
    found = SinusoidalPositions()(x, start=3)
    assert error(found, x + sinusoidal_positions(8, 6)[3:]) < LIMIT
    assert SinusoidalPositions()(x.float()).dtype == torch.float32
    assert not list(SinusoidalPositions().parameters())


def test_one_hot_positions_all_differ_in_one_channel():
    assert torch.equal(one_hot_positions(4), torch.eye(4))


def test_learned_positions_add_a_row_of_their_table_and_learn_it():
    positions, x = LearnedPositions(7, 4), torch.randn(2, 3, 4)
    assert torch.equal(positions(x), x + positions.table[:3])
    assert torch.equal(positions(x, start=4), x + positions.table[4:7])
    positions(x, start=4).sum().backward()
    assert positions.table.grad[:, 0].tolist() == [0, 0, 0, 0, 2, 2, 2]
    assert 0.005 < LearnedPositions(100, 10).table.std() < 0.05


@pytest.mark.parametrize("n", [0, -1])
def test_lengths_below_one_are_refused(reader, n):
    for build, name, *widths in (
        (one_hot_positions, "n"),
        (sinusoidal_positions, "n", 4),
        (LearnedPositions, "longest", 4),
    ):
        with pytest.raises(ValueError, match=f"{name} = {n}: it must be at least 1"):
            build(n, *widths)


@pytest.mark.parametrize("width", [0, -2])
def test_widths_below_one_are_refused(reader, width):
    for build in (sinusoidal_positions, LearnedPositions):
        with pytest.raises(ValueError, match=f"d_model = {width}"):
            build(3, width)


def test_odd_widths_and_words_beyond_the_table_are_refused(reader):
    with pytest.raises(ValueError, match=r"d_model = 5: sines and cosines come in pairs"):
        sinusoidal_positions(3, 5)
    with pytest.raises(ValueError, match="position 7 was asked for, but only 0 to 6 were learned"):
        LearnedPositions(7, 4)(torch.zeros(1, 2, 4), start=6)
    with pytest.raises(ValueError, match="position -1 was asked for"):
        LearnedPositions(7, 4)(torch.zeros(1, 2, 4), start=-1)


def test_words_of_another_width_are_refused_not_broadcast(reader):
    with pytest.raises(ValueError, match=r"\(1, 2, 1\).*width 4"):
        LearnedPositions(7, 4)(torch.zeros(1, 2, 1))


LAYOUTS = ("half", "interleaved")


def layer_with(positions, d_model=24, heads=3, **sizes):
    torch.manual_seed(1)
    return mha.MultiHeadAttention(d_model, heads, positions=positions, **sizes).double().eval()


def noise(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_pair_is_turned_like_a_complex_number(layout):
    x, start, d = noise(2, 3, 5, 8), 4, 8
    turned = mha.RotaryPositions(100.0, layout).rotate(x, start)
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
    here = rotary.rotate(q) @ rotary.rotate(k).mT
    far = rotary.rotate(q, 1000) @ rotary.rotate(k, 1000).mT
    torch.testing.assert_close(here, far, rtol=0, atol=1e-11)
    shifted = rotary.rotate(q, 3) @ rotary.rotate(k).mT
    assert (here - shifted).abs().max() > 0.1


def test_turning_keeps_lengths_and_position_zero():
    x = noise(2, 3, 7, 10)
    turned = mha.RotaryPositions().rotate(x)
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


@pytest.mark.parametrize("steep", [None, torch.tensor([0.5, 0.25, 1.0, 0.1])], ids=["own", "given"])
@pytest.mark.parametrize("chosen", [[2, 0], [1, 3], [3], [0, 1, 2, 3]], ids=str)
def test_chosen_heads_keep_their_slopes(steep, chosen):
    bias, scores = mha.LinearBias(steep), noise(2, 4, 3, 5)
    assert error(bias.take_heads(chosen, 4).bias(scores[:, chosen]), bias.bias(scores)[:, chosen]) < LIMIT
    layer, x = mha.MultiHeadAttention(8, 4, positions=bias), noise(2, 5, 8)
    keep = torch.tensor([float(h in chosen) for h in range(4)])[:, None, None]
    with mha.edit(layer, heads=lambda z: z * keep):
        right = layer(x, is_causal=True)
    smaller = layer.take_heads(chosen)
    assert error(smaller(x, is_causal=True), right) < LIMIT
    exact = smaller.positions.steep.clone()
    assert torch.equal(smaller.bfloat16().positions.steep, exact)  # a rounded slope is another one far out


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
    exact = mha.RotaryPositions().rotate(x, 5000)
    half = mha.RotaryPositions().rotate(x.bfloat16(), 5000)
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
    with pytest.raises(ValueError, match=r"rows \(7,\)"):
        reorder_rows(torch.zeros(7), 2, "half")
    with pytest.raises(ValueError, match="at least 1"):
        slopes(0)


def test_sinusoidal_positions_as_a_module_continue_where_they_are_told():
    x, module = noise(2, 6, 8), SinusoidalPositions()
    torch.testing.assert_close(module(x) - x, sinusoidal_positions(6, 8).double().expand(2, 6, 8))
    torch.testing.assert_close(module(x[:, 4:], 4), module(x)[:, 4:])
    assert not list(module.parameters())


def test_positions_that_are_none_are_refused(reader):
    x, heads = torch.randn(1, 3, 4), torch.randn(1, 2, 3, 4)
    for start in (-1, -2):
        with pytest.raises(ValueError, match=f"start = {start}: it must be at least 0"):
            SinusoidalPositions()(x, start=start)
        with pytest.raises(ValueError, match=f"start = {start}: it must be at least 0"):
            mha.RotaryPositions().rotate(heads, start)
    for start in (1.5, "1", None):
        with pytest.raises(TypeError, match=f"start = {start!r}: it must be a whole number"):
            LearnedPositions(7, 4)(x, start=start)
    for base, told in ((0.0, "positive"), (-1.0, "positive"), (math.nan, "finite"), (math.inf, "finite")):
        with pytest.raises(ValueError, match=rf"base = {base}: it must be {told}"):
            mha.RotaryPositions(base)
        with pytest.raises(ValueError, match=rf"base = {base}: it must be {told}"):
            sinusoidal_positions(3, 4, base=base)
    with pytest.raises(TypeError, match=r"positions = the module Identity: it must be a RelativePositions"):
        mha.MultiHeadAttention(8, 2, positions=torch.nn.Identity())


def test_slopes_belong_to_each_head(reader):
    layer = mha.MultiHeadAttention(8, 2, positions=mha.LinearBias(torch.tensor([0.5])))
    with pytest.raises(ValueError, match="1 slopes were given for 2 heads"):
        layer(torch.randn(1, 3, 8))


def test_angles_are_exact_far_out():
    x, start = torch.randn(1, 1, 1, 4), 1_000_000
    found = mha.RotaryPositions().rotate(x, start)
    for c in range(2):
        angle = start / 10000.0 ** (2 * c / 4)
        cos, sin = math.cos(angle), math.sin(angle)
        a, b = x[0, 0, 0, c], x[0, 0, 0, c + 2]
        assert abs(found[0, 0, 0, c] - (a * cos - b * sin)) < 1e-9
        assert abs(found[0, 0, 0, c + 2] - (b * cos + a * sin)) < 1e-9
