"""Multi-head attention (MHA): project, attend, merge. Every other layer says only what it does in another way.

Every layer is called ``layer(query, key=None, value=None, mask=None, *, is_causal=False)``. ``layer(x)`` is
self-attention, ``layer(x, memory)`` is cross-attention.

:Taught in: why_many_heads, split_and_merge, output_projection.
"""

import copy
from collections.abc import Collection, Iterable
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha.checks import ELSEWHERE_ONLY, checked, described, refuse_elsewhere
from mha.functional import core, devices
from mha.functional.attention import check_dropout, check_qkv, check_settings, check_visible
from mha.functional.core import NO_CHANGES, Changes
from mha.layers import inputs
from mha.layers.cache import KeyValueCache, LayerCache
from mha.layers.cost import Cost, count_attention
from mha.layers.hooks import Tap, watchers
from mha.layers.positions import RelativePositions
from mha.layers.projections import as_linear, settled
from mha.layers.surgery import check_choice, cut_linear, cut_part, rows_of

Layer = TypeVar("Layer", bound="Heads")


class Heads(nn.Module):
    """The algorithm that all layers share: four projections, the split into heads, the weighted sum, the merge.

    A variant is a class under this one that changes one of these steps, and inherits the others:

    - ``_project`` makes queries, keys and values;
    - ``changes`` says what happens to scores, normalization and weights;
    - ``_gates`` makes what the head outputs are multiplied by;
    - ``_read`` reads from the values, where the formula is another one;
    - ``of_heads`` names the parts of its own that have rows for each head, so that heads can be taken out;
    - ``plain_settings`` and ``_become`` make it from a plain layer.

    The three taps ``at_scores``, ``at_weights`` and ``at_heads`` hold no parameters. ``positions`` is a slot for
    positions that act inside the layer, such as :class:`mha.RotaryPositions`; it is empty at first.

    :Shapes: ``W_q`` (d_model → h·d), ``W_k`` (kdim → g·d), ``W_v`` (vdim → g·d), ``W_o`` (h·d → d_model), for h heads
        and g KV heads of width d.
    :Raises: ValueError where the heads do not divide ``d_model``, or a size or the dropout is out of range.
    :Taught in: split_and_merge.
    """

    is_plain = False  # whether it is attention as the paper has it, of which variants can be made
    inseparable: str | None = "its class does not say that its heads can be computed apart"  # None: they can
    beyond_steps: str | None = None  # what the formula needs that :meth:`attend` is not given
    of_heads: tuple[str, ...] = ()  # parts with equally many rows for each head, beside the four projections
    reads: tuple[str, ...] = ("keys and values",)  # what it can go on from, of what caches keep
    stores: tuple[str, ...] = ("W_k", "W_v")  # parts that make what caches keep
    scale: float | None = None  # of the scores; 1/√d where it is None

    @checked
    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        d_head: int | None = None,
        kdim: int | None = None,
        vdim: int | None = None,
        bias: bool | str = True,
        dropout: float = 0.0,
        positions: RelativePositions | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        replaced: Collection[str] = (),
    ) -> None:
        """Make the four projections.

        :param d_model: the width of the queries' input, and of the output.
        :param heads: how many heads attend, h.
        :param kv_heads: how many heads of keys and values they share, g; ``heads`` unless given.
        :param d_head: the width of a head, d; d_model / heads unless given.
        :param kdim: the width of the keys' input; ``d_model`` unless given.
        :param vdim: the width of the values' input; ``d_model`` unless given.
        :param bias: True, False, or the letters of the projections that have one, such as "qkv".
        :param dropout: the share of attention weights dropped in training, at least 0 and below 1.
        :param positions: what acts on queries, keys or scores inside the layer; nothing unless given.
        :param device: where the parameters are made; torch's default unless given.
        :param dtype: the type of the parameters; torch's default unless given.
        :param replaced: the projections that a subclass puts matrices of other sizes in the place of, such as "W_k":
            they stay on the meta device, where they take no memory and draw no numbers.
        """
        super().__init__()
        self.d_model, self.heads, self.kv_heads = d_model, heads, heads if kv_heads is None else kv_heads
        self.d_head = inputs.head_width(d_model, heads, d_head)
        inputs.check_groups(heads, self.kv_heads)
        kdim, vdim = inputs.input_widths(d_model, kdim, vdim)
        with_bias = inputs.biased(bias)
        check_dropout(dropout)
        self.dropout, self.positions = dropout, positions
        inner, shared = heads * self.d_head, self.kv_heads * self.d_head
        inputs.check_replaced(replaced)
        place = {x: "meta" if f"W_{x}" in replaced else device for x in "qkvo"}
        self.W_q = nn.Linear(d_model, inner, bias="q" in with_bias, device=place["q"], dtype=dtype)
        self.W_k = nn.Linear(kdim, shared, bias="k" in with_bias, device=place["k"], dtype=dtype)
        self.W_v = nn.Linear(vdim, shared, bias="v" in with_bias, device=place["v"], dtype=dtype)
        self.W_o = nn.Linear(inner, d_model, bias="o" in with_bias, device=place["o"], dtype=dtype)
        self.at_scores, self.at_weights, self.at_heads = Tap(), Tap(), Tap()

    # ---- the algorithm

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Call the layer; keywords of other libraries are refused with what does the same here."""
        if named and not ELSEWHERE_ONLY.isdisjoint(named):
            refuse_elsewhere(type(self).__name__, list(named))
        return super().__call__(*inputs, **named)

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
        """Project, attend, merge.

        :param query: what asks, (b, i, d_model).
        :param key: what is compared with, (b, j, kdim); the query unless given.
        :param value: what is read, (b, j, vdim); the key unless given.
        :param mask: (i, j) or (b, h, i, j), True = may look; everything may be looked at unless given.
        :param is_causal: whether each token sees only itself and what came before.
        :param cache: keys and values of earlier calls, which the queries see too.
        """
        key, value, mask = self._check_call(query, key, value, mask, is_causal, cache)
        q, k, v = self._project(query, key, value, cache)
        heads = self._attend(q, k, v, mask, is_causal, gates=self._gates(query, q))
        return self._merge(heads)

    def _merge(self, heads: Tensor) -> Tensor:
        """Put the heads side by side and mix them; refuse to mix a part of them as if it were all."""
        merged = core.merge_heads(heads)
        if heads.shape[-1] != self.d_head and merged.shape[-1] != getattr(self.W_o, "in_features", merged.shape[-1]):
            raise ValueError(
                f"the heads make {merged.shape[-1]} channels, but W_o takes {self.W_o.in_features}: each process of a "
                "parallel plan that cuts the projections has only some of the heads, and this layer counts all. Cut it "
                "with mha.systems.tensor_parallel.shard_heads, which knows its heads"
            )
        return self.W_o(merged)

    def _project(self, query: Tensor, key: Tensor, value: Tensor, cache: LayerCache | None) -> tuple[Tensor, ...]:
        """Make queries, keys and values and split them into heads: q (b, h, i, d), k and v (b, g, j, d)."""
        start = 0 if cache is None else cache.length
        q = self._into_heads(self.W_q(query), self.heads, start)
        if cache is not None and cache.holds(key):
            return q, *cache.held()
        raw = cache is not None and cache.keeps_raw_keys  # then positions act on what the cache returns
        k = self._into_heads(self.W_k(key), self.kv_heads, None if raw else start)
        v = core.split_heads(self.W_v(value), self.kv_heads)
        if cache is None:
            return q, k, v
        k, v = cache.update(k, v)
        if raw and self.positions is not None:
            k = self.positions.rotate(k, cache.length - k.shape[2])
        return q, k, v

    def _into_heads(self, x: Tensor, heads: int, start: int | None) -> Tensor:
        """Split queries or keys into heads, and mark positions from ``start`` on where the layer has a way to."""
        x = core.split_heads(x, heads)
        return x if self.positions is None or start is None else self.positions.rotate(x, start)

    def changes(self) -> Changes:
        """Say what this kind of layer changes between scores and weights; plain attention changes nothing."""
        return NO_CHANGES

    @property
    def is_gated(self) -> bool:
        """Whether the head outputs are multiplied by gates."""
        return type(self)._gates is not Heads._gates

    def _gates(self, query: Tensor, q: Tensor) -> Tensor | None:
        """Make what the head outputs are multiplied by, (b, h, i, 1) or (b, h, i, d); plain attention has no gates."""
        return None

    def _attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        is_causal: bool,
        *,
        gates: Tensor | None = None,
        scale: float | None = None,
        explicit: bool = False,
        changes: Changes | None = None,
    ) -> Tensor:
        """Read past the taps, and gate the head outputs: (b, h, i, d)."""
        own = self.changes() if changes is None else changes
        scale = self.scale if scale is None else scale
        if self._adds_bias(q, k, own, explicit):
            heads = self._read_biased(q, k, v, mask, is_causal=is_causal, scale=scale)
            return self.at_heads(heads if gates is None else heads * gates)
        changes = self._with_watchers(own)
        heads = self._read(q, k, v, mask, is_causal=is_causal, scale=scale, explicit=explicit, changes=changes)
        return self.at_heads(heads if gates is None else heads * gates)

    def _adds_bias(self, q: Tensor, k: Tensor, own: Changes, explicit: bool) -> bool:
        """Say whether the only change is a bias of scores that the fused kernel takes as a mask of numbers."""
        if explicit or self.positions is None or not self.positions.only_adds or not devices.wants_bias(q):
            return False
        plain = type(self)._read is Heads._read and not torch.compiler.is_exporting()
        watched = self.at_scores.is_open or self.at_weights.is_open
        return plain and q.shape[1] == k.shape[1] and not (own or watched)

    def _read_biased(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, is_causal: bool, scale: float | None
    ) -> Tensor:
        """Read with the bias of the positions as a mask of numbers, which may be kept from the last call."""
        added: Any = self.positions
        bias, dropout = added._added(q, k.shape[2], is_causal=is_causal), self.dropout if self.training else 0.0
        return core.attend_biased(q, k, v, bias, mask, scale=scale, dropout=dropout)

    def _with_watchers(self, changes: Changes) -> Changes:
        """Add what positions do to scores, and last what watchers do, to the layer's own changes."""
        if self.positions is not None and self.positions.bias is not None:
            changes = changes.then(Changes(scores=self.positions.bias))
        watched = watchers(self.at_scores, self.at_weights)
        return changes if watched is NO_CHANGES else changes.then(watched)

    def _read(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        *,
        is_causal: bool,
        scale: float | None = None,
        explicit: bool = False,
        changes: Changes = NO_CHANGES,
    ) -> Tensor:
        """Read from the values: softmax(q kᵀ · scale) v, with this layer's dropout in training.

        On torch's fused kernel; where there are ``changes``, or with ``explicit``, in single steps: the scores
        q kᵀ · scale, changed; masked; the softmax, or what replaces it; the weights, changed; weights · v.
        """
        dropout = self.dropout if self.training else 0.0
        return core.attend(
            q, k, v, mask, is_causal=is_causal, scale=scale, dropout=dropout, explicit=explicit, changes=changes
        )

    def _check_call(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        mask: Tensor | None,
        is_causal: bool,
        cache: LayerCache | None,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Ask once for everything that could go wrong; return key, value and the mask that holds."""
        if nested := inputs.nested_ones(query=query, key=key, value=value):
            steps = ("forward", "_project", "_read")
            other = self.beyond_steps is not None or any(getattr(type(self), s) is not getattr(Heads, s) for s in steps)
            changed = other or bool(self._with_watchers(self.changes()))
            extra = is_causal or mask is not None or cache is not None or self.kv_heads != self.heads
            alone = len(nested) == 1 + (key is not None) + (value is not None)
            inputs.check_nested(self, nested, alone and not (changed or extra or self.positions is not None))
        key, value = inputs.default_inputs(query, key, value, is_causal)
        inputs.check_inputs(self, query, key, value)
        if self.positions is not None:
            inputs.check_positions(self.positions, query, key)
        if cache is not None:
            inputs.check_cache(cache, self)
            shown = cache.admit(self, query, key, value, mask)
            inputs.check_order(cache, query, mask, is_causal)
            return key, value, shown
        if mask is not None:
            inputs.check_visible(mask, query, key, self.heads)
        return key, value, mask

    # ---- its steps, one by one

    def project(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        is_causal: bool = False,
        cache: LayerCache | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Make queries, keys and values and split them into heads: three tensors (b, h, n, d).

        With a cache the keys and values of the past come first.

        :param query: as in :meth:`forward`.
        :param key: as there.
        :param value: as there.
        :param mask: as there; it is only checked.
        :param is_causal: as there; it is only checked.
        :param cache: as there.
        """
        key, value, _ = self._check_call(query, key, value, mask, is_causal, cache)
        q, k, v = self._project(query, key, value, cache)
        return q, k, v

    @checked
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
        changes: Changes | None = None,
        gates: Tensor | None = None,
    ) -> Tensor:
        """Read with :func:`mha.attend`, with this layer's dropout and past its taps: (b, h, i, d).

        :param q: queries, (b, h, i, d).
        :param k: keys, (b, g, j, d).
        :param v: values, (b, g, j, d).
        :param mask: (i, j) or (b, h, i, j), True = may look; everything may be looked at unless given.
        :param is_causal: whether each token sees only itself and what came before.
        :param scale: of the scores; the layer's own unless given.
        :param explicit: whether the explicit formula runs (eager), instead of torch's fused kernel.
        :param changes: in the place of what :meth:`changes` says.
        :param gates: what the head outputs are multiplied by, (b, h, i) or (b, h, i, d); nothing unless given.
        :Raises: ValueError for a layer whose formula needs more than q, k and v, and for one with gates that gets none.
        """
        check_settings(scale, is_causal=is_causal, explicit=explicit)
        self._check_steps(gates)
        self._check_qkv(q, k, v)
        check_visible(q, k, mask)
        gates = None if gates is None else inputs.fitting_gates(gates, q, v)
        return self._attend(q, k, v, mask, is_causal, gates=gates, scale=scale, explicit=explicit, changes=changes)

    def _check_steps(self, gates: Tensor | None) -> None:
        """Refuse :meth:`attend` where it would leave out a part of the formula."""
        name = type(self).__name__
        if self.beyond_steps is not None:
            raise ValueError(
                f"{name}.attend(q, k, v) would leave out what is special in this layer: {self.beyond_steps}. Call "
                "layer(query, …); for softmax attention on q, k and v call mha.attend(q, k, v)"
            )
        if gates is None and self.is_gated:
            raise ValueError(
                f"gates = None: {name} multiplies its head outputs by gates, which come from the query. Call "
                'layer(query, …), or give gates=…, as mha.watch(layer, "gates") shows them'
            )

    def _check_qkv(self, q: Tensor, k: Tensor, v: Tensor) -> None:
        """Refuse what :meth:`attend` cannot read."""
        check_qkv(q, k, v, enable_gqa=self.kv_heads < self.heads)

    def merge(self, heads: Float[Tensor, "b h i d"]) -> Float[Tensor, "b i m"]:
        """Put the heads side by side and mix them with ``W_o``.

        :param heads: the head outputs.
        """
        inputs.check_heads(heads, self.heads, self.W_o)
        return self._merge(heads)

    def contributions(self, heads: Float[Tensor, "b h i d"]) -> Float[Tensor, "b h i m"]:
        """Say what each head adds to the output: they sum to it, up to the bias of ``W_o``.

        :param heads: the head outputs, as ``seen.heads`` shows them.
        :Taught in: output_projection.
        """
        inputs.check_heads(heads, self.heads, self.W_o)
        blocks = as_linear(self.W_o, "W_o").weight.unflatten(1, (self.heads, -1))
        return torch.einsum("bhid,mhd->bhim", heads, blocks)

    # ---- from a plain layer, to fewer heads, on paper, with a cache

    def settings(self, *, biases: str = "qkvo", positions: bool = True) -> dict[str, Any]:
        """Return the keywords that make this plain layer, so that a variant can be made from it.

        :param biases: the letters of the biases that the variant can have.
        :param positions: whether it has room for them.
        :Raises: ValueError for another kind of layer, and for positions that the variant has no room for.
        """
        if not self.is_plain:
            raise ValueError(f"{type(self).__name__} is no plain layer: give a MultiHeadAttention{self._other_way()}")
        if self.positions is not None and not positions:
            inside = type(self.positions).__name__
            raise ValueError(
                f"this layer has {inside} inside, which belong to heads of their own: take one without them"
            )
        return self._keywords(biases) | ({"positions": self.positions} if positions else {})

    def _other_way(self) -> str:
        """Say what can be made of a layer that is not plain; an error ends with it."""
        return ""

    def _keywords(self, biases: str = "qkvo") -> dict[str, Any]:
        """Return the keywords that all layers have, except positions."""
        return {
            "d_model": self.d_model,
            "heads": self.heads,
            "d_head": self.d_head,
            "kdim": self.W_k.in_features,
            "vdim": self.W_v.in_features,
            "bias": "".join(letter for letter in biases if getattr(self, f"W_{letter}").bias is not None),
            "dropout": self.dropout,
        }

    @classmethod
    @checked
    @torch.no_grad()
    def from_plain(cls: type[Layer], layer: "Heads", **settings: Any) -> Layer:
        """Make a layer of this kind with the parameters of a plain one.

        :param layer: a plain layer, such as :class:`mha.MultiHeadAttention`.
        :param settings: keywords of the constructor. Without any the new layer computes what the plain one does.
        :Raises: ValueError where this kind of layer cannot compute that.
        """
        if not isinstance(layer, Heads):
            raise TypeError(f"layer = {described(layer)}: it must be a layer with heads, such as MultiHeadAttention")
        layer = settled(layer, *layer.of_heads)
        like = layer.W_q.weight
        new = cls(**(cls.plain_settings(layer) | settings), device=like.device, dtype=like.dtype)
        new._become(layer)
        if layer.scale is not None:
            new.scale = layer.scale
        for name, parameter in layer.named_parameters():  # what was frozen stays frozen
            if not parameter.requires_grad and (same := dict(new.named_parameters()).get(name)) is not None:
                same.requires_grad_(False)
        return new.train(layer.training)

    @classmethod
    def plain_settings(cls, layer: "Heads") -> dict[str, Any]:
        """Return the keywords with which this kind of layer is the given plain one.

        :param layer: the plain layer.
        """
        return layer.settings()

    def _become(self, layer: "Heads") -> None:
        """Take the parameters of a plain layer, and let parts of its own change nothing."""
        for name, weight in layer.named_parameters():
            self.get_parameter(name).copy_(weight)

    @checked
    @torch.no_grad()
    def take_heads(self: Layer, heads: Iterable[int]) -> Layer:
        """Make a smaller layer of some heads, given by number; it is as this one with the others silent.

        It has fewer rows of ``W_q``, ``W_k`` and ``W_v``, fewer columns of ``W_o``, and the chosen heads' rows of parts
        of its own. Heads that share keys go together. A layer whose heads need each other refuses. What is given is the
        complement of what ``prune_heads`` of transformers wants.

        :param heads: the numbers of the heads that stay, each once.
        :Raises: ValueError for numbers of no heads, and where the heads cannot be taken apart.
        :Taught in: pruning_heads.
        """
        chosen = check_choice(self, heads)
        whole = settled(self, *self.of_heads)
        group = self.heads // self.kv_heads
        shared = sorted({h // group for h in chosen})
        new = copy.deepcopy(whole)
        new.heads, new.kv_heads = len(chosen), len(shared)
        for name, part in list(new.named_children()):
            if isinstance(part, Tap):  # who watches the old layer watches only that
                setattr(new, name, Tap())
        for name, kept, all_heads in (
            ("W_q", chosen, self.heads), ("W_k", shared, self.kv_heads), ("W_v", shared, self.kv_heads),
        ):  # fmt: skip
            part = getattr(whole, name)
            setattr(new, name, cut_linear(part, rows_of(kept, part.out_features // all_heads), 0))
        new.W_o = cut_linear(whole.W_o, rows_of(chosen, whole.W_o.in_features // self.heads), 1)
        for name in self.of_heads:
            setattr(new, name, cut_part(getattr(whole, name), chosen, self.heads))
        if self.positions is not None:
            new.positions = self.positions.take_heads(chosen, self.heads)
        return new

    @checked
    def cost(self, b: int, i: int, j: int | None = None, *, fresh: int | None = None, stored: bool = False) -> Cost:
        """Count one call on paper.

        :param b: how many sequences are in the batch.
        :param i: how many queries each has.
        :param j: how many keys; i unless given.
        :param fresh: how many keys are projected, where a cache holds the others; all unless given.
        :param stored: whether the weights are materialized, by the explicit formula instead of the fused kernel.
        :Taught in: counting_cost.
        """
        stored = stored or getattr(self.positions, "bias", None) is not None
        return count_attention(settled(self), b, i, j, fresh, heads=self.heads, kv_heads=self.kv_heads, stored=stored)

    @checked
    def new_cache(self, capacity: int = 1024, padding: Tensor | list[int] | None = None) -> LayerCache:
        """Make an empty cache for this layer.

        :param capacity: in positions; 1024 unless given.
        :param padding: how many positions in front of each sequence hold none of its tokens, (b,).
        :Taught in: cache_and_sharing.
        """
        return KeyValueCache(capacity, padding)


class MultiHeadAttention(Heads):
    """Attend several times in parallel (MHA), each time with own queries, keys and values, and mix the head outputs.

    :Costs: 4 · d_model² parameters and 8·n·d_model² + 4·n²·d_model FLOPs, whatever the number of heads.
    :Shapes: returns (b, i, d_model).
    :Raises: ValueError or TypeError for shapes, dtypes or masks that do not fit, each with the way out. For second
        derivatives torch raises RuntimeError, because its fused kernel has none: take them while the weights are
        watched, or under torch.nn.attention.sdpa_kernel(SDPBackend.MATH).
    :Source: Vaswani et al. 2017, section 3.2.2.
    :Taught in: why_many_heads, split_and_merge, output_projection, positions.
    """

    inseparable = None
    is_plain = True

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
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Make the layer; the keywords are those of :class:`mha.Heads`."""
        super().__init__(
            d_model,
            heads,
            d_head=d_head,
            kdim=kdim,
            vdim=vdim,
            bias=bias,
            dropout=dropout,
            positions=positions,
            device=device,
            dtype=dtype,
        )


@checked
def attention_layers(model: nn.Module) -> dict[str, Heads]:
    """List the layers of a model that have heads, by their path.

    :param model: any module; it may be such a layer itself.
    :Raises: ValueError where there is none.
    :Taught in: pruning_heads.
    """
    layers = {path: module for path, module in model.named_modules() if isinstance(module, Heads)}
    if not layers:
        raise ValueError(f"{type(model).__name__} has no layer with heads")
    return layers
