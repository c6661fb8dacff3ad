"""Boxes and arrows, drawn as text: how parts are joined, with what passes between them.

:Taught in: in_the_transformer.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap

from mha.checks import checked

WIDE, HIGH, GAP_X, GAP_Y = 162, 46, 36, 30
PHONE = 344  # the width of a drawing on a phone, where its letters are as large as they say
BESIDE = 6  # on both sides of a title: whatever font a page has, it stays inside its box
SMALLEST = 12  # of the letters of a title that can be cut into lines
NARROW, BROAD = "ijltfrI.,:;()-' ", "mwMW"  # letters of 0.4 and 1.05 times the size in a wide font; the others have 0.7


STRONG = "var(--pst-color-primary, var(--jp-brand-color1, currentColor))"


ONE_OF_TWO = (
    ".mha-drawing .phone{display:none}@media(max-width:600px){.mha-drawing .wide{display:none}"
    ".mha-drawing .phone{display:inline}}"
)


Box = tuple[int, int, str]  # column, row, the lines in the box


Arrow = tuple[str, str, str]  # from, to, what passes


class Diagram:
    """Show boxes joined by arrows, in the colors of its page.

    Within a column an arrow runs straight; to another column it leaves at the side. Two arrows that would lie on one
    another run side by side.

    :Raises: ValueError for an arrow to a box that does not exist, and for two boxes in one place.
    :Taught in: in_the_transformer.
    """

    @checked
    def __init__(self, boxes: Mapping[str, Box], arrows: Sequence[Arrow], caption: str = "") -> None:
        """Keep the boxes by name.

        :param boxes: column, row and the text below the name, one or more lines, by name; a name that begins with a
            star is drawn strong.
        :param arrows: from, to and the label of each.
        :param caption: shown below the picture; nothing unless given.
        """
        if not boxes:
            raise ValueError(f"boxes = {boxes!r}: give at least one")
        self.boxes = {name.lstrip("*"): box for name, box in boxes.items()}
        self.strong = {name.lstrip("*") for name in boxes if name.startswith("*")}
        self.arrows, self.caption = list(arrows), caption
        unknown = sorted({end for arrow in arrows for end in arrow[:2]} - set(self.boxes))
        if unknown:
            raise ValueError(f"arrows lead to {unknown}: the boxes are {list(self.boxes)}")
        if len({box[:2] for box in self.boxes.values()}) < len(self.boxes):
            raise ValueError("two boxes are in one column and row: give each a place of its own")

    def __repr__(self) -> str:
        return "\n".join(f"{start} → {end}" + (f" ({label})" if label else "") for start, end, label in self.arrows)

    def _repr_html_(self) -> str:
        places = {name: box[:2] for name, box in self.boxes.items()}
        usual = _Sheet(places, WIDE, GAP_X, self._high(WIDE))
        width = f"max-width: {1.3 * usual.size[0]:.0f}px"
        if usual.size[0] > PHONE + GAP_X:
            both = self._svg(usual, width, ' class="wide"'), self._svg(self._narrow(usual), "", ' class="phone"')
            drawn = f"<style>{ONE_OF_TWO}</style>{''.join(both)}"
        else:
            drawn = self._svg(usual, width)
        caption = f"<figcaption>{escape(self.caption)}</figcaption>" if self.caption else ""
        return f'<figure class="mha-drawing">{drawn}{caption}</figure>'

    def _narrow(self, usual: "_Sheet") -> "_Sheet":
        """The same for a phone: two rows become two columns, and boxes become narrower and higher."""
        turned = len({row for _, row in usual.places.values()}) == 2
        places = {name: at[::-1] if turned else at for name, at in usual.places.items()}
        columns = 1 + max(column for column, _ in places.values())
        gap = GAP_X if columns == 2 else 14
        wide = (PHONE - gap * (columns - 1) - 4) // columns
        return _Sheet(places, wide, gap, self._high(wide))

    def _high(self, wide: int) -> int:
        """How high the boxes are, for the one with the most lines."""
        return max(HIGH, 15 * max(len(self._texts(name, wide)) for name in self.boxes) + 16)

    def _texts(self, name: str, wide: int) -> list[tuple[str, bool]]:
        """The lines in a box: its name, strong, and what is below."""
        title = _lines(name, (wide - 2 * BESIDE) / SMALLEST)
        below = self.boxes[name][2].splitlines()
        if wide < WIDE:
            below = [part for line in below for part in wrap(line, int(wide / 6.2))]
        return [(line, True) for line in title] + [(line, False) for line in below]

    def _svg(self, sheet: "_Sheet", width: str, kind: str = "") -> str:
        leave = {sheet.side(start, end) for start, end, _ in self.arrows}
        arrive = {sheet.side(end, start) for start, end, _ in self.arrows}
        both = leave & arrive  # sides of boxes where arrows come and go
        arrows = [
            sheet.arrow(start, end, label, bool(both & {sheet.side(start, end), sheet.side(end, start)}))
            for start, end, label in self.arrows
        ]
        drawn = "".join([*arrows, *(self._box(sheet, name) for name in self.boxes)])
        return (
            f'<svg{kind} viewBox="-2 -2 {sheet.size[0]} {sheet.size[1]}" role="img" '
            f'aria-label="{escape("; ".join(repr(self).splitlines()), True)}" fill="none" stroke="currentColor" '
            f'style="width: 100%; {width}; height: auto">'
            f'<g font-family="sans-serif" text-anchor="middle">{drawn}</g></svg>'
        )

    def _box(self, sheet: "_Sheet", name: str) -> str:
        x, y = sheet.corner(name)
        texts = self._texts(name, sheet.wide)
        style = f"stroke: {STRONG}; stroke-width: 3" if name in self.strong else "stroke-opacity: 0.55"
        first = y + sheet.high / 2 + 4.5 - 7 * (len(texts) - 1)
        lines = "".join(
            _text(
                x + sheet.wide / 2,
                first + 15 * i,
                text,
                12.5 if strong else 11,
                "bold" if strong else "normal",
                sheet.wide,
            )
            for i, (text, strong) in enumerate(texts)
        )
        return f'<rect x="{x}" y="{y}" width="{sheet.wide}" height="{sheet.high}" rx="5" style="{style}"/>{lines}'


@dataclass(frozen=True)
class _Sheet:
    """Where the boxes are, how large they are, and what is between columns."""

    places: Mapping[str, tuple[int, int]]
    wide: int
    gap: int
    high: int

    @property
    def size(self) -> tuple[int, int]:
        columns, rows = (1 + max(place[axis] for place in self.places.values()) for axis in (0, 1))
        return columns * (self.wide + self.gap) - self.gap + 4, rows * (self.high + GAP_Y) - GAP_Y + 4

    def corner(self, name: str) -> tuple[int, int]:
        column, row = self.places[name]
        return column * (self.wide + self.gap), row * (self.high + GAP_Y)

    def side(self, start: str, end: str) -> tuple[str, int, int]:
        """The box and the side of it, as a direction, that an arrow between two boxes touches."""
        (x, y), (to_x, to_y) = self.places[start], self.places[end]
        return (start, 0, 1 if to_y > y else -1) if x == to_x else (start, 1 if to_x > x else -1, 0)

    def arrow(self, start: str, end: str, label: str, shared: bool = False) -> str:
        (x, y), (to_x, to_y) = self.corner(start), self.corner(end)
        if x == to_x:
            sign = 1 if to_y > y else -1
            middle, arrive = x + self.wide / 2 + 7 * sign * shared, to_y + self.high * (sign < 0)
            path = f"M{middle:g} {y + self.high * (sign > 0)}V{arrive}m-4 {-7 * sign}l4 {7 * sign}l4 {-7 * sign}"
        else:
            sign = 1 if to_x > x else -1
            y, to_y = y - 7 * sign * shared, to_y - 7 * sign * shared
            leave, arrive = x + self.wide * (sign > 0), to_x + self.wide * (sign < 0)
            middle = (leave + arrive) / 2
            path = f"M{leave} {y + self.high / 2:g}H{middle:g}V{to_y + self.high / 2:g}H{arrive}"
            path += f"m{-7 * sign} -4l{7 * sign} 4l{-7 * sign} 4"
        at, anchor = (middle + 5, (y + to_y + self.high) / 2 + 4), "start"
        if y == to_y and self.wide < WIDE:
            at, anchor = (middle, y + self.high / 2 - 6), "middle"
        return f'<path d="{path}"/>{_text(*at, label, 11, anchor=anchor) if label else ""}'


def _ems(text: str) -> float:
    """How wide bold letters are, in their own size."""
    return sum(0.4 if letter in NARROW else 1.05 if letter in BROAD else 0.7 for letter in text)


def _lines(title: str, room: float) -> list[str]:
    """The words of a title in lines of at most so many ems; a longer word has a line of its own."""
    lines: list[str] = []
    for word in title.split():
        longer = f"{lines[-1]} {word}" if lines else ""
        if lines and _ems(longer) <= room:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines or [""]


def _text(
    x: float,
    y: float | int,
    text: str,
    size: float | int,
    weight: str = "normal",
    room: int = WIDE,
    anchor: str = "middle",
) -> str:
    if weight == "bold":
        size = min(size, math.floor(10 * (room - 2 * BESIDE) / max(_ems(text), 1)) / 10)  # an empty title has no letter
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
        f'fill="currentColor" stroke="none">{escape(text)}</text>'
    )
