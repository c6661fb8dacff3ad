"""The functions against the plain-Python oracle and against torch, in value and in gradient."""

import math
import re

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from oracle import LIMIT, by_hand, error, slope_by_hand

import mha
from mha import reference
from mha.functional import attention

HALVES = (torch.float32, torch.bfloat16, torch.float16)


def draw_mask(draw, b, h, i, j):
    """No mask, or one of a shape that is allowed; often with rows in which there is nothing to look at."""
    shape = draw(st.sampled_from([None, (i, j), (b, h, i, j), (b, 1, 1, j), (1, h, i, j), (b, 1, i, 1), (1, 1, 1, 1)]))
    if shape is None:
        return None
    random = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    mask = torch.rand(shape, generator=random) < draw(st.sampled_from([0.0, 0.2, 0.6, 1.0]))
    return mask & (torch.rand(*shape[:-1], 1, generator=random) < 0.8)


@st.composite
def problems(draw, square=False):
    """Queries, keys, values of any small shape, and a mask that fits them."""
    b, h, i, j, d, c = (draw(st.integers(1, most)) for most in (3, 3, 6, 6, 4, 4))
    j = i if square else j
    random = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    q, k, v = (torch.randn(b, h, *s, generator=random, dtype=torch.float64) * 3**0.5 for s in ((i, d), (j, d), (j, c)))
    return q, k, v, draw_mask(draw, b, h, i, j)


def gradients(read, *tensors):
    """The gradients of a fixed weighted sum of what was read."""
    tensors = [t.detach().requires_grad_() for t in tensors]
    output = read(*tensors)
    weight = torch.linspace(-1, 2, output.numel()).view_as(output)
    return torch.autograd.grad((output * weight).sum(), tensors)


# ---- against the oracle


@given(problems(), st.sampled_from([None, 0.3, 1.0]), st.booleans())
def test_reads_are_those_of_the_oracle(problem, scale, explicit):
    q, k, v, mask = problem
    right = by_hand(reference.attention, q, k, v, mask=mask, scale=scale)
    assert error(mha.attend(q, k, v, mask, scale=scale, explicit=explicit), right) < LIMIT


@given(problems(), st.sampled_from([None, 0.3]))
def test_weights_are_those_of_the_oracle(problem, scale):
    q, k, _, mask = problem
    right = by_hand(reference.attention_weights, q, k, mask=mask, scale=scale)
    assert error(mha.attention_weights(q, k, mask, scale=scale), right) < LIMIT


@given(problems(square=True), st.booleans())
def test_is_causal_is_the_causal_mask_of_the_oracle_and_joins_a_given_mask(problem, explicit):
    q, k, v, mask = problem
    i = q.shape[-2]
    full = torch.tensor(reference.causal_mask(i)).expand(*q.shape[:2], i, i)
    full = full if mask is None else full & mask
    right = by_hand(reference.attention, q, k, v, mask=full)
    assert error(mha.attend(q, k, v, mask, is_causal=True, explicit=explicit), right) < LIMIT
    right = by_hand(reference.attention_weights, q, k, mask=full)
    assert error(mha.attention_weights(q, k, mask, is_causal=True), right) < LIMIT


@given(problems(), st.booleans())
def test_gradients_are_those_of_the_oracle(problem, explicit):
    q, k, v, mask = problem
    full = torch.ones(1, 1, dtype=torch.bool) if mask is None else mask
    full = full.expand(*q.shape[:-1], k.shape[-2])[0, 0]
    tensors = [t[0, 0] for t in (q, k, v)]
    found = gradients(lambda q, k, v: mha.attend(q, k, v, full, explicit=explicit), *tensors)
    weight = torch.linspace(-1, 2, q.shape[-2] * v.shape[-1]).view(-1, v.shape[-1])
    for seed in range(2):
        random = torch.Generator().manual_seed(seed)
        directions = [torch.randn(t.shape, generator=random) for t in tensors]
        right = slope_by_hand(lambda *t: reference.attention(*t, mask=full.tolist()), tensors, directions, weight)
        terms = torch.cat([(g * d).flatten() for g, d in zip(found, directions, strict=True)])
        assert abs(terms.sum() - right) <= LIMIT * max(terms.abs().sum(), 1e-300)


