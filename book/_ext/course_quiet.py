"""Quiet code: a page shows the lines that carry the idea, and folds what checks them and what only draws.

The notebooks know nothing of it. Assertions of a cell become one small line, "✓ 2 checks", that opens, together with
the lines whose numbers only they need; so do the lines that only draw, or only put numbers in order for it. Cells that
only import become one line, "imports". Without JavaScript they open too: a fold is a `details` element.
"""

import ast
import symtable
import textwrap
from itertools import pairwise

from docutils import nodes

PLAIN = {"dict", "enumerate", "len", "list", "max", "min", "range", "round", "smooth", "sorted", "str", "tuple", "zip"}
METHODS = {"items", "values", "keys", "tolist", "numpy", "item", "join", "append", "expand", "lstrip", "pairwise"}
METHODS |= {"detach", "format", "fromkeys", "mean", "replace", "split", "where"}
DRAWS = {"plot", "plt", "axis", "axes", "Diagram", "Looks", "sliders"}
KEPT = (ast.Assign, ast.AugAssign, ast.Expr, ast.With, ast.For, ast.FunctionDef)
SILENT = (ast.Assign, ast.AugAssign, ast.For)
SETS_UP = {"torch.set_default_dtype", "torch.set_num_threads"}  # may stand below the imports
UNTOUCHED = "tag_try-it"  # a cell to change and run: its code stays whole


def is_check(statement):
    """Whether a statement only checks: an assertion, or a loop or condition around nothing but assertions."""
    if isinstance(statement, ast.Assert):
        return True
    inner = getattr(statement, "body", None)
    if isinstance(statement, (ast.For, ast.If, ast.With)) and inner:
        return all(map(is_check, [*inner, *getattr(statement, "orelse", [])]))
    return False


def only_imports(source):
    """Whether a cell only imports, or sets what holds for the whole page."""
    body = _body(source)
    imports = [isinstance(one, ast.Import | ast.ImportFrom) for one in body]
    calls = [isinstance(one, ast.Expr) and isinstance(one.value, ast.Call) for one in body]
    sets = [call and ast.unparse(one.value.func) in SETS_UP for one, call in zip(body, calls, strict=True)]
    return bool(body) and all(map(max, imports, sets))


def checks(body):
    """The outermost statements that only check, also inside loops that do something else."""
    for statement in body:
        if is_check(statement):
            yield statement
        elif isinstance(statement, (ast.For, ast.If, ast.With, ast.While)):
            yield from checks([*statement.body, *getattr(statement, "orelse", [])])


