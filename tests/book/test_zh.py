"""The page in Chinese: every notebook is on it, its numbers are those of the chapters, its terms those of the lists."""

import json
import re
from functools import cache
from pathlib import Path

import pytest
import torch
import yaml
from chapters import CHAPTERS, NOTEBOOKS, ROOMS, family, topic
from mdit_py_plugins.anchors.index import slugify

BOOK = Path(__file__).resolve().parents[2] / "book"
PAGE = (BOOK / "zh.md").read_text(encoding="utf-8")
TERMS = yaml.safe_load((BOOK / "terms.yml").read_text(encoding="utf-8"))
LINK = re.compile(r"\]\(([^)#]*)(?:#([^)]*))?\)")
HAN = "[\u4e00-\u9fff]"
WORDS = ("zero one two three four five six seven eight nine ten eleven twelve " + "thirteen " * 3 + "sixteen").split()


def sections():
    """The text under each heading of the third level: chapters by their number, questions by their words."""
    parts = re.split(r"^#{2,3} (.*)\n", PAGE, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def of_chapter(path):
    (found,) = (text for heading, text in sections().items() if heading.startswith(f"{path.stem[:2]} "))
    return found


def told(path):
    """The paragraphs about a chapter, without its terms and side rooms."""
    return "\n".join(re.findall(r"^\*\*(?:实验|小结)\*\*：.*", of_chapter(path), re.MULTILINE))


@cache
def source(path):
    """All that a page or a notebook shows: text, code and printed lines."""
    if path.suffix != ".ipynb":
        return path.read_text(encoding="utf-8")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    printed = ["".join(out.get("text", "")) for cell in cells for out in cell.get("outputs", ())]
    return "\n".join(["".join(cell["source"]) for cell in cells] + printed)


def numbers(text):
    """The numbers of a text, those in words too; `4,096` is `4096`, and `1.000` is `1`."""
    text = re.sub(r"(?<=\d)(?:,|\{,\}|\\ )(?=\d{3})", "", LINK.sub("]", text))
    named = {float(n) for n, word in enumerate(WORDS) if re.search(rf"\b{word}\b", text, re.IGNORECASE)}
    return named | {float(one) for one in re.findall(r"\d+(?:\.\d+)?(?:e-?\d+)?", text)}


def unknown(text, *paths):
    """The numbers of a text that none of the notebooks has."""
    return numbers(text) - {n for path in paths for n in numbers(source(path))}


@cache
def places(path):
    """The addresses inside a page: its headings, as MyST writes them, and its labels."""
    text = source(path)
    slugs = {slugify(one.replace("`", "")) for one in re.findall(r"^#+ (.+)$", text, re.M)}
    return slugs | set(re.findall(r"^\(([\w-]+)\)=$", text, re.M))


def test_every_chapter_has_its_place_and_its_english_title():
    numbered = [heading for heading in sections() if re.match(r"\d\d ", heading)]
    assert [heading[:2] for heading in numbered] == [path.stem[:2] for path in CHAPTERS]
    assert all(heading.endswith("？") for heading in numbered), "a question"
    for path in CHAPTERS:
        assert f"](../notebooks/{path.name})\n" in of_chapter(path)
        assert 2 <= len(re.findall("[。？]", told(path).split("**小结**：")[1])) <= 4


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.name[:2])
def test_every_side_room_has_a_line_under_its_chapter(path):
    lines = re.findall(r"^- \[(\w+)\]\(\.\./notebooks/(\w+)\.ipynb\) .*[。？]$", of_chapter(path), re.MULTILINE)
    assert lines == [(room.stem.partition("_")[0], room.stem) for room in ROOMS if room.stem[:2] == path.stem[:2]]


def test_every_link_leads_to_a_page_and_to_a_place_on_it():
    links = LINK.findall(PAGE)
    assert len(links) > len(CHAPTERS) + len(ROOMS) + 40
    for name, place in links:
        path = (BOOK / name).resolve() if name else BOOK / "questions.md"  # a label of the book
        assert path.is_file(), name
        assert not place or place in places(path), f"{path.name}#{place}"


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.name[:2])
def test_the_numbers_of_a_chapter_are_those_it_shows(path):
    assert unknown(told(path), path) == set()


@pytest.mark.parametrize("room", ROOMS, ids=lambda path: path.stem.partition("_")[0])
def test_the_numbers_of_a_side_room_are_those_it_shows(room):
    (line,) = re.findall(rf"^- \[\w+\]\([^)]*{room.stem}\.ipynb\)(.*)$", PAGE, re.MULTILINE)
    assert unknown(line, room) == set()


