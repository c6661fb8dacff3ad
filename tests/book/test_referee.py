"""The referee report is that of `benchmarks/referee.yml`: what is changed is still there, and each row is stored."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
import referee  # noqa: E402
import seeds  # noqa: E402

ASKED = referee.asked()


def texts(entry, topic, **other):
    """The statements that the entry's value needs, as text."""
    entry = entry | other
    statements = referee.statements_of(referee.changed(entry, topic), entry.get("skip", []))
    return [ast.unparse(tree) for tree in referee.needed(statements, entry["value"]).values()]


@pytest.mark.parametrize("topic", ASKED)
def test_each_entry_changes_what_its_value_needs(topic):
    for entry in ASKED[topic]:
        assert texts(entry, topic) != texts(entry, topic, replace=[], before=""), entry["claim"]
        assert entry["bounds"][0] < entry["bounds"][1], entry["claim"]


def test_a_text_that_does_not_occur_is_an_error():
    entry = {"claim": "a claim", "replace": [["no such text", "another"]]}
    with pytest.raises(ValueError, match=r"why_scale, a claim: no code cell contains 'no such text'"):
        referee.changed(entry, "why_scale")
    statements = referee.statements_of({"cell": "a = 1"})
    assert [one.text for one in statements] == ["a = 1"]
    with pytest.raises(ValueError, match="no statement contains 'b = 2'"):
        referee.statements_of({"cell": "a = 1"}, ["b = 2"])


CELLS = {
    "one": "import math\nnumber = 1\ntable = {}\nnumber = 2\nother = number",
    "two": "table['two'] = number\nassert number == 3\nnumber = 5\nfor i in range(3):\n    assert i > 9\n    total = i",
    "three": "def add(x):\n    return x + later\nlater = math.floor(7.5)\nprint(add(table['two']))",
}


def test_only_what_a_value_needs_is_run():
    needed = referee.needed(referee.statements_of(CELLS), "add(table['two'])")
    kept = [ast.unparse(tree) for tree in needed.values()]
    assert kept == [
        "import math", "table = {}", "number = 2", "table['two'] = number",
        "def add(x):\n    return x + later", "later = math.floor(7.5)",
    ]  # fmt: skip
    names = referee.execute(needed)
    assert eval("add(table['two'])", names) == 9
    loop = referee.execute(referee.needed(referee.statements_of(CELLS), "total"))
    assert loop["total"] == 2  # the assertion in the loop is left out


def test_every_row_is_stored_and_tells_the_truth():
    lines = referee.PAGE.read_text("utf8").splitlines()
    rows = [[part.strip() for part in line.strip("| ").split(" | ")] for line in lines if seeds.topic_of(line)]
    stored = {tuple(row[:3]): row for row in rows}
    asked = {(topic, one["claim"], one["changed"]): one for topic, entries in ASKED.items() for one in entries}
    assert set(stored) == set(asked)
    assert len(stored) == len(rows) == sum(map(len, ASKED.values()))
    for key, row in stored.items():
        low, high = asked[key]["bounds"]
        again = f"{key}: not as stored: python benchmarks/referee.py --only {key[0]} --write"
        assert row[6] == f"{low} … {high}", again
        held = all(low - 5e-4 <= float(value) <= high + 5e-4 for value in row[3:6])
        assert row[7] == ("yes" if held else f"**no**: {asked[key].get('says')}"), again
