"""Draw the stored figures again: for when `mha.viz.plot` changed how it draws. No notebook is executed.

    python tools/redraw.py [notebook ...]      (all of notebooks/ when none is named)

Every figure of `mha.viz.plot` is stored with the call that drew it (tools/drawn.py), so a new look needs no training:
the call is made again, and the picture, its numbers and its size are stored anew.
"""

import argparse
import base64
import inspect
import io
import json
import sys
from pathlib import Path
from unittest.mock import patch

import matplotlib as mpl
import nbformat
from drawn import call, fingerprint, numbers
from run_notebooks import ROOT, plain_png, store

mpl.use("Agg")

sys.path.insert(0, str(ROOT))


def drawn_again(function, arguments):
    """The output of a figure, as a kernel under `drawn.recording()` gives it and run_notebooks.py stores it."""
    import matplotlib.pyplot as plt

    from mha.viz import plot

    found = []

    def look():
        figure, file = plt.gcf(), io.BytesIO()
        seen = {"numbers": numbers(figure), **call(figure)}
        figure.savefig(file, format="png", bbox_inches="tight", facecolor=figure.get_facecolor())
        png = plain_png(base64.b64encode(file.getvalue()).decode("ascii"))
        found.append(({"image/png": png, "text/plain": repr(figure)}, {**seen, "picture": fingerprint(png)}))

    with patch.object(plt, "show", look):
        inspect.unwrap(getattr(plot, function))(**arguments)
    return found[0]


def redraw(path):
    """Draw all figures of one notebook again; how many of them changed."""
    notebook, changed = nbformat.read(path, as_version=4), 0
    for output in (one for cell in notebook.cells for one in cell.get("outputs", ())):
        stored = output.get("metadata", {}).get("drawn", {})
        if "call" in stored:
            data, seen = drawn_again(*json.loads(stored["call"]))
            changed += (seen, data["text/plain"]) != (stored, output.data["text/plain"])
            output.data.update(data)
            output.metadata["drawn"] = seen
    if changed:
        store(notebook, path)
    return changed


def main():
    parser = argparse.ArgumentParser(description="Draw the stored figures again, without executing notebooks.")
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all of notebooks/")
    for path in parser.parse_args().notebooks or sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")):
        if changed := redraw(path.resolve()):
            print(f"{path.name}: {changed} drawn again", flush=True)


if __name__ == "__main__":
    main()
