"""Bugs that depend on the mode, on the order of calls, or on where the weights come from.

:Taught in: masking, in_the_transformer, positions, depth_and_norms, cache_and_sharing, feed_back.
"""

import torch
import torch.nn.functional as F
from torch import nn

from mha.course.bugs.exhibit import Exhibit

RANDOM = torch.Generator().manual_seed(0)


Q, K, V = (torch.randn(1, 1, 5, 8, generator=RANDOM) for _ in range(3))


def causal_in_training_only(q, k, v, training):
    """Hide the future while the model is trained."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=training)


def causal_always(q, k, v, training):
    """Hide the future, whatever the mode."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def both_modes_agree(attend):
    """Without dropout, training and evaluation compute the same."""
    return torch.allclose(attend(Q, K, V, True), attend(Q, K, V, False))


def dropout_always(q, k, v, training):
    """Hand the rate of the dropout over, whatever the mode."""
    return F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)


def dropout_in_training(q, k, v, training):
    """Hand the rate of the dropout over in training, and zero otherwise."""
    return F.scaled_dot_product_attention(q, k, v, dropout_p=0.5 if training else 0.0)


def evaluation_is_repeatable(attend):
    """Two evaluations of the same input give the same."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return torch.equal(attend(Q, K, V, False), attend(Q, K, V, False))


def a_mask_that_is_not_used(q, k, v, see):
    """Take a mask as an argument, and forget it."""
    return F.scaled_dot_product_attention(q, k, v)


def a_mask_that_is_used(q, k, v, see):
    """Take a mask and hand it on."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=see)


def another_mask_gives_another_result(attend):
    """Two different masks must give two different results."""
    see = torch.ones(5, 5, dtype=torch.bool)
    return not torch.allclose(attend(Q, K, V, see), attend(Q, K, V, see.tril()))


def norm_over_the_sum(x, norm, attend):
    """Write the normed words over the words that the sum should carry on."""
    x = norm(x)
    return x + attend(x)


def norm_beside_the_sum(x, norm, attend):
    """Norm what goes into the layer, and carry the words themselves on."""
    return x + attend(norm(x))


def silent_attention_leaves_the_words(block):
    """With attention switched off, the words come out as they went in."""
    x = torch.arange(12.0).view(1, 3, 4)
    return torch.equal(block(x, nn.LayerNorm(4), torch.zeros_like), x)


