"""The server's side of the sandbox: starts the zygote, a process that forks the worker processes, and hands
out workers.

Workers are forked in advance, because a fork (about 1 ms) is the largest part of a call. A thread ends used
workers and orders new ones from the zygote. If the zygote has died, the next order starts another.
"""

import importlib.util
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue

from ctx.errors import Busy, CtxError, ToolError
from ctx.files import loader_variables
from ctx.lua.frames import ANSWER, ORDER, Channel, Deadline, DeadlinePassed, WorkerGone
from ctx.lua.lockdown import FILTER, FORBIDDEN, KILL, MEMORY, PROBES, REFUSED_STATUS, Layer

logger = logging.getLogger(__name__)

# macOS has no SOCK_SEQPACKET. With SOCK_STREAM, messages are separated by their fixed length.
_SOCKET_TYPE = socket.SOCK_SEQPACKET if sys.platform == "linux" else socket.SOCK_STREAM
_START_TIMEOUT_S = 20.0  # long enough for a machine that swaps; a start usually takes 0.1 s
_END_TIMEOUT_S = 2.0
_PAUSE_S = 5.0  # between two attempts to start the zygote, if the first one failed
_PARTS = ("prelude", "dates", "memory")
_BOOT = "import sys; sys.path += sys.argv[2:]; from ctx.lua.worker import main; main(sys.argv[1])"


class Worker:
    """A process that runs one job. `exit_code` is known once `ended` is set; the code of a killed process is
    the negative number of the signal.
    """

    def __init__(self, pid: int, end: socket.socket) -> None:
        self.pid = pid
        self.channel = Channel(end)
        self.ended = threading.Event()
        self.exit_code: int | None = None


class WorkerProcesses:
    """A zygote and `spares` idle workers. Thread-safe."""

    boot = _BOOT  # the zygote's Python code; tests replace it to remove a layer of the sandbox

    def __init__(self, *, spares: int, memory_mb: int) -> None:
        self._spares_wanted = spares
        self._memory_bytes = memory_mb << 20
        self.spares: deque[Worker] = deque()
        self._retired: SimpleQueue[Worker | None] = SimpleQueue()
        self._lock = threading.Lock()  # held during an order, because the zygote answers one at a time
        self._closed = False
        self._restart_at_s = 0.0  # the zygote is not started again before (monotonic clock)

    @property
    def zygote_pid(self) -> int:
        return self._process.pid

    def start(self) -> None:
        """Start the zygote, and the thread that keeps idle workers. Raises `ToolError`."""
        self._start_zygote()
        self._thread = threading.Thread(target=self._maintain, name="lua-processes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the zygote and every worker."""
        with self._lock:
            self._closed = True
            self._end_zygote()
        self._retired.put(None)
        self._thread.join()
        self._drop_spares()

    def take(self) -> Worker:
        """Take an unused worker. Raises `Busy` if none can be started, and `ToolError` if the sandbox is
        closed.
        """
        with suppress(IndexError):
            while True:
                worker = self.spares.popleft()
                if not worker.channel.has_input():  # an idle worker sends nothing, so this one has died
                    return worker
                self.retire(worker)
        return self._fork(b"F")

    def probe(self, name: str) -> Worker:
        """A new worker that runs the probe `name` of `lockdown.PROBES`. Raises the errors of `take`."""
        return self._fork(b"P", list(PROBES).index(name))

    def retire(self, worker: Worker) -> None:
        """End a worker and start a replacement, in the background."""
        worker.channel.close()
        self._retired.put(worker)

    def end(self, worker: Worker) -> int | None:
        """Kill a worker if it still runs, and return its exit code; None if it is unknown."""
        if not worker.ended.is_set():
            worker.channel.close()
            try:
                status = self._ask(b"K", worker.pid)
            except (CtxError, OSError):
                status = -1  # the zygote has ended, and its workers with it
            worker.exit_code = None if status < 0 else os.waitstatus_to_exitcode(status)
            worker.ended.set()
        return worker.exit_code

    def _maintain(self) -> None:
        while not self._closed:
            try:
                while len(self.spares) < self._spares_wanted:
                    self.spares.append(self._fork(b"F"))
            except (CtxError, OSError) as error:
                if not self._closed:
                    logger.error("no sandbox worker could be started: %s", error)
            worker = self._retired.get()
            if worker is not None:
                self.end(worker)

    def _fork(self, letter: bytes, number: int = 0) -> Worker:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                pid = self._ask(letter, number, [theirs.fileno()])
            if not pid:
                raise Busy("the system refused to start a sandbox worker; try again")
        except BaseException:
            ours.close()
            raise
        return Worker(pid, ours)

    # ------------------------------------------------------------------ the zygote

    def _ask(self, letter: bytes, number: int, fds: Sequence[int] = ()) -> int:
        """Sends an order to the zygote, and returns its answer. If the zygote has ended, starts another for
        the next order and raises `Busy`; raises `ToolError` if none starts or the sandbox is closed.
        """
        with self._lock:
            if self._closed:
                raise ToolError("the Lua sandbox is closed")
            try:
                socket.send_fds(self._control, [ORDER.pack(letter, number)], fds)
                answer = self._control.recv(ANSWER.size)
            except OSError:
                answer = b""
            if len(answer) == ANSWER.size:
                pid_or_status: int = ANSWER.unpack(answer)[0]
                return pid_or_status
            if time.monotonic() < self._restart_at_s:
                raise Busy("the Lua sandbox does not start; see the server's log", retry_after_s=_PAUSE_S)
            logger.error("the sandbox's zygote ended; starting another")
            self._end_zygote()
            self._drop_spares()
            try:
                self._start_zygote()
            except (CtxError, OSError) as error:
                self._restart_at_s = time.monotonic() + _PAUSE_S
                raise Busy("the Lua sandbox does not start; see the server's log") from error
        raise Busy("the Lua sandbox was restarted; try again", retry_after_s=2.0)

    def _end_zygote(self) -> None:
        self._control.close()  # the zygote then kills its workers and ends
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _drop_spares(self) -> None:
        while self.spares:
            self.spares.pop().channel.close()

    def _start_zygote(self) -> None:
        lupa = importlib.util.find_spec("lupa")  # only its path is needed: the server does not import lupa
        if lupa is None or lupa.origin is None:
            raise ToolError("the Lua sandbox needs the package lupa; install it")
        folder = Path(__file__).parent
        search_path = [str(folder.parents[1]), str(Path(lupa.origin).parents[1])]
        parts = {name: (folder / f"{name}.lua").read_text(encoding="utf-8") for name in _PARTS}
        ours, theirs = socket.socketpair(socket.AF_UNIX, _SOCKET_TYPE)
        settings = json.dumps([theirs.fileno(), self._memory_bytes, parts])
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", self.boot, settings, *search_path],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                env=loader_variables(),
                cwd="/",
                start_new_session=True,  # so that Ctrl-C in the terminal reaches only the server
            )
        ours.settimeout(_START_TIMEOUT_S)
        try:
            layers = ours.makefile("rb").readline()
        except TimeoutError:
            layers = b""
        assert process.stderr is not None
        if not layers:
            ours.close()
            process.kill()
            with process.stderr:
                message = process.stderr.read().decode("utf-8", "replace").strip()
            process.wait()
            logger.error("the sandbox's zygote did not start: %s", message or "it printed no error")
            raise ToolError("the Lua sandbox did not start; see the server's log")
        process.stderr.close()
        self.layers = [Layer(*layer) for layer in json.loads(layers)]
        self._process, self._control = process, ours


