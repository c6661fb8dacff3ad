"""The drawings: those named like a chapter stand at its beginning, others beside a formula.

Numbers in them are computed here, from the running example.
"""

from course_first import WIDE, Panel

from mha.reference import EXAMPLE, attention, attention_weights, matmul, multi_head_attention, softmax

HEADS = ("head-0", "head-1")


def _words(panel, words, y, colors=(), x=10, wide=320):
    """Words in boxes side by side; gives the middle of each."""
    step = wide / len(words)
    middles = [x + step * (n + 0.5) for n in range(len(words))]
    for n, (middle, word) in enumerate(zip(middles, words, strict=True)):
        panel.box(middle - step / 2 + 4, y, step - 8, 26, colors[n] if colors else "", word)
    return middles


def _head(x, h):
    """Queries, keys and values of one head of the running example."""
    found = (matmul(x, EXAMPLE[name]) for name in ("w_q", "w_k", "w_v"))
    return [[row[2 * h : 2 * h + 2] for row in rows] for rows in found]


def why_attention():
    panels = []
    for word, row in (("river", EXAMPLE["x"][1]), ("money", EXAMPLE["money"])):
        x = [EXAMPLE["x"][0], row, EXAMPLE["x"][2]]
        q, k, v = _head(x, 0)
        weights, after = attention_weights(q, k)[2], attention(q, k, v)[2]
        panel = Panel(290, f"the {word} bank")
        middles = _words(panel, ["the", word, "bank"], 34)
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


def output_projection():
    x = EXAMPLE["x"]
    joined = [number for h in (0, 1) for number in attention(*_head(x, h))[2]]
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


def reading_heads():
    words = ["the", "river", "bank", ",", "the", "river", "?"]
    panel = Panel(270)
    panel.text(WIDE / 2, 16, "an induction head", bold=True)
    middles = _words(panel, words, 128, ["", "k", "v", "", "", "q", "hidden"], x=4, wide=332)
    second, first, after = middles[5], middles[1], middles[2]
    panel.path(f"M{second} 126C{second} 26 {first} 26 {first} 126", "hidden", 1.5)
    panel.text((second + first) / 2, 46, "1  finds an earlier copy", size=12, quiet=True)
    panel.path(f"M{second} 126C{second} 72 {after} 72 {after} 126", "head-1", 4)
    panel.text((second + after) / 2, 110, "2  reads what came next", size=12)
    for now, before in zip(middles[1:6], middles[:5], strict=True):
        panel.path(f"M{now} 156C{now} 192 {before} 192 {before} 156", "head-0", 2.5)
    panel.text(WIDE / 2, 214, "a previous-token head: one step back, always", size=12)
    panel.text(WIDE / 2, 250, "What will the model say after the second river?", size=12.5, bold=True)
    return [panel]


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


def counting_cost():
    flops, tiles, d = Panel(280, "FLOPs of a layer of width 512"), Panel(280, "the scores, block by block"), 512
    for n, tokens in enumerate((256, 1024, 4096)):
        projections, rest = 8 * tokens * d * d, 4 * tokens * tokens * d
        share, y = rest / (projections + rest), 54 + 66 * n
        flops.text(10, y - 6, f"{tokens:,} tokens", at="start")
        flops.box(10, y, 320 * (1 - share), 30, "", f"{1 - share:.0%}")
        flops.box(10 + 320 * (1 - share), y, 320 * share, 30, "head-1", f"{share:.0%}")
    flops.box(10, 246, 16, 16, "")
    flops.text(32, 259, "projections", at="start", size=12)
    flops.box(150, 246, 16, 16, "head-1")
    flops.text(172, 259, "scores and weighted sums", at="start", size=12)
    for n in range(8):
        tiles.box(56, 66 + 23 * n, 20, 21, "q")
        tiles.box(86 + 23 * n, 36, 21, 20, "k")
        for m in range(8):
            now = n >= 4 and 2 <= m < 4
            tiles.box(86 + 23 * m, 66 + 23 * n, 21, 21, "main" if now else "hidden", tint=55)
    tiles.text(66, 50, "q", size=13)
    tiles.text(278, 51, "k", size=13)
    tiles.text(WIDE / 2 + 8, 272, "one block at a time is enough", size=12, quiet=True)
    return [flops, tiles]


