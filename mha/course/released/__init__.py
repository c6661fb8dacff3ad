"""Attention of released models: which layers a model has, what it keeps for a sequence, and what one more token costs.

The data are in ``models.json``, which ``tools/make_model_table.py`` makes from the configuration classes of the library
transformers (:mod:`mha.course.released.reading`). The library is not needed to read them. The file has these keys:

- ``transformers``: the version of the library that was read.
- ``tokens``: the lengths for which sums are stored.
- ``models``: one entry per model: its ``name``, the ``config`` class, the ``arguments`` given to it (empty where its
  defaults are the released model), ``depth`` (decoder layers), ``layers`` (one entry per kind, with the fields of
  :class:`Layers`), ``kept`` (bytes) and ``flops``, for each of ``tokens``.
- ``sha256``: of all the rest, so that an edit by hand is noticed.

What is counted: a cache of bfloat16, states of float32. FLOPs are those of the attention alone: scores, weighted sums,
index scores, and reading and writing a state. Projections, feed-forward layers, softmax and the short convolutions are
not counted. Latents are read in the absorbed form, without making keys and values from them.

:Taught in: choosing.
"""

import hashlib
import json
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mha.checks import check_whole, checked
from mha.course.released import page

STORE = Path(__file__).with_name("models.json")
TOKENS = (8192, 131072)  # 8k and 128k
NUMBER, STATE = 2, 4  # bytes of a number in a cache, and in a state


@dataclass(frozen=True)
class Index:
    """A small second attention that chooses which keys are read.

    :param heads: that score; 0 in a layer that uses the choice of an earlier layer.
    :param width: of its queries and of its keys, of which there is one for all heads.
    :param every: tokens for which one index key is kept.
    :param most: keys that are chosen at most.
    :param block: keys that are chosen together: 1 where each is chosen for itself.
    """

    heads: int
    width: int
    every: int
    most: int
    block: int = 1


@dataclass(frozen=True)
class Positions:
    """How a layer knows the order of tokens.

    :param kind: "rotary", "relative", "learned" (added once, before the first layer) or "none".
    :param width: rotated channels of a key.
    :param base: of the rotary frequencies.
    :param scaling: how these are changed for longer texts, and by how much; empty where they are not.
    """

    kind: str
    width: int = 0
    base: float = 0.0
    scaling: str = ""

    def said(self, key: int) -> str:
        """Say it in words.

        :param key: width of a key.
        """
        if self.kind != "rotary":
            return "no positions" if self.kind == "none" else f"{self.kind} positions"
        part = "rotary" if self.width == key else f"rotary on {self.width} of {key}"
        return f"{part}, base {self.base:,.0f}" + f", {self.scaling}" * bool(self.scaling)


