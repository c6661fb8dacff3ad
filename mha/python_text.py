"""Functions of Python's standard library as numbers, with the true place where each name got its value.

Taught in: chapter 09.
"""

import ast
import textwrap
import tokenize
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from mha.python_names import Program, read_program

LEARNED = (
    "argparse", "ast", "calendar", "configparser", "csv", "difflib", "fractions", "gettext", "mailbox", "optparse",
    "pickle", "random", "shutil", "statistics",
)  # fmt: skip
UNSEEN = ("cmd", "copy", "imaplib", "poplib", "shlex", "string", "textwrap", "weakref")
STANDINS = 32  # words that stand for the many rare names


class Code(NamedTuple):
    """Functions, one behind the other: ``words`` (n,) as numbers and, for each use of a local name, where it was set.

    ``set_at`` (n,) is the place where the name got its value, −1 for words that are no such use. ``names`` says what
    the numbers mean.

    Taught in: chapter 09.
    """

    words: Tensor
    set_at: Tensor
    names: list[str]


def functions(modules: Iterable[str] = LEARNED) -> list[Program]:
    """Read all functions and methods of some modules of Python's standard library; comments are left out.

    Raises: ValueError for a module that is not written in Python.
    Taught in: chapter 09.
    """
    found = []
    for module in modules:
        spec = find_spec(module)
        if spec is None or not str(spec.origin).endswith(".py"):
            raise ValueError(f"{module} has no Python source: take another module")
        with tokenize.open(spec.origin) as file:
            source = file.read()
        found += [read_program(text) for text in _cut(source)]
    return found


def numbered(programs: Sequence[Program], *, like: Code | None = None, size: int = 256) -> Code:
    """Turn programs into one long row of numbers; ``like`` another one, or with the ``size`` commonest words.

    A rare name becomes one of 32 stand-ins, the same within a function; other rare words become "'…'" or "0…".

    Taught in: chapter 09.
    """
    if like is None:
        common = Counter(word for program in programs for word in program.words).most_common(size)
        names = ["'…'", "0…", *(f"name{n}" for n in range(STANDINS)), *(word for word, _ in common)]
    else:
        names = like.names
    number = {name: n for n, name in enumerate(names)}
    words, set_at = [], []
    for program in programs:
        start, uses = len(words), program.names.any(1)
        set_at += torch.where(uses, program.names.int().argmax(1) + start, -1).tolist()
        words += _known(program.words, number)
    return Code(torch.tensor(words), torch.tensor(set_at), names)


def pieces(
    code: Code, count: int, n: int, *, generator: torch.Generator
) -> tuple[Int[Tensor, "b n"], Bool[Tensor, "b n n"]]:
    """Cut pieces at random places: words (b, n), and which word each use of a name goes back to (b, n, n).

    Taught in: chapter 09.
    """
    start = torch.randint(len(code.words) - n, (count, 1), generator=generator)
    places = start + torch.arange(n)
    return code.words[places], code.set_at[places][:, :, None] == places[:, None]


def _cut(source: str) -> list[str]:
    """List the text of each function that stands in the module or in a class, without its indentation."""
    lines, texts = source.splitlines(keepends=True), []
    for scope in ast.walk(ast.parse(source)):
        for node in scope.body if isinstance(scope, (ast.Module, ast.ClassDef)) else ():
            if isinstance(node, ast.FunctionDef):
                text = textwrap.dedent("".join(lines[node.lineno - 1 : node.end_lineno]))
                texts += [text] if _complete(text) else []
    return texts


def _complete(text: str) -> bool:
    """Say whether a cut text is Python by itself; a text in it that begins at the left edge spoils the indentation."""
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _known(words: Sequence[str], number: dict[str, int]) -> list[int]:
    """Replace rare words; a rare name always by the same stand-in, given out in turn."""
    standins: dict[str, str] = {}
    first = sum(map(len, words[:8]))  # so that functions begin at different stand-ins, the same in every run
    for word in words:
        if word not in number and word.isidentifier():
            standins.setdefault(word, f"name{(first + len(standins)) % STANDINS}")
    other = {word: standins.get(word, "0…" if word[0].isdigit() else "'…'") for word in words if word not in number}
    return [number[other.get(word, word)] for word in words]
