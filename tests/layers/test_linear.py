"""Layers whose memory does not grow: against plain loops and transformers, in all forms, behind caches; refusals."""

import importlib.util
import math

import pytest
import test_cost
import test_every_layer
import test_hooks
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import LIMIT, error
from registry import BATCH, LAYERS, QUERIES, every
from test_cache import chunkings, feed
from torch import nn

import mha
from mha.analysis import leaks
from mha.functional import delta_rule, delta_weights, linear_attention, positive_features
from mha.functional.linear import decay_between, share_by_sum
from mha.layers import MemoryCache, StateCache
from mha.models import LanguageModel

FORMS = [("recurrent", 1), ("parallel", 1), ("chunked", 1), ("chunked", 7), ("chunked", 16), ("chunked", 64)]
every_form = pytest.mark.parametrize(("form", "chunk"), FORMS)
every_flat = pytest.mark.parametrize(
    "entry", [e for e in LAYERS if e.constant_memory and e.name != "linear over another width"], ids=lambda e: e.name
)


AROUND = ("overwriting, as released", "overwriting, channels decay")  # with a convolution over four tokens


def value_width(layer):
    """How many channels of a head are written into the state."""
    return layer.d_value if isinstance(layer, mha.DeltaAttention) else layer.d_head + 1


# ---- plain loops


def looped_delta(q, k, v, beta=None, alpha=None, erase=True, state=None):
    """The delta rule in loops over lists of numbers; of one head, and nothing is multiplied as a matrix."""
    d, c = len(k[0]), len(v[0])
    memory = [[0.0] * c for _ in range(d)] if state is None else [list(row) for row in state]
    reads = []
    for n in range(len(q)):
        a, b = 1.0 if alpha is None else alpha[n], 1.0 if beta is None else beta[n]
        rates = a if isinstance(a, list) else [a] * d
        memory = [[rate * x for x in row] for rate, row in zip(rates, memory, strict=True)]
        for y in range(c):
            known = sum(k[n][x] * memory[x][y] for x in range(d)) if erase else 0.0
            for x in range(d):
                memory[x][y] = memory[x][y] + b * k[n][x] * (v[n][y] - known)
        reads.append([sum(q[n][x] * memory[x][y] for x in range(d)) for y in range(c)])
    return reads, memory


def looped_linear(q, k, v, shown):
    """Linear attention from its formula: a weighted mean for each query; ``shown[i]`` lists the words it may read."""

    def features(row):
        return [x + 1 if x > 0 else math.exp(x) for x in row]

    reads = []
    for i, query in enumerate(q):
        shares = {j: sum(a * b for a, b in zip(features(query), features(k[j]), strict=True)) for j in shown[i]}
        total = sum(shares.values())
        reads.append([sum(share * v[j][y] / total for j, share in shares.items()) for y in range(len(v[0]))])
    return reads


def drawn(n=6, b=2, h=2, d=3, c=4, seed=0):
    random = torch.Generator().manual_seed(seed)
    q, k = (F.normalize(torch.randn(b, h, n, d, generator=random), dim=-1) for _ in range(2))
    v = torch.randn(b, h, n, c, generator=random)
    beta, alpha = (torch.rand(b, h, n, generator=random) for _ in range(2))
    return q, k, v, beta, alpha, torch.randn(b, h, d, c, generator=random)


def by_head(function, *tensors, **how):
    """Call a function of lists for each text and head."""
    b, h = tensors[0].shape[:2]
    found = [[function(*(t[x, y].tolist() for t in tensors), **how) for y in range(h)] for x in range(b)]
    return tuple(torch.tensor([[one[place] for one in row] for row in found]) for place in (0, 1))


@every_form
@pytest.mark.parametrize("erase", [True, False])
def test_the_delta_rule_is_that_of_the_loop(form, chunk, erase):
    q, k, v, beta, alpha, state = drawn()
    for given_beta, given_alpha in ((None, None), (beta, None), (None, alpha), (beta, alpha)):
        rates = {name: x for name, x in (("beta", given_beta), ("alpha", given_alpha)) if x is not None}
        names = list(rates)

        def loop(q, k, v, state, *rest, names=names):
            return looped_delta(q, k, v, **dict(zip(names, rest, strict=True)), erase=erase, state=state)

        right = by_head(loop, q, k, v, state, *rates.values())
        logs = None if given_alpha is None else given_alpha.log()
        found = delta_rule(q, k, v, given_beta, logs, erase=erase, state=state, form=form, chunk=chunk)
        assert error(found, right) < 1e-10
        assert (
            error(
                delta_weights(q, k, given_beta, logs, erase=erase) @ v,
                delta_rule(q, k, v, given_beta, logs, erase=erase)[0],
            )
            < LIMIT
        )


@every_form
def test_linear_attention_is_that_of_the_loop(form, chunk):
    q, k, v, *_ = drawn(n=7)
    q, k = 3 * q, 3 * k
    causal = by_head(lambda q, k, v: (looped_linear(q, k, v, [range(i + 1) for i in range(7)]), [0.0]), q, k, v)[0]
    whole = by_head(lambda q, k, v: (looped_linear(q, k, v, [range(7)] * 7), [0.0]), q, k, v)[0]
    assert error(linear_attention(q, k, v, is_causal=True, form=form, chunk=chunk)[0], causal) < 1e-10
    assert error(linear_attention(q, k, v, form=form, chunk=chunk)[0], whole) < 1e-10


