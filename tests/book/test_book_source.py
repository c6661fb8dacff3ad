"""The pages of the book that are not executed, its settings and its own extension, before anything is built."""

import importlib.util
import json
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import pytest
import torch
import torch.nn.functional as F
import yaml
from bs4 import BeautifulSoup
from chapters import CHAPTERS, ROOMS, contents
from programs import load
from torch import nn

import mha
from mha.course.exercises.exercise import judge
from mha.course.exercises.why_attention import check_softmax

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book"
PAGES = sorted(BOOK.glob("*.md"))
TABLE = yaml.safe_load((BOOK / "_toc.yml").read_text(encoding="utf-8"))
CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
PURGECSS = ROOT / "node_modules" / "purgecss"
BRITISH = re.compile(r"\b\w*(?:aviour|colour|avour|eighbour|ormalis|ecialis|itialis|ptimis|ecognis|entred?\b)\w*")
FILLERS = re.compile(r"\b(?:simply|just|obviously|clearly|of course|trivially|amazing|powerful|revolutioni[sz]\w+)\b")
NEEDED = {
    "article": {"author", "title", "journal", "year"},
    "inproceedings": {"author", "title", "booktitle", "year"},
    "techreport": {"author", "title", "institution", "year"},
    "misc": {"author", "title", "howpublished", "year"},
}

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def read(page):
    return page.read_text(encoding="utf-8")


def extension():
    return load("book/_ext/course_book.py")


def rows(page, heading):
    """The cells of the table under a heading, without its first two lines."""
    section = re.split(r"^## ", read(page).split(f"## {heading}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


# ---- The order and the settings


def test_the_order_names_every_page_once_and_nothing_else():
    files = [file for _, file in contents()]
    assert len(files) == len(set(files))
    assert {file for file in files if file.startswith("book/")} == {f"book/{page.stem}" for page in PAGES}
    notebooks = {f"notebooks/{path.stem}" for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert {file for file in files if file.startswith("notebooks/")} == notebooks


def test_chapters_come_in_the_order_of_their_numbers():
    files = [file for _, file in contents() if file.startswith("notebooks/")]
    assert files == sorted(f"notebooks/{path.stem}" for path in (*CHAPTERS, *ROOMS)), "side rooms under their chapter"


def test_the_book_shows_the_outputs_that_the_tests_compare():
    assert CONFIG["execute"]["execute_notebooks"] == "off"


def test_no_extension_loads_from_another_host():
    assert "sphinx_thebe" not in CONFIG["sphinx"]["config"]["extensions"]
    needed = json.loads(read(ROOT / "package.json"))
    assert set(needed["dependencies"]) == {"mathjax", "purgecss", "@micropython/micropython-webassembly-pyscript"}
    packages = needed["dependencies"] | needed["devDependencies"]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in packages.values()), "exact versions"


@pytest.mark.parametrize("name", ["logo.svg", "favicon.svg"])
def test_the_pictures_of_the_site_are_whole(name):
    assert ElementTree.parse(BOOK / "_static" / name).getroot().tag.endswith("svg")


# ---- The pages


@every_page
def test_a_page_begins_with_its_title(page):
    assert re.match(r"(\([\w-]+\)=\n|\{\.language-[\w-]+\}\n)?# ", read(page))
    assert len(re.findall(r"^# ", re.sub(r"```.*?```", "", read(page), flags=re.DOTALL), re.MULTILINE)) == 1


@every_page
def test_every_link_to_a_file_leads_there(page):
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", read(page))
    assert [link for link in links if not (page.parent / link).exists()] == []


@every_page
def test_the_spelling_is_american_and_the_tone_is_plain(page):
    assert BRITISH.findall(read(page)) == []
    assert FILLERS.findall(read(page)) == []


def test_the_quoted_answers_of_the_checker_are_what_it_says():
    page = read(BOOK / "how_to_use.md")
    assert judge(check_softmax, lambda row: None)[1] in page
    right, message = judge(check_softmax, lambda row: [x / sum(row) for x in row])
    assert not right
    assert message in page


@pytest.mark.slow  # it tries every wrong answer
def test_the_table_of_the_checkers_says_what_they_do_now():
    page = load("tools/make_checker_table.py").page()
    assert read(BOOK / "checkers.md") == page, "python tools/make_checker_table.py"
    known, caught, named = map(int, re.search(r"(\d+) wrong answers: (\d+) caught, (\d+) named", page).groups())
    assert known == caught
    assert named >= 0.9 * known


def test_the_solution_of_the_final_project_is_right_and_its_stubs_are_not_solved(capsys):
    stub, layer, solution = re.findall(r"```python\n(.*?)```", read(BOOK / "final_project.md"), re.DOTALL)
    torch.set_default_dtype(torch.float32)
    exec(stub, {})
    assert "Not solved yet" in capsys.readouterr().out
    exec(layer, {})
    assert "✗" in capsys.readouterr().out
    exec(solution, {})
    assert capsys.readouterr().out.count("✓") == 2


# ---- The questions people ask


def test_every_question_is_answered_shortly_and_shown_somewhere():
    asked = re.split(r"^### ", read(BOOK / "questions.md"), flags=re.MULTILINE)[1:]
    assert len(asked) == 22
    for text in asked:
        answer, proof = text.split("**Where it is shown:**")
        assert len(answer.split()) <= 160, answer.splitlines()[0]  # 150 and the question itself
        assert "../notebooks/" in proof or "how_to_use" in proof or "<checkers>" in proof or "coming_from" in proof
        assert re.search(r"\[[\w.-]+/[\w.-]+#\d+\]\(https://github.com/|\(https://discuss.pytorch.org/", proof)


# ---- The notation


def test_every_axis_has_one_letter():
    letters = [row[0].strip("`") for row in rows(BOOK / "notation.md", "Axes")]
    assert set("bhijdmr") <= set(letters)
    assert len(letters) == len(set(letters))


def test_the_converters_that_are_named_exist():
    named = set(re.findall(r"`((?:from|to)_\w+)`", read(BOOK / "notation.md")))
    assert named
    assert [name for name in named if not hasattr(mha.functional.masks, name)] == []
    functions = set(re.findall(r"`mha\.(\w+)`", read(BOOK / "notation.md")))
    assert [name for name in functions if not hasattr(mha, name)] == []


def test_the_terms_are_in_order_and_there_once():
    terms = [row[0] for row in rows(BOOK / "notation.md", "中文 terms")]
    assert len(terms) >= 45
    assert terms == sorted(set(terms), key=str.lower)
    assert all(re.search(r"[\u4e00-\u9fff]", row[1]) for row in rows(BOOK / "notation.md", "中文 terms"))


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.name[:2])
def test_the_terms_in_the_margin_are_those_of_the_notation(path):
    allowed = {
        f"{row[0]} {one}" for row in rows(BOOK / "notation.md", "中文 terms") for one in (row[1], *row[1].split("，"))
    }
    cells = ["".join(cell["source"]) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]]
    (margin,) = [
        found[1] for cell in cells for found in re.finditer(r":::\{margin\} 中文\n(.+?)\n:::", cell, re.DOTALL)
    ]
    terms = [line.removesuffix("\\") for line in margin.splitlines()]
    assert len(terms) >= 2
    assert set(terms) <= allowed


