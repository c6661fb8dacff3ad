"""Make the readers' notebooks: the same code and outputs, and text in the plain Markdown that every program draws.

    python tools/make_readers.py                into _build/readers (make readers)
    python tools/make_readers.py --readme FILE  lead the links of a README to where the course is (tools/addresses.py)

The sources speak MyST, which the book draws; JupyterLab, VS Code, Colab and GitHub show much of it as raw text. Here
directives and roles become plain Markdown and a little HTML without classes. A directive or a role that this tool does
not know is an error, never passed on. Solutions move to the end, one heading for each exercise.
"""

import argparse
import copy
import hashlib
import re
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import nbformat
from addresses import Addresses, known
from chapters import ROOT, contents
from markdown_it.renderer import RendererHTML
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.mdit import create_md_parser
from nbformat import v4
from pybtex.backends.markdown import Backend
from pybtex.database import parse_file
from pybtex.plugin import find_plugin
from pybtex.richtext import Text

TARGET = ROOT / "_build" / "readers"
EXTENSIONS = [
    "amsmath", "attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath", "linkify", "substitution",
]  # fmt: skip
ADMONITIONS = {"admonition", "attention", "caution", "danger", "error", "hint", "important", "note", "tip", "warning"}
PLAIN_BLOCKS = {  # what a plain parser reads in the same way
    "paragraph", "heading", "list_item", "bullet_list", "ordered_list", "td", "th", "tr", "thead", "tbody", "table",
    "blockquote",
}  # fmt: skip
STILL = re.compile(  # a figure that only a page can show: what it shows, and its caption
    r'<figure class="mha-(?:live|first)"[^>]*><p class="still">(.*)</p>(?:\s*<figcaption>(.*)</figcaption>)?</figure>',
    re.DOTALL,
)
PLAIN_LEAVES = {"inline", "code_block", "math_block", "hr", "html_block"}
PLAIN_INLINE = {
    "text", "softbreak", "hardbreak", "math_inline", "code_inline", "em", "strong", "link", "html_inline", "image",
}  # fmt: skip
NO_TEXT = {"myst_target", "myst_block_break"}  # labels, borders of blocks
DIRECTIVE = re.compile(r"\{([\w-]+)\}\s*(.*)")
OPTION = re.compile(r":([\w-]+):\s*(.*)")
TIMES = re.compile(r"\*\*(\d+ minutes) · (easy|medium|harder)\.\*\*\s*")
FIGURE, EQUATION, EXERCISE = "Figure", "equation", "Exercise"
RUN_IT = "../book/how_to_use.md#run-it"  # the note on how to get the package, which the first cells here replace
TEXTUAL = re.compile(r"(?:[:;,.|]|\b(?:and|by|from|in|of|see|to|with))$", re.IGNORECASE)  # before a work as a noun

SETUP = """\
*To run this notebook you need the course's package, `mha`. The next cell gets it; where it is there already, nothing
happens.*

<details><summary>In your program</summary>

- **Colab, Kaggle:** run that cell once; it takes about a minute. You need no GPU.
- **Binder:** the package is there.
- **JupyterLab, VS Code:** choose the Python of the course's environment `.venv` as the kernel, or let the cell install
  the package into the Python that you have chosen.
- **GitHub:** every output is stored, so you can read without running anything.

</details>"""
INSTALL = """\
#@title Get the course's package
import subprocess
import sys
from pathlib import Path

try:
    import mha
except ModuleNotFoundError:
    here = [Path.cwd(), *Path.cwd().parents]
    copies = [p.as_uri() for p in here if (p / "mha/course").is_dir()]
    assert copies, "put this notebook into a copy of the course"
    what = f"mha-course[course] @ {copies[0]}"
    pip = [sys.executable, "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, what], check=True)"""
NO_COPY = '    assert copies, "put this notebook into a copy of the course"\n'


class UnknownError(Exception):
    """Something that has no form in plain Markdown; the message says where it is and what it is."""


# ---- what is where: numbers, labels, headings that others link to


