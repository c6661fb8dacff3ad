"""Layers whose queries read the keys that an index chooses: what is chosen, who learns, what a cache keeps."""

import copy

import pytest
import torch
from oracle import LIMIT, error
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import mha
from mha.functional import attend, choose_blocks, choose_tokens, index_loss
from mha.layers import IndexedCache, MemoryCache, WindowCache

B, N, WIDTH, HEADS, K = 2, 11, 16, 4, 3


def grouped(k=K, **settings):
    torch.manual_seed(3)
    settings = {"kv_heads": 2, "index_heads": 9, "d_index": 6, "positions": mha.RotaryPositions()} | settings
    return mha.IndexedAttention(WIDTH, HEADS, k, **settings).double().eval()


def latents(k=K, **settings):
    torch.manual_seed(3)
    settings = {"d_rotary": 4, "d_query": 10, "norm": True, "index_heads": 9} | settings
    return mha.IndexedLatentAttention(WIDTH, HEADS, 7, k, **settings).double().eval()


KINDS = {
    "grouped": grouped,
    "grouped, sloped": lambda k=K: grouped(k, positions=mha.LinearBias()),
    "grouped, blocks": lambda k=K: grouped(k, block=2, pool="mean"),
    "latents": latents,
    "latents, blocks": lambda k=K: latents(k, block=2),
    "latents, pairs as in the heads": lambda k=K: latents(k, index_layout="interleaved"),
}
every_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
both = pytest.mark.parametrize("make", [grouped, latents])


