"""Checkers: weights with a sink, the same after a fused kernel, and what a window keeps."""

from mha.course.exercises.plain.draw import Draw
from mha.course.exercises.plain.judge import Plain


def _kept(t: int, window: int, first: int) -> list:
    kept = [j for j in range(t + 1) if j < first or j > t - window]
    return [kept, [len(kept) - 1 - place for place in range(len(kept))]]


def _all_but(keep):
    """Keep other tokens, and count the distances right."""

    def answer(t: int, window: int, first: int) -> list:
        kept = [j for j in range(t + 1) if keep(j, t, window, first)]
        return [kept, [len(kept) - 1 - place for place in range(len(kept))]]

    return answer


def _any_window(draw: Draw) -> tuple:
    window, first = draw.whole(1, 6), draw.whole(0, 4)
    return draw.integer(0, draw.one_of([40, window + first])), window, first


check_window = Plain(
    name="what a window keeps",
    solution=_kept,
    cases=lambda: [(2, 3, 1), (9, 3, 2), (20, 4, 1), (5, 2, 0), (1, 2, 4), (6, 5, 2)],
    legal=_any_window,
    mistakes={
        "the first tokens are not kept: that is a plain window": _all_but(lambda j, t, w, f: j > t - w),
        "the window is one token too wide": _all_but(lambda j, t, w, f: j < f or j >= t - w),
        "the window is one token too narrow: the token itself counts": _all_but(
            lambda j, t, w, f: j < f or j > t - w + 1
        ),
        "one first token too many": _all_but(lambda j, t, w, f: j <= f or j > t - w),
        "the first tokens are taken out of the window's size": _all_but(lambda j, t, w, f: j < f or j > t - w + f),
        "everything is kept": _all_but(lambda j, t, w, f: True),
        "the newest tokens are forgotten, and the oldest kept": _all_but(lambda j, t, w, f: j < f + w),
        "distances are those in the sequence": lambda t, w, f: [_kept(t, w, f)[0], [t - j for j in _kept(t, w, f)[0]]],
        "positions in the cache, not distances from the new token": lambda t, w, f: [
            _kept(t, w, f)[0],
            list(range(len(_kept(t, w, f)[0]))),
        ],
        "the new token is at distance 1 from itself": lambda t, w, f: [
            _kept(t, w, f)[0],
            [d + 1 for d in _kept(t, w, f)[1]],
        ],
        "a token that is one of the first and one of the last is kept twice": lambda t, w, f: [
            list(range(f)) + list(range(t - w + 1, t + 1)),
            list(range(f + w))[::-1],
        ],
    },
    next_step="Next: other ways to keep less.",
)
