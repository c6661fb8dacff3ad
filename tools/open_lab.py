"""Open the course in JupyterLab, in a folder of the reader's own: `my-course`, which git and the tests leave alone.

    python tools/open_lab.py [--port 8888] [--no-browser] [--only-write]      (make lab)

It holds the readers' notebooks (`tools/make_readers.py`). A second call keeps what was changed there. For each notebook
`.made.json` in that folder knows what was written last, so that three cases can be told apart:

- the reader changed nothing: the notebook is written anew, as the course has it now;
- only the reader changed it: it stays;
- both did: it stays, and the course's new one is written beside it as NAME.new.ipynb.

A notebook that was removed comes back. A change is another text, another code or another output; opening is none.
"""

import argparse
import hashlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from make_readers import write

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "my-course"
MADE = ".made.json"
HERE = "Python 3 (the course)"


def digest(content):
    """A short name for what a notebook says: its cells and outputs, not what JupyterLab notes when it is opened."""
    try:
        cells = [
            [cell["cell_type"], "".join(cell["source"]), [_said(output) for output in cell.get("outputs", ())]]
            for cell in json.loads(content)["cells"]
        ]
        content = json.dumps(cells, sort_keys=True).encode()
    except (ValueError, KeyError, TypeError):
        pass  # it is no notebook: then its bytes count
    return hashlib.sha256(content).hexdigest()


def _said(output):
    """An output without counts and notes; its lines may be a list or one text."""
    data = {kind: _joined(lines) for kind, lines in output.get("data", {}).items()}
    return [output["output_type"], _joined(output.get("text", "")), data, output.get("traceback", [])]


def _joined(lines):
    return "".join(lines) if isinstance(lines, list) else lines


def known(folder):
    """What was written last, as a hash for each name. Where the list cannot be read, all is taken for the reader's."""
    try:
        found = json.loads((folder / MADE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def update(folder, make=write):
    """Bring the notebooks of a folder up to date, and keep what the reader changed.

    :param folder: made where it is missing.
    :param make: writes all notebooks into a folder and returns their paths.
    :returns: all names in the order of the course; and for each notebook that both the reader and the course changed,
        the file in which the course's new one is.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made, both = known(folder), {}
    with tempfile.TemporaryDirectory() as new:
        names = [path.name for path in make(Path(new))]
        for name in names:
            content, mine = Path(new, name).read_bytes(), folder / name
            now, before = digest(content), made.get(name)
            if not mine.exists() or digest(mine.read_bytes()) in (before, now):
                store(mine, content)
            elif now != before:
                both[name] = beside(mine, made)
                made[both[name].name] = now
                store(both[name], content)
            made[name] = now
    store(folder / MADE, (json.dumps(made, indent=1) + "\n").encode())
    return names, both


def beside(mine, made):
    """The file for the course's new notebook beside the reader's: one that the reader has not changed either."""
    files = (mine.with_suffix(f".new{number if number > 1 else ''}.ipynb") for number in itertools.count(1))
    return next(new for new in files if not new.exists() or digest(new.read_bytes()) == made.get(new.name))


def store(path, content):
    """Write all or nothing."""
    if path.exists() and path.read_bytes() == content:
        return
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(content)
    os.replace(part, path)


def settings(folder):
    """Write a kernel that is the Python that runs this script, and no question about news; returns the environment."""
    place, page = folder / "kernels" / "python3", folder / "labconfig"
    place.mkdir(parents=True)
    page.mkdir()
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": HERE, "language": "python", "metadata": {"debugger": True}}
    (place / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")
    quiet = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
    (page / "page_config.json").write_text(json.dumps(quiet), encoding="utf-8")
    first = {"JUPYTER_PATH": folder, "JUPYTER_CONFIG_PATH": folder}  # the user's own come after it
    return {name: os.pathsep.join([str(one), *filter(None, [os.environ.get(name)])]) for name, one in first.items()}


def command(folder, first, port=None, browser=True, more=()):
    """How JupyterLab is started: on this machine only, in the reader's folder, with one notebook open."""
    begin = [sys.executable, "-m", "jupyterlab", str(folder / first), f"--ServerApp.root_dir={folder}"]
    options = ["--ip=127.0.0.1", *([f"--port={port}"] if port else []), *([] if browser else ["--no-browser"])]
    return [*begin, *options, *more]


def main():
    parser = argparse.ArgumentParser(description="Open the course in JupyterLab, which gets all further options.")
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER, help="default: my-course")
    parser.add_argument("--port", type=int, help="default: the first free one from 8888 on")
    parser.add_argument("--no-browser", action="store_true", help="print the address instead of opening a browser")
    parser.add_argument("--only-write", action="store_true", help="write the notebooks and start nothing")
    options, more = parser.parse_known_args()
    folder = options.folder.resolve()
    names, both = update(folder)
    print(f"{len(names)} notebooks: {folder}")
    for name, new in both.items():
        print(f"  {name}: yours stays, and the course has a new one: {new.name}")
    if options.only_write:
        return 0
    with tempfile.TemporaryDirectory(prefix="kernel-", ignore_cleanup_errors=True) as place:
        run = command(folder, names[0], options.port, not options.no_browser, more)
        print("JupyterLab opens. Ctrl+C ends it.", flush=True)
        try:
            return subprocess.run(run, env=os.environ | settings(Path(place)), cwd=folder, check=False).returncode
        except KeyboardInterrupt:
            return 0


if __name__ == "__main__":
    sys.exit(main())
