"""MCP over pipes: what leaves, and what a broken line gets."""

import asyncio
import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from mcp_doors import HELLO, message
from real_clients import Pipe, environment, tried_project

from ctx.server.frames import Frames
from ctx.server.opening import Early, Opening
from ctx.server.stdio import Wire
from ctx.types import JSON

pytestmark = pytest.mark.slow  # a process for each, and the SDK takes a second to import

NOISE = """\
tool = {
  name = "noise",
  description = "Prints",
  parameters = {},
  execute = function(params, context)
    for line = 1, 200 do print("noise " .. line) end
    return {ok = true}
  end,
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project, not yet indexed."""
    tried_project(tmp_path)
    (tmp_path / "tools" / "noise.lua").write_text(NOISE)
    return tmp_path


def test_a_broken_line_is_a_parse_error_and_the_next_one_is_answered(folder: Path) -> None:
    pipe = Pipe(folder)
    pipe.say('{"jsonrpc": "2.0", "id": 1, "method"')
    assert (reply := pipe.hear())["error"]["code"] == -32700
    assert reply["id"] is None
    for line in (
        '[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]',
        "3",
        '"text"',
        '{"jsonrpc": "1.0", "id": 7, "method": "ping"}',
    ):
        pipe.say(line)
        assert pipe.hear()["error"]["code"] == -32600, line
    pipe.say("")  # nothing is said of an empty line
    assert pipe.shake_hands()["serverInfo"]["name"] == "ctx"
    assert pipe.ask("ping", id=2)["result"] == {}
    assert pipe.ask("no/such", id=3)["error"]["code"] == -32601
    code, out, _ = pipe.end()
    assert (code, out) == (0, "")


def test_nothing_but_messages_leaves_on_standard_output(folder: Path) -> None:
    pipe = Pipe(folder, "--log-level", "debug")
    pipe.shake_hands()
    assert pipe.ask("tools/call", {"name": "noise", "arguments": {}}, 1)["result"]["structuredContent"] == {
        "ok": True
    }
    assert pipe.ask("tools/call", {"name": "refresh", "arguments": {}}, 2)["result"]["isError"] is False
    match = pipe.ask("tools/call", {"name": "search", "arguments": {"query": "rollback"}}, 3)
    assert len(match["result"]["structuredContent"]["results"]) == 1
    code, out, err = pipe.end()
    assert (code, out) == (0, "")
    assert "tool=" in err or "indexed" in err


def test_whatever_prints_below_python_reaches_standard_error(tmp_path: Path) -> None:
    # A C library, a child process and `print`, while the wire is in use.
    program = """
import os, subprocess, sys
from ctx.server.frames import take_wire
reading, writing = take_wire()
print("from print")
sys.stdout.flush()
os.write(1, b"from a library\\n")
subprocess.run(["echo", "from a child"])
assert sys.stdin.read() == "", "a child could eat the wire"
writing.write(b"message\\n" + reading.read(4))
"""
    completed_run = subprocess.run(
        [sys.executable, "-c", program], input="wire", capture_output=True, text=True, timeout=30, check=True
    )
    assert completed_run.stdout == "message\nwire"
    assert [line for line in completed_run.stderr.splitlines() if line.startswith("from ")] == [
        "from print",
        "from a library",
        "from a child",
    ]


def test_both_eras_are_served_by_one_process(folder: Path) -> None:
    pipe = Pipe(folder)
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    match = pipe.ask("server/discover", {"_meta": meta}, 1)
    assert "2026-07-28" in match["result"]["supportedVersions"]
    assert pipe.end()[0] == 0
    pipe = Pipe(folder)
    assert pipe.shake_hands()["protocolVersion"] == "2025-11-25"
    assert pipe.end()[0] == 0


