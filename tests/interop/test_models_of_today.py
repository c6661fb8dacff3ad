"""What the side room on heads of today says of released models is what their configurations say."""

import pytest

transformers = pytest.importorskip("transformers", reason="transformers is missing: pip install -e '.[interop]'")


def every(layers, kind):
    """At which places of a stack the layers of a kind stand."""
    return [n for n, name in enumerate(layers) if name == kind]


def test_gpt_oss_has_a_window_of_128_words_in_every_other_layer():
    config = transformers.GptOssConfig()
    assert (config.num_attention_heads, config.num_key_value_heads, config.sliding_window) == (64, 8, 128)
    assert every(config.layer_types, "sliding_attention") == [*range(0, config.num_hidden_layers, 2)]


def test_gemma_2_has_a_window_of_4096_words_in_every_other_layer():
    config = transformers.Gemma2Config()
    assert config.sliding_window == 4096
    assert every(config.layer_types, "sliding_attention") == [*range(0, config.num_hidden_layers, 2)]


def test_deepseek_v3_keeps_576_numbers_a_word():
    config = transformers.DeepseekV3Config()
    assert (config.num_attention_heads, config.kv_lora_rank, config.qk_rope_head_dim) == (128, 512, 64)


def test_qwen3_next_has_gated_heads_in_every_fourth_layer_and_the_delta_rule_in_the_others():
    config = transformers.Qwen3NextConfig()
    assert (config.num_attention_heads, config.num_key_value_heads) == (16, 2)
    full = every(config.layer_types, "full_attention")
    assert full == [*range(3, config.num_hidden_layers, 4)]
    assert len(full) + len(every(config.layer_types, "linear_attention")) == config.num_hidden_layers
