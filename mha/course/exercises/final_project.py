"""Checkers of the final project: a layer that is in no chapter, written from a short description.

:Taught in: the page "Final project".
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from mha.course.exercises.exercise import Exercise, folded, judge
from mha.course.exercises.legal import Draw
from mha.functional.attention import attend, attention_weights, merge_heads, split_heads
from mha.functional.masks import causal_mask


def _weights(q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    return attention_weights(q, k, mask)


def _differential(q1, k1, q2, k2, v, lam, mask):
    return (_weights(q1, k1, mask) - lam * _weights(q2, k2, mask)) @ v


def _open(mask: Tensor | None) -> Tensor | None:
    """Let a query that sees nothing see everything: the average that a large negative number leaves."""
    return None if mask is None else mask | ~mask.any(-1, keepdim=True)


def _tensors() -> list[tuple]:
    random = torch.Generator().manual_seed(21)
    cases = []
    nothing = causal_mask(4) & torch.tensor([False, True, True, True])  # the first query sees nothing
    sizes = [
        ((1, 2, 3, 4), None),
        ((2, 3, 5, 7), causal_mask(5)),
        ((2, 4, 6, 2), causal_mask(6)),
        ((3, 2, 4, 3), nothing),
    ]
    for (b, h, n, d), mask in sizes:
        q1, k1, q2, k2 = (torch.randn(b, h, n, d, generator=random, dtype=torch.float64) for _ in range(4))
        v = torch.randn(b, h, n, 2 * d, generator=random, dtype=torch.float64)
        lam = torch.rand((), generator=random, dtype=torch.float64)
        cases.append((q1, k1, q2, k2, v, lam, mask))
    return cases


def _any_tensors(draw: Draw) -> tuple:
    b, heads, n, d = draw.whole(1, 3), draw.whole(1, 4), draw.whole(1, 5), draw.whole(1, 5)
    four = [draw.normal(b, heads, n, d, scales=(1.0, 4.0)) for _ in range(4)]
    v, lam = draw.normal(b, heads, n, 2 * d, scales=(1.0, 4.0)), draw.normal(1)[0]
    return *four, v, lam, draw.one_of([None, causal_mask(n), draw.yes_or_no(n, n, share=0.5)])


check_function = Exercise(
    name="differential attention as a function",
    solution=_differential,
    cases=_tensors,
    legal=_any_tensors,
    gradients=True,
    mistakes={
        "the scores are subtracted, not the weights": lambda q1, k1, q2, k2, v, lam, mask: attend(
            q1, k1, v, mask, edit_scores=lambda s: s - lam * (q2 @ k2.mT) / q1.shape[-1] ** 0.5
        ),
        "the second map is added": lambda q1, k1, q2, k2, v, lam, mask: _differential(q1, k1, q2, k2, v, -lam, mask),
        "the second map has no mask": lambda q1, k1, q2, k2, v, lam, mask: (
            (_weights(q1, k1, mask) - lam * _weights(q2, k2, None)) @ v
        ),
        "neither map has a mask": lambda q1, k1, q2, k2, v, lam, mask: _differential(q1, k1, q2, k2, v, lam, None),
        "a query with nothing to attend to reads an average of all values; zeros are right": (
            lambda q1, k1, q2, k2, v, lam, mask: _differential(q1, k1, q2, k2, v, lam, _open(mask))
        ),
        "λ is left out": lambda q1, k1, q2, k2, v, lam, mask: _differential(q1, k1, q2, k2, v, 1.0, mask),
        "both maps use the same queries and keys": lambda q1, k1, q2, k2, v, lam, mask: _differential(
            q1, k1, q1, k1, v, lam, mask
        ),
        "negative weights are cut off": lambda q1, k1, q2, k2, v, lam, mask: (
            (_weights(q1, k1, mask) - lam * _weights(q2, k2, mask)).relu() @ v
        ),
        "the maps have changed places": lambda q1, k1, q2, k2, v, lam, mask: _differential(
            q2, k2, q1, k1, v, lam, mask
        ),
        "the rows are divided by their sum, 1 − λ": lambda q1, k1, q2, k2, v, lam, mask: (
            _differential(q1, k1, q2, k2, v, lam, mask) / (1 - lam)
        ),
    },
    next_step="Next: the layer.",
)


class Differential(nn.Module):
    """The solution of the project: attend with the difference of two maps.

    :Source: Ye et al. 2025, Differential Transformer. Each map is d_model / (2 · heads) wide, and values are twice as
        wide: the four matrices hold 4 · d_model² parameters.
    :Differs from the released code: all heads of the first map come before all heads of the second.
    """

    def __init__(self, d_model: int, heads: int, number: int) -> None:
        """Make the layer that is number 1, 2, … of its model: the number says how large λ is at initialization."""
        super().__init__()
        d, self.heads = d_model // (2 * heads), heads
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(d_model, d_model, bias=False) for _ in range(4))
        self.lambda_q1, self.lambda_k1, self.lambda_q2, self.lambda_k2 = (
            nn.Parameter(0.1 * torch.randn(d)) for _ in range(4)
        )
        self.norm = nn.RMSNorm(2 * d, eps=1e-5)
        self.start = 0.8 - 0.6 * math.exp(-0.3 * (number - 1))

    def lam(self) -> Tensor:
        """Make λ from its four vectors."""
        first, second = self.lambda_q1 @ self.lambda_k1, self.lambda_q2 @ self.lambda_k2
        return first.exp() - second.exp() + self.start

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Project, attend twice, subtract, read, bring each head to length, merge."""
        q1, q2 = (split_heads(q, self.heads) for q in self.W_q(x).chunk(2, -1))
        k1, k2 = (split_heads(k, self.heads) for k in self.W_k(x).chunk(2, -1))
        read = _differential(q1, k1, q2, k2, split_heads(self.W_v(x), self.heads), self.lam(), mask)
        return self.W_o(merge_heads(self.norm(read) * (1 - self.start)))


