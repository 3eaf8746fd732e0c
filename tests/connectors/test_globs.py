"""Globs and ignore rules, held against git itself: `git ls-files` says what a rule or a pathspec means."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctx.connectors.names import encode_name
from ctx.connectors.patterns import expand_braces, parse_ignore_file
from ctx.connectors.scope import Scope

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
    found = set()
    for path in paths:
        *folders, name = path.split("/")
        here: Scope | None = scope
        for folder in folders:
            here = here.enter(folder) if here else None
        if here and here.takes(name):
            found.add(path)
    return found


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


_WORDS = r"a b c ab docs build x .md .txt * ** ? / / [ab] [!a] [^b] [a-c] []a] [c-a] [ ] \ \* \[ ! # - [a\]] [a-] **/ /**"
_CLASSES = "[[:alpha:]] [[:upper:]] [[:punct:]] [[:nope:]] [[:a]"
PIECE = st.sampled_from([*_WORDS.split(), *_CLASSES.split(), " ", "\\ "])
RULE = st.lists(PIECE, min_size=1, max_size=5).map("".join)
RULES = st.lists(st.tuples(st.sampled_from(["", "", "", "!"]), RULE).map("".join), min_size=1, max_size=6)


@settings(max_examples=int(__import__("os").environ.get("N","150")), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(top=RULES, nested=RULES)
def test_ignore_rules_mean_what_git_says_they_mean(
    tree: tuple[Path, list[str]], top: list[str], nested: list[str]
) -> None:
    root, paths = tree
    (root / "top-rules").write_text("\n".join(top))
    (root / ".gitignore").write_text("\n".join(top))
    (root / "a" / ".gitignore").write_text("\n".join(nested))
    said = git(root, "ls-files", "-o", "-z", "--exclude-per-directory=.gitignore").decode().split("\0")
    scope = Scope.top(["*"], []).with_rules(parse_ignore_file("\n".join(top)))
    inner = scope.enter("a")
    inner = inner.with_rules(parse_ignore_file("\n".join(nested))) if inner else None
    ours = taken([path for path in paths if not path.startswith("a/")], scope)
    if inner:
        ours |= {f"a/{path}" for path in taken([path[2:] for path in paths if path.startswith("a/")], inner)}
    assert ours == set(said) & set(paths)


def spelled_out(glob: str, path: str) -> bool:
    """The meaning of a glob with a slash, character by character: slow, and plain enough to be believed."""
    if not glob:
        return not path
    if glob == "**":
        return True
    if glob.startswith("**/"):
        return spelled_out(glob[3:], path) or any(
            spelled_out(glob[3:], path[at + 1 :]) for at, char in enumerate(path) if char == "/"
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
    plain = Scope.top(["*"], [])
    assert plain.tag == ""
    assert plain.with_rules(parse_ignore_file("# only a comment\n")).tag == ""
    one, other = (plain.with_rules(parse_ignore_file(text)) for text in ("*.log\n", "*.log\n!a.log\n"))
    assert one.tag != other.tag
    assert one.tag == plain.with_rules(parse_ignore_file("# why\n*.log\n")).tag


@given(
    st.lists(
        st.sampled_from(["%", "2", "5", "F", "A", "é", "\udcff", "\udc80", "x", "%25", "%FF", "%41"]),
        max_size=8,
    ).map("".join)
)
def test_every_file_name_has_an_id_of_its_own_that_any_store_can_hold(name: str) -> None:
    encoded = encode_name(name)
    encoded.encode("utf-8")
    assert decode_name(encoded) == name
