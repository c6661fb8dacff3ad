"""Heads that mix their scores and their weights, in the same way for every word."""

import math

import pytest
import torch
from oracle import LIMIT, error

import mha
from mha.layers import mix
from mha.models import LanguageModel
from mha.systems import tensor_parallel

B, N, D_MODEL, HEADS, WIDTH = 2, 5, 12, 3, 4


def noisy(**sizes):
    layer = mha.TalkingAttention(D_MODEL, HEADS, **sizes).eval()
    with torch.no_grad():
        for weight in layer.parameters():
            weight.copy_(torch.randn_like(weight))
    return layer


def plain_loops(q, k, v, before, after, mask):
    """The paper's formula number by number: scores of ``score`` heads, softmax of ``between``, values of ``value``."""
    (b, score, n, d), between, value = q.shape, before.shape[1], after.shape[1]
    read = torch.zeros(b, value, n, v.shape[-1])
    for z in range(b):
        for i in range(n):
            shown = [j for j in range(k.shape[2]) if mask[i, j]]
            weights = torch.zeros(between, k.shape[2])
            for h in range(between):
                mixed = [
                    sum(before[g, h] * (q[z, g, i] @ k[z, g, j]) / math.sqrt(d) for g in range(score)) for j in shown
                ]
                powers = [s.exp() for s in mixed]
                for j, power in zip(shown, powers, strict=True):
                    weights[h, j] = power / sum(powers)
            for h in range(value):
                read[z, h, i] = sum(after[g, h] * weights[g, j] * v[z, h, j] for g in range(between) for j in shown)
    return read


@torch.no_grad()
@pytest.mark.parametrize("visible", [torch.ones(N, N).bool(), mha.causal_mask(N)], ids=["all", "causal"])
def test_talking_heads_are_the_formula_of_the_paper(visible):
    layer, x = noisy(), torch.randn(B, N, D_MODEL)
    right = layer.merge(plain_loops(*layer.project(x), layer.mix_scores, layer.mix_weights, visible))
    assert error(layer(x, mask=visible), right) < 1e-10


@torch.no_grad()
def test_different_numbers_of_heads_are_mixing_matrices_with_zeros():
    """2 heads compare, 3 are normalized, 1 reads: a layer of 3 heads with zeros is that layer."""
    layer, x, visible = noisy(), torch.randn(B, N, D_MODEL), mha.causal_mask(N)
    layer.mix_scores[2:] = 0
    layer.mix_weights[:, 1:] = 0
    q, k, v = layer.project(x)
    read = plain_loops(q[:, :2], k[:, :2], v[:, :1], layer.mix_scores[:2], layer.mix_weights[:, :1], visible)
    right = read.transpose(1, 2).flatten(2) @ layer.W_o.weight[:, :WIDTH].mT + layer.W_o.bias
    assert error(layer(x, is_causal=True), right) < 1e-10


def test_a_new_layer_does_not_talk_and_is_a_plain_one():
    talking, plain = mha.TalkingAttention(D_MODEL, HEADS, bias="qv"), mha.MultiHeadAttention(D_MODEL, HEADS, bias="qv")
    talking.load_state_dict(plain.state_dict(), strict=False)
    x = torch.randn(B, N, D_MODEL)
    assert error(talking(x), plain(x)) < LIMIT
    plain = mha.MultiHeadAttention(D_MODEL, 2, d_head=6, positions=mha.RotaryPositions(), dropout=0.2).eval()
    again = mha.TalkingAttention.from_plain(plain)
    assert error(again(x, is_causal=True), plain(x, is_causal=True)) < LIMIT
    assert (again.dropout, again.training) == (0.2, False)


def test_mixing_goes_from_row_to_column():
    x = torch.randn(1, 2, 3, 4)
    assert error(mix(x, torch.tensor([[0.0, 1.0], [0.0, 0.0]]))[:, 1], x[:, 0]) == 0
    assert mix(x, torch.tensor([[0.0, 1.0], [0.0, 0.0]]))[:, 0].abs().max() == 0


@torch.no_grad()
def test_scores_are_mixed_before_the_mask():
    """After it, −∞ times a weight of 0 would be NaN, and −∞ times a negative one would show what is hidden."""
    layer, x = noisy(), torch.randn(B, N, D_MODEL)
    layer.mix_scores[0, 1] = 0
    layer.mix_scores[1, 0] = -1
    with mha.watch(layer) as seen:
        assert layer(x, is_causal=True).isfinite().all()
    assert seen.weights.triu(1).abs().max() == 0


@torch.no_grad()
def test_what_is_watched_is_what_is_read_with():
    layer, x = noisy(), torch.randn(B, N, D_MODEL)
    with mha.watch(layer) as seen:
        y = layer(x)
    q, k, v = layer.project(x)
    assert error(seen.scores, mix(q @ k.mT / math.sqrt(WIDTH), layer.mix_scores)) < LIMIT
    assert error(layer.merge(seen.weights @ v), y) < LIMIT
    assert (seen.weights.sum(-1) - 1).abs().max() > 0.1  # rows need not sum to 1


def test_heads_cannot_be_taken_out():
    with pytest.raises(ValueError, match=r"heads \[0, 2\] of TalkingAttention cannot be taken out.*mha\.edit"):
        noisy().take_heads([0, 2])
    with pytest.raises(ValueError, match="TalkingAttention cannot be computed apart: each head mixes"):
        tensor_parallel.check_divisible(noisy(), 3)


@torch.no_grad()
def test_a_language_model_of_talking_heads_generates_the_same_with_a_cache():
    model = LanguageModel(11, D_MODEL, noisy, layers=2)
    words = torch.randint(11, (2, 4))
    assert torch.equal(model.generate(words, 5), model.generate(words, 5, cached=False))
