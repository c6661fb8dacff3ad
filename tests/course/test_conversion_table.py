"""The table of what converts: every class, both ways, measured; a wrong conversion would show in it."""

import dataclasses

import pytest
import torch

from mha.course.comparison import conversion_table
from mha.course.comparison.conversion_table import interop_table, torch_cases
from mha.interop import hugging_face
from mha.interop.hugging_face import from_transformers


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers", reason="transformers is missing: pip install -e '.[interop]'")


def test_every_class_converts_both_ways_and_the_table_says_so(transformers):
    rows = interop_table()
    print("\n" + "\n".join(map(str, rows)))
    assert {row.module for row in rows} == {"nn.MultiheadAttention", *hugging_face.PLANS}
    in_float32 = {
        "DeepseekV2Attention",
        "DeepseekV3Attention",
        "DeepseekV32Attention",
        "Qwen3Attention",
        "Qwen3NextAttention",
    }  # their norms, whatever the type of the weights
    limits = {row: 1e-6 if row.module in in_float32 else 1e-12 for row in rows}
    assert [row.options for row in rows if not max(row.error, row.gradient, row.cache or 0) < limits[row]] == []
    assert [row.options for row in rows if not row.round_trip] == []
    assert all(len(str(row)) <= 110 for row in rows)
    without = {"nn.MultiheadAttention", "AlbertAttention", "ViTAttention"}
    assert {row.module for row in rows if row.cache is not None} == {row.module for row in rows} - without


def test_without_transformers_the_table_holds_torch_only(monkeypatch):
    monkeypatch.setattr(conversion_table, "find_spec", lambda _name: None)
    rows = interop_table()
    assert {row.library for row in rows} == {"torch"}
    assert all(max(row.error, row.gradient) < 1e-12 and row.round_trip for row in rows)


def test_the_table_would_show_a_wrong_conversion():
    case = next(torch_cases())

    def read_wrongly(module):
        layer = case.read(module)
        layer.W_q, layer.W_k = layer.W_k, layer.W_q
        return layer

    with torch.no_grad():
        row = conversion_table._measured(dataclasses.replace(case, read=read_wrongly))
    assert row.error > 1e-3
    assert row.gradient > 1e-3
    assert not row.round_trip
    assert "CHANGED" in str(row)


def test_the_table_would_show_a_cache_that_forgets(transformers, monkeypatch):
    case = next(conversion_table.gpt2_cases())
    with torch.no_grad():
        module = conversion_table._random(case.make())
        layer = from_transformers(module)
        assert conversion_table._distance(*case.cached(layer, module)) < 1e-12
        alone = type(layer).forward
        monkeypatch.setattr(layer, "forward", lambda x, mask, cache: alone(layer, x, is_causal=True))
        assert conversion_table._distance(*case.cached(layer, module)) > 1e-3


@pytest.mark.parametrize(("error", "said"), [(None, "–"), (0.0, "<1e-12"), (2e-12, "<1e-06"), (0.03, "3e-02")])
def test_an_error_is_said_with_its_limit(error, said):
    assert conversion_table.below(error) == said
    with pytest.raises(ValueError, match="must be finite"):
        conversion_table.below(float("nan"))
