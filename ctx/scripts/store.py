"""What scripts keep between calls: a few values each, by key, in `memory.db` or the database that machines
share.

Each script sees its own values and no other's. It is bounded, so that one cannot fill the disk; a value is
there for the next call as soon as `set` has answered, whatever happens to the process; one of a scan, as soon
as what the scan gave is stored.
"""

import json
import math
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ctx.errors import Busy, ToolError
from ctx.models import JSON, is_number
from ctx.store.record import Statements
from ctx.store.schema import Connection, connect, migrate, transaction, translating

T = TypeVar("T")
MAX_KEYS = 1_000
MAX_KEY_BYTES = 256
MAX_BYTES = 1 << 20  # of one script: its keys and its values as JSON
KEEP_S = 30.0  # that a scan's values wait for others who write
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
    """The values of all scripts, wherever they are kept. Safe from several threads and beside other
    processes.

    `script` names whose values are meant. Every call ends by `deadline_s` (of `time.monotonic()`) with an
    answer, or raises `Busy`; it raises `ToolError` for what is not to be kept, and `StoreError`.
    """

    def close(self) -> None:
        """Lets go of what it holds; what is somebody else's stays open."""

    def rows(self, deadline_s: float) -> list[tuple[str, str, int, str]]:
        """All that is kept, by script and key: `(script, key, bytes, value)`, the value as JSON."""

        def read(connection: Statements) -> list[tuple[str, str, int, str]]:
            return connection.execute(
                "SELECT script, key, bytes, value FROM script_value ORDER BY script, key"
            ).fetchall()

        return self._within("", deadline_s, read, write=False)

    def take_over(self, rows: Iterable[tuple[str, str, int, str]], deadline_s: float) -> None:
        """Keeps what another store gave as `rows`, in place of what is here under the same keys."""

        def write(connection: Statements) -> None:
            connection.executemany(
                "INSERT INTO script_value VALUES (?, ?, ?, ?) ON CONFLICT (script, key)"
                " DO UPDATE SET bytes = excluded.bytes, value = excluded.value",
                rows,
            )

        self._within("", deadline_s, write, write=True)

    def replace(self, script: str, rows: Sequence[tuple[str, str, int, str]], deadline_s: float) -> None:
        """Keeps these `rows` of a script, and nothing else of it."""

        def write(connection: Statements) -> None:
            connection.execute("DELETE FROM script_value WHERE script = ?", (script,))
            connection.executemany("INSERT INTO script_value VALUES (?, ?, ?, ?)", rows)

        self._within(script, deadline_s, write, write=True)

    def _within(self, script: str, deadline_s: float, act: Callable[[Statements], T], *, write: bool) -> T:
        """What `act` gives, in one transaction; nobody else writes the script's values while it writes."""
        raise NotImplementedError

    def get(self, script: str, key: JSON, deadline_s: float) -> JSON:
        """The value, None where there is none."""
        return self._within(
            script, deadline_s, lambda connection: _value(connection, script, _key(key)), write=False
        )

    def keys(self, script: str, deadline_s: float) -> list[str]:
        """The keys that have a value, sorted."""

        def read(connection: Statements) -> list[str]:
            select = "SELECT key FROM script_value WHERE script = ? ORDER BY key"
            return [row[0] for row in connection.execute(select, (script,))]

        return self._within(script, deadline_s, read, write=False)

    def set(self, script: str, key: JSON, value: JSON, deadline_s: float) -> None:
        """Keeps a value in place of the one there was; None drops it."""
        self._within(
            script, deadline_s, lambda connection: _put(connection, script, _key(key), value), write=True
        )

    def add(self, script: str, key: JSON, number: JSON, deadline_s: float) -> int | float:
        """Adds to a number (0 where there is none) and gives the sum: one step, which no call comes
        between.
        """

        def add(connection: Statements) -> int | float:
            total = _number(_value(connection, script, _key(key)) or 0) + _number(number)
            if not (abs(total) < 1 << 63 if isinstance(total, int) else math.isfinite(total)):
                raise ToolError("context.store.add: the sum is larger than a number can be")
            _put(connection, script, _key(key), total)
            return total

        return self._within(script, deadline_s, add, write=True)


