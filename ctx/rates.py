"""How often a caller may call."""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable

from ctx.refusals import RateLimited

WINDOW_S = 60.0
CALLERS = 10_000  # remembered; beyond it the one longest silent is forgotten


class SlidingWindow:
    """At most `limit` calls in any `WINDOW_S` for each caller; 0: no limit. Safe from several threads.

    `refusal` is what whoever calls too often is told, in place of the figures.
    """

    def __init__(
        self,
        limit: int,
        *,
        refusal: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit = limit
        self._refusal = refusal or f"more than {limit} calls in {WINDOW_S:g} s"
        self._clock = clock
        self._lock = threading.Lock()
        self._calls: OrderedDict[str, deque[float]] = OrderedDict()

    def spend(self, caller: str) -> None:
        """Counts a call. Raises `RateLimited`; a refused call does not count."""
        if not self.limit:
            return
        with self._lock:
            now_s = self._clock()
            calls = self._recent(caller, now_s)
            if len(calls) >= self.limit:
                wait_s = calls[0] + WINDOW_S - now_s
                raise RateLimited(self._refusal, retry_after_s=wait_s, data={"limit": self.limit})
            calls.append(now_s)

    def current(self, caller: str) -> int:
        """Calls of the caller within the window."""
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
