"""Parameters to and from the attention of the models of ``transformers``, from BERT to gpt-oss.

BERT's and ALBERT's modules end with dropout, the sum with the input and a norm, GPT-2's with dropout. That part is
what :class:`Residual` does here, and it does not move.

:Taught in: in_the_transformer.
"""

import math
import os
import warnings
from dataclasses import replace
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from mha.checks import checked
from mha.interop.deepseek import deepseek_plan, indexed_plan, is_latent
from mha.interop.delta import is_delta, read_delta, write_delta
from mha.interop.parts import has_parts, parts_plans
from mha.interop.plan import Plan, biases, build, read, refuse, write
from mha.interop.rotary import rotary_of
from mha.interop.structure import differs, drawn
from mha.layers.multi_head import Heads
from mha.layers.projections import REMEDY, as_linear, check_own_weights

WAY_OUT = (
    "Its weights can be looked at all the same: load the model with attn_implementation='eager', call "
    "model(ids, output_attentions=True), and give .attentions to mha.HeadView or mha.analysis.score_heads"
)
CHANGE = "Make the module with a configuration without these, and convert again."


@checked
def from_transformers(module: nn.Module, *, into: Heads | None = None) -> Heads:
    """Make our layer from the attention of a model of ``transformers``.

    Fourteen classes are known by name, from ``BertAttention`` to ``GptOssAttention``. Any other is read by its parts
    (projections, norms, rotary angles, scale, soft cap, sinks, gates), and accepted only where the layer gives the
    same output on a few tokens. Plain heads become a MultiHeadAttention, shared KV heads a GroupedAttention, DeepSeek's
    a LatentAttention or an IndexedLatentAttention, the delta layers of Qwen3-Next, Kimi Linear and OLMo Hybrid a
    :class:`mha.DeltaAttention`, and those with norms, gates, sinks or a soft cap a
    :class:`mha.interop.ReleasedAttention`.

    Models that generate text hide the future by themselves; our layer hides it when it is called with
    ``is_causal=True``. A window is given as a mask, and a warning says so.

    :param module: an attention of a model of ``transformers``.
    :param into: a layer of the same sizes that is filled instead; a new one is made unless given.
    :Raises: ValueError for parts and options without a counterpart here, for positions that only the whole model knows,
        and where ``into`` has other sizes.
    :Taught in: in_the_transformer.
    """
    if is_delta(module):
        return read_delta(module, into)
    plan = transformers_plan(module)
    refuse(plan.library, plan.inside_only, "Use mha.interop.swap, where the model passes its own angles.")
    window = getattr(module, "sliding_window", getattr(getattr(module, "config", None), "sliding_window", None))
    if isinstance(window, int):
        warnings.warn(
            f"the model of this {type(module).__name__} lets each token see the last {window} only. Our layer knows no "
            f"window: give it mask=mha.sliding_window(n, {window}), or use mha.interop.swap, where the model does it",
            stacklevel=2,
        )
    layer = build(plan) if into is None else read(plan, into)
    return layer.train(module.training) if into is None else layer


@checked
def to_transformers(layer: Heads, module: nn.Module) -> nn.Module:
    """Copy our layer's parameters into a module of ``transformers``.

    :param layer: a layer of ours.
    :param module: an attention made with a configuration that fits; it is changed in place and returned.
    :Raises: ValueError that names every size and option that differs; then nothing was copied.
    :Taught in: in_the_transformer.
    """
    check_own_weights(module)
    if is_delta(module):
        return write_delta(layer, module)
    write(layer, transformers_plan(module))
    return module


@checked
def transformers_plan(module: nn.Module) -> Plan:
    """Describe a module of ``transformers`` in this package's words.

    :param module: an attention of a class that is known here.
    """
    name = type(module).__name__
    if name in PLANS and type(module).__module__.partition(".")[0] == "transformers":
        return _with_scale(module, PLANS[name](module))
    if is_delta(module):  # from_transformers and to_transformers never come here with one
        raise ValueError(
            f"{name} does not fit:\n  - it is linear attention, which mha.interop.from_transformers reads and swap "
            "does not replace"
        )
    if not (is_latent(module) or has_parts(module)):
        of = f" of {type(module).__module__} is not the class of this name, and" if name in PLANS else ""
        raise ValueError(
            f"{name}{of} is not known here: it is none of {sorted(PLANS)}, and has no four projections by names that "
            f"could be read. {WAY_OUT}"
        )
    reasons: list[str] = []
    try:
        plans = (lambda one: [deepseek_plan(one)]) if is_latent(module) else parts_plans
        other = drawn(module)
        for plan, trial in zip(plans(module), plans(other), strict=True):
            with torch.device("cpu"):
                reasons.append(differs(other, trial))
            if not reasons[-1]:
                return plan
    except (ValueError, AttributeError) as error:  # its parts have names that are read here, and others inside
        reasons.append(str(error))
    furthest = max(reasons, key=lambda reason: reason.startswith("with dropout"))  # of the plan that computes the same
    raise ValueError(f"{name} does not fit:\n  - {furthest}\n{WAY_OUT}")


