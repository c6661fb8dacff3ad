"""Python source as words, with the true place where each name got its value: ground truth that nobody had to label.

Taught in: chapter 09.
"""

import ast
import io
import tokenize
from typing import NamedTuple

import torch
from torch import Tensor

SHOWN = {tokenize.NEWLINE: "⏎", tokenize.INDENT: "⇥", tokenize.DEDENT: "⇤"}
LEFT_OUT = {tokenize.NL, tokenize.COMMENT, tokenize.ENDMARKER, tokenize.ENCODING}
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
SCOPES += (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Program(NamedTuple):
    """Words of a program, and ``names`` (n, n), True where a use of a name meets the latest place that set it.

    Taught in: chapter 09.
    """

    words: list[str]
    names: Tensor


def read_program(source: str) -> Program:
    """Cut a program into words and find, for each use of a local name, where it was set last.

    "Last" is by the order of the text, and in ``x = x + 1`` the right side comes first. Arguments, assignments and loop
    variables set a name, within one function; what is inside a class, a lambda or a comprehension is left out. A name
    that is not set before its use has no target.

    Raises: ValueError for a text that is no Python.
    Taught in: chapter 09.
    """
    try:
        tree = ast.parse(source)
        tokens = [t for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type not in LEFT_OUT]
    except (SyntaxError, tokenize.TokenError) as error:
        raise ValueError(f"this is no Python: {error}") from error
    places = {token.start: n for n, token in enumerate(tokens) if token.type == tokenize.NAME}
    names = torch.zeros(len(tokens), len(tokens), dtype=torch.bool)
    lines = source.splitlines()
    for scope in ast.walk(tree):
        if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)):
            _link(scope, names, places, lines)
    return Program([SHOWN.get(token.type, token.string) for token in tokens], names)


def _link(scope: ast.AST, names: Tensor, places: dict, lines: list[str]) -> None:
    """Mark, for each use of a name in one scope, the latest place before it that set the name."""
    set_at: dict[str, int] = {}
    found = []
    for node, end in _inside(scope):
        name = node.arg if isinstance(node, ast.arg) else node.id
        start = node.lineno, len(lines[node.lineno - 1].encode()[: node.col_offset].decode())  # ast counts bytes
        if start in places:  # inside an f-string older Pythons have no words
            used = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
            found.append((start if used or end is None else end, places[start], name, used))
    for _, place, name, used in sorted(found):
        if not used:
            set_at[name] = place
        elif name in set_at:
            names[place, set_at[name]] = True


def _inside(scope: ast.AST, end: tuple[int, int] | None = None):
    """List names and arguments of a scope, with the place where a name that an assignment sets begins to count."""
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, (ast.Name, ast.arg)):
            yield node, end
        if not isinstance(node, SCOPES):
            assigns = isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign))
            yield from _inside(node, (node.end_lineno, node.end_col_offset) if assigns else end)
