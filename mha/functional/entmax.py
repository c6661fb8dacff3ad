"""From scores to weights that can be exactly zero.

:Taught in: sparsify.
"""

from collections.abc import Iterable
from numbers import Real
from typing import Any

import torch
from entmax import entmax_bisect
from jaxtyping import Float
from torch import Tensor

from mha.checks import check_tensor, described

# Closer to 1 than this, α counts as 1: the power 1/(α − 1) would turn rounding errors into gradients. It is a power
# of 2, so that every type of numbers decides alike.
NEAREST = 2.0**-10


Alpha = float | int | Iterable[float | int] | Tensor


ROUNDS = {torch.float32: 30, torch.float64: 60}  # halvings until the threshold is as exact as the numbers


def entmax(scores: Float[Tensor, "*l h i j"], alpha: Alpha) -> Float[Tensor, "*l h i j"]:
    """Turn scores into weights, row by row: softmax at α = 1, and the larger α, the more weights are exactly zero.

    A weight is max(0, (α − 1)·score − τ)^(1/(α − 1)), where the threshold τ makes the row sum to 1. A row with nothing
    but −inf gets zeros.

    :param scores: (…, h, i, j), −inf where they are hidden.
    :param alpha: from 1 (softmax) to 2 (sparsemax), one number, or one for each head (h,).
    :Shapes: returns the weights (…, h, i, j).
    :Raises: ValueError for an ``alpha`` outside [1, 2], or one for another number of heads. A second derivative raises
        NotImplementedError. Transforms of torch.func, forward mode among them, raise torch's own error.
    :Source: Peters et al. 2019, section 3; Correia et al. 2019, section 3.2, for the slope in ``alpha``.
    :Differs from the released code: for α = 1 it gives softmax, where the code gives equal weights; a row of −inf gives
        zeros, where the code gives NaN; half precision is computed in float32.
    :Taught in: sparsify.
    """
    check_tensor(scores=scores)
    if scores.ndim < 3:
        raise ValueError(f"scores have shape {tuple(scores.shape)}, but must be (…, heads, queries, keys)")
    alpha = check_alpha(alpha, scores.shape[-3])
    above = alpha - 1 >= NEAREST
    if not asked(above.any(), otherwise=True):
        empty = (scores == -torch.inf).all(-1, keepdim=True)
        exact = scores.to(torch.promote_types(scores.dtype, torch.float32)).masked_fill(empty, 0)
        return exact.softmax(-1).masked_fill(empty, 0).to(scores.dtype)
    return entmax_of_heads(scores, alpha, all_above=asked(above.all(), otherwise=False))


def entmax_of_heads(
    scores: Float[Tensor, "*l h i j"], alpha: Float[Tensor, "h"], *, all_above: bool
) -> Float[Tensor, "*l h i j"]:
    """Do what :func:`entmax` does, without checking its arguments.

    :param scores: (…, h, i, j), −inf where they are hidden.
    :param alpha: one number for each head, (h,).
    :param all_above: whether α is above 1 in all heads: then softmax is left out.
    """
    exact = scores.to(torch.promote_types(scores.dtype, torch.float32))
    alpha = alpha.to(exact)[:, None, None]
    empty = (scores == -torch.inf).all(-1, keepdim=True)
    exact, sparse = exact.masked_fill(empty, 0), alpha - 1 >= NEAREST
    inputs = exact, alpha.where(sparse, alpha.new_full((), 1.5))
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        inputs = _OnceOnly.apply(inputs[0]), _OnceOnly.apply(inputs[1])  # type: ignore[no-untyped-call]
    weights: Tensor = entmax_bisect(*inputs, n_iter=ROUNDS[exact.dtype])
    if not all_above:
        weights = weights.where(sparse, exact.softmax(-1))
    return weights.masked_fill(empty, 0).to(scores.dtype)


def asked(x: Tensor, *, otherwise: bool) -> bool:
    """Read a truth value, where there is one.

    :param x: one truth value.
    :param otherwise: what is returned where it holds none yet: on the meta device, in a graph being compiled, and
        under ``torch.func.vmap``, where it is many.
    """
    if x.is_meta or torch.compiler.is_compiling():
        return otherwise
    try:
        return bool(x)
    except RuntimeError:
        return otherwise


class _OnceOnly(torch.autograd.Function):
    """Pass a tensor on whose gradient has no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _Refused.apply(gradient)  # type: ignore[no-any-return, no-untyped-call]


class _Refused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        raise NotImplementedError("entmax has no second derivative here: it would be NaN at every weight of zero")


def check_alpha(alpha: Alpha, heads: int) -> Tensor:
    """Return one α for each head; refuse what is none."""
    if not isinstance(alpha, Tensor):
        given = list(alpha) if isinstance(alpha, Iterable) and not isinstance(alpha, str) else alpha
        for number in given if isinstance(given, list) else [given]:
            if isinstance(number, bool) or not isinstance(number, Real):
                raise TypeError(f"alpha = {described(alpha)}: it must be a number, or one for each head")
        alpha = torch.tensor(given, dtype=torch.float64, device="cpu")
    if alpha.ndim > 1 or (alpha.ndim == 1 and len(alpha) != heads):
        raise ValueError(
            f"alpha has shape {tuple(alpha.shape)}, but there are {heads} heads: give one number, or one for each head"
        )
    if not asked(((alpha >= 1) & (alpha <= 2)).all(), otherwise=True):
        raise ValueError(f"alpha = {alpha.tolist()}: it must lie between 1 (softmax) and 2 (sparsemax)")
    return alpha.expand(heads)
