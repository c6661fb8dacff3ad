"""How the package is built: who imports whom, how large things are, what docstrings say, what an import loads."""

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import jaxtyping
import pytest
import torch

import mha

PACKAGE = Path(mha.__file__).parent
ROOT = PACKAGE.parent
FILES = {  # "core" or "interop.plan": its text, parsed
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts): ast.parse(path.read_text("utf8"))
    for path in sorted(PACKAGE.rglob("*.py"))
}
PUBLIC = [name for name in FILES if not any(part.startswith("_") for part in name.split("."))]
CHECKERS = [name for name in FILES if name.startswith(("check.ch", "check.project"))]
COLLECTIONS = [name for name in FILES if name.startswith(("quiz.ch", "museum."))]  # lists of many small things

LONGEST_MODULE, LONGEST_FUNCTION, LONGEST_FORWARD, MOST_ARGUMENTS = 120, 20, 5, 7
LONGER = {  # module: why it is still one idea
    "attention": "the plain layers side by side: what they share, many heads, one head",
    "collaborative": "one layer with all its answers: what shared channels cost, and what stays without some heads",
    "core": "one formula with its named places, and what it refuses",
    "masks": "one convention with its converters: many short functions",
    "plot": "one function for each kind of figure",
    "reference": "the oracle and the running example, which must not import each other's file",
}
FIELDS = [
    "Plain when", "Changes", "Costs", "Shapes", "Raises", "Source", "Differs from the paper",
    "Differs from the released code", "Taught in",
]  # fmt: skip


def definitions(name, *, nested=False):
    """All classes and functions of a file with their path: ("Heads.project", node)."""

    def walk(node, path):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.ClassDef, ast.FunctionDef)):
                yield ".".join([*path, child.name]), child
                if nested or isinstance(child, ast.ClassDef):
                    yield from walk(child, [*path, child.name])
            elif nested:
                yield from walk(child, path)

    yield from walk(FILES[name], [])


def code(function):
    """The statements of a function without its docstring."""
    return function.body[1:] if ast.get_docstring(function) is not None else function.body


def fields(text):
    """The docstring's fields in the order they come, and headings of other styles, which are none of ours.

    A field begins its line, or follows the only sentence.
    """
    known = "|".join(
        [*FIELDS, "Args", "Arguments", "Parameters", "Returns", "Yields", "Notes?", "Examples?", "Warnings?"]
    )
    return re.findall(rf"(?:^|(?<=\. ))({known}):", inspect.cleandoc(text or ""), re.MULTILINE)


# ---- who imports whom


def imports(name):
    """The modules of this package that a file imports anywhere in it."""
    found = set()
    for node in ast.walk(FILES[name]):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "mha":
            inner = node.module.partition(".")[2]
            found |= {".".join(filter(None, [inner, a.name])) for a in node.names} | ({inner} if inner else set())
        elif isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[2] for alias in node.names if alias.name.startswith("mha.")}
    known = found & set(FILES) | {f"{module}.__init__" for module in found if f"{module}.__init__" in FILES}
    return {module for module in known if module != name and not name.startswith(module.removesuffix("__init__") + ".")}


ARROWS = {name: imports(name) for name in FILES}
VARIANTS = {  # a file that defines another kind of Heads
    name
    for name in FILES
    for _, node in definitions(name)
    if name != "attention" and isinstance(node, ast.ClassDef) and "Heads" in {getattr(b, "id", "") for b in node.bases}
}
BELOW_LAYERS = {"reference", "core", "masks", "cache", "positions", "relative", "tasks", "training", "plot"}
KNOW_NO_VARIANT = BELOW_LAYERS | {
    "attention",
    "watching",
    "detect",
    "targets",
    "null",
    "kinds",
    "similarity",
    "circuits",
    "prune",
    "importance",
    "gates",
    "_slicing",
    "cost",
    "parallel",
    "decoding",
    "headview",
}


def reach(name):
    """All modules that importing one loads in the end."""
    seen, new = set(), {name}
    while new:
        seen |= new
        new = set().union(*(ARROWS[module] for module in new)) - seen
    return seen


def test_no_two_files_import_each_other():
    circles = {name for name in FILES if any(name in reach(module) for module in ARROWS[name])}
    assert not circles


def test_functions_stand_below_layers():
    for name in BELOW_LAYERS & set(FILES):
        assert not reach(name) & {"attention", *VARIANTS}, name
    assert reach("core") == {"core", *reach("masks"), "_inputs"}
    assert reach("reference") == {"reference"}


def test_the_plain_layers_stand_on_functions_only():
    public = {name for name in reach("attention") if not name.startswith("_")}
    assert public == {"attention", "core", "masks", "cache"}


def test_no_variant_imports_another():
    assert "grouped" in VARIANTS
    for name in VARIANTS:
        assert not reach(name) & (VARIANTS - {name}), name


def test_what_is_general_knows_no_variant_by_name():
    classes = {path for name in VARIANTS for path, node in definitions(name) if isinstance(node, ast.ClassDef)}
    for name in KNOW_NO_VARIANT & set(FILES):
        assert not reach(name) & VARIANTS, name
        words = {getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(FILES[name])}
        assert not words & classes, name


def test_nothing_needs_the_checkers_and_figures():
    for name, found in ARROWS.items():
        assert not any(module.startswith("check.") for module in found) or name.startswith("check."), name
        assert "plot" not in found, name


# ---- sizes


def test_a_module_is_one_idea():
    for name in [name for name in FILES if name not in CHECKERS + COLLECTIONS]:
        path = PACKAGE.joinpath(*name.split(".")).with_suffix(".py")
        longer = len(path.read_text("utf8").splitlines()) > LONGEST_MODULE
        assert longer == (name in LONGER), f"{name}: at most {LONGEST_MODULE} lines, or say in LONGER why not"


