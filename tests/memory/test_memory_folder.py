"""A bank as a folder of Markdown files, both ways."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_kit import SECOND_MS, Clock, WordEmbedder

from ctx.errors import BadRequest, Conflict
from ctx.memory.bank import MemoryBank
from ctx.memory.folder import LEDGER, Folder
from ctx.memory.store import MemoryStore


@pytest.fixture
def bank(tmp_path: Path, clock: Clock) -> Iterator[MemoryBank]:
    with MemoryStore(str(tmp_path / "ctx.db"), WordEmbedder(), clock) as store:
        bank = store.bank("alice")
        bank.put("Tea is served at four", contexts=["drinks", "office"], tags=["b", "a"])
        clock.pass_ms(SECOND_MS)
        bank.put('The harbour: «ü» — a line\n\n---\nand "another"', event_date="2025-10-01", importance=7)
        yield bank


def _files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.rglob("*.md"))}


def _file(folder: Path, word: str) -> Path:
    (path,) = (path for path in folder.rglob("*.md") if word in path.name)
    return path


def test_a_bank_becomes_a_folder_and_the_same_bank_the_same_bytes(bank: MemoryBank, tmp_path: Path) -> None:
    reply = Folder(bank, str(tmp_path / "notes")).export()
    assert (reply["written"], reply["conflicts"]) == (2, [])
    Folder(bank, str(tmp_path / "again")).export()
    assert _files(tmp_path / "notes") == _files(tmp_path / "again")
    assert (tmp_path / "notes" / LEDGER).read_bytes() == (tmp_path / "again" / LEDGER).read_bytes()
    text = _file(tmp_path / "notes", "tea-is-served").read_text()
    assert 'contexts: ["drinks", "office"]\ntags: ["b", "a"]\n' in text
    assert text.endswith("---\n\nTea is served at four\n")
    assert Folder(bank, str(tmp_path / "notes")).export()["unchanged"] == 2
    assert Folder(bank, str(tmp_path / "notes")).import_()["unchanged"] == 2


def test_a_folder_fills_another_store_with_the_same_memories(
    bank: MemoryBank, tmp_path: Path, clock: Clock
) -> None:
    notes = tmp_path / "notes"
    Folder(bank, str(notes)).export()
    before = _files(notes)
    with MemoryStore(str(tmp_path / "other.db"), WordEmbedder(), clock) as store:
        successor = store.bank("alice")
        assert Folder(successor, str(notes)).import_()["new"] == 2
        assert Folder(successor, str(notes)).import_()["unchanged"] == 2
        assert Folder(successor, str(tmp_path / "theirs")).export()["written"] == 2
    assert _files(tmp_path / "theirs") == before == _files(notes)


def test_an_edit_in_a_file_is_an_edit_with_history_that_can_be_undone(
    bank: MemoryBank, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    Folder(bank, str(notes)).export()
    path = _file(notes, "tea")
    edited = (
        path.read_text().replace("at four", "at five").replace('["b", "a"]', '["a"]').replace("\n", "\r\n")
    )
    path.write_bytes(edited.encode())
    dry = Folder(bank, str(notes)).import_(dry_run=True)
    assert (dry["changed"], dry["op_ids"]) == (1, [])
    assert path.read_bytes() == edited.encode()
    reply = Folder(bank, str(notes)).import_()
    assert reply["changed"] == 1
    [record] = [item for item in bank.browse()["items"] if item["tags"] == ["a"]]
    assert (record["text"], record["version"]) == ("Tea is served at five", 2)
    assert bank.history(record["id"])[-1]["changed"]["text"]["from"] == "Tea is served at four"
    assert "version: 2" in path.read_text()
    assert Folder(bank, str(notes)).import_()["unchanged"] == 2
    bank.undo(reply["op_ids"][0])
    assert Folder(bank, str(notes)).export()["written"] == 1
    assert "at four" in path.read_text()


def test_a_new_file_is_a_new_memory_under_the_name_it_was_given(bank: MemoryBank, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    Folder(bank, str(notes)).export()
    (notes / "sub").mkdir()
    (notes / "sub" / "mine.md").write_text("---\ntags: x, y\nsaid: 2025-01-02\n---\nCoffee is black\n")
    (notes / "README.md").write_text("No memory.")
    (notes / ".hidden.md").write_text("No memory.")
    reply = Folder(bank, str(notes)).import_()
    assert (reply["new"], reply["conflicts"]) == (1, [])
    [record] = [item for item in bank.browse()["items"] if "Coffee" in item["text"]]
    assert (record["tags"], record["said"]) == (["x", "y"], "2025-01-02T00:00:00Z")
    assert record["id"] in (notes / "sub" / "mine.md").read_text()
    assert Folder(bank, str(notes)).export()["unchanged"] == 3


def test_a_deleted_file_forgets_only_where_that_is_asked(bank: MemoryBank, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    Folder(bank, str(notes)).export()
    bank.put("Stored since the export")
    _file(notes, "tea").unlink()
    assert Folder(bank, str(notes)).import_()["missing"] == 1
    assert bank.count() == 3
    assert Folder(bank, str(notes)).import_(prune=True, dry_run=True)["forgotten"] == 1
    assert bank.count() == 3
    reply = Folder(bank, str(notes)).import_(prune=True)
    assert (reply["forgotten"], bank.count()) == (1, 2)
    bank.undo(reply["op_ids"][-1])
    assert bank.count() == 3


def test_what_both_sides_changed_is_named_and_left(bank: MemoryBank, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    Folder(bank, str(notes)).export()
    path = _file(notes, "tea")
    path.write_text(path.read_text().replace("at four", "at five"))
    [record] = [item for item in bank.browse()["items"] if "Tea" in item["text"]]
    bank.update(record["id"], {"text": "Tea is served at six"})
    reply = Folder(bank, str(notes)).import_()
    assert [conflict["file"] for conflict in reply["conflicts"]] == [path.name]
    assert "both the file and the memory were changed" in reply["conflicts"][0]["reason"]
    exported = Folder(bank, str(notes)).export()
    assert [conflict["file"] for conflict in exported["conflicts"]] == [path.name]
    assert "at five" in path.read_text()
    assert bank.get(record["id"])["text"] == "Tea is served at six"  # type: ignore[index]


def test_a_file_of_a_memory_that_no_longer_holds_goes_unless_it_was_edited(
    bank: MemoryBank, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    Folder(bank, str(notes)).export()
    records = {item["text"][:3]: item["id"] for item in bank.browse()["items"]}
    bank.put("Tea is served at six", supersedes=[records["Tea"]])
    harbour = _file(notes, "harbour")
    harbour.write_text(harbour.read_text().replace("a line", "two lines"))
    bank.delete(records["The"])
    reply = Folder(bank, str(notes)).export()
    assert (reply["removed"], reply["written"], len(reply["conflicts"])) == (1, 1, 1)
    assert harbour.exists()
    assert "at six" in _file(notes, "tea").read_text()


def test_what_cannot_be_read_is_named_and_nothing_is_pruned(bank: MemoryBank, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    Folder(bank, str(notes)).export()
    _file(notes, "tea").write_bytes(b"---\nid: nonsense\n---\ntext")
    (notes / "latin.md").write_bytes(b"caf\xe9")
    (notes / "empty.md").write_text("---\ntags: []\n---\n\n")
    (notes / "link.md").symlink_to("/etc/hostname")
    with open(notes / "vast.md", "wb") as file:
        file.truncate(1 << 40)  # it takes no room, and no memory either
    twin = _file(notes, "harbour")
    (notes / "zcopy.md").write_text(twin.read_text())
    reply = Folder(bank, str(notes)).import_(prune=True)
    assert sorted(conflict["file"] for conflict in reply["conflicts"]) == sorted(
        [_file(notes, "tea").name, "latin.md", "empty.md", "link.md", "vast.md", "zcopy.md"]
    )
    assert (reply["forgotten"], bank.count()) == (0, 2)


@pytest.mark.parametrize(
    "text", ["[]", '{"ids": 5}', '{"ids": [[1]]}', '{"bank": ["alice"]}', "[" * 100_000, "\xff"]
)
def test_a_ledger_that_is_none_is_refused_with_the_fix(bank: MemoryBank, tmp_path: Path, text: str) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / LEDGER).write_text(text, encoding="latin-1")
    with pytest.raises(BadRequest, match="Delete it; the next import then prunes nothing"):
        Folder(bank, str(tmp_path / "notes"))


def test_the_folder_of_one_bank_is_not_anothers(bank: MemoryBank, tmp_path: Path) -> None:
    Folder(bank, str(tmp_path / "notes")).export()
    stranger = bank._store.bank("bob")
    with pytest.raises(Conflict, match="alice"):
        Folder(stranger, str(tmp_path / "notes"))
    with (
        MemoryStore(str(tmp_path / "other.db"), WordEmbedder(), bank._store.clock) as store,
        pytest.raises(Conflict, match=rf"none of this bank's memories.*{LEDGER}"),
    ):
        Folder(store.bank("bob"), str(tmp_path / "notes"))
    (tmp_path / "file").write_text("")
    with pytest.raises(BadRequest, match="not a folder"):
        Folder(bank, str(tmp_path / "file"))
    assert "file" in os.listdir(tmp_path)


def test_the_file_of_a_memory_that_was_erased_brings_it_back_only_without_its_id(
    bank: MemoryBank, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    Folder(bank, str(notes)).export()
    ids = bank.ids_of(None)
    bank.delete_all(ids, hard=True)
    path = _file(notes, "harbour")
    path.write_text(path.read_text().replace("a line", "a chain"))
    reply = Folder(bank, str(notes)).import_()
    assert (reply["new"], reply["unchanged"]) == (0, 1)
    assert [entry["file"] for entry in reply["conflicts"]] == [path.name]
    assert Folder(bank, str(notes)).export()["removed"] == 1
    assert list(_files(notes)) == [path.name]
    path.write_text(re.sub("^id: .*\n", "", path.read_text(), flags=re.MULTILINE))
    assert Folder(bank, str(notes)).import_()["new"] == 1
    assert bank.count() == 1
    assert not set(ids) & set(bank.ids_of(None))


def test_a_file_whose_lines_git_ended_otherwise_is_not_edited(bank: MemoryBank, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    Folder(bank, str(notes)).export()
    for path in notes.glob("*.md"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert Folder(bank, str(notes)).import_()["unchanged"] == 2
