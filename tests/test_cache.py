"""Reading a sequence piece by piece behind a cache gives what reading it at once gives."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import LIMIT, error
from registry import BATCH, every

import mha


@st.composite
def chunkings(draw, longest=8):
    """Any way to cut a sequence into pieces, such as (3, 1, 1, 2)."""
    n = draw(st.integers(1, longest))
    cuts = sorted(draw(st.sets(st.integers(1, n - 1)))) if n > 1 else []
    return [end - start for start, end in zip([0, *cuts], [*cuts, n], strict=True)]


def feed(layer, x, chunks, masks=None, **how):
    """Hand over the chunks one after the other and put the outputs together."""
    cache = mha.KeyValueCache(x.shape[1])
    ends, outputs = 0, []
    for chunk in x.split(chunks, 1):
        ends += chunk.shape[1]
        mask = None if masks is None else masks[..., ends - chunk.shape[1] : ends, :ends]
        outputs.append(layer(chunk, mask=mask, cache=cache, **how))
        assert cache.length == ends
    return torch.cat(outputs, 1)


@every(alone=True, caches=True)
@settings(max_examples=12)
@given(chunks=chunkings())
@torch.no_grad()
def test_cached_is_uncached_for_every_way_to_cut_the_sequence(entry, chunks):
    layer, x = entry.build().eval(), entry.words(sum(chunks))
    assert error(feed(layer, x, chunks, is_causal=True), layer(x, is_causal=True)) < LIMIT


@every(alone=True, caches=True)
@settings(max_examples=12)
@given(chunks=chunkings(), seed=st.integers(0, 99))
@torch.no_grad()
def test_masks_with_empty_rows_hide_the_same_behind_a_cache(entry, chunks, seed):
    n = sum(chunks)
    layer, x = entry.build().eval(), entry.words(n)
    mask = torch.rand(BATCH, 1, n, n, generator=torch.Generator().manual_seed(seed)) < 0.4
    mask = mask & mha.causal_mask(n)
    whole = layer(x, mask=mask)
    assert error(feed(layer, x, chunks, mask), whole) < LIMIT
    assert error(feed(layer, x, chunks, mask, is_causal=True), whole) < LIMIT


@given(chunkings(), st.integers(1, 3), st.integers(1, 3))
def test_fewer_queries_than_keys_are_the_last_ones(chunks, d, c):
    n = sum(chunks)
    q, k, v = torch.randn(2, 1, n, d), torch.randn(2, 1, n, d), torch.randn(2, 1, n, c)
    whole, ends = mha.attend(q, k, v, is_causal=True), 0
    for size in chunks:
        start, ends = ends, ends + size
        for explicit in (False, True):
            read = mha.attend(q[:, :, start:ends], k[:, :, :ends], v[:, :, :ends], is_causal=True, explicit=explicit)
            assert error(read, whole[:, :, start:ends]) < LIMIT


@torch.no_grad()
def test_watched_is_unwatched_behind_a_cache():
    layer, x = mha.MultiHeadAttention(6, 2), torch.randn(2, 5, 6)
    right = feed(layer, x, [2, 1, 2], is_causal=True)
    with mha.watch(layer) as seen:
        found = feed(layer, x, [2, 1, 2], is_causal=True)
    assert error(found, right) < LIMIT
    assert seen.weights.shape == (2, 2, 2, 5)


@torch.no_grad()
def test_another_sequence_needs_another_cache():
    layer, x = mha.MultiHeadAttention(6, 2), torch.randn(2, 5, 6)
    right = feed(layer, x, [5], is_causal=True)
    assert error(feed(layer, x, [5], is_causal=True), right) == 0
    cache = mha.KeyValueCache()
    layer(x, cache=cache, is_causal=True)
    assert error(layer(x, cache=cache, is_causal=True), right) > 1e-3  # the first sequence is still there


@torch.no_grad()
def test_a_cache_takes_memory_once_and_returns_views_of_it():
    cache = mha.KeyValueCache(7)
    k, v = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 2)
    first, _ = cache.append(k[:, :, :1], v[:, :, :1])
    again, values = cache.append(k[:, :, 1:], v[:, :, 1:])
    assert first.data_ptr() == again.data_ptr()
    assert torch.equal(again, k)
    assert torch.equal(values, v)
    k.zero_()
    assert again.abs().min() > 0  # the cache keeps its own copy


@torch.no_grad()
def test_a_memory_is_projected_once():
    layer, x, memory = mha.MultiHeadAttention(6, 2), torch.randn(2, 3, 6), torch.randn(2, 5, 6)
    calls = []
    layer.W_k.register_forward_hook(lambda *_: calls.append(1))
    cache = mha.MemoryCache()
    for i in range(3):
        assert error(layer(x[:, i : i + 1], memory, cache=cache), layer(x[:, i : i + 1], memory)) < LIMIT
    assert len(calls) == 1 + 3


# ---- bad input


def test_a_cache_without_room_is_refused(reader):
    for capacity in (0, -1):
        with pytest.raises(ValueError, match=f"capacity = {capacity}: it must be at least 1"):
            mha.KeyValueCache(capacity)


@torch.no_grad()
def test_more_words_than_fit_are_refused_and_the_cache_is_not_spoiled(reader):
    layer, x = mha.MultiHeadAttention(6, 2), torch.randn(2, 5, 6)
    cache = mha.KeyValueCache(4)
    layer(x[:, :3], cache=cache, is_causal=True)
    with pytest.raises(ValueError, match=r"holds 4 positions, but 5 were fed.*capacity=5"):
        layer(x[:, 3:], cache=cache, is_causal=True)
    assert cache.length == 3
    right = layer(x[:, :4], is_causal=True)[:, 3:]
    assert error(layer(x[:, 3:4], cache=cache, is_causal=True), right) < LIMIT


def test_gradients_are_refused(reader):
    layer, x = mha.MultiHeadAttention(6, 2), torch.randn(2, 5, 6)
    with pytest.raises(ValueError, match=r"stores no gradients.*torch\.no_grad"):
        layer(x, cache=mha.KeyValueCache(), is_causal=True)
    with pytest.raises(ValueError, match=r"stores no gradients.*torch\.no_grad"):
        layer(x, torch.randn(2, 3, 6), cache=mha.MemoryCache())


@pytest.mark.parametrize(
    "other",
    [
        (mha.MultiHeadAttention(6, 2), torch.randn(1, 1, 6)),
        (mha.MultiHeadAttention(6, 3), torch.randn(2, 1, 6)),
        (mha.MultiHeadAttention(6, 2, d_head=4), torch.randn(2, 1, 6)),
    ],
    ids=["another batch", "other heads", "another width"],
)
@torch.no_grad()
def test_words_that_do_not_continue_the_sequence_are_refused(reader, other):
    layer, x = other
    cache = mha.KeyValueCache()
    mha.MultiHeadAttention(6, 2)(torch.randn(2, 3, 6), cache=cache, is_causal=True)
    with pytest.raises(ValueError, match=r"do not continue.*use a new cache, one for each layer"):
        layer.double()(x.double(), cache=cache, is_causal=True)
    assert cache.length == 3


@torch.no_grad()
def test_numbers_of_another_type_are_refused_not_rounded(reader):
    cache = mha.KeyValueCache()
    mha.MultiHeadAttention(6, 2).float()(torch.randn(2, 3, 6).float(), cache=cache, is_causal=True)
    with pytest.raises(ValueError, match=r"do not continue.*float32"):
        mha.MultiHeadAttention(6, 2)(torch.randn(2, 1, 6), cache=cache, is_causal=True)


@torch.no_grad()
def test_another_memory_is_refused(reader):
    layer, x, memory = mha.MultiHeadAttention(6, 2), torch.randn(2, 1, 6), torch.randn(2, 5, 6)
    cache = mha.MemoryCache()
    layer(x, memory, cache=cache)
    with pytest.raises(ValueError, match=r"\(2, 5, 6\).*\(2, 4, 6\).*new cache for each memory"):
        layer(x, memory[:, :4], cache=cache)
