"""Attention to the memories of earlier steps: the formula, the loop, and gradients through it."""

import math

import pytest
import torch
from oracle import LIMIT, error
from test_cost import counted, peak
from torch import nn

import mha
from mha.analysis import leaks
from mha.layers import FeedbackMemory, MemoryCache, MergedCache
from mha.models import FeedbackCache, FeedbackLayer, FeedbackStack, LanguageModel, train

B, N, WIDTH, HEADS, STEPS = 2, 6, 6, 3, 8


def shaken(module):
    """All weights random, the tables too."""
    for weight in module.parameters():
        nn.init.normal_(weight, std=0.5)
    return module.eval()


def attention(**sizes):
    return shaken(mha.FeedbackAttention(WIDTH, HEADS, steps=STEPS, **sizes))


def stack(layers=2, *, share=False, **how):
    one = [FeedbackLayer(WIDTH, lambda: mha.FeedbackAttention(WIDTH, HEADS, steps=STEPS), **how) for _ in range(layers)]
    return shaken(FeedbackStack(one, share=share))


def words(n=N):
    return torch.randn(B, n, WIDTH)


def read_by_hand(layer, x, memory):
    """The equation, one query, one head, one memory at a time: ((q + u)·k + q·U + S) / √d, then softmax."""
    d, t, out = layer.d_head, memory.shape[1], layer.W_o.bias.expand(len(x), -1)
    for h in range(layer.heads):
        part = slice(h * d, (h + 1) * d)
        q = x @ layer.W_q.weight[part].T
        columns = []
        for j in range(t):
            k, back = memory[:, j] @ layer.W_k.weight[part].T, t - 1 - j
            score = ((q + layer.query_bias[h]) * k).sum(-1) + q @ layer.key_table[h, back]
            columns.append((score + layer.score_table[h, back]) / math.sqrt(d))
        weights = torch.stack(columns, -1).softmax(-1)
        v = memory @ layer.W_v.weight[part].T + layer.W_v.bias[part]
        out = out + torch.einsum("bj,bjd->bd", weights, v) @ layer.W_o.weight[:, part].T
    return out


def stack_by_hand(model, x):
    """The loop from its definition: nothing is kept but the list of memories."""
    memories, outputs, share = [], [], model.mixing.softmax(0)
    for t in range(x.shape[1]):
        states = [x[:, t]]
        for layer in model.layers:
            y = states[-1]
            if memories:
                y = y + read_by_hand(layer.attention, layer.around_attention.norm(y), torch.stack(memories, 1))
            states.append(y + layer.feed_forward(layer.around_feed_forward.norm(y)[:, None])[:, 0])
        memories.append(sum(w * state for w, state in zip(share, states, strict=True)))
        outputs.append(states[-1])
    return torch.stack(outputs, 1)


# ---- the layer


def test_the_layer_is_its_formula_on_random_weights():
    layer, x, memory = attention(), words(3), words(5)
    found = layer(x, memory)
    for i in range(3):  # every query stands right behind the memory
        assert error(found[:, i], read_by_hand(layer, x[:, i], memory)) < 1e-10
    mask = mha.padding_mask([5, 3], 5).flip(-1)  # the oldest two are hidden: distances stay
    assert error(layer(x, memory, mask=mask)[1, 0], read_by_hand(layer, x[1:, 0], memory[1:, 2:])[0]) < 1e-10


def test_with_zero_tables_it_is_one_query_over_a_plain_memory():
    plain = mha.MultiHeadAttention(WIDTH, HEADS, kdim=4, vdim=5, bias="qvo").eval()
    layer, x = mha.FeedbackAttention.from_plain(plain, steps=STEPS), words(1)
    key, value = torch.randn(B, 7, 4), torch.randn(B, 7, 5)
    assert error(layer(x, key, value), plain(x, key, value)) < LIMIT
    own = mha.MultiHeadAttention(WIDTH, HEADS).eval()
    x = words()
    causal = own(x, is_causal=True)
    behind = mha.FeedbackAttention.from_plain(own)
    seen = behind(x[:, -1:], x)  # over a plain memory that does hold the present word
    assert error(seen, causal[:, -1:]) < LIMIT
    assert error(behind(x[:, -1:], x[:, :-1]), causal[:, -1:]) > 1e-3  # it never sees itself


