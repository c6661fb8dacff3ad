"""Draw the picture of the README, light and dark: the head view of chapter 10, as the notebook stores it.

python tools/make_picture.py [folder]        (needs Chromium; without a folder: book/_static)
"""

import io
import json
import os
import re
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "notebooks" / "10_reading_heads.ipynb"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
THEMES = {"light": ("#ffffff", "#1f2328"), "dark": ("#0d1117", "#e6edf3")}
LAYER, HEAD, WORD, ROWS, WIDTH = 1, 2, 17, 19, 600  # the second `area`, and so many of the words
PAGE = """<!DOCTYPE html><html lang="en" data-theme="%s"><meta charset="utf-8"><style>
body { margin: 0; padding: 12px; width: 576px; background: %s; color: %s; color-scheme: %s; }
.mha-hv { max-width: none !important; }
</style>%s"""
SENTENCE = re.compile(r"“area” gives “\(” (0\.9\d|1\.00)")  # an induction head: what followed the first `area`


def stored_view():
    """The view in the notebook, as HTML."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    found = ["".join(o.get("data", {}).get("text/html", "")) for cell in cells for o in cell.get("outputs", [])]
    (view,) = (text for text in found if 'class="mha-hv"' in text)
    return view


def draw(browser, theme):
    """Choose the head and the word, and photograph the buttons and the first rows."""
    ground, ink = THEMES[theme]
    tab = browser.new_page(viewport={"width": WIDTH, "height": 1400}, device_scale_factor=2)
    tab.set_content(PAGE % (theme, ground, ink, theme, stored_view()))
    tab.get_by_label(f"layer {LAYER}, head {HEAD}", exact=True).click()
    words = tab.get_by_role("group", name="The token that looks").get_by_role("button")
    words.nth(WORD).click()
    if not SENTENCE.search(tab.locator(".mha-hv").inner_text()):
        raise RuntimeError("the head that the README tells of looks elsewhere now: choose another head or word")
    tab.get_by_text("Point at a token").evaluate("hint => { hint.hidden = true; document.activeElement.blur(); }")
    tab.mouse.move(0, 0)
    last = words.nth(ROWS - 1).bounding_box()
    height = last["y"] + last["height"] + 2
    picture = Image.open(io.BytesIO(tab.screenshot(clip={"x": 0, "y": 0, "width": WIDTH, "height": height})))
    tab.close()
    return picture.convert("RGB").quantize(200, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)


def main(arguments):
    folder = Path(arguments[0]) if arguments else ROOT / "book" / "_static"
    chromium = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if chromium is None:
        print("The picture is drawn by Chromium (Debian: sudo apt install chromium).")
        return 1
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for theme in THEMES:
            path = folder / f"heads-{theme}.png"
            draw(browser, theme).save(path, optimize=True)
            print(f"{path.name}: {path.stat().st_size / 1000:.0f} KB")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
