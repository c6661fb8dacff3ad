"""The numbers that a figure shows, stored beside its picture: the tests compare them. Pixels belong to one computer.

Kernels started under `recording()` add these numbers to the output of every matplotlib figure, whoever draws it, and
to that of `mha.viz.plot` the call that drew it: the book makes it again (book/_ext/course_figures.py). Readers' kernels
do not, and need not: the picture is the same.
"""

import base64
import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path

DRAWN = "application/vnd.drawn+json"  # the kind of output that brings the numbers; stored, they are metadata
DIGITS = 7
START = "import runpy\nrunpy.run_path({path!r})['install']()\n"


@contextlib.contextmanager
def recording():
    """Kernels that start in here have one start-up file, this one, and nothing of the user's own settings."""
    before = os.environ.get("IPYTHONDIR")
    with tempfile.TemporaryDirectory(prefix="kernel-", ignore_cleanup_errors=True) as folder:
        start = Path(folder, "profile_default", "startup", "drawn.py")
        start.parent.mkdir(parents=True)
        start.write_text(START.format(path=__file__), encoding="utf-8")
        os.environ["IPYTHONDIR"] = folder
        try:
            yield
        finally:
            os.environ.pop("IPYTHONDIR")
            os.environ.update({} if before is None else {"IPYTHONDIR": before})


def fingerprint(png):
    """A name for the bytes of a picture: which picture shows the numbers."""
    return hashlib.sha256(base64.b64decode(png)).hexdigest()[:12]


def install():
    """In a kernel: besides its picture, a figure gives the numbers that it shows, and the call that drew it."""
    from IPython import get_ipython
    from IPython.core.formatters import BaseFormatter
    from traitlets import Unicode

    class Drawn(BaseFormatter):
        format_type = Unicode(DRAWN)

        def __call__(self, shown):  # asked here, because choosing a backend empties the lists of registered types
            is_figure = any(kind.__module__ == "matplotlib.figure" for kind in type(shown).__mro__)
            return {"numbers": numbers(shown), **call(shown)} if is_figure else None

    display = get_ipython().display_formatter
    display.formatters[DRAWN] = Drawn(parent=display)


def call(figure):
    """The function of `mha.viz.plot` that drew a figure and its arguments, in one text; nothing of another figure."""
    if not hasattr(figure, "call"):
        return {}
    given = json.dumps(figure.call, default=lambda rows: rows.tolist() if hasattr(rows, "tolist") else list(rows))
    return {"call": json.dumps(json.loads(given, parse_float=_rounded), ensure_ascii=False)}


def _rounded(text):
    return float(f"{float(text):.{DIGITS}g}")


def numbers(figure):
    """All that a figure shows, as words and rows of numbers."""
    shown = [axis for axis in figure.axes if axis.get_visible()]
    texts = [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]
    return {"size": _listed(figure.get_size_inches()), "texts": _texts(texts), "axes": [_axis(a) for a in shown]}


def _axis(axis):
    artists = [*axis.lines, *axis.patches, *axis.collections, *axis.images]
    if axis.get_label() == "<colorbar>":
        artists = []  # 256 colors, always the same; its numbers stand at its ticks
    legend = axis.get_legend()
    return {
        "texts": _texts([axis.title, axis.xaxis.label, axis.yaxis.label, *(legend.get_texts() if legend else ())]),
        "scales": [axis.get_xscale(), axis.get_yscale()],
        "limits": [
            _limits(axis.get_autoscalex_on(), axis.get_xlim()),
            _limits(axis.get_autoscaley_on(), axis.get_ylim()),
        ],
        "ticks": [_ticks(axis.xaxis), _ticks(axis.yaxis)],
        "artists": [_artist(artist) for artist in artists if artist.get_visible()],
        "written": [[text.get_text(), _listed(text.get_position())] for text in axis.texts if text.get_visible()],
    }


def _texts(texts):
    return [text.get_text() for text in texts if text.get_visible() and text.get_text()]


def _limits(chosen_by_matplotlib, limits):
    """They follow from the data unless somebody set them."""
    return None if chosen_by_matplotlib else _listed(limits)


def _ticks(axis):
    """The same: names that somebody gave."""
    from matplotlib.category import StrCategoryFormatter
    from matplotlib.ticker import FixedFormatter, FuncFormatter

    given = isinstance(axis.get_major_formatter(), (FixedFormatter, FuncFormatter, StrCategoryFormatter))
    return [text.get_text() for text in axis.get_ticklabels()] if given else None


def _artist(artist):
    """Kind, name and look in words; then rows of numbers, each with a name."""
    from matplotlib.collections import Collection, PathCollection
    from matplotlib.colors import to_hex
    from matplotlib.image import AxesImage
    from matplotlib.lines import Line2D

    label = str(artist.get_label())
    found = {"kind": type(artist).__name__, "label": "" if label.startswith("_") else label}
    if isinstance(artist, Line2D):
        look = [to_hex(artist.get_color()), artist.get_linestyle(), str(artist.get_marker())]
        data = {"x": artist.get_xdata(orig=False), "y": artist.get_ydata(orig=False), "width": [artist.get_linewidth()]}
    elif isinstance(artist, AxesImage):
        values = artist.get_array()
        look, data = [artist.get_cmap().name], {"values": values, "range": artist.get_clim(), "shape": values.shape}
    elif isinstance(artist, PathCollection):  # points, each with a marker
        look = [to_hex(color) for color in artist.get_facecolor()]
        data = {"points": artist.get_offsets(), "sizes": artist.get_sizes(), "values": artist.get_array()}
    elif isinstance(artist, Collection):  # lines, areas, meshes
        look = [to_hex(color) for color in artist.get_facecolor()]
        paths = {f"path {n}": path.vertices for n, path in enumerate(artist.get_paths())}
        data = {"values": artist.get_array(), **paths}
    else:  # a patch
        look = [to_hex(artist.get_facecolor())]
        data = {"corners": artist.get_path().transformed(artist.get_patch_transform()).vertices}
    return found | {"look": look} | {name: _listed(values) for name, values in data.items() if values is not None}


def _listed(values):
    """Numbers one after the other, to seven digits, in one text, so that a notebook keeps them in one line.

    What is no number, or hidden by a mask, is nan.
    """
    import numpy as np

    flat = np.ma.filled(np.ma.asarray(values, dtype=float), np.nan).ravel()
    return " ".join(f"{x:.{DIGITS}g}" if np.isfinite(x) else "nan" for x in flat)
