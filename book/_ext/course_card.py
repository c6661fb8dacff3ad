"""The picture that other sites show beside a link to the course: its name, and two heads that read the same words."""

import os
import re
from pathlib import Path

BLUE, RED, GROUND = "#0b6e99", "#d1495b", "#f7f9fa"
SIZE = (12, 6.3)  # inches at 100 dots: the size that link previews ask for
LINES = (  # from, to, color, width
    *((row, row, BLUE, 2) for row in range(3)), (2, 1, BLUE, 14), (1, 0, RED, 14), (0, 2, RED, 5),
)  # fmt: skip


def offer_card(app, config):
    """Name the picture in every page where the address of the book is known: a preview needs a whole address."""
    address = os.environ.get("COURSE_SITE", "").rstrip("/")
    if not address:
        return
    if not re.fullmatch(r"https://[\w.-]+(/[\w.-]+)*", address):
        raise ValueError(f"COURSE_SITE = {address!r}: give https://HOST or https://HOST/PATH, or leave it out")
    config.ogp_site_url, config.ogp_image = f"{address}/", f"{address}/_static/card.png"
    config.ogp_image_alt = "Two heads of attention read the same three words."


def draw_card(folder: Path):
    """Draw the picture into the built book, unless it is there."""
    path = folder / "_static" / "card.png"
    if path.is_file():
        return
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, dpi=100, facecolor=GROUND)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, 12), ylim=(0, 6.3))
    axes.axis("off")
    for start, end, color, width in LINES:
        axes.plot((8.2, 10.8), (4.6 - 1.5 * start, 4.6 - 1.5 * end), color=color, lw=width, solid_capstyle="round")
    for x in (8.2, 10.8):
        axes.scatter([x] * 3, [4.6, 3.1, 1.6], s=900, color=BLUE, zorder=3)
    axes.text(0.8, 3.7, "Multi-head\nattention", fontsize=52, weight="bold", color="#22303c", va="center")
    axes.text(0.8, 2.3, "One claim at a time, every claim executed.", fontsize=22, color="#55606a", va="center")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path)
