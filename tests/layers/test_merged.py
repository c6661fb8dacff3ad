"""Cross-attention with an average of the own words, a decoder of two sublayers, starts that shrink with depth."""

import math

import pytest
import torch
from oracle import LIMIT, error
from test_cost import counted, peak
from torch import nn

import mha
from mha.analysis import leaks
from mha.layers import MemoryCache, MergedCache
from mha.models import (
    DecoderLayer,
    EncoderDecoder,
    EncoderLayer,
    LanguageModel,
    Stack,
    depth_scaled_init,
    merged_decoder,
)

B, N, J, WIDTH, HEADS = 2, 5, 7, 6, 3


def merged(**sizes):
    layer = mha.MergedAttention(WIDTH, HEADS, **sizes).eval()
    for weight in layer.parameters():
        nn.init.normal_(weight)
    return layer


def texts(width=WIDTH):
    return torch.randn(B, N, WIDTH), torch.randn(B, J, width)


def by_hand(layer, x, memory, mask=None, own_mask=None):
    """The equations, head by head: softmax(q kᵀ/√d) (y W_v) + A (x W_v), A the cumulative mean; then one W_o."""
    d, out = layer.d_head, layer.W_o.bias
    own = torch.ones(B, N, dtype=torch.bool) if own_mask is None else own_mask[:, 0, 0]
    mean = torch.stack([torch.tril(torch.ones(N, N)) * words for words in own])
    mean = mean / mean.sum(-1, keepdim=True).clamp(min=1)
    for h in range(layer.heads):
        part = slice(h * d, (h + 1) * d)
        q, k, v, u = (
            t @ linear.weight[part].T + (0 if linear.bias is None else linear.bias[part])
            for t, linear in ((x, layer.W_q), (memory, layer.W_k), (memory, layer.W_v), (x, layer.W_v))
        )
        scores = q @ k.mT / math.sqrt(d)
        scores = scores if mask is None else scores.masked_fill(~mask[:, 0], -torch.inf)
        out = out + (scores.softmax(-1) @ v + mean @ u) @ layer.W_o.weight[:, part].T
    return out


# ---- the layer


@pytest.mark.parametrize("bias", [True, "o", "vo"])
def test_the_layer_is_its_formula_on_random_weights(bias):
    layer, (x, memory) = merged(bias=bias), texts()
    assert error(layer(x, memory), by_hand(layer, x, memory)) < 1e-10
    mask, own = mha.padding_mask([4, 7], J), torch.rand(B, 1, 1, N) < 0.6
    found = layer(x, memory, mask=mask, own_mask=own)
    assert error(found, by_hand(layer, x, memory, mask, own)) < 1e-10
    with mha.watch(layer):
        assert error(layer(x, memory, mask=mask, own_mask=own), found) < LIMIT


def test_without_the_average_it_is_plain_cross_attention():
    plain, (x, memory) = mha.MultiHeadAttention(WIDTH, HEADS, kdim=4, vdim=4, bias="qvo"), texts(4)
    layer = mha.MergedAttention.from_plain(plain)
    assert torch.equal(layer(x, memory), plain(x, memory))
    assert layer.cost(B, N, J) == plain.cost(B, N, J)
    with torch.no_grad():
        cache = MemoryCache()
        assert error(layer(x, memory, cache=cache), plain(x, memory)) < LIMIT
    plain = mha.MultiHeadAttention(WIDTH, HEADS)
    added = mha.MergedAttention.from_plain(plain, average=True)
    assert error(added(x, x.clone()), plain(x, x.clone())) > 1e-3


