"""The layer in a model: how it is called, how it knows positions, and what is around it."""

from math import cos, exp, pi, sin, sqrt

from course_first import WIDE, Panel

from course_drawings.parts import area, one_of_heads, shades
from mha.reference import EXAMPLE, causal_mask, matmul, softmax

# ---- its calls


def three_calls():
    panel, size, real, source, target = Panel(342), 6, 11, 25, 15
    x, y = 84, 62
    right, below = x + size * source + 8, y + size * source + 8
    for left, high, tall in ((x, y, source), (x, below, target)):
        panel.box(left, high, size * real, size * tall, "main", tint=35)
        panel.box(left + size * real, high, size * (source - real), size * tall, "hidden")
    panel.box(right, below, size * target, size * target, "hidden")
    stairs = "".join(f"h{size}v{size}" for _ in range(target))
    area(panel, f"M{right} {below}{stairs}h-{size * target}z", "main", 35)
    panel.text(x, 18, "keys: English", at="start", bold=True)
    panel.text(x + size * real / 2, 52, f"{real} real", size=12)
    panel.text(x + size * (source + real) / 2, 52, "padding", size=12, quiet=True)
    panel.text(right, 18, "keys: Chinese", at="start", bold=True)
    panel.text(right, 38, "so far", at="start", size=12, quiet=True)
    for tall, high, words in ((source, y, "English"), (target, below, "Chinese")):
        middle = high + size * tall / 2
        panel.text(76, middle - 4, "queries:", at="end", size=12, bold=True)
        panel.text(76, middle + 12, words, at="end", size=12, bold=True)
    for left, middle, name, shape in (
        (x + 33, y + 75, "1 self", f"{source} × {source}"),
        (x + 33, below + 42, "3 cross", f"{target} × {source}"),
        (right + 31, below + 69, "2 causal", f"{target} × {target}"),
    ):
        panel.text(left, middle, name, bold=True)
        panel.text(left, middle + 17, shape, size=12)
    panel.text(right + 45, y + 72, "no call", size=12, quiet=True)
    panel.text(10, 328, "Colored: attended to. Dashed: hidden by a mask.", at="start", size=12)
    return [panel]


def teacher():
    signs = ["▶", *"2038年"]
    train, generate = Panel(286, "training: one pass"), Panel(286, "generation: a pass for each")
    x = [22 + 62 * n for n in range(5)]
    for n in range(5):
        for m in range(n + 1):
            train.line(x[m] + 24, 196, x[n] + 24, 112, "", 1)
        train.line(x[n] + 24, 196, x[n] + 24, 112, "", 2, arrow=True)
        train.box(x[n], 80, 48, 30, "main", signs[n + 1], size=14)
        train.box(x[n], 198, 48, 30, "", signs[n], size=14)
    train.text(WIDE / 2, 58, "labels: the row without its first sign", size=12.5)
    train.text(WIDE / 2, 248, "inputs: the row without its last sign", size=12.5)
    train.text(WIDE / 2, 276, "always the correct earlier characters", size=12, quiet=True)
    for n in range(5):
        y = 42 + 41 * n
        for m in range(n + 1):
            generate.box(12 + 44 * m, y, 38, 28, "main" if m else "", signs[m], size=14)
        generate.line(54 + 44 * n, y + 14, 80 + 44 * n, y + 14, "", 2, arrow=True)
        generate.box(82 + 44 * n, y, 38, 28, "main", signs[n + 1], size=14, tint=55)
        if n < 4:
            generate.line(90 + 44 * n, y + 30, 78 + 44 * n, y + 40, "main", 1.5)
    generate.text(WIDE / 2, 276, "its own earlier characters, right or wrong", size=12, quiet=True)
    return [train, generate]


