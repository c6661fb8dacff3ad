"""The built pages as files: complete, linked, described, and independent of other hosts."""

import ast
import json
import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from bs4 import BeautifulSoup
from chapters import contents
from programs import load

ROOT = Path(__file__).resolve().parents[3]
SITE = ROOT / "_build" / "html"
PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html") if "_static" not in path.parts)
LOADING = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "embed": "src",
}
LOADING_LINKS = {"stylesheet", "icon", "shortcut", "preload", "modulepreload", "preconnect", "manifest"}
IN_CSS = re.compile(r"@import\s+(?:url\()?[\"']?([^\"')]+)|url\([\"']?([^\"')]+)")

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("site")]
every_page = pytest.mark.parametrize("page", PAGES)


@cache
def soup(page):
    return BeautifulSoup((SITE / page).read_text(encoding="utf-8"), "html.parser")


@cache
def anchors(page):
    names = {tag["id"] for tag in soup(page).find_all(id=True)}
    return names | {tag["name"] for tag in soup(page).find_all("a", attrs={"name": True})}


def loads(page):
    """All addresses that a browser fetches for this page by itself."""
    for tag, attribute in LOADING.items():
        yield from (found[attribute] for found in soup(page).find_all(tag, attrs={attribute: True}))
    for link in soup(page).find_all("link", href=True):
        if LOADING_LINKS & set(link.get("rel", [])):
            yield link["href"]


def outside(address):
    return urlsplit(address).scheme in ("http", "https") or address.startswith("//")


def missing(page, address):
    """Whether a local address leads to a file, and to a place in it, that is not there."""
    parts = urlsplit(urljoin(f"/{page}", address))
    target = unquote(parts.path).lstrip("/")
    if not (SITE / target).is_file():
        return True
    fragment = unquote(parts.fragment)
    return bool(fragment) and target.endswith(".html") and fragment not in anchors(target)


def test_every_page_of_the_book_is_built():
    assert {f"{file}.html" for _, file in contents()} <= set(PAGES)
    built = [page for page in PAGES if page.startswith("notebooks/")]
    assert len(built) == len(list((ROOT / "notebooks").glob("*.ipynb")))


def test_the_search_knows_every_page_and_every_place_in_it():
    usual = load("book/_ext/course_search.py").usual
    lines = (SITE / "sentences.js").read_text(encoding="utf-8").partition("pages: [")[2].splitlines()
    index = {name: places for name, _, *places in (json.loads(line[:-1]) for line in lines if line.startswith("["))}
    assert set(index) == {page.removesuffix(".html") for page in PAGES if page.startswith(("book/", "notebooks/"))}
    for name, places in index.items():
        assert places, name
        assert {anchor or usual(heading) for anchor, heading, *_ in places} <= anchors(f"{name}.html")
        assert all(place[1] for place in places), name
        told = " ".join(place[2] for place in places)
        assert not re.search(r"(?<!C:)\\[a-z]+|<br", told), "a formula or a tag is no sentence"


@pytest.mark.parametrize("page", [page for page in PAGES if page != "index.html"])
def test_no_page_loads_the_index_before_somebody_searches(page):
    assert not [address for address in loads(page) if "sentences.js" in address]
    assert [address for address in loads(page) if "_static/search.js" in address]


@every_page
def test_no_page_loads_the_index_of_sphinx(page):
    assert not [address for address in loads(page) if "searchindex" in address or "searchtools" in address]


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("notebooks/")])
def test_chapters_and_side_rooms_have_the_number_of_their_file_everywhere(page):
    number = page.removeprefix("notebooks/").partition("_")[0]
    numbers = [tag.text.strip() for tag in soup(page).find("main").select(":is(h1, h2, h3) .section-number")]
    assert numbers == [f"{number}."], "only the title has a number"
    shown = " ".join(tag.text for tag in soup(page).find("main").select(".caption-number, .exercise .admonition-title"))
    assert set(re.findall(r"(?:Fig\.|Exercise) (\w+)\.", shown)) <= {number}


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("notebooks/")])
def test_the_links_to_the_pages_before_and_after_name_their_questions(page):
    links = soup(page).select(".prev-next-area a")
    assert links
    for link in links:
        title = soup(urljoin(page, link["href"])).select_one("article h1").text.removesuffix("#").split()
        assert link.select_one(".prev-next-title").text.split() == title


def asserted(node):
    """The assertions outside functions."""
    inner = [one for one in ast.iter_child_nodes(node) if not isinstance(one, (ast.FunctionDef, ast.Lambda))]
    return isinstance(node, ast.Assert) + sum(map(asserted, inner))


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("notebooks/")])
def test_every_check_of_the_notebook_is_in_a_fold_of_the_page(page):
    notebook = json.loads((ROOT / page.replace(".html", ".ipynb")).read_text("utf8"))
    code = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    count = sum(asserted(ast.parse(source)) for source in code)
    folds = soup(page).select("details.checks")
    assert count == sum(int(re.search(r"✓ (\d+) check", fold.summary.text)[1]) for fold in folds)
    assert count == sum(len(re.findall(r"^ *assert\b", fold.find("pre").text, re.MULTILINE)) for fold in folds)
    assert not [fold for fold in folds if fold.has_attr("open")]


