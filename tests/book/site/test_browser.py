"""The built pages in a real browser: nothing fails, nothing asks another host, nothing is wider than a phone.

Opening a page and drawing its mathematics takes time, so every page is opened once at each width, and all is asked of
it then. The pages share a template: axe, which takes longest, looks at every page once (and leaves the contrast of
texts, four fifths of its time, to ``faint``), and at one page of each kind in every mode, once with all its rules.
"""

import gzip
import re
import unicodedata
from collections import Counter
from functools import cache
from itertools import product
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[3]
SITE = ROOT / "_build" / "html"
SHOTS = ROOT / "_build" / "screenshots"
NOTEBOOKS = sorted(f"notebooks/{path.name}" for path in (SITE / "notebooks").glob("*.html"))
CHAPTERS = [page for page in NOTEBOOKS if re.match(r"notebooks/\d\d_", page)]  # without side rooms
PAGES = [*sorted(f"book/{path.name}" for path in (SITE / "book").glob("*.html")), *NOTEBOOKS, "search.html"]
SIZES = {"desktop": (1280, 900), "laptop": (1366, 768), "phone": (390, 844)}
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
UNREADY = """() => {
  const shown = [...document.querySelectorAll('.math')].filter(e => e.textContent.trim());
  return shown.filter(e => !e.querySelector('mjx-container')).map(e => e.textContent.slice(0, 60));
}"""
BROKEN = """() => {
  const marked = 'mjx-merror, [data-mjx-error], mjx-mtext[style*="red"]';  // the last: a command that does not exist
  return [...document.querySelectorAll(marked)].map(e => e.textContent.slice(0, 80));
}"""
EMPTY = "[...document.images].filter(i => i.complete && i.currentSrc && !i.naturalWidth).map(i => i.currentSrc)"
FETCH = "for (const picture of document.images) picture.loading = 'eager'"
FETCHED = "[...document.images].every(picture => picture.complete)"
DRAWN = "places => places.map(one => [one.dataset.tex, one.querySelector('mjx-container').textContent])"

LAID_OUT = ".cell { content-visibility: visible !important }"  # cells far away count too
BOXES = "main :is(pre, .cell_output > .output, .pst-scrollable-table-container)"  # the theme asks each: do you scroll?
REACHED = f"""() => [...document.querySelectorAll('{BOXES}')].filter(e => e.offsetParent).every(e =>
  (e.tabIndex === 0) === (e.scrollWidth > e.clientWidth || e.scrollHeight > e.clientHeight))"""
STILL = "Promise.allSettled(document.getAnimations().map(moving => moving.finished)).then(() => true)"

pytestmark = pytest.mark.slow


@pytest.fixture
def open_page(browser, address):
    """Open a page and write down what goes wrong: what the console warns of, failed requests, requests elsewhere."""
    contexts, server = [], address

    def open_it(page, size="desktop", address=server, scripts=True):
        width, height = SIZES[size]
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="light", java_script_enabled=scripts
        )
        contexts.append(context)
        tab, problems = context.new_page(), []
        bad = ("error", "warning")
        tab.on("console", lambda said: problems.append(f"console: {said.text}") if said.type in bad else None)
        tab.on("pageerror", lambda error: problems.append(f"script: {error}"))
        tab.on("requestfailed", lambda r: None if given_up(r) else problems.append(f"failed: {r.url}"))
        tab.on("response", lambda r: problems.append(f"{r.status}: {r.url}") if r.status >= 400 else None)
        tab.on("request", lambda r: None if r.url.startswith((address, "data:", "blob:")) else problems.append(r.url))
        tab.goto(f"{address}/{page}", wait_until="load")
        if scripts:
            tab.add_style_tag(content=LAID_OUT)
            tab.evaluate("() => document.fonts.ready.then(() => true)")
        return tab, problems

    yield open_it
    for context in contexts:
        context.close()


def given_up(request):
    """The browser itself stopped fetching, as when another size of a picture fits better; the server answered."""
    return request.failure == "net::ERR_ABORTED"


def has_own_mathjax():
    return (SITE / "_static/vendor/mathjax").is_dir()


def turn(tab, theme):
    """As it happens to a reader in the evening."""
    tab.emulate_media(color_scheme=theme)
    tab.wait_for_function(f"() => document.documentElement.dataset.theme === '{theme}'", timeout=5_000)


