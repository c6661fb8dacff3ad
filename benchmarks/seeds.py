"""Run the experiments of the chapters for five seeds: what a notebook shows once must hold every time.

    python benchmarks/seeds.py [06 …] [--write]

A notebook's own functions are used: its code cells run once, then each expression below is evaluated for seeds 0 to 4
and must stay within its bounds. ``--write`` stores the table in ``benchmarks/seeds.md``.
"""

import contextlib
import io
import os
import sys
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("TQDM_DISABLE", "1")

import nbformat
from timing import machine, table

HERE = Path(__file__).parent
FIVE = range(5)

# chapter: {what: (expression with ``seed``, lower bound, upper bound)}
CHAPTERS: dict[str, dict[str, tuple[str, float, float]]] = {
    "01": {
        "tagger with places, share right": ("share_right(mha.one_hot_positions(4), seed)", 1.0, 1.0),
        "tagger without places, share right": ("share_right(torch.zeros(4, 4), seed)", 0.74, 0.76),
    },
    "06": {
        "previous minus first, with W^O, error": ("np.mean(solve(True, seed)[-50:])", 0.0, 0.02),
        "previous minus first, without W^O, error": ("np.mean(solve(False, seed)[-50:])", 0.80, 0.92),
        "language model, with W^O, nats": ("trained_loss(True, seed)", 1.5, 2.4),
        "language model, without W^O, nats": ("trained_loss(False, seed)", 1.5, 2.4),
    },
}


def functions_of(chapter: str) -> dict:
    """Run a notebook's code cells silently and return its names."""
    (path,) = (HERE.parent / "notebooks").glob(f"{chapter}_*.ipynb")
    names: dict = {"__name__": f"chapter_{chapter}"}
    with contextlib.redirect_stdout(io.StringIO()):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code":
                exec(compile(cell.source, f"{path.name}:{cell.id}", "exec"), names)
    return names


def rows_of(chapter: str) -> list[list[str]]:
    """Evaluate the chapter's expressions for all seeds; a value out of bounds is marked."""
    names, rows = functions_of(chapter), []
    for what, (expression, low, high) in CHAPTERS[chapter].items():
        values = [float(eval(expression, names | {"seed": seed})) for seed in FIVE]
        held = all(low <= value <= high for value in values)
        rows.append([chapter, what, *(f"{v:.3f}" for v in values), f"{low} … {high}", "yes" if held else "**no**"])
        print(rows[-1], flush=True)
    return rows


def main(arguments: list[str]) -> None:
    """Make the table for the chapters named, or for all."""
    chosen = [a for a in arguments if a in CHAPTERS] or list(CHAPTERS)
    head = ["chapter", "what", *(f"seed {seed}" for seed in FIVE), "bounds", "held"]
    made = table(head, [row for chapter in chosen for row in rows_of(chapter)])
    if "--write" in arguments:
        text = f"# Five seeds\n\nWritten by `python benchmarks/seeds.py --write`. {machine()}\n\n{made}\n"
        (HERE / "seeds.md").write_text(text, encoding="utf-8")
    if "**no**" in made:
        sys.exit("a claim did not hold for every seed")


if __name__ == "__main__":
    main(sys.argv[1:])
