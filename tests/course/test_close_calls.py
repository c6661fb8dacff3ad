"""Answers near the line: right ones that are written otherwise, and wrong ones that few inputs tell from right."""

import math

import numpy as np
import pytest
import torch

import mha
from mha.course.exercises import (
    cache_and_sharing,
    choosing,
    compress,
    depth_and_norms,
    final_project,
    in_the_transformer,
    masking,
    overwrite,
    pruning_heads,
    reading_heads,
    route,
    say_nothing,
    why_attention,
    why_many_heads,
    why_scale,
)
from mha.course.exercises.exercise import Exercise, judge
from mha.course.exercises.legal import Draw


@pytest.fixture(autouse=True)
def float32():
    """Check in the number type that a reader's notebook has."""
    torch.set_default_dtype(torch.float32)


# ---- NumPy, and changes in place


def numpy_head(x, w_q, w_k, w_v):
    x, w_q, w_k, w_v = (t.numpy() for t in (x, w_q, w_k, w_v))
    scores = (x @ w_q) @ np.swapaxes(x @ w_k, 1, 2) / w_q.shape[1] ** 0.5
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return torch.from_numpy(powers / powers.sum(-1, keepdims=True) @ (x @ w_v))


def numpy_cosines(q, k, gain):
    q, k = (t.numpy() / np.linalg.norm(t.numpy(), axis=-1, keepdims=True) for t in (q, k))
    return torch.from_numpy(gain * q @ np.swapaxes(k, 2, 3))


def numpy_step(s, k, v, beta, alpha):
    s, k, v = alpha * s.numpy(), k.numpy(), v.numpy()
    return torch.from_numpy(s + beta * np.outer(k, v - k @ s))


def numpy_absorbed(q, c, w_k, w_v):
    asked = np.einsum("hd,hrd->hr", q.numpy(), w_k.numpy())
    scores = asked @ c.numpy().T / q.shape[1] ** 0.5
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    reads = powers / powers.sum(-1, keepdims=True) @ c.numpy()
    return torch.from_numpy(np.einsum("hr,hrd->hd", reads, w_v.numpy()))


def half_numpy(z, slopes):
    found = (z * torch.from_numpy(slopes.detach().numpy())).sum((2, 3)).abs().mean(0)
    return found / found.norm()


def svd_in_place(w_k, w_v, kept):
    u, s, vt = torch.linalg.svd(torch.cat([w_k, w_v], 1), full_matrices=False)
    s[kept:] = 0
    return list((u * s @ vt).split([w_k.shape[1], w_v.shape[1]], 1))


def numpy_weights(scores, sink):
    column = np.broadcast_to(sink.detach().numpy()[:, None, None], (*scores.shape[:-1], 1))
    both = np.concatenate([scores.detach().numpy(), column], -1)
    powers = np.exp(both - both.max(-1, keepdims=True))
    return torch.from_numpy((powers / powers.sum(-1, keepdims=True))[..., :-1])


# ---- a leak detector


def detector(change=lambda word, x, j: torch.randn_like(word), least=1e-9, look=lambda y: y):
    def leaks(layer, x):
        found = []
        for j in range(x.shape[1]):
            changed = x.clone()
            changed[:, j] = change(changed[:, j], x, j)
            moved = (look(layer(changed)) - look(layer(x))).abs().amax((0, 2)) > least
            found += [(i, j) for i in range(j) if moved[i]]
        return sorted(found)

    return leaks


def by_allclose(layer, x):
    found = []
    for j in range(x.shape[1]):
        changed = x.clone()
        changed[:, j] = torch.randn_like(x[:, j])
        pairs = zip(layer(changed).unbind(1), layer(x).unbind(1), strict=True)
        found += [(i, j) for i, (a, b) in enumerate(pairs) if i < j and not torch.allclose(a, b)]
    return sorted(found)


def noise_in(*where):
    def change(word, x, j):
        word = word.clone()
        word[where] = torch.randn_like(word[where])
        return word

    return change


