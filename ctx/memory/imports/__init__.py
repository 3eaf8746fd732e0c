"""Imports memories from other products: from replies of their tools, from exports and from files. Product
names, and what can be imported:

    claude-recall   replies of `retrieve_memory` and `search`; its SQLite file
    hindsight       replies of `recall` and `hindsight_search`; the REST API's list and recall
    sekha           `memory_export`
    mem0            `get_all` and the export of the platform
    basic-memory    a folder of notes, or a single note

Memories that were imported before are skipped, even if they were forgotten since. An entry of the source that
cannot be read is reported with its position; the other entries are imported.
"""

import hashlib
import math
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import BinaryIO

from ctx import files
from ctx.errors import BadRequest, Conflict, CtxError
from ctx.formats.frontmatter import front_title, read_front_matter
from ctx.memory.bank import MemoryBank
from ctx.memory.columns import moment_ms
from ctx.memory.folder import note_paths
from ctx.memory.imports.replies import (
    CONVERTERS,
    SQLITE,
    Item,
    Source,
    Unread,
    present,
    read_recall_file,
    read_replies,
)
from ctx.memory.language import gist
from ctx.models import JSON

PRODUCTS = ("basic-memory", *CONVERTERS)
# The maximum size of a source. It also applies to database files, though only their header is read here.
MAX_SOURCE_BYTES = 1 << 30


def import_from(bank: MemoryBank, product: str, source: Source) -> JSON:
    """Imports a source. Returns the numbers of memories that were imported and skipped, and what could not be
    read: `{"imported", "skipped", "unread": [{"where", "reason"}]}`.

    Raises `BadRequest` for a source that is not from that product.
    """
    if source.content.startswith(SQLITE):
        if product != "claude-recall":
            readable = f"of {product} only replies of its tools and its API can be read"
            raise BadRequest(f"this is a database file; {readable}")
        read = read_recall_file(source)
    else:
        read = read_notes(source) if product == "basic-memory" else read_replies(source, product)
    items = list(read)
    unread = [item._asdict() for item in items if isinstance(item, Unread)]
    counts: dict[str, JSON] = {"imported": 0, "skipped": 0, "unread": unread}
    # The product's id -> the new id; later memories name the ones they replace by the product's id.
    ids: dict[str, str] = {}
    # Oldest first, so that newer ones can replace older ones.
    for item in sorted((item for item in items if isinstance(item, Item)), key=_said_ms):
        try:
            created, ids[item.key] = _store(bank, product, item, ids)
            counts["imported" if created else "skipped"] += 1
        except Conflict:
            counts["skipped"] += 1
        except CtxError as error:
            unread.append(Unread(item.where, error.message)._asdict())
    return counts


def _said_ms(item: Item) -> float:
    """When a memory was said, in milliseconds; infinity if unknown."""
    with suppress(BadRequest):  # an invalid time is ignored here; `put` will refuse it
        if (ms := moment_ms("timestamp", item.fields.get("timestamp"))) is not None:
            return ms
    return math.inf


def _store(bank: MemoryBank, product: str, item: Item, ids: dict[str, str]) -> tuple[bool, str]:
    """Stores one memory or conversation. Returns whether it is new, and its id.

    Raises `Conflict` if it was imported before and has changed in the source since.
    """
    request = f"import:{product}:{item.key}"
    if item.messages:
        before = bank.count()
        reply = bank.put_many(list(item.messages), item.fields, idempotency_key=request)
        return bank.count() > before, reply["id"]
    present = bank.get(item.key, include_deleted=True)
    if present is not None:
        return False, present["id"]
    outdated = [ids[key] for key in item.replaces if key in ids]
    current = [id for id in outdated if (record := bank.get(id)) and record["superseded_by"] is None]
    reply = bank.put(**item.fields, alias=item.key, supersedes=current, idempotency_key=request)
    return bool(reply["created"]), reply["id"]


def read_source(path: str) -> Source:
    """The source at a path: a file, which is read now, or a folder, which is not. Raises `BadRequest`."""
    if os.path.isdir(path):
        return Source(path, b"")
    if os.path.exists(path) and not os.path.isfile(path):
        raise BadRequest(f"{path} is neither a file nor a folder; use `-` to read a pipe")
    try:
        with open(path, "rb") as file:
            return Source(path, _read(file, path))
    except OSError as error:
        raise BadRequest(f"{path} cannot be read: {error.strerror}") from error


def piped_source(file: BinaryIO) -> Source:
    """The source that a pipe delivers. Raises `BadRequest`."""
    return Source(None, _read(file, "standard input"))


def _read(file: BinaryIO, name: str) -> bytes:
    content = file.read(MAX_SOURCE_BYTES + 1)
    if len(content) > MAX_SOURCE_BYTES:
        raise BadRequest(f"{name} is larger than {MAX_SOURCE_BYTES >> 20} MB: import it in parts")
    return content


# -- notes of basic-memory -----------------------------------------------------------------------------------

