"""Write book/claims_ledger.md from book/claims.yml: every claim, its verdict, and a link to the cell that decides it.

    python tools/make_ledger.py

A test compares the page, and demands for every verdict a cell that is executed.
"""

import re
import sys
from pathlib import Path

import nbformat
import yaml
from chapters import CHAPTERS, ROOMS, topic

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "book" / "claims.yml"
PAGE = ROOT / "book" / "claims_ledger.md"
WORDS = {
    "confirmed": "confirmed",
    "conditional": "true with a condition",
    "corrected": "corrected",
    "refuted": "refuted",
    "open": "open",
}

HEAD = """# The claims ledger

Tutorials, lectures and papers say many things about attention. Here are {count} of them in our own words, each with a
verdict and with the cell that decides it. A claim is *confirmed*, *true with a condition*, *corrected* (the fact is
right, but the words are not), *refuted*, or *open* (it needs published models or it is history, and nothing here can
decide it). The cells are executed by the tests. Where a cell of ours disagrees with a famous text, the cell wins; where
you disagree with a cell, change it and see. The course has done so for its own conclusions: its
{{download}}`referee report <../benchmarks/referee.md>` says what was changed and which conclusions turned around.

{choice}

**Where texts contradict each other.** Is one head self-attention ({one} and {two})? Do more heads mean more parameters
({three} against {four})? Does the output matrix compress, or does it keep the width ({five})? Is the input cut, or its
projection ({six})? Is the arithmetic intensity below 1, or about 1 ({seven})? And is "multi-head" the concatenation, or
what the output matrix makes of it ({eight})? Each pair is decided in one place.
"""
PAIRS = {
    "one": "128", "two": "139", "three": "5", "four": "127", "five": "17", "six": "9", "seven": "32", "eight": "100",
}  # fmt: skip


def rows():
    """All claims of chapters that are in the book, as (number, chapter, verdict, claim, what decides)."""
    written = {*map(topic, CHAPTERS), ""}
    return [row for row in yaml.safe_load(DATA.read_text(encoding="utf-8")) if row[1] in written]


def labels():
    """The labels of claims in the notebooks: number → file."""
    found = {}
    for path in (*CHAPTERS, *ROOMS):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "markdown":
                found |= dict.fromkeys(re.findall(r"^\(claim-(\w+)\)=$", cell.source, re.MULTILINE), path.stem)
    return found


def formula(text):
    """Names such as W_o and d_k as code, so that they read the same everywhere."""
    return re.sub(r"(?<![`\w)])((?:W|d)_\w)(?![`\w])", r"`\1`", text).replace("|", "\\|")


def place(number, where):
    """A link to the cell, or to the bug museum."""
    if number in where:
        return f"{{ref}}`cell <claim-{number}>`"
    return "{doc}`museum <bug_museum>`" if number == "132" else "–"


def choice(count):
    """Buttons that show the claims of one verdict; style sheets do it, so without them all claims are there."""
    words = {"all": f"<b>all {sum(count.values())}</b>"}
    words |= {verdict: f"<b>{count[verdict]}</b> {word}" for verdict, word in WORDS.items()}
    buttons = "\n".join(
        f'<label><input type="radio" name="verdict" value="{verdict}"{" checked" * (verdict == "all")}> {text}</label>'
        for verdict, text in words.items()
    )
    return f'```{{raw}} html\n<fieldset class="verdicts"><legend>Show</legend>\n{buttons}\n</fieldset>\n```'


def page():
    """The whole page as text."""
    every, where = rows(), labels()
    count = {verdict: sum(row[2] == verdict for row in every) for verdict in WORDS}
    pairs = {key: f"{{ref}}`{number} <claim-{number}>`" for key, number in PAIRS.items()}
    parts = [HEAD.format(count=len(every), choice=choice(count), **pairs)]
    notebooks = {topic(path): path for path in CHAPTERS}
    for chapter in [*(name for name in notebooks if any(row[1] == name for row in every)), ""]:
        title = "In the bug museum"
        if chapter:
            first = nbformat.read(notebooks[chapter], as_version=4).cells[0].source.splitlines()[0]
            title = f"{notebooks[chapter].stem[:2]} {first[2:]}"
        parts += [f"\n## {title}\n", "| no. | the claim | verdict | what decides | cell |", "|---|---|---|---|---|"]
        parts += [
            f"| {number} | {formula(claim)} | [{WORDS[verdict]}]{{.verdict .{verdict}}} | {formula(why)} | "
            f"{place(number, where)} |"
            for number, _, verdict, claim, why in every
            if _ == chapter
        ]
    return "\n".join(parts) + "\n"


def main():
    PAGE.write_text(page(), encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
