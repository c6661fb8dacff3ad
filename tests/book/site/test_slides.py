"""Slides made from a built page, in a browser: keys turn them over, and nothing comes from elsewhere."""

import pytest
from programs import load


@pytest.fixture
def deck(site, address):
    """The slides of chapter 04, beside its page as the tool puts them."""
    page = site / "notebooks" / "04_why_many_heads.html"
    slides = page.with_suffix(".test-slides.html")
    slides.write_text(load("tools/make_slides.py").deck(page.read_text(encoding="utf-8")), encoding="utf-8")
    yield f"{address}/notebooks/{slides.name}"
    slides.unlink()


def test_keys_turn_the_slides_over_and_nothing_comes_from_elsewhere(browser, deck, address):
    tab, asked, said = browser.new_page(viewport={"width": 1280, "height": 720}), [], []
    tab.on("request", lambda request: asked.append(request.url))
    tab.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.goto(deck)
    tab.wait_for_function("document.querySelectorAll('mjx-container').length")
    assert tab.locator(".slide").count() > 20
    assert tab.locator(".slide").first.get_by_role("heading").inner_text().endswith("cannot?")
    at = "[...document.querySelectorAll('.slide')].findIndex(s => Math.abs(s.getBoundingClientRect().top) < 2)"
    found = []
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
        tab.keyboard.press(key)
        tab.wait_for_timeout(400)
        found.append(tab.evaluate(at))
    assert found == [1, 2, 1]
    assert tab.locator(".solution, .sd-dropdown").count() == 0
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert said == []
    assert [url for url in asked if not url.startswith((address.rpartition("/")[0], "data:"))] == []
    tab.close()
