"""The ways of a GPU, tried without one: on the processor they give the same numbers, on the meta device nobody leaves.

``devices._as_on_a_card`` takes them on every device. Whether a GPU has the kernels only a GPU says:
``MHA_DEVICE=cuda`` for the other files here.
"""

import contextlib
import copy
import json
import pickle
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path

import pytest
import torch
from oracle import LIMIT, error
from registry import BATCH, LAYERS, QUERIES
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import mha
from mha.functional import core, delta_rule, devices, linear_attention
from mha.interop.rotary import GivenBias, turned_by
from mha.layers import MemoryCache, positions
from mha.models import EncoderDecoder, LanguageModel

MARGIN = {torch.float64: LIMIT, torch.float32: 1e-5}
every = pytest.mark.parametrize("entry", LAYERS, ids=lambda entry: entry.name)
MASK = torch.tensor([[[[True, True, False, True, True]]]])  # of keys: the third one is hidden


@pytest.fixture(autouse=True)
def on_a_processor(monkeypatch):
    """Both ways run on the processor, whatever device the other tests ask for."""
    before = torch.get_default_device()
    torch.set_default_device("cpu")
    monkeypatch.setattr(mha.RoutedAttention, "skip_from", 0)
    monkeypatch.setattr(mha.RoutedAttention, "skip_from_on_card", 10)
    yield
    torch.set_default_device(before)


def calls(entry, layer, dtype):
    """Inputs and keywords of several calls."""
    x = entry.words(dtype=dtype)
    if entry.needs_is_causal:
        return [((x,), {"is_causal": True}), ((x,), {"is_causal": True, "mask": MASK})]
    if not entry.alone:
        return [((x[:, :1] if "feedback" in entry.name else x, *entry.memory(layer)), {})]
    causal = [] if "merged" in entry.name else [((x,), {"is_causal": True}), ((x,), {"is_causal": True, "mask": MASK})]
    return [((x,), {}), ((x,), {"mask": MASK}), *causal]


def results(entry, layer, dtype):
    """Outputs and gradients of every call, and the outputs of cached steps."""
    found = []
    for inputs, how in calls(entry, layer, dtype):
        given = [x.detach().requires_grad_() for x in inputs]
        y = layer(*given, **how)
        weight = torch.linspace(-1, 2, y.numel()).to(y).view_as(y)
        grads = torch.autograd.grad((y * weight).sum(), [*given, *layer.parameters()], allow_unused=True)
        found += [y, *(g for g in grads if g is not None)]
    if entry.caches or entry.needs_is_causal or (isinstance(layer, mha.LinearAttention) and entry.alone):
        with torch.no_grad():
            inputs, cache = calls(entry, layer, dtype)[0][0], layer.new_cache(QUERIES)
            if entry.alone or entry.needs_is_causal:
                found += [layer(one, is_causal=True, cache=cache) for one in inputs[0].split((2, 1, 1, 1), 1)]
    return found


@every
@pytest.mark.parametrize("dtype", MARGIN, ids=str)
def test_a_layer_computes_the_same_in_both_ways(entry, dtype):
    layer = entry.build().eval().to(dtype)
    right = results(entry, layer, dtype)
    with devices._as_on_a_card():
        found = results(entry, layer, dtype)
    assert len(found) == len(right)
    size = max(float(other.detach().abs().max()) for other in right)  # some gradients are rounding errors around zero
    for one, other in zip(found, right, strict=True):
        assert (one - other).detach().abs().max() <= MARGIN[dtype] * size


# ---- that another way is really taken


@pytest.fixture
def ran(monkeypatch):
    """Names of what ran, in order."""
    seen = []

    def noted(module, name):
        function = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, **b: seen.append(name) or function(*a, **b))

    noted(core, "attention_weights")
    noted(torch.nn.functional, "scaled_dot_product_attention")
    return seen