DETECTORS = {
    "noise": (detector(), True),
    "added noise": (detector(lambda word, x, j: word + torch.randn_like(word)), True),
    "large noise": (detector(lambda word, x, j: 30 * torch.randn_like(word)), True),
    "small noise": (detector(lambda word, x, j: word + 0.1 * torch.randn_like(word)), True),
    "uniform noise": (detector(lambda word, x, j: torch.rand_like(word)), True),
    "a smaller threshold": (detector(least=1e-12), True),
    "threshold 1e-3": (detector(least=1e-3), False),
    "threshold 1e-6": (detector(least=1e-6), False),
    "allclose": (by_allclose, False),
    "exact": (detector(least=0.0), False),
    "doubled": (detector(lambda word, x, j: 2 * word), False),
    "signs": (detector(lambda word, x, j: -word), False),
    "zeros": (detector(lambda word, x, j: 0 * word), False),
    "ones": (detector(lambda word, x, j: 0 * word + 1), False),
    "plus one": (detector(lambda word, x, j: word + 1), False),
    "the neighbor": (detector(lambda word, x, j: x[:, j - 1]), False),
    "another sequence": (detector(lambda word, x, j: word.roll(1, 0)), False),
    "channels reversed": (detector(lambda word, x, j: word.flip(-1)), False),
    "one number for all channels": (detector(lambda word, x, j: word + torch.randn_like(word[:, :1])), False),
    "first channel in": (detector(noise_in(slice(None), 0)), False),
    "last channel in": (detector(noise_in(slice(None), -1)), False),
    "first sequence in": (detector(noise_in(0)), False),
    "last sequence in": (detector(noise_in(-1)), False),
    "first channel out": (detector(look=lambda y: y[..., :1]), False),
    "last channel out": (detector(look=lambda y: y[..., -1:]), False),
    "first sequence out": (detector(look=lambda y: y[:1]), False),
    "last sequence out": (detector(look=lambda y: y[-1:]), False),
    "sum of the channels": (detector(look=lambda y: y.sum(-1, keepdim=True)), False),
    "mean of the sequences": (detector(look=lambda y: y.mean(0, keepdim=True)), False),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DETECTORS)
def test_a_leak_is_found_wherever_it_is(name):
    answer, verdict = DETECTORS[name]
    right, message = judge(masking.check_leaks, answer)
    assert right is verdict, message


@pytest.mark.parametrize("seed", [0, 1, 4, 5, 7919])
def test_what_is_drawn_is_not_what_a_reader_draws(seed):
    torch.manual_seed(seed)
    right, message = judge(masking.check_leaks, detector())
    assert right, message
    torch.manual_seed(seed)
    drawn = torch.randn(2, 3, dtype=torch.float64)
    assert not any(torch.equal(Draw(form, seed).normal(2, 3, scales=(1.0,)), drawn) for form in range(14))


def test_a_seed_that_is_set_is_told_what_to_do_instead():
    def answer(layer, x):
        torch.manual_seed(123)
        return detector()(layer, x)

    assert "torch.Generator().manual_seed(0)" in judge(masking.check_leaks, answer)[1]


# ---- one by one


def through_zeros(t, window, first):
    kept = list(range(max(0, t - window + 1), t + 1))
    kept = [*range(first), *kept] if t >= window + first else kept
    return [kept, list(range(len(kept)))[::-1]]


def over_all(top):
    def weights(scores, sink):
        largest = torch.maximum(top(scores), sink[:, None, None])
        powers = (scores - largest).exp()
        return powers / (powers.sum(-1, keepdim=True) + (sink[:, None, None] - largest).exp())

    return weights


def all_scores(q, k, v, gates):
    past = torch.ones(len(k), len(k)).tril() == 1
    weights = (q @ k.T / q.shape[1] ** 0.5).masked_fill(~past, -torch.inf).softmax(-1)
    return torch.where((gates != 0)[:, None], gates[:, None] * (weights @ v), 0.0)


def gathered(q, k, v, gates):
    rows = gates.nonzero()[:, 0]
    past = torch.ones(len(k), len(k)).tril()[rows]  # a triangle of numbers is no score
    weights = (q[rows] @ k.T / q.shape[1] ** 0.5).masked_fill(past == 0, -torch.inf).softmax(-1)
    return torch.zeros_like(q).index_add(0, rows, gates[rows, None] * (weights @ v))


def softmax_from(shift):
    def softmax(row):
        powers = [math.exp(x - shift(row)) for x in row]
        return [p / sum(powers) for p in powers]

    return softmax


def read_unshifted(q, keys, values):
    powers = [math.exp(sum(a * b for a, b in zip(q, key, strict=True)) / len(q) ** 0.5) for key in keys]
    return [
        sum(p * value[c] for p, value in zip(powers, values, strict=True)) / sum(powers) for c in range(len(values[0]))
    ]


def hidden_by(number):
    return in_the_transformer._cross(weigh=lambda s, keep: s.masked_fill(~keep[:, None, None], number).softmax(-1))


def rank_above(threshold):
    def rank(w):
        found = torch.linalg.svdvals(torch.cat(list(w), 1))
        return int((found > threshold(found)).sum())

    return rank


def looks_back(weights, upto):
    looks = weights.tril(upto)[:, 1:].argmax(-1)
    return (looks == torch.arange(looks.shape[1])).float().mean(1)


def kept_heads(w_v, w_o, heads, keep):
    return [w_v.unflatten(0, (heads, -1))[keep].flatten(0, 1), w_o.unflatten(1, (heads, -1))[:, keep].flatten(1)]


