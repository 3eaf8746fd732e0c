"""The store's folder (`.ctx`), which holds the catalog and the index; its state files and its locks.

The folder may come from a cloned repository, so no link in it may lead to a file outside. A writer checks the
whole folder first. A search only checks that no link leads out of the folder.
"""

import fcntl
import json
import os
import sys
import time
import zlib
from collections.abc import Mapping
from typing import Any

from ctx import files
from ctx.clock import iso_utc, now_ms
from ctx.errors import Busy, StoreError

_NAME = ".ctx"
JOURNAL = "-journal"  # suffix of SQLite's journal file, in the same folder as the database
COPY = "backup.partial"  # name of a database copy while a backup is written
PARTIAL = "restored.partial"  # name of a restored database until it is complete and checked
_MAGIC = bytes.fromhex("d9d505f920a163d7")  # the last bytes of a SQLite journal that names another journal
_RETRY_S = 0.02  # time between two attempts, because flock has no timeout
# The file format of vectors.py. It is defined here because vectors.py imports numpy, which takes 70 ms.
VECTORS_FORMAT = 4
OPEN_TRIES = 5  # a writer may replace the files that a state file names before a reader opens them


class IndexDamaged(StoreError):
    """A file of the index is missing, truncated or damaged. The next writer rebuilds the index."""


def own_folder(database: str) -> None:
    """Creates the folder of the catalog at `database` if needed, and checks that it is safe to write to.
    Raises `StoreError`.

    A new folder gets mode 0700. A new folder, or any folder called `.ctx`, gets a `.gitignore` that keeps the
    store out of git.
    """
    folder = os.path.dirname(os.path.abspath(database))
    name = os.path.basename(folder) or folder
    if os.path.islink(folder):
        raise StoreError(
            f"`{name}` is a link, and ctx keeps its store in none: remove it, or set [db] path to where it "
            "leads"
        )
    absent = not os.path.exists(folder)
    try:
        files.make_folder(folder, beneath=folder)
        if absent or name == _NAME:
            path = os.path.join(folder, ".gitignore")
            if not os.path.lexists(path) and os.access(folder, os.W_OK):
                files.replace(path, b"# made by ctx: the store is this machine's own\n*\n", beneath=folder)
    except OSError as error:
        raise StoreError(
            f"the catalog cannot be made in the folder `{name}` ([db] path): {error.strerror}; make it, or "
            "name another"
        ) from error


def is_of_store(name: str, database: str) -> bool:
    """Whether `name`, a file or folder next to the catalog at `database`, belongs to the store: the catalog
    with its log and copies, the index, or the keys. The folder may have any name, not only `.ctx`.
    """
    catalog = os.path.basename(database)
    begins = (f"{catalog}-", f"{catalog}.", COPY, PARTIAL)
    return name in (catalog, "index", "keys.json") or name.startswith(begins)


def check_journal(path: str) -> None:
    """Raises `StoreError` if the journal of the database at `path` names another file. SQLite would replay
    the journal when it opens the database and delete that file, which could be any file of the user.

    Only transactions over several databases create such journals, and ctx uses no such transactions. The
    file name is at the end of the journal, before the magic number. Source:
    https://www.sqlite.org/fileformat2.html#the_rollback_journal, and `readSuperJournal` in pager.c.
    """
    folder = os.path.dirname(os.path.abspath(path))
    try:
        descriptor = files.open_file(path + JOURNAL, os.O_RDONLY, beneath=folder)
    except FileNotFoundError:
        return
    with open(descriptor, "rb") as file:
        file.seek(max(0, os.fstat(descriptor).st_size - len(_MAGIC)))
        if file.read() == _MAGIC:
            name = os.path.basename(path) + JOURNAL
            raise StoreError(
                f"`{name}` leads to another file, which ctx never writes and SQLite would delete: delete "
                f"{name}, and {os.path.basename(path)} too if you did not make it"
            )


# -- state files: small JSON files with a checksum, replaced atomically --------------------------------------


