"""What a head has learned: its score against a null, what ablation replaces, what one layer writes for the next."""

from course_first import WIDE, Panel

from course_drawings.parts import HEADS, area, one_of_heads, words_in_boxes
from mha.reference import EXAMPLE, attention_weights, dot, matmul, softmax


def reading_heads():
    words = ["the", "river", "bank", ",", "the", "river", "?"]
    panel = Panel(270)
    panel.text(WIDE / 2, 16, "an induction head", bold=True)
    middles = words_in_boxes(panel, words, 128, ["", "k", "v", "", "", "q", "hidden"], x=4, wide=332)
    second, first, after = middles[5], middles[1], middles[2]
    panel.path(f"M{second} 126C{second} 26 {first} 26 {first} 126", "hidden", 1.5)
    panel.text((second + first) / 2, 46, "1  finds an earlier copy", size=12, quiet=True)
    panel.path(f"M{second} 126C{second} 72 {after} 72 {after} 126", "head-1", 4)
    panel.text((second + after) / 2, 110, "2  takes the next", size=12)
    for now, before in zip(middles[1:6], middles[:5], strict=True):
        panel.path(f"M{now} 156C{now} 192 {before} 192 {before} 156", "head-0", 2.5)
    panel.text(WIDE / 2, 214, "a previous-token head: one step back, always", size=12)
    panel.text(WIDE / 2, 250, "What will the model say after the second river?", size=12.5, bold=True)
    return [panel]


def two_back():
    line, size = "f(a)+g(b)*h(c,d)", 13
    opened, truth = [], {}
    for n, sign in enumerate(line):
        if sign == "(":
            opened.append(n)
        elif sign == ")":
            truth[n] = opened.pop()
    hits = [sum(i - j == d for i, j in truth.items()) for d in range(len(line))]
    far, every = hits.index(max(hits)), len(truth)

    arcs, x = Panel(312, "two ways to look back"), [20 + 20 * n for n in range(len(line))]
    for y, said, steps in ((104, "to its bracket", None), (232, f"always {far} back", far)):
        right = sum(steps is None or i - j == steps for i, j in truth.items())
        arcs.text(10, y - 56, said, at="start", bold=True)
        arcs.text(330, y - 56, f"{right} of {every} right: {right / every:.2f}", at="end")
        for i in range(len(line)):
            j = truth.get(i) if steps is None else i - steps
            if j is None or j < 0:
                continue
            asked, wrong = i in truth, truth.get(i) != j
            top = y - 22 - 7 * (i - j)
            color = ("hidden" if wrong else "head-0") if asked else ""
            arcs.path(f"M{x[i]} {y - 2}C{x[i]} {top} {x[j]} {top} {x[j]} {y - 2}", color, 3 if asked else 0.7)
            if asked and wrong:
                arcs.text(x[j] + 20, y - 34, "wrong", size=12)
        for n, sign in enumerate(line):
            arcs.box(x[n] - 9, y, 18, 24, "q" if n in truth else "k" if n in truth.values() else "", sign, size=14)
    arcs.text(WIDE / 2, 296, f"a score of {max(hits) / every:.2f} needs no idea of a bracket", bold=True)

    grid, left, top = Panel(312, "every distance is a diagonal"), 44, 46
    low = top + size * len(line)
    stairs = "".join(f"h{size}v{size}" for _ in line)
    area(grid, f"M{left} {top}{stairs}H{left}z", "", 8)
    for d, count in enumerate(hits):
        if count:
            right = left + size * (len(line) - d)
            strip = (
                f"M{left} {top + size * d}h{size}L{right} {low - size}v{size}h-{size}L{left} {top + size * (d + 1)}z"
            )
            area(grid, strip, "main", 34 if d == far else 12)
            grid.bar(right - size + 2, low + 4, size - 4, 15 * count, "main")
            side = ("start", right + 6) if d == far else ("end", right - size - 6)
            grid.text(side[1], low + 18, f"{d} back: {count} of {every}", at=side[0], size=12.5, bold=d == far)
    for n, sign in enumerate(line):
        grid.text(left + size * (n + 0.5), top - 6, sign, size=12, bold=n in truth.values(), quiet=sign not in "()")
        grid.text(left - 8, top + size * n + 10.5, sign, size=12, bold=n in truth, quiet=n not in truth)
    for i, j in truth.items():
        grid.box(left + size * j, top + size * i, size, size, "head-0", tint=100)
    grid.text(left + size * len(line) + 10, top - 6, "key", at="start", size=12, quiet=True)
    grid.text(left - 4, low + 18, "query", at="end", size=12, quiet=True)
    grid.box(196, top + 40, size, size, "head-0", tint=100)
    grid.text(216, top + 51, "a right key", at="start", size=12)
    return [arcs, grid]


