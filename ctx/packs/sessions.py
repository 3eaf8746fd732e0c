"""Sessions of a pack's clients: who is who across restarts, and what little each remembers.

One session a connection: a pipe's is resumed by the next process in the same project, an HTTP one is the MCP
session's. The file is a list of `[id, data]`, as Claude Recall keeps it, and may belong to the real product
too: entries that are not ours are kept as they are.
"""

import json
import logging
import secrets
import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from ctx import file_writing, files
from ctx.clock import now_ms
from ctx.errors import StoreError
from ctx.types import JSON, as_table, is_number

logger = logging.getLogger(__name__)

ACTIVE_MS = 5 * 60_000  # a session seen within five minutes is active
IDLE_MS = 24 * 3600_000  # after which a place's next connection begins a session of its own
SAVE_EVERY_MS = 5_000  # a call's time is worth a write that often; anything else is saved at once
MAX_SESSIONS = 10_000


class Sessions(Protocol):
    """The sessions of one pack. Safe from several threads and processes."""

    def open(self, id: str | None, *, place: str | None = None) -> str:
        """The session of that id, else the last of this place (a project folder), else a new one."""
        ...

    def touch(self, id: str) -> None:
        """Counts a call of the session."""
        ...

    def data(self, id: str) -> dict[str, JSON]:
        """What is known of a session: `id`, `startTime`, `lastActivity`, `toolCalls`, `project`, `kv`; {} of
        none.
        """
        ...

    def get(self, id: str, key: str) -> JSON:
        """What is kept with the session under a key; None: nothing."""
        ...

    def set(self, id: str, key: str, value: JSON) -> None:
        """Keeps a value with the session, durably. Raises `StoreError`."""
        ...

    def counts(self) -> tuple[int, int]:
        """How many there are, and how many were active in the last five minutes."""
        ...

    def all(self) -> list[dict[str, JSON]]:
        """What is known of each session, as `data` gives it."""
        ...

    def take_over(self, entries: Iterable[dict[str, JSON]]) -> None:
        """Keeps sessions that another store gave as `all`, in place of those of the same id.
        Raises `StoreError`.
        """
        ...

    def close(self) -> None:
        """Saves what is not. Raises `StoreError`."""
        ...


OpenSessions = Callable[[str, str | None], Sessions]
"""`open_sessions(pack, path)`: `path` is where a pack's file of them would be, None where it keeps none."""


def new_id(present_ms: int) -> str:
    """The name of a new session."""
    return f"session_{present_ms}_{secrets.token_hex(4)}"