def questions():
    """The short answers: question and text."""
    asked = PAGE.split("\n## 常见问题\n")[1].split("\n## ")[0]
    parts = re.split(r"^### (.*)\n", asked, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize(("question", "answer"), questions(), ids=[f"{n}" for n, _ in enumerate(questions(), 1)])
def test_an_answer_is_short_and_has_a_place_that_shows_its_numbers(question, answer):
    assert question.endswith("？")
    text, shown = answer.split("\n详见：")
    assert len(re.findall(HAN, text)) <= 200
    linked = [BOOK / name if name else BOOK / "questions.md" for name, _ in LINK.findall(shown)]
    assert linked
    assert unknown(text, *linked) == set()


def test_the_code_on_the_scale_shows_what_the_formula_says(capsys):
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(0)
    exec(code, {})
    raw, scaled = map(float, re.findall(r"tensor\((.*?)\)", capsys.readouterr().out))
    assert raw == pytest.approx(64, rel=0.1)
    assert scaled == pytest.approx(1, rel=0.1)


def test_fifteen_of_the_questions_are_answered_from_the_page_of_questions():
    labels = [place for name, place in LINK.findall(PAGE) if not name]
    assert len(labels) == len(set(labels)) >= 15


def test_a_number_of_no_chapter_is_found():
    assert unknown("只有 0.123 奈特，4096 个", CHAPTERS[0]) == {0.123}
    assert numbers("1{,}048 和 4,096，$2d$，6e-05，1.000") == {1048, 4096, 2, 6e-05, 1}
    assert numbers("eight heads, ten times") == {8, 10}


def shown(english, chinese):
    """A term as the page shows it: 中文（English）, or the English name alone, if Chinese texts use it."""
    return english if chinese in (None, english) else f"{chinese}（{english}）"


@cache
def notation():
    """The terms of the page of notation: English, and the Chinese ones, the most common first."""
    table = (BOOK / "notation.md").read_text(encoding="utf-8").split("## 中文 terms\n")[1]
    return {row[0]: row[1].split("，") for row in re.findall(r"^\| (.+?) \| (.+?) \|", table, re.MULTILINE)}


def in_the_margin(path):
    """The terms beside the text of a chapter, as pairs of English and Chinese."""
    (margin,) = re.findall(r":::\{margin\} 中文\n(.+?)\n:::", source(path), re.DOTALL)
    for line in margin.replace("\\\n", "\n").splitlines():
        (english,) = [one for one, zh in notation().items() if line in {f"{one} {z}" for z in (*zh, "，".join(zh))}]
        names, chinese = re.sub(r" \(.*?\)", "", english).split(", "), notation()[english]
        yield from zip(names, chinese, strict=True) if len(names) == len(chinese) else [(names[-1], chinese[0])]


def terms_of(path):
    """The terms of a chapter and its side rooms: those in the margin, then those of the list, each once."""
    topics = {topic(one) for one in family(topic(path))}
    own = [entry for entry in TERMS if entry["where"] in topics]
    listed = [(entry["term"].removesuffix(" of a word"), entry.get("zh")) for entry in own]
    found = {}
    for english, chinese in [*in_the_margin(path), *listed]:
        found.setdefault(chinese or english, shown(english, chinese))
    return "、".join(found.values())


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.name[:2])
def test_the_terms_of_a_chapter_are_those_of_the_lists(path):
    assert re.findall(r"^\*\*术语\*\*：(.*)。$", of_chapter(path), re.MULTILINE) == [terms_of(path)]


def test_both_lists_of_terms_say_the_same_in_chinese():
    translated = {entry["term"]: entry["zh"] for entry in TERMS if "zh" in entry}
    both = [(translated[term], known) for term, known in notation().items() if term in translated]
    assert len(both) >= 40
    assert [(zh, known) for zh, known in both if zh not in known] == []


def test_chinese_is_set_as_chinese_is_set():
    """A space between Chinese and Latin letters, full-width signs after Chinese, one line for a paragraph."""
    text = re.sub(r"```.*?```", "", LINK.sub("]", PAGE), flags=re.DOTALL)
    assert re.findall(rf"{HAN}[A-Za-z0-9$`]|[A-Za-z0-9$`%]{HAN}", text) == []
    assert re.findall(rf"{HAN}[,.;:!?()]|{HAN} {HAN}|[，。；：？] ", text) == []
    assert re.findall(rf"(?:{HAN}|[，。；：、？）])\n(?:{HAN}|\*)", text) == [], "a line break is a space on the page"
    assert re.findall(r"[０-９Ａ-Ｚａ-ｚ]", PAGE) == []


def test_the_page_says_its_language_and_is_linked_from_the_front_doors():
    assert PAGE.startswith("{.language-zh-Hans}\n# "), "docutils makes it the attribute lang"
    assert "](zh.md)" in (BOOK / "intro.md").read_text(encoding="utf-8")
    assert "](book/zh.md)" in (BOOK.parent / "README.md").read_text(encoding="utf-8")


def test_the_notebooks_are_all_there():
    assert {path.name for path in NOTEBOOKS.glob("*.ipynb")} == {path.name for path in (*CHAPTERS, *ROOMS)}
