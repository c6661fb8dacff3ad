"""Layers with a state instead of a KV cache: every token is written into one matrix of fixed size.

:Taught in: overwrite.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha.checks import check_whole, checked, described
from mha.functional import devices
from mha.functional.core import Changes
from mha.functional.linear import (
    apply_delta_rule,
    check_form,
    make_delta_weights,
    positive_features,
    read_linear,
    share_by_sum,
)
from mha.layers.cache import KeyValueCache, LayerCache, MemoryCache, Reader, check_growing, check_no_gradients
from mha.layers.cost import Cost, Part, count_linear, count_weights
from mha.layers.hooks import Tap
from mha.layers.inputs import is_same
from mha.layers.multi_head import Heads

OPEN = 4.0  # added before the sigmoid of a decay: at first a token leaves 98 % of the state
ONES = 1  # channels that linear attention adds to its values, for the sum of the weights


class StateCache(KeyValueCache):
    """Remember all tokens in one state of fixed size: nothing is kept for each token, however many there are.

    Pass it to a layer, ``layer(x_new, cache=cache, is_causal=True)``, as a :class:`mha.KeyValueCache`. Padding is
    in front and is never written.

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

    def keep(self, state: Float[Tensor, "b h d c"], new: int) -> None:
        """Store the state, after ``new`` tokens more.

        :param state: the new state.
        :param new: how many tokens were written into it.
        """
        check_no_gradients(state, state)
        self.state = state
        self._length += new
        self._stored()

    def _move(self, rows: Callable[[Tensor], Tensor]) -> None:
        self.state = None if self.state is None else rows(self.state)
        if self._padding is not None and len(self._padding) > 1:
            self._padding = rows(self._padding)

    @property
    def bytes(self) -> int:
        """How much memory is taken: the same after one token and after a million."""
        return 0 if self.state is None else self.state.nbytes


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


