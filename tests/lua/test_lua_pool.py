"""Scripts in the sandbox: what they get, what they may ask, when they are stopped."""

import hmac
import json
import os
import signal
import threading
import time

import pytest
from redteam_run import WatchedPool, poor_host, tool

from ctx.errors import AccessError, BadRequest, Busy, CtxError, NotFound, ScriptTimeout, StoreError, ToolError
from ctx.lua.conversation import MAX_LOG_LINES
from ctx.lua.pool import ItemProblem, Pool
from ctx.types import JSON

GRACE_S = 1.0  # for a shared machine; benchmarks/sandbox.py holds the real figure


def run(pool: Pool, body: str, arguments: JSON = None, *, timeout_s: float = 10.0, **fields: JSON) -> JSON:
    """The result of a tool whose `execute(p, context)` has this body."""
    return pool.run(
        tool(f"tool = {{}} function tool.execute(p, context) {body}\nend", arguments, **fields),
        poor_host,
        timeout_s,
    )


def failure(pool: Pool, body: str, **fields: JSON) -> CtxError:
    with pytest.raises(CtxError) as caught:
        run(pool, body, **fields)
    return caught.value


# ---------------------------------------------------------------------- values


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        None,
        [None],
        [1, None, 3],
        [None, None],
        {"a": None, "b": {"c": None}},
        {"list": [], "object": {}, "nested": [[], {}, [[]]]},
        [
            1,
            1.0,
            -0.5,
            1e300,
            9007199254740993,
            9223372036854775807,
            -9223372036854775808,
            0.1,
            1e15,
            123456789012345680.0,
        ],
        'long enough for the other encoder: "\\\n\u0001\u007f é 漢 \U0001f600 ' * 20,
        'plain "quoted" \\ \n \t \u0000 \u007f é 漢 \U0001f600 \u2028',
        {"1": "a", "2": "b"},
        {"é": [True, False]},
    ],
)
def test_json_comes_back_as_it_went_in(pool: WatchedPool, value: JSON) -> None:
    wanted = json.dumps(value, sort_keys=True)
    assert json.dumps(run(pool, "return p.v", {"v": value}), sort_keys=True) == wanted
    again = run(pool, "return json.encode(json.parse(p.text))", {"text": json.dumps(value)})
    assert json.dumps(json.loads(again), sort_keys=True) == wanted


def test_a_null_reads_as_nil_and_an_array_with_nulls_keeps_its_length(pool: WatchedPool) -> None:
    assert run(
        pool, "return {p.a == nil, #p.list, p.list[2] == nil}", {"a": None, "list": [1, None, None]}
    ) == [True, 3, True]


def test_json_null_array_and_object_say_what_lua_cannot(pool: WatchedPool) -> None:
    assert run(
        pool, "return {a = json.null, b = json.array(), c = json.object{}, d = {}, e = json.array{1}}"
    ) == {
        "a": None,
        "b": [],
        "c": {},
        "d": {},
        "e": [1],
    }


def test_what_json_cannot_say_is_a_clear_error(pool: WatchedPool) -> None:
    assert "contains itself" in failure(pool, "local t = {} t[1] = {t} return t").message
    assert (
        "nested more than 128 deep"
        in failure(pool, "local t = {} for _ = 1, 200 do t = {t} end return t").message
    )
    assert "not valid UTF-8" in failure(pool, "return '\\255'").message
    assert "key of type boolean" in failure(pool, "return {[true] = 1}").message
    assert "as a key" in failure(pool, "return {[7] = 1, ['7'] = 2}").message


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1,]",
        "{'a':1}",
        '{"a" 1}',
        "01",
        "1.",
        "+1",
        "nul",
        '"\\x"',
        '"\\ud800"',
        '"\n"',
        "1 2",
        "9" * 400,
        "[" * 200 + "]" * 200,
    ],
)
def test_text_that_is_not_json_is_refused(pool: WatchedPool, text: str) -> None:
    assert failure(pool, "local v = json.parse(p.text)", arguments={"text": text}).message.startswith(
        "attack:1: json.parse: "
    )


def test_parse_and_decode_are_one_function(pool: WatchedPool) -> None:
    assert run(pool, "return json.parse == json.decode")


def test_an_output_schema_decides_what_an_empty_table_is(pool: WatchedPool) -> None:
    schema = {"type": "object", "properties": {"results": {"type": "array"}, "by": {"type": "object"}}}
    answer = run(pool, "return {zeta = 1, by = {}, results = {}}", output_schema=schema)
    assert json.dumps(answer) == '{"results": [], "by": {}, "zeta": 1}'


