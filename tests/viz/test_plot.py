"""Every kind of figure draws what it is given, returns nothing and leaves nothing open."""

import itertools

import matplotlib as mpl
import numpy as np
import pytest
import torch

mpl.use("Agg")

import matplotlib.pyplot as plt

from mha.viz import plot


@pytest.fixture
def shown(monkeypatch):
    """The figure as it is when it is shown."""
    figures = []
    monkeypatch.setattr(plt, "show", lambda: figures.append(plt.gcf()))
    yield figures
    assert not plt.get_fignums()


def texts(axis):
    return [t.get_text() for t in axis.texts]


def test_a_grid_shows_each_matrix_with_its_numbers_and_labels(shown):
    weights = torch.tensor([[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]], requires_grad=True)
    assert plot.grid({"one": weights, "two": weights.detach().numpy()}, ["a", "b", "c"], ["x", "y"]) is None
    for axis, title in zip(shown[0].axes[:2], ("one", "two"), strict=True):
        assert axis.get_title() == title
        assert texts(axis) == ["0.25", "0.75", "1.00", "0.00", "0.50", "0.50"]
        assert np.allclose(axis.images[0].get_array(), weights.detach())
        assert axis.images[0].get_clim() == (0, 1)
        assert [t.get_text() for t in axis.get_yticklabels()] == ["a", "b", "c"]
        assert [t.get_text() for t in axis.get_xticklabels()] == ["x", "y"]


def test_a_grid_writes_numbers_only_where_there_is_room_or_when_told(shown):
    plot.grid({"large": np.zeros((11, 11))})
    plot.grid({"large": np.zeros((11, 11))}, numbers=True, digits=0)
    plot.grid({"small": np.eye(2)}, numbers=False, limits=(-1.0, 1.0))
    assert [len(texts(figure.axes[0])) for figure in shown] == [0, 121, 0]
    assert shown[2].axes[0].images[0].get_clim() == (-1, 1)


def test_a_grid_can_stand_in_several_lines(shown):
    plot.grid({name: np.eye(2) for name in "abc"}, across=2)
    assert [axis.get_title() for axis in shown[0].axes if axis.get_visible()] == ["a", "b", "c"]
    assert [axis.get_subplotspec().rowspan.start for axis in shown[0].axes[:3]] == [0, 0, 1]


def test_the_squares_of_a_small_matrix_can_be_counted_even_in_one_color(shown):
    plot.grid({"one": np.ones((3, 4))})
    plot.grid({"many": np.ones((20, 20))})
    lines = [[list(side.get_minorticklocs()) for side in (f.axes[0].xaxis, f.axes[0].yaxis)] for f in shown]
    assert lines == [[[0.5, 1.5, 2.5], [0.5, 1.5]], [[], []]]


def test_links_are_as_wide_as_their_weights(shown):
    assert plot.links({"head": np.array([[0.25, 0.75], [1.0, 0.0]])}, ["a", "b"]) is None
    widths = [line.get_linewidth() for line in shown[0].axes[0].lines]
    assert np.allclose(np.array(widths) / widths[2], [0.25, 0.75, 1.0, 0.0])
    assert sorted(texts(shown[0].axes[0])) == ["a", "a", "b", "b"]


def test_lines_differ_in_more_than_color(shown):
    series = {name: ([1.0, 2.0, 4.0], [1.0, 2.0, float(n)]) for n, name in enumerate("abc")}
    assert plot.lines(series, "x", "y", x_log=True, y_log=True, level={"limit": 0.5}) is None
    axis = shown[0].axes[0]
    assert (axis.get_xscale(), axis.get_yscale()) == ("log", "log")
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("x", "y")
    assert len({(line.get_linestyle(), line.get_marker()) for line in axis.lines[:3]}) == 3
    assert [t.get_text() for t in axis.get_legend().get_texts()] == ["a", "b", "c"]
    assert texts(axis) == ["limit"]
    assert np.array_equal(axis.lines[1].get_ydata(), [1, 2, 1])


@pytest.mark.parametrize("first", [1, 0.5])
def test_whole_numbers_are_marked_at_whole_numbers(shown, first):
    layers = first + np.arange(18)
    plot.lines({"gradient": (layers, layers)}, "layer", "size")
    ticks = [tick for tick in shown[0].axes[0].get_xticks() if layers[0] <= tick <= layers[-1]]
    assert len(ticks) > 2
    assert all(tick == round(tick) for tick in ticks) == (first == 1)


@pytest.mark.parametrize(("top", "says"), [(7.0, {"1", "2", "5"}), (1e7, {"1", "100", "10000", "1e+06"})])
def test_numbers_of_a_logarithmic_axis_have_no_small_exponents(shown, top, says):
    plot.lines({"a": ([1.0, 2.0], [1.0, top])}, "x", "y", y_log=True)
    side = shown[0].axes[0].yaxis
    found = {t.get_text() for t in (*side.get_ticklabels(), *side.get_ticklabels(minor=True))}
    assert says <= found
    assert not any("$" in text for text in found)


