"""Scripts in the sandbox: what they get, what they may ask, when they are stopped."""

import hmac
import json
import threading
import time

import pytest
from faults import eventually
from pool_kit import GRACE_S, failure, run
from redteam_run import WatchedPool, poor_host, tool

from ctx.errors import AccessError, BadRequest, Busy, CtxError, NotFound, ScriptTimeout, StoreError, ToolError
from ctx.lua.conversation import MAX_LOG_LINES
from ctx.lua.pool import Pool
from ctx.types import JSON

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
    text = json.dumps(value, sort_keys=True)
    assert json.dumps(run(pool, "return p.v", {"v": value}), sort_keys=True) == text
    encoded = run(pool, "return json.encode(json.parse(p.text))", {"text": json.dumps(value)})
    assert json.dumps(json.loads(encoded), sort_keys=True) == text


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
    assert "not valid UTF-8" in failure(pool, "return json.encode('\\255')").message
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
    before_s = time.time()
    assert int(before_s) <= run(pool, "return os.time()") <= time.time()
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
        "return {crypto.sha256('a'), crypto.hmac_sha256('k:1', 'data'), base64.encode('\\0\\255'), "
        "base64.decode('aGk=')}",
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
            "uri",
            "utf8",
            "warn",
            "xpcall",
        ]
    )


# ---------------------------------------------------------------------- the host


def test_a_host_call_crosses_as_documented(pool: WatchedPool) -> None:
    calls: list[tuple[str, bytes]] = []

    def host(operation: str, payload: bytes, deadline_s: float) -> bytes:
        assert 0 < deadline_s - time.monotonic() <= 10
        calls.append((operation, payload))
        return {
            "http": b'{"status":200,"ok":true,"headers":{"x":"y"}}\0{"n":[1,2]}',
            "fs.read": b"\0\xff raw",
            "fs.list": b'[{"path":"a"}]',
            "env.get": b"null",
            "context.search": b'[{"id":"1"}]',
        }[operation]

    body = """
      local options = {headers = {n = 1}, params = {q = "é"}, timeout = 2}
      local r = http.post("https://a.test/x", "\\0\\255", options)
      local found = context.search{query = "q", limit = 3, mode = 7, filters = {source = "git"}}
      return {r.status, r.ok, r.headers.x, r.json.n[2], #r.body, fs.read("a\\255"):byte(2),
        fs.list("d", "*.md")[1].path,
        env.get("HOME") == nil, found[1].id}"""
    answer = pool.run(tool(f"tool = {{}} function tool.execute(p, context) {body} end"), host, 10)
    assert answer == [200, True, "y", 2, 11, 255, "a", True, "1"]
    assert calls == [
        (
            "http",
            b'{"headers":{"n":"1"},"method":"POST","params":{"q":"\xc3\xa9"},"timeout_s":2,'
            b'"url":"https://a.test/x"}\0\0\xff',
        ),
        # As it was said: what is wrong with it is for the tool to refuse.
        ("context.search", b'{"filters":{"source":"git"},"limit":3,"mode":7,"query":"q"}'),
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

    body = (
        "log.info('x\\n[tool:other] ERROR: forged \\27[31m\\0\\255') for i = 1, 5000 do log.debug('y') "
        "end print(1, nil) return 1"
    )
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
    old = (
        "return {time.iso(-46378137600000), time.iso(-46378137600000, '%Y-%m'), os.date('!%Y', -46378137600)}"
    )
    assert run(pool, old, grants=grants) == ["0500-05-03T00:00:00Z", "0500-05", "500"]
    before_s = time.time()
    assert int(before_s * 1000) <= run(pool, "return time.now()", grants=grants) <= time.time() * 1000
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


@pytest.mark.slow
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
    with Pool(workers=1, waiting=1, patience_s=60) as pool:
        first = threading.Thread(target=lambda: answers.append(pool.run(slow, host, 30)))
        first.start()
        assert inside.wait(60)
        second = threading.Thread(target=lambda: answers.append(pool.run(quick, host, 2.0)))
        second.start()
        eventually(lambda: pool._waiting == 1)
        with pytest.raises(Busy) as caught:
            pool.run(quick, host, 5)
        assert caught.value.retry_after_s > 0
        assert not threading.Event().wait(2.2)  # longer than the second call's whole deadline
        go.set()
        first.join(60)
        second.join(60)
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
        assert inside.wait(60)
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
    with Pool(workers=1, patience_s=30) as pool:
        first = threading.Thread(target=lambda: pool.run(slow, host, 30))
        first.start()
        assert inside.wait(60)
        pool._patience_s = 0.1  # not before: a busy machine takes longer to give the first its worker
        with pytest.raises(Busy):
            pool.run(slow, host, 5)
        go.set()
        first.join(20)
