"""Checkers: importance, a cut, the chance that a gate is open, the patient search."""

import math

from mha.course.exercises.plain.draw import Draw
from mha.course.exercises.plain.judge import Plain


def _losses() -> list[tuple]:
    """Losses for every choice of heads, as a list: redundant heads, ties, and random numbers."""
    standins = [4.0, 1.0, 1.1, 0.9, 3.5, 0.8, 0.7, 0.5]
    ties = [3.0, 2.0, 2.0, 1.0, 2.0, 1.0, 1.0, 0.0]
    drawn = Draw(6)
    return [(standins,), (ties,)] + [([drawn.number(0.0, 1.0) for _ in range(2**h)],) for h in (3, 4, 5)]


def _heads(loss: list[float]) -> int:
    return round(math.log(len(loss), 2))


def _search(loss: list[float], pick=min, *, last: bool = False) -> list[int]:
    """Remove heads one at a time; ``last`` prefers the larger number of equals."""
    speaking, gone = len(loss) - 1, []
    left = list(range(_heads(loss)))
    while left:
        gone.append(pick(left[::-1] if last else left, key=lambda h: loss[speaking - 2**h]))
        left.remove(gone[-1])
        speaking -= 2 ** gone[-1]
    return gone


def _ranked(loss: list[float], key) -> list[int]:
    return sorted(range(_heads(loss)), key=key)


def _grown(loss: list[float]) -> list[int]:
    """Add heads one at a time, the most useful first."""
    speaking, came = 0, []
    left = list(range(_heads(loss)))
    while left:
        came.append(min(left, key=lambda h: loss[speaking + 2**h]))
        left.remove(came[-1])
        speaking += 2 ** came[-1]
    return came


def _any_losses(draw: Draw) -> tuple:
    choices = 2 ** draw.whole(1, 5)
    most = draw.one_of([1, 2, 5])
    ties = [float(draw.integer(0, most)) for _ in range(choices)]
    return (draw.one_of([draw.normals(choices), [draw.number(0.0, 1.0) for _ in range(choices)], ties]),)


check_order = Plain(
    name="the patient search",
    solution=_search,
    cases=_losses,
    legal=_any_losses,
    mistakes={
        "each head is measured once: nothing is measured again after a removal": (
            lambda loss: _ranked(loss, lambda h: loss[len(loss) - 1 - 2**h])
        ),
        "the head with the largest damage is removed first": lambda loss: _search(loss, max),
        "the order is reversed: the last to be removed is first": lambda loss: _search(loss)[::-1],
        "each head is judged by the loss when it alone is active, worst first": (
            lambda loss: _ranked(loss, lambda h: -loss[2**h])
        ),
        "each head is judged by the loss when it alone is active, best first": lambda loss: _ranked(
            loss, lambda h: loss[2**h]
        ),
        "heads are added one by one, not removed": _grown,
        "heads are added one by one and the order is reversed": lambda loss: _grown(loss)[::-1],
        "of two equals the one with the larger number is removed": lambda loss: _search(loss, last=True),
        "heads are removed in the order of their numbers": lambda loss: list(range(_heads(loss))),
    },
    next_step="Next: what heads cost.",
)
