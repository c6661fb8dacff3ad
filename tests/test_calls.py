"""Every public name, called as careless users do: right, or refused by name with what was given; never silent."""

import importlib.util
import signal
import subprocess
import sys
import zlib
from collections import Counter
from pathlib import Path

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, given, seed, settings

PROGRAM = Path(__file__).with_name("calls.py")
spec = importlib.util.spec_from_file_location("calls", PROGRAM)
calls = sys.modules["calls"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(calls)

TARGETS = calls.targets()
KINDS = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
    torch.complex64,
)


@pytest.fixture(autouse=True)
def alarm():
    before = signal.signal(signal.SIGPROF, calls.alarm)
    yield
    signal.signal(signal.SIGPROF, before)


def test_the_public_lists_are_long():
    assert len(TARGETS) > 230
    assert {"mha.attend", "mha.MultiHeadAttention.forward", "mha.viz.plot.grid"} <= TARGETS.keys()


def test_every_public_name_can_be_called_as_it_should_be(reader):
    for target in TARGETS.values():
        calls.right(target)


numbers = st.integers(-9, 40) | st.floats() | st.complex_numbers() | st.booleans()
texts = (
    st.none() | st.text(max_size=5) | st.binary(max_size=3) | st.sampled_from(["half", "qkv", "share", "gelu", "cpu"])
)
tensors = st.builds(
    lambda shape, kind: (9 * torch.rand(shape) - 2).to(kind),
    st.lists(st.integers(0, 5), max_size=5),
    st.sampled_from(KINDS),
)
simple = numbers | texts | tensors
nested = (
    st.lists(simple, max_size=3) | st.dictionaries(st.text(max_size=2), simple, max_size=2) | st.tuples(simple, simple)
)
values = simple | nested | st.builds(lambda make: make(), st.sampled_from(calls.bad_values()))


EXAMPLES = 2500
SHARES = 6  # more such draws in the slow tier: one of 15,000 takes far longer than six of 2,500


@pytest.mark.parametrize("draw", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 1 + SHARES))])
def test_a_wrong_argument_is_refused_by_name_and_never_silently_taken(reader, draw):
    found, unclear = Counter(), []
    arguments = [(target, name) for target in TARGETS.values() for name in calls.parameters(target)]

    @seed(draw)
    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(arguments), values)
    def one_call(where, value):
        torch.manual_seed(0)
        verdict, finding = calls.call(*where, lambda: value)
        found[verdict] += 1
        if finding and finding.kind == "unclear":
            unclear.append(finding)
        assert finding is None or finding.kind == "unclear", finding

    one_call()
    assert found["refused"] > 0.5 * EXAMPLES
    assert len(unclear) <= calls.UNCLEAR * found["refused"], unclear[:20]


@pytest.mark.slow
def test_half_of_ninety_thousand_calls_with_what_careless_users_give():
    """Which half, the code of the package decides: after each change it is another one."""
    files = sorted((PROGRAM.parents[1] / "mha").rglob("*.py"))
    drawn = zlib.crc32(b"".join(path.read_bytes() for path in files))
    asked = [sys.executable, PROGRAM, "--calls", "45000", "--seed", str(drawn)]
    done = subprocess.run(asked, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
