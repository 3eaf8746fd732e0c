"""The connectors that ship for Slack and Notion exports and Obsidian vaults."""

import json
from pathlib import Path

from ready_kit import source

from ctx.models import JSON


def write(folder: Path, files: dict[str, str | JSON]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


# -- Slack: slack.com/help/articles/220556107, api.slack.com/reference/surfaces/formatting -------------------


USERS: list[JSON] = [
    {"id": "U1", "name": "ann", "profile": {"display_name": "Ann", "real_name": "Ann A."}},
    {"id": "U2", "name": "bo", "profile": {"display_name": "", "real_name": "Bo B."}},
]
MESSAGES: list[JSON] = [
    {
        "type": "message",
        "subtype": "channel_join",
        "user": "U1",
        "ts": "1767261500.000100",
        "text": "joined",
    },
    {
        "type": "message",
        "user": "U1",
        "ts": "1767261600.000100",
        "thread_ts": "1767261600.000100",
        "text": "<@U2> the lift &amp; the door: <https://x.example/a?b=1|the plan> in <#C9|lifts> <!here>",
    },
    {
        "type": "message",
        "user": "U9",
        "username": "Bot",
        "ts": "1767261700.000100",
        "text": "",
        "files": [{"title": "plan.pdf"}],
    },
    {
        "type": "message",
        "user": "U2",
        "ts": "1767261800.000100",
        "thread_ts": "1767261600.000100",
        "text": "on my way",
    },
    {
        "type": "message",
        "username": "CI",
        "ts": "1767261900.000100",
        "text": "",
        "blocks": [
            {"type": "header", "text": {"type": "plain_text", "text": "Build failed"}},
            {"type": "section", "fields": [{"type": "mrkdwn", "text": "of <@U2>"}, {"text": "in 3 min"}]},
            {"type": "rich_text", "elements": [{"elements": [{"type": "text", "text": "see the log"}]}]},
        ],
    },
]


def test_a_slack_export_is_a_document_a_channel_and_day(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "export",
        {
            "users.json": USERS,
            "channels.json": [{"id": "C1", "name": "general"}, {"id": "C2", "name": "random"}],
            "general/2026-01-01.json": MESSAGES,
            "general/2026-01-02.json": [],
            "random/2026-01-01.json": [{"ts": "1767261600.0001", "user": "U1", "text": "hi"}],
            "random/2026-01-03.json": "{ cut short",
        },
    )
    settings = [f'folder = "{folder}/"', f'fs = ["{folder}"]', 'workspace = "acme"']
    with source(tmp_path, "slack-export", settings) as origin:
        report = origin.index()
        assert (report["ok"], report["added"], report["failed"]) == (True, 2, 1)
        documents = origin.documents()
        day = documents["general/2026-01-01"]
        assert day.title == "#general, 2026-01-01"
        assert "@Bo B. the lift & the door: [the plan](https://x.example/a?b=1) in #lifts @here" in day.body
        assert "joined" not in day.body
        assert "**CI** 10:05\nBuild failed\nof @Bo B. in 3 min\nsee the log" in day.body
        assert "> **Bo B.** 10:03\n> on my way" in day.body
        assert day.body.index("on my way") < day.body.index("[file: plan.pdf]")
        assert day.source_url == "https://acme.slack.com/archives/C1/p1767261500000100"
        assert origin.index()["unchanged"] == 2
    with source(tmp_path, "slack-export", [*settings, 'channels = ["random"]']) as origin:
        assert origin.index()["deleted"] == 1


# -- Notion: notion.com/help/export-your-content -------------------------------------------------------------

ID = "0123456789abcdef0123456789abcdef"
OTHER = "fedcba9876543210fedcba9876543210"


def test_a_notion_export_has_titles_properties_and_links_without_their_numbers(tmp_path: Path) -> None:
    page = (
        "# Stuck lift\n\nStatus: Open\nOwner: Ann\n\n"
        f"See [the plan](Stuck%20lift%20{ID}/Plan%20{OTHER}.md) and [the site](https://x.example/a.md).\n"
    )
    folder = write(
        tmp_path / "export",
        {
            f"Handbook {ID}/Stuck lift {OTHER}.md": page,
            f"Handbook {ID}.md": "# Handbook\n\nNote: this is a sentence.\nAnd it goes on.\n",
            f"Lifts {ID}.csv": "Name,Status\nStuck lift,Open\n",
            f"Lifts {ID}_all.csv": "Name,Status\nStuck lift,Open\n",
            "empty.md": "# Empty\n",
            "picture.png": "no text",
        },
    )
    with source(tmp_path, "notion-export", [f'folder = "{folder}"', f'fs = ["{folder}"]']) as origin:
        report = origin.index()
        assert (report["ok"], report["added"], report["failed"]) == (True, 4, 0)
        documents = origin.documents()
        row = documents[f"Handbook {ID}/Stuck lift {OTHER}.md"]
        assert row.title == "Stuck lift"
        assert row.metadata["properties"] == {"Status": "Open", "Owner": "Ann"}
        assert row.metadata["within"] == ["Handbook"]
        assert row.source_url == f"https://www.notion.so/{OTHER}"
        assert "See the plan and [the site](https://x.example/a.md)" in row.body
        handbook = documents[f"Handbook {ID}.md"]
        assert "properties" not in handbook.metadata or handbook.metadata["properties"] == {}
        assert "Note: this is a sentence." in handbook.body
        assert documents[f"Lifts {ID}.csv"].title == "Lifts"


# -- Obsidian: obsidian.md/help (internal links, tags, properties, embeds, Obsidian URI) ---------------------

NOTE = """---
title: The stuck lift
tags: [lifts, "urgent work"]
aliases:
  - Elevator
  - Lift 1
created: 2026-01-01
rating: 5
---
It stops, see [[Plans/Plan B|the plan]], [[Doors#Oil]] and ![[picture.png|300]] #repairs/2026 %% hidden %%

Not a #1 tag, nor `#code` nor [[`so`]].

```sh
#!/bin/sh
echo "#nope [[nope]]"
```
A [relative](Other%20note.md) link.
"""


def test_a_vault_has_its_tags_links_and_front_matter(tmp_path: Path) -> None:
    vault = write(
        tmp_path / "My Notes",
        {
            "Lifts/Stuck lift.md": NOTE,
            "Daily.md": "Only words.",
            "Blank.md": "",
            ".obsidian/app.json": "{}",
            ".trash/Gone.md": "gone",
            "templates/T.md": "{{title}}",
            "Odd.md": "---\ntags: a b\nbroken\n: x\n---\nText with [[",
        },
    )
    settings = [f'vault = "{vault}"', f'fs = ["{vault}"]', 'exclude = ["templates"]']
    with source(tmp_path, "obsidian", settings) as origin:
        report = origin.index()
        assert (report["ok"], report["added"], report["failed"]) == (True, 4, 0)
        documents = origin.documents()
        assert sorted(documents) == ["Blank.md", "Daily.md", "Lifts/Stuck lift.md", "Odd.md"]
        note = documents["Lifts/Stuck lift.md"]
        assert note.title == "The stuck lift"
        assert note.metadata["tags"] == ["lifts", "urgent work", "repairs/2026"]
        assert note.metadata["links"] == ["Plans/Plan B", "Doors", "picture.png", "Other note"]
        assert note.metadata["aliases"] == ["Elevator", "Lift 1"]
        assert note.metadata["properties"] == {
            "title": "The stuck lift",
            "created": "2026-01-01",
            "rating": "5",
        }
        assert "see the plan, Doors > Oil" in note.body
        assert "hidden" not in note.body
        assert note.body.endswith("Also called: Elevator, Lift 1")
        assert note.source_url == "obsidian://open?vault=My%20Notes&file=Lifts%2FStuck%20lift"
        assert documents["Odd.md"].metadata["tags"] == ["a", "b"]
        assert documents["Daily.md"].title == "Daily"
        (vault / "Daily.md").unlink()
        report = origin.index()
        assert (report["unchanged"], report["deleted"]) == (3, 1)