def test_causal_attention_with_fewer_queries_than_keys_is_the_end_of_the_full_one():
    q, k, v = (torch.randn(2, 3, 7, d) for d in (5, 5, 4))
    whole = mha.attend(q, k, v, is_causal=True)
    for i in range(1, 8):
        for explicit in (False, True):
            last = mha.attend(q[..., -i:, :], k, v, is_causal=True, explicit=explicit)
            assert error(last, whole[..., -i:, :]) < LIMIT


def test_causal_attention_with_more_queries_than_keys_leaves_the_first_queries_nothing():
    q, k, v = torch.randn(1, 1, 5, 2), torch.randn(1, 1, 3, 2), torch.randn(1, 1, 3, 2)
    for explicit in (False, True):
        read = mha.attend(q, k, v, is_causal=True, explicit=explicit)
        assert read[0, 0, :2].abs().max() == 0
        assert error(read[..., 2:, :], mha.attend(q[..., 2:, :], k, v, is_causal=True)) < LIMIT


# ---- against torch


@given(problems())
def test_the_fused_and_the_written_out_formula_agree_in_value_and_gradient(problem):
    q, k, v, mask = problem
    assert error(mha.attend(q, k, v, mask), mha.attend(q, k, v, mask, explicit=True)) < LIMIT
    fused = gradients(lambda *t: mha.attend(*t, mask), q, k, v)
    assert error(fused, gradients(lambda *t: mha.attend(*t, mask, explicit=True), q, k, v)) < LIMIT


@given(problems(square=True), st.booleans())
def test_torch_agrees_in_value_and_gradient(problem, is_causal):
    q, k, v, _ = problem

    def theirs(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)

    def ours(q, k, v):
        return mha.attend(q, k, v, is_causal=is_causal, explicit=True)

    assert error(ours(q, k, v), theirs(q, k, v)) < LIMIT
    assert error(gradients(ours, q, k, v), gradients(theirs, q, k, v)) < LIMIT


def test_nothing_is_stored_when_nobody_edits(monkeypatch):
    monkeypatch.setattr(attention, "attention_weights", None)  # the fused path must not need it
    x = torch.randn(2, 3, 5, 4)
    assert mha.attend(x, x, x, is_causal=True).shape == x.shape


def test_leading_axes_may_be_any_or_none():
    x = torch.randn(2, 3, 5, 7, 4)
    assert mha.attend(x, x, x).shape == x.shape
    for flat in (x[0, 0], x[0, 0, 0]):
        right = by_hand(reference.attention, flat[None], flat[None], flat[None])[0]
        assert error(mha.attend(flat, flat, flat), right) < LIMIT
        assert error(mha.attend(flat, flat, flat, explicit=True), right) < LIMIT


# ---- rows with nothing to look at


@pytest.mark.parametrize("dtype", [*HALVES, torch.float64], ids=str)
@pytest.mark.parametrize("explicit", [False, True])
@given(problem=problems())
def test_a_row_with_nothing_to_look_at_reads_zeros_forward_and_backward(dtype, explicit, problem):
    *tensors, mask = problem
    q, k, v = (t.to(dtype).requires_grad_() for t in tensors)
    mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool) if mask is None else mask
    mask = mask & (torch.arange(q.shape[-2]) > 0)[:, None]  # the first query sees nothing
    empty = ~mask.any(-1, keepdim=True).expand(*q.shape[:-1], 1)
    read = mha.attend(q, k, v, mask, explicit=explicit)
    assert read.masked_select(empty).abs().max() == 0
    assert mha.attention_weights(q, k, mask).masked_select(empty).abs().max() == 0
    read.float().square().sum().backward()
    assert all(t.grad.isfinite().all() for t in (q, k, v))
    assert q.grad.masked_select(empty).abs().max() == 0


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@given(problem=problems())
def test_fewer_bits_stay_close_to_float64(dtype, problem):
    q, k, v, mask = problem
    right = mha.attend(q, k, v, mask)
    for explicit in (False, True):
        found = mha.attend(q.to(dtype), k.to(dtype), v.to(dtype), mask, explicit=explicit)
        assert found.dtype == dtype
        assert (found.double() - right).abs().max() < 60 * torch.finfo(dtype).eps * max(1, float(v.abs().max()))


