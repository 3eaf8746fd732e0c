"""Restores a damaged `memory.db` from its newest sound copy and from all rows that can still be read.

The rows of the damaged file are read by number, then page by page. The restored file is written completely
under another name before the damaged file is renamed. If the process is killed in between, at least one of
the two files exists, and `finish` completes the restore.
"""

import json
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from ctx import files
from ctx.clock import iso_utc, now_ms
from ctx.errors import BadRequest, StoreError
from ctx.memory.columns import Memory
from ctx.memory.copies import RESTORED, Count, Ledger, check_unused, copies, is_sound, stored_counts
from ctx.memory.reader import COLUMN_NAMES, memory_of
from ctx.memory.records import from_line, to_line
from ctx.memory.rows import SqliteRows
from ctx.memory.schema import bring_up_to_date
from ctx.memory.store import MemoryStore
from ctx.models import JSON
from ctx.store.schema import COMPANIONS, Connection, begin_copy, connect, copy_database, discard_copy

_NOT_CHANGED = ("no", "seq", "version", "id", "term_count")
_COLUMNS = ", ".join(("bank_no", *COLUMN_NAMES))
# A page that is read as a page of memories may belong to another table, so the types of its values are
# checked.
_SELECT = (
    f"SELECT {_COLUMNS} FROM memories WHERE typeof(id) = 'text' AND typeof(text) = 'text'"
    " AND typeof(bank_no) = 'integer' AND typeof(version) = 'integer' AND typeof(term_count) = 'integer'"
)
_BANK_SELECT = (
    "SELECT bank_no, bank FROM memory_banks WHERE typeof(bank) = 'text' AND typeof(created_ms) = 'integer'"
    " AND typeof(live) = 'integer' AND typeof(head) = 'text'"
)
Row = tuple[JSON, ...]
Memories = dict[tuple[str, str], tuple[Memory, list[str], list[str]]]
"""(bank, id) -> a memory with its aliases and sessions."""


@dataclass(frozen=True)
class Salvage:
    """The result of a restore. `copy` names the backup copy that was used, with its date, and `from_copy` is
    the number of memories in it. `from_rows` is the number of memories that only the damaged file had.
    `missing` is the number of stored memories that could not be read anywhere. `aside` is the new path of the
    damaged file.
    """

    copy: str | None
    from_copy: int
    from_rows: int
    missing: int
    aside: str | None


def finish(memory: str) -> None:
    """Completes a restore that was interrupted: puts the restored file in place. Raises `OSError`."""
    with files.locked(memory, beneath=os.path.dirname(memory)):
        if os.path.lexists(memory + RESTORED):
            _switch(memory)


def restore(memory: str) -> Salvage:
    """Restores the file from its newest sound copy and from its own readable rows.

    Raises `Busy` if the file is in use, and `StoreError` if the disk has too little space or the restore
    fails. A busy file and a full disk are noticed before anything is changed.
    """
    folder = os.path.dirname(memory)
    try:
        with files.locked(memory, beneath=folder):
            paths = filter(os.path.exists, (memory, f"{memory}-wal", *copies(memory)))
            needed = (4 << 20) + 3 * max((os.stat(path).st_size for path in paths), default=0)
            if files.free_bytes(folder) < needed:
                space = f"{needed / 1e6:,.0f} MB of disk space"
                hint = "nothing was changed. Free some space and try again"
                raise StoreError(f"restoring the memories needs {space}; {hint}")
            check_unused(memory)
            return _restore(memory)
    except OSError as error:
        raise StoreError(f"the memories cannot be restored in {folder}: {error.strerror}") from error


def _restore(memory: str) -> Salvage:
    expected = Ledger(memory).read() or Count()
    building = memory + ".restoring"
    discard_copy(building)
    copy = next(filter(is_sound, copies(memory)), None)
    if copy is not None:
        with closing(connect(copy, read_only=True)) as connection:
            copy_database(connection, f"{building}.unfinished", building)
    rows = SqliteRows(building)
    with MemoryStore(rows) as store:
        from_copy = rows.tally()[0]
        memories, values, keys = read_damaged(memory)
        _add_memories(store, memories)
        total = rows.tally()[0]
        if problems := store.check(deep=True):
            raise StoreError(f"the restored memories are damaged ({problems[0]}); nothing was changed")
    _add_values_and_keys(building, values, keys)
    os.unlink(Ledger(building).path)
    missing = max(0, expected.memories + expected.lost - total)
    made = f"copy of {iso_utc(int(os.stat(copy).st_mtime) * 1000)}" if copy else None
    files.sync(building)
    # From here on, `finish` can complete the restore if this process is killed.
    os.replace(building, memory + RESTORED)
    return Salvage(made, from_copy, max(0, total - from_copy), missing, _switch(memory))


