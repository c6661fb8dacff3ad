"""The notebooks for readers: code, outputs and words of the sources, in Markdown that every program draws."""

import ast
import json
import re
import symtable
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
import yaml
from chapters import CHAPTERS, ROOMS
from markdown_it import MarkdownIt
from nbformat import v4
from programs import load

readers = load("tools/make_readers.py")
addresses = load("tools/addresses.py")
runner = load("tools/run_notebooks.py")

ROOT = Path(__file__).resolve().parents[2]
NOWHERE = addresses.Addresses()
KNOWN = addresses.Addresses("https://github.com/a/b", "https://a.github.io/b")
MYST = re.compile(r"\{[a-z][\w:-]*\}|:::|^\([\w-]+\)=|^\+\+\+", re.MULTILINE)
TAGS = re.compile(r'<a id="([\w-]+)" name="\1"></a>|</?details>|</?summary>|<https://[^>]*>')
ADDED = {"Exercise", "exercise", "Figure", "Solution", "of", "et", "al", "and"}
pytestmark = pytest.mark.slow  # `make book` makes these notebooks, and stops where one cannot be made
every_notebook = pytest.mark.parametrize("stem", [path.stem for path in (*CHAPTERS, *ROOMS)])


@pytest.fixture(scope="module")
def sources():
    return readers.sources()


@pytest.fixture(scope="module")
def made():
    return readers.readers(NOWHERE)


def text_of(cells):
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def code_of(cells):
    return [cell for cell in cells if cell.cell_type == "code"]


def heading(cell, title):
    return cell.cell_type == "markdown" and cell.source.startswith(f"## {title}\n")


def parts(notebook):
    """The cells that follow the source, the works cited, and the solutions; without the cells that get the package."""
    cells = [notebook.cells[0], *notebook.cells[3:]]
    ends = [next((i for i, c in enumerate(cells) if heading(c, t)), len(cells)) for t in ("References", "Solutions")]
    return cells[: min(ends)], cells[ends[0] : ends[1]], cells[ends[1] :]


def without_math(text):
    return re.sub(r"\$\$.*?\$\$|\$[^$]*\$", "", text, flags=re.DOTALL)


# ---- nothing of MyST is left


@every_notebook
def test_a_plain_parser_sees_nothing_of_myst(made, stem):
    for cell in made[stem].cells:
        assert "mystnb" not in cell.metadata
        if cell.cell_type != "markdown":
            continue
        for block in MarkdownIt("commonmark").enable("table").parse(without_math(cell.source)):
            assert not block.info.startswith("{"), cell.source
            for part in block.children or ():
                if part.type == "text":
                    assert not MYST.search(part.content), part.content


@every_notebook
def test_html_has_no_classes_and_only_what_every_program_keeps(made, stem):
    text = re.sub(r"```.*?```|`[^`]*`", "", without_math(text_of(made[stem].cells)), flags=re.DOTALL)
    assert re.findall(r"<[a-z/!][^>]*>", TAGS.sub("", text)) == []
    opened = re.findall(
        r"<details><summary>.*</summary>\n\n\S(?:(?!</details>)[^\0])*\n\n</details>(?!\n\S)", text_of(made[stem].cells)
    )
    assert text.count("<details>") == text.count("</details>") == len(opened)


@every_notebook
def test_every_link_leads_somewhere(made, stem):
    ids = {name: re.findall(r'<a id="([^"]*)"', text_of(made[name].cells)) for name in made}
    assert len(ids[stem]) == len(set(ids[stem]))
    for path, fragment in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", text_of(made[stem].cells)):
        if not path.startswith("https://"):
            target = path.removesuffix(".ipynb") or stem
            assert target in made, path
            assert not fragment or fragment in ids[target], f"{path}#{fragment}"


# ---- nothing is lost


