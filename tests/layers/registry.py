"""Every layer of the course, once: a new variant is one line, and every general test then holds for it.

Sizes are small, prime where they can be, and different from each other, so that axes cannot be mixed up unnoticed.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import mha

BATCH, QUERIES, KEYS = 3, 5, 7


@dataclass(frozen=True)
class Entry:
    """One layer: its name, how to build it, how wide its words are, and what it can do."""

    name: str
    build: Callable[[], nn.Module]
    width: int
    caches: bool = True  # takes a KeyValueCache
    alone: bool = True  # can be its own memory: layer(x)
    crosses: bool = True  # takes a separate key
    dropout: bool = False  # differs between training and evaluation
    ordered: bool = False  # has positions of its own: the order of the words matters to it
    softmax: bool = True  # its weights are the softmax of its scores
    apart: bool = True  # its heads work alone: some of them can be taken out
    composes: bool = False  # words say how heads are mixed, so that even the bias of a key matters
    routes: bool = False  # a query says how much its heads count, even where it sees a single key
    rows_sum_below_one: bool = (
        False  # a row may sum to less than 1: a query, and the bias of a key, matter even to a single key
    )
    whole: tuple[str, ...] = ()  # the projections that all heads share: they stay whole when heads are taken out
    own_cache: bool = False  # what it keeps between calls is no KeyValueCache, but has a length too
    plain: bool = True  # at some setting it is softmax attention: ``from_plain`` reaches it
    constant_memory: bool = (
        False  # without watching it writes no weights: what it keeps and multiplies does not grow with the text
    )
    needs_is_causal: bool = False  # reads its own words only, in their order: it must be told ``is_causal``
    chooses: bool = False  # it reads only some of the keys that it may read: what is left out has no say
    apart_from_loss: tuple[str, ...] = ()  # weights that a loss of their own trains: no output has gradients for them
    own: tuple[str, ...] = ()  # how the names of its weights begin, beyond the four projections

    def taught(self, layer: nn.Module) -> dict[str, nn.Parameter]:
        """The weights, by name, that learn from what comes out."""
        return {name: w for name, w in layer.named_parameters() if not name.startswith(self.apart_from_loss or "?")}

    def words(self, n: int = QUERIES, batch: int = BATCH, dtype: torch.dtype | None = None) -> Tensor:
        """Random words of this layer's width, the same ones at every call."""
        x = torch.randn(batch, n, self.width, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
        return x.to(dtype or torch.get_default_dtype())

    def memory(self, layer: nn.Module, n: int = KEYS) -> tuple[Tensor, Tensor]:
        """Keys and values of another sequence, as wide as the layer wants them."""
        random = torch.Generator().manual_seed(17)
        widths = layer.W_k.in_features, layer.W_v.in_features
        key, value = (torch.randn(BATCH, n, w, generator=random, dtype=torch.float64) for w in widths)
        return key.to(layer.W_k.weight), value.to(layer.W_v.weight)


def rotary():
    return mha.RotaryPositions()


def sloped():
    return mha.LinearBias()


def fixed():
    return mha.EntmaxAttention(8, 4, alpha=[1, 1.2, 1.5, 2], learned=False, positions=rotary())


def off_by_one():
    return mha.SinkAttention(6, 3, learned=False, positions=sloped())


def gated_channels(**settings):
    return mha.GatedAttention(8, 2, gate="channel", **settings)


def stirred(layer):
    """Shake what mixes the heads, so that it matters."""
    with torch.no_grad():
        for name, weight in layer.named_parameters():
            weight += 0 if name.startswith("W_") else 0.3 * torch.randn_like(weight)
    return layer


def composed(**settings):
    return stirred(mha.ComposableAttention(6, 3, **settings))


def routed(gates, **settings):
    return mha.RoutedAttention(8, 4, 0, 2, gates=gates, **settings)


def indexed(**settings):
    return mha.IndexedAttention(8, 4, 2, **{"positions": rotary(), "index_heads": 3, "d_index": 6, **settings})


def indexed_over(**widths):
    return mha.IndexedAttention(6, 2, 2, **widths)


def indexed_latents(**settings):
    return mha.IndexedLatentAttention(8, 4, 5, 2, **settings)


def latent(**settings):
    return mha.LatentAttention(8, 4, 5, **settings)


def delta(model, heads, **widths):
    return mha.DeltaAttention.as_released(model, 6, heads, **widths)


MIXES = {"softmax": False, "apart": False}
TALKS = {**MIXES, "own": ("mix_scores", "mix_weights")}
COMPOSES = {**MIXES, "own": ("before.", "after."), "composes": True}

SINKS = {"softmax": False, "rows_sum_below_one": True, "own": ("sink",)}
GATES = {"routes": True, "own": ("W_g",)}
READS = {"caches": False, "own_cache": True}  # a memory, with a cache of its own
FEEDS = {**READS, "own": ("query_bias", "key_table", "score_table")}
ROUTES = {"apart": False, "routes": True, "own": ("router.",)}
LATENT = {"crosses": False, "own": ("W_down", "W_rotary", "norm_"), "whole": ("W_down", "W_rotary_k")}
STATE = {
    "caches": False,
    "own_cache": True,
    "softmax": False,
    "plain": False,
    "constant_memory": True,
}  # its cache shows no weights
ORDER = {**STATE, "alone": False, "crosses": False, "needs_is_causal": True}
AROUND = {**ORDER, "own": ("write.", "decay.", "convolve.", "norm.", "W_g", "gate_down")}
INDEX = {
    "own": ("indexer.",),
    "apart_from_loss": ("indexer.",),
    "whole": ("indexer.W_q", "indexer.W_k", "indexer.W_w", "indexer.norm"),
}
CHOOSES = {**INDEX, "chooses": True, "softmax": False}
TURNED = {**CHOOSES, "crosses": False, "ordered": True}
BOTH = {name: LATENT[name] + INDEX[name] for name in ("own", "whole")}
WHICH = {**LATENT, **INDEX, **BOTH}
NORMED = {"d_rotary": 2, "d_query": 7, "norm": True, "block": 2}
SHARE = {"own": ("mixing",), "whole": ("W_q", "W_k")}

LAYERS = [
    Entry("one head", lambda: mha.SelfAttention(5, 3, 7), 5, caches=False),
    Entry("one head, biases", lambda: mha.SelfAttention(5, bias=True), 5, caches=False),
    Entry("heads", lambda: mha.MultiHeadAttention(6, 3), 6),
    Entry("heads, no bias", lambda: mha.MultiHeadAttention(6, 2, bias=False), 6),
    Entry("heads, biases of queries, keys and values", lambda: mha.MultiHeadAttention(6, 2, bias="qkv"), 6),
    Entry("heads of their own width", lambda: mha.MultiHeadAttention(5, 2, d_head=3), 5),
    Entry("heads over keys of another width", lambda: mha.MultiHeadAttention(6, 2, kdim=4, vdim=7), 6, alone=False),
    Entry("heads with dropout", lambda: mha.MultiHeadAttention(6, 3, dropout=0.4), 6, dropout=True),
    Entry("heads that share keys and values", lambda: mha.GroupedAttention(8, 4, 2), 8),
    Entry("heads that share one key", lambda: mha.GroupedAttention(6, 3, 1, bias=False), 6),
    Entry("rotary heads", lambda: mha.MultiHeadAttention(8, 2, positions=rotary()), 8, crosses=False, ordered=True),
    Entry("sloped heads", lambda: mha.MultiHeadAttention(6, 3, positions=sloped()), 6, crosses=False, ordered=True),
    Entry("rotary, shared", lambda: mha.GroupedAttention(8, 4, 2, positions=rotary()), 8, crosses=False, ordered=True),
    Entry("a single wide head", lambda: mha.MultiHeadAttention(5, 1), 5),
    Entry("heads in a shared space", lambda: mha.CollaborativeAttention(6, 3, 5), 6, **SHARE),
    Entry("side by side", lambda: mha.CollaborativeAttention(6, 3, fusion="concatenate", bias=False), 6, **SHARE),
    Entry(
        "shared over another width",
        lambda: mha.CollaborativeAttention(6, 2, 7, kdim=4, vdim=7),
        6,
        alone=False,
        **SHARE,
    ),
    Entry("overlapping heads", lambda: mha.OverlappingAttention(6, 2, 2), 6, apart=False),
    Entry("overlapping, dropout", lambda: mha.OverlappingAttention(6, 3, 1, dropout=0.4), 6, dropout=True, apart=False),
    Entry("sparse heads", lambda: mha.EntmaxAttention(6, 3), 6, softmax=False, own=("raw_alpha",)),
    Entry("sparse heads of four kinds", fixed, 8, softmax=False, own=("fixed_alpha",), crosses=False, ordered=True),
    Entry("heads beside a sink", lambda: mha.SinkAttention(6, 3), 6, **SINKS),
    Entry("off by one, sloped", off_by_one, 6, crosses=False, ordered=True, **SINKS),
    Entry(
        "beside a sink, dropout",
        lambda: mha.SinkAttention(8, 4, sink=[2, 0, -1, 1], dropout=0.4),
        8,
        dropout=True,
        **SINKS,
    ),
    Entry("gated heads", lambda: mha.GatedAttention(6, 3), 6, **GATES),
    Entry("gated channels", lambda: gated_channels(bias=False, dropout=0.4), 8, dropout=True, **GATES),
    Entry("gated, rotary", lambda: gated_channels(positions=rotary()), 8, crosses=False, ordered=True, **GATES),
    Entry("gated over another width", lambda: mha.GatedAttention(6, 2, kdim=4, vdim=7), 6, alone=False, **GATES),
    Entry("merged heads", lambda: mha.MergedAttention(6, 3), 6, caches=False, alone=False, own_cache=True),
    Entry("merged heads without the average", lambda: mha.MergedAttention(6, 2, average=False), 6, **READS),
    Entry("feedback heads", lambda: stirred(mha.FeedbackAttention(6, 3, steps=9)), 6, alone=False, **FEEDS),
    Entry("routed heads", lambda: mha.RoutedAttention(10, 5, 2, 2), 10, **ROUTES),
    Entry("routed as in the paper", lambda: routed("paper", dropout=0.4), 8, dropout=True, **ROUTES),
    Entry("routed by length", lambda: routed("norms", positions=rotary()), 8, crosses=False, ordered=True, **ROUTES),
    Entry("heads that talk", lambda: stirred(mha.TalkingAttention(6, 3)), 6, **TALKS),
    Entry("composed heads", composed, 6, **COMPOSES),
    Entry("composed heads of rank 1", lambda: composed(rank=1, bias=False, dropout=0.4), 6, dropout=True, **COMPOSES),
    Entry("composed over another width", lambda: composed(kdim=4, vdim=7), 6, alone=False, **COMPOSES),
    Entry("indexed, everything read", lambda: mha.IndexedAttention(6, 3, 99), 6, **INDEX),
    Entry("indexed, two keys of all", lambda: mha.IndexedAttention(6, 3, 2, index_heads=9), 6, **CHOOSES),
    Entry("indexed, rotary, shared", lambda: indexed(kv_heads=2, dropout=0.4), 8, dropout=True, **TURNED),
    Entry("indexed, sloped blocks", lambda: indexed(block=2, pool="mean", positions=sloped()), 8, **TURNED),
    Entry("indexed over another width", lambda: indexed_over(kdim=4, vdim=7), 6, alone=False, **CHOOSES),
    Entry("heads from a latent", lambda: mha.LatentAttention(6, 3, 5), 6, **LATENT),
    Entry(
        "from a latent, dropout",
        lambda: mha.LatentAttention(6, 2, 7, bias=False, dropout=0.4),
        6,
        dropout=True,
        **LATENT,
    ),
    Entry("from a latent, sloped", lambda: mha.LatentAttention(6, 3, 4, positions=sloped()), 6, ordered=True, **LATENT),
    Entry("from a latent, turned", lambda: latent(d_rotary=4), 8, ordered=True, **LATENT),
    Entry("from latents, normed", lambda: latent(d_rotary=2, d_query=7, norm=True), 8, ordered=True, **LATENT),
    Entry("indexed latents, everything read", lambda: mha.IndexedLatentAttention(6, 3, 5, 99), 6, **WHICH),
    Entry("indexed latents", lambda: indexed_latents(index_heads=9), 8, **WHICH | {"chooses": True, "softmax": False}),
    Entry("indexed latents, turned", lambda: indexed_latents(**NORMED), 8, **WHICH | TURNED | BOTH),
    Entry("linear heads", lambda: mha.LinearAttention(6, 3), 6, **STATE),
    Entry("linear, dropout", lambda: mha.LinearAttention(6, 2, bias="kv", dropout=0.4), 6, dropout=True, **STATE),
    Entry(
        "linear over another width", lambda: mha.LinearAttention(6, 2, kdim=4, vdim=7), 6, **STATE | {"alone": False}
    ),
    Entry("overwriting heads", lambda: mha.DeltaAttention(6, 3), 6, own=("write.", "decay."), **ORDER),
    Entry("overwriting without decay", lambda: mha.DeltaAttention(6, 2, decay=False), 6, own=("write.",), **ORDER),
    Entry("overwriting, as released", lambda: delta("OLMo Hybrid", 2, d_value=5), 6, **AROUND),
    Entry("overwriting, channels decay", lambda: delta("Kimi Linear", 2), 6, **AROUND),
    Entry("composed, sloped", lambda: composed(positions=sloped()), 6, crosses=False, ordered=True, **COMPOSES),
]


def every(**asked) -> pytest.MarkDecorator:
    """Run a test for every layer of which what is asked for is true: ``@every(caches=True)``.

    Layers that must be told ``is_causal`` are left out unless they are asked for: test_linear.py tells them.
    """
    asked = {"needs_is_causal": False} | asked
    chosen = [e for e in LAYERS if all(getattr(e, name) == value for name, value in asked.items())]
    return pytest.mark.parametrize("entry", chosen, ids=lambda entry: entry.name)
