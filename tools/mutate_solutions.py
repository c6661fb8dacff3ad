"""Change every solution of the course a little, in every way a machine knows, and let its checker judge.

    python tools/mutate_solutions.py [--only split_and_merge] [--show]      (make mutants)

Each change is a *mutant*: another operator, constant, axis or comparison, a dropped term, arguments exchanged, a call
left out, an argument ignored, a first result that is kept. A mutant that the checker accepts is compared with the
solution on 1,000 inputs that the exercise allows: equal on all of them it is *equivalent*, otherwise it has *survived*.
"""

import argparse
import ast
import contextlib
import copy
import hashlib
import inspect
import json
import multiprocessing
import re
import sys
import textwrap
import types
import warnings
from pathlib import Path

import nbformat
import torch
from chapters import family
from mutations import trees

from mha.course.exercises import final_project
from mha.course.exercises.exercise import Exercise, differs, exercises, judge
from mha.course.exercises.legal import drawn_cases
from mha.course.exercises.sandbox import TimeIsUpError, call

ROOT = Path(__file__).resolve().parents[1]
STORE = ROOT / "benchmarks" / "mutants.json"


def texts(name, solution):
    """The texts that are changed, the notebook's solution and the checker's own: tree, known names, function."""
    topic, _, checker = name.partition(".")
    if name == "final_project.check_layer":
        tree = tree_of(final_project.Differential)
        run = ast.parse("def changed(*case): return _run(Differential, *case, right=Right)").body[0]
        yield ast.Module([tree, run], []), vars(final_project) | {"Right": final_project.Differential}, "changed"
        return
    for path in family(topic):
        yield from written(path, checker)
    inner = inspect.unwrap(solution)
    if isinstance(inner, types.FunctionType):
        module = sys.modules[inner.__module__]
        own = [tree_of(function) for function in private(inner, module)]
        yield ast.Module(own, []), vars(module), own[0].name


def written(path, checker):
    """The solution that stands in a notebook, with the names that the notebook has given before."""
    home = {}
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type != "code":
            continue
        with contextlib.suppress(SyntaxError):
            tree = ast.parse(cell.source)
            asked = re.search(rf"^{checker}\((solved_\w+|\w*solution\w*)\)", cell.source, re.MULTILINE)
            kept = [
                node
                for node in tree.body
                if isinstance(node, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef))
            ]
            for node in kept:
                with contextlib.suppress(Exception):
                    exec(compile(ast.Module([node], []), "<notebook>", "exec"), home)  # our own notebook
            if asked:
                defined = [node for node in kept if isinstance(node, ast.FunctionDef)]
                yield ast.Module(defined, []), home, asked[1]
                return


def private(function, module):
    """A function with the private ones of its file that it names, where the file is a file of checkers."""
    found, new = [], [function]
    while new:
        found.append(new.pop(0))
        if module.__name__.startswith("mha.course.exercises"):
            others = [vars(module).get(name) for name in found[-1].__code__.co_names]
            here = [f for f in others if isinstance(f, types.FunctionType) and f.__module__ == module.__name__]
            new += [f for f in here if f not in found + new]
    return found


def tree_of(function):
    """The tree of a function's text; of a lambda, that of a function which returns the same."""
    if function.__name__ != "<lambda>":
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        tree.decorator_list = []
        return tree
    module = ast.parse(inspect.getsource(sys.modules[function.__module__]))
    line = function.__code__.co_firstlineno
    node = next(n for n in ast.walk(module) if isinstance(n, ast.Lambda) and n.lineno == line)
    return ast.FunctionDef("changed", node.args, [ast.Return(node.body)], [], lineno=1, type_params=[])


def mutants(name, solution, count):
    """Every mutant of a solution: what was changed, and the changed function."""
    seen = set()
    for tree, home, function in texts(name, solution):
        for kind, old, new, make in trees(tree):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    module = ast.fix_missing_locations(make())
                    text = ast.unparse(module)
                    code = compile(module, "<mutant>", "exec")
                    was, now = ast.unparse(old), "" if new is None else ast.unparse(ast.fix_missing_locations(new))
                except (SyntaxError, ValueError, TypeError, RecursionError):
                    continue
            if text not in seen:
                seen.add(text)
                there = dict(home)
                exec(code, there)  # our own text, with one thing changed
                yield f"{kind}: {was} → {now or 'nothing'}", there[function]
    yield from behaviors(solution, count)


