"""A kernel filter for the system calls of a worker. Linux on x86_64 and aarch64.

Every call that is not listed kills the process with SIGSYS: files, sockets, processes, signals, threads, new
executable memory. The filter is about forty instructions of classic BPF, so it needs no library.
"""

import ctypes
import platform
import sys
from typing import NamedTuple

_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECCOMP = 22
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
_AT_PROTECTION = 16 + 2 * 8  # the low half of the third argument; both processors are little-endian
_PROT_EXEC = 4
_X32 = 0x40000000  # the bit of x86_64's second system call table

_libc = ctypes.CDLL(None, use_errno=True)


class Machine(NamedTuple):
    """The audit number and the system call numbers of a processor."""

    arch: int
    numbers: dict[str, int]


# What CPython and glibc need to use one socket, allocate memory, read the clock and exit.
ALLOWED = (
    "read",
    "write",
    "munmap",
    "brk",
    "rt_sigreturn",
    "rt_sigprocmask",
    "sched_yield",
    "mremap",
    "madvise",
    "sendto",
    "recvfrom",
    "exit",
    "gettimeofday",
    "futex",
    "clock_gettime",
    "exit_group",
    "getrandom",
)
# Allowed only without PROT_EXEC.
WITHOUT_EXEC = ("mmap", "mprotect")
# abort() makes these calls. They fail instead of killing, so that a crash does not look like an attack.
REFUSED = ("gettid", "getpid", "tgkill")

MACHINES = {
    "x86_64": Machine(
        0xC000003E,
        {
            "read": 0,
            "write": 1,
            "mmap": 9,
            "mprotect": 10,
            "munmap": 11,
            "brk": 12,
            "rt_sigprocmask": 14,
            "rt_sigreturn": 15,
            "sched_yield": 24,
            "mremap": 25,
            "madvise": 28,
            "getpid": 39,
            "sendto": 44,
            "recvfrom": 45,
            "exit": 60,
            "gettimeofday": 96,
            "gettid": 186,
            "futex": 202,
            "clock_gettime": 228,
            "exit_group": 231,
            "tgkill": 234,
            "getrandom": 318,
        },
    ),
    "aarch64": Machine(
        0xC00000B7,
        {
            "read": 63,
            "write": 64,
            "exit": 93,
            "exit_group": 94,
            "futex": 98,
            "clock_gettime": 113,
            "sched_yield": 124,
            "tgkill": 131,
            "rt_sigprocmask": 135,
            "rt_sigreturn": 139,
            "gettimeofday": 169,
            "getpid": 172,
            "gettid": 178,
            "sendto": 206,
            "recvfrom": 207,
            "brk": 214,
            "munmap": 215,
            "mremap": 216,
            "mmap": 222,
            "mprotect": 226,
            "madvise": 233,
            "getrandom": 278,
        },
    ),
}


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
    """This machine's numbers, or None if there is no filter for its system or processor."""
    if sys.platform != "linux" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    return MACHINES.get(platform.machine())


def instructions(target: Machine) -> list[tuple[int, int, int, int]]:
    """The filter as (code, jump if true, jump if false, operand)."""
    numbers = target.numbers
    filter_ = [
        (_LOAD_WORD, 0, 0, _AT_ARCH),
        (_JUMP_EQUAL, 1, 0, target.arch),
        (_RETURN, 0, 0, _KILL),  # a call of another architecture
        (_LOAD_WORD, 0, 0, _AT_NUMBER),
        (_JUMP_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _KILL),
    ]
    for name in WITHOUT_EXEC:
        filter_ += [
            (_JUMP_EQUAL, 0, 4, numbers[name]),
            (_LOAD_WORD, 0, 0, _AT_PROTECTION),
            (_JUMP_ANY_BIT, 0, 1, _PROT_EXEC),
            (_RETURN, 0, 0, _KILL),
            (_RETURN, 0, 0, _ALLOW),
        ]
    for names, verdict in ((ALLOWED, _ALLOW), (REFUSED, _NOT_PERMITTED)):
        for name in names:
            filter_ += [(_JUMP_EQUAL, 0, 1, numbers[name]), (_RETURN, 0, 0, verdict)]
    filter_.append((_RETURN, 0, 0, _KILL))
    return filter_


def prepare(target: Machine) -> Program:
    """The filter, ready to install. Made once, before forking."""
    rows = instructions(target)
    return Program(len(rows), (Instruction * len(rows))(*(Instruction(*row) for row in rows)))


def install(program: Program) -> None:
    """Install the filter in this process. It cannot be removed. Raises `OSError`."""
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")
    if _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")
