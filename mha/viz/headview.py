"""An interactive view of the attention weights of a model, in one piece of HTML: no server, no network, no kernel.

It works in a notebook and in a static page, with a mouse, a finger or a keyboard, on light and on dark pages. Where
scripts are stripped a plain table stays. Where the style is stripped, too, as in a notebook that its program does not
trust yet, a line above the table says to run the cell.

:Taught in: reading_heads.
"""

import hashlib
import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import chain

import numpy as np

from mha.checks import checked, described
from mha.viz.palette import COLORS, ON_DARK, ON_LIGHT, SMALL, WORDS

MOST_WORDS = 64  # more lines than a reader, or a phone, can tell apart


@dataclass(frozen=True)
class Layer:
    """One layer to draw.

    :param name: of the layer.
    :param rows: the i tokens that attend.
    :param columns: the j tokens attended to.
    :param weights: (h, i, j).
    :param q: the queries, (h, i, d); none unless given.
    :param k: the keys, (h, j, d); none unless given.
    """

    name: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    weights: np.ndarray
    q: np.ndarray | None = None
    k: np.ndarray | None = None

    def notes(self) -> list[str]:
        """Say which heads have rows that do not sum to one; a row of zeros looks at nothing and is no surprise."""
        sums = self.weights.sum(-1)
        odd = (abs(sums - 1) > 0.01) & (abs(self.weights).max(-1) > 0)  # half precision rounds by some thousandths
        heads = [str(h) for h in np.flatnonzero(odd.any(-1))]
        if not heads:
            return []
        low, high = sums[odd].min(), sums[odd].max()
        which = f"head {heads[0]}" if len(heads) == 1 else f"heads {', '.join(heads)}"
        return [f"{self.name}: weights of {which} do not sum to one but to {low:.2f} to {high:.2f}; drawn as they are."]


def shown(tokens: Sequence[str], name: str = "tokens") -> tuple[str, ...]:
    """Make tokens visible: outer spaces, line ends and what a page cannot print.

    :param tokens: a list of tokens.
    :param name: what they are called in an error; "tokens" unless given.
    """
    if isinstance(tokens, str):
        raise TypeError(f"{name} is one text, {tokens[:20]!r}: give a list of tokens, such as text.split()")
    if not hasattr(tokens, "__iter__"):
        raise TypeError(f"{name} = {described(tokens)}: give a list of tokens")
    odd = {"\n": "⏎", "\t": "⇥"}

    def one(token: str) -> str:
        inner = token.strip(" ")
        before = len(token) - len(token.lstrip(" ")) if inner else len(token)
        token = "␣" * before + inner + "␣" * (len(token) - before - len(inner))
        return "".join(odd.get(c) or (c if c.isprintable() else ascii(c)[1:-1]) for c in token) or "∅"

    return tuple(one(str(token)) for token in tokens)


def read_layers(x, what: str) -> list[np.ndarray]:
    """Turn tensors into arrays.

    :param x: one tensor, or one for each layer, (b, h, i, j) or (h, i, j).
    :param what: what it is called in an error.
    :Shapes: returns arrays as given, one for each layer.
    """
    many = isinstance(x, (list, tuple)) and len(x) and hasattr(x[0], "shape")
    arrays = [_array(one, what) for one in (x if many else [x])]
    for n, array in enumerate(arrays):
        if array.ndim not in (3, 4) or 0 in array.shape:
            raise ValueError(
                f"{what} of layer {n}, {described(x)}, have shape {array.shape}, but must be (batch, head, query, key) "
                "or (head, query, key), none of them empty; for several layers give a list of such tensors"
            )
    return arrays


def read_layer(name: str, rows, columns, item: int | None, weights, q, k) -> Layer:
    """Take one item of a batch and check that tokens, weights and vectors belong together.

    :param name: of the layer.
    :param rows: the i tokens that attend.
    :param columns: the j tokens attended to.
    :param item: which sequence of the batch, from 0; None where there is one.
    :param weights: (b, h, i, j) or (h, i, j).
    :param q: the queries, (b, h, i, d) or (h, i, d), or None.
    :param k: the keys, (b, h, j, d) or (h, j, d), or None.
    """
    found = {w: _pick(x, item, name, w) for w, x in (("weights", weights), ("q", q), ("k", k)) if x is not None}
    heads, i, j = found["weights"].shape
    for what, tokens, size in (("tokens", rows, i), ("keys", columns, j)):
        if len(tokens) != size:
            raise ValueError(
                f"{name} has weights of shape {(heads, i, j)}: {what} must be {size} tokens, not {len(tokens)}"
            )
    if max(i, j) > MOST_WORDS:
        raise ValueError(
            f"{name} has weights of {i} × {j} tokens, but at most {MOST_WORDS} can be drawn: cut them, as in "
            f"HeadView(weights[..., :{MOST_WORDS}, :{MOST_WORDS}], tokens[:{MOST_WORDS}])"
        )
    if q is not None:
        d = found["q"].shape[-1]
        if found["q"].shape != (heads, i, d) or found["k"].shape != (heads, j, d):
            raise ValueError(
                f"{name} has weights {(heads, i, j)}, q {found['q'].shape} and k {found['k'].shape}: they must be "
                f"({heads}, {i}, d) and ({heads}, {j}, d); repeat keys that several heads share"
            )
    return Layer(name, rows, columns, **found)


