"""Attention in current models: a state in place of the cache, and an index that chooses keys."""

from math import exp, log
from random import Random

from course_first import WIDE, Panel

from mha.reference import softmax


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


def grid(panel, x, y, rows, columns, color, words="", unit=9):
    """A matrix, drawn to scale."""
    panel.box(x, y, unit * columns, unit * rows, color, tint=30)
    across = "".join(f"M{x:g} {y + unit * row:g}h{unit * columns}" for row in range(1, rows))
    down = "".join(f"M{x + unit * column:g} {y:g}v{unit * rows}" for column in range(1, columns))
    panel.path(across + down, color, 0.5)
    panel.text(x + unit * columns / 2, y - 6, words, size=12)


def moved_brackets():
    scores, state = Panel(330, "(Q Kᵀ) V: first the scores"), Panel(330, "Q (Kᵀ V): first the state")
    n, d = 12, 3
    grid(scores, 80, 48, n, d, "q", "Q")
    grid(scores, 142, 88, d, n, "k", "Kᵀ")
    scores.text(124, 106, "×", size=14)
    grid(scores, 80, 196, n, n, "head-1", "")
    grid(scores, 220, 196, n, d, "v", "V")
    scores.text(204, 254, "×", size=14)
    scores.text(134, 254, "scores", bold=True)
    scores.line(134, 162, 134, 188, "head-1", 2, arrow=True)
    grid(state, 80, 88, d, n, "k", "Kᵀ")
    grid(state, 220, 48, n, d, "v", "V")
    state.text(204, 106, "×", size=14)
    grid(state, 120, 196, n, d, "q", "Q")
    grid(state, 182, 236, d, d, "main", "state")
    state.text(164, 254, "×", size=14)
    state.line(196, 162, 196, 214, "main", 2, arrow=True)
    for panel, numbers in ((scores, n * n), (state, d * d)):
        panel.text(WIDE / 2, 324, f"{numbers} numbers for {n} tokens", size=12)
    return [scores, state]


def chunk_by_chunk():
    weights, chain = Panel(318, "12 tokens in chunks of 4"), Panel(318, "only the state is passed on")
    for i in range(12):
        for j in range(i + 1):
            if i // 4 == j // 4:
                weights.box(56 + 19 * j, 34 + 19 * i, 17, 17, "q", tint=45)
        for j in range(i + 1, 12):
            weights.box(56 + 19 * j, 34 + 19 * i, 17, 17, "hidden")
    for i, j, state in ((1, 0, "T₁"), (2, 0, "T₂")):
        weights.box(56 + 76 * j, 34 + 76 * i, 74 + 76 * (i - 1), 74, "main", f"through {state}", tint=35)
    weights.text(WIDE / 2, 290, "in a chunk: weights, as a matrix", size=12)
    weights.text(WIDE / 2, 308, "between chunks: read from the state", size=12)
    for n in range(4):
        y = 30 + 82 * n
        chain.box(14, y, 56, 36, "main", f"T{'₀₁₂₃'[n]}", tint=35)
        if n == 3:
            break
        chain.line(42, y + 38, 42, y + 80, "main", 2.5, arrow=True)
        chain.line(72, y + 18, 128, y + 18, "main", 2, arrow=True)
        chain.text(99, y + 11, "read", size=11.5, quiet=True)
        for i in range(4):
            for j in range(i + 1):
                chain.box(132 + 12 * j, y - 5 + 12 * i, 11, 11, "q", tint=45)
        chain.line(184, y + 18, 212, y + 18, "q", 2, arrow=True)
        chain.box(214, y + 2, 116, 32, "v", f"outputs {4 * n + 1} to {4 * n + 4}", size=12)
        chain.line(132, y + 46, 72, y + 90, "k", 2, arrow=True)
        chain.text(114, y + 65, "write", at="start", size=11.5, quiet=True)
    return [weights, chain]


