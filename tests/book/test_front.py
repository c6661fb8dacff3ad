"""The front door: what a stranger reads and runs first, and the package on its own."""

import importlib
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from PIL import Image
from programs import load

import mha
import mha.interop

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
WITHOUT = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"babel", "sklearn", "scipy", "transformers", "IPython", "pandas"}:
            raise ImportError(f"{name} is not among the core dependencies")
sys.meta_path.insert(0, Refuse())
"""


def run(program, folder):
    found = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, cwd=folder)
    assert found.returncode == 0, found.stderr[-2000:]
    return found.stdout


# ---- the quick start


def quick_start():
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    return code


def test_the_quick_start_runs_with_the_core_alone_and_does_what_it_says(tmp_path):
    program = WITHOUT + quick_start() + "print(len(small.take_heads([0]).W_q.weight), seen.weights.shape, y.shape)"
    assert run(program, tmp_path) == "16 torch.Size([1, 4, 4, 4]) torch.Size([1, 4, 64])\n"


def test_the_quick_start_has_six_steps():
    lines = [line for line in quick_start().splitlines() if line and not line.startswith("import")]
    assert len(lines) == 6
    assert "HeadView" in lines[-1], "a notebook shows the value of its last line"


def test_what_only_chapters_need_is_asked_for_by_name(tmp_path):
    call = "from mha.data import dates; from datetime import date; dates.write(date(2026, 1, 2), 'full')"
    program = f"{WITHOUT}\ntry:\n    {call}\nexcept ImportError as error:\n    print(error)"
    assert re.search(r"extra '?course.*pip install babel\n$", run(program, tmp_path))


def test_every_number_of_the_first_screen_holds():
    wrong = int(re.search(r"(\d+) wrong answers", (ROOT / "book/checkers.md").read_text("utf8"))[1])
    bugs = int(re.search(r"Here are (\d+) bugs", (ROOT / "book/bug_museum.md").read_text("utf8"))[1])
    chapters = len(list((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")))
    said = [
        re.search(rf"{words}", README)
        for words in (r"more than (\d+) of", r"More than (\d+) public", r"in (\d+) short")
    ]
    assert wrong > int(said[0][1]) > wrong - 100
    assert bugs > int(said[1][1]) > bugs - 10
    assert chapters == int(said[2][1])


def test_every_chapter_has_its_row():
    for path in (ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"):
        title = "".join(json.loads(path.read_text("utf8"))["cells"][0]["source"]).splitlines()[0].removeprefix("# ")
        named, asked = title.replace("$", "").rsplit(": ", 1)
        row = f"[{path.stem[:2]}](notebooks/{path.name}) | {named} | {asked[0].upper()}{asked[1:]} |"
        assert row in README, row


# ---- the package on its own


def test_every_part_and_every_file_of_the_package_has_its_place_on_the_pages():
    pages = {page.stem: page.read_text(encoding="utf-8") for page in (ROOT / "book").glob("package*.md")}
    told = set(re.findall(r"^\.\. automodule:: (\S+)$", "\n".join(pages.values()), re.MULTILINE))
    parts = {one.name for one in pkgutil.iter_modules(mha.__path__, "mha.")} - {"mha.course", "mha.checks"}
    listed = {
        part for part in parts if getattr(importlib.import_module(part), "__all__", None) or part == "mha.reference"
    }
    files = {
        file.name
        for part in parts - listed
        for file in pkgutil.iter_modules(importlib.import_module(part).__path__, f"{part}.")
    }
    assert told == {"mha"} | parts | files
    for part in parts:
        assert f"]({part.replace('mha.', 'package_')}.md)" in pages["package"], part


def test_every_extra_is_told():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[project.optional-dependencies]")[2]
    extras = re.findall(r"^(\w+) = \[", project.partition("\n[")[0], re.MULTILINE)
    told = re.findall(r"^\| `(\w+)` \|", (ROOT / "book" / "set_up.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(extras) == sorted(told)


# ---- its picture


def test_the_picture_is_there_for_light_and_dark_pages_and_is_small():
    named = re.findall(r'(?:srcset|src)="([^"]+)"', README)
    assert [Path(name).name for name in named] == ["heads-dark.png", "heads-light.png"]
    means = []
    for name in named:
        assert (ROOT / name).stat().st_size < 60_000
        with Image.open(ROOT / name) as picture:
            means.append(picture.convert("L").resize((1, 1)).getpixel((0, 0)))
    assert means[0] < 60 < 200 < means[1]
    assert re.search(r'<img [^>]*alt="[^"]{40,}"', README)


@pytest.mark.slow
def test_the_tool_draws_the_head_that_the_text_tells_of(browser):
    tool = load("tools/make_picture.py")
    for theme in tool.THEMES:
        found = tool.draw(browser, theme)
        with Image.open(ROOT / "book" / "_static" / f"heads-{theme}.png") as stored:
            assert found.width == stored.width
            assert abs(found.height - stored.height) < 80, "python tools/make_picture.py"


# ---- who may cite it


def test_the_citation_is_of_this_version():
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors", "version", "license"} <= set(found)
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{found["version"]}"' in project
    assert f'__version__ = "{found["version"]}"' in (ROOT / "mha" / "__init__.py").read_text(encoding="utf-8")
    assert sorted(found["license"]) == sorted(re.search(r'^license = "(.*)"', project, re.MULTILINE)[1].split(" AND "))
    assert found["title"] in README
