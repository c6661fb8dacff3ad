"""Weights that are exactly zero: the formula, its slopes, its traps, and the layer."""

import subprocess
import sys

import pytest
import torch
from oracle import LIMIT, error
from test_entmax import ALPHAS, row_by_hand
from torch import nn

import mha
from mha.analysis import HardConcrete, leaks
from mha.functional import Changes, entmax
from mha.models import train


def layer_by_hand(layer, alphas, x, memory, mask):
    """The whole layer from its weights, one head, one query at a time."""
    d, rows = layer.d_head, []
    for h, alpha in enumerate(alphas):
        own = slice(h * d, (h + 1) * d)
        q = x @ layer.W_q.weight[own].T + layer.W_q.bias[own]
        k = memory @ layer.W_k.weight[own].T + layer.W_k.bias[own]
        v = memory @ layer.W_v.weight[own].T + layer.W_v.bias[own]
        scores = torch.where(mask, q @ k.mT / d**0.5, -torch.inf)
        weights = torch.tensor([[row_by_hand(row, alpha) for row in text] for text in scores.tolist()])
        rows.append(weights @ v @ layer.W_o.weight[:, own].T)
    return sum(rows) + layer.W_o.bias


def test_the_layer_is_its_formula_on_random_weights():
    layer = mha.EntmaxAttention(12, 4, alpha=ALPHAS, learned=False)
    for weight in layer.parameters():
        nn.init.normal_(weight)
    x, memory = torch.randn(2, 5, 12), torch.randn(2, 7, 12)
    mask = torch.rand(5, 7) < 0.7
    mask[2] = False  # a query with nothing to look at
    assert error(layer(x, memory, mask=mask), layer_by_hand(layer, ALPHAS, x, memory, mask)) < 1e-10
    with mha.watch(layer) as seen:
        layer(x, memory, mask=mask)
    zeros = (seen.weights[:, :, mask] == 0).double().mean((0, 2))
    assert zeros[0] == 0
    assert 0.3 < zeros[2] < zeros[3]


# ---- the layer


def test_a_layer_with_alpha_one_is_plain_attention_on_its_fused_kernel():
    plain = mha.MultiHeadAttention(12, 3, kdim=5, vdim=7, bias="qvo")
    layer = mha.EntmaxAttention.from_plain(plain)
    x, key, value = torch.randn(2, 4, 12), torch.randn(2, 3, 5), torch.randn(2, 3, 7)
    assert torch.equal(layer(x, key, value), plain(x, key, value))
    assert layer.cost(2, 4, 3) == plain.cost(2, 4, 3)
    assert layer.alpha.tolist() == [1, 1, 1]
    nearly = mha.EntmaxAttention.from_plain(plain, alpha=1.02, learned=True)
    assert 0 < error(nearly(x, key, value), plain(x, key, value)) < 1e-2


def test_alpha_is_learned_in_each_head_and_stays_between_softmax_and_sparsemax():
    torch.manual_seed(0)
    layer, x = mha.EntmaxAttention(8, 2).train(), 3 * torch.randn(4, 6, 8)
    assert error(layer.alpha, torch.full((2,), 1.5)) < 1e-12

    def spread(model, _step):  # the first head is rewarded for large weights, the second for small ones
        with mha.watch(model, "weights", detach=False) as seen:
            model(x)
        largest = seen.weights.amax(-1).mean((0, 2))
        return largest[1] - largest[0]

    optimizer = torch.optim.Adam([layer.raw_alpha], lr=0.3)
    train(layer, spread, 60, optimizer=optimizer)
    assert layer.alpha[0] > 1.95
    assert layer.alpha[1] < 1.05
    assert ((layer.alpha > 1) & (layer.alpha < 2)).all()


