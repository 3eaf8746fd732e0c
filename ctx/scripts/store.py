"""Values that scripts store between calls (`context.store`), in `memory.db` or the shared database.

Each script has its own values, with a limit on their number and size. A value is on disk once `set` returns.
The values of a connector's scan are on disk once the items of the scan are stored.
"""

import json
import math
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from ctx.errors import Busy, ToolError
from ctx.models import JSON, is_number
from ctx.store.record import Statements
from ctx.store.schema import Connection, connect, migrate, transaction, translating

T = TypeVar("T")
MAX_KEYS = 1_000
MAX_KEY_BYTES = 256
MAX_BYTES = 1 << 20  # bytes per script, for its keys and its values as JSON
KEEP_S = 30.0  # how long storing a scan's values may wait for other writers
COMPONENT = "scripts"
MIGRATIONS = (
    """
    CREATE TABLE script_value (
        script TEXT NOT NULL,
        key TEXT NOT NULL,
        bytes INTEGER NOT NULL,  -- of the key and the value
        value TEXT NOT NULL,  -- JSON
        PRIMARY KEY (script, key)
    ) WITHOUT ROWID;
    """,
)


class ScriptStore:
    """The values of all scripts. Safe to use from several threads and processes.

    `script` is the owner of the values. Every call returns before `deadline_s` (on the clock of
    `time.monotonic()`) or raises `Busy`. Calls also raise `ToolError` for invalid keys and values, and
    `StoreError`.
    """

    def rows(self, deadline_s: float, script: str | None = None) -> list[tuple[str, str, int, str]]:
        """The values of all scripts or of one as `(script, key, bytes, value as JSON)`, sorted."""
        condition, values = ("", ()) if script is None else (" WHERE script = ?", (script,))
        select = f"SELECT script, key, bytes, value FROM script_value{condition} ORDER BY script, key"
        return self._within(
            "", deadline_s, lambda connection: list(connection.execute(select, values)), write=False
        )

    def take_over(
        self, rows: Iterable[tuple[str, str, int, str]], deadline_s: float, *, instead_of: str = ""
    ) -> None:
        """Store `rows` from another store. They replace values with the same keys, and all values of the
        script `instead_of`.
        """

        def write(connection: Statements) -> None:
            connection.execute("DELETE FROM script_value WHERE script = ?", (instead_of,))
            connection.executemany(
                "INSERT INTO script_value VALUES (?, ?, ?, ?) ON CONFLICT (script, key)"
                " DO UPDATE SET bytes = excluded.bytes, value = excluded.value",
                rows,
            )

        self._within(instead_of, deadline_s, write, write=True)

    def _within(self, script: str, deadline_s: float, act: Callable[[Statements], T], *, write: bool) -> T:
        """Run `act` in a transaction and return its result. During the transaction no other writer can change
        the script's values.
        """
        raise NotImplementedError

    def call(self, operation: str, script: str, arguments: Mapping[str, JSON], deadline_s: float) -> JSON:
        """Run one of `OPERATIONS` on the values of a script."""
        run, names, write = OPERATIONS[operation]
        values = [arguments.get(name) for name in names]
        return self._within(
            script, deadline_s, lambda connection: run(connection, script, *values), write=write
        )


class HeldScriptStore(ScriptStore):
    """A copy of a connector's values during a scan, which is written back when the scan's items are stored.

    Otherwise a scan that stored "seen up to this date" and then failed would never return those items again.
    """

    def __init__(self, store: ScriptStore) -> None:
        self._store = store
        self._script: str | None = None  # the owner of the copied values
        self._written = False
        self._connection = sqlite3.connect(":memory:", check_same_thread=False, factory=Connection)
        self._connection.executescript(MIGRATIONS[0])

    def close(self) -> None:
        self._connection.close()

    def keep(self) -> Callable[[], None] | None:
        """A function that writes the values back; None if the scan did not change any."""
        if self._script is None or not self._written:
            return None
        script, rows = self._script, self.rows(math.inf)
        return lambda: self._store.take_over(rows, time.monotonic() + KEEP_S, instead_of=script)

    def _within(self, script: str, deadline_s: float, act: Callable[[Statements], T], *, write: bool) -> T:
        if self._script is None and script:
            rows = self._store.rows(deadline_s, script)
            self._connection.executemany("INSERT INTO script_value VALUES (?, ?, ?, ?)", rows)
            self._script = script
        with self._connection:
            result = act(self._connection)
        self._written = self._written or write
        return result


