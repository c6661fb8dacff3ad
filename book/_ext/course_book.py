"""Small repairs of the built pages: formulas without another host, lighter pages, a real first page.

Formulas are drawn by MathJax. Where npm has installed it (package.json), it is copied into the book, and no page asks
another host for anything. Without it the pages load it from Sphinx's usual address.
"""

import html
import re
import shutil
from pathlib import Path

from sphinx.util import logging

logger = logging.getLogger(__name__)

MATHJAX = Path("node_modules", "mathjax")
IN_THE_BOOK = "vendor/mathjax"
SCRIPT = "tex-chtml.js"
NEEDED = (SCRIPT, "input/tex/extensions", "output/chtml/fonts/woff-v2")  # a page loads the last two on demand

# The theme's icons are in its web font too; this script draws them again and is the heaviest thing on every page.
ICONS = re.compile(r"\s*<(?:script|link)\b[^>]*fontawesome\.js[^>]*>(?:\s*</script>)?")

# Every exercise and every solution repeats these two ids; nothing points to them, and an id must be unique in a page.
REPEATED_IDS = re.compile(r' id="(?:exercise|solution)-content"')

FIRST_PAGE = """<!DOCTYPE html>
<html lang="{lang}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="0; url={url}">
<meta name="description" content="{title}: the first page of the course.">
<title>{title}</title>
</head>
<body><p><a href="{url}">{title}</a></p></body>
</html>
"""


def choose_mathjax(app):
    """Point the pages to our own copy of MathJax, or say in one line that there is none."""
    if (Path(app.srcdir) / MATHJAX / "es5" / SCRIPT).is_file():
        app.config.mathjax_path = f"{IN_THE_BOOK}/{SCRIPT}"
    elif app.builder.format == "html":
        logger.info("MathJax is not installed (npm install): the formulas will need a network connection.")


def copy_mathjax(app):
    """Copy what the pages load of MathJax, with its license."""
    source, target = Path(app.srcdir) / MATHJAX, Path(app.outdir) / "_static" / IN_THE_BOOK
    for name in NEEDED:
        copy = shutil.copytree if (source / "es5" / name).is_dir() else shutil.copy2
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        copy(source / "es5" / name, target / name, **({"dirs_exist_ok": True} if copy is shutil.copytree else {}))
    shutil.copy2(source / "LICENSE", target / "LICENSE")


def tidy(page):
    """Take out of one page what is repeated or not needed."""
    return REPEATED_IDS.sub("", ICONS.sub("", page))


def tidy_all(folder):
    """Tidy all pages and remove the theme's icon script itself."""
    for path in folder.rglob("*.html"):
        page = path.read_text(encoding="utf-8")
        if tidy(page) != page:
            path.write_text(tidy(page), encoding="utf-8")
    for script in (folder / "_static" / "scripts").glob("fontawesome.js*"):
        script.unlink()


def write_first_page(app):
    """Lead from index.html to the first page of the course, with a link where a browser does not follow by itself."""
    url, title = app.builder.get_target_uri(app.config.root_doc), html.escape(app.config.project)
    page = FIRST_PAGE.format(lang=app.config.language, url=url, title=title)
    (Path(app.outdir) / "index.html").write_text(page, encoding="utf-8")


def describe_page(app, name, template, context, doctree):
    """Describe the pages that have no text of their own, such as the search."""
    if doctree is None:
        text = f"{context.get('title') or name} – {app.config.project}"
        context["metatags"] = f'{context.get("metatags", "")}<meta name="description" content="{html.escape(text)}" />'


def finish(app, exception):
    """Repair what was written, unless the build failed."""
    if exception is None and app.builder.format == "html":
        if app.config.mathjax_path.startswith(IN_THE_BOOK):
            copy_mathjax(app)
        tidy_all(Path(app.outdir))
        write_first_page(app)


def setup(app):
    app.connect("builder-inited", choose_mathjax)
    app.connect("html-page-context", describe_page)
    app.connect("build-finished", finish, priority=400)  # before the theme's own redirect is written
    return {"parallel_read_safe": True, "parallel_write_safe": True}
