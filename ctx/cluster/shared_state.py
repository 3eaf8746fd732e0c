"""API keys, script values and the activity log in PostgreSQL."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from ctx.cluster.postgres import Database
from ctx.errors import Busy, StoreError
from ctx.memory import activity
from ctx.memory.activity import Activity
from ctx.scripts.store import COMPONENT, ScriptStore
from ctx.server import keys
from ctx.server.keys import Keys, records_in
from ctx.store.record import Statements

logger = logging.getLogger(__name__)

T = TypeVar("T")

FRESH_S = 1.0  # the keys in memory are read again after this time
_WAIT_S = 2.0  # the longest wait for a connection; meanwhile the keys that were read last are used

SCRIPT_VALUES = (
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


class SharedKeyRing(Keys):
    """The API keys in a shared database. A key that one machine creates or revokes takes effect on all
    machines within a second.
    """

    def __init__(self, database: Database) -> None:
        """`close` also closes the database. Raises `StoreError`, `Busy`."""
        super().__init__()
        self._database = database
        self._ending = threading.Event()
        self._following: threading.Thread | None = None
        self._read_s = 0.0
        try:
            database.migrate(keys.COMPONENT, keys.MIGRATIONS)
            self._read()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._ending.set()
        if self._following is not None:
            self._following.join()
        self._database.close()

    def follow(self) -> None:
        # Reads the keys in a separate thread, so that no request waits for an unreachable database.
        if self._following is None:
            self._following = threading.Thread(target=self._follow, name="ctx-keys", daemon=True)
            self._following.start()

    def _follow(self) -> None:
        reached = True
        while not self._ending.wait(FRESH_S):
            try:
                self._read()
                reached = True
            except StoreError as error:
                if reached:
                    logger.error("keys database=away kept=%d reason=%s", len(self._records), error.message)
                reached = False

    def _refresh(self) -> None:
        if self._following is None and time.monotonic() - self._read_s > FRESH_S:
            self._read()

    def _read(self) -> None:
        with self._database.transaction(timeout_s=_WAIT_S) as connection:
            self._take(records_in(connection))
        self._read_s = time.monotonic()

    @contextmanager
    def _writing(self) -> Iterator[Statements]:
        with self._database.transaction(write=True) as connection:
            connection.execute("LOCK TABLE api_key IN SHARE ROW EXCLUSIVE MODE")
            yield connection
        self._read()


def shared_activity(database: Database) -> Activity:
    """The activity log in a shared database, which the caller must close. Raises `StoreError`."""
    table = activity.TABLE.format(key="BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY")
    database.migrate(activity.COMPONENT, (table,))
    return Activity(lambda: database.transaction(write=True))


class SharedScriptStore(ScriptStore):
    """The script values in a shared database, which the caller must close. Raises `StoreError`, `Busy`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        database.migrate(COMPONENT, SCRIPT_VALUES)

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
