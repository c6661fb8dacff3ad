"""Question: what do the layers cost on a GPU, where a fused kernel is at its best?

    python benchmarks/gpu.py [--only decode variants ...] [--try] [--to FOLDER] [--minutes 9]

Everything is in bfloat16. The candidates of a row take turns in one process, in an order that changes; a time is the
median between two CUDA events. After each section the tables are stored in ``mha/course/on_a_gpu/results.json``, from
which the chapters show them, and in ``benchmarks/gpu.md``; with ``--to`` the store goes to a folder of yours, as from a
machine without this checkout (copy it here, then ``python benchmarks/gpu_page.py``). The sections are in the order of
their importance, each with a share of the minutes; one that finds its time used up is left out by name.
``--try`` runs everything tiny on the processor, shows that it works, and stores nothing.
"""

import argparse
import importlib.util
import itertools
import json
import math
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from datetime import date
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import gpu_page
import torch
import torch.nn.functional as F
from layers import FourLinears, candidates
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import mha
from mha.course import on_a_gpu
from mha.functional import delta_rule
from mha.functional.linear import apply_delta_rule
from mha.systems.roofline import measure_machine

SAME = on_a_gpu.SAME
Run = Callable[[], object]
Columns = dict[str, list[float | None]]
Found = dict[str, tuple[list[str], Columns]]  # table: its rows, and its columns


class Place:
    """Where everything is measured, and how much of the time is left."""

    def __init__(self, small: bool) -> None:
        self.small, self.device = small, "cpu" if small else "cuda"
        self.dtype = torch.float32 if small else torch.bfloat16
        self.end = math.inf

    def size(self, on_a_card: int, tried: int) -> int:
        """A size that fills a card; in a trial a tiny one."""
        return tried if self.small else on_a_card

    def randn(self, *shape: int) -> Tensor:
        return torch.randn(shape, device=self.device, dtype=self.dtype)

    def layer(self, kind: Callable[..., mha.Heads], *sizes: int, **more: object) -> mha.Heads:
        torch.manual_seed(0)
        return kind(*sizes, device=self.device, dtype=self.dtype, **more).eval()

    def wait(self) -> None:
        if not self.small:
            torch.cuda.synchronize()

    def left(self) -> float:
        """Seconds that this section still has."""
        return self.end - time.perf_counter()

    def timed(self, run: Run, calls: int) -> float:
        """Seconds of one call, out of some calls in a row."""
        if self.small:
            start = time.perf_counter()
            for _ in range(calls):
                run()
            return (time.perf_counter() - start) / calls
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        for _ in range(calls):
            run()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / 1e3 / calls


class Candidate(NamedTuple):
    """What one call does, and how many calls fit between two events."""

    run: Run
    calls: int


def warm(place: Place, makes: dict[str, Callable[[], Run]]) -> dict[str, Candidate]:
    """Build and warm up each candidate; what cannot run here is named, and left out."""
    ready = {}
    for name, make in makes.items():
        try:
            run = make()
            run(), run()
            place.wait()
            start = time.perf_counter()
            run()
            place.wait()
        except Exception as error:  # a kernel that is not for this card, no memory, no compiler: the others go on
            if place.small and not isinstance(error, (NotImplementedError, ImportError)):
                raise  # a trial finds bugs
            print(f"  skipped: {name} ({type(error).__name__}: {str(error)[:90]})", flush=True)
            if not place.small:
                torch.cuda.empty_cache()
        else:
            ready[name] = Candidate(run, max(1, min(20, int(2e-3 / (time.perf_counter() - start)))))
    return ready


def turns(place: Place, makes: dict[str, Callable[[], Run]], seconds: float) -> dict[str, float]:
    """Median seconds of one call of each candidate; they take turns."""
    ready = warm(place, makes)
    names, times = list(ready), {name: [] for name in ready}
    end, rounds = time.perf_counter() + (0 if place.small else seconds), 0
    while names and rounds < 200 and (rounds < (2 if place.small else 7) or time.perf_counter() < end):
        random.shuffle(names)
        rounds += 1
        for name in names:
            times[name].append(place.timed(*ready[name]))
    found = {name: median(values) for name, values in times.items()}
    print("  " + ", ".join(f"{name} {1e6 * found[name]:,.0f} µs" for name in makes if name in found), flush=True)
    return found


def made(run: Run) -> Callable[[], Run]:
    """A candidate that is there already."""
    return lambda: run


def collect(rows: Iterable[dict[str, float]], scale: float, names: Iterable[str]) -> Columns:
    """The columns of a table, out of its rows of seconds."""
    rows = list(rows)
    columns: Columns = {name: [scale * row[name] if name in row else None for row in rows] for name in names}
    return {name: values for name, values in columns.items() if any(value is not None for value in values)}


