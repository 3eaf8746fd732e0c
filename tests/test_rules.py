"""What a file is, and what the rules make of it in a ranking."""

from collections.abc import Callable, Sequence

import pytest
from kit import ROOT, lines_run

from ctx import kinds, ranking, rules
from ctx.formats.table import CODE, FORMATS
from ctx.ranking import Leg

PYTHON, MARKDOWN, JSON = "text/x-python", "text/markdown", "application/json"


def test_every_format_that_is_read_is_known_for_prose_data_or_code() -> None:
    read = {format.media_type for format in FORMATS if format.reader}
    assert read - kinds.DATA - {CODE.media_type} == kinds.PROSE
    assert not kinds.PROSE & kinds.DATA


def ruled(
    files: dict[int, tuple[str, str]], ranked: Leg, question: rules.Question
) -> tuple[Leg, dict[int, rules.Ruling]]:
    profiles = rules.Profiles(lambda numbers: [(no, *files[no]) for no in numbers if no in files])
    return rules.apply(ranked, profiles.of([number for number, _ in ranked]), question)


def order(
    files: dict[int, tuple[str, str]], query: dict[str, float], ranked: Leg, **question: object
) -> list[int]:
    probe = rules.Question(query, **question)  # type: ignore[arg-type]
    return [number for number, _ in ruled(files, ranked, probe)[0]]


@pytest.mark.parametrize(
    ("path", "role"),
    [
        ("src/flask/app.py", None),
        ("tests/app.py", kinds.TEST),
        ("src/app_test.go", kinds.TEST),
        ("src/app.spec.ts", kinds.TEST),
        ("src/test/java/ParserTest.java", kinds.TEST),
        ("lib/conftest.py", kinds.TEST),
        ("src/latest.py", None),
        ("src/contest.py", None),
        ("src/attestation.py", None),
        ("numpy/testing/utils.py", None),
        ("examples/blog/app.py", kinds.EXAMPLE),
        ("vendor/lib.go", kinds.EXAMPLE),
        ("src/flask/__init__.py", kinds.EXPORTS),
        ("src/net/mod.rs", kinds.EXPORTS),
    ],
)
def test_code_is_told_from_its_tests_examples_and_exports(path: str, role: str | None) -> None:
    assert kinds.role(*kinds.file(path, PYTHON)) == role


