"""Protects `memory.db` against loss: keeps backup copies of it, and a count of its memories.

`memory.db.1` is the newest of three copies, which are about a day apart. A copy is made with SQLite's online
backup, during which other processes may read and write. It replaces an older copy only after all pages of the
new one were checked.

The file `memory.db.count` has the number of memories that were stored. If the database has fewer, some were
lost. The number is raised after a write is committed, and lowered on disk before a removal is committed. So
it is never higher than the number of stored memories, even if a process is killed in between.
"""

import fcntl
import glob
import json
import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from threading import Event

from ctx import files
from ctx.errors import Busy, StoreError
from ctx.store.schema import connect, copy_database, discard_copy, translating

logger = logging.getLogger(__name__)

RESTORED = ".restored"  # the suffix of a restored file until it replaces the damaged one
KEPT = 3
DAY_S = 86_400
_COUNT_BYTES = 512  # fits in a disk sector, so that a write is never incomplete


def copies(memory: str) -> list[str]:
    """The existing copies, newest first."""
    return [path for path in _paths(memory) if os.path.isfile(path)]


def _paths(memory: str) -> list[str]:
    return [f"{memory}.{number}" for number in range(1, KEPT + 1)]


def is_sound(path: str) -> bool:
    """Whether a SQLite file has tables and passes the quick check."""
    with suppress(StoreError), closing(connect(path, read_only=True)) as connection, translating():
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        return bool(tables) and connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
    return False