def check_page(tab, problems):
    """What must be so on every page, in light and dark, with all pictures fetched."""
    for theme in ("light", "dark"):
        turn(tab, theme)
        tab.evaluate(FETCH)
        tab.wait_for_function(FETCHED, timeout=10_000)
        assert problems == []
        assert tab.evaluate(EMPTY) == [], "pictures that did not arrive"
        assert tab.evaluate(UNREADY) == [], "mathematics that was not drawn"
        assert tab.evaluate(BROKEN) == [], "mathematics with an error in it"
        assert tab.evaluate(WIDER) <= 0, "the page is wider than the window"


ASKED_FOR = "[location.href, ...performance.getEntriesByType('resource').map(one => one.name)]"
HEAVIEST = 500_000  # bytes on their way to the reader


@cache
def as_sent(path):
    """The bytes of a file as servers send it: text compressed, pictures and fonts as they are."""
    text = path.suffix in {".html", ".js", ".mjs", ".css", ".svg"}
    return len(gzip.compress(path.read_bytes(), 6)) if text else path.stat().st_size


def weight(tab):
    """What a browser has fetched for an open page, with all its formulas."""
    names = {unquote(urlsplit(url).path) for url in tab.evaluate(ASKED_FOR) if not url.startswith(("data:", "blob:"))}
    return sum(as_sent(SITE / name.partition(f"/{SITE.name}/")[2]) for name in names)


UNDRAWN = (  # in the source of a formula, but no sign on the page
    r"(?<!\\)%.*",
    r"\\(begin|end)\{\w+\*?\}(\{[lcr|@{} ]*\})?",
    r"\\(label|hspace|vspace|color|style|class|cssId|phantom|hphantom|vphantom)\*?\{[^{}]*\}",
    r"\\\\\[-?[\d.]+(em|ex|pt|px)\]",
    r"\\[a-zA-Z]+",
)


def lost_letters(source, drawn):
    """The letters and digits of a formula's source that are not on the page, as often as they are missing."""
    for pattern in UNDRAWN:
        source = re.sub(pattern, " ", source)
    wanted, there = (
        Counter(c for c in unicodedata.normalize("NFKC", text) if c.isascii() and c.isalnum())
        for text in (source, drawn)
    )
    return dict(wanted - there)


def test_a_swallowed_letter_is_seen():
    assert lost_letters(r"\begin{aligned} [a_1, a_2] &= \mathrm{softmax}(W_h x) \end{aligned}", "=softmax(Whx)") == {
        "a": 2, "1": 1, "2": 1,
    }  # fmt: skip
    assert lost_letters(r"\begin{aligned} {[a_1]} &= \max_i \tfrac12 x^2 \\[2pt] \end{aligned}", "[a1]=maxi12x2") == {}


# Each text that is seen whose contrast with what lies behind it is too small, by the formula of WCAG 2.2; first, how
# many were measured. axe asks the same and more, but needs 3 to 50 times as long.
FAINT = r"""() => {
  const parts = css => {
    const numbers = css.match(/[\d.e-]+/g).map(Number), mixed = css.startsWith('color(srgb');  // mixed: 0 to 1
    return [...numbers.slice(0, 3).map(one => mixed ? 255 * one : one), ...numbers.slice(3), 1].slice(0, 4);
  };
  const over = (top, under) => under.map((part, n) => top[3] * top[n] + (1 - top[3]) * part);
  const linear = part => part <= .04045 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4;
  const bright = color => [.2126, .7152, .0722].reduce((sum, share, n) => sum + share * linear(color[n] / 255), 0);
  const grounds = new Map([[null, [255, 255, 255]]]);
  const ground = e => grounds.get(e) || grounds.set(
    e, over(parts(getComputedStyle(e).backgroundColor), ground(e.parentElement))).get(e);
  const seen = {opacityProperty: true, visibilityProperty: true}, faint = [];
  const texts = [...document.querySelectorAll('body :not(svg *, script, style, textarea, mjx-assistive-mml *)')].filter(
    e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) && e.checkVisibility(seen));
  for (const e of texts) {
    const look = getComputedStyle(e), size = parseFloat(look.fontSize), behind = ground(e);
    const [low, high] = [bright(behind), bright(over(parts(look.color), behind))].sort((a, b) => a - b);
    const contrast = (high + .05) / (low + .05), large = size >= 24 || (size >= 18.66 && look.fontWeight >= 700);
    if (contrast < (large ? 3 : 4.5)) faint.push(`${contrast.toFixed(2)}: ${e.outerHTML.slice(0, 120)}`);
  }
  return [texts.length, faint.slice(0, 5)];
}"""