def copied_label():
    signs, panels = ["▶", *"2038年"], []
    for title, masked in (("with the causal mask", True), ("without a mask", False)):
        panel = Panel(262, title)
        x = [22 + 62 * n for n in range(5)]
        for n in range(5):
            now = n == 2
            panel.box(x[n], 64, 48, 30, "main" if now else "", signs[n + 1], size=14, tint=45 if now else 8)
            hides = masked and n > 2
            panel.box(x[n], 176, 48, 30, "hidden" if hides else "q" if now else "", signs[n], size=14)
            if not hides and n != 3:
                panel.line(x[n] + 24, 174, x[2] + 24, 98, "", 1.5)
        panel.text(12, 48, "must come out at the third position: 3", at="start", size=12.5)
        panel.text(12, 226, "input", at="start", size=12, quiet=True)
        if masked:
            panel.text(WIDE / 2, 250, "it must be worked out from ▶, 2 and 0", bold=True)
        else:
            panel.line(x[3] + 24, 174, x[2] + 30, 98, "head-1", 5, arrow=True)
            panel.text(WIDE / 2, 250, "it is the next input: copy it", bold=True)
        panels.append(panel)
    return panels


def mask_dropped():
    panels, past = [], causal_mask(4)
    for title, second in (
        ("mask in both layers", past),
        ("mask in layer 1 only", [[True] * 4] * 4),
    ):
        panel, leaks = Panel(300, title), 0
        reach = [[any(second[i][m] and past[m][j] for m in range(4)) for j in range(4)] for i in range(4)]
        leaks = sum(reach[i][j] for i in range(4) for j in range(i + 1, 4))
        x = [96 + 66 * n for n in range(4)]
        for low, sees in ((236, past), (146, second)):
            for i in range(4):
                for j in range(4):
                    if sees[i][j]:
                        future = j > i
                        panel.line(x[j], low - 14, x[i], low - 76, "head-1" if future else "", 2.2 if future else 1.2)
        for y, said in ((236, "tokens"), (146, "layer 1"), (56, "layer 2")):
            panel.text(64, y + 4, said, at="end", size=12.5)
            for n in range(4):
                panel.dot(x[n], y, 13, "" if y > 200 else "main")
                panel.text(x[n], y + 4, f"{n}", size=12)
        said = f"{leaks} pairs leak from the future" if leaks else "nothing leaks from the future"
        panel.text(WIDE / 2, 284, said, bold=True)
        panels.append(panel)
    return panels


def made_again():
    panel, source, times = Panel(290), 25, 15
    panel.text(10, 16, "without a cache: all keys, each time", at="start", bold=True)
    panel.text(10, 206, "with a cache: once", at="start", bold=True)
    bars = "".join(f"M{40 + 9 * n} {{y}}h7v7h-7z" for n in range(source))
    for row in range(times):
        panel.parts.append(f'<path class="bar k" d="{bars.format(y=28 + 10 * row)}"/>')
    panel.parts.append(f'<path class="bar k" d="{bars.format(y=218)}"/>')
    for y, number in ((35, 1), (175, times), (225, 1)):
        panel.text(32, y + 1, f"{number}", at="end", size=12, quiet=True)
    for y, keys in ((102, source * times), (226, source)):
        panel.text(274, y, f"{keys} keys", at="start", bold=True)
    panel.text(10, 256, "A bar is the key of one source character, a row one", at="start", size=12)
    panel.text(10, 274, "generated character: 14 and the stop sign.", at="start", size=12)
    return [panel]


# ---- positions


def known_pairs():
    panels, seen, tokens, size = [], 16, 64, 3.75
    x, y = 66, 44
    right, low = x + tokens * size, y + tokens * size
    band = f"{x} {y + seen * size:g}", f"{right - seen * size:g} {low:g}"
    for title, near in (("sinusoidal: known positions", False), ("rotary: known distances", True)):
        panel = Panel(326, title)
        area(panel, f"M{x} {y}V{low:g}H{right:g}z", "", 10)
        end = f"L{band[1]}H{right:g}z" if near else f"H{x + seen * size:g}z"
        area(panel, f"M{x} {y}V{y + seen * size:g}{end}", "main", 45)
        panel.path(f"M{band[0]}L{band[1]}", "hidden", 1.5)
        for n in (1, seen, tokens):
            panel.text(x - 8, y + n * size + 2, f"{n}", at="end", size=12, quiet=True)
        panel.text(x - 8, y + 130, "query", at="end", size=12)
        panel.text(x + 8, low - 12, "outside the window", at="start", size=12, quiet=True)
        panel.text((x + right) / 2, low + 20, "key", size=12)
        for top, color, said, tint in ((60, "main", "seen in training", 45), (86, "", "new", 10)):
            panel.box(206, top, 16, 16, color, tint=tint)
            panel.text(228, top + 13, said, at="start", size=12)
        panels.append(panel)
    return panels


