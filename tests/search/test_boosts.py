"""File roles and the ranking rules that use them."""

import pytest
from kit import lines_run

from ctx.search import boosts
from ctx.search.fusion import Leg
from ctx.search.query import CODE, UNCLEAR
from ctx.text import filetypes

PYTHON, MARKDOWN, JSON = "text/x-python", "text/markdown", "application/json"


def ruled(
    files: dict[int, tuple[str, str]], ranked: Leg, question: boosts.Question
) -> tuple[Leg, dict[int, boosts.Ruling]]:
    profiles = boosts.Profiles(lambda numbers: [(no, *files[no]) for no in numbers if no in files])
    return boosts.apply(ranked, profiles.of([number for number, _ in ranked]), question)


def order(
    files: dict[int, tuple[str, str]], query: dict[str, float], ranked: Leg, **question: object
) -> list[int]:
    probe = boosts.Question(query, **question)  # type: ignore[arg-type]
    return [number for number, _ in ruled(files, ranked, probe)[0]]


@pytest.mark.parametrize(
    ("path", "role"),
    [
        ("src/flask/app.py", None),
        ("tests/app.py", filetypes.TEST),
        ("src/app_test.go", filetypes.TEST),
        ("src/app.spec.ts", filetypes.TEST),
        ("src/test/java/ParserTest.java", filetypes.TEST),
        ("lib/conftest.py", filetypes.TEST),
        ("src/latest.py", None),
        ("src/contest.py", None),
        ("src/attestation.py", None),
        ("numpy/testing/utils.py", None),
        ("examples/blog/app.py", filetypes.EXAMPLE),
        ("vendor/lib.go", filetypes.EXAMPLE),
        ("src/flask/__init__.py", None),
        ("contrib/completions/tool.fish", filetypes.GENERATED),
        ("contrib/bash-completion.sh", filetypes.GENERATED),
        ("doc/man/tool-backup.1", filetypes.GENERATED),
        ("api/service.pb.go", filetypes.GENERATED),
        ("proto/service_pb2.py", filetypes.GENERATED),
        ("static/app.min.js", filetypes.GENERATED),
        ("src/completions.rs", None),
        ("src/completion/engine.kt", None),
        ("src/gen.py", None),
    ],
)
def test_code_is_told_from_its_tests_and_examples(path: str, role: str | None) -> None:
    assert filetypes.role(path, PYTHON) == role


@pytest.mark.parametrize(
    ("path", "role"),
    [
        ("CHANGELOG.md", filetypes.CHANGES),
        ("docs/release-notes.md", filetypes.CHANGES),
        ("docs/release-notes/2.0.md", filetypes.CHANGES),
        ("HISTORY.rst", filetypes.CHANGES),
        ("docs/relnotes/0.8.9.rst", filetypes.CHANGES),
        ("docs/releases/1.2.txt", filetypes.CHANGES),
        ("doc/announce/release-2.0.1.rst", filetypes.CHANGES),
        ("docs/history/whatsnew-3.0.rst", filetypes.CHANGES),
        ("docs/versionhistory.rst", filetypes.CHANGES),
        ("docs/release.md", None),
        ("docs/version.md", None),
        ("docs/chapters/3.1.md", None),
        ("docs/project/history.md", None),
        ("docs/spec/overview.md", None),
        ("docs/testing/fixtures.md", None),
        ("tests/README.md", None),
        ("docs/examples/first.md", None),
    ],
)
def test_of_prose_only_change_logs_are_held_back(path: str, role: str | None) -> None:
    assert filetypes.role(path, MARKDOWN) == role


def test_a_test_comes_behind_its_subject_unless_it_is_asked_for() -> None:
    files = {1: ("tests/test_parser.py", PYTHON), 2: ("src/lexer.py", PYTHON)}
    ranked = [(1, 1.0), (2, 0.6)]
    assert order(files, {"token": 2.0}, ranked) == [2, 1]
    assert order(files, {"token": 2.0, "test": 1.0}, ranked) == [1, 2]


def test_a_path_that_says_the_rare_words_of_the_query_counts_more() -> None:
    files = {1: ("src/app.py", PYTHON), 2: ("src/blueprints.py", PYTHON), 3: ("src/regist.py", PYTHON)}
    ranked = [(1, 1.0), (2, 0.5), (3, 0.5)]
    assert order(files, {"blueprint": 4.0, "regist": 1.0}, ranked) == [2, 1, 3]


def test_what_defines_the_name_comes_before_what_uses_it() -> None:
    files = {1: ("src/views.py", PYTHON), 2: ("src/app.py", PYTHON), 3: ("docs/a.md", MARKDOWN)}
    ranked = [(1, 1.0), (3, 0.9), (2, 0.4)]
    question = {"names": ["Blueprint"], "definitions": frozenset({2, 3})}
    assert order(files, {"blueprint": 1.0}, ranked, defining=boosts.DEFINITION, **question) == [2, 1, 3]
    assert order(files, {"blueprint": 1.0}, ranked, **question) == [1, 3, 2]


def test_a_change_log_is_found_by_a_version() -> None:
    files = {1: ("CHANGELOG.md", MARKDOWN), 2: ("docs/a.md", MARKDOWN)}
    ranked = [(1, 1.0), (2, 0.9)]
    assert order(files, {"proxi": 1.0}, ranked) == [2, 1]
    assert order(files, {"proxi": 1.0}, ranked, numbered=True) == [1, 2]


