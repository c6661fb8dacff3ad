"""Starting processes, and noticing when one of them is gone.

:Taught in: across_machines.
"""

import hashlib
import multiprocessing
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import wait
from typing import Any, cast

import torch
import torch.distributed as dist

from mha.checks import checked
from mha.layers.multi_head import Heads


@checked
def join(seconds: float | int = 60.0) -> torch.device:
    """Meet the other processes that ``torchrun`` or :func:`launch` started, and say which device is ours.

    With a GPU for each process they talk through NCCL, otherwise through gloo.

    :param seconds: how long this process waits for the others before it stops with an error; 60 unless given.
    :Raises: RuntimeError where this process was not started as one of several.
    :Taught in: across_machines.
    """
    missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise RuntimeError(
            f"this process was started alone ({', '.join(missing)} not set): start it with "
            "torchrun --nproc-per-node=2 your_script.py, or from Python with mha.systems.launch.launch"
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
            "there is no process group: call mha.systems.launch.join() in a script that torchrun started, or run a "
            "function with mha.systems.launch.launch(work, processes=2)"
        )
    return cast(dist.ProcessGroup, dist.group.WORLD) if group is None else group


def check_same(layer: Heads, group: dist.ProcessGroup) -> None:
    """Refuse to go on where the processes did not begin with the same layer and the same parameters."""
    mark = hashlib.sha256(f"{layer}, heads {layer.heads}, shared {layer.kv_heads}".encode())
    for name, x in layer.state_dict().items():
        mark.update(name.encode() + x.cpu().contiguous().view(torch.uint8).numpy().tobytes())
    mine = torch.tensor(int.from_bytes(mark.digest()[:7], "big"), device=layer.W_q.weight.device)
    marks = [torch.empty_like(mine) for _ in range(group.size())]
    dist.all_gather(marks, mine, group=group)
    different = [rank for rank, other in enumerate(marks) if other != marks[0]]
    if different:
        raise ValueError(
            f"processes {different} of the group hold other parameters than process 0: load the same state dict "
            "everywhere, or set the same seed before the layer is made"
        )


GRACE = 2.0  # seconds to learn why the others stopped, once one has


@checked
def launch(work: Callable, processes: int, *inputs: object, seconds: float | int = 120.0) -> list:
    """Run ``work(*inputs)`` in several processes on this computer, and return what each returned.

    The results must be plain Python values, too. When a process dies, or the time is over, all others are ended.

    :param work: a function in a file that can be imported.
    :param processes: how many run it, at least 1.
    :param inputs: what it is called with, plain Python values.
    :param seconds: how long all of it may take; 120 unless given.
    :Raises: RuntimeError that says which process failed and why; TimeoutError where some do not come back in time;
        ValueError for a function that no new process can import, such as one of a notebook.
    :Taught in: across_machines.
    """
    if processes < 1:
        raise ValueError(f"processes = {processes}: it must be at least 1")
    _check_found_again(work)
    start, port = _starter(), _free_port()
    pipes = [start.Pipe(duplex=False) for _ in range(processes)]
    workers = [
        start.Process(target=_work, args=(send, work, inputs, rank, processes, port, seconds), daemon=True)
        for rank, (_, send) in enumerate(pipes)
    ]
    try:
        for worker, (_, send) in zip(workers, pipes, strict=True):
            worker.start()
            send.close()
        return _collect(workers, [receive for receive, _ in pipes], time.monotonic() + seconds)
    finally:
        for worker in workers:
            if worker.is_alive():
                worker.kill()
            worker.join()


def _starter() -> Any:
    """How processes begin: where the system can, as copies of one that has imported torch, once for all launches."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")  # each imports torch again: a second or two
    start = multiprocessing.get_context("forkserver")
    start.set_forkserver_preload(["mha.systems.tensor_parallel", "torch.distributed.tensor.parallel"])
    return start


def _check_found_again(work: Callable) -> None:
    """Refuse a function that a new process cannot import by name."""
    name, home = getattr(work, "__qualname__", ""), sys.modules.get(getattr(work, "__module__", ""))
    if not name or "<" in name or getattr(home, "__file__", None) is None:
        raise ValueError(
            f"{name or work} is in no file, and a new process knows only files: save a function with a name in "
            "my_work.py beside your notebook, and launch it after: from my_work import that_function"
        )


def _collect(workers: list, pipes: list, end: float) -> list:
    """Wait for all results; once a process has failed, only a moment longer."""
    found: dict[int, Any] = {}
    failed: dict[int, Any] = {}
    waiting = dict(enumerate(pipes))
    while waiting and (left := end - time.monotonic()) > 0:
        for pipe in wait(list(waiting.values()), left):
            rank = pipes.index(pipe)
            del waiting[rank]
            try:
                ok, value = pipes[rank].recv()
            except EOFError:  # it died without a word
                workers[rank].join(GRACE)
                ok, value = False, _death(workers[rank].exitcode)
            (found if ok else failed)[rank] = value
            end = end if ok else min(end, time.monotonic() + GRACE)
    if failed:
        told = sorted(failed, key=lambda rank: "ended" not in failed[rank])  # a death first: the others only noticed it
        raise RuntimeError("\n".join(f"process {rank} of {len(workers)} {failed[rank]}" for rank in told))
    if waiting:
        raise TimeoutError(f"processes {sorted(waiting)} of {len(workers)} did not come back in time and were ended")
    return [found[rank] for rank in range(len(workers))]


def _death(code: int | None) -> str:
    """Say how a process ended."""
    name = signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
    return f"was ended ({name}) before it was done; the others were stopped"


def _work(pipe, work: Callable, inputs: tuple, rank: int, processes: int, port: int, seconds: float | int) -> None:
    """Be one of the processes: meet the others, work, and tell what came out."""
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(processes), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    try:
        join(seconds)
        pipe.send((True, work(*inputs)))
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        pipe.send((False, f"failed: {type(error).__name__}: {error} ({last.name}, line {last.lineno})"))
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
