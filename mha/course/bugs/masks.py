"""Bugs of masks. In this file too, True means "may look".

:Taught in: masking, split_and_merge, in_the_transformer, cache_and_sharing.
"""

import torch
import torch.nn.functional as F

from mha.course.bugs.exhibit import Exhibit
from mha.functional.masks import causal_mask

RANDOM = torch.Generator().manual_seed(0)


SCORES = torch.randn(5, 5, generator=RANDOM)


Q, K, V = (torch.randn(1, 1, 5, 8, generator=RANDOM) for _ in range(3))


SEE = causal_mask(5)


def passed_as_hidden(q, k, v, see):
    """Pass a mask in which True means hidden to a kernel in which True means look."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=~see)


def passed_as_seen(q, k, v, see):
    """Pass a mask in which True means look."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=see)


def the_first_token_sees_itself_alone(attend):
    """Under a causal mask the first token reads its own value and nothing else."""
    return torch.allclose(attend(Q, K, V, SEE)[0, 0, 0], V[0, 0, 0], atol=1e-6)


def erased_after_the_softmax(scores, see):
    """Take the softmax, then set the hidden weights to zero."""
    return scores.softmax(-1) * see


def scores_times_mask(scores, see):
    """Multiply the scores by the mask."""
    return (scores * see).softmax(-1)


def filled_with_almost_zero(scores, see):
    """Fill the hidden scores with minus a tiny number where minus a huge one was meant."""
    return scores.masked_fill(~see, -1e-12).softmax(-1)


def softmax_before_the_mask(scores, see):
    """Hide the scores after the softmax has been taken."""
    return scores.softmax(-1).masked_fill(~see, -torch.inf).clamp(min=0)


def hidden_before_the_softmax(scores, see):
    """Fill the hidden scores with minus infinity, then take the softmax."""
    return scores.masked_fill(~see, -torch.inf).softmax(-1)


def hidden_scores_change_nothing(weights):
    """Change the hidden scores: no weight may change."""
    other = torch.where(SEE, SCORES, SCORES + 3)
    return torch.allclose(weights(other, SEE), weights(SCORES, SEE), atol=1e-6)


def one_billion(scores, see):
    """Fill the hidden scores with minus a billion."""
    return scores.masked_fill(~see, -1e9).softmax(-1)


def the_least_number(scores, see):
    """Fill the hidden scores with the least number that this type has."""
    return scores.masked_fill(~see, torch.finfo(scores.dtype).min).softmax(-1)


def works_in_half_precision(weights):
    """The same code must run in float16."""
    try:
        return bool(weights(SCORES.half(), SEE).isfinite().all())
    except RuntimeError:  # "value cannot be converted … without overflow"
        return False


def a_row_of_zeros(scores, see):
    """Give a query that may see nothing a weight of zero on every key."""
    return hidden_before_the_softmax(scores, see).masked_fill(~see.any(-1, keepdim=True), 0)


def nothing_to_see_is_no_number_problem(weights):
    """Hide everything from one query: no weight may become NaN, and none may be given to a hidden key."""
    see = SEE & (torch.arange(5) != 2)[:, None]
    return bool((weights(SCORES, see)[2] == 0).all())


def padding_of_two_axes(lengths, scores):
    """Hide padding with a mask of shape (batch, key)."""
    see = torch.arange(scores.shape[-1]) < torch.tensor(lengths)[:, None]
    return scores.masked_fill(~see, -torch.inf).softmax(-1)


def padding_of_four_axes(lengths, scores):
    """Hide padding with a mask of shape (batch, 1, 1, key)."""
    see = torch.arange(scores.shape[-1]) < torch.tensor(lengths)[:, None, None, None]
    return scores.masked_fill(~see, -torch.inf).softmax(-1)


def each_sequence_hides_its_own_padding(weights):
    """As many sequences as tokens: the second one has one token, so no query may attend to its padding."""
    found = weights([3, 1, 2], torch.zeros(3, 2, 3, 3))
    return bool((found[1, ..., 1:] == 0).all())


def masks_tiled(see, heads):
    """Fold batch and heads into one axis, and repeat the masks one set below the other."""
    return see.repeat(heads, 1, 1)


def masks_interleaved(see, heads):
    """Fold batch and heads into one axis, and repeat the mask of each sequence for its heads."""
    return see.repeat_interleave(heads, 0)


def the_heads_of_a_sequence_share_its_mask(fold):
    """Rows 0 and 1 of the folded masks belong to the two heads of sequence 0."""
    see = torch.tensor([1.0, 0.0]).view(2, 1, 1)
    return fold(see, 2).flatten().tolist() == [1, 1, 0, 0]


def triangle_in_the_first_corner(new, keys):
    """Begin the triangle at the first key."""
    return torch.ones(new, keys, dtype=torch.bool).tril()


def triangle_in_the_last_corner(new, keys):
    """Let the last query see the last key."""
    return torch.ones(new, keys, dtype=torch.bool).tril(keys - new)