@pytest.mark.parametrize(
    ("query", "files"),
    [
        ("src/Lexer.py", [("src", "lexer", "py")]),
        ("./lexer.py:12", [("", "lexer", "py")]),
        ("repo/src/lexer.py:12:5", [("src", "lexer", "py")]),
        ("`docs/a.b.md#L3`,", [("docs", "a.b", "md")]),
        ("C:\\work\\src\\lexer.py", [("src", "lexer", "py")]),
        (
            'File "/app/src/lexer.py", line 3\nFile "/app/src/parser.py"',
            [("src", "lexer", "py"), ("src", "parser", "py")],
        ),
        ("version 2.3 of the lexer.", []),
        ("how do I stop", []),
        ("src/", []),
    ],
)
def test_the_files_that_a_query_names_are_told(query: str, files: list[tuple[str, str, str]]) -> None:
    assert boosts.files_named(query) == files


@pytest.mark.parametrize("query", ["work/src/lexer.py:12", "lexer.py", "./src/lexer.py"])
def test_a_file_that_is_named_comes_first_however_often_others_name_it(query: str) -> None:
    files = {
        1: ("docs/lexer.md", MARKDOWN),
        2: ("src/lexer.py", PYTHON),
        3: ("src/lexer.pyi", PYTHON),
        4: ("old/token.py", PYTHON),
    }
    ranked = [(1, 1.0), (4, 0.9), (3, 0.4), (2, 0.1)]
    question = boosts.Question({}, files=boosts.files_named(query), naming=boosts.NAMED)
    assert ruled(files, ranked, question)[0][0][0] == 2


def test_a_test_that_is_named_is_not_held_back_and_one_in_another_folder_is_not_named() -> None:
    paths = {1: "src/lexer.py", 2: "tests/test_lexer.py", 3: "legacy/test_lexer.py", 4: "test_lexer.py"}
    files = {number: (path, PYTHON) for number, path in paths.items()}
    question = boosts.Question({}, files=boosts.files_named("app/tests/test_lexer.py"), naming=boosts.NAMED)
    ranked, rulings = ruled(files, [(1, 1.0), (2, 0.5), (3, 0.5), (4, 0.4)], question)
    assert [number for number, _ in ranked] == [2, 4, 1, 3]
    assert rulings[2] == boosts.Ruling(1.0)


@pytest.mark.parametrize("piece", ["x", "xy", "x1", "xX", "xXXXXXXXXX"])
def test_a_path_costs_what_it_is_long_and_not_the_square_of_that(piece: str) -> None:
    """A clone may have three hundred files whose names are as long as a folder takes."""

    def cost(length: int) -> int:
        files = {1: (f"docs/{piece * (length // len(piece))}.md", MARKDOWN)}
        return lines_run(lambda: order(files, {"x": 1.0, "xxx": 1.0, "y": 1.0}, [(1, 1.0)]))

    assert cost(2000) < 6 * cost(500)


def test_pages_come_behind_code_where_code_is_wanted() -> None:
    files = {1: ("README.md", MARKDOWN), 2: ("config.json", JSON), 3: ("src/session.py", PYTHON)}
    ranked = [(1, 1.0), (2, 0.9), (3, 0.7)]
    question = boosts.Question({"cookie": 1.0}, wanted=CODE)
    scored, rulings = ruled(files, ranked, question)
    assert [number for number, _ in scored] == [3, 1, 2]
    assert rulings[1] == boosts.Ruling(factor=0.5, role=boosts.PAGE)
    assert order(files, {"cookie": 1.0}, ranked) == [1, 2, 3]


def test_a_page_that_is_named_is_not_held_back_where_code_is_wanted() -> None:
    files = {1: ("README.md", MARKDOWN), 2: ("src/session.py", PYTHON)}
    question = boosts.Question({}, files=boosts.files_named("README.md"), wanted=CODE)
    assert [number for number, _ in ruled(files, [(1, 0.5), (2, 0.7)], question)[0]] == [1, 2]


def test_pages_and_code_take_turns_where_it_is_unclear() -> None:
    code = {number: (f"src/m{number}.py", PYTHON) for number in (1, 2, 3, 6)}
    files = {**code, 4: ("docs/a.md", MARKDOWN), 5: ("docs/b.md", MARKDOWN), 7: ("docs/c.md", MARKDOWN)}
    ranked = [(1, 1.0), (2, 0.9), (3, 0.8), (4, 0.7), (5, 0.6), (6, 0.2), (7, 0.1)]
    scored, _ = ruled(files, ranked, boosts.Question({"cookie": 1.0}, wanted=UNCLEAR))
    assert [number for number, _ in scored] == [1, 4, 2, 5, 3, 6, 7], "what is far behind keeps its place"
    assert [score for _, score in scored] == [score for _, score in ranked]


def test_a_test_that_alone_defines_the_name_comes_before_what_says_its_words() -> None:
    files = {1: ("src/store.py", PYTHON), 2: ("tests/test_store.py", PYTHON)}
    ranked = [(1, 1.0), (2, 0.6)]
    asked = {"names": ["OpensTwice"], "defining": boosts.DEFINITION}
    assert order(files, {"openstwice": 1.0}, ranked, **asked, definitions={2}) == [2, 1]
    assert order(files, {"openstwice": 1.0}, ranked, **asked, definitions={1, 2}) == [1, 2]
