"""The kernels of flash-linear-attention: called as they want to be called, and equal to our forms where a GPU is."""

import importlib
import sys
import types

import pytest
import torch
import torch.nn.functional as F
from oracle import error

import mha
from mha.functional import delta_rule, devices, linear_attention
from mha.functional.linear import apply_delta_rule, read_linear

B, H, N, D, C = 2, 3, 70, 4, 5


def swapped(*tensors):
    """From (b, n, h, …), as the library has them, to (b, h, n, …), or back."""
    return [x.transpose(1, 2) for x in tensors]


def chunk_linear_attn(*, q, k, v, scale, initial_state, output_final_state, normalize):
    """The library's linear attention, by the formula."""
    assert (scale, output_final_state, normalize) == (1.0, True, False)
    assert q.dtype == k.dtype == v.dtype
    assert q.is_contiguous()
    q, k, v = (x.double() for x in swapped(q, k, v))
    weights, state = (q @ k.mT).tril(), initial_state.double()
    return swapped(weights @ v + q @ state)[0], (state + k.mT @ v).float()


def chunk_gated_delta_rule(*, q, k, v, beta, scale, initial_state, output_final_state, g=None):
    """The library's delta rule, token after token."""
    assert (scale, output_final_state) == (1.0, True)
    assert {x.dtype for x in (q, k, v, beta)} == {torch.bfloat16}
    assert g is None or g.dtype == torch.float32
    assert initial_state.dtype == torch.float32
    q, k, v, beta = (x.float() for x in swapped(q, k, v, beta))
    log_decay = None if g is None else g.transpose(1, 2)
    read, state = apply_delta_rule(q, k, v, beta, log_decay, erase=True, state=initial_state, form="recurrent")
    return swapped(read.bfloat16())[0], state


@pytest.fixture
def library(monkeypatch):
    """A stub in the place of the library, and the ways of a GPU on the processor."""
    called = []

    def noted(name, kernel):
        def call(**how):
            called.append(name)
            return kernel(**how)

        return call

    for module, name, kernel in (
        ("linear_attn", "chunk_linear_attn", chunk_linear_attn),
        ("delta_rule", "chunk_delta_rule", chunk_gated_delta_rule),
        ("gated_delta_rule", "chunk_gated_delta_rule", chunk_gated_delta_rule),
    ):
        stub = types.ModuleType(f"fla.ops.{module}")
        setattr(stub, name, noted(name, kernel))
        monkeypatch.setitem(sys.modules, f"fla.ops.{module}", stub)
    monkeypatch.setitem(sys.modules, "fla", types.ModuleType("fla"))
    monkeypatch.setitem(sys.modules, "fla.ops", types.ModuleType("fla.ops"))
    with devices._as_on_a_card():
        yield called


def drawn(dtype, device="cpu", n=N, d=D, c=C):
    q, k, v = (torch.randn(B, H, n, width, device=device).to(dtype) for width in (d, d, c))
    beta, log_decay = torch.rand(2, B, H, n, device=device).to(dtype)
    return F.normalize(q, dim=-1), F.normalize(k.float(), dim=-1).to(dtype), v, beta, log_decay.neg()


def test_linear_attention_is_asked_without_its_scale_and_its_normalization(library):
    q, k, v, *_ = drawn(torch.float32)
    state = torch.rand(B, H, D, C + 1).float()
    for before in (None, state):
        right, after = linear_attention(q, k, v, is_causal=True, state=before, form="parallel")
        found, last = linear_attention(q, k, v, is_causal=True, state=before, form="fla")
        assert found.dtype == torch.float32
        assert error(found, right) < 1e-5
        assert error(last, after) < 1e-5
    assert library == ["chunk_linear_attn"] * 2


def test_padding_and_queries_that_read_all_are_as_in_the_other_forms(library):
    q, k, v, *_ = drawn(torch.float32)
    tokens = (torch.rand(B, 1, 1, N) < 0.7) | (torch.arange(N) == 0)
    right = read_linear(q, k, v, tokens, is_causal=True, form="recurrent")
    found = read_linear(q, k, v, tokens, is_causal=True, form="fla")
    assert max(map(error, found, right)) < 1e-5
    assert len(library) == 1
    assert torch.equal(linear_attention(q, k, v, form="fla")[0], linear_attention(q, k, v)[0])
    assert len(library) == 1  # one product has no chunks


