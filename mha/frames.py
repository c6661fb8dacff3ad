"""Small pictures that change with a slider: every state is computed in the notebook, the page only shows another one.

Taught in: chapters 02, 03, 05 and 11.
"""

import hashlib
import html
import json
import math
from collections.abc import Mapping, Sequence

ACCENTS = ("#0b6e99", "#c2410c", "#15803d", "#7c3aed")  # one for each head; text on them is white
SCRIPT = (
    "(()=>{const f=document.getElementById(%s),i=f.querySelector('input'),o=f.querySelector('output'),"
    "s=[...f.querySelectorAll('svg')],show=()=>{s.forEach((x,n)=>x.toggleAttribute('hidden',n!=i.value));"
    "o.textContent=s[i.value].dataset.name;i.setAttribute('aria-valuetext',o.textContent)};"
    "i.addEventListener('input',show);show()})()"
)
STYLE = (
    ".mha-frames{margin:.5em 0 1.2em;max-width:44em}.mha-frames label{display:flex;flex-wrap:wrap;gap:.3em 1em;"
    "align-items:center}.mha-frames input{flex:1 1 12em;accent-color:#0b6e99}.mha-frames output{min-width:9em;"
    "font-weight:600}.mha-frames svg{width:100%;height:auto;margin-top:.6em}.mha-frames svg[hidden]{display:none}"
)


class Frames:
    """Pictures to choose from with a slider. Without a script the first one is shown.

    Raises: ValueError for fewer than two pictures, or a description too short to stand for them.
    Taught in: chapters 02, 03, 05 and 11.
    """

    def __init__(self, pictures: Mapping[str, str], question: str, alt: str) -> None:
        """Keep pictures by name; ``question`` stands before the slider, ``alt`` says in words what changes."""
        if len(pictures) < 2 or len(alt) < 40:
            raise ValueError(
                f"{len(pictures)} pictures and {len(alt)} characters of text: at least 2 and 40 are needed"
            )
        self.pictures, self.question, self.alt = dict(pictures), question, alt

    def _repr_html_(self) -> str:
        name = "frames-" + hashlib.sha256(json.dumps([self.question, self.pictures]).encode()).hexdigest()[:8]
        drawn = "".join(
            picture.replace("<svg ", f'<svg data-name="{html.escape(label)}"{" hidden" if n else ""} ', 1)
            for n, (label, picture) in enumerate(self.pictures.items())
        )
        first = html.escape(next(iter(self.pictures)))
        slider = f'<input type="range" min="0" max="{len(self.pictures) - 1}" value="0" aria-valuetext="{first}">'
        return (
            f'<figure class="mha-frames" id="{name}"><style>{STYLE}</style><label>{html.escape(self.question)} {slider}'
            f'<output>{first}</output></label><div role="img" aria-label="{html.escape(self.alt)}">{drawn}</div>'
            f"<script>{SCRIPT % json.dumps(name)}</script></figure>"
        )

    def __repr__(self) -> str:
        return f"{self.question} {', '.join(self.pictures)}. {self.alt}"


def _svg(width, height, body: str) -> str:
    return f'<svg viewBox="0 0 {width:g} {height:g}" font-size="11" fill="currentColor">{body}</svg>'


def _text(x, y, text: str, anchor: str = "middle", fill: str = "currentColor") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{fill}">{html.escape(text)}</text>'


def bars(rows: Mapping) -> str:
    """Draw rows of bars between 0 and 1, one row for each name.

    Taught in: chapter 02.
    """
    body = ""
    for n, (name, values) in enumerate(rows.items()):
        bottom = 90 * (n + 1) - 18
        body += _text(0, bottom + 14, name, "start")
        for i, value in enumerate(values):
            x, height = 120 + 36 * i, 64 * float(value)
            body += f'<rect x="{x}" y="{bottom - height:.1f}" width="28" height="{height:.1f}" fill="{ACCENTS[0]}"/>'
            body += _text(x + 14, bottom + 14, f"{float(value):.2f}")
    return _svg(130 + 36 * max(map(len, rows.values())), 90 * len(rows), body)


def cells(matrix, rows: Sequence[str], columns: Sequence[str], heads: list | None = None) -> str:
    """Draw a table of squares: dark for 1, light for 0, or, with ``heads``, in the color of a head.

    Taught in: chapters 03 and 05.
    """
    body = "".join(_text(104 + 48 * j, 12, name) for j, name in enumerate(columns))
    for i, (name, row) in enumerate(zip(rows, matrix, strict=True)):
        body += _text(74, 42 + 32 * i, name, "end")
        for j, value in enumerate(row):
            fill, depth = (ACCENTS[0], float(value)) if heads is None else (ACCENTS[heads[i][j]], 1.0)
            box = f'x="{82 + 48 * j}" y="{22 + 32 * i}" width="44" height="28" rx="3"'
            body += f'<rect {box} fill="{fill}" fill-opacity="{depth:.2f}" stroke="currentColor" stroke-opacity=".3"/>'
            shown = f"{float(value):.2f}" if heads is None else f"{value:g}"
            body += _text(104 + 48 * j, 40 + 32 * i, shown, fill="currentColor" if depth < 0.5 else "#ffffff")
    return _svg(90 + 48 * len(columns), 26 + 32 * len(rows), body)


def roof(ridge, points: Mapping) -> str:
    """Draw a roofline on logarithmic axes, and points by their intensity; heights are shares of the peak.

    Taught in: chapter 11.
    """

    def place(intensity):
        return 40 + 75 * (math.log10(intensity) + 1), 30 - 55 * math.log10(min(1.0, intensity / ridge))

    corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(0.1), place(ridge), place(10_000)))
    body = f'<polyline points="{corners}" fill="none" stroke="currentColor" stroke-width="1.5"/>'
    for n, (name, intensity) in enumerate(points.items()):
        (x, y), share = place(intensity), min(1.0, intensity / ridge)
        body += f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{ACCENTS[n]}"/>'
        body += f'<circle cx="230" cy="{186 + 16 * n}" r="5" fill="{ACCENTS[n]}"/>'
        body += _text(240, 190 + 16 * n, f"{name}: {intensity:.3g} per byte, {share:.1%} of the peak", "start")
    for power in range(-1, 5):
        body += _text(40 + 75 * (power + 1), 244, f"{10**power:g}")
    body += _text(40, 260, "operations per byte", "start") + _text(425, 22, "the peak", "end")
    return _svg(520, 266, body)
