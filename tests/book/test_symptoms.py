"""The page of symptoms: every test is true where its cause is, every fix mends it, and the table is what torch does."""

import copy
import itertools
import json
import math
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from chapters import named
from mdit_py_plugins.anchors.index import slugify
from programs import load
from torch import nn

import mha
import mha.interop

ROOT = Path(__file__).resolve().parents[2]
TOOL = load("tools/make_bugs.py")
SYMPTOMS = TOOL.symptoms()
CAUSES = [
    pytest.param(cause, id=f"{symptom['id']}-{number}")
    for symptom in SYMPTOMS
    for number, cause in enumerate(symptom["causes"], 1)
]
ROWS = [
    pytest.param(case, id=f"{number}-{case['when'][:30]}")
    for number, group in enumerate(TOOL.data()["rows"], 1)
    for case in group["cases"]
]
NAMES = {"torch": torch, "nn": nn, "F": F, "mha": mha, "math": math, "copy": copy, "itertools": itertools}
LONGEST = 88  # characters of a line that fit the column


@pytest.fixture(autouse=True)
def float32():
    torch.set_default_dtype(torch.float32)


def after(*parts):
    """The names that these lines leave behind."""
    torch.manual_seed(0)
    names = dict(NAMES)
    for part in parts:
        exec(part, names)
    return names


def holds(expression, names):
    return bool(eval(expression.partition("  #")[0], names))


def problem(cause):
    """What does not hold of a cause; an empty string where all does."""
    test, right = cause["test"], cause.get("right", f"not ({cause['test'].partition('  #')[0]})")
    example = (cause["given"], cause.get("first", ""))
    broken, fixed = after(*example), after(*example, cause["fix"])
    if not holds(test, broken):
        return "its test is false where the cause is"
    if holds(right, broken):
        return "nothing is wrong before the fix"
    if not holds(right, fixed):
        return "it is wrong after the fix"
    if holds(test, after(*example, cause["healthy"]) if "healthy" in cause else fixed):
        return "its test is true where the cause is not"
    if "mha" in cause and not holds(right, after(*example, cause["mha"])):
        return "it is wrong with mha"
    return ""


@pytest.mark.parametrize("cause", CAUSES)
def test_the_test_sees_the_cause_and_the_fix_mends_it(cause):
    assert problem(cause) == ""


def test_what_is_wrong_with_a_cause_is_found():
    good = {"given": "n = 2", "test": "n > 1  # too many", "fix": "n = 1", "mha": "n = 0", "right": "n < 2"}
    assert problem(good) == ""
    assert "where the cause is" in problem(good | {"test": "n > 2"})
    assert "before the fix" in problem(good | {"right": "n < 3"})
    assert "after the fix" in problem(good | {"fix": "n = 3"})
    assert "is not" in problem(good | {"test": "n > 0"})
    assert "is not" in problem(good | {"healthy": "n = 5"})
    assert "with mha" in problem(good | {"mha": "n = 4"})


@pytest.mark.parametrize("symptom", SYMPTOMS, ids=lambda symptom: symptom["id"])
def test_the_tests_of_one_symptom_tell_its_causes_apart(symptom):
    """Where an example has all that another cause's test asks for, that test is false there."""
    for (number, one), (_, other) in itertools.permutations(enumerate(symptom["causes"], 1), 2):
        names = after(other["given"])
        try:
            exec(one.get("first", ""), names)
            taken = holds(one["test"], names)
        except Exception:  # the test asks for something else
            continue
        assert taken == (number in other.get("also", ())), f"{one['test']} is true for: {other['what']}"


@pytest.mark.parametrize("cause", CAUSES)
def test_a_cause_can_be_read_and_copied(cause):
    assert "\n" not in cause["test"]
    assert max(map(len, TOOL.lines(cause).splitlines())) <= LONGEST
    assert "mha." not in cause["fix"]
    assert cause["what"].count("**") >= 2


def headings(path):
    """The anchors of a notebook's headings."""
    cells = [cell for cell in json.loads(path.read_text("utf8"))["cells"] if cell["cell_type"] == "markdown"]
    found = re.findall(r"^#{1,3} (.*)", "\n".join("".join(cell["source"]) for cell in cells), re.MULTILINE)
    return {slugify(heading.replace("`", "")) for heading in found}


