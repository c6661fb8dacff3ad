"""What GPUs said: measured tables that the chapters show beside the times of a processor.

``benchmarks/gpu.py`` measures and stores them; no GPU is needed to read them.

:Taught in: counting_cost.
"""

import json
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mha.checks import checked, described

STORE = Path(__file__).with_name("results.json")
WIDE = 72  # columns of the pages' code and output
AWAITS = "measured before mha had ways of its own for GPUs; awaits a GPU"
SAME = "the same again"  # the column that shows the noise: the base, measured against itself
STEP = "batch × context"
WHAT = {  # name: what was measured, its unit, and what the rows are
    "ceilings": ("The ceilings of the card", "bfloat16", ""),
    "decode": ("One more token, whole layer, width 4096, 32 heads of 128", "µs", STEP),
    "latent": ("One more token, no projections, 32 heads of 128, latents of 576", "µs", STEP),
    "texts": ("A whole causal sequence, whole layer, width 2048, 16 heads of 128", "ms", "tokens"),
    "kernels": ("A whole causal sequence, no projections, 16 heads of 128", "ms", "tokens"),
    "variants": ("4 causal sequences of 2048 tokens, width 1024, 16 heads", "times plain", "layer"),
    "compiled": ("The same layers, forward, under torch.compile", "times", "layer"),
    "routed": ("4 shared heads and 4 of 12, 4 sequences, width 1024, not causal", "ms", "tokens"),
    "edits": ("ALiBi, no projections, 4 causal sequences of 2048, 16 heads of 64", "ms", "way"),
    "flex": ("FlexAttention, 2 sequences, 16 heads of 64", "times causal, fused", "tokens"),
    "plain": ("Causal layers, beside the least code", "times", "shape, pass"),
}


@dataclass(frozen=True)
class Run:
    """One run of the benchmark: on which card, with which torch, on which day.

    :Taught in: counting_cost.
    """

    card: str
    torch: str
    date: str
    driver: str = ""

    def __str__(self) -> str:
        driver = f", driver {self.driver}" if self.driver else ""
        return f"{self.card}{driver}, torch {self.torch}, {self.date}"


@dataclass(frozen=True)
class Measured:
    """A stored table: ``table[row, column]`` is a number, or None where nothing was measured.

    :Taught in: counting_cost.
    """

    name: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: dict[tuple[str, str], float | None]
    awaiting: frozenset[tuple[str, str]]  # the figures of code that has changed since
    runs: dict[str, Run]  # of each column

    @property
    def title(self) -> str:
        """What was measured."""
        return WHAT[self.name][0]

    @property
    def unit(self) -> str:
        """The unit of all columns that name no other one."""
        return WHAT[self.name][1]

    def __getitem__(self, cell: tuple[str, str]) -> float | None:
        if cell not in self.values:
            raise KeyError(
                f"{cell!r} is not in the table {self.name!r}: the rows are {list(self.rows)}, "
                f"the columns {list(self.columns)}"
            )
        return self.values[cell]

    def written(self, row: str, column: str) -> str:
        """Write a figure as the pages do: three digits, a dash where there is none, a star where a card is awaited.

        :Raises: KeyError for a row or a column that the table does not have.
        """
        value = self[row, column]
        if value is None:
            return "–"
        return (f"{value:,.0f}" if value >= 100 else f"{value:.3g}") + "*" * ((row, column) in self.awaiting)


@checked
def measured(name: str) -> Measured:
    """Look up a table that was measured on a GPU.

    :param name: of the table, one of ``WHAT``.
    :Raises: ValueError for a table that does not exist.
    :Taught in: counting_cost.
    """
    _known("table", name, WHAT)
    found = json.loads(STORE.read_text("utf8"))
    table, runs = found["tables"][name], {key: Run(**run) for key, run in found["runs"].items()}
    values: dict[tuple[str, str], float | None] = {}
    awaiting: set[tuple[str, str]] = set()
    for column, entry in table["columns"].items():
        for row, value in zip(table["rows"], entry["values"], strict=True):
            values[row, column] = None if value is None else float(value)
        awaiting |= {(row, column) for row in entry["awaits"]}
    of_columns = {column: runs[entry["run"]] for column, entry in table["columns"].items()}
    return Measured(name, tuple(table["rows"]), tuple(of_columns), values, frozenset(awaiting), of_columns)


@checked
def show(name: str, columns: Sequence[str] = (), rows: Sequence[str] = ()) -> None:
    """Print a table, or a part of it, with its card, torch and date.

    :param name: of the table, one of ``WHAT``.
    :param columns: which ones, in this order; all but that of the noise unless given.
    :param rows: which ones, in this order; all unless given.
    :Raises: ValueError for a table, column or row that does not exist, and for more columns than fit a page.
    :Taught in: counting_cost.
    """
    table = measured(name)
    for column in columns:
        _known("column", column, table.columns)
    for row in rows:
        _known("row", row, table.rows)
    columns, rows = columns or [one for one in table.columns if one != SAME], rows or table.rows
    cells = {column: [table.written(row, column) for row in rows] for column in columns}
    first = max(map(len, (*rows, WHAT[name][2])))
    lines = [*textwrap.wrap(f"{table.title}, {table.unit}", WIDE), *_grid(WHAT[name][2], rows, cells, first)]
    if max(map(len, lines)) > WIDE:
        raise ValueError(f"{len(columns)} columns of the table {name!r} are wider than {WIDE} letters: choose fewer")
    if any((row, column) in table.awaiting for row in rows for column in columns):
        lines.append(textwrap.fill(f"* {AWAITS}", WIDE, subsequent_indent="  "))
    runs = dict.fromkeys(str(table.runs[column]) for column in columns)
    print("\n".join([*lines, *(textwrap.fill(run, WIDE) for run in runs)]))


def _known(kind: str, name: str, names: Iterable[str]) -> None:
    """Refuse a name that is not among the stored ones."""
    if name not in (known := list(names)):
        raise ValueError(f"{kind} = {described(name)}: it must be one of {known}")


def _grid(corner: str, rows: Sequence[str], cells: dict[str, list[str]], first: int) -> list[str]:
    """The lines of a table: heads broken between words, numbers under each other, stars beside them."""
    heads, wide = {}, {}
    for column, written in cells.items():
        starred = any(one.endswith("*") for one in written)
        written[:] = [one if one.endswith("*") or not starred else f"{one} " for one in written]
        wide[column] = max(map(len, (*written, *column.split())))
        heads[column] = textwrap.wrap(column, max(wide[column], 8), break_long_words=False, break_on_hyphens=False)
        wide[column] = max(wide[column], *map(len, heads[column]))
    high = max(map(len, heads.values()))
    lines = []
    for i in range(high):
        parts = (heads[c][i - high] if i >= high - len(heads[c]) else "" for c in cells)
        left = corner if i == high - 1 else ""
        lines.append(f"{left:{first}}" + "".join(f"  {part:>{wide[c]}}" for part, c in zip(parts, cells, strict=True)))
    for i, row in enumerate(rows):
        lines.append(f"{row:{first}}" + "".join(f"  {cells[c][i]:>{wide[c]}}" for c in cells))
    return [line.rstrip() for line in lines]
