"""The table of released models: read again it is the same; its sizes are those of the library's modules and caches."""

import dataclasses
import inspect
import json
from pathlib import Path

import pytest
import torch
from programs import load

import mha
from mha.course import released
from mha.course.released import Index, Layers, Model, Positions, Table, reading

ROOM = Path(__file__).resolve().parents[2] / "notebooks" / "26e_heads_of_today.ipynb"
CONTENT = json.loads(released.STORE.read_text("utf8"))
SMALL = {  # what a configuration has of these makes a model that a test can run
    "vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 8, "intermediate_size": 32, "moe_intermediate_size": 16, "num_experts": 2, "num_local_experts": 2,
    "n_routed_experts": 2, "num_experts_per_tok": 1, "num_experts_per_token": 1, "sliding_window": 8,
    "attention_chunk_size": 8, "q_lora_rank": 16, "kv_lora_rank": 12, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8,
    "v_head_dim": 8, "index_n_heads": 2, "index_head_dim": 8, "index_topk": 4, "n_group": 1, "topk_group": 1,
    "num_expert_group": 1, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
    "linear_value_head_dim": 8, "linear_head_dim": 8, "linear_num_heads": 4, "mamba_num_heads": 4,
    "mamba_head_dim": 16, "ssm_state_size": 8, "n_groups": 2, "mamba_n_heads": 4, "mamba_d_head": 16,
    "mamba_d_state": 8, "mamba_d_ssm": 64, "mamba_n_groups": 1, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "shared_expert_intermediate_size": 16, "moe_shared_expert_intermediate_size": 16,
    "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 50,
}  # fmt: skip
ALIKE = {"num_key_value_heads": 4}
MIXED = {"layer_types": 2 * ["sliding_attention", "full_attention"]}
WITH_STATE = {"layer_types": 2 * ["linear_attention", "full_attention"]}
CACHES = {
    "LlamaConfig": {},
    "Gemma3TextConfig": MIXED,
    "Gemma3nTextConfig": {
        **MIXED, "num_kv_shared_layers": 2, "intermediate_size": 4 * [32], "laurel_rank": 4,
        "activation_sparsity_pattern": 4 * [0.0],
    },
    "Gemma4TextConfig": MIXED,
    "GptOssConfig": {},
    "Llama4TextConfig": {},
    "MiMoV2FlashConfig": MIXED,
    "InklingTextConfig": {
        "swa_num_attention_heads": 4, "swa_num_key_value_heads": 2, "swa_head_dim": 8, "sliding_window_size": 8,
        "layer_types": 2 * ["hybrid_sliding", "hybrid"],
    },
    "DeepseekV3Config": ALIKE,
    "DeepseekV32Config": ALIKE,
    "HYV4Config": {**ALIKE, "indexer_types": ["full", "full", "shared", "shared"]},
    "MiniMaxM3VLTextConfig": {
        "layer_types": 2 * ["full_attention", "minimax_m3_sparse"], "rotary_dim": 4, "index_block_size": 4,
        "index_topk_blocks": 2,
    },
    "DeepseekV4Config": {
        "num_key_value_heads": 1, "compress_ratios": [0, 4, 128, 4], "head_dim": 16, "o_groups": 2, "o_lora_rank": 8,
    },
    "Qwen3NextConfig": {},
    "OlmoHybridConfig": {},
    "KimiLinearConfig": {**ALIKE, **WITH_STATE},
    "BailingHybridConfig": {**ALIKE, "layer_group_size": 2},
    "NemotronHConfig": {"hybrid_override_pattern": "M-M*"},
    "FalconH1Config": {},
    "GraniteMoeHybridConfig": WITH_STATE,
    "JambaConfig": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "Zamba2Config": {
        **ALIKE, "layers_block_type": 2 * ["linear_attention", "hybrid"], "n_mamba_heads": 4, "attention_head_dim": 16,
    },
    "Lfm3Config": {"layer_types": ["conv", "sliding_attention", "conv", "full_attention"]},
}  # fmt: skip
KEPT = ("keys", "values", "indexer_keys", "idx_keys", "compressed_kv")
FULL, LOCAL = {"layer_types": ["full_attention"]}, {"layer_types": ["sliding_attention"]}
AFTER = {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]}
POSITIONS = [  # one layer of heads (behind one with a state), and whether it knows where its keys are
    ("Cohere2Config", FULL, False),
    ("Cohere2Config", LOCAL, True),
    ("Exaone4Config", FULL, False),
    ("Exaone4Config", LOCAL, True),
    ("SmolLM3Config", {"no_rope_layers": [0]}, False),
    ("SmolLM3Config", {"no_rope_layers": [1]}, True),
    ("Llama4TextConfig", {"no_rope_layers": [0]}, False),
    ("Llama4TextConfig", {"no_rope_layers": [1]}, True),
    ("GptOssConfig", FULL, True),
    ("NemotronHConfig", {"hybrid_override_pattern": "M*"}, False),
    ("JambaConfig", {"num_hidden_layers": 2, "attn_layer_period": 2, "attn_layer_offset": 1}, False),
    ("GraniteMoeHybridConfig", AFTER, False),
    ("GraniteMoeHybridConfig", {**AFTER, "position_embedding_type": "rope"}, True),
    ("OlmoHybridConfig", AFTER, True),
    ("OlmoHybridConfig", {**AFTER, "rope_parameters": {"rope_type": "default", "rope_theta": None}}, False),
    ("KimiLinearConfig", {**ALIKE, **AFTER}, False),
    ("BailingHybridConfig", {**ALIKE, "num_hidden_layers": 2, "layer_group_size": 2}, True),
    ("DeepseekV3Config", ALIKE, True),
]


