"""Bugs of layers that keep one state for all tokens (linear attention, Gated DeltaNet).

:Taught in: overwrite.
"""

import torch

from mha.course.bugs.exhibit import Exhibit

RANDOM = torch.Generator().manual_seed(24)


Q, K, V = (torch.randn(64, 4, generator=RANDOM) for _ in range(3))


def exponentiate_then_hide(log_decay):
    """Compute how much of each token is left at each later one; the future is hidden afterwards."""
    sums = log_decay.cumsum(0)
    past = torch.ones(len(sums), len(sums)).tril()
    return (sums[:, None] - sums).exp() * past


def hide_then_exponentiate(log_decay):
    """Compute how much of each token is left at each later one; the future is hidden as an exponent of −inf."""
    sums = log_decay.cumsum(0)
    future = torch.ones(len(sums), len(sums)).triu(1) == 1
    return (sums[:, None] - sums).masked_fill(future, -torch.inf).exp()


def strong_decay_is_finite(between):
    """With strong decay all factors must be finite, and all gradients too."""
    log_decay = torch.full((64,), -3.0, requires_grad=True)
    left = between(log_decay)
    (slope,) = torch.autograd.grad(left.sum(), log_decay)
    return bool(left.isfinite().all() and slope.isfinite().all())


def chunk_with_a_plain_mask(q, k, v, log_decay):
    """Let each token of a chunk read the tokens up to itself."""
    return (q @ k.T).tril() @ v


def chunk_with_its_decay(q, k, v, log_decay):
    """Let each token of a chunk read the tokens up to itself, as much as is left of them."""
    return (q @ k.T * hide_then_exponentiate(log_decay)) @ v


def a_chunk_is_the_loop(read):
    """One chunk must give the same as a state that decays, is written and is read, token after token."""
    log_decay, state, outputs = torch.full((64,), -0.1), torch.zeros(4, 4), []
    for n in range(64):
        state = log_decay[n].exp() * state + K[n][:, None] * V[n]
        outputs.append(Q[n] @ state)
    return torch.allclose(read(Q, K, V, log_decay), torch.stack(outputs), atol=1e-4)


REMEMBERING = (
    Exhibit(
        "Exponentiated before it is hidden",
        "A layer with decay trains for some steps, and then everything is NaN.",
        "People who try strong decay and look at the gradient, too.",
        exponentiate_then_hide,
        hide_then_exponentiate,
        strong_decay_is_finite,
        lambda f: torch.allclose(f(torch.full((8,), -0.1)).diagonal(), torch.ones(8)),
        ("fla-org/flash-linear-attention#99",),
        "overwrite#a-bug-from-the-wild-decay-that-overflows-above-the-diagonal",
    ),
    Exhibit(
        "A formula without its decay",
        "Outputs computed in chunks with the formula differ from those of the loop, and more so for longer chunks.",
        "People who compare the outputs for one chunk with those of the loop.",
        chunk_with_a_plain_mask,
        chunk_with_its_decay,
        a_chunk_is_the_loop,
        lambda f: torch.allclose(f(Q, K, V, torch.zeros(64)), (Q @ K.T).tril() @ V, atol=1e-4),
        ("NVlabs/GatedDeltaNet#13",),
        "decay_first#a-chunk-that-forgets-to-decay",
    ),
)
