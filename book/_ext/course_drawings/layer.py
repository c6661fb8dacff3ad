"""The layer inside a model: what it is made of, and what its heads do."""

from course_first import WIDE, Panel

from course_drawings.parts import HEADS, one_of_heads, table
from mha.reference import EXAMPLE, attention, matmul, multi_head_attention


def output_projection():
    x = EXAMPLE["x"]
    joined = [number for h in (0, 1) for number in attention(*one_of_heads(x, h))[2]]
    after = multi_head_attention(x, *(EXAMPLE[name] for name in ("w_q", "w_k", "w_v", "w_o")), heads=2)[2]
    panel = Panel(330)
    panel.text(10, 20, "two heads, side by side", at="start", bold=True)
    panel.text(10, 316, "after Wᴼ: channels of a word", at="start", bold=True)
    for n, number in enumerate(joined):
        panel.box(10 + 82 * n, 48, 74, 30, HEADS[n // 2], f"{number:.2f}", size=14)
        panel.text(47 + 82 * n, 42, f"head {n // 2}", size=12, quiet=True)
    for source, row in enumerate(EXAMPLE["w_o"]):
        for target, entry in enumerate(row):
            if entry:
                panel.line(47 + 82 * source, 80, 47 + 82 * target, 238, HEADS[source // 2], 2.5, arrow=True)
    for n, (number, name) in enumerate(zip(after, EXAMPLE["channels"], strict=True)):
        source = next(s for s, row in enumerate(EXAMPLE["w_o"]) if row[n])
        panel.box(10 + 82 * n, 240, 74, 30, HEADS[source // 2], f"{number:.2f}", size=14)
        panel.text(47 + 82 * n, 288, name, size=12.5)
    panel.text(4, 164, "Wᴼ", at="start", size=15, bold=True)
    return [panel]


def cut_word():
    bank, matrix, panels = EXAMPLE["x"][2], EXAMPLE["w_q"], []
    for title, half in (("cut the word: wrong", True), ("cut the projection: right", False)):
        panel, queries = Panel(282, title), []
        for h in (0, 1):
            seen = range(2 * h, 2 * h + 2) if half else range(4)
            queries += [sum(bank[c] * matrix[c][m] for c in seen) for m in (2 * h, 2 * h + 1)]
        x = [14 + 76 * n + 12 * (n > 1) for n in range(4)]
        for n, number in enumerate(bank):
            at = x[n] if half else 20 + 76 * n
            panel.box(at, 52, 68, 28, HEADS[n // 2] if half else "", f"{number}", size=14)
            panel.text(at + 34, 45, EXAMPLE["channels"][n], size=12, quiet=True)
            panel.line(at + 34, 82, at + 34, 106, HEADS[n // 2] if half else "", 1.5, arrow=True)
            panel.box(x[n], 192, 68, 28, HEADS[n // 2], f"{queries[n]}", size=14)
            panel.line(x[n] + 34, 158, x[n] + 34, 190, HEADS[n // 2], 1.5, arrow=True)
        if half:
            for h in (0, 1):
                panel.box(x[2 * h], 108, 144, 48, HEADS[h], "a part of W_q")
        else:
            panel.box(14, 108, 312, 48, "", "the whole W_q")
        for h in (0, 1):
            panel.text(x[2 * h] + 72, 240, f"query of head {h}", size=12.5)
        panel.text(WIDE / 2, 270, f"head 0 {'never sees place' if half else 'sees all four channels'}", bold=True)
        panels.append(panel)
    return panels


def contiguous():
    panel, tokens = Panel(310), range(1, 4)
    before = [10 * t + c for h in (0, 1) for t in tokens for c in (2 * h + 1, 2 * h + 2)]
    for y, numbers, said, side in (
        (92, before, "after step 5, memory still has head after head", -1),
        (196, sorted(before), "after step 6, token after token", 1),
    ):
        at = {number: 14 + 26 * n + 13 for n, number in enumerate(numbers)}
        panel.text(10, y - 76 if side < 0 else y + 80, said, at="start", bold=True)
        edge = y if side < 0 else y + 26
        for a, b in ((11, 12), (12, 13), (13, 14)):
            steps = numbers.index(b) - numbers.index(a)
            left, right, top = at[a] + 3, at[b] - 3, edge + side * (14 + 5 * steps)
            panel.path(f"M{left} {edge + 2 * side}C{left} {top} {right} {top} {right} {edge + 2 * side}", "", 2.5)
            panel.text((left + right) / 2, edge + side * (18 + 3.6 * steps) + (8 if side > 0 else 0), f"{steps}")
        for number in numbers:
            panel.box(at[number] - 12, y, 24, 26, HEADS[number % 10 > 2], f"{number}", tint=50 if number < 20 else 14)
            if side > 0:
                panel.line(14 + 26 * before.index(number) + 13, 120, at[number], 194, HEADS[number % 10 > 2], 1.2)
    panel.text(10, 296, "steps of 1 only: now view can join the heads of a token", at="start", size=12)
    panel.text(10, 36, "steps of 1, 5 and 1 inside token 1: no single stride", at="start", size=12)
    return [panel]


def sum_of_heads():
    x, panel = EXAMPLE["x"], Panel(330)
    for h in (0, 1):
        y = 30 + 100 * h
        z, block = attention(*one_of_heads(x, h)), EXAMPLE["w_o"][2 * h : 2 * h + 2]
        panel.text(10, y - 8, f"head output {h}", at="start", size=12)
        table(panel, 10, y, [[round(n, 2) for n in row] for row in z], HEADS[h], 34)
        panel.text(96, y + 42, "×", size=16)
        panel.text(170, y - 8, "its rows of Wᴼ", size=12)
        table(panel, 112, y + 13, block, HEADS[h], 26)
        panel.text(238, y + 42, "=", size=16)
        panel.text(288, y + 42, f"term {h}", bold=True)
    panel.line(10, 222, 330, 222, "", 1)
    output = multi_head_attention(x, *(EXAMPLE[name] for name in ("w_q", "w_k", "w_v", "w_o")), heads=2)
    panel.text(76, 278, "term 0 + term 1  =", bold=True)
    owner = tuple(HEADS[next(i for i, row in enumerate(EXAMPLE["w_o"]) if row[m]) // 2] for m in range(4))
    table(panel, 150, 236, [[round(n, 2) for n in row] for row in output], owner, 38)
    return [panel]


def basis():
    mix, back = [[3, 1], [-2, 5]], [[5 / 17, -1 / 17], [2 / 17, 3 / 17]]
    values, block = [row[:2] for row in EXAMPLE["w_v"]], EXAMPLE["w_o"][:2]
    panels = []
    for title, factors in (
        ("the values and the output of head 0", (values, block)),
        ("the same head in another basis", (matmul(values, mix), matmul(back, block))),
    ):
        panel = Panel(330, title)
        for x, y, rows, color, said in (
            (40, 56, factors[0], "v", "Wⱽ" if factors[0] is values else "Wⱽ R"),
            (152, 82, factors[1], "head-0", "Wᴼ" if factors[0] is values else "R⁻¹ Wᴼ"),
            (94, 212, matmul(*factors), "", ""),
        ):
            rows = [[round(number, 2) + 0.0 for number in row] for row in rows]
            panel.text(x + 19.5 * len(rows[0]) - 1, y - 9, said, bold=True)
            table(panel, x, y, rows, color, 37)
        panel.text(134, 112, "×", size=16)
        panel.text(76, 268, "=", size=16)
        panel.text(172, 200, "the product", bold=True)
        panels.append(panel)
    return panels


def meet():
    panels = []
    for title, with_matrix in (("with Wᴼ", True), ("without Wᴼ", False)):
        panel = Panel(300, title)
        for n in range(5):
            kind = {3: "head-0", 0: "head-1", 4: "q"}.get(n, "")
            panel.box(14 + 64 * n, 34, 56, 28, kind, f"token {n}", size=12)
        panel.line(234, 64, 234, 104, "head-0", 2.5, arrow=True)
        panel.path("M42 64C42 88 90 80 90 96", "head-1", 2.5)
        panel.line(90, 92, 90, 104, "head-1", 2.5, arrow=True)
        panel.box(174, 106, 120, 40, "head-0", "head 0: token 3", size=12.5)
        panel.box(30, 106, 120, 40, "head-1", "head 1: token 0", size=12.5)
        panel.text(234, 162, "the previous one", size=12, quiet=True)
        panel.text(90, 162, "the first one", size=12, quiet=True)
        if with_matrix:
            panel.line(234, 170, 190, 222, "head-0", 3, arrow=True)
            panel.line(90, 170, 150, 222, "head-1", 3, arrow=True)
            panel.text(232, 204, "× 1", bold=True)
            panel.text(96, 204, "× −1", bold=True)
            panel.box(80, 224, 180, 34, "", "token 3 − token 0")
            panel.text(WIDE / 2, 286, "both heads write into one channel", bold=True)
        else:
            for x, h in ((234, 0), (90, 1)):
                panel.line(x, 170, x, 222, HEADS[h], 3, arrow=True)
                panel.box(x - 60, 224, 120, 34, HEADS[h], f"token {(3, 0)[h]}")
            panel.text(WIDE / 2, 286, "each channel belongs to one head", bold=True)
        panels.append(panel)
    return panels


def depth_and_norms():
    matrices = [EXAMPLE[name] for name in ("w_q", "w_k", "w_v", "w_o")]
    panels = []
    for title, kept in (("attention alone", 0), ("x + attention(x)", 1)):
        panel, x, rows = Panel(270, title), EXAMPLE["x"], []
        for _ in range(6):
            rows.append([token[1] / max(1e-9, sum(n * n for n in token) ** 0.5) for token in x])
            new = multi_head_attention(x, *matrices, heads=2)
            x = [[kept * a + b for a, b in zip(*both, strict=True)] for both in zip(x, new, strict=True)]
        for n, (word, color) in enumerate(zip(EXAMPLE["words"], ("", "head-0", "head-1"), strict=True)):
            points = [(56 + 42 * step, 220 - 170 * row[n]) for step, row in enumerate(rows)]
            panel.path("M" + "L".join(f"{a:g} {b:.1f}" for a, b in points), color, 2.5)
            panel.text(50, points[0][1] + 4, word, at="end")
            for a, b in points:
                panel.dot(a, b, 3.5, color, tint=100)
        panel.line(56, 232, 276, 232, "", 1, arrow=True)
        panel.text(166, 252, "passes through the layer", size=12, quiet=True)
        panels.append(panel)
    return panels


def pruning_heads():
    panels = []
    for title, useful in (("two redundant heads", True), ("two useless heads", False)):
        panel = Panel(212, title)
        for row, (said, kept) in enumerate((("both kept", (1, 1)), ("one removed", (0, 1)), ("both removed", (0, 0)))):
            y = 54 + 66 * row
            panel.text(6, y + 4, said, at="start", size=12)
            for h in (0, 1):
                panel.box(102 + 58 * h, y - 16, 48, 32, HEADS[h] if kept[h] else "hidden", f"{h}" if kept[h] else "×")
            fine = any(kept) or not useful
            panel.line(212, y, 242, y, "", 2, arrow=True)
            panel.box(244, y - 16, 90, 32, "v" if fine else "hidden", "still good" if fine else "broken", size=12)
        panels.append(panel)
    return panels


def cut_heads():
    panel = Panel(308)
    for y, heads, wide, title in (
        (34, (0, 1, 2, 3), 52, "before: four heads"),
        (202, (0, 2), 52, "after: heads 1 and 3 are gone"),
    ):
        panel.text(10, y - 14, title, at="start", bold=True)
        for n, h in enumerate(heads):
            kind = "hidden" if h % 2 else HEADS[h // 2]
            panel.box(10 + wide * n, y + 12, wide - 3, 76, kind, f"head {h}", size=11.5)
            panel.box(238, y + 12 + 26 * n, 92, 23, kind, f"head {h}", size=11.5)
        panel.text(10, y + 4, "W_q, W_k, W_v: columns", at="start", size=11.5, quiet=True)
        panel.text(284, y + 4, "W_o: rows", size=11.5, quiet=True)
    return [panel]


DRAWINGS = (
    cut_word,
    contiguous,
    output_projection,
    sum_of_heads,
    basis,
    meet,
    depth_and_norms,
    pruning_heads,
    cut_heads,
)