@every_form
def test_slopes_are_those_of_the_loop(form, chunk):
    """Against differences of the loop, four values for each slope: exact to 1e-10 for these smooth functions."""
    q, k, v, beta, alpha, state = (x[:1, :1] for x in drawn(n=5, b=1, h=1))
    weight = torch.linspace(-1, 2, 5 * 4).view(5, 4)

    def loss(q, k, v, beta, alpha, state):
        reads, memory = looped_delta(
            q.tolist(), k.tolist(), v.tolist(), beta.tolist(), alpha.tolist(), True, state.tolist()
        )
        return (torch.tensor(reads) * weight).sum() + torch.tensor(memory).sum()

    inputs = [x.clone().requires_grad_() for x in (q, 0.9 * k, v, beta, alpha, state)]
    read, last = delta_rule(*inputs[:4], inputs[4].log(), state=inputs[5], form=form, chunk=chunk)
    found = torch.autograd.grad((read * weight).sum() + last.sum(), inputs)
    for place, x in enumerate(inputs):
        way = torch.randn(x.shape, generator=torch.Generator().manual_seed(place))

        def at(step, place=place, way=way):
            moved = [y.detach()[0, 0] + (step * way[0, 0] if n == place else 0) for n, y in enumerate(inputs)]
            return loss(*moved).item()

        slope = (8 * (at(1e-3) - at(-1e-3)) - (at(2e-3) - at(-2e-3))) / 12e-3
        assert (found[place] * way).sum().item() == pytest.approx(slope, rel=1e-9, abs=1e-10)


@settings(max_examples=15)
@given(st.integers(1, 40), st.integers(1, 20), st.booleans(), st.booleans())
def test_all_forms_are_one_in_value_and_gradient(n, chunk, erase, decays):
    q, k, v, beta, alpha, state = drawn(n=n, seed=n)
    inputs = [x.requires_grad_() for x in (q, k, v, beta, state)]
    weight = torch.randn(v.shape)

    def everything(form):
        read, last = delta_rule(
            *inputs[:4], alpha.log() if decays else None, erase=erase, state=state, form=form, chunk=chunk
        )
        return read, last, *torch.autograd.grad((read * weight).sum() + last.square().sum(), inputs)

    right = everything("recurrent")
    for form in ("chunked", "parallel"):
        assert error(everything(form), right) < 1e-10


def test_decay_one_and_no_erasing_is_linear_attention_without_its_denominator():
    q, k, v, *_ = drawn()
    right = (q @ k.mT).tril() @ v
    assert error(delta_rule(q, k, v, erase=False)[0], right) < LIMIT
    ones = torch.ones(q.shape[:3])
    assert error(delta_rule(q, k, v, ones, 0 * ones, erase=False)[0], right) < LIMIT
    fq, fk = positive_features(q), positive_features(k)
    summed = delta_rule(fq, fk, torch.ones_like(v), erase=False)[0]
    assert error(delta_rule(fq, fk, v, erase=False)[0] / summed, linear_attention(q, k, v, is_causal=True)[0]) < LIMIT


def test_a_layer_that_neither_decays_nor_erases_is_linear_attention_with_keys_of_length_one():
    layer, x = mha.DeltaAttention(6, 3, decay=False, erase=False), torch.randn(2, 9, 6)
    with torch.no_grad():
        layer.write.weight.zero_()
        layer.write.bias.fill_(40)  # β is 1
    q, k, v = layer.project(x, is_causal=True)
    right = layer.merge((F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT).tril() @ v)
    assert error(layer(x, is_causal=True), right) < LIMIT


# ---- transformers


@pytest.fixture(scope="module")
def theirs():
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    from transformers.models.qwen3_next import modeling_qwen3_next

    return modeling_qwen3_next


@pytest.mark.parametrize("name", ["torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule"])
@pytest.mark.parametrize("n", [1, 5, 64, 130])
def test_the_gated_delta_rule_is_that_of_transformers(theirs, name, n):
    """Theirs casts to float32; it wants (batch, words, heads, width), and divides queries by √d."""
    q, k, v, beta, alpha, state = drawn(n=n, d=8, c=6)
    q, k, v, beta, log_decay = (x.transpose(1, 2).float() for x in (q, k, v, beta, alpha.log()))
    how = {"g": log_decay, "beta": beta, "initial_state": state.float(), "output_final_state": True}
    right = getattr(theirs, name)(q, k, v, **how)
    q, k, v, beta, log_decay = (x.transpose(1, 2) for x in (q / 8**0.5, k, v, beta, log_decay))
    for form in ("recurrent", "chunked", "parallel"):
        read, last = delta_rule(q, k, v, beta, log_decay, state=state.float(), form=form)
        assert error((read.transpose(1, 2), last), right) < 3e-6
        assert (read.transpose(1, 2) - right[0]).abs().max() < 1e-6


# ---- what must not overflow, underflow or explode


