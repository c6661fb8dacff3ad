"""Write what was measured on a GPU as a page: ``benchmarks/gpu.md``, out of ``mha/course/on_a_gpu/results.json``.

python benchmarks/gpu_page.py
"""

import json
from pathlib import Path

import torch
from timing import table

import mha
from mha.course import on_a_gpu

PAGE = Path(__file__).with_name("gpu.md")
HEAD = """# On a GPU

What was measured on a GPU, in bfloat16: candidates take turns in one process, and a figure is a median. Where a GPU is,
`make bench` runs `benchmarks/gpu.py`, which measures everything anew and writes this page. The chapters show parts
of it. The times of a processor are in [README.md](README.md), and the layers have another order there.

A star: {awaits}. A dash: not measured.
"""
RATES = "As bytes of the cache over time, in GB/s, and as a share of the bandwidth of a copy ({copy:,.0f} GB/s):"
FORMS = ("32 KV heads", "8 KV heads", "1 KV head", "MLA, absorbed", "least code, 32", "least code, 8")


def page() -> str:
    """Write all tables, in the order in which they are described."""
    parts = [HEAD.format(awaits=on_a_gpu.AWAITS)]
    for name, (title, unit, corner) in on_a_gpu.WHAT.items():
        found = on_a_gpu.measured(name)
        runs = "; ".join(dict.fromkeys(map(str, found.runs.values())))
        rows = [[row, *(found.written(row, column) for column in found.columns)] for row in found.rows]
        parts.append(f"## {title}, {unit}\n\n{runs}\n\n{table([corner, *found.columns], rows)}\n")
        if name == "decode":
            parts.append(rates(found))
    return "\n".join(parts)


def rates(found: on_a_gpu.Measured) -> str:
    """How fast each step reads its cache."""
    copy = on_a_gpu.measured("ceilings")["copy, GB/s", "best measured"]
    with torch.device("meta"):
        how = {"bias": False, "dtype": torch.bfloat16}
        layers = {kv: mha.GroupedAttention(4096, 32, kv, **how) for kv in (32, 8, 1)}
        latent = mha.LatentAttention(4096, 32, 512, d_rotary=64, **how)
    of = dict(zip(FORMS, (layers[32], layers[8], layers[1], latent, layers[32], layers[8]), strict=True))
    rows = []
    for row in found.rows:
        batch, context = (int(part.replace(",", "")) for part in row.split(" × "))
        line = [row]
        for column, layer in of.items():
            took = found[row, column] if column in found.columns else None
            if took is None:
                line.append("–")
                continue
            rate = layer.cost(batch, 1, context, fresh=1).cache / took / 1e3
            line.append(f"{rate:,.0f} ({rate / copy:.0%})" + "*" * ((row, column) in found.awaiting))
        rows.append(line)
    return f"{RATES.format(copy=copy)}\n\n{table([on_a_gpu.STEP, *of], rows)}\n"


def write(store: dict, folder: Path | None = None) -> None:
    """Store the tables, and make the page; in a folder of the caller only the tables."""
    text = json.dumps(store, indent=1, ensure_ascii=False) + "\n"
    if folder is None:
        on_a_gpu.STORE.write_text(text, "utf8")
        PAGE.write_text(page(), "utf8")
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(text, "utf8")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf8")
