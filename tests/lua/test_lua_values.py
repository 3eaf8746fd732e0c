"""What a script computes and returns: encodings, digests, and values that JSON cannot hold as they are."""

import re

import pytest
from pool_kit import run
from redteam_run import WatchedPool, tool

from ctx.models import JSON

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


@pytest.mark.parametrize(
    ("text", "encoded"),
    [
        ("a b&c=d/é?", "a%20b%26c%3Dd%2F%C3%A9%3F"),
        ("AZaz09-._~", "AZaz09-._~"),
        ("\0%\n+", "%00%25%0A%2B"),
        ("", ""),
    ],
)
def test_uri_encode_keeps_what_rfc_3986_leaves_unreserved_and_decode_leads_back(
    pool: WatchedPool, text: str, encoded: str
) -> None:
    body = "local e = uri.encode(p.text) return { e, uri.decode(e) == p.text }"
    assert run(pool, body, {"text": text}) == [encoded, True]


def test_uri_decode_leaves_what_is_no_escape(pool: WatchedPool) -> None:
    assert run(pool, "return uri.decode('100%, a+b, %zz, %4')") == "100%, a+b, %zz, %4"


def test_uuids_are_random_also_in_a_process_that_stays(pool: WatchedPool) -> None:
    body = "local t = {} for n = 1, 50 do t[n] = crypto.uuid() end return t"
    ids = [id for _ in range(3) for id in run(pool, body, trust="operator")]
    assert len(set(ids)) == 150
    assert all(UUID.fullmatch(id) for id in ids)


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ("return ('é'):sub(1, 1)", "\ufffd"),
        ("return ('😀'):sub(2)", "\ufffd\ufffd\ufffd"),
        ("return {a = {'\\255', 'whole'}}", {"a": ["\ufffd", "whole"]}),
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


@pytest.mark.parametrize(
    ("value", "answer", "line"),
    [
        ("{'a', 'b', total = 2}", ["a", "b"], "fields=1 first=total"),
        ("{rows = {{'a', next = 'b'}, {'c', next = 'd'}}}", {"rows": [["a"], ["c"]]}, "fields=2 first=next"),
        ("{'a', [{}] = 'b'}", ["a"], "fields=1 first=table"),
    ],
)
def test_named_fields_beside_list_items_are_left_out_and_told_in_the_log(
    pool: WatchedPool, value: str, answer: JSON, line: str
) -> None:
    lines: list[str] = []

    def host(operation: str, payload: bytes, deadline_s: float) -> bytes:
        lines.append(payload.decode())
        return b""

    job = tool(f"tool = {{}} function tool.execute(p) return {value}\nend", trust="operator")
    assert pool.run(job, host, 10) == answer
    (logged,) = lines
    assert logged.startswith("warn\0a table with list items is an array in JSON")
    assert logged.endswith(line)
    lines.clear()
    whole = tool("tool = {} function tool.execute(p) return {{'a'}, {total = 2}} end", trust="operator")
    assert pool.run(whole, host, 10) == [["a"], {"total": 2}]
    assert lines == []
