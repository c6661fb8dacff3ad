"""One head alone: the plain formula, without a split and without mixing.

:Taught in: why_attention.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha.checks import checked
from mha.functional import core
from mha.layers import inputs
from mha.layers.cache import KeyValueCache
from mha.layers.cost import Cost, count_attention
from mha.layers.hooks import Tap, watchers


class SelfAttention(nn.Module):
    """Attend once: one head with its own widths, and no mixing afterwards.

    :Costs: d_model · (2·d_k + d_v) parameters, plus biases.
    :Shapes: returns (b, i, d_v). Queries and keys have width d_k, which never shows in the output.
    :Raises: ValueError or TypeError for shapes, dtypes or masks that do not fit.
    :Source: Vaswani et al. 2017, section 3.2.1.
    :Taught in: why_attention.
    """

    @checked
    def __init__(
        self,
        d_model: int,
        d_k: int | None = None,
        d_v: int | None = None,
        *,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Make three projections.

        :param d_model: the width of the input.
        :param d_k: the width of queries and keys; ``d_model`` unless given.
        :param d_v: the width of values; ``d_model`` unless given.
        :param bias: whether the projections have one.
        :param device: where the parameters are made; torch's default unless given.
        :param dtype: the type of the parameters; torch's default unless given.
        """
        super().__init__()
        d_k, d_v = d_model if d_k is None else d_k, d_model if d_v is None else d_v
        if min(d_model, d_k, d_v) < 1:
            raise ValueError(f"d_model = {d_model}, d_k = {d_k}, d_v = {d_v}: each must be at least 1")
        self.W_q = nn.Linear(d_model, d_k, bias=bias, device=device, dtype=dtype)
        self.W_k = nn.Linear(d_model, d_k, bias=bias, device=device, dtype=dtype)
        self.W_v = nn.Linear(d_model, d_v, bias=bias, device=device, dtype=dtype)
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
        """Project and read; the axis of heads is there, with one entry, so that masks mean the same everywhere.

        :param query: what asks, (b, i, d_model).
        :param key: what is compared with, (b, j, d_model); the query unless given.
        :param value: what is read, (b, j, d_model); the key unless given.
        :param mask: (i, j) or (b, 1, i, j), True = may look; everything may be looked at unless given.
        :param is_causal: whether each token sees only itself and what came before.
        """
        if nested := inputs.nested_ones(query=query, key=key, value=value):
            inputs.check_nested(self, nested, False)
        key, value = inputs.default_inputs(query, key, value, is_causal)
        inputs.check_inputs(self, query, key, value)
        if mask is not None:
            inputs.check_visible(mask, query, key, 1)
        q, k, v = self.W_q(query)[:, None], self.W_k(key)[:, None], self.W_v(value)[:, None]
        read = core.attend(q, k, v, mask, is_causal=is_causal, changes=watchers(self.at_scores, self.at_weights))
        return self.at_heads(read)[:, 0]

    @checked
    def cost(self, b: int, i: int, j: int | None = None, *, stored: bool = False) -> Cost:
        """Count one call on paper, as :meth:`Heads.cost` does.

        :param b: how many sequences are in the batch.
        :param i: how many queries each has.
        :param j: how many keys; i unless given.
        :param stored: whether the weights are materialized, by the explicit formula instead of the fused kernel.
        :Taught in: counting_cost.
        """
        fused = self.W_k.out_features == self.W_v.out_features  # the kernel wants values as wide as keys
        return count_attention(self, b, i, j, None, stored=stored or not fused)

    @checked
    def new_cache(self, capacity: int = 1024) -> KeyValueCache:
        """Refuse: this layer is the plain formula and keeps nothing between calls.

        :param capacity: as in :meth:`Heads.new_cache`; it does not matter here.
        """
        raise ValueError(
            "SelfAttention keeps no keys and values: take MultiHeadAttention(d_model, heads=1), which does"
        )