def test_shared_tables_are_written_twice_not_refused(pool: WatchedPool) -> None:
    assert run(pool, "local s = {1, 2} return {s, s, {s}}") == [[1, 2], [1, 2], [[1, 2]]]


# ---------------------------------------------------------------------- the language


def test_a_byte_order_mark_and_a_shebang_line_are_accepted(pool: WatchedPool) -> None:
    body = "tool = {}\nfunction tool.execute() error('here') end"
    for head in ("\ufeff", "#!/usr/bin/env lua\n", "\ufeff#!/usr/bin/env lua\n"):
        line = 2 + head.count("\n")
        with pytest.raises(ToolError, match=f"attack:{line}: here"):
            pool.run(tool(head + body), poor_host, 10)


def test_dates_are_utc_and_time_counts(pool: WatchedPool) -> None:
    assert run(pool, "return os.date('!%Y-%m-%dT%H:%M:%SZ', 1709210096)") == "2024-02-29T12:34:56Z"
    assert run(
        pool, "return os.date('%a %A %b %B %d %e %j %p %I %y %u %w %U %V %G %W %D %R %%', 1709210096)"
    ) == (time.strftime("%a %A %b %B %d %e %j %p %I %y %u %w %U %V %G %W %D %R %%", time.gmtime(1709210096)))
    assert (
        run(pool, "return os.time{year = 2024, month = 2, day = 29, hour = 12, min = 34, sec = 56}")
        == 1709210096
    )
    assert run(pool, "return os.time{year = 2024, month = 14, day = -3, hour = 0}") == 1738022400
    assert run(
        pool, "local t = os.date('*t', -86400) return {t.year, t.month, t.day, t.hour, t.wday, t.yday}"
    ) == [
        1969,
        12,
        31,
        0,
        4,
        365,
    ]
    assert abs(run(pool, "return os.time()") - time.time()) < 5
    assert run(pool, "return {os.difftime(5, 3), type(os.clock()), os.getenv == nil, os.execute == nil}") == [
        2.0,
        "number",
        True,
        True,
    ]


@pytest.mark.parametrize(
    "second", [0, 951782400, 1704067200, 1735689599, 1609459200, 1230768000, 253402300799]
)
def test_dates_agree_with_python(pool: WatchedPool, second: int) -> None:
    pattern = "%Y-%m-%d %H:%M:%S %j %u %V %G %U %W %y"
    assert run(
        pool, "return os.date(p.pattern, p.second)", {"pattern": pattern, "second": second}
    ) == time.strftime(pattern, time.gmtime(second))


def test_hashes_and_base64_are_the_usual_ones(pool: WatchedPool) -> None:
    assert run(
        pool,
        "return {crypto.sha256('a'), crypto.hmac_sha256('k:1', 'data'), base64.encode('\\0\\255'), base64.decode('aGk=')}",
    ) == [
        "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
        hmac.new(b"k:1", b"data", "sha256").hexdigest(),
        "AP8=",
        "hi",
    ]
    assert failure(pool, "local v = base64.decode('!!')").message == "attack:1: base64.decode: invalid input"


def test_each_call_has_its_own_random_numbers(pool: WatchedPool) -> None:
    assert len({run(pool, "return math.random(1 << 40)") for _ in range(5)}) == 5


def test_a_script_may_extend_its_own_string_library(pool: WatchedPool) -> None:
    assert run(pool, "function string.shout(s) return s:upper() .. '!' end return ('a'):shout()") == "A!"


def test_what_a_script_finds_in_its_globals(pool: WatchedPool) -> None:
    names = run(pool, "local n = {} for k in pairs(_G) do n[#n + 1] = k end table.sort(n) return n")
    assert names == sorted(
        [
            "_G",
            "_VERSION",
            "assert",
            "base64",
            "collectgarbage",
            "coroutine",
            "crypto",
            "env",
            "error",
            "fs",
            "getmetatable",
            "http",
            "ipairs",
            "json",
            "load",
            "log",
            "math",
            "next",
            "pairs",
            "pcall",
            "print",
            "rawequal",
            "rawget",
            "rawlen",
            "rawset",
            "select",
            "setmetatable",
            "sleep",
            "string",
            "table",
            "tonumber",
            "tool",
            "tostring",
            "type",
            "utf8",
            "warn",
            "xpcall",
        ]
    )


# ---------------------------------------------------------------------- the host