def test_bars_carry_their_numbers(shown):
    assert (
        plot.bars({"a": 1.0, "b": 2.25}, "loss", errors={"a": 0.1, "b": 0.2}, digits=1, level={"chance": 0.5}) is None
    )
    axis = shown[0].axes[0]
    assert [bar.get_height() for bar in axis.patches] == [1.0, 2.25]
    assert {"1.0", "2.2", "chance"} <= set(texts(axis))
    assert axis.get_ylabel() == "loss"


def test_tiles_have_the_color_of_their_owner_and_gray_where_there_is_none(shown):
    owners = np.array([[0, 1], [-1, 0]])
    assert plot.tiles({"a": np.arange(4).reshape(2, 2), "b": [[0.5]]}, {"a": owners, "b": 2}, rows=["x", "y"]) is None
    axis, other = shown[0].axes
    picture = axis.images[0].get_array()
    assert picture.shape == (2, 2, 3)
    assert np.array_equal(picture[0, 0], picture[1, 1])
    assert not np.array_equal(picture[0, 0], picture[0, 1])
    assert len(set(picture[1, 0])) == 1
    assert texts(axis) == ["0", "1", "2", "3"]
    assert other.get_title() == "b"


def test_upright_lines_carry_their_names(shown):
    plot.lines({"a": ([1.0, 4.0], [1.0, 2.0])}, "x", "y", place={"end": 3.0})
    axis = shown[0].axes[0]
    assert texts(axis) == ["end"]
    assert list(axis.lines[1].get_xdata()) == [3, 3]


def test_on_a_phone_figures_are_narrow_and_say_the_same(shown):
    def draw():
        plot.grid({f"the panel {n}": np.full((4, 4), n) for n in range(4)}, "abcd", ["long name"] * 4)
        plot.lines({name: ([1.0, 2.0], [1.0, 2.0]) for name in "ab"}, "x", "y", level={"limit": 1.5})
        plot.bars({"one\nhead": 1.0, "compos-\nable": 2.25}, "loss", level={"chance": 0.5})
        plot.tiles({name: np.zeros((2, 6)) for name in "ab"}, {"a": -1, "b": 0})
        plot.links({"a": np.eye(3), "b": np.eye(3)}, "abc")

    draw()
    with plot.narrow():
        draw()
    wide, narrow = shown[:5], shown[5:]
    assert all(figure.get_figwidth() <= plot.NARROW for figure in narrow)
    assert not any(figure.get_figwidth() <= plot.NARROW for figure in wide)
    for one, other in zip(wide, narrow, strict=True):
        assert [texts(axis) for axis in one.axes] == [texts(axis) for axis in other.axes]
    assert narrow[0].axes[0].get_gridspec().ncols < 4
    assert len(narrow[1].legends[0].get_texts()) == 2
    assert [name.get_text() for name in narrow[2].axes[0].get_yticklabels()] == ["one head", "composable"]
    assert [bar.get_width() for bar in narrow[2].axes[0].patches] == [1, 2.25]
    with plot.narrow(), pytest.raises(ValueError, match="no bar"):
        plot.bars({}, "y")
    plot.bars({"a": 1.0}, "y")
    assert shown[-1].get_figwidth() > plot.NARROW, "narrow no longer"


def test_the_style_of_other_figures_is_left_alone(shown):
    before = dict(mpl.rcParams)
    plot.bars({"a": 1.0}, "y")
    assert dict(mpl.rcParams) == before


def test_neighboring_colors_can_be_told_apart_without_color():
    """Brightness, as an eye without color sees it, differs between each color and the next."""
    bright = [0.299 * r + 0.587 * g + 0.114 * b for r, g, b in map(mpl.colors.to_rgb, plot.COLORS)]
    assert len(set(plot.COLORS)) == len(plot.COLORS) == 8
    assert all(abs(a - b) > 0.04 for a, b in itertools.pairwise(bright))


def test_a_grid_without_numbers_shows_its_scale_of_colors_in_one_bar_as_high_as_the_grids(shown):
    def draw():
        plot.grid({"one": np.arange(121.0).reshape(11, 11), "two": np.eye(11)}, across=2)
        plot.grid({"written": np.eye(2), "large": np.eye(11)})
        plot.grid({f"{n}": np.arange(32.0).reshape(2, 16) for n in range(3)}, numbers=False, across=1)

    draw()
    with plot.narrow():
        draw()
    assert [len(figure.axes) for figure in shown] == [3, 2, 4] * 2
    assert [shown[0].axes[2].get_ylim(), shown[3].axes[2].get_xlim()] == [(0, 120)] * 2
    for figure, lows, highs in ((shown[0], 1, 3), (shown[2], 1, 3), (shown[3], 0, 2), (shown[5], 0, 2)):
        figure.draw_without_rendering()
        *grids, bar = [axis.get_position().extents for axis in figure.axes]
        assert bar[lows] == pytest.approx(min(box[lows] for box in grids), abs=1e-6)
        assert bar[highs] == pytest.approx(max(box[highs] for box in grids), abs=1e-6)


