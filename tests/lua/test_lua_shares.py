"""Scripts that hang keep their own share of the sandbox, and no script another's."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from redteam_run import WatchedPool, poor_host, tool

from ctx.errors import Busy, CtxError, ToolError
from ctx.lua.deadline import DeadlineThreads
from ctx.lua.frames import Deadline, DeadlinePassed
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
    second = Flood(small, [tool(LOOP, name="else")] * 2)
    while not running(small, 4, 1):
        pass
    third = Flood(small, [tool(QUICK, name="quick")])
    while not running(small, 4, 2):
        pass
    second.end()
    assert third.calls[0].result(20) == "at once"
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


def test_a_stopped_zygote_is_replaced_while_a_call_waits() -> None:
    with WatchedPool(workers=4, spares=2, patience_s=30.0) as pool:
        assert pool.run(tool(QUICK), poor_host, 10.0) == "at once"
        stopped = pool.zygote_pid
        assert stopped is not None
        os.kill(stopped, signal.SIGSTOP)
        answers = [pool.run(tool(QUICK), poor_host, 10.0) for _ in range(6)]  # more than there are spares
        assert answers == ["at once"] * 6
        assert pool.zygote_pid != stopped
        with pytest.raises(ProcessLookupError):
            os.kill(stopped, 0)


@pytest.mark.slow
def test_a_stopped_zygote_does_not_keep_the_sandbox_from_closing() -> None:
    pool = WatchedPool(workers=4, spares=2)
    pool.start()
    stopped = pool.zygote_pid
    assert stopped is not None
    os.kill(stopped, signal.SIGSTOP)
    pool.close()
    with pytest.raises(ProcessLookupError):
        os.kill(stopped, 0)


def test_a_flood_of_host_calls_that_give_up_with_their_deadline_ends_in_time_out(pool: WatchedPool) -> None:
    """A host that has the deadline too may give up a moment sooner; uncaught, its error is none of the
    script's.
    """
    script = "tool = {execute=function(p, context) while true do context.search('x') end end}"

    def host(operation: str, payload: bytes, deadline_s: float) -> bytes:
        if time.monotonic() > deadline_s - 0.015:
            raise ToolError("the time was up")
        return b"[]"

    def call(number: int) -> str:
        with pytest.raises(CtxError) as failure:
            pool.run(tool(script, name=f"flood{number}"), host, 0.5)
        return failure.value.word

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(call, range(8))) == ["timeout"] * 8


def test_a_caller_who_waits_for_a_thread_until_the_deadline_is_timed_out_and_not_busy() -> None:
    threads, started, release = DeadlineThreads(1), threading.Event(), threading.Event()

    def hang() -> bool:
        started.set()
        return release.wait(20)

    hung = ThreadPoolExecutor(1).submit(threads.call, hang, Deadline(20.0))
    assert started.wait(20)
    with pytest.raises(DeadlinePassed):
        threads.call(int, Deadline(0.1))
    release.set()
    assert hung.result(20)
