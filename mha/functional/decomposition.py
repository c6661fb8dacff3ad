"""Several matrices from few shared vectors: each matrix is a sum of the same rank-one terms, weighted in its own way.

    matrix h ≈ Σ_r mixing[h, r] · left[:, r] right[:, r]ᵀ

:Taught in: collaborate.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from mha.checks import check_finite, check_whole, checked

CLOSE = 1e-12  # a fit this close, relative to the matrices, is exact: rounding is all that is left


class Shared(NamedTuple):
    """The shared vectors of :func:`fit_shared`, and how each matrix mixes them.

    :param left: the left vectors, (m, r).
    :param mixing: how much of each term each matrix takes, (h, r).
    :param right: the right vectors, (k, r).
    :Taught in: collaborate.
    """

    left: Tensor
    mixing: Tensor
    right: Tensor

    def matrices(self) -> Float[Tensor, "h m k"]:
        """Put the matrices together again."""
        return torch.einsum("mr,hr,kr->hmk", self.left, self.mixing, self.right)

    @checked
    def error(self, matrices: Float[Tensor, "h m k"]) -> float:
        """Say how far they are from the given ones, as a share of their size (Frobenius norm).

        :param matrices: the matrices to compare with, (h, m, k).
        """
        check_finite(matrices=matrices)
        own = len(self.mixing), len(self.left), len(self.right)
        if matrices.shape != own:
            raise ValueError(f"matrices have shape {tuple(matrices.shape)}, but these describe {own}: give the same")
        return float((self.matrices() - matrices).norm() / matrices.norm().clamp_min(torch.finfo(matrices.dtype).tiny))


@checked
def keep_largest(matrices: Float[Tensor, "h m k"], rank: int) -> Shared:
    """Cut each matrix into singular pairs and keep the ``rank`` largest of all: each belongs to one matrix only.

    :param matrices: (h, m, k), one for each head.
    :param rank: how many pairs are kept, r.
    :Raises: ValueError where there are fewer pairs than ``rank``, or none is asked for.
    :Taught in: collaborate.
    """
    check_finite(matrices=matrices)
    left, sizes, right = torch.linalg.svd(matrices, full_matrices=False)
    if not 1 <= rank <= sizes.numel():
        raise ValueError(f"rank = {rank}: these matrices have 1 to {sizes.numel()} singular pairs together")
    chosen = sizes.flatten().argsort(descending=True, stable=True)[:rank]
    head, pair = chosen // sizes.shape[1], chosen % sizes.shape[1]
    roots = sizes[head, pair].sqrt()
    mixing = torch.zeros(len(matrices), rank).to(matrices).index_put((head, torch.arange(rank)), roots.new_ones(()))
    return Shared(left[head, :, pair].T * roots, mixing, right[head, pair].T * roots)


@checked
def fit_shared(
    matrices: Float[Tensor, "h m k"], rank: int, *, rounds: int = 200, start: Shared | None = None
) -> Shared:
    """Find ``rank`` shared terms for several matrices: alternating least squares from a good initialization.

    In turn the left vectors, the right ones and the mixing are solved for, the other two held fixed, so that the error
    never grows. It ends where a round gains less than a millionth, or after ``rounds``.

    :param matrices: (h, m, k), one for each head.
    :param rank: how many terms they share, r.
    :param rounds: how many rounds at most; 200 unless given.
    :param start: where the search begins; :func:`keep_largest` unless given.
    :Shapes: in the result left and right vectors of a term are equally long, and its mixing has length 1.
    :Raises: ValueError for a rank or a number of rounds that is out of range.
    :Source: Carroll and Chang 1970; Harshman 1970 (canonical polyadic decomposition).
    :Taught in: collaborate.
    """
    check_whole(0, rounds=rounds)
    found = keep_largest(matrices, rank) if start is None else start
    before = found.error(matrices)
    for _ in range(rounds):
        if before < CLOSE:
            break
        better = _round(matrices, found)
        now = better.error(matrices)
        found = better if now < before else found
        if before - now < 1e-6 * before:
            break
        before = now
    return _balance(found)


def _round(t: Tensor, found: Shared) -> Shared:
    left, mixing, right = found
    left = torch.einsum("hmk,hr,kr->mr", t, mixing, right) @ _inverse(mixing, right)
    right = torch.einsum("hmk,hr,mr->kr", t, mixing, left) @ _inverse(mixing, left)
    mixing = torch.einsum("hmk,mr,kr->hr", t, left, right) @ _inverse(left, right)
    return _balance(Shared(left, mixing, right))


def _inverse(one: Tensor, other: Tensor) -> Tensor:
    """Invert the products of every two terms; terms that say the same share the work."""
    return torch.linalg.pinv((one.T @ one) * (other.T @ other), hermitian=True)  # type: ignore[no-any-return]


def _balance(found: Shared) -> Shared:
    """Make left and right vectors equally long and the mixing of each term of length 1: the matrices stay."""
    sizes = [part.norm(dim=0).clamp_min(torch.finfo(part.dtype).tiny) for part in found]
    both = (sizes[0] * sizes[1] * sizes[2]).sqrt()
    return Shared(found.left / sizes[0] * both, found.mixing / sizes[1], found.right / sizes[2] * both)
