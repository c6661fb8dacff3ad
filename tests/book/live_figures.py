"""What tests of figures that can be moved share: a page that holds nothing but one figure, and what it computes."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STATIC = ROOT / "book" / "_static"
sys.path.append(str(ROOT / "book" / "_ext"))
import course_live  # noqa: E402

BOOK = """<style>
:root { background: #fff; color: #222832; --book-quiet: #55606a; --book-line: #dfe3e6; --pst-color-surface: #f3f4f5; }
html[data-theme=dark] { background: #14181e; color: #ced6dd; --book-quiet: #a4aeb7; --book-line: #3a4045;
  --pst-color-surface: #29313d; }
</style><script>
const theme = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
document.documentElement.dataset.theme = theme;
</script>"""  # what the book's theme adds
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}


def body(name, folder):
    """A page with one figure, and its scripts and colors in it."""
    course_live.write_presets(folder)
    scripts = [
        STATIC / "live" / "core.js",
        folder / "_static" / "live" / "presets.js",
        STATIC / "live" / f"{name}.js",
    ]
    style = (STATIC / "live.css").read_text("utf8")
    figure = f'<figure class="mha-live" data-live="{name}"><p class="still">Nothing moves here.</p></figure>'
    read = "".join(f"<script>{path.read_text('utf8')}</script>" for path in scripts)
    return f"{BOOK}<style>{style}</style>{read}<main><h1>A figure</h1>{figure}</main>"


def computed(tab, name, **settings):
    """What the script finds for settings, the others as at the start."""
    return tab.evaluate(
        "([name, s]) => { const f = mhaLive.figures[name]; return f.compute({...f.start, ...s}); }", [name, settings]
    )


def settings(tab):
    """The settings of the figure in the page."""
    return tab.evaluate("document.querySelector('.mha-live').mha.settings")


def said(tab):
    """What the figure tells in words."""
    return tab.inner_text(".mha-live .said")
