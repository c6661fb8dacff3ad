"""Write book/bug_museum.md from the exhibits in mha/course/bugs: symptom, broken code, the test, mended code.

    python tools/make_bugs.py

A test runs every exhibit and compares the page.
"""

import inspect
import re
import sys
from pathlib import Path

from chapters import ROOMS, named

from mha.course.bugs import EXHIBITS

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "book" / "bug_museum.md"

HEAD = f"""# The bug museum

Here are {len(EXHIBITS)} bugs that were made in public, most of them in well-known code. Each is made small: the
broken lines, the test that sees the bug, and the mended lines. **Both versions pass a weak check**, usually that the
shapes are right. That is why the bugs lived so long. The tests of the course run every exhibit: the broken one must
fail its test, the mended one must pass it.

The code is in `mha/course/bugs`; `True` in a mask means "may look".

## By symptom

You know what you see, and not what it is? Start here.

| what you see | it may be |
|---|---|
"""


def anchor(exhibit):
    """The label of an exhibit."""
    return "bug-" + re.sub(r"[^a-z0-9]+", "-", exhibit.title.lower()).strip("-")


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


def page():
    """The whole page as text."""
    index = sorted(f"| {e.symptom} | {{ref}}`{e.title} <{anchor(e)}>` |" for e in EXHIBITS)
    parts = [HEAD + "\n".join(index) + "\n\n## The exhibits\n"]
    for number, e in enumerate(EXHIBITS, start=1):
        right = f"**Right, both of them:**\n\n{code(*e.right)}\n\n" if e.right else ""
        parts.append(
            f"({anchor(e)})=\n### {number}. {e.title}\n\n**Symptom.** {e.symptom}\n\n**Who notices.** {e.who}\n\n"
            f"{right}**Broken:**\n\n{code(e.broken)}\n\n**The test that sees it:**\n\n{shown(e.test)}\n\n"
            f"**Mended:**\n\n{code(e.mended)}\n\n"
            f"**Seen in** {', '.join(map(thread, e.threads))}. **Taught in** {link(e.place)}.\n"
        )
    return "\n".join(parts)


def main():
    PAGE.write_text(page(), encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