def half_turn():
    panel, seen, longest = Panel(330), 16, 64
    x, wide = 14, 4.9
    for row, base in enumerate((1_000, 10_000, 100_000)):
        y, speed = 66 + 102 * row, base ** (-2 / 8)
        half = pi / speed
        panel.parts.append(
            f'<rect class="box" x="{x}" y="{y - 38}" width="{wide * seen:g}" height="76" style="stroke:none;--n:22%"/>'
        )
        panel.line(x, y, x + wide * longest, y, "", 0.8)
        for first, last, color in ((0, half, "main"), (half, longest, "head-1")):
            points = [first + (last - first) * n / 40 for n in range(41)]
            path = "L".join(f"{x + wide * d:.1f} {y - 36 * cos(speed * d):.1f}" for d in points)
            panel.path(f"M{path}", color, 3)
        panel.line(x + wide * half, y - 38, x + wide * half, y + 36, "", 1)
        panel.dot(x + wide * half, y + 36, 4, "main", tint=100)
        panel.text(min(max(x + wide * half, 144), WIDE - 58), y - 44, f"half a turn: {half:.0f}", size=12)
        panel.text(x, y - 44, f"base {base:,}", at="start", bold=True)
        if base == 10_000:
            near = 17
            far = 2 * half - near
            high = y - 36 * cos(speed * near)
            panel.line(x + wide * near, high, x + wide * far, high, "hidden", 1.5)
            for distance in (near, far):
                panel.dot(x + wide * distance, high, 3.5, "", tint=100)
                panel.text(
                    x + wide * distance - 4,
                    high + 18,
                    f"{distance:.0f}",
                    at="end" if distance == near else "start",
                    size=12,
                )
        if base == 10_000:
            panel.text(WIDE - 12, y + 39, "far looks near", at="end", size=12)
    panel.text(x + 4, 324, f"trained: 0 to {seen - 1}", at="start", size=12, quiet=True)
    panel.text(WIDE - 8, 324, f"distance, to {longest} →", at="end", size=12, quiet=True)
    return [panel]


def soft_windows():
    panel, seen, longest, far, heads = Panel(302), 16, 64, 60, 4
    x, wide = 14, 4.9
    for h in range(heads):
        y, slope = 72 + 66 * h, 2 ** (-8 * (h + 1) / heads)
        points = "L".join(f"{x + wide * d:.1f} {y - 44 * exp(-slope * d):.1f}" for d in range(longest + 1))
        area(panel, f"M{x} {y}L{points}V{y}z", "main", 35)
        for distance in (seen, far):
            panel.line(x + wide * distance, y - 46, x + wide * distance, y, "hidden", 1)
        lost = f"{slope * far:.0f}" if slope * far > 0.5 else f"{slope * far:.1f}"
        panel.text(x, y - 50, f"head {h}: slope 1/{1 / slope:.0f}", at="start", bold=True)
        panel.text(WIDE - 12, y - 50, f"at {far}: −{lost}", at="end", size=12)
    panel.text(x, 292, "0", at="start", size=12)
    panel.text(x + wide * seen, 292, f"{seen}, trained", size=12, quiet=True)
    panel.text(x + wide * far, 292, f"{far} tokens back", at="end", size=12)
    return [panel]


