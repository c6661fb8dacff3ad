"""Attention to what *all* layers made of the earlier tokens, never to the present one.

:Taught in: feed_back.
"""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha.checks import check_flag, check_is_tensor, check_whole, checked, described
from mha.functional import core
from mha.functional.core import Changes
from mha.functional.masks import check_mask
from mha.layers.cache import LayerCache, MemoryCache, Reader, Source
from mha.layers.cost import Cost, Part
from mha.layers.inputs import check_no_padding
from mha.layers.multi_head import Heads


class FeedbackMemory(MemoryCache):
    """Keep the keys and values of all earlier steps, with their gradients: training runs through them.

    Each call of a layer passes one memory, ``layer(x, newest, cache=memory)``, and reads all so far. The same
    memory passed again, by a layer that shares the projections, is kept once.

    :Shapes: keys and values (b, h, t, d), where t grows by one per step.
    :Raises: ValueError for a mask that has no column for each step.
    :Taught in: feed_back.
    """

    def admit(self, layer: Reader, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor | None:
        """Refuse another layer, and a mask that does not fit, before anything is kept."""
        LayerCache.admit(self, layer, query, key, value, None)
        again = self.holds(key)
        if self._source is not None and again:
            self._source.check(key, value)
        total = self._length + (0 if again else key.shape[1])
        if mask is not None:
            check_is_tensor("mask", mask)
            if mask.shape[-1:] not in ((1,), (total,)):
                raise ValueError(
                    f"mask {tuple(mask.shape)}: give it a column for each of the {total} steps in the memory"
                )
            check_mask(mask, (query.shape[0], layer.heads, query.shape[1], total), query.device)
        return mask

    def holds(self, key: Tensor) -> bool:
        """Whether this very memory is the newest one that was added."""
        return self._source is not None and self._source.is_of(key)

    def update(
        self, k: Float[Tensor, "b h n d"], v: Float[Tensor, "b g n c"]
    ) -> tuple[Float[Tensor, "b h t d"], Float[Tensor, "b g t c"]]:
        """Add the keys and values of a new memory, and return all of them, oldest first."""
        if self._found is not None:
            k, v = torch.cat([self._found[0], k], 2), torch.cat([self._found[1], v], 2)
        if self._guest is not None:
            self._source = Source(*self._guest[1:])
        self._found, self._length = (k, v), k.shape[2]
        self._stored()
        return k, v

    def crop(self, length: int) -> None:
        """Forget all steps but the first ``length``."""
        super().crop(length)
        if self._found is not None:
            self._found = self._found[0][:, :, :length], self._found[1][:, :, :length]
        self._source = None


def check_reading(key: Tensor | None, cache: object, is_causal: bool) -> None:
    """Refuse a call without a memory, and a cache that keeps something else."""
    if key is None:
        raise ValueError(
            "key = None: a feedback layer never attends to the present token, only to the memory of earlier steps: "
            "call layer(x, memory); at the first step there is none, and nothing to call"
        )
    check_flag(is_causal=is_causal)
    if is_causal:
        raise ValueError("is_causal with a separate key: is_causal = True, but a memory has no future to hide")
    if cache is not None and not isinstance(cache, FeedbackMemory):
        raise ValueError(
            f"cache = {described(cache)} does not keep what feedback reads, the memories that all layers made: use "
            "layer.new_cache()"
        )


def check_tables(heads: int, steps: int, keys: Tensor) -> None:
    """Refuse a memory that the tables of positions do not reach."""
    if keys.shape[1] != heads:
        raise ValueError(f"the tables belong to {heads} heads, but {keys.shape[1]} came: keep the layer in one process")
    if keys.shape[2] > steps:
        raise ValueError(
            f"the memory holds {keys.shape[2]} steps, but the tables know {steps}: make the layer with "
            f"steps={keys.shape[2]} or more"
        )


class FeedbackAttention(Heads):
    """Attend with feedback: the present token reads the memories of all earlier steps.

    Three tables tell how far back each is.

    The score of memory j is ((q + u)·k_j + q·U_r + S_r) / √d, where r counts steps back from the newest memory, r = 0.

    :Plain when: the tables are zero, as they are at first: one query over a plain memory. It never sees itself.
    :Changes: what is looked at; the scores, by the tables ``query_bias`` (u), ``key_table`` (U), ``score_table`` (S).
    :Costs: heads · (d + steps · (d + 1)) parameters more than a plain layer; the explicit formula.
    :Shapes: as :class:`mha.MultiHeadAttention`; each query is after the whole memory, which is oldest first.
    :Raises: ValueError without a memory, for one longer than ``steps``, and for the caches of other layers.
    :Source: Fan et al. 2020, section 3; Dai et al. 2019, section 3.3, for scores with tables.
    :Differs from the released code: labml-nn counts rows of its tables from the end, which is the same; there queries
        and keys have no bias, as here unless ``bias`` is given.
    :Taught in: feed_back.
    """

    inseparable = None
    beyond_steps = "the tables count steps back from the newest memory"
    of_heads = ("query_bias", "key_table", "score_table")

    @checked
    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        steps: int = 512,
        d_head: int | None = None,
        kdim: int | None = None,
        vdim: int | None = None,
        bias: bool | str = "vo",
        dropout: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Make the layer; the other keywords are those of :class:`mha.Heads`.

        :param steps: how many memories the layer can read at most; 512 unless given.
        """
        like: Any = {"device": device, "dtype": dtype}
        super().__init__(d_model, heads, d_head=d_head, kdim=kdim, vdim=vdim, bias=bias, dropout=dropout, **like)
        if steps < 1:
            raise ValueError(f"steps = {steps}: the memory holds at least 1")
        self.query_bias = nn.Parameter(self.W_q.weight.new_empty(heads, self.d_head))
        self.key_table = nn.Parameter(self.W_q.weight.new_empty(heads, steps, self.d_head))
        self.score_table = nn.Parameter(self.W_q.weight.new_empty(heads, steps))
        self.reset_parameters()

    def forward(
        self,
        query: Float[Tensor, "b i m"],
        key: Float[Tensor, "b j mk"] | None = None,
        value: Float[Tensor, "b j mv"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        *,
        is_causal: bool = False,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "b i m"]:
        """Project, attend with the tables, merge. With a memory as cache ``key`` is the newest step, added to it."""
        check_reading(key, cache, is_causal)
        key, value, mask = self._check_call(query, key, value, mask, False, cache)
        q, k, v = self._project(query, key, value, cache)
        of_keys, of_scores = self.tables(k)
        heads = self._attend(q, k + of_keys, v, mask, False, changes=Changes(scores=lambda s: s + of_scores))
        return self.W_o(core.merge_heads(heads))

    def tables(self, k: Float[Tensor, "b h j d"]) -> tuple[Float[Tensor, "h j d"], Float[Tensor, "b h 1 j"]]:
        """Return what is added to the keys (U), and to the scores: (u·k + S) / √d.

        :param k: the keys of all memories so far, oldest first.
        """
        heads, steps, d = self.key_table.shape
        check_tables(heads, steps, k)
        u_r, s_r = (table[:, : k.shape[2]].flip(1).to(k) for table in (self.key_table, self.score_table))
        return u_r, ((k @ self.query_bias[:, :, None]).mT + s_r[:, None]) / d**0.5

    def reset_parameters(self) -> None:
        """Initialize the tables with zeros: how far back a memory is does not count yet."""
        for table in (self.query_bias, self.key_table, self.score_table):
            nn.init.zeros_(table)

    @classmethod
    def plain_settings(cls, layer: Heads) -> dict[str, Any]:
        """Let all tables be zero, as they are at first."""
        return layer.settings(positions=False)

    @checked
    def new_cache(self, capacity: int = 1024, padding: Tensor | list[int] | None = None) -> FeedbackMemory:
        """Make an empty memory; how long it can grow, ``steps`` decides."""
        check_whole(capacity=capacity)
        check_no_padding(self, padding)
        return FeedbackMemory()

    @checked
    def cost(self, b: int, i: int, j: int | None = None, *, fresh: int | None = None, stored: bool = False) -> Cost:
        """Count one call on paper, as :meth:`Heads.cost` does, and what the tables add."""
        cost, (heads, steps, d), j = super().cost(b, i, j, fresh=fresh, stored=True), self.key_table.shape, j or i
        own, keys = heads * (d + steps * (d + 1)), b * heads * j * d
        size, once = self.W_q.weight.element_size(), b * heads * j
        moved = 4 * keys + heads * j * d + once + 2 * once * i  # keys read twice, written once, read; scores changed
        cost.parts["tables"] = Part(2 * keys, size * moved)
        parameters, weights = cost.parameters + own, cost.weights + size * own
        peak = cost.peak + size * (keys + once * (i + 1))
        return replace(cost, parameters=parameters, weights=weights, peak=peak)
