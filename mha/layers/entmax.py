"""Attention weights that can be exactly zero, as sparse as each head learns to be.

:Taught in: sparsify.
"""

from collections.abc import Iterable
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha.checks import checked
from mha.functional.attention import NOTHING, Edits
from mha.functional.entmax import NEAREST, ROUNDS, Alpha, asked, check_alpha, entmax
from mha.layers.base import Heads
from mha.layers.cache import KeyValueCache, MemoryCache
from mha.layers.cost import Cost, Part
from mha.layers.positions import RelativePositions

LOWEST = 1.01  # of a learned α


class EntmaxAttention(Heads):
    """Attend with weights that can be exactly zero; each head learns how readily they are.

    :Plain when: ``alpha`` is 1 in every head: then the softmax of the core runs, on the fused kernel.
    :Changes: the normalization: α-entmax in place of softmax, with α = 1.01 + 0.99 · sigmoid(``raw_alpha``) in each
        head: a learned α never becomes 1, where its slope would be lost.
    :Costs: one weight a head; the explicit formula, and 30 to 60 passes over the scores to find the thresholds.
    :Shapes: as :class:`mha.MultiHeadAttention`; ``alpha`` (h,).
    :Raises: ValueError for an ``alpha`` outside [1, 2], for a learned one outside (1.01, 2), and as MultiHeadAttention.
    :Source: Correia et al. 2019, section 3.
    :Differs from the released code: α starts at 1.5 in each head, there at random, and it comes down to 1.01 smoothly,
        there by clamping.
    :Taught in: sparsify.
    """

    heads_apart = True
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
    ) -> None:
        """Make the layer; ``alpha`` is one number or one a head, and stays as it is unless it is ``learned``."""
        super().__init__(
            d_model, heads, d_head=d_head, kdim=kdim, vdim=vdim, bias=bias, dropout=dropout, positions=positions
        )
        alpha = check_alpha(alpha, heads)
        if learned and not bool(((alpha > LOWEST) & (alpha < 2)).all()):
            raise ValueError(
                f"alpha = {alpha.tolist()}: a learned one is between {LOWEST} and 2; start there, or set learned=False"
            )
        self.start = alpha.tolist()
        of_heads = self.W_q.weight.new_empty(heads)
        self.raw_alpha = nn.Parameter(of_heads) if learned else None
        self.register_buffer("fixed_alpha", None if learned else of_heads)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Begin with the α that the layer was made with."""
        start = torch.tensor(self.start, dtype=torch.float64, device="cpu")
        if self.raw_alpha is None:
            self.fixed_alpha.copy_(start)
        else:
            self.raw_alpha.copy_(((start - LOWEST) / (2 - LOWEST)).logit())

    @classmethod
    @checked
    @torch.no_grad()
    def from_plain(cls, layer: Heads, alpha: Alpha = 1.0, *, learned: bool = False) -> "EntmaxAttention":
        """Make a sparse layer with the weights of a plain one: the same layer, unless ``alpha`` is above 1."""
        sparse = cls(**layer.settings(), alpha=alpha, learned=learned).to(layer.W_q.weight)
        for name, old in layer.named_parameters():
            sparse.get_parameter(name).copy_(old)
        return sparse.train(layer.training)

    @property
    def alpha(self) -> Float[Tensor, "h"]:
        """How sparse each head is: 1 is softmax, 2 sparsemax."""
        if self.raw_alpha is None:
            return self.fixed_alpha
        raw = self.raw_alpha.to(torch.promote_types(self.raw_alpha.dtype, torch.float32))
        return LOWEST + (2 - LOWEST) * raw.sigmoid()

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
        """Project, attend, merge."""
        q, k, v = self.project(query, key, value, mask, is_causal=is_causal, cache=cache)
        return self.merge(self.attend(q, k, v, mask, is_causal=is_causal, edits=self.normalizing()))

    def normalizing(self) -> Edits:
        """Return what replaces the softmax of the core: nothing where every α is 1."""
        alpha = self.alpha
        plain = asked((alpha - 1 < NEAREST).all(), otherwise=False)
        return NOTHING if plain else Edits(normalize=lambda scores: entmax(scores, alpha))

    @checked
    def take_heads(self, heads: Iterable[int]) -> "EntmaxAttention":
        """Make a smaller layer of some heads; each keeps its α.

        :Taught in: pruning_heads.
        """
        chosen = list(heads)
        smaller = super().take_heads(chosen)
        for name in ("raw_alpha", "fixed_alpha"):
            if getattr(self, name) is not None:
                getattr(smaller, name).data = getattr(self, name).detach()[sorted(chosen)].clone()
        smaller.start = [self.start[h] for h in sorted(chosen)]
        return smaller

    @checked
    def cost(self, b: int, i: int, j: int | None = None, *, fresh: int | None = None, stored: bool = False) -> Cost:
        """Count one call on paper, as :meth:`Heads.cost` does, and the search for the thresholds."""
        sparse, learned = bool(self.normalizing()), self.raw_alpha is not None
        cost = super().cost(b, i, j, fresh=fresh, stored=stored or sparse)
        if sparse:  # each halving subtracts, cuts at zero, takes the power, sums: 4 readings and 3 writings
            size = self.W_q.weight.element_size()
            rows = size * b * self.heads * i * (j or i)
            cost.parts["thresholds"] = Part(0, 7 * ROUNDS[torch.promote_types(self.alpha.dtype, torch.float32)] * rows)
            cost = replace(cost, peak=cost.peak + 3 * rows)
        return replace(
            cost,
            parameters=cost.parameters + learned * self.heads,
            weights=cost.weights + learned * self.heads * self.W_q.weight.element_size(),
        )
