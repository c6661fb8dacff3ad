"""The first drawing of a chapter: it shows the chapter's idea before the first line of code.

A notebook holds `<figure class="mha-first" data-drawing="TOPIC">` with the drawing in words and a caption. A page gets
the drawing itself, in its own colors (first.css). Panels are side by side on a desk and one above the other on a phone.
"""

import re
from html import escape, unescape
from math import hypot

WIDE = 340  # of a panel, so that on a phone its letters are as large as they say
FIRST = re.compile(r'<figure class="mha-first" data-drawing="(\w+)"><p class="still">(.*?)</p>', re.DOTALL)


class Panel:
    """One part of a drawing: shapes and letters, the names of whose colors are those of Notation."""

    def __init__(self, high, title=""):
        self.high, self.parts = high, []
        if title:
            self.text(WIDE / 2, 16, title, bold=True)

    def text(self, x, y, words, *, at="middle", size=12.5, bold=False, quiet=False):
        kind = f' class="{" ".join(["quiet"] * quiet + ["bold"] * bold)}"' if quiet or bold else ""
        anchor = "" if at == "start" else f' text-anchor="{at}"'
        self.parts.append(f'<text{kind} x="{x:g}" y="{y:g}" font-size="{size:g}"{anchor}>{escape(words)}</text>')

    def box(self, x, y, wide, high, color="", words="", *, tint=18, size=12.5):
        """A box with words in the middle; without a color it is gray, and color `hidden` has a dashed border."""
        style = f' style="--n:{tint:.0f}%"' if tint != 18 else ""
        place = f'x="{x:g}" y="{y:g}" width="{wide:g}" height="{high:g}"'
        self.parts.append(f'<rect class="{f"box {color}".strip()}" {place} rx="3"{style}/>')
        if words:
            self.text(x + wide / 2, y + high / 2 + 0.35 * size, words, size=size)

    def bar(self, x, y, wide, high, color):
        """A bar without a border."""
        self.parts.append(
            f'<rect class="bar {color}" x="{x:g}" y="{y:g}" width="{max(wide, 0):.4g}" height="{max(high, 0):.4g}"/>'
        )

    def dot(self, x, y, radius, color, *, tint=18):
        style = f' style="--n:{tint:.0f}%"' if tint != 18 else ""
        self.parts.append(f'<circle class="box {color}" cx="{x:g}" cy="{y:g}" r="{radius:g}"{style}/>')

    def line(self, x, y, to_x, to_y, color="", width=1.5, *, arrow=False):
        """A line, or an arrow."""
        if arrow:
            long = hypot(to_x - x, to_y - y)
            dx, dy, wing = (to_x - x) / long, (to_y - y) / long, 3.5 + 0.6 * width
            back_x, back_y = to_x - 2 * wing * dx, to_y - 2 * wing * dy
            ends = [(to_x, to_y), (back_x - wing * dy, back_y + wing * dx), (back_x + wing * dy, back_y - wing * dx)]
            points = " ".join(f"{a:.1f},{b:.1f}" for a, b in ends)
            self.parts.append(f'<polygon class="bar {color}" points="{points}"/>')
            to_x, to_y = back_x, back_y
        kind = f"line {color}".strip()
        ends = f'x1="{x:g}" y1="{y:g}" x2="{to_x:.4g}" y2="{to_y:.4g}"'
        self.parts.append(f'<line class="{kind}" {ends} stroke-width="{width:.3g}"/>')

    def path(self, path, color="", width=1.5):
        self.parts.append(f'<path class="{f"line {color}".strip()}" d="{path}" stroke-width="{width:g}"/>')

    def svg(self):
        return f'<svg viewBox="0 0 {WIDE} {self.high}" aria-hidden="true">{"".join(self.parts)}</svg>'


def drawn(name, words):
    """The drawing of a chapter, and for who does not see it what it shows."""
    from course_drawings import DRAWINGS

    panels = DRAWINGS[name]()
    kind = "panels" if len(panels) > 1 else "panels one"
    label = escape(unescape(" ".join(words.split())), quote=True)
    return f'<div class="{kind}" role="img" aria-label="{label}">{"".join(one.svg() for one in panels)}</div>'


def draw_first(folder):
    """Put the drawings into the pages that have some."""
    for path in folder.rglob("*.html"):
        page = path.read_text(encoding="utf-8")
        new = FIRST.sub(lambda one: f'<figure class="mha-first">{drawn(one[1], one[2])}', page)
        if new != page:
            path.write_text(new, encoding="utf-8")