@every_form
@pytest.mark.parametrize("strength", [1.0, 30.0, 1000.0, math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_strong_decay_gives_finite_numbers_and_slopes(form, chunk, strength, dtype):
    """exp of a positive difference of summed logarithms overflows, and 0 · inf is NaN, in value or in gradient."""
    q, k, v, beta, alpha, _ = (x.to(dtype) for x in drawn(n=130))
    logs = torch.where(alpha < 0.5, -strength, -0.01).to(dtype).requires_grad_()
    q.requires_grad_()
    read, last = delta_rule(q, k, v, beta, logs, form=form, chunk=chunk)
    right = delta_rule(q, k, v, beta, logs, form="recurrent")
    assert error((read, last), right) < (1e-5 if dtype == torch.float32 else LIMIT)
    for slope in torch.autograd.grad(read.square().sum() + last.sum(), [q, logs]):
        assert slope.isfinite().all()


def test_decay_is_added_up_and_never_subtracted():
    """After a drop of e⁻⁶⁰⁰⁰⁰ a difference of two sums has lost all digits of float32: a slow decay stays exact."""
    logs = torch.full((64,), -0.01, dtype=torch.float32)
    logs[3] = -60_000
    found = decay_between(logs)
    assert found[40, 10].item() == pytest.approx(math.exp(-0.3), rel=1e-5)
    assert found[40, 2] == 0
    assert (found.triu(1) == 0).all()
    sums = logs.cumsum(0)
    assert abs((sums[40] - sums[10]).exp().item() - math.exp(-0.3)) > 1e-3


def test_keys_longer_than_one_are_refused_where_they_could_explode(reader):
    q, k, v, *_ = drawn(n=200)
    with pytest.raises(ValueError, match=r"keys up to 1\.73 long.*F\.normalize"):
        delta_rule(q, 3**0.5 * k, v)
    _, memory = looped_delta(
        *((3**0.5 * x if n == 1 else x)[0, 0].tolist() for n, x in enumerate((q, 0 * k + k[:, :, :1], v)))
    )
    assert max(abs(x) for row in memory for x in row) > 1e50
    assert delta_rule(q, 3 * k, v, erase=False)[0].isfinite().all()


def test_the_features_are_those_of_elu_and_keep_small_numbers():
    x = torch.linspace(-9, 9, 19)
    assert error(positive_features(x), F.elu(x) + 1) < LIMIT
    assert positive_features(torch.tensor(-80.0)) == pytest.approx(math.exp(-80))
    assert F.elu(torch.tensor(-80.0)) + 1 == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_sums_in_float32(dtype):
    n = 5000
    ones = torch.ones(1, 1, n, 1, dtype=dtype)
    read, state = delta_rule(ones, ones, ones, erase=False)
    assert state.dtype == torch.float32
    assert state.item() == n
    assert read.dtype == dtype
    assert linear_attention(ones, ones, ones, is_causal=True)[0].eq(1).all()


# ---- the layers: what the general tests ask, told that the layer is causal


class Told(mha.DeltaAttention):
    """The layer, told that it is causal unless the test says so itself; with a cache it is told nothing new."""

    def forward(self, query, key=None, value=None, mask=None, *, is_causal=True, cache=None):
        return super().forward(query, key, value, mask, is_causal=is_causal, cache=cache)


TOLD = [e for e in LAYERS if e.needs_is_causal]
GENERAL = [
    test_every_layer.test_one_row_comes_out_for_each_query,
    test_every_layer.test_training_differs_from_evaluation_only_by_dropout,
    test_every_layer.test_inputs_are_left_as_they_were,
    test_every_layer.test_weights_can_be_moved_to_another_layer_of_the_same_kind,
    test_every_layer.test_batch_entries_do_not_meet,
    test_every_layer.test_with_positions_the_order_of_the_words_matters,
    test_every_layer.test_padding_changes_nothing,
    test_every_layer.test_gradients_reach_every_weight,
    test_every_layer.test_a_layer_made_without_memory_can_be_filled_as_a_new_one,
    test_every_layer.test_weights_of_another_type_are_loaded_into_the_layers_own,
    test_cost.test_weights_are_those_that_exist,
]


@pytest.mark.parametrize("entry", TOLD, ids=lambda e: e.name)
@pytest.mark.parametrize("holds", GENERAL, ids=lambda test: test.__name__)
def test_what_holds_for_every_layer_holds_for_one_that_is_told(holds, entry):
    if holds is test_every_layer.test_inputs_are_left_as_they_were:
        layer, x, mask = entry.build(), entry.words(), mha.padding_mask([QUERIES, 2, 3])
        before = x.clone(), mask.clone()
        layer(x, mask=mask, is_causal=True)
        assert torch.equal(x, before[0])
        assert torch.equal(mask, before[1])
        return
    holds(alone(entry))


def alone(entry):
    """The entry as a layer that is called ``layer(x)``."""

    def build():
        layer = entry.build()
        layer.__class__ = Told
        return layer

    return type(entry)(**{**vars(entry), "build": build, "alone": True, "ordered": True})


@pytest.mark.parametrize("entry", TOLD, ids=lambda e: e.name)
@pytest.mark.parametrize("watched", [False, True])
def test_under_autocast_the_delta_rule_reads_nearly_the_same_and_learns(entry, watched):
    test_every_layer.test_under_autocast_a_layer_reads_nearly_the_same_and_learns(alone(entry), watched)


@pytest.mark.parametrize("entry", TOLD, ids=lambda e: e.name)
def test_bad_input_to_the_delta_rule_is_named(reader, entry):
    test_every_layer.test_inputs_of_the_wrong_form_are_refused(reader, alone(entry))
    test_every_layer.test_masks_that_do_not_fit_are_refused(reader, alone(entry))
    layer, x = entry.build(), entry.words()
    with pytest.raises(ValueError, match=r"is_causal = False with 5 tokens.*Say is_causal=True"):
        layer(x)
    with pytest.raises(ValueError, match=r"key = .*another sequence.*LinearAttention or MultiHeadAttention"):
        layer(x, x + 1)
    with pytest.raises(ValueError, match=r"\(5, 5\) hides different tokens.*padding_mask.*is_causal=True"):
        layer(x, mask=mha.causal_mask(QUERIES), is_causal=True)
    with pytest.raises(ValueError, match="is another sequence"):
        layer(x, x + 1, cache=MemoryCache())
    with pytest.raises(TypeError, match=r"cache = .*keeps one state for all tokens, give layer\.new_cache"):
        layer(x, is_causal=True, cache=mha.KeyValueCache())
    assert layer(x[:, :1]).shape == (BATCH, 1, 6)  # one word has no future


@every_flat
def test_no_word_sees_the_future_in_any_mode(entry):
    layer = entry.build()
    found = leaks(layer, entry.words(6), is_causal=True, cache=layer.new_cache)
    assert not found, found
    assert set(found.sees) == {"train", "eval", "cached"}
    assert not any(found.blind.values())


@every_flat
@pytest.mark.parametrize("dtype", [*test_every_layer.HALVES, torch.float64], ids=str)
@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("watched", [False, True])
def test_a_text_without_words_reads_zeros(entry, dtype, mode, watched):
    layer = entry.build().to(dtype).train(mode == "train")
    x = entry.words(dtype=dtype).requires_grad_()
    with mha.watch(layer, *([] if watched else ["heads"])) as seen:
        y = layer(x, mask=mha.padding_mask([QUERIES, 2, 0]), is_causal=True)
    assert seen.heads[2].abs().max() == 0
    nothing = torch.zeros(()) if layer.W_o.bias is None else layer.W_o.bias
    assert torch.equal(y[2], nothing.to(dtype).expand_as(y[2]))
    y.float().square().sum().backward()
    assert x.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in layer.parameters())


@every_flat
@pytest.mark.parametrize("how", [{}, {"mask": mha.padding_mask([QUERIES, 0, 2])}], ids=["all", "padded"])
def test_watched_is_unwatched_and_the_weights_make_the_read(entry, how):
    layer, x = entry.build().eval(), entry.words()
    right = test_hooks.value_and_gradients(layer, x, is_causal=True, **how)
    with mha.watch(layer) as seen:
        assert error(test_hooks.value_and_gradients(layer, x, is_causal=True, **how), right) < LIMIT
    v = layer.project(x, is_causal=True, **how)[2]
    heads = seen.weights @ v
    heads = layer._finished(heads, x) if isinstance(layer, mha.DeltaAttention) else heads
    assert error(heads, seen.heads) < LIMIT
    assert (seen.weights.triu(1) == 0).all()
    assert seen.scores.isfinite().all()


def test_weights_of_linear_attention_are_shares_and_those_of_the_delta_rule_are_not():
    x = torch.randn(2, 30, 6)
    linear, delta = mha.LinearAttention(6, 2), mha.DeltaAttention(6, 2)
    with mha.watch(linear) as shares, mha.watch(delta) as seen:
        linear(x, is_causal=True)
        delta(x, is_causal=True)
    assert error(shares.weights.sum(-1), torch.ones(2, 2, 30)) < LIMIT
    assert shares.weights.min() >= 0
    assert seen.weights.min() < -0.01
    assert (seen.weights.sum(-1) - 1).abs().max() > 0.1


@pytest.mark.parametrize("erase", [True, False])
@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize("hidden", [[2], [0, 3], [1, 2, 4], [5]], ids=str)
def test_hidden_tokens_are_as_if_they_were_not_there(hidden, watched, erase):
    """Wherever they are: they neither write nor decay."""
    layer, x = mha.DeltaAttention(6, 2, erase=erase), torch.randn(2, 6, 6)
    with torch.no_grad():
        layer.decay.bias.fill_(-4)  # half of the state is left after each token
    tokens = torch.ones(1, 1, 1, 6, dtype=torch.bool)
    tokens[..., hidden] = False
    with mha.watch(layer, *([] if watched else ["heads"])):
        found = layer(x, mask=tokens, is_causal=True)[:, tokens[0, 0, 0]]
    assert error(found, layer(x[:, tokens[0, 0, 0]], is_causal=True)) < LIMIT


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16], ids=str)
def test_at_first_a_token_leaves_nearly_all_of_the_state_and_overwrites_half(kind):
    layer = mha.DeltaAttention(64, 4)
    with torch.no_grad():
        for linear in (layer.write, layer.decay):
            nn.init.zeros_(linear.bias)
        beta, log_decay = layer.to(kind).rates(torch.zeros(2, 5, 64, dtype=kind))
        drawn = layer.rates(torch.randn(2, 500, 64, dtype=kind))[1].exp()
    assert error(beta, torch.full((2, 4, 5), 0.5, dtype=beta.dtype)) == 0
    assert error(log_decay.exp(), torch.full((2, 4, 5), 1 / (1 + math.exp(-4)), dtype=beta.dtype)) < 1e-6
    assert 0.95 < drawn.mean() < 0.99


