"""Globs and ignore rules, held against git itself: `git ls-files` and `git check-ignore` say what a rule
means.
"""

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from fuzz import fuzz, patient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tree_kit import put

from ctx.connectors.base import ScanLog
from ctx.connectors.filesystem import FilesystemConnector
from ctx.connectors.names import encode_name
from ctx.connectors.patterns import (
    MAX_LINE_CHARS,
    MAX_RULE_FILE_BYTES,
    Rules,
    TooManyPatterns,
    expand_braces,
    name_test,
    parse_ignore_file,
    read_ignore_file,
)
from ctx.connectors.scope import Scope
from ctx.errors import ConfigError

FOLDERS = ("", "a", "a/b", "a/b/c", "b", "b/a", "docs", "docs/a", "build", "a b", "x.md")
NAMES = (
    "a",
    "b",
    "ab",
    "abc",
    "a.md",
    "b.md",
    "x.txt",
    "[a]",
    "a b",
    "-",
    "!a",
    "#a",
    "a]",
    "a\\b",
    "B",
    "1",
    "*",
    ".hidden",
    "a^",
)


def taken(paths: Sequence[str], scope: Scope) -> set[str]:
    """The paths that a scope takes, by the way a scan would go: folder by folder."""
    included = set()
    for path in paths:
        *folders, name = path.split("/")
        inner: Scope | None = scope
        for folder in folders:
            inner = inner.enter(folder) if inner else None
        if inner and inner.takes(name):
            included.add(path)
    return included


def included(globs: Sequence[str], *paths: str, exclude: Sequence[str] = ()) -> set[str]:
    return taken(paths, Scope.top(globs, exclude))


def ignoring(text: str, *paths: str) -> set[str]:
    return set(paths) - taken(paths, Scope.top(["*"], []).with_rules(parse_ignore_file(text)))