@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_a_nan_in_a_query_stays_in_its_row(explicit, is_causal, masked):
    """There the explicit formula has NaN; what a kernel of torch has is its own affair."""
    q, k, v = torch.randn(3, 2, 1, 5, 4)
    how = {"mask": torch.ones(5, 5).bool() if masked else None, "explicit": explicit, "is_causal": is_causal}
    right, others = mha.attend(q, k, v, **how), [0, 1, 3, 4]
    q[..., 2, 0] = torch.nan
    found = mha.attend(q, k, v, **how)
    assert error(found[..., others, :], right[..., others, :]) < LIMIT
    if explicit:
        assert found[..., 2, :].isnan().all()


PLACES = ("scores", "weights", "heads")


@pytest.mark.parametrize(
    "kind", [torch.float32, torch.float16, torch.int64, torch.bool, torch.complex64, "meta"], ids=str
)
def test_changes_that_return_another_type_or_device_are_refused(reader, kind):
    x, layer = torch.randn(2, 5, 6), mha.MultiHeadAttention(6, 2)
    told = f"returned torch.float64 on {kind}" if kind == "meta" else f"returned {kind} on cpu"
    for place in PLACES:
        with (
            pytest.raises(ValueError, match=rf"{place} was given torch\.float64 on cpu and {told}: return the same"),
            mha.edit(layer, **{place: lambda z: z.to(kind)}),
        ):
            layer(x)
    q, k, v = torch.randn(3, 2, 1, 5, 4)
    for place in ("edit_scores", "normalize", "edit_weights"):
        with pytest.raises(ValueError, match=rf"{place} was given .* and {told}"):
            mha.attend(q, k, v, **{place: lambda z: z.to(kind)})


def test_under_autocast_changes_may_mix_types():
    x, layer = torch.randn(2, 5, 6).float(), mha.MultiHeadAttention(6, 2).float()
    for place in PLACES:
        with torch.autocast("cpu", torch.bfloat16), mha.edit(layer, **{place: lambda z: 2 * z.float()}):
            assert layer(x).isfinite().all()


def test_a_nan_is_not_repaired_and_reaches_every_query_that_may_look():
    q, k, v = torch.randn(1, 1, 3, 4), torch.randn(1, 1, 5, 4), torch.randn(1, 1, 5, 4)
    k[..., 4, 0] = torch.nan
    see = torch.tensor([True, True, True, True, False]).expand(3, 5)
    for explicit in (False, True):
        assert mha.attend(q, k, v, explicit=explicit).isnan().all()
    assert mha.attention_weights(q, k, see)[..., 4].nan_to_num(0).abs().max() == 0
    v[..., 4, 0] = torch.nan
    assert mha.attend(q, k.nan_to_num(), v, see, explicit=True)[..., 0].isnan().all()  # 0 · NaN is NaN


# ---- edits and dropout


def test_edits_come_at_their_named_places_in_order():
    seen = []

    def note(place):
        return lambda t: seen.append((place, t.clone())) or t

    q, k, mask = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 5, 4), torch.rand(3, 5) < 0.5
    weights = mha.attention_weights(
        q,
        k,
        mask,
        edit_scores=note("scores"),
        normalize=lambda s: note("hidden")(s).softmax(-1),
        edit_weights=note("weights"),
    )
    assert [place for place, _ in seen] == ["scores", "hidden", "weights"]
    assert error(seen[0][1], q @ k.mT / math.sqrt(4)) < LIMIT
    hidden = ~(mask | ~mask.any(-1, keepdim=True))
    assert torch.equal(seen[1][1] == -torch.inf, hidden.expand(1, 2, 3, 5))
    assert torch.equal(seen[2][1], weights)


def test_an_edit_changes_what_is_read():
    q, k, v = torch.randn(1, 1, 3, 4), torch.randn(1, 1, 5, 4), torch.randn(1, 1, 5, 2)
    assert error(mha.attend(q, k, v, edit_scores=lambda s: 0 * s), v.mean(-2, keepdim=True).expand(1, 1, 3, 2)) < LIMIT
    assert error(mha.attend(q, k, v, edit_weights=lambda w: 2 * w), 2 * mha.attend(q, k, v)) < LIMIT
    hardest = mha.attend(q, k, v, normalize=lambda s: F.one_hot(s.argmax(-1), 5).to(s))
    assert error(hardest, v[0, 0, (q @ k.mT)[0, 0].argmax(-1)][None, None]) < LIMIT


