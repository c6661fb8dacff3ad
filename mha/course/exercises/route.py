"""Checkers: gates in heads, the balance of the routed heads, attention for chosen queries only."""

import torch
from torch import Tensor

from mha.course.exercises.exercise import Exercise
from mha.course.exercises.legal import Draw
from mha.functional.attention import attend
from mha.layers.routers import balance_loss, choose


def _random(*shape: int, seed: int = 16) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _routes() -> list[tuple]:
    """Scores of the routed heads (b, r, i), and how many of them each query chooses."""
    return [(_random(1, 3, 2), 2), (_random(2, 5, 4, seed=1), 2), (_random(2, 6, 5, seed=2), 3)]


def _gates(scores: Tensor, chosen: int, *, axis: int = 1, divide=True, times: float | int | None = None) -> Tensor:
    kept = scores.softmax(axis) * choose(scores, chosen)
    kept = kept / kept.sum(1, keepdim=True) if divide else kept
    return kept * (chosen if times is None else times)


def _for_all(scores: Tensor, chosen: int) -> Tensor:
    """Choose by the mean score: the same heads for all queries."""
    kept = scores.softmax(1) * choose(scores.mean(2, keepdim=True), chosen)
    return chosen * kept / kept.sum(1, keepdim=True)


def _lowest(scores: Tensor, chosen: int) -> Tensor:
    kept = scores.softmax(1) * choose(-scores, chosen)
    return chosen * kept / kept.sum(1, keepdim=True)


def _any_route(draw: Draw) -> tuple:
    routed = draw.whole(1, 6)
    scores = draw.normal(draw.whole(1, 3), routed, draw.whole(1, 5), scales=(1.0, 5.0, 0.1))
    return scores, draw.whole(1, routed)


check_gates = Exercise(
    name="gates in heads",
    solution=_gates,
    cases=_routes,
    legal=_any_route,
    mistakes={
        "the softmax runs over the queries, not over the heads": lambda s, n: _gates(s, n, axis=2),
        "the heads that were not chosen keep their gates": lambda s, n: n * s.softmax(1),
        "the chosen probabilities are not divided by their sum": lambda s, n: _gates(s, n, divide=False),
        "neither divided by the sum nor counted in heads: these are the paper's units": (
            lambda s, n: _gates(s, n, divide=False, times=1)
        ),
        "the gates sum to 1, not to the number of chosen heads": lambda s, n: _gates(s, n, times=1),
        "multiplied by the number of all routed heads": lambda s, n: _gates(s, n, times=s.shape[1]),
        "the chosen heads all count the same": lambda s, n: choose(s, n).to(s),
        "one head too few is chosen": lambda s, n: _gates(s, n - 1, times=n),
        "the heads with the lowest scores are chosen": _lowest,
        "the same heads are chosen for all queries": _for_all,
        "no softmax: the scores themselves are divided by their sum": lambda s, n: (
            n * s * choose(s, n) / (s * choose(s, n)).sum(1, keepdim=True)
        ),
        "a sigmoid instead of a softmax": lambda s, n: (
            n * s.sigmoid() * choose(s, n) / (s.sigmoid() * choose(s, n)).sum(1, keepdim=True)
        ),
        "the scores that were not chosen are 0 before the softmax, an ordinary score": lambda s, n: (
            n * (s * choose(s, n)).softmax(1)
        ),
    },
    next_step="Next: are the heads used evenly?",
)


def _used() -> list[tuple]:
    """Probabilities and gates of the routed heads, both (b, r, i)."""
    return [(scores.softmax(1), _gates(scores, chosen)) for scores, chosen in _routes()]


def _served(gates: Tensor) -> Tensor:
    return (gates != 0).to(gates)


def _means(p: Tensor, f: Tensor) -> Tensor:
    return p.mean((0, 2)) * f.mean((0, 2))


def _any_use(draw: Draw) -> tuple:
    shape = draw.whole(1, 3), draw.whole(1, 5), draw.whole(1, 5)
    gates = draw.uniform(*shape, low=1e-5, high=draw.one_of([3.0, 1e-3]))
    return draw.normal(*shape).softmax(1), gates * draw.yes_or_no(*shape, share=draw.one_of([0.2, 0.6, 1.0, 0.0]))


