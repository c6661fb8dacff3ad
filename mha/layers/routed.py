"""Each query chooses some of the heads, and only those work for it.

:Taught in: route.
"""

from collections.abc import Iterable
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha.checks import checked
from mha.functional.attention import NOTHING, Edits
from mha.functional.dispatch import read_where
from mha.functional.masks import check_mask
from mha.layers.base import Heads
from mha.layers.cache import KeyValueCache, MemoryCache
from mha.layers.cost import Cost, Part, count_linear, count_weights
from mha.layers.positions import RelativePositions
from mha.layers.routers import HeadRouter, NormRouter

GATES = ("released", "paper", "norms")


@checked
def make_router(d_model: int, heads: int, shared: int, chosen: int, gates: str) -> HeadRouter | NormRouter:
    """Make the router that ``gates`` names: "released", "paper" or "norms".

    :Raises: ValueError where no head works, or some heads never could, or more are to be chosen than are routed.
    """
    routed = heads - shared
    if gates not in GATES:
        raise ValueError(f"gates = {gates!r}: give one of {GATES}")
    if not 0 <= shared <= heads or not 0 <= chosen <= routed:
        raise ValueError(
            f"shared = {shared}, chosen = {chosen} of {heads} heads: take 0 to {heads} shared heads, and choose at "
            f"most as many as are routed, heads − shared = {routed}; shared heads do not count as chosen"
        )
    if chosen == 0 and routed:
        which = "no head is active" if shared == 0 else f"heads {shared} to {heads - 1} could never be active"
        raise ValueError(f"shared = {shared}, chosen = 0 of {heads} heads: {which}. Choose at least 1, or share all")
    by_norm = gates == "norms"
    split = shared, routed, chosen
    return NormRouter(*split) if by_norm else HeadRouter(d_model, *split, released=gates == "released")


@checked
def count_router(router: nn.Module, queries: int) -> Cost:
    """Count the router's products for so many queries."""
    linears = {name: part for name, part in router.named_children() if isinstance(part, nn.Linear)}
    parts = {name: count_linear(linear, queries) for name, linear in linears.items()}
    weights = count_weights(*linears.values())
    return Cost(weights, parts, sum(p.nbytes for p in router.parameters()), 0, 0)