@torch.no_grad()
def test_wide_latents_are_read_with_two_products(ran):
    layer = mha.LatentAttention(16, 2, 300).eval()
    x = torch.randn(2, 4, 16)
    right = layer(x, is_causal=True, absorb=True)
    assert "attention_weights" not in ran
    ran.clear()
    with devices._as_on_a_card():
        assert error(layer(x, is_causal=True, absorb=True), right) < LIMIT
        assert ran == ["attention_weights"]
        ran.clear()
        mha.LatentAttention(16, 2, 8).eval()(x, is_causal=True, absorb=True)
    assert ran == ["scaled_dot_product_attention"]


@torch.no_grad()
def test_alibi_runs_on_the_fused_kernel_and_its_mask_is_kept(ran):
    layer, x = mha.MultiHeadAttention(6, 3, positions=mha.LinearBias()).eval(), torch.randn(2, 5, 6)
    right = layer(x, is_causal=True)
    assert ran == ["attention_weights"]
    ran.clear()
    positions.BIASES._found.clear()
    with devices._as_on_a_card():
        for _ in range(2):
            assert error(layer(x, is_causal=True), right) < LIMIT
        assert ran == ["scaled_dot_product_attention"] * 2
        assert len(positions.BIASES._found) == 1
        ran.clear()
        with mha.watch(layer) as seen:
            assert error(layer(x, is_causal=True), right) < LIMIT
    assert ran == ["attention_weights"]
    assert seen.weights.shape == (2, 3, 5, 5)


@torch.no_grad()
@pytest.mark.parametrize("chosen", [None, [2, 0]])
def test_a_bias_that_a_model_passes_runs_on_the_fused_kernel(ran, chosen):
    """As T5 passes it: numbers, or a function that makes them for so many keys, which is called once."""
    heads, asked = 3 if chosen is None else len(chosen), []
    layer, x = mha.MultiHeadAttention(6, heads, positions=GivenBias(chosen), d_head=2).eval(), torch.randn(2, 5, 6)
    bias = torch.randn(1, 3, 5, 5)
    for given in (bias, bias.expand(2, -1, -1, -1), lambda j: asked.append(j) or bias):
        for how in ({}, {"is_causal": True}, {"mask": MASK}):
            with turned_by(layer, None, given):
                right = layer(x, **how)
                assert ran == ["attention_weights"]
                ran.clear()
                asked.clear()
                with devices._as_on_a_card():
                    assert error(layer(x, **how), right) < LIMIT
                assert ran == ["scaled_dot_product_attention"]
                assert asked == [5] * callable(given)
                ran.clear()
    with devices._as_on_a_card(), turned_by(layer, None, bias), mha.watch(layer) as seen:
        layer(x)
    assert ran == ["attention_weights"]
    assert seen.weights.shape == (2, heads, 5, 5)


def test_a_bias_that_a_model_passes_learns_in_both_ways():
    layer, x = mha.MultiHeadAttention(6, 3, positions=GivenBias()), torch.randn(2, 5, 6)
    bias, found = torch.randn(1, 3, 5, 5, requires_grad=True), []
    for way in (contextlib.nullcontext, devices._as_on_a_card):
        with way(), turned_by(layer, None, bias):
            found.append(torch.autograd.grad(layer(x).square().sum(), [bias])[0])
    assert error(*found) < LIMIT
    with devices._as_on_a_card(), pytest.raises(ValueError, match="comes from the model"):
        layer(x)


def halved(scores):
    return scores / 2


def test_a_bias_of_ones_own_is_never_replaced(ran):
    class Halved(mha.LinearBias):
        def bias(self, scores):
            return halved(scores)

    set_later = mha.LinearBias()
    set_later.bias = halved
    for own in (Halved(), set_later):
        layer, x = mha.MultiHeadAttention(6, 3, positions=own), torch.randn(2, 5, 6)
        right = layer(x)
        with devices._as_on_a_card():
            assert error(layer(x), right) < LIMIT
    assert "scaled_dot_product_attention" not in ran


