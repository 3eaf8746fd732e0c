"""Scans of connectors, and the processes that scripts run in."""

import os
import signal

import pytest
from pool_kit import failure, run
from redteam_run import WatchedPool, poor_host, tool

from ctx.errors import ScriptTimeout, ToolError
from ctx.models import JSON

# ---------------------------------------------------------------------- scans


def scan_job(source: str, **fields: JSON) -> JSON:
    return tool(source, kind="connector", entry="scan", **fields)


@pytest.mark.parametrize(
    "body",
    [
        "return {{id = 1}, {id = 2}, {id = 3}}",
        "local n = 0 return function() n = n + 1 if n <= 3 then return {id = n} end end",
        "return coroutine.create(function() for n = 1, 3 do coroutine.yield{id = n} end end)",
        "for n = 1, 3 do emit{id = n} end",
        "for n = 1, 3 do context.emit{id = n} end return {}",
    ],
)
def test_a_scan_gives_its_items_however_the_script_makes_them(pool: WatchedPool, body: str) -> None:
    job = scan_job(f"connector = {{}} function connector.scan(config, context) {body} end")
    assert list(pool.scan(job, poor_host, 10)) == [{"id": 1}, {"id": 2}, {"id": 3}]
    assert pool.run(job, poor_host, 10) == {"count": 3}


def test_items_come_while_the_script_still_runs(pool: WatchedPool) -> None:
    job = scan_job("connector = {} function connector.scan() emit(1) while true do end end")
    items = pool.scan(job, poor_host, 0.3)
    assert next(items) == 1
    with pytest.raises(ScriptTimeout):
        next(items)


# ---------------------------------------------------------------------- metadata


# ---------------------------------------------------------------------- fresh processes


def test_every_call_has_a_process_of_its_own_which_ends_before_any_finalizer(pool: WatchedPool) -> None:
    source = (
        "count = (count or 0) + 1 tool = {} function tool.execute() x = setmetatable({}, {__gc = function() "
        "while true do end end}) return count end"
    )
    assert [pool.run(tool(source, trust="operator"), poor_host, 10) for _ in range(3)] == [1, 1, 1]
    assert len({worker.pid for worker in pool.used}) == 3


# ---------------------------------------------------------------------- processes


def test_a_worker_killed_from_outside_is_a_tool_error_and_the_next_call_works(pool: WatchedPool) -> None:
    def host(operation: str, payload: bytes, deadline_s: float) -> bytes:
        os.kill(pool.used[-1].pid, signal.SIGKILL)
        return b"[]"

    with pytest.raises(ToolError, match="SIGKILL"):
        pool.run(
            tool("tool = {} function tool.execute(p, context) context.sources() while true do end end"),
            host,
            10,
        )
    assert run(pool, "return 1") == 1


def test_an_idle_worker_that_was_killed_is_not_handed_out(pool: WatchedPool) -> None:
    assert run(pool, "return 1") == 1
    assert pool._processes is not None
    for worker in list(pool._processes.spares):
        os.kill(worker.pid, signal.SIGKILL)
        worker.channel._readable.poll(10_000)  # until the system has closed the worker's socket
    assert [run(pool, "return 1") for _ in range(3)] == [1, 1, 1]


def test_memory_is_capped_and_told(pool: WatchedPool) -> None:
    assert (
        "not enough memory"
        in failure(pool, "local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1000) .. i end").message
    )