def test_only_the_distance_from_the_newest_memory_matters():
    layer, x, memory = attention(), words(1), words(5)
    with mha.watch(layer) as seen:
        layer(x, memory)
    longer = torch.cat([torch.randn(B, 2, WIDTH), memory], 1)
    with mha.watch(layer) as seen_longer:
        layer(x, longer)
    assert error(seen_longer.scores[..., 2:], seen.scores) < LIMIT


def test_a_memory_grows_step_by_step_and_keeps_its_gradients():
    layer, x, memory = attention(), words(1), words(5).requires_grad_()
    cache = layer.new_cache()
    for newest in memory.split(1, 1):
        y = layer(x, newest, cache=cache)
    assert cache.length == 5
    assert error(y, layer(x, memory)) < LIMIT
    (found,) = torch.autograd.grad(y.sum(), memory)
    (right,) = torch.autograd.grad(layer(x, memory).sum(), memory)
    assert error(found, right) < LIMIT
    assert found.abs().amin((0, 2)).min() > 0


def test_a_smaller_layer_keeps_the_tables_of_its_heads():
    layer = attention()
    smaller = layer.take_heads(iter([2, 0]))
    assert torch.equal(smaller.key_table, layer.key_table[[0, 2]])
    assert torch.equal(smaller.score_table, layer.score_table[[0, 2]])
    assert torch.equal(smaller.query_bias, layer.query_bias[[0, 2]])


def test_operations_weights_and_memory_are_counted():
    layer, x, memory = attention(), words(1), words(5)
    with mha.watch(layer):
        assert layer.cost(B, 1, 5).flops == counted(lambda: layer(x, memory))
    with torch.no_grad():
        cache = layer.new_cache()
        for newest in memory[:, :4].split(1, 1):
            layer(x, newest, cache=cache)
        with mha.watch(layer):
            found = counted(lambda: layer(x, memory[:, 4:], cache=cache))
    cost = layer.cost(B, 1, 5, fresh=1)
    assert cost.flops == found
    assert cost.cache == sum(t.nbytes for t in cache._found)
    assert cost.parameters == sum(p.numel() for p in layer.parameters())
    wide = mha.FeedbackAttention(64, 4, steps=64)
    x, memory = torch.randn(2, 1, 64), torch.randn(2, 64, 64)
    assert wide.cost(2, 1, 64).peak == pytest.approx(peak(wide, x, memory), rel=0.25)


# ---- the loop


@pytest.mark.parametrize("share", [False, True])
def test_the_stack_is_its_formula_on_random_weights(share):
    model, x = stack(share=share), words()
    assert error(model(x), stack_by_hand(model, x)) < 1e-10


@pytest.mark.parametrize("share", [False, True])
def test_gradients_run_through_all_steps_and_reach_every_weight(share):
    model, x = stack(share=share), words(5).requires_grad_()
    (model(x) * torch.linspace(-1, 2, x.numel()).view_as(x)).sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad.abs().max() > 1e-6, name
    (far,) = torch.autograd.grad(model(x)[:, -1].sum(), x)
    assert far.abs().amax((0, 2)).min() > 1e-6
    names = list(dict(model.named_parameters()))

    def loss(x, *weights):
        return torch.func.functional_call(model, dict(zip(names, weights, strict=True)), (x,))

    inputs = (x[:1, :3].detach().requires_grad_(), *(p.detach().requires_grad_() for p in model.parameters()))
    assert torch.autograd.gradcheck(loss, inputs, fast_mode=True)


def test_the_stack_sees_all_of_the_past_and_nothing_of_the_future():
    model = stack()
    found = leaks(model, torch.randn(B, 5, WIDTH), cache=model.new_cache)
    assert not found, found
    assert not any(found.blind.values())
    assert set(found.sees) == {"train", "eval", "cached"}


@pytest.mark.parametrize("chunks", [(1,) * N, (2, 3, 1), (N,)])
def test_words_fed_in_chunks_give_what_all_at_once_give(chunks):
    model, x = stack(), words()
    cache = model.new_cache()
    steps = torch.cat([model(part, cache=cache) for part in x.split(chunks, 1)], 1)
    assert error(steps, model(x)) < LIMIT
    assert cache.length == N
    assert [memory.length for memory in cache] == [N - 1, N - 1]  # the newest one is read at the next step