def test_rows_with_nothing_to_attend_to_read_zeros_beside_a_bias():
    layer, x = mha.MultiHeadAttention(6, 3, positions=mha.LinearBias()), torch.randn(3, 5, 6)
    mask = mha.padding_mask([5, 2, 0]) & (torch.arange(5) > 0)[:, None]
    with devices._as_on_a_card():
        for causal in (False, True):
            with mha.watch(layer, "heads", detach=False) as seen:
                layer(x, mask=mask, is_causal=causal).square().sum().backward()
            assert seen.heads[2].abs().max() == seen.heads[:, :, 0].abs().max() == 0
    assert all(p.grad.isfinite().all() for p in layer.parameters())


@torch.no_grad()
def test_the_kernel_shares_heads_only_where_it_can(monkeypatch):
    shared = []
    kernel = torch.nn.functional.scaled_dot_product_attention

    def noted(*given, **how):
        shared.append(how.get("enable_gqa", False))
        return kernel(*given, **how)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", noted)
    q, k, v = torch.randn(2, 4, 1, 8), *torch.randn(2, 2, 2, 9, 8)
    for dtype, mask, on_card in ((torch.bfloat16, None, True), (torch.float32, None, False)):
        given = [x.to(dtype) for x in (q, k, v)]
        right = core.attend(*given, mask)
        assert shared.pop() is False
        with devices._as_on_a_card():
            assert error(core.attend(*given, mask).float(), right.float()) < 0.02
        assert shared.pop() is on_card
    with devices._as_on_a_card():
        core.attend(q.bfloat16(), k.bfloat16(), v.bfloat16(), torch.ones(1, 9, dtype=torch.bool))
    assert shared.pop() is False


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_shared_heads_are_repeated_where_no_kernel_of_a_card_knows_them(monkeypatch, kv_heads):
    seen, kernel = [], torch.nn.functional.scaled_dot_product_attention

    def noted(q, k, v, *given, **how):
        seen.append((how.get("enable_gqa", False), k.shape[1], k.data_ptr()))
        return kernel(q, k, v, *given, **how)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", noted)
    q, k, v = torch.randn(2, 4, 5, 8), *torch.randn(2, 2, kv_heads, 5, 8)
    mask = mha.padding_mask([5, 3])
    cases = {
        "half, causal": (torch.bfloat16, None, True),
        "half, a mask": (torch.bfloat16, mask, False),
        "float32, causal": (torch.float32, None, False),
        "float64, a mask": (torch.float64, mask, False),
    }
    for name, (dtype, hidden, on_card) in cases.items():
        given = [x.to(dtype).detach().requires_grad_() for x in (q, k, v)]
        right = core.attend(*given, hidden, is_causal=True)
        grads = torch.autograd.grad(right.sum(), given)
        assert seen.pop()[:2] == (True, kv_heads), name
        with devices._as_on_a_card():
            found = core.attend(*given, hidden, is_causal=True)
        own, heads, address = seen.pop()
        assert (own, heads) == (on_card, kv_heads if on_card else 4), name
        assert on_card or (address == given[1].data_ptr()) == (kv_heads == 1), f"{name}: one head is never copied"
        margin = 0.05 if dtype is torch.bfloat16 else 1e-5
        for one, other in zip((found, *torch.autograd.grad(found.sum(), given)), (right, *grads), strict=True):
            assert error(one.double(), other.double()) < margin, name


def test_wide_shared_heads_and_values_of_another_width_are_repeated_too():
    q, v = torch.randn(1, 4, 3, 8, dtype=torch.float16), torch.randn(1, 2, 3, 8, dtype=torch.float16)
    with devices._as_on_a_card():
        assert not devices.repeats_heads(q, v, None)
        assert devices.repeats_heads(q, torch.cat([v, v], -1), None)
        assert devices.repeats_heads(q.repeat(1, 1, 1, 40), v.repeat(1, 1, 1, 40), None)
    assert not devices.repeats_heads(q.float(), v.float(), None)


