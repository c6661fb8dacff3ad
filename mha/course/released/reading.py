"""Read from a configuration class of transformers which attention a model has: one small function per family.

Sizes come from the configuration. What a configuration does not say, such as a learned sink or a norm of the queries,
is looked up in the attention module itself, which is made on the meta device with the sizes of the model.

:Taught in: choosing.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

import torch

from mha.checks import checked
from mha.course.released import Index, Layers, Model, Positions

DELTA, ADD = 6, 4  # FLOPs per number of a state: read, erase and write; or write and read
NAMES = {  # what transformers calls a kind of layer, and what this table calls it
    "full_attention": "full",
    "hybrid": "full",
    "sliding_attention": "window",
    "hybrid_sliding": "window",
    "chunked_attention": "chunk",
    "minimax_m3_sparse": "full, index",
}
Found = tuple[int, Layers]  # the first layer of its kind, and what it is


@dataclasses.dataclass(frozen=True)
class Family:
    """Where a family is in transformers, and how its configuration is read.

    :param read: turns a configuration into kinds of layers, each with the number of its first layer.
    :param folder: of the family under ``transformers.models``.
    :param attention: the class of its attention with queries, keys and values.
    """

    read: Callable[[Any], Iterator[Found]]
    folder: str
    attention: str


def groups(config: Any, key: Callable[[int], Any], kinds: list[str]) -> Iterator[tuple[Any, str, int, int]]:
    """Collect layers that are alike: what they have in common, their kind, the first of them, and how many.

    :param config: of the model.
    :param key: what must be the same, for a layer's number.
    :param kinds: of all layers.
    """
    found: dict[Any, list[int]] = {}
    for n, kind in enumerate(kinds):
        found.setdefault((key(n), kind), []).append(n)
    for (same, kind), members in found.items():
        yield same, kind, members[0], len(members)


def kinds_of(config: Any) -> list[str]:
    """Name the kind of each layer, as transformers does.

    :param config: of the model.
    """
    kinds = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None)
    if kinds is None:
        window = getattr(config, "sliding_window", None)
        kinds = ["full_attention" if window is None else "sliding_attention"] * config.num_hidden_layers
    return list(kinds)


def one_layer(config: Any, n: int) -> Any:
    """Give the configuration of one layer, where a model has layers of several sizes.

    :param config: of the model.
    :param n: the number of the layer.
    """
    return config.per_layer_config[n] if getattr(config, "per_layer_config", None) else config


def rotary(config: Any, kind: str, width: int) -> Positions:
    """Read how keys of a width are rotated.

    :param config: of the model.
    :param kind: of the layer, where each kind has its own rotation.
    :param width: of a key.
    """
    rope = config.rope_parameters
    rope = rope.get(kind, rope)
    if rope.get("rope_theta") is None:
        return Positions("none")
    scaling = "" if rope["rope_type"] == "default" else rope["rope_type"]
    scaling += f" × {rope['factor']:g}" if "factor" in rope else ""
    return Positions("rotary", int(width * rope.get("partial_rotary_factor", 1.0)), float(rope["rope_theta"]), scaling)


def heads(
    config: Any, kind: str, count: int, kv: int, key: int, value: int, positions: Positions, **more: Any
) -> Layers:
    """Describe layers of heads with keys and values of their own.

    :param config: of the model.
    :param kind: of the layers, as this table calls it.
    :param count: how many there are.
    :param kv: KV heads.
    :param key: width of a key.
    :param value: width of a value.
    :param positions: of the layers.
    :param more: fields of ``Layers`` that differ.
    """
    span = {"window": "sliding_window", "chunk": "attention_chunk_size"}.get(kind)
    found = Layers(
        kind=kind,
        count=count,
        heads=config.num_attention_heads,
        kv_heads=kv,
        key=key,
        value=value,
        row=kv * (key + value),
        span=getattr(config, span) if span else None,
        every=None if span else 1,
        positions=positions,
    )
    return dataclasses.replace(found, **more)


def width_of(config: Any) -> int:
    """Give the width of a head.

    :param config: of the model, or of one layer.
    """
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def plain(*without: str) -> Callable[[Any], Iterator[Found]]:
    """Make a function that reads layers of heads, full and with a window, as most families have them.

    :param without: kinds of layers that have no positions, as transformers calls them.
    """

    def read(config: Any) -> Iterator[Found]:
        kinds = kinds_of(config)
        shared = len(kinds) - getattr(config, "num_kv_shared_layers", 0)

        def same(n: int) -> tuple[bool, bool]:
            turned = getattr(config, "no_rope_layers", None) or getattr(config, "layer_rope_theta", None)
            return bool(turned[n]) if turned else kinds[n] not in without, n >= shared

        for (turned, reuses), kind, first, count in groups(config, same, kinds):
            if kind in ("linear_attention", "conv", "moe", "mlp"):
                continue
            size, name = one_layer(config, first), NAMES[kind]
            kv = getattr(size, "num_key_value_heads", None) or size.num_attention_heads
            where = rotary(config, kind, width_of(size)) if turned else Positions("none")
            cap = getattr(config, "attn_logit_softcapping", None)
            found = heads(config, name, count, kv, width_of(size), width_of(size), where, cap=cap)
            yield first, dataclasses.replace(found, row=0) if reuses else found

    return read


def gpt2(config: Any) -> Iterator[Found]:
    """Read the first GPTs: all heads have keys of their own, and positions are learned."""
    width = config.hidden_size // config.num_attention_heads
    where = Positions("learned")
    yield 0, heads(config, "full", config.num_hidden_layers, config.num_attention_heads, width, width, where)


def falcon(config: Any) -> Iterator[Found]:
    """Read Falcon, where one switch gives all heads the same key."""
    width = config.hidden_size // config.num_attention_heads
    one = config.multi_query and not config.new_decoder_architecture
    where = rotary(config, "", width)
    yield 0, heads(config, "full", config.num_hidden_layers, 1 if one else config.num_kv_heads, width, width, where)


def mimo(config: Any) -> Iterator[Found]:
    """Read MiMo: twice as many KV heads in windows, and values narrower than keys."""
    for _, kind, first, count in groups(config, lambda n: None, kinds_of(config)):
        kv = config.num_key_value_heads * (2 if kind == "sliding_attention" else 1)
        where = rotary(config, kind, config.head_dim)
        yield first, heads(config, NAMES[kind], count, kv, config.head_dim, config.v_head_dim, where)


def inkling(config: Any) -> Iterator[Found]:
    """Read Inkling: relative positions, short convolutions, sizes of their own in windows."""
    for _, kind, first, count in groups(config, lambda n: None, kinds_of(config)):
        local = kind == "hybrid_sliding"
        kv = config.swa_num_key_value_heads if local else config.num_key_value_heads
        width = config.swa_head_dim if local else config.head_dim
        window = config.sliding_window_size if local else None
        recent = 2 * (kv * width + config.hidden_size) * (config.conv_kernel_size - 1)  # and of what layers add
        kind = NAMES[kind].replace("window", "full")  # the sizes of the window have another name here
        found = heads(config, kind, count, kv, width, width, Positions("relative"), recent=recent)
        changed = {"kind": "window", "span": window, "every": None, "heads": config.swa_num_attention_heads}
        yield first, dataclasses.replace(found, **changed) if local else found


def minimax_m3(config: Any) -> Iterator[Found]:
    """Read MiniMax-M3: an index chooses blocks of keys, for each KV head its own."""
    chosen = config.index_topk_blocks * config.index_block_size
    index = Index(config.index_n_heads, config.index_head_dim, 1, chosen, config.index_block_size)
    for first, found in plain()(config):
        yield first, dataclasses.replace(found, index=index if "index" in found.kind else None)


def latent(*without: str, layers: str = "num_hidden_layers", times: int = 1) -> Callable[[Any], Iterator[Found]]:
    """Make a function that reads latent attention (MLA), with a window or an index where layers have one.

    :param without: kinds of layers that have no positions, as transformers calls them.
    :param layers: what the number of layers is called.
    :param times: attention layers in each of them.
    """

    def read(config: Any) -> Iterator[Found]:
        kinds = getattr(config, "layer_types", None) or ["full_attention"] * getattr(config, layers) * times
        choose = getattr(config, "indexer_types", None)

        def same(n: int) -> tuple[bool, str]:
            turned = getattr(config, "no_rope_layers", None)
            return bool(turned[n]) if turned else kinds[n] not in without, choose[n] if choose else "full"

        for (turned, source), kind, first, count in groups(config, same, kinds):
            if kind == "linear_attention":
                continue
            size = one_layer(config, first)
            key = size.kv_lora_rank + size.qk_rope_head_dim
            if getattr(config, "no_rope_layers", None) and not turned:
                key = size.kv_lora_rank  # there the rotated part of a key becomes an ordinary one
            head = size.qk_nope_head_dim + size.kv_lora_rank + size.qk_rope_head_dim - key
            found = Layers(
                kind="latent",
                count=count,
                heads=size.num_attention_heads,
                kv_heads=1,
                key=key,
                value=size.kv_lora_rank,
                head=head,
                row=key,
                every=1,
            )
            if turned and size.qk_rope_head_dim:
                scaling = rotary(config, kind, size.qk_rope_head_dim)
                found = dataclasses.replace(found, positions=dataclasses.replace(scaling, width=size.qk_rope_head_dim))
            if kind == "sliding_attention":
                found = dataclasses.replace(found, kind="latent, window", span=config.sliding_window, every=None)
            if kind == "indexed_attention":
                own = source == "full"
                index = Index(
                    heads=config.index_n_heads if own else 0,
                    width=config.index_head_dim if own else 0,
                    every=getattr(config, "index_kpool", 1),
                    most=config.index_topk,
                    block=getattr(config, "index_kpool", 1),
                )
                found = dataclasses.replace(found, kind="latent, index", index=index)
            yield first, found

    return read


def deepseek_v4(config: Any) -> Iterator[Found]:
    """Read DeepSeek-V4: one row is key and value; behind a window, entries stand for several tokens."""
    for _, kind, first, count in groups(config, lambda n: None, kinds_of(config)):
        width = config.head_dim
        every = config.compress_rates.get(kind)
        index = None
        if kind == "compressed_sparse_attention":
            index = Index(config.index_n_heads, config.index_head_dim, every, config.index_topk)
        yield (
            first,
            Layers(
                kind={None: "window"}.get(every, "entries, index" if index else "entries"),
                count=count,
                heads=config.num_attention_heads,
                kv_heads=1,
                key=width,
                value=width,
                row=width,
                span=config.sliding_window,
                every=every,
                index=index,
                positions=rotary(config, "main" if every is None else "compress", width),
            ),
        )


def state(
    kind: str, count: int, heads: int, key: int, value: int, *, update: int, channels: int, kernel: int
) -> Layers:
    """Describe layers with a state: each head has one of key × value numbers.

    :param kind: of the layers.
    :param count: how many there are.
    :param heads: states of a layer.
    :param key: rows of a state.
    :param value: columns of a state.
    :param update: FLOPs per number of a state and token.
    :param channels: that a short convolution mixes.
    :param kernel: tokens that it takes, this one included.
    """
    return Layers(
        kind=kind,
        count=count,
        heads=0,
        kv_heads=heads,
        key=key,
        value=value,
        state=heads * key * value,
        update=update,
        recent=channels * (kernel - 1),
    )


def linear(config: Any) -> int:
    """Count the layers that transformers calls linear.

    :param config: of the model.
    """
    return kinds_of(config).count("linear_attention")


def gated_delta(rest: Callable[[Any], Iterator[Found]]) -> Callable[[Any], Iterator[Found]]:
    """Make a function that reads Gated DeltaNet layers and others.

    :param rest: reads the others.
    """

    def read(config: Any) -> Iterator[Found]:
        key, value = config.linear_key_head_dim, config.linear_value_head_dim
        states, keys = config.linear_num_value_heads, config.linear_num_key_heads
        channels, kernel = 2 * keys * key + states * value, config.linear_conv_kernel_dim
        yield (
            kinds_of(config).index("linear_attention"),
            state("gated delta", linear(config), states, key, value, update=DELTA, channels=channels, kernel=kernel),
        )
        yield from rest(config)

    return read


def kda(rest: Callable[[Any], Iterator[Found]]) -> Callable[[Any], Iterator[Found]]:
    """Make a function that reads Kimi Delta Attention (a decay per channel) and other layers.

    :param rest: reads the others.
    """

    def read(config: Any) -> Iterator[Found]:
        count, width = config.linear_num_heads, config.linear_head_dim
        channels, kernel = 3 * count * width, config.linear_conv_kernel_dim
        first = kinds_of(config).index("linear_attention")
        yield first, state("KDA", linear(config), count, width, width, update=DELTA, channels=channels, kernel=kernel)
        yield from rest(config)

    return read


def lightning(config: Any) -> Iterator[Found]:
    """Read MiniMax-01: linear attention with a fixed decay, and full layers."""
    width = width_of(config)
    first = kinds_of(config).index("linear_attention")
    yield (
        first,
        state("lightning", linear(config), config.num_attention_heads, width, width, update=ADD, channels=0, kernel=1),
    )
    yield from plain()(config)


def mamba2(count: int, heads: int, width: int, size: int, shares: int, kernel: int) -> Layers:
    """Describe Mamba-2 layers.

    :param count: how many there are.
    :param heads: states of a layer.
    :param width: columns of a state.
    :param size: rows of a state.
    :param shares: groups of heads with the same B and C.
    :param kernel: tokens of the convolution.
    """
    channels = heads * width + 2 * shares * size
    return state("Mamba-2", count, heads, size, width, update=ADD, channels=channels, kernel=kernel)


def nemotron_h(config: Any) -> Iterator[Found]:
    """Read Nemotron-H: Mamba-2, a few full layers without positions, and feed-forward layers between them."""
    sizes = config.mamba_num_heads, config.mamba_head_dim, config.ssm_state_size, config.n_groups, config.conv_kernel
    yield kinds_of(config).index("linear_attention"), mamba2(linear(config), *sizes)
    yield from plain("full_attention")(config)


def falcon_h1(config: Any) -> Iterator[Found]:
    """Read Falcon-H1: both kinds in every layer, side by side."""
    sizes = config.mamba_n_heads, config.mamba_d_head, config.mamba_d_state, config.mamba_n_groups, config.mamba_d_conv
    yield 0, mamba2(config.num_hidden_layers, *sizes)
    width, kv = width_of(config), config.num_key_value_heads
    yield 0, heads(config, "full", config.num_hidden_layers, kv, width, width, rotary(config, "", width))


def granite_hybrid(config: Any) -> Iterator[Found]:
    """Read Granite 4: Mamba-2 and a few full layers, with positions where the configuration asks for them."""
    sizes = config.mamba_n_heads, config.mamba_d_head, config.mamba_d_state, config.mamba_n_groups, config.mamba_d_conv
    yield kinds_of(config).index("linear_attention"), mamba2(linear(config), *sizes)
    yield from plain(*(["full_attention"] if config.position_embedding_type != "rope" else []))(config)


def zamba2(config: Any) -> Iterator[Found]:
    """Read Zamba2: Mamba-2 everywhere, and at some places the one attention layer that they share."""
    wide = config.mamba_expand * config.hidden_size
    count, states = len(kinds_of(config)), config.n_mamba_heads
    yield 0, mamba2(count, states, wide // states, config.mamba_d_state, config.mamba_ngroups, config.mamba_d_conv)
    first, places = kinds_of(config).index("hybrid"), kinds_of(config).count("hybrid")
    width, kv = config.attention_head_dim, config.num_key_value_heads
    where = rotary(config, "", width) if config.use_mem_rope else Positions("none")
    yield first, heads(config, "full", places, kv, width, width, where)


def jamba(config: Any) -> Iterator[Found]:
    """Read Jamba: Mamba of the first kind, and every eighth layer full, without positions."""
    wide = config.mamba_expand * config.hidden_size
    found = state(
        "Mamba", linear(config), 1, config.mamba_d_state, wide, update=ADD, channels=wide, kernel=config.mamba_d_conv
    )
    yield kinds_of(config).index("linear_attention"), found
    yield from plain("full_attention")(config)


def recurrent_gemma(config: Any) -> Iterator[Found]:
    """Read RecurrentGemma: one number of state per channel, and windows."""
    recent = config.lru_width * (config.conv1d_width - 1)
    yield 0, Layers("RG-LRU", linear(config), state=config.lru_width, update=ADD, recent=recent)
    yield from plain()(config)


def short_convolution(config: Any) -> Iterator[Found]:
    """Read LFM: short convolutions, and layers of heads."""
    recent = config.hidden_size * (config.conv_L_cache - 1)
    yield kinds_of(config).index("conv"), Layers("convolution", kinds_of(config).count("conv"), recent=recent)
    yield from plain()(config)


FAMILIES = {
    "GPT2Config": Family(gpt2, "gpt2", "GPT2Attention"),
    "LlamaConfig": Family(plain(), "llama", "LlamaAttention"),
    "FalconConfig": Family(falcon, "falcon", "FalconAttention"),
    "MistralConfig": Family(plain(), "mistral", "MistralAttention"),
    "MixtralConfig": Family(plain(), "mixtral", "MixtralAttention"),
    "Ministral3Config": Family(plain(), "ministral3", "Ministral3Attention"),
    "GemmaConfig": Family(plain(), "gemma", "GemmaAttention"),
    "Gemma2Config": Family(plain(), "gemma2", "Gemma2Attention"),
    "Gemma3TextConfig": Family(plain(), "gemma3", "Gemma3Attention"),
    "Gemma3nTextConfig": Family(plain(), "gemma3n", "Gemma3nTextAttention"),
    "Gemma4TextConfig": Family(plain(), "gemma4", "Gemma4TextAttention"),
    "Qwen2Config": Family(plain(), "qwen2", "Qwen2Attention"),
    "Qwen3Config": Family(plain(), "qwen3", "Qwen3Attention"),
    "Qwen3MoeConfig": Family(plain(), "qwen3_moe", "Qwen3MoeAttention"),
    "Olmo2Config": Family(plain(), "olmo2", "Olmo2Attention"),
    "Olmo3Config": Family(plain(), "olmo3", "Olmo3Attention"),
    "Glm4MoeConfig": Family(plain(), "glm4_moe", "Glm4MoeAttention"),
    "SeedOssConfig": Family(plain(), "seed_oss", "SeedOssAttention"),
    "MiniMaxM2Config": Family(plain(), "minimax_m2", "MiniMaxM2Attention"),
    "SmolLM3Config": Family(plain(), "smollm3", "SmolLM3Attention"),
    "GptOssConfig": Family(plain(), "gpt_oss", "GptOssAttention"),
    "Llama4TextConfig": Family(plain(), "llama4", "Llama4TextAttention"),
    "Cohere2Config": Family(plain("full_attention"), "cohere2", "Cohere2Attention"),
    "Exaone4Config": Family(plain("full_attention"), "exaone4", "Exaone4Attention"),
    "CwmConfig": Family(plain(), "cwm", "CwmAttention"),
    "MuseSparkTextConfig": Family(plain(), "muse_spark", "MuseSparkTextAttention"),
    "MiMoV2FlashConfig": Family(mimo, "mimo_v2_flash", "MiMoV2FlashAttention"),
    "InklingTextConfig": Family(inkling, "inkling", "InklingAttention"),
    "MiniMaxM3VLTextConfig": Family(minimax_m3, "minimax_m3_vl", "MiniMaxM3VLAttention"),
    "DeepseekV2Config": Family(latent(), "deepseek_v2", "DeepseekV2Attention"),
    "DeepseekV3Config": Family(latent(), "deepseek_v3", "DeepseekV3Attention"),
    "DeepseekV32Config": Family(latent(), "deepseek_v32", "DeepseekV32Attention"),
    "DeepseekV4Config": Family(deepseek_v4, "deepseek_v4", "DeepseekV4Attention"),
    "MiniCPM3Config": Family(latent(), "minicpm3", "MiniCPM3Attention"),
    "Mistral4Config": Family(latent(), "mistral4", "Mistral4Attention"),
    "LongcatFlashConfig": Family(latent(layers="num_layers", times=2), "longcat_flash", "LongcatFlashMLA"),
    "GlmMoeDsaConfig": Family(latent(), "glm_moe_dsa", "GlmMoeDsaAttention"),
    "HYV4Config": Family(latent(), "hy_v4", "HYV4Attention"),
    "MistralLarge4TextConfig": Family(latent(), "mistral_large4", "MistralLarge4TextAttention"),
    "AXK2Config": Family(latent(), "axk2", "AXK2Attention"),
    "Dots3NoteTextConfig": Family(latent(), "dots3_note", "Dots3NoteTextAttention"),
    "Qwen3NextConfig": Family(gated_delta(plain()), "qwen3_next", "Qwen3NextAttention"),
    "Qwen3_5TextConfig": Family(gated_delta(plain()), "qwen3_5", "Qwen3_5Attention"),
    "Qwen3_5MoeTextConfig": Family(gated_delta(plain()), "qwen3_5_moe", "Qwen3_5MoeAttention"),
    "OlmoHybridConfig": Family(gated_delta(plain()), "olmo_hybrid", "OlmoHybridAttention"),
    "KimiLinearConfig": Family(kda(latent("full_attention")), "kimi_linear", "KimiLinearAttention"),
    "Glm5NextTextConfig": Family(kda(latent("indexed_attention")), "glm5_next", "Glm5NextTextAttention"),
    "BailingHybridConfig": Family(kda(latent()), "bailing_hybrid", "BailingHybridAttention"),
    "MiniMaxConfig": Family(lightning, "minimax", "MiniMaxAttention"),
    "NemotronHConfig": Family(nemotron_h, "nemotron_h", "NemotronHAttention"),
    "FalconH1Config": Family(falcon_h1, "falcon_h1", "FalconH1Attention"),
    "GraniteMoeHybridConfig": Family(granite_hybrid, "granitemoehybrid", "GraniteMoeHybridAttention"),
    "Zamba2Config": Family(zamba2, "zamba2", "Zamba2Attention"),
    "JambaConfig": Family(jamba, "jamba", "JambaAttention"),
    "RecurrentGemmaConfig": Family(recurrent_gemma, "recurrent_gemma", "RecurrentGemmaAttention"),
    "Lfm2Config": Family(short_convolution, "lfm2", "Lfm2Attention"),
    "Lfm3Config": Family(short_convolution, "lfm3", "Lfm3Attention"),
}


def module(config: Any, n: int) -> torch.nn.Module:
    """Make the attention module of one layer on the meta device: shapes without memory.

    :param config: of the model.
    :param n: the number of the layer.
    """
    family = FAMILIES[type(config).__name__]
    home = import_module(f"transformers.models.{family.folder}.modeling_{family.folder}")
    with torch.device("meta"):
        return getattr(home, family.attention)(config, layer_idx=n)


def looked_up(config: Any, n: int, found: Layers) -> Layers:
    """Add what only the module says: sinks, gates, and norms of queries and keys.

    :param config: of the model.
    :param n: the number of the layer.
    :param found: what the configuration says.
    """
    layer = module(config, n)
    parts = dict(layer.named_children())
    norm = next((parts[name] for name in ("q_norm", "q_layernorm", "qk_norm", "q_b_norm") if name in parts), None)
    qk_norm = "latent" if {"kv_a_layernorm", "q_a_layernorm"} & set(parts) else ""
    if norm is not None:
        gains = getattr(norm, "weight", None)
        qk_norm = "per head" if gains is None or gains.numel() == found.key else "all heads"
    gate = next((parts[name].out_features for name in ("gate_proj", "g_proj") if name in parts), 0)
    wide = parts["q_proj"].out_features if "q_proj" in parts and found.kv_heads > 1 else 0
    gated = bool(gate) or "q_gate_proj" in parts or wide == 2 * found.heads * found.key
    return dataclasses.replace(
        found,
        sink=getattr(layer, "sinks", None) is not None,
        gate=("per head" if gate == found.heads else "per channel") if gated else "",
        qk_norm=qk_norm,
    )


@checked
def read(config: str, arguments: Mapping[str, Any] = MappingProxyType({}), *, name: str = "") -> Model:
    """Say which attention a model has, from the class of its configuration.

    :param config: the name of the class in transformers, one of ``FAMILIES``.
    :param arguments: for the class; its defaults where not given.
    :param name: of the model; the name of the class unless given.
    :Raises: ImportError without transformers; ValueError for a class that is not known here.
    :Taught in: choosing.
    """
    if find_spec("transformers") is None:
        raise ImportError("transformers is missing: pip install -e '.[interop]'")
    if config not in FAMILIES:
        raise ValueError(f"config = {config!r} is not known here: give one of {', '.join(FAMILIES)}")
    family = FAMILIES[config]
    home = import_module(f"transformers.models.{family.folder}.configuration_{family.folder}")
    made = getattr(home, config)(**arguments)
    made._attn_implementation = "eager"
    layers = []
    for n, found in family.read(made):
        layers.append(looked_up(made, n, found) if found.heads else found)
    depth = made.num_layers if config == "LongcatFlashConfig" else made.num_hidden_layers
    return Model(name or config, config, dict(arguments), depth, tuple(layers))