def for_checks(body, found, needed):
    """The statements that calculate for nothing but the checks of their cell; ``needed`` are names used later.

    A call may change its argument, which nobody can see here: such a call stands as a line of its own in a notebook.
    """
    asked = {name for one in found for name in _read(ast.unparse(one))}
    for statement in reversed([one for one in body if one not in found]):
        inside = list(ast.walk(statement))
        made = {node.id for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        silent = isinstance(statement, SILENT) and not any(map(_changes_or_shows, inside))
        if silent and made & asked and not made & needed:
            yield statement
            asked |= _read(ast.unparse(statement))
        else:
            needed = _needed_before(statement, needed)


def _changes_or_shows(node):
    if isinstance(node, ast.Attribute | ast.Subscript):
        return isinstance(node.ctx, ast.Store)
    return isinstance(node, ast.Expr)


def pictures(body):
    """The statements that draw, each with those before it that put numbers in order for it and nothing else."""
    found, run = [], []
    for statement in body:
        calls = [node.func for node in ast.walk(statement) if isinstance(node, ast.Call)]
        plain = isinstance(statement, KEPT) and all(_root(call) in DRAWS or _is_plain(call) for call in calls)
        run = [*run, statement] if plain else []
        if run and any(_root(call) in DRAWS for call in calls):
            found, run = found + run, []
    rest = [node for one in body if one not in found for node in ast.walk(one) if isinstance(node, ast.Name)]
    needed = {name.id for name in rest}
    return [one for one in found if not needed & {name.id for name in _assigned(one)}]


def _assigned(statement):
    if isinstance(statement, ast.AugAssign):
        return _assigned(ast.Assign([statement.target]))
    return [node for one in getattr(statement, "targets", []) for node in ast.walk(one) if isinstance(node, ast.Name)]


def _root(call):
    while isinstance(call, (ast.Attribute, ast.Call, ast.Subscript)):
        call = call.func if isinstance(call, ast.Call) else call.value
    return call.id if isinstance(call, ast.Name) else ""


def _is_plain(call):
    if isinstance(call, ast.Name):
        return call.id in PLAIN
    return isinstance(call, ast.Attribute) and (call.attr in METHODS or _root(call) == "np")


def parts(source, needed=None):
    """What a cell shows, what it folds as drawing, what it folds as checks, and how many checks these are.

    ``needed`` are the names that the page uses further down; where they are not known, all that calculates is shown.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return source, "", "", 0
    found = list(checks(tree.body))
    count = sum(isinstance(node, ast.Assert) for one in found for node in ast.walk(one))
    if needed is not None:
        silent = list(for_checks(tree.body, found, needed))
        apart = [one for one in found if not any(one in ast.walk(other) for other in silent)]
        found = sorted([*apart, *silent], key=lambda one: one.lineno)
    lines = source.splitlines()
    drawn = _lines_of(pictures([one for one in tree.body if one not in found]))
    checked = _with_comments(_lines_of(found), lines)
    blocks = [_with_comments(_lines_of([one]), lines) for one in found]
    folded = "\n".join(textwrap.dedent("\n".join(lines[n - 1] for n in sorted(block))) for block in blocks)
    shown = "\n".join(line for n, line in enumerate(lines, 1) if n not in checked | drawn).strip("\n")
    drawing = "\n".join(line for n, line in enumerate(lines, 1) if n in drawn - checked)
    return shown, drawing, folded, count


def _lines_of(statements):
    return {line for one in statements for line in range(one.lineno, one.end_lineno + 1)}


def _with_comments(numbers, lines):
    """Line numbers, and those of the comments right above them."""
    found = set(numbers)
    for n in range(len(lines) - 1, 0, -1):
        if n + 1 in found and lines[n - 1].lstrip().startswith("#"):
            found.add(n)
    return found


def fold(kind, summary, source, like):
    """A fold with code in it."""
    block = nodes.literal_block(source, source, language=like.get("language", "python"), classes=like["classes"])
    begin = nodes.raw("", f'<details class="quiet {kind}"><summary>{summary}</summary>', format="html")
    return [begin, block, nodes.raw("", "</details>", format="html")]


def fold_ahead(sources, follow, whole=()):
    """The parts of all cells of a page; what only prepares the drawing of the cell that follows is folded with it.

    ``follow`` says of each cell but the last whether the next one stands right below, with nothing between the two;
    ``whole`` are the cells that stay as they are.
    """
    folded = [()] * len(sources)
    needed = {name for source in whole for name in _names(source)}
    drawn = set()
    for n in range(len(sources) - 1, -1, -1):
        folded[n] = shown, drawing, *checked = parts(sources[n], needed | drawn)
        at = n + 1
        while at < len(follow) and follow[at - 1] and not any(folded[at]):  # a cell that stands in the drawing below
            at += 1
        stands_above = at <= len(follow) and follow[at - 1] and folded[at][1]
        if shown and not drawing and stands_above and _prepares(shown, needed):
            after, drawing, *others = folded[at]
            folded[n] = "", "", *checked
            folded[at] = after, f"{shown}\n\n{drawing}", *others
            drawn |= _names(shown)
        for statement in reversed(_body(folded[n][0])):
            needed = _needed_before(statement, needed)
        drawn |= _names(folded[n][1])
    return folded


CALCULATES = (ast.Mult, ast.MatMult, ast.Div, ast.Sub, ast.Pow)


def _prepares(source, needed):
    """Whether lines only put things in order, and no line that a page shows further down needs them."""
    body = ast.parse(source).body
    nodes_of = list(ast.walk(ast.Module(body, [])))
    calls = [node.func for node in nodes_of if isinstance(node, ast.Call)]
    made = {name.id for one in body for name in _assigned(one)}
    return (
        all(isinstance(one, ast.Assign | ast.AugAssign) for one in body)
        and all(map(_is_plain, calls))
        and not any(isinstance(node, CALCULATES) for node in nodes_of)
        and not made & needed
    )


def _body(source):
    try:
        return ast.parse(source).body
    except SyntaxError:
        return []


def _names(source):
    """The names of a page that a cell touches; a function's own variables are none."""
    return _read(source, lambda name: True)


def _read(source, counts=symtable.Symbol.is_referenced):
    """The names of a page that lines read."""
    try:
        page = symtable.symtable(source, "cell", "exec")
    except SyntaxError:
        return set()
    found = {name.get_name() for name in page.get_symbols() if counts(name)}
    inside = page.get_children()
    for table in inside:  # grows: what is defined further inside
        inside += table.get_children()
        found |= {name.get_name() for name in table.get_symbols() if name.is_global()}
    added = [one.target for one in ast.walk(ast.parse(source)) if isinstance(one, ast.AugAssign)]
    return found | {name.id for one in added for name in ast.walk(one) if isinstance(name, ast.Name)}


def _needed_before(statement, needed):
    """The names that must be there before a statement, when ``needed`` must be there behind it."""
    made, read = {getattr(statement, "name", "")}, _read(ast.unparse(statement))
    if isinstance(statement, ast.Assign):
        made |= {name.id for name in _assigned(statement) if isinstance(name.ctx, ast.Store)}
    if isinstance(statement, ast.For):
        made |= {name.id for name in ast.walk(statement.target) if isinstance(name, ast.Name)}
        read -= made  # the loop gives its variables their values
    return needed - made | read


def quiet(app, doctree):
    """Fold checks and drawing in every cell of a page."""
    cells = [one for one in doctree.findall(nodes.container) if "cell" in one["classes"]]
    whole = [block.astext() for cell in cells if UNTOUCHED in cell["classes"] for block in _code(cell)]
    blocks = [block for cell in cells if UNTOUCHED not in cell["classes"] for block in _code(cell)]
    imports = [block for block in blocks if only_imports(block.astext())]
    blocks = [block for block in blocks if block not in imports]
    fold_imports(imports)
    follow = [_stands_above(one, other) for one, other in pairwise(blocks)]
    folded = fold_ahead([block.astext() for block in blocks], follow, whole)
    for block, (shown, drawing, checked, count) in zip(blocks, folded, strict=True):
        if not (shown or drawing or count):
            cell = block.parent.parent
            cell.parent.remove(cell)  # it stands in the drawing below
            continue
        if not drawing and not count:
            continue
        new = [nodes.literal_block(shown, shown, **block.attributes)] if shown else []
        new += fold("drawing", "the drawing", drawing, block) if drawing else []
        new += fold("checks", f"✓ {count} check{'s' * (count > 1)}", checked, block) if count else []
        block.parent.replace(block, new)


def fold_imports(blocks):
    """Fold each cell that only imports; those that stand right below one another become one line."""
    runs = []
    for block in blocks:
        if runs and _stands_above(runs[-1][-1], block):
            runs[-1].append(block)
        else:
            runs.append([block])
    for first, *others in runs:
        source = "\n\n".join(block.astext() for block in (first, *others))
        first.parent.replace(first, fold("imports", "imports", source, first))
        for cell in (block.parent.parent for block in others):
            cell.parent.remove(cell)


def _code(cell):
    boxes = [one for one in cell.children if "cell_input" in one.get("classes", [])]
    return [block for box in boxes for block in box.findall(nodes.literal_block)]


def _stands_above(block, other):
    """Whether a block's cell printed nothing, and the other's cell follows at once."""
    cell, following = block.parent.parent, other.parent.parent
    place = cell.parent.index(cell)
    silent = all("cell_output" not in one.get("classes", []) for one in cell.children)
    return silent and cell.parent.children[place + 1 : place + 2] == [following]


def setup(app):
    app.connect("doctree-read", quiet)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
