"""Checkers: weights with a sink, the same after a fused kernel, and what a window keeps."""

from collections.abc import Callable

import torch

from mha.course.exercises.exercise import Exercise
from mha.course.exercises.legal import Draw


def _beside(scores: torch.Tensor, sink: torch.Tensor) -> torch.Tensor:
    column = sink[:, None, None].expand(*scores.shape[:-1], 1)
    return torch.cat([scores, column], -1).softmax(-1)[..., :-1]


def _scored() -> list[tuple]:
    random = torch.Generator().manual_seed(1)
    cases = [
        (2 * torch.randn(h, i, j, generator=random).double(), torch.randn(h, generator=random).double())
        for h, i, j in ((1, 2, 3), (2, 3, 4), (3, 4, 5))
    ]
    scores, sink = cases[1]
    large = torch.tensor([0.0, 900.0, -900.0])[:, None]  # each row has a largest score of its own
    return [*cases, (scores + large, sink)]


def _any_scored(draw: Draw) -> tuple:
    h, i, j = draw.whole(1, 4), draw.whole(1, 5), draw.whole(1, 6)
    scores = draw.normal(h, i, j, scales=(1.0, 5.0, 300.0))
    scores += draw.one_of([0.0, 800.0]) * draw.integers(-1, 1, h, i, 1)  # another largest score in each row
    return scores, draw.normal(h, scales=(1.0, 5.0)) + draw.one_of([0.0, 0.0, 800.0])


check_weights = Exercise(
    name="weights with a sink",
    solution=_beside,
    cases=_scored,
    legal=_any_scored,
    gradients=True,
    mistakes={
        "the sink is left out": lambda s, z: s.softmax(-1),
        "softmax off by one in every head: the logits are not used": lambda s, z: _beside(s, 0 * z),
        "every head gets the sink of the first": lambda s, z: _beside(s, z[:1].expand_as(z)),
        "the sink was added as it is, not as exp(sink)": lambda s, z: (
            s.exp() / (z[:, None, None] + s.exp().sum(-1, keepdim=True))
        ),
        "softmax over the queries": lambda s, z: _beside(s.mT, z).mT,
        "the sink's sign is wrong": lambda s, z: _beside(s, -z),
        "the sink's own weight is left in the row, and the last key's is lost": lambda s, z: torch.cat(
            [s, z[:, None, None].expand(*s.shape[:-1], 1)], -1
        ).softmax(-1)[..., 1:],
        "one factor for all scores of a head: what the sink takes depends on the scores of each row": lambda s, z: (
            s.softmax(-1) * (-z).sigmoid()[:, None, None]
        ),
    },
    next_step="Next: the same where the scores are never materialized.",
)


def _gated(read: torch.Tensor, total: torch.Tensor, sink: torch.Tensor) -> torch.Tensor:
    return read * (total - sink[:, None]).sigmoid()[..., None]


def _reads() -> list[tuple]:
    random = torch.Generator().manual_seed(2)
    return [
        tuple(torch.randn(shape, generator=random).double() for shape in ((b, h, i, d), (b, h, i), (h,)))
        for b, h, i, d in ((1, 1, 2, 3), (2, 3, 4, 2), (3, 2, 5, 4))
    ]


def _any_read(draw: Draw) -> tuple:
    b, h, i, d = draw.whole(1, 3), draw.whole(1, 4), draw.whole(1, 5), draw.whole(1, 4)
    total = draw.normal(b, h, i, scales=(1.0, 4.0)) + draw.one_of([0.0, 900.0, -900.0])
    return draw.normal(b, h, i, d), total, draw.normal(h, scales=(1.0, 4.0))


check_gate = Exercise(
    name="a sink after a fused kernel",
    solution=_gated,
    cases=_reads,
    legal=_any_read,
    gradients=True,
    mistakes={
        "the sink is left out": lambda r, t, z: r,
        "the sign of the difference is wrong: the gate opens where the sink is high": lambda r, t, z: _gated(
            r, 2 * z[:, None] - t, z
        ),
        "no sigmoid": lambda r, t, z: r * (t - z[:, None])[..., None],
        "exp in place of sigmoid": lambda r, t, z: r * (t - z[:, None]).exp()[..., None],
        "every head gets the sink of the first": lambda r, t, z: _gated(r, t, z[:1].expand_as(z)),
        "the logsumexp is not used": lambda r, t, z: r * (-z[:, None, None]).sigmoid(),
        "the sink is 0 in every head": lambda r, t, z: _gated(r, t, 0 * z),
        "the gate was put on twice": lambda r, t, z: _gated(_gated(r, t, z), t, z),
    },
    next_step="Next: which tokens a window keeps.",
)


def _kept(t: int, window: int, first: int) -> list:
    kept = [j for j in range(t + 1) if j < first or j > t - window]
    return [kept, [len(kept) - 1 - place for place in range(len(kept))]]


def _all_but(keep) -> Callable:
    """Keep other tokens, and count the distances right."""

    def answer(t: int, window: int, first: int) -> list:
        kept = [j for j in range(t + 1) if keep(j, t, window, first)]
        return [kept, [len(kept) - 1 - place for place in range(len(kept))]]

    return answer


def _any_window(draw: Draw) -> tuple:
    window, first = draw.whole(1, 6), draw.whole(0, 4)
    return draw.integer(0, draw.one_of([40, window + first])), window, first


check_window = Exercise(
    name="what a window keeps",
    solution=_kept,
    cases=lambda: [(2, 3, 1), (9, 3, 2), (20, 4, 1), (5, 2, 0), (1, 2, 4), (6, 5, 2)],
    legal=_any_window,
    mistakes={
        "the first tokens are not kept: that is a plain window": _all_but(lambda j, t, w, f: j > t - w),
        "the window is one token too wide": _all_but(lambda j, t, w, f: j < f or j >= t - w),
        "the window is one token too narrow: the token itself counts": _all_but(
            lambda j, t, w, f: j < f or j > t - w + 1
        ),
        "one first token too many": _all_but(lambda j, t, w, f: j <= f or j > t - w),
        "the first tokens are taken out of the window's size": _all_but(lambda j, t, w, f: j < f or j > t - w + f),
        "everything is kept": _all_but(lambda j, t, w, f: True),
        "the newest tokens are forgotten, and the oldest kept": _all_but(lambda j, t, w, f: j < f + w),
        "distances are those in the sequence": lambda t, w, f: [_kept(t, w, f)[0], [t - j for j in _kept(t, w, f)[0]]],
        "positions in the cache, not distances from the new token": lambda t, w, f: [
            _kept(t, w, f)[0],
            list(range(len(_kept(t, w, f)[0]))),
        ],
        "the new token is at distance 1 from itself": lambda t, w, f: [
            _kept(t, w, f)[0],
            [d + 1 for d in _kept(t, w, f)[1]],
        ],
        "a token that is one of the first and one of the last is kept twice": lambda t, w, f: [
            [*range(f), *range(t - w + 1, t + 1)],
            list(range(f + w))[::-1],
        ],
    },
    next_step="Next: other ways to keep less.",
)
