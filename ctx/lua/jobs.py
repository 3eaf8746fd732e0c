"""Run one job over a worker's channel: answer its host calls, yield its items, and enforce the deadline.

The worker may be hostile and send anything.
"""

import functools
import logging
import math
import os
import re
import threading
import time
from collections.abc import Callable, Generator
from queue import Empty, SimpleQueue
from typing import NamedTuple

import orjson

from ctx.errors import AccessError, BadRequest, Busy, CtxError, NotFound, StoreError, ToolError
from ctx.lua.frames import (
    HOST_CALL,
    JOB,
    MAX_FRAME_BYTES,
    REPLY,
    Channel,
    Deadline,
    DeadlinePassed,
    FrameError,
    ItemProblem,
)
from ctx.models import JSON, as_table
from ctx.text.strings import one_line

logger = logging.getLogger(__name__)

Host = Callable[[str, bytes, float], bytes]

MAX_LOG_LINES = 1000
MAX_LOG_BYTES = 1 << 20
MAX_LOG_LINE = 2000
MAX_MESSAGE = 2000  # a script's error message is cut to this many characters for the caller

_LAST_MOMENT_S = 0.02
_THREAD_WAIT_S = 1.0  # the longest wait for a free thread; short, so that the caller gets `Busy` early
# Kind of an error that a script raises with `error.throw` -> exception that the caller gets. Only scripts
# with the grant "memory" may use `error.throw`.
KINDS: dict[str, type[CtxError]] = {
    "not_found": NotFound,
    "invalid_params": BadRequest,
    "conflict": BadRequest,
    "forbidden": AccessError,
    "storage": StoreError,
}


class Job(NamedTuple):
    """One call into one script.

    `name` is for messages and the log. `arguments` and `context` are JSON; `context` becomes the script's
    `context` table. `trust` is "operator" for scripts that the configuration names, else "untrusted".
    `output_schema` is the JSON Schema that the result is fitted to. `caller` identifies who called, "" if
    unknown: one caller, and one script, may use only a share of the pool (`Shares`). `ends_s` is the time at
    which the caller stops waiting, even for a worker, on the clock of `time.monotonic()`.
    """

    name: str
    source: bytes
    entry: str
    arguments: bytes
    context: bytes
    grants: frozenset[str]
    trust: str
    kind: str = "tool"
    output_schema: JSON | None = None
    caller: str = ""
    ends_s: float = math.inf

    @property
    def shown(self) -> str:
        """The script's name in messages."""
        return f"{self.kind} '{self.name}'"

    @property
    def level(self) -> int:
        """The log level for a failure. A connector's failure is also logged with its source."""
        return logging.DEBUG if self.kind == "connector" else logging.INFO


@functools.cache
def _path_pattern() -> re.Pattern[str]:
    """Matches a path on this machine: below a top-level folder, and not part of a URL or a longer word."""
    tops = "|".join(map(re.escape, sorted(os.listdir("/"))))
    return re.compile(rf"(?<![\w./:-])/(?:{tops})(?:/[^\s'\":;,()\[\]]*)+")


def without_paths(text: str) -> str:
    """The text with paths on this machine cut to their last part, because a remote caller may read it."""
    return _path_pattern().sub(lambda match: ".../" + match[0].rstrip("/").rpartition("/")[2], text)


