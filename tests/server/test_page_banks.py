"""Which memory banks the page lists: all of an open server, those of the key otherwise."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import MEMORIES, project, workspace
from serving import Serve, failure

from ctx.server.app import server_settings, services
from ctx.workspace import Workspace


@pytest.fixture
def space(tmp_path: Path) -> Iterator[Workspace]:
    """Two memories of alice, one superseded by the other, one of bob, and one of the default bank."""
    with workspace(project(tmp_path, config=MEMORIES)) as opened:
        _ = opened.packs  # loads them
        alice = opened.memory.bank("alice")
        alice.put("I moved from Berlin to Paris", supersedes=[alice.put("I live in Berlin")["id"]])
        opened.memory.bank("bob").put("Bob likes tea")
        opened.memory.bank("default").put("The standup is at ten")
        yield opened


def test_an_open_server_tells_the_page_of_each_bank_how_much_holds(serve: Serve, space: Workspace) -> None:
    client = serve(services(space), server_settings(space)).client
    assert client.get("/banks").json() == {
        "banks": [
            {"bank": "alice", "memories": 1},
            {"bank": "bob", "memories": 1},
            {"bank": "default", "memories": 1},
        ],
        "total": 3,
        "default": "default",
    }
    assert failure(client.get("/banks", headers={"origin": "https://evil.example"}))[0] == 403


def test_a_key_of_some_banks_is_told_of_those_alone(serve: Serve, space: Workspace) -> None:
    ours = services(space)
    key, _ = ours.keys.create("alice", ["alice"])
    client = serve(ours, server_settings(space)).client
    assert failure(client.get("/banks")) == (401, "unauthorized")
    reply = client.get("/banks", headers={"authorization": f"Bearer {key}"}).json()
    assert [row["bank"] for row in reply["banks"]] == ["alice"]
    assert reply["total"] == 1
