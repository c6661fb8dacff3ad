"""Question: how do layers rank on a processor that ``benchmarks/gpu.py`` ranks on a GPU?"""

import time
from functools import partial

import torch
from timing import ratios, table, take_turns

import mha

N, D, H = 2048, 1024, 16  # the sizes of the table "variants" of gpu.py, for one sequence instead of four


@torch.no_grad()
def rankings() -> str:
    """Time whole causal layers, forward, beside the plain one: as many times as long, by the processor's own clock."""
    torch.manual_seed(0)
    layers = {
        "plain": mha.MultiHeadAttention(D, H),
        "the same again": mha.MultiHeadAttention(D, H),
        "grouped, 4 KV heads": mha.GroupedAttention(D, H, 4),
        "RoPE": mha.MultiHeadAttention(D, H, positions=mha.RotaryPositions()),
        "ALiBi": mha.MultiHeadAttention(D, H, positions=mha.LinearBias()),
        "linear": mha.LinearAttention(D, H),
        "delta rule": mha.DeltaAttention(D, H),
        "talking": mha.TalkingAttention(D, H),
        "composable": mha.ComposableAttention(D, H),
        "sparse": mha.EntmaxAttention(D, H),
    }
    x = torch.randn(1, N, D)
    turns = take_turns(
        {name: partial(layer, x, is_causal=True) for name, layer in layers.items()}, at_least=7, clock=time.process_time
    )
    return table(["layer", "times plain"], [[name, f"{found:.2f}"] for name, found in ratios(turns, "plain").items()])
