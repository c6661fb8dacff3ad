"""The leak detector on known bugs in miniature, on torch's own layers, and on callables that are hard to try."""

import itertools
import random
import threading

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import mha
from mha.analysis import leaks

N, M = 5, 6
MODES = {"train", "eval"}


def all_pairs(n=N):
    return [(i, j) for i in range(n) for j in range(i + 1, n)]


class Heads(nn.Module):
    """Attention as other people write it: one fused projection, and a read that each bug writes differently."""

    def __init__(self, heads=2, dropout=0.0):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.project, self.out = nn.Linear(M, 3 * M), nn.Linear(M, M)

    def forward(self, x, mask=None):
        q, k, v = (mha.split_heads(t, self.heads) for t in self.project(x).chunk(3, -1))
        return self.out(mha.merge_heads(self.read(q, k, v, mask)))

    def read(self, q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class TrueAboveTheDiagonal(Heads):
    """Torch's kernel reads True as 'may look', and this mask says True for the future."""

    def read(self, q, k, v, mask):
        hidden = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=hidden)


class MaskInTrainingOnly(Heads):
    """The mask is made when training, and left out when the model is used."""

    def read(self, q, k, v, mask):
        mask = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril() if self.training else None
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


class CausalOffInEvaluation(Heads):
    """The flag follows the training mode, together with the dropout."""

    def read(self, q, k, v, mask):
        dropout, causal = (self.dropout, True) if self.training else (0.0, False)
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=causal)


class MaskTakenAndForgotten(Heads):
    """There is an argument for the mask, and nobody reads it."""

    def read(self, q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v)


class ZeroedAfterTheSoftmax(Heads):
    """The weights of the future are zero, but the future was in the sum they were divided by."""

    def read(self, q, k, v, mask):
        return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1).tril() @ v


class FiniteAndSmall(Heads):
    """The fill is not far enough below the scores."""

    def read(self, q, k, v, mask):
        future = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(1)
        return (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(future, -20.0).softmax(-1) @ v


class OneTooMany(Heads):
    """The diagonal is one off: each word sees the next."""

    def read(self, q, k, v, mask):
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril(1)
        )


class NormOverTheSequence(Heads):
    """The attention is causal, but a mean over all positions is taken away afterwards."""

    def read(self, q, k, v, mask):
        read = super().read(q, k, v, mask)
        return read - read.mean(2, keepdim=True)


# ---- bugs


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_correct_causal_attention_has_no_leak_and_no_blind_spot(dropout):
    found = leaks(Heads(dropout=dropout), shape=(2, N, M))
    assert set(found.sees) == MODES
    assert not found
    assert found.pairs == found.blind == {"train": [], "eval": []}
    assert str(found) == "train: no output depends on a later input\neval: no output depends on a later input"


@pytest.mark.parametrize("bug", [MaskTakenAndForgotten, ZeroedAfterTheSoftmax, FiniteAndSmall, NormOverTheSequence])
def test_bugs_that_show_the_whole_future_are_found_in_both_modes(bug):
    found = leaks(bug(), shape=(2, N, M))
    assert found
    assert found.pairs == dict.fromkeys(MODES, all_pairs())
    assert not any(found.blind.values())


def test_a_mask_that_is_never_used_leaks_though_it_was_given():
    found = leaks(MaskTakenAndForgotten(), shape=(2, N, M), mask=mha.causal_mask(N))
    assert found.pairs == dict.fromkeys(MODES, all_pairs())


def test_true_above_the_diagonal_shows_the_future_and_hides_the_past():
    found = leaks(TrueAboveTheDiagonal(), shape=(2, N, M))
    assert found.pairs == dict.fromkeys(MODES, all_pairs())
    past = {(i, j) for i in range(N - 1) for j in range(i)}
    assert past <= set(found.blind["train"])


@pytest.mark.parametrize("bug", [MaskInTrainingOnly, CausalOffInEvaluation])
def test_a_mask_that_depends_on_the_mode_leaks_in_evaluation_only(bug):
    found = leaks(bug(dropout=0.3), shape=(2, N, M))
    assert found
    assert found.pairs == {"train": [], "eval": all_pairs()}
    assert not leaks(bug(), shape=(2, N, M), modes=("train",))
    assert "train: no output depends on a later input\neval: output 0 depends on later input 1, 2, 3, 4" in str(found)


def test_a_diagonal_that_is_one_off_is_named_pair_by_pair():
    found = leaks(OneTooMany(), shape=(2, N, M), modes=("eval",))
    assert found.pairs == {"eval": [(0, 1), (1, 2), (2, 3), (3, 4)]}
    assert str(found).splitlines()[-1] == "eval: output 3 depends on later input 4"
    assert repr(found) == str(found)


