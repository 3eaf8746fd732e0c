"""Snippets: highlights, windows and plain text."""

import pytest
from kit import chunk_row, lines_run, snippet_of

from ctx.search.snippets import Matcher
from ctx.text import analyze


def marked(query: str, text: str) -> list[str]:
    matcher = Matcher(dict.fromkeys(analyze.query_terms(query), 1.0))
    return [text[start:end] for start, end, _ in matcher.marks(text)]


@pytest.mark.parametrize(
    ("query", "text", "words"),
    [
        ("München", "Ein Büro in München, und eins in Bonn", ["München"]),
        ("munchen", "Ein Büro in MÜNCHEN", ["MÜNCHEN"]),
        ("résumé", "Send a resume or a résumé.", ["resume", "résumé"]),
        ("cafe", "un cafe\u0301 noir", ["cafe\u0301"]),
        ("strasse", "an der Straße", ["Straße"]),
        ("straße", "an der Strasse", ["Strasse"]),
        ("uber", "Über den Wolken", ["Über"]),
        ("検索", "全文検索エンジン", ["検索"]),
        ("поиск", "полнотекстовый поиск", ["поиск"]),
        ("get_user_name", "x = getUserName()", ["getUserName"]),
        ("getusername", "def get_user_name(self):", ["get_user_name"]),
        ("user name", "getUserName", ["getUserName"]),
        ("rotate", "rotating kilns rotated", ["rotating", "rotated"]),
    ],
)
def test_the_words_of_the_query_are_marked_however_they_are_written(
    query: str, text: str, words: list[str]
) -> None:
    assert marked(query, text) == words


def test_a_snippet_has_the_rarest_of_what_is_asked_for() -> None:
    filling = "x = 1 " * 18 + "def one(): " + "y = 2 " * 20 + "def conditional_def(): pass" + " z = 3" * 20
    matcher = Matcher(dict.fromkeys(analyze.query_terms("conditional_def"), 1.0))
    snippet, highlights = snippet_of(matcher, chunk_row(filling, "t", "", prose=False))
    assert "conditional_def" in snippet
    assert {snippet[start:end] for start, end in highlights} >= {"conditional"}


@pytest.mark.parametrize("size", [80, 240, 1000])
def test_a_snippet_is_as_long_as_configured(size: int) -> None:
    text = "The otter swims along the river bank. " * 100
    snippet, highlights = snippet_of(Matcher({"otter": 1.0}, size), chunk_row(text, "title", "", prose=True))
    assert size // 2 <= len(snippet) <= size + 2
    assert highlights


NOTED = (
    "The otter {note} swims.\n\n```{note}\nThe otter of the weir is another one.\n```\n\n"
    + "It swims along the bank. " * 20
)


@pytest.mark.parametrize(("query", "shown"), [("otter", False), ("otter of the weir", True)])
def test_a_note_is_shown_where_it_alone_has_a_word_of_the_query(query: str, shown: bool) -> None:
    snippet, _ = snippet_of(
        Matcher(dict.fromkeys(analyze.query_terms(query), 1.0)), chunk_row(NOTED, "t", "", prose=True)
    )
    assert ("another one" in snippet) is shown
    assert "otter" in snippet


@pytest.mark.parametrize(
    ("text", "further", "shown"),
    [
        ("An otter swims.", "It eats fish.", "An otter swims. It eats fish."),
        ("An otter swims.", "", "An otter swims."),
        (".. versionadded:: 2.0", "An otter swims.", "An otter swims."),
        ("An otter. " * 24, "It eats fish.", ("An otter. " * 24).strip() + "…"),
    ],
)
def test_a_short_chunk_goes_on_with_its_section(text: str, further: str, shown: str) -> None:
    assert snippet_of(Matcher({"otter": 1.0}), chunk_row(text, "t", "", prose=True), further)[0] == shown


@pytest.mark.parametrize(
    ("query", "text", "marked"),
    [
        ("データベース", "要はデータベースとPythonの入門。", ["データベース"]),
        ("日本語", "日本語で書く。日本の言語", ["日本語", "日本"]),
        ("Python入門", "これはPython入門書", ["Python", "入門"]),
        ("数据库 迁移", "请先运行数据库迁移", ["数据库迁移"]),
    ],
)
def test_a_run_without_spaces_is_marked_whole(query: str, text: str, marked: list[str]) -> None:
    matcher = Matcher(dict.fromkeys(analyze.query_terms(query), 1.0))
    snippet, highlights = snippet_of(matcher, chunk_row(text, "t", "", prose=True))
    assert [snippet[start:end] for start, end in highlights] == marked


@pytest.mark.parametrize(
    "piece",
    [
        "otter",
        "otter ",
        "x",
        "lake_otter a_b ",
        "a. ",
        "<b>otter</b>",
        "`otter` *lake* ",
        "[x](y)",
        "獺",
        "x獺",
    ],
)
def test_a_text_costs_what_it_is_long_and_not_the_square_of_that(piece: str) -> None:
    def cost(times: int) -> int:
        matcher = Matcher(dict.fromkeys(["otter", "x", "a", "獺獺", "lakeotter"], 1.0), snippet_chars=2000)
        text = piece * times
        return lines_run(
            lambda: (
                matcher.terms_in(text),
                snippet_of(matcher, chunk_row(text, "t", "", prose=True)),
            )
        )

    assert cost(9600) < 6 * cost(2400)


OPTIONS = (
    "The server reads these options when it starts. "
    * 3
    + "\n\n* `--limit-concurrency` - Maximum number of connections, before an error 503 is sent.\n"
    "* `--limit-max-requests` - Maximum number of requests to service before terminating the process.\n"
    "* `--backlog` - Maximum number of connections to hold in backlog. Default: 2048.\n\n"
    + "Each of them may also be set in the environment. "
    * 4
)
TABLE = (
    "A long introduction to the settings of this program. " * 4
    + "\n\n| Setting | Default |\n|---|---|\n"
    + "".join(f"| `other-{i}` | {i} |\n" for i in range(20))
    + "| `fallback` | false |\n"
)


def shown(query: str, text: str) -> str:
    terms = analyze.query_terms(query)
    return snippet_of(Matcher(dict.fromkeys(terms, 1.0), line=query), chunk_row(text, "t", "", prose=True))[0]


def test_a_snippet_is_the_whole_item_that_has_the_asked_option() -> None:
    lines = shown("number of requests before it is terminated", OPTIONS).split("\n")
    assert (
        "* --limit-max-requests - Maximum number of requests to service before terminating the process."
        in lines
    )


def test_a_row_of_a_table_is_shown_with_the_head_of_the_table() -> None:
    lines = shown("fallback setting", TABLE).split("\n")
    assert lines[0] == "Setting · Default;"
    assert "fallback · false;" in lines


@pytest.mark.parametrize(
    ("query", "heading", "whole"),
    [
        ("0.115.0", "0.115.0 (2024-09-17)", True),
        ("v0.115.0", "0.115.0", True),
        ("0.115.0", "0.115.0rc1", False),
        ("0.11", "0.115.0", False),
        ("Keep alive?", "Keep alive", True),
        ("keep", "Keep alive", False),
    ],
)
def test_a_heading_that_is_the_query_is_known(query: str, heading: str, whole: bool) -> None:
    assert Matcher(dict.fromkeys(analyze.query_terms(query), 1.0), line=query).is_whole(heading) is whole
