"""Measure the built book: weight and requests of every page, and how soon Python runs in one.

    python tools/measure_book.py [--build] [--lighthouse] [--all]        (make book first)

Pages are served compressed from this machine to a cold browser. Weight is what goes over the wire. `--build` times a
clean build, one after a change of one chapter, and one after no change. `--lighthouse` asks Lighthouse about four
pages; it needs Node and fetches it from npm. What not everybody can use is looked for by the tests, on every page.
"""

import argparse
import contextlib
import functools
import gzip
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "_build" / "html"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
TEXT = {".html", ".css", ".js", ".mjs", ".svg", ".json", ".py", ".wasm"}
MOST_KILOBYTES = 300
MOST_REQUESTS = 30
MOST_SECONDS = {"clean": 45, "one chapter changed": 8, "nothing changed": 8}
CHAPTER = "notebooks/03_masking"  # long, with cells that run in the page
FIRST_RESULT = 1.0  # s after the click
CLICKS = 5
JUDGED = (
    "book/intro.html",
    "notebooks/02_why_scale.html",
    "notebooks/10_reading_heads.html",
    "notebooks/12_counting_cost.html",
)  # fmt: skip; the cover, Python in the page, a head view, sliders
MARKS = (98, 100, 100, 100)
VISITS = 5  # of each judged page: one visit says little about a time
CATEGORIES = ("performance", "accessibility", "best-practices", "seo")


class Compressed(http.server.SimpleHTTPRequestHandler):
    """Serve text compressed, as every real server does."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = Path(self.translate_path(self.path))
        path = path / "index.html" if path.is_dir() else path
        if not path.is_file():
            return self.send_error(404)
        data = path.read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(str(path)))
        if path.suffix in TEXT:
            data = gzip.compress(data, 6)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        return self.wfile.write(data)

    def log_message(self, *args):
        pass


def chromium():
    """The browser, or nothing."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


@contextlib.contextmanager
def browse():
    """A browser, closed at the end."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def weigh(browser, address, page):
    """Load one page in a cold browser: its kilobytes and its requests."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    tab, sizes = context.new_page(), []
    tab.on("response", lambda answer: sizes.append(int(answer.headers.get("content-length", 0))))
    tab.goto(f"{address}/{page}", wait_until="networkidle")
    context.close()
    return sum(sizes) / 1000, len(sizes)


def measure(address):
    """Print weight and requests of every page; say whether all limits hold."""
    pages = sorted(path.relative_to(SITE).as_posix() for path in SITE.glob("*/*.html") if path.parent.name[0] != "_")
    good = True
    with browse() as browser:
        for page in pages:
            weight, requests = weigh(browser, address, page)
            held = weight <= MOST_KILOBYTES and requests <= MOST_REQUESTS
            good &= held
            print(
                f"{page:42} {weight:5.0f} KB of {MOST_KILOBYTES}, {requests:2} requests {'' if held else '  TOO MUCH'}"
            )
    return good


def run_python(address):
    """Print how long a reader waits for the first output after asking to run a cell, each time in a cold browser."""
    waits = []
    with browse() as browser:
        for _ in range(CLICKS):
            tab = browser.new_page()
            tab.goto(f"{address}/{CHAPTER}.html", wait_until="networkidle")
            tab.locator("details.tryit summary").click()
            button = tab.get_by_role("button", name="Run")
            button.scroll_into_view_if_needed()
            begin = time.perf_counter()
            button.click()
            tab.wait_for_selector("pre.tryit-output[data-state=done]", timeout=30_000)
            waits.append(time.perf_counter() - begin)
            tab.close()
    held = median(waits) <= FIRST_RESULT
    found = f"{median(waits):.2f} s of {FIRST_RESULT:.2f} ({min(waits):.2f} to {max(waits):.2f})"
    print(f"Python in the page, first result: {found}{'' if held else '  TOO SLOW'}", flush=True)
    return held


def judge(address):
    """Print the four marks of Lighthouse for four pages, on a desktop: the median of five visits.

    Performance is a time; its worst and its best visit are printed too.
    """
    good = True
    for page in JUDGED:
        visits = [marks_of(f"{address}/{page}") for _ in range(VISITS)]
        found = {name: round(median(visit[name] for visit in visits)) for name in CATEGORIES}
        good &= all(found[name] >= least for name, least in zip(CATEGORIES, MARKS, strict=True))
        times = sorted(round(visit["performance"]) for visit in visits)
        marks = ", ".join(f"{name} {mark}" for name, mark in found.items())
        print(f"{page:42} {marks} (performance from {times[0]} to {times[-1]})", flush=True)
    return good


def marks_of(address):
    """The marks of one visit."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = ["npx", "--yes", "lighthouse@12.8.2", address, "--quiet", "--preset=desktop"]
        command += ["--output=json", f"--output-path={report}", "--chrome-flags=--headless=new --no-sandbox"]
        environment = os.environ | {"CHROME_PATH": chromium(), "PUPPETEER_SKIP_DOWNLOAD": "1"}
        subprocess.run(command, env=environment, check=True, timeout=300)
        marks = json.loads(report.read_text(encoding="utf-8"))["categories"]
    return {name: 100 * marks[name]["score"] for name in CATEGORIES}


def build():
    """Print how long a build takes: of all, after a change of one chapter, and after no change. In seconds."""
    program = Path(sys.executable).with_name("jupyter-book")
    command = [program, "build", ".", "--toc", "book/_toc.yml", "-W", "-n", "--keep-going"]
    for folder in (SITE, ROOT / "_build" / ".doctrees"):
        shutil.rmtree(folder, ignore_errors=True)
    good = True
    for name, limit in MOST_SECONDS.items():
        if name == "one chapter changed":
            os.utime(ROOT / f"{CHAPTER}.ipynb")  # its time is all that a build looks at
        begin = time.perf_counter()
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        seconds = time.perf_counter() - begin
        good &= seconds <= limit
        print(f"build, {name}: {seconds:.1f} s of {limit}{'' if seconds <= limit else '  TOO SLOW'}", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description="Measure the built book.")
    parser.add_argument("--build", action="store_true", help="time three builds first")
    parser.add_argument("--lighthouse", action="store_true", help="ask Lighthouse about four pages")
    parser.add_argument("--all", action="store_true", help="all of these")
    options = parser.parse_args()
    if chromium() is None or not (SITE / "index.html").is_file():
        print("This needs the built book (make book) and Chromium.")
        return 1
    good = build() if options.build or options.all else True
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Compressed, directory=SITE))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    good &= measure(address)
    good &= run_python(address)
    if options.lighthouse or options.all:
        good &= judge(address)
    server.shutdown()
    server.server_close()
    print("All limits hold." if good else "Some limits do not hold.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