@settings(max_examples=15)
@given(st.integers(2, 6), st.integers(0, 999))
def test_any_mask_is_read_off_exactly(n, seed):
    """A function whose output i is a sum over the inputs its mask shows: the detector must find that mask."""
    mask = torch.rand(n, n, generator=torch.Generator().manual_seed(seed)) < 0.5
    found = leaks(lambda x: mask.to(x) @ x, shape=(1, n, 3))
    assert torch.equal(found.sees["function"], mask)


# ---- torch's own layers


class TorchHeads(nn.Module):
    def __init__(self, **how):
        super().__init__()
        self.inner, self.how = nn.MultiheadAttention(M, 2, dropout=0.2, batch_first=True), how

    def forward(self, x):
        return self.inner(x, x, x, **self.how)[0]


@pytest.mark.parametrize("need_weights", [True, False])
def test_multihead_attention_of_torch(need_weights):
    mask = torch.ones(N, N, dtype=torch.bool).triu(1)  # True = hide
    causal = {"attn_mask": mask, "is_causal": True, "need_weights": need_weights}
    assert not leaks(TorchHeads(**causal), shape=(2, N, M))
    assert not any(leaks(TorchHeads(**causal), shape=(2, N, M)).blind.values())
    found = leaks(TorchHeads(need_weights=need_weights), shape=(2, N, M))
    assert found.pairs == dict.fromkeys(MODES, all_pairs())
    turned = leaks(TorchHeads(attn_mask=~mask, need_weights=need_weights), shape=(2, N, M))  # the last row is NaN
    assert turned.pairs == dict.fromkeys(MODES, all_pairs())


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("kind", ["boolean", "additive", "none"])
def test_encoder_layers_of_torch(norm_first, kind):
    layer = nn.TransformerEncoderLayer(M, 2, 11, batch_first=True, norm_first=norm_first)
    masks = {
        "boolean": torch.ones(N, N, dtype=torch.bool).triu(1),
        "additive": nn.Transformer.generate_square_subsequent_mask(N, dtype=torch.float32),
        "none": None,
    }
    found = leaks(layer, shape=(2, N, M), src_mask=masks[kind])
    assert found.pairs == dict.fromkeys(MODES, all_pairs() if kind == "none" else [])
    assert not any(found.blind.values())


def test_a_stack_of_layers_and_layers_that_take_the_sequence_first():
    layer = nn.TransformerEncoderLayer(M, 2, 11)  # (sequence, batch, channels)
    future = torch.ones(N, N, dtype=torch.bool).triu(1)

    class Turned(nn.Module):
        def __init__(self):
            super().__init__()
            self.stack = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

        def forward(self, x, mask=None):
            return self.stack(x.transpose(0, 1), mask).transpose(0, 1)

    assert not leaks(Turned(), shape=(2, N, M), mask=future)
    assert leaks(Turned(), shape=(2, N, M)).pairs == dict.fromkeys(MODES, all_pairs())


def test_norms_tell_a_batch_norm_from_a_layer_norm():
    class Batch(nn.BatchNorm1d):
        def forward(self, x):
            return super().forward(x.transpose(1, 2)).transpose(1, 2)

    assert not leaks(nn.LayerNorm(M), shape=(2, N, M))
    found = leaks(Batch(M), shape=(2, N, M))
    assert found.pairs == {"train": all_pairs(), "eval": []}


def test_recurrent_layers_and_convolutions():
    class Recurrent(nn.Module):
        def __init__(self, both):
            super().__init__()
            self.inner = nn.GRU(M, 3, batch_first=True, bidirectional=both)

        def forward(self, x):
            return self.inner(x)[0]

    assert not leaks(Recurrent(both=False), shape=(2, N, M))
    assert leaks(Recurrent(both=True), shape=(2, N, M)).pairs == dict.fromkeys(MODES, all_pairs())
    shift = nn.Conv1d(M, M, 3, padding=1).double()
    found = leaks(lambda x: shift(x.transpose(1, 2)).transpose(1, 2), shape=(2, N, M))
    assert found.pairs == {"function": [(i, i + 1) for i in range(N - 1)]}


# ---- behind a cache


@pytest.mark.parametrize("chunks", [(5,), (1, 1, 1, 1, 1), (2, 3), (3, 2), (1, 3, 1), None])
def test_a_cached_layer_is_tried_in_any_chunks(chunks):
    layer = mha.MultiHeadAttention(M, 2)
    found = leaks(layer, shape=(2, N, M), is_causal=True, cache=mha.KeyValueCache, chunks=chunks)
    assert found.pairs == found.blind == {"train": [], "eval": [], "cached": []}
    loose = leaks(SeesItsChunk(M, 2), shape=(2, N, M), cache=mha.KeyValueCache, chunks=chunks)
    within = [pair for pair in all_pairs() if _chunk(pair[0], chunks) == _chunk(pair[1], chunks)]
    assert loose.pairs == {"train": all_pairs(), "eval": all_pairs(), "cached": within}


