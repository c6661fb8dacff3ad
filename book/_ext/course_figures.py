"""Figures as drawings: what a notebook drew is drawn again from the stored numbers, sharp, and once more for a phone.

A notebook stores each figure as dots, and beside it the numbers that were drawn (tools/drawn.py), which the tests
compare. From them the functions of `mha.viz.plot` draw the same figure as SVG. A picture that somebody drew in another
way stays as it is. Every figure is a link to itself, alone and large.
"""

import io
import json
import math
import re
import runpy
from itertools import chain
from pathlib import Path
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[2]
LINK = '<a class="large" href="{address}" title="Open large">{picture}</a>'
PICTURE = re.compile(r'(?<!title="Open large">)<img\b[^>]*\bsrc="([^"]*/_images/)([0-9a-f]{64})\.png"[^>]*>')
LETTERS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Liberation Sans', sans-serif"
COLUMN = 7.3  # inches: the text of a page, on a desk
PHONE, TABLET = 600, 900  # pixels: up to here a page shows the drawing for a phone, of a wide figure up to the second


def numbers_of(notebook):
    """What each picture of a notebook shows, by the first letters of the picture's name."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    outputs = chain.from_iterable(cell.get("outputs", ()) for cell in cells)
    stored = [output["metadata"]["drawn"] for output in outputs if "drawn" in output.get("metadata", {})]
    return {one["picture"]: one["numbers"] for one in stored}


def row(text):
    return [float(x) for x in text.split()]


# ---- from the numbers back to the call that drew them


def calls(drawn):
    """The function of `mha.viz.plot` and its arguments, one or more ways that may have given these numbers."""
    axes = [axis for axis in drawn["axes"] if axis["artists"]]  # a bar of colors shows nothing of its own
    kinds = {artist["kind"] for axis in axes for artist in axis["artists"]}
    if kinds == {"AxesImage"}:
        colored = len(row(axes[0]["artists"][0]["shape"])) == 3
        return [(tiles if colored else grid)(axes, across) for across in range(len(axes), 0, -1)]
    if "Rectangle" in kinds:
        return [bars(axes[0])]
    if kinds == {"Line2D"} and axes[0]["artists"][0]["label"]:
        return [lines(axes[0])]
    return [links(axes)] if kinds == {"Line2D"} and axes[0]["written"][0][1].startswith("-0.06 ") else []


def digits_of(texts):
    return max((len(text.partition(".")[2]) for text, _ in texts), default=0)


def labels(axes, side):
    return next((axis["ticks"][side] for axis in axes if axis["ticks"][side]), [])


def grid(axes, across):
    import numpy as np

    images = [axis["artists"][0] for axis in axes]
    shapes = [[int(n) for n in row(image["shape"])] for image in images]
    panels = [np.array(row(image["values"])).reshape(shape) for image, shape in zip(images, shapes, strict=True)]
    usual = all(bool(axis["written"]) == (panel.size <= 100) for axis, panel in zip(axes, panels, strict=True))
    written = [text for axis in axes for text in axis["written"]]
    return "grid", [titled(axes, panels), labels(axes, 1), labels(axes, 0)], {
        "across": across, "digits": digits_of(written), "limits": tuple(row(images[0]["range"])),
        "cmap": images[0]["look"][0], "numbers": None if usual else bool(written),
    }  # fmt: skip


def titled(axes, panels):
    return {(axis["texts"] or [""])[0]: panel for axis, panel in zip(axes, panels, strict=True)}


def tiles(axes, across):
    import numpy as np
    from matplotlib.colors import to_rgb

    from mha.viz.plot import COLORS

    shades = [[0.9] * 3, *([1 - 0.45 * (1 - part) for part in to_rgb(color)] for color in COLORS)]
    panels, owners = [], []
    for axis in axes:
        shape = [int(n) for n in row(axis["artists"][0]["shape"])]
        pixels = np.array(row(axis["artists"][0]["values"])).reshape(-1, 1, 3)
        owners.append((abs(pixels - np.array(shades)).sum(-1).argmin(-1) - 1).reshape(shape[:2]))
        panels.append(np.array([float(text) for text, _ in axis["written"]]).reshape(shape[:2]))
    digits = digits_of([text for axis in axes for text in axis["written"]])
    owned = titled(axes, owners)
    return "tiles", [titled(axes, panels), owned], {"rows": labels(axes, 1), "across": across, "digits": digits}


def levels(axis, along="x", across="y"):
    """Lines across the picture, or upright ones, each with the name that is written at its end."""
    places = [(text, place.split()) for text, place in axis["written"]]
    named = {at["xy".index(across)]: text for text, at in places if at["xy".index(along)] in ("0.995", "0.005")}
    found = [one[across].split()[0] for one in axis["artists"] if one["kind"] == "Line2D" and one[along] == "0 1"]
    return {named[value]: float(value) for value in found if value in named}


def lines(axis):
    curves = [one for one in axis["artists"] if one["label"]]
    series = {one["label"]: (row(one["x"]), row(one["y"])) for one in curves}
    x_log, y_log = (scale == "log" for scale in axis["scales"])
    return "lines", [series, *axis["texts"][:2]], {
        "x_log": x_log, "y_log": y_log, "marks": curves[0]["look"][2] != "None", "level": levels(axis),
        "place": levels(axis, "y", "x"),
    }  # fmt: skip


def bars(axis):
    heights = [row(one["corners"])[5] for one in axis["artists"] if one["kind"] == "Rectangle"]
    ends = next((one for one in axis["artists"] if one["kind"] == "LineCollection"), {})
    ends = [row(ends[f"path {n}"]) for n in range(len(heights))] if ends else []
    names, above = axis["ticks"][0], [text for text in axis["written"] if not text[1].startswith("0.995 ")]
    errors = {name: (path[3] - path[1]) / 2 for name, path in zip(names, ends, strict=True)} if ends else None
    values = dict(zip(names, heights, strict=True))
    return "bars", [values, axis["texts"][0]], {"errors": errors, "digits": digits_of(above), "level": levels(axis)}


def links(axes):
    import numpy as np

    rows, columns = ([text for text, at in axes[0]["written"] if at.split()[0] == x] for x in ("-0.06", "1.06"))
    widths = [[float(line["width"]) / 9 for line in axis["artists"]] for axis in axes]
    heads = [np.array(each).reshape(len(rows), len(columns)) for each in widths]
    return "links", [titled(axes, heads), rows, columns], {}


# ---- and forward again


def draw(call, look):
    """Draw, and give what `look` sees in the figure before it is closed."""
    import matplotlib.pyplot as plt

    from mha.viz import plot

    seen, (name, arguments, options) = [], call
    with patch.object(plt, "show", lambda: seen.append(look(plt.gcf()))):
        getattr(plot, name)(*arguments, **options)
    return seen[0]


def svg(figure):
    """A figure as text; its letters are letters, in the fonts of the page."""
    import matplotlib as mpl

    file = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "mha"}):
        figure.savefig(file, format="svg", bbox_inches="tight", pad_inches=0.04, metadata={"Date": None})
    text = re.sub(r"<metadata>.*?</metadata>", "", file.getvalue(), flags=re.DOTALL)
    return re.sub(r"(font-family: |font: [^;\"]*?px )[^;\"]+", rf"\g<1>{LETTERS}", text)


def fitting(numbers):
    """The call that draws these numbers and no others; None where the figure was drawn in another way."""
    see = runpy.run_path(str(ROOT / "tools" / "drawn.py"))["numbers"]
    return next((call for call in calls(numbers) if alike(numbers, draw(call, see))), None)


def alike(one, other):
    """Whether words are the same, and numbers up to the rounding of what is stored."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    if one == other or not (isinstance(one, str) and isinstance(other, str)):
        return one == other
    try:
        return len(row(one)) == len(row(other)) and all(map(near, row(one), row(other)))
    except ValueError:
        return False


