"""Jobs for several processes: what the chapter across_machines lets them do. A new process imports them by name.

:Taught in: across_machines.
"""

import os
import signal
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from mha.layers.grouped import GroupedAttention
from mha.layers.multi_head import Heads
from mha.systems.tensor_parallel import count_all_reduces, load_whole, shard_heads


def small_layer(kv_heads: int = 4, seed: int = 0) -> tuple[Heads, Tensor, Tensor]:
    """Make a layer of width 16 with four heads, and two inputs for it, in float64; the same in every process.

    :Shapes: the inputs are (2, 5, 16) and (2, 3, 16).
    :Taught in: across_machines.
    """
    layer = GroupedAttention(16, 4, kv_heads).float()  # drawn again, whatever the default type of numbers is
    torch.manual_seed(seed)
    for linear in (layer.W_q, layer.W_k, layer.W_v, layer.W_o):
        linear.reset_parameters()
    x, memory = (torch.randn(2, n, 16, dtype=torch.float32) for n in (5, 3))
    device = torch.cuda.current_device() if dist.is_initialized() and dist.get_backend() == "nccl" else "cpu"
    return layer.to(device, torch.float64), x.to(device, torch.float64), memory.to(device, torch.float64)


def one_step(layer: Heads, *inputs: Tensor) -> dict[str, list]:
    """Go forward and backward once.

    Gives the output and all gradients, and the sizes of the all-reduces
    that each of the two ways took.

    :Taught in: across_machines.
    """
    given = [x.clone().requires_grad_() for x in inputs]
    with count_all_reduces() as forward:
        y = layer(*given)
    with count_all_reduces() as backward:
        y.square().sum().backward()
    found = [y.detach()]
    found += [t.grad for t in (*given, *layer.parameters())]
    result: dict[str, list] = {"forward": forward, "backward": backward}
    return result | {"numbers": [whole(t).cpu().numpy() for t in found]}


def whole(found: Tensor) -> Tensor:
    """Put the parts of a tensor together that lie on several processes; a tensor that is here stays as it is.

    :Taught in: across_machines.
    """
    return found.full_tensor() if isinstance(found, DTensor) else found


def parallel_step(kv_heads: int = 4, crossing: bool = False) -> dict:
    """Do :func:`one_step` with the heads spread over all processes.

    :Taught in: across_machines.
    """
    layer, *inputs = small_layer(kv_heads)
    return one_step(shard_heads(layer), *inputs[: 1 + crossing])


def torch_step() -> dict[str, list]:
    """Do :func:`one_step` with torch's plan for each projection, and nothing of ours.

    :Taught in: across_machines.
    """
    layer, x, _ = small_layer()
    processes = dist.get_world_size()
    columns = {name: ColwiseParallel() for name in ("W_q", "W_k", "W_v")}
    parallelize_module(layer, init_device_mesh(x.device.type, (processes,)), columns | {"W_o": RowwiseParallel()})
    layer.heads, layer.kv_heads = layer.heads // processes, layer.kv_heads // processes
    return one_step(layer, x)


@torch.no_grad()
def read_checkpoint(state: dict[str, np.ndarray], kv_heads: int, processes: int) -> list | None:
    """Load a whole layer into the first processes: the output, and how many weights this process holds.

    :Taught in: across_machines.
    """
    group = dist.new_group(list(range(processes)))
    if dist.get_rank() >= processes:
        return None
    layer, x, _ = small_layer(kv_heads, seed=1)  # other weights: they are replaced
    mine = shard_heads(layer, group)
    load_whole(mine, {name: torch.from_numpy(values) for name, values in state.items()})
    return [mine(x).cpu().numpy(), mine.cost(1, 5).parameters]


def refusal(kv_heads: int) -> str:
    """Try to spread a layer, and say why that was refused.

    :Taught in: across_machines.
    """
    try:
        shard_heads(small_layer(kv_heads)[0])
    except ValueError as error:
        return str(error)
    return "not refused"


def time_sums(sizes: list[int], rounds: int = 9) -> list[float]:
    """Time the all-reduce of some numbers of 4 bytes: the shortest of ``rounds``.

    :Taught in: across_machines.
    """
    shortest, device = [], small_layer()[1].device
    for size in sizes:
        x, times = torch.zeros(size, device=device, dtype=torch.float32), []
        for _ in range(rounds):
            dist.barrier()
            start = time.perf_counter()
            dist.all_reduce(x)
            x[0].item()  # a GPU returns before it is done
            times.append(time.perf_counter() - start)
        shortest.append(min(times))
    return shortest


def lose_one() -> None:
    """Let the last process die while the others wait for its part.

    :Taught in: across_machines.
    """
    layer, x, _ = small_layer()
    mine = shard_heads(layer)
    mine(x)
    if dist.get_rank() == dist.get_world_size() - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    mine(x)


def in_turn(*calls: tuple) -> list:
    """Do several jobs one after the other: each is a function and its inputs.

    :Taught in: across_machines.
    """
    return [work(*inputs) for work, *inputs in calls]