def test_a_cause_is_explained_where_its_link_leads():
    places = {cause["place"] for symptom in SYMPTOMS for cause in symptom["causes"] if "place" in cause}
    sections = [place.partition("#") for place in places if "#" in place]
    assert [name for name, _, heading in sections if heading not in headings(named(name))] == []
    assert len(sections) > 50
    assert len([one for one in CAUSES if "place" in one.values[0]]) > 0.9 * len(CAUSES)


def test_there_are_many_and_each_has_a_name_of_its_own():
    assert len(SYMPTOMS) >= 25
    assert len(CAUSES) >= 100
    assert len({one["id"] for one in SYMPTOMS}) == len({one["see"] for one in SYMPTOMS}) == len(SYMPTOMS)
    assert all(re.fullmatch(r"[a-z-]+", one["id"]) for one in SYMPTOMS)


def test_the_page_shows_the_symptoms():
    assert (ROOT / "book" / "symptoms.md").read_text("utf8") == TOOL.symptoms_page(), "python tools/make_bugs.py"


def test_every_link_into_the_museum_finds_exhibits_there():
    asked = re.findall(r'href="bug_museum\.html\?symptom=([a-z-]+)#', TOOL.symptoms_page())
    there = {name for names, _ in TOOL.museum()["exhibits"].values() for name in names}
    assert set(asked) == there
    assert len(asked) == len(there)


# ---- rows that see nothing


def outputs(call):
    """What `call` makes of a query that sees nothing: the leaves, its row, the other rows, the mean of all values."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 4, 8, requires_grad=True) for _ in range(3))
    see = torch.ones(4, 4, dtype=torch.bool).tril()
    see[0] = False
    layer, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(2, 4, 8)
    hide = torch.tensor([[True] * 4, [False] * 4])
    bias = torch.zeros(2, 4).masked_fill(hide, -torch.inf)

    def quietly(call):
        with torch.no_grad():
            return call()

    names = NAMES | {"q": q, "k": k, "v": v, "see": see, "layer": layer, "x": x, "hide": hide, "bias": bias}
    exec(call, names | {"quietly": quietly}, found := {})
    if "layer" in call:  # its output is zero where its bias is, which begins at zero
        return list(layer.parameters()), found["z"][0], found["z"][1], None
    return [q, k, v], found["z"][..., :1, :], found["z"][..., 1:, :], v.mean(-2, keepdim=True)


@pytest.mark.parametrize("case", ROWS)
@pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask")
def test_a_row_that_sees_nothing_is_what_the_table_says(case):
    leaves, row, rest, mean = outputs(case["call"])
    found = {"zero": not row.any(), "NaN": bool(row.isnan().all())}
    found["mean"] = mean is not None and torch.allclose(row, mean.expand_as(row), atol=1e-6)
    assert [name for name, is_so in found.items() if is_so] == [case["row"]]
    if "rest" in case:
        slopes = torch.autograd.grad(rest.square().sum(), leaves, allow_unused=True)
        finite = all(slope.isfinite().all() for slope in slopes if slope is not None)
        assert case["rest"] == ("finite" if finite else "NaN")
    else:
        assert not rest.requires_grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_padded_query_that_sees_all_keys_changes_no_real_token(dtype):
    """The same two lines are on the page of questions."""
    fix = SYMPTOMS[0]["causes"][0]["fix"]
    assert f"```python\n{fix}```" in (ROOT / "book" / "questions.md").read_text("utf8")
    torch.manual_seed(0)
    tokens = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1], [0, 0, 0, 0, 0]]).bool()
    see = torch.ones(5, 5, dtype=torch.bool).tril() & tokens[:, None, None]
    q, k, v = torch.randn(3, 3, 2, 5, 8).to(dtype)
    before = F.scaled_dot_product_attention(q, k, v, attn_mask=see)
    exec(fix, names := {**NAMES, "q": q, "k": k, "v": v, "see": see})
    real = tokens[:, None].expand(3, 2, 5)
    assert torch.equal(names["z"][real], before[real])
    assert names["z"][~real].isfinite().all()
    exec(fix, step := {**NAMES, "q": q[:, :, 4:], "k": k, "v": v, "see": see[:, :, 4:]})  # one new token
    torch.testing.assert_close(step["z"][:2], before[:2, :, 4:])
    by_hand = (q @ k.mT / 8**0.5).masked_fill(~see, -torch.inf).softmax(-1) @ v
    assert by_hand[~real].isnan().all()
    assert not before[~real].any()