@every_notebook
def test_code_and_outputs_are_those_of_the_source(sources, made, stem):
    def value(cell):
        return ast.dump(ast.parse(cell.source)), json.dumps(cell.outputs, sort_keys=True)

    first, *others = code_of(made[stem].cells)
    assert "import mha" in first.source
    assert Counter(map(value, others)) == Counter(map(value, code_of(sources[stem].cells)))
    solutions = list(map(value, runner.solutions(sources[stem])))
    rest = [value(cell) for cell in code_of(sources[stem].cells) if value(cell) not in solutions]
    assert list(map(value, others)) == rest + solutions, "in order, solutions last"


def words(text):
    """The words and numbers that a reader reads; of mathematics the letters."""
    text = re.sub(r":::\{solution-.*\n(?::class: dropdown\n)?:::", "", text)
    text = re.sub(r"^\([\w-]+\)=$|^:(?:label|class): .*$|^\\tag\{.*\}$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\{(?:cite|eq|cite:t)\}`[^`]*`|\]\([^)]*\)|\{(?:exercise|dropdown|margin|math)\}", " ", text)
    text = re.sub(r"\*Running it yourself\?.*?get it\.\*", "", text, flags=re.DOTALL)
    begin, end = (
        r'<figure class="mha-(?:live|first)"[^>]*><p class="still">',
        r"(?:\s*<figcaption>(.*?)</figcaption>)?</figure>",
    )
    text = re.sub(rf"{begin}(.*?)</p>{end}", r"\1 \2", text, flags=re.DOTALL)
    return re.findall(r"\w+", TAGS.sub(" ", text))


def told(cell):
    """What a reader reads of a cell of the source: its text, or the caption of its figure."""
    caption = cell.metadata.get("mystnb", {}).get("figure", {}).get("caption", "")
    return cell.source if cell.cell_type == "markdown" else caption


def outside_and_inside(notebook):
    """The texts of a source outside its solutions, and inside."""
    text = "\n\n".join(map(told, notebook.cells))
    solution = r"(:::\{solution-start\}.*?\n:::)(.*?)(?=:::\{solution-end\}\n:::)"
    inside = [found[1] for found in re.findall(solution, text, re.DOTALL)]
    return re.sub(solution, r"\1", text, flags=re.DOTALL), inside


@every_notebook
def test_every_word_is_there_in_its_order(sources, made, stem):
    outside, inside = outside_and_inside(sources[stem])
    main, _, solutions = parts(made[stem])
    before, now = words(outside), words(text_of(main))
    rest = iter(now)
    assert [word for word in before if word not in rest] == []
    cited = re.findall(r"\{cite(?::t)?\}`([^`]*)`", outside + "".join(inside))
    works = {key for keys in cited for key in keys.split(",")}
    names = {word for key in works for word in re.findall(r"\w+", readers.authors(key))}
    added = [word for word in Counter(now) - Counter(before) if not re.fullmatch(r"\d+[a-z]?", word)]
    assert set(added) <= ADDED | names
    explained = re.findall(r"Explanation</summary>\n\n(.*?)\n\n</details>", text_of(solutions), re.DOTALL)
    assert words("\n".join(explained)) == words("\n".join(inside))


@every_notebook
def test_mathematics_is_untouched(sources, made, stem):
    def formulas(notebook):
        for cell in notebook.cells:
            for token in readers.blocks(cell.source) if cell.cell_type == "markdown" else ():
                found = readers.directive(token)
                if found and found[0] == "math":
                    yield found[3]
                elif token.type == "math_block":
                    yield re.sub(r"\n\\tag\{.*\}$", "", token.content.strip("\n"))
                for part in token.children or ():
                    if part.type == "math_inline":
                        yield part.content

    captions = [v4.new_markdown_cell(told(c)) for c in code_of(sources[stem].cells)]
    source = v4.new_notebook(cells=[*sources[stem].cells, *captions])
    assert Counter(formulas(made[stem])) == Counter(formulas(source))


# ---- exercises and solutions


