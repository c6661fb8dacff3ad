"""How the package is built: which room may look into which, what it loads, and what its names promise."""

import ast
import importlib
import inspect
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import jaxtyping
import jedi
import pytest
import torch
from chapters import CHAPTERS, family, topic
from docutils.core import publish_doctree
from docutils.nodes import literal
from docutils.parsers.rst import roles

import mha
from mha.layers import Heads

ROOT = Path(mha.__file__).parents[1]
FILES = {  # "mha.layers.multi_head": its text, parsed; a room's own file goes by the name of the room
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): ast.parse(path.read_text("utf8"))
    for path in sorted((ROOT / "mha").rglob("*.py"))
}
MAY_LOOK = {  # room: the rooms below it
    "checks": set(),
    "data": {"checks"},
    "viz": {"checks"},
    "reference": set(),
    "functional": {"checks"},
    "layers": {"checks", "functional"},
    "models": {"checks", "functional", "layers"},
    "analysis": {"checks", "functional", "layers"},
    "systems": {"checks", "functional", "layers"},
    "interop": {"checks", "functional", "layers", "models"},
}
MAY_LOOK["course"] = set(MAY_LOOK)


def imports(name):
    """The files of this package that a file imports anywhere in it."""
    found = set()
    for node in ast.walk(FILES[name]):
        if isinstance(node, ast.ImportFrom) and node.module:
            named = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= named if named <= set(FILES) else {node.module} | named  # a file itself, or names out of one
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {one for one in found if one in FILES and one != name}


ARROWS = {name: imports(name) for name in FILES}


ALONE = ("mha.checks", "mha.reference")  # rooms of one file


def room(name):
    return name.split(".")[1] if "." in name else "mha"


def reach(name):
    """All files that a file needs in the end; a room's own list of names needs nothing."""
    seen, new = set(), {name}
    while new:
        seen |= new
        new = set().union(*(ARROWS[one] for one in new if one.count(".") != 1 or one in ALONE)) - seen
    return seen - {name}


def test_no_arrow_runs_upward():
    for name, found in ARROWS.items():
        if name != "mha":  # the face shows names of all rooms, and the course imports it as a reader does
            seen = MAY_LOOK[room(name)] | {room(name)} | ({"mha"} if room(name) == "course" else set())
            wrong = {one for one in found if room(one) not in seen}
            assert not wrong, f"{name} imports {wrong}, and {room(name)} stands below"


def test_no_two_files_need_each_other():
    assert not {name for name in FILES if any(name in reach(one) for one in ARROWS[name])}


def test_no_variant_imports_another():
    homes = {kind.__module__ for kind in Heads.__subclasses__() if kind.__module__.startswith("mha.layers")}
    variants = homes - {"mha.layers.multi_head"}
    assert len(variants) >= 9
    for name in variants:
        assert not reach(name) & (variants - {name}), name


def public():
    """Every public class and function of the library, by its path."""
    for name in FILES:
        if room(name) not in ("course", "mha"):
            for node in FILES[name].body:
                if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_"):
                    yield f"{name}.{node.name}", node


def test_a_public_name_is_taught_where_it_says():
    pages = {name: "".join(path.read_text("utf8") for path in family(name)) for name in map(topic, CHAPTERS)}
    for name in mha.__all__:
        topics = re.search(r":Taught in: ([\w,\s]+)\.", getattr(mha, name).__doc__)[1].replace("\n", " ").split(", ")
        missing = [topic for topic in topics if not re.search(rf"\b{name}\b", pages[topic])]
        assert not missing, f"{name} says that it is taught in {missing}, which do not name it"
    for path, node in public():
        home = ast.get_docstring(FILES[path.rpartition(".")[0]]) or ""
        assert ":Taught in: " in (ast.get_docstring(node) or "") + home, path