def git(folder: Path, *arguments: str) -> bytes:
    environment = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "HOME": str(folder),
    }
    return subprocess.run(
        ["git", *arguments], cwd=folder, env=environment, check=True, capture_output=True
    ).stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A git working tree of every name in every folder, nothing of it committed; and its paths."""
    root = tmp_path_factory.mktemp("tree")
    paths = []
    for folder in FOLDERS:
        (root / folder).mkdir(exist_ok=True)
    for folder in FOLDERS:
        for name in NAMES:
            path = f"{folder}/{name}" if folder else name
            if path not in FOLDERS:
                (root / path).write_text(name)
                paths.append(path)
    git(root, "init", "-q")
    return root, paths


_WORDS = (
    r"a b c ab docs build x .md .txt * ** ? / / [ab] [!a] [^b] [a-c] []a] [c-a] [ ] \ \* \[ ! # - [a\]] [a-] "
    r"**/ /**"
)
_CLASSES = "[[:alpha:]] [[:upper:]] [[:punct:]] [[:nope:]] [[:a]"
PIECE = st.sampled_from([*_WORDS.split(), *_CLASSES.split(), " ", "\\ "])
RULE = st.lists(PIECE, min_size=1, max_size=5).map("".join)
RULES = st.lists(st.tuples(st.sampled_from(["", "", "", "!"]), RULE).map("".join), min_size=1, max_size=6)


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(top=RULES, nested=RULES)
def test_ignore_rules_mean_what_git_says_they_mean(
    tree: tuple[Path, list[str]], top: list[str], nested: list[str]
) -> None:
    root, paths = tree
    (root / "top-rules").write_text("\n".join(top))
    (root / ".gitignore").write_text("\n".join(top))
    (root / "a" / ".gitignore").write_text("\n".join(nested))
    listing = git(root, "ls-files", "-o", "-z", "--exclude-per-directory=.gitignore").decode().split("\0")
    scope = Scope.top(["*"], []).with_rules(parse_ignore_file("\n".join(top)))
    inner = scope.enter("a")
    inner = inner.with_rules(parse_ignore_file("\n".join(nested))) if inner else None
    ours = taken([path for path in paths if not path.startswith("a/")], scope)
    if inner:
        ours |= {f"a/{path}" for path in taken([path[2:] for path in paths if path.startswith("a/")], inner)}
    assert ours == set(listing) & set(paths)


def spelled_out(glob: str, path: str) -> bool:
    """The meaning of a glob with a slash, character by character: slow, and plain enough to be believed."""
    if not glob:
        return not path
    if glob == "**":
        return True
    if glob.startswith("**/"):
        return spelled_out(glob[3:], path) or any(
            spelled_out(glob[3:], path[index + 1 :]) for index, char in enumerate(path) if char == "/"
        )
    if glob == "/**":
        return len(path) > 1 and path[0] == "/"
    if glob.startswith("/**/"):
        return path[:1] == "/" and spelled_out(glob[1:], path[1:])
    if glob[0] == "*":
        return spelled_out(glob[1:], path) or (path[:1] not in ("", "/") and spelled_out(glob, path[1:]))
    if glob[0] == "?":
        return path[:1] not in ("", "/") and spelled_out(glob[1:], path[1:])
    return path[:1] == glob[0] and spelled_out(glob[1:], path[1:])


COMPONENT = st.sampled_from(
    ["**", "**", "*", "a", "b", "docs", "a*", "*.md", "?", "a?", "*b*", "x.md", "*a", "??*"]
)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(components=st.lists(COMPONENT, min_size=2, max_size=5))
def test_a_glob_with_a_slash_means_what_it_spells(components: list[str]) -> None:
    glob = "/".join(components)
    paths = [f"{folder}/{name}".removeprefix("/") for folder in FOLDERS for name in NAMES]
    assert included([glob], *paths) == {path for path in paths if spelled_out(glob, path)}


def test_a_glob_without_a_slash_matches_at_every_depth() -> None:
    assert included(["*.md"], "a.md", "docs/b.md", "docs/x/c.md", "a.txt") == {
        "a.md",
        "docs/b.md",
        "docs/x/c.md",
    }


def test_two_stars_match_no_folder_as_well_as_many() -> None:
    assert included(["**/*.md"], "a.md", "docs/b.md", "docs/x/c.md") == {"a.md", "docs/b.md", "docs/x/c.md"}
    assert included(["docs/**/*.md"], "docs/b.md", "docs/x/y/c.md", "a.md") == {"docs/b.md", "docs/x/y/c.md"}
    assert included(["docs/**"], "docs/b.md", "docs/x/y/c.txt", "docs2/a.md") == {
        "docs/b.md",
        "docs/x/y/c.txt",
    }


def test_one_star_does_not_cross_a_folder() -> None:
    assert included(["docs/*.md"], "docs/b.md", "docs/x/c.md", "x/docs/d.md") == {"docs/b.md"}


def test_a_glob_that_ends_in_a_slash_means_everything_below() -> None:
    assert included(["docs/"], "docs/a", "docs/x/b", "x/docs/c", "docs.md") == {
        "docs/a",
        "docs/x/b",
        "x/docs/c",
    }
    assert included(["./a/docs/"], "a/docs/x", "docs/x") == {"a/docs/x"}


def test_an_excluded_folder_takes_everything_below_with_it() -> None:
    assert included(["*.md"], "a.md", "drafts/b.md", "x/drafts/y/c.md", exclude=["drafts"]) == {"a.md"}
    assert included(["*.md"], "a.md", "drafts/b.md", "x/drafts/c.md", exclude=["drafts/**"]) == {
        "a.md",
        "x/drafts/c.md",
    }


def test_braces_are_alternatives_and_may_be_nested() -> None:
    assert expand_braces("*.{md,t{xt,ex}}") == ["*.md", "*.txt", "*.tex"]
    assert expand_braces("a{b}c{") == ["a{b}c{"]
    assert included(["*.{md,txt}"], "a.md", "b/c.txt", "d.rst") == {"a.md", "b/c.txt"}


def test_too_many_braces_are_not_expanded_without_end() -> None:
    assert len(expand_braces("{a,b}" * 40)) <= 1000


def test_a_folder_that_no_glob_can_reach_is_not_entered() -> None:
    scope = Scope.top(["docs/**/*.md", "guide/*.md"], [])
    assert scope.enter("src") is None
    assert scope.enter("docs") is not None
    guide = scope.enter("guide")
    assert guide is not None
    assert guide.enter("deeper") is None


def test_caches_and_keys_are_never_entered() -> None:
    scope = Scope.top(["**"], [])
    assert [
        name
        for name in (".git", "node_modules", "__pycache__", ".venv", ".ssh", ".ctx", "docs")
        if scope.enter(name)
    ] == ["docs"]


def test_our_own_rules_can_take_back_what_git_ignores() -> None:
    assert ignoring("*.log\n!keep.log\n", "a.log", "keep.log") == {"a.log"}


def test_a_file_cannot_be_taken_back_from_an_ignored_folder() -> None:
    assert ignoring("build/\n!build/keep.md\n", "build/keep.md", "a.md") == {"build/keep.md"}


def test_an_ignore_file_may_have_windows_line_ends_and_a_byte_order_mark() -> None:
    assert ignoring("\ufeff*.log\r\n# no\r\n\r\ntmp \r\n", "a.log", "tmp", "b.md", "# no") == {"a.log", "tmp"}


def test_equal_rules_have_equal_tags_and_no_rules_have_none() -> None:
    unrestricted = Scope.top(["*"], [])
    assert unrestricted.tag == ""
    assert unrestricted.with_rules(parse_ignore_file("# only a comment\n")).tag == ""
    short, long = (
        unrestricted.with_rules(parse_ignore_file(text)) for text in ("*.log\n", "*.log\n!a.log\n")
    )
    assert short.tag != long.tag
    assert short.tag == unrestricted.with_rules(parse_ignore_file("# why\n*.log\n")).tag


def decoded(name: str) -> str:
    """What a part of a source id stands for."""

    def char(match: re.Match[str]) -> str:
        return "%" if match[1] == "25" else chr(0xDC00 + int(match[1], 16))

    return re.sub(r"%(25|[89A-F][0-9A-F])", char, name)


@given(
    st.lists(
        st.sampled_from(["%", "2", "5", "F", "A", "é", "\udcff", "\udc80", "x", "%25", "%FF", "%41"]),
        max_size=8,
    ).map("".join)
)
def test_every_file_name_has_an_id_of_its_own_that_any_store_can_hold(name: str) -> None:
    encoded = encode_name(name)
    encoded.encode("utf-8")
    assert decoded(encoded) == name


# -- git check-ignore, and how many steps a name takes -------------------------------------------------------


class Ignored:
    """`git check-ignore` over one folder, asked about many names."""

    def __init__(self, root: Path) -> None:
        self.root = root
        git(root, "init", "-q")

    def names(self, rules: str, names: Sequence[str]) -> set[str]:
        (self.root / ".gitignore").write_text(rules)
        process = subprocess.run(
            ["git", "check-ignore", "--no-index", "-z", "--stdin"],
            cwd=self.root,
            input="\0".join(names).encode(),
            capture_output=True,
            env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull},
            check=False,
        )
        assert process.returncode in (0, 1), process.stderr
        return {name for name in process.stdout.decode().split("\0") if name}


class Steps:
    """A regular expression followed as Python's engine follows it, each character looked at counted."""

    def __init__(self, regex: str) -> None:
        self._items = list(re._parser.parse(regex, re.DOTALL))  # type: ignore[attr-defined]
        self.taken = 0

    def fullmatch(self, name: str) -> bool:
        return any(end == len(name) for end in self._ends(self._items, name, 0))

    def _ends(self, items: Sequence[Any], name: str, start: int) -> Iterator[int]:
        if not items:
            yield start
            return
        (kind, value), following = items[0], items[1:]
        word = str(kind)
        if word == "ATOMIC_GROUP":
            end = next(self._ends(list(value), name, start), None)
            if end is not None:
                yield from self._ends(following, name, end)
        elif word in ("MAX_REPEAT", "MIN_REPEAT"):
            ends = range(start, len(name) + 1)
            for end in reversed(ends) if word == "MAX_REPEAT" else ends:
                yield from self._ends(following, name, end)
        else:
            self.taken += 1
            if start < len(name) and self._fits(word, value, name[start]):
                yield from self._ends(following, name, start + 1)

    def _fits(self, word: str, value: Any, char: str) -> bool:
        if word == "LITERAL":
            return ord(char) == int(value)
        if word == "NOT_LITERAL":
            return ord(char) != int(value)
        if word == "ANY":
            return True
        assert word == "IN", word
        negated = str(value[0][0]) == "NEGATE"
        return negated != any(
            ord(char) == bound if str(kind) == "LITERAL" else bound[0] <= ord(char) <= bound[1]
            for kind, bound in value[negated:]
        )