def cache_and_sharing():
    panel = Panel(364)
    for row, (name, shared) in enumerate((("MHA: 8 KV heads", 1), ("GQA: 2 KV heads", 4), ("MQA: 1 KV head", 8))):
        y = 16 + 122 * row
        panel.text(10, y, name, at="start", bold=True)
        panel.text(330, y, f"cache: {8 // shared}/8", at="end", quiet=True)
        for h in range(8):
            x, group = 27 + 41 * h, h // shared
            middle = 27 + 41 * (group * shared + (shared - 1) / 2)
            panel.line(x, y + 36, middle, y + 64, "", 1.5)
            panel.dot(x, y + 24, 12, "q", tint=30)
            panel.text(x, y + 28, "q", size=12)
            if h == group * shared:
                panel.box(middle - 17, y + 64, 34, 18, "k", "k", size=12, tint=30)
                panel.box(middle - 17, y + 83, 34, 18, "v", "v", size=12, tint=30)
    return [panel]


def across_machines():
    panels = []
    for gpu in (0, 1):
        panel, color = Panel(310, f"GPU {gpu}"), HEADS[gpu]
        panel.box(70, 30, 200, 28, "", "all tokens, all channels")
        for n in range(2):
            x = 60 + 120 * n
            panel.line(WIDE / 2 + 60 * (2 * n - 1), 60, x + 50, 88, "", 1.5, arrow=True)
            panel.box(x, 90, 100, 44, color)
            panel.text(x + 50, 108, "its columns of", size=11)
            panel.text(x + 50, 124, "W_q, W_k, W_v", size=11)
            panel.line(x + 50, 136, x + 50, 152, "", 1.5, arrow=True)
            panel.box(x, 154, 100, 30, color, f"head {2 * gpu + n}", tint=40)
            panel.line(x + 50, 186, x + 50, 202, "", 1.5, arrow=True)
            panel.box(x, 204, 100, 28, color, "its rows of W_o", size=11.5)
            panel.line(x + 50, 234, WIDE / 2 + 30 * (2 * n - 1), 258, "", 1.5, arrow=True)
        panel.box(70, 260, 200, 30, "main", "half of the sum: one message")
        panels.append(panel)
    return panels


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


def overwrite():
    cache, state = Panel(280, "KV cache: a row for each token"), Panel(280, "state: always the same size")
    for n, tokens in enumerate((2, 5, 10)):
        x = 20 + 110 * n
        cache.text(x + 40, 268, f"{tokens} tokens", size=12)
        for row in range(tokens):
            cache.box(x, 232 - 20 * row, 38, 16, "k", tint=35)
            cache.box(x + 40, 232 - 20 * row, 38, 16, "v", tint=35)
    for n, tokens in enumerate((2, 5, 10)):
        x = 20 + 110 * n
        state.text(x + 40, 268, f"{tokens} tokens", size=12)
        for row in range(3):
            for column in range(4):
                state.box(x + 20 * column, 192 + 20 * row, 18, 18, "main", tint=20 + 22 * n + 9 * ((row + column) % 2))
    state.text(10, 44, "each token writes", at="start", size=12)
    for row, number in enumerate((0, 1, 0)):
        state.box(132, 62 + 20 * row, 18, 18, "k", str(number), size=11, tint=35)
    for column, number in enumerate((0, 2, 0, 2)):
        state.box(160 + 20 * column, 34, 18, 18, "v", str(number), size=11, tint=35)
        for row in range(3):
            entry = number * (row == 1)
            state.box(160 + 20 * column, 62 + 20 * row, 18, 18, "main", str(entry), size=11, tint=45 if entry else 8)
    state.text(10, 66, "key × value", at="start", size=12)
    state.text(10, 88, "into the state", at="start", size=12)
    state.line(200, 126, 200, 176, "main", 2, arrow=True)
    state.text(212, 154, "added", at="start", size=12, quiet=True)
    return [cache, state]


