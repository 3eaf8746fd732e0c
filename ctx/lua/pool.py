"""Run Lua scripts in processes (workers) that can only compute and call the host, which is the server.

    with Pool() as pool:
        job = Job("echo", source, "execute", b'{"text": "hi"}', b'{"config": {}}', frozenset(), "operator")
        result = pool.run(job, host, timeout_s=30)

A job runs one entry of one script:

    entry       calls                                   returns
    metadata    nothing                                 the fields of the script's table, if it defines its
                                                        function; `true` for each field of another name
    execute     tool.execute(arguments, context)        its result
    resolve     agent.resolve(arguments, config, context)   its result
    scan        connector.scan(config, context)         {"count": n}; `Pool.scan` yields the items

For everything else, a script calls the host. The host is a function `host(operation, payload, deadline_s)`.
It runs in a thread of its own and returns bytes, or raises a `CtxError` that the script can catch with pcall.
A host call that passes its deadline is abandoned, and its answer is dropped.

    operation           grant    payload                                        answer
    http                http     JSON {method, url, headers?, params?,          JSON {status, ok, headers},
                                 timeout_s?}, NUL, the body                     NUL, the body
    fs.read             fs       a path                                         the file's bytes
    fs.list             fs       JSON {dir, glob?}                              JSON array
    env.get             env      a variable's name                              JSON string or null
    context.search      context  JSON {query, mode?, limit?, source?, since?, until?}   JSON array
    context.get         context  JSON {id}                                      JSON object
    context.outline     context  JSON {path, source?, query?}                   JSON object
    context.symbol      context  JSON {name, path?, source?, limit?}            JSON object
    context.sources     context  JSON {}                                        JSON array
    context.call        context  JSON {name, arguments}                         JSON
    context.progress    context  JSON {done, total?, message?}                  ignored
    context.store.NAME  context  JSON {key?, value?, number?}                   JSON
    memory.NAME         memory   JSON array of the arguments                    JSON
    bank.NAME           memory   JSON array of the arguments                    JSON
    log                 -        level (debug, info, warn, error), NUL, a line  ignored; must not block

The pool itself answers `sleep`, `time.now` and `emit`, and refuses operations that the job has no grant for.
It limits the log, the result, and the messages to and from workers. A script with the grant "memory" may
raise typed errors with `error.throw` (`jobs.KINDS`); any other failure of a script is a `ToolError`.
"""

import logging
import marshal
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Generator

from ctx.errors import Busy, ScriptTimeout, ToolError
from ctx.lua.frames import Deadline, DeadlinePassed, FrameError, ItemProblem, WorkerGone
from ctx.lua.jobs import Host, Job, RunningJob
from ctx.lua.lockdown import Layer
from ctx.lua.processes import Worker, WorkerProcesses, is_strict, try_layers
from ctx.models import JSON

__all__ = ["Host", "ItemProblem", "Job", "Layer", "Pool"]

logger = logging.getLogger(__name__)

_MIN_SHARED = 4  # fewer slots than this are not divided into shares
_SPARE_THREADS = 16  # this many host calls may hang before the pool runs out of threads


class Shares:
    """Divides `total` slots: one tool may hold half of them, one caller three quarters.

    So a tool that hangs leaves half of the slots to other tools. The limits also apply when nobody is
    waiting, because a running script cannot give its slot back. A tool or caller named "" has no limit. Not
    thread-safe: hold a lock during each call.
    """

    def __init__(self, total: int) -> None:
        self._per_tool = total if total < _MIN_SHARED else total // 2
        self._per_caller = total if total < _MIN_SHARED else total * 3 // 4
        self._tools: Counter[str] = Counter()
        self._callers: Counter[str] = Counter()

    def allow(self, tool: str, caller: str) -> bool:
        """Whether this tool and this caller may hold one more slot."""
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
                del counts[name]  # callers come and go; otherwise their names would accumulate


