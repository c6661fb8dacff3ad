"""Heads on one, two and four processes compute the same, and what goes wrong is said in time.

Starting processes takes long: one smoke test stands in the first tier, the rest in the second.
"""

import os
import subprocess
import sys
import time

import pytest
import torch
import workers

import mha
from mha.systems import launch, tensor_parallel
from mha.systems.tensor_parallel import shard_heads

LIMIT = 1e-10
SIZES = (1, 2, 4)
slow = pytest.mark.slow


@pytest.fixture(scope="module")
def found():
    """Four processes are started once, do everything, and this is what they found: one dictionary for each."""
    return launch.launch(workers.everything, 4, seconds=150)


def test_two_processes_compute_what_one_does():
    assert max(launch.launch(workers.smoke, 2, seconds=150)) < LIMIT


@slow
@pytest.mark.parametrize("size", SIZES)
def test_several_processes_compute_what_one_does_forward_and_backward(found, size):
    for rank in range(size):
        errors = {name: error for name, (error, *_) in found[rank][size]["compare"].items()}
        assert len(errors) >= 3 * len(workers.LAYERS)
        assert max(errors.values()) < LIMIT, (rank, errors)


@slow
@pytest.mark.parametrize("size", [2, 4])
def test_one_all_reduce_forward_and_one_for_each_input_backward(found, size):
    b, i, m = workers.X
    for name, (_, counts, numbers) in found[0][size]["compare"].items():
        crossing = name.endswith(("cross", "keyword"))
        assert counts == [1, 2 if crossing else 1], name
        assert numbers == [b * i * m, b * (i + workers.MEMORY[1] if crossing else i) * m], name


@slow
@pytest.mark.parametrize("size", SIZES)
def test_every_process_caches_its_own_heads(found, size):
    for rank in range(size):
        error, taken, predicted, parameters, held = found[rank][size]["cached"]
        assert error < LIMIT
        assert taken == predicted == 2 * 2 * 4 * 5 * 2 * 8 // size
        assert parameters == held


@slow
@pytest.mark.parametrize("size", SIZES)
def test_one_checkpoint_loads_into_any_number_of_processes_and_comes_back(found, size):
    for rank in range(size):
        error, same = found[rank][size]["moved"]
        assert error < LIMIT
        assert same


# ---- bad input


@slow
def test_every_process_refuses_what_cannot_be_spread(found):
    for rank in range(4):
        told = found[rank]["refused"]
        assert told["other_weights"].startswith("ValueError: processes [2, 3] of the group hold other parameters than")
        assert told["other_layer"].startswith("ValueError: processes [1, 2, 3] of the group hold other parameters")
        assert told["too_few"].startswith("ValueError: 4 processes cannot share 2 KV heads evenly (and 4 query heads)")
        assert told["too_few"].endswith("Take one of [1, 2] processes")
        assert told["mixing"].startswith("ValueError: the heads of Mixing cannot be computed apart")
        assert told["own_weights"].startswith("ValueError: EntmaxAttention has parameters besides its four matrices")
        assert told["own_weights"].endswith("['raw_alpha']. Keep it whole")


def test_a_missing_process_group_is_named(reader, monkeypatch):
    with pytest.raises(RuntimeError, match=r"no process group.*launch\.join\(\).*launch\.launch"):
        shard_heads(mha.MultiHeadAttention(6, 2))
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RuntimeError, match=r"started alone \(RANK, WORLD_SIZE.*torchrun --nproc-per-node=2"):
        launch.join()


@slow
@pytest.mark.parametrize(
    ("how", "seconds", "kind", "message"),
    [
        ("killed", 60, RuntimeError, r"^process 1 of 2 was ended \(SIGKILL\)"),
        ("raises", 60, RuntimeError, r"process 1 of 2 failed: ArithmeticError: out of numbers \(die, line \d+\)"),
        ("sleeps", 7, (RuntimeError, TimeoutError), r"processes \[.*1\] of 2 did not come back|process 0 of 2 failed"),
    ],
    ids=["killed", "raises", "sleeps"],
)
def test_a_worker_that_dies_ends_the_others_with_a_clear_error(how, seconds, kind, message):
    start = time.monotonic()
    with pytest.raises(kind, match=message):
        launch.launch(workers.die, 2, how, seconds=seconds)
    assert time.monotonic() - start < 45


def test_results_come_back_in_the_order_of_the_processes(reader):
    with pytest.raises(ValueError, match="processes = 0: it must be at least 1"):
        launch.launch(workers.rank, 0)


@slow
def test_torchrun_starts_the_same_layer():
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        workers.__file__,
        "join",
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    told = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100)
    assert told.returncode == 0, told.stderr[-2000:]
    assert sorted(told.stdout.split("\n")) == ["", "rank 0 of 2: True", "rank 1 of 2: True"]


# ---- on paper


def test_an_all_reduce_in_a_ring_sends_almost_twice_the_tensor():
    assert tensor_parallel.all_reduce_bytes(1000, 1) == 0
    assert tensor_parallel.all_reduce_bytes(1000, 2) == 4000
    assert tensor_parallel.all_reduce_bytes(1000, 512, 2) == pytest.approx(4000, rel=0.01)
    with pytest.raises(ValueError, match="processes = 0"):
        tensor_parallel.all_reduce_bytes(1, 0)


def test_no_all_reduce_is_counted_where_none_happens():
    with tensor_parallel.count_all_reduces() as sizes:
        mha.MultiHeadAttention(6, 2)(torch.randn(1, 3, 6)).sum().backward()
    assert sizes == []
