"""Imports of memories from other products."""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from memory_kit import WordEmbedder

from ctx.errors import BadRequest
from ctx.memory import imports
from ctx.memory.bank import MemoryBank
from ctx.memory.imports import import_from, piped_source, read_source
from ctx.memory.imports.replies import Source
from ctx.memory.store import MemoryStore
from ctx.models import JSON

MEM0 = {
    "count": 2,
    "results": [
        {
            "id": "f4cbdb08-7062-4f3e-8eb2-9f5c80dfe64c",
            "memory": "Dev works at TechCorp as a senior engineer",
            "user_id": "dev",
            "agent_id": None,
            "run_id": "r1",
            "hash": "a1",
            "metadata": {"type": "professional"},
            "categories": ["professional_details"],
            "created_at": "2025-02-26T20:07:09-08:00",
            "updated_at": "2025-03-01T20:07:09-08:00",
        },
        {
            "id": "2",
            "memory": "Dev prefers morning meetings",
            "user_id": "dev",
            "created_at": "2025-02-26T20:07:09Z",
        },
        {"id": "3", "user_id": "dev"},
    ],
}
HINDSIGHT_LIST = {
    "items": [
        {
            "id": "6f1c2b9e-0d55-4b1b-9f0e-0a6f5b8a7c11",
            "text": "Alice visited the museum",
            "context": "culture",
            "date": "2026-10-07T09:00:00Z",
            "fact_type": "experience",
            "occurred_start": "2026-10-06T00:00:00Z",
            "occurred_end": "2026-10-06T23:59:59Z",
            "entities": "Alice",
            "tags": ["art"],
        }
    ],
    "total": 3,
    "limit": 1,
    "offset": 0,
}
NOTE = """---
title: Coffee Brewing Methods
type: note
tags: [coffee, brewing]
permalink: coffee-brewing-methods
modified: 2026-03-04T05:06:07+00:00
---
# Coffee Brewing Methods

Notes from a year
of mornings.

## Observations
- [method] Pour over provides more clarity than French press
- [technique] Water at 95 degrees extracts best #water (measured twice)
- [ ] buy a kettle
- [a link](https://example.org) is no observation

```
- [code] nor is this
```

## Relations
- relates_to [[Coffee Bean Origins]]
- [[Tea]]
"""


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[MemoryBank]:
    with MemoryStore(str(tmp_path / "ctx.db"), WordEmbedder()) as store:
        yield store.bank("alice")


def _piped(reply: JSON, **fields: str) -> Source:
    return Source(None, json.dumps(reply).encode(), **fields)


def _texts(bank: MemoryBank, **options: bool) -> list[str]:
    return sorted(record["text"] for record in bank.browse(**options)["items"])  # type: ignore[arg-type]


def test_an_export_of_mem0_is_imported_once_and_what_is_no_memory_is_named(bank: MemoryBank) -> None:
    counts = import_from(bank, "mem0", _piped(MEM0))
    assert (counts["imported"], counts["skipped"]) == (2, 0)
    assert counts["unread"] == [{"where": "entry 3", "reason": "the field 'text' is missing"}]
    [record] = [item for item in bank.browse()["items"] if "TechCorp" in item["text"]]
    assert (record["tags"], record["session"]) == (["professional_details"], "r1")
    assert (record["said"], record["metadata"]) == ("2025-03-02T04:07:09Z", {"type": "professional"})
    repeat = import_from(bank, "mem0", Source(None, json.dumps(MEM0["results"]).encode()))
    assert (repeat["imported"], repeat["skipped"]) == (0, 2)
    bank.delete(record["id"])
    assert import_from(bank, "mem0", _piped(MEM0))["imported"] == 0
    assert bank.count() == 1


def test_an_import_of_several_users_needs_a_choice(bank: MemoryBank) -> None:
    both = [
        {"id": "1", "memory": "I live in Rome", "user_id": "ann"},
        {"id": "2", "memory": "I live in Bonn", "user_id": "ben"},
    ]
    with pytest.raises(BadRequest, match="ann, ben"):
        import_from(bank, "mem0", _piped(both))
    assert import_from(bank, "mem0", _piped(both, user="ben"))["imported"] == 1
    assert _texts(bank) == ["I live in Bonn"]


