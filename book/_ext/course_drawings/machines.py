"""Caches and several GPUs: what is kept, what is shared, and what is sent."""

from course_first import WIDE, Panel

from course_drawings.parts import HEADS


def stale_keys():
    panels = []
    for title, causal in (("causal", True), ("encoder: no mask", False)):
        panel, rows = Panel(292, title), (226, 136, 46)
        panel.text(8, 282, "1 to 5 were read before; now 6 comes", at="start", size=12, quiet=True)
        for y, name in zip(rows, ("x", "layer 1", "keys of"), strict=True):
            panel.text(8, y + 18, name, at="start", size=12)
        panel.text(8, 78, "layer 2", at="start", size=12)
        for n in range(6):
            x, new = 90 + 43 * n, n == 5
            for below in range(6):
                if (below <= n or not causal) and (new or below == 5):
                    color = "head-1" if below == 5 else ""
                    width = 2 if below == 5 else 1
                    panel.line(90 + 43 * below, 224, x, 166, color, width)
            changed = new or not causal
            if new:
                panel.line(x, 134, x, 78, "", 1.5, arrow=True)
            else:
                panel.text(x, 112, "=" if causal else "≠", size=16, bold=not causal)
            panel.box(x - 17, rows[0], 34, 28, "head-1" if new else "", f"{n + 1}", tint=50 if new else 18)
            panel.box(x - 17, rows[1], 34, 28, "head-1" if changed else "", "new" if changed else "same", size=11)
            kind, words = ("k", "new" if new else "fits") if changed <= new else ("hidden", "old")
            panel.box(x - 17, rows[2], 34, 28, kind, words, size=11, tint=40)
        panels.append(panel)
    return panels


def two_corners():
    panel = Panel(352)
    for half, (title, last) in enumerate((("aligned to the first key", False), ("aligned to the last key", True))):
        y = 16 + 164 * half
        panel.text(10, y, title, at="start", bold=True)
        panel.text(330, y, "torch’s is_causal" if not last else "what is wanted", at="end", size=12, quiet=True)
        for column, (name, chunks) in enumerate((("one call", [5]), ("3, then 2", [3, 2]), ("one by one", [1] * 5))):
            x, start, lost = 12 + 112 * column, 0, 0
            for call, count in enumerate(chunks):
                for i in range(count):
                    row = y + 14 + 19 * (start + i) + 4 * call * (len(chunks) < 5)
                    for j in range(5):
                        wanted, seen = j <= start + i, j <= i + start * last
                        if j < start + count:
                            color = "main" if seen else "hidden" if wanted else ""
                            tint = 55 if seen else 4
                            panel.box(
                                x + 19 * j, row, 17, 17, color, "×" if wanted and not seen else "", tint=tint, size=12
                            )
                        lost += wanted and not seen
                start += count
            panel.text(x + 47, y + 130, name, size=12)
            panel.text(x + 47, y + 145, f"{lost} lost", size=12, bold=lost > 0, quiet=not lost)
    panel.text(WIDE / 2, 345, "row: a query · column: a key · ×: a key that is lost", size=12, quiet=True)
    return [panel]


def folded_queries():
    panels, keys = [], 2 * 4096 * 64 * 8
    for title, copies in (("repeat_interleave", True), ("folded", False)):
        panel = Panel(316, title)
        panel.text(52, 42, "the cache", size=12, quiet=True)
        panel.text(288, 42, "queries", size=12, quiet=True)
        if copies:
            panel.text(176, 42, "copies", size=12, quiet=True)
        for g in range(2):
            y = 54 + 112 * g
            panel.box(10, y, 84, 102, "k", f"keys {g}", tint=44)
            if not copies:
                panel.box(246, y, 84, 102, "q", "", tint=8)
                panel.line(244, y + 51, 98, y + 51, "q", 2.5, arrow=True)
            for n in range(4):
                middle, h = y + 13 + 25.5 * n, 4 * g + n
                if copies:
                    panel.line(96, y + 51, 130, middle, "k", 1.5, arrow=True)
                    panel.box(134, middle - 11, 84, 22, "k", f"keys {g}", size=11.5, tint=44)
                    panel.line(250, middle, 222, middle, "q", 1.5, arrow=True)
                panel.box(254, middle - 10, 68, 20, "q", f"head {h}", size=11.5, tint=30)
        total = keys * (4 if copies else 1)
        panel.text(WIDE / 2, 302, f"{total:,} bytes of keys", bold=True)
        panels.append(panel)
    return panels


