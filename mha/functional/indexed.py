"""Which keys a query reads: a small index scores all of them, the best ones are chosen, and a loss trains the index.

    I_ij = Σ_h w_ih · ReLU(q_ih · k_j / √d)

:Taught in: select.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mha.checks import check_flag, check_is_tensor, check_no_nan, check_tensor, check_whole, described
from mha.functional import core
from mha.functional.masks import check_mask

POOLS = ("max", "mean")


def index_scores(
    q: Float[Tensor, "b h i d"], k: Float[Tensor, "b j d"], w: Float[Tensor, "b i h"]
) -> Float[Tensor, "b i j"]:
    """Score every key for every query: Σ_h w_ih · ReLU(q_ih · k_j / √d). The heads share one key; there are no values.

    :param q: index queries, (b, h, i, d).
    :param k: index keys, (b, j, d), one for each token.
    :param w: how much each head counts for each query, (b, i, h), of any sign.
    :Costs: 2·b·h·i·j·d FLOPs.
    :Shapes: returns (b, i, j).
    :Raises: ValueError for shapes that do not belong together; TypeError for another type or device.
    :Source: DeepSeek-AI 2025, "DeepSeek-V3.2", section 2.1.
    :Taught in: select.
    """
    check_tensor(4, q=q)
    check_tensor(3, k=k, w=w)
    b, h, i, d = q.shape
    if (k.shape[0], k.shape[2]) != (b, d) or tuple(w.shape) != (b, i, h):
        raise ValueError(
            f"q {tuple(q.shape)}, k {tuple(k.shape)} and w {tuple(w.shape)} do not belong together: for queries (b, h, "
            "i, d) give keys (b, j, d) and weights (b, i, h)"
        )
    for name, x in (("k", k), ("w", w)):
        if x.dtype != q.dtype or x.device != q.device:
            raise TypeError(f"{name} is {x.dtype} on {x.device}, q is {q.dtype} on {q.device}: use {name}.to(q)")
    return score_keys(q, k, w)


def score_keys(q: Tensor, k: Tensor, w: Tensor) -> Float[Tensor, "b i j"]:
    """Do what :func:`index_scores` does, without checking its arguments.

    :param q: index queries, (b, h, i, d).
    :param k: index keys, (b, j, d).
    :param w: the weights of the heads, (b, i, h).
    """
    scores = core.multiply(q / math.sqrt(q.shape[-1]), k[:, None].mT).relu()
    return (scores * w.mT[..., None]).sum(1)


def choose_tokens(
    scores: Float[Tensor, "b i j"], k: int, mask: Bool[Tensor, "..."] | None = None
) -> Bool[Tensor, "b i j"]:
    """Choose the k keys with the largest scores among those that each query may read; all of them where they are fewer.

    The mask comes first: a hidden key takes no place. Of equal scores, which ReLU makes often, the earlier key is
    chosen, on every device.

    :param scores: (b, i, j), as :func:`index_scores` makes them; −inf hides a key, too.
    :param k: how many keys each query reads, at least 1.
    :param mask: (i, j) or (b, 1, i, j), True = may look; nothing is hidden unless given.
    :Shapes: returns (b, i, j), True = chosen.
    :Raises: ValueError for k below 1, for NaN among the scores, and for a mask that does not fit.
    :Taught in: select.
    """
    check_whole(k=k)
    return first_tokens(_hidden(scores, mask), k)


def choose_blocks(
    scores: Float[Tensor, "b i j"],
    k: int,
    block: int,
    mask: Bool[Tensor, "..."] | None = None,
    *,
    pool: str = "max",
    own: bool = True,
) -> Bool[Tensor, "b i j"]:
    """Choose the k blocks of consecutive keys with the largest pooled scores; hidden keys of a block stay hidden.

    Block number n holds the keys n · block to (n + 1) · block − 1; the last one may be unfinished. With ``own`` the
    last block of which a query may read something is always among the k: under a causal mask it is the one that the
    query is in.

    :param scores: (b, i, j), as :func:`index_scores` makes them; −inf hides a key, too.
    :param k: how many blocks each query reads, at least 1.
    :param block: how many keys a block has, at least 1.
    :param mask: (i, j) or (b, 1, i, j), True = may look; nothing is hidden unless given.
    :param pool: "max" or "mean", over the keys of a block that the query may read; the first unless given.
    :param own: whether the last block is always chosen; True unless given.
    :Shapes: returns (b, i, j), True = chosen.
    :Raises: ValueError for k or ``block`` below 1, for another ``pool``, for NaN among the scores, and for a mask that
        does not fit.
    :Source: MiniMax-M3, released code, for the maximum; Yuan et al. 2025, "Native Sparse Attention", for the mean.
    :Taught in: select.
    """
    check_whole(k=k, block=block)
    check_flag(own=own)
    check_pool(pool)
    return first_blocks(_hidden(scores, mask), k, block, pool, own)


def check_pool(pool: str) -> None:
    """Refuse another way to pool the scores of a block."""
    if not isinstance(pool, str) or pool not in POOLS:
        raise ValueError(f"pool = {described(pool)}: give one of {POOLS}, the largest score of a block or their mean")


def _hidden(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Check scores and mask, and hide."""
    check_tensor(3, scores=scores)
    check_no_nan("scores", scores)
    if mask is None:
        return scores
    b, i, j = scores.shape
    check_mask(mask, (b, 1, i, j), scores.device)
    return hide_keys(scores, mask)


