"""The colors of heads and the sizes of letters: one list for figures, sliders and the head view, on every page.

:Taught in: all chapters.
"""

import re

from mha.checks import checked

COLORS = ("#0b6e99", "#d1495b", "#e0a100", "#4c9f70", "#7b5ea7", "#5c5c5c", "#c2703d", "#222222")
WORDS, SMALL = 10, 9  # points: words of a figure, and the numbers inside it
LIGHT, DARK = "#ffffff", "#121212"  # the pages behind them
LEAST = {LIGHT: 3.0, DARK: 4.5}  # contrast: WCAG 2.2 (1.4.11) asks 3; half-clear lines need more in the dark


def _parts(color: str) -> list[float]:
    return [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]


def _written(parts: list[float]) -> str:
    return "#" + "".join(f"{round(255 * part):02x}" for part in parts)


def _contrast(one: str, other: str) -> float:
    """The contrast of two colors as WCAG 2.2 defines it, from 1 for the same to 21 for black and white."""
    steps = [[p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in _parts(c)] for c in (one, other)]
    low, high = sorted(0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in steps)
    return (high + 0.05) / (low + 0.05)


def _seen(color: str, page: str) -> str:
    """The color on a page: on a dark one a gray turns into a light gray; then away from the page, by hundredths, until
    it stands out."""
    end, parts = 1.0 if page == DARK else 0.0, _parts(color)
    if page == DARK and len(set(parts)) == 1:
        parts = [1 - part for part in parts]
    steps = (_written([part + step / 100 * (end - part) for part in parts]) for step in range(101))
    return next(found for found in steps if _contrast(found, page) >= LEAST[page])


ON_LIGHT, ON_DARK = (tuple(_seen(color, page) for color in COLORS) for page in (LIGHT, DARK))


@checked
def ink(color: str) -> str:
    """White or black for letters on a color: whichever is read more easily.

    :param color: six hexadecimal digits after a #.
    """
    if not re.fullmatch("#[0-9a-fA-F]{6}", color):
        raise ValueError(f"color = {color!r} is no color: give six hexadecimal digits after a #, such as {COLORS[0]!r}")
    return max((LIGHT, "#000000"), key=lambda one: _contrast(one, color))


LETTERS = tuple(map(ink, ON_LIGHT))  # on a square of each color of a light page
