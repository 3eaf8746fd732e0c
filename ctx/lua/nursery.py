"""Keeps workers ready: the server's end of the zygote.

A worker is forked before it is needed, since a fork (about a millisecond) is the largest part of a call. One
thread listens to the zygote; when the zygote dies, it starts another.
"""

import array
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
import weakref
from collections import deque

from ctx.errors import Busy, ToolError
from ctx.lua.frames import ORDER, REPORT, Cancelled, Channel
from ctx.lua.lockdown import Layer

logger = logging.getLogger(__name__)

# macOS has no SOCK_SEQPACKET here; the messages have a fixed length for its sake.
_SEQUENCED = sys.platform == "linux"
_START_TIMEOUT_S = 20.0  # on a machine that swaps; 0.1 s otherwise
_END_TIMEOUT_S = 2.0
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
# What a Python of one's own may need to find its libraries; emptied before any script runs.
_LOADER = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_BACKOFF_S = (0.05, 0.2, 1.0, 5.0)
_PARTS = ("prelude", "dates", "memory")
_BOOT = "import sys; sys.path += sys.argv[2:]; from ctx.lua.zygote import main; main(sys.argv[1])"
_CPU_S = 3600  # the last resort, should the server be unable to kill: longer than any connector's deadline
_RETRY_S = 0.5  # a fork that the system refused is asked for again
_STALL_S = 0.4  # without a word while workers are owed; then its state is looked at
_HANG_S = 20.0  # and then it is given up in whatever state
_SLICE_S = 0.05  # how often a wait for a worker looks at the cancel event


class Worker:
    """A process that waits for a job. `status` is its wait status once `ended` is set."""

    __slots__ = ("channel", "ended", "pid", "pidfd", "status")

    def __init__(self, pid: int, pidfd: int | None, end: socket.socket) -> None:
        self.pid = pid
        self.pidfd = pidfd
        self.channel = Channel(end)
        self.ended = threading.Event()
        self.status: int | None = None


