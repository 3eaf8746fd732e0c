"""Scripts in the sandbox: values, host calls, errors and time limits."""

import hmac
import json
import threading
import time

import pytest
from faults import eventually
from pool_kit import GRACE_S, failure, run
from redteam_run import WatchedPool, tool

from ctx.errors import Busy, ScriptTimeout, ToolError
from ctx.lua.jobs import MAX_LOG_LINES
from ctx.lua.pool import Pool
from ctx.models import JSON

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
        "[1,]",
        "01",
        '"\\x"',
        '"\n"',
        "9" * 400,
        "[" * 200 + "]" * 200,
    ],
)
def test_text_that_is_not_json_is_refused(pool: WatchedPool, text: str) -> None:
    assert failure(pool, "local v = json.parse(p.text)", arguments={"text": text}).message.startswith(
        "attack:1: json.parse: "
    )


def test_an_output_schema_decides_what_an_empty_table_is(pool: WatchedPool) -> None:
    schema = {"type": "object", "properties": {"results": {"type": "array"}, "by": {"type": "object"}}}
    answer = run(pool, "return {zeta = 1, by = {}, results = {}}", output_schema=schema)
    assert json.dumps(answer) == '{"results": [], "by": {}, "zeta": 1}'


# ---------------------------------------------------------------------- the language


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


# ---------------------------------------------------------------------- the host


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


def test_an_internal_error_of_the_host_is_not_shown_to_the_script(
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


def test_an_error_message_is_cut_and_on_one_line(pool: WatchedPool) -> None:
    message = failure(pool, "error('a\\nb' .. ('x'):rep(1e6))").message
    assert len(message) == 2000
    assert "\n" not in message
    assert "raised an error without a message" in failure(pool, "error()").message
    assert failure(pool, "error{code = 1}").message == '{"code":1}'
    assert failure(pool, "x = = 1").message.startswith("syntax: attack:1:")


def test_an_error_message_hides_local_paths(pool: WatchedPool) -> None:
    message = failure(
        pool, "error('no /etc/ssl/openssl.cnf, /api/v2/x, https://a.test/etc/y, a/etc/b', 0)"
    ).message
    assert message == "no .../openssl.cnf, /api/v2/x, https://a.test/etc/y, a/etc/b"


# ---------------------------------------------------------------------- time


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