def test_a_host_call_crosses_as_documented(pool: WatchedPool) -> None:
    asked: list[tuple[str, bytes]] = []

    def host(operation: str, payload: bytes, deadline_s: float) -> bytes:
        assert 0 < deadline_s - time.monotonic() <= 10
        asked.append((operation, payload))
        return {
            "http": b'{"status":200,"ok":true,"headers":{"x":"y"}}\0{"n":[1,2]}',
            "fs.read": b"\0\xff raw",
            "fs.list": b'[{"path":"a"}]',
            "env.get": b"null",
            "context.search": b'[{"id":"1"}]',
        }[operation]

    body = """
      local r = http.post("https://a.test/x", "\\0\\255", {headers = {n = 1}, params = {q = "é"}, timeout = 2})
      local found = context.search{query = "q", limit = 3, mode = 7, filters = {source = "git"}}
      return {r.status, r.ok, r.headers.x, r.json.n[2], #r.body, fs.read("a\\255"):byte(2), fs.list("d", "*.md")[1].path,
        env.get("HOME") == nil, found[1].id}"""
    answer = pool.run(tool(f"tool = {{}} function tool.execute(p, context) {body} end"), host, 10)
    assert answer == [200, True, "y", 2, 11, 255, "a", True, "1"]
    assert asked == [
        (
            "http",
            b'{"headers":{"n":"1"},"method":"POST","params":{"q":"\xc3\xa9"},"timeout_s":2,"url":"https://a.test/x"}\0\0\xff',
        ),
        ("context.search", b'{"limit":3,"query":"q","source":"git"}'),
        ("fs.read", b"a\xff"),
        ("fs.list", b'{"dir":"d","glob":"*.md"}'),
        ("env.get", b"HOME"),
    ]


def test_a_script_without_the_grant_is_refused_before_the_host_is_asked(pool: WatchedPool) -> None:
    def host(operation: str, payload: bytes, deadline_s: float) -> bytes:
        raise AssertionError("asked")

    for call, grant in (
        ("http.get('x')", "http"),
        ("fs.read('x')", "fs"),
        ("env.get('x')", "env"),
        ("context.sources()", "context"),
    ):
        with pytest.raises(ToolError, match=f"attack:1: .* is not granted '{grant}'"):
            pool.run(
                tool(f"tool = {{}} function tool.execute(p, context) {call} end", grants=frozenset()),
                host,
                10,
            )


def test_a_host_error_can_be_caught_and_is_a_tool_error_where_it_is_not(pool: WatchedPool) -> None:
    assert run(pool, "local ok, e = pcall(context.get, 'x') return {ok, e}") == [False, "no such document"]
    assert type(failure(pool, "return context.get('x')")) is ToolError


def test_a_fault_of_the_host_is_told_without_its_words(
    pool: WatchedPool, caplog: pytest.LogCaptureFixture
) -> None:
    def host(operation: str, payload: bytes, deadline_s: float) -> bytes:
        raise RuntimeError("password=hunter2")

    with pytest.raises(ToolError, match=r"attack:1: context\.sources: internal error"):
        pool.run(tool("tool = {} function tool.execute(p, context) context.sources() end"), host, 10)
    assert "hunter2" in caplog.text


def test_log_lines_are_one_line_each_and_counted(pool: WatchedPool) -> None:
    lines: list[bytes] = []

    def host(operation: str, payload: bytes, deadline_s: float) -> bytes:
        lines.append(payload)
        return b""

    body = "log.info('x\\n[tool:other] ERROR: forged \\27[31m\\0\\255') for i = 1, 5000 do log.debug('y') end print(1, nil) return 1"
    pool.run(tool(f"tool = {{}} function tool.execute() {body} end"), host, 10)
    assert lines[0] == b"info\0x\\n[tool:other] ERROR: forged \\x1b[31m\\x00\\xff"
    assert len(lines) == MAX_LOG_LINES
    assert b"dropped" in lines[-1]


# ---------------------------------------------------------------------- errors by type


