"""Scans, declarations, processes kept for the next call, and what becomes of processes that end."""

import os
import signal
import threading

import pytest
from pool_kit import failure, run
from redteam_run import WatchedPool, poor_host, tool

from ctx.errors import Busy, CtxError, ScriptTimeout, ToolError
from ctx.lua.pool import ItemProblem, Pool
from ctx.types import JSON

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


def test_a_scan_that_fails_halfway_says_so(pool: WatchedPool) -> None:
    job = scan_job("connector = {} function connector.scan() emit(1) error('no more') end")
    items = pool.scan(job, poor_host, 10)
    assert next(items) == 1
    with pytest.raises(ToolError, match="no more"):
        next(items)


def test_an_item_that_json_cannot_say_is_a_problem_of_its_own(pool: WatchedPool) -> None:
    job = scan_job("connector = {} function connector.scan() return {1, {[{}] = 2}, 3} end")
    first, problem, last = pool.scan(job, poor_host, 10)
    assert (first, last) == (1, 3)
    assert isinstance(problem, ItemProblem)
    assert "item 2" in problem.message


def test_an_item_too_large_to_send_is_a_problem_of_its_own(pool: WatchedPool) -> None:
    job = scan_job("connector = {} function connector.scan() emit(('x'):rep(17 << 20)) emit(2) end")
    problem, item = pool.scan(job, poor_host, 20)
    assert isinstance(problem, ItemProblem)
    assert item == 2


@pytest.mark.slow
def test_the_consumer_s_time_is_not_billed_to_the_scan(pool: WatchedPool) -> None:
    job = scan_job("connector = {} function connector.scan() for n = 1, 3 do emit(n) end end")
    items = []
    for item in pool.scan(job, poor_host, 2.0):
        threading.Event().wait(0.8)  # an index that takes its time
        items.append(item)
    assert items == [1, 2, 3]


def test_a_scan_that_is_closed_early_is_killed(pool: WatchedPool) -> None:
    job = scan_job("connector = {} function connector.scan() while true do emit(1) end end")
    items = pool.scan(job, poor_host, 60)
    assert next(items) == 1
    items.close()
    assert pool.survivors(30.0) == []


@pytest.mark.slow
def test_a_large_scan_is_not_held_in_memory(pool: WatchedPool) -> None:
    job = scan_job(
        "connector = {} function connector.scan() local n = 0 return function() n = n + 1 if n <= 200 "
        "then return ('x'):rep(1e6) end end end"
    )
    assert (
        sum(len(item) for item in pool.scan(job, poor_host, 60)) == 200_000_000
    )  # more than a script may hold


def test_a_connector_is_given_its_config(pool: WatchedPool) -> None:
    job = scan_job(
        "connector = {} function connector.scan(config) return {config.url, config == nil} end",
        context=b'{"config": {"url": "u"}}',
    )
    assert list(pool.scan(job, poor_host, 10)) == ["u", False]


def test_an_agent_is_given_arguments_and_config(pool: WatchedPool) -> None:
    source = (
        "agent = {} function agent.resolve(arguments, config, context) return {system = arguments.a .. "
        "config.b .. #context.sources()} end"
    )
    job = tool(source, {"a": "1"}, kind="agent", entry="resolve", context=b'{"config": {"b": "2"}}')
    assert pool.run(job, poor_host, 10) == {"system": "120"}


# ---------------------------------------------------------------------- metadata


def test_metadata_is_the_table_as_written(pool: WatchedPool) -> None:
    source = """log.info("loading") local shared = json.parse("[1]")
      tool = {name = "n", description = "d", version = 3,
        parameters = {{name = "a", type = "string", required = true}}, execute = print}"""
    assert pool.run(tool(source, entry="metadata"), poor_host, 10) == {
        "name": "n",
        "description": "d",
        "parameters": [{"name": "a", "type": "string", "required": True}],
    }


def test_a_check_tells_a_script_that_cannot_run(pool: WatchedPool) -> None:
    names = pool.run(tool("tool = {execute = print, titel = 'T'}", entry="load_check"), poor_host, 10)
    assert names["fields"] == ["titel"]
    for source, words in (
        ("tool = {}", "tool.execute"),
        ("x = 1", "global table 'tool'"),
        ("tool = 42", "global table 'tool'"),
        ("x =", "syntax"),
    ):
        with pytest.raises(ToolError, match=words):
            pool.run(tool(source, entry="load_check"), poor_host, 10)


# ---------------------------------------------------------------------- reuse

COUNTER = (
    "count = (count or 0) + 1 string.count = (string.count or 0) + 1 tool = {} function tool.execute() "
    "return {count, string.count} end"
)


def test_a_reused_process_runs_every_call_in_a_fresh_state(pool: WatchedPool) -> None:
    job = tool(COUNTER, trust="operator", reuse=True)
    assert [pool.run(job, poor_host, 10) for _ in range(5)] == [[1, 1]] * 5
    assert len({worker.pid for worker in pool.used}) == 1
    pool.run(job._replace(source=COUNTER.encode() + b" "), poor_host, 10)
    assert len({worker.pid for worker in pool.used}) == 2


