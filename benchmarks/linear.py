"""Questions: from which length does a state beat the fused kernel, and does what it keeps stay flat?"""

from collections.abc import Callable

import torch
from timing import ratios, table, take_turns

import mha

D_MODEL, HEADS = 512, 8
LENGTHS = (512, 1024, 2048, 4096)
CONTEXTS = (1024, 4096, 16384, 65536)


def layers() -> dict[str, mha.Heads]:
    """Layers of equal width; the base is named twice, to show the noise."""
    torch.manual_seed(0)
    plain = mha.MultiHeadAttention(D_MODEL, HEADS)
    made = {"plain": plain, "again": plain, "linear": mha.LinearAttention(D_MODEL, HEADS)}
    return {name: layer.eval() for name, layer in (made | {"delta": mha.DeltaAttention(D_MODEL, HEADS)}).items()}


@torch.no_grad()
def _read(layer: mha.Heads, x: torch.Tensor) -> None:
    layer(x, is_causal=True)


def long_texts(seconds: float = 6.0) -> str:
    """Compare one causal call over a sequence with the plain layer's, whose kernel never materializes the weights."""
    rows, made = [], layers()
    for n in LENGTHS:
        x = torch.randn(1, n, D_MODEL)
        runs = {name: lambda layer=layer, x=x: _read(layer, x) for name, layer in made.items()}
        found = ratios(take_turns(runs, seconds, at_least=5), "plain")
        rows.append([str(n), *(f"{found[name]:.2f}" for name in ("again", "linear", "delta"))])
        print(rows[-1], flush=True)
    return table(["tokens", "the same again", "linear, chunks of 64", "delta rule, chunks of 64"], rows)


def _step(layer: mha.Heads, context: int) -> tuple[Callable[[], None], int]:
    """One more token with a cache of ``context`` tokens, and the bytes that are kept for them."""
    cache, x = layer.new_cache(context + 1), torch.randn(1, 1, D_MODEL)
    with torch.no_grad():
        if isinstance(cache, mha.layers.StateCache):
            layer(x, is_causal=True, cache=cache)
        else:
            shape = (1, layer.kv_heads, context, layer.d_head)
            cache.update(torch.randn(shape), torch.randn(shape))

    @torch.no_grad()
    def step() -> None:
        cache.length = context  # forget the last token, to add it again
        layer(x, is_causal=True, cache=cache)

    return step, layer.cost(1, 1, context, fresh=1).cache


def one_more_word(seconds: float = 4.0) -> str:
    """Compare one more token with a cache of keys and values and one more with a state."""
    rows, made = [], layers()
    for context in CONTEXTS:
        steps = {name: _step(layer, context) for name, layer in made.items()}
        found = ratios(take_turns({name: step for name, (step, _) in steps.items()}, seconds), "plain")
        kept = [f"{steps[name][1] / 2**20:.2f}" for name in ("plain", "linear", "delta")]
        rows.append([str(context), *(f"{found[name]:.2f}" for name in ("again", "linear", "delta")), *kept])
        print(rows[-1], flush=True)
    head = ["context", "the same again", "linear", "delta rule", "cache, MB", "linear's state, MB", "delta's state, MB"]
    return table(head, rows)