class HeldScriptStore(ScriptStore):
    """What a connector's scan keeps, which it sees at once itself, held back until what it gave is stored: a
    scan that went on from a time up to which nobody had stored anything would never give it.
    """

    def __init__(self, store: ScriptStore) -> None:
        self._store = store
        self._script: str | None = None  # whose values were copied
        self._written = False
        self._connection = sqlite3.connect(":memory:", check_same_thread=False)
        self._connection.executescript(MIGRATIONS[0])

    def close(self) -> None:
        self._connection.close()

    def keep(self) -> Callable[[], None] | None:
        """What writes the values where they outlast the scan; None where it changed none."""
        if self._script is None or not self._written:
            return None
        script, rows = self._script, self.rows(math.inf)
        return lambda: self._store.replace(script, rows, time.monotonic() + KEEP_S)

    def _within(self, script: str, deadline_s: float, act: Callable[[Statements], T], *, write: bool) -> T:
        if self._script is None and script:
            rows = [row for row in self._store.rows(deadline_s) if row[0] == script]
            self._connection.executemany("INSERT INTO script_value VALUES (?, ?, ?, ?)", rows)
            self._script = script
        with self._connection:  # undone where it raises
            result = act(self._connection)
        self._written = self._written or write
        return result


class FileScriptStore(ScriptStore):
    """The values in a SQLite file, which is made if need be. `path` is asked for at the first use."""

    def __init__(self, path: str | Callable[[], str]) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _within(self, script: str, deadline_s: float, act: Callable[[Statements], T], *, write: bool) -> T:
        if not self._lock.acquire(timeout=max(0.0, deadline_s - time.monotonic())):
            raise Busy("context.store: other calls keep it; try again")
        try:
            connection = self._open()
            patience_ms = max(1, round((deadline_s - time.monotonic()) * 1000))
            with translating():
                connection.execute(f"PRAGMA busy_timeout = {patience_ms}")
            with transaction(connection, write=write):
                result = act(connection)
                if time.monotonic() > deadline_s:  # SQLite waits a little longer than it is told
                    raise Busy("context.store: another process keeps the file; try again")
                return result
        finally:
            self._lock.release()

    def _open(self) -> Connection:
        connection = self._connection
        self._connection = None  # where this fails, the next call opens it anew
        if connection is None:
            path = self._path if isinstance(self._path, str) else self._path()
            connection = connect(path, synchronous="FULL")
        elif connection.lost():
            connection.close()
            connection = connect(connection.path, synchronous="FULL")
        try:
            migrate(connection, COMPONENT, MIGRATIONS)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection


def _value(connection: Statements, script: str, key: str) -> JSON:
    row = connection.execute(
        "SELECT value FROM script_value WHERE script = ? AND key = ?", (script, key)
    ).fetchone()
    return None if row is None else json.loads(row[0])


def _put(connection: Statements, script: str, key: str, value: JSON) -> None:
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
        raise ToolError(f"context.store.set: it holds {MAX_KEYS:,} keys, and no more fit; drop one with nil")
    if total + size > MAX_BYTES:
        raise ToolError(
            f"context.store.set: it holds {total:,} bytes, {size:,} more are over the limit of {MAX_BYTES:,}"
        )
    connection.execute("INSERT INTO script_value VALUES (?, ?, ?, ?)", (script, key, size, text))


def _encoded(value: JSON) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise ToolError("context.store.set: the value is nothing that JSON can say") from error
    return text


def _key(key: JSON) -> str:
    if isinstance(key, str):
        try:
            if 0 < len(key.encode()) <= MAX_KEY_BYTES:
                return key
        except UnicodeEncodeError:
            pass  # half of a surrogate pair is no text
    raise ToolError(f"context.store: a key is text of 1 to {MAX_KEY_BYTES} bytes")


def _number(value: JSON) -> int | float:
    if not is_number(value):
        raise ToolError("context.store.add: what is there, and what is added, must be a number")
    return value
