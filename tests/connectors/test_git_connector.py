"""The git connector against real remotes: paths, `git daemon`, and git's own HTTP server behind a password."""

import base64
import fcntl
import http.server
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ctx.connectors.base import Connector, ScanLog
from ctx.connectors.git import GitConnector
from ctx.errors import ConfigError, SourceError
from ctx.types import SourceItem

TOKEN = "s3cret-t0ken"


@pytest.fixture(autouse=True)
def _plain_git(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No configuration of the machine's user decides a test."""
    for key in [key for key in os.environ if key.startswith(("GIT_", "SSH_"))]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))


def git(
    folder: Path,
    *arguments: str,
    at: int | None = None,
    author: str = "Ann Author",
    stdin: bytes | None = None,
) -> str:
    """Runs git; `at` is the time of a commit in seconds."""
    person = {
        "GIT_AUTHOR_NAME": author,
        "GIT_COMMITTER_NAME": author,
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    dates = (
        {"GIT_AUTHOR_DATE": f"@{at} +0000", "GIT_COMMITTER_DATE": f"@{at} +0000"} if at is not None else {}
    )
    done = subprocess.run(
        ["git", "-c", "protocol.file.allow=always", *arguments],
        cwd=folder,
        env={**os.environ, **person, **dates},
        check=True,
        capture_output=True,
        input=stdin,
    )
    return done.stdout.decode().strip()


class Upstream:
    """A bare repository and a work tree that pushes to it."""

    def __init__(self, folder: Path) -> None:
        self.bare = folder / "upstream.git"
        self.work = folder / "work"
        self.clock = 1_700_000_000
        git(folder, "init", "-q", "--bare", "-b", "main", str(self.bare))
        git(folder, "init", "-q", "-b", "main", str(self.work))
        git(self.work, "remote", "add", "origin", str(self.bare))

    def commit(
        self, files: Mapping[str, str | bytes | None], author: str = "Ann Author", push: bool = True
    ) -> str:
        for name, text in files.items():
            path = self.work / name
            if text is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        git(self.work, "add", "-A")
        self.clock += 1000
        git(self.work, "commit", "-q", "--allow-empty", "-m", "change", at=self.clock, author=author)
        if push:
            self.push()
        return git(self.work, "rev-parse", "HEAD")

    def push(self, *refs: str) -> None:
        git(self.work, "push", "-q", "--force", "origin", *(refs or ("HEAD",)))


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return Upstream(tmp_path)


def connector(upstream: Upstream | str, tmp_path: Path, **options: Any) -> GitConnector:
    url = upstream if isinstance(upstream, str) else str(upstream.bare)
    return GitConnector("git:docs", url, cache_dir=str(tmp_path / "cache"), **{"timeout_s": 60.0, **options})


class Seen:
    """A scan read to its end, as an index run does."""

    def __init__(self, source: GitConnector, known: Mapping[str, str] | None = None) -> None:
        self.log = ScanLog()
        self.items: dict[str, SourceItem] = {}
        self.data: dict[str, bytes | str] = {}
        self.urls: dict[str, str | None] = {}
        self.authors: dict[str, str | None] = {}
        for item in source.scan(known or {}, self.log):
            content = item.read()
            self.items[item.source_id] = item
            self.data[item.source_id] = content.data
            self.urls[item.source_id] = content.source_url
            self.authors[item.source_id] = content.author
        self.known = {source_id: item.fingerprint for source_id, item in self.items.items()}
        self.known |= {source_id: (known or {})[source_id] for source_id in self.log.unchanged}

    @property
    def ids(self) -> set[str]:
        return set(self.items)


def test_it_is_a_connector(upstream: Upstream, tmp_path: Path) -> None:
    seam: Connector = connector(upstream, tmp_path)
    assert seam.name == "git:docs"


def test_a_repository_is_read_with_dates_and_authors(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"docs/auth.md": "# Auth", "old.md": "old", "logo.png": b"\x89PNG"}, author="Ann Author")
    head = upstream.commit({"docs/auth.md": "# Auth 2"}, author="Bo Writer")
    seen = Seen(connector(upstream, tmp_path))
    assert seen.data == {"docs/auth.md": b"# Auth 2", "old.md": b"old"}
    assert {key: item.updated_ms for key, item in seen.items.items()} == {
        "docs/auth.md": 1_700_002_000_000,
        "old.md": 1_700_001_000_000,
    }
    assert seen.authors == {"docs/auth.md": "Bo Writer", "old.md": "Ann Author"}
    assert seen.urls == {"docs/auth.md": None, "old.md": None}
    assert seen.log.revision == head
    assert seen.log.problems == []


