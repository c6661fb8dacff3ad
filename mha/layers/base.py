"""The layers: they own the weights, and their ``forward`` reads like the formula.

Every layer is called ``layer(query, key=None, value=None, mask=None, *, is_causal=False)``. ``layer(x)`` is
self-attention, ``layer(x, memory)`` is cross-attention.

:Taught in: why_attention, why_many_heads, split_and_merge, output_projection.
"""

import copy
from collections.abc import Iterable
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mha.checks import check_flag, check_is_tensor, check_like_weights, check_whole, checked, described
from mha.functional.attention import NOTHING, Edits, attend, check_dropout, merge_heads, split_heads
from mha.layers.cache import KeyValueCache, MemoryCache
from mha.layers.cost import Cost, count_attention
from mha.layers.hooks import Tap, Tapped, tapped
from mha.layers.positions import RelativePositions

Layer = TypeVar("Layer", bound="Heads")


def check_choice(layer: "Heads", heads: Iterable[int]) -> list[int]:
    """Return the chosen heads in the layer's order; refuse what cannot be taken out."""
    name = type(layer).__name__
    if not layer.heads_apart:
        raise ValueError(f"{name} does not say that its heads can be computed apart: none can be taken out")
    chosen = check_numbers(layer, heads)
    group = layer.heads // layer.kv_heads
    groups = [list(range(start, start + group)) for start in range(0, layer.heads, group)]
    torn = [one for one in groups if 0 < len(set(one) & set(chosen)) < group]
    if torn:
        raise ValueError(f"{name} shares keys within the groups {groups}: take or leave all of {torn[0]} together")
    return chosen


def check_numbers(layer: "Heads", heads: Iterable[int], *, some: bool = True) -> list[int]:
    """Return the numbers of heads in the layer's order; refuse what is none of its heads, and none where ``some`` are
    needed.
    """
    if isinstance(heads, int | str) or not isinstance(heads, Iterable):
        raise TypeError(f"heads = {heads!r}: give their numbers in a list")
    chosen = list(heads)
    check_whole(None, **{f"heads[{n}]": head for n, head in enumerate(chosen)})
    if len(set(chosen)) < len(chosen) or not set(chosen) <= set(range(layer.heads)) or (some and not chosen):
        least = "at least one, " if some else ""
        raise ValueError(
            f"heads {chosen} of a layer with {layer.heads}: give {least}each once, from 0 to {layer.heads - 1}"
        )
    return sorted(chosen)


def channels_of(layer: "Heads", heads: list[int]) -> Tensor:
    """List the channels of some heads."""
    return (torch.tensor(heads)[:, None] * layer.d_head + torch.arange(layer.d_head)).flatten()


def cut_linear(linear: nn.Linear, channels: Tensor, axis: int) -> nn.Linear:
    """Keep some output channels (axis 0) or input channels (axis 1) of a projection."""
    weight = linear.weight.index_select(axis, channels.to(linear.weight.device))
    new = nn.Linear(weight.shape[1], weight.shape[0], bias=linear.bias is not None, device="meta")  # draws no numbers
    new.weight = nn.Parameter(weight, requires_grad=linear.weight.requires_grad)
    if linear.bias is not None:
        bias = linear.bias if axis == 1 else linear.bias[channels.to(linear.bias.device)]
        new.bias = nn.Parameter(bias.clone(), requires_grad=linear.bias.requires_grad)
    return new.train(linear.training)


def default_inputs(query: Tensor, key: Tensor | None, value: Tensor | None, is_causal: bool) -> tuple[Tensor, Tensor]:
    """Let key default to query and value to key; refuse a causal mask over somebody else's sequence."""
    if key is None and value is not None:
        raise ValueError(f"value = {described(value)} was given without a key: give both, or neither")
    check_flag(is_causal=is_causal)
    if is_causal and key is not None and key is not query:
        raise ValueError(
            "is_causal with a separate key: another sequence has no future to hide. Leave is_causal out, or give a mask"
        )
    key = query if key is None else key
    return key, key if value is None else value


