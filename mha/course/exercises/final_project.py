"""Checkers of the final project: a layer that is in no chapter, written from a short description.

Taught in: the page "Final project".
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from mha.course.exercises.exercise import Exercise, judge
from mha.course.exercises.legal import Draw
from mha.functional.attention import attend, attention_weights, merge_heads, split_heads
from mha.functional.masks import causal_mask


def _weights(q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    return attention_weights(q, k, mask)


def _differential(q1, k1, q2, k2, v, lam, mask):
    return (_weights(q1, k1, mask) - lam[:, None, None] * _weights(q2, k2, mask)) @ v


def _tensors() -> list[tuple]:
    random = torch.Generator().manual_seed(21)
    cases = []
    for (b, h, n, d), masked in (((1, 2, 3, 4), False), ((2, 3, 5, 7), True), ((2, 4, 6, 2), True)):
        five = [torch.randn(b, h, n, d, generator=random, dtype=torch.float64) for _ in range(5)]
        lam = torch.rand(h, generator=random, dtype=torch.float64)
        cases.append((*five, lam, causal_mask(n) if masked else None))
    return cases


def _any_tensors(draw: Draw) -> tuple:
    b, heads, n, d = draw.whole(1, 3), draw.whole(1, 4), draw.whole(1, 5), draw.whole(1, 5)
    five = [draw.normal(b, heads, n, d, scales=(1.0, 4.0)) for _ in range(5)]
    own = torch.eye(n, dtype=torch.bool)
    mask = draw.one_of([None, causal_mask(n), draw.yes_or_no(n, n, share=0.5) | own])
    return *five, draw.normal(heads), mask


check_function = Exercise(
    name="differential attention as a function",
    solution=_differential,
    cases=_tensors,
    legal=_any_tensors,
    gradients=True,
    mistakes={
        "the scores are subtracted, not the weights": lambda q1, k1, q2, k2, v, lam, mask: attend(
            q1, k1, v, mask, edit_scores=lambda s: s - lam[:, None, None] * (q2 @ k2.mT) / q1.shape[-1] ** 0.5
        ),
        "the second map is added": lambda q1, k1, q2, k2, v, lam, mask: _differential(q1, k1, q2, k2, v, -lam, mask),
        "the second map has no mask": lambda q1, k1, q2, k2, v, lam, mask: (
            (_weights(q1, k1, mask) - lam[:, None, None] * _weights(q2, k2, None)) @ v
        ),
        "neither map has a mask": lambda q1, k1, q2, k2, v, lam, mask: _differential(q1, k1, q2, k2, v, lam, None),
        "λ is left out": lambda q1, k1, q2, k2, v, lam, mask: _differential(
            q1, k1, q2, k2, v, torch.ones_like(lam), mask
        ),
        "both maps use the same queries and keys": lambda q1, k1, q2, k2, v, lam, mask: _differential(
            q1, k1, q1, k1, v, lam, mask
        ),
        "negative weights are cut off": lambda q1, k1, q2, k2, v, lam, mask: (
            (_weights(q1, k1, mask) - lam[:, None, None] * _weights(q2, k2, mask)).relu() @ v
        ),
        "the maps have changed places": lambda q1, k1, q2, k2, v, lam, mask: _differential(
            q2, k2, q1, k1, v, lam, mask
        ),
    },
    next_step="Next: the layer.",
)


class Differential(nn.Module):
    """The solution of the project: attend with the difference of two maps.

    Source: Ye et al. 2025, Differential Transformer, with one number λ for each head, without its norm and 1 − λ_init,
        and with as many heads as a plain layer.
    """

    def __init__(self, d_model: int, heads: int) -> None:
        """Make projections for two maps of queries and keys, one of values, one of the output, and λ."""
        super().__init__()
        self.heads = heads
        self.W_q, self.W_k = nn.Linear(d_model, 2 * d_model), nn.Linear(d_model, 2 * d_model)
        self.W_v, self.W_o = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.lam = nn.Parameter(torch.full((heads,), 0.5))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Project, attend twice, subtract, read, merge."""
        q1, q2 = (split_heads(q, self.heads) for q in self.W_q(x).chunk(2, -1))
        k1, k2 = (split_heads(k, self.heads) for k in self.W_k(x).chunk(2, -1))
        v = split_heads(self.W_v(x), self.heads)
        return self.W_o(merge_heads(_differential(q1, k1, q2, k2, v, self.lam, mask)))


class _Wrong(Differential):
    """The layer with one fault."""

    fault = ""

    def forward(self, x, mask=None):
        """Do what the solution does, but for the fault."""
        (q1, q2), (k1, k2), v = (
            self._cut(self.W_q(x)),
            self._cut(self.W_k(x)),
            split_heads(self.W_v(x), self.heads),
        )
        shrink = self.heads**-0.5 if self.fault == "scale" else 1.0
        read = _differential(q1 * shrink, k1, q2 * shrink, k2, v, self.lam, None if self.fault == "mask" else mask)
        joined = read.reshape(x.shape) if self.fault == "join" else merge_heads(read)
        return joined if self.fault == "output" else self.W_o(joined)

    def _cut(self, x):
        pairs = x.unflatten(-1, (self.heads, 2, -1)).transpose(1, 2)
        if self.fault == "pairs":  # head by head: map 1, map 2
            return pairs[..., 0, :], pairs[..., 1, :]
        if self.fault == "view":
            halves = x.chunk(2, -1)
            return tuple(half.contiguous().view(len(x), self.heads, x.shape[1], -1) for half in halves)
        return tuple(split_heads(half, self.heads) for half in x.chunk(2, -1))


def _with(fault: str) -> type:
    return type("Wrong", (_Wrong,), {"fault": fault})


def _run(
    kind: Callable, d_model: int, heads: int, n: int, masked: bool, seed: int, *, right: type = Differential
) -> list[Tensor]:
    """Build a layer of some kind, give it known weights, and call it: outputs, and the gradient of every weight.

    The first output is that in evaluation, the second that in training.
    """
    random = torch.Generator().manual_seed(seed)
    layer = kind(d_model, heads).double()
    state = right(d_model, heads).state_dict()
    layer.load_state_dict({name: torch.randn(w.shape, generator=random).double() for name, w in state.items()})
    x = torch.randn(2, n, d_model, generator=random).double()
    mask = causal_mask(n) if masked else None
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
    return heads * draw.whole(1, 4), heads, draw.whole(1, 5), draw.chance(), draw.integer(0, 10**6)


class LayerExercise(Exercise):
    """An exercise whose answer is a class of layers."""

    def __call__(self, answer: Callable) -> None:
        """Check a class and print what was found."""
        print(judge(self, lambda *case: None if answer is None else _run(answer, *case))[1])


check_layer = LayerExercise(
    name="differential attention as a layer",
    solution=lambda *case: _run(Differential, *case),
    cases=lambda: [(4, 2, 3, False, 0), (6, 3, 5, True, 1), (8, 2, 4, True, 2)],
    legal=_any_layer,
    mistakes={
        "scaled by √d_model instead of √d_head": lambda *case: _run(_with("scale"), *case),
        "the mask is not used": lambda *case: _run(_with("mask"), *case),
        "the heads are joined without transposing back": lambda *case: _run(_with("join"), *case),
        "W_o is missing": lambda *case: _run(_with("output"), *case),
        "the two maps are taken head by head; all heads of map 1 come first": lambda *case: _run(_with("pairs"), *case),
        "heads are cut with `view` without `transpose`": lambda *case: _run(_with("view"), *case),
    },
    next_step="Now train it on a task of your choice, beside the plain layer, with five seeds.",
)
