"""Printed columns become tables of a page, with every word that was printed; what is no table stays as it is."""

import json
import re
from html import unescape
from pathlib import Path

import pytest
from programs import load

ROOT = Path(__file__).resolve().parents[2]
PRINTED = """\
All times
                        one, %   two, %
plain                1.0 ± 0.2 3.5 ± 0.1
with a longer name  10.0 ± 0.1 4.5 ± 0.1
without <it>                 –       4.5
on one machine, in one afternoon
"""


@pytest.fixture(scope="module")
def tables():
    return load("book/_ext/course_tables.py")


def cells(html):
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", html)]


def words(html):
    return unescape(re.sub(r"<[^>]*>", " ", html)).split()


def test_columns_become_a_table_with_names_of_rows_and_columns(tables, monkeypatch):
    assert tables.with_tables(PRINTED) is None, "it fits a phone"
    monkeypatch.setattr(tables, "FITS", 30)
    html = tables.with_tables(PRINTED)
    assert cells(html) == [
        ["", "one, %", "two, %"],
        ["plain", "1.0 ±\xa00.2", "3.5 ±\xa00.1"],
        ["with a longer name", "10.0 ±\xa00.1", "4.5 ±\xa00.1"],
        ["without &lt;it&gt;", "–", "4.5"],
    ]
    assert html.count('scope="col"') == 2
    assert html.count('scope="row"') == 3
    assert html.startswith("<pre>All times</pre>")
    assert html.endswith("<pre>on one machine, in one afternoon</pre>")


def test_several_lines_that_name_columns_become_one(tables):
    text = """\
                               forward
                                     +    peak,
layer                forward  backward      MiB
grouped, 4 KV heads    0.77      0.74       147
talking                  36       9.4     3,160
"""
    assert cells(tables.with_tables(text))[0] == [
        "layer",
        "forward",
        "forward + backward",
        "peak, MiB",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "a line that is long enough for a phone to cut it  and two blanks\n",
        "[[ 0.00000000  1.00000000  2.00000000  3.00000000]\n [ 4.00000000  5.00000000  6.00000000  7.00000000]]\n",
        "d_k =   2: a score is typically  1.43, √d_k =  1.41\nd_k = 512: a score is typically 22.54, √d_k = 22.63\n",
        # a name that is too long for its column: no line may be left out
        "plain          2.4 nats per character at the end\npre-norm       2.4 nats per character at the end\n"
        "post-norm, small init 2.4 nats per character at the end\n",
        # two numbers in one cell
        "                     first pair     second pair\none of the layers    0.1  0.2       0.3  0.4\n"
        "another one          0.1  0.2       0.3  0.4\n",
    ],
)
def test_what_is_no_table_stays_text(tables, text):
    assert tables.with_tables(text) is None


def test_no_word_that_a_notebook_prints_is_lost(tables):
    found = 0
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        printed = [
            "".join(output["text"])
            for cell in json.loads(path.read_text("utf8"))["cells"]
            for output in cell.get("outputs", ())
            if output["output_type"] == "stream"
        ]
        for text in printed:
            if html := tables.with_tables(text):
                found += 1
                # the words of a header of several lines stand column by column
                assert sorted(words(html)) == sorted(text.split()), text
                widths = {len(row) for one in re.findall(r"<table.*?</table>", html) for row in cells(one)}
                assert min(widths) > 1
    assert found > 50


def test_cards_say_what_their_parts_are_and_names_break_at_their_joints(tables):
    body = (
        '<table class="table"><thead><tr class="row-odd"><th class="head">no.</th></tr></thead>'
        '<tbody><tr><td><code><span class="pre">key_padding_mask</span></code></td></tr></tbody></table>'
    )
    said = tables.cards(body)
    assert re.findall(r"<(\w+) role=\"(\w+)\"", said) == [
        ("table", "table"), ("thead", "rowgroup"), ("tr", "row"), ("th", "columnheader"), ("tbody", "rowgroup"),
        ("tr", "row"), ("td", "cell"),
    ]  # fmt: skip
    assert 'class="cards table"' in said
    assert "key_<wbr>padding_<wbr>mask" in tables.with_joints(body)
    assert tables.with_joints('<p><span class="pre">a_b</span></p>').count("<wbr>") == 0
    long = '<td><span class="pre">mha.RotaryPositions(angle=2)</span></td>'
    assert "mha.<wbr>Rotary<wbr>Positions(<wbr>angle=<wbr>2)" in tables.with_joints(long)