class _Wrong(Differential):
    """The layer with one bug."""

    bug = ""

    def __init__(self, d_model, heads, number):
        super().__init__(d_model, heads, number + (self.bug == "count"))

    def lam(self):
        """Make λ, but for the bug."""
        right = super().lam()
        return {"start": right - self.start, "signs": 2 * self.start - right}.get(self.bug, right)

    def forward(self, x, mask=None):
        """Do what the solution does, but for the bug."""
        (q1, q2), (k1, k2) = self._cut(self.W_q(x)), self._cut(self.W_k(x))
        v, d = split_heads(self.W_v(x), self.heads), q1.shape[-1]
        shrink = {"scale": (2 * self.heads) ** -0.5, "wide": 2**-0.5}.get(self.bug, 1.0)
        lam, mask = self.lam(), {"mask": None, "empty": _open(mask)}.get(self.bug, mask)
        read = _differential(q1 * shrink, k1, q2 * shrink, k2, v, lam, mask)
        if self.bug == "all":  # one norm for all heads of a token together
            joined = merge_heads(read)
            normed = joined * (joined.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
            read = split_heads(normed, self.heads) * self.norm.weight
        elif self.bug != "norm":
            read = self.norm(read)
        read = read if self.bug == "shrink" else read * (1 - self.start)
        joined = read.reshape(*x.shape[:2], 2 * d * self.heads) if self.bug == "join" else merge_heads(read)
        return joined if self.bug == "output" else self.W_o(joined)

    def _cut(self, x):
        if self.bug == "pairs":  # head by head: map 1, map 2
            return x.unflatten(-1, (self.heads, 2, -1)).permute(3, 0, 2, 1, 4)
        if self.bug == "view":
            halves = x.chunk(2, -1)
            return tuple(half.contiguous().view(len(x), self.heads, x.shape[1], -1) for half in halves)
        return tuple(split_heads(half, self.heads) for half in x.chunk(2, -1))


def _with(bug: str) -> type:
    return type("Wrong", (_Wrong,), {"bug": bug})


def _run(
    kind: Callable,
    d_model: int,
    heads: int,
    number: int,
    batch: int,
    n: int,
    mask: Tensor | None,
    seed: int,
    *,
    right: type = Differential,
) -> list[Tensor]:
    """Build a layer of some kind, give it known parameters, and call it: outputs, and the gradient of every parameter.

    The first output is that in evaluation, the second that in training.
    """
    random = torch.Generator().manual_seed(seed)
    layer = kind(d_model, heads, number).double()
    state = right(d_model, heads, number).state_dict()
    layer.load_state_dict({name: torch.randn(w.shape, generator=random).double() for name, w in state.items()})
    x = torch.randn(batch, n, d_model, generator=random).double()
    found = [layer.eval()(x, mask), layer.train()(x, mask)]
    weighed = found[1] * torch.linspace(-1, 2, found[1].numel(), dtype=torch.float64).view_as(found[1])
    if weighed.requires_grad:
        weighed.sum().backward()
    named = dict(layer.named_parameters())
    slopes = [named[name].grad if name in named else None for name in state]
    zeros = [torch.zeros_like(w).double() for w in state.values()]
    return [*(y.detach() for y in found), *(zero if s is None else s for s, zero in zip(slopes, zeros, strict=True))]


def _any_layer(draw: Draw) -> tuple:
    heads = draw.whole(1, 4)
    width = 2 * heads * draw.whole(1, 4)
    batch, n = draw.whole(1, 3), draw.whole(1, 5)
    mask = draw.one_of([None, causal_mask(n), draw.yes_or_no(n, n, share=0.5)])
    return width, heads, draw.whole(1, 9), batch, n, mask, draw.integer(0, 10**6)


class LayerExercise(Exercise):
    """An exercise whose answer is a class of layers."""

    def __call__(self, answer: Callable) -> None:
        """Check a class and print what was found."""
        right, message = judge(self, lambda *case: None if answer is None else _run(answer, *case))
        print(message if right else folded(message))


check_layer = LayerExercise(
    name="differential attention as a layer",
    solution=lambda *case: _run(Differential, *case),
    cases=lambda: [
        (8, 2, 1, 2, 3, causal_mask(3), 0),
        (12, 3, 2, 1, 5, None, 1),
        (16, 2, 5, 3, 4, causal_mask(4) & torch.tensor([False, True, True, True]), 2),  # the first query sees nothing
    ],
    legal=_any_layer,
    mistakes={
        "scaled by √d_model instead of √d": lambda *case: _run(_with("scale"), *case),
        "scaled by the square root of the values' width, √(2d)": lambda *case: _run(_with("wide"), *case),
        "a query with nothing to attend to reads an average of all values; zeros are right": (
            lambda *case: _run(_with("empty"), *case)
        ),
        "the mask is not used": lambda *case: _run(_with("mask"), *case),
        "the heads are joined without transposing back": lambda *case: _run(_with("join"), *case),
        "the heads are not normed": lambda *case: _run(_with("norm"), *case),
        "one norm over all heads; each head has its own": lambda *case: _run(_with("all"), *case),
        "the factor 1 − λ_init is missing": lambda *case: _run(_with("shrink"), *case),
        "λ_init is not added to λ": lambda *case: _run(_with("start"), *case),
        "the second pair of λ is added, the first subtracted": lambda *case: _run(_with("signs"), *case),
        "the layers are counted from 0 in λ_init; they count from 1": lambda *case: _run(_with("count"), *case),
        "W_o is missing": lambda *case: _run(_with("output"), *case),
        "the two maps are taken head by head; all heads of map 1 come first": lambda *case: _run(_with("pairs"), *case),
        "heads are cut with `view` without `transpose`": lambda *case: _run(_with("view"), *case),
    },
    next_step="Now train it on a task of your choice, beside the plain layer, with five seeds.",
)
