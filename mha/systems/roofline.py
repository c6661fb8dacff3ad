"""Predict time and memory on paper: every layer counts itself, and two numbers of the machine turn counts into time.

``layer.cost(b, i, j)`` counts one call with a batch of b, i queries and j keys. :func:`measure_machine` finds the two
ceilings of this computer, and a :class:`Machine` predicts.

:Taught in: counting_cost.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import matmul
from statistics import median

import torch

from mha.checks import LOOPS, check_device, check_number, check_whole, checked
from mha.layers.cost import Cost, Part


def check_positive(**numbers: float) -> None:
    """Refuse what is no positive number."""
    check_number(**numbers)
    for name, number in numbers.items():
        if number <= 0:
            raise ValueError(f"{name} = {number}: it must be positive")


@dataclass(frozen=True)
class Machine:
    """A computer as two ceilings: how fast it multiplies, and how fast it reads what it multiplies.

    ``flops`` is FLOPs a second in a large matrix product, ``bandwidth`` bytes a second in a matrix-vector product.

    :Source: Williams et al. 2009, the roofline model.
    :Taught in: counting_cost.
    """

    flops: float
    bandwidth: float

    def __post_init__(self) -> None:
        check_positive(flops=self.flops, bandwidth=self.bandwidth)

    @property
    def ridge(self) -> float:
        """The arithmetic intensity at which both ceilings meet: below it memory is the limit, above it arithmetic."""
        return self.flops / self.bandwidth

    def roof(self, intensity: float | int) -> float:
        """Return the most FLOPs a second that a step can reach.

        :param intensity: the arithmetic intensity, in FLOPs for each byte, at least 0.
        """
        check_number(intensity=intensity)
        if intensity < 0:
            raise ValueError(f"intensity = {intensity}: FLOPs for each byte are at least 0")
        return min(self.flops, self.bandwidth * intensity)

    @checked
    def seconds(self, cost: Cost | Part, overhead: float | int = 0) -> float:
        """Predict the time of one call: each part takes as long as the slower of arithmetic and memory.

        :param cost: of a layer's call, or one part of it.
        :param overhead: seconds that every call takes beside its parts; 0 unless given.
        """
        if overhead < 0:
            raise ValueError(f"overhead = {overhead}: seconds are at least 0")
        parts = cost.parts.values() if isinstance(cost, Cost) else [cost]
        return overhead + sum(max(part.flops / self.flops, part.moved / self.bandwidth) for part in parts)


@checked
def measure_machine(
    dtype: torch.dtype = torch.float32, device: str = "cpu", *, n: int | None = None, megabytes: int | None = None
) -> Machine:
    """Measure both ceilings of this computer with torch.

    The matrices read for the second ceiling take turns. Together they are larger than the caches of the processor, so
    that every read comes from memory.

    :param dtype: of the matrices, floating point; float32 unless given.
    :param device: where they are; "cpu" unless given.
    :param n: the width of the matrices that are multiplied; 1024, or 8192 on a GPU, unless given.
    :param megabytes: the size of all matrices that are read; 512, or 4096 on a GPU, unless given.
    :Raises: ValueError where a size is below 1.
    :Taught in: counting_cost.
    """
    check_device(device)
    if not dtype.is_floating_point:
        raise TypeError(f"dtype = {dtype}: it must be floating point, as the matrices of a layer are")
    on_gpu = torch.device(device).type != "cpu"
    n = (8192 if on_gpu else 1024) if n is None else n
    megabytes = (4096 if on_gpu else 512) if megabytes is None else megabytes
    check_whole(n=n, megabytes=megabytes)
    a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    multiply = 2 * n**3 / measure_seconds([lambda: a @ b])
    rows = max(1, megabytes * 2**20 // (8 * a.element_size() * 4096))
    matrices = [torch.ones(rows, 4096, device=device, dtype=dtype) for _ in range(8)]
    x = torch.ones(4096, device=device, dtype=dtype)
    moved = matrices[0].numel() * a.element_size()
    return Machine(multiply, moved / measure_seconds([partial(matmul, m, x) for m in matrices]))


@checked
def measure_seconds(runs: list[Callable[[], object]], rounds: int = 5) -> float:
    """Time one call: the median over turns through all functions, divided by their number.

    :param runs: functions without arguments, at least one; they take turns.
    :param rounds: how many turns are timed, after one that warms up; 5 unless given.
    :Taught in: counting_cost.
    """
    check_whole(1, LOOPS, rounds=rounds)
    if not runs or not all(map(callable, runs)):
        raise ValueError(f"runs = {runs}: give at least one function, and nothing else")
    times = []
    for _ in range(rounds + 1):  # the first round warms up
        _wait()
        start = time.perf_counter()
        for run in runs:
            run()
        _wait()
        times.append((time.perf_counter() - start) / len(runs))
    return median(times[1:])


def _wait() -> None:
    """Let a GPU finish: its calls return before they are done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