@checked
def is_known(module: nn.Module) -> bool:
    """Whether a module may have a counterpart here; a trial decides.

    :param module: any module.
    """
    return type(module).__name__ in PLANS or is_latent(module) or has_parts(module)


def _with_scale(module: nn.Module, plan: Plan) -> Plan:
    """Add the scale of the scores to a plan, where it is not 1/√d: set by hand, or by YaRN."""
    usual = (plan.sizes["d_head"] + plan.sizes.get("d_rotary", 0)) ** -0.5
    told = getattr(getattr(module, "self", module), "scaling", usual)
    if not isinstance(told, float) or math.isclose(told, usual, rel_tol=1e-6):
        return plan
    return replace(plan, sizes=plan.sizes | {"scale": told})


@checked
def bert_plan(module: Any) -> Plan:
    """Describe ``BertAttention``: four linear maps, two of them in sub-modules of other names.

    :param module: an attention of this class.
    """
    inside = module.self
    kind = getattr(inside, "position_embedding_type", "absolute")
    reason = f"position_embedding_type = {kind!r} changes the scores; only 'absolute' is plain"
    refuse(type(module).__name__, [reason] * (kind != "absolute"), CHANGE)
    weights = _linears(q=inside.query, k=inside.key, v=inside.value, o=module.output.dense)
    sizes = {"heads": inside.num_attention_heads, "kv_heads": inside.num_attention_heads}
    sizes |= {"d_head": inside.attention_head_size, "dropout": inside.dropout.p}
    options = {"d_model": "hidden_size", "heads": "num_attention_heads", "dropout": "attention_probs_dropout_prob"}
    return _plan(type(module).__name__, sizes, weights, options)


@checked
def gpt2_plan(module: Any) -> Plan:
    """Describe ``GPT2Attention``: queries, keys and values in one matrix, stored transposed.

    :param module: an attention of this class, for self- or cross-attention.
    """
    reasons = {
        "scale_attn_weights=False leaves scores undivided; ours divide by √d": not module.scale_attn_weights,
        "scale_attn_by_inverse_layer_idx divides scores by the layer's number": module.scale_attn_by_inverse_layer_idx,
        "reorder_and_upcast_attn computes scores in float32 whatever the parameters": module.reorder_and_upcast_attn,
    }
    refuse("GPT2Attention", [reason for reason, holds in reasons.items() if holds], CHANGE)
    if module.is_cross_attention:
        inputs = [_turned(module.q_attn)[0], *_turned(module.c_attn, 2)]
    else:
        inputs = _turned(module.c_attn, 3)
    weights: dict[str, Tensor] = {}
    for letter, (weight, bias) in zip("qkvo", (*inputs, _turned(module.c_proj)[0]), strict=True):
        weights |= {f"W_{letter}.weight": weight, f"W_{letter}.bias": bias}
    sizes = {"heads": module.num_heads, "kv_heads": module.num_heads, "d_head": module.head_dim}
    options = {"d_model": "n_embd", "heads": "n_head", "dropout": "attn_pdrop"}
    return _plan("GPT2Attention", sizes | {"dropout": module.attn_dropout.p}, weights, options)


