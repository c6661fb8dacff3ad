"""Models as a table: plain text, and HTML that can be searched and sorted with a mouse, a finger or a keyboard.

Where scripts are stripped, the whole table stays; on a narrow screen each row becomes a card.

:Taught in: choosing.
"""

import hashlib
import html
import textwrap
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

NAME, MIX, NUMBER = 20, 23, 7  # columns of a terminal
SHARE = "share of layers that reach all tokens"  # by this, layers are sorted


def lengths(tokens: Sequence[int]) -> list[str]:
    """Write lengths as people do: 8k, 128k.

    :param tokens: whole multiples of 1,024.
    """
    return [f"{n // 1024}k" for n in tokens]


def figure(x: float) -> str:
    """Write a number with three digits, or all of a larger one.

    :param x: not negative.
    """
    return f"{x:,.0f}" if x >= 99.95 else f"{x:.1f}" if x >= 9.995 else f"{x:.2f}"


def text(models: Sequence[Any], tokens: Sequence[int]) -> str:
    """Write models for a terminal, 72 columns wide.

    :param models: the rows.
    :param tokens: two lengths.
    """
    long = tokens[-1]
    near, far = lengths(tokens)
    lines = [
        f"{'':{NAME}} {'':{MIX}}{'KiB per token':>{2 * NUMBER}}{'GiB':>{NUMBER}}{'GFLOP':>{NUMBER}}",
        f"{'model':{NAME}} {'layers':{MIX}}" + "".join(f"{at:>{NUMBER}}" for at in (near, far, far, far)),
    ]
    for model in models:
        mix = textwrap.wrap(model.mix, MIX - 1)
        each = [model.kept(n) / n / 2**10 for n in tokens]
        numbers = "".join(f"{figure(x):>{NUMBER}}" for x in (*each, model.kept(long) / 2**30, model.flops(long) / 1e9))
        lines.append(f"{model.name:{NAME}} {mix[0]:{MIX}}{numbers}")
        lines += [f"{'':{NAME}} {more}" for more in mix[1:]]
    return "\n".join(lines)


def written(models: Sequence[Any], tokens: Sequence[int]) -> str:
    """Write models as HTML with style and script.

    :param models: the rows.
    :param tokens: two lengths.
    """
    short, long = lengths(tokens)
    heads = ["model", "layers", f"KiB per token at {short}", f"KiB per token at {long}"]
    heads += [f"MiB at {short}", f"GiB at {long}", f"GFLOP at {short}", f"GFLOP at {long}"]
    by = {"layers": f' data-by="{SHARE}"'}
    head = "".join(f'<th role="columnheader" scope="col"{by.get(one, "")}>{one}</th>' for one in heads)
    body = "".join(_row(model, tokens, heads) for model in models)
    name = hashlib.sha256(body.encode()).hexdigest()[:12]  # the same table has the same name on every run
    caption = f"<caption>Attention of {len(models)} released models: cache in bfloat16, states in float32</caption>"
    table = (
        f'<table role="table">{caption}<thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">{body}</tbody></table>'
    )
    region = f'<div class="wide" role="region" tabindex="0" aria-label="Attention of released models">{table}</div>'
    opening = f'<div class="mha-rm" data-view="{name}" data-lm-suppress-shortcuts="true">'
    script = _file("page.js").replace("__ID__", name)
    return f"{opening}<style>{_file('page.css')}</style>{region}</div><script>{script}</script>"


def _row(model: Any, tokens: Sequence[int], heads: Sequence[str]) -> str:
    kept = [model.kept(n) for n in tokens]
    numbers = [held / n / 2**10 for held, n in zip(kept, tokens, strict=True)]
    numbers += [kept[0] / 2**20, kept[1] / 2**30]
    numbers += [model.flops(n) / 1e9 for n in tokens]
    given = ", ".join(f"{key} = {_shown(value)}" for key, value in model.arguments.items())
    source = f"<small>{model.config}</small>"
    if given:
        source = f"<details><summary>{model.config}, with arguments</summary>{html.escape(given)}</details>"
    layers = "".join(f"<li>{html.escape(str(layer))}</li>" for layer in model.layers)
    cells = [f'<th role="rowheader" scope="row"><b>{html.escape(model.name)}</b>{source}</th>']
    cells += [f'<td role="cell" data-by="{model.reaching:.6g}"><ul>{layers}</ul></td>']
    cells += [
        f'<td role="cell" data-n="{x:.6g}" data-label="{label}">{figure(x)}</td>'
        for x, label in zip(numbers, heads[2:], strict=True)
    ]
    return f'<tr role="row">{"".join(cells)}</tr>'


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_shown(one)}" for key, one in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        runs: list[tuple[Any, int]] = []
        for one in value:
            runs = [*runs[:-1], (one, runs[-1][1] + 1)] if runs and runs[-1][0] == one else [*runs, (one, 1)]
        return "[" + ", ".join(f"{_shown(one)}" + f" × {n}" * (n > 1) for one, n in runs) + "]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _file(name: str) -> str:
    lines = files("mha.course.released").joinpath(name).read_text("utf8").splitlines()
    return "\n".join(line.strip() for line in lines)