def near(one, other):
    return math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-6) or (one != one and other != other)


def drawings(numbers):
    """A figure as it stands in the notebook, and for a phone; neither where it was drawn in another way."""
    import matplotlib as mpl

    mpl.use("Agg")
    from mha.viz import plot

    call = fitting(numbers)
    if call is None:
        return None
    with plot.narrow():
        small = draw(call, svg)
    with patch.object(plot, "WIDE", COLUMN):
        return draw(call, svg), small


# ---- into the pages


def size(drawing):
    """Width and height in pixels of a page."""
    found = re.search(r'<svg [^>]*?width="([\d.]+)pt" height="([\d.]+)pt"', drawing)
    return [round(float(length) * 96 / 72) for length in found.groups()]


def with_drawings(page, numbers, folder):
    """A page whose pictures are drawings that fit it, each a link to itself; `folder` is where they are kept."""

    def drawn(found):
        image, up, name = found[0], found[1], found[2]
        both = name[:12] in numbers and drawings(numbers[name[:12]])
        if not both:
            return LINK.format(address=f"{up}{name}.png", picture=image)
        (wide, high), (narrow, low) = map(size, both)
        for ending, drawing in zip(("", "-phone"), both, strict=True):
            (folder / f"{name}{ending}.svg").write_text(drawing, encoding="utf-8")
        image = image.replace(f"{name}.png", f"{name}.svg").replace("<img ", f'<img width="{wide}" height="{high}" ', 1)
        screen = f"screen and (max-width: {PHONE if wide <= PHONE else TABLET}px)"
        source = f'<source media="{screen}" width="{narrow}" height="{low}" srcset="{up}{name}-phone.svg">'
        return LINK.format(address=f"{up}{name}.svg", picture=f"<picture>{source}{image}</picture>")

    return PICTURE.sub(drawn, page)


def draw_figures(source, target):
    """Draw the figures of all pages of notebooks."""
    for path in sorted((target / "notebooks").glob("*.html")):
        page, notebook = path.read_text(encoding="utf-8"), source / "notebooks" / f"{path.stem}.ipynb"
        if PICTURE.search(page) and notebook.is_file():
            path.write_text(with_drawings(page, numbers_of(notebook), target / "_images"), encoding="utf-8")
