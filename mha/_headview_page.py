"""How the head view is written down: numbers as letters, words as a table, all of it in one piece of HTML."""

import hashlib
import html
import json
from importlib.resources import files
from itertools import chain

import numpy as np

from mha._headview_inputs import Layer

ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", dtype="S1")


def write_page(layers: list[Layer]) -> str:
    """Put style, notes, table, data and script together."""
    tokens = list(dict.fromkeys(chain.from_iterable((layer.rows, layer.columns) for layer in layers)))
    start = min(len(layers[0].rows) - 1, 1)  # a first word often has nothing but itself
    data = {"tokens": tokens, "layers": [_packed(layer, tokens) for layer in layers], "start": start}
    data = json.dumps(data, separators=(",", ":"))
    for sign in "<>&":  # nothing in a word can end the script
        data = data.replace(sign, f"\\u{ord(sign):04x}")
    name = hashlib.sha256(data.encode()).hexdigest()[:12]  # the same view has the same name on every run
    script = _file("headview.js").replace("__ID__", name).replace("__DATA__", data)
    notes = "".join(f'<p class="note">{html.escape(note)}</p>' for layer in layers for note in layer.notes())
    fallback = f"<details open><summary>As a table</summary>{''.join(map(_table, layers))}</details>"
    style = f"<style>{_file('headview.css')}</style>"
    start = f'<div class="mha-hv" data-view="{name}" data-lm-suppress-shortcuts="true">'  # JupyterLab: our arrows
    return f"{start}{style}{notes}{fallback}</div><script>{script}</script>"


def _file(name: str) -> str:
    text = files("mha").joinpath(name).read_text("utf8")
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
    if layer.q is not None:
        found |= {"queries": _pack(layer.q), "keys": _pack(layer.k), "width": layer.q.shape[-1]}
    return found


def _table(layer: Layer) -> str:
    """For each word that looks and each head: the word it looks at most, and how much."""
    head = "".join(f"<th scope=col>head {h + 1}</th>" for h in range(len(layer.weights)))
    lines = []
    for i, word in enumerate(layer.rows):
        best = [(float(w[i].max()), layer.columns[int(w[i].argmax())]) for w in layer.weights]
        cells = "".join(f"<td>{html.escape(to)} {much:.2f}</td>" if much else "<td>nothing</td>" for much, to in best)
        lines.append(f"<tr><th scope=row>{html.escape(word)}</th>{cells}</tr>")
    caption = f"<caption>{html.escape(layer.name)}: where each word looks most</caption>"
    region = f'<div class="wide" role="region" tabindex="0" aria-label="{html.escape(layer.name)} as a table">'
    return f"{region}<table>{caption}<tr><td></td>{head}</tr>{''.join(lines)}</table></div>"
