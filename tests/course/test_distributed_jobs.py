"""What chapter 13 lets several processes do, and which functions cannot be a job."""

import types

import numpy as np
import pytest
import torch

from mha.course import distributed_jobs
from mha.systems import launch

slow = pytest.mark.slow  # several processes


@pytest.fixture(scope="module")
def found():
    """Two processes are started once and do one job after the other."""
    state = {name: w.numpy() for name, w in distributed_jobs.small_layer(seed=5)[0].state_dict().items()}
    alone = (distributed_jobs.read_checkpoint, state, 4, 1)
    steps = (
        (distributed_jobs.parallel_step, 4, False),
        (distributed_jobs.parallel_step, 2, True),
        (distributed_jobs.torch_step,),
    )
    return launch.launch(
        distributed_jobs.in_turn,
        2,
        *steps,
        alone,
        (distributed_jobs.refusal, 1),
        (distributed_jobs.refusal, 2),
        (distributed_jobs.time_sums, [1]),
    )


@slow
@pytest.mark.parametrize(("job", "kv_heads", "crossing"), [(0, 4, False), (1, 2, True), (2, 4, False)])
def test_a_step_in_two_processes_gives_the_numbers_of_one(found, job, kv_heads, crossing):
    layer, x, memory = distributed_jobs.small_layer(kv_heads)
    right = distributed_jobs.one_step(layer, *((x, memory) if crossing else (x,)))
    assert right["forward"] == right["backward"] == []
    for process in found:
        pairs = list(zip(process[job]["numbers"], right["numbers"], strict=True))
        assert len(pairs) == 1 + (2 if crossing else 1) + 8
        assert max(np.abs(a - b).max() for a, b in pairs) < 1e-10


@slow
def test_torchs_plan_sums_the_gradient_of_one_input_three_times(found):
    counts = [(len(step["forward"]), len(step["backward"])) for step in found[1][:3]]
    assert counts == [(1, 1), (1, 2), (1, 3)]


@slow
def test_a_process_outside_the_group_stands_aside(found):
    layer, x = distributed_jobs.small_layer(seed=5)[0], distributed_jobs.small_layer(seed=1)[1]
    y, held = found[0][3]
    assert np.abs(y - layer(x).detach().numpy()).max() < 1e-10
    assert held == sum(p.numel() for p in layer.parameters())
    assert found[1][3] is None


@slow
def test_a_refusal_is_told_by_every_process(found):
    for process in found:
        assert process[4].startswith("2 processes cannot share 1 KV heads evenly")
        assert process[5] == "not refused"
        assert process[6][0] > 0


@slow
def test_a_dead_process_is_named(reader):
    with pytest.raises(RuntimeError, match=r"^process 1 of 2 was ended \(SIGKILL\)"):
        launch.launch(distributed_jobs.lose_one, 2, seconds=90)


@pytest.mark.parametrize("work", [lambda: 1, types.FunctionType((lambda: 1).__code__, {"__name__": "no_file"}, "home")])
def test_a_function_that_no_process_can_import_is_refused_before_one_starts(work):
    with pytest.raises(ValueError, match="is in no file"):
        launch.launch(work, 2)


def test_the_layer_is_the_same_each_time_and_leaves_no_gradient():
    (one, x, _), (two, _, _) = distributed_jobs.small_layer(2), distributed_jobs.small_layer(2)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert x.dtype == torch.float64
    assert all(p.grad is None for p in one.parameters())