# -- self-test -----------------------------------------------------------------------------------------------

STRICT = (FILTER, MEMORY, KILL)  # the layers that untrusted scripts need
_PROBE_TIMEOUT_S = 5.0  # long enough for a busy machine; a probe usually takes a few milliseconds


def try_layers(processes: WorkerProcesses) -> list[Layer]:
    """All layers of the sandbox: those of the zygote, and those that this function tests in workers. Raises
    `Busy` or `ToolError` if no worker starts.
    """
    workers = {action: processes.probe(action) for action in FORBIDDEN}
    codes = {action: _exit_code(processes, worker) for action, worker in workers.items()}
    allowed = ", ".join(action for action, code in codes.items() if code != -signal.SIGSYS)
    stopped = f"killed by SIGSYS when trying to {', '.join(FORBIDDEN)}"
    detail = f"the kernel does not stop a worker that tries to {allowed}" if allowed else stopped
    layers = [Layer(FILTER, not allowed, detail)]

    refused = _exit_code(processes, processes.probe(MEMORY)) == REFUSED_STATUS
    detail = "an allocation over the limit is refused" if refused else "the system does not enforce it"
    layers.append(Layer(MEMORY, refused, detail))

    worker = processes.probe(KILL)
    began_s = time.perf_counter()
    killed = processes.end(worker) == -signal.SIGKILL
    took = f"in {(time.perf_counter() - began_s) * 1000:.1f} ms"
    layers.append(Layer(KILL, killed, took if killed else "a looping worker stayed alive"))
    return layers + [layer for layer in processes.layers if layer.name != FILTER]


def is_strict(layers: list[Layer]) -> bool:
    return all(any(layer.name == name and layer.held for layer in layers) for name in STRICT)


def _exit_code(processes: WorkerProcesses, worker: Worker) -> int | None:
    """The exit code of the worker of a probe. If the worker does not end in time, it is killed."""
    try:
        worker.channel.receive(Deadline(time.monotonic() + _PROBE_TIMEOUT_S))
    except (WorkerGone, DeadlinePassed):
        pass
    return processes.end(worker)
