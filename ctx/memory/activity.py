"""A log of the searches and reads of clients: one row per call, the latest 10,000, in `memory.db`.

Calls are queued, and a thread writes them after the answer was sent. Values that look like secrets are
masked.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import NamedTuple

from ctx.clock import now_ms
from ctx.errors import CtxError
from ctx.memory.screen import redacted
from ctx.models import JSON, Caller
from ctx.store.record import Statements
from ctx.store.schema import connect, migrate, transaction

logger = logging.getLogger(__name__)

KEPT = 10_000  # rows
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
_COLUMNS = ("at_ms", "interface", "client", "tool", "query", "hits", "weak", "tokens", "paths")
_INSERT = f"INSERT INTO activity ({', '.join(_COLUMNS)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_TRIM = "DELETE FROM activity WHERE no <= (SELECT max(no) FROM activity) - ?"
_MAX_CHARS = 500  # of a query
_MAX_PATHS = 10
_OPENED_MS = 30 * 60_000  # a read of a search's hit counts as opened within this time after the search
_TYPED_MS = 60_000  # a search while typing replaces the client's previous one, if it is at most this old
_BATCH = 500
_GATHER_S = 0.2  # wait before writing, so that answers are sent first and calls share a transaction
_CLOSE_S = 2.0
_CHARS_A_TOKEN = 4


class Entry(NamedTuple):
    """A logged call. `opened`: the hits of a search that the client read afterwards."""

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


_Call = tuple[Callable[[], Entry], bool]  # a queued call, and whether it is a search while typing
Begin = Callable[[], AbstractContextManager[Statements]]
"""A function that returns a read-write transaction as a context manager."""


class Activity:
    """The log of calls. Safe across threads and processes."""

    def __init__(self, begin: Begin) -> None:
        self._begin = begin
        self._queue: SimpleQueue[_Call | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._writer: threading.Thread | None = None

    def note(
        self, tool: str, arguments: Mapping[str, JSON], caller: Caller, reply: JSON, answer: JSON
    ) -> None:
        """Queues a call. `reply` is the result of the tool, `answer` is what was sent to the client."""
        typing = bool(arguments.get("prefix"))
        # The entry is made by the thread, because masking takes time and must not fail a call.
        self._queue.put((partial(_made, now_ms(), tool, arguments, caller, reply, answer), typing))
        with self._lock:
            if self._writer is None:
                self._writer = threading.Thread(target=self._write, name="ctx-activity", daemon=True)
                self._writer.start()

    def entries(self, limit: int = 100, offset: int = 0) -> list[Entry]:
        """The latest calls, newest first. Raises `StoreError`."""
        select = f"SELECT {', '.join(_COLUMNS)} FROM activity ORDER BY no DESC LIMIT ? OFFSET ?"
        with self._begin() as connection:
            rows = connection.execute(select, (limit, offset)).fetchall()
        return _linked([_entry(row) for row in rows])

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
            writer.join(_CLOSE_S)

    # -- the writer ------------------------------------------------------------------------------------------

    def _write(self) -> None:
        while (first := self._queue.get()) is not None:
            batch: list[_Call | None] = [first]
            end_s = time.monotonic() + _GATHER_S
            with suppress(Empty):
                while batch[-1] is not None and len(batch) < _BATCH:
                    batch.append(self._queue.get(timeout=max(0.0, end_s - time.monotonic())))
            calls = [call for call in batch if call is not None]
            try:
                with self._begin() as connection:
                    for call in calls:
                        _insert(connection, *call)
                    connection.execute(_TRIM, (KEPT,))
            except CtxError as error:
                logger.info("activity=unwritten calls=%d reason=%s", len(calls), error.message)
            except Exception:
                logger.exception("activity=unwritten calls=%d", len(calls))
            if len(calls) < len(batch):  # closed meanwhile
                return


def _insert(connection: Statements, make: Callable[[], Entry], typing: bool) -> None:
    entry = make()
    if typing:
        _drop_continued(connection, entry)
    values = (*entry[:6], int(entry.weak), entry.tokens, json.dumps(entry.paths))
    connection.execute(_INSERT, values)


def _drop_continued(connection: Statements, entry: Entry) -> None:
    """Deletes the client's last search if this one continues typing it."""
    last = connection.execute(
        "SELECT no, query, at_ms, tool FROM activity WHERE interface = ? AND client = ?"
        " ORDER BY no DESC LIMIT 1",
        (entry.interface, entry.client),
    ).fetchone()
    if last is None or last[3] != "search" or entry.called_ms - int(last[2]) > _TYPED_MS:
        return
    before, now = str(last[1]), entry.query
    if now.startswith(before) or before.startswith(now):
        connection.execute("DELETE FROM activity WHERE no = ?", (last[0],))