def no_grad(run: Run) -> Run:
    return torch.no_grad()(run)


# ---- the card


def ceilings(place: Place, seconds: float) -> Found:
    """The two ceilings, as large products and copies reach them, and as ``measure_machine`` says."""
    n, numbers = place.size(8192, 64), place.size(2**30, 2**12)
    a, b = place.randn(n, n), place.randn(n, n)
    x, y = (torch.zeros(numbers, device=place.device, dtype=place.dtype) for _ in range(2))
    runs: dict[str, Run] = {"product": lambda: a @ b, "copy": lambda: y.copy_(x)}
    again = {f"{name}, {SAME}": made(run) for name, run in runs.items()}
    times = turns(place, {name: made(run) for name, run in runs.items()} | again, seconds)
    machine = measure_machine(place.dtype, place.device, n=n, megabytes=place.size(4096, 1))
    best = [2 * n**3 / times["product"] / 1e12, 2 * x.nbytes / times["copy"] / 1e9]
    said = [machine.flops / 1e12, machine.bandwidth / 1e9]
    columns: Columns = {"best measured": [*best], "measure_machine": [*said]}
    columns[SAME] = [times[f"{name}, {SAME}"] / times[name] for name in runs]
    return {"ceilings": (["matrix product, TFLOP/s", "copy, GB/s"], columns)}


# ---- one more token

CONTEXTS = ((1, 4096), (1, 32768), (1, 65536), (32, 4096), (32, 16384), (32, 65536))
TURNING = 2**28  # bytes of caches that take turns, so that no step finds its numbers in the cache of the card
LATENT, ROTARY = 512, 64


def pairs(contexts: Iterable[tuple[int, int]]) -> list[str]:
    return [f"{batch} × {context:,}" for batch, context in contexts]


