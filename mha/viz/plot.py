"""The figures of the course: one look, colors that color-blind readers can tell apart, nothing returned.

A function draws into the current figure or makes one; the notebook shows it. matplotlib is only imported here.

:Taught in: all chapters.
"""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, ListedColormap, to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from torch import Tensor

from mha.checks import check_whole, checked, described
from mha.viz.palette import COLORS, DARK, ON_DARK, SMALL, WORDS, ink

WIDE, HIGH, NARROW = 9.5, 5.0, 3.6  # inches: the widest figure, the highest of squares, and one for a phone


STYLE: Any = {  # its names are a type of matplotlib's, but only of newer ones
    "figure.figsize": (6.0, 3.2),
    "figure.dpi": 110,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "figure.constrained_layout.use": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "axes.prop_cycle": plt.cycler(color=COLORS),
    "font.size": WORDS,
    "axes.titlesize": WORDS,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
}


@contextmanager
def narrow() -> Iterator[None]:
    """Figures drawn in here fit a phone: panels below each other, horizontal bars, a legend above its curves."""
    before = STYLE["figure.figsize"]
    STYLE["figure.figsize"] = NARROW, 2.7
    try:
        yield
    finally:
        STYLE["figure.figsize"] = before


@contextmanager
def dark() -> Iterator[None]:
    """Figures drawn in here stand on a dark page: its color behind them, light letters, lighter colors."""
    before = dict(STYLE)
    letters = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    page = ("figure.facecolor", "savefig.facecolor", "axes.facecolor")
    STYLE.update(dict.fromkeys(letters, "#e6e6e6") | dict.fromkeys(page, DARK))
    STYLE.update({"grid.color": "#333333", "axes.prop_cycle": plt.cycler(color=ON_DARK)})
    try:
        yield
    finally:
        STYLE.clear()
        STYLE.update(before)


def _is_dark() -> bool:
    return bool(STYLE["figure.facecolor"] == DARK)


def _colors() -> tuple[str, ...]:
    return ON_DARK if _is_dark() else COLORS


def _is_narrow() -> bool:
    return bool(STYLE["figure.figsize"][0] == NARROW)