def test_the_first_word_averages_itself_and_the_last_one_all_words():
    layer, (x, _) = merged(), texts()
    values = layer.W_v(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
    average = layer.own_average(x)
    assert error(average[:, :, 0], values[:, :, 0]) < LIMIT
    assert error(average[:, :, -1], values.mean(2)) < LIMIT


def test_no_output_sees_a_later_word_and_all_see_the_earlier_ones():
    layer, (_, memory) = merged().train(), texts()
    for mode in (True, False):
        found = leaks(lambda x: layer.train(mode)(x, memory), torch.randn(B, N, WIDTH))  # noqa: B023
        assert not found, found
        assert not any(found.blind.values())
    with torch.no_grad():
        cached = leaks(
            lambda x: fed(layer, x, memory, (2, 1, 2)), torch.randn(B, N, WIDTH)
        )  # every trial makes a cache of its own
    assert not cached, cached


def test_hidden_own_words_count_neither_above_nor_below_the_line():
    layer, (x, memory) = merged(), texts()
    own = torch.ones(B, 1, 1, N, dtype=torch.bool)
    own[:, :, :, 1] = False
    kept = layer(torch.cat([x[:, :1], x[:, 2:]], 1), memory)
    found = layer(x, memory, own_mask=own)
    assert error(found[:, 2:], kept[:, 1:]) < LIMIT
    silent = torch.zeros(B, 1, 1, N, dtype=torch.bool)
    without = merged(average=False)
    without.load_state_dict(layer.state_dict())
    assert error(layer(x, memory, own_mask=silent), without(x, memory)) < LIMIT


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_averages_long_texts(dtype):
    layer = mha.MergedAttention(4, 1, bias=False).to(dtype)
    nn.init.eye_(layer.W_v.weight)
    average = layer.own_average(torch.ones(1, 5000, 4, dtype=dtype))
    assert error(average.double(), torch.ones(1, 1, 5000, 4)) < 1e-3
    x = torch.linspace(-1, 3, 5000)[:, None].expand(1, 5000, 4).to(dtype)
    exact = x.double().cumsum(1) / torch.arange(1, 5001)[:, None]
    found = layer.own_average(x)
    assert found.dtype == dtype
    assert error(found, exact[None].to(dtype)) == 0
    counted = torch.arange(5000) >= 1
    found = layer.own_average(torch.cat([x[:, :1] + 900, x[:, 1:]], 1), counted.view(1, 1, 1, -1))
    others = x[:, 1:].double().cumsum(1) / torch.arange(1, 5000)[:, None]
    assert error(found[:, :, 1:], others[None].to(dtype)) == 0
    with torch.no_grad():
        cache = layer.new_cache()
        steps = [layer.own_average(part, cache=cache) for part in x.split(1250, 1)]
    assert error(torch.cat(steps, 2), exact[None].to(dtype)) < torch.finfo(dtype).eps


# ---- one word at a time


def fed(layer, x, memory, chunks, **how):
    cache = layer.new_cache()
    return torch.cat([layer(part, memory, cache=cache, **how) for part in x.split(chunks, 1)], 1)


@pytest.mark.parametrize("chunks", [(1,) * N, (2, 3), (N,), (4, 1)])
@torch.no_grad()
def test_a_running_sum_gives_what_all_words_at_once_give(chunks):
    layer, (x, memory) = merged(), texts()
    mask = mha.padding_mask([4, 0], J)
    assert error(fed(layer, x, memory, chunks, mask=mask), layer(x, memory, mask=mask)) < LIMIT
    cache, own = layer.new_cache(), torch.tensor([True, False, True, True, True]).expand(B, 1, 1, N)
    steps = [layer(x[:, n : n + 1], memory, own_mask=own[..., : n + 1], cache=cache) for n in range(N)]
    assert error(torch.cat(steps, 1), layer(x, memory, own_mask=own)) < LIMIT
    assert cache.length == N


@torch.no_grad()
def test_the_running_sum_does_not_grow():
    layer, (x, memory) = merged(), texts()
    cache, sizes = layer.new_cache(), []
    for word in x.split(1, 1):
        layer(word, memory, cache=cache)
        sizes.append(cache._total.numel() + cache._count.numel())
    assert set(sizes) == {B * WIDTH + 1}


@torch.no_grad()
def test_without_the_average_a_model_still_feeds_one_word_at_a_time():
    layer, (x, memory) = merged(average=False), texts()
    cache, fed_words = layer.new_cache(), []
    assert error(torch.cat([layer(word, memory, cache=cache) for word in x.split(1, 1)], 1), layer(x, memory)) < LIMIT
    assert cache.length == N
    model, source = EncoderDecoder(9, 11, 12, 2), torch.randint(9, (3, 4))
    only = mha.MergedAttention(12, 2, average=False)
    model.decoder = Stack([merged_decoder.MergedDecoderLayer(12, lambda: only)])
    only.register_forward_pre_hook(lambda layer, given: fed_words.append(given[0].shape[1]))
    written = [model.generate(source, 6, start=0, cached=cached) for cached in (True, False)]
    assert torch.equal(*written)
    assert fed_words[:6] == [1] * 6


# ---- what it costs


def test_operations_weights_and_memory_are_counted():
    layer, (x, memory) = merged(), texts()
    with mha.watch(layer):
        assert layer.cost(B, N, J).flops == counted(lambda: layer(x, memory))
    plain = mha.MultiHeadAttention(WIDTH, HEADS)
    assert layer.cost(B, N, J).parameters == plain.cost(B, N, J).parameters
    assert layer.cost(B, N, J).flops - plain.cost(B, N, J).flops == 2 * B * N * WIDTH * WIDTH
    long, other = torch.randn(1, 64, WIDTH), torch.randn(1, 64, WIDTH)
    assert layer.cost(1, 64, 64).peak == pytest.approx(peak(layer, long, other), rel=0.25)
    with torch.no_grad():
        cache = layer.new_cache()
        layer(x, memory, cache=cache)
        with mha.watch(layer):
            step = counted(lambda: layer(x[:, :1], memory, cache=cache))
    assert layer.cost(B, 1, J, fresh=0).flops == step
    kept = sum(t.nbytes for t in (*cache._found, cache._total))
    assert layer.cost(B, 1, J, fresh=0).cache == kept


def test_two_sublayers_have_fewer_weights_than_three():
    two, three = merged_decoder.MergedDecoderLayer(WIDTH, HEADS), DecoderLayer(WIDTH, HEADS)
    count = [sum(p.numel() for p in layer.parameters()) for layer in (two, three)]
    assert count[1] - count[0] == 4 * WIDTH**2 + 4 * WIDTH + 2 * WIDTH  # one attention layer and one norm


# ---- in a model


def translator():
    model = EncoderDecoder(9, 11, 12, 2, layers=2)
    model.decoder = Stack(merged_decoder.MergedDecoderLayer(12, 2) for _ in range(2))
    return model


def test_a_translator_with_two_sublayers_writes_the_same_with_and_without_a_cache():
    model, source = translator(), torch.randint(9, (3, 4))
    written = [model.generate(source, 6, start=0, cached=cached) for cached in (True, False)]
    assert torch.equal(*written)
    mask = mha.padding_mask([4, 2, 3], 4)
    written = [model.generate(source, 6, start=0, cached=cached, source_mask=mask) for cached in (True, False)]
    assert torch.equal(*written)


def test_a_translator_with_two_sublayers_does_not_see_the_future_and_learns_everywhere():
    model, source, target = translator(), torch.randint(9, (3, 4)), torch.randint(11, (3, 5))
    before = model(source, target)
    target[:, 3] = (target[:, 3] + 1) % 11
    assert error(model(source, target)[:, :3], before[:, :3]) < LIMIT
    model(source, target, target_mask=mha.padding_mask([5, 2, 4], 5)).square().sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad.abs().max() > 1e-9 or name.endswith("W_k.bias"), name


# ---- starts that shrink with depth


def largest(released, alpha=1.0):
    layers = [EncoderLayer(32, 4) for _ in range(4)]
    depth_scaled_init(layers, alpha, released=released, generator=torch.Generator().manual_seed(0))
    return [layer.attention.W_q.weight.abs().max().item() / math.sqrt(6 / 64) for layer in layers]


def test_the_paper_shrinks_with_the_square_root_and_the_code_with_the_fourth_root():
    assert largest(False) == pytest.approx([1, 2**-0.5, 3**-0.5, 0.5], rel=0.01)
    assert largest(True) == pytest.approx([1, 2**-0.25, 3**-0.25, 2**-0.5], rel=0.01)
    assert largest(False, 0.5)[0] == pytest.approx(0.5, rel=0.01)
    assert largest(True, 0.5)[0] == pytest.approx(0.5**0.5, rel=0.01)


def test_wide_and_narrow_matrices_have_the_range_of_xavier_in_the_first_layer():
    layer = EncoderLayer(32, 4)
    before = {name: p.clone() for name, p in layer.named_parameters() if p.ndim == 1}
    depth_scaled_init([layer])
    for linear in (layer.feed_forward.widen, layer.feed_forward.narrow):
        assert linear.weight.abs().max().item() == pytest.approx(math.sqrt(6 / 160), rel=0.01)
    assert all(torch.equal(p, before[name]) for name, p in layer.named_parameters() if p.ndim == 1)


def test_embeddings_stay_and_the_same_seed_gives_the_same_start():
    models = [LanguageModel(7, 8, 2, layers=2) for _ in range(2)]
    tables = [model.embedding.table.weight.clone() for model in models]
    for model in models:
        depth_scaled_init([*model.decoder, model.embedding], generator=torch.Generator().manual_seed(3))
    assert all(torch.equal(m.embedding.table.weight, t) for m, t in zip(models, tables, strict=True))
    assert torch.equal(models[0].decoder[1].attention.W_v.weight, models[1].decoder[1].attention.W_v.weight)


# ---- bad input


def test_calls_that_a_merged_layer_cannot_serve_are_refused(reader):
    layer, (x, memory) = merged(), texts()
    with pytest.raises(ValueError, match=r"reads a memory and averages its own tokens: call layer\(x, memory\)"):
        layer(x)
    with pytest.raises(ValueError, match="is_causal with a separate key"):
        layer(x, memory, is_causal=True)
    for cache in (MemoryCache(), mha.KeyValueCache()):
        with pytest.raises(
            ValueError, match=rf"cache = a {type(cache).__name__} keeps no running sum.*layer\.new_cache"
        ):
            layer(x, memory, cache=cache)
    with pytest.raises(ValueError, match=r"own_mask has shape \(2, 1, 1, 3\)"):
        layer(x, memory, own_mask=torch.ones(B, 1, 1, 3, dtype=torch.bool))
    with pytest.raises(TypeError, match=r"own_mask is .*must be torch\.bool"):
        layer(x, memory, own_mask=torch.ones(B, 1, 1, N))
    with pytest.raises(ValueError, match="stores no gradients"):
        layer(x, memory, cache=layer.new_cache())
    with torch.no_grad():
        layer(x, memory, cache=(cache := MergedCache()))
        with pytest.raises(ValueError, match="use a new cache for each memory"):
            layer(x, memory.clone(), cache=cache)


def test_sizes_that_cannot_share_their_values_are_refused(reader):
    with pytest.raises(ValueError, match=r"vdim = 4, but d_model = 6: one W_v makes.*average=False"):
        mha.MergedAttention(6, 2, vdim=4)
    assert mha.MergedAttention(6, 2, vdim=4, average=False).W_v.in_features == 4


@pytest.mark.parametrize(("layers", "alpha"), [(0, 1.0), (1, 0.0), (1, -1.0)])
def test_a_start_without_layers_or_size_is_refused(reader, layers, alpha):
    with pytest.raises(
        ValueError, match=rf"{layers} layers, alpha = {alpha}: .*at least 1 layer, and a positive alpha"
    ):
        depth_scaled_init([EncoderLayer(4, 1)] * layers, alpha)


def test_what_the_average_keeps_does_not_grow_with_the_words():
    merged, plain = mha.MergedAttention(8, 2), mha.MergedAttention(8, 2, average=False)
    kept = {merged.cost(3, i, 7).cache - plain.cost(3, i, 7).cache for i in (1, 2, 9)}
    assert kept == {3 * 8 * merged.W_v.weight.element_size()}