def check_inputs(layer: Tapped, query: Tensor, key: Tensor, value: Tensor) -> None:
    """Refuse inputs that the projections cannot take, by name, shape and remedy."""
    for name, x, linear in (("query", query, layer.W_q), ("key", key, layer.W_k), ("value", value, layer.W_v)):
        check_is_tensor(name, x)
        if x.ndim != 3:
            raise ValueError(f"{name} has shape {tuple(x.shape)}, but must be (batch, sequence, {linear.in_features})")
        if x.shape[-1] != linear.in_features:
            raise ValueError(
                f"{name} of shape {tuple(x.shape)} has {x.shape[-1]} channels, "
                f"but this layer was built for {linear.in_features}"
            )
        if not x.is_floating_point():
            raise TypeError(f"{name} has dtype {x.dtype}, but must be floating point: embed token numbers first")
        if 0 in x.shape:
            raise ValueError(f"{name} has shape {tuple(x.shape)}: an empty batch or sequence cannot be attended to")
        check_like_weights(name, x, linear.weight)
    if query.shape[0] != key.shape[0] or key.shape[:2] != value.shape[:2]:
        raise ValueError(
            f"query {tuple(query.shape)}, key {tuple(key.shape)} and value {tuple(value.shape)} must have one batch "
            "size, and key and value one length"
        )


def check_heads(layer: "Heads", heads: Tensor) -> None:
    """Refuse what is not what the heads of this layer have read."""
    check_is_tensor("heads", heads)
    inner = layer.W_o.in_features
    if heads.ndim != 4 or heads.shape[1] * heads.shape[3] != inner:
        raise ValueError(
            f"heads have shape {tuple(heads.shape)}, but must be (batch, {layer.heads}, sequence, "
            f"{inner // layer.heads}), as seen.heads shows them"
        )
    if not heads.is_floating_point():
        raise TypeError(f"heads have dtype {heads.dtype}, but must be floating point")
    check_like_weights("heads", heads, layer.W_o.weight)


def check_positions(positions: nn.Module | None, query: Tensor, key: Tensor) -> None:
    """Refuse to compare positions of two different sequences."""
    if positions is not None and key is not query:
        raise ValueError(
            f"this layer has {type(positions).__name__}, which compare places within one sequence, but the key is "
            "another sequence: use a layer without positions for cross-attention"
        )


def head_width(d_model: int, heads: int, d_head: int | None) -> int:
    """Return the width of one head; refuse heads that do not divide the model's width."""
    if d_model < 1 or heads < 1 or (d_head is not None and d_head < 1):
        raise ValueError(f"d_model = {d_model}, heads = {heads}, d_head = {d_head}: each must be at least 1")
    if d_head is None and d_model % heads:
        fits = [h for h in range(1, d_model + 1) if d_model % h == 0]
        raise ValueError(
            f"{heads} heads do not divide d_model = {d_model}: take a divisor ({fits}), or give d_head yourself"
        )
    return d_model // heads if d_head is None else d_head


def input_widths(d_model: int, kdim: int | None, vdim: int | None) -> tuple[int, int]:
    """Return the widths of key and value inputs; refuse a width below one."""
    kdim, vdim = d_model if kdim is None else kdim, d_model if vdim is None else vdim
    if kdim < 1 or vdim < 1:
        raise ValueError(f"kdim = {kdim}, vdim = {vdim}: each must be at least 1")
    return kdim, vdim


def check_groups(heads: int, kv_heads: int) -> int:
    """Return the number of key heads; refuse groups of unequal size."""
    if kv_heads < 1 or heads % kv_heads:
        fits = [h for h in range(1, heads + 1) if heads % h == 0]
        raise ValueError(f"kv_heads = {kv_heads} cannot be shared evenly by {heads} query heads: take one of {fits}")
    return kv_heads


def biased(bias: bool | str) -> str:
    """Return the letters of the projections that have a bias: True means all four, False none."""
    letters = bias if isinstance(bias, str) else "qkvo" if bias is True else ""
    if not isinstance(bias, bool | str) or set(letters) - set("qkvo"):
        raise ValueError(f"bias = {bias!r}: give True, False or some of the letters 'qkvo'")
    return letters