@pytest.fixture(scope="module")
def transformers():
    """The library, in the version that the table was made with."""
    found = pytest.importorskip("transformers", reason="transformers is missing: pip install -e '.[interop]'")
    if found.__version__ != CONTENT["transformers"]:
        pytest.skip(f"the table was made with transformers {CONTENT['transformers']}, this is {found.__version__}")
    before = found.logging.get_verbosity()
    found.logging.set_verbosity_error()
    yield found
    found.logging.set_verbosity(before)


@pytest.fixture(scope="module")
def tool(transformers):
    """The program that makes the table."""
    return load("tools/make_model_table.py")


def small(config, more):
    """The arguments that make a small model of a family."""
    family = reading.FAMILIES[config]
    name = f"transformers.models.{family.folder}.configuration_{family.folder}"
    kind = getattr(pytest.importorskip(name), config)
    known = {field.name for field in dataclasses.fields(kind)} | set(kind.attribute_map)
    return kind, {key: value for key, value in SMALL.items() if key in known} | more


def made(transformers, config, more):
    """A small model of a family with random parameters, and what the table says of it."""
    kind, arguments = small(config, more)
    torch.manual_seed(0)
    with torch.random.fork_rng():
        model = transformers.AutoModelForCausalLM.from_config(kind(**arguments), attn_implementation="eager")
    return model.float().eval(), reading.read(config, arguments)


def test_the_file_was_not_edited_by_hand():
    assert CONTENT["sha256"] == released.digest(CONTENT)
    assert released.digest(CONTENT | {"tokens": [1]}) != CONTENT["sha256"]
    assert CONTENT["tokens"] == list(released.TOKENS)
    for entry, model in zip(CONTENT["models"], released.models(), strict=True):
        assert entry["kept"] == [model.kept(n) for n in released.TOKENS]
        assert entry["flops"] == [model.flops(n) for n in released.TOKENS]
    names = [model.name for model in released.models()]
    assert len(set(names)) == len(names) >= 40
    assert {model.config for model in released.models()} <= set(reading.FAMILIES)


def test_the_table_is_what_the_library_says_now(tool):
    assert released.STORE.read_text("utf8") == tool.text(), "python tools/make_model_table.py"