def test_edits_reach_the_read_of_both():
    x = torch.randn(2, 5, 6)
    for layer in (mha.LinearAttention(6, 2), mha.DeltaAttention(6, 2)):
        for place in ("scores", "weights", "heads"):
            with mha.edit(layer, **{place: torch.zeros_like}):
                found = layer(x, is_causal=True)
            assert error(found, layer.W_o.bias.expand_as(found)) < LIMIT, place


# ---- caches


@every_flat
@settings(max_examples=12)
@given(chunks=chunkings(9))
@torch.no_grad()
def test_cached_is_uncached_for_every_way_to_cut_the_sequence(entry, chunks):
    layer, x = entry.build().eval(), entry.words(sum(chunks))
    assert error(feed(layer, x, chunks, is_causal=True), layer(x, is_causal=True)) < LIMIT


@every_flat
@torch.no_grad()
def test_a_long_prefill_in_chunks_and_then_words_is_all_at_once(entry):
    layer, x = entry.build().eval(), torch.randn(2, 150, 6)
    assert error(feed(layer, x, [100, 1, 1, 47, 1], is_causal=True), layer(x, is_causal=True)) < LIMIT


@every_flat
@settings(max_examples=12)
@given(chunks=chunkings(), seed=st.integers(0, 99))
@torch.no_grad()
def test_texts_with_padding_in_front_read_as_if_each_were_alone(entry, chunks, seed):
    n, layer = sum(chunks), entry.build().eval()
    padding = torch.randint(0, n, (BATCH,), generator=torch.Generator().manual_seed(seed))
    x = 10 * torch.randn(BATCH, n, 6)
    cache = layer.new_cache(n + 2, padding)
    parts = [layer(part, mask=cache.mask(part.shape[1]), is_causal=True, cache=cache) for part in x.split(chunks, 1)]
    y = torch.cat(parts, 1)
    for b, skipped in enumerate(padding.tolist()):
        assert error(y[b : b + 1, skipped:], layer(x[b : b + 1, skipped:], is_causal=True)) < LIMIT
        nothing = torch.zeros(6) if layer.W_o.bias is None else layer.W_o.bias
        assert torch.equal(y[b, :skipped], nothing.expand(skipped, 6))


