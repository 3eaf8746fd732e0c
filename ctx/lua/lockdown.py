"""What a process gives up before it runs a stranger's script. In the zygote once, in each worker again.

Every step reports whether it held, as a `Layer`; none is required here. The pool decides what is enough.
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
    """One line of defence: what it is, whether it stands, and what was seen."""

    name: str
    held: bool
    detail: str


class _CapHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


_libc = ctypes.CDLL(None, use_errno=True)


def confine_zygote() -> list[Layer]:
    """Namespaces, an empty root, another user, no way back. Inherited by every worker."""
    _yield_to_the_killer()
    empty = _empty_folder()
    layers = [_leave_namespaces(), _enter_root(empty), _become_nobody(), _drop_capabilities()]
    if sys.platform == "linux":
        refused = _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        layers.append(Layer("no new privileges", not refused, "set-user programs and memory dumps are off"))
    os.environ.clear()
    layers.append(Layer("empty environment", not os.environ, "no variable of the server is inherited"))
    return layers


def _yield_to_the_killer() -> None:
    # When the machine runs out of memory the kernel shall take a script, not the server.
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass  # not Linux, or /proc is not there: the memory caps still hold


def _empty_folder() -> bool:
    """Moves into a folder that is already deleted: it is empty, and nobody can put anything in it, root
    included.
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
    # Root must not go into a user namespace: it would stay the owner of root's files there.
    flags = _NEWNET | _NEWIPC | _NEWUTS | _NEWNS | (0 if os.geteuid() == 0 else _NEWUSER)
    if _libc.unshare(flags):
        return Layer("namespaces", False, f"not permitted here: {os.strerror(ctypes.get_errno())}")
    names = [name for _, name in socket.if_nameindex()]
    return Layer(
        "namespaces",
        names in ([], ["lo"]),
        f"own network ({', '.join(names) or 'no interface'}), mounts, ipc, host name",
    )


def _enter_root(empty: bool) -> Layer:
    if not empty:
        return Layer("empty root folder", False, "no temporary folder could be made")
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
    # A user namespace hands out all capabilities within itself; they are of no use to a script.
    if sys.platform != "linux":
        return Layer("no capabilities", True, "Linux only")
    header = _CapHeader(_CAPABILITY_VERSION_3, 0)
    refused = _libc.capset(ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))
    return Layer(
        "no capabilities", not refused, "dropped" if not refused else os.strerror(ctypes.get_errno())
    )


def address_space_bytes() -> int:
    """What this process maps now; 0 where the system does not say. Read before the root is changed."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def confine_worker(zygote_pid: int, address_space: int, cpu_s: int) -> None:
    """Dies with the zygote, holds no descriptor but 0 to 3, and may use so much memory and time. Raises
    `OSError`.
    """
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != zygote_pid:
        os._exit(0)  # it died before the line above
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
