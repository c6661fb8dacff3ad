"""Checkers: the shift by one, the masks of the three calls, cross-attention, greedy generation."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from mha.course.exercises.exercise import Exercise
from mha.course.exercises.legal import Draw

START, STOP = 1, 2


def _texts(random: torch.Generator, lengths: list[int], n: int) -> Tensor:
    """Rows of START, text, STOP, padding; the lengths count the text only."""
    rows = torch.zeros(len(lengths), n, dtype=torch.long)
    for row, length in zip(rows, lengths, strict=True):
        row[: length + 2] = torch.randint(3, 9, (length + 2,), generator=random)
        row[0], row[length + 1] = START, STOP
    return rows


def _targets() -> list[tuple]:
    random = torch.Generator().manual_seed(7)
    return [(_texts(random, lengths, n),) for lengths, n in (([2], 4), ([3, 1], 5), ([4, 6, 2], 9))]


def _any_targets(draw: Draw) -> tuple:
    n = draw.whole(2, 9)
    return (_texts(draw.generator, [draw.integer(0, n - 2) for _ in range(draw.whole(1, 4))], n),)


check_shift = Exercise(
    name="the shift by one",
    solution=lambda t: [t[:, :-1], t[:, 1:]],
    cases=_targets,
    legal=_any_targets,
    mistakes={
        "the input is shifted too: each character is asked to predict itself": lambda t: [t[:, 1:], t[:, 1:]],
        "the labels are the input: nothing has to be guessed": lambda t: [t[:, :-1], t[:, :-1]],
        "input and labels have changed places": lambda t: [t[:, 1:], t[:, :-1]],
        "the labels are two positions ahead instead of one": lambda t: [t[:, :-1], t.roll(-2, 1)[:, :-1]],
        "the labels are shifted the wrong way: the model must guess the past": lambda t: [
            t[:, :-1],
            t.roll(1, 1)[:, :-1],
        ],
        "the stop sign is not a label, so the model never learns to stop": lambda t: [
            t[:, :-1],
            t[:, 1:].masked_fill(t[:, 1:] == STOP, 0),
        ],
        "the start sign is not in the input, so the model does not know where to begin": lambda t: [
            t[:, :-1].masked_fill(t[:, :-1] == START, 0),
            t[:, 1:],
        ],
    },
    next_step="Next: what each call may see.",
)


def _two_texts() -> list[tuple]:
    random = torch.Generator().manual_seed(8)
    sizes = [([1, 3], 5, [2, 1], 4), ([4, 2, 1], 7, [1, 4, 3], 7), ([2, 2], 5, [5, 1], 8)]
    return [(_texts(random, a, j), _texts(random, b, n)) for a, j, b, n in sizes]


def _masks(edit: Callable[[list[Tensor]], list[Tensor]] = list, **how) -> Callable[[Tensor, Tensor], list[Tensor]]:
    """The three masks, made in one of several ways, some of them wrong."""

    def make(source: Tensor, target: Tensor) -> list[Tensor]:
        (b, j), n = source.shape, target.shape[1]
        corner = how.get("corner", lambda square: square.tril())(torch.ones(n, n, dtype=torch.bool))
        along = (slice(None), None, slice(None), None) if how.get("queries") else (slice(None), None, None)
        reader = target if how.get("queries") else source
        encoder = (source != 0)[along].expand(b, 1, j, j)
        return edit([encoder, (target != 0)[along] & corner, (reader != 0)[along].expand(b, 1, n, j)])

    return make


def _any_two_texts(draw: Draw) -> tuple:
    b, kinds = draw.whole(1, 3), draw.one_of([1, 3, 8])
    return draw.integers(0, kinds, b, draw.whole(1, 6)), draw.integers(0, kinds, b, draw.whole(1, 6))


check_masks = Exercise(
    name="three calls, three masks",
    solution=_masks(),
    cases=_two_texts,
    legal=_any_two_texts,
    mistakes={
        "True and False have changed places": _masks(lambda masks: [~mask for mask in masks]),
        "the padding is hidden along the queries instead of the keys": _masks(queries=True),
        "the decoder sees its future": _masks(corner=torch.ones_like),
        "the decoder sees its future instead of its past": _masks(corner=torch.triu),
        "a character of the decoder does not see itself": _masks(corner=lambda square: square.tril(-1)),
        "the encoder is causal too": _masks(lambda masks: [masks[0] & masks[0].tril(), *masks[1:]]),
        "the third call is causal, but all of the source is known from the start": _masks(
            lambda masks: [*masks[:2], masks[2] & masks[2].tril()]
        ),
        "the padding of the source is hidden in the encoder, but not in the third call": _masks(
            lambda masks: [*masks[:2], torch.ones_like(masks[2])]
        ),
        "the padding of the source is hidden in the third call, but not in the encoder": _masks(
            lambda masks: [torch.ones_like(masks[0]), *masks[1:]]
        ),
    },
    next_step="Next: the third call.",
)


def _crossings() -> list[tuple]:
    random = torch.Generator().manual_seed(9)
    cases = []
    for lengths, n, j, m in (([2], 2, 3, 4), ([3, 1], 3, 5, 6), ([2, 4, 3], 5, 5, 8)):
        x = [torch.randn(len(lengths), length, m, generator=random).double() for length in (n, j)]
        w = [torch.randn(m, m, generator=random).double() for _ in range(4)]
        cases.append((*x, *w, torch.arange(j) < torch.tensor(lengths)[:, None]))
    return cases


def _cut(x: Tensor) -> Tensor:
    return x.unflatten(-1, (2, -1)).transpose(1, 2)


def _interleaved(x: Tensor) -> Tensor:
    return x.unflatten(-1, (-1, 2)).permute(0, 3, 1, 2)


def _weigh(scores: Tensor, keep: Tensor) -> Tensor:
    return scores.masked_fill(~keep[:, None, None], -torch.inf).softmax(-1)


def _cross(
    *, weigh=_weigh, cut=_cut, scale=lambda d: math.sqrt(d), join=lambda z: z.transpose(1, 2).flatten(2)
) -> Callable[..., Tensor]:
    """Cross-attention, made in one of several ways, some of them wrong."""

    def attend(y, memory, w_q, w_k, w_v, w_o, keep):
        q, k, v = cut(y @ w_q), cut(memory @ w_k), cut(memory @ w_v)
        return join(weigh(q @ k.mT / scale(q.shape[-1]), keep) @ v) @ w_o

    return attend


_right = _cross()


def _looks_at_itself(y, _memory, w_q, w_k, w_v, w_o, _keep):
    return _right(y, y, w_q, w_k, w_v, w_o, torch.ones(y.shape[:2], dtype=torch.bool))


def _any_crossing(draw: Draw) -> tuple:
    b, n, j, m = draw.whole(1, 3), draw.whole(1, 5), draw.whole(1, 5), 2 * draw.whole(1, 4)
    w = [draw.normal(m, m, scales=(1.0, 0.5)) for _ in range(4)]
    keep = draw.yes_or_no(b, j) | (torch.arange(j) == draw.integers(0, j - 1, b, 1))  # one token at least
    return draw.normal(b, n, m, scales=(1.0, 1e5)), draw.normal(b, j, m), *w, keep  # large scores of both signs


check_cross = Exercise(
    name="cross-attention",
    solution=_right,
    cases=_crossings,
    legal=_any_crossing,
    mistakes={
        "keys and values are made from y: this is self-attention": _looks_at_itself,
        "w_k and w_v have changed places": lambda y, memory, q, k, v, o, keep: _right(y, memory, q, v, k, o, keep),
        "w_q and w_k have changed places": lambda y, memory, q, k, v, o, keep: _right(y, memory, k, q, v, o, keep),
        "the padding is not hidden": _cross(weigh=lambda scores, keep: scores.softmax(-1)),
        "only the padding is attended to: keep is inverted": _cross(weigh=lambda scores, keep: _weigh(scores, ~keep)),
        "the padding is zeroed after the softmax, so the rows no longer sum to one": _cross(
            weigh=lambda scores, keep: scores.softmax(-1) * keep[:, None, None]
        ),
        "the softmax runs over the queries": _cross(
            weigh=lambda scores, keep: scores.softmax(-2) * keep[:, None, None]
        ),
        "the scores are not divided": _cross(scale=lambda d: 1.0),
        "the scores are divided by √m instead of √d": _cross(scale=lambda d: math.sqrt(2 * d)),
        "the heads are cut from every other channel instead of from blocks": _cross(cut=_interleaved),
        "the heads are joined without putting the axes back": _cross(join=lambda z: z.reshape(len(z), z.shape[2], -1)),
        "w_o is missing": lambda y, memory, q, k, v, o, keep: _right(y, memory, q, k, v, torch.eye(len(o)).to(o), keep),
        "y is added, as a residual would": lambda y, *rest: y + _right(y, *rest),
    },
    by_hand=True,
    next_step="That is the third call.",
)


def _tables() -> list[tuple]:
    random = torch.Generator().manual_seed(11)
    cases = []
    for w, begun, length in ((5, [[0]], 4), (7, [[0], [3], [4]], 6), (9, [[1], [5], [8], [0]], 8)):
        table = torch.randn(w, w, generator=random)
        ring = torch.arange(w)
        table[ring, (ring + 2) % w] += 5  # 0, 2, 4, ...: most sequences meet the stop sign sooner or later
        cases.append((table, torch.tensor(begun), 4 if w > 5 else 2, length))
    return cases


def _write(next_word=lambda scores: scores[:, -1].argmax(-1), filled=None, ends=True, whole=False) -> Callable:
    """Greedy generation, made in one of several ways, some of them wrong."""

    def write(table, start, stop, length):
        words, done = start, torch.zeros(len(start), dtype=torch.bool)
        for _ in range(length):
            best = next_word(table[words])
            best = torch.where(done, stop if filled is None else filled, best) if ends else best
            done = done | (best == stop)
            done = done.any().expand(len(done)) if whole else done
            words = torch.cat([words, best[:, None]], 1)
        return words[:, 1:]

    return write


def _any_table(draw: Draw) -> tuple:
    words = draw.whole(2, 7)
    start = draw.integers(0, words - 1, draw.whole(1, 4), 1)
    return draw.normal(words, words).float(), start, draw.integer(0, words - 1), draw.whole(1, 8)


check_greedy = Exercise(
    name="generate until the stop sign",
    solution=_write(),
    cases=_tables,
    legal=_any_table,
    mistakes={
        "the scores of the first position are used instead of the last": _write(lambda scores: scores[:, 0].argmax(-1)),
        "a sequence goes on after its stop sign": _write(ends=False),
        "all sequences stop as soon as one does": _write(whole=True),
        "the worst token is taken": _write(lambda scores: scores[:, -1].argmin(-1)),
        "a finished sequence is padded with 0 instead of the stop sign": _write(filled=0),
        "the start is returned and the last token is not": lambda table, start, stop, length: torch.cat(
            [start, _write()(table, start, stop, length)[:, :-1]], 1
        ),
        "the table is read by columns": lambda table, *rest: _write()(table.T, *rest),
    },
    next_step="So does every model.",
)
