"""The pictures that other sites show beside a link: the course's name and two heads that read the same words; for a
chapter its question and its first figure.
"""

import base64
import io
import json
import re
import textwrap
from pathlib import Path

from course_readers import addresses

BLUE, RED, GROUND = "#0b6e99", "#d1495b", "#f7f9fa"
SIZE = (12, 6.3)  # inches at 100 dots: the size that link previews ask for
LINES = (  # from, to, color, width
    *((row, row, BLUE, 2) for row in range(3)), (2, 1, BLUE, 14), (1, 0, RED, 14), (0, 2, RED, 5),
)  # fmt: skip


def offer_card(app, config):
    """Name the picture in every page where the address of the book is known: a preview needs a whole address."""
    address = addresses.asked("COURSE_SITE")
    if not address:
        return
    config.ogp_site_url, config.ogp_image = f"{address}/", f"{address}/_static/card.png"
    config.ogp_image_alt = "Two heads of attention read the same three words."
    config.ogp_custom_meta_tags = ['<meta name="twitter:card" content="summary_large_image" />']


def choose_card(app, name, template, context, doctree):
    """Name the picture of its own in the page of a chapter."""
    chapter = re.fullmatch(r"notebooks/(\d\d)_\w+", name)
    if chapter and app.config.ogp_image:
        own = {"og:image": app.config.ogp_image.replace("card.png", f"card-{chapter[1]}.png")}
        own["og:image:alt"] = f"{question(Path(app.srcdir, f'{name}.ipynb'))} Beside it a figure of the chapter."
        context["meta"] = (context.get("meta") or {}) | own


def question(notebook):
    """The title of a chapter."""
    return "".join(json.loads(notebook.read_text(encoding="utf-8"))["cells"][0]["source"]).splitlines()[0][2:]


def first_figure(notebook):
    """The first picture in dots that a chapter has drawn."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    found = (output.get("data", {}).get("image/png") for cell in cells for output in cell.get("outputs", []))
    return io.BytesIO(base64.b64decode(next(filter(None, found))))


def draw_card(folder: Path):
    """Draw the picture into the built book, unless it is there."""
    path = folder / "_static" / "card.png"
    if path.is_file():
        return
    figure, axes = empty()
    for start, end, color, width in LINES:
        axes.plot((8.2, 10.8), (4.6 - 1.5 * start, 4.6 - 1.5 * end), color=color, lw=width, solid_capstyle="round")
    for x in (8.2, 10.8):
        axes.scatter([x] * 3, [4.6, 3.1, 1.6], s=900, color=BLUE, zorder=3)
    axes.text(0.8, 3.7, "Multi-head\nattention", fontsize=52, weight="bold", color="#22303c", va="center")
    axes.text(0.8, 2.3, "One claim at a time, every claim executed.", fontsize=22, color="#55606a", va="center")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path)


def empty():
    """A card with nothing on it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, dpi=100, facecolor=GROUND)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, 12), ylim=(0, 6.3))
    axes.axis("off")
    return figure, axes


def draw_chapter(folder: Path, notebook: Path):
    """Draw the card of a chapter: its number, its question, and its first figure; below them where it is wide."""
    from matplotlib.image import imread

    picture, (figure, axes) = imread(first_figure(notebook)), empty()
    wide = picture.shape[1] > 1.6 * picture.shape[0]
    lines = "\n".join(textwrap.wrap(question(notebook), 36 if wide else 17))
    axes.text(0.6, 5.7, f"Multi-head attention · chapter {notebook.name[:2]}", fontsize=20, color="#55606a")
    place = {"y": 4.85, "va": "center"} if wide else {"y": 3.1, "va": "center"}
    axes.text(0.6, s=lines, **place, fontsize=36, weight="bold", color="#22303c")
    beside = figure.add_axes((0.05, 0.07, 0.9, 0.56) if wide else (0.56, 0.09, 0.41, 0.82), xticks=[], yticks=[])
    beside.imshow(picture, interpolation="antialiased")
    beside.spines[:].set_color("#c9d1d9")
    figure.savefig(folder / "_static" / f"card-{notebook.name[:2]}.png")


def draw_chapters(app, exception):
    """Draw the cards of all chapters where pages name them."""
    if exception is None and app.config.ogp_image:
        for notebook in sorted(Path(app.srcdir, "notebooks").glob("[0-9][0-9]_*.ipynb")):
            draw_chapter(Path(app.outdir), notebook)
