"""Sessions of memory clients. They survive restarts, and worker processes share them.

A stdio process continues the last session of its folder. Over HTTP, a client names its session, or shares one
with all clients of its key and bank. Sessions are stored in the memory database.
"""

import logging
import secrets
import threading
from collections.abc import Callable

from ctx.clock import now_ms
from ctx.errors import StoreError
from ctx.memory.engine import Engine
from ctx.memory.rows import MemoryRows

logger = logging.getLogger(__name__)

ACTIVE_MS = 5 * 60_000  # a session used within five minutes is active
IDLE_MS = 24 * 3_600_000  # after this time, the next connection of a place starts a new session
SAVE_EVERY_MS = 5_000  # a use is stored at most this often for each session
MAX_SESSIONS = 10_000

# Starts a new session, or records a use of an existing one, which may have moved to another place.
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
        self, rows: Callable[[], MemoryRows], pack: str, *, clock: Callable[[], int] = now_ms
    ) -> None:
        self._rows = rows
        self._pack = pack
        self._clock = clock
        self._lock = threading.Lock()
        self._saved: dict[str, int] = {}  # when this process last wrote a session's use

    def open(self, id: str | None = None, *, place: str | None = None) -> str:
        """Opens a session and returns its id.

        It is the one with `id` if given, else the last one of the place, else a new one. Counts as a use.
        """
        now = self._clock()
        try:
            with self._lock:  # two calls from one place start one session
                return self._open(id, place, now)
        except StoreError as error:
            # The memory must be stored anyway.
            logger.warning("session=unsaved pack=%s reason=%s", self._pack, error.message)
            return id or _new_id(now)

    def _open(self, id: str | None, place: str | None, now: int) -> str:
        if id is None:
            with self._rows().view() as engine:
                id = self._last(engine, place, now)
        if id is not None and 0 <= now - self._saved.get(id, -SAVE_EVERY_MS) < SAVE_EVERY_MS:
            return id
        with self._rows().change(durable=False) as engine:
            # Reads again in the transaction, because another process may have started one.
            id = id or self._last(engine, place, now) or _new_id(now)
            engine.connection.execute(_USE, (self._pack, id, place, now, now))
            engine.connection.execute(_FORGET, (self._pack, self._pack, MAX_SESSIONS - 1))
        if len(self._saved) >= MAX_SESSIONS:
            self._saved.clear()
        self._saved[id] = now
        return id

    def _last(self, engine: Engine, place: str | None, now: int) -> str | None:
        row = engine.connection.execute(_LAST, (self._pack, place, now - IDLE_MS)).fetchone()
        return None if row is None else str(row[0])

    def started_ms(self, id: str) -> int | None:
        """The start time of a session in milliseconds; None if it is unknown."""
        with self._rows().view() as engine:
            row = engine.connection.execute(
                "SELECT started_ms FROM client_sessions WHERE pack = ? AND id = ?", (self._pack, id)
            ).fetchone()
        return None if row is None else int(row[0])

    def counts(self) -> tuple[int, int]:
        """(number of sessions, number of those active in the last five minutes)."""
        with self._rows().view() as engine:
            row = engine.connection.execute(
                "SELECT count(*), coalesce(sum(CASE WHEN active_ms > ? THEN 1 ELSE 0 END), 0)"
                " FROM client_sessions WHERE pack = ?",
                (self._clock() - ACTIVE_MS, self._pack),
            ).fetchone()
        return int(row[0]), int(row[1])


def _new_id(now: int) -> str:
    return f"session_{now}_{secrets.token_hex(4)}"
