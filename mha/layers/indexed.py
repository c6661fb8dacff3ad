"""A small index scores all keys, and each query reads only the best of them (DSA): over grouped keys and over latents.

:Taught in: select.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha.checks import check_flag, check_tensor, check_whole, checked
from mha.functional import core
from mha.functional.indexed import (
    check_pool,
    first_blocks,
    first_tokens,
    hide_keys,
    pool_blocks,
    ranked,
    score_keys,
)
from mha.layers import inputs
from mha.layers.cache import KeyValueCache, LayerCache, check_no_gradients
from mha.layers.cost import Cost, Part, count_linear
from mha.layers.grouped import GroupedAttention
from mha.layers.hooks import Tap
from mha.layers.latent import EPS, LatentAttention, LatentCache, rotates
from mha.layers.multi_head import Heads
from mha.layers.positions import LAYOUTS, RelativePositions
from mha.layers.projections import weight_of

EVERY = 2**31 - 1  # more keys than any sequence has


class IndexedCache(KeyValueCache):
    """Remember keys and values, and for each token the short key of the index, which every later query compares.

    What was chosen is not kept: each query chooses anew.

    :Costs: d_index numbers more for each position than :class:`mha.KeyValueCache`.
    :Shapes: index keys (b, n, d_index), beside keys (b, g, n, d) and values (b, g, n, c).
    :Raises: ValueError as KeyValueCache.
    :Source: DeepSeek-AI 2025, "DeepSeek-V3.2", section 2.1.
    :Taught in: select.
    """

    keeps = "keys, values and index keys"

    @checked
    def __init__(self, capacity: int = 1024, padding: Tensor | list[int] | None = None) -> None:
        """Reserve memory.

        :param capacity: in positions, padding included; 1024 unless given.
        :param padding: how many positions in front of each sequence hold none of its tokens, (b,); none unless given.
        """
        super().__init__(capacity, padding)
        self._index: Tensor | None = None

    @property
    def bytes(self) -> int:
        """How much memory is taken: all of it at the first call."""
        return super().bytes + (0 if self._index is None else self._index.nbytes)

    def _keep_index(self, k: Float[Tensor, "b n d"]) -> None:
        """Store the index keys of the tokens whose keys and values were stored last.

        :param k: the new index keys.
        """
        check_tensor(3, k=k)
        check_no_gradients(k, k)
        if k.shape[1] > self._length:
            raise ValueError(
                f"{k.shape[1]} index keys came, but only {self._length} tokens are stored: first update(k, v)"
            )
        if self._index is None:
            self._index = k.new_empty(k.shape[0], self.capacity, k.shape[2])
        if (k.shape[0], k.shape[2], k.dtype) != (self._index.shape[0], self._index.shape[2], self._index.dtype):
            raise ValueError(
                f"index keys {tuple(k.shape)} of {k.dtype} do not continue the cache's, {tuple(self._index.shape)} of "
                f"{self._index.dtype}: use a new cache, one for each layer, batch and type of the numbers"
            )
        self._index[:, self._length - k.shape[1] : self._length] = k

    @property
    def index_keys(self) -> Float[Tensor, "b t d"] | None:
        """The index keys of all tokens so far; None where there are none."""
        return None if self._index is None else self._index[:, : self._length]

    def _move(self, rows: Callable[[Tensor], Tensor]) -> None:
        super()._move(rows)
        self._index = None if self._index is None else rows(self._index)


class Indexer(nn.Module):
    """The index of a layer (lightning indexer): a small attention without values that says which keys are read.

    Its heads share one key per token; a score is Σ_h w_ih · ReLU(q_ih · k_j / √d), with w from the query's token,
    divided by √heads. What it is given is detached: only :func:`mha.functional.index_loss` trains it, and that loss
    reaches nothing else. It computes in the type of its parameters, under autocast too, and scores in at least float32,
    because rounding changes which keys are chosen.

    :Costs: d_asked · heads · d + d_key · d + d_model · heads parameters; 2·i·j·heads·d FLOPs for the scores.
    :Shapes: ``W_q`` (d_asked → heads·d), ``W_k`` (d_key → d), ``W_w`` (d_model → heads), without biases.
    :Source: DeepSeek-AI 2025, "DeepSeek-V3.2", section 2.1.
    :Taught in: select.
    """

    @checked
    def __init__(
        self,
        d_model: int,
        k: int,
        *,
        heads: int,
        d: int,
        d_asked: int,
        d_key: int,
        d_rotary: int,
        block: int,
        pool: str,
        norm: bool,
        layout: str | None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Make the three projections.

        :param d_model: the width of a token.
        :param k: how many keys, or blocks of keys, each query reads.
        :param heads: how many heads the index has.
        :param d: the width of such a head.
        :param d_asked: the width of what index queries are made from.
        :param d_key: the width of what index keys are made from.
        :param d_rotary: how many of the first channels positions rotate.
        :param block: how many consecutive keys are chosen together.
        :param pool: how the scores of a block are pooled, "max" or "mean".
        :param norm: whether a LayerNorm with a bias follows the index keys.
        :param layout: which of the rotated channels make a pair, "half" or "interleaved"; as the positions have it
            where it is None.
        :param device: where the parameters are made; torch's default unless given.
        :param dtype: the type of the parameters; torch's default unless given.
        """
        super().__init__()
        check_whole(k=k, index_heads=heads, d_index=d, block=block)
        check_pool(pool)
        if not 0 <= d_rotary <= d or d_rotary % 2:
            raise ValueError(
                f"d_rotary = {d_rotary}, d_index = {d}: positions rotate pairs of index channels, so give an even "
                f"number from 0 to {d}"
            )
        if layout not in (None, *LAYOUTS):
            raise ValueError(f"index_layout = {layout!r}: it is one of {LAYOUTS}")
        like: Any = {"device": device, "dtype": dtype}
        self.k, self.heads, self.d, self.d_rotary, self.block, self.pool = k, heads, d, d_rotary, block, pool
        self.layout = layout
        self.W_q = nn.Linear(d_asked, heads * d, bias=False, **like)
        self.W_k = nn.Linear(d_key, d, bias=False, **like)
        self.W_w = nn.Linear(d_model, heads, bias=False, **like)
        self.norm = nn.LayerNorm(d, eps=EPS, **like) if norm else None

    def keys(self, x: Tensor, positions: RelativePositions | None, start: int) -> Float[Tensor, "b j d"]:
        """Make the index keys of tokens.

        :param x: what they are made from, (b, j, d_key).
        :param positions: what rotates the first channels, or None.
        :param start: the position of the first token.
        """
        with _without_autocast(x):
            k = self.W_k(self._taken(x))
            k = k if self.norm is None else self.norm(k)
            return self._rotated(k[:, None], positions, start)[:, 0]

    def forward(
        self, asked: Tensor, x: Tensor, k: Tensor, positions: RelativePositions | None, start: int
    ) -> Float[Tensor, "b i j"]:
        """Score all keys for each query.

        :param asked: what index queries are made from, (b, i, d_asked).
        :param x: the tokens that ask, (b, i, d_model).
        :param k: index keys, (b, j, d).
        :param positions: what rotates the first channels, or None.
        :param start: the position of the first query.
        """
        with _without_autocast(x):
            q = self._rotated(core.split_heads(self.W_q(self._taken(asked)), self.heads), positions, start)
            w = self.W_w(self._taken(x)) / math.sqrt(self.heads)
            wide = torch.promote_types(q.dtype, torch.float32)
            return score_keys(q.to(wide), k.to(wide), w.to(wide))

    def _taken(self, x: Tensor) -> Tensor:
        """Take an input without its gradient, in the type of the parameters."""
        weight = weight_of(self.W_q)
        return x.detach() if weight is None else x.detach().to(weight.dtype)

    def _rotated(self, x: Tensor, positions: RelativePositions | None, start: int) -> Tensor:
        """Mark positions in the first channels of index queries or keys, (b, h, n, d)."""
        if not self.d_rotary or not rotates(positions) or positions is None:
            return x
        turned, rest = x.split([self.d_rotary, self.d - self.d_rotary], -1)
        theirs = getattr(positions, "layout", None)
        if self.layout in (None, theirs):
            return torch.cat([positions.rotate(turned, start), rest], -1)
        pairs = (2, -1) if theirs == "interleaved" else (-1, 2)  # put as the positions want it, and back again
        turned = positions.rotate(turned.unflatten(-1, pairs).mT.flatten(-2), start)
        return torch.cat([turned.unflatten(-1, pairs[::-1]).mT.flatten(-2), rest], -1)

    def chooses(self, j: int) -> bool:
        """Whether there are more keys than a query reads; in a graph that is exported, which fits all lengths, always.

        :param j: how many keys there are.
        """
        return torch.compiler.is_exporting() or self.reads < j

    @property
    def reads(self) -> int:
        """How many keys a query reads at most."""
        return self.k * self.block

    def choose(self, scores: Tensor) -> Bool[Tensor, "b i j"]:
        """Choose for each query, as :func:`mha.functional.choose_tokens` and ``choose_blocks`` do.

        :param scores: (b, i, j), −inf where hidden.
        """
        if self.block == 1:
            return first_tokens(scores, self.k)
        return first_blocks(scores, self.k, self.block, self.pool, True)

    def best(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Choose the same for one query that has more keys than it reads: their numbers, and whether each may be read.

        :param scores: (b, 1, j), −inf where hidden.
        :Shapes: returns numbers (b, reads) and a mask (b, 1, 1, reads).
        """
        if self.block == 1:
            at = ranked(scores)[:, 0, : self.k]
        else:
            first = ranked(pool_blocks(scores, self.block, self.pool, True))[:, 0, : self.k, None]
            at = (first * self.block + torch.arange(self.block, device=scores.device)).flatten(1)
        there = at.clamp_max(scores.shape[-1] - 1)
        seen = scores[:, 0].gather(1, there) != -torch.inf
        return there, (seen & (at == there))[:, None, None]

    def extra_repr(self) -> str:
        """Show the settings when the layer is printed."""
        return f"k={self.k}, heads={self.heads}, d={self.d}, block={self.block}"


def _without_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """Compute in the type of the parameters."""
    on = x.device.type != "meta" and torch.is_autocast_enabled(x.device.type)
    return torch.autocast(x.device.type, enabled=False) if on else nullcontext()


def gathered(x: Tensor, at: Tensor) -> Tensor:
    """Take some rows of keys, values or latents.

    :param x: (b, g, j, d).
    :param at: the numbers of the rows, (b, n).
    :Shapes: returns (b, g, n, d).
    """
    b, g, _, d = x.shape
    return x.gather(2, at[:, None, :, None].expand(b, g, -1, d))


class IndexedAttention(GroupedAttention):
    """Attend to the keys that an index chooses (sparse attention, DSA): all heads of a query read the same k keys.

    A query scores every key with the small :class:`Indexer`, and reads the k best with full attention. A single query,
    as with a cache, gathers its keys and reads only them; several queries at once get a mask.

    :Plain when: ``k`` is at least the number of keys: then the index is not asked. :meth:`from_plain` makes it so
        unless it is given k, and begins with an index that knows nothing yet.
    :Changes: the mask, which hides what is not chosen. Keys, values and weights stay as they are.
    :Costs: the parameters of the :class:`Indexer`, d_index numbers more per token in the cache, and
        2·i·j·index_heads·d_index FLOPs to score; a single query reads ``k · block`` keys in place of j.
    :Shapes: as :class:`mha.GroupedAttention`. Watch "index", the scores (b, i, j) with −inf where a mask hides, and
        "chosen" (b, i, j).
    :Raises: ValueError for numbers out of range, for another ``pool``, for a cache without index keys, and as
        GroupedAttention.
    :Source: DeepSeek-AI 2025, "DeepSeek-V3.2", section 2.1; MiniMax-M3, released code, for blocks over grouped keys.
    :Differs from the paper: keys are grouped and no latents (:class:`IndexedLatentAttention` has those); index keys
        pass no norm.
    :Differs from the released code: ties are broken by position, the earlier key first. With blocks one set serves all
        KV heads, where MiniMax-M3 chooses for each, without ReLU and weights.
    :Taught in: select.
    """

    reads: tuple[str, ...] = ("keys, values and index keys", "keys and values")
    stores: tuple[str, ...] = ("W_k", "W_v", "indexer")
    beyond_steps = "the index scores the layer's input, and chooses what may be read"

    @checked
    def __init__(
        self,
        d_model: int,
        heads: int,
        k: int,
        *,
        kv_heads: int | None = None,
        index_heads: int = 4,
        d_index: int = 8,
        block: int = 1,
        pool: str = "max",
        d_rotary: int | None = None,
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

        :param k: how many keys each query reads, or how many blocks of keys; ``layer.k`` can be changed later.
        :param kv_heads: how many KV heads there are; ``heads`` unless given.
        :param index_heads: how many heads the index has; 4 unless given.
        :param d_index: the width of such a head, and of the one index key; 8 unless given.
        :param block: how many consecutive keys are chosen together; 1 unless given.
        :param pool: how the scores of a block are pooled, "max" or "mean"; the first unless given.
        :param d_rotary: how many of the first index channels rotary positions rotate, an even number; as many as there
            are unless given.
        """
        like: Any = {"device": device, "dtype": dtype}
        kv_heads = heads if kv_heads is None else kv_heads
        super().__init__(
            d_model, heads, kv_heads, d_head=d_head, kdim=kdim, vdim=vdim, bias=bias, dropout=dropout,
            positions=positions, **like,
        )  # fmt: skip
        self.indexer = Indexer(
            d_model, k, heads=index_heads, d=d_index, d_asked=d_model, d_key=self.W_k.in_features,
            d_rotary=d_index // 2 * 2 if d_rotary is None else d_rotary, block=block, pool=pool, norm=False,
            layout=None, **like,
        )  # fmt: skip
        self.at_index, self.at_chosen = Tap(), Tap()

    @property
    def k(self) -> int:
        """How many keys, or blocks of keys, each query reads."""
        return self.indexer.k

    @k.setter
    def k(self, k: int) -> None:
        check_whole(k=k)
        self.indexer.k = k

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
        """Project, choose, attend, merge."""
        key, value, mask = self._check_call(query, key, value, mask, is_causal, cache)
        start = 0 if cache is None else cache.length
        q, k, v = self._project(query, key, value, cache)
        if not chooses(self, k.shape[2]):
            return self._merge(self._attend(q, k, v, mask, is_causal))
        index_keys = cache.index_keys if isinstance(cache, IndexedCache) else None
        index_keys = self._index_keys(key, start) if index_keys is None else index_keys
        allowed = core.visible(q, k, mask, is_causal)
        scores = self.at_index(hide_keys(self.indexer(query, query, index_keys, self.positions, start), allowed))
        if gathers(self, q.shape[2], allowed):
            at, mask = self.indexer.best(scores)
            return self._merge(self._attend(q, gathered(k, at), gathered(v, at), mask, False))
        chosen = self.at_chosen(self.indexer.choose(scores))[:, None]
        return self._merge(self._attend(q, k, v, chosen if mask is None else chosen & mask, is_causal))

    def index(
        self,
        x: Float[Tensor, "b i m"],
        key: Float[Tensor, "b j mk"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        *,
        is_causal: bool = False,
    ) -> Float[Tensor, "b i j"]:
        """Score every key for every query; gradients reach the parameters of the index and nothing else.

        :param x: what asks, (b, i, d_model).
        :param key: what is compared with, (b, j, kdim); x unless given.
        :param mask: (i, j) or (b, h, i, j), True = may look. What no head may look at is −inf; nothing unless given.
        :param is_causal: whether each token sees only itself and what came before.
        """
        inputs.check_input("x", x, self.W_q)
        key, _, mask = super()._check_call(x, key, None, mask, is_causal, None)
        scores = self.indexer(x, x, self._index_keys(key, 0), self.positions, 0)
        return hide_keys(scores, core.visible(x, key, mask, is_causal))

    def _index_keys(self, key: Tensor, start: int) -> Tensor:
        return self.indexer.keys(key, self.positions, start)

    def _project(self, query: Tensor, key: Tensor, value: Tensor, cache: LayerCache | None) -> tuple[Tensor, ...]:
        """Make queries, keys and values, and let a cache keep the keys of the index, too."""
        start = 0 if cache is None else cache.length
        made = super()._project(query, key, value, cache)
        if isinstance(cache, IndexedCache):
            cache._keep_index(self._index_keys(key, start))
        return made

    def _check_call(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        mask: Tensor | None,
        is_causal: bool,
        cache: LayerCache | None,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        if isinstance(cache, KeyValueCache) and not isinstance(cache, IndexedCache):
            inputs.check_cache(cache, self)
            raise ValueError(
                f"cache is a {type(cache).__name__}, which has no room for index keys, and without them the earlier "
                f"tokens of {type(self).__name__} cannot be scored: use layer.new_cache()"
            )
        return super()._check_call(query, key, value, mask, is_causal, cache)

    @classmethod
    def plain_settings(cls, layer: Heads) -> dict[str, Any]:
        """Let each query read everything; a layer of grouped keys is taken, too."""
        return super().plain_settings(layer) | {"k": EVERY}

    @checked
    def cost(
        self,
        b: int,
        i: int,
        j: int | None = None,
        *,
        fresh: int | None = None,
        stored: bool = False,
        gather: bool | None = None,
    ) -> Cost:
        """Count one call on paper, as :meth:`Heads.cost` does, with the index, and with the keys that are read.

        :param gather: whether each query reads its chosen keys only, as a kernel for sparse attention does it; as here
            unless given: a single query does, and several read all keys under a mask. Never where weights are
            ``stored``.
        """
        cost = super().cost(b, i, j, fresh=fresh, stored=stored)
        j = i if j is None else j
        size, stored = self.W_q.weight.element_size(), stored or getattr(self.positions, "bias", None) is not None
        few = self.indexer.reads < j
        if few and not stored and (i == 1 if gather is None else gather):
            read = super().cost(b, 1, self.indexer.reads, fresh=0)
            cost = count_read(cost, read, i, size * b * i * self.indexer.reads * 2 * self.kv_heads * self.d_head)
        own = sum(p.numel() for p in self.indexer.parameters())
        cost = replace(cost, parameters=cost.parameters + own, weights=cost.weights + own * size)
        return count_index(self.indexer, cost, b, i, j, fresh=fresh, few=few)

    @checked
    def new_cache(self, capacity: int = 1024, padding: Tensor | list[int] | None = None) -> IndexedCache:
        """Make an empty cache for this layer."""
        return IndexedCache(capacity, padding)


def chooses(layer: Any, j: int) -> bool:
    """Whether a layer asks its index: there are more keys than it reads, or somebody watches.

    :param layer: a layer with an index.
    :param j: how many keys there are.
    """
    return layer.indexer.chooses(j) or layer.at_index.is_open or layer.at_chosen.is_open


def gathers(layer: Any, i: int, mask: Tensor | None) -> bool:
    """Whether only the chosen keys are read: for a single query, where no head has a mask or a bias of its own.

    :param layer: a layer with an index.
    :param i: how many queries there are.
    :param mask: (i, j) or (b, h, i, j), or None.
    """
    if i != 1 or torch.compiler.is_exporting() or getattr(layer.positions, "bias", None) is not None:
        return False
    watched = any(tap.is_open for tap in (layer.at_scores, layer.at_weights, layer.at_index, layer.at_chosen))
    return not watched and (mask is None or mask.ndim == 2 or mask.shape[1] == 1)


def count_read(cost: Cost, read: Cost, i: int, bytes_taken: int, made: tuple[str, ...] = ()) -> Cost:
    """Let i queries of each sequence read what one query of ``read`` does.

    :param cost: of a call that reads everything.
    :param read: of one query that reads what is chosen.
    :param i: how many queries there are.
    :param bytes_taken: how much is gathered.
    :param made: which parts are computed anew from what is gathered.
    """
    parts = dict(cost.parts) | {"gather": Part(0, 2 * bytes_taken)}
    for name in ("scores", "read", *made):
        parts[name] = Part(i * read.parts[name].flops, i * read.parts[name].moved)
    return replace(cost, parts=parts, peak=cost.peak + bytes_taken)


def count_index(indexer: Indexer, cost: Cost, b: int, i: int, j: int, *, fresh: int | None, few: bool) -> Cost:
    """Add what the index costs, but for its parameters.

    :param indexer: the index.
    :param cost: of the call without it.
    :param b: how many sequences are in the batch.
    :param i: how many queries each has.
    :param j: how many keys.
    :param fresh: how many keys are new, where a cache holds the others; None without a cache.
    :param few: whether there are more keys than a query reads.
    """
    parts, size = dict(cost.parts), indexer.W_q.weight.element_size()
    if few or fresh is not None:
        parts["index W_k"] = count_linear(indexer.W_k, b * (j if fresh is None else fresh))
    peak = cost.peak
    if few:
        parts |= {f"index {name}": count_linear(getattr(indexer, name), b * i) for name in ("W_q", "W_w")}
        wide, scores = max(size, 4), b * i * j
        moved = b * i * indexer.heads * (indexer.d + 1) + b * j * indexer.d + scores
        parts["index"] = Part(2 * scores * indexer.heads * indexer.d, wide * moved)
        peak = max(peak, wide * scores * (2 * indexer.heads + 1) + size * b * (i + j) * indexer.W_q.in_features)
    return replace(cost, parts=parts, cache=cost.cache + size * b * j * indexer.d, peak=peak)


class IndexedLatentCache(LatentCache):
    """Remember for each token its latent row and the short key of the index.

    :Costs: d_latent + d_rotary + d_index numbers for each position, whatever the number of heads.
    :Shapes: rows (b, 1, n, d_latent + d_rotary), and index keys (b, 1, n, d_index) in the place of values.
    :Raises: ValueError as KeyValueCache.
    :Source: DeepSeek-AI 2025, "DeepSeek-V3.2", section 2.1.
    :Taught in: select.
    """

    keeps = "latents and index keys"

    def update(
        self, k: Float[Tensor, "b h n d"], v: Float[Tensor, "b g n c"]
    ) -> tuple[Float[Tensor, "b h t d"], Float[Tensor, "b g t c"]]:
        """Store the new rows and index keys and return all of them.

        :param k: the new rows, (b, 1, n, d_latent + d_rotary).
        :param v: the new index keys, (b, 1, n, d_index).
        """
        return KeyValueCache.update(self, k, v)


class IndexedLatentAttention(LatentAttention):
    """Attend to the latents that an index chooses (DSA over MLA): one fetched row serves all heads of a query.

    Index queries come from the compressed query, after its norm; index keys come from the token and pass a LayerNorm;
    the first ``d_rotary`` channels of both are rotated. A single query, as with a cache, gathers its rows and reads
    only them; several queries at once get a mask.

    :Plain when: ``k`` is at least the number of keys, and the latents are as :class:`mha.LatentAttention` has it.
    :Changes: the mask, which hides what is not chosen.
    :Costs: the parameters of the :class:`Indexer`, d_index numbers more per token in the cache, and
        2·i·j·index_heads·d_index FLOPs to score; a single query reads ``k · block`` rows in place of j.
    :Shapes: as :class:`mha.LatentAttention`. Watch "index", the scores (b, i, j) with −inf where a mask hides, and
        "chosen" (b, i, j).
    :Raises: ValueError for numbers out of range, for another ``pool``, and as LatentAttention.
    :Source: DeepSeek-AI 2025, "DeepSeek-V3.2", section 2.1.
    :Differs from the released code: ties are broken by position, the earlier key first; norms compute in the type of
        the tokens, there in float32; no Hadamard rotation and no float8, which change rounding only.
    :Taught in: select.
    """

    reads = ("latents and index keys", "keys and values")
    stores: tuple[str, ...] = ("W_down", "W_rotary_k", "norm_latent", "indexer")
    beyond_steps = "the index scores the layer's input, and chooses what may be read"

    @checked
    def __init__(
        self,
        d_model: int,
        heads: int,
        d_latent: int,
        k: int,
        *,
        d_rotary: int = 0,
        d_query: int | None = None,
        norm: bool = False,
        index_heads: int = 4,
        d_index: int = 8,
        index_layout: str = "half",
        block: int = 1,
        pool: str = "max",
        d_head: int | None = None,
        bias: bool | str = True,
        dropout: float = 0.0,
        positions: RelativePositions | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Make the layer; the other keywords are those of :class:`mha.LatentAttention`.

        :param k: how many keys each query reads, or how many blocks of keys; ``layer.k`` can be changed later.
        :param d_rotary: the width of the rotated channels, in the heads and in the index, an even number; 0 unless
            given.
        :param index_heads: how many heads the index has; 4 unless given.
        :param d_index: the width of such a head, and of the one index key; 8 unless given.
        :param index_layout: which rotated index channels make a pair, "half" or "interleaved", whatever the heads have;
            the first, as in DeepSeek-V3.2, unless given.
        :param block: how many consecutive keys are chosen together; 1 unless given.
        :param pool: how the scores of a block are pooled, "max" or "mean"; the first unless given.
        """
        like: Any = {"device": device, "dtype": dtype}
        super().__init__(
            d_model, heads, d_latent, d_rotary=d_rotary, d_query=d_query, norm=norm, d_head=d_head, bias=bias,
            dropout=dropout, positions=positions, **like,
        )  # fmt: skip
        self.indexer = Indexer(
            d_model, k, heads=index_heads, d=d_index, d_asked=d_query or d_model, d_key=d_model, d_rotary=d_rotary,
            block=block, pool=pool, norm=True, layout=index_layout, **like,
        )  # fmt: skip
        self.at_index, self.at_chosen = Tap(), Tap()

    @property
    def k(self) -> int:
        """How many keys, or blocks of keys, each query reads."""
        return self.indexer.k

    @k.setter
    def k(self, k: int) -> None:
        check_whole(k=k)
        self.indexer.k = k

    def forward(
        self,
        query: Float[Tensor, "b i m"],
        key: Float[Tensor, "b j m"] | None = None,
        value: Float[Tensor, "b j m"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        *,
        is_causal: bool = False,
        cache: LayerCache | None = None,
        absorb: bool | None = None,
    ) -> Float[Tensor, "b i m"]:
        """Compress, choose, read in one of the two forms, merge.

        :param absorb: whether the absorbed form runs; the one with fewer FLOPs unless given, without a cache the
            expanded one.
        """
        if absorb is not None:
            check_flag(absorb=absorb)
        key, mask = self._check_latent_call(query, key, value, mask, is_causal, cache)
        start = 0 if cache is None else cache.length
        asked = self._compressed(query)
        q = self._queries_of(asked, start)
        rows, index_keys = self._rows(key, cache)
        if chooses(self, rows.shape[2]):
            allowed = core.visible(q, rows, mask, is_causal)
            scores = self.at_index(hide_keys(self.indexer(asked, query, index_keys, self.positions, start), allowed))
            if gathers(self, q.shape[2], allowed):
                at, mask = self.indexer.best(scores)
                rows, is_causal = gathered(rows, at), False
            else:
                chosen = self.at_chosen(self.indexer.choose(scores))[:, None]
                mask = chosen if mask is None else chosen & mask
        if absorb is None:
            absorb = cache is not None and self.absorbs(q.shape[2], rows.shape[2])
        read = self.read_absorbed if absorb else self.read_expanded
        return self._merge(self.at_heads(read(q, rows, mask, is_causal)))

    def index(
        self,
        x: Float[Tensor, "b i m"],
        key: Float[Tensor, "b j m"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        *,
        is_causal: bool = False,
    ) -> Float[Tensor, "b i j"]:
        """Score every key for every query; gradients reach the parameters of the index and nothing else.

        :param x: what asks, (b, i, d_model).
        :param key: what is compared with, (b, j, d_model); x unless given.
        :param mask: (i, j) or (b, h, i, j), True = may look. What no head may look at is −inf; nothing unless given.
        :param is_causal: whether each token sees only itself and what came before.
        """
        inputs.check_input("x", x, self.W_q if self.W_down_q is None else self.W_down_q)
        key, mask = self._check_latent_call(x, key, None, mask, is_causal, None)
        index_keys = self.indexer.keys(key, self.positions, 0)
        scores = self.indexer(self._compressed(x), x, index_keys, self.positions, 0)
        return hide_keys(scores, core.visible(x, key, mask, is_causal))

    def _compressed(self, x: Tensor) -> Tensor:
        """Make what queries of heads and index come from."""
        return x if self.W_down_q is None else self._normed(self.W_down_q(x), self.norm_query)

    def queries(self, x: Tensor, start: int) -> Tensor:
        """Make the queries of tokens at positions from ``start`` on: their own channels, then the rotated ones."""
        return self._queries_of(self._compressed(x), start)

    def _queries_of(self, asked: Tensor, start: int) -> Tensor:
        q = core.split_heads(self.W_q(asked), self.heads)
        if self.W_rotary_q is None:
            return q
        return torch.cat([q, self._into_heads(self.W_rotary_q(asked), self.heads, start)], -1)

    def _squeeze(self, query: Tensor, key: Tensor, cache: LayerCache | None) -> tuple[Tensor, Tensor]:
        q = self.queries(query, 0 if cache is None else cache.length)
        return q, self._rows(key, cache)[0]

    def _rows(self, key: Tensor, cache: LayerCache | None) -> tuple[Tensor, Tensor]:
        """Make rows (b, 1, j, d_latent + d_rotary) and index keys (b, j, d_index), those of the past included.

        Without a cache, and with as many keys as are read anyway, there are no index keys to make.
        """
        start = 0 if cache is None else cache.length
        if cache is not None and cache.holds(key):
            rows, index_keys = cache.held()
            return rows, index_keys[:, 0]
        rows = self._normed(self.W_down(key), self.norm_latent)[:, None]
        if self.W_rotary_k is not None:
            rows = torch.cat([rows, self._into_heads(self.W_rotary_k(key), 1, start).to(rows)], -1)
        if cache is None:
            unasked = not chooses(self, rows.shape[2])
            return rows, rows[:, 0, :, :0] if unasked else self.indexer.keys(key, self.positions, start)
        rows, index_keys = cache.update(rows, self.indexer.keys(key, self.positions, start)[:, None])
        return rows, index_keys[:, 0]

    @classmethod
    def plain_settings(cls, layer: Heads) -> dict[str, Any]:
        """Let each query read everything, and let the latent be as wide as the input."""
        return super().plain_settings(layer) | {"k": EVERY}

    @checked
    def cost(
        self,
        b: int,
        i: int,
        j: int | None = None,
        *,
        fresh: int | None = None,
        stored: bool = False,
        absorb: bool | None = None,
        gather: bool | None = None,
    ) -> Cost:
        """Count one call on paper, as :meth:`LatentAttention.cost` does, with the index, and with the rows read.

        :param gather: whether each query reads its chosen rows only, as a kernel for sparse attention does it; as here
            unless given: a single query does, and several read all rows under a mask. Never where weights are
            ``stored``.
        """
        j = i if j is None else j
        stored, reads = stored or getattr(self.positions, "bias", None) is not None, self.indexer.reads
        few = reads < j
        gather = few and not stored and (i == 1 if gather is None else gather)
        if absorb is None and gather:
            absorb = fresh is not None and self.absorbs(i, reads)
        cost = super().cost(b, i, j, fresh=fresh, stored=stored, absorb=absorb)
        if gather:
            read = super().cost(b, 1, reads, fresh=0, absorb=absorb)
            taken = self.W_q.weight.element_size() * b * i * reads * (self.d_latent + self.d_rotary)
            cost = count_read(cost, read, i, taken, () if absorb else ("W_k", "W_v"))
        return count_index(self.indexer, cost, b, i, j, fresh=fresh, few=few)

    @checked
    def new_cache(self, capacity: int = 1024, padding: Tensor | list[int] | None = None) -> IndexedLatentCache:
        """Make an empty cache for this layer."""
        return IndexedLatentCache(capacity, padding)
