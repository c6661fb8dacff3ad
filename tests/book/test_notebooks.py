"""What the numbers do not show: every notebook was run, is clean, accessible, complete, and in the book."""

import ast
import base64
import io
import itertools
import json
import re
import statistics
import tokenize
from functools import cache
from pathlib import Path

import chapters
import nbformat
import pytest
from chapters import CHAPTERS, ROOMS, chapter_of, contents
from programs import load

reading_time = load("tools/reading_time.py")
runner = load("tools/run_notebooks.py")

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = [*CHAPTERS, *ROOMS]
SECTIONS = [
    "The picture", "The formula", "The idea in a few lines", "The same from `mha`",
    "What it costs", "Exercises", "Quiz", "Summary", "Sources",
]  # fmt: skip
LAST = ["Exercises", "Quiz", "Summary", "Sources"]
NETWORK = {"ftplib", "http", "httpx", "huggingface_hub", "requests", "socket", "torchvision", "urllib"}
FORBIDDEN = {  # names, wherever they are used
    "filterwarnings": "a warning must be repaired, not hidden",
    "simplefilter": "a warning must be repaired, not hidden",
    "from_pretrained": "no network",
    "load_dataset": "no network",
    "load_state_dict_from_url": "no network",
    "get_ipython": "no magics",
}
BRITISH = re.compile(
    r"\b(?:behaviour|colour|favour|neighbour|honour)\w*"
    r"|\b(?:normal|general|special|initial|parametr|parameter|optim|real|recogn|organ|summar|emphas|vector|minim|maxim"
    r"|regular|serial|visual|token|factor|memor|quant|orthogonal|util|categor|standard|random)is(?:e|es|ed|ing|ation)\b"
    r"|\b(?:analyse[sd]?|centre[sd]?|modell(?:ed|ing)|labell(?:ed|ing)|grey|learnt)\b",
    re.IGNORECASE,
)

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
every_chapter = pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
every_room = pytest.mark.parametrize("path", ROOMS, ids=lambda path: path.stem)


@cache
def read(path):
    return nbformat.read(path, as_version=4)


def cells(path, kind=None):
    return [cell for cell in read(path).cells if kind in (None, cell.cell_type)]


def code(path):
    return [cell for cell in cells(path, "code") if cell.source.strip()]


def text(path):
    return "\n\n".join(cell.source for cell in cells(path, "markdown"))


def prose(path):
    """The text without code and formulas."""
    return re.sub(r"`[^`]*`|\$[^$]*\$", "", re.sub(r"```.*?```", "", text(path), flags=re.DOTALL))


def tags(cell):
    return cell.metadata.get("tags", [])


def topic(path):
    """How labels name the chapter: its file without the number."""
    return chapters.topic(path).replace("_", "-")


def headings(path):
    return re.findall(r"^## (.+?)\s*$", text(path), re.MULTILINE)


def solutions(path):
    """The code cells between the marks of a solution."""
    inside, found = False, []
    for cell in cells(path):
        if cell.cell_type == "markdown":
            inside = "{solution-start}" in cell.source or (inside and "{solution-end}" not in cell.source)
        elif inside:
            found.append(cell)
    return found


def lines(cell):
    return sum(bool(line.strip()) for line in cell.source.splitlines())


def pictures(path):
    return [cell for cell in code(path) if any("image/png" in output.get("data", {}) for output in cell.outputs)]


def first_line(cell):
    return cell.source.strip().splitlines()[0]


# ---- It was run, and what it printed is stored


@every_notebook
def test_every_cell_ran_in_order(path):
    counts = [cell.execution_count for cell in code(path)]
    assert counts == list(range(1, len(counts) + 1)), "make notebooks"
    assert counts, "a chapter without code"


@every_notebook
def test_every_picture_is_stored_with_the_numbers_that_were_drawn(path):
    for cell in code(path):
        for output in cell.outputs:
            if "image/png" in output.get("data", {}) and "nbval-ignore-output" not in tags(cell):
                assert "drawn" in output.metadata, f"make notebooks: {first_line(cell)}"


@every_notebook
def test_no_errors_and_no_warnings_are_stored(path):
    for cell in code(path):
        kinds = {output.get("name", output.output_type) for output in cell.outputs}
        assert "stderr" not in kinds, first_line(cell)
        assert "error" not in kinds or "raises-exception" in tags(cell), first_line(cell)


@every_notebook
def test_no_times_of_the_run_are_stored(path):
    assert [first_line(cell) for cell in cells(path, "code") if "execution" in cell.metadata] == []


