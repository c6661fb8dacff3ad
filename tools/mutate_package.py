"""Change the package a little, in every way a machine knows, and let the tests judge.

    python tools/mutate_package.py [--sample 300] [--only masks] [--show]

Each mutant is one change in one file of `mha/functional/` or `mha/layers/`. A process that has imported torch makes a
copy of itself for each; the copy reads the changed file in place of the stored one and runs the tests that run the
changed line, the shortest first, until one fails. (Which tests run which line is found out once, at the beginning.)
Errors that are raised and `strict=True` stay as they are, and so does what counts either way: max(a, b) is max(b, a).
A mutant that no test sees has *survived*. What was judged is kept in `benchmarks/package_mutants.json`, with a hash
of each file's code: judged mutants of unchanged files are not run again. Which mutants are drawn depends on their
text alone, so that a larger sample holds a smaller one.
"""

import argparse
import ast
import contextlib
import hashlib
import io
import json
import multiprocessing
import os
import pickle
import re
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from importlib.machinery import SourceFileLoader
from pathlib import Path

import coverage
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
EITHER_WAY = {"max", "min", "torch.equal", "torch.promote_types"}
TESTS = [
    "tests/layers/test_every_layer.py", "tests/functional", "tests/layers", "tests/models", "tests/analysis",
    "tests/test_calls.py", "tests/interop",
]  # fmt: skip
TIMES: dict[str, float] = {}  # of every test, in seconds of processor time
HEARD = None  # which tests run which lines
ALONE = ["-x", "-q", "-n0", "-p", "no:cacheprovider", "-p", "no:nbval", "-o", "addopts=", "-m", "not slow"]
SECONDS = 300  # of processor time for one mutant: some never end, which is seen, too
LONGEST = 3600  # of the clock, for one that waits and computes nothing


def mutants(path):
    """Every mutant of a file: a name for it, the lines that a test must run to see it, and what makes the changed tree.

    The lines are None where the change counts as soon as the file is read.
    """
    tree = ast.parse(path.read_text("utf8"))
    told_before: Counter[str] = Counter()
    kept = {id(part) for node in ast.walk(tree) for part in ast.walk(node) if isinstance(node, ast.Raise)}
    place = places(tree)
    for kind, old, new, make in trees(tree):
        function = ast.unparse(old.func) if isinstance(old, ast.Call) else ""
        same = (kind == "dropped keyword" and function == "zip") or (
            kind == "swapped arguments" and function in EITHER_WAY
        )
        if id(old) not in kept and not same:
            was, now = ast.unparse(old), "" if new is None else ast.unparse(ast.fix_missing_locations(new))
            told = f"{kind}: {' '.join(was.split())[:90]} → {' '.join(now.split())[:90] or 'nothing'}"
            name = f"{path.parent.name}/{path.name}:{getattr(old, 'lineno', 0)} {told}"
            told_before[name] += 1
            again = f" ({told_before[name]})" if told_before[name] > 1 else ""
            yield name + again, place.get(id(old)), make


def places(tree):
    """For every node of a function's body, the lines of its statement; in a function's head, all lines of the body."""
    found = {}
    for function in ast.walk(tree):  # from the outside in: the innermost function has the last word
        if isinstance(function, ast.FunctionDef):
            remembers = any("cache" in ast.unparse(mark) for mark in function.decorator_list)
            whole = None if remembers else range(function.body[0].lineno, function.end_lineno + 1)
            found |= {id(node): whole for node in ast.walk(function) if node is not function}
            statements = [] if remembers else [x for line in function.body for x in ast.walk(line)]
            for line in (x for x in statements if isinstance(x, ast.stmt)):
                found |= {id(node): range(line.lineno, line.end_lineno + 1) for node in ast.walk(line)}
    return found


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


def known(stored, task):
    """What was found about a mutant before."""
    return stored.get(f"{task[0].parent.name}/{task[0].name}", {}).get("mutants", {}).get(task[1], "")


def draw(name):
    """A number between 0 and 1 that depends on the mutant alone."""
    return int(hashlib.sha256(re.sub(r":\d+ ", " ", name, count=1).encode()).hexdigest()[:12], 16) / 16**12


def judged(task):
    """Ask the tests that run some lines about one mutant: what failed first, or that it survived."""
    path, name, lines, text = task
    return name, answer(path, text, TIMES if lines is None else HEARD.get(path, lines))


class Heard:
    """Which tests run which lines of which file."""

    def __init__(self, folder):
        self.data = coverage.CoverageData(str(folder / "lines"))
        self.data.read()
        self.by_file = {Path(f): self.data.contexts_by_lineno(f) for f in self.data.measured_files()}

    def get(self, path, lines):
        by_line = self.by_file.get(path, {})
        return {name for line in lines for name in by_line.get(line, []) if name in TIMES}


def answer(path, text, asked):
    """Run some tests on one mutant in a copy of this process."""
    if not asked:
        return "survived"
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
    told = First(asked)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = pytest.main([*ALONE, *sorted({name.partition("::")[0] for name in asked})], plugins=[told])
    return "survived" if code == 0 else told.failed or f"pytest ended with {code}"


class First:
    """Run some tests, the shortest first, and remember the first that failed."""

    failed = ""

    def __init__(self, asked):
        self.asked = asked

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        items[:] = sorted((x for x in items if x.nodeid in self.asked), key=lambda x: TIMES[x.nodeid])

    def pytest_runtest_logreport(self, report):
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report):
        if report.failed and not self.failed:
            self.failed = f"{report.nodeid} cannot be read"


class Listener:
    """Write down which test runs which line, and how long it takes."""

    def __init__(self, folder):
        self.folder, self.times, self.failed = folder, {}, ""
        self.lines = coverage.Coverage(
            data_file=str(folder / "lines"), config_file=False, include=[str(path) for path in FILES]
        )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        self.lines.switch_context(item.nodeid)
        started = time.process_time()
        answered = yield
        self.times[item.nodeid] = time.process_time() - started
        self.lines.switch_context("")
        return answered

    def pytest_runtest_logreport(self, report):
        if report.failed and not self.failed:
            self.failed = report.nodeid


def listen(folder):
    """Run all tests once on the unchanged package, in a process of its own."""
    child = os.fork()
    if child == 0:
        told = Listener(folder)
        told.lines.start()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            pytest.main([*ALONE, *TESTS], plugins=[told])
        told.lines.stop()
        told.lines.save()
        (folder / "times").write_bytes(pickle.dumps((told.failed, told.times)))
        os._exit(0)
    os.waitpid(child, 0)
    return pickle.loads((folder / "times").read_bytes())


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
    every = [(path, *mutant) for path in FILES for mutant in mutants(path)]
    drawn = [task for task in every if draw(task[1]) * len(every) < asked.sample and asked.only in task[1]]
    chosen = [(path, name, lines, text) for path, name, lines, make in drawn if (text := written(path, make))]
    new = [t for t in chosen if known(stored, t) in ("", "survived")]  # tests may have come since
    print(f"{len(every)} mutants, {len(chosen)} asked for, {len(new)} to be judged", flush=True)
    global HEARD
    with tempfile.TemporaryDirectory() as folder:
        failed, times = listen(Path(folder))
        TIMES.update(times)
        HEARD = Heard(Path(folder))
    if failed:
        raise SystemExit(f"the unchanged package fails in {failed}: mend that first")
    print(f"{len(TIMES)} tests take {sum(TIMES.values()):.0f} s", flush=True)
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
