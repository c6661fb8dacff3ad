"""Change the package a little, in every way a machine knows, and let the tests judge.

    python tools/mutate_package.py [--sample 300] [--only masks] [--show]

Each mutant is one change in one file of `mha/functional/` or `mha/layers/`. A process that has imported torch makes a
copy of itself for each; the copy reads the changed file in place of the stored one and runs the tests that know the
file best first, until one fails. Errors that are raised and `strict=True` stay as they are. A mutant that no test sees
has *survived*. What was judged is kept in `benchmarks/package_mutants.json`, with a hash of each file's code: judged
mutants of unchanged files are not run again. Which mutants are drawn depends on their text alone, so that a larger
sample holds a smaller one.
"""

import argparse
import ast
import contextlib
import hashlib
import io
import json
import multiprocessing
import os
import re
import resource
import signal
import sys
import time
import warnings
from collections import Counter
from importlib.machinery import SourceFileLoader
from pathlib import Path

import IPython  # noqa: F401  what tests import is imported once, before the copies are made
import jupyter_client  # noqa: F401
import matplotlib
import matplotlib.pyplot as plt  # noqa: F401
import nbformat  # noqa: F401
import pytest
import torch
import torch._dynamo
from mutations import trees

ROOT = Path(__file__).resolve().parents[1]
STORE = ROOT / "benchmarks" / "package_mutants.json"
FILES = sorted(p for room in ("functional", "layers") for p in (ROOT / "mha" / room).glob("*.py") if p.stem[0] != "_")
TESTS = [
    "tests/layers/test_every_layer.py", "tests/functional", "tests/layers", "tests/models", "tests/analysis",
    "tests/test_calls.py", "tests/interop",
]  # fmt: skip
ALONE = ["-x", "-q", "-n0", "-p", "no:cacheprovider", "-p", "no:nbval", "-o", "addopts=", "-m", "not slow"]
SECONDS = 300  # of processor time for one mutant: some never end, which is seen, too
LONGEST = 3600  # of the clock, for one that waits and computes nothing


def mutants(path):
    """Every mutant of a file: a name for it, what was changed in which line, and what makes the changed tree."""
    tree = ast.parse(path.read_text("utf8"))
    told_before: Counter[str] = Counter()
    kept = {id(part) for node in ast.walk(tree) for part in ast.walk(node) if isinstance(node, ast.Raise)}
    for kind, old, new, make in trees(tree):
        only_strict = kind == "dropped keyword" and ast.unparse(old.func) == "zip"
        if id(old) not in kept and not only_strict:
            was, now = ast.unparse(old), "" if new is None else ast.unparse(ast.fix_missing_locations(new))
            told = f"{kind}: {' '.join(was.split())[:90]} → {' '.join(now.split())[:90] or 'nothing'}"
            name = f"{path.parent.name}/{path.name}:{getattr(old, 'lineno', 0)} {told}"
            told_before[name] += 1
            yield name + (f" ({told_before[name]})" if told_before[name] > 1 else ""), make


def written(path, make):
    """The changed text of a file; nothing where that is no Python or the same as before."""
    with warnings.catch_warnings(), contextlib.suppress(SyntaxError, ValueError, TypeError, RecursionError):
        warnings.simplefilter("ignore")
        text = ast.unparse(ast.fix_missing_locations(make()))
        compile(text, "<mutant>", "exec")
        return text if text != ast.unparse(ast.parse(path.read_text("utf8"))) else None
    return None


def code_of(path):
    """A hash of what a file does: neither comments nor its look count."""
    return hashlib.sha256(ast.unparse(ast.parse(path.read_text("utf8"))).encode()).hexdigest()[:16]


def draw(name):
    """A number between 0 and 1 that depends on the mutant alone."""
    return int(hashlib.sha256(re.sub(r":\d+ ", " ", name, count=1).encode()).hexdigest()[:12], 16) / 16**12


def judged(task):
    """Ask the tests about one mutant: what failed first, or that it survived. A file's own tests are asked first."""
    path, name, text = task
    own = f"tests/{path.parent.name}/test_{path.stem}.py"
    found = answer(path, text, [own]) if (ROOT / own).exists() else "survived"
    return name, answer(path, text, TESTS) if found == "survived" else found


