"""How many heaps the C library keeps for the threads of a server."""

import os

_M_ARENA_MAX = -8  # of glibc's malloc.h


def bound_heaps() -> bool:
    """Has all threads share one heap a processor, two at least; False where the C library has no such bound
    (musl, macOS, Windows) or `MALLOC_ARENA_MAX` or `GLIBC_TUNABLES` says another.

    glibc gives each thread a heap of its own, up to eight a processor, and what is free in one is of no use
    to the others: of the 520 MB of a server with 20 clients 270 were free, and it grew for five minutes. To
    be called before many threads run, since glibc reads the bound once, at the ninth heap. Python runs one
    thread at a time, so that they hardly ever wait for one another.
    """
    if os.environ.get("MALLOC_ARENA_MAX") or "arena_max" in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    try:
        import ctypes  # 3 ms, and some commands read this module for a port that is free
    except ImportError:  # a Python that was built without it
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    return mallopt is not None and mallopt(_M_ARENA_MAX, max(2, os.cpu_count() or 2)) == 1