def replaced():
    x, panel = EXAMPLE["x"], Panel(288)
    rows = [attention_weights(*one_of_heads(x, h)[:2])[2] for h in (0, 1)]
    values = [one_of_heads(x, h)[2] for h in (0, 1)]
    owner = [next(i for i, row in enumerate(EXAMPLE["w_o"]) if row[m]) // 2 for m in range(4)]
    for place, said in ((60, "weights of bank"), (170, "output"), (282, "after Wᴼ")):
        panel.text(place, 18, said, size=12, bold=True)
    whole = None
    for n, (said, weights, kept) in enumerate((
        ("whole", rows[0], 1), ("flattened: even weights", [1 / 3] * 3, 1), ("removed: an output of zero", rows[0], 0),
    )):  # fmt: skip
        y = 58 + 76 * n
        z = [kept * number for number in matmul([weights], values[0])[0]]
        after = matmul([z + matmul([rows[1]], values[1])[0]], EXAMPLE["w_o"])[0]
        whole = whole or after
        panel.text(6, y - 10, said, at="start", size=12.5)
        for m, number in enumerate(weights):
            color, tint = ("", 50) if n == 1 else ("head-0", 5 + 40 * number)
            panel.box(6 + 37 * m, y, 34, 30, color, f"{number:.2f}", size=12, tint=tint)
            if n == 0:
                panel.text(23 + 37 * m, y + 43, EXAMPLE["words"][m], size=11.5, quiet=True)
        for m, number in enumerate(z):
            color, tint = ("", 50) if n == 2 else ("head-0", 5 + 24 * number)
            panel.box(134 + 37 * m, y, 34, 30, color, f"{number:.2f}", size=12, tint=tint)
            if n == 1:
                panel.line(136 + 37 * m, y + 35, 166 + 37 * m, y + 35, "", 3)
        for m, number in enumerate(after):
            panel.box(226 + 28 * m, y, 26, 30, HEADS[owner[m]], f"{number:.2f}", size=11, tint=5 + 24 * number)
            if abs(number - whole[m]) > 1e-9:
                panel.line(228 + 28 * m, y + 35, 250 + 28 * m, y + 35, "", 3)
        panel.line(116, y + 15, 132, y + 15, "", 1.5, arrow=True)
        panel.line(208, y + 15, 224, y + 15, "", 1.5, arrow=True)
    for left, color, said in ((6, "", "replaced"), (196, "head-0", "head 0"), (270, "head-1", "head 1")):
        panel.box(left, 264, 14, 14, color, tint=18 if color else 50)
        panel.text(left + 20, 276, said, at="start", size=12)
    panel.line(94, 272, 112, 272, "", 3)
    panel.text(118, 276, "changed", at="start", size=12)
    return [panel]


def written_below():
    words, sharp, panels = ["the", "river", "bank", ",", "the", "river"], 6, []
    kinds = sorted(set(words))
    tokens = [[int(word == kind) for kind in kinds] for word in words]
    x = [88 + 46 * n for n in range(len(words))]
    for title, writes in (("a previous-token head in layer 0", True), ("this head removed", False)):
        panel = Panel(300, title)
        before = [None, *words[:-1]] if writes else [None] * len(words)
        keys = [[int(word == kind) for kind in kinds] for word in before]
        weights = softmax([sharp * dot(tokens[-1], key) for key in keys])
        for y, said in ((64, "token"), (137, "before it"), (152, "= key"), (202, "query"), (248, "weight")):
            panel.text(58, y, said, at="end", size=12, quiet=True)
        for n, word in enumerate(words):
            panel.box(x[n] - 20, 46, 40, 28, "", word, size=12.5)
            key = before[n] or ""
            panel.box(x[n] - 20, 126, 40, 28, "k" if key else "hidden", key, size=12.5)
            if key:
                panel.line(x[n - 1] + 4, 76, x[n] - 6, 124, "head-0", 2, arrow=True)
            panel.box(x[n] - 20, 230, 40, 28, "v", f"{weights[n]:.2f}", size=12.5, tint=4 + 55 * weights[n])
            if writes and key == words[-1]:
                panel.line(x[-1] - 22, 192, x[n] + 8, 157, "head-1", 4, arrow=True)
            elif not writes:
                panel.line(x[-1] - 22 * (n < 5), 190 - 7 * (n > 4), x[n], 157, "head-1", 1)
        panel.box(x[-1] - 20, 184, 40, 28, "q", words[-1], size=12.5)
        found = words[weights.index(max(weights))]
        said = (
            f"river was before {found}: layer 1 takes {found}"
            if writes
            else "layer 1 finds nothing, and looks anywhere"
        )
        panel.text(WIDE / 2, 288, said, bold=True)
        panels.append(panel)
    return panels


DRAWINGS = (reading_heads, two_back, replaced, written_below)