def test_hindsights_list_is_imported_with_its_times_and_pages_that_lack_are_named(bank: MemoryBank) -> None:
    counts = import_from(bank, "hindsight", _piped(HINDSIGHT_LIST))
    assert counts["imported"] == 1
    assert [entry["where"] for entry in counts["unread"]] == ["the end"]
    [record] = bank.browse()["items"]
    assert (record["type"], record["context"], record["tags"]) == ("experience", "culture", ["art"])
    assert (record["said"], record["happened"]) == ("2026-10-07T09:00:00Z", "2026-10-06")
    assert bank.get("6f1c2b9e-0d55-4b1b-9f0e-0a6f5b8a7c11") is not None


def test_a_broken_line_is_named_and_the_others_are_imported(bank: MemoryBank) -> None:
    lines = [
        '{"id": "1", "text": "Ada likes tea"}',
        '{"id": "2", "te',
        '{"id": "3", "text": 5}',
        '{"id": "4", "text": "Bob likes cake"}',
    ]
    counts = import_from(bank, "hindsight", Source(None, "\n".join(lines).encode()))
    assert (counts["imported"], [entry["where"] for entry in counts["unread"]]) == (
        2,
        ["line 2", "line 3, entry 1"],
    )
    with pytest.raises(BadRequest, match="not JSON"):
        import_from(bank, "hindsight", Source(None, b"nothing of the kind"))


def _recall_file(path: Path, rows: list[tuple[JSON, ...]]) -> Source:
    connection = sqlite3.connect(path)
    connection.execute(
        "CREATE TABLE memories (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE NOT NULL, value TEXT "
        "NOT NULL,"
        " type TEXT NOT NULL, project_id TEXT, timestamp INTEGER NOT NULL, is_active BOOLEAN DEFAULT 1, "
        "superseded_by TEXT)"
    )
    connection.executemany(
        "INSERT INTO memories (key, value, type, project_id, timestamp, is_active, superseded_by) VALUES "
        "(?,?,?,?,?,?,?)",
        rows,
    )
    connection.commit()
    connection.close()
    return read_source(str(path))


def test_claude_recalls_own_file_is_read_with_what_replaced_what(bank: MemoryBank, tmp_path: Path) -> None:
    ms = 1_780_000_000_000
    source = _recall_file(
        tmp_path / "claude recall?.db",
        [
            (
                "new",
                json.dumps({"title": "Editor", "content": {"value": "Helix"}}),
                "preference",
                "/w/app",
                ms + 9,
                1,
                None,
            ),
            ("old", json.dumps({"content": "Vim is the editor"}), "preference", "/w/app", ms, 0, "new"),
            ("plain", "kept as plain text", "project-knowledge", None, ms, 1, None),
            ("empty", json.dumps({"confidence": 1}), "failure", None, ms, 1, None),
        ],
    )
    before = (tmp_path / "claude recall?.db").read_bytes()
    counts = import_from(bank, "claude-recall", source)
    assert (counts["imported"], [entry["where"] for entry in counts["unread"]]) == (3, ["row 4"])
    assert _texts(bank) == ["Helix", "kept as plain text"]
    assert _texts(bank, include_superseded=True) == ["Helix", "Vim is the editor", "kept as plain text"]
    record = bank.get("new")
    assert record is not None
    assert (record["context"], record["type"], record["timestamp"]) == ("app", "preference", ms + 9)
    assert import_from(bank, "claude-recall", source)["skipped"] == 3
    assert (tmp_path / "claude recall?.db").read_bytes() == before


