"""The layers of the sandbox hold, and ctx notices when one is missing.

A test takes a layer away by a line of Python that its zygote runs first; nothing in the product can do that.
"""

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from redteam_run import WatchedPool, poor_host, tool

from ctx.errors import ToolError
from ctx.lua import lockdown
from ctx.lua.lockdown import FILTER, KILL, MEMORY, Layer
from ctx.lua.pool import Pool
from ctx.lua.processes import WorkerProcesses
from ctx.models import JSON


def without(patch: str, **settings: JSON) -> WatchedPool:
    """A pool whose zygote runs `patch` first."""
    boot_ = (
        "import sys, json; sys.path += sys.argv[2:]; from ctx.lua import lockdown, worker\n"
        f"{patch}\nworker.main(sys.argv[1])"
    )

    class Weakened(WorkerProcesses):
        boot = boot_

    class WeakenedPool(WatchedPool):
        def _new_processes(self) -> WorkerProcesses:
            return Weakened(spares=self._spares, memory_mb=self._memory_mb)

    return WeakenedPool(spares=2, **settings)


def layer(pool: Pool, name: str) -> Layer:
    return next(layer for layer in pool.selftest() if layer.name == name)


def test_every_layer_that_linux_can_give_holds(pool: WatchedPool) -> None:
    layers = {layer.name: layer for layer in pool.selftest()}
    if lockdown.machine() is None:
        pytest.skip("no system call filter on this system")
    for name in (FILTER, MEMORY, KILL, "unprivileged user", "no new privileges", "empty environment"):
        assert layers[name].held, layers[name]
    assert pool.level == "strict"


# ---------------------------------------------------------------------- with one taken away


def test_without_the_filter_it_is_said_and_strangers_are_refused() -> None:
    with without("lockdown.install_filter = lambda program: None") as weak:
        assert not layer(weak, FILTER).held
        assert "open a file" in layer(weak, FILTER).detail
        assert weak.level == "process"
        with pytest.raises(ToolError, match="strict sandbox"):
            weak.run(tool("tool = {} function tool.execute() return 1 end"), poor_host, 10)
        assert (
            weak.run(tool("tool = {} function tool.execute() return 1 end", trust="operator"), poor_host, 10)
            == 1
        )


def test_where_the_configuration_wants_strict_nobody_runs_below_it() -> None:
    with (
        without("lockdown.install_filter = lambda program: None", sandbox="strict") as weak,
        pytest.raises(ToolError, match="every script"),
    ):
        weak.run(tool("tool = {} function tool.execute() return 1 end", trust="operator"), poor_host, 10)


# ---------------------------------------------------------------------- the filter itself

_OPEN = 0x7FFF0000
_ERRNO = 0x00050000


def verdict(target: lockdown.Machine, number: int, *, arch: int | None = None, protection: int = 0) -> int:
    """What the kernel would answer: the filter run as the kernel runs it."""
    data = {0: number, 4: target.arch if arch is None else arch, 32: protection}
    program = lockdown.filter_instructions(target)
    step = accumulator = 0
    while True:
        code, true, false, operand = program[step]
        step += 1
        if code == 0x20:
            accumulator = data[operand]
        elif code == 0x06:
            return operand
        else:
            jump = {
                0x15: accumulator == operand,
                0x35: accumulator >= operand,
                0x45: bool(accumulator & operand),
            }[code]
            step += true if jump else false


@pytest.mark.parametrize("name", list(lockdown.MACHINES))
def test_the_filter_allows_its_list_and_kills_for_the_rest(name: str) -> None:
    target = lockdown.MACHINES[name]
    column = target.column
    allowed = {numbers[column] for numbers in (lockdown.ALLOWED | lockdown.WITHOUT_EXEC).values()}
    refused = {numbers[column] for numbers in lockdown.REFUSED.values()}
    for number in range(600):
        answer = _OPEN if number in allowed else (_ERRNO | 1) if number in refused else 0x80000000
        assert verdict(target, number) == answer, number
    for numbers in lockdown.WITHOUT_EXEC.values():
        assert verdict(target, numbers[column], protection=3) == _OPEN
        assert verdict(target, numbers[column], protection=7) == 0x80000000
    assert verdict(target, lockdown.ALLOWED["read"][column], arch=0x40000003) == 0x80000000
    assert verdict(target, lockdown.ALLOWED["read"][column] | 0x40000000) == 0x80000000


# ---------------------------------------------------------------------- processes

_SERVER = """
import os, sys, threading
from ctx.lua.pool import Job, Pool
pool = Pool(spares=2)
pool.start()
source = b"tool = {} function tool.execute() while true do end end"
job = Job("loop", source, "execute", b"{}", b"{}", frozenset(), "untrusted")
taken = pool._take_worker
def tell(*arguments):
    worker = taken(*arguments)
    print(pool.zygote_pid, worker.pid, flush=True)
    return worker
pool._take_worker = tell
MORE
pool.run(job, lambda *_: b"", 60)
"""


@contextmanager
def server(more: str = "") -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A process with a sandbox in which a script loops; with the pids of its zygote and worker."""
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVER.replace("MORE", more)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process, [int(word) for word in process.stdout.readline().split()]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def ends(pid: int, within_s: float) -> bool:
    """Whether a process that is not our child ends in time."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], within_s)[0])
    finally:
        os.close(fd)


@pytest.mark.skipif(sys.platform != "linux", reason="watches by pidfd")
def test_a_killed_server_takes_zygote_and_workers_with_it() -> None:
    with server() as (process, pids):
        assert len(pids) == 2
        process.kill()
        for pid in pids:
            assert ends(pid, 2.0)
