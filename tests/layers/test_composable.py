"""Heads that are recombined for every query and key, by weights made from the words."""

import math

import pytest
import torch
import torch.nn.functional as F
from oracle import LIMIT, error

import mha
from mha.functional.composed import attend_in_chunks
from mha.layers import MemoryCache
from mha.models import EncoderDecoder, LanguageModel

B, N, D_MODEL, HEADS, RANK = 2, 5, 12, 3, 2


def noisy(heads=HEADS, rank=RANK, **sizes):
    layer = mha.ComposableAttention(D_MODEL, heads, rank=rank, **sizes).eval()
    with torch.no_grad():
        for weight in layer.parameters():
            weight.copy_(0.7 * torch.randn_like(weight))
    return layer


def dynamic(side, x, heads, rank):
    """The h × h matrices that the words x (b, n, m) say, from the paper's text: low rank plus diagonal."""
    hidden = F.gelu(x @ side.widen.weight.T) @ side.narrow.weight.T
    w1, w2 = hidden[..., : rank * heads], hidden[..., rank * heads :]
    w1 = w1.reshape(*x.shape[:2], rank, heads).mT  # h × r
    w1 = w1 / (w1.square().mean(-2, keepdim=True) + 1e-6).sqrt()
    w2 = w2.reshape(*x.shape[:2], rank, heads)  # r × h
    return w1 @ w2 + torch.diag_embed(torch.tanh(x @ side.gate.weight.T))


def composed(a, place, query, key, rank):
    """A'_:ij = A_:ij (W_b + W_q[i] + W_k[j]) for every pair, with all h × h matrices written down."""
    heads = a.shape[1]
    by_query, by_key = dynamic(place.of_query, query, heads, rank), dynamic(place.of_key, key, heads, rank)
    mixing = place.base + by_query[:, :, None] + by_key[:, None]  # (b, i, j, h, h)
    return torch.einsum("bgij,bijgh->bhij", a, mixing)


def dense(layer, query, key=None, value=None, mask=None):
    """The whole layer from the equations, with a matrix for every pair of query and key."""
    key = query if key is None else key
    value = key if value is None else value
    q, k, v = (
        linear(x).unflatten(-1, (layer.heads, -1)).transpose(1, 2)
        for linear, x in ((layer.W_q, query), (layer.W_k, key), (layer.W_v, value))
    )
    scores = composed(q @ k.mT / math.sqrt(layer.d_head), layer.before, query, key, layer.rank)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    weights = scores.softmax(-1).nan_to_num(0)
    weights = composed(weights, layer.after, query, key, layer.rank)
    return layer.W_o((weights @ v).transpose(1, 2).flatten(2))


