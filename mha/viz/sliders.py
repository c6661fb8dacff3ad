"""Small pictures that change with sliders and buttons: every state is computed in the notebook, the page only shows it.

Sliders, buttons and drawings are made by the script. Where it does not run there is one picture, as an image, and a
line that says which settings exist; a notebook that its program does not trust yet shows the same.

:Taught in: why_scale, masking, split_and_merge.
"""

import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any
from urllib.parse import quote

from mha.checks import checked, described
from mha.viz.palette import LETTERS
from mha.viz.palette import ON_LIGHT as COLORS


def _svg(width, height, body: str) -> str:
    box = f'viewBox="0 0 {width:g} {height:g}" style="max-width:{width / 11:.1f}rem"'  # letters as large as the page's
    return f'<svg {box} font-size="11" fill="currentColor">{body}</svg>'


def _text(x, y, text: str, anchor: str = "middle", fill: str = "currentColor") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{fill}">{html.escape(text)}</text>'


def bars(rows: Mapping) -> str:
    """Draw rows of bars, one row for each name.

    :param rows: numbers between 0 and 1, by name.
    :Taught in: why_scale.
    """
    body = ""
    for n, (name, values) in enumerate(rows.items()):
        bottom = 114 * (n + 1) - 28
        body += _text(0, bottom - 72, name, "start")
        for i, value in enumerate(values):
            x, height = 44 * i, 64 * float(value)
            body += f'<rect x="{x}" y="{bottom - height:.1f}" width="36" height="{height:.1f}" fill="{COLORS[0]}"/>'
            body += _text(x + 18, bottom + 14, f"{float(value):.2f}")
    return _svg(44 * max(map(len, rows.values())), 114 * len(rows), body)


def cells(matrix, rows: Sequence[str], columns: Sequence[str], heads: list | None = None) -> str:
    """Draw a table of squares: dark for 1, light for 0, or in the colors of heads.

    :param matrix: rows of numbers, (i, j); between 0 and 1 without ``heads``.
    :param rows: the i names of the rows.
    :param columns: the j names of the columns.
    :param heads: the number of the head of each square, (i, j); none unless given.
    :Taught in: masking, split_and_merge.
    """
    body = "".join(_text(104 + 48 * j, 12, name) for j, name in enumerate(columns))
    for i, (name, row) in enumerate(zip(rows, matrix, strict=True)):
        body += _text(74, 42 + 32 * i, name, "end")
        for j, value in enumerate(row):
            head = 0 if heads is None else heads[i][j]
            fill, depth = COLORS[head], 0.6 * float(value) if heads is None else 1.0
            box = f'x="{82 + 48 * j}" y="{22 + 32 * i}" width="44" height="28" rx="3"'
            body += f'<rect {box} fill="{fill}" fill-opacity="{depth:.2f}" stroke="currentColor" stroke-opacity=".3"/>'
            shown, letters = (f"{float(value):.2f}", "currentColor") if heads is None else (f"{value:g}", LETTERS[head])
            body += _text(104 + 48 * j, 40 + 32 * i, shown, fill=letters)
    return _svg(90 + 48 * len(columns), 26 + 32 * len(rows), body)


SCRIPT = (
    "(()=>{const f=document.getElementById(%s);f.querySelectorAll('.still').forEach(x=>x.remove());"
    "f.insertAdjacentHTML('beforeend',%s);const i=[...f.querySelectorAll('fieldset,input[type=range]')],"
    "s=[...f.querySelectorAll('svg')],show=()=>{let at=0;i.forEach(x=>{"
    "if(x.elements){at=2*at+ +x.elements[1].checked;return}"
    "const name=JSON.parse(x.dataset.names)[x.value];at=at*(+x.max+1)+ +x.value;"
    "x.nextElementSibling.textContent=name;x.setAttribute('aria-valuetext',name)});"
    "s.forEach((x,n)=>x.toggleAttribute('hidden',n!=at))};i.forEach(x=>x.addEventListener('input',show));show()})()"
)


STYLE = (
    ".mha-frames{margin:.5em 0 1.2em;max-width:44em}.mha-frames label{display:grid;align-items:center;gap:.2em 1em;"
    "grid-template-columns:11em 1fr 9em;text-align:left}.mha-frames input{accent-color:#0b6e99}"
    ".mha-frames output{font-weight:600}.mha-frames svg{width:100%;height:auto;margin-top:.6em}"
    ".mha-frames svg[hidden],.mha-frames .bare{display:none}.mha-frames img{max-width:100%}"
    "@media(max-width:40em){.mha-frames label{grid-template-columns:1fr auto}"
    ".mha-frames input{grid-row:2;grid-column:1/3}}"
)
OF_TWO = (
    ".mha-frames fieldset{display:flex;flex-wrap:wrap;align-items:center;gap:.3em .6em;border:0;margin:0;"
    "padding:.2em 0}.mha-frames legend{float:left;width:11em;margin:0 .4em 0 0;padding:0;font-size:inherit;"
    "text-align:left}"
    ".mha-frames fieldset label{display:inline-flex;gap:.5em;padding:.1em .8em;border:1px solid;border-radius:.4em;"
    "cursor:pointer}.mha-frames label:has(:checked){border-color:#0b6e99;box-shadow:inset 0 0 0 1px #0b6e99}"
    "@media(max-width:40em){.mha-frames legend{width:100%}}"
)