def read_state(path: str) -> dict[str, Any] | None:
    """The fields of a state file. None if the file does not exist; {} if it is damaged or from an older
    ctx.
    """
    try:
        data = files.read_file(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"the index cannot be read: {error.strerror} (check its folder)") from error
    body, _, checksum = data.rstrip(b"\n").rpartition(b"\n")
    if checksum != b"%08x" % zlib.crc32(body):
        return {}
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def write_state(path: str, fields: Mapping[str, Any]) -> None:
    """Replaces a state file atomically and syncs it to disk. Raises `OSError`."""
    body = json.dumps(fields).encode()
    files.replace(path, b"%s\n%08x\n" % (body, zlib.crc32(body)))


# -- locks: the kernel releases a lock when its holder dies --------------------------------------------------


def work_lock(folder: str, work: str) -> "WriterLock":
    """A lock for work that can run while another process writes the index, such as `reading web:docs` or
    `embedding`. `folder` is the store's folder; `work` appears in the error message of other processes.
    """
    name = f"work-{zlib.crc32(work.encode('utf-8', 'surrogateescape')):08x}.lock"
    return WriterLock(os.path.join(folder, "cache", name), doing=work)


class WriterLock:
    """An exclusive file lock, which excludes other processes and other objects in this process.

    A forked child of the holder also holds the lock until the child exits.
    """

    def __init__(self, path: str, *, doing: str = "writing the index") -> None:
        """`doing` and the program's name and first argument appear in the error message of other
        processes.
        """
        self._doing = doing
        self._path = os.path.abspath(path)
        self._descriptor: int | None = None

    def acquire(self, timeout_s: float = 0.0) -> None:
        """Waits up to `timeout_s` for the lock. Raises `Busy`, which names the holder, and `StoreError` if
        the lock file cannot be created.
        """
        if self._descriptor is not None:
            raise RuntimeError("the lock is already held by this object")
        # A child of the former holder keeps the lock for a moment, until it runs its program.
        deadline_s = time.monotonic() + max(timeout_s, 2 * _RETRY_S)
        folder = os.path.dirname(self._path)
        while self._descriptor is None:
            try:
                files.make_folder(folder, beneath=folder, alone=True)
                descriptor = files.open_file(self._path, os.O_RDWR | os.O_CREAT, beneath=folder)
                try:
                    self._take(descriptor, deadline_s)
                except BaseException:
                    os.close(descriptor)
                    raise
            except OSError as error:
                raise StoreError(
                    f"the lock of the index cannot be created in the folder {os.path.basename(folder)}: "
                    f"{error.strerror}; check its folder"
                ) from error
            status = os.fstat(descriptor)
            if files.identity(self._path) == (status.st_dev, status.st_ino):
                self._descriptor = descriptor
            else:
                os.close(descriptor)  # the file was deleted while we waited, so this lock excludes nobody

    def _take(self, descriptor: int, deadline_s: float) -> None:
        """Waits for the lock on the open file and records this process. Raises `Busy`, `OSError`."""
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                remaining_s = deadline_s - time.monotonic()
                if remaining_s <= 0:
                    raise Busy(self._busy_message(descriptor)) from None
                time.sleep(min(_RETRY_S, remaining_s))
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n{now_ms()}\n{_own_command()}\n".encode(), 0)

    def _busy_message(self, descriptor: int) -> str:
        """A message that names the process which holds the lock, as recorded in the lock file."""
        try:
            record = os.pread(descriptor, 4096, 0).decode("utf-8", "replace")
            pid, since_ms, command = record.split("\n", 2)
            holder = f"`{command.rstrip()}` (process {pid}, since {iso_utc(int(since_ms))})"
        except ValueError:  # it is about to write its record, or to release the lock
            return f"another process is {self._doing}: try again when it has finished"
        return f"{holder} is {self._doing}: try again when it has finished, or stop it"

    def release(self) -> None:
        """Releases the lock if it is held. The lock file is kept: if it were deleted, two processes could
        lock two different files of the same name.
        """
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            try:
                os.ftruncate(descriptor, 0)
            finally:
                os.close(descriptor)

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
