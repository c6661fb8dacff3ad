"""From two vectors to a weight: dot products, how large they are, and the axis of their softmax."""

from math import sqrt, tanh
from random import Random

from course_first import WIDE, Panel

from course_drawings.parts import one_of_heads
from mha.reference import EXAMPLE, attention, attention_scores, dot, matmul, softmax, transpose


def length_and_angle():
    river, bank = EXAMPLE["x"][1:]
    along = dot(river, bank) / sqrt(dot(river, river))  # of bank, in the direction of river; `up` is what is left of it
    long = sqrt(dot(bank, bank))
    up, panels = sqrt(long**2 - along**2), []
    for title, name, x, y in (
        ("the same direction, but short", "twin, bank / 4", along / 4, up / 4),
        ("another direction, but long", "5 × river", 5 * sqrt(dot(river, river)), 0),
    ):
        panel = Panel(196, title)
        panel.line(20, 122, 20 + 30 * along, 122 - 30 * up, "main", 2.5, arrow=True)
        panel.text(26 + 30 * along, 122 - 30 * up, f"bank, length {long:.2f}", at="start", size=12)
        other, score = sqrt(x * x + y * y), x * along + y * up
        if y:
            panel.line(27, 127, 27 + 30 * x, 127 - 30 * y, "", 2.5, arrow=True)
            panel.text(44, 118, f"{name}, length {other:.2f}", at="start", size=12)
        else:
            panel.line(20 + 30 * along, 126 - 30 * up, 20 + 30 * along, 122, "hidden", 1.2)
            panel.line(20, 122, 20 + 30 * x, 122, "", 2.5, arrow=True)
            panel.bar(20, 126, 30 * along, 5, "main")
            panel.text(20 + 30 * x, 110, f"{name}, length {other:.2f}", at="end", size=12)
            panel.text(58, 142, f"the shadow of bank, length {along:.2f}", at="start", size=12, quiet=True)
        panel.text(20, 166, f"cosine {score / long / other:.2f}", at="start")
        panel.text(
            20, 188, f"dot product {long if y else along:.2f} × {other:.2f} = {score:.2f}", at="start", bold=True
        )
        panels.append(panel)
    return panels


