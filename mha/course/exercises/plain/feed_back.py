"""Checkers: the longest chain, the memory vector of a step, scores that know the distance, the loop."""

from mha.course.exercises.plain.draw import Draw
from mha.course.exercises.plain.judge import Plain


def _chain(n, layers, feed_back):
    return n * layers if feed_back else layers


def _any_stack(draw: Draw) -> tuple:
    return draw.integer(1, 200), draw.integer(1, 60), draw.integer(0, 1) == 1


check_chain = Plain(
    name="the longest chain",
    solution=_chain,
    cases=lambda: [(3, 2, True), (3, 2, False), (10, 4, True), (10, 4, False), (1, 5, True), (1, 5, False)],
    legal=_any_stack,
    mistakes={
        "a plain stack was given a chain that grows with the sequence": lambda n, layers, back: n * layers,
        "feedback was given the chain of a plain stack": lambda n, layers, back: layers,
        "the two kinds are swapped": lambda n, layers, back: layers if back else n * layers,
        "one layer per step: but all layers of a step come after each other": lambda n, layers, back: (
            n if back else layers
        ),
        "steps and layers are added": lambda n, layers, back: n + layers - 1 if back else layers,
        "the first step is not counted": lambda n, layers, back: (n - 1) * layers if back else layers,
        "the memory vector is not a layer: it adds no link": lambda n, layers, back: (
            n * (layers + 1) if back else layers
        ),
        "all pairs of steps: a chain passes each step once": lambda n, layers, back: (
            n * (n + 1) // 2 * layers if back else layers
        ),
        "steps and layers are added: a path passes all layers at each step": lambda n, layers, back: (
            n + layers if back else layers
        ),
    },
    next_step="Next: a memory vector that knows how old it is.",
)