def test_states_of_linear_attention_are_one_sum_and_chunks_are_longer():
    q, k, v = torch.randn(3, 2, 3, 300, 4)
    state = torch.rand(2, 3, 4, 5)
    for before in (None, state):
        right = linear_attention(q, k, v, is_causal=True, state=before)
        with devices._as_on_a_card():
            for chunk in (None, 64, 7):
                found = linear_attention(q, k, v, is_causal=True, state=before, chunk=chunk)
                assert max(map(error, found, right)) < LIMIT
    k = nn.functional.normalize(k, dim=-1)
    right = delta_rule(q, k, v)
    with devices._as_on_a_card():
        assert devices.chunk_for(q) == 256
        assert max(map(error, delta_rule(q, k, v), right)) < 1e-10
        counted = mha.DeltaAttention(6, 3).cost(1, 300)
    assert counted.flops > mha.DeltaAttention(6, 3).cost(1, 300).flops


def test_linear_attention_multiplies_in_bfloat16_and_adds_up_in_more():
    q, k, v = torch.randn(3, 2, 3, 700, 8).bfloat16()
    state = torch.rand(2, 3, 8, 9, dtype=torch.float32)
    for before in (None, state):
        right = linear_attention(
            q.double(), k.double(), v.double(), is_causal=True, state=None if before is None else before.double()
        )
        wide = linear_attention(q, k, v, is_causal=True, state=before)
        with devices._as_on_a_card():
            for chunk in (None, 64, 7):
                found = linear_attention(q, k, v, is_causal=True, state=before, chunk=chunk)
                assert [x.dtype for x in found] == [x.dtype for x in wide] == [torch.bfloat16, torch.float32]
                for ours, exact in zip(found, right, strict=True):
                    assert (ours - exact).norm() < 0.01 * exact.norm()
            halves = linear_attention(q.half(), k.half(), v.half(), is_causal=True, state=before)
    assert (halves[1] - right[1]).norm() < 1e-5 * right[1].norm()  # float16 would overflow: float32 it is


def test_overlapping_heads_reach_the_kernel_without_overlap():
    layer = mha.OverlappingAttention(6, 3, 1)
    x = torch.randn(2, 5, 6)
    with devices._as_on_a_card():
        assert all(one.is_contiguous() for one in layer._project(x, x, x, None))
    assert not any(one.is_contiguous() for one in layer._project(x, x, x, None))


# ---- nothing leaves the device, and nobody waits for it


class Stays(TorchDispatchMode):
    """Refuse operations that mix devices, and those that read a number."""

    READS = ("_local_scalar_dense", "nonzero", "is_nonzero", "equal", "unique")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, func._schema.name.split("::")[1]
        assert name not in self.READS, name
        result = func(*args, **kwargs)
        places = {x.device.type for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor) and x.ndim}
        if name in ("_to_copy", "copy_", "to"):
            kinds = [x.device.type for x in tree_leaves((args[:1], result))]
            assert kinds != ["meta", "cpu"], f"{name} to the processor"
        else:
            assert len(places) < 2, f"{name} mixes {places}"
        return result


@contextlib.contextmanager
def everything_on(device):
    """Make tensors there unless told otherwise."""
    before = torch.get_default_device()
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_device(before)


def on_meta(x):
    return x.to("meta")


@every
@torch.no_grad()
def test_a_layer_stays_on_its_device_and_reads_no_number(entry, monkeypatch):
    monkeypatch.setattr(mha.RoutedAttention, "skip_from_on_card", 10**9)
    layer = entry.build().eval()
    given = [(tuple(map(on_meta, inputs)), how) for inputs, how in calls(entry, layer, torch.float64)]
    layer = layer.to("meta")
    with devices._as_on_a_card(), everything_on("meta"), Stays():
        for inputs, how in given:
            how = {name: on_meta(x) if isinstance(x, torch.Tensor) else x for name, x in how.items()}
            assert layer(*inputs, **how).is_meta
        if entry.caches and entry.alone:
            cache = layer.new_cache(QUERIES)
            for one in given[0][0][0].split((3, 1, 1), 1):
                assert layer(one, is_causal=True, cache=cache).is_meta


class CountsReads(TorchDispatchMode):
    """Count the operations for which a GPU would be waited for."""

    def __init__(self):
        super().__init__()
        self.reads, self.patch = 0, pytest.MonkeyPatch()

    def __enter__(self):
        to_list = torch.Tensor.tolist  # on a processor no operation shows it

        def noted(x):
            self.reads += 1
            return to_list(x)

        self.patch.setattr(torch.Tensor, "tolist", noted)
        return super().__enter__()

    def __exit__(self, *error):
        self.patch.undo()
        return super().__exit__(*error)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.reads += func._schema.name.split("::")[1] in Stays.READS
        return func(*args, **(kwargs or {}))