@dataclass(frozen=True)
class Layers:
    """The layers of one kind in a model.

    :param kind: "full", "window", "chunk", "latent", "entries", "gated delta", "KDA", "Mamba-2", "Mamba", "lightning",
        "RG-LRU" or "convolution", with ", window" or ", index" after it where both are true.
    :param count: how many there are.
    :param heads: query heads; of a state: how many states there are.
    :param kv_heads: keys and values per token: KV heads; 1 for latents.
    :param key: width of what a score multiplies: of a key, or of latent and shared rotary key together.
    :param value: width of what is summed: of a value, or of a latent.
    :param head: in latent layers, width of a head's keys without the channels that are rotated; 0 elsewhere.
    :param row: numbers kept per token (or per entry); 0 where the cache of an earlier layer is read, or none.
    :param span: tokens of a window or a chunk, the query's own included; None without.
    :param every: tokens per row beyond the window: 1, or more for compressed entries; None where nothing is read there.
    :param index: what chooses among them; None where all are read.
    :param state: numbers of the states, of float32.
    :param update: FLOPs per number of the states and token.
    :param recent: numbers kept for a short convolution.
    :param positions: how the layer knows the order of tokens.
    :param sink: whether each head has a learned sink.
    :param gate: what multiplies the head outputs: "per channel", "per head", or empty.
    :param qk_norm: "per head", "all heads", "latent", or empty.
    :param cap: limit of the scores (a soft cap, with tanh); None without.
    """

    kind: str
    count: int
    heads: int = 0
    kv_heads: int = 0
    key: int = 0
    value: int = 0
    head: int = 0
    row: int = 0
    span: int | None = None
    every: int | None = None
    index: Index | None = None
    state: int = 0
    update: int = 0
    recent: int = 0
    positions: Positions = Positions("none")
    sink: bool = False
    gate: str = ""
    qk_norm: str = ""
    cap: float | None = None

    def read(self, tokens: int) -> int:
        """Count the keys that a query reads when it is the last of so many tokens.

        :param tokens: of the sequence.
        """
        near = 0 if self.span is None else min(tokens, self.span)
        far = 0 if self.every is None else tokens // self.every
        return near + (far if self.index is None else min(far, self.index.most))

    def kept(self, tokens: int) -> int:
        """Count the bytes that one layer keeps after so many tokens.

        :param tokens: of the sequence.
        """
        rows = 0 if self.span is None else min(tokens, self.span)
        rows += 0 if self.every is None else tokens // self.every
        chosen = 0 if self.index is None or not self.index.heads else tokens // self.index.every * self.index.width
        return NUMBER * (rows * self.row + chosen + self.recent) + STATE * self.state

    def flops(self, tokens: int) -> int:
        """Count the FLOPs of one layer's attention for the last of so many tokens.

        :param tokens: of the sequence.
        """
        index = 0 if self.index is None else 2 * self.index.heads * self.index.width * (tokens // self.index.every)
        return 2 * self.heads * (self.key + self.value) * self.read(tokens) + index + self.update * self.state

    def __str__(self) -> str:
        return f"{self.count} {self.kind}: {', '.join(self.details())}"

    @property
    def norm(self) -> str:
        """What is normed, in words."""
        return "norm of the latent" if self.qk_norm == "latent" else f"QK-norm {self.qk_norm}"

    def details(self) -> Iterator[str]:
        """Say the sizes in words, one after the other."""
        if self.state and self.kind != "RG-LRU":
            yield (
                f"{self.kv_heads} states of {self.key} × {self.value}"
                if self.kv_heads > 1
                else f"a state of {self.key} × {self.value}"
            )
        elif self.state:
            yield f"{self.state:,} channels"
        elif self.kind == "convolution":
            yield f"keeps {self.recent:,} numbers"
        elif "latent" in self.kind:
            yield f"{self.heads} heads, latent {self.value}" + f" + {self.key - self.value}" * (self.key > self.value)
        elif self.heads:
            width = f"{self.key}" if self.key == self.value else f"{self.key} and {self.value}"
            yield f"{self.heads} heads, {self.kv_heads} KV of {width}"
        if self.span is not None:
            yield f"{'chunk' if self.kind == 'chunk' else 'window'} {self.span:,}"
        if self.every is not None and self.every > 1:
            yield f"entries of {self.every} tokens"
        if self.index is not None:
            own = f"index {self.index.heads} × {self.index.width}" if self.index.heads else "index of an earlier layer"
            per = f", one index key per {self.index.every} tokens" if self.index.every != self.every else ""
            blocks = f" in blocks of {self.index.block}" if self.index.block > 1 else ""
            yield f"{own}{per}, reads {self.index.most:,}{blocks}"
        if self.heads and not self.row and not self.state:
            yield "cache of an earlier layer"
        if self.heads and not self.state:
            yield self.positions.said(self.key)
        yield from ["sink"] * self.sink
        yield from [f"gate {self.gate}"] * bool(self.gate)
        yield from [self.norm] * bool(self.qk_norm)
        yield from [] if self.cap is None else [f"soft cap {self.cap:g}"]


@dataclass(frozen=True)
class Model:
    """A released model and its kinds of layers.

    :param name: of the model.
    :param config: the class of its configuration in transformers.
    :param arguments: given to that class; none where its defaults are the released model.
    :param depth: decoder layers.
    :param layers: one entry per kind of attention.
    """

    name: str
    config: str
    arguments: dict[str, Any]
    depth: int
    layers: tuple[Layers, ...]

    def kept(self, tokens: int) -> int:
        """Count the bytes that all layers keep after so many tokens.

        :param tokens: of the sequence.
        :Raises: ValueError unless ``tokens`` is a whole number from 1 on.
        """
        check_whole(tokens=tokens)
        return sum(layer.count * layer.kept(tokens) for layer in self.layers)

    def flops(self, tokens: int) -> int:
        """Count the FLOPs of all attention for the last of so many tokens.

        :param tokens: of the sequence.
        :Raises: ValueError unless ``tokens`` is a whole number from 1 on.
        """
        check_whole(tokens=tokens)
        return sum(layer.count * layer.flops(tokens) for layer in self.layers)

    @property
    def reaching(self) -> float:
        """The share of the layers that read, or can choose, keys of all tokens."""
        counts = [(layer.count, layer.every is not None) for layer in self.layers]
        return sum(count for count, far in counts if far) / sum(count for count, _ in counts)

    @property
    def mix(self) -> str:
        """The kinds and how many layers each has, the most frequent kind first."""
        counts: dict[str, int] = {}
        for layer in self.layers:
            counts[layer.kind] = counts.get(layer.kind, 0) + layer.count
        return " + ".join(f"{n} {kind}" for kind, n in sorted(counts.items(), key=lambda both: -both[1]))

    def __str__(self) -> str:
        lines = (textwrap.fill(str(one), 72, initial_indent="  ", subsequent_indent="    ") for one in self.layers)
        return "\n".join([self.name, *lines])


class Table:
    """Models as a table: plain text in a terminal, on a page one that can be searched and sorted.

    :Taught in: choosing.
    """

    @checked
    def __init__(self, models: tuple[Model, ...]) -> None:
        """Take the models.

        :param models: the rows, in this order; at least one.
        :Raises: ValueError without models.
        """
        if not models:
            raise ValueError("models is empty: give at least one, such as released.models()[:1]")
        self.models = models

    def __repr__(self) -> str:
        return page.text(self.models, TOKENS)

    def _repr_html_(self) -> str:
        """Write the table for a page."""
        return page.written(self.models, TOKENS)


@cache
def models() -> tuple[Model, ...]:
    """List the models of the table, in the order of the file.

    :Taught in: choosing.
    """
    return tuple(map(_model, json.loads(STORE.read_text("utf8"))["models"]))


@checked
def model(name: str) -> Model:
    """Look up a model.

    :param name: or a part of it that no other model has; capitals do not matter.
    :Raises: ValueError where no model has it, or several.
    :Taught in: choosing.
    """
    found = [one for one in models() if name.lower() in one.name.lower()]
    exact = [one for one in found if one.name.lower() == name.lower()]
    if len(exact or found) != 1:
        known = ", ".join(one.name for one in found or models())
        raise ValueError(f"name = {name!r} is part of {len(found)} names: give one of {known}")
    return (exact or found)[0]


def packed(found: list[Model], version: str) -> dict[str, Any]:
    """Put models into the form of the file.

    :param found: the models.
    :param version: of transformers.
    """
    rows = [
        asdict(one) | {"kept": [one.kept(n) for n in TOKENS], "flops": [one.flops(n) for n in TOKENS]} for one in found
    ]
    content: dict[str, Any] = {"transformers": version, "tokens": list(TOKENS), "models": rows}
    return content | {"sha256": digest(content)}


def digest(content: dict[str, Any]) -> str:
    """Hash what the file holds besides this hash.

    :param content: of the file.
    """
    rest = {key: value for key, value in content.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _model(entry: dict[str, Any]) -> Model:
    layers = []
    for one in entry["layers"]:
        index = None if one["index"] is None else Index(**one["index"])
        layers.append(Layers(**one | {"index": index, "positions": Positions(**one["positions"])}))
    return Model(entry["name"], entry["config"], entry["arguments"], entry["depth"], tuple(layers))