def test_every_model_has_the_sizes_of_its_modules(tool):
    """Not the configuration is asked, but the matrices that the library makes from it."""
    compared = set()
    for name, config, arguments in tool.MODELS:
        family = reading.FAMILIES[config]
        home = pytest.importorskip(f"transformers.models.{family.folder}.configuration_{family.folder}")
        built = getattr(home, config)(**arguments)
        built._attn_implementation = "eager"
        for first, found in family.read(built):
            if not found.heads:
                continue
            parts = dict(reading.module(built, first).named_parameters())
            sizes = {key.removesuffix(".weight"): value.shape for key, value in parts.items()}
            if "latent" in found.kind:
                assert sizes["kv_a_proj_with_mqa"][0] == found.row == found.key, name
                assert sizes["kv_a_layernorm"] == (found.value,), name
                queries = sizes.get("q_b_proj", sizes.get("q_proj"))
                if queries is None:
                    assert "q_gate_proj" in sizes, name  # queries and gates in one matrix
                else:
                    assert queries[0] == found.heads * (found.head + found.key - found.value), name
                own = found.index is not None and found.index.heads
                assert ("indexer.wk" in sizes) == bool(own), name
                if own:
                    assert sizes["indexer.wk"][0] == found.index.width, name
                    assert sizes["indexer.wq_b"][0] == found.index.heads * found.index.width, name
            elif found.kv_heads == 1 and "kv_proj" in sizes:
                assert sizes["kv_proj"][0] == found.row == found.key == found.value, name
                assert sizes["sinks"] == (found.heads,), name
            elif "k_proj" in sizes:
                assert sizes["k_proj"][0] == found.kv_heads * found.key, name
                assert sizes["v_proj"][0] == found.kv_heads * found.value, name
                assert sizes["q_proj"][0] in (found.heads * found.key, 2 * found.heads * found.key), name
                assert found.row == sizes["k_proj"][0] + sizes["v_proj"][0], name
            elif "query_key_value" in sizes:
                assert sizes["query_key_value"][0] == (found.heads + 2 * found.kv_heads) * found.key, name
            elif "c_attn" in sizes:
                assert sizes["c_attn"][1] == (found.heads + 2 * found.kv_heads) * found.key, name
            else:
                assert found.row == 0, name
                assert sizes["q_proj"][0] == found.heads * found.key, name
            compared.add(name)
    assert len(compared) == len(tool.MODELS)


@pytest.mark.parametrize("config", CACHES)
def test_as_many_numbers_are_kept_as_the_library_caches(transformers, config):
    model, found = made(transformers, config, CACHES[config])
    kernel = {"Lfm3Config": 7}.get(config, 4)
    for n in (7, 40):
        with torch.no_grad():
            cache = model(torch.arange(3, 3 + n)[None] % 50, use_cache=True).past_key_values
        numbers = {"rows": 0, "conv_states": 0, "recurrent_states": 0}
        for layer in cache.layers:
            seen = []  # where a row is key and value, it is stored under both names
            for key, value in vars(layer).items():
                key = "rows" if key in KEPT else key
                parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
                for part in parts:
                    if key not in numbers or not isinstance(part, torch.Tensor):
                        continue
                    if not any(torch.equal(part, other) for other in seen):
                        numbers[key] += part.numel()
                        seen.append(part)
        # a window keeps one row less there: that of the next token takes its place; and a convolution one token more
        spared = sum(layer.count * layer.row for layer in found.layers if layer.span is not None and n >= layer.span)
        recent = numbers["conv_states"] * (kernel - 1) // kernel
        assert found.kept(n) == 2 * (numbers["rows"] + spared + recent) + 4 * numbers["recurrent_states"], n


