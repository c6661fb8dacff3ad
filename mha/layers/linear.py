"""Layers with a state instead of a KV cache: every token is written into one matrix of fixed size.

:Taught in: overwrite.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha.checks import check_flag, check_whole, checked, described
from mha.functional import core, devices
from mha.functional.core import Changes
from mha.functional.linear import (
    CHANNEL_CHUNK,
    apply_delta_rule,
    check_form,
    decayed_scores,
    make_delta_weights,
    positive_features,
    read_linear,
    share_by_sum,
)
from mha.layers.cache import KeyValueCache, LayerCache, MemoryCache, Reader, check_growing, check_no_gradients
from mha.layers.cost import Cost, Part, count_linear, count_weights
from mha.layers.hooks import Tap
from mha.layers.inputs import biased, is_same
from mha.layers.multi_head import Heads
from mha.layers.surgery import cut_part

OPEN = 4.0  # added before the sigmoid of a decay: at first a token leaves 98 % of the state
ONES = 1  # channels that linear attention adds to its values, for the sum of the weights
EPS = 1e-6  # of the norm, and of the lengths of queries and keys, as in the released code
SLOWEST, FASTEST = 1.0, 16.0  # between which e^A is drawn, as in the released code
STEPS = (0.001, 0.1)  # between which softplus(b) is drawn, evenly in its logarithm


class StateCache(KeyValueCache):
    """Remember all tokens in one state of fixed size: nothing is kept for each token, however many there are.

    Pass it to a layer, ``layer(x_new, cache=cache, is_causal=True)``, as a :class:`mha.KeyValueCache`. Padding is
    in front and is never written.

    A layer with a short convolution also keeps what it projected for the last tokens, of fixed size too.

    :Shapes: the state (b, h, d, c), of linear attention (b, h, d, c + 1); padding (b,).
    :Raises: ValueError as :class:`mha.KeyValueCache`, but for its capacity, which does not matter; and for a mask that
        hides anything but the padding: what is in the state cannot be hidden any more.
    :Taught in: overwrite.
    """

    keeps = "one state"

    keeps_every_token = False

    @checked
    def __init__(self, capacity: int = 1024, padding: Tensor | list[int] | None = None) -> None:
        """Begin with an empty state.

        :param capacity: does not matter; it is there so that all caches are made alike.
        :param padding: how many positions in front of each sequence hold none of its tokens, (b,); none unless given.
        """
        super().__init__(capacity, padding)
        self.state: Tensor | None = None
        self.recent: Tensor | None = None
        self._padding = None if self._tokens is None else self._tokens.logical_not().sum(-1)[:, 0, 0]
        self._tokens = None

    def mask(self, new: int) -> Bool[Tensor, "b 1 1 t"] | None:
        """Show the tokens, not the padding, among all positions so far and ``new`` ones; None without padding."""
        check_whole(new=new)
        if self._padding is None:
            return None
        places = torch.arange(self._length + new, device=self._padding.device)
        return (places >= self._padding[:, None])[:, None, None]

    def admit(self, layer: Reader, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor | None:
        """Refuse a call before anything is stored.

        A mask may hide the padding, which the cache does by itself, and nothing else; to see that, its numbers are
        read, which waits for the device. Without a mask nothing waits.
        """
        LayerCache.admit(self, layer, query, key, value, mask)
        check_growing(layer, query, key, value, mask, self._length)
        if self.state is not None and len(self.state) != len(query):
            raise ValueError(
                f"query has shape {tuple(query.shape)}, but the cache holds {len(self.state)} sequences: tokens of "
                f"{len(query)} sequences do not continue them. Use a new cache"
            )
        wide = torch.promote_types(query.dtype, torch.float32)
        if self.state is not None and self.state.dtype != wide and not torch.is_autocast_enabled(query.device.type):
            raise ValueError(
                f"query has dtype {query.dtype}, which does not continue the cache's {self.state.dtype}: take a new one"
            )
        if self._padding is not None:
            if len(self._padding) not in (1, len(query)):
                raise ValueError(
                    f"the cache's padding is of {len(self._padding)} sequences, but {len(query)} came: give one number "
                    "for each"
                )
            self._padding = self._padding.to(query.device)
        shown = self.mask(query.shape[1])
        if mask is not None and bool((mask != (True if shown is None else shown)).any()):
            raise ValueError(
                f"mask {tuple(mask.shape)} hides something other than the cache's padding: the cache keeps one state "
                "for all tokens and cannot hide one of them. Leave out tokens that no query may read, or feed the "
                "sequence without a cache"
            )
        return shown

    def update(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values of the new tokens only: the layer writes them, and :meth:`keep` stores the state.

        Nothing is kept for each token.
        """
        return k, v

    def keep(self, state: Float[Tensor, "b h d c"], new: int, recent: Tensor | None = None) -> None:
        """Store the state, after ``new`` tokens more.

        :param state: the new state.
        :param new: how many tokens were written into it.
        :param recent: what a short convolution needs of the last tokens, (b, channels, width − 1).
        """
        check_no_gradients(state, state if recent is None else recent)
        self.state, self.recent = state, recent
        self._length += new
        self._stored()

    def _move(self, rows: Callable[[Tensor], Tensor]) -> None:
        self.state, self.recent = (None if x is None else rows(x) for x in (self.state, self.recent))
        if self._padding is not None and len(self._padding) > 1:
            self._padding = rows(self._padding)

    @property
    def bytes(self) -> int:
        """How much memory is taken: the same after one token and after a million."""
        return sum(x.nbytes for x in (self.state, self.recent) if x is not None)