def faint(tab, least=50):
    """Texts of an open page that are hard to see; more than ``least`` are measured."""
    count, found = tab.evaluate(FAINT)
    assert count > least
    return found


def test_a_text_that_is_hard_to_see_is_found(browser):
    """White, nine tenths opaque, on #777777: 0.933 to 0.234 with what the formula adds to both; mixed as well."""
    colors = "rgba(255, 255, 255, .9)", "color-mix(in srgb, white 90%, transparent)"
    hard = [f'<p style="color: {color}">no</p>' for color in colors]
    with browser.new_context() as context:
        tab = context.new_page()
        tab.set_content("<p>seen</p>" * 60 + f"<div style='background: #777'>{''.join(hard)}<p hidden>gone</p></div>")
        assert faint(tab) == [f"3.98: {one}" for one in hard]


def open_all(tab):
    """Answers, hints, editors and the list of pages, so that axe sees them; the theme asks its boxes anew, too."""
    tab.evaluate("document.querySelectorAll('main details, details.part').forEach(part => { part.open = true; })")
    tab.evaluate("window.dispatchEvent(new Event('resize'))")


def check_folds(tab):
    """Hints and solutions are folded, and open on a click."""
    hints, solutions = tab.locator("details.sd-dropdown"), tab.locator("div.solution.dropdown")
    assert hints.count() >= 6
    assert solutions.count() >= 3
    inside = hints.first.locator(".sd-summary-content")
    assert not inside.is_visible()
    hints.first.locator("summary").click()
    assert inside.is_visible()
    answer = solutions.first.locator("div.cell_input").first
    assert not answer.is_visible()
    solutions.first.locator("button.toggle-button, .toggle-button").first.click()
    answer.wait_for(state="visible", timeout=5_000)


def check_quiz(tab):
    """An answer of the quiz opens by the keyboard and says why."""
    right = tab.locator(".mha-quiz details.right").first
    assert not right.locator("p").is_visible()
    right.locator("summary").press("Enter")
    assert "Right." in right.locator("p").inner_text()


@pytest.mark.parametrize("page", PAGES)
def test_the_page_works_on_a_desk_and_axe_finds_nothing(open_page, violations, page):
    """Rules of WCAG 2.2, levels A and AA, and good practice, with answers, hints and editors open."""
    if not has_own_mathjax():
        pytest.skip("the book was built without its own MathJax (npm install), so its pages need a network")
    tab, problems = open_page(page)
    assert weight(tab) <= HEAVIEST
    check_page(tab, problems)
    formulas = tab.locator(".math").evaluate_all(DRAWN)
    assert [(source, lost) for source, drawn in formulas if (lost := lost_letters(source, drawn))] == []
    if page in CHAPTERS:
        check_heights(tab)
        check_folds(tab)
    open_all(tab)
    tab.evaluate(STILL)  # colors fade into the new theme
    assert faint(tab) == [], "dark"
    turn(tab, "light")
    tab.wait_for_function(REACHED, timeout=10_000)
    tab.evaluate(STILL)
    assert faint(tab) == [], "light"
    assert violations(tab, 15, "best-practice", quick=True) == {}
    assert problems == []


LETTERS = """() => [...document.querySelectorAll('figure svg text')].filter(e => e.checkVisibility()).map(e =>
  [e.textContent, parseFloat(getComputedStyle(e).fontSize) * Math.hypot(e.getScreenCTM().a, e.getScreenCTM().b)]
).filter(([, size]) => size < 10.9)"""  # of turned letters, too
TOO_WIDE = """() => [...document.querySelectorAll('div.math > mjx-container, .pst-scrollable-table-container')].filter(
  e => e.checkVisibility() && e.scrollWidth > e.clientWidth + 10).map(e => e.textContent.trim().slice(0, 60))"""
WIDE = ("book/compatibility.html",)  # a table of 13 columns