def test_an_edit_sees_finite_scores_where_a_row_is_empty_and_the_row_still_reads_zeros():
    q, v = torch.randn(1, 1, 2, 4), torch.randn(1, 1, 2, 3)
    mask = torch.tensor([[False, False], [True, False]])
    read = mha.attend(q, q, v, mask, normalize=lambda s: s.sigmoid())
    assert read[0, 0, 0].abs().max() == 0
    assert read[0, 0, 1].abs().max() > 0


@pytest.mark.parametrize("explicit", [False, True])
def test_dropout_drops_the_share_it_was_told_and_keeps_the_mean(explicit):
    q, v = torch.zeros(1, 1, 400, 1), torch.ones(1, 1, 400, 1)
    read = mha.attend(q, q, v, dropout=0.25, explicit=explicit)
    assert abs(read.mean() - 1) < 0.01
    kept = read.flatten() * 0.75 * 400  # how many of the 400 keys each query kept
    assert error(kept, kept.round()) < 1e-9
    assert abs(kept.mean() / 400 - 0.75) < 0.01


# ---- heads


@given(st.integers(1, 3), st.integers(1, 5), st.integers(1, 4), st.integers(1, 4))
def test_heads_are_cut_in_blocks_of_channels_without_a_copy_and_merged_back(b, n, h, d):
    x = torch.randn(b, n, h * d)
    heads = mha.split_heads(x, h)
    assert heads.shape == (b, h, n, d)
    assert heads.data_ptr() == x.data_ptr()
    for c in range(h):
        assert torch.equal(heads[:, c], x[:, :, c * d : (c + 1) * d])
    assert torch.equal(mha.merge_heads(heads), x)


# ---- bad input


def sizes(**shapes):
    return {name: torch.randn(shape) for name, shape in shapes.items()}


