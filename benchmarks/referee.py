"""Change one thing in an experiment of a chapter: what a notebook concludes must not hang on it, or the page says so.

    python benchmarks/referee.py [--only why_scale …] [--write]

``benchmarks/referee.yml`` holds for each chapter the conclusions that compare two trained or measured things. An entry
has the conclusion (``claim``), what is ``changed`` in words, the same as pairs of texts in the notebook's code
(``replace``), an expression with ``seed`` in it (``value``) and the ``bounds`` within which the conclusion holds. A
notebook's own functions are used: of its code, changed, only the statements that the expression needs are run, without
assertions, for seeds 0 to 2. ``of: trained_heads`` names a side room, ``before`` is code of the entry's own. Where a
conclusion turns around, ``says`` tells what the page says because of it; ``skip`` leaves out statements that contain a
text. ``--write`` stores ``benchmarks/referee.md``.
"""

import ast
import symtable
import sys
import time
from collections.abc import Iterable
from functools import cache

import yaml
from seeds import HERE, SEVERAL, code_of, execute, machine, named, table, write

THREE = range(3)
PAGE = HERE / "referee.md"
HEAD = ["chapter", "conclusion", "changed", *(f"seed {seed}" for seed in THREE), "holds within", "holds"]
BEGIN = """# The course's own referee report

Each conclusion of a chapter that compares two trained or measured things was tried again with one thing changed: the
learning rate, the baseline, the width, the number of steps, the initialization or the data. The numbers are those of
three seeds; the conclusion holds where all of them lie within the bounds. Where it does not, the last column tells what
the page says because of it. Written by `python benchmarks/referee.py --write` from `referee.yml`, {several}: {machine}

"""


def asked() -> dict[str, list[dict]]:
    """Read the entries of all chapters."""
    return yaml.safe_load((HERE / "referee.yml").read_text(encoding="utf-8"))


def changed(entry: dict, topic: str) -> dict[str, str]:
    """Read the code of the entry's notebook with its texts replaced; a text that does not occur is an error."""
    code = code_of(named(entry.get("of", topic)))
    for old, new in entry.get("replace", []):
        if not any(old in source for source in code.values()):
            raise ValueError(f"{topic}, {entry['claim']}: no code cell contains {old!r}, so nothing would be changed")
        code = {place: source.replace(old, new) for place, source in code.items()}
    return {**code, "before": entry.get("before", "")}


class WithoutChecks(ast.NodeTransformer):
    """Leave out assertions: a changed notebook need not pass them."""

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        """Put nothing in the place of an assertion."""
        return ast.copy_location(ast.Pass(), node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """Put nothing in the place of a call that only checks, such as `torch.testing.assert_close(…)`."""
        name = ast.unparse(node.value.func) if isinstance(node.value, ast.Call) else ""
        return ast.copy_location(ast.Pass(), node) if "assert" in name else node


def touched(tree: ast.AST) -> set[str]:
    """Return the names whose attributes or items are set, or a method of which is called for its effect alone."""
    parts = [node for node in ast.walk(tree) if isinstance(getattr(node, "ctx", None), ast.Store)]
    calls = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    parts += [call.func for call in calls if isinstance(call, ast.Call)]
    names = set()
    for part in parts:
        whole = part
        while isinstance(part, (ast.Attribute, ast.Subscript)):
            part = part.value
        names |= {part.id} if part is not whole and isinstance(part, ast.Name) else set()
    return names


def used(scope: symtable.SymbolTable) -> set[str]:
    """Return the global names that source text uses, inside functions, too."""
    outside = scope.get_type() == "module"
    own = {s.get_name() for s in scope.get_symbols() if s.is_referenced() and (outside or s.is_global())}
    return own.union(*(used(inner) for inner in scope.get_children()))


class Statement:
    """A statement of a notebook: which names it makes, surely or perhaps, and which it uses, now or when called."""

    def __init__(self, place: str, node: ast.stmt) -> None:
        self.place, self.node, self.text = f"{place}:{node.lineno}", node, ast.unparse(node)
        scope = symtable.symtable(self.text, place, "exec")
        symbols, inner = scope.get_symbols(), set().union(*map(used, scope.get_children()))
        bound = {s.get_name() for s in symbols if s.is_assigned() or s.is_imported()}
        self.makes = bound | touched(node)
        perhaps = isinstance(node, (ast.For, ast.While, ast.If, ast.With, ast.Try, ast.AugAssign))
        self.surely = set() if perhaps else bound - touched(node)
        top = {s.get_name() for s in symbols if s.is_referenced()}
        self.now, self.later = top if isinstance(node, ast.FunctionDef) else top | inner, inner


@cache
def statements_in(place: str, source: str) -> list[Statement]:
    """Cut a cell into statements, without assertions."""
    return [Statement(place, node) for node in WithoutChecks().visit(ast.parse(source)).body]


def statements_of(code: dict[str, str], skip: Iterable[str] = ()) -> list[Statement]:
    """Cut code into statements, without assertions and without those that contain one of the texts to ``skip``."""
    every = [one for place, source in code.items() for one in statements_in(place, source)]
    for text in skip:
        if not any(text in one.text for one in every):
            raise ValueError(f"no statement contains {text!r}, so nothing would be skipped")
    return [one for one in every if not any(text in one.text for text in skip)]


def needed(statements: list[Statement], value: str) -> dict[str, ast.Module]:
    """Keep the statements that the value needs, under their places."""

    def with_called(names: set[str]) -> set[str]:
        grown = names.union(*(one.later for one in statements if one.makes & names))
        return grown if grown == names else with_called(grown)

    wanted, kept = with_called(used(symtable.symtable(f"({value})", "value", "exec"))), []
    for one in reversed(statements):
        if one.makes & wanted:
            kept.append(one)
            wanted = (wanted - one.surely) | with_called(one.now)
    return {one.place: ast.Module([one.node], []) for one in reversed(kept)}


def row_of(topic: str, entry: dict) -> list[str]:
    """Try one conclusion with its change; where it does not hold, say what the page says."""
    names = execute(needed(statements_of(changed(entry, topic), entry.get("skip", [])), entry["value"]))
    low, high = entry["bounds"]
    values = [float(eval(entry["value"], names | {"seed": seed})) for seed in THREE]
    held = "yes" if all(low <= value <= high for value in values) else f"**no**: {entry.get('says', '')}"
    return [topic, entry["claim"], entry["changed"], *(f"{v:.3f}" for v in values), f"{low} … {high}", held]


def main(arguments: list[str]) -> None:
    """Make the rows of the chapters named, or of all."""
    entries = asked()
    chosen = [a for a in arguments if not a.startswith("-")] or list(entries)
    if unknown := set(chosen) - set(entries):
        sys.exit(f"nothing is tried in {sorted(unknown)}: give some of {list(entries)}, or none for all")
    rows = []
    for topic in chosen:
        for entry in entries[topic]:
            begin = time.process_time()
            rows.append(row_of(topic, entry))
            print(*rows[-1], f"{time.process_time() - begin:.0f} s", sep=" | ", flush=True)
        if "--write" in arguments:
            words = BEGIN.format(several=SEVERAL, machine=machine())
            write(table(HEAD, [row for row in rows if row[0] == topic]), [topic], PAGE, words)
    if any(row[-1] == "**no**: " for row in rows):
        sys.exit("a conclusion does not hold, and its entry does not tell what the page says because of it")


if __name__ == "__main__":
    main(sys.argv[1:])
