"""Marks that say where a word stands."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracle import LIMIT, error

from mha.layers import LearnedPositions, SinusoidalPositions, one_hot_positions, sinusoidal_positions


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
    for build, widths in ((one_hot_positions, ()), (sinusoidal_positions, (4,)), (LearnedPositions, (4,))):
        with pytest.raises(ValueError, match=f"n = {n}.*at least 1"):
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
