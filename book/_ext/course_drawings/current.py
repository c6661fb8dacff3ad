"""Attention in current models: silent heads and latents."""

from math import atan2, cos, exp, log, pi, sin

from course_first import WIDE, Panel

from mha.reference import softmax


def say_nothing():
    panels = []
    for title, sink in (("softmax: each row spends 1", False), ("with a sink of score 0", True)):
        panel = Panel(270, title)
        for row, (said, scores) in enumerate(
            (
                ("one key fits: 4, 0, 0", [4, 0, 0]),
                ("undecided: 0, 0, 0", [0, 0, 0]),
                ("none fits: −9, −9, −9", [-9] * 3),
            )
        ):
            y, x = 56 + 66 * row, 10.0
            panel.text(10, y - 6, said, at="start")
            for n, weight in enumerate(softmax(scores + [0.0] * sink)):
                wide = 320 * weight
                kind = "hidden" if n == 3 else "v"
                panel.box(x, y, wide, 28, kind, ("a", "b", "c", "sink")[n] if wide > 30 else "", tint=45 - 12 * n)
                x += wide
        panel.text(WIDE / 2, 258, "reads nothing" if sink else "reads an average of everything", size=12, quiet=True)
        panels.append(panel)
    return panels


def sink_or_gate():
    sink, gate = Panel(286, "a sink: the keys decide"), Panel(286, "a gate: the token decides")
    scores, x = (4, 0, 0), 170
    for n, score in enumerate(scores):
        sink.box(80 + 64 * n, 34, 52, 26, "k", f"{score}", tint=40)
        sink.line(106 + 64 * n, 62, x + 20 * (n - 1), 88, "k", 1.5, arrow=True)
    sink.text(70, 52, "scores", at="end", size=12)
    total = log(sum(exp(score) for score in scores))
    sink.box(90, 90, 160, 28, "k", f"logsumexp: {total:.2f}", tint=15, size=12)
    opened = 1 / (1 + exp(-total))
    gate.box(110, 34, 120, 26, "q", "the token x", tint=40)
    gate.line(x, 62, x, 88, "q", 1.5, arrow=True)
    gate.box(110, 90, 120, 28, "q", "x times W_g", tint=15, size=12)
    for panel, said, color in ((sink, f"sigmoid({total:.2f} − 0) = {opened:.2f}", "k"), (gate, "sigmoid", "q")):
        panel.line(x, 120, x, 144, color, 1.5, arrow=True)
        panel.box(80, 146, 180, 28, color, said, tint=15, size=12)
        panel.line(x, 176, x, 206, color, 2.5, arrow=True)
        panel.line(110, 222, x - 18, 222, "head-0", 2.5, arrow=True)
        panel.line(x + 14, 222, 236, 222, "head-0", 2.5, arrow=True)
        panel.box(10, 208, 100, 28, "head-0", "head output", tint=40, size=12)
        panel.dot(x, 222, 14, color, tint=40)
        panel.text(x, 227, "×", size=15)
        panel.text(242, 226, "to W_o", at="start", size=12)
    sink.text(x, 272, "open if the sum over the keys is large", size=12, quiet=True)
    gate.text(x, 272, "open where the head was of use in training", size=12, quiet=True)
    return [sink, gate]


def size_of_a_sink():
    panels = []
    for z in (0, 3):
        panel = Panel(276, f"a sink of score {z}")
        for row, keys in enumerate((1, 2, 4, 8, 16, 32)):
            y, share = 48 + 38 * row, softmax([z] + [0] * keys)[0]
            panel.text(56, y + 18, f"{keys} key" + "s" * (keys > 1), at="end", size=12)
            panel.box(64, y, 218 * (1 - share), 26, "v", tint=45)
            panel.box(64 + 218 * (1 - share), y, 218 * share, 26, "hidden")
            panel.text(330, y + 18, f"{share:.0%}".replace("%", " %"), at="end")
        panel.text(330, 38, "sink", at="end", size=12, quiet=True)
        panels.append(panel)
    return panels


def window_of_an_idle_head():
    panel = Panel(322)
    scores = [3] + [0] * 11
    for row, (said, seen) in enumerate(
        (
            ("all tokens", range(12)),
            ("the last 4", range(8, 12)),
            ("the last 4 and BOS", (0, *range(8, 12))),
        )
    ):
        y = 18 + 104 * row
        weights = dict(zip(seen, softmax([scores[j] for j in seen]), strict=True))
        rest = sum(weight for j, weight in weights.items() if j)
        panel.text(10, y, said, at="start", bold=True)
        panel.text(330, y, f"on ordinary tokens: {rest:.2f}", at="end", size=12)
        for j in range(12):
            x, color = 10 + 27 * j, "k" if j else "head-1"
            word = "" if j else "BOS"
            panel.box(x, y + 66, 24 + 2 * (not j), 18, color if j in weights else "hidden", word, size=11)
            if j in weights:
                long = 54 * weights[j]
                panel.bar(x, y + 64 - long, 24, long, color)
        for j in (0, 11):
            if j in weights:
                panel.text(37 if j == 0 else 319, y + 44, f"{weights[j]:.2f}", at="middle" if j else "start", size=12)
    return [panel]


