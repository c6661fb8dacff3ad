"""α-entmax: the weights of the definition, their slopes, rows of minus infinity, half precision."""

import math

import pytest
import torch
from entmax import entmax_bisect
from hypothesis import given
from hypothesis import strategies as st
from oracle import LIMIT, error

from mha.functional import entmax

ALPHAS = [1.0, 1.1, 1.5, 2.0]


def row_by_hand(scores, alpha):
    """The definition on plain floats: search the threshold at which the weights of one row sum to 1."""
    seen = [s for s in scores if s > -math.inf]
    if not seen:
        return [0.0] * len(scores)
    if alpha == 1:
        powers = [math.exp(s - max(seen)) for s in scores]
        return [p / sum(powers) for p in powers]

    def weights(threshold):
        return [max(0.0, (alpha - 1) * s - threshold) ** (1 / (alpha - 1)) for s in scores]

    low, high = (alpha - 1) * max(seen) - 1, (alpha - 1) * max(seen)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(weights(middle)) > 1 else (low, middle)
    return weights(low)


# ---- the formula


@given(st.lists(st.floats(-8, 8), min_size=1, max_size=7), st.sampled_from(ALPHAS))
def test_weights_are_those_of_the_definition(scores, alpha):
    found = entmax(torch.tensor([[scores]]), alpha)[0, 0]
    assert error(found, torch.tensor(row_by_hand(scores, alpha))) < 1e-10
    assert found.sum().item() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("alpha", ALPHAS[1:])
def test_no_other_weights_are_better(alpha):
    """p·z + H_α(p) is largest: the slope is the same wherever p > 0, and not above that where p = 0."""
    z = 3 * torch.randn(40, 1, 1, 6)
    p = entmax(z, alpha)
    slope = z - (p ** (alpha - 1)) / (alpha - 1)
    best = slope.masked_fill(p == 0, -torch.inf).amax(-1, keepdim=True)
    assert ((slope - best).masked_fill(p == 0, 0).abs() < 1e-9).all()
    assert (slope <= best + 1e-9).all()


def test_two_rows_that_can_be_computed_in_the_head():
    assert error(entmax(torch.tensor([[[-2.0, 0, 0.5]]]), 2), torch.tensor([[[0, 0.25, 0.75]]])) < 1e-12
    halves = entmax(torch.tensor([[[0.0, 0, -9]]]), 1.5)
    assert error(halves, torch.tensor([[[0.5, 0.5, 0]]])) < 1e-12
    assert halves[0, 0, 2] == 0


@pytest.mark.parametrize("alpha", ALPHAS[1:])
def test_slopes_in_scores_and_alpha_are_those_of_finite_differences(alpha):
    scores = torch.randn(2, 3, 4, 5, requires_grad=True)
    each = torch.full((3,), alpha - (alpha == 2) * 1e-3, requires_grad=True)
    assert torch.autograd.gradcheck(entmax, (scores, each), eps=1e-7, atol=1e-5)


def test_a_larger_alpha_gives_fewer_weights():
    torch.manual_seed(0)
    scores = 2 * torch.randn(2000, 1, 1, 7)
    shares = [(entmax(scores, alpha) > 0).double().mean().item() for alpha in (1, 1.25, 1.5, 2)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == 1
    assert shares[2] == pytest.approx(0.38, abs=0.02)
    assert shares[3] == pytest.approx(0.25, abs=0.02)


# ---- the traps


def test_alpha_one_is_softmax_although_the_library_gives_equal_weights():
    scores = torch.randn(2, 3, 4, 5)
    assert torch.equal(entmax(scores, 1), scores.softmax(-1))
    assert torch.equal(entmax_bisect(scores, 1.0), torch.full_like(scores, 1 / 5))
    assert error(entmax(scores, 1.002), scores.softmax(-1)) < 2e-3


def test_heads_of_different_kinds_do_not_disturb_each_other():
    scores = torch.randn(2, 4, 4, 5, requires_grad=True)
    alphas = torch.tensor(ALPHAS, requires_grad=True)
    found = entmax(scores, alphas)
    for h, alpha in enumerate(ALPHAS):
        assert error(found[:, h : h + 1], entmax(scores[:, h : h + 1], alpha)) < LIMIT
    found.square().sum().backward()
    assert scores.grad.isfinite().all()
    assert alphas.grad.isfinite().all()
    assert alphas.grad[0] == 0


@pytest.mark.parametrize("alpha", ALPHAS)
def test_rows_of_minus_infinity_give_zeros_and_no_nan(alpha):
    scores = torch.randn(2, 3, 4, 5)
    scores[:, :, 0] = -torch.inf
    scores[:, :, 1, 2:] = -torch.inf
    scores, each = scores.requires_grad_(), torch.full((3,), alpha, requires_grad=True)
    weights = entmax(scores, each)
    assert weights[:, :, 0].abs().max() == weights[:, :, 1, 2:].abs().max() == 0
    assert error(weights[:, :, 1, :2], entmax(scores[:, :, 1:2, :2], alpha)[:, :, 0]) < LIMIT
    weights.square().sum().backward()
    assert scores.grad.isfinite().all()
    assert alpha == 1 or each.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_computed_in_float32(dtype):
    scores = (3 * torch.randn(2, 1, 4, 50)).to(dtype)
    found, right = entmax(scores, 1.05), entmax(scores.double(), 1.05)
    assert found.dtype == dtype
    assert error(found.double(), right) < torch.finfo(dtype).eps
    half = entmax_bisect(scores, 1.05)
    assert error(half.double(), right) > 2 * error(found.double(), right)  # the library, with the same numbers


def test_close_to_one_slopes_are_those_of_the_numbers_not_of_their_rounding():
    scores = 2 * torch.randn(200, 1, 1, 8)
    for alpha in (1.0011, 1.01, 1.1):
        slopes = []
        for dtype in (torch.float64, torch.float32):
            each = torch.tensor([alpha], dtype=dtype, requires_grad=True)
            (entmax(scores.to(dtype), each)[..., 0]).sum().backward()
            slopes.append(each.grad.double())
        assert error(slopes[1], slopes[0]) < 0.1


def test_an_alpha_is_not_rounded_before_it_is_used():
    scores = torch.randn(2, 3, 4, 5)
    torch.set_default_dtype(torch.float32)
    for alpha in (1.2, [1.2, 1.2, 1.2]):
        assert torch.equal(entmax(scores, alpha), entmax(scores, torch.tensor(1.2, dtype=torch.float64)))
