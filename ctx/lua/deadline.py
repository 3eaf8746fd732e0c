"""Run functions with a deadline: the caller gets the answer in time, or goes on without it.

A thread cannot be killed. A call that overruns is abandoned: its thread lives until the function returns. The
number of threads is bounded, so that a source that hangs for ever cannot fill the process with them. They are
daemons, which those of `concurrent.futures` are not: an abandoned call must not keep the process alive.
"""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from ctx.errors import Busy
from ctx.lua.frames import Deadline

T = TypeVar("T")
_PATIENCE_S = 1.0  # when all threads hang, the caller is told so before its own deadline


class DeadlineThreads:
    """At most `most` calls at a time, each on a thread of its own."""

    def __init__(self, most: int) -> None:
        self._free = threading.Semaphore(most)

    def call(self, function: Callable[[], T], deadline: Deadline) -> T:
        """What `function` returns or raises. Raises `DeadlinePassed` or `Cancelled` at once when that comes
        first, and `Busy` when no thread was free in all that time."""
        if not self._free.acquire(timeout=min(deadline.step_s(), _PATIENCE_S)):
            deadline.step_s()  # the deadline may have come first
            raise Busy("every host call of the sandbox is waiting for something; try again")
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
