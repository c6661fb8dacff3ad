"""Cases of the interop table: the attention of BERT, GPT-2 and Llama.

Taught in: chapter 07.
"""

import copy
from collections.abc import Iterator
from functools import partial
from importlib import import_module

import torch
from torch import Tensor, nn

from mha.interop.cases import HEADS, B, Case, D, J, N, noise
from mha.interop.hugging_face import from_transformers, to_transformers
from mha.interop.rotary import relayout
from mha.masks import causal_mask, combine, padding_mask, to_additive


def transformers_cases() -> Iterator[Case]:
    """List the cases of the library ``transformers``."""
    yield from bert_cases()
    yield from gpt2_cases()
    yield from llama_cases()


def bert_cases() -> Iterator[Case]:
    """List the cases of ``BertAttention``, compared where its output map ends."""
    x, memory, padding = noise(B, N, D), noise(B, J, D, seed=1), padding_mask([2, 5, 4], N)
    bert = import_module("transformers.models.bert.modeling_bert")
    config = import_module("transformers").BertConfig(
        hidden_size=D, num_attention_heads=HEADS, attention_probs_dropout_prob=0.0, is_decoder=True,
        attn_implementation="eager",
    )  # fmt: skip

    def theirs(module: nn.Module, *inputs: Tensor, **how) -> Tensor:
        seen = []
        hook = module.output.dense.register_forward_hook(lambda _m, _i, output: seen.append(output))
        module(*inputs, **how)
        hook.remove()
        return seen[0]

    def case(options: str, mask: Tensor | None = None, cross: bool = False) -> Case:
        make = partial(bert.BertAttention, config, layer_idx=0, **({"is_cross_attention": True} if cross else {}))
        how = {"attention_mask": None if mask is None else to_additive(mask, torch.float64).expand(B, 1, N, N)}
        how = {"encoder_hidden_states": memory} if cross else how
        inputs = (x, memory) if cross else (x,)
        return Case(
            "transformers", "BertAttention", options, make, from_transformers, to_transformers,
            lambda layer: layer(*inputs, mask=mask), lambda module: theirs(module, x, **how),
        )  # fmt: skip

    yield case("self-attention")
    yield case("padding", padding)
    yield case("padding and causal", combine(padding, causal_mask(N)))
    yield case("cross-attention", cross=True)


def gpt2_cases() -> Iterator[Case]:
    """List the cases of ``GPT2Attention``, whose three matrices are packed and transposed."""
    x, memory, padding = noise(B, N, D), noise(B, J, D, seed=1), padding_mask([2, 5, 4], N)
    gpt2 = import_module("transformers.models.gpt2.modeling_gpt2")
    config = import_module("transformers").GPT2Config(
        n_embd=D, n_head=HEADS, attn_pdrop=0.0, attn_implementation="eager"
    )

    def case(options: str, mask: Tensor | None, cross: bool = False) -> Case:
        make = partial(gpt2.GPT2Attention, config, is_cross_attention=cross, layer_idx=0)
        additive = None if mask is None else to_additive(mask, torch.float64)
        how = {"encoder_hidden_states": memory} if cross else {"attention_mask": additive}
        inputs = (x, memory) if cross else (x,)
        return Case(
            "transformers", "GPT2Attention", options, make, from_transformers, to_transformers,
            lambda layer: layer(*inputs, mask=mask), lambda module: module(x, **how)[0],
        )  # fmt: skip

    yield case("Conv1D packed, causal", causal_mask(N))
    yield case("Conv1D packed, padding and causal", combine(padding, causal_mask(N)))
    yield case("Conv1D, cross-attention", None, cross=True)


def llama_cases() -> Iterator[Case]:
    """List the cases of ``LlamaAttention``: shared key heads, rotary positions."""
    x, padding = noise(B, N, D), padding_mask([2, 5, 4], N)
    llama = import_module("transformers.models.llama.modeling_llama")
    make_config = import_module("transformers").LlamaConfig

    def case(options: str, mask: Tensor | None = None, layout: str = "half", **made) -> Case:
        config = make_config(hidden_size=D, num_attention_heads=HEADS, attn_implementation="sdpa", **made)
        mask = combine(mask, causal_mask(N))
        how = {"attention_mask": to_additive(mask, torch.float64).expand(B, 1, N, N)}
        angles = llama.LlamaRotaryEmbedding(config)(x, torch.arange(N)[None])
        return Case(
            "transformers", "LlamaAttention", options, partial(llama.LlamaAttention, config, layer_idx=0),
            lambda module: relayout(from_transformers(module), layout),
            lambda layer, module: to_transformers(relayout(copy.deepcopy(layer), "half"), module),
            lambda layer: layer(x, mask=mask), lambda module: module(x, position_embeddings=angles, **how)[0],
        )  # fmt: skip

    yield case("rotary, causal")
    yield case("rotary, 3 key heads, padding and causal", padding, num_key_value_heads=3)
    yield case(
        "rotary, 1 key head, base 500000",
        num_key_value_heads=1,
        rope_parameters={"rope_type": "default", "rope_theta": 5e5},
    )
    yield case("rotary, 2 key heads, biases, head width 8", num_key_value_heads=2, attention_bias=True, head_dim=8)
    yield case("rotary, 2 key heads, rows interleaved", layout="interleaved", num_key_value_heads=2)
