"""The head view in a real browser: mouse, keyboard, dark, phone, two views on a page, no scripts."""

import re

import pytest
import torch

import mha
from mha import HeadView
from mha.viz import palette

SIZES = {"desktop": (1000, 900), "phone": (390, 844)}
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# The contrast of each visible text with the page behind it, as the accessibility guidelines (WCAG 2.2) define it.
CONTRAST = """() => {
  const light = c => { const v = c / 255; return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; };
  const bright = rgb => .2126 * light(rgb[0]) + .7152 * light(rgb[1]) + .0722 * light(rgb[2]);
  const dark = matchMedia('(prefers-color-scheme: dark)').matches, page = bright(dark ? [18, 18, 18] : [255, 255, 255]);
  return Math.min(...[...document.querySelectorAll('.mha-hv *')].filter(e => e.innerText).map(e => {
    const text = bright(getComputedStyle(e).color.match(/[\\d.]+/g).map(Number));
    return (Math.max(text, page) + .05) / (Math.min(text, page) + .05);
  }));
}"""
NAMELESS = """() => [...document.querySelectorAll('button, [role=group], [role=region]')].filter(
  e => !(e.getAttribute('aria-label') || e.innerText || e.textContent).trim()).length"""
HIDDEN_STOPS = "document.querySelectorAll('[aria-hidden=true] :is(button, a, [tabindex])').length"
SMALL = """() => [...document.querySelectorAll('.mha-hv button, .keys > span')].filter(e => {
  const box = e.getBoundingClientRect();
  return box.width && (box.width < 24 || box.height < 24);
}).length"""
CHANGES = """() => {
  const seen = new MutationObserver(() => {});
  seen.observe(document.body, {subtree: true, childList: true, attributes: true, characterData: true});
  document.querySelectorAll('.mha-hv .col button')[20].dispatchEvent(new MouseEvent('mouseenter'));
  return seen.takeRecords().length;
}"""

pytestmark = pytest.mark.slow


@pytest.fixture
def show(opened):
    """Open views in a page of their own."""

    def show_them(*views, size="desktop", **how):
        return opened("".join(view._repr_html_() for view in views), "Heads", SIZES[size], **how)

    return show_them


def small():
    """Two layers with 2 and 3 heads, over words with known places to look at."""
    first, second = torch.eye(4).repeat(2, 1, 1), torch.full((3, 4, 4), 0.25)
    first[1] = torch.eye(4).roll(1, 0)
    return HeadView([first, second], ["I", "saw", "a", "</b>"])


def large():
    layer, x = mha.MultiHeadAttention(128, 8), 3 * torch.randn(1, 32, 128)
    q, k, _ = layer.project(x)
    with mha.watch(layer, "weights") as seen:
        layer(x, is_causal=True)
    return HeadView(seen.weights, [f"word{n}" for n in range(32)], q=q, k=k)


def said(tab):
    return tab.locator("p[aria-live]").inner_text()


def test_pointing_at_a_word_shows_where_it_looks(show):
    tab = show(small())
    tab.locator(".col button").nth(3).hover()
    assert said(tab) == "layer 0, head 0: “</b>” gives “</b>” 1.00, the most of all tokens."
    assert tab.locator("svg path").count() == 1
    tab.locator(".keys span").nth(0).hover()
    assert said(tab) == "layer 0, head 0: “</b>” gives “I” 0.00; the most goes to “</b>”, 1.00."
    assert tab.locator(".bars").inner_text().split("\n")[0] == "“</b>” to “I”"
    assert tab.locator(".bars span").all_inner_texts() == ["head 0: 0.00", "head 1: 0.00"]


def test_words_with_the_same_weight_are_told_as_equal(show):
    w = torch.tensor([[[0.4, 0.4, 0.2], [1 / 3, 1 / 3, 1 / 3], [0.1, 0.1, 0.8]]])
    tab = show(HeadView(w, ["x", "y", "z"]))
    tab.locator(".col button").nth(1).hover()
    assert said(tab) == "layer, head 0: “y” gives all 3 tokens the same, 0.33."
    tab.locator(".col button").nth(0).hover()
    assert said(tab) == "layer, head 0: “x” gives “x” 0.40, and as much to 1 more; no token gets more."
    tab.locator(".keys span").nth(2).hover()
    assert said(tab) == "layer, head 0: “x” gives “z” 0.20; the most, 0.40, goes to 2 tokens alike."