class Nursery:
    """A zygote and `spares` workers, forked and waiting. Safe from several threads."""

    boot = _BOOT  # what the zygote's Python is told to do; tests of the layers take one away here

    def __init__(self, *, spares: int, memory_mb: int) -> None:
        self._spares_wanted = spares
        self._memory_bytes = memory_mb << 20
        self._changed = threading.Condition()
        self._spares: deque[Worker] = deque()
        # Asked for: our end, and whether it is a probe.
        self._forks: deque[tuple[socket.socket, bool]] = deque()
        self._owed_s = 0.0  # since when the zygote owes a report
        self._probes: deque[Worker | None] = deque()  # None: it could not be forked
        self._live: dict[int, Worker] = {}
        self._waiting = 0
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._failed: str | None = None
        self.layers: list[Layer] = []
        mine = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _forget(mine))

    @property
    def ready(self) -> int:
        return len(self._spares)

    @property
    def zygote_pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Starts the zygote and its listener. Raises `ToolError`."""
        self._start_zygote()
        self._thread = threading.Thread(target=self._listen, name="lua-nursery", daemon=True)
        self._thread.start()
        with self._changed:
            self._refill()

    def close(self) -> None:
        """Ends the zygote, and with it every worker."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._control is not None:
            try:
                self._control.shutdown(socket.SHUT_RDWR)  # the zygote kills its workers and ends
            except OSError:
                pass  # it has ended already
        if self._process is not None:
            try:
                self._process.wait(_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._thread is not None:
            self._thread.join()
        with self._changed:
            self._drop_unused()
        if self._control is not None:
            self._control.close()

    def _drop_unused(self) -> None:
        """Forgets the workers that nobody has taken and those that are being made. With the lock held."""
        for worker in self._spares:
            self.drop(worker)
        self._spares.clear()
        for end, _ in self._forks:
            end.close()
        self._forks.clear()

    def take(self, timeout_s: float, cancel: threading.Event | None) -> Worker:
        """A fresh worker. Raises `Busy` after `timeout_s`, `Cancelled`, or `ToolError` when no zygote can be
        started.
        """
        until_s = time.monotonic() + timeout_s
        with self._changed:
            while not self._spares:
                if self._closed:
                    raise ToolError("the Lua sandbox is closed")
                if self._failed is not None:
                    raise Busy("the Lua sandbox is not running; it is being started again", retry_after_s=5.0)
                self._waiting += 1
                try:
                    self._refill()
                    self._end_stalled_zygote()
                    left_s = until_s - time.monotonic()
                    if left_s <= 0:
                        raise Busy("no sandbox worker became free in time")
                    self._changed.wait(min(left_s, _SLICE_S if cancel else _RETRY_S))
                finally:
                    self._waiting -= 1
                if cancel is not None and cancel.is_set():
                    raise Cancelled
            worker = self._spares.popleft()
            if len(self._spares) * 2 < self._spares_wanted:
                self._refill()
            return worker

    def retire(self, worker: Worker) -> None:
        """Kills the worker and sees to the next one."""
        self.kill(worker)
        self.drop(worker)
        with self._changed:
            self._refill()

    def kill(self, worker: Worker) -> None:
        """SIGKILL, to this very process: its pid may be another's by now, its pidfd may not."""
        if worker.pidfd is None:
            self._order(b"K", worker.pid)
            return
        try:
            signal.pidfd_send_signal(worker.pidfd, signal.SIGKILL)
        except PermissionError:
            # Root without the capability to signal other users; the zygote is of the worker's.
            self._order(b"K", worker.pid)
        except OSError:
            pass  # it has ended by itself

    def probe(self, number: int) -> Worker:
        """A worker that tries what `zygote.PROBES[number]` says. Raises `ToolError` where none starts."""
        with self._changed:
            self._fork(b"P", number)
            self._changed.wait_for(lambda: self._probes or self._closed or self._failed, _START_TIMEOUT_S)
            worker = self._probes.popleft() if self._probes else None
        if worker is None:
            raise ToolError("the sandbox's self-test could not run: no process could be started")
        return worker

    # ------------------------------------------------------------------ the zygote

    def _command(self, settings: str) -> list[str]:
        package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        lupa = importlib.util.find_spec("lupa")  # finds the folder without importing it
        if lupa is None or lupa.origin is None:
            raise ToolError("the Lua sandbox needs the package lupa; install it")
        return [
            sys.executable,
            "-I",
            "-S",
            "-c",
            self.boot,
            settings,
            package,
            os.path.dirname(os.path.dirname(lupa.origin)),
        ]

    def _spawn(self, settings: str, channel: socket.socket) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            self._command(settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[channel.fileno()],
            env={name: os.environ[name] for name in _LOADER if name in os.environ},
            cwd="/",
            start_new_session=True,  # Ctrl-C on the terminal is the server's to answer
        )

    def _start_zygote(self) -> None:
        kind = socket.SOCK_SEQPACKET if _SEQUENCED else socket.SOCK_STREAM
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        settings = json.dumps(
            [theirs.fileno(), self._memory_bytes, _CPU_S, {name: _text(name) for name in _PARTS}]
        )
        with theirs:
            process = self._spawn(settings, theirs)
        ours.settimeout(_START_TIMEOUT_S)
        hello = _line_of(ours)
        assert process.stderr is not None
        if not hello.endswith(b"\n"):
            ours.close()
            logger.error("the sandbox's zygote did not start: %s", _last_words(process) or "it said nothing")
            raise ToolError("the Lua sandbox did not start; the server's log says why")
        process.stderr.close()
        ours.settimeout(None)
        self.layers = [Layer(*layer) for layer in json.loads(hello)]
        self._process, self._control = process, ours

    def _listen(self) -> None:
        while not self._closed:
            control = self._control
            assert control is not None
            try:
                message, ancillary, _, _ = control.recvmsg(REPORT.size, socket.CMSG_SPACE(4), _CLOSE_ON_EXEC)
            except OSError:
                message, ancillary = b"", []
            if len(message) < REPORT.size:
                if not self._closed:
                    self._replace_zygote()
                continue
            letter, pid, status = REPORT.unpack(message)
            if letter == b"X":
                self._ended(pid, status)
            else:
                self._forked(pid, _descriptor(ancillary))

    def _replace_zygote(self) -> None:
        # Its workers died with it: whoever talks to one finds the socket closed.
        logger.error("the sandbox's zygote ended; starting another")
        assert self._process is not None
        assert self._control is not None
        if _kill(self._process):
            self._process.wait()
        with self._changed:
            self._control.close()
            self._drop_unused()
            for worker in self._live.values():
                worker.ended.set()
            self._live.clear()
        self._start_another()
        with self._changed:
            self._refill()
            self._changed.notify_all()

    def _start_another(self) -> None:
        """Tries until a zygote starts, or this is closed."""
        attempts = 0
        while not self._closed:
            try:
                self._start_zygote()
                self._failed = None
                return
            except (ToolError, OSError) as error:
                self._failed = str(error)
                logger.error("the sandbox's zygote did not start: %s", error)
            with self._changed:
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._closed, _BACKOFF_S[min(attempts, len(_BACKOFF_S) - 1)])
            attempts += 1

    def _forked(self, pid: int, pidfd: int | None) -> None:
        with self._changed:
            end, probe = self._forks.popleft()
            self._owed_s = time.monotonic()
            worker = Worker(pid, pidfd, end) if pid else None
            if worker is None:
                end.close()
                logger.error("the system refused to start a sandbox worker")
            else:
                self._live[pid] = worker
            if probe:
                self._probes.append(worker)
            elif worker is not None:
                self._spares.append(worker)
            self._changed.notify_all()

    def _ended(self, pid: int, status: int) -> None:
        with self._changed:
            worker = self._live.pop(pid, None)
            if worker is None:
                return
            worker.status = status
            if worker in self._spares:  # killed by somebody while it waited
                self._spares.remove(worker)
                self.drop(worker)
                self._refill()
        worker.ended.set()

    # ------------------------------------------------------------------ with the lock held

    def _refill(self) -> None:
        waiting = sum(not probe for _, probe in self._forks)
        for _ in range(self._spares_wanted + self._waiting - len(self._spares) - waiting):
            self._fork(b"F", 0)

    def _fork(self, letter: bytes, number: int) -> None:
        if self._closed:
            return
        ours, theirs = socket.socketpair()
        with theirs:
            if self._order(letter, number, theirs):
                if not self._forks:
                    self._owed_s = time.monotonic()
                self._forks.append((ours, letter == b"P"))
            else:
                ours.close()

    def _end_stalled_zygote(self) -> None:
        """Kills a zygote that was stopped (SIGSTOP) or hangs: its end is noticed, and another started."""
        silent_s = time.monotonic() - self._owed_s
        process, control = self._process, self._control
        if not self._forks or silent_s < _STALL_S or process is None or control is None:
            return
        if silent_s < _HANG_S and not _is_stopped(process.pid):
            return
        logger.error("the sandbox's zygote does not answer; it is ended, and its calls with it")
        self._owed_s = time.monotonic()
        if not _kill(process):
            control.shutdown(socket.SHUT_RDWR)  # it ends when it can read that

    def _order(self, letter: bytes, number: int, pass_end: socket.socket | None = None) -> bool:
        control = self._control
        if control is None:
            return False
        passed = (
            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [pass_end.fileno()]))]
            if pass_end
            else []
        )
        try:
            control.sendmsg([ORDER.pack(letter, number)], passed)
        except OSError:
            return False  # the zygote has just died; its successor is asked again
        return True

    def drop(self, worker: Worker) -> None:
        """Lets go of a worker that has ended."""
        worker.channel.close()
        if worker.pidfd is not None:
            os.close(worker.pidfd)
            worker.pidfd = None


