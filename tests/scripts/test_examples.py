"""The example scripts that ship with ctx run."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import workspace
from script_kit import configured
from web_api import Asked, Reply, serving_api

from ctx.models import JSON, Caller

EXAMPLES = Path(__file__).parents[2] / "extensions" / "examples"
CALLER = Caller("cli")


def pages(host: str) -> dict[str, JSON]:
    """Two pages of a JSON feed."""
    return {
        "/feed.json": {
            "title": "Releases",
            "authors": [{"name": "Ann"}],
            "next_url": f"http://{host}/page2.json",
            "items": [
                {
                    "id": "1",
                    "title": "Faster lifts",
                    "content_text": "The lifts are faster.",
                    "date_published": "2026-01-01",
                },
                {
                    "id": "2",
                    "content_html": "<p>Quiet &amp; safe <b>doors</b>.</p><script>bad()</script>",
                    "tags": ["doors"],
                },
            ],
        },
        "/page2.json": {
            "items": [
                {
                    "id": 3,
                    "url": "https://e.example/3",
                    "summary": "Third",
                    "authors": [{"name": "Bo"}],
                }
            ]
        },
    }


@pytest.fixture
def feed() -> Iterator[str]:
    with serving_api() as api:

        def answer(asked: Asked) -> Reply:
            page = pages(api.host).get(asked.path)
            authorized = asked.headers.get("authorization") == "Bearer t0ken"
            return Reply(page, 200) if page and authorized else Reply({}, 403)

        api.answer = answer
        yield api.host


def test_the_connector_indexes_a_feed(tmp_path: Path, feed: str) -> None:
    table = (
        f'[connectors.script.blog]\npath = "{EXAMPLES}/feed.lua"\nurl = '
        f'"http://{feed}/feed.json"\nallow_hosts = ["{feed}"]\n'
    )
    with workspace(configured(tmp_path, table + 'token = "t0ken"')) as space:
        (report,) = space.refresh(["script:blog"])
        assert (report["ok"], report["added"], report["failed"]) == (True, 3, 0)
        stored = {
            s.document.source_id: s.document
            for s in space.catalog.export()
            if s.document.source == "script:blog"
        }
        assert (stored["1"].title, stored["1"].author) == ("Faster lifts", "Ann")
        assert "Quiet & safe doors." in stored["2"].body
        assert "bad()" not in stored["2"].body
        assert stored["2"].metadata["tags"] == ["doors"]
        assert (stored["3"].author, stored["3"].source_url) == ("Bo", "https://e.example/3")
        assert space.refresh(["script:blog"])[0]["unchanged"] == 3
    with workspace(configured(tmp_path, table + 'token = "wrong"')) as space:
        (report,) = space.refresh(["script:blog"])
        assert (report["ok"], report["deleted"]) == (False, 0)
        assert "answered 403" in str(report["note"])


def test_the_agent_introduces_a_subject(tmp_path: Path) -> None:
    config = configured(
        tmp_path, f'[agents.script.onboarding]\npath = "{EXAMPLES}/onboarding.lua"\nteam = "Platform"'
    )
    with workspace(config) as space:
        space.refresh([])
        _ = space.scripts
        prompt = space.agents.prompt(
            "onboarding", {"subject": "release token", "role": "an engineer"}, CALLER
        )
        assert "1. Release guide" in prompt.system
        assert "in the Platform team" in prompt.system
        assert prompt.tools == ("search", "get", "sources")
        assert prompt.messages[0]["content"] == "Introduce me to release token."
        assert "Nothing is indexed" in space.agents.prompt("onboarding", {"subject": "zebras"}, CALLER).system