def behaviors(solution, count):
    """Mutants that no single word of the text makes: an argument that is ignored, a result that is kept."""
    names = list(inspect.signature(solution).parameters)[:count]
    for n, name in enumerate(names):
        for kind, value in (("as it first was", first_seen()), ("as ones", ones), ("as zeros", zeros)):
            yield f"ignored argument: {name}, taken {kind}", with_argument(solution, n, value)
    yield "kept result: the first one of each form", keeping(solution, forms)
    yield "kept result: the first one of all", keeping(solution, lambda case: None)


def first_seen():
    kept = {}

    def value(given):
        return kept.setdefault(form(given), copy.deepcopy(given))

    return value


def form(value):
    """The sizes in a value, without its numbers."""
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), str(value.dtype)
    if isinstance(value, (list, tuple)):
        return tuple(map(form, value))
    return type(value).__name__


def forms(case):
    return repr(form(case))


def ones(given):
    return filled(given, 1)


def zeros(given):
    return filled(given, 0)


def filled(given, number):
    if isinstance(given, torch.Tensor):
        return torch.full_like(given, number)
    if isinstance(given, (list, tuple)):
        return type(given)(filled(x, number) for x in given)
    return type(given)(number) if isinstance(given, (bool, int, float)) else given


def with_argument(solution, n, value):
    def mutant(*case):
        return solution(*case[:n], value(case[n]), *case[n + 1 :]) if n < len(case) else solution(*case)

    return mutant


def keeping(solution, key):
    kept = {}

    def mutant(*case):
        there = key(case)
        if there not in kept:
            kept[there] = solution(*case)
        return copy.deepcopy(kept[there])

    return mutant


def differs_somewhere(exercise, mutant, count=1000):
    """The first allowed input on which a mutant and the solution differ, or nothing."""
    for case in [*exercise.cases(), *drawn_cases(exercise.legal, count // 2)]:
        right = call(exercise.solution, case, 60.0, shown=False)[0]
        try:
            result = call(mutant, copy.deepcopy(case), exercise.seconds, shown=False)[0]
        except (Exception, SystemExit, TimeIsUpError) as error:
            return f"{type(error).__name__}"
        if differs(result, right, exercise.tolerance):
            return differs(result, right, exercise.tolerance)
    return ""


def every_exercise():
    """All exercises of the chapters, and those of the final project."""
    own = {f"final_project.{n}": one for n, one in vars(final_project).items() if isinstance(one, Exercise)}
    return exercises() | own


def code_of(name):
    """A hash of the file that holds a checker, or its plain part: a score belongs to this code."""
    topic, _, checker = name.partition(".")
    folder = ROOT / "mha" / "course" / "exercises"
    text = (folder / f"{topic}.py").read_text("utf8")
    if f"plain.{checker}))" in text:
        text = (folder / "plain" / f"{topic}.py").read_text("utf8")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def tried(name):
    """Judge all mutants of one exercise."""
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float32)
    warnings.simplefilter("ignore")
    exercise = every_exercise()[name]
    quick = copy.copy(exercise)
    object.__setattr__(quick, "mistakes", {})  # no diagnosis is needed
    object.__setattr__(quick, "seconds", min(exercise.seconds, 2.0))
    found = {"code": code_of(name), "mutants": 0, "rejected": 0, "equivalent": [], "survived": []}
    for what, mutant in mutants(name, exercise.solution, len(exercise.cases()[0])):
        found["mutants"] += 1
        try:
            right = judge(quick, mutant)[0]
        except TimeIsUpError:
            right = False
        if not right:
            found["rejected"] += 1
            continue
        there = differs_somewhere(quick, mutant)
        found["survived" if there else "equivalent"].append(what)
    return name, found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    names = [name for name in every_exercise() if asked.only in name]
    kept = json.loads(STORE.read_text("utf8")) if STORE.exists() else {}
    with multiprocessing.get_context("spawn").Pool(asked.processes, maxtasksperchild=4) as pool:
        for name, found in pool.imap_unordered(tried, names, chunksize=1):
            kept[name] = found
            ordered = {name: kept[name] for name in every_exercise() if name in kept}
            STORE.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", "utf8", newline="\n")
            real = found["mutants"] - len(found["equivalent"])
            print(
                f"{name:44} {found['rejected']} of {real} rejected, {len(found['equivalent'])} equivalent", flush=True
            )
            for what in found["survived"]:
                print(f"    survived: {what}")
            for what in found["equivalent"] if asked.show else []:
                print(f"    equivalent: {what}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
