"""A gate on each head output: the token that asks also says how much of the answer it wants.

:Taught in: say_nothing.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from mha.checks import checked
from mha.functional import core
from mha.layers.cost import Cost, Part, count_linear, count_weights
from mha.layers.hooks import Tap
from mha.layers.multi_head import Heads
from mha.layers.positions import RelativePositions

GATE_SIZES = ("head", "channel")


class GatedAttention(Heads):
    """Attend with gated attention: the query's token scales down each head output, so a head may say nothing.

    The gate is sigmoid(x W_g), made of the layer's input at the query, and acts between the head output and ``W_o``. It
    is one number for each head, or with ``gate="channel"`` one for each channel of each head.

    :Plain when: ``W_g`` is zero and ``W_o`` twice that of the plain layer: then every gate is 1/2.
    :Changes: each head output is multiplied by its gate before ``W_o``; keys and values stay as they are.
    :Costs: d_model parameters per head, or d_model per channel, and twice as many FLOPs per token.
    :Shapes: as :class:`mha.MultiHeadAttention`; ``W_g`` (d_model → h, or → h·d), without a bias. Watch "gates"
        (b, h, i), or (b, h, i, d); "heads" are seen after their gates.
    :Raises: ValueError for a ``gate`` that is neither "head" nor "channel", and as MultiHeadAttention.
    :Source: Qiu et al. 2025, "Gated Attention for Large Language Models"; the position is the one they call G1.
    :Differs from the released code: a matrix of its own, where the code widens ``W_q``; no norms of queries and keys;
        keys are not shared by several heads.
    :Taught in: say_nothing.
    """

    inseparable = None
    of_heads = ("W_g",)

    @checked
    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        gate: str = "head",
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

        :param gate: "head" or "channel": one gate for each head, or for each channel of each head; the first
            unless given.
        """
        like: Any = {"device": device, "dtype": dtype}
        super().__init__(
            d_model, heads, d_head=d_head, kdim=kdim, vdim=vdim, bias=bias, dropout=dropout, positions=positions, **like
        )
        if gate not in GATE_SIZES:
            raise ValueError(f"gate = {gate!r}: give one of {GATE_SIZES}, one gate for each head or for each channel")
        self.gate = gate
        width = heads if gate == "head" else heads * self.d_head
        self.W_g = nn.Linear(d_model, width, bias=False, **like)
        self.at_gates = Tap()

    def _gates(self, query: Tensor, q: Tensor) -> Tensor:
        """Say how much of each head output, or of each of its channels, every token wants: between 0 and 1."""
        gates = self.W_g(query).sigmoid()
        if self.gate == "head":
            return self.at_gates(gates.mT)[..., None]
        return self.at_gates(core.split_heads(gates, self.heads))

    def _become(self, layer: Heads) -> None:
        """Open every gate by half, and double ``W_o``."""
        super()._become(layer)
        self.W_o.weight.mul_(2)
        self.W_g.weight.zero_()

    @checked
    def cost(self, b: int, i: int, j: int | None = None, *, fresh: int | None = None, stored: bool = False) -> Cost:
        """Count one call on paper, as :meth:`Heads.cost` does, and the gates."""
        cost = super().cost(b, i, j, fresh=fresh, stored=stored)
        size, own = self.W_g.weight.element_size(), count_weights(self.W_g)
        read, gates = b * i * self.heads * self.d_head, b * i * self.W_g.out_features
        cost.parts["W_g"] = count_linear(self.W_g, b * i)
        cost.parts["gates"] = Part(0, size * (2 * read + gates))
        return replace(
            cost,
            parameters=cost.parameters + own,
            weights=cost.weights + own * size,
            peak=cost.peak + size * (gates + max(0, read - b * i * self.d_model)),  # the product, then the output
        )