def test_a_grid_of_two_numbers_has_two_colors_and_a_legend(shown):
    plot.grid({"mask": np.tri(3)}, numbers=False, legend=("hidden", "may look"))
    plot.grid({"open": np.ones((2, 2))}, numbers=False, legend=["hidden", "may look"])
    plot.grid({"one": np.zeros((11, 11)), "two": 3 * np.eye(11)})
    words = [[text.get_text() for text in figure.legends[0].get_texts()] for figure in shown]
    assert words == [["may look", "hidden"], ["may look", "hidden"], ["3", "0"]]
    assert [len(figure.axes) for figure in shown] == [1, 1, 2], "no bar"
    for figure in shown[:2]:  # one color for 1, even where there is no 0
        picture, patch = figure.axes[0].images[0], figure.legends[0].get_patches()[0]
        assert picture.to_rgba(1.0) == patch.get_facecolor()
    with pytest.raises(ValueError, match="numbers from 0 to 2"):
        plot.grid({"a": [[0, 2]]}, legend=("hidden", "may look"))
    with pytest.raises(ValueError, match="two names"):
        plot.grid({"a": [[0, 1]]}, legend=("hidden",))


def test_zero_between_both_signs_has_the_color_of_the_page(shown):
    numbers = np.array([[-1.0, 0.0, 3.0]])
    plot.grid({"a": numbers})
    with plot.dark():
        plot.grid({"a": numbers})
    for figure, page in zip(shown, (plot.STYLE["figure.facecolor"], plot.DARK), strict=True):
        picture = figure.axes[0].images[0]
        assert picture.get_clim() == (-3, 3)
        assert picture.to_rgba(0.0)[:3] == pytest.approx(mpl.colors.to_rgb(page), abs=0.01)


def test_a_grid_says_what_its_rows_and_columns_are(shown):
    plot.grid({name: np.eye(3) for name in "abc"}, range(3), range(3), across=2, x_label="key", y_label="query")
    seen = [(axis.get_xlabel(), axis.get_ylabel()) for axis in shown[0].axes if axis.get_visible()]
    assert seen == [("", "query"), ("key", ""), ("key", "query")]


def light(color):
    """The light of a color, from 0 to 1 (WCAG 2.2)."""
    parts = mpl.colors.to_rgb(color)
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one, other):
    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("night", [False, True])
def test_letters_are_read_on_a_light_and_on_a_dark_page(shown, night):
    def draw():
        plot.grid({"a": np.linspace(0, 1, 12).reshape(3, 4), "b": np.zeros((3, 4))}, "abc", "abcd", x_label="x")
        plot.grid({"a": np.linspace(-2, 1, 12).reshape(3, 4)})
        plot.grid({"a": np.eye(12)}, legend=("no", "yes"))
        plot.lines(
            {"a": ([1.0, 2.0], [1.0, 2.0]), "b": ([1.0], [2.0])}, "x", "y", level={"limit": 1.5}, place={"p": 1.0}
        )
        plot.bars({"a": 1.0}, "loss", errors={"a": 0.5}, level={"chance": 0.5})
        plot.tiles({"a": np.zeros((1, 9))}, {"a": [list(range(-1, 8))]}, rows=["r"])
        plot.links({"a": np.eye(2)}, "ab")

    if night:
        with plot.dark():
            draw()
    else:
        draw()
    page = plot.DARK if night else "white"
    for figure in shown:
        assert mpl.colors.same_color(figure.get_facecolor(), page)
        figure.draw_without_rendering()
        for axis in figure.axes:
            names = [axis.title, axis.xaxis.label, axis.yaxis.label, *axis.get_xticklabels(), *axis.get_yticklabels()]
            names += [text for legend in (axis.get_legend(), *figure.legends) if legend for text in legend.get_texts()]
            assert all(contrast(name.get_color(), page) >= 4.5 for name in names)
            for text in axis.texts:
                squares = [one.get_array() for one in axis.images]
                below = page
                if squares:
                    x, y = text.get_position()
                    value = squares[0][int(y), int(x)]
                    below = value if np.ndim(value) else axis.images[0].to_rgba(value)
                assert contrast(text.get_color(), below) >= 4.5
            for line in axis.lines:
                assert not night or contrast(line.get_color(), page) >= 3
    plot.bars({"a": 1.0}, "y")
    assert mpl.colors.same_color(shown[-1].get_facecolor(), "white"), "dark no longer"


def test_bars_have_one_color(shown):
    plot.bars({"a": 1.0, "b": 2.0, "c": 0.5}, "y")
    assert len({bar.get_facecolor() for bar in shown[0].axes[0].patches}) == 1