class SeesItsChunk(mha.MultiHeadAttention):
    """Each token sees the past and all of its chunk."""

    def forward(self, x, *, cache=None):
        seen = x.shape[1] + (0 if cache is None else cache.length)
        return super().forward(x, mask=torch.ones(x.shape[1], seen, dtype=torch.bool), cache=cache)


def _chunk(position, chunks):
    ends = itertools.accumulate(chunks or (2, 1, 1, 1))
    return next(c for c, end in enumerate(ends) if position < end)


class TopLeft(mha.MultiHeadAttention):
    """Behind a cache the causal mask is laid to the first keys: new words see only the beginning."""

    def forward(self, x, mask=None, *, is_causal=True, cache=None):
        q, k, v = self.project(x)
        k, v = (k, v) if cache is None else cache.update(k, v)
        corner = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
        return self.merge(self.attend(q, k, v, corner))


def test_a_causal_mask_laid_to_the_first_keys_is_blind_not_leaking():
    found = leaks(TopLeft(M, 2), shape=(2, N, M), cache=mha.KeyValueCache, chunks=(2, 2, 1))
    assert not found
    assert found.blind["train"] == found.blind["eval"] == []
    assert set(found.blind["cached"]) >= {(2, 1), (3, 2), (4, 1), (4, 2), (4, 3)}


@pytest.mark.parametrize("chunks", [(2, 2), (5, 1), (), (0, 5), (6, -1)])
def test_chunks_that_do_not_add_up_are_refused(chunks):
    with pytest.raises(ValueError, match=r"chunks .* add up to \d, but the sequence has 5 positions"):
        leaks(mha.MultiHeadAttention(M, 2), shape=(2, N, M), cache=mha.KeyValueCache, chunks=chunks)


# ---- small leaks, few bits, short sequences


def nudged(size):
    return lambda x: x + size * x.flip(1)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("leak", [1e-3, 1e-9, 1e-11])
def test_a_leak_of_a_billionth_is_found_at_any_scale_in_float64(leak, scale):
    found = leaks(lambda x: scale * nudged(leak)(x), shape=(1, 4, 3))
    assert found.pairs == {"function": [(0, 3), (1, 2)]}


def test_a_small_leak_beside_a_large_row_is_found():
    rows = torch.tensor([1.0, 1.0, 1.0, 1e9])[None, :, None]
    found = leaks(lambda x: rows * nudged(1e-9)(x), shape=(1, 4, 3))
    assert found.pairs == {"function": [(0, 3), (1, 2)]}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_functions_of_few_bits_are_tried_as_they_are(dtype):
    layer, causal = Heads().to(dtype), MaskInTrainingOnly().to(dtype).train()
    x = torch.randn(2, N, M, dtype=dtype)
    assert not leaks(lambda x: layer(x), x)
    assert not leaks(lambda x: causal(x), x)
    causal.eval()
    assert set(leaks(lambda x: causal(x), x).pairs["function"]) == set(all_pairs())


def test_rounding_is_no_leak():
    """The largest score of the whole sequence is taken away first: the last bits move with the future."""

    def stable(x):
        scores = x @ x.mT
        powers = (scores - scores.amax((1, 2), keepdim=True).clamp(max=50)).exp().tril()
        return powers @ x / powers.sum(-1, keepdim=True)

    found = leaks(stable, 0.1 * torch.randn(2, N, M))
    changed = 0.1 * torch.randn(1, N, M)
    later = changed.clone()
    later[:, -1] *= 3
    assert not torch.equal(stable(changed)[:, 0], stable(later)[:, 0])  # the bits do move
    assert not found


@pytest.mark.parametrize("n", [1, 2])
def test_short_sequences(n):
    layer = mha.MultiHeadAttention(M, 2)
    found = leaks(layer, shape=(2, n, M), is_causal=True, cache=mha.KeyValueCache)
    assert not found
    assert all(sees.tolist() == torch.ones(n, n).tril().bool().tolist() for sees in found.sees.values())
    assert bool(leaks(layer, shape=(2, n, M))) is (n > 1)


def test_an_output_that_moves_to_nan_counts_as_moved():
    found = leaks(lambda x: x / (x[:, -1:].abs() < 10), 0.1 * torch.randn(1, 3, 2))
    assert found.pairs == {"function": [(0, 2), (1, 2)]}


def test_whole_numbers_may_come_out_and_other_shapes_too():
    found = leaks(lambda x: x.cummax(1).values.argmax(-1), shape=(2, N, M))
    assert not found
    assert leaks(lambda x: x.flip(1)[..., None].expand(-1, -1, -1, 2), shape=(2, 3, M)).pairs == {"function": [(0, 2)]}