def test_functions_are_short():
    for name, path, node in everything_defined(nested=True):
        if isinstance(node, ast.FunctionDef):
            body = code(node) or node.body
            assert node.end_lineno - body[0].lineno < LONGEST_FUNCTION, (name, path)
            if node.name == "forward":
                assert len(body) <= LONGEST_FORWARD, (name, path)
            if node.name == "__init__":
                assert len(node.args.args) - 1 + len(node.args.kwonlyargs) <= MOST_ARGUMENTS, (name, path)


def everything_defined(**how):
    """All definitions of all files, with the name of the file."""
    return [(name, path, node) for name in FILES for path, node in definitions(name, **how)]


def test_files_are_named_for_what_they_hold():
    parts = {part for name in FILES for part in re.split(r"[._\d]+", name)}
    assert not parts & {"util", "utils", "helpers", "v", "custom", "impl", "misc", "common"}


# ---- docstrings


def test_docstrings_have_their_fields_in_order():
    texts = [(name, "the file", ast.get_docstring(tree)) for name, tree in FILES.items()]
    texts += [(name, path, ast.get_docstring(node)) for name, path, node in everything_defined(nested=True)]
    for name, path, text in texts:
        found = fields(text)
        assert set(found) <= set(FIELDS), (name, path)
        assert found == sorted(found, key=FIELDS.index), (name, path)
        assert len(found) == len(set(found)), (name, path)


def test_what_is_public_says_what_it_does():
    for name in [*PUBLIC, "__init__"]:
        assert ast.get_docstring(FILES[name]), name
        for path, node in definitions(name):
            public = not any(part.startswith("_") for part in path.split(".") if part != "__init__")
            if public and name not in CHECKERS:
                first = (ast.get_docstring(node) or "").partition("\n")[0]
                assert first.endswith((".", ":")), (name, path)
                assert first[:1].isupper(), (name, path)


def test_what_is_public_says_where_it_is_taught():
    for name in [name for name in PUBLIC if name not in CHECKERS]:
        if "Taught in" not in fields(ast.get_docstring(FILES[name])):
            for path, node in definitions(name):
                if "." not in path and not path.startswith("_"):
                    assert "Taught in" in fields(ast.get_docstring(node)), (name, path)


def chapters(text):
    """The chapters of a "Taught in" field: "chapters 02, 03 and 05", "chapters 04 to 06"."""
    line = re.search(r"Taught in: (.*)", text)[1]
    numbers = {int(n) for n in re.findall(r"\d\d", line)}
    for start, end in re.findall(r"(\d\d) to (\d\d)", line):
        numbers |= set(range(int(start), int(end) + 1))
    return numbers


LAZY = [name for name in mha.__all__ if not inspect.ismodule(getattr(mha, name))]


def test_a_name_of_the_package_is_taught_where_it_says():
    written = {
        int(p.name[:2]): json.loads(p.read_text("utf8")) for p in (ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")
    }
    for name in LAZY:
        numbers = chapters(getattr(mha, name).__doc__)
        assert numbers, name
        assert numbers <= set(written), name
        text = "\n".join("".join(cell["source"]) for n in numbers for cell in written[n]["cells"])
        assert re.search(rf"\b{name}\b", text), f"{name} says it is taught in {numbers}, but no such chapter names it"


# ---- validation and storage


def test_nothing_is_validated_by_assert():
    for name, tree in FILES.items():
        assert not [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Assert)], name


def test_nothing_is_unpickled():
    for name, tree in FILES.items():
        called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        assert not called & {"torch.load", "pickle.load", "pickle.loads", "torch.save", "eval", "exec"}, name


def test_annotations_are_checked_in_tests():
    with pytest.raises(jaxtyping.TypeCheckError):
        mha.merge_heads(torch.zeros(2, 3, 4))
    with pytest.raises(jaxtyping.TypeCheckError):
        mha.attend(*[torch.zeros(1, 2, 3)] * 3, torch.zeros(2, 2))


# ---- importing


def test_every_name_of_the_package_exists():
    assert len(set(mha.__all__)) == len(mha.__all__)
    for name in mha.__all__:
        value = getattr(mha, name)
        home = importlib.import_module(f"mha.{mha._HOME[name]}") if name in mha._HOME else None
        assert value is (importlib.import_module(f"mha.{name}") if home is None else getattr(home, name))
    assert set(mha.__all__) <= set(dir(mha))
    with pytest.raises(AttributeError, match="module 'mha' has no attribute 'MultiHeadAtention'"):
        _ = mha.MultiHeadAtention


def test_no_module_hides_a_function_of_the_same_name():
    assert not {name.partition(".")[0] for name in FILES} & set(mha._HOME)


IMPORT = """
import sys
import torch
before = set(sys.modules)
import mha
light = set(sys.modules) - before
layer = mha.MultiHeadAttention(4, 2)
layer(torch.zeros(1, 3, 4), mask=mha.causal_mask(3))
heavy = set(sys.modules) - before
import json
print(json.dumps([sorted(light), sorted({name.partition(".")[0] for name in heavy})]))
"""


def test_importing_the_package_loads_nothing_heavy():
    told = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True)
    light, heavy = json.loads(told.stdout)
    assert [name for name in light if name != "mha" and name.partition(".")[0] not in sys.stdlib_module_names] == []
    extras = {"matplotlib", "sklearn", "babel", "transformers", "safetensors", "tqdm", "IPython", "scipy", "pandas"}
    assert not set(heavy) & extras
