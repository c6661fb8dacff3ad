"""Keys and values of the past, kept so that they are not computed again for every new token.

:Taught in: masking, cache_and_sharing.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mha.checks import check_is_tensor, check_whole, checked, described, refuse_sizes
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
    stores: tuple[str, ...]


class Source:
    """The memory that filled a cache: the very tensors, as long as nobody changes them.

    A cache that was stored and loaded, or whose rows have moved, has no such tensors. It compares the numbers instead,
    once, which waits for the device. Of a memory that was made under ``torch.inference_mode`` nobody counts the
    changes: there the numbers are copied, and compared at every call.
    """

    @checked
    def __init__(self, key: Tensor, value: Tensor, *, by_numbers: bool = False) -> None:
        """Remember what was read.

        :param key: what the keys were made from, (b, j, kdim).
        :param value: what the values were made from, (b, j, vdim).
        :param by_numbers: whether equal numbers are enough at the next call, where the tensors are other ones.
        """
        self._key, self._value, self._by_numbers = key, value, by_numbers
        self._versions = _versions(key, value)

    def check(self, key: Tensor, value: Tensor) -> None:
        """Refuse another memory, and one that was changed since.

        :param key: what keys are asked of now, (b, j, kdim).
        :param value: what values are asked of now, (b, j, vdim).
        """
        if self._by_numbers and _equal(key, self._key) and _equal(value, self._value):
            self._key, self._value, self._by_numbers = key, value, False
            self._versions = _versions(key, value)
        pairs = ("memory", self._key, key), ("value", self._value, value)
        for (name, old, new), version in zip(pairs, self._versions, strict=True):
            if new is not old:
                raise ValueError(
                    f"this cache was filled from a {name} of shape {tuple(old.shape)}, and now another one of shape "
                    f"{tuple(new.shape)} came: use a new cache for each memory and each layer"
                )
            if not _is_at(new, version):
                raise ValueError(
                    f"the {name} was changed in place after this cache had read it: use a new cache, or leave it as "
                    "it is"
                )

    def is_of(self, key: Tensor) -> bool:
        """Whether this very memory was read.

        :param key: the tensor that is asked about.
        """
        return key is self._key

    def moved(self, rows: Callable[[Tensor], Tensor]) -> "Source":
        """Return the memory with its batch entries moved.

        :param rows: what takes a tensor and returns its batch entries in their new order.
        """
        key = rows(self._key)
        return Source(key, key if self._value is self._key else rows(self._value), by_numbers=True)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Source":
        new = Source(*(memo.get(id(x), x) for x in (self._key, self._value)), by_numbers=self._by_numbers)
        new._versions = self._versions
        return new

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_by_numbers": True}


def _version(x: Tensor) -> int | Tensor:
    """Count the changes in place; under inference mode nobody counts, so this is a copy of the numbers."""
    return x.clone() if x.is_inference() else x._version


def _versions(key: Tensor, value: Tensor) -> tuple[int | Tensor, int | Tensor]:
    first = _version(key)
    return first, first if value is key else _version(value)


def _is_at(x: Tensor, version: int | Tensor) -> bool:
    """Whether nobody changed the numbers since; a NaN that stays is no change."""
    if isinstance(version, Tensor):
        return torch.equal(x.contiguous().view(torch.uint8), version.contiguous().view(torch.uint8))
    return not x.is_inference() and x._version == version


def _equal(x: Tensor, y: Tensor) -> bool:
    return x.shape == y.shape and x.device == y.device and torch.equal(x, y)


class Weights:
    """The parameters that keys and values were made with: the very ones, as long as nobody changes them.

    Torch counts changes in place, except those of a fused optimizer and those through ``.data``.
    """

    def __init__(self, *parts: nn.Module | None, of: object) -> None:
        """Remember what some modules hold.

        A module whose ``forward`` was replaced may bring its parameters anew for every call, as offloading does: of
        such a module nothing is remembered.

        :param parts: the modules, with all that is in them; None holds nothing.
        :param of: the layer that they are parts of.
        """
        some = () if "forward" in vars(of) else parts
        homes = [one._parameters for part in some if part is not None for one in _modules_of(part)]
        self._at = [(home, name, x, _count(x)) for home in homes for name, x in home.items() if x is not None]

    def unchanged(self) -> bool:
        """Whether all of them are what they were."""
        return all(home.get(name) is x and _count(x) == count for home, name, x, count in self._at)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Weights | None":
        return None if any(id(x) in memo for *_, x, _ in self._at) else self  # a copied layer has others


def _modules_of(part: nn.Module) -> list[nn.Module]:
    return [] if "forward" in vars(part) else [part, *(one for child in part.children() for one in _modules_of(child))]


def _count(x: Tensor) -> int:
    return 0 if x.is_inference() else x._version


Cache = TypeVar("Cache", bound="LayerCache")


class LayerCache:
    """What a layer asks of its cache.

    A layer calls :meth:`admit` once it knows its inputs, makes keys and values of the new tokens, and calls
    :meth:`update`. A cache belongs to the layer that filled it first. A copy (``copy.deepcopy``) goes on with the same
    layer; one that was pickled goes on with the layer that it meets first.

    :Taught in: cache_and_sharing.
    """

    keeps = "keys and values"  # what is stored; a layer says with ``reads`` what it can go on from
    keeps_raw_keys = False  # whether keys are stored before positions act on them
    grows = False  # whether the tokens of the query are added to it
    keeps_every_token = True  # whether it can go back to what it was some tokens ago
    _length = 0
    _layer: tuple[nn.Module, nn.Module] | None = None
    _weights: Weights | None = None  # what was stored is made with them
    _guest: tuple[Reader, Tensor, Tensor] | None = None  # admitted, not stored yet

    @property
    def length(self) -> int:
        """How many tokens were fed so far. Setting it to less is :meth:`crop`."""
        return self._length

    @length.setter
    def length(self, length: int) -> None:
        self.crop(length)

    def admit(self, layer: Reader, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor | None:
        """Refuse a call before anything is stored, and return the mask that holds for all keys.

        A refused call leaves the cache as it was.

        :param layer: the layer that calls.
        :param query: its input, (b, i, d_model).
        :param key: what the new keys are made from, (b, n, kdim).
        :param value: what the new values are made from, (b, n, vdim).
        :param mask: of the call, one column for each key, those of the past included; True = may look.
        """
        maps = layer.W_k, layer.W_v
        if self._layer is not None and (maps[0] is not self._layer[0] or maps[1] is not self._layer[1]):
            raise ValueError("another layer filled this cache: make a new one for each layer, layer.new_cache()")
        if self._weights is not None and not torch.compiler.is_compiling() and not self._weights.unchanged():
            raise ValueError(
                f"the parameters of {type(layer).__name__} were changed after this cache was filled, and what it keeps "
                "was made with the old ones: make a new cache, layer.new_cache(), and feed the sequence again"
            )
        self._guest = layer, key, value
        return mask

    def position_ids(self, new: int) -> Int[Tensor, "b n"] | None:
        """Count the positions of ``new`` tokens without the padding in front; None without padding.

        :param new: how many tokens come next, at least 1.
        """
        check_whole(new=new)
        return None

    def holds(self, key: Tensor) -> bool:
        """Whether keys and values of this input are stored, so that they need not be made again.

        :param key: the input that keys would be made from.
        """
        return False

    def held(self) -> tuple[Tensor, Tensor]:
        """Return the stored keys and values."""
        raise ValueError(f"{type(self).__name__} holds no memory: update(k, v) returns what is stored")

    def update(
        self, k: Float[Tensor, "b h n d"], v: Float[Tensor, "b g n c"]
    ) -> tuple[Float[Tensor, "b h t d"], Float[Tensor, "b g t c"]]:
        """Store the new keys and values and return all of them, oldest first.

        :param k: the new keys.
        :param v: the new values.
        """
        raise NotImplementedError

    def crop(self, length: int) -> None:
        """Forget all tokens but the first ``length``, as after a draft that was refused.

        :param length: how many tokens stay, 0 to :attr:`length`.
        """
        self.check_crop(length)
        if length == 0 < self._length:
            self._weights = None
        self._length = length

    def check_crop(self, length: int) -> None:
        """Refuse to keep more tokens than there are, and to go back to what is not kept.

        :param length: as in :meth:`crop`.
        """
        check_whole(0, length=length)
        if length > self._length:
            raise ValueError(f"length = {length}: only {self._length} tokens were fed, 0 to {self._length} can stay")
        if length < self._length and not self.keeps_every_token:
            raise ValueError(
                f"length = {length}: {type(self).__name__} does not know any more how things were after {length} of "
                f"its {self._length} tokens. Feed the sequence into a new cache, or copy.deepcopy this one before "
                "tokens that may be taken back"
            )

    def reorder(self, rows: Tensor | Sequence[int]) -> None:
        """Let batch entry n go on from entry ``rows[n]``, as beam search asks; entries may be left out or repeated.

        :param rows: numbers of batch entries from 0 on, (b,), one for each new entry.
        """
        try:
            at = torch.as_tensor(rows)
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(f"rows = {described(rows)}: give the numbers of batch entries in a list") from error
        if at.ndim != 1 or at.dtype not in (torch.long, torch.int) or not len(at):
            raise ValueError(f"rows = {described(rows)}: give the numbers of batch entries, whole numbers in one row")
        try:
            self._move(lambda x: x.index_select(0, at.to(x.device)))
        except IndexError as error:
            raise ValueError(f"rows = {described(rows)}: {error}; give numbers of batch entries, from 0 on") from error

    @checked
    def repeat(self, times: int) -> None:
        """Let ``times`` batch entries go on from each one, side by side, as several answers to one prompt need it.

        :param times: how many copies of each entry there are afterwards, at least 1.
        """
        check_whole(times=times)
        self._move(lambda x: x.repeat_interleave(times, 0))

    def _move(self, rows: Callable[[Tensor], Tensor]) -> None:
        """Move the batch entries of everything that is stored."""
        raise NotImplementedError

    def _stored(self) -> None:
        """Remember which layer it was that filled this cache."""
        if self._guest is not None:
            layer, self._guest = self._guest[0], None
            self._layer = layer.W_k, layer.W_v
            if self._weights is None and not torch.compiler.is_compiling():
                self._weights = Weights(*(getattr(layer, name) for name in layer.stores), of=layer)

    def __deepcopy__(self: Cache, memo: dict[int, Any]) -> Cache:
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        for name, value in vars(self).items():
            if name == "_layer" and value is not None:  # the layer itself is not copied along
                vars(new)[name] = tuple(memo.get(id(one), one) for one in value)
            elif name != "_guest":
                vars(new)[name] = deepcopy(value, memo)
        return new

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_layer", "_weights", "_guest")}


class MemoryCache(LayerCache):
    """Remember the keys and values of a memory that does not grow, such as an encoder's output.

    Pass it to a cross-attention layer, ``layer(x_new, memory, cache=cache)``: the memory is projected at the first
    call only. The cache remembers which layer read which memory.

    :Raises: ValueError where another layer, another memory or another value is given later, where the memory was
        changed in place, or where gradients are asked for.
    :Taught in: in_the_transformer.
    """

    def __init__(self) -> None:
        self._source: Source | None = None
        self._found: tuple[Tensor, Tensor] | None = None

    def admit(self, layer: Reader, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor | None:
        """Refuse another layer, another memory, and a memory that is not what it was."""
        super().admit(layer, query, key, value, mask)
        if self._source is not None:
            self._source.check(key, value)
        if mask is not None:
            check_mask(mask, (query.shape[0], layer.heads, query.shape[1], key.shape[1]), query.device)
        return mask

    def holds(self, key: Tensor) -> bool:
        """Whether the memory was projected before."""
        return self._found is not None

    def held(self) -> tuple[Tensor, Tensor]:
        """Return the memory's keys and values."""
        self._guest = None
        return self._found if self._found is not None else super().held()

    def update(
        self, k: Float[Tensor, "b h n d"], v: Float[Tensor, "b g n c"]
    ) -> tuple[Float[Tensor, "b h t d"], Float[Tensor, "b g t c"]]:
        """Store the keys and values of the memory."""
        check_no_gradients(k, v)
        if self._guest is not None:
            self._source = Source(*self._guest[1:])
        self._found = k, v
        self._stored()
        return k, v

    def _move(self, rows: Callable[[Tensor], Tensor]) -> None:
        if self._found is not None:
            self._found = rows(self._found[0]), rows(self._found[1])
        self._source = None if self._source is None else self._source.moved(rows)