@torch.no_grad()
def step(place: Place, layer: mha.Heads, batch: int, context: int, window: int = 0, **how: object) -> Run:
    """One more token with a cache that is full but for one; several caches take turns."""
    count = max(1, min(8, TURNING // max(1, layer.cost(batch, 1, context, fresh=1).cache)))
    caches, x = [], place.randn(batch, 1, layer.d_model)
    for _ in range(1 if place.small else count):
        cache = mha.layers.WindowCache(window) if window else layer.new_cache(context)
        past = min(context, window) - 1 if window else context - 1
        if isinstance(layer, mha.LatentAttention):
            rows = place.randn(batch, 1, past, layer.d_latent + layer.d_rotary)
            cache.update(rows, rows[..., : layer.d_latent])
        elif isinstance(cache, mha.layers.StateCache):
            layer(x, cache=cache, is_causal=True)
        else:
            shape = batch, layer.kv_heads, past, layer.d_head
            cache.update(place.randn(*shape), place.randn(*shape))
        caches.append(cache)
    turn, again = itertools.cycle(caches), not window and not isinstance(caches[0], mha.layers.StateCache)

    def run() -> None:
        cache = next(turn)
        if again:
            cache.length = context - 1  # forget the last token, to add it again
        layer(x, cache=cache, is_causal=True, **how)

    return no_grad(run)


class LeastStep(torch.nn.Module):
    """The least code of a step: four linear layers, two assignments, and the fused kernel."""

    def __init__(self, place: Place, d: int, heads: int, kv_heads: int, batch: int, context: int) -> None:
        super().__init__()
        self.kv_heads, self.d_head = kv_heads, d // heads
        how = {"bias": False, "device": place.device, "dtype": place.dtype}
        inner = kv_heads * self.d_head
        self.q, self.k, self.v, self.o = (torch.nn.Linear(d, width, **how) for width in (d, inner, inner, d))
        self.keys, self.values = (place.randn(batch, kv_heads, context, self.d_head) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (-1, self.d_head)).transpose(1, 2) for f in (self.q, self.k, self.v))
        self.keys[:, :, -1:], self.values[:, :, -1:] = k, v
        y = F.scaled_dot_product_attention(q, self.keys, self.values, enable_gqa=self.kv_heads < q.shape[1])
        return self.o(y.transpose(1, 2).flatten(2))


def least_step(place: Place, d: int, heads: int, kv_heads: int, batch: int, context: int) -> Run:
    """One step of the least code."""
    return no_grad(partial(LeastStep(place, d, heads, kv_heads, batch, context).eval(), place.randn(batch, 1, d)))


def graphed(place: Place, run: Run) -> Run:
    """All launches of a call, replayed as one."""
    if place.small:
        raise NotImplementedError("a CUDA graph needs a card")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def decode(place: Place, seconds: float) -> Found:
    """One more token with each kind of cache, whole layer."""
    d, heads = place.size(4096, 64), place.size(32, 4)
    latent, rotary = place.size(LATENT, 16), place.size(ROTARY, 4)
    build = partial(place.layer, bias=False)
    full, few, one = (
        build(mha.MultiHeadAttention, d, heads),
        *(build(mha.GroupedAttention, d, heads, kv) for kv in (place.size(8, 2), 1)),
    )
    mla = build(mha.LatentAttention, d, heads, latent, d_rotary=rotary)
    linear, delta = build(mha.LinearAttention, d, heads), build(mha.DeltaAttention, d, heads)
    rows = []
    for batch, context in CONTEXTS:
        print(f"  {batch} × {context:,}")
        b, n = place.size(batch, 2), place.size(context, 16)
        least = {
            name: partial(least_step, place, d, heads, kv, b, n) for name, kv in (("32", heads), ("8", few.kv_heads))
        }
        makes = {
            "32 KV heads": partial(step, place, full, b, n),
            SAME: partial(step, place, full, b, n),
            "8 KV heads": partial(step, place, few, b, n),
            "1 KV head": partial(step, place, one, b, n),
            "MLA, absorbed": partial(step, place, mla, b, n, absorb=True),
            "MLA, expanded": partial(step, place, mla, b, n, absorb=False),
            "window of 4,096": partial(step, place, full, b, n, window=place.size(4096, 8)),
            "linear": partial(step, place, linear, b, n),
            "delta rule": partial(step, place, delta, b, n),
        }
        for name, make in least.items():
            makes[f"least code, {name}"] = make
            makes[f"{name}, CUDA graph"] = lambda make=make: graphed(place, make())
        if b * n > 2**20:  # two full caches fill the card
            makes = {name: make for name, make in makes.items() if name in FITS}
        rows.append(turns(place, makes, seconds / len(CONTEXTS)))
        clear(place)
    return {"decode": (pairs(CONTEXTS), with_same(collect(rows, 1e6, NAMES), "32 KV heads"))}


FITS = ("32 KV heads", "8 KV heads", "1 KV head", "MLA, absorbed", "linear", "delta rule")
NAMES = ["32 KV heads", "8 KV heads", "1 KV head", "MLA, absorbed", "MLA, expanded", "window of 4,096", "linear"]
NAMES += ["delta rule", "least code, 32", "least code, 8", "32, CUDA graph", "8, CUDA graph", SAME]


def with_same(columns: Columns, base: str) -> Columns:
    """Write the column of the noise as multiples of the base."""
    if SAME in columns:
        both = zip(columns[SAME], columns[base], strict=True)
        columns[SAME] = [None if a is None or b is None else a / b for a, b in both]
    return columns


def clear(place: Place) -> None:
    if not place.small:
        torch.cuda.empty_cache()


def latent(place: Place, seconds: float) -> Found:
    """The core of a step with latents, in one call and as two products, beside full and shared heads."""
    heads, width, value = place.size(32, 4), place.size(LATENT + ROTARY, 20), place.size(LATENT, 16)
    contexts, rows = [CONTEXTS[0], CONTEXTS[1], CONTEXTS[3], CONTEXTS[4]], []
    attend = F.scaled_dot_product_attention
    for batch, context in contexts:
        print(f"  {batch} × {context:,}")
        b, n, few, d = place.size(batch, 2), place.size(context, 16), place.size(8, 2), place.size(128, 8)
        wide, kept = place.randn(b, heads, 1, width), place.randn(b, 1, n, width)
        q, k, v = place.randn(b, heads, 1, d), *(place.randn(b, heads, n, d) for _ in range(2))
        k8, v8 = (place.randn(b, few, n, d) for _ in range(2))

        def products(wide: Tensor = wide, kept: Tensor = kept) -> Tensor:
            asked = wide.transpose(1, 2)
            weights = (asked * width**-0.5 @ kept.mT).softmax(-1)
            return (weights @ kept[..., :value]).transpose(1, 2)

        def one_call(wide: Tensor = wide, kept: Tensor = kept, b: int = b, n: int = n) -> Tensor:
            rows = kept.expand(b, heads, n, width)
            return attend(wide, rows, rows[..., :value])

        def folded(q: Tensor = q, k: Tensor = k8, v: Tensor = v8, b: int = b, few: int = few) -> Tensor:
            return attend(q.reshape(b, few, -1, q.shape[-1]), k, v).reshape(q.shape)

        shared, whole = partial(attend, q, k8, v8, enable_gqa=True), partial(attend, q, k, v)
        if place.small:
            torch.testing.assert_close(products(), one_call())
            torch.testing.assert_close(folded(), shared())
        makes = {"32 KV heads": whole, SAME: whole, "8 KV heads, enable_gqa": shared, "8 KV heads, folded": folded}
        makes |= {"MLA, two products": products, "MLA, one call": one_call}
        rows.append(turns(place, {name: made(run) for name, run in makes.items()}, seconds / 4))
        clear(place)
    names = ["MLA, two products", "MLA, one call", "32 KV heads", "8 KV heads, enable_gqa", "8 KV heads, folded", SAME]
    return {"latent": (pairs(contexts), with_same(collect(rows, 1e6, names), "32 KV heads"))}


# ---- whole sequences

LENGTHS = (1024, 4096, 8192, 16384, 65536)


def texts(place: Place, seconds: float) -> Found:
    """A whole causal sequence through layers with a state, beside the plain layer."""
    d, heads, rows = place.size(2048, 32), place.size(16, 2), []
    kinds = {"plain": mha.MultiHeadAttention, "linear": mha.LinearAttention, "delta rule": mha.DeltaAttention}
    built = {name: place.layer(kind, d, heads) for name, kind in kinds.items()}
    for n in LENGTHS:
        print(f"  {n:,} tokens")
        x = place.randn(1, place.size(n, 96), d)
        makes = {name: made(no_grad(partial(layer, x, is_causal=True))) for name, layer in built.items()}
        rows.append(turns(place, makes | {SAME: makes["plain"]}, seconds / len(LENGTHS)))
    lengths = [f"{n:,}" for n in LENGTHS]
    return {"texts": (lengths, with_same(collect(rows, 1e3, [*kinds, SAME]), "plain"))}


def loopless(q: Tensor, k: Tensor, v: Tensor, chunk: int = 256) -> Tensor:
    """Causal linear attention without features and without a loop: states are one cumulative sum over the chunks."""
    q, k, v = (x.unflatten(2, (-1, min(chunk, x.shape[2]))) for x in (q, k, v))
    written = k.mT @ v
    before = written.float().cumsum(2).to(written.dtype) - written
    return (q @ before + (q @ k.mT).tril() @ v).flatten(2, 3)


def kernels(place: Place, seconds: float) -> Found:
    """The same without projections: without a loop, in larger chunks, and by the kernels of another library."""
    heads, d, rows = place.size(16, 2), place.size(128, 8), []
    for length in LENGTHS:
        print(f"  {length:,} tokens")
        n = place.size(length, 96)
        q, k, v = (place.randn(1, heads, n, d) for _ in range(3))
        k = F.normalize(k.float(), dim=-1).to(k.dtype)
        beta, decay = place.randn(1, heads, n).sigmoid(), -place.randn(1, heads, n).abs()
        softmax = no_grad(partial(F.scaled_dot_product_attention, q, k, v, is_causal=True))
        delta = {
            c: no_grad(partial(apply_delta_rule, q, k, v, beta, None, erase=True, chunk=min(c, n)))
            for c in (64, 128, 256)
        }
        if place.small:
            torch.testing.assert_close(loopless(q, k, v, 32), delta_rule(q, k, v, erase=False)[0], atol=1e-4, rtol=1e-4)
        makes: dict[str, Callable[[], Run]] = {
            "softmax, fused": made(softmax),
            SAME: made(softmax),
            "linear, no loop": made(no_grad(partial(loopless, q, k, v))),
            "delta, chunks of 64": made(delta[64]),
            "delta, chunks of 256": made(delta[256]),
            "delta, CUDA graph": lambda delta=delta: graphed(place, delta[128]),
        }
        makes |= by_fla(*(x.transpose(1, 2).contiguous() for x in (q, k, v, beta, decay)))
        rows.append(turns(place, makes, seconds / len(LENGTHS)))
        clear(place)
    names = ["softmax, fused", "linear, no loop", "delta, chunks of 64", "delta, chunks of 256", "delta, CUDA graph"]
    names += ["linear, fla", "delta, fla", "gated delta, fla", SAME]
    return {"kernels": ([f"{n:,}" for n in LENGTHS], with_same(collect(rows, 1e3, names), "softmax, fused"))}


def by_fla(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor) -> dict[str, Callable[[], Run]]:
    """The kernels of flash-linear-attention, where it is installed; it keeps tokens before heads."""
    if importlib.util.find_spec("fla") is None:
        print("  skipped: flash-linear-attention (fla is not installed)")
        return {}

    def linear() -> Run:
        from fla.ops.linear_attn import chunk_linear_attn

        return no_grad(partial(chunk_linear_attn, q=q, k=k, v=v))

    def delta() -> Run:
        from fla.ops.delta_rule import chunk_delta_rule

        return no_grad(partial(chunk_delta_rule, q=q, k=k, v=v, beta=beta))

    def gated() -> Run:
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule

        return no_grad(partial(chunk_gated_delta_rule, q=q, k=k, v=v, g=decay, beta=beta))

    return {"linear, fla": linear, "delta, fla": delta, "gated delta, fla": gated}


# ---- every layer


def variants_of(place: Place) -> dict[str, mha.Heads]:
    """Every kind of layer, at one size."""
    d, h, n = place.size(1024, 32), place.size(16, 4), place.size(2048, 24)
    build = place.layer
    return {
        "plain": build(mha.MultiHeadAttention, d, h),
        "grouped, 4 KV heads": build(mha.GroupedAttention, d, h, h // 4),
        "gate for each head": build(mha.GatedAttention, d, h),
        "gate for each channel": build(mha.GatedAttention, d, h, gate="channel"),
        "overlapping": build(mha.OverlappingAttention, d, h),
        "sink": build(mha.SinkAttention, d, h),
        "RoPE": build(mha.MultiHeadAttention, d, h, positions=mha.RotaryPositions()),
        "MLA, expanded": build(mha.LatentAttention, d, h, d // 4),
        "linear": build(mha.LinearAttention, d, h),
        "delta rule": build(mha.DeltaAttention, d, h),
        "KDA": build(partial(mha.DeltaAttention.as_released, "Kimi Linear"), d, h),
        "indexed, an eighth": build(mha.IndexedAttention, d, h, n // 8),
        "ALiBi": build(mha.MultiHeadAttention, d, h, positions=mha.LinearBias()),
        "routed": build(mha.RoutedAttention, d, h, h // 4, h // 4),
        "collaborative": build(mha.CollaborativeAttention, d, h),
        "talking": build(mha.TalkingAttention, d, h),
        "composable": build(mha.ComposableAttention, d, h),
        "sparse": build(mha.EntmaxAttention, d, h),
        "merged, two sources": build(mha.MergedAttention, d, h),
        "feedback, last token": build(mha.FeedbackAttention, d, h, steps=n),
    }


def called(layer: mha.Heads, x: Tensor, run: Callable[..., Tensor] | None = None) -> Tensor:
    """A whole causal sequence; merged layers also read it as a memory, and with feedback one query reads it."""
    run = layer if run is None else run
    if isinstance(layer, mha.MergedAttention):
        return run(x, x)
    if isinstance(layer, mha.FeedbackAttention):
        return run(x[:, -1:], x)
    return run(x, is_causal=True)


def watched(layer: mha.Heads, x: Tensor) -> None:
    with mha.watch(layer):
        layer(x, is_causal=True)


def both(layer: mha.Heads, x: Tensor) -> None:
    called(layer, x).sum().backward()


def peak(place: Place, run: Run) -> float | None:
    """How much memory a call takes at its peak beyond what is there before, in MiB."""
    if place.small:
        return None
    for _ in range(2):  # the second time gradients exist
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def variants(place: Place, seconds: float) -> Found:
    """Whole layers, forward, forward and backward, and their peak of memory."""
    built, n = variants_of(place), place.size(2048, 24)
    x = place.randn(place.size(4, 2), n, built["plain"].d_model)
    taught = x.clone().requires_grad_()
    forward = {name: made(no_grad(partial(called, layer, x))) for name, layer in built.items()}
    forward |= {AGAIN: forward["plain"], "plain, watched": made(no_grad(partial(watched, built["plain"], x)))}
    backward = {name: made(partial(both, layer, taught)) for name, layer in built.items()}
    backward[AGAIN] = backward["plain"]
    there, back = (turns(place, makes, seconds / 2) for makes in (forward, backward))
    for times, makes, given in ((there, forward, x), (back, backward, taught)):
        times |= splashed(place, built["sparse"], given, makes["plain"], times["plain"])
    names = [*built, SPLASH]
    names.insert(names.index("MLA, expanded") + 1, "plain, watched")
    names.append(AGAIN)
    columns: Columns = {
        "forward": [there[name] / there["plain"] if name in there else None for name in names],
        "forward + backward": [back[name] / back["plain"] if name in back else None for name in names],
        "peak, MiB": [peak(place, backward[name]()) if name in back else None for name in names],
    }
    return {"variants": (names, {name: values for name, values in columns.items() if any(values)})}


AGAIN = "plain, the same again"
SPLASH = "sparse, adasplash"
TUNING = 600  # seconds that must be left where kernels are tuned first


def splashed(place: Place, layer: mha.Heads, x: Tensor, plain: Callable[[], Run], took: float) -> dict[str, float]:
    """Seconds of sparse heads by another library's kernel, in turns with the plain layer, which ``took`` so many."""
    if importlib.util.find_spec("adasplash") is None:
        reason = "adasplash is not installed"
    elif place.small:
        reason = "a kernel in Triton needs a card"
    elif place.left() < TUNING:
        reason = "its kernels are tuned for minutes: --only variants --minutes 20"
    else:
        times = turns(place, {"plain": plain, SPLASH: partial(by_adasplash, layer, x)}, 2.0)
        return {SPLASH: times[SPLASH] / times["plain"] * took} if len(times) == 2 else {}
    print(f"  skipped: {SPLASH} ({reason})")
    return {}


def by_adasplash(layer: mha.Heads, x: Tensor) -> Run:
    """Sparse heads with α = 1.5, by a kernel in Triton between our projections; refused where its numbers differ."""
    from adasplash import adasplash

    def run() -> Tensor:
        q, k, v = (part.contiguous() for part in layer.project(x))
        return layer.merge(adasplash(q, k, v, alpha=1.5, is_causal=True))

    with torch.no_grad():
        right, found = layer(x, is_causal=True).float(), run().float()
    if (off := float((found - right).norm() / right.norm())) > 0.05:
        raise ValueError(f"differs from ours by {off:.0%}")
    if not x.requires_grad:
        return no_grad(run)
    return lambda: run().sum().backward()


def compiled(place: Place, seconds: float) -> Found:
    """How many times faster ``torch.compile`` makes the forward pass; compiling takes long, so as many as fit."""
    built, found, again = variants_of(place), {}, {}
    x = place.randn(place.size(4, 2), place.size(2048, 24), built["plain"].d_model)
    how = {"backend": "eager"} if place.small else {"dynamic": False}
    first = ["plain", "RoPE", "sink", "MLA, expanded", "delta rule", "talking", "composable", "sparse"]
    for name in first[:2] if place.small else [*first, *(one for one in built if one not in first)]:
        if place.left() < 25:
            print(f"  skipped: {name} (no time is left)")
            continue
        torch.compiler.reset()
        eager = no_grad(partial(called, built[name], x))
        fast = no_grad(partial(called, built[name], x, torch.compile(built[name], **how)))
        times = turns(place, {name: made(eager), "compiled": made(fast), SAME: made(eager)}, 2.0)
        found[name] = times[name] / times["compiled"] if {name, "compiled"} <= set(times) else None
        again[name] = times[SAME] / times[name] if {name, SAME} <= set(times) else None
    return {"compiled": (list(found), {"faster by": list(found.values()), SAME: list(again.values())})}


def routed(place: Place, seconds: float) -> Found:
    """Routed heads with heads left out and with all of them computed, beside plain ones."""
    d, h, lengths, rows = place.size(1024, 32), place.size(16, 8), (2048, 4096, 8192), []
    plain, layer = place.layer(mha.MultiHeadAttention, d, h), place.layer(mha.RoutedAttention, d, h, h // 4, h // 4)

    def run(skip_from: int, x: Tensor) -> None:
        layer.skip_from = layer.skip_from_on_card = skip_from
        layer(x)

    for n in lengths:
        print(f"  {n:,} tokens")
        x = place.randn(place.size(4, 1), place.size(n, 48), d)
        makes = {"plain": made(no_grad(partial(plain, x))), SAME: made(no_grad(partial(plain, x)))}
        makes |= {
            "heads left out": made(no_grad(partial(run, 0, x))),
            "all computed": made(no_grad(partial(run, 2**60, x))),
        }
        rows.append(turns(place, makes, seconds / 3))
    names = ["plain", "heads left out", "all computed", SAME]
    return {"routed": ([f"{n:,}" for n in lengths], with_same(collect(rows, 1e3, names), "plain"))}


# ---- peers, and a compiler's kernels

SHAPES = ((1, 16, 512, 8), (8, 128, 512, 8), (8, 1024, 1024, 16), (4, 4096, 2048, 16), (1, 16384, 4096, 32))
COMPILING = 75  # seconds after which no more shapes are compiled
PEERS = {  # our name: that of benchmarks/layers.py
    "mha": "mha.MultiHeadAttention",
    SAME: "the same again",
    "nn.MHA": "nn.MultiheadAttention",
    "Llama": "transformers LlamaAttention",
    "x-transformers": "x-transformers, flash on",
}


def plain(place: Place, seconds: float) -> Found:
    """The plain layer, the least code and other libraries' layers, small and large."""
    rows, names, peaks, start = [], [], [], time.perf_counter()
    for sizes in SHAPES:
        b, n, d, h = (2, 8, 32, 4) if place.small else sizes
        old = torch.get_default_dtype()
        torch.set_default_dtype(place.dtype)
        try:
            with torch.device(place.device):
                made_here = candidates(d, h, n, True)
        finally:
            torch.set_default_dtype(old)
        runs = {name: made_here[theirs] for name, theirs in PEERS.items() if theirs in made_here}
        runs["least code"] = made_here["four linears + kernel"]
        if time.perf_counter() - start < COMPILING and not place.small:
            ours, base = place.layer(mha.MultiHeadAttention, d, h), FourLinears(d, h).to(place.device, place.dtype)
            runs["mha, compiled"] = partial(torch.compile(ours, dynamic=False), is_causal=True)
            runs["least code, compiled"] = partial(torch.compile(base, dynamic=False), is_causal=True)
        for kind in ("forward", "both"):
            if (kind, sizes) in (("both", SHAPES[0]), ("both", SHAPES[2])):
                continue
            names.append(f"{sizes} {kind}")
            print(f"  {names[-1]}")
            x = place.randn(b, n, d).requires_grad_(kind == "both")
            makes = {name: made(one_pass(run, x)) for name, run in runs.items()}
            rows.append(turns(place, makes, seconds / 8))
            peaks.append({name: peak(place, makes[name]()) for name in ("mha", "least code") if name in rows[-1]})
        clear(place)
    base = [row.get("least code", math.nan) for row in rows]
    ratios = [{name: took / row["least code"] for name, took in row.items()} for row in rows]
    columns = {"least code, ms": [1e3 * one for one in base]}
    others = ["mha", "nn.MHA", "Llama", "x-transformers", "mha, compiled", "least code, compiled", SAME]
    columns |= collect(ratios, 1, others)
    if not place.small:
        columns |= {f"{name}, peak, MiB": [row.get(name) for row in peaks] for name in ("mha", "least code")}
    return {"plain": (names, columns)}


def one_pass(run: Callable[[Tensor], Tensor], x: Tensor) -> Run:
    if not x.requires_grad:
        return no_grad(partial(run, x))
    return lambda: run(x).sum().backward()


def window(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return (i >= j) & (i - j < 256)


def past(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return i >= j


def capped(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return 20 * torch.tanh(score / 20)


def sloped(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return score - torch.exp2(-0.5 * (h + 1)) * (i - j)


def flex(place: Place, seconds: float) -> Found:
    """FlexAttention beside the fused kernel and the explicit formula."""
    h, d, rows, lengths = place.size(16, 2), place.size(64, 8), [], (4096, 16384)
    torch.compiler.reset()
    fast = torch.compile(flex_attention, **({"backend": "eager"} if place.small else {"dynamic": False}))
    for length in lengths:
        print(f"  {length:,} tokens")
        n = place.size(length, 32)
        q, k, v = (place.randn(2, h, n, d) for _ in range(3))
        blocks = {rule: create_block_mask(rule, None, None, n, n, device=place.device) for rule in (past, window)}
        fused = partial(F.scaled_dot_product_attention, q, k, v)
        makes = {
            "causal, fused": partial(fused, is_causal=True),
            SAME: partial(fused, is_causal=True),
            "causal": partial(fast, q, k, v, block_mask=blocks[past]),
            "window of 256": partial(fast, q, k, v, block_mask=blocks[window]),
            "window, fused with a mask": partial(fused, attn_mask=mha.sliding_window(n, 256).to(place.device)),
            "soft cap": partial(fast, q, k, v, score_mod=capped, block_mask=blocks[past]),
        }
        if length == lengths[0]:  # the formula materializes n² scores of each head
            edit = {"is_causal": True, "edit_scores": lambda s: 20 * torch.tanh(s / 20)}
            makes["soft cap, explicit"] = partial(mha.attend, q, k, v, **edit)
        rows.append(turns(place, {name: made(no_grad(run)) for name, run in makes.items()}, seconds / 2))
        clear(place)
    base = [row["causal, fused"] for row in rows]
    ratios = [{name: took / row["causal, fused"] for name, took in row.items()} for row in rows]
    names = ["causal", "window of 256", "window, fused with a mask", "soft cap", "soft cap, explicit", SAME]
    columns: Columns = {"causal, fused, ms": [1e3 * one for one in base]} | collect(ratios, 1, names)
    return {"flex": ([f"{n:,}" for n in lengths], columns)}


def edits(place: Place, seconds: float) -> Found:
    """ALiBi in three ways: scores edited in torch, a float mask that is kept, FlexAttention."""
    b, h, n, d = place.size(4, 2), place.size(16, 2), place.size(2048, 32), place.size(64, 8)
    q, k, v = (place.randn(b, h, n, d) for _ in range(3))
    at = torch.arange(n, device=place.device)
    slopes = torch.exp2(-0.5 * torch.arange(1, h + 1, device=place.device))[:, None, None]
    bias = (-slopes * (at[:, None] - at)).masked_fill(at[:, None] < at, -math.inf).to(place.dtype)
    torch.compiler.reset()
    fast = torch.compile(flex_attention, **({"backend": "eager"} if place.small else {"dynamic": False}))
    rule = create_block_mask(past, None, None, n, n, device=place.device)
    near = (slopes * (at[:, None] - at)).to(place.dtype)
    fused = partial(F.scaled_dot_product_attention, q, k, v)
    ways = {
        "no bias": partial(fused, is_causal=True),
        "bias kept in a float mask": partial(fused, attn_mask=bias.expand(b, h, n, n)),
        "FlexAttention": partial(fast, q, k, v, score_mod=sloped, block_mask=rule),
        "scores edited in torch": partial(mha.attend, q, k, v, is_causal=True, edit_scores=lambda s: s - near),
        "no bias, the same again": partial(fused, is_causal=True),
    }
    if place.small:
        for name in list(ways)[1:3]:
            torch.testing.assert_close(ways[name](), ways["scores edited in torch"](), atol=1e-5, rtol=1e-4)
    times = turns(place, {name: made(no_grad(run)) for name, run in ways.items()}, seconds)
    return {"edits": (list(times), {"ALiBi, ms": [1e3 * took for took in times.values()]})}


SECTIONS: dict[str, tuple[Callable[[Place, float], Found], int]] = {  # in the order of importance; seconds of measuring
    "ceilings": (ceilings, 4),
    "decode": (decode, 36),
    "variants": (variants, 30),
    "latent": (latent, 12),
    "texts": (texts, 24),
    "kernels": (kernels, 24),
    "routed": (routed, 9),
    "flex": (flex, 12),
    "edits": (edits, 4),
    "plain": (plain, 24),
    "compiled": (compiled, 60),
}


def stretched(table: dict, rows: list[str]) -> dict:
    """The columns of a stored table for rows that all of its own are among; what it does not have is empty."""
    if not set(table["rows"]) <= set(rows):
        return {}
    columns = {}
    for name, entry in table["columns"].items():
        stored = dict(zip(table["rows"], entry["values"], strict=True))
        columns[name] = {**entry, "values": [stored.get(row) for row in rows]}
    return columns


def merged(store: dict, run: dict[str, str], found: Found) -> dict:
    """The stored tables with new figures; columns that were not measured stay, where their rows are among the new."""
    key = f"{run['card']}, {run['date']}"
    tables = dict(store["tables"])
    for name, (rows, columns) in found.items():
        kept = stretched(tables[name], rows) if name in tables else {}
        new = {
            column: {"run": key, "values": [None if v is None else float(f"{v:.4g}") for v in values], "awaits": []}
            for column, values in columns.items()
        }
        tables[name] = {"rows": rows, "columns": {**kept, **new}}
    runs = {**store["runs"], key: run}
    used = {entry["run"] for table in tables.values() for entry in table["columns"].values()}
    return {"runs": {key: value for key, value in runs.items() if key in used}, "tables": tables}


def this_run() -> dict[str, str]:
    """Name the card, its driver, torch and the day."""
    driver = ""
    if shutil.which("nvidia-smi"):
        ask = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        driver = (subprocess.run(ask, capture_output=True, text=True, check=False).stdout.split() or [""])[0]
    card = torch.cuda.get_device_name()
    return {"card": card, "torch": torch.__version__, "date": date.today().isoformat(), "driver": driver}


def main(arguments: list[str]) -> None:
    """Measure the sections that were asked for, or all, and store each at its end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), metavar="SECTION")
    parser.add_argument("--try", dest="small", action="store_true", help="tiny, on the processor, nothing is stored")
    parser.add_argument("--to", type=Path, help="a folder for results.json; the course's own unless given")
    parser.add_argument("--minutes", type=float, default=9.0, help="when no other section begins; 9 unless given")
    asked = parser.parse_args(arguments)
    if not asked.small and not torch.cuda.is_available():
        sys.exit("There is no GPU here. `python benchmarks/gpu.py --try` shows that the code works.")
    place, end = Place(asked.small), time.perf_counter() + 60 * asked.minutes
    chosen = [name for name in SECTIONS if name in asked.only]
    store = json.loads(on_a_gpu.STORE.read_text("utf8"))
    for name in chosen:
        if (left := end - time.perf_counter()) < 15:
            print(f"skipped: {name} (the {asked.minutes:g} minutes are over)")
            continue
        section, seconds = SECTIONS[name]
        place.end, start = time.perf_counter() + left - 10, time.perf_counter()
        print(f"\n## {name}", flush=True)
        try:
            found = section(place, seconds)
        except Exception as error:  # a card that is too small for it: the other sections go on
            if place.small:
                raise
            print(f"failed: {name} ({type(error).__name__}: {str(error)[:200]})")
            continue
        finally:
            clear(place)
        print(f"{name} took {time.perf_counter() - start:.0f} s", flush=True)
        store = merged(store, {"card": "", "torch": "", "date": ""} if asked.small else this_run(), found)
        if not asked.small:
            gpu_page.write(store, asked.to)
    if not asked.small:
        print("\nChapters show these tables: `make notebooks` makes their outputs anew.")


if __name__ == "__main__":
    main(sys.argv[1:])