@pytest.mark.parametrize("form", ["path", "file", "worktree"])
@pytest.mark.parametrize("shallow", [True, False])
def test_every_form_of_a_local_repository_can_be_read(
    upstream: Upstream, tmp_path: Path, form: str, shallow: bool
) -> None:
    upstream.commit({"a.md": "one"})
    upstream.commit({"b.md": "two"})
    url = {"path": str(upstream.bare), "file": f"file://{upstream.bare}", "worktree": str(upstream.work)}[
        form
    ]
    seen = Seen(connector(url, tmp_path, shallow=shallow))
    assert seen.data == {"a.md": b"one", "b.md": b"two"}
    assert seen.items["a.md"].updated_ms == 1_700_001_000_000


def test_a_partial_copy_holds_only_the_files_that_are_wanted(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"a.md": "version one", "b.md": "b", "c.md": "c", "film.mp4": os.urandom(300_000)})
    upstream.commit({"a.md": "version two"})
    seen = Seen(connector(upstream, tmp_path))
    assert seen.data == {"a.md": b"version two", "b.md": b"b", "c.md": b"c"}
    copy = next((tmp_path / "cache").glob("*.git"))
    assert len(list(copy.glob("objects/pack/*.pack"))) == 2  # the history, and all the files at once
    assert sum(path.stat().st_size for path in copy.rglob("*") if path.is_file()) < 100_000


def test_only_changed_blobs_are_read_again(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"a.md": "one", "b.md": "two", "c.md": "three"})
    source = connector(upstream, tmp_path)
    first = Seen(source)
    assert Seen(source, first.known).items == {}
    upstream.commit({"a.md": "one changed", "b.md": None, "d.md": "three"})
    second = Seen(source, first.known)
    assert second.ids == {"a.md", "d.md"}
    assert second.log.unchanged == {"c.md"}
    assert set(first.known) - second.ids - second.log.unchanged == {"b.md"}
    # The blob of d.md is the very one of c.md; its date is its own.
    assert second.items["d.md"].updated_ms == 1_700_002_000_000


def test_unchanged_files_keep_their_dates_when_other_files_change(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"old.md": "old"})
    for number in range(5):
        upstream.commit({"new.md": str(number)})
    seen = Seen(connector(upstream, tmp_path))
    assert seen.items["old.md"].updated_ms == 1_700_001_000_000
    assert seen.items["new.md"].updated_ms == 1_700_006_000_000


def test_a_file_that_a_merge_made_has_the_date_of_the_merge(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"base.md": "base"})
    git(upstream.work, "checkout", "-q", "-b", "side")
    upstream.commit({"side.md": "side"}, push=False)
    git(upstream.work, "checkout", "-q", "main")
    upstream.commit({"main.md": "main"}, push=False)
    git(upstream.work, "merge", "-q", "--no-commit", "side")
    upstream.commit({"of-the-merge.md": "x", "\nodd": "x"})
    seen = Seen(connector(upstream, tmp_path, include_globs=["**"]))
    dates = {key: item.updated_ms // 1_000_000 - 1_700_000 for key, item in seen.items.items()}
    assert dates == {"base.md": 1, "side.md": 2, "main.md": 3, "of-the-merge.md": 4, "\nodd": 4}


def test_a_root_gives_ids_below_it_and_addresses_from_the_top(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.commit({"docs/guide/auth.md": "auth", "src/a.py": "code", "docs2/b.md": "b"})
    use_instead(monkeypatch, tmp_path, "https://github.com/acme/", f"file://{tmp_path}/")
    for root in ("docs", "docs/", "./docs", "/docs"):
        seen = Seen(connector("https://github.com/acme/upstream.git", tmp_path, root=root))
        assert seen.urls == {"guide/auth.md": "https://github.com/acme/upstream/blob/main/docs/guide/auth.md"}
        assert seen.items["guide/auth.md"].updated_ms == 1_700_001_000_000


def use_instead(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, address: str, instead: str) -> None:
    """As a company's mirror is set up: git fetches from elsewhere, the address stays the public one."""
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home" / ".gitconfig").write_text(f'[url "{instead}"]\n\tinsteadOf = "{address}"\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "home" / ".gitconfig"))


def test_a_missing_root_and_a_missing_branch_are_clear_and_delete_nothing(
    upstream: Upstream, tmp_path: Path
) -> None:
    upstream.commit({"a.md": "a"})
    with pytest.raises(SourceError, match=r"`root` names no folder of main: 'nowhere'"):
        Seen(connector(upstream, tmp_path, root="nowhere"))
    with pytest.raises(SourceError, match=r"no branch 'release' \(it has: main\)"):
        Seen(connector(upstream, tmp_path, branch="release"))


def test_another_branch_is_another_signature_and_is_read(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"a.md": "main"})
    git(upstream.work, "checkout", "-q", "-b", "release/1.0")
    upstream.commit({"a.md": "release"})
    main, release = (
        connector(upstream, tmp_path, branch="main"),
        connector(upstream, tmp_path, branch="release/1.0"),
    )
    assert main.signature != release.signature
    assert Seen(main).data == {"a.md": b"main"}
    assert Seen(release).data == {"a.md": b"release"}
    assert Seen(main).data == {"a.md": b"main"}


def test_a_branch_can_become_a_folder_of_branches(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"a.md": "one"})
    upstream.push("HEAD:refs/heads/dev")
    assert Seen(connector(upstream, tmp_path, branch="dev")).ids == {"a.md"}
    git(upstream.bare, "branch", "-D", "dev")
    upstream.push("HEAD:refs/heads/dev/two")
    assert Seen(connector(upstream, tmp_path, branch="dev/two")).ids == {"a.md"}


