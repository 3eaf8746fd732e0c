"""Calls with a deadline: the answer in time, or the caller goes on without it.

A thread cannot be killed. A call that overruns is abandoned: its thread is lost until the function returns by
itself, and the set of threads is bounded so that a source which hangs for ever cannot fill the process with
them.
"""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from ctx.errors import Busy
from ctx.lua.frames import Deadline

T = TypeVar("T")
_PATIENCE_S = 1.0  # when all threads hang, a caller is told so rather than left to its own deadline
_Outcome = tuple[Any, BaseException | None]


class DeadlineThreads:
    """At most `most` daemon threads, started as needed, that run functions for callers who may not wait for
    ever.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._idle: list[_Thread] = []
        self._count = 0
        self._freed = threading.Condition()

    def call(self, function: Callable[[], T], deadline: Deadline) -> T:
        """What `function` returns or raises. Raises `DeadlinePassed` or `Cancelled` at once when that comes
        first, and `Busy` when no thread was free in all that time."""
        thread = self._take(deadline)
        answers: SimpleQueue[_Outcome] = SimpleQueue()
        thread.tasks.put((function, answers))
        while True:
            try:
                value, error = answers.get(timeout=deadline.step_s())
            except Empty:
                continue
            if error is not None:
                raise error
            result: T = value
            return result

    def close(self) -> None:
        """Ends the idle threads; an abandoned one ends when its function returns."""
        with self._freed:
            self._most = 0
            for thread in self._idle:
                thread.tasks.put(None)
            self._idle.clear()

    def _take(self, deadline: Deadline) -> "_Thread":
        try:
            return self._idle.pop()
        except IndexError:
            pass
        with self._freed:
            free = self._freed.wait_for(
                lambda: self._idle or self._count < self._most, min(deadline.step_s(), _PATIENCE_S)
            )
            if not free:
                # the wait may have been cut short by the deadline: then that is what came first
                deadline.step_s()
                raise Busy("every host call of the sandbox is waiting for something; try again")
            if self._idle:
                return self._idle.pop()
            self._count += 1
        thread = _Thread(self._rest)
        thread.start()
        return thread

    def _rest(self, thread: "_Thread") -> bool:
        with self._freed:
            if self._count > self._most:
                self._count -= 1
                return False
            self._idle.append(thread)
            self._freed.notify()
            return True


class _Thread(threading.Thread):
    def __init__(self, rest: Callable[["_Thread"], bool]) -> None:
        super().__init__(name="lua-host-call", daemon=True)
        self.tasks: SimpleQueue[tuple[Callable[[], Any], SimpleQueue[_Outcome]] | None] = SimpleQueue()
        self._rest = rest

    def run(self) -> None:
        while (task := self.tasks.get()) is not None:
            function, answers = task
            outcome: _Outcome
            try:
                outcome = (function(), None)
            except BaseException as error:
                outcome = (None, error)
            resting = self._rest(self)  # before the answer: the caller's next call shall find this thread
            answers.put(outcome)
            del task, function, answers, outcome  # or an idle thread would hold the last answer
            if not resting:
                return