def answer(path, text, asked):
    """Run some tests on one mutant in a copy of this process."""
    reader, writer = os.pipe()
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.close(reader)
        used = sum(os.times()[:2])
        resource.setrlimit(resource.RLIMIT_CPU, (int(used) + SECONDS, int(used) + SECONDS + 5))
        try:
            os.write(writer, tested(path, text, asked).encode()[:4000])
        finally:
            os._exit(0)
    os.close(writer)
    found = b""
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() - started < LONGEST:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                out_of_time = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)
                found = b"no end" if out_of_time else os.read(reader, 4000)
                break
            time.sleep(0.05)
        else:
            found = b"no end"
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
    os.close(reader)
    return found.decode() or "the process died"


def tested(path, text, asked):
    """The first test that fails where ``text`` stands in the place of a file."""
    read, stats = SourceFileLoader.get_data, SourceFileLoader.path_stats

    def get_data(loader, file):
        return text.encode() if Path(file) == path else read(loader, file)

    def path_stats(loader, file):
        if Path(file) == path:
            raise OSError("this text has no stored bytecode")
        return stats(loader, file)

    SourceFileLoader.get_data, SourceFileLoader.path_stats = get_data, path_stats
    sys.dont_write_bytecode = True
    told = First()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = pytest.main([*ALONE, *asked], plugins=[told])
    return "survived" if code == 0 else told.failed or f"pytest ended with {code}"


class First:
    """Remember the first test that failed."""

    failed = ""

    def pytest_runtest_logreport(self, report):
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report):
        if report.failed and not self.failed:
            self.failed = f"{report.nodeid} cannot be read"


def main(arguments=None):
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sample", type=int, default=10**9, help="judge about so many, drawn from all")
    parser.add_argument("--only", default="", help="only files whose name holds this text")
    parser.add_argument("--show", action="store_true", help="list the stored survivors, and run nothing")
    parser.add_argument("--minutes", type=float, default=10**6, help="stop after so many minutes")
    asked = parser.parse_args(arguments)
    os.chdir(ROOT)
    stored = json.loads(STORE.read_text("utf8")) if STORE.exists() else {}
    stored = {name: row for name, row in stored.items() if row["code"] == code_of(ROOT / "mha" / name)}
    if asked.show:
        return show(stored)
    every = [(path, name, make) for path in FILES for name, make in mutants(path)]
    drawn = [task for task in every if draw(task[1]) * len(every) < asked.sample and asked.only in task[1]]
    chosen = [(path, name, text) for path, name, make in drawn if (text := written(path, make))]
    new = [t for t in chosen if t[1] not in stored.get(f"{t[0].parent.name}/{t[0].name}", {}).get("mutants", {})]
    print(f"{len(every)} mutants, {len(chosen)} asked for, {len(new)} not yet judged")
    if new and (found := judged((new[0][0], "unchanged", new[0][0].read_text("utf8")))[1]) != "survived":
        raise SystemExit(f"the unchanged package fails in {found}: mend that first")
    end = time.monotonic() + 60 * asked.minutes
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for n, (name, found) in enumerate(pool.imap_unordered(judged, sorted(new, key=lambda t: draw(t[1]))), 1):
            file = name.partition(":")[0]
            row = stored.setdefault(file, {"code": code_of(ROOT / "mha" / file), "mutants": {}})
            row["mutants"][name] = found
            if found == "survived":
                print(f"{n}/{len(new)} survived: {name}", flush=True)
            STORE.write_text(json.dumps(stored, indent=1, ensure_ascii=False, sort_keys=True) + "\n", "utf8")
            if time.monotonic() > end:
                pool.terminate()
                break
    return show(stored)


def show(stored):
    """Say how many of the judged mutants were seen, and list the others."""
    rows = {name: found for row in stored.values() for name, found in row["mutants"].items()}
    alive = sorted(name for name, found in rows.items() if found == "survived")
    for name in alive:
        print(name)
    print(f"{len(rows)} judged, {len(rows) - len(alive)} seen by a test: {1 - len(alive) / max(len(rows), 1):.1%}")
    return 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    matplotlib.use("Agg")
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.exit(main())
