"""QK-Clip: every clipped head's largest score is the limit, no other head changes, and what it refuses."""

import pytest
import torch
from oracle import LIMIT, error
from torch.nn.utils import parametrizations

import mha
from mha.interop import ReleasedAttention
from mha.layers import clip_query_keys


def rotary():
    return mha.RotaryPositions()


LAYERS = {
    "plain": lambda: mha.MultiHeadAttention(16, 4),
    "rotary": lambda: mha.MultiHeadAttention(16, 4, positions=rotary()),
    "no biases": lambda: mha.MultiHeadAttention(16, 4, bias=False),
    "shared": lambda: mha.GroupedAttention(16, 4, 2, positions=rotary()),
    "one KV head": lambda: mha.GroupedAttention(16, 4, 1),
    "latent": lambda: mha.LatentAttention(16, 4, 8),
    "latent, rotary": lambda: mha.LatentAttention(16, 4, 8, d_rotary=4),
    "latent, as released": lambda: mha.LatentAttention(16, 4, 8, d_rotary=4, d_query=8, norm=True),
    "gated": lambda: mha.GatedAttention(16, 4, positions=rotary()),
    "sink": lambda: mha.SinkAttention(16, 4),
}


def scores_of(layer, x):
    with torch.no_grad(), mha.watch(layer, "scores") as seen:
        layer(x)
    return seen.scores


def large(make):
    """A layer with scores between some tens and some hundreds, and tokens."""
    layer = make().double()
    with torch.no_grad():
        for name in ("W_q", "W_k"):
            getattr(layer, name).weight.mul_(8)
        for name in ("W_rotary_q", "W_rotary_k"):
            if getattr(layer, name, None) is not None:
                getattr(layer, name).weight.mul_(8)
    return layer, torch.randn(2, 6, 16).double()


@pytest.mark.parametrize("name", LAYERS)
def test_every_clipped_head_has_the_limit_and_every_score_of_it_the_same_factor(name):
    layer, x = large(LAYERS[name])
    before = scores_of(layer, x)
    largest = before.amax((0, 2, 3))
    limit = largest.sort().values[1:3].mean().item()  # above two heads, below two
    factors = clip_query_keys(layer, largest, limit)
    after = scores_of(layer, x)
    clipped = largest > limit
    assert clipped.sum() == 2
    assert error(after, before * factors[:, None, None]) < LIMIT
    assert error(after.amax((0, 2, 3))[clipped], torch.full((2,), limit)) < LIMIT
    assert torch.equal(factors[~clipped], torch.ones(2).double())


@pytest.mark.parametrize("name", ["shared", "one KV head", "latent, rotary", "latent, as released"])
def test_what_heads_share_is_not_touched(name):
    layer, x = large(LAYERS[name])
    shared = {"W_k"} if layer.kv_heads < layer.heads else {"W_rotary_k", "W_down"}
    before = {part: getattr(layer, part).weight.clone() for part in shared}
    clip_query_keys(layer, scores_of(layer, x).amax((0, 2, 3)), 0.1)
    assert all(torch.equal(getattr(layer, part).weight, weight) for part, weight in before.items())


@pytest.mark.parametrize("absorb", [False, True])
def test_both_forms_of_latents_see_the_same_clip(absorb):
    layer, x = large(LAYERS["latent, as released"])
    with torch.no_grad():
        layer.W_k.bias.zero_()
    clip_query_keys(layer, scores_of(layer, x).amax((0, 2, 3)), 1.0)
    with torch.no_grad(), mha.watch(layer, "scores") as seen:
        layer(x, absorb=absorb)
    assert seen.scores.amax((0, 2, 3)).max().item() == pytest.approx(1)


def test_scores_below_the_limit_change_nothing_whatever_their_sign():
    layer, _ = large(LAYERS["plain"])
    before = [p.clone() for p in layer.parameters()]
    factors = clip_query_keys(layer, torch.tensor([-300.0, -1.0, 0.0, 100.0]))
    assert torch.equal(factors, torch.ones(4).double())
    assert all(map(torch.equal, before, layer.parameters()))


@pytest.mark.parametrize(
    ("layer", "largest", "limit", "message"),
    [
        (mha.MultiHeadAttention(16, 4), torch.ones(3), 1.0, "one score for each of 4 heads"),
        (mha.MultiHeadAttention(16, 4), torch.ones(4), 0.0, "limit = 0.0"),
        (mha.MultiHeadAttention(16, 4), torch.full((4,), torch.inf), 1.0, "largest .* NaN or infinity"),
        (mha.MultiHeadAttention(16, 4, positions=mha.LinearBias()), torch.ones(4), 1.0, "LinearBias, which changes"),
        (mha.TalkingAttention(16, 4), torch.ones(4), 1.0, "layer is a TalkingAttention"),
        (ReleasedAttention(16, 4, 4, norm_eps=1e-6), torch.ones(4), 1.0, "layer is a ReleasedAttention"),
    ],
    ids=["heads", "limit", "infinite", "bias", "talking", "norms"],
)
def test_what_cannot_be_clipped_is_refused(layer, largest, limit, message):
    with pytest.raises(ValueError, match=message):
        clip_query_keys(layer, largest, limit)


def test_a_matrix_that_is_computed_anew_is_refused():
    layer = mha.MultiHeadAttention(16, 4)
    parametrizations.weight_norm(layer.W_q)
    with pytest.raises(ValueError, match="weight of W_q is computed anew"):
        clip_query_keys(layer, torch.full((4,), 200.0))
