"""Tensors in, tensors out: attention without parameters of its own."""

from mha.functional.attention import attend, attention_weights, merge_heads, split_heads
from mha.functional.compressed_entries import compress_blocks, finished_entries, rotate_last
from mha.functional.conversion import fit_balanced_latent, mix_heads, principal_mixing
from mha.functional.core import Changes
from mha.functional.decomposition import Shared, fit_shared, keep_largest
from mha.functional.entmax import entmax
from mha.functional.indexed import choose_blocks, choose_tokens, index_loss, index_scores
from mha.functional.latent import Latent, Operations, count_forms, fit_latent
from mha.functional.linear import delta_rule, delta_weights, linear_attention, positive_features
from mha.functional.masks import (
    causal_mask,
    check_mask,
    from_additive,
    from_batch_first,
    from_hidden,
    from_key_padding,
    from_seq_first,
    padding_mask,
    sliding_window,
    to_additive,
)
from mha.functional.procrustes import best_rotation, group_heads, likeness
from mha.functional.rotary_scaling import (
    larger_base,
    llama3_rates,
    longrope_attention_factor,
    rotary_rates,
    yarn_attention_factor,
    yarn_rates,
)
from mha.functional.sink_softmax import attend_with_sink, softmax_with_sink
from mha.functional.smaller_cache import heaviest_keys, round_to_bits
from mha.functional.tiled import tiled_attention

__all__ = [
    "Changes",
    "Latent",
    "Operations",
    "Shared",
    "attend",
    "attend_with_sink",
    "attention_weights",
    "best_rotation",
    "causal_mask",
    "check_mask",
    "choose_blocks",
    "choose_tokens",
    "compress_blocks",
    "count_forms",
    "delta_rule",
    "delta_weights",
    "entmax",
    "finished_entries",
    "fit_balanced_latent",
    "fit_latent",
    "fit_shared",
    "from_additive",
    "from_batch_first",
    "from_hidden",
    "from_key_padding",
    "from_seq_first",
    "group_heads",
    "heaviest_keys",
    "index_loss",
    "index_scores",
    "keep_largest",
    "larger_base",
    "likeness",
    "linear_attention",
    "llama3_rates",
    "longrope_attention_factor",
    "merge_heads",
    "mix_heads",
    "padding_mask",
    "positive_features",
    "principal_mixing",
    "rotary_rates",
    "rotate_last",
    "round_to_bits",
    "sliding_window",
    "softmax_with_sink",
    "split_heads",
    "tiled_attention",
    "to_additive",
    "yarn_attention_factor",
    "yarn_rates",
]
