"""Entries that stand for several tokens: made, masked and rotated, and with them the attention of DeepSeek-V4."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from oracle import LIMIT, error
from torch import nn

import mha
from mha.functional import (
    attend_with_sink,
    choose_tokens,
    compress_blocks,
    finished_entries,
    index_scores,
    rotary_rates,
    rotate_last,
    sliding_window,
)


def rows(n, width, seed=0, b=2):
    random = torch.Generator().manual_seed(seed)
    x, logits = torch.randn(2, b, n, width, generator=random, dtype=torch.float64)
    return x, logits


def one_entry(x, logits, block, e, overlap, c):
    """One channel of one entry in plain Python, x and logits as lists of rows."""
    width = len(x[0]) // 2 if overlap else len(x[0])
    pairs = [(x[j][c + overlap * width], logits[j][c + overlap * width]) for j in range(e * block, (e + 1) * block)]
    if overlap and e > 0:
        pairs += [(x[j][c], logits[j][c]) for j in range((e - 1) * block, e * block)]
    weights = [math.exp(score) for _, score in pairs]
    return sum(w * value for w, (value, _) in zip(weights, pairs, strict=True)) / sum(weights)


@given(n=st.integers(0, 13), block=st.integers(1, 5), overlap=st.booleans(), seed=st.integers(0, 99))
def test_each_channel_of_each_entry_is_made_by_hand(n, block, overlap, seed):
    x, logits = rows(n, 6, seed)
    found, width = compress_blocks(x, logits, block, overlap=overlap), 3 if overlap else 6
    assert found.shape == (2, n // block, width)
    for b in range(2):
        for e in range(n // block):
            right = [one_entry(x[b].tolist(), logits[b].tolist(), block, e, overlap, c) for c in range(width)]
            assert found[b, e].tolist() == pytest.approx(right, abs=1e-12)


@given(cuts=st.lists(st.integers(0, 6), max_size=6), overlap=st.booleans(), seed=st.integers(0, 99))
def test_raw_rows_kept_until_a_block_is_finished_give_the_same_entries(cuts, overlap, seed):
    x, logits = rows(sum(cuts), 4, seed)
    kept, before, entries = (x[:, :0], logits[:, :0]), None, []
    for piece in zip(x.split(cuts, 1), logits.split(cuts, 1), strict=True):
        kept = tuple(torch.cat(both, 1) for both in zip(kept, piece, strict=True))
        entries.append(compress_blocks(*kept, 3, overlap=overlap, before=before))
        whole = kept[0].shape[1] // 3 * 3
        if whole and overlap:
            before = tuple(one[:, whole - 3 : whole] for one in kept)
        kept = tuple(one[:, whole:] for one in kept)
        assert kept[0].shape[1] < 3
    if cuts:
        assert torch.allclose(torch.cat(entries, 1), compress_blocks(x, logits, 3, overlap=overlap), atol=1e-12)


def test_equal_logits_make_a_mean_and_the_first_block_has_nothing_before_it():
    x, _ = rows(8, 6)
    flat = torch.zeros_like(x)
    assert torch.allclose(compress_blocks(x, flat, 4), x.unflatten(1, (2, 4)).mean(2))
    found = compress_blocks(x, flat, 4, overlap=True)
    assert torch.allclose(found[:, 0], x[:, :4, 3:].mean(1))  # not divided by eight
    both = torch.cat([x[:, :4, :3], x[:, 4:, 3:]], 1)
    assert torch.allclose(found[:, 1], both.mean(1))


def test_an_entry_waits_for_its_last_token():
    right = ["0 0 0", "0 0 0", "1 0 0", "1 0 0", "1 0 0", "1 1 0", "1 1 0"]
    assert finished_entries(7, 3, 3).int().tolist() == [[int(one) for one in row.split()] for row in right]
    assert finished_entries(7, 3).shape == (7, 2)
    assert torch.equal(finished_entries(3, 3, 3, start=4), finished_entries(7, 3, 3)[4:])
    assert finished_entries(2, 5).shape == (2, 0)


@given(block=st.integers(1, 6), overlap=st.booleans(), seed=st.integers(0, 99))
def test_what_comes_later_changes_no_entry_that_is_visible(block, overlap, seed):
    x, logits = rows(17, 4, seed)
    at = 1 + seed % 16
    entries = compress_blocks(x, logits, block, overlap=overlap)
    for tensor in (x, logits):
        tensor[:, at:] += 1
    changed = (compress_blocks(x, logits, block, overlap=overlap) - entries).abs().amax((0, 2)) > 0
    visible = finished_entries(17, block, entries.shape[1])
    assert not (visible[at - 1] & changed).any()


@given(d=st.integers(1, 9), pairs=st.integers(0, 4), seed=st.integers(0, 99))
def test_the_last_channels_are_rotated_as_complex_numbers(d, pairs, seed):
    pairs = min(pairs, d // 2)
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(2, 3, 5, d, generator=random, dtype=torch.float64)
    angles = 6 * torch.rand(5, pairs, generator=random, dtype=torch.float64)
    found, still = rotate_last(x, angles), d - 2 * pairs
    assert torch.equal(found[..., :still], x[..., :still])
    numbers = torch.complex(x[..., still::2], x[..., still + 1 :: 2])
    right = torch.view_as_real(numbers * torch.exp(1j * angles)).flatten(-2)
    assert torch.allclose(found[..., still:], right, atol=1e-12)
    assert torch.allclose(rotate_last(found, angles, back=True), x, atol=1e-12)


def test_all_channels_rotated_are_rotary_positions():
    x = torch.randn(2, 3, 7, 8, dtype=torch.float64)
    angles = torch.arange(7.0, dtype=torch.float64)[:, None] * rotary_rates(8).double()
    assert error(rotate_last(x, angles), mha.RotaryPositions(layout="interleaved").rotate(x)) < 1e-6


def moved_output(start, back):
    """Read rotated rows that are keys and values, at positions from ``start`` on."""
    random = torch.Generator().manual_seed(0)
    q, row = torch.randn(2, 1, 4, 12, 16, generator=random, dtype=torch.float64)
    rates = 10000.0 ** (-torch.arange(4, dtype=torch.float64) / 4)
    angles = torch.arange(start, start + 12)[:, None] * rates
    row = rotate_last(row, angles)
    z = mha.attend(rotate_last(q, angles), row, row, is_causal=True)
    return rotate_last(z, angles, back=True) if back else z


def test_a_head_output_that_is_rotated_back_depends_on_distances_only():
    assert error(moved_output(100, True), moved_output(0, True)) < LIMIT
    assert error(moved_output(100, False), moved_output(0, False)) > 0.3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_numbers_of_few_bits_stay_what_they_are(dtype):
    x, logits = rows(8, 4)
    found = compress_blocks(x.to(dtype), logits.to(dtype), 4, overlap=True)
    assert found.dtype == dtype
    assert error(found.double(), compress_blocks(x, logits, 4, overlap=True)) < 10 * torch.finfo(dtype).eps
    angles = torch.rand(8, 2)
    assert rotate_last(x[:, None].to(dtype), angles).dtype == dtype


def test_slopes_are_finite_and_right():
    x, logits = (one.requires_grad_() for one in rows(6, 4, b=1))
    assert torch.autograd.gradcheck(lambda a, b: compress_blocks(a, b, 2, overlap=True), (x, logits))


def test_what_cannot_be_compressed_is_refused(reader):
    x, logits = rows(8, 5)
    with pytest.raises(ValueError, match="do not belong together: give one logit"):
        compress_blocks(x, logits[..., :4], 4)
    with pytest.raises(ValueError, match="two halves, so its width must be even"):
        compress_blocks(x, logits, 4, overlap=True)
    with pytest.raises(ValueError, match="block = 0: it must be at least 1"):
        compress_blocks(x, logits, 0)
    with pytest.raises(TypeError, match=r"use logits\.to\(x\)"):
        compress_blocks(x, logits.float(), 4)
    with pytest.raises(ValueError, match="without overlap no entry reads the block before it"):
        compress_blocks(x, logits, 4, before=(x[:, :4], x[:, :4]))
    x, logits = rows(8, 6)
    with pytest.raises(ValueError, match=r"before\[1\] has shape \(2, 3, 6\), but the block before x"):
        compress_blocks(x, logits, 4, overlap=True, before=(x[:, :4], x[:, :3]))
    with pytest.raises((TypeError, ValueError), match="before"):
        compress_blocks(x, logits, 4, overlap=True, before=(x[:, :4],))
    with pytest.raises(TypeError, match=r"use before\[0\]\.to\(x\)"):
        compress_blocks(x, logits, 4, overlap=True, before=(x[:, :4].float(), x[:, :4]))


def test_what_cannot_be_masked_or_rotated_is_refused(reader):
    with pytest.raises(ValueError, match="i = 0: it must be at least 1"):
        finished_entries(0, 4)
    with pytest.raises(ValueError, match="start = -1: it must be at least 0"):
        finished_entries(4, 4, start=-1)
    x = torch.randn(1, 2, 5, 6)
    with pytest.raises(ValueError, match="give one row for each of 5 positions, and at most 3 pairs"):
        rotate_last(x, torch.rand(4, 2))
    with pytest.raises(ValueError, match="at most 3 pairs"):
        rotate_last(x, torch.rand(5, 4))
    with pytest.raises(ValueError, match=r"angles of shape \(5, 2\) holds NaN or infinity"):
        rotate_last(x, torch.full((5, 2), torch.nan))


# ---- DeepSeek-V4: the attention of its three kinds of layers

SLIDING, CSA, HCA = KINDS = ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"]
N = 29  # no block is finished at the end, and more entries than are chosen


@pytest.fixture(scope="module")
def theirs():
    """Their three layers with random weights, and the inputs that all take."""
    transformers = pytest.importorskip("transformers", reason="transformers is missing: pip install -e '.[interop]'")
    v4 = pytest.importorskip("transformers.models.deepseek_v4.modeling_deepseek_v4", reason="no DeepSeek-V4 in here")
    config = transformers.DeepseekV4Config(
        hidden_size=32, num_attention_heads=4, head_dim=16, q_lora_rank=24, partial_rotary_factor=0.5,
        index_n_heads=12, index_head_dim=16, index_topk=3, num_hidden_layers=3, layer_types=KINDS,
        compress_rates={CSA: 4, HCA: 8}, mlp_layer_types=["moe"] * 3, sliding_window=6, o_groups=2, o_lora_rank=8,
        attn_implementation="eager",
    )  # fmt: skip
    torch.manual_seed(0)
    found = {kind: v4.DeepseekV4Attention(config, n).double().eval() for n, kind in enumerate(KINDS)}
    for module in found.values():
        for weight in module.parameters():
            nn.init.normal_(weight, std=0.3)
    rotary = v4.DeepseekV4RotaryEmbedding(config)

    @torch.no_grad()
    def run(kind, x, cache=None, start=0):
        at = torch.arange(start, start + x.shape[1])[None]
        waves = {name: rotary(x, position_ids=at, layer_type=name) for name in ("main", "compress")}
        seen = sliding_window(start + x.shape[1], 6)[start:]
        if cache is not None:  # it gives back the last rows of the window, and the new ones
            seen = seen[:, max(0, start - 5) :]
        hide = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(x.dtype).min)
        hide = hide.expand(len(x), 1, *hide.shape)
        return found[kind](x, waves, at, hide, past_key_values=cache)[0]

    return found, run, config


def angles(n, base, every=1, width=8):
    return torch.arange(0, n * every, every)[:, None] * rotary_rates(width, base)


def entries_of(part, x, block, overlap):
    """Their compressor: what it keeps of each block, after norm and rotation."""
    logits = part.gate_proj(x) + part.position_bias.repeat(x.shape[1] // block + 1, 1)[: x.shape[1]]
    entries = part.kv_norm(compress_blocks(part.kv_proj(x), logits, block, overlap=overlap))
    return rotate_last(entries[:, None], angles(entries.shape[1], 160000.0, block))


@torch.no_grad()
def ours(module, x, config):
    """The whole layer, from the functions of the course and their weights."""
    b, n, _ = x.shape
    kind, base = module.layer_type, 10000.0 if module.layer_type == SLIDING else 160000.0
    block, turns = config.compress_rates.get(kind), angles(n, base)
    latent = module.q_a_norm(module.q_a_proj(x))
    q = F.rms_norm(mha.split_heads(module.q_b_proj(latent), 4), (16,), eps=1e-6)
    q, row = rotate_last(q, turns), rotate_last(module.kv_norm(module.kv_proj(x))[:, None], turns)
    mask = sliding_window(n, 6).expand(b, n, n)
    if kind != SLIDING:
        row = torch.cat([row, entries_of(module.compressor, x, block, kind == CSA)], 2)
        visible = finished_entries(n, block).expand(b, -1, -1)
        if kind == CSA:
            part = module.compressor.indexer
            keys = entries_of(part, x, block, True)[:, 0]
            q_index = rotate_last(mha.split_heads(part.q_b_proj(latent), 12), turns)
            w = part.scorer.weights_proj(x) / math.sqrt(12)
            scores = index_scores(q_index, keys, w)
            best = scores.masked_fill(~visible, -torch.inf).sort(-1, descending=True).values
            assert (best[..., 2] - best[..., 3]).nan_to_num(nan=1.0).min() > 1e-6  # of equal scores they choose any
            visible = choose_tokens(scores, config.index_topk, visible[:, None])
        mask = torch.cat([mask, visible], 2)
    z = attend_with_sink(q, row, row, module.sinks, mask[:, None], enable_gqa=True)
    z = rotate_last(z, turns, back=True)
    groups = mha.merge_heads(z).unflatten(-1, (2, -1))
    return module.o_b_proj(module.o_a_proj(groups).flatten(2))


@pytest.mark.parametrize("kind", KINDS)
def test_the_functions_make_the_attention_of_deepseek_v4(kind, theirs):
    modules, run, config = theirs
    x = torch.randn(2, N, 32, generator=torch.Generator().manual_seed(1))
    assert error(ours(modules[kind], x, config), run(kind, x)) < 1e-6


@pytest.mark.parametrize("kind", [CSA, HCA])
def test_their_cache_makes_the_entries_that_ours_make_from_the_whole_text(kind, theirs):
    from transformers import DynamicCache

    modules, run, config = theirs
    x = torch.randn(1, N, 32, generator=torch.Generator().manual_seed(2))
    cache, start, outputs = DynamicCache(config=config), 0, []
    for length in (10, 1, 1, 1, 9, 7):
        layer = modules[kind]
        outputs.append(run(kind, x[:, start : start + length], cache, start))
        start += length
    assert start == N
    kept = cache.layers[layer.layer_idx].compressed_kv["compressor"]
    right = entries_of(layer.compressor, x, config.compress_rates[kind], kind == CSA)[:, 0]
    assert error(kept, right) < 1e-6
    assert error(torch.cat(outputs, 1), ours(layer, x, config)) < 1e-6


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (HCA, lambda part, x, block: part.kv_norm(part.kv_proj(x))),  # norm before pooling
        (CSA, lambda part, x, block: part.kv_proj(x).roll(16, -1)),  # halves exchanged
    ],
)
def test_a_trap_is_seen(kind, wrong, theirs):
    modules, _, config = theirs
    part, block = modules[kind].compressor, config.compress_rates[kind]
    x = torch.randn(2, 24, 32, generator=torch.Generator().manual_seed(3))
    right = entries_of(part, x, block, kind == CSA)
    logits = part.gate_proj(x) + part.position_bias.repeat(24 // block, 1)
    logits = logits.roll(16, -1) if kind == CSA else logits
    entries = compress_blocks(wrong(part, x, block), logits, block, overlap=kind == CSA)
    entries = entries if kind == HCA else part.kv_norm(entries)
    found = rotate_last(entries[:, None], angles(entries.shape[1], 160000.0, block))
    assert error(found, right) > 0.1
