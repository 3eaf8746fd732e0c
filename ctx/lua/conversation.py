"""One job, from the bytes sent to the result: host calls answered, items handed on, the deadline kept.

Nothing here knows of processes: the other end is a socket, and may say anything.
"""

import functools
import logging
import os
import re
import time
from collections.abc import Callable, Generator
from typing import NamedTuple

import orjson

from ctx.errors import AccessError, BadRequest, CtxError, NotFound, StoreError, ToolError
from ctx.lua.deadline import DeadlineThreads
from ctx.lua.frames import (
    HOST_CALL,
    JOB,
    MAX_FRAME_BYTES,
    REPLY,
    Channel,
    Deadline,
    DeadlinePassed,
    FrameError,
    NothingRan,
    WorkerGone,
)
from ctx.models import JSON, as_table
from ctx.text.strings import one_line

logger = logging.getLogger(__name__)

Host = Callable[[str, bytes, float], bytes]

MAX_LOG_LINES = 1000
MAX_LOG_BYTES = 1 << 20
MAX_LOG_LINE = 2000
MAX_MESSAGE = 2000  # letters of a script's error that leave the machine

_LAST_MOMENT_S = 0.02
# Which grant opens an operation, by the part of its name before the first dot. `log` and `sleep` need none.
GRANTS = {
    "http": "http",
    "fs": "fs",
    "env": "env",
    "context": "context",
    "memory": "memory",
    "bank": "memory",
}
# What a script that may throw can make of its failure (error.throw), and what a host call's error becomes
# there.
KINDS: dict[str, type[CtxError]] = {
    "not_found": NotFound,
    "invalid_params": BadRequest,
    "conflict": BadRequest,
    "forbidden": AccessError,
    "storage": StoreError,
}
THROWING = "memory"  # the grant of scripts whose errors keep their kind


class ItemProblem(NamedTuple):
    """In place of an item that a scan produced and that cannot be said in JSON."""

    message: str


class Talk(NamedTuple):
    """What a conversation is about: `grants` of the script, `label` for the log ("tool echo"), `level` at
    which its failure is told.
    """

    label: str
    grants: frozenset[str]
    host: Host
    deadline: Deadline
    threads: DeadlineThreads
    level: int = logging.INFO


@functools.cache
def _path_pattern() -> re.Pattern[str]:
    """A path of this machine: below one of its top folders, and not part of a URL or a longer word."""
    try:
        tops = sorted(os.listdir("/"))
    except OSError:
        tops = ["etc", "home", "opt", "root", "srv", "tmp", "usr", "var", "Users"]
    return re.compile(r"(?<![\w./:-])/(?:" + "|".join(map(re.escape, tops)) + r")(?:/[^\s'\":;,()\[\]]*)+")


def without_paths(text: str) -> str:
    """`text` with paths of this machine cut to their last part: a remote caller need not learn where things
    lie.
    """
    return _path_pattern().sub(lambda match: ".../" + match[0].rstrip("/").rpartition("/")[2], text)


def converse(channel: Channel, job: bytes, talk: Talk) -> Generator[JSON, None, bytes]:
    """Sends the job; yields a scan's items as they come; returns the worker's last frame ("+" or "-" and
    JSON).

    The time between a yield and the next call is the consumer's and is not billed to the script. Raises
    `DeadlinePassed`,
    `Cancelled`, `FrameError`, `WorkerGone`, and `Busy` when no thread was free for a host call.
    """
    lines = _Lines()
    try:
        channel.send(JOB, job, talk.deadline)
        letter, payload = channel.receive(talk.deadline)
    except WorkerGone as error:
        # The kernel resets a connection only where something was sent that the other end never read.
        raise NothingRan if isinstance(error.__cause__, OSError) else error from error
    while True:
        if channel.unread:
            raise FrameError("a second frame before the first was answered")
        if letter != HOST_CALL:
            return payload
        operation, _, argument = payload.partition(b"\0")
        name = operation.decode("ascii", "replace")
        if name in ("emit", "emit_problem"):
            began_s = time.monotonic()
            yield _item(name, argument)
            talk.deadline.at_s += time.monotonic() - began_s
            answer = b"+"
        elif name == "log":
            answer = lines.write(argument, talk)
        else:
            answer = _host_call(name, argument, talk)
        channel.send(REPLY, answer, talk.deadline)
        letter, payload = channel.receive(talk.deadline)


