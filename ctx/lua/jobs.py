"""Run one job over a worker's channel: answer its host calls, yield its items, and enforce the deadline.

The worker may be hostile and send anything.
"""

import functools
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Generator
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

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
    JobNotRead,
    WorkerGone,
)
from ctx.models import JSON, as_table
from ctx.text.strings import one_line

logger = logging.getLogger(__name__)

T = TypeVar("T")
Host = Callable[[str, bytes, float], bytes]

MAX_LOG_LINES = 1000
MAX_LOG_BYTES = 1 << 20
MAX_LOG_LINE = 2000
MAX_MESSAGE = 2000  # characters of a script's error that a caller sees

_LAST_MOMENT_S = 0.02
_THREAD_WAIT_S = 1.0  # shorter than most deadlines, so that the caller gets `Busy` early
# The first part of an operation's name is the grant it needs, but `log` and `sleep` need none.
GRANTS = frozenset({"http", "fs", "env", "context", "memory"})
# Kinds of error for `error.throw` -> the exception that the caller gets.
KINDS: dict[str, type[CtxError]] = {
    "not_found": NotFound,
    "invalid_params": BadRequest,
    "conflict": BadRequest,
    "forbidden": AccessError,
    "storage": StoreError,
}
THROWING = "memory"  # scripts with this grant may use `error.throw`


class DeadlineThreads:
    """Runs functions with a deadline, each in its own thread, at most `most` at a time.

    A thread cannot be killed. When a call overruns, the caller goes on, and the thread lives until the
    function returns. The threads are daemons (unlike those of `concurrent.futures`), so an abandoned call
    does not keep the process alive.
    """

    def __init__(self, most: int) -> None:
        self._free = threading.Semaphore(most)

    def call(self, function: Callable[[], T], deadline: Deadline) -> T:
        """Return what `function` returns, or raise what it raises.

        Raises `DeadlinePassed` if that comes first, and `Busy` if no thread is free.
        """
        if not self._free.acquire(timeout=min(deadline.left_s(), _THREAD_WAIT_S)):
            deadline.left_s()  # the deadline may have come first
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
                value, error = answers.get(timeout=deadline.left_s())
            except Empty:
                continue
            if error is not None:
                raise error
            result: T = value
            return result


class JobContext(NamedTuple):
    """The parts that a running job needs. `label` is the script's name in the log, `level` the log level of a
    failure.
    """

    label: str
    grants: frozenset[str]
    host: Host
    deadline: Deadline
    threads: DeadlineThreads
    level: int = logging.INFO


@functools.cache
def _path_pattern() -> re.Pattern[str]:
    """Matches a path on this machine: below one of its top folders, not part of a URL or a longer word."""
    try:
        tops = sorted(os.listdir("/"))
    except OSError:
        tops = ["etc", "home", "opt", "root", "srv", "tmp", "usr", "var", "Users"]
    return re.compile(r"(?<![\w./:-])/(?:" + "|".join(map(re.escape, tops)) + r")(?:/[^\s'\":;,()\[\]]*)+")


def without_paths(text: str) -> str:
    """The text with paths on this machine cut to their last part, because a remote caller may read it."""
    return _path_pattern().sub(lambda match: ".../" + match[0].rstrip("/").rpartition("/")[2], text)


def run_job(channel: Channel, message: bytes, job: JobContext) -> Generator[JSON, None, bytes]:
    """Send the job, yield a scan's items, and return the worker's last frame ("+" or "-" and JSON).

    The time the caller takes for an item does not count against the script's deadline. Raises
    `DeadlinePassed`, `FrameError`, `WorkerGone`, and `Busy` when no thread is free for a host
    call.
    """
    log = _ScriptLog()
    try:
        channel.send(JOB, message, job.deadline)
        letter, payload = channel.receive(job.deadline)
    except WorkerGone as error:
        # The kernel resets a connection only if the other end has not read what was sent.
        raise JobNotRead if isinstance(error.__cause__, OSError) else error from error
    while True:
        if channel.unread:
            raise FrameError("the worker sent a second frame before the first was answered")
        if letter != HOST_CALL:
            return payload
        operation, _, argument = payload.partition(b"\0")
        name = operation.decode("ascii", "replace")
        if name in ("emit", "emit_problem"):
            began_s = time.monotonic()
            yield _parse_item(name, argument)
            job.deadline.ends_s += time.monotonic() - began_s
            answer = b"+"
        elif name == "log":
            answer = log.write(argument, job)
        else:
            answer = _host_call(name, argument, job)
        channel.send(REPLY, answer, job.deadline)
        letter, payload = channel.receive(job.deadline)


