"""Which heads can be removed: a model that can be computed by hand, and what fools a guess."""

from math import exp, log

from course_first import WIDE, Panel

from course_drawings.parts import HEADS, one_of_heads
from mha.reference import EXAMPLE, attention_weights, matmul


def loss(gates, alone=(0.3, 0.6)):
    """The loss of four heads: 0 and 1 raise the logit of one character in 32; 2 and 3 cost something if closed."""
    twins, others = gates[:2], gates[2:]
    return log(1 + 31 * exp(-6 * sum(twins))) + sum(cost * (1 - gate) for cost, gate in zip(alone, others, strict=True))


def slope_at_a_gate():
    panels = []
    for title, other in (("head 1 is open", 1), ("head 1 is removed", 0)):
        panel, left, right, low, high = Panel(312, title), 66, 306, 252, 60
        unit = (low - high) / 3.6
        here, silent = loss((1, other, 1, 1)), loss((0, other, 1, 1))
        slope = (loss((1.0001, other, 1, 1)) - loss((0.9999, other, 1, 1))) / 0.0002
        panel.line(left, low, right + 14, low, "", 1)
        panel.line(left, low, left, high - 18, "", 1)
        panel.text(14, high - 26, "loss of the model", at="start", size=12, quiet=True)
        for gate, name in ((0, "0: silent"), (1, "1: open")):
            panel.text(left + gate * (right - left), low + 20, name, size=12)
        panel.text((left + right) / 2, low + 44, "gate of head 0", size=12, quiet=True)
        points = [(left + (right - left) * n / 60, low - unit * loss((n / 60, other, 1, 1))) for n in range(61)]
        panel.path("M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in points), "head-0", 3)
        panel.line(left, low - unit * log(32), right, low - unit * log(32), "hidden", 1)
        panel.text(right, low - unit * log(32) - 8, f"guessing: {log(32):.2f}", at="end", size=12, quiet=True)
        panel.line(left, low - unit * (here - slope), right, low - unit * here, "hidden", 2)
        for gate, height in ((0, silent), (1, here)):
            panel.dot(left + gate * (right - left), low - unit * height, 5, "head-0", tint=100)
        x, y = (left + 12, low - unit * silent - 12) if other else (left + 44, low - unit * silent + 24)
        panel.text(x, y, f"damage {silent - here:.2f}", at="start")
        where = (right - 4, low - unit * 0.85) if not other else (right - 4, low - unit * 0.25)
        panel.text(*where, f"slope {slope:.2g}".replace("-", "−"), at="end", bold=True)
        panels.append(panel)
    return panels


def numbers(panel, x, y, rows, color, wide, most):
    """A matrix, each number tinted by its size compared with `most`."""
    for i, row in enumerate(rows):
        for j, number in enumerate(row):
            place = x + (wide + 2) * j, y + 24 * i, wide, 22
            panel.box(*place, color, f"{number:.3g}", size=11.5, tint=5 + 60 * min(1, abs(number) / most))


def same_head_rescaled():
    q, k, v = one_of_heads(EXAMPLE["x"], 0)
    weights, block = attention_weights(q, k)[2:], EXAMPLE["w_o"][:2]
    panel = Panel(356)
    for x, name in ((46, "weights"), (124, "values"), (204, "rows of Wᴼ"), (298, "it adds")):
        panel.text(x, 18, name, bold=True)
    for x, sign in ((97, "×"), (156, "×"), (253, "=")):
        for n in range(3):
            panel.text(x, 90 + 106 * n, sign)
    for n, (title, up, down) in enumerate((("the head", 1, 1), ("rescaled", 10, 0.1), ("broken", 0, 1))):
        y = 50 + 106 * n
        values, rows = [[up * a for a in row] for row in v], [[down * a for a in row] for row in block]
        adds = matmul(matmul(weights, values), rows)[0]
        panel.text(2, y + 4, title, at="start")
        numbers(panel, 2, y + 24, [[round(a, 2) for a in weights[0]]], "head-0", 27, 1)
        numbers(panel, 102, y, values, "v", 22, 20)
        numbers(panel, 162, y + 12, rows, "head-0", 19, 1)
        for line, (channel, number) in enumerate(one for one in enumerate(adds) if any(row[one[0]] for row in rows)):
            words, tint = f"{EXAMPLE['channels'][channel]} {number:.2f}", 5 + 30 * number
            panel.box(260, y + 12 + 24 * line, 78, 22, "main", words, size=11, tint=tint)
    panel.text(162, 232, "the norm is fooled", at="start", bold=True, size=12)
    panel.text(2, 349, "confidence and entropy are fooled", at="start", bold=True, size=12)
    return [panel]


def measured_again():
    panels = []
    for title, again in (("measured once", False), ("measured again each time", True)):
        panel, gates, damage = Panel(316, title), [1, 1, 1, 1], {}
        for step in range(3):
            y = 42 + 96 * step
            now = loss(gates)
            if again or not step:
                damage = {h: loss([g * (n != h) for n, g in enumerate(gates)]) - now for h in range(4) if gates[h]}
            least = min((h for h in range(4) if gates[h]), key=damage.get)
            for h in range(4):
                x = 10 + 54 * h
                panel.box(x, y, 48, 32, HEADS[h // 2] if gates[h] else "hidden", f"{h}" if gates[h] else "×", size=13)
                if gates[h] and step < 2:
                    chosen, old = h == least, step and not again
                    panel.text(x + 24, y + 50, f"{damage[h]:.2f}", size=12, bold=chosen, quiet=old and not chosen)
                    if chosen:
                        panel.line(x + 8, y + 56, x + 40, y + 56, "main", 3)
            if step < 2:
                panel.text(238, y + 20, f"remove head {least}", at="start", size=12)
                panel.text(
                    238, y + 50, "damage" if again or not step else "old damage", at="start", size=12, quiet=True
                )
                gates[least] = 0
            else:
                panel.text(238, y + 20, f"loss {now:.2f}", at="start", bold=True)
        words = "one of the two is left" if again else "both of them are gone"
        panel.text(10, 300, f"0 and 1 do the same job: {words}", at="start", size=12)
        panels.append(panel)
    return panels


def zeros_in_w_o():
    panels = []
    for title, axis in (("columns 4 to 7 are zero", 1), ("rows 4 to 7 are zero", 0)):
        panel = Panel(274, title)
        for h in range(4):
            panel.text(122 + 52 * h, 46, f"head {h}", size=12)
            panel.text(88, 82 + 44 * h, f"{4 * h}–{4 * h + 3}", at="end", size=12)
            for row in range(4):
                gone = (row, h)[axis] == 1
                place = 98 + 52 * h, 56 + 44 * row, 48, 40
                panel.box(*place, "hidden" if gone else "head-0", "0" if gone else "", tint=34)
        panel.text(8, 46, "outputs", at="start", size=12, quiet=True)
        ending = "head 1 is silent" if axis else "every head loses four output channels"
        panel.text(WIDE / 2, 258, ending, bold=True)
        panels.append(panel)
    return panels


DRAWINGS = (slope_at_a_gate, same_head_rescaled, measured_again, zeros_in_w_o)
