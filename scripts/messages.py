"""Print every text of ctx that a user may read, with its file and line, to be read as one list.

    python scripts/messages.py [PATH ...]     # default: ctx

Python: help texts, messages of errors and warnings, log lines, printed lines, doctor rows, tool descriptions.
Docstrings and single words are left out. The page: the text of its HTML and the sentences of its scripts.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

WORDS = re.compile(r"[A-Za-z]{2,}[,.:;]?\s+[A-Za-z{]|^[A-Z][a-z]+\b.*[.?!]$")
SCRIPT_TEXT = re.compile(r'"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`|\'((?:[^\'\\\n]|\\.)*)\'')
HTML_TEXT = re.compile(r'>([^<>]+)<|(?:title|placeholder|aria-label|content)="([^"]+)"')
COMMENT = re.compile(r"^\s*(?://|/?\*).*$", re.MULTILINE)


def text(node: ast.expr) -> str:
    """A string or f-string with its expressions in braces; "" for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if not isinstance(node, ast.JoinedStr):
        return ""
    return "".join(
        "{" + ast.unparse(part.value) + "}" if isinstance(part, ast.FormattedValue) else text(part)
        for part in node.values
    )


def docstrings(tree: ast.AST) -> set[ast.expr]:
    holders = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    first = (node.body[0] for node in ast.walk(tree) if isinstance(node, holders) and node.body)
    return {
        node.value for node in first if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def python_texts(source: str) -> Iterator[tuple[int, str]]:
    tree = ast.parse(source)
    skipped: set[ast.AST] = set(docstrings(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped.update(
                part for part in ast.walk(node) if part is not node and isinstance(part, ast.Constant)
            )
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and node not in skipped:
            yield node.lineno, text(node)


def page_texts(path: Path, source: str) -> Iterator[tuple[int, str]]:
    if path.suffix == ".js":
        source = COMMENT.sub("", source)
    for found in (HTML_TEXT if path.suffix == ".html" else SCRIPT_TEXT).finditer(source):
        yield source.count("\n", 0, found.start()) + 1, next(filter(None, found.groups()), "")


def main(arguments: list[str]) -> None:
    for root in map(Path, arguments or ["ctx"]):
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if path.suffix not in {".py", ".js", ".html"}:
                continue
            source = path.read_text()
            found = python_texts(source) if path.suffix == ".py" else page_texts(path, source)
            for line, said in sorted(found):
                said = " ".join(said.split())
                if WORDS.search(said) and not said.upper().startswith(
                    ("SELECT ", "INSERT ", "UPDATE ", "DELETE ", "CREATE ")
                ):
                    print(f"{path}:{line}: {said}")


if __name__ == "__main__":
    main(sys.argv[1:])