def refuse_plain(kind: type[Heads], layer: Heads, why: str) -> NoReturn:
    """Refuse to make a layer of a plain one: there is no setting at which it would compute the same.

    :param kind: the class of the layer that was asked for.
    :param layer: the plain layer that was given.
    :param why: the reason, which ends a sentence.
    """
    layer.settings(positions=False)
    raise ValueError(
        f"layer = {described(layer)}: no setting of {kind.__name__} is softmax attention, because {why}. Make a new "
        "layer, load the four matrices into it, and train it"
    )


def hides_alike(mask: Tensor | None) -> bool:
    """Whether a mask hides the same tokens from all queries, or nothing.

    :param mask: (i, j) or (b, h, i, j), or nothing.
    """
    return mask is None or (isinstance(mask, Tensor) and mask.ndim > 1 and mask.shape[-2] == 1)


def watched_places(layer: Heads) -> list[str]:
    """Name the watched taps of weights.

    :param layer: the layer whose taps are asked.
    """
    taps: dict[str, Tap] = {"scores": layer.at_scores, "weights": layer.at_weights}
    return [name for name, tap in taps.items() if tap.is_open]


def refuse_watching(layer: Heads, cache: object) -> None:
    """Refuse to show weights with a state: the tokens that they would belong to are not kept.

    :param layer: the layer that is called.
    :param cache: what it was called with.
    """
    watched = watched_places(layer)
    if watched and isinstance(cache, StateCache):
        raise ValueError(
            f"the {' and '.join(watched)} of this layer are watched or edited, but with a StateCache there are "
            "none: the earlier tokens are one state. Watch 'heads', or feed the sequence without a cache"
        )


def refuse_dropout(layer: Heads) -> None:
    """Refuse to drop weights with a state: there are none.

    :param layer: the layer that is called with a state.
    """
    if layer.training and layer.dropout > 0:
        raise ValueError(
            f"dropout = {layer.dropout} drops weights in training, but with a StateCache there are none: call "
            "layer.eval()"
        )


def form_for(form: str, k: Tensor) -> str:
    """Say in which form a layer computes: a single token needs no kernel for many.

    :param form: of the layer.
    :param k: the keys of the new tokens, (b, h, n, d).
    """
    return "recurrent" if form == "fla" and k.shape[2] == 1 else form


