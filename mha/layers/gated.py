"""A gate behind each read: the word that asks also says how much of the answer it wants.

:Taught in: say_nothing.
"""

from collections.abc import Iterable
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha.checks import checked
from mha.functional.attention import NOTHING, Edits, split_heads
from mha.layers.base import Heads, channels_of, check_choice, cut_linear
from mha.layers.cache import KeyValueCache, MemoryCache
from mha.layers.cost import Cost, Part, count_linear, count_weights
from mha.layers.hooks import Tap
from mha.layers.positions import RelativePositions

GATES = ("head", "channel")


class GatedAttention(Heads):
    """Attend, and let the word that asks turn down what each head has read: a head may say nothing.

    The gate is sigmoid(x W_g), made of the layer's input at the query, and stands between the read and ``W_o``. It is
    one number for each head, or with ``gate="channel"`` one for each channel of each head.

    :Plain when: ``W_g`` is zero and ``W_o`` twice that of the plain layer: then every gate is 1/2.
    :Changes: each head's read is multiplied by its gate before ``W_o``; keys and values stay as they are.
    :Costs: d_model weights a head, or d_model a channel, and twice as many operations a word.
    :Shapes: as :class:`mha.MultiHeadAttention`; ``W_g`` (d_model → h, or → h·d), without a bias. Watch "gates"
        (b, h, i), or (b, h, i, d); "heads" are seen behind their gates.
    :Raises: ValueError for a ``gate`` that is neither "head" nor "channel", and as MultiHeadAttention.
    :Source: Qiu et al. 2025, "Gated Attention for Large Language Models"; the place is the one they call G1.
    :Differs from the released code: a matrix of its own, where the code widens ``W_q``; no norms of queries and keys;
        keys are not shared by several heads.
    :Taught in: say_nothing.
    """

    heads_apart = True

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
    ) -> None:
        """Make the layer; ``gate`` is "head" or "channel", the other keywords are those of :class:`mha.Heads`."""
        super().__init__(
            d_model, heads, d_head=d_head, kdim=kdim, vdim=vdim, bias=bias, dropout=dropout, positions=positions
        )
        if gate not in GATES:
            raise ValueError(f"gate = {gate!r}: give one of {GATES}, one gate for each head or for each channel")
        self.gate = gate
        self.W_g = nn.Linear(d_model, heads if gate == "head" else heads * self.d_head, bias=False)
        self.at_gates = Tap()

    @classmethod
    @checked
    @torch.no_grad()
    def from_plain(cls, layer: Heads, *, gate: str = "head") -> "GatedAttention":
        """Make a gated layer that computes what a plain one does: all gates are 1/2, and ``W_o`` is doubled."""
        gated = cls(**layer.settings(), gate=gate).to(layer.W_q.weight)
        for name, old in layer.named_parameters():
            gated.get_parameter(name).copy_(2 * old if name == "W_o.weight" else old)
        gated.W_g.weight.zero_()
        return gated.train(layer.training)

    def forward(
        self,
        query: Float[Tensor, "b i m"],
        key: Float[Tensor, "b j mk"] | None = None,
        value: Float[Tensor, "b j mv"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        *,
        is_causal: bool = False,
        cache: KeyValueCache | MemoryCache | None = None,
    ) -> Float[Tensor, "b i m"]:
        """Project, attend, gate, merge."""
        q, k, v = self.project(query, key, value, mask, is_causal=is_causal, cache=cache)
        return self.merge(self.attend(q, k, v, mask, gates=self._gates(query), is_causal=is_causal))

    def _gates(self, query: Tensor) -> Tensor:
        """Say how much of each read, or of each of its channels, every word wants: between 0 and 1."""
        gates = self.W_g(query).sigmoid()
        return self.at_gates(gates.mT if self.gate == "head" else split_heads(gates, self.heads))

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        *,
        is_causal: bool = False,
        scale: float | None = None,
        explicit: bool = False,
        edits: Edits = NOTHING,
        gates: Tensor | None = None,
    ) -> Tensor:
        """Read, and multiply by the gates: (b, h, i, d). Without gates every head counts fully."""
        edits = self.edits(edits)
        read = self.read(q, k, v, mask, is_causal=is_causal, scale=scale, explicit=explicit, edits=edits)
        if gates is not None:
            read = read * (gates[..., None] if gates.ndim == 3 else gates)
        return self.at_heads(read)

    @checked
    def take_heads(self, heads: Iterable[int]) -> "GatedAttention":
        """Make a smaller layer of some heads; each keeps its gate.

        :Taught in: pruning_heads.
        """
        chosen = check_choice(self, heads)
        smaller = super().take_heads(chosen)
        rows = torch.tensor(chosen) if self.gate == "head" else channels_of(self, chosen)
        smaller.W_g, smaller.at_gates = cut_linear(self.W_g, rows, 0), Tap()
        return smaller

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
