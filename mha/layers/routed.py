"""Each query chooses some of the heads, and only those work for it.

:Taught in: route.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from mha.checks import checked
from mha.functional import devices
from mha.functional.core import NO_CHANGES, Changes
from mha.functional.dispatch import read_where
from mha.layers.cost import Cost, Part, count_linear, count_weights
from mha.layers.multi_head import Heads
from mha.layers.positions import RelativePositions
from mha.layers.routers import HeadRouter, NormRouter

ROUTERS = ("released", "paper", "norms")


@checked
def make_router(d_model: int, heads: int, shared: int, chosen: int, gates: str) -> HeadRouter | NormRouter:
    """Make the router that ``gates`` names.

    :param d_model: the width of a token.
    :param heads: how many heads there are.
    :param shared: how many of them always work.
    :param chosen: how many of the others each query chooses.
    :param gates: "released", "paper" or "norms".
    :Raises: ValueError where no head works, or some heads never could, or more are to be chosen than are routed.
    """
    routed = heads - shared
    if gates not in ROUTERS:
        raise ValueError(f"gates = {gates!r}: give one of {ROUTERS}")
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
    """Count the router's products for so many queries.

    :param router: a router of heads.
    :param queries: how many there are, over the whole batch.
    """
    linears = {name: part for name, part in router.named_children() if isinstance(part, nn.Linear)}
    parts = {name: count_linear(linear, queries) for name, linear in linears.items()}
    weights = count_weights(*linears.values())
    return Cost(weights, parts, sum(p.nbytes for p in router.parameters()), 0, 0)


@checked
def leave_out(cost: Cost, shared: int, chosen: int, heads: int, linear: nn.Linear, queries: int) -> Cost:
    """Take away what :func:`read_where` does not compute, where each query has ``shared + chosen`` of the heads.

    :param cost: the cost of the same layer with all heads at work.
    :param shared: how many heads always work.
    :param chosen: how many of the others each query chooses.
    :param heads: how many heads there are.
    :param linear: the projection that makes the queries.
    :param queries: how many there are, over the whole batch.
    """
    numbers = queries * linear.out_features // heads  # of the queries of one head
    unread = numbers * (heads - shared - chosen) * linear.weight.element_size()
    apart = 0 if shared + chosen == heads else chosen
    heads_more = max(0, 3 * apart - heads)  # copies of queries and head outputs, at the fullest moment
    parts = dict(cost.parts)
    for name in ("scores", "read"):
        parts[name] = Part(parts[name].flops * (shared + chosen) // heads, parts[name].moved - unread)
    return replace(cost, parts=parts, peak=cost.peak + heads_more * numbers * linear.weight.element_size())


class RoutedAttention(Heads):
    """Attend with a mixture of heads (MoH): a router chooses heads for each query, and weights their outputs.

    The first ``shared`` heads always work; of the others each query chooses ``chosen``. A query takes nothing from a
    head that it did not choose, and next to nothing is computed there (``mha.functional.dispatch`` says what);
    keys and values of all heads are needed, by other queries. Short inputs, and edits of scores or weights, compute
    all heads and multiply by gates of 0: the numbers are the same. ``gates`` names the router: "released" and "paper"
    learn (:class:`mha.layers.routers.HeadRouter`), "norms" has no parameters (:class:`mha.layers.routers.NormRouter`).

    :Plain when: ``chosen`` is heads − ``shared`` and the gates are "norms", or "released" with all router parameters
        zero. In the paper's units the gates sum to 1, and the layer is never plain.
    :Changes: each head output is multiplied by its gate before ``W_o``: the sum over heads becomes a weighted one.
    :Costs: (heads + 2) · d_model more parameters, or none. Of the FLOPs between queries and keys the share
        (shared + chosen) / heads remains, and the padding of heads that fewer queries chose, which :meth:`cost` does
        not know beforehand; the projections stay whole.
    :Shapes: as :class:`mha.MultiHeadAttention`. Watch "gates" (b, h, i) and "probabilities" of the routed heads
        (b, heads − shared, i); "heads" are seen after their gates.
    :Raises: ValueError where no head works, more heads are to be chosen than are routed, or some never could be, and
        as MultiHeadAttention.
    :Source: Jin et al. 2024, section 3.2; section 3.3 for "norms".
    :Differs from the released code: that computes all heads and multiplies those not chosen by 0.
    :Taught in: route.
    """

    inseparable = "the router weighs all heads against each other, so the gates of those that stay would change"
    skip_from = devices.LEAVE_OUT_FROM  # scores of one head from which leaving out is faster than computing all
    skip_from_on_card = devices.LEAVE_OUT_FROM_ON_A_CARD

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
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Make the layer; the other keywords are those of :class:`mha.Heads`.

        :param shared: how many heads always work; they come first.
        :param chosen: how many of the others each query chooses.
        :param gates: "released", "paper" or "norms": the router; the first unless given.
        """
        like: Any = {"device": device, "dtype": dtype}
        super().__init__(
            d_model, heads, d_head=d_head, kdim=kdim, vdim=vdim, bias=bias, dropout=dropout, positions=positions, **like
        )
        self.router = make_router(d_model, heads, shared, chosen, gates).to(self.W_q.weight)
        self.shared, self.chosen = shared, chosen

    def _gates(self, query: Tensor, q: Tensor) -> Tensor:
        """Let the router say how much each head counts for each query, and which do not work at all."""
        return self.router(query, q)[..., None]

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
        """Leave out the queries whose gate is 0, where nobody watches and that is faster; else multiply by 0."""
        needs_all = explicit or scale is not None or bool(self._with_watchers(changes or NO_CHANGES))
        if gates is None or needs_all or not self._skips(q.shape[2], k.shape[2], q):
            return super()._attend(
                q, k, v, mask, is_causal, gates=gates, scale=scale, explicit=explicit, changes=changes
            )
        dropout = self.dropout if self.training else 0.0
        return self.at_heads(read_where(gates[..., 0], q, k, v, mask, is_causal=is_causal, dropout=dropout))

    def _skips(self, i: int, j: int, x: Tensor) -> bool:
        """Say whether queries are left out, for i queries and j keys on the device of x.

        It waits for a GPU, because how many queries ask a head decides what is computed next. So a graph that is
        compiled for one computes all heads.
        """
        if torch.compiler.is_exporting():
            return False
        if devices.is_card(x):
            return not torch.compiler.is_compiling() and i * j >= self.skip_from_on_card
        return i * j >= self.skip_from

    @classmethod
    def plain_settings(cls, layer: Heads) -> dict[str, Any]:
        """Let one head be shared, and all others be chosen."""
        return layer.settings() | {"shared": 1}

    @classmethod
    @checked
    def from_plain(cls, layer: Heads, shared: int = 1, chosen: int | None = None, **settings: Any) -> "RoutedAttention":
        """Make a routed layer with the parameters of a plain one; by default all heads work and it is the same.

        A learned router begins at zero. Where fewer heads are chosen than routed it would have nothing to choose by:
        there ``W_r`` keeps its random initialization.

        :param shared: how many heads always work.
        :param chosen: how many of the others each query chooses; all unless given.
        :param settings: other keywords of the constructor.
        """
        chosen = layer.heads - shared if chosen is None else chosen
        return super().from_plain(layer, shared=shared, chosen=chosen, **settings)

    def _become(self, layer: Heads) -> None:
        """Let a learned router begin at zero, where it has nothing to choose."""
        for name, weight in self.named_parameters():
            if not name.startswith("router."):
                weight.copy_(layer.get_parameter(name))
            elif name != "router.W_r.weight" or self.chosen == self.heads - self.shared:
                weight.zero_()

    @checked
    def cost(self, b: int, i: int, j: int | None = None, *, fresh: int | None = None, stored: bool = False) -> Cost:
        """Count one call on paper, with the router; see :meth:`mha.Heads.cost`."""
        cost = super().cost(b, i, j, fresh=fresh, stored=stored)
        stored = stored or getattr(self.positions, "bias", None) is not None
        if not stored and self._skips(i, i if j is None else j, self.W_q.weight):
            cost = leave_out(cost, self.shared, self.chosen, self.heads, self.W_q, b * i)
        return cost + count_router(self.router, b * i)
