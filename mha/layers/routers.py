"""A router of heads: for every query it says which heads work for it, and how much each one counts.

:Taught in: route.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha.checks import check_like_weights, check_no_nan, check_tensor, check_whole, checked
from mha.layers.hooks import Tap
from mha.layers.projections import is_plain


def choose(scores: Float[Tensor, "b h i"], count: int) -> Bool[Tensor, "b h i"]:
    """Mark the ``count`` heads with the highest scores, for each query; among equal scores anything may be marked.

    :param scores: of each head for each query.
    :param count: how many heads each query gets, at least 1.
    :Raises: ValueError where there are fewer heads than are to be chosen.
    :Taught in: route.
    """
    check_tensor(3, scores=scores)
    check_no_nan("scores", scores)
    check_whole(None, count=count)
    if not 0 < count <= scores.shape[1]:
        raise ValueError(f"count = {count}: there are {scores.shape[1]} heads, choose 1 to {scores.shape[1]}")
    return _best(scores, count)


def _best(scores: Tensor, count: int) -> Tensor:
    best = scores.topk(count, dim=1).indices
    return torch.zeros_like(scores, dtype=torch.bool).scatter(1, best, 1)


@checked
def balance_loss(probabilities: Float[Tensor, "b r i"], gates: Float[Tensor, "b h i"]) -> Float[Tensor, ""]:
    """Say how unevenly the routed heads are used: the sum over them of mean probability × share of queries served.

    Both inputs come from a watched layer: ``with mha.watch(layer, "probabilities", "gates", detach=False) as seen``,
    then add β · ``balance_loss(seen.probabilities, seen.gates)`` to the loss. Even use of E heads, K for each query,
    gives K/E, and uneven use usually more. The shares are counts and have no gradient; the probabilities have one.

    :param probabilities: of the routed heads, before the choice, (b, r, i).
    :param gates: of all heads, the routed ones last, (b, h, i).
    :Raises: ValueError where the two do not belong together.
    :Source: Jin et al. 2024, equations 7 and 8, with β = 0.01.
    :Differs from the released code: it is E times as large there, in training mode only, and the mean over layers.
    :Taught in: route.
    """
    b, r, i = probabilities.shape
    if gates.shape[0] != b or gates.shape[1] < r or gates.shape[2] != i:
        raise ValueError(
            f"probabilities {tuple(probabilities.shape)} and gates {tuple(gates.shape)} come from different calls: "
            "one row for each routed head, and one for each head, of the same queries"
        )
    served = (gates[:, gates.shape[1] - r :] != 0).to(probabilities)
    return (probabilities.mean((0, 2)) * served.mean((0, 2))).sum()


def check_routed(x: Tensor, q: Tensor, linear: nn.Module | None) -> None:
    """Refuse tokens that the router was not built for, and queries of other tokens."""
    check_tensor(3, x=x)
    check_tensor(4, q=q)
    if (q.shape[0], q.shape[2]) != x.shape[:2]:
        raise ValueError(f"x has shape {tuple(x.shape)}, but the queries q have {tuple(q.shape)}: they must be of x")
    if isinstance(linear, nn.Linear):
        check_like_weights("x", x, linear.weight, linear)
        if x.shape[2] != linear.in_features:
            raise ValueError(
                f"x has shape {tuple(x.shape)}, but this router was built for {linear.in_features} channels"
            )


def check_queries(q: Tensor, heads: int) -> None:
    """Refuse queries of another number of heads."""
    check_tensor(4, q=q)
    if q.shape[1] != heads:
        raise ValueError(f"q has shape {tuple(q.shape)}, but this router was built for {heads} heads")


def check_split(shared: int, routed: int, chosen: int) -> None:
    """Refuse numbers of heads of which none works, or some never could."""
    check_whole(0, shared=shared, routed=routed, chosen=chosen)
    if not bool(routed) <= chosen <= routed or shared + chosen == 0:
        raise ValueError(f"shared = {shared}, routed = {routed}, chosen = {chosen}: choose 1 to {routed} routed heads")


class HeadRouter(nn.Module):
    """Route in two stages: how much the shared and the routed heads count together, then each head of both groups.

    Shared heads always work; of the routed ones each query chooses ``chosen``. Watch the places "probabilities" (of
    all routed heads, before the choice) and "gates" (of all heads, 0 where a head does not work).

    :Plain when: all routed heads are chosen, all parameters are zero, and ``released``: then every gate is 1.
    :Costs: d_model parameters per head, and 2 · d_model for the first stage.
    :Shapes: x (b, i, d_model); gates (b, h, i), the shared heads first.
    :Source: Jin et al. 2024, equations 5 and 6.
    :Differs from the paper: ``released``, as in the authors' code, measures a gate in heads: the chosen probabilities
        are divided by their sum and multiplied by their number, those of the shared heads by theirs, the first stage
        by 2. With ``chosen`` = 1 the division leaves nothing of ``W_r`` in the gate.
    :Differs from the released code: a single shared head is no case of its own.
    :Taught in: route.
    """

    @checked
    def __init__(self, d_model: int, shared: int, routed: int, chosen: int, *, released: bool = True) -> None:
        """Make the parameters; a group without heads has none, and then there is no first stage either.

        :param d_model: the width of a token.
        :param shared: how many heads always work.
        :param routed: how many others there are.
        :param chosen: how many of these each query chooses.
        :param released: whether gates are measured in heads, as in the authors' code; in the paper they sum to 1.
        """
        super().__init__()
        check_whole(d_model=d_model)
        check_split(shared, routed, chosen)
        self.chosen, self.released = chosen, released
        self.W_s = nn.Linear(d_model, shared, bias=False) if shared else None
        self.W_r = nn.Linear(d_model, routed, bias=False) if routed else None
        self.W_h = nn.Linear(d_model, 2, bias=False) if shared and routed else None
        self.at_probabilities, self.at_gates = Tap(), Tap()

    def forward(self, x: Float[Tensor, "b i m"], q: Float[Tensor, "b h i d"]) -> Float[Tensor, "b h i"]:
        """Return the gates of all heads.

        :param x: the layer's input at the queries.
        :param q: the queries; they are not asked.
        """
        check_routed(x, q, self.W_s or self.W_r)
        scores = self._scores(x)
        groups = [self._share(next(scores))] if self.W_s is not None else []
        groups += [self._route(next(scores))] if self.W_r is not None else []
        if self.W_h is not None:
            balance = next(scores).softmax(1) * (2 if self.released else 1)
            groups = [balance[:, n : n + 1] * gates for n, gates in enumerate(groups)]
        return self.at_gates(torch.cat(groups, 1))

    def _scores(self, x: Tensor) -> Iterator[Tensor]:
        """The scores of ``W_s``, ``W_r`` and ``W_h``, of those that there are, from one product: three are slower."""
        parts = [part for part in (self.W_s, self.W_r, self.W_h) if part is not None]
        if not all(is_plain(part) for part in parts):  # an adapter, or quantized
            return (part(x).mT for part in parts)
        weights = [part.weight for part in parts]
        return iter(F.linear(x, torch.cat(weights)).mT.split([len(weight) for weight in weights], 1))

    def _share(self, scores: Tensor) -> Tensor:
        gates = scores.softmax(1)
        return gates * gates.shape[1] if self.released else gates

    def _route(self, scores: Tensor) -> Tensor:
        probabilities = self.at_probabilities(scores.softmax(1))
        kept, heads = probabilities.topk(self.chosen, dim=1)
        kept = kept * (self.chosen / kept.sum(1, keepdim=True)) if self.released else kept
        return torch.zeros_like(probabilities).scatter(1, heads, kept)


class NormRouter(nn.Module):
    """Choose the routed heads with the longest queries, and let every head that works count in full.

    It has no parameters, and turns a trained layer into one that routes. A gate is 0 or 1; backward the gates of the
    chosen heads have the slope of their probabilities.

    :Plain when: all routed heads are chosen.
    :Source: Jin et al. 2024, section 3.3, equations 9 and 10.
    :Differs from the paper: heads that do not work pass no gradient to their probability, because nothing was read.
    :Differs from the released code: the lengths' standard deviation, by which they are divided, passes no gradient, so
        that queries of equal length, such as zeros, do no harm; a single routed head is allowed.
    :Taught in: route.
    """

    @checked
    def __init__(self, shared: int, routed: int, chosen: int) -> None:
        """Remember the numbers of heads.

        :param shared: how many heads always work.
        :param routed: how many others there are.
        :param chosen: how many of these each query chooses.
        """
        super().__init__()
        check_split(shared, routed, chosen)
        self.shared, self.routed, self.chosen = shared, routed, chosen
        self.at_probabilities, self.at_gates = Tap(), Tap()

    def forward(self, x: Float[Tensor, "b i m"], q: Float[Tensor, "b h i d"]) -> Float[Tensor, "b h i"]:
        """Return the gates of all heads.

        :param x: the layer's input at the queries; it is not asked.
        :param q: the queries. Rotated ones are as long as before.
        """
        check_queries(q, self.shared + self.routed)
        gates = torch.ones_like(q[..., 0])
        if self.routed:
            lengths = q[:, self.shared :].norm(dim=-1)
            probabilities = self.at_probabilities(_standardize(lengths).softmax(1))
            gates = torch.cat([gates[:, : self.shared], self._hard(probabilities)], 1)
        return self.at_gates(gates)

    def _hard(self, probabilities: Tensor) -> Tensor:
        return _best(probabilities, self.chosen) * (1 + (probabilities - probabilities.detach()))  # exactly 0 or 1


def _standardize(lengths: Tensor) -> Tensor:
    """Measure lengths in standard deviations over the heads, from their mean, which changes no softmax."""
    apart = lengths - lengths.mean(1, keepdim=True)
    spread = apart.detach().square().sum(1, keepdim=True).div(max(1, lengths.shape[1] - 1)).sqrt()
    return apart / spread.clamp_min(torch.finfo(lengths.dtype).tiny)