def test_a_failing_script_keeps_its_process_and_a_late_one_loses_it(pool: WatchedPool) -> None:
    job = tool(
        "tool = {} function tool.execute(p) if p.loop then while true do end end error('no') end",
        trust="operator",
        reuse=True,
    )
    for _ in range(3):
        with pytest.raises(ToolError, match="no"):
            pool.run(job, poor_host, 10)
    assert len({worker.pid for worker in pool.used}) == 1
    with pytest.raises(ScriptTimeout):
        pool.run(job._replace(arguments=b'{"loop": true}'), poor_host, 0.1)
    with pytest.raises(ToolError, match="no"):
        pool.run(job, poor_host, 10)
    assert len({worker.pid for worker in pool.used}) == 2


def test_a_finalizer_that_loops_after_the_answer_is_late(pool: WatchedPool) -> None:
    source = (
        "tool = {} function tool.execute() x = setmetatable({}, {__gc = function() while true do end "
        "end}) return 1 end"
    )
    assert pool.run(tool(source), poor_host, 10.0) == 1  # a one-shot process ends before any finalizer
    with pytest.raises(ScriptTimeout):
        pool.run(tool(source, trust="operator", reuse=True), poor_host, 0.3)


def test_a_kept_process_that_was_killed_is_not_used(pool: WatchedPool) -> None:
    job = tool(COUNTER + " --", trust="operator", reuse=True)
    pool.run(job, poor_host, 10)
    worker = pool.used[-1]
    os.kill(worker.pid, signal.SIGKILL)
    assert worker.ended.wait(60)
    assert pool.run(job, poor_host, 10) == [1, 1]
    assert pool.used[-1].pid != worker.pid


def test_an_untrusted_script_never_gets_a_process_twice(pool: WatchedPool) -> None:
    job = tool(COUNTER, reuse=True)
    for _ in range(3):
        pool.run(job, poor_host, 10)
    assert len({worker.pid for worker in pool.used}) == 3


def test_idle_processes_of_many_scripts_are_bounded(pool: WatchedPool) -> None:
    for number in range(12):
        assert (
            pool.run(
                tool(
                    f"tool = {{}} function tool.execute() return {number} end", trust="operator", reuse=True
                ),
                poor_host,
                10,
            )
            == number
        )
    assert sum(map(len, pool._resident.values())) <= 8


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


def test_a_zygote_that_dies_is_replaced() -> None:
    with Pool() as pool:
        before = pool.zygote_pid
        assert before is not None
        os.kill(before, signal.SIGKILL)
        for _ in range(100):
            try:
                answer = run(pool, "return 1")
            except (ToolError, Busy):
                continue
            if pool.zygote_pid != before:
                break
        assert answer == 1
        assert pool.zygote_pid != before


def test_memory_is_capped_and_told(pool: WatchedPool) -> None:
    assert (
        "not enough memory"
        in failure(pool, "local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1000) .. i end").message
    )


def test_a_result_over_the_cap_is_refused(pool: WatchedPool) -> None:
    assert "the most is 4194304" in failure(pool, "return ('x'):rep(5e6)").message


def test_a_closed_pool_refuses_and_leaves_no_process() -> None:
    pool = Pool()
    pool.start()
    zygote = pool.zygote_pid
    assert zygote is not None
    pool.close()
    with pytest.raises(ProcessLookupError):
        os.kill(zygote, 0)
    with pytest.raises(ToolError, match="closed"):
        run(pool, "return 1")


def test_a_pool_that_closes_ends_the_calls_under_way() -> None:
    pool = WatchedPool()
    pool.start()
    entered = threading.Event()
    raised: list[CtxError] = []

    def host(operation: str, payload: bytes, deadline_s: float) -> bytes:
        entered.set()
        return b"[]"

    def call() -> None:
        try:
            pool.run(
                tool("tool = {} function tool.execute(p, context) context.sources() while true do end end"),
                host,
                60,
            )
        except CtxError as error:
            raised.append(error)

    caller = threading.Thread(target=call)
    caller.start()
    assert entered.wait(60)
    pool.close()
    caller.join(60)
    assert [type(error) for error in raised] == [ToolError]


def test_many_callers_at_once_get_their_own_answers(pool: WatchedPool) -> None:
    mismatches: list[JSON] = []

    def call(number: int) -> None:
        source = "tool = {} function tool.execute(p, context) return {p.n, #context.sources()} end"
        for turn in range(15):
            job = tool(source, {"n": number * 100 + turn}, trust="operator", reuse=turn % 2 == 0)
            answer = pool.run(job, poor_host, 20)
            if answer != [number * 100 + turn, 0]:
                mismatches.append(answer)

    callers = [threading.Thread(target=call, args=(number,)) for number in range(24)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert mismatches == []


def test_an_endless_recursion_is_told_soon_and_with_its_place(
    pool: WatchedPool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "ctx.lua")
    error = failure(pool, "\nlocal function deep() return 1 + deep() end return deep()", timeout_s=10)
    assert error.message == "attack:2: stack overflow"
    assert "attack:2: in " in caplog.text
