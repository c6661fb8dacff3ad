"""Formulas without another host: MathJax from npm, copied into the book, in the parts that a page needs.

MathJax's usual file is one script of more than a megabyte; a third of it is never used by the course.
In parts, a page loads only what it needs, and the browser can answer the reader between two parts.
"""

import shutil
from pathlib import Path

from sphinx.util import logging

logger = logging.getLogger(__name__)

MATHJAX = Path("node_modules", "mathjax")
IN_THE_BOOK = "vendor/mathjax"
SCRIPT = "startup.js"
PARTS = ["core", "input/tex", "output/chtml"]
# Small parts that need only the core are appended to it: every request costs the reader a round trip.
APPENDED = ("a11y/assistive-mml", "ui/lazy")
# What these parts ask for by themselves: the data of the font always, the rest where a formula needs it.
LATER = ("output/chtml/fonts/tex.js", "input/tex/extensions", "output/chtml/fonts/woff-v2")


def choose_mathjax(app):
    """Point the pages to our own copy of MathJax, or say in one line that there is none."""
    if (Path(app.srcdir) / MATHJAX / "es5" / SCRIPT).is_file():
        app.config.mathjax_path = f"{IN_THE_BOOK}/{SCRIPT}"
        app.config.mathjax3_config["loader"] = {"load": PARTS}
        # MathJax warns of an option that belongs to a part it does not load: the menu is none of ours.
        app.config.mathjax3_config.get("options", {}).pop("enableMenu", None)
    elif app.builder.format == "html":
        logger.info("MathJax is not installed (npm install): the formulas will need a network connection.")


def copy_mathjax(app):
    """Copy what the pages load of MathJax, with its license."""
    source, target = Path(app.srcdir) / MATHJAX / "es5", Path(app.outdir) / "_static" / IN_THE_BOOK
    for name in (SCRIPT, *(f"{part}.js" for part in PARTS), *LATER):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name, dirs_exist_ok=True)
        else:
            shutil.copy2(source / name, target / name)
    core = [(source / f"{part}.js").read_text(encoding="utf-8") for part in ("core", *APPENDED)]
    (target / "core.js").write_text("\n".join(core), encoding="utf-8")
    shutil.copy2(source.parent / "LICENSE", target / "LICENSE")
