"""The index of the course's own search, made at build time: each section with its text and the names in its code.

Sphinx knows which page has a word, and nothing else: its search fetches every page that it shows, whole. Here the text
of each section is kept when its page is written, and all of it becomes one file, `sentences.js`, which is loaded when
somebody searches. Each line of it is one page. As a script, and not as data, it can be read in a book that is opened
from a folder, too. `_static/find.js` ranks the sections, `_static/search.js` shows them.

A name leads to the section that explains it, before all that only use it. The names are those of three lists:
`book/names.md` (names in this course, in papers, in code and in Chinese), `book/terms.yml`, whose sentences name the
section, and `book/asked.yml`. Other names of the same thing find it, too: the pairs of `book/notation.md` and others.
"""

import json
import keyword
import re
from collections import Counter
from pathlib import Path

import yaml
from docutils import nodes
from sphinx import addnodes

ROW = re.compile(r"^\| (.+) \| \[[^]]+\]\(\.\./(notebooks/\w+)\.ipynb\) \|$", re.MULTILINE)
BLOCKS = (nodes.paragraph, nodes.term, nodes.caption, nodes.rubric, nodes.row, nodes.title, nodes.citation)
SILENT = (nodes.literal_block, nodes.math_block, nodes.image, nodes.comment, nodes.label)
NAME = re.compile(r"(?<![\w.])\d[\w.]*|[^\W\d]\w*")
ASIDE = re.compile(r'"""[\s\S]*?"""|#.*|"(?:[^"\\\n]|\\.)*"' + r"|'(?:[^'\\\n]|\\.)*'")  # what is no name in code
ALWAYS = re.compile(r"\d+ min to read|Running it yourself\?")  # how a paragraph begins that stands on every page
COMMON = 20  # in the code of how many sections a name of one word stands at most: print, max and shape say nothing
FIRST_ONLY = ("book/checkers",)  # a page whose tables are known by their first column
CHINESE = re.compile(r"[\u3400-\u9fff]")

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


def names_in(code):
    """The names in some code that somebody may look for: all that is called, defined, imported or passed by name."""
    code = ASIDE.sub(" ", code)
    for found in NAME.finditer(code):
        name, before = found[0], code[max(0, found.start() - 7) : found.start()]
        if len(name) < 3 or name[0].isdigit() or keyword.iskeyword(name):
            continue
        known = before.endswith((".", "def ", "class ", "import ")) or re.search(r"[a-z][A-Z]", name)
        if known or code.startswith("(", found.end()) or re.match(r"=[^= ]", code[found.end() : found.end() + 2]):
            yield name


def sections(doctree):
    """The sections, exercises and described functions of a page, as [anchor, heading, text, code, strong words].

    The text has a line for each paragraph or row of a table; the code is the names in it that the text does not have.
    """
    found = {}
    for part in doctree.findall(nodes.Element):
        heading = " ".join(text_of(part[0]).split()) if len(part) else ""
        if isinstance(part, addnodes.desc) and part[0].get("ids"):
            found[part] = [part[0]["ids"][0], part[0]["ids"][0], [], [], []]
        elif part.get("ids") and isinstance(part, nodes.section) and isinstance(part[0], nodes.title):
            found[part] = [part["ids"][0], heading, [], [], []]
        elif part.get("ids") and "exercise" in part.get("classes", []):
            found[part] = [part["ids"][0], f"Exercise: {heading.strip('()')}", [], [], []]

    def place(node):
        while node and node not in found:
            node = node.parent
        return found.get(node)

    for block in doctree.findall(lambda node: isinstance(node, BLOCKS)):
        home = place(block.parent)
        titled = isinstance(block, nodes.title) and block.parent in found
        argument = inside(block, nodes.field_body) and inside(block, addnodes.desc)  # its name is in the signature
        if home and not titled and not argument and not inside(block, BLOCKS):
            text = " ".join(text_of(block).split())
            home[2].append("" if ALWAYS.match(text) else text)
            home[4].extend(" ".join(strong.astext().split()) for strong in block.findall(nodes.strong))
    for code in doctree.findall(nodes.literal_block):
        if (home := place(code.parent)) and code.get("language") in ("python", "ipython3", "ipython"):
            home[3].extend(names_in(code.astext()))
    for argument in doctree.findall(addnodes.desc_parameter):
        if home := place(argument.parent):
            home[3] += NAME.findall(argument.astext())[:1]  # none in a star alone
    made = []
    for anchor, heading, text, code, strong in found.values():
        text = "\n".join(filter(None, text))
        told = set(NAME.findall(f"{heading}\n{text}"))
        made.append([anchor, heading, text, " ".join(name for name in dict.fromkeys(code) if name not in told), strong])
    return made


def kept(app, name):
    """Where the sections of a page wait for those of the others."""
    return Path(app.doctreedir, "sentences", f"{name}.json")


def keep(app, doctree, name):
    """Write down the sections of a page that is written."""
    path = kept(app, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(sections(doctree), ensure_ascii=False), encoding="utf-8")


def listed(cell):
    """The names in a cell of a table."""
    return [name.strip() for name in re.split(r", |，", cell.replace("`", "")) if name.strip() not in ("–", "")]


def plain(text):
    """A part of a sentence without the signs of Markdown, for comparisons."""
    return " ".join(re.findall(r"\w+", text.lower()))


