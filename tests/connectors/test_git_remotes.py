"""The git connector and its remotes: ssh, HTTP with a password, and remotes that fail."""

import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from git_kit import TOKEN, Scan, Upstream, connector, git

from ctx.connectors import gitcmd
from ctx.errors import ConfigError, SourceError

pytestmark = pytest.mark.usefixtures("plain_git")


@pytest.mark.skipif(shutil.which("ssh") is None, reason="ssh is not installed")
def test_the_users_agent_is_lent_to_no_host_that_a_configuration_names(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ssh itself makes of our options and of a `~/.ssh/config` that forwards everything to everybody."""
    upstream.commit({"a.md": "a"})
    settings = tmp_path / "config"
    settings.write_text("Host *\n  ForwardAgent yes\n  ForwardX11 yes\n  RemoteForward 9999 localhost:22\n")
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(
        f'#!/bin/sh\n{shutil.which("ssh")} -F {settings} -G "$@" > {tmp_path}/effective\n'
        'for last; do :; done\nexec sh -c "$last"\n'
    )
    ssh.chmod(0o755)
    monkeypatch.delenv("GIT_SSH_COMMAND", raising=False)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    assert Scan(connector(f"git@evil.example:{upstream.bare}", tmp_path)).data == {"a.md": b"a"}
    effective = (tmp_path / "effective").read_text().splitlines()
    assert {"forwardagent no", "forwardx11 no", "clearallforwardings yes"} <= set(effective)


# -- remotes that fail -----------------------------------------------------------------------------


def test_a_dead_remote_is_a_source_error_and_comes_back(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"a.md": "a"})
    source = connector(upstream, tmp_path)
    first = Scan(source)
    upstream.bare.rename(tmp_path / "away")
    with pytest.raises(SourceError, match="is kept") as caught:
        Scan(source, first.known)
    assert str(tmp_path) not in caught.value.message
    (tmp_path / "away").rename(upstream.bare)
    assert Scan(source, first.known).log.unchanged == {"a.md"}


def test_folders_that_hold_each_other_ten_times_over_are_given_up(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred million files, of nine small objects."""
    monkeypatch.setattr(gitcmd, "MAX_OUTPUT_BYTES", 1 << 20)
    upstream.commit({"sub/a.md": "a"})
    row = f"100644 blob {git(upstream.work, 'rev-parse', 'HEAD:sub/a.md')}"
    for _ in range(8):
        listing = "".join(f"{row}\tfolder{number}\n" for number in range(10))
        row = f"040000 tree {git(upstream.work, 'mktree', stdin=listing.encode())}"
    files = f"{git(upstream.work, 'ls-tree', 'HEAD')}\n{row}\tdeep\n"
    tree = git(upstream.work, "mktree", stdin=files.encode())
    bomb = git(upstream.work, "commit-tree", "-m", "bomb", "-p", "HEAD", tree)
    upstream.push(f"{bomb}:refs/heads/main")
    with pytest.raises(SourceError, match="stopped after 1 MiB of output"):
        Scan(connector(upstream, tmp_path))
    assert Scan(connector(upstream, tmp_path, root="sub")).data == {"a.md": b"a"}


@pytest.mark.parametrize("stamp", ["-5 +0000", "", "99999999999999999999 +0000", "soon", "1 -99999"])
def test_a_commit_whose_date_nobody_can_read_takes_no_file_along(
    upstream: Upstream, tmp_path: Path, stamp: str
) -> None:
    """It stays in the history for good, and git tells nothing in the place of its seconds."""
    upstream.commit({"a.md": "a"})
    people = f"author Eve <e@x> {stamp}\ncommitter Eve <e@x> {stamp}"
    tree = git(upstream.work, "rev-parse", "HEAD^{tree}")
    text = f"tree {tree}\n{people}\n\nOdd days"
    odd = git(
        upstream.work, "hash-object", "-t", "commit", "-w", "--stdin", "--literally", stdin=text.encode()
    )
    git(upstream.work, "reset", "-q", "--hard", odd)
    upstream.commit({"b.md": "b"})
    scan = Scan(connector(upstream, tmp_path, commits=True))
    assert scan.ids >= {"a.md", "b.md", f"@commits/{odd}"}
    assert scan.data[f"@commits/{odd}"] == "Odd days"


@pytest.mark.slow
def test_a_file_that_unpacks_without_bound_takes_no_more_memory_than_git_is_given(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gitcmd, "ALLOC_LIMIT", "20m")
    upstream.commit({"a.md": "a", "bomb.md": "0" * 50_000_000})
    with pytest.raises(SourceError, match=r"needs more memory than git may use.*GIT_ALLOC_LIMIT"):
        Scan(connector(upstream, tmp_path))
    monkeypatch.setenv("GIT_ALLOC_LIMIT", "100m")
    scan = Scan(connector(upstream, tmp_path))
    assert scan.data == {"a.md": b"a"}
    assert "50,000,000 bytes are more" in scan.log.problems[0].message


def test_a_fetch_that_would_fill_the_disk_is_stopped(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gitcmd, "LEAST_ROOM_BYTES", 1 << 60)
    monkeypatch.setattr(gitcmd, "LOOK_S", 0.0)
    upstream.commit({"a.md": "a"})
    with pytest.raises(SourceError, match=r"git \S+ was stopped because the disk of .* has less than"):
        Scan(connector(upstream, tmp_path))


@pytest.mark.parametrize("scheme", ["git", "http"])  # the second is spoken by a child of git
@pytest.mark.slow
def test_a_remote_that_never_answers_is_given_up_and_its_git_is_gone(tmp_path: Path, scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        source = connector(f"{scheme}://127.0.0.1:{silent.getsockname()[1]}/a.git", tmp_path, timeout_s=3.0)
        with pytest.raises(SourceError, match=r"did not finish in 3 s"):
            Scan(source)
        peer, _ = silent.accept()
        with peer:
            peer.settimeout(60)
            while peer.recv(4096):  # the end of the stream: whoever spoke is dead
                pass


@pytest.mark.parametrize(
    "options",
    [
        {"branch": "-x"},
        {"branch": "a..b"},
        {"branch": "refs/*"},
        {"root": "../up"},
    ],
)
def test_a_branch_or_root_that_git_must_not_be_given_is_a_config_error(
    tmp_path: Path, options: dict[str, str]
) -> None:
    with pytest.raises(ConfigError, match=r"\[connectors.git.docs\] (branch|root)"):
        connector("/srv/a.git", tmp_path, **options)


# -- servers


def everything_below(folder: Path) -> bytes:
    return b"\n".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_token_opens_a_repository_and_is_written_nowhere(
    upstream: Upstream, tmp_path: Path, web: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    upstream.commit({"a.md": "a"})
    source = connector(f"http://ann:{TOKEN}@{web}/upstream.git", tmp_path)
    scan = Scan(source)
    assert scan.data == {"a.md": b"a"}
    content = everything_below(tmp_path / "cache")
    assert content  # there is a copy, and it was searched
    assert TOKEN.encode() not in content
    assert TOKEN not in caplog.text + repr(scan.urls) + repr(scan.log.problems) + source.signature


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
        Scan(connector(f"http://ann:{TOKEN}@127.0.0.1:9/upstream.git", tmp_path))
    commands = (tmp_path / "said").read_text()
    assert "ls-remote" in commands
    assert TOKEN not in commands


@pytest.mark.parametrize("userinfo", ["", "ann:wr0ng-t0ken@", "wr0ng-t0ken@"])
def test_a_refused_password_is_told_without_it_and_asks_nobody(
    upstream: Upstream, tmp_path: Path, web: str, userinfo: str, caplog: pytest.LogCaptureFixture
) -> None:
    upstream.commit({"a.md": "a"})
    with pytest.raises(SourceError, match=r"credential helper") as caught:
        Scan(connector(f"http://{userinfo}{web}/upstream.git", tmp_path))
    message = (
        caught.value.message
        + caplog.text
        + "".join(str(argument) for argument in (caught.value.__cause__ or caught.value).args)
    )
    assert "wr0ng" not in message
    assert re.search(r"http://127\.0\.0\.1:\d+/upstream\.git", message)


@pytest.mark.parametrize("form", ["bare", "worktree"])
@pytest.mark.parametrize("shallow", [True, False])
def test_a_remote_whose_own_history_is_cut_is_read_and_followed(
    upstream: Upstream, tmp_path: Path, form: str, shallow: bool
) -> None:
    for number in range(3):
        upstream.commit({"a.md": f"version {number}", f"{number}.md": "x"})
    cut = tmp_path / "cut"
    bare = ["--bare"] if form == "bare" else []
    git(tmp_path, "clone", "-q", *bare, "--depth", "2", f"file://{upstream.bare}", str(cut))
    url = str(cut)
    scan = Scan(connector(url, tmp_path, shallow=shallow))
    assert scan.data["a.md"] == b"version 2"
    assert ["is a shallow clone" in note.message for note in scan.log.notes] == [True]
    upstream.commit({"a.md": "version 3"})
    refspec = "+refs/heads/*:refs/heads/*" if bare else "+refs/heads/*:refs/remotes/origin/*"
    git(cut, "fetch", "-q", "origin", refspec)
    if not bare:
        git(cut, "reset", "-q", "--hard", "@{u}")
    assert Scan(connector(url, tmp_path, shallow=shallow)).data["a.md"] == b"version 3"