def test_the_alias_of_serve_is_the_same(folder: Path) -> None:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
    process = subprocess.run(
        [sys.executable, "-m", "ctx", "serve", "mcp", "--stdio"],
        cwd=folder,
        env=environment(),
        input=line + "\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(process.stdout)["result"]["serverInfo"]["name"] == "ctx"


def test_an_edited_script_is_news_over_pipes(folder: Path) -> None:
    pipe = Pipe(folder)
    pipe.shake_hands()
    tool = folder / "tools" / "shout.lua"
    names = folder / "tools" / "fresh.lua"
    names.write_text(tool.read_text().replace('"shout"', '"fresh"'))
    while (caller := pipe.hear()).get("method") != "notifications/tools/list_changed":
        assert "id" not in caller
    assert "fresh" in {tool["name"] for tool in pipe.ask("tools/list", id=5)["result"]["tools"]}
    assert pipe.end()[0] == 0


def test_a_process_whose_client_is_gone_ends(folder: Path) -> None:
    pipe = Pipe(folder)
    pipe.shake_hands()
    assert pipe.end()[0] == 0


def test_a_faulty_configuration_is_told_on_standard_error(tmp_path: Path) -> None:
    (tmp_path / "ctx.toml").write_text("[server]\nbnid = 1\n")
    process = subprocess.run(
        [sys.executable, "-m", "ctx", "mcp"],
        cwd=tmp_path,
        env=environment(),
        input="",
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (process.returncode, process.stdout) == (2, "")
    assert "did you mean 'bind'" in process.stderr


def test_an_open_subscription_does_not_keep_the_process(folder: Path) -> None:
    pipe = Pipe(folder)
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    listen = {"notifications": {"toolsListChanged": True}, "_meta": meta}
    pipe.say(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": listen}))
    assert pipe.hear()["method"] == "notifications/subscriptions/acknowledged"
    assert pipe.end()[0] == 0  # within its 20 s: the wait for replies is 30


def _conversation(lines: list[JSON], early: Early | None = None) -> tuple[list[JSON], list[JSON]]:
    """What a server takes from a client that says `lines`, and what that client hears; every message is
    answered with its method, once the one after it has been taken or is waited for.
    """

    async def serve(wire: Wire) -> list[JSON]:
        messages: list[JSON] = []
        writes: list[asyncio.Task[None]] = []
        async for line in wire:
            message = json.loads(line)
            messages.append(message)
            if message["method"] == "notifications/answer":  # only now
                await wire.write(
                    json.dumps({"jsonrpc": "2.0", "id": 5, "result": {"of": messages[0]["method"]}})
                )
            elif "id" in message and (early is not None or len(messages) > 1):
                reply = json.dumps(
                    {"jsonrpc": "2.0", "id": message["id"], "result": {"of": message["method"]}}
                )
                writes.append(asyncio.ensure_future(wire.write(reply)))
        await asyncio.gather(*writes)
        return messages

    reading, writing = os.pipe()
    client_end, server_end = os.pipe()
    os.write(writing, "".join(json.dumps(line) + "\n" for line in lines).encode())
    os.close(writing)
    with open(reading, "rb", buffering=0) as source, open(server_end, "wb", buffering=0) as sink:
        messages = asyncio.run(asyncio.wait_for(serve(Wire(Frames(source, sink), early=early)), 30))
    with open(client_end, "rb") as lines_back:
        return messages, [json.loads(line) for line in lines_back]


def test_a_second_request_of_an_id_in_use_is_refused_at_once_and_the_id_is_free_after_the_reply() -> None:
    messages, replies = _conversation(
        [
            message("tools/call", {"name": "wait"}, 5),
            message("tools/list", id=5),
            message("notifications/answer", id=None),
            message("ping", id=5),
        ]
    )
    assert [entry["method"] for entry in messages] == ["tools/call", "notifications/answer", "ping"]
    refusal, *results = replies
    assert (refusal["id"], refusal["error"]["code"]) == (5, -32600)
    assert "each request has its own" in refusal["error"]["data"]["details"]
    assert [reply["result"]["of"] for reply in results] == ["tools/call", "ping"]


def test_a_client_that_goes_when_the_process_is_stopped_leaves_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faults: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", faults.append)
    source, client = os.pipe()

    async def begin(wire: Wire) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(aiter(wire)), 0.05)

    with open(source, "rb") as reading:
        asyncio.run(begin(Wire(Frames(reading, io.BytesIO()))))
        (listener,) = (thread for thread in threading.enumerate() if thread.name == "ctx-stdin")
        os.close(client)
        listener.join(10)
    assert not listener.is_alive()
    assert not faults


def test_an_id_that_was_answered_from_the_record_may_be_used_again() -> None:
    beginning = Early()
    beginning.messages, beginning.replies = (
        [json.dumps(message("initialize", HELLO)).encode()],
        {1: {"of": "initialize"}},
    )
    messages, replies = _conversation([message("ping")], beginning)
    assert [entry["method"] for entry in messages] == ["initialize", "ping"]
    assert [reply["result"]["of"] for reply in replies] == ["ping"]  # the first was answered already


def test_what_was_called_off_leaves_nothing_that_another_reply_is_recorded_as(tmp_path: Path) -> None:
    opening = Opening(str(tmp_path / "record"), "now")

    async def converse() -> None:
        wire = Wire(Frames(io.BytesIO(), io.BytesIO()), opening=opening)
        wire._expect(message("tools/list"))
        wire._expect(message("notifications/cancelled", {"requestId": 1}, None))
        wire._expect(message("tools/call"))
        await wire.write(json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"content": []}}))

    asyncio.run(converse())
    assert not opening


def test_a_line_that_is_too_long_is_refused_once_and_the_next_one_is_answered(folder: Path) -> None:
    pipe = Pipe(folder)
    pipe.shake_hands()
    pipe.say('{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a": "' + "x" * (40 << 20) + '"}}')
    assert pipe.hear()["error"]["data"]["details"] == "a message has at most 16,777,216 bytes"
    assert pipe.ask("ping", id=2)["result"] == {}
    code, out, _ = pipe.end()
    assert (code, out) == (0, "")


def test_a_client_that_reads_no_more_ends_it_without_a_traceback(folder: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "ctx", "mcp"],
        cwd=folder,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(json.dumps(message("initialize", HELLO, 1)).encode() + b"\n")
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.close()
        process.stdin.write(json.dumps(message("ping", {}, 2)).encode() + b"\n")
        process.stdin.flush()
        errors = process.stderr.read()
    assert (process.returncode, b"Traceback" in errors) == (0, False), errors


@pytest.mark.parametrize("params", [[1], "text", 5])
def test_a_handshake_of_another_shape_ends_no_pipe_of_a_pack(tmp_path: Path, params: JSON) -> None:
    tried_project(tmp_path, '[embedding]\nprovider = "disabled"\n[packs]\nenabled = ["claude-recall"]\n')
    pipe = Pipe(tmp_path, "--pack", "claude-recall")
    assert pipe.ask("initialize", params, id=1)["error"]["code"] == -32602
    assert pipe.ask("ping", id=2)["result"] == {}
    assert pipe.end()[0] == 0
