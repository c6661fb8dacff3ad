"""Heads on several machines: each process owns some heads, and one sum over all processes makes the output.

``W_q``, ``W_k`` and ``W_v`` are cut into columns of heads, ``W_o`` into the matching rows. What each process adds is
part of a sum, so one all-reduce is enough. Torch's own tensor-parallel plan splits the parameters; a checkpoint of the
whole layer loads into any number of processes.

:Taught in: across_machines.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils._python_dispatch import TorchDispatchMode

from mha.checks import checked
from mha.layers.multi_head import Heads
from mha.systems.launch import check_group, check_same


@contextmanager
def count_all_reduces() -> Iterator[list[int]]:
    """Note the size, in numbers, of every all-reduce that happens meanwhile.

    :Taught in: across_machines.
    """
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


@checked
def all_reduce_bytes(numbers: int, processes: int, size: int = 4) -> float:
    """Count the bytes that each process sends for one all-reduce in a ring: 2 · (p − 1) / p of its tensor.

    :param numbers: how many the tensor has.
    :param processes: how many take part, p.
    :param size: the number of bytes of one number; 4 unless given.
    :Source: Patarasuk and Yuan 2009.
    :Taught in: across_machines.
    """
    if numbers < 0 or processes < 1 or size < 1:
        raise ValueError(f"numbers = {numbers}, processes = {processes}, size = {size}: at least 0, 1 and 1")
    return 2 * (processes - 1) / processes * numbers * size


@checked
def shard_heads(layer: Heads, group: dist.ProcessGroup | None = None) -> Heads:
    """Give each process of the group its share of the heads, and return the layer that holds them.

    Every process calls it, and later what it returns with the same inputs; each gets the same outputs. Its taps show
    the heads of this process. Dropout is drawn by each process on its own.

    :param layer: the whole layer, the same on every process.
    :param group: the processes that share it; all of them unless given.
    :Costs: parameters, FLOPs and cache divided by the number of processes; one all-reduce of (b, i, d_model) forward,
        and backward one of that size for self-attention, two for cross-attention.
    :Raises: RuntimeError where there is no process group; ValueError where the processes do not divide the KV heads,
        where they hold different parameters, and for layers whose heads cannot be computed apart or have parameters of
        their own.
    :Source: Shoeybi et al. 2019, section 3.
    :Taught in: across_machines.
    """
    group = check_group(group)
    rank, processes = group.rank(), group.size()
    check_same(layer, group)
    check_divisible(layer, processes)
    mesh, new = DeviceMesh.from_group(group, layer.W_q.weight.device.type), copy.deepcopy(layer)
    rows = {name: ColwiseParallel() for name in ("W_q", "W_k", "W_v")}
    parallelize_module(new, mesh, {**rows, "W_o": RowwiseParallel()})
    new.heads, new.kv_heads = layer.heads // processes, layer.kv_heads // processes
    for name, side in (("W_q", "out"), ("W_k", "out"), ("W_v", "out"), ("W_o", "in")):
        linear = getattr(new, name)
        setattr(linear, f"{side}_features", getattr(linear, f"{side}_features") // processes)  # what it costs here
    if layer.positions is not None:
        mine = list(range(rank * new.heads, (rank + 1) * new.heads))
        new.positions = layer.positions.take_heads(mine, layer.heads)
    new.register_forward_pre_hook(lambda _, args, how: _prepare(mesh, args, how), with_kwargs=True)
    return new


def _prepare(mesh: DeviceMesh, args: tuple, how: dict) -> tuple[tuple, dict]:
    """Mark each input once as the same on every process: then its three gradients are added before they are sent."""
    if not torch.is_grad_enabled():
        return args, how
    seen: dict[int, Tensor] = {}

    def mark(name: str, x: object) -> object:
        if name not in ("query", "key", "value") or not isinstance(x, Tensor):
            return x
        if id(x) not in seen:
            seen[id(x)] = DTensor.from_local(x, mesh, [Replicate()], run_check=False)
        return seen[id(x)]

    names = ("query", "key", "value", "mask")
    return tuple(map(mark, names, args)), {name: mark(name, x) for name, x in how.items()}


@checked
@torch.no_grad()
def load_whole(layer: nn.Module, state: dict[str, Tensor]) -> None:
    """Load the state dict of the whole layer: each process keeps its part.

    :param layer: what :func:`shard_heads` returned, or a module with such layers.
    :param state: the state dict of the whole layer, the same on every process.
    :Taught in: across_machines.
    """
    mine = layer.state_dict()
    cut = {
        name: distribute_tensor(x.to(mine[name].dtype), mine[name].device_mesh, mine[name].placements)
        if isinstance(mine.get(name), DTensor)
        else x
        for name, x in state.items()
    }
    layer.load_state_dict(cut)


@checked
def whole(layer: nn.Module) -> dict[str, Tensor]:
    """Gather the state dict of the whole layer; every process must call it.

    :param layer: what :func:`shard_heads` returned, or a module with such layers.
    :Taught in: across_machines.
    """
    return {name: x.full_tensor() if isinstance(x, DTensor) else x for name, x in layer.state_dict().items()}


def check_divisible(layer: Heads, processes: int) -> None:
    """Refuse what cannot be split over processes by heads."""
    if layer.inseparable is not None:
        name = type(layer).__name__
        raise ValueError(f"the heads of {name} cannot be computed apart: {layer.inseparable}. Keep it whole")
    own = {name.split(".")[0] for name in layer.state_dict()} - {"W_q", "W_k", "W_v", "W_o", "positions"}
    if own:
        raise ValueError(
            f"{type(layer).__name__} has parameters besides its four matrices, and it is unknown which heads they "
            f"belong to: {sorted(own)}. Keep it whole"
        )
    if layer.kv_heads % processes:
        fits = [p for p in range(1, layer.kv_heads + 1) if layer.kv_heads % p == 0]
        raise ValueError(
            f"{processes} processes cannot share {layer.kv_heads} KV heads evenly (and {layer.heads} query heads): "
            f"a KV head lives on one process. Take one of {fits} processes"
        )
