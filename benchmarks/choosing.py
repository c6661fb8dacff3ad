"""Compare all layers on the four tasks of the last chapter; store what was found in mha/course/comparison.

    python benchmarks/choosing.py --times
    python benchmarks/choosing.py [--minutes 7] [--task recall --task dates]
    python benchmarks/choosing.py --table

``--times`` measures one step of training of every layer, all taking turns with the plain one: it says how long the
plain layer is trained for an equal time. Without it, whatever is missing or belongs to older code is trained, and
written after every run; start it again to go on when the minutes are over. Two of them may run at once, for different
tasks.
``--table`` only writes the table again.
"""

import argparse
import fcntl
import json
import os
import time
from functools import partial
from pathlib import Path

os.environ.setdefault("TQDM_DISABLE", "1")

import torch
from timing import machine, ratios, table, take_turns

from mha.course.comparison import candidates, results
from mha.course.comparison import tasks as tasks_of_comparison

SEEDS = range(5)
PAGE = Path(__file__).parent / "choosing.md"
SMALL = (tasks_of_comparison.WIDTH, tasks_of_comparison.HEADS)


def able(task, layers=candidates.EVERY):
    """The layers that can do a task."""
    return [name for name in layers if task not in candidates.EVERY[name].refuses]


def load():
    """What is stored, without rows of older code."""
    found = results.stored() if results.STORE.exists() else {}
    rows = {task: {} for task in candidates.TASKS}
    for task, layer, budget in results.planned():
        name, code = results.label(layer, budget), results.code_hash(task, layer)
        row = found.get("rows", {}).get(task, {}).get(name, {})
        empty = {str(rate): {"validation": [], "test": []} for rate in candidates.TASKS[task].rates}
        fresh = {"layer": layer, "budget": budget, "code": code, "runs": empty}
        rows[task][name] = row if row.get("code") == code and row["runs"].keys() == empty.keys() else fresh
    return found | {"rows": rows}


def save(found):
    """Store everything."""
    new = results.STORE.with_suffix(".new")
    new.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf8", newline="\n")
    new.replace(results.STORE)  # another program that reads meanwhile finds the old file, whole
    results.stored.cache_clear()


def add(task, name, rate, seed, score):
    """Store the run of one more seed, whatever another program has stored in the meantime."""
    with Path(__file__).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        results.stored.cache_clear()
        found = load()
        run = found["rows"][task][name]["runs"][rate]
        if len(run["test"]) == seed:  # not more: another program was faster
            for part, value in score._asdict().items():
                run[part].append(round(value, 4))
            save(found)


def train(chosen, until):
    """Train what is missing of the chosen tasks, seed by seed, and say whether all is there."""
    for seed in SEEDS:
        for task in chosen:
            for name, row in load()["rows"][task].items():
                for rate in row["runs"]:
                    results.stored.cache_clear()
                    if len(load()["rows"][task][name]["runs"][rate]["test"]) > seed:
                        continue
                    if time.time() > until:
                        return False
                    start = time.process_time()
                    score = candidates.quality(task, row["layer"], seed, budget=row["budget"], rate=float(rate))
                    took = time.process_time() - start
                    add(task, name, rate, seed, score)
                    print(f"{task:8} {name:40} {rate} seed {seed}: {score.test:.4f}  {took:5.1f} s", flush=True)
    return True


def weights(task, layer):
    """How many parameters the whole model has."""
    return sum(p.numel() for p in candidates.built(task, layer, 0)[1].parameters())


def counted(layer):
    """What one call of a large layer costs."""
    cost = results.large_cost(layer)
    return {"parameters": cost.parameters, "flops": cost.flops, "peak": cost.peak, "cache": cost.cache}


def step(task, layer):
    """One step of training: forward, backward, no update."""
    contest, model = candidates.built(task, layer, 0)
    loss = partial(candidates.balanced, contest) if layer == "routed" else contest.loss

    def run():
        model.zero_grad()
        loss(model).backward()

    return run


def measure():
    """Time one step of training of every layer beside the plain one; a second plain one shows the noise."""
    known = {"machine": machine()}
    for task in candidates.TASKS:
        runs = {name: step(task, name) for name in able(task) if name not in candidates.SIZES}
        times = take_turns(runs | {"the same again": step(task, "plain")}, seconds=20.0)
        known[task] = {name: round(ratio, 2) for name, ratio in ratios(times, "plain").items()}
    return known


