"""Notebooks are tests: nbval runs every cell and compares what it prints. This file adds how outputs are compared.

- Text and HTML must be the stored ones, letter by letter. nbval does this itself.
- A figure is compared by the numbers that were drawn (`tools/drawn.py`), whoever draws it: pixels belong to one
  computer. The last digits of a float may differ, and nothing else.
- A cell whose numbers come out of a training in which rounding grows states a `tolerance` in its metadata: its words
  must be the stored ones, and its numbers (printed, drawn, inside HTML and SVG) may differ by that much.
  `tests/book/test_outputs.py` lists these cells; no tolerance is above a quarter of the effect that the text claims.
- A cell that was stored without having run fails.
- A cell whose metadata names packages that it `needs` is skipped by name where one is not installed.

On Linux, kernels start as copies of a process that has imported torch: `tools/warm_kernels.py`.
"""

import contextlib
import gc
import os
import re
import shutil
import sys
import tempfile
import zlib
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from nbval.plugin import IPyNbCell, coalesce_streams
from xdist.scheduler.loadscope import LoadScopeScheduling

# Set before any kernel starts: it inherits them. Another number of threads may be asked for; it must change nothing.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["TQDM_DISABLE"] = "1"
if shutil.which("nvidia-smi") is None:  # Triton's interpreter must be chosen before anything imports Triton
    os.environ.setdefault("TRITON_INTERPRET", "1")
os.environ.pop("MPLBACKEND", None)  # in a notebook, figures must come out as pictures
matplotlib.use("Agg")  # and in this process they must not open windows

sys.path.append(str(Path(__file__).parent / "tools"))
import drawn
import warm_kernels

warm_kernels.keep_memory()

SHARING = (
    "test_distributed_jobs.py",
    "test_mutations.py",
    "test_tensor_parallel.py",
    "test_readers.py",
)  # files that start several processes once
MANY = 6  # of a test outside tests/book with so many cases the first tier runs one in three, the second tier the others
ROUNDING = 1e-5  # of the largest number in a row of drawn numbers: what float32 loses, and far less than can be seen
NUMBER = re.compile(r"(?<![\w.])[-−+]?(?:\d+(?:,\d{3})*(?:\.\d+)?|\.\d+)(?:e[-+]?\d+)?")
PACKED = re.compile(r'"low":([^,]+),"high":([^,]+),"text":"([\w+/]*)"')  # the head view: two letters a number
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
NAME = re.compile(r"\b[0-9a-f]{12}\b")  # a view is named after its numbers


# ---- which tests run where


class Together(LoadScopeScheduling):
    """The cells of a notebook, and tests that share something costly, stay on one worker."""

    def _split_scope(self, nodeid):
        file = nodeid.partition("::")[0]
        return file if file.endswith((".ipynb", *SHARING)) else nodeid


def pytest_xdist_make_scheduler(config, log):
    return Together(config, log) if config.getvalue("dist") == "loadfile" else None


def left_to_the_second_tier(items):
    """Of each test with many cases two in three, always the same; a file that is asked for by name runs all of them.

    What reads the pages and the notebooks is run whole: each page has its own cases.
    """
    if not items or not {Path(one).name for one in items[0].config.args} <= {"tests", "notebooks"}:
        return []
    cases = defaultdict(list)
    for item in items:
        test, bracket, _ = item.nodeid.partition("[")
        if bracket and not item.nodeid.startswith("tests/book/"):
            cases[test].append(item)
    many = (item for found in cases.values() if len(found) >= MANY for item in found)
    return [item for item in many if zlib.crc32(item.nodeid.encode()) % 3]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Drawn calls begin, in a fresh process: what many tests leave in memory slows each draw. Notebooks, which take
    longest, come next, and small tests fill the gaps at the end.
    """
    for item in left_to_the_second_tier(items):
        item.add_marker(pytest.mark.slow)
    for item in filter(lambda item: isinstance(item, IPyNbCell), items):
        if lacking := lacks(item.parent.nb.metadata.get("trained", ())):
            item.add_marker(pytest.mark.skip(reason=f"{lacking} is not here: python tools/get_trained.py"))
        if missing := absent(item.cell.metadata.get("needs", ())):
            item.add_marker(pytest.mark.skip(reason=f"{missing} is missing: pip install -e '.[kernels]' (Linux only)"))
    items.sort(key=lambda item: 0 if "/test_calls.py" in item.nodeid else 1 if isinstance(item, IPyNbCell) else 2)


def lacks(files):
    """The first of a notebook's trained models that is not on this machine; an empty string where all are."""
    if not files:
        return ""
    from mha.data.trained import folder

    return next((name for name in files if not (folder() / name).is_file()), "")


def absent(packages):
    """The first package that a cell needs and that is not installed; an empty string where all are."""
    return next((name for name in packages if find_spec(name) is None), "")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is imported here stays: the garbage collector need not look through it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_sessionstart(session):
    kernels = contextlib.ExitStack()
    kernels.enter_context(drawn.recording())
    kernels.enter_context(warm_kernels.warm())
    if "MHA_ONCE" not in os.environ:  # the workers find it there
        os.environ["MHA_ONCE"] = kernels.enter_context(tempfile.TemporaryDirectory(prefix="once-"))
        kernels.callback(os.environ.pop, "MHA_ONCE")
    session.config.add_cleanup(kernels.close)