class RunningJob:
    """A job that a worker runs. `threads` limits how many threads of the whole pool answer host calls."""

    def __init__(self, job: Job, host: Host, deadline: Deadline, threads: threading.Semaphore) -> None:
        self._job = job
        self._host = host
        self._deadline = deadline
        self._threads = threads
        self._log_lines = self._log_bytes = 0

    def run(self, channel: Channel, message: bytes) -> Generator[JSON, None, JSON]:
        """Send the job, yield a scan's items, and return the result.

        The time that the caller takes for an item does not count towards the script's deadline. Raises
        `DeadlinePassed`, `FrameError`, `WorkerGone`, `Busy` when no thread is free for a host call, and the
        script's own error as a `CtxError`.
        """
        deadline = self._deadline
        channel.send(JOB, message, deadline)
        while True:
            letter, payload = channel.receive(deadline)
            if channel.unread:
                raise FrameError("the worker sent a second frame before the first was answered")
            if letter != HOST_CALL:
                return self._result(payload)
            operation, _, argument = payload.partition(b"\0")
            name = operation.decode("ascii", "replace")
            if name in ("emit", "emit_problem"):
                began_s = time.monotonic()
                yield _parse_item(name, argument)
                deadline.ends_s += time.monotonic() - began_s
                answer = b"+"
            elif name == "log":
                answer = self._log(argument)
            elif name == "sleep":
                answer = _sleep(argument, deadline)
            elif name == "time.now":
                answer = b"+%d" % (time.time_ns() // 1_000_000)
            else:
                answer = self._host_call(name, argument)
            channel.send(REPLY, answer, deadline)

    def _log(self, argument: bytes) -> bytes:
        """Write a line of a script to the log. Lines beyond the limits are dropped; the last line written
        says so.
        """
        level, _, message = argument.partition(b"\0")
        self._log_lines += 1
        self._log_bytes += len(message)
        if self._log_lines <= MAX_LOG_LINES and self._log_bytes <= MAX_LOG_BYTES:
            text = one_line(message[:MAX_LOG_LINE].decode("utf-8", "backslashreplace"), MAX_LOG_LINE)
            if self._log_lines == MAX_LOG_LINES:
                text += " (further lines of this call are dropped)"
            self._answer("log", level + b"\0" + text.encode())
        return b"+"

    def _host_call(self, name: str, argument: bytes) -> bytes:
        first = name.partition(".")[0]  # the grant that the operation needs
        grant = "memory" if first == "bank" else first
        grants = self._job.grants
        if grant not in grants:
            hint = "" if grants else "; while a script loads it has no grants: call it inside the function"
            return _refusal(ToolError(f"{name}: this script is not granted '{grant}'{hint}"))
        answer = self._in_thread(name, argument)
        if answer[:1] == b"-" and self._deadline.ends_s - time.monotonic() < _LAST_MOMENT_S:
            raise DeadlinePassed  # the host call has the same deadline and has reached it
        return answer

    def _in_thread(self, name: str, argument: bytes) -> bytes:
        """Answer a host call in a thread of its own.

        A thread cannot be killed. If the call passes its deadline, the script is stopped, but the thread
        lives until the call returns. The threads are daemons (unlike those of `concurrent.futures`), so such
        a call does not keep the process alive.
        """
        if not self._threads.acquire(timeout=min(self._deadline.left_s(), _THREAD_WAIT_S)):
            self._deadline.left_s()  # raises if the deadline has passed
            raise Busy("all host calls of the sandbox are busy; try again")
        answers: SimpleQueue[bytes] = SimpleQueue()

        def run() -> None:
            try:
                answer = self._answer(name, argument)
            finally:
                # Before the answer is passed on, so that the next host call finds this thread free.
                self._threads.release()
            answers.put(answer)

        threading.Thread(target=run, name="lua-host-call", daemon=True).start()
        try:
            return answers.get(timeout=self._deadline.left_s())
        except Empty:
            raise DeadlinePassed from None

    def _answer(self, name: str, argument: bytes) -> bytes:
        try:
            answer = self._host(name, argument, self._deadline.ends_s)
            if len(answer) >= MAX_FRAME_BYTES:
                raise ToolError(
                    f"{name}: the answer has {len(answer):,} bytes; a script accepts {MAX_FRAME_BYTES:,}"
                )
            return b"+" + answer
        except CtxError as error:
            return _refusal(error)
        except Exception:
            logger.exception("a host call failed: script=%s operation=%s", self._job.name, name)
            return _refusal(ToolError(f"{name}: internal error"))

    def _result(self, answer: bytes) -> JSON:
        """The value in a worker's last frame ("+" or "-" and JSON). Raises a `CtxError` if the script
        failed.
        """
        job = self._job
        try:
            value = orjson.loads(answer[1:])
        except orjson.JSONDecodeError as error:
            raise ToolError(f"{job.shown}: the result is not JSON, or is nested too deeply") from error
        if answer[:1] == b"+":
            return value
        failure = as_table(value)
        raised = one_line(str(failure.get("message") or "the script failed"), 2 * MAX_MESSAGE)
        logger.log(job.level, "a script failed: script=%s error=%s", job.name, raised)
        if traceback := failure.get("traceback"):
            logger.debug("script=%s %s", job.name, one_line(str(traceback), 2 * MAX_MESSAGE))
        message = without_paths(raised)[:MAX_MESSAGE]
        kind = failure.get("kind")
        if "memory" in job.grants and isinstance(kind, str) and kind in KINDS:
            data = failure.get("data")
            details = data if isinstance(data, dict) else {"detail": data} if data else {}
            raise KINDS[kind](message, data={"kind": kind, **details})
        raise ToolError(message)


def _parse_item(name: str, argument: bytes) -> JSON:
    try:
        value = orjson.loads(argument)
    except orjson.JSONDecodeError as error:
        raise FrameError("an item is not JSON") from error
    return ItemProblem(one_line(str(value), MAX_MESSAGE)) if name == "emit_problem" else value


def _refusal(error: CtxError) -> bytes:
    return b"-" + orjson.dumps(
        {"word": error.word, "message": error.message, "data": error.data}, default=str
    )


def _sleep(argument: bytes, deadline: Deadline) -> bytes:
    try:
        until_s = time.monotonic() + float(argument)
    except ValueError as error:
        raise FrameError("sleep without a number") from error
    if not until_s < deadline.ends_s + 1e9:  # also true for NaN
        until_s = deadline.ends_s + 1
    while (left_s := until_s - time.monotonic()) > 0:
        time.sleep(min(left_s, deadline.left_s()))
    return b"+"