@checked
def llama_plan(module: Any) -> Plan:
    """Describe ``LlamaAttention`` and its kin: shared KV heads, rotary positions in halves, usually no biases.

    ``MistralAttention`` has a window too, and ``Qwen2Attention`` biases in three projections. A window is a matter of
    the mask: the model passes it, and our layer takes it as ``mask``.

    :param module: an attention of this class or its kin.
    """
    config, name = module.config, type(module).__name__
    positions, inside_only = rotary_of(module, module.head_dim)
    weights = _linears(q=module.q_proj, k=module.k_proj, v=module.v_proj, o=module.o_proj)
    sizes = {"heads": config.num_attention_heads, "kv_heads": config.num_key_value_heads}
    sizes |= {"d_head": module.head_dim, "dropout": module.attention_dropout}
    options = {"d_model": "hidden_size", "heads": "num_attention_heads", "kv_heads": "num_key_value_heads"}
    options |= {"d_head": "head_dim", "dropout": "attention_dropout", "bias": "attention_bias"}
    return _plan(name, sizes, weights, options | {"positions": "rope_parameters"}, positions, inside_only)


@checked
def released_plan(module: Any) -> Plan:
    """Describe ``Qwen3Attention``, ``Qwen3NextAttention`` and ``GptOssAttention``: Llama's, with more around it.

    Qwen's norms compute in float32 whatever the parameters: in float64 they agree with ours to about 1e-7.

    :param module: an attention of one of these three classes.
    """
    plan, name = llama_plan(module), type(module).__name__
    weights, heads, gated = dict(plan.weights), plan.sizes["heads"], name == "Qwen3NextAttention"
    sizes = {"norm_eps": None, "norm_offset": 0.0, "gated": gated, "sinks": hasattr(module, "sinks")}
    sizes |= {"softcap": None, "norm_whole": False}
    if gated:
        biased = module.q_proj.bias is not None
        refuse(name, ["attention_bias = True: here the gate, which is a part of q_proj, has none"] * biased, CHANGE)
        both = module.q_proj.weight.detach().unflatten(0, (heads, 2, module.head_dim))
        weights |= {"W_q.weight": both[:, 0], "W_g.weight": both[:, 1]}
    if sizes["sinks"]:
        weights["sinks"] = module.sinks.detach()
    else:
        weights |= {"W_q.norm": module.q_norm.weight.detach(), "W_k.norm": module.k_norm.weight.detach()}
        sizes["norm_eps"] = module.q_norm.eps if gated else module.q_norm.variance_epsilon
        sizes["norm_offset"] = float(gated)  # Qwen3-Next multiplies by 1 + the weight
    return replace(plan, sizes=plan.sizes | sizes, weights=weights, options=plan.options | {"norm_eps": "rms_norm_eps"})


@checked
def whisper_plan(module: Any) -> Plan:
    """Describe ``WhisperAttention``, self or cross: the key's projection has no bias.

    :param module: an attention of this class, for self- or cross-attention.
    """
    weights = _linears(q=module.q_proj, k=module.k_proj, v=module.v_proj, o=module.out_proj)
    sizes = {"heads": module.num_heads, "kv_heads": module.num_heads, "d_head": module.head_dim}
    options = {"d_model": "d_model", "heads": "encoder_attention_heads", "dropout": "attention_dropout"}
    return _plan(type(module).__name__, sizes | {"dropout": module.dropout}, weights, options)


@checked
def vit_plan(module: Any) -> Plan:
    """Describe ``ViTAttention``: four linear maps over the patches of a picture.

    :param module: an attention of this class.
    """
    old = not hasattr(module, "q_proj")
    refuse("ViTAttention", ["this release of transformers keeps its maps in other modules"] * old, "Take release 5.")
    weights = _linears(q=module.q_proj, k=module.k_proj, v=module.v_proj, o=module.o_proj)
    sizes = {"heads": module.num_attention_heads, "kv_heads": module.num_attention_heads, "d_head": module.head_dim}
    options = {"d_model": "hidden_size", "heads": "num_attention_heads", "bias": "qkv_bias"}
    options |= {"dropout": "attention_probs_dropout_prob"}
    return _plan(type(module).__name__, sizes | {"dropout": module.attention_dropout}, weights, options)


@checked
def albert_plan(module: Any) -> Plan:
    """Describe ``AlbertAttention``: BERT's four linear maps, all in one module.

    :param module: an attention of this class.
    """
    kind = getattr(module, "position_embedding_type", "absolute")
    reason = f"position_embedding_type = {kind!r} changes the scores; only 'absolute' is plain"
    refuse("AlbertAttention", [reason] * (kind != "absolute"), CHANGE)
    weights = _linears(q=module.query, k=module.key, v=module.value, o=module.dense)
    sizes = {"heads": module.num_attention_heads, "kv_heads": module.num_attention_heads}
    sizes |= {"d_head": module.attention_head_size, "dropout": module.attention_dropout.p}
    options = {"d_model": "hidden_size", "heads": "num_attention_heads", "dropout": "attention_probs_dropout_prob"}
    return _plan("AlbertAttention", sizes, weights, options)


