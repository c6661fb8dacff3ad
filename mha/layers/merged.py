"""Cross-attention that also carries an average of the decoder's own tokens, so that self-attention can go.

:Taught in: merge_and_deepen.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mha.checks import check_is_tensor, check_whole, checked, described
from mha.functional.core import split_heads
from mha.layers.cache import LayerCache, MemoryCache, check_no_gradients
from mha.layers.cost import Cost, Part, count_linear
from mha.layers.inputs import check_no_padding
from mha.layers.multi_head import Heads


class MergedCache(MemoryCache):
    """Remember the memory's keys and values, and the sum of the decoder's own values so far: one vector per head.

    Pass it to a layer, ``layer(x_new, memory, cache=cache)``; it does not grow with the tokens.

    :Raises: ValueError as :class:`MemoryCache`, and where gradients are asked for.
    :Taught in: merge_and_deepen.
    """

    keeps_every_token = False

    def __init__(self) -> None:
        super().__init__()
        self._total: Tensor | None = None
        self._count: Tensor | None = None

    def _move(self, rows: Callable[[Tensor], Tensor]) -> None:
        super()._move(rows)
        if self._total is not None and self._count is not None:
            self._total, self._count = rows(self._total), rows(self._count) if len(self._count) > 1 else self._count

    def mask(self, new: int) -> None:
        """Hide nothing: this cache knows of no padding.

        :param new: how many tokens come next, at least 1.
        """
        check_whole(new=new)

    def add(
        self, total: Float[Tensor, "b h n d"], count: Float[Tensor, "c 1 n 1"]
    ) -> tuple[Float[Tensor, "b h n d"], Float[Tensor, "c 1 n 1"]]:
        """Add what was summed before to the sums of a new chunk, and keep the last of them.

        :param total: sums of the values in the new chunk, up to each token.
        :param count: how many tokens each sum has.
        """
        check_no_gradients(total, count)
        if self._total is not None and self._count is not None:
            total, count = total + self._total, count + self._count
        self._total, self._count = total[:, :, -1:].clone(), count[:, :, -1:].clone()
        self._length += total.shape[2]
        return total, count


def check_width(d_model: int, vdim: int) -> None:
    """Refuse a memory that the same values cannot be made of."""
    if vdim != d_model:
        raise ValueError(
            f"vdim = {vdim}, but d_model = {d_model}: one W_v makes the values of the memory and of the decoder's "
            "tokens, so both need one width; or say average=False"
        )


def check_own_mask(own_mask: Tensor, query: Tensor, name: str = "own_mask") -> None:
    """Refuse a mask that does not say which of the decoder's own tokens count."""
    check_is_tensor(name, own_mask)
    b, i = query.shape[:2]
    if own_mask.ndim != 4 or own_mask.shape[0] not in (1, b) or own_mask.shape[1:3] != (1, 1) or own_mask.shape[3] < i:
        raise ValueError(f"{name} has shape {tuple(own_mask.shape)}, but must be ({b}, 1, 1, {i} or more)")
    if own_mask.dtype != torch.bool or own_mask.device != query.device:
        raise TypeError(f"{name} is {own_mask.dtype} on {own_mask.device}, but must be torch.bool on {query.device}")


def check_call(query: Tensor, key: Tensor | None, own_mask: Tensor | None, cache: LayerCache | None) -> None:
    """Refuse a call that has nothing to read, or a cache without a running sum."""
    if key is None:
        raise ValueError("key = None: a merged layer reads a memory and averages its own tokens: call layer(x, memory)")
    if cache is not None and not isinstance(cache, MergedCache):
        raise ValueError(f"cache = {described(cache)} keeps no running sum of tokens: use layer.new_cache()")
    if own_mask is not None:
        check_own_mask(own_mask, query)


