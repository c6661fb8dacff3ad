"""Checkers: one step of the gated delta rule, decay between two tokens, chunks of linear attention and of deltas."""

import math

import torch
from torch import Tensor

from mha.course.exercises.exercise import Exercise
from mha.course.exercises.legal import Draw


def _unit(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True)


def _steps() -> list[tuple]:
    random = torch.Generator().manual_seed(24)
    cases = []
    for d, c, beta, alpha in ((2, 3, 1.0, 1.0), (3, 2, 0.5, 0.8), (4, 4, 0.9, 0.3)):
        s, k, v = (torch.randn(*shape, generator=random).double() for shape in ((d, c), (d,), (c,)))
        cases.append((s, _unit(k), v, beta, alpha))
    return cases


def _step(s: Tensor, k: Tensor, v: Tensor, beta: float, alpha: float) -> Tensor:
    s = alpha * s
    return s + beta * k[:, None] * (v - k @ s)


def _any_step(draw: Draw) -> tuple:
    d, c = draw.whole(1, 5), draw.whole(1, 5)
    return draw.normal(d, c), _unit(draw.normal(d)), draw.normal(c), draw.number(0.0, 1.0), draw.number(0.0, 1.0)


check_step = Exercise(
    name="one step of the gated delta rule",
    solution=_step,
    cases=_steps,
    legal=_any_step,
    mistakes={
        "the decay comes too late: the key reads the state before it has decayed": lambda s, k, v, b, a: (
            a * s + b * k[:, None] * (v - k @ s)
        ),
        "the correction decays too: α must multiply S before the token is written": lambda s, k, v, b, a: (
            a * (s + b * k[:, None] * (v - k @ s))
        ),
        "nothing is erased: the value is added": lambda s, k, v, b, a: a * s + b * k[:, None] * v,
        "nothing decays": lambda s, k, v, b, a: s + b * k[:, None] * (v - k @ s),
        "β is left out": lambda s, k, v, b, a: a * s + k[:, None] * (v - a * (k @ s)),
        "β multiplies the value only, and the old value is erased as a whole": lambda s, k, v, b, a: (
            a * s + k[:, None] * (b * v - a * (k @ s))
        ),
        "the sign of the correction is wrong": lambda s, k, v, b, a: a * s - b * k[:, None] * (v - a * (k @ s)),
        "the whole state is replaced": lambda s, k, v, b, a: b * k[:, None] * (v - a * (k @ s)),
        "the old value is added, it should be taken away": lambda s, k, v, b, a: (
            a * s + b * k[:, None] * (v + a * (k @ s))
        ),
        "β erases the whole state, not only what the key reads": lambda s, k, v, b, a: (
            (1 - b) * a * s + b * k[:, None] * v
        ),
    },
    next_step="Next: the decay between two tokens, without NaN.",
)


def _logs() -> list[tuple]:
    random = torch.Generator().manual_seed(25)
    mild = torch.rand(5, generator=random).double().log()
    return [(mild,), (torch.rand(3, generator=random).double().log() - 1,), (torch.full((12,), -90.0).double(),)]


def _between(log_decay: Tensor) -> Tensor:
    sums = log_decay.cumsum(0)
    exponents = sums[:, None] - sums
    past = torch.ones_like(exponents).tril() == 1
    return exponents.masked_fill(~past, -math.inf).exp()


def _any_logs(draw: Draw) -> tuple:
    n, strong = draw.whole(1, 14), draw.one_of([1.0, 100.0, 1000.0])
    return (
        -(strong ** draw.integers(0, 1, n)) * draw.uniform(n, high=draw.one_of([0.1, 1.0])),
    )  # mild and strong ones


