"""The blocks of keys that an index chooses, one set for each KV head: those of MiniMax-M3's module in transformers."""

import pytest
import torch
from oracle import error
from torch import nn

import mha
from mha.functional import choose_blocks

released = pytest.importorskip("transformers.models.minimax_m3_vl.modeling_minimax_m3_vl")
from transformers import MiniMaxM3VLTextConfig  # noqa: E402

D, HEADS, KV_HEADS, BLOCK, CHOSEN = 32, 4, 2, 4, 3


def theirs(own):
    """A module with random weights in which a query reads three blocks of four keys, perhaps always its own."""
    config = MiniMaxM3VLTextConfig(
        hidden_size=D, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=8, num_hidden_layers=1,
        layer_types=["minimax_m3_sparse"], index_n_heads=KV_HEADS, index_head_dim=8, index_block_size=BLOCK,
        index_topk_blocks=CHOSEN, index_local_blocks=int(own), attn_implementation="eager",
    )  # fmt: skip
    torch.manual_seed(0)
    module = released.MiniMaxM3VLAttention(config, 0).double().eval()
    for weight in module.parameters():
        nn.init.normal_(weight, std=0.3)
    return module, released.MiniMaxM3VLRotaryEmbedding(config)


def projected(module, x, waves):
    """Their queries and keys, normed and rotated, of the layer or of its index."""
    q, k = (
        norm(linear(x).unflatten(2, (-1, 8))).transpose(1, 2)
        for norm, linear in ((module.q_norm, module.q_proj), (module.k_norm, module.k_proj))
    )
    return released.apply_rotary_pos_emb(q, k, *waves)


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("n", [40, 38])  # the last block is whole, or it is not
@torch.no_grad()
def test_the_blocks_and_what_is_read_in_them_are_theirs(n, own):
    module, rotary = theirs(own)
    x, past = torch.randn(2, n, D), mha.causal_mask(n)
    waves = rotary(x, torch.arange(n)[None])
    q, k = projected(module.indexer, x, waves)
    sets = [choose_blocks(scores, CHOSEN, BLOCK, past, own=own) for scores in (q @ k.mT).unbind(1)]
    chosen = torch.stack(sets, 1).repeat_interleave(HEADS // KV_HEADS, 1)

    blocks = module.indexer(x, waves, None, torch.arange(n).expand(2, n))
    mask = module.indexer.build_block_mask(blocks, None, n, x.dtype, x.device, torch.arange(n)[None])
    assert torch.equal(chosen, mask == 0)
    assert chosen.sum(-1).max() == CHOSEN * BLOCK < n
    assert not torch.equal(*sets)  # each KV head has its own

    q, k = projected(module, x, waves)
    v = module.v_proj(x).unflatten(2, (-1, 8)).transpose(1, 2)
    read, dense = (mha.attend(q, k, v, which, enable_gqa=True) for which in (chosen, past))
    right, _ = module(x, waves, None)
    assert error(module.o_proj(mha.merge_heads(read)), right) < 1e-6
    assert error(module.o_proj(mha.merge_heads(dense)), right) > 1e-3
