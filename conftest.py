"""Notebooks are tests: nbval runs every cell and compares what it prints. This file adds what nbval does not see.

nbval skips pictures, and it compares nothing in a cell that was stored without having run. Here stored and new
pictures are compared pixel by pixel, and a cell that never ran fails. Cells tagged `trained-picture` draw what a
training gave: another processor rounds in another way, and curves of a training then differ a little.
"""

import base64
import io
import os

import matplotlib
import numpy as np
import pytest
from matplotlib.image import imread

# Set before any kernel starts: it inherits them. One thread, because sums of floats depend on their order.
os.environ.update(OMP_NUM_THREADS="1", TQDM_DISABLE="1")
os.environ.pop("MPLBACKEND", None)  # in a notebook, figures must come out as pictures
matplotlib.use("Agg")  # and in this process they must not open windows

# How much a picture may differ, as root mean square of the pixels' differences, from 0 to 255. A changed curve or color
# is seen in the whole picture; one changed number in a table of squares, or one moved point, only in its neighborhood.
WHOLE_LIMIT = 4.0
TILE, TILE_LIMIT = 16, 24.0  # in any square of 16 x 16 pixels
TRAINED_LIMITS = 8.0, 255.0  # the same two, where the picture shows a training


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """After nbval's own comparison, compare what it leaves out (cells tagged `nbval-ignore-output` excepted)."""
    result = yield
    if type(item).__name__ == "IPyNbCell" and item.options["check"]:
        trained = "trained-picture" in item.cell.metadata.get("tags", ())
        limits = TRAINED_LIMITS if trained else (WHOLE_LIMIT, TILE_LIMIT)
        problem = unrun(item.cell) or different_pictures(item.cell.outputs, item.test_outputs, limits)
        if problem:
            item.raise_cell_error(problem)
    return result


def unrun(cell):
    """Say so where a cell was stored without having run."""
    if cell.source.strip() and cell.execution_count is None:
        return "this cell was stored without having run, so there is nothing to compare: make notebooks"
    return ""


def different_pictures(stored, drawn, limits=(WHOLE_LIMIT, TILE_LIMIT)):
    """Say how the pictures of two lists of outputs differ; an empty string where they do not."""
    stored, drawn = pixels(stored), pixels(drawn)
    if len(stored) != len(drawn):
        return f"{len(stored)} pictures are stored, {len(drawn)} were drawn"
    for number, (old, new) in enumerate(zip(stored, drawn, strict=True), start=1):
        if old.shape != new.shape:
            return f"picture {number}: {old.shape[:2]} pixels are stored, {new.shape[:2]} were drawn"
        whole, tile = difference(old, new)
        if whole > limits[0] or tile > limits[1]:
            found = f"RMS {whole:.1f} (limit {limits[0]}), in the worst square {tile:.1f} (limit {limits[1]}), of 255"
            return f"picture {number} differs from the stored one: {found}"
    return ""


def difference(old, new):
    """Root mean square of the differences of two pictures: over the whole, and in the worst square."""
    squares = ((old - new) ** 2).mean(-1)
    padded = np.pad(squares, [(0, -size % TILE) for size in squares.shape])
    tiles = padded.reshape(padded.shape[0] // TILE, TILE, -1, TILE).mean((1, 3))
    return float(np.sqrt(squares.mean())), float(np.sqrt(tiles.max()))


def pixels(outputs):
    """All PNG pictures among the outputs of a cell, as red, green and blue from 0 to 255."""
    pngs = [output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})]
    return [255 * imread(io.BytesIO(base64.b64decode(png)))[..., :3] for png in pngs]