def size(layers, heads, kv_heads, d_head, batch, length, bits):
    return 2 * layers * kv_heads * d_head * batch * length * bits // 8


def cheapest(lows, costs, worse, best=None):
    for i, low in enumerate(lows):
        if low >= -worse and (best is None or costs[i] < costs[best]):
            best = i
    return best


def norm(x, gain, shift, eps, variance):
    return gain * (x - x.mean(-1, keepdim=True)) / (variance(x)[..., None] + eps).sqrt() + shift


def between(log_decay):
    g = log_decay.cumsum(0)
    return (g[:, None] - g).masked_fill(torch.ones(len(g), len(g)).triu(1) == 1, -math.inf).exp()


def weighed(q, k, mask, low):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return (scores if mask is None else scores.masked_fill(~mask, low)).softmax(-1)


def differential(weights):
    return lambda q1, k1, q2, k2, v, lam, mask: (weights(q1, k1, mask) - lam * weights(q2, k2, mask)) @ v


class AlwaysCausal(final_project.Differential):
    def forward(self, x, mask=None):
        return super().forward(x, None if mask is None else mha.causal_mask(x.shape[1]))


class TwoSequences(final_project.Differential):
    def forward(self, x, mask=None):
        return super().forward(x, mask).reshape(2, -1, x.shape[2])


class Averages(final_project.Differential):
    def forward(self, x, mask=None):
        nothing = torch.zeros(x.shape[1], dtype=torch.bool) if mask is None else ~mask.any(-1)
        return super().forward(x, None if mask is None else mask | nothing[:, None])


def run(kind):
    return lambda *case: final_project._run(kind, *case)


ROWS = {
    "numpy: attention": (why_attention.check_attention, numpy_head, True),
    "numpy: cosines": (why_scale.check_qk_norm, numpy_cosines, True),
    "numpy: a step": (overwrite.check_step, numpy_step, True),
    "numpy: latents": (compress.check_absorbed, numpy_absorbed, True),
    "numpy: one of two inputs": (pruning_heads.check_importance, half_numpy, True),
    "a change of singular values in place": (compress.check_joint, svd_in_place, True),
    "numpy where gradients are asked for": (say_nothing.check_weights, numpy_weights, False),
    "a window without the first tokens for a while": (say_nothing.check_window, through_zeros, False),
    "shifted by the largest score of the row": (say_nothing.check_weights, over_all(lambda s: s.amax(-1, True)), True),
    "shifted by the largest score of the head": (
        say_nothing.check_weights,
        over_all(lambda s: s.amax((1, 2), True)),
        False,
    ),
    "shifted by the largest score of all": (say_nothing.check_weights, over_all(lambda s: s.max()), False),
    "scores of all queries": (route.check_read, all_scores, False),
    "scores of the chosen queries": (route.check_read, gathered, True),
    "softmax: the largest": (why_attention.check_softmax, softmax_from(max), True),
    "softmax: the largest or 0": (why_attention.check_softmax, softmax_from(lambda row: max(0, *row)), False),
    "softmax: the largest magnitude": (
        why_attention.check_softmax,
        softmax_from(lambda row: max(map(abs, row))),
        False,
    ),
    "a read with a plain softmax": (why_attention.check_read, read_unshifted, True),
    "hidden by −1e9": (in_the_transformer.check_cross, hidden_by(-1e9), True),
    "hidden by −1e4": (in_the_transformer.check_cross, hidden_by(-1e4), False),
    "hidden by −100": (in_the_transformer.check_cross, hidden_by(-100.0), False),
    "rank: relative to the largest": (why_many_heads.check_rank, rank_above(lambda s: 3e-6 * s.max()), True),
    "rank: relative and coarse": (why_many_heads.check_rank, rank_above(lambda s: 1e-3 * s.max()), False),
    "rank: absolute": (why_many_heads.check_rank, rank_above(lambda s: 1e-4), False),
    "rank: not a whole number": (
        why_many_heads.check_rank,
        lambda w: float(rank_above(lambda s: 3e-6 * s.max())(w)),
        False,
    ),
    "previous: all keys": (reading_heads.check_previous, lambda w: looks_back(w, w.shape[1]), True),
    "previous: keys up to the query": (reading_heads.check_previous, lambda w: looks_back(w, 0), False),
    "cut: sorted": (pruning_heads.check_cut, lambda v, o, h, keep: kept_heads(v, o, h, sorted(keep)), True),
    "cut: sorted as texts": (
        pruning_heads.check_cut,
        lambda v, o, h, keep: kept_heads(v, o, h, sorted(keep, key=str)),
        False,
    ),
    "bytes: //": (cache_and_sharing.check_bytes, size, True),
    "bytes: /": (cache_and_sharing.check_bytes, lambda *a: 2 * a[0] * a[2] * a[3] * a[4] * a[5] * a[6] / 8, False),
    "budget: nothing fits": (choosing.check_budget, lambda w, h: max(h, choosing._widest(w, h)), False),
    "choice: the cheapest that passes": (choosing.check_choose, lambda lo, hi, c, w: cheapest(lo, c, w), True),
    "choice: layer 0 always passes": (choosing.check_choose, lambda lo, hi, c, w: cheapest(lo, c, w, best=0), False),
    "norm: torch.var": (depth_and_norms.check_norm, lambda *a: norm(*a, lambda x: x.var(-1, unbiased=False)), True),
    "norm: E[x²] − E[x]²": (
        depth_and_norms.check_norm,
        lambda *a: norm(*a, lambda x: x.square().mean(-1) - x.mean(-1).square()),
        False,
    ),
    "decays in the type that came": (overwrite.check_between, between, True),
    "decays in float32": (overwrite.check_between, lambda g: between(g.float()).to(g), False),
    "project: no weights for an empty row": (final_project.check_function, differential(mha.attention_weights), True),
    "project: NaN for an empty row": (
        final_project.check_function,
        differential(lambda *a: weighed(*a, -torch.inf)),
        False,
    ),
    "project: an average for an empty row": (
        final_project.check_function,
        differential(lambda *a: weighed(*a, -1e9)),
        False,
    ),
    "layer: always causal": (final_project.check_layer, run(AlwaysCausal), False),
    "layer: two sequences": (final_project.check_layer, run(TwoSequences), False),
    "layer: an average for an empty row": (final_project.check_layer, run(Averages), False),
}


