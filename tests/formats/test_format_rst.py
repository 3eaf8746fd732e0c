"""reStructuredText: sections, literal blocks and tables."""

import pytest

from ctx.formats.markup import parse_rst as parse


def _headings(text: str) -> list[tuple[int, str]]:
    return [(heading.level, heading.title) for heading in parse(text).headings]


def _atoms(text: str) -> list[str]:
    parsed = parse(text)
    return [parsed.body[start:end] for start, end in parsed.atoms]


def test_levels_are_the_order_in_which_styles_appear() -> None:
    text = "=====\nTitle\n=====\n\nPart\n====\n\nSection\n-------\n\nOther part\n==========\n\nSub\n~~~\n"
    assert _headings(text) == [(1, "Title"), (2, "Part"), (3, "Section"), (2, "Other part"), (4, "Sub")]


@pytest.mark.parametrize(
    "text",
    [
        "above\n\n-----\n\nbelow",
        "=====  =====\na      b\n=====  =====\n1      2\n=====  =====\n",
        "one line\nanother\n=======\n",
    ],
)
def test_rules_and_tables_are_not_sections(text: str) -> None:
    assert _headings(text) == []


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("``open()`` and *more*", "open() and more"),
        (":ref:`Text <label>` here", "Text here"),
        ("`Link <https://e.org>`_", "Link"),
    ],
)
def test_markup_goes_from_titles(source: str, words: str) -> None:
    assert _headings(f"{source}\n{'=' * 60}\n") == [(1, words)]


def test_code_and_literal_blocks_and_tables_are_atoms() -> None:
    code = ".. code-block:: python\n   :linenos:\n\n   def f():\n\n       pass"
    literal = "Like this::\n\n    a\n\n    b"
    grid = "+---+---+\n| a | b |\n+---+---+"
    assert _atoms(f"{code}\n\ntext\n\n{literal}\n\n{grid}\n\nend\n") == [code, literal, grid]


@pytest.mark.parametrize("above", ["", "Words.\n\n", "Title\n-----\n", "Code::\n\n    b\n\n"])
def test_a_block_stays_with_the_whole_paragraph_that_announces_it(above: str) -> None:
    block = (
        "To verify certificates that you signed, add a call to\n:meth:`load` with the pair::\n\n    load()"
    )
    assert _atoms(f"{above}{block}\n\nend\n")[-1] == block
