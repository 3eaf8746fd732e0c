"""reStructuredText: sections, literal blocks and tables."""

import pytest

from ctx.formats.rst import parse


def _headings(text: str) -> list[tuple[int, str]]:
    return [(heading.level, heading.title) for heading in parse(text).headings]


def _atoms(text: str) -> list[str]:
    parsed = parse(text)
    return [parsed.body[start:end] for start, end in parsed.atoms]


def test_levels_are_the_order_in_which_styles_appear() -> None:
    text = "=====\nTitle\n=====\n\nPart\n====\n\nSection\n-------\n\nOther part\n==========\n\nSub\n~~~\n"
    assert _headings(text) == [(1, "Title"), (2, "Part"), (3, "Section"), (2, "Other part"), (4, "Sub")]


def test_an_overlined_title_begins_at_its_overline() -> None:
    text = "text\n\n=====\nTitle\n=====\n"
    assert text[parse(text).headings[0].start :].startswith("=====\nTitle")


def test_a_label_above_a_title_belongs_to_it() -> None:
    text = "text\n\n.. _label:\n\nTitle\n=====\n"
    assert text[parse(text).headings[0].start :].startswith(".. _label:")


@pytest.mark.parametrize(
    "text",
    [
        "above\n\n-----\n\nbelow",
        "Too long a title\n===\n",
        "   indented\n   ========\n",
        "=====  =====\na      b\n=====  =====\n1      2\n=====  =====\n",
        "one line\nanother\n=======\n",
    ],
)
def test_what_only_looks_like_a_section_is_none(text: str) -> None:
    assert _headings(text) == []


def test_a_wide_title_is_measured_in_columns() -> None:
    assert _headings("日本語\n======\n") == [(1, "日本語")]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("``open()`` and *more*", "open() and more"),
        (":mod:`os.path` --- paths", "os.path --- paths"),
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


def test_a_block_keeps_the_last_line_of_a_paragraph_that_is_long() -> None:
    text = "It is said in many lines.\n" * 40 + "Like this::\n\n    a\n\nend\n"
    assert _atoms(text) == ["Like this::\n\n    a"]


def test_a_note_is_no_atom() -> None:
    assert _atoms(".. note::\n\n   words\n   words\n\nend\n") == []


def test_a_title_between_two_lines_may_be_indented() -> None:
    source = "=======\n Title\n=======\n\ntext\n\n  Not one\n=========\n\nSection\n=======\n"
    assert _headings(source) == [(1, "Title"), (2, "Section")]
    assert parse(source).title == "Title"


def test_the_title_is_the_first_section() -> None:
    assert parse("intro\n\nTitle\n=====\n").title == "Title"
    assert parse("only text").title is None
