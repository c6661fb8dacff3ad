"""Question: what does a compiled kernel for changed scores (FlexAttention) gain, and what happens at the ninth kind?"""

from collections.abc import Callable
from functools import partial

import torch
from timing import ratios, table, take_turns
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import mha

B, H, N, D = 1, 4, 2048, 32  # batch, heads, tokens, width of a head
WINDOW = 64


def lowered(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """ALiBi: scores fall with the distance."""
    return score - 2.0 ** (-2 * (h + 1)) * (i - j)


def capped(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Soft-capping: no score passes 20."""
    return 20 * torch.tanh(score / 20)


def past(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return i >= j


def near(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return (i >= j) & (i - j < WINDOW)


def runs(fast: Callable, q: Tensor, k: Tensor, v: Tensor) -> dict[str, dict[str, Callable[[], Tensor]]]:
    """For each kind of change: the fused kernel where it can, the explicit formula, the compiled kernel."""
    causal, window = mha.causal_mask(N), mha.sliding_window(N, WINDOW)
    blocks = {name: create_block_mask(rule, None, None, N, N, device="cpu") for name, rule in MASKS.items()}
    slopes = 2.0 ** (-2 * torch.arange(1.0, H + 1))[:, None, None]
    apart = torch.arange(N)[:, None] - torch.arange(N)

    def explicit(mask: Tensor, edit: Callable = lambda s: s) -> Callable[[], Tensor]:
        return partial(mha.attend, q, k, v, mask, edit_scores=edit)

    return {
        "causal": {
            "fused": partial(mha.attend, q, k, v, is_causal=True),
            "explicit": explicit(causal),
            "flex": partial(fast, q, k, v, block_mask=blocks["causal"]),
        },
        f"window of {WINDOW}": {
            "fused": partial(mha.attend, q, k, v, window),
            "explicit": explicit(window),
            "flex": partial(fast, q, k, v, block_mask=blocks["window"]),
        },
        "ALiBi": {
            "explicit": explicit(causal, lambda s: s - slopes * apart),
            "flex": partial(fast, q, k, v, score_mod=lowered, block_mask=blocks["causal"]),
        },
        "soft-capping": {
            "explicit": explicit(causal, lambda s: 20 * torch.tanh(s / 20)),
            "flex": partial(fast, q, k, v, score_mod=capped, block_mask=blocks["causal"]),
        },
    }


MASKS = {"causal": past, "window": near}


@torch.no_grad()
def flex() -> str:
    """Time each kind of change, beside the fused causal kernel: as many times as long."""
    torch.compiler.reset()
    torch.manual_seed(0)
    q, k, v = torch.randn(3, B, H, N, D)
    kinds, rows = runs(torch.compile(flex_attention), q, k, v), []
    for name, ways in kinds.items():
        wanted = ways["explicit"]()
        assert all((run() - wanted).abs().max() < 1e-4 for run in ways.values()), name
        base = kinds["causal"]["fused"]
        found = ratios(take_turns({"base": base, "the same again": partial(base), **ways}, 8.0), "base")
        rows.append([name, *(f"{found[k]:.2f}" if k in found else "–" for k in COLUMNS)])
        print(rows[-1], flush=True)
    return table(["change", *COLUMNS], rows)


COLUMNS = ["the same again", "fused", "explicit", "flex"]


@torch.no_grad()
def kinds() -> str:
    """Call one compiled function with nine kinds of change, and time each beside the first."""
    torch.compiler.reset()
    torch.manual_seed(0)
    q, k, v = torch.randn(3, B, H, 512, D)
    fast = torch.compile(flex_attention)

    changes: list[Callable] = [
        lambda s, b, h, i, j: s + 1,
        lambda s, b, h, i, j: s + i,
        lambda s, b, h, i, j: s + j,
        lambda s, b, h, i, j: s + h,
        lambda s, b, h, i, j: s * 2,
        lambda s, b, h, i, j: s - i + j,
        lambda s, b, h, i, j: s * h,
        lambda s, b, h, i, j: s.abs(),
        lambda s, b, h, i, j: s * s,
    ]
    calls = {str(n): partial(fast, q, k, v, score_mod=change) for n, change in enumerate(changes, 1)}
    for run in calls.values():
        run()
    found = ratios(take_turns(calls, 8.0), "1")
    return table(["kind of call", *calls], [["time", *(f"{found[name]:.1f}" for name in calls)]])
