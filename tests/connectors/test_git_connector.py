"""The git connector reads files, dates, authors and addresses from real repositories."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from git_kit import Scan, Upstream, connector, git, use_instead

from ctx.errors import SourceError

pytestmark = pytest.mark.usefixtures("plain_git")
ELSEWHERE = "its content is in Git LFS. Install `git lfs` and set `lfs = true` to fetch it"


def test_a_repository_is_read_with_dates_and_authors(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"docs/auth.md": "# Auth", "old.md": "old", "logo.png": b"\x89PNG"}, author="Ann Author")
    head = upstream.commit({"docs/auth.md": "# Auth 2"}, author="Bo Writer")
    scan = Scan(connector(upstream, tmp_path))
    assert scan.data == {"docs/auth.md": b"# Auth 2", "old.md": b"old"}
    assert {key: item.updated_ms for key, item in scan.items.items()} == {
        "docs/auth.md": 1_700_002_000_000,
        "old.md": 1_700_001_000_000,
    }
    assert scan.authors == {"docs/auth.md": "Bo Writer", "old.md": "Ann Author"}
    assert scan.urls == {"docs/auth.md": None, "old.md": None}
    assert scan.log.revision == head
    assert scan.log.problems == []


def test_only_changed_blobs_are_read_again(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"a.md": "one", "b.md": "two", "c.md": "three"})
    source = connector(upstream, tmp_path)
    first = Scan(source)
    assert Scan(source, first.known).items == {}
    upstream.commit({"a.md": "one changed", "b.md": None, "d.md": "three"})
    second = Scan(source, first.known)
    assert second.ids == {"a.md", "d.md"}
    assert second.log.unchanged == {"c.md"}
    assert set(first.known) - second.ids - second.log.unchanged == {"b.md"}
    # The blob of d.md is the very one of c.md; its date is its own.
    assert second.items["d.md"].updated_ms == 1_700_002_000_000


def test_a_root_gives_ids_below_it_and_addresses_from_the_top(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.commit({"docs/guide/auth.md": "auth", "src/a.py": "code", "docs2/b.md": "b"})
    use_instead(monkeypatch, tmp_path, "https://github.com/acme/", f"file://{tmp_path}/")
    for root in ("docs", "docs/", "./docs", "/docs"):
        scan = Scan(connector("https://github.com/acme/upstream.git", tmp_path, root=root))
        assert scan.urls == {"guide/auth.md": "https://github.com/acme/upstream/blob/main/docs/guide/auth.md"}
        assert scan.items["guide/auth.md"].updated_ms == 1_700_001_000_000


def test_a_missing_root_and_a_missing_branch_are_clear_and_delete_nothing(
    upstream: Upstream, tmp_path: Path
) -> None:
    upstream.commit({"a.md": "a"})
    with pytest.raises(SourceError, match=r"`root` is not a folder of main: 'nowhere'"):
        Scan(connector(upstream, tmp_path, root="nowhere"))
    with pytest.raises(SourceError, match=r"no branch or tag 'release' \(branches: main\)"):
        Scan(connector(upstream, tmp_path, branch="release"))


def test_a_force_push_is_followed(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"a.md": "one"})
    upstream.commit({"secret.md": "oops"})
    source = connector(upstream, tmp_path)
    first = Scan(source)
    git(upstream.work, "reset", "-q", "--hard", "HEAD~1")
    head = upstream.commit({"b.md": "b"})
    second = Scan(source, first.known)
    assert (second.ids, second.log.unchanged, second.log.revision) == ({"b.md"}, {"a.md"}, head)


def test_an_empty_repository_yields_nothing_but_one_that_was_emptied_is_an_error(
    upstream: Upstream, tmp_path: Path
) -> None:
    source = connector(upstream, tmp_path)
    assert Scan(source).log.revision is None
    with pytest.raises(SourceError, match="no commits any more"):
        Scan(source, {"a.md": "x"})
    upstream.commit({"a.md": "a"})
    assert Scan(source).ids == {"a.md"}


def test_links_submodules_and_large_file_pointers_are_not_documents(
    upstream: Upstream, tmp_path: Path
) -> None:
    (upstream.work / "link.md").symlink_to("a.md")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
    sha = upstream.commit({"a.md": "a", "model.md": pointer}, push=False)
    git(upstream.work, "update-index", "--add", "--cacheinfo", f"160000,{sha},vendor.md")
    git(upstream.work, "commit", "-q", "-m", "vendor", at=upstream.clock)
    upstream.push()
    scan = Scan(connector(upstream, tmp_path))
    assert scan.data == {"a.md": b"a", "model.md": b""}
    assert scan.log.problems == []
    assert scan.log.notes == [
        ("", "submodules are not read (vendor.md). Set `submodules = true` to read those on the same host"),
        ("model.md", f"not indexed: {ELSEWHERE}"),
    ]


def test_odd_names_are_told_apart(upstream: Upstream, tmp_path: Path) -> None:
    work = os.fsencode(upstream.work)
    names = [
        b"\xff.md",
        b"%FF.md",
        b"two\nlines.md",
        b"\nfirst.md",
        b" space .md",
        b"-dash.md",
        "ü/ß.md".encode(),
        b'"quoted".md',
        b"a\ttab.md",
    ]
    os.mkdir(work + "/ü".encode())
    for name in names:
        with open(work + b"/" + name, "wb") as file:
            file.write(name)
    upstream.commit({})
    source = connector(upstream, tmp_path)
    scan = Scan(source)
    assert set(scan.data.values()) == set(names)
    assert {"%FF.md", "%25FF.md", "two\nlines.md", "ü/ß.md"} < scan.ids
    json.dumps(sorted(scan.ids)).encode()
    assert {item.updated_ms for item in scan.items.values()} == {1_700_001_000_000}
    assert scan.log.problems == []  # the history named every one of them
    assert Scan(source, scan.known).items == {}


def test_globs_our_ignore_file_and_caches_decide_what_is_taken(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit(
        {
            "a.md": "a",
            "b.txt": "b",
            "drafts/c.md": "c",
            "node_modules/d.md": "d",
            "sub/e.md": "e",
            "sub/.ctxignore": "e.md",
        }
    )
    source = connector(upstream, tmp_path, include_globs=["**/*.md"], exclude_globs=["drafts/**"])
    first = Scan(source)
    assert first.ids == {"a.md"}
    upstream.commit({"sub/.ctxignore": "x.md"})
    assert Scan(source, first.known).ids == {"sub/e.md"}


# -- the copies of repositories


def test_what_a_killed_git_left_behind_is_put_right(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"a.md": "a"})
    source = connector(upstream, tmp_path)
    first = Scan(source)
    copy = next((tmp_path / "cache").glob("*.git"))
    (copy / "config.lock").touch()
    (copy / "refs" / "ctx" / "heads").mkdir(parents=True, exist_ok=True)
    (copy / "refs" / "ctx" / "heads" / "main.lock").touch()
    (copy / "shallow.lock").touch()
    (copy / "objects" / "pack" / "tmp_pack_x").write_bytes(b"half")
    upstream.commit({"b.md": "b"})
    assert Scan(source, first.known).ids == {"b.md"}
    assert not list(copy.rglob("*.lock"))
    assert not list(copy.rglob("tmp_pack*"))
    (copy / "HEAD").unlink()  # as when `git init` was killed
    assert Scan(source).ids == {"a.md", "b.md"}


CLONE = """
import sys
from ctx.connectors.base import ScanLog
from ctx.connectors.git import GitConnector
list(GitConnector("git:docs", sys.argv[1], cache_dir=sys.argv[2], timeout_s=60).scan({}, ScanLog()))
"""


@pytest.mark.slow
def test_a_kill_at_any_moment_of_a_first_copy_leaves_nothing_that_breaks_the_next(
    upstream: Upstream, tmp_path: Path
) -> None:
    upstream.commit({f"{number}.md": os.urandom(20_000).hex() for number in range(200)})
    whole = len(Scan(connector(upstream, tmp_path / "whole")).ids)
    began_s = time.monotonic()
    subprocess.run([sys.executable, "-c", CLONE, str(upstream.bare), str(tmp_path / "timed")], check=True)
    took_s = time.monotonic() - began_s
    for number in range(10):
        process = subprocess.Popen(
            [sys.executable, "-c", CLONE, str(upstream.bare), str(tmp_path / "cache")], start_new_session=True
        )
        try:
            process.wait(took_s * (number + 1) / 11)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
    assert len(Scan(connector(upstream, tmp_path)).ids) == whole


def test_two_processes_share_one_copy(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({f"{number}.md": str(number) for number in range(50)})
    command = [sys.executable, "-c", CLONE, str(upstream.bare), str(tmp_path / "cache")]
    both = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert len(list((tmp_path / "cache").glob("*.git"))) == 1


# -- tags, commits and their messages


def tagged(upstream: Upstream) -> tuple[str, str]:
    """Two commits; `v1` (annotated) and `light` are tags of the first."""
    first = upstream.commit({"a.md": "one"})
    git(upstream.work, "tag", "-a", "v1", "-m", "the first", at=1_700_000_500)
    git(upstream.work, "tag", "light")
    second = upstream.commit({"a.md": "two", "b.md": "new"})
    upstream.push("--tags")
    return first, second


@pytest.mark.parametrize("name", ["v1", "light"])
def test_a_tag_is_read_as_it_was(upstream: Upstream, tmp_path: Path, name: str) -> None:
    first, _ = tagged(upstream)
    source = connector(upstream, tmp_path, branch=name)
    scan = Scan(source)
    assert scan.data == {"a.md": b"one"}
    assert scan.log.revision == first
    second_scan = Scan(source, scan.known)
    assert (second_scan.ids, second_scan.log.unchanged) == (set(), {"a.md"})


def test_a_commit_is_read_by_its_whole_id(upstream: Upstream, tmp_path: Path) -> None:
    first, second = tagged(upstream)
    assert Scan(connector(upstream, tmp_path, branch=first)).data == {"a.md": b"one"}
    assert Scan(connector(upstream, tmp_path, branch=second.upper())).log.revision == second
    with pytest.raises(SourceError, match="has no commit"):
        Scan(connector(upstream, tmp_path, branch="0" * 40))
    with pytest.raises(SourceError, match="the full id of a commit"):
        Scan(connector(upstream, tmp_path, branch=first[:10]))


def test_a_tag_links_to_its_commit(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = tagged(upstream)
    use_instead(monkeypatch, tmp_path, "https://github.com/acme/", f"file://{tmp_path}/")
    scan = Scan(connector("https://github.com/acme/upstream.git", tmp_path, branch="v1", commits=True))
    assert scan.urls["a.md"] == f"https://github.com/acme/upstream/blob/{first}/a.md"
    assert scan.urls[f"@commits/{first}"] == f"https://github.com/acme/upstream/commit/{first}"


def test_commit_messages_are_documents_where_asked_for(upstream: Upstream, tmp_path: Path) -> None:
    first, second = tagged(upstream)
    source = connector(upstream, tmp_path, commits=True)
    scan = Scan(source)
    assert scan.ids == {"a.md", "b.md", f"@commits/{first}", f"@commits/{second}"}
    assert scan.data[f"@commits/{first}"] == "change"
    assert scan.authors[f"@commits/{first}"] == "Ann Author"
    third = upstream.commit({"a.md": "three"}, author="Bo")
    second_scan = Scan(source, scan.known)
    assert second_scan.ids == {"a.md", f"@commits/{third}"}
    assert f"@commits/{first}" in second_scan.log.unchanged
    assert not Scan(connector(upstream, tmp_path)).ids & set(scan.known) - {"a.md", "b.md"}


def test_commits_are_narrowed_by_day_and_folder(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"docs/a.md": "one"})
    later = upstream.commit({"docs/a.md": "two"})
    upstream.commit({"other.md": "x"})
    source = connector(upstream, tmp_path, root="docs", commits=True, since_ms=(1_700_000_000 + 1500) * 1000)
    assert Scan(source).ids == {"a.md", f"@commits/{later}"}


@pytest.mark.parametrize(("file", "left"), [("refs/ctx/*", b""), ("objects/pack/*.pack", b"PACK")])
def test_a_damaged_clone_is_made_again(upstream: Upstream, tmp_path: Path, file: str, left: bytes) -> None:
    upstream.commit({"a.md": "a", "b.md": "b"})
    source = connector(upstream, tmp_path)
    Scan(source)
    (clone,) = (tmp_path / "cache").glob("*.git")
    for path in clone.glob(file):
        path.unlink()
        path.write_bytes(left)
    upstream.commit({"c.md": "c"})
    assert Scan(connector(upstream, tmp_path)).data == {"a.md": b"a", "b.md": b"b", "c.md": b"c"}