def test_torch_means_what_the_notation_says():
    """True is *may look* for the fused kernel and *hide* for the layer; with fewer queries the first ones are meant."""
    torch.manual_seed(0)
    q, k = torch.zeros(1, 1, 2, 4), torch.randn(1, 1, 3, 4)
    v = torch.eye(3, 4)[None, None]
    first = F.scaled_dot_product_attention(q, k, v, is_causal=True)[0, 0]
    assert torch.allclose(first[0], torch.tensor([1.0, 0, 0, 0]))
    ours = mha.attend(q, k, v, is_causal=True)[0, 0]
    assert torch.allclose(ours[1], torch.tensor([1.0, 1, 1, 0]) / 3)
    see = torch.tensor([[True, False, False]])
    assert torch.allclose(F.scaled_dot_product_attention(q, k, v, attn_mask=see)[0, 0, 0], v[0, 0, 0])
    layer, x = nn.MultiheadAttention(4, 2, batch_first=True), torch.randn(1, 3, 4)
    weights = layer(x, x, x, attn_mask=~see.expand(3, 3))[1]
    assert weights.shape == (1, 3, 3), "averaged over the heads"
    assert torch.allclose(weights[0], torch.tensor([[1.0, 0, 0]]).expand(3, 3))
    assert nn.MultiheadAttention(4, 2).batch_first is False
    assert layer.in_proj_weight.shape == (12, 4)
    assert nn.Linear(4, 7).weight.shape == (7, 4)


SWALLOWED = re.compile(r"(?:\\begin\{\w+\*?\}(?:\{[^{}]*\})?|\\\\)\s*\[(?!-?[\d.]+(?:em|ex|pt|px)\])")


