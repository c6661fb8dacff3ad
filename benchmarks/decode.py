"""Questions: what does one more token cost with a cache, can it be predicted, and what do shared heads save?

On a computer with a GPU the same tables are made there in bfloat16.
"""

import itertools
import math
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from timing import peak_megabytes, ratios, table, take_turns

import mha
from mha.functional import attention

D_MODEL, HEADS, SHARED = 512, 8, 2
CONTEXTS = (512, 1024, 2048, 4096, 8192, 16384)
GPU = torch.cuda.is_available()
DEVICE, DTYPE = ("cuda", torch.bfloat16) if GPU else ("cpu", torch.float32)
BATCH = 64 if GPU else 1  # one token alone leaves a GPU waiting for its own calls
TURNING = (4096 if GPU else 256) * 2**20  # bytes of caches that take turns: more than the processor's caches hold


def layer_of(kv_heads: int) -> mha.Heads:
    """A layer with full or with shared heads, the same at every call."""
    torch.manual_seed(0)
    plain = mha.MultiHeadAttention(D_MODEL, HEADS)
    layer = plain if kv_heads == HEADS else mha.GroupedAttention.from_plain(plain, kv_heads=kv_heads)
    return layer.to(DEVICE, DTYPE).eval()


def words(n: int) -> torch.Tensor:
    return torch.randn(BATCH, n, D_MODEL, device=DEVICE).to(DTYPE)


def filled(layer: mha.Heads, context: int) -> mha.KeyValueCache:
    """A cache that holds all but the last of ``context`` positions."""
    cache = layer.new_cache(context)
    shape = (BATCH, layer.kv_heads, context - 1, layer.d_head)
    if context > 1:
        cache.update(*(torch.randn(shape, device=DEVICE).to(DTYPE) for _ in range(2)))
    else:
        cache.update(*(torch.zeros(shape, device=DEVICE, dtype=DTYPE),) * 2)
    return cache


def step_of(layer: mha.Heads, context: int, turning: int = TURNING) -> Callable[[], None]:
    """One more token with a cache; at every call it is the turn of another cache, which was not read lately."""
    size = layer.cost(BATCH, 1, context, fresh=1).cache
    caches = itertools.cycle([filled(layer, context) for _ in range(max(1, min(512, math.ceil(turning / size))))])
    x = words(1)

    @torch.no_grad()
    def step() -> None:
        cache = next(caches)
        cache.length = context - 1  # forget the last token, to add it again
        layer(x, cache=cache, is_causal=True)
        if GPU:
            torch.cuda.synchronize()

    return step


def vector_product() -> tuple[Callable[[], None], int]:
    """A matrix times a vector, each time another matrix that was not read lately, and the bytes of one matrix."""
    x = torch.ones(4096, device=DEVICE, dtype=DTYPE)
    rows = TURNING // 8 // (4096 * x.element_size())
    matrices = itertools.cycle([torch.ones(rows, 4096, device=DEVICE, dtype=DTYPE) for _ in range(8)])

    def read() -> None:
        next(matrices) @ x
        if GPU:
            torch.cuda.synchronize()

    return read, rows * 4096 * x.element_size()


def predicted(seconds: float = 6.0) -> str:
    """Time one step at many contexts beside its prediction: fixed overhead + bytes of the cache / bandwidth."""
    read, size = vector_product()
    rows = []
    for kv_heads in (HEADS, SHARED):
        layer = layer_of(kv_heads)
        for context in CONTEXTS:
            moved = layer.cost(BATCH, 1, context, fresh=1).cache
            runs = {"nothing": step_of(layer, 1), "read": read, "step": step_of(layer, context)}
            found = {name: median(times) for name, times in take_turns(runs, seconds).items()}
            expected = found["nothing"] + moved * found["read"] / size
            numbers = f"{1e3 * expected:.2f}", f"{1e3 * found['step']:.2f}", f"{expected / found['step']:.2f}"
            rows.append([f"{kv_heads} of {HEADS}", str(context), f"{moved / 2**20:.1f}", *numbers])
            print(rows[-1], f"{size / found['read'] / 1e9:.1f} GB/s", flush=True)
    return table(["KV heads", "context", "cache, MB", "predicted, ms", "measured, ms", "ratio"], rows)


