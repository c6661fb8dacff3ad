"""Every layer compiles whole and exports once for all lengths, and computes there what it computes here.

This runs in a process of its own, without the checks of annotations that the tests switch on, because they are no part
of a graph. One entry is tried in the fast tests, all others in the slow ones. By itself:

    PYTHONPATH=tests/layers:tests python tests/layers/test_compiled.py "heads" "rotary heads"
"""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from oracle import LIMIT, error
from registry import LAYERS

HERE = Path(__file__).resolve()
LENGTHS = (5, 8, 70)  # the last one is longer than the chunks of every layer
STEPS = 8  # the longest memory that the feedback layer of the registry can be exported for: its tables end at 9

# Why a layer cannot be compiled or exported, by the name of its entry and the way.
CANNOT: dict[str, str] = {}


def asked(entry, layer, n):
    """Arguments of one call at length n: self-attention under the causal mask where the layer has it."""
    x = entry.words(n, batch=2)
    if entry.alone or entry.needs_is_causal:
        return (x,), {"is_causal": True}
    random = torch.Generator().manual_seed(n)
    widths = layer.W_k.in_features, layer.W_v.in_features
    key, value = (torch.randn(2, n, width, generator=random, dtype=x.dtype) for width in widths)
    return (x[:, :1].contiguous() if "feedback" in entry.name else x, key, value), {}


def compiled(layer, *_):
    """The layer as one graph."""
    return torch.compile(layer, fullgraph=True, backend="eager")


def exported(layer, given, how, longest):
    """The layer as a program that takes every length."""
    length = torch.export.Dim("length", min=2, max=longest)
    shapes = [{1: length} if x.shape[1] > 1 else {} for x in given]
    dynamic = dict(zip(("query", "key", "value"), shapes, strict=False)) | dict.fromkeys(how)
    return torch.export.export(layer, given, how, dynamic_shapes=dynamic).module()


@torch.no_grad()
def tried(entry):
    """What went wrong in each way; empty texts where nothing did."""
    layer, found = entry.build().eval(), {}
    longest = STEPS if "feedback" in entry.name else 512
    for way in (compiled, exported):
        torch.compiler.reset()
        try:
            program = way(layer, *asked(entry, layer, 7), longest)
            for n in (n for n in LENGTHS if n <= longest):
                given, how = asked(entry, layer, n)
                off = float(error(program(*given, **how), layer(*given, **how)))
                assert off < LIMIT, f"length {n}: differs by {off}"
            found[way.__name__] = ""
        except Exception as refusal:
            found[way.__name__] = f"{type(refusal).__name__}: {refusal}"
    return found


def try_in_a_process_of_its_own(entries):
    ran = subprocess.run(
        [sys.executable, HERE, *(e.name for e in entries)],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": f"{HERE.parents[2]}:{HERE.parent}:{HERE.parents[1]}", "PATH": "", "HOME": str(HERE.parent)},
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout.splitlines()[-1])


def check(entries):
    found = try_in_a_process_of_its_own(entries)
    assert set(found) == {e.name for e in entries}
    wrong = {f"{name}, {way}": why for name, ways in found.items() for way, why in ways.items() if why}
    for name, reason in CANNOT.items():
        if name.rpartition(", ")[0] in found:
            assert reason in wrong.pop(name, ""), f"{name}: it should fail because of {reason!r}"
    assert not wrong


FIRST = [e for e in LAYERS if e.name == "from latents, normed"]


def test_a_layer_compiles_and_exports():
    check(FIRST)


@pytest.mark.slow
def test_every_other_layer_compiles_and_exports():
    check([e for e in LAYERS if e not in FIRST])


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    print(json.dumps({e.name: tried(e) for e in LAYERS if e.name in sys.argv[1:]}))