def test_all_heads_together_say_where_each_looks(show):
    w = torch.zeros(4, 2, 3)
    w[0, :, 1] = w[1, :, 2] = w[3, :, 2] = 1
    tab = show(HeadView(w, ["x", "y"], ["a", "b", "c"], together=True))
    where = "at “b” in head 0 (1.00); at “c” in heads 1 (1.00), 3 (1.00); at nothing in head 2"
    assert said(tab) == f"layer: “x” looks most {where}."
    assert tab.locator("svg path").count() == 3
    tab.get_by_role("button", name="layer, head 1").click()
    assert said(tab) == "layer, head 1: “x” gives “b” 0.00; the most goes to “c”, 1.00."
    assert tab.locator("svg path").count() == 1


def test_colors_change_with_the_page(show):
    """A dark gray would not be seen in the dark."""
    w = torch.eye(2).repeat(8, 1, 1)
    tab = show(HeadView(w, ["x", "y"], together=True))
    lines, small = tab.locator("svg path"), tab.locator(".head canvas").last
    pixel = "c => [...c.getContext('2d').getImageData(0, 0, 1, 1).data].slice(0, 3)"
    for theme, colors in (("light", palette.ON_LIGHT), ("dark", palette.ON_DARK), ("light", palette.ON_LIGHT)):
        tab.emulate_media(color_scheme=theme)
        tab.wait_for_function(
            "c => document.querySelector('svg path:last-child').getAttribute('stroke') === c", arg=colors[7]
        )
        assert lines.evaluate_all("all => all.map(line => line.getAttribute('stroke'))") == list(colors)
        assert small.evaluate(pixel) == [int(colors[7][at : at + 2], 16) for at in (1, 3, 5)]


def test_what_was_chosen_stays_in_sight_under_a_long_list(show):
    tab = show(large(), size="phone")
    last = tab.locator(".col button").last
    last.scroll_into_view_if_needed()
    last.click()
    assert "“word31”" in said(tab)
    box = tab.locator(".say").bounding_box()
    assert 0 <= box["y"] < box["y"] + box["height"] <= 844 / 4
    rows = tab.locator(".col button").evaluate_all("all => all.map(b => b.getBoundingClientRect().height)")
    assert min(rows) >= 28


def test_choosing_a_head_of_any_layer(show):
    tab = show(small())
    tab.get_by_role("button", name="layer 0, head 1").click()
    tab.locator(".col button").nth(2).hover()
    assert said(tab) == "layer 0, head 1: “a” gives “saw” 1.00, the most of all tokens."
    tab.get_by_role("button", name="layer 1, head 2").click()
    assert tab.locator("svg path").count() == 4
    tab.get_by_role("button", name="All heads of the layer").click()
    assert tab.locator("svg path").count() == 12
    assert tab.locator("svg path").evaluate_all("all => new Set(all.map(p => p.getAttribute('stroke'))).size") == 3


def test_the_matrix_shows_each_cell(show):
    tab = show(small())
    tab.get_by_role("button", name="Matrix").click()
    box = tab.locator("canvas.map").bounding_box()
    tab.mouse.move(box["x"] + box["width"] * 3.5 / 4, box["y"] + box["height"] * 1.5 / 4)
    assert said(tab) == "layer 0, head 0: “saw” gives “</b>” 0.00; the most goes to “saw”, 1.00."
    pixel = "(c, [x, y]) => c.getContext('2d').getImageData(x, y, 1, 1).data[3]"
    assert tab.locator("canvas.map").evaluate(pixel, [1, 1]) == 255
    assert tab.locator("canvas.map").evaluate(pixel, [1, 0]) == 0
    tab.get_by_role("button", name="Lines").click()
    assert tab.locator("svg path").count() == 1


def test_everything_can_be_done_with_the_keyboard(show):
    tab = show(small())
    tab.keyboard.press("Tab")
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowRight")
    assert said(tab).startswith("layer 1, head 1:")
    for key in ("Tab", "Tab"):  # lines, matrix
        tab.keyboard.press(key)
    tab.keyboard.press("Enter")
    assert tab.locator("canvas.map").count() == 1
    tab.keyboard.press("Tab")  # the words
    tab.keyboard.press("End")
    tab.keyboard.press("ArrowRight")
    assert said(tab) == "layer 1, head 1: “</b>” gives all 4 tokens the same, 0.25."
    assert tab.locator(".bars b").inner_text() == "“</b>” to “saw”"
    tab.keyboard.press("ArrowUp")
    assert said(tab).startswith("layer 1, head 1: “a” gives")
    assert tab.evaluate("document.activeElement.innerText") == "a"
    assert tab.locator(".mha-hv button[tabindex='0']").count() == 2  # one stop for the heads, one for the words