@every_notebook
def test_solutions_are_last_folded_and_linked_both_ways(sources, made, stem):
    main, _, solutions = parts(made[stem])
    labels = re.findall(r"\{exercise\}[^\n]*\n:label: (\S+)", text_of(sources[stem].cells))
    exercises = re.findall(r'<a id="(\S+)" .*\n\n### Exercise (\S+): .* \(\d+ minutes, \w+\)\n', text_of(main))
    assert [label for label, _ in exercises] == labels
    for label, number in exercises:
        assert text_of(main).count(f"[Solution of exercise {number}](#solution-{label})") == 1
        back = rf'<a id="solution-{label}" .*\n\n### Solution of exercise {number}: .*\n\n\[.*\]\(#{label}\)'
        assert len(re.findall(back, text_of(solutions))) == 1
    assert len(code_of(solutions)) == len(list(runner.solutions(sources[stem])))
    for cell in code_of(solutions):
        assert cell.source.startswith("#@title Solution ")
        assert cell.metadata == {"cellView": "form", "jupyter": runner.FOLDED}
    assert [cell.metadata for cell in code_of(main) if cell.metadata] == []
    package = made[stem].cells[2]
    assert package.metadata == {"cellView": "form", "jupyter": {"source_hidden": True}}
    assert package.source.startswith("#@title ")


def bound(source):
    """The names that a cell binds, and those that it reads, functions inside it included."""
    table, binds, reads = symtable.symtable(source, "cell", "exec"), set(), set()
    binds = {name.get_name() for name in table.get_symbols() if name.is_assigned() or name.is_imported()}
    tables = [table]
    while tables:
        one = tables.pop()
        tables += one.get_children()
        reads |= {
            name.get_name() for name in one.get_symbols() if name.is_referenced() and (name.is_global() or one is table)
        }
    return binds, reads


@every_notebook
def test_a_moved_solution_meets_the_same_names(sources, stem):
    """At the end a solution reads what it read in its old place, and nothing before it waits for its names."""
    cells, moved = code_of(sources[stem].cells), [cell.id for cell in runner.solutions(sources[stem])]
    for number, cell in enumerate(cells):
        if cell.id not in moved:
            continue
        binds, reads = bound(cell.source)
        known = {name for other in cells[:number] if other.id not in moved for name in bound(other.source)[0]}
        for later in cells[number + 1 :]:
            if later.id not in moved:
                assert not bound(later.source)[0] & (reads - binds), f"{later.source}\nbinds what a solution reads"
                assert not bound(later.source)[1] & (binds - known), f"{later.source}\nreads a name of a solution"
                assert not bound(later.source)[1] & binds & known, f"{later.source}\nreads what a solution binds anew"


# ---- what it does not know is an error


