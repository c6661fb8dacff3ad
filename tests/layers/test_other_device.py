"""MHA_DEVICE moves the tests of this folder to another device: that it does, tried on the meta device."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from registry import LAYERS
from torch import nn

FOLDER = Path(__file__).parent
MADE = torch.ones(2, 3)  # when this file was read, before any test


def places(given):
    """The kinds of device of tensors made, drawn, filled and given."""
    random = torch.Generator().manual_seed(0)
    drawn, filled = torch.randn(3, generator=random), nn.Linear(2, 3).weight.data.uniform_(generator=random)
    return {x.device.type for x in (torch.zeros(1), drawn, filled, torch.rand(2), LAYERS[2].words(), given)}


@pytest.mark.parametrize("given", [MADE])
def test_everything_is_on_the_device_that_was_asked_for(given):
    assert places(given) == {torch.device(os.environ.get("MHA_DEVICE", "cpu")).type}


def test_a_test_may_go_back_to_the_processor():
    before = torch.get_default_device()
    torch.set_default_device("cpu")
    try:
        assert places(MADE) == {"cpu"}
    finally:
        torch.set_default_device(before)


def test_random_numbers_are_those_of_a_generator_of_the_processor():
    one, other = (torch.Generator().manual_seed(3) for _ in range(2))
    filled, drawn = torch.empty(4).uniform_(generator=one), torch.rand(4, generator=other)
    assert filled.is_meta or torch.equal(filled, drawn)


def test_what_needs_no_numbers_holds_on_the_meta_device_too():
    """In a process of its own: tests that ask only for shapes and devices, and one that returns to the processor."""
    asked = (
        "test_other_device.py::test_everything_is_on_the_device_that_was_asked_for",
        "test_other_device.py::test_a_test_may_go_back_to_the_processor",
        "test_every_layer.py::test_one_row_comes_out_for_each_query[heads]",
        "test_card_paths.py::test_a_layer_stays_on_its_device_and_reads_no_number[rotary heads]",
        "test_other_programs.py::test_a_quantized_layer_computes_and_is_not_taken_for_a_plain_one",
    )
    program = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-o", "addopts="]
    tests = [f"{FOLDER / name}" for name in asked]
    env = os.environ | {"MHA_DEVICE": "meta"}
    ran = subprocess.run([*program, *tests], capture_output=True, text=True, env=env, cwd=FOLDER.parents[1])
    assert ran.returncode == 0, ran.stdout[-3000:]
    assert re.search(r"^4 passed, 1 skipped", ran.stdout, re.MULTILINE), ran.stdout[-3000:]