class LinearAttention(Heads):
    """Attend with linear attention: products of positive features and no softmax, so that one state holds all tokens.

    The weight of token j for query i is φ(q_i)·φ(k_j), divided by the sum of its row.

    :Changes: the weights, which are products of features, φ(x) = x + 1 above 0 and eˣ below; the order of the products,
        φ(Q) (φ(K)ᵀ V) instead of (φ(Q) φ(K)ᵀ) V.
    :Costs: the parameters of a plain layer; 4·h·d·(d + 1) FLOPs per token besides the projections, and a state of
        h·d·(d + 1) numbers, however long the sequence is. A causal call works in chunks of 64 tokens, and adds
        2·64·h·(2·d + 1) per token; on a GPU they have 256, and the states of all chunks exist at once. Watching,
        dropout and masks (i, j) need the explicit formula, and its n² weights.
    :Shapes: as :class:`mha.MultiHeadAttention`; a state is (b, h, d, d + 1).
    :Raises: ValueError for scores or weights that are watched with a cache, for dropout with a cache, for masks
        with a cache that hide more than its padding, and as MultiHeadAttention.
    :Source: Katharopoulos et al. 2020.
    :Differs from the released code: features below 0 are eˣ itself, where elu(x) + 1 rounds small ones to 0.
    :Taught in: overwrite.
    """

    reads = ("one state", "keys and values")
    inseparable = None
    beyond_steps = "the products of features, in place of softmax, are made in forward"

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
        form: str = "chunked",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Make the layer; the other keywords are those of :class:`mha.Heads`.

        :param form: how a causal call is computed, as :func:`mha.functional.linear_attention` has it; "fla" calls the
            kernels of flash-linear-attention, on a GPU.
        """
        like: Any = {"device": device, "dtype": dtype}
        super().__init__(d_model, heads, d_head=d_head, kdim=kdim, vdim=vdim, bias=bias, dropout=dropout, **like)
        check_form(form)
        self.form = form

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
        """Project, write, read, merge; or the explicit formula, if its weights are needed."""
        check_table(self, cache)
        if isinstance(cache, StateCache):
            refuse_dropout(self)
        key, value, mask = self._check_call(query, key, value, mask, is_causal, cache)
        q, k, v = self._project(query, key, value, cache)
        if isinstance(cache, StateCache):
            form = form_for(self.form, k)
            heads, state = read_linear(q, k, v, written(mask, k), is_causal=is_causal, state=cache.state, form=form)
            cache.keep(state, k.shape[2])
        elif self.needs_weights(mask):
            return self._merge(self.explicit(q, k, v, mask, is_causal=is_causal))
        else:
            heads, _ = read_linear(q, k, v, written(mask, k), is_causal=is_causal, form=form_for(self.form, k))
        return self._merge(self.at_heads(heads))

    def needs_weights(self, mask: Tensor | None) -> bool:
        """Whether the weights are watched or dropped, or different tokens are hidden from different queries.

        So it is in a graph that is exported too: chunks would be counted once, for one length.

        :param mask: of the call.
        """
        return (
            torch.compiler.is_exporting()
            or bool(watched_places(self))
            or (self.training and self.dropout > 0)
            or not hides_alike(mask)
        )

    def explicit(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, is_causal: bool) -> Tensor:
        """Read with the weights materialized: (b, h, i, d).

        :param q: queries, (b, h, i, d), before φ.
        :param k: keys, (b, h, j, d), before φ.
        :param v: values, (b, h, j, d).
        :param mask: (i, j) or (b, h, i, j), True = may look.
        :param is_causal: whether each token sees only itself and what came before.
        """
        wide = torch.promote_types(v.dtype, torch.float32)
        q, k = positive_features(q.to(wide)), positive_features(k.to(wide))
        changes = Changes(normalize=share_by_sum)
        heads = self._attend(q, k, v.to(wide), mask, is_causal, scale=1.0, explicit=True, changes=changes)
        return heads.to(v.dtype)

    @classmethod
    def plain_settings(cls, layer: Heads) -> dict[str, Any]:
        """Refuse: no setting of this layer is softmax attention."""
        refuse_plain(cls, layer, "eˢ is no product of finitely many features of a query and of a key")

    @checked
    def new_cache(self, capacity: int = 1024, padding: Tensor | list[int] | None = None) -> StateCache:
        """Make an empty cache for this layer; its size does not depend on ``capacity``."""
        return StateCache(capacity, padding)

    @checked
    def cost(self, b: int, i: int, j: int | None = None, *, fresh: int | None = None, stored: bool = False) -> Cost:
        """Count one call on paper, as :meth:`Heads.cost` does; ``stored`` counts the explicit formula.

        With ``fresh`` it counts a causal call with a cache: i new tokens, in chunks.
        """
        cost = super().cost(b, i, j, fresh=fresh, stored=stored)
        count = _Count(self, b, self.d_head, self.d_head + ONES)
        kept = replace(cost, cache=count.bytes)
        if stored:
            return kept
        j = i if j is None else j
        if fresh is None:
            return count.replaced(kept, count.at_once(i, j), count.held_at_once(i, j))
        made = 5 * self.d_head + count.c  # as projected, and as features
        held = count.held(i, made=made, rated=False, erase=False, decay=False, first=fresh == j)
        return count.replaced(kept, count.causal(i, erase=False), held)


class ShortConvolution(nn.Module):
    """A causal convolution over the last few tokens, of each channel by itself (depthwise), for queries, keys, values.

    :Shapes: ``weight`` (h·(2·d + c), width): the channels of all queries, then of keys, then of values; the last column
        belongs to the newest token.
    :Raises: ValueError for a width below 2.
    :Taught in: overwrite.
    """

    is_settled = True

    def __init__(
        self,
        heads: int,
        d_head: int,
        d_value: int,
        width: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Draw the weights as torch draws those of a convolution.

        :param heads: how many heads there are.
        :param d_head: the width of a query and of a key.
        :param d_value: the width of a value.
        :param width: how many tokens it sees, the newest one included.
        :param device: where the weights are made; torch's default unless given.
        :param dtype: their type; torch's default unless given.
        """
        super().__init__()
        check_whole(heads=heads, d_head=d_head, d_value=d_value)
        if width < 2:
            raise ValueError(f"convolution = {width}: over one token it mixes none. Give 2 or more, such as 4, or None")
        self.parts = [heads * d_head, heads * d_head, heads * d_value]
        self.weight = nn.Parameter(torch.empty(sum(self.parts), width, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights evenly between −1/√width and 1/√width."""
        bound = self.weight.shape[1] ** -0.5
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, x: Float[Tensor, "b e n"], before: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Convolve, and return the last width − 1 tokens too, in float32 at least, for the next call.

        :param x: all channels of the new tokens.
        :param before: the last width − 1 tokens before them, (b, e, width − 1); zeros unless given.
        """
        short = self.weight.shape[1] - 1
        x = F.pad(x, (short, 0)) if before is None else torch.cat([before.to(x), x], -1)
        kept = x[..., -short:].to(torch.promote_types(x.dtype, torch.float32), copy=True)
        return F.conv1d(x, self.weight[:, None], groups=len(self.weight)), kept

    @torch.no_grad()
    def take_heads(self, chosen: list[int], heads: int) -> "ShortConvolution":
        """Keep the channels of some heads.

        :param chosen: the numbers of the heads that stay.
        :param heads: how many there are now.
        """
        new = copy.deepcopy(self)
        rows = [cut_part(part, chosen, heads) for part in self.weight.split(self.parts)]
        new.parts = [len(part) for part in rows]
        new.weight = nn.Parameter(torch.cat(rows), requires_grad=self.weight.requires_grad)
        return new


class Decay(nn.Module):
    """The decay of released layers: log α = −e^A · softplus(x W + b), for each head or for each channel of its key.

    :Shapes: ``rate`` (h,) is A; ``up`` makes h or h·d numbers of each token, from ``down`` (d_model → rank) if it has a
        rank.
    :Source: Yang et al. 2025 for a decay of each head, Kimi Team 2025 for one of each channel.
    :Taught in: overwrite.
    """

    is_settled = True

    def __init__(
        self,
        d_model: int,
        heads: int,
        width: int = 1,
        rank: int | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Draw e^A between 1 and 16, and b so that softplus(b) is between 0.001 and 0.1.

        :param d_model: the width of the layer's input.
        :param heads: how many heads there are.
        :param width: how many numbers each has, 1 or the width of a key; 1 unless given.
        :param rank: the width between two maps; one map unless given.
        :param device: where the parameters are made; torch's default unless given.
        :param dtype: their type; torch's default unless given.
        """
        super().__init__()
        check_whole(d_model=d_model, heads=heads, width=width, **({} if rank is None else {"rank": rank}))
        self.heads, self.width, like = heads, width, {"device": device, "dtype": dtype}
        made: dict[str, Any] = like
        self.down = None if rank is None else nn.Linear(d_model, rank, bias=False, **made)
        self.up = nn.Linear(d_model if rank is None else rank, heads * width, **made)
        self.rate = nn.Parameter(torch.empty(heads, **made))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw e^A and b; the slowest decay then forgets half in some 700 tokens, the fastest in less than one."""
        self.rate.uniform_(SLOWEST, FASTEST).log_()
        low, high = (math.log(one) for one in STEPS)
        step = torch.empty_like(self.up.bias).uniform_(low, high).exp_()
        self.up.bias.copy_(step + (-torch.expm1(-step)).log())  # the inverse of softplus

    def forward(self, x: Float[Tensor, "b n m"]) -> Tensor:
        """Return log α, (b, h, n), or (b, h, n, d).

        :param x: the input of the layer, (b, n, d_model).
        """
        wide = torch.promote_types(x.dtype, torch.float32)
        steps = F.softplus(self.up(x if self.down is None else self.down(x)).to(wide))
        rate = self.rate.to(wide).exp()
        if self.width == 1:
            return (-rate * steps).mT
        return -rate[:, None, None] * core.split_heads(steps, self.heads)

    @torch.no_grad()
    def take_heads(self, chosen: list[int], heads: int) -> "Decay":
        """Keep the decays of some heads.

        :param chosen: the numbers of the heads that stay.
        :param heads: how many there are now.
        """
        new = copy.deepcopy(self)
        new.heads, new.rate, new.up = len(chosen), cut_part(self.rate, chosen, heads), cut_part(self.up, chosen, heads)
        return new


DECAYS = ("head", "channel")
GATES: dict[str, Callable[[Tensor], Tensor]] = {"silu": F.silu, "sigmoid": torch.sigmoid}
RELEASED: dict[str, dict[str, Any]] = {
    "Qwen3-Next": {"decay": "head", "gate": "silu"},
    "Kimi Linear": {"decay": "channel", "gate": "sigmoid"},
    "OLMo Hybrid": {"decay": "head", "gate": "silu", "negative_eigenvalues": True},
}


class DeltaAttention(Heads):
    """Write each token over what its key read before (Gated DeltaNet): the last value under a key is what comes back.

    T ← αT + β kᵀ(v − αkT), and then the output is qT. The state T (d × c in each head) decays by α, and the part β of
    what the key k reads is replaced by the value v. Queries and keys are brought to length 1; α and β are numbers of
    each token in each head. The options are what released layers have around this rule; :meth:`as_released` sets them.

    :Changes: the head output, which no weights make: it depends on the order in which tokens are written. There is no
        softmax.
    :Costs: d_model + 1 parameters per head for β and as many for α; 6·h·d·c FLOPs per token besides the projections,
        and a state of h·d·c numbers, however long the sequence is. Several tokens are read in chunks of 64 (on a GPU
        256, with a decay for each channel 16), which adds a matrix of 64 × 64 and a system of 64 equations to each. A
        convolution keeps width − 1 tokens of h·(2·d + c) numbers.
    :Shapes: as :class:`mha.MultiHeadAttention`, with a mask (b, 1, 1, i) or (b, h, 1, i), True = is a token; a state is
        (b, h, d, c), where c is ``d_value`` or d. Watch "gates" (b, h, i, c) where it has them; "heads" are seen after
        their norm and their gates.
    :Raises: ValueError without ``is_causal``, for another sequence as key, for masks that hide different tokens from
        different queries, for scores or weights that are watched with a cache, for options that do not exist or do not
        fit each other, and as MultiHeadAttention.
    :Source: Yang et al. 2024 for the delta rule over a sequence, Yang et al. 2025 for the decay and what is around the
        rule, Kimi Team 2025 for the decay of each channel, Grazzi et al. 2025 for β up to 2.
    :Differs from the paper: no short convolution before, no norm and no gate after the head output, unless asked for.
    :Differs from the released code: α is the sigmoid of W x + 4 unless ``decay`` is "head" or "channel", there
        exp(−e^A · softplus(W x + b)); the output is not divided by √d, which ``W_o`` or a norm with d times its eps can
        do; a token that the mask hides neither writes nor decays, and a convolution sees zeros in its place.
    :Taught in: overwrite.
    """

    reads = ("one state", "keys and values")
    stores: tuple[str, ...] = ("W_k", "W_v", "write", "decay", "convolve")
    inseparable = None
    beyond_steps = "β and α come from the layer's input"
    of_heads = ("write", "decay", "convolve", "W_g")

    @checked
    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        decay: bool | str = True,
        erase: bool = True,
        negative_eigenvalues: bool = False,
        convolution: int | None = None,
        activation: bool = False,
        norm: bool | float = False,
        gate: str | None = None,
        rank: int | None = None,
        eps: float = 0.0,
        d_head: int | None = None,
        d_value: int | None = None,
        bias: bool | str = True,
        write_bias: bool = True,
        form: str = "chunked",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Make the layer; the other keywords are those of :class:`mha.Heads`.

        :param decay: whether the state decays; α is 1 otherwise. "head" is the decay of released layers,
            exp(−e^A · softplus(W x + b)), one number for each head, and "channel" that of KDA, one for each channel of
            the key.
        :param erase: whether what the key reads is erased first (the delta rule); v alone is written otherwise.
        :param negative_eigenvalues: whether β is between 0 and 2 instead of 1, so that a token can turn the sign of
            what its key reads.
        :param convolution: over how many tokens queries, keys and values are convolved, each channel by itself; not at
            all unless given. Released layers have 4.
        :param activation: whether SiLU follows, on queries, keys and values.
        :param norm: whether each head output is divided by its root mean square and multiplied by a learned gain that
            all heads share; a number is the eps of this norm, 1e-6 unless given.
        :param gate: the function of the gates, "silu" or "sigmoid", by which the outputs are multiplied, channel by
            channel; no gates unless given.
        :param rank: the width between the two maps that make the gates, and the decay of each channel; one map unless
            given.
        :param eps: what is added to the squared lengths of queries and keys before they are divided by their lengths;
            released layers have 1e-6.
        :param d_value: the width of a value, c; ``d_head`` unless given.
        :param write_bias: whether the map that makes β has a bias.
        :param form: how it is computed, as :func:`mha.functional.delta_rule` has it; "fla" calls the kernels of
            flash-linear-attention, on a GPU and in half precision.
        """
        like: Any = {"device": device, "dtype": dtype}
        super().__init__(d_model, heads, d_head=d_head, bias=bias, **like)
        check_form(form)
        check_options(decay, norm, gate, rank, eps, convolution)
        check_flag(negative_eigenvalues=negative_eigenvalues, activation=activation, write_bias=write_bias)
        self.erase, self.form = erase, form
        self.negative_eigenvalues, self.activation, self.gate, self.eps = negative_eigenvalues, activation, gate, eps
        self.d_value = self.d_head if d_value is None else d_value
        values = heads * self.d_value
        if self.d_value != self.d_head:
            check_whole(d_value=self.d_value)
            self.W_v = nn.Linear(d_model, values, bias="v" in biased(bias), **like)
            self.W_o = nn.Linear(values, d_model, bias="o" in biased(bias), **like)
        self.write = nn.Linear(d_model, heads, bias=write_bias, **like)
        self.decay: nn.Linear | Decay | None
        if isinstance(decay, str):
            width = self.d_head if decay == "channel" else 1
            self.decay = Decay(d_model, heads, width, rank if decay == "channel" else None, **like)
        else:
            self.decay = nn.Linear(d_model, heads, **like) if decay else None
        self.convolve = (
            None if convolution is None else ShortConvolution(heads, self.d_head, self.d_value, convolution, **like)
        )
        self.norm = nn.RMSNorm(self.d_value, eps=EPS if norm is True else norm, **like) if norm else None
        self.gate_down = nn.Linear(d_model, rank, bias=False, **like) if gate and rank else None
        self.W_g = nn.Linear(rank or d_model, values, bias=False, **like) if gate else None
        self.at_gates = Tap() if gate else None

    @classmethod
    @checked
    def as_released(
        cls,
        model: str,
        d_model: int,
        heads: int,
        *,
        d_head: int | None = None,
        d_value: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> "DeltaAttention":
        """Make a layer with the options of a released model: "Qwen3-Next", "Kimi Linear" or "OLMo Hybrid".

        All three have a convolution over 4 tokens, SiLU, a norm and gates, and no biases. In Qwen3-Next two heads share
        their queries and keys; here each has its own.

        :param model: whose options.
        :param d_model: the width of the input.
        :param heads: how many heads there are.
        :param d_head: the width of a key; d_model / heads unless given.
        :param d_value: the width of a value; ``d_head`` unless given.
        :param device: where the parameters are made; torch's default unless given.
        :param dtype: their type; torch's default unless given.
        :Raises: ValueError for another model.
        """
        if model not in RELEASED:
            raise ValueError(f"model = {model!r}: it is one of {list(RELEASED)}")
        width = d_head or d_model // max(heads, 1)
        own = RELEASED[model] | ({"rank": width} if model == "Kimi Linear" else {})
        eps = width * (EPS if model == "Qwen3-Next" else 1e-5)  # there q is divided by √d before the norm
        own |= {"convolution": 4, "activation": True, "norm": eps, "eps": EPS, "bias": False, "write_bias": False}
        return cls(d_model, heads, d_head=d_head, d_value=d_value, device=device, dtype=dtype, **own)

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
        """Project, write and read token after token, merge."""
        check_table(self, cache)
        if isinstance(cache, MemoryCache) or (key is not None and not is_same(key, query)):
            refuse_memory(self, key)
        key, value, mask = self._check_call(query, key, value, mask, is_causal, cache)
        check_order(self, query, is_causal)
        q, k, v = self._project(query, key, value, cache)
        tokens = written(mask, k)
        q, k, v, recent = self._mixed(q, k, v, tokens, cache)
        q, k = (self._of_length_one(x) for x in (q, k))
        beta, log_decay = self.rates(query)
        if tokens is not None:
            k, beta = k.masked_fill(~tokens.mT, 0), beta.masked_fill(~tokens[:, :, 0], 0)
            if log_decay is not None:
                log_decay = log_decay.masked_fill(~(tokens.mT if log_decay.ndim == k.ndim else tokens[:, :, 0]), 0)
        per_channel = log_decay if log_decay is not None and log_decay.ndim == k.ndim else None
        if watched_places(self) or torch.compiler.is_exporting():  # chunks would be counted once, for one length
            scores = self.at_scores(q @ k.mT if per_channel is None else decayed_scores(q, k, per_channel))
            weights = self.at_weights(make_delta_weights(q, k, beta, log_decay, erase=self.erase, scores=scores))
            heads = (weights @ v.to(weights)).to(v.dtype)
        else:
            state = cache.state if isinstance(cache, StateCache) else None
            form = form_for(self.form, k)
            q, k, v_wide = (x.to(v.dtype if form == "fla" else q.dtype) for x in (q, k, v))
            heads, state = apply_delta_rule(q, k, v_wide, beta, log_decay, erase=self.erase, state=state, form=form)
            heads = heads.to(v.dtype)
            if isinstance(cache, StateCache):
                cache.keep(state, k.shape[2], recent)
        return self._merge(self.at_heads(self._finished(heads, query)))

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
        """Make queries, keys and values of the tokens, convolved and activated if the layer does so, as Heads.project.

        :param query: as in :meth:`forward`.
        :param key: as there.
        :param value: as there.
        :param mask: as there; a convolution sees zeros in the place of what it hides.
        :param is_causal: as there; it is only checked.
        :param cache: as there; it stays as it is.
        """
        key, value, mask = self._check_call(query, key, value, mask, is_causal, cache)
        q, k, v = self._project(query, key, value, cache)
        q, k, v, _ = self._mixed(q, k, v, written(mask, k), cache)
        return q, k, v

    def _mixed(
        self, q: Tensor, k: Tensor, v: Tensor, tokens: Tensor | None, cache: LayerCache | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Convolve and activate queries, keys and values; return what the next call must know too."""
        recent = None
        if self.convolve is not None:
            hidden = None if tokens is None else ~tokens.mT
            made = [(x if hidden is None else x.masked_fill(hidden, 0)).transpose(1, 2).flatten(2) for x in (q, k, v)]
            before = cache.recent if isinstance(cache, StateCache) else None
            mixed, recent = self.convolve(torch.cat(made, -1).mT, before)
            mixed = F.silu(mixed.mT) if self.activation else mixed.mT
            q, k, v = (core.split_heads(x, self.heads) for x in mixed.split(self.convolve.parts, -1))
        elif self.activation:
            q, k, v = (F.silu(x) for x in (q, k, v))
        return q, k, v, recent

    def _of_length_one(self, x: Tensor) -> Tensor:
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        return F.normalize(x, dim=-1) if self.eps == 0 else x * (x.square().sum(-1, keepdim=True) + self.eps).rsqrt()

    def _finished(self, heads: Tensor, query: Tensor) -> Tensor:
        """Bring the head outputs to one size, and gate them: (b, h, i, c)."""
        kind = heads.dtype
        if self.norm is not None:
            heads = self.norm(heads.to(self.norm.weight.dtype))
        if self.gate is not None and self.W_g is not None and self.at_gates is not None:
            made = self.W_g(query if self.gate_down is None else self.gate_down(query))
            heads = heads * self.at_gates(core.split_heads(GATES[self.gate](made), self.heads))
        return heads.to(kind)

    def rates(self, x: Float[Tensor, "b n m"]) -> tuple[Float[Tensor, "b h n"], Tensor | None]:
        """Return how much of what a key reads each token overwrites (β), and the logarithm of the decay (log α).

        :param x: the layer's input.
        :Shapes: β (b, h, n); log α (b, h, n), or (b, h, n, d) with a decay for each channel.
        """
        wide = torch.promote_types(x.dtype, torch.float32)
        beta = self.write(x).to(wide).sigmoid().mT
        beta = 2 * beta if self.negative_eigenvalues else beta
        if isinstance(self.decay, Decay):
            return beta, self.decay(x)
        return beta, None if self.decay is None else F.logsigmoid(self.decay(x).to(wide) + OPEN).mT

    @classmethod
    def plain_settings(cls, layer: Heads) -> dict[str, Any]:
        """Refuse: no setting of this layer is softmax attention."""
        refuse_plain(cls, layer, "what a token reads depends on the order in which the others were written")

    @checked
    def new_cache(self, capacity: int = 1024, padding: Tensor | list[int] | None = None) -> StateCache:
        """Make an empty cache for this layer; its size does not depend on ``capacity``."""
        return StateCache(capacity, padding)

    @checked
    def cost(self, b: int, i: int, j: int | None = None, *, fresh: int | None = None, stored: bool = False) -> Cost:
        """Count one call on paper, as :meth:`Heads.cost` does: i tokens, whatever is before them."""
        super().cost(b, i, j, fresh=fresh)  # refuses lengths that no call can have
        cost = super().cost(b, i, j, fresh=i, stored=stored)
        rates = [linear for linear in (self.write, *self._decay_maps()) if linear is not None]
        gates = [linear for linear in (self.gate_down, self.W_g) if linear is not None]
        own = count_weights(*rates, *gates) + self._own_numbers()
        cost.parts["rates"] = sum((count_linear(linear, b * i) for linear in rates), Part(0, 0))
        by_channel = isinstance(self.decay, Decay) and self.decay.width > 1
        count = _Count(self, b, self.d_head, self.d_value, CHANNEL_CHUNK if by_channel else None)
        cache = count.bytes
        if self.convolve is not None:
            channels, width = self.convolve.weight.shape
            recent = b * channels * (width - 1)
            numbers = 2 * b * i * channels + channels * width + 2 * recent
            cost.parts["convolution"] = Part(2 * b * i * channels * width, count.size * numbers)
            cache += count.state_size * recent
        if gates:
            cost.parts["W_g"] = sum((count_linear(linear, b * i) for linear in gates), Part(0, 0))
        if gates or self.norm is not None:
            moved = b * i * self.heads * self.d_value * (3 if gates else 2)
            cost.parts["gates" if gates else "norm"] = Part(0, count.size * moved)
        kept = replace(cost, cache=cache, parameters=cost.parameters + own, weights=cost.weights + own * count.size)
        if stored:
            return count.explicit(kept, i) if self.erase else kept
        decays, first = self.decay is not None, fresh is None or fresh == j
        given = 2 * self.d_head + self.d_value
        made = given + (2 * self.d_head if self.convolve is not None else 0)  # values are a view of all that is mixed
        held = count.held(i, made=made, rated=True, erase=self.erase, decay=decays, first=first, by_channel=by_channel)
        if self.convolve is not None:
            held = max(held + (width - 1) * given, (4 * i + 2 * width - 2) * given)
        if gates:
            held = max(held, i * (made + 5 * self.d_value) + self.d_head * self.d_value)
        return count.replaced(kept, count.causal(i, erase=self.erase), held)

    def _decay_maps(self) -> list[nn.Linear | None]:
        return [self.decay.down, self.decay.up] if isinstance(self.decay, Decay) else [self.decay]

    def _own_numbers(self) -> int:
        """Count the parameters that belong to no linear map."""
        lone = [one.weight for one in (self.convolve, self.norm) if one is not None]
        return sum(x.numel() for x in [*lone, *([self.decay.rate] if isinstance(self.decay, Decay) else [])])


# ---- what both check


def check_options(
    decay: bool | str, norm: bool | float, gate: str | None, rank: int | None, eps: float, convolution: int | None
) -> None:
    """Refuse options of a delta layer that do not exist, or that nothing would use."""
    if isinstance(decay, str) and decay not in DECAYS:
        raise ValueError(f"decay = {decay!r}: it is True, False or one of {list(DECAYS)}")
    if gate is not None and gate not in GATES:
        raise ValueError(f"gate = {gate!r}: it is None or one of {list(GATES)}")
    if not 0 <= norm < math.inf:
        raise ValueError(f"norm = {norm}: it is True, False or the eps of the norm, such as 1e-6")
    if not 0 <= eps < math.inf:
        raise ValueError(f"eps = {eps}: it is added to squared lengths, so give 0 or a little more, such as 1e-6")
    if convolution is not None:
        check_whole(convolution=convolution)
    if rank is not None:
        check_whole(rank=rank)
        if gate is None and decay != "channel":
            raise ValueError(
                f'rank = {rank} is for gates and for a decay of each channel, and there are none: give gate="sigmoid" '
                'or decay="channel", or no rank'
            )


def check_table(layer: Heads, cache: object) -> None:
    """Refuse caches that keep something other than the layer writes, and what cannot be had with a state."""
    if cache is not None and not isinstance(cache, StateCache | MemoryCache):
        raise TypeError(
            f"cache = {described(cache)}: {type(layer).__name__} keeps one state for all tokens, give "
            "layer.new_cache(), or mha.layers.MemoryCache() for a memory"
        )
    refuse_watching(layer, cache)


def refuse_memory(layer: Heads, key: object) -> NoReturn:
    """Refuse another sequence: it has no place in the order of the tokens.

    :param layer: the layer that is called.
    :param key: what it was called with.
    """
    raise ValueError(
        f"key = {described(key)} is another sequence, but {type(layer).__name__} reads what its own tokens have "
        "written, in their order: use LinearAttention or MultiHeadAttention over a memory"
    )


def check_order(layer: Heads, query: Tensor, is_causal: bool) -> None:
    """Refuse a call that is not causal: every token reads what the tokens before it have written, and itself."""
    if not is_causal and query.shape[1] > 1:
        raise ValueError(
            f"is_causal = {is_causal} with {query.shape[1]} tokens: {type(layer).__name__} writes token after token, "
            "so no token can read later ones. Say is_causal=True"
        )


def written(mask: Tensor | None, k: Tensor) -> Bool[Tensor, "b h 1 j"] | None:
    """Say which of the newest tokens, whose keys these are, are written into the state; None is all of them.

    :param mask: of the call, (b, h, 1, j) or as it broadcasts to that.
    :param k: the newest keys.
    """
    if mask is None:
        return None
    if not hides_alike(mask):
        raise ValueError(
            f"mask of shape {tuple(mask.shape)} hides different tokens from different queries, but all read one "
            "state: give a mask (batch, 1, 1, keys), as mha.padding_mask makes one, and is_causal=True for the future"
        )
    n = k.shape[2]
    return (mask if mask.ndim == 4 else mask[None, None]).expand(-1, -1, 1, -1)[..., -n:].expand(-1, -1, 1, n)


# ---- what both cost


class _Count:
    """Count what the forms multiply and move, for heads that write states of d × c numbers."""

    def __init__(self, layer: Heads, b: int, d: int, c: int, chunk: int | None = None) -> None:
        self.all, self.d, self.c, self.chunk = b * layer.heads, d, c, chunk or devices.chunk_for(layer.W_q.weight)
        self.size = layer.W_q.weight.element_size()
        self.state_size = max(self.size, torch.float32.itemsize)  # a state is kept in float32 at least

    @property
    def bytes(self) -> int:
        """Bytes of the state."""
        return self.state_size * self.all * self.d * self.c

    def part(self, flops: int, tokens: int) -> Part:
        """Multiply, and move the keys or queries of some tokens, their values or outputs, and the state."""
        return Part(self.all * flops, self.size * self.all * tokens * (self.d + self.c) + self.bytes)

    def at_once(self, i: int, j: int) -> dict[str, Part]:
        """Count j tokens that are written, and then i that read."""
        return {"write": self.part(2 * j * self.d * self.c, j), "read": self.part(2 * i * self.d * self.c, i)}

    def causal(self, n: int, *, erase: bool) -> dict[str, Part]:
        """Count n tokens that write and read in turn."""
        product = 2 * n * self.d * self.c
        if n == 1:
            return {"write": self.part((2 if erase else 1) * product, n), "read": self.part(product, n)}
        chunk = min(self.chunk, n)
        chunks = -(-n // chunk)
        product, inside = 2 * chunks * chunk * self.d * self.c, 2 * chunks * chunk**2
        width = (2 if erase else 1) * self.d + self.c
        numbers = 2 * n * (self.d + self.c) + 2 * chunks * chunk**2
        parts = {
            "inside": Part(self.all * inside * width, self.size * self.all * numbers),
            "write": self.part((2 if erase else 1) * product, n),
            "read": self.part(product, n),
        }
        return parts | ({"solve": self.solve(chunk, chunks, self.d + self.c)} if erase else {})

    def solve(self, chunk: int, chunks: int, columns: int) -> Part:
        """Count the triangular systems; torch's counter of FLOPs knows nothing of them."""
        numbers = chunks * (chunk**2 + 2 * chunk * columns)
        return Part(self.all * chunks * chunk**2 * columns, self.state_size * self.all * numbers)

    def explicit(self, cost: Cost, n: int) -> Cost:
        """Add the cost of materialized weights: the products of keys with keys, and one system for all tokens."""
        system = Part(self.all * 2 * n**2 * self.d, self.size * self.all * (2 * n * self.d + n**2))
        return replace(cost, parts=cost.parts | {"system": system, "solve": self.solve(n, 1, n)})

    def replaced(self, cost: Cost, parts: dict[str, Part], held: int) -> Cost:
        """Put these parts in the place of scores and weights; so many numbers of a head are alive at the peak."""
        kept = {name: part for name, part in cost.parts.items() if name not in ("scores", "read")}
        return replace(cost, parts=kept | parts, peak=self.state_size * self.all * held)

    def held_at_once(self, i: int, j: int) -> int:
        """Count the numbers of a head that live at the fullest moment, where all is written before it is read."""
        state, given = self.d * self.c, 2 * i * self.d + j * (3 * self.d + self.c)  # as projected, and as features
        return given + max(3 * state, state + i * (self.d + self.c))

    def held(
        self, n: int, *, made: int, rated: bool, erase: bool, decay: bool, first: bool, by_channel: bool = False
    ) -> int:
        """Count the numbers of a head that live at the fullest moment of a causal call.

        ``made`` are those of each token before it is cut into chunks; ``rated`` tokens are multiplied by β, and without
        decay they are read as they were cut; the ``first`` call makes the state that others find in the cache.
        """
        state = self.d * self.c
        made += self.d * by_channel
        if n == 1:
            return made + (2 + decay + first) * state
        chunk = min(self.chunk, n)
        rows = -(-n // chunk) * chunk
        table, written = rows * chunk, rows * (rated * self.c + erase * self.d)
        building = (2 + erase + decay) * table + erase * rows * self.d
        if by_channel:  # d numbers for each pair of tokens, in three steps, until the tables are made of them
            building, made = 3 * table * self.d, made + 3 * self.d
        between = decay and not by_channel
        solving = (1 + erase + between) * table + decay * rows * self.d + 3 * erase * rows * (self.c + self.d)
        tables = (2 + decay + (first or rows > chunk)) * state  # the old one, what is left of it, a product, the sum
        reading = written + 2 * decay * rows * self.d + (1 + erase + between) * table + rows * self.c
        reading += max(tables, rows * self.c + state)  # at the end the outputs of all chunks are joined
        return n * made + rows * (2 * self.d + self.c) + max(building, solving, reading)
