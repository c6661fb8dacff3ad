"""Tables on a phone: printed columns become tables, the rows of the ledger cards, and long names break at their joints.

A notebook prints text, and stays as it is. Where it printed columns too wide for a phone, its page shows a table with
the same words: those of a cell go on in the next line, and who listens hears the name of the column. What is no table
keeps its lines, and breaks them on a phone. How all of it looks is in tables.css.
"""

import re
from html import escape
from itertools import groupby

from docutils import nodes

FITS = 44  # letters: a line of a phone
NUMBER = re.compile(r"[-+−–×±$]?\d")
JOINED = ("=", "→")  # what stands before a number and belongs to it
KEPT = "±\N{NO-BREAK SPACE}"  # a line may break before it, not after it
MATRIX = re.compile(r"^\s*\[\[|^\s*\[[^]]*\.[^]]*$", re.MULTILINE)


def columns(lines):
    """Where the columns begin and end.

    Two blanks in every line stand between them; one does where the first line names the columns and has two.
    """
    width = max(map(len, lines))
    padded = [line.ljust(width) for line in lines]
    first = padded[0]
    blank = [all(line[at] == " " for line in padded) for at in range(width)]
    begin = blank.index(False)
    edges = [0]
    for is_gap, run in groupby(range(begin, width), lambda at: blank[at]):
        at = list(run)
        a, b = at[0], at[-1] + 1
        names = not re.search(r"\d", first) and first[:a].strip() and first[b:].strip()
        joined = all(line[:a].rstrip().endswith(JOINED) for line in padded)
        wide = b - a > 1 or (names and first[a - 1 : b + 1].count(" ") > 1)
        if is_gap and b < width and wide and not joined:
            edges += [a, b]
    edges.append(width)
    return list(zip(edges[::2], edges[1::2], strict=True))


def split(lines):
    """The cells of each line."""
    return [[re.sub(r"(?<=[=→]) +", " ", line[a:b].strip()) for a, b in columns(lines)] for line in lines]


def header_of(rows):
    """How many rows name the columns: those that begin with no name, and one of words above numbers."""
    count = next((n for n, row in enumerate(rows) if row[0]), len(rows))
    below = rows[count + 1 :]
    if below and sum(map(bool, rows[count])) > 1 and not any(NUMBER.match(cell) for cell in rows[count][1:]):
        count += all(any(NUMBER.match(cell) for cell in row[1:]) for row in below)
    return count


def names_of(rows):
    """The names of the columns."""
    return [" ".join(filter(None, parts)) for parts in zip(*rows, strict=True)]


def is_table(lines, before="", after=""):
    """Whether lines are a table, with one thing in each cell.

    Every column has a name, or the lines around the table are written further left or right, as a title is.
    """
    if min(map(len, lines)) == 0:
        return False
    rows = split(lines)
    head = header_of(rows)
    cells = [cell for row in rows[head:] for cell in row]
    if len(rows[0]) < 2 or len(rows) - head < 2 or not all(cells) or any("  " in cell for cell in cells):
        return False
    if any("  " in line.strip() for line in (before, after)):
        return False  # columns, too, and not the same ones
    if head:
        return all(names_of(rows[:head])[1:])
    around = {indent(line) for line in (before, after) if line}
    return len({row[0] for row in rows}) > 1 and not around & set(map(indent, lines))


def indent(line):
    """How many blanks a line begins with."""
    return len(line) - len(line.lstrip())


def around(lines, begin, end):
    """The lines before and after."""
    return [next(iter(near), "") for near in (lines[:begin][-1:], lines[end:])]


def blocks(text):
    """The text as blocks of lines: (whether it is a table, lines)."""
    lines, found, at = text.rstrip("\n").split("\n"), [], 0
    while at < len(lines):
        ends = range(len(lines), at + 2, -1)
        end = next((end for end in ends if is_table(lines[at:end], *around(lines, at, end))), at + 1)
        table = end > at + 1
        if not table and found and not found[-1][0]:
            found[-1][1].append(lines[at])
        else:
            found.append((table, lines[at:end]))
        at = end
    return found