class Frames:
    """Pictures to choose from: a slider for each question, or two buttons. Without a script one of them is shown.

    :Raises: ValueError for fewer than two pictures, too short a description, a choice without a picture, or a start
        that is none of them.
    :Taught in: why_scale, masking, split_and_merge.
    """

    @checked
    def __init__(
        self,
        pictures: Mapping[Any, str],
        question: str | Sequence[str],
        alt: str,
        start: str | tuple[str, ...] | None = None,
    ) -> None:
        """Keep pictures by name.

        A question with two answers gets buttons, any other a slider.

        :param pictures: SVG by name, at least two; with several questions a name is a tuple, and the last answer
            changes first.
        :param question: what is shown before its answers; several for several choices.
        :param alt: what changes, in words, at least 40 characters.
        :param start: the name of the picture shown first; the first one unless given.
        """
        if len(pictures) < 2 or len(alt) < 40:
            raise ValueError(
                f"pictures are {len(pictures)} and alt = {described(alt)} has {len(alt)} characters: at least 2 and "
                "40 are needed"
            )
        self.alt, self.pictures = alt, list(pictures.values())
        self.questions = (question,) if isinstance(question, str) else tuple(question)
        names = [tuple(name) if isinstance(name, tuple) else (name,) for name in pictures]
        self.answers = [list(dict.fromkeys(given)) for given in zip(*names, strict=False)]
        if len(self.answers) != len(self.questions) or names != list(product(*self.answers)):
            raise ValueError(
                f"question = {self.questions}: they need a picture for every combination of answers, in the order "
                f"of itertools.product; got {names}"
            )
        if start is not None and start not in pictures:
            raise ValueError(f"start = {described(start)}: no picture has this name, but {names}")
        self.at = list(pictures).index(start) if start is not None else 0  # the picture shown first
        chosen = names[self.at]
        self.start = [given.index(name) for given, name in zip(self.answers, chosen, strict=True)]

    def _repr_html_(self) -> str:
        content = json.dumps([self.questions, self.answers, self.pictures, *([self.at] if self.at else [])])
        name = "frames-" + hashlib.sha256(content.encode()).hexdigest()[:8]
        asked = [
            _buttons(question, names, at, f"{name}-{number}") if len(names) == 2 else _slider(question, names, at)
            for number, (question, names, at) in enumerate(zip(self.questions, self.answers, self.start, strict=True))
        ]
        style = STYLE + OF_TWO if any(len(names) == 2 for names in self.answers) else STYLE
        drawn = "".join(
            picture if number == self.at else picture.replace("<svg ", "<svg hidden ", 1)
            for number, picture in enumerate(self.pictures)
        )
        moving = f'{"".join(asked)}<div role="img" aria-label="{html.escape(self.alt)}">{drawn}</div>'
        script = SCRIPT % (json.dumps(name), _in_script(moving))
        return (
            f'<figure class="mha-frames" id="{name}"><style>{style}</style>{self._still()}'
            f"<script>{script}</script></figure>"
        )

    def _still(self) -> str:
        """Write what is shown until the script runs: the settings in words, and the picture of one of them."""
        asked = zip(self.questions, self.answers, self.start, strict=True)
        settings = "; ".join(f"{question} {', '.join(names)} (here: {names[at]})" for question, names, at in asked)
        line = f'<p class="still">{html.escape(settings)}. <b class="bare">Run this cell to choose.</b></p>'
        return f'{line}<p class="still">{_image(self.pictures[self.at], self.alt)}</p>'

    def __repr__(self) -> str:
        asked = zip(self.questions, self.answers, strict=True)
        return " ".join([*(f"{question} {', '.join(names)}." for question, names in asked), self.alt])


def _in_script(text: str) -> str:
    """Write a text as a literal of a script that nothing in it can end."""
    return re.sub("<(?=[/!])", r"\\u003c", json.dumps(text, ensure_ascii=False))


def _image(picture: str, alt: str) -> str:
    """Write a drawing as an image on white: an image does not know the colors of its page."""
    box = re.search(r'viewBox="\S+ \S+ (\S+) ', picture)
    width = f' width="{1.4 * float(box[1]):.0f}"' if box else ""
    whole = re.sub(r' style="[^"]*"', "", picture, count=1) if box else picture
    around = 'xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" style="background:#fff"'
    address = quote(whole.replace("<svg ", f"<svg {around} ", 1), safe=" /:=,;()")
    return f'<img{width} src="data:image/svg+xml,{address}" alt="{html.escape(alt)}">'


def _slider(question: str, names: list[str], at: int) -> str:
    first, known = html.escape(names[at]), html.escape(json.dumps(names, ensure_ascii=False))
    scale = f'min="0" max="{len(names) - 1}" value="{at}" aria-valuetext="{first}" data-names="{known}"'
    return f'<label><span>{html.escape(question)}</span> <input type="range" {scale}><output>{first}</output></label>'


def _buttons(question: str, names: list[str], at: int, group: str) -> str:
    buttons = "".join(
        f'<label><input type="radio" name="{group}"{" checked" * (number == at)}>{html.escape(name)}</label>'
        for number, name in enumerate(names)
    )
    return f"<fieldset><legend>{html.escape(question)}</legend>{buttons}</fieldset>"
