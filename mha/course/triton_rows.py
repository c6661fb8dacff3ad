"""Attention for a block of rows as one GPU kernel, written in Triton; on a processor, Triton's interpreter runs it.

Triton is an optional extra for Linux: ``pip install -e '.[kernels]'``. Its interpreter must be chosen before anything
imports Triton, ``torch.compile`` included: set ``TRITON_INTERPRET=1`` first.

:Taught in: counting_cost.
"""

import math
from importlib.util import find_spec

import torch
from jaxtyping import Float
from torch import Tensor

from mha.checks import check_whole, checked
from mha.functional.attention import check_qkv

if find_spec("triton") is None:
    raise ImportError("triton is missing, which exists for Linux only: pip install -e '.[kernels]'")

import triton
import triton.language as tl

SMALLEST = 16  # the smallest side of a product that a tensor core takes


@triton.jit
def rows_kernel(
    q, k, v, out, n_q, n_k, d, c, scale,
    CAUSAL: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr, D: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    # 1. Which rows are mine? One program has a block of queries of one head
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    head = tl.program_id(1).to(tl.int64)
    deep, wide = tl.arange(0, D), tl.arange(0, C)[None, :]
    at = q + (head * n_q + rows) * d + deep[None, :]
    queries = tl.load(at, mask=(rows < n_q) & (deep[None, :] < d), other=0.0)
    largest = tl.full([ROWS, 1], -float("inf"), tl.float32)
    total = tl.zeros([ROWS, 1], tl.float32)
    read = tl.zeros([ROWS, C], tl.float32)
    end = n_k
    if CAUSAL:  # later tiles are seen by no row, and not even loaded
        past = (tl.program_id(0) + 1) * ROWS + n_k - n_q
        end = tl.minimum(n_k, past)
    # 2. One tile of keys and values after the other
    for start in range(0, end, TILE):
        keys = start + tl.arange(0, TILE)
        at = k + (head * n_k + keys[None, :]) * d + deep[:, None]
        there = (keys[None, :] < n_k) & (deep[:, None] < d)
        tile = tl.load(at, mask=there, other=0.0)
        scores = tl.dot(queries, tile, input_precision="ieee") * scale
        seen = keys[None, :] < n_k  # what is padded is not seen
        if CAUSAL:  # the last query sees the last key
            seen = seen & (keys[None, :] <= rows + n_k - n_q)
        scores = tl.where(seen, scores, -float("inf"))
        old = largest
        largest = tl.maximum(old, tl.max(scores, 1, keep_dims=True))
        floor = tl.maximum(largest, -3e38)  # −inf − −inf would be NaN
        weights, shrink = tl.exp(scores - floor), tl.exp(old - floor)
        total = shrink * total + tl.sum(weights, 1, keep_dims=True)
        at = v + (head * n_k + keys[:, None]) * c + wide
        there = (keys[:, None] < n_k) & (wide < c)
        tile = tl.load(at, mask=there, other=0.0)
        weights = weights.to(tile.dtype)
        read = shrink * read + tl.dot(weights, tile, input_precision="ieee")
    # 3. Divide once, and write each row once
    read = read / tl.where(total == 0, 1.0, total)
    at = out + (head * n_q + rows) * c + wide
    tl.store(at, read, mask=(rows < n_q) & (wide < c))


@checked
def attend_rows(
    q: Float[Tensor, "*l i d"],
    k: Float[Tensor, "*l j d"],
    v: Float[Tensor, "*l j c"],
    *,
    is_causal: bool = False,
    rows: int = 16,
    tile: int = 32,
) -> Float[Tensor, "*l i c"]:
    """Read from the values like :func:`mha.functional.tiled_attention`, in one kernel for each block of queries.

    :param q: the queries, (…, i, d), in float32, float16 or bfloat16.
    :param k: the keys, (…, j, d).
    :param v: the values, (…, j, c).
    :param is_causal: whether each query attends only to itself and to what came before; False unless given.
    :param rows: how many queries a program has, a power of two from 16; 16 unless given.
    :param tile: how many keys are in a tile, a power of two from 16; 32 unless given.
    :Costs: no memory for weights outside the chip; keys and values are read once for each block of rows.
    :Shapes: returns the head output (…, i, c), without a gradient.
    :Raises: TypeError for other kinds of numbers; ValueError for blocks that Triton cannot make;
        RuntimeError where inputs need a gradient, and on a processor without Triton's interpreter.
    :Source: Dao et al. 2022, algorithm 1; Dao 2024 for one program for each block of queries.
    """
    check_qkv(q, k, v)
    if q.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise TypeError(
            f"q has dtype {q.dtype}, but the kernel computes in float32 and would lose digits: use .float()"
        )
    check_whole(SMALLEST, rows=rows, tile=tile)
    for name, size in (("rows", rows), ("tile", tile)):
        if size & (size - 1):
            raise ValueError(f"{name} = {size}: Triton makes blocks whose size is a power of two, such as 16 or 64")
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        raise RuntimeError("the kernel has no backward pass: call it inside torch.no_grad(), or detach the inputs")
    if q.device.type == "cpu" and isinstance(rows_kernel, triton.JITFunction):
        raise RuntimeError("Triton compiles for GPUs only: on a processor set TRITON_INTERPRET=1 before it is imported")
    if q.dtype is torch.bfloat16 and not isinstance(rows_kernel, triton.JITFunction):
        raise TypeError("Triton's interpreter multiplies the bits of bfloat16 as if they were integers: use .half()")
    (i, d), (j, c) = q.shape[-2:], v.shape[-2:]
    out = q.new_empty(*q.shape[:-1], c)
    sides = [max(SMALLEST, triton.next_power_of_2(side)) for side in (d, c)]
    grid = (triton.cdiv(i, rows), math.prod(q.shape[:-2]))
    rows_kernel[grid](
        q.contiguous(), k.contiguous(), v.contiguous(), out, i, j, d, c, d**-0.5, is_causal, rows, tile, *sides
    )
    return out