def angles_in_a_window():
    panels = []
    for title, once in (("rotated once, then kept", True), ("rotated again at each step", False)):
        panel = Panel(330, title)
        angles = []
        for step in range(1, 9):
            angles = [*(angles[:1] + angles[2:] if len(angles) == 5 else angles), min(step - 1, 4)]
            if step < 5:
                continue
            y = 56 + 70 * (step - 5)
            panel.text(10, y + 4, f"step {step}", at="start", size=12)
            for n, position in enumerate(angles if once else range(5)):
                x, turn = 86 + 56 * n, pi / 4 * position
                color = "k" if position == n else "head-1"
                panel.dot(x, y, 18, color, tint=12)
                panel.line(x, y, x + 17 * sin(turn), y - 17 * cos(turn), color, 2.5, arrow=True)
                panel.text(x, y + 34, f"{position}", size=12, bold=position != n)
        panel.text(
            WIDE / 2, 324, "old angles stay" if once else "always the positions in the cache", size=12, quiet=True
        )
        panels.append(panel)
    return panels


def endless_cache():
    panel = Panel(320)
    panel.text(10, 16, "a cache of the first token and the last four", at="start", bold=True)
    for row in range(7):
        newest, y = row + 4, 34 + 34 * row
        panel.text(36, y + 17, f"{newest + 1}", at="end", size=12, quiet=True)
        for n in range(newest + 1):
            kept = n == 0 or n > newest - 4
            kind = "head-1" if n == 0 else "k" if kept else "hidden"
            at = 0 if n == 0 else n - (newest - 4)
            panel.box(46 + 26 * n, y, 24, 26, kind, str(at) if kept else "", size=11.5, tint=30)
    panel.text(10, 292, "Each row is one step. Numbers are positions inside", at="start", size=12)
    panel.text(10, 310, "the cache; dashed tokens are forgotten.", at="start", size=12)
    return [panel]