def test_a_smaller_layer_keeps_the_alpha_of_each_head():
    layer = mha.EntmaxAttention(12, 4, alpha=ALPHAS, learned=False)
    assert layer.take_heads([3, 1]).alpha.tolist() == [1.1, 2.0]
    learned = mha.EntmaxAttention(12, 3, alpha=[1.2, 1.4, 1.8]).take_heads(iter([2, 0]))
    assert error(learned.alpha, torch.tensor([1.2, 1.8])) < LIMIT
    assert isinstance(learned.raw_alpha, nn.Parameter)


def test_a_fixed_alpha_is_saved_and_no_weight():
    layer = mha.EntmaxAttention(6, 2, alpha=2, learned=False)
    assert "raw_alpha" not in dict(layer.named_parameters())
    assert layer.state_dict()["fixed_alpha"].tolist() == [2, 2]
    assert "fixed_alpha" not in mha.EntmaxAttention(6, 2).state_dict()


def test_what_the_search_for_thresholds_costs_is_counted():
    layer, plain = mha.EntmaxAttention(6, 2), mha.MultiHeadAttention(6, 2)
    cost, stored = layer.cost(3, 5, 7), plain.cost(3, 5, 7, stored=True)
    assert cost.flops == stored.flops
    assert cost.moved - stored.moved == cost.parts["thresholds"].moved == 7 * 60 * 8 * 3 * 2 * 5 * 7
    assert cost.parameters == stored.parameters + 2


def test_nothing_leaks_from_the_future():
    found = leaks(mha.EntmaxAttention(8, 2, alpha=[1.05, 1.95]), is_causal=True, cache=mha.KeyValueCache)
    assert not found, found


# ---- several improvements at once, from the hooks of the core


class Together(mha.GroupedAttention):
    """Shared keys, sparse weights, a gate on each head, a cache: one short forward."""

    def forward(self, query, key=None, value=None, mask=None, *, is_causal=False, cache=None):
        q, k, v = self.project(query, key, value, mask, is_causal=is_causal, cache=cache)
        heads = self.attend(
            q, k, v, mask, is_causal=is_causal, changes=Changes(normalize=lambda s: entmax(s, self.alpha))
        )
        return self.merge(heads * self.gate()[:, None, None])


def together():
    layer = Together(8, 4, 2)
    layer.alpha, layer.gate = nn.Parameter(torch.tensor([1.0, 1.2, 1.5, 1.9])), HardConcrete(4, log_a=0.5)
    return layer.eval()


def test_shared_keys_sparse_weights_gates_and_a_cache_combine():
    layer, x = together(), 3 * torch.randn(2, 6, 8)
    q, k, v = layer.project(x)
    k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
    scores = (q @ k.mT / 2**0.5).masked_fill(~mha.causal_mask(6), -torch.inf)
    weights = torch.tensor(
        [[[row_by_hand(r, a) for r in head] for head, a in zip(text, layer.alpha.tolist(), strict=True)]
         for text in scores.tolist()]
    )  # fmt: skip
    right = layer.W_o(((weights @ v) * layer.gate()[:, None, None]).transpose(1, 2).flatten(2))
    assert error(layer(x, is_causal=True), right) < 1e-10
    with torch.no_grad():
        cache = mha.KeyValueCache(6)
        steps = torch.cat([layer(part, is_causal=True, cache=cache) for part in x.split((3, 1, 2), 1)], 1)
    assert error(steps, right) < 1e-10
    layer(x, is_causal=True).square().sum().backward()
    assert all(p.grad.isfinite().all() for p in layer.parameters())
    assert (layer.alpha.grad[1:] != 0).all()


# ---- bad input


@pytest.mark.parametrize("alpha", [0.9, 2.1, [1.5, 3], [1.5, float("nan")]])
def test_an_alpha_that_is_none_is_refused(reader, alpha):
    for learned in (True, False):
        with pytest.raises(ValueError, match=r"alpha = .*(between 1 \(softmax\) and 2 \(sparsemax\)|must be finite)"):
            mha.EntmaxAttention(4, 2, alpha=alpha, learned=learned)
    with pytest.raises(ValueError, match=r"alpha = .*between 1 \(softmax\) and 2 \(sparsemax\)"):
        entmax(torch.randn(1, 2, 3, 3), alpha)
    for wrong in ("1.5", None, [1.5, "2"]):
        with pytest.raises(TypeError, match=r"alpha = .*it must be a number"):
            mha.EntmaxAttention(4, 2, alpha=wrong)


