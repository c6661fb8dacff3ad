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


@cache
def stored() -> dict:
    """Load what ``benchmarks/choosing.py`` found: qualities by task, layer and rate, times, costs, machine and hashes.

    :Taught in: choosing.
    """
    return json.loads(STORE.read_text("utf8"))


BUDGETS = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0)  # times its own steps: so long the plain layer is trained


def bought(task: str, layer: str) -> float:
    """Say how many times its own steps the plain layer can be trained in the time of another one.

    That is the nearest of ``BUDGETS`` to the stored ratio of their times, at least 1 and at most 7.

    :Taught in: choosing.
    """
    ratio = stored()["times"][task][layer]
    return min(BUDGETS, key=lambda budget: abs(math.log(budget / ratio)))


def planned() -> list[tuple[str, str, float]]:
    """List what is trained: all layers, all of them twice as long, and the plain one for an equal time.

    Each as (task, layer, budget), see :func:`mha.course.comparison.candidates.quality`.

    :Taught in: choosing.
    """
    found = []
    for task in candidates.TASKS:
        able = [name for name, one in candidates.EVERY.items() if task not in one.refuses]
        raced = [name for name in able if name not in candidates.SIZES]
        found += [(task, name, 1.0) for name in able] + [(task, name, 2.0) for name in raced]
        found += [(task, "plain", budget) for budget in sorted({bought(task, name) for name in raced} - {1.0, 2.0})]
    return found


def row(task: str, layer: str, budget: float = 1.0) -> dict:
    """Look up what is stored for a layer after ``budget`` times the task's steps.

    :Raises: KeyError for what was not trained.
    :Taught in: choosing.
    """
    return stored()["rows"][task][label(layer, budget)]


def rate(task: str, layer: str, budget: float = 1.0) -> float:
    """Say which of the two learning rates was better on the validation part, on average over the seeds.

    :Taught in: choosing.
    """
    sign = 1 if candidates.TASKS[task].unit == "share right" else -1
    runs = row(task, layer, budget)["runs"]
    return max(candidates.TASKS[task].rates, key=lambda one: sign * math.fsum(runs[str(one)]["validation"]))


def values(task: str, layer: str, budget: float = 1.0, *, at: float | None = None) -> list[float]:
    """Look up the stored qualities of a layer on the test part, one for each seed.

    ``budget`` is how many times the task's steps it was trained, ``at`` the learning rate; the one that the validation
    part has chosen unless given.

    :Raises: KeyError for what was not trained.
    :Taught in: choosing.
    """
    at = rate(task, layer, budget) if at is None else at
    return row(task, layer, budget)["runs"][str(at)]["test"]


def gaps(task: str, layer: str, baseline: str = "plain", budgets: tuple[float, float] = (1.0, 1.0)) -> list[float]:
    """Subtract the stored qualities of a baseline, seed by seed; + is better, for a loss too.

    :Taught in: choosing.
    """
    sign = 1 if candidates.TASKS[task].unit == "share right" else -1
    both = values(task, layer, budgets[0]), values(task, baseline, budgets[1])
    return [sign * (one - other) for one, other in zip(*both, strict=True)]


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


def chance(gaps: Sequence[float]) -> float:
    """Say how often luck alone gives paired differences as far from zero (the p-value of Student's t).

    :Taught in: choosing.
    """
    from scipy.stats import ttest_1samp

    if len(set(gaps)) == 1:
        return float(gaps[0] == 0)
    return float(ttest_1samp(gaps, 0).pvalue)


def holm(chances: Sequence[float], level: float = 0.05) -> list[bool]:
    """Say which of many differences stay: with chance 1 − ``level``, not one of them is luck (Holm 1979).

    The smallest of n p-values must be below level / n, the next one below level / (n − 1), up to the first that fails.

    :Taught in: choosing.
    """
    order, kept = sorted(range(len(chances)), key=lambda i: chances[i]), [False] * len(chances)
    for place, i in enumerate(order):
        if chances[i] > level / (len(chances) - place):
            break
        kept[i] = True
    return kept


def discoveries(chances: Sequence[float], level: float = 0.05) -> list[bool]:
    """Say which of many differences stay: of these, a share of at most ``level`` is luck (Benjamini and Hochberg 1995).

    :Taught in: choosing.
    """
    from scipy.stats import false_discovery_control

    return (false_discovery_control(chances) <= level).tolist()


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
