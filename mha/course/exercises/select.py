"""Checkers: what an indexed layer costs, the keys that an index chooses, the loss that trains it."""

import torch
from torch import Tensor

from mha.course.exercises.exercise import Exercise
from mha.course.exercises.legal import Draw


def _bills() -> list[tuple]:
    return [
        (8_192, 2_048, 128, 512, 64, 64, 128),
        (100, 2_048, 128, 512, 64, 64, 128),
        (1_000, 16, 4, 8, 2, 1, 8),
        (16, 16, 3, 5, 0, 2, 4),
    ]


def _bill(n: int, k: int, heads: int, d_latent: int, d_rotary: int, index_heads: int, d_index: int) -> list[int]:
    each = 2 * heads * (2 * d_latent + d_rotary)
    if n <= k:
        return [each * n, each * n]
    return [each * n, 2 * index_heads * d_index * n + each * k]


def _any_bill(draw: Draw) -> tuple:
    k = draw.whole(1, 60)
    n = draw.one_of([k, max(1, k - 1), k + 1, 5 * k, 100 * k])
    return n, k, draw.whole(1, 16), draw.whole(1, 64), draw.whole(0, 16), draw.whole(1, 8), draw.whole(1, 16)


check_bill = Exercise(
    name="the bill of an indexed layer",
    solution=_bill,
    cases=_bills,
    legal=_any_bill,
    mistakes={
        "the index is counted where n ≤ k, too: there it is not asked": lambda n, k, h, c, r, hi, di: [
            2 * h * (2 * c + r) * n,
            2 * hi * di * n + 2 * h * (2 * c + r) * min(k, n),
        ],
        "k keys are counted where only n exist": lambda n, k, h, c, r, hi, di: [
            2 * h * (2 * c + r) * n,
            2 * h * (2 * c + r) * k + (2 * hi * di * n if n > k else 0),
        ],
        "the index is not counted": lambda n, k, h, c, r, hi, di: [
            2 * h * (2 * c + r) * n,
            2 * h * (2 * c + r) * min(k, n),
        ],
        "the index scores only the k chosen keys: it must score all of them to choose": lambda n, k, h, c, r, hi, di: [
            2 * h * (2 * c + r) * n,
            2 * h * (2 * c + r) * min(k, n) + (2 * hi * di * k if n > k else 0),
        ],
        "only the scores are counted: the weighted sum of the latents costs 2 · heads · d_latent more per key": (
            lambda n, k, h, c, r, hi, di: [
                2 * h * (c + r) * n,
                2 * h * (c + r) * min(k, n) + (2 * hi * di * n if n > k else 0),
            ]
        ),
        "the rotated key is read as a value, too: the weighted sum is of latents alone": lambda n, k, h, c, r, hi, di: [
            4 * h * (c + r) * n,
            4 * h * (c + r) * min(k, n) + (2 * hi * di * n if n > k else 0),
        ],
        "a multiplication and an addition are counted as one FLOP": lambda n, k, h, c, r, hi, di: [
            x // 2 for x in _bill(n, k, h, c, r, hi, di)
        ],
        "the latent is counted once: in the absorbed form every head reads it": lambda n, k, h, c, r, hi, di: [
            2 * (2 * c + r) * n,
            2 * (2 * c + r) * min(k, n) + (2 * hi * di * n if n > k else 0),
        ],
    },
    next_step="Next: choose the keys.",
)


def _scored() -> list[tuple]:
    random = torch.Generator().manual_seed(18)
    return [(torch.randn(n, n, generator=random).double(), k) for n, k in ((5, 2), (6, 3), (4, 9), (3, 1))]


def _past(scores: Tensor) -> Tensor:
    return torch.ones_like(scores).tril() == 1


def _best(scores: Tensor, k: int) -> Tensor:
    best = scores.topk(min(k, scores.shape[-1])).indices
    return torch.zeros_like(scores).scatter(-1, best, 1) == 1


def _chosen(scores: Tensor, k: int) -> Tensor:
    past = _past(scores)
    return _best(scores.masked_fill(~past, -torch.inf), k) & past


def _any_scored(draw: Draw) -> tuple:
    n = draw.whole(1, 9)
    return draw.normal(n, n), draw.whole(1, 11)


