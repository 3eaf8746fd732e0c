"""Sessions of a pack's clients in PostgreSQL: each server knows what another one kept of them."""

import json
import logging
from collections.abc import Callable, Iterable

from ctx.clock import now_ms
from ctx.cluster.postgres import Connection, Database
from ctx.errors import StoreError
from ctx.packs.sessions import ACTIVE_MS, IDLE_MS, MAX_SESSIONS, new_id
from ctx.types import JSON, as_table

logger = logging.getLogger(__name__)

COMPONENT = "sessions"
MIGRATIONS = (
    """
    CREATE TABLE pack_session (
        pack TEXT NOT NULL,
        id TEXT NOT NULL,
        place TEXT,  -- the project's folder
        started_ms BIGINT NOT NULL,
        active_ms BIGINT NOT NULL,
        calls BIGINT NOT NULL,
        PRIMARY KEY (pack, id)
    );
    CREATE INDEX pack_session_by_place ON pack_session (pack, place, active_ms) WHERE place IS NOT NULL;
    CREATE INDEX pack_session_by_age ON pack_session (pack, active_ms);
    CREATE TABLE pack_session_value (
        pack TEXT NOT NULL, id TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
        PRIMARY KEY (pack, id, key),
        FOREIGN KEY (pack, id) REFERENCES pack_session ON DELETE CASCADE
    );
    """,
)
# A session that is not there begins; one that is was active until now, and may have come to another place.
_PUT = (
    "INSERT INTO pack_session AS s VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (pack, id) DO UPDATE SET"
    " place = coalesce(excluded.place, s.place), active_ms = greatest(excluded.active_ms, s.active_ms),"
    " calls = s.calls + excluded.calls"
)
_PUT_VALUE = (
    "INSERT INTO pack_session_value VALUES (?, ?, ?, ?) ON CONFLICT (pack, id, key) DO UPDATE SET value = "
    "excluded.value"
)


class SharedSessions:
    """The `Sessions` of one pack in a database, which the caller closes. Raises `StoreError`, `Busy`."""

    def __init__(self, database: Database, pack: str, *, clock: Callable[[], int] = now_ms) -> None:
        self._database = database
        self._pack = pack
        self._clock = clock
        database.migrate(COMPONENT, MIGRATIONS)

    def open(self, id: str | None, *, place: str | None = None) -> str:
        present_ms = self._clock()
        chosen = id or new_id(present_ms)
        try:
            with self._database.transaction(write=True) as connection:
                if id is None and place is not None:
                    row = connection.execute(
                        "SELECT id FROM pack_session WHERE pack = ? AND place = ? AND active_ms > ?"
                        " ORDER BY active_ms DESC, id DESC LIMIT 1",
                        (self._pack, place, present_ms - IDLE_MS),
                    ).fetchone()
                    chosen = chosen if row is None else str(row[0])
                connection.execute(_PUT, (self._pack, chosen, place, present_ms, present_ms, 0))
                connection.execute(
                    "DELETE FROM pack_session WHERE pack = ? AND id IN (SELECT id FROM pack_session"
                    " WHERE pack = ? ORDER BY active_ms DESC OFFSET ?)",
                    (self._pack, self._pack, MAX_SESSIONS),
                )
        except StoreError as error:
            logger.warning("%s", error.message)  # a call is worth more than the record of its session
        return chosen

    def touch(self, id: str) -> None:
        present_ms = self._clock()
        try:
            with self._database.transaction(write=True) as connection:
                connection.execute("SET LOCAL synchronous_commit = off")  # a count may be lost
                connection.execute(_PUT, (self._pack, id, None, present_ms, present_ms, 1))
        except StoreError as error:
            logger.warning("%s", error.message)

    def data(self, id: str) -> dict[str, JSON]:
        with self._database.transaction() as connection:
            entries = self._entries(connection, "AND s.id = ?", (id,))
        return entries[0] if entries else {}

    def _entries(self, connection: Connection, clause: str, values: Iterable[JSON]) -> list[dict[str, JSON]]:
        rows = connection.execute(
            "SELECT s.id, s.place, s.started_ms, s.active_ms, s.calls, v.key, v.value FROM pack_session s"
            f" LEFT JOIN pack_session_value v ON v.pack = s.pack AND v.id = s.id WHERE s.pack = ? {clause}"
            " ORDER BY s.active_ms, s.id, v.key",
            (self._pack, *values),
        )
        entries: dict[str, dict[str, JSON]] = {}
        for id, project, started_ms, active_ms, calls, key, value in rows:
            entry = {"id": id, "startTime": started_ms, "lastActivity": active_ms, "toolCalls": calls}
            entry = entries.setdefault(id, entry if project is None else {**entry, "project": project})
            if key is not None:
                entry.setdefault("kv", {})[key] = json.loads(value)
        return list(entries.values())

    def get(self, id: str, key: str) -> JSON:
        return self.data(id).get("kv", {}).get(key)

    def set(self, id: str, key: str, value: JSON) -> None:
        present_ms = self._clock()
        with self._database.transaction(write=True) as connection:
            connection.execute(_PUT, (self._pack, id, None, present_ms, present_ms, 0))
            connection.execute(_PUT_VALUE, (self._pack, id, key, json.dumps(value)))

    def counts(self) -> tuple[int, int]:
        with self._database.transaction() as connection:
            row = connection.execute(
                "SELECT count(*), count(*) FILTER (WHERE active_ms > ?) FROM pack_session WHERE pack = ?",
                (self._clock() - ACTIVE_MS, self._pack),
            ).fetchone() or (0, 0)
        return int(row[0]), int(row[1])

    def all(self) -> list[dict[str, JSON]]:
        with self._database.transaction() as connection:
            return self._entries(connection, "", ())

    def take_over(self, entries: Iterable[dict[str, JSON]]) -> None:
        with self._database.transaction(write=True) as connection:
            for data in entries:
                id = str(data["id"])
                connection.execute("DELETE FROM pack_session WHERE pack = ? AND id = ?", (self._pack, id))
                connection.execute(_PUT, (self._pack, id, _text(data.get("project")), *_figures(data)))
                connection.executemany(
                    _PUT_VALUE,
                    [
                        (self._pack, id, key, json.dumps(value))
                        for key, value in as_table(data.get("kv")).items()
                    ],
                )

    def close(self) -> None:
        """Nothing to do: every call is counted at once."""


def _text(value: JSON) -> str | None:
    return value if isinstance(value, str) else None


def _figures(data: dict[str, JSON]) -> tuple[int, int, int]:
    """When a session began, when it was last active, and its calls; the file may be another product's, which
    says less.
    """
    numbers = [data.get(name) for name in ("startTime", "lastActivity", "toolCalls")]
    began_ms, active_ms, calls = (
        int(number) if isinstance(number, int | float) and abs(number) < 2**53 else 0 for number in numbers
    )
    return began_ms, active_ms, calls
