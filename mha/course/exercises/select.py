"""Checkers: what an indexed layer costs, the keys that an index chooses, the blocks of keys that it chooses."""

import torch
from torch import Tensor

from mha.course.exercises.exercise import Exercise
from mha.course.exercises.legal import Draw
from mha.course.exercises.plain import select as plain

check_bill = Exercise(**vars(plain.check_bill))


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
        "each key chooses its queries: the k largest are taken along the axis of queries": lambda s, k: (
            _best(s.masked_fill(~_past(s), -torch.inf).T, k).T & _past(s)
        ),
        "a query may not choose itself": lambda s, k: _chosen(s, k) & ~torch.eye(len(s)).bool(),
        "True marks what is hidden": lambda s, k: ~_chosen(s, k),
        "the newest k keys are chosen, whatever their scores: a window": lambda s, k: (
            _past(s) & ~(torch.ones_like(s).tril(-k) == 1)
        ),
    },
    next_step="Next: blocks of keys.",
)


def _block_scores() -> list[tuple]:
    random = torch.Generator().manual_seed(19)
    sizes = ((6, 2, 2), (8, 2, 2), (9, 1, 3), (12, 3, 3), (4, 5, 1))
    return [(torch.randn(n, n, generator=random).double() - 1, k, block) for n, k, block in sizes]


def _pooled(scores: Tensor, k: int, block: int, pool: str = "max", own: bool = True) -> Tensor:
    past = _past(scores)
    of_blocks = scores.masked_fill(~past, -torch.inf).unflatten(1, (-1, block))
    seen = of_blocks != -torch.inf
    pooled = of_blocks.amax(-1)
    if pool == "mean":
        pooled = of_blocks.masked_fill(~seen, 0).sum(-1) / seen.sum(-1).clamp(min=1)
        pooled = pooled.masked_fill(~seen.any(-1), -torch.inf)
    if own:
        pooled = pooled.masked_fill(_own(scores, block), torch.inf)
    return _best(pooled, k).repeat_interleave(block, 1) & past


def _own(scores: Tensor, block: int) -> Tensor:
    number = torch.arange(len(scores)) // block
    return number[:, None] == torch.arange(len(scores) // block)


def _blocks(scores: Tensor, k: int, block: int) -> Tensor:
    return _pooled(scores, k, block)


def _any_block_scores(draw: Draw) -> tuple:
    block, blocks = draw.whole(1, 4), draw.whole(1, 5)
    n = block * blocks
    return draw.normal(n, n), draw.whole(1, 6), block


check_blocks = Exercise(
    name="the blocks that an index chooses",
    solution=_blocks,
    cases=_block_scores,
    legal=_any_block_scores,
    mistakes={
        "the scores of a block are averaged: take the largest": lambda s, k, block: _pooled(s, k, block, "mean"),
        "a query's own block is not always chosen": lambda s, k, block: _pooled(s, k, block, own=False),
        "a query's own block comes on top of the k blocks: it is one of them": lambda s, k, block: _pooled(
            s, k + 1, block
        ),
        "a query reads the later keys of its own block": lambda s, k, block: (
            _pooled(s, k, block) | _own(s, block).repeat_interleave(block, 1)
        ),
        "k keys are chosen, not k blocks": lambda s, k, block: _chosen(s, k),
        "k blocks are too many: k keys were divided among blocks": lambda s, k, block: _pooled(
            s, max(1, k // block), block
        ),
        "blocks of the future are hidden after the choice, and their places are lost": lambda s, k, block: (
            _best(s.unflatten(1, (-1, block)).amax(-1).masked_fill(_own(s, block), torch.inf), k).repeat_interleave(
                block, 1
            )
            & _past(s)
        ),
        "only the query's own block is read": lambda s, k, block: _pooled(s, 1, block),
        "the blocks are numbered the wrong way: key j is in block j // block": lambda s, k, block: (
            _best(
                s.masked_fill(~_past(s), -torch.inf)
                .unflatten(1, (block, -1))
                .amax(1)
                .masked_fill(_own(s, block), torch.inf),
                k,
            ).repeat_interleave(block, 1)
            & _past(s)
        ),
    },
    next_step="That is how layers with few KV heads read.",
)