def test_the_default_branch_is_followed_when_it_changes(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"a.md": "same"})
    source = connector(upstream, tmp_path)
    first = Seen(source)
    git(upstream.work, "checkout", "-q", "-b", "trunk")
    upstream.commit({"b.md": "b"})
    git(upstream.bare, "symbolic-ref", "HEAD", "refs/heads/trunk")
    # Its address on the web is another one, so a.md is read again too.
    assert Seen(source, first.known).ids == {"a.md", "b.md"}


def test_a_force_push_is_followed(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"a.md": "one"})
    upstream.commit({"secret.md": "oops"})
    source = connector(upstream, tmp_path)
    first = Seen(source)
    git(upstream.work, "reset", "-q", "--hard", "HEAD~1")
    head = upstream.commit({"b.md": "b"})
    second = Seen(source, first.known)
    assert (second.ids, second.log.unchanged, second.log.revision) == ({"b.md"}, {"a.md"}, head)


def test_an_empty_repository_yields_nothing_but_one_that_was_emptied_is_an_error(
    upstream: Upstream, tmp_path: Path
) -> None:
    source = connector(upstream, tmp_path)
    assert Seen(source).log.revision is None
    with pytest.raises(SourceError, match="no commits any more"):
        Seen(source, {"a.md": "x"})
    upstream.commit({"a.md": "a"})
    assert Seen(source).ids == {"a.md"}


def test_a_head_that_names_an_unborn_branch_gives_way_to_the_only_one(
    upstream: Upstream, tmp_path: Path
) -> None:
    upstream.commit({"a.md": "a"})
    git(upstream.bare, "symbolic-ref", "HEAD", "refs/heads/master")
    assert Seen(connector(upstream, tmp_path)).ids == {"a.md"}
    upstream.push("HEAD:refs/heads/other")
    with pytest.raises(SourceError, match="no default branch; name one"):
        Seen(connector(upstream, tmp_path))


def test_a_detached_head_is_read(upstream: Upstream, tmp_path: Path) -> None:
    first = upstream.commit({"a.md": "a"})
    upstream.commit({"b.md": "b"})
    git(upstream.bare, "update-ref", "--no-deref", "HEAD", first)
    seen = Seen(connector(upstream, tmp_path))
    assert (seen.ids, seen.log.revision) == ({"a.md"}, first)