def to_the_right(lines, begin, end):
    """Whether the cells of a column end at one place, and do not begin at one."""
    cells = [line.ljust(end)[begin:end] for line in lines if line[begin:end].strip()]
    begins, ends = ({len(c) - len(c.lstrip()) for c in cells}, {len(c.rstrip()) for c in cells})
    return len(ends) == 1 and (len(begins) > 1 or bool(NUMBER.match(cells[0].strip())))


def as_table(lines):
    """A table of HTML."""
    rows, spans = split(lines), columns(lines)
    head = header_of(rows)
    right = [' class="right"' if to_the_right(lines[head:], a, b) else "" for a, b in spans]
    html = []
    if head:
        named = zip(names_of(rows[:head]), right, strict=True)
        cells = [f'<th scope="col"{r}>{escape(name)}</th>' if name else "<td></td>" for name, r in named]
        html.append(f"<thead><tr>{''.join(cells)}</tr></thead>")
    html.append("<tbody>")
    for first, *others in rows[head:]:
        kept = [escape(cell.replace("± ", KEPT)) for cell in others]
        cells = [f"<td{r}>{cell}</td>" for cell, r in zip(kept, right[1:], strict=True)]
        html.append(f'<tr><th scope="row"{right[0]}>{escape(first)}</th>{"".join(cells)}</tr>')
    return f'<table class="printed">{"".join(html)}</tbody></table>'


def with_tables(text):
    """What a cell printed as HTML, if there is a table in it that a phone would cut."""
    if max(map(len, text.split("\n"))) <= FITS or MATRIX.search(text):
        return None
    found = blocks(text)
    if not any(table and max(map(len, lines)) > FITS for table, lines in found):
        return None
    html = [as_table(lines) if table else "<pre>{}</pre>".format(escape("\n".join(lines))) for table, lines in found]
    return "".join(html)


def set_tables(app, doctree):
    """Put tables into the outputs of a page's cells."""
    for block in list(doctree.findall(nodes.literal_block)):
        if "stream" in block["classes"] and (html := with_tables(block.astext())):
            block.replace_self(nodes.raw("", html, format="html"))


# ---- the tables of pages


CARDS = ("book/claims_ledger",)  # pages whose tables are a card for each row, on a phone
TABLE = re.compile(r"<table\b[^>]*>.*?</table>", re.DOTALL)
PART = re.compile(r"<(table|thead|tbody|tr|th|td)\b(?![^>]*\brole=)")
ROLES = {"table": "table", "thead": "rowgroup", "tbody": "rowgroup", "tr": "row", "th": "columnheader", "td": "cell"}
NAMED = re.compile(r'<td\b.*?</td>|<dt class="sig.*?</dt>', re.DOTALL)
CODE = re.compile(r'(<span class="pre">)([^<]+)')
JOINT = re.compile(r"(?<=[a-z0-9]_)(?=\w)|(?<=[a-z]{2})(?=[A-Z])|(?<=\w[.(=/])(?=\w)")


def cards(body):
    """Tables that stay tables for who listens, whatever the look of their parts: each part says what it is."""
    said = TABLE.sub(lambda table: PART.sub(lambda part: f'{part[0]} role="{ROLES[part[1]]}"', table[0]), body)
    return said.replace('<table role="table" class="', '<table role="table" class="cards ')


def with_joints(body):
    """Long names in tables and signatures may break where a word of the name ends."""

    def broken(code):
        return code[1] + JOINT.sub("<wbr>", code[2])

    return NAMED.sub(lambda cell: CODE.sub(broken, cell[0]), body)


def fit_a_phone(app, name, template, context, doctree):
    """Make the tables of a page fit a phone."""
    if context.get("body"):
        body = cards(context["body"]) if name in CARDS else context["body"]
        context["body"] = with_joints(body)


def setup(app):
    app.connect("doctree-read", set_tables)
    app.connect("html-page-context", fit_a_phone)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
