"""What `benchmarks/seeds` asks of a chapter can be asked: the names are the notebook's, and each row is stored."""

import ast
import builtins
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
import seeds  # noqa: E402


def made(source):
    """The names that code makes outside functions, imports and loops included."""
    tree = ast.parse(source)
    inside = {
        n for f in ast.walk(tree) if isinstance(f, (ast.FunctionDef, ast.Lambda)) for n in ast.walk(f) if n is not f
    }
    outside = [node for node in ast.walk(tree) if node not in inside]
    names = {node.id for node in outside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    names |= {node.name for node in outside if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    aliases = [alias for n in outside if isinstance(n, (ast.Import, ast.ImportFrom)) for alias in n.names]
    return names | {(alias.asname or alias.name).partition(".")[0] for alias in aliases}


def used(expression):
    tree = ast.parse(expression, mode="eval")
    own = {argument.arg for node in ast.walk(tree) if isinstance(node, ast.Lambda) for argument in node.args.args}
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    own |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
    return {node.id for node in names} - own - {"seed"} - set(dir(builtins))


@pytest.mark.parametrize("topic", seeds.ASKED)
def test_a_chapter_can_answer(topic):
    read = [cell for path in seeds.family(topic) for cell in nbformat.read(path, as_version=4).cells]
    cells = [cell.source for cell in read if cell.cell_type == "code"]
    asked = seeds.asked(topic)
    known = set().union(*map(made, [*cells, asked.get("before", "")]))
    for what, row in asked["rows"].items():
        assert used(row["value"]) <= known, f"{what}: {topic} has no {used(row['value']) - known}"
        assert row["bounds"][0] <= row["bounds"][1], what


def test_every_row_is_stored_and_held():
    rows = [line.split(" | ") for line in (ROOT / "benchmarks" / "seeds.md").read_text("utf8").splitlines()]
    stored = {(row[0].strip("| "), row[1]): row for row in rows if seeds.topic_of(" | ".join(row))}
    asked = {(topic, what) for topic in seeds.ASKED for what in seeds.asked(topic)["rows"]}
    assert set(stored) == asked
    for key, row in stored.items():
        low, high = seeds.asked(key[0])["rows"][key[1]]["bounds"]
        assert row[7] == f"{low} … {high}", (
            f"{key}: the stored bounds are others: python benchmarks/seeds.py {key[0]} --write"
        )
        assert all(low - 5e-4 <= float(value) <= high + 5e-4 for value in row[2:7]), key
