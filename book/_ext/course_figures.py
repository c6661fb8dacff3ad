"""Figures as drawings: what a notebook drew is drawn again by the same call, sharp, also for a phone and in the dark.

A notebook stores each figure as dots, and beside it the call of `mha.viz.plot` that drew it (tools/drawn.py). A picture
that somebody drew in another way stays as it is. Every figure is a link to itself, alone and large. A page shows one of
two links, the light or the dark one (figures.css); the browser fetches the picture that is shown, and no other.
"""

import inspect
import io
import json
import re
from contextlib import nullcontext
from itertools import chain
from unittest.mock import patch

LINK = '<a class="large{theme}" href="{address}" title="Open large">{picture}</a>'
THEMES = {"": " by-day", "-dark": " by-night"}  # the ending of a file: the classes of its link
PICTURE = re.compile(r'(?<!title="Open large">)<img\b[^>]*\bsrc="([^"]*/_images/)([0-9a-f]{64})\.png"[^>]*>')
LETTERS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Liberation Sans', sans-serif"
COLUMN = 7.3  # inches: the text of a page, on a desk
PHONE, TABLET = 600, 900  # pixels: up to here a page shows the drawing for a phone, of a wide figure up to the second


def calls_of(notebook):
    """The calls that drew the pictures of a notebook, by the first letters of the picture's name."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    outputs = chain.from_iterable(cell.get("outputs", ()) for cell in cells)
    stored = (output.get("metadata", {}).get("drawn", {}) for output in outputs)
    return {one["picture"]: json.loads(one["call"]) for one in stored if "call" in one}


# ---- drawn again


def draw(call, look):
    """Draw, and give what `look` sees in the figure before it is closed."""
    import matplotlib.pyplot as plt

    from mha.viz import plot

    seen, (function, arguments) = [], call
    with patch.object(plt, "show", lambda: seen.append(look(plt.gcf()))):
        inspect.unwrap(getattr(plot, function))(**arguments)  # checked when it was called; as JSON, a pair is a list
    return seen[0]


def svg(figure):
    """A figure as text; its letters are letters, in the fonts of the page."""
    import matplotlib as mpl

    file = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "mha"}):
        figure.savefig(file, format="svg", bbox_inches="tight", pad_inches=0.04, metadata={"Date": None})
    text = re.sub(r"<metadata>.*?</metadata>", "", file.getvalue(), flags=re.DOTALL)
    return re.sub(r"(font-family: |font: [^;\"]*?px )[^;\"]+", rf"\g<1>{LETTERS}", text)


def drawings(call):
    """A figure as it stands in the notebook, and for a phone; by the ending of their names, light and dark."""
    import matplotlib as mpl

    mpl.use("Agg")
    from mha.viz import plot

    found = {}
    for ending in THEMES:
        with plot.dark() if ending else nullcontext():
            with plot.narrow():
                small = draw(call, svg)
            with patch.object(plot, "WIDE", COLUMN):
                found[ending] = draw(call, svg), small
    return found


# ---- into the pages


def size(drawing):
    """Width and height in pixels of a page."""
    found = re.search(r'<svg [^>]*?width="([\d.]+)pt" height="([\d.]+)pt"', drawing)
    return [round(float(length) * 96 / 72) for length in found.groups()]


def with_drawings(page, calls, folder):
    """A page whose pictures are drawings that fit it, each a link to itself; `folder` is where they are kept."""

    def drawn(found):
        image, up, name = found[0], found[1], found[2]
        if name[:12] not in calls:
            return LINK.format(theme="", address=f"{up}{name}.png", picture=image)
        links = []
        for theme, both in drawings(calls[name[:12]]).items():
            (wide, high), (narrow, low) = map(size, both)
            for ending, drawing in zip(("", "-phone"), both, strict=True):
                (folder / f"{name}{ending}{theme}.svg").write_text(drawing, encoding="utf-8")
            shown = image.replace(f"{name}.png", f"{name}{theme}.svg")
            shown = shown.replace("<img ", f'<img width="{wide}" height="{high}" ', 1)
            screen = f"screen and (max-width: {PHONE if wide <= PHONE else TABLET}px)"
            source = f'<source media="{screen}" width="{narrow}" height="{low}" srcset="{up}{name}-phone{theme}.svg">'
            picture = f"<picture>{source}{shown}</picture>"
            links.append(LINK.format(theme=THEMES[theme], address=f"{up}{name}{theme}.svg", picture=picture))
        return "".join(links)

    return PICTURE.sub(drawn, page)


def draw_figures(source, target):
    """Draw the figures of all pages of notebooks."""
    for path in sorted((target / "notebooks").glob("*.html")):
        page, notebook = path.read_text(encoding="utf-8"), source / "notebooks" / f"{path.stem}.ipynb"
        if PICTURE.search(page) and notebook.is_file():
            path.write_text(with_drawings(page, calls_of(notebook), target / "_images"), encoding="utf-8")