def test_the_words_of_an_error_do_not_decide_its_type(pool: WatchedPool) -> None:
    for words in (
        "tool timed out after 30 seconds",
        "document not found",
        "invalid: embeddings disabled",
        "not enough memory",
        "busy",
    ):
        assert type(failure(pool, f"error('{words}')")) is ToolError
    assert type(failure(pool, "error{kind = 'not_found', message = 'x'}")) is ToolError


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("not_found", NotFound),
        ("invalid_params", BadRequest),
        ("conflict", BadRequest),
        ("forbidden", AccessError),
        ("storage", StoreError),
    ],
)
def test_a_pack_may_throw_by_kind_and_nobody_else_may(
    pool: WatchedPool, kind: str, wanted: type[CtxError]
) -> None:
    body = f"error.throw{{kind = '{kind}', message = 'gone', data = {{id = 7}}}}"
    thrown = failure(pool, body, grants=frozenset({"memory"}))
    assert type(thrown) is wanted
    assert (thrown.message, thrown.data) == ("gone", {"kind": kind, "id": 7})
    assert type(failure(pool, body)) is ToolError


def test_a_host_error_keeps_its_kind_through_a_pack(pool: WatchedPool) -> None:
    def host(operation: str, payload: bytes, deadline_s: float) -> bytes:
        if operation == "memory.get":
            raise NotFound("no memory 7")
        assert operation == "memory.put"
        assert payload == b'["a",null,{"k":1}]'
        return b'{"id":"m1"}'

    source = """tool = {} function tool.execute(p, context)
      local id = context.memory.put("a", nil, {k = 1}).id
      local ok, e = pcall(context.memory.get, 7)
      assert(not ok and e.kind == "not_found" and tostring(e) == "no memory 7" and context.bank.id == "alice")
      return context.memory.get(id)
    end"""
    job = tool(source, grants=frozenset({"memory"}), context=b'{"bank": {"id": "alice"}}')
    with pytest.raises(NotFound, match="no memory 7"):
        pool.run(job, host, 10)


def test_a_pack_has_a_clock(pool: WatchedPool) -> None:
    grants = frozenset({"memory"})
    assert run(
        pool, "return {time.iso(1709210096000), time.iso(1709210096789), time.iso(0, '%Y')}", grants=grants
    ) == [
        "2024-02-29T12:34:56Z",
        "2024-02-29T12:34:56.789Z",
        "1970",
    ]
    assert abs(run(pool, "return time.now()", grants=grants) - time.time() * 1000) < 5000
    assert 0 < run(pool, "return context.request.remaining_ms()", grants=grants) <= 10_000


def test_a_date_that_cannot_be_is_an_error_of_the_script(pool: WatchedPool) -> None:
    assert (
        failure(pool, "local t = os.time{year = 2024}").message
        == "attack:1: field 'month' missing in date table"
    )
    assert failure(pool, "local t = os.date('%Q')").message.startswith("attack:1: bad argument #1 to 'date'")


def test_plain_errors_of_a_pack_say_where_they_are(pool: WatchedPool) -> None:
    assert failure(pool, "\nerror('boom')", grants=frozenset({"memory"})).message == "attack:2: boom"


def test_an_error_message_is_cut_and_on_one_line(pool: WatchedPool) -> None:
    message = failure(pool, "error('a\\nb' .. ('x'):rep(1e6))").message
    assert len(message) == 2000
    assert "\n" not in message
    assert "raised an error without a message" in failure(pool, "error()").message
    assert failure(pool, "error{code = 1}").message == '{"code":1}'
    assert failure(pool, "x = = 1").message.startswith("syntax: attack:1:")


def test_an_error_message_does_not_tell_where_things_lie_on_this_machine(pool: WatchedPool) -> None:
    message = failure(
        pool, "error('no /etc/ssl/openssl.cnf, /api/v2/x, https://a.test/etc/y, a/etc/b', 0)"
    ).message
    assert message == "no .../openssl.cnf, /api/v2/x, https://a.test/etc/y, a/etc/b"


# ---------------------------------------------------------------------- time


def test_a_late_script_is_killed_and_answers_408(pool: WatchedPool) -> None:
    began_s = time.monotonic()
    assert type(failure(pool, "while true do end", timeout_s=0.2)) is ScriptTimeout
    assert time.monotonic() - began_s < 0.2 + GRACE_S


def test_a_host_handler_that_hangs_is_left_behind_at_the_deadline(pool: WatchedPool) -> None:
    release = threading.Event()

    def host(operation: str, payload: bytes, deadline_s: float) -> bytes:
        release.wait(30)
        return b"[]"

    began_s = time.monotonic()
    try:
        with pytest.raises(ScriptTimeout):
            pool.run(tool("tool = {} function tool.execute(p, context) context.sources() end"), host, 0.2)
        assert time.monotonic() - began_s < 0.2 + GRACE_S
    finally:
        release.set()


