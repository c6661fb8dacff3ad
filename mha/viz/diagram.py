"""Boxes and arrows, drawn as text: how parts are joined, with what passes between them.

Taught in: in_the_transformer.
"""

from collections.abc import Mapping, Sequence
from html import escape

from mha.checks import checked

WIDE, HIGH, GAP_X, GAP_Y = 162, 46, 36, 30
LONGEST = 150  # of a title: whatever font a page has, it stays inside its box


STRONG = "var(--pst-color-primary, var(--jp-brand-color1, currentColor))"


Box = tuple[int, int, str]  # column, row, the lines in the box


Arrow = tuple[str, str, str]  # from, to, what passes


class Diagram:
    """Show boxes joined by arrows, in the colors of the page it stands on.

    ``boxes`` maps a name to its column, its row and the text below the name, one or more lines; a name that begins
    with a star is drawn strong. ``arrows`` lists from, to and a label. Within a column an arrow runs straight; to
    another column it leaves at the side.

    Raises: ValueError for an arrow to a box that does not exist, and for two boxes in one place.
    Taught in: in_the_transformer.
    """

    @checked
    def __init__(self, boxes: Mapping[str, Box], arrows: Sequence[Arrow], caption: str = "") -> None:
        """Keep the boxes by name; ``caption`` stands below the picture."""
        if not boxes:
            raise ValueError(f"boxes = {boxes!r}: give at least one")
        self.boxes = {name.lstrip("*"): box for name, box in boxes.items()}
        self.strong = {name.lstrip("*") for name in boxes if name.startswith("*")}
        self.arrows, self.caption = list(arrows), caption
        unknown = sorted({end for arrow in arrows for end in arrow[:2]} - set(self.boxes))
        if unknown:
            raise ValueError(f"arrows lead to {unknown}: the boxes are {list(self.boxes)}")
        if len({box[:2] for box in self.boxes.values()}) < len(self.boxes):
            raise ValueError("two boxes stand in one column and row: give each a place of its own")

    def __repr__(self) -> str:
        return "\n".join(f"{start} → {end}" + (f" ({label})" if label else "") for start, end, label in self.arrows)

    def _repr_html_(self) -> str:
        columns = 1 + max(column for column, _, _ in self.boxes.values())
        rows = 1 + max(row for _, row, _ in self.boxes.values())
        width, height = columns * (WIDE + GAP_X) - GAP_X + 4, rows * (HIGH + GAP_Y) - GAP_Y + 4
        drawn = "".join([*map(self._arrow, self.arrows), *map(self._box, self.boxes)])
        caption = f"<figcaption>{escape(self.caption)}</figcaption>" if self.caption else ""
        return (
            f'<figure class="mha-drawing"><svg viewBox="-2 -2 {width} {height}" role="img" '
            f'aria-label="{escape("; ".join(repr(self).splitlines()), True)}" fill="none" stroke="currentColor" '
            f'style="width: 100%; max-width: {1.3 * width:.0f}px; height: auto">'
            f'<g font-family="sans-serif" text-anchor="middle">{drawn}</g></svg>{caption}</figure>'
        )

    def _corner(self, name: str) -> tuple[int, int]:
        column, row, _ = self.boxes[name]
        return column * (WIDE + GAP_X), row * (HIGH + GAP_Y)

    def _box(self, name: str) -> str:
        x, y = self._corner(name)
        texts = [name, *self.boxes[name][2].splitlines()]
        style = f"stroke: {STRONG}; stroke-width: 3" if name in self.strong else "stroke-opacity: 0.55"
        first = y + HIGH / 2 + 4.5 - 7 * (len(texts) - 1)
        lines = "".join(
            _text(x + WIDE / 2, first + 15 * i, text, 12.5 if i == 0 else 11, "bold" if i == 0 else "normal")
            for i, text in enumerate(texts)
        )
        return f'<rect x="{x}" y="{y}" width="{WIDE}" height="{HIGH}" rx="5" style="{style}"/>{lines}'

    def _arrow(self, arrow: Arrow) -> str:
        start, end, label = arrow
        (x, y), (to_x, to_y) = self._corner(start), self._corner(end)
        if x == to_x:
            sign = 1 if to_y > y else -1
            middle, arrive = x + WIDE / 2, to_y + HIGH * (sign < 0)
            path = f"M{middle:g} {y + HIGH * (sign > 0)}V{arrive}m-4 {-7 * sign}l4 {7 * sign}l4 {-7 * sign}"
        else:
            sign = 1 if to_x > x else -1
            leave, arrive = x + WIDE * (sign > 0), to_x + WIDE * (sign < 0)
            middle = (leave + arrive) / 2
            path = f"M{leave} {y + HIGH / 2:g}H{middle:g}V{to_y + HIGH / 2:g}H{arrive}m{-7 * sign} -4l{7 * sign} 4"
            path += f"l{-7 * sign} 4"
        written = _text(middle + 5, (y + to_y + HIGH) / 2 + 4, label, 11, anchor="start") if label else ""
        return f'<path d="{path}"/>{written}'


def _text(
    x: float, y: float | int, text: str, size: float | int, weight: str = "normal", anchor: str = "middle"
) -> str:
    wide = weight == "bold" and 0.6 * size * len(text) > LONGEST - 10
    fitted = f' textLength="{LONGEST}" lengthAdjust="spacingAndGlyphs"' if wide else ""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}"{fitted} '
        f'fill="currentColor" stroke="none">{escape(text)}</text>'
    )
