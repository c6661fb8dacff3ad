"""The figures that were measured on a GPU: whole, used, and honest about which code they belong to."""

import json
import re
import subprocess
import sys

import pytest
from chapters import NOTEBOOKS
from programs import load

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
        assert {"card", "torch", "date"} <= set(run) <= {"card", "torch", "date", "driver"}
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
    wanted = {cell for cell in table.values if (cell[0] in changed or cell[1] in changed) and table[cell] is not None}
    assert table.awaiting == wanted
    assert changed <= {*table.rows, *table.columns}


@every_table
def test_every_table_is_in_a_notebook(name):
    shown = re.compile(rf"on_a_gpu\.(?:show|measured)\(\W*{name}\b")
    assert [path.name for path in NOTEBOOKS.glob("*.ipynb") if shown.search(code(path))], name


def code(path):
    cells = json.loads(path.read_text("utf8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


@pytest.fixture
def made_up(monkeypatch, tmp_path):
    """A store with one small table: what the program measures anew must not change these tests."""
    run = {"card": "NVIDIA X1", "torch": "2.13.0", "date": "2027-01-02"}
    columns = {
        "32 KV heads": {"run": "x", "values": [2908.4, 0.25], "awaits": []},
        "MLA, absorbed": {"run": "x", "values": [4574.0, None], "awaits": ["32 × 16,384"]},
        on_a_gpu.SAME: {"run": "x", "values": [1.01, 0.99], "awaits": []},
    }
    ceilings = {"rows": ["copy, GB/s"], "columns": {"best measured": {"run": "x", "values": [3000.0], "awaits": []}}}
    tables = {"decode": {"rows": ["32 × 16,384", "1 × 4,096"], "columns": columns}, "ceilings": ceilings}
    monkeypatch.setattr(on_a_gpu, "STORE", tmp_path / "results.json")
    on_a_gpu.STORE.write_text(json.dumps({"runs": {"x": run}, "tables": tables}), "utf8")
    return on_a_gpu.measured("decode")


def test_a_figure_has_three_digits_and_a_star_where_it_awaits_a_card(made_up, capsys):
    assert made_up["32 × 16,384", "32 KV heads"] == 2908.4
    assert made_up.written("32 × 16,384", "32 KV heads") == "2,908"
    assert made_up.written("1 × 4,096", "32 KV heads") == "0.25"
    assert made_up.written("32 × 16,384", "MLA, absorbed") == "4,574*"
    assert made_up.written("1 × 4,096", "MLA, absorbed") == "–"
    on_a_gpu.show("decode")
    assert capsys.readouterr().out.splitlines() == [
        f"{made_up.title}, µs",
        "                 32 KV      MLA,",
        "batch × context  heads  absorbed",
        "32 × 16,384      2,908    4,574*",
        "1 × 4,096         0.25        –",
        f"* {on_a_gpu.AWAITS}",
        "NVIDIA X1, torch 2.13.0, 2027-01-02",
    ]
    on_a_gpu.show("decode", ["32 KV heads"], ["1 × 4,096"])
    assert "*" not in capsys.readouterr().out


def test_bytes_a_second_are_those_of_the_cache(made_up, benchmark):
    """32 heads of 128, a key and a value, 2 bytes each; 576 numbers of a latent."""
    lines = benchmark.gpu_page.rates(made_up).splitlines()
    rates = [32 * 16384 * numbers * 2 / took / 1e3 for numbers, took in ((2 * 4096, 2908.4), (576, 4574))]
    first = [cell.strip() for cell in lines[4].strip("|").split("|")]
    assert first[:2] == ["32 × 16,384", f"{rates[0]:,.0f} ({rates[0] / 3000:.0%})"]
    assert first[4] == f"{rates[1]:,.0f} ({rates[1] / 3000:.0%})*"


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


# ---- the program that measures, tried on the processor


@pytest.fixture(scope="module")
def benchmark():
    """The program that measures."""
    return load("benchmarks/gpu.py")


FAST = ("decode", "routed")
ONLY_ON_A_CARD = {"peak, MiB", "mha, peak, MiB", "least code, peak, MiB"}


def sections():
    names = ("ceilings", "variants", "latent", "texts", "kernels", "plain", "flex", "edits")
    return [*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in names)]


@pytest.mark.parametrize("name", sections())
def test_a_section_makes_the_table_that_is_stored(name, benchmark, capsys):
    found = benchmark.SECTIONS[name][0](benchmark.Place(small=True), 0)
    assert set(found) == {name}
    rows, columns = found[name]
    stored, skipped = on_a_gpu.measured(name), capsys.readouterr().out
    missing = [one for one in stored.columns if one not in columns and one not in ONLY_ON_A_CARD]
    assert not [one for one in missing if "CUDA graph" not in one and "compiled" not in one and not known(one, skipped)]
    assert set(stored.rows) <= set(rows)
    assert all(len(values) == len(rows) for values in columns.values())
    assert all(value > 0 for values in columns.values() for value in values if value is not None)


def known(column, skipped):
    """Whether the program has said that a library is missing."""
    return ("fla" in column and "fla is not installed" in skipped) or f"skipped: {column}" in skipped


@pytest.mark.slow
def test_layers_compile_in_a_process_without_the_checks_of_annotations():
    program = NOTEBOOKS.parent / "benchmarks" / "gpu.py"
    asked = [sys.executable, program, "--try", "--only", "compiled"]
    done = subprocess.run(asked, capture_output=True, text=True, check=True, cwd=program.parents[1])
    assert re.findall(r"^  (\w+) [\d,]+ µs, compiled", done.stdout, re.MULTILINE) == ["plain", "RoPE"]


def test_every_table_has_a_section(benchmark):
    assert set(benchmark.SECTIONS) == set(on_a_gpu.WHAT)


def test_a_trial_stores_nothing(benchmark, capsys, monkeypatch):
    monkeypatch.setattr(benchmark.gpu_page, "write", lambda *_: pytest.fail("a trial was stored"))
    before = on_a_gpu.STORE.read_bytes()
    benchmark.main(["--try", "--only", "routed", "ceilings"])
    assert re.findall("^## (.*)$", capsys.readouterr().out, re.MULTILINE) == ["ceilings", "routed"]
    assert on_a_gpu.STORE.read_bytes() == before


def test_without_a_gpu_nothing_is_measured(benchmark, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit, match="There is no GPU here"):
        benchmark.main([])


def test_new_figures_replace_old_ones_and_await_nothing(benchmark):
    run = {"card": "NVIDIA H200", "torch": "2.13.0", "date": "2027-01-02", "driver": "590.1"}
    rows = FOUND["tables"]["texts"]["rows"]
    new = benchmark.merged(FOUND, run, {"texts": (rows, {"linear": [1.0, 2.0, 3.14159, None]})})
    linear, plain = (new["tables"]["texts"]["columns"][name] for name in ("linear", "plain"))
    assert linear["values"] == [1.0, 2.0, 3.142, None]
    assert linear["awaits"] == []
    assert new["runs"][linear["run"]] == run
    assert plain == FOUND["tables"]["texts"]["columns"]["plain"]  # not measured: with its own card and date
    assert new["tables"]["decode"] == FOUND["tables"]["decode"]
    longer = benchmark.merged(FOUND, run, {"texts": (["512", *rows], {"linear": [0.5, 1.0, 2.0, 3.0, 4.0]})})
    stretched = longer["tables"]["texts"]["columns"]
    assert stretched["linear"]["values"][0] == 0.5
    assert stretched["plain"] == plain | {"values": [None, *plain["values"]]}  # a row that awaits a GPU in old columns
    other = benchmark.merged(FOUND, run, {"texts": (rows[:1], {"linear": [1.0]})})
    assert list(other["tables"]["texts"]["columns"]) == ["linear"]  # fewer rows: old columns do not fit


def test_a_run_is_shown_with_its_driver():
    run = {"card": "NVIDIA H200", "torch": "2.13.0", "date": "2027-01-02"}
    assert str(on_a_gpu.Run(**run)) == "NVIDIA H200, torch 2.13.0, 2027-01-02"
    assert str(on_a_gpu.Run(**run, driver="590.1")) == "NVIDIA H200, driver 590.1, torch 2.13.0, 2027-01-02"


def test_the_page_is_made_of_the_store(benchmark):
    page = benchmark.gpu_page
    assert page.PAGE.read_text("utf8") == page.page(), "python benchmarks/gpu_page.py"
    assert all(f"## {title}, {unit}" in page.page() for title, unit, _ in on_a_gpu.WHAT.values())


def test_composed_heads_on_a_processor_are_quoted_rightly():
    """Chapter 22 compares with the fused kernel; the stored columns are relative to the formula."""
    page = (NOTEBOOKS.parent / "benchmarks" / "README.md").read_text("utf8")
    table = re.search(r"<!-- composing -->(.*?)<!-- end of composing -->", page, re.DOTALL)[1]
    head, _, *rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")]
    fused, composed = head.index("plain, fused kernel"), head.index("composed heads, R = 2")
    times = [float(row[composed]) / float(row[fused]) for row in rows]
    assert f"{min(times):.1f} to {max(times):.1f} times as long" in " ".join(
        (NOTEBOOKS / "22_compose.ipynb").read_text("utf8").replace('\\n",\n    "', " ").split()
    )