check_balance = Exercise(
    name="the balance of the heads",
    solution=balance_loss,
    cases=_used,
    gradients=True,
    legal=_any_use,
    mistakes={
        "the product is taken for each query, before the means": lambda p, g: (p * _served(g)).mean((0, 2)).sum(),
        "the gates are averaged, but the queries should be counted": lambda p, g: _means(p, g).sum(),
        "the sum runs over the queries: a longer sequence costs more": (
            lambda p, g: (p.sum((0, 2)) * _served(g).sum((0, 2))).sum()
        ),
        "the mean over the heads is taken, not the sum": lambda p, g: _means(p, _served(g)).mean(),
        "multiplied by the number of routed heads: the units of the released code": (
            lambda p, g: p.shape[1] * _means(p, _served(g)).sum()
        ),
        "the counts are squared: none of this has a gradient": lambda p, g: _means(_served(g), _served(g)).sum(),
        "the probabilities are squared: the choice is not used": lambda p, g: _means(p, p).sum(),
        "each sequence is balanced for itself": lambda p, g: (p.mean(2) * _served(g).mean(2)).sum(1).mean(),
        "the largest share is taken, not the sum over the heads": lambda p, g: _means(p, _served(g)).max(),
        "the chosen queries are summed: each of the two factors is a mean": lambda p, g: (
            p.mean((0, 2)) * _served(g).sum((0, 2))
        ).sum(),
        "the probabilities are multiplied by the gates, query by query": lambda p, g: (p * g).mean((0, 2)).sum(),
    },
    next_step="Next: attention for the chosen queries only.",
)


def _heads() -> list[tuple]:
    """Queries, keys and values of one head (n, d), and a gate for each query (n,), some of them 0."""
    cases = []
    for n, d, zeros in ((3, 2, [1]), (6, 3, [0, 2, 3]), (9, 4, [1, 2, 5, 8])):
        gates = _random(n, seed=n).abs() + 0.5
        gates[zeros] = 0
        cases.append((*(_random(n, d, seed=s) for s in (1, 2, 3)), gates))
    return cases


def _read(q: Tensor, k: Tensor, v: Tensor, gates: Tensor, *, scale=None, past=True) -> Tensor:
    """Compute all and multiply: the numbers are those of the solution, the gradients of closed gates are not."""
    return gates[:, None] * attend(q, k, v, is_causal=past, scale=scale)


def _gathered(q: Tensor, k: Tensor, v: Tensor, gates: Tensor) -> Tensor:
    rows, out = gates.nonzero()[:, 0], torch.zeros_like(q)
    out[rows] = gates[rows, None] * attend(q[rows], k, v, torch.arange(len(k)) <= rows[:, None])
    return out


def _by_rank(q: Tensor, k: Tensor, v: Tensor, gates: Tensor) -> Tensor:
    """Hide by the rank among the chosen queries, not by the position in the sequence."""
    rows = gates.nonzero()[:, 0]
    see = torch.arange(len(k)) <= torch.arange(len(rows))[:, None]
    out = torch.zeros_like(q)
    out[rows] = gates[rows, None] * attend(q[rows], k, v, see)
    return out


def _keys_too(q: Tensor, k: Tensor, v: Tensor, gates: Tensor) -> Tensor:
    out, rows = torch.zeros_like(q), gates.nonzero()[:, 0]
    out[rows] = _read(q[rows], k[rows], v[rows], gates[rows])
    return out


def _in_front(q: Tensor, k: Tensor, v: Tensor, gates: Tensor) -> Tensor:
    rows, right = gates.nonzero()[:, 0], _read(q, k, v, gates)
    return torch.cat([right[rows], torch.zeros_like(q[len(rows) :])])


def _any_head(draw: Draw) -> tuple:
    n, d = draw.whole(1, 7), draw.whole(1, 4)
    gates = draw.uniform(n, low=1e-3, high=2.0) * draw.yes_or_no(n, share=draw.one_of([0.2, 0.5, 1.0]))
    gates[draw.integer(0, n - 1)] = 0.7  # one at least
    return draw.normal(n, d, scales=(1.0, 5.0)), draw.normal(n, d), draw.normal(n, d), gates


check_read = Exercise(
    name="attention for the chosen queries",
    solution=_gathered,
    cases=_heads,
    gradients=True,
    legal=_any_head,
    room=lambda q, k, v, gates: max(q.numel(), int((gates != 0).sum()) * len(k)),
    too_large="There are scores of queries without a gate: gather the queries with one first, q[rows].",
    mistakes={
        "the future is hidden by the rank among the chosen queries, not by the position in the sequence": _by_rank,
        "keys and values of the other tokens are left out as well": _keys_too,
        "the future is not hidden": lambda q, k, v, g: _read(q, k, v, g, past=False),
        "the results are in the first rows, not in the rows of their queries": _in_front,
        "the gates are forgotten": lambda q, k, v, g: _read(q, k, v, (g != 0).to(g)),
        "the gates multiply the queries, before the softmax": (
            lambda q, k, v, g: _read(g[:, None] * q, k, v, (g != 0).to(g))
        ),
        "the scores are not divided by √d": lambda q, k, v, g: _read(q, k, v, g, scale=1.0),
        "the queries that were not chosen get an output too": lambda q, k, v, g: _read(q, k, v, g + (g == 0).to(g)),
        "the gates are divided by their sum": lambda q, k, v, g: _read(q, k, v, g / g.sum()),
        "the gates multiply the values: a gate belongs to a query": lambda q, k, v, g: _read(
            q, k, g[:, None] * v, (g != 0).to(g)
        ),
    },
    next_step="In the next chapter heads are mixed instead of chosen.",
)
