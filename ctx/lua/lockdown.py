"""Drop a process's privileges before it runs a script: first in the zygote, then in each worker.

Each step returns a `Layer` that says whether it worked. The pool decides which layers a script needs.
"""

import ctypes
import os
import resource
import signal
import socket
import sys
from typing import NamedTuple

NOBODY = 65534

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x40000000
_CAPABILITY_VERSION_3 = 0x20080522


class Layer(NamedTuple):
    """One layer of the sandbox: its name, whether it holds, and a detail for `ctx doctor`."""

    name: str
    held: bool
    detail: str


class _CapHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


_libc = ctypes.CDLL(None, use_errno=True)


def confine_zygote() -> list[Layer]:
    """Enter namespaces and an empty root folder, change the user, drop capabilities. Workers inherit it."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # out of memory, the kernel must kill a script and not the server
    except OSError:
        pass  # not Linux, or no /proc: the memory limits still hold
    empty = _enter_deleted_folder()
    layers = [_leave_namespaces(), _change_root(empty), _become_nobody(), _drop_capabilities()]
    if sys.platform == "linux":
        refused = _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        layers.append(Layer("no new privileges", not refused, "set-user programs and memory dumps are off"))
    os.environ.clear()
    layers.append(Layer("empty environment", not os.environ, "no variable of the server is inherited"))
    return layers


def _enter_deleted_folder() -> bool:
    """Enter a new folder and delete it. It is empty, and not even root can add files to it."""
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
    # Root must not enter a user namespace: there it would still own root's files.
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
    """The memory this process has mapped, 0 if unknown. Needs /proc: call it before the root changes."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def confine_worker(zygote_pid: int, address_space: int, cpu_s: int) -> None:
    """End with the zygote; limit descriptors, memory and CPU time. Raises `OSError`."""
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != zygote_pid:
        os._exit(0)  # the zygote died before the line above
    limits = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_NOFILE, 4),
    ]
    if os.geteuid() != 0:
        limits.append((resource.RLIMIT_NPROC, 0))
    if address_space:
        limits.append((resource.RLIMIT_AS, address_space))
    for limit, value in limits:
        resource.setrlimit(limit, (value, value))
