"""The server's side of the sandbox: it starts the zygote, which forks the worker processes, and hands out
workers.

Workers are forked in advance, because a fork (about 1 ms) is the largest part of a call. One thread listens
to the zygote and starts a new one when it dies.
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
from pathlib import Path

from ctx.errors import Busy, ToolError
from ctx.files import loader_variables
from ctx.lua.frames import ORDER, REPORT, Channel
from ctx.lua.lockdown import FILTER, FORBIDDEN, KILL, MEMORY, PROBES, REFUSED_STATUS, Layer

logger = logging.getLogger(__name__)

# macOS has no SOCK_SEQPACKET. With SOCK_STREAM, messages are separated by their fixed length.
_SOCKET_TYPE = socket.SOCK_SEQPACKET if sys.platform == "linux" else socket.SOCK_STREAM
_START_TIMEOUT_S = 20.0  # for a machine that swaps; usually 0.1 s
_END_TIMEOUT_S = 2.0
_PAUSE_S = 1.0  # before another try to start a zygote
_PARTS = ("prelude", "dates", "memory")
_BOOT = "import sys; sys.path += sys.argv[2:]; from ctx.lua.worker import main; main(sys.argv[1])"
_RETRY_S = 0.5  # how often to retry a fork that the system refused


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
        self._changed = threading.Condition()
        self.spares: deque[Worker] = deque()
        # Pending forks: our end of the worker's socket, and whether it is a probe.
        self._forks: deque[tuple[socket.socket, bool]] = deque()
        self._probes: deque[Worker | None] = deque()  # None if the fork failed
        self._live: dict[int, Worker] = {}
        self._waiting = 0
        self._closed = False
        self._failed = False  # the last zygote did not start

    @property
    def zygote_pid(self) -> int:
        return self._process.pid

    def start(self) -> None:
        """Start the zygote and the thread that listens to it. Raises `ToolError`."""
        self._start_zygote()
        self._thread = threading.Thread(target=self._listen, name="lua-processes", daemon=True)
        self._thread.start()
        with self._changed:
            self._refill()

    def close(self) -> None:
        """End the zygote and every worker."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        try:
            self._control.shutdown(socket.SHUT_RDWR)  # the zygote kills its workers and ends
        except OSError:
            pass  # it has already ended
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join()
        with self._changed:
            self._drop_unused()
        self._control.close()

    def _drop_unused(self) -> None:
        """Drop the idle workers and the pending forks. The caller must hold the lock."""
        for worker in self.spares:
            worker.channel.close()
        self.spares.clear()
        for end, _ in self._forks:
            end.close()
        self._forks.clear()

    def take(self, timeout_s: float) -> Worker:
        """Take an unused worker. Raises `Busy` after `timeout_s` seconds, and `ToolError` if the sandbox is
        closed.
        """
        until_s = time.monotonic() + timeout_s
        with self._changed:
            while not self.spares:
                if self._closed:
                    raise ToolError("the Lua sandbox is closed")
                if self._failed:
                    raise Busy("the Lua sandbox is not running; it is restarting", retry_after_s=5.0)
                self._waiting += 1
                try:
                    self._refill()
                    left_s = until_s - time.monotonic()
                    if left_s <= 0:
                        raise Busy("no sandbox worker became free in time")
                    self._changed.wait(min(left_s, _RETRY_S))
                finally:
                    self._waiting -= 1
            worker = self.spares.popleft()
            if len(self.spares) * 2 < self._spares_wanted:
                self._refill()
            return worker

    def retire(self, worker: Worker) -> None:
        """Kill a worker and start a replacement."""
        self.kill(worker)
        worker.channel.close()
        with self._changed:
            self._refill()

    def kill(self, worker: Worker) -> None:
        """Kill a worker if it still runs. The zygote does it, because only it knows whether the pid is still
        that of its child.
        """
        if not worker.ended.is_set():
            self._order(b"K", worker.pid)

    def probe(self, name: str) -> Worker:
        """A worker that runs this probe of `lockdown.PROBES`. Raises `ToolError` if none starts."""
        with self._changed:
            self._fork(b"P", list(PROBES).index(name))
            self._changed.wait_for(lambda: self._probes or self._closed or self._failed, _START_TIMEOUT_S)
            worker = self._probes.popleft() if self._probes else None
        if worker is None:
            raise ToolError("the sandbox's self-test did not run: no process could be started")
        return worker

    # ------------------------------------------------------------------ the zygote

    def _start_zygote(self) -> None:
        lupa = importlib.util.find_spec("lupa")  # the server itself does not import it
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
                start_new_session=True,  # Ctrl-C in the terminal must reach the server only
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
        ours.settimeout(None)
        self.layers = [Layer(*layer) for layer in json.loads(layers)]
        self._process, self._control = process, ours

    def _listen(self) -> None:
        while not self._closed:
            try:
                message = self._control.recv(REPORT.size)
            except OSError:
                message = b""
            if len(message) < REPORT.size:
                if not self._closed:
                    self._replace_zygote()
                continue
            letter, pid, status = REPORT.unpack(message)
            if letter == b"X":
                self._note_exit(pid, status)
            else:
                self._note_fork(pid)

    def _replace_zygote(self) -> None:
        # The workers died with the zygote, so running calls find their sockets closed.
        logger.error("the sandbox's zygote ended; starting another")
        self._process.wait()
        with self._changed:
            self._control.close()
            self._drop_unused()
            for worker in self._live.values():
                worker.ended.set()
            self._live.clear()
        while not self._closed:
            try:
                self._start_zygote()
                break
            except (ToolError, OSError) as error:
                logger.error("the sandbox's zygote did not start: %s", error)
            with self._changed:
                self._failed = True
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._closed, _PAUSE_S)
        with self._changed:
            self._failed = False
            self._refill()
            self._changed.notify_all()

    def _note_fork(self, pid: int) -> None:
        with self._changed:
            end, probe = self._forks.popleft()
            worker = Worker(pid, end) if pid else None
            if worker is None:
                end.close()
                logger.error("the system refused to start a sandbox worker")
            else:
                self._live[pid] = worker
            if probe:
                self._probes.append(worker)
            elif worker is not None:
                self.spares.append(worker)
            self._changed.notify_all()

    def _note_exit(self, pid: int, status: int) -> None:
        with self._changed:
            worker = self._live.pop(pid, None)
            if worker is None:
                return
            worker.exit_code = os.waitstatus_to_exitcode(status)
            if worker in self.spares:  # it was killed while it was idle
                self.spares.remove(worker)
                worker.channel.close()
                self._refill()
        worker.ended.set()

    # ------------------------------------------------------------------ callers must hold the lock

    def _refill(self) -> None:
        pending = sum(not probe for _, probe in self._forks)
        for _ in range(self._spares_wanted + self._waiting - len(self.spares) - pending):
            self._fork(b"F", 0)

    def _fork(self, letter: bytes, number: int) -> None:
        if self._closed:
            return
        ours, theirs = socket.socketpair()
        with theirs:
            if self._order(letter, number, theirs):
                self._forks.append((ours, letter == b"P"))
            else:
                ours.close()

    def _order(self, letter: bytes, number: int, pass_end: socket.socket | None = None) -> bool:
        fds = [] if pass_end is None else [pass_end.fileno()]
        try:
            socket.send_fds(self._control, [ORDER.pack(letter, number)], fds)
        except OSError:
            return False  # the zygote has just died; the next one gets the order
        return True


