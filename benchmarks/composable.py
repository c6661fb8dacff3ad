"""Question: what do heads that are recombined for every query and key cost beside plain ones?"""

from collections.abc import Callable

import torch
from timing import peak_megabytes, ratios, table, take_turns
from torch import Tensor

import mha
from mha.functional import attention

SHAPES = ((1, 1024, 512, 8), (8, 128, 512, 8), (1, 4096, 512, 8))  # batch, n, d_model, heads
CHUNK = 128
EXPLICIT, CHUNKED = "plain, explicit formula", f"plain, explicit, {CHUNK} queries at a time"
KERNEL, TALKING, COMPOSED = "plain, fused kernel", "talking heads", "composed heads, R = 2"


def candidates(d: int, h: int, causal: bool) -> dict[str, Callable[[Tensor], Tensor]]:
    """Make layers with equal parameters; the composed one mixes at random, so that nothing is a multiplication by 0."""
    torch.manual_seed(0)
    plain = mha.MultiHeadAttention(d, h)
    talking, composed = mha.TalkingAttention.from_plain(plain), mha.ComposableAttention.from_plain(plain)
    with torch.no_grad():
        for name, weight in [*talking.named_parameters(), *composed.named_parameters()]:
            weight += 0 if name.startswith("W_") else 0.02 * torch.randn_like(weight)

    def explicit(x: Tensor) -> Tensor:
        return plain.merge(attention.attend(*plain.project(x), is_causal=causal, explicit=True))

    def in_chunks(x: Tensor) -> Tensor:
        q, k, v = plain.project(x)
        read = []
        for start in range(0, x.shape[1], CHUNK):
            rows = slice(start, min(start + CHUNK, x.shape[1]))
            seen = slice(rows.stop if causal else x.shape[1])
            read.append(attention.attend(q[:, :, rows], k[:, :, seen], v[:, :, seen], is_causal=causal, explicit=True))
        return plain.merge(torch.cat(read, 2))

    return {
        EXPLICIT: explicit,
        "the same again": explicit,
        CHUNKED: in_chunks,
        KERNEL: lambda x: plain(x, is_causal=causal),
        TALKING: lambda x: talking(x, is_causal=causal),
        COMPOSED: lambda x: composed(x, is_causal=causal),
    }


def composing(seconds: float = 10.0) -> str:
    """Time whole layers without gradients; ratios to the explicit formula, and to the same formula in chunks."""
    rows, names = [], ("the same again", CHUNKED, KERNEL, TALKING, COMPOSED)
    for b, n, d, h in SHAPES:
        for causal in (False, True):
            x, made = torch.randn(b, n, d), candidates(d, h, causal)
            with torch.no_grad():
                times = take_turns({name: lambda run=run, x=x: run(x) for name, run in made.items()}, seconds, 5)
            found = ratios(times, EXPLICIT)
            numbers = [f"{found[name]:.2f}" for name in names]
            numbers.append(f"{ratios(times, CHUNKED)[COMPOSED]:.2f}")
            rows.append([f"({b}, {n}, {d}, {h})", "causal" if causal else "full", *numbers])
            print(rows[-1], flush=True)
    return table(["(batch, n, d_model, heads)", "pass", *names, "composed, beside plain in chunks"], rows)


def composing_memory() -> str:
    """Measure how the peak of memory grows with the length, without gradients, with them, and watched."""
    code = """
import torch, mha
from contextlib import nullcontext
torch.manual_seed(0)
layer, x = mha.ComposableAttention(512, 8), torch.randn(1, {n}, 512)
with torch.no_grad():
    layer(torch.randn(1, 150, 512))
start()
with {context}:
    layer(x)
"""
    rows = []
    for n in (1024, 2048, 4096):
        ways = ("torch.no_grad()", "nullcontext()")
        rows.append([str(n), *(f"{peak_megabytes(code.format(n=n, context=way)):.0f} MB" for way in ways)])
        print(rows[-1], flush=True)
    return table(["n", "without gradients", "with gradients"], rows)
