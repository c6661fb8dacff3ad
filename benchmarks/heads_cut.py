"""Question: how much faster is attention when heads are cut out of it, and when they are only silenced?"""

from collections.abc import Callable
from contextlib import ExitStack

import torch
from timing import ratios, table, take_turns

import mha
from mha.analysis import mask_heads

SHAPES = ((1, 256, 512, 8), (1, 1024, 512, 8), (1, 2048, 512, 8))  # batch, n, d_model, heads
PARTS = ("core, explicit formula", "core, fused kernel", "whole layer")
WHOLE, SAME, SILENT, HALF, ONE = "all heads", "the same again", "half silenced", "half cut", "all but one cut"
NAMES = (SAME, SILENT, HALF, ONE)


def core_of(layer: mha.Heads, x: torch.Tensor, explicit: bool) -> Callable[[], None]:
    """What is between the projections: scores, softmax, weighted sum. Queries, keys and values are ready."""
    with torch.no_grad():
        q, k, v = (part.contiguous() for part in layer.project(x))

    @torch.no_grad()
    def run() -> None:
        layer.at_heads(mha.attend(q, k, v, explicit=explicit))

    return run


def pass_of(layer: mha.Heads, x: torch.Tensor) -> Callable[[], None]:
    @torch.no_grad()
    def run() -> None:
        layer(x)

    return run


def candidates(b: int, n: int, d: int, h: int, part: str, stack: ExitStack) -> dict[str, Callable[[], None]]:
    """The layer, one with half its heads silenced, and layers from which heads were really cut."""
    torch.manual_seed(0)
    layer, silent, x = mha.MultiHeadAttention(d, h).eval(), mha.MultiHeadAttention(d, h).eval(), torch.randn(b, n, d)
    stack.enter_context(mask_heads(silent, {"": range(0, h, 2)}))
    half, one = layer.take_heads(range(0, h, 2)), layer.take_heads([0])
    layers = {WHOLE: layer, SAME: layer, SILENT: silent, HALF: half, ONE: one}
    if part == "whole layer":
        return {name: pass_of(one, x) for name, one in layers.items()}
    return {name: core_of(one, x, part == PARTS[0]) for name, one in layers.items()}


def fewer_heads(seconds: float = 12.0) -> str:
    """Time each part with all heads and with fewer: how many times faster, median against median."""
    rows = []
    for b, n, d, h in SHAPES:
        for part in PARTS:
            with ExitStack() as stack:
                found = ratios(take_turns(candidates(b, n, d, h, part, stack), seconds), WHOLE)
            rows.append([f"({b}, {n}, {d}, {h})", part, *(f"{1 / found[name]:.2f}" for name in NAMES)])
            print(rows[-1], flush=True)
    return table(["(batch, n, d_model, heads)", "part", *NAMES], rows)
