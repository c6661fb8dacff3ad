"""What several drawings are made of."""

from mha.reference import EXAMPLE, matmul

HEADS = ("head-0", "head-1")


def words_in_boxes(panel, words, y, colors=(), x=10, wide=320):
    """Words in boxes side by side; gives the middle of each."""
    step = wide / len(words)
    middles = [x + step * (n + 0.5) for n in range(len(words))]
    for n, (middle, word) in enumerate(zip(middles, words, strict=True)):
        panel.box(middle - step / 2 + 4, y, step - 8, 26, colors[n] if colors else "", word)
    return middles


def one_of_heads(x, h):
    """Queries, keys and values of one head of the running example."""
    found = (matmul(x, EXAMPLE[name]) for name in ("w_q", "w_k", "w_v"))
    return [[row[2 * h : 2 * h + 2] for row in rows] for rows in found]


def table(panel, x, y, rows, color, size=30):
    """Numbers in boxes, each tinted by its size."""
    top = max(abs(number) for row in rows for number in row)
    for i, row in enumerate(rows):
        for j, number in enumerate(row):
            words = (f"{number:g}" if number == round(number) else f"{number:.2f}").replace("-", "−")
            kind = color[j] if isinstance(color, tuple) else color
            place = x + (size + 2) * j, y + 26 * i, size, 24
            panel.box(*place, kind, words, size=11.5, tint=6 + 50 * abs(number) / top)


def area(panel, path, color, tint=18):
    """An area with a border, as boxes have it."""
    panel.parts.append(f'<path class="box {color}" d="{path}" style="--n:{tint:.0f}%"/>')


def shades(panel, x, y, rows, color, size):
    """A matrix of numbers from 0 to 1, each cell as dark as the root of its number; equal cells are one path."""
    found = {}
    for i, row in enumerate(rows):
        for j, number in enumerate(row):
            found.setdefault(round(20 * number**0.5), []).append(f"M{x + size * j:g} {y + size * i:g}")
    for level, places in sorted(found.items()):
        cells = "".join(f"{place}h{size}v{size}h-{size}z" for place in places)
        panel.parts.append(
            f'<path class="box {color}" d="{cells}" style="--n:{5 * level}%;stroke:var(--pst-color-background)"/>'
        )
    panel.path(f"M{x:g} {y:g}h{size * len(rows[0])}v{size * len(rows)}h-{size * len(rows[0])}z", "", 1)
