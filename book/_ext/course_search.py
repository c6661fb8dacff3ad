"""Lead who searches for a name to the page that explains it, before all pages that only use it.

The names are those of two lists: the table "Names you may search for" of the page on notation, and `book/terms.yml`.
"""

import re
from pathlib import Path

import yaml
from sphinx import addnodes

ROW = re.compile(r"^\| ([^|]+) \|[^|]+\| \[[^]]+\]\(\.\./(notebooks/\w+)\.ipynb\) \|$", re.MULTILINE)


def explained(book):
    """Pairs of a name and the page that explains it."""
    table = (book / "notation.md").read_text(encoding="utf-8").partition("(names)=")[2].partition("\n## 中文")[0]
    paths = book.parent.glob("notebooks/*.ipynb")
    notebooks = {path.stem.partition("_")[2]: f"notebooks/{path.stem}" for path in paths}
    terms = yaml.safe_load((book / "terms.yml").read_text(encoding="utf-8"))
    names = [(name, page) for listed, page in ROW.findall(table) for name in listed.split(", ")]
    return names + [(one["term"], notebooks.get(one["where"], f"book/{one['where']}")) for one in terms]


def enter_names(app, doctree):
    """Write the names into the index of their page."""
    names = dict.fromkeys(name for name, page in explained(Path(app.srcdir) / "book") if page == app.env.docname)
    if names:
        doctree.append(addnodes.index(entries=[("single", name, "", "main", None) for name in names]))


def setup(app):
    app.connect("doctree-read", enter_names)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
