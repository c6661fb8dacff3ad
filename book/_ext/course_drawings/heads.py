"""One head, its scale, its masks, and why there are many."""

from course_first import WIDE, Panel

from course_drawings.parts import HEADS, one_of_heads, table, words_in_boxes
from mha.reference import EXAMPLE, attention, attention_weights, softmax


def why_attention():
    panels = []
    for word, row in (("river", EXAMPLE["x"][1]), ("money", EXAMPLE["money"])):
        x = [EXAMPLE["x"][0], row, EXAMPLE["x"][2]]
        q, k, v = one_of_heads(x, 0)
        weights, after = attention_weights(q, k)[2], attention(q, k, v)[2]
        panel = Panel(290, f"the {word} bank")
        middles = words_in_boxes(panel, ["the", word, "bank"], 34)
        for n, (middle, weight) in enumerate(zip(middles, weights, strict=True)):
            panel.line(middle, 62, WIDE / 2 + 30 * (n - 1), 122, "head-0", 1 + 9 * weight)
            panel.text(middle + (n - 1) * 22 + 22 * (n == 1), 96, f"{weight:.0%}", size=12)
        panel.box(WIDE / 2 - 60, 124, 120, 26, "head-0", "bank, new")
        for y, name, values in ((184, "before", v[2]), (238, "after", after)):
            for at, (channel, value) in enumerate(zip(("water", "money"), values, strict=True)):
                panel.text(116, y + 22 * at, f"{channel} {name}", at="end", size=12, quiet=name == "before")
                panel.bar(124, y - 11 + 22 * at, 80 * value + 1, 14, "" if name == "before" else "head-0")
                panel.text(
                    130 + 80 * value, y + 22 * at, f"{value:.2g}" if value >= 0.1 else f"{value:.1f}", at="start"
                )
        panels.append(panel)
    return panels


def one_head():
    x, panel = EXAMPLE["x"], Panel(352)
    q, k, v = one_of_heads(x, 0)
    panel.text(84, 16, "X, three words", bold=True)
    table(panel, 20, 26, x, "")
    for n, (name, rows, color) in enumerate((("Q", q, "q"), ("K", k, "k"), ("V", v, "v"))):
        left = 20 + 110 * n
        panel.line(84, 108, left + 31, 132, color, 1.5, arrow=True)
        panel.text(left + 31, 150, name, bold=True)
        table(panel, left, 158, rows, color)
    panel.text(244, 64, "X times W_q, W_k, W_v", size=12, quiet=True)
    panel.line(51, 240, 60, 254, "q", 1.5, arrow=True)
    panel.line(161, 240, 110, 254, "k", 1.5, arrow=True)
    table(panel, 20, 258, attention_weights(q, k), "head-0", 34)
    panel.text(20, 348, "weights: each row sums to 1", at="start", size=11.5, quiet=True)
    panel.text(148, 300, "×", size=16)
    panel.text(172, 300, "V", bold=True)
    panel.text(196, 300, "=", size=16)
    table(panel, 220, 258, attention(q, k, v), "head-0", 36)
    panel.text(258, 348, "Y, the head output", size=11.5, quiet=True)
    return [panel]


def why_scale():
    directions = (1.3, 0.5, -0.2, -0.9, 0.1)
    panels = []
    for title, power in (("scores as they come", 0.5), ("scores divided by √d", 0)):
        panel = Panel(270, title)
        for row, d in enumerate((4, 64, 1024)):
            floor = 88 + 80 * row
            panel.text(10, floor - 20, f"d = {d}", at="start")
            for n, weight in enumerate(softmax([one * d**power for one in directions])):
                panel.bar(96 + 46 * n, floor - 56 * weight, 32, 56 * weight, "head-0")
                panel.text(112 + 46 * n, floor - 56 * weight - 4, f"{weight:.2f}", size=11)
            panel.line(86, floor, 326, floor, "", 1)
        panels.append(panel)
    return panels


def why_many_heads():
    fruits = (("red, sour", "cherry: 8"), ("yellow, sweet", "banana: 2"), ("green, bitter", "lime: 5"))
    one, two = Panel(270, "one head"), Panel(270, "two heads")
    for panel in (one, two):
        for n, (label, price) in enumerate(fruits):
            x = 10 + 110 * n
            panel.box(x, 104, 100, 26, "k", label, size=12)
            panel.box(x, 132, 100, 26, "v", price, size=12)
    one.box(70, 34, 200, 26, "q", "the red one? the sweet one?", size=12)
    one.line(150, 62, 62, 102, "head-0", 5)
    one.line(190, 62, 170, 102, "head-0", 5)
    one.line(62, 160, 150, 208, "head-0", 5)
    one.line(170, 160, 180, 208, "head-0", 5)
    one.box(90, 210, 160, 28, "head-0", "(8 + 2) / 2 = 5")
    one.text(WIDE / 2, 258, "the price of neither", size=12, quiet=True)
    for h, (question, x, answer) in enumerate((("the red one?", 20, "8"), ("the sweet one?", 190, "2"))):
        middle = (60, 170)[h]
        two.box(x, 34, 130, 26, "q", question, size=12)
        two.line(x + 65, 62, middle, 102, HEADS[h], 5)
        two.line(middle, 160, x + 65, 208, HEADS[h], 5)
        two.box(x, 210, 130, 28, HEADS[h], f"head {h}: {answer}")
    two.text(WIDE / 2, 258, "both prices, side by side", size=12, quiet=True)
    return [one, two]


def strips():
    panels = []
    for title, heads in (("1 head of width 512", 1), ("8 heads of width 64", 8)):
        panel = Panel(300, title)
        for h in range(heads):
            wide = 256 / heads
            panel.box(42 + wide * h, 34, wide, 92, "q", tint=18 + 18 * (h % 2))
            side = 84 if heads == 1 else 28
            x = WIDE / 2 - side / 2 if heads == 1 else 38 + 34 * h
            for i in range(4):
                for j in range(4):
                    tint = 10 + 70 * ((3 * i + 5 * j + 2 * i * j + 7 * h) % 8) / 7
                    panel.box(x + side / 4 * j, 178 + side / 4 * i, side / 4, side / 4, "head-0", tint=tint)
        panel.text(WIDE / 2, 146, "W_q: 512 × 512 numbers", size=12, quiet=True)
        panel.text(WIDE / 2, 290, "one set of weights" if heads == 1 else "eight sets of weights", size=12)
        panels.append(panel)
    return panels


DRAWINGS = (
    why_attention,
    one_head,
    why_scale,
    why_many_heads,
    strips,
)
