"""The lock of the one writer. The kernel releases it when the holder dies, however it dies."""

import fcntl
import os
import sys
import time
from typing import NamedTuple

from ctx.clock import iso_utc, now_ms
from ctx.errors import Busy, StoreError
from ctx.store.schema import make_private_folder

_RETRY_S = 0.02  # flock has no timeout of its own


class Holder(NamedTuple):
    """Who holds the lock, as it wrote itself down."""

    pid: int
    command: str
    since_ms: int


class WriterLock:
    """An exclusive lock on a file, between processes and between the objects of one process.

    A process forked (not started anew) while it is held holds it too until it ends.
    """

    def __init__(self, path: str, *, command: str | None = None) -> None:
        """`command` is what others are told is writing; None: the name and first argument of this program."""
        self._path = path
        self._command = _own_command() if command is None else command
        self._descriptor: int | None = None

    def acquire(self, timeout_s: float = 0.0) -> None:
        """Waits for the lock up to `timeout_s`. Raises `Busy` naming the holder, `StoreError` where no lock can be made."""
        if self._descriptor is not None:
            raise RuntimeError("the lock is already held by this object")
        deadline_s = time.monotonic() + max(
            timeout_s, 2 * _RETRY_S
        )  # `holder` of another process has it for a moment
        try:
            make_private_folder(os.path.dirname(os.path.abspath(self._path)))
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(
                f"the lock of the index cannot be made: {error.strerror}; check its folder"
            ) from error
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    left_s = deadline_s - time.monotonic()
                    if left_s <= 0:
                        raise Busy(_busy_message(self.holder())) from None
                    time.sleep(min(_RETRY_S, left_s))
            os.fchmod(descriptor, 0o600)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n{now_ms()}\n{self._command}\n".encode(), 0)
        except OSError as error:
            os.close(descriptor)
            raise StoreError(f"the index cannot be locked: {error.strerror}") from error
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def release(self) -> None:
        """Lets the lock go; nothing where it is not held. The file stays: deleting it would let two processes hold two files."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            try:
                os.ftruncate(descriptor, 0)
            finally:
                os.close(descriptor)

    @property
    def held(self) -> bool:
        """Whether this object holds it."""
        return self._descriptor is not None

    def holder(self) -> Holder | None:
        """Who holds it now, if anybody does and has written itself down."""
        try:
            with open(self._path, encoding="utf-8", errors="replace") as file:
                if self._descriptor is None:
                    try:
                        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                        return None  # free: what stands there is of one that died
                    except BlockingIOError:
                        pass  # held
                pid, since_ms, command = file.read().split("\n", 2)
                return Holder(int(pid), command.rstrip("\n"), int(since_ms))
        except (OSError, ValueError):
            return None

    def __enter__(self) -> "WriterLock":
        self.acquire()
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()


def _own_command() -> str:
    return " ".join([os.path.basename(sys.argv[0]), *sys.argv[1:2]]) if sys.argv and sys.argv[0] else "ctx"


def _busy_message(holder: Holder | None) -> str:
    if holder is None:
        return "another process is writing the index: try again when it has finished"
    return (
        f"`{holder.command}` (process {holder.pid}, since {iso_utc(holder.since_ms)}) is writing the index: "
        "try again when it has finished, or stop it"
    )
