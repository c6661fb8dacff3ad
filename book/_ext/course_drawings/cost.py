"""What attention costs: computing, memory, machines."""

from math import exp

from course_first import WIDE, Panel

from course_drawings.parts import HEADS
from mha.reference import EXAMPLE


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


def used_again():
    """What a number that was read from memory serves, in four situations."""
    panels = []
    for title, cases in (
        (
            "a batch of four sequences",
            (("parameters: one matrix for all", 1, "x"), ("cache: one for each sequence", 4, "q")),
        ),
        ("one sequence", (("cache: four heads share a KV head", 1, "q"), ("cache: four new tokens together", 1, "q"))),
    ):
        panel = Panel(344, title)
        for n, (name, boxes, asks) in enumerate(cases):
            y = 44 + 154 * n
            panel.text(10, y, name, at="start", size=12)
            for row in range(4):
                middle = y + 26 + 30 * row
                panel.line(38, middle, 110, middle if boxes > 1 else y + 71 + 12 * (row - 1.5), "", 1.5, arrow=True)
                panel.dot(26, middle, 11, "q" if asks == "q" else "", tint=40)
                panel.text(26, middle + 4, asks, size=12)
                if boxes > 1:
                    panel.box(114, middle - 12, 118, 24, "k", "K, V")
            if boxes == 1:
                kind, words = ("", "W_q") if asks == "x" else ("k", "K, V")
                panel.box(114, y + 14, 118, 114, kind, words, tint=30)
            uses = 4 // boxes
            panel.text(288, y + 66, "each number", size=12)
            panel.text(288, y + 86, f"serves {uses}", bold=True, size=14)
        panels.append(panel)
    return panels


def running_softmax():
    panel, seen, top = Panel(300), [], 0
    for n, score in enumerate((2, 5, 3)):
        x, old = 8 + 114 * n, top
        seen.append(score)
        top = max(seen)
        panel.text(x + 48, 18, f"score {score} arrives", bold=True)
        panel.text(x + 48, 40, f"largest: {top}", size=12)
        for m, one in enumerate(seen):
            tall = 130 * exp(one - top)
            panel.bar(x + 32 * m + 4, 200 - tall, 24, tall, "main" if m == n else "")
            panel.text(x + 32 * m + 16, 194 - tall, f"{exp(one - top):.2f}", size=11.5)
            panel.text(x + 32 * m + 16, 218, f"{one}", size=12, quiet=True)
        panel.line(x, 201, x + 98, 201, "", 1)
        if n:
            panel.text(x + 48, 248, f"old sum × {exp(old - top):.2f}", size=12)
        panel.text(x + 48, 270, f"sum {sum(exp(one - top) for one in seen):.2f}", bold=True, size=14)
    panel.text(10, 293, "a bar is exp(score − largest)", at="start", size=12, quiet=True)
    return [panel]


def to_and_from_memory():
    """Drawn to scale: a head of width 64 reads 1,024 tokens."""
    n, d, panels = 1024, 64, []
    for title, stored in (("explicit", True), ("fused", False)):
        panel, long = Panel(336, title), 96
        thin = long * d / n
        panel.box(4, 32, 332, 142, "", "", tint=4)
        panel.text(14, 50, "HBM", at="start", size=12, quiet=True)
        panel.box(4, 240, 332, 50, "", "", tint=12)
        panel.text(14, 258, "SRAM", at="start", size=12, quiet=True)
        squares = (("scores", 126), ("weights", 238)) if stored else ()
        for name, middle in (("q", 24), ("k", 44), ("v", 64), ("z", 316)):
            panel.box(middle - thin / 2, 58, thin, long, name if name != "z" else "main", tint=70)
            panel.text(middle, 170, name, size=12)
            panel.line(middle, *((176, middle, 238) if name != "z" else (238, middle, 176)), "", 2, arrow=True)
        for name, middle in squares:
            panel.box(middle - long / 2, 58, long, long, "main", name, tint=30)
            panel.line(middle - 16, 238, middle - 16, 176, "main", 3, arrow=True)
            panel.line(middle + 16, 176, middle + 16, 238, "main", 3, arrow=True)
        if not stored:
            for middle in (150, 170, 190):
                panel.box(middle - 6, 248, 12, 12, "main", tint=70)
            panel.text(170, 280, "tiles, one after the other", size=12)
        total = 4 * n * d + (4 * n * n if stored else 0)
        panel.text(WIDE / 2, 314, f"{total:,} numbers travel", bold=True)
        panels.append(panel)
    return panels


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


DRAWINGS = (
    counting_cost,
    used_again,
    running_softmax,
    to_and_from_memory,
    cache_and_sharing,
    append,
    across_machines,
    all_reduce,
)
