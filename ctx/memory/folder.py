"""A bank as a folder of Markdown files, both ways: what is in the store is written, what a person changed is
read.

One file a fact that holds (ctx/memory/notes.py); conversations and what was replaced stay in the store. A
file keeps its name and may be moved within the folder; a new file is a new memory; a file that is gone
forgets its memory only where that is asked. `LEDGER` says which memories the folder has had, so that one
which was stored since is not taken for one whose file was deleted. Every file is replaced at once and whole,
and the ledger last.
"""

import json
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ctx import files
from ctx.errors import BadRequest, Conflict, CtxError
from ctx.memory.bank import MemoryBank
from ctx.memory.notes import (
    MAX_NOTE_CHARS,
    Note,
    changes,
    file_name,
    from_note,
    note_paths,
    settings,
    to_note,
)
from ctx.models import JSON

LEDGER = ".ctx-memories.json"
_NOT_MEMORIES = ("readme.md",)
_PAGE = 1000
_OUTDATED = (
    "it was edited, but its memory was forgotten or replaced; remove the id to store it as a new memory"
)


class Entry(NamedTuple):
    """A file of the folder: its relative path, its text, and its memory's record in the bank, if it has one.
    `erased`: the memory was erased there.
    """

    path: str
    text: str
    note: Note
    record: JSON | None
    erased: bool


