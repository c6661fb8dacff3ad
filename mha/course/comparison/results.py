"""What the comparison of all layers has found: stored results, the code they belong to, and what can be counted anew.

Taught in: choosing.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from mha.course.comparison import candidates
from mha.course.comparison.fingerprint import fingerprint
from mha.course.comparison.tasks import learn
from mha.layers.cost import Cost, Part
from mha.layers.feedback import FeedbackAttention

STORE = Path(__file__).with_name("results.json")


LARGE = (512, 8, 1024)  # width, heads and words of the layer whose cost is counted


STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}  # 97.5 %


def stored() -> dict:
    """Load what ``benchmarks/choosing.py`` found: qualities by task and layer, times, costs, machine and hashes.

    Taught in: choosing.
    """
    return json.loads(STORE.read_text("utf8"))


@cache
def code_hash(task: str, layer: str) -> str:
    """Hash the code that a training of this layer on this task runs, and its settings.

    Comments, docstrings, annotations and the wording of errors do not count.

    Taught in: choosing.
    """
    part, contest = candidates.stack(layer, 1, sources=task == "dates"), candidates.TASKS[task]
    used: set[Callable] = {
        contest,
        learn,
        *(type(piece) for piece in part.modules() if type(piece).__module__.startswith("mha.")),
    }
    used |= {candidates.balanced} if layer == "routed" else set()
    shapes = [(name, tuple(weight.shape)) for name, weight in part.named_parameters()]
    return fingerprint(used, [candidates.BETA, shapes])


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of a few values, and the ends of its 95 % interval (Student's t).

    Raises: ValueError for fewer than 2 values or more than 10.
    Taught in: choosing.
    """
    n = len(values)
    if n not in STUDENT:
        raise ValueError(f"{n} values: this table of Student's t knows 2 to 10")
    mean = math.fsum(values) / n
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    half = STUDENT[n] * spread / math.sqrt(n)
    return mean, mean - half, mean + half


def large_cost(layer: str) -> Cost:
    """Count one call of a large layer: 1024 words, 512 channels, 8 heads. Merged heads read a source as long.

    Feedback steps through the words: its operations are those of all steps, its memory that of the last one.

    Taught in: choosing.
    """
    width, heads, words = LARGE
    made = candidates.LAYERS[layer].make(width, heads)
    if layer != "feedback":
        return made.cost(1, words)
    made = FeedbackAttention(width, heads, steps=words)
    steps = [made.cost(1, 1, before, fresh=1) for before in range(1, words)]
    last = steps[-1]
    return replace(last, parts={"all steps": sum((s.total for s in steps), Part(0, 0))}, peak=last.peak + last.cache)