def compress():
    full, latent = Panel(300, "cached per token: 32,768 numbers"), Panel(300, "cached per token: 576 numbers")
    for h in range(128):
        x, y = 14 + 20 * (h % 16), 34 + 25 * (h // 16)
        full.box(x, y, 16, 9, "k", tint=60)
        full.box(x, y + 10, 16, 9, "v", tint=60)
    full.text(WIDE / 2, 256, "a key and a value of 128 numbers", size=12.5)
    full.text(WIDE / 2, 274, "in each of 128 heads", size=12.5)
    latent.box(95, 36, 150, 28, "", "token: 7,168 numbers")
    latent.line(170, 66, 170, 92, "", 2, arrow=True)
    latent.box(118, 94, 72, 24, "main", "latent, 512", tint=60, size=12)
    latent.box(192, 94, 30, 24, "k", "64", tint=60, size=12)
    latent.text(228, 110, "for RoPE", at="start", size=12, quiet=True)
    for h in range(16):
        x = 14 + 20 * h
        latent.line(154, 120, x + 8, 178, "", 0.8)
        latent.box(x, 180, 16, 18, "k", tint=30)
        latent.box(x, 199, 16, 18, "v", tint=30)
    latent.text(WIDE / 2, 240, "recomputed when they are needed:", size=12.5)
    latent.text(WIDE / 2, 258, "keys and values of their own for 128 heads", size=12.5)
    return [full, latent]


def two_forms():
    expanded, absorbed = Panel(300, "expanded: make the keys"), Panel(300, "absorbed: change the query")
    for panel in (expanded, absorbed):
        for n in range(8):
            panel.box(20 + 38 * n, 40, 32, 24, "main", "c", tint=40)
        panel.text(WIDE / 2, 84, "cached latents", size=12, quiet=True)
    for n in range(8):
        x = 36 + 38 * n
        expanded.line(x, 92, x, 116, "k", 2, arrow=True)
        expanded.box(x - 16, 118, 32, 24, "k", "k", tint=40)
        expanded.line(x, 144, WIDE / 2, 224, "head-0", 1.5)
        absorbed.line(x, 92, WIDE / 2, 150, "head-0", 1.5)
    expanded.box(110, 226, 120, 30, "q", "query")
    absorbed.box(90, 152, 160, 30, "q", "query, as wide as c", tint=40)
    absorbed.line(WIDE / 2, 224, WIDE / 2, 184, "q", 2.5, arrow=True)
    absorbed.box(110, 226, 120, 30, "q", "query")
    expanded.text(WIDE / 2, 286, "a product for each cached token", size=12)
    absorbed.text(WIDE / 2, 286, "one product for each new token", size=12)
    return [expanded, absorbed]


def one_matrix_per_distance():
    alone, rotated = Panel(280, "no rotation: one matrix"), Panel(280, "rotated: one for each distance")
    for panel in (alone, rotated):
        panel.text(190, 42, "key", size=12, quiet=True)
        panel.text(38, 166, "query", size=12, quiet=True)
        for i in range(6):
            panel.text(74, 75 + 36 * i, f"{i}", at="end", size=12, quiet=True)
            for j in range(6):
                x, y, apart = 82 + 36 * j, 54 + 36 * i, (i - j) * (panel is rotated)
                if j <= i:
                    said = "M" if panel is alone else "M" + "₀₁₂₃₄₅"[apart]
                    panel.box(x, y, 33, 33, "main", said, tint=60 - 11 * apart)
                else:
                    panel.box(x, y, 33, 33, "hidden")
    return [alone, rotated]


def own_channels():
    panel = Panel(250)
    for h in range(3):
        x = 12 + 112 * h
        panel.text(x + 46, 18, f"query of head {h}", size=12)
        panel.box(x, 26, 62, 30, "q", "128", tint=20)
        panel.box(x + 64, 26, 28, 30, "q", "64", tint=60, size=12)
        panel.line(x + 31, 58, 84 + 26 * h, 166, "q", 1.5)
        panel.line(x + 78, 58, 254 + 15 * h, 166, "k", 2.5)
    panel.text(12, 156, "absorbed", at="start", size=11.5)
    panel.text(334, 156, "rotated", at="end", size=11.5)
    panel.box(12, 168, 200, 32, "main", "latent: 512", tint=40)
    panel.box(248, 168, 80, 32, "k", "key: 64", tint=60)
    panel.text(230, 189, "+", size=15)
    panel.text(WIDE / 2, 236, "scale of the sum: 1/√(128 + 64)", size=12)
    return [panel]


def one_latent():
    two, one = Panel(318, "two latents"), Panel(318, "one latent")
    unit = 1.6  # pixels for a number
    for n, (name, color) in enumerate((("K", "k"), ("V", "v"))):
        y = 42 + 128 * n
        two.box(10, y, 64 * unit, 64 * unit, color, f"W_{name.lower()}", tint=30)
        two.text(127, y + 56, "≈", size=16)
        two.box(146, y, 8 * unit, 64 * unit, "main", "8", tint=45, size=11.5)
        two.text(167, y + 56, "×", size=14)
        two.box(180, y + 45, 64 * unit, 8 * unit, color, tint=30)
        one.box(66 + 64 * unit * n, 42, 64 * unit, 64 * unit, color, f"W_{name.lower()}", tint=30)
        one.box(112 + 64 * unit * n, 208, 64 * unit, 16 * unit, color, tint=30)
    one.text(WIDE / 2, 163, "≈", size=16)
    one.box(50, 170, 16 * unit, 64 * unit, "main", "16", tint=45, size=11.5)
    one.text(94, 226, "×", size=14)
    two.text(WIDE / 2, 306, "cached: 8 for keys, 8 for values", size=12)
    one.text(WIDE / 2, 306, "cached: 16, for keys and values", size=12)
    return [two, one]


def size_of_keys():
    points = [(-22, -30), (-34, -8), (-12, -26), (-20, 8), (6, -16), (-4, 14), (12, 22), (20, -6), (24, 30), (36, 14)]
    large = sum(x * x for x, _ in points) / sum(y * y for _, y in points)
    points = [(x, y * large**0.5) for x, y in points]
    panels = []
    for title, size in (("keys as large as values", 1), ("keys 4 times as large", 4)):
        panel, moved = Panel(256, title), [(size * x, y) for x, y in points]
        xx, xy, yy = (sum(a[m] * a[n] for a in moved) for m, n in ((0, 0), (0, 1), (1, 1)))
        angle = atan2(2 * xy, xx - yy) / 2
        dx, dy, lost = cos(angle), sin(angle), 0
        panel.line(10, 112, 330, 112, "", 0.8)
        panel.line(170, 40, 170, 184, "", 0.8)
        panel.text(332, 129, "key", at="end", size=12, quiet=True)
        panel.text(176, 48, "value", at="start", size=12, quiet=True)
        far = 62 if size == 1 else 152
        panel.line(170 - far * dx, 112 + far * dy, 170 + far * dx, 112 - far * dy, "main", 3)
        for x, y in moved:
            along = x * dx + y * dy
            lost += (y - along * dy) ** 2
            panel.line(170 + x, 112 - y, 170 + along * dx, 112 - along * dy, "head-1", 1.5)
            panel.dot(170 + x, 112 - y, 4, "v", tint=80)
        panel.text(WIDE / 2, 212, f"of the values the line loses {lost / yy:.0%}".replace("%", " %"))
        keys = sum((x - (x * dx + y * dy) * dx) ** 2 for x, y in moved) / xx
        panel.text(WIDE / 2, 232, f"of the keys {keys:.0%}".replace("%", " %"))
        panels.append(panel)
    return panels


DRAWINGS = (
    say_nothing,
    sink_or_gate,
    size_of_a_sink,
    window_of_an_idle_head,
    endless_cache,
    angles_in_a_window,
    compress,
    two_forms,
    one_matrix_per_distance,
    own_channels,
    one_latent,
    size_of_keys,
)
