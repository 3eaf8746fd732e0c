"""The names in a query, and whether it wants code or pages."""

import pytest

from ctx.search.query import (
    CODE,
    GUIDE,
    PAGES,
    POINTS,
    UNCLEAR,
    is_identifier,
    is_name,
    members,
    signals,
    wanted,
)

TRACEBACK = """Traceback (most recent call last):
  File "/srv/app/main.py", line 12, in <module>
    run()
ValueError: not enough values to unpack"""
ISSUE = """The worker stops after a reconnect

When the broker restarts, the worker reconnects once and then takes no more jobs. It should go on.
No error is logged."""


@pytest.mark.parametrize(
    "query",
    [
        "Fix a race between close and the reader thread",
        "feat(cache): keep entries for an hour",
        "Removed the unused parameter of read_all",
        "Cookies are lost after a redirect (#812)",
        TRACEBACK,
        "panic: runtime error: index out of range [3] with length 3",
        ISSUE,
        "which function opens the connection",
        "where is the retry policy implemented?",
    ],
)
def test_commits_issues_and_stack_traces_want_code(query: str) -> None:
    assert wanted(query) == CODE


@pytest.mark.parametrize(
    "query",
    [
        "where is the retry policy documented?",
        "Configuring a proxy",
        "Working with several databases at the same time",
        "rate limits",
        "getUserName",
    ],
)
def test_questions_headings_and_names_want_pages(query: str) -> None:
    assert wanted(query) == PAGES


@pytest.mark.parametrize(
    "query",
    [
        "how do I keep cookies between two requests",
        "How to rotate a key",
        "can I use it without a server?",
        "why does my build take so long",
        "my tests hang when they run in parallel",
    ],
)
def test_who_asks_how_to_do_something_wants_a_guide(query: str) -> None:
    assert wanted(query) == GUIDE


def test_few_signals_leave_it_unclear() -> None:
    assert wanted("cookies of a RequestSession after the redirect") == UNCLEAR
    assert wanted("the session leaks when a redirect comes late") == UNCLEAR


def test_there_are_at_most_ten_signals_and_each_counts() -> None:
    assert len(POINTS) <= 10
    assert all(POINTS.values())
    assert signals(TRACEBACK) <= POINTS.keys()


@pytest.mark.parametrize(
    ("query", "pairs"),
    [
        ("subprocess.Popen communicate timeout", [("subprocess", "Popen")]),
        ("what does os.path.join() do", [("path", "join")]),
        ("a std::unique_ptr of getUserName", [("std", "unique_ptr")]),
        ("why, e.g. in 3.11 or v2.0, is it slow.", []),
        ("..a and b.. or .c", []),
    ],
)
def test_dotted_names_are_members_of_something(query: str, pairs: list[tuple[str, str]]) -> None:
    assert members(query) == pairs


@pytest.mark.parametrize(
    ("query", "identifier"), [("save!", True), ("name=", True), ("~Store", True), ("ready?", False)]
)
def test_a_name_may_end_or_begin_with_a_sign(query: str, identifier: bool) -> None:
    assert is_name(query)
    assert is_identifier(query) is identifier
