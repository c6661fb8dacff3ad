"""What the head view accepts, and how it says so."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MOST_WORDS = 64  # more lines than a reader, or a phone, can tell apart


@dataclass(frozen=True)
class Layer:
    """One layer to draw: weights (h, i, j), its words, and queries (h, i, d) and keys (h, j, d) if there are any."""

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
        heads = [str(h + 1) for h in np.flatnonzero(odd.any(-1))]
        if not heads:
            return []
        low, high = sums[odd].min(), sums[odd].max()
        which = f"head {heads[0]}" if len(heads) == 1 else f"heads {', '.join(heads)}"
        return [f"{self.name}: weights of {which} do not sum to one but to {low:.2f} to {high:.2f}; drawn as they are."]


def shown(tokens: Sequence[str]) -> tuple[str, ...]:
    """Make words visible: outer spaces, line ends and what a page cannot print."""
    if isinstance(tokens, str):
        raise TypeError(f"tokens is one text, {tokens[:20]!r}: give a list of words, such as text.split()")
    odd = {"\n": "⏎", "\t": "⇥"}

    def one(word: str) -> str:
        inner = word.strip(" ")
        before = len(word) - len(word.lstrip(" ")) if inner else len(word)
        word = "␣" * before + inner + "␣" * (len(word) - before - len(inner))
        return "".join(odd.get(c) or (c if c.isprintable() else ascii(c)[1:-1]) for c in word) or "∅"

    return tuple(one(str(token)) for token in tokens)


def read_layers(x, what: str) -> list[np.ndarray]:
    """Turn one tensor, or one for each layer, into arrays (b, h, i, j)."""
    many = isinstance(x, (list, tuple)) and len(x) and hasattr(x[0], "shape")
    arrays = [_array(one) for one in (x if many else [x])]
    for n, array in enumerate(arrays):
        if array.ndim not in (3, 4) or 0 in array.shape:
            raise ValueError(
                f"{what} of layer {n + 1} have shape {array.shape}, but must be (batch, head, query, key) or "
                "(head, query, key), none of them empty; for several layers give a list of such tensors"
            )
    return arrays


def read_layer(name: str, rows, columns, item: int | None, weights, q, k) -> Layer:
    """Take one item of a batch and check that words, weights and vectors belong together."""
    found = {w: _pick(x, item, name, w) for w, x in (("weights", weights), ("q", q), ("k", k)) if x is not None}
    heads, i, j = found["weights"].shape
    for what, words, size in (("tokens", rows, i), ("keys", columns, j)):
        if len(words) != size:
            raise ValueError(
                f"{name} has weights of shape {(heads, i, j)}: {what} must be {size} words, not {len(words)}"
            )
    if max(i, j) > MOST_WORDS:
        raise ValueError(
            f"{name} has weights of {i} × {j} words, but at most {MOST_WORDS} can be drawn: cut them, as in "
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


def _array(x) -> np.ndarray:
    x = x.detach().cpu().double() if hasattr(x, "detach") else x
    return np.asarray(x, dtype=np.float64)


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
            f"{what} of {name} hold {x[h, i, j]} (head {h + 1}, row {i}, column {j}): only finite numbers can be drawn"
        )
    return x
