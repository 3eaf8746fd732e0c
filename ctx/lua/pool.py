"""Runs Lua scripts in processes that can do nothing but compute and ask.

    with Pool() as pool:
        job = Job("echo", source, "execute", b'{"text": "hi"}', b'{"config": {}}', frozenset({"http"}),
        "operator")
        result = pool.run(job, host, timeout_s=30)

A job is one entry of one script. `entry` says which:

    metadata    the global table's own fields as written (tool: name, description, parameters, output,
    annotations, title, failure;
                connector: name, description, config; agent: name, description, tools, arguments); no
                metamethod is called
    load_check  {"fields", "read"}: the names the table has and those that are read, when the script loads
                and defines its function
    execute     tool.execute(arguments, context)           -> its result
    resolve     agent.resolve(arguments, config, context)  -> its result
    scan        connector.scan(config, context)            -> {"count": n}, and the items one by one (`scan`);
                it may return a table of items, an iterator function, a coroutine, or call `emit(item)`

`context` is a JSON object that becomes the Lua table `context`, whose `config` is also what connectors and
agents are given. Its other fields are plain data to the script: `bank` {id} of one with a memory bank.

The host. Whatever a script cannot compute it asks for; the prelude's function becomes `host(operation,
payload, deadline_s)`,
on a thread of its own, for one call at a time, with `deadline_s` on the clock of `time.monotonic()`. The host
returns bytes,
or raises a `CtxError`, whose message the script sees as a Lua error "message" that it may catch with pcall
(uncaught it is a
`ToolError`, whatever its type was). A handler that overruns is abandoned: it must tolerate that its answer
goes nowhere.

    operation          grant    payload                                                   answer
    http               http     JSON {method, url, headers?, params?, timeout_s?} NUL     JSON {status, ok,
    headers} NUL the body's
                                the body's bytes                                          bytes (the prelude
                                adds body and json)
    fs.read            fs       the path's bytes                                          the file's bytes
    fs.list            fs       JSON {dir, glob?}                                         JSON array
    env.get            env      the name's bytes                                          JSON string or null
    context.search     context  JSON {query, mode?, limit?, source?, since?, until?}      JSON array
    context.get        context  JSON {id}                                                 JSON object
    context.outline    context  JSON {path, source?, query?}                              JSON object
    context.symbol     context  JSON {name, path?, source?, limit?}                       JSON object
    context.sources    context  JSON {}                                                   JSON array
    context.call       context  JSON {name, arguments}                                    JSON
    context.progress   context  JSON {done, total?, message?}                             ignored
    context.store.NAME context  get, set, add, keys: JSON {key?, value?, number?}         JSON
    memory.NAME        memory   JSON array of the arguments, null for nil                 JSON
    bank.NAME          memory   exists, ensure, config: likewise                          JSON
    log                -        level NUL message; level one of debug, info, warn, error; ignored; must not
    block
                                the message is one line, escaped, cut, counted already

The pool itself answers sleep, time.now and emit. It refuses what the job's `grants`
lack before the host is asked, and enforces the caps on logs, frames and results.

Typed errors. A script with the grant "memory" has `error.throw{kind=, message=, data=}` with kind
not_found,
invalid_params, conflict, forbidden or storage. Uncaught it is raised here as `conversation.KINDS[kind]` with
`data = {"kind": kind, ...}`; a host call's `CtxError` is caught there as such a table and keeps its kind on
the way out. Any
other script's failure is a `ToolError`, whatever it says.
"""

import logging
import math
import os
import signal
import threading
import time
from collections.abc import Generator
from typing import NamedTuple

from ctx.errors import Busy, CtxError, ScriptTimeout, ToolError
from ctx.lua.conversation import Host, ItemProblem, Talk, converse, result_of
from ctx.lua.deadline import DeadlineThreads
from ctx.lua.frames import (
    Cancelled,
    Deadline,
    DeadlinePassed,
    FrameError,
    NothingRan,
    Wire,
    WorkerGone,
    pack_job,
)
from ctx.lua.lockdown import Layer
from ctx.lua.nursery import Nursery, Worker
from ctx.lua.selftest import is_strict, try_layers
from ctx.lua.shares import Shares
from ctx.models import JSON

