"""Small pictures that change with sliders: every state is computed in the notebook, the page only shows another one.

Taught in: chapters 02, 03, 05 and 11.
"""

import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from itertools import product

from mha._drawings import bars, cells, roof

__all__ = ["Frames", "bars", "cells", "roof"]

SCRIPT = (
    "(()=>{const f=document.getElementById(%s),i=[...f.querySelectorAll('input')],s=[...f.querySelectorAll('svg')],"
    "show=()=>{let at=0;i.forEach(x=>{const name=JSON.parse(x.dataset.names)[x.value];at=at*(+x.max+1)+ +x.value;"
    "x.nextElementSibling.textContent=name;x.setAttribute('aria-valuetext',name)});"
    "s.forEach((x,n)=>x.toggleAttribute('hidden',n!=at))};i.forEach(x=>x.addEventListener('input',show));show()})()"
)
STYLE = (
    ".mha-frames{margin:.5em 0 1.2em;max-width:44em}.mha-frames label{display:grid;align-items:center;gap:.2em 1em;"
    "grid-template-columns:11em 1fr 9em;text-align:left}.mha-frames input{accent-color:#0b6e99}"
    ".mha-frames output{font-weight:600}.mha-frames svg{width:100%;height:auto;margin-top:.6em}"
    ".mha-frames svg[hidden]{display:none}@media(max-width:40em){.mha-frames label{grid-template-columns:1fr auto}"
    ".mha-frames input{grid-row:2;grid-column:1/3}}"
)


class Frames:
    """Pictures to choose from with sliders. Without a script the first one is shown.

    Raises: ValueError for fewer than two pictures, too short a description, or a choice without a picture.
    Taught in: chapters 02, 03, 05 and 11.
    """

    def __init__(self, pictures: Mapping, question: str | Sequence[str], alt: str) -> None:
        """Keep pictures by name; ``question`` stands before the slider, ``alt`` says in words what changes.

        With several questions there is one slider for each, and a name is a tuple: the last answer changes first.
        """
        if len(pictures) < 2 or len(alt) < 40:
            raise ValueError(
                f"{len(pictures)} pictures and {len(alt)} characters of text: at least 2 and 40 are needed"
            )
        self.alt, self.pictures = alt, list(pictures.values())
        self.questions = (question,) if isinstance(question, str) else tuple(question)
        names = [(name,) if isinstance(name, str) else tuple(name) for name in pictures]
        self.answers = [list(dict.fromkeys(given)) for given in zip(*names, strict=False)]
        if len(self.answers) != len(self.questions) or names != list(product(*self.answers)):
            raise ValueError(
                f"the questions {self.questions} need a picture for every combination of answers, in the order of "
                f"itertools.product; got {names}"
            )

    def _repr_html_(self) -> str:
        content = json.dumps([self.questions, self.answers, self.pictures])
        name = "frames-" + hashlib.sha256(content.encode()).hexdigest()[:8]
        sliders = "".join(map(_slider, self.questions, self.answers))
        first, *others = self.pictures
        drawn = first + "".join(picture.replace("<svg ", "<svg hidden ", 1) for picture in others)
        return (
            f'<figure class="mha-frames" id="{name}"><style>{STYLE}</style>{sliders}'
            f'<div role="img" aria-label="{html.escape(self.alt)}">{drawn}</div>'
            f"<script>{SCRIPT % json.dumps(name)}</script></figure>"
        )

    def __repr__(self) -> str:
        asked = zip(self.questions, self.answers, strict=True)
        return " ".join([*(f"{question} {', '.join(names)}." for question, names in asked), self.alt])


def _slider(question: str, names: list[str]) -> str:
    first, known = html.escape(names[0]), html.escape(json.dumps(names, ensure_ascii=False))
    scale = f'min="0" max="{len(names) - 1}" value="0" aria-valuetext="{first}" data-names="{known}"'
    return f'<label><span>{html.escape(question)}</span> <input type="range" {scale}><output>{first}</output></label>'