def test_nothing_is_validated_by_assert_and_nothing_is_unpickled():
    for name, tree in FILES.items():
        assert not [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Assert)], name
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        numbers_only = [node for node in calls if "weights_only=True" in map(ast.unparse, node.keywords)]
        called = {ast.unparse(node.func) for node in calls if node not in numbers_only}
        assert not called & {"torch.load", "pickle.load", "pickle.loads", "torch.save", "eval", "exec"}, name


def test_annotations_are_checked_in_tests():
    with pytest.raises(jaxtyping.TypeCheckError):
        mha.merge_heads(torch.zeros(2, 3, 4))


# ---- the face of the package


def completed(source):
    return {one.name for one in jedi.Script(source, path=ROOT / "example.py").complete()}


@pytest.mark.slow
def test_an_editor_completes_every_name():
    assert set(mha.__all__) <= completed("import mha\nmha.")
    assert {"project", "attend", "merge", "contributions"} <= completed("import mha\nmha.MultiHeadAttention(8, 2).")
    assert {"d_head", "kdim", "vdim", "bias", "dropout", "positions", "alpha"} <= {
        one.name for one in jedi.Script("import mha\nmha.EntmaxAttention(").get_signatures()[0].params
    }


def test_every_name_of_a_room_exists():
    for name in FILES:
        if name == "mha" or name.count(".") == 1:
            module = importlib.import_module(name)
            for one in getattr(module, "__all__", []):
                assert hasattr(module, one), f"{name}.{one}"


LOADED = """
import json, sys
import torch
before = set(sys.modules)
import mha
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_importing_the_package_loads_nothing_heavy():
    told = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = json.loads(told.stdout)
    ours = {name for name in loaded if name.startswith("mha")}
    assert {room(name) for name in ours} <= {"mha", "checks", "functional", "layers", "viz"}
    assert {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names <= {
        "mha",
        "jaxtyping",
        "entmax",
        "numpy",
    }
    assert not any(name.startswith("torch.distributed.tensor") for name in loaded)


# ---- docstrings that tools read


def told(kind, name):
    """The lines for parameters in a method's docstring, or in that of the same method further up."""
    docs = [vars(one)[name] for one in inspect.getmro(kind) if name in vars(one) and one.__module__.startswith("mha")]
    functions = [inspect.unwrap(getattr(one, "__func__", one)) for one in docs]
    return "\n".join(filter(None, (one.__doc__ for one in functions if callable(one))))


def parameters(function):
    kinds = inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL
    every = inspect.signature(function).parameters.values()
    return [p.name for p in every if p.kind not in kinds and p.name not in ("self", "cls") and p.name[0] != "_"]


def test_every_parameter_has_a_line_of_its_own():
    missing = []
    for path, node in public():
        module, _, name = path.rpartition(".")
        if name.startswith("check_"):
            continue
        thing = getattr(importlib.import_module(module), name)
        if not isinstance(node, ast.ClassDef):
            lines = {name: (thing, thing.__doc__)}
        else:
            own = [n.name for n in node.body if isinstance(n, ast.FunctionDef) and n.name[0] != "_"]
            own += ["__init__"] if any(getattr(n, "name", "") == "__init__" for n in node.body) else []
            skipped = [one for one in own if isinstance(inspect.getattr_static(thing, one), property)]
            lines = {
                f"{name}.{one}": (getattr(thing, one), told(thing, one) + (thing.__doc__ or ""))
                for one in own
                if one not in skipped
            }
        for called, (function, doc) in lines.items():
            missing += [f"{module}.{called}: {p}" for p in parameters(function) if f":param {p}:" not in (doc or "")]
    assert not missing, "\n".join(missing)


def test_docstrings_are_valid_for_sphinx():
    for role in ("class", "func", "meth", "mod", "attr"):
        roles.register_generic_role(role, literal)
    for name, tree in FILES.items():
        for node in ast.walk(tree):
            doc = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node)
            if doc:
                said = io.StringIO()
                publish_doctree(doc, settings_overrides={"warning_stream": said, "report_level": 2})
                assert not said.getvalue(), f"{name}, {getattr(node, 'name', 'the file')}: {said.getvalue()}"
