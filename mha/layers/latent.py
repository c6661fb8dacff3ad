"""Keys and values of all heads are made from one short vector per token (MLA), and only that vector is kept.

:Taught in: compress.
"""

import copy
import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha.checks import check_flag, check_whole, checked
from mha.functional import core, devices
from mha.functional.core import NO_CHANGES, Changes, split_heads
from mha.functional.latent import Latent, count_forms, fit_latent
from mha.layers.cache import KeyValueCache, LayerCache
from mha.layers.cost import Cost, Part, count_linear, count_weights
from mha.layers.inputs import (
    check_cache,
    check_input,
    check_nested,
    check_order,
    check_positions,
    check_visible,
    default_inputs,
    is_same,
    nested_ones,
)
from mha.layers.multi_head import Heads
from mha.layers.positions import RelativePositions, RotaryPositions
from mha.layers.projections import settled

EPS = 1e-6  # of the norms, as in the released code


class LatentCache(KeyValueCache):
    """Remember one short row for each token: its latent, and the rotated key that all heads share.

    :Costs: d_latent + d_rotary numbers for each position, whatever the number of heads.
    :Shapes: rows (b, 1, n, d_latent + d_rotary); the values are a view of their first d_latent channels.
    :Raises: ValueError as KeyValueCache.
    :Source: DeepSeek-AI 2024, section 2.1.
    :Taught in: compress.
    """

    keeps = "latents"

    def update(
        self, k: Float[Tensor, "b h n d"], v: Float[Tensor, "b g n c"]
    ) -> tuple[Float[Tensor, "b h t d"], Float[Tensor, "b g t c"]]:
        """Store the new rows and return all of them: as keys, and their first channels as values."""
        rows, _ = super().update(k, k[..., :0])
        return rows, rows[..., : v.shape[-1]]


def check_widths(d_latent: int, d_rotary: int, d_query: int | None) -> None:
    """Refuse widths that make no latent, no pairs, no query."""
    check_whole(d_latent=d_latent)
    check_whole(0, d_rotary=d_rotary)
    if d_query is not None:
        check_whole(d_query=d_query)
    if d_rotary % 2:
        raise ValueError(f"d_rotary = {d_rotary}: rotary channels are rotated in pairs, so it must be even")


def rotates(positions: RelativePositions | None) -> bool:
    """Whether positions change queries and keys themselves, and not only the scores.

    :param positions: what a layer has inside; None where it has nothing.
    """
    return positions is not None and type(positions).rotate is not RelativePositions.rotate


def choose_positions(positions: RelativePositions | None, d_rotary: int) -> RelativePositions | None:
    """Return what marks the positions; refuse positions that would act between queries and latents.

    :param positions: what was given; where nothing was, rotary ones with neighboring pairs, or none without
        ``d_rotary``.
    :param d_rotary: the width of the channels that can be rotated.
    """
    if positions is None:
        return RotaryPositions(layout="interleaved") if d_rotary else None
    name = type(positions).__name__
    if rotates(positions) and not d_rotary:
        raise ValueError(
            f"{name} rotate queries and keys, but d_rotary = 0 leaves no channels for that: keys made from latents "
            "cannot be rotated, because W_k could not be absorbed any more. Give d_rotary, the width of a key of "
            "its own"
        )
    if d_rotary and not rotates(positions):
        raise ValueError(f"d_rotary = {d_rotary} channels are there to be rotated, but {name} rotate nothing: give 0")
    return positions