def test_at_the_first_step_nothing_is_read():
    model, x = stack(1), words(1)
    layer = model.layers[0]
    assert error(model(x), x + layer.feed_forward(layer.around_feed_forward.norm(x))) < LIMIT
    with mha.watch(model) as seen:
        model(x)
    assert not seen


def test_the_norm_can_come_last():
    model, x = stack(1, norm_first=False), words(1)
    layer = model.layers[0]
    y = layer.around_attention.norm(x)
    assert error(model(x), layer.around_feed_forward.norm(y + layer.feed_forward(y))) < LIMIT


def test_a_memory_is_a_weighted_sum_of_all_layers():
    model, x = stack(), words(1)
    cache = model.new_cache()
    top = model(x, cache=cache)
    with torch.no_grad():
        model.mixing.copy_(torch.tensor([0.0, 0.0, 60.0]))
    cache = model.new_cache()
    model(x, cache=cache)
    assert error(cache.newest, top) < 1e-12
    assert isinstance(cache, FeedbackCache)


def test_layers_that_share_project_each_memory_once():
    apart, shared, x = stack(3), stack(3, share=True), words()
    count = [sum(p.numel() for p in model.parameters()) for model in (apart, shared)]
    assert count[0] - count[1] == 2 * (2 * WIDTH**2 + WIDTH)  # W_k, and W_v with its bias, of two layers
    cache = shared.new_cache()
    shared(x, cache=cache)
    assert cache[0] is cache[2]
    calls = []
    shared.layers[0].attention.W_k.register_forward_hook(lambda *_: calls.append(1))
    shared(x)
    assert len(calls) == N - 1


@pytest.mark.slow
def test_a_language_model_with_feedback_learns_and_writes():
    torch.manual_seed(0)
    model = LanguageModel(5, 8, 2, positions=None)
    model.decoder = FeedbackStack(FeedbackLayer(8, lambda: mha.FeedbackAttention(8, 2, steps=16)) for _ in range(2))
    text = torch.tensor([[0, 1, 2, 3, 4] * 3])

    def loss(model, _step):
        return nn.functional.cross_entropy(model(text[:, :-1]).mT, text[:, 1:])

    assert train(model, loss, 40, lr=1e-2)[-1] < 0.1
    written = [model.generate(text[:, :3], 6, cached=cached) for cached in (True, False)]
    assert torch.equal(*written)
    assert written[0].tolist() == [[0, 1, 2, 3, 4, 0, 1, 2, 3]]


# ---- bad input


def test_calls_that_a_feedback_layer_cannot_serve_are_refused(reader):
    layer, x, memory = attention(), words(1), words(5)
    with pytest.raises(ValueError, match=r"never attends to the present token.*layer\(x, memory\)"):
        layer(x)
    with pytest.raises(ValueError, match=r"is_causal with a separate key.*no future to hide"):
        layer(x, memory, is_causal=True)
    for cache in (mha.KeyValueCache(), MemoryCache(), MergedCache()):
        with pytest.raises(ValueError, match=rf"{type(cache).__name__} does not keep .*layer\.new_cache\(\)"):
            layer(x, memory, cache=cache)
    with pytest.raises(ValueError, match=r"memory holds 9 steps, but the tables know 8: make the layer with steps=9"):
        layer(x, words(9))
    with pytest.raises(ValueError, match=r"steps = 0: the memory holds at least 1"):
        mha.FeedbackAttention(4, 2, steps=0)
    cache = FeedbackMemory()
    layer(x, memory, cache=cache)
    with pytest.raises(ValueError, match=r"a column for each of the 6 steps"):
        layer(x, memory[:, :1], mask=torch.ones(1, 5, dtype=torch.bool), cache=cache)
    assert cache.length == 5


def test_a_stack_refuses_masks_the_future_and_no_layers(reader):
    model, x = stack(), words()
    for how in ({"mask": mha.causal_mask(N)}, {"is_causal": False}):
        with pytest.raises(ValueError, match=r"steps from left to right.*padding of shorter sequences at the end"):
            model(x, **how)
    with pytest.raises(ValueError, match=r"layers = .*at least 1"):
        FeedbackStack([])
    with pytest.raises(ValueError, match="memory holds 9 steps, but the tables know 8"):
        model(words(10))