@every_flat
@pytest.mark.parametrize("dtype", test_every_layer.HALVES, ids=str)
@torch.no_grad()
def test_a_cache_continues_in_half_precision_and_under_autocast(entry, dtype):
    layer, x = entry.build().to(dtype).eval(), entry.words(dtype=dtype)
    assert (feed(layer, x, [2, 1, 2], is_causal=True) - layer(x, is_causal=True)).abs().max() <= 30 * torch.finfo(
        dtype
    ).eps
    layer, x = layer.float(), x.float()
    with torch.autocast(x.device.type, torch.bfloat16):
        assert (feed(layer, x, [2, 1, 2], is_causal=True) - layer(x, is_causal=True)).abs().max() < 0.05


@every_flat
@torch.no_grad()
def test_a_state_has_one_size_for_all_lengths_and_is_what_cost_says(entry):
    layer = entry.build().eval()
    cache, sizes = layer.new_cache(), set()
    assert cache.bytes == cache.length == 0
    for n in (1, 100, 1000):
        layer(torch.randn(2, n, 6), is_causal=True, cache=cache)
        sizes.add(cache.bytes)
    assert cache.length == 1101
    d, c = layer.d_head, value_width(layer)
    numbers = d * c + 3 * (2 * d + c) * (entry.name in AROUND)  # released layers also keep three tokens
    assert sizes == {2 * layer.heads * numbers * 8}
    assert {layer.cost(2, 1, n, fresh=1).cache for n in (1, 1000, 1_000_000)} == sizes
    assert layer.float().cost(2, 1).cache == layer.half().cost(2, 1).cache == sizes.pop() // 2  # float32 at least


@every_flat
@torch.no_grad()
def test_operations_do_not_grow_with_the_text_and_are_those_of_the_counter(entry):
    layer = entry.build().eval()
    cache = layer.new_cache()
    for n in (70, 2, 1, 64, 130):
        found = test_cost.counted(lambda: layer(torch.randn(BATCH, n, 6), is_causal=True, cache=cache))  # noqa: B023
        cost = layer.cost(BATCH, n, cache.length, fresh=n)
        assert cost.flops - cost.parts.get("solve", mha.layers.Part(0, 0)).flops == found
    one = [layer.cost(1, 1, n, fresh=1) for n in (2, 1000, 1_000_000)]
    assert one[0] == one[1] == one[2]
    if entry.name not in AROUND:  # there the gates are the fullest moment
        assert layer.cost(1, 1, 1, fresh=1).peak - one[0].peak == one[0].cache  # the first word makes the table
    product = layer.heads * layer.d_head * value_width(layer)
    assert (
        one[0].parts["write"].flops + one[0].parts["read"].flops
        == (4 if isinstance(layer, mha.LinearAttention) else 6) * product
    )
    text = [layer.cost(1, n, n, fresh=n).flops / n for n in (640, 6400)]
    assert text[0] == text[1]


def test_at_once_linear_attention_costs_what_the_counter_says():
    layer, x, memory = mha.LinearAttention(6, 3).eval(), torch.randn(2, 5, 6), torch.randn(2, 7, 6)
    assert layer.cost(2, 5, 7).flops == test_cost.counted(lambda: layer(x, memory))
    assert layer.cost(2, 5).flops == test_cost.counted(lambda: layer(x))
    assert layer.cost(2, 500).flops == 100 * layer.cost(2, 5).flops