# ---- the layer is left alone


def test_the_layer_and_the_random_state_are_left_as_they_were():
    layer = MaskInTrainingOnly(dropout=0.5).float().train()
    before = {name: p.clone() for name, p in layer.state_dict().items()}
    state = torch.get_rng_state()
    leaks(layer, shape=(2, N, M))
    assert layer.training
    assert all(torch.equal(p, before[name]) and p.dtype == torch.float32 for name, p in layer.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(p.grad is None for p in layer.parameters())


def test_the_input_is_left_as_it_was_by_layers_that_write_into_it():
    x = torch.randn(1, 3, M).requires_grad_()
    before = x.detach().clone()
    assert not leaks(lambda x: x.mul_(2), x)
    assert torch.equal(x.detach(), before)


# ---- what cannot be tried is refused in words


def test_a_float32_function_is_told_to_bring_its_own_input(reader):
    layer = Heads().float()
    with pytest.raises(ValueError, match=r"cannot be called with torch\.float64 input of shape .*its own x"):
        leaks(lambda x: layer(x), shape=(2, N, M))
    assert not leaks(lambda x: layer(x), torch.randn(2, N, M, dtype=torch.float32))


def test_a_layer_that_returns_more_than_a_tensor_is_told_how_to_pick_one():
    both = nn.GRU(M, 3, batch_first=True)
    with pytest.raises(TypeError, match=r"returned a tuple.*lambda x: layer\(x\)\[0\]"):
        leaks(both, shape=(2, N, M))
    assert not leaks(lambda x: both.double()(x)[0], shape=(2, N, M))
    with pytest.raises(TypeError, match="returned a NoneType"):
        leaks(lambda x: None, shape=(2, N, M))


def test_a_layer_that_needs_more_is_told_to_give_keywords():
    def needy(x, *, how_much):
        return how_much * x

    with pytest.raises(ValueError, match=r"TypeError: .*how_much.*Keywords that it needs can be given to leaks"):
        leaks(needy, shape=(2, N, M))
    assert not leaks(needy, shape=(2, N, M), how_much=2)
    with pytest.raises(ValueError, match=r"cannot be called.*TypeError"):
        leaks(nn.MultiheadAttention(M, 2), shape=(2, N, M))


def test_a_layer_of_another_width_says_what_was_tried():
    with pytest.raises(ValueError, match=r"input of shape \(2, 6, 8\).*ValueError: query of shape"):
        leaks(mha.MultiHeadAttention(M, 2))


class Locked(Heads):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


def test_a_layer_that_cannot_be_copied_is_told_to_come_as_a_function():
    layer = Locked()
    with pytest.raises(ValueError, match=r"Locked cannot be copied .*lock.*lambda x: layer\(x\)"):
        leaks(layer, shape=(2, N, M))
    assert not leaks(lambda x: layer(x), shape=(2, N, M))


def test_a_layer_that_draws_from_elsewhere_is_refused():
    with pytest.raises(ValueError, match="answers the same input differently"):
        leaks(lambda x: x * random.random(), shape=(2, N, M))


def test_dropout_that_never_stops_is_no_obstacle():
    assert not leaks(lambda x: F.dropout(x, 0.5), shape=(2, N, M))


def test_outputs_that_are_no_numbers_are_named():
    hide = torch.ones(N, N, dtype=torch.bool).triu(1)
    hide[2] = True  # torch answers a query with nothing to look at with NaN
    with pytest.raises(ValueError, match=r"outputs \[2\] are NaN or infinite.*no other output sees the future"):
        leaks(TorchHeads(attn_mask=hide), shape=(2, N, M))


@pytest.mark.parametrize("wrong", [lambda x: x[:, 1:], lambda x: x.sum(), lambda x: x[0], lambda x: x.mean(1)])
def test_an_output_without_a_row_for_each_input_is_refused(wrong):
    with pytest.raises(ValueError, match=r"gave output \(.*one row for each input"):
        leaks(wrong, shape=(3, N, M))


def test_input_that_cannot_be_changed_a_little_is_refused(reader):
    with pytest.raises(TypeError, match=r"int64.*floating point.*embedded tokens"):
        leaks(lambda x: x, torch.ones(2, 3, 4).long())
    for shape in ((2, 0, 4), (0, 3, 4), (2, 3, 0), (4,)):
        with pytest.raises(ValueError, match=r"x has shape \(.*, but must be \(b"):
            leaks(lambda x: x, torch.zeros(shape))


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="mode 'cached': give 'train', 'eval' or both; for 'cached' give cache="):
        leaks(Heads(), shape=(2, N, M), modes=("eval", "cached"))