PLANS = {
    "AlbertAttention": albert_plan,
    "BertAttention": bert_plan,
    "DeepseekV2Attention": deepseek_plan,
    "DeepseekV3Attention": deepseek_plan,
    "DeepseekV32Attention": indexed_plan,
    "GPT2Attention": gpt2_plan,
    "GptOssAttention": released_plan,
    "LlamaAttention": llama_plan,
    "MistralAttention": llama_plan,
    "Qwen2Attention": llama_plan,
    "Qwen3Attention": released_plan,
    "Qwen3NextAttention": released_plan,
    "ViTAttention": vit_plan,
    "WhisperAttention": whisper_plan,
}


def _plan(
    name: str,
    sizes: dict,
    weights: dict[str, Tensor],
    options: dict,
    positions: Any = None,
    inside_only: list[str] | None = None,
) -> Plan:
    """Add what the parameters themselves tell: the widths of the inputs, and which projections have biases."""
    widths = {"d_model": "W_q.weight", "kdim": "W_k.weight", "vdim": "W_v.weight"}
    found = {size: weights[weight].shape[1] for size, weight in widths.items()}
    return Plan(name, sizes | found | {"bias": biases(weights)}, weights, options, positions, inside_only or [])


def _linears(**linears: nn.Module) -> dict[str, Tensor]:
    """Name the weight matrices and biases of linear maps: what they compute with, adapters included."""
    return {
        f"W_{letter}.{name}": p
        for letter, x in linears.items()
        for name, p in as_linear(x, f"the projection {letter}").named_parameters()
    }


def _turned(conv: Any, parts: int = 1) -> list[tuple[Tensor, Tensor]]:
    """Cut a ``Conv1D``, whose weight is (in, out), into views of weights (out, in) and biases."""
    if type(conv).__name__ != "Conv1D" or not isinstance(conv._parameters.get("weight"), Tensor):
        raise ValueError(f"a projection of GPT-2 is a {type(conv).__name__}, not a Conv1D of its own. {REMEDY}")
    return list(zip(conv.weight.detach().T.chunk(parts), conv.bias.detach().chunk(parts), strict=True))


INSTALL = "pip install 'mha-course[interop]'"


@checked
def from_pretrained(name: str | os.PathLike, layer: int = 0) -> Heads:
    """Load the attention of one layer of a trained model: BERT, GPT-2, Llama or another of :func:`from_transformers`.

    Only safetensors are read: loading them runs no code.

    :param name: what ``transformers`` knows the checkpoint by, such as "gpt2", or a folder on this computer.
    :param layer: its number among the attention layers that are known here, from 0 in the model's order; 0 unless
        given.
    :Raises: ImportError without ``transformers``; OSError where the checkpoint can be read neither here nor over the
        network; ValueError where it has no such layer, or attention that is not known here.
    :Taught in: in_the_transformer.
    """
    try:
        auto = import_module("transformers").AutoModel
    except ImportError as error:
        raise ImportError(f"trained checkpoints are read by the library transformers: {INSTALL}") from error
    try:
        model = auto.from_pretrained(name, use_safetensors=True)
    except OSError as error:
        raise OSError(
            f"the checkpoint {str(name)!r} could not be loaded. transformers says: {str(error).splitlines()[0]} "
            "Check the name and the connection, or give the folder of a checkpoint in safetensors that you have. "
            "Without either, every module of transformers with random weights converts just as well: "
            "mha.interop.from_transformers(module)"
        ) from error
    modules = [module for module in model.modules() if is_known(module)]
    if not modules:
        found = sorted({type(m).__name__ for m in model.modules() if "Attention" in type(m).__name__})
        raise ValueError(f"{str(name)!r} has attention of class {found}, and none that is known here. {WAY_OUT}")
    if not 0 <= layer < len(modules):
        raise ValueError(f"layer = {layer}: {str(name)!r} has {len(modules)} layers, numbered 0 to {len(modules) - 1}")
    return from_transformers(modules[layer])