def test_links_submodules_and_large_file_pointers_are_not_documents(
    upstream: Upstream, tmp_path: Path
) -> None:
    (upstream.work / "link.md").symlink_to("a.md")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
    sha = upstream.commit({"a.md": "a", "model.md": pointer}, push=False)
    git(upstream.work, "update-index", "--add", "--cacheinfo", f"160000,{sha},vendor.md")
    git(upstream.work, "commit", "-q", "-m", "vendor", at=upstream.clock)
    upstream.push()
    assert Seen(connector(upstream, tmp_path)).data == {"a.md": b"a", "model.md": b""}


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
    seen = Seen(source)
    assert set(seen.data.values()) == set(names)
    assert {"%FF.md", "%25FF.md", "two\nlines.md", "ü/ß.md"} < seen.ids
    json.dumps(sorted(seen.ids)).encode()
    assert {item.updated_ms for item in seen.items.values()} == {1_700_001_000_000}
    assert seen.log.problems == []  # the history named every one of them
    assert Seen(source, seen.known).items == {}


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
    first = Seen(source)
    assert first.ids == {"a.md"}
    upstream.commit({"sub/.ctxignore": "x.md"})
    assert Seen(source, first.known).ids == {"sub/e.md"}


def test_a_file_over_the_cap_is_a_line_of_the_report(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"big.md": "x" * 101, "small.md": "x" * 100})
    seen = Seen(connector(upstream, tmp_path, max_file_bytes=100))
    assert seen.ids == {"small.md"}
    assert [problem.source_id for problem in seen.log.problems] == ["big.md"]


def test_an_item_can_be_read_after_the_scan_is_over(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"a.md": "a", "b.md": "b"})
    found = list(connector(upstream, tmp_path).scan({}, ScanLog()))
    assert [item.read().data for item in found] == [b"a", b"b"]


def test_a_large_file_comes_whole_through_the_pipe(upstream: Upstream, tmp_path: Path) -> None:
    text = "".join(f"{number}\n" for number in range(300_000)).encode()
    upstream.commit({"a.md": text, "empty.md": "", "z.md": "z"})
    assert Seen(connector(upstream, tmp_path)).data == {"a.md": text, "empty.md": b"", "z.md": b"z"}


def test_a_history_with_many_commits_is_read_no_further_than_needed(
    upstream: Upstream, tmp_path: Path
) -> None:
    stream = b"".join(
        b"commit refs/heads/main\ncommitter A <a@b> %d +0000\ndata 1\nx\nM 100644 inline f%d.md\ndata %d\n%d\n"
        % (1_600_000_000 + number, number % 500, len(str(number)), number)
        for number in range(5000)
    )
    git(upstream.bare, "fast-import", "--quiet", stdin=stream)
    seen = Seen(connector(upstream, tmp_path))
    assert len(seen.ids) == 500
    assert {item.updated_ms for item in seen.items.values()} == {
        (1_600_000_000 + number) * 1000 for number in range(4500, 5000)
    }


@pytest.mark.parametrize("form", ["ssh://git@gitlab.local:2222{path}", "git@gitlab.local:{path}"])
def test_ssh_is_gone_through_the_users_own_command(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """The command stands for ssh: it notes its arguments and runs the last of them here."""
    upstream.commit({"a.md": "a"})
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/said\nfor last; do :; done\nexec sh -c "$last"\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("GIT_SSH_COMMAND", str(ssh))
    monkeypatch.setenv("GIT_SSH_VARIANT", "ssh")
    seen = Seen(connector(form.format(path=upstream.bare), tmp_path))
    assert seen.data == {"a.md": b"a"}
    assert (
        seen.urls["a.md"] == f"https://gitlab.local{str(upstream.bare).removesuffix('.git')}/-/blob/main/a.md"
    )
    assert "git@gitlab.local" in (tmp_path / "said").read_text()


# -- remotes that fail ------------------------------------------------------------------------------------------------


def test_a_dead_remote_is_a_source_error_and_comes_back(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"a.md": "a"})
    source = connector(upstream, tmp_path)
    first = Seen(source)
    upstream.bare.rename(tmp_path / "away")
    with pytest.raises(SourceError, match="is kept") as caught:
        Seen(source, first.known)
    assert str(tmp_path) not in caught.value.message
    (tmp_path / "away").rename(upstream.bare)
    assert Seen(source, first.known).log.unchanged == {"a.md"}


