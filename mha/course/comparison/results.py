"""What the comparison of all layers has found: stored results, the code they belong to, and what can be counted anew.

Taught in: chapter 21.
"""

import ast
import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from mha.course.comparison import candidates
from mha.layers.cost import Cost, Part
from mha.layers.feedback import FeedbackAttention

HERE = Path(__file__).parents[2]  # the package


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


STORE = Path(__file__).with_name("results.json")


LARGE = (512, 8, 1024)  # width, heads and words of the layer whose cost is counted


STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}  # 97.5 %


def stored() -> dict:
    """Load what ``benchmarks/choosing.py`` found: qualities by task and layer, times, costs, machine and hashes.

    Taught in: chapter 21.
    """
    return json.loads(STORE.read_text("utf8"))


@cache
def code_hash(task: str, layer: str) -> str:
    """Hash the code that a training of this layer on this task runs, and its settings.

    Comments, docstrings, annotations and the wording of errors do not count.

    Taught in: chapter 21.
    """
    part, contest = candidates.stack(layer, 1, sources=task == "dates"), candidates.TASKS[task]
    modules = {contest.__module__, *(type(piece).__module__ for piece in part.modules())}
    shapes = [(name, tuple(weight.shape)) for name, weight in part.named_parameters()]
    return fingerprint([m for m in modules if m.startswith("mha.")], [candidates.BETA, shapes])


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of a few values, and the ends of its 95 % interval (Student's t).

    Raises: ValueError for fewer than 2 values or more than 10.
    Taught in: chapter 21.
    """
    n = len(values)
    if n not in STUDENT:
        raise ValueError(f"{n} values: this table of Student's t knows 2 to 10")
    mean = math.fsum(values) / n
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    half = STUDENT[n] * spread / math.sqrt(n)
    return mean, mean - half, mean + half


def large_cost(layer: str) -> Cost:
    """Count one call of a large layer: 1024 words, 512 channels, 8 heads. Merged heads read a source as long.

    Feedback steps through the words: its operations are those of all steps, its memory that of the last one.

    Taught in: chapter 21.
    """
    width, heads, words = LARGE
    made = candidates.LAYERS[layer].make(width, heads)
    if layer != "feedback":
        return made.cost(1, words)
    made = FeedbackAttention(width, heads, steps=words)
    steps = [made.cost(1, 1, before, fresh=1) for before in range(1, words)]
    last = steps[-1]
    return replace(last, parts={"all steps": sum((s.total for s in steps), Part(0, 0))}, peak=last.peak + last.cache)