def _array(x, what: str) -> np.ndarray:
    if hasattr(x, "detach"):
        if x.device.type == "meta":
            raise TypeError(f"{what} are on the meta device: they have a shape, but no numbers")
        x = x.detach().cpu()
        x = x if x.is_complex() else x.double()
    given = x
    try:
        x = np.asarray(x)
    except (ValueError, TypeError) as error:
        raise TypeError(f"{what} are {described(given)}, but must be a tensor, an array or lists of numbers") from error
    if x.dtype.kind not in "fiub":
        raise TypeError(
            f"{what} are {described(given)} with dtype {x.dtype}, but must be real numbers: of complex ones half is "
            "lost"
        )
    return x.astype(np.float64)


def _pick(x: np.ndarray, item: int | None, name: str, what: str) -> np.ndarray:
    if x.ndim == 4:
        if item is None and len(x) > 1:
            raise ValueError(f"{what} of {name} hold a batch of {len(x)}, one can be drawn: say which with item=0")
        if item is not None and not -len(x) <= item < len(x):
            raise ValueError(f"item = {item}, but {what} of {name} hold a batch of {len(x)}: 0 to {len(x) - 1}")
        x = x[item or 0]
    if not np.isfinite(x).all():
        h, i, j = np.argwhere(~np.isfinite(x))[0]
        raise ValueError(
            f"{what} of {name} hold {x[h, i, j]} (head {h}, row {i}, column {j}): only finite numbers can be drawn"
        )
    return x


ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", dtype="S1")


def _sharpest(weights: np.ndarray) -> int:
    """Give the row of weights (h, i, j) whose heads choose most: far above equal weights for what each may look at."""
    weights = np.asarray(weights)
    equal = 1 / np.maximum((weights != 0).sum(-1), 1)
    return int((abs(weights).max(-1) - equal).sum(0).round(3).argmax())  # rounded: alike on every processor


BARE = '<p class="bare">Run this cell to choose heads and tokens.</p>'  # the style hides it


def write_page(layers: list[Layer], together: bool = False) -> str:
    """Put style, notes, table, data and script together.

    :param layers: what is drawn.
    :param together: whether all heads of the first layer are shown at once; False unless given.
    """
    tokens = list(dict.fromkeys(chain.from_iterable((layer.rows, layer.columns) for layer in layers)))
    found = {"tokens": tokens, "layers": [_packed(layer, tokens) for layer in layers]}
    found |= {"start": _sharpest(layers[0].weights), "together": together}
    data = json.dumps(found, separators=(",", ":"))
    for sign in "<>&":  # nothing in a token can end the script
        data = data.replace(sign, f"\\u{ord(sign):04x}")
    name = hashlib.sha256(data.encode()).hexdigest()[:12]  # the same view has the same name on every run
    colors = json.dumps([ON_LIGHT, ON_DARK], separators=(",", ":"))
    script = _file("headview.js").replace("__ID__", name).replace("__COLORS__", colors).replace("__DATA__", data)
    notes = "".join(f'<p class="note">{html.escape(note)}</p>' for layer in layers for note in layer.notes())
    fallback = f"<details open><summary>As a table</summary>{''.join(map(_table, layers))}</details>"
    letters = f"--words:{WORDS}pt;--small:{SMALL}pt;--first:{COLORS[0]}"
    style = f"<style>.mha-hv{{{letters}}}{_file('headview.css')}</style>"
    opening = f'<div class="mha-hv" data-view="{name}" data-lm-suppress-shortcuts="true">'  # JupyterLab: our arrows
    return f"{opening}{style}{BARE}{notes}{fallback}</div><script>{script}</script>"


def _file(name: str) -> str:
    text = files("mha.viz").joinpath(name).read_text("utf8")
    return "\n".join(line.strip() for line in text.splitlines())