@pytest.mark.parametrize("scheme", ["git", "http"])  # the second is spoken by a child of git
def test_a_remote_that_never_answers_is_given_up_and_its_git_is_gone(tmp_path: Path, scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        source = connector(f"{scheme}://127.0.0.1:{silent.getsockname()[1]}/a.git", tmp_path, timeout_s=1.0)
        with pytest.raises(SourceError, match=r"did not finish in 1 s"):
            Seen(source)
        peer, _ = silent.accept()
        with peer:
            peer.settimeout(10)
            while peer.recv(4096):  # the end of the stream: whoever spoke is dead
                pass


def test_a_missing_git_is_a_source_error(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceError, match="git is not installed"):
        Seen(connector(upstream, tmp_path))


@pytest.mark.parametrize(
    "options",
    [
        {"branch": "-x"},
        {"branch": ""},
        {"branch": "a..b"},
        {"branch": "a b"},
        {"branch": "a:b"},
        {"branch": "refs/*"},
        {"branch": "x.lock"},
        {"root": "../up"},
        {"root": "a/../../b"},
    ],
)
def test_a_branch_or_root_that_git_must_not_be_given_is_a_config_error(
    tmp_path: Path, options: dict[str, str]
) -> None:
    with pytest.raises(ConfigError, match=r"\[connectors.git.docs\] (branch|root)"):
        connector("/srv/a.git", tmp_path, **options)


def test_a_command_in_place_of_an_address_is_a_config_error(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    for url in (f"ext::sh -c touch% {marker}", f"--upload-pack=touch {marker}"):
        with pytest.raises(ConfigError, match="url"):
            connector(url, tmp_path)
    assert not marker.exists()


def test_a_helper_that_the_users_configuration_names_is_not_run(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "ran"
    use_instead(monkeypatch, tmp_path, "https://example.org/", f"ext::touch {marker} ")
    with open(tmp_path / "home" / ".gitconfig", "a") as file:
        file.write('[protocol "ext"]\n\tallow = always\n')
    with pytest.raises(SourceError, match="transport 'ext' not allowed"):
        Seen(connector("https://example.org/a", tmp_path))
    assert not marker.exists()


# -- the copy ---------------------------------------------------------------------------------------------------------


def test_what_a_killed_git_left_behind_is_put_right(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"a.md": "a"})
    source = connector(upstream, tmp_path)
    first = Seen(source)
    copy = next((tmp_path / "cache").glob("*.git"))
    (copy / "config.lock").touch()
    (copy / "refs" / "ctx" / "heads").mkdir(parents=True, exist_ok=True)
    (copy / "refs" / "ctx" / "heads" / "main.lock").touch()
    (copy / "shallow.lock").touch()
    (copy / "objects" / "pack" / "tmp_pack_x").write_bytes(b"half")
    upstream.commit({"b.md": "b"})
    assert Seen(source, first.known).ids == {"b.md"}
    assert not list(copy.rglob("*.lock"))
    assert not list(copy.rglob("tmp_pack*"))
    (copy / "HEAD").unlink()  # as when `git init` was killed
    assert Seen(source).ids == {"a.md", "b.md"}


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
    whole = len(Seen(connector(upstream, tmp_path / "whole")).ids)
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
    assert len(Seen(connector(upstream, tmp_path)).ids) == whole


def test_two_processes_share_one_copy(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({f"{number}.md": str(number) for number in range(50)})
    command = [sys.executable, "-c", CLONE, str(upstream.bare), str(tmp_path / "cache")]
    both = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert len(list((tmp_path / "cache").glob("*.git"))) == 1


def test_a_copy_that_another_process_holds_is_waited_for_and_then_given_up(
    upstream: Upstream, tmp_path: Path
) -> None:
    upstream.commit({"a.md": "a"})
    source = connector(upstream, tmp_path)
    Seen(source)
    impatient = connector(upstream, tmp_path, timeout_s=0.2)
    with open(next((tmp_path / "cache").glob("*.lock"))) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(SourceError, match="another process"):
            Seen(impatient)


def test_readers_share_the_copy_and_a_writer_waits_for_them(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"a.md": "a", "b.md": "b"})
    reading = connector(upstream, tmp_path).scan({}, ScanLog())
    next(reading)
    with open(next((tmp_path / "cache").glob("*.lock"))) as other:
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_UN)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        reading.close()  # type: ignore[attr-defined]
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_many_small_fetches_are_put_together(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctx.connectors.git.PACKS", 3)
    source = connector(upstream, tmp_path)
    known: dict[str, str] = {}
    for number in range(6):
        upstream.commit({f"{number}.md": str(number)})
        known = Seen(source, known).known
    assert len(known) == 6
    assert len(list((tmp_path / "cache").glob("*.git/objects/pack/*.pack"))) <= 8
    assert Seen(source).ids == set(known)


def test_the_environment_of_a_surrounding_git_does_not_mislead(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.commit({"a.md": "a"})
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path / "objects"))
    monkeypatch.setenv("GIT_NAMESPACE", "other")
    assert Seen(connector(upstream, tmp_path)).ids == {"a.md"}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a repository to someone else")
def test_a_repository_of_another_user_can_be_named(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"a.md": "a"})
    for path in [upstream.bare, *upstream.bare.rglob("*")]:
        os.chown(path, 65534, 65534)
    source = connector(upstream, tmp_path)
    assert Seen(source).ids == {"a.md"}
    for path in (tmp_path / "cache").rglob("*"):  # as on a volume of another user's
        os.chown(path, 65534, 65534)
    assert Seen(source).ids == {"a.md"}
    assert (
        len(list((tmp_path / "cache").glob("*.git/objects/pack/*.pack"))) == 2
    )  # the same copy, not made anew