def one(*cells, stem="01_a"):
    note = v4.new_markdown_cell(f"# A\n\n*Running it? [Run it]({readers.RUN_IT})*")
    notebook = v4.new_notebook(cells=[note, *cells])
    notebook.metadata = nbformat.from_dict(runner.NOTEBOOK_METADATA)
    return readers.Reader(stem, notebook, readers.Survey({stem: notebook}), NOWHERE).made()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{wiki}`attention`", r"role \{wiki\}"),
        ("A {cite}`nobody2000nothing`.", "nobody2000nothing is not in"),
        ("See {ref}`nowhere`.", "nothing has the label nowhere"),
        (":::{video} a.mp4\n:::", r"directive \{video\}"),
        ("::::{dropdown} Hint\n:::{video} a.mp4\n:::\n::::", r"directive \{video\}"),
        ("- a\n\n  :::{margin} b\n  c\n  :::", "inside a list"),
        ("87\n% there", "myst_line_comment"),
        ("word\n: its meaning", "dl_open"),
        ("[a](../tools/chapters.py)", "no notebook and no page"),
        ("{{ key }}", "substitution"),
        (":::{exercise} A\n:label: ex-a\n\nDo it.\n:::", "does not begin with its minutes"),
    ],
)
def test_what_has_no_plain_form_is_an_error_that_says_where(text, said):
    with pytest.raises(readers.UnknownError, match=rf"01_a, cell 2: .*{said}"):
        one(v4.new_markdown_cell(text))


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("(a-label)=\nText.", "Text."),
        (":::{note}\nMind *this*.\n\nAnd that.\n:::", "> **Note**\n>\n> Mind *this*.\n>\n> And that."),
        (":::{margin} 中文\na 甲\\\nb 乙\n:::", "> **中文:** a 甲 · b 乙"),
        (":::{dropdown} Hint 1\nLook.\n:::", "<details><summary>Hint 1</summary>\n\nLook.\n\n</details>"),
        ("- see [a](02_b.ipynb),\n  `{cite}`, [b](../book/names.md#a)", "- see [a](02_b.ipynb),\n  `{cite}`, b"),
        (
            "The rule {cite}`vaswani2017attention`.",
            "The rule ([Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)).",
        ),
        ("By {cite}`vaswani2017attention`.", "By [Vaswani et al. (2017)](https://arxiv.org/abs/1706.03762)."),
        ("| a |\n|---|\n| `](` [b](../book/names.md) | [c](c.ipynb) |", "| a |\n|---|\n| `](` b | [c](c.ipynb) |"),
        ("```{math}\na = b\n```", "$$\na = b\n$$"),
        (
            "```{math}\n:label: eq-a\na\n```\n\nBy {eq}`eq-a`",
            '<a id="eq-a" name="eq-a"></a>\n\n$$\na\n\\tag{01.1}\n$$\n\nBy [(01.1)](#eq-a)',
        ),
    ],
)
def test_the_plain_form(text, plain):
    assert one(v4.new_markdown_cell(text)).cells[3].source == plain


def test_a_solution_without_an_end_is_an_error():
    start = v4.new_markdown_cell(
        ":::{exercise} A\n:label: ex-a\n\n**5 minutes · easy.** B\n:::\n\n:::{solution-start} ex-a\n:::"
    )
    with pytest.raises(readers.UnknownError, match="a solution has no end"):
        one(start)


# ---- the files


def test_the_files_are_the_same_on_every_run_and_other_files_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "contents", lambda: [("One head", "notebooks/01_why_attention"), (None, "book/map")])
    work = tmp_path / "work.txt"
    work.write_text("mine", encoding="utf-8")
    (path,) = readers.write(tmp_path, NOWHERE)
    first = path.read_bytes()
    assert path.name == "01_why_attention.ipynb"
    assert readers.write(tmp_path, NOWHERE) == [path]
    assert path.read_bytes() == first
    assert work.read_text(encoding="utf-8") == "mine"
    ids = [cell.id for cell in nbformat.read(path, as_version=4).cells]
    assert len(ids) == len(set(ids))


def test_all_notebooks_of_the_book_are_made(made):
    assert sorted(made) == sorted(path.stem for path in (*CHAPTERS, *ROOMS))


def test_the_first_cells_get_the_package_where_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "contents", lambda: [("One head", "notebooks/01_why_attention")])
    calls = []
    monkeypatch.setattr("subprocess.run", lambda command, check: calls.append(command[-1]))
    monkeypatch.chdir(tmp_path)
    for where, copies in ((NOWHERE, False), (KNOWN, False), (KNOWN, True)):
        if copies:
            (tmp_path / "mha" / "course").mkdir(parents=True)
        text, code = readers.readers(where)["01_why_attention"].cells[1:3]
        assert ("colab.research.google.com/github/a/b/blob/readers/notebooks/01" in text.source) == bool(where.site)
        assert max(map(len, code.source.splitlines())) <= 72
        exec(code.source, {})  # mha is there: nothing happens
        assert calls == []
        missing = code.source.replace("import mha", "import a_package_that_is_not_there")
        if where is NOWHERE:
            with pytest.raises(AssertionError, match="put this notebook into a copy"):
                exec(missing, {})
            continue
        exec(missing, {})
        source = tmp_path.as_uri() if copies else "git+https://github.com/a/b@readers"
        assert calls.pop() == f"mha-course[course] @ {source}"


