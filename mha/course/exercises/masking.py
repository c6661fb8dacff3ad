"""Checkers: a causal mask, masked weights, two masks in one, a leak detector."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from mha.course.exercises.exercise import Exercise
from mha.course.exercises.legal import Draw
from mha.functional import masks
from mha.functional.attention import attend


def _lengths() -> list[tuple]:
    return [(3, 3), (2, 5), (1, 4), (4, 7)]


def _any_lengths(draw: Draw) -> tuple:
    queries = draw.whole(1, 6)
    return queries, queries + draw.integer(0, 4)


def _ones(i: int, j: int) -> Tensor:
    return torch.ones(i, j, dtype=torch.bool)


check_causal = Exercise(
    name="a causal mask",
    solution=masks.causal_mask,
    cases=_lengths,
    legal=_any_lengths,
    mistakes={
        "the first query is aligned with the first key; with a cache the last query is aligned with the last key": (
            lambda i, j: _ones(i, j).tril()
        ),
        "the past is hidden and the future is open: True and False are swapped": (
            lambda i, j: ~_ones(i, j).tril(j - i)
        ),
        "only the future may be seen, and the word itself: the triangle is the upper one": (
            lambda i, j: _ones(i, j).triu(j - i)
        ),
        "a word may not see itself": lambda i, j: _ones(i, j).tril(j - i - 1),
        "each word sees one word too many: the next one": lambda i, j: _ones(i, j).tril(j - i + 1),
        "nothing is hidden": _ones,
        "each word sees only itself": lambda i, j: _ones(i, j).tril(j - i).triu(j - i),
        "the triangle is mirrored: every query starts from the last key": (
            lambda i, j: _ones(i, j).tril(j - i).flip(1)
        ),
    },
    next_step="Next: from a mask to weights.",
)


def _scores() -> list[tuple]:
    random = torch.Generator().manual_seed(3)
    small = torch.tensor([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0], [3.0, 1.0, 0.0]])
    see = torch.tensor([[False, False, False], [True, True, False], [True, False, True]])  # NaN would come first
    left = masks.from_key_padding(torch.arange(6)[None] >= torch.tensor([0, 2, 5])[:, None]) & masks.causal_mask(6)
    return [
        (small, see),
        (3 * torch.randn(4, 7, generator=random), masks.causal_mask(4, 7)),
        (2 * torch.randn(3, 2, 6, 6, generator=random), left),
    ]


def _any_scores(draw: Draw) -> tuple:
    before = draw.one_of([(), (2,), (2, 3)])
    i, j = draw.whole(1, 5), draw.whole(1, 5)
    shape = draw.one_of([(*before, i, j), (i, j), (1, j), (*before, 1, j)])
    mask = draw.yes_or_no(*shape, share=draw.one_of([0.0, 0.3, 0.7, 1.0]))
    return draw.normal(*before, i, j, scales=(1.0, 10.0, 1e3, 1e10)), mask


def _weights(scores: Tensor, mask: Tensor) -> Tensor:
    return masks.hide(scores, mask).softmax(-1).masked_fill(~mask.any(-1, keepdim=True), 0)


check_weights = Exercise(
    name="masked weights",
    solution=_weights,
    cases=_scores,
    legal=_any_scores,
    mistakes={
        "the weights are erased after the softmax: the rows do not sum to one, and the future is still in their size": (
            lambda s, m: s.softmax(-1) * m
        ),
        "the hidden scores are set to 0 (or multiplied by 0), and e⁰ = 1 is not a small weight": lambda s, m: (
            s.masked_fill(~m, 0).softmax(-1)
        ),
        "a row with nothing to look at is an average of everything that is forbidden": (
            lambda s, m: s.masked_fill(~m, -1e9).softmax(-1)
        ),
        "the mask is inverted: what may be seen is hidden": lambda s, m: _weights(s, ~m),
        "the mask is added as 0 and 1": lambda s, m: (s + m).softmax(-1),
        "the softmax runs over the queries": lambda s, m: _weights(s.mT, m.mT).mT,
        "the exponentials are not divided by their sum": lambda s, m: s.exp() * m,
        "nothing is hidden": lambda s, m: s.softmax(-1) + 0 * m,
    },
    next_step="Next: a test for all of this.",
)


def _paddings() -> list[tuple]:
    end = torch.tensor([[False, False, False], [False, False, True]])
    front = torch.arange(5)[None] < torch.tensor([0, 2, 4])[:, None]
    square = torch.arange(4)[None] >= torch.tensor([4, 1, 3, 2])[:, None]
    return [(end,), (front,), (square,)]


def _any_padding(draw: Draw) -> tuple:
    return (draw.yes_or_no(draw.whole(1, 4), draw.whole(1, 6), share=draw.one_of([0.0, 0.4, 1.0])),)


def _both(padding: Tensor) -> Tensor:
    return masks.from_key_padding(~padding) & masks.causal_mask(padding.shape[1])


def _square(padding: Tensor) -> Tensor:
    return masks.causal_mask(padding.shape[1]).expand(len(padding), 1, -1, -1)


check_both = Exercise(
    name="two masks in one",
    solution=_both,
    cases=_paddings,
    legal=_any_padding,
    mistakes={
        "True of the padding was not inverted: the words are hidden and the padding is open": (
            lambda p: masks.from_key_padding(p) & masks.causal_mask(p.shape[1])
        ),
        "the future is not hidden": lambda p: masks.from_key_padding(~p).expand_as(_square(p)),
        "the padding is not hidden": lambda p: _square(p).clone(),
        "the two masks are joined by 'or': what one of them allows is allowed": (
            lambda p: masks.from_key_padding(~p) | masks.causal_mask(p.shape[1])
        ),
        "the padding is hidden as a query, not as a key: its axis is the third, not the last": (
            lambda p: (~p)[:, None, :, None] & _square(p)
        ),
        "the padding is hidden as a key and as a query: its rows become empty": (
            lambda p: (~p)[:, None, :, None] & _both(p)
        ),
        "the past is hidden instead of the future": (
            lambda p: masks.from_key_padding(~p) & masks.causal_mask(p.shape[1]).mT
        ),
        "the result says True = hide": lambda p: ~_both(p),
    },
    next_step="That is the border where most masks are lost.",
)


@dataclass(frozen=True)
class Layer:
    """A layer to be tested: a function from (b, n, m) to (b, n, m) with a name that can be printed."""

    name: str
    function: Callable[[Tensor], Tensor]

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the function."""
        return self.function(x)

    def __str__(self) -> str:
        return f"the layer “{self.name}”"