@checked
def leave_out(cost: Cost, shared: int, chosen: int, heads: int, linear: nn.Linear, queries: int) -> Cost:
    """Take away what :func:`read_where` does not compute, where each query has ``shared + chosen`` of the heads."""
    numbers = queries * linear.out_features // heads  # of the queries of one head
    unread = numbers * (heads - shared - chosen) * linear.weight.element_size()
    apart = 0 if shared + chosen == heads else chosen
    heads_more = max(0, 3 * apart - heads)  # copies of queries and reads, at the fullest moment
    parts = dict(cost.parts)
    for name in ("scores", "read"):
        parts[name] = Part(parts[name].flops * (shared + chosen) // heads, parts[name].moved - unread)
    return replace(cost, parts=parts, peak=cost.peak + heads_more * numbers * linear.weight.element_size())


class RoutedAttention(Heads):
    """Attend with the heads that a router chooses for each query, and weigh what they read: a mixture of heads (MoH).

    The first ``shared`` heads always work; of the others each query chooses ``chosen``. A query takes nothing from a
    head that it did not choose, and next to nothing is computed there (:mod:`mha.functional.dispatch` says what);
    keys and values of all heads are needed, by other queries. Short inputs, and edits of scores or weights, compute
    all heads and multiply by gates of 0: the numbers are the same. ``gates`` names the router: "released" and "paper"
    learn (:class:`mha.layers.routers.HeadRouter`), "norms" has no weights (:class:`mha.layers.routers.NormRouter`).

    :Plain when: ``chosen`` is heads − ``shared`` and the gates are "norms", or "released" with all router weights zero.
        In the paper's units the gates sum to 1, and the layer is never plain.
    :Changes: each head's read is multiplied by its gate before ``W_o``: the sum over heads becomes a weighted one.
    :Costs: (heads + 2) · d_model more weights, or none. Of the operations between queries and keys the share
        (shared + chosen) / heads remains, and what fills up heads that fewer queries chose, which :meth:`cost` does not
        know beforehand; the projections stay whole.
    :Shapes: as :class:`mha.MultiHeadAttention`. Watch "gates" (b, h, i) and "probabilities" of the routed heads
        (b, heads − shared, i); "heads" are seen behind their gates.
    :Raises: ValueError where no head works, more heads are to be chosen than are routed, or some never could be, and
        as MultiHeadAttention.
    :Source: Jin et al. 2024, section 3.2; section 3.3 for "norms".
    :Differs from the released code: that computes all heads and multiplies those not chosen by 0.
    :Taught in: route.
    """

    skip_from = 2**18  # scores of one head from which leaving queries out is faster than computing all of them

    @checked
    def __init__(
        self,
        d_model: int,
        heads: int,
        shared: int,
        chosen: int,
        *,
        gates: str = "released",
        d_head: int | None = None,
        kdim: int | None = None,
        vdim: int | None = None,
        bias: bool | str = True,
        dropout: float = 0.0,
        positions: RelativePositions | None = None,
    ) -> None:
        """Make the layer; keywords other than ``gates`` are those of :class:`mha.Heads`."""
        super().__init__(
            d_model, heads, d_head=d_head, kdim=kdim, vdim=vdim, bias=bias, dropout=dropout, positions=positions
        )
        self.router = make_router(d_model, heads, shared, chosen, gates)
        self.shared, self.chosen = shared, chosen

    @classmethod
    @checked
    @torch.no_grad()
    def from_plain(
        cls, layer: Heads, shared: int = 1, chosen: int | None = None, *, gates: str = "released"
    ) -> "RoutedAttention":
        """Make a routed layer with the weights of a plain one; by default all heads work and it is the same.

        A learned router begins at zero. Where fewer heads are chosen than routed it would have nothing to choose by:
        there ``W_r`` keeps its random start.
        """
        chosen = layer.heads - shared if chosen is None else chosen
        routed = cls(**layer.settings(), shared=shared, chosen=chosen, gates=gates).to(layer.W_q.weight)
        for name, weight in routed.named_parameters():
            if not name.startswith("router."):
                weight.copy_(layer.get_parameter(name))
            elif name != "router.W_r.weight" or chosen == layer.heads - shared:
                weight.zero_()
        return routed.train(layer.training)

    def forward(
        self,
        query: Float[Tensor, "b i m"],
        key: Float[Tensor, "b j mk"] | None = None,
        value: Float[Tensor, "b j mv"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        *,
        is_causal: bool = False,
        cache: KeyValueCache | MemoryCache | None = None,
    ) -> Float[Tensor, "b i m"]:
        """Project, route, attend, merge."""
        q, k, v = self.project(query, key, value, mask, is_causal=is_causal, cache=cache)
        gates = self.router(query, q)
        return self.merge(self.attend(q, k, v, mask, gates=gates, is_causal=is_causal))

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
        gates: Tensor | None = None,
    ) -> Tensor:
        """Read with the heads whose gate (b, h, i) is not 0, and multiply by the gates: (b, h, i, d).

        Without gates every head counts fully.
        """
        if mask is not None:
            check_mask(mask, (*q.shape[:3], k.shape[2]), q.device)
        edits = self.edits(edits)
        if gates is not None and not (edits or explicit or scale) and self._skips(q.shape[2], k.shape[2]):
            dropout = self.dropout if self.training else 0.0
            return self.at_heads(read_where(gates, q, k, v, mask, is_causal=is_causal, dropout=dropout))
        read = self.read(q, k, v, mask, is_causal=is_causal, scale=scale, explicit=explicit, edits=edits)
        return self.at_heads(read if gates is None else read * gates[..., None])

    def _skips(self, i: int, j: int) -> bool:
        """Say whether queries are left out, for i queries and j keys."""
        return i * j >= self.skip_from

    @checked
    def cost(self, b: int, i: int, j: int | None = None, *, fresh: int | None = None, stored: bool = False) -> Cost:
        """Count one call on paper, with the router; see :meth:`mha.Heads.cost`."""
        cost = super().cost(b, i, j, fresh=fresh, stored=stored)
        stored = stored or getattr(self.positions, "bias", None) is not None
        if not stored and self._skips(i, i if j is None else j):
            cost = leave_out(cost, self.shared, self.chosen, self.heads, self.W_q, b * i)
        return cost + count_router(self.router, b * i)

    @checked
    def take_heads(self, heads: Iterable[int]) -> "RoutedAttention":
        """Refuse: the router weighs the heads against each other."""
        raise ValueError(
            f"heads {list(heads)} cannot be taken out of RoutedAttention: its router weighs all heads against each "
            "other, so the gates of those that stay would change. Take heads of the plain layer, then from_plain"
        )
