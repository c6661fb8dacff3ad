"""What goes together: the page says what the layers do now, and the program that writes it can say no."""

import dataclasses
import re
from pathlib import Path

import pytest
import torch
from programs import load

import mha
from mha.course.comparison.conversion_table import Row
from mha.interop import delta, hugging_face

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tool():
    """The program that tries all layers."""
    return load("tools/make_compatibility.py")


def test_the_page_says_what_the_layers_do_now(tool):
    pytest.importorskip("transformers", reason="transformers is missing: pip install -e '.[interop]'")
    torch.set_default_dtype(torch.float32)
    assert tool.PAGE.read_text("utf8") == tool.page(), "python tools/make_compatibility.py"


def test_every_class_of_another_library_that_can_be_read_is_in_the_table(tool):
    page = tool.PAGE.read_text("utf8").partition("\n## Attention of other libraries")[2]
    rows = [line.split(" | ") for line in page.splitlines() if " | `" in line]
    assert {row[1].strip("`") for row in rows} == {"nn.MultiheadAttention", *hugging_face.PLANS}
    assert {row[3] for row in rows} == {"same bits"}
    assert {cell for row in rows for cell in row[4:6]} == {"<1e-12", "<1e-06"}


def test_every_class_of_linear_attention_that_can_be_read_is_named(tool):
    page = tool.PAGE.read_text("utf8").partition("\n**Linear attention.**")[2]
    assert [name for name in delta.MODELS if f"`{name}`" not in page] == []


def test_a_wrong_number_and_a_missing_one_are_said(tool, monkeypatch):
    rows = [Row("torch", "One", "", 1e-14, True, 0.2), Row("torch", "One", "", 0.5, False, 1e-8, 1e-9)]
    monkeypatch.setattr(tool, "interop_table", lambda: rows)
    assert tool.classes()[-1] == "| torch | `One` | 2 | changed | 5e-01 | 2e-01 | <1e-06 |"
    rows[1] = dataclasses.replace(rows[1], error=float("nan"))
    with pytest.raises(ValueError, match="must be finite"):
        tool.classes()


def test_every_kind_of_layer_is_tried(tool):
    tried = {type(tool.Trial(name).layer) for name in tool.NAMES}
    direct = mha.Heads.__subclasses__()
    kinds = {*direct, *(below for kind in direct for below in kind.__subclasses__())}
    assert tried == {kind for kind in kinds if kind.__module__.startswith("mha.layers.")}


def test_every_no_has_a_reason_that_says_more_than_no(tool):
    page = tool.PAGE.read_text("utf8")
    reasons = re.findall(r"^\d+\. .*?: \*(.*)\*$", page, re.MULTILINE)
    assert len(reasons) == len(re.findall(r"no \[\d+\]", page)) > 10
    assert min(map(len, reasons)) > 30


def test_numbers_that_are_wrong_are_no_yes(tool, monkeypatch):
    monkeypatch.setattr(mha.KeyValueCache, "update", lambda self, k, v: (k, v))  # forgets
    with pytest.raises(AssertionError, match="other numbers"):
        tool.tried("plain", "cache")


def test_an_error_that_is_no_refusal_is_not_taken_for_one(tool, monkeypatch):
    monkeypatch.setitem(tool.COLUMNS, "cache", lambda trial: trial.nothing)
    with pytest.raises(AttributeError):
        tool.tried("plain", "cache")
