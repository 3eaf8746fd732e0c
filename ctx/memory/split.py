"""Moves memories, keys and scripts' values out of `ctx.db`, where earlier versions stored everything.

The steps are copy, verify and switch. The old tables are dropped only after the new file is complete. The
transaction begins before the copy, so that a running process of an earlier version cannot write data that
would be lost. If the process is killed, a marker file stays, and the next start finishes or repeats the move.
"""

import logging
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import zip_longest

from ctx import files
from ctx.data_folder import KEYS, git_reply
from ctx.errors import StoreError
from ctx.store.schema import (
    APPLICATION_ID,
    COMPANIONS,
    begin_copy,
    connect,
    copy_database,
    discard_copy,
    holds_statements,
    transaction,
    translating,
)

logger = logging.getLogger(__name__)

MOVED = ".moved"  # the suffix of copies that are kept for a downgrade
_MARKER = ".splitting"
_UNFINISHED = ".unfinished"
_LEAVE = b"leave"  # content of the marker, if the old store must not be changed
_OURS = "(name IN ('memories', 'script_value') OR name GLOB 'memory_*')"
_META = "key IN ('schema.memories', 'schema.scripts', 'memory.unshredded')"
_ROWS = ("memories", "script_value")
Known = Callable[[], str | None]


def holds_old(catalog: str) -> int | None:
    """The number of memories and scripts' values in a catalog file.

    None if it has no such tables or cannot be read.
    """
    if not os.path.isfile(catalog):
        return None
    try:
        with closing(connect(catalog, read_only=True)) as connection, translating():
            names = {
                row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            }
            if not names & set(_ROWS):
                return None
            return sum(
                int(connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0])
                for name in _ROWS
                if name in names
            )
    except StoreError:
        return None


def take_over(catalog: str, keys: str, memory: str, refusal: Known, *, leave: bool = False) -> str | None:
    """Moves the memories in `catalog` to `memory`, and the file `keys` to its folder.

    Does nothing if `memory` exists. Returns the reason if the old data was not moved, such as that of
    `refusal()`, else None. `leave`: the old store is not changed, because git tracks it. Raises `StoreError`,
    `Busy`.
    """
    marker = memory + _MARKER
    new_keys = os.path.join(os.path.dirname(memory), os.path.basename(keys))
    if os.path.lexists(memory) and not os.path.lexists(marker):
        taken = os.path.lexists(new_keys) or os.path.lexists(new_keys + MOVED)
        left = keys != new_keys and os.path.isfile(keys) and not taken
        return "this project has memories already" if left else None
    try:
        with files.locked(memory, beneath=os.path.dirname(memory)):
            unfinished = os.path.lexists(marker)
            if os.path.lexists(memory) and not unfinished:
                return None  # another process has moved them
            old = holds_old(catalog)
            moving_keys = keys != new_keys and os.path.isfile(keys) and not os.path.lexists(new_keys)
            if unfinished and files.read_file(marker, beneath=os.path.dirname(memory)) == _LEAVE:
                discard_copy(memory)  # an unfinished `ctx memory adopt`: the user must run it again
                os.unlink(marker)
                unfinished = False
            if unfinished:
                if old is None:  # the old tables were dropped, so the new file is complete
                    _set_keys_aside(keys, new_keys)
                    os.unlink(marker)
                    return None
                discard_copy(memory)  # not used yet, because every writer calls this function first
            elif not old and not moving_keys:
                return None
            reason = None if unfinished else refusal()
            if reason is None:
                _move(catalog if old is not None else None, keys, memory, new_keys, leave=leave)
            return reason
    except OSError as error:
        raise StoreError(
            f"the memories cannot be moved from {os.path.basename(catalog)} to {memory}: {error.strerror}"
        ) from error


def unasked(catalog: str, known: bool) -> str | None:
    """The reason why this catalog's memories must not be moved without a command; None if they may.

    `known`: this user has used the store before.
    """
    folder = os.path.dirname(catalog)
    if os.path.islink(folder):
        return "its folder is a link"
    if _is_tracked(catalog):
        return "git tracks it, so it may belong to someone else"
    if os.stat(catalog if os.path.exists(catalog) else folder).st_uid not in (os.geteuid(), 0):
        return "it belongs to another user"
    return (
        None if known else "this user has not used it before, so it may have come with a copy or an archive"
    )


def _is_tracked(catalog: str) -> bool:
    """Whether git tracks the catalog or the keys in its folder."""
    folder, name = os.path.split(catalog)
    top = files.work_tree(folder)
    if top is None:
        return False
    inside = os.path.relpath(folder, top)
    names = [*(name + suffix for suffix in ("", *COMPANIONS)), KEYS]
    pathspecs = [f":(literal){os.path.join(inside, part)}" for part in names]
    return bool(git_reply(top, "ls-files", "-z", "--", *pathspecs))


