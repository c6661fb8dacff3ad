"""The layers: they own the weights, and their ``forward`` reads like the formula.

Every layer is called ``layer(query, key=None, value=None, mask=None, *, is_causal=False)``. ``layer(x)`` is
self-attention, ``layer(x, memory)`` is cross-attention.

Taught in: chapters 01 and 04 to 06.
"""

from collections.abc import Iterable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha import core
from mha._count import Cost, count_attention
from mha._inputs import biased, check_inputs, check_positions, fill_in, head_width, input_widths, share
from mha._slicing import take_heads
from mha._taps import Tap, followed_by, tapped
from mha.cache import KeyValueCache, MemoryCache


class Heads(nn.Module):
    """What all layers share: four projections, the split into heads, the read, and the merge.

    It has no ``forward``. A layer is a small class that writes its own from :meth:`project`, :meth:`attend` and
    :meth:`merge`. The three taps ``at_scores``, ``at_weights`` and ``at_heads`` hold no weights. ``positions`` is a
    slot for positions that act inside the layer, such as :class:`mha.RotaryPositions`; it is empty at first.

    Shapes: ``W_q`` (d_model → h·d), ``W_k`` (kdim → h·d), ``W_v`` (vdim → h·d), ``W_o`` (h·d → d_model).
    Raises: ValueError where the heads do not divide ``d_model``, or a size or the dropout is out of range.
    Taught in: chapter 05.
    """

    heads_apart = False  # whether each head computes alone, up to the sum in W_o: then processes can share the heads

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
    ) -> None:
        """Make the four projections.

        ``d_head`` is d_model / heads unless it is given; ``kdim`` and ``vdim`` are the widths of key and value
        inputs (``d_model`` unless given); ``bias`` is True, False, or the letters of the projections that have one,
        such as "qkv"; ``dropout`` is the share of attention weights dropped in training.
        """
        super().__init__()
        self.d_model, self.heads = d_model, heads
        self.d_head, self.kv_heads = head_width(d_model, heads, d_head), heads
        self.positions: nn.Module | None = None
        self.dropout, with_bias = share(dropout), biased(bias)
        kdim, vdim = input_widths(d_model, kdim, vdim)
        inner = heads * self.d_head
        self.W_q = nn.Linear(d_model, inner, bias="q" in with_bias)
        self.W_k = nn.Linear(kdim, inner, bias="k" in with_bias)
        self.W_v = nn.Linear(vdim, inner, bias="v" in with_bias)
        self.W_o = nn.Linear(inner, d_model, bias="o" in with_bias)
        self.at_scores, self.at_weights, self.at_heads = Tap(), Tap(), Tap()

    def project(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        is_causal: bool = False,
        cache: KeyValueCache | MemoryCache | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Make queries, keys and values and cut them into heads: three tensors (b, h, n, d).

        ``key`` is ``query`` and ``value`` is ``key`` unless they are given. With a cache the keys and values of the
        past come first, and the new ones stand behind them; the cache refuses a mask that does not fit all of them.
        """
        key, value = fill_in(query, key, value, is_causal)
        check_inputs(self, query, key, value)
        check_positions(self.positions, query, key)
        if cache is not None:
            cache.check(query, key, mask, self.heads)
        start = 0 if cache is None else cache.length
        q = self._cut(self.W_q(query), self.heads, start)

        def fresh() -> tuple[Tensor, Tensor]:
            k = self._cut(self.W_k(key), self.kv_heads, start)
            return k, core.split_heads(self.W_v(value), self.kv_heads)

        return q, *(fresh() if cache is None else cache.recall(key, fresh))

    def _cut(self, x: Tensor, heads: int, start: int) -> Tensor:
        """Cut queries or keys into heads, and mark their positions where the layer has a way to."""
        x = core.split_heads(x, heads)
        return x if self.positions is None else self.positions.turn(x, start)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, **how) -> Tensor:
        """Read with :func:`mha.attend`, with this layer's dropout and past its taps: (b, h, i, d)."""
        dropout = self.dropout if self.training else 0.0
        return self.at_heads(core.attend(q, k, v, mask, dropout=dropout, **self.edits(how)))

    def edits(self, how: dict) -> dict:
        """Collect what changes scores and weights on the way: the caller's edits, then positions, then open taps."""
        bias = None if self.positions is None else self.positions.bias
        return tapped(self, how if bias is None else followed_by(how, "edit_scores", bias))

    def merge(self, heads: Float[Tensor, "b h i d"]) -> Float[Tensor, "b i m"]:
        """Put the heads side by side and mix them with ``W_o``."""
        return self.W_o(core.merge_heads(heads))

    def contributions(self, heads: Float[Tensor, "b h i d"]) -> Float[Tensor, "b h i m"]:
        """Say what each head adds to the output: they sum to it, up to the bias of ``W_o``. Taught in: chapter 06."""
        blocks = self.W_o.weight.unflatten(1, (self.heads, self.d_head))
        return torch.einsum("bhid,mhd->bhim", heads, blocks)

    def take(self, heads: Iterable[int]) -> "Heads":
        """Make a smaller layer of some heads, given by number; it is as this one with the others silent.

        Heads that share keys go together. A layer whose heads need each other refuses. Taught in: chapter 10.
        """
        return take_heads(self, heads)

    def cost(self, b: int, i: int, j: int | None = None, *, fresh: int | None = None, stored: bool = False) -> Cost:
        """Count one call on paper: a batch of b, i queries, j keys (i unless given). Taught in: chapter 11.

        Behind a cache only ``fresh`` keys are projected; ``stored`` counts the explicit formula, which writes all
        weights down, instead of the fused kernel.
        """
        stored = stored or getattr(self.positions, "bias", None) is not None
        extra = int(self.kv_heads < self.heads and i > 1)  # where queries share keys they are laid below each other
        sharing = {"heads": self.heads, "kv_heads": self.kv_heads, "extra": extra}
        return count_attention(self, b, i, j, fresh, stored=stored, **sharing)

    def new_cache(self, capacity: int = 1024, filling: Tensor | list[int] | None = None) -> KeyValueCache:
        """Make an empty cache for this layer. Taught in: chapter 12."""
        return KeyValueCache(capacity, filling)


class MultiHeadAttention(Heads):
    """Attend several times at once, each time with own queries, keys and values, and mix what was read.

    Costs: 4 · d_model² weights and 8·n·d_model² + 4·n²·d_model operations, whatever the number of heads.
    Shapes: query (b, i, d_model), key (b, j, kdim), value (b, j, vdim), mask (i, j) or (b, h, i, j), True = may
        look; returns (b, i, d_model).
    Raises: ValueError or TypeError for shapes, dtypes or masks that do not fit, each with the way out.
    Source: Vaswani et al. 2017, section 3.2.2.
    Taught in: chapters 04 to 06; ``positions`` in chapter 08.
    """

    heads_apart = True

    def __init__(self, d_model: int, heads: int, *, positions: nn.Module | None = None, **sizes) -> None:
        """Make the layer; ``positions`` act inside it, and every other keyword is one of :class:`Heads`."""
        super().__init__(d_model, heads, **sizes)
        self.positions = positions

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


class SelfAttention(nn.Module):
    """Attend once: one head with its own widths, and no mixing afterwards.

    Costs: d_model · (2·d_k + d_v) weights, plus biases.
    Shapes: query (b, i, d_model), key and value (b, j, d_model), mask (i, j) or (b, 1, i, j), True = may look;
        returns (b, i, d_v). Queries and keys have width d_k, which never shows in the output.
    Raises: ValueError or TypeError for shapes, dtypes or masks that do not fit.
    Source: Vaswani et al. 2017, section 3.2.1.
    Taught in: chapter 01.
    """

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
        key, value = fill_in(query, key, value, is_causal)
        check_inputs(self, query, key, value)
        q, k, v = self.W_q(query)[:, None], self.W_k(key)[:, None], self.W_v(value)[:, None]
        return self.at_heads(core.attend(q, k, v, mask, **tapped(self, {"is_causal": is_causal})))[:, 0]

    def cost(self, b: int, i: int, j: int | None = None, *, stored: bool = False) -> Cost:
        """Count one call on paper, as :meth:`Heads.cost` does. Taught in: chapter 11."""
        fused = self.W_k.out_features == self.W_v.out_features  # the kernel wants values as wide as keys
        return count_attention(self, b, i, j, None, stored=stored or not fused)

    def new_cache(self, capacity: int = 1024) -> KeyValueCache:
        """Refuse: this layer is the formula of chapter 01 and keeps nothing between calls."""
        raise ValueError(
            "SelfAttention keeps no keys and values: take MultiHeadAttention(d_model, heads=1), which does"
        )
