"""The process that workers are forked from: small, single-threaded, locked down, with Lua and the prelude
loaded.

The server starts it with `python -I -S` and speaks to it over one socket: `F` with a descriptor forks a
worker onto that descriptor, `P` does so for a probe of the self-test, `K` kills. It answers `F` with the
worker's pid (and a pidfd where there are such), and `X` with its wait status when a worker has ended. It
ends, and all workers with it, when the server does.
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

REFUSED, SUCCEEDED, BROKEN = 77, 0, 70  # how a probe ends when nothing kills it


class Settings(NamedTuple):
    """What the server decides. `parts` are the texts of the prelude's files by name: a worker cannot open
    them.
    """

    control_fd: int
    memory_bytes: int
    cpu_s: int
    parts: dict[str, str]


def _spin() -> None:
    while True:
        pass


def _grab_memory(settings: Settings) -> None:
    # Mapped, not touched: where no limit holds, the machine's memory shall not pay for the question.
    maps = [
        mmap.mmap(-1, settings.memory_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(64)
    ]
    maps.clear()


def _reach_network() -> None:
    socket.socket(socket.AF_INET, socket.SOCK_STREAM)


# What the self-test makes a worker try, by number; the words are those of its report.
PROBES: tuple[tuple[str, Callable[[Settings], object]], ...] = (
    ("open a file", lambda _: os.open("/", os.O_RDONLY)),
    ("open a socket", lambda _: _reach_network()),
    ("start a process", lambda _: os.fork()),
    ("run a program", lambda _: os.execv("/bin/true", ["true"])),  # noqa: S606 - it is there to be killed
    ("send a signal", lambda _: os.kill(1, 0)),
    (
        "make memory executable",
        lambda _: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC),
    ),
    ("use more memory than allowed", _grab_memory),
    ("run for ever", lambda _: _spin()),
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
        # Twice the polite limit (a table doubles while the old half is kept), and what Python itself takes.
        mapped = lockdown.address_space_bytes()
        self.address_space = mapped + 2 * settings.memory_bytes + (64 << 20) if mapped else 0

    def lock_down(self) -> None:
        quiet = os.open("/dev/null", os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(quiet, standard)
        os.close(quiet)
        layers = lockdown.confine_zygote()
        if self.filter is None:
            layers.append(lockdown.Layer("system call filter", False, "Linux on x86_64 and aarch64 only"))
        self.control.sendall(json.dumps(layers).encode() + b"\n")

    def run(self) -> NoReturn:
        bell, waker = os.pipe()
        for fd in (bell, waker):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.own_fds = [bell, waker, self.control.fileno()] + (
            [self.server_fd] if self.server_fd is not None else []
        )
        gc.collect()
        gc.disable()
        gc.freeze()  # or each worker's first collection would copy every page
        waiting = select.poll()
        for fd in {*self.own_fds} - {waker}:
            waiting.register(fd, select.POLLIN)
        while True:
            for fd, _ in waiting.poll():
                if fd == bell:
                    os.read(bell, 4096)
                    self.report_ended()
                elif fd == self.server_fd:
                    self.end()
                else:
                    self.obey()

    def obey(self) -> None:
        try:
            message, fds, _, _ = socket.recv_fds(self.control, ORDER.size, 1)
        except ConnectionResetError:
            self.end()
        if len(message) < ORDER.size:
            self.end()
        letter, number = ORDER.unpack(message)
        if letter == b"K":
            if number in self.children:  # ours and not yet waited for: the pid is nobody else's
                os.kill(number, signal.SIGKILL)
            return
        pid = _forked()
        if pid == 0:
            self.become_worker(fds[0], None if letter == b"F" else number)
        for fd in fds:
            os.close(fd)
        self.report_forked(pid)

    def report_forked(self, pid: int) -> None:
        if pid < 0:
            self.control.sendall(REPORT.pack(b"F", 0, 0))
            return
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
            PROBES[number][1](self.settings)
        except (OSError, MemoryError):
            os._exit(REFUSED)
        os._exit(SUCCEEDED)

    def report_ended(self) -> None:
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
        # A kernel before 5.3, or the process is gone: `K` and the end of the socket serve instead.
        return None


def _forked() -> int:
    try:
        return os.fork()
    except OSError:  # no room for a process: a worker less, and the others live on
        return -1


def main(argument: str) -> NoReturn:
    """The process's whole life. `argument` is `Settings` as a JSON array."""
    zygote = _Zygote(Settings(*json.loads(argument)))
    zygote.lock_down()
    zygote.run()