def test_a_cancelled_call_ends_at_once(pool: WatchedPool) -> None:
    for body in ("while true do end", "sleep(60)", "context.sources()"):
        cancel, entered = threading.Event(), threading.Event()

        def host(
            operation: str, payload: bytes, deadline_s: float, entered: threading.Event = entered
        ) -> bytes:
            entered.wait(30)
            return b"[]"

        threading.Timer(0.1, cancel.set).start()
        began_s = time.monotonic()
        with pytest.raises(ToolError, match="cancelled"):
            pool.run(
                tool(f"tool = {{}} function tool.execute(p, context) {body} end"), host, 30, cancel=cancel
            )
        assert time.monotonic() - began_s < 0.1 + GRACE_S
        entered.set()


def test_a_sleep_is_cut_at_the_deadline_and_a_bad_one_is_an_error(pool: WatchedPool) -> None:
    assert type(failure(pool, "sleep(1e9)", timeout_s=0.1)) is ScriptTimeout
    assert run(pool, "return {pcall(sleep, -1), pcall(sleep, 0/0), pcall(sleep, 1/0), pcall(sleep, 0.001)}")[
        :3
    ] == [
        False,
        False,
        False,
    ]


def test_the_queue_is_bounded_and_waiting_in_it_is_not_billed() -> None:
    go = threading.Event()
    inside = threading.Event()

    def host(operation: str, payload: bytes, deadline_s: float) -> bytes:
        inside.set()
        go.wait(30)
        return b"[]"

    slow = tool("tool = {} function tool.execute(p, context) context.sources() return 1 end")
    quick = tool("tool = {} function tool.execute() return 2 end")
    answers: list[JSON] = []
    with Pool(workers=1, waiting=1, patience_s=20) as pool:
        first = threading.Thread(target=lambda: answers.append(pool.run(slow, host, 30)))
        first.start()
        assert inside.wait(10)
        second = threading.Thread(target=lambda: answers.append(pool.run(quick, host, 0.5)))
        second.start()
        while pool._waiting == 0:
            os.sched_yield()
        with pytest.raises(Busy) as caught:
            pool.run(quick, host, 5)
        assert caught.value.retry_after_s > 0
        began_s = time.monotonic()
        while time.monotonic() - began_s < 0.8:  # longer than the second call's whole deadline
            os.sched_yield()
        go.set()
        first.join(20)
        second.join(20)
    assert answers == [1, 2]


def test_a_call_cancelled_in_the_queue_never_runs() -> None:
    go, inside, cancel = threading.Event(), threading.Event(), threading.Event()

    def host(operation: str, payload: bytes, deadline_s: float) -> bytes:
        inside.set()
        go.wait(30)
        return b"[]"

    slow = tool("tool = {} function tool.execute(p, context) context.sources() return 1 end")
    with WatchedPool(workers=1, patience_s=20) as pool:
        first = threading.Thread(target=lambda: pool.run(slow, host, 30))
        first.start()
        assert inside.wait(10)
        threading.Timer(0.1, cancel.set).start()
        with pytest.raises(ToolError, match="cancelled"):
            pool.run(slow, host, 30, cancel=cancel)
        go.set()
        first.join(20)
        assert len(pool.used) == 1
        assert pool.run(slow, poor_host, 10) == 1


def test_a_queue_that_does_not_move_answers_busy_in_time() -> None:
    go = threading.Event()

    def host(operation: str, payload: bytes, deadline_s: float) -> bytes:
        inside.set()
        go.wait(30)
        return b"[]"

    inside = threading.Event()
    slow = tool("tool = {} function tool.execute(p, context) context.sources() end")
    with Pool(workers=1, patience_s=0.1) as pool:
        first = threading.Thread(target=lambda: pool.run(slow, host, 30))
        first.start()
        assert inside.wait(10)
        with pytest.raises(Busy):
            pool.run(slow, host, 5)
        go.set()
        first.join(20)


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
    seen: list[JSON] = []
    assert pool.run(job, poor_host, 10, on_item=seen.append) == {"count": 3}
    assert len(seen) == 3


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
    job = scan_job("connector = {} function connector.scan() return {1, {x = '\\255'}, 3} end")
    one, two, three = pool.scan(job, poor_host, 10)
    assert (one, three) == (1, 3)
    assert isinstance(two, ItemProblem)
    assert "item 2" in two.message


def test_an_item_too_large_to_send_is_a_problem_of_its_own(pool: WatchedPool) -> None:
    job = scan_job("connector = {} function connector.scan() emit(('x'):rep(17 << 20)) emit(2) end")
    one, two = pool.scan(job, poor_host, 20)
    assert isinstance(one, ItemProblem)
    assert two == 2


