"""API keys in PostgreSQL: a key that is made or revoked on one machine counts on all within a second."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ctx.cluster.postgres import Database
from ctx.errors import StoreError
from ctx.server.keys import COMPONENT, MIGRATIONS, Keys, records_in
from ctx.store.record import Statements

logger = logging.getLogger(__name__)

FRESH_S = 1.0  # how old the keys in memory may be
_WAIT_S = 2.0  # for a connection; meanwhile the keys that were read last count


class SharedKeyRing(Keys):
    """The keys in a database."""

    def __init__(self, database: Database) -> None:
        """Closing this closes the database too. Raises `StoreError`, `Busy`."""
        super().__init__()
        self._database = database
        self._ending = threading.Event()
        self._following: threading.Thread | None = None
        self._read_s = 0.0
        try:
            database.migrate(COMPONENT, MIGRATIONS)
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
        # A thread of its own: a request must not wait for a database that is away.
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