def a_new_token_sees_the_past(triangle):
    """Two new tokens after four old ones see five and six keys."""
    return triangle(2, 6).sum(-1).tolist() == [5, 6]


def weights_fit(f):
    """The shape is right, no weight is negative, and visible keys get weights."""
    found = f(SCORES, SEE)
    return found.shape == (5, 5) and bool((found >= 0).all()) and bool((found[SEE] > 0).all())


MASKS = (
    Exhibit(
        "True read the other way round",
        "The training loss falls faster than it should, and the model generates nonsense.",
        "A reader of the code, or `leaks`, in one line.",
        passed_as_hidden,
        passed_as_seen,
        the_first_token_sees_itself_alone,
        lambda f: f(Q, K, V, SEE).shape == V.shape,
        ("rasbt/LLMs-from-scratch#1061", "pytorch/pytorch#170415"),
        "whose_true",
    ),
    Exhibit(
        "Weights erased after the softmax",
        "The training loss is better than chance on random tokens.",
        "People who train on random tokens.",
        erased_after_the_softmax,
        hidden_before_the_softmax,
        hidden_scores_change_nothing,
        weights_fit,
        ("huggingface/pytorch-image-models#2236",),
        "masking#first-try-erase-the-weights",
    ),
    Exhibit(
        "The softmax before the mask",
        "The mask seems to work: hidden tokens get the weight zero.",
        "A reader who asks which of the two lines comes first.",
        softmax_before_the_mask,
        hidden_before_the_softmax,
        hidden_scores_change_nothing,
        weights_fit,
        ("lucidrains/memory-compressed-attention#2",),
        "masking#first-try-erase-the-weights",
    ),
    Exhibit(
        "Scores multiplied by the mask",
        "Results depend on how much padding a batch has.",
        "People who run a sequence alone and in a batch.",
        scores_times_mask,
        hidden_before_the_softmax,
        lambda f: bool((f(SCORES, SEE)[~SEE] == 0).all()),
        weights_fit,
        ("georg-wolflein/good-features#1",),
        "masking#second-try-erase-the-scores",
    ),
    Exhibit(
        "Minus nothing instead of minus infinity",
        "The mask has no visible effect.",
        "A reader who knows what ε was meant to be.",
        filled_with_almost_zero,
        hidden_before_the_softmax,
        lambda f: bool((f(SCORES, SEE)[~SEE] == 0).all()),
        weights_fit,
        ("hyunwoongko/transformer#10",),
        "masking#second-try-erase-the-scores",
    ),
    Exhibit(
        "Minus a billion in half precision",
        "The model works in float32 and raises an error in float16.",
        "Everyone who switches on half precision.",
        one_billion,
        the_least_number,
        works_in_half_precision,
        weights_fit,
        ("NVIDIA/apex#1052", "bentrevett/pytorch-seq2seq#191"),
        "how_negative",
    ),
    Exhibit(
        "A query with nothing to see",
        "NaN appears with the first batch that holds an empty sequence; one step later, all parameters are NaN.",
        "Everyone, immediately; the cause is harder to find.",
        hidden_before_the_softmax,
        a_row_of_zeros,
        nothing_to_see_is_no_number_problem,
        weights_fit,
        ("pytorch/pytorch#41508",),
        "masking#rows-with-nothing-to-look-at",
    ),
    Exhibit(
        "A padding mask of two axes",
        "Most batches raise an error, but those with as many sequences as tokens raise none.",
        "People who try another batch size.",
        padding_of_two_axes,
        padding_of_four_axes,
        each_sequence_hides_its_own_padding,
        lambda f: f([3, 3, 3], torch.zeros(3, 2, 3, 3)).shape == (3, 2, 3, 3),
        ("phlippe/uvadlc_notebooks#67", "pytorch/pytorch#81830"),
        "masking#sentences-of-unequal-length",
    ),
    Exhibit(
        "Masks repeated in the wrong order",
        "The result of a sequence depends on the length of the others in its batch.",
        "People who run a sequence alone and in a batch.",
        masks_tiled,
        masks_interleaved,
        the_heads_of_a_sequence_share_its_mask,
        lambda f: f(torch.zeros(2, 3, 3), 4).shape == (8, 3, 3),
        ("line/lighthouse#77", "ArrowLuo/CLIP4Clip#22"),
        "packed_and_folded#heads-and-sequences-in-one-axis",
    ),
    Exhibit(
        "The triangle in the wrong corner",
        "The loss on whole sequences is right, but the model repeats itself when it generates.",
        "People who compare generation with and without a KV cache.",
        triangle_in_the_first_corner,
        triangle_in_the_last_corner,
        a_new_token_sees_the_past,
        lambda f: f(2, 6).shape == (2, 6) and torch.equal(f(5, 5), SEE),
        ("pytorch/pytorch#103082", "Dao-AILab/flash-attention#282"),
        "masking#when-the-new-words-are-few",
    ),
)