class Place(NamedTuple):
    """Something with a label: the notebook in which it is, what it is, and its number there."""

    stem: str
    kind: str
    number: str


@cache
def myst():
    """The parser of the book."""
    settings = MdParserConfig(enable_extensions=EXTENSIONS, linkify_fuzzy_links=False)
    return create_md_parser(settings, RendererHTML)


@cache
def tokens(text):
    """The blocks of a text. They are shared: nobody may change them."""
    return myst().parse(text, {})


def directive(token):
    """Name, argument, options and body of a directive, or None where a fence is no directive."""
    found = DIRECTIVE.fullmatch(token.info.strip()) if token.type in ("fence", "colon_fence") else None
    if not found:
        return None
    lines, options = token.content.split("\n"), {}
    while lines and (option := OPTION.fullmatch(lines[0].strip())):
        options[option[1]] = option[2]
        lines.pop(0)
    return found[1], found[2], options, "\n".join(lines).strip("\n")


def blocks(text):
    """All blocks of a text, those inside directives too."""
    for token in tokens(text):
        yield token
        found = directive(token)
        if found and found[0] != "math":
            yield from blocks(found[3])


def is_text(cell):
    return cell.cell_type == "markdown"


def figure(cell):
    """What the book writes under the picture of a cell."""
    return cell.metadata.get("mystnb", {}).get("figure", {})


def slug(title):
    """How the book names a heading in an address."""
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")


class Survey:
    """What can be linked to in all notebooks, and what is."""

    def __init__(self, notebooks):
        self.places, self.linked, self.titles = {}, set(), {}
        for stem, notebook in notebooks.items():
            self._number(stem, notebook)
            self._find_links(notebook)

    def _number(self, stem, notebook):
        counts = {FIGURE: 0, EQUATION: 0, EXERCISE: 0}

        def add(kind, label):
            counts[kind] += 1
            self.places[label] = Place(stem, kind, f"{stem.partition('_')[0]}.{counts[kind]}")

        for cell in notebook.cells:
            if not is_text(cell):
                if "name" in figure(cell):
                    add(FIGURE, figure(cell)["name"])
                continue
            for token in blocks(cell.source):
                name, title, options, _ = directive(token) or ("", "", {}, "")
                if name == "math" and "label" in options:
                    add(EQUATION, options["label"])
                elif name == "exercise":
                    add(EXERCISE, options["label"])
                    self.titles[options["label"]] = title

    def _find_links(self, notebook):
        for cell in filter(is_text, notebook.cells):
            for token in blocks(cell.source):
                for part in token.children or ():
                    if part.type == "myst_role":
                        self.linked.add(part.content)
                    elif part.type == "link_open" and ".ipynb#" in part.attrs["href"]:
                        self.linked.add(part.attrs["href"])


# ---- references


@cache
def bibliography():
    return parse_file(ROOT / "book" / "references.bib", bib_format="bibtex")


def spoken(text):
    """LaTeX as plain letters."""
    return str(Text.from_latex(text)).replace("\xa0", " ")


def authors(key):
    """`Vaswani et al.`, as the book says it."""
    last = [
        " ".join(map(spoken, (*one.prelast_names, *one.last_names)))
        for one in bibliography().entries[key].persons["author"]
    ]
    if last[-1] == "others" or len(last) > 2:
        return f"{last[0]} et al."
    return " and ".join(last)


def address(key):
    """Where a work is on the web, if its entry says so."""
    fields = bibliography().entries[key].fields
    told = " ".join(fields.get(name, "") for name in ("journal", "note", "howpublished"))
    eprint = fields.get("eprint") or "".join(re.findall(r"arXiv:(\d{4}\.\d{5})", told)[:1])
    if "doi" in fields:
        return f"https://doi.org/{fields['doi']}"
    return f"https://arxiv.org/abs/{eprint}" if eprint else "".join(re.findall(r"\\url\{([^}]*)\}", told))


