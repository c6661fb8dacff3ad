"""Bugs of switching heads off and cutting them out.

:Taught in: pruning_heads.
"""

import torch

from mha.course.bugs.exhibit import Exhibit

RANDOM = torch.Generator().manual_seed(0)


Q, K, V = (torch.randn(2, 4, 50, 16, generator=RANDOM) for _ in range(3))  # 4 heads of width 16


W_O = torch.randn(64, 64, generator=RANDOM)  # as nn.Linear stores it: (out, in)


PLACE = "pruning_heads#a-bug-from-the-wild-heads-chosen-along-the-wrong-axis"


def mask_on_what_nobody_reads(q, k, v, keep):
    """Multiply the scores by the mask of heads, after the weights have been computed from them."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    weights = scores.softmax(-1)
    scores = scores * keep[:, None, None]
    return weights @ v


def mask_on_the_weights(q, k, v, keep):
    """Multiply the weights by the mask of heads."""
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
    return weights * keep[:, None, None] @ v


def a_head_without_weight_is_silent(read):
    """A head whose factor is 0 adds nothing, and the others do not change."""
    found = read(Q, K, V, torch.tensor([1.0, 0.0, 1.0, 1.0]))
    return bool((found[:, 1] == 0).all()) and bool((found[:, 0] != 0).any())


def all_kept_is_plain(read):
    """With a factor of 1 for every head it is plain attention."""
    plain = (Q @ K.mT / Q.shape[-1] ** 0.5).softmax(-1) @ V
    return torch.allclose(read(Q, K, V, torch.ones(4)), plain, atol=1e-5)


def cleared_by_rows(w_o, head, width):
    """Clear the rows of a head in the output matrix."""
    w_o = w_o.clone()
    w_o[head * width : (head + 1) * width] = 0
    return w_o


def cleared_by_columns(w_o, head, width):
    """Clear the columns of a head in the output matrix: nn.Linear stores (out, in), and heads are its input."""
    w_o = w_o.clone()
    w_o[:, head * width : (head + 1) * width] = 0
    return w_o


def clearing_is_silencing(clear):
    """Clearing a head's part of the output matrix must give the same as setting the head output to zero."""
    z = torch.randn(50, 64, generator=torch.Generator().manual_seed(1))
    silenced = z.clone()
    silenced[:, 16:32] = 0
    return torch.allclose(z @ clear(W_O, 1, 16).T, silenced @ W_O.T, atol=1e-4)


def a_quarter_is_cleared(clear):
    """One of four heads: a quarter of the numbers is 0 and the shape has not changed."""
    cleared = clear(W_O, 1, 16)
    return cleared.shape == W_O.shape and int((cleared == 0).sum()) == W_O.numel() // 4


PRUNING = (
    Exhibit(
        "A mask of heads on the wrong tensor",
        "Every head can be switched off, and the model is as good as before.",
        "People who switch off all heads at once.",
        mask_on_what_nobody_reads,
        mask_on_the_weights,
        a_head_without_weight_is_silent,
        all_kept_is_plain,
        ("huggingface/transformers#9853", "Skhaki18/optin-transformer-pruning#6"),
        PLACE,
    ),
    Exhibit(
        "A head cleared along the wrong axis",
        "One head is removed, and the damage is several times what was predicted.",
        "People who compare the cleared layer with a silenced head.",
        cleared_by_rows,
        cleared_by_columns,
        clearing_is_silencing,
        a_quarter_is_cleared,
        ("microsoft/nni#5187",),
        PLACE,
    ),
)