MASKS = {
    "none": None,
    "causal": mha.causal_mask(N),
    "padding": mha.padding_mask([3, 5], N),
    "every head its own": torch.rand(B, HEADS, N, N, generator=torch.Generator().manual_seed(0)) < 0.6,
    "the same for all queries": torch.rand(1, HEADS, 1, N, generator=torch.Generator().manual_seed(1)) < 0.6,
    "empty rows": mha.causal_mask(N) & (torch.arange(N) > 1)[:, None],
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize(("heads", "rank"), [(3, 2), (3, 1), (3, 3), (1, 1)])
def test_composed_heads_are_the_equations_of_the_paper(heads, rank, mask):
    layer, x = noisy(heads, rank), torch.randn(B, N, D_MODEL)
    mask = mask if mask is None or mask.shape[-3:-2] != (HEADS,) else mask[:, :heads]
    right = dense(layer, x, mask=mask)
    assert error(layer(x, mask=mask), right) < 1e-10  # with gradients: the explicit formula
    with torch.no_grad():
        assert error(layer(x, mask=mask), right) < 1e-10  # without: chunk by chunk


@torch.no_grad()
def test_key_weights_come_from_the_keys_of_another_sequence():
    layer = noisy(kdim=7, vdim=4)
    x, key, value = torch.randn(B, N, D_MODEL), torch.randn(B, 6, 7), torch.randn(B, 6, 4)
    assert error(layer(x, key, value), dense(layer, x, key, value)) < 1e-10
    cache = MemoryCache()
    parts = [layer(word, key, value, cache=cache) for word in x.split(1, 1)]
    assert error(torch.cat(parts, 1), dense(layer, x, key, value)) < 1e-10


@pytest.mark.parametrize("n", [1, 127, 128, 129, 260])
@pytest.mark.parametrize("how", [{}, {"is_causal": True}, {"is_causal": True, "mask": "random"}, {"mask": "random"}])
def test_chunks_give_what_the_explicit_formula_gives(n, how):
    layer, x = noisy(), torch.randn(2, n, D_MODEL)
    if how.get("mask") is not None:
        how = {**how, "mask": torch.rand(2, 1, n, n) < 0.3}
    with torch.no_grad():
        quick = layer(x, **how)
        with mha.watch(layer):
            watched = layer(x, **how)
    assert error(quick, layer(x, **how)) < LIMIT
    assert torch.equal(watched, layer(x, **how))


@torch.no_grad()
def test_a_chunk_never_sees_more_than_a_few_queries():
    sizes = []

    class Largest(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            sizes.extend(t.numel() for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor))
            return result

    layer, x = noisy(), torch.randn(1, 700, D_MODEL)
    with Largest():
        layer(x)
    assert max(sizes) == 128 * 700 * HEADS
    sizes.clear()
    with Largest(), mha.watch(layer):
        layer(x)
    assert max(sizes) >= 700 * 700 * HEADS


def test_a_static_base_alone_is_talking_heads():
    torch.manual_seed(1)
    plain = mha.MultiHeadAttention(D_MODEL, HEADS)
    composed, talking = mha.ComposableAttention.from_plain(plain), mha.TalkingAttention.from_plain(plain)
    with torch.no_grad():
        for mine, theirs in ((composed.before.base, talking.mix_scores), (composed.after.base, talking.mix_weights)):
            mine.copy_(torch.randn(HEADS, HEADS))
            theirs.copy_(mine)
    x = torch.randn(B, N, D_MODEL)
    assert error(composed(x, is_causal=True), talking(x, is_causal=True)) < LIMIT


def test_a_layer_made_from_a_plain_one_can_learn_to_mix():
    layer = mha.ComposableAttention.from_plain(mha.MultiHeadAttention(D_MODEL, HEADS))
    layer(torch.randn(B, N, D_MODEL)).square().sum().backward()
    for place in (layer.before, layer.after):
        for side in (place.of_query, place.of_key):
            collect, spread = side.narrow.weight.grad.chunk(2)
            assert collect.abs().max() == 0 < 1e-9 < spread.abs().max()


def test_a_layer_made_from_a_plain_one_keeps_its_settings():
    plain = mha.MultiHeadAttention(D_MODEL, 2, d_head=4, kdim=5, vdim=7, bias="qk", positions=None, dropout=0.3).eval()
    layer = mha.ComposableAttention.from_plain(plain)
    assert (layer.rank, layer.dropout, layer.training) == (2, 0.3, False)
    x, key, value = torch.randn(B, N, D_MODEL), torch.randn(B, 6, 5), torch.randn(B, 6, 7)
    assert error(layer(x, key, value), plain(x, key, value)) < LIMIT
    assert mha.ComposableAttention.from_plain(mha.MultiHeadAttention(4, 1)).rank == 1
    turned = mha.MultiHeadAttention(D_MODEL, 3, positions=mha.RotaryPositions()).eval()
    words = torch.randn(B, N, D_MODEL)
    assert error(mha.ComposableAttention.from_plain(turned)(words), turned(words)) < LIMIT


def test_a_new_layer_is_almost_plain_and_all_its_weights_learn():
    torch.manual_seed(0)
    layer = mha.ComposableAttention(64, 8)
    plain = mha.MultiHeadAttention(64, 8)
    plain.load_state_dict({k: w for k, w in layer.state_dict().items() if k[:2] == "W_"})
    x = torch.randn(2, 9, 64)
    assert 1e-6 < error(layer(x), plain(x)) < 0.2  # the gates begin with a few percent
    layer(x).square().sum().backward()
    assert all(weight.grad.abs().max() > 0 for weight in layer.parameters() if weight is not layer.W_k.bias)


def test_collecting_weights_have_size_one_whatever_the_layer_says():
    side = noisy().before.of_query
    with torch.no_grad():
        for scale in (1e-2, 1.0, 1e3):
            collect, spread, gate = side(scale * torch.randn(B, N, D_MODEL))
            assert (collect.square().mean(-1) - 1).abs().max() < 0.2
            assert gate.abs().max() <= 1
        assert spread.abs().max() > 100  # the size is in what spreads


# ---- the cache


@pytest.mark.parametrize("chunks", [(1,) * N, (2, 3), (4, 1), (N,)])
@pytest.mark.parametrize("positions", [None, mha.RotaryPositions(), mha.LinearBias()])
@torch.no_grad()
def test_a_cache_gives_the_numbers_of_the_whole_sequence(positions, chunks):
    layer, x = noisy(positions=positions, d_head=4), torch.randn(B, N, D_MODEL)
    cache = layer.new_cache(N + 2)
    fed = torch.cat([layer(part, cache=cache, is_causal=True) for part in x.split(chunks, 1)], 1)
    assert error(fed, layer(x, is_causal=True)) < LIMIT
    assert cache.bytes == 8 * B * (N + 2) * (2 * HEADS * 4 + 2 * HEADS * (2 * RANK + 1))
    assert cache.bytes == layer.cost(B, 1, N + 2, fresh=1).cache


@torch.no_grad()
def test_a_language_model_generates_the_same_with_a_cache():
    model = LanguageModel(11, D_MODEL, noisy, layers=2)
    words = torch.randint(11, (2, 4))
    assert torch.equal(model.generate(words, 6), model.generate(words, 6, cached=False))
    filled = model.decoder.new_cache(6, padding=[0, 2])
    logits = torch.cat([model(part, filled.mask(part.shape[1]), cache=filled) for part in words.split(2, 1)], 1)
    assert error(logits[:1], model(words[:1])) < LIMIT


@torch.no_grad()
def test_a_translator_composes_its_cross_attention_too():
    model = EncoderDecoder(9, 11, D_MODEL, noisy, layers=1).eval()
    source = torch.randint(9, (2, 5))
    assert torch.equal(model.generate(source, 4, start=0), model.generate(source, 4, start=0, cached=False))


@torch.no_grad()
def test_a_cache_that_keeps_no_compositions_is_refused(reader):
    layer, x = noisy(), torch.randn(B, N, D_MODEL)
    cache = mha.KeyValueCache(N)
    with pytest.raises(ValueError, match=r"KeyValueCache keeps keys and values, but.*new_cache\(\)"):
        layer(x, cache=cache, is_causal=True)
    assert cache.length == 0


def test_a_plain_layer_becomes_one_of_the_rank_that_was_asked_for():
    plain = mha.MultiHeadAttention(8, 4)
    ranks = [mha.ComposableAttention.from_plain(plain, **given).rank for given in ({}, {"rank": 1}, {"rank": 3})]
    assert ranks == [2, 1, 3]


@torch.no_grad()
def test_a_cache_of_another_rank_is_refused_and_not_spoiled(reader):
    layer, other, x = noisy(), noisy(rank=1), torch.randn(B, N, D_MODEL)
    cache = layer.new_cache(2 * N)
    right = layer(x[:, :3], cache=cache, is_causal=True)
    with pytest.raises(ValueError, match="another layer filled this cache"):
        other(x[:, 3:], cache=cache, is_causal=True)
    assert cache.length == 3
    again = torch.cat([right, layer(x[:, 3:], cache=cache, is_causal=True)], 1)
    assert error(again, layer(x, is_causal=True)) < LIMIT


def test_a_cache_asks_for_no_gradients(reader):
    layer, x = noisy(), torch.randn(B, N, D_MODEL)
    with pytest.raises(ValueError, match=r"no gradients: call the layer under torch\.no_grad"):
        layer(x, cache=layer.new_cache(), is_causal=True)


# ---- what is refused


@pytest.mark.parametrize("rank", [0, -1, 4])
def test_a_rank_out_of_range_is_refused(rank):
    with pytest.raises(ValueError, match=rf"rank = {rank} for 3 heads.*rank 1 to 3"):
        mha.ComposableAttention(D_MODEL, HEADS, rank=rank)


def test_heads_cannot_be_taken_out():
    with pytest.raises(ValueError, match=r"heads \[1\] of ComposableAttention cannot be taken out.*mha\.edit"):
        noisy().take_heads([1])


@torch.no_grad()
def test_a_mask_that_does_not_fit_is_refused_in_chunks_too(reader):
    layer, x = noisy(), torch.randn(B, N, D_MODEL)
    with pytest.raises(ValueError, match="does not fit the scores"):
        layer(x, mask=torch.ones(B, 2, N, N).bool())
    with pytest.raises(TypeError, match="may look"):
        layer(x, mask=torch.ones(N, N))


@torch.no_grad()
def test_the_peak_of_the_explicit_formula_is_about_what_is_counted():
    from test_cost import peak

    layer, x = noisy(), torch.randn(1, 96, D_MODEL)
    with mha.watch(layer):
        assert layer.cost(1, 96).peak == pytest.approx(peak(layer, x), rel=0.35)
    talking = mha.TalkingAttention(D_MODEL, HEADS)
    assert talking.cost(1, 96).peak == pytest.approx(peak(talking, x), rel=0.35)


@torch.no_grad()
def test_chunks_can_be_called_as_a_function():
    layer, x = noisy(), torch.randn(B, N, D_MODEL)
    before, after = layer.compositions(x, x, None)
    q, k, v = layer.project(x)
    assert error(layer.merge(attend_in_chunks(q, k, v, before, after)), layer(x)) < LIMIT


@torch.no_grad()
def test_it_can_be_mapped_over_a_batch_without_gradients():
    layer, x = noisy(), torch.randn(B, N, D_MODEL)
    assert error(torch.vmap(lambda one: layer(one[None], is_causal=True)[0])(x), layer(x, is_causal=True)) < LIMIT


@torch.no_grad()
def test_dropout_and_a_watcher_of_the_weights_alone_take_effect_without_gradients():
    layer, x = noisy(dropout=0.5), torch.randn(B, N, D_MODEL)
    assert not torch.equal(layer.train()(x), layer(x))
    with mha.watch(layer.eval(), "weights") as seen:
        layer(x)
    assert seen.weights.shape == (B, HEADS, N, N)
