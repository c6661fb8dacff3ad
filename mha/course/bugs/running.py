"""Bugs that depend on the mode, on the order of calls, or on where the parameters come from.

:Taught in: masking, in_the_transformer, positions, depth_and_norms, cache_and_sharing, feed_back.
"""

import torch
import torch.nn.functional as F
from torch import nn

from mha.course.bugs.exhibit import Exhibit

RANDOM = torch.Generator().manual_seed(0)


Q, K, V = (torch.randn(1, 1, 5, 8, generator=RANDOM) for _ in range(3))


def causal_in_training_only(q, k, v, training):
    """Hide the future during training only."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=training)


def causal_always(q, k, v, training):
    """Hide the future, whatever the mode."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def both_modes_agree(attend):
    """Without dropout, training and evaluation compute the same."""
    return torch.allclose(attend(Q, K, V, True), attend(Q, K, V, False))


def dropout_always(q, k, v, training):
    """Pass the dropout rate, whatever the mode."""
    return F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)


def dropout_in_training(q, k, v, training):
    """Pass the dropout rate in training, and zero otherwise."""
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
    """Take a mask and pass it on."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=see)


def another_mask_gives_another_result(attend):
    """Two different masks must give two different results."""
    see = torch.ones(5, 5, dtype=torch.bool)
    return not torch.allclose(attend(Q, K, V, see), attend(Q, K, V, see.tril()))


def norm_over_the_sum(x, norm, attend):
    """Overwrite the input, which the residual sum should carry on, with the normalized input."""
    x = norm(x)
    return x + attend(x)


def norm_beside_the_sum(x, norm, attend):
    """Normalize what goes into the layer (pre-norm), and carry the input itself on."""
    return x + attend(norm(x))


def silent_attention_leaves_the_input(block):
    """With attention switched off, the output of the block is its input."""
    x = torch.arange(12.0).view(1, 3, 4)
    return torch.equal(block(x, nn.LayerNorm(4), torch.zeros_like), x)


def rotate_halves(x, angle):
    """Pair channel c with channel c + d/2, and rotate each pair."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


def rotate_neighbors(x, angle):
    """Pair channel 2c with channel 2c + 1, and rotate each pair."""
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1).flatten(-2)


def scores_as_stored(q, k, angle):
    """Rotate halves as the program does, although the model that q and k come from was trained on neighbors."""
    return rotate_halves(q, angle * 0) @ rotate_halves(k, angle)


def scores_of_reordered_rows(q, k, angle):
    """Rotate halves, after each channel of q and k moved to where this layout expects it."""
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])
    return rotate_halves(q[order], angle * 0) @ rotate_halves(k[order], angle)


def what_was_trained_on_neighbors_stays_right(scores):
    """Parameters trained with neighboring pairs must give the scores of training, at every distance."""
    q, k, angle = Q[0, 0, 0], K[0, 0, 0], torch.tensor([1.0, 0.5, 0.25, 0.1])
    trained = [rotate_neighbors(q, angle * 0) @ rotate_neighbors(k, angle * n) for n in range(4)]
    return all(torch.allclose(scores(q, k, angle * n), trained[n], atol=1e-5) for n in range(4))


class Pointer:
    """A counter of positions that two sequences share."""

    def __init__(self):
        """Begin at the first position."""
        self.position = 0


def positions_that_go_on(pointer, tokens):
    """Number the tokens from the end of the last sequence."""
    first, pointer.position = pointer.position, pointer.position + tokens
    return list(range(first, first + tokens))


def positions_that_begin_again(pointer, tokens):
    """Number the tokens of a new sequence from zero."""
    pointer.position = tokens
    return list(range(tokens))


def a_second_sequence_is_like_a_first(number):
    """The same sequence twice gets the same positions twice."""
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
        "Training and validation loss are far apart, although dropout is off.",
        "People who run the same input in both modes.",
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
        "People who evaluate twice.",
        dropout_always,
        dropout_in_training,
        evaluation_is_repeatable,
        lambda f: f(Q, K, V, False).shape == V.shape,
        ("pytorch/pytorch#42929", "karpathy/ng-video-lecture#30"),
        "dropout",
    ),
    Exhibit(
        "The argument that is never used",
        "Padding changes results, although a mask is passed.",
        "People who pass a different mask and compare.",
        a_mask_that_is_not_used,
        a_mask_that_is_used,
        another_mask_gives_another_result,
        lambda f: f(Q, K, V, torch.ones(5, 5, dtype=torch.bool)).shape == V.shape,
        ("karpathy/nanochat#844", "onlybooks/llm#4"),
        "masking#a-bug-from-the-wild-an-inverted-mask",
    ),
    Exhibit(
        "The norm overwrites the sum",
        "A deep model trains badly, although it is pre-norm.",
        "People who switch attention off and compare the output with the input.",
        norm_over_the_sum,
        norm_beside_the_sum,
        silent_attention_leaves_the_input,
        lambda f: f(V[0], nn.LayerNorm(8), torch.tanh).shape == V[0].shape,
        ("pytorch/pytorch#61165", "SHI-Labs/Compact-Transformers#25"),
        "depth_and_norms#a-bug-from-the-wild-a-norm-that-overwrites-the-residual",
    ),
    Exhibit(
        "RoPE layouts mixed",
        "The first token is right, then the text falls apart.",
        "People who compare two programs on more than one token.",
        scores_as_stored,
        scores_of_reordered_rows,
        what_was_trained_on_neighbors_stays_right,
        lambda f: torch.allclose(f(Q[0, 0, 0], K[0, 0, 0], torch.zeros(4)), Q[0, 0, 0] @ K[0, 0, 0], atol=1e-5),
        ("rasbt/LLMs-from-scratch#747", "jzhang38/TinyLlama#24"),
        "positions#a-bug-from-the-wild-rope-with-the-other-pairing",
        right=(rotate_halves, rotate_neighbors),
    ),
    Exhibit(
        "A counter that is not reset",
        "The first answer is good, and the second one is bad.",
        "People who send the same prompt twice.",
        positions_that_go_on,
        positions_that_begin_again,
        a_second_sequence_is_like_a_first,
        lambda f: len(f(Pointer(), 3)) == 3,
        ("rasbt/LLMs-from-scratch#925",),
        "cache_and_sharing",
    ),
    Exhibit(
        "The softmax that is thrown away",
        "What a model feeds back to itself grows with the sequence; in deep models, it grows until it overflows.",
        "People who mix equal states, or add the same number to all logits of the mixture.",
        mixture_without_softmax,
        mixture_with_softmax,
        a_mixture_of_equal_states_is_that_state,
        lambda f: f(V[0], torch.ones(1)).shape == V[0, 0].shape,
        ("lucidrains/feedback-transformer-pytorch#8",),
        "feed_back#a-bug-from-the-wild-a-softmax-that-is-thrown-away",
    ),
)
