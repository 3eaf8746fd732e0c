"""MCP on standard input and output."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kit import trust
from mcp_doors import HELLO, message
from real_clients import Pipe, environment, tried_project

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
    config = tried_project(tmp_path)
    (tmp_path / "tools" / "noise.lua").write_text(NOISE)
    trust(config)
    return tmp_path


def test_a_broken_line_is_a_parse_error_and_the_next_one_is_answered(folder: Path) -> None:
    pipe = Pipe(folder)
    pipe.say('{"jsonrpc": "2.0", "id": 1, "method"')
    assert (reply := pipe.hear())["error"]["code"] == -32700
    assert reply["id"] is None
    assert reply["error"]["data"]["details"]
    for line in (
        '[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]',
        "3",
        '"text"',
        '{"jsonrpc": "1.0", "id": 7, "method": "ping"}',
        '{"jsonrpc": "2.0", "id": null, "method": "ping"}',
    ):
        pipe.say(line)
        error = pipe.hear()["error"]
        assert error["code"] == -32600, line
        assert error["data"]["details"]
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
    assert match["result"]["content"][0]["text"].count(".md\n") == 1
    code, out, err = pipe.end()
    assert (code, out) == (0, "")
    assert "tool=" in err or "indexed" in err


def test_output_of_libraries_and_children_goes_to_stderr(tmp_path: Path) -> None:
    # A C library, a child process and `print`, while the wire is in use.
    program = """
import os, subprocess, sys
from ctx.server.stdio import take_stdio
source, sink = take_stdio()
print("from print")
sys.stdout.flush()
os.write(1, b"from a library\\n")
subprocess.run(["echo", "from a child"])
assert sys.stdin.read() == "", "a child could eat the wire"
sink.write("message\\n" + source.read(4))
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


def test_an_edited_script_sends_list_changed(folder: Path) -> None:
    pipe = Pipe(folder, "--config", "ctx.toml")  # a found one would wait for trust
    pipe.shake_hands()
    tool = folder / "tools" / "shout.lua"
    names = folder / "tools" / "fresh.lua"
    names.write_text(tool.read_text().replace('"shout"', '"fresh"'))
    while (caller := pipe.hear()).get("method") != "notifications/tools/list_changed":
        assert "id" not in caller
    assert "fresh" in {tool["name"] for tool in pipe.ask("tools/list", id=5)["result"]["tools"]}
    assert pipe.end()[0] == 0


def test_requests_are_answered_after_the_input_has_ended(folder: Path) -> None:
    call = message("tools/call", {"name": "refresh", "arguments": {}}, 2)
    lines = [message("initialize", HELLO), message("notifications/initialized", id=None), call]
    process = subprocess.run(
        [sys.executable, "-m", "ctx", "mcp"],
        cwd=folder,
        env=environment(),
        input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    replies = [json.loads(line) for line in process.stdout.splitlines()]
    assert [reply["id"] for reply in replies if "id" in reply] == [1, 2]


def test_an_interrupt_ends_a_process_that_waits_for_input(folder: Path) -> None:
    pipe = Pipe(folder)
    pipe.shake_hands()
    pipe.process.send_signal(signal.SIGINT)
    pipe.process.wait(20)  # the input is still open
    assert "Traceback" not in pipe.end()[2]