class LatentAttention(Heads):
    """Attend with latents (MLA): keys and values of all heads come from one short vector per token; only it is kept.

    Such keys cannot be rotated by positions (RoPE). Positions get channels of their own: each head has ``d_rotary``
    more for its query, and all heads share one rotated key. There are two forms with the same result. *Expanded*,
    keys and values are made from the latents. *Absorbed*, ``W_k`` is applied to the queries and ``W_v`` to the
    result, and the heads read the latents themselves. Without a cache the expanded form runs; with one the form that
    takes fewer FLOPs (:func:`mha.functional.count_forms`); ``absorb`` decides it.

    :Plain when: ``d_rotary`` is 0, there is no norm, and ``d_latent`` is ``d_model`` with a ``W_down`` of ones on the
        diagonal: then the layer's input is kept, half as much as keys and values.
    :Changes: ``W_k`` and ``W_v``, which read latents made by ``W_down``; with ``d_query`` also ``W_q``.
    :Costs: d_model · (2 · h·d + d_latent) + 2 · d_latent · h·d parameters, and the rotary ones; a cache of d_latent +
        d_rotary numbers per token. Absorbed, a score takes d_latent + d_rotary multiplications instead of d + d_rotary.
    :Shapes: as :class:`mha.MultiHeadAttention`, with one memory for keys and values; a cache holds rows (b, 1, n,
        d_latent + d_rotary).
    :Raises: ValueError for widths out of range, for positions that rotate without ``d_rotary``, for a value of its own,
        and as MultiHeadAttention.
    :Source: DeepSeek-AI 2024, "DeepSeek-V2", section 2.1.
    :Differs from the paper: with ``norm``, latents of keys and of queries pass an RMSNorm, as in the released code.
    :Differs from the released code: the norm is computed in the type of the tokens, there in float32; one matrix there
        is several here, by name.
    :Taught in: compress.
    """

    reads: tuple[str, ...] = ("latents", "keys and values")
    stores: tuple[str, ...] = ("W_down", "W_rotary_k", "norm_latent")
    inseparable = None
    of_heads = ("W_rotary_q",)

    @checked
    def __init__(
        self,
        d_model: int,
        heads: int,
        d_latent: int,
        *,
        d_rotary: int = 0,
        d_query: int | None = None,
        norm: bool = False,
        d_head: int | None = None,
        bias: bool | str = True,
        dropout: float = 0.0,
        positions: RelativePositions | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Make the layer; the other keywords are those of :class:`mha.Heads`.

        :param d_latent: the width of the vector that is kept for each token.
        :param d_rotary: the width of the rotated channels, an even number; 0, none, unless given.
        :param d_query: the width of compressed queries; they are not compressed unless given.
        :param norm: whether an RMSNorm follows each compression.
        :param positions: what rotates the ``d_rotary`` channels; rotary with neighboring pairs unless given.
        """
        check_widths(d_latent, d_rotary, d_query)
        positions = choose_positions(positions, d_rotary)
        like: Any = {"device": device, "dtype": dtype}
        replaced = ("W_k", "W_v") if d_query is None else ("W_q", "W_k", "W_v")
        super().__init__(
            d_model, heads, d_head=d_head, bias=bias, dropout=dropout, positions=positions, replaced=replaced, **like
        )
        self.d_latent, self.d_rotary, self.d_query, self.norm = d_latent, d_rotary, d_query, norm
        inner, of_queries = heads * self.d_head, d_query or d_model
        self.W_down = nn.Linear(d_model, d_latent, bias=False, **like)
        self.W_k = nn.Linear(d_latent, inner, bias=self.W_k.bias is not None, **like)
        self.W_v = nn.Linear(d_latent, inner, bias=self.W_v.bias is not None, **like)
        self.norm_latent = nn.RMSNorm(d_latent, eps=EPS, **like) if norm else None
        self.W_down_q: nn.Linear | None = None
        self.norm_query: nn.RMSNorm | None = None
        self.W_rotary_q: nn.Linear | None = None
        self.W_rotary_k: nn.Linear | None = None
        if d_query is not None:
            self.W_down_q = nn.Linear(d_model, d_query, bias=False, **like)
            self.W_q = nn.Linear(d_query, inner, bias=self.W_q.bias is not None, **like)
            self.norm_query = nn.RMSNorm(d_query, eps=EPS, **like) if norm else None
        if d_rotary:
            self.W_rotary_q = nn.Linear(of_queries, heads * d_rotary, bias=False, **like)
            self.W_rotary_k = nn.Linear(d_model, d_rotary, bias=False, **like)

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
        """Compress, read in one of the two forms, merge.

        :param absorb: whether the absorbed form runs; the one with fewer FLOPs unless given, without a cache the
            expanded one.
        """
        if absorb is not None:
            check_flag(absorb=absorb)
        key, mask = self._check_latent_call(query, key, value, mask, is_causal, cache)
        q, rows = self._squeeze(query, key, cache)
        if absorb is None:
            absorb = cache is not None and self.absorbs(q.shape[2], rows.shape[2])
        read = self.read_absorbed if absorb else self.read_expanded
        return self._merge(self.at_heads(read(q, rows, mask, is_causal)))

    def absorbs(self, i: int, j: int) -> bool:
        """Whether the absorbed form takes fewer FLOPs, with i queries and j latents that are there.

        :param i: how many queries there are.
        :param j: how many latents there are, earlier ones included.
        """
        counted = count_forms(i, j, self.heads, self.d_head, self.d_latent, self.d_rotary)
        return counted.absorbed < counted.expanded

    def _project(self, query: Tensor, key: Tensor, value: Tensor, cache: LayerCache | None) -> tuple[Tensor, ...]:
        """Make queries and keys (b, h, n, d + d_rotary) and values (b, h, n, d): the expanded form."""
        q, rows = self._squeeze(query, key, cache)
        return q, *self.expand(rows)

    def _squeeze(self, query: Tensor, key: Tensor, cache: LayerCache | None) -> tuple[Tensor, Tensor]:
        start = 0 if cache is None else cache.length
        q = self.queries(query, start)
        if cache is not None and cache.holds(key):
            return q, cache.held()[0]
        rows = self._normed(self.W_down(key), self.norm_latent)[:, None]
        if self.W_rotary_k is not None:
            rows = torch.cat([rows, self._into_heads(self.W_rotary_k(key), 1, start).to(rows)], -1)
        return q, rows if cache is None else cache.update(rows, rows[..., : self.d_latent])[0]

    def squeeze(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        is_causal: bool = False,
        cache: LayerCache | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Make queries (b, h, i, d + d_rotary), and rows of latent and rotated key (b, 1, j, d_latent + d_rotary).

        :param query: what asks, (b, i, d_model).
        :param key: what is compressed, (b, j, d_model); the query unless given.
        :param value: the key again, or nothing.
        :param mask: (i, j) or (b, h, i, j), True = may look; it is only checked.
        :param is_causal: only checked, too.
        :param cache: rows of earlier calls, which come first.
        """
        key, _ = self._check_latent_call(query, key, value, mask, is_causal, cache)
        return self._squeeze(query, key, cache)

    def _normed(self, x: Tensor, norm: nn.RMSNorm | None) -> Tensor:
        """Pass the norm, if there is one, in the type of its parameters: autocast may have changed that of the tokens.

        :param x: latents, or compressed queries.
        :param norm: the norm that they pass, if there is one.
        """
        return x if norm is None else norm(x.to(norm.weight.dtype)).to(x)

    def queries(self, x: Tensor, start: int) -> Tensor:
        """Make the queries of tokens at positions from ``start`` on: their own channels, then the rotated ones.

        :param x: the input, (b, i, d_model).
        :param start: the position of the first token.
        """
        if self.W_down_q is not None:
            x = self._normed(self.W_down_q(x), self.norm_query)
        q = split_heads(self.W_q(x), self.heads)
        if self.W_rotary_q is None:
            return q
        return torch.cat([q, self._into_heads(self.W_rotary_q(x), self.heads, start)], -1)

    def expand(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Make the keys and values of all heads from the rows.

        :param rows: latents and rotated keys, (b, 1, j, d_latent + d_rotary).
        """
        latents, rotated = rows[:, 0].split([self.d_latent, self.d_rotary], -1)
        k, v = (split_heads(linear(latents), self.heads) for linear in (self.W_k, self.W_v))
        return torch.cat([k, rotated[:, None].expand(-1, self.heads, -1, -1)], -1) if self.d_rotary else k, v

    def read_expanded(self, q: Tensor, rows: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor:
        """Read in the expanded form: every head has keys and values of its own.

        :param q: queries, (b, h, i, d + d_rotary).
        :param rows: latents and rotated keys, (b, 1, j, d_latent + d_rotary).
        :param mask: (i, j) or (b, h, i, j), True = may look; everything may be looked at where it is None.
        :param is_causal: whether each token sees only itself and what came before.
        """
        k, v = self.expand(rows)
        if self._adds_bias(q, k, NO_CHANGES, explicit=False):
            return self._read_biased(q, k, v, mask, is_causal=is_causal, scale=self.scale)
        changes = self._with_watchers(NO_CHANGES)
        if self.d_rotary and not changes:  # the fused kernel wants values as wide as keys
            v = F.pad(v, (0, self.d_rotary))
        read = self._read(q, k, v, mask, is_causal=is_causal, scale=self.scale, changes=changes)
        return read[..., : self.d_head]

    def read_absorbed(self, q: Tensor, rows: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor:
        """Read in the absorbed form: all heads share one key, the row, and one value, its latent.

        :param q: as in :meth:`read_expanded`.
        :param rows: as there.
        :param mask: as there.
        :param is_causal: as there.
        """
        maps = settled(self)
        w_k, w_v = (linear.weight.unflatten(0, (self.heads, -1)) for linear in (maps.W_k, maps.W_v))
        own, rotated = q.split([self.d_head, self.d_rotary], -1)
        read, share = self._read_latents(torch.cat([own @ w_k, rotated], -1), own, rows, mask, is_causal)
        heads = read @ w_v.mT
        return heads if maps.W_v.bias is None else heads + share * maps.W_v.bias.to(heads).view(self.heads, 1, -1)

    def _read_latents(
        self, q: Tensor, own: Tensor, rows: Tensor, mask: Tensor | None, is_causal: bool
    ) -> tuple[Tensor, Tensor | float]:
        """Read with queries (b, h, i, d_latent + d_rotary), and say how much of the bias of values a row reads."""
        scale = 1 / math.sqrt(self.d_head + self.d_rotary) if self.scale is None else self.scale
        dropout, maps = self.dropout if self.training else 0.0, settled(self)
        changes = self._with_watchers(NO_CHANGES)
        if changes and maps.W_k.bias is not None:  # it adds the same to a whole row: only who looks at scores notices
            of_bias = scale * (own * maps.W_k.bias.to(own).view(self.heads, 1, -1)).sum(-1, keepdim=True)
            changes = Changes(scores=lambda scores: scores + of_bias).then(changes)
        shares: list[Tensor] = []
        noted = maps.W_v.bias is not None and (bool(changes) or dropout > 0 or mask is not None)
        if noted:  # then a row of weights may not sum to 1

            def note(weights: Tensor) -> Tensor:
                weights = F.dropout(weights, dropout) if dropout else weights
                shares.append(weights.sum(-1, keepdim=True))
                return weights

            changes = changes.then(Changes(weights=note))
        explicit = devices.multiplies_latents(rows)
        if changes or explicit:
            k, v = rows, rows[..., : self.d_latent]
        else:  # the fused kernel wants values as wide as keys
            k = v = rows.expand(-1, devices.copies_of_rows(rows, self.heads), -1, -1)
        left = 0.0 if noted else dropout
        read = core.attend(
            q, k, v, mask, is_causal=is_causal, scale=scale, dropout=left, explicit=explicit, changes=changes
        )
        return read[..., : self.d_latent], shares[0].to(read) if noted else 1.0

    @classmethod
    def plain_settings(cls, layer: Heads) -> dict[str, Any]:
        """Let the latent be as wide as the input; :func:`compress` makes narrower ones."""
        settings = layer.settings(positions=not rotates(layer.positions))
        kdim, vdim = settings.pop("kdim"), settings.pop("vdim")
        if {kdim, vdim} != {layer.d_model}:
            raise ValueError(
                f"kdim = {kdim}, vdim = {vdim}, d_model = {layer.d_model}: keys and values come from one latent, so "
                "all three must be equal"
            )
        return settings | {"d_latent": layer.d_model}

    def _become(self, layer: Heads) -> None:
        """Keep the input itself."""
        super()._become(layer)
        nn.init.eye_(self.W_down.weight)

    def _check_call(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        mask: Tensor | None,
        is_causal: bool,
        cache: LayerCache | None,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        key, mask = self._check_latent_call(query, key, value, mask, is_causal, cache)
        return key, key, mask

    def _check_latent_call(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        mask: Tensor | None,
        is_causal: bool,
        cache: LayerCache | None,
    ) -> tuple[Tensor, Tensor | None]:
        """Ask once for everything that could go wrong, values that come from elsewhere than the keys among it."""
        if nested := nested_ones(query=query, key=key, value=value):
            check_nested(self, nested, False)
        key, value = default_inputs(query, key, value, is_causal)
        check_input("query", query, self.W_q if self.W_down_q is None else self.W_down_q)
        check_input("key", key, self.W_down)
        if not is_same(value, key):
            check_input("value", value, self.W_down)
            raise ValueError(
                f"value {tuple(value.shape)} is another tensor than key {tuple(key.shape)}, but both are made from one "
                "latent: leave value out"
            )
        if query.shape[0] != key.shape[0]:
            raise ValueError(f"query {tuple(query.shape)} and key {tuple(key.shape)} must have one batch size")
        check_positions(self.positions, query, key)
        if cache is not None:
            check_cache(cache, self)
            shown = cache.admit(self, query, key, value, mask)
            check_order(cache, query, mask, is_causal)
            return key, shown
        if mask is not None:
            check_visible(mask, query, key, self.heads)
        return key, mask

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
    ) -> Cost:
        """Count one call on paper, as :meth:`Heads.cost` does, in the form that would run or the one asked for.

        Absorbed, the two halves of ``W_k`` and ``W_v`` are counted where queries and head outputs pass them; the rows
        are read once, by the scores, unless the weights are ``stored``.

        :param fresh: how many rows are made, where a cache holds the others; without a cache it is not given.
        :param absorb: whether the absorbed form is counted; the one that would run unless given.
        """
        cached = fresh is not None
        j = i if j is None else j
        fresh = j if fresh is None else fresh
        if min(b, i, j) < 1 or not 0 <= fresh <= j:
            raise ValueError(f"b = {b}, i = {i}, j = {j}, fresh = {fresh}: at least 1, and 0 to {max(j, 0)} fresh keys")
        absorb = cached and self.absorbs(i, j) if absorb is None else absorb
        stored = stored or getattr(self.positions, "bias", None) is not None
        size, inner, wide = self.W_q.weight.element_size(), self.W_o.in_features, self.d_latent + self.d_rotary
        rows = {"W_down_q": b * i, "W_q": b * i, "W_rotary_q": b * i, "W_down": b * fresh, "W_rotary_k": b * fresh}
        rows |= {} if absorb else {"W_k": b * j, "W_v": b * j}
        rows |= {"W_o": b * i}
        parts = {
            name: count_linear(getattr(self, name), n) for name, n in rows.items() if getattr(self, name) is not None
        }
        scores, latents = b * self.heads * i * j, b * j * self.d_latent
        twice = 2 * scores if stored else 0  # written by one step and read by the next
        key, read = (wide, self.d_latent) if absorb else (self.d_head + self.d_rotary, self.d_head)
        q, heads = b * self.heads * i * key, b * self.heads * i * read
        k, v = (b * j * wide, latents if stored else 0) if absorb else (b * self.heads * j * n for n in (key, read))
        if absorb:
            narrow = b * i * inner
            for name, linear in (("W_k", self.W_k), ("W_v", self.W_v)):
                moved = size * (narrow + narrow // self.d_head * self.d_latent + count_weights(linear))
                parts[name] = Part(2 * narrow * self.d_latent, moved)
        parts["scores"] = Part(2 * scores * key, size * (q + k + twice))
        parts["read"] = Part(2 * scores * read, size * (v + heads + twice))
        parameters = sum(p.numel() for p in self.parameters())
        alive = b * self.heads * i * (self.d_head + self.d_rotary) + (0 if cached and fresh < j else b * j * wide)
        peak = alive + (self._peak_absorbed if absorb else self._peak_expanded)(b, i, j, stored)
        return Cost(parameters, parts, size * parameters, size * b * j * wide, size * peak)

    def _peak_expanded(self, b: int, i: int, j: int, stored: bool) -> int:
        """Count the numbers that live beside queries and rows at the fullest moment of the expanded form."""
        of_head, rotated = b * self.heads, self.d_head + self.d_rotary
        k, v, scores = of_head * j * rotated, of_head * j * self.d_head, of_head * i * j
        if stored:
            return k + v + of_head * i * rotated + k + 2 * scores
        if self.d_rotary:  # keys are joined and values are padded: twice there is an old and a new tensor
            return k + max(2 * v, v + k, k + of_head * i * (rotated + 1))
        return k + v + of_head * i * (rotated + 1)

    def _peak_absorbed(self, b: int, i: int, j: int, stored: bool) -> int:
        """Count the numbers that live beside queries and rows at the fullest moment of the absorbed form."""
        rows, wide = b * self.heads * i, self.d_latent + self.d_rotary
        weight = b * self.heads * self.d_head * self.d_latent if b > 1 else 0  # a batched product copies it
        reading = rows * (2 * wide + (2 * j if stored else 1))
        biased = rows * self.d_head if self.W_v.bias is not None else 0
        answering = rows * (wide + self.d_head) + max(weight, biased)
        return max(reading, answering)

    @checked
    def new_cache(self, capacity: int = 1024, padding: Tensor | list[int] | None = None) -> LatentCache:
        """Make an empty cache for this layer."""
        return LatentCache(capacity, padding)


@checked
@torch.no_grad()
def compress(layer: Heads, d_latent: int, tokens: Float[Tensor, "... m"] | None = None) -> LatentAttention:
    """Let a trained layer keep ``d_latent`` numbers per token in place of keys and values, and change it least.

    ``W_k`` and ``W_v``, stacked, are cut together by :func:`mha.functional.fit_latent`; queries, outputs
    and biases stay. With ``tokens`` what changes least is the keys and values of such tokens; without, the matrices.
    From the rank of the pair on nothing changes: at the latest with ``d_model``, and with 2 · g · d for g shared KV
    heads of width d.

    :param layer: a layer of plain heads, which may share keys.
    :param d_latent: how many numbers are kept for each token, 1 to ``d_model``.
    :param tokens: thousands of rows that the layer usually reads, (..., d_model), such as what a forward hook has
        seen; none unless given.
    :Raises: ValueError where ``d_latent`` is below 1 or above ``d_model``, for tokens of another width, and for a layer
        that computes something other than plain heads which may share keys: it is tried on a few random tokens.
    :Differs from the paper: it trains latents from scratch and converts nothing.
    :Taught in: compress.
    """
    name, layer = type(layer).__name__, settled(layer)
    own = {part.partition(".")[0] for part in layer.state_dict()} - {"W_q", "W_k", "W_v", "W_o", "positions"}
    shared = layer.kv_heads * layer.d_head, layer.d_model
    wrong = own or any(tuple(linear.weight.shape) != shared for linear in (layer.W_k, layer.W_v))
    if wrong or tuple(layer.W_q.weight.shape) != (layer.heads * layer.d_head, layer.d_model):
        raise ValueError(f"{name} is no layer of plain heads over one sequence, which may share keys: give such a one")
    if rotates(layer.positions):
        raise ValueError(
            f"this layer has {type(layer.positions).__name__} inside, which rotate the keys after W_k: such keys are "
            "not made from a latent. Take a layer without them"
        )
    if not 1 <= d_latent <= layer.d_model:
        raise ValueError(f"d_latent = {d_latent}: 1 to {layer.d_model}, the width of a token, where nothing changes")
    found = fit_latent(layer.W_k.weight, layer.W_v.weight, d_latent, tokens)
    whole = Latent(torch.eye(layer.d_model), layer.W_k.weight, layer.W_v.weight)
    old, new = copy.deepcopy(layer).double().eval(), _remade(layer, whole).double().eval()
    x = torch.arange(3.0 * layer.d_model, dtype=torch.float64).sin().view(1, 3, -1).to(layer.W_q.weight.device)
    if not torch.allclose(old(x), new(x), rtol=1e-3, atol=1e-3 * float(old(x).abs().max())):
        raise ValueError(f"{name} computes something other than plain heads: on random tokens its output differs")
    return _remade(layer, found)


def _remade(layer: Heads, found: Latent) -> LatentAttention:
    """Make a layer around the new factors; queries, outputs and biases stay."""
    bias = "".join(letter for letter in "qkvo" if getattr(layer, f"W_{letter}").bias is not None)
    new = LatentAttention(
        layer.d_model,
        layer.heads,
        len(found.down),
        d_head=layer.d_head,
        bias=bias,
        dropout=layer.dropout,
        positions=layer.positions,
    ).to(layer.W_q.weight)
    new.W_down.weight.copy_(found.down)
    for linear, old, up in ((new.W_k, layer.W_k, found.keys), (new.W_v, layer.W_v, found.values)):
        linear.weight.copy_(_of_all(up, layer))
        if linear.bias is not None:
            linear.bias.copy_(_of_all(old.bias, layer))
    new.W_q.load_state_dict(layer.W_q.state_dict())
    new.W_o.load_state_dict(layer.W_o.state_dict())
    return new.train(layer.training)


def _of_all(rows: Tensor, layer: Heads) -> Tensor:
    """Copy the rows of a shared head for each head that reads it."""
    of_heads = rows.unflatten(0, (layer.kv_heads, layer.d_head))
    return of_heads.repeat_interleave(layer.heads // layer.kv_heads, 0).flatten(0, 1)
