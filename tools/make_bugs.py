"""Write two pages: book/bug_museum.md from mha/course/bugs, and book/symptoms.md, which leads to it, from symptoms.yml.

    python tools/make_bugs.py

An exhibit of the museum is a symptom, broken code, the test, and mended code. A symptom has causes, and a cause has a
test, a fix, and exhibits. Tests run every exhibit and every cause, and compare both pages.
"""

import html
import inspect
import json
import re
import sys
from functools import cache
from pathlib import Path

import nbformat
import yaml
from chapters import ROOMS, chapter_of, named
from make_constraints import TORCH

from mha.course.bugs import EXHIBITS

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "book" / "symptoms.yml"
MUSEUM = ROOT / "book" / "bug_museum.md"
SYMPTOMS = ROOT / "book" / "symptoms.md"

HEAD = f"""# The bug museum

Here are {len(EXHIBITS)} bugs that were made in public, most of them in well-known code. Each one is reduced to a small
example: the broken lines, the test that catches the bug, and the mended lines. **Both versions pass a weak check**,
usually that the shapes are right. That is why the bugs lived so long. The tests of the course run every exhibit: the
broken version must fail the exhibit's test, and the mended version must pass it.

The code is in `mha/course/bugs`; `True` in a mask means "may look".

## By symptom

If you know what you see, but not what causes it, start here. Each symptom in this table links to its causes on the
[Symptoms](symptoms.md) page, with a test and a fix for each cause. The second column names the bugs.

| what you see | the bug may be |
|---|---|
"""

FILTER = """
## The exhibits

```{{raw}} html
{style}
<script defer src="../_static/museum.js"></script>
<div class="museum-filter" data-museum="{museum}"></div>
```
"""

START = """# Debugging attention by symptom: what do you see?

Find what you see. The causes follow in order of likelihood. For each cause there is a short test, **true if this is the
cause**, and a fix in plain torch. If the package can do the same, its code follows. The tests of the course execute
every line: on a small example with the bug the test is true, and after the fix the example is right. Replace the names
with your own tensors and functions.

The names are the same everywhere: `q`, `k`, `v` have the shape `(b, h, n, d)`, and `x` has `(b, n, m)`; `scores` and
`weights` end with the axes `(i, j)`, query and key. In `see` and `keep`, True means *may look*, and in `hide` it means
*hidden*. `F` is `torch.nn.functional`. The {count} bugs behind these symptoms are in the [bug museum](bug_museum.md),
with sources.

"""

STYLE = '<link rel="stylesheet" href="../_static/museum.css">'

ROWS = """
(rows-that-see-nothing)=
## Rows that see nothing: zero, NaN or a mean?

A query may see no key at all: with padding on the left under a causal mask, in an empty sequence, or after two masks
were combined. What comes out depends on the function, and in one layer also on the mode. The tables say what torch
{torch} does on a CPU, measured by a test. The last column says what the gradients are if the loss leaves this row out.
"""

WORDS = {
    "zero": "zeros", "NaN": "**NaN**", "mean": "the mean of all values, hidden ones too", "finite": "finite", None: "–",
}  # fmt: skip


@cache
def data():
    """The symptoms, by area, and what torch makes of a row that sees nothing."""
    return yaml.safe_load(DATA.read_text(encoding="utf-8"))


def symptoms():
    """All symptoms in their order."""
    return [one for area in data()["areas"] for one in area["symptoms"]]


def unfiled(titles):
    """The exhibits that have no symptom, and the titles among the symptoms that no exhibit has."""
    filed = {title for one in symptoms() for title in exhibits(one)}
    return sorted(filed.symmetric_difference(titles))


def exhibits(symptom):
    """The titles of the exhibits that have a symptom, each once."""
    return list(dict.fromkeys(title for cause in symptom["causes"] for title in cause.get("bugs", ())))


def anchor(title):
    """The label of an exhibit."""
    return "bug-" + re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def exhibit(title, text=None):
    """A link to an exhibit."""
    return f"{{ref}}`{text or title} <{anchor(title)}>`"


def symptom_link(symptom):
    """A link to a symptom."""
    return f"{{ref}}`{symptom['see']} <symptom-{symptom['id']}>`"


def thread(name):
    """A link to a public thread, given as owner/repository#number."""
    repository, number = name.split("#")
    return f"[{name}](https://github.com/{repository}/issues/{number})"


def code(*functions):
    """The source of functions as one block."""
    return "```python\n" + "\n\n\n".join(inspect.getsource(function).rstrip() for function in functions) + "\n```"


def link(place):
    """A link to a section of a chapter or side room, given by topic, as in "masking#the-formula"."""
    topic, hash_sign, heading = place.partition("#")
    path = named(topic)
    kind = "room" if path in ROOMS else "chapter"
    return f"[{kind} {path.stem.partition('_')[0]}](../notebooks/{path.name}{hash_sign}{heading})"


def shown(test):
    """The test as a block; a test of one line stands in the list of exhibits."""
    if test.__name__ != "<lambda>":
        return code(test)
    return "```python\n# right is: " + re.search(r"lambda f: (.*),\s*$", inspect.getsource(test))[1] + "\n```"


