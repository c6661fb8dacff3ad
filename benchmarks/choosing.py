"""Compare all layers on the four tasks of the last chapter; store what was found in mha/course/comparison.

    python benchmarks/choosing.py [--minutes 7] [--times]
    python benchmarks/choosing.py --table

Trains whatever is missing or belongs to older code, writes after every run, and stops when the minutes are over:
start it again to go on. ``--times`` measures one step of training of every layer that has no time yet, the layers
taking turns with the plain one.
``--table`` only writes the table again.
"""

import argparse
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


def entrants(task, layers=candidates.LAYERS):
    """The layers that can do a task."""
    return [name for name, candidate in layers.items() if task not in candidate.refuses]


def load():
    """What is stored, without rows of older code."""
    found = results.stored() if results.STORE.exists() else {}
    rows = {task: found.get("quality", {}).get(task, {}) for task in candidates.TASKS}
    for task, row in rows.items():
        for layer in entrants(task):
            code = results.code_hash(task, layer)
            if row.get(layer, {}).get("code") != code:
                row[layer] = {"code": code, "values": []}
        rows[task] = {layer: row[layer] for layer in entrants(task)}
    more = {task: {} for task in candidates.TASKS}
    for task, layer, budget in results.extras() if "times" in found else []:
        name, code = results.label(layer, budget), results.code_hash(task, layer)
        row = found.get("more", {}).get(task, {}).get(name, {})
        fresh = {"layer": layer, "budget": budget, "code": code, "values": []}
        more[task][name] = row if row.get("code") == code else fresh
    return {**found, "quality": rows, "more": more}


def save(found):
    """Store everything."""
    results.STORE.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf8", newline="\n")


def weights(task, layer):
    """How many parameters the whole model has."""
    return sum(p.numel() for p in candidates.built(task, layer, 0)[1].parameters())


def counted(layer):
    """What one call of a large layer costs."""
    cost = results.large_cost(layer)
    return {"parameters": cost.parameters, "flops": cost.flops, "peak": cost.peak, "cache": cost.cache}


def train(found, until):
    """Train what is missing, seed by seed, and say whether all is there."""
    for seed in SEEDS:
        for kind in ("quality", "more"):
            for task, rows in found[kind].items():
                for name, row in rows.items():
                    if len(row["values"]) > seed:
                        continue
                    if time.time() > until:
                        return False
                    start = time.process_time()
                    asked = (row.get("layer", name), seed)
                    row["values"].append(round(candidates.quality(task, *asked, budget=row.get("budget", 1.0)), 4))
                    took = time.process_time() - start
                    print(f"{task:8} {name:36} seed {seed}: {row['values'][-1]:.4f}  {took:5.1f} s", flush=True)
                    save(found)
    found["made"] = machine()
    save(found)
    return True


def step(task, layer):
    """One step of training: forward, backward, no update."""
    contest, model = candidates.built(task, layer, 0)
    loss = partial(candidates.balanced, contest) if layer == "routed" else contest.loss

    def run():
        model.zero_grad()
        loss(model).backward()

    return run


def measure(found):
    """Time one step of training of layers without a time, beside the plain one; a second plain one shows the noise."""
    known = found.setdefault("times", {})
    for group, layers in {"machine": candidates.LAYERS, "machine of today": candidates.TODAY}.items():
        for task in candidates.TASKS:
            row = known.setdefault(task, {})
            if new := [name for name in entrants(task, layers) if name not in row]:
                known[group] = machine()
                runs = {name: step(task, name) for name in dict.fromkeys(["plain", *new])}
                times = take_turns({**runs, "the same again": step(task, "plain")}, seconds=15.0)
                row |= {name: round(ratio, 2) for name, ratio in ratios(times, "plain").items() if name in new}
                row.setdefault("the same again", round(ratios(times, "plain")["the same again"], 2))
    save(found)


