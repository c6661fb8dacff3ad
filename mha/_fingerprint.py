"""Say in a few letters which code was run, so that a changed line is noticed and a changed comment is not."""

import ast
import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
IGNORED = {"annotation", "returns", "type_comment", "type_params", "kind"}
IDLE = {"from_plain", "take", "cost"}  # what a layer answers, but training never asks


def fingerprint(modules: Iterable[str], configuration: object) -> str:
    """Hash the code of modules and of all that they import from this package, and a configuration.

    Comments, docstrings, annotations, what an error says, and functions that training never calls do not count: they
    change no result.
    """
    names = {name.removeprefix("mha.") for name in modules}
    while more := set().union(*(imported(name) for name in names)) - names:
        names |= more
    told = [configuration, *((name, bare(name)) for name in sorted(names))]
    return hashlib.sha256(repr(told).encode()).hexdigest()[:16]


@cache
def read(name: str) -> ast.Module:
    """Parse a module of this package."""
    return ast.parse(HERE.joinpath(*name.split(".")).with_suffix(".py").read_text("utf8"))


@cache
def imported(name: str) -> frozenset[str]:
    """List the modules of this package that one imports."""
    found = set()
    for node in ast.walk(read(name)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "mha":
            inside = node.module.removeprefix("mha").removeprefix(".")
            found |= {".".join(filter(None, [inside, alias.name])) for alias in node.names} | {inside}
    return frozenset(
        module for module in found if module and HERE.joinpath(*module.split(".")).with_suffix(".py").exists()
    )


@cache
def bare(name: str) -> str:
    """Write down what a module does, the same in every version of Python."""
    return str(_bare(read(name)))


def _bare(node: object) -> object:
    if isinstance(node, list):
        return [_bare(part) for part in node if not _is_text(part) and getattr(part, "name", "") not in IDLE]
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, ast.Raise):
        return "raise"
    fields = [(field, value) for field, value in ast.iter_fields(node) if field not in IGNORED]
    return type(node).__name__, [(field, _bare(value)) for field, value in fields if value not in (None, [])]


def _is_text(node: object) -> bool:
    """Say whether a statement is nothing but a text, as a docstring is."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