@pytest.mark.parametrize("entry", TOLD, ids=lambda e: e.name)
def test_the_delta_rule_watched_costs_what_the_counter_says(entry):
    layer = entry.build().eval()
    with mha.watch(layer):
        found = test_cost.counted(lambda: layer(entry.words(9), is_causal=True))
    cost = layer.cost(BATCH, 9, stored=True)
    assert cost.flops - cost.parts["solve"].flops == found


@every_flat
@pytest.mark.parametrize("n", [64, 300, 1000])
def test_the_peak_is_nearly_that_of_the_tensors_alive(reader, entry, n):
    layer, x = entry.build().eval(), torch.randn(2, n, 6)
    found = test_cost.peak(layer, x, is_causal=True)
    assert layer.cost(2, n, n, fresh=n).peak == pytest.approx(found, rel=0.1)


@pytest.mark.parametrize("n", [1, 2, 40, 300])
@pytest.mark.parametrize(
    "layer",
    [
        mha.LinearAttention(64, 1),
        mha.DeltaAttention(64, 1),
        mha.DeltaAttention(64, 2, erase=False),
        mha.DeltaAttention(64, 1, decay=False),
        mha.DeltaAttention(64, 1, decay=False, erase=False),
        mha.DeltaAttention.as_released("OLMo Hybrid", 64, 2, d_value=64),
        mha.DeltaAttention.as_released("Kimi Linear", 64, 1),
    ],
    ids=lambda layer: type(layer).__name__,
)
@torch.no_grad()
def test_the_peak_of_wide_heads_is_nearly_that_of_the_tensors_alive(layer, n):
    x, cache = torch.randn(2, 2 * n, 64), layer.double().new_cache()
    for before, new in ((0, x[:, :n]), (n, x[:, n:].clone())):
        known = () if cache.state is None else (cache.state,)
        with test_cost.Peak(new, *known, *layer.parameters()) as found:
            layer(new, is_causal=True, cache=cache)
        assert layer.cost(2, n, before + n, fresh=n).peak == pytest.approx(found.most, rel=0.1), before


@pytest.mark.parametrize(("i", "j"), [(200, 30), (3, 200), (5, 5)])
def test_the_peak_of_a_memory_that_is_read_at_once_is_nearly_that_of_the_tensors_alive(i, j):
    layer, x, memory = mha.LinearAttention(64, 1).eval(), torch.randn(2, i, 64), torch.randn(2, j, 64)
    assert layer.cost(2, i, j).peak == pytest.approx(test_cost.peak(layer, x, memory), rel=0.1)


def test_the_explicit_delta_rule_moves_keys_and_one_system_of_all_words():
    b, h, n, d = 2, 3, 5, 2
    parts = mha.DeltaAttention(h * d, h).cost(b, n, stored=True).parts
    table, keys = (b, h, n, n), (b, h, n, d)
    assert parts["system"] == mha.layers.Part(2 * d * math.prod(table), test_cost.nbytes(keys, keys, table))
    assert parts["solve"] == mha.layers.Part(n * math.prod(table), test_cost.nbytes(table, table, table))


@every_flat
def test_a_watched_layer_computes_what_an_unwatched_one_does(entry):
    layer, x = entry.build().eval(), entry.words(9)
    plain = layer(x, is_causal=True)
    with mha.watch(layer):
        assert error(layer(x, is_causal=True), plain) < LIMIT
    adding = mha.DeltaAttention(6, 3, erase=False).eval()
    plain = adding(x, is_causal=True)
    with mha.watch(adding):
        assert error(adding(x, is_causal=True), plain) < LIMIT


@every_flat
def test_a_mask_of_one_axis_is_refused(entry):
    with pytest.raises(ValueError, match=r"mask"):
        entry.build()(entry.words(4), mask=torch.ones(4, dtype=torch.bool), is_causal=True)


def test_padding_shows_on_the_device_of_the_cache():
    cache = StateCache(padding=torch.tensor([1, 0]))
    cache._padding = cache._padding.to("meta")
    assert cache.mask(3).is_meta


def test_features_of_large_numbers_have_a_slope():
    x = torch.tensor([-2000.0, -1.0, 0.0, 2.0, 2000.0], requires_grad=True)
    found = positive_features(x)
    assert error(found, torch.tensor([0.0, math.exp(-1), 1.0, 3.0, 2001.0])) < LIMIT
    found.sum().backward()
    assert error(x.grad, torch.tensor([0.0, math.exp(-1), 1.0, 1.0, 1.0])) < LIMIT


@torch.no_grad()
def test_a_memory_is_projected_once_and_read_by_every_query():
    layer, x, memory = mha.LinearAttention(6, 2).eval(), torch.randn(2, 3, 6), torch.randn(2, 5, 6)
    calls, cache = [], MemoryCache()
    layer.W_k.register_forward_hook(lambda *_: calls.append(1))
    parts = [layer(part, memory, cache=cache) for part in x.split(1, 1)]
    assert len(calls) == 1
    assert error(torch.cat(parts, 1), layer(x, memory)) < LIMIT
    mask = mha.padding_mask([5, 2])
    assert error(layer(x, memory, mask=mask, cache=cache), layer(x, memory, mask=mask)) < LIMIT