class MergedAttention(Heads):
    """Attend with merged attention: attend to a memory, and add an average.

    The average of the decoder's own values up to the present token is added to each head output.

    :Plain when: ``average`` is False: cross-attention.
    :Changes: the head outputs, by Σ_{n ≤ i} W_v x_n / i, with the same ``W_v`` that reads the memory. There are no
        queries, keys and output matrix for the decoder's own tokens: one ``W_o`` mixes the sum.
    :Costs: the parameters of one plain layer, where a decoder has two; the average needs 2 · i · d_model² more FLOPs
        and no scores. With a cache it is a running sum of one vector per head.
    :Shapes: as :class:`mha.MultiHeadAttention`, with values (b, j, d_model); the mask is for the memory.
    :Raises: ValueError without a memory, for values of another width, and for a cache without a running sum.
    :Source: Zhang et al. 2019, the merged attention sublayer.
    :Differs from the released code: in decoding, tokens that ``own_mask`` hides do not count in the length of the
        average; there they do. In training neither counts them, but at the hidden positions themselves the outputs
        differ: here such a token reads the average of what is before it.
    :Taught in: merge_and_deepen.
    """

    inseparable = None

    @checked
    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        average: bool = True,
        d_head: int | None = None,
        kdim: int | None = None,
        vdim: int | None = None,
        bias: bool | str = True,
        dropout: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Make the layer; the other keywords are those of :class:`mha.Heads`.

        :param average: whether the average of the decoder's own values is added.
        """
        like: Any = {"device": device, "dtype": dtype}
        super().__init__(d_model, heads, d_head=d_head, kdim=kdim, vdim=vdim, bias=bias, dropout=dropout, **like)
        self.average = average
        if average:
            check_width(d_model, self.W_v.in_features)

    def forward(
        self,
        query: Float[Tensor, "b i m"],
        key: Float[Tensor, "b j mk"] | None = None,
        value: Float[Tensor, "b j mv"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        *,
        is_causal: bool = False,
        own_mask: Bool[Tensor, "..."] | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "b i m"]:
        """Project, attend, add the average, merge.

        :param own_mask: (b, 1, 1, i) for the decoder's own tokens, True = counts in the average; all unless given.
        """
        if self.average:
            check_call(query, key, own_mask, cache)
        key, value, mask = self._check_call(query, key, value, mask, is_causal, cache)
        q, k, v = self._project(query, key, value, cache)
        changes = self._with_watchers(self.changes())
        heads = self._read(q, k, v, mask, is_causal=is_causal, scale=self.scale, changes=changes)
        return self._merge(self.at_heads(self.add_average(heads, query, own_mask, cache)))

    def add_average(
        self, heads: Float[Tensor, "b h i d"], x: Tensor, own_mask: Tensor | None, cache: LayerCache | None
    ) -> Float[Tensor, "b h i d"]:
        """Add the average of the decoder's own tokens to the head outputs, unless it is switched off.

        :param heads: the head outputs, from the memory.
        :param x: the decoder's own tokens, (b, i, d_model).
        :param own_mask: as in :meth:`forward`.
        :param cache: where the running sum is kept.
        """
        if self.average:
            running = None if cache is None else cast(MergedCache, cache)  # check_call has looked
            return heads + self.own_average(x, own_mask, running)
        if isinstance(cache, MergedCache):
            cache._length += x.shape[1]  # nothing to remember, but these tokens have been fed
        return heads

    def own_average(
        self, x: Float[Tensor, "b i m"], own_mask: Tensor | None = None, cache: MergedCache | None = None
    ) -> Float[Tensor, "b h i d"]:
        """Average the values of all the decoder's own tokens so far, in every head.

        :param x: the decoder's own tokens.
        :param own_mask: as in :meth:`forward`.
        :param cache: the running sum of earlier calls; the sum begins with x unless given.
        """
        v = split_heads(self.W_v(x), self.heads)
        exact = v.to(torch.promote_types(v.dtype, torch.float32))  # half precision cannot count beyond 256 or 2048
        counts = (
            torch.ones_like(exact[:1, :1, :, :1]) if own_mask is None else own_mask[..., -x.shape[1] :].mT.to(exact)
        )
        total, count = (exact * counts).cumsum(2), counts.cumsum(2)
        total, count = (total, count) if cache is None else cache.add(total, count)
        return (total / count.clamp(min=1)).to(v.dtype)

    @classmethod
    def plain_settings(cls, layer: Heads) -> dict[str, Any]:
        """Leave the average out."""
        return layer.settings(positions=False) | {"average": False}

    @checked
    def new_cache(self, capacity: int = 1024, padding: Tensor | list[int] | None = None) -> MergedCache:
        """Make an empty cache for this layer; a running sum needs the same memory for any number of tokens."""
        check_whole(capacity=capacity)
        check_no_padding(self, padding)
        return MergedCache()

    @checked
    def cost(self, b: int, i: int, j: int | None = None, *, fresh: int | None = None, stored: bool = False) -> Cost:
        """Count one call on paper, as :meth:`Heads.cost` does, and the average of the decoder's own tokens."""
        cost = super().cost(b, i, j, fresh=fresh, stored=stored)
        if not self.average:
            return cost
        own, numbers = count_linear(self.W_v, b * i), b * i * self.W_v.out_features
        size = self.W_v.weight.element_size()
        cost.parts["average"] = own + Part(0, 7 * size * numbers)  # sum, divide, add: what each reads and writes
        return replace(cost, cache=cost.cache + size * numbers // i, peak=cost.peak + 3 * size * numbers)
