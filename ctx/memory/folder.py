"""Synchronizes a bank with a folder of Markdown files, in both directions.

Each current fact is one file; conversations and replaced memories are not exported. A file keeps its name and
may be moved within the folder. A new file becomes a new memory. If a file is deleted, its memory is forgotten
only on request (`prune`). The ledger, `.ctx-memories.json`, lists the memories that had a file: so a memory
whose file was deleted is not taken for one that was not exported yet. Files are replaced as a whole, the
ledger last. A memory's file looks like this:

    ---
    id: "0a1b…"
    said: "2026-11-20T10:00:00Z"
    happened: "2026-11-18"
    contexts: ["work"]
    tags: []
    version: 3
    digest: "5e1c…"
    ---

    I prefer tabs.

The same memory always gives the same bytes. `version` is the version of the memory when the file was written.
`digest` is a digest of the file without the `digest` line. The two show whether the file, the memory, or both
have changed since.
"""

import hashlib
import json
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from ctx import files
from ctx.errors import BadRequest, Conflict, CtxError
from ctx.formats.frontmatter import read_front_matter
from ctx.memory.bank import MemoryBank
from ctx.memory.columns import moment_ms
from ctx.models import JSON, is_whole

LEDGER = ".ctx-memories.json"
MAX_NOTE_CHARS = 1_100_000  # the longest file: a memory's text with its front matter
_DIGEST = re.compile(r'^digest: "([0-9a-f]{16})"\n', re.MULTILINE)
_ESCAPED = re.compile(r"[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
# The fields of a record in the front matter, besides the id. The fields in `_ALWAYS` are written even if
# they are empty.
_FIELDS = ("said", "happened", "contexts", "tags", "type", "importance")
_ALWAYS = ("said", "contexts", "tags")
_PAGE = 1000
_OUTDATED = (
    "it was edited, but its memory was forgotten or replaced; remove the id to store it as a new memory"
)


# -- one file ------------------------------------------------------------------------------------------------


class Note(NamedTuple):
    """A parsed file. `fields` has its text and front matter; `edited`: it changed since ctx wrote it."""

    id: str | None
    version: int
    fields: dict[str, JSON]
    edited: bool


def to_note(record: JSON) -> str:
    """The content of the file for a record."""
    fields = {name: record[name] for name in _FIELDS}
    if fields["importance"] == 5:  # the default
        del fields["importance"]
    values = {name: value for name, value in fields.items() if name in _ALWAYS or value not in (None, "", [])}
    lines = map(_line, ("id", *values, "version"), (record["id"], *values.values(), record["version"]))
    head, body = "---\n" + "".join(lines), f"---\n\n{record['text']}\n"
    return head + _line("digest", _digest(head + body)) + body


def from_note(text: str) -> Note:
    """Parses the content of a file. Raises `BadRequest`, which says what is wrong with the file."""
    if len(text) > MAX_NOTE_CHARS:
        raise BadRequest(f"more than {MAX_NOTE_CHARS:,} characters")
    if not _as_written(text):  # but perhaps only the line endings were changed by a program
        text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    front = read_front_matter(text)
    metadata = front.metadata
    body = text[front.end :].removeprefix("\n").removesuffix("\n")
    if not body.strip():
        raise BadRequest("the file has no text")
    version = metadata.get("version", 0)
    if not is_whole(version):
        raise BadRequest("version: must be a whole number")
    id = metadata.get("id")
    try:
        id = None if id is None else str(uuid.UUID(id))
    except (ValueError, AttributeError, TypeError):
        raise BadRequest("id: not the id of a memory; leave it out for a new memory") from None
    fields = {"text": body, **{name: metadata[name] for name in _FIELDS if name in metadata}}
    # People may leave contexts and tags empty, or separate names with commas.
    for name in fields.keys() & {"contexts", "tags"}:
        if isinstance(names := fields[name] or "", str):
            fields[name] = [part.strip() for part in names.split(",") if part.strip()]
    return Note(id, version, fields, not _as_written(text))


def changes(note: Note, record: JSON) -> dict[str, JSON]:
    """The differences of a file from a record, as a patch for `update`; {} if there are none."""
    differing = {}
    for name, value in note.fields.items():
        if _comparable(name, value) != _comparable(name, record[name]):
            differing[name] = value
    return settings(differing)


def settings(fields: dict[str, JSON]) -> dict[str, JSON]:
    """Renames the fields of a note to those of `put` and `update`."""
    columns = {name: value for name, value in fields.items() if name not in ("said", "happened")}
    if "said" in fields:
        columns["timestamp"] = fields["said"]
    if "happened" in fields:
        first, _, last = map(str.strip, str(fields["happened"] or "").partition("/"))
        columns["event_date"] = first or None
        # If the event is a day, its end is the same day. A time of day has no separate end.
        columns["event_end"] = last or (first if _DAY.fullmatch(first) else None)
    return columns


def _line(name: str, value: JSON) -> str:
    # JSON is also YAML, but YAML has more kinds of line breaks and forbids some characters.
    quoted = json.dumps(value, ensure_ascii=False)
    escaped = _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", quoted)
    return f"{name}: {escaped}\n"


def _as_written(text: str) -> bool:
    """Whether a file is unchanged since `to_note` created it, according to its digest."""
    match = _DIGEST.search(text)
    return match is not None and match[1] == _digest(text[: match.start()] + text[match.end() :])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _comparable(name: str, value: JSON) -> JSON:
    # An invalid time counts as different from the record, and `update` will refuse it.
    with suppress(BadRequest):
        return moment_ms("said", value) if name == "said" else value
    return value


def note_paths(folder: str) -> list[str]:
    """The relative paths of the Markdown files in a folder and its subfolders, sorted; hidden ones are left
    out.
    """
    paths = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        notes = (name for name in names if name.endswith(".md") and not name.startswith("."))
        paths += [os.path.relpath(os.path.join(parent, name), folder) for name in notes]
    return sorted(paths)


# -- the folder ----------------------------------------------------------------------------------------------


class Entry(NamedTuple):
    """A file of the folder: its relative path, its text, and the record of its memory, if the bank has it.

    `erased`: the memory was erased from the bank.
    """

    path: str
    text: str
    note: Note
    record: JSON | None
    erased: bool


class Folder:
    """The folder of Markdown files for one bank.

    Raises `BadRequest` if the path is not a folder, and `Conflict` if the folder belongs to another bank.
    """

    def __init__(self, bank: MemoryBank, path: str) -> None:
        self._bank = bank
        self.path = os.path.realpath(path)
        if os.path.exists(self.path) and not os.path.isdir(self.path):
            raise BadRequest(f"{path} is not a folder")
        self._ledger = self._read_ledger()
        name = self._ledger.get("bank", bank.id)
        if name == bank.id:
            return
        sentence = f"{path} is the folder of the bank '{name}', not of '{bank.id}'"
        if name in bank.neighbours():
            raise Conflict(f"{sentence}: use that bank, or another folder")
        # The folder may belong to a bank that was renamed to this one, or merged into it.
        if not any(bank.get(id, include_deleted=True) for id in self._ledger.get("ids", [])):
            raise Conflict(
                f"{sentence}, and has none of this bank's memories. If the bank was renamed or merged, use "
                f"its new name. To import the files into this bank anyway, delete {LEDGER} in the folder"
            )

    # -- from the store into the folder --
    def export(self, *, dry_run: bool = False) -> JSON:
        """Writes changed memories to files: `{"written", "removed", "unchanged", "conflicts", "dry_run"}`.

        A file that was edited and not imported yet is never overwritten; it is reported as a conflict.
        """
        reply: dict[str, JSON] = dict.fromkeys(("written", "removed", "unchanged"), 0)
        reply |= {"conflicts": [], "dry_run": dry_run}
        entries = {entry.note.id: entry for entry in self._entries(reply["conflicts"]) if entry.note.id}
        ids = []
        for record in self._bank.every({"kind": "fact"}, order="created"):
            ids.append(record["id"])
            self._write_record(record, entries.pop(record["id"], None), reply)
        for entry in entries.values():  # files whose memories are forgotten, replaced or not in this store
            if entry.record is None and not entry.erased:
                reason = "its memory is not in the bank: import it first"
                reply["conflicts"].append(_conflict(entry.path, reason))
            elif entry.note.edited and (entry.record is None or changes(entry.note, entry.record)):
                reply["conflicts"].append(_conflict(entry.path, _OUTDATED))
            else:
                if not dry_run:
                    os.unlink(os.path.join(self.path, entry.path))
                reply["removed"] += 1
        if not dry_run:
            self._write_ledger(ids)
        return reply

    def _write_record(self, record: JSON, entry: Entry | None, reply: dict[str, JSON]) -> None:
        """Writes the file of a memory, unless the file is up to date or was edited."""
        text = to_note(record)
        words = re.findall(r"[^\W_]+", record["text"][:200].lower())[:6]
        path = entry.path if entry else f"{'-'.join(words)[:60] or 'memory'}-{record['id'][:8]}.md"
        if entry is not None and entry.text == text:
            reply["unchanged"] += 1
        elif entry is not None and entry.note.edited and changes(entry.note, record):
            reply["conflicts"].append(_conflict(path, "it was edited: import it first"))
        elif entry is None and os.path.lexists(os.path.join(self.path, path)):
            reply["conflicts"].append(_conflict(path, "it is in the place of a memory's file"))
        else:
            if not reply["dry_run"]:
                self._write(path, text)
            reply["written"] += 1

    # -- from the folder into the store --
    def import_(self, *, prune: bool = False, dry_run: bool = False) -> JSON:
        """Imports changed files: `{"new", "changed", "unchanged", "missing", "forgotten", "conflicts",
        "op_ids", "dry_run"}`.

        An edited file updates its memory, whose history keeps the old text. If the memory changed too, the
        file is reported as a conflict. Deleted files are counted (`missing`); with `prune` their memories are
        forgotten, which can be undone. The front matter of each imported file is rewritten.
        """
        reply: dict[str, JSON] = dict.fromkeys(("new", "changed", "unchanged", "missing", "forgotten"), 0)
        reply |= {"conflicts": [], "op_ids": [], "dry_run": dry_run}
        entries = list(self._entries(reply["conflicts"]))
        ids = {entry.note.id for entry in entries}
        for entry in entries:
            try:
                ids.add(self._import_entry(entry, reply, ids))
            except CtxError as error:
                reply["conflicts"].append(_conflict(entry.path, error.message))
        absent = sorted(set(self._ledger.get("ids", ())) - ids)
        records = [record for id in absent if (record := self._bank.get(id)) is not None]
        doomed = [record["id"] for record in records if not record["superseded_by"]]
        # If there are conflicts, no file counts as missing: it may be one that could not be read.
        reply["missing"] = len(doomed) if not reply["conflicts"] else 0
        if prune and reply["missing"]:
            for start in range(0, len(doomed), _PAGE):
                filter = {"id": {"in": doomed[start : start + _PAGE]}}
                deletion = self._bank.delete_where(filter, reason="its file was deleted", dry_run=dry_run)
                reply["forgotten"] += deletion["count"]
                reply["op_ids"] += [deletion["op_id"]] if deletion["op_id"] else []
        if not dry_run and not reply["conflicts"]:
            self._write_ledger([id for id in ids if id] + ([] if prune else absent))
        return reply

    def _import_entry(self, entry: Entry, reply: dict[str, JSON], ids: set[str | None]) -> str | None:
        """Imports one file and returns the id of its memory. `ids` are the ids in all files."""
        note, record = entry.note, entry.record
        if entry.erased:
            if note.edited:
                raise Conflict(_OUTDATED)
            reply["unchanged"] += 1  # the next export deletes the file
            return note.id
        if record is None:
            id = None if reply["dry_run"] else self._store_new(entry, reply, ids)
            reply["new"] += 1
            return id
        patch = changes(note, record)
        if not patch or (not note.edited and note.version <= record["version"]):
            reply["unchanged"] += 1
            return note.id
        if record["deleted_at"] or record["superseded_by"]:
            raise Conflict(_OUTDATED)
        if note.version < record["version"]:
            raise Conflict(
                f"both the file and the memory were changed. To keep the file's text, write version "
                f"{record['version']} into it. To keep the memory's, delete the file and sync"
            )
        if not reply["dry_run"]:
            updated = self._bank.update(record["id"], patch, expect_version=record["version"])
            reply["op_ids"] += [updated["op_id"]] if updated["op_id"] else []
            self._write(entry.path, to_note(updated["record"]))
        reply["changed"] += 1
        return note.id

    def _store_new(self, entry: Entry, reply: dict[str, JSON], ids: set[str | None]) -> str | None:
        bank = self._bank.with_id(entry.note.id) if entry.note.id else self._bank
        stored = bank.put(**settings(entry.note.fields))
        reply["op_ids"] += [stored["op_id"]] if stored["op_id"] else []
        record = self._bank.get(stored["id"])
        # If an equal memory exists and has no other file, it belongs to this file: an earlier import stored
        # the memory and was killed before it wrote the front matter.
        if record is not None and (stored["created"] or (entry.note.id is None and record["id"] not in ids)):
            self._write(entry.path, to_note(record))
        elif record is not None and record["id"] != entry.note.id:
            raise Conflict(f"its text equals the existing memory {record['id']}")
        return str(stored["id"])

    # -- files --
    def _entries(self, conflicts: list[JSON]) -> Iterator[Entry]:
        """The files with memories, sorted by path. Files that cannot be read are added to `conflicts`."""
        paths: dict[str, str] = {}
        erased_ids = self._bank.erased_ids()
        for path in note_paths(self.path):
            if os.path.basename(path).lower() == "readme.md":
                continue
            try:
                most = 4 * MAX_NOTE_CHARS + 1  # bytes
                content = files.read_file(os.path.join(self.path, path), beneath=self.path, most=most)
                if len(content) == most:
                    raise BadRequest("too large for a memory")
                text = content.decode()
                note = from_note(text)
                if note.id is not None and note.id in paths:
                    raise Conflict(f"it has the same id as {paths[note.id]}; remove the id for a new memory")
            except (CtxError, OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "message", None) or getattr(error, "strerror", None)
                conflicts.append(_conflict(path, reason or "it is not UTF-8: save it as UTF-8"))
                continue
            if note.id is not None:
                paths[note.id] = path
            record = self._bank.get(note.id, include_deleted=True) if note.id else None
            yield Entry(path, text, note, record, record is None and note.id in erased_ids)

    def _write(self, path: str, text: str) -> None:
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
            hint = "Delete it; the next import then prunes nothing"
            raise BadRequest(f"{LEDGER} cannot be read: {error}. {hint}") from error
        return {**ledger, "ids": ids}

    def _write_ledger(self, ids: list[str]) -> None:
        ledger = {"bank": self._bank.id, "ids": sorted(set(ids))}
        if ledger != self._ledger:
            self._write(LEDGER, json.dumps(ledger, indent=0) + "\n")


def _conflict(path: str, reason: str) -> JSON:
    return {"file": path, "reason": reason}
