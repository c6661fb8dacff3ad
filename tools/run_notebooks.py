"""Execute notebooks and store their outputs so that two runs on one machine give the same bytes.

    python tools/run_notebooks.py [--fresh] [notebook ...]      (all of notebooks/ when none is named)

A notebook is written only when every cell ran without an error (unless tagged `raises-exception`) and wrote
nothing to stderr. Cells tagged `nbval-ignore-output` hold times and training logs, which differ from run to run:
when nothing else of the notebook changed, it is left as it was. `--fresh` stores the new times.
"""

import argparse
import base64
import copy
import hashlib
import io
import os
import re
import sys
import time
from pathlib import Path

import nbformat
from drawn import DRAWN, fingerprint, recording
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from PIL import Image
from traitlets import default

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
TIMEOUT = 180  # seconds for one cell, as in the tests
CELL_METADATA = ("mystnb", "tags", "tolerance")  # everything else is a trace of some editor
ANSI = re.compile(r"\x1b\[[0-9;]*m")
FOLDED = {"source_hidden": True, "outputs_hidden": True}  # JupyterLab shows a bar instead of the cell
SOLUTION = re.compile(r"^:::\{solution-(start|end)\}", re.MULTILINE)


class ThisPython(KernelSpecManager):
    """Whatever kernels are registered on this machine, the only one is the Python that runs this script."""

    def get_kernel_spec(self, kernel_name):
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=argv, language="python", display_name="Python 3")


class ThisKernel(AsyncKernelManager):
    """A kernel of this Python."""

    @default("kernel_spec_manager")
    def _this_python(self):
        return ThisPython(parent=self)


class RefusedError(Exception):
    """The notebook must not be stored; the message says which cell and why."""


def execute(notebook, folder):
    """Forget old outputs, then run all cells in a new kernel whose working directory is `folder`."""
    for cell in filter(is_code, notebook.cells):
        cell.update(outputs=[], execution_count=None)
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        kernel_manager_class=ThisKernel,
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(folder)}},
        timeout=TIMEOUT,
        record_timing=False,
        coalesce_streams=True,
        store_widget_state=False,
    )
    try:
        with recording():
            client.execute()
    except CellExecutionError as error:
        raise RefusedError(f"{place(notebook, failed(notebook))} raised {error.ename}: {error.evalue}") from None
    except CellTimeoutError:
        raise RefusedError(
            f"{place(notebook, last_started(notebook))} did not finish within {TIMEOUT} seconds"
        ) from None
    except DeadKernelError:
        raise RefusedError("the kernel died (out of memory, or the code ended the process)") from None


def failed(notebook):
    """Index of the cell whose error stopped the run: the last one that holds an error."""
    holds = [any(out.output_type == "error" for out in cell.get("outputs", ())) for cell in notebook.cells]
    return len(holds) - 1 - holds[::-1].index(True)


def last_started(notebook):
    """Index of the last cell that got an execution count."""
    return max((i for i, cell in enumerate(notebook.cells) if cell.get("execution_count")), default=0)


def place(notebook, index):
    """`cell 7 (code cell 3, starts "scores = q @ k.T")`, with cells counted from 1."""
    number = sum(is_code(cell) for cell in notebook.cells[: index + 1])
    first = notebook.cells[index].source.split("\n", 1)[0]
    return f'cell {index + 1} (code cell {number}, starts "{first[:60]}")'


def is_code(cell):
    return cell.cell_type == "code"


def refuse_noise(notebook):
    """No stderr, and no path of this machine in what the reader sees."""
    for index, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", ()):
            if output.get("name") == "stderr":
                text = ANSI.sub("", output.text).strip()
                raise RefusedError(f"{place(notebook, index)} wrote to stderr:\n    {text[:600]}")
            if str(ROOT) in str(output.get("text", "")) + str(output.get("data", "")):
                raise RefusedError(f"{place(notebook, index)} prints a path of this machine ({ROOT})")