def page(found):
    """The tables as Markdown."""
    tasks = list(candidates.TASKS)
    head = ["layer", *(f"{task}, {candidates.TASKS[task].unit}" for task in tasks)]
    made = {name: sum(w.numel() for w in one.make(*SMALL).parameters()) for name, one in candidates.EVERY.items()}
    others = [name for name in candidates.LAYERS if name != "plain"]
    sized = ["plain", *candidates.SIZES, "overlapping", "feedback", "composable"]
    costs = [[name, *priced(found, name)] for name in candidates.EVERY if name not in candidates.SIZES]
    costs.append(
        ["plain, timed again", *[""] * 3, *(f"{found['times'][task]['the same again']:.2f}" for task in tasks)]
    )

    def rows(names, cell):
        return [[name, *(cell(task, name) for task in tasks)] for name in names]

    def with_parameters(names, cell):
        return table([head[0], "parameters", *head[1:]], [[n, f"{made[n]:,}", *r[1:]] for n, r in
                                                         zip(names, rows(names, cell), strict=True)])  # fmt: skip

    today = ["plain", *candidates.BASELINES, *candidates.TODAY]
    today = [name for name in today if name not in candidates.SIZES]
    twice = partial(shown, budget=2.0)
    return (
        HEAD.format(n=len(SEEDS), rates=RATES, made=found["made"])
        + "\n\n".join(
            [
                "## Quality: mean and 95 % interval\n\n" + table(head, rows(candidates.LAYERS, shown)),
                "## Paired difference to plain: mean and 95 % interval\n\n"
                + KEPT
                + table(head, differences(others, tasks)),
                "## Baselines with as many parameters\n\nThe parameters are those of one trained layer, 32 wide.\n\n"
                + with_parameters(sized, shown),
                "## After twice the steps\n\n" + table(head, rows(candidates.LAYERS, twice)),
                "## Paired difference to plain for an equal time\n\n" + TIME + table(head, rows(others, in_time)),
                "## Layers of current LLMs, and plain heads that know distances\n\n" + with_parameters(today, shown),
                "After twice the steps:\n\n" + table(head, rows(today, twice)),
                "Beside plain for an equal time:\n\n" + table(head, rows(today[1:], in_time)),
                "## Both learning rates\n\nThe mean on the test part at each of the two.\n\n"
                + table(both_head(tasks), [[name, *at_both(name, tasks)] for name in candidates.EVERY]),
                f"## Cost beside plain\n\nTimes: {found['times']['machine']}.\n\n"
                + table(
                    ["layer", "parameters", "FLOPs", "peak memory", *(f"a step of training, {t}" for t in tasks)], costs
                ),
                "## Where a layer does not apply\n\n" + "\n".join(refusals()),
            ]
        )
        + "\n"
    )


RATES = ", ".join(f"{task} {' and '.join(map(str, one.rates))}" for task, one in candidates.TASKS.items())

KEPT = """An interval that excludes zero has a mark: ** if the difference stays among all of this table by the rule of
Holm (with 95 % confidence not one of them is luck), * if it stays by that of Benjamini and Hochberg (of those at most
one in twenty is luck), ? if by none of them. On English *negative* is better.

"""

TIME = f"""The plain layer makes as many more steps as the ratio of the times below buys, the nearest of
{", ".join(f"{budget:g}" for budget in results.BUDGETS)} (the factor is in parentheses), and has its two learning rates
for each of them. Mean and 95 % interval; for English *negative* is better.

"""

HEAD = """# Which layer should I use?

Written by `python benchmarks/choosing.py`; the chapter *choosing* shows and checks it. The same small models for
every layer (width 32, 4 heads), {n} seeds, the same steps. Every row was trained at two learning rates ({rates}); the
one that is better on the validation part, on average over the seeds, is the one whose quality on the test part is
shown, and stands in parentheses. A seed decides the initial parameters, the data and their order; validation and test
have seeds of their own, so that for one seed all layers meet the same test, however long they were trained. Intervals
are Student's t. Nothing else was tuned for any layer.
Parameters, FLOPs and memory are counted for one call at (1, 1024, 512, 8) without gradients, beside the plain layer;
merged heads read a source of 1024 tokens. Trained on: {made}.

"""