def _made(
    at_ms: int, tool: str, arguments: Mapping[str, JSON], caller: Caller, result: JSON, answer: JSON
) -> Entry:
    reply: Mapping[str, JSON] = result if isinstance(result, dict) else {}
    results: Sequence[JSON] = reply.get("results") or ()
    searched = tool == "search"
    if searched:
        subject, paths = arguments.get("query", ""), [row["source_id"] for row in results]
    else:
        paths = [path] if isinstance(path := reply.get("source_id") or reply.get("path"), str) else []
        subject = arguments.get("path") or arguments.get("name") or "".join(paths)
    hits = len(results)
    if not searched:
        hits = reply.get("definition_count", 1) + reply.get("reference_count", 0)
    weak = searched and (not results or str(reply.get("note", "")).startswith("0 exact matches"))
    return Entry(
        at_ms,
        caller.interface,
        _masked(caller.client or "", 80),
        tool,
        _masked(subject, _MAX_CHARS),
        0 if weak else hits,
        weak,
        _size(answer) // _CHARS_A_TOKEN,
        tuple(_masked(path, _MAX_CHARS) for path in dict.fromkeys(paths[:_MAX_PATHS])),
    )


def _masked(text: str, most: int) -> str:
    """The text on one line, with secrets masked, cut to `most` characters."""
    return " ".join(redacted(text[: 8 * most]).split())[:most]


def _size(answer: JSON) -> int:
    """The approximate size of an answer in characters."""
    if isinstance(answer, dict):
        return sum(_size(value) for value in answer.values()) + 4 * len(answer)
    if isinstance(answer, list):
        return sum(map(_size, answer))
    return len(answer) if isinstance(answer, str) else 6


def _entry(row: Sequence[JSON]) -> Entry:
    at_ms, interface, client, tool, query, hits, weak, tokens, paths = row
    return Entry(at_ms, interface, client, tool, query, hits, bool(weak), tokens, tuple(json.loads(paths)))


def _linked(entries: Sequence[Entry]) -> list[Entry]:
    """The entries, newest first, with `opened` set for each search."""
    opened: dict[int, list[str]] = {}
    for number, read in enumerate(entries):
        if read.tool != "get" or not read.paths:
            continue
        for earlier in range(number + 1, len(entries)):
            search = entries[earlier]
            if read.called_ms - search.called_ms > _OPENED_MS:
                break
            same = (search.interface, search.client) == (read.interface, read.client)
            if same and search.tool == "search" and read.paths[0] in search.paths:
                opened.setdefault(earlier, []).insert(0, read.paths[0])
                break
    return [
        entry._replace(opened=tuple(dict.fromkeys(opened.get(number, ()))))
        for number, entry in enumerate(entries)
    ]


def file_activity(path: Callable[[], str]) -> Activity:
    """The log in a SQLite file. The file is created with the first entry."""
    lock = threading.Lock()

    @contextmanager
    def begin() -> Iterator[Statements]:
        with lock, closing(connect(path())) as connection:
            migrate(connection, COMPONENT, MIGRATIONS)
            connection.execute("PRAGMA secure_delete = ON")
            with transaction(connection):
                yield connection

    return Activity(begin)