@pytest.mark.parametrize("decays", [False, True])
def test_the_delta_rule_calls_the_kernel_with_or_without_decay(library, decays):
    q, k, v, beta, log_decay = drawn(torch.bfloat16)
    log_decay = log_decay if decays else None
    state = torch.rand(B, H, D, C).float()
    for given, before in ((beta, None), (None, state), (beta, state)):
        found = delta_rule(q, k, v, given, log_decay, state=before, form="fla")
        right = delta_rule(q, k, v, given, log_decay, state=before, form="recurrent")
        assert found[0].dtype == torch.bfloat16
        assert found[1].dtype == torch.float32
        assert max(map(error, found, right)) < 1e-2
    assert library == ["chunk_gated_delta_rule" if decays else "chunk_delta_rule"] * 3


def test_a_decay_of_nothing_stays_finite(library):
    q, k, v, beta, log_decay = drawn(torch.bfloat16)
    log_decay[:, :, 3] = -torch.inf
    found, _ = delta_rule(q, k, v, beta, log_decay, form="fla")
    assert error(found, delta_rule(q, k, v, beta, log_decay)[0]) < 1e-2


@pytest.mark.parametrize("kind", [mha.LinearAttention, mha.DeltaAttention])
@torch.no_grad()
def test_a_layer_calls_the_kernels_for_many_tokens_and_not_for_one(library, kind):
    layer = kind(6, 3, form="fla").bfloat16()
    x, cache, how = torch.randn(2, 9, 6).bfloat16(), layer.new_cache(), {"is_causal": True}
    whole = layer(x, **how)
    assert len(library) == 1
    parts = [layer(one, cache=cache, **how) for one in x.split((5, 1, 1, 2), 1)]
    assert len(library) == 3
    assert error(torch.cat(parts, 1), whole) < 0.05
    layer.form = "chunked"
    assert error(layer(x, **how), whole) < 0.05
    assert layer.take_heads([0, 2]).form == "chunked"


def test_what_the_kernels_cannot_do_is_refused(library):
    q, k, v, beta, log_decay = drawn(torch.float32)
    with pytest.raises(TypeError, match=r"torch.float32: these kernels compute in half precision"):
        delta_rule(q, k, v, beta, log_decay, form="fla")
    with pytest.raises(ValueError, match=r"erase = False with form = .fla.: these kernels always erase"):
        delta_rule(q, k, v, beta, log_decay, erase=False, form="fla")
    with pytest.raises(TypeError, match=r"torch.float64: these kernels compute in float32 at most"):
        linear_attention(q.double(), k.double(), v.double(), is_causal=True, form="fla")


def test_on_a_processor_the_kernels_are_refused(reader):
    q, k, v, *_ = drawn(torch.bfloat16)
    how = {"form": "fla"}
    for call in (lambda: linear_attention(q, k, v, is_causal=True, **how), lambda: delta_rule(q, k, v, **how)):
        with pytest.raises(ValueError, match=r'form = "fla" with tensors on cpu: .* Take form="chunked"'):
            call()


def test_without_the_library_its_name_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "fla", None)
    q, k, v, *_ = drawn(torch.bfloat16)
    with devices._as_on_a_card(), pytest.raises(ModuleNotFoundError, match="pip install flash-linear-attention"):
        delta_rule(q, k, v, form="fla")


@pytest.mark.parametrize("kind", [mha.LinearAttention, mha.DeltaAttention])
def test_a_layer_refuses_a_form_that_does_not_exist(reader, kind):
    with pytest.raises(ValueError, match="form = 'fast': it is one of"):
        kind(6, 3, form="fast")
    with pytest.raises(TypeError, match="form = 3"):
        kind(6, 3, form=3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("n", [64, 200])
def test_the_real_kernels_compute_what_our_forms_do(n):
    pytest.importorskip("fla", reason="flash-linear-attention is not installed")
    importlib.import_module("fla.ops.gated_delta_rule")
    given = [x.requires_grad_() for x in drawn(torch.bfloat16, "cuda", n, 64, 64)]
    exact = [x.detach().float().requires_grad_() for x in given]
    for call in (
        lambda q, k, v, beta, logs, form: linear_attention(q, k, v, is_causal=True, form=form),
        lambda q, k, v, beta, logs, form: delta_rule(q, k, v, beta, form=form),
        lambda q, k, v, beta, logs, form: delta_rule(q, k, v, beta, logs, form=form),
    ):
        found, right = call(*given, form="fla"), call(*exact, form="chunked")
        assert max(map(error, found, right)) < 0.02
        grads = [
            torch.autograd.grad(y.float().square().sum(), x, allow_unused=True)
            for y, x in ((found[0], given), (right[0], exact))
        ]
        for one, other in zip(*grads, strict=True):
            assert (one is None) == (other is None)
            assert one is None or error(one, other) < 0.03
