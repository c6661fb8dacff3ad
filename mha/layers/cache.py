"""Keys and values of the past, kept so that they are not computed again for every new word.

:Taught in: masking, cache_and_sharing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha.checks import check_whole, checked
from mha.functional.attention import split_heads
from mha.functional.masks import check_mask, padding_mask
from mha.layers.positions import RelativePositions


@runtime_checkable
class Reader(Protocol):
    """A layer, as far as a cache must know it: what makes its keys and values."""

    W_k: nn.Linear
    W_v: nn.Linear
    heads: int
    kv_heads: int
    positions: RelativePositions | None


class Reading:
    """What filled a cache."""

    @checked
    def __init__(self, key: Tensor, value: Tensor) -> None:
        self._inputs = {"memory": (key, _version(key)), "value": (value, _version(value))}

    def check(self, key: Tensor, value: Tensor) -> None:
        """Refuse another tensor, and one that was changed since."""
        for (name, (old, version)), new in zip(self._inputs.items(), (key, value), strict=True):
            if new is not old:
                raise ValueError(
                    f"this cache was filled from a {name} of shape {tuple(old.shape)}, and now another one of shape "
                    f"{tuple(new.shape)} came: use a new cache for each memory and each layer"
                )
            if _version(new) != version:
                raise ValueError(
                    f"the {name} was changed in place after this cache had read it: use a new cache, or leave it as "
                    "it is"
                )

    def is_of(self, key: Tensor) -> bool:
        """Whether this very memory was read."""
        return key is self._inputs["memory"][0]


class OneLayer:
    """A cache of one layer's keys and values."""

    length: int  # how many words were fed so far
    _maps: tuple[nn.Linear, nn.Linear] | None = None

    def check_layer(self, layer: Reader) -> None:
        """Refuse another layer than the one that filled the cache; layers that share their projections are one."""
        if self._maps is not None and (layer.W_k is not self._maps[0] or layer.W_v is not self._maps[1]):
            raise ValueError("another layer filled this cache: make a new one for each layer, layer.new_cache()")