@torch.no_grad()
def test_a_hybrid_stack_generates_behind_caches_of_two_kinds_what_it_says_at_once():
    kinds = iter([mha.DeltaAttention, mha.DeltaAttention, mha.LinearAttention, mha.MultiHeadAttention])
    model = LanguageModel(11, 8, lambda: next(kinds)(8, 2), layers=4, positions=None).eval()
    words = torch.randint(0, 11, (2, 5))
    assert torch.equal(model.generate(words, 6), model.generate(words, 6, cached=False))
    cache = model.decoder.new_cache(6, padding=[0, 3])
    logits = torch.cat([model(part, cache.mask(part.shape[1]), cache=cache) for part in words.split((2, 1, 2), 1)], 1)
    assert error(logits[1:, 3:], model(words[1:, 3:])) < LIMIT


# ---- calls that are refused leave the cache as it was


@every_flat
@torch.no_grad()
def test_refused_calls_leave_the_state_as_it_was(reader, entry):
    layer, other, x = entry.build().eval(), entry.build().eval(), entry.words(8)
    cache = layer.new_cache(8, padding=[1, 0, 2])
    layer(x[:, :5], mask=cache.mask(5), is_causal=True, cache=cache)
    state, new = cache.state.clone(), x[:, 5:]
    hiding = cache.mask(3).clone()
    hiding[1, ..., 4] = False
    bad = [
        (
            layer,
            new,
            {"mask": hiding},
            ValueError,
            "something other than the cache's padding.*one state for all",
        ),
        (layer, new, {"mask": cache.mask(2)}, ValueError, r"7 columns.*8 keys, 5 in the cache and 3 new"),
        (layer, new, {"mask": torch.ones(3, 8)}, TypeError, "may look"),
        (layer, new, {"mask": mha.causal_mask(3, 8)}, ValueError, "hides something other"),
        (other, new, {"mask": cache.mask(3)}, ValueError, "another layer filled this cache"),
        (layer, new[:1], {"mask": cache.mask(3)[:1]}, ValueError, r"3 sequences"),
    ]
    for one, words, how, kind, message in bad:
        with pytest.raises(kind, match=message):
            one(words, is_causal=True, cache=cache, **how)
    for place in ("scores", "weights"):
        with (
            mha.watch(layer, place),
            pytest.raises(ValueError, match=rf"the {place} of this layer are watched or edited.*one state"),
        ):
            layer(new, mask=cache.mask(3), is_causal=True, cache=cache)
    with torch.enable_grad(), pytest.raises(ValueError, match=r"stores no gradients.*torch\.no_grad"):
        layer(new, mask=cache.mask(3), is_causal=True, cache=cache)
    with pytest.raises(ValueError, match=r"another sequence"):
        layer(new, new + 1, cache=cache)
    with pytest.raises(ValueError, match=r"float32, which does not continue the cache's torch\.float64"):
        layer.float()(new.float(), mask=cache.mask(3), is_causal=True, cache=cache)
    layer.double()
    assert cache.length == 5
    assert torch.equal(cache.state, state)
    with mha.watch(layer, "heads") as seen:
        layer(new, mask=cache.mask(3), is_causal=True, cache=cache)
    assert seen.heads.shape == (BATCH, layer.heads, 3, getattr(layer, "d_value", layer.d_head))
    assert cache.length == 8


@torch.no_grad()
def test_what_a_state_cannot_do_is_refused_with_the_reason(reader):
    layer, x = mha.LinearAttention(6, 2, dropout=0.3), torch.randn(2, 3, 6)
    with pytest.raises(ValueError, match=r"dropout = 0\.3 drops weights in training.*layer\.eval\(\)"):
        layer(x, is_causal=True, cache=layer.new_cache())
    with pytest.raises(TypeError, match=r"keeps one state for all tokens"):
        layer(x, is_causal=True, cache=mha.KeyValueCache())
    cache = layer.eval().new_cache()
    layer(x, is_causal=True, cache=cache)
    with pytest.raises(ValueError, match=r"query has shape \(1, 1, 6\), but the cache holds 2 sequences"):
        layer(x[:1, :1], is_causal=True, cache=cache)
    with pytest.raises(ValueError, match="capacity = 0: it must be at least 1"):
        StateCache(0)


def test_gradients_of_the_rates_alone_are_refused(reader):
    layer, x = mha.DeltaAttention(6, 2).requires_grad_(False), torch.randn(2, 3, 6)
    layer.write.weight.requires_grad_()
    cache = layer.new_cache()
    with pytest.raises(ValueError, match="stores no gradients"):
        layer(x, is_causal=True, cache=cache)
    assert cache.length == 0
    assert cache.state is None


# ---- taking heads out


@every_flat
@torch.no_grad()
def test_some_heads_alone_are_the_layer_with_the_others_silent(entry):
    layer, x = entry.build().eval(), entry.words()
    smaller = layer.take_heads([1])
    keep = (torch.arange(layer.heads) == 1).to(x)[:, None, None]
    with mha.edit(layer, heads=lambda z: z * keep):
        right = layer(x, is_causal=True)
    assert error(smaller(x, is_causal=True), right) < LIMIT
    assert smaller.cost(1, 5).parameters == sum(p.numel() for p in smaller.parameters())
    assert smaller.new_cache().bytes == 0