BAD = {
    "whole numbers": (
        TypeError,
        r"q has dtype torch.int64.*floating point.*\.float\(\)",
        {x: torch.ones(1, 2, 3).long() for x in "qkv"},
    ),
    "different dtypes": (TypeError, "float32.*float16.*convert", sizes(q=(2, 3)) | {"k": torch.ones(2, 3).half()}),
    "different batches": (ValueError, r"batch.*\(3, 2, 4\)", sizes(q=(3, 2, 4), k=(1, 2, 4), v=(1, 2, 4))),
    "different heads": (ValueError, r"heads.*\(1, 3, 2, 4\)", sizes(q=(1, 3, 2, 4), k=(1, 1, 2, 4), v=(1, 1, 2, 4))),
    "different widths": (ValueError, r"width.*\(1, 2, 4\).*\(1, 2, 5\)", sizes(q=(1, 2, 4), k=(1, 2, 5), v=(1, 2, 4))),
    "different lengths": (ValueError, r"every key needs.*\(1, 3, 4\)", sizes(q=(1, 2, 4), k=(1, 2, 4), v=(1, 3, 4))),
    "no axes": (ValueError, r"\(4,\)", sizes(q=(4,), k=(4,), v=(4,))),
    "no words": (ValueError, r"empty.*\(1, 0, 4\)", sizes(q=(1, 0, 4), k=(1, 2, 4), v=(1, 2, 4))),
    "no keys": (ValueError, r"empty.*\(1, 0, 4\)", sizes(q=(1, 2, 4), k=(1, 0, 4), v=(1, 0, 4))),
    "nothing to read": (ValueError, r"empty.*\(1, 2, 0\)", sizes(q=(1, 2, 4), k=(1, 2, 4), v=(1, 2, 0))),
    "no channels": (ValueError, r"empty.*\(1, 2, 0\)", sizes(q=(1, 2, 0), k=(1, 2, 0), v=(1, 2, 4))),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("explicit", [False, True])
def test_tensors_that_do_not_belong_together_are_refused(reader, name, explicit):
    kind, message, tensors = BAD[name]
    q = tensors["q"]
    k = tensors.get("k", q)
    with pytest.raises(kind, match=message):
        mha.attend(q, k, tensors.get("v", k), explicit=explicit)


@pytest.mark.parametrize("name", sorted(set(BAD) - {"different lengths", "nothing to read"}))  # these are about values
def test_weights_refuse_the_same(reader, name):
    kind, _, tensors = BAD[name]
    with pytest.raises(kind):
        mha.attention_weights(tensors["q"], tensors.get("k", tensors["q"]))


@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize("dropout", [-0.1, 1.0, 1.5, math.nan])
def test_a_dropout_that_is_no_share_is_refused(reader, dropout, explicit):
    x = torch.randn(1, 2, 3)
    with pytest.raises(ValueError, match=rf"dropout = {dropout}.*at least 0 and below 1"):
        mha.attend(x, x, x, dropout=dropout, explicit=explicit)


@pytest.mark.parametrize("heads", [0, -2, 4, 7])
def test_channels_that_cannot_be_cut_into_heads_are_refused(reader, heads):
    wrong = f"cannot cut 6 channels into {heads} heads" if heads > 0 else f"heads = {heads}: it must be at least 1"
    with pytest.raises(ValueError, match=wrong):
        mha.split_heads(torch.zeros(1, 2, 6), heads)


def test_tensors_of_other_axes_are_no_heads(reader):
    for shape in ((2, 6), (1, 2, 3, 6)):
        with pytest.raises(ValueError, match=rf"x has shape {re.escape(str(shape))}"):
            mha.split_heads(torch.zeros(shape), 2)
    for shape in ((2, 3, 6), (1, 1, 2, 3, 6)):
        with pytest.raises(ValueError, match=rf"heads have shape {re.escape(str(shape))}"):
            mha.merge_heads(torch.zeros(shape))


@pytest.mark.parametrize("explicit", [False, True])
def test_settings_that_mean_nothing_are_refused(reader, explicit):
    x = torch.randn(1, 2, 3, 4)
    for scale in (math.nan, math.inf):
        with pytest.raises(ValueError, match=f"scale = {scale}: it must be finite"):
            mha.attend(x, x, x, scale=scale, explicit=explicit)
    with pytest.raises(TypeError, match="scale = '1': it must be a number"):
        mha.attend(x, x, x, scale="1", explicit=explicit)
    with pytest.raises(TypeError, match="is_causal = 'no': it must be True or False"):
        mha.attend(x, x, x, is_causal="no", explicit=explicit)
    with pytest.raises(TypeError, match=r"k is list, but must be a tensor: use torch\.as_tensor\(k\)"):
        mha.attend(x, x.tolist(), x, explicit=explicit)


def test_an_edit_returns_a_tensor_of_the_same_shape(reader):
    x = torch.randn(1, 2, 3, 4)
    for place in ("edit_scores", "normalize", "edit_weights"):
        with pytest.raises(ValueError, match=rf"{place} was given shape \(1, 2, 3, 3\) and returned NoneType"):
            mha.attend(x, x, x, **{place: lambda t: None})
        with pytest.raises(ValueError, match=rf"{place} .* returned shape \(1, 2, 3, 1\)"):
            mha.attend(x, x, x, **{place: lambda t: t[..., :1]})


# ---- heads that share keys


@pytest.mark.parametrize("masked", [None, "2-D", "for all heads", "one a head"])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("i", [1, 3, 5])
@pytest.mark.parametrize("explicit", [False, True])
def test_shared_keys_are_as_keys_that_were_copied(masked, is_causal, i, explicit):
    q, k, v = torch.randn(2, 6, i, 4), torch.randn(2, 3, 5, 4), torch.randn(2, 3, 5, 2 if explicit else 4)
    shapes = {"2-D": (i, 5), "for all heads": (2, 1, i, 5), "one a head": (2, 6, i, 5)}
    mask = None if masked is None else torch.rand(shapes[masked]) > 0.4
    copied = (k.repeat_interleave(2, 1), v.repeat_interleave(2, 1))
    how = {"mask": mask, "is_causal": is_causal, "explicit": explicit}
    assert error(mha.attend(q, k, v, enable_gqa=True, **how), mha.attend(q, *copied, **how)) < LIMIT


def test_keys_are_shared_only_where_that_is_asked_for_and_evenly(reader):
    q, k = torch.randn(1, 4, 3, 2), torch.randn(1, 2, 3, 2)
    with pytest.raises(ValueError, match="differ in batch or heads"):
        mha.attend(q, k, k)
    for heads in (3, 8):
        wrong = torch.randn(1, heads, 3, 2)
        with pytest.raises(ValueError, match="differ in batch or heads"):
            mha.attend(q, wrong, wrong, enable_gqa=True)
