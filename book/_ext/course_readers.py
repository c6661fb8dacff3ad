"""Pages give readers plain notebooks: the download button, Colab and Binder (tools/make_readers.py)."""

import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path += [str(TOOLS)] if str(TOOLS) not in sys.path else []

import addresses  # noqa: E402
import make_readers  # noqa: E402


def give_plain_notebooks(app, exception):
    """Put the readers' notebooks where the download buttons of the pages lead."""
    folder = Path(app.outdir, "_sources", "notebooks")
    if exception is None and app.builder.format == "html" and folder.is_dir():
        make_readers.write(folder, addresses.known())


def setup(app):
    app.connect("build-finished", give_plain_notebooks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
