"""Cases of the interop table: the attention of BERT, GPT-2 and Llama.

Taught in: chapter 07.
"""

import copy
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module

import torch
from torch import Tensor, nn

from mha.interop.cases import HEADS, MEMORY, B, Case, D, N, X
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
    padding = padding_mask([2, 5, 4], N)
    bert = import_module("transformers.models.bert.modeling_bert")
    config = import_module("transformers").BertConfig(
        hidden_size=D, num_attention_heads=HEADS, attention_probs_dropout_prob=0.0, is_decoder=True,
        attn_implementation="eager",
    )  # fmt: skip

    def case(options: str, mask: Tensor | None = None, cross: bool = False) -> Case:
        make = partial(bert.BertAttention, config, layer_idx=0, **({"is_cross_attention": True} if cross else {}))
        how = {"encoder_hidden_states": MEMORY} if cross else {"attention_mask": _added(mask)}
        return _case(
            "BertAttention", options, make,
            lambda layer: layer(X, MEMORY if cross else None, mask=mask), lambda module: _before_norm(module, **how),
        )  # fmt: skip

    yield case("self-attention")
    yield case("padding", padding)
    yield case("padding and causal", combine(padding, causal_mask(N)))
    yield case("cross-attention", cross=True)


def gpt2_cases() -> Iterator[Case]:
    """List the cases of ``GPT2Attention``, whose three matrices are packed and transposed."""
    padding = padding_mask([2, 5, 4], N)
    gpt2 = import_module("transformers.models.gpt2.modeling_gpt2")
    config = import_module("transformers").GPT2Config(
        n_embd=D, n_head=HEADS, attn_pdrop=0.0, attn_implementation="eager"
    )

    def case(options: str, mask: Tensor | None, cross: bool = False) -> Case:
        make = partial(gpt2.GPT2Attention, config, is_cross_attention=cross, layer_idx=0)
        how = {"encoder_hidden_states": MEMORY} if cross else {"attention_mask": _added(mask)}
        return _case(
            "GPT2Attention", options, make,
            lambda layer: layer(X, MEMORY if cross else None, mask=mask), lambda module: module(X, **how)[0],
        )  # fmt: skip

    yield case("Conv1D packed, causal", causal_mask(N))
    yield case("Conv1D packed, padding and causal", combine(padding, causal_mask(N)))
    yield case("Conv1D, cross-attention", None, cross=True)


def llama_cases() -> Iterator[Case]:
    """List the cases of ``LlamaAttention``: shared key heads, rotary positions."""
    padding = padding_mask([2, 5, 4], N)
    llama = import_module("transformers.models.llama.modeling_llama")
    make_config = import_module("transformers").LlamaConfig

    def case(options: str, mask: Tensor | None = None, layout: str = "half", **made) -> Case:
        config = make_config(hidden_size=D, num_attention_heads=HEADS, attn_implementation="sdpa", **made)
        mask = combine(mask, causal_mask(N))
        how = {"position_embeddings": llama.LlamaRotaryEmbedding(config)(X, torch.arange(N)[None])}
        return _case(
            "LlamaAttention", options, partial(llama.LlamaAttention, config, layer_idx=0),
            lambda layer: layer(X, mask=mask), lambda module: module(X, attention_mask=_added(mask), **how)[0], layout,
        )  # fmt: skip

    yield case("rotary, causal")
    yield case("rotary, 3 key heads, padding and causal", padding, num_key_value_heads=3)
    rope = {"rope_type": "default", "rope_theta": 5e5}
    yield case("rotary, 1 key head, base 500000", num_key_value_heads=1, rope_parameters=rope)
    yield case("rotary, 2 key heads, biases, head width 8", num_key_value_heads=2, attention_bias=True, head_dim=8)
    yield case("rotary, 2 key heads, rows interleaved", layout="interleaved", num_key_value_heads=2)


def _case(name: str, options: str, make: Callable, ours: Callable, theirs: Callable, layout: str | None = None) -> Case:
    """Fill in how ``transformers`` is read and written; with a ``layout`` our rows are kept in that order."""

    def read(module: nn.Module) -> nn.Module:
        return from_transformers(module) if layout is None else relayout(from_transformers(module), layout)

    def write(layer: nn.Module, module: nn.Module) -> nn.Module:
        return to_transformers(layer if layout is None else relayout(copy.deepcopy(layer), "half"), module)

    return Case("transformers", name, options, make, read, write, ours, theirs)


def _added(mask: Tensor | None) -> Tensor | None:
    """Write a mask as numbers to add, with all its axes, as ``transformers`` wants it."""
    return None if mask is None else to_additive(mask, torch.float64).expand(B, 1, N, N)


def _before_norm(module: nn.Module, **how) -> Tensor:
    """Return what BERT's attention says before dropout, the sum with its input and the norm."""
    seen = []
    hook = module.output.dense.register_forward_hook(lambda _m, _i, output: seen.append(output))
    module(X, **how)
    hook.remove()
    return seen[0]