__all__ = ["Host", "ItemProblem", "Job", "Layer", "Pool"]

logger = logging.getLogger(__name__)

_KINDS = frozenset({"tool", "connector", "agent"})
_ENTRIES = frozenset({"metadata", "load_check", "execute", "resolve", "scan"})
_SLICE_S = 0.05  # how often a wait for a slot looks at the cancel event
_MAX_DEPTH = 64  # of a result that is given its schema's shape
_LAST_WORDS_S = 0.5  # for the zygote to report how a worker died


class Job(NamedTuple):
    """One entry of one script.

    `name` appears in messages and the log. `arguments` and `context` are JSON. `trust` is "operator" for
    scripts that the configuration names, else "untrusted". `output_schema` shapes the result. `caller` is
    whoever asked, "" for nobody in particular: one caller, and one script, has only a share of
    the pool (`shares.Shares`).
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
    # When nobody waits for the answer any more: here the wait for a worker counts too.
    ends_s: float = math.inf

    @property
    def shown(self) -> str:
        """How messages call it."""
        return f"{self.kind} '{self.name}'"

    @property
    def level(self) -> int:
        """At which level of the log its failure is told: that of a connector is told with its source's."""
        return logging.DEBUG if self.kind == "connector" else logging.INFO


class Pool:
    """The sandbox. Safe from several threads; every call blocks its own.

    `sandbox` "auto" runs the operator's scripts at the strongest level the machine reaches and everybody
    else's at the strict
    level only; "strict" wants that for all. At most `workers` scripts run at once, `waiting` more wait for up
    to
    `patience_s`, and no script or caller has more than its share of either. `memory_mb` is what one script
    may hold. The first call starts the sandbox (0.2 s) if `start` has not.
    """

    def __init__(
        self,
        *,
        sandbox: str = "auto",
        workers: int = 16,
        waiting: int = 64,
        patience_s: float = 10.0,
        memory_mb: int = 128,
        spares: int | None = None,
    ) -> None:
        self._sandbox = sandbox
        self._workers = workers
        self._waiting_most = waiting
        self._patience_s = patience_s
        self._spares = spares if spares is not None else min(6, max(2, workers // 2))
        self._memory_mb = memory_mb
        self._nursery = self._new_nursery()
        self._threads = DeadlineThreads(workers + 16)  # 16 may hang before anybody notices
        self._slots = threading.Condition()
        self._running = 0
        self._waiting = 0
        self._running_shares = Shares(workers)
        self._waiting_shares = Shares(waiting)
        self._starting = threading.Lock()
        self._started = False
        self._closed = False
        self._layers: list[Layer] = []
        self._strict = False

    def _new_nursery(self) -> Nursery:
        return Nursery(spares=self._spares, memory_mb=self._memory_mb)

    def __enter__(self) -> "Pool":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Starts the zygote, proves the layers and says in the log which hold. Raises `ToolError`. Harmless
        when started.
        """
        with self._starting:
            if self._started:
                return
            if self._closed:
                raise ToolError("the Lua sandbox is closed")
            nursery = self._new_nursery()
            nursery.start()
            try:
                self._layers = try_layers(nursery)
            except BaseException:
                nursery.close()
                raise
            self._nursery = nursery
            self._strict = is_strict(self._layers)
            self._started = True
        self._log_layers()

    def _log_layers(self) -> None:
        layers = [layer.name for layer in self._layers if layer.held]
        gaps = [f"{layer.name} ({layer.detail})" for layer in self._layers if not layer.held]
        logger.info("the Lua sandbox is up: level=%s layers=%s", self.level, ", ".join(layers))
        if gaps:
            logger.warning("sandbox layers that do not hold here: %s", "; ".join(gaps))

    def close(self) -> None:
        """Ends every process of the sandbox; calls under way fail with `ToolError`."""
        with self._starting:
            self._closed = True
            if not self._started:
                return
            self._started = False
        self._nursery.close()

    @property
    def level(self) -> str:
        """ "strict", or "process" where a layer that strict needs does not hold (macOS)."""
        return "strict" if self._strict else "process"

    @property
    def ready(self) -> int:
        """How many workers wait for a job: at 0 the next call waits for a fork."""
        return self._nursery.ready

    @property
    def zygote_pid(self) -> int | None:
        return self._nursery.zygote_pid

    def selftest(self) -> list[Layer]:
        """Every layer with whether it holds, tried at start. Raises `ToolError` when the sandbox does not
        start.
        """
        self.start()
        return list(self._layers)

    def run(
        self,
        job: Job,
        host: Host,
        timeout_s: float,
        *,
        cancel: threading.Event | None = None,
    ) -> JSON:
        """The script's answer.

        `timeout_s` counts from when the script has a worker: waiting for one is not billed to it. Raises
        `ScriptTimeout`,
        `ToolError` (the script failed, was denied, was killed or `cancel` was set), `Busy`, and in scripts
        that may throw what
        they threw.
        """
        items = self.scan(job, host, timeout_s, cancel=cancel)
        while True:
            try:
                next(items)
            except StopIteration as stop:
                return stop.value

    def scan(
        self, job: Job, host: Host, timeout_s: float, *, cancel: threading.Event | None = None
    ) -> Generator[JSON, None, JSON]:
        """The items of a connector's scan as the script makes them; `ItemProblem` where one cannot be said in
        JSON.

        The scan is complete when this ends by itself. It raises as `run` does when it is not. The script
        waits while the consumer works, and that time is not billed to it. Closing the iterator kills the
        script.
        """
        if job.kind not in _KINDS or job.entry not in _ENTRIES:
            raise ValueError(f"a job of kind {job.kind!r} and entry {job.entry!r}")
        if not self._started:
            self.start()
        self._admit(job)
        self._enter(job, cancel)
        worker: Worker | None = None
        try:
            worker = self._take(job, cancel)
            timeout_s = max(0.001, min(timeout_s, round(job.ends_s - time.monotonic(), 2)))
            deadline = Deadline(timeout_s, cancel)
            talk = Talk(f"{job.kind} {job.name}", job.grants, host, deadline, self._threads, job.level)
            answer = yield from converse(worker.channel, _wire(job), talk)
            result = result_of(answer, talk)
            return result if job.output_schema is None else _fit(result, job.output_schema)
        except DeadlinePassed:
            logger.log(
                job.level, "a script was stopped at its deadline: script=%s timeout_s=%g", job.name, timeout_s
            )
            raise ScriptTimeout(f"{job.shown} timed out after {timeout_s:g} s") from None
        except Cancelled:
            raise ToolError(f"{job.shown} was cancelled") from None
        except FrameError as error:
            logger.error("a worker broke the protocol: script=%s error=%s", job.name, error)
            raise ToolError(f"{job.shown} failed: {error}") from error
        except NothingRan as error:
            raise Busy(
                f"{job.shown} was not run: the Lua sandbox is being started again", retry_after_s=2.0
            ) from error
        except WorkerGone as error:
            assert worker is not None
            raise self._post_mortem(job, worker) from error
        finally:
            if worker is not None:
                self._retire(worker)
            self._leave(job)

    # ------------------------------------------------------------------ admission

    def _admit(self, job: Job) -> None:
        if not self._strict and (self._sandbox == "strict" or job.trust != "operator"):
            scripts = (
                "every script"
                if self._sandbox == "strict"
                else "a script that the configuration does not name"
            )
            raise ToolError(
                f"{job.shown} was not run: {scripts} needs the strict sandbox, which this machine lacks "
                "(see `ctx doctor`)"
            )

    def _enter(self, job: Job, cancel: threading.Event | None) -> None:
        share = job.shown, job.caller
        with self._slots:
            if not self._has_slot(share):
                self._queue(job, share, cancel)
            self._running += 1
            self._running_shares.take(*share)

    def _has_slot(self, share: tuple[str, str]) -> bool:
        return self._running < self._workers and self._running_shares.room(*share)

    def _queue(self, job: Job, share: tuple[str, str], cancel: threading.Event | None) -> None:
        if self._waiting >= self._waiting_most:
            raise Busy(f"{self._waiting} scripts are waiting already; try again later")
        if not self._waiting_shares.room(*share):
            raise Busy(
                f"too many calls of {job.shown}, or of this caller, are waiting already; try again later"
            )
        self._waiting += 1
        self._waiting_shares.take(*share)
        try:
            self._wait_for_slot(job, share, cancel)
        finally:
            self._waiting -= 1
            self._waiting_shares.give_back(*share)

    def _wait_for_slot(self, job: Job, share: tuple[str, str], cancel: threading.Event | None) -> None:
        began_s = time.monotonic()
        until_s = min(began_s + self._patience_s, job.ends_s)
        while not self._has_slot(share):
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                raise Busy(f"no script ended within {until_s - began_s:.3g} s; try again later")
            self._slots.wait(min(left_s, _SLICE_S) if cancel else left_s)
            if cancel is not None and cancel.is_set():
                raise ToolError(f"{job.shown} was cancelled")

    def _leave(self, job: Job) -> None:
        with self._slots:
            self._running -= 1
            self._running_shares.give_back(job.shown, job.caller)
            if self._waiting:
                self._slots.notify_all()  # the one that has waited longest may have no share of what is free

    def _take(self, job: Job, cancel: threading.Event | None) -> Worker:
        return self._nursery.take(min(self._patience_s, job.ends_s - time.monotonic()), cancel)

    def _retire(self, worker: Worker) -> None:
        self._nursery.retire(worker)

    def _post_mortem(self, job: Job, worker: Worker) -> CtxError:
        worker.ended.wait(_LAST_WORDS_S)
        status = worker.status
        if status is None or not os.WIFSIGNALED(status):
            logger.error("a worker ended without an answer: script=%s status=%s", job.name, status)
            return ToolError(f"{job.shown} ended without an answer")
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name
        if number == signal.SIGSYS:
            logger.critical(
                "a script made a forbidden system call and was killed: script=%s signal=%s", job.name, name
            )
            return ToolError(f"{job.shown} was killed: it tried what the sandbox forbids")
        logger.error("a worker died: script=%s signal=%s", job.name, name)
        return ToolError(f"{job.shown} crashed its worker ({name})")


def _wire(job: Job) -> bytes:
    return pack_job(
        Wire(
            kind=job.kind.encode(),
            entry=job.entry.encode(),
            name=job.name.encode(),
            source=job.source,
            arguments=job.arguments,
            context=job.context,
            grants=b" %s " % " ".join(sorted(job.grants)).encode(),
            seed=os.urandom(8),
        )
    )


def _fit(value: JSON, schema: JSON, depth: int = 0) -> JSON:
    """`value` with `{}` turned into `[]` where the schema wants an array, and fields in the schema's order.

    Lua has one empty table and no order of fields; a client has both. Nothing else is changed: this does not
    validate.
    """
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return value
    if value == {}:
        return [] if _is_array_alone(schema.get("type")) else value
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [_fit(item, schema["items"], depth + 1) for item in value]
    properties = schema.get("properties")
    if not isinstance(value, dict) or not isinstance(properties, dict):
        return value
    ordered = {name: _fit(value[name], rule, depth + 1) for name, rule in properties.items() if name in value}
    return ordered | {name: item for name, item in value.items() if name not in ordered}


def _is_array_alone(kinds: JSON) -> bool:
    """Whether a schema's `type` allows arrays and no objects."""
    return kinds == "array" or (isinstance(kinds, list) and "array" in kinds and "object" not in kinds)
