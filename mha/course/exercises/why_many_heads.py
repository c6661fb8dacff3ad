"""Checkers: rank side by side, two heads by hand, the price of one average, who looks at itself."""

import torch

from mha.course.exercises.exercise import Exercise
from mha.course.exercises.legal import Draw


def _random(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _projections() -> list[tuple]:
    full, thin, other = _random(1, 12, 3), *(_random(s, 12, 1) @ _random(s + 10, 1, 3) for s in (2, 3))  # ranks 3, 1, 1
    return [
        (_random(4, 1, 6, 2),),
        (_random(5, 3, 12, 2),),
        (full.repeat(3, 1, 1),),  # three equal heads
        (torch.stack([full, -full]),),
        (torch.stack([thin, full]),),
        (torch.stack([thin, other]),),
        (torch.stack([full, 1e-4 * _random(8, 12, 3)]),),  # small is not dependent
        (_random(6, 4, 10, 4),),
    ]


def _rank(matrix: torch.Tensor) -> int:
    return int(torch.linalg.matrix_rank(matrix))


def _any_projections(draw: Draw) -> tuple:
    heads, m, d = draw.whole(1, 4), draw.whole(1, 8), draw.whole(1, 4)
    full = draw.normal(heads, m, d, scales=(1.0, 1e-9, 1e3))
    uneven = full * torch.tensor([1.0, 1e-5, 1.0, 1e-5])[:heads, None, None]
    one = draw.normal(1, m, d).expand(heads, -1, -1)
    thin = draw.normal(heads, m, 1) @ draw.normal(heads, 1, d)
    fewer = one @ draw.normal(heads, d, d)  # other matrices, the same directions
    return (draw.one_of([full, uneven, one.clone(), thin, fewer, torch.zeros_like(full)]),)


check_rank = Exercise(
    name="rank side by side",
    solution=lambda w: _rank(torch.cat(list(w), 1)),
    cases=_projections,
    legal=_any_projections,
    mistakes={
        "stacked one under the other: the columns must be side by side": lambda w: _rank(torch.cat(list(w), 0)),
        "the ranks are added, though two heads may keep the same directions": lambda w: sum(_rank(one) for one in w),
        "the matrices are added": lambda w: _rank(w.sum(0)),
        "only the first head is counted": lambda w: _rank(w[0]),
        "the best head is counted, not all together": lambda w: max(_rank(one) for one in w),
        "the columns are counted, whatever is in them": lambda w: w.shape[0] * w.shape[2],
        "the smaller side is counted, whatever is in the matrix": lambda w: min(w.shape[1], w.shape[0] * w.shape[2]),
    },
    whole=True,
    next_step="Eight narrow heads side by side can have them all.",
)


def _stalls() -> list[tuple]:
    cases = []
    for seed, (b, kinds, sharpness) in enumerate([(1, 3, 4.0), (2, 4, 2.0), (3, 5, 3.0)]):
        color, taste = _random(seed, b, kinds).argsort(1), _random(seed + 10, b, kinds).argsort(1)
        labels = torch.cat([torch.eye(kinds)[color], torch.eye(kinds)[taste]], -1).double()
        asked = torch.cat([labels[:, 0, :kinds], labels[:, 1, kinds:]], -1)
        cases.append((asked, labels, _random(seed + 20, b, kinds), sharpness))
    return cases


def _scores(question, labels, sharpness):
    """Scores (b, head, fruit): head 0 compares the first half of the channels, head 1 the second half."""
    matches = (question[:, None] * labels).unflatten(-1, (2, -1)).sum(-1)
    return sharpness * matches.mT


def _two_heads(question, labels, prices, sharpness, *, softmax=lambda s: s.softmax(-1)):
    return (softmax(_scores(question, labels, sharpness)) * prices[:, None]).sum(-1)


def _one_head(question, labels, prices, sharpness):
    scores = _scores(question, labels, sharpness).sum(1, keepdim=True)
    return (scores.softmax(-1) * prices[:, None]).sum(-1).expand(-1, 2)


def _interleaved(question, labels, prices, sharpness):
    matches = (question[:, None] * labels).unflatten(-1, (-1, 2)).sum(-2)
    return ((sharpness * matches.mT).softmax(-1) * prices[:, None]).sum(-1)


def _shared_weights(question, labels, prices, sharpness):
    weights = _scores(question, labels, sharpness).softmax(-1).mean(1, keepdim=True)
    return (weights * prices[:, None]).sum(-1).expand(-1, 2)


def _any_stalls(draw: Draw) -> tuple:
    b, fruits, kinds = draw.whole(1, 4), draw.whole(1, 6), draw.whole(1, 5)
    color, taste, asked = draw.integers(0, kinds - 1, 3, b, fruits)
    labels = torch.cat([torch.eye(kinds)[color], torch.eye(kinds)[taste]], -1).double()
    question = torch.cat([torch.eye(kinds)[asked[:, 0]], torch.eye(kinds)[asked[:, -1]]], -1).double()
    return question, labels, draw.normal(b, fruits, scales=(1.0, 100.0)), draw.number(0.5, 6.0)


check_two_heads = Exercise(
    name="two heads by hand",
    solution=_two_heads,
    cases=_stalls,
    legal=_any_stalls,
    mistakes={
        "one head for both questions: the two scores are added before the softmax": _one_head,
        "the heads have changed places: color comes first": lambda *a: _two_heads(*a).flip(-1),
        "even and odd channels instead of first and second half": _interleaved,
        "the weights of the two heads are averaged: that is one average again": _shared_weights,
        "softmax over the heads": lambda *a: _two_heads(*a, softmax=lambda s: s.softmax(1)),
        "softmax over color and taste of all fruits together": lambda *a: _two_heads(
            *a, softmax=lambda s: s.flatten(1).softmax(-1).view_as(s)
        ),
        "the sharpness is left out": lambda asked, labels, prices, _: _two_heads(asked, labels, prices, 1.0),
        "no softmax: scores are used as weights": lambda *a: _two_heads(*a, softmax=lambda s: s),
        "the sharpness divides instead of multiplying": lambda asked, labels, prices, sharpness: _two_heads(
            asked, labels, prices, 1 / sharpness
        ),
    },
    next_step="Next: what is the best that one head can do?",
)


def _rows() -> list[tuple]:
    return [
        (torch.tensor([0.5, 0.5], dtype=torch.float64), 0, 1),
        (torch.tensor([0.75, 0.25], dtype=torch.float64), 0, 1),
        (torch.tensor([0.1, 0.6, 0.2, 0.1], dtype=torch.float64), 2, 1),
        (_random(7, 6).softmax(0), 1, 4),
    ]


def _errors(weights, a, b):
    return 1 - weights[[a, b]].square() / weights.square().sum()


def _any_row(draw: Draw) -> tuple:
    weights = draw.normal(draw.whole(2, 7), scales=(1.0, 4.0, 0.1)).softmax(0)
    a, b = draw.order(len(weights))[:2]
    return weights, a, b


check_errors = Exercise(
    name="the price of one average",
    solution=_errors,
    cases=_rows,
    legal=_any_row,
    mistakes={
        "the weights are not squared": lambda w, a, b: 1 - w[[a, b]] / w.sum(),
        "the other fruits are forgotten in the sum": lambda w, a, b: 1 - w[[a, b]].square() / w[[a, b]].square().sum(),
        "the square of the sum instead of the sum of the squares": lambda w, a, b: (
            1 - w[[a, b]].square() / w.sum() ** 2
        ),
        "the share that is explained, not the error that is left": lambda w, a, b: 1 - _errors(w, a, b),
        "the two answers have changed places": lambda w, a, b: _errors(w, b, a),
        "the head output itself is taken as the guess, without the best factor": lambda w, a, b: (
            (1 - w[[a, b]]).square() + w.square().sum() - w[[a, b]].square()
        ),
        "the square root of the error": lambda w, a, b: _errors(w, a, b).sqrt(),
    },
    next_step="That is what the second head saves.",
)


def _maps() -> list[tuple]:
    return [
        (_random(seed, *shape).softmax(-1),) for seed, shape in enumerate([(1, 2, 3, 3), (3, 4, 5, 5), (2, 5, 7, 7)])
    ]


def _own(weights: torch.Tensor) -> torch.Tensor:
    return weights.diagonal(dim1=-2, dim2=-1)


def _self_weight(weights):
    per_head = _own(weights).mean((0, 2))
    return torch.stack([per_head.mean(), per_head.max()])


def _counted(weights):
    hits = (weights.argmax(-1) == torch.arange(weights.shape[-1])).to(weights.dtype).mean((0, 2))
    return torch.stack([hits.mean(), hits.max()])


def _any_maps(draw: Draw) -> tuple:
    words = draw.whole(1, 6)
    scores = draw.normal(draw.whole(1, 4), draw.whole(1, 4), words, words, scales=(1.0, 5.0, 0.1))
    return ((scores + draw.one_of([0.0, 4.0]) * torch.eye(words)).softmax(-1),)


check_self_weight = Exercise(
    name="who looks at itself",
    solution=_self_weight,
    cases=_maps,
    legal=_any_maps,
    mistakes={
        "the largest single weight instead of the largest head": lambda w: torch.stack([_own(w).mean(), _own(w).max()]),
        "the largest over heads is taken before averaging over tokens": lambda w: torch.stack(
            [_own(w).mean(), _own(w).amax(1).mean()]
        ),
        "summed over the tokens instead of averaged": lambda w: _self_weight(w) * w.shape[-1],
        "all weights are averaged, not only those on the diagonal": lambda w: torch.stack(
            [w.mean(), w.mean((0, 2, 3)).max()]
        ),
        "tokens are counted whose largest weight is their own, weights are not averaged": _counted,
        "the largest over tokens instead of over heads": lambda w: torch.stack(
            [_own(w).mean(), _own(w).mean((0, 1)).max()]
        ),
        "the smallest head instead of the largest": lambda w: torch.stack([_own(w).mean(), _own(w).mean((0, 2)).min()]),
        "the wrong diagonal: from the last token to the first": lambda w: _self_weight(w.flip(-1)),
    },
    next_step="Run it on a layer of your own with mha.watch.",
)
