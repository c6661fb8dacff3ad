"""Checkers: a score, the targets of induction, a null, what arrives."""

import torch
from torch import Tensor

from mha.course.exercises.exercise import Exercise
from mha.course.exercises.legal import Draw


def _random(*shape: int, seed: int = 9) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _weights(h: int, n: int, seed: int = 9) -> Tensor:
    """Causal weights with some heads that lean to the previous token."""
    scores = 1.5 * _random(h, n, n, seed=seed) + 2 * torch.eye(n).roll(-1, 1).double()
    return scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf).softmax(-1)


def _words(b: int, n: int, kinds: int, seed: int = 9) -> Tensor:
    return torch.randint(kinds, (b, n), generator=torch.Generator().manual_seed(seed))


def _agrees(looks: Tensor, right: Tensor) -> Tensor:
    return (looks == right).to(torch.float32).mean(-1)


def _previous(weights: Tensor) -> Tensor:
    return _agrees(weights[:, 1:].argmax(-1), torch.arange(weights.shape[1] - 1))


def _any_weights(draw: Draw) -> tuple:
    n = draw.whole(2, 9)
    scores = draw.normal(draw.whole(1, 4), n, n) + draw.one_of([0.0, 2.0, 9.0]) * torch.eye(n).roll(-1, 1)
    hidden = ~torch.ones(n, n, dtype=torch.bool).tril(draw.one_of([0, n]))  # not every model is causal
    return (scores.masked_fill(hidden, -torch.inf).softmax(-1),)


check_previous = Exercise(
    name="the previous-token score",
    solution=_previous,
    cases=lambda: [
        (_weights(2, 5),),
        (_weights(3, 9, seed=1),),
        (_weights(4, 20, seed=2),),
        (_random(2, 6, 6).softmax(-1),),
    ],
    legal=_any_weights,
    mistakes={
        "the first token counts as a miss: it has no token before it": lambda w: (
            (w[:, 1:].argmax(-1) == torch.arange(w.shape[1] - 1)).sum(-1) / w.shape[1]
        ),
        "looks at the token itself are counted": lambda w: _agrees(w[:, 1:].argmax(-1), torch.arange(1, w.shape[1])),
        "looks at the token two steps back are counted": lambda w: _agrees(
            w[:, 2:].argmax(-1), torch.arange(w.shape[1] - 2)
        ),
        "this is the mean weight on the previous token, not how often it is the largest": (
            lambda w: w.diagonal(-1, 1, 2).mean(-1)
        ),
        "argmax runs over queries, not over keys": lambda w: _agrees(
            w[:, 1:].argmax(1)[:, :-1], torch.arange(w.shape[1] - 1)
        ),
        "this is a number of queries, not a share": lambda w: _previous(w) * (w.shape[1] - 1),
        "all heads are averaged into one number": lambda w: _previous(w).mean().expand(len(w)),
    },
    next_step="Next: induction.",
)


def _induction(words: Tensor, *, shift: int = 1, upto: int = 0) -> Tensor:
    """Find keys ``shift`` tokens after a copy of the query; ``upto`` is the last key allowed, seen from the query."""
    b, n = words.shape
    same = words[:, :, None] == words[:, None]
    found = torch.zeros(b, n, n, dtype=torch.bool)
    found[:, :, shift:] = same[:, :, : n - shift]
    return found.tril(upto)


def _latest(found: Tensor) -> Tensor:
    """Keep the last True of each row."""
    later = found.flip(-1).cumsum(-1).flip(-1)
    return found & (later == 1)


def _before(words: Tensor) -> Tensor:
    """Find the token before an earlier copy."""
    same = (words[:, :, None] == words[:, None]).tril(-1)
    return torch.cat([same[:, :, 1:], torch.zeros_like(same[:, :, :1])], -1)


def _any_words(draw: Draw) -> tuple:
    return (draw.integers(0, draw.whole(0, 4), draw.whole(1, 3), draw.whole(1, 9)),)


check_induction = Exercise(
    name="the targets of induction",
    solution=_induction,
    cases=lambda: [(torch.tensor([[0, 1, 0]]),), (torch.tensor([[0, 0, 1, 0]]),), (_words(3, 12, 4),)],
    legal=_any_words,
    mistakes={
        "this marks the earlier copy itself, not the token after it": lambda w: _induction(w, shift=0, upto=-1),
        "this marks the copy and the token itself": lambda w: _induction(w, shift=0),
        "this marks the token before the earlier copy": _before,
        "this marks two tokens after the copy": lambda w: _induction(w, shift=2),
        "keys after the query are allowed: a language model cannot see them": lambda w: _induction(w, upto=99),
        "the query itself is left out, although it may follow a copy of itself": lambda w: _induction(w, upto=-1),
        "only the latest copy counts": lambda w: _latest(_induction(w)),
        "queries and keys are exchanged": lambda w: _induction(w).mT,
    },
    next_step="Next: what it must beat.",
)


def _untrained(h: int, n: int, seed: int) -> Tensor:
    scores = 3 * _random(h, n, n, seed=seed)
    return scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf).softmax(-1)


def _one_each(places: list[int]) -> Tensor:
    """Mark one right key for each query, none where the position is −1."""
    return torch.tensor(places)[:, None] == torch.arange(len(places))


def _nulls() -> list[tuple]:
    """A head wins the first, a distance of 3 the second, the distance 0 the third."""
    heads = _untrained(2, 12, 1)
    looks = heads.argmax(-1)
    mostly = torch.where(torch.arange(12) % 3 == 0, looks[1], looks[0])
    mostly[[1, 4]] = -1
    far = [-1, 0, 1, 0, 1, 4, 3, 6, -1, 6, 7]
    return [
        (heads, _one_each(mostly.tolist())),
        (_untrained(2, 11, 2), _one_each(far)),
        (_untrained(2, 8, 3), _one_each([0, 1, -1, 3, 4, 5, 2, 7])),
    ]