# ---- where the course is


def test_links_lead_to_the_site_where_its_address_is_known(monkeypatch):
    assert KNOWN.notebook("03_masking", "a") == "https://a.github.io/b/notebooks/03_masking.html#a"
    assert NOWHERE.notebook("03_masking", "a") == "03_masking.ipynb#a"
    assert (NOWHERE.page("names"), NOWHERE.colab("03_masking"), NOWHERE.binder("03_masking")) == ("", "", "")
    assert KNOWN.binder("03_m") == "https://mybinder.org/v2/gh/a/b/readers?urlpath=lab/tree/notebooks/03_m.ipynb"
    monkeypatch.setenv("COURSE_REPOSITORY", "https://github.com/a/b.git")
    monkeypatch.setenv("COURSE_SITE", "https://a.github.io/b/")
    assert addresses.known() == KNOWN


@pytest.mark.parametrize(
    ("where", "chapter", "page"),
    [
        (NOWHERE, "notebooks/01_why_attention.ipynb", "book/names.md#a"),
        (
            KNOWN._replace(site=""),
            f"{KNOWN.repository}/blob/readers/notebooks/01_why_attention.ipynb",
            "book/names.md#a",
        ),
        (KNOWN, "https://a.github.io/b/notebooks/01_why_attention.html", "https://a.github.io/b/book/names.html#a"),
    ],
)
def test_the_readme_leads_readers_to_what_they_can_read(where, chapter, page):
    text = "[01](notebooks/01_why_attention.ipynb), [names](book/names.md#a), [the rules](CONTRIBUTING.md), `book/`"
    assert where.readme(text) == f"[01]({chapter}), [names]({page}), [the rules](CONTRIBUTING.md), `book/`"


def test_the_readme_links_every_chapter_by_the_rule():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    moved = KNOWN.readme(readme)
    for path in CHAPTERS:
        assert f"]({KNOWN.notebook(path.stem)})" in moved
    assert not re.search(r"\]\(notebooks/", moved)


# ---- what pages offer, and what is published


def test_the_download_button_gives_the_notebook_for_readers(tmp_path, monkeypatch):
    extension = load("book/_ext/course_readers.py")
    monkeypatch.setattr(extension.make_readers, "contents", lambda: [("One head", "notebooks/01_why_attention")])
    file = tmp_path / "_sources" / "notebooks" / "01_why_attention.ipynb"
    app = SimpleNamespace(outdir=tmp_path, builder=SimpleNamespace(format="html"))
    extension.give_plain_notebooks(app, None)
    assert not file.exists(), "without buttons no files"
    file.parent.mkdir(parents=True)
    extension.give_plain_notebooks(app, None)
    assert "### Exercise 01.1: Softmax" in file.read_text(encoding="utf-8")


def test_the_workflow_publishes_the_notebooks_for_readers_from_main_only():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "course.yml").read_text(encoding="utf-8"))["jobs"]
    writing = [name for name, job in jobs.items() if (job.get("permissions") or {}).get("contents") == "write"]
    assert writing == ["readers"]
    job = jobs["readers"]
    assert "refs/heads/main" in job["if"]
    assert "pull_request" in job["if"]
    assert job["needs"] == ["make"]
    assert all(re.search(r"@[0-9a-f]{40}$", step["uses"]) for step in job["steps"] if "uses" in step)
    script = "\n".join(step.get("run", "") for step in job["steps"])
    for what in (
        "make readers",
        "--readme",
        "git archive HEAD mha ",
        "pyproject.toml",
        "constraints.txt",
        ".binder",
        addresses.BRANCH,
    ):
        assert what in script
