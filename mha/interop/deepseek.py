"""The attention of DeepSeek-V2, -V3 and -V3.2 in ``transformers``: which part of its matrices is which of ours.

:Taught in: compress.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from mha.checks import checked
from mha.interop.plan import Plan, refuse
from mha.interop.rotary import rotary_of
from mha.layers.latent import EPS

OPTIONS = {
    "d_model": "hidden_size",
    "heads": "num_attention_heads",
    "d_head": "qk_nope_head_dim",
    "d_latent": "kv_lora_rank",
    "d_query": "q_lora_rank",
    "d_rotary": "qk_rope_head_dim",
    "dropout": "attention_dropout",
    "positions": "rope_parameters",
}

INDEX_OPTIONS = {"k": "index_topk", "index_heads": "index_n_heads", "d_index": "index_head_dim"}


@checked
def is_latent(module: nn.Module) -> bool:
    """Whether a module has the joined matrices of DeepSeek's attention, whatever its class.

    :param module: any module.
    """
    compressed = getattr(module, "q_lora_rank", None) is not None
    names = ("q_a_proj", "q_a_layernorm", "q_b_proj") if compressed else ("q_proj",)
    names = (*names, "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj", "o_proj")
    return all(isinstance(getattr(module, name, None), nn.Module) for name in names)


@checked
def deepseek_plan(module: Any) -> Plan:
    """Describe ``DeepseekV2Attention`` and ``DeepseekV3Attention``: the parts of three joined matrices, by our names.

    Both compute their norms in float32 whatever the parameters, V2 its rotations too, and their explicit path its
    softmax: in float64 they agree with ours to about 1e-7.

    :param module: an attention of one of these two classes.
    """
    name, config = type(module).__name__, module.config
    positions, inside_only = rotary_of(module, module.qk_rope_head_dim)
    heads, own, rotated = module.num_heads, module.qk_nope_head_dim, module.qk_rope_head_dim
    norms = [norm for norm in (module.q_a_layernorm, module.kv_a_layernorm) if norm is not None]
    unlike = {
        f"v_head_dim = {module.v_head_dim}, qk_nope_head_dim = {own}: here values are as wide as keys": (
            module.v_head_dim != own
        ),
        "attention_bias = True: here the compressing maps have none": module.kv_a_proj_with_mqa.bias is not None,
        f"num_key_value_heads = {config.num_key_value_heads}: every head has keys of its own": (
            module.num_key_value_groups != 1
        ),
        f"norms with eps {[norm.variance_epsilon for norm in norms]}: here it is {EPS}": any(
            norm.variance_epsilon != EPS for norm in norms
        ),
    }
    reasons = [reason for reason, holds in unlike.items() if holds]
    refuse(name, reasons, "Make the module with a configuration without these, and convert again.")
    queries: nn.Linear = module.q_proj if module.q_lora_rank is None else module.q_b_proj
    of_queries = queries.weight.detach().unflatten(0, (heads, own + rotated))
    of_both = module.kv_b_proj.weight.detach().unflatten(0, (heads, 2 * own))
    latent, key = module.kv_a_proj_with_mqa.weight.detach().split([module.kv_lora_rank, rotated])
    weights: dict[str, torch.Tensor] = {
        "W_q.weight": of_queries[:, :own],
        "W_k.weight": of_both[:, :own],
        "W_v.weight": of_both[:, own:],
        "W_o.weight": module.o_proj.weight.detach(),
        "W_down.weight": latent,
        "norm_latent.weight": module.kv_a_layernorm.weight.detach(),
        "W_rotary_q.weight": of_queries[:, own:],
        "W_rotary_k.weight": key,
    }
    if module.q_lora_rank is not None:
        weights["W_down_q.weight"] = module.q_a_proj.weight.detach()
        weights["norm_query.weight"] = module.q_a_layernorm.weight.detach()
    sizes = {"d_model": module.hidden_size, "heads": heads, "kv_heads": heads, "d_head": own, "norm": True}
    sizes |= {"kdim": module.kv_lora_rank, "vdim": module.kv_lora_rank, "bias": "", "d_latent": module.kv_lora_rank}
    sizes |= {"d_rotary": rotated, "d_query": module.q_lora_rank, "dropout": module.attention_dropout}
    positions.layout = "interleaved" if getattr(config, "rope_interleave", True) else "half"
    return Plan(name, sizes, weights, OPTIONS, positions, inside_only)


@checked
def indexed_plan(module: Any) -> Plan:
    """Describe ``DeepseekV32Attention``: that of V3, and the four parts of its index.

    Its pairs of rotated channels are neighbors in the heads and halves in the index. Their class computes the scores of
    the index without gradients. Among equal scores it chooses any, ours the earliest.

    :param module: an attention of this class.
    """
    plan, indexer = deepseek_plan(module), module.indexer
    unlike = indexer.k_norm.eps != EPS
    reasons = [f"an index norm with eps {indexer.k_norm.eps}: here it is {EPS}"] * unlike
    refuse(type(module).__name__, reasons, "Make the module with a configuration without this, and convert again.")
    weights = plan.weights | {
        "indexer.W_q.weight": indexer.wq_b.weight.detach(),
        "indexer.W_k.weight": indexer.wk.weight.detach(),
        "indexer.W_w.weight": indexer.weights_proj.weight.detach(),
        "indexer.norm.weight": indexer.k_norm.weight.detach(),
        "indexer.norm.bias": indexer.k_norm.bias.detach(),
    }
    sizes = {"k": indexer.index_topk, "index_heads": indexer.n_heads, "d_index": indexer.head_dim}
    sizes |= {"index_layout": "half", "block": 1, "pool": "max"}
    return replace(plan, sizes=plan.sizes | sizes, weights=weights, options=plan.options | INDEX_OPTIONS)
