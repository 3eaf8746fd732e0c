"""The process that workers are forked from: single-threaded, locked down, with Lua and the prelude loaded.

The server starts it with `python -I -S` and sends orders over one socket (`frames.ORDER`): F forks a worker
that serves the attached descriptor, P forks one for a probe of the self-test, K kills a worker. It reports
(`frames.REPORT`) F with the worker's pid and, on Linux, a pidfd, and X with the wait status of a worker that
has exited. When the server ends, it ends with all its workers.
"""

import array
import gc
import json
import mmap
import os
import select
import signal
import socket
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from ctx.lua import lockdown, seccomp, worker
from ctx.lua.frames import ORDER, REPORT

REFUSED, SUCCEEDED, BROKEN = 77, 0, 70  # the exit status of a probe that was not killed


class Settings(NamedTuple):
    """The server's settings. `parts` are the texts of the prelude's files, which a worker cannot open."""

    control_fd: int
    memory_bytes: int
    cpu_s: int
    parts: dict[str, str]


def _loop() -> None:
    while True:
        pass


def _map_memory(settings: Settings) -> None:
    # Mapped but not touched, so the probe uses no real memory on a machine without the limit.
    maps = [
        mmap.mmap(-1, settings.memory_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(64)
    ]
    maps.clear()


_ALL_RIGHTS = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC

# What the self-test makes a worker try. The first six are `selftest.FORBIDDEN`.
PROBES: tuple[Callable[[Settings], object], ...] = (
    lambda _: os.open("/", os.O_RDONLY),
    lambda _: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
    lambda _: os.fork(),
    lambda _: os.execv("/bin/true", ["true"]),  # noqa: S606 - the kernel must stop it
    lambda _: os.kill(1, 0),
    lambda _: mmap.mmap(-1, 4096, prot=_ALL_RIGHTS),
    _map_memory,
    lambda _: _loop(),
)


class _Zygote:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.control = socket.socket(fileno=settings.control_fd)
        self.pid = os.getpid()
        self.children: set[int] = set()
        self.server_fd = _pidfd(os.getppid())
        self.parts = worker.compile_parts(settings.parts)
        self.interpreter = worker.Interpreter(self.parts, settings.memory_bytes)
        worker.warm_up(self.interpreter)
        machine = seccomp.machine()
        self.filter = seccomp.prepare(machine) if machine else None
        # Twice the script's limit (a table that grows keeps its old half), plus Python's own memory.
        mapped = lockdown.address_space_bytes()
        self.address_space = mapped + 2 * settings.memory_bytes + (64 << 20) if mapped else 0

    def lock_down(self) -> None:
        null = os.open("/dev/null", os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        os.close(null)
        layers = lockdown.confine_zygote()
        if self.filter is None:
            layers.append(lockdown.Layer("system call filter", False, "Linux on x86_64 and aarch64 only"))
        self.control.sendall(json.dumps(layers).encode() + b"\n")

    def run(self) -> NoReturn:
        child_exited, wakeup = os.pipe()
        for fd in (child_exited, wakeup):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.own_fds = [child_exited, wakeup, self.control.fileno()] + (
            [self.server_fd] if self.server_fd is not None else []
        )
        gc.collect()
        gc.disable()
        gc.freeze()  # or the first collection in each worker would copy every page
        waiting = select.poll()
        for fd in {*self.own_fds} - {wakeup}:
            waiting.register(fd, select.POLLIN)
        while True:
            for fd, _ in waiting.poll():
                if fd == child_exited:
                    os.read(child_exited, 4096)
                    self.report_exits()
                elif fd == self.server_fd:
                    self.end()
                else:
                    self.read_order()

    def read_order(self) -> None:
        try:
            message, fds, _, _ = socket.recv_fds(self.control, ORDER.size, 1)
        except ConnectionResetError:
            self.end()
        if len(message) < ORDER.size:
            self.end()
        letter, number = ORDER.unpack(message)
        if letter == b"K":
            if number in self.children:  # our child, not yet waited for: the pid cannot be reused
                os.kill(number, signal.SIGKILL)
            return
        try:
            pid = os.fork()
        except OSError:  # too many processes, or too little memory
            self.control.sendall(REPORT.pack(b"F", 0, 0))
        else:
            if pid == 0:
                self.become_worker(fds[0], None if letter == b"F" else number)
            self.report_fork(pid)
        for fd in fds:
            os.close(fd)

    def report_fork(self, pid: int) -> None:
        self.children.add(pid)
        pidfd = _pidfd(pid)
        passed = [] if pidfd is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [pidfd]))]
        self.control.sendmsg([REPORT.pack(b"F", pid, 0)], passed)
        if pidfd is not None:
            os.close(pidfd)

    def become_worker(self, fd: int, probe: int | None) -> NoReturn:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if fd != 3:
                os.dup2(fd, 3)
            for inherited in {*self.own_fds, fd} - {3}:
                os.close(inherited)
            end = socket.socket(fileno=3)
            lockdown.confine_worker(self.pid, self.address_space, self.settings.cpu_s)
            if self.filter is not None:
                seccomp.install(self.filter)
            if probe is None:
                worker.serve(end, self.interpreter)
            else:
                self.try_probe(probe)
        finally:
            os._exit(BROKEN)

    def try_probe(self, number: int) -> NoReturn:
        try:
            PROBES[number](self.settings)
        except (OSError, MemoryError):
            os._exit(REFUSED)
        os._exit(SUCCEEDED)

    def report_exits(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.children.discard(pid)
            self.control.sendall(REPORT.pack(b"X", pid, status))

    def end(self) -> NoReturn:
        for pid in self.children:
            os.kill(pid, signal.SIGKILL)
        os._exit(0)


def _pidfd(pid: int) -> int | None:
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        # A kernel before 5.3, or the process is gone. The order K, and the end of the socket, still work.
        return None


def main(argument: str) -> NoReturn:
    """Run the zygote. `argument` is `Settings` as a JSON array."""
    zygote = _Zygote(Settings(*json.loads(argument)))
    zygote.lock_down()
    zygote.run()