def _mixed(see: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda x: attend(x[:, None], x[:, None], x[:, None], see)[:, 0]


def _erased(x: Tensor) -> Tensor:
    return ((x @ x.mT).softmax(-1) * masks.causal_mask(x.shape[1])) @ x


def _next_alone(x: Tensor) -> Tensor:
    return x + torch.cat([x[:, 2:], x[:, :2] * 0], 1)  # every word also gets the word after the next


def _hidden_mean(x: Tensor) -> Tensor:
    centered = x - x.mean(-1, keepdim=True)
    return centered + centered.flip(1).cumsum(1).flip(1)  # what comes, without each word's mean over the channels


def _one_channel(source: int, target: int, sequence: int, size: float = 1.0) -> Callable[[Tensor], Tensor]:
    """Add to one channel of each word of one sequence another channel of the next word, times ``size``."""

    def layer(x: Tensor) -> Tensor:
        y = x.clone()
        y[sequence, :-1, target] += size * x[sequence, 1:, source]
        return y

    return layer


def _faint(x: Tensor) -> Tensor:
    return x.double() + 1e-7 * torch.cat([x[:, 1:], x[:, :1] * 0], 1)


def _subtracted(x: Tensor) -> Tensor:
    x = x.double()
    return x.sum(1, keepdim=True) - (x.flip(1).cumsum(1).flip(1) - x)  # a sum of the past, but for rounding


def _apart(x: Tensor) -> Tensor:
    ahead = torch.cat([x[:, 1:], x[:, :1] * 0], 1)
    return x + ahead - ahead.mean(0)  # the next words, without what the sequences have in common


def _plain_words(x: Tensor) -> Tensor:
    """Make the second word zeros, the third ones, and the last like the one before it."""
    x = x.clone()
    x[:, 1:2], x[:, 2:3] = 0.0, 1.0
    x[:, 3:] = x[:, -2:-1]
    return x


def _layers() -> list[tuple]:
    x = Draw(4).normal(2, 4, 3, scales=(1.0,))
    hole = masks.causal_mask(4)
    hole[1, 3] = True
    return [
        (Layer("causal attention", _mixed(masks.causal_mask(4))), x),
        (Layer("a causal mask with one hole", _mixed(hole)), x),
        (Layer("weights erased after the softmax", _erased), x),
        (Layer("the word after the next", _next_alone), x),
        (Layer("everything that comes, centered", _hidden_mean), x),
        (Layer("one channel of one sequence", _one_channel(0, 0, 0)), x),
        (Layer("another channel of another sequence", _one_channel(1, 2, 1)), x),
        (Layer("very little of the next word", _faint), x),
        (Layer("a sum of the past, by subtraction", _subtracted), x),
        (Layer("sequences apart", _apart), x),
        (
            Layer("all that comes", _mixed(masks.causal_mask(5).mT)),
            _plain_words(Draw(5).normal(2, 5, 3, scales=(1.0,))),
        ),
    ]


def _any_layer(draw: Draw) -> tuple:
    b, words, channels = draw.whole(1, 3), draw.whole(1, 5), draw.whole(2, 4)
    x = draw.normal(b, words, channels, scales=(1.0, 0.3))
    x = draw.one_of([x, _plain_words(x)])
    see = draw.yes_or_no(words, words, share=0.7) | torch.eye(words, dtype=torch.bool)
    see |= masks.causal_mask(words) if draw.chance() else see

    sign = draw.one_of([-1, 1])

    def one_way(y: Tensor) -> Tensor:  # outputs move up only, or down only
        return y + sign * torch.cat([(y - x)[:, 1:].square(), 0 * y[:, :1]], 1)

    one_channel = _one_channel(
        draw.integer(0, channels - 1), draw.integer(0, channels - 1), draw.integer(0, b - 1), draw.one_of([1.0, 1e-6])
    )
    known: dict[str, Callable[[Tensor], Tensor]] = {
        "the word after the next": _next_alone,
        "erased": _erased,
        "centered": _hidden_mean,
        "one way": one_way,
        "one channel": one_channel,
        "some mask": _mixed(see),
        "apart": _apart,
    }
    name = draw.one_of(list(known))
    return Layer(name, known[name]), x


def _moved(layer: Callable, x: Tensor, change: Callable[[Tensor, int], Tensor], least: float) -> list[list[bool]]:
    """Entry [j][i]: does output i move when input j is changed in this way?"""
    before = layer(x)
    return [
        [bool((layer(change(x.clone(), j)) - before)[:, i].abs().max() > least) for i in range(x.shape[1])]
        for j in range(x.shape[1])
    ]


def _new(x: Tensor, j: int) -> Tensor:
    x[:, j] = torch.randn(x[:, j].shape, generator=torch.Generator().manual_seed(j), dtype=x.dtype)
    return x


def _raise(x: Tensor, j: int) -> Tensor:
    x[:, j] += 1
    return x


def _from_here(x: Tensor, j: int) -> Tensor:
    x[:, j:] = _new(x.clone(), j)[:, j : j + 1]
    return x


def _doubled(x: Tensor, j: int) -> Tensor:
    x[:, j] *= 2
    return x


def _ones_there(x: Tensor, j: int) -> Tensor:
    x[:, j] = 1
    return x


def _pairs(
    layer: Callable, x: Tensor, change: Callable = _new, keep: Callable = lambda i, j: j > i, least: float = 1e-9
) -> list[tuple]:
    moved = _moved(layer, x, change, least)
    return [(i, j) for i in range(x.shape[1]) for j in range(x.shape[1]) if keep(i, j) and moved[j][i]]


check_leaks = Exercise(
    name="a leak detector",
    solution=_pairs,
    cases=_layers,
    legal=_any_layer,
    mistakes={
        "the pairs are swapped: (input, output) instead of (output, input)": (
            lambda f, x: sorted((j, i) for i, j in _pairs(f, x))
        ),
        "the past is reported too: only later inputs are leaks": lambda f, x: _pairs(f, x, keep=lambda i, j: True),
        "a word's own position is reported too": lambda f, x: _pairs(f, x, keep=lambda i, j: j >= i),
        "influence of the past is reported instead of the future": (lambda f, x: _pairs(f, x, keep=lambda i, j: j < i)),
        "only the next word is tried": lambda f, x: _pairs(f, x, keep=lambda i, j: j == i + 1),
        "only the last word is changed": lambda f, x: _pairs(f, x, keep=lambda i, j: i < j == x.shape[1] - 1),
        "all later words are changed at once, so you cannot say which of them leaks": (
            lambda f, x: _pairs(f, x, change=_from_here)
        ),
        "the same number is added to all channels of a word: a layer that centers its words does not notice": (
            lambda f, x: _pairs(f, x, change=_raise)
        ),
        "small leaks are missed: what moves by more than 1e-9 has moved": lambda f, x: _pairs(f, x, least=1e-6),
        "rounding is reported as a leak: outputs must move by more than 1e-9": lambda f, x: _pairs(f, x, least=0.0),
        "only a part is changed or compared, the first channel or the first sequence": (
            lambda f, x: _pairs(lambda y: f(y)[..., :1], x)
        ),
        "a word is only multiplied (doubled, negated, erased): a word of zeros stays what it is": (
            lambda f, x: _pairs(f, x, change=_doubled)
        ),
        "a word is replaced by ones: a word of ones stays what it is": lambda f, x: _pairs(f, x, change=_ones_there),
    },
    by_hand=True,
    next_step="Now you can test any layer.",
)
