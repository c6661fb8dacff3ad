"""Question: what does the readable layer cost beside four linear layers around the fused kernel, and beside peers?"""

import importlib
import importlib.util
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType

import torch
import torch.nn.functional as F
from timing import peak_megabytes, ratios, table, take_turns
from torch import Tensor, nn

import mha

SHAPES = ((8, 128, 512, 8), (2, 1024, 512, 8), (1, 4096, 512, 8))  # batch, n, d_model, heads
BASE, SAME, OURS = "four linears + kernel", "the same again", "mha.MultiHeadAttention"


class FourLinears(nn.Module):
    """The least code that computes multi-head attention: what our layer is measured against."""

    def __init__(self, d: int, h: int) -> None:
        super().__init__()
        self.h, self.q, self.k, self.v, self.o = h, *(nn.Linear(d, d) for _ in range(4))

    def forward(self, x: Tensor, is_causal: bool) -> Tensor:
        b, n, d = x.shape
        q, k, v = (f(x).view(b, n, self.h, d // self.h).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
        return self.o(y.transpose(1, 2).reshape(b, n, d))


def torch_layer(d: int, h: int, n: int, causal: bool) -> Callable[[Tensor], Tensor]:
    layer = nn.MultiheadAttention(d, h, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(n) if causal else None
    return lambda x: layer(x, x, x, attn_mask=mask, is_causal=causal, need_weights=False)[0]


def labml_layer(d: int, h: int, n: int, causal: bool) -> Callable[[Tensor], Tensor]:
    from labml import tracker

    tracker.debug = getattr(tracker, "debug", lambda *a, **k: None)  # labml-nn 0.5.1 calls what labml dropped
    from labml_nn.transformers.mha import MultiHeadAttention

    layer = MultiHeadAttention(h, d, dropout_prob=0.0)
    mask = torch.ones(n, n).tril()[:, :, None] if causal else None
    return lambda x: layer(query=x.transpose(0, 1), key=x.transpose(0, 1), value=x.transpose(0, 1), mask=mask)


def x_layer(flash: bool) -> Callable:
    def make(d: int, h: int, n: int, causal: bool) -> Callable[[Tensor], Tensor]:
        from x_transformers.x_transformers import Attention

        layer = Attention(dim=d, heads=h, dim_head=d // h, causal=causal, flash=flash)

        def run(x: Tensor) -> Tensor:
            y = layer(x)
            return y[0] if isinstance(y, tuple) else y

        return run

    return make


def llama_layer(d: int, h: int, n: int, causal: bool) -> Callable[[Tensor], Tensor]:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding

    config = LlamaConfig(hidden_size=d, num_attention_heads=h, num_key_value_heads=h, attn_implementation="sdpa")
    layer = LlamaAttention(config, 0)
    layer.is_causal = causal
    angles = LlamaRotaryEmbedding(config)(torch.zeros(1, n, d), torch.arange(n)[None])
    return lambda x: layer(x, position_embeddings=angles, attention_mask=None)[0]


PEERS = {
    "nn.MultiheadAttention": ("torch", torch_layer),
    "labml-nn": ("labml_nn", labml_layer),
    "x-transformers, flash on": ("x_transformers", x_layer(True)),
    "x-transformers, flash off": ("x_transformers", x_layer(False)),
    "transformers LlamaAttention": ("transformers", llama_layer),
}


def candidates(d: int, h: int, n: int, causal: bool) -> dict[str, Callable[[Tensor], Tensor]]:
    """Make every layer that is installed; a missing one is named."""
    base, ours = FourLinears(d, h), mha.MultiHeadAttention(d, h)
    for mine, linear in zip((ours.W_q, ours.W_k, ours.W_v, ours.W_o), (base.q, base.k, base.v, base.o), strict=True):
        mine.load_state_dict(linear.state_dict())
    made = {BASE: lambda x: base(x, causal), SAME: lambda x: base(x, causal), OURS: lambda x: ours(x, is_causal=causal)}
    for name, (package, make) in PEERS.items():
        if importlib.util.find_spec(package) is None:
            print(f"skipped: {name} ({package} is not installed)")
            continue
        made[name] = make(d, h, n, causal)
    return made


def one_pass(run: Callable[[Tensor], Tensor], x: Tensor, backward: bool) -> Callable[[], None]:
    def forward() -> None:
        with torch.no_grad():
            run(x)

    def both() -> None:
        run(x).sum().backward()

    return both if backward else forward


def speed(seconds: float = 10.0) -> str:
    """Time all layers at all shapes; ratios to the base, median against median.

    Our layer and the noise are compared in many rounds, the peers then with the base in fewer.
    """
    rows = []
    for b, n, d, h in SHAPES:
        for causal in (False, True):
            for backward in (False, True):
                torch.manual_seed(0)
                x = torch.randn(b, n, d, requires_grad=backward)
                runs = {k: one_pass(run, x, backward) for k, run in candidates(d, h, n, causal).items()}
                close, peers = ({k: runs[k] for k in runs if (k in CLOSE) == few} for few in (True, False))
                found = ratios(take_turns(close, seconds), BASE)
                found |= ratios(take_turns({BASE: runs[BASE], **peers}, seconds / 3, at_least=5), BASE)
                kind = ("causal" if causal else "full") + (", forward + backward" if backward else ", forward")
                rows.append([f"({b}, {n}, {d}, {h})", kind, *(f"{found[k]:.3f}" if k in found else "–" for k in NAMES)])
                print(rows[-1], flush=True)
    return table(["(batch, n, d_model, heads)", "pass", *NAMES], rows)


TOY = (1, 8, 64, 4)  # batch, n, d_model, heads: so little work that calls are what takes the time
CALLS = 50  # of one timed run


def frames(run: Callable[[], object]) -> int:
    """Count the Python functions of the package that one call enters."""
    here, entered = str(Path(mha.__file__).parent), []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(here):
            entered.append(frame)

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return len(entered)


def small(seconds: float = 20.0) -> str:
    """Time the calls themselves, where there is next to nothing to compute: on one thread, by processor time."""
    torch.set_num_threads(1)
    b, n, d, h = TOY
    x = torch.randn(b, n, d)
    made = {name: run for name, run in candidates(d, h, n, True).items() if name in (*CLOSE, "nn.MultiheadAttention")}
    ours, base = mha.MultiHeadAttention(d, h).eval(), FourLinears(d, h).eval()
    graphs = {BASE: torch.compile(base, backend="eager"), OURS: torch.compile(ours, backend="eager")}
    same = torch.compile(FourLinears(d, h).eval(), backend="eager")
    compiled = {name: partial(graph, x, is_causal=True) for name, graph in (graphs | {SAME: same}).items()}
    rows = []
    for kind, runs in (("eager", {k: partial(run, x) for k, run in made.items()}), ("compiled", compiled)):

        def many(run: Callable[[], Tensor]) -> Callable[[], None]:
            def calls() -> None:
                with torch.no_grad():
                    for _ in range(CALLS):
                        run()

            return calls

        found = ratios(take_turns({k: many(run) for k, run in runs.items()}, seconds, clock=time.process_time), BASE)
        names = (SAME, OURS, "nn.MultiheadAttention")
        rows.append([str(TOY), f"causal, {kind}", *(f"{found[k]:.2f}" if k in found else "–" for k in names)])
        print(rows[-1], flush=True)
    count = frames(partial(ours, x, is_causal=True))
    head = ["(batch, n, d_model, heads)", "forward", SAME, OURS, "nn.MultiheadAttention"]
    return f"{table(head, rows)}\n\nOne call enters {count} functions of the package."


def silent(seconds: float = 6.0) -> str:
    """Time heads that may say nothing, beside plain ones; their FLOPs are those of the counter."""
    rows = []
    for b, n, d, h in SHAPES:
        layers = {
            "plain": mha.MultiHeadAttention(d, h),
            "a gate for each head": mha.GatedAttention(d, h),
            "a gate for each channel": mha.GatedAttention(d, h, gate="channel"),
            "a sink for each head": mha.SinkAttention(d, h),
        }
        flops = {name: layer.cost(b, n).flops for name, layer in layers.items()}
        assert flops["a gate for each head"] - flops["plain"] == 2 * b * n * d * h
        assert flops["a gate for each channel"] - flops["plain"] == 2 * b * n * d * d
        for backward in (False, True):
            x = torch.randn(b, n, d, requires_grad=backward)
            runs = {name: one_pass(partial(layer, is_causal=True), x, backward) for name, layer in layers.items()}
            found = ratios(
                take_turns({**runs, SAME: one_pass(partial(layers["plain"], is_causal=True), x, backward)}, seconds),
                "plain",
            )
            kind = "causal, forward" + " + backward" * backward
            rows.append(
                [f"({b}, {n}, {d}, {h})", kind, *(f"{found[name]:.2f}" for name in (SAME, *layers) if name != "plain")]
            )
            print(rows[-1], flush=True)
    rows.append(["", "FLOPs", "1.00", *(f"{flops[name] / flops['plain']:.2f}" for name in layers if name != "plain")])
    return table(["(batch, n, d_model, heads)", "pass", SAME, *(name for name in layers if name != "plain")], rows)


CLOSE = (BASE, SAME, OURS)
NAMES = [SAME, OURS, *PEERS]


def memory() -> str:
    """Measure how the peak of memory grows with the length, watched and not watched."""
    code = """
import torch, mha
from contextlib import nullcontext
torch.manual_seed(0)
layer, x = mha.MultiHeadAttention(512, 8), torch.randn(1, {n}, 512)
small = torch.randn(1, 16, 512)
with torch.no_grad():
    layer(small)
    start()
    with {context}:
        layer(x)
"""
    rows = []
    for n in (1024, 2048, 4096, 8192):
        plain = peak_megabytes(code.format(n=n, context="nullcontext()"))
        seen = peak_megabytes(code.format(n=n, context="mha.watch(layer)")) if n <= 4096 else float("nan")
        rows.append([str(n), f"{plain:.0f} MB", f"{seen:.0f} MB" if seen == seen else "–"])
        print(rows[-1], flush=True)
    return table(["n", "nobody watches", "watched"], rows)
