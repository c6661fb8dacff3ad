"""Train chapter 02's look-up layers from ten random starts and print how many answers are right.

    python benchmarks/ch02_seeds.py        (about three minutes; the ranges that the chapter quotes)

The definitions are read from the notebook itself, so that the two cannot differ.
"""

import json
import os
from pathlib import Path

NOTEBOOK = Path(__file__).resolve().parents[1] / "notebooks" / "02_why_scale.ipynb"
WANTED = ("import mha\n", "class Lookup", "def train_lookup", "def share_right", "def divide_after", "def statistics")
WANTED += ("def qk_norm", "def divide_by_width")
SEEDS = range(10)


def definitions() -> dict:
    """Run the notebook's cells that define something used here."""
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    names = {}
    for start in WANTED:
        exec(next(source for cell in cells if start in (source := "".join(cell["source"]))), names)
    return names


def main() -> None:
    os.environ["TQDM_DISABLE"] = "1"
    chapter = definitions()
    train, share, statistics = chapter["train_lookup"], chapter["share_right"], chapter["statistics"]
    root, none = chapter["mha"].attend, chapter["undivided"]
    for name, way, options in (
        ("divided by √d_k", root, {}),
        ("not divided", none, {}),
        ("divided after the softmax", chapter["divide_after"], {}),
        ("not divided, W_q starts at ⅛", none, {"start": 1 / 8}),
        ("hot: divided by √d_k", root, {"lr": 3e-2}),
        ("hot: divided by d_k", chapter["divide_by_width"], {"lr": 3e-2}),
        ("hot: soft cap", chapter["soft_cap"], {"lr": 3e-2}),
        ("hot: QK-norm", chapter["qk_norm"], {"lr": 3e-2}),
        ("16 channels", root, {"d_k": 16}),
        ("256 channels", root, {"d_k": 256}),
    ):
        models = [train(way, seed=seed, **options) for seed in SEEDS]
        right = [share(model) for model in models]
        agree = [statistics(model)["channels agree"] for model in models]
        print(f"{name:29} right {min(right):6.1%} to {max(right):6.1%}   agree {min(agree):5.2f} to {max(agree):5.2f}")


if __name__ == "__main__":
    main()
