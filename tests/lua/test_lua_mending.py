"""What JSON cannot say of a script's values: mended or left out, and told in the log."""

import json

import pytest
from redteam_run import WatchedPool, poor_host, tool

from ctx.errors import ToolError
from ctx.types import JSON


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ("return ('é'):sub(1, 1)", "\ufffd"),
        ("return ('a漢'):sub(1, 3)", "a\ufffd"),
        ("return ('😀'):sub(2)", "\ufffd\ufffd\ufffd"),
        ("return ('é'):rep(200):sub(1, 301)", "é" * 150 + "\ufffd"),
        ("return {a = {'\\255', 'whole'}}", {"a": ["\ufffd", "whole"]}),
        ("return '\\237\\160\\128'", "\ufffd\ufffd\ufffd"),
        ("return 'a\\0\\255\"\\n'", 'a\0\ufffd"\n'),
    ],
)
def test_a_result_cut_inside_a_character_is_mended_and_logged(
    pool: WatchedPool, body: str, answer: JSON
) -> None:
    lines: list[bytes] = []

    def host(operation: str, payload: bytes, deadline_s: float) -> bytes:
        lines.append(payload)
        return b""

    job = tool(f"tool = {{}} function tool.execute(p) {body}\nend")
    assert pool.run(job, host, 10) == answer
    assert [line.partition(b"=")[0] for line in lines] == [
        b"warn\0text was cut inside a character and is mended with U+FFFD: texts"
    ]


def test_an_agent_s_prompt_cut_inside_a_character_is_mended(pool: WatchedPool) -> None:
    source = "agent = {} function agent.resolve() return {system = ('naïve'):sub(1, 3)} end"
    job = tool(source, kind="agent", entry="resolve")
    assert pool.run(job, poor_host, 10) == {"system": "na\ufffd"}


def test_a_mended_result_leaves_the_next_call_of_the_process_as_strict(pool: WatchedPool) -> None:
    source = "tool = {} function tool.execute(p) return p.strict and json.encode('\\255') or '\\255' end"
    for strict in (False, True, False):
        job = tool(source, {"strict": strict}, trust="operator", reuse=True)
        if strict:
            with pytest.raises(ToolError, match="not valid UTF-8"):
                pool.run(job, poor_host, 10)
        else:
            assert pool.run(job, poor_host, 10) == "\ufffd"


def test_an_item_of_a_scan_and_a_query_cut_inside_a_character_are_mended(pool: WatchedPool) -> None:
    source = """connector = {}
    function connector.scan(config, context)
      context.search(('é'):sub(1, 1), { limit = 1 })
      emit({ source_id = "1", body = ('naïve'):sub(1, 3) })
    end"""
    queries: list[JSON] = []
    lines: list[bytes] = []

    def host(operation: str, payload: bytes, deadline_s: float) -> bytes:
        (lines if operation == "log" else queries).append(payload)
        return b"[]"

    job = tool(source, kind="connector", entry="scan")
    assert list(pool.scan(job, host, 10)) == [{"source_id": "1", "body": "na\ufffd"}]
    assert json.loads(queries[0])["query"] == "\ufffd"
    assert lines == [b"warn\0text was cut inside a character and is mended with U+FFFD: texts=2"]


def test_what_a_script_keeps_is_never_mended(pool: WatchedPool) -> None:
    with pytest.raises(ToolError, match=r"context\.store\.set: a string is not valid UTF-8"):
        pool.run(tool("tool = {} function tool.execute(p, c) c.store.set('k', '\\255') end"), poor_host, 10)


@pytest.mark.parametrize(
    ("value", "answer", "line"),
    [
        ("{'a', 'b', total = 2}", ["a", "b"], "fields=1 first=total"),
        ("{rows = {{'a', next = 'b'}, {'c', next = 'd'}}}", {"rows": [["a"], ["c"]]}, "fields=2 first=next"),
        ("(function() local t = {'a'} t[7] = 'b' return t end)()", ["a"], "fields=1 first=7"),
        ("json.array({'a', [0.5] = 'b'})", ["a"], "fields=1 first=0.5"),
        ("{'a', [{}] = 'b'}", ["a"], "fields=1 first=table"),
        ("json.parse(json.encode({'a', total = 2}))", ["a"], "fields=1 first=total"),
    ],
)
def test_named_fields_beside_list_items_are_left_out_and_told_in_the_log(
    pool: WatchedPool, value: str, answer: JSON, line: str
) -> None:
    lines: list[str] = []

    def host(operation: str, payload: bytes, deadline_s: float) -> bytes:
        lines.append(payload.decode())
        return b""

    job = tool(f"tool = {{}} function tool.execute(p) return {value}\nend", trust="operator", reuse=True)
    assert pool.run(job, host, 10) == answer
    (logged,) = lines
    assert logged.startswith("warn\0a table with list items is an array in JSON")
    assert logged.endswith(line)
    lines.clear()
    whole = tool(
        "tool = {} function tool.execute(p) return {{'a'}, {total = 2}} end", trust="operator", reuse=True
    )
    assert pool.run(whole, host, 10) == [["a"], {"total": 2}]
    assert lines == []


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        ("json.object({'a', total = 2})", {"1": "a", "total": 2}),
        ("json.parse('[1, null, 3, null]')", [1, None, 3, None]),
        ("{1, json.null, 3}", [1, None, 3]),
        ("{}", {}),
    ],
)
def test_what_loses_nothing_is_not_told(pool: WatchedPool, value: str, answer: JSON) -> None:
    def host(operation: str, payload: bytes, deadline_s: float) -> bytes:
        raise AssertionError((operation, payload))

    assert pool.run(tool(f"tool = {{}} function tool.execute(p) return {value} end"), host, 10) == answer


def test_a_script_keeps_a_table_whole_or_not_at_all(pool: WatchedPool) -> None:
    source = "tool = {} function tool.execute(p, c) c.store.set('k', {'a', total = 2}) end"
    with pytest.raises(ToolError, match=r"context\.store\.set: a table has list items and the field 'total'"):
        pool.run(tool(source), poor_host, 10)
