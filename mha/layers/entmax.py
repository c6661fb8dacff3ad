"""Attention weights that can be exactly zero, as sparse as each head learns to be.

:Taught in: sparsify.
"""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mha.checks import checked
from mha.functional.core import NO_CHANGES, Changes
from mha.functional.entmax import NEAREST, ROUNDS, Alpha, asked, check_alpha, entmax_of_heads
from mha.layers.cost import Cost, Part
from mha.layers.multi_head import Heads
from mha.layers.positions import RelativePositions

LOWEST_ALPHA = 1.01  # of a learned α


class EntmaxAttention(Heads):
    """Attend with α-entmax, whose weights can be exactly zero; each head learns how readily they are.

    :Plain when: ``alpha`` is 1 in every head: then the softmax of the core runs, on the fused kernel.
    :Changes: the normalization: α-entmax in place of softmax, with α = 1.01 + 0.99 · sigmoid(``raw_alpha``) in each
        head: a learned α never becomes 1, where its slope would be lost.
    :Costs: one parameter per head; the explicit formula, and 30 to 60 passes over the scores to find the thresholds.
    :Shapes: as :class:`mha.MultiHeadAttention`; ``alpha`` (h,).
    :Raises: ValueError for an ``alpha`` outside [1, 2], for a learned one outside (1.01, 2), and as MultiHeadAttention.
    :Source: Correia et al. 2019, section 3.
    :Differs from the released code: α starts at 1.5 in each head, there at random, and it comes down to 1.01 smoothly,
        there by clamping.
    :Taught in: sparsify.
    """

    inseparable = None
    of_heads = ("raw_alpha", "fixed_alpha", "start")
    fixed_alpha: Tensor  # where it is not learned

    @checked
    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        alpha: Alpha = 1.5,
        learned: bool = True,
        d_head: int | None = None,
        kdim: int | None = None,
        vdim: int | None = None,
        bias: bool | str = True,
        dropout: float = 0.0,
        positions: RelativePositions | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Make the layer; the other keywords are those of :class:`mha.Heads`.

        :param alpha: from 1 (softmax) to 2 (sparsemax), one number, or one for each head, (h,); 1.5 unless given.
        :param learned: whether each head learns its α, from ``alpha`` on; it stays as it is otherwise.
        """
        like: Any = {"device": device, "dtype": dtype}
        super().__init__(
            d_model, heads, d_head=d_head, kdim=kdim, vdim=vdim, bias=bias, dropout=dropout, positions=positions, **like
        )
        alpha = check_alpha(alpha, heads)
        if learned and not bool(((alpha > LOWEST_ALPHA) & (alpha < 2)).all()):
            raise ValueError(
                f"alpha = {alpha.tolist()}: a learned one is between {LOWEST_ALPHA} and 2; start there, or set "
                "learned=False"
            )
        self.start = alpha.tolist()
        of_heads = self.W_q.weight.new_empty(heads)
        self.raw_alpha = nn.Parameter(of_heads) if learned else None
        self.register_buffer("fixed_alpha", None if learned else of_heads)
        self._asked: tuple[Tensor, int | None, tuple[bool, bool]] | None = None
        self.reset_parameters()

    def changes(self) -> Changes:
        """Put α-entmax in the place of the softmax, unless α is 1 in every head."""
        alpha, (all_above, some_above) = self.alpha, self.above_one()
        if not some_above:
            return NO_CHANGES
        return Changes(normalize=lambda scores: entmax_of_heads(scores, alpha, all_above=all_above))

    @property
    def alpha(self) -> Float[Tensor, "h"]:
        """How sparse each head is: 1 is softmax, 2 sparsemax."""
        if self.raw_alpha is None:
            return self.fixed_alpha
        raw = self.raw_alpha.to(torch.promote_types(self.raw_alpha.dtype, torch.float32))
        return LOWEST_ALPHA + (2 - LOWEST_ALPHA) * raw.sigmoid()

    def above_one(self) -> tuple[bool, bool]:
        """Say whether α is above 1 in all heads, and whether it is in some: a learned α is in all.

        A fixed α is asked again only when it has changed, because the question waits for the device. In a graph that is
        being compiled nobody asks, and both softmax and entmax are computed.
        """
        if self.raw_alpha is not None:
            return True, True
        if torch.compiler.is_compiling() or self.fixed_alpha.is_meta:
            return False, True
        now = self.fixed_alpha, None if self.fixed_alpha.is_inference() else self.fixed_alpha._version
        if self._asked is None or self._asked[0] is not now[0] or self._asked[1] is None or self._asked[1] != now[1]:
            above = self.fixed_alpha - 1 >= NEAREST
            self._asked = *now, (asked(above.all(), otherwise=False), asked(above.any(), otherwise=True))
        return self._asked[2]

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Begin with the α that the layer was made with."""
        start = torch.tensor(self.start, dtype=torch.float64, device="cpu")
        if self.raw_alpha is None:
            self.fixed_alpha.copy_(start)
        else:
            self.raw_alpha.copy_(((start - LOWEST_ALPHA) / (2 - LOWEST_ALPHA)).logit())

    @classmethod
    def plain_settings(cls, layer: Heads) -> dict[str, Any]:
        """Let α be 1 in every head, and stay so."""
        return super().plain_settings(layer) | {"alpha": 1.0, "learned": False}

    @checked
    def cost(self, b: int, i: int, j: int | None = None, *, fresh: int | None = None, stored: bool = False) -> Cost:
        """Count one call on paper, as :meth:`Heads.cost` does, and the search for the thresholds."""
        sparse, learned = self.above_one()[1], self.raw_alpha is not None
        cost = super().cost(b, i, j, fresh=fresh, stored=stored or sparse)
        if sparse:  # each halving subtracts, clamps at zero, takes the power, sums: read 4 times, written 3 times
            size = self.W_q.weight.element_size()
            rows = size * b * self.heads * i * (j or i)
            cost.parts["thresholds"] = Part(0, 7 * ROUNDS[torch.promote_types(self.alpha.dtype, torch.float32)] * rows)
            cost = replace(cost, peak=cost.peak + 3 * rows)
        return replace(
            cost,
            parameters=cost.parameters + learned * self.heads,
            weights=cost.weights + learned * self.heads * self.W_q.weight.element_size(),
        )
