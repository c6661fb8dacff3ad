"""Counts on paper against torch's counter and real tensors."""

import math
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from registry import BATCH, KEYS, QUERIES, every
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

import mha
from mha.layers import Cost, Part
from mha.models import EncoderLayer, FeedForward
from mha.systems.roofline import Machine, measure_machine


def counted(call):
    """What torch's counter of operations says."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        call()
    return counter.get_total_flops()


class Peak(TorchDispatchMode):
    """The most bytes that new tensors held at one moment."""

    def __init__(self, *known):
        super().__init__()
        self.now, self.most, self.seen = 0, 0, {t.untyped_storage().data_ptr() for t in known}

    def free(self, address, size):
        self.now -= size
        self.seen.discard(address)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.numel():
                storage = tensor.untyped_storage()
                address = storage.data_ptr()
                if address not in self.seen:
                    self.seen.add(address)
                    self.now += storage.nbytes()
                    weakref.finalize(storage, self.free, address, storage.nbytes())
        self.most = max(self.most, self.now)
        return result


def peak(layer, *inputs, **how):
    """The peak of one call without gradients; inputs, weights and caches are not counted."""
    with torch.no_grad(), Peak(*inputs, *layer.parameters()) as found:
        layer(*inputs, **how)
    return found.most


def crossing(entry, layer):
    return (entry.words(), *entry.memory(layer)) if entry.crosses else (entry.words(),)


# ---- exact


@every()
def test_operations_are_those_of_the_counter(entry):
    layer = entry.build().eval()
    inputs = crossing(entry, layer)
    with mha.watch(layer):  # the counter does not know the fused kernel of a CPU
        found = counted(lambda: layer(*inputs))
    stored = entry.constant_memory or entry.chooses  # whose weights are watched, its sums are of another form
    assert layer.cost(BATCH, QUERIES, KEYS if entry.crosses else None, stored=stored).flops == found > 0


@every(caches=True, alone=True)
def test_operations_behind_a_cache_are_those_of_the_counter(entry):
    layer, x = entry.build().eval(), entry.words(8)
    cache = layer.new_cache(8)
    with torch.no_grad():
        layer(x[:, :5], is_causal=True, cache=cache)
    for start, end in ((5, 7), (7, 8)):
        with mha.watch(layer):
            found = counted(lambda: layer(x[:, start:end], is_causal=True, cache=cache))  # noqa: B023
        cost = layer.cost(BATCH, end - start, end, fresh=end - start, stored=entry.chooses)
        assert cost.flops == found
    assert cost.cache == cache.bytes


@every()
def test_weights_are_those_that_exist(entry):
    layer = entry.build()
    cost = layer.cost(1, 2)
    assert cost.parameters == sum(p.numel() for p in layer.parameters())
    assert cost.weights == sum(p.nbytes for p in layer.parameters())
    assert 2 * layer.float().cost(1, 2).weights == cost.weights


@every()
def test_bytes_moved_are_those_of_the_tensors_that_pass(entry):
    layer = entry.build().eval()
    inputs = crossing(entry, layer)
    query, key, value = (*inputs, *inputs[-1:] * 2)[:3]
    seen = {}
    for name in ("W_q", "W_k", "W_v", "W_o"):
        if hasattr(layer, name):
            getattr(layer, name).register_forward_hook(
                lambda linear, x, y, name=name: seen.update(
                    {name: x[0].nbytes + y.nbytes + sum(p.nbytes for p in linear.parameters())}
                )
            )
    y = layer(query, key, value) if entry.crosses else layer(query)
    if hasattr(layer, "project"):
        q, k, v = layer.project(query, key, value) if entry.crosses else layer.project(query)
    else:
        q, k, v = (getattr(layer, name)(x) for name, x in (("W_q", query), ("W_k", key), ("W_v", value)))
    cost = layer.cost(*query.shape[:2], key.shape[1])
    assert {name: part.moved for name, part in cost.parts.items() if name in seen} == seen
    heads = y.nbytes if not hasattr(layer, "W_o") else layer.W_o.in_features * query.shape[:2].numel() * y.itemsize
    if (
        layer.cost(1, 1) != layer.cost(1, 1, stored=True) and not entry.constant_memory
    ):  # no edit: weights are never written down
        assert cost.parts["scores"].moved == q.nbytes + k.nbytes
        assert cost.parts["read"].moved == v.nbytes + heads
    scores = BATCH * getattr(layer, "heads", 1) * query.shape[1] * key.shape[1] * q.element_size()
    stored = layer.cost(*query.shape[:2], key.shape[1], stored=True)
    assert stored.parts["scores"].moved == q.nbytes + k.nbytes + 2 * scores
    assert stored.parts["read"].moved == v.nbytes + heads + 2 * scores


@pytest.mark.parametrize("lengths", [(2, 7, 7), (1, 3, 11), (2, 1, 40), (1, 64, 64), (2, 64, 64)])
@pytest.mark.parametrize(
    "layer",
    [
        mha.MultiHeadAttention(24, 4),
        mha.MultiHeadAttention(24, 4, d_head=10, bias=False),
        mha.MultiHeadAttention(8, 2, d_head=2),
        mha.MultiHeadAttention(4, 8, d_head=1, bias=False),  # more heads than channels
        mha.GroupedAttention(24, 4, 2),
        mha.GroupedAttention(8, 4, 1),
        mha.SelfAttention(24, 6, 6),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_the_peak_is_that_of_the_tensors_alive(layer, lengths):
    layer, (b, i, j), width = layer.double(), lengths, layer.W_q.in_features
    inputs = [torch.randn(b, i, width)] if i == j else [torch.randn(b, i, width), torch.randn(b, j, width)]
    assert layer.cost(b, i, j).peak == peak(layer, *inputs)
    if i == 64:  # the scores are the largest tensors by far
        near = 0.1 if isinstance(layer, mha.SelfAttention) else 0.03
        with mha.watch(layer):
            assert layer.cost(b, i, j, stored=True).peak == pytest.approx(peak(layer, *inputs), rel=near)


def test_values_wider_than_keys_are_stored():
    layer, x = mha.SelfAttention(24, 6, 10), torch.randn(1, 64, 24)
    assert layer.cost(1, 64).peak == pytest.approx(peak(layer, x), rel=0.3)
    assert layer.cost(1, 64) == layer.cost(1, 64, stored=True)


@torch.no_grad()
def test_the_peak_behind_a_cache_is_that_of_the_tensors_alive():
    for layer in (mha.MultiHeadAttention(24, 4), mha.GroupedAttention(24, 4, 2)):
        cache, x = layer.new_cache(9), torch.randn(2, 9, 24)
        layer(x[:, :8], is_causal=True, cache=cache)
        last = x[:, 8:].clone()
        with Peak(last, *layer.parameters(), cache._k, cache._v) as found:
            layer(last, is_causal=True, cache=cache)
        assert layer.cost(2, 1, 9, fresh=1).peak == found.most


def test_the_feed_forward_part_counts_itself():
    part, x = FeedForward(6, 24).eval(), torch.randn(2, 5, 6)
    cost = part.cost(2, 5)
    assert cost.flops == counted(lambda: part(x))
    assert cost.parameters == sum(p.numel() for p in part.parameters())
    assert cost.peak == peak(part, x)
    layer = EncoderLayer(6, 2)
    both = layer.attention.cost(2, 5) + layer.feed_forward.cost(2, 5)
    assert both.flops == counted(lambda: layer(x)) + layer.attention.cost(2, 5).parts["scores"].flops * 2
    assert both.parameters == sum(p.numel() for n, p in layer.named_parameters() if "around" not in n)


# ---- what a variant adds, tensor by tensor: each step reads its inputs once and writes its result once

B, H, N, J, D = 2, 3, 5, 7, 2  # batch, heads, queries, keys, channels of a head
NEW = 4  # of the keys; the others are in the cache


def nbytes(*shapes):
    """The bytes of float64 tensors with these shapes."""
    return sum(8 * math.prod(shape) for shape in shapes)


SCORES, OWN, PAST = (B, H, N, J), (B, H, N, D), (B, H, J, D)


def linear(rows, old, new):
    """What a projection with a bias reads and writes."""
    return nbytes((B, rows, old), (B, rows, new), (new, old), (new,))


def test_talking_heads_move_their_scores_twice_and_their_matrices_once():
    parts = mha.TalkingAttention(H * D, H).cost(B, N, J).parts
    for name in ("mix scores", "mix weights"):
        assert parts[name] == Part(2 * H * math.prod(SCORES), nbytes(SCORES, SCORES, (H, H)))


def test_shared_channels_are_mixed_for_each_head_once():
    shared = 5
    parts = mha.CollaborativeAttention(H * D, H, shared).cost(B, N, J).parts
    mixed = (B, H, N, shared)
    assert parts["mixing"] == Part(0, nbytes((B, N, shared), mixed, (H, shared)))
    assert parts["scores"].moved == nbytes(mixed, (B, J, shared + H), SCORES, SCORES)  # keys bring their bias along
    assert parts["scores"].flops == 2 * shared * math.prod(SCORES)


def test_an_average_is_summed_divided_and_added():
    layer, plain = mha.MergedAttention(H * D, H), mha.MultiHeadAttention(H * D, H)
    cost, without = layer.cost(B, N, J), plain.cost(B, N, J)
    summed, divided, added = [OWN] * 2, [OWN] * 2, [OWN] * 3
    assert cost.parts["average"].moved == linear(N, H * D, H * D) + nbytes(*summed, *divided, *added)
    assert cost.cache - without.cache == nbytes((B, 1, H * D))  # the sum so far
    assert cost.peak - without.peak == nbytes(OWN, OWN, OWN)


def test_the_tables_of_feedback_are_added_to_keys_and_scores():
    layer, steps = mha.FeedbackAttention(H * D, H, steps=9), 9
    cost, plain = layer.cost(B, N, J), mha.Heads.cost(layer, B, N, J, stored=True)
    added, product, changed = [PAST, (H, J, D), PAST], [PAST, (B, H, 1, J)], [SCORES, SCORES]
    assert cost.parts["tables"] == Part(2 * math.prod(PAST), nbytes(*added, PAST, *product, *changed))
    assert cost.peak - plain.peak == nbytes(PAST, (B, H, 1, J), SCORES)
    assert cost.weights - plain.weights == nbytes((H, D), (H, steps, D), (H, steps))


@pytest.mark.parametrize("fresh", [J, NEW])
def test_composed_heads_make_a_matrix_for_each_query_and_pieces_for_each_key(fresh):
    rank, width = 2, H * D
    layer = mha.ComposableAttention(width, H, rank=rank)
    cost = layer.cost(B, N, J, fresh=fresh)
    inner = 2 * rank * H
    words = {N: (N, H, rank), fresh: (fresh, H, rank)}
    sides = 0
    for rows in (N, fresh):
        sides += sum(
            nbytes((B, rows, old), (B, rows, new)) for old, new in ((width, inner), (inner, inner), (width, H))
        )
        sides += nbytes((inner, width), (inner, inner), (H, width))
    matrix = nbytes((B, *words[N]), (B, *words[N]), (B, N, H), (H, H), (B, N, H, H))
    pieces = 2 * nbytes((B, *words[fresh]), (B, *words[fresh]), (B, fresh, H))
    mixing = nbytes(SCORES, SCORES, (B, N, H, H), (B, 2 * rank + 1, H, J))
    for place in ("before", "after"):
        assert cost.parts[f"make {place}"].moved == sides + matrix + pieces
        assert cost.parts[f"mix {place}"] == Part(2 * math.prod(SCORES) * (H + 2 * rank), mixing)
    plain = mha.MultiHeadAttention(width, H).cost(B, N, J, fresh=fresh, stored=True)
    assert cost.peak - plain.peak == nbytes(SCORES, SCORES)


@pytest.mark.parametrize("stored", [False, True])
def test_overlapping_heads_are_widened_once(stored):
    overlap, own = 1, D
    wide, narrow = own + 2 * overlap, H * own
    parts = mha.OverlappingAttention(H * own, H, overlap).cost(B, N, J, stored=stored).parts
    q, k = (B, H, N, wide), (B, H, J, wide)
    assert parts["widen"] == Part(0, nbytes((B, N, narrow), (B, J, narrow), (B, J, narrow), q, k, k))
    twice = [SCORES, SCORES] if stored else []
    assert parts["scores"] == parts["read"] == Part(2 * wide * math.prod(SCORES), nbytes(q, k, *twice))


def test_the_search_for_thresholds_holds_three_tensors_more():
    layer, plain = mha.EntmaxAttention(H * D, H), mha.MultiHeadAttention(H * D, H)
    assert layer.cost(B, N, J).peak - plain.cost(B, N, J, stored=True).peak == nbytes(SCORES, SCORES, SCORES)


# ---- what the chapter says


@given(st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 300))
def test_operations_do_not_depend_on_the_number_of_heads(heads, n):
    one, many = (mha.MultiHeadAttention(16, h).cost(1, n) for h in (1, heads))
    assert one.flops == many.flops == 8 * n * 16**2 + 4 * n**2 * 16
    assert one.parameters == many.parameters


def test_a_cache_of_shared_heads_is_smaller_and_its_reading_more_intense():
    full = mha.MultiHeadAttention(512, 8).cost(1, 1, 4096, fresh=1)
    shared = mha.GroupedAttention(512, 8, 2).cost(1, 1, 4096, fresh=1)
    assert full.cache == 4 * shared.cache
    assert shared.parts["scores"].flops == full.parts["scores"].flops
    assert shared.parts["scores"].intensity / full.parts["scores"].intensity == pytest.approx(4, rel=0.01)


def test_a_batch_reads_the_weights_once_but_every_cache():
    layer = mha.MultiHeadAttention(512, 8, bias=False)
    one, many = (layer.cost(b, 1, 4096, fresh=1).parts for b in (1, 64))
    assert many["W_q"].intensity > 50 * one["W_q"].intensity
    assert many["scores"].intensity == one["scores"].intensity


def test_costs_add_up():
    first, then = Cost(1, {"a": Part(2, 3)}, 4, 5, 6), Cost(10, {"a": Part(20, 30), "b": Part(200, 300)}, 40, 50, 60)
    assert first + then == Cost(11, {"a": Part(22, 33), "b": Part(200, 300)}, 44, 55, 60)
    assert (first + then).flops == 222
    assert then.intensity == 220 / 330


# ---- the machine


def test_a_machine_takes_the_longer_of_arithmetic_and_memory():
    machine = Machine(flops=100.0, bandwidth=10.0)
    assert machine.ridge == 10
    assert machine.roof(5) == 50
    assert machine.roof(50) == 100
    assert machine.seconds(Part(1000, 10)) == 10
    assert machine.seconds(Part(10, 1000)) == 100
    assert machine.seconds(Cost(0, {"a": Part(1000, 10), "b": Part(10, 1000)}, 0, 0, 0), overhead=1) == 111


def test_both_ceilings_of_this_computer_can_be_measured():
    machine = measure_machine(n=128, megabytes=8)
    assert machine.flops > 1e7
    assert machine.bandwidth > 1e7
    with pytest.raises(ValueError, match="n = -1: it must be at least 1"):
        measure_machine(n=-1, megabytes=8)
    with pytest.raises(ValueError, match="megabytes = 0: it must be at least 1"):
        measure_machine(n=8, megabytes=0)


@pytest.mark.parametrize("lengths", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (1, 1, 4, 5), (1, 1, 4, -1)])
def test_lengths_that_no_call_can_have_are_refused(lengths):
    with pytest.raises(ValueError, match="at least 1, and 0 to"):
        mha.MultiHeadAttention(4, 2).cost(*lengths[:3], fresh=lengths[3] if len(lengths) > 3 else None)


def test_a_bias_of_positions_writes_all_weights_down():
    sloped = mha.MultiHeadAttention(8, 2, positions=mha.LinearBias())
    assert sloped.cost(2, 5) == sloped.cost(2, 5, stored=True) != mha.MultiHeadAttention(8, 2).cost(2, 5)
