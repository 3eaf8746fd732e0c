"""What can still be read of a damaged `memory.db`: first by the numbers of the rows, then page by page."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field

from ctx import files
from ctx.memory.columns import Memory
from ctx.memory.reader import COLUMN_NAMES, memory_of
from ctx.memory.schema import bring_up_to_date
from ctx.models import JSON
from ctx.store.schema import begin_copy, discard_copy, passing_connection

_SCRATCH = ".salvaging"
_TABLE_LEAF = b"\x0d"  # how a page with rows of a table begins
_COLUMNS = ", ".join(("bank_no", *COLUMN_NAMES))
# A page may be another table's: its rows have other types, and fewer columns.
_SELECT = (
    f"SELECT {_COLUMNS} FROM memories WHERE typeof(id) = 'text' AND typeof(text) = 'text'"
    " AND typeof(bank_no) = 'integer' AND typeof(version) = 'integer' AND typeof(term_count) = 'integer'"
)
_BANK_COLUMNS = "bank_no, bank"
_BANK_SELECT = (
    f"SELECT {_BANK_COLUMNS} FROM memory_banks WHERE typeof(bank) = 'text' AND typeof(created_ms) = 'integer'"
    " AND typeof(live) = 'integer' AND typeof(head) = 'text'"
)
Row = tuple[JSON, ...]


@dataclass
class Readable:
    """What could be read: memories by bank and id, each with its other names and its sessions, the rows of
    what scripts keep, and those of the keys.
    """

    memories: dict[tuple[str, str], tuple[Memory, list[str], list[str]]] = field(default_factory=dict)
    values: list[Row] = field(default_factory=list)
    keys: list[Row] = field(default_factory=list)


def read_damaged(memory: str) -> Readable:
    """Reads all that can be read of the file; the file itself is not changed. Raises `OSError`."""
    scratch = _scratch(memory)
    readable = Readable()
    with closing(_opened(scratch)) as damaged:
        sound = next(_rows(damaged, "PRAGMA quick_check(1)"), None) == ("ok",)
        rows = list(_by_number(damaged))
        banks = list(_rows(damaged, f"SELECT {_BANK_COLUMNS} FROM memory_banks"))
        aliases = list(_rows(damaged, "SELECT memory_no, alias FROM memory_aliases"))
        sessions = list(_rows(damaged, "SELECT memory_no, session FROM memory_sessions"))
        readable.values = list(_script_values(damaged))
        readable.keys = list(_rows(damaged, "SELECT * FROM api_key"))
    if not sound:
        banks += _by_page(scratch, "memory_banks", _BANK_SELECT)
        rows += _by_page(scratch, "memories", _SELECT)
    discard_copy(scratch)
    names = dict(reversed([(row[0], str(row[1])) for row in banks]))
    for row in rows:
        bank = names.get(row[0], f"salvaged-{row[0]}")
        with suppress(ValueError, TypeError, LookupError):  # the row is damaged in itself
            found = memory_of(row[1:])
            known = readable.memories.get((bank, found.id))
            # The name of a bank that was removed begins with a slash.
            if not bank.startswith("/") and (known is None or found.version > known[0].version):
                readable.memories[bank, found.id] = (found, _of(found.no, aliases), _of(found.no, sessions))
    return readable


def _of(no: int, rows: list[Row]) -> list[str]:
    return [str(row[1]) for row in rows if row[0] == no]


def _scratch(memory: str) -> str:
    """A writable copy of the damaged file and its log; empty if there is no file."""
    path = memory + _SCRATCH
    begin_copy(path)
    for suffix in ("", "-wal"):
        if os.path.isfile(memory + suffix):
            shutil.copyfile(memory + suffix, path + suffix)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        list(_rows(connection, "PRAGMA journal_mode = DELETE"))  # the log goes into the file
    return path


def _opened(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(files.sqlite_address(path, "immutable=1"), uri=True, isolation_level=None)
    connection.text_factory = lambda content: content.decode("utf-8", "replace")
    return connection


def _rows(
    connection: sqlite3.Connection, sql: str, values: tuple[JSON, ...] = ()
) -> Iterator[tuple[JSON, ...]]:
    """The rows up to the first that cannot be read."""
    with suppress(sqlite3.DatabaseError, OverflowError):
        yield from connection.execute(sql, values)


def _by_number(damaged: sqlite3.Connection) -> Iterator[tuple[JSON, ...]]:
    """The rows of memories that their number leads to."""
    last = next(_rows(damaged, "SELECT max(no) FROM memories"), None) or next(
        _rows(damaged, "SELECT max(memory_no) FROM memory_history"), (0,)
    )
    for no in range(1, int(last[0] or 0) + 1):
        yield from _rows(damaged, f"SELECT {_COLUMNS} FROM memories WHERE no = ?", (no,))


def _by_page(scratch: str, table: str, select: str) -> Iterator[tuple[JSON, ...]]:
    """The rows of a table on every page that could hold some, for those that nothing leads to any more.

    The schema may be damaged too: the first page is replaced by one with this table alone, whose only page is
    behind the last. Each leaf page is put there in turn, and read as the whole table.
    Source: https://www.sqlite.org/fileformat2.html#b_tree_pages
    """
    with open(scratch, "r+b", buffering=0) as file:
        size = _page_size(os.pread(file.fileno(), 100, 0))
        pages = os.fstat(file.fileno()).st_size // size
        if not pages:
            return
        os.pwrite(file.fileno(), _first_page(scratch, table, size, pages + 1), 0)
        for page in range(1, pages):
            content = os.pread(file.fileno(), size, page * size)
            if content[:1] == _TABLE_LEAF:
                os.pwrite(file.fileno(), content, pages * size)
                with closing(_opened(scratch)) as connection:
                    yield from list(_rows(connection, select))
        os.ftruncate(file.fileno(), pages * size)


def _page_size(head: bytes) -> int:
    size = int.from_bytes(head[16:18], "big")
    size = 65_536 if size == 1 else size
    return size if size >= 512 and size & (size - 1) == 0 else 4096


def _first_page(scratch: str, table: str, size: int, root: int) -> bytes:
    """The first page of a database of `root` pages whose only table has its rows on the last."""
    with closing(passing_connection()) as empty:
        bring_up_to_date(empty)
        [sql] = empty.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    path = f"{scratch}.schema"
    discard_copy(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {size}")
        connection.execute(sql)
        connection.execute("PRAGMA writable_schema = 1")
        connection.execute("UPDATE sqlite_master SET rootpage = ? WHERE name = ?", (root, table))
    with open(path, "rb") as file:
        page = bytearray(file.read(size))
    discard_copy(path)
    page[28:32] = root.to_bytes(4, "big")  # how many pages there are
    return bytes(page)


def _script_values(damaged: sqlite3.Connection) -> Iterator[tuple[JSON, ...]]:
    """What scripts keep, from both ends of the table: a damaged page is between them."""
    for order in ("", "DESC"):
        yield from _rows(
            damaged,
            f"SELECT script, key, bytes, value FROM script_value ORDER BY script {order}, key {order}",
        )