# ---- functions and bad input


def test_rows_of_nothing_stay_zeros():
    scores = torch.tensor([[1.0, 3.0, -torch.inf], [-torch.inf] * 3, [0.0, 0.0, 0.0]])
    assert torch.equal(share_by_sum(scores), torch.tensor([[0.25, 0.75, 0], [0, 0, 0], [0, 0, 0]]))


BAD = [
    (lambda q, k, v: delta_rule(q, k[:, :1], v), ValueError, "one batch, as many heads"),
    (lambda q, k, v: delta_rule(q[..., :2], k, v), ValueError, "keys as wide as queries"),
    (lambda q, k, v: delta_rule(q[0], k, v), ValueError, r"q has shape .*must have 4 axes"),
    (lambda q, k, v: delta_rule(q, k, v.float()), TypeError, "different dtypes"),
    (lambda q, k, v: delta_rule(q[:, :, :0], k[:, :, :0], v[:, :, :0]), ValueError, "empty"),
    (
        lambda q, k, v: delta_rule(q, k, v, form="fast"),
        ValueError,
        r"form = 'fast'.*'recurrent', 'chunked', 'parallel'",
    ),
    (lambda q, k, v: delta_rule(q, k, v, form=["chunked"]), TypeError, r"form = \['chunked'\].*it is one of"),
    (lambda q, k, v: delta_rule(q, k, v, chunk=0), ValueError, "chunk = 0"),
    (lambda q, k, v: delta_rule(q, k, v, 2 * v[..., 0].abs() + 1), ValueError, r"beta .*outside \[0, 1\].*sigmoid"),
    *(
        (lambda q, k, v, x=x: delta_rule(q, k, v, rates(v, x)), ValueError, "beta .*holds NaN, or numbers outside")
        for x in (-1e-3, -1.0, 1.001, math.nan, math.inf, -math.inf)
    ),
    *(
        (lambda q, k, v, x=x: delta_weights(q, k, rates(v, x)), ValueError, "beta .*holds NaN, or numbers outside")
        for x in (-1e-3, math.nan)
    ),
    *(
        (lambda q, k, v, x=x: delta_rule(q, k, v, None, rates(v, x)), ValueError, "log_decay .*NaN, or numbers above 0")
        for x in (1e-3, math.nan, math.inf)
    ),
    (lambda q, k, v: decay_between(rates(v, math.nan)), ValueError, "log_decay .*no number above 0"),
    (lambda q, k, v: delta_rule(q[:, :, :2], k, v), ValueError, r"q has shape .*as many queries as keys"),
    (lambda q, k, v: delta_rule(q, k[:, :, :2], v[:, :, :2]), ValueError, r"q has shape .*as many queries as keys"),
    (lambda q, k, v: delta_weights(q[:, :, :2], k), ValueError, r"q has shape .*as many queries as keys"),
    (lambda q, k, v: in_float32(delta_rule, q, k, v, beta=rates(v, 1.0)), TypeError, "beta has dtype torch.float64"),
    (lambda q, k, v: in_float32(delta_rule, q, k, v, log_decay=rates(v, -1.0)), TypeError, "log_decay has dtype"),
    (lambda q, k, v: in_float32(delta_weights, q, k, scores=q @ k.mT), TypeError, "scores has dtype torch.float64"),
    (lambda q, k, v: delta_rule(q, k, v, v.abs()), ValueError, r"beta has shape \(2, 2, 6, 4\).*\(2, 2, 6\)"),
    (lambda q, k, v: delta_rule(q, k, v, None, v[..., 0].abs()), ValueError, "log_decay .*above 0.*logarithm"),
    (lambda q, k, v: delta_rule(q, k, v, state=q), ValueError, r"state has shape .*must be \(2, 2, 3, 4\)"),
    (lambda q, k, v: delta_rule(q, k, v, state=(q.mT @ v).float()), TypeError, "state has dtype torch.float32"),
    (lambda q, k, v: delta_weights(q, k, scores=q), ValueError, r"scores have shape .*\(2, 2, 6, 6\)"),
    (lambda q, k, v: linear_attention(q[:, :, :2], k, v, is_causal=True), ValueError, "as many queries as keys"),
    (lambda q, k, v: linear_attention(q, k, v, torch.ones(6, 6).bool()), ValueError, r"is_token has shape \(6, 6\)"),
    (lambda q, k, v: linear_attention(q, k, v, torch.ones(2, 1, 1, 6)), TypeError, "is_token|mask"),
    (lambda q, k, v: decay_between(v), ValueError, "no number above 0"),
]


def rates(v, one):
    """A rate of 0 for every token, and another one for a token in the middle."""
    found = torch.zeros(v.shape[:3])
    found[-1, -1, 2] = one
    return found


def in_float32(function, *tensors, **more):
    return function(*(x.float() for x in tensors), **more)


@pytest.mark.parametrize(("call", "kind", "message"), BAD, ids=[message[:25] for _, _, message in BAD])
def test_what_does_not_fit_is_named(reader, call, kind, message):
    q, k, v, *_ = drawn()
    with pytest.raises(kind, match=message):
        call(q, k, v)


def test_general_tests_leave_out_only_layers_that_are_told():
    assert {e.name for e in LAYERS} - {e.name for e in every().args[1]} == {e.name for e in TOLD}
