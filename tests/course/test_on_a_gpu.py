"""The figures that were measured on a GPU: whole, used, and honest about which code they belong to."""

import json
import re

import pytest
from chapters import NOTEBOOKS

from mha.course import on_a_gpu

FOUND = json.loads(on_a_gpu.STORE.read_text("utf8"))
CHANGED = {  # the code behind these has changed since, and no card was at hand: a column, or rows of all columns
    "decode": {"8 KV heads", "1 KV head", "MLA, absorbed", "linear", "delta rule"},
    "texts": {"linear", "delta rule"},
    "variants": {"overlapping", "RoPE", "linear", "delta rule", "ALiBi", "routed", "composable"},
    "compiled": {"RoPE", "delta rule", "composable"},
    "routed": {"heads left out"},
    "edits": {"scores edited in torch"},
}
every_table = pytest.mark.parametrize("name", on_a_gpu.WHAT)


def test_the_tables_are_those_that_are_described():
    assert set(FOUND["tables"]) == set(on_a_gpu.WHAT)
    used = {entry["run"] for table in FOUND["tables"].values() for entry in table["columns"].values()}
    assert set(FOUND["runs"]) == used


def test_a_run_names_its_card_its_torch_and_its_day():
    for run in FOUND["runs"].values():
        assert set(run) == {"card", "torch", "date"}
        assert "NVIDIA" in run["card"] or "AMD" in run["card"]
        assert re.fullmatch(r"2\.\d+\.\d+\S*", run["torch"])
        assert re.fullmatch(r"20\d\d-[01]\d-[0-3]\d", run["date"])


@every_table
def test_a_table_is_whole(name):
    table = on_a_gpu.measured(name)
    assert len(set(table.rows)) == len(table.rows) == len(FOUND["tables"][name]["rows"])
    assert list(table.values) == [(row, column) for column in table.columns for row in table.rows]
    for column in table.columns:
        entry = FOUND["tables"][name]["columns"][column]
        assert set(entry) == {"run", "values", "awaits"}
        assert any(value is not None for value in entry["values"]), column
        assert set(entry["awaits"]) <= set(table.rows), column
    assert all(value is None or 0 < value < 1e6 for value in table.values.values())
    assert all(table[cell] is not None for cell in table.awaiting)


@every_table
def test_what_awaits_a_card_is_what_has_changed(name):
    table, changed = on_a_gpu.measured(name), CHANGED.get(name, set())
    wanted = {
        cell for cell in table.values if (cell[0] in changed or cell[1] in changed) and table[cell] is not None
    }
    assert table.awaiting == wanted
    assert changed <= {*table.rows, *table.columns}


@every_table
def test_every_table_is_in_a_notebook(name):
    shown = re.compile(rf'on_a_gpu\.(?:show|measured)\(\W*{name}\b')
    assert [path.name for path in NOTEBOOKS.glob("*.ipynb") if shown.search(code(path))], name


def code(path):
    cells = json.loads(path.read_text("utf8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


def test_a_figure_has_three_digits_and_a_star_where_it_awaits_a_card(capsys):
    table = on_a_gpu.measured("decode")
    assert table["32 × 16,384", "32 KV heads"] == 2908
    assert table.written("32 × 16,384", "32 KV heads") == "2,908"
    assert table.written("32 × 16,384", "MLA, absorbed") == "4,574*"
    assert table.written("32 × 16,384", "MLA, expanded") == "–"
    on_a_gpu.show("decode", ["MLA, absorbed"], ["32 × 4,096"])
    printed = capsys.readouterr().out
    assert printed.splitlines()[1:5] == [
        f"{table.title}, µs"[72:].strip() or "µs",
        "                     MLA,",
        "batch × context  absorbed",
        "32 × 4,096         2,067*",
    ]
    assert "awaits a" in printed
    assert "\nNVIDIA H100 80GB HBM3, torch 2.11.0+cu130, 2026-11-26\n" in printed


@every_table
def test_what_is_shown_fits_a_page(name, capsys):
    for column in on_a_gpu.measured(name).columns:
        on_a_gpu.show(name, [column])
        assert max(map(len, capsys.readouterr().out.splitlines())) <= 72


def test_careless_calls_are_told_what_to_do():
    with pytest.raises(ValueError, match=r"table = 'decoding': it must be one of \['ceilings', 'decode'"):
        on_a_gpu.measured("decoding")
    with pytest.raises(TypeError, match="name = 3"):
        on_a_gpu.measured(3)
    with pytest.raises(ValueError, match=r"column = 'GQA': it must be one of \['32 KV heads'"):
        on_a_gpu.show("decode", ["GQA"])
    with pytest.raises(ValueError, match="row = '4,096'"):
        on_a_gpu.show("decode", ["linear"], ["4,096"])
    with pytest.raises(ValueError, match="choose fewer"):
        on_a_gpu.show("decode")
    with pytest.raises(KeyError, match="the rows are"):
        on_a_gpu.measured("decode")["linear", "4,096"]