def hide_keys(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Give −inf to the keys that no head may read.

    :param scores: (b, i, j).
    :param mask: (i, j) or (b, h, i, j), True = may look; None hides nothing.
    """
    if mask is None:
        return scores
    return scores.masked_fill(~(mask.any(1) if mask.ndim == 4 else mask), -torch.inf)


def ranked(scores: Tensor) -> Tensor:
    """Order keys, or blocks, by their scores, the largest first, and of equal ones the earlier first: their numbers.

    :param scores: (…, j).
    """
    return scores.argsort(dim=-1, descending=True, stable=True)


def _first(scores: Tensor, k: int) -> Tensor:
    """Say which are the first k in the order of scores; there is no branch for fewer, so one graph fits all lengths."""
    order = ranked(scores)
    among = torch.arange(scores.shape[-1], device=scores.device) < k
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, order, among.expand_as(order))


def first_tokens(scores: Tensor, k: int) -> Bool[Tensor, "b i j"]:
    """Do what :func:`choose_tokens` does with scores of which hidden ones are −inf, without checking its arguments.

    :param scores: (b, i, j).
    :param k: how many keys each query reads.
    """
    return _first(scores, k) & (scores != -torch.inf)


def first_blocks(scores: Tensor, k: int, block: int, pool: str, own: bool) -> Bool[Tensor, "b i j"]:
    """Do what :func:`choose_blocks` does with scores of which hidden ones are −inf, without checking its arguments.

    :param scores: (b, i, j).
    :param k: how many blocks each query reads.
    :param block: how many keys a block has.
    :param pool: "max" or "mean".
    :param own: whether the last block is always chosen.
    """
    chosen = _first(pool_blocks(scores, block, pool, own), k)
    number = torch.arange(scores.shape[-1], device=scores.device) // block
    return chosen.index_select(-1, number) & (scores != -torch.inf)


def pool_blocks(scores: Tensor, block: int, pool: str, own: bool) -> Float[Tensor, "b i n"]:
    """Score each block by its keys: −inf where all are hidden, inf where it must be chosen. The last ones are empty.

    :param scores: (b, i, j), −inf where hidden.
    :param block: how many keys a block has.
    :param pool: "max" or "mean".
    :param own: whether the last block that is not hidden gets inf.
    """
    j, device = scores.shape[-1], scores.device
    blocks = torch.arange(j // block + 2, device=device)  # never one, so that an exported graph fits all lengths
    at = blocks[:, None] * block + torch.arange(block, device=device)
    filled = scores[..., at.clamp_max(j - 1)].masked_fill(at >= j, -torch.inf)
    seen = filled != -torch.inf
    pooled: Tensor = filled.amax(-1)
    if pool == "mean":
        total = filled.masked_fill(~seen, 0).sum(-1)
        pooled = (total / seen.sum(-1).clamp_min(1)).masked_fill(~seen.any(-1), -torch.inf)
    if not own:
        return pooled
    there = seen.any(-1)
    last = (there * blocks).amax(-1, keepdim=True)
    return pooled.masked_fill(there & (blocks == last), torch.inf)


def index_loss(
    weights: Float[Tensor, "b h i j"], scores: Float[Tensor, "b i j"], chosen: Bool[Tensor, "b i j"] | None = None
) -> Float[Tensor, ""]:
    """Say how far the softmax of the index scores is from what the heads read: KL(p_i ‖ softmax(I_i)), averaged over i.

    p is the attention weights, summed over the heads and divided by their sum; no gradient reaches them. With
    ``chosen`` both sides are restricted to the set and sum to 1 within it. Queries that read nothing are not counted.
    The mean hides rare queries: judge an index also by how often the key that counts is in the set.

    :param weights: of the attention, (b, h, i, j), as ``mha.watch`` shows them.
    :param scores: of the index, (b, i, j). What the attention may not read must be −inf, as ``layer.index(x,
        is_causal=True)`` and ``mha.watch(layer, "index")`` have it, or not in ``chosen``. Where it is the other way
        round, so that weight lies on a score of −inf, the loss is infinite.
    :param chosen: the set of each query, (b, i, j), True = chosen; every key unless given.
    :Shapes: returns one number, in nats, at least 0.
    :Raises: ValueError for shapes that do not belong together.
    :Source: DeepSeek-AI 2025, "DeepSeek-V3.2", section 2.1.1.
    :Taught in: select.
    """
    check_tensor(4, weights=weights)
    check_tensor(3, scores=scores)
    if chosen is not None:
        check_is_tensor("chosen", chosen)
        if chosen.dtype != torch.bool:
            raise TypeError(f"chosen has dtype {chosen.dtype}, but must be boolean, True = chosen")
    whole = weights.shape[0], *weights.shape[2:]
    if tuple(scores.shape) != whole or (chosen is not None and tuple(chosen.shape) != whole):
        other = "" if chosen is None else f" and chosen {tuple(chosen.shape)}"
        raise ValueError(
            f"weights {tuple(weights.shape)}, scores {tuple(scores.shape)}{other} do not belong together: for weights "
            "(b, h, i, j) give scores (b, i, j), and a set of that shape"
        )
    for name, x in (("weights", weights), ("chosen", chosen)):
        if x is not None and x.device != scores.device:
            raise ValueError(f"{name} is on {x.device}, scores on {scores.device}: use {name}.to(scores.device)")
    wide = torch.promote_types(scores.dtype, torch.float32)
    target, scores = weights.detach().to(wide).sum(1), scores.to(wide)
    if chosen is not None:
        target, scores = target.masked_fill(~chosen, 0), scores.masked_fill(~chosen, -torch.inf)
    total = target.sum(-1, keepdim=True)
    counted = total > 0
    p = target / total.where(counted, 1)
    log_q = scores.masked_fill(~counted, 0).log_softmax(-1).masked_fill(p == 0, 0)
    divergence: Tensor = (torch.special.xlogy(p, p) - p * log_q).sum()
    return divergence / counted.sum().clamp_min(1)