def words(n=N):
    return torch.randn(B, n, WIDTH, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def dense(layer):
    """The same parameters without an index."""
    if isinstance(layer, mha.IndexedLatentAttention):
        made = mha.LatentAttention(WIDTH, HEADS, 7, d_rotary=4, d_query=10, norm=True)
    else:
        made = mha.GroupedAttention(WIDTH, HEADS, layer.kv_heads, positions=layer.positions)
    made = made.double().eval()
    made.load_state_dict({name: w for name, w in layer.state_dict().items() if not name.startswith("indexer.")})
    return made


def in_steps(layer, x, chunks, **how):
    cache = layer.new_cache(x.shape[1])
    with torch.no_grad():
        return torch.cat([layer(part, is_causal=True, cache=cache, **how) for part in x.split(chunks, 1)], 1)


# ---- what is read


@every_kind
def test_with_room_for_all_keys_it_is_the_dense_layer_and_with_fewer_it_is_not(make):
    """Up to k keys every index gives the same, even another layer's: only longer texts can tell them apart."""
    layer, x = make(), words()
    whole = dense(layer)(x, is_causal=True)
    fits = layer.indexer.reads
    assert torch.equal(layer(x[:, :fits], is_causal=True), dense(layer)(x[:, :fits], is_causal=True))
    chosen = layer(x, is_causal=True)
    assert error(chosen[:, :fits], whole[:, :fits]) < LIMIT
    assert error(chosen, whole) > 1e-2
    other = copy.deepcopy(layer)
    torch.nn.init.normal_(other.indexer.W_q.weight)
    assert torch.equal(other(x[:, :fits], is_causal=True), layer(x[:, :fits], is_causal=True))
    assert error(other(x, is_causal=True), chosen) > 1e-2
    layer.k = N
    assert torch.equal(layer(x, is_causal=True), whole)


@pytest.mark.parametrize("block", [1, 2])
def test_the_output_is_that_of_the_dense_layer_under_the_chosen_mask(block):
    layer, x, causal = grouped(block=block, pool="mean"), words(), mha.causal_mask(N)
    scores = layer.index(x)
    right = choose_tokens(scores, K, causal) if block == 1 else choose_blocks(scores, K, 2, causal, pool="mean")
    q, k, v = layer.project(x)
    read = layer.merge(attend(q, k, v, right[:, None], enable_gqa=True))
    with mha.watch(layer, "chosen", "index") as seen:
        y = layer(x, is_causal=True)
    assert torch.equal(seen.chosen, right)
    assert torch.equal(seen.index, layer.index(x, is_causal=True))
    assert torch.equal(seen.index, scores.masked_fill(~causal, -torch.inf))
    assert error(y, read) < LIMIT


@every_kind
def test_one_query_gathers_what_several_read_under_a_mask(make):
    layer, x = make(), words()
    whole = layer(x, is_causal=True)
    for chunks in ((1,) * N, (5, 1, 1, 4), (N,)):
        assert error(in_steps(layer, x, chunks), whole) < LIMIT
    if isinstance(layer, mha.IndexedLatentAttention):
        for absorb in (False, True):
            assert error(in_steps(layer, x, (5, 1, 1, 4), absorb=absorb), whole) < LIMIT


@both
def test_a_single_query_reads_k_keys_and_no_more(make):
    layer, x, rows = make(), words(), []
    right = layer(x, is_causal=True)[:, -1:]
    cache = layer.new_cache(N)
    with torch.no_grad():
        layer(x[:, :-1], is_causal=True, cache=cache)
        name = "read_absorbed" if make is latents else "_read"
        read = getattr(layer, name)
        setattr(layer, name, lambda q, k, *rest, **how: rows.append(k.shape[2]) or read(q, k, *rest, **how))
        again = {"absorb": True} if make is latents else {}
        assert error(layer(x[:, -1:], is_causal=True, cache=cache, **again), right) < LIMIT
    assert rows == [K]


@both
def test_padding_and_empty_rows(make):
    layer, x = make(), words()
    short = layer(x[:1, :6], is_causal=True)
    mask = mha.padding_mask([6, N], N)
    assert error(layer(x, mask=mask, is_causal=True)[:1, :6], short) < LIMIT
    with torch.no_grad():  # padding in front, as a cache has it
        cache = layer.new_cache(N, padding=[2, 0])
        padded = torch.cat([torch.full((B, 2, WIDTH), 50.0, dtype=torch.float64), x[:, :6]], 1)
        found = torch.cat([layer(part, is_causal=True, cache=cache) for part in padded.split((5, 1, 1, 1), 1)], 1)
    assert found.isfinite().all()
    assert error(found[:1, 2:], short) < LIMIT  # rotary positions count the padding, which changes no distance
    nothing = torch.ones(N, N, dtype=torch.bool).tril(-1)
    y = layer(x, mask=nothing)
    assert error(y[:, 0], layer.W_o.bias.expand(B, -1)) < LIMIT


def test_a_head_with_a_mask_of_its_own_sees_what_is_chosen_and_shown():
    layer, x = grouped(), words()
    mask = torch.rand(B, HEADS, N, N, generator=torch.Generator().manual_seed(1)) < 0.7
    with mha.watch(layer, "chosen", "weights") as seen:
        layer(x, mask=mask)
    assert torch.equal(seen.chosen, choose_tokens(layer.index(x), K, mask.any(1, keepdim=True)))
    assert seen.weights.masked_select(~(mask & seen.chosen[:, None])).abs().max() == 0
    layer.positions = None
    single = layer(x[:, :1], x, mask=mask[:, :, :1])  # which is not gathered: its heads may not read the same
    assert error(single, layer(x, mask=mask)[:, :1]) < LIMIT


def test_a_memory_is_chosen_from():
    layer, x, memory = grouped(positions=None), words(), words(9).flip(2)
    right = layer(x, memory)
    with mha.watch(layer, "chosen") as seen:
        layer(x, memory)
    assert (seen.chosen.sum(-1) == K).all()
    with torch.no_grad():
        cache = MemoryCache()
        for n in range(3):
            assert error(layer(x[:, n : n + 1], memory, cache=cache), right[:, n : n + 1]) < LIMIT


# ---- who learns


@both
def test_neither_loss_reaches_the_others_weights(make):
    layer, x = make(), words().requires_grad_()
    layer(x, is_causal=True).square().sum().backward()
    own = {name: w.grad for name, w in layer.named_parameters() if name.startswith("indexer.")}
    assert all(grad is None for grad in own.values())
    before = x.grad.clone()
    layer.zero_grad()
    x.grad = None
    with mha.watch(layer, "weights", detach=False) as seen:
        layer(x, is_causal=True)
    index_loss(seen.weights, layer.index(x, is_causal=True)).backward()
    assert x.grad is None
    assert before.abs().min() > 0
    for name, weight in layer.named_parameters():
        assert (weight.grad is not None) == name.startswith("indexer."), name
        assert weight.grad is None or weight.grad.abs().max() > 0


@both
def test_the_watched_index_trains_it_as_well(make):
    layer, x = make(), words()
    with mha.watch(layer, "weights", "chosen") as seen:
        layer(x, is_causal=True)
    with mha.watch(layer, "index", detach=False) as index:
        layer(x, is_causal=True)
    one, other = (index_loss(seen.weights, s, seen.chosen) for s in (index.index, layer.index(x, is_causal=True)))
    assert error(one, other) < LIMIT
    grads = [torch.autograd.grad(loss, [*layer.indexer.parameters()]) for loss in (one, other)]
    assert error(*(torch.cat([g.flatten() for g in grad]) for grad in grads)) < LIMIT


def test_an_index_learns_what_the_dense_layer_reads():
    torch.manual_seed(0)
    layer, x = grouped(N, index_heads=4, d_index=8), words()
    with torch.no_grad():
        layer.W_q.weight.mul_(4)  # so that it reads few keys
    with mha.watch(layer, "weights") as seen:
        layer(x, is_causal=True)
    best = choose_tokens(seen.weights.sum(1), K, mha.causal_mask(N))

    def share():
        chosen = choose_tokens(layer.index(x), K, mha.causal_mask(N))
        return float((chosen & best).sum() / best.sum())

    before, adam = share(), torch.optim.Adam(layer.indexer.parameters(), lr=0.02)
    for _ in range(150):
        loss = index_loss(seen.weights, layer.index(x, is_causal=True))
        adam.zero_grad()
        loss.backward()
        adam.step()
    assert share() > max(0.9, before + 0.1)


# ---- from other layers, to fewer heads


def test_it_is_made_from_plain_and_from_grouped_layers():
    x = words()
    for plain in (mha.MultiHeadAttention(WIDTH, HEADS), mha.GroupedAttention(WIDTH, HEADS, 2)):
        plain = plain.double().eval()
        layer = mha.IndexedAttention.from_plain(plain)
        assert layer.kv_heads == plain.kv_heads
        assert torch.equal(layer(x, is_causal=True), plain(x, is_causal=True))
        fewer = mha.IndexedAttention.from_plain(plain, k=K, index_heads=2, d_index=4)
        assert (fewer.k, fewer.indexer.heads, fewer.indexer.d) == (K, 2, 4)
        assert all(torch.equal(w, fewer.state_dict()[name]) for name, w in plain.state_dict().items())
        assert error(fewer(x, is_causal=True), plain(x, is_causal=True)) > 1e-3


@both
def test_fewer_heads_choose_the_same(make):
    layer, x = make(), words()
    smaller = layer.take_heads([0, 1])
    with mha.watch(layer, "chosen") as seen, mha.watch(smaller, "chosen") as less:
        layer(x, is_causal=True)
        smaller(x, is_causal=True)
    assert torch.equal(seen.chosen, less.chosen)


# ---- the cache


@torch.no_grad()
def test_the_set_belongs_to_the_call_and_never_to_the_cache():
    """The same cached tokens, another question: other keys are chosen."""
    layer, x = grouped(), words()
    cache = layer.new_cache(N)
    layer(x[:, :-1], is_causal=True, cache=cache)
    kept = {name for name, value in vars(cache).items() if isinstance(value, torch.Tensor)}
    assert kept == {"_k", "_v", "_index"}
    sets = []
    for last in (x[:, -1:], -3 * x[:, :1]):
        one = copy.deepcopy(cache)
        with mha.watch(layer, "chosen") as seen:
            layer(last, is_causal=True, cache=one)
        sets.append(seen.chosen)
        whole = torch.cat([x[:, :-1], last], 1)
        assert torch.equal(seen.chosen, choose_tokens(layer.index(whole), K, mha.causal_mask(N))[:, -1:])
    assert not torch.equal(*sets)


@torch.no_grad()
def test_a_layer_that_read_everything_so_far_goes_on_with_its_index_keys():
    layer, x = grouped(N), words()
    cache = layer.new_cache(N)
    layer(x[:, :8], is_causal=True, cache=cache)
    layer.k = K
    assert error(layer(x[:, 8:], is_causal=True, cache=cache), layer(x, is_causal=True)[:, 8:]) < LIMIT


@torch.no_grad()
def test_caches_without_index_keys_are_refused(reader):
    x = words()
    for cache in (mha.KeyValueCache(), WindowCache(3)):
        with pytest.raises(ValueError, match=f"{type(cache).__name__}, which has no room for index keys.*new_cache"):
            grouped()(x, is_causal=True, cache=cache)
        assert cache.length == 0
    with pytest.raises(ValueError, match=r"LatentCache, which keeps latents, but Indexed.*new_cache"):
        latents()(x, is_causal=True, cache=mha.layers.LatentCache())
    assert IndexedCache().index_keys is None
    with pytest.raises(ValueError, match="2 index keys came, but only 0 tokens are stored"):
        IndexedCache()._keep_index(torch.zeros(1, 2, 3))
    cache = IndexedCache()
    grouped()(x, is_causal=True, cache=cache)
    with pytest.raises(ValueError, match=r"index keys \(1, 2, 3\).*do not continue the cache's"):
        cache._keep_index(torch.zeros(1, 2, 3))
    with pytest.raises(ValueError, match="stores no gradients"), torch.enable_grad():
        IndexedCache()._keep_index(torch.zeros(1, 1, 2, requires_grad=True))


# ---- the bill


@torch.no_grad()
def counted(call):
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        call()
    return counter.get_total_flops()


@pytest.mark.parametrize("block", [1, 2])
@both
def test_one_more_token_costs_what_is_counted(make, block):
    layer, x = make(2, block=block), words()
    cache = layer.new_cache(N)
    with torch.no_grad():
        layer(x[:, :-1], is_causal=True, cache=cache)
    found = counted(lambda: layer(x[:, -1:], is_causal=True, cache=cache))
    cost = layer.cost(B, 1, N, fresh=1)
    if make is grouped:  # torch pads the values of latents, and counts the zeros
        assert cost.flops == found
    assert cost.cache == cache.bytes
    index = cost.parts["index"]
    assert index.flops == 2 * B * N * 9 * layer.indexer.d
    assert cost.parts["gather"].flops == 0 < cost.parts["gather"].moved
    few = dense(layer).cost(B, 1, 2 * block, fresh=1)
    for name in ("scores", "read"):
        assert cost.parts[name] == few.parts[name]


@both
def test_a_kernel_that_skips_would_read_k_keys_for_every_query(make):
    layer = make()
    masked, skipped = layer.cost(B, N), layer.cost(B, N, gather=True)
    whole = dense(layer).cost(B, N)
    for name in ("scores", "read"):
        assert masked.parts[name].flops == whole.parts[name].flops
        assert skipped.parts[name].flops * N == whole.parts[name].flops * K
    layer.k = N
    assert "index" not in layer.cost(B, N).parts


def test_the_bill_of_deepseek_v32_is_even_at_2176_tokens_and_never_17_times_smaller():
    """Scores and read of latents, absorbed, against the scores of the index and the read of 2,048 rows."""
    with torch.device("meta"):
        layer = mha.IndexedLatentAttention(
            7168, 128, 512, 2048, d_rotary=64, d_query=1536, d_head=128, index_heads=64, d_index=128
        )

    def read(n, k):
        layer.k = k
        parts = layer.cost(1, 1, n, fresh=1, absorb=True).parts
        return sum(parts[name].flops for name in ("index", "scores", "read") if name in parts)

    assert read(2176, 2048) == read(2176, 2176)
    assert read(2177, 2048) < read(2177, 2177)
    assert 13 < read(2**17, 2**17) / read(2**17, 2048) < 13.5
    assert 16.5 < read(10**8, 10**8) / read(10**8, 2048) < 17


# ---- bad settings


def test_settings_that_make_no_layer_are_refused(reader):
    bad = [
        ({"k": 0}, "k = 0: it must be at least 1"),
        ({"index_heads": 0}, "index_heads = 0: it must be at least 1"),
        ({"d_index": 0}, "d_index = 0: it must be at least 1"),
        ({"block": 0}, "block = 0: it must be at least 1"),
        ({"pool": "sum"}, "pool = 'sum': give one of"),
        ({"d_rotary": 3}, "d_rotary = 3, d_index = 6: .*even number from 0 to 6"),
        ({"d_rotary": 8}, "d_rotary = 8, d_index = 6: .*even number from 0 to 6"),
        ({"kv_heads": 3}, "kv_heads = 3 cannot be shared evenly"),
    ]
    for settings, message in bad:
        with pytest.raises(ValueError, match=message):
            grouped(**settings)
    with pytest.raises(ValueError, match="index_layout = 'thirds'"):
        latents(index_layout="thirds")
    with pytest.raises(ValueError, match="k = 0: it must be at least 1"):
        grouped().k = 0
    q, k, v = grouped().project(words())
    with pytest.raises(ValueError, match="chooses what may be read"):
        grouped().attend(q, k, v)
