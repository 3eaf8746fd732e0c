"""File locks. The kernel releases a lock when its holder dies."""

import fcntl
import os
import sys
import time
import zlib
from typing import NamedTuple

from ctx import files
from ctx.clock import iso_utc, now_ms
from ctx.errors import Busy, StoreError

_RETRY_S = 0.02  # flock has no timeout


class Holder(NamedTuple):
    """The process that holds a lock, as it recorded itself."""

    pid: int
    command: str
    since_ms: int


def work_lock(folder: str, work: str) -> "WriterLock":
    """A lock for work that does not need the index's lock: `reading web:docs`, `embedding`. `folder` is the
    store's.
    """
    name = f"work-{zlib.crc32(work.encode('utf-8', 'surrogateescape')):08x}.lock"
    return WriterLock(os.path.join(folder, "cache", name), doing=work)


class WriterLock:
    """An exclusive lock on a file, between processes and between objects of one process.

    A forked child of the holder also holds it until it exits.
    """

    def __init__(self, path: str, *, command: str | None = None, doing: str = "writing the index") -> None:
        """`command` and `doing` are for the error message of others; None: this program's name and first
        argument.
        """
        self._doing = doing
        self._path = os.path.abspath(path)
        self._command = _own_command() if command is None else command
        self._descriptor: int | None = None

    def acquire(self, timeout_s: float = 0.0) -> None:
        """Waits up to `timeout_s` for the lock. Raises `Busy` with the holder, `StoreError` if the file
        cannot be made.
        """
        if self._descriptor is not None:
            raise RuntimeError("the lock is already held by this object")
        # A call of `holder` in another process holds it for a moment.
        deadline_s = time.monotonic() + max(timeout_s, 2 * _RETRY_S)
        folder = os.path.dirname(self._path)
        while self._descriptor is None:
            try:
                files.make_folder(folder, beneath=folder, alone=True)
                descriptor = files.open_file(self._path, os.O_RDWR | os.O_CREAT, beneath=folder)
            except OSError as error:
                raise StoreError(
                    f"the lock of the index cannot be created in the folder {os.path.basename(folder)}: "
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
                os.close(descriptor)  # deleted while we waited, and others now lock another file

    def _take(self, descriptor: int, deadline_s: float) -> None:
        """Waits for the lock on the open file and records this process. Raises `Busy`, `OSError`."""
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
        """Releases the lock if it is held. The file stays: if it were deleted, two processes could hold two
        files.
        """
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            try:
                os.ftruncate(descriptor, 0)
            finally:
                os.close(descriptor)

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def holder(self) -> Holder | None:
        """The current holder, if there is one and it has recorded itself."""
        try:
            descriptor = files.open_file(self._path, os.O_RDONLY, beneath=os.path.dirname(self._path))
            with open(descriptor, encoding="utf-8", errors="replace") as file:
                if self._descriptor is None:
                    try:
                        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                        return None  # free: the record is of a dead process
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