# -- self-test -----------------------------------------------------------------------------------------------
# Workers try what a hostile script would try. Their exit status shows whether the kernel stopped them.

STRICT = (FILTER, MEMORY, KILL)  # the layers that untrusted scripts need
_PROBE_TIMEOUT_S = 5.0  # for a loaded machine; usually a few milliseconds


def try_layers(processes: WorkerProcesses) -> list[Layer]:
    """The layers of the zygote, and those that are tested in workers. Raises `ToolError` if no
    worker starts.
    """
    layers = [layer for layer in processes.layers if layer.name != FILTER]
    return [_filter_layer(processes), _memory_layer(processes), _kill_layer(processes), *layers]


def is_strict(layers: list[Layer]) -> bool:
    return all(any(layer.name == name and layer.held for layer in layers) for name in STRICT)


def _filter_layer(processes: WorkerProcesses) -> Layer:
    workers = {action: processes.probe(action) for action in FORBIDDEN}
    codes = {action: _exit_code(processes, worker) for action, worker in workers.items()}
    allowed = [action for action, code in codes.items() if code != -signal.SIGSYS]
    if allowed:
        return Layer(FILTER, False, f"the kernel does not stop a worker that tries to {', '.join(allowed)}")
    return Layer(FILTER, True, f"killed by SIGSYS when trying to {', '.join(FORBIDDEN)}")


def _memory_layer(processes: WorkerProcesses) -> Layer:
    refused = _exit_code(processes, processes.probe(MEMORY)) == REFUSED_STATUS
    detail = "an allocation over the limit is refused" if refused else "the system does not enforce it"
    return Layer(MEMORY, refused, detail)


def _kill_layer(processes: WorkerProcesses) -> Layer:
    worker = processes.probe(KILL)
    began_s = time.perf_counter()
    processes.kill(worker)
    if _exit_code(processes, worker) != -signal.SIGKILL:
        return Layer(KILL, False, "a looping worker stayed alive")
    return Layer(KILL, True, f"in {(time.perf_counter() - began_s) * 1000:.1f} ms")


def _exit_code(processes: WorkerProcesses, worker: Worker) -> int | None:
    """The exit code of a probe; None if it does not end."""
    if not worker.ended.wait(_PROBE_TIMEOUT_S):
        processes.kill(worker)
    worker.channel.close()
    return worker.exit_code