def turn_halves(x, angle):
    """Pair channel c with channel c + d/2, and turn each pair."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


def turn_neighbors(x, angle):
    """Pair channel 2c with channel 2c + 1, and turn each pair."""
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1).flatten(-2)


def weights_of_neighbors_are_read_as_neighbors(turn):
    """Weights trained with neighboring pairs must give the scores they gave in training, at every distance."""
    q, k, angle = Q[0, 0, 0], K[0, 0, 0], torch.tensor([1.0, 0.5, 0.25, 0.1])
    trained = [turn_neighbors(q, angle * 0) @ turn_neighbors(k, angle * n) for n in range(4)]
    return all(torch.allclose(turn(q, angle * 0) @ turn(k, angle * n), trained[n], atol=1e-5) for n in range(4))


class Pointer:
    """A place counter that two texts share."""

    def __init__(self):
        """Begin at the first place."""
        self.place = 0


def places_that_go_on(pointer, words):
    """Number the words from where the last text ended."""
    first, pointer.place = pointer.place, pointer.place + words
    return list(range(first, first + words))


def places_that_begin_again(pointer, words):
    """Number the words of a new text from zero."""
    pointer.place = words
    return list(range(words))


def a_second_text_is_like_a_first(number):
    """The same text twice gets the same places twice."""
    pointer = Pointer()
    return number(pointer, 3) == number(pointer, 3)


def mixture_without_softmax(states, w):
    """Mix the states of all layers, (levels, b, m), with learned numbers."""
    share = w.softmax(0)
    share = w.view(-1, 1, 1)
    return (states * share).sum(0)


def mixture_with_softmax(states, w):
    """Mix the states of all layers, (levels, b, m), with learned numbers."""
    share = w.softmax(0).view(-1, 1, 1)
    return (states * share).sum(0)


def a_mixture_of_equal_states_is_that_state(mix):
    """Weights that sum to 1 leave equal states as they are."""
    same = V[0, 0].expand(3, 5, 8)
    return torch.allclose(mix(same, torch.tensor([1.0, 2.0, 0.5])), same[0], atol=1e-5)


RUNNING = (
    Exhibit(
        "Causal in training only",
        "Training and validation loss are worlds apart, and dropout is off.",
        "Somebody who runs one input in both modes.",
        causal_in_training_only,
        causal_always,
        both_modes_agree,
        lambda f: f(Q, K, V, False).shape == V.shape,
        ("shiyu-coder/Kronos#199",),
        "masking#a-bug-from-the-wild-an-inverted-mask",
    ),
    Exhibit(
        "Dropout that never sleeps",
        "Two evaluations of the same input differ.",
        "Somebody who evaluates twice.",
        dropout_always,
        dropout_in_training,
        evaluation_is_repeatable,
        lambda f: f(Q, K, V, False).shape == V.shape,
        ("pytorch/pytorch#42929", "karpathy/ng-video-lecture#30"),
        "dropout",
    ),
    Exhibit(
        "The argument that nobody reads",
        "Padding changes results, although a mask is handed over.",
        "Somebody who hands over a second mask.",
        a_mask_that_is_not_used,
        a_mask_that_is_used,
        another_mask_gives_another_result,
        lambda f: f(Q, K, V, torch.ones(5, 5, dtype=torch.bool)).shape == V.shape,
        ("karpathy/nanochat#844", "onlybooks/llm#4"),
        "masking#a-bug-from-the-wild-an-inverted-mask",
    ),
    Exhibit(
        "The norm overwrites the sum",
        "A deep model trains badly, although the norm stands before each part.",
        "Somebody who switches attention off and looks at the words.",
        norm_over_the_sum,
        norm_beside_the_sum,
        silent_attention_leaves_the_words,
        lambda f: f(V[0], nn.LayerNorm(8), torch.tanh).shape == V[0].shape,
        ("pytorch/pytorch#61165", "SHI-Labs/Compact-Transformers#25"),
        "depth_and_norms#a-bug-from-the-wild-a-norm-that-overwrites-the-residual",
    ),
    Exhibit(
        "Rotary pairs of the other kind",
        "The first word is right, then the text falls apart.",
        "Somebody who compares two programs on more than one word.",
        turn_halves,
        turn_neighbors,
        weights_of_neighbors_are_read_as_neighbors,
        lambda f: torch.equal(f(Q[0, 0, 0], torch.zeros(4)), Q[0, 0, 0]),
        ("rasbt/LLMs-from-scratch#747", "jzhang38/TinyLlama#24"),
        "positions#a-bug-from-the-wild-rope-with-the-other-pairing",
    ),
    Exhibit(
        "A counter that is not set back",
        "The first text is written well, the second one badly.",
        "Somebody who asks the same question twice.",
        places_that_go_on,
        places_that_begin_again,
        a_second_text_is_like_a_first,
        lambda f: len(f(Pointer(), 3)) == 3,
        ("rasbt/LLMs-from-scratch#925",),
        "cache_and_sharing",
    ),
    Exhibit(
        "The softmax that is thrown away",
        "What a model feeds back to itself grows with the text, in deep models until it overflows.",
        "Somebody who mixes equal states, or adds the same number to all weights.",
        mixture_without_softmax,
        mixture_with_softmax,
        a_mixture_of_equal_states_is_that_state,
        lambda f: f(V[0], torch.ones(1)).shape == V[0, 0].shape,
        ("lucidrains/feedback-transformer-pytorch#8",),
        "feed_back#a-bug-from-the-wild-a-softmax-that-is-thrown-away",
    ),
)
