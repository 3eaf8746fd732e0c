"""Rate limits: how often a caller may call."""

import sqlite3
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Protocol

from ctx.errors import RateLimited

WINDOW_S = 60.0
CALLERS = 10_000  # remembered; beyond it the one longest silent is forgotten


class Window(Protocol):
    """At most `limit` calls of each caller in any `WINDOW_S`; 0: no limit. Safe from several threads."""

    limit: int

    def spend(self, caller: str) -> None:
        """Counts a call. Raises `RateLimited`; a refused call does not count."""
        ...

    def current(self, caller: str) -> int:
        """Calls of the caller within the window."""
        ...


class SlidingWindow:
    """A window in memory, for one process. `refusal` replaces the usual message of the error."""

    def __init__(
        self,
        limit: int,
        *,
        refusal: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit = limit
        self._refusal = refusal
        self._clock = clock
        self._lock = threading.Lock()
        self._calls: OrderedDict[str, deque[float]] = OrderedDict()

    def spend(self, caller: str) -> None:
        if not self.limit:
            return
        with self._lock:
            now_s = self._clock()
            calls = self._recent(caller, now_s)
            if len(calls) >= self.limit:
                raise _limited(self.limit, calls[0] + WINDOW_S - now_s, self._refusal)
            calls.append(now_s)

    def current(self, caller: str) -> int:
        with self._lock:
            return len(self._recent(caller, self._clock()))

    def _recent(self, caller: str, now_s: float) -> deque[float]:
        calls = self._calls.setdefault(caller, deque())
        self._calls.move_to_end(caller)
        if len(self._calls) > CALLERS:
            self._calls.popitem(last=False)
        while calls and calls[0] <= now_s - WINDOW_S:
            calls.popleft()
        return calls


class SharedWindow:
    """A window in an SQLite file, shared by the worker processes of a server. `name` keeps apart several
    windows in one file.
    """

    def __init__(
        self,
        path: str,
        name: str,
        limit: int,
        *,
        refusal: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.limit = limit
        self._name = name
        self._refusal = refusal
        self._clock = clock
        self._lock = threading.Lock()
        self._database = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = OFF")  # a crash may forget a minute's calls
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS call (caller TEXT, number INTEGER, called_s REAL,"
            " PRIMARY KEY (caller, number)) WITHOUT ROWID"
        )
        self._database.execute("CREATE INDEX IF NOT EXISTS call_time ON call (called_s)")

    def spend(self, caller: str) -> None:
        if not self.limit:
            return
        with self._lock:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                now_s = self._clock()
                first, last = self._recent(caller, now_s)
                if last - first >= self.limit:
                    wait_s = self._called_s(caller, first) + WINDOW_S - now_s
                    raise _limited(self.limit, wait_s, self._refusal)
                self._database.execute("INSERT INTO call VALUES (?, ?, ?)", (self._key(caller), last, now_s))
            finally:
                self._database.execute("COMMIT")

    def current(self, caller: str) -> int:
        with self._lock:
            first, last = self._recent(caller, self._clock())
            return last - first

    def close(self) -> None:
        self._database.close()

    def _key(self, caller: str) -> str:
        return f"{self._name} {caller}"

    def _recent(self, caller: str, now_s: float) -> tuple[int, int]:
        """The numbers of the caller's first call in the window and of the next one; older calls go."""
        self._database.execute("DELETE FROM call WHERE called_s <= ?", (now_s - WINDOW_S,))
        # Two queries and not a count: each takes the same time whatever the limit.
        numbers = [
            self._database.execute(
                f"SELECT {edge}(number) FROM call WHERE caller = ?", (self._key(caller),)
            ).fetchone()[0]
            for edge in ("min", "max")
        ]
        return (0, 0) if numbers[0] is None else (numbers[0], numbers[1] + 1)

    def _called_s(self, caller: str, number: int) -> float:
        row = self._database.execute(
            "SELECT called_s FROM call WHERE caller = ? AND number = ?", (self._key(caller), number)
        ).fetchone()
        return float(row[0])


def open_window(path: str | None, name: str, limit: int, refusal: str = "") -> Window:
    """A window in that file, or in memory without a file."""
    if path is None or not limit:
        return SlidingWindow(limit, refusal=refusal)
    return SharedWindow(path, name, limit, refusal=refusal)


def _limited(limit: int, wait_s: float, refusal: str) -> RateLimited:
    message = refusal or f"more than {limit} calls in {WINDOW_S:g} s"
    return RateLimited(message, retry_after_s=wait_s, data={"limit": limit})