def test_no_formula_begins_a_line_with_a_bracket():
    """TeX takes it for an option of the line before, and the page shows nothing of it."""
    assert SWALLOWED.search(r"\begin{aligned}" "\n" r"[a_1, a_2] &= b")
    assert SWALLOWED.search(r"a &= b \\" "\n" r"[c] &= d")
    assert not SWALLOWED.search(r"\begin{aligned} {[a_1, a_2]} &= b \\[2pt] c &= d")
    for page in PAGES:
        assert not SWALLOWED.search(read(page)), page
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for cell in json.loads(read(path))["cells"]:
            if cell["cell_type"] == "markdown":
                assert not SWALLOWED.search("".join(cell["source"])), path


def needed(number):
    """The chapters that a chapter says it needs, in its first lines."""
    text = "".join(json.loads(read(next((ROOT / "notebooks").glob(f"{number}_*.ipynb"))))["cells"][0]["source"])
    says = re.search(r"You need: (.*?)(?:\.\n\n|\. Whoever)", text, re.DOTALL)[1]
    return set(re.findall(r"\]\((\d\d)_\w+\.ipynb\)", says))


def test_who_follows_the_one_week_path_meets_what_each_chapter_needs():
    path = re.search(r"\*\*One week, .*?\n\n", read(BOOK / "map.md"), re.DOTALL)[0]
    chapters = re.findall(r"\[(\d\d)\]", path)
    assert len(chapters) >= 5
    for place, chapter in enumerate(chapters):
        assert needed(chapter) <= set(chapters[:place]), chapter
    assert needed("05") == {"03", "04"}


# ---- The sources