HOSTILE_PIECE = st.sampled_from(
    ["*", "*", "*a", "*a", "a", "b", "?", "[ab]", "[!b]", "**", "[a-c]", "\\*", "\\a", "/"]
)
HOSTILE = st.lists(HOSTILE_PIECE, min_size=1, max_size=24).map("".join)
LONG_NAME = st.lists(st.sampled_from(["a", "aaaaaaaa", "b", "ab", "c", "*"]), min_size=1, max_size=16).map(
    "".join
)


@pytest.mark.slow
@patient
def test_hostile_ignore_files_mean_what_git_check_ignore_says_in_few_steps(tmp_path: Path) -> None:
    ignored = Ignored(tmp_path)

    @given(rules=st.lists(HOSTILE, min_size=1, max_size=4), names=st.lists(LONG_NAME, min_size=1, max_size=8))
    def check(rules: list[str], names: list[str]) -> None:
        text = "\n".join(rules)
        assert ignoring(text, *names) == ignored.names(text, names)
        for segment in {item for pattern in parse_ignore_file(text) for item in pattern.segments}:
            if segment.kind != "wild":
                continue
            for name in names:
                steps = Steps(segment.text)
                assert steps.fullmatch(name) == name_test([segment])(name)
                assert steps.taken <= 2 * (len(name) + 1) * (len(segment.text) + 1)

    fuzz(check)