def normalize(notebook):
    """Keep what the reader sees; drop what depends on the machine, the editor or the hour."""
    needs = {"trained": notebook.metadata["trained"]} if "trained" in notebook.metadata else {}  # models: conftest.py
    notebook.metadata = nbformat.from_dict(NOTEBOOK_METADATA | needs)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    seen = {}
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({key: cell.metadata[key] for key in CELL_METADATA if key in cell.metadata})
        cell.id = cell_id(cell, seen)
        for output in cell.get("outputs", ()):
            normalize_output(output)
    for cell in solutions(notebook):
        cell.metadata["jupyter"] = nbformat.from_dict(FOLDED)


def solutions(notebook):
    """The code cells between the marks that begin and end a solution."""
    inside = False
    for cell in notebook.cells:
        if is_code(cell) and inside:
            yield cell
        elif cell.cell_type == "markdown" and (marks := SOLUTION.findall(cell.source)):
            inside = marks[-1] == "start"


def cell_id(cell, seen):
    """The same cell keeps its id, whatever happens to its neighbors; equal cells are numbered."""
    name = hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:12]
    seen[name] = seen.get(name, 0) + 1
    return name if seen[name] == 1 else f"{name}-{seen[name]}"


def normalize_output(output):
    if output.output_type == "error":  # the frames of a traceback name files of this machine
        output.traceback = [f"{output.ename}: {output.evalue}"]
    data = output.get("data", {})
    if "image/png" in data:
        data["image/png"] = plain_png(data["image/png"])
    if DRAWN in data:  # the numbers that were drawn, by which call, and which picture shows them
        output.metadata["drawn"] = {**data.pop(DRAWN), "picture": fingerprint(data["image/png"])}


def plain_png(encoded):
    """The same pixels, without comments on who drew them and when, and without a transparency that nothing uses."""
    picture, file = Image.open(io.BytesIO(base64.b64decode(encoded))), io.BytesIO()
    if picture.mode == "RGBA" and picture.getextrema()[3] == (255, 255):
        picture = picture.convert("RGB")
    Image.frombytes(picture.mode, picture.size, picture.tobytes()).save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode("ascii")


def compared(notebook):
    """The notebook without the outputs that may differ from run to run."""
    notebook = copy.deepcopy(notebook)
    for cell in notebook.cells:
        if "nbval-ignore-output" in cell.metadata.get("tags", ()):
            cell.outputs = []
    return notebook


def store(notebook, path):
    """Write all or nothing, with Unix line ends."""
    unfinished_path = path.with_name(path.name + ".part")
    unfinished_path.write_text(nbformat.writes(notebook).rstrip("\n") + "\n", encoding="utf-8", newline="\n")
    os.replace(unfinished_path, path)


def run(path, fresh=False):
    """Execute one notebook and store it; returns `changed` or `unchanged`, raises `RefusedError`."""
    stored = nbformat.read(path, as_version=4)
    notebook = copy.deepcopy(stored)
    execute(notebook, path.parent)
    refuse_noise(notebook)
    normalize(notebook)
    nbformat.validate(notebook)
    same = notebook == stored if fresh else compared(notebook) == compared(stored)
    if not same:
        store(notebook, path)
    return "unchanged" if same else "changed"


def main():
    parser = argparse.ArgumentParser(description="Execute notebooks and store their outputs.")
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all of notebooks/")
    parser.add_argument("--fresh", action="store_true", help="store new times and training logs too")
    options = parser.parse_args()
    os.environ.update(TQDM_DISABLE="1", OMP_NUM_THREADS="1")
    refused = 0
    for path in options.notebooks or sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")):
        begin = time.perf_counter()
        try:
            result = run(path.resolve(), options.fresh)
        except RefusedError as reason:
            refused += 1
            result = f"NOT STORED: {reason}"
        except (OSError, nbformat.reader.NotJSONError) as error:
            refused += 1
            result = f"NOT READ: {error}"
        print(f"{path.name}  {time.perf_counter() - begin:.1f} s  {result}", flush=True)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