def one_sided():
    river, bank = EXAMPLE["x"][1:]
    q, k, _ = one_of_heads(EXAMPLE["x"], 0)
    alike = dot(river, bank) / sqrt(dot(river, river) * dot(bank, bank))
    raw = [" ".join(map(str, row)) for row in (river, bank)]
    asks, answers = ([" ".join(map(str, row)) for row in rows[1:]] for rows in (q, k))
    sides = (
        ("one vector for each word", "cosine", [*raw, *raw], ("", ""), f"{alike:.2f}", f"{alike:.2f}", (alike, alike)),
        (
            "a query and a key for each word",
            "score",
            [f"key {answers[0]}", f"query {asks[1]}", f"query {asks[0]}", f"key {answers[1]}"],
            ("k", "q"),
            f"{dot(q[2], k[1])}",
            f"{dot(q[1], k[2])}",
            (dot(q[2], k[1]), dot(q[1], k[2])),
        ),
    )
    panels = []
    for title, name, cells, (one, two), up, down, (there, back) in sides:
        panel = Panel(196, title)
        panel.text(62, 48, "river", bold=True)
        panel.text(278, 48, "bank", bold=True)
        for n, color in enumerate((one, two, two, one)):
            panel.box(10 + 216 * (n % 2), 60 + 70 * (n // 2), 104, 30, color, cells[n])
        panel.line(224, 75, 118, 75, "head-0" if one else "", 1.2 + 1.2 * there, arrow=True)
        panel.line(116, 145, 222, 145, "head-0" if one and back else "", 1.2 + 1.2 * back, arrow=True)
        panel.text(WIDE / 2, 62, f"{name} {up}")
        panel.text(WIDE / 2, 132, f"{name} {down}")
        equal = there == back
        words = "the same in both directions" if equal else "bank wants river; river does not want bank"
        panel.text(WIDE / 2, 188, words, size=12, quiet=True)
        panels.append(panel)
    return panels


def softmax_axis():
    q, k, v = one_of_heads(EXAMPLE["x"], 0)
    scores, panels = attention_scores(q, k), []
    for title, right in (("right: along each row", True), ("wrong: down each column", False)):
        weights = [softmax(row) for row in scores] if right else transpose([softmax(row) for row in transpose(scores)])
        panel = Panel(262, title)
        for n, word in enumerate(EXAMPLE["words"]):
            panel.text(58, 81 + 42 * n, word, at="end", size=12)
            panel.text(88 + 54 * n, 48, word, size=12)
            total = sum(weights[n])
            panel.text(284, 81 + 42 * n, f"{total:.2f}", bold=not right, at="start")
            for j, weight in enumerate(weights[n]):
                panel.box(64 + 54 * j, 58 + 42 * n, 48, 36, "head-0", f"{weight:.2f}", tint=6 + 55 * weight)
            if right:
                panel.line(228, 76 + 42 * n, 276, 76 + 42 * n, "head-0", 1.5, arrow=True)
            else:
                panel.line(88 + 54 * n, 184, 88 + 54 * n, 208, "head-1", 1.5, arrow=True)
                panel.text(88 + 54 * n, 224, "1.00")
        panel.text(284, 48, "row sum", size=12, quiet=True, at="middle")
        water, money = matmul(weights, v)[2]
        panel.text(WIDE / 2, 252, f"bank reads water {water:.2f}, money {money:.2f}", bold=True)
        panels.append(panel)
    return panels


def order_unseen():
    words, panels = ["I", "saw", "a", "saw"], []
    for title, positions, verdict in (
        ("words only", 0, "two equal rows in, two equal rows out"),
        ("words and positions", 4, "no two rows are equal"),
    ):
        x = [[int(word == one) for one in ("I", "saw", "a")] + [int(i == j) for j in range(positions)]
             for i, word in enumerate(words)]  # fmt: skip
        panel, wide, left = Panel(324, title), 38, 50 if positions else 130
        for top, name, rows in ((52, "in", x), (196, "out", attention(x, x, x))):
            for i, (word, row) in enumerate(zip(words, rows, strict=True)):
                panel.text(left - 6, top + 17 + 26 * i, word, at="end", size=12)
                for j, number in enumerate(row):
                    shown = f"{number:g}" if name == "in" else f"{number:.2f}"
                    place = left + (wide + 2) * j + 6 * (j > 2), top + 26 * i, wide, 24
                    panel.box(*place, "main" if word == "saw" else "", shown, tint=5 + 45 * number, size=11.5)
        panel.text(left + 59, 44, "word", size=12, quiet=True)
        if positions:
            panel.text(255, 44, "position", size=12, quiet=True)
        panel.line(left + 59, 160, left + 59, 190, "head-0", 2, arrow=True)
        panel.text(left + 72, 179, "attention", at="start", size=12, quiet=True)
        panel.text(WIDE / 2, 318, verdict, bold=True)
        panels.append(panel)
    return panels


def walks():
    dice, panels, unit = Random(1), [], 1.75
    for title, copied, scale in (("64 independent channels", False, 8), ("64 copies of one channel", True, 64)):
        panel = Panel(290, title)
        for score in (-64, -8, 0, 8, 64):
            if abs(score) in (0, scale):
                panel.text(30, 154 - unit * score, f"{score}".replace("-", "−"), at="end", size=11.5, quiet=True)
        panel.line(36, 150, 320, 150, "", 1)
        for _ in range(16):
            first, total, path = dice.random() < 0.5, 0, "M36,150"
            for d in range(64):
                total += 1 if (first if copied else dice.random() < 0.5) else -1
                path += f"L{36 + 4.4 * (d + 1):.1f},{150 - unit * total:.1f}"
            panel.path(path, "head-0", 2.5 if copied else 1)
        for sign in (-1, 1) if not copied else ():
            points = (f"{36 + 4.4 * d:.1f},{150 - sign * unit * sqrt(d):.1f}" for d in range(65))
            panel.path("M" + "L".join(points), "head-1", 2.5)
        panel.text(178, 40 if copied else 104, "a sum is d or −d" if copied else "a typical sum: √d, in red")
        panel.text(178, 284, "channels added up: 0 to 64", size=12, quiet=True)
        panels.append(panel)
    return panels


def saturated():
    panel = Panel(262)
    left, floor, unit, high = 90, 214, 22, 176

    def at(score, weight):
        return left + unit * score, floor - high * weight

    panel.line(40, floor, 334, floor, "", 1)
    for weight in (0, 0.5, 1):
        panel.text(34, at(0, weight)[1] + 4, f"{weight:g}", at="end", size=11.5, quiet=True)
    panel.line(40, floor - high, 334, floor - high, "hidden", 1)
    points = (at(n / 10, softmax([n / 10, 0])[0]) for n in range(-22, 111))
    panel.path("M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in points), "head-0", 2.5)
    for score, name, color in ((1, "divided by 8", "main"), (8, "not divided", "head-1")):
        weight = softmax([score, 0])[0]
        slope = weight * (1 - weight)
        ends = (at(score + step, weight + step * slope) for step in (-1.3, 1.3))
        panel.line(*next(ends), *next(ends), color, 5)
        x, y = at(score, weight)
        panel.dot(x, y, 5, color, tint=100)
        panel.line(x, y + 8, x, floor, "hidden", 1)
        side, kind, below = (x + 10, "start", y + 58) if score == 1 else (x - 10, "end", y + 30)
        shown = f"{slope:.1g}" if slope < 0.01 else f"{slope:.2f}"
        panel.text(side, below, name, at=kind, bold=True)
        panel.text(side, below + 18, f"weight {weight:.2f}", at=kind, size=12)
        panel.text(side, below + 36, f"slope {shown}", at=kind, size=12)
        panel.text(x, floor + 16, f"{score}", size=12)
    panel.text(187, floor + 40, "score of the first key minus score of the second", size=12, quiet=True)
    panel.text(6, 20, "weight of the first of two keys", at="start", size=12, quiet=True)
    return [panel]


def too_late():
    scores, panels = [8 * one for one in (1.3, 0.5, -0.2, -0.9, 0.1)], []
    divided = [score / 8 for score in scores]
    late = [weight / 8 for weight in softmax(scores)]
    for title, steps in (
        ("right: divide, then softmax", (("", scores), ("÷ 8", divided), ("softmax", softmax(divided)))),
        ("wrong: softmax, then divide", (("", scores), ("softmax", softmax(scores)), ("÷ 8", late))),
    ):
        panel = Panel(330, title)
        for row, (step, numbers) in enumerate(steps):
            floor = 82 + 106 * row
            weights = step == "softmax" or numbers is late
            for n, number in enumerate(numbers):
                x, tall = 74 + 50 * n, (44 * number if weights else 3.6 * number)
                panel.bar(x, floor - max(tall, 0), 34, abs(tall), "head-0" if weights else "")
                shown = (
                    f"{number:.3f}"
                    if numbers is late
                    else f"{number:.2f}"
                    if weights
                    else f"{number:.1f}".replace("-", "−")
                )
                panel.text(x + 17, floor + 14 if tall >= 0 else floor - 4, shown, size=11.5)
            panel.line(68, floor, 322, floor, "", 1)
            if step:
                panel.line(26, floor - 84, 26, floor - 28, "", 1.5, arrow=True)
                panel.text(36, floor - 56, step, at="start", bold=True)
            name = f"sum {sum(numbers):.3f}" if weights else "scores"
            panel.text(4, floor - 8, name, at="start", size=11.5, quiet=True)
        panels.append(panel)
    return panels


def bounded():
    one, two = Panel(270, "QK-norm: every length becomes 1"), Panel(270, "soft cap: large scores are bent")
    q, k, unit = (2.1, 1.5), (2.6, -0.9), 54
    length = [sqrt(dot(each, each)) for each in (q, k)]
    cosine = dot(q, k) / length[0] / length[1]
    one.dot(110, 146, unit, "", tint=4)
    for name, each, long, color in (("q", q, length[0], "q"), ("k", k, length[1], "k")):
        x, y = each
        one.line(110, 146, 110 + unit * x, 146 - unit * y, "hidden", 1.5)
        one.line(110, 146, 110 + unit * x / long, 146 - unit * y / long, color, 3, arrow=True)
        one.text(114 + unit * x, 150 - unit * y, f"{name}, {long:.1f} long", at="start", size=12)
    one.text(56, 214, "length 1", size=12, quiet=True)
    one.text(WIDE / 2, 244, f"q · k = {dot(q, k):.1f} grows with the lengths", size=12)
    one.text(WIDE / 2, 263, f"10 × cosine = {10 * cosine:.1f}, never above 10", bold=True)
    points = [(s, 20 * tanh(s / 20)) for s in range(-70, 71, 2)]
    two.line(20, 136, 326, 136, "", 1)
    two.line(170, 30, 170, 240, "", 1)
    two.line(170 - 2.1 * 48, 136 + 2.1 * 48, 170 + 2.1 * 48, 136 - 2.1 * 48, "hidden", 1.5)
    for level in (-20, 20):
        two.line(20, 136 - 2.1 * level, 326, 136 - 2.1 * level, "hidden", 1)
        two.text(14, 132 - 2.1 * level, f"{level}".replace("-", "−"), at="start", size=11.5, quiet=True)
    two.path("M" + "L".join(f"{170 + 2.1 * s:.1f},{136 - 2.1 * t:.1f}" for s, t in points), "main", 2.5)
    for s in (7, 60):
        two.dot(170 + 2.1 * s, 136 - 2.1 * 20 * tanh(s / 20), 4.5, "head-1", tint=100)
        two.text(178 if s < 9 else 296, 153 if s < 9 else 116, f"{s} → {20 * tanh(s / 20):.1f}",
                 at="start" if s < 9 else "middle", size=12)  # fmt: skip
    two.text(250, 44, "not bent", at="end", size=12, quiet=True)
    two.text(WIDE / 2, 263, "score before → score after", size=12, quiet=True)
    return [one, two]


DRAWINGS = (
    length_and_angle,
    one_sided,
    softmax_axis,
    order_unseen,
    walks,
    saturated,
    too_late,
    bounded,
)
