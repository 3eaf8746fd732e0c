"""The heaps of a server's threads are bounded: memory that one has freed, another takes."""

import os
import subprocess
import sys

import pytest

# Forty threads hold some memory of their own at once; glibc then counts its heaps.
THREADS = """
import ctypes, os, sys, tempfile, threading
libc = ctypes.CDLL(None)
if not hasattr(libc, "mallopt") or not hasattr(libc, "malloc_info"):
    sys.exit(77)
from ctx.server.heaps import bound_heaps
bounded = sys.argv[1] == "bounded" and bound_heaps()
together = threading.Barrier(41)
def hold():
    held = bytearray(50_000)
    together.wait()
    together.wait()
for _ in range(40):
    threading.Thread(target=hold, daemon=True).start()
together.wait()
libc.fopen.restype = ctypes.c_void_p
with tempfile.NamedTemporaryFile() as report:
    stream = ctypes.c_void_p(libc.fopen(os.fsencode(report.name), b"w"))
    libc.malloc_info(0, stream)
    libc.fclose(stream)
    print(bounded, open(report.name).read().count("<heap nr="))
together.wait()
"""


def heaps(case: str, **environment: str) -> tuple[str, int]:
    """(whether they were bounded, how many heaps forty threads use)."""
    kept = {
        key: value for key, value in os.environ.items() if key not in {"MALLOC_ARENA_MAX", "GLIBC_TUNABLES"}
    }
    done = subprocess.run(
        [sys.executable, "-c", THREADS, case],
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if done.returncode == 77:
        pytest.skip("a C library without such heaps")
    assert done.returncode == 0, done.stderr
    bounded, count = done.stdout.split()
    return bounded, int(count)


def test_forty_threads_share_a_heap_a_processor() -> None:
    most = max(2, os.cpu_count() or 2)
    assert heaps("as they are")[1] > most
    bounded, count = heaps("bounded")
    assert bounded == "True"
    assert count <= most + 1  # the main heap is one of them, or beside them


@pytest.mark.parametrize(
    "environment", [{"MALLOC_ARENA_MAX": "5"}, {"GLIBC_TUNABLES": "glibc.malloc.arena_max=5"}]
)
def test_whoever_runs_it_may_say_another_bound(environment: dict[str, str]) -> None:
    bounded, count = heaps("bounded", **environment)
    assert bounded == "False"
    assert count <= 6
