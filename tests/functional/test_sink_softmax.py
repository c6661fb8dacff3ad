"""A sink beside the keys, as functions: the formula, the gate that it is, and two paths with one result."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracle import LIMIT, error

import mha
from mha.functional import attend_with_sink, softmax_with_sink

HALVES = (torch.float32, torch.bfloat16, torch.float16)


def row_by_hand(scores, sink):
    """One row in plain Python: the largest number is taken away first, as always."""
    top = max([sink, *scores])
    powers = [math.exp(score - top) for score in scores]
    return [power / (math.exp(sink - top) + sum(powers)) for power in powers]


def read_by_hand(q, k, v, sink, mask, scale):
    """Head by head, query by query, key by key, in numbers that autograd follows."""
    b, h, i, _ = q.shape
    group, rows = h // k.shape[1], []
    for text in range(b):
        for head in range(h):
            for query in range(i):
                total, read = sink[head].exp(), torch.zeros(v.shape[-1])
                for key in range(k.shape[2]):
                    if mask[query, key]:
                        power = ((q[text, head, query] * k[text, head // group, key]).sum() * scale).exp()
                        total, read = total + power, read + power * v[text, head // group, key]
                rows.append(read / total)
    return torch.stack(rows).view(b, h, i, -1)


def explicit(q, k, v, sink, mask=None, **how):
    return mha.attend(q, k, v, mask, normalize=lambda scores: softmax_with_sink(scores, sink), **how)


def test_a_row_is_its_formula():
    scores, sink = 3 * torch.randn(2, 3, 4, 5), torch.tensor([-2.0, 0.0, 4.0])
    right = [[[row_by_hand(r, z) for r in h] for h, z in zip(t, sink.tolist(), strict=True)] for t in scores.tolist()]
    assert error(softmax_with_sink(scores, sink), torch.tensor(right)) < LIMIT
    large = softmax_with_sink(scores + 1e4, sink)
    assert error(large, (scores + 1e4).softmax(-1)) < LIMIT


def test_a_sink_is_a_gate():
    scores, sink = 3 * torch.randn(2, 3, 4, 5), torch.randn(3)
    gate = (scores.logsumexp(-1, keepdim=True) - sink[:, None, None]).sigmoid()
    assert error(softmax_with_sink(scores, sink), gate * scores.softmax(-1)) < LIMIT
    assert error(softmax_with_sink(scores, sink).sum(-1, keepdim=True), gate) < LIMIT


def test_a_very_low_sink_is_none_at_all():
    scores = 30 * torch.randn(2, 3, 4, 5)
    for logit in (-1e4, -1e9, -math.inf):
        assert torch.equal(softmax_with_sink(scores, torch.full((3,), logit)), scores.softmax(-1))


@st.composite
def situations(draw):
    b, g, share, d, c, i, j = (draw(st.integers(1, most)) for most in (2, 2, 2, 3, 4, 4, 4))
    seed, masked, causal = draw(st.integers(0, 99)), draw(st.booleans()), draw(st.booleans())
    how = {"is_causal": causal, "scale": draw(st.sampled_from([None, 0.3])), "enable_gqa": True}
    random = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(*s, generator=random) for s in ((b, g * share, i, d), (b, g, j, d), (b, g, j, c)))
    mask = torch.rand(i, j, generator=random) < 0.6 if masked else None
    return q, k, v, torch.randn(g * share, generator=random), mask, how


@given(situations())
def test_both_paths_are_the_loop_in_value_and_gradient(situation):
    *tensors, mask, how = situation
    q, k, v, sink = (t.requires_grad_() for t in tensors)
    i, j = q.shape[2], k.shape[2]
    seen = torch.ones(i, j, dtype=torch.bool) if mask is None else mask
    seen = seen & mha.causal_mask(i, j) if how["is_causal"] else seen
    right = read_by_hand(q, k, v, sink, seen, how["scale"] or q.shape[-1] ** -0.5)
    weight = torch.linspace(-1, 2, right.numel()).view_as(right)
    slopes = torch.autograd.grad((right * weight).sum(), tensors, allow_unused=True, materialize_grads=True)
    for path in (attend_with_sink, explicit):
        found = path(q, k, v, sink, mask, **how)
        assert error(found, right) < 1e-10
        assert error(torch.autograd.grad((found * weight).sum(), tensors), slopes) < 1e-10


@pytest.mark.parametrize("dtype", [*HALVES, torch.float64], ids=str)
@pytest.mark.parametrize("logit", [0.0, -1e4, -math.inf])
@pytest.mark.parametrize("path", [attend_with_sink, explicit])
def test_a_query_with_nothing_to_look_at_reads_zeros_beside_any_sink(path, dtype, logit):
    q, k, v = (torch.randn(2, 3, 4, 8).to(dtype).requires_grad_() for _ in range(3))
    sink = torch.full((3,), logit, dtype=dtype, requires_grad=True)
    mask = torch.ones(2, 1, 4, 4, dtype=torch.bool)
    mask[0, :, 1], mask[1] = False, False
    read = path(q, k, v, sink, mask, is_causal=True)
    assert read[0, :, 1].abs().max() == read[1].abs().max() == 0
    assert read[0, :, 3].abs().min() > 0
    slopes = torch.autograd.grad(read.float().square().sum(), (q, k, v, sink))
    assert all(slope.isfinite().all() for slope in slopes)
    assert slopes[0][1].abs().max() == slopes[2][1].abs().max() == 0
    causal = path(q, k, v, sink, is_causal=True)  # the word in front sees nothing but the sink
    assert all(s.isfinite().all() for s in torch.autograd.grad(causal.float().square().sum(), (q, k, v, sink)))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_half_precision_is_near(dtype):
    q, k, v = (torch.randn(2, 3, 9, 8) for _ in range(3))
    sink = torch.tensor([-3.0, 0.0, 3.0])
    right = attend_with_sink(q, k, v, sink, is_causal=True)
    for path in (attend_with_sink, explicit):
        found = path(*(t.to(dtype) for t in (q, k, v, sink)), is_causal=True)
        assert found.dtype == dtype
        assert (found - right).abs().max() < 20 * torch.finfo(dtype).eps


def test_dropout_drops_keys_and_never_the_sink():
    q, k, v = (torch.randn(1, 2, 5, 4) for _ in range(3))
    sink = torch.tensor([0.0, 2.0])
    torch.manual_seed(0)
    reads = torch.stack([attend_with_sink(q, k, v, sink, dropout=0.3) for _ in range(2000)])
    assert (reads.mean(0) - attend_with_sink(q, k, v, sink)).abs().max() < 0.1
    assert reads.std(0).min() > 0.01


def test_sinks_that_do_not_belong_to_the_heads_are_refused(reader):
    q, scores = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 4)
    for sink in (torch.zeros(2), torch.zeros(3, 1), torch.tensor(0.0), torch.zeros(3).long()):
        with pytest.raises(ValueError, match=r"sink has shape .* there are 3 heads in .*: give one real number"):
            attend_with_sink(q, q, q, sink)
        with pytest.raises(ValueError, match=r"sink has shape .* but there are 3 heads"):
            softmax_with_sink(scores, sink)
    with pytest.raises(ValueError, match=r"sink is on meta, the scores on cpu"):
        softmax_with_sink(scores, torch.zeros(3, device="meta"))
    with pytest.raises(TypeError, match="sink is list, but must be a tensor"):
        softmax_with_sink(scores, [0.0, 0.0, 0.0])
    with pytest.raises(ValueError, match=r"scores have shape \(4, 4\)"):
        softmax_with_sink(scores[0, 0], torch.zeros(3))
    with pytest.raises(ValueError, match="a query can only be compared with a key of its own width"):
        attend_with_sink(q, q[..., :3], q, torch.zeros(3))
    with pytest.raises(ValueError, match=r"mask of shape \(4, 5\) does not fit"):
        attend_with_sink(q, q, q, torch.zeros(3), torch.ones(4, 5).bool())
