"""Globs and ignore rules, compared with what git does."""

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tree_kit import put

from ctx.connectors.base import ScanLog
from ctx.connectors.filesystem import FilesystemConnector
from ctx.connectors.patterns import (
    MAX_LINE_CHARS,
    MAX_RULE_FILE_BYTES,
    Rules,
    expand_braces,
    parse_ignore_file,
    read_ignore_file,
)
from ctx.connectors.scope import Scope
from ctx.errors import SourceError

FOLDERS = ("", "a", "a/b", "a/b/c", "b", "b/a", "docs", "docs/a", "build", "a b", "x.md")
NAMES = (
    "a",
    "b",
    "ab",
    "a.md",
    "b.md",
    "x.txt",
    "[a]",
    "a b",
    "!a",
    "#a",
    "a]",
    "a\\b",
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


def test_a_glob_without_a_slash_matches_at_every_depth() -> None:
    assert included(["*.md"], "a.md", "docs/b.md", "docs/x/c.md", "a.txt") == {
        "a.md",
        "docs/b.md",
        "docs/x/c.md",
    }


def test_two_stars_match_no_folder_as_well_as_many() -> None:
    assert included(["docs/**/*.md"], "docs/b.md", "docs/x/y/c.md", "a.md") == {"docs/b.md", "docs/x/y/c.md"}


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


def test_a_file_cannot_be_taken_back_from_an_ignored_folder() -> None:
    assert ignoring("build/\n!build/keep.md\n", "build/keep.md", "a.md") == {"build/keep.md"}


def test_an_ignore_file_may_have_windows_line_ends_and_a_byte_order_mark() -> None:
    assert ignoring("\ufeff*.log\r\n# no\r\n\r\ntmp \r\n", "a.log", "tmp", "b.md", "# no") == {"a.log", "tmp"}


def test_an_ignore_file_that_asks_too_much_is_refused_before_it_is_used() -> None:
    with pytest.raises(SourceError, match="larger than 1,000,000 bytes"):
        read_ignore_file(b"a" * (MAX_RULE_FILE_BYTES + 1))
    with pytest.raises(SourceError, match="more than 20,000 characters"):
        parse_ignore_file("*" * (MAX_LINE_CHARS + 1))
    with pytest.raises(SourceError, match="shorten"):
        Rules(parse_ignore_file("*a*b\n" * 20_000))
    Rules(parse_ignore_file("".join(f"name-{number}\n*.{number}\n" for number in range(20_000))))


def test_unfinished_classes_in_an_ignore_file_take_linear_time() -> None:
    began_s = time.process_time()
    assert parse_ignore_file(("[" + "[:" * 9_999 + "\n") * 50) == []
    assert time.process_time() - began_s < 8  # quadratic work takes half a minute


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


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe"])
def test_an_unreadable_ctxignore_withholds_its_folder(
    root: Path, connector: FilesystemConnector, kind: str
) -> None:
    put(root, "open.md")
    put(root, "sub/secret.md")
    if kind == "pipe":
        os.mkfifo(root / "sub" / ".ctxignore")
    else:
        (root / "sub" / ".ctxignore").symlink_to("../rules.bak" if kind == "link" else "../nothing")
        put(root, "rules.bak", "secret.md")
    log = ScanLog()
    assert [item.source_id for item in connector.scan({}, log)] == ["open.md"]
    assert [problem.source_id for problem in log.problems] == ["sub"]
    assert log.withheld == ["sub/"]
