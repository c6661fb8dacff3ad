"""What teachers and sharers get: counted plans, problem sets, slides, cards; the workflow that publishes them."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import pytest
import yaml
from bs4 import BeautifulSoup
from programs import load

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))


# ---- plans and problem sets


def plan(text):
    return load("book/_ext/course_plan.py").plan(text, ROOT)


def test_the_plan_counts_every_chapter_once_and_all_minutes():
    table = plan("before <!-- course-plan --> after")
    assert re.findall(r"/(\w+\.ipynb)", table) == [path.name for path in CHAPTERS]
    everything = load("book/_ext/course_book.py").course_map(ROOT / "notebooks")
    total = re.search(r"together: ([\d,]+) minutes to read, and ([\d,]+) minutes", everything)
    found = re.findall(r"\| (\d+)\xa0min \| (\d+)\xa0min \|", table)
    assert [sum(map(int, column)) for column in zip(*found, strict=True)] == [
        int(n.replace(",", "")) for n in total.groups()
    ]


def test_every_exercise_of_a_chapter_is_in_a_problem_set():
    table = plan("<!-- problem-sets -->")
    labels = [label for path in CHAPTERS for label in re.findall(r":label: (ex-[\w-]+)", path.read_text("utf8"))]
    assert sorted(re.findall(r"<(ex-[\w-]+)>", table)) == sorted(labels)
    assert len(labels) > 60


@pytest.mark.parametrize("site", ["", "https://a.github.io/b/"])
def test_downloads_are_offered_where_the_workflow_puts_them(monkeypatch, site):
    monkeypatch.setenv("COURSE_SITE", site)
    found = re.findall(r"\((\S+)\)", plan("<!-- downloads -->"))
    assert found == [f"{site}multi-head-attention.{kind}" for kind in ("pdf", "zip") if site]
    workflow = (ROOT / ".github" / "workflows" / "course.yml").read_text(encoding="utf-8")
    job = yaml.safe_load(workflow)["jobs"]["book"]["steps"]
    (step,) = [step for step in job if "make pdf zip" in step.get("run", "")]
    assert re.search(r"mv _build/multi-head-attention.pdf _build/multi-head-attention.zip _build/html/", step["run"])
    assert "COURSE_SITE" in step["env"]


# ---- slides

PAGE = """<html lang="en"><head><script src="theme.js"></script></head>
<body><nav>elsewhere</nav><article><section id="a"><h1>A question?<a class="headerlink">#</a></h1><p>Why.</p>
<div class="cell"><div class="cell_input">import mha</div></div>
<section id="b"><h2>The picture</h2><p>Look.</p>
<div class="cell"><div class="cell_input">one</div></div>
<div class="cell"><div class="cell_input">two</div><div class="cell_output">2</div></div>
<div class="cell"><div class="cell_input">three</div></div>
<p>And now.</p><section id="c"><h3>Deeper</h3><p>Down.</p></section></section>
<section id="exercises"><h2>Exercises</h2><div class="exercise admonition">First.</div>
<details class="sd-dropdown">a hint</details>
<div class="cell"><div class="cell_input">stub</div></div><div class="solution admonition">secret</div>
<div class="exercise admonition">Second.</div></section>
<section id="quiz"><h2>Quiz</h2></section></section></article></body></html>"""


def test_a_slide_is_a_text_and_the_cell_that_it_leads_to():
    deck = BeautifulSoup(load("tools/make_slides.py").deck(PAGE), "html.parser")
    slides = [" ".join(slide.stripped_strings) for slide in deck.select(".slide")]
    assert slides == [
        "A question? Why.", "The picture Look. one two 2", "three", "And now.", "Deeper Down.",
        "Exercises First. stub", "Second.",
    ]  # fmt: skip
    (both,) = [slide for slide in deck.select(".slide.both") if "Look." in slide.text]
    assert [part["class"] for part in both.find_all("div", recursive=False)] == [["told"], ["shown"]]
    assert "theme.js" not in str(deck)


# ---- cards


def test_a_chapter_has_a_card_with_its_question_and_its_figure(tmp_path, monkeypatch):
    card, drawn = load("book/_ext/course_card.py"), []
    monkeypatch.setattr(plt.Axes, "text", lambda self, x, y=None, s="", **look: drawn.append(s or y))
    (tmp_path / "_static").mkdir()
    app = SimpleNamespace(config=SimpleNamespace(ogp_image=""), srcdir=ROOT, outdir=tmp_path)
    card.draw_chapters(app, None)
    assert not list((tmp_path / "_static").iterdir()), "no address, no cards"
    card.draw_chapter(tmp_path, CHAPTERS[0])
    assert [text.replace("\n", " ") for text in drawn] == [
        "Multi-head attention · chapter 01",
        card.question(CHAPTERS[0]),
    ]
    picture = tmp_path / "_static" / "card-01.png"
    pixels = plt.imread(picture)
    assert pixels.shape[:2] == (630, 1200)
    assert len({tuple(row) for row in pixels[60:570:3, 700:1150:3, :3].reshape(-1, 3).round(1).tolist()}) > 10, (
        "a figure"
    )


def test_every_chapter_has_a_figure_for_its_card():
    card = load("book/_ext/course_card.py")
    for path in CHAPTERS:
        assert card.first_figure(path).read(4) == b"\x89PNG", path.name


def test_the_page_of_a_chapter_names_its_own_card_and_other_pages_do_not():
    card, address = load("book/_ext/course_card.py"), "https://a.github.io/b/_static/card"
    app = SimpleNamespace(config=SimpleNamespace(ogp_image=f"{address}.png"), srcdir=ROOT)
    title = json.loads(CHAPTERS[3].read_text("utf8"))["cells"][0]["source"][0].strip("# \n")
    for name, expected in ((f"notebooks/{CHAPTERS[3].stem}", f"{address}-04.png"), ("book/intro", None)):
        context = {"meta": None}
        card.choose_card(app, name, "page.html", context, None)
        assert (context["meta"] or {}).get("og:image") == expected
        assert expected is None or title in context["meta"]["og:image:alt"]
    app.config.ogp_image = None
    context = {"meta": None}
    card.choose_card(app, f"notebooks/{CHAPTERS[3].stem}", "page.html", context, None)
    assert context == {"meta": None}
