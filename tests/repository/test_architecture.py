"""A package imports only packages below it, and none outgrows its line budget."""

import ast
import io
import subprocess
import tokenize
from pathlib import Path

import pytest
from kit import ROOT

PACKAGE = ROOT / "ctx"
# Lowest first. A package or module may import what stands before it; an import inside a function may go up.
ORDER = [
    "__init__",
    "files",
    "git",
    "clock",
    "errors",
    "data_folder",
    "text",
    "http",
    "code",
    "models",
    "lua",
    "formats",
    "connectors",
    "config",
    "embed",
    "store",
    "search",
    "tools",
    "indexing",
    "memory",
    "scripts",
    "background",
    "workspace",
    "server",
    "backup",
    "api",
    "cluster",
    "cli",
    "__main__",
]
# Code lines: no blanks, comments or docstrings. To raise a budget, say why in the commit.
BUDGETS = {
    "(top)": 1950,
    "cli": 4800,
    "cluster": 1925,
    "code": 600,
    "config": 1425,
    "connectors": 3525,
    "embed": 675,
    "formats": 3475,
    "indexing": 1775,
    "lua": 1600,
    "memory": 7825,
    "scripts": 1575,
    "search": 1775,
    "server": 2750,
    "store": 2675,
    "text": 450,
    "tools": 1525,
}
TOP = {
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "SECURITY.md", "Makefile", "Dockerfile"),
    *("pyproject.toml", ".dockerignore", ".gitignore", ".mcp.json", ".ci", ".github"),
    *("benchmarks", "config", "ctx", "docs", "extensions", "requirements", "tests"),
}


def code_lines(path: Path) -> int:
    """Lines with code, not blank, comment or docstring."""
    text = path.read_text()
    lines: set[int] = set()
    skipped = (
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    )
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                lines -= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(lines)


def package_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The packages of ctx that a module imports at its top level."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module == "ctx":
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("ctx."):
            names.add(node.module.split(".")[1])
    return names - {"__version__"}


def test_every_package_imports_only_what_is_below_it() -> None:
    upward = []
    for path in sorted(PACKAGE.rglob("*.py")):
        own = package_of(path)
        assert own in ORDER, f"add `{own}` to ORDER"
        upward += [
            f"{path.relative_to(ROOT)} imports ctx.{name}"
            for name in imported(path) - {own}
            if ORDER.index(name) > ORDER.index(own)
        ]
    assert upward == []


@pytest.mark.parametrize("package", BUDGETS)
def test_a_package_keeps_its_line_budget(package: str) -> None:
    files = PACKAGE.glob("*.py") if package == "(top)" else (PACKAGE / package).rglob("*.py")
    assert sum(map(code_lines, files)) <= BUDGETS[package]


def test_the_top_of_the_repository_has_no_other_files() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    assert {line.partition("/")[0] for line in listed.stdout.splitlines()} <= TOP
