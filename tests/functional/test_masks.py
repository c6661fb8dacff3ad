"""Who may look at whom: what each mask means, how it is converted, and which ones are refused."""

import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from oracle import LIMIT, error
from torch import nn

import mha
from mha import reference
from mha.functional import masks

lengths = st.integers(1, 7)


def where(i, j, rule):
    return torch.tensor([[rule(a, b) for b in range(j)] for a in range(i)])


# ---- what a mask means


@given(lengths, lengths)
def test_a_causal_mask_is_aligned_to_the_last_key(i, j):
    assert torch.equal(mha.causal_mask(i, j), where(i, j, lambda a, b: b <= a + j - i))
    assert mha.causal_mask(i, j)[-1].all()


@given(lengths)
def test_a_square_causal_mask_is_that_of_the_oracle(n):
    assert mha.causal_mask(n).tolist() == reference.causal_mask(n)


@given(lengths, lengths, lengths)
def test_a_sliding_window_looks_at_itself_and_a_few_before(i, j, window):
    expected = where(i, j, lambda a, b: a + j - i - window < b <= a + j - i)
    assert torch.equal(mha.sliding_window(i, window, j), expected)
    assert torch.equal(mha.sliding_window(i, window), where(i, i, lambda a, b: a - window < b <= a))


@given(st.lists(st.integers(0, 6), min_size=1, max_size=5), st.integers(0, 3))
def test_a_padding_mask_hides_what_stands_behind_each_sequence(given_lengths, more):
    n = max(1, max(given_lengths)) + more
    mask = mha.padding_mask(torch.tensor(given_lengths), n)
    assert mask.shape == (len(given_lengths), 1, 1, n)
    assert torch.equal(mask[:, 0, 0], where(len(given_lengths), n, lambda a, b: b < given_lengths[a]))


def test_padding_mask_takes_the_longest_length_and_plain_lists():
    assert torch.equal(mha.padding_mask([2, 3]), mha.padding_mask(torch.tensor([2, 3]), 3))


@pytest.mark.parametrize("wrong", [[True, False], torch.tensor([True, False]), True, [1, True]], ids=str)
def test_truth_values_are_no_lengths(reader, wrong):
    with pytest.raises((TypeError, ValueError), match=r"lengths.*whole number"):
        mha.padding_mask(wrong)


APART = [
    ((3, 3), (4, 4)),
    ((2, 1, 1, 4), (3, 3)),
    ((2, 1, 1, 4), (3, 1, 1, 4)),
    ((3, 4), (4, 3)),
    ((2, 5), (2, 1, 1, 4)),
]


@pytest.mark.parametrize(("one", "other"), APART)
def test_masks_that_do_not_fit_together_are_refused_with_both_shapes(reader, one, other):
    for x, y in ((one, other), (other, one)):
        given = [torch.ones(s, dtype=torch.bool) for s in (x, y)]
        with pytest.raises(ValueError, match=rf"{re.escape(str(x))} on cpu and {re.escape(str(y))} on cpu cannot be"):
            masks.combine(None, *given)
    with pytest.raises(ValueError, match=r"on cpu and .* on meta cannot be combined"):
        masks.combine(given[0], given[0].to("meta"))


def test_padding_mask_where_batch_equals_queries():
    """A (batch, key) mask would be taken for (query, key) here, without a word: sequence 0 is shorter than query 0."""
    x, lengths = torch.randn(5, 1, 5, 4), [1, 2, 3, 4, 5]
    read = mha.attend(x, x, x, mha.padding_mask(lengths))
    for b, n in enumerate(lengths):
        alone = x[b : b + 1, :, :n]
        assert error(read[b : b + 1], mha.attend(x[b : b + 1], alone, alone)) < LIMIT
    as_query_key = mha.padding_mask(lengths)[:, 0, 0]
    assert error(mha.attend(x, x, x, as_query_key), read) > 0.1


def test_masks_are_made_where_they_are_wanted():
    assert mha.causal_mask(3, device="meta").device.type == "meta"
    assert mha.sliding_window(3, 2, device="meta").device.type == "meta"
    assert mha.padding_mask(torch.ones(2, dtype=torch.int32, device="cpu")).device.type == "cpu"


# ---- combining and hiding


