"""Bugs of heads that have nothing to say, and of caches that forget.

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
    """Keep the last keys as they were turned when they came in; the newest word stands at the last place."""
    kept = torch.cat([ROTARY.turn(k[:, :, t : t + 1], min(t, window - 1)) for t in range(k.shape[2])], 2)
    query = ROTARY.turn(q[:, :, -1:], min(k.shape[2], window) - 1)
    return attend(query, kept[:, :, -window:], v[:, :, -window:])


def kept_before_their_rotation(q, k, v, window):
    """Keep the last keys as they are, and turn them by their places among the kept ones."""
    kept = ROTARY.turn(k[:, :, -window:])
    query = ROTARY.turn(q[:, :, -1:], min(k.shape[2], window) - 1)
    return attend(query, kept, v[:, :, -window:])


def a_full_window_reads_like_a_short_text(read):
    """Nine words behind a window of four: the last one reads what it would read in a text of the last four."""
    short = [x[:, :, -4:] for x in (Q, K, V)]
    return torch.allclose(read(Q, K, V, 4), read(*short, 4), atol=1e-5)


def fallback_without_the_sink(scores, sink):
    """Take the plain softmax where the fast kernel, which knows the sink, does not run."""
    return scores.softmax(-1)


def fallback_with_the_sink(scores, sink):
    """Let the sink take part in the sum of each row, and drop its column."""
    column = sink[:, None, None].expand(*scores.shape[:-1], 1)
    return torch.cat([scores, column], -1).softmax(-1)[..., :-1]


def a_row_beside_a_sink_spends_less_than_one(weights):
    """Five equal scores beside a sink of the same height: six take part, and the keys get five sixths."""
    sums = weights(torch.zeros(2, 5, 5), torch.zeros(2)).sum(-1)
    return torch.allclose(sums, torch.tensor(5 / 6))


def forget_the_newest(words, first, room):
    """Where the room is full, keep the first words, and of the others those that came first."""
    return words[:first] + words[first:][: room - first]


def forget_the_oldest(words, first, room):
    """Where the room is full, keep the first words, and of the others those that came last."""
    return words[:first] + words[first:][first - room :]


def the_word_just_read_is_kept(forget):
    """Read eight words with room for four, one of them the first: the last three stay beside it."""
    kept = []
    for word in range(8):
        kept = forget([*kept, word], 1, 4)
    return kept == [0, 5, 6, 7]


FORGETTING = (
    Exhibit(
        "Keys kept after their rotation",
        "A model that forgets old words writes well until its window is full, and badly afterwards.",
        "Somebody who compares a full window with a text of these words alone.",
        kept_after_their_rotation,
        kept_before_their_rotation,
        a_full_window_reads_like_a_short_text,
        lambda f: torch.allclose(
            f(Q[:, :, :4], K[:, :, :4], V[:, :, :4], 4), f(Q[:, :, :4], K[:, :, :4], V[:, :, :4], 9)
        ),
        ("huggingface/transformers#35350", "mit-han-lab/streaming-llm#73"),
        "say_nothing#a-bug-from-the-wild-rope-in-a-cache-that-drops-tokens",
    ),
    Exhibit(
        "A fallback that forgot the sink",
        "The same model answers differently on two devices.",
        "Somebody who adds up a row of weights.",
        fallback_without_the_sink,
        fallback_with_the_sink,
        a_row_beside_a_sink_spends_less_than_one,
        lambda f: f(SCORES, SINKS).shape == SCORES.shape and bool((f(SCORES, SINKS) > 0).all()),
        ("openvinotoolkit/openvino#36039",),
        "say_nothing#the-formula",
    ),
    Exhibit(
        "The newest word is forgotten",
        "A long text goes on as if nothing had happened since the window filled.",
        "Somebody who prints which words are kept.",
        forget_the_newest,
        forget_the_oldest,
        the_word_just_read_is_kept,
        lambda f: len(f(list(range(9)), 1, 4)) == 4 and f(list(range(9)), 1, 4)[0] == 0,
        ("JaydenLyh/Reward-Forcing#5",),
        "say_nothing#a-cache-that-never-grows",
    ),
)
