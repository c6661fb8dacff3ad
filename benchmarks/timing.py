"""Fair timing: the candidates take turns, and only ratios within one run are compared."""

import operator
import platform
import random
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from statistics import median

import torch


def take_turns(
    candidates: dict[str, Callable[[], object]],
    seconds: float = 6.0,
    at_least: int = 15,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Run every candidate once in each round, in an order that changes, and return all times in seconds.

    Whatever slows the machine down for a while then slows all of them. The number of rounds fits the time, but there
    are ``at_least`` so many. The ``clock`` may be ``time.process_time``: what other programs take is not counted then.
    """
    warm = []
    for run in candidates.values():
        run(), run()
        start = clock()
        run()
        warm.append(clock() - start)
    rounds = max(at_least, min(600, int(seconds / sum(warm))))
    names, times = list(candidates), {name: [] for name in candidates}
    for _ in range(rounds):
        random.shuffle(names)
        for name in names:
            start = clock()
            candidates[name]()
            times[name].append(clock() - start)
    return times


def ratios(times: dict[str, list[float]], base: str) -> dict[str, float]:
    """Divide each candidate's times by those of ``base`` in the same round; of the rounds the median."""
    return {name: median(map(operator.truediv, values, times[base])) for name, values in times.items()}


def peak_megabytes(code: str) -> float:
    """Run ``code`` in a new process and return how much its memory grew at the peak after ``START``, in MB.

    The code calls ``start()`` when everything is loaded and the inputs exist.
    """
    frame = (
        "import resource\nbase = [0]\n"
        "def start(): base[0] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"{code}\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base[0])"
    )
    done = subprocess.run([sys.executable, "-c", frame], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1]) * (1 if sys.platform == "darwin" else 1024) / 2**20


def machine() -> str:
    """Say on what, with what and when this was measured."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as info:
            name = next(line.split(":")[1].strip() for line in info if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{name}, {torch.get_num_threads()} threads, torch {torch.__version__}, {date.today().isoformat()}"


def table(head: list[str], rows: list[list[str]]) -> str:
    """Write a Markdown table."""
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines)