@every_notebook
def test_nothing_is_skipped_and_little_is_left_uncompared(path):
    uncompared = 0
    for position, cell in enumerate(code(path)):
        marks = " ".join(tags(cell)) + " ".join(re.findall(r"#\s*(?:NB|PY)\w+", cell.source)).lower().replace("_", "-")
        assert "nbval-skip" not in marks, first_line(cell)
        assert "nbval-check-output" not in marks, "every output is checked"
        if "nbval-ignore-output" in marks:
            uncompared += 1
            assert re.search(r"\bms\b|seconds|\btimes\b", cell.source), f"only times may differ: {first_line(cell)}"
            following = code(path)[position + 1 : position + 2]
            assert "assert " in "".join(c.source for c in following), f"no assert follows: {first_line(cell)}"
    assert uncompared <= 3


@every_notebook
def test_a_cell_that_needs_a_package_says_so(path):
    """Where the package is missing, only these cells are skipped, so no later cell may use what they name."""
    extra = (ROOT / "pyproject.toml").read_text("utf8").split("\nkernels = ")[1].split("\n")[0]
    named = set()
    for cell in cells(path):
        needs, tree = cell.metadata.get("needs", []), ast.parse(cell.source if cell.cell_type == "code" else "")
        assert all(f'"{name}>' in extra for name in needs), f"not of the extra `kernels`: {needs}"
        assert not needs or cell.cell_type == "code"
        nodes = list(ast.walk(tree))
        used = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        if needs:
            named |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
            named |= {one.name for node in nodes if isinstance(node, ast.ImportFrom) for one in node.names}
        else:
            assert not any("triton" in ast.unparse(n) for n in nodes if isinstance(n, (ast.Import, ast.ImportFrom)))
            made = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
            made |= {node.arg for node in nodes if isinstance(node, ast.arg)}
            named -= made
            assert used & named == set(), f"skipped cells make {used & named}: {first_line(cell)}"


@every_notebook
def test_the_outputs_are_small(path):
    """Counted as the reader's browser loads them: pictures as bytes, everything else as text."""
    outputs = [{**output, "metadata": {}} for cell in code(path) for output in cell.outputs]
    pngs = [output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})]
    size = sum(len(base64.b64decode(png)) for png in pngs)
    size += len(json.dumps(outputs, ensure_ascii=False).encode()) - sum(map(len, pngs))
    assert size <= 250_000, f"{size / 1000:.0f} KB"


@every_notebook
def test_the_drawn_numbers_are_not_many(path):
    """They are no part of the page, only of the notebook."""
    drawn = [output.get("metadata", {}).get("drawn") for cell in code(path) for output in cell.outputs]
    assert len(json.dumps(drawn)) <= 200_000


@every_notebook
def test_no_output_names_a_memory_address_or_a_folder(path):
    shown = json.dumps([[{**o, "data": {**o.get("data", {}), "image/png": ""}} for o in c.outputs] for c in code(path)])
    assert re.findall(r"0x[0-9a-f]{6,}|/home/\w+|/Users/\w+|site-packages", shown) == []


# ---- The code is for readers


@every_notebook
def test_code_cells_are_short(path):
    solved = [cell.id for cell in solutions(path)]
    _imports, *told = code(path)
    for cell in told:
        limit = 15 if cell.id in solved else 12
        assert lines(cell) <= limit, f"{lines(cell)} lines, at most {limit}: {first_line(cell)}"
    assert statistics.median(map(lines, code(path))) <= 6


@every_notebook
def test_code_is_plain_python(path):
    for cell in code(path):
        try:
            tree = ast.parse(cell.source)
        except SyntaxError as error:
            pytest.fail(f"no magics, only Python: {error.text or first_line(cell)}")
        for node in ast.walk(tree):
            modules = []
            if isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
                assert all(alias.name != "*" for alias in node.names), f"star import: {ast.unparse(node)}"
            elif isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            assert not {module.split(".")[0] for module in modules} & NETWORK, f"no network: {ast.unparse(node)}"
            name = getattr(node, "attr", getattr(node, "id", ""))
            assert name not in FORBIDDEN, f"{name}: {FORBIDDEN.get(name)}"
            assert ast.unparse(node) != "sys.path" if isinstance(node, ast.Attribute) else True, "sys.path"


@every_notebook
def test_no_line_ends_with_a_semicolon(path):
    """It would hide an output from the reader, and nbval compares it all the same."""
    for cell in code(path):
        tokens = [t for t in tokenize.generate_tokens(io.StringIO(cell.source).readline) if t.type != tokenize.COMMENT]
        for token, after in itertools.pairwise(tokens):
            ends = after.type in (tokenize.NEWLINE, tokenize.NL, tokenize.ENDMARKER)
            assert not (token.string == ";" and ends), token.line


# ---- Everybody can read it