def _kill(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process could be killed: root without the capability to signal other users may not."""
    try:
        process.kill()
    except PermissionError:
        return False
    return True


def _is_stopped(pid: int) -> bool:
    """Whether a process was stopped and waits for SIGCONT. False where the system cannot tell (no /proc)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except (OSError, IndexError):
        return False


def _last_words(process: subprocess.Popen[bytes]) -> str:
    """What a process that is ended here has said on stderr."""
    assert process.stderr is not None
    process.kill()
    with process.stderr:
        message = process.stderr.read().decode("utf-8", "replace").strip()
    process.wait()
    return message


def _line_of(control: socket.socket) -> bytes:
    """What a zygote says of itself; without the end of a line where it ended, or said nothing in time."""
    line = b""
    try:
        while not line.endswith(b"\n") and (part := control.recv(1 << 16)):
            line += part
    except OSError:
        return b""
    return line


def _text(part: str) -> str:
    with open(
        os.path.join(os.path.dirname(os.path.abspath(__file__)), part + ".lua"), encoding="utf-8"
    ) as file:
        return file.read()


def _descriptor(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    fds = array.array("i")
    for _, _, data in ancillary:
        fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return fds[0] if fds else None


def _forget(nursery: "weakref.ref[Nursery]") -> None:
    # In a fork of the server: the sandbox stays the parent's, and must end when the parent does, not when
    # this process does.
    mine = nursery()
    if mine is not None and mine._control is not None:
        mine._control.close()
        mine._closed = True
