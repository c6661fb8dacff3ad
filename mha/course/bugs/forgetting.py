"""Bugs of attention sinks (heads that have nothing to say), and of caches that forget.

:Taught in: say_nothing.
"""

import torch

from mha.course.bugs.exhibit import Exhibit
from mha.functional.attention import attend
from mha.layers.positions import RotaryPositions

RANDOM = torch.Generator().manual_seed(0)


Q, K, V = (torch.randn(1, 1, 9, 8, generator=RANDOM) for _ in range(3))


SCORES, SINKS = torch.randn(2, 5, 5, generator=RANDOM), torch.tensor([0.0, 2.0])


ROTARY = RotaryPositions()


def kept_after_their_rotation(q, k, v, window):
    """Keep the last keys as they were rotated when they came in; the newest token is at the last position."""
    kept = torch.cat([ROTARY.rotate(k[:, :, t : t + 1], min(t, window - 1)) for t in range(k.shape[2])], 2)
    query = ROTARY.rotate(q[:, :, -1:], min(k.shape[2], window) - 1)
    return attend(query, kept[:, :, -window:], v[:, :, -window:])


def kept_before_their_rotation(q, k, v, window):
    """Keep the last keys before rotation, and rotate them by their positions among the kept ones."""
    kept = ROTARY.rotate(k[:, :, -window:])
    query = ROTARY.rotate(q[:, :, -1:], min(k.shape[2], window) - 1)
    return attend(query, kept, v[:, :, -window:])


def a_full_window_reads_like_a_short_sequence(attend):
    """Nine tokens with a window of four: the output of the last one is what a sequence of the last four gives."""
    short = [x[:, :, -4:] for x in (Q, K, V)]
    return torch.allclose(attend(Q, K, V, 4), attend(*short, 4), atol=1e-5)


def fallback_without_the_sink(scores, sink):
    """Take the plain softmax on a device on which the fast kernel, which has the sink, does not run."""
    return scores.softmax(-1)


def fallback_with_the_sink(scores, sink):
    """Let the sink take part in the softmax of each row, then drop its column."""
    column = sink[:, None, None].expand(*scores.shape[:-1], 1)
    return torch.cat([scores, column], -1).softmax(-1)[..., :-1]


def a_row_beside_a_sink_spends_less_than_one(weights):
    """Five keys and a sink with equal scores: six take part, and the keys get five sixths."""
    sums = weights(torch.zeros(2, 5, 5), torch.zeros(2)).sum(-1)
    return torch.allclose(sums, torch.tensor(5 / 6))


def forget_the_newest(tokens, first, size):
    """When the cache is full, keep the first tokens, and of the others those that came first."""
    return tokens[:first] + tokens[first:][: size - first]


def forget_the_oldest(tokens, first, size):
    """When the cache is full, keep the first tokens, and of the others those that came last."""
    return tokens[:first] + tokens[first:][first - size :]


def the_newest_token_is_kept(forget):
    """Read eight tokens with a cache of four, one of them the first: the last three are kept with it."""
    kept = []
    for token in range(8):
        kept = forget([*kept, token], 1, 4)
    return kept == [0, 5, 6, 7]


FORGETTING = (
    Exhibit(
        "Keys kept after their rotation",
        "A model that drops old tokens generates well until its window is full, and badly afterward.",
        "People who compare the output of a full window with that of a sequence of these tokens alone.",
        kept_after_their_rotation,
        kept_before_their_rotation,
        a_full_window_reads_like_a_short_sequence,
        lambda f: torch.allclose(
            f(Q[:, :, :4], K[:, :, :4], V[:, :, :4], 4), f(Q[:, :, :4], K[:, :, :4], V[:, :, :4], 9)
        ),
        ("huggingface/transformers#35350", "mit-han-lab/streaming-llm#73"),
        "say_nothing#a-bug-from-the-wild-rope-in-a-cache-that-drops-tokens",
    ),
    Exhibit(
        "A fallback that forgot the sink",
        "The same model answers differently on two devices.",
        "People who add up a row of weights.",
        fallback_without_the_sink,
        fallback_with_the_sink,
        a_row_beside_a_sink_spends_less_than_one,
        lambda f: f(SCORES, SINKS).shape == SCORES.shape and bool((f(SCORES, SINKS) > 0).all()),
        ("openvinotoolkit/openvino#36039",),
        "say_nothing#the-formula",
    ),
    Exhibit(
        "The newest token is forgotten",
        "A long text continues as if nothing had happened since the window became full.",
        "People who print which tokens are kept.",
        forget_the_newest,
        forget_the_oldest,
        the_newest_token_is_kept,
        lambda f: len(f(list(range(9)), 1, 4)) == 4 and f(list(range(9)), 1, 4)[0] == 0,
        ("JaydenLyh/Reward-Forcing#5",),
        "say_nothing#a-cache-that-never-grows",
    ),
)
