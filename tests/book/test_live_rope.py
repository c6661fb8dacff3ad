"""Rotary positions in chapter 08: the hands, the channels and the score are those of mha.RotaryPositions."""

import itertools
import math

import pytest
import torch
from live_figures import computed, said, settings

import mha

LAST = 40
POSITIONS, BASES = [(14, 10), (0, 0), (3, 40), (40, 39)], [10.0, 10_000.0, 1_000_000.0]
DRAWN = [*itertools.product(POSITIONS, BASES, ["half", "interleaved"])]


def token(tab):
    return torch.tensor(tab.evaluate("mhaLive.figures.rope.token"), dtype=torch.float64)[None, None, None]


def where(tab, kind):
    """The middle of a token on the ruler, in pixels of the page."""
    box = tab.locator(f".drag circle.{kind}").bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


@pytest.mark.slow
def test_it_rotates_and_scores_as_the_package_does(live):
    tab = live("rope")
    x = token(tab)
    for (i, j), base, layout in DRAWN:
        positions = mha.RotaryPositions(base, layout)
        q, k = positions.rotate(x, i), positions.rotate(x, j)
        found = computed(tab, "rope", i=i, j=j, base=base, layout=layout)
        torch.testing.assert_close(torch.tensor([found["q"], found["k"]]), torch.cat([q, k])[:, 0, 0])
        score = (q @ k.mT).item() / x.shape[-1] ** 0.5
        assert math.isclose(found["score"], score, abs_tol=1e-12)
        assert math.isclose(found["curve"][abs(i - j)], score, abs_tol=1e-9)


@pytest.mark.slow
def test_the_score_knows_the_distance_only_and_the_layouts_agree_at_none(live):
    tab = live("rope")
    scores = [computed(tab, "rope", i=i, j=i + 7)["score"] for i in range(LAST - 6)]
    assert max(scores) - min(scores) < 1e-12
    half, other = (computed(tab, "rope", layout=layout)["curve"] for layout in ("half", "interleaved"))
    assert math.isclose(half[0], other[0])
    assert max(abs(a - b) for a, b in zip(half, other, strict=True)) > 0.5


@pytest.mark.slow
def test_the_page_shows_the_numbers_of_the_package(live):
    tab = live("rope")
    tab.get_by_label("interleaved").check()
    tab.locator("input[name=i]").press("ArrowRight")
    positions, x = mha.RotaryPositions(layout="interleaved"), token(tab)
    shown = tab.locator(".picture text").all_text_contents()
    for position in (15, 10):
        for number in positions.rotate(x, position).flatten().tolist():
            assert f"{number:.2f}".replace("-", "−") in shown
    assert "Query at 15, key at 10: for any two positions 5 apart" in said(tab)
    assert "0 with 1, 2 with 3, 4 with 5, 6 with 7" in said(tab)


@pytest.mark.slow
@pytest.mark.parametrize("size", ["desktop", "phone"])
@pytest.mark.parametrize(("kind", "name", "to"), [("q", "i", 30), ("k", "j", 0), ("k", "j", LAST)])
def test_a_token_is_dragged_along_the_ruler(live, size, kind, name, to):
    tab = live("rope", size)
    start = settings(tab)
    (x, y), (x_of_q, _), (x_of_k, _) = where(tab, kind), where(tab, "q"), where(tab, "k")
    step = (x_of_q - x_of_k) / (start["i"] - start["j"])
    tab.mouse.move(x, y)
    tab.mouse.down()
    for share in (0.3, 0.7, 1):  # the drawing is made anew under the pointer
        tab.mouse.move(x + share * step * (to - start[name]), y + 3)
    assert settings(tab) == start | {name: to}
    tab.mouse.up()
    tab.mouse.move(x, y)
    assert settings(tab)[name] == to
    assert abs(where(tab, kind)[0] - x - step * (to - start[name])) < 1


@pytest.mark.slow
def test_a_finger_drags_a_token_and_does_not_scroll(live):
    tab = live("rope", "phone")
    touch = tab.context.new_cdp_session(tab)
    x, y = where(tab, "q")
    for kind, points in (("touchStart", [(x, y)]), ("touchMove", [(x + 40, y + 9)]), ("touchMove", [(x + 80, y + 90)])):
        points = [{"x": a, "y": b} for a, b in points]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert settings(tab)["i"] > 20
    assert tab.evaluate("scrollY") == 0


@pytest.mark.slow
def test_the_task_of_the_figure_has_its_answer(live):
    tab = live("rope")
    tab.get_by_role("button", name="Move both").click()
    assert (settings(tab)["i"], settings(tab)["j"]) == (15, 11)
    assert "4 apart the score is 1.36" in said(tab)
    turns = {n: computed(tab, "rope", i=n, j=0)["turns"][1] for n in range(LAST + 1)}
    assert min(turns, key=lambda n: abs(turns[n] - 0.5)) == 31
    larger = {base: computed(tab, "rope", i=LAST, j=0, base=base)["turns"][1] for base in (10_000, 100_000)}
    assert larger[100_000] < 0.5 < larger[10_000]
    tab.locator("input[name=i]").fill(str(LAST))
    assert tab.get_by_role("button", name="Move both").is_disabled()
