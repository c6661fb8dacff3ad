"""The head view: what it accepts, what it refuses, how large it is, and what a page without scripts shows."""

import colorsys
import json
import re
from importlib.resources import files

import numpy as np
import pytest
import torch
from bs4 import BeautifulSoup
from untrusted import cleaned

import mha
from mha import HeadView
from mha.viz import palette, plot

WORDS = ["I", "saw", "a", "saw"]


def weights(*shape):
    return torch.randn(*shape).softmax(-1)


def page(view):
    return BeautifulSoup(view._repr_html_(), "html.parser")


def data(view):
    return json.loads(re.search(r"const D = (.*);\n", view._repr_html_())[1])


def unpacked(packed):
    """Read the letters back, as the script does."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    codes = [alphabet.index(letter) for letter in packed["text"]]
    steps = torch.tensor([64 * a + b for a, b in zip(codes[::2], codes[1::2], strict=True)])
    return packed["low"] + (packed["high"] - packed["low"]) * steps / 4095


def test_numbers_arrive_in_the_page_to_four_thousand_steps():
    w, q, k = weights(1, 2, 4, 4), torch.randn(1, 2, 4, 3), torch.randn(1, 2, 4, 3)
    (layer,) = data(HeadView(w, WORDS, q=q, k=k))["layers"]
    for name, right in (("weights", w), ("queries", q), ("keys", k)):
        found = unpacked(layer[name])
        assert (found - right.flatten()).abs().max() < (found.max() - found.min().clamp(max=0)) / 8000
    assert layer["heads"] == 2
    assert layer["width"] == 3


def test_a_weight_of_zero_stays_exactly_zero():
    w = weights(2, 4, 4) * mha.causal_mask(4)
    found = unpacked(data(HeadView(w, WORDS))["layers"][0]["weights"])
    assert (found[w.flatten() == 0] == 0).all()


def test_eight_heads_over_32_words_fit_in_60_kilobytes():
    layer, x = mha.MultiHeadAttention(128, 8), torch.randn(1, 32, 128)
    q, k, _ = layer.project(x)
    with mha.watch(layer, "weights") as seen:
        layer(x)
    view = HeadView(seen.weights, [f"word{n}" for n in range(32)], q=q, k=k)
    assert len(view._repr_html_().encode()) <= 60_000
    assert len(HeadView(seen.weights, ["the"] * 32)._repr_html_().encode()) <= 40_000


def test_the_same_view_is_the_same_page_on_every_run():
    w = weights(2, 4, 4)
    assert HeadView(w, WORDS)._repr_html_() == HeadView(w.clone(), WORDS)._repr_html_()
    assert HeadView(w, WORDS)._repr_html_() != HeadView(w, [*WORDS[:3], "see"])._repr_html_()


def test_nothing_in_a_word_becomes_part_of_the_page():
    evil = ["</script><b>x", "<img src=x onerror=alert(1)>", "&lt;", "\"'`${1}\u2028\u202e"]
    view = HeadView(weights(2, 4, 4), evil, name="</style><i>'\"")
    soup = page(view)
    assert [len(soup.find_all(tag)) for tag in ("script", "style", "b", "i", "img")] == [1, 1, 0, 0, 0]
    found = [cell.text for cell in soup.find_all("th", scope="row")]
    assert found == [*evil[:3], "\"'`${1}\\u2028\\u202e"]
    assert data(view)["tokens"] == [found]
    assert "http" not in re.sub(r"http://www\.w3\.org/2000/svg", "", view._repr_html_())  # nothing is loaded


def test_words_that_cannot_be_seen_are_made_visible():
    view = HeadView(weights(1, 6, 6), [" the", "\n", "", "  ", "New York", "\x00"])
    assert data(view)["tokens"] == [["␣the", "⏎", "∅", "␣␣", "New York", "\\x00"]]


def test_without_scripts_a_table_says_where_each_word_looks_most():
    w = torch.zeros(2, 3, 3)
    w[0] = torch.eye(3)
    w[1, 1, 0] = 1.0
    soup = page(HeadView(w, ["x", "y", "z"]))
    cells = [[cell.text for cell in line.find_all("td")] for line in soup.find_all("tr")[1:]]
    assert cells == [["x 1.00", "nothing"], ["y 1.00", "x 1.00"], ["z 1.00", "nothing"]]
    assert "open" in soup.find("details").attrs


def test_a_program_that_takes_the_style_away_shows_the_table_and_what_to_do():
    w = torch.eye(4).repeat(1, 2, 1, 1)
    left = cleaned(HeadView(w, WORDS)._repr_html_())
    assert next(left.stripped_strings) == "Run this cell to choose heads and tokens."
    heads, *lines = ([cell.text for cell in line.find_all(["th", "td"])] for line in left.table.find_all("tr"))
    assert heads == ["", "head 0", "head 1"]
    assert lines == [[word, f"{word} 1.00", f"{word} 1.00"] for word in WORDS]
    assert ".mha-hv .bare{display:none}" in HeadView(w, WORDS)._repr_html_()


def test_the_table_counts_words_that_are_looked_at_alike():
    w = torch.tensor([[[0.4, 0.4, 0.2], [1 / 3, 1 / 3, 1 / 3], [0.1, 0.1, 0.8]]])
    cells = [cell.text for cell in page(HeadView(w, ["x", "y", "z"])).select("tr td")[1:]]
    assert cells == ["2 tokens alike, 0.40", "all tokens alike, 0.33", "z 0.80"]


def test_it_opens_on_the_word_whose_heads_choose_most():
    w = torch.zeros(1, 2, 3, 3)
    w[..., 0, 0] = 1  # the first word has no choice
    w[..., 1, :2] = 0.5
    w[..., 2, :] = torch.tensor([0.1, 0.8, 0.1])
    assert data(HeadView(w, ["x", "y", "z"]))["start"] == 2
    assert data(HeadView(torch.full((1, 3, 3), 1 / 3), ["x", "y", "z"]))["start"] == 0
    assert [data(HeadView(w, ["x", "y", "z"], together=t))["together"] for t in (True, False)] == [True, False]


def test_layers_may_have_different_numbers_of_heads_and_stacks_different_depths():
    encoder = HeadView([weights(1, n, 5, 5) for n in (2, 3, 1)], list("abcde"), name="encoder")
    cross = HeadView([weights(1, 4, 4, 5)], WORDS, list("abcde"), name="cross")
    view = encoder + HeadView(weights(1, 2, 4, 4), WORDS, name="decoder") + cross
    assert repr(view) == "HeadView of 5 layers with [2, 3, 1, 2, 4] heads"
    found = data(view)
    assert [layer["name"] for layer in found["layers"]] == ["encoder 0", "encoder 1", "encoder 2", "decoder", "cross"]
    assert found["tokens"] == [list("abcde"), WORDS]
    assert [(layer["rows"], layer["cols"]) for layer in found["layers"]] == [(0, 0)] * 3 + [(1, 1), (1, 0)]
    assert len(page(view).find_all("table")) == 5


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, "numpy", "list", "gradient"], ids=str)
def test_weights_come_in_any_form(kind):
    w = weights(2, 4, 4)
    forms = {"numpy": w.numpy(), "list": w.tolist(), "gradient": w.clone().requires_grad_()}
    view = HeadView(forms[kind] if kind in forms else w.to(kind), WORDS)
    assert np.abs(view.layers[0].weights - w.numpy()).max() < 0.01
    assert page(view).find("p", "note") is None  # rounding to half precision is no surprise


def test_weights_that_do_not_sum_to_one_are_said():
    w = weights(3, 4, 4)
    w[1] *= 1.5
    w[2, 3] = 0  # a row with nothing to look at is not odd
    (note,) = page(HeadView(w, WORDS, name="talking")).find_all("p", "note")
    assert note.text == "talking: weights of head 1 do not sum to one but to 1.50 to 1.50; drawn as they are."
    assert "heads 0, 1, 2" in page(HeadView(-weights(3, 4, 4), WORDS)).find("p", "note").text


# ---- refused


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
def test_what_is_no_number_is_refused_with_its_place(number):
    w = weights(2, 4, 4)
    w[1, 2, 3] = number
    with pytest.raises(ValueError, match=r"weights of layer 1 hold \S+ \(head 1, row 2, column 3\)"):
        HeadView([weights(2, 4, 4), w], WORDS)
    with pytest.raises(ValueError, match="q of layer hold"):
        HeadView(weights(2, 4, 4), WORDS, q=w, k=w)


def test_words_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"layer has weights of shape \(2, 4, 5\): tokens must be 4 tokens, not 5"):
        HeadView(weights(2, 4, 5), list("abcde"), list("abcde"))
    with pytest.raises(ValueError, match="keys must be 5 tokens, not 4"):
        HeadView(weights(2, 4, 5), WORDS)
    with pytest.raises(TypeError, match="one text, 'I saw a saw': give a list of tokens"):
        HeadView(weights(2, 11, 11), "I saw a saw")


def test_more_than_can_be_drawn_is_refused_with_the_way_out():
    with pytest.raises(ValueError, match=r"65 × 65 tokens, but at most 64.*tokens\[:64\]"):
        HeadView(weights(1, 65, 65), ["x"] * 65)
    most = HeadView(torch.eye(64).expand(1, 64, 64), [str(n) for n in range(64)])
    assert len(most._repr_html_()) < 27_000
    many = [weights(12, 64, 64)] * 9
    with pytest.raises(ValueError, match=r"9 layers hold 442,368 numbers.*fewer layers"):
        HeadView(many, ["x"] * 64)
    with pytest.raises(ValueError, match="10 layers hold"):
        HeadView(many[:5], ["x"] * 64) + HeadView(many[:5], ["x"] * 64)


def test_a_batch_needs_to_be_told_which():
    w = weights(3, 2, 4, 4)
    with pytest.raises(ValueError, match="weights of layer hold a batch of 3, one can be drawn: say which with item=0"):
        HeadView(w, WORDS)
    with pytest.raises(ValueError, match="item = 3, but weights of layer hold a batch of 3"):
        HeadView(w, WORDS, item=3)
    assert np.array_equal(HeadView(w, WORDS, item=2).layers[0].weights, w[2].numpy())


def test_shapes_that_cannot_be_drawn_are_refused():
    for w in (torch.rand(4, 4), torch.rand(1, 2, 0, 4), torch.rand(1, 1, 2, 4, 4)):
        with pytest.raises(ValueError, match=r"weights of layer 0, .* have shape .* but must be \(batch, head"):
            HeadView(w, WORDS)
    with pytest.raises(ValueError, match=r"q = .* and k = None belong together"):
        HeadView(weights(2, 4, 4), WORDS, q=torch.rand(2, 4, 3))
    with pytest.raises(ValueError, match="weights of 2 layers, but q and k of 1 and 1"):
        HeadView([weights(2, 4, 4)] * 2, WORDS, q=torch.rand(2, 4, 3), k=torch.rand(2, 4, 3))
    with pytest.raises(ValueError, match="repeat keys that several heads share"):
        HeadView(weights(2, 4, 4), WORDS, q=torch.rand(2, 4, 3), k=torch.rand(1, 4, 3))


def hue(color):
    return colorsys.rgb_to_hls(*(int(color[at : at + 2], 16) for at in (1, 3, 5)))[0]


def contrast(one, other):
    """As the guidelines define it (WCAG 2.2)."""
    parts = [[int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)] for color in (one, other)]
    light = [[p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in each] for each in parts]
    low, high = sorted(np.array(light) @ [0.2126, 0.7152, 0.0722])
    return (high + 0.05) / (low + 0.05)


def test_heads_have_the_colors_and_the_sizes_of_the_figures():
    """On a light and on a dark page: the same hues, each seen there."""
    text = HeadView(weights(8, 4, 4), WORDS)._repr_html_()
    on_light, on_dark = json.loads(re.search(r"const COLORS = (.*?);", text)[1])
    assert plot.COLORS is palette.COLORS
    assert [hue(color) for color in on_light + on_dark] == pytest.approx(
        2 * [hue(color) for color in plot.COLORS], abs=0.01
    )
    same = [color for color, other in zip(plot.COLORS, on_light, strict=True) if color == other]
    assert [color for color in plot.COLORS if color not in same] == ["#e0a100"]  # too light for a line on white
    for colors, page, least in ((on_light, palette.LIGHT, 3), (on_dark, palette.DARK, 4.5)):
        assert min(contrast(color, page) for color in colors) >= least
        assert len(set(colors)) == 8
    sizes = re.findall(r"font-size:([^;}]+)", files("mha.viz").joinpath("headview.css").read_text("utf8"))
    assert set(sizes) == {"var(--words)", "var(--small)"}
    assert f"--words:{plot.STYLE['font.size']}pt;--small:{plot.SMALL}pt" in text
