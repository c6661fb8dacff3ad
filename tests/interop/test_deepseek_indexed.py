"""The attention of DeepSeek-V3.2, whose index chooses fewer keys than there are: both ways, and in its model."""

import copy

import pytest
import torch
from oracle import error
from torch import nn

import mha
from mha.interop import swap
from mha.interop.hugging_face import from_transformers, to_transformers

transformers = pytest.importorskip("transformers", reason="transformers is missing: pip install -e '.[interop]'")
from transformers.models.deepseek_v32 import modeling_deepseek_v32  # noqa: E402

D, HEADS, N, K = 24, 3, 12, 4
SIZES = {
    "hidden_size": D, "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "kv_lora_rank": 10, "q_lora_rank": 8,
    "qk_rope_head_dim": 4, "qk_nope_head_dim": 6, "v_head_dim": 6, "index_n_heads": 12, "index_head_dim": 10,
    "index_topk": K, "attn_implementation": "eager",
}  # fmt: skip


def theirs(**made):
    """A module with random weights, large enough that few scores of the index are equal."""
    config = transformers.DeepseekV32Config(**(SIZES | made))
    module = modeling_deepseek_v32.DeepseekV32Attention(config, layer_idx=0).double().eval()
    for weight in module.parameters():
        nn.init.normal_(weight, 0.1, 0.3)
    return module, modeling_deepseek_v32.DeepseekV32RotaryEmbedding(config)


def run(module, rotary, x):
    """Call their module causally, as their model does."""
    n = x.shape[1]
    hidden = torch.zeros(n, n).masked_fill(mha.causal_mask(n).logical_not(), torch.finfo(x.dtype).min)
    hidden = hidden.expand(len(x), 1, n, n).to(x)
    return module(x, rotary(x, torch.arange(n)[None].expand(len(x), n)), hidden)[0]


def test_more_tokens_than_are_chosen_give_their_output_both_ways():
    module, rotary = theirs()
    layer, x = from_transformers(module), torch.randn(2, N, D)
    assert isinstance(layer, mha.IndexedLatentAttention)
    assert (layer.k, layer.indexer.layout, layer.positions.layout) == (K, "half", "interleaved")
    scores = layer.index(x, is_causal=True).sort(-1, descending=True).values[:, K:]
    assert (scores[..., K - 1] - scores[..., K]).abs().min() > 1e-5  # no ties: of equal scores they choose any
    for absorb in (False, True):
        assert error(layer(x, is_causal=True, absorb=absorb), run(module, rotary, x)) < 1e-6
    new, _ = theirs()
    assert error(run(new, rotary, x), run(module, rotary, x)) > 1e-3
    assert error(run(to_transformers(layer, new), rotary, x), run(module, rotary, x)) == 0
    whole = copy.deepcopy(layer)
    whole.k = N
    assert error(whole(x, is_causal=True), layer(x, is_causal=True)) > 1e-3  # the index matters here


def test_index_channels_paired_as_in_the_heads_give_other_numbers():
    module, rotary = theirs()
    layer, x = from_transformers(module), torch.randn(2, N, D)
    layer.indexer.layout = "interleaved"
    assert error(layer(x, is_causal=True), run(module, rotary, x)) > 1e-3


def test_what_does_not_fit_is_refused(reader):
    module, _ = theirs()
    module.indexer.k_norm.eps = 1e-5
    with pytest.raises(ValueError, match="an index norm with eps 1e-05: here it is 1e-06"):
        from_transformers(module)
    layer = mha.IndexedLatentAttention(D, HEADS, 10, 5, d_rotary=4, d_query=8, norm=True, d_head=6, bias=False)
    with pytest.raises(ValueError, match="index_topk") as refused:
        to_transformers(layer.double(), theirs()[0])
    for line in (
        "k: the layer has 5, DeepseekV32Attention has 4 (its option index_topk)",
        "index_heads: the layer has 4, DeepseekV32Attention has 12 (its option index_n_heads)",
        "d_index: the layer has 8, DeepseekV32Attention has 10 (its option index_head_dim)",
    ):
        assert line in str(refused.value)
    with pytest.raises(ValueError, match="only IndexedLatentAttention fits"):
        to_transformers(mha.LatentAttention(D, HEADS, 10), theirs()[0])


@torch.no_grad()
def test_their_model_writes_the_same_with_our_layers_and_its_own_cache():
    sizes = SIZES | {
        "vocab_size": 50, "num_hidden_layers": 2, "intermediate_size": 32, "moe_intermediate_size": 8,
        "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 2,
        "max_position_embeddings": 64, "pad_token_id": 0,
    }  # fmt: skip
    model = transformers.DeepseekV32ForCausalLM(transformers.DeepseekV32Config(**sizes)).double().eval()
    for weight in model.parameters():
        nn.init.normal_(weight, 0.1, 0.3)
    ours, ids = copy.deepcopy(model), torch.randint(1, 50, (1, N))
    assert {type(swap(ours, number)) for number in range(2)} == {mha.IndexedLatentAttention}
    assert error(ours(ids).logits, model(ids).logits) < 1e-5
    how = {"max_new_tokens": 4, "do_sample": False, "output_scores": True, "return_dict_in_generate": True}
    found, right = ours.generate(ids, **how), model.generate(ids, **how)
    assert torch.equal(found.sequences, right.sequences)
    assert error(torch.stack(found.scores), torch.stack(right.scores)) < 1e-5
