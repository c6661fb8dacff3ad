"""Which way is taken on which device: the only place that decides it, and what was measured to decide it.

Two ways compute the same numbers, up to rounding, and differ in time. Times on a GPU were measured on an H100 in
bfloat16, 2026-11-26; times on a processor on one thread, float32. Everything that is not CUDA goes the processor's way.

:Taught in: counting_cost, cache_and_sharing, compress, overwrite.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

WIDEST = 256  # channels of a head that CUDA's fused kernels take
LEAVE_OUT_FROM = 2**18  # scores of one head from which leaving queries out is faster, on a processor
LEAVE_OUT_FROM_ON_A_CARD = 2**26  # 8,192 tokens: 2.55 ms against 3.04 with all heads; 1.34 against 1.16 at 4,096

_forced = False  # whether every tensor counts as one on a GPU


def is_card(x: Tensor) -> bool:
    """Say whether a tensor is on a GPU, with the kernels that come with CUDA.

    :param x: any tensor.
    """
    return x.is_cuda or _forced


@contextmanager
def _as_on_a_card() -> Iterator[None]:
    """Take the ways of a GPU on every device, so that tests can compare both where there is none."""
    global _forced
    before, _forced = _forced, True
    try:
        yield
    finally:
        _forced = before


def reads_free(x: Tensor) -> bool:
    """Say whether a program may look at numbers of this tensor without waiting for anything.

    On a GPU it would wait until all work handed over before is done; on the meta device and in a graph that is compiled
    there are no numbers.

    :param x: any tensor.
    """
    return x.device.type == "cpu" and not _forced and not torch.compiler.is_compiling()


def exactly(x: Tensor) -> torch.device:
    """Name the device that computes angles in float64 for this tensor: the processor, because not all devices can.

    In a graph that is compiled for CUDA it is the GPU itself, which can: the graph need not leave it.

    :param x: the tensor that will be rotated, or marked.
    """
    return x.device if x.is_cuda and torch.compiler.is_compiling() else torch.device("cpu")


def folds_queries(q: Tensor, v: Tensor, mask: Tensor | None) -> bool:
    """Say whether single queries that share a KV head are stacked, instead of leaving that to the kernel.

    At batch 1 and 32,768 keys of 8 KV heads the kernel's own way (``enable_gqa``) took 94 µs on the GPU, and stacked
    queries 392; a processor's kernel would read shared keys once for each head.

    :param q: the queries, (b, h, 1, d).
    :param v: the values, (b, g, j, c).
    :param mask: what is hidden, or None.
    """
    return not is_card(q) or not _knows_shared_heads(q, v, mask)


def repeats_heads(q: Tensor, v: Tensor, mask: Tensor | None) -> bool:
    """Say whether several queries are given a copy of a shared KV head for each of their heads.

    On a GPU ``enable_gqa`` may otherwise lead to torch's explicit formula, which materializes the scores: the kernel
    that takes masks and float32 wants as many KV heads as heads. So torch's documentation says, and so do the checks
    in its code; the times await a GPU.

    :param q: the queries, (b, h, i, d).
    :param v: the values, (b, g, j, c).
    :param mask: what is hidden, or None.
    """
    return is_card(q) and not _knows_shared_heads(q, v, mask)


def _knows_shared_heads(q: Tensor, v: Tensor, mask: Tensor | None) -> bool:
    """On a GPU one kernel knows shared heads: that for half precision, without a mask, for heads of one width."""
    half = q.dtype in (torch.bfloat16, torch.float16)
    return half and mask is None and q.shape[-1] == v.shape[-1] <= WIDEST


def multiplies_latents(rows: Tensor) -> bool:
    """Say whether absorbed latents are read with two products instead of the kernel.

    A GPU has no fused kernel for heads wider than 256, and its replacement is slow: at batch 32 and 16,384 rows of 576
    channels it took 1,756 µs, two products and a softmax 561.

    :param rows: latents and rotated keys, (b, 1, j, d_latent + d_rotary).
    """
    return is_card(rows) and rows.shape[-1] > WIDEST


def copies_of_rows(rows: Tensor, heads: int) -> int:
    """Say how many KV heads the rows that all heads share are shown as.

    A processor's kernel gives each thread heads of its own: there must be as many as threads. A GPU has no such need.

    :param rows: latents and rotated keys, (b, 1, j, d_latent + d_rotary).
    :param heads: how many heads read them.
    """
    return 1 if is_card(rows) else math.gcd(heads, torch.get_num_threads())


def chunk_for(x: Tensor) -> int:
    """Say how many tokens a chunk of the delta rule has, and of linear attention.

    Every chunk is a step in Python. At 16,384 tokens chunks of 64 took 33 ms on the GPU, chunks of 256 8.6 ms; on a
    processor, where the products inside chunks count, 256 takes 2.6 times as long as 64.

    :param x: keys, or parameters, on the device that computes.
    """
    return 256 if is_card(x) else 64


def sums_states(x: Tensor) -> bool:
    """Say whether the states of linear attention are one cumulative sum over chunks, instead of a loop.

    Every chunk of the loop is a step in Python: a whole layer at 16,384 tokens took 24 ms on the GPU with it. On a
    processor the sum takes 1.3 times as long as the loop, whose single state stays in the caches.

    :param x: keys on the device that computes.
    """
    return is_card(x)


def multiplies_in(kind: torch.dtype, x: Tensor) -> bool:
    """Say whether linear attention multiplies features and values in the type that they were given in.

    With products in bfloat16 and states that are one sum, without features and normalization, 16,384 tokens took 0.82
    ms on the GPU, where fused softmax took 1.8. In float32, by a count of bytes and operations, the products alone
    would take longer than softmax; the layer as a whole awaits a GPU. float16 would overflow: states add up thousands
    of tokens. A processor computes in float32.

    :param kind: the type that was given.
    :param x: keys on the device that computes.
    """
    return kind == torch.bfloat16 and is_card(x)


def wants_bias(q: Tensor) -> bool:
    """Say whether a bias of scores is given to the fused kernel as a mask of numbers, instead of the explicit formula.

    With 16 heads, 2,048 tokens and batch 4 the explicit formula with ALiBi took 4.76 ms on the GPU, the kernel with a
    mask that was kept 0.31. A soft cap stays with the explicit formula on every device: it is no sum but a function of
    the score, which no mask can hold.

    :param q: the queries, (b, h, i, d).
    """
    return is_card(q)