def in_units(task, number, sign=""):
    """A quality or a difference, in percent or nats."""
    return f"{100 * number:{sign}.1f}" if candidates.TASKS[task].unit == "share right" else f"{number:{sign}.3f}"


def shown(task, name, budget=1.0):
    """One quality with its interval, and the learning rate."""
    if task in candidates.EVERY[name].refuses:
        return "–"
    mean, low, high = results.interval(results.values(task, name, budget))
    unit = " %" if candidates.TASKS[task].unit == "share right" else ""
    half = in_units(task, (high - low) / 2)
    return f"{in_units(task, mean)} ± {half}{unit} ({results.rate(task, name, budget):g})"


def difference(task, name, budget=1.0):
    """The paired difference to plain, which may have been trained for longer: mean and 95 % interval."""
    sign = 1 if candidates.TASKS[task].unit == "share right" else -1
    mean, low, high = results.interval([sign * gap for gap in results.gaps(task, name, budgets=(1.0, budget))])
    return f"{in_units(task, mean, '+')} [{in_units(task, low, '+')}, {in_units(task, high, '+')}]"


def differences(names, tasks):
    """The rows of paired differences, with a mark for those that stay among all of them."""
    cells = [(task, name) for name in names for task in tasks if task not in candidates.EVERY[name].refuses]
    chances = [results.chance(results.gaps(*cell)) for cell in cells]
    kept = zip(cells, chances, results.holm(chances), results.discoveries(chances), strict=True)
    marks = {c: " **" if strict else " *" if fair else " ?" if p < 0.05 else "" for c, p, strict, fair in kept}
    return [
        [name, *(difference(task, name) + marks[task, name] if (task, name) in marks else "–" for task in tasks)]
        for name in names
    ]


def in_time(task, name):
    """The paired difference to a plain layer that has had as much time."""
    if task in candidates.EVERY[name].refuses:
        return "–"
    budget = results.bought(task, name)
    return f"{difference(task, name, budget)} ({budget:g} ×)"


def both_head(tasks):
    """The names of the columns of both rates."""
    return ["layer", *(f"{task}, {rate:g}" for task in tasks for rate in candidates.TASKS[task].rates)]


def at_both(name, tasks):
    """The means at both rates."""
    for task in tasks:
        for rate in candidates.TASKS[task].rates:
            refused = task in candidates.EVERY[name].refuses
            yield "–" if refused else in_units(task, results.interval(results.values(task, name, at=rate))[0])


def priced(found, name):
    """Counts beside plain, and times beside plain."""
    counts = [""] * 3
    if name in found["cost"]:
        cost, plain = found["cost"][name], found["cost"]["plain"]
        counts = [f"{cost[key] / plain[key]:.3f}" for key in ("parameters", "flops", "peak")]
    times = (found["times"][task].get(name) for task in candidates.TASKS)
    return counts + ["–" if ratio is None else f"{ratio:.2f}" for ratio in times]


def refusals():
    """Why a place is empty."""
    for name, candidate in candidates.EVERY.items():
        for task, reason in candidate.refuses.items():
            yield f"- {name}, {task}: {reason}."


def main():
    """Train, measure, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=7)
    parser.add_argument("--task", action="append", choices=list(candidates.TASKS))
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.times:
        save((results.stored() if results.STORE.exists() else {}) | {"times": measure()})
    if (
        not asked.table
        and not asked.times
        and not train(asked.task or list(candidates.TASKS), time.time() + 60 * asked.minutes)
    ):
        print("more to train: start again")
        return
    found = load()
    if all(
        len(run["test"]) >= len(SEEDS)
        for rows in found["rows"].values()
        for row in rows.values()
        for run in row["runs"].values()
    ):
        found["made"] = found["made"] if asked.table else machine()
        found["parameters"] = {t: {n: weights(t, n) for n in able(t, candidates.LAYERS)} for t in candidates.TASKS}
        found["cost"] = {name: counted(name) for name in candidates.LAYERS}
        save({key: found[key] for key in ("made", "times", "parameters", "cost", "rows")})
        PAGE.write_text(page(found), "utf8", newline="\n")
        print("all there")


if __name__ == "__main__":
    main()
