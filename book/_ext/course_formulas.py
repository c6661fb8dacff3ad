"""Formulas are drawn when the book is built: MathJax from npm turns TeX into HTML, and no page needs a script for them.

Beside each formula stands the same in MathML, for those who listen to the page. The fonts are copied into the book.
"""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

from sphinx.util import logging

logger = logging.getLogger(__name__)

MATHJAX = Path("node_modules", "mathjax")
FONTS = "output/chtml/fonts/woff-v2"
IN_THE_BOOK = "vendor/mathjax"
STYLES = "formulas.css"
DRAW = Path(__file__).with_suffix(".cjs")
SCRIPTS = re.compile(r'\s*<script(?:>window\.MathJax = .*?| [^>]*src="[^"]*mathjax[^"]*"[^>]*>)</script>')
TEX = re.compile(
    r'(?P<start><(?P<tag>span|div) class="math notranslate nohighlight"[^>]*>\s*(?:<span class="eqno">.*?</span>)?)'
    r"\\[(\[](?P<tex>.*?)\\[)\]]</(?P=tag)>",
    re.DOTALL,
)
DRAWN = re.compile(r'<(?P<tag>span|div) data-tex="(?P<tex>[^"]*)"')  # in a page of an earlier build


def draw_formulas(source, folder):
    """Draw the formulas of all pages; where that cannot be done, say so in one line: the pages do it themselves."""
    pages = {path: path.read_text(encoding="utf-8") for path in folder.rglob("*.html")}
    wanted = sorted({key(found) for page in pages.values() for kind in (TEX, DRAWN) for found in kind.finditer(page)})
    if not wanted:
        return
    package = source / MATHJAX / "es5"
    if not (package / "node-main.js").is_file() or not shutil.which("node"):
        logger.info("MathJax is not installed (npm install): the formulas will need a network connection.")
        return
    command = ["node", str(DRAW), str(package / "node-main.js"), IN_THE_BOOK]
    ran = subprocess.run(command, input=json.dumps(wanted), stdout=subprocess.PIPE, check=True, encoding="utf-8")
    answer = json.loads(ran.stdout)
    drawn = dict(zip(wanted, answer["html"], strict=True))
    for path, page in pages.items():
        new = SCRIPTS.sub("", TEX.sub(lambda found: with_drawing(found, drawn[key(found)]), page))
        if new != page:
            path.write_text(new, encoding="utf-8")
    static = folder / "_static"
    (static / STYLES).write_text(answer["styles"], encoding="utf-8")
    shutil.copytree(package / FONTS, static / IN_THE_BOOK, dirs_exist_ok=True)
    shutil.copy2(package.parent / "LICENSE", static / IN_THE_BOOK / "LICENSE")


def key(found):
    """The TeX of a formula, and whether it stands in a line of its own."""
    return html.unescape(found["tex"]), found["tag"] == "div"


def with_drawing(found, drawing):
    """The place of a formula, with its TeX for readers who look for it, and its drawing."""
    tex = html.escape(html.unescape(found["tex"]))
    place = found["start"].replace(" class=", f' data-tex="{tex}" class=', 1)
    return f"{place}{drawing}</{found['tag']}>"
