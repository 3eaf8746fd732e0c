"""The values that scripts keep between calls, in PostgreSQL."""

import time
from collections.abc import Callable
from typing import TypeVar

from ctx.cluster.postgres import Database
from ctx.errors import Busy
from ctx.scripts.store import ScriptStore
from ctx.store.record import Statements

T = TypeVar("T")
COMPONENT = "scripts"
MIGRATIONS = (
    """
    CREATE TABLE script_value (
        script TEXT NOT NULL,
        key TEXT NOT NULL,
        bytes BIGINT NOT NULL,  -- of the key and the value
        value TEXT NOT NULL,  -- JSON
        PRIMARY KEY (script, key)
    );
    """,
)


class SharedScriptStore(ScriptStore):
    """The values in a database, which the caller closes. Raises `StoreError`, `Busy`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        database.migrate(COMPONENT, MIGRATIONS)

    def _within(self, script: str, deadline_s: float, act: Callable[[Statements], T], *, write: bool) -> T:
        timeout_s = deadline_s - time.monotonic()
        with self._database.transaction(write=write, timeout_s=timeout_s) as connection:
            timeout_ms = max(1, round((deadline_s - time.monotonic()) * 1000))
            connection.execute(f"SET LOCAL lock_timeout = {timeout_ms}")
            connection.execute(f"SET LOCAL statement_timeout = {timeout_ms}")
            if write:
                connection.execute("SELECT pg_advisory_xact_lock(8, hashtext(?))", (script,))
            result = act(connection)
            if time.monotonic() > deadline_s:
                raise Busy("context.store: the database takes too long; try again")
            return result
