"""`ctx memory` and `ctx pack list`, as a person runs them."""

import json
import os
import re
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
from kit import ctx, project, workspace

from ctx.cli import memory
from ctx.config import load_config
from ctx.memory.imports import PRODUCTS
from ctx.memory.location import locate, memory_place
from ctx.memory.records import Provenance
from ctx.models import Caller

PACKED = (
    '[connectors.filesystem.docs]\nroot = "./docs"\n[embedding]\nprovider = "disabled"\n'
    '[packs]\nenabled = ["hindsight", "claude-recall", "sekha"]\n'
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with a few memories in two banks."""
    config = project(tmp_path, config=PACKED)
    with workspace(config) as space:
        bank = space.memory.bank("alice", Provenance(pack="hindsight", session="s"))
        first = bank.put(
            "Zoë likes green tea\u2028and 茶",
            context="drinks",
            metadata={"n": 1.5, "nested": {"a": [None, True]}},
            tags=["x"],
        )
        bank.put("Zoë likes black tea now", supersedes=[first["id"]])
        bank.put_many(
            [{"text": "hello", "role": "user"}, {"text": "hi", "role": "assistant"}],
            {"label": "talk", "folder": "/a"},
        )
        space.memory.bank("bob").put("Bob's own")
    return tmp_path


@pytest.mark.slow
def test_an_export_comes_back_to_the_byte_through_files_and_through_pipes(folder: Path) -> None:
    out = folder / "alice.jsonl"
    process = ctx("memory", "export", "--bank", "alice", "-o", str(out), cwd=folder)
    assert process.returncode == 0, process.stderr
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    lines = out.read_bytes()
    assert lines.count(b"\n") == 5
    assert b"Bob" not in lines
    assert ctx("memory", "import", str(out), "--bank", "copy", cwd=folder).returncode == 0
    repeat = ctx("memory", "export", "--bank", "copy", cwd=folder)
    assert repeat.stdout.encode() == lines
    second = folder / "other"
    project(second, config=PACKED)
    piped = ctx("memory", "import", "--bank", "alice", "--json", cwd=second, input_text=lines.decode())
    assert json.loads(piped.stdout) == {"bank": "alice", "imported": 5, "skipped": 0, "conflicts": []}
    assert ctx("memory", "export", "--bank", "alice", cwd=second).stdout.encode() == lines
    twice = ctx("memory", "import", "--bank", "alice", "--json", cwd=second, input_text=lines.decode())
    assert json.loads(twice.stdout)["skipped"] == 5


def test_banks_are_listed_and_an_unknown_one_is_not_found(folder: Path) -> None:
    listed = json.loads(ctx("memory", "banks", "--json", cwd=folder).stdout)["banks"]
    assert [(row["bank"], row["memories"]) for row in listed] == [("alice", 4), ("bob", 1)]
    process = ctx("memory", "export", "--bank", "nobody", cwd=folder)
    assert (process.returncode, process.stdout) == (3, "")
    assert "alice, bob" in process.stderr


def test_what_is_no_export_is_refused_with_its_line(folder: Path) -> None:
    for content in ("not json\n", '{"a": 1}\n'):
        process = ctx("memory", "import", "--bank", "x", cwd=folder, input_text=content)
        assert process.returncode == 2
        assert "standard input: line 1: " in process.stderr
        assert "; use --from NAME for another product's file" in process.stderr
    (folder / "cut.json").write_text('{"results":\n [{"memory":')
    process = ctx("memory", "import", "cut.json", "--from", "mem0", cwd=folder)
    assert (process.returncode, process.stderr) == (2, "Error: cut.json: not JSON (line 2)\n")
    assert "Traceback" not in ctx("memory", "import", "no-such-file", cwd=folder).stderr


CLAUDE_RECALL = {
    "memories": [
        {
            "id": "memory_1704067200000_abc123",
            "content": "User prefers tabs",
            "metadata": {"type": "code"},
            "timestamp": "2024-01-01T00:00:00Z",
            "sessionId": "session_123",
        }
    ],
    "total": 1,
}
HINDSIGHT = {
    "results": [
        {
            "id": "fact_abc123",
            "text": "User prefers Python",
            "type": "world",
            "context": "languages",
            "event_date": "2024-05-06T00:00:00Z",
        }
    ]
}
SEKHA = {
    "success": True,
    "data": {
        "conversation": {
            "id": "123e4567-e89b-12d3-a456-426614174000",
            "label": "API Design Discussion",
            "folder": "/work/backend",
            "status": "archived",
            "importance_score": 7,
        },
        "messages": [{"role": "user", "content": "Let's design it", "timestamp": "2026-01-20T15:30:00"}],
        "format": "json",
    },
    "error": None,
}


@pytest.mark.parametrize(
    ("product", "reply", "bank", "text"),
    [
        ("claude-recall", CLAUDE_RECALL, "pack:claude-recall", "User prefers tabs"),
        ("hindsight", HINDSIGHT, "default", "User prefers Python"),
        ("sekha", SEKHA, "pack:sekha", "Let's design it"),
    ],
)
def test_what_the_real_products_reply_is_imported_once(
    folder: Path, product: str, reply: object, bank: str, text: str
) -> None:
    for content, imported in (
        (json.dumps(reply, indent=2), 1),
        (json.dumps({"result": reply}) + "\n" + json.dumps(reply), 0),
    ):
        process = ctx("memory", "import", "--from", product, "--json", cwd=folder, input_text=content)
        assert process.returncode == 0, process.stderr
        answer = json.loads(process.stdout)
        assert (answer["bank"], answer["imported"]) == (bank, imported)
    with workspace(folder / "ctx.toml") as space:
        [matches] = space.memory.bank(bank).search(text, filter={"kind": {"in": ["fact", "message"]}})[
            "results"
        ]
        record = matches["record"]
        assert record["text"] == text
        if product == "claude-recall":
            _ = space.packs
            remaining = space.toolbox.call(
                "mcp__claude-recall__retrieve_memory", {"id": "memory_1704067200000_abc123"}, Caller("cli")
            )
            assert remaining["memories"][0]["timestamp"] == "2024-01-01T00:00:00Z"
            assert remaining["memories"][0]["sessionId"] == "session_123"
        elif product == "sekha":
            assert (
                matches["container"]["folder"],
                matches["container"]["status"],
                matches["container"]["importance"],
            ) == (
                "/work/backend",
                "archived",
                7,
            )
        else:
            assert (record["context"], record["type"]) == ("languages", "world")


def test_what_could_not_be_imported_is_named(folder: Path) -> None:
    (folder / "claude-recall.db").write_bytes(b"SQLite format 3\0" + bytes(100))
    process = ctx("memory", "import", "claude-recall.db", "--from", "claude-recall", cwd=folder)
    assert process.returncode == 2
    assert "cannot be read" in process.stderr
    content = '[{"id": "1", "memory": "Ada likes tea"}, {"id": "2"}]'
    process = ctx("memory", "import", "--from", "mem0", cwd=folder, input_text=content)
    assert process.returncode == 1
    assert process.stdout.startswith("Imported 1 into 'default'")
    assert "entry 2: the field 'text' is missing" in process.stderr
    process = ctx("memory", "import", "docs", cwd=folder)
    assert process.returncode == 2
    assert "--from NAME" in process.stderr


@pytest.mark.slow
def test_packs_are_listed_with_their_tools_and_routes(folder: Path) -> None:
    process = ctx("pack", "list", cwd=folder)
    assert process.returncode == 0, process.stderr
    for answer in (
        "hindsight: ",
        "retain, recall, reflect",
        "profile  classic",
        "POST /mcp/tools/{tool}",
        "closed until",
    ):
        assert answer in process.stdout, answer
    listed = json.loads(ctx("pack", "list", "--json", cwd=folder).stdout)
    assert [pack["name"] for pack in listed["packs"]] == ["hindsight", "claude-recall", "sekha"]
    unready = folder / "bare"
    project(unready)
    assert "not enabled" in ctx("pack", "list", cwd=unready).stdout


@pytest.mark.slow
def test_doctor_says_that_memories_and_their_index_agree_and_finds_where_not(folder: Path) -> None:
    matches = json.loads(ctx("doctor", "--json", cwd=folder).stdout)["findings"]
    place, memory = [row for row in matches if row["what"] == "memory"]
    assert (place["state"], memory["state"]) == ("ok", "ok")
    assert "2 banks; rows, words and vectors agree" in memory["detail"]
    config = load_config(str(folder / "ctx.toml"), {})
    with closing(sqlite3.connect(locate(config, os.environ).memory)) as database, database:
        database.execute("UPDATE memories SET text = 'changed behind our back' WHERE text = 'Bob''s own'")
    matches = json.loads(ctx("doctor", "--json", cwd=folder).stdout)["findings"]
    assert [row["state"] for row in matches if row["what"] == "memory"] == ["ok", "failed"]


@pytest.mark.slow
def test_a_person_looks_inside_corrects_forgets_and_takes_it_back(folder: Path) -> None:
    """One memory through every command that changes it."""

    def run(*words: str) -> dict[str, object]:
        process = ctx("memory", *words, "--bank", "bob", "--json", cwd=folder)
        assert process.returncode == 0, process.stderr
        reply: dict[str, object] = json.loads(process.stdout)
        return reply

    [record] = run("list")["memories"]  # type: ignore[misc]
    id = record["aliases"]["hindsight"]  # type: ignore[index]
    [matches] = run("search", "whose", "own", "is", "it")["results"]  # type: ignore[misc]
    assert matches["record"]["text"] == "Bob's own"  # type: ignore[index]
    edited = run("edit", id, "Bob's bicycle")
    assert edited["changed"] == ["text"]
    assert run("show", id)["text"] == "Bob's bicycle"
    assert [change["op"] for change in run("history", id)["history"]] == ["put", "update"]  # type: ignore[index,attr-defined]
    assert run("forget", id, "--dry-run")["count"] == 1
    assert run("undo", str(edited["op_id"]))["count"] == 1
    forgotten = run("forget", id)
    assert run("list")["memories"] == []
    run("undo", forgotten["op_ids"][0])  # type: ignore[index]
    assert run("show", id)["text"] == "Bob's own"
    changes = ctx("memory", "history", id, "--bank", "bob", cwd=folder).stdout
    assert re.search(r"(?m)^ +deleted_at: - -> \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.?\d*Z$", changes)
    beside = ctx("memory", "forget", id, "fact_000000000000", "--bank", "bob", cwd=folder)
    assert (beside.returncode, "no memory with the id 'fact_000000000000'" in beside.stderr) == (3, True)
    assert len(run("list")["memories"]) == 1  # type: ignore[arg-type]


def test_what_was_forgotten_is_erased_by_the_options_that_chose_it(folder: Path) -> None:
    chosen = ("memory", "forget", "--tag", "x", "--bank", "alice")
    assert ctx(*chosen, cwd=folder).stdout.startswith("Forgot 1 memory.")
    assert ctx(*chosen, "--purge", "--dry-run", cwd=folder).stdout == "Would erase 1 memory.\n"
    place = Path(memory_place(load_config(str(folder / "ctx.toml"), os.environ), os.environ).folder)
    assert b"green tea" in b"".join(path.read_bytes() for path in place.iterdir())
    assert ctx(*chosen, "--purge", cwd=folder).stdout == "Erased 1 memory.\n"
    assert b"green tea" not in b"".join(path.read_bytes() for path in place.iterdir())


def test_a_forgotten_memory_is_shown_with_the_day_it_was_forgotten(folder: Path) -> None:
    with workspace(folder / "ctx.toml") as space:
        id = space.memory.bank("bob").put("Bob's boat")["id"]
        space.memory.bank("bob").delete(id)
    listing = ctx("memory", "show", id, "--bank", "bob", cwd=folder).stdout
    assert re.search(r"(?m)^deleted_at +\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.?\d*Z$", listing)


def test_what_was_forgotten_is_listed_and_brought_back_without_its_operation(folder: Path) -> None:
    with workspace(folder / "ctx.toml") as space:
        bank = space.memory.bank("bob")
        ids = [bank.put(f"Bob's boat number {number}")["id"] for number in range(2)]
        bank.delete_all(ids)
    listing = ctx("memory", "list", "--forgotten", "--bank", "bob", cwd=folder).stdout
    assert listing.count("boat number") == 2
    assert "Bob's own" not in listing
    shown = re.search(r"fact_\w+", listing)
    assert shown is not None
    restored = ctx("memory", "restore", shown[0], "--bank", "bob", cwd=folder).stdout
    assert restored == "Restored 1 memory.\n"
    listed = json.loads(ctx("memory", "list", "--forgotten", "--bank", "bob", "--json", cwd=folder).stdout)
    assert [record["id"] in ids for record in listed["memories"]] == [True]


def test_a_bank_of_one_memory_goes_with_one_memory(folder: Path) -> None:
    deleted = ctx("memory", "delete", "bob", "--yes", cwd=folder)
    assert deleted.stdout == "Removed 'bob' with 1 memory.\n"


@pytest.mark.slow
def test_banks_are_renamed_merged_and_deleted(folder: Path) -> None:
    assert ctx("memory", "rename", "bob", "robert", cwd=folder).returncode == 0
    assert ctx("memory", "export", "--bank", "robert", "--output", "of.jsonl", cwd=folder).returncode == 0
    assert ctx("memory", "import", "of.jsonl", "--bank", "copy", cwd=folder).returncode == 0
    assert ctx("memory", "delete", "copy", "--yes", cwd=folder).stdout == "Removed 'copy' with 1 memory.\n"
    would = ctx("memory", "merge", "robert", "alice", "--dry-run", "--json", cwd=folder)
    assert json.loads(would.stdout) == {"imported": 1, "skipped": 0, "conflicts": []}
    assert ctx("memory", "merge", "robert", "alice", cwd=folder).returncode == 0
    banks = json.loads(ctx("memory", "banks", "--json", cwd=folder).stdout)["banks"]
    assert [(row["bank"], row["memories"]) for row in banks] == [("alice", 5)]
    counted = json.loads(ctx("memory", "delete", "alice", "--json", cwd=folder).stdout)
    assert counted == {"count": 6, "deleted": False}
    assert ctx("memory", "delete", "alice", "--yes", cwd=folder).returncode == 0
    assert json.loads(ctx("memory", "banks", "--json", cwd=folder).stdout) == {"banks": [], "total": 0}


@pytest.mark.slow
def test_a_bank_lives_in_a_folder_that_a_person_edits(folder: Path) -> None:
    exported = ctx("memory", "export", "--bank", "alice", "--folder", "notes", "--dry-run", cwd=folder)
    assert exported.stdout == "export (dry run): 1 written\n"
    assert not (folder / "notes").exists()
    assert ctx("memory", "sync", "--bank", "alice", "--folder", "notes", cwd=folder).returncode == 0
    (path,) = (folder / "notes").glob("*.md")
    path.write_text(path.read_text().replace("black tea now", "white tea now"))
    synced = ctx("memory", "sync", "--bank", "alice", "--folder", "notes", cwd=folder)
    assert synced.stdout == "import: 1 changed\nexport: 1 unchanged\n", synced.stderr
    assert "white tea" in ctx("memory", "list", "--bank", "alice", cwd=folder).stdout
    path.unlink()
    unpruned = ctx("memory", "import", "--bank", "alice", "--folder", "notes", cwd=folder)
    assert "--prune forgets" in unpruned.stderr
    pruned = ctx("memory", "import", "--bank", "alice", "--folder", "notes", "--prune", cwd=folder)
    assert pruned.stdout == "import: 1 missing, 1 forgotten\n"
    typo = ctx("memory", "import", "--bank", "alice", "--folder", "nodes", cwd=folder)
    assert (typo.returncode, typo.stderr) == (2, "Error: --folder: there is no folder nodes\n")
    contradiction = ctx("memory", "import", "--bank", "alice", "--prune", cwd=folder)
    assert (contradiction.returncode, "are for a --folder" in contradiction.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "mend"),
    [
        (("list", "--limit", "0"), "1 or more"),
        (("search", "tea", "--limit", "-1"), "1 or more"),
        (("recall", "--budget-tokens", "0"), "1 or more"),
        (("banks", "--limit", "x"), "1 or more"),
        (("rename", "pack:sekha", "mine"), "a pack's private bank"),
        (("rename", "bob", "pack:sekha"), "reserved"),
        (("merge", "bob", "alic"), "no memory bank called 'alic'"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(
    folder: Path, arguments: tuple[str, ...], mend: str
) -> None:
    with workspace(folder / "ctx.toml") as space:
        space.memory.bank("pack:sekha").put("kept")
        banks = space.memory.banks()
    process = ctx("memory", *arguments, cwd=folder)
    assert process.returncode in (2, 3)
    assert mend in process.stderr
    with workspace(folder / "ctx.toml") as space:
        assert space.memory.banks() == banks


def test_recall_and_capture_answer_in_json(folder: Path) -> None:
    payload = json.dumps({"prompt": "Remember that the kettle is in the cellar."})
    process = ctx("memory", "capture", "--json", cwd=folder, input_text=payload)
    assert json.loads(process.stdout) == {"bank": "default", "captured": 1}
    reply = json.loads(ctx("memory", "recall", "--json", cwd=folder).stdout)
    assert reply["bank"] == "default"
    assert "kettle is in the cellar" in reply["lines"][0]


def test_a_file_is_not_migrated_to_a_file(folder: Path) -> None:
    process = ctx("migrate", "--to", "other.db", "--json", cwd=folder)
    assert process.returncode == 2
    assert "`ctx backup`" in json.loads(process.stdout)["error"]["message"]
    assert not (folder / "other.db").exists()


def test_what_both_sides_changed_is_told_with_the_fix_and_nothing_is_pruned(folder: Path) -> None:
    sync = ("memory", "sync", "--bank", "alice", "--folder", "notes")
    assert ctx(*sync, cwd=folder).returncode == 0
    [path] = (folder / "notes").glob("*.md")
    path.write_text(path.read_text().replace("black tea", "rooibos"))
    listed = json.loads(ctx("memory", "list", "--bank", "alice", "--json", cwd=folder).stdout)
    [record] = [memory for memory in listed["memories"] if "black tea" in memory["text"]]
    ctx("memory", "edit", record["id"], "Zoë likes coffee", "--bank", "alice", cwd=folder)
    process = ctx(*sync, "--prune", cwd=folder)
    assert process.returncode == 1
    assert "both the file and the memory were changed" in process.stderr
    assert "import it first" not in process.stderr
    assert "Nothing was forgotten" in process.stderr
    version = re.search(r"write version (\d+)", process.stderr)
    assert version is not None
    path.write_text(re.sub(r"version: \d+", f"version: {version[1]}", path.read_text()))
    assert ctx(*sync, cwd=folder).returncode == 0
    shown = ctx("memory", "show", record["id"], "--bank", "alice", cwd=folder).stdout
    assert "Zoë likes rooibos now" in shown


def test_the_options_name_every_product_that_is_read() -> None:
    assert memory.PRODUCTS == PRODUCTS
