"""Rate limits: how many calls a caller may make per minute."""

import sqlite3
import threading
import time
from collections.abc import Callable

from ctx.errors import RateLimited

WINDOW_S = 60.0


class Window:
    """Allows at most `limit` calls per caller in any `WINDOW_S` seconds; 0 means no limit. Thread-safe.

    The calls are counted in an SQLite file, which the worker processes of a server share, or in memory if
    `path` is None. `name` separates several limits in one file. `refusal` replaces the usual error message.
    """

    def __init__(
        self,
        limit: int,
        path: str | None = None,
        name: str = "",
        *,
        refusal: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.limit = limit
        self._name = name
        self._refusal = refusal
        self._clock = clock
        self._lock = threading.Lock()
        self._database = sqlite3.connect(
            path or ":memory:", timeout=10, isolation_level=None, check_same_thread=False
        )
        self._database.executescript(
            "PRAGMA journal_mode = WAL;"
            "PRAGMA synchronous = OFF;"  # a crash may forget a minute's calls
            "CREATE TABLE IF NOT EXISTS call (caller TEXT, number INTEGER, called_s REAL,"
            " PRIMARY KEY (caller, number)) WITHOUT ROWID;"
            "CREATE INDEX IF NOT EXISTS call_time ON call (called_s);"
        )

    def __del__(self) -> None:
        if hasattr(self, "_database"):
            self._database.close()

    def spend(self, caller: str) -> None:
        """Count a call. Raises `RateLimited` above the limit; a refused call does not count."""
        if not self.limit:
            return
        key = self._key(caller)
        with self._lock:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                now_s = self._clock()
                first, last = self._recent(key, now_s)
                if last - first >= self.limit:
                    called_s = self._database.execute(
                        "SELECT called_s FROM call WHERE caller = ? AND number = ?", (key, first)
                    ).fetchone()[0]
                    raise RateLimited(
                        self._refusal or f"more than {self.limit} calls in {WINDOW_S:g} s",
                        retry_after_s=called_s + WINDOW_S - now_s,
                        data={"limit": self.limit},
                    )
                self._database.execute("INSERT INTO call VALUES (?, ?, ?)", (key, last, now_s))
            finally:
                self._database.execute("COMMIT")

    def current(self, caller: str) -> int:
        """The number of the caller's calls in the last `WINDOW_S` seconds."""
        with self._lock:
            first, last = self._recent(self._key(caller), self._clock())
            return last - first

    def _key(self, caller: str) -> str:
        return f"{self._name} {caller}"

    def _recent(self, key: str, now_s: float) -> tuple[int, int]:
        """Delete old calls. Returns the number of the first call in the window, and the number for the next
        call.
        """
        self._database.execute("DELETE FROM call WHERE called_s <= ?", (now_s - WINDOW_S,))
        # Two queries instead of count(*), because their time does not grow with the limit.
        numbers = [
            self._database.execute(f"SELECT {edge}(number) FROM call WHERE caller = ?", (key,)).fetchone()[0]
            for edge in ("min", "max")
        ]
        return (0, 0) if numbers[0] is None else (numbers[0], numbers[1] + 1)