def forget_by():
    panel, keys = Panel(334), "ABACCCBC"
    last = [keys.rindex(key) for key in keys]
    for row, (said, left) in enumerate(
        (
            ("adding", [1.0] * 8),
            ("decay, α = 0.8: forgets by age", [0.8 ** (7 - n) for n in range(8)]),
            ("delta rule: forgets by key", [float(last[n] == n) for n in range(8)]),
        )
    ):
        y = 18 + 110 * row
        panel.text(10, y, said, at="start", bold=True)
        for n, key in enumerate(keys):
            x, now = 12 + 40 * n, last[n] == n
            panel.bar(x, y + 68 - 40 * left[n], 34, 40 * left[n], "v" if now else "head-1")
            panel.text(
                x + 17, y + 62 - 40 * left[n], f"{left[n]:.2f}".replace("0.00", "0").replace("1.00", "1"), size=11.5
            )
            panel.box(x, y + 71, 34, 20, "v" if now else "hidden", f"key {key}", size=11)
    return [panel]


def hide_then_exp():
    wrong, right = Panel(318, "exponentiate, then hide"), Panel(318, "hide, then exponentiate")
    tokens = (1, 17, 33, 49)
    for panel in (wrong, right):
        for top in (50, 190):
            for n, token in enumerate(tokens):
                panel.text(108 + 54 * n, top - 6, f"{token}", size=11.5, quiet=True)
                panel.text(72, top + 18 + 28 * n, f"{token}", at="end", size=11.5, quiet=True)
        panel.text(34, 42, "Σ log α", size=12)
        panel.text(34, 182, "decay", size=12)
        for i, reads in enumerate(tokens):
            for j, written in enumerate(tokens):
                power, future = -2 * (reads - written), j > i
                if panel is right and future:
                    said, result = "−∞", "0"
                else:
                    said = f"{power}".replace("-", "−")
                    size = "inf" if power > log(3.4e38) else f"{exp(power):.0e}".replace("e+", "e").replace("-", "−")
                    result = ("NaN" if size == "inf" else "0") if future else size.replace("1e00", "1")
                color = "head-1" if future and panel is wrong else "hidden" if future else "main"
                panel.box(82 + 54 * j, 50 + 28 * i, 52, 26, color, said, size=12, tint=20)
                color = "head-1" if result == "NaN" else "hidden" if future else "main"
                panel.box(
                    82 + 54 * j, 190 + 28 * i, 52, 26, color, result, size=11.5, tint=50 if result == "NaN" else 20
                )
    return [wrong, right]


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
        (166, "blocks: two contiguous pieces", (*range(4, 8), *range(20, 24))),
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


def index_learns():
    panel, draw = Panel(316), Random(1)
    heads = [softmax([draw.gauss(0, 1) + 2.6 * (j == 3) for j in range(6)]) for _ in range(4)]
    p = [sum(head[j] for head in heads) / 4 for j in range(6)]
    index = softmax([0.4, 0.1, 0.9, 1.6, 0.2, 0.8])
    divergence = sum(a * log(a / b) for a, b in zip(p, index, strict=True))
    panel.box(90, 10, 160, 30, "head-1", f"KL divergence: {divergence:.2f}", tint=20)
    for x, row, color in ((20, p, "head-0"), (206, index, "main")):
        for j, weight in enumerate(row):
            panel.bar(x + 19 * j, 128 - 90 * weight, 15, 90 * weight, color)
        panel.line(x - 4, 128.5, x + 116, 128.5, "", 1)
    panel.line(76, 66, 112, 44, "", 1.5, arrow=True)
    panel.line(262, 66, 228, 44, "", 1.5, arrow=True)
    panel.text(76, 146, "p, the mean of the heads", size=12)
    panel.text(262, 146, "softmax of the index", size=12)
    panel.line(76, 168, 76, 152, "head-0", 1.5, arrow=True)
    for h, head in enumerate(heads):
        for j, weight in enumerate(head):
            panel.bar(12 + 34 * h + 4.6 * j, 206 - 36 * weight, 3.6, 36 * weight, "head-0")
        panel.text(25 + 34 * h, 222, f"{h}", size=11.5, quiet=True)
    panel.text(76, 238, "heads of the layer", size=12)
    panel.box(216, 172, 96, 34, "main", "index", tint=35)
    panel.line(262, 170, 262, 152, "main", 1.5, arrow=True)
    panel.box(120, 276, 100, 28, "", "input x")
    panel.line(136, 274, 96, 246, "", 1.5, arrow=True)
    panel.path("M204 274L256 210", "hidden", 1.5)
    panel.text(248, 244, "detached", at="start", size=12, quiet=True)
    panel.path("M252 25H334V189H326", "head-1", 2.5)
    panel.line(330, 189, 313, 189, "head-1", 2.5, arrow=True)
    panel.text(292, 19, "gradient", size=12)
    return [panel]