def select():
    scores = (3, 6, 2, 9, 28, 4, 7, 3, 22, 5, 2, 31, 6, 9, 19, 12)
    chosen = sorted(range(16), key=lambda j: -scores[j])[:4]
    panel = Panel(330)
    panel.text(10, 16, "1  a small index scores every key", at="start", bold=True)
    for j, score in enumerate(scores):
        x = 12 + 20 * j
        panel.bar(x + 2, 74 - 1.4 * score, 12, 1.4 * score, "main" if j in chosen else "")
        panel.box(x, 78, 16, 20, "k" if j in chosen else "hidden", tint=45)
    for n, j in enumerate(sorted(chosen)):
        panel.line(20 + 20 * j, 100, 76 + 62 * n, 150, "k", 2)
        panel.box(54 + 62 * n, 152, 44, 24, "k", f"key {j}", size=11, tint=30)
        panel.box(54 + 62 * n, 177, 44, 24, "v", "value", size=11, tint=30)
        panel.line(76 + 62 * n, 203, 170, 250, "head-0", 2)
    panel.text(10, 130, "2  the best four are kept", at="start", bold=True)
    panel.text(10, 226, "3  the layer", at="start", bold=True)
    panel.text(10, 242, "attends to these", at="start", bold=True)
    panel.box(110, 252, 120, 28, "q", "the query")
    panel.text(WIDE / 2, 312, "12 of 16 keys were never compared in full", size=12, quiet=True)
    return [panel]


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
        middles = _words(panel, ["1", "2", "3", "4", "5"], 44)
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


# ---- further drawings, beside a formula


def _table(panel, x, y, rows, color, size=30):
    """Numbers in boxes, each tinted by its size."""
    top = max(abs(number) for row in rows for number in row)
    for i, row in enumerate(rows):
        for j, number in enumerate(row):
            words = f"{number:g}".replace("-", "−") if number == round(number) else f"{number:.2f}"
            kind = color[j] if isinstance(color, tuple) else color
            place = x + (size + 2) * j, y + 26 * i, size, 24
            panel.box(*place, kind, words, size=11.5, tint=6 + 50 * abs(number) / top)


def one_head():
    x, panel = EXAMPLE["x"], Panel(352)
    q, k, v = _head(x, 0)
    panel.text(84, 16, "X, three words", bold=True)
    _table(panel, 20, 26, x, "")
    for n, (name, rows, color) in enumerate((("Q", q, "q"), ("K", k, "k"), ("V", v, "v"))):
        left = 20 + 110 * n
        panel.line(84, 108, left + 31, 132, color, 1.5, arrow=True)
        panel.text(left + 31, 150, name, bold=True)
        _table(panel, left, 158, rows, color)
    panel.text(244, 64, "X times W_q, W_k, W_v", size=12, quiet=True)
    panel.line(51, 240, 60, 254, "q", 1.5, arrow=True)
    panel.line(161, 240, 110, 254, "k", 1.5, arrow=True)
    _table(panel, 20, 258, attention_weights(q, k), "head-0", 34)
    panel.text(20, 348, "weights: each row sums to 1", at="start", size=11.5, quiet=True)
    panel.text(148, 300, "×", size=16)
    panel.text(172, 300, "V", bold=True)
    panel.text(196, 300, "=", size=16)
    _table(panel, 220, 258, attention(q, k, v), "head-0", 36)
    panel.text(258, 348, "Y, the head output", size=11.5, quiet=True)
    return [panel]


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


