"""Checkers: the longest chain, the memory vector of a step, scores that know the distance, the loop."""

import torch

from mha.course.exercises.exercise import Exercise
from mha.course.exercises.legal import Draw
from mha.course.exercises.plain import feed_back as plain

check_chain = Exercise(**vars(plain.check_chain))


def _memory(states, w):
    return torch.einsum("l,lbm->bm", w.softmax(0), states)


def _states() -> list[tuple]:
    random = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(levels, 2, 4, generator=random, dtype=torch.float64),
            torch.randn(levels, generator=random, dtype=torch.float64),
        )
        for levels in (2, 3, 5)
    ]


def _any_states(draw: Draw) -> tuple:
    levels = draw.whole(1, 6)
    states = draw.normal(levels, draw.whole(1, 4), draw.whole(1, 5), scales=(1.0, 100.0))
    return states, draw.normal(levels, scales=(1.0, 4.0)) + draw.one_of([0.0, 800.0])


check_memory = Exercise(
    name="the memory vector of a step",
    solution=_memory,
    cases=_states,
    legal=_any_states,
    mistakes={
        "the raw numbers are the weights: they need not sum to 1": lambda s, w: torch.einsum("l,lbm->bm", w, s),
        "all levels count alike: w is not used": lambda s, w: s.mean(0),
        "only the top is kept": lambda s, w: s[-1],
        "only the input is kept": lambda s, w: s[0],
        "the input is left out: it is level 0": lambda s, w: _memory(s[1:], w[1:]),
        "the top is left out": lambda s, w: _memory(s[:-1], w[:-1]),
        "the weights are in reverse order": lambda s, w: _memory(s.flip(0), w),
        "divided by the number of levels once more": lambda s, w: _memory(s, w) / len(w),
        "a sigmoid for each level: the weights do not sum to 1": lambda s, w: torch.einsum("l,lbm->bm", w.sigmoid(), s),
        "softmax of −w: the largest number gets the least": lambda s, w: _memory(s, -w),
        "softmax over the states instead of w": lambda s, w: (s.softmax(0) * s).sum(0),
        "divided by the sum, without the exponential": lambda s, w: torch.einsum("l,lbm->bm", w / w.sum(), s),
        "only the level with the largest number is kept": lambda s, w: s[int(w.argmax())],
        "all levels are summed": lambda s, w: s.sum(0),
        "the largest over the levels, in each channel": lambda s, w: s.amax(0),
    },
    next_step="So a memory vector is a mixture.",
)


def _weights(q, k, u, U, b, *, rows=None, asks=None, scale=None, weigh=lambda scores: scores.softmax(0)):
    rows = torch.arange(len(k)).flip(0) if rows is None else rows
    scores = k @ (q + u) + U[rows] @ (q if asks is None else asks) + b[rows]
    return weigh(scores / (len(q) ** 0.5 if scale is None else scale))


def _apart(q, k, u, U, b, *, tables):
    """Divide the product of query and key, and of the tables only what ``tables`` says."""
    rows, root = torch.arange(len(k)).flip(0), len(q) ** 0.5
    parts = {"U": U[rows] @ q, "b": b[rows]}
    rest = sum(part / (root if name in tables else 1) for name, part in parts.items())
    return (k @ (q + u) / root + rest).softmax(0)


def _tables() -> list[tuple]:
    random = torch.Generator().manual_seed(2)

    def draw(*shape):
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    return [(draw(d), draw(t, d), draw(d), draw(steps, d), draw(steps)) for d, t, steps in ((4, 3, 6), (3, 5, 9))]


def _any_tables(draw: Draw) -> tuple:
    d, t = draw.whole(1, 6), draw.whole(1, 6)
    steps = t + draw.whole(0, 4)
    q, k, u = draw.normal(d), draw.normal(t, d, scales=(1.0, 4.0)), draw.normal(d)
    return q, k, u, draw.normal(steps, d), draw.normal(steps, scales=(1.0, 3.0))


