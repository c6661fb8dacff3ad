"""Say in a few letters which code was run, so that a changed line is noticed and a changed comment or place is not."""

import ast
import hashlib
import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from types import ModuleType
from typing import Any

IGNORED = {"annotation", "returns", "type_comment", "type_params", "kind"}
# What a layer answers, but training never asks.
IDLE = {"from_plain", "plain_settings", "settings", "take_heads", "cost", "_become"}
Place = tuple[str, str]  # a module of this package, and a name that it defines


def fingerprint(used: Iterable[Callable], configuration: object) -> str:
    """Hash classes and functions with all definitions of this package that they use, and a configuration.

    Where a definition stands does not count, nor do comments, docstrings, annotations, what an error says, checks of
    what was given, and what training never calls: they change no result.
    """
    told = [configuration, *sorted((name, bare(module, name)) for module, name in reached(used))]
    return hashlib.sha256(repr(told).encode()).hexdigest()[:16]


def reached(used: Iterable[Callable]) -> set[Place]:
    """List the definitions that some classes and functions use, directly or not."""
    seen, new = set(), {(kind.__module__, kind.__qualname__.partition(".")[0]) for kind in used}
    while new:
        seen |= new
        new = {place for there in new for place in uses(*there)} - seen
    return seen


@cache
def definitions(module: str) -> dict[str, ast.stmt]:
    """Find what a module defines at its top: classes, functions, constants."""
    found: dict[str, ast.stmt] = {}
    for node in ast.parse(inspect.getsource(importlib.import_module(module))).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            found[node.name] = node
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {name.id: node for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return found


@cache
def imported(module: str) -> dict[str, Place]:
    """Say where the names that a module imports from this package come from; the name is empty for a whole module."""
    found = {}
    for node in ast.walk(ast.parse(inspect.getsource(importlib.import_module(module)))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "mha":
            for alias in node.names:
                value = getattr(importlib.import_module(node.module), alias.name, None)
                here = (value.__name__, "") if isinstance(value, ModuleType) else (node.module, alias.name)
                found[alias.asname or alias.name] = here
        elif isinstance(node, ast.Import):
            found |= {root: (root, "") for alias in node.names if (root := alias.name.partition(".")[0]) == "mha"}
    return found


@cache
def uses(module: str, name: str) -> frozenset[Place]:
    """List the definitions of this package that one definition names."""
    return frozenset(_named(module, _trained(definitions(module).get(name, []))))


def _named(module: str, node: object) -> Iterator[Place]:
    own, others = definitions(module), imported(module)
    for part in _parts(node):
        if isinstance(part, ast.Name) and part.id in own:
            yield module, part.id
        elif isinstance(part, ast.Name) and others.get(part.id, ("", ""))[1]:
            yield from _home(*others[part.id])
        elif isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
            there, whole = others.get(part.value.id, ("", "one name"))
            yield from [] if whole else _home(there, part.attr)


def _home(module: str, name: str) -> Iterator[Place]:
    """Follow a name to the module that defines it."""
    if name in definitions(module):
        yield module, name
    elif name in imported(module) and imported(module)[name][1]:
        yield from _home(*imported(module)[name])
    else:
        value: Any = getattr(importlib.import_module(module), name, None)
        if getattr(value, "__module__", "").partition(".")[0] == "mha":
            yield value.__module__, value.__qualname__


def _parts(node: object) -> Iterator[ast.AST]:
    for part in node if isinstance(node, list) else [node]:
        if isinstance(part, ast.AST) and not isinstance(part, ast.Raise):
            yield part
            for field, value in ast.iter_fields(part):
                yield from _parts(_trained(value)) if field not in IGNORED else ()


def _trained(node: Any) -> Any:
    """Leave out what training never calls, and what only checks."""
    if not isinstance(node, list):
        return node
    return [part for part in node if getattr(part, "name", "") not in IDLE and not _checks(part)]


def _checks(node: object) -> bool:
    """Say whether a part is the decorator ``@checked``, a line that calls a ``check_…`` and keeps nothing of it, or a
    function of nothing else.
    """
    if isinstance(node, ast.FunctionDef):
        return all(_checks(line) or _says_nothing(line) for line in node.body)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        called = node.value.func
        return getattr(called, "attr", getattr(called, "id", "")).startswith("check_")
    return isinstance(node, ast.Name) and node.id == "checked"


@cache
def bare(module: str, name: str) -> str:
    """Write down what a definition does, the same in every version of Python."""
    return str(_bare(definitions(module).get(name), set(imported(module))))


def _bare(node: object, modules: set[str]) -> object:
    if isinstance(node, list):
        return [_bare(part, modules) for part in _trained(node) if not _says_nothing(part)]
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, ast.Raise):
        return "raise"
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
        return "Name", node.attr  # masks.causal_mask is causal_mask, wherever it is imported from
    if isinstance(node, ast.Name):
        return "Name", node.id
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        node = ast.Assign(targets=[node.target], value=node.value)
    fields = [(field, _trained(value)) for field, value in ast.iter_fields(node) if field not in IGNORED]
    return type(node).__name__, [(field, _bare(value, modules)) for field, value in fields if value not in (None, [])]


def _says_nothing(node: object) -> bool:
    """Say whether a statement is nothing but a text, as a docstring is, or a type."""
    text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return text or (isinstance(node, ast.AnnAssign) and node.value is None)