# ---- the museum


@cache
def topic(place):
    """The chapter of a place, as (number, what its title names)."""
    path = chapter_of(named(place.partition("#")[0]))
    title = nbformat.read(path, as_version=4).cells[0].source.splitlines()[0].removeprefix("# ")
    return path.stem[:2], title.partition(": ")[0].replace("$W^O$", "W_o")


def museum():
    """What the filter of the museum knows: symptoms by area, topics, and both for each exhibit."""
    filed = {e.title: [one["id"] for one in symptoms() if e.title in exhibits(one)] for e in EXHIBITS}
    return {
        "symptoms": [
            [area["area"], [[one["id"], one["see"]] for one in area["symptoms"] if exhibits(one)]]
            for area in data()["areas"]
        ],
        "topics": sorted({topic(e.place) for e in EXHIBITS}),
        "exhibits": {anchor(e.title): [filed[e.title], topic(e.place)[0]] for e in EXHIBITS},
    }


def museum_page():
    """The page of the museum as text."""
    rows = [
        f"| {symptom_link(one)} | {' · '.join(map(exhibit, exhibits(one)))} |" for one in symptoms() if exhibits(one)
    ]
    found = html.escape(json.dumps(museum(), ensure_ascii=False, separators=(",", ":")))
    parts = [HEAD + "\n".join(rows) + "\n" + FILTER.format(style=STYLE, museum=found)]
    for number, e in enumerate(EXHIBITS, start=1):
        right = f"**Both of these are right:**\n\n{code(*e.right)}\n\n" if e.right else ""
        filed = ", ".join(symptom_link(one) for one in symptoms() if e.title in exhibits(one))
        parts.append(
            f"({anchor(e.title)})=\n### {number}. {e.title}\n\n**Symptom.** {e.symptom}\n\n**Who notices.** {e.who}\n\n"
            f"{right}**Broken:**\n\n{code(e.broken)}\n\n**The test that catches it:**\n\n{shown(e.test)}\n\n"
            f"**Mended:**\n\n{code(e.mended)}\n\n"
            f"**Seen in** {', '.join(map(thread, e.threads))}. **Taught in** {link(e.place)}. **Look under** {filed}.\n"
        )
    return "\n".join(parts)


# ---- the symptoms


def lines(cause):
    """The lines of a cause that a reader copies: test, fix, and the same with the package."""
    first = f"{cause['first'].rstrip()}\n" if "first" in cause else ""
    parts = [f"# Is it this?\n{first}{cause['test']}", f"# The fix\n{cause['fix'].rstrip()}"]
    parts += [f"# The same with mha\n{cause['mha'].rstrip()}"] if "mha" in cause else []
    return "\n".join(parts)


def written(cause):
    """A cause as an entry of a list."""
    block = "\n".join(f"   {line}".rstrip() for line in f"```python\n{lines(cause)}\n```".splitlines())
    numbers = {e.title: number for number, e in enumerate(EXHIBITS, start=1)}
    links = [f"Explained in {link(cause['place'])}"] if "place" in cause else []
    links += [exhibit(title, f"exhibit {numbers[title]}, {title}") for title in cause.get("bugs", ())]
    return f"1. {cause['what']}\n\n{block}\n" + (f"\n   {' · '.join(links)}\n" if links else "")


def rows_that_see_nothing(torch):
    """Tables of what torch makes of a row that sees nothing."""
    parts = [ROWS.format(torch=torch)]
    for group in data()["rows"]:
        cases = [f"| {one['when']} | {WORDS[one['row']]} | {WORDS[one.get('rest')]} |" for one in group["cases"]]
        parts.append(f"{group['of']}\n\n| when | the row | gradients |\n|---|---|---|\n" + "\n".join(cases) + "\n")
    parts.append(
        "So a model may give zeros during training and NaN when it is used, from the same parameters and the same "
        "mask.\nIt is safest to have no such row: let the query see one key, and leave its output out of the loss.\n"
    )
    return "\n".join(parts)


def symptoms_page():
    """The page of symptoms as text."""
    parts = [START.format(count=len(EXHIBITS))]
    for area in data()["areas"]:
        parts[0] += f"- **{area['area']}**: {' · '.join(map(symptom_link, area['symptoms']))}\n"
    parts[0] += "- {ref}`Rows that see nothing <rows-that-see-nothing>`: what each function of torch makes of them\n"
    parts[0] += f"\n```{{raw}} html\n{STYLE}\n```\n"
    for area in data()["areas"]:
        parts.append(f"## {area['area']}\n")
        for one in area["symptoms"]:
            parts.append(f"(symptom-{one['id']})=\n### {one['see']}\n")
            parts += map(written, one["causes"])
            if count := len(exhibits(one)):
                text = f"{count} exhibit{'s' * (count > 1)} of the museum with this symptom"
                parts.append(f'<a href="bug_museum.html?symptom={one["id"]}#the-exhibits">{text}</a>\n')
    return "\n".join([*parts, rows_that_see_nothing(TORCH.partition("==")[2])])


def main():
    MUSEUM.write_text(museum_page(), encoding="utf-8", newline="\n")
    SYMPTOMS.write_text(symptoms_page(), encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
