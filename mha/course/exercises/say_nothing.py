"""Checkers: weights with a sink, the same after a fused kernel, and what a window keeps."""

import torch

from mha.course.exercises.exercise import Exercise
from mha.course.exercises.legal import Draw
from mha.course.exercises.plain import say_nothing as plain


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


check_window = Exercise(**vars(plain.check_window))