def test_the_consumer_s_time_is_not_billed_to_the_scan(pool: WatchedPool) -> None:
    job = scan_job("connector = {} function connector.scan() for n = 1, 3 do emit(n) end end")
    seen = []
    for item in pool.scan(job, poor_host, 0.3):
        threading.Event().wait(0.2)  # an index that takes its time
        seen.append(item)
    assert seen == [1, 2, 3]


def test_a_scan_that_is_closed_early_is_killed(pool: WatchedPool) -> None:
    job = scan_job("connector = {} function connector.scan() while true do emit(1) end end")
    items = pool.scan(job, poor_host, 60)
    assert next(items) == 1
    items.close()
    assert pool.survivors(2.0) == []


def test_a_large_scan_is_not_held_in_memory(pool: WatchedPool) -> None:
    job = scan_job(
        "connector = {} function connector.scan() local n = 0 return function() n = n + 1 if n <= 200 then return ('x'):rep(1e6) end end end"
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
    source = "agent = {} function agent.resolve(arguments, config, context) return {system = arguments.a .. config.b .. #context.sources()} end"
    job = tool(source, {"a": "1"}, kind="agent", entry="resolve", context=b'{"config": {"b": "2"}}')
    assert pool.run(job, poor_host, 10) == {"system": "120"}


# ---------------------------------------------------------------------- metadata


def test_metadata_is_the_table_as_written(pool: WatchedPool) -> None:
    source = """log.info("loading") local shared = json.parse("[1]")
      tool = {name = "n", description = "d", version = 3, parameters = {{name = "a", type = "string", required = true}}, execute = print}"""
    assert pool.run(tool(source, entry="metadata"), poor_host, 10) == {
        "name": "n",
        "description": "d",
        "parameters": [{"name": "a", "type": "string", "required": True}],
    }


def test_a_check_tells_a_script_that_cannot_run(pool: WatchedPool) -> None:
    assert pool.run(tool("tool = {execute = print}", entry="load_check"), poor_host, 10) is True
    for source, words in (
        ("tool = {}", "tool.execute"),
        ("x = 1", "global table 'tool'"),
        ("tool = 42", "global table 'tool'"),
        ("x =", "syntax"),
    ):
        with pytest.raises(ToolError, match=words):
            pool.run(tool(source, entry="load_check"), poor_host, 10)


# ---------------------------------------------------------------------- reuse

COUNTER = "count = (count or 0) + 1 string.count = (string.count or 0) + 1 tool = {} function tool.execute() return {count, string.count} end"


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
    source = "tool = {} function tool.execute() x = setmetatable({}, {__gc = function() while true do end end}) return 1 end"
    assert pool.run(tool(source), poor_host, 0.5) == 1  # a one-shot process ends before any finalizer
    with pytest.raises(ScriptTimeout):
        pool.run(tool(source, trust="operator", reuse=True), poor_host, 0.3)


def test_a_kept_process_that_was_killed_is_not_used(pool: WatchedPool) -> None:
    job = tool(COUNTER + " --", trust="operator", reuse=True)
    pool.run(job, poor_host, 10)
    kept = pool.used[-1]
    os.kill(kept.pid, signal.SIGKILL)
    assert kept.ended.wait(5)
    assert pool.run(job, poor_host, 10) == [1, 1]
    assert pool.used[-1].pid != kept.pid


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
    assert entered.wait(10)
    pool.close()
    caller.join(10)
    assert [type(error) for error in raised] == [ToolError]


def test_many_callers_at_once_get_their_own_answers(pool: WatchedPool) -> None:
    wrong: list[JSON] = []

    def call(number: int) -> None:
        source = "tool = {} function tool.execute(p, context) return {p.n, #context.sources()} end"
        for turn in range(15):
            job = tool(source, {"n": number * 100 + turn}, trust="operator", reuse=turn % 2 == 0)
            answer = pool.run(job, poor_host, 20)
            if answer != [number * 100 + turn, 0]:
                wrong.append(answer)

    callers = [threading.Thread(target=call, args=(number,)) for number in range(24)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert wrong == []


def test_an_endless_recursion_is_told_soon_and_with_its_place(
    pool: WatchedPool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "ctx.lua")
    error = failure(pool, "\nlocal function deep() return 1 + deep() end return deep()", timeout_s=10)
    assert error.message == "attack:2: stack overflow"
    assert "attack:2: in " in caplog.text