class MemoryCache(OneLayer):
    """Remember the keys and values of a memory that does not grow, such as an encoder's output.

    Hand it to a cross-attention layer, ``layer(x_new, memory, cache=cache)``: the memory is projected at the first
    call only. The cache remembers which layer read which memory.

    :Raises: ValueError where another layer, another memory or another value is handed in later, where the memory was
        changed in place, or where gradients are asked for.
    :Taught in: in_the_transformer.
    """

    length = 0  # the queries of cross-attention do not continue the keys

    def __init__(self) -> None:
        self._read: Reading | None = None
        self._found: tuple[Tensor, Tensor] | None = None

    def check(self, layer: Reader, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> None:
        """Refuse another layer, another memory, and a memory that is not what it was."""
        self.check_layer(layer)
        if self._read is not None:
            self._read.check(key, value)

    def recall(
        self, layer: Reader, key: Tensor, value: Tensor, fresh: Callable[[], tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        """Make keys and values the first time, and return the same ones ever after."""
        if self._found is None:
            k, v = fresh()
            if k.requires_grad or v.requires_grad:
                raise ValueError("a cache stores no gradients: call the layer under torch.no_grad()")
            self._maps, self._read, self._found = (layer.W_k, layer.W_v), Reading(key, value), (k, v)
        return self._found


class KeyValueCache(OneLayer):
    """Remember the keys and values of one layer, for reading one word, or one chunk, at a time.

    Hand it to a layer, ``layer(x_new, cache=cache, is_causal=True)``: the new queries see everything fed so far.

    Texts of different lengths go into one batch with the padding in *front*, so that the newest words of all stand
    side by side: ``KeyValueCache(padding=[2, 0])``, and ``mask=cache.mask(x_new.shape[1])`` at every call.

    :Shapes: keys (b, h, n, d) and values (b, g, n, c), where n grows with each call up to ``capacity``; padding (b,).
    :Raises: ValueError where a chunk or its mask does not fit the cache, where it overflows, where the key is another
        sequence, or where gradients are asked for.
    :Taught in: masking, cache_and_sharing.
    """

    @checked
    def __init__(self, capacity: int = 1024, padding: Tensor | list[int] | None = None) -> None:
        """Reserve room for ``capacity`` positions, of which each text's first ``padding`` are none of its words."""
        check_whole(capacity=capacity)
        self.capacity, self.length = capacity, 0
        self._words = None
        if padding is not None:
            try:
                self._words = padding_mask(padding, capacity).logical_not()
            except (TypeError, ValueError) as error:
                raise type(error)(f"padding = {padding}: {error}") from None
        self._k: Tensor | None = None
        self._v: Tensor | None = None

    def mask(self, new: int) -> Bool[Tensor, "b 1 1 t"] | None:
        """Show the words, not the padding, among all positions so far and ``new`` ones; None without padding."""
        check_whole(new=new)
        return None if self._words is None else self._words[..., : self.length + new]

    def check(self, layer: Reader, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> None:
        """Refuse a call before anything is stored, so that a refused call leaves the cache as it was."""
        i, total = query.shape[1], self.length + key.shape[1]
        self.check_layer(layer)
        if key is not query:
            raise ValueError(
                "this cache grows with the query, but the key is another sequence: use mha.layers.MemoryCache"
            )
        if mask is not None and mask.shape[-1] not in (1, total):
            raise ValueError(
                f"mask {tuple(mask.shape)} has {mask.shape[-1]} columns, but there are {total} keys, {self.length} in "
                f"the cache and {i} new: give it a column for each"
            )
        if mask is not None:
            check_mask(mask, (query.shape[0], layer.heads, i, total), query.device)
        words = self.mask(i)
        if words is not None:
            _check_padding(words, query.shape[0], f"cache.mask({i})", mask)

    @property
    def bytes(self) -> int:
        """How much memory is taken: all of it at the first call."""
        return 0 if self._k is None or self._v is None else self._k.nbytes + self._v.nbytes

    def recall(
        self, layer: Reader, key: Tensor, value: Tensor, fresh: Callable[[], tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        """Make the new keys and values, and :meth:`append` them."""
        stored = self.append(*fresh())
        self._maps = layer.W_k, layer.W_v
        return stored

    def append(
        self, k: Float[Tensor, "b h n d"], v: Float[Tensor, "b g n c"]
    ) -> tuple[Float[Tensor, "b h t d"], Float[Tensor, "b g t c"]]:
        """Store the new keys and values and return all of them, oldest first."""
        end = self.length + k.shape[2]
        if k.requires_grad or v.requires_grad:
            raise ValueError("a cache is for inference and stores no gradients: call the layer under torch.no_grad()")
        if end > self.capacity:
            raise ValueError(
                f"the cache holds {self.capacity} positions, but {end} were fed: make it with capacity={end}"
            )
        if self._k is None or self._v is None:
            self._k, self._v = _room(k, self.capacity), _room(v, self.capacity)
        if _row(k) != _row(self._k) or _row(v) != _row(self._v):
            raise ValueError(
                f"keys and values (batch, heads, width, type) of {_row(k)} and {_row(v)} do not continue the cache's, "
                f"of {_row(self._k)} and {_row(self._v)}: use a new cache, one for each layer"
            )
        self._k[:, :, self.length : end], self._v[:, :, self.length : end] = k, v
        self.length = end
        return self._k[:, :, :end], self._v[:, :, :end]


class WindowCache(KeyValueCache):
    """Remember the first words of a text and the last ones, and forget what lies between: it never grows.

    Hand it to a layer, ``layer(x_new, cache=cache, is_causal=True)``: each new word sees the ``first`` words of the
    text and the last ``window`` words, itself among them. A chunk of several words that does not fit into
    first + window places wants ``mask=cache.mask(x_new.shape[1])``, because its words see different ones.

    Positions inside the layer count the places in the cache, not those in the text, so no distance is ever larger than
    the cache. Therefore keys are kept as they were before positions turned them, and turned anew at every call.

    :Costs: first + window − 1 keys and values of each head, however long the text; for each call a copy of them, and
        with rotary positions 6·n·d operations for each head.
    :Shapes: keys (b, h, n, d) and values (b, g, n, c), where n is at most first + window − 1 between two calls.
    :Raises: ValueError where a chunk does not fit and no mask hides what its words do not see; where a chunk does not
        fit and the layer has positions inside, because its words would stand at several places at once; and as
        :class:`mha.KeyValueCache`. There is no padding: the first words of each text would stand elsewhere.
    :Source: Xiao et al. 2023, "Efficient Streaming Language Models with Attention Sinks".
    :Taught in: say_nothing.
    """

    @checked
    def __init__(self, window: int, *, first: int = 4) -> None:
        """Keep the last ``window`` words and the ``first`` ones of the text, which may be 0."""
        check_whole(window=window)
        check_whole(0, first=first)
        super().__init__(first + window)
        self.window, self.first = window, first

    @property
    def place(self) -> int:
        """Where the next word stands in the cache: behind all that is kept."""
        return min(self.length, self.first + self.window - 1)

    def fits(self, new: int) -> bool:
        """Whether each of ``new`` words sees all that is kept and all that came before it in its chunk."""
        check_whole(new=new)
        return self.place + new <= self.capacity

    def mask(self, new: int) -> Bool[Tensor, "i t"] | None:
        """Show each of ``new`` words what is in its window, and the first words; None where that is everything.

        It does not hide the future: ``is_causal=True`` does, as with any cache.
        """
        if self.fits(new):
            return None
        keys, places = torch.arange(self.place + new), torch.arange(self.place, self.place + new)
        return (keys < self.first) | (keys > places[:, None] - self.window)

    def check(self, layer: Reader, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> None:
        """Refuse a call before anything is stored, so that a refused call leaves the cache as it was."""
        self.check_layer(layer)
        new = query.shape[1]
        check_growing(layer, query, key, mask, self.place)
        if layer.positions is not None and layer.W_k.in_features != key.shape[-1]:
            raise ValueError(
                f"{type(layer).__name__} does not make its keys from the words, so a window cannot turn them anew: use "
                "layer.new_cache()"
            )
        shown = self.mask(new)
        if shown is None:
            return
        if layer.positions is not None and self.first:
            room = self.capacity - self.place
            raise ValueError(
                f"{new} words came, but only {room} fit into the cache, and {type(layer.positions).__name__} count "
                f"places in it: they would stand at several at once. Feed {room} words, then one at a time"
            )
        shown = shown.to(query.device)
        if mask is None or bool((mask & ~shown).any()):
            yours, does = ("", "no mask hides") if mask is None else (" & your mask", "the mask shows")
            raise ValueError(
                f"{new} words came, which see different words, and {does} what lies before the window of "
                f"{self.window}: call the layer with mask=cache.mask({new}){yours}"
            )

    def recall(
        self, layer: Reader, key: Tensor, value: Tensor, fresh: Callable[[], tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        """Make the new keys and values, :meth:`append` them, and turn all keys by their places in the cache.

        The new words stand at their places in the text, and the kept ones right before them, without a gap.
        """
        if layer.positions is None:
            return super().recall(layer, key, value, fresh)

        def unturned() -> tuple[Tensor, Tensor]:
            return split_heads(layer.W_k(key), layer.kv_heads), split_heads(layer.W_v(value), layer.kv_heads)

        k, v = super().recall(layer, key, value, unturned)
        return layer.positions.turn(k, self.length - k.shape[2]), v

    def append(
        self, k: Float[Tensor, "b h n d"], v: Float[Tensor, "b g n c"]
    ) -> tuple[Float[Tensor, "b h t d"], Float[Tensor, "b g t c"]]:
        """Return what is kept and the new, oldest first, and keep of it the first words and the last ones."""
        check_no_gradients(k, v)
        new = k.shape[2]
        if self._k is not None and self._v is not None:
            check_continues(k, v, self._k, self._v)
            k, v = torch.cat([self._k, k], 2), torch.cat([self._v, v], 2)
        self.length += new
        self._k, self._v = (self._kept(x) for x in (k, v))
        return k, v

    def _kept(self, x: Tensor) -> Tensor:
        """Return the rows that the next word may see, in memory of their own."""
        later = max(self.first, x.shape[2] - self.window + 1)
        return torch.cat([x[:, :, : self.first], x[:, :, later:]], 2)


@dataclass
class DecoderCache:
    """The two caches of one decoder layer: its own words so far, and the memory.

    :Taught in: in_the_transformer.
    """

    own: KeyValueCache
    memory: MemoryCache

    length = property(lambda self: self.own.length, doc="How many words were fed so far.")


class ModelCache(list):
    """The caches of a whole stack of layers, first layer first.

    :Taught in: in_the_transformer.
    """

    length = property(lambda self: self[0].length, doc="How many words were fed so far.")

    def mask(self, new: int) -> Bool[Tensor, "b 1 1 t"] | None:
        """Show the words, not the padding, as every layer's own cache does."""
        check_whole(new=new)
        return self[0].mask(new)


def _version(x: Tensor) -> int | None:
    """Count the changes in place; under inference mode nobody counts."""
    return None if x.is_inference() else x._version


def _check_padding(words: Tensor, batch: int, name: str, mask: Tensor | None) -> None:
    if len(words) not in (1, batch):
        raise ValueError(f"the cache's padding is of {len(words)} texts, but {batch} came: give one number for each")
    if mask is None:
        raise ValueError(f"this cache has padding, and no mask hides it: call the layer with mask={name}")
    if bool((mask & ~words).any()):
        raise ValueError(f"this cache has padding, and the mask shows it: call the layer with mask={name} & your mask")


def check_growing(layer: Reader, query: Tensor, key: Tensor, mask: Tensor | None, kept: int) -> None:
    """Refuse another sequence, and a mask without a column for each key."""
    i, total = query.shape[1], kept + key.shape[1]
    if key is not query:
        raise ValueError("this cache grows with the query, but the key is another sequence: use mha.layers.MemoryCache")
    if mask is not None and mask.shape[-1] not in (1, total):
        raise ValueError(
            f"mask {tuple(mask.shape)} has {mask.shape[-1]} columns, but there are {total} keys, {kept} in the cache "
            f"and {i} new: give it a column for each"
        )
    if mask is not None:
        check_mask(mask, (query.shape[0], layer.heads, i, total), query.device)


def check_no_gradients(k: Tensor, v: Tensor) -> None:
    """Refuse to store gradients."""
    if k.requires_grad or v.requires_grad:
        raise ValueError("a cache is for inference and stores no gradients: call the layer under torch.no_grad()")


def check_continues(k: Tensor, v: Tensor, old_k: Tensor, old_v: Tensor) -> None:
    """Refuse keys and values of another batch, width or type."""
    if _row(k) != _row(old_k) or _row(v) != _row(old_v):
        raise ValueError(
            f"keys and values (batch, heads, width, type) of {_row(k)} and {_row(v)} do not continue the cache's, "
            f"of {_row(old_k)} and {_row(old_v)}: use a new cache, one for each layer"
        )


def _room(x: Tensor, capacity: int) -> Tensor:
    return torch.empty(*x.shape[:2], capacity, x.shape[3], dtype=x.dtype, device=x.device)


def _row(x: Tensor) -> tuple[int, int, int, torch.dtype]:
    return x.shape[0], x.shape[1], x.shape[3], x.dtype