class DeltaAttention(Heads):
    """Write each token over what its key read before (Gated DeltaNet): the last value under a key is what comes back.

    T ← αT + β kᵀ(v − αkT), and then the output is qT. The state T (d × d in each head) decays by α, and the part β of
    what the key k reads is replaced by the value v. Queries and keys are brought to length 1; α and β are numbers of
    each token in each head.

    :Changes: the head output, which no weights make: it depends on the order in which tokens are written. There is no
        softmax.
    :Costs: d_model + 1 parameters per head for β and as many for α; 6·h·d² FLOPs per token besides the projections, and
        a state of h·d² numbers, however long the sequence is. Several tokens are read in chunks of 64 (on a GPU
        256), which adds a matrix of 64 × 64 and a system of 64 equations to each.
    :Shapes: as :class:`mha.MultiHeadAttention`, with a mask (b, 1, 1, i) or (b, h, 1, i), True = is a token; a state is
        (b, h, d, d).
    :Raises: ValueError without ``is_causal``, for another sequence as key, for masks that hide different tokens from
        different queries, for scores or weights that are watched with a cache, and as MultiHeadAttention.
    :Source: Yang et al. 2024 for the delta rule over a sequence, Yang et al. 2025 for the decay.
    :Differs from the paper: no short convolution before, no norm and no gate after the head output.
    :Differs from the released code: α is the sigmoid of W x + 4, there exp(−e^A · softplus(W x + b)); the output is not
        divided by √d, which ``W_o`` can do; a token that the mask hides neither writes nor decays.
    :Taught in: overwrite.
    """

    reads = ("one state", "keys and values")
    stores: tuple[str, ...] = ("W_k", "W_v", "write", "decay")
    inseparable = None
    beyond_steps = "β and α come from the layer's input"
    of_heads = ("write", "decay")

    @checked
    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        decay: bool = True,
        erase: bool = True,
        d_head: int | None = None,
        bias: bool | str = True,
        form: str = "chunked",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Make the layer; the other keywords are those of :class:`mha.Heads`.

        :param decay: whether the state decays; α is 1 otherwise.
        :param erase: whether what the key reads is erased first (the delta rule); v alone is written otherwise.
        :param form: how it is computed, as :func:`mha.functional.delta_rule` has it; "fla" calls the kernels of
            flash-linear-attention, on a GPU and in half precision.
        """
        super().__init__(d_model, heads, d_head=d_head, bias=bias, device=device, dtype=dtype)
        check_form(form)
        self.erase, self.form = erase, form
        self.write = nn.Linear(d_model, heads, device=device, dtype=dtype)
        self.decay = nn.Linear(d_model, heads, device=device, dtype=dtype) if decay else None

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
        q, k = (F.normalize(x.to(torch.promote_types(x.dtype, torch.float32)), dim=-1) for x in (q, k))
        beta, log_decay = self.rates(query)
        tokens = written(mask, k)
        if tokens is not None:
            k, beta = k.masked_fill(~tokens.mT, 0), beta.masked_fill(~tokens[:, :, 0], 0)
            log_decay = None if log_decay is None else log_decay.masked_fill(~tokens[:, :, 0], 0)
        if watched_places(self) or torch.compiler.is_exporting():  # chunks would be counted once, for one length
            scores = self.at_scores(q @ k.mT)
            weights = self.at_weights(make_delta_weights(q, k, beta, log_decay, erase=self.erase, scores=scores))
            heads = (weights @ v.to(weights)).to(v.dtype)
        else:
            state = cache.state if isinstance(cache, StateCache) else None
            form = form_for(self.form, k)
            q, k, v_wide = (x.to(v.dtype if form == "fla" else q.dtype) for x in (q, k, v))
            heads, state = apply_delta_rule(q, k, v_wide, beta, log_decay, erase=self.erase, state=state, form=form)
            heads = heads.to(v.dtype)
            if isinstance(cache, StateCache):
                cache.keep(state, k.shape[2])
        return self._merge(self.at_heads(heads))

    def rates(self, x: Float[Tensor, "b n m"]) -> tuple[Float[Tensor, "b h n"], Float[Tensor, "b h n"] | None]:
        """Return how much of what a key reads each token overwrites (β), and the logarithm of the decay (log α).

        :param x: the layer's input.
        """
        wide = torch.promote_types(x.dtype, torch.float32)
        beta = self.write(x).to(wide).sigmoid().mT
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
        rates = [linear for linear in (self.write, self.decay) if linear is not None]
        own = count_weights(*rates)
        cost.parts["rates"] = sum((count_linear(linear, b * i) for linear in rates), Part(0, 0))
        count = _Count(self, b, self.d_head, self.d_head)
        kept = replace(
            cost, cache=count.bytes, parameters=cost.parameters + own, weights=cost.weights + own * count.size
        )
        if stored:
            return count.explicit(kept, i) if self.erase else kept
        decays, first = self.decay is not None, fresh is None or fresh == j
        held = count.held(i, made=3 * self.d_head, rated=True, erase=self.erase, decay=decays, first=first)
        return count.replaced(kept, count.causal(i, erase=self.erase), held)


# ---- what both check


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

    def __init__(self, layer: Heads, b: int, d: int, c: int) -> None:
        self.all, self.d, self.c, self.chunk = b * layer.heads, d, c, devices.chunk_for(layer.W_q.weight)
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

    def held(self, n: int, *, made: int, rated: bool, erase: bool, decay: bool, first: bool) -> int:
        """Count the numbers of a head that live at the fullest moment of a causal call.

        ``made`` are those of each token before it is cut into chunks; ``rated`` tokens are multiplied by β, and without
        decay they are read as they were cut; the ``first`` call makes the state that others find in the cache.
        """
        state = self.d * self.c
        if n == 1:
            return made + (2 + decay + first) * state
        chunk = min(self.chunk, n)
        rows = -(-n // chunk) * chunk
        table, written = rows * chunk, rows * (rated * self.c + erase * self.d)
        building = (2 + erase + decay) * table + erase * rows * self.d
        solving = (1 + erase + decay) * table + decay * rows * self.d + 3 * erase * rows * (self.c + self.d)
        tables = (2 + decay + (first or rows > chunk)) * state  # the old one, what is left of it, a product, the sum
        reading = written + 2 * decay * rows * self.d + (1 + erase + decay) * table + rows * self.c
        reading += max(tables, rows * self.c + state)  # at the end the outputs of all chunks are joined
        return n * made + rows * (2 * self.d + self.c) + max(building, solving, reading)
