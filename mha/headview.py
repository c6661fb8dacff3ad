"""An interactive view of the attention weights of a model, in one piece of HTML: no server, no network, no kernel.

It works in a notebook and in a static page, with a mouse, a finger or a keyboard, on light and on dark pages. Where
scripts are stripped a plain table stays.

Taught in: chapter 09.
"""

from collections.abc import Sequence

from mha._headview_inputs import Layer, read_layer, read_layers, shown
from mha._headview_page import write_page

MOST_NUMBERS = 400_000  # about 1 MB of page


class HeadView:
    """Explore which word looks at which: choose a head, point at a word, see its weights and where they come from.

    Views of several parts of a model add up: ``HeadView(encoder, source, name="encoder") + HeadView(cross, target,
    source, name="cross")``. Layers may have different numbers of heads. Weights are shown to two decimals and stored
    to four thousand steps.

    Shapes: ``weights`` (b, h, i, j) or (h, i, j), one tensor or one for each layer; ``tokens`` are the i words that
        look, ``keys`` the j words looked at (the same unless given); ``q`` (b, h, i, d) and ``k`` (b, h, j, d), again
        for each layer, show the products behind a weight. ``item`` says which of a batch is shown.
    Raises: ValueError for words that do not fit, numbers that are not finite, more words than can be drawn, and a
        batch without ``item``.
    Taught in: chapter 09.
    """

    def __init__(
        self,
        weights,
        tokens: Sequence[str],
        keys: Sequence[str] | None = None,
        *,
        q=None,
        k=None,
        name: str = "layer",
        item: int | None = None,
    ) -> None:
        """Take the weights; ``name`` stands before the number of each layer."""
        layers = read_layers(weights, "weights")
        if (q is None) != (k is None):
            raise ValueError("q and k belong together: give both, or neither")
        vectors = [[None] * len(layers) if x is None else read_layers(x, s) for x, s in ((q, "q"), (k, "k"))]
        if {len(x) for x in vectors} != {len(layers)}:
            raise ValueError(f"weights of {len(layers)} layers, but q and k of {len(vectors[0])} and {len(vectors[1])}")
        names = [f"{name} {n + 1}" if len(layers) > 1 else name for n in range(len(layers))]
        words = shown(tokens), shown(tokens if keys is None else keys)
        self.layers = [read_layer(n, *words, item, *x) for n, *x in zip(names, layers, *vectors, strict=True)]
        _check_size(self.layers)

    def __add__(self, other: "HeadView") -> "HeadView":
        """Show the layers of both views, one below the other."""
        both = object.__new__(HeadView)
        both.layers = [*self.layers, *other.layers]
        _check_size(both.layers)
        return both

    def __repr__(self) -> str:
        heads = [len(layer.weights) for layer in self.layers]
        return f"HeadView of {len(heads)} layers with {heads} heads"

    def _repr_html_(self) -> str:
        """Write the whole view."""
        return write_page(self.layers)


def _check_size(layers: list[Layer]) -> None:
    numbers = sum(x.size for layer in layers for x in (layer.weights, layer.q, layer.k) if x is not None)
    if numbers > MOST_NUMBERS:
        raise ValueError(
            f"{len(layers)} layers hold {numbers:,} numbers, but a page shows at most {MOST_NUMBERS:,}: give fewer "
            "layers, heads or words, or leave out q and k"
        )
