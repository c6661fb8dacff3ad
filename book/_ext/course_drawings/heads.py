"""One head, its scale, its masks, and why there are many."""

from math import exp, sqrt

from course_first import WIDE, Panel

from course_drawings.parts import HEADS, one_of_heads, table, words_in_boxes
from mha.reference import EXAMPLE, attention, attention_scores, attention_weights, causal_mask, dot, softmax


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


def leak_in_the_sum():
    panels = []
    for last, row in (("bank", EXAMPLE["x"][2]), ("money", EXAMPLE["money"])):
        q, k, _ = one_of_heads([*EXAMPLE["x"][:2], row], 1)
        powers = [exp(score) for score in attention_scores(q, k)[0]]
        panel = Panel(262, f"the river {last}")
        for top, name, seen in ((34, "weights erased", 3), (152, "scores hidden", 1)):
            panel.text(10, top + 16, name, at="start", bold=True)
            x, total = 10, sum(powers[:seen])
            for n, (word, power) in enumerate(zip(("the", "river", last), powers, strict=True)):
                if n < seen:
                    panel.box(
                        x, top + 26, 52 * power - 3, 28, "head-0" if n == 0 else "hidden", f"{power:.2f}", tint=45
                    )
                    panel.text(x + 26 * power - 1.5, top + 70, word, size=12, quiet=n > 0)
                x += 52 * power
            numbers = " + ".join(f"{power:.2f}" for power in powers[:seen])
            panel.text(
                10,
                top + 92,
                f"the: 1.00 / {numbers if seen == 1 else f'({numbers})'} = {powers[0] / total:.2f}",
                at="start",
            )
        panels.append(panel)
    return panels


def corners():
    words, panels, side = EXAMPLE["words"], [], 42
    q, k, v = one_of_heads(EXAMPLE["x"], 1)
    for title, causal in (("no mask", False), ("later words hidden", True)):
        panel = Panel(240, title)
        for n, left in ((1, 30), (2, 92), (3, 202)):
            mask = causal_mask(n) if causal else None
            weights = attention_weights(q[:n], k[:n], mask)
            for i in range(n):
                for j in range(n):
                    hides = causal and j > i
                    place = left + side * j, 56 + side * i, side - 3, side - 3
                    kind = "hidden" if hides else "head-0" if i == 0 else ""
                    panel.box(
                        *place, kind, "" if hides else f"{weights[i][j]:.2f}", size=11.5, tint=8 + 50 * weights[i][j]
                    )
                panel.text(left + side * (i + 0.5) - 1.5, 48, words[i], size=11.5, quiet=True)
            after = attention(q[:n], k[:n], v[:n], mask)[0]
            shown = ", ".join(f"{number:.2f}" for number in after)
            panel.text(left + side * n / 2, 56 + side * 3 + 20, f"{shown}", size=12, bold=True)
        panel.text(WIDE / 2, 224, "the output of “the”: " + ("it stays" if causal else "it changes with each word"))
        panels.append(panel)
    return panels


def two_readings():
    keep, panels = [[j < n for j in range(3)] for n in (3, 2, 1)], []
    for title, rows, right in (("(batch, key)", "sentence", True), ("(query, key)", "query", False)):
        panel = Panel(290, f"{'right' if right else 'wrong'}: read as {title}")
        for i in range(3):
            panel.text(138, 55 + 26 * i, f"{rows} {i + 1}", at="end", size=12)
            for j in range(3):
                panel.box(146 + 26 * j, 38 + 26 * i, 24, 24, "main" if keep[i][j] else "hidden", tint=45)
            top, left = 166, 14 + 112 * i
            panel.line(WIDE / 2 + 14 + 30 * (i - 1), 122, left + 44, 144, "", 1.5, arrow=True)
            panel.text(left + 44, 160, f"sentence {i + 1}", size=12)
            for a in range(3):
                for b in range(3):
                    seen = keep[i][b] if right else keep[a][b]
                    color = ("main" if keep[i][b] else "head-1") if seen else "hidden"
                    place = left + 30 * b, top + 2 + 30 * a, 27, 27
                    panel.box(*place, color, "" if keep[i][b] else "·", tint=45)
        panel.text(WIDE / 2, 282, "no word reads padding (·)" if right else "red: padding (·) is read", size=12)
        panels.append(panel)
    return panels