def check_figures(tab):
    """On a phone they are other drawings than at a desk, and the page gives them the room.

    The letters of these are measured in tests/book/test_figures.py, those of diagrams here.
    """
    assert tab.evaluate(LETTERS) == []
    for theme, name, ending in (("dark", "by-night", "-phone-dark.svg"), ("light", "by-day", "-phone.svg")):
        turn(tab, theme)
        count = tab.locator(f"a.{name} img").count()
        assert tab.locator("a.large:visible img").count() == count
        for figure in tab.locator(f"a.{name} img").all():
            figure.scroll_into_view_if_needed()
            assert figure.evaluate("e => e.decode().then(() => e.currentSrc)").endswith(ending)
            shown, natural = figure.evaluate("e => [e.getBoundingClientRect().width, e.naturalWidth]")
            assert shown >= min(natural, 336) - 1
            assert figure.evaluate("e => getComputedStyle(e).filter") == "none"
    return count


@pytest.mark.parametrize("page", PAGES)
def test_the_page_works_on_a_phone(open_page, page):
    """Formulas, tables and figures fit; what else is wider than the phone can be reached by the keyboard."""
    if not has_own_mathjax():
        pytest.skip("the book was built without its own MathJax (npm install), so its pages need a network")
    tab, problems = open_page(page, "phone")
    check_page(tab, problems)
    assert page in WIDE or tab.evaluate(TOO_WIDE) == []
    tab.wait_for_function(REACHED, timeout=10_000)
    if page in CHAPTERS:
        assert tab.locator("main pre[tabindex='0']").count() > 0
        check_quiz(tab)
    assert (check_figures(tab) > 0) == ('class="large by-day"' in (SITE / page).read_text(encoding="utf-8"))
    assert problems == []


KINDS = {  # one page of each kind, with what only such pages have
    "book/intro.html": ".mha-hv",  # the head view
    "book/notation.html": "table",
    "book/claims_ledger.html": "table",
    "notebooks/02_why_scale.html": "details.tryit",  # an editor, sliders, figures, formulas, a quiz
    "notebooks/03_masking.html": "figure.mha-frames",
    "notebooks/10_reading_heads.html": ".mha-hv",
    "notebooks/13_cache_and_sharing.html": ".mha-live",  # a figure to move
    "search.html": "form",
}


