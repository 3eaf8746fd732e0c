"""The mutants of a file: one change each of what its code does."""

import ast
import copy
from collections.abc import Iterator
from typing import NamedTuple

_COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


class Mutant(NamedTuple):
    """One change of a file: on what line, its kind, the node's number in a walk of the tree, its substitute.

    `lines` are those of the statement that is changed, without the body of an `if` or a loop: which tests run
    any of them is what tells who could notice.
    """

    path: str
    line: int
    lines: range
    change: str
    number: int
    substitute: ast.AST

    def text(self, source: str) -> str:
        """The whole file with the change."""
        changed = _Replace(self.number, self.substitute).visit(_numbered(source))
        return ast.unparse(ast.fix_missing_locations(changed))


def _numbered(source: str) -> ast.Module:
    tree = ast.parse(source)
    for number, node in enumerate(ast.walk(tree)):
        node.number = number  # type: ignore[attr-defined]
    return tree


def _is_statement(node: ast.stmt) -> bool:
    """Whether leaving a statement out leaves a program that means something else."""
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant) and "logger" not in ast.unparse(node)
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__slots__":
        return False  # saves memory, and means nothing else
    if ast.unparse(node) == "raise NotImplementedError":
        return False  # of a seam: nothing comes there
    return isinstance(node, ast.Assign | ast.AugAssign | ast.Raise | ast.Delete | ast.Break | ast.Continue)


def _has_an_order(call: ast.Call) -> bool:
    """Whether a call with its first two arguments swapped may mean something else."""
    symmetrical = ("min", "max", "hmac.compare_digest")
    return not any(isinstance(entry, ast.Starred) for entry in call.args) and (
        ast.unparse(call.func) not in symmetrical
    )


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What else could stand in a node's place, each with its name."""
    match node:
        case ast.Compare(ops=[operator, *_]) if type(operator) in _COMPARISONS:
            compared = copy.deepcopy(node)
            compared.ops[0] = _COMPARISONS[type(operator)]()
            yield "comparison", compared
        case ast.BoolOp():
            joined = copy.deepcopy(node)
            joined.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield "and/or", joined
        case ast.UnaryOp(op=ast.Not()):
            yield "not", node.operand
        case ast.Constant(value=bool() as value):
            yield "true/false", ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield "plus one", ast.Constant(value + 1)
        case ast.Call(args=[_, _, *_]) if _has_an_order(node):
            called = copy.deepcopy(node)
            called.args[0], called.args[1] = called.args[1], called.args[0]
            yield "swapped arguments", called
        case ast.Return(value=value) if value is not None and ast.unparse(value) not in ("None", "False"):
            yield "return None", ast.Return(ast.Constant(None))
        case ast.If() | ast.While():
            turned = copy.deepcopy(node)
            turned.test = ast.UnaryOp(ast.Not(), node.test)
            yield "condition turned", turned
        case ast.stmt() if _is_statement(node):
            yield "left out", ast.Pass()


class _Replace(ast.NodeTransformer):
    """Puts another node in the place of one."""

    def __init__(self, number: int, substitute: ast.AST) -> None:
        self._number = number
        self._substitute = substitute

    def visit(self, node: ast.AST) -> ast.AST:
        if getattr(node, "number", None) == self._number:
            return ast.copy_location(self._substitute, node)
        return self.generic_visit(node)


def _spared(tree: ast.Module) -> set[ast.AST]:
    """What no test could notice: annotations, docstrings, limits and tables of a module, log lines."""
    spared: set[ast.AST] = set()
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            parts = [
                node.returns,
                *(argument.annotation for argument in ast.walk(node.args) if isinstance(argument, ast.arg)),
            ]
        elif isinstance(node, ast.AnnAssign):
            parts = [node.annotation]
        elif isinstance(node, ast.Module):
            parts = [child for child in node.body if isinstance(child, ast.Assign | ast.AnnAssign | ast.Expr)]
        elif isinstance(node, ast.ImportFrom | ast.Import) or (
            isinstance(node, ast.Expr) and ast.unparse(node).startswith("logger.")
        ):
            parts = [node]
        for part in filter(None, parts):
            spared.update(ast.walk(part))
    return spared


def _statement_lines(tree: ast.Module) -> dict[ast.AST, range]:
    """Of each node, the lines of the innermost statement that holds it: of a compound one, its head's."""
    lines_by_node: dict[ast.AST, range] = {}
    for statement in ast.walk(tree):  # breadth first: the innermost has the last word
        if not isinstance(statement, ast.stmt):
            continue
        body = getattr(statement, "body", None)
        end = body[0].lineno - 1 if body else statement.end_lineno or statement.lineno
        lines = range(statement.lineno, max(end, statement.lineno) + 1)
        for node in ast.walk(statement):
            lines_by_node[node] = lines
    return lines_by_node


def mutants(path: str, source: str) -> list[Mutant]:
    """Every mutant of a file, in the order of its lines."""
    tree = _numbered(source)
    spared = _spared(tree)
    lines_by_node = _statement_lines(tree)
    result = [
        Mutant(path, node.lineno, lines_by_node[node], change, vars(node)["number"], substitute)
        for node in ast.walk(tree)
        if node not in spared and hasattr(node, "lineno") and node in lines_by_node
        for change, substitute in _changes(node)
    ]
    return sorted(result, key=lambda mutant: mutant.line)
