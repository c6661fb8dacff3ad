"""The plain layers: many heads, and one head alone.

:Taught in: why_attention, why_many_heads, split_and_merge, output_projection.
"""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha.checks import checked
from mha.functional.attention import NOTHING, attend
from mha.layers.base import Heads, check_inputs, default_inputs
from mha.layers.cache import KeyValueCache, MemoryCache
from mha.layers.cost import Cost, count_attention
from mha.layers.hooks import Tap, Tapped, tapped


class MultiHeadAttention(Heads):
    """Attend several times at once, each time with own queries, keys and values, and mix what was read.

    :Costs: 4 · d_model² weights and 8·n·d_model² + 4·n²·d_model operations, whatever the number of heads.
    :Shapes: query (b, i, d_model), key (b, j, kdim), value (b, j, vdim), mask (i, j) or (b, h, i, j), True = may
        look; returns (b, i, d_model).
    :Raises: ValueError or TypeError for shapes, dtypes or masks that do not fit, each with the way out.
    :Source: Vaswani et al. 2017, section 3.2.2.
    :Taught in: why_many_heads, split_and_merge, output_projection, positions.
    """

    heads_apart = True
    is_plain = True

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
        """Project, attend, merge. With a :class:`mha.KeyValueCache` the queries also see what was fed before."""
        q, k, v = self.project(query, key, value, mask, is_causal=is_causal, cache=cache)
        return self.merge(self.attend(q, k, v, mask, is_causal=is_causal))


class SelfAttention(Tapped):
    """Attend once: one head with its own widths, and no mixing afterwards.

    :Costs: d_model · (2·d_k + d_v) weights, plus biases.
    :Shapes: query (b, i, d_model), key and value (b, j, d_model), mask (i, j) or (b, 1, i, j), True = may look;
        returns (b, i, d_v). Queries and keys have width d_k, which never shows in the output.
    :Raises: ValueError or TypeError for shapes, dtypes or masks that do not fit.
    :Source: Vaswani et al. 2017, section 3.2.1.
    :Taught in: why_attention.
    """

    @checked
    def __init__(self, d_model: int, d_k: int | None = None, d_v: int | None = None, *, bias: bool = False) -> None:
        """Make three projections; ``d_k`` and ``d_v`` are ``d_model`` unless they are given."""
        super().__init__()
        d_k, d_v = d_model if d_k is None else d_k, d_model if d_v is None else d_v
        if min(d_model, d_k, d_v) < 1:
            raise ValueError(f"d_model = {d_model}, d_k = {d_k}, d_v = {d_v}: each must be at least 1")
        self.W_q = nn.Linear(d_model, d_k, bias=bias)
        self.W_k = nn.Linear(d_model, d_k, bias=bias)
        self.W_v = nn.Linear(d_model, d_v, bias=bias)
        self.at_scores, self.at_weights, self.at_heads = Tap(), Tap(), Tap()

    def forward(
        self,
        query: Float[Tensor, "b i m"],
        key: Float[Tensor, "b j m"] | None = None,
        value: Float[Tensor, "b j m"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        *,
        is_causal: bool = False,
    ) -> Float[Tensor, "b i c"]:
        """Project and read; the axis of heads is there, with one entry, so that masks mean the same everywhere."""
        key, value = default_inputs(query, key, value, is_causal)
        check_inputs(self, query, key, value)
        q, k, v = self.W_q(query)[:, None], self.W_k(key)[:, None], self.W_v(value)[:, None]
        edits = tapped(self, NOTHING)
        read = attend(q, k, v, mask, is_causal=is_causal, edit_scores=edits.scores, edit_weights=edits.weights)
        return self.at_heads(read)[:, 0]

    @checked
    def cost(self, b: int, i: int, j: int | None = None, *, stored: bool = False) -> Cost:
        """Count one call on paper, as :meth:`Heads.cost` does.

        :Taught in: counting_cost.
        """
        fused = self.W_k.out_features == self.W_v.out_features  # the kernel wants values as wide as keys
        return count_attention(self, b, i, j, None, stored=stored or not fused)

    @checked
    def new_cache(self, capacity: int = 1024) -> KeyValueCache:
        """Refuse: this layer is the plain formula and keeps nothing between calls."""
        raise ValueError(
            "SelfAttention keeps no keys and values: take MultiHeadAttention(d_model, heads=1), which does"
        )