def page(found):
    """The tables as Markdown."""
    tasks = list(candidates.TASKS)
    head = ["layer", *(f"{task}, {candidates.TASKS[task].unit}" for task in tasks)]
    qualities = [[name, *(shown(found, task, name) for task in tasks)] for name in candidates.LAYERS]
    differences = [
        [name, *(compared(found, task, name) for task in tasks)] for name in candidates.LAYERS if name != "plain"
    ]
    costs = [[name, *priced(found, name)] for name in candidates.LAYERS]
    noise = ["plain, timed again", *[""] * 3, *(f"{found['times'][task]['the same again']:.2f}" for task in tasks)]
    columns = [
        "layer",
        "parameters",
        "FLOPs",
        "peak memory",
        *(f"a step of training, {task}" for task in tasks),
    ]
    made = {name: sum(w.numel() for w in candidates.EVERY[name].make(*SMALL).parameters()) for name in candidates.EVERY}
    rivals = [
        [name, f"{made[name]:,}", *(shown(found, task, name) for task in tasks)]
        for name in ("plain", *candidates.BASELINES, "overlapping", "feedback", "composable")
    ]
    longer = [[name, *(shown(found, task, name, 2.0) for task in tasks)] for name in candidates.LAYERS]
    timed = [[name, *(in_time(found, task, name) for task in tasks)] for name in candidates.LAYERS if name != "plain"]
    today = [
        [name, f"{made[name]:,}", *(shown(found, task, name, more) for more in (1.0, 2.0) for task in tasks)]
        for name in ("plain", *candidates.TODAY)
    ]
    timed_today = [[name, *(in_time(found, task, name) for task in tasks)] for name in candidates.TODAY]
    return (
        HEAD.format(**found, n=len(SEEDS))
        + "\n\n".join(
            [
                "## Quality: mean and 95 % interval\n\n" + table(head, qualities),
                "## Paired difference to plain: mean and 95 % interval\n\n" + table(head, differences),
                "## Baselines with as many parameters\n\nThe parameters are those of one trained layer, 32 wide.\n\n"
                + table([head[0], "parameters", *head[1:]], rivals),
                "## After twice the steps\n\n" + table(head, longer),
                "## Paired difference to plain for an equal time\n\n" + TIME + table(head, timed),
                "## Heads of today\n\nAfter as many steps, and after twice as many (2 ×).\n\n"
                + table([head[0], "parameters", *head[1:], *(f"{task}, 2 ×" for task in tasks)], today),
                f"Beside plain for an equal time; times: {found['times']['machine of today']}.\n\n"
                + table(head, timed_today),
                f"## Cost beside plain\n\nTimes: {found['times']['machine']}.\n\n" + table(columns, [*costs, noise]),
                "## Where a layer does not apply\n\n" + "\n".join(refusals()),
            ]
        )
        + "\n"
    )


SMALL = (tasks_of_comparison.WIDTH, tasks_of_comparison.HEADS)

TIME = f"""The plain layer makes as many more steps as the ratio of the times below buys, rounded to a tenth and at most
{results.LONGEST:g} times as many (the factor is in parentheses). Mean and 95 % interval; for
English *negative* is better.

"""

HEAD = """# Which layer should I use?

Written by `python benchmarks/choosing.py`; the chapter *choosing* shows and checks it. The same small models for
every layer (width 32, 4 heads), {n} seeds, the same steps, the same learning rates, nothing tuned for any layer. A seed
decides the initial parameters, the data and their order; for one seed all layers meet the same data. Intervals are
Student's t.
Parameters, FLOPs and memory are counted for one call at (1, 1024, 512, 8) without gradients, beside the plain layer;
merged heads read a source of 1024 tokens. Trained on: {made}.

"""


def values_of(found, task, name, budget=1.0):
    """What is stored for a layer, or nothing."""
    row = found["quality"] if budget == 1.0 and name in candidates.LAYERS else found["more"]
    return row[task].get(results.label(name, budget), {}).get("values")


def shown(found, task, name, budget=1.0):
    """One quality with its interval."""
    values = values_of(found, task, name, budget)
    if not values:
        return "–"
    mean, low, high = results.interval(values)
    places = 1 if candidates.TASKS[task].unit == "share right" else 3
    scale = 100 if places == 1 else 1
    return f"{scale * mean:.{places}f} ± {scale * (high - low) / 2:.{places}f}" + (" %" if scale == 100 else "")


def compared(found, task, name, budget=1.0):
    """The paired difference to plain, which may have been trained for longer, with its interval."""
    if task in candidates.EVERY[name].refuses:
        return "–"
    values = values_of(found, task, name), values_of(found, task, "plain", budget)
    mean, low, high = results.interval([one - plain for one, plain in zip(*values, strict=True)])
    places, scale = (1, 100) if candidates.TASKS[task].unit == "share right" else (3, 1)
    return f"{scale * mean:+.{places}f} [{scale * low:+.{places}f}, {scale * high:+.{places}f}]"


def in_time(found, task, name):
    """The paired difference to a plain layer that has had as much time."""
    if task in candidates.EVERY[name].refuses:
        return "–"
    budget = results.bought(task, name)
    return f"{compared(found, task, name, budget)} ({budget:g} ×)"


def priced(found, name):
    """Counts beside plain, and times beside plain."""
    cost, plain = found["cost"][name], found["cost"]["plain"]
    counts = [f"{cost[key] / plain[key]:.3f}" for key in ("parameters", "flops", "peak")]
    times = (found["times"][task].get(name) for task in candidates.TASKS)
    return counts + ["–" if ratio is None else f"{ratio:.2f}" for ratio in times]


def refusals():
    """Why a place is empty."""
    for name, candidate in (candidates.LAYERS | candidates.TODAY).items():
        for task, reason in candidate.refuses.items():
            yield f"- {name}, {task}: {reason}."


def main():
    """Train, measure, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=7)
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.times:  # first: they say how long the plain layer is trained for an equal time
        measure(results.stored() if results.STORE.exists() else {})
    found = load()
    done = asked.table or asked.times or train(found, time.time() + 60 * asked.minutes)
    if done and "times" in found and "made" in found:
        found["parameters"] = {t: {n: weights(t, n) for n in entrants(t)} for t in candidates.TASKS}
        found["cost"] = {name: counted(name) for name in candidates.LAYERS}
        save(found)
        PAGE.write_text(page(found), "utf8", newline="\n")
    print("all there" if done else "more to train: start again")


if __name__ == "__main__":
    main()