def needle_in_a_block():
    scores, panels = ((2, 3, 2, 3), (1, 9, 0, 1), (4, 3, 4, 3), (2, 1, 3, 2)), []
    for title, pool in (
        ("score of a block: its mean", lambda block: sum(block) / 4),
        ("score of a block: its maximum", max),
    ):
        panel, pooled = Panel(238, title), [pool(block) for block in scores]
        for n, block in enumerate(scores):
            x, chosen = 12 + 81 * n, pooled[n] == max(pooled)
            if chosen:
                panel.box(x - 4, 34, 80, 164, "main", tint=10)
            for j, score in enumerate(block):
                needle = score == 9
                panel.bar(x + 18 * j, 150 - 11 * score, 14, 11 * score, "v" if needle else "k")
                panel.text(x + 18 * j + 7, 166, f"{score}", size=11.5, quiet=True)
            panel.text(x + 36, 190, f"{pooled[n]:g}", bold=chosen)
        panel.text(129, 46, "needle", size=11.5)
        lost = pooled.index(max(pooled)) != 1
        panel.text(WIDE / 2, 222, "the needle is lost" if lost else "the needle is read", size=12)
        panels.append(panel)
    return panels


def mask_and_choice():
    draw, k, n, panels = Random(5), 3, 8, []
    scores = [[draw.random() for _ in range(n)] for _ in range(n)]
    for title, late in (("choose 3, then hide", True), ("hide, then choose 3", False)):
        panel = Panel(300, title)
        panel.text(332, 42, "read", at="end", size=12, quiet=True)
        panel.text(24, 42, "query", size=12, quiet=True)
        for i in range(n):
            y = 50 + 30 * i
            seen = range(n) if late else range(i + 1)
            chosen = sorted(seen, key=lambda j: -scores[i][j])[:k]
            panel.text(30, y + 19, f"{i + 1}", at="end", size=12)
            for j in range(n):
                lost = j in chosen and j > i
                color = "head-1" if lost else "k" if j in chosen else "hidden" if j > i else ""
                panel.box(
                    42 + 32 * j, y, 29, 27, color, "×" if lost else "", tint=60 if j in chosen and not lost else 8
                )
            panel.text(326, y + 19, f"{sum(j <= i for j in chosen)}", at="end", bold=True)
        panels.append(panel)
    return panels


def work_of_an_index():
    dense, indexed = Panel(318, "dense"), Panel(318, "with an index that chooses 3")
    draw, n, k, unit, full, small = Random(2), 16, 3, 15, 0, 0
    share = 64 * 128 / (128 * (2 * 512 + 64))  # of the FLOPs for a key: index against layer
    for i in range(n):
        chosen = draw.sample(range(i + 1), min(k, i + 1))
        for j in range(i + 1):
            x, y = 50 + unit * j, 34 + unit * i
            dense.bar(x, y, unit - 1.5, unit - 1.5, "head-0")
            if j in chosen:
                full += 1
                indexed.bar(x, y, unit - 1.5, unit - 1.5, "head-0")
            if i >= k:
                small, side = small + 1, (unit - 1.5) * share**0.5
                middle = (unit - 1.5 - side) / 2
                indexed.bar(x + middle, y + middle, side, side, "head-1")
    dense.text(WIDE / 2, 292, f"{n * (n + 1) // 2} keys compared by all heads", size=12)
    indexed.text(WIDE / 2, 292, f"{full} keys compared by all heads", size=12)
    indexed.text(WIDE / 2, 310, f"{small} by the index, each at 1/{1 / share:.0f} of the work", size=12)
    return [dense, indexed]


DRAWINGS = (
    overwrite,
    moved_brackets,
    chunk_by_chunk,
    forget_by,
    hide_then_exp,
    select,
    index_learns,
    needle_in_a_block,
    tokens_or_blocks,
    mask_and_choice,
    work_of_an_index,
)
