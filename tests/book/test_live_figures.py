"""Figures that can be moved: they compute what the package computes, with mouse and keyboard, on desk and phone.

The scripts are read as they are in the repository, in a page that holds nothing but one figure.
"""

import re

import pytest
import torch
from live_figures import ROOT, SIZES, STATIC, computed, course_live, said, settings

import mha
from mha.course import released
from mha.functional import count_forms, delta_rule
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
    before = re.sub(r'\\n",\s+"', " ", text[max(0, at - 2500) : at])  # a line may end within the two words
    assert "**Your task:**" in before
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


CUT = """() => [...document.querySelectorAll('.picture svg')].flatMap(svg => {
  const {x, y, width, height} = svg.viewBox.baseVal, place = svg.getScreenCTM().inverse();
  return [...svg.querySelectorAll('text')].filter(text => {
    const b = text.getBoundingClientRect(), at = (x, y) => new DOMPoint(x, y).matrixTransform(place);
    const from = at(b.left, b.top), to = at(b.right, b.bottom);
    return from.x < x - 1 || from.y < y - 3 || to.x > x + width + 1 || to.y > y + height + 3;
  }).map(text => text.textContent);
})"""


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_no_text_reaches_beyond_its_drawing(live, name):
    tab = live(name)
    for one in [None, *tab.locator(".mha-live :is(input[type=radio], input[type=checkbox])").all()]:
        if one is not None:
            one.click()
        assert tab.evaluate(CUT) == []
    for number in range(tab.locator(".mha-live select").count()):
        listed = tab.locator(".mha-live select").nth(number)
        for value in listed.evaluate("e => [...e.options].map(one => one.value)"):
            listed.select_option(value)
            assert tab.evaluate(CUT) == []


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
def test_a_number_of_a_model_that_is_moved_makes_it_your_numbers(live):
    tab = live("cache")
    tab.locator("input[name=kv]").press("ArrowRight")
    assert tab.locator("select").input_value() == "your numbers"
    assert "32 layers, 12 KV heads of 128. 1.50 GiB" in said(tab)
    tab.locator("select").select_option("Llama 3.1 70B")
    assert tab.locator("input[name=layers]").input_value() == "80"
    for _ in range(4):
        tab.locator("input[name=context]").press("ArrowRight")
    assert "40.0 GiB for 1 × 131,072 tokens, 320 KiB for one more token" in said(tab)


# ---- expanded or absorbed


@pytest.mark.slow
def test_both_forms_have_the_flops_that_the_package_counts(live):
    tab = live("absorbed")
    for sizes in ((1, 65_536, 128, 128, 512, 64), (170, 1024, 8, 64, 256, 0), (4096, 64, 1, 8, 8, 32)):
        settings = dict(zip(("asked", "kept", "heads", "width", "latent", "rotary"), sizes, strict=True))
        found, right = computed(tab, "absorbed", **settings), count_forms(*sizes)
        assert (found["expanded"], found["absorbed"]) == right
    border = computed(tab, "absorbed", asked=1, kept=2**20)["border"]
    for i in (int(border), int(border) + 1):
        two = count_forms(i, 2**20, 128, 128, 512, 64)
        assert (two.absorbed < two.expanded) == (i < border)


@pytest.mark.slow
def test_a_latent_as_wide_as_a_head_has_no_border(live):
    tab = live("absorbed")
    for _ in range(2):
        tab.locator("input[name=latent]").press("ArrowLeft")
    assert "never loses" in said(tab)
    tab.locator("input[name=asked]").press("End")
    assert "4,096 new tokens" in said(tab)
    assert "The absorbed form needs fewer" in said(tab)


# ---- a state to write into


@pytest.mark.slow
@pytest.mark.parametrize("erase", [False, True])
def test_the_state_is_that_of_the_delta_rule(live, erase):
    tab = live("state")
    keys = {"key 1": [1, 0, 0], "key 2": [0, 1, 0], "key 3": [0, 0, 1], "between 1 and 2": [0.6, 0.8, 0]}
    written = [("key 1", "a"), ("between 1 and 2", "b"), ("key 1", "c"), ("key 3", "d"), ("key 2", "a")]
    k = torch.tensor([keys[key] for key, _ in written]).double()[None, None]
    v = torch.eye(4).double()[["abcd".index(value) for _, value in written]][None, None]
    for alpha, beta in ((1.0, 1.0), (0.9, 0.5), (0.3, 1.0)):
        found = computed(tab, "state", written=written, erase=erase, alpha=alpha, beta=beta)
        rates = torch.full((1, 1, len(written)), beta).double()
        _, state = delta_rule(k, k, v, rates, torch.full_like(rates, alpha).log(), erase=erase)
        assert torch.allclose(torch.tensor(found["T"]).double(), state[0, 0], atol=1e-6)
        for name, key in keys.items():
            read = torch.tensor(key).double() @ state[0, 0]
            assert torch.allclose(torch.tensor(found["reads"][name]).double(), read, atol=1e-6)


