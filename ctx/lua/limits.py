"""Limits of a script call: its deadline, the threads for its host calls, and its share of the pool."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from ctx.errors import Busy

T = TypeVar("T")
_CANCEL_CHECK_S = 0.02  # how often a wait looks at the cancel event
_THREAD_WAIT_S = 1.0  # shorter than most deadlines: when all threads hang, the caller gets an error early
_MIN_SHARED = 4  # a smaller total is not divided into shares


class DeadlinePassed(Exception):
    """The deadline has passed."""


class Cancelled(Exception):
    """The caller cancelled the call."""


class Deadline:
    """The end of a call (`at_s`, on the clock of `time.monotonic()`) and an event that cancels it."""

    __slots__ = ("at_s", "cancel")

    def __init__(self, timeout_s: float, cancel: threading.Event | None = None) -> None:
        self.at_s = time.monotonic() + timeout_s
        self.cancel = cancel

    def step_s(self) -> float:
        """How long the next wait may last. Raises `DeadlinePassed` or `Cancelled`."""
        left_s = self.at_s - time.monotonic()
        if left_s <= 0:
            raise DeadlinePassed
        if self.cancel is None:
            return left_s
        if self.cancel.is_set():
            raise Cancelled
        return min(left_s, _CANCEL_CHECK_S)


class DeadlineThreads:
    """Runs functions with a deadline, at most `most` at a time, each in a thread of its own.

    A thread cannot be killed: when a call overruns, the caller goes on and the thread lives until the
    function returns. The threads are daemons (unlike those of `concurrent.futures`), so an abandoned call
    does not keep the process alive.
    """

    def __init__(self, most: int) -> None:
        self._free = threading.Semaphore(most)

    def call(self, function: Callable[[], T], deadline: Deadline) -> T:
        """Return what `function` returns, or raise what it raises.

        Raises `DeadlinePassed` or `Cancelled` when that comes first, and `Busy` when no thread is free.
        """
        if not self._free.acquire(timeout=min(deadline.step_s(), _THREAD_WAIT_S)):
            deadline.step_s()  # the deadline may have come first
            raise Busy("all host calls of the sandbox are busy; try again")
        answers: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

        def run() -> None:
            value, failure = None, None
            try:
                value = function()
            except BaseException as error:
                failure = error
            self._free.release()  # before the answer: the caller's next call finds this thread free
            answers.put((value, failure))

        threading.Thread(target=run, name="lua-host-call", daemon=True).start()
        while True:
            try:
                value, error = answers.get(timeout=deadline.step_s())
            except Empty:
                continue
            if error is not None:
                raise error
            result: T = value
            return result


class Shares:
    """Divides `total` slots: one tool may hold half of them, one caller three quarters.

    So a tool that hangs leaves half of the slots to the others. The limits also apply when nobody else is
    waiting, because a script cannot give its slot back early. "" is a tool or caller without a limit.
    Not thread-safe: the owner holds a lock.
    """

    def __init__(self, total: int) -> None:
        self._per_tool = total if total < _MIN_SHARED else total // 2
        self._per_caller = total if total < _MIN_SHARED else total * 3 // 4
        self._tools: Counter[str] = Counter()
        self._callers: Counter[str] = Counter()

    def allow(self, tool: str, caller: str) -> bool:
        """Whether both may hold one more slot."""
        return (not tool or self._tools[tool] < self._per_tool) and (
            not caller or self._callers[caller] < self._per_caller
        )

    def acquire(self, tool: str, caller: str) -> None:
        self._tools[tool] += 1
        self._callers[caller] += 1

    def release(self, tool: str, caller: str) -> None:
        for counts, name in ((self._tools, tool), (self._callers, caller)):
            counts[name] -= 1
            if not counts[name]:
                del counts[name]  # callers come and go; their names must not accumulate