def key_bias():
    q, k, _ = one_of_heads(EXAMPLE["x"], 0)
    asks, bias, panels = q[2], [1, 0], []
    for title, speed in (("no rotation", 0), ("rotary positions", 1)):
        panel, rows = Panel(316, title), []
        for keys in (k, [bias] * 3):
            turned = [[cos(speed * (2 - n)), sin(speed * (2 - n)), *key] for n, key in enumerate(keys)]
            rows.append([(asks[0] * (c * a + s * b) + asks[1] * (c * b - s * a)) / sqrt(2) for c, s, a, b in turned])
        for n, word in enumerate(EXAMPLE["words"]):
            x = 116 + 74 * n
            panel.text(x + 34, 44, f"key {n}: {word}", size=12)
            for row, color in ((0, ""), (1, "head-1")):
                number = f"{rows[row][n] + 0.0:.2f}".replace("-", "−")
                panel.box(x, 54 + 40 * row, 68, 30, color, number, size=14, tint=10 + 14 * abs(rows[row][n]))
        panel.text(108, 73, "score", at="end")
        panel.text(108, 106, "the key's bias", at="end", size=12)
        panel.text(108, 122, "adds", at="end", size=12)
        total = [a + b for a, b in zip(*rows, strict=True)]
        for y, scores, said in ((168, rows[0], "weights without the bias"), (232, total, "weights with the bias")):
            x = 10.0
            panel.text(10, y - 8, said, at="start", size=12.5)
            for n, weight in enumerate(softmax(scores)):
                panel.box(x, y, 320 * weight, 30, "v", f"{weight:.2f}" if weight > 0.12 else "", tint=15 + 20 * n)
                x += 320 * weight
        same = max(abs(a - b) for a, b in zip(softmax(rows[0]), softmax(total), strict=True)) < 1e-9
        panel.text(
            WIDE / 2, 292, "the same amount: nothing changes" if same else "other amounts: other weights", bold=True
        )
        panels.append(panel)
    return panels


# ---- what is around it


def stream():
    panels, layers, part = [], 6, 0.25
    for title, pre in (("post-norm", False), ("pre-norm", True)):
        panel, bands = Panel(296, title), [[1.0]]
        for _ in range(layers):
            new = [*bands[-1], part]
            bands.append(new if pre else [band / (1 + part) for band in new])
        high = 180 / sum(bands[-1]) if pre else 72
        x, top = [34 + 42 * n for n in range(layers + 1)], 56
        for band in range(layers + 1):
            first = max(0, band)
            upper, lower = [], []
            for step in range(first, layers + 1):
                start = top + high * sum(bands[step][:band])
                upper.append(f"{x[step]} {start:.1f}")
                lower.append(f"{x[step]} {start + high * bands[step][band]:.1f}")
            if band:
                before = top + high * sum(bands[band - 1])
                upper.insert(0, f"{x[band] - 42} {before:.1f}")
            path = f"M{'L'.join(upper)}L{'L'.join(reversed(lower))}z"
            area(panel, path, "" if band else "main", 12 + 16 * (band % 2) if band else 50)
        for n in range(1, layers + 1):
            low = top + high * sum(bands[n])
            panel.line(x[n] - 12, low + 30, x[n] - 4, low + 4, "", 1.5, arrow=True)
            panel.text(x[n] - 14, low + 44, f"{n}", size=12)
        share = bands[-1][0] / sum(bands[-1])
        panel.text(x[0] + 6, 48, "the token x", at="start", size=12.5)
        panel.text(WIDE - 8, 48, f"{share:.0%} is x", at="end", bold=True)
        panel.text(x[0], 288, "six layers write into the stream", at="start", size=12, quiet=True)
        panels.append(panel)
    return panels


def averages():
    panel, tokens, size = Panel(316), 8, 8
    masks = (
        ("no mask", [[True] * tokens] * tokens),
        ("causal", causal_mask(tokens)),
        ("2 on each side", [[abs(i - j) <= 2 for j in range(tokens)] for i in range(tokens)]),
    )
    times = (1, 2, 4, 8)
    for row, (name, mask) in enumerate(masks):
        y = 50 + 88 * row
        even = [[see / sum(line) for see in line] for line in mask]
        power = even
        panel.text(12, y - 8, name, at="start", bold=True)
        for n in range(1, times[-1] + 1):
            if n in times:
                shades(panel, 12 + 84 * times.index(n), y, power, "main", size)
            power = matmul(power, even)
    for n, layers in enumerate(times):
        panel.text(44 + 84 * n, 20, f"{layers} layer{'s' * (layers > 1)}", size=12.5)
    panel.text(12, 308, "rows: tokens after the layers; columns: before", at="start", size=12, quiet=True)
    return [panel]


DRAWINGS = (
    three_calls,
    teacher,
    copied_label,
    mask_dropped,
    made_again,
    known_pairs,
    half_turn,
    soft_windows,
    key_bias,
    stream,
    averages,
)
