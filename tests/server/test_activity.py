"""The log of what clients searched and read."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import ctx, project, workspace
from serving import Serve, failure, whole

from ctx.memory.activity import Activity, file_activity
from ctx.models import Caller
from ctx.server.app import services
from ctx.server.policy import ServerSettings
from ctx.workspace import Workspace

AGENT = Caller("mcp", client="claude-code")
EDITOR = Caller("mcp", client="cursor")
NOTES = {"auth.md": "# Signing in\n\nTokens rotate monthly.\n", "ship.md": "# Releasing\n\nTag it.\n"}
KEY = "ghp_" + "a1B2" * 9
HOSTILE = {"origin": "http://localhost:3000"}


def log_of(space: Workspace) -> list[tuple[str, str, str, int]]:
    """(client, tool, query, hits) of each call, oldest first, once all are written."""
    assert space.activity is not None
    space.activity.close()
    return [(row.client, row.tool, row.query, row.hits) for row in reversed(space.activity.entries())]


def test_searches_and_reads_are_logged_with_what_was_opened(tmp_path: Path) -> None:
    with workspace(project(tmp_path, NOTES)) as space:
        space.refresh([])
        call = space.toolbox.call
        call("search", {"query": "token rotation"}, AGENT)
        call("search", {"query": "wombats"}, EDITOR)
        call("get", {"path": "auth.md", "format": "markdown"}, AGENT)
        call("symbol", {"name": "wombats"}, AGENT)
        call("sources", {}, AGENT)
        call("search", {"query": "from a script"}, Caller("script"))
        assert log_of(space) == [
            ("claude-code", "search", "token rotation", 1),
            ("cursor", "search", "wombats", 0),
            ("claude-code", "get", "auth.md", 1),
            ("claude-code", "symbol", "wombats", 0),
        ]
        assert space.activity is not None
        _, read, weak, search = space.activity.entries()
        assert search.opened == ("auth.md",)
        assert [search.weak, weak.weak, read.weak] == [False, True, False]
        assert search.tokens > read.tokens > 0
        assert space.activity.clear() == 4
        assert space.activity.entries() == []


def test_secrets_are_masked_and_an_unfinished_query_gives_way_to_the_finished_one(tmp_path: Path) -> None:
    page = Caller("rest", client="page")
    with workspace(project(tmp_path, NOTES)) as space:
        space.refresh([])
        for query in ("tok", "token", "token rot"):
            space.toolbox.call("search", {"query": query, "prefix": True}, page)
        space.toolbox.call("search", {"query": f"who uses {KEY}"}, page)
        queries = [query for _, _, query, _ in log_of(space)]
    assert queries == ["token rot", "who uses [redacted:github_token]"]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.cluster)])
def activity(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Activity]:
    if request.param == "sqlite":
        yield file_activity(lambda: str(tmp_path / "memory.db"))
        return
    from ctx.cluster.memory_db import shared_activity
    from ctx.cluster.postgres import Database

    with Database(request.getfixturevalue("database_url")) as database:
        yield shared_activity(database)


def test_only_the_latest_calls_are_kept(activity: Activity, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctx.memory.activity.KEPT", 5)
    for number in range(12):
        activity.note("get", {"path": f"{number}.md"}, AGENT, {}, {})
    activity.close()
    assert [entry.query for entry in activity.entries()] == [f"{number}.md" for number in range(11, 6, -1)]
    activity.close()


def test_one_line_turns_it_off(tmp_path: Path) -> None:
    off = '[connectors.filesystem.docs]\nroot = "./docs"\n[embedding]\nprovider = "disabled"\n[server]\nactivity = false\n'
    with workspace(project(tmp_path, NOTES, off)) as space:
        space.refresh([])
        space.toolbox.call("search", {"query": "token"}, AGENT)
        assert space.activity is None
    assert "activity is false" in ctx("log", cwd=tmp_path).stderr


def test_the_log_is_for_the_page_and_never_for_other_origins(serve: Serve, tmp_path: Path) -> None:
    with workspace(project(tmp_path, NOTES)) as space:
        space.refresh([])
        open_to_all = ServerSettings(allowed_origins=("http://localhost:3000",))
        served = serve(whole(space), open_to_all)
        served.client.post("/tools/search", json={"query": "token"}, headers={"user-agent": "curl/8.5"})
        assert log_of(space) == [("curl", "search", "token", 1)]
        (entry,) = served.client.get("/log").json()["entries"]
        assert (entry["interface"], entry["paths"]) == ("rest", ["auth.md"])
        for headers in (HOSTILE, {"sec-fetch-site": "cross-site", "sec-fetch-dest": "image"}):
            assert failure(served.client.get("/log", headers=headers)) == (403, "origin_not_allowed")
            assert failure(served.client.delete("/log", headers=headers)) == (403, "origin_not_allowed")
        closed = serve(whole(space), ServerSettings(api_keys=("key",)))
        assert failure(closed.client.get("/log")) == (401, "unauthorized")
        assert closed.client.delete("/log", headers={"authorization": "Bearer key"}).json() == {"cleared": 1}
        assert served.client.get("/log").json() == {"entries": []}


def test_a_client_of_mcp_is_named_by_itself(serve: Serve, tmp_path: Path) -> None:
    with workspace(project(tmp_path, NOTES)) as space:
        space.refresh([])
        served = serve(services(space))
        call = {"name": "search", "arguments": {"query": "token"}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        reply = served.client.post("/mcp", json=message, headers={"user-agent": "codex_cli/0.9 (linux)"})
        assert "auth.md" in reply.text
        assert log_of(space) == [("codex_cli", "search", "token", 1)]


def test_the_command_line_logs_its_own_calls_and_shows_all(tmp_path: Path) -> None:
    project(tmp_path, NOTES)
    assert ctx("index", cwd=tmp_path).returncode == 0
    assert ctx("search", "token rotation", cwd=tmp_path).returncode == 0
    assert ctx("get", "auth.md", cwd=tmp_path).returncode == 0
    (read, search) = json.loads(ctx("log", "--json", cwd=tmp_path).stdout)["entries"]
    assert (search["interface"], search["client"], search["opened"]) == ("cli", "ctx", ["auth.md"])
    assert read["tool"] == "get"
    assert "token rotation" in ctx("log", "-n", "2", cwd=tmp_path).stdout
    assert ctx("log", "--clear", cwd=tmp_path).stdout == "Deleted 2 entries.\n"
    assert ctx("log", cwd=tmp_path).stdout == "No calls yet.\n"