@pytest.mark.parametrize(
    ("config", "more", "known"), POSITIONS, ids=[f"{n} {config}" for n, (config, _, _) in enumerate(POSITIONS)]
)
def test_positions_are_known_where_the_table_says_so(transformers, config, more, known):
    model, found = made(transformers, config, {"num_hidden_layers": 1} | more)
    ids = torch.arange(3, 10)[None]
    places = torch.arange(7)[None]
    with torch.no_grad():
        near, far = (
            model(ids, attention_mask=torch.ones(1, 7), position_ids=p, use_cache=False).logits
            for p in (places, 3 * places)
        )
    assert (found.layers[-1].positions.kind == "rotary") == known
    assert torch.equal(near, far) == (not known)


def test_flops_are_those_of_our_layers():
    def counted(layer, tokens):
        parts = layer.bfloat16().cost(1, 1, tokens, fresh=1).parts
        return sum(parts[name].flops for name in ("scores", "read", "write") if name in parts)

    with torch.device("meta"):
        grouped = mha.GroupedAttention(4096, 32, 8, bias=False)
        latent = mha.LatentAttention(7168, 128, 512, d_rotary=64, bias=False)
        delta = mha.DeltaAttention(4096, 32, bias=False)
    (llama,), (deepseek,) = released.model("Llama 3.1 8B").layers, released.model("DeepSeek-V3").layers
    state, _ = released.model("Qwen3-Next").layers
    for tokens in released.TOKENS:
        assert llama.flops(tokens) == counted(grouped, tokens)
        assert deepseek.flops(tokens) == counted(latent, tokens)
        assert state.flops(tokens) == counted(delta, tokens)
        assert llama.kept(tokens) == grouped.bfloat16().cost(1, 1, tokens, fresh=1).cache
        assert deepseek.kept(tokens) == latent.bfloat16().cost(1, 1, tokens, fresh=1).cache


def test_windows_entries_and_indices_are_counted_by_hand():
    window = Layers("window", 1, heads=4, kv_heads=2, key=8, value=8, row=32, span=10)
    assert [window.read(n) for n in (7, 10, 40)] == [7, 10, 10]
    assert [window.kept(n) for n in (7, 40)] == [2 * 7 * 32, 2 * 10 * 32]
    both = dataclasses.replace(window, every=4, index=Index(2, 8, 4, 5))
    assert [both.read(n) for n in (7, 12, 40)] == [8, 13, 15]
    assert both.kept(40) == 2 * (20 * 32 + 10 * 8)
    assert both.flops(40) == 2 * 4 * 16 * 15 + 2 * 2 * 8 * 10
    borrowed = dataclasses.replace(both, index=Index(0, 0, 4, 5))
    assert borrowed.kept(40) == 2 * 20 * 32
    assert borrowed.flops(40) == 2 * 4 * 16 * 15


def test_what_is_known_of_some_models_from_their_papers():
    def of(name):
        return released.model(name).layers

    assert all(layer.sink for layer in of("gpt-oss"))
    assert [layer.sink for layer in of("MiMo")] == [False, True]
    assert {layer.gate for layer in of("Qwen3-Next") if layer.heads} == {"per channel"}
    assert {layer.gate for layer in of("dots3")} == {"per head"}
    assert [of(name)[0].qk_norm for name in ("Qwen3 8B", "OLMo 2", "DeepSeek-V3", "LLaMA 7B")] == [
        "per head", "all heads", "latent", "",
    ]  # fmt: skip
    assert [layer.cap for layer in of("Gemma 2 2B")] == [50.0, 50.0]
    assert [layer.positions.base for layer in of("Gemma 3 27B")] == [1e4, 1e6]
    assert [layer.positions.kind for layer in of("Llama 4 Scout")] == ["rotary", "none"]
    assert of("DeepSeek-V3.2")[0].index == Index(64, 128, 1, 2048)
    assert of("DeepSeek-V3")[0].head == 128
    assert of("Falcon 7B")[0].kv_heads == 1
    assert [(layer.count, layer.index.heads) for layer in of("GLM-5.2")] == [(21, 32), (57, 0)]
    (blocks,) = (layer for layer in of("MiniMax-M3") if layer.index)
    assert blocks.index == Index(4, 128, 1, 2048, 128)
    assert "index 4 × 128, reads 2,048 in blocks of 128" in str(blocks)
    (pools,) = (layer for layer in of("GLM-5.3-Flash") if layer.index)
    assert pools.index == Index(32, 128, 16, 2048, 16)
    assert "one index key per 16 tokens, reads 2,048 in blocks of 16" in str(pools)
    assert "index key per" not in str(released.model("DeepSeek-V4-Flash"))  # its entries have one each