@pytest.mark.parametrize("name", ROWS)
def test_an_answer_near_the_line_gets_the_right_verdict(name):
    exercise, answer, verdict = ROWS[name]
    right, message = judge(exercise, answer)
    assert right is verdict, message


# ---- what is said of a wrong answer that is none of the known mistakes


def example(solution, *cases):
    return Exercise(
        name="an example", solution=solution, cases=lambda: list(cases), mistakes={"nothing": lambda *_: None}
    )


SQUARES = [tuple(torch.randn(2, n, n, generator=torch.Generator().manual_seed(n)).double().unbind()) for n in (2, 3)]
LINES = example(lambda x, y: x - 2 * y.mT, *SQUARES)
COUNTS = example(lambda n, width: n * width + 3, (2, 5), (4, 7), (3, 8))
MASKS = example(lambda mask: mask[None], (torch.tensor([True, False]),), (torch.tensor([False, True, True]),))


@pytest.mark.parametrize(
    ("exercise", "answer", "said"),
    [
        (LINES, lambda x, y: y - 2 * x.mT, "`x` and `y` have changed places"),
        (LINES, lambda x, y: y - 2 * y.mT, "`y` is used in place of `x`"),
        (LINES, lambda x, y: -2 * y.mT, "`x` is left out: the result is the one for 0"),
        (LINES, lambda x, y: x + 2 * y.mT, "the sign of `y` is wrong"),
        (LINES, lambda x, y: x - 2 * y, "`y` is transposed: its last two axes have changed places"),
        (LINES, lambda x, y: x - y.mT, "`y` counts by half only"),
        (LINES, lambda x, y: 2 * y.mT - x, "the sign is wrong"),
        (LINES, lambda x, y: (x - 2 * y.mT).mT, "all matrices are transposed"),
        (LINES, lambda x, y: y + x - 2 * y.mT, "`y` is added to the result"),
        (LINES, lambda x, y: 5 * (x - 2 * y.mT), "every number is 5 times the right one"),
        (LINES, lambda x, y: (x - 2 * y.mT) / len(x) ** 1.5, "a factor is too much or missing"),
        (LINES, lambda x, y: (x - 2 * y.mT)[None], "the numbers are right, only the shape is not"),
        (COUNTS, lambda n, width: n * width + 2, "everything is one too small"),
        (COUNTS, lambda n, width: n * width + 3 + 4 * width, "the result is too large by 4 · `width`"),
        (COUNTS, lambda n, width: 3, "`n` is left out: the result is the one for 0"),
        (MASKS, lambda mask: ~mask[None], "True and False of `mask` have changed places"),
    ],
)
def test_a_wrong_answer_is_told_how_it_lies_to_the_right_one(exercise, answer, said):
    right, message = judge(exercise, answer)
    assert not right
    assert f"It looks like this: {said}" in message


@pytest.mark.parametrize(
    "answer", [lambda x, y: x * 0 + 1, lambda x, y: x.exp() - y, lambda x, y: "x", lambda x, y: [x]]
)
def test_nothing_is_said_where_nothing_fits(answer):
    assert "It looks like this" not in judge(LINES, answer)[1]
