"""Fewer requests: small style sheets become one, and a script is left out where the page has nothing for it.

No script holds up the page: all wait until it is read, in the order in which they stand.
"""

import hashlib
import re

# In this order.
JOINED = (
    "togglebutton.css", "copybutton.css", "exercise.css", "sphinx-design.min.css", "formulas.css", "book.css",
    "reading.css",
)  # fmt: skip
SMALL = "|".join(map(re.escape, JOINED))
LINK = re.compile(rf'<link rel="stylesheet"[^>]*href="[^"]*_static/(?:{SMALL})[^"]*"[^>]*>\s*')
IMPORT = '@import "../basic.css";'  # all that the theme's first sheet holds: the browser would ask twice, in turn
TABS = re.compile(r'<script[^>]*src="[^"]*design-tabs\.js[^"]*"[^>]*></script>\s*')

OPTIONS = re.compile(r'<script src="[^"]*_static/documentation_options\.js[^"]*"></script>')
AT_ONCE = re.compile(r'<script (?=src=")')

RULE = re.compile(r"([^{}]+)\{[^{}]*\}")
EMPTY = re.compile(r"@media[^{};]*\{\s*\}")
CLASS = re.compile(r"\.([A-Za-z_][\w-]*)")
UNSEEN = re.compile(r"/\*.*?\*/|:not\([^()]*\)", re.DOTALL)  # no class that an element must have
MADE_UP = "bs-"  # Bootstrap's script puts these names together


def drop_unused(folder):
    """Leave out of the style sheets the rules for classes that no page and no script names: three of four."""
    static, words = folder / "_static", set()
    scripts = [path for path in static.rglob("*.js") if "vendor" not in path.parts]
    for path in (*folder.rglob("*.html"), *scripts):
        words.update(re.findall(r"[\w-]+", path.read_text(encoding="utf-8")))
    for sheet in (*(static / "styles").glob("*.css"), static / "course.css"):
        if sheet.is_file():
            sheet.write_text(without_unused(sheet.read_text(encoding="utf-8"), words), encoding="utf-8")


def without_unused(text, words):
    """The rules of which some selector can be met by a page made of these words."""

    def kept(rule):
        selectors = UNSEEN.sub("", rule[1]).split(",")
        names = [[name for name in CLASS.findall(one) if not name.startswith(MADE_UP)] for one in selectors]
        needed = any("(" in one or words.issuperset(name) for one, name in zip(selectors, names, strict=True))
        return rule[0] if needed else "".join(re.findall(r"/\*!.*?\*/", rule[1], re.DOTALL))  # a license stays

    return EMPTY.sub("", RULE.sub(kept, text))


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