check_between = Exercise(
    name="the decay between two tokens",
    solution=_between,
    cases=_logs,
    legal=_any_logs,
    mistakes={
        "rows and columns are exchanged": lambda g: _between(g).T,
        "the future is not hidden": lambda g: (g.cumsum(0)[:, None] - g.cumsum(0)).clamp(max=0).exp(),
        "the diagonal is hidden too, but a token reads its own value": lambda g: _between(g).tril(-1),
        "the decay of token j is counted: only those after it lower it": lambda g: _between(g) * g.exp(),
        "the decay of token i is left out: the state decays before it is read": lambda g: (
            ((g.cumsum(0) - g)[:, None] - g.cumsum(0)).clamp(max=0).tril().exp().tril()
        ),
        "only the decay of token i is counted, not those of the tokens between": lambda g: (
            g.exp()[:, None].expand(-1, len(g)).tril()
        ),
        "the logarithms are returned, not the shares": lambda g: (g.cumsum(0)[:, None] - g.cumsum(0)).tril(),
        "the decays are added, not their logarithms": lambda g: (
            (g.exp().cumsum(0)[:, None] - g.exp().cumsum(0)).tril() + torch.eye(len(g)).to(g)
        ),
    },
    next_step="Next: from chunk to chunk.",
)


def _chunks() -> list[tuple]:
    random = torch.Generator().manual_seed(26)
    sizes = [(3, 2, 2), (4, 3, 2), (1, 2, 5)]
    return [
        tuple(torch.randn(*shape, generator=random).double() for shape in ((n, d), (n, d), (n, c), (d, c)))
        for n, d, c in sizes
    ]


def _chunk(q: Tensor, k: Tensor, v: Tensor, s: Tensor) -> list[Tensor]:
    inside = (q @ k.T).tril()
    return [q @ s + inside @ v, s + k.T @ v]


def _any_chunk(draw: Draw) -> tuple:
    n, d, c = draw.whole(1, 6), draw.whole(1, 4), draw.whole(1, 4)
    return draw.normal(n, d), draw.normal(n, d), draw.normal(n, c), draw.normal(d, c)


check_chunk = Exercise(
    name="one chunk of linear attention",
    solution=_chunk,
    cases=_chunks,
    legal=_any_chunk,
    mistakes={
        "the tokens of the chunk see each other's future": lambda q, k, v, s: [q @ s + q @ k.T @ v, s + k.T @ v],
        "a token does not read its own value": lambda q, k, v, s: [q @ s + (q @ k.T).tril(-1) @ v, s + k.T @ v],
        "the earlier chunks are not read": lambda q, k, v, s: [(q @ k.T).tril() @ v, s + k.T @ v],
        "the chunk itself is not read": lambda q, k, v, s: [q @ s, s + k.T @ v],
        "the chunk is read twice: once from the new state, once inside": lambda q, k, v, s: [
            q @ (s + k.T @ v) + (q @ k.T).tril() @ v,
            s + k.T @ v,
        ],
        "the state forgets the earlier chunks": lambda q, k, v, s: [q @ s + (q @ k.T).tril() @ v, k.T @ v],
        "the state is not written": lambda q, k, v, s: [q @ s + (q @ k.T).tril() @ v, s],
        "only the last token is written into the state": lambda q, k, v, s: [
            q @ s + (q @ k.T).tril() @ v,
            s + k[-1:].T @ v[-1:],
        ],
        "past and future are exchanged": lambda q, k, v, s: [q @ s + (q @ k.T).triu() @ v, s + k.T @ v],
        "the scores are divided by √d: linear attention has no such scale": lambda q, k, v, s: [
            q @ s + (q @ k.T).tril() @ v / q.shape[1] ** 0.5,
            s + k.T @ v,
        ],
        "there is a softmax: linear attention has none": lambda q, k, v, s: [
            q @ s + (q @ k.T).softmax(-1).tril() @ v,
            s + k.T @ v,
        ],
        "queries and keys are exchanged inside the chunk": lambda q, k, v, s: [
            q @ s + (k @ q.T).tril() @ v,
            s + k.T @ v,
        ],
        "the queries are written into the state, not the keys": lambda q, k, v, s: [
            q @ s + (q @ k.T).tril() @ v,
            s + q.T @ v,
        ],
    },
    next_step="That is the core of every fast linear attention layer. Next: tokens that correct each other.",
)


def _delta_chunks() -> list[tuple]:
    random = torch.Generator().manual_seed(27)
    cases = []
    for n, d, c in ((4, 3, 2), (6, 2, 3), (1, 2, 5)):
        q, k, v, s = (torch.randn(*shape, generator=random).double() for shape in ((n, d), (n, d), (n, c), (d, c)))
        cases.append((q, _unit(k), v, torch.rand(n, generator=random).double(), s))
    return cases