def test_the_products_behind_a_weight_add_up_to_the_score(show):
    torch.manual_seed(3)
    q, k = torch.randn(1, 3, 2), torch.randn(1, 3, 2)
    scores = q @ k.mT
    tab = show(HeadView((scores / 2**0.5).softmax(-1), list("abc"), q=q, k=k))
    for i in range(3):
        for j in range(3):
            tab.locator(".col button").nth(i).hover()
            tab.locator(".keys span").nth(j).hover()
            text = tab.locator(".products + p").inner_text()
            found = [float(x) for x in re.search(r"add up to (\S+), and to (\S+) after", text).groups()]
            assert found == pytest.approx([float(scores[0, i, j]), float(scores[0, i, j]) / 2**0.5], abs=0.011)
            channels = dict(re.findall(r"channel (\d) \((\S+)\)", text))
            assert "0.00" not in channels.values()
            assert float(channels.get("1", 0)) == pytest.approx(float(q[0, i, 1] * k[0, j, 1]), abs=0.011)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", list(SIZES))
def test_it_fits_and_can_be_read_everywhere(show, size, theme):
    tab = show(large(), size=size, theme=theme)
    for name in ("Lines", "Matrix"):
        tab.get_by_role("button", name=name).click()
        assert tab.evaluate(WIDER) <= 0
        assert tab.evaluate(CONTRAST) >= 4.5
        assert tab.evaluate(SMALL) == 0  # targets large enough for a finger
        assert tab.evaluate(NAMELESS) == tab.evaluate(HIDDEN_STOPS) == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", list(SIZES))
def test_everybody_can_use_it(show, violations, size, theme):
    """The rules of WCAG 2.2, levels A and AA, as axe checks them, with the view on and with the table that stays."""
    cross = HeadView(torch.eye(4)[None, :2], ["x", "y"], list("abcd"), name="cross")
    tab = show(large() + cross, size=size, theme=theme)
    for name in ("Matrix", "Lines"):
        tab.get_by_role("button", name=name).click()
        assert violations(tab, 5) == {}
    only_table = re.sub(r"<script.*?</script>", "", small()._repr_html_(), flags=re.DOTALL)
    tab.evaluate("page => { document.body.innerHTML = page; }", only_table)
    assert tab.locator("td", has_text="saw 1.00").first.is_visible()
    assert violations(tab, 5) == {}


def test_a_choice_changes_little_of_the_page(show):
    """Quick on any machine: as many changes as there are words and heads, not as many as there are weights."""
    tab = show(large())
    assert 0 < tab.evaluate(CHANGES) <= 8 * 32
    assert "“word20”" in said(tab)


def test_two_views_of_the_same_numbers_live_on_one_page(show):
    tab = show(small(), small())
    second = tab.locator(".mha-hv").nth(1)
    second.locator(".col button").nth(3).hover()
    assert "“</b>” gives" in second.locator("p[aria-live]").inner_text()
    assert "“I” gives" in tab.locator(".mha-hv").nth(0).locator("p[aria-live]").inner_text()


def test_it_starts_where_a_notebook_puts_it(show):
    """A notebook fills an element that is not on the page yet, renews its scripts, then shows it, maybe in a shadow."""
    tab = show(small())
    for shadow in (False, True):
        tab.evaluate(
            """([page, shadow]) => {
              const cell = document.createElement('div'), host = document.createElement('section');
              document.body.replaceChildren(host);
              cell.innerHTML = page;
              cell.querySelectorAll('script').forEach(old => {
                const renewed = document.createElement('script');
                renewed.textContent = old.textContent;
                old.replaceWith(renewed);
              });
              (shadow ? host.attachShadow({mode: 'open'}) : host).append(cell);
            }""",
            [small()._repr_html_(), shadow],
        )
        if shadow:  # scripts there do not know where they are: the table stays
            assert tab.locator("td", has_text="saw 1.00").first.is_visible()
        else:
            assert "“I” gives" in said(tab)


def test_moving_between_layers_of_different_lengths(show):
    cross = torch.eye(4)[None, :2].repeat(1, 1, 1)
    tab = show(small() + HeadView(cross, ["x", "y"], list("abcd"), name="cross"))
    tab.locator(".col button").nth(3).hover()
    tab.get_by_role("button", name="cross, head 0").click()
    assert said(tab) == "cross, head 0: “y” gives “b” 1.00, the most of all tokens."
    assert tab.locator(".keys span").all_inner_texts() == list("abcd")


def test_a_word_that_looks_at_nothing_says_so(show):
    tab = show(HeadView(torch.zeros(1, 2, 2), ["x", "y"]))
    assert said(tab) == "layer, head 0: “x” looks at nothing."


def test_without_scripts_the_table_is_there(show):
    tab = show(small(), scripts=False)
    assert tab.locator("table").count() == 2
    assert tab.locator("td", has_text="saw 1.00").first.is_visible()
    assert tab.locator(".mha-hv button").count() == 0