def _pack(numbers: np.ndarray) -> dict:
    """Write numbers as two letters each: 4096 steps from the lowest to the highest."""
    low, high = min(float(numbers.min()), 0.0), max(float(numbers.max()), 0.0)
    steps = np.rint((numbers.ravel() - low) / ((high - low) or 1) * 4095).astype(int)
    letters = ALPHABET[np.stack([steps // 64, steps % 64], 1)]
    return {"low": float(f"{low:.6g}"), "high": float(f"{high:.6g}"), "text": letters.tobytes().decode()}


def _packed(layer: Layer, tokens: list[tuple[str, ...]]) -> dict:
    found = {"name": layer.name, "rows": tokens.index(layer.rows), "cols": tokens.index(layer.columns)}
    found |= {"heads": len(layer.weights), "weights": _pack(layer.weights)}
    if layer.q is not None and layer.k is not None:
        found |= {"queries": _pack(layer.q), "keys": _pack(layer.k), "width": layer.q.shape[-1]}
    return found


def _table(layer: Layer) -> str:
    """For each token that looks and each head: the token it looks at most, and how much."""
    head = "".join(f"<th scope=col>head {h}</th>" for h in range(len(layer.weights)))
    lines = []
    for i, token in enumerate(layer.rows):
        cells = "".join(f"<td>{html.escape(_most(w[i], layer.columns))}</td>" for w in layer.weights)
        lines.append(f"<tr><th scope=row>{html.escape(token)}</th>{cells}</tr>")
    caption = f"<caption>{html.escape(layer.name)}: where each token looks most</caption>"
    region = f'<div class="wide" role="region" tabindex="0" aria-label="{html.escape(layer.name)} as a table">'
    return f"{region}<table>{caption}<tr><td></td>{head}</tr>{''.join(lines)}</table></div>"


def _most(row: np.ndarray, tokens: tuple[str, ...]) -> str:
    """The token with the largest weight; tokens with the same weight are counted, not chosen among."""
    much = row.max()
    if not much:
        return "nothing"
    best = np.flatnonzero(np.isclose(row, much))
    if len(best) == 1:
        return f"{tokens[best[0]]} {much:.2f}"
    return f"{'all' if len(best) == len(tokens) else len(best)} tokens alike, {much:.2f}"


MOST_NUMBERS = 400_000  # about 1 MB of page


class HeadView:
    """Explore which token looks at which: choose a head, point at a token, see its weights and where they come from.

    Views of several parts of a model add up: ``HeadView(encoder, source, name="encoder") + HeadView(cross, target,
    source, name="cross")``. Layers may have different numbers of heads. It opens on the token whose heads
    choose most. Weights are shown to two decimals and stored to four thousand steps.

    :Raises: ValueError for tokens that do not fit, numbers that are not finite, more tokens than can be drawn, and a
        batch without ``item``.
    :Taught in: reading_heads.
    """

    @checked
    def __init__(
        self,
        weights,
        tokens: Sequence[str],
        keys: Sequence[str] | None = None,
        *,
        q=None,
        k=None,
        name: str = "layer",
        item: int | None = None,
        together: bool = False,
    ) -> None:
        """Take the weights, and what belongs to them.

        :param weights: (b, h, i, j) or (h, i, j), one tensor or one for each layer.
        :param tokens: the i tokens that attend.
        :param keys: the j tokens attended to; ``tokens`` unless given.
        :param q: the queries, (b, h, i, d), for each layer; with ``k`` it shows the products behind a weight; none
            unless given.
        :param k: the keys, (b, h, j, d), for each layer; none unless given.
        :param name: shown before the number of each layer; "layer" unless given.
        :param item: which sequence of the batch is shown, from 0; needed where it has several.
        :param together: whether all heads of the first layer are shown at once; False unless given.
        """
        layers = read_layers(weights, "weights")
        if (q is None) != (k is None):
            raise ValueError(f"q = {described(q)} and k = {described(k)} belong together: give both, or neither")
        vectors = [[None] * len(layers) if x is None else read_layers(x, s) for x, s in ((q, "q"), (k, "k"))]
        if {len(x) for x in vectors} != {len(layers)}:
            raise ValueError(f"weights of {len(layers)} layers, but q and k of {len(vectors[0])} and {len(vectors[1])}")
        names = [f"{name} {n}" if len(layers) > 1 else name for n in range(len(layers))]
        sides = shown(tokens), shown(tokens if keys is None else keys, "keys")
        self.layers = [read_layer(n, *sides, item, *x) for n, *x in zip(names, layers, *vectors, strict=True)]
        self.together = together
        _check_size(self.layers)

    def __add__(self, other: "HeadView") -> "HeadView":
        """Show the layers of both views, one below the other."""
        both = object.__new__(HeadView)
        both.layers, both.together = [*self.layers, *other.layers], self.together
        _check_size(both.layers)
        return both

    def __repr__(self) -> str:
        heads = [len(layer.weights) for layer in self.layers]
        return f"HeadView of {len(heads)} layers with {heads} heads"

    def _repr_html_(self) -> str:
        """Write the whole view."""
        return write_page(self.layers, self.together)


def _check_size(layers: list[Layer]) -> None:
    numbers = sum(x.size for layer in layers for x in (layer.weights, layer.q, layer.k) if x is not None)
    if numbers > MOST_NUMBERS:
        raise ValueError(
            f"{len(layers)} layers hold {numbers:,} numbers, but a page shows at most {MOST_NUMBERS:,}: give fewer "
            "layers, heads or tokens, or leave out q and k"
        )
