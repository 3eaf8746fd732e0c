"""The opening of a project that is recorded before a client comes: it says what the SDK says, to whoever."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from faults import eventually
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit import project, workspace
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_MODERN_VERSION
from real_clients import Pipe, environment, tried_project

from ctx.assemble import mcp_server
from ctx.cli.recorder import conversations
from ctx.cli.recording import record_soon
from ctx.config import load_config
from ctx.server.frames import Frames
from ctx.server.opening import ANYBODY, Requests, anonymous
from ctx.server.stdio import Wire, enter_pipe, serve_pipes
from ctx.server.work import Work
from ctx.types import JSON, Caller
from ctx.workspace import Workspace

PREFIX = "io.modelcontextprotocol/"


def replies(space: Workspace, messages: list[dict[str, JSON]]) -> list[JSON]:
    """What the SDK answers to these, by their ids."""
    work = Work()
    server = mcp_server(space, work, enter_pipe(Caller("stdio")))
    (heard, spoken), (inlet, outlet) = os.pipe(), os.pipe()
    os.write(spoken, b"".join(json.dumps(message).encode() + b"\n" for message in messages))
    os.close(spoken)
    with open(heard, "rb", buffering=0) as reading, open(outlet, "wb", buffering=0) as writing:
        asyncio.run(serve_pipes(server, Wire(Frames(reading, writing))))
    work.close()
    with open(inlet, "rb") as lines:
        rows = [json.loads(line) for line in lines]
    return sorted(rows, key=lambda row: str(row["id"]))


def project_with_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project of a user who keeps nothing yet."""
    monkeypatch.setenv("HOME", str(folder / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    tried_project(folder)


def initialize(version: str, about: JSON, capabilities: JSON) -> dict[str, JSON]:
    params = {"protocolVersion": version, "capabilities": capabilities, "clientInfo": about}
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}


def discover(about: JSON, capabilities: JSON) -> dict[str, JSON]:
    meta = {f"{PREFIX}protocolVersion": LATEST_MODERN_VERSION, f"{PREFIX}clientCapabilities": capabilities}
    meta |= {} if about is None else {f"{PREFIX}clientInfo": about}
    return {"jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": {"_meta": meta}}


texts = st.text(max_size=8)
abouts = st.fixed_dictionaries(
    {"name": texts, "version": texts},
    optional={"title": texts, "description": texts, "websiteUrl": texts},
)
anything: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
trees: Any = st.recursive(
    st.just({}),
    lambda inner: st.dictionaries(st.sampled_from(["list", "form", "context", "requests"]), inner),
)
capability_sets = st.fixed_dictionaries(
    {},
    optional={
        "roots": st.sampled_from([{}, {"listChanged": True}, {"listChanged": False}]) | anything,
        "sampling": trees | anything,
        "elicitation": trees | anything,
        "tasks": trees | anything,
        "experimental": st.dictionaries(texts, st.dictionaries(texts, anything, max_size=2), max_size=2),
        "extensions": st.dictionaries(texts, anything, max_size=2),
        "unheard": trees | anything,
    },
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(about=abouts | anything, capabilities=capability_sets | anything)
def test_who_is_taken_for_anybody_is_answered_by_the_sdk_as_anybody_is(
    tmp_path: Path, about: JSON, capabilities: JSON
) -> None:
    with workspace(project(tmp_path, {})) as space:
        for greeting, usual in (
            (initialize("2025-06-18", about, capabilities), initialize("2025-06-18", {"name": "a", "version": "b"}, {})),
            (discover(about, capabilities), discover(None, {})),
        ):  # fmt: skip
            if ANYBODY in anonymous(greeting["params"]):
                assert replies(space, [greeting]) == replies(space, [usual])


@pytest.mark.parametrize(
    "capabilities",
    [
        {},
        {"roots": {"listChanged": True}, "sampling": {}, "elicitation": {"form": {}, "url": {}}},
        {"tasks": {"list": {}, "cancel": {}, "requests": {"sampling": {"createMessage": {}}}}},
        {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}},
    ],
    ids=str,
)
def test_clients_as_they_are_share_a_record(capabilities: JSON) -> None:
    keys = {
        Requests().key(initialize(HANDSHAKE_PROTOCOL_VERSIONS[-1], about, able))
        for about, able in (
            ({"name": "a", "version": "1"}, {}),
            ({"name": "b", "title": "B", "version": "2", "websiteUrl": "https://b.example"}, capabilities),
        )
    }
    assert len(keys) == 1
    modern = {
        Requests().key(discover(about, able))
        for about, able in ((None, {}), ({"name": "b", "version": "2"}, capabilities))
    }
    assert len(modern) == 1


@pytest.mark.parametrize(
    ("about", "capabilities"),
    [
        ({"name": "a"}, {}),
        ({"name": "a", "version": 1}, {}),
        ("*", {}),
        ({"name": "a", "version": "1"}, {"roots": {"listChanged": "yes"}}),
        ({"name": "a", "version": "1"}, {"sampling": True}),
        ({"name": "a", "version": "1"}, {"experimental": {"x": 1}}),
        ({"name": "a", "version": "1"}, {"sampling": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {}}}}}}}}}),
    ],
    ids=str,
)
def test_a_client_whose_words_the_sdk_might_refuse_is_nobody_else(about: JSON, capabilities: JSON) -> None:
    greeting = initialize("2025-06-18", about, capabilities)
    assert anonymous(greeting["params"]) == (greeting["params"],)


