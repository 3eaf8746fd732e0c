"""Sessions of MCP: which of them gives way, and that a new client always gets in."""

import asyncio
import gc
import json
import math

import httpx
import pytest
from mcp_doors import ACCEPT, HELLO, message, open_session
from serving import Serve

from ctx.server.app import Services
from ctx.server.mcp_sessions import Sessions
from ctx.server.policy import PackPolicy, ServerSettings

KEYED = ServerSettings(packs=(PackPolicy("vault", keys=("vault-key",)),))


def _opened(client: httpx.Client, **headers: str) -> dict[str, str]:
    """A session whose client said nothing after its `initialize`."""
    reply = client.post("/mcp", json=message("initialize", HELLO), headers={**ACCEPT, **headers})
    assert reply.status_code == 200, reply.text
    return {**ACCEPT, **headers, "mcp-session-id": reply.headers["mcp-session-id"]}


def _lives(client: httpx.Client, session: dict[str, str]) -> bool:
    status = client.post("/mcp", json=message("ping"), headers=session).status_code
    assert status in (200, 404)
    return status == 200


def test_a_new_client_gets_in_and_the_session_longest_idle_gives_way(
    serve: Serve, mcp: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctx.server.mcp_sessions.MAX_SESSIONS", 3)
    client = serve(mcp).client
    first, second, third = (open_session(client) for _ in range(3))
    assert _lives(client, first)  # now the second is the one longest idle
    fourth = open_session(client)
    assert [_lives(client, session) for session in (second, first, third, fourth)] == [
        False,
        True,
        True,
        True,
    ]


def test_sessions_that_were_never_used_give_way_before_those_that_were(
    serve: Serve, mcp: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctx.server.mcp_sessions.MAX_SESSIONS", 4)
    client = serve(mcp).client
    session = open_session(client)
    for _ in range(30):
        latest = _opened(client)
    assert _lives(client, session)
    assert _lives(client, latest)


def test_a_crowd_of_one_clients_sessions_ends_none_of_anothers(
    serve: Serve, mcp: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctx.server.mcp_sessions.PEER_SESSIONS", 2)
    client = serve(mcp, KEYED).client
    mine = _opened(client, authorization="Bearer vault-key")
    for _ in range(20):
        _opened(client)
    assert _lives(client, mine)


def test_a_session_that_is_never_used_ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctx.server.mcp_sessions.UNUSED_S", 0.01)

    async def ended() -> list[str]:
        names: list[str] = []
        over = asyncio.Event()

        async def end(id: str) -> None:
            names.append(id)
            over.set()

        sessions = Sessions(end, {"used", "unused"})
        sessions.opened("used", "peer")
        async with sessions.use("used"):
            sessions.opened("unused", "peer")
            await asyncio.wait_for(over.wait(), 60)
        return names

    assert asyncio.run(ended()) == ["unused"]


def test_ended_sessions_are_forgotten(serve: Serve, mcp: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctx.server.mcp_sessions.MAX_SESSIONS", 2)
    client = serve(mcp).client
    session_kept = open_session(client)
    for _ in range(5):
        session = open_session(client)
        assert client.delete("/mcp", headers=session).status_code == 200
        assert not _lives(client, session)
    assert _lives(client, session_kept)


def test_two_reasons_at_once_end_a_session_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctx.server.mcp_sessions.UNUSED_S", 0.0)
    monkeypatch.setattr("ctx.server.mcp_sessions.PEER_SESSIONS", 1)

    async def ended() -> tuple[list[str], list[dict[str, object]]]:
        faults: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, fault: faults.append(fault))
        names: list[str] = []

        async def end(id: str) -> None:
            names.append(id)

        sessions = Sessions(end, {"unused"})
        sessions.opened("unused", "peer")
        sessions._drop_unused("unused")  # its time is up, and before the task of that runs, a sibling comes
        await sessions.make_room("peer")
        for _ in range(3):
            await asyncio.sleep(0)
        gc.collect()
        return names, faults

    assert asyncio.run(ended()) == (["unused"], [])


def test_what_a_client_says_of_itself_is_bounded_since_its_session_keeps_it(
    serve: Serve, mcp: Services
) -> None:
    client = serve(mcp).client
    vast = {**HELLO, "capabilities": {"experimental": {str(number): {} for number in range(10_000)}}}
    session = open_session(client)
    for headers in (ACCEPT, session):
        refused = client.post("/mcp", json=message("initialize", vast), headers=headers).json()
        assert refused["error"] == {
            "code": -32602,
            "message": "Invalid params: a handshake has at most 16,384 bytes",
        }
    assert _lives(client, session)


def test_a_handshake_with_a_number_that_is_none_is_one_like_any_other(
    serve: Serve, mcp: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK reads NaN; by a parser that does not, such sessions were without number and bounds."""
    monkeypatch.setattr("ctx.server.mcp_sessions.MAX_SESSIONS", 3)
    client = serve(mcp).client

    def opened(name: str) -> httpx.Response:
        about = {**HELLO, "clientInfo": {"name": name, "version": "1"}}
        body = json.dumps(
            message("initialize", {**about, "capabilities": {"experimental": {"x": {"y": math.nan}}}})
        )
        return client.post("/mcp", content=body, headers=ACCEPT)

    assert opened("a" * 20_000).json()["error"]["code"] == -32602
    replies = [opened("t") for _ in range(5)]
    sessions = [{**ACCEPT, "mcp-session-id": reply.headers["mcp-session-id"]} for reply in replies]
    assert [_lives(client, session) for session in sessions] == [False, False, True, True, True]


def test_a_client_with_a_large_picture_of_itself_gets_in(serve: Serve, mcp: Services) -> None:
    client = serve(mcp).client
    picture = {"src": "data:image/png;base64," + "A" * 60_000, "mimeType": "image/png"}
    about = {**HELLO, "clientInfo": {"name": "t", "version": "1", "icons": [picture], "born": 10**40}}
    reply = client.post("/mcp", json=message("initialize", about), headers=ACCEPT)
    assert reply.status_code == 200
    assert _lives(client, {**ACCEPT, "mcp-session-id": reply.headers["mcp-session-id"]})


@pytest.mark.parametrize("last", ["0", "no-such-event", "9" * 30_000])
def test_a_stream_that_is_taken_up_again_begins_anew(serve: Serve, mcp: Services, last: str) -> None:
    client = serve(mcp).client
    session = open_session(client)
    with client.stream("GET", "/mcp", headers={**session, "last-event-id": last}) as stream:
        assert stream.status_code == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert _lives(client, session)
