"""Submodules and Git LFS. A small script stands in for `git lfs`."""

import hashlib
import os
from pathlib import Path

import pytest
from git_kit import TOKEN, Scan, Upstream, connector, git

from ctx.connectors.forges import Submodule, address_of, parse_remote

pytestmark = pytest.mark.usefixtures("plain_git")


def beside(upstream: Upstream, name: str) -> Upstream:
    """Another repository in the same folder."""
    folder = upstream.bare.parent / f"{name}-work"
    folder.mkdir()
    inner = Upstream(folder)
    inner.bare.rename(upstream.bare.parent / f"{name}.git")
    inner.bare = upstream.bare.parent / f"{name}.git"
    git(inner.work, "remote", "set-url", "origin", str(inner.bare))
    return inner


def link(upstream: Upstream, path: str, url: str, oid: str) -> None:
    """Makes `path` a submodule, as `git submodule add` does."""
    entry = f'[submodule "{path}"]\n\tpath = {path}\n\turl = {url}\n'
    modules = upstream.work / ".gitmodules"
    modules.write_text((modules.read_text() if modules.exists() else "") + entry)
    git(upstream.work, "add", ".gitmodules")
    git(upstream.work, "update-index", "--add", "--cacheinfo", f"160000,{oid},{path}")
    upstream.clock += 1000
    git(upstream.work, "commit", "-q", "-m", "link", at=upstream.clock)
    upstream.push()


def test_files_of_submodules_lie_below_their_folders(upstream: Upstream, tmp_path: Path) -> None:
    library, inmost = beside(upstream, "library"), beside(upstream, "inmost")
    first = inmost.commit({"deep.md": "# Deep"})
    library.commit(
        {"docs/guide.md": "# Guide", "docs/x.log": "no", "skip.md": "# Skip", "docs/.ctxignore": "x.log"}
    )
    link(library, "inner", "../inmost.git", first)
    oid = git(library.work, "rev-parse", "HEAD")
    upstream.commit({"own.md": "# Own", ".ctxignore": "skip.md\n"})
    link(upstream, "lib/one", "../library.git", oid)
    library.commit({"docs/later.md": "# Later"})  # not at the commit that is linked
    options = {"submodules": True, "exclude_globs": ["**/*.log", ".gitmodules"]}
    scan = Scan(connector(upstream, tmp_path, **options))
    assert scan.ids == {"own.md", "lib/one/docs/guide.md", "lib/one/inner/deep.md"}
    assert scan.data["lib/one/docs/guide.md"] == b"# Guide"
    assert scan.log.problems == []
    second = Scan(connector(upstream, tmp_path, **options), scan.known)
    assert second.ids == set()
    assert second.log.unchanged == scan.ids
    narrow = Scan(connector(upstream, tmp_path, submodules=True, include_globs=["lib/*/docs/**"]))
    assert narrow.ids == {"lib/one/docs/guide.md"}
    below = Scan(connector(upstream, tmp_path, submodules=True, root="lib"))
    assert "one/docs/guide.md" in below.ids


def test_a_submodule_that_cannot_be_read_keeps_what_is_known_of_it(
    upstream: Upstream, tmp_path: Path
) -> None:
    library = beside(upstream, "library")
    oid = library.commit({"guide.md": "# Guide"})
    upstream.commit({"own.md": "# Own"})
    link(upstream, "lib", "../library.git", oid)
    source = connector(upstream, tmp_path, submodules=True)
    assert "lib/guide.md" in Scan(source).ids
    library.bare.rename(tmp_path / "gone.git")
    link(upstream, "other", "../library.git", oid)
    log = Scan(source).log
    assert [problem.source_id for problem in log.problems] == ["lib/", "other/"]
    assert log.withheld == ["lib/", "other/"]


def test_a_repository_that_is_its_own_submodule_ends(upstream: Upstream, tmp_path: Path) -> None:
    first = upstream.commit({"own.md": "# Own"})
    link(upstream, "again", "./../upstream.git", first)
    link(upstream, "again2", "../upstream.git", git(upstream.work, "rev-parse", "HEAD"))
    source = connector(upstream, tmp_path, submodules=True, exclude_globs=[".gitmodules"], timeout_s=20.0)
    assert Scan(source).ids == {"own.md", "again/own.md", "again2/own.md", "again2/again/own.md"}


