"""Sessions of a pack's clients: who is who across restarts, and what little each remembers.

One session a connection: a pipe's is resumed by the next process in the same project, an HTTP one is the MCP session's. The file is a list of
`[id, data]`, as Claude Recall keeps it, and may belong to the real product too: entries that are not ours are kept as they are.
"""

import fcntl
import json
import logging
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ctx.errors import RateLimited, StoreError
from ctx.types import JSON

logger = logging.getLogger(__name__)

ACTIVE_MS = 5 * 60_000  # a session seen within five minutes is active
SAVE_EVERY_MS = 5_000  # a call's time is worth a write that often; anything else is saved at once
MAX_SESSIONS = 10_000


class Sessions:
    """The sessions of one pack. Safe from several threads and processes."""

    def __init__(self, path: str | None, *, clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        """`path` None: kept in memory only."""
        self._path = path
        self._clock = clock
        self._lock = threading.RLock()
        self._known: dict[str, dict[str, JSON]] = {}
        self._saved_ms = 0
        for id, data in self._read():
            self._known[id] = data

    def open(self, id: str | None, *, place: str | None = None) -> str:
        """The session of that id, of this place (a project folder) if it has one, or a new one."""
        with self._lock:
            if id is None and place is not None:
                mine = [
                    (data.get("lastActivity", 0), known) for known, data in self._known.items() if data.get("project") == place
                ]
                id = max(mine)[1] if mine else None
            id = id or f"session_{self._clock()}_{secrets.token_hex(4)}"
            now_ms = self._clock()
            fresh = id not in self._known
            data = self._known.setdefault(id, {"id": id, "startTime": now_ms, "toolCalls": 0})
            data["lastActivity"] = now_ms
            if place is not None:
                data["project"] = place
            if fresh:
                self._trim()
                self._save()
            return id

    def touch(self, id: str) -> None:
        """Counts a call of the session."""
        with self._lock:
            data = self._known.setdefault(id, {"id": id, "startTime": self._clock(), "toolCalls": 0})
            data["lastActivity"] = self._clock()
            data["toolCalls"] = int(data.get("toolCalls", 0)) + 1
            if self._clock() - self._saved_ms > SAVE_EVERY_MS:
                self._save()

    def data(self, id: str) -> dict[str, JSON]:
        with self._lock:
            return dict(self._known.get(id, {}))

    def get(self, id: str, key: str) -> JSON:
        with self._lock:
            kept = self._known.get(id, {}).get("kv", {})
            return kept.get(key) if isinstance(kept, dict) else None

    def set(self, id: str, key: str, value: JSON) -> None:
        """Keeps a value with the session, durably. Raises `StoreError`."""
        with self._lock:
            kept = self._known.setdefault(id, {"id": id, "startTime": self._clock(), "toolCalls": 0}).setdefault("kv", {})
            kept[key] = value
            self._save()

    def counts(self) -> tuple[int, int]:
        """How many there are, and how many were active in the last five minutes."""
        with self._lock:
            now_ms = self._clock()
            active = sum(now_ms - int(data.get("lastActivity", 0)) < ACTIVE_MS for data in self._known.values())
            return len(self._known), active

    def close(self) -> None:
        with self._lock:
            self._save()

    def _trim(self) -> None:
        while len(self._known) > MAX_SESSIONS:
            oldest = min(self._known, key=lambda id: self._known[id].get("lastActivity", 0))
            del self._known[oldest]

    def _read(self) -> list[tuple[str, dict[str, JSON]]]:
        if self._path is None:
            return []
        try:
            with open(self._path, encoding="utf-8") as file:
                loaded = json.load(file)
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            logger.warning(
                "the sessions file is not readable and is left alone file=%s reason=%s", os.path.basename(self._path), error
            )
            return []
        return [(entry[0], entry[1]) for entry in loaded if _is_entry(entry)] if isinstance(loaded, list) else []

    def _save(self) -> None:
        if self._path is None or not self._known:
            return
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            with self._locked():
                # What another process (or the real product) has written since is kept; ours win for our own.
                merged = {**dict(self._read()), **self._known}
                partial = f"{self._path}.partial-{os.getpid()}"
                with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                    json.dump([[id, data] for id, data in merged.items()], file)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(partial, self._path)
            self._saved_ms = self._clock()
        except OSError as error:
            raise StoreError(f"the sessions cannot be saved: {error.strerror}") from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _is_entry(entry: JSON) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) and isinstance(entry[1], dict)


class Rate:
    """At most `limit` calls in any `window_s` for each session: a log of times, so that it slides. 0 means no limit."""

    def __init__(self, limit: int, window_s: float = 60.0, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self.window_s = window_s
        self._clock = clock
        self._lock = threading.Lock()
        self._calls: dict[str, deque[float]] = {}

    def spend(self, session: str) -> None:
        """Counts a call. Raises `RateLimited`; a refused call does not count."""
        if not self.limit:
            return
        with self._lock:
            calls = self._recent(session)
            if len(calls) >= self.limit:
                wait_s = calls[0] + self.window_s - self._clock()
                raise RateLimited("Rate limit exceeded", retry_after_s=wait_s, data={"limit": self.limit})
            calls.append(self._clock())

    def current(self, session: str) -> int:
        """Calls of the session within the window."""
        with self._lock:
            return len(self._recent(session))

    def _recent(self, session: str) -> deque[float]:
        if len(self._calls) > MAX_SESSIONS:
            self._calls = {id: calls for id, calls in self._calls.items() if calls and calls[-1] > self._clock() - self.window_s}
        calls = self._calls.setdefault(session, deque())
        while calls and calls[0] <= self._clock() - self.window_s:
            calls.popleft()
        return calls