class FileScriptStore(ScriptStore):
    """The values in a SQLite file, which is created if missing. `path` may be a function, which is called at
    the first use.
    """

    def __init__(self, path: str | Callable[[], str]) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _within(self, script: str, deadline_s: float, act: Callable[[Statements], T], *, write: bool) -> T:
        with self._lock:
            connection = self._connection
            if connection is None or connection.lost():
                path = self._path if isinstance(self._path, str) else self._path()
                connection = connect(path, synchronous="FULL")
                migrate(connection, COMPONENT, MIGRATIONS)
                self._connection = connection
            patience_ms = max(1, round((deadline_s - time.monotonic()) * 1000))
            with translating():
                connection.execute(f"PRAGMA busy_timeout = {patience_ms}")
            with transaction(connection, write=write):
                result = act(connection)
                if time.monotonic() > deadline_s:  # SQLite may wait longer than its busy_timeout
                    raise Busy("context.store: another process is using the file; try again")
                return result


def _get(connection: Statements, script: str, key: JSON) -> JSON:
    """The value of a key; None if there is none."""
    select = "SELECT value FROM script_value WHERE script = ? AND key = ?"
    row = connection.execute(select, (script, _key(key))).fetchone()
    return None if row is None else json.loads(row[0])


def _keys(connection: Statements, script: str) -> JSON:
    """The keys of a script, sorted."""
    select = "SELECT key FROM script_value WHERE script = ? ORDER BY key"
    return [row[0] for row in connection.execute(select, (script,))]


def _add(connection: Statements, script: str, key: JSON, number: JSON) -> JSON:
    """Add to the stored number (0 if there is none) and return the sum."""
    stored = _get(connection, script, key) or 0
    if not is_number(stored) or not is_number(number):
        raise ToolError("context.store.add: the stored value and the added one must be numbers")
    total = stored + number
    if not (abs(total) < 1 << 63 if isinstance(total, int) else math.isfinite(total)):
        raise ToolError("context.store.add: the sum is larger than a number can be")
    _set(connection, script, key, total)
    return total


def _set(connection: Statements, script: str, key: JSON, value: JSON) -> None:
    """Store a value; None deletes it."""
    key = _key(key)
    connection.execute("DELETE FROM script_value WHERE script = ? AND key = ?", (script, key))
    if value is None:
        return
    text = _encoded(value)
    count, total = connection.execute(
        "SELECT count(*), CAST(coalesce(sum(bytes), 0) AS BIGINT) FROM script_value WHERE script = ?",
        (script,),
    ).fetchone()
    size = len(key.encode()) + len(text.encode())
    if count >= MAX_KEYS:
        raise ToolError(
            f"context.store.set: there are already {MAX_KEYS:,} keys; delete one by setting it to nil"
        )
    if total + size > MAX_BYTES:
        raise ToolError(
            f"context.store.set: {total:,} bytes are stored; {size:,} more exceed the limit of {MAX_BYTES:,}"
        )
    connection.execute("INSERT INTO script_value VALUES (?, ?, ?, ?)", (script, key, size, text))


def _encoded(value: JSON) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise ToolError("context.store.set: the value cannot be written as JSON") from error
    return text


def _key(key: JSON) -> str:
    if isinstance(key, str):
        try:
            if 0 < len(key.encode()) <= MAX_KEY_BYTES:
                return key
        except UnicodeEncodeError:
            pass  # the text has a lone surrogate, which UTF-8 cannot encode
    raise ToolError(f"context.store: a key must be a string of 1 to {MAX_KEY_BYTES} bytes")


# Name -> the function that runs on a connection, the names of its arguments, and whether it writes.
OPERATIONS: dict[str, tuple[Callable[..., JSON], tuple[str, ...], bool]] = {
    "get": (_get, ("key",), False),
    "set": (_set, ("key", "value"), True),
    "add": (_add, ("key", "number"), True),
    "keys": (_keys, (), False),
}
