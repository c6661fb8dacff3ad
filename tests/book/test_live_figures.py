"""Figures that can be moved: they compute what the package computes, with mouse and keyboard, on desk and phone.

The scripts are read as they are in the repository, in a page that holds nothing but one figure.
"""

import re

import pytest
from live_figures import ROOT, SIZES, STATIC, computed, course_live, said, settings

from mha.course import released
from mha.viz.palette import ON_DARK, ON_LIGHT

NAMES = sorted(path.stem for path in (STATIC / "live").glob("*.js") if path.stem != "core")
SOURCES = {path: path.read_text("utf8") for path in sorted(ROOT.glob("notebooks/*.ipynb"))}
PLACES = {name: [path for path, text in SOURCES.items() if f'data-live=\\"{name}\\"' in text] for name in NAMES}
COLORED = {"q": 4, "k": 6, "v": 3, "head-0": 0, "head-1": 1, "hidden": 5}  # which color of the palette


# ---- all figures


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_is_in_one_chapter_with_a_task_and_a_text_for_those_who_cannot_move_it(name):
    assert len(PLACES[name]) == 1
    text = SOURCES[PLACES[name][0]]
    at = text.index(f'data-live=\\"{name}\\"')
    assert "**Your task:**" in text[max(0, at - 2500) : at]
    still = re.search(r'<p class=\\"still\\">(.*?)</p>', text[at:], re.DOTALL)
    assert still is not None
    assert len(still[1].split()) > 20


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_costs_a_page_few_bytes(name):
    assert (STATIC / "live" / f"{name}.js").stat().st_size <= 8192


def test_the_colors_are_those_of_all_figures():
    for sheet, colors in zip((STATIC / "live.css").read_text("utf8").split("}")[:2], (ON_LIGHT, ON_DARK), strict=True):
        found = dict(re.findall(r"--mha-([\w-]+): (#\w+);", sheet))
        assert found == {name: colors[n] for name, n in COLORED.items()}


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_everybody_can_use_it(live, violations, name, size, theme):
    tab = live(name, size, theme=theme)
    assert tab.locator(".mha-live .still").count() == 0
    assert len(said(tab)) > 20
    assert tab.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
    assert violations(tab, 5) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_keyboard_moves_each_control(live, name):
    tab = live(name)
    controls = tab.locator(".mha-live .controls :is(input[type=range], select, button, input[type=checkbox])")
    assert controls.count() > 0
    for n in range(controls.count()):
        before = settings(tab)
        one = controls.nth(n)
        if one.is_disabled():
            continue
        one.focus()
        kind = one.evaluate("e => e.type")
        low = kind == "range" and one.evaluate("e => e.value === e.max")
        one.press("ArrowLeft" if low else {"range": "ArrowRight", "select-one": "ArrowDown"}.get(kind, "Space"))
        assert settings(tab) != before, one.evaluate("e => e.outerHTML")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_without_a_script_its_text_remains(live, name):
    assert live(name, scripts=False).inner_text(".mha-live") == "Nothing moves here."


# ---- the KV cache


@pytest.mark.slow
def test_the_cache_keeps_what_released_models_keep(live):
    tab = live("cache")
    for name in course_live.SHOWN:
        for n in (1, 700, 8192, 131_072):
            found = computed(tab, "cache", model=name, context=n, batch=3)
            assert found["bytes"] == 3 * released.model(name).kept(n)
            assert found["more"] == 3 * (released.model(name).kept(n + 1) - released.model(name).kept(n))


@pytest.mark.slow
def test_own_numbers_give_the_bytes_of_the_formula(live):
    tab = live("cache")
    own = {"model": "your numbers", "layers": 80, "kv": 8, "width": 128, "context": 131_072, "batch": 1, "bits": 16}
    assert computed(tab, "cache", **own)["bytes"] == 2 * 80 * 8 * 128 * 131_072 * 2 == 40 * 2**30
    assert computed(tab, "cache", **own | {"bits": 4})["bytes"] == 10 * 2**30


@pytest.mark.slow
def test_who_moves_a_number_of_a_model_has_numbers_of_his_own(live):
    tab = live("cache")
    tab.locator("input[name=kv]").press("ArrowRight")
    assert tab.locator("select").input_value() == "your numbers"
    assert "32 layers, 12 KV heads of 128. 1.50 GiB" in said(tab)
    tab.locator("select").select_option("Llama 3.1 70B")
    assert tab.locator("input[name=layers]").input_value() == "80"
    for _ in range(4):
        tab.locator("input[name=context]").press("ArrowRight")
    assert "40.0 GiB for 1 × 131,072 tokens, 320 KiB for one more token" in said(tab)
