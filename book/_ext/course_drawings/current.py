"""Attention in current models."""

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


DRAWINGS = (
    say_nothing,
    endless_cache,
    compress,
    two_forms,
    overwrite,
    select,
    tokens_or_blocks,
)
