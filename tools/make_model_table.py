"""Write mha/course/released/models.json: the attention of released models, read from the library transformers.

    python tools/make_model_table.py

Where the defaults of a configuration class are the released model, nothing is given to it. Where they are not, the
arguments are those of the released checkpoint, and the table shows them. A test reads all models again and compares.
"""

import json

import transformers

from mha.course import released
from mha.course.released import reading

YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 40.0, "original_max_position_embeddings": 4096}
LONG = {"rope_parameters": YARN, "max_position_embeddings": 40 * 4096}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
LONGER = {"rope_parameters": LLAMA3, "max_position_embeddings": 131072}
COMPRESSED = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 65536}
NEMOTRON = "M-M-M-M*-" + 3 * "M-M-M-M-M*-" + "M-M-M-M-M-"


def rope(base, **more):
    """A rotation with another base."""
    return {"rope_parameters": {"rope_type": "default", "rope_theta": base, **more}}


def every(n, kind, other, layers, first=None):
    """A kind in every n-th layer, another one in the rest."""
    first = n - 1 if first is None else first
    return [kind if place % n == first else other for place in range(layers)]


MODELS = (  # name, class of the configuration, arguments of the released checkpoint where its defaults differ
    # heads with keys and values of their own
    ("GPT-2", "GPT2Config", {}),
    ("LLaMA 7B", "LlamaConfig", {}),
    ("Falcon 7B", "FalconConfig", {}),
    ("Gemma 7B", "GemmaConfig", {}),
    ("Llama 3.1 8B", "LlamaConfig", {"num_key_value_heads": 8, **LONGER}),
    (
        "Llama 3.1 70B",
        "LlamaConfig",
        {
            "hidden_size": 8192,
            "num_hidden_layers": 80,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            **LONGER,
        },
    ),
    ("Mixtral 8x7B", "MixtralConfig", {}),
    ("Ministral 3 8B", "Ministral3Config", {}),
    (
        "Qwen2.5 7B",
        "Qwen2Config",
        {
            "hidden_size": 3584,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            **rope(1e6),
        },
    ),
    ("Qwen3 8B", "Qwen3Config", {"num_hidden_layers": 36, "num_key_value_heads": 8, **rope(1e6)}),
    (
        "Qwen3 235B-A22B",
        "Qwen3MoeConfig",
        {
            "hidden_size": 4096,
            "num_hidden_layers": 94,
            "num_attention_heads": 64,
            "num_key_value_heads": 4,
            "head_dim": 128,
            **rope(1e6),
        },
    ),
    ("OLMo 2 7B", "Olmo2Config", rope(5e5)),
    ("Seed-OSS 36B", "SeedOssConfig", rope(1e7)),
    ("GLM-4.5-Air", "Glm4MoeConfig", {"head_dim": 128, **rope(1e6, partial_rotary_factor=0.5)}),
    ("MiniMax-M2", "MiniMaxM2Config", {"rotary_dim": 64}),
    ("SmolLM3 3B", "SmolLM3Config", rope(5e6)),
    # windows and chunks
    ("Mistral 7B v0.1", "MistralConfig", {}),
    ("Gemma 2 2B", "Gemma2Config", {}),
    (
        "Gemma 3 27B",
        "Gemma3TextConfig",
        {
            "hidden_size": 5376,
            "num_hidden_layers": 62,
            "num_attention_heads": 32,
            "num_key_value_heads": 16,
            "head_dim": 128,
            "sliding_window": 1024,
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
            },
        },
    ),
    ("Gemma 3n E4B", "Gemma3nTextConfig", {}),
    ("Gemma 4 (defaults)", "Gemma4TextConfig", {}),
    ("gpt-oss-120b", "GptOssConfig", {}),
    ("Llama 4 Scout", "Llama4TextConfig", {}),
    (
        "Command R7B",
        "Cohere2Config",
        {
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            **rope(5e4),
        },
    ),
    (
        "OLMo 3 7B",
        "Olmo3Config",
        {
            "max_position_embeddings": 8 * 8192,
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 5e5},
                "full_attention": YARN | {"rope_theta": 5e5, "factor": 8.0, "original_max_position_embeddings": 8192},
            },
        },
    ),
    (
        "EXAONE 4.0 32B",
        "Exaone4Config",
        {
            "hidden_size": 5120,
            "num_hidden_layers": 64,
            "num_attention_heads": 40,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 131072,
            "rope_parameters": LLAMA3 | {"rope_theta": 1e6, "factor": 16.0},
        },
    ),
    ("CWM 32B", "CwmConfig", {}),
    ("MiMo-V2-Flash", "MiMoV2FlashConfig", {}),
    ("Muse Spark Open 816B", "MuseSparkTextConfig", {}),
    ("Inkling", "InklingTextConfig", {}),
    # latents
    (
        "DeepSeek-V2",
        "DeepseekV2Config",
        {
            "hidden_size": 5120,
            "num_hidden_layers": 60,
            "num_attention_heads": 128,
            "num_key_value_heads": 128,
            **LONG,
        },
    ),
    ("DeepSeek-V3", "DeepseekV3Config", LONG),
    (
        "Kimi K2",
        "DeepseekV3Config",
        {
            "num_attention_heads": 64,
            "num_key_value_heads": 64,
            "rope_parameters": YARN | {"rope_theta": 5e4, "factor": 32.0},
            "max_position_embeddings": 32 * 4096,
        },
    ),
    ("MiniCPM3 4B", "MiniCPM3Config", {}),
    ("LongCat-Flash", "LongcatFlashConfig", {}),
    ("Mistral Small 4", "Mistral4Config", {}),
    # an index chooses; entries are compressed
    ("DeepSeek-V3.2", "DeepseekV32Config", LONG),
    ("GLM-5", "GlmMoeDsaConfig", {}),
    (
        "GLM-5.2",
        "GlmMoeDsaConfig",
        {"index_topk_freq": 4, "index_skip_topk_offset": 3, "max_position_embeddings": 1048576, **rope(8e6)},
    ),
    ("Hy4 preview", "HYV4Config", {}),
    ("Mistral Large 4", "MistralLarge4TextConfig", {}),
    ("A.X-K2", "AXK2Config", {}),
    ("dots3-note", "Dots3NoteTextConfig", {}),
    (
        "MiniMax-M3",
        "MiniMaxM3VLTextConfig",
        {"layer_types": 3 * ["full_attention"] + 57 * ["minimax_m3_sparse"], **rope(5e6, partial_rotary_factor=0.5)},
    ),
    (
        "DeepSeek-V4-Flash",
        "DeepseekV4Config",
        {"compress_ratios": [0, 0, *20 * [4, 128], 4], "rope_parameters": COMPRESSED},
    ),
    (
        "DeepSeek-V4-Pro",
        "DeepseekV4Config",
        {
            "hidden_size": 7168,
            "num_hidden_layers": 61,
            "num_attention_heads": 128,
            "index_topk": 1024,
            "rope_parameters": COMPRESSED,
        },
    ),
    # layers with a state
    ("RecurrentGemma 2B", "RecurrentGemmaConfig", {"num_key_value_heads": 1}),
    ("Jamba v0.1", "JambaConfig", {}),
    ("Zamba2 2.7B", "Zamba2Config", {}),
    (
        "MiniMax-Text-01",
        "MiniMaxConfig",
        {
            "hidden_size": 6144,
            "num_hidden_layers": 80,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "layer_types": every(8, "full_attention", "linear_attention", 80),
            **rope(1e7),
        },
    ),
    ("Nemotron-H 8B", "NemotronHConfig", {"hybrid_override_pattern": NEMOTRON}),
    (
        "Falcon-H1 7B",
        "FalconH1Config",
        {
            "hidden_size": 3072,
            "num_hidden_layers": 44,
            "num_attention_heads": 12,
            "num_key_value_heads": 2,
            "head_dim": 128,
            "mamba_d_ssm": 3072,
            "mamba_n_heads": 24,
            "mamba_d_head": 128,
            **rope(1e11),
        },
    ),
    (
        "Granite 4.0 H Small",
        "GraniteMoeHybridConfig",
        {
            "num_hidden_layers": 40,
            "num_key_value_heads": 8,
            "mamba_d_state": 128,
            "layer_types": every(10, "full_attention", "linear_attention", 40, 5),
        },
    ),
    (
        "LFM2 1.2B",
        "Lfm2Config",
        {
            "hidden_size": 2048,
            "num_hidden_layers": 16,
            "layer_types": ["full_attention" if n in (2, 5, 8, 10, 12, 14) else "conv" for n in range(16)],
        },
    ),
    ("LFM3 1.7B", "Lfm3Config", {}),
    ("Qwen3-Next 80B-A3B", "Qwen3NextConfig", rope(1e7, partial_rotary_factor=0.25)),
    ("Qwen3.5 35B-A3B", "Qwen3_5MoeTextConfig", rope(1e7, partial_rotary_factor=0.25)),
    ("OLMo-Hybrid 7B", "OlmoHybridConfig", rope(None)),
    (
        "Kimi Linear 48B-A3B",
        "KimiLinearConfig",
        {"layer_types": [*every(4, "full_attention", "linear_attention", 26), "full_attention"]},
    ),
    ("Ling-3.0-Flash", "BailingHybridConfig", {}),
    ("GLM-5.3-Flash", "Glm5NextTextConfig", {}),
)


def read():
    """All models, read anew."""
    return [reading.read(config, arguments, name=name) for name, config, arguments in MODELS]


def text():
    """What the file holds."""
    return json.dumps(released.packed(read(), transformers.__version__), indent=1) + "\n"


if __name__ == "__main__":
    released.STORE.write_text(text(), "utf8", newline="\n")
    print(f"{len(MODELS)} models in {released.STORE.name}")
