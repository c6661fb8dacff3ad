"""What the comparison of all layers has found: stored results, the code they belong to, and what can be counted anew.

:Taught in: choosing.
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


LARGE = (512, 8, 1024)  # width, heads and tokens of the layer whose cost is counted


STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}  # 97.5 %


def stored() -> dict:
    """Load what ``benchmarks/choosing.py`` found: qualities by task and layer, times, costs, machine and hashes.

    :Taught in: choosing.
    """
    return json.loads(STORE.read_text("utf8"))


LONGEST = 7.0  # times the plain layer's steps: more is not bought for it


def bought(task: str, layer: str) -> float:
    """Say how many times its own steps the plain layer can be trained in the time of another one.

    That is the stored ratio of their times, rounded to a tenth, at least 1 and at most 7.

    :Taught in: choosing.
    """
    return min(max(round(stored()["times"][task][layer], 1), 1.0), LONGEST)


def extras() -> list[tuple[str, str, float]]:
    """List what else is trained: baselines, heads of current LLMs, all layers twice as long, plain for an equal time.

    Each as (task, layer, budget), see :func:`mha.course.comparison.candidates.quality`.

    :Taught in: choosing.
    """
    found = []
    for task in candidates.TASKS:
        able = [name for name, c in (candidates.LAYERS | candidates.TODAY).items() if task not in c.refuses]
        found += [(task, name, 1.0) for name in (*candidates.BASELINES, *able) if name not in candidates.LAYERS]
        found += [(task, name, 2.0) for name in able]
        found += [(task, "plain", budget) for budget in sorted({bought(task, name) for name in able} - {1.0, 2.0})]
    return found


def values(task: str, layer: str, budget: float = 1.0) -> list[float]:
    """Look up the stored qualities of a layer, one for each seed, after ``budget`` times the task's steps.

    :Raises: KeyError for what was not trained.
    :Taught in: choosing.
    """
    found = stored()
    if budget == 1.0 and layer in found["quality"][task]:
        return found["quality"][task][layer]["values"]
    return found["more"][task][label(layer, budget)]["values"]


def label(layer: str, budget: float) -> str:
    """Name a layer that is trained for longer or shorter than usual.

    :Taught in: choosing.
    """
    return layer if budget == 1.0 else f"{layer}, {budget:g} × the steps"


@cache
def code_hash(task: str, layer: str) -> str:
    """Hash the code that a training run of this layer on this task executes, and its settings.

    Comments, docstrings, annotations and the wording of errors do not count.

    :Taught in: choosing.
    """
    count, contest = 2 if candidates.EVERY[layer].last else 1, candidates.TASKS[task]
    part = candidates.stack(layer, count, sources=task == "dates")
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

    :Raises: ValueError for fewer than 2 values or more than 10.
    :Taught in: choosing.
    """
    n = len(values)
    if n not in STUDENT:
        raise ValueError(f"{n} values: this table of Student's t knows 2 to 10")
    mean = math.fsum(values) / n
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    half = STUDENT[n] * spread / math.sqrt(n)
    return mean, mean - half, mean + half


def large_cost(layer: str) -> Cost:
    """Count one call of a large layer: 1024 tokens, 512 channels, 8 heads. Merged heads read a source as long.

    Feedback steps through the tokens: its operations are those of all steps, its memory that of the last one.

    :Taught in: choosing.
    """
    width, heads, tokens = LARGE
    made = candidates.LAYERS[layer].make(width, heads)
    if layer != "feedback":
        return made.cost(1, tokens)
    made = FeedbackAttention(width, heads, steps=tokens)
    steps = [made.cost(1, 1, before, fresh=1) for before in range(1, tokens)]
    last = steps[-1]
    return replace(last, parts={"all steps": sum((s.total for s in steps), Part(0, 0))}, peak=last.peak + last.cache)