def test_a_folder_of_basic_memory_becomes_observations_relations_and_paragraphs(
    bank: MemoryBank, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    (notes / "sub").mkdir(parents=True)
    (notes / "sub" / "coffee.md").write_text(NOTE)
    (notes / "plain.md").write_text("No front matter, and one line.\n")
    (notes / "latin.md").write_bytes(b"caf\xe9")
    counts = import_from(bank, "basic-memory", read_source(str(notes)))
    assert counts["unread"] == [{"where": "latin.md", "reason": "it is not UTF-8"}]
    assert _texts(bank) == [
        "- [ ] buy a kettle\n- [a link](https://example.org) is no observation",
        "Coffee Brewing Methods relates to Coffee Bean Origins",
        "Coffee Brewing Methods relates to Tea",
        "No front matter, and one line.",
        "Notes from a year\nof mornings.",
        "Pour over provides more clarity than French press",
        "Water at 95 degrees extracts best",
        "```\n- [code] nor is this\n```",
    ]
    [water] = [item for item in bank.browse()["items"] if "Water" in item["text"]]
    assert (water["type"], water["tags"]) == ("technique", ["coffee", "brewing", "water"])
    assert (water["contexts"], water["document_id"]) == (["Coffee Brewing Methods"], "coffee-brewing-methods")
    assert water["metadata"] == {"note": "sub/coffee.md", "context": "measured twice"}
    assert water["said"] == "2026-03-04T05:06:07Z"
    assert import_from(bank, "basic-memory", read_source(str(notes)))["imported"] == 0
    (notes / "sub" / "coffee.md").write_text(NOTE + "- [method] Moka pots are loud\n")
    assert import_from(bank, "basic-memory", read_source(str(notes)))["imported"] == 1


def test_a_link_among_the_notes_of_a_folder_is_not_followed(bank: MemoryBank, tmp_path: Path) -> None:
    (tmp_path / "id_rsa").write_text("a key of one's own\n")
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "fine.md").write_text("One line.\n")
    (notes / "link.md").symlink_to(tmp_path / "id_rsa")
    (tmp_path / "vault").symlink_to(notes)  # the folder itself is the user's to name
    counts = import_from(bank, "basic-memory", read_source(str(tmp_path / "vault")))
    assert [entry["where"] for entry in counts["unread"]] == ["link.md"]
    assert _texts(bank) == ["One line."]


def test_endless_input_is_refused(bank: MemoryBank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "MAX_SOURCE_BYTES", 1 << 20)
    with pytest.raises(BadRequest, match="neither a file nor a folder"):
        read_source("/dev/zero")
    with open(tmp_path / "export.json", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(BadRequest, match="in parts"):
        read_source(str(tmp_path / "export.json"))
    with open("/dev/zero", "rb") as endless, pytest.raises(BadRequest, match="in parts"):
        piped_source(endless)
    (tmp_path / "notes").mkdir()
    with open(tmp_path / "notes" / "vast.md", "wb") as file:
        file.truncate(1 << 40)
    os.mkfifo(tmp_path / "notes" / "pipe.md")
    reply = import_from(bank, "basic-memory", read_source(str(tmp_path / "notes")))
    assert [entry["where"] for entry in reply["unread"]] == ["pipe.md", "vast.md"]


def test_what_a_stranger_put_into_a_database_file_is_named_and_the_rest_is_read(
    bank: MemoryBank, tmp_path: Path
) -> None:
    ms = 1_780_000_000_000
    with closing(sqlite3.connect(tmp_path / "odd.db")) as connection, connection:
        connection.execute("CREATE TABLE memories (key, value, type, timestamp)")
        rows = [
            (b"\xff\x1b[31m", b"\xff\xfe", "t", ms),
            ("deep", '{"content": ' * 50_000, "t", ms + 1),
            ("sound", json.dumps({"content": "I live in Paris"}), "t", ms + 2),
        ]
        connection.executemany("INSERT INTO memories VALUES (?, ?, ?, ?)", rows)
        connection.execute("UPDATE memories SET type = CAST(x'ff' AS TEXT) WHERE key = 'sound'")
    counts = import_from(bank, "claude-recall", read_source(str(tmp_path / "odd.db")))
    assert [entry["where"] for entry in counts["unread"]] == ["row 1"]
    assert bank.get("sound") is not None


@pytest.mark.parametrize("name", ["memories", "Memories"])  # SQLite finds either
def test_a_database_file_whose_memories_are_a_query_without_end_is_refused(
    bank: MemoryBank, tmp_path: Path, name: str
) -> None:
    with closing(sqlite3.connect(tmp_path / "view.db")) as connection, connection:
        connection.execute(
            f"CREATE VIEW {name} AS WITH RECURSIVE step (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM step) "
            "SELECT n AS key, n AS value, n AS type, n AS timestamp FROM step WHERE n < 0"
        )
    with pytest.raises(BadRequest, match="no table `memories`"):
        import_from(bank, "claude-recall", read_source(str(tmp_path / "view.db")))


@pytest.mark.parametrize(
    "line", [f"- {' ' * 200_000}x", f"- [fact] a{' ' * 200_000}b", f"- a{' (' * 100_000}"]
)
def test_a_line_of_blanks_in_a_note_takes_time_in_proportion(
    bank: MemoryBank, tmp_path: Path, line: str
) -> None:
    """By the square of the blanks it would be hours."""
    (tmp_path / "note.md").write_text(f"{line}\n- [fact] I live in Paris\n")
    counts = import_from(bank, "basic-memory", read_source(str(tmp_path / "note.md")))
    assert counts["imported"] == 2
