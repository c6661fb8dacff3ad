"""Mixing KV heads pair by pair, and a latent that keys and values share as equals."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracle import LIMIT, error

import mha
from mha.functional import fit_balanced_latent, fit_latent, mix_heads, principal_mixing

LAYOUTS = "half", "interleaved"


def orthogonal(*shape):
    return torch.linalg.qr(torch.randn(*shape)).Q


@pytest.mark.parametrize("layout", LAYOUTS)
@given(g=st.integers(1, 5), n=st.integers(1, 6), pairs=st.integers(1, 4), seed=st.integers(0, 9))
def test_mixed_queries_and_keys_give_the_old_scores(layout, g, n, pairs, seed):
    torch.manual_seed(seed)
    rotary, mixing = mha.RotaryPositions(layout=layout), orthogonal(pairs, g, g)
    q, k = torch.randn(2, 3, g, n, 2 * pairs)

    def scores(q, k):
        return torch.einsum("bgid,bgjd->bij", rotary.rotate(q), rotary.rotate(k))

    new = scores(mix_heads(q, mixing, layout), mix_heads(k, mixing, layout))
    assert error(new, scores(q, k)) < LIMIT
    assert error(mix_heads(rotary.rotate(k), mixing, layout), rotary.rotate(mix_heads(k, mixing, layout))) < LIMIT
    assert error(mix_heads(mix_heads(k, mixing, layout), mixing.mT, layout), k) < LIMIT


def test_the_pairs_of_the_other_layout_do_not_commute():
    rotary, mixing, k = mha.RotaryPositions(), orthogonal(2, 3, 3), torch.randn(1, 3, 8, 4)
    wrong = mix_heads(rotary.rotate(k), mixing, "interleaved") - rotary.rotate(mix_heads(k, mixing, "interleaved"))
    assert wrong.abs().max() > 0.1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_other_direction_holds_more_than_the_first(layout):
    keys = torch.randn(3, 50, 6) + 2 * torch.randn(1, 50, 6)
    mixed = mix_heads(keys, principal_mixing(keys, layout), layout)
    energy = mixed.square().sum((1, 2))
    assert bool((energy[:-1] >= energy[1:]).all())
    assert abs(energy.sum() - keys.square().sum()) < 1e-9
    for _ in range(20):
        other = mix_heads(keys, orthogonal(3, 3, 3), layout)
        assert other[0].square().sum() < energy[0]


def test_equal_heads_become_one():
    keys = torch.randn(1, 20, 4).expand(3, -1, -1)
    mixed = mix_heads(keys, principal_mixing(keys))
    assert error(mixed[0].square(), 3 * keys[0].square()) < LIMIT
    assert mixed[1:].abs().max() < 1e-7


@pytest.mark.parametrize("seen", [True, False])
def test_a_balanced_latent_does_not_notice_the_size_of_the_keys(seen):
    w_k, w_v, tokens = torch.randn(6, 9), torch.randn(4, 9), torch.randn(40, 9) if seen else None
    right = fit_balanced_latent(w_k, w_v, 5, tokens)
    right_k, right_v = right.keys @ right.down, right.values @ right.down
    for size in (1e-3, 7.0, -20.0):
        found = fit_balanced_latent(size * w_k, w_v, 5, tokens)
        assert error(found.keys @ found.down, size * right_k) < LIMIT
        assert error(found.values @ found.down, right_v) < LIMIT
    plain = fit_latent(20 * w_k, w_v, 5, tokens)
    assert error(plain.values @ plain.down, right_v) > 0.1


def test_keys_and_values_of_one_size_get_the_plain_latent():
    w_k, w_v, tokens = torch.randn(6, 9), torch.randn(4, 9), torch.randn(40, 9)
    w_k *= (tokens @ w_v.mT).norm() / (tokens @ w_k.mT).norm()
    for found, right in zip(fit_balanced_latent(w_k, w_v, 5, tokens), fit_latent(w_k, w_v, 5, tokens), strict=True):
        assert error(found, right) < LIMIT


@pytest.mark.parametrize("zero", [0, 1])
def test_beside_zeros_the_other_side_takes_all(zero):
    weights = [torch.randn(3, 8), torch.randn(3, 8)]
    weights[zero] = torch.zeros(3, 8)
    found = fit_balanced_latent(*weights, 3, torch.randn(30, 8))
    for up, weight in zip((found.keys, found.values), weights, strict=True):
        assert (up @ found.down - weight).abs().max() < LIMIT


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: mix_heads(torch.randn(2, 3, 4), torch.randn(2, 2, 2)), "not orthogonal"),
        (lambda: mix_heads(torch.randn(2, 3, 4), orthogonal(1, 2, 2)), "one matrix for each"),
        (lambda: mix_heads(torch.randn(2, 3, 5), orthogonal(2, 2, 2)), "even width"),
        (lambda: mix_heads(torch.randn(2, 3, 4), orthogonal(2, 2, 2), "other"), "layout = 'other'"),
        (lambda: principal_mixing(torch.zeros(2, 3, 4)), "all zero"),
        (lambda: principal_mixing(torch.randn(2, 0, 4)), "give some"),
        (lambda: principal_mixing(torch.full((2, 3, 4), torch.nan)), "NaN"),
        (lambda: fit_balanced_latent(torch.randn(3, 8), torch.randn(3, 8), 9), "d_latent = 9"),
    ],
)
def test_what_cannot_be_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_another_type_is_refused():
    with pytest.raises(TypeError, match=r"mixing\.to"):
        mix_heads(torch.randn(2, 3, 4), orthogonal(2, 2, 2).float())
