"""What a client asks first over pipes: answered from a record, which is never stale and never the
authority.
"""

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS
from real_clients import Pipe, tried_project

from ctx.server.frames import Frames
from ctx.server.opening import Opening, Requests, answer_early, fingerprint
from ctx.types import JSON

MODERN = "2026-07-28"
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
SHOUT = """\
tool = {
  name = "whisper",
  description = "DESCRIPTION",
  parameters = {},
  execute = function(params, context) return {ok = true} end,
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project, not yet indexed, with a tool of its own, of a user of whom nothing is recorded."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tried_project(tmp_path)
    (tmp_path / "tools" / "whisper.lua").write_text(SHOUT)
    return tmp_path


def record_of(folder: Path) -> Path:
    """The file that holds the record of the project in `folder`."""
    (record,) = (folder / "cache" / "ctx").glob("opening-*")
    return record


# -- whole processes -----------------------------------------------------------------------------------------


def opening_of(folder: Path, version: str) -> list[JSON]:
    """What a process says to a client that greets it in this version and lists what there is."""
    pipe = Pipe(folder)
    if version == MODERN:
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        replies = [pipe.ask("server/discover", {"_meta": meta}, 0)]
        replies += [
            pipe.ask(method, {"_meta": meta}, id) for id, method in ((1, "tools/list"), (2, "prompts/list"))
        ]
    else:
        replies = [pipe.ask("initialize", {**HELLO, "protocolVersion": version}, 0)]
        pipe.say('{"jsonrpc": "2.0", "method": "notifications/initialized"}')
        replies += [
            pipe.ask(method, id=id) for id, method in ((1, "tools/list"), (2, "prompts/list"), (3, "ping"))
        ]
    code, out, _ = pipe.end()
    assert (code, out) == (0, "")
    assert all("result" in reply for reply in replies), replies
    return replies


@pytest.mark.slow
@pytest.mark.parametrize("version", [*KNOWN_PROTOCOL_VERSIONS, "1999-01-01"])
def test_the_second_start_says_what_the_sdk_said_at_the_first(folder: Path, version: str) -> None:
    assert opening_of(folder, version) == opening_of(folder, version)


@pytest.mark.slow
def test_what_the_record_says_is_put_to_the_sdk_and_put_right(folder: Path) -> None:
    pipe = Pipe(folder)
    instructions = pipe.shake_hands()["instructions"]
    tools = pipe.ask("tools/list")["result"]["tools"]
    pipe.end()
    record = record_of(folder)
    content = json.loads(record.read_text())
    for reply in content["replies"].values():
        if "tools" in reply:
            reply["tools"] = reply["tools"][:1]
        if "instructions" in reply:
            reply["instructions"] = "as recorded"
    record.write_text(json.dumps(content))
    pipe = Pipe(folder)
    assert pipe.shake_hands()["instructions"] == "as recorded"  # so the SDK was not waited for
    assert pipe.ask("tools/list", id=2)["result"]["tools"] == tools[:1]
    assert pipe.hear() == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    assert pipe.ask("tools/list", id=3)["result"]["tools"] == tools
    _, _, log = pipe.end()
    assert "answered from a record that no longer holds" in log
    pipe = Pipe(folder)
    assert pipe.shake_hands()["instructions"] == instructions
    assert pipe.ask("tools/list", id=2)["result"]["tools"] == tools
    pipe.end()


@pytest.mark.slow
def test_a_tool_added_and_a_description_changed_show_at_once(folder: Path) -> None:
    def described() -> dict[str, str]:
        pipe = Pipe(folder)
        pipe.shake_hands()
        tools = pipe.ask("tools/list")["result"]["tools"]
        pipe.end()
        return {tool["name"]: tool["description"] for tool in tools}

    assert described()["whisper"] == "DESCRIPTION"
    script = folder / "tools" / "whisper.lua"
    status = script.stat()
    script.write_text(SHOUT.replace("DESCRIPTION", "DISCRIPTION"))  # as long as before, and as old
    os.utime(script, ns=(status.st_atime_ns, status.st_mtime_ns))
    (folder / "tools" / "murmur.lua").write_text(SHOUT.replace("whisper", "murmur"))
    descriptions = described()
    assert descriptions["whisper"] == "DISCRIPTION"
    assert "murmur" in descriptions
    (folder / "tools" / "murmur.lua").unlink()
    assert "murmur" not in described()


# -- the parts -----------------------------------------------------------------------------------------------


def request(method: str, params: JSON = None, **fields: Any) -> dict[str, JSON]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, **({"params": params} if params else {}), **fields}


def test_a_request_is_told_from_every_other() -> None:
    requests = Requests()
    keys = {requests.key(request("tools/list")), requests.key(request("initialize", HELLO))}
    keys |= {requests.key(request("tools/list")), requests.key(request("tools/list", {"cursor": "x"}))}
    keys.add(requests.key(request("initialize", {**HELLO, "protocolVersion": "2024-11-05"})))
    keys.add(requests.key(request("tools/list")))
    assert len(keys) == 6
    assert None not in keys


@pytest.mark.parametrize(
    "message",
    [
        request("tools/call", {"name": "search"}),
        request("resources/list"),
        request("tools/list", id=None),
        request("tools/list", id=True),
        request("tools/list", id=1.5),
        request("tools/list", jsonrpc="1.0"),
        request("tools/list", extra=1),
        request("tools/list", {"cursor": "x" * 5000}),
    ],
    ids=str,
)
def test_a_request_that_the_record_should_not_know_has_no_key(message: dict[str, JSON]) -> None:
    assert Requests().key(message) is None


def test_a_record_of_another_state_or_open_to_others_is_left_out_of_account(tmp_path: Path) -> None:
    slot = tmp_path / "cache" / "opening-00"
    Opening(str(slot), "a").note("key", {"x": 1})
    assert slot.stat().st_mode & 0o077 == 0
    assert Opening(str(slot), "a").reply("key") == {"x": 1}
    assert not Opening(str(slot), "b")
    slot.chmod(0o644)
    assert not Opening(str(slot), "a")
    slot.chmod(0o600)
    slot.write_text("{")
    assert not Opening(str(slot), "a")
    assert not Opening(None, "a")


def test_a_record_does_not_grow_without_end_and_keeps_what_another_process_noted(tmp_path: Path) -> None:
    slot = str(tmp_path / "opening")
    one_client, another_client = Opening(slot, "a"), Opening(slot, "a")
    one_client.note("one", {"n": 1})
    another_client.note("another", {"n": 2})
    assert Opening(slot, "a").reply("one") == {"n": 1}
    for number in range(100):
        another_client.note(f"key {number}", {"n": number})
    record = Opening(slot, "a")
    assert record.reply("key 99") == {"n": 99}
    assert record.reply("one") is None


def test_the_fingerprint_changes_with_a_value_a_file_and_a_folder(tmp_path: Path) -> None:
    script, tools = tmp_path / "a.lua", tmp_path / "tools"
    prints = [fingerprint(["x"], [str(script), str(tools)])]

    def changed() -> bool:
        prints.append(fingerprint(["x"], [str(script), str(tools)]))
        return prints[-1] not in prints[:-1]

    assert not changed()
    script.write_text("1")
    assert changed()
    tools.mkdir()
    assert changed()
    (tools / "b.lua").write_text("1")
    assert changed()
    (tools / "pack").mkdir()
    assert changed()
    (tools / "pack" / "c.lua").write_text("1")
    assert changed()
    assert fingerprint(["y"], [str(script), str(tools)]) not in prints


def test_a_folder_with_too_much_in_it_is_not_looked_through(tmp_path: Path) -> None:
    for number in range(5000):
        (tmp_path / f"{number}.lua").touch()
    assert fingerprint([], [str(tmp_path)]) is None
    assert not Opening(str(tmp_path / "opening"), None)


class Client:
    """The other end of `Frames`."""

    def __init__(self) -> None:
        inlet, self.writing = os.pipe()
        self.reading, outlet = os.pipe()
        self.ends = os.fdopen(inlet, "rb", buffering=0), os.fdopen(outlet, "wb", buffering=0)
        self.frames = Frames(*self.ends)

    def say(self, *messages: JSON) -> None:
        os.write(self.writing, b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def hear(self) -> JSON:
        return json.loads(os.read(self.reading, 65536))

    def leave(self) -> None:
        """Closes its end; once is enough."""
        if self.writing >= 0:
            os.close(self.writing)
        self.writing = -1


@pytest.fixture
def client() -> Iterator[Client]:
    client = Client()
    yield client
    client.leave()
    os.close(client.reading)
    for end in client.ends:
        end.close()


def recorded(tmp_path: Path, *replies: tuple[dict[str, JSON], JSON]) -> Opening:
    record = Opening(str(tmp_path / "opening"), "a")
    requests = Requests()
    for message, reply in replies:
        key = requests.key(message)
        assert key is not None
        record.note(key, reply)
    return record


def test_early_answers_end_with_the_first_request_that_is_not_recorded(
    tmp_path: Path, client: Client
) -> None:
    record = recorded(tmp_path, (request("initialize", HELLO), {"hello": 1}))
    messages: list[JSON] = [
        request("initialize", HELLO),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        request("tools/list", id=2),
        request("ping", id=3),
    ]
    client.say(*messages)
    opening = answer_early(client.frames, record, threading.Event().set)
    assert client.hear() == {"jsonrpc": "2.0", "id": 1, "result": {"hello": 1}}
    assert [json.loads(message) for message in opening.messages] == messages[:3]
    assert opening.replies == {1: {"hello": 1}}
    assert not opening.ended
    assert client.frames.next() == json.dumps(messages[3]).encode()  # still there for the SDK


def test_early_answers_end_when_the_server_is_ready(tmp_path: Path, client: Client) -> None:
    record = recorded(tmp_path, (request("initialize", HELLO), {"hello": 1}))
    opening = answer_early(client.frames, record, threading.Event().set)
    assert (opening.messages, opening.replies, opening.ended) == ([], {}, False)


def test_a_client_that_leaves_with_all_it_asked_needs_no_server(tmp_path: Path, client: Client) -> None:
    record = recorded(tmp_path, (request("initialize", HELLO), {"hello": 1}))
    client.say(request("initialize", HELLO))
    client.leave()
    assert answer_early(client.frames, record, threading.Event().set).ended


@pytest.mark.parametrize("line", [b"{", b"[]", b"3", b'{"id": 1}', b'{"method": 7}', b"[" * 50_000])
def test_what_is_no_request_is_left_to_the_server(tmp_path: Path, client: Client, line: bytes) -> None:
    record = recorded(tmp_path, (request("initialize", HELLO), {"hello": 1}))
    os.write(client.writing, line + b"\n")
    opening = answer_early(client.frames, record, threading.Event().set)
    assert opening.replies == {}
    assert not opening.ended
