"""Which query attends to which key, drawn as text: one small table for each head, which a reader's own fonts can show.

Chinese needs fonts that a picture made of dots may lack. Here every character stays a character.

:Taught in: in_the_transformer.
"""

from collections.abc import Sequence
from html import escape

from jaxtyping import Float
from torch import Tensor

from mha.checks import check_whole, checked

WIDE, HIGH, LEFT, TOP = 10, 18, 30, 22  # one square, and the room for the two texts


ROW = "display: flex; flex-wrap: wrap; gap: 12px 20px"


PANEL = "flex: 1 1 300px; max-width: 24rem; margin: 0"


COLOR = "fill: var(--pst-color-primary, var(--jp-brand-color1, currentColor))"


class Looks:
    """Show which part of a source each generated character attends to, head by head.

    In a notebook it is a picture: generated characters down the side, the source along the top, and the stronger a
    square, the larger the weight, in steps of a tenth. It takes the colors of its page. As text, and for
    a screen reader, it names the source character with the largest weight for each generated one.

    :Raises: ValueError where the texts are not as long as the weights, or a weight does not lie between 0 and 1.
    :Taught in: in_the_transformer.
    """

    @checked
    def __init__(
        self, weights: Float[Tensor, "h i j"], written: Sequence[str], source: Sequence[str], caption: str = ""
    ) -> None:
        """Keep the weights and the texts.

        :param weights: between 0 and 1, (h, i, j).
        :param written: i generated characters, the queries.
        :param source: j characters, the keys.
        :param caption: shown below the picture; nothing unless given.
        """
        if 0 in weights.shape or weights.is_meta:
            raise ValueError(f"weights have shape {tuple(weights.shape)} on {weights.device}: there is nothing to show")
        if weights.ndim != 3 or tuple(weights.shape[1:]) != (len(written), len(source)):
            raise ValueError(
                f"weights have shape {tuple(weights.shape)}, but must be (heads, written, source) = "
                f"(heads, {len(written)}, {len(source)})"
            )
        if not bool(((weights >= 0) & (weights <= 1)).all()):
            raise ValueError(
                f"weights of shape {tuple(weights.shape)}: one does not lie between 0 and 1; pass the weights, "
                "not the scores"
            )
        self.weights, self.written, self.source = weights.detach().double(), list(written), list(source)
        self.caption = caption

    def most(self, head: int) -> str:
        """Name the source character with the largest weight for each generated one.

        :param head: its number, from 0.
        """
        check_whole(0, head=head)
        if head >= len(self.weights):
            raise ValueError(f"head = {head}: there are {len(self.weights)}, numbered from 0")
        places = self.weights[head].argmax(-1).tolist()
        return ", ".join(f"{w}←{_shown(self.source[j])}" for w, j in zip(self.written, places, strict=True))

    def __repr__(self) -> str:
        return "\n".join(f"head {head}: {self.most(head)}" for head in range(len(self.weights)))

    def _repr_html_(self) -> str:
        heads = "".join(self._head(head) for head in range(len(self.weights)))
        caption = f'<figcaption style="flex: 1 1 100%">{escape(self.caption)}</figcaption>' if self.caption else ""
        return f'<figure class="mha-drawing" style="{ROW}">{heads}{caption}</figure>'

    def _head(self, head: int) -> str:
        """Draw one head."""
        width, height = LEFT + WIDE * len(self.source), TOP + HIGH * len(self.written) + 4
        label = escape(f"Head {head}. Each generated character, and where it looks most: {self.most(head)}", True)
        top = "".join(_text(LEFT + WIDE * (j + 0.5), 15, c, 13) for j, c in enumerate(self.source))
        side = "".join(_text(14, TOP + HIGH * i + 14, c, 14) for i, c in enumerate(self.written))
        lines = "".join(
            f'<path d="M{LEFT} {TOP + HIGH * i}H{width}" stroke="currentColor" stroke-opacity="0.15"/>'
            for i in range(len(self.written) + 1)
        )
        return (
            f'<div style="{PANEL}"><div style="text-align: left">head {head}</div>'
            f'<svg viewBox="0 0 {width} {height}" role="img" style="width: 100%; height: auto" aria-label="{label}">'
            f'{lines}<g style="{COLOR}">{self._squares(head)}</g>'
            f'<g fill="currentColor" text-anchor="middle" font-family="monospace">{top}{side}</g></svg></div>'
        )

    def _squares(self, head: int) -> str:
        """Draw one square for each weight that rounds to a tenth or more."""
        tenths = (10 * self.weights[head]).round().int()
        return "".join(
            f'<rect x="{LEFT + WIDE * j}" y="{TOP + HIGH * i + 1}" width="{WIDE}" height="{HIGH - 2}" '
            f'fill-opacity="{tenths[i, j].item() / 10}"/>'
            for i, j in tenths.nonzero().tolist()
        )


def _text(x: float | int, y: int, character: str, size: int) -> str:
    return f'<text x="{x:g}" y="{y}" font-size="{size}">{escape(character)}</text>'


def _shown(character: str) -> str:
    return "␣" if character == " " else character