def cached(context: int = 4096, seconds: float = 20.0) -> str:
    """Compare one step with a cache with computing everything again."""
    layer, x = layer_of(HEADS), words(context)
    last = x[:, -1:].clone()

    def wait() -> None:
        if GPU:
            torch.cuda.synchronize()

    @torch.no_grad()
    def whole() -> None:
        layer(x, is_causal=True)
        wait()

    @torch.no_grad()
    def last_query() -> None:
        layer(last, x)
        wait()

    base = filled(layer, context)
    grown = [t[:, :, : context - 1].contiguous() for t in (base._k, base._v)]

    @torch.no_grad()
    def growing() -> None:  # what a cache without reserved capacity does: everything is copied for every token
        q, k, v = layer.project(last)
        k, v = (torch.cat([old, new], 2) for old, new in zip(grown, (k, v), strict=True))
        layer.merge(layer.attend(q, k, v))
        wait()

    name = "one step with the cache"
    runs = {name: step_of(layer, context), "cache grown by concatenation": growing}
    runs |= {"last query, all keys again": last_query, "everything again": whole}
    found = ratios(take_turns(runs, seconds), name)
    return table(["way", "times one step"], [[way, f"{found[way]:.1f}"] for way in runs])


def prompts(seconds: float = 10.0) -> str:
    """Compare one causal call over a whole prompt: time, and memory at its peak, of shared heads and of full ones."""
    code = """
import torch, mha
layer, x = mha.{layer}, torch.randn(1, {n}, 512)
with torch.no_grad():
    layer(x[:, :16], is_causal=True)
    start()
    layer(x, is_causal=True)
"""
    made = {HEADS: "MultiHeadAttention(512, 8)", SHARED: "GroupedAttention(512, 8, 2)"}
    rows = []
    for n in (2048, 8192):
        peaks = [peak_megabytes(code.format(layer=layer, n=n)) for layer in made.values()]
        x, layers = words(n)[:1], {kv: layer_of(kv) for kv in made}
        runs = {
            name: partial(_read, layers[kv], x) for name, kv in (("full", HEADS), ("again", HEADS), ("shared", SHARED))
        }
        found = ratios(take_turns(runs, seconds), "full")
        numbers = f"{found['again']:.2f}", f"{found['shared']:.2f}"
        rows.append([str(n), *numbers, *(f"{peak:.0f} MB" for peak in peaks), f"{peaks[1] / peaks[0]:.2f}"])
        print(rows[-1], flush=True)
    head = [
        "tokens",
        "the same again",
        f"time, {SHARED} of {HEADS}",
        "peak, all",
        f"peak, {SHARED} of {HEADS}",
        "ratio",
    ]
    return table(head, rows)


@torch.no_grad()
def _read(layer: mha.Heads, x: torch.Tensor) -> None:
    layer(x, is_causal=True)
    if GPU:
        torch.cuda.synchronize()


def sharing(seconds: float = 4.0) -> str:
    """Compare steps of shared heads with steps of full heads, with the keys repeated and not."""
    rows = []
    for context in CONTEXTS[2:]:
        full, shared = layer_of(HEADS), layer_of(SHARED)
        repeating = layer_of(SHARED)
        repeating._attend = lambda q, k, v, mask, is_causal, **_: attention.attend(
            q, *(t.repeat_interleave(HEADS // SHARED, 1) for t in (k, v)), mask, is_causal=is_causal
        )
        runs = {"full": step_of(full, context), "again": step_of(full, context), "shared": step_of(shared, context)}
        runs |= {"repeated": step_of(repeating, context)}
        found = ratios(take_turns(runs, seconds), "full")
        sizes = [one.cost(BATCH, 1, context, fresh=1).cache for one in (full, shared)]
        numbers = [f"{found[name]:.2f}" for name in ("again", "shared", "repeated")]
        rows.append([str(context), *numbers, f"{sizes[0] / sizes[1]:.0f} × smaller"])
        print(rows[-1], flush=True)
    return table(["context", "the same again", f"{SHARED} of {HEADS}, folded", "repeated keys", "cache"], rows)
