"""Every place where a pattern that may not be ours meets a text that may not be ours, each with the reason
why it ends soon.

A regular expression that backtracks holds the interpreter until it is done: neither `/health` nor SIGTERM is
heard meanwhile. So whoever compiles something else than a literal says here what bounds it.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULES = frozenset(["re", "fnmatch", "glob"])
METHODS = frozenset(["glob", "rglob", "full_match"])  # of pathlib
WORDS = re.compile(rf"\b({'|'.join(MODULES | METHODS | {'pattern'})})\b")
HARMLESS = frozenset(["escape", "error", "purge", "Match", "Pattern", "translate"])

ALLOWED = {
    "ctx/connectors/patterns.py re.compile": "parts of fixed width, each after an atomic star; "
    "tests/connectors/test_globs.py counts",
    "ctx/cli/entries.py re.match": "names of clients' tables, ours; the user's own file; no two repetitions "
    "meet",
    "ctx/memory/calendar_words.py re.compile": "the names of times in two languages, ours, as alternatives",
    "ctx/memory/answer_values.py re.compile": "the words of numbers, ours, as alternatives; looked for in 300 "
    "characters",
    "ctx/memory/dates.py re.compile": "the names of days near by, ours, as alternatives",
    "ctx/memory/facets.py re.compile": "names of products, ours, as alternatives; looked for in 300 "
    "characters",
    "ctx/memory/evidence.py re.finditer": "64 terms of a question, escaped: literals, looked for where a "
    "word begins",
    "ctx/memory/rows.py re.compile": "a bank's number behind a space: nothing in it repeats",
    "ctx/formats/code.py re.compile": "a number of spaces, put into a pattern of ours",
    "ctx/formats/html.py re.compile": "an element's name, escaped: a literal",
    "ctx/lua/conversation.py re.compile": "the names of the machine's top folders, escaped: literals",
    "ctx/lua/host.py re.compile": "fnmatch's translation: atomic stars; at most 256 characters",
}


def _is_literal(node: ast.expr, constants: frozenset[str]) -> bool:
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.Name):
        return node.id in constants
    if isinstance(node, ast.BinOp):
        return _is_literal(node.left, constants) and _is_literal(node.right, constants)
    if isinstance(node, ast.JoinedStr):
        values = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
        return all(_is_literal(value, constants) for value in values)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        # `"|".join(WORDS)`, `re.escape(CONSTANT)`
        return all(_is_literal(argument, constants) for argument in node.args)
    return False


def _constants(tree: ast.Module) -> frozenset[str]:
    """Names bound at the top of a module: what is made of literals there is ours."""
    return frozenset(
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    )


def _compilations(path: Path) -> Iterator[tuple[str, int]]:
    source = path.read_text()
    if not WORDS.search(source):
        return  # many files, which need not be parsed
    tree = ast.parse(source)
    constants = _constants(tree)
    aliases = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in {*MODULES, "ctx.lean"}
        for alias in node.names
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        function = node.func
        if isinstance(function, ast.Name) and aliases.get(function.id, "").startswith(
            ("re.", "fnmatch.", "glob.", "ctx.lean.pattern")
        ):
            name = aliases[function.id]
        elif isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            name = f"{function.value.id}.{function.attr}"
            if function.value.id not in MODULES or function.attr in HARMLESS:
                if function.attr not in METHODS:
                    continue
                name = f"path.{function.attr}"
        else:
            continue
        if not any(_is_literal(argument, constants) for argument in node.args[:1]):
            yield name, node.lineno


def test_every_pattern_that_is_not_a_literal_has_a_reason_why_it_ends_soon() -> None:
    places = {
        f"{path.relative_to(ROOT)} {name}": line
        for path in sorted((ROOT / "ctx").rglob("*.py"))
        for name, line in _compilations(path)
    }
    assert {location: line for location, line in places.items() if location not in ALLOWED} == {}
    assert ALLOWED.keys() - places.keys() == set()
