"""Drop a process's privileges before it runs a script: first in the zygote, then in each worker.

The zygote is the process that workers are forked from. Each step returns a `Layer` that says whether the step
worked. The pool decides which layers a script needs. The last step is a kernel filter for system calls (Linux
on x86_64 and aarch64): a system call that is not listed here kills the process with SIGSYS. So a worker
cannot open files or sockets, start processes or threads, send signals or make memory executable. The filter
is written in classic BPF and needs no library.
"""

import ctypes
import mmap
import os
import platform
import resource
import signal
import socket
import sys
from collections.abc import Callable
from typing import NamedTuple, NoReturn

NOBODY = 65534
CPU_S = 3600  # ends a worker that the server cannot kill; longer than any connector's deadline
FILTER, MEMORY, KILL = "system call filter", "memory limit", "kill"

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x40000000
_CAPABILITY_VERSION_3 = 0x20080522


class Layer(NamedTuple):
    """One layer of the sandbox: its name, whether it works here, and a detail for `ctx doctor`."""

    name: str
    held: bool
    detail: str


class _CapHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


_libc = ctypes.CDLL(None, use_errno=True)


def confine_zygote() -> list[Layer]:
    """Enter namespaces and an empty root folder, change the user, and drop capabilities. Workers inherit
    these restrictions.
    """
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # if memory runs out, the kernel must kill a script, not the server
    except OSError:
        pass  # not Linux, or no /proc; the memory limits still apply
    empty = _enter_deleted_folder()
    layers = [_leave_namespaces(), _change_root(empty), _become_nobody(), _drop_capabilities()]
    if sys.platform == "linux":
        refused = _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        layers.append(Layer("no new privileges", not refused, "set-user programs and memory dumps are off"))
    os.environ.clear()
    layers.append(Layer("empty environment", not os.environ, "no variable of the server is inherited"))
    return layers


def _enter_deleted_folder() -> bool:
    """Enter a new folder and delete it. A deleted folder stays empty: not even root can add files to it.
    Returns whether that worked.
    """
    for parent in ("/dev/shm", "/tmp", "/var/tmp"):  # noqa: S108 - the name is random, and gone at once
        path = f"{parent}/ctx-{os.getpid()}-{os.urandom(8).hex()}"
        try:
            os.mkdir(path, 0o700)
        except OSError:
            continue
        os.chdir(path)
        os.rmdir(path)
        return True
    return False


def _leave_namespaces() -> Layer:
    if sys.platform != "linux":
        return Layer("namespaces", False, "Linux only")
    # Root must not enter a user namespace, because there it would still own root's files.
    flags = _NEWNET | _NEWIPC | _NEWUTS | _NEWNS | (0 if os.geteuid() == 0 else _NEWUSER)
    if _libc.unshare(flags):
        return Layer("namespaces", False, f"not permitted here: {os.strerror(ctypes.get_errno())}")
    names = [name for _, name in socket.if_nameindex()]
    return Layer(
        "namespaces",
        names in ([], ["lo"]),
        f"own network ({', '.join(names) or 'no interface'}), mounts, ipc, host name",
    )


def _change_root(empty: bool) -> Layer:
    if not empty:
        return Layer("empty root folder", False, "could not create a temporary folder")
    try:
        os.chroot(".")
        os.chdir("/")
        return Layer("empty root folder", not os.listdir("/"), "chroot to a deleted folder")
    except OSError as error:
        return Layer("empty root folder", False, f"not permitted here: {error.strerror}")


def _become_nobody() -> Layer:
    try:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
    except OSError as error:
        return Layer("unprivileged user", False, f"not permitted here: {error.strerror}")
    return Layer("unprivileged user", os.geteuid() != 0, f"uid {os.geteuid()}")


def _drop_capabilities() -> Layer:
    # A user namespace grants all capabilities inside it.
    if sys.platform != "linux":
        return Layer("no capabilities", True, "Linux only")
    header = _CapHeader(_CAPABILITY_VERSION_3, 0)
    refused = _libc.capset(ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))
    return Layer(
        "no capabilities", not refused, "dropped" if not refused else os.strerror(ctypes.get_errno())
    )


def address_space_bytes() -> int:
    """The bytes of memory that this process has mapped; 0 if unknown. The function needs /proc, so call it
    before the root folder changes.
    """
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def confine_worker(zygote_pid: int, address_space: int) -> None:
    """Make the worker end with the zygote, and limit its descriptors, memory and CPU time. Raises
    `OSError`.
    """
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != zygote_pid:
        os._exit(0)  # the zygote died before this process asked to end with it
    limits = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CPU, CPU_S),
        (resource.RLIMIT_NOFILE, 4),
    ]
    if os.geteuid() != 0:
        limits.append((resource.RLIMIT_NPROC, 0))
    if address_space:
        limits.append((resource.RLIMIT_AS, address_space))
    for limit, value in limits:
        resource.setrlimit(limit, (value, value))


# -- the system call filter ----------------------------------------------------------------------------------

_SECCOMP_MODE_FILTER = 2

_LOAD_WORD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_JUMP_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_JUMP_AT_LEAST = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_JUMP_ANY_BIT = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K

