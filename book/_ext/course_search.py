"""A search that shows the sentence: an index of all headings and sentences, made at build time and loaded once.

Sphinx knows which page has a word, and nothing else: its search fetches every page that it shows, whole. Here the text
of each section is kept when its page is written, and all of it becomes one file, `sentences.js`, beside `search.html`.
Each line of it is one page. As a script, and not as data, it can be read in a book that is opened from a folder, too.

A search for a name leads to the page that explains it, before all pages that only use it. The names are those of two
lists: `book/names.md`, with the names in this course, in papers, in code and in Chinese, and `book/terms.yml`.
"""

import json
import re
from pathlib import Path

import yaml
from docutils import nodes

ROW = re.compile(r"^\| (.+) \| \[[^]]+\]\(\.\./(notebooks/\w+)\.ipynb\) \|$", re.MULTILINE)
ASKED = [  # what readers say who do not know the name
    ("heads not used", "notebooks/11_pruning_heads"),
    ("unused heads", "notebooks/11_pruning_heads"),
    ("dead heads", "notebooks/11_pruning_heads"),
    ("head does nothing", "notebooks/15_say_nothing"),
    ("nan in softmax", "notebooks/03_masking"),
    ("sqrt dk", "notebooks/02_why_scale"),
    ("sqrt d_k", "notebooks/02_why_scale"),
    ("multi-head", "notebooks/04_why_many_heads"),
]
BLOCKS = (nodes.paragraph, nodes.term, nodes.caption, nodes.rubric, nodes.row, nodes.title, nodes.citation)
SILENT = (nodes.literal_block, nodes.math_block, nodes.image, nodes.comment, nodes.label)

SIGNS = {  # of formulas inside a sentence; other commands lose their backslash
    "top": "ᵀ", "times": "×", "cdot": "·", "sqrt": "√", "le": "≤", "leq": "≤", "ge": "≥", "geq": "≥", "ne": "≠",
    "neq": "≠", "in": "∈", "to": "→", "infty": "∞", "sum": "Σ", "odot": "⊙", "approx": "≈", "pm": "±", "partial": "∂",
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "theta": "θ", "lambda": "λ", "mu": "μ", "sigma": "σ",
    "tau": "τ", "phi": "φ", "dots": "…", "ldots": "…", "log": "log", "exp": "exp", "max": "max", "min": "min",
}  # fmt: skip


def spoken(tex):
    """A short formula in letters; a longer one is left out."""
    tex = re.sub(r"\\(?:text|mathrm|operatorname|mathbf|mathbb|left|right|big|Big|,|;|!|quad)(?![a-z])", "", tex)
    tex = re.sub(r"\\frac\{([^{}]+)\}\{([^{}]+)\}", r"\1/\2", tex)
    tex = re.sub(r"\\([A-Za-z]+) ?", lambda found: SIGNS.get(found[1], found[1]), tex)
    tex = re.sub(r"[{}\\]", "", tex).replace("~", " ")
    return tex if len(tex) <= 40 else "…"


def text_of(node):
    """The words of a part of a page, without code blocks and pictures."""
    if isinstance(node, nodes.Text):
        return node.astext()
    if isinstance(node, nodes.math):
        return spoken(node.astext())
    if isinstance(node, nodes.raw):  # a line break
        return " · " if node.astext().startswith("<br") else ""
    between = " – " if isinstance(node, nodes.row) else ""
    return between.join(text for one in node.children if not isinstance(one, SILENT) for text in [text_of(one)] if text)


def inside(node, kinds):
    """Whether a node stands in a part of one of these kinds."""
    while node := node.parent:
        if isinstance(node, kinds) or "toctree-wrapper" in node.get("classes", []):
            return True
    return False


def sections(doctree):
    """All sections and exercises of a page, as [anchor, heading, text]: a line for each paragraph or row of a table."""
    found = {}
    for part in doctree.findall(nodes.Element):
        titled = isinstance(part, nodes.section) and isinstance(part[0], nodes.title)
        if part.get("ids") and (titled or "exercise" in part["classes"]):
            heading = " ".join(text_of(part[0]).split())
            found[part] = [part["ids"][0], heading if titled else f"Exercise: {heading.strip('()')}", []]
    for block in doctree.findall(lambda node: isinstance(node, BLOCKS)):
        place = block.parent
        while place and place not in found:
            place = place.parent
        if place and block is not place[0] and not inside(block, BLOCKS):
            found[place][2].append(" ".join(text_of(block).split()))
    return [[anchor, heading, "\n".join(filter(None, text))] for anchor, heading, text in found.values()]


def kept(app, name):
    """Where the sections of a page wait for those of the others."""
    return Path(app.doctreedir, "sentences", f"{name}.json")


def keep(app, doctree, name):
    """Write down the sections of a page that is written."""
    path = kept(app, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(sections(doctree), ensure_ascii=False), encoding="utf-8")


def explained(book):
    """Pairs of a name and the page that explains it."""
    table = (book / "names.md").read_text(encoding="utf-8")
    paths = book.parent.glob("notebooks/*.ipynb")
    notebooks = {path.stem.partition("_")[2]: f"notebooks/{path.stem}" for path in paths}
    terms = yaml.safe_load((book / "terms.yml").read_text(encoding="utf-8"))
    rows = ((re.split(r" \| |, |，", listed.replace("`", "")), where) for listed, where in ROW.findall(table))
    names = [(name, where) for listed, where in rows for name in dict.fromkeys(listed) if name not in ("–", "")]
    return ASKED + names + [(one["term"], notebooks.get(one["where"], f"book/{one['where']}")) for one in terms]


def write_index(app, exception):
    """Write the index: names that are explained, then for each page its address, title and sections."""
    if exception or app.builder.format != "html":
        return
    book = Path(app.srcdir) / "book"
    pages = sorted(name for name in app.env.found_docs if kept(app, name).is_file())
    found = ([name, app.env.titles[name].astext(), *json.loads(kept(app, name).read_text("utf-8"))] for name in pages)
    lines = [f"{json.dumps(page, ensure_ascii=False)}," for page in found]
    names = json.dumps(list(dict.fromkeys(explained(book))), ensure_ascii=False)
    text = "\n".join([f"const NAMES = {names};", "const PAGES = [", *lines, "];", ""])
    (Path(app.outdir) / "sentences.js").write_text(text, encoding="utf-8")


def setup(app):
    app.connect("doctree-resolved", keep)
    app.connect("build-finished", write_index)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