def _item(name: str, argument: bytes) -> JSON:
    try:
        value = orjson.loads(argument)
    except orjson.JSONDecodeError as error:
        raise FrameError("an item that is not JSON") from error
    return ItemProblem(one_line(str(value), MAX_MESSAGE)) if name == "emit_problem" else value


class _Lines:
    """Counts what one call logs; beyond the caps, lines are dropped and the last one says so."""

    def __init__(self) -> None:
        self.lines = 0
        self.bytes = 0

    def write(self, argument: bytes, talk: Talk) -> bytes:
        level, _, message = argument.partition(b"\0")
        self.lines += 1
        self.bytes += len(message)
        if self.lines > MAX_LOG_LINES or self.bytes > MAX_LOG_BYTES:
            return b"+"
        text = one_line(message[:MAX_LOG_LINE].decode("utf-8", "backslashreplace"), MAX_LOG_LINE)
        if self.lines == MAX_LOG_LINES:
            text += " (this call's further lines are dropped)"
        word = level if level in _LEVELS else b"info"
        _answer("log", word + b"\0" + text.encode(), talk)
        return b"+"


_LEVELS = frozenset({b"debug", b"info", b"warn", b"error"})


def _host_call(name: str, argument: bytes, talk: Talk) -> bytes:
    if name == "sleep":
        return _sleep(argument, talk.deadline)
    if name == "time.now":
        return b"+%d" % (time.time_ns() // 1_000_000)
    grant = GRANTS.get(name.partition(".")[0])
    if grant is None:
        raise FrameError("an unknown host call")  # the prelude makes none
    if grant not in talk.grants:
        hint = "" if talk.grants else "; nothing is while a script loads: call it in its function"
        return _refusal(ToolError(f"{name}: this script is not granted '{grant}'{hint}"))
    answer = talk.threads.call(lambda: _answer(name, argument, talk), talk.deadline)
    if answer[:1] == b"-" and talk.deadline.at_s - time.monotonic() < _LAST_MOMENT_S:
        raise DeadlinePassed  # the host has the same deadline, and gave up a moment before this side did
    return answer


def _answer(name: str, argument: bytes, talk: Talk) -> bytes:
    try:
        answer = talk.host(name, argument, talk.deadline.at_s)
        if len(answer) >= MAX_FRAME_BYTES:
            raise ToolError(f"{name}: the answer has {len(answer):,} bytes, more than a script takes")
        return b"+" + answer
    except CtxError as error:
        return _refusal(error)
    except Exception:
        logger.exception("a host call failed: script=%s operation=%s", talk.label, name)
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
    if not until_s < deadline.at_s + 1e9:  # also where it is not a number
        until_s = deadline.at_s + 1
    while (left_s := until_s - time.monotonic()) > 0:
        time.sleep(min(left_s, deadline.step_s()))
    return b"+"


def result_of(answer: bytes, talk: Talk) -> JSON:
    """The value a worker ended with. Raises `ToolError`, or what `error.throw` asked for where the script may
    throw.
    """
    try:
        value = orjson.loads(answer[1:])
    except orjson.JSONDecodeError as error:
        raise ToolError(f"{talk.label}: the result is not JSON, or is nested too deeply") from error
    if answer[:1] == b"+":
        return value
    raise _failure(as_table(value), talk)


def _failure(failure: dict[str, JSON], talk: Talk) -> CtxError:
    raised = one_line(str(failure.get("message") or "the script failed"), 2 * MAX_MESSAGE)
    traceback = failure.get("traceback")
    logger.log(talk.level, "a script failed: script=%s error=%s", talk.label, raised)
    message = without_paths(raised)[:MAX_MESSAGE]
    if traceback:
        logger.debug("script=%s %s", talk.label, one_line(str(traceback), 2 * MAX_MESSAGE))
    kind = failure.get("kind")
    if THROWING in talk.grants and isinstance(kind, str) and kind in KINDS:
        return KINDS[kind](message[:MAX_MESSAGE], data={"kind": kind, **_details(failure.get("data"))})
    return ToolError(message)


def _details(data: JSON) -> dict[str, JSON]:
    """What a script says of its failure beside the message."""
    if isinstance(data, dict):
        return data
    return {"detail": data} if data else {}
