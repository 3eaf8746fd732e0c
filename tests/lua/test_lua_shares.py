"""Scripts that hang leave room for the others."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from redteam_run import WatchedPool, poor_host, tool

from ctx.errors import Busy, ToolError
from ctx.lua.pool import Job

LOOP = "tool = {name='loop', execute=function() while true do end end}"
QUICK = "tool = {name='quick', execute=function() return 'at once' end}"


@pytest.fixture
def small() -> Iterator[WatchedPool]:
    with WatchedPool(workers=4, waiting=4, patience_s=20.0, spares=2) as pool:
        yield pool


class Flood:
    """Calls under way, from threads of their own, until `end` closes the sandbox."""

    def __init__(self, pool: WatchedPool, jobs: list[Job]) -> None:
        self._pool = pool
        self._threads = ThreadPoolExecutor(len(jobs))
        self.calls = [self._threads.submit(pool.run, job, poor_host, 60.0) for job in jobs]

    def end(self) -> list[BaseException | None]:
        self._pool.close()
        self._threads.shutdown()
        return [call.exception() for call in self.calls]


def running(pool: WatchedPool, count: int, waiting: int = 0) -> bool:
    with pool._slots:
        return pool._slots.wait_for(lambda: (pool._running, pool._waiting) == (count, waiting), 0.05)


def test_a_looping_script_leaves_half_of_the_sandbox_to_the_others(small: WatchedPool) -> None:
    flood = Flood(small, [tool(LOOP, name="loop")] * 4)
    while not running(small, 2, 2):
        pass
    assert small.run(tool(QUICK, name="quick"), poor_host, 10.0) == "at once"
    with pytest.raises(Busy, match="too many calls of tool 'loop'"):
        small.run(tool(LOOP, name="loop"), poor_host, 10.0)
    # On a slow machine, a call that waits may give up (`Busy`) before the sandbox is closed.
    assert all(isinstance(error, ToolError | Busy) for error in flood.end())
    assert running(small, 0)
