"""Bugs of layers that keep a latent (MLA).

:Taught in: compress.
"""

import torch

from mha.course.bugs.exhibit import Exhibit

RANDOM = torch.Generator().manual_seed(0)
OWN, ROTATED = 8, 8  # channels of a query that come from the latent, and those that are rotated (RoPE)


Q, K, V = (torch.randn(1, 2, 5, OWN + ROTATED, generator=RANDOM) for _ in range(3))


def scaled_by_the_first_part(q, k, v):
    """Divide by the square root of the number of channels from the latent, and forget the rotated ones."""
    scores = q @ k.mT / OWN**0.5
    return scores.masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf).softmax(-1) @ v


def scaled_by_both_parts(q, k, v):
    """Divide by the square root of the number of all channels that are compared."""
    scores = q @ k.mT / (OWN + ROTATED) ** 0.5
    return scores.masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf).softmax(-1) @ v


def every_token_agrees_with_the_kernel(attend):
    """Torch's own kernel divides by the square root of the whole width, and every token must agree with it."""
    right = torch.nn.functional.scaled_dot_product_attention(Q, K, V, is_causal=True)
    return torch.allclose(attend(Q, K, V), right, atol=1e-5)


def the_first_token_agrees(attend):
    """The first token sees one key, whose weight is 1 whatever the scale."""
    return torch.allclose(attend(Q, K, V)[:, :, 0], V[:, :, 0], atol=1e-5)


LATENT = (
    Exhibit(
        "A scale that lacks a factor",
        "The first token of every sequence is right, and the others are not.",
        "People who compare two programs on more than one token.",
        scaled_by_the_first_part,
        scaled_by_both_parts,
        every_token_agrees_with_the_kernel,
        the_first_token_agrees,
        ("onnxruntime/mobius#548",),
        "compress#a-bug-from-the-wild-a-missing-factor-in-the-softmax-scale",
    ),
)
