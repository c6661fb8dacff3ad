"""One short vector for the keys and values of all heads: the best one there is, and what reading from it takes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracle import LIMIT, error

from mha.functional import count_forms, fit_latent


def distance(found, w_k, w_v):
    return float(torch.cat([found.keys @ found.down - w_k, found.values @ found.down - w_v]).norm())


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 7), st.integers(0, 9))
def test_what_is_lost_is_the_tail_of_the_singular_values(rows_k, rows_v, width, seed):
    random = torch.Generator().manual_seed(seed)
    w_k, w_v = (torch.randn(n, width, generator=random) for n in (rows_k, rows_v))
    sizes = torch.linalg.svdvals(torch.cat([w_k, w_v]))
    for d_latent in range(1, width + 1):
        found = fit_latent(w_k, w_v, d_latent)
        assert (len(found.down), found.keys.shape[1], found.values.shape[1]) == (d_latent,) * 3
        assert abs(distance(found, w_k, w_v) - float(sizes[d_latent:].square().sum().sqrt())) < 1e-10
        assert error(found.down @ found.down.T, torch.eye(d_latent)) < LIMIT


def test_from_the_rank_of_the_pair_on_nothing_is_lost():
    base = torch.randn(3, 11)
    w_k, w_v = torch.randn(8, 3) @ base, torch.randn(6, 3) @ base
    assert distance(fit_latent(w_k, w_v, 3), w_k, w_v) < 1e-12
    assert distance(fit_latent(w_k, w_v, 2), w_k, w_v) > 0.1
    assert distance(fit_latent(w_k, w_v, 11), w_k, w_v) < 1e-12


def test_two_latents_of_half_the_width_lose_more_than_one():
    w_k, w_v = torch.randn(8, 8), torch.randn(8, 8)
    joint = distance(fit_latent(w_k, w_v, 4), w_k, w_v)
    nothing = torch.zeros(1, 8)
    apart = (distance(fit_latent(w_k, nothing, 2), w_k, nothing), distance(fit_latent(nothing, w_v, 2), nothing, w_v))
    assert joint < 0.95 * torch.tensor(apart).norm()


def test_float32_weights_give_float32_factors():
    found = fit_latent(torch.randn(4, 6).float(), torch.randn(4, 6).float(), 3)
    assert {part.dtype for part in found} == {torch.float32}


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 7), st.integers(1, 30), st.integers(0, 9))
def test_for_words_the_tail_of_their_own_singular_values_is_lost(rows_k, rows_v, width, count, seed):
    random = torch.Generator().manual_seed(seed)
    w_k, w_v = (torch.randn(n, width, generator=random) for n in (rows_k, rows_v))
    words = torch.randn(count, width, generator=random) * torch.logspace(0, -1, width)
    little = 1e-2 * words.norm() / width**0.5 * torch.eye(width)
    seen = torch.cat([words, little])  # what is said to be added in every direction
    sizes = torch.linalg.svdvals(seen @ torch.cat([w_k, w_v]).T)
    for d_latent in range(1, width + 1):
        found = fit_latent(w_k, w_v, d_latent, words)
        assert (len(found.down), found.keys.shape[1], found.values.shape[1]) == (d_latent,) * 3
        lost = seen @ torch.cat([found.keys @ found.down - w_k, found.values @ found.down - w_v]).T
        assert abs(float(lost.norm() - sizes[d_latent:].norm())) < 1e-10
        assert error(found.down @ found.down.T, torch.eye(d_latent)) < LIMIT


def test_no_latent_that_is_drawn_or_learned_is_closer_for_the_words():
    torch.manual_seed(0)
    w_k, w_v, words = torch.randn(6, 8), torch.randn(4, 8), torch.randn(200, 8) * torch.linspace(2, 0.1, 8)
    both = torch.cat([w_k, w_v])
    found = fit_latent(w_k, w_v, 3, words)

    def lost(down, up):
        return float((words @ (up @ down - both).T).norm())

    best = lost(found.down, torch.cat([found.keys, found.values]))
    plain = fit_latent(w_k, w_v, 3)
    assert best < 0.9 * lost(plain.down, torch.cat([plain.keys, plain.values]))
    for _ in range(20):
        down = torch.linalg.qr(torch.randn(8, 3)).Q.T
        up = torch.linalg.lstsq(words @ down.T, words @ both.T).solution.T
        assert best < lost(down, up)
        for _ in range(30):  # alternating least squares, which can only come closer
            down = torch.linalg.pinv(up) @ both
            up = torch.linalg.lstsq(words @ down.T, words @ both.T).solution.T
        assert best < 1.001 * lost(down, up)


def test_words_of_equal_size_in_all_directions_change_nothing():
    w_k, w_v = torch.randn(5, 6), torch.randn(4, 6)
    one, other = fit_latent(w_k, w_v, 2), fit_latent(w_k, w_v, 2, 7 * torch.eye(6).view(2, 3, 6))
    assert error(one.keys @ one.down, other.keys @ other.down) < LIMIT
    assert error(one.values @ one.down, other.values @ other.down) < LIMIT


def test_from_the_rank_of_the_pair_on_nothing_is_lost_for_words_that_were_never_seen():
    base, words = torch.randn(3, 11), torch.randn(2, 11)  # fewer words than channels
    w_k, w_v = torch.randn(8, 3) @ base, torch.randn(6, 3) @ base
    assert distance(fit_latent(w_k, w_v, 3, words), w_k, w_v) < 1e-10
    assert distance(fit_latent(w_k, w_v, 2, words), w_k, w_v) > 0.1


def loop(i, j, heads, d_head, d_latent, d_rotary):
    """Multiply and add, one word and one head at a time."""
    expanded = absorbed = 0
    for _head in range(heads):
        for _key in range(j):
            expanded += 2 * (2 * d_latent * d_head)  # a key and a value
        for _query in range(i):
            absorbed += 2 * d_latent * d_head + 2 * d_latent * d_head  # the query there, the read back
            for _key in range(j):
                expanded += 2 * (d_head + d_rotary) + 2 * d_head
                absorbed += 2 * (d_latent + d_rotary) + 2 * d_latent
    return expanded, absorbed


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1, 0), (2, 7, 3, 5, 4, 2), (7, 7, 2, 3, 11, 0), (1, 30, 4, 4, 16, 6)])
def test_operations_are_counted_as_a_loop_makes_them(sizes):
    assert tuple(count_forms(*sizes)) == loop(*sizes)


def test_with_the_sizes_of_deepseek_absorbing_pays_up_to_170_queries():
    for queries, pays in ((1, True), (170, True), (171, False)):
        counted = count_forms(queries, 10**6, 128, 128, 512, 64)
        assert (counted.absorbed < counted.expanded) is pays
    one = count_forms(1, 4096, 128, 128, 512, 64)
    assert one.expanded / one.absorbed == pytest.approx(117.3, abs=0.1)


# ---- bad input


@pytest.mark.parametrize("d_latent", [0, -1, 7])
def test_a_width_that_no_latent_has_is_refused(reader, d_latent):
    with pytest.raises(ValueError, match=rf"d_latent = {d_latent}: 1 to 6, the width of a token"):
        fit_latent(torch.randn(4, 6), torch.randn(4, 6), d_latent)


def test_projections_of_different_words_are_refused(reader):
    with pytest.raises(ValueError, match=r"w_k \(4, 6\) .*w_v \(4, 5\) .*must read the same tokens"):
        fit_latent(torch.randn(4, 6), torch.randn(4, 5), 2)
    for w_k, w_v in (((0, 6), (4, 6)), ((4, 6), (0, 6)), ((4, 0), (4, 0)), ((0, 0), (0, 0))):
        with pytest.raises(ValueError, match=r"w_k \(., .\) and w_v \(., .\): neither may be empty"):
            fit_latent(torch.randn(w_k), torch.randn(w_v), 1)
    for w_v in (torch.randn(4, 6).float(), torch.empty(4, 6, device="meta")):
        with pytest.raises(ValueError, match=r"must read the same tokens|on the meta device"):
            fit_latent(torch.randn(4, 6), w_v, 2)
    with pytest.raises(ValueError, match=r"w_k of shape .*holds NaN"):
        fit_latent(torch.full((4, 6), torch.inf), torch.randn(4, 6), 2)
    with pytest.raises(ValueError, match=r"w_v of shape .*holds NaN"):
        fit_latent(torch.randn(4, 6), torch.full((4, 6), torch.nan), 2)


@pytest.mark.parametrize("shape", [(0, 6), (3, 5), (6, 1), (0,), ()])
def test_words_that_say_nothing_are_refused(reader, shape):
    with pytest.raises(
        ValueError, match=r"tokens of shape \(.*\): give tokens of 6 numbers, as the matrices read them"
    ):
        fit_latent(torch.randn(4, 6), torch.randn(4, 6), 2, torch.randn(shape))
    with pytest.raises(ValueError, match=r"tokens of shape \(3, 6\): give tokens of 6 numbers, .*and not only zeros"):
        fit_latent(torch.randn(4, 6), torch.randn(4, 6), 2, torch.zeros(3, 6))
    with pytest.raises(ValueError, match=r"tokens of shape .*holds NaN"):
        fit_latent(torch.randn(4, 6), torch.randn(4, 6), 2, torch.full((3, 6), torch.nan))
    with pytest.raises(TypeError, match=r"tokens has dtype torch\.float32, but the weights have torch.float64"):
        fit_latent(torch.randn(4, 6), torch.randn(4, 6), 2, torch.randn(3, 6).float())


def test_counts_of_nothing_are_refused(reader):
    with pytest.raises(ValueError, match="j = 0: it must be at least 1"):
        count_forms(1, 0, 1, 1, 1)
    with pytest.raises(ValueError, match="d_rotary = -1: it must be at least 0"):
        count_forms(1, 1, 1, 1, 1, -1)
