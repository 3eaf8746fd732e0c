"""Markdown: headings, code blocks, tables and front matter."""

import pytest

from ctx.formats.base import Parsed
from ctx.formats.markdown import parse


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


def test_setext_headings_are_found() -> None:
    assert _headings("Title\n=====\n\ntext\n\nPart\n---\n") == [(1, "Title"), (2, "Part")]


def test_a_setext_heading_may_have_two_lines() -> None:
    parsed = parse("x\n\nA long\ntitle\n====\n")
    assert [(h.start, h.title) for h in parsed.headings] == [(3, "A long title")]


@pytest.mark.parametrize(
    "text",
    [
        "above\n\n---\nbelow",
        "- item\n---\n",
        "| a |\n---\n",
        "> quoted\n---\n",
        "```\nx\n---\n```\n",
        "    code\n---\n",
        "---\n---\n",
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


def test_an_unclosed_fence_runs_to_the_end() -> None:
    assert _headings("# One\n```\n# not\n") == [(1, "One")]
    assert _atoms("# One\n```\n# not\n") == ["```\n# not"]


def test_a_fence_in_a_list_item_ends_with_the_item() -> None:
    assert _headings("- step\n\n      ```\n      x\n\n# After\n") == [(1, "After")]
    assert _headings("1. ```sh\n   # comment\n   ```\n\n# After\n") == [(1, "After")]


def test_backticks_within_a_line_open_nothing() -> None:
    assert _headings("```inline``` code\n# Real\n") == [(1, "Real")]
    assert _headings("text with ``` in it\n# Real\n") == [(1, "Real")]


def test_headings_within_comments_are_ignored() -> None:
    assert _headings("<!--\n# hidden\n```\n-->\n# Shown\n") == [(1, "Shown")]


def test_headings_in_list_items_count_and_quoted_ones_do_not() -> None:
    assert _headings("1. Step\n\n   ### Part\n\n> # Quoted\n\n- # comment\n") == [(3, "Part")]


def test_a_definition_of_a_link_above_a_ruler_is_no_heading() -> None:
    assert _headings("[a]: https://e.org\n---\n") == []


def test_a_table_in_a_code_block_is_no_atom_of_its_own() -> None:
    assert _atoms("```\n| a |\n```\n") == ["```\n| a |\n```"]


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
        ("snake_case_name stays", "snake_case_name stays"),
        ("_emphasis_ and __strong__", "emphasis and strong"),
        ("Title {#anchor .cls}", "Title"),
        ("Fish &amp; chips &lt;3", "Fish & chips <3"),
        (r"A \* star", "A * star"),
        ("`*args` and `**kwargs`", "*args and **kwargs"),
        ("`[x](y)`", "[x](y)"),
        ("~~old~~ new", "old new"),
        ("C# and F#", "C# and F#"),
        ("a < b", "a < b"),
        ("Tabs\tand   runs", "Tabs and runs"),
    ],
)
def test_markup_goes_from_heading_titles(source: str, words: str) -> None:
    assert _headings(f"## {source}\n") == [(2, words)]


def test_a_very_long_heading_is_cut_at_a_word() -> None:
    (heading,) = parse("# " + "word " * 500).headings
    assert len(heading.title) <= 161
    assert heading.title.endswith("word…")


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


def test_front_matter_is_no_setext_heading() -> None:
    assert _headings("---\ntitle: x\nkey: y\n---\nText\n") == []


def test_a_fence_in_front_matter_opens_nothing() -> None:
    assert _headings("---\na: |\n  ```\n---\n# Heading\n") == [(1, "Heading")]