class KeyValueCache(LayerCache):
    """Remember the keys and values of one layer (a KV cache), for reading one token, or one chunk, at a time.

    Pass it to a layer, ``layer(x_new, cache=cache, is_causal=True)``: the new queries see everything fed so far.

    Sequences of different lengths go into one batch with the padding in *front*, so that the newest tokens of all are
    side by side: ``KeyValueCache(padding=[2, 0])``. The cache hides the padding at every call.

    :Shapes: keys (b, h, n, d) and values (b, g, n, c), where n grows with each call up to ``capacity``; padding (b,).
    :Raises: ValueError where a chunk or its mask does not fit the cache, where a chunk could see its own future, where
        it overflows, where the key is another sequence, or where gradients are asked for.
    :Taught in: masking, cache_and_sharing.
    """

    grows = True

    @checked
    def __init__(self, capacity: int = 1024, padding: Tensor | list[int] | None = None) -> None:
        """Reserve memory.

        :param capacity: in positions, padding included; 1024 unless given.
        :param padding: how many positions in front of each sequence hold none of its tokens, (b,); none unless given.
        """
        check_whole(capacity=capacity)
        self.capacity = capacity
        self._tokens = None
        if padding is not None:
            try:
                self._tokens = padding_mask(padding, capacity).logical_not()
            except (TypeError, ValueError) as error:
                raise type(error)(f"padding = {padding}: {error}") from None
        self._k: Tensor | None = None
        self._v: Tensor | None = None

    def mask(self, new: int) -> Bool[Tensor, "b 1 1 t"] | None:
        """Show the tokens, not the padding, among all positions so far and ``new`` ones; None without padding.

        :param new: how many tokens come next, at least 1.
        """
        check_whole(new=new)
        return None if self._tokens is None else self._tokens[..., : self._length + new]

    def position_ids(self, new: int) -> Int[Tensor, "b n"] | None:
        """Count the positions of ``new`` tokens without the padding in front; padding itself is at position 0."""
        shown = self.mask(new)
        return None if shown is None else (shown[:, 0, 0].cumsum(-1) - 1).clamp_min(0)[:, -new:]

    def admit(self, layer: Reader, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor | None:
        """Refuse a call before anything is stored, and hide the padding."""
        super().admit(layer, query, key, value, mask)
        check_growing(layer, query, key, value, mask, self._length)
        end = self._length + query.shape[1]
        if end > self.capacity:
            refuse_overflow(self.capacity, end)
        if self._tokens is None:
            return mask
        if len(self._tokens) not in (1, len(query)):
            raise ValueError(
                f"the cache's padding is of {len(self._tokens)} sequences, but {len(query)} came: give one number for "
                "each"
            )
        self._tokens = self._tokens.to(query.device)
        shown = self._tokens[..., :end]
        return shown if mask is None else mask & shown

    @property
    def bytes(self) -> int:
        """How much memory is taken: all of it at the first call."""
        return 0 if self._k is None or self._v is None else self._k.nbytes + self._v.nbytes

    def update(
        self, k: Float[Tensor, "b h n d"], v: Float[Tensor, "b g n c"]
    ) -> tuple[Float[Tensor, "b h t d"], Float[Tensor, "b g t c"]]:
        """Store the new keys and values and return all of them, oldest first."""
        end = self._length + k.shape[2]
        check_no_gradients(k, v)
        if end > self.capacity:
            refuse_overflow(self.capacity, end)
        if self._k is None or self._v is None:
            self._k, self._v = _room(k, self.capacity), _room(v, self.capacity)
        check_continues(k, v, self._k, self._v)
        self._k[:, :, self._length : end], self._v[:, :, self._length : end] = k, v
        self._length = end
        self._stored()
        return self._k[:, :, :end], self._v[:, :, :end]

    def _move(self, rows: Callable[[Tensor], Tensor]) -> None:
        if self._k is not None and self._v is not None:
            self._k, self._v = rows(self._k), rows(self._v)
        if self._tokens is not None and len(self._tokens) > 1:
            self._tokens = rows(self._tokens)


COUNTED = ("inside", "true")  # where a window counts positions: in the cache, or in the sequence


class WindowCache(KeyValueCache):
    """Remember the first tokens of a sequence and the last ones (StreamingLLM), and forget what is between them.

    Pass it to a layer, ``layer(x_new, cache=cache, is_causal=True)``: each new token sees the ``first`` tokens of the
    sequence and the last ``window`` ones, itself among them. The cache never grows, and hides what is before the
    window from the tokens of a longer chunk.

    With ``positions="inside"`` positions inside the layer count the positions in the cache, not those in the sequence,
    so no distance is ever larger than the cache: the rule of StreamingLLM, for layers that were trained with all keys.
    Therefore keys are kept before rotation, and rotated anew at every call. With ``positions="true"`` each token keeps
    its position in the sequence, and keys are kept as they were rotated: the rule for layers that were trained with
    this window, as those of gpt-oss and Gemma 3 were (their ``first`` is 0).

    :Costs: first + window − 1 keys and values of each head, however long the sequence; for each call a copy of them,
        and with rotary positions counted inside the cache 6·n·d FLOPs for each head.
    :Shapes: keys (b, h, n, d) and values (b, g, n, c), where n is at most first + window − 1 between two calls.
    :Raises: ValueError for other words than "inside" and "true". Of positions inside the cache: where a chunk does not
        fit and the layer has positions, because its tokens would be at several positions at once. Of true positions:
        where the first tokens are kept and positions change scores, because such positions count the keys. Where it is
        to go back (:meth:`crop`), because what it forgot is gone; and as :class:`mha.KeyValueCache`. There is no
        padding: the first tokens of each sequence would have other positions.
    :Source: Xiao et al. 2023, "Efficient Streaming Language Models with Attention Sinks"; true positions: OpenAI 2025,
        gpt-oss, released code.
    :Taught in: say_nothing.
    """

    keeps_raw_keys = True
    keeps_every_token = False

    @checked
    def __init__(self, window: int, *, first: int = 4, positions: str = "inside") -> None:
        """Choose how many tokens are kept, and how their positions are counted.

        :param window: how many of the last tokens each one sees, itself among them.
        :param first: how many of the first tokens all see, 0 or more; 4 unless given.
        :param positions: "inside" the cache, or "true", those in the sequence; "inside" unless given.
        """
        check_whole(window=window)
        check_whole(0, first=first)
        if positions not in COUNTED:
            raise ValueError(
                f"positions = {positions!r}: it is one of {COUNTED}. A layer that was trained with all keys needs "
                '"inside", one that was trained with this window "true"'
            )
        super().__init__(first + window)
        self.window, self.first, self.positions = window, first, positions
        if positions == "true":
            self.keeps_raw_keys = False  # a key's position never changes, so neither does its rotation

    @property
    def place(self) -> int:
        """The position of the next token in the cache: after all that is kept."""
        return min(self._length, self.first + self.window - 1)

    def fits(self, new: int) -> bool:
        """Whether each of ``new`` tokens sees all that is kept and all that came before it in its chunk.

        :param new: how many tokens come next, at least 1.
        """
        check_whole(new=new)
        return self.place + new <= self.capacity

    @checked
    def mask(self, new: int) -> Bool[Tensor, "i t"] | None:
        """Show each of ``new`` tokens what is in its window, and the first tokens; None where that is everything.

        It does not hide the future: ``is_causal=True`` does, as with any cache.
        """
        return self._mask(new, None)

    def _mask(self, new: int, device: torch.device | None) -> Tensor | None:
        if self.fits(new):
            return None
        keys, places = (torch.arange(n, self.place + new, device=device) for n in (0, self.place))
        return (keys < self.first) | (keys > places[:, None] - self.window)

    def position_ids(self, new: int) -> None:
        """Return None: there is no padding."""
        check_whole(new=new)

    def admit(self, layer: Reader, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor | None:
        """Refuse a call before anything is stored, and hide what is before each token's window."""
        LayerCache.admit(self, layer, query, key, value, mask)
        new = query.shape[1]
        check_growing(layer, query, key, value, mask, self.place)
        if layer.positions is not None:
            self._check_positions(layer, key)
        shown = self._mask(new, query.device)
        if shown is None:
            return mask
        if layer.positions is not None and self.first and self.positions == "inside":
            room = self.capacity - self.place
            raise ValueError(
                f"{new} tokens came, but only {room} fit into the cache, and {type(layer.positions).__name__} count "
                f"positions in it: they would be at several at once. Feed {room} tokens, then one at a time"
            )
        return shown if mask is None else mask & shown

    def _check_positions(self, layer: Reader, key: Tensor) -> None:
        """Refuse a layer whose positions this cache cannot count."""
        if self.positions == "inside" and getattr(layer.W_k, "in_features", key.shape[-1]) != key.shape[-1]:
            raise ValueError(
                f"{type(layer).__name__} does not make its keys from its input, so a window cannot rotate them anew: "
                "use layer.new_cache()"
            )
        if self.positions == "true" and self.first and getattr(layer.positions, "bias", None) is not None:
            raise ValueError(
                f"{type(layer.positions).__name__} changes scores by the number of keys between two tokens, and after "
                f"the first {self.first} tokens some are forgotten: true positions need first=0 here"
            )

    def update(
        self, k: Float[Tensor, "b h n d"], v: Float[Tensor, "b g n c"]
    ) -> tuple[Float[Tensor, "b h t d"], Float[Tensor, "b g t c"]]:
        """Return what is kept and the new, oldest first, and keep of it the first tokens and the last ones."""
        check_no_gradients(k, v)
        new = k.shape[2]
        if self._k is not None and self._v is not None:
            check_continues(k, v, self._k, self._v)
            k, v = torch.cat([self._k, k], 2), torch.cat([self._v, v], 2)
        self._length += new
        self._k, self._v = (self._kept(x) for x in (k, v))
        self._stored()
        return k, v

    def _kept(self, x: Tensor) -> Tensor:
        """Return the rows that the next token may see, in memory of their own."""
        later = max(self.first, x.shape[2] - self.window + 1)
        return torch.cat([x[:, :, : self.first], x[:, :, later:]], 2)


@dataclass
class DecoderCache:
    """The two caches of one decoder layer: its own tokens so far, and the memory.

    :Taught in: in_the_transformer.
    """

    own: Any  # a cache of tokens, with a mask and positions
    memory: LayerCache

    length = property(lambda self: self.own.length, doc="How many tokens were fed so far.")

    def mask(self, new: int) -> Bool[Tensor, "b 1 1 t"] | None:
        """Show the own tokens, not the padding.

        :param new: how many tokens come next, at least 1.
        """
        return self.own.mask(new)

    def position_ids(self, new: int) -> Int[Tensor, "b n"] | None:
        """Count the positions of ``new`` own tokens without the padding; None without padding.

        :param new: how many tokens come next, at least 1.
        """
        return self.own.position_ids(new)

    def check_crop(self, length: int) -> None:
        """Refuse what :meth:`crop` cannot do.

        :param length: as in :meth:`crop`.
        """
        self.own.check_crop(length)

    def crop(self, length: int) -> None:
        """Forget all own tokens but the first ``length``.

        :param length: how many tokens stay, 0 to :attr:`length`.
        """
        self.own.crop(length)

    def reorder(self, rows: Tensor | Sequence[int]) -> None:
        """Let batch entry n go on from entry ``rows[n]``.

        :param rows: numbers of batch entries from 0 on, (b,).
        """
        self.own.reorder(rows)
        self.memory.reorder(rows)

    def repeat(self, times: int) -> None:
        """Let ``times`` batch entries go on from each one, side by side.

        :param times: how many copies of each entry there are afterwards, at least 1.
        """
        self.own.repeat(times)
        self.memory.repeat(times)


class ModelCache(list[Any]):
    """The caches of a whole stack of layers, first layer first.

    :Taught in: in_the_transformer.
    """

    @property
    def length(self) -> int:
        """How many tokens were fed so far. Setting it to less is :meth:`crop`."""
        return self[0].length

    @length.setter
    def length(self, length: int) -> None:
        self.crop(length)

    def mask(self, new: int) -> Bool[Tensor, "b 1 1 t"] | None:
        """Show the tokens, not the padding, as every layer's own cache does.

        :param new: how many tokens come next, at least 1.
        """
        check_whole(new=new)
        return self[0].mask(new)

    def position_ids(self, new: int) -> Int[Tensor, "b n"] | None:
        """Count the positions of ``new`` tokens without the padding, as every layer's own cache does.

        :param new: how many tokens come next, at least 1.
        """
        return self[0].position_ids(new)

    def crop(self, length: int) -> None:
        """Forget all tokens but the first ``length``, in every layer; where one layer cannot, none does.

        :param length: how many tokens stay, 0 to :attr:`length`.
        """
        for one in self:
            one.check_crop(length)
        for one in self:
            one.crop(length)

    def reorder(self, rows: Tensor | Sequence[int]) -> None:
        """Let batch entry n go on from entry ``rows[n]``, in every layer.

        :param rows: numbers of batch entries from 0 on, (b,).
        """
        for one in self:
            one.reorder(rows)

    def repeat(self, times: int) -> None:
        """Let ``times`` batch entries go on from each one, side by side, in every layer.

        :param times: how many copies of each entry there are afterwards, at least 1.
        """
        for one in self:
            one.repeat(times)


def check_growing(layer: Reader, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, kept: int) -> None:
    """Refuse another sequence, a mask without a column for each key, and gradients.

    Whether two tensors are one sequence only their numbers say, which waits for the device.
    """
    i, total = query.shape[1], kept + key.shape[1]
    if key is not query and not (key.shape == query.shape and torch.equal(key, query)):
        raise ValueError("this cache grows with the query, but the key is another sequence: use mha.layers.MemoryCache")
    if mask is not None:
        check_is_tensor("mask", mask)
        if mask.shape[-1:] not in ((1,), (total,)):
            raise ValueError(
                f"mask {tuple(mask.shape)} has {mask.shape[-1] if mask.ndim else 0} columns, but there are {total} "
                f"keys, {kept} in the cache and {i} new: give it a column for each"
            )
        check_mask(mask, (query.shape[0], layer.heads, i, total), query.device)
    if torch.is_grad_enabled():
        weights = (*layer.W_k.parameters(), *layer.W_v.parameters())
        if key.requires_grad or value.requires_grad or any(weight.requires_grad for weight in weights):
            refuse_gradients()


def check_no_gradients(k: Tensor, v: Tensor) -> None:
    """Refuse to store gradients."""
    if k.requires_grad or v.requires_grad:
        refuse_gradients()


def check_continues(k: Tensor, v: Tensor, old_k: Tensor, old_v: Tensor) -> None:
    """Refuse keys and values of another batch, width or type."""
    if _row(k) != _row(old_k) or _row(v) != _row(old_v):
        raise ValueError(
            f"keys and values (batch, heads, width, type) of {_row(k)} and {_row(v)} do not continue the cache's, "
            f"of {_row(old_k)} and {_row(old_v)}: use a new cache, one for each layer, batch and type of the numbers"
        )


def refuse_gradients() -> NoReturn:
    """Refuse to store what has gradients."""
    raise ValueError("a cache is for inference and stores no gradients: call the layer under torch.no_grad()")


def refuse_overflow(capacity: int, end: int) -> NoReturn:
    """Refuse more tokens than there is room for.

    :param capacity: how many positions there is room for.
    :param end: how many would be needed.
    """
    raise ValueError(f"the cache holds {capacity} positions, but {end} were fed: make it with capacity={end}")


def _room(x: Tensor, capacity: int) -> Tensor:
    try:
        return torch.empty(*x.shape[:2], capacity, x.shape[3], dtype=x.dtype, device=x.device)
    except RuntimeError as error:
        refuse_sizes(error, {"capacity": capacity})
        raise


def _row(x: Tensor) -> tuple[int, int, int, torch.dtype]:
    return x.shape[0], x.shape[1], x.shape[3], x.dtype
