"""Functions of this course's package as numbers, with the true place where each name got its value.

:Taught in: reading_heads.
"""

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from mha.checks import check_whole, checked

SHOWN = {tokenize.NEWLINE: "⏎", tokenize.INDENT: "⇥", tokenize.DEDENT: "⇤"}


LEFT_OUT = {tokenize.NL, tokenize.COMMENT, tokenize.ENDMARKER, tokenize.ENCODING}


SCOPES: tuple[type[ast.AST], ...] = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


SCOPES += (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


# Since Python 3.12 an f-string is several tokens; what is inside one is left out, as older Pythons do.
OPENS, CLOSES = (
    {number for number, name in tokenize.tok_name.items() if name in names}
    for names in (("FSTRING_START", "TSTRING_START"), ("FSTRING_END", "TSTRING_END"))
)


STRINGS = tuple(getattr(ast, name) for name in ("JoinedStr", "TemplateStr") if hasattr(ast, name))


Place = tuple[int | None, int | None]  # line and column


class Program(NamedTuple):
    """Tokens of a program, and where its names got their values.

    :param tokens: the tokens, n of them.
    :param names: (n, n), True where a use of a name meets the latest place that set it.
    :Taught in: reading_heads.
    """

    tokens: list[str]
    names: Tensor


@checked
def read_program(source: str) -> Program:
    """Cut a program into tokens and find, for each use of a local name, where it was set last.

    "Last" is by the order of the text, and in ``x = x + 1`` the right side comes first. Arguments, assignments and loop
    variables set a name, within one function; what is inside a class, a lambda or a comprehension is left out. A name
    that is not set before its use has no target. An f-string is one token, whatever it holds.

    :param source: the text of the program.
    :Raises: ValueError for a text that is no Python.
    :Taught in: reading_heads.
    """
    source = io.StringIO(source, newline=None).read()  # whatever ends its lines
    try:
        tree = ast.parse(source)
        tokens = [token for token in _tokens(source) if token.type not in LEFT_OUT]
    except (SyntaxError, ValueError, tokenize.TokenError) as error:
        raise ValueError(f"this is no Python: {error}") from error
    places = {token.start: n for n, token in enumerate(tokens) if token.type == tokenize.NAME}
    names = torch.zeros(len(tokens), len(tokens), dtype=torch.bool)
    lines = source.split("\n")
    for scope in ast.walk(tree):
        if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)):
            _link(scope, names, places, lines)
    return Program([SHOWN.get(token.type, token.string) for token in tokens], names)


def _tokens(source: str) -> Iterator[tokenize.TokenInfo]:
    """Cut a text into tokens as Python 3.11 does: an f-string, with those inside it, is one string."""
    lines = source.split("\n")
    first: tokenize.TokenInfo | None = None
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in OPENS:
            first, depth = first or token, depth + 1
        if first is None:
            yield token
        elif token.type in CLOSES:
            depth -= 1
            if not depth:
                (top, left), (bottom, right) = first.start, token.end
                string = "\n".join([*lines[top - 1 : bottom - 1], lines[bottom - 1][:right]])[left:]
                yield tokenize.TokenInfo(tokenize.STRING, string, first.start, token.end, first.line)
                first = None


def _link(scope: ast.AST, names: Tensor, places: dict, lines: list[str]) -> None:
    """Mark, for each use of a name in one scope, the latest place before it that set the name."""
    set_at: dict[str, int] = {}
    found = []
    for node, end in _inside(scope):
        name = node.arg if isinstance(node, ast.arg) else node.id
        start = node.lineno, len(lines[node.lineno - 1].encode()[: node.col_offset].decode())  # ast counts bytes
        if start in places:
            used = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
            found.append((start if used or end is None else end, places[start], name, used))
    for _, place, name, used in sorted(found):
        if not used:
            set_at[name] = place
        elif name in set_at:
            names[place, set_at[name]] = True


def _inside(scope: ast.AST, end: Place | None = None) -> Iterator[tuple[ast.Name | ast.arg, Place | None]]:
    """List names and arguments of a scope, with the place where a name that an assignment sets begins to count."""
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, (ast.Name, ast.arg)):
            yield node, end
        if not isinstance(node, (*SCOPES, *STRINGS)):
            if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
                yield from _inside(node, (node.end_lineno, node.end_col_offset))
            else:
                yield from _inside(node, end)