def _parse_item(name: str, argument: bytes) -> JSON:
    try:
        value = orjson.loads(argument)
    except orjson.JSONDecodeError as error:
        raise FrameError("an item is not JSON") from error
    return ItemProblem(one_line(str(value), MAX_MESSAGE)) if name == "emit_problem" else value


class _ScriptLog:
    """Writes the log lines of one call. Drops lines beyond the limits; the last line says so."""

    def __init__(self) -> None:
        self.lines = 0
        self.bytes = 0

    def write(self, argument: bytes, job: JobContext) -> bytes:
        level, _, message = argument.partition(b"\0")
        self.lines += 1
        self.bytes += len(message)
        if self.lines > MAX_LOG_LINES or self.bytes > MAX_LOG_BYTES:
            return b"+"
        text = one_line(message[:MAX_LOG_LINE].decode("utf-8", "backslashreplace"), MAX_LOG_LINE)
        if self.lines == MAX_LOG_LINES:
            text += " (further lines of this call are dropped)"
        _answer("log", level + b"\0" + text.encode(), job)
        return b"+"


def _host_call(name: str, argument: bytes, job: JobContext) -> bytes:
    if name == "sleep":
        return _sleep(argument, job.deadline)
    if name == "time.now":
        return b"+%d" % (time.time_ns() // 1_000_000)
    first = name.partition(".")[0]
    grant = "memory" if first == "bank" else first
    if grant not in GRANTS:
        raise FrameError("unknown host call")
    if grant not in job.grants:
        hint = "" if job.grants else "; while a script loads it has no grants: call it inside the function"
        return _refusal(ToolError(f"{name}: this script is not granted '{grant}'{hint}"))
    answer = job.threads.call(lambda: _answer(name, argument, job), job.deadline)
    if answer[:1] == b"-" and job.deadline.ends_s - time.monotonic() < _LAST_MOMENT_S:
        raise DeadlinePassed  # the host call has the same deadline and reached it a moment earlier
    return answer


def _answer(name: str, argument: bytes, job: JobContext) -> bytes:
    try:
        answer = job.host(name, argument, job.deadline.ends_s)
        if len(answer) >= MAX_FRAME_BYTES:
            raise ToolError(
                f"{name}: the answer has {len(answer):,} bytes; a script accepts {MAX_FRAME_BYTES:,}"
            )
        return b"+" + answer
    except CtxError as error:
        return _refusal(error)
    except Exception:
        logger.exception("a host call failed: script=%s operation=%s", job.label, name)
        return _refusal(ToolError(f"{name}: internal error"))


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


def result_of(answer: bytes, job: JobContext) -> JSON:
    """The value in a worker's last frame. Raises a `CtxError` if the script failed."""
    try:
        value = orjson.loads(answer[1:])
    except orjson.JSONDecodeError as error:
        raise ToolError(f"{job.label}: the result is not JSON, or is nested too deeply") from error
    if answer[:1] == b"+":
        return value
    raise _failure(as_table(value), job)


def _failure(failure: dict[str, JSON], job: JobContext) -> CtxError:
    raised = one_line(str(failure.get("message") or "the script failed"), 2 * MAX_MESSAGE)
    logger.log(job.level, "a script failed: script=%s error=%s", job.label, raised)
    message = without_paths(raised)[:MAX_MESSAGE]
    if traceback := failure.get("traceback"):
        logger.debug("script=%s %s", job.label, one_line(str(traceback), 2 * MAX_MESSAGE))
    kind = failure.get("kind")
    if THROWING in job.grants and isinstance(kind, str) and kind in KINDS:
        data = failure.get("data")
        details = data if isinstance(data, dict) else {"detail": data} if data else {}
        return KINDS[kind](message, data={"kind": kind, **details})
    return ToolError(message)
