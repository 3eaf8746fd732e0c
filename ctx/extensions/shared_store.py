"""What scripts keep between calls, in the database that servers share."""

import time
from collections.abc import Callable
from typing import TypeVar

from ctx.errors import Busy
from ctx.extensions.store import ScriptStore
from ctx.store.postgres import Database
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
_LOCKS = 8  # the first half of the numbers by which scripts are locked


class SharedScriptStore(ScriptStore):
    """The values in a database, which is somebody else's to close. Raises `StoreError`, `Busy`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        database.migrate(COMPONENT, MIGRATIONS)

    def _within(self, script: str, deadline_s: float, act: Callable[[Statements], T], *, write: bool) -> T:
        patience_s = deadline_s - time.monotonic()
        with self._database.transaction(write=write, patience_s=patience_s) as connection:
            patience_ms = max(1, round((deadline_s - time.monotonic()) * 1000))
            connection.execute(f"SET LOCAL lock_timeout = {patience_ms}")
            connection.execute(f"SET LOCAL statement_timeout = {patience_ms}")
            if write:
                connection.execute("SELECT pg_advisory_xact_lock(?, hashtext(?))", (_LOCKS, script))
            result = act(connection)
            if time.monotonic() > deadline_s:
                raise Busy("context.store: the database takes too long; try again")
            return result