def sum_of_heads():
    x, panel = EXAMPLE["x"], Panel(330)
    for h in (0, 1):
        y = 30 + 100 * h
        z, block = attention(*_head(x, h)), EXAMPLE["w_o"][2 * h : 2 * h + 2]
        panel.text(10, y - 8, f"head output {h}", at="start", size=12)
        _table(panel, 10, y, [[round(n, 2) for n in row] for row in z], HEADS[h], 34)
        panel.text(96, y + 42, "×", size=16)
        panel.text(170, y - 8, "its rows of Wᴼ", size=12)
        _table(panel, 112, y + 13, block, HEADS[h], 26)
        panel.text(238, y + 42, "=", size=16)
        panel.text(288, y + 42, f"term {h}", bold=True)
    panel.line(10, 222, 330, 222, "", 1)
    output = multi_head_attention(x, *(EXAMPLE[name] for name in ("w_q", "w_k", "w_v", "w_o")), heads=2)
    panel.text(76, 278, "term 0 + term 1  =", bold=True)
    owner = tuple(HEADS[next(i for i, row in enumerate(EXAMPLE["w_o"]) if row[m]) // 2] for m in range(4))
    _table(panel, 150, 236, [[round(n, 2) for n in row] for row in output], owner, 38)
    return [panel]


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


def append():
    panel = Panel(250)
    panel.text(206, 18, "the KV cache", bold=True)
    panel.box(8, 96, 80, 34, "q", "query", tint=60)
    panel.text(48, 148, "of bank", size=12)
    for n, word in enumerate(EXAMPLE["words"]):
        y, tint = 34 + 52 * n, 60 if n == 2 else 22
        panel.box(130, y, 74, 34, "k", "key", tint=tint)
        panel.box(208, y, 74, 34, "v", "value", tint=tint)
        panel.text(290, y + 22, word, at="start", bold=n == 2)
        panel.line(90, 113, 128, y + 17, "q", 2)
    panel.text(10, 208, "strong: made in this step. The key and the value", at="start", size=12)
    panel.text(10, 226, "are appended; the query is used once and dropped.", at="start", size=12)
    return [panel]


def all_reduce():
    panel = Panel(310)
    for gpu in (0, 1):
        x, color = 10 + 170 * gpu, HEADS[gpu]
        panel.text(x + 75, 18, f"GPU {gpu}", bold=True)
        panel.box(x, 32, 150, 30, color, "columns: its outputs", size=12)
        panel.line(x + 75, 64, x + 75, 86, "", 1.5, arrow=True)
        panel.box(x, 88, 150, 30, color, "rows: a term of the sum", size=12)
        panel.line(x + 75, 120, x + 75, 158, color, 3, arrow=True)
        panel.line(x + 75, 206, x + 75, 248, "main", 3, arrow=True)
        panel.box(x, 250, 150, 30, "main", "the whole sum")
    panel.text(WIDE / 2, 80, "no message", size=12, quiet=True)
    panel.box(10, 160, 320, 44, "main", "", tint=30)
    panel.text(WIDE / 2, 187, "all-reduce: term 0 + term 1", bold=True)
    panel.text(WIDE / 2, 300, "both go on with the same numbers", size=12, quiet=True)
    return [panel]


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


def tokens_or_blocks():
    panel, best = Panel(264), (2, 7, 9, 14, 21, 24, 27, 30)
    for y, title, chosen in (
        (40, "single tokens: eight pieces of memory", best),
        (166, "blocks: two consecutive pieces", (*range(4, 8), *range(20, 24))),
    ):
        panel.text(10, y - 16, title, at="start", bold=True)
        for n in range(32):
            row, column = divmod(n, 16)
            kind = "k" if n in chosen else "hidden"
            panel.box(12 + 20 * column, y + 34 * row, 17, 26, kind, tint=60)
        if chosen != best:
            for block in range(8):
                row, column = divmod(block, 4)
                x = 10 + 80 * column
                panel.path(f"M{x} {y - 2 + 34 * row}h79v30h-79z", "", 1.2)
    panel.text(10, 124, "for latents, which all heads read", at="start", size=12, quiet=True)
    panel.text(10, 250, "for shared KV heads, which few heads read", at="start", size=12, quiet=True)
    return [panel]


DRAWINGS = {
    one.__name__: one
    for one in (
        why_attention, why_scale, why_many_heads, output_projection, depth_and_norms, reading_heads, pruning_heads,
        counting_cost, cache_and_sharing, across_machines, say_nothing, compress, overwrite, select, collaborate,
        overlap, route, compose, sparsify, merge_and_deepen, feed_back, one_head, strips, sum_of_heads, cut_heads,
        append, all_reduce, endless_cache, two_forms, tokens_or_blocks,
    )
}  # fmt: skip