@checked
def grid(
    matrices: Mapping[str, object], rows: Sequence[object] = (), columns: Sequence[object] = (), *, digits: int = 2,
    limits: tuple[float, float] | None = None, cmap: str | None = None, numbers: bool | None = None,
    across: int | None = None, legend: Sequence[str] | None = None, x_label: str = "", y_label: str = "",
) -> None:  # fmt: skip
    """Show matrices side by side as colored squares, each with its title.

    All have one scale of colors. A bar beside them shows it where the numbers are not written; where there are but two
    numbers, such as in a mask, a legend names them.

    :param matrices: by title, each (i, j), anything NumPy can read.
    :param rows: the labels of the rows (queries); none unless given.
    :param columns: the labels of the columns (keys); none unless given.
    :param digits: after the point; 2 unless given.
    :param limits: the lowest and the highest number of the colors; those of the matrices unless given.
    :param cmap: the name of matplotlib's colors; unless given "cividis", or for numbers of both signs blue and red,
        with the color of the page for 0.
    :param numbers: whether numbers are written; in matrices of at most 100 numbers unless given.
    :param across: how many matrices are in a line at most; all of them unless given.
    :param legend: what 0 means and what 1 means, of matrices that hold nothing else; the numbers unless given.
    :param x_label: what the columns are; nothing unless given.
    :param y_label: what the rows are; nothing unless given.
    """
    values = _matrices("matrices", matrices)
    check_whole(0, digits=digits)
    check_labels(values, rows=rows, columns=columns)
    if across is not None:
        check_whole(across=across)
    if cmap is not None and cmap not in mpl.colormaps:
        raise ValueError(f"cmap = {cmap!r}: matplotlib has no such colors, but 'cividis', 'viridis', 'gray', …")
    found = np.unique(np.concatenate([v.ravel() for v in values.values()])).tolist()
    if legend is not None and (len(legend) != 2 or not {0, 1}.issuperset(found)):
        raise ValueError(
            f"legend = {described(legend)} names 0 and 1, so it needs two names and matrices of nothing else, but they "
            f"have numbers from {found[0]:g} to {found[-1]:g}"
        )
    two = bool(legend) or len(found) == 2
    low, high = limits or ((0.0, 1.0) if legend else (found[0], found[-1]))
    if cmap is None and limits is None and low < 0 < high:
        low, high = min(low, -high), max(high, -low)
    across = min(across or len(values), len(values))
    written = {title: matrix.size <= 100 if numbers is None else numbers for title, matrix in values.items()}
    with plt.rc_context(STYLE):
        width, height = _size([v.shape for v in values.values()], across)
        turned = False
        if _is_narrow():
            across, width, height, turned = _fit(values, rows, columns, across, written=any(written.values()))
        lines = -(-len(values) // across)
        size = (width, lines * height)
        figure, axes = plt.subplots(lines, across, figsize=size, squeeze=False)
        for axis in axes.flat[len(values) :]:
            axis.set_visible(False)
        shades = _two() if two and not any(written.values()) else _shades(cmap, low, high)
        for place, (title, matrix) in enumerate(values.items()):
            axis = axes.flat[place]
            _squares(axis, matrix, low, high, shades, digits if written[title] else None)
            axis.set_title(textwrap.fill(title, int(11 * (size[0] - 0.5) / across)) if _is_narrow() else title)
            _labels(axis, () if _is_narrow() and place % across else rows, columns, matrix.shape, turned=turned)
            axis.set_xlabel(x_label if place + across >= len(values) else "")
            axis.set_ylabel("" if place % across else y_label)
        if not any(written.values()):
            if two:
                names = legend or [f"{value:g}" for value in found]
                _legend(figure, shades, names)
            else:
                _bar(figure, axes)
        _show(figure, "grid", matrices=values, rows=rows, columns=columns, digits=digits, limits=limits, cmap=cmap,
              numbers=numbers, across=across, legend=legend, x_label=x_label, y_label=y_label)  # fmt: skip


@checked
def links(heads: Mapping[str, object], rows: Sequence[object], columns: Sequence[object] | None = None) -> None:
    """Join each query on the left with each key on the right by a line as wide as its weight.

    :param heads: matrices of weights by title, each (i, j), anything NumPy can read.
    :param rows: the labels of the queries.
    :param columns: the labels of the keys; ``rows`` unless given.
    """
    columns = rows if columns is None else columns
    values = _matrices("heads", heads)
    check_labels(values, all_of_them=True, rows=rows, columns=columns)
    with plt.rc_context(STYLE):
        size = (min(3.4 * len(heads), NARROW if _is_narrow() else WIDE), 0.5 * max(len(rows), len(columns)) + 0.6)
        figure, axes = plt.subplots(1, len(heads), figsize=size, squeeze=False)
        for axis, (title, weights) in zip(axes[0], values.items(), strict=True):
            for (i, j), weight in np.ndenumerate(weights):
                axis.plot([0, 1], [-i, -j], color=_colors()[i % 8], lw=9 * weight, alpha=0.75, solid_capstyle="butt")
            for x, side, names in ((-0.06, "right", rows), (1.06, "left", columns)):
                for y, name in enumerate(names):
                    axis.text(x, -y, name, ha=side, va="center")
            axis.set(xlim=(-0.55, 1.55), ylim=(0.5 - max(len(rows), len(columns)), 0.5))
            axis.set_title(title)
            axis.axis("off")
        _show(figure, "links", heads=values, rows=rows, columns=columns)


@checked
def lines(
    series: Mapping[str, tuple[object, object]], x_label: str, y_label: str, *,
    x_log: bool = False, y_log: bool = False, marks: bool = True, level: Mapping[str, float] | None = None,
    place: Mapping[str, float] | None = None,
) -> None:  # fmt: skip
    """Draw named curves, each with a line style and marker of its own, so that color is never the only difference.

    :param series: x and y by name, of equal length, anything NumPy can read.
    :param x_label: what x is.
    :param y_label: what y is.
    :param x_log: whether x is drawn in powers of 2; False unless given.
    :param y_log: whether y is drawn in powers of 10; False unless given.
    :param marks: whether each point has a marker; True unless given.
    :param level: values of named lines across the picture; none unless given.
    :param place: values of named upright lines; none unless given.
    """
    curves = {name: [_array("series", part) for part in pair] for name, pair in series.items()}
    for name, (x, y) in curves.items():
        if x.shape != y.shape or x.ndim > 1 or x.size == 0:
            raise ValueError(
                f"series {name!r} has x of shape {x.shape} and y of shape {y.shape}: one row each, as long"
            )
    if not curves:
        raise ValueError(f"series = {series!r}: there is no curve to draw")
    styles, markers = ("-", "--", "-.", ":"), "osD^vPX*"
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots()
        for c, (name, (x, y)) in enumerate(curves.items()):
            style, marker = styles[c % 4] if x.size > 1 else "none", markers[c % 8] if marks else None
            axis.plot(x, y, ls=style, marker=marker, ms=4, label=name)
        for name, value in (level or {}).items():
            _level(axis, name, value)
        for name, value in (place or {}).items():
            _upright(axis, name, value)
        if x_log:
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_formatter("{x:g}")
        elif all((x == np.round(x)).all() for x, _ in curves.values()):
            axis.locator_params(axis="x", integer=True)  # there is no layer 2.5
        if y_log:
            axis.set_yscale("log")
            axis.yaxis.set_major_formatter("{x:g}")  # a power of ten would have an exponent, too small to read
            low, high = axis.get_ylim()
            axis.yaxis.set_minor_formatter(_two_and_five if high < 100 * low else "")
        axis.set(xlabel=x_label, ylabel=y_label)
        if len(series) > 1 and _is_narrow():
            figure.set_figheight(2.7 + 0.19 * len(series))
            figure.legend(loc="outside upper left")
        elif len(series) > 1:
            axis.legend()
        _show(figure, "lines", series=curves, x_label=x_label, y_label=y_label, x_log=x_log, y_log=y_log, marks=marks,
              level=level, place=place)  # fmt: skip


@checked
def bars(values: Mapping[str, float], y_label: str, *, errors: Mapping[str, float] | None = None, digits: int = 2,
         level: Mapping[str, float] | None = None) -> None:  # fmt: skip
    """Draw one bar for each name, with its number on top; all have one color.

    :param values: the height of each bar, by name.
    :param y_label: what the heights are.
    :param errors: half the length of the error bar on each, by name; none unless given.
    :param digits: after the point; 2 unless given.
    :param level: values of named lines across the picture; none unless given.
    """
    check_whole(0, digits=digits)
    if not values:
        raise ValueError(f"values = {values!r}: there is no bar to draw")
    if errors is not None and set(errors) != set(values):
        raise ValueError(
            f"errors = {described(errors)} are of other names than the values {list(values)}: give one for each"
        )
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots()
        spread = [errors[name] for name in values] if errors else None
        look: dict[str, Any] = {"color": _colors()[0], "ecolor": plt.rcParams["text.color"], "capsize": 4}
        if _is_narrow():
            figure.set_figheight(0.36 * len(values) + 0.8)
            names = [name.replace("-\n", "").replace("\n", " ") for name in values]
            names = [textwrap.fill(name, 18) for name in names]
            drawn = axis.barh(names, list(values.values()), xerr=spread, height=0.6, **look)
        else:
            drawn = axis.bar(list(values), list(values.values()), yerr=spread, width=0.6, **look)
        axis.bar_label(drawn, fmt=f"%.{digits}f", padding=3, fontsize=SMALL)
        for name, value in (level or {}).items():
            _level(axis, name, value)
        axis.set_xlabel(y_label) if _is_narrow() else axis.set_ylabel(y_label)
        axis.margins(x=0.15) if _is_narrow() else axis.margins(y=0.15)
        axis.grid(axis="y" if _is_narrow() else "x", visible=False)
        axis.invert_yaxis() if _is_narrow() else None
        _show(figure, "bars", values=values, y_label=y_label, errors=errors, digits=digits, level=level)


@checked
def tiles(
    panels: Mapping[str, object], owners: Mapping[str, object], *, rows: Sequence[object] = (), across: int = 4,
    digits: int = 0,
) -> None:  # fmt: skip
    """Show small matrices, each number on the color of the head that owns it.

    :param panels: by title, each (i, j), anything NumPy can read; the square of a NaN stays empty.
    :param owners: the head of each number, by title, anything that broadcasts to the panel; −1 is nobody (gray).
    :param rows: the labels of the rows, written at the first panel of a line; none unless given.
    :param across: how many panels are in a line; 4 unless given.
    :param digits: after the point; 0 unless given.
    """
    values = _matrices("panels", panels)
    check_whole(across=across)
    check_whole(0, digits=digits)
    check_labels(values, rows=rows)
    belongs = {title: _owners(owners, title, matrix.shape) for title, matrix in values.items()}
    shapes = [v.shape for v in values.values()]
    if _is_narrow():
        across = max(1, min(across, int((NARROW - 0.7) // (0.34 * max(shape[1] for shape in shapes)))))
    widths = [max(shape[1] for shape in shapes[c::across]) for c in range(min(across, len(shapes)))]
    square = min(0.38, (NARROW - 0.7) / sum(widths)) if _is_narrow() else 0.38
    lines, height = -(-len(shapes) // across), square * max(shape[0] for shape in shapes) + 0.6
    with plt.rc_context(STYLE | {"axes.grid": False, "axes.titlesize": SMALL}):
        width = 0.38 * sum(widths) + 0.2 * len(widths) + 0.7
        size = (min(NARROW if _is_narrow() else WIDE, width), height * lines)
        figure, axes = plt.subplots(lines, len(widths), squeeze=False, width_ratios=widths, figsize=size)
        for place, (axis, title) in enumerate(zip_longest(axes.flat, values)):
            axis.set_visible(title is not None)
            if title is not None:
                _owned(axis, values[title], belongs[title], digits)
                axis.set_title(title)
                _labels(axis, () if place % across else rows, (), values[title].shape)
                spare = (widths[place % across] - values[title].shape[1]) / 2  # so that all squares are equally large
                axis.set_xlim(-0.5 - spare, widths[place % across] - 0.5 - spare)
        _show(figure, "tiles", panels=values, owners=belongs, rows=rows, across=across, digits=digits)


def _show(figure: Figure, function: str, **arguments: object) -> None:
    """Show a figure and close it. It knows the call that drew it: the book makes the call again, and for a phone."""
    figure.call = function, arguments  # type: ignore[attr-defined]
    plt.show()
    plt.close(figure)


def _owned(axis: Axes, matrix: np.ndarray, owner: np.ndarray, digits: int) -> None:
    page = to_rgb(STYLE["figure.facecolor"])
    mixed = [[p + 0.45 * (c - p) for p, c in zip(page, to_rgb(color), strict=True)] for color in _colors()]
    nobody = to_rgb("#3a3a3a") if _is_dark() else (0.9, 0.9, 0.9)
    shades = np.array([nobody, *mixed])[owner + 1]
    axis.imshow(shades, interpolation="none")
    axis.spines[:].set_visible(False)
    digits = 0 if np.array_equal(matrix, matrix.round(), equal_nan=True) else digits
    for (i, j), value in np.ndenumerate(matrix):
        if np.isnan(value):
            continue
        letters = ink(to_hex(shades[i, j]))
        axis.text(j, i, f"{value:.{digits}f}", ha="center", va="center", fontsize=SMALL, color=letters)


def _shades(cmap: str | None, low: float, high: float) -> Colormap:
    """The colors from the lowest number to the highest; unless they have a name, 0 between both signs is the page."""
    if cmap or not low < 0 < high:
        return mpl.colormaps[cmap or "cividis"]
    blue, red = ("#8fd0f0", "#f0909c") if _is_dark() else ("#0b4a6e", "#8f1d33")
    return LinearSegmentedColormap.from_list("signed", [blue, STYLE["figure.facecolor"], red])


def _two() -> Colormap:
    return ListedColormap(["#3a3a3a" if _is_dark() else "#e0e0e0", _colors()[0]], name="two")


def _squares(axis: Axes, matrix: np.ndarray, low: float, high: float, cmap: Colormap, digits: int | None) -> None:
    axis.imshow(matrix, cmap=cmap, vmin=low, vmax=high, aspect="equal", interpolation="none")
    axis.grid(visible=False)
    axis.spines[:].set_visible(False)
    if max(matrix.shape) <= 16:  # thin lines: a panel of one color is many squares, too
        for ticks, count in zip((axis.set_xticks, axis.set_yticks), matrix.shape[::-1], strict=True):
            ticks(np.arange(count - 1) + 0.5, minor=True)
        axis.grid(which="minor", color=STYLE["figure.facecolor"] if cmap.name != "signed" else "#808080", lw=0.5)
        axis.tick_params(which="minor", length=0)
    if digits is None:
        return
    for (i, j), value in np.ndenumerate(matrix):
        shade = (value - low) / (high - low) if high > low else 0
        axis.text(
            j,
            i,
            f"{value:.{digits}f}",
            ha="center",
            va="center",
            fontsize=SMALL,
            color=ink(to_hex(cmap(float(shade)))),
        )


def _bar(figure: Figure, axes: np.ndarray) -> None:
    """Show the colors beside the matrices, as high as they are; on a phone below them, as wide."""
    side = "bottom" if _is_narrow() else "right"
    bar = figure.colorbar(axes.flat[0].images[0], ax=axes, location=side, aspect=30, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=SMALL)
    figure.draw_without_rendering()  # now the matrices have their places
    figure.set_layout_engine("none")
    boxes = [axis.get_position() for axis in axes.flat if axis.get_visible()]
    left, right = min(box.x0 for box in boxes), max(box.x1 for box in boxes)
    low, high, own = min(box.y0 for box in boxes), max(box.y1 for box in boxes), bar.ax.get_position()
    bar.ax.set_box_aspect(None)
    if _is_narrow():
        bar.ax.set_position((left, own.y0, right - left, own.height))
    else:
        thin = 0.12 / figure.get_figwidth()
        bar.ax.set_position((right + thin, low, thin, high - low))
        inked = bar.ax.get_tightbbox()
        beyond = max(0.0, inked.x1 / figure.bbox.width - 1) if inked else 0.0  # its numbers stay inside the figure
        bar.ax.set_position((right + thin - beyond, low, thin, high - low))


def _legend(figure: Figure, shades: Colormap, names: Sequence[str]) -> None:
    """Name the two colors below the matrices, the second first: it is the one that a reader looks for."""
    patches = [Patch(facecolor=shades(c), label=name) for c, name in ((1.0, names[1]), (0.0, names[0]))]
    figure.legend(handles=patches, loc="outside lower center", ncols=2, handlelength=1, handleheight=1)


def _two_and_five(y: float, _place: float | int | None) -> str:
    """Between the powers of ten, where there are few of them."""
    return f"{y:g}" if f"{y:.0e}"[0] in "25" else ""


def _level(axis: Axes, name: str, value: float) -> None:
    """Draw a thin line at a value, across the picture, with its name; for horizontal bars it is upright."""
    if axis.patches and _is_narrow():
        _upright(axis, name, value, 0)
        return
    axis.axhline(value, color="#777777", lw=1, ls=(0, (1, 2)))
    axis.annotate(name, (0.995, value), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=SMALL)


def _upright(axis: Axes, name: str, value: float, turned: int = 90) -> None:
    y, side = (0.995, "top") if turned else (0.005, "bottom")
    axis.axvline(value, color="#777777", lw=1, ls=(0, (1, 2)))
    axis.annotate(
        name, (value, y), xycoords=("data", "axes fraction"), ha="left", va=side, fontsize=SMALL, rotation=turned
    )


def _size(shapes: Sequence[tuple[int, ...]], across: int) -> tuple[float, float]:
    """How wide a figure of matrices is, and how high one line of them; all have equal squares."""
    rows, columns, lines = max(s[0] for s in shapes), max(s[1] for s in shapes), -(-len(shapes) // across)
    square = min(0.42, (HIGH / lines - 0.9) / rows, (WIDE - 0.9) / across / columns)
    width = sum([max(1.6, square * shape[1]) for shape in shapes][:across]) + 0.9
    return min(width, WIDE), max(square * rows + 0.9, min(1.9, HIGH / lines))


def _fit(
    values: Mapping[str, np.ndarray], rows: Sequence[object], columns: Sequence[object], across: int, *, written: bool
) -> tuple[int, float, float, bool]:
    """How many matrices are beside each other on a phone, how wide that is, how high one line of them, and whether
    the names of the columns must be rotated."""
    beside, below = (0.09 * max((len(str(name)) for name in names), default=1) for names in (rows, columns))
    room = NARROW - beside - (0.1 if written else 0.5)  # without numbers there is a bar of colors
    high, wide = (max(v.shape[axis] for v in values.values()) for axis in (0, 1))
    one = max(1.0, (0.34 if written else 0.16) * wide)
    across = max(1, min(across, int(room // one)))
    square = min(room / across, max(one, 1.2)) / wide
    turned = below > min(0.3, square)
    return across, NARROW - room + across * square * wide, square * high + 0.5 + (below if turned else 0.2), turned


def _labels(
    axis: Axes, rows: Sequence[object], columns: Sequence[object], shape: tuple[int, int], *, turned: bool = False
) -> None:
    axis.set_yticks(
        range(len(rows)) if len(rows) == shape[0] else [], [str(row) for row in rows] if len(rows) == shape[0] else []
    )
    axis.set_xticks(
        range(len(columns)) if len(columns) == shape[1] else [],
        [str(column) for column in columns] if len(columns) == shape[1] else [],
    )
    axis.tick_params(length=0)
    if turned:
        axis.tick_params(axis="x", rotation=90)


def check_labels(values: Mapping[str, np.ndarray], *, all_of_them: bool = False, **labels: Sequence[object]) -> None:
    """Refuse labels of rows or columns that fit none of the matrices, or with ``all_of_them`` not every one."""
    for axis, (name, texts) in enumerate(labels.items()):
        sizes = [matrix.shape[axis] for matrix in values.values()]
        fits = [len(texts) == size for size in sizes]
        if not (all(fits) if all_of_them else any(fits) or not len(texts)):
            raise ValueError(
                f"{name} = {described(texts)} are {len(texts)} labels, but the matrices have {sizes} {name}"
            )


def _matrices(name: str, given: Mapping[str, object]) -> dict[str, np.ndarray]:
    """Turn named matrices into arrays; refuse what is none."""
    if not given:
        raise ValueError(f"{name} = {given!r}: there is nothing to draw")
    arrays = {title: _array(name, matrix) for title, matrix in given.items()}
    for title, array in arrays.items():
        if array.ndim != 2 or 0 in array.shape or not np.isfinite(array).any():
            raise ValueError(
                f"{name} hold {title!r} of shape {array.shape}: a matrix of numbers can be drawn, not empty"
            )
    return arrays


def _owners(owners: Mapping[str, object], title: str, shape: tuple[int, ...]) -> np.ndarray:
    if title not in owners:
        raise ValueError(f"owners = {described(owners)} name nobody for {title!r}: give a head for each number")
    owner = _array("owners", owners[title])
    if (owner % 1 != 0).any() or owner.min() < -1 or owner.max() >= len(COLORS):
        raise ValueError(
            f"owners of {title!r} must be heads 0 to {len(COLORS) - 1}, or -1 for nobody: {described(owner)}"
        )
    try:
        return np.broadcast_to(owner.astype(int), shape)
    except ValueError:
        raise ValueError(f"owners of {title!r} have shape {owner.shape}, but the panel has {shape}") from None


def _array(name: str, values: object) -> np.ndarray:
    try:
        return np.asarray(values.detach().cpu().double().numpy() if isinstance(values, Tensor) else values, dtype=float)
    except (TypeError, ValueError, NotImplementedError, RuntimeError) as error:
        raise TypeError(f"{name} hold {described(values)}, but must hold numbers") from error