def check_no_padding(layer: nn.Module, padding: Tensor | list[int] | None) -> None:
    """Refuse padding words where the cache does not know which of the earlier words they are."""
    if padding is not None:
        raise ValueError(
            f"padding = {described(padding)}: the cache of {type(layer).__name__} keeps nothing for each word, so it "
            "cannot hide padding: leave it out, and feed texts of one length"
        )


class Heads(Tapped):
    """What all layers share: four projections, the split into heads, the read, and the merge.

    It has no ``forward``. A layer is a small class that writes its own from :meth:`project`, :meth:`attend` and
    :meth:`merge`. The three taps ``at_scores``, ``at_weights`` and ``at_heads`` hold no weights. ``positions`` is a
    slot for positions that act inside the layer, such as :class:`mha.RotaryPositions`; it is empty at first.

    :Shapes: ``W_q`` (d_model → h·d), ``W_k`` (kdim → h·d), ``W_v`` (vdim → h·d), ``W_o`` (h·d → d_model).
    :Raises: ValueError where the heads do not divide ``d_model``, or a size or the dropout is out of range.
    :Taught in: split_and_merge.
    """

    heads_apart = False  # whether each head computes alone, up to the sum in W_o: then processes can share the heads
    is_plain = False  # whether it is attention as the paper has it, of which variants can be made

    @checked
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
        positions: RelativePositions | None = None,
    ) -> None:
        """Make the four projections.

        ``d_head`` is d_model / heads unless it is given; ``kdim`` and ``vdim`` are the widths of key and value
        inputs (``d_model`` unless given); ``bias`` is True, False, or the letters of the projections that have one,
        such as "qkv"; ``dropout`` is the share of attention weights dropped in training; ``positions`` act inside the
        layer.
        """
        super().__init__()
        self.d_model, self.heads = d_model, heads
        self.d_head, self.kv_heads = head_width(d_model, heads, d_head), heads
        self.positions = positions
        self.dropout, with_bias = check_dropout(dropout), biased(bias)
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
        key, value = default_inputs(query, key, value, is_causal)
        check_inputs(self, query, key, value)
        check_positions(self.positions, query, key)
        if cache is not None:
            if not hasattr(cache, "recall"):
                raise TypeError(
                    f"cache = {described(cache)}: give layer.new_cache(), or mha.layers.MemoryCache() for a memory"
                )
            cache.check(self, query, key, value, mask)
        start = 0 if cache is None else cache.length
        q = self.into_heads(self.W_q(query), self.heads, start)

        def fresh() -> tuple[Tensor, Tensor]:
            k = self.into_heads(self.W_k(key), self.kv_heads, start)
            return k, split_heads(self.W_v(value), self.kv_heads)

        return q, *(fresh() if cache is None else cache.recall(self, key, value, fresh))

    def into_heads(self, x: Tensor, heads: int, start: int) -> Tensor:
        """Cut queries or keys into heads, and mark their positions where the layer has a way to."""
        x = split_heads(x, heads)
        return x if self.positions is None else self.positions.turn(x, start)

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        *,
        is_causal: bool = False,
        scale: float | None = None,
        explicit: bool = False,
        edits: Edits = NOTHING,
    ) -> Tensor:
        """Read with :func:`mha.attend`, with this layer's dropout and past its taps: (b, h, i, d)."""
        edits = self.edits(edits)
        return self.at_heads(self.read(q, k, v, mask, is_causal=is_causal, scale=scale, explicit=explicit, edits=edits))

    def read(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        *,
        is_causal: bool = False,
        scale: float | None = None,
        explicit: bool = False,
        edits: Edits = NOTHING,
    ) -> Tensor:
        """Read with :func:`mha.attend` and this layer's dropout, and nothing else."""
        return attend(
            q,
            k,
            v,
            mask,
            is_causal=is_causal,
            scale=scale,
            enable_gqa=self.kv_heads < self.heads,
            dropout=self.dropout if self.training else 0.0,
            explicit=explicit,
            edit_scores=edits.scores,
            normalize=edits.normalize,
            edit_weights=edits.weights,
        )

    def edits(self, edits: Edits) -> Edits:
        """Collect what changes scores and weights on the way: the caller's edits, then positions, then open taps."""
        bias = None if self.positions is None else self.positions.bias
        return tapped(self, edits if bias is None else edits.then(scores=bias))

    def merge(self, heads: Float[Tensor, "b h i d"]) -> Float[Tensor, "b i m"]:
        """Put the heads side by side and mix them with ``W_o``."""
        return self.W_o(merge_heads(heads))

    def contributions(self, heads: Float[Tensor, "b h i d"]) -> Float[Tensor, "b h i m"]:
        """Say what each head adds to the output: they sum to it, up to the bias of ``W_o``.

        :Taught in: output_projection.
        """
        check_heads(self, heads)
        blocks = self.W_o.weight.unflatten(1, (self.heads, self.d_head))
        return torch.einsum("bhid,mhd->bhim", heads, blocks)

    def settings(self, *, biases: str = "qkvo", positions: bool = True) -> dict[str, Any]:
        """Return the keywords that make this plain layer, so that a variant can be made from it.

        ``biases`` are the letters of the biases that the variant can have, ``positions`` whether it has room for them.

        :Raises: ValueError for another kind of layer, and for positions that the variant has no room for.
        """
        if not self.is_plain:
            raise ValueError(f"{type(self).__name__} is no plain layer: give a MultiHeadAttention")
        if self.positions is not None and not positions:
            inside = type(self.positions).__name__
            raise ValueError(
                f"this layer has {inside} inside, which belong to heads of their own: take one without them"
            )
        keywords = {
            "d_model": self.d_model,
            "heads": self.heads,
            "d_head": self.d_head,
            "kdim": self.W_k.in_features,
            "vdim": self.W_v.in_features,
            "bias": "".join(letter for letter in biases if getattr(self, f"W_{letter}").bias is not None),
            "dropout": self.dropout,
        }
        return keywords | ({"positions": self.positions} if positions else {})

    @checked
    @torch.no_grad()
    def take_heads(self: Layer, heads: Iterable[int]) -> Layer:
        """Make a smaller layer of some heads, given by number; it is as this one with the others silent.

        It has fewer rows of ``W_q``, ``W_k`` and ``W_v``, and fewer columns of ``W_o``.
        Heads that share keys go together. A layer whose heads need each other refuses.

        :Taught in: pruning_heads.
        """
        chosen = check_choice(self, heads)
        group = self.heads // self.kv_heads
        shared = sorted({h // group for h in chosen})
        new = copy.deepcopy(self)
        new.heads, new.kv_heads = len(chosen), len(shared)
        new.at_scores, new.at_weights, new.at_heads = Tap(), Tap(), Tap()  # who watches the old layer watches only that
        for name, kept in (("W_q", chosen), ("W_k", shared), ("W_v", shared)):
            setattr(new, name, cut_linear(getattr(self, name), channels_of(self, kept), 0))
        new.W_o = cut_linear(self.W_o, channels_of(self, chosen), 1)
        if self.positions is not None:
            new.positions = self.positions.take_heads(chosen, self.heads)
        return new

    @checked
    def cost(self, b: int, i: int, j: int | None = None, *, fresh: int | None = None, stored: bool = False) -> Cost:
        """Count one call on paper: a batch of b, i queries, j keys (i unless given).

        Behind a cache only ``fresh`` keys are projected; ``stored`` counts the explicit formula, which writes all
        weights down, instead of the fused kernel.

        :Taught in: counting_cost.
        """
        stored = stored or getattr(self.positions, "bias", None) is not None
        return count_attention(self, b, i, j, fresh, heads=self.heads, kv_heads=self.kv_heads, stored=stored)

    @checked
    def new_cache(self, capacity: int = 1024, padding: Tensor | list[int] | None = None) -> KeyValueCache:
        """Make an empty cache for this layer.

        :Taught in: cache_and_sharing.
        """
        return KeyValueCache(capacity, padding)


@checked
def attention_layers(model: nn.Module) -> dict[str, Heads]:
    """List the layers of a model that have heads, by their path.

    :Taught in: pruning_heads.
    """
    layers = {path: module for path, module in model.named_modules() if isinstance(module, Heads)}
    if not layers:
        raise ValueError(f"{type(model).__name__} has no layer with heads")
    return layers