WAITS = {  # which layer waits for a GPU on purpose, in which way of calling, and why
    "inference_mode, memory": "nobody counts the changes of such a memory: its numbers are compared (layers/cache.py)",
    "heads left out": "how many queries ask a head decides what is computed; on a GPU from 8,192 tokens on",
}


def steps_of(entry, layer, place):
    """By name, calls of a layer on one device: a forward, and a step with each kind of cache that it takes."""
    x, own = entry.words(dtype=torch.float32).to(place), entry.alone or entry.needs_is_causal
    feeds, merges = isinstance(layer, mha.FeedbackAttention), isinstance(layer, mha.MergedAttention)
    memory = () if own and not merges else tuple(y.to(place) for y in entry.memory(layer))
    how = {} if memory else {"is_causal": True}
    found = {"forward": partial(layer, x[:, -1:] if feeds else x, *memory, **how)}
    if own and not merges and (entry.caches or entry.own_cache):
        cache = layer.new_cache(QUERIES)
        layer(x[:, :-1], is_causal=True, cache=cache)
        found["step"] = partial(layer, x[:, -1:], is_causal=True, cache=cache)
    if feeds:  # its memory grows by what is new
        cache = layer.new_cache()
        layer(x[:, :1], *(y[:, :-1] for y in memory), cache=cache)
        found["step"] = partial(layer, x[:, -1:], *(y[:, -1:] for y in memory), cache=cache)
    if merges or (entry.crosses and entry.caches):
        cache = layer.new_cache() if merges else MemoryCache()
        memory = memory or tuple(y.to(place) for y in entry.memory(layer))
        layer(x[:, :-1], *memory, cache=cache)
        found["memory"] = partial(layer, x[:, -1:], *memory, cache=cache)
    return found


def ways_of_calling(entry, layer, place):
    """The calls of ``steps_of`` under no_grad and under inference_mode, but for those in ``WAITS``."""
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            for name, call in steps_of(entry, layer, place).items():
                if f"{mode.__name__}, {name}" not in WAITS:
                    yield f"{mode.__name__}, {name}", call


@every
def test_what_a_layer_does_on_a_card_reads_no_number(entry, monkeypatch):
    monkeypatch.setattr(mha.RoutedAttention, "skip_from_on_card", devices.LEAVE_OUT_FROM_ON_A_CARD)
    layer = entry.build().eval().float()
    with devices._as_on_a_card():
        for name, call in ways_of_calling(entry, layer, "cpu"):
            with CountsReads() as counted:
                call()
            assert counted.reads == 0, name


@torch.inference_mode()
def test_what_waits_on_purpose_is_what_is_named():
    plain, routed = (next(e for e in LAYERS if e.name == name) for name in ("heads", "routed heads"))
    with devices._as_on_a_card():
        calls = {
            "inference_mode, memory": steps_of(plain, plain.build().eval().float(), "cpu")["memory"],
            "heads left out": steps_of(routed, routed.build().eval().float(), "cpu")["forward"],
        }
        assert set(calls) == set(WAITS)
        for name, call in calls.items():
            with CountsReads() as counted:
                call()
            assert counted.reads > 0, name


@every
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here that a layer could wait for")
def test_no_layer_waits_for_a_gpu(entry, monkeypatch):
    monkeypatch.setattr(mha.RoutedAttention, "skip_from_on_card", devices.LEAVE_OUT_FROM_ON_A_CARD)
    layer, before = entry.build().eval().float().to("cuda"), torch.cuda.get_sync_debug_mode()
    for _, call in ways_of_calling(entry, layer, "cuda"):  # once: libraries start, and what is kept is made
        call()
    for name, call in ways_of_calling(entry, layer, "cuda"):
        torch.cuda.set_sync_debug_mode("error")
        try:
            call()
        except RuntimeError as error:
            raise AssertionError(f"{entry.name} waits for the GPU: {name}") from error
        finally:
            torch.cuda.set_sync_debug_mode(before)