def _delta_chunk(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, s: Tensor) -> list[Tensor]:
    system = torch.eye(len(k)).to(k) + (beta[:, None] * k @ k.T).tril(-1)
    written = torch.linalg.solve_triangular(system, beta[:, None] * (v - k @ s), upper=False)
    return _written(q, k, s, written)


def _written(q: Tensor, k: Tensor, s: Tensor, written: Tensor) -> list[Tensor]:
    return [q @ s + (q @ k.T).tril() @ written, s + k.T @ written]


def _solved(system: Tensor, right: Tensor) -> Tensor:
    return torch.linalg.solve_triangular(torch.eye(len(right)).to(right) + system, right, upper=False)


def _any_delta_chunk(draw: Draw) -> tuple:
    n, d, c = draw.whole(1, 6), draw.whole(1, 4), draw.whole(1, 4)
    return draw.normal(n, d), _unit(draw.normal(n, d)), draw.normal(n, c), draw.uniform(n), draw.normal(d, c)


check_delta_chunk = Exercise(
    name="one chunk of the delta rule",
    solution=_delta_chunk,
    cases=_delta_chunks,
    legal=_any_delta_chunk,
    mistakes={
        "the tokens of the chunk do not correct each other: the system is left out": lambda q, k, v, b, s: _written(
            q, k, s, b[:, None] * (v - k @ s)
        ),
        "nothing is erased: the values are added, as in linear attention": lambda q, k, v, b, s: _written(
            q, k, s, b[:, None] * v
        ),
        "the values are written as they are: this is linear attention": lambda q, k, v, b, s: _written(q, k, s, v),
        "what the state holds already is not taken away": lambda q, k, v, b, s: _written(
            q, k, s, _solved((b[:, None] * k @ k.T).tril(-1), b[:, None] * v)
        ),
        "β is missing in the system": lambda q, k, v, b, s: _written(
            q, k, s, _solved((k @ k.T).tril(-1), b[:, None] * (v - k @ s))
        ),
        "β is missing on the right side": lambda q, k, v, b, s: _written(
            q, k, s, _solved((b[:, None] * k @ k.T).tril(-1), v - k @ s)
        ),
        "β multiplies the columns of the system: it belongs to the rows": lambda q, k, v, b, s: _written(
            q, k, s, _solved((b * (k @ k.T)).tril(-1), b[:, None] * (v - k @ s))
        ),
        "the system holds the diagonal twice: tril(…, -1) leaves it out": lambda q, k, v, b, s: _written(
            q, k, s, _solved((b[:, None] * k @ k.T).tril(), b[:, None] * (v - k @ s))
        ),
        "the system is multiplied by the right side, not solved": lambda q, k, v, b, s: _written(
            q, k, s, (torch.eye(len(k)).to(k) + (b[:, None] * k @ k.T).tril(-1)) @ (b[:, None] * (v - k @ s))
        ),
        "the sign of the system is wrong: what others have written is added": lambda q, k, v, b, s: _written(
            q, k, s, _solved(-(b[:, None] * k @ k.T).tril(-1), b[:, None] * (v - k @ s))
        ),
        "the earlier chunks are not read": lambda q, k, v, b, s: [
            (q @ k.T).tril() @ _solved((b[:, None] * k @ k.T).tril(-1), b[:, None] * (v - k @ s)),
            _delta_chunk(q, k, v, b, s)[1],
        ],
        "the state forgets the earlier chunks": lambda q, k, v, b, s: [
            _delta_chunk(q, k, v, b, s)[0],
            _delta_chunk(q, k, v, b, s)[1] - s,
        ],
        "the tokens of the chunk see each other's future": lambda q, k, v, b, s: [
            q @ _delta_chunk(q, k, v, b, s)[1],
            _delta_chunk(q, k, v, b, s)[1],
        ],
        "a token does not read its own value": lambda q, k, v, b, s: [
            q @ s + (q @ k.T).tril(-1) @ _solved((b[:, None] * k @ k.T).tril(-1), b[:, None] * (v - k @ s)),
            _delta_chunk(q, k, v, b, s)[1],
        ],
    },
    next_step="That is the core of every fast layer with the delta rule.",
)
