"""Make slides of chapters from their built pages: text and the cell below it, one after the other, full screen.

    python tools/make_slides.py [notebook ...]        (make book first; without names: every chapter)

A slide is what leads to a cell, and the cell. Hints, solutions, the quiz and the sources stay with the page. The slides
lie beside the page, _build/html/notebooks/NN_topic.slides.html, and use its styles, figures and formulas: no network,
and a browser is enough. → and ← turn them over; printed in landscape format they are one to a sheet.
"""

import sys
from pathlib import Path

from bs4 import BeautifulSoup
from chapters import CHAPTERS

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "_build" / "html"
DROPPED = (
    "div.solution, details.sd-dropdown, section#quiz, section#sources, .headerlink, details.tryit, aside.margin, "
    "button.copybtn"
)
STYLE = """<style>
html { font-size: clamp(14px, 1.25vw, 26px); scroll-padding: 0 !important; scroll-snap-type: y proximity; }
body { counter-reset: slide; overflow: visible; padding: 0; }
.slide { align-content: center; box-sizing: border-box; content-visibility: visible; counter-increment: slide;
  display: grid; gap: 0 3vw; min-height: 100vh; padding: 4vh 5vw; position: relative; scroll-margin: 0 !important;
  scroll-snap-align: start; }
.slide::after { bottom: 2vh; content: counter(slide); opacity: 0.7; position: absolute; right: 2vw; }
.slide :is(h1, h2, h3) { margin-top: 0 !important; }
.slide > div { min-width: 0; }
.slide .told { font-size: 1.15em; max-width: 52em; }
.slide img, .slide figure svg { max-height: 60vh; }
@media (min-width: 900px) {
  .slide.both { grid-template-columns: 2fr 3fr; }
  .slide.both > .told { align-self: start; position: sticky; top: 4vh; } /* in sight beside a long cell */
}
@media print { @page { size: A4 landscape; margin: 8mm; } .slide { break-after: page; min-height: 0; } }
</style>"""
TURN = """<script>
addEventListener("keydown", e => {
  const way = {ArrowRight: 1, PageDown: 1, ArrowLeft: -1, PageUp: -1}[e.key];
  if (!way || e.target.closest("input, textarea, .mha-hv, .mha-frames")) return;
  e.preventDefault();
  const all = [...document.querySelectorAll(".slide")];
  const at = all.findLastIndex(s => s.getBoundingClientRect().top < innerHeight / 3);
  all[Math.max(0, Math.min(all.length - 1, at + way))].scrollIntoView();
});
</script>"""


def is_cell(block):
    return "cell" in block.get("class", [])


def shows(block):
    """Whether a block is a cell with something to see below its code."""
    return is_cell(block) and block.select_one(".cell_output") is not None


def slides(section):
    """The blocks of one section in groups: text and the cells below it; a cell that shows something ends a group."""
    groups, last = [[]], None
    for block in section.find_all(recursive=False):
        if block.name == "section":
            groups += [*slides(block), []]
            last = None
            continue
        ends = last is not None and (shows(last) or (is_cell(last) and not is_cell(block)))
        if ends or (starts(block) and groups[-1] and groups[-1][-1].name != "h2"):
            groups.append([])
        groups[-1].append(block)
        last = block
    return [group for group in groups if group]


def starts(block):
    """Whether a block begins a slide of its own: an exercise."""
    return "exercise" in block.get("class", [])


def slide(group):
    """One slide: what is told on the left, what is shown on the right."""
    told, shown = ("".join(str(b) for b in group if is_cell(b) == cells) for cells in (False, True))
    parts = [f'<div class="{name}">{part}</div>' for name, part in (("told", told), ("shown", shown)) if part]
    return f'<section class="slide{" both" if len(parts) == 2 else ""}">{"".join(parts)}</section>'


def deck(page):
    """The built page of a chapter, as a page of slides."""
    soup = BeautifulSoup(page, "html.parser")
    for part in [*soup.select(DROPPED), *soup.select("link[rel=preload]")]:
        part.decompose()
    for script in soup.select("script"):
        if not script.find_parent("article"):
            script.decompose()
    chapter = soup.select_one("article > section")
    for cell in chapter.find_all("div", class_="cell", recursive=False):
        cell.decompose()  # what is imported
    for code in chapter.select("pre"):
        code["tabindex"] = "0"  # on a phone it scrolls, with keys too
    out = [slide(group) for group in slides(chapter)]
    soup.head.append(BeautifulSoup(STYLE + TURN, "html.parser"))
    soup.html["data-theme"] = soup.html["data-mode"] = "light"  # a beamer loves paper
    soup.body.clear()
    soup.body.append(BeautifulSoup(f"<main>{''.join(out)}</main>", "html.parser"))
    return str(soup)


def main(named):
    wanted = {Path(name).stem for name in named} or {path.stem for path in CHAPTERS}
    for name in sorted(wanted):
        page = SITE / "notebooks" / f"{name}.html"
        if not page.is_file():
            print(f"There is no built page of {name}: make book, and a name such as notebooks/01_why_attention.ipynb")
            return 1
        target = page.with_suffix(".slides.html")
        target.write_text(deck(page.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
        print(target.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