@torch.no_grad()
def test_models_read_no_number_on_a_card():
    tokens = torch.randint(9, (2, 5))
    places = torch.arange(5).expand(2, 5)
    language = LanguageModel(9, 8, lambda: mha.MultiHeadAttention(8, 2, positions=mha.RotaryPositions())).eval()
    learned = LanguageModel(9, 8, 2, positions=lambda: positions.LearnedPositions(6, 8)).eval()
    both = EncoderDecoder(9, 9, 8, 2).eval()
    mask = mha.padding_mask([5, 3])
    asked = {
        "language": lambda: language(tokens),
        "positions": lambda: language(tokens, position_ids=places),
        "learned": lambda: learned(tokens, position_ids=places),
        "cached": lambda: language(tokens, cache=language.decoder.new_cache(5)),
        "padded": lambda: both(tokens, tokens, mask, mask),
    }
    for name, call in asked.items():
        right = call()
        with devices._as_on_a_card(), CountsReads() as counted:
            found = call()
        assert counted.reads == 0, name
        assert torch.equal(found, right), name
        with CountsReads() as counted:
            call()
        assert counted.reads > 0, f"{name}: a processor looks at the numbers of tokens"


@pytest.mark.parametrize(
    "make",
    [
        lambda: mha.MultiHeadAttention(8, 2, positions=mha.RotaryPositions(), device="cpu"),
        lambda: mha.MultiHeadAttention(8, 2, positions=mha.LinearBias(), device="cpu"),
        lambda: mha.LatentAttention(8, 2, 4, d_rotary=2, device="cpu"),
        lambda: nn.Sequential(positions.SinusoidalPositions(), mha.EntmaxAttention(8, 2, device="cpu")),
    ],
)
@torch.no_grad()
def test_another_default_device_does_not_matter_to_a_call(make):
    layer, x = make().eval(), torch.randn(2, 5, 8)
    right = layer(x)
    for way in (contextlib.nullcontext, devices._as_on_a_card):
        positions.WAVES._found.clear()
        positions.SLOPES._found.clear()
        with everything_on("meta"), way():
            assert error(layer(x), right) < LIMIT
    with everything_on("meta"):
        assert positions.sinusoidal_positions(3, 4).is_meta


def with_inside(kind):
    """A model whose only positions are inside its attention."""
    return LanguageModel(9, 8, lambda: mha.MultiHeadAttention(8, 2, positions=kind()), positions=None)


