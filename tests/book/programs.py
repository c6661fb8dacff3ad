"""The programs beside the package (tools, benchmarks, the book's extensions), as modules that tests can call."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def load(path: str) -> ModuleType:
    """Run a program that is not part of the package; ``path`` begins at the root, as "tools/make_ledger.py"."""
    file = ROOT / path
    sys.path[:0] = [str(file.parent)] if str(file.parent) not in sys.path else []  # it imports its neighbors
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
