"""Repeat the training experiments of chapter 04 for seeds 0 to 4, with the notebook's own functions.

Run it from the repository: ``python benchmarks/ch04_seeds.py`` (about four minutes on one core). One line a seed.
"""

import ast
import copy
import json
import os
from pathlib import Path

os.environ["TQDM_DISABLE"] = "1"

import torch

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "04_why_many_heads.ipynb"
DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)


def definitions() -> dict:
    """Run the imports, functions and classes of the notebook, and nothing else."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    names: dict = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            tree = ast.parse("".join(cell["source"]))
            tree.body = [node for node in tree.body if isinstance(node, DEFINITIONS)]
            exec(compile(tree, NOTEBOOK.name, "exec"), names)
    return names


def thinned(layer: torch.nn.Module, rank: int, n: dict) -> float:
    """Keep the strongest directions of the trained queries; the error of the answer that the layer knows."""
    u, strength, vt = torch.linalg.svd(layer.W_q.weight.detach())
    thin = copy.deepcopy(layer)
    thin.W_q.weight.data = u[:, :rank] * strength[:rank] @ vt[:rank]
    return n["error"](n["two_answers"], thin).min().item()


def stalls_for(seed: int, n: dict) -> dict:
    """Train everything about fruits with one seed; a mean error each, and what the trained layers look like."""
    torch.set_default_dtype(torch.float64)
    fit, new_layer = n["fit"], n["new_layer"]
    row = {f"simple {h}": fit(new_layer(h, seed), seed=seed).mean().item() for h in (1, 4, 8, 16)}
    one, two = new_layer(1, seed), new_layer(2, seed)
    row["one"], row["simple 2"] = fit(one, seed=seed).round(decimals=3).tolist(), fit(two, seed=seed).mean().item()
    row["rank 7"] = thinned(one, 7, n)
    row["specialized"] = min(n["compares"](two, h).max().item() for h in (0, 1))
    for h in (1, 2, 4, 8, 16):
        row[f"joint {h}"] = fit(new_layer(h, seed, kinds=4), seed=seed, together=True).mean().item()
    for name in ("Behind", "Twice"):
        torch.manual_seed(seed)
        row[name] = fit(n[name](), seed=seed).mean().item()
    for name, equal in (("twins", True), ("half twins", False)):
        layer = n["make_twins"](new_layer(2, seed), equal)
        row[name] = [fit(layer, seed=seed).mean().item(), n["apart"](layer)]
    voters = [new_layer(1, 4 * seed + i) for i in range(4)]
    for i, voter in enumerate(voters):
        fit(voter, seed=4 * seed + i)
    return row | {"vote": n["error"](n["vote"], voters).mean().item()}


def reading_for(seed: int, n: dict) -> dict:
    """Train the letter readers with one seed; the mean and the largest self-weight."""
    torch.set_default_dtype(torch.float32)
    text = n["english"]()
    n["alphabet"] = {letter: number for number, letter in enumerate(sorted(set(text)))}
    n["corpus"] = torch.tensor([n["alphabet"][letter] for letter in text])
    row = {}
    for job, how in {"next": (True, False), "residual": (True, True), "missing": (False, True)}.items():
        for heads in (1, 8):
            own = n["learn_to_read"](heads, *how, seed=seed)
            row[f"{job} {heads}"] = [own.mean().item(), own.max().item()]
    return row


def short(value: object) -> object:
    """Round numbers for reading."""
    if isinstance(value, list):
        return [short(x) for x in value]
    return float(f"{value:.2g}") if isinstance(value, float) and abs(value) < 0.01 else round(value, 3)


if __name__ == "__main__":
    names = definitions()
    for seed in range(5):
        found = stalls_for(seed, names) | reading_for(seed, names)
        print(f"seed {seed}:", {name: short(value) for name, value in found.items()}, flush=True)
