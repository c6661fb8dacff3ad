"""Heads that talk: each scores with a mixture of all heads' scores, and reads with a mixture of all heads' weights.

:Taught in: compose.
"""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mha.checks import check_like_weights, check_tensor, checked
from mha.functional.core import Changes
from mha.layers.cost import Cost, Part
from mha.layers.multi_head import Heads
from mha.layers.positions import RelativePositions


class TalkingAttention(Heads):
    """Attend with talking heads: they mix their scores before the softmax, and their weights after it.

    :Plain when: both mixing matrices are the identity, as they are in a new layer.
    :Changes: ``mix_scores`` acts on the scores before the mask, ``mix_weights`` on the weights, both along the heads.
    :Costs: 2 · heads² parameters and 4·n²·heads² FLOPs more; the explicit formula runs instead of the fused kernel.
    :Shapes: as :class:`mha.MultiHeadAttention`; ``mix_scores`` and ``mix_weights`` (h, h), from row to column.
    :Raises: ValueError as MultiHeadAttention, and where heads are to be taken out.
    :Source: Shazeer et al. 2020, section 3.
    :Differs from the paper: one number of heads for scores, softmax and values, because masks, caches, watchers and
        ``W_o`` all count heads; rows and columns of zeros in the mixing matrices give the paper's three numbers.
    :Differs from the released code: both matrices begin as the identity, and nothing is added to what they make; one
        popular library adds the unmixed scores to the mixed ones, so that its scores begin twice as large.
    :Taught in: compose.
    """

    inseparable = "each head mixes in the scores and weights of all others"

    @checked
    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        d_head: int | None = None,
        kdim: int | None = None,
        vdim: int | None = None,
        bias: bool | str = True,
        dropout: float = 0.0,
        positions: RelativePositions | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Make the layer, whose heads do not talk yet; keywords are those of :class:`mha.Heads`."""
        like: Any = {"device": device, "dtype": dtype}
        super().__init__(
            d_model, heads, d_head=d_head, kdim=kdim, vdim=vdim, bias=bias, dropout=dropout, positions=positions, **like
        )
        self.mix_scores, self.mix_weights = (nn.Parameter(self.W_q.weight.new_empty(heads, heads)) for _ in range(2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Begin with heads that do not talk."""
        nn.init.eye_(self.mix_scores)
        nn.init.eye_(self.mix_weights)

    def changes(self) -> Changes:
        """Mix the scores, and then the weights."""
        return Changes(scores=lambda s: mix(s, self.mix_scores), weights=lambda w: mix(w, self.mix_weights))

    @checked
    def cost(self, b: int, i: int, j: int | None = None, *, fresh: int | None = None, stored: bool = True) -> Cost:
        """Count one call, as :meth:`Heads.cost` does; the explicit formula runs, so weights are always ``stored``."""
        plain = super().cost(b, i, j, fresh=fresh, stored=True)
        size, scores, more = self.mix_scores.element_size(), b * self.heads * i * (j or i), 2 * self.heads**2
        mixing = Part(2 * scores * self.heads, size * (2 * scores + more // 2))
        parts = {**plain.parts, "mix scores": mixing, "mix weights": mixing}
        sums = {"parameters": plain.parameters + more, "weights": plain.weights + size * more}
        return replace(plain, parts=parts, peak=plain.peak + size * scores, **sums)


def check_mixing(x: Tensor, mixing: Tensor) -> None:
    """Refuse heads that a matrix cannot mix."""
    check_tensor(4, x=x)
    check_tensor(2, mixing=mixing)
    check_like_weights("x", x, mixing)
    if x.shape[1] != len(mixing):
        raise ValueError(f"mixing has shape {tuple(mixing.shape)}, but x has {x.shape[1]} heads: give a row for each")


def mix(x: Float[Tensor, "b g i j"], mixing: Float[Tensor, "g h"]) -> Float[Tensor, "b h i j"]:
    """Make each head of the result a weighted sum of all heads: Σ_g x_g · mixing[g, h], at every query and key.

    :param x: the scores or weights of all heads.
    :param mixing: how much of head g (row) goes into head h (column).
    :Taught in: compose.
    """
    check_mixing(x, mixing)
    return torch.einsum("bgij,gh->bhij", x, mixing)