@every_page
def test_nothing_is_loaded_from_another_host(page):
    others = [address for address in loads(page) if outside(address)]
    if (SITE / "_static/vendor/mathjax").is_dir():
        assert others == []
    else:  # without npm, formulas come from Sphinx's usual address, and nothing else does
        assert all("mathjax" in address for address in others)


def asked_for(sheet):
    """The addresses in a style sheet."""
    return [a or b for a, b in IN_CSS.findall(sheet.read_text(encoding="utf-8", errors="replace"))]


def test_no_style_sheet_loads_from_another_host():
    for sheet in SITE.rglob("*.css"):
        assert [address for address in asked_for(sheet) if outside(address)] == [], sheet.name


def test_what_a_style_sheet_asks_for_is_there_and_is_no_other_style_sheet():
    for sheet in SITE.rglob("*.css"):
        files = [urlsplit(address).path for address in asked_for(sheet) if not address.startswith(("data:", "#"))]
        assert [name for name in files if name.endswith(".css")] == [], sheet.name
        assert [name for name in files if not (sheet.parent / name).is_file()] == [], sheet.name


@every_page
def test_no_file_and_no_anchor_is_missing(page):
    links = [tag["href"] for tag in soup(page).find_all("a", href=True)]
    local = [a for a in [*loads(page), *links] if not outside(a) and urlsplit(a).scheme in ("", "file") and a != "#"]
    assert [address for address in local if missing(page, address)] == []


@every_page
def test_the_page_says_what_it_is_and_in_which_language(page):
    html, title = soup(page).html, soup(page).title
    description = soup(page).find("meta", attrs={"name": "description"})
    assert html.get("lang") == "en"
    assert title
    assert title.text.strip()
    assert description
    assert len(description["content"].strip()) >= 20


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith(("book/", "notebooks/"))])
def test_a_link_to_the_page_can_be_shown_with_its_name_and_its_first_words(page):
    found = {tag["property"]: tag["content"] for tag in soup(page).find_all("meta", attrs={"property": True})}
    assert found["og:title"] == soup(page).title.text.split(" — ")[0]
    assert len(found["og:description"]) > 60


@every_page
def test_every_image_has_an_alternative_text(page):
    for image in soup(page).find_all("img"):
        assert image.get("alt") is not None, image["src"]
        if image.find_parent(["figure", "main"]):
            assert len(image["alt"]) >= 40, f"an alt text says what the picture shows: {image['src']}"


@every_page
def test_every_id_is_there_once(page):
    ids = [tag["id"] for tag in soup(page).find_all(id=True)]
    assert sorted({name for name in ids if ids.count(name) > 1}) == []


@every_page
def test_the_page_is_light(page):
    """Scripts and style sheets of at most 1 MB; the sentences of the search come when somebody searches."""
    local = {unquote(urlsplit(urljoin(f"/{page}", a)).path).lstrip("/") for a in loads(page) if not outside(a)}
    sizes = {name: (SITE / name).stat().st_size for name in local if name.endswith((".js", ".css"))}
    assert sum(sizes.values()) <= 1_000_000, sizes
    assert not [name for name in sizes if "fontawesome.js" in name]


def test_the_first_page_leads_into_the_book():
    first = soup("index.html")
    target = first.find("a")["href"]
    assert target in first.find("meta", attrs={"http-equiv": "refresh"})["content"]
    assert (SITE / target).is_file()


def test_the_theme_does_not_measure_all_code_at_once():
    script = (SITE / "_static/scripts/pydata-sphinx-theme.js").read_text(encoding="utf-8")
    assert not re.search(r"\.forEach\(\w=>\{\w\.tabIndex=\w\.scrollWidth", script)


def test_the_license_of_the_fonts_is_in_the_book():
    folder = SITE / "_static/vendor/mathjax"
    assert not folder.is_dir() or "Apache License" in (folder / "LICENSE").read_text(encoding="utf-8")


@every_page
def test_every_formula_is_drawn_without_a_script_for_the_eyes_and_for_the_ears(page):
    if not (SITE / "_static/vendor/mathjax").is_dir():
        pytest.skip("the book was built without MathJax (npm install), so its pages need a network")
    assert not [address for address in loads(page) if "mathjax" in address]
    for place in soup(page).select(".math"):
        (drawn,) = place.find_all("mjx-container", recursive=False)
        assert drawn.select_one("mjx-math[aria-hidden=true] mjx-c")
        assert drawn.select_one("mjx-assistive-mml > math")
        assert place.text.strip().removeprefix(getattr(place.select_one(".eqno"), "text", "")) == drawn.text