@pytest.mark.parametrize(
    ("path", "role"),
    [
        ("CHANGELOG.md", kinds.CHANGES),
        ("docs/release-notes.md", kinds.CHANGES),
        ("docs/release-notes/2.0.md", kinds.CHANGES),
        ("HISTORY.rst", kinds.CHANGES),
        ("docs/relnotes/0.8.9.rst", kinds.CHANGES),
        ("docs/releases/1.2.txt", kinds.CHANGES),
        ("doc/announce/release-2.0.1.rst", kinds.CHANGES),
        ("docs/history/whatsnew-3.0.rst", kinds.CHANGES),
        ("docs/versionhistory.rst", kinds.CHANGES),
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
    assert kinds.role(*kinds.file(path, MARKDOWN)) == role


def test_data_has_no_role_and_is_no_code() -> None:
    assert kinds.role(*kinds.file("tests/data.json", JSON)) is None
    assert not kinds.is_code(JSON)
    assert not kinds.is_prose(JSON)


def test_a_test_comes_behind_its_subject_unless_it_is_asked_for() -> None:
    files = {1: ("tests/test_parser.py", PYTHON), 2: ("src/lexer.py", PYTHON)}
    ranked = [(1, 1.0), (2, 0.6)]
    assert order(files, {"token": 2.0}, ranked) == [2, 1]
    assert order(files, {"token": 2.0, "test": 1.0}, ranked) == [1, 2]


def test_a_path_that_says_the_rare_words_of_the_query_counts_more() -> None:
    files = {1: ("src/app.py", PYTHON), 2: ("src/blueprints.py", PYTHON), 3: ("src/regist.py", PYTHON)}
    ranked = [(1, 1.0), (2, 0.5), (3, 0.5)]
    assert order(files, {"blueprint": 4.0, "regist": 1.0}, ranked) == [2, 1, 3]


def test_a_path_says_whole_words_only() -> None:
    files = {1: ("a/b.py", PYTHON), 2: ("core/mapper.py", PYTHON), 3: ("core/application.py", PYTHON)}
    assert order(files, {"app": 1.0}, [(1, 1.0), (2, 0.9), (3, 0.8)]) == [1, 2, 3]
    files[3] = ("core/fooApp.py", PYTHON)
    assert order(files, {"app": 1.0}, [(1, 1.0), (2, 0.9), (3, 0.8)]) == [3, 1, 2]


def test_words_of_the_query_that_a_path_writes_as_one_are_said_by_it() -> None:
    files = {
        1: ("src/checks.py", PYTHON),
        2: ("src/healthcheck.py", PYTHON),
        3: ("src/healthcarecheck.py", PYTHON),
    }
    query = {"health": 1.0, "check": 1.0}
    assert order(files, query, [(1, 0.8), (2, 0.7), (3, 0.6)])[0] == 2
    assert (
        order(
            {**files, 2: ("src/http2.py", PYTHON)}, {"http": 1.0, "2": 1.0}, [(1, 0.8), (2, 0.7), (3, 0.6)]
        )[0]
        == 2
    )
    alone = {number: (path, media_type) for number, (path, media_type) in files.items() if number != 1}
    assert order(alone, {"check": 1.0, "slow": 1.0}, [(3, 0.7), (2, 0.6)]) == [
        3,
        2,
    ]  # one of two words is none


def test_a_path_whose_lower_case_is_longer_is_read_as_the_others_are() -> None:
    files = {1: ("src/İİİ.py", PYTHON), 2: ("src/İİİİ_apply.py", PYTHON)}
    assert order(files, {"appli": 1.0, "slow": 1.0}, [(1, 0.7), (2, 0.6)]) == [2, 1]


def test_the_path_of_prose_counts_less_than_that_of_code() -> None:
    files = {1: ("src/intro.py", PYTHON), 2: ("docs/cache.md", MARKDOWN), 3: ("src/cache.py", PYTHON)}
    assert order(files, {"cach": 1.0}, [(1, 1.0), (2, 0.6), (3, 0.6)]) == [3, 1, 2]


def test_the_path_of_code_counts_as_much_as_the_candidates_are_code() -> None:
    pages = {number: (f"docs/{number}.md", MARKDOWN) for number in range(2, 11)}
    ranked = [(1, 1.0), *((number, 0.9) for number in range(2, 11)), (11, 0.5)]
    code = {number: (f"src/{number}.py", PYTHON) for number in range(2, 11)}
    ends = {1: ("docs/a.md", MARKDOWN), 11: ("src/cache.py", PYTHON)}
    assert order({**pages, **ends}, {"cach": 1.0}, ranked)[0] == 1
    assert order({**code, **ends}, {"cach": 1.0}, ranked)[0] == 11


def test_what_defines_the_name_comes_before_what_uses_it() -> None:
    files = {1: ("src/views.py", PYTHON), 2: ("src/app.py", PYTHON), 3: ("docs/a.md", MARKDOWN)}
    ranked = [(1, 1.0), (3, 0.9), (2, 0.4)]
    question = {"names": ["Blueprint"], "definitions": frozenset({2, 3})}
    assert order(files, {"blueprint": 1.0}, ranked, defining=rules.DEFINITION, **question) == [2, 1, 3]
    assert order(files, {"blueprint": 1.0}, ranked, **question) == [1, 3, 2]


def test_a_list_of_exports_that_defines_the_name_asked_for_is_not_held_back() -> None:
    files = {
        1: ("src/views.py", PYTHON),
        2: ("collections/__init__.py", PYTHON),
        3: ("abc/__init__.py", PYTHON),
    }
    question = rules.Question({"ordereddict": 1.0}, ["OrderedDict"], definitions=frozenset({2}))
    ranked, rulings = ruled(files, [(1, 1.0), (2, 0.9), (3, 0.8)], question)
    assert [number for number, _ in ranked] == [2, 1, 3]
    assert rulings[2] == rules.Ruling(0.0, rules.DEFINITION_WITHIN)
    assert rulings[3].factor == rules.HELD_BACK[kinds.EXPORTS]


def test_a_change_log_is_found_by_a_version() -> None:
    files = {1: ("CHANGELOG.md", MARKDOWN), 2: ("docs/a.md", MARKDOWN)}
    ranked = [(1, 1.0), (2, 0.9)]
    assert order(files, {"proxi": 1.0}, ranked) == [2, 1]
    assert order(files, {"proxi": 1.0}, ranked, numbered=True) == [1, 2]


def test_scores_stay_within_0_and_1_and_the_best_keeps_its_own() -> None:
    files = {1: ("src/a.py", PYTHON), 2: ("src/blueprint.py", PYTHON)}
    ranked, rulings = ruled(files, [(1, 0.8), (2, 0.4)], rules.Question({"blueprint": 1.0}))
    assert [number for number, _ in ranked] == [2, 1]
    assert ranked[0][1] == pytest.approx(0.8)
    assert rulings[2].path == rules.PATH_CODE


def test_documents_without_a_rule_keep_their_scores_and_their_order() -> None:
    ranked = [(1, 0.9), (2, 0.9), (3, 0.1)]
    files = {number: (f"docs/{number}.md", MARKDOWN) for number in (1, 2, 3)}
    assert ruled(files, ranked, rules.Question({"otter": 1.0})) == (ranked, {})
    assert ruled({}, [], rules.Question({})) == ([], {})


def reader(asked: list[list[int]], absent: int | None = None) -> Callable[[Sequence[int]], list[rules.Place]]:
    """What reads the places of documents, all of them of code, and notes what it was asked for."""

    def read(numbers: Sequence[int]) -> list[rules.Place]:
        asked.append(list(numbers))
        return [(no, f"src/{no}.py", PYTHON) for no in numbers if no != absent]

    return read


def test_a_document_is_read_once_and_one_that_is_gone_stays_as_it_is() -> None:
    asked: list[list[int]] = []
    profiles = rules.Profiles(reader(asked, absent=9))
    assert profiles.known(3) is rules.UNKNOWN
    assert [profile.low for profile in profiles.of([900, 3])] == ["src/900", "src/3"]
    assert [profile.low for profile in profiles.of([9, 3, 12])] == ["", "src/3", "src/12"]
    assert [profile.low for profile in profiles.of([12, 3, 900])] == ["src/12", "src/3", "src/900"]
    assert asked == [[3, 900], [9, 12]]
    assert profiles.known(3).siblings.suffix == "py"
    assert profiles.known(9) is rules.UNKNOWN


def test_documents_are_known_for_as_long_as_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "_KEPT", 2)
    profiles = rules.Profiles(reader([]))
    profiles.of([1, 2, 3])
    assert [profile.low for profile in profiles.of([900])] == ["src/900"]
    assert profiles.known(1) is rules.UNKNOWN


def test_what_another_thread_tells_or_forgets_meanwhile_is_known_to_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    meanwhile: list[rules.Profile] = []

    def read(numbers: Sequence[int]) -> list[rules.Place]:
        if 40 in numbers and rules._KEPT:
            monkeypatch.setattr(rules, "_KEPT", 0)  # the other thread finds no room
            meanwhile.extend(profiles.of([12, 40]))
        return [(no, f"src/{no}.py", PYTHON) for no in numbers]

    profiles = rules.Profiles(read)
    profiles.of([3])
    assert [profile.low for profile in profiles.of([3, 12, 40])] == ["src/3", "src/12", "src/40"]
    assert [profile.low for profile in meanwhile] == ["src/12", "src/40"]


def test_a_file_is_named_best_by_a_query_that_says_all_of_its_name() -> None:
    question = rules.Question({"pars": 1.0, "argument": 1.0})
    paths = [
        "lib/value_parser.py",
        "lib/ValueParser.py",
        "lib/parser.py",
        "lib/parse_arguments.py",
        "lib/parser2.py",
    ]
    files = {number: (path, PYTHON) for number, path in enumerate(paths)}
    _, rulings = ruled(files, [(number, 1.0) for number in files], question)
    shares = {paths[number]: ruling.path for number, ruling in rulings.items()}
    assert shares["lib/parse_arguments.py"] == 1.0
    assert shares["lib/parser.py"] == 0.5
    for path in ("lib/value_parser.py", "lib/ValueParser.py", "lib/parser2.py"):
        assert shares[path] == pytest.approx(0.5**1.5)


def test_the_worked_example_of_the_documentation() -> None:
    paths = ["tests/test_retry.py", "CHANGELOG.md", "src/client.py", "guide/errors.md", "src/retry.py"]
    files = {
        number: (path, MARKDOWN if path.endswith(".md") else PYTHON) for number, path in enumerate(paths)
    }
    keyword = [(0, 1.888), (1, 1.599), (3, 0.862), (2, 0.827), (4, 0.547)]
    semantic = [(0, 0.691), (1, 0.687), (2, 0.670), (3, 0.610), (4, 0.608)]
    fused = ranking.fuse("minmax", keyword, semantic, 0.647)
    assert dict(fused) == pytest.approx({0: 1.0, 1: 0.906, 2: 0.606, 3: 0.144, 4: 0.06}, abs=0.01)
    question = rules.Question({"retri": 0.288, "fail": 0.539, "request": 0.288})
    ranked, rulings = ruled(files, fused, question)
    assert [paths[number] for number, _ in ranked] == [
        "src/client.py",
        "tests/test_retry.py",
        "CHANGELOG.md",
        "src/retry.py",
        "guide/errors.md",
    ]
    assert rulings[0].path == pytest.approx(0.110, abs=0.001)
    assert rulings[4].path == pytest.approx(0.155, abs=0.001)
    assert ranked[1][1] == pytest.approx(0.916, abs=0.003)
    documentation = (ROOT / "docs" / "ranking.md").read_text()
    assert documentation.count("0.155") == documentation.count("0.110") == 2
    assert "`tests/test_retry.py` 0.916" in documentation


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
    assert rules.files_named(query) == files


@pytest.mark.parametrize("query", ["work/src/lexer.py:12", "lexer.py", "./src/lexer.py"])
def test_a_file_that_is_named_comes_first_however_often_others_name_it(query: str) -> None:
    files = {
        1: ("docs/lexer.md", MARKDOWN),
        2: ("src/lexer.py", PYTHON),
        3: ("src/lexer.pyi", PYTHON),
        4: ("old/token.py", PYTHON),
    }
    ranked = [(1, 1.0), (4, 0.9), (3, 0.4), (2, 0.1)]
    question = rules.Question({}, files=rules.files_named(query), naming=rules.NAMED)
    assert ruled(files, ranked, question)[0][0][0] == 2


def test_a_file_is_named_whose_stem_its_suffix_says_again() -> None:
    files = {1: ("src/d.c", PYTHON), 2: ("src/c.c", PYTHON)}
    question = rules.Question({}, files=rules.files_named("c.c"), naming=rules.NAMED)
    assert ruled(files, [(1, 1.0), (2, 0.1)], question)[0][0][0] == 2


def test_a_test_that_is_named_is_not_held_back_and_one_in_another_folder_is_not_named() -> None:
    paths = {1: "src/lexer.py", 2: "tests/test_lexer.py", 3: "legacy/test_lexer.py", 4: "test_lexer.py"}
    files = {number: (path, PYTHON) for number, path in paths.items()}
    question = rules.Question({}, files=rules.files_named("app/tests/test_lexer.py"), naming=rules.NAMED)
    ranked, rulings = ruled(files, [(1, 1.0), (2, 0.5), (3, 0.5), (4, 0.4)], question)
    assert [number for number, _ in ranked] == [2, 4, 1, 3]
    assert rulings[2] == rules.Ruling(1.0)


@pytest.mark.parametrize("piece", ["x", "xy", "x1", "xX", "xXXXXXXXXX"])
def test_a_path_costs_what_it_is_long_and_not_the_square_of_that(piece: str) -> None:
    """A clone may have three hundred files whose names are as long as a folder takes."""

    def cost(length: int) -> int:
        files = {1: (f"docs/{piece * (length // len(piece))}.md", MARKDOWN)}
        return lines_run(lambda: order(files, {"x": 1.0, "xxx": 1.0, "y": 1.0}, [(1, 1.0)]))

    assert cost(2000) < 6 * cost(500)
