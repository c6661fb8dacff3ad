"""Question: how much of the time of a layer is saved when each query leaves out half of the heads?"""

import torch
from timing import ratios, table, take_turns

import mha

SHAPES = ((1, 1024, 512, 8), (1, 4096, 512, 8))  # batch, n, d_model, heads
SHARED, CHOSEN = 2, 2
LIMITS = {  # (n, causal): the most that core and layer may take of the plain layer's time
    (1024, False): (0.65, 0.85),
    (4096, False): (0.65, 0.70),
    (1024, True): (0.85, 0.95),
    (4096, True): (0.78, 0.85),
}
NAMES = ["the same core again", "core", "the same layer again", "layer"]


@torch.no_grad()
def routed(seconds: float = 10.0) -> str:
    """Time the attention core and the whole layer beside the plain layer's fused path; compare with all heads."""
    rows = []
    for b, n, d, h in SHAPES:
        for causal in (False, True):
            torch.manual_seed(0)
            plain, x = mha.MultiHeadAttention(d, h).eval(), torch.randn(b, n, d)
            layer = mha.RoutedAttention.from_plain(plain, SHARED, CHOSEN)
            for weight in layer.router.parameters():
                weight.normal_(std=d**-0.5)
            found, wrong = times_of(plain, layer, x, causal, seconds), error_of(layer, x, causal)
            held = all(found[name] <= most for name, most in zip(("core", "layer"), LIMITS[n, causal], strict=True))
            numbers = [f"{found[name]:.3f}" for name in NAMES]
            limits = " / ".join(f"{most:.2f}" for most in LIMITS[n, causal])
            rows.append([f"({b}, {n}, {d}, {h})", "causal" if causal else "full", *numbers, limits, f"{wrong:.0e}"])
            print(rows[-1], "" if held else "not held", flush=True)
    head = ["(batch, n, d_model, heads)", "pass", *NAMES, "asked: core / layer", "error to all heads"]
    return table(head, rows)


def times_of(plain: mha.Heads, layer: mha.Heads, x: torch.Tensor, causal: bool, seconds: float) -> dict[str, float]:
    """The routed core and layer, and the plain ones once more, as ratios to the plain ones."""
    q, k, v = layer.project(x)
    gates = layer.router(x, q)
    cores = {
        "base": lambda: plain.attend(q, k, v, is_causal=causal),
        "the same core again": lambda: plain.attend(q, k, v, is_causal=causal),
        "core": lambda: layer.attend(q, k, v, gates=gates, is_causal=causal),
    }
    layers = {
        "base": lambda: plain(x, is_causal=causal),
        "the same layer again": lambda: plain(x, is_causal=causal),
        "layer": lambda: layer(x, is_causal=causal),
    }
    return ratios(take_turns(cores, seconds), "base") | ratios(take_turns(layers, seconds), "base")


def error_of(layer: mha.Heads, x: torch.Tensor, causal: bool) -> float:
    """How far the layer is from computing all heads and multiplying those not chosen by 0, relative to its size."""
    found = layer(x, is_causal=causal)
    layer.skip_from = 10**12
    right = layer(x, is_causal=causal)
    del layer.skip_from
    return float((found - right).norm() / right.norm())
