"""docs/security-model.md names tests that exist, and SECURITY.md stays one page."""

import ast
import re

import pytest
from kit import ROOT

PAGE = (ROOT / "SECURITY.md").read_text()
MODEL = (ROOT / "docs" / "security-model.md").read_text()


def promises() -> list[tuple[str, list[str]]]:
    """(file, names of tests) for every file that the page names."""
    return [
        (path, re.findall(r"`(test_\w+)`", names))
        for path, names in re.findall(r"`(tests/[^`]+)`:([^;|]*)", MODEL)
    ]


def test_every_promise_of_the_security_model_is_held_by_tests_that_exist() -> None:
    rows = [line for line in MODEL.splitlines() if line.startswith("| ") and line != "| promise | tests |"]
    assert len(rows) > 25
    assert [row for row in rows if "`tests/" not in row] == []
    gaps = []
    for path, names in promises():
        tree = ast.parse((ROOT / path).read_text())
        present = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert names, f"{path} is named without a test"
        gaps += [f"{path}: {name}" for name in names if name not in present]
    assert gaps == []


@pytest.mark.parametrize(
    "attacker", ["web page", "reach the port", "script", "clone", "remote", "user of this machine"]
)
def test_every_attacker_has_a_section(attacker: str) -> None:
    assert re.search(rf"^## .*{attacker}", MODEL, re.MULTILINE)


def test_the_page_is_one_page() -> None:
    assert len(PAGE.split()) < 650
    assert "(docs/security-model.md)" in PAGE


def test_the_page_tells_how_to_report_in_private() -> None:
    assert "private vulnerability reporting" in PAGE
    assert "@" not in PAGE  # no address that nobody reads