# ---- how a cell is compared


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """nbval compares what is exact; here follow figures, and cells with a tolerance."""
    if not (isinstance(item, IPyNbCell) and item.options["check"]):
        return (yield)
    tolerance = item.cell.metadata.get("tolerance", {}).get("absolute")
    item.parent.skip_compare += (drawn.DRAWN,) * (drawn.DRAWN not in item.parent.skip_compare)
    item.options["check"] = tolerance is None
    result = yield
    if problem := unrun(item.cell) or different(item.cell.outputs, item.test_outputs, tolerance):
        item.raise_cell_error(problem)
    return result


def unrun(cell):
    """Say so where a cell was stored without having run."""
    if cell.source.strip() and cell.execution_count is None:
        return "this cell was stored without having run, so there is nothing to compare: make notebooks"
    return ""


def different(stored, new, tolerance=None):
    """Say how the outputs of a cell differ; an empty string where they do not. Without a tolerance, of the figures."""
    found = different_figures(figures(stored), figures(new), tolerance)
    if not found and tolerance is not None:
        found = unlike(texts(stored), texts(new), tolerance, "output")
    return found


def figures(outputs):
    """Of every picture what was drawn, stored or as a kernel gives it, and its bytes; None where one is missing."""
    found = []
    for output in outputs:
        data, stored = output.get("data", {}), output.get("metadata", {}).get("drawn")
        found.append((data.get(drawn.DRAWN, stored), data.get("image/png")))
    return [pair for pair in found if any(pair)]


def different_figures(stored, new, tolerance):
    if len(stored) != len(new):
        return f"{len(stored)} pictures are stored, {len(new)} were drawn"
    for number, ((old, old_png), (now, now_png)) in enumerate(zip(stored, new, strict=True), start=1):
        if not old_png or not now_png or (now and not old):
            return f"picture {number}: it was stored without its picture or its numbers: make notebooks"
        if not now:  # no figure of matplotlib: somebody's file
            if old_png.strip() != now_png.strip():
                return f"picture {number} is another file than the stored one"
        elif old["picture"] != drawn.fingerprint(old_png):
            return f"picture {number}: what is stored is not what was drawn with these numbers: make notebooks"
        elif problem := unlike(old["numbers"], now["numbers"], tolerance, f"picture {number}"):
            return problem
    return ""


def texts(outputs):
    """All texts, each with its kind: what was printed, shown, or raised."""
    found = []
    for output in coalesce_streams(outputs):
        found += [[kind, text] for kind, text in sorted(output.get("data", {}).items()) if kind.startswith("text/")]
        found += [[output.output_type, output[key]] for key in ("text", "evalue") if key in output]
    return found


def unlike(old, new, tolerance, where):
    """Where two outputs differ, and how; an empty string where they do not.

    Words must be equal. Numbers may differ by the tolerance, or, without one, by the rounding of floats.
    """
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        return first(unlike(old[key], new[key], tolerance, f"{where}, {key}") for key in old)
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return first(unlike(a, b, tolerance, f"{where} {n}") for n, (a, b) in enumerate(zip(old, new, strict=True), 1))
    if isinstance(old, str) and isinstance(new, str) and old != new:
        if None not in (numbers := (row(old), row(new))):
            return far(*numbers, tolerance, where)
        if tolerance is not None:
            (old_words, old_numbers), (new_words, new_numbers) = apart(old), apart(new)
            return unlike(old_words, new_words, None, where) or far(old_numbers, new_numbers, tolerance, where)
    return "" if old == new else f"{where}: {shorten(old)} is stored, {shorten(new)} was computed"


def row(text):
    """The numbers of a text that holds nothing else, as drawn numbers are stored; None for any other text."""
    try:
        return [float(x) for x in text.split()]
    except ValueError:
        return None


def first(problems):
    return next(filter(None, problems), "")


def far(old, new, tolerance, where):
    """Which number of two lists differs too much."""
    if len(old) != len(new):
        return f"{where}: {len(old)} numbers are stored, {len(new)} were computed"
    one, two = np.array(old), np.array(new)
    limit = ROUNDING * np.nanmax(np.abs(one), initial=0) if tolerance is None else tolerance
    wrong = ~((np.abs(one - two) <= limit) | (np.isnan(one) & np.isnan(two)))
    if not wrong.any():
        return ""
    n = int(np.argmax(wrong))
    return f"{where}: number {n + 1} of {len(old)} is stored as {old[n]}, and {new[n]} was computed (limit {limit:.2g})"


def apart(text):
    """The words of a text, and its numbers."""
    unpacked = PACKED.sub(lambda found: " ".join(map(str, unpack(*found.groups()))), text)
    words = " ".join(NUMBER.sub("#", NAME.sub("NAME", unpacked)).split())
    return words, [float(x.replace(",", "").replace("−", "-")) for x in NUMBER.findall(NAME.sub("NAME", unpacked))]


def unpack(low, high, letters):
    """The numbers of a head view: 4096 steps from the lowest to the highest."""
    steps = [64 * LETTERS.index(a) + LETTERS.index(b) for a, b in zip(letters[::2], letters[1::2], strict=True)]
    return [float(low) + (float(high) - float(low)) * step / 4095 for step in steps]


def shorten(value):
    text = repr(value)
    return text if len(text) <= 300 else text[:300] + "…"
