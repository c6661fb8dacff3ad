"""What attention costs: computing, memory, machines."""

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
    cache_and_sharing,
    append,
    across_machines,
    all_reduce,
)
