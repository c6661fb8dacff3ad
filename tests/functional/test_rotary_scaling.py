"""Rates for long contexts: those of transformers, what each rule leaves alone, and what is refused."""

import math
from importlib import import_module

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracle import LIMIT, error

import mha
from mha.functional import (
    larger_base,
    llama3_rates,
    longrope_attention_factor,
    rotary_rates,
    yarn_attention_factor,
    yarn_rates,
)

IN_FLOAT32 = 3e-7  # their rates are computed there


def theirs(kind, width, **how):
    """Rates and attention factor of a model with heads so wide, from the rule that transformers has for it."""
    pytest.importorskip("transformers")
    rules = import_module("transformers.modeling_rope_utils").ROPE_INIT_FUNCTIONS
    rope = {"rope_type": kind, "rope_theta": 10000.0, **how}
    longest = how.get("original_max_position_embeddings", 16) * int(how.get("factor", 1))
    config = import_module("transformers").LlamaConfig(
        hidden_size=4 * width, num_attention_heads=4, rope_parameters=rope, max_position_embeddings=longest
    )
    return rules[kind](config, torch.device("cpu"))


# ---- those of transformers


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"beta_fast": 2.0, "beta_slow": 0.5},
        {"truncate": False},
        {"rope_theta": 150000.0, "truncate": False},
        {"mscale": 1.0, "mscale_all_dim": 1.0},
        {"mscale": 0.7, "mscale_all_dim": 0.3},
    ],
    ids=["plain", "turns", "not rounded", "gpt-oss", "mscale", "two scales"],
)
@pytest.mark.parametrize(("width", "trained", "factor"), [(8, 16, 4.0), (64, 4096, 32.0), (128, 512, 2.5)])
def test_yarn_is_that_of_transformers(width, trained, factor, how):
    rates, scaling = theirs("yarn", width, factor=factor, original_max_position_embeddings=trained, **how)
    ours = {"fast": how.get("beta_fast", 32.0), "slow": how.get("beta_slow", 1.0)}
    found = yarn_rates(
        width, factor, trained, how.get("rope_theta", 10000.0), rounded=how.get("truncate", True), **ours
    )
    assert error(found, rates.double()) < IN_FLOAT32
    scales = {name: how[name] for name in ("mscale", "mscale_all_dim") if name in how}
    assert yarn_attention_factor(factor, **scales) == pytest.approx(scaling)


@pytest.mark.parametrize(("width", "trained", "factor"), [(8, 16, 4.0), (128, 8192, 8.0)])
def test_llama3_is_that_of_transformers(width, trained, factor):
    how = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": trained}
    rates, scaling = theirs("llama3", width, factor=factor, **how)
    assert error(llama3_rates(width, factor, trained, 10000.0), rates.double()) < IN_FLOAT32
    assert scaling == 1


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_a_share_of_the_pairs_is_proportional_in_transformers(share):
    rates, scaling = theirs("proportional", 16, partial_rotary_factor=share)
    assert error(rotary_rates(16, share=share), rates.double()) < IN_FLOAT32
    assert scaling == 1


def test_slower_by_one_factor_is_linear_in_transformers():
    rates, scaling = theirs("linear", 16, factor=4.0)
    assert error(rotary_rates(16) / 4, rates.double()) < IN_FLOAT32
    assert scaling == 1


def test_a_larger_base_is_the_dynamic_rule_of_transformers_at_a_fixed_length():
    """Their factor counts from a base that grows with the length: asked at 64 of 16 with factor 1 it is ours of 4."""
    pytest.importorskip("transformers")
    rules = import_module("transformers.modeling_rope_utils").ROPE_INIT_FUNCTIONS
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 1.0}
    config = import_module("transformers").LlamaConfig(
        hidden_size=32, num_attention_heads=4, max_position_embeddings=16, rope_parameters=rope
    )
    rates, _ = rules["dynamic"](config, torch.device("cpu"), seq_len=64)
    assert error(rotary_rates(8, larger_base(8, 4.0)), rates.double()) < IN_FLOAT32


def test_longrope_is_that_of_transformers():
    divisors = [1.0, 1.5, 3.0, 6.0]
    how = {"short_factor": [1.0] * 4, "long_factor": divisors, "factor": 32.0, "original_max_position_embeddings": 4096}
    rates, scaling = theirs("longrope", 8, **how)
    assert error(rotary_rates(8), rates.double()) < IN_FLOAT32
    assert longrope_attention_factor(32.0, 4096) == pytest.approx(scaling)