def _opponents(
    untrained: Tensor, truth: Tensor, *, steps: tuple = (0, 99), queries: Tensor | None = None, soft: bool = False
) -> tuple[Tensor, float]:
    """Give the scores of the untrained heads and of the best distance, with places for mistakes."""
    asked = truth.any(1) if queries is None else queries
    hits = truth[torch.arange(len(truth)), untrained.argmax(-1)].double()
    hits = (untrained * truth).sum(-1) if soft else hits
    shares = [truth.diagonal(-d).sum().item() / asked.sum().item() for d in range(*steps) if d < len(truth)]
    return hits[:, asked].mean(1), max(shares)


def _null(untrained: Tensor, truth: Tensor, **how) -> float:
    heads, distance = _opponents(untrained, truth, **how)
    return max(heads.max().item(), distance)


def _part(pick):
    return lambda untrained, truth: pick(*_opponents(untrained, truth))


def _any_rule(draw: Draw) -> tuple:
    n, heads = draw.whole(2, 9), draw.whole(1, 4)
    past = torch.ones(n, n, dtype=torch.bool).tril()
    weights = draw.normal(heads, n, n, scales=(3.0, 1.0)).masked_fill(~past, -torch.inf).softmax(-1)
    kind = draw.whole(0, 3)
    truth = draw.yes_or_no(n, n, share=draw.one_of([0.1, 0.3, 0.6])) & past
    truth = truth | (past.triu(1 - n + draw.whole(0, n - 1)).tril(0) & (kind == 1))
    looks = torch.arange(n) == weights[-1].argmax(-1)[:, None]
    truth = looks & draw.yes_or_no(n, 1, share=0.8) if kind == 2 else truth
    truth[draw.integer(0, n - 1), 0] = True  # one right key at least
    return weights, truth


check_null = Exercise(
    name="the null of a rule",
    solution=_null,
    cases=_nulls,
    legal=_any_rule,
    mistakes={
        "only the untrained heads are asked": _part(lambda heads, _: heads.max().item()),
        "only the distances are asked": _part(lambda _, distance: distance),
        "the smaller baseline is taken": _part(lambda heads, distance: min(heads.max().item(), distance)),
        "the untrained heads are averaged: the best one is the baseline": (
            _part(lambda heads, distance: max(heads.mean().item(), distance))
        ),
        "queries without a right key count as misses": lambda u, t: _null(
            u, t, queries=torch.ones(len(t), dtype=torch.bool)
        ),
        "the distance 0, the token itself, is left out": lambda u, t: _null(u, t, steps=(1, 99)),
        "only the distance 1 is tried": lambda u, t: _null(u, t, steps=(1, 2)),
        "this is the weight on the right key, not how often it is the largest": lambda u, t: _null(u, t, soft=True),
    },
    next_step="Next: which heads can be removed.",
)


def _arrives(weights: Tensor, v: Tensor, w_o: Tensor, *, blocks: Tensor | None = None) -> Tensor:
    h, _, d = v.shape
    blocks = w_o.unflatten(1, (h, d)) if blocks is None else blocks
    return weights * torch.einsum("hjd,mhd->hjm", v, blocks).norm(dim=-1)[:, None]


def _arrivals() -> list[tuple]:
    sizes = [(2, 3, 4, 2, 4), (2, 4, 4, 3, 6), (3, 2, 5, 2, 6)]  # h, i, j, d, m; m = h·d, so that w_o is square
    return [
        (_random(h, i, j, seed=1).softmax(-1), _random(h, j, d, seed=2), _random(m, h * d, seed=3))
        for h, i, j, d, m in sizes
    ]


def _any_arrivals(draw: Draw) -> tuple:
    heads, j, d = draw.whole(1, 4), draw.whole(1, 5), draw.whole(1, 4)
    w_o = draw.normal(draw.whole(1, 6), heads * d, scales=(1.0, 1e-3, 1e3))
    return draw.normal(heads, draw.whole(1, 5), j).softmax(-1), draw.normal(heads, j, d), w_o


check_arrives = Exercise(
    name="what arrives",
    solution=_arrives,
    cases=_arrivals,
    legal=_any_arrivals,
    mistakes={
        "the output projection is left out": lambda w, v, o: w * v.norm(dim=-1)[:, None],
        "the weight is left out": lambda w, v, o: _arrives(torch.ones_like(w), v, o),
        "w_o is read in rows: the blocks of the heads are columns": lambda w, v, o: _arrives(w, v, o.mT),
        "the columns of w_o are dealt out in turn: each head owns a run of d columns": (
            lambda w, v, o: _arrives(w, v, o, blocks=o.unflatten(1, (v.shape[2], len(v))).transpose(1, 2))
        ),
        "all heads go through the block of the first": (
            lambda w, v, o: _arrives(w, v, o, blocks=o[:, None, : v.shape[2]].expand(-1, len(v), -1))
        ),
        "the square root of the length is missing": lambda w, v, o: w * (_arrives(torch.ones_like(w), v, o) ** 2),
        "lengths are summed absolute values, not roots of squares": lambda w, v, o: (
            w * torch.einsum("hjd,mhd->hjm", v, o.unflatten(1, (len(v), -1))).abs().sum(-1)[:, None]
        ),
    },
    next_step="Arrived is not yet used.",
)
