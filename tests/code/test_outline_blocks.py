"""The block of a long definition, which is named beside its best lines."""

from ctx.code.outline import block_around


def test_a_block_ends_with_its_last_line_and_not_with_blank_lines() -> None:
    lines = ["def f():", "  if a:", "    b", "", "", "  c"]
    assert block_around(lines, 1, 6, 3) == (2, 3)


def test_a_block_includes_its_closing_bracket() -> None:
    lines = ["function f() {", "  if (a) {", "    b()", "  }", "  c()", "}"]
    assert block_around(lines, 1, 6, 3) == (2, 4)
