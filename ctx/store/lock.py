"""The lock of the one writer. The kernel releases it when the holder dies, however it dies."""

import fcntl
import os
import sys
import time
import zlib
from typing import NamedTuple

from ctx import files
from ctx.clock import iso_utc, now_ms
from ctx.errors import Busy, StoreError

_RETRY_S = 0.02  # flock has no timeout of its own


class Holder(NamedTuple):
    """Who holds the lock, as it wrote itself down."""

    pid: int
    command: str
    since_ms: int


def work_lock(folder: str, work: str) -> "WriterLock":
    """The lock of whoever does some work that needs not the lock of the index: `reading web:docs`,
    `embedding`.

    `folder`: the store's.
    """
    name = f"work-{zlib.crc32(work.encode('utf-8', 'surrogateescape')):08x}.lock"
    return WriterLock(os.path.join(folder, "cache", name), doing=work)


class WriterLock:
    """An exclusive lock on a file, between processes and between the objects of one process.

    A process forked (not started anew) while it is held holds it too until it ends.
    """

    def __init__(self, path: str, *, command: str | None = None, doing: str = "writing the index") -> None:
        """`command` is what others are told is `doing` that; None: the name and first argument of this
        program.
        """
        self._doing = doing
        self._path = os.path.abspath(path)
        self._command = _own_command() if command is None else command
        self._descriptor: int | None = None

    def acquire(self, timeout_s: float = 0.0) -> None:
        """Waits for the lock up to `timeout_s`.
        Raises `Busy` naming the holder, `StoreError` where no lock can be made.
        """
        if self._descriptor is not None:
            raise RuntimeError("the lock is already held by this object")
        # `holder` of another process has it for a moment.
        deadline_s = time.monotonic() + max(timeout_s, 2 * _RETRY_S)
        folder = os.path.dirname(self._path)
        while self._descriptor is None:
            try:
                files.make_folder(folder, beneath=folder, alone=True)
                descriptor = files.open_file(self._path, os.O_RDWR | os.O_CREAT, beneath=folder)
            except OSError as error:
                raise StoreError(
                    f"the lock of the index cannot be made in the folder {os.path.basename(folder)}: "
                    f"{error.strerror}; check its folder"
                ) from error
            try:
                self._take(descriptor, deadline_s)
            except BaseException as error:
                os.close(descriptor)
                if isinstance(error, OSError):
                    raise StoreError(f"the index cannot be locked: {error.strerror}") from error
                raise
            if self._stands(descriptor):
                self._descriptor = descriptor
            else:
                os.close(descriptor)  # deleted while we waited: others lock another file by now

    def _take(self, descriptor: int, deadline_s: float) -> None:
        """Waits for the lock on the open file and writes down who has it. Raises `Busy`, `OSError`."""
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                remaining_s = deadline_s - time.monotonic()
                if remaining_s <= 0:
                    raise Busy(_busy_message(self.holder(), self._doing)) from None
                time.sleep(min(_RETRY_S, remaining_s))
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n{now_ms()}\n{self._command}\n".encode(), 0)

    def _stands(self, descriptor: int) -> bool:
        status = os.fstat(descriptor)
        return files.identity(self._path) == (status.st_dev, status.st_ino)

    def release(self) -> None:
        """Lets the lock go; nothing where it is not held. The file stays: deleting it would let two processes
        hold two files.
        """
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
            descriptor = files.open_file(self._path, os.O_RDONLY, beneath=os.path.dirname(self._path))
            with open(descriptor, encoding="utf-8", errors="replace") as file:
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
    if not sys.argv or not sys.argv[0]:
        return "ctx"
    command = sys.argv[3:4] if sys.argv[1:2] == ["--config"] else sys.argv[1:2]
    return " ".join([os.path.basename(sys.argv[0]), *command])


def _busy_message(holder: Holder | None, doing: str) -> str:
    if holder is None:
        return f"another process is {doing}: try again when it has finished"
    return (
        f"`{holder.command}` (process {holder.pid}, since {iso_utc(holder.since_ms)}) is {doing}: "
        "try again when it has finished, or stop it"
    )