def test_a_model_without_a_row_leaves_the_sizes_of_its_index_to_the_checkpoint(transformers):
    config = transformers.Qwen4ExpTextConfig()
    assert "indexed_attention" in config.layer_types
    assert [config.indexer_n_heads, config.indexer_head_dim, config.indexer_budget] == [None] * 3


def more(layer):
    """Numbers that a layer keeps for one more token of a long sequence."""
    return (layer.kept(2 * 131072) - layer.kept(131072)) / 131072 / released.NUMBER


def seen(name, kind, **fields):
    """The layers of a kind that a model has; there are some, and they have these sizes."""
    found = [layer for layer in released.model(name).layers if layer.kind == kind]
    assert found, (name, kind)
    assert all(getattr(layer, field) == value for layer in found for field, value in fields.items()), (name, kind)
    return found[0]


def in_each(name, layer):
    """The share of a model's layers that are of this kind."""
    return layer.count / sum(one.count for one in released.model(name).layers)


def test_what_the_room_on_current_llms_says_of_released_models_is_in_the_table():
    (text,) = (
        source
        for source in ("".join(cell["source"]) for cell in json.loads(ROOM.read_text("utf8"))["cells"])
        if source.startswith("## Which models use which")
    )
    rows = {line.split(" | ")[0][2:]: line for line in text.splitlines() if line.startswith("| ")}
    del rows["layer"]

    def says(row, *parts):
        assert [part for part in parts if part not in rows[row]] == [], row
        del rows[row]

    plain, one = seen("LLaMA 7B", "full"), seen("Falcon 7B", "full", kv_heads=1)
    some = seen("Llama 3.1 8B", "full")
    for layer in (plain, one, some):
        assert more(layer) == 2 * layer.kv_heads * layer.value
    assert plain.heads == plain.kv_heads
    assert 1 < some.kv_heads < some.heads
    says("plain (MHA)", "LLaMA", "2 · heads · width")
    says("one KV head (MQA)", "Falcon 7B", "| 2 · width")
    says("grouped (GQA)", "Llama 3", "2 · KV heads · width")
    window = seen("Gemma 2 2B", "window")
    says("sliding window", "Gemma 2", f"{window.span:,} tokens, every other layer", "the last tokens only")
    sink = seen("gpt-oss-120b", "window", sink=True)
    assert in_each("Gemma 2 2B", window) == in_each("gpt-oss-120b", sink) == 1 / 2
    assert more(window) == more(sink) == 0
    says("window and learned sink", f"{sink.heads} heads, {sink.kv_heads} KV heads, {sink.span} tokens, every other")
    latent = seen("DeepSeek-V3", "latent")
    seen("DeepSeek-V2", "latent", heads=latent.heads, key=latent.key, value=latent.value)
    sizes = f"{latent.heads} heads, {latent.value} + {latent.key - latent.value}"
    says("latent (MLA)", "DeepSeek-V2 and -V3", sizes, f"| {more(latent):.0f} |")
    chosen = seen("DeepSeek-V3.2", "latent, index")
    says("latent and index (DSA)", "V3.2", f"index keys of {chosen.index.width} |", f"| {more(chosen):.0f} |")
    for name in ("DeepSeek-V4-Flash", "DeepSeek-V4-Pro"):
        short, long = (seen(name, kind) for kind in ("entries, index", "entries"))
        parts = f"entries of {short.every} or {long.every} tokens", f"| {more(short):.0f} or {more(long):.0f} |"
        assert [part for part in parts if part not in rows["entries (CSA, HCA)"]] == [], name
    says("entries (CSA, HCA)", "DeepSeek-V4")
    gated, delta = seen("Qwen3-Next", "full"), seen("Qwen3-Next", "gated delta")
    assert gated.gate
    assert in_each("Qwen3-Next", gated) == 1 - in_each("Qwen3-Next", delta) == 1 / 4
    says(
        "gated",
        f"Qwen3-Next {{cite}}`qiu2025gated`: {gated.heads} heads, {gated.kv_heads} KV heads, every fourth layer",
    )
    says("Gated DeltaNet", "Qwen3-Next", "three of every four layers | one state")
    kda = seen("Kimi Linear", "KDA")
    assert more(delta) == more(kda) == 0
    says(
        "decay per channel (KDA)",
        f"Kimi Linear: {kda.count} of {released.model('Kimi Linear').depth} layers | one state",
    )
    assert rows == {}
    assert f"[that of {len(released.models())} models](" in text