class Pool:
    """The sandbox. Thread-safe; calls block.

    With `sandbox` "auto", untrusted scripts need the strict level (`processes.STRICT`), and the operator's
    scripts run at the best level that the machine has; with "strict", every script needs the strict level. At
    most `workers` scripts run at once, and `waiting` more wait for up to `patience_s`. `memory_mb` limits
    each script. The first call starts the sandbox (0.2 s) unless `start` was called.
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
        self._processes: WorkerProcesses | None = None  # None until the sandbox has started
        self._threads = threading.Semaphore(workers + _SPARE_THREADS)
        self._slots = threading.Condition()
        self._running = 0
        self._waiting = 0
        self._running_shares = Shares(workers)
        self._waiting_shares = Shares(waiting)
        self._starting = threading.Lock()
        self._closed = False
        self._layers: list[Layer] = []
        self._strict = False

    def _new_processes(self) -> WorkerProcesses:
        return WorkerProcesses(spares=self._spares, memory_mb=self._memory_mb)

    def __enter__(self) -> "Pool":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the processes, test the sandbox layers and log the result. Raises `ToolError`.

        Does nothing if the sandbox has already started.
        """
        with self._starting:
            if self._processes is not None:
                return
            if self._closed:
                raise ToolError("the Lua sandbox is closed")
            processes = self._new_processes()
            processes.start()
            try:
                self._layers = try_layers(processes)
            except BaseException:
                processes.close()
                raise
            self._strict = is_strict(self._layers)
            self._processes = processes
        layers = [layer.name for layer in self._layers if layer.held]
        absent_layers = [f"{layer.name} ({layer.detail})" for layer in self._layers if not layer.held]
        logger.info("the Lua sandbox has started: level=%s layers=%s", self.level, ", ".join(layers))
        if absent_layers:
            logger.warning("sandbox layers missing on this machine: %s", "; ".join(absent_layers))

    def close(self) -> None:
        """End every process of the sandbox. Running calls fail with a `ToolError`."""
        with self._starting:
            self._closed = True
        if self._processes is not None:
            self._processes.close()

    @property
    def level(self) -> str:
        """ "strict", or "process" if the machine lacks a layer that strict needs (macOS)."""
        return "strict" if self._strict else "process"

    @property
    def ready(self) -> int:
        """The number of idle workers. If it is 0, the next call waits for a fork."""
        return len(self._processes.spares) if self._processes else 0

    @property
    def zygote_pid(self) -> int | None:
        return self._processes.zygote_pid if self._processes else None

    def selftest(self) -> list[Layer]:
        """Every layer of the sandbox and whether it works, as tested at the start. Raises `ToolError`."""
        self.start()
        return list(self._layers)

    def run(self, job: Job, host: Host, timeout_s: float) -> JSON:
        """Run a job and return its result.

        `timeout_s` does not include the wait for a worker. Raises `ScriptTimeout`, `ToolError` (the script
        failed, or was refused or killed), `Busy`, and the typed errors of `error.throw`.
        """
        items = self.scan(job, host, timeout_s)
        while True:
            try:
                next(items)
            except StopIteration as stop:
                return stop.value

    def scan(self, job: Job, host: Host, timeout_s: float) -> Generator[JSON, None, JSON]:
        """Run a job and yield its items; an item that cannot be written as JSON is yielded as `ItemProblem`.

        The scan is complete if this ends without an error. Raises the same errors as `run`. The script waits
        while the caller handles an item, and that time does not count against `timeout_s`. Closing the
        iterator kills the script.
        """
        self.start()
        self._check_level(job)
        self._acquire_slot(job)
        worker: Worker | None = None
        try:
            worker = self._take_worker(job)
            timeout_s = max(0.001, min(timeout_s, round(job.ends_s - time.monotonic(), 2)))
            deadline = Deadline(time.monotonic() + timeout_s)
            running = RunningJob(job, host, deadline, self._threads)
            result = yield from running.run(worker.channel, _message(job))
            return result if job.output_schema is None else _fit(result, job.output_schema)
        except DeadlinePassed:
            logger.log(
                job.level, "a script was stopped at its deadline: script=%s timeout_s=%g", job.name, timeout_s
            )
            raise ScriptTimeout(f"{job.shown} timed out after {timeout_s:g} s") from None
        except FrameError as error:
            logger.error("a worker broke the protocol: script=%s error=%s", job.name, error)
            raise ToolError(f"{job.shown} failed: {error}") from error
        except WorkerGone as error:
            assert worker is not None
            raise _death(job, self._end_worker(worker)) from error
        finally:
            if worker is not None:
                self._retire_worker(worker)
            self._release_slot(job)

    def _check_level(self, job: Job) -> None:
        if not self._strict and (self._sandbox == "strict" or job.trust != "operator"):
            every = self._sandbox == "strict"
            scripts = "every script" if every else "a script that the configuration does not name"
            raise ToolError(
                f"{job.shown} was not run: {scripts} needs the strict sandbox, which this machine does not "
                "have (see `ctx doctor`)"
            )

    def _acquire_slot(self, job: Job) -> None:
        share = job.shown, job.caller
        wait_s = min(self._patience_s, job.ends_s - time.monotonic())

        def is_free() -> bool:
            return self._running < self._workers and self._running_shares.allow(*share)

        with self._slots:
            if not is_free():
                if self._waiting >= self._waiting_most:
                    raise Busy(f"{self._waiting} scripts are already waiting; try again later")
                if not self._waiting_shares.allow(*share):
                    raise Busy(
                        f"too many calls of {job.shown}, or of this caller, are already waiting; "
                        "try again later"
                    )
                self._waiting += 1
                self._waiting_shares.acquire(*share)
                try:
                    if not self._slots.wait_for(is_free, wait_s):
                        raise Busy(f"no script ended within {wait_s:.3g} s; try again later")
                finally:
                    self._waiting -= 1
                    self._waiting_shares.release(*share)
            self._running += 1
            self._running_shares.acquire(*share)

    def _release_slot(self, job: Job) -> None:
        with self._slots:
            self._running -= 1
            self._running_shares.release(job.shown, job.caller)
            if self._waiting:
                # Wake all, because the one that waits longest may have used up its share.
                self._slots.notify_all()

    def _take_worker(self, job: Job) -> Worker:
        assert self._processes is not None
        return self._processes.take()

    def _end_worker(self, worker: Worker) -> int | None:
        assert self._processes is not None
        return self._processes.end(worker)

    def _retire_worker(self, worker: Worker) -> None:
        assert self._processes is not None
        self._processes.retire(worker)