STANDINS = 32  # tokens that replace the many rare names


class Code(NamedTuple):
    """Functions, one after the other: tokens as numbers and, for each use of a local name, where it was set.

    :param tokens: the tokens as numbers, (n,).
    :param set_at: the place where a name got its value, (n,); −1 for tokens that are no use of a local name.
    :param names: what the numbers mean.
    :Taught in: reading_heads.
    """

    tokens: Tensor
    set_at: Tensor
    names: list[str]


@checked
def course_code(part: str = "training") -> list[Program]:
    """Read functions and methods of this course's package as they were in November 2026, mixed.

    Decorators, docstrings, comments and type annotations are left out. Like ``mha.data.tasks.course_text`` the code
    does not change with the package, nor with the version of Python.

    :param part: "training" unless given, or "test", which is from other files.
    :Taught in: reading_heads.
    """
    if part not in ("training", "test"):
        raise ValueError(f"part = {part!r}: take 'training' or 'test'")
    text = Path(__file__).with_name("course_code.txt").read_text("utf8")
    functions = text.split("\n# test\n")[part == "test"].split("\n\n\n")
    return [read_program(function.strip("\n") + "\n") for function in functions]


@checked
def numbered(programs: Sequence[Program], *, like: Code | None = None, size: int = 256) -> Code:
    """Turn programs into one long row of numbers.

    A rare name becomes one of 32 stand-ins, the same within a function; other rare tokens become "'…'" or "0…".

    :param programs: at least one.
    :param like: another one whose numbers are used; numbers are given anew unless given.
    :param size: how many of the commonest tokens get numbers then; 256 unless given.
    :Taught in: reading_heads.
    """
    check_whole(size=size)
    if not programs:
        raise ValueError(f"programs = {programs!r}: give at least one")
    if like is None:
        common = Counter(token for program in programs for token in program.tokens).most_common(size)
        names = ["'…'", "0…", *(f"name{n}" for n in range(STANDINS)), *(token for token, _ in common)]
    else:
        names = like.names
    number = {name: n for n, name in enumerate(names)}
    tokens: list[int] = []
    set_at: list[int] = []
    for program in programs:
        start, uses = len(tokens), program.names.any(1)
        set_at += torch.where(uses, program.names.int().argmax(1) + start, -1).tolist()
        tokens += _known(program.tokens, number)
    return Code(torch.tensor(tokens), torch.tensor(set_at), names)


@checked
def pieces(
    code: Code, count: int, n: int, *, generator: torch.Generator
) -> tuple[Int[Tensor, "b n"], Bool[Tensor, "b n n"]]:
    """Cut pieces at random positions.

    :param code: what is cut.
    :param count: how many pieces, b.
    :param n: how many tokens each has; fewer than the code.
    :param generator: where the random numbers come from.
    :Shapes: returns tokens (b, n), and which token each use of a name goes back to (b, n, n).
    :Taught in: reading_heads.
    """
    check_whole(count=count, n=n)
    if n >= len(code.tokens):
        raise ValueError(
            f"n = {n}: this code has {len(code.tokens)} tokens, so a piece has 1 to {len(code.tokens) - 1}"
        )
    start = torch.randint(len(code.tokens) - n, (count, 1), generator=generator)
    places = start + torch.arange(n)
    return code.tokens[places], code.set_at[places][:, :, None] == places[:, None]


def _known(tokens: Sequence[str], number: dict[str, int]) -> list[int]:
    """Replace rare tokens; a rare name always by the same stand-in, given out in turn."""
    standins: dict[str, str] = {}
    first = sum(map(len, tokens[:8]))  # so that functions begin at different stand-ins, the same in every run
    for token in tokens:
        if token not in number and token.isidentifier():
            standins.setdefault(token, f"name{(first + len(standins)) % STANDINS}")
    other = {
        token: standins.get(token, "0…" if token[0].isdigit() else "'…'") for token in tokens if token not in number
    }
    return [number[other.get(token, token)] for token in tokens]