def test_masks_combine_to_what_all_of_them_allow():
    causal, padding = mha.causal_mask(4), mha.padding_mask([2, 4])
    both = masks.combine(None, causal, None, padding)
    assert torch.equal(both[:, 0], torch.stack([causal & padding[b, 0] for b in range(2)]))
    assert masks.combine() is masks.combine(None) is None
    assert torch.equal(masks.combine(causal), causal)


@given(lengths, lengths, st.integers(0, 999))
def test_hidden_scores_are_minus_infinity_except_in_empty_rows(i, j, seed):
    random = torch.Generator().manual_seed(seed)
    scores, mask = torch.randn(i, j, generator=random), torch.rand(i, j, generator=random) < 0.3
    hidden = masks.hide(scores, mask)
    for a in range(i):
        assert torch.equal(hidden[a].isinf(), ~mask[a] if mask[a].any() else torch.zeros(j, dtype=torch.bool))
        assert torch.equal(hidden[a][mask[a]], scores[a][mask[a]])


# ---- converters


def bits(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(3)) < 0.6


def test_true_means_hide_is_turned_round():
    mask = bits(5, 7)
    assert torch.equal(masks.from_hidden(mask), ~mask)


def test_numbers_added_to_scores_become_a_mask_and_back():
    mask = bits(5, 7)
    assert torch.equal(masks.from_additive(masks.to_additive(mask)), mask)
    assert torch.equal(masks.from_additive(torch.where(mask, 0.0, -1e9)), mask)
    assert torch.equal(masks.from_additive(torch.where(mask, 0, -10000).to(torch.float16)), mask)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        assert masks.to_additive(mask, dtype).dtype == dtype
        assert torch.equal(masks.to_additive(mask, dtype) == 0, mask)
    assert torch.equal(masks.from_additive(nn.Transformer.generate_square_subsequent_mask(4)), mha.causal_mask(4))


@pytest.mark.parametrize("bad", [0.5, -1.0, 1.0, -999.0, float("inf"), float("nan")])
def test_numbers_that_also_change_scores_are_no_mask(bad):
    message = "holds NaN" if bad != bad else r"mask\.bool\(\)" if bad == 1 else "changes scores too"
    with pytest.raises(ValueError, match=message):
        masks.from_additive(torch.tensor([[0.0, bad]]))


def test_a_boolean_mask_is_not_taken_for_numbers_to_add(reader):
    with pytest.raises(TypeError, match=r"torch.bool, so use it as it is.*from_hidden"):
        masks.from_additive(torch.tensor([[False, False]]))


def test_converted_masks_have_the_axes_that_layers_want():
    b, i, j = 3, 5, 7
    assert torch.equal(masks.from_key_padding(bits(b, j))[:, 0, 0], bits(b, j))
    assert torch.equal(masks.from_batch_first(bits(b, i, j))[:, 0], bits(b, i, j))
    assert torch.equal(masks.from_seq_first(bits(i, j, b))[:, 0], bits(i, j, b).permute(2, 0, 1))
    q, k = torch.randn(b, 2, i, 4), torch.randn(b, 2, j, 4)
    for mask in (masks.from_key_padding(bits(b, j)), masks.from_batch_first(bits(b, i, j))):
        assert torch.equal(mha.attention_weights(q, k, mask) > 0, mask.expand(b, 2, i, j))


def test_a_converted_mask_means_what_it_meant_to_torch():
    theirs = nn.MultiheadAttention(6, 2, batch_first=True)
    x = torch.randn(3, 5, 6)
    hidden, padded = torch.ones(5, 5, dtype=torch.bool).triu(1), torch.arange(5) >= torch.tensor([[2], [5], [3]])
    right, weights = theirs(x, x, x, attn_mask=hidden, key_padding_mask=padded, average_attn_weights=False)
    see = masks.combine(masks.from_hidden(hidden), masks.from_key_padding(masks.from_hidden(padded)))
    assert torch.equal(weights > 0, see.expand(3, 2, 5, 5))
    q, k, v = (mha.split_heads(t, 2) for t in F.linear(x, theirs.in_proj_weight, theirs.in_proj_bias).chunk(3, -1))
    assert error(theirs.out_proj(mha.merge_heads(mha.attend(q, k, v, see))), right) < LIMIT


# ---- bad masks

