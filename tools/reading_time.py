"""How long a chapter takes a reader whose first language is not English: minutes to read, and minutes of exercises.

    python tools/reading_time.py [--write] [notebook ...]      (all when none is named)

Words, lines of code, figures and formulas take so many seconds each, and more of them where a chapter builds on many
others: what is not fresh must be looked up or thought about again. The seconds were fitted once and are frozen: readers
who had not seen the course took 526 minutes for chapters 01 to 07 and 875 for 08 to 15, exercises included; for what
stood there then, these seconds give 552 and 801. An exercise takes the minutes that it states. `--write` puts both
times into the first cell of every chapter and side room; a test compares them.
"""

import ast
import json
import re
import sys
from pathlib import Path

from chapters import CHAPTERS, ROOMS

SECONDS = {"word": 0.25, "line": 1.6, "figure": 16.0, "formula": 22.0}
FOR_EACH_NEEDED = 0.25  # more, for each chapter on which this one builds, directly or not
MOST_NEEDED = 8  # what lies further back is known by heart
WIDTH = 88  # columns of code when the seconds were fitted
STEP = 5  # minutes: nobody reads by the minute
TIMES = re.compile(r"\*\*\d+ min to read(?: · \d+ min of exercises)?\*\*")
LINK = re.compile(r"\]\((\d\d)_\w+\.ipynb\)")
NOT_WORDS = re.compile(  # formulas, addresses, and what a figure says where it cannot be moved
    r"```\{math\}.*?```|\$\$.*?\$\$|\$[^$]*\$|\]\([^)]*\)|<figure .*?</figure>", re.DOTALL
)


def read(path):
    return [(cell, "".join(cell["source"])) for cell in json.loads(path.read_text("utf8"))["cells"]]


def needed(path):
    """The numbers of all chapters on which one builds: what it says it needs, what those need, and so on."""
    first = read(path)[0][1]
    says = re.search(r"You need: (.*?)(?:\n\n|\Z)", first, re.DOTALL)
    found = set(LINK.findall(says[1])) if says else {path.stem[:2]}
    for number in sorted(found):
        found |= needed(next(one for one in CHAPTERS if one.stem[:2] == number))
    return found


def measure(path):
    """Words, lines, figures, formulas, and the stated minutes of exercises, of one notebook; and its code cells."""
    count = dict.fromkeys(("words", "lines", "figures", "formulas", "exercises", "cells"), 0)
    section = ""
    for cell, source in read(path):
        if cell["cell_type"] == "markdown":
            for part in re.split(r"^(## .*)$", source, flags=re.MULTILINE):
                section = part[3:].strip() if part.startswith("## ") else section
                if section == "Exercises":
                    count["exercises"] += sum(map(int, re.findall(r"\*\*(\d+) minutes · ", part)))
                elif section not in ("Quiz", "Sources"):
                    count["words"] += len(re.findall(r"[^\W_][\w'’-]*", NOT_WORDS.sub("", part)))
                    count["formulas"] += len(re.findall(r"```\{math\}|\$\$.*?\$\$", part, re.DOTALL))
        elif section not in ("Exercises", "Quiz"):
            count["lines"] += lines(source)
            count["figures"] += "figure" in cell["metadata"].get("mystnb", {})
            count["cells"] += 1
    return count


def lines(source):
    """Lines of code, without checks and imports. Where a line is broken does not count: what is wider than the page was
    when the seconds were fitted is counted as two lines, however many it is written on.
    """
    written = [line for line in source.splitlines() if line.strip()]
    whole = len(written)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            rows = source.splitlines()[node.lineno - 1 : node.end_lineno]
            text = " ".join(row.strip() for row in rows)
            text = text.replace("( ", "(").replace(" )", ")").replace(", )", ")").replace("[ ", "[").replace(" ]", "]")
            width = node.col_offset + len(text)
            as_fitted = 1 if width <= WIDTH else min(len(rows), 1 + -(-(width - WIDTH) // (WIDTH - 8)))
            free = isinstance(node, ast.Assert | ast.Import | ast.ImportFrom) and node.col_offset == 0
            whole -= len(rows) - (0 if free else as_fitted)
    return whole


def minutes(path):
    """Minutes to read, and minutes of exercises."""
    found = measure(path)
    seconds = sum(SECONDS[kind] * found[f"{kind}s"] for kind in SECONDS)
    slower = 1 + FOR_EACH_NEEDED * min(len(needed(path)), MOST_NEEDED)
    return seconds * slower / 60, found["exercises"]


def stated(path):
    """Both times as the first cell of a notebook says them."""
    to_read, exercises = minutes(path)
    rounded = max(STEP, STEP * round(to_read / STEP))
    return f"**{rounded} min to read" + (f" · {exercises} min of exercises**" if exercises else "**")


def main(arguments):
    named = {Path(one).stem for one in arguments if one != "--write"}
    for path in (one for one in (*CHAPTERS, *ROOMS) if one.stem in named or not named):
        found, (to_read, exercises) = measure(path), minutes(path)
        print(
            f"{path.stem:28} {found['words']:5} words {found['cells']:3} cells {found['lines']:4} lines  "
            f"{to_read:5.1f} + {exercises} min"
        )
        if "--write" in arguments:
            text = path.read_text("utf8")
            path.write_text(TIMES.sub(lambda _, path=path: stated(path), text, count=1), "utf8", newline="\n")
    main_path = [measure(path)["words"] for path in CHAPTERS]
    print(f"main path: {sum(main_path)} words, at most {max(main_path)}; {len(ROOMS)} side rooms beside it")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
