"""What processes send each other. Public in :mod:`mha.parallel`."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode


@contextmanager
def count_all_reduces() -> Iterator[list[int]]:
    """Note the size, in numbers, of every all-reduce that happens meanwhile. Taught in: chapter 13."""
    sizes: list[int] = []

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if any(issubclass(kind, DTensor) for kind in types):
                return NotImplemented  # first torch says what this means for the parts
            if "all_reduce" in str(function) or "allreduce" in str(function):
                sizes.append((args[0] if isinstance(args[0], Tensor) else args[0][0]).numel())
            return function(*args, **(kwargs or {}))

    with Count():
        yield sizes


def all_reduce_bytes(numbers: int, processes: int, size: int = 4) -> float:
    """Count the bytes that each process sends for one all-reduce in a ring: 2 · (p − 1) / p of its tensor.

    ``size`` is the number of bytes of one number.

    Source: Patarasuk and Yuan 2009.
    Taught in: chapter 13.
    """
    if numbers < 0 or processes < 1:
        raise ValueError(f"numbers = {numbers}, processes = {processes}: at least 0 and 1")
    return 2 * (processes - 1) / processes * numbers * size