@pytest.mark.slow
def test_buttons_write_and_the_rule_can_be_changed_afterwards(live):
    tab = live("state")
    write = tab.get_by_role("button", name="Write token")
    write.click()
    tab.locator("select[name=value]").select_option("b")
    write.click()
    assert "Adding: key 1 now reads 1.00 of a, 1.00 of b" in said(tab)
    tab.get_by_label("Delta rule").check()
    assert "key 1 now reads 0.00 of a, 1.00 of b" in said(tab)
    tab.get_by_role("button", name="Empty the state").click()
    assert "nothing yet" in said(tab)


# ---- the roofline


@pytest.mark.slow
def test_the_dots_have_the_flops_and_bytes_of_the_layers(live):
    tab = live("roofline")
    for width, context, batch, tokens, share, bits in ((512, 128, 1, 1, 1, 32), (4096, 8192, 64, 4, 8, 16)):
        heads, dtype = width // 128, {16: torch.bfloat16, 32: torch.float32}[bits]
        layer = mha.GroupedAttention(width, heads, max(1, heads // share), bias=False, device="meta", dtype=dtype)
        asked = {"width": width, "context": context, "batch": batch, "tokens": tokens, "share": share, "bits": bits}
        steps = computed(tab, "roofline", peak=10, bandwidth=100, **asked)["steps"]
        for phase, cost in (
            ("decode", layer.cost(batch, tokens, context, fresh=tokens)),
            ("prefill", layer.cost(batch, context)),
        ):
            for name, part in (("projection", "W_q"), ("scores", "scores")):
                one, right = steps[f"{phase}: {name}"], cost.parts[part]
                assert (one["flops"], one["bytes"]) == (right.flops, right.moved)
                assert one["seconds"] == pytest.approx(max(right.flops / 10e12, right.moved / 100e9))


@pytest.mark.slow
def test_a_batch_lifts_the_projection_and_sharing_the_scores(live):
    tab = live("roofline")
    assert "The ridge is at 295" in said(tab)
    assert "In decode, the projection waits for memory and the part of the scores waits" in said(tab)
    tab.locator("input[name=batch]").press("End")
    assert "In decode, the projection is limited by arithmetic and the part of the scores waits" in said(tab)
    tab.locator("input[name=peak]").press("Home")
    assert tab.locator("select[name=machine]").input_value() == "your numbers"


# ---- tiles


@pytest.mark.slow
@pytest.mark.parametrize("tile", [1, 2, 4, 8])
def test_tiles_end_with_the_softmax_and_its_gradient(live, tile):
    tab = live("tiles")
    found = computed(tab, "tiles", tile=tile, step=(8 // tile) ** 2)
    scores = torch.tensor(found["scores"]).double()
    values = torch.tensor(found["values"]).double().requires_grad_()
    outputs = scores.softmax(-1) @ values
    outputs.sum().backward()
    for key, right in (("z", outputs), ("m", scores.amax(1))):
        assert torch.allclose(torch.tensor([one[key] for one in found["state"]]).double(), right, atol=1e-5)
    assert torch.allclose(torch.tensor(found["logsumexp"]).double(), scores.logsumexp(1), atol=1e-5)
    assert torch.allclose(torch.tensor(found["gradient"]).double(), values.grad, atol=1e-5)
    half = computed(tab, "tiles", tile=tile, step=1)["state"][0]
    assert half["m"] == pytest.approx(scores[0, :tile].max().item(), abs=1e-5)
    assert half["l"] == pytest.approx((scores[0, :tile] - scores[0, :tile].max()).exp().sum().item(), abs=1e-5)


@pytest.mark.slow
def test_tiles_end_and_begin_again(live):
    tab = live("tiles")
    tab.locator("input[name=tile]").press("ArrowRight")
    following = tab.get_by_role("button", name="Next tile")
    for _ in range(4):
        following.click()
    assert following.is_disabled()
    assert "Tile 4 of 4" in said(tab)
    tab.get_by_label("backward").check()
    assert "Tile 0 of 4" in said(tab)