BATCH, HEADS, QUERIES, KEYS = 3, 2, 5, 7
META = torch.ones(QUERIES, KEYS, dtype=torch.bool, device="meta")
BAD = {
    "numbers": (torch.zeros(QUERIES, KEYS), TypeError, r"float.*torch\.bool.*'may look'.*from_additive"),
    "whole numbers": (torch.ones(QUERIES, KEYS).long(), TypeError, r"int64.*torch\.bool.*mask\.bool\(\)"),
    "one axis": (bits(KEYS), ValueError, r"1 axes \(7,\).*\(query, key\) or \(batch, head, query, key\)"),
    "three axes": (bits(BATCH, QUERIES, KEYS), ValueError, r"3 axes \(3, 5, 7\).*from_batch_first"),
    "five axes": (bits(1, BATCH, HEADS, QUERIES, KEYS), ValueError, r"5 axes \(1, 3, 2, 5, 7\)"),
    "a mask of (batch, key)": (bits(BATCH, KEYS), ValueError, r"\(3, 7\) does not fit.*\(5, 7\)"),
    "a mask of (key, query)": (bits(KEYS, QUERIES), ValueError, r"\(7, 5\) does not fit.*\(5, 7\)"),
    "one row for all": (bits(1, KEYS), ValueError, r"\(1, 7\) does not fit.*\(5, 7\)"),
    "one column for all": (bits(QUERIES, 1), ValueError, r"\(5, 1\) does not fit.*\(5, 7\)"),
    "other heads": (bits(BATCH, HEADS + 1, QUERIES, KEYS), ValueError, r"\(3, 3, 5, 7\) does not fit.*\(3, 2, 5, 7\)"),
    "another batch": (bits(BATCH - 1, 1, QUERIES, KEYS), ValueError, r"\(2, 1, 5, 7\) does not fit.*\(3, 2, 5, 7\)"),
    "another device": (META, ValueError, r"on meta.*on cpu.*mask\.to\('cpu'\)"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("explicit", [False, True])
def test_a_mask_that_does_not_say_plainly_who_may_look_is_refused(reader, name, explicit):
    mask, kind, message = BAD[name]
    q, k = torch.randn(BATCH, HEADS, QUERIES, 4), torch.randn(BATCH, HEADS, KEYS, 4)
    with pytest.raises(kind, match=message):
        mha.attend(q, k, k, mask, explicit=explicit)
    with pytest.raises(kind, match=message):
        mha.attention_weights(q, k, mask)


def test_something_that_is_no_tensor_is_refused_as_a_mask(reader):
    x = torch.randn(1, 1, 2, 4)
    for mask in ([[True, False], [True, True]], np.ones((2, 2), dtype=bool), "causal", True):
        with pytest.raises(TypeError, match=rf"mask is {type(mask).__name__}.*torch\.as_tensor"):
            mha.attend(x, x, x, mask)


@pytest.mark.parametrize("bad", [0, -1])
def test_lengths_below_one_are_refused(reader, bad):
    for function, arguments, name in (
        (mha.causal_mask, (bad,), "i"),
        (mha.causal_mask, (2, bad), "j"),
        (mha.sliding_window, (2, bad), "window"),
        (mha.sliding_window, (bad, 2), "i"),
        (mha.padding_mask, ([0], bad), "n"),
    ):
        with pytest.raises(ValueError, match=rf"({name}) = {bad}|between 0 and n = {bad}"):
            function(*arguments)


@pytest.mark.parametrize("bad", [[-1, 2], [2, 5]])
def test_padding_mask_refuses_lengths_outside_the_sequence(reader, bad):
    with pytest.raises(ValueError, match=rf"between 0 and n = 4.*\[{bad[0]}, {bad[1]}\]"):
        mha.padding_mask(bad, 4)


@pytest.mark.parametrize("bad", [[1.5, 2.0], [True, False], [[1, 2]], 3, []], ids=str)
def test_padding_mask_refuses_what_are_no_lengths(reader, bad):
    with pytest.raises((TypeError, ValueError), match=r"lengths (= .*it must be a whole number|must be whole numbers)"):
        mha.padding_mask(bad)


def test_padding_mask_of_empty_sequences_only_needs_a_length(reader):
    with pytest.raises(ValueError, match="n = 0: it must be at least 1"):
        mha.padding_mask([0, 0])
    assert not mha.padding_mask([0, 0], 3).any()


def test_a_length_of_nothing_is_not_the_longest_one(reader):
    for lengths in ([0, 0], [1, 2]):
        with pytest.raises(ValueError, match="n = 0: it must be at least 1"):
            mha.padding_mask(lengths, n=0)