def asked(book):
    """What readers ask without a name: what they type, the page that answers, and how its section is known."""
    lines = yaml.safe_load((book / "asked.yml").read_text(encoding="utf-8"))["asked"]
    return [(one["typed"], one["page"], one.get("section", "")) for one in lines]


def concepts(book):
    """What has a name: its names, the page that explains it, and a sentence of its section where one is known."""
    paths = book.parent.glob("notebooks/*.ipynb")
    notebooks = {path.stem.partition("_")[2]: f"notebooks/{path.stem}" for path in paths}
    made = []
    for row, page in ROW.findall((book / "names.md").read_text(encoding="utf-8")):
        cells = [listed(cell) for cell in row.split(" | ")]
        made.append((list(dict.fromkeys(name for cell in cells for name in cell)), page, ""))
    for one in yaml.safe_load((book / "terms.yml").read_text(encoding="utf-8")):
        made.append(([one["term"]], notebooks.get(one["where"], f"book/{one['where']}"), one["says"]))
    return made


def explained(book):
    """Pairs of what readers type and the page that explains it."""
    return [(name, page) for names, page, _ in asked(book) + concepts(book) for name in names]


def same(book):
    """Groups of names of one thing: English and Chinese, long and short."""
    groups = yaml.safe_load((book / "asked.yml").read_text(encoding="utf-8"))["same"]
    table = (book / "notation.md").read_text(encoding="utf-8").partition("## 中文 terms")[2]
    for english, chinese in re.findall(r"^\| ([^|]+) \| ([^|]+) \| [^|]+ \|$", table, re.MULTILINE):
        if CHINESE.search(chinese):
            english, chinese = listed(re.sub(r" \(.*\)", "", english)), listed(chinese)
            pairs = zip(english, chinese, strict=True) if len(english) == len(chinese) else [(*english, *chinese)]
            groups.extend([*pair] for pair in pairs)
    for row, _ in ROW.findall((book / "names.md").read_text(encoding="utf-8")):
        here, papers, code, chinese = (listed(cell) for cell in row.split(" | "))
        if len(here) == 1 and len(papers) <= 1:
            groups.append([*here, *papers, *code, *(chinese if len(chinese) == 1 else [])])
    return [group for group in (list(dict.fromkeys(names)) for names in groups) if len(group) > 1]


def place_of(names, hint, found):
    """The section of a page that explains something: it has the hint, or the name in its heading or in bold."""
    if told := plain(hint):
        for anchor in [one[0] for one in found if plain(one[1]).startswith(told)] or [
            one[0] for one in found if told in plain(f"{one[1]} {one[2]}")
        ]:
            return anchor
    wanted = [plain(name) for name in names]

    def worth(section):
        _, heading, text, code, strong = section
        best = 0
        for order, name in enumerate(wanted):
            word = re.compile(rf"\b{re.escape(name)}" if not CHINESE.search(name) else re.escape(name))
            hits = 8 * bool(word.search(plain(heading))) + 5 * any(word.search(plain(one)) for one in strong)
            hits += min(4, len(word.findall(plain(text)))) + bool(word.search(plain(code)))
            best = max(best, hits / (1 + 0.2 * order))
        return best * (0.4 if heading.startswith(("Exercise", "Summary")) else 1)

    best = max(found[1:], key=worth, default=found[0])
    return best[0] if worth(best) > worth(found[0]) else found[0][0]


def usual(heading):
    """The anchor that a section has if nothing else is said: only other ones are kept."""
    return heading if heading.startswith("mha.") else re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")


def index(pages, book):
    """The index of some pages ``{name: (title, sections)}``: names and questions with their places, and the pages."""

    def places(some):
        return [[names, page, place_of(names, hint, pages[page][1])] for names, page, hint in some if page in pages]

    counts = Counter(word for _, found in pages.values() for one in found for word in one[3].split())
    lines = []
    for name, (title, found) in pages.items():
        line = [name, title]
        for anchor, heading, text, code, _ in found:
            if name in FIRST_ONLY:
                text = "\n".join(row.partition(" – ")[0] for row in text.splitlines())
            code = " ".join(word for word in code.split() if counts[word] <= COMMON or re.search(r"_|[a-z][A-Z]", word))
            anchor = 0 if anchor == usual(heading) else anchor
            line.append([anchor, heading, text, code] if code else [anchor, heading, text])
        lines.append(line)
    return {"names": places(concepts(book)), "asked": places(asked(book)), "same": same(book), "pages": lines}


def written(made):
    """The index as a script, a line for each page."""
    tight = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    lists = [f"{name}: {tight(made[name])}," for name in ("names", "asked", "same")]
    pages = [f"{tight(page)}," for page in made["pages"]]
    return "\n".join(["globalThis.courseIndex = {", *lists, "pages: [", *pages, "]};", ""])


def write_index(app, exception):
    """Write the index of all pages."""
    if exception or app.builder.format != "html":
        return
    pages = sorted(name for name in app.env.found_docs if kept(app, name).is_file())
    found = {name: (app.env.titles[name].astext(), json.loads(kept(app, name).read_text("utf-8"))) for name in pages}
    made = index({name: one for name, one in found.items() if one[1]}, Path(app.srcdir) / "book")
    (Path(app.outdir) / "sentences.js").write_text(written(made), encoding="utf-8")


def setup(app):
    app.add_js_file("search.js", defer="defer")
    app.connect("doctree-resolved", keep)
    app.connect("build-finished", write_index)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
