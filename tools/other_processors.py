"""Run the notebooks as older processors would, with one thread and with two, and say which cell differs where.

    python tools/other_processors.py [--oldest] [--times 3] [--only-tolerant] [--write] [notebook ...]

torch, oneDNN, MKL and OpenBLAS choose their instructions when they start, and can be told to choose older ones. What
this processor cannot play is skipped by name. `--oldest` plays one setting, the oldest instructions with one thread:
two notebooks run side by side, and with two threads each they wait for each other. `--only-tolerant` takes those
that have a cell with a tolerance; `--write` puts the table into benchmarks/README.md. The exit status is 1 when a cell
differs.
"""

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "benchmarks" / "README.md"
SETTINGS = {
    "this processor": {},
    "AVX2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_CBWR": "AVX2",
        "OPENBLAS_CORETYPE": "Haswell",
    },
    "SSE4.1": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_CBWR": "COMPATIBLE",
        "OPENBLAS_CORETYPE": "Nehalem",
    },
}
ASK = "import torch; print(torch.backends.cpu.get_cpu_capability())"


@dataclass
class Failure:
    """One cell that differs, or raises."""

    notebook: str
    cell: int
    message: str


@dataclass
class Run:
    """What one run of notebooks gave."""

    passed: int
    failures: list[Failure]
    seconds: float
    skipped: list[str]  # why, of each cell


def capability(settings):
    """The instructions that torch chooses under some settings: DEFAULT, AVX2, AVX512."""
    told = subprocess.run(
        [sys.executable, "-c", ASK], env=os.environ | settings, capture_output=True, text=True, check=True
    )
    return told.stdout.strip()


def playable(own, machine):
    """For each setting why it cannot be played here; an empty reason where it can."""
    if machine not in ("x86_64", "AMD64"):
        reason = f"{machine} has other instructions than the x86 processors that torch was told to play"
        return {name: reason if settings else "" for name, settings in SETTINGS.items()}
    avx2 = "" if own == "AVX512" else f"this processor has {own}, nothing newer, so the first row has played it"
    return {"this processor": "", "AVX2": avx2, "SSE4.1": ""}


def play(settings, threads, notebooks, workers=2):
    """Run notebooks under the project's own comparison, in processes of their own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= settings | {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.xml")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", str(workers)]
        command += [
            f"--rootdir={ROOT}",
            f"-c{ROOT / 'pyproject.toml'}",
            f"--confcutdir={ROOT}",
            f"--junitxml={result}",
            "-ojunit_family=xunit1",
        ]
        if not all(path.is_relative_to(ROOT) for path in notebooks):
            # for notebooks in this project, pytest finds it by itself; without pythonpath it is not that of tests/
            command += ["-p", "conftest", "-o", "pythonpath="]
        run = subprocess.run(
            [*command, *map(str, notebooks)], cwd=ROOT, env=environment, capture_output=True, text=True
        )
        if run.returncode not in (0, 1):
            raise RuntimeError(f"pytest ended with {run.returncode}:\n{run.stdout[-2000:]}{run.stderr[-2000:]}")
        cases = list(ElementTree.parse(result).getroot().iter("testcase"))
    failures = [failed(case, problem) for case in cases for problem in case if problem.tag in ("failure", "error")]
    skipped = [problem.get("message") for case in cases for problem in case if problem.tag == "skipped"]
    return Run(len(cases) - len(failures) - len(skipped), failures, time.perf_counter() - begin, skipped)


def failed(case, problem):
    text = "".join(problem.itertext())
    message = re.sub(r"\x1b\[[0-9;]*m", "", text)
    said = re.search(r"Cell \d+: (.*)", message)
    return Failure(
        Path(case.get("file")).stem,
        int(re.search(r"\d+", case.get("name"))[0]),
        said[1] if said else message.strip()[:200],
    )


def tolerant(notebooks):
    """The notebooks with a cell that states a tolerance."""
    return [path for path in notebooks if '"tolerance"' in path.read_text(encoding="utf-8")]


def processor():
    """The name of this processor."""
    try:
        return re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)[1]
    except (OSError, TypeError):
        return platform.processor() or platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all of notebooks/")
    parser.add_argument("--oldest", action="store_true", help="only the oldest instructions, with one thread")
    parser.add_argument("--only-tolerant", action="store_true", help="only notebooks with a tolerance")
    parser.add_argument("--times", type=int, default=1, help="how often")
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    options = parser.parse_args()
    notebooks = [path.resolve() for path in options.notebooks] or sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
    notebooks = tolerant(notebooks) if options.only_tolerant else notebooks
    own = capability({})
    reasons = playable(own, platform.machine())
    lines, wrong = ["| instructions | threads | cells that agree | cells that differ |", "| --- | --- | --- | --- |"], 0
    chosen = ["SSE4.1"] if options.oldest else list(SETTINGS)
    for name in chosen:
        shown = f"{name}, {own}" if name == "this processor" else name
        if reasons[name]:
            lines.append(f"| {shown} | – | skipped: {reasons[name]} | – |")
            print(lines[-1], flush=True)
            continue
        for threads in (1,) if options.oldest else (1, 2):
            for _ in range(options.times):
                run = play(SETTINGS[name], threads, notebooks)
                wrong += len(run.failures)
                where = ", ".join(f"{failure.notebook[:2]} cell {failure.cell}" for failure in run.failures) or "none"
                lines.append(f"| {shown} | {threads} | {run.passed} | {where} |")
                print(lines[-1], f"({run.seconds:.0f} s)", flush=True)
                for reason in sorted(set(run.skipped)):
                    print(f"    {run.skipped.count(reason)} cells skipped: {reason}", flush=True)
                for failure in run.failures:
                    print(f"    {failure.notebook} cell {failure.cell}: {failure.message}", flush=True)
    if options.write:
        write([f"{processor()}, {len(notebooks)} notebooks, {time.strftime('%Y-%m-%d')}", "", *lines])
    return int(wrong > 0)


def write(lines):
    """Put the table between its two marks."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split("<!-- processors -->\n")
    after = rest.split("<!-- end of processors -->")[1]
    table = "\n".join(lines)
    PAGE.write_text(
        f"{before}<!-- processors -->\n{table}\n<!-- end of processors -->{after}", encoding="utf-8", newline="\n"
    )


if __name__ == "__main__":
    sys.exit(main())