def _switch(memory: str) -> str | None:
    """Renames the damaged file, and gives its name to the restored file.

    Returns the new path of the damaged file, or None if there is none.
    """
    aside = f"{memory}.damaged-{time.strftime('%Y%m%d-%H%M%S')}"
    if os.path.lexists(memory) and os.path.samefile(memory, memory + RESTORED):
        os.unlink(memory + RESTORED)
        return None
    if os.path.lexists(memory):
        Path(aside).unlink(missing_ok=True)
        os.link(memory, aside)
    for suffix in COMPANIONS:  # SQLite would apply these files of the damaged database to the restored one
        if os.path.lexists(memory + suffix):
            os.replace(memory + suffix, aside + suffix)
    os.replace(memory + RESTORED, memory)
    files.sync(os.path.dirname(memory))
    Ledger(memory).reset(*stored_counts(memory))
    return aside if os.path.lexists(aside) else None


# -- adding to the copy --------------------------------------------------------------------------------------


def _add_memories(store: MemoryStore, memories: Memories) -> None:
    """Stores each memory that the store lacks, or has in an older version."""
    new: dict[str, list[str]] = {}
    for (bank, id), (memory, aliases, sessions) in memories.items():
        with store.rows.reading(bank) as reader:
            stored = reader.row(id) if reader.exists else None
        if stored is None:
            line = to_line(memory, aliases, sessions)
            with suppress(BadRequest):  # raised if the row's content is no longer a valid memory
                from_line(json.loads(line))
                new.setdefault(bank, []).append(line)
        elif memory.version > stored.version:
            changes = {name: value for name, value in memory._asdict().items() if name not in _NOT_CHANGED}
            with store.rows.writing(bank, "restore", now_ms(), {"tool": "ctx doctor"}) as writer:
                writer.patch(stored, changes)
    for bank, lines in new.items():
        store.bank(bank).import_(lines)


def _add_values_and_keys(path: str, values: list[Row], keys: list[Row]) -> None:
    """Adds scripts' values and keys to the file. A key that is revoked in either file stays revoked."""
    if values:
        from ctx.scripts.store import FileScriptStore

        with closing(FileScriptStore(path)) as store:
            store.take_over(dict.fromkeys(values), time.monotonic() + 60)
    if keys:
        from ctx.server.keys import KeyRing, record_of

        with closing(KeyRing(path)) as ring, suppress(ValueError, TypeError, LookupError):
            ring.add(map(record_of, keys))


# -- reading the damaged file --------------------------------------------------------------------------------


