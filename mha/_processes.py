"""Processes that meet, and make sure that they start from the same. Public in :mod:`mha.parallel`."""

import hashlib
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn


def join(seconds: float | int = 60.0) -> torch.device:
    """Meet the other processes that ``torchrun`` or :func:`launch` started, and say which device is ours.

    With a graphics card for each process they talk through NCCL, otherwise through gloo. A process that waits longer
    than ``seconds`` for the others stops with an error.

    Raises: RuntimeError where nobody started this process as one of several.
    Taught in: chapter 13.
    """
    missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise RuntimeError(
            f"this process was started alone ({', '.join(missing)} not set): start it with "
            "torchrun --nproc-per-node=2 your_script.py, or from Python with mha.parallel.launch"
        )
    local = int(os.environ.get("LOCAL_RANK", os.environ["RANK"]))
    cards = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"]))
    device = torch.device("cuda", local) if cards else torch.device("cpu")
    if cards:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cards else "gloo", timeout=timedelta(seconds=seconds))
    return device


def check_group(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    """Return the group, or that of all processes; refuse to go on alone."""
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError(
            "there is no process group: call mha.parallel.join() in a script that torchrun started, or run a function "
            "with mha.parallel.launch(work, processes=2)"
        )
    return dist.group.WORLD if group is None else group


def check_same(layer: nn.Module, group: dist.ProcessGroup) -> None:
    """Refuse to go on where the processes did not start from the same layer with the same weights."""
    mark = hashlib.sha256(f"{layer}, heads {layer.heads}, shared {layer.kv_heads}".encode())
    for name, x in layer.state_dict().items():
        mark.update(name.encode() + x.cpu().contiguous().view(torch.uint8).numpy().tobytes())
    mine = torch.tensor(int.from_bytes(mark.digest()[:7], "big"), device=layer.W_q.weight.device)
    marks = [torch.empty_like(mine) for _ in range(group.size())]
    dist.all_gather(marks, mine, group=group)
    different = [rank for rank, other in enumerate(marks) if other != marks[0]]
    if different:
        raise ValueError(
            f"processes {different} of the group hold other weights than process 0: load the same state dict "
            "everywhere, or set the same seed before the layer is made"
        )
