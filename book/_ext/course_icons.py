"""Keep only the icons that the pages use: the theme brings 1,400 of them, and every reader would load them all."""

import importlib.util
import re

from sphinx.util import logging

logger = logging.getLogger(__name__)

RULE = re.compile(r'((?:\.fa-[\w-]+:before,?)+)\{content:"\\([0-9a-f]+)"\}')
USED = re.compile(r"fa-[a-z0-9-]+")  # beginning with plain letters it is found fast
PRIVATE = re.compile("[\ue000-\uf8ff]|\\\\([ef][0-9a-f]{3})(?![0-9a-f])")


def codes(css):
    """The private characters that a style sheet writes, as themselves or by number."""
    return {int(found[1], 16) if found[1] else ord(found[0]) for found in PRIVATE.finditer(css)}


def shrink(css, used):
    """Drop the rules of icons that nobody uses; gives the rest, and the characters that it still writes."""

    def kept(rule):
        names = {name.removesuffix(":before").lstrip(".") for name in rule[1].split(",")}
        return rule[0] if names & used else ""

    rest = RULE.sub(kept, css)
    return rest, codes(rest)


def shrink_icons(folder):
    """Shrink the theme's style sheet and its icon fonts to what the pages in a folder use."""
    sheet = folder / "_static" / "styles" / "pydata-sphinx-theme.css"
    fonts = sorted((folder / "_static" / "vendor" / "fontawesome" / "webfonts").glob("*"))
    if not sheet.is_file() or not fonts:
        return
    if not all(importlib.util.find_spec(name) for name in ("fontTools", "brotli")):
        logger.info("fonttools or brotli is not installed: every page loads all icons of the theme.")
        return
    texts = [*folder.rglob("*.html"), *(folder / "_static").rglob("*.js")]
    used = {name for path in texts for name in USED.findall(path.read_text(encoding="utf-8", errors="replace"))}
    rest, needed = shrink(sheet.read_text(encoding="utf-8"), used)
    for other in (folder / "_static").rglob("*.css"):
        needed |= codes(other.read_text(encoding="utf-8", errors="replace")) if other != sheet else set()
    sheet.write_text(rest, encoding="utf-8")
    for font in fonts:
        subset(font, needed)


def subset(path, needed):
    """Write a font anew with only the needed characters."""
    from fontTools import subset

    options = subset.Options(flavor="woff2" if path.suffix == ".woff2" else None, notdef_outline=True)
    font = subset.load_font(path, options)
    chooser = subset.Subsetter(options)
    chooser.populate(unicodes=needed)
    chooser.subset(font)
    subset.save_font(font, path, options)
