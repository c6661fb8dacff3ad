"""Question: what does one more token cost when only a latent is kept, beside full heads and shared ones?"""

import itertools
import math
import time
from collections.abc import Callable

import torch
from decode import BATCH, D_MODEL, DEVICE, DTYPE, GPU, HEADS, TURNING, layer_of, step_of, words
from timing import ratios, table, take_turns

import mha

CONTEXTS = (2048, 4096, 8192, 16384)
WIDTHS = ((96, 32), (48, 16))  # latent and rotated key: as many numbers as one KV head, and half as many


def latent_of(d_latent: int, d_rotary: int) -> mha.LatentAttention:
    """A layer of the same width and heads that keeps so many numbers of a token."""
    torch.manual_seed(0)
    return mha.LatentAttention(D_MODEL, HEADS, d_latent, d_rotary=d_rotary, bias=False).to(DEVICE, DTYPE).eval()


def latent_step(layer: mha.LatentAttention, context: int, absorb: bool) -> Callable[[], None]:
    """One more token with a cache of latents; several caches take turns, as in :func:`decode.step_of`."""
    size = layer.cost(BATCH, 1, context, fresh=1).cache
    caches = []
    for _ in range(max(1, min(512, math.ceil(TURNING / size)))):
        cache = layer.new_cache(context)
        rows = torch.randn(BATCH, 1, context - 1, layer.d_latent + layer.d_rotary, device=DEVICE).to(DTYPE)
        cache.update(rows, rows[..., : layer.d_latent])
        caches.append(cache)
    turn, x = itertools.cycle(caches), words(1)

    @torch.no_grad()
    def step() -> None:
        cache = next(turn)
        cache.length = context - 1  # forget the last token, to add it again
        layer(x, cache=cache, is_causal=True, absorb=absorb)
        if GPU:
            torch.cuda.synchronize()

    return step


def steps(seconds: float = 8.0) -> str:
    """Compare steps of latents, absorbed and expanded, with steps of full heads and of one KV head.

    On one thread, in processor time: what else a shared machine does counts little then.
    """
    rows, threads = [], torch.get_num_threads()
    torch.set_num_threads(1)
    for context in CONTEXTS:
        runs = {"full": step_of(layer_of(HEADS), context), "again": step_of(layer_of(HEADS), context)}
        runs["1 KV head"] = step_of(layer_of(1), context)
        for d_latent, d_rotary in WIDTHS:
            layer = latent_of(d_latent, d_rotary)
            runs[f"{d_latent} + {d_rotary}"] = latent_step(layer, context, True)
        runs["expanded"] = latent_step(latent_of(*WIDTHS[0]), context, False)
        clock = time.perf_counter if GPU else time.process_time
        found = ratios(take_turns(runs, seconds, clock=clock), "full")
        rows.append([str(context), *(f"{found[name]:.2f}" for name in list(runs)[1:])])
        print(rows[-1], flush=True)
    torch.set_num_threads(threads)
    names = [f"{c} + {r}, absorbed" for c, r in WIDTHS]
    return table(["context", "the same again", "1 KV head (128 numbers)", *names, "96 + 32, expanded"], rows)
