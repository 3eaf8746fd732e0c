"""The lock that allows one writer."""

import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ctx.errors import Busy
from ctx.store.folder import WriterLock

HOLD = (
    "import sys; from ctx.store.folder import WriterLock\n"
    "lock = WriterLock(sys.argv[1]); sys.argv = ['ctx', 'serve']; lock.acquire(); print('held', flush=True); "
    "sys.stdin.read()"
)


def holder(path: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


def test_a_second_writer_is_told_who_holds_the_lock(tmp_path: Path) -> None:
    path = tmp_path / ".ctx" / "lock"
    process = holder(path)
    try:
        with pytest.raises(Busy, match=rf"`ctx serve` \(process {process.pid}, since 20\d\d-.*Z\)"):
            WriterLock(str(path)).acquire(0.0)
    finally:
        end(process)


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["ctx"])
    path = tmp_path / "lock"
    process = holder(path)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    lock = WriterLock(str(path))
    lock.acquire(0.0)
    with pytest.raises(Busy, match=rf"`ctx` \(process {os.getpid()},"):
        WriterLock(str(path)).acquire(0.0)
    lock.release()


def test_a_waiting_writer_gets_the_lock_when_it_is_released(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    first, second = WriterLock(path), WriterLock(path)
    first.acquire()
    event = threading.Event()

    def wait() -> None:
        second.acquire(30.0)
        event.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert not event.is_set()
    first.release()
    assert event.wait(60)
    waiting.join()
    with pytest.raises(Busy):
        first.acquire()
    second.release()


def test_a_program_started_by_the_holder_does_not_inherit_the_lock(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    lock = WriterLock(path)
    lock.acquire()
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, close_fds=False
    )
    try:
        lock.release()
        WriterLock(path).acquire(0.0)
    finally:
        child.kill()
        child.communicate()


def test_the_file_is_private_and_its_folder_is_made(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with WriterLock(str(tmp_path / ".ctx" / "lock")):
            assert stat.S_IMODE((tmp_path / ".ctx" / "lock").stat().st_mode) == 0o600
            assert stat.S_IMODE((tmp_path / ".ctx").stat().st_mode) == 0o700
    finally:
        os.umask(before)