check_chosen = Exercise(
    name="the keys that an index chooses",
    solution=_chosen,
    cases=_scored,
    legal=_any_scored,
    mistakes={
        "the mask comes after the choice: places go to keys of the future and are lost": lambda s, k: (
            _best(s, k) & _past(s)
        ),
        "early queries also choose keys of the future, because they have fewer than k": lambda s, k: _best(
            s.masked_fill(~_past(s), -torch.inf), k
        ),
        "nothing hides the future": lambda s, k: _best(s, k),
        "hidden scores are set to 0, which beats every negative score": lambda s, k: (
            _best(s.masked_fill(~_past(s), 0), k) & _past(s)
        ),
        "the k smallest scores are chosen": lambda s, k: _best((-s).masked_fill(~_past(s), -torch.inf), k) & _past(s),
        "each key chooses its queries: the k largest are taken along the rows axis": lambda s, k: (
            _best(s.masked_fill(~_past(s), -torch.inf).T, k).T & _past(s)
        ),
        "a query may not choose itself": lambda s, k: _chosen(s, k) & ~torch.eye(len(s)).bool(),
        "True marks what is hidden": lambda s, k: ~_chosen(s, k),
        "the newest k keys are chosen, whatever their scores: a window": lambda s, k: (
            _past(s) & ~(torch.ones_like(s).tril(-k) == 1)
        ),
    },
    next_step="Next: the loss that trains the index.",
)


def _weighed(random: torch.Generator, h: int, n: int) -> tuple[Tensor, Tensor]:
    past = torch.ones(n, n).tril() == 1
    scores = torch.randn(h + 1, n, n, generator=random).double().masked_fill(~past, -torch.inf)
    return (3 * scores[:h]).softmax(-1), scores[h]


def _weights() -> list[tuple]:
    random = torch.Generator().manual_seed(19)
    return [_weighed(random, h, n) for h, n in ((2, 3), (4, 5), (3, 2))]


def _terms(p: Tensor, log_q: Tensor) -> Tensor:
    return torch.special.xlogy(p, p) - p * log_q.masked_fill(p == 0, 0)


def _loss(weights: Tensor, scores: Tensor) -> Tensor:
    return _terms(weights.mean(0), scores.log_softmax(-1)).sum(-1).mean()


def _reversed(weights: Tensor, scores: Tensor) -> Tensor:
    q, p = scores.softmax(-1), weights.mean(0)
    return (torch.special.xlogy(q, q) - torch.special.xlogy(q, p)).sum(-1).mean()


def _any_weights(draw: Draw) -> tuple:
    h, n = draw.whole(2, 5), draw.whole(2, 7)
    return _weighed(draw.generator, h, n)


check_loss = Exercise(
    name="the loss that trains an index",
    solution=_loss,
    cases=_weights,
    legal=_any_weights,
    mistakes={
        "the weights are summed over the heads and not divided by their sum: each row sums to the number of heads": (
            lambda w, s: _terms(w.sum(0), s.log_softmax(-1)).sum(-1).mean()
        ),
        "the KL divergence is the wrong way round: the target is p, the heads' weights": _reversed,
        "this is the cross-entropy: the entropy of the target is not taken away": lambda w, s: (
            -(w.mean(0) * s.log_softmax(-1).masked_fill(w.mean(0) == 0, 0)).sum(-1).mean()
        ),
        "the rows are added: take their mean": lambda w, s: _loss(w, s) * s.shape[0],
        "the mean is over all pairs: sum over the keys, then take the mean over the queries": lambda w, s: (
            _loss(w, s) / s.shape[0]
        ),
        "the softmax of the index is missing": lambda w, s: (
            _terms(w.mean(0), s.masked_fill(s.isinf(), 0)).sum(-1).mean()
        ),
        "only the first head is the target": lambda w, s: _terms(w[0], s.log_softmax(-1)).sum(-1).mean(),
        "each head has a divergence of its own, and their mean is taken: sum the weights first": lambda w, s: (
            _terms(w, s.log_softmax(-1).expand_as(w)).sum(-1).mean()
        ),
        "the sign is wrong": lambda w, s: -_loss(w, s),
    },
    next_step="With this number an index learns from a layer that is trained already.",
)