def _move(catalog: str | None, keys: str, memory: str, new_keys: str, *, leave: bool) -> None:
    folder = os.path.dirname(memory)
    files.replace(memory + _MARKER, _LEAVE if leave else b"", beneath=folder)
    if keys != new_keys and os.path.isfile(keys):
        content = files.read_file(keys, beneath=os.path.dirname(keys))
        files.replace(new_keys, content, beneath=folder)
    count = 0 if catalog is None else _move_tables(catalog, memory, leave=leave)
    left = ""
    if not leave:
        _set_keys_aside(keys, new_keys)
        left = f"; {os.path.basename(catalog or keys)}{MOVED} is a copy for an earlier version of ctx"
    os.unlink(memory + _MARKER)
    logger.warning("moved %d memories and scripts' values to %s%s", count, memory, left)


def _set_keys_aside(keys: str, new_keys: str) -> None:
    if keys != new_keys and os.path.isfile(keys) and os.path.isfile(new_keys):
        os.replace(keys, keys + MOVED)


def _move_tables(catalog: str, memory: str, *, leave: bool) -> int:
    """Copies the tables to `memory`, and drops them from the catalog unless `leave`.

    Returns the number of memories and values.
    """
    unfinished = memory + _UNFINISHED
    begin_copy(unfinished)
    connection = connect(catalog, read_only=True) if leave else connect(catalog, synchronous="FULL")
    with closing(connection) as old, transaction(old, write=not leave):
        with closing(sqlite3.connect(unfinished, isolation_level=None)) as new, translating():
            count = _copy(old, new)
            if not leave:  # for a downgrade
                copy_database(new, f"{catalog}{MOVED}{_UNFINISHED}", catalog + MOVED)
        files.sync(unfinished)
        os.replace(unfinished, memory)
        files.sync(os.path.dirname(memory))
        if not leave:
            with translating():
                _drop(old)
    return count


def _tables(connection: sqlite3.Connection) -> dict[str, str]:
    """The tables to copy, each with its columns. SQLite makes the other tables of the word index."""
    rows = connection.execute(
        f"SELECT name FROM sqlite_master WHERE type = 'table' AND {_OURS} AND name NOT GLOB 'memory_words_*'"
        " AND name != 'memory_vocabulary' ORDER BY name"
    )
    return {name: "rowid, terms" if name == "memory_words" else "*" for (name,) in rows}


def _copy(old: sqlite3.Connection, new: sqlite3.Connection) -> int:
    """Copies the tables with their rows, and then the indexes, and compares all rows.

    Returns the number of memories and values. Raises `StoreError`.
    """
    if holds_statements(old):
        raise StoreError("the catalog has a trigger, a view or a computed column that ctx did not create")
    new.execute("PRAGMA journal_mode = DELETE")
    new.execute("BEGIN")
    new.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    new.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID")
    new.executemany(
        "INSERT INTO meta VALUES (?, ?)", old.execute(f"SELECT key, value FROM meta WHERE {_META}")
    )
    definition = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND type = ? AND"
    tables = _tables(old)
    for name in (*tables, "memory_vocabulary"):
        for (sql,) in old.execute(f"{definition} name = ?", ("table", name)).fetchall():
            new.execute(sql)
    for name, columns in tables.items():
        rows = old.execute(f"SELECT {columns} FROM {name}")
        fields = ", ".join(column[0] for column in rows.description)
        marks = ", ".join("?" * len(rows.description))
        new.executemany(f"INSERT INTO {name} ({fields}) VALUES ({marks})", rows)
    for name in tables:
        for (sql,) in old.execute(f"{definition} tbl_name = ?", ("index", name)).fetchall():
            new.execute(sql)
    new.execute("COMMIT")
    [verdict] = new.execute("PRAGMA quick_check(1)").fetchone()
    count = 0
    for name, columns in tables.items():
        select = f"SELECT {columns} FROM {name}"
        for row, copied in zip_longest(old.execute(select), new.execute(select)):
            if verdict != "ok" or row != copied:
                raise StoreError(
                    f"the copy of `{name}` differs from the catalog, so nothing was moved: run `ctx doctor`"
                )
            count += name in _ROWS
    return count


def _drop(old: sqlite3.Connection) -> None:
    """Drops the tables and overwrites their content, since memories may be erased later."""
    old.execute("PRAGMA secure_delete = 1")
    for name in ("memory_vocabulary", *_tables(old)):
        old.execute(f"DROP TABLE IF EXISTS {name}")
    old.execute(f"DELETE FROM meta WHERE {_META}")
