"""What the tests compare with: the plain-Python oracle on tensors, its slopes, and the distance of two results."""

import itertools
import math
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from mha import reference

LIMIT = 1e-12


def error(found: Tensor | Sequence[Tensor], right: Tensor | Sequence[Tensor]) -> float:
    """The largest difference, relative to the largest number; a NaN is an infinite error."""
    found, right = ([t.detach() for t in ([x] if isinstance(x, Tensor) else x)] for x in (found, right))
    assert [x.shape for x in found] == [x.shape for x in right]
    size = max(max(float(x.abs().max()) for x in right), 1e-300)
    apart = max(float((a - b).abs().nan_to_num(nan=math.inf).max()) for a, b in zip(found, right, strict=True))
    return 0.0 if apart == 0 else apart / size


def by_hand(function, *tensors: Tensor, mask: Tensor | None = None, **how) -> Tensor:
    """Call an oracle function for each batch entry and each head, and put the results together."""
    outer = tensors[0].shape[:-2]
    full = None if mask is None else mask.expand(*outer, tensors[0].shape[-2], tensors[1].shape[-2])
    rows = []
    for place in itertools.product(*map(range, outer)):
        given = None if full is None else full[place].tolist()
        rows.append(torch.tensor(function(*(t[place].tolist() for t in tensors), mask=given, **how)))
    return torch.stack(rows).reshape(*outer, *rows[0].shape)


class Dual:
    """A number and its slope: a + b·ε with ε² = 0. The oracle run on these numbers differentiates itself."""

    def __init__(self, value: float, slope: float = 0.0):
        self.value, self.slope = value, slope

    def __add__(self, other):
        other = dual(other)
        return Dual(self.value + other.value, self.slope + other.slope)

    def __mul__(self, other):
        other = dual(other)
        return Dual(self.value * other.value, self.slope * other.value + self.value * other.slope)

    def __sub__(self, other):
        return self + dual(other) * -1.0

    def __rsub__(self, other):
        return dual(other) - self

    def __truediv__(self, other):
        other = dual(other)
        ratio = self.value / other.value
        return Dual(ratio, (self.slope - ratio * other.slope) / other.value)

    def __gt__(self, other):
        return self.value > dual(other).value

    def __lt__(self, other):
        return self.value < dual(other).value

    __radd__, __rmul__ = __add__, __mul__


def dual(x) -> Dual:
    return x if isinstance(x, Dual) else Dual(x)


def slope_by_hand(function, tensors: Sequence[Tensor], directions: Sequence[Tensor], weight: Tensor):
    """How fast the weighted sum of the oracle's output grows when the tensors (n, m) move in the given directions."""

    def exp(x):
        power = math.exp(dual(x).value)
        return Dual(power, power * dual(x).slope)

    moving = [
        [[Dual(*pair) for pair in zip(*rows, strict=True)] for rows in zip(t.tolist(), d.tolist(), strict=True)]
        for t, d in zip(tensors, directions, strict=True)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "math", SimpleNamespace(exp=exp, sqrt=math.sqrt, inf=math.inf))
        output = function(*moving)
    return sum(
        dual(y).slope * w
        for row, weights in zip(output, weight.tolist(), strict=True)
        for y, w in zip(row, weights, strict=True)
    )