class Folder:
    """One bank's folder. Raises `BadRequest` if the path is not a folder, and `Conflict` for the folder
    of another bank."""

    def __init__(self, bank: MemoryBank, path: str) -> None:
        self._bank = bank
        self.path = os.path.realpath(path)
        if os.path.exists(self.path) and not os.path.isdir(self.path):
            raise BadRequest(f"{path} is not a folder")
        self._ledger = self._read_ledger()
        name = self._ledger.get("bank", bank.id)
        if name != bank.id:
            self._check_heir(path, name)

    def _check_heir(self, path: str, name: str) -> None:
        """Raises `Conflict` unless the folder's bank was renamed, or merged, into this one."""
        sentence = f"{path} is the folder of the bank '{name}', not of '{self._bank.id}'"
        if name in self._bank.neighbours():
            raise Conflict(f"{sentence}: use that bank, or another folder")
        ids = self._ledger.get("ids", [])
        if not any(self._bank.get(id, include_deleted=True) for id in ids):
            raise Conflict(
                f"{sentence}, and has none of this bank's memories. If the bank was renamed or merged, use "
                f"its new name. To import the files into this bank anyway, delete {LEDGER} in the folder"
            )

    # -- the store into the folder --
    def export(self, *, dry_run: bool = False) -> JSON:
        """Writes what changed in the store: `{"written", "removed", "unchanged", "conflicts", "dry_run"}`.

        What was edited in the folder and not imported is never written over: it is a conflict, named, and
        left.
        """
        reply: dict[str, JSON] = {
            "written": 0,
            "removed": 0,
            "unchanged": 0,
            "conflicts": [],
            "dry_run": dry_run,
        }
        entries = {entry.note.id: entry for entry in self._entries(reply["conflicts"]) if entry.note.id}
        ids = []
        for record in self._bank.every({"kind": "fact"}, order="created"):
            ids.append(record["id"])
            self._lay_out(record, entries.pop(record["id"], None), reply)
        for entry in entries.values():  # forgotten, replaced, or not of this store
            self._withdraw(entry, reply)
        if not dry_run:
            self._write_ledger(ids)
        return reply

    def _withdraw(self, entry: Entry, reply: dict[str, JSON]) -> None:
        if entry.record is None and not entry.erased:
            reply["conflicts"].append(_conflict(entry.path, "its memory is not in the bank: import it first"))
        elif entry.note.edited and (entry.record is None or changes(entry.note, entry.record)):
            reply["conflicts"].append(_conflict(entry.path, _OUTDATED))
        else:
            if not reply["dry_run"]:
                os.unlink(os.path.join(self.path, entry.path))
            reply["removed"] += 1

    # -- the folder into the store --
    def import_(self, *, prune: bool = False, dry_run: bool = False) -> JSON:
        """Reads what changed in the folder: `{"new", "changed", "unchanged", "missing", "forgotten",
        "conflicts", "op_ids", "dry_run"}`.

        An edit is an edit with history; what both sides changed is a conflict, named, and left. Files that
        are gone are counted (`missing`), and their memories forgotten with `prune`, in one operation that can
        be undone. The head of a file that was taken in is brought up to date.
        """
        reply: dict[str, JSON] = {
            "new": 0,
            "changed": 0,
            "unchanged": 0,
            "missing": 0,
            "forgotten": 0,
            "conflicts": [],
            "op_ids": [],
            "dry_run": dry_run,
        }
        entries = list(self._entries(reply["conflicts"]))
        ids = {entry.note.id for entry in entries}
        for entry in entries:
            try:
                ids.add(self._take_in(entry, reply, ids))
            except CtxError as error:
                reply["conflicts"].append(_conflict(entry.path, error.message))
        absent = sorted(set(self._ledger.get("ids", ())) - ids)
        doomed = list(filter(self._is_current, absent))
        # A file that could not be read is not a file that is gone.
        reply["missing"] = len(doomed) if not reply["conflicts"] else 0
        if prune and reply["missing"]:
            self._forget(doomed, reply)
        if not dry_run and not reply["conflicts"]:
            self._write_ledger([id for id in ids if id] + ([] if prune else absent))
        return reply

    def _is_current(self, id: str) -> bool:
        record = self._bank.get(id)
        return record is not None and not record["superseded_by"]

    def _lay_out(self, record: JSON, entry: Entry | None, reply: dict[str, JSON]) -> None:
        """Writes a memory's file, unless it says the same, or what was not imported yet."""
        text = to_note(record)
        if entry is not None and entry.text == text:
            reply["unchanged"] += 1
            return
        if entry is not None and entry.note.edited and changes(entry.note, record):
            reply["conflicts"].append(_conflict(entry.path, "it was edited: import it first"))
            return
        path = entry.path if entry is not None else file_name(record)
        if entry is None and os.path.lexists(os.path.join(self.path, path)):
            reply["conflicts"].append(_conflict(path, "it is in the place of a memory's file"))
            return
        self._write(path, text, reply["dry_run"])
        reply["written"] += 1

    def _forget(self, ids: Sequence[str], reply: dict[str, JSON]) -> None:
        """Forgets the memories whose files are gone."""
        for start in range(0, len(ids), _PAGE):
            filter = {"id": {"in": ids[start : start + _PAGE]}}
            deleted = self._bank.delete_where(filter, reason="its file was deleted", dry_run=reply["dry_run"])
            reply["forgotten"] += deleted["count"]
            reply["op_ids"] += [deleted["op_id"]] if deleted["op_id"] else []

    def _take_in(self, entry: Entry, reply: dict[str, JSON], ids: set[str | None]) -> str | None:
        """Stores what a file says; the id of its memory. `ids` are those that files have."""
        note, record = entry.note, entry.record
        if entry.erased:
            if note.edited:
                raise Conflict(_OUTDATED)
            reply["unchanged"] += 1  # the next export takes it away
            return note.id
        if record is None:
            id = None if reply["dry_run"] else self._store_new(entry, reply, ids)
            reply["new"] += 1
            return id
        patch = changes(note, record)
        if not patch or (not note.edited and note.version <= record["version"]):
            reply["unchanged"] += 1  # the same, or as it was written
            return note.id
        _check_current(note, record)
        if not reply["dry_run"]:
            self._store_edit(entry.path, record, patch, reply)
        reply["changed"] += 1
        return note.id

    def _store_edit(self, path: str, record: JSON, patch: JSON, reply: dict[str, JSON]) -> None:
        updated = self._bank.update(record["id"], patch, expect_version=record["version"])
        reply["op_ids"] += [updated["op_id"]] if updated["op_id"] else []
        self._write(path, to_note(updated["record"]), False)

    def _store_new(self, entry: Entry, reply: dict[str, JSON], ids: set[str | None]) -> str | None:
        bank = self._bank.with_id(entry.note.id) if entry.note.id else self._bank
        stored = bank.put(**settings(entry.note.fields))
        reply["op_ids"] += [stored["op_id"]] if stored["op_id"] else []
        record = self._bank.get(stored["id"])
        # A memory that no file has is the file's own: it was stored, and the process died before it wrote the
        # head.
        if record is not None and (stored["created"] or (entry.note.id is None and record["id"] not in ids)):
            self._write(entry.path, to_note(record), False)
        elif record is not None and record["id"] != entry.note.id:
            raise Conflict(f"its text equals the existing memory {record['id']}")
        return str(stored["id"])

    # -- files --
    def _note_at(self, path: str, paths: dict[str, str]) -> tuple[str, Note]:
        """A file's text, and what it says; `paths` are those of the notes before it, by their ids."""
        text = self._read(path)
        note = from_note(text)
        if note.id is not None and note.id in paths:
            raise Conflict(f"it has the same id as {paths[note.id]}; remove the id for a new memory")
        return text, note

    def _entries(self, conflicts: list[JSON]) -> Iterator[Entry]:
        """The files that are memories, by path; what cannot be read is named among the conflicts."""
        paths: dict[str, str] = {}
        erased_ids = self._bank.erased_ids()
        for path in note_paths(self.path):
            if os.path.basename(path).lower() in _NOT_MEMORIES:
                continue
            try:
                text, note = self._note_at(path, paths)
            except UnicodeDecodeError:
                conflicts.append(_conflict(path, "it is not UTF-8: save it as UTF-8"))
                continue
            except (CtxError, OSError) as error:
                reason = error.message if isinstance(error, CtxError) else error.strerror
                conflicts.append(_conflict(path, str(reason)))
                continue
            if note.id is not None:
                paths[note.id] = path
            record = self._bank.get(note.id, include_deleted=True) if note.id else None
            yield Entry(path, text, note, record, record is None and note.id in erased_ids)

    def _read(self, path: str) -> str:
        limit = 4 * MAX_NOTE_CHARS
        content = files.read_file(os.path.join(self.path, path), beneath=self.path, most=limit + 1)
        if len(content) > limit:
            raise BadRequest("too large for a memory")
        return content.decode("utf-8")

    def _write(self, path: str, text: str, dry_run: bool) -> None:
        if not dry_run:
            files.make_folder(self.path)
            files.replace(os.path.join(self.path, path), text.encode(), beneath=self.path)

    def _read_ledger(self) -> dict[str, JSON]:
        try:
            ledger = json.loads(files.read_file(os.path.join(self.path, LEDGER), beneath=self.path))
            ids = ledger.get("ids", [])
            if not (isinstance(ledger.get("bank", ""), str) and all(isinstance(id, str) for id in ids)):
                raise ValueError("ctx did not write it")
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise BadRequest(
                f"{LEDGER} cannot be read: {error}. Delete it; the next import then prunes nothing"
            ) from error
        return {**ledger, "ids": ids}

    def _write_ledger(self, ids: list[str]) -> None:
        ledger = {"bank": self._bank.id, "ids": sorted(set(ids))}
        if ledger != self._ledger:
            self._write(LEDGER, json.dumps(ledger, indent=0) + "\n", False)
            self._ledger = ledger


def _check_current(note: Note, record: JSON) -> None:
    """Raises `Conflict` if a file was edited and its memory changed meanwhile."""
    if record["deleted_at"] or record["superseded_by"]:
        raise Conflict(_OUTDATED)
    if note.version < record["version"]:
        raise Conflict(
            f"both the file and the memory were changed. To keep the file's text, write version "
            f"{record['version']} into it. To keep the memory's, delete the file and sync"
        )


def _conflict(path: str, reason: str) -> JSON:
    return {"file": path, "reason": reason}
