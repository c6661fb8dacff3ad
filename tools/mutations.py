"""Every way a machine knows to change a piece of Python a little: operators, constants, comparisons, calls, slices.

`tools/mutate_solutions.py` changes the solutions of exercises with it, `tools/mutate_package.py` the package.
"""

import ast
import copy
import functools

BINARY = {
    ast.Add: [ast.Sub],
    ast.Sub: [ast.Add],
    ast.Mult: [ast.Div],
    ast.Div: [ast.Mult],
    ast.FloorDiv: [ast.Div, ast.Mult],
    ast.Mod: [ast.FloorDiv],
    ast.Pow: [ast.Mult],
    ast.BitAnd: [ast.BitOr],
    ast.BitOr: [ast.BitAnd],
}
COMPARED = {
    ast.Lt: [ast.LtE, ast.Gt],
    ast.LtE: [ast.Lt, ast.GtE],
    ast.Gt: [ast.GtE, ast.Lt],
    ast.GtE: [ast.Gt, ast.LtE],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
    ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is],
}
TWINS = [
    ("max", "min"),
    ("amax", "amin"),
    ("argmax", "argmin"),
    ("sum", "mean"),
    ("any", "all"),
    ("sin", "cos"),
    ("tril", "triu"),
    ("sqrt", "square"),
    ("log", "exp"),
    ("repeat", "repeat_interleave"),
    ("softmax", "log_softmax"),
    ("sorted", "list"),
    ("unsqueeze", "squeeze"),
    ("norm", "sum"),
    ("cumsum", "cumprod"),
]
OTHER_NAME = dict([*TWINS, *((b, a) for a, b in TWINS)])


def variants(node):
    """What could stand in the place of one node, each with a word for it."""
    if isinstance(node, ast.BinOp):
        for kind in BINARY.get(type(node.op), []):
            yield "operator", replaced(node, op=kind())
        yield "dropped term", node.left
        yield "dropped term", node.right
        if isinstance(node.op, (ast.Sub, ast.Div, ast.MatMult, ast.Pow, ast.FloorDiv)):
            yield "swapped", replaced(node, left=node.right, right=node.left)
    elif isinstance(node, ast.Constant):
        yield from constants(node)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        for kind in COMPARED.get(type(node.ops[0]), []):
            yield "comparison", replaced(node, ops=[kind()])
    elif isinstance(node, ast.BoolOp):
        yield "operator", replaced(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        for value in node.values:
            yield "dropped term", value
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not, ast.Invert)):
        if not isinstance(node.operand, ast.Constant):
            yield "sign", node.operand
    elif isinstance(node, ast.Call):
        yield from calls(node)
    elif isinstance(node, ast.Attribute) and node.attr in ("mT", "T"):
        yield "dropped call", node.value
    elif isinstance(node, ast.IfExp):
        yield "condition", node.body
        yield "condition", node.orelse
    elif isinstance(node, ast.Slice):
        yield from slices(node)
    elif isinstance(node, (ast.ListComp, ast.GeneratorExp)) and any(part.ifs for part in node.generators):
        bare = copy.deepcopy(node)
        for part in bare.generators:
            part.ifs = []
        yield "condition", bare


def replaced(node, **fields):
    """A copy of a node with other fields."""
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def constants(node):
    """Other numbers in the place of one."""
    value = node.value
    if isinstance(value, bool):
        yield "constant", ast.Constant(not value)
    elif isinstance(value, int):
        others = dict.fromkeys((value + 1, value - 1, -value, 0))
        yield from (("axis or constant", ast.Constant(other)) for other in others if other != value)
    elif isinstance(value, float):
        others = dict.fromkeys((2 * value, value / 2, -value, 0.0, value + 1))
        yield from (("constant", ast.Constant(other)) for other in others if other != value)


def calls(node):
    """A call with its arguments exchanged, without one of them, under a twin's name, or left out."""
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if len(node.args) >= 2 and not any(isinstance(x, ast.Starred) for x in node.args):
        for n in range(len(node.args) - 1):
            args = list(node.args)
            args[n], args[n + 1] = args[n + 1], args[n]
            yield "swapped arguments", replaced(node, args=args)
    for n in range(len(node.keywords)):
        yield "dropped keyword", replaced(node, keywords=node.keywords[:n] + node.keywords[n + 1 :])
    if name in OTHER_NAME:
        other = OTHER_NAME[name]
        func = replaced(function, attr=other) if isinstance(function, ast.Attribute) else ast.Name(other, ast.Load())
        yield "another function", replaced(node, func=func)
    if isinstance(function, ast.Attribute) and not _is_module(function.value):
        yield "dropped call", function.value
    elif node.args and not isinstance(node.args[0], ast.Starred):
        yield "dropped call", node.args[0]


def _is_module(node):
    return isinstance(node, ast.Name) and node.id in ("torch", "math", "F", "nn", "np", "masks", "mha")


def slices(node):
    """Slices that begin or end one place away, or nowhere."""
    for end in ("lower", "upper", "step"):
        value = getattr(node, end)
        if value is not None:
            yield "slice", replaced(node, **{end: None})
            if end != "step":
                yield "slice", replaced(node, **{end: ast.BinOp(value, ast.Add(), ast.Constant(1))})


def statements(body):
    """Bodies without one of their statements."""
    for n, statement in enumerate(body):
        if isinstance(statement, (ast.Assign, ast.AugAssign, ast.If, ast.For, ast.While, ast.With)) and len(body) > 1:
            yield statement, body[:n] + body[n + 1 :]
        if isinstance(statement, ast.If):
            yield statement, body[:n] + statement.body + body[n + 1 :]
            if statement.orelse:
                yield statement, body[:n] + statement.orelse + body[n + 1 :]


class Swap(ast.NodeTransformer):
    """Put something else in the place of one node."""

    def __init__(self, old, new):
        self.old, self.new = old, new

    def visit(self, node):
        return self.new if node is self.old else super().generic_visit(node)


def trees(tree):
    """Every change of a tree: its kind, the node, what comes in its place, and what makes the changed copy."""
    skipped = {id(part) for node in ast.walk(tree) for part in ast.walk(_decoration(node))}
    for index, node in enumerate(ast.walk(tree)):
        if id(node) in skipped:
            continue
        for kind, new in variants(node):
            yield kind, node, new, functools.partial(_swapped, tree, index, new)
        for field in ("body", "orelse"):
            body = getattr(node, field, None)
            for statement, rest in statements(body if isinstance(body, list) else []):
                yield "dropped statement", statement, None, functools.partial(_shortened, tree, index, field, rest)


def _swapped(tree, index, new):
    """A copy of a tree with something else in the place of one node."""
    other = copy.deepcopy(tree)
    return Swap(list(ast.walk(other))[index], copy.deepcopy(new)).visit(other)


def _shortened(tree, index, field, rest):
    """A copy of a tree with another body in one node."""
    other = copy.deepcopy(tree)
    setattr(list(ast.walk(other))[index], field, copy.deepcopy(rest) or [ast.Pass()])
    return other


def _decoration(node):
    """What is no part of what a function does: annotations, docstrings, errors."""
    parts = [getattr(node, "annotation", None), getattr(node, "returns", None), *getattr(node, "decorator_list", [])]
    if isinstance(node, ast.Raise) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        parts.append(node)
    kept = [ast.Expr(part) if isinstance(part, ast.expr) else part for part in parts if part is not None]
    return ast.Module(kept, [])
