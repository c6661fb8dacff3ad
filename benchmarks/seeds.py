"""Run the experiments of the chapters for five seeds: what a notebook shows once must hold every time.

    python benchmarks/seeds.py [masking …] [--write]

``benchmarks/seeds/masking.yml`` names expressions of that chapter, with ``seed`` in them, and the bounds within which
their values must stay. A notebook's own functions are used: its code cells run once, then what is under ``before``,
then each expression for seeds 0 to 4. A row that says ``of: trained_heads`` uses that notebook alone. ``--write``
stores the table in ``benchmarks/seeds.md``.
"""

import contextlib
import io
import os
import sys
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("TQDM_DISABLE", "1")

import nbformat
import torch
import yaml
from timing import machine, table

sys.path.append(str(Path(__file__).parents[1] / "tools"))
from chapters import family, named

from mha.course import TOPICS

HERE = Path(__file__).parent
FIVE = range(5)
SEVERAL = "chapter by chapter, on several days and processors; the newest rows"
ASKED = {topic: path for topic in TOPICS if (path := HERE / "seeds" / f"{topic}.yml").exists()}


def asked(topic: str) -> dict:
    """Read what is asked of a chapter: ``rows``, each with ``value`` and ``bounds``, perhaps code ``before`` them."""
    return yaml.safe_load(ASKED[topic].read_text(encoding="utf-8"))


def code_of(path: Path) -> dict[str, str]:
    """Read the code cells of a notebook, each under its place: `04_why_many_heads.ipynb:0123456789ab`."""
    cells = nbformat.read(path, as_version=4).cells
    return {f"{path.name}:{cell.id}": cell.source for cell in cells if cell.cell_type == "code"}


def execute(code: dict) -> dict:
    """Run source text or syntax trees, given under their places, silently one after the other; return all names."""
    torch.set_default_dtype(torch.float32)
    names: dict = {"__name__": "notebook"}
    with contextlib.redirect_stdout(io.StringIO()):
        for place, source in code.items():
            exec(compile(source, place, "exec"), names)
    return names


def run(paths: list[Path], before: str = "") -> dict:
    """Run the code cells of notebooks, then what comes before the rows; return all names."""
    cells = {place: source for path in paths for place, source in code_of(path).items()}
    return execute({**cells, "before": before})


def names_of(topic: str, notebook: str | None) -> dict:
    """Return the names of one notebook, or of a chapter and its side rooms but those that need trained models."""
    if notebook:
        return run([named(notebook)])
    paths = [path for path in family(topic) if "trained" not in nbformat.read(path, as_version=4).metadata]
    return run(paths, asked(topic).get("before", ""))


def rows_of(topic: str) -> list[list[str]]:
    """Evaluate the chapter's expressions for all seeds; a value out of bounds is marked."""
    rows, run_for, names = [], "", {}
    for what, row in asked(topic)["rows"].items():
        if run_for != row.get("of"):
            run_for, names = row.get("of"), names_of(topic, row.get("of"))
        low, high = row["bounds"]
        values = [float(eval(row["value"], names | {"seed": seed})) for seed in FIVE]
        held = all(low <= value <= high for value in values)
        rows.append([topic, what, *(f"{v:.3f}" for v in values), f"{low} … {high}", "yes" if held else "**no**"])
        print(rows[-1], flush=True)
    return rows


def topic_of(line: str) -> str:
    """Read the chapter of a line of the table; empty where it is none of its rows."""
    first = line.split("|")[1].strip() if line[:1] == "|" else ""
    return first if first in TOPICS else ""


def write(made: str, chosen: list[str], path: Path, begin: str) -> None:
    """Store the table behind its head; the rows of chapters that were not run stay."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    kept = [line for line in lines if topic_of(line) and topic_of(line) not in chosen]
    head, rows = made.splitlines()[:2], [*made.splitlines()[2:], *kept]
    rows.sort(key=lambda line: TOPICS.index(topic_of(line)))
    path.write_text(begin + "\n".join([*head, *rows]) + "\n", encoding="utf-8")


def main(arguments: list[str]) -> None:
    """Make the table for the chapters named, or for all."""
    chosen = [a for a in arguments if not a.startswith("-")]
    if unknown := set(chosen) - set(ASKED):
        sys.exit(f"nothing is asked of {sorted(unknown)}: give some of {list(ASKED)}, or none for all")
    chosen = chosen or list(ASKED)
    head = ["chapter", "what", *(f"seed {seed}" for seed in FIVE), "bounds", "held"]
    made = table(head, [row for topic in chosen for row in rows_of(topic)])
    if "--write" in arguments:
        begin = f"# Five seeds\n\nWritten by `python benchmarks/seeds.py --write`, {SEVERAL}: {machine()}\n\n"
        write(made, chosen, HERE / "seeds.md", begin)
    if "**no**" in made:
        sys.exit("a claim did not hold for every seed")


if __name__ == "__main__":
    main(sys.argv[1:])