MODELS = {
    "sinusoidal": lambda: LanguageModel(9, 8, 2),
    "learned": lambda: LanguageModel(9, 8, 2, positions=lambda: positions.LearnedPositions(9, 8)),
    "rotary": lambda: with_inside(mha.RotaryPositions),
    "sloped": lambda: with_inside(mha.LinearBias),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
@torch.no_grad()
def test_another_default_device_does_not_matter_to_a_model(make):
    model, tokens = make().eval(), torch.randint(9, (2, 5))

    def stepped():
        cache = model.decoder.new_cache(5)
        return torch.cat([model(part, cache=cache) for part in tokens.split((3, 1, 1), 1)], 1)

    calls = {
        "whole": lambda: model(tokens),
        "cached": stepped,
        "padded": partial(model.generate, tokens, 3, padding=torch.tensor([0, 2])),
        "written": lambda: model.generate(tokens, 3),
        "without a cache": lambda: model.generate(tokens, 3, cached=False, stop=4),
    }
    if model.embedding.positions is not None:
        calls["positions"] = partial(model, tokens, position_ids=torch.arange(5).expand(2, 5))
    agree_under_another_default_device(calls)


@torch.no_grad()
def test_another_default_device_does_not_matter_to_an_encoder_and_a_decoder():
    model, source = EncoderDecoder(9, 9, 8, 2).eval(), torch.randint(9, (2, 5))
    mask = mha.padding_mask([5, 3])
    calls = {
        "whole": lambda: model(source, source, mask, mask),
        "written": lambda: model.generate(source, 4, start=0, source_mask=mask),
        "without a cache": lambda: model.generate(source, 4, start=0, cached=False),
    }
    agree_under_another_default_device(calls)


def agree_under_another_default_device(calls):
    for name, call in calls.items():
        right = call()
        for way in (contextlib.nullcontext, devices._as_on_a_card):
            for kept in (positions.WAVES, positions.SINES, positions.SLOPES, positions.BIASES):
                kept._found.clear()
            with everything_on("meta"), way():
                found = call()
            assert found.device == right.device, name
            assert error(found.double(), right.double()) < LIMIT, name


# ---- compiled


COMPILED = ("routed heads", "composed heads", "sloped heads", "linear heads", "rotary heads")
COMPILED += ("overwriting heads", "overwriting, channels decay")


@torch.no_grad()
def compiled(name):
    """How far a layer, compiled as one graph in the ways of a GPU, is from the layer."""
    entry = next(one for one in LAYERS if one.name == name)
    layer, found = entry.build().eval(), []
    for n in (5, 40):
        x = entry.words(n)
        right = layer(x, is_causal=True)
        torch.compiler.reset()
        with devices._as_on_a_card():
            graph = torch.compile(layer, backend="eager", fullgraph=True)
            found.append(error(graph(x, is_causal=True), right))
    return max(found)


@pytest.mark.slow
def test_layers_compile_whole_in_the_ways_of_a_card():
    here = Path(__file__).resolve()  # in a process of its own: checks of annotations are no part of a graph
    env = {"PYTHONPATH": f"{here.parents[2]}:{here.parent}:{here.parents[1]}", "PATH": "", "HOME": str(here.parent)}
    ran = subprocess.run([sys.executable, here], capture_output=True, text=True, env=env)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert set(found) == set(COMPILED)
    assert max(found.values()) < LIMIT


# ---- what is kept


def test_what_is_kept_is_what_would_be_made():
    for dtype in MARGIN:
        for start, n in ((0, 1), (0, 7), (3, 5), (250, 20), (1000, 3)):
            x = torch.randn(2, 2, n, 8, dtype=dtype)
            for rotary in (mha.RotaryPositions(), mha.RotaryPositions(50.0, "interleaved", precision=torch.float32)):
                kept = rotary.rotate(x, start), rotary.rotate(x, start)
                with CountsReads():  # a mode that sees every operation is shown all of them
                    made = rotary.rotate(x, start)
                assert torch.equal(kept[0], made)
                assert torch.equal(kept[1], made)
            y = torch.randn(2, n, 8, dtype=dtype)
            kept = positions.SinusoidalPositions()(y, start)
            with CountsReads():
                assert torch.equal(positions.SinusoidalPositions()(y, start), kept)


def test_what_is_kept_belongs_to_no_layer():
    layer = mha.MultiHeadAttention(8, 2, positions=mha.RotaryPositions())
    keys = set(layer.state_dict())
    before = len(pickle.dumps(layer))
    layer(torch.randn(2, 5, 8))
    assert set(layer.state_dict()) == keys
    assert len(pickle.dumps(layer)) == before
    assert error(copy.deepcopy(layer)(torch.ones(1, 3, 8)), layer(torch.ones(1, 3, 8))) == 0


def test_what_was_kept_under_inference_mode_serves_a_training_step():
    layer, x = mha.MultiHeadAttention(8, 2, positions=mha.RotaryPositions()), torch.randn(BATCH, 5, 8)
    positions.WAVES._found.clear()
    with torch.inference_mode():
        layer(x)
    assert len(positions.WAVES._found) == 1
    layer(x).sum().backward()
    assert layer.W_q.weight.grad.abs().max() > 0


def test_the_oldest_are_forgotten():
    kept = positions._Kept(2)
    for key in (1, 2, 1, 3):
        kept.get(key, lambda: (torch.ones(1),))
    assert list(kept._found) == [1, 3]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    mha.RoutedAttention.skip_from_on_card = 10
    print(json.dumps({name: compiled(name) for name in COMPILED}))