def test_a_star_before_a_long_name_takes_no_more_steps_than_both_are_long() -> None:
    (pattern,) = parse_ignore_file("*a" * 11 + "*b")
    segment = pattern.segments[-1]
    steps = Steps(segment.text)
    name = "a" * 250 + ".md"
    assert not steps.fullmatch(name)
    assert not name_test([segment])(name)
    assert steps.taken < 20 * len(name)


@pytest.mark.parametrize(
    "rule", ["a**/b", "a**/**", "x/a**", "x/a**/b/c", "a**/**/***/b", "a\\/b", "!x/a**", "a?**/b"]
)
def test_stars_within_a_component_cross_folders_where_git_lets_them(rule: str, tmp_path: Path) -> None:
    paths = ["a", "ab", "aa/b", "a/b", "aa/x/b", "x/a", "x/ab", "x/ab/c/d", "x/a/b/c", "x/ab/b/c", "x/q/b/c"]
    # A path that is both a file and a folder is asked about alone.
    files = [path for path in paths if not any(longer.startswith(path + "/") for longer in paths)]
    for path in files:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    text = f"x/ab/c\n{rule}\n"
    assert ignoring(text, *files) == Ignored(tmp_path).names(text, files)


def test_an_ignore_file_that_asks_too_much_is_refused_before_it_is_used() -> None:
    with pytest.raises(TooManyPatterns, match="larger than 1,000,000 bytes"):
        read_ignore_file(b"a" * (MAX_RULE_FILE_BYTES + 1))
    with pytest.raises(TooManyPatterns, match="more than 20,000 characters"):
        parse_ignore_file("*" * (MAX_LINE_CHARS + 1))
    with pytest.raises(TooManyPatterns, match="shorten"):
        Rules(parse_ignore_file("*a*b\n" * 20_000))
    Rules(parse_ignore_file("".join(f"name-{number}\n*.{number}\n" for number in range(20_000))))


def test_ignore_files_are_bounded_together_all_the_way_down() -> None:
    rules = parse_ignore_file("**/*a*b*\n" * 1500)
    scope = Scope.top(["*"], []).with_rules(rules)
    inner = scope.enter("folder")
    assert inner is not None
    with pytest.raises(TooManyPatterns, match="those above it"):
        inner.with_rules(rules)


def test_a_folder_whose_ignore_file_asks_too_much_is_left_out_with_a_line_of_the_report(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.md").write_text("kept")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / ".gitignore").write_text("*a*b\n" * 20_000 + "secret.md\n")
    (tmp_path / "deep" / "secret.md").write_text("hidden")
    log = ScanLog()
    items = list(FilesystemConnector("files", str(tmp_path)).scan({}, log))
    assert [item.source_id for item in items] == ["a.md"]
    assert any(source_id == "deep" and "left out" in reason for source_id, reason in log.problems), vars(log)


def test_a_configured_glob_has_a_length_and_braces_end() -> None:
    with pytest.raises(ConfigError, match="at most 1,024"):
        Scope.top(["a" * 1025], [])
    assert len(expand_braces("{a," * 300 + "b" + "}" * 300)) == 301
    assert expand_braces("{" * 1000 + "a,b") == ["{" * 1000 + "a,b"]
    assert expand_braces("\\{a,b}{c,d}") == ["\\{a,b}c", "\\{a,b}d"]


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe"])
def test_what_an_ignore_file_of_ours_hides_is_not_published_where_it_cannot_be_read(
    root: Path, connector: FilesystemConnector, kind: str
) -> None:
    put(root, "open.md")
    put(root, "sub/secret.md")
    if kind == "pipe":
        os.mkfifo(root / "sub" / ".ctxignore")
    else:
        (root / "sub" / ".ctxignore").symlink_to("../rules" if kind == "link" else "../nothing")
        put(root, "rules", "secret.md")
    log = ScanLog()
    assert [item.source_id for item in connector.scan({}, log)] == ["open.md"]
    assert [problem.source_id for problem in log.problems] == ["sub"]
    assert log.withheld == ["sub/"]