# ---- what each rule leaves alone


@given(st.integers(2, 64).map(lambda n: 2 * n), st.floats(1, 64), st.integers(8, 10_000))
def test_every_rule_slows_down_by_at_most_the_factor_and_never_speeds_up(width, factor, trained):
    plain = rotary_rates(width)
    for rates in (
        yarn_rates(width, factor, trained),
        llama3_rates(width, factor, trained, 10000.0),
        rotary_rates(width, larger_base(width, factor)),
    ):
        slower = plain / rates
        assert slower.min() > 1 - 1e-9
        assert slower.max() < factor * (1 + 1e-9)


@given(st.integers(1, 64).map(lambda n: 2 * n), st.integers(8, 10_000))
def test_a_factor_of_1_changes_nothing(width, trained):
    plain = rotary_rates(width)
    assert error(yarn_rates(width, 1.0, trained), plain) < LIMIT
    assert error(llama3_rates(width, 1.0, trained, 10000.0), plain) < LIMIT
    assert yarn_attention_factor(1.0) == longrope_attention_factor(1.0, trained) == 1


def test_the_plain_rates_are_those_that_rotary_positions_rotate_by():
    x = torch.tensor([1.0, 0.0]).repeat_interleave(4).expand(1, 1, 2, 8)
    rotated = mha.RotaryPositions().rotate(x)[0, 0, 1]
    assert error(torch.atan2(rotated[4:], rotated[:4]), rotary_rates(8)) < LIMIT


def test_a_larger_base_slows_the_last_pair_by_the_factor_and_the_first_not_at_all():
    plain, rates = rotary_rates(16), rotary_rates(16, larger_base(16, 4.0))
    assert rates[0] == plain[0]
    assert plain[-1] / rates[-1] == pytest.approx(4)


def test_the_ramp_of_yarn_is_linear_in_the_number_of_the_pair():
    """Here it runs from pair 1 to pair 6, so pair 3 is two fifths of the way; by its rate it would be elsewhere."""
    width, trained = 16, 100
    turns = trained * rotary_rates(width) / (2 * math.pi)
    rates = yarn_rates(width, 4.0, trained, fast=turns[1].item(), slow=turns[6].item(), rounded=False)
    kept = (rates / rotary_rates(width) - 1 / 4) / (3 / 4)
    assert error(kept, torch.tensor([1, 1, 0.8, 0.6, 0.4, 0.2, 0, 0])) < 1e-9


def test_rates_have_the_type_that_new_tensors_have():
    before = torch.get_default_dtype()
    try:
        for kind in (torch.float32, torch.float64):
            torch.set_default_dtype(kind)
            made = rotary_rates(8), yarn_rates(8, 4.0, 16), llama3_rates(8, 4.0, 16)
            assert {one.dtype for one in made} == {kind}
    finally:
        torch.set_default_dtype(before)


# ---- what is refused


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rotary_rates(7), "width = 7: rotary positions need pairs"),
        (lambda: rotary_rates(8, 1.0), "base = 1.0: it must be above 1"),
        (lambda: rotary_rates(8, share=0.0), "share = 0.0: it must be above 0"),
        (lambda: rotary_rates(8, share=1.5), "share = 1.5"),
        (lambda: larger_base(2, 4.0), "width = 2: with one pair of channels"),
        (lambda: larger_base(8, 0.5), "factor = 0.5: it says how many times longer"),
        (lambda: yarn_rates(8, 0.5, 16), "factor = 0.5"),
        (lambda: yarn_rates(9, 4.0, 16), "width = 9"),
        (lambda: yarn_rates(8, 4.0, 0), "trained = 0"),
        (lambda: yarn_rates(8, 4.0, 16, fast=1.0, slow=2.0), "slow = 2.0, fast = 1.0"),
        (lambda: yarn_attention_factor(0.9), "factor = 0.9"),
        (lambda: yarn_attention_factor(4.0, -1.0), "mscale = -1.0"),
        (lambda: llama3_rates(8, 4.0, 16, low=4.0, high=4.0), "low = 4.0, high = 4.0"),
        (lambda: longrope_attention_factor(4.0, 1), "trained = 1"),
    ],
)
def test_what_makes_no_rates_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