def reference(key):
    """A work in full, as in the book's list, with its address."""
    style = find_plugin("pybtex.style.formatting", "plain")()
    (entry,) = style.format_entries([bibliography().entries[key]])
    text = entry.text.render(Backend()).replace("&nbsp;", " ").replace("\xa0", " ").replace("\n", " ")
    text = re.sub(r"\\([.!-])", r"\1", text)  # these mean nothing in the middle of a line
    link = address(key)
    return text if not link or link in text else f"{text.rstrip('.')}. <{link}>"


# ---- one notebook


def anchor(name):
    """A place for links; `name` is what Colab asks for."""
    return f'<a id="{name}" name="{name}"></a>'


def quoted(text):
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def folded(summary, text):
    """A line that opens; GitHub reads Markdown inside only between blank lines."""
    return f"<details><summary>{summary}</summary>\n\n{text}\n\n</details>"


class Reader:
    """The readers' form of one notebook."""

    def __init__(self, stem, notebook, survey, addresses):
        self.stem, self.source, self.survey, self.addresses = stem, notebook, survey, addresses
        self.cells, self.solutions, self.cited = [], {}, []
        self.solution = None  # the label of the exercise whose solution we are in
        self.where = ""
        self.notes = 0

    def made(self):
        """The notebook."""
        for number, cell in enumerate(self.source.cells, 1):
            self.where = f"{self.stem}, cell {number}"
            if is_text(cell):
                self.read(cell)
            elif self.solution:
                self.solutions[self.solution].append(self.solution_code(cell))
            else:
                self.cells.append(plain_code(cell))
            if figure(cell):
                self.write(self.caption(cell))
        if self.solution or self.notes != 1:
            raise UnknownError(f"{self.stem}: a solution has no end, or there is not one link to {RUN_IT}")
        self.cells[1:1] = self.setup()
        self.end()
        seen = {}
        for cell in self.cells:
            cell.id = cell_id(cell, seen)
        metadata = {key: self.source.metadata[key] for key in ("kernelspec", "language_info")}
        notebook = v4.new_notebook(cells=self.cells, metadata=metadata)
        notebook.nbformat_minor = 5
        return notebook

    # -- cells

    def write(self, text):
        """Put text where the reader is: into the notebook, or into the solution that is being read."""
        if text := text.strip("\n"):
            cells = self.solutions[self.solution] if self.solution else self.cells
            cells.append(v4.new_markdown_cell(folded("Explanation", text) if self.solution else text))

    def read(self, cell):
        """Turn a cell of text into cells, cut where a solution begins or ends."""
        lines = []
        for token, text in self.pieces(cell.source):
            name, argument, *_ = (token and directive(token)) or ("", "")
            if name not in ("solution-start", "solution-end"):
                lines.append(text)
                continue
            if name == "solution-start":
                number = self.survey.places[argument].number
                lines.append(f"[Solution of exercise {number}](#solution-{argument})\n")
            self.write("\n".join(lines))
            self.solution = argument or None
            if self.solution:
                self.solutions[self.solution] = []
            lines = []
        self.write("\n".join(lines))

    def solution_code(self, cell):
        """A cell that JupyterLab and Colab show closed; for Colab its first line says what is in it."""
        new = plain_code(cell)
        new.source = f"#@title Solution {self.titled(self.solution)}\n{cell.source}"
        new.metadata = nbformat.from_dict({"cellView": "form", "jupyter": cell.metadata["jupyter"]})
        return new

    def titled(self, label):
        return f"{self.survey.places[label].number}: {self.survey.titles[label]}"

    def caption(self, cell):
        label = figure(cell).get("name")
        number = f"**Figure {self.survey.places[label].number}.** " if label else ""
        mark = f"{anchor(label)}\n\n" if label in self.survey.linked else ""
        return mark + number + self.text(figure(cell)["caption"])

    def setup(self):
        """How to get the package in this program."""
        where, links = self.addresses, []
        for words, link in (
            ("Open it in Colab", where.colab(self.stem)),
            ("Open it in Binder", where.binder(self.stem)),
            ("Read it on the site", where.site and where.notebook(self.stem)),
        ):
            links += [f"[{words}]({link})"] if link else []
        code = INSTALL
        if where.package():
            code = code.replace(NO_COPY, f'    copies.append("{where.package()}")\n')
        text = SETUP + ("\n\n" + " · ".join(links) if links else "")
        closed = {"cellView": "form", "jupyter": {"source_hidden": True}}
        return v4.new_markdown_cell(text), v4.new_code_cell(code, metadata=closed)

    def end(self):
        """The works that are cited, then the solutions."""
        solutions, self.solutions = self.solutions, {}
        if self.cited:
            works = sorted(
                set(self.cited), key=lambda key: (authors(key), bibliography().entries[key].fields["year"], key)
            )
            entries = "\n".join(f"- {anchor(f'ref-{key}')}{reference(key)}" for key in works)
            self.write(f"## References\n\n{entries}")
        if any(solutions.values()):
            self.write("## Solutions\n\nTry first: the checker under each exercise names your mistake.")
        for label, cells in solutions.items():
            back = f"[Back to the exercise](#{label})"
            self.write(f"{anchor(f'solution-{label}')}\n\n### Solution of exercise {self.titled(label)}\n\n{back}")
            self.cells += cells

    # -- blocks

    def text(self, source):
        """A text in plain Markdown."""
        return "\n".join(text for _, text in self.pieces(source)).strip("\n")

    def pieces(self, source):
        """The text, cut at directives: pairs of (the directive or None, plain Markdown)."""
        lines, start, pieces = self.rewritten(source), 0, []
        for token in tokens(source):
            still = STILL.fullmatch(token.content.strip()) if token.type == "html_block" else None
            if token.type in NO_TEXT or directive(token) or self.is_note(token) or still:
                if token.level and token.type != "inline":
                    raise UnknownError(f"{self.where}: a label or directive inside a list or quotation")
                pieces.append((None, "\n".join(lines[start : token.map[0]])))
                pieces += [(token, self.replacement(token))] if directive(token) else []
                pieces += [(None, f"*{still[1]}*" + (f"\n\n{still[2]}" if still[2] else ""))] if still else []
                start = token.map[1]
        return [*pieces, (None, "\n".join(lines[start:]))]

    def is_note(self, token):
        """Whether this paragraph is the one that says how to get the package."""
        parts = token.children or ()
        note = [part.attrs["href"] for part in parts if part.type == "link_open"] == [RUN_IT]
        self.notes += note
        return note

    def replacement(self, token):
        """What a directive becomes."""
        name, argument, options, body = directive(token)
        if name in ("solution-start", "solution-end"):
            return ""
        if name == "math":
            return self.equation(options, body)
        if name == "exercise":
            return self.exercise(argument, options, body)
        if name == "dropdown":
            return folded(argument, self.text(body))
        if name == "margin":
            return self.margin(argument, body)
        if name in ADMONITIONS:
            return quoted(f"**{argument or name.capitalize()}**\n\n{self.text(body)}")
        raise UnknownError(f"{self.where}: no plain form of the directive {{{name}}} is known")

    def equation(self, options, body):
        if not (label := options.get("label")):
            return f"$$\n{body}\n$$"
        mark = f"{anchor(label)}\n\n" if label in self.survey.linked else ""
        return f"{mark}$$\n{body}\n\\tag{{{self.survey.places[label].number}}}\n$$"

    def exercise(self, title, options, body):
        label = options["label"]
        times = TIMES.match(body)
        if not times:
            raise UnknownError(f"{self.where}: the exercise {title!r} does not begin with its minutes")
        text = self.text(body[times.end() :])
        heading = f"### Exercise {self.survey.places[label].number}: {title} ({times[1]}, {times[2]})"
        return f"{anchor(label)}\n\n{heading}\n\n{text}"

    def margin(self, title, body):
        """A note in the margin: a small quotation; lines that end with a break are joined."""
        text = self.text(body)
        if text.count("\\\n") == text.count("\n"):
            return quoted(f"**{title}:** " + text.replace("\\\n", " · "))
        return quoted(f"**{title}**\n\n{text}")

    # -- inside a line

    def rewritten(self, source):
        """The lines of a text, roles and links written anew; directives are still as they were."""
        lines, edits = source.split("\n"), []
        at = [0] * len(lines)  # the column up to which a line was read: a row of a table is read cell by cell
        for token, after in zip(tokens(source), [*tokens(source)[1:], None], strict=True):
            if token.type == "inline":
                columns = []
                for number, part in enumerate(token.content.split("\n"), token.map[0]):
                    columns.append(lines[number].find(part, at[number]))
                    at[number] = columns[-1] + len(part)
                for begin, end, new in self.edits(token):
                    number = token.content.count("\n", 0, begin)
                    shift = columns[number] - (token.content.rfind("\n", 0, begin) + 1)
                    if columns[number] < 0 or "\n" in token.content[begin:end]:
                        raise UnknownError(f"{self.where}: {token.content[begin:end]!r} is not in one line")
                    edits.append((token.map[0] + number, begin + shift, end + shift, new))
            elif token.type == "heading_open":
                name = slug("".join(part.content for part in after.children))
                if f"{self.stem}.ipynb#{name}" in self.survey.linked:
                    edits.append((token.map[0], 0, 0, f"{anchor(name)}\n\n"))
            else:
                self.know(token)
        for number, begin, end, new in sorted(edits, reverse=True):
            lines[number] = lines[number][:begin] + new + lines[number][end:]
        return lines

    def know(self, token):
        """Refuse a block that a plain parser would read in another way."""
        kind = re.sub(r"_(open|close)$", "", token.type)
        plain = token.type == "fence" and "{" not in token.info
        if not plain and kind not in PLAIN_BLOCKS | PLAIN_LEAVES | NO_TEXT and not directive(token):
            raise UnknownError(f"{self.where}: no plain form of a {token.type} is known: {token.content[:60]!r}")

    def edits(self, inline):
        """Roles and links of an inline text, as (begin, end, what to write there)."""
        text, at, opened = inline.content, 0, []

        def find(raw):
            if (found := text.find(raw, at)) < 0:
                raise UnknownError(f"{self.where}: {raw!r} is not found in {text[:60]!r}")
            return found

        for part in inline.children:
            kind = re.sub(r"_(open|close)$", "", part.type)
            if part.type == "myst_role":
                raw = f"{{{part.meta['name']}}}`{part.content}`"
                begin = find(raw)
                at = begin + len(raw)
                yield begin, at, self.role(part.meta["name"], part.content, text[:begin])
            elif kind not in PLAIN_INLINE or (part.attrs and kind not in ("link", "image")):
                raise UnknownError(f"{self.where}: no plain form of {part.type} is known: {text[:60]!r}")
            elif part.type in ("code_inline", "math_inline"):
                at = find(part.content) + len(part.content)
            elif part.type == "link_open":
                opened.append(None if part.markup in ("autolink", "linkify") else part.attrs["href"])
            elif part.type == "link_close" and (href := opened.pop()):
                raw = f"]({href})"
                begin = find(raw)
                at = begin + len(raw)
                if new := self.link(href):
                    yield begin, at, f"]({new})"
                else:  # nobody knows where: the words without a link
                    yield text.rindex("[", 0, begin), text.rindex("[", 0, begin) + 1, ""
                    yield begin, at, ""

    def link(self, href):
        """Where a link leads in the readers' notebook."""
        path, _, fragment = href.partition("#")
        stem = Path(path).stem
        if re.match(r"https?://", href):
            return href
        if path.endswith(".ipynb") and "/" not in path:
            return self.addresses.notebook(stem, fragment)
        if path.startswith("../book/") and path.endswith(".md"):
            return self.addresses.page(stem, fragment)
        raise UnknownError(f"{self.where}: a link to {href}, which is no notebook and no page of the book")

    def role(self, name, content, before):
        """What a role becomes, after the text before it."""
        if name in ("cite", "cite:p", "cite:t"):
            return self.citation(content.split(","), name == "cite:t", before)
        if name in ("eq", "ref", "numref"):
            return self.label(content)
        if name == "doc":
            return f"[{Path(content).stem}]({self.addresses.notebook(Path(content).stem)})"
        raise UnknownError(f"{self.where}: no plain form of the role {{{name}}} is known")

    def label(self, label):
        if label not in self.survey.places:
            raise UnknownError(f"{self.where}: nothing has the label {label}")
        stem, kind, number = self.survey.places[label]
        words = f"({number})" if kind == EQUATION else f"{kind} {number}"
        return f"[{words}]({'' if stem == self.stem else f'{stem}.ipynb'}#{label})"

    def citation(self, keys, as_noun, before):
        """Author and year, linked to the work: `Name (2017)` as a noun, else `(Name, 2017)`."""
        before = re.sub(r"`[^`]*`|\[[^]]*\]\([^)]*\)", "", before).rstrip()
        as_noun = as_noun or not before or bool(TEXTUAL.search(before))
        opens, closes = ("", "") if as_noun or before.endswith("(") else "()"
        names = []
        for key in map(str.strip, keys):
            if key not in bibliography().entries:
                raise UnknownError(f"{self.where}: {key} is not in book/references.bib")
            self.cited.append(key)
            year = bibliography().entries[key].fields["year"]
            words = f"{authors(key)} ({year})" if as_noun else f"{authors(key)}, {year}"
            names.append(f"[{words}]({address(key) or f'#ref-{key}'})")
        return opens + (", " if as_noun else "; ").join(names) + closes


