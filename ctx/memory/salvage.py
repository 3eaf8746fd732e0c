"""Restores a damaged `memory.db` from the newest sound copy, and from the rows that can still be read of it.

The restored file is complete under another name before the damaged one is set aside. If the process is
killed, one of the two files is there, and `finish` completes the restore.
"""

import json
import os
import sqlite3
import time
from contextlib import closing, suppress
from dataclasses import dataclass

from ctx import files
from ctx.clock import iso_utc, now_ms
from ctx.errors import BadRequest, Busy, StoreError
from ctx.memory.copies import RESTORED, copies, is_sound
from ctx.memory.damaged import Readable, Row, read_damaged
from ctx.memory.ledger import Count, Ledger
from ctx.memory.records import from_line, to_line
from ctx.memory.rows import SqliteRows, stored_counts
from ctx.memory.store import MemoryStore
from ctx.store.schema import COMPANIONS, connect, copy_database, discard_copy

_RESTORING = ".restoring"
_NOT_CHANGED = ("no", "seq", "version", "id", "term_count")
_BUSY = "the memories are in use: stop this project's server, then run `ctx doctor --fix` again"


@dataclass(frozen=True)
class Salvage:
    """What a restore came to."""

    copy: str | None
    """The copy it began with, and of when."""
    from_copy: int
    from_rows: int
    """Memories that only the damaged file had."""
    missing: int
    """Memories that were acknowledged and could not be read anywhere."""
    aside: str | None
    """The damaged file."""


def finish(memory: str) -> None:
    """Puts a restored file in place where a process was killed before it did. Raises `OSError`."""
    if os.path.lexists(memory + RESTORED):
        with files.locked(memory, beneath=os.path.dirname(memory)):
            if os.path.lexists(memory + RESTORED):
                _switch(memory)


def restore(memory: str) -> Salvage:
    """Restores the file from its copies and from itself. Raises `StoreError` before anything is changed where
    the disk has too little room, and `Busy` where the file is in use.
    """
    folder = os.path.dirname(memory)
    try:
        with files.locked(memory, beneath=folder):
            _check_room(memory)
            check_unused(memory)
            return _restore(memory)
    except OSError as error:
        raise StoreError(f"the memories cannot be restored in {folder}: {error.strerror}") from error


def _check_room(memory: str) -> None:
    sizes = [
        os.stat(path).st_size for path in (memory, f"{memory}-wal", *copies(memory)) if os.path.exists(path)
    ]
    needed = (4 << 20) + 3 * max(sizes, default=0)
    if files.free_bytes(os.path.dirname(memory)) < needed:
        raise StoreError(
            f"restoring the memories needs {needed / 1e6:,.0f} MB of disk space; nothing was changed. Free "
            "some space and try again"
        )


def check_unused(memory: str) -> None:
    if not os.path.exists(memory):
        return
    with closing(sqlite3.connect(memory, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("ROLLBACK")
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise Busy(_BUSY) from error
            # Too damaged to lock: no other process can use it either.


def _restore(memory: str) -> Salvage:
    expected = Ledger(memory).read() or Count()
    building = memory + _RESTORING
    discard_copy(building)
    copy = next(filter(is_sound, copies(memory)), None)
    if copy is not None:
        with closing(connect(copy, read_only=True)) as connection:
            copy_database(connection, f"{building}.unfinished", building)
    rows = SqliteRows(building)
    with MemoryStore(rows) as store:
        from_copy = rows.tally()[0]
        readable = read_damaged(memory)
        _bring(store, readable)
        from_rows = rows.tally()[0] - from_copy
        problems = store.check(deep=True)
        if problems:
            raise StoreError(f"the restored memories are damaged ({problems[0]}); nothing was changed")
        total = rows.tally()[0]
    _keep_values(building, readable.values)
    _keep_keys(building, readable.keys)
    os.unlink(Ledger(building).path)
    missing = max(0, expected.memories + expected.lost - total)
    made = f"copy of {iso_utc(int(os.stat(copy).st_mtime) * 1000)}" if copy else None
    files.sync(building)
    os.replace(building, memory + RESTORED)  # from here on `finish` completes it after a kill
    aside = _switch(memory)
    return Salvage(made, from_copy, max(0, from_rows), missing, aside)


def _switch(memory: str) -> str | None:
    """Sets the damaged file aside and puts the restored one in its place; where the damaged one is."""
    aside = f"{memory}.damaged-{time.strftime('%Y%m%d-%H%M%S')}"
    if os.path.lexists(memory) and os.path.samefile(memory, memory + RESTORED):
        os.unlink(memory + RESTORED)
        return None
    if os.path.lexists(memory):
        if os.path.lexists(aside):
            os.unlink(aside)
        os.link(memory, aside)
    for suffix in COMPANIONS:  # SQLite would take them for the restored file's
        if os.path.lexists(memory + suffix):
            os.replace(memory + suffix, aside + suffix)
    os.replace(memory + RESTORED, memory)
    files.sync(os.path.dirname(memory))
    Ledger(memory).reset(*stored_counts(memory))
    return aside if os.path.lexists(aside) else None


def _bring(store: MemoryStore, readable: Readable) -> None:
    """Stores each memory that could be read, where it is new or newer than in the store."""
    new: dict[str, list[str]] = {}
    for (bank, id), (memory, aliases, sessions) in readable.memories.items():
        with store.rows.reading(bank) as reader:
            stored = reader.row(id) if reader.exists else None
        if stored is None:
            line = to_line(memory, aliases, sessions)
            with suppress(BadRequest):  # the row's content is no longer a valid memory
                from_line(json.loads(line))
                new.setdefault(bank, []).append(line)
        elif memory.version > stored.version:
            changes = {name: value for name, value in memory._asdict().items() if name not in _NOT_CHANGED}
            with store.rows.writing(bank, "restore", now_ms(), {"tool": "ctx doctor"}) as writer:
                writer.patch(stored, changes)
    for bank, lines in new.items():
        store.bank(bank).import_(lines)


def _keep_values(path: str, values: list[Row]) -> None:
    if not values:
        return
    from ctx.scripts.store import FileScriptStore

    with closing(FileScriptStore(path)) as store:
        store.take_over(dict.fromkeys(values), time.monotonic() + 60)


def _keep_keys(path: str, rows: list[Row]) -> None:
    """Adds the keys to those of the copy; one that was revoked since stays revoked."""
    if not rows:
        return
    from ctx.server.keys import KeyRing, record_of

    with closing(KeyRing(path)) as ring, suppress(ValueError, TypeError, LookupError):
        ring.add(map(record_of, rows))
