"""Print the built book into one PDF: cover, contents with page numbers, all pages, and at the end the
solutions of exercises and quizzes.

    python tools/make_pdf.py [page ...]        (make book first; without names: the whole book)

Chromium prints each page; pypdf joins them and writes the bookmarks. The result is _build/multi-head-attention.pdf.
"""

import functools
import html
import http.server
import io
import os
import shutil
import sys
import threading
from pathlib import Path
from typing import NamedTuple

from chapters import contents
from playwright.sync_api import sync_playwright
from pypdf import PdfReader, PdfWriter

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "_build" / "html"
TARGET = ROOT / "_build" / "multi-head-attention.pdf"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
TITLE = "Multi-head attention, tested"

STYLE = """
@page { size: A4; margin: 18mm 16mm 20mm; @bottom-center { content: counter(page); font: 9pt sans-serif; } }
html { counter-reset: page %d; font-size: 13px; }
.bd-header, .bd-header-article, .bd-sidebar, .bd-sidebar-primary, .bd-sidebar-secondary, .prev-next-footer, .bd-footer,
.bd-footer-content, footer, .headerlink, .copybtn, .toggle-button, details.tryit, dialog, #jb-print-docs-body {
  display: none !important;
}
.bd-article h1 { display: block !important; text-align: left; }
.bd-main .bd-content .bd-article-container, .bd-article p, .bd-article li { max-width: none !important; }
.bd-article { padding: 0 !important; }
pre { white-space: pre-wrap !important; }
figure, table, .exercise, .mha-quiz section { break-inside: avoid; }
"""
FRONT = """<meta charset="utf-8"><style>
@page { size: A4; margin: 22mm; }
body { font-family: sans-serif; }
.cover { display: grid; height: 240mm; place-content: center; text-align: center; }
.cover svg { margin: auto; width: 60mm; }
ol { list-style: none; padding: 0; }
li { display: flex; gap: 8mm; justify-content: space-between; margin: 1.2mm 0; }
h2 { break-before: page; }
</style>
<div class="cover">%s<h1>%s</h1><p>A course in which every claim is executed</p></div>
<h2>Contents</h2><ol>%s</ol>"""
WITHOUT_SOLUTIONS = "() => document.querySelectorAll('div.solution').forEach(part => part.remove())"
ONLY_SOLUTIONS = """() => {
  const parts = [...document.querySelectorAll('div.solution, .mha-quiz')];
  document.querySelectorAll('.mha-quiz details').forEach(part => { part.open = true; });
  const article = document.querySelector('article');
  const heading = document.createElement('h1');
  heading.textContent = 'Solutions: ' + article.querySelector('h1').textContent.replace('#', '').trim();
  article.replaceChildren(heading, ...parts);
  return parts.length;
}"""
OPEN = """() => {
  document.querySelectorAll('main details:not(.mha-quiz details)').forEach(part => { part.open = true; });
  document.querySelectorAll('.toggle-hidden').forEach(part => part.classList.remove('toggle-hidden'));
  document.querySelectorAll('img').forEach(image => { image.loading = 'eager'; });
}"""


class Printed(NamedTuple):
    """One part of the book: its title in the contents, and its pages."""

    title: str
    pages: bytes

    def length(self):
        return len(PdfReader(io.BytesIO(self.pages)).pages)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


def order():
    """What is printed, in its order: all pages but the description of every name in the package."""
    return [(part, file) for part, file in contents() if not file.startswith("book/package_")]


def print_page(tab, address, start, change):
    """Print one built page with its numbers from `start` on; `change` is a script that runs before."""
    tab.goto(address, wait_until="load")
    kept = tab.evaluate(change)
    tab.evaluate(OPEN)
    tab.add_style_tag(content=STYLE % (start - 1))
    title = tab.locator("article h1").first.text_content().replace("#", "").strip()
    return Printed(title, tab.pdf(prefer_css_page_size=True)), kept


def front(tab, parts, first):
    """The cover and the contents; the contents know on which page each part begins."""
    lines, page = [], first
    for part in parts:
        lines.append(f"<li><span>{html.escape(part.title)}</span><b>{page}</b></li>")
        page += part.length()
    logo = (ROOT / "book" / "_static" / "logo.svg").read_text(encoding="utf-8")
    tab.set_content(FRONT % (logo, html.escape(TITLE), "".join(lines)))
    return Printed("Contents", tab.pdf(prefer_css_page_size=True))


def main(chosen):
    chromium = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if chromium is None or not (SITE / "index.html").is_file():
        print(
            "make pdf needs the built book (make book) and Chromium (Debian: sudo apt install chromium fonts-noto-cjk)."
        )
        return 1
    files = [file for _, file in order() if not chosen or file in chosen]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        tab, parts, page = browser.new_page(), [], 1
        for change in (WITHOUT_SOLUTIONS, ONLY_SOLUTIONS):
            for file in files if change is WITHOUT_SOLUTIONS else [f for f in files if f.startswith("notebooks/")]:
                printed, kept = print_page(tab, f"http://127.0.0.1:{server.server_port}/{file}.html", page, change)
                if kept != 0:
                    parts.append(printed)
                    page += printed.length()
                    print(f"{file}: {printed.length()} pages", flush=True)
        whole = [front(tab, parts, 1), *parts]
        browser.close()
    server.shutdown()
    server.server_close()
    write(whole)
    print(f"{TARGET.relative_to(ROOT)}: {sum(part.length() for part in whole)} pages")
    return 0


def write(parts):
    """Join the parts, with a bookmark for each."""
    writer = PdfWriter()
    for part in parts:
        begin = len(writer.pages)
        writer.append(io.BytesIO(part.pages), import_outline=False)
        writer.add_outline_item(title=part.title, page_number=begin)
    writer.add_metadata({"/Title": TITLE})
    with TARGET.open("wb") as file:
        writer.write(file)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