def one_number():
    one, two = Panel(300, "one head leaves a line"), Panel(300, "two heads leave a point")

    def at(red, sweet):
        return 46 + 24 * red, 262 - 22 * sweet

    for panel in (one, two):
        panel.line(*at(0, 0), *at(11.5, 0), "", 1.2, arrow=True)
        panel.line(*at(0, 0), *at(0, 10.4), "", 1.2, arrow=True)
        for price in (2, 5, 8):
            panel.text(at(price, 0)[0], 278, f"{price}", size=11.5, quiet=True)
            panel.text(40, at(0, price)[1] + 4, f"{price}", at="end", size=11.5, quiet=True)
        panel.text(190, 295, "price of the red fruit", size=12, quiet=True)
        panel.text(54, 36, "price of the sweet fruit", at="start", size=12, quiet=True)
    one.line(*at(0.4, 9.6), *at(9.9, 0.1), "head-0", 3)
    for red, sweet in ((8, 2), (5, 5), (2, 8)):
        x, y = at(red, sweet)
        one.dot(x, y, 6, "head-0", tint=100 if red == 8 else 20)
        one.text(x + 11, y - 4, f"({red} + {sweet}) / 2 = {(red + sweet) / 2:g}", at="start", size=12)
    two.line(*at(8, 0), *at(8, 8.6), "head-0", 3)
    two.line(*at(0, 2), *at(10.8, 2), "head-1", 3)
    two.dot(*at(8, 2), 7, "main", tint=100)
    two.text(at(8, 0)[0] - 8, at(0, 7.4)[1], "head 0: red costs 8", at="end", size=12)
    two.text(54, at(0, 2)[1] - 8, "head 1: sweet costs 2", at="start", size=12)
    return [one, two]


def outer_products():
    columns, rows = ([1, 0, 0.5], [0, 1, 0.5]), ([2, -2, 4, 6], [2, 4, 0, -2])
    parts = [[[p * out for out in row] for p in column] for column, row in zip(columns, rows, strict=True)]
    total = [[a + b for a, b in zip(one, two, strict=True)] for one, two in zip(*parts, strict=True)]
    panel = Panel(338)
    panel.text(79, 14, "weights", size=12, quiet=True)
    for h, part in enumerate(parts):
        top = 22 + 104 * h
        for n, fruit in enumerate(("cherry", "banana", "lime")):
            panel.text(56, top + 17 + 26 * n, fruit, at="end", size=11.5)
        table(panel, 62, top, [[p] for p in columns[h]], HEADS[h], 34)
        panel.text(110, top + 43, "×", size=16)
        panel.text(171, top + 16, f"head {h}", bold=True)
        table(panel, 122, top + 26, [rows[h]], HEADS[h], 22)
        panel.text(171, top + 68, "value and output", size=11.5, quiet=True)
        panel.text(230, top + 43, "=", size=16)
        table(panel, 242, top, part, HEADS[h], 22)
        panel.text(289, top + 93, "rank 1", size=12)
    panel.line(226, 230, 338, 230, "", 1.2)
    panel.text(214, 235, "+", size=16)
    table(panel, 242, 238, total, "", 22)
    panel.text(228, 280, "both heads", at="end", bold=True)
    panel.text(289, 332, "rank 2", size=12)
    return [panel]


def outline():
    colors, tastes = ((-1, -0.6), (0.9, -0.9), (1, 0.8), (-0.7, 1)), ((0, -0.62), (0.6, 0.1), (0.05, 0.55), (-0.58, 0))
    points = [(a + c, b + d) for a, b in colors for c, d in tastes]
    turns = [(sqrt(1 - (n / 500) ** 2) * sign, n / 500) for n in range(-500, 501) for sign in (-1, 1)]
    best = {max(points, key=lambda point, t=turn: dot(point, t)) for turn in turns}
    ring = sorted(best, key=lambda p: (p[1] >= 0, p[0] if p[1] < 0 else -p[0]))
    panels = []
    for wins, middle, steep, query in (({min(points), max(points)}, 150, 0, (1, 0)), (best, 150, 66, (0.94, 0.34))):
        panel = Panel(292, f"width {2 if steep else 1}: {len(wins)} of {len(points)} can win")
        places = {(x, y): (WIDE / 2 + 84 * x, middle - steep * y) for x, y in points}
        if steep:
            panel.path("M" + "L".join("{:.1f},{:.1f}".format(*places[one]) for one in ring) + "Z", "k", 1.5)
        else:
            panel.line(10, middle, 330, middle, "", 1)
        for point, (x, y) in places.items():
            panel.dot(x, y, 6, "k" if point in wins else "", tint=90 if point in wins else 12)
        far = places[max(points, key=lambda point: dot(point, query))]
        x, y = WIDE / 2, middle - 34 * (not steep)
        panel.line(x, y, x + 70 * query[0], y - 70 * query[1], "q", 3, arrow=True)
        panel.text(x - 8, y + 4, "query", at="end", size=12)
        side = (-34 * query[1], -34 * query[0])
        if steep:
            panel.line(far[0] - side[0], far[1] - side[1], far[0] + side[0], far[1] + side[1], "hidden", 1.5)
        panel.text(far[0], far[1] - 14 if not steep else far[1] - 46, "wins", size=12)
        panel.text(WIDE / 2, 284, "a fruit inside is farthest in no direction", size=12, quiet=True)
        panels.append(panel)
    return panels


DRAWINGS = (
    why_attention,
    one_head,
    why_scale,
    why_many_heads,
    strips,
    leak_in_the_sum,
    corners,
    two_readings,
    one_number,
    outer_products,
    outline,
)
