"""Chapter 18 says how many keys released models read: these are the defaults of their classes in transformers."""

import ast
from pathlib import Path

import nbformat
import pytest

NOTEBOOK = Path(__file__).resolve().parents[2] / "notebooks" / "18_select.ipynb"
OF_TOKENS = "index_n_heads", "index_head_dim", "index_topk"
OF_BLOCKS = "index_n_heads", "index_head_dim", "index_topk_blocks", "index_block_size"
CLASSES = {
    "DeepSeek-V3.2": ("DeepseekV32Config", OF_TOKENS),
    "GLM-5": ("GlmMoeDsaConfig", OF_TOKENS),
    "HY-V4": ("HYV4Config", OF_TOKENS),
    "Mistral-Large-4": ("MistralLarge4TextConfig", OF_TOKENS),
    "MiniMax-M3": ("MiniMaxM3VLTextConfig", OF_BLOCKS),
}


def of_the_chapter():
    (source,) = (
        cell.source for cell in nbformat.read(NOTEBOOK, as_version=4).cells if cell.source.startswith("RELEASED = {")
    )
    return ast.literal_eval(source.removeprefix("RELEASED = "))


def test_the_chapter_names_the_classes_that_are_compared_here():
    assert list(of_the_chapter()) == list(CLASSES)


@pytest.mark.parametrize("name", CLASSES)
def test_the_sizes_of_an_index_are_those_of_the_released_class(name):
    transformers = pytest.importorskip("transformers")
    kind, settings = CLASSES[name]
    if not hasattr(transformers, kind):
        pytest.skip(f"this version of transformers has no {kind}")
    config = getattr(transformers, kind)()
    sizes = [getattr(config, setting) for setting in settings]
    assert of_the_chapter()[name] == (*sizes, *([1] if settings is OF_TOKENS else []))


def test_the_sizes_of_the_bill_are_those_of_deepseek():
    transformers = pytest.importorskip("transformers")
    if not hasattr(transformers, "DeepseekV32Config"):
        pytest.skip("this version of transformers has no DeepseekV32Config")
    config = transformers.DeepseekV32Config()
    assert (config.num_attention_heads, config.kv_lora_rank, config.qk_rope_head_dim) == (128, 512, 64)


def test_so_many_layers_of_a_released_model_have_an_index():
    """The pattern of GLM-5.2's checkpoint, in its class."""
    transformers = pytest.importorskip("transformers")
    config = transformers.GlmMoeDsaConfig(num_hidden_layers=78, index_topk_freq=4, index_skip_topk_offset=3)
    full = [n for n, kind in enumerate(config.indexer_types) if kind == "full"]
    said = f"{len(full)} of 78 layers have an index ({', '.join(map(str, full[:6]))}, …)"
    assert said in " ".join(" ".join(cell.source for cell in nbformat.read(NOTEBOOK, as_version=4).cells).split())
