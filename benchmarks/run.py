"""Print the benchmark tables; with ``--write`` also put them into ``benchmarks/README.md``.

python benchmarks/run.py [speed] [memory] [heads] [predicted] … [--write]; with no name all of ``TABLES``
"""

import re
import sys
from pathlib import Path

import composable
import decode
import flex
import heads_cut
import latent
import layers
import linear
import mixture
import rankings
from timing import machine

README = Path(__file__).with_name("README.md")
TABLES = {
    "speed": layers.speed,
    "small": layers.small,
    "memory": layers.memory,
    "silent": layers.silent,
    "predicted": decode.predicted,
    "cached": decode.cached,
    "sharing": decode.sharing,
    "prompts": decode.prompts,
    "latent": latent.steps,
    "composing": composable.composing,
    "composing-memory": composable.composing_memory,
    "heads": heads_cut.fewer_heads,
    "routed": mixture.routed,
    "long-texts": linear.long_texts,
    "one-more-word": linear.one_more_word,
    "rankings": rankings.rankings,
    "flex": flex.flex,
    "flex-kinds": flex.kinds,
}


def main(arguments: list[str]) -> None:
    """Make the tables that were asked for, or all."""
    unknown = [a for a in arguments if a != "--write" and a not in TABLES]
    if unknown:
        sys.exit(f"unknown: {unknown}. The tables are {list(TABLES)}.")
    for name in [a for a in arguments if a in TABLES] or TABLES:
        print(f"\n## {name}\n{machine()}", flush=True)
        made = TABLES[name]()
        print(made)
        if "--write" in arguments:
            put(name, f"{machine()}\n\n{made}")


def put(name: str, text: str) -> None:
    """Replace the part of the README between the two marks of this table."""
    page = README.read_text(encoding="utf-8")
    marks = f"<!-- {name} -->", f"<!-- end of {name} -->"
    pattern = re.escape(marks[0]) + ".*?" + re.escape(marks[1])
    if not re.search(pattern, page, re.DOTALL):
        sys.exit(f"{README} has no marks {marks}")
    README.write_text(
        re.sub(pattern, lambda _: f"{marks[0]}\n{text}\n{marks[1]}", page, flags=re.DOTALL), encoding="utf-8"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