@pytest.mark.parametrize(
    ("url", "outer", "address"),
    [
        ("../b.git", "https://forge.example/a/x.git", "https://forge.example/a/b.git"),
        (
            "../../c/b.git",
            f"https://x:{TOKEN}@forge.example/a/x.git",
            f"https://x:{TOKEN}@forge.example/c/b.git",
        ),
        ("../b.git", "git@forge.example:a/x.git", "git@forge.example:a/b.git"),
        ("https://forge.example/c/d", "https://forge.example/a/x.git", "https://forge.example/c/d"),
        ("http://forge.example/c", "https://forge.example/a", "https://forge.example/c"),
        ("http://[2001:db8::1]/c", "https://[2001:db8::1]/a", "https://[2001:db8::1]/c"),
        ("https://forge.example:8443/c", "https://forge.example/a", None),
        ("http://forge.example:9200/c", "http://forge.example:3000/a", None),
        ("../../../home/ann/secret", "/srv/git/x.git", None),
        ("/home/ann/secret", "/srv/git/x.git", None),
        ("file:///home/ann/secret", "https://forge.example/a/x.git", None),
        ("/home/ann/secret", "https://forge.example/a/x.git", None),
        ("ext::sh -c evil", "https://forge.example/a/x.git", None),
        ("../../../..", "https://forge.example/a/x.git", None),
        (None, "https://forge.example/a/x.git", None),
    ],
)
def test_a_submodule_is_read_only_from_where_the_repository_is(
    url: str | None, outer: str, address: str | None
) -> None:
    submodule = Submodule("lib", "0" * 40, url)
    if address is None:
        with pytest.raises(ValueError, match=r"\w+ \w+"):
            address_of(submodule, parse_remote(outer))
    else:
        assert address_of(submodule, parse_remote(outer)) == address


LFS = """#!/bin/sh
[ "$1" = smudge ] || exit 2
[ -n "$GIT_LFS_SKIP_SMUDGE" ] && exec cat
digest=$(sed -n 's/^oid sha256://p')
cat "{store}/$digest" 2>/dev/null || {{ echo "fatal: not on the server: $digest" >&2; exit 1; }}
"""


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a stand-in for `git lfs`, which knows its files by their hashes."""
    programs, store = tmp_path / "programs", tmp_path / "store"
    programs.mkdir()
    store.mkdir()
    program = programs / "git-lfs"
    program.write_text(LFS.format(store=store))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("GIT_LFS_SKIP_SMUDGE", "1")  # of whoever clones without the large files
    return store


def pointer(content: bytes, size: int | None = None) -> str:
    digest = hashlib.sha256(content).hexdigest()
    size = len(content) if size is None else size
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {size}\n"


def test_git_lfs_files_are_read_and_checked_against_their_hash(
    upstream: Upstream, tmp_path: Path, stored: Path
) -> None:
    manual, changed = b"# Manual\n\nA long one.\n", b"# As it was\n"
    (stored / hashlib.sha256(manual).hexdigest()).write_bytes(manual)
    (stored / hashlib.sha256(changed).hexdigest()).write_bytes(b"# Something else\n")
    upstream.commit(
        {
            "manual.md": pointer(manual),
            "own.md": "# Own",
            "odd.md": "version https://git-lfs.github.com/spec/v9\nnothing known\n",
        }
    )
    scan = Scan(connector(upstream, tmp_path, lfs=True))
    assert scan.data == {"manual.md": manual, "own.md": b"# Own", "odd.md": b""}
    for name, text, words in (
        ("changed.md", pointer(changed), "the checksum differs"),
        ("absent.md", pointer(b"absent"), "not on the server"),
        ("huge.md", pointer(b"huge", 10**9), "more than max_file_bytes"),
    ):
        upstream.commit({name: text})
        with pytest.raises(Exception, match=words):
            Scan(connector(upstream, tmp_path, lfs=True), scan.known)
        upstream.commit({name: None})
    assert connector(upstream, tmp_path, lfs=True).signature != connector(upstream, tmp_path).signature
