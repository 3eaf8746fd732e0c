"""Markdown: headings, code blocks, tables and front matter."""

import itertools

import pytest

from ctx.formats import markdown
from ctx.formats.base import Parsed
from ctx.formats.markdown import parse

_LINES = [
    "", " ", "text", "# one", "## two ##", "# #", "#\ttab", "#tag", "   # three", "```", "```` py", "```x`y",
    "   ```", "~~~", "===", "---", "-", "***", "- item", "- # x", "1. item", "  - y", "> quote", "> ```",
    "    code", "<div>", "| a |", "\x0b", "= =", "1.-",
]  # fmt: skip


def _headings(text: str) -> list[tuple[int, str]]:
    parsed = parse(text)
    for heading in parsed.headings:  # each starts its line
        assert heading.start == 0 or parsed.body[heading.start - 1] == "\n"
    return [(heading.level, heading.title) for heading in parsed.headings]


def _atoms(text: str) -> list[str]:
    parsed: Parsed = parse(text)
    return [parsed.body[start:end] for start, end in parsed.atoms]


def test_atx_headings_are_found_with_their_levels() -> None:
    assert _headings("# One\n\n### Three ###\n#hashtag\n####### seven\n#\n   ## Two\n") == [
        (1, "One"),
        (3, "Three"),
        (2, "Two"),
    ]


def test_the_outline_of_a_simple_text_is_the_one_that_markdown_it_finds() -> None:
    simple = 0
    for lines in itertools.product(_LINES, repeat=3):
        outline = markdown._simple_outline([*lines])
        if outline is not None:
            simple += 1
            assert outline == markdown._outline("\n".join(lines), [*lines]), lines
    assert simple > len(_LINES) ** 3 / 5


def test_setext_headings_are_found() -> None:
    assert _headings("Title\n=====\n\ntext\n\nPart\n---\n") == [(1, "Title"), (2, "Part")]


@pytest.mark.parametrize(
    "text",
    [
        "above\n\n---\nbelow",
        "| a |\n---\n",
        "```\nx\n---\n```\n",
    ],
)
def test_a_ruler_is_no_heading(text: str) -> None:
    assert _headings(text) == []


def test_headings_within_code_are_ignored() -> None:
    assert _headings("```sh\n# comment\n```\n# Real\n~~~\n# x\n~~~\n") == [(1, "Real")]


def test_a_fence_closes_only_with_its_own_kind_and_length() -> None:
    text = "````md\n```\n# inner\n```\n````\n# After\n~~~\n```\n# inner\n~~~\n## End\n"
    assert _headings(text) == [(1, "After"), (2, "End")]
    assert _atoms(text) == ["````md\n```\n# inner\n```\n````", "~~~\n```\n# inner\n~~~"]


def test_html_headings_count() -> None:
    assert _headings('<h1 align="center">\n  <img src="x"> The <b>Project</b>\n</h1>\n\n## Use\n') == [
        (1, "The Project"),
        (2, "Use"),
    ]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("Using `foo_bar` and **bold**", "Using foo_bar and bold"),
        ("[Install](https://e.org/a_(b)) it", "Install it"),
        ("[1.2.3][v] - 2020-01-01", "1.2.3 - 2020-01-01"),
        ("![logo](x.png) Name", "logo Name"),
        (r"A \* star", "A * star"),
        ("`*args` and `**kwargs`", "*args and **kwargs"),
        ("CORS (sharing) { #cors .wide }", "CORS (sharing)"),
        ("[[People/Ana|Ana]] meets [[Bob]]", "Ana meets Bob"),
        ("Use {{ var }} or {1, 2}", "Use {{ var }} or {1, 2}"),
    ],
)
def test_markup_goes_from_heading_titles(source: str, words: str) -> None:
    assert _headings(f"## {source}\n") == [(2, words)]


def test_tables_and_code_blocks_are_atoms() -> None:
    table = "| a | b |\n|---|---|\n| 1 | 2 |"
    assert _atoms(f"text\n\n{table}\n\n```\nx\n```\nend") == [table, "```\nx\n```"]


def test_front_matter_stays_in_the_body_so_that_lines_are_the_files_own() -> None:
    text = "---\ntitle: The title\n---\n# Heading\n"
    parsed = parse(text)
    assert parsed.body == text
    assert parsed.title == "The title"
    assert parsed.atoms == ((0, text.index("#")),)
    assert [(h.start, h.title) for h in parsed.headings] == [(text.index("#"), "Heading")]