def test_alphas_for_another_number_of_heads_are_refused(reader):
    with pytest.raises(ValueError, match=r"alpha has shape \(3,\), but there are 2 heads: give one number, or one for"):
        mha.EntmaxAttention(4, 2, alpha=[1.2, 1.5, 1.8])
    with pytest.raises(ValueError, match=r"alpha has shape \(1, 2\), but there are 2 heads"):
        entmax(torch.randn(1, 2, 3, 3), torch.full((1, 2), 1.5))


def test_a_learned_alpha_does_not_start_where_it_cannot_leave(reader):
    for alpha in (1, 1.01, 2, [1.5, 2]):
        with pytest.raises(ValueError, match=r"learned one is between 1.01 and 2; start there, or set learned=False"):
            mha.EntmaxAttention(4, 2, alpha=alpha)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_learned_alpha_comes_back_from_its_lowest(dtype):
    layer, x = mha.EntmaxAttention(4, 2).to(dtype), torch.randn(2, 5, 4, dtype=dtype)
    with torch.no_grad():
        layer.raw_alpha.fill_(-8)
    assert ((layer.alpha > 1.01) & (layer.alpha < 1.011)).all()
    layer(3 * x).square().sum().backward()
    assert (layer.raw_alpha.grad != 0).all()
    assert layer.raw_alpha.grad.isfinite().all()


def test_near_softmax_all_types_of_numbers_take_the_same_way():
    scores = 3 * torch.randn(1, 1, 4, 7)
    for alpha in (1.0005, 1.001, 1.0015):
        exact, halved = entmax(scores.double(), alpha), entmax(scores.float(), alpha)
        assert (exact - halved).abs().max() < 1e-3
        assert ((exact - scores.double().softmax(-1)).abs().max() == 0) == (alpha < 1.001)


def test_a_second_derivative_is_refused_and_not_nan():
    layer, x = mha.EntmaxAttention(8, 2), torch.randn(1, 4, 8, requires_grad=True)
    for inputs in ((x,), (layer.raw_alpha,)):
        (slope,) = torch.autograd.grad(layer(x).square().sum(), inputs, create_graph=True)
        with pytest.raises(NotImplementedError, match="no second derivative"):
            torch.autograd.grad(slope.sum(), inputs)


COMPILED = """
import torch, mha
from entmax import entmax_bisect
torch.compiler.allow_in_graph(entmax_bisect)
x = torch.randn(2, 5, 8)
for how in ({}, {"alpha": [1.0, 1.7], "learned": False}, {"alpha": 1.0, "learned": False}):
    layer = mha.EntmaxAttention(8, 2, **how)
    both = layer(x, is_causal=True), torch.compile(layer, fullgraph=True, backend="aot_eager")(x, is_causal=True)
    slopes = [torch.autograd.grad(y.square().sum(), layer.W_q.weight)[0] for y in both]
    print((both[0] - both[1]).abs().max().item() < 1e-6, (slopes[0] - slopes[1]).abs().max().item() < 1e-5)
    torch._dynamo.reset()
"""


@pytest.mark.slow
def test_the_whole_layer_is_one_compiled_graph_where_the_library_is_allowed_in_it():
    """In a process of its own: the compiler cannot look into annotations that are checked."""
    told = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["True"] * 6


def test_the_layer_has_a_shape_without_numbers():
    layer = mha.EntmaxAttention(8, 2).to("meta")
    assert layer(torch.randn(2, 5, 8, device="meta")).shape == (2, 5, 8)