def check_unused(memory: str) -> None:
    """Raises `Busy` if another process has the file open."""
    if not os.path.exists(memory):
        return
    with closing(sqlite3.connect(memory, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("ROLLBACK")
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                hint = "stop this project's server, then run `ctx doctor --fix` again"
                raise Busy(f"the memories are in use: {hint}") from error
            # The file is too damaged to be locked, so no other process can use it either.


def copy_if_changed(memory: str, *, daily: bool = False) -> bool:
    """Makes a copy if the memories changed since the newest copy. Returns whether it made one.

    `daily`: only if the newest copy is at least a day old. A file that is damaged or has lost memories is not
    copied. Errors are logged.
    """
    try:
        changed_s = max(_mtime_s(memory), _mtime_s(f"{memory}-wal"))
        newest_s = max(map(_mtime_s, copies(memory)), default=0.0)
        if changed_s <= newest_s or (daily and time.time() - newest_s < DAY_S):
            return False
        count = Ledger(memory).read()
        if not os.path.isfile(memory) or (count is not None and (count.lost or count.lost_changes)):
            return False
        if files.free_bytes(os.path.dirname(memory)) < 2 * os.stat(memory).st_size:
            logger.warning("memory=copy outcome=disk_full path=%s", memory)
            return False
        with files.locked(f"{memory}.copy", beneath=os.path.dirname(memory)):
            return _copy(memory)
    except (OSError, StoreError) as error:
        logger.warning("memory=copy outcome=failed path=%s reason=%s", memory, error)
        return False


def _copy(memory: str) -> bool:
    made = f"{memory}.copied"
    with closing(connect(memory, read_only=True)) as connection:
        copy_database(connection, f"{memory}.copying", made)
    if not is_sound(made):
        discard_copy(made)
        logger.error("memory=copy outcome=damaged path=%s mend='ctx doctor'", memory)
        return False
    first, second, *_ = paths = _paths(memory)
    # The newest copy is replaced if it is less than a day newer than the second; else all copies move down.
    if not (os.path.exists(second) and _mtime_s(first) - _mtime_s(second) < DAY_S):
        for newer, older in reversed([*pairwise(paths)]):
            if os.path.exists(newer):
                os.replace(newer, older)
    os.replace(made, first)
    files.sync(os.path.dirname(memory))
    return True


def _mtime_s(path: str) -> float:
    return os.stat(path).st_mtime if os.path.exists(path) else 0.0


def renew(memory: str) -> None:
    """Deletes all copies and all damaged files that a restore kept: they may contain memories that were just
    erased. If it deleted any, makes a new copy.
    """
    old = [*copies(memory), *glob.glob(f"{glob.escape(memory)}.damaged-*")]
    for path in old:
        discard_copy(path)
    if old:
        copy_if_changed(memory)


def keep_copies(memory: str, stop: Event) -> None:
    """Makes a copy every day until `stop` is set, then a last one. Blocks."""
    while not stop.wait(3600):
        copy_if_changed(memory, daily=True)
    copy_if_changed(memory)


# -- the count of memories -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Count:
    """The number of stored memories, the number of the last change (`changes`), and how many memories and
    changes were found missing since the store was last restored or its loss was accepted.
    """

    memories: int = 0
    changes: int = 0
    lost: int = 0
    lost_changes: int = 0

    def missing(self, memories: int, changes: int) -> tuple[int, int]:
        """(lost memories, lost changes), if the database has these numbers of memories and changes."""
        lost, lost_changes = max(0, self.memories - memories), max(0, self.changes - changes)
        return self.lost + lost, self.lost_changes + lost_changes


def counts_of(connection: sqlite3.Connection | None) -> tuple[int, int]:
    """(number of memories, number of the last change); zeros if there are no memories yet."""
    tables = "SELECT count(*) FROM sqlite_master WHERE name = 'memory_banks'"
    if connection is None or not connection.execute(tables).fetchone()[0]:
        return 0, 0
    sums = ("SELECT sum(live) FROM memory_banks", "SELECT max(no) FROM memory_journal")
    memories, changes = (connection.execute(sql).fetchone()[0] or 0 for sql in sums)
    return int(memories), int(changes)


@contextmanager
def opened(path: str) -> Iterator[sqlite3.Connection | None]:
    """A connection that reads a file; None if the file does not exist or is empty. Raises `StoreError`."""
    if not os.path.isfile(path) or not os.stat(path).st_size:
        yield None
        return
    with closing(connect(path, read_only=True)) as connection, translating():
        yield connection


def stored_counts(path: str) -> tuple[int, int]:
    """`counts_of` for a file. Raises `StoreError`."""
    with opened(path) as connection:
        return counts_of(connection)


class Ledger:
    """The file with the `Count` of one `memory.db`. Safe across threads and processes."""

    def __init__(self, memory: str) -> None:
        self.path = memory + ".count"
        self._folder = os.path.dirname(os.path.abspath(memory))

    @contextmanager
    def held(self) -> "Iterator[Page]":
        """Locks the count file, and yields its content. Hold the lock from before a commit until the count is
        written. Raises `OSError`.
        """
        descriptor = files.open_file(self.path, os.O_RDWR | os.O_CREAT, beneath=self._folder)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield Page(descriptor)
        finally:
            os.close(descriptor)

    def read(self) -> Count | None:
        """The stored count; None if there is none or it cannot be read."""
        with suppress(OSError):
            return _parsed(files.read_file(self.path, beneath=self._folder))
        return None

    def reset(self, memories: int, changes: int) -> None:
        """Stores the current counts and clears the record of lost memories, for example after a restore.

        Raises `OSError`.
        """
        with self.held() as page:
            page.write(Count(memories, changes), durable=True)


class Page:
    """The content of the count file (`Ledger`) while it is open and locked."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.count = _parsed(os.pread(descriptor, _COUNT_BYTES, 0)) or Count()

    def compare(self, memories: int, changes: int) -> Count:
        """Compares the count with the numbers in the database, and records missing memories and changes."""
        lost, lost_changes = self.count.missing(memories, changes)
        is_loss = (lost, lost_changes) != (self.count.lost, self.count.lost_changes)
        self.write(Count(memories, changes, lost, lost_changes), durable=is_loss)
        return self.count

    def lower(self, memories: int, changes: int) -> None:
        """Lowers the count to the numbers that the coming commit will leave, if they are lower."""
        count = self.count
        counts = {"memories": min(memories, count.memories), "changes": min(changes, count.changes)}
        self.write(replace(count, **counts), durable=True)

    def raise_to(self, memories: int, changes: int) -> None:
        """Sets the count to the numbers that a commit has left. Call it after the commit."""
        self.write(replace(self.count, memories=memories, changes=changes))

    def write(self, count: Count, *, durable: bool = False) -> None:
        if count == self.count:
            return
        content = json.dumps(asdict(count)).encode()
        os.pwrite(self._descriptor, content.ljust(_COUNT_BYTES), 0)
        if durable:
            os.fsync(self._descriptor)
        self.count = count


def _parsed(content: bytes) -> Count | None:
    with suppress(ValueError, LookupError, TypeError):
        values = json.loads(content)
        return Count(**{name: int(values[name]) for name in Count.__dataclass_fields__})
    return None
