"""Checkers: who owns which head, the term of one process, the time on paper, outputs that are joined."""

import torch
from torch import Tensor

from mha.course.exercises.exercise import Exercise
from mha.course.exercises.legal import Draw
from mha.course.exercises.plain import across_machines as plain
from mha.functional.attention import attend, merge_heads, split_heads


def _random(*shape: int, seed: int = 13) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


check_share = Exercise(**vars(plain.check_share))


def _layers() -> list[tuple]:
    """Tokens and four matrices; heads; rank; processes."""
    sizes = [(3, 8, 4, 1, 2), (5, 12, 6, 1, 3), (4, 16, 4, 0, 2), (2, 8, 4, 3, 4)]
    return [(_random(n, m), *(_random(m, m, seed=s) for s in range(4)), h, r, p) for n, m, h, r, p in sizes]


def _part(
    x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, heads: int, rank: int, processes: int, **how
) -> Tensor:
    """Return the term of one process, with arguments for the usual mistakes."""
    width = len(w_o) // processes
    mine = how.get("mine", slice(rank * width, (rank + 1) * width))
    count = how.get("count", heads // processes)
    q, k, v = (split_heads((x @ w[:, mine])[None], count) for w in (w_q, w_k, w_v))
    return merge_heads(attend(q, k, v, scale=how.get("scale")))[0] @ w_o[how.get("rows", mine)]


def _rows_for_columns(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, *rest: int) -> Tensor:
    return _part(x, w_q.T, w_k.T, w_v.T, w_o, *rest)


def _columns_of_w_o(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, *rest: int) -> Tensor:
    return _part(x, w_q, w_k, w_v, w_o.T, *rest)


def _uncut(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, heads: int, *rest: int) -> Tensor:
    return _part(x, w_q, w_k, w_v, w_o, heads, 0, 1)


def _any_layer(draw: Draw) -> tuple:
    processes = draw.whole(1, 4)
    heads = processes * draw.whole(1, 3)
    m = heads * draw.whole(1, 3)
    w_q, w_k, w_v, w_o = (draw.normal(m, m, scales=(0.5, 1.0)) for _ in range(4))
    return draw.normal(draw.whole(1, 5), m), w_q, w_k, w_v, w_o, heads, draw.integer(0, processes - 1), processes


check_part = Exercise(
    name="the term of one process",
    solution=_part,
    cases=_layers,
    legal=_any_layer,
    mistakes={
        "this is the whole output, not the term of one process": _uncut,
        "rows of w_q, w_k, w_v were taken: a head owns columns": _rows_for_columns,
        "columns of w_o were taken: a head owns rows": _columns_of_w_o,
        "the channels were cut into all `heads`: here are only `heads / processes`, each as wide as before": (
            lambda *a: _part(*a, count=next(n for n in range(a[5], 0, -1) if len(a[4]) // a[7] % n == 0))
        ),
        "all channels of this process became one wide head": lambda *a: _part(*a, count=1),
        "divided by the square root of the model's width, not of the head's": (
            lambda *a: _part(*a, scale=len(a[4]) ** -0.5)
        ),
        "the scale is forgotten": lambda *a: _part(*a, scale=1.0),
        "the channels were dealt out one by one: a head owns neighbors": (
            lambda *a: _part(*a, mine=slice(a[6], None, a[7]))
        ),
        "every process took the first channels: where does `rank` come in?": (
            lambda x, q, k, v, o, h, _, p: _part(x, q, k, v, o, h, 0, p)
        ),
        "the term was divided by the number of processes: it is a sum, not a mean": lambda *a: _part(*a) / a[7],
        "w_o lost its cut: these are the first rows for every process": (
            lambda *a: _part(*a, rows=slice(0, len(a[4]) // a[7]))
        ),
    },
    next_step="Next: a second device?",
    tolerance=1e-8,
)


check_seconds = Exercise(**vars(plain.check_seconds))


def _reports() -> list[tuple[Tensor, Tensor, Tensor]]:
    """Each device's largest score, sum and output, from random scores; in the last case they are large."""
    found = []
    for p, n, each, d, scale in ((2, 1, 3, 2, 1.0), (3, 4, 5, 2, 2.0), (2, 3, 4, 3, 400.0)):
        scores, values = scale * _random(p, n, each), _random(p, 1, each, d, seed=p)
        tops = scores.max(-1).values
        mass = (scores - tops[..., None]).exp()
        found.append((tops, mass.sum(-1), (scores.softmax(-1)[..., None] * values).sum(2)))
    return found


def _weigh(mass: Tensor, reads: Tensor) -> Tensor:
    return ((mass / mass.sum(0))[..., None] * reads).sum(0)


def _join(tops: Tensor, sums: Tensor, reads: Tensor) -> Tensor:
    return _weigh(sums * (tops - tops.max(0).values).exp(), reads)


def _any_reports(draw: Draw) -> tuple:
    p, n, d = draw.whole(1, 4), draw.whole(1, 4), draw.whole(1, 4)
    tops = draw.normal(p, n, scales=(1.0, 300.0, 3.0)) + draw.one_of([0.0, 900.0]) * draw.integers(-1, 1, n)
    return tops, draw.uniform(p, n, low=1.0, high=9.0), draw.normal(p, n, d)


check_join = Exercise(
    name="one output from several devices",
    solution=_join,
    cases=_reports,
    legal=_any_reports,
    mistakes={
        "the mean of all outputs: a device with larger scores counts more": lambda t, s, r: r.mean(0),
        "the sum of all outputs: the weights of all devices must sum to one": lambda t, s, r: r.sum(0),
        "the sums are measured from different tops: bring them to one first": lambda t, s, r: _weigh(s, r),
        "only the tops count: a device with many large scores counts more": lambda t, s, r: _weigh(
            (t - t.max(0).values).exp(), r
        ),
        "the sign of the tops is wrong: the largest must count most": lambda t, s, r: _weigh(
            s * (t.min(0).values - t).exp(), r
        ),
        "only the device with the largest score counts": lambda t, s, r: _weigh((t == t.max(0).values).double(), r),
        "divided by the sums: a larger denominator counts more": lambda t, s, r: _weigh(
            (t - t.max(0).values).exp() / s, r
        ),
        "not divided by the denominator of all devices": lambda t, s, r: (
            (s * (t - t.max(0).values).exp())[..., None] * r
        ).sum(0),
    },
    next_step="Tokens can be on different devices.",
    tolerance=1e-8,
)
