"""Reading a sequence piece by piece behind a cache gives what reading it at once gives."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import LIMIT, error
from registry import BATCH, LAYERS, every

import mha
from mha.layers import MemoryCache, WindowCache
from mha.models import LanguageModel


@st.composite
def chunkings(draw, longest=8):
    """Any way to cut a sequence into pieces, such as (3, 1, 1, 2)."""
    n = draw(st.integers(1, longest))
    cuts = sorted(draw(st.sets(st.integers(1, n - 1)))) if n > 1 else []
    return [end - start for start, end in zip([0, *cuts], [*cuts, n], strict=True)]


def feed(layer, x, chunks, masks=None, **how):
    """Hand over the chunks one after the other and put the outputs together."""
    cache = layer.new_cache(x.shape[1])
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
    first, _ = cache.update(k[:, :, :1], v[:, :, :1])
    again, values = cache.update(k[:, :, 1:], v[:, :, 1:])
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
    cache = MemoryCache()
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
        layer(x, torch.randn(2, 3, 6), cache=MemoryCache())


@torch.no_grad()
def test_words_that_do_not_continue_the_sequence_are_refused(reader):
    layer, x = mha.MultiHeadAttention(6, 2).float(), torch.randn(2, 4, 6)
    cache = mha.KeyValueCache()
    layer(x[:, :3].float(), cache=cache, is_causal=True)
    with pytest.raises(ValueError, match=r"do not continue.*use a new cache, one for each layer"):
        layer(x[:1, 3:].float(), cache=cache, is_causal=True)
    with pytest.raises(ValueError, match=r"float64.*do not continue.*float32"):
        layer.double()(x[:, 3:].double(), cache=cache, is_causal=True)
    with pytest.raises(ValueError, match=r"do not continue.*use a new cache, one for each layer"):
        cache.update(torch.randn(2, 3, 1, 2), torch.randn(2, 3, 1, 2))
    assert cache.length == 3


KINDS = {  # layers with a cache of their own kind, and what is fed after the words
    "plain": (lambda: mha.MultiHeadAttention(8, 2), False),
    "shared keys": (lambda: mha.GroupedAttention(8, 4, 2), False),
    "composable": (lambda: mha.ComposableAttention(8, 2), False),
    "latent": (lambda: mha.LatentAttention(8, 2, 5, d_rotary=2), False),
    "a memory": (lambda: mha.MultiHeadAttention(8, 2), True),
    "merged": (lambda: mha.MergedAttention(8, 2), True),
    "feedback": (lambda: mha.FeedbackAttention(8, 2), True),
}


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_another_layer_of_the_same_form_is_refused(reader, kind):
    build, crosses = KINDS[kind]
    layer, other, x, memory = build(), build(), torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    cache = MemoryCache() if kind == "a memory" else layer.new_cache()
    given = (x, memory) if crosses else (x,)
    causal = {} if crosses else {"is_causal": True}
    layer(*given, cache=cache, **causal)
    length = cache.length
    with pytest.raises(ValueError, match=r"another layer filled this cache: make a new one"):
        other(*given, cache=cache, **causal)
    assert cache.length == length


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shared", ["W_k", "W_v"])
@torch.no_grad()
def test_another_layer_that_shares_one_projection_is_another_layer(reader, kind, shared):
    build, crosses = KINDS[kind]
    layer, other, x, memory = build(), build(), torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    setattr(other, shared, getattr(layer, shared))
    cache = MemoryCache() if kind == "a memory" else layer.new_cache()
    given, causal = ((x, memory), {}) if crosses else ((x,), {"is_causal": True})
    layer(*given, cache=cache, **causal)
    with pytest.raises(ValueError, match="another layer filled this cache"):
        other(*given, cache=cache, **causal)


@pytest.mark.parametrize("rows", [None, {1: None}, 3.5, [[1], [2, 3]], "ab", [None], [0.5], [], [7]], ids=str)
@torch.no_grad()
def test_what_numbers_no_batch_entries_is_refused_by_name(reader, rows):
    layer, cache = mha.MultiHeadAttention(8, 2), mha.KeyValueCache()
    layer(torch.randn(2, 3, 8), cache=cache, is_causal=True)
    with pytest.raises((TypeError, ValueError), match=r"rows = .*batch entries"):
        cache.reorder(rows)
    assert cache.length == 3


@pytest.mark.parametrize("kind", ["a memory", "merged", "feedback"])
@torch.no_grad()
def test_a_memory_that_is_not_what_it_was_is_refused(reader, kind):
    layer, x, memory = KINDS[kind][0](), torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    cache, values = MemoryCache() if kind == "a memory" else layer.new_cache(), torch.randn(2, 5, 8)
    layer(x, memory, values, cache=cache)
    with pytest.raises(ValueError, match=r"filled from a value of shape \(2, 5, 8\).*another one"):
        layer(x, memory, memory, cache=cache)
    memory += 1
    with pytest.raises(ValueError, match=r"the memory was changed in place.*use a new cache"):
        layer(x, memory, values, cache=cache)


@torch.no_grad()
def test_a_cache_hides_its_padding_whether_a_mask_says_so_or_not(reader):
    layer, x = mha.MultiHeadAttention(8, 2), torch.randn(2, 4, 8)
    masks = {
        "none": lambda cache, new: None,
        "the cache's": lambda cache, new: cache.mask(new),
        "one that shows it": lambda cache, new: torch.ones(new, cache.length + new).bool(),
    }
    found = {}
    for name, mask in masks.items():
        cache = layer.new_cache(6, padding=[1, 0])
        steps = (x[:, :3], x[:, 3:])
        parts = [layer(one, mask=mask(cache, one.shape[1]), is_causal=True, cache=cache) for one in steps]
        found[name] = torch.cat(parts, 1)
    alone = layer(x[:1, 1:], is_causal=True)
    for name, y in found.items():
        assert error(y[:1, 1:], alone) < LIMIT, name
        assert error(y[1:], layer(x[1:], is_causal=True)) < LIMIT, name
    with pytest.raises(ValueError, match=r"padding is of 2 sequences, but 1 came"):
        layer(x[:1, :1], is_causal=True, cache=layer.new_cache(6, padding=[1, 0]))


@torch.no_grad()
def test_another_memory_is_refused(reader):
    layer, x, memory = mha.MultiHeadAttention(6, 2), torch.randn(2, 1, 6), torch.randn(2, 5, 6)
    cache = MemoryCache()
    layer(x, memory, cache=cache)
    with pytest.raises(ValueError, match=r"\(2, 5, 6\).*\(2, 4, 6\).*new cache for each memory"):
        layer(x, memory[:, :4], cache=cache)
    with pytest.raises(ValueError, match="another one of shape"):
        layer(x, memory.clone(), cache=cache)


# ---- texts of different lengths in one batch


RELATIVE = {
    "no positions": lambda: mha.MultiHeadAttention(8, 2),
    "rotary": lambda: mha.MultiHeadAttention(8, 2, positions=mha.RotaryPositions()),
    "sloped": lambda: mha.MultiHeadAttention(8, 2, positions=mha.LinearBias()),
    "shared": lambda: mha.GroupedAttention(8, 4, 2, positions=mha.RotaryPositions()),
    "latent": lambda: mha.LatentAttention(8, 4, 5, d_rotary=4),
}


@pytest.mark.parametrize("build", RELATIVE.values(), ids=RELATIVE)
@settings(max_examples=12)
@given(chunks=chunkings(), seed=st.integers(0, 99))
@torch.no_grad()
def test_texts_with_padding_in_front_read_as_if_each_were_alone(build, chunks, seed):
    n, layer = sum(chunks), build()
    padding = torch.randint(0, n, (BATCH,), generator=torch.Generator().manual_seed(seed))
    x = 10 * torch.randn(BATCH, n, 8)  # the padding is loud
    cache = layer.new_cache(n + 2, padding)
    y = torch.cat(
        [layer(part, mask=cache.mask(part.shape[1]), is_causal=True, cache=cache) for part in x.split(chunks, 1)], 1
    )
    for b, skipped in enumerate(padding.tolist()):
        alone = x[b : b + 1, skipped:]
        assert error(y[b : b + 1, skipped:], layer(alone, is_causal=True)) < LIMIT


@torch.no_grad()
def test_a_stack_of_layers_shares_one_padding():
    build = lambda: mha.MultiHeadAttention(8, 2, positions=mha.RotaryPositions())  # noqa: E731
    model = LanguageModel(11, 8, build, layers=2, positions=None).eval()
    words = torch.randint(0, 11, (2, 6))
    cache = model.decoder.new_cache(6, padding=[0, 4])
    parts = [model(part, cache.mask(part.shape[1]), cache=cache) for part in words.split((3, 1, 2), 1)]
    logits = torch.cat(parts, 1)
    assert error(logits[:1], model(words[:1])) < LIMIT
    assert error(logits[1:, 4:], model(words[1:, 4:])) < LIMIT
    assert mha.KeyValueCache().mask(3) is None


def test_a_padding_that_does_not_fit_is_refused(reader):
    for padding in ([-1, 0], [5, 0]):
        with pytest.raises(ValueError, match="between 0 and n = 4"):
            mha.KeyValueCache(4, padding)
    layer, cache = mha.MultiHeadAttention(6, 2), mha.KeyValueCache(4, [0, 1, 2])
    with torch.no_grad(), pytest.raises(ValueError, match=r"\(3, 1, 1, 2\) does not fit.*\(2, 2, 2, 2\)"):
        layer(torch.randn(2, 2, 6), mask=cache.mask(2), is_causal=True, cache=cache)


# ---- calls that are refused leave the cache as it was


@torch.no_grad()
def test_a_mask_that_does_not_fit_is_refused_and_the_cache_is_not_spoiled(reader):
    for layer in (mha.MultiHeadAttention(8, 4), mha.GroupedAttention(8, 4, 2)):
        x, cache = torch.randn(2, 5, 8), mha.KeyValueCache(5)
        layer(x[:, :3], cache=cache, is_causal=True)
        for mask, kind, message in (
            (torch.ones(2, 2).bool(), ValueError, r"mask \(2, 2\) has 2 columns.*5 keys, 3 in the cache and 2 new"),
            (torch.ones(3, 5).bool(), ValueError, r"\(3, 5\) does not fit"),
            (
                torch.ones(2, 3, 2, 5).bool(),
                ValueError,
                r"\(2, 3, 2, 5\) does not fit the scores of shape \(2, 4, 2, 5\)",
            ),
            (torch.ones(2, 5), TypeError, "may look"),
        ):
            with pytest.raises(kind, match=message):
                layer(x[:, 3:], mask=mask, cache=cache, is_causal=True)
            assert cache.length == 3
        assert error(layer(x[:, 3:], cache=cache, is_causal=True), layer(x, is_causal=True)[:, 3:]) < LIMIT


@torch.no_grad()
def test_calls_that_a_cache_cannot_serve_are_refused_with_the_reason(reader):
    layer, x, cache = mha.MultiHeadAttention(6, 2), torch.randn(2, 3, 6), mha.KeyValueCache()
    with pytest.raises(ValueError, match=r"another sequence: use mha\.layers\.MemoryCache"):
        layer(x, torch.randn(2, 4, 6), cache=cache)
    with pytest.raises(ValueError, match=r"SelfAttention keeps no keys.*heads=1"):
        mha.SelfAttention(6).new_cache()
    assert cache.length == cache.bytes == 0
    layer(x[:, :1], cache=cache)
    assert cache.bytes == 2 * 2 * 1024 * 6 * 8


def test_every_layer_makes_a_cache_or_says_why_not():
    for entry in LAYERS:
        if entry.caches:
            assert isinstance(entry.build().new_cache(3), mha.KeyValueCache)
        elif entry.own_cache:
            assert entry.build().new_cache(3).length == 0
        else:
            with pytest.raises(ValueError, match="keeps no keys and values"):
                entry.build().new_cache(3)


def test_a_cache_lives_where_its_keys_live():
    layer = mha.MultiHeadAttention(6, 3).to("meta")
    cache = layer.new_cache(4)
    with torch.no_grad():
        layer(torch.empty(2, 3, 6, device="meta"), cache=cache, is_causal=True)
    assert cache.length == 3
    assert cache._k.is_meta
    assert cache._v.is_meta


# ---- the first words and the last ones


def turned_by_hand(x, place, base=10000.0):
    """One vector, turned by the angle of its place, channel c with channel c + d/2."""
    half = len(x) // 2
    angles = place * base ** (-torch.arange(half) / half)
    a, b = x[:half], x[half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()])


def streamed_by_hand(layer, x, window, first):
    """Word after word: list what is kept, number it from 0, turn it, and read; one head and one key at a time."""
    outputs, d = [], layer.d_head
    for t in range(x.shape[1]):
        kept = [j for j in range(t + 1) if j < first or j > t - window]
        heads = []
        for h in range(layer.heads):
            g = slice(*(d * (h * layer.kv_heads // layer.heads + n) for n in (0, 1)))
            q = turned_by_hand(layer.W_q(x[0, t])[h * d : (h + 1) * d], len(kept) - 1)
            keys = [turned_by_hand(layer.W_k(x[0, j])[g], place) for place, j in enumerate(kept)]
            powers = torch.stack([(q @ k / d**0.5).exp() for k in keys])
            values = torch.stack([layer.W_v(x[0, j])[g] for j in kept])
            heads.append((powers[:, None] * values).sum(0) / powers.sum())
        outputs.append(layer.W_o(torch.cat(heads)))
    return torch.stack(outputs)[None]


def streamed(layer, x, window, first, chunks):
    cache = WindowCache(window, first=first)
    parts = [layer(x, mask=cache.mask(x.shape[1]), is_causal=True, cache=cache) for x in x.split(chunks, 1)]
    assert cache.length == x.shape[1]
    return torch.cat(parts, 1)


@pytest.mark.parametrize(("window", "first"), [(1, 0), (3, 0), (1, 2), (4, 1), (3, 2), (20, 4)])
@torch.no_grad()
def test_positions_are_counted_inside_the_window_and_its_first_words(window, first):
    x = torch.randn(1, 13, 8)
    for layer in (RELATIVE["rotary"](), RELATIVE["shared"]()):
        assert error(streamed(layer, x, window, first, 1), streamed_by_hand(layer, x, window, first)) < 1e-10


WINDOWED = {e.name: e for e in LAYERS if e.caches and e.alone and not e.composes and not e.ordered}
WINDOWED = {name: e for name, e in WINDOWED.items() if not isinstance(e.build(), mha.IndexedAttention)}  # it refuses


@pytest.mark.parametrize("name", WINDOWED)
@settings(max_examples=12)
@given(chunks=chunkings(), window=st.integers(1, 5), first=st.integers(0, 3))
@torch.no_grad()
def test_a_window_with_first_words_is_its_mask_however_the_text_is_cut(name, chunks, window, first):
    entry, n = WINDOWED[name], sum(chunks)
    layer, x = entry.build().eval(), entry.words(n)
    mask = mha.sliding_window(n, window) | ((torch.arange(n) < first) & mha.causal_mask(n))
    assert error(streamed(layer, x, window, first, chunks), layer(x, mask=mask)) < LIMIT


@settings(max_examples=12)
@given(chunks=chunkings(), window=st.integers(1, 5))
@torch.no_grad()
def test_without_first_words_distances_are_those_of_the_text(chunks, window):
    for build in (RELATIVE["rotary"], RELATIVE["sloped"]):
        layer, x = build(), torch.randn(BATCH, sum(chunks), 8)
        right = layer(x, mask=mha.sliding_window(sum(chunks), window))
        assert error(streamed(layer, x, window, 0, chunks), right) < LIMIT


@torch.no_grad()
def test_a_window_refuses_keys_that_it_cannot_turn_anew():
    with pytest.raises(ValueError, match="LatentAttention does not make its keys from its input"):
        RELATIVE["latent"]()(torch.randn(1, 2, 8), is_causal=True, cache=WindowCache(4))


@pytest.mark.parametrize("name", [name for name in RELATIVE if name != "latent"])
@torch.no_grad()
def test_a_chunk_that_fits_is_read_as_word_by_word(name):
    build = RELATIVE[name]
    layer, x = build(), torch.randn(BATCH, 11, 8)
    right = streamed(layer, x, 4, 2, 1)
    for chunks in ([6, 1, 1, 1, 1, 1], [2, 4, *[1] * 5], [1, 3, 2, *[1] * 5]):
        assert error(streamed(layer, x, 4, 2, chunks), right) < LIMIT


@torch.no_grad()
def test_a_window_takes_no_more_memory_for_a_longer_text():
    layer, cache = RELATIVE["rotary"](), WindowCache(4, first=2)
    for n in range(1, 30):
        layer(torch.randn(3, 1, 8), is_causal=True, cache=cache)
        assert cache.bytes == 2 * 3 * 8 * min(n, 5) * 8
    assert cache.length == 29
    assert cache.place == 5


@torch.no_grad()
def test_a_whole_model_streams_behind_windows():
    build = lambda: mha.MultiHeadAttention(8, 2, positions=mha.RotaryPositions())  # noqa: E731
    model = LanguageModel(11, 8, build, layers=2, positions=None).eval()
    words = torch.randint(0, 11, (2, 9))
    caches = mha.layers.ModelCache([WindowCache(20, first=1), WindowCache(20, first=1)])
    logits = torch.cat([model(one, cache=caches) for one in words.split(1, 1)], 1)
    assert error(logits, model(words)) < LIMIT
    assert caches.length == 9


@torch.no_grad()
def test_calls_that_a_window_cannot_serve_are_refused_and_it_is_not_spoiled(reader):
    layer, x = mha.MultiHeadAttention(6, 2), torch.randn(2, 9, 6)
    right, cache = streamed(layer, x, 3, 1, 1), WindowCache(3, first=1)
    layer(x[:, :2], is_causal=True, cache=cache)
    with pytest.raises(ValueError, match=r"mask \(3, 4\) has 4 columns.*5 keys, 2 in the cache and 3 new"):
        layer(x[:, 2:5], mask=torch.ones(3, 4).bool(), is_causal=True, cache=cache)
    with pytest.raises(ValueError, match="another sequence"):
        layer(x[:, 2:3], x, cache=cache)
    with pytest.raises(ValueError, match="another layer filled this cache"):
        mha.MultiHeadAttention(6, 2)(x[:, 2:3], is_causal=True, cache=cache)
    with pytest.raises(ValueError, match="do not continue"):
        layer(x[:1, 2:3], is_causal=True, cache=cache)
    with torch.enable_grad(), pytest.raises(ValueError, match="stores no gradients"):
        layer(x[:, 2:3], is_causal=True, cache=cache)
    assert cache.length == 2
    for mask in (None, cache.mask(5), torch.ones(5, 7).bool()):  # what lies before the window is hidden in any case
        again = copy.deepcopy(cache)
        rest = [layer(x[:, 2:7], mask=mask, is_causal=True, cache=again)]
        rest += [layer(x[:, n : n + 1], is_causal=True, cache=again) for n in (7, 8)]
        assert error(torch.cat(rest, 1), right[:, 2:]) < LIMIT


@torch.no_grad()
def test_a_chunk_whose_words_would_stand_at_several_places_is_refused(reader):
    layer, x, cache = RELATIVE["rotary"](), torch.randn(2, 9, 8), WindowCache(3, first=1)
    with pytest.raises(ValueError, match=r"5 tokens came, but only 4 fit.*RotaryPositions.*Feed 4 tokens, then one at"):
        layer(x[:, :5], mask=cache.mask(5), is_causal=True, cache=cache)
    assert cache.length == cache.bytes == 0
    layer(x[:, :4], is_causal=True, cache=cache)
    with pytest.raises(ValueError, match=r"2 tokens came, but only 1 fit"):
        layer(x[:, 4:6], mask=cache.mask(2), is_causal=True, cache=cache)
    layer(x[:, 4:5], is_causal=True, cache=cache)


@torch.no_grad()
def test_layers_that_keep_more_than_keys_and_values_refuse_a_window(reader):
    for layer in (mha.ComposableAttention(8, 2), mha.MergedAttention(8, 2), mha.FeedbackAttention(8, 2)):
        memory = () if isinstance(layer, mha.ComposableAttention) else (torch.randn(2, 5, 8),)
        cache = WindowCache(3)
        with pytest.raises((ValueError, TypeError), match=r"cache|Cache"):
            layer(torch.randn(2, 3, 8), *memory, cache=cache)
        assert cache.length == 0


def in_order(layer, x, window, first, chunks):
    cache = WindowCache(window, first=first, positions="true")
    parts = [layer(x, mask=cache.mask(x.shape[1]), is_causal=True, cache=cache) for x in x.split(chunks, 1)]
    assert cache.length == x.shape[1]
    return torch.cat(parts, 1)


TRAINED_WITH_WINDOWS = {name: build for name, build in RELATIVE.items() if name != "latent"} | {
    "sink": lambda: mha.SinkAttention(8, 2, sink=1.0, positions=mha.RotaryPositions()),
    "no bias": lambda: mha.GroupedAttention(8, 4, 1, bias=False, positions=mha.RotaryPositions(base=100.0)),
}


@pytest.mark.parametrize("name", TRAINED_WITH_WINDOWS)
@settings(max_examples=12)
@given(chunks=chunkings(), window=st.integers(1, 5), first=st.integers(0, 3))
@torch.no_grad()
def test_with_true_positions_a_window_is_its_mask_over_the_text(name, chunks, window, first):
    n, layer = sum(chunks), TRAINED_WITH_WINDOWS[name]().eval()
    first = 0 if name == "sloped" else first
    x, rows = torch.randn(BATCH, n, 8), torch.arange(n) < first
    right = layer(x, mask=mha.sliding_window(n, window) | (rows & mha.causal_mask(n)))
    assert error(in_order(layer, x, window, first, chunks), right) < LIMIT


@torch.no_grad()
def test_true_positions_are_other_ones_only_once_the_first_words_are_far():
    layer, x = RELATIVE["rotary"](), torch.randn(1, 12, 8)
    inside, true = (streamed(layer, x, 3, 2, 1), in_order(layer, x, 3, 2, 1))
    assert error(inside[:, :5], true[:, :5]) < LIMIT
    assert all(error(inside[:, t], true[:, t]) > 1e-4 for t in range(5, 12))
    assert error(streamed(layer, x, 3, 0, 1), in_order(layer, x, 3, 0, 1)) < LIMIT


@torch.no_grad()
def test_with_true_positions_keys_are_kept_as_they_were_rotated():
    layer, x = RELATIVE["rotary"](), torch.randn(1, 9, 8)
    cache, whole = WindowCache(4, first=1, positions="true"), layer.new_cache(9)
    for token in x.split(1, 1):
        layer(token, is_causal=True, cache=cache)
        layer(token, is_causal=True, cache=whole)
    kept = [0, 6, 7, 8]
    assert torch.equal(cache._k, whole._k[:, :, kept])
    assert torch.equal(cache._v, whole._v[:, :, kept])


@torch.no_grad()
def test_positions_that_count_keys_are_true_only_without_first_words(reader):
    layer, x = RELATIVE["sloped"](), torch.randn(1, 3, 8)
    cache = WindowCache(4, first=1, positions="true")
    with pytest.raises(ValueError, match=r"LinearBias changes scores by the number of keys.*positions need first=0"):
        layer(x, is_causal=True, cache=cache)
    assert cache.length == cache.bytes == 0
    with pytest.raises(ValueError, match=r"positions = 'real': it is one of .*\"inside\", one that was trained with"):
        WindowCache(4, positions="real")


@pytest.mark.parametrize("first", [0, 2])
@torch.no_grad()
def test_rotated_keys_beside_latents_need_true_positions(first):
    layer, x = RELATIVE["latent"](), torch.randn(BATCH, 9, 8)
    right = layer(x, mask=mha.sliding_window(9, 3) | ((torch.arange(9) < first) & mha.causal_mask(9)))
    assert error(in_order(layer, x, 3, first, [4, 1, 3, 1]), right) < LIMIT


def test_windows_of_no_size_are_refused(reader):
    with pytest.raises(ValueError, match="window = 0: it must be at least 1"):
        WindowCache(0)
    with pytest.raises(ValueError, match="first = -1: it must be at least 0"):
        WindowCache(3, first=-1)
    with pytest.raises(TypeError, match=r"window = 2\.5: it must be a whole number"):
        WindowCache(2.5)
    with pytest.raises(TypeError, match="padding"):
        WindowCache(3, padding=[1, 0])
