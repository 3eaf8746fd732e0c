"""A log of the latest 10,000 searches and reads of clients, and the sessions of memory clients. Both are
tables in the memory database.

Calls are queued, and a thread writes them to the log after the answer was sent. In the log, values that look
like secrets are masked.
"""

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from ctx.clock import now_ms
from ctx.errors import CtxError, StoreError
from ctx.memory.language import redacted
from ctx.models import JSON, Caller
from ctx.store.record import Statements
from ctx.store.schema import connect, migrate, transaction

if TYPE_CHECKING:
    from ctx.memory.rows import MemoryRows
    from ctx.memory.schema import Engine

logger = logging.getLogger(__name__)

KEPT = 10_000  # the log keeps this many calls
COMPONENT = "activity"
TABLE = """
    CREATE TABLE activity (
        no {key},
        at_ms BIGINT NOT NULL,
        interface TEXT NOT NULL,  -- rest | mcp | stdio | cli
        client TEXT NOT NULL,  -- the name that it gives itself, or ""
        tool TEXT NOT NULL,
        query TEXT NOT NULL,  -- of a search, else what was read
        hits BIGINT NOT NULL,
        weak BIGINT NOT NULL,  -- 1: a search without a good hit
        tokens BIGINT NOT NULL,  -- of the answer, approximately
        paths TEXT NOT NULL  -- JSON: of the best hits, or of what was read
    );
    """
MIGRATIONS = (TABLE.format(key="INTEGER PRIMARY KEY"),)
_COLUMNS = "at_ms, interface, client, tool, query, hits, weak, tokens, paths"
_MAX_CHARS = 500  # a longer query is cut in the log


class Entry(NamedTuple):
    """A logged call. `opened` has the paths of those hits of a search that the client read afterwards."""

    called_ms: int
    interface: str
    client: str
    tool: str
    query: str
    hits: int
    weak: bool
    tokens: int
    paths: tuple[str, ...]
    opened: tuple[str, ...] = ()


