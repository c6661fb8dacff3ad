"""What goes together: the page says what the layers do now, and the program that writes it can say no."""

import re
from pathlib import Path

import pytest
import torch
from programs import load

import mha
from mha.layers import base

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tool():
    """The program that tries all layers."""
    return load("tools/make_compatibility.py")


def test_the_page_says_what_the_layers_do_now(tool):
    torch.set_default_dtype(torch.float32)
    assert tool.PAGE.read_text("utf8") == tool.page(), "python tools/make_compatibility.py"


def test_every_kind_of_layer_is_tried(tool):
    tried = {type(tool.Trial(name).layer) for name in tool.NAMES}
    kinds = {kind for kind in base.Heads.__subclasses__() if kind.__module__.startswith("mha.")}
    assert tried == kinds


def test_every_no_has_a_reason_that_says_more_than_no(tool):
    page = tool.PAGE.read_text("utf8")
    reasons = re.findall(r"^\d+\. .*?: \*(.*)\*$", page, re.MULTILINE)
    assert len(reasons) == len(re.findall(r"no \[\d+\]", page)) > 10
    assert min(map(len, reasons)) > 30


def test_numbers_that_are_wrong_are_no_yes(tool, monkeypatch):
    monkeypatch.setattr(mha.KeyValueCache, "recall", lambda self, layer, key, value, fresh: fresh())  # forgets
    with pytest.raises(AssertionError, match="other numbers"):
        tool.tried("plain", "cache")


def test_an_error_that_is_no_refusal_is_not_taken_for_one(tool, monkeypatch):
    monkeypatch.setitem(tool.COLUMNS, "cache", lambda trial: trial.nothing)
    with pytest.raises(AttributeError):
        tool.tried("plain", "cache")
