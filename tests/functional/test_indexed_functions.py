"""The functions of an index: scores by hand, the choice before and after a mask, ties, blocks, and the loss."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracle import LIMIT, error

import mha
from mha.functional import choose_blocks, choose_tokens, index_loss, index_scores
from mha.functional.indexed import first_tokens

B, H, Q, J, D = 2, 3, 5, 7, 4


def parts():
    return torch.randn(B, H, Q, D), torch.randn(B, J, D), torch.randn(B, Q, H)


def numbers(chosen):
    """The chosen keys of every row."""
    return [row.nonzero().flatten().tolist() for row in chosen.flatten(0, 1)]


# ---- scores


def test_scores_are_those_of_the_formula():
    q, k, w = parts()
    found = index_scores(q, k, w)
    for b in range(B):
        for i in range(Q):
            for j in range(J):
                right = sum(float(w[b, i, h]) * max(0.0, float(q[b, h, i] @ k[b, j]) / D**0.5) for h in range(H))
                assert abs(float(found[b, i, j]) - right) < LIMIT


def test_weights_may_be_negative_and_then_zero_is_the_best_score():
    q, k = torch.ones(1, 1, 1, 2), torch.tensor([[[1.0, 1.0], [-1.0, -1.0]]])
    scores = index_scores(q, k, -torch.ones(1, 1, 1))
    assert scores[0, 0, 0] < 0 == scores[0, 0, 1]
    assert numbers(choose_tokens(scores, 1)) == [[1]]


def test_parts_that_do_not_belong_together_are_refused(reader):
    q, k, w = parts()
    for bad in ((q, k[:1], w), (q, k[..., :2], w), (q, k, w[:, :2]), (q, k, w.mT)):
        with pytest.raises(ValueError, match="do not belong together"):
            index_scores(*bad)
    with pytest.raises(TypeError, match=r"k is torch\.float32.*k\.to\(q\)"):
        index_scores(q, k.float(), w)


# ---- the choice


@given(st.integers(1, 9), st.integers(0, 99))
def test_the_largest_allowed_scores_are_chosen(k, seed):
    random = torch.Generator().manual_seed(seed)
    scores = torch.randn(B, Q, J, generator=random)
    mask = torch.rand(Q, J, generator=random) < 0.6
    chosen = choose_tokens(scores, k, mask)
    assert not (chosen & ~mask).any()
    for b in range(B):
        for i in range(Q):
            allowed = mask[i].nonzero().flatten().tolist()
            best = sorted(allowed, key=lambda j: -float(scores[b, i, j]))[:k]
            assert numbers(chosen)[b * Q + i] == sorted(best)


def test_the_mask_comes_before_the_choice():
    """A mask after the choice lets hidden keys take places: early queries then read nothing."""
    n, k = 6, 2
    scores = torch.arange(float(n)).expand(1, n, n)  # the future looks best
    causal = mha.causal_mask(n)
    assert [len(row) for row in numbers(choose_tokens(scores, k, causal))] == [1, 2, 2, 2, 2, 2]
    after = first_tokens(scores, k) & causal
    assert [len(row) for row in numbers(after)] == [0, 0, 0, 0, 1, 2]


def test_of_equal_scores_the_earlier_key_is_chosen():
    scores = torch.tensor([0.0, 1, 0, 0, 1, 1, 0]).expand(1, 1, 7)
    wanted = {1: [1], 2: [1, 4], 3: [1, 4, 5], 4: [0, 1, 4, 5], 5: [0, 1, 2, 4, 5]}
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        for k, right in wanted.items():
            assert numbers(choose_tokens(scores.to(dtype), k)) == [right]
    long = torch.zeros(1, 1, 5000)  # torch.topk takes others here
    assert numbers(choose_tokens(long, 40)) == [list(range(40))]


def test_a_minus_infinity_hides_as_a_mask_does():
    scores, mask = torch.randn(B, Q, J), torch.rand(B, 1, Q, J) < 0.5
    hidden = scores.masked_fill(~mask[:, 0], -torch.inf)
    for k in (1, 3, 99):
        assert torch.equal(choose_tokens(hidden, k), choose_tokens(scores, k, mask))
        assert torch.equal(choose_blocks(hidden, k, 2, pool="mean"), choose_blocks(scores, k, 2, mask, pool="mean"))


def test_with_as_many_as_there_are_everything_allowed_is_chosen():
    scores, mask = torch.randn(B, Q, J), torch.rand(Q, J) < 0.5
    assert torch.equal(choose_tokens(scores, J, mask), mask.expand(B, Q, J))
    assert torch.equal(choose_blocks(scores, 3, 3, mask), mask.expand(B, Q, J))


# ---- blocks


def by_hand(row, allowed, k, block, pool, own):
    """The blocks of one query, one by one."""
    blocks = [[j for j in range(s, min(s + block, len(row))) if allowed[j]] for s in range(0, len(row), block)]
    there = [n for n, keys in enumerate(blocks) if keys]
    value = {"max": max, "mean": lambda x: sum(x) / len(x)}[pool]
    scores = {n: value([float(row[j]) for j in blocks[n]]) for n in there}
    if own and there:
        scores[there[-1]] = math.inf
    best = sorted(there, key=lambda n: -scores[n])[:k]
    return sorted(j for n in best for j in blocks[n])


@given(st.integers(1, 4), st.integers(1, 8), st.sampled_from(["max", "mean"]), st.booleans(), st.integers(0, 99))
def test_blocks_are_those_chosen_by_hand(k, block, pool, own, seed):
    random = torch.Generator().manual_seed(seed)
    scores, mask = torch.randn(B, Q, J, generator=random), torch.rand(Q, J, generator=random) < 0.7
    found = numbers(choose_blocks(scores, k, block, mask, pool=pool, own=own))
    right = [by_hand(scores[b, i], mask[i], k, block, pool, own) for b in range(B) for i in range(Q)]
    assert found == right


def test_the_own_block_is_always_read_and_counts_as_one():
    n, block = 8, 2
    scores = -torch.arange(float(n)).expand(1, n, n)  # the oldest looks best
    chosen = choose_blocks(scores, 2, block, mha.causal_mask(n))
    assert numbers(chosen)[6:] == [[0, 1, 6], [0, 1, 6, 7]]
    assert numbers(choose_blocks(scores, 2, block, mha.causal_mask(n), own=False))[6:] == [[0, 1, 2, 3]] * 2


def test_a_maximum_keeps_the_needle_that_a_mean_loses():
    scores = torch.tensor([0.0, 0, 0, 3, 1, 1, 1, 1]).expand(1, 1, 8)
    assert numbers(choose_blocks(scores, 1, 4, own=False)) == [[0, 1, 2, 3]]
    assert numbers(choose_blocks(scores, 1, 4, own=False, pool="mean")) == [[4, 5, 6, 7]]


def test_a_block_of_one_key_is_a_key():
    scores = torch.randn(B, Q, J)
    assert torch.equal(choose_blocks(scores, 3, 1, own=False), choose_tokens(scores, 3))


def test_choices_that_make_no_sense_are_refused(reader):
    scores = torch.randn(B, Q, J)
    with pytest.raises(ValueError, match="k = 0: it must be at least 1"):
        choose_tokens(scores, 0)
    with pytest.raises(ValueError, match="block = 0: it must be at least 1"):
        choose_blocks(scores, 1, 0)
    with pytest.raises(ValueError, match="pool = 'sum': give one of"):
        choose_blocks(scores, 1, 2, pool="sum")
    with pytest.raises(ValueError, match="scores has shape"):
        choose_tokens(scores[0, 0], 1)
    with pytest.raises(ValueError, match=r"\(5, 6\) does not fit"):
        choose_tokens(scores, 1, torch.ones(Q, 6, dtype=torch.bool))
    with pytest.raises(TypeError, match="may look"):
        choose_tokens(scores, 1, torch.ones(Q, J))


# ---- the loss


def rows(mask):
    """Attention weights of H heads that differ."""
    return torch.randn(B, H, *mask.shape).masked_fill(~mask, -torch.inf).softmax(-1).nan_to_num(0)


def kl(p, q):
    return sum(float(a) * math.log(float(a) / float(c)) for a, c in zip(p, q, strict=True) if a > 0)


@pytest.mark.parametrize("restricted", [False, True])
def test_the_loss_is_the_divergence_by_hand(restricted):
    mask = mha.causal_mask(6)
    weights = rows(mask)
    scores = torch.randn(B, 6, 6).masked_fill(~mask, -torch.inf)
    chosen = choose_tokens(scores, 3) if restricted else None
    right = 0.0
    for b in range(B):
        for i in range(6):
            seen = mask[i] if chosen is None else chosen[b, i]
            p = weights[b, :, i].sum(0)[seen]
            right += kl(p / p.sum(), scores[b, i][seen].softmax(-1)) / (B * 6)
    assert abs(float(index_loss(weights, scores, chosen)) - right) < LIMIT


def test_the_loss_of_a_perfect_index_is_zero_and_not_the_logarithm_of_the_heads():
    """Without the division by the sum, targets sum to H, and the best loss differs from 0 by log H and more."""
    weights = rows(mha.causal_mask(6))
    perfect = weights.mean(1).log()
    assert abs(float(index_loss(weights, perfect))) < LIMIT
    summed = weights.sum(1)
    without = torch.special.xlogy(summed, summed) - summed * perfect.clamp_min(-1e9)
    assert abs(float(without.sum(-1).mean()) - H * math.log(H)) < 1e-9


def test_the_loss_compares_in_one_direction():
    weights, scores = rows(torch.ones(6, 6, dtype=torch.bool)), torch.randn(B, 6, 6)
    other = index_loss(scores.softmax(-1)[:, None], weights.mean(1).log())
    assert abs(float(index_loss(weights, scores)) - float(other)) > 1e-3


def test_what_the_attention_never_reads_gets_gradients_only_through_the_normalization():
    mask = mha.causal_mask(6)
    weights = rows(mask).requires_grad_()
    scores = torch.randn(B, 6, 6).requires_grad_()
    index_loss(weights, scores, mask.expand(B, 6, 6)).backward()
    assert weights.grad is None
    assert scores.grad[~mask.expand(B, 6, 6)].abs().max() == 0
    p, q = weights.detach().mean(1), scores.detach().masked_fill(~mask, -torch.inf).softmax(-1)
    assert error(scores.grad, (q - p) / (B * 6)) < LIMIT


def test_queries_that_read_nothing_are_not_counted():
    mask = mha.causal_mask(6)
    weights, scores = rows(mask), torch.randn(B, 6, 6).masked_fill(~mask, -torch.inf)
    whole = index_loss(weights[:1], scores[:1])
    weights[1], scores[1] = 0, -torch.inf
    scores.requires_grad_()
    found = index_loss(weights, scores)
    assert error(found, whole) < LIMIT
    found.backward()
    assert scores.grad.isfinite().all()
    assert index_loss(torch.zeros(1, 2, 3, 3), torch.zeros(1, 3, 3)) == 0


def test_weight_on_a_hidden_score_is_infinitely_wrong():
    weights, scores = rows(torch.ones(6, 6, dtype=torch.bool)), torch.randn(B, 6, 6)
    assert index_loss(weights, scores.masked_fill(~mha.causal_mask(6), -torch.inf)) == torch.inf


def test_losses_of_parts_that_do_not_belong_together_are_refused(reader):
    weights, scores = torch.rand(B, H, Q, J), torch.randn(B, Q, J)
    with pytest.raises(ValueError, match="do not belong together"):
        index_loss(weights, scores[:, :4])
    with pytest.raises(ValueError, match=r"and chosen \(2, 5, 6\) do not belong together"):
        index_loss(weights, scores, torch.ones(B, Q, 6, dtype=torch.bool))
    with pytest.raises(TypeError, match=r"chosen has dtype torch\.float64, but must be boolean"):
        index_loss(weights, scores, torch.ones(B, Q, J))
    with pytest.raises(ValueError, match="weights has shape"):
        index_loss(weights[:, 0], scores)