def _death(job: Job, code: int | None) -> ToolError:
    """Log how a worker died, and return the error for the caller."""
    if code is None or code >= 0:
        logger.error("a worker ended without an answer: script=%s exit_code=%s", job.name, code)
        return ToolError(f"{job.shown} ended without an answer")
    name = signal.Signals(-code).name
    if name == "SIGSYS":
        logger.critical("a script made a forbidden system call and was killed: script=%s", job.name)
        return ToolError(f"{job.shown} was killed: it tried something the sandbox forbids")
    logger.error("a worker died: script=%s signal=%s", job.name, name)
    return ToolError(f"{job.shown} crashed its worker ({name})")


def _message(job: Job) -> bytes:
    """A job as bytes, in the form that `worker.Interpreter.run` takes."""
    texts = job.kind.encode(), job.entry.encode(), job.name.encode()
    grants = b" %s " % " ".join(sorted(job.grants)).encode()
    seed = int.from_bytes(os.urandom(8), "big", signed=True)
    return marshal.dumps((*texts, job.source, job.arguments, job.context, grants, seed))


def _fit(value: JSON, schema: JSON) -> JSON:
    """The value with `[]` instead of `{}` where the schema wants an array, and with fields in the order of
    the schema.

    The reasons: an empty table in Lua may be either, and the fields of a table have no order. The value is
    not validated.
    """
    if not isinstance(schema, dict):
        return value
    if value == {}:
        kinds = schema.get("type")
        only_array = kinds == "array" or (
            isinstance(kinds, list) and "array" in kinds and "object" not in kinds
        )
        return [] if only_array else value
    if isinstance(value, list):
        return [_fit(item, schema.get("items")) for item in value]
    properties = schema.get("properties")
    if not isinstance(value, dict) or not isinstance(properties, dict):
        return value
    ordered = {name: _fit(value[name], rule) for name, rule in properties.items() if name in value}
    return ordered | {name: item for name, item in value.items() if name not in ordered}