class Activity:
    """The log of calls. Safe across threads and processes."""

    def __init__(self, begin: Callable[[], AbstractContextManager[Statements]]) -> None:
        """`begin` returns a read-write transaction as a context manager."""
        self._begin = begin
        self._queue: SimpleQueue[Callable[[Statements], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._writer: threading.Thread | None = None

    def note(
        self, tool: str, arguments: Mapping[str, JSON], caller: Caller, reply: JSON, answer: JSON
    ) -> None:
        """Queues a call. `reply` is the result of the tool, `answer` is what was sent to the client."""
        # The thread builds the entry: masking secrets takes time, and if it fails, the call must not fail.
        self._queue.put(partial(_insert, now_ms(), tool, arguments, caller, reply, answer))
        with self._lock:
            if self._writer is None:
                self._writer = threading.Thread(target=self._write, name="ctx-activity", daemon=True)
                self._writer.start()

    def entries(self, limit: int = 100, offset: int = 0) -> list[Entry]:
        """The latest calls, newest first. Raises `StoreError`."""
        select = f"SELECT {_COLUMNS} FROM activity ORDER BY no DESC LIMIT ? OFFSET ?"
        with self._begin() as connection:
            rows = connection.execute(select, (limit, offset)).fetchall()
        values = ([*row[:6], bool(row[6]), row[7], tuple(json.loads(row[8])), ()] for row in rows)
        return _linked(list(map(Entry._make, values)))

    def clear(self) -> int:
        """Deletes all entries and returns their number. Raises `StoreError`."""
        with self._begin() as connection:
            count = int(connection.execute("SELECT count(*) FROM activity").fetchone()[0])
            connection.execute("DELETE FROM activity")
        return count

    def close(self) -> None:
        """Writes the queued calls, for at most 2 s."""
        with self._lock:
            writer, self._writer = self._writer, None
        if writer is not None:
            self._queue.put(None)
            writer.join(2.0)

    # -- the writer ------------------------------------------------------------------------------------------

    def _write(self) -> None:
        while (first := self._queue.get()) is not None:
            batch: list[Callable[[Statements], None] | None] = [first]
            # Wait, so that answers are sent first and several calls share one transaction.
            end_s = time.monotonic() + 0.2
            with suppress(Empty):
                while batch[-1] is not None and len(batch) < 500:
                    batch.append(self._queue.get(timeout=max(0.0, end_s - time.monotonic())))
            inserts = [insert for insert in batch if insert is not None]
            try:
                with self._begin() as connection:
                    for insert in inserts:
                        insert(connection)
                    oldest = "SELECT max(no) FROM activity"
                    connection.execute(f"DELETE FROM activity WHERE no <= ({oldest}) - ?", (KEPT,))
            except CtxError as error:
                logger.info("activity=unwritten calls=%d reason=%s", len(inserts), error.message)
            except Exception:
                logger.exception("activity=unwritten calls=%d", len(inserts))
            if batch[-1] is None:  # `close` was called in the meantime
                return


def _insert(
    at_ms: int,
    tool: str,
    arguments: Mapping[str, JSON],
    caller: Caller,
    result: JSON,
    answer: JSON,
    connection: Statements,
) -> None:
    reply: Mapping[str, JSON] = result if isinstance(result, dict) else {}
    client = _masked(caller.client or "", 80)
    if tool == "search":
        results: Sequence[JSON] = reply.get("results") or ()
        subject, paths = arguments.get("query", ""), [row["source_id"] for row in results]
        weak = not results or str(reply.get("note", "")).startswith("0 exact matches")
        hits = 0 if weak else len(results)
    else:
        paths = [path] if isinstance(path := reply.get("source_id") or reply.get("path"), str) else []
        subject = arguments.get("path") or arguments.get("name") or "".join(paths)
        weak, hits = False, reply.get("definition_count", 1) + reply.get("reference_count", 0)
    query = _masked(subject, _MAX_CHARS)
    if arguments.get("prefix"):
        _drop_continued(connection, at_ms, caller.interface, client, query)
    masked_paths = [_masked(path, _MAX_CHARS) for path in dict.fromkeys(paths[:10])]
    tokens = _size(answer) // 4
    values = (at_ms, caller.interface, client, tool, query, hits, int(weak), tokens)
    insert = f"INSERT INTO activity ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
    connection.execute(insert, (*values, json.dumps(masked_paths)))


def _drop_continued(connection: Statements, at_ms: int, interface: str, client: str, query: str) -> None:
    """Deletes the client's last search if it is less than a minute old and the new one continues its text."""
    last = connection.execute(
        "SELECT no, query, at_ms, tool FROM activity WHERE interface = ? AND client = ?"
        " ORDER BY no DESC LIMIT 1",
        (interface, client),
    ).fetchone()
    if last is None or last[3] != "search" or at_ms - int(last[2]) > 60_000:
        return
    if query.startswith(last[1]) or last[1].startswith(query):
        connection.execute("DELETE FROM activity WHERE no = ?", (last[0],))


def _masked(text: str, most: int) -> str:
    """The text on one line, with secrets masked, cut to at most `most` characters."""
    return " ".join(redacted(text[: 8 * most]).split())[:most]


def _size(answer: JSON) -> int:
    """The approximate size of an answer in characters."""
    if isinstance(answer, dict):
        return sum(_size(value) for value in answer.values()) + 4 * len(answer)
    if isinstance(answer, list):
        return sum(map(_size, answer))
    return len(answer) if isinstance(answer, str) else 6


def _linked(entries: list[Entry]) -> list[Entry]:
    """The entries, newest first. `opened` of each search has its hits that were read within half an hour."""
    opened: dict[int, list[str]] = {}
    for number, read in enumerate(entries):
        if read.tool != "get" or not read.paths:
            continue
        for earlier in range(number + 1, len(entries)):
            search = entries[earlier]
            if read.called_ms - search.called_ms > 30 * 60_000:
                break
            same = (search.interface, search.client) == (read.interface, read.client)
            if same and search.tool == "search" and read.paths[0] in search.paths:
                opened.setdefault(earlier, []).insert(0, read.paths[0])
                break
    for number, paths in opened.items():
        entries[number] = entries[number]._replace(opened=tuple(dict.fromkeys(paths)))
    return entries


def file_activity(path: Callable[[], str]) -> Activity:
    """The log in a SQLite file. The first entry creates the file."""
    lock = threading.Lock()

    @contextmanager
    def begin() -> Iterator[Statements]:
        with lock, closing(connect(path())) as connection:
            migrate(connection, COMPONENT, MIGRATIONS)
            connection.execute("PRAGMA secure_delete = ON")
            with transaction(connection):
                yield connection

    return Activity(begin)


# -- sessions ------------------------------------------------------------------------------------------------

# Sessions survive restarts, and worker processes share them. A session has a place: for a stdio client the
# folder it was started in, for an HTTP client without a session id its key and bank. A client without a
# session id continues the last session of its place.
IDLE_MS = 24 * 3_600_000  # a session that was unused for this long is not continued
SAVE_EVERY_MS = 5_000  # the last use of each session is stored at most this often
MAX_SESSIONS = 10_000

# Inserts a new session, or records the use of an existing one, and its place, which may have changed.
_USE = (
    "INSERT INTO client_sessions AS s (pack, id, place, started_ms, active_ms) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (pack, id) DO UPDATE SET place = coalesce(excluded.place, s.place), active_ms ="
    " CASE WHEN excluded.active_ms > s.active_ms THEN excluded.active_ms ELSE s.active_ms END"
)
_LAST = (
    "SELECT id FROM client_sessions WHERE pack = ? AND place = ? AND active_ms > ?"
    " ORDER BY active_ms DESC, id DESC LIMIT 1"
)
_FORGET = (
    "DELETE FROM client_sessions WHERE pack = ? AND active_ms < (SELECT active_ms FROM client_sessions"
    " WHERE pack = ? ORDER BY active_ms DESC LIMIT 1 OFFSET ?)"
)


class Sessions:
    """The sessions of one pack. Safe across threads and processes."""

    def __init__(
        self, rows: "Callable[[], MemoryRows]", pack: str, *, clock: Callable[[], int] = now_ms
    ) -> None:
        self._rows = rows
        self._pack = pack
        self._clock = clock
        self._lock = threading.Lock()
        self._saved: dict[str, int] = {}  # session id -> when this process last stored its use

    def open(self, id: str | None = None, *, place: str | None = None) -> str:
        """Opens a session and returns its id.

        It is the session with `id` if given, else the last session of the place, else a new session. The call
        counts as a use of the session.
        """
        now = self._clock()
        try:
            with self._lock:  # so that two calls from one place start only one session
                return self._open(id, place, now)
        except StoreError as error:
            # Do not raise: the caller stores a memory, which must not fail because of the session.
            logger.warning("session=unsaved pack=%s reason=%s", self._pack, error.message)
            return id or _new_id(now)

    def _open(self, id: str | None, place: str | None, now: int) -> str:
        if id is None:
            with self._rows().view() as engine:
                id = self._last(engine, place, now)
        if id is not None and 0 <= now - self._saved.get(id, -SAVE_EVERY_MS) < SAVE_EVERY_MS:
            return id
        with self._rows().change(durable=False) as engine:
            # Read again in the transaction, because another process may have started a session meanwhile.
            id = id or self._last(engine, place, now) or _new_id(now)
            engine.connection.execute(_USE, (self._pack, id, place, now, now))
            engine.connection.execute(_FORGET, (self._pack, self._pack, MAX_SESSIONS - 1))
        if len(self._saved) >= MAX_SESSIONS:
            self._saved.clear()
        self._saved[id] = now
        return id

    def _last(self, engine: "Engine", place: str | None, now: int) -> str | None:
        row = engine.connection.execute(_LAST, (self._pack, place, now - IDLE_MS)).fetchone()
        return None if row is None else str(row[0])

    def started_ms(self, id: str) -> int | None:
        """The start time of a session in milliseconds; None if it is unknown."""
        select = "SELECT started_ms FROM client_sessions WHERE pack = ? AND id = ?"
        with self._rows().view() as engine:
            row = engine.connection.execute(select, (self._pack, id)).fetchone()
        return None if row is None else int(row[0])

    def counts(self) -> tuple[int, int]:
        """(number of sessions, number of those active in the last five minutes)."""
        active = "coalesce(sum(CASE WHEN active_ms > ? THEN 1 ELSE 0 END), 0)"
        select = f"SELECT count(*), {active} FROM client_sessions WHERE pack = ?"
        with self._rows().view() as engine:
            row = engine.connection.execute(select, (self._clock() - 5 * 60_000, self._pack)).fetchone()
        return int(row[0]), int(row[1])


def _new_id(now: int) -> str:
    return f"session_{now}_{secrets.token_hex(4)}"