_KILL = 0x80000000  # SECCOMP_RET_KILL_PROCESS
_ALLOW = 0x7FFF0000
_NOT_PERMITTED = 0x00050001  # SECCOMP_RET_ERRNO | EPERM

_AT_NUMBER = 0  # offsets into struct seccomp_data
_AT_ARCH = 4
_AT_PROTECTION = 16 + 2 * 8  # the low half of a call's third argument; both processors are little-endian
_PROT_EXEC = 4
_X32 = 0x40000000  # this bit selects the second system call table of x86_64 (x32)

# System call -> its numbers on x86_64 and aarch64. `ALLOWED` has the calls that CPython and glibc need to use
# one socket, allocate memory, read the clock and exit:
ALLOWED = {
    "read": (0, 63),
    "write": (1, 64),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigreturn": (15, 139),
    "rt_sigprocmask": (14, 135),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "sendto": (44, 206),
    "recvfrom": (45, 207),
    "exit": (60, 93),
    "gettimeofday": (96, 169),
    "futex": (202, 98),
    "clock_gettime": (228, 113),
    "exit_group": (231, 94),
    "getrandom": (318, 278),
}
WITHOUT_EXEC = {"mmap": (9, 222), "mprotect": (10, 226)}  # allowed only without PROT_EXEC
# abort() makes these calls. They fail with an error instead of killing the process, so that a crash does not
# look like an attack.
REFUSED = {"gettid": (186, 178), "getpid": (39, 172), "tgkill": (234, 131)}


class Machine(NamedTuple):
    """A processor's number in the kernel's audit interface, and its index in the tuples of system calls."""

    arch: int
    column: int


MACHINES = {"x86_64": Machine(0xC000003E, 0), "aarch64": Machine(0xC00000B7, 1)}


class Instruction(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_ushort),
        ("jt", ctypes.c_ubyte),
        ("jf", ctypes.c_ubyte),
        ("k", ctypes.c_uint),
    ]


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(Instruction))]


def machine() -> Machine | None:
    """This machine's processor; None if there is no filter for it or for its operating system."""
    if sys.platform != "linux" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    return MACHINES.get(platform.machine())


def filter_instructions(target: Machine) -> list[tuple[int, int, int, int]]:
    """The filter program as a list of (code, jump if true, jump if false, operand)."""
    filter_ = [
        (_LOAD_WORD, 0, 0, _AT_ARCH),
        (_JUMP_EQUAL, 1, 0, target.arch),
        (_RETURN, 0, 0, _KILL),  # kill: a system call of another architecture
        (_LOAD_WORD, 0, 0, _AT_NUMBER),
        (_JUMP_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _KILL),
    ]
    for numbers in WITHOUT_EXEC.values():
        filter_ += [
            (_JUMP_EQUAL, 0, 4, numbers[target.column]),
            (_LOAD_WORD, 0, 0, _AT_PROTECTION),
            (_JUMP_ANY_BIT, 0, 1, _PROT_EXEC),
            (_RETURN, 0, 0, _KILL),
            (_RETURN, 0, 0, _ALLOW),
        ]
    for calls, verdict in ((ALLOWED, _ALLOW), (REFUSED, _NOT_PERMITTED)):
        for numbers in calls.values():
            filter_ += [(_JUMP_EQUAL, 0, 1, numbers[target.column]), (_RETURN, 0, 0, verdict)]
    filter_.append((_RETURN, 0, 0, _KILL))
    return filter_


def prepare_filter(target: Machine) -> Program:
    """The filter, ready to install. It is made once, before forking."""
    rows = filter_instructions(target)
    return Program(len(rows), (Instruction * len(rows))(*(Instruction(*row) for row in rows)))


def install_filter(program: Program) -> None:
    """Install the filter in this process. It cannot be removed. Raises `OSError`."""
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")
    if _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


# -- the self-test -------------------------------------------------------------------------------------------
# Workers try what a hostile script would try. Their exit status shows whether the kernel stopped them.

REFUSED_STATUS = 77


def _map_memory(memory_bytes: int) -> None:
    # Map memory without writing to it, so that the probe uses none if the machine does not enforce the limit.
    maps = [mmap.mmap(-1, memory_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(64)]
    maps.clear()


def _loop(_: int) -> None:
    while True:
        pass


FORBIDDEN: dict[str, Callable[[int], object]] = {
    "open a file": lambda _: os.open("/", os.O_RDONLY),
    "open a socket": lambda _: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
    "start a process": lambda _: os.fork(),
    "run a program": lambda _: os.execv("/bin/true", ["true"]),  # noqa: S606 - the kernel must stop it
    "send a signal": lambda _: os.kill(1, 0),
    "make memory executable": lambda _: mmap.mmap(
        -1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
    ),
}
PROBES = {**FORBIDDEN, MEMORY: _map_memory, KILL: _loop}


def try_probe(number: int, memory_bytes: int) -> NoReturn:
    """Run a probe and end the process. `memory_bytes` is the memory that a script may use."""
    try:
        list(PROBES.values())[number](memory_bytes)
    except (OSError, MemoryError):
        os._exit(REFUSED_STATUS)
    os._exit(0)