def which_kv_head():
    panels = []
    for title, order in (("repeat_interleave", lambda h: h // 4), ("tile", lambda h: h % 2)):
        panel = Panel(190, title)
        for g in range(2):
            panel.box(60 + 130 * g, 128, 90, 30, HEADS[g], f"KV head {g}")
        for h in range(8):
            x, g = 27 + 41 * h, order(h)
            panel.line(x, 62, 105 + 130 * g, 126, HEADS[g], 2)
            panel.dot(x, 50, 13, HEADS[g], tint=30)
            panel.text(x, 54, f"{h}", size=12)
        panel.text(
            WIDE / 2, 180, "neighbors share" if order(1) == 0 else "every second one shares", size=12, quiet=True
        )
        panels.append(panel)
    return panels


def ring():
    """A ring all-reduce of four processes: how many terms are added up in each piece."""
    p, panels = 4, []
    terms, states = [[1] * p for _ in range(p)], []
    for step in range(2 * p - 1):
        arrived = set()
        if step:
            old = [row[:] for row in terms]
            for rank in range(p):
                piece, to = (rank + 1 - step) % p, (rank + 1) % p
                terms[to][piece] = old[rank][piece] + (old[to][piece] if step < p else 0)
                arrived.add((to, piece))
        states.append(([row[:] for row in terms], arrived))
    for title, first in (("once around: add up", 0), ("once more: pass the sums on", p - 1)):
        panel = Panel(348, title)
        for rank in range(p):
            x = 66 + 69 * rank
            panel.text(x + 29, 44, f"GPU {rank}", size=12)
            if rank < p - 1:
                panel.line(x + 53, 40, x + 74, 40, "", 1.5, arrow=True)
        for row in range(p):
            y, (counts, arrived) = 58 + 68 * row, states[first + row]
            panel.text(8, y + 26, f"step {first + row}" if first + row else "start", at="start", size=12)
            for rank in range(p):
                for piece in range(p):
                    count, x = counts[rank][piece], 66 + 69 * rank + 15 * piece
                    panel.box(x, y, 13, 42, "main", f"{count}", size=11, tint=4 + 3.6 * count * count)
                    if (rank, piece) in arrived and row:
                        panel.line(x, y + 48, x + 13, y + 48, "head-1", 3)
        panel.text(10, 336, "GPU 3 sends to GPU 0 · underlined: just arrived", at="start", size=12, quiet=True)
        panels.append(panel)
    return panels


def there_and_back():
    panels = []
    for title, back in (("forward", False), ("backward", True)):
        panel = Panel(332, title)
        upper = "all-reduce: gradient of x" if back else "x, the same on both"
        lower = "gradient of Y, the same on both" if back else "all-reduce: Y"
        panel.box(10, 30, 320, 44, "main" if back else "", upper, tint=34 if back else 18)
        panel.box(10, 270, 320, 44, "" if back else "main", lower, tint=18 if back else 34)
        for gpu in (0, 1):
            x, color = 10 + 170 * gpu, HEADS[gpu]
            panel.box(x, 128, 150, 88, color)
            panel.text(x + 75, 150, f"GPU {gpu}", bold=True)
            panel.text(x + 75, 172, f"heads {2 * gpu}, {2 * gpu + 1}", size=12)
            panel.text(x + 75, 196, "gradients stay here" if back else "parameters stay here", size=12)
            for y, sends in ((76, back), (218, not back)):
                ends = (y + 50, y) if back else (y, y + 50)
                panel.line(x + 75, ends[0], x + 75, ends[1], color if sends else "", 4 if sends else 1.5, arrow=True)
        for y, sends in ((105, back), (247, not back)):
            panel.text(WIDE / 2, y, "two terms" if sends else "no message", size=12, bold=sends, quiet=not sends)
        panels.append(panel)
    return panels


def bias_once():
    panels = []
    for title, each in (("every process adds the bias", True), ("the bias is added after the sum", False)):
        panel, whole, wide = Panel(262, title), 150, 38
        for row, p in enumerate((1, 2, 4)):
            y, added = 60 + 66 * row, p if each else 1
            panel.text(10, y - 8, "1 process" if p == 1 else f"{p} processes", at="start", size=12)
            for n in range(p):
                panel.box(10 + whole / p * n, y, whole / p, 30, "main", "terms" if p < 3 else "", size=12)
            for n in range(added):
                panel.box(10 + whole + wide * n, y, wide, 30, "head-1", "b", size=12, tint=34)
            ending = "right" if added == 1 else f"off by {added - 1} b"
            panel.text(330, y - 8, ending, at="end", size=12, bold=added > 1, quiet=added == 1)
        panel.line(10 + whole + wide, 40, 10 + whole + wide, 234, "hidden", 1.5)
        panel.text(10 + whole + wide, 252, "the right output", size=12, quiet=True)
        panels.append(panel)
    return panels


DRAWINGS = (stale_keys, two_corners, folded_queries, which_kv_head, ring, there_and_back, bias_once)