def test_the_page_of_the_table_says_how_many_rows_have_arguments():
    text = (ROOM.parent / "26f_attention_of_released_models.ipynb").read_text("utf8")
    every, typed = len(released.models()), sum(bool(model.arguments) for model in released.models())
    said = f"a table of {every} released models.", f"{every - typed} models are the defaults", f"For the other {typed},"
    assert [one for one in said if one not in text] == []
    root = ROOM.parents[1]
    for name, words in (
        ("book/questions.md", f"has examined {every} released"),
        ("book/zh.md", f"{every} 个已发布模型的注意力总表：从配置类里读出来的，其中 {typed} 个模型"),
        ("book/zh.md", f"[{every} 个已发布模型的总表]"),
        ("notebooks/26_choosing.ipynb", f"the attention of {every} released models"),
    ):
        assert words in (root / name).read_text("utf8"), name


def test_a_name_is_looked_up_and_an_unknown_one_is_said():
    assert released.model("deepseek-v3").name == "DeepSeek-V3"  # and not V3.2
    with pytest.raises(ValueError, match=r"'Qwen3' is part of \d names: give one of Qwen3 8B"):
        released.model("Qwen3")
    with pytest.raises(ValueError, match="'GPT-9' is part of 0 names: give one of GPT-2"):
        released.model("GPT-9")
    with pytest.raises(ValueError, match="config = 'OtherConfig' is not known here: give one of GPT2Config"):
        reading.read("OtherConfig")
    with pytest.raises(ValueError, match="models is empty"):
        Table(())
    with pytest.raises(ValueError, match="tokens"):
        released.models()[0].kept(0)


def test_without_the_library_only_reading_is_refused(monkeypatch):
    monkeypatch.setattr(reading, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="transformers is missing: pip install"):
        reading.read("LlamaConfig")
    assert "transformers" not in inspect.getsource(released.page)


def test_a_terminal_gets_plain_text():
    lines = repr(Table(released.models())).splitlines()
    assert max(map(len, lines)) <= 72
    assert all(any(line.startswith(model.name) for line in lines) for model in released.models())
    row, many = (next(line for line in lines if line.startswith(name)) for name in ("LLaMA 7B", "Gemma 3 27B"))
    assert row.split()[2:] == ["32", "full", "512", "512", "64.0", "68.7"]
    gemma = released.model("Gemma 3 27B")
    each = [gemma.kept(n) / n / 1024 for n in released.TOKENS]
    assert many.split()[-4:-2] == [released.page.figure(x) for x in each]
    assert each[0] > 1.5 * each[1]  # a window costs less per token, the more tokens there are


def test_a_page_gets_every_model_and_nothing_can_end_the_markup():
    bad = Model("<b>", "A", {"x": "</td>", "y": [1, 1, 2]}, 1, (Layers("full", 1, positions=Positions("none")),))
    html = Table((bad,))._repr_html_()
    assert "<b>&lt;b&gt;</b>" in html
    assert "x = &lt;/td&gt;, y = [1 × 2, 2]" in html
    assert Table((bad,))._repr_html_() == html
    assert html.count("<script>") == html.count("</script>") == 1