check_weights = Exercise(
    name="how far back is it",
    solution=_weights,
    cases=_tables,
    legal=_any_tables,
    mistakes={
        "the rows are counted from the oldest memory vector": lambda q, k, *rest: _weights(
            q, k, *rest, rows=torch.arange(len(k))
        ),
        "the newest memory vector got the last row: here it has row 0": lambda q, k, u, U, b: _weights(
            q, k, u, U, b, rows=torch.arange(len(U))[-len(k) :]
        ),
        "the newest memory vector is 0 steps back, not 1": lambda q, k, *rest: _weights(
            q, k, *rest, rows=torch.arange(1, len(k) + 1).flip(0)
        ),
        "u is left out": lambda q, k, u, U, b: _weights(q, k, 0 * u, U, b),
        "u is multiplied by the table, too: there the query is alone": lambda q, k, u, U, b: _weights(
            q, k, u, U, b, asks=q + u
        ),
        "U is left out": lambda q, k, u, U, b: _weights(q, k, u, 0 * U, b),
        "b is left out": lambda q, k, u, U, b: _weights(q, k, u, U, 0 * b),
        "b is not divided by √d": lambda *given: _apart(*given, tables="U"),
        "only the product with the key is divided by √d": lambda *given: _apart(*given, tables=""),
        "nothing is divided by √d": lambda *given: _weights(*given, scale=1.0),
        "divided by d": lambda q, *rest: _weights(q, *rest, scale=len(q)),
        "divided by √ of the number of memory vectors": lambda q, k, *rest: _weights(q, k, *rest, scale=len(k) ** 0.5),
        "no softmax: these are the scores": lambda *given: _weights(*given, weigh=lambda scores: scores),
    },
    next_step="Next: the loop.",
)


def _loop(words, W, w, *, seen="mix", first=None, ask="state", stay=True, raw=False, power=0.5, top=True):
    memories, inputs, tops = [] if first is None else [first], [[] for _ in W], []
    share = w if raw else w.softmax(0)
    for x in words:
        states = [x]
        for map_, own in zip(W, inputs, strict=True):
            own.append(states[-1])
            rows = {"own": own, "self": [*memories, x], "newest": memories[-1:]}.get(seen, memories)
            read = _read(x if ask == "word" else states[-1], rows, map_, power)
            states.append((states[-1] if stay else 0) + read)
        kept = {"top": states[-1], "bottom": x}.get(seen)
        memories.append(torch.stack(states, -1) @ share if kept is None else kept)
        tops.append(states[-1] if top else memories[-1])
    return torch.stack(tops)


def _read(x, rows, map_, power):
    if not rows:
        return torch.zeros_like(x)
    memory = torch.stack(rows)
    return (memory @ x / len(x) ** power).softmax(0) @ memory @ map_


def _texts() -> list[tuple]:
    random = torch.Generator().manual_seed(3)

    def draw(*shape):
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    return [(draw(n, m), draw(layers, m, m) / 2, draw(layers + 1)) for n, m, layers in ((3, 2, 2), (6, 3, 3))]


def _any_text(draw: Draw) -> tuple:
    m, layers = draw.whole(1, 4), draw.whole(1, 4)
    words = draw.normal(draw.whole(1, 5), m, scales=(1.0, 0.3))
    return words, draw.normal(layers, m, m, scales=(0.5,)), draw.normal(layers + 1)


check_loop = Exercise(
    name="the loop",
    solution=_loop,
    cases=_texts,
    legal=_any_text,
    mistakes={
        "every layer attends to its own inputs: the plain stack": lambda *given: _loop(*given, seen="own"),
        "the token attends to itself, too": lambda *given: _loop(*given, seen="self"),
        "only the newest memory vector is attended to": lambda *given: _loop(*given, seen="newest"),
        "only the top goes into the memory vector": lambda *given: _loop(*given, seen="top"),
        "only the input goes into the memory vector": lambda *given: _loop(*given, seen="bottom"),
        "the raw numbers are the weights of the mixture": lambda *given: _loop(*given, raw=True),
        "a row of zeros is first among the memory vectors, and takes weight": lambda words, *rest: _loop(
            words, *rest, first=torch.zeros_like(words[0])
        ),
        "the query of upper layers is the token, not what the layer below made of it": lambda *given: _loop(
            *given, ask="word"
        ),
        "the attention output is not added to the state": lambda *given: _loop(*given, stay=False),
        "the layers come in the wrong order": lambda words, W, w: _loop(words, W.flip(0), w),
        "the weights of the mixture are in reverse order": lambda words, W, w: _loop(words, W, w.flip(0)),
        "the scores are not divided by √m": lambda *given: _loop(*given, power=0.0),
        "the scores are divided by m, not by its square root": lambda *given: _loop(*given, power=1.0),
        "the memory vectors are returned, not the top states": lambda *given: _loop(*given, top=False),
    },
    next_step="That is the whole stack, without norms and feed-forward parts.",
)
