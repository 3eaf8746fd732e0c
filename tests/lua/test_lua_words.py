"""What a script computes beside Lua's own: percent-encoding, digests, random ids. Whatever it is given, it
answers or says why.
"""

import contextlib
import re
import time

import pytest
from pool_kit import run
from redteam_run import WatchedPool, tool

from ctx.errors import CtxError, ScriptTimeout, ToolError

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


def test_digests_are_those_of_the_standards(pool: WatchedPool) -> None:
    assert run(pool, "return { crypto.sha1('abc'), crypto.md5('abc'), crypto.md5('') }") == [
        "a9993e364706816aba3e25717850c26c9cd0d89d",
        "900150983cd24fb0d6963f7d28e17f72",
        "d41d8cd98f00b204e9800998ecf8427e",
    ]


def test_uuids_are_random_also_in_a_process_that_stays(pool: WatchedPool) -> None:
    body = "local t = {} for n = 1, 50 do t[n] = crypto.uuid() end return t"
    ids = [id for _ in range(3) for id in run(pool, body, reuse=True, trust="operator")]
    assert len(set(ids)) == 150
    assert all(UUID.fullmatch(id) for id in ids)


@pytest.mark.parametrize("name", ["uri.encode", "uri.decode", "crypto.sha1", "crypto.md5"])
@pytest.mark.parametrize("value", ["nil", "{}", "true", "print"])
def test_a_value_that_is_no_text_is_refused_by_name(pool: WatchedPool, name: str, value: str) -> None:
    with pytest.raises(ToolError, match=rf"bad argument #1 to '{name.partition('.')[2]}' \(string expected"):
        run(pool, f"local _ = {name}({value})")


@pytest.mark.parametrize("name", ["uri.encode", "uri.decode", "crypto.sha1", "crypto.md5"])
def test_six_megabytes_are_an_answer_or_an_error_and_the_next_call_is_whole(
    pool: WatchedPool, name: str
) -> None:
    body = (
        f"local ok, problem = pcall({name}, ('%41'):rep(2 << 20)) return {{ok, tostring(problem):sub(1, 60)}}"
    )
    with contextlib.suppress(CtxError):
        run(pool, body)
    assert run(pool, "return uri.encode('ä')") == "%C3%A4"


def test_a_script_that_breaks_its_own_libraries_breaks_nothing_of_ours(pool: WatchedPool) -> None:
    body = """
      string.gsub, string.byte, string.format, string.char = nil, error, error, nil
      getmetatable = nil
      return { uri.encode("ä"), uri.decode("%41"), #crypto.uuid() }
    """
    assert run(pool, body) == ["%C3%A4", "A", 36]


def test_an_option_of_http_that_nothing_reads_is_told_once_and_does_nothing(pool: WatchedPool) -> None:
    body = """
      for _ = 1, 2 do http.get("http://example.org/", { timeot = 5, headers = {} }) end
      http.request("PUT", "http://example.org/", { body = "x", params = {} })
      return http.post("http://example.org/", "x", { body = "y" }).status
    """
    lines: list[bytes] = []

    def host(operation: str, payload: bytes, deadline_s: float) -> bytes:
        if operation == "log":
            lines.append(payload)
        return b'{"status": 200, "ok": true, "headers": {}}\0'

    assert pool.run(tool(f"tool = {{}} function tool.execute(p, context) {body} end"), host, 10) == 200
    known = b"is unknown and does nothing (known: headers, params, timeout)"
    assert lines == [b"warn\0http: the option '%b' %b" % (name, known) for name in (b"timeot", b"body")]


@pytest.mark.parametrize("call", ["uri.encode(text)", "crypto.sha1(text)", "crypto.uuid()"])
def test_a_loop_over_them_ends_at_the_deadline(pool: WatchedPool, call: str) -> None:
    began_s = time.monotonic()
    with pytest.raises(ScriptTimeout):
        run(pool, f"local text = ('é'):rep(1 << 19) while true do local _ = {call} end", timeout_s=0.3)
    assert time.monotonic() - began_s < 60  # it would go on for good
