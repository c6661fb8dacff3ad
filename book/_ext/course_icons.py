"""Keep only the icons that the pages use: the theme brings 1,400 of them, and every reader would load them all.

The rules of the others are gone from the style sheets by now: course_styles.py.
"""

import importlib.util
import re

from sphinx.util import logging

logger = logging.getLogger(__name__)

PRIVATE = re.compile("[\ue000-\uf8ff]|\\\\([ef][0-9a-f]{3})(?![0-9a-f])")


def codes(css):
    """The private characters that a style sheet writes, as themselves or by number."""
    return {int(found[1], 16) if found[1] else ord(found[0]) for found in PRIVATE.finditer(css)}


def shrink_icons(folder):
    """Shrink the theme's icon fonts to the characters that the style sheets in a folder still write."""
    fonts = sorted((folder / "_static" / "vendor" / "fontawesome" / "webfonts").glob("*"))
    if not fonts:
        return
    if not all(importlib.util.find_spec(name) for name in ("fontTools", "brotli")):
        logger.info("fonttools or brotli is not installed: every page loads all icons of the theme.")
        return
    sheets = [path.read_text(encoding="utf-8", errors="replace") for path in (folder / "_static").rglob("*.css")]
    needed = set().union(*map(codes, sheets))
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
