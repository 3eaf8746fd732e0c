"""Imports memories from other products: from replies of their tools, from exports and from files.

    claude-recall   replies of `retrieve_memory` and `search`; its SQLite file
    hindsight       replies of `recall` and `hindsight_search`; the REST API's list and recall
    sekha           `memory_export`
    mem0            `get_all` and the export of the platform
    basic-memory    a folder of notes, or a single note

Memories that were imported before are skipped, even if they were forgotten since. An entry that cannot be
read is reported with its position; the others are imported.
"""

import math
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import BinaryIO

from ctx.errors import BadRequest, Conflict, CtxError
from ctx.memory.bank import MemoryBank
from ctx.memory.columns import moment_ms
from ctx.memory.imports import basic_memory
from ctx.memory.imports.replies import (
    CONVERTERS,
    SQLITE,
    Item,
    Source,
    Unread,
    read_recall_file,
    read_replies,
)
from ctx.models import JSON

_READERS: dict[str, Callable[[Source], Iterator[Item | Unread]]] = {
    "basic-memory": basic_memory.read,
    **{name: partial(read_replies, product=name) for name in CONVERTERS},
}
PRODUCTS = tuple(_READERS)
MAX_SOURCE_BYTES = 1 << 30  # also for a database file, of which only the header is used here


def import_from(bank: MemoryBank, product: str, source: Source) -> JSON:
    """Imports a source: `{"imported", "skipped", "unread": [{"where", "reason"}]}`.

    Raises `BadRequest` for a source that is not from that product.
    """
    read = _READERS[product]
    if source.content.startswith(SQLITE):
        if product != "claude-recall":
            raise BadRequest(
                f"this is a database file; of {product} only replies of its tools and its API can be read"
            )
        read = read_recall_file
    counts: dict[str, JSON] = {"imported": 0, "skipped": 0, "unread": []}
    ids: dict[str, str] = {}  # the product's id -> the new id, for later memories that replace these
    items: list[Item] = []
    for item in read(source):
        if isinstance(item, Unread):
            counts["unread"].append(item._asdict())
        else:
            items.append(item)
    for item in sorted(items, key=_said_ms):  # oldest first, so that newer ones can replace older ones
        try:
            created, id = _store(bank, product, item, ids)
        except Conflict:
            counts["skipped"] += 1
            continue
        except CtxError as error:
            counts["unread"].append(Unread(item.where, error.message)._asdict())
            continue
        counts["imported" if created else "skipped"] += 1
        ids[item.key] = id
    return counts


def _said_ms(item: Item) -> float:
    """When a memory was said, in milliseconds; infinity if unknown."""
    try:
        ms = moment_ms("timestamp", item.fields.get("timestamp"))
    except BadRequest:  # an invalid time; `put` will refuse it
        return math.inf
    return math.inf if ms is None else ms


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
    reply = bank.put(
        **item.fields, alias=item.key, dedupe="exact", supersedes=current, idempotency_key=request
    )
    return bool(reply["created"]), reply["id"]


def read_source(path: str) -> Source:
    """Reads a file, or names a folder, to import. Raises `BadRequest`."""
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
    """Reads a pipe to import. Raises `BadRequest`."""
    return Source(None, _read(file, "standard input"))


def _read(file: BinaryIO, name: str) -> bytes:
    content = file.read(MAX_SOURCE_BYTES + 1)
    if len(content) > MAX_SOURCE_BYTES:
        raise BadRequest(f"{name} is larger than {MAX_SOURCE_BYTES >> 20} MB: import it in parts")
    return content