class FileSessions:
    """The sessions in a file."""

    def __init__(self, path: str | None, *, clock: Callable[[], int] = now_ms) -> None:
        """`path` None: kept in memory only."""
        self._path = path
        self._clock = clock
        self._lock = threading.RLock()
        self._known: dict[str, dict[str, JSON]] = {}
        self._changed: set[str] = set()  # since the last save
        self._forgotten: set[str] = set()
        self._saved_ms = 0
        self._learn()

    def open(self, id: str | None, *, place: str | None = None) -> str:
        with self._lock:
            match = self._find(id, place)
            if match is None:
                self._learn()  # another process may have begun it
                match = self._find(id, place)
            present_ms = self._clock()
            id = match or id or new_id(present_ms)
            data = self._session(id)
            data["lastActivity"] = present_ms
            if place is not None:
                data["project"] = place
            if match is None:
                self._trim()
                self._save_if_possible()
            return id

    def touch(self, id: str) -> None:
        with self._lock:
            data = self._session(id)
            data["lastActivity"] = self._clock()
            calls = data.get("toolCalls")
            data["toolCalls"] = (calls if isinstance(calls, int) else 0) + 1
            if self._clock() - self._saved_ms > SAVE_EVERY_MS:
                self._save_if_possible()

    def data(self, id: str) -> dict[str, JSON]:
        with self._lock:
            return dict(self._known.get(id, {}))

    def get(self, id: str, key: str) -> JSON:
        with self._lock:
            return as_table(self._known.get(id, {}).get("kv")).get(key)

    def set(self, id: str, key: str, value: JSON) -> None:
        with self._lock:
            values = self._session(id).setdefault("kv", {})
            values[key] = value
            self._save()

    def counts(self) -> tuple[int, int]:
        with self._lock:
            present_ms = self._clock()
            active = sum(present_ms - _activity_ms(data) < ACTIVE_MS for data in self._known.values())
            return len(self._known), active

    def all(self) -> list[dict[str, JSON]]:
        with self._lock:
            return [{**data, "id": id} for id, data in self._known.items()]

    def take_over(self, entries: Iterable[dict[str, JSON]]) -> None:
        with self._lock:
            for data in entries:
                self._known[str(data["id"])] = data
                self._changed.add(str(data["id"]))
            self._save()

    def close(self) -> None:
        with self._lock:
            self._save()

    def _find(self, id: str | None, place: str | None) -> str | None:
        if id is not None:
            return id if id in self._known else None
        mine = [
            (_activity_ms(data), session)
            for session, data in self._known.items()
            if place and data.get("project") == place and self._clock() - _activity_ms(data) < IDLE_MS
        ]
        return max(mine)[1] if mine else None

    def _session(self, id: str) -> dict[str, JSON]:
        self._changed.add(id)
        return self._known.setdefault(id, {"id": id, "startTime": self._clock(), "toolCalls": 0})

    def _trim(self) -> None:
        while len(self._known) > MAX_SESSIONS:
            oldest = min(self._known, key=lambda id: _activity_ms(self._known[id]))
            del self._known[oldest]
            self._forgotten.add(oldest)

    def _learn(self) -> None:
        try:
            entries = self._entries()
        except (OSError, ValueError) as error:
            logger.warning(
                "the sessions file is not readable and is left alone path=%s reason=%s", self._path, error
            )
            return
        for entry in entries:
            if _is_entry(entry):
                self._known.setdefault(entry[0], entry[1])

    def _entries(self) -> list[JSON]:
        """What the file holds. Raises `OSError`, or `ValueError` where it is not a list of sessions."""
        if self._path is None:
            return []
        try:
            loaded = json.loads(files.read_file(self._path))
        except FileNotFoundError:
            return []
        if not isinstance(loaded, list):
            raise ValueError("not a list")
        return loaded

    def _save_if_possible(self) -> None:
        try:
            self._save()
        except StoreError as error:
            # When somebody was last seen is not worth a memory that is not stored.
            logger.warning("%s", error.message)
            self._saved_ms = self._clock()

    def _revised(self, entries: Iterable[JSON]) -> list[JSON]:
        """Entries of the file with ours in their places; what another process or the real product keeps there
        stays as it is.
        """
        ours = {id: self._known[id] for id in sorted(self._changed) if id in self._known}
        revised: list[JSON] = []
        for entry in entries:
            id = entry[0] if _is_entry(entry) else None
            if id is None or id not in self._forgotten:
                revised.append(entry if id is None or id not in ours else [id, ours.pop(id)])
        return revised + [[id, data] for id, data in ours.items()]

    def _save(self) -> None:
        if self._path is None or not self._changed:
            return
        try:
            with file_writing.locked(self._path):
                file_writing.replace(self._path, json.dumps(self._revised(self._entries())).encode())
            self._changed.clear()
            self._forgotten.clear()
            self._saved_ms = self._clock()
        except (OSError, ValueError) as error:
            raise StoreError(f"the sessions cannot be saved: {error}") from error


def _is_entry(entry: JSON) -> bool:
    return (
        isinstance(entry, list)
        and len(entry) == 2
        and isinstance(entry[0], str)
        and isinstance(entry[1], dict)
    )


def _activity_ms(data: dict[str, JSON]) -> float:
    """When a session was last seen; the real product's may say it otherwise."""
    value = data.get("lastActivity", 0)
    return value if is_number(value) else 0