@every_notebook
def test_every_picture_has_an_alternative_text_and_a_caption(path):
    for cell in pictures(path):
        render = cell.metadata.get("mystnb", {})
        alt, figure = render.get("image", {}).get("alt", ""), render.get("figure", {})
        assert len(alt) >= 40, f"an alt text says what the picture shows: {first_line(cell)}"
        assert len(figure.get("caption", "")) >= 20, f"a caption: {first_line(cell)}"
        assert re.fullmatch(rf"fig-{topic(path)}-[a-z0-9-]+", figure.get("name", "")), f"a name: {first_line(cell)}"
    names = [cell.metadata.mystnb.figure.name for cell in pictures(path)]
    assert len(names) == len(set(names))


def numbers(shown):
    """Every number in what a figure keeps: in rows of numbers, in labels, in the call that drew it."""
    if isinstance(shown, dict):
        return numbers([*shown, *shown.values()])
    if isinstance(shown, list):
        return set().union(*map(numbers, shown))
    found = re.findall(r"[-−]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?", str(shown))
    return {abs(float(one.replace("−", "-").replace(",", ""))) for one in found}


def told_but_not_drawn(told, drawn):
    """The numbers of a text that none of the drawn ones rounds to, as they are or in percent.

    Small counts are left out, and what is said of a number by more than, about, up to.
    """
    for found in re.finditer(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?!\w)", told):
        word, said = found[0].rstrip(","), told[: found.start()]
        number, half = float(word.replace(",", "")), 0.51 * 10 ** -len(word.partition(".")[2])
        small = number <= 12 and "." not in word
        is_drawn = any(abs(times * one - number) <= half for one in drawn for times in (1, 100))
        if not (small or is_drawn or re.search(rf"\b(?:{BOUND})\W*\Z", said)):
            yield f"{said[-40:]}{word}"


BOUND = "than|above|below|under|over|up to|at least|at most|about|near|nearly|almost|close to|around"


@every_notebook
def test_the_numbers_told_of_a_figure_are_those_that_it_draws(path):
    """Numbers of the notebook's own code count too: they are the settings of what is drawn."""
    settings = numbers([cell.source for cell in code(path)])
    for cell in pictures(path):
        drawn = [output.metadata.get("drawn") for output in cell.outputs if "drawn" in output.get("metadata", {})]
        about = cell.metadata.mystnb
        for told in (about.image.alt, about.figure.caption) if drawn else ():
            assert list(told_but_not_drawn(told, numbers(drawn) | settings)) == [], (
                f"what is drawn says something else: {told}"
            )


@pytest.mark.parametrize(
    ("told", "wrong"),
    [
        ("69 percent", 1),
        ("70 percent, and 0.70", 0),
        ("about 69 percent", 0),
        ("from 0.11 to 1,024", 1),
        ("8 heads", 0),
    ],
)
def test_a_number_that_is_not_drawn_is_found(told, wrong):
    assert len(list(told_but_not_drawn(told, numbers({"y": "0.7045 1024"})))) == wrong


@every_notebook
def test_the_spelling_is_american(path):
    assert BRITISH.findall(prose(path)) == []


# ---- It is a chapter


@every_notebook
def test_nothing_waits_to_be_filled_in(path):
    assert re.findall(r"<<\w+>>|\b[A-Z]{3,}-[A-Z]{4,}\b|\b(?:TODO|TBD|FIXME|XXX|SEEDTEXT)\b", text(path)) == []


@every_notebook
def test_no_formula_begins_with_a_bracket_that_is_taken_for_an_option(path):
    r"""After \begin{aligned} and \\ a [ begins an option; what stands in it is not drawn. Write {[a, b]}."""
    begin = r"\\begin\{(?:aligned|gathered|split|array|cases|[bpv]?matrix)\}\s*\["
    assert re.findall(rf"{begin}[^\]]*|\\\\\s*\[(?!-?[\d.]+(?:ex|em|pt)\])[^\]]*", text(path)) == []


@every_notebook
def test_it_is_in_the_book(path):
    assert f"notebooks/{path.stem}" in [file for _, file in contents()]
    assert re.fullmatch(r"\d\d[b-z]?_[a-z0-9_]+", path.stem)


@every_chapter
def test_it_begins_with_a_question_the_minutes_and_what_you_need(path):
    first = cells(path)[0].source
    assert first.startswith("# ")
    assert re.fullmatch(r"# [^:]+: .+\?", first.splitlines()[0]), (
        "the title: the topic, and the question that is answered"
    )
    assert f"\n{reading_time.stated(path)} · You need: " in first, "python tools/reading_time.py --write"
    assert len(re.findall(r"^- ", first, re.MULTILINE)) >= 3, "After this chapter you can …: three points"