def test_progress_is_told(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({f"{number}.md": str(number) for number in range(50)})
    steps: list[tuple[str, int, int | None]] = []
    log = ScanLog(lambda step, count, total: steps.append((step, count, total)))
    list(connector(upstream, tmp_path).scan({}, log))
    assert any(count == total and "objects" in step for step, count, total in steps)


# -- servers ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[str]:
    """`git daemon` over the test's folder; its address."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [
        "git",
        "daemon",
        "--reuseaddr",
        "--listen=127.0.0.1",
        f"--port={port}",
        f"--base-path={tmp_path}",
        "--export-all",
    ]
    process = subprocess.Popen([*command, "--verbose"], stderr=subprocess.PIPE, start_new_session=True)
    assert process.stderr is not None
    try:
        said = b""
        while b"Ready to rumble" not in said:
            assert select.select([process.stderr], [], [], 20)[0], "git daemon did not start"
            data = os.read(process.stderr.fileno(), 4096)
            if not data:
                pytest.skip("git daemon is not installed here")
            said += data
        yield f"git://127.0.0.1:{port}"
    finally:
        try:
            os.killpg(process.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass  # it never started
        process.wait()
        process.stderr.close()


def test_a_server_without_partial_copies_is_said_to_tell_dates_badly(
    upstream: Upstream, tmp_path: Path, daemon: str
) -> None:
    upstream.commit({"old.md": "old"})
    upstream.commit({"a.md": "a"})
    source = connector(f"{daemon}/upstream.git", tmp_path)
    first = Seen(source)
    assert first.data == {"old.md": b"old", "a.md": b"a"}
    assert ["`shallow = false`" in problem.message for problem in first.log.problems] == [True]
    upstream.commit({"a.md": "b"})
    second = Seen(source, first.known)
    assert (second.ids, second.log.unchanged) == ({"a.md"}, {"old.md"})
    assert second.items["a.md"].updated_ms == 1_700_003_000_000
    whole = Seen(connector(f"{daemon}/upstream.git", tmp_path, shallow=False))
    assert whole.items["old.md"].updated_ms == 1_700_001_000_000
    assert whole.log.problems == []


def test_a_server_with_partial_copies_gives_true_dates(
    upstream: Upstream, tmp_path: Path, daemon: str
) -> None:
    git(upstream.bare, "config", "uploadpack.allowFilter", "true")
    upstream.commit({"old.md": "old", "film.mp4": os.urandom(200_000)})
    upstream.commit({"a.md": "a"})
    seen = Seen(connector(f"{daemon}/upstream.git", tmp_path))
    assert seen.items["old.md"].updated_ms == 1_700_001_000_000
    assert seen.log.problems == []
    copy = next((tmp_path / "cache").glob("*.git"))
    assert sum(path.stat().st_size for path in copy.rglob("*") if path.is_file()) < 100_000


class _Backend(http.server.BaseHTTPRequestHandler):
    """git's own CGI program, behind a password."""

    folder: Path
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        expected = "Basic " + base64.b64encode(f"ann:{TOKEN}".encode()).decode()
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Authorization") != expected:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        env = {
            **os.environ,
            "GIT_PROJECT_ROOT": str(self.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type") or "",
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding") or "",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol") or "",
            "CONTENT_LENGTH": str(len(body)),
        }
        done = subprocess.run(["git", "http-backend"], input=body, env=env, check=False, capture_output=True)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = [line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line]
        status = next((int(value.split()[0]) for key, value in headers if key == "Status"), 200)
        self.send_response(status)
        for key, value in headers:
            if key != "Status":
                self.send_header(key, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    """The host and port of an HTTP server over the test's folder."""
    handler = type("Backend", (_Backend,), {"folder": tmp_path})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def everything_below(folder: Path) -> bytes:
    return b"\n".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_token_opens_a_repository_and_is_written_nowhere(
    upstream: Upstream, tmp_path: Path, web: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    upstream.commit({"a.md": "a"})
    source = connector(f"http://ann:{TOKEN}@{web}/upstream.git", tmp_path)
    seen = Seen(source)
    assert seen.data == {"a.md": b"a"}
    written = everything_below(tmp_path / "cache")
    assert b"upstream" in written or written  # there is a copy, and it was searched
    assert TOKEN.encode() not in written
    assert TOKEN not in caplog.text + repr(seen.urls) + repr(seen.log.problems) + source.signature


def test_the_token_is_not_on_any_command_line(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `git` that writes down its arguments, and then does as it is told."""
    upstream.commit({"a.md": "a"})
    real = subprocess.run(["which", "git"], check=True, capture_output=True, text=True).stdout.strip()
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "git").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/said\nexec {real} "$@"\n')
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    with pytest.raises(SourceError):
        Seen(connector(f"http://ann:{TOKEN}@127.0.0.1:9/upstream.git", tmp_path))
    said = (tmp_path / "said").read_text()
    assert "ls-remote" in said
    assert TOKEN not in said


@pytest.mark.parametrize("userinfo", ["", "ann:wr0ng-t0ken@", "wr0ng-t0ken@"])
def test_a_refused_password_is_told_without_it_and_asks_nobody(
    upstream: Upstream, tmp_path: Path, web: str, userinfo: str, caplog: pytest.LogCaptureFixture
) -> None:
    upstream.commit({"a.md": "a"})
    with pytest.raises(SourceError, match=r"credential helper") as caught:
        Seen(connector(f"http://{userinfo}{web}/upstream.git", tmp_path))
    told = (
        caught.value.message
        + caplog.text
        + "".join(str(argument) for argument in (caught.value.__cause__ or caught.value).args)
    )
    assert "wr0ng" not in told
    assert re.search(r"http://127\.0\.0\.1:\d+/upstream\.git", told)


def test_a_question_is_answered_by_nobody(
    upstream: Upstream, tmp_path: Path, web: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window that asks for a password would keep a server waiting for ever."""
    upstream.commit({"a.md": "a"})
    window = tmp_path / "window"
    window.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\n")
    window.chmod(0o755)
    for variable in ("GIT_ASKPASS", "SSH_ASKPASS"):
        monkeypatch.setenv(variable, str(window))
    with pytest.raises(SourceError, match="credential helper"):
        Seen(connector(f"http://{web}/upstream.git", tmp_path))
    assert not (tmp_path / "asked").exists()


def test_a_git_that_repeats_the_address_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some versions of git, and helpers of it, print the whole address when they fail."""
    folder = tmp_path / "bin"
    folder.mkdir()
    real = subprocess.run(["which", "git"], check=True, capture_output=True, text=True).stdout.strip()
    address = f"https://ann:{TOKEN}@git.invalid/a.git"
    say = f"echo \"fatal: unable to access '{address}': {TOKEN} was refused\" >&2; exit 128"
    (folder / "git").write_text(f'#!/bin/sh\ncase "$*" in *ls-remote*) {say};; esac\nexec {real} "$@"\n')
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    with pytest.raises(SourceError, match=r"unable to access 'https://git\.invalid/a\.git'") as caught:
        Seen(connector(address, tmp_path))
    assert TOKEN not in caught.value.message + repr(caught.value.__cause__)


def test_another_token_uses_the_same_copy(upstream: Upstream, tmp_path: Path, web: str) -> None:
    upstream.commit({"a.md": "a"})
    seen = Seen(connector(f"http://ann:{TOKEN}@{web}/upstream.git", tmp_path))
    with pytest.raises(SourceError):
        Seen(connector(f"http://bo:other@{web}/upstream.git", tmp_path), seen.known)
    assert len(list((tmp_path / "cache").glob("*.git"))) == 1