def read_damaged(memory: str) -> tuple[Memories, list[Row], list[Row]]:
    """Reads all readable data of a damaged file, from a scratch copy: memories, scripts' values, keys.

    Raises `OSError`.
    """
    scratch = memory + ".salvaging"
    begin_copy(scratch)
    for suffix in ("", "-wal"):
        if os.path.isfile(memory + suffix):
            shutil.copyfile(memory + suffix, scratch + suffix)
    with closing(sqlite3.connect(scratch, isolation_level=None)) as connection:
        # Moves the content of the write-ahead log into the file.
        list(_rows(connection, "PRAGMA journal_mode = DELETE"))
    with closing(_opened(scratch)) as damaged:
        sound = next(_rows(damaged, "PRAGMA quick_check(1)"), None) == ("ok",)
        rows = list(_by_number(damaged))
        banks = list(_rows(damaged, "SELECT bank_no, bank FROM memory_banks"))
        aliases = list(_rows(damaged, "SELECT memory_no, alias FROM memory_aliases"))
        sessions = list(_rows(damaged, "SELECT memory_no, session FROM memory_sessions"))
        select = "SELECT script, key, bytes, value FROM script_value ORDER BY script {0}, key {0}"
        # Read from both ends of the table, because a damaged page may be in between.
        values = [row for order in ("", "DESC") for row in _rows(damaged, select.format(order))]
        keys = list(_rows(damaged, "SELECT * FROM api_key"))
    if not sound:
        banks += _by_page(scratch, "memory_banks", _BANK_SELECT)
        rows += _by_page(scratch, "memories", _SELECT)
    discard_copy(scratch)
    names = dict(reversed([(row[0], str(row[1])) for row in banks]))
    memories: Memories = {}
    for row in rows:
        bank = names.get(row[0], f"salvaged-{row[0]}")
        with suppress(ValueError, TypeError, LookupError):  # raised if the row itself is damaged
            entry = memory_of(row[1:])
            known = memories.get((bank, entry.id))
            # The name of a removed bank begins with a slash.
            if not bank.startswith("/") and (known is None or entry.version > known[0].version):
                memories[bank, entry.id] = (entry, _of(entry.no, aliases), _of(entry.no, sessions))
    return memories, values, keys


def _of(no: int, rows: list[Row]) -> list[str]:
    return [str(row[1]) for row in rows if row[0] == no]


def _opened(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(files.sqlite_address(path, "immutable=1"), uri=True, isolation_level=None)
    connection.text_factory = lambda content: content.decode("utf-8", "replace")
    return connection


def _rows(connection: sqlite3.Connection, sql: str, values: Row = ()) -> Iterator[Row]:
    """The rows of a query up to the first row that cannot be read."""
    with suppress(sqlite3.DatabaseError, OverflowError):
        yield from connection.execute(sql, values)


def _by_number(damaged: sqlite3.Connection) -> Iterator[Row]:
    """The rows of memories that can be read by their number."""
    last = next(_rows(damaged, "SELECT max(no) FROM memories"), None) or next(
        _rows(damaged, "SELECT max(memory_no) FROM memory_history"), (0,)
    )
    for no in range(1, int(last[0] or 0) + 1):
        yield from _rows(damaged, f"SELECT {_COLUMNS} FROM memories WHERE no = ?", (no,))


def _by_page(scratch: str, table: str, select: str) -> Iterator[Row]:
    """The rows of a table, read from every page that could contain some, including unreferenced pages.

    The schema may be damaged too, so the first page is replaced by one that defines only this table, and says
    that the table consists of one extra page at the end of the file. Each leaf page is copied to that extra
    page in turn, and then read as the whole table.
    Source: https://www.sqlite.org/fileformat2.html#b_tree_pages
    """
    with open(scratch, "r+b", buffering=0) as file:
        head = os.pread(file.fileno(), 100, 0)
        size = int.from_bytes(head[16:18], "big")
        # 4096: the page size that ctx always uses.
        size = size if size >= 512 and not size & (size - 1) else 4096
        pages = os.fstat(file.fileno()).st_size // size
        if not pages:
            return
        os.pwrite(file.fileno(), _first_page(scratch, table, size, pages + 1), 0)
        for page in range(1, pages):
            content = os.pread(file.fileno(), size, page * size)
            if content[:1] == b"\x0d":  # the page has rows of some table
                os.pwrite(file.fileno(), content, pages * size)
                with closing(_opened(scratch)) as connection:
                    yield from list(_rows(connection, select))
        os.ftruncate(file.fileno(), pages * size)


def _first_page(scratch: str, table: str, size: int, pages: int) -> bytes:
    """The first page of a database with `pages` pages, whose only table has its rows on the last page."""
    with closing(sqlite3.connect(":memory:", isolation_level=None, factory=Connection)) as empty:
        bring_up_to_date(empty)
        [sql] = empty.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    path = f"{scratch}.schema"
    discard_copy(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {size}")
        connection.execute(sql)
        connection.execute("PRAGMA writable_schema = 1")
        connection.execute("UPDATE sqlite_master SET rootpage = ? WHERE name = ?", (pages, table))
    with open(path, "rb") as file:
        page = bytearray(file.read(size))
    discard_copy(path)
    page[28:32] = pages.to_bytes(4, "big")
    return bytes(page)
