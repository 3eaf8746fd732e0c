"""Scripts written for Context Harness v0.8 run unmodified: four of our own, each using what the published
ones use.

Embeddings are off: where a script asks for hybrid search it is answered by keyword.
"""

import base64
import hashlib
import hmac
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from kit import workspace
from script_kit import configured
from web_api import Asked, Reply, serving_api

from ctx.errors import BadRequest
from ctx.models import JSON, Caller

SCRIPTS = Path(__file__).parent / "compat"
CALLER = Caller("cli")


class Remote:
    """A ticket system and a code host: what they were sent, and what they answer."""

    def __init__(self) -> None:
        self.sent: list[Asked] = []
        self.status = 201
        self.remaining = "100"
        self.at = ""

    def issues(self, page: int) -> JSON:
        def issue(number: int, **more: JSON) -> JSON:
            return {
                "number": number,
                "title": f"Lift {number}",
                "body": None if number == 3 else f"The lift {number} is stuck",
                "state": "open",
                "html_url": f"https://h.example/{number}",
                "user": {"login": "ann"},
                "labels": [{"name": "bug"}, {"name": "lift"}],
                "created_at": "2026-01-01T00:00:00Z",
                "updated_at": "2026-01-02T00:00:00Z",
                **more,
            }

        return {1: [issue(1), issue(2, pull_request={"url": "x"})], 2: [issue(3), issue(4)]}.get(page, [])


@pytest.fixture
def remote() -> Iterator[Remote]:
    upstream = Remote()

    def answer(asked: Asked) -> Reply:
        upstream.sent.append(asked)
        limit = {"Content-Type": "application/json", "X-RateLimit-Remaining": upstream.remaining}
        if not asked.content:
            return Reply(upstream.issues(int(asked.query["page"])), 200, limit)
        return Reply({"key": "OPS-7", "self": "https://t.example/7"}, upstream.status, limit)

    with serving_api() as api:
        api.answer = answer
        upstream.at = api.host
        yield upstream


def table(kind: str, name: str, settings: str = "") -> str:
    return f'[{kind}.script.{name}]\npath = "{SCRIPTS}/{name}.lua"\n{settings}\n'


def test_echo_greets_counts_and_finds(tmp_path: Path) -> None:
    with workspace(configured(tmp_path, table("tools", "echo", 'greeting = "Hello"'))) as space:
        space.refresh([])
        _ = space.scripts

        def echo(**arguments: JSON) -> JSON:
            return space.toolbox.call("echo", arguments, CALLER)

        before = datetime.now(UTC)
        reply = echo(message="release token")
        after = datetime.now(UTC)
        assert reply["echo"] == "Hello: release token"
        assert reply["params"] == {"message": "release token", "search": False, "limit": 3}
        assert reply["source_count"] == 1
        assert reply["today"] in {moment.strftime("%Y-%m-%d") for moment in (before, after)}
        assert reply["year"] in {before.year, after.year}
        assert int(before.timestamp()) <= reply["stamp"] <= after.timestamp()
        match = echo(message="release token", search=True)
        assert match["result_count"] == 1
        assert match["search_results"][0]["title"] == "Release guide"
        assert 0 <= float(match["search_results"][0]["score"]) <= 1
        assert echo(message="zebra", search=True)["result_count"] == 0
        for arguments_refused in ({}, {"message": "x", "limit": "3"}, {"message": 7}):
            with pytest.raises(BadRequest):
                echo(**arguments_refused)


def test_a_ticket_is_made_from_related_documents(tmp_path: Path, remote: Remote) -> None:
    settings = (
        f'url = "http://{remote.at}"\nemail = "a@b.example"\napi_token = "t0ken"\nallow_hosts = '
        f'["{remote.at}"]'
    )
    with workspace(configured(tmp_path, table("tools", "create-ticket", settings))) as space:
        space.refresh([])
        _ = space.scripts
        call = {"title": "Rotate the release token", "description": "It is old.", "labels": ["ops"]}
        ticket = space.toolbox.call("create-ticket", call, CALLER)
        assert ticket == {
            "success": True,
            "ticket_key": "OPS-7",
            "url": f"http://{remote.at}/browse/OPS-7",
            "self": "https://t.example/7",
        }
        (asked,) = remote.sent
        assert asked.path == "/rest/api/3/issue"
        assert asked.headers["authorization"] == "Basic " + base64.b64encode(b"a@b.example:t0ken").decode()
        assert (
            asked.headers["x-signature"]
            == hmac.digest(b"t0ken", b"Rotate the release token", hashlib.sha256).hex()
        )
        assert asked.json["fields"]["priority"] == {"name": "Medium"}
        assert asked.json["fields"]["labels"] == ["ops"]
        assert "Release guide" in asked.json["fields"]["description"]
        remote.status = 400
        refused = space.toolbox.call("create-ticket", call, CALLER)
        assert (refused["success"], refused["error"]) == (False, "HTTP 400")
        with pytest.raises(BadRequest, match="priority"):
            space.toolbox.call("create-ticket", {**call, "priority": "Urgent"}, CALLER)


@pytest.mark.parametrize("table_form", [False, True])
def test_issues_are_indexed_page_by_page(tmp_path: Path, remote: Remote, table_form: bool) -> None:
    settings = (
        f'api = "http://{remote.at}"\nowner = "acme"\nrepo = "lifts"\ntoken = "k"\nallow_hosts = '
        f'["{remote.at}"]\n'
    )
    settings += f"table_form = {str(table_form).lower()}"
    with workspace(configured(tmp_path, table("connectors", "issues", settings))) as space:
        (report,) = space.refresh(["script:issues"])
        assert (report["ok"], report["added"], report["failed"]) == (True, 3, 0)
        stored = {
            s.document.source_id: s.document
            for s in space.catalog.export()
            if s.document.source == "script:issues"
        }
        assert set(stored) == {"1", "3", "4"}
        assert (stored["1"].title, stored["1"].author) == ("#1 Lift 1", "ann")
        assert stored["1"].metadata == {"state": "open", "labels": "bug, lift"}
        assert [asked.query["page"] for asked in remote.sent] == ["1", "2", "3"]
        assert remote.sent[0].headers["authorization"] == "Bearer k"
        assert space.refresh(["script:issues"])[0]["unchanged"] == 3
        remote.remaining = "4"
        remote.sent.clear()
        space.refresh(["script:issues"])
        assert len(remote.sent) == 1  # the script stops early, and says that this is all


def test_a_writer_is_given_what_is_known(tmp_path: Path) -> None:
    with workspace(configured(tmp_path, table("agents", "writer", 'team = "Platform"'))) as space:
        space.refresh([])
        _ = space.scripts
        prompt = space.agents.prompt("writer", {"decision": "rotate the release token"}, CALLER)
        assert prompt.system == "You write records for Platform.\n# Record\n\n## Context\n\n## Decision\n"
        assert prompt.tools == ("search", "get")
        (message,) = prompt.messages
        assert message["role"] == "assistant"
        assert message["content"].startswith("1. [1.00] Release guide (filesystem:docs)")
        with pytest.raises(BadRequest):
            space.agents.prompt("writer", {}, CALLER)
