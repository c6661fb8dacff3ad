"""Ideas that change how heads work together."""

from course_first import WIDE, Panel

from course_drawings.parts import HEADS, words_in_boxes
from mha.reference import softmax


def collaborate():
    panels = []
    of_heads = ([[1, 1, 0, 0], [0, 0, 1, 1]], [[0.9, 0.2, 0.6, 0.1], [0.3, 0.8, 0.5, 0.2]])
    for title, mixing in zip(("plain: channels of their own", "shared: mixing vectors"), of_heads, strict=True):
        panel = Panel(270, title)
        for h in (0, 1):
            x = 95 + 150 * h
            for n in range(4):
                if mixing[h][n]:
                    panel.line(x, 64, 62 + 72 * n, 158, HEADS[h], 9 * mixing[h][n])
            panel.box(x - 40, 36, 80, 28, HEADS[h], f"head {h}")
        for n in range(4):
            panel.box(34 + 72 * n, 160, 56, 24, "q", "query", size=12, tint=30)
            panel.box(34 + 72 * n, 185, 56, 24, "k", "key", size=12, tint=30)
            panel.text(62 + 72 * n, 228, f"channel {n}", size=12, quiet=True)
        panel.text(WIDE / 2, 256, "2 channels for each head" if mixing[0][0] == 1 else "4 for all heads", size=12)
        panels.append(panel)
    return panels


def overlap():
    panels = []
    for title, o in (("plain heads", 0), ("one channel of overlap", 1)):
        panel = Panel(250, title)
        for h in range(4):
            first, last = max(0, 3 * h - o), min(12, 3 * h + 3 + o)
            y = 96 + 34 * h
            panel.text(4, y + 15, f"head {h}", at="start", size=12)
            for n in range(first, last):
                panel.box(64 + 22.8 * n, y, 20, 22, HEADS[n // 3 % 2], tint=45 if 3 * h <= n < 3 * h + 3 else 8)
        panel.text(4, 54, "channels", at="start", size=12)
        for n in range(12):
            panel.box(64 + 22.8 * n, 38, 20, 22, HEADS[n // 3 % 2], str(n), size=11)
        panels.append(panel)
    return panels


def route():
    panels = []
    for token, chosen in ((",", (3, 6)), ("yes", (2, 7))):
        panel = Panel(270, f"the token “{token}”")
        panel.box(130, 32, 80, 28, "", token)
        panel.box(110, 92, 120, 28, "main", "router")
        panel.line(170, 62, 170, 90, "", 2, arrow=True)
        for h in range(8):
            x, works = 24 + 41.7 * h, h < 2 or h in chosen
            if works:
                panel.line(170, 122, x, 182, "main" if h > 1 else "", 3)
            panel.box(x - 16, 184, 32, 30, ("head-0" if h < 2 else "head-1") if works else "hidden", str(h), tint=35)
        panel.text(45, 234, "shared", size=12)
        panel.text(215, 234, "routed: two of six", size=12)
        panel.text(WIDE / 2, 260, "4 of 8 heads work", size=12, quiet=True)
        panels.append(panel)
    return panels


def compose():
    panels = []
    shares = ([[1, 0], [0, 1]], [[0.7, 0.5], [0.2, 0.9]])
    for title, share in zip(("plain: pairs are fixed", "composed: heads are mixed"), shares, strict=True):
        panel = Panel(270, title)
        for g in (0, 1):
            for h in (0, 1):
                if share[g][h]:
                    panel.line(90 + 160 * g, 106, 90 + 160 * h, 172, HEADS[g], 12 * share[g][h])
        for h in (0, 1):
            x = 20 + 160 * h
            panel.box(x, 44, 140, 60, HEADS[h])
            panel.text(x + 70, 70, f"look-up {h}", bold=True)
            panel.text(x + 70, 90, "which tokens?", size=12)
            panel.box(x, 174, 140, 60, "v")
            panel.text(x + 70, 200, f"transform {h}", bold=True)
            panel.text(x + 70, 220, "what about them?", size=12)
        panels.append(panel)
    return panels


def sparsify():
    scores, panels = (3.0, 2.0, 1.0, 0.0, -1.0), []
    low, high = -9.0, 9.0  # 1.5-entmax: weights (s/2 - t)², with the threshold t at which they sum to 1
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(max(s / 2 - middle, 0) ** 2 for s in scores) > 1 else (low, middle)
    sparse = [max(s / 2 - low, 0) ** 2 for s in scores]
    for title, weights in (("softmax", softmax(list(scores))), ("1.5-entmax", sparse)):
        panel = Panel(260, title)
        for n, (score, weight) in enumerate(zip(scores, weights, strict=True)):
            x = 22 + 62 * n
            panel.bar(x, 200 - 170 * weight, 46, 170 * weight, "head-0")
            panel.text(x + 23, 194 - 170 * weight, f"{weight:.3f}" if weight else "0")
            panel.text(x + 23, 220, f"{score:g}".replace("-", "−"), size=12, quiet=True)
        panel.line(12, 200, 328, 200, "", 1)
        panel.text(WIDE / 2, 246, "scores of five keys", size=12, quiet=True)
        panels.append(panel)
    return panels


def merge_and_deepen():
    panels = []
    for title, widths in (("self-attention: chooses", (1, 8, 0.6, 4, 2)), ("the average: no choice", (3, 3, 3, 3, 3))):
        panel = Panel(260, title)
        middles = words_in_boxes(panel, ["1", "2", "3", "4", "5"], 44)
        for n, (middle, width) in enumerate(zip(middles, widths, strict=True)):
            panel.line(middle, 72, 140 + 15 * n, 168, "head-0" if len(set(widths)) > 1 else "head-1", width)
        panel.box(95, 170, 150, 30, "head-0" if len(set(widths)) > 1 else "head-1", "head output of token 5", size=12)
        said = "weights depend on the tokens" if len(set(widths)) > 1 else "a running sum is enough"
        panel.text(WIDE / 2, 232, said, size=12, quiet=True)
        panels.append(panel)
    return panels


def feed_back():
    panels = []
    for title, back in (("plain stack", False), ("feedback", True)):
        panel = Panel(300, title)
        for n in range(3):
            x = 40 + 100 * n
            for level in range(4):
                y = 236 - 64 * level
                if level:
                    panel.line(x + 30, y + 62, x + 30, y + 32, "", 1.5, arrow=True)
                if level < 3 and n < 2 and not back:
                    panel.line(x + 62, y + 12, x + 108, y - 44, "head-0", 2, arrow=True)
                if level < 3 and n < 2 and back:
                    panel.line(x + 62, 58, x + 98, y - 50, "head-1", 2.5, arrow=True)
                words = "token" if level == 0 else f"layer {level}"
                kind = "head-1" if back and level == 3 else "" if level else "k"
                panel.box(x, y, 60, 30, kind, words, size=12)
        panel.text(WIDE / 2, 290, "one step after the other" if back else "all tokens together", size=12, quiet=True)
        panels.append(panel)
    return panels


DRAWINGS = (
    collaborate,
    overlap,
    route,
    compose,
    sparsify,
    merge_and_deepen,
    feed_back,
)