def entries():
    text = read(BOOK / "references.bib")
    for kind, key, body in re.findall(r"^@(\w+)\{([^,]+),\n(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        fields = re.findall(r"^\s*(\w+)\s*=\s*\{(.*?)\},?\s*$(?=\s*\w+\s*=|\s*\Z)", body, re.MULTILINE | re.DOTALL)
        yield kind, key, dict(fields)


def test_every_source_is_complete_and_there_once():
    found = list(entries())
    keys = [key for _, key, _ in found]
    assert len(keys) == len(set(keys)) == read(BOOK / "references.bib").count("\n@")
    for kind, key, fields in found:
        assert NEEDED[kind] <= fields.keys(), key
        assert re.fullmatch(r"[a-z]+\d{4}[a-z0-9]+", key), key
        assert fields["year"] == re.search(r"\d{4}", key)[0], key
        if "eprint" in fields:
            assert re.fullmatch(r"\d{4}\.\d{4,5}", fields["eprint"]), key
    years = [fields["year"] for _, _, fields in found]
    assert years == sorted(years)
    titles = [re.sub(r"\W", "", fields["title"]).lower() for _, _, fields in found]
    assert len(titles) == len(set(titles))


def test_everything_that_is_cited_is_a_source():
    keys = {key for _, key, _ in entries()}
    texts = [read(path) for path in [*PAGES, *(ROOT / "notebooks").glob("*.ipynb")]]
    cited = {
        key.strip()
        for text in texts
        for group in re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", text)
        for key in group.split(",")
    }
    assert cited - keys == set()


# ---- The extension


def test_repeated_ids_and_the_icon_script_are_taken_out_and_nothing_else():
    page = (
        '<head>\n  <script src="_static/scripts/fontawesome.js?digest=1"></script>\n<script src="a.js"></script></head>'
        '<section id="exercise-content">1</section><section id="solution-content">2</section>'
    )
    assert extension().tidy(page) == (
        '<head>\n<script src="a.js"></script></head><section>1</section><section>2</section>'
    )


def test_small_style_sheets_become_one_and_a_second_build_changes_nothing(tmp_path):
    styles = load("book/_ext/course_styles.py")
    (tmp_path / "_static").mkdir()
    for name in styles.JOINED:
        (tmp_path / "_static" / name).write_text(f"/* {name} */")
    (tmp_path / "a").mkdir()
    page = tmp_path / "a" / "b.html"
    links = "".join(f'<link rel="stylesheet" href="../_static/{name}?v=1" />\n' for name in ("x.css", *styles.JOINED))
    page.write_text(f'<head>{links}<script src="../_static/design-tabs.js?v=1"></script></head>')
    for _ in range(2):
        styles.join_styles(tmp_path)
        assert re.findall(r"_static/([\w.-]+)", page.read_text()) == ["x.css", "course.css"]
    assert (tmp_path / "_static" / "course.css").read_text().split() == " ".join(
        f"/* {name} */" for name in styles.JOINED
    ).split()


def test_the_first_style_sheet_asks_for_no_second_and_finds_its_pictures(tmp_path):
    styles, theme = load("book/_ext/course_styles.py"), tmp_path / "_static" / "styles" / "theme.css"
    theme.parent.mkdir(parents=True)
    (tmp_path / "_static" / "basic.css").write_text("a { background-image: url(file.png) }")
    theme.write_text('/* kept */\n@import "../basic.css";\n')
    for _ in range(2):
        styles.put_in_what_is_imported(tmp_path)
        assert theme.read_text() == "/* kept */\na { background-image: url(../file.png) }\n"


def test_no_script_holds_up_a_page_and_the_options_stand_in_it(tmp_path):
    styles, page = load("book/_ext/course_styles.py"), tmp_path / "a" / "b.html"
    page.parent.mkdir()
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static" / "documentation_options.js").write_text("const OPTIONS = {};\n")
    page.write_text(
        '<script src="../_static/documentation_options.js?v=1"></script><script src="../_static/doctools.js"></script>'
        '<script>OPTIONS.a = 1;</script><script defer="defer" src="c.js"></script>'
    )
    for _ in range(2):
        styles.let_scripts_wait(tmp_path)
        assert page.read_text() == (
            '<script>const OPTIONS = {};</script><script defer src="../_static/doctools.js"></script>'
            '<script>OPTIONS.a = 1;</script><script defer="defer" src="c.js"></script>'
        )


@pytest.mark.skipif(not PURGECSS.is_dir() or not shutil.which("node"), reason="PurgeCSS is not here: npm install")
def test_rules_that_no_page_needs_are_left_out(tmp_path):
    """What a reader would miss stays: licenses, states, what scripts put together, and icons that are used."""
    sheet = tmp_path / "_static" / "styles" / "theme.css"
    sheet.parent.mkdir(parents=True)
    (tmp_path / "page.html").write_text('<p class="yes fa-bars">')
    (tmp_path / "_static" / "own.mjs").write_text('box.classList.add("made"); box.dataset.state = "done"')
    kept = (
        "/*! license */p{c:d}.yes:not(.no) p{a:b}:focus-visible{a:b}.made{a:b}p[data-state=done],.bs-top .yes{a:b}"
        '@font-face{a:b}@keyframes k{from{a:b}to{c:d}}.fa-bars:before{content:"{"}'
    )
    sheet.write_text(
        kept.replace("p{c:d}", ".no{a:b}@media print{.no{a:b}}p,.no{c:d}").replace(
            ".fa-bars", ".fa-bars:before,.fa-navicon"
        )
        + '.fa-dog:before{content:"\\f6d3"}'
    )
    load("book/_ext/course_styles.py").drop_unused(ROOT, tmp_path)
    assert sheet.read_text() == kept


@pytest.mark.skipif(not PURGECSS.is_dir() or not shutil.which("node"), reason="PurgeCSS is not here: npm install")
def test_the_rules_of_figures_that_can_be_moved_stay(tmp_path):
    """No page has what these rules are for: the scripts of the figures make it."""
    source, static = ROOT / "book" / "_static", tmp_path / "_static"
    (tmp_path / "page.html").write_text('<html><article class="bd-article"><figure class="mha-live">')
    shutil.copytree(source / "live", static / "live")
    shutil.copy(source / "live.css", static)
    load("book/_ext/course_styles.py").drop_unused(ROOT, tmp_path)
    found, wanted = (re.findall(r"[^{}]+(?={)", (one / "live.css").read_text("utf8")) for one in (static, source))
    assert [rule.strip() for rule in found] == [rule.strip() for rule in wanted]


def test_only_the_characters_that_the_style_sheets_write_stay_in_the_fonts_of_icons():
    css = '.fa-bars:before{content:"\\f0c9"}.x{--icon:"\uf058"}.y{content:"\\f0c9a \\e9"}'
    assert load("book/_ext/course_icons.py").codes(css) == {0xF0C9, 0xF058}


def test_pictures_of_a_chapter_are_lazy_and_the_logo_is_not():
    page = '<img src="../_static/logo.svg"><img alt="a" src="../_images/a.png"><img loading="lazy" src="_images/b.png">'
    assert extension().tidy(page) == (
        '<img src="../_static/logo.svg"><img loading="lazy" alt="a" src="../_images/a.png">'
        '<img loading="lazy" src="_images/b.png">'
    )


def test_checks_and_drawing_are_folded_and_the_idea_is_shown():
    parts = load("book/_ext/course_quiet.py").parts
    assert parts("x = 1\nassert x == 1") == ("x = 1", "", "assert x == 1", 1)
    loop = "for n in (1, 2):\n    print(n)\n    assert n < 3\n"
    assert parts(loop) == ("for n in (1, 2):\n    print(n)", "", "assert n < 3", 1)
    assert parts("for n in a:\n    assert n\n    assert f(n)") == (
        "",
        "",
        "for n in a:\n    assert n\n    assert f(n)",
        2,
    )
    drawn = 'rows = dict(zip("ab", (x, y)))\nplot.lines(rows, "step", "loss")'
    assert parts(drawn + "\nassert x") == ("", drawn, "assert x", 1)
    assert parts("rows = train(x)\nplot.lines(rows)")[:2] == ("rows = train(x)", "plot.lines(rows)"), (
        "what trains is shown"
    )
    order = 'rows = {"a": one}\nfor k in two:\n    rows[k] = two[k]\nplot.lines(rows)'
    assert parts("two = train(x)\n" + order)[:2] == ("two = train(x)", order), "what only prepares is not"
    assert parts('a, b = zip(*x)\nplot.lines({"a": a})\nc = f(b)')[:2] == (
        "a, b = zip(*x)\nc = f(b)",
        'plot.lines({"a": a})',
    ), "what is needed elsewhere is shown"
    shows = "def show(a):\n    plot.lines(dict(a))"
    assert parts("x = f()\n\n\n" + shows)[:2] == ("x = f()", shows)
    inside = "def f(x):\n    assert x\n    return x"
    assert parts(inside) == (inside, "", "", 0)


def test_a_cell_that_only_prepares_the_next_drawing_is_folded_with_it():
    fold_ahead = load("book/_ext/course_quiet.py").fold_ahead
    boxes, arrows, drawn = 'boxes = {"x": (0, 1)}', 'arrows = [("x", "y")]', "Diagram(boxes, arrows)"
    shown = [one[:2] for one in fold_ahead([boxes, arrows, drawn], [True, True])]
    assert shown == [("", ""), ("", ""), ("", f"{boxes}\n\n{arrows}\n\n{drawn}")]
    kept = (boxes, "")
    assert fold_ahead([boxes, drawn], [False])[0][:2] == kept, "text stands between the two"
    assert fold_ahead([boxes, drawn, "len(boxes)"], [True, False])[0][:2] == kept, "a line further down needs it"
    assert fold_ahead([boxes, drawn, "boxes |= more"], [True, False])[0][:2] == kept, "a line further down adds to it"
    own = "def f():\n    boxes = 1\n    return boxes"
    assert fold_ahead([boxes, drawn, own], [True, False])[1][:2] == ("", f"{boxes}\n\n{drawn}"), (
        "a function's own variable is another one"
    )
    measured = fold_ahead(["size = f()\nassert size", 'boxes = {"x": size}', drawn], [True, True])
    assert measured[0][0] == "size = f()", "a folded line needs it"
    assert fold_ahead([boxes, drawn, "boxes = 1\nprint(boxes)"], [True, False])[0][:2] == ("", ""), "it is made anew"
    assert fold_ahead([boxes, drawn], [True], ["boxes = 1"])[0][:2] == kept, "a cell to try needs it"
    assert fold_ahead([boxes, "print(1)"], [True])[0][:2] == kept, "nothing is drawn"
    assert fold_ahead(["boxes = train()", drawn], [True])[0][0] == "boxes = train()", "what trains is shown"
    assert fold_ahead(["boxes = a @ b", drawn], [True])[0][0] == "boxes = a @ b", "what calculates is shown"


def test_what_only_checks_need_is_folded_with_them():
    fold_ahead = load("book/_ext/course_quiet.py").fold_ahead

    def shown(*cells, whole=()):
        return [(shown, folded) for shown, _, folded, _ in fold_ahead(cells, [False] * (len(cells) - 1), whole)]

    cell = "y = f(x)\nz = g(y)\nassert z"
    assert shown(cell) == [("", cell)]
    assert shown(cell, "print(y)")[0] == ("y = f(x)", "z = g(y)\nassert z"), "a line further down needs y"
    assert shown(cell, "def later():\n    return y")[0][0] == "y = f(x)", "a function further down needs y"
    assert shown(cell, "y += 1")[0][0] == shown(cell, "y = y + 1")[0][0] == "y = f(x)"
    assert shown(cell, "y = 1\nprint(y)")[0] == ("", cell), "further down it is made anew"
    assert shown(cell, "y = 1", "print(y)")[0] == ("", cell), "and needed from there"
    assert shown(cell, "plot.lines(dict(a=y))")[0][0] == "y = f(x)", "a drawing further down needs y"
    assert shown(cell, whole=["y + 1"])[0][0] == "y = f(x)", "a cell to try needs y"
    assert shown("y = f(x)\nprint(y)\nassert y")[0] == ("y = f(x)\nprint(y)", "assert y")
    assert shown("y = f(x)")[0][0] == "y = f(x)", "without a check nothing is folded"
    assert shown(cell, "for y in x:\n    print(y)")[0] == ("", cell), "a loop makes it anew"
    for changes in ("y.data = f(x)", "y[0] = f(x)", "f(y)", "for y in x:\n    f(y)"):
        assert shown(f"{changes}\nassert y")[0][0] == changes, "what changes something, or may show it, is seen"
    loop = "for a in x:\n    y = f(a)\n    assert y"
    assert shown(loop) == [("", loop)]
    assert shown("print(x)\n# none is left\nassert x") == [("print(x)", "# none is left\nassert x")]


def test_pages_with_cells_to_try_load_the_runner_and_others_do_not(tmp_path):
    course_book = extension()
    (tmp_path / "notebooks").mkdir()
    page = tmp_path / "notebooks" / "a.html"
    for body, runs, loaded in (
        ('<div class="cell tag_try-it docutils">', True, 1),
        ('<div class="cell tag_try-it docutils">', False, 0),
        ('<div class="cell docutils">try-it</div>', True, 0),
    ):
        page.write_text(f"<html><head></head><body>{body}</body></html>", encoding="utf-8")
        for _ in range(2):  # a second build leaves it as it is
            course_book.tidy_all(tmp_path, runs=runs)
        assert page.read_text("utf8").count('<script defer src="../_static/tryit.js"></script></head>') == loaded


@pytest.mark.parametrize(
    "address", ["", "https://github.com/a/b.git", "https://example.org/a/b", "http://github.com/a"]
)
def test_buttons_to_run_a_page_are_there_only_with_a_real_address(monkeypatch, address):
    monkeypatch.setenv("COURSE_REPOSITORY", address)
    config = SimpleNamespace(html_theme_options={"a": 1})
    if "b.git" in address:
        extension().offer_to_run(None, config)
        assert config.html_theme_options["repository_url"] == "https://github.com/a/b"
        assert config.html_theme_options["repository_branch"] == "readers", "Colab and Binder open plain notebooks"
        assert {"binderhub_url", "colab_url"} <= set(config.html_theme_options["launch_buttons"])
    elif address:
        with pytest.raises(ValueError, match=r"give https://github\.com/OWNER/NAME"):
            extension().offer_to_run(None, config)
    else:
        extension().offer_to_run(None, config)
        assert config.html_theme_options == {"a": 1}


@pytest.mark.parametrize("address", ["", "https://a.github.io/b/", "http://a.github.io/b", "https://a b"])
def test_a_preview_has_a_picture_only_where_the_address_is_known(monkeypatch, address):
    monkeypatch.setenv("COURSE_SITE", address)
    config, card = SimpleNamespace(), load("book/_ext/course_card.py")
    if address in ("", "https://a.github.io/b/"):
        card.offer_card(None, config)
        found = vars(config).get("ogp_site_url"), vars(config).get("ogp_image")
        assert found == ((address, address + "_static/card.png") if address else (None, None))
    else:
        with pytest.raises(ValueError, match="give https://HOST"):
            card.offer_card(None, config)


def test_the_picture_has_the_size_that_previews_ask_for(tmp_path):
    (tmp_path / "_static").mkdir()
    load("book/_ext/course_card.py").draw_card(tmp_path)
    picture = tmp_path / "_static" / "card.png"
    assert plt.imread(picture).shape[:2] == (630, 1200)
    assert picture.stat().st_size < 60_000


def test_the_map_lists_every_chapter_with_its_minutes_and_needs():
    *lines, last = extension().course_map(ROOT / "notebooks").splitlines()
    assert re.fullmatch(r"All chapters together: [\d,]+ minutes to read, and [\d,]+ minutes of exercises\.", last)
    parts = [line for line in lines if line.startswith("### ")]
    assert len(parts) == 8
    assert lines.index(parts[1]) - lines.index(parts[0]) == 4 + 3 + 1  # "One head" has three chapters
    table = [line for line in lines if re.match(r"\| \d", line)]
    assert len(table) == len(CHAPTERS)
    for line in table:
        one = r"\| \d\d \[.+\?\]\(\.\./notebooks/\S+\.ipynb\) \| \d+\xa0min \| \d+\xa0min \| .+[^.] ?\.? \|"
        assert re.fullmatch(one, line), line
        for link in re.findall(r"\]\(([^)]+)\)", line):
            assert (BOOK / link).is_file()


def test_a_page_gets_the_quiz_it_asks_for():
    source = ["before\n\n<!-- quiz start -->\n\nafter <!-- quiz -->"]
    extension().fill_in(SimpleNamespace(srcdir=ROOT), "book/map", source)
    assert source[0].startswith("before\n\n```{raw} html\n<div class=")
    assert source[0].endswith("```\n\nafter <!-- quiz -->")


@pytest.fixture
def app(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    builder = SimpleNamespace(format="html", get_target_uri=lambda name: f"{name}.html")
    config = SimpleNamespace(root_doc="book/intro", project="A & B", language="en")
    return SimpleNamespace(srcdir=tmp_path, outdir=out, builder=builder, config=config)


FORMULAS = r"""<head><script>window.MathJax = {"tex": {}}</script>
<script defer="defer" src="../_static/vendor/mathjax/startup.js"></script><script src="own.js"></script></head>
<span class="math notranslate nohighlight">\(a &lt; "b"\)</span>
<div class="math notranslate nohighlight" id="e">
<span class="eqno">(1)<a>#</a></span>\[\begin{aligned}
x \\[1ex] y\end{aligned}\]</div> <span class="math notranslate nohighlight">\(a &lt; "b"\)</span>"""


def test_without_npm_the_pages_draw_their_formulas_themselves_and_one_line_says_so(app, monkeypatch):
    course_book, said = extension(), []
    for part in (course_book.finish, course_book.draw_formulas, course_book.drop_unused):
        module = course_book if part is course_book.finish else sys.modules[part.__module__]
        monkeypatch.setattr(module, "logger", SimpleNamespace(info=said.append))
    (app.outdir / "page.html").write_text(FORMULAS)
    course_book.finish(app, None)
    course_book.lighten(app, None)
    assert len(said) == 3
    assert "npm install" in said[0]
    assert "pages show Python and do not run it" in said[1]
    assert "pages load all rules" in said[2]
    page = (app.outdir / "page.html").read_text()
    assert "mathjax/startup.js" in page
    assert r"\(a &lt;" in page


def test_each_formula_is_drawn_once_and_the_pages_need_no_script_for_it(app, monkeypatch):
    """The program that draws is another's; what it is asked, and where its answers go, is ours."""
    course_book, asked = extension(), []
    formulas = sys.modules[course_book.draw_formulas.__module__]

    def draw(command, *, input, **_):
        asked[:] = map(tuple, json.loads(input))
        styles = 'mjx-c::before { content: "{"; }'
        return SimpleNamespace(stdout=json.dumps({"html": [f"<mjx-c>{n}</mjx-c>" for n in range(2)], "styles": styles}))

    monkeypatch.setattr(formulas.subprocess, "run", draw)
    monkeypatch.setattr(formulas.shutil, "which", lambda _: "node")
    package = app.srcdir / "node_modules" / "mathjax"
    for name in ("LICENSE", "es5/node-main.js", f"es5/{formulas.FONTS}/b.woff"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(name)
    (app.outdir / "_static").mkdir()
    for name in ("one.html", "two.html"):
        (app.outdir / name).write_text(FORMULAS)
    for _ in range(2):  # a second build writes over the first
        course_book.finish(app, None)
    assert asked == [("\\begin{aligned}\nx \\\\[1ex] y\\end{aligned}", True), ('a < "b"', False)]
    page = (app.outdir / "one.html").read_text()
    assert page == (app.outdir / "two.html").read_text()
    assert re.findall(r"<script[^>]*>", page) == ['<script src="own.js">']
    shown = BeautifulSoup(page, "html.parser").select(".math")
    assert [(place["data-tex"], place.select_one("mjx-c").text) for place in shown] == [
        (tex, str(asked.index((tex, place.name == "div")))) for tex, place in zip(
            ['a < "b"', asked[0][0], 'a < "b"'], shown, strict=True
        )
    ]  # fmt: skip
    assert shown[1].select_one(".eqno").text == "(1)#"
    copied = app.outdir / "_static" / "vendor" / "mathjax"
    assert {path.name for path in copied.iterdir()} == {"b.woff", "LICENSE"}
    assert 'content: "{"' in (app.outdir / "_static" / "course.css").read_text()


def test_installed_micropython_is_copied_into_the_book(app):
    course_book = extension()
    package = app.srcdir / "node_modules" / "@micropython" / "micropython-webassembly-pyscript"
    package.mkdir(parents=True)
    for name in ("micropython.mjs", "micropython.wasm", "README.md", "package.json"):
        (package / name).write_text(name)
    (app.srcdir / "mha").mkdir()
    (app.srcdir / "mha" / "reference.py").write_text("import math")
    course_book.finish(app, None)
    copied = app.outdir / "_static" / "vendor" / "micropython"
    assert (copied / "reference.py").read_text() == "import math"
    assert "MIT" in (copied / "LICENSE").read_text()


def test_the_script_of_the_theme_lets_the_reader_in_between(app):
    course_book, script = extension(), app.outdir / "_static" / "scripts" / "pydata-sphinx-theme.js"
    script.parent.mkdir(parents=True)
    script.write_text(f"before.forEach({course_book.AT_ONCE}),after")
    for _ in range(2):  # a second build finds the changed one
        course_book.finish(app, None)
    assert script.read_text() == f"before.forEach({course_book.ONE_BY_ONE}),after"


def test_the_first_page_leads_on_and_a_failed_build_is_left_alone(app):
    course_book = extension()
    course_book.finish(app, RuntimeError())
    assert not (app.outdir / "index.html").exists()
    course_book.finish(app, None)
    page = (app.outdir / "index.html").read_text(encoding="utf-8")
    assert 'content="0; url=book/intro.html"' in page
    assert "<title>A &amp; B</title>" in page
    assert '<html lang="en">' in page


def test_a_page_without_a_text_of_its_own_is_described(app):
    for doctree, expected in ((None, '<meta name="description" content="Search – A &amp; B" />'), (object(), None)):
        context = {"title": "Search"}
        extension().describe_page(app, "search", "search.html", context, doctree)
        assert context.get("metatags") == expected


def test_no_folder_of_other_programs_is_searched_for_pages():
    assert {".*", "node_modules"} <= set(CONFIG["exclude_patterns"])


def test_every_name_that_readers_search_for_stands_on_the_page_that_explains_it():
    row = r"^\| ([^|]+) \| ([^|]+) \| [^|]+ \| [^|]+ \| \[[^]]*\]\(\.\./notebooks/([^)]+)\) \|$"
    rows = re.findall(row, read(BOOK / "names.md"), re.MULTILINE)
    assert len(rows) >= 40
    for here, in_papers, page in rows:
        cells = json.loads((ROOT / "notebooks" / page).read_text("utf8"))["cells"]
        told = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown").lower()
        names = f"{here}, {in_papers}".lower().split(", ")
        assert any(name in " ".join(told.split()) for name in names), f"{names} are not on {page}"


@pytest.mark.slow
def test_every_name_said_to_be_in_transformers_is_in_its_code():
    column = re.findall(r"^\| [^|]+ \| [^|]+ \| ([^|]+) \|", read(BOOK / "names.md"), re.MULTILINE)
    told = set(re.findall(r"`([^`]+)`", " ".join(column)))
    files = Path(importlib.util.find_spec("transformers").origin).parent.rglob("*.py")
    there = {name for file in files for name in re.findall(r"\w+", file.read_text("utf8"))}
    assert len(told) > 40
    assert told - there == set()


def test_the_code_of_the_page_for_newcomers_from_other_libraries_runs(capsys):
    code = re.findall(r"^```python\n(.*?)^```", read(BOOK / "coming_from.md"), re.MULTILINE | re.DOTALL)
    assert len(code) > 8
    names = {}
    for block in code:
        exec(block, names)
    said = capsys.readouterr().out
    assert "NaN with weights: True  without: False" in said
    assert re.search(r"exchanged: \d{2,3}% off", said)


def test_the_solution_of_the_last_page_passes_its_check_and_a_wrong_layer_does_not(capsys):
    page = read(BOOK / "from_memory.md").split("(interview)=")[0]
    stub, check, solution = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert sum(bool(line.strip()) for line in solution.splitlines()) == 15
    names = {"torch": torch, "nn": nn}
    exec(solution, names)
    exec(check, names)
    assert "You have written multi-head attention" in capsys.readouterr().out
    for right, wrong, said in (
        ("q.shape[-1] ** 0.5", "x.shape[-1] ** 0.5", "no mask: other numbers"),
        ("masked_fill(~mask", "masked_fill(mask", "causal: other numbers"),
        (".softmax(-1)", ".softmax(-2)", "no mask: other numbers"),
    ):
        assert right in solution
        exec(solution.replace(right, wrong), names)
        with pytest.raises(AssertionError, match=said):
            exec(check, names)
    exec(stub, names)
    with pytest.raises(RuntimeError, match="Unexpected key"):
        exec(check, names)
