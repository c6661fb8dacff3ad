"""What the reader can run in the page gives, in MicroPython, what the notebook stored from CPython."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "node_modules" / "@micropython" / "micropython-webassembly-pyscript"
RUN = """
import { readFileSync } from "fs";
const { loadMicroPython } = await import(process.argv[1]);
const lines = [];
const python = await loadMicroPython({ stdout: (line) => lines.push(line), linebuffer: true, heapsize: 16777216 });
python.FS.mkdirTree("/lib/mha");
python.FS.writeFile("/lib/mha/__init__.py", "");
python.FS.writeFile("/lib/mha/reference.py", readFileSync(process.argv[2], "utf8"));
python.runPython("import sys\\nif '/lib' not in sys.path:\\n    sys.path.append('/lib')\\n");
python.runPython(readFileSync(0, "utf8"));
process.stdout.write(lines.join("\\n") + "\\n");
"""


def cells():
    """The cells that can be tried in the page, by chapter."""
    for path in sorted((ROOT / "notebooks").glob("0*.ipynb")):
        for cell in json.loads(path.read_text("utf8"))["cells"]:
            if "try-it" in cell["metadata"].get("tags", []):
                yield pytest.param(cell, id=path.stem)


CELLS = list(cells())


def text(lines):
    return lines if isinstance(lines, str) else "".join(lines)


def test_chapters_01_to_06_have_something_to_try():
    assert [param.id[:2] for param in CELLS] == ["01", "02", "03", "04", "05", "06"]


@pytest.mark.parametrize("cell", CELLS)
def test_it_needs_nothing_but_plain_python(cell):
    lines = text(cell["source"]).splitlines()
    modules = {line.split()[1] for line in lines if line.startswith(("import ", "from "))}
    assert modules <= {"math", "mha", "mha.reference", "random"}
    assert [line for line in lines if line.startswith("from mha import")] in ([], ["from mha import reference"])


@pytest.mark.slow  # `make book` fetches MicroPython
@pytest.mark.parametrize("cell", CELLS)
def test_it_prints_the_same_in_the_page(cell):
    node = shutil.which("node")
    if node is None or not PACKAGE.is_dir():
        pytest.skip("Node or MicroPython is not here: install Node, then `make book` fetches the package")
    command = [
        node,
        "--input-type=module",
        "-e",
        RUN,
        (PACKAGE / "micropython.mjs").as_uri(),
        ROOT / "mha/reference.py",
    ]
    run = subprocess.run(command, input=text(cell["source"]), capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert run.stdout == text(cell["outputs"][0]["text"])
