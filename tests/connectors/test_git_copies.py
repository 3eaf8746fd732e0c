"""The copies of git repositories: shared, mended after a kill, and never somebody else's."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from git_kit import Scan, Upstream, connector

from ctx.connectors.base import ScanLog
from ctx.errors import SourceError

pytestmark = pytest.mark.usefixtures("plain_git")


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


def test_a_copy_that_another_process_holds_is_waited_for_and_then_given_up(
    upstream: Upstream, tmp_path: Path
) -> None:
    upstream.commit({"a.md": "a"})
    source = connector(upstream, tmp_path)
    Scan(source)
    impatient = connector(upstream, tmp_path, timeout_s=0.2)
    with open(next((tmp_path / "cache").glob("*.lock"))) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(SourceError, match="another process"):
            Scan(impatient)


def test_readers_share_the_copy_and_a_writer_waits_for_them(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"a.md": "a", "b.md": "b"})
    reading = connector(upstream, tmp_path).scan({}, ScanLog())
    next(reading)
    with open(next((tmp_path / "cache").glob("*.lock"))) as lock:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(lock, fcntl.LOCK_UN)
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        reading.close()  # type: ignore[attr-defined]
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_many_small_fetches_are_put_together(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctx.connectors.repository.PACKS", 3)
    source = connector(upstream, tmp_path)
    fingerprints: dict[str, str] = {}
    for number in range(6):
        upstream.commit({f"{number}.md": str(number)})
        fingerprints = Scan(source, fingerprints).known
    assert len(fingerprints) == 6
    assert len(list((tmp_path / "cache").glob("*.git/objects/pack/*.pack"))) <= 8
    assert Scan(source).ids == set(fingerprints)


def test_the_environment_of_a_surrounding_git_does_not_mislead(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.commit({"a.md": "a"})
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path / "objects"))
    monkeypatch.setenv("GIT_NAMESPACE", "other")
    assert Scan(connector(upstream, tmp_path)).ids == {"a.md"}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a repository to someone else")
def test_a_repository_of_another_user_can_be_named(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"a.md": "a"})
    for path in [upstream.bare, *upstream.bare.rglob("*")]:
        os.chown(path, 65534, 65534)
    source = connector(upstream, tmp_path)
    assert Scan(source).ids == {"a.md"}
    for path in (tmp_path / "cache").rglob("*"):  # as on a volume of another user's
        os.chown(path, 65534, 65534)
    assert Scan(source).ids == {"a.md"}
    assert (
        len(list((tmp_path / "cache").glob("*.git/objects/pack/*.pack"))) == 2
    )  # the same copy, not made anew
