"""The table of released models in a real browser: sorted, searched, on a phone, without scripts."""

import pytest

from mha.course import released

SIZES = {"desktop": (1000, 900), "phone": (390, 844)}
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
NAMES = "[...document.querySelectorAll('tbody tr:not([hidden]) b')].map(e => e.textContent)"

pytestmark = pytest.mark.slow


@pytest.fixture
def show(opened):
    """Open the table in a page of its own."""

    def show_it(size="desktop", theme="light", scripts=True):
        table = released.Table(released.models())._repr_html_()
        return opened(f"<main><h1>Models</h1>{table}</main>", "Models", SIZES[size], theme, scripts)

    return show_it


def test_it_is_sorted_by_mouse_and_by_keyboard(show):
    tab = show()
    by_bytes = sorted(released.models(), key=lambda model: model.kept(131072))
    button = tab.get_by_role("button", name="GiB at 128k")
    button.click()
    assert tab.evaluate(NAMES)[0] == by_bytes[0].name
    button.focus()
    tab.keyboard.press("Enter")
    assert tab.evaluate(NAMES)[0] in {
        model.name for model in by_bytes if model.kept(131072) == by_bytes[-1].kept(131072)
    }
    assert "largest first" in tab.get_by_role("status").inner_text()
    assert tab.locator("th[aria-sort]").count() == 1
    assert tab.locator("th[aria-sort=descending]").inner_text().startswith("GiB at 128k")
    tab.get_by_role("button", name="layers").click()
    shares = {model.name: model.reaching for model in released.models()}
    found = [shares[name] for name in tab.evaluate(NAMES)]
    assert found == sorted(found)
    assert "sorted by share of layers that reach all tokens, smallest first" in tab.get_by_role("status").inner_text()
    tab.get_by_role("button", name="model").press("Space")
    assert tab.evaluate(NAMES) == sorted(tab.evaluate(NAMES), key=str.lower)


def test_it_is_searched(show):
    tab = show()
    tab.get_by_role("searchbox").fill("sink WINDOW")
    found = tab.evaluate(NAMES)
    assert set(found) == {model.name for model in released.models() if "sink" in str(model) and "window" in str(model)}
    assert f"{len(found)} of {len(released.models())} models" in tab.get_by_role("status").inner_text()
    tab.get_by_role("searchbox").fill("no such model")
    assert tab.evaluate(NAMES) == []


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_is_readable_and_breaks_no_rule(show, violations, size, theme):
    tab = show(size, theme)
    assert tab.evaluate(WIDER) <= 0
    assert tab.evaluate("document.querySelector('.mha-rm .wide').scrollWidth") <= SIZES[size][0]
    assert violations(tab, 5) == {}


def test_without_scripts_the_whole_table_stays(show):
    tab = show(scripts=False)
    assert tab.locator("tbody tr").count() == len(released.models())
    assert tab.locator("button, input").count() == 0