def plain_code(cell):
    """A cell of code without what only the book and the tests read in its metadata; its outputs as they are."""
    new = copy.deepcopy(cell)
    new.metadata = nbformat.from_dict({})
    return new


def cell_id(cell, seen):
    """The same cell keeps its id when the notebook is made again, whatever happens to its neighbors."""
    name = hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:12]
    seen[name] = seen.get(name, 0) + 1
    return name if seen[name] == 1 else f"{name}-{seen[name]}"


# ---- all notebooks


def sources():
    """The notebooks of the book in its order, by the name of their file."""
    paths = [ROOT / f"{file}.ipynb" for _, file in contents() if file.startswith("notebooks/")]
    return {path.stem: nbformat.read(path, as_version=4) for path in paths}


def readers(addresses=None):
    """All readers' notebooks, by the name of their file."""
    notebooks = sources()
    survey = Survey(notebooks)
    where = known() if addresses is None else addresses
    return {stem: Reader(stem, notebook, survey, where).made() for stem, notebook in notebooks.items()}


def write(folder: Path, addresses: Addresses | None = None) -> list[Path]:
    """Write the readers' notebooks into a folder, under the names of their sources; other files there stay.

    :param folder: made where it is missing.
    :param addresses: where the course is on the web; what the environment says by default.
    :returns: the files, in the order of the book.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for stem, notebook in readers(addresses).items():
        nbformat.validate(notebook)
        paths.append(folder / f"{stem}.ipynb")
        paths[-1].write_text(nbformat.writes(notebook).rstrip("\n") + "\n", encoding="utf-8", newline="\n")
    return paths


def main():
    parser = argparse.ArgumentParser(description="Make the readers' notebooks.")
    parser.add_argument("folder", nargs="?", type=Path, default=TARGET, help="default: _build/readers, emptied first")
    parser.add_argument("--readme", type=Path, help="only lead the links of this README to where the course is")
    options = parser.parse_args()
    if options.readme:
        text = known().readme(options.readme.read_text(encoding="utf-8"))
        options.readme.write_text(text, encoding="utf-8", newline="\n")
        return
    if options.folder == TARGET:
        shutil.rmtree(TARGET, ignore_errors=True)
    print(f"{len(write(options.folder))} notebooks: {options.folder}")


if __name__ == "__main__":
    sys.exit(main())