# A note has observations and relations, one per line. Each of them becomes a memory, and so does each other
# paragraph:
#
#     - [category] what is known #tag (context)
#     - relation_type [[Other note]] (context)
#
# Source: https://docs.basicmemory.com/concepts/knowledge-format and NOTE-FORMAT.md of the project (2026-11).
_OBSERVATION = re.compile(r"^\s*[-*]\s+\[(?P<category>[^\[\]()]{1,60})\](?!\()\s+(?P<text>\S.*)$")
_TASK = re.compile(r"^\s*[-*]\s+\[[ xX/-]\]\s")
# The possessive quantifier (`++`) is needed: without it, a line of blanks would take quadratic time.
_RELATION = re.compile(
    r"^\s*[-*]\s++(?P<kind>[^\[\]]{0,80}?)\s*\[\[(?P<target>[^\[\]]{1,200})\]\]\s*(?P<context>\(.*\))?\s*$"
)
_TRAILING_CONTEXT = re.compile(r"\((?P<context>[^()]{1,300})\)\s*$")
_TAG = re.compile(r"(?:^|\s)#(?P<tag>[^\s#]{1,100})")
_HEADING = re.compile(r"^#{1,6}\s")
MAX_NOTE_BYTES = 16 << 20


def read_notes(source: Source) -> Iterator[Item | Unread]:
    """The memories in a folder of notes, or in one note. Raises `BadRequest`."""
    if source.path is None:
        raise BadRequest("basic-memory keeps notes in a folder: name it, or one of its files")
    if not os.path.isdir(source.path):
        yield from _note_of_file(os.path.basename(source.path), source.content)
        return
    if not (paths := note_paths(source.path)):
        raise BadRequest(f"no notes (*.md) in {source.path}")
    folder = os.path.realpath(source.path)
    for path in paths:
        try:  # `beneath`: a link in a folder from somebody else could point to a private file
            content = files.read_file(os.path.join(folder, path), beneath=folder, most=MAX_NOTE_BYTES + 1)
        except OSError as error:
            yield Unread(path, str(error.strerror))
            continue
        if len(content) > MAX_NOTE_BYTES:
            yield Unread(path, f"it holds more than {MAX_NOTE_BYTES >> 20} MB")
            continue
        yield from _note_of_file(path, content)


def _note_of_file(path: str, content: bytes) -> Iterator[Item | Unread]:
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        yield Unread(path, "it is not UTF-8")
        return
    front = read_front_matter(text)
    begin, metadata = front
    stem = os.path.splitext(path)[0]
    note: dict[str, JSON] = {  # the fields that all memories of a note share
        "context": front_title(front) or os.path.basename(stem),
        "type": str(metadata.get("type") or "note"),
        "tags": _tags(metadata.get("tags")),
        "metadata": {"note": path},
        "document_id": str(metadata.get("permalink") or stem),
        "timestamp": _moment(metadata),
    }
    lines, first_line = text[begin:].split("\n"), text.count("\n", 0, begin) + 1
    paragraph: list[str] = []
    begin = first_line
    fenced = False
    for number, line in enumerate([*lines, ""], first_line):
        fenced ^= line.lstrip().startswith("```")
        item = None if fenced else _listed(note, line, number)
        if item is None and line.strip() and not _HEADING.match(line):
            begin = begin if paragraph else number
            paragraph.append(line)
            continue
        if paragraph and not fenced:
            yield _item(note, begin, "\n".join(paragraph).strip(), note["type"])
            paragraph = []
        if item is not None:
            yield item


def _listed(note: dict[str, JSON], line: str, number: int) -> Item | Unread | None:
    """The observation or relation in a line; None for other lines."""
    if relation := _RELATION.match(line):
        kind = (relation["kind"].strip(" :") or "relates_to").replace("_", " ")
        sentence = f"{note['context']} {kind} {relation['target']}"
        return _item(note, number, sentence, "relation", context=(relation["context"] or "").strip("()"))
    observation = None if _TASK.match(line) else _OBSERVATION.match(line)
    if observation is None:
        return None
    text = observation["text"]
    trailing = _TRAILING_CONTEXT.search(text)
    text = text[: trailing.start()] if trailing else text
    statement = " ".join(_TAG.sub(" ", text).split())
    if not statement:
        return Unread(f"{note['metadata']['note']} line {number}", "an empty observation")
    tags = [match["tag"] for match in _TAG.finditer(text)]
    context = trailing["context"] if trailing else None
    return _item(note, number, statement, observation["category"].strip(), tags, context)


def _item(
    note: dict[str, JSON],
    line: int,
    text: str,
    kind: str,
    tags: Sequence[str] = (),
    context: str | None = None,
) -> Item:
    digest = hashlib.sha256(f"{kind} {gist(text)}".encode()).hexdigest()[:12]
    fields = {
        **note,
        "text": text,
        "type": kind,
        "tags": list(dict.fromkeys([*note["tags"], *tags])),
        "metadata": present({**note["metadata"], "context": context}),
    }
    key = f"basic-memory:{note['document_id'][-150:]}#{digest}"
    return Item(f"{note['metadata']['note']} line {line}", key, present(fields))


def _tags(value: JSON) -> list[str]:
    tags = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else []
    return [str(tag).strip().lstrip("#") for tag in tags if str(tag).strip()]


def _moment(metadata: dict[str, JSON]) -> str | None:
    """The time of the last change of a note, according to its front matter; None if unknown."""
    for value in map(metadata.get, ("modified", "updated", "created", "date")):
        with suppress(BadRequest):
            if isinstance(value, str) and moment_ms("date", value) is not None:
                return value
    return None