def test_the_main_path_is_no_longer_than_a_reader_can_walk():
    """All chapters but those on attention in current LLMs; each of those is held by its own limit."""
    counted = [path for path in CHAPTERS if path.stem[:2] not in ("15", "16", "17", "18")]
    assert sum(reading_time.measure(path)["words"] for path in counted) <= 52_000


@every_chapter
def test_a_chapter_is_one_sitting(path):
    """What is true and does not fit goes to a side room."""
    found, (to_read, exercises) = reading_time.measure(path), reading_time.minutes(path)
    assert found["words"] <= 3000
    assert found["cells"] <= 50
    assert round(to_read, 1) <= 50
    assert exercises <= 35


@every_room
def test_a_side_room_says_whose_it_is_how_long_it_takes_and_has_its_own_sources(path):
    first, door = cells(path)[0].source, chapter_of(path)
    assert first.startswith("# ")
    assert f"\n{reading_time.stated(path)} · A side room of [chapter {door.stem[:2]}]({door.name})" in first
    assert f"]({path.name})" in text(door), "a sentence of the chapter leads to it, where the reader would ask"
    assert "Quiz" not in headings(path)
    assert "Sources" not in headings(path) or headings(path)[-1] == "Sources"


@every_chapter
def test_it_has_all_sections(path):
    found = headings(path)
    assert [section for section in SECTIONS if section not in found] == []
    assert any(heading.startswith("Experiment") for heading in found)
    assert any(heading.startswith("A bug from the wild: ") for heading in found), "its heading names the bug"
    assert found[-4:] == LAST
    assert len(found) == len(set(found))


@every_chapter
def test_the_summary_has_four_to_seven_points(path):
    summary = text(path).split("## Summary")[1].split("## Sources")[0]
    assert 4 <= len(re.findall(r"^- ", summary, re.MULTILINE)) <= 7


@every_chapter
def test_the_sources_are_cited(path):
    assert re.search(r"\{cite\}`", text(path).split("## Sources")[1])


@every_chapter
def test_a_bug_from_the_wild_names_its_thread(path):
    bug = text(path).split("## A bug from the wild")[1].split("\n## ")[0]
    assert re.search(r"[\w.-]+/[\w.-]+#\d+", bug)


@every_notebook
def test_every_exercise_has_hints_a_stub_a_checker_and_a_checked_solution(path):
    labels = re.findall(r":::\{exercise\}[^\n]*\n:label: (\S+)", text(path))
    assert len(labels) >= (3 if path in CHAPTERS else 0)
    for label in labels:
        assert re.fullmatch(rf"ex-{topic(path)}-[a-z0-9-]+", label)
        kind, stub, solution = None, [], []
        hints = ""
        for cell in cells(path):
            if cell.cell_type == "markdown":
                if f":label: {label}\n" in cell.source:
                    kind, hints = "stub", cell.source.split(f":label: {label}\n")[1]
                elif f"{{solution-start}} {label}\n" in cell.source:
                    kind = "solution"
                elif "{solution-end}" in cell.source:
                    kind = None
            elif kind:
                (stub if kind == "stub" else solution).append(cell)
        assert re.search(r"\*\*\d+ minutes · (?:easy|medium|harder)\.\*\*", hints), f"{label}: minutes and level"
        assert len(re.findall(r":::\{dropdown\} Hint \d", hints)) >= 2, f"{label}: two hints"
        assert "Not solved yet." in printed(stub), f"{label}: the untouched stub is checked"
        assert "✓" in printed(solution), f"{label}: the solution is checked"
        assert "✗" not in printed(solution)


@every_notebook
def test_solutions_are_folded_and_nothing_else_is(path):
    """In JupyterLab a solution is a closed bar, its output too, until the reader opens it."""
    folded = [cell.id for cell in cells(path, "code") if "jupyter" in cell.metadata]
    assert folded == [cell.id for cell in runner.solutions(read(path))]
    for cell in cells(path, "code"):
        assert cell.metadata.get("jupyter", runner.FOLDED) == {"source_hidden": True, "outputs_hidden": True}


def printed(some):
    return "".join(output.get("text", "") for cell in some for output in cell.outputs)


@every_notebook
def test_labels_carry_the_number_of_the_chapter(path):
    labels = re.findall(r"^:label: (\S+)", text(path), re.MULTILINE)
    assert [label for label in labels if not re.match(rf"(?:ex|eq)-{topic(path)}-", label)] == []


@every_notebook
def test_a_claim_is_decided_in_one_place(path):
    others = "\n".join(text(other) for other in NOTEBOOKS if other != path)
    here = re.findall(r"^\((claim-\d+)\)=$", text(path), re.MULTILINE)
    assert len(here) == len(set(here))
    assert [label for label in here if f"({label})=" in others] == []
