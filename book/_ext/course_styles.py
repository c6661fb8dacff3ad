"""Fewer requests: small style sheets become one, and a script is left out where the page has nothing for it.

No script holds up the page: all wait until it is read, in the order in which they stand. PurgeCSS from npm takes out of
the style sheets what no page needs; where it is not installed they stay whole.
"""

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

from sphinx.util import logging

logger = logging.getLogger(__name__)

PURGECSS = Path("node_modules", "purgecss")
PURGE = Path(__file__).with_suffix(".cjs")

# In this order.
JOINED = (
    "togglebutton.css", "copybutton.css", "exercise.css", "sphinx-design.min.css", "formulas.css", "book.css",
    "reading.css", "live.css", "exercises.css", "first.css", "front.css", "figures.css", "tables.css",
)  # fmt: skip
SMALL = "|".join(map(re.escape, JOINED))
LINK = re.compile(rf'<link rel="stylesheet"[^>]*href="[^"]*_static/(?:{SMALL})[^"]*"[^>]*>\s*')
IMPORT = '@import "../basic.css";'  # all that the theme's first sheet holds: the browser would ask twice, in turn
TABS = re.compile(r'<script[^>]*src="[^"]*design-tabs\.js[^"]*"[^>]*></script>\s*')

OPTIONS = re.compile(r'<script src="[^"]*_static/documentation_options\.js[^"]*"></script>')
AT_ONCE = re.compile(r'<script (?=src=")')


def drop_unused(source, folder):
    """Leave out of the style sheets the rules that no page and no script needs: five of six."""
    package = source.resolve() / PURGECSS
    if package.is_dir() and shutil.which("node"):
        subprocess.run(["node", str(PURGE), str(package)], cwd=folder, check=True)
    else:
        logger.info("PurgeCSS is not installed (npm install): the pages load all rules and icons of the theme.")


def let_scripts_wait(folder):
    """Defer every script; what small ones in the page ask for, the options of Sphinx, stands in the page itself."""
    options = folder / "_static" / "documentation_options.js"
    if not options.is_file():
        return
    written = f"<script>{options.read_text(encoding='utf-8').strip()}</script>"
    for path in folder.rglob("*.html"):
        page = path.read_text(encoding="utf-8")
        new = AT_ONCE.sub("<script defer ", OPTIONS.sub(lambda _: written, page))
        if new != page:
            path.write_text(new, encoding="utf-8")


def join_styles(folder):
    """Write the small style sheets into one, and let every page load that one instead."""
    static = folder / "_static"
    sheets = [static / name for name in JOINED if (static / name).is_file()]
    if not sheets:
        return
    joined = "\n".join(sheet.read_text(encoding="utf-8") for sheet in sheets)
    (static / "course.css").write_text(joined, encoding="utf-8")
    version = hashlib.sha256(joined.encode()).hexdigest()[:8]
    for path in folder.rglob("*.html"):
        page = path.read_text(encoding="utf-8")
        up = "../" * (len(path.relative_to(folder).parts) - 1)
        new = use_one(page, f'<link rel="stylesheet" type="text/css" href="{up}_static/course.css?v={version}" />\n')
        if new != page:
            path.write_text(new, encoding="utf-8")


def put_in_what_is_imported(folder):
    """Let the theme's first sheet hold the sheet that it imports."""
    static = folder / "_static"
    first, basic = static / "styles" / "theme.css", static / "basic.css"
    if first.is_file() and basic.is_file():
        text = basic.read_text(encoding="utf-8").replace("url(", "url(../")
        first.write_text(first.read_text(encoding="utf-8").replace(IMPORT, text), encoding="utf-8")


def use_one(page, link):
    """Put one link in the place of the last small one, and take out the script of tabs where there are none."""
    page = page if "sd-tab-set" in page else TABS.sub("", page)
    found = list(LINK.finditer(page))
    if not found:
        return page
    last = found[-1]
    return LINK.sub("", page[: last.start()]) + link + page[last.end() :]
