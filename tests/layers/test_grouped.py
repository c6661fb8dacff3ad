"""Query heads that share keys and values; and what alignment keeps, finds and gains before heads are merged."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracle import LIMIT, error

import mha
from mha.analysis import leaks
from mha.functional import attention, procrustes
from mha.layers import MemoryCache, align_heads

B, N, D_MODEL, HEADS, WIDTH = 2, 5, 18, 6, 4


def noise(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def grouped(kv_heads, **sizes):
    torch.manual_seed(2)
    return mha.GroupedAttention(D_MODEL, HEADS, kv_heads, d_head=WIDTH, **sizes).double().eval()


def by_repeating(layer, x, memory=None, mask=None, is_causal=False):
    """The definition: copy each KV head for the queries that share it, then attend as usual."""
    q, k, v = layer.project(x, memory)
    group = layer.heads // layer.kv_heads
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    return layer.merge(attention.attend(q, k, v, mask, is_causal=is_causal))


MASKS = {
    "none": None,
    "query and key": noise(N, N) > -0.5,
    "padding": mha.padding_mask([2, 4], N),
    "per head": noise(1, HEADS, N, N) > 0,
    "per head and key": noise(B, HEADS, 1, N) > 0,
    "everything": noise(B, HEADS, N, N) > 0,
    "an empty row": torch.ones(N, N, dtype=torch.bool).tril(-1),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 2, 3, 6])
def test_shared_keys_give_what_copied_keys_give(kv_heads, is_causal, mask):
    layer, x = grouped(kv_heads), noise(B, N, D_MODEL).requires_grad_()
    ours, theirs = layer(x, mask=mask, is_causal=is_causal), by_repeating(layer, x, mask=mask, is_causal=is_causal)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-13)
    pull = noise(B, N, D_MODEL, seed=1)
    ours, theirs = (torch.autograd.grad(y, x, pull, retain_graph=True)[0] for y in (ours, theirs))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-13)


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
def test_cross_attention_and_a_memory_cache(kv_heads):
    layer, x, memory = grouped(kv_heads, kdim=7, vdim=7), noise(B, N, D_MODEL), noise(B, 3, 7)
    torch.testing.assert_close(layer(x, memory), by_repeating(layer, x, memory))
    with torch.no_grad():
        cache = MemoryCache()
        for word in x.split(1, 1):
            torch.testing.assert_close(layer(word, memory, cache=cache), by_repeating(layer, word, memory))


@pytest.mark.parametrize("positions", [None, mha.RotaryPositions(), mha.LinearBias()])
@pytest.mark.parametrize("chunks", [(1,) * N, (2, 3), (N,)])
def test_a_cache_of_shared_heads_gives_the_same_numbers(positions, chunks):
    layer, x = grouped(2, positions=positions), noise(B, N, D_MODEL)
    with torch.no_grad():
        cache = mha.KeyValueCache(N)
        fed = torch.cat([layer(part, cache=cache, is_causal=True) for part in x.split(chunks, 1)], 1)
        torch.testing.assert_close(fed, layer(x, is_causal=True), rtol=0, atol=1e-13)
        assert cache.update(*(torch.zeros(B, 2, 0, WIDTH, dtype=torch.float64),) * 2)[0].shape == (B, 2, N, WIDTH)


def test_a_watcher_sees_every_query_head_and_changes_nothing():
    layer, x = grouped(3), noise(B, N, D_MODEL)
    with mha.watch(layer) as seen:
        watched = layer(x, is_causal=True)
    torch.testing.assert_close(watched, layer(x, is_causal=True), rtol=0, atol=1e-13)
    assert seen.scores.shape == seen.weights.shape == (B, HEADS, N, N)
    assert seen.heads.shape == (B, HEADS, N, WIDTH)
    q, k, _ = layer.project(x)
    expected = attention.attention_weights(q, k.repeat_interleave(2, 1), is_causal=True)
    torch.testing.assert_close(seen.weights, expected)


def test_nothing_leaks():
    torch.manual_seed(0)
    report = leaks(mha.GroupedAttention(8, 4, 2), cache=mha.KeyValueCache, is_causal=True)
    assert not report
    assert not any(report.blind.values())


def test_as_many_key_heads_as_query_heads_is_plain_attention():
    torch.manual_seed(0)
    plain = mha.MultiHeadAttention(12, 3, kdim=5, vdim=7, bias="qvo").double().eval()
    layer, x = mha.GroupedAttention.from_plain(plain), noise(2, 4, 12)
    assert layer.state_dict().keys() == plain.state_dict().keys()
    key, value = noise(2, 3, 5), noise(2, 3, 7)
    assert torch.equal(layer(x, key, value), plain(x, key, value))


def test_fewer_key_heads_are_means_of_the_old_ones():
    torch.manual_seed(0)
    plain = mha.MultiHeadAttention(8, 4)
    shared = mha.GroupedAttention.from_plain(plain, kv_heads=2)
    torch.testing.assert_close(shared.W_k.weight[:2], (plain.W_k.weight[:2] + plain.W_k.weight[2:4]) / 2)
    torch.testing.assert_close(shared.W_v.bias[2:], (plain.W_v.bias[4:6] + plain.W_v.bias[6:]) / 2)
    assert torch.equal(shared.W_q.weight, plain.W_q.weight)


@pytest.mark.parametrize("positions", [None, mha.RotaryPositions(), mha.LinearBias()])
@pytest.mark.parametrize("kv_heads", [1, 2, 3, 6])
def test_a_layer_that_shares_already_may_share_among_more_or_fewer(kv_heads, positions):
    layer, x = grouped(3, positions=positions), noise(B, N, D_MODEL)
    layer.W_q.weight.requires_grad_(False)
    layer.W_v.bias.requires_grad_(False)
    new = mha.GroupedAttention.from_plain(layer, kv_heads=kv_heads)
    each = layer.W_k.weight.unflatten(0, (3, WIDTH)).repeat_interleave(2, 0)  # for every query head
    torch.testing.assert_close(new.W_k.weight, each.unflatten(0, (kv_heads, -1)).mean(1).flatten(0, 1))
    assert {name for name, w in new.named_parameters() if not w.requires_grad} == {"W_q.weight", "W_v.bias"}
    if kv_heads % 3 == 0:
        torch.testing.assert_close(new(x, is_causal=True), layer(x, is_causal=True))


def test_a_mean_of_means_is_the_mean():
    torch.manual_seed(0)
    whole = mha.MultiHeadAttention(16, 8)
    once = mha.GroupedAttention.from_plain(whole, kv_heads=2)
    twice = mha.GroupedAttention.from_plain(mha.GroupedAttention.from_plain(whole, kv_heads=4), kv_heads=2)
    torch.testing.assert_close(once.state_dict(), twice.state_dict())


def test_a_bias_that_was_not_there_begins_with_zero():
    new = mha.GroupedAttention.from_plain(mha.MultiHeadAttention(8, 4, bias=False), kv_heads=2, bias="kv")
    assert not new.W_k.bias.any()
    assert not new.W_v.bias.any()


def test_another_kind_says_how_shared_heads_are_changed():
    with pytest.raises(
        ValueError, match=r"GroupedAttention is no plain layer.*GroupedAttention.from_plain\(layer, kv_he"
    ):
        mha.MultiHeadAttention.from_plain(grouped(3))


@pytest.mark.parametrize("kv_heads", [0, 4, 12])
def test_groups_of_unequal_size_are_refused(kv_heads):
    with pytest.raises(ValueError, match=rf"kv_heads = {kv_heads} .*6 query heads.*\[1, 2, 3, 6\]"):
        mha.GroupedAttention(12, 6, kv_heads)


def test_a_mask_that_does_not_fit_is_refused_with_all_heads_named():
    with pytest.raises(ValueError, match=r"\(2, 2, 5, 5\).*\(2, 6, 5, 5\)"):
        grouped(2)(noise(B, N, D_MODEL), mask=torch.ones(B, 2, N, N, dtype=torch.bool))


NARROW = 15
POSITIONS = {
    "no positions": lambda: None,
    "rotary": mha.RotaryPositions,
    "rotary, interleaved": lambda: mha.RotaryPositions(layout="interleaved"),
    "sloped": mha.LinearBias,
}


def plain(positions=None, **sizes):
    layer = mha.MultiHeadAttention(NARROW, HEADS, d_head=WIDTH, positions=positions, **sizes)
    for p in layer.parameters():
        torch.nn.init.normal_(p, std=0.4)  # biases begin small
    return layer


def random_turn(d, layout=None):
    """An orthogonal matrix; with a layout, made of rotations of its pairs."""
    if layout is None:
        return torch.linalg.qr(torch.randn(d, d)).Q
    turn, (first, second) = torch.zeros(d, d), procrustes.pairs(d, layout)
    angle = 7 * torch.rand(d // 2)
    turn[first, first] = turn[second, second] = angle.cos()
    turn[first, second], turn[second, first] = angle.sin(), -angle.sin()
    return turn


every_positions = pytest.mark.parametrize("positions", POSITIONS.values(), ids=POSITIONS)


# ---- the layer stays what it is


@every_positions
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kv_heads", [1, 2, 3, 6])
def test_an_aligned_layer_computes_what_it_did(positions, bias, kv_heads):
    layer, x, text = plain(positions(), bias=bias), torch.randn(3, 7, NARROW), torch.randn(4, 9, NARROW)
    new = align_heads(layer, text, kv_heads).layer
    for how in ({}, {"is_causal": True}, {"mask": mha.padding_mask([7, 0, 3])}):
        assert error(new(x, **how), layer(x, **how)) < LIMIT
    assert kv_heads == HEADS or error(new.W_v.weight, layer.W_v.weight) > 1e-3


@every_positions
@torch.no_grad()
def test_turned_copies_of_a_head_are_found_and_share_without_loss(positions):
    layer, x = plain(positions()), torch.randn(3, 7, NARROW)
    layout = getattr(layer.positions, "layout", None)
    groups = [[0, 3, 4], [1, 2, 5]]
    for first, *others in groups:
        for head in others:
            turn, rows = random_turn(WIDTH, layout), slice(head * WIDTH, (head + 1) * WIDTH)
            copied = slice(first * WIDTH, (first + 1) * WIDTH)
            layer.W_k.weight[rows], layer.W_k.bias[rows] = (
                turn @ layer.W_k.weight[copied],
                turn @ layer.W_k.bias[copied],
            )
            turn = random_turn(WIDTH)
            layer.W_v.weight[rows], layer.W_v.bias[rows] = (
                turn @ layer.W_v.weight[copied],
                turn @ layer.W_v.bias[copied],
            )
    aligned = align_heads(layer, torch.randn(4, 9, NARROW), 2)
    assert aligned.groups == groups
    assert aligned.after["keys"] == pytest.approx(1, abs=1e-12)
    assert aligned.after["values"] == pytest.approx(1, abs=1e-12)
    shared = mha.GroupedAttention.from_plain(aligned.layer, kv_heads=2)
    assert error(shared(x, is_causal=True), layer(x, is_causal=True)) < LIMIT
    assert error(mha.GroupedAttention.from_plain(layer, kv_heads=2)(x, is_causal=True), layer(x, is_causal=True)) > 0.05


# ---- turns


@given(st.sampled_from([None, "half", "interleaved"]), st.integers(0, 99))
def test_the_best_turn_is_orthogonal_and_no_other_is_better(layout, seed):
    torch.manual_seed(seed)
    heads = torch.randn(2, 9, 6)
    turns, reached = procrustes.best_rotation(heads, layout)
    assert error(turns @ turns.mT, torch.eye(6).expand(2, 2, 6, 6)) < LIMIT
    best = torch.cosine_similarity((heads[0] @ turns[0, 1]).flatten(), heads[1].flatten(), 0)
    assert error(best, reached[0, 1]) < LIMIT
    for _ in range(20):
        other = torch.cosine_similarity((heads[0] @ random_turn(6, layout)).flatten(), heads[1].flatten(), 0)
        assert other < best + 1e-12


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_keys_of_rotary_heads_turn_within_their_pairs_and_are_never_mirrored(layout):
    heads, positions = torch.randn(3, 9, 6), mha.RotaryPositions(layout=layout)
    heads[1] = heads[0] * torch.tensor([-1.0, 1, 1, 1, 1, 1])  # a mirror image: no rotation brings it back
    turns, reached = procrustes.best_rotation(heads, layout)
    first, second = procrustes.pairs(6, layout)
    blocks = torch.stack([turns[..., first, first], turns[..., first, second], turns[..., second, second]], -1)
    assert error(blocks[..., 0] * blocks[..., 2] + blocks[..., 1] ** 2, torch.ones(3, 3, 3)) < LIMIT  # det +1
    assert reached[0, 1] < 0.99
    x = torch.randn(1, 1, 5, 6)
    for turn in turns.flatten(0, 1):
        assert error(positions.rotate(x @ turn), positions.rotate(x) @ turn) < LIMIT
    assert error(positions.rotate(x @ random_turn(6)), positions.rotate(x) @ random_turn(6)) > 1e-3


def test_a_group_is_turned_to_its_common_mean():
    heads = torch.randn(4, 20, 6)
    to_first = procrustes.best_rotation(heads, None, heads[:1])[0][:, 0]
    turns = procrustes.rotate_group(heads, None)
    first, mean = ((procrustes.pairwise(heads @ t).sum() - 4) / 12 for t in (to_first, turns))
    assert mean > first + 0.01
    assert first > (procrustes.pairwise(heads).sum() - 4) / 12


# ---- groups


def all_groupings(heads, size):
    if not heads:
        yield []
        return
    for others in itertools.combinations(heads[1:], size - 1):
        group = [heads[0], *others]
        for rest in all_groupings([h for h in heads if h not in group], size):
            yield [group, *rest]


@pytest.mark.parametrize("size", [2, 3])
@given(seed=st.integers(0, 20))
def test_the_groups_are_the_best_of_all(size, seed):
    alike = torch.rand(6, 6, generator=torch.Generator().manual_seed(seed))
    alike = alike + alike.T
    found = procrustes.group_heads(alike, size)

    def worth(groups):
        return sum(alike[a, b].item() for group in groups for a in group for b in group)

    assert worth(found) == pytest.approx(max(map(worth, all_groupings(list(range(6)), size))))
    assert sorted(head for group in found for head in group) == list(range(6))


def test_alignment_gains_even_on_random_heads():
    torch.manual_seed(0)
    layer = mha.MultiHeadAttention(64, 8, positions=mha.RotaryPositions())
    text = torch.randn(8, 64, 64)
    kept, grouped = align_heads(layer, text, 2, regroup=False), align_heads(layer, text, 2)
    for aligned in (kept, grouped):
        assert aligned.before == kept.before
        assert aligned.before["values"] < 0.1
        assert aligned.after["values"] > 0.2
        assert aligned.after["keys"] > aligned.before["keys"] + 0.05
    assert grouped.groups != kept.groups == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert sum(grouped.after.values()) > sum(kept.after.values())


def test_every_head_alone_is_alike():
    aligned = align_heads(plain(), torch.randn(2, 9, NARROW), HEADS)
    assert aligned.after == aligned.before == {"keys": 1.0, "values": 1.0}


# ---- bad input


class Part(mha.RotaryPositions):
    """Positions that rotate the first two channels of each head."""

    def rotate(self, x, start=0):
        return torch.cat([super().rotate(x[..., :2], start), x[..., 2:]], -1)


@pytest.mark.parametrize(
    "build",
    [
        lambda: mha.GatedAttention(NARROW, HEADS, d_head=WIDTH),
        lambda: mha.GatedAttention(NARROW, HEADS, d_head=WIDTH, gate="channel"),
        lambda: mha.SinkAttention(NARROW, HEADS, d_head=WIDTH, sink=[1, 0, 2, 0, 1, 3]),
        lambda: mha.EntmaxAttention(NARROW, HEADS, d_head=WIDTH),
        lambda: mha.TalkingAttention(NARROW, HEADS, d_head=WIDTH),
    ],
)
def test_a_layer_that_does_more_than_its_projections_is_not_aligned(build):
    layer = build()
    with pytest.raises(ValueError, match=f"{type(layer).__name__} does more than project.*align a plain layer"):
        align_heads(layer, torch.randn(2, 9, NARROW), 2)


def test_positions_of_a_part_of_each_head_are_not_aligned():
    layer = plain(Part()).train()
    with pytest.raises(ValueError, match="this layer has Part inside, and keys that are rotated"):
        align_heads(layer, torch.randn(4, 9, NARROW), 2)
    assert layer.training


def test_a_scale_of_the_scores_is_kept():
    layer, x = plain(), torch.randn(2, 7, NARROW)
    layer.scale = 0.9
    shared = mha.GroupedAttention.from_plain(align_heads(layer, torch.randn(4, 9, NARROW), 6).layer, kv_heads=6)
    assert error(shared(x), layer(x)) < LIMIT
    assert shared.scale == 0.9


def test_what_cannot_be_aligned_is_refused(reader):
    text = torch.randn(2, 5, NARROW)
    with pytest.raises(ValueError, match=r"kv_heads = 4: 6 heads make no such equal groups.*\[1, 2, 3, 6\]"):
        align_heads(plain(), text, 4)
    with pytest.raises(ValueError, match="share 3 KV heads already"):
        align_heads(mha.GroupedAttention(18, 6, 3), torch.randn(2, 5, 18), 1)
    with pytest.raises(ValueError, match=r"widths \(4, 15\)"):
        align_heads(plain(kdim=4), text, 2)


def test_a_layer_made_from_a_plain_one_is_in_its_mode():
    for training in (True, False):
        plain = mha.MultiHeadAttention(8, 4).train(training)
        assert mha.GroupedAttention.from_plain(plain, kv_heads=2).training is training