def recorded(folder: Path) -> dict[str, JSON]:
    """The replies in the one record of this user."""
    (record,) = (folder / "cache" / "ctx").glob("opening-[0-9][0-9]")
    return dict(json.loads(record.read_text() or "{}").get("replies", {}))


@pytest.mark.slow
@pytest.mark.parametrize("named", [False, True])
def test_a_client_that_never_came_before_is_answered_from_what_was_recorded_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    project_with_cache(tmp_path, monkeypatch)
    command = [sys.executable, "-P", "-m", "ctx.cli.recorder"]
    command += ["--config", str(tmp_path / "ctx.toml")] if named else []
    subprocess.run(command, cwd=tmp_path, env=environment(), check=True)
    count = sum(1 for conversation in conversations() for message in conversation if "id" in message)
    assert len(recorded(tmp_path)) == count
    (record,) = (tmp_path / "cache" / "ctx").glob("opening-[0-9][0-9]")
    record.write_text(record.read_text().replace("Search the user's documents", "As recorded: search"))
    before = sum("As recorded" in json.dumps(row) for row in recorded(tmp_path).values())
    pipe = Pipe(tmp_path)
    greeting = initialize(
        "2025-03-26", {"name": "stranger", "version": "9"}, {"roots": {"listChanged": True}}
    )
    reply = pipe.ask("initialize", greeting["params"], 0)["result"]
    assert reply["instructions"].startswith("As recorded")  # so the SDK was not waited for
    assert reply["protocolVersion"] == "2025-03-26"
    tools = pipe.ask("tools/list", id=1)["result"]["tools"]
    assert {"search", "whisper"} & {tool["name"] for tool in tools}
    pipe.ask("resources/list", id=2)  # which the SDK answers, behind the others
    pipe.end()
    assert len(recorded(tmp_path)) == count  # the SDK was asked, and put right what stood under the same key
    assert sum("As recorded" in json.dumps(row) for row in recorded(tmp_path).values()) == before - 1


@pytest.mark.slow
def test_connecting_a_client_has_its_opening_recorded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project_with_cache(tmp_path, monkeypatch)
    command = [sys.executable, "-P", "-m", "ctx", "connect", "cursor", "--stdio"]
    subprocess.run(command, cwd=tmp_path, env=environment(), check=True, capture_output=True)
    count = sum(1 for conversation in conversations() for message in conversation if "id" in message)
    eventually(lambda: len(recorded(tmp_path)) == count)


@pytest.mark.slow
def test_indexing_at_a_terminal_has_the_opening_recorded_and_indexing_unattended_has_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project_with_cache(tmp_path, monkeypatch)
    command = [sys.executable, "-P", "-m", "ctx", "index", "--no-embed"]
    subprocess.run(command, cwd=tmp_path, env=environment(), check=True, capture_output=True)
    assert not list((tmp_path / "cache" / "ctx").glob("opening-*"))
    ours, theirs = os.openpty()
    subprocess.run(
        command, cwd=tmp_path, env=environment(), check=True, stdout=subprocess.PIPE, stderr=theirs
    )
    os.close(theirs)
    os.close(ours)
    count = sum(1 for conversation in conversations() for message in conversation if "id" in message)
    eventually(lambda: len(recorded(tmp_path)) == count)


def test_an_opening_is_recorded_once_after_each_change_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = project(tmp_path, {})
    commands: list[list[str]] = []
    monkeypatch.setattr(os, "posix_spawn", lambda program, command, environ, **_: commands.append(command))

    def asked() -> int:
        record_soon(load_config(str(path), os.environ), ("--config", str(path)))
        return len(commands)

    os.utime(path, (1, 1))
    assert [asked(), asked()] == [1, 1]
    assert commands[0][-2:] == ["--config", str(path)]
    os.utime(path, (2**32, 2**32))
    assert asked() == 2
    path.write_text(path.read_text() + '[packs]\nenabled = ["hindsight"]\n')
    assert asked() == 2  # what packs introduce follows from more than can be recorded
