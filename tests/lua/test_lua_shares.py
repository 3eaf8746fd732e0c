"""Scripts that hang keep their own share of the sandbox, and no script another's."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from redteam_run import WatchedPool, poor_host, tool

from ctx.errors import Busy, CtxError, ToolError
from ctx.lua.pool import Job
from ctx.lua.shares import Shares

LOOP = "tool = {name='loop', execute=function() while true do end end}"
QUICK = "tool = {name='quick', execute=function() return 'at once' end}"


@pytest.fixture
def small() -> Iterator[WatchedPool]:
    with WatchedPool(workers=4, waiting=4, patience_s=20.0, spares=2) as pool:
        yield pool


class Flood:
    """Calls under way, from threads of their own, until `end`."""

    def __init__(self, pool: WatchedPool, jobs: list[Job]) -> None:
        self.cancel = threading.Event()
        self._threads = ThreadPoolExecutor(len(jobs))
        self.calls = [
            self._threads.submit(pool.run, job, poor_host, 60.0, cancel=self.cancel) for job in jobs
        ]

    def end(self) -> list[str]:
        self.cancel.set()
        self._threads.shutdown()
        return [str(call.exception()) for call in self.calls]


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
    assert all("was cancelled" in message for message in flood.end())
    assert running(small, 0)


def test_a_caller_with_several_looping_scripts_leaves_a_quarter_to_the_other_callers(
    small: WatchedPool,
) -> None:
    names = ("a", "b", "c", "d")
    flood = Flood(small, [tool(LOOP, name=name, caller="eve") for name in names])
    while not running(small, 3, 1):
        pass
    assert small.run(tool(QUICK, name="a", caller="ann"), poor_host, 10.0) == "at once"
    assert small.run(tool(QUICK, name="e"), poor_host, 10.0) == "at once"
    flood.end()


def test_a_place_given_back_goes_to_whoever_may_have_it(small: WatchedPool) -> None:
    """The first in the queue is over its share; the one behind it must not wait with it."""
    flood = Flood(small, [tool(LOOP, name="loop")] * 3)
    while not running(small, 2, 1):
        pass
    others = Flood(small, [tool(LOOP, name="else")] * 2)
    while not running(small, 4, 1):
        pass
    late = Flood(small, [tool(QUICK, name="quick")])
    while not running(small, 4, 2):
        pass
    others.end()
    assert late.calls[0].result(20) == "at once"
    flood.end()


def test_shares_are_counted_to_the_last_and_forgotten_when_given_back() -> None:
    shares = Shares(8)
    for _ in range(4):
        assert shares.room("loop", "eve")
        shares.take("loop", "eve")
    assert not shares.room("loop", "ann")
    assert shares.room("quick", "eve")
    for name in ("x", "y"):
        shares.take(name, "eve")
    assert not shares.room("quick", "eve")
    assert shares.room("quick", "")
    assert shares.room("", "ann")
    shares.give_back("loop", "eve")
    assert shares.room("loop", "eve")
    for name in ("loop", "loop", "loop", "x", "y"):
        shares.give_back(name, "eve")
    assert not shares._tools
    assert not shares._callers


def test_a_script_that_fails_gives_its_place_back(small: WatchedPool) -> None:
    for _ in range(10):
        with pytest.raises(ToolError):
            small.run(tool("tool = {execute=function() error('no') end}", caller="eve"), poor_host, 10.0)
        with pytest.raises(CtxError):
            small.run(tool("not lua", caller="eve"), poor_host, 10.0)
    assert not small._running_shares._tools