def keep_picture(tab, page, mode):
    """Of the whole page, for those who look at what failed."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    tab.screenshot(path=SHOTS / f"{page.removesuffix('.html').replace('/', '_')}_{mode}.png", full_page=True)


@pytest.mark.parametrize("page", KINDS)
def test_everybody_can_use_each_kind_of_page_in_every_mode(open_page, violations, page):
    tab, _ = open_page(page)
    assert tab.locator(KINDS[page]).count() > 0
    open_all(tab)
    tab.wait_for_function(REACHED, timeout=10_000)
    turn(tab, "dark")
    tab.evaluate(STILL)  # colors fade into the new theme
    keep_picture(tab, page, "dark")
    assert violations(tab, 15, "best-practice") == {}, "dark"
    width, height = SIZES["phone"]
    tab.set_viewport_size({"width": width, "height": height})
    tab.wait_for_function(REACHED, timeout=10_000)
    least = 4 if page == "search.html" else 50  # before anything is asked, its page has five texts on a phone
    assert faint(tab, least) == [], "dark, on a phone"
    assert violations(tab, 15, "best-practice", contrast=False) == {}, "dark, on a phone"
    turn(tab, "light")
    tab.evaluate(STILL)
    keep_picture(tab, page, "phone")
    assert faint(tab, least) == [], "light, on a phone"
    assert violations(tab, 15, "best-practice", contrast=False) == {}, "light, on a phone"


MOVED = "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }"
SHOWN = "all => all.flatMap((svg, n) => svg.checkVisibility() ? [n] : [])"
SLIDING = [page for page in NOTEBOOKS if 'class="mha-frames"' in (SITE / page).read_text(encoding="utf-8")]


@pytest.mark.parametrize("page", SLIDING)
def test_every_choice_of_the_sliders_and_buttons_shows_one_picture(open_page, page):
    tab, problems = open_page(page, "phone")
    figure = tab.locator("figure.mha-frames")
    asked, pictures = figure.locator("fieldset, input[type=range]").all(), figure.locator("svg")
    ends = [one.get_attribute("max") for one in asked]  # a group of two buttons has none
    for n, values in enumerate(product(*(range(int(end or 1) + 1) for end in ends))):
        for one, end, value in zip(asked, ends, values, strict=True):
            if end:
                one.evaluate(MOVED, value)
            else:
                one.locator("input").nth(value).check()
        assert pictures.evaluate_all(SHOWN) == [n]
    assert n == pictures.count() - 1
    for one, end in zip(asked, ends, strict=True):  # without a mouse
        before = pictures.evaluate_all(SHOWN)
        (one if end else one.locator(":checked")).press("ArrowLeft")
        assert pictures.evaluate_all(SHOWN) != before
    said = [text for one in figure.locator("output").all() if (text := one.inner_text())]
    assert said == [one.get_attribute("aria-valuetext") for one, end in zip(asked, ends, strict=True) if end]
    assert problems == []


def test_the_heads_on_the_cover_can_be_chosen(open_page):
    tab, problems = open_page("book/intro.html", "phone")
    said = tab.locator(".mha-hv p[aria-live]")
    told = "two heads: “bank” looks most at “river” in head 0 (0.89); at “the” in head 1 (0.67)."
    assert said.inner_text() == told
    tab.locator(".mha-hv button.head").nth(1).press("Enter")
    assert said.inner_text() == "two heads, head 1: “bank” gives “river” 0.16; the most goes to “the”, 0.67."
    tab.locator(".mha-hv .col button").nth(1).click()
    assert said.inner_text() == "two heads, head 1: “river” gives “the” 0.67, the most of all tokens."
    assert problems == []


def test_the_cover_says_on_its_first_screen_where_to_begin(open_page):
    tab, problems = open_page("book/intro.html")
    tab.set_viewport_size({"width": 1366, "height": 800})
    ways, minutes = tab.locator("#three-ways-in .course-card"), tab.locator("#the-first-15-minutes li")
    for place in (tab.locator(".course-find input"), ways.last, minutes.last):
        box = place.bounding_box()
        assert box["y"] + box["height"] <= 800
    assert sum(int(re.search(r"(\d+) minute", text)[1]) for text in minutes.all_inner_texts()) == 15
    assert tab.locator("nav.bd-docs-nav details.part[open]").count() == 0
    looked_up = tab.locator("nav.bd-docs-nav details.part > summary", has_text="Look things up")
    box = looked_up.bounding_box()
    assert box["y"] + box["height"] <= 800
    looked_up.press("Enter")
    assert tab.locator("nav.bd-docs-nav").get_by_role("link", name="Questions people ask").is_visible()
    tab.set_viewport_size({"width": 390, "height": 844})
    for place in (tab.locator(".course-find input"), ways.first):
        assert place.bounding_box()["y"] < 844 / 2
    assert problems == []


def test_the_ledger_can_show_one_verdict_alone(open_page):
    tab, problems = open_page("book/claims_ledger.html")
    verdicts = tab.locator("td .verdict")
    every = verdicts.count()
    for label in tab.locator(".verdicts label").all():
        label.click()
        count, word = label.inner_text().split(None, 1)
        shown = [one.inner_text() for one in verdicts.all() if one.is_visible()]
        if word == str(every):  # all
            assert len(shown) == every
        else:
            assert shown == [word] * int(count)
            assert tab.locator("main h2:visible").count() <= int(count)
    assert problems == []


def test_the_contents_mark_the_section_that_is_read_after_a_jump(open_page):
    tab, _ = open_page(CHAPTERS[3])
    active = tab.locator("#pst-page-toc-nav a.active")
    for name in ("Exercises", "The picture", "Summary"):
        tab.locator("#pst-page-toc-nav a", has_text=re.compile(f"^\\s*{name}\\s*$")).click()
        tab.wait_for_timeout(1500)
        assert active.all_inner_texts() == [name]
    tab.evaluate("document.querySelector('#exercises').scrollIntoView()")  # no link was followed
    expect = pytest.importorskip("playwright.sync_api").expect
    expect(active).to_have_text(["Exercises"], timeout=5_000)  # a busy machine scrolls late


OVERLAPS = """() => {
  const button = document.getElementById('pst-back-to-top'), bar = document.querySelector('.bd-header-article');
  button.style.display = 'block';  // as the theme does when the reader scrolls up
  const box = button.getBoundingClientRect(), around = bar.getBoundingClientRect();
  const covered = [...bar.querySelectorAll('button, a')].map(e => e.getBoundingClientRect()).filter(
    other => other.width && other.left < box.right && box.left < other.right);
  return [box.height > 0 && around.top <= box.top && box.bottom <= around.bottom, covered.length];
}"""


def test_the_way_back_to_the_top_stands_in_the_bar_and_covers_nothing(open_page):
    """On a phone; where there is room for side columns the theme shows no such button."""
    tab, _ = open_page(CHAPTERS[3], "phone")
    assert tab.evaluate(OVERLAPS) == [True, 0]


RUNNABLE = [page for page in NOTEBOOKS if 'src="../_static/tryit.js"' in (SITE / page).read_text(encoding="utf-8")]


def run_in_page(tab, code=None):
    """Open the editor of a page, change the code, run it by keyboard; gives what it printed."""
    if not tab.locator("details.tryit textarea").is_visible():
        tab.locator("details.tryit summary").click()
    area, output = tab.locator("details.tryit textarea"), tab.locator("pre.tryit-output")
    if code is not None:
        area.fill(code)
    area.press("Control+Enter")
    tab.wait_for_selector("pre.tryit-output:not([data-state=running])", timeout=15_000)
    return output.text_content()


@pytest.mark.parametrize("page", RUNNABLE)
def test_python_runs_in_the_page_and_prints_what_is_stored(open_page, page):
    tab, problems = open_page(page, "phone")
    stored = tab.locator("div.cell.tag_try-it > div.cell_output").text_content()
    assert run_in_page(tab).strip() == stored.strip()
    assert problems == []
    assert tab.evaluate(WIDER) <= 0


@pytest.mark.parametrize("page", RUNNABLE[:1])
def test_what_goes_wrong_in_the_page_is_said_there(open_page, page):
    tab, problems = open_page(page)
    assert "NameError" in run_in_page(tab, "print(nobody)")
    assert run_in_page(tab, "x = 1") == "(nothing was printed)"
    assert run_in_page(tab, "print('one')\nprint('two')") == "one\ntwo\n"
    flood = run_in_page(tab, "for i in range(100000):\n    print('hello', i)")
    assert flood.endswith("(more is printed than can be shown)\n")
    assert len(flood) < 25_000
    assert "The page has plain Python only" in run_in_page(tab, "import numpy as np")
    assert "write the answer into the code" in run_in_page(tab, "print(input('who? '))")
    assert "stopped after 10 seconds" in run_in_page(tab, "while True:\n    pass")
    tab.locator("button.tryit-reset").click()
    assert "bank reads" in run_in_page(tab)
    assert problems == []


@pytest.mark.parametrize("page", RUNNABLE[:1])
def test_where_python_cannot_start_the_page_says_what_is_missing(open_page, page):
    tab, _ = open_page(page)
    tab.route("**/tryit-worker.mjs", lambda route: route.fulfill(
        response=(answer := route.fetch()), body="delete self.WebAssembly;" + answer.text()))  # fmt: skip
    assert "needs WebAssembly" in run_in_page(tab)
    tab.unroute("**/tryit-worker.mjs")
    tab.route("**/micropython.wasm", lambda route: route.abort())
    said = run_in_page(tab)
    assert "could not be loaded" in said
    assert "Aborted" not in said


MOST_HIGH = 600  # pixels, with what stands inside: less than the screen of a laptop below the bar of the page
HIGH = """() => [...document.querySelectorAll('article :is(figure, .mha-hv, a.large)')].filter(
  e => e.checkVisibility()).map(e => [Math.round(e.getBoundingClientRect().height), e.outerHTML.slice(0, 120)])"""
OPTIONS = "list => [...list.options].map(one => one.value)"


def too_high(tab):
    """Figures that are seen and do not fit a screen; on a page without any, nothing would be measured."""
    heights = tab.evaluate(HIGH)
    assert heights
    return [(high, what) for high, what in heights if high > MOST_HIGH]


def choices(figure):
    """Set each control of a figure to its ends, or to each of its values where they are a list."""
    for one in figure.locator(".controls :is(select, input, button)").all():
        kind = one.evaluate("e => e.type")
        if kind == "select-one":
            for value in one.evaluate(OPTIONS):
                yield one.select_option(value)
        elif kind == "range":
            for end in ("min", "max"):
                yield one.evaluate(MOVED, one.get_attribute(end))
        else:
            for _ in range(3):
                yield one.click() if one.is_enabled() else None


def check_heights(tab):
    """No figure is higher than the screen of a laptop, whatever is chosen."""
    width, height = SIZES["laptop"]
    tab.set_viewport_size({"width": width, "height": height})
    assert too_high(tab) == []
    for figure in tab.locator("figure.mha-live").all():
        for _ in choices(figure):
            assert figure.bounding_box()["height"] <= MOST_HIGH, figure.locator(".said").inner_text()
    for view in tab.locator(".mha-hv").all():
        for name in ("Matrix", "Lines", "All heads of the layer"):
            view.get_by_role("button", name=name).click()
            assert view.bounding_box()["height"] <= MOST_HIGH, name


def test_a_figure_that_is_too_high_is_found(browser):
    with browser.new_context() as context:
        tab = context.new_page()
        heights = {"a": 600, "b": 601}
        tab.set_content("<article>" + "".join(
            f'<figure id="{name}" style="height: {high}px"></figure>' for name, high in heights.items()))  # fmt: skip
        assert [(high, what[:14]) for high, what in too_high(tab)] == [(601, '<figure id="b"')]


def test_a_figure_opens_large_by_the_keyboard_and_closes_again(open_page):
    tab, problems = open_page("notebooks/12_counting_cost.html")
    dialog = tab.locator("dialog.large")
    for opener, picture in (("a.large", "img"), ("figure.mha-drawing button.large:visible", "svg")):
        small = tab.locator(opener).first
        before = small.locator("img, svg").bounding_box()["height"]
        small.press("Enter")
        assert dialog.locator(picture).bounding_box()["height"] > 1.5 * before
        tab.keyboard.press("Escape")
        assert not dialog.is_visible()
        assert small.evaluate("e => e === document.activeElement")
    assert problems == []


@pytest.mark.parametrize(
    ("page", "part", "opener", "picture"),
    [
        ("notebooks/02_why_scale.html", ".mha-frames", "button.large", "svg:visible"),
        ("notebooks/10_reading_heads.html", ".mha-hv", "button.whole", ".middle"),
    ],
)
def test_what_moves_opens_large_stays_alive_and_goes_back_to_its_place(open_page, page, part, opener, picture):
    tab, problems = open_page(page)
    dialog, found = tab.locator("dialog.large"), tab.locator(part).first
    height, before = found.bounding_box()["height"], found.locator(picture).bounding_box()["width"]
    found.locator(opener).press("Enter")
    inside = dialog.locator(part)
    assert inside.locator(picture).bounding_box()["width"] > 1.2 * before
    shown = inside.inner_text()
    inside.locator("input[type=range], .col button").last.press("ArrowUp")
    assert inside.inner_text() != shown
    assert tab.evaluate(WIDER) <= 0
    for way in ("Escape", "Close"):
        if way == "Escape":
            tab.keyboard.press(way)
        else:
            dialog.get_by_role("button", name=way).click()
        dialog.wait_for(state="hidden")
        assert tab.locator(part).first.bounding_box()["height"] == pytest.approx(height, abs=60)
        assert found.locator(opener).evaluate("e => e === document.activeElement")
        found.locator(opener).click()
    assert problems == []


PLAIN = "e => getComputedStyle(e).color"


def test_without_javascript_formulas_are_drawn_code_has_colors_and_figures_are_links(open_page):
    tab, _ = open_page("notebooks/02_why_scale.html", scripts=False)
    article = tab.locator("article")
    assert "\\frac" not in article.inner_text()
    formulas = article.locator("mjx-container")
    assert formulas.count() > 20
    for formula in formulas.all()[:20]:
        formula.scroll_into_view_if_needed()  # what is far away is laid out when it comes near
        box = formula.bounding_box()
        assert min(box["width"], box["height"]) > 2, formula.text_content()
    assert len({word.evaluate(PLAIN) for word in tab.locator("div.highlight pre span").all()[:40]}) > 2
    address = tab.locator("a.large").first.get_attribute("href")
    assert address.endswith(".svg")
    assert tab.request.get(f"{tab.url.rpartition('/')[0]}/{address}").ok


PRINTED = """() => [...document.querySelectorAll(
    'details.sd-dropdown .sd-summary-content, div.solution.dropdown > :not(.admonition-title)')].map(e =>
  e.getBoundingClientRect().height > 5 && e.checkVisibility({contentVisibilityAuto: false, visibilityProperty: true})
)"""


@pytest.mark.parametrize("page", CHAPTERS[:2])
def test_on_paper_hints_and_solutions_are_open(open_page, page):
    tab, _ = open_page(page)
    assert not any(tab.evaluate(PRINTED))
    tab.emulate_media(media="print")
    assert len(tab.evaluate(PRINTED)) >= 9
    assert all(tab.evaluate(PRINTED))


@pytest.mark.parametrize("page", CHAPTERS[::4])
def test_a_link_into_the_page_leads_there(browser, address, page):
    """Although cells before it are laid out late, and formulas drawn late."""
    places = re.findall(r'id="((?:ex|claim)-[^"]+)"', (SITE / page).read_text(encoding="utf-8"))
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        tab = context.new_page()
        for place in (places[0], places[-1]):
            tab.goto(f"{address}/{page}#{place}", wait_until="load")
            tab.wait_for_timeout(500)
            assert -5 <= tab.evaluate(f"document.getElementById('{place}').getBoundingClientRect().top") < 300, place


def test_the_search_finds_a_word_of_the_first_page(open_page):
    tab, problems = open_page("search.html?q=softmax")
    tab.wait_for_selector("#search-results li a", timeout=20_000)
    assert problems == []


def test_a_result_is_the_sentence_itself_with_a_link_to_its_place(open_page, address):
    tab, _ = open_page("search.html?q=nan+in+softmax")
    first = tab.locator("#search-results li").first
    assert "NaN" in first.locator("mark").all_inner_texts()
    page, _, place = first.locator("a").get_attribute("href").partition("#")
    sentence = first.locator("p.context").inner_text()
    tab.goto(f"{address}/{page}")
    assert sentence[:40] in " ".join(tab.locator(f"[id='{place}']").inner_text().split())


def test_a_search_is_light(open_page):
    """With its answer: no other page is fetched for it."""
    tab, problems = open_page("search.html?q=softmax", "phone")
    tab.wait_for_selector("#search-results li a")
    assert weight(tab) <= HEAVIEST
    assert [url for url in tab.evaluate(ASKED_FOR)[1:] if ".html" in url] == []
    assert problems == []


def test_everybody_can_use_the_results_of_a_search(open_page, violations):
    tab, _ = open_page("search.html?q=KV+cache+offset", "phone")
    tab.wait_for_selector("#search-results li a", timeout=20_000)
    for theme in ("light", "dark"):
        turn(tab, theme)
        tab.evaluate(STILL)
        assert violations(tab, 15, "best-practice") == {}, theme
    assert tab.evaluate(WIDER) <= 0


def test_the_dialog_of_every_page_searches_while_typing(open_page):
    tab, problems = open_page(CHAPTERS[0])
    assert not [url for url in tab.evaluate(ASKED_FOR) if "sentences.js" in url]
    tab.keyboard.press("Control+k")
    tab.keyboard.type("repeat_kv")
    tab.wait_for_selector("#pst-search-dialog li:first-child > a[href*='13_cache_and_sharing']", timeout=20_000)
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("Enter")
    tab.wait_for_url(re.compile(r"13_cache_and_sharing\.html#"))
    assert problems == []


@pytest.mark.parametrize("page", ["book/intro.html", CHAPTERS[1], CHAPTERS[-1], "search.html?q=softmax"])
def test_the_book_can_be_read_from_a_downloaded_folder(open_page, page):
    """Without any server, as from the file that `make zip` packs."""
    tab, problems = open_page(page, address=SITE.as_uri())
    if "search" in page:
        tab.wait_for_selector("#search-results li a", timeout=20_000)
    assert problems == []
    assert tab.evaluate(UNREADY) == []


def test_the_theme_can_be_changed_by_hand(open_page):
    tab, _ = open_page("book/intro.html")
    before = tab.evaluate("document.documentElement.dataset.theme")
    for _ in range(2):  # auto, light, dark: one of two steps changes what is shown
        tab.locator(".theme-switch-button:visible").first.click()
        if tab.evaluate("document.documentElement.dataset.theme") != before:
            return
    pytest.fail(f"the page stays {before}")
