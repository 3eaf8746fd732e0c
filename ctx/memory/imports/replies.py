"""Reads memories of other products: replies of their tools and APIs, as one JSON document or one per line.

Also reads the database of Claude Recall, `~/.claude-recall/claude-recall.db`.

The formats are described in: the documentation of Claude Recall, of Hindsight's tools and of Sekha;
Hindsight's REST API 1.x; mem0's `get_all` and
https://docs.mem0.ai/cookbooks/essentials/exporting-memories (2026-11). The database is described in
https://github.com/raoulbia-ai/claude-recall/blob/main/src/memory/schema.sql (2026-11); files of older
versions have fewer columns.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import NamedTuple

from ctx import files
from ctx.errors import BadRequest
from ctx.models import JSON, as_table

SQLITE = b"SQLite format 3\0"
_NEEDED = ("key", "value", "type", "timestamp")
_OPTIONAL = ("project_id", "file_path", "is_active", "superseded_by", "confidence_score", "scope")
_TEXTS = ("content", "text", "value", "raw", "description", "title", "what_should_do", "what_failed")


class Source(NamedTuple):
    """The data to import: a file (path and content), a folder (path), or a pipe (content)."""

    path: str | None
    content: bytes
    user: str | None = None  # imports only the memories of this user


class Item(NamedTuple):
    """One memory: its position in the source, the product's id, and the fields for `put`.

    With `messages`, the item is a conversation, and `fields` are the fields of its container. `replaces` has
    the product's ids of the memories that this one replaced.
    """

    where: str
    key: str
    fields: dict[str, JSON]
    messages: tuple[JSON, ...] = ()
    replaces: tuple[str, ...] = ()


class Unread(NamedTuple):
    """The position of an entry that could not be read, and the reason."""

    where: str
    reason: str


def present(fields: dict[str, JSON]) -> dict[str, JSON]:
    """The fields that have a value."""
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}


# -- JSON ----------------------------------------------------------------------------------------------------


def read_replies(source: Source, product: str) -> Iterator[Item | Unread]:
    """Yields the memories of a source.

    Raises `BadRequest` if the source has no JSON, or if it has mem0 memories of several users and
    `source.user` is not set, because a bank is for one user.
    """
    entries = list(_entries(source, product))
    users = {str(as_table(value)["user_id"]) for _, value in entries if as_table(value).get("user_id")}
    if product == "mem0" and len(users) > 1 and source.user is None:
        raise BadRequest(
            f"the memories of {len(users)} users: {', '.join(sorted(users)[:10])}; --user NAME chooses one, "
            "--bank the bank for them"
        )
    for where, value in entries:
        if isinstance(value, Unread):
            yield value
        elif product != "mem0" or source.user in (None, as_table(value).get("user_id")):
            yield _converted(where, _unwrapped(value), product)


def _converted(where: str, value: JSON, product: str) -> Item | Unread:
    if not isinstance(value, dict):
        return Unread(where, f"not a file of {product}: expected an object")
    try:
        return CONVERTERS[product](value)._replace(where=where)
    except KeyError as error:
        return Unread(where, f"the field {error} is missing")
    except (TypeError, AttributeError) as error:
        return Unread(where, f"not a file of {product}: {error}")


def _entries(source: Source, product: str) -> Iterator[tuple[str, JSON]]:
    """The position and the value of each memory or conversation in one JSON document, or in JSON lines. A
    value that cannot be read is an `Unread`.

    Raises `BadRequest` if the source has no JSON at all.
    """
    try:
        text = source.content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadRequest(f"not a file of {product}: it is not UTF-8") from error
    try:
        documents = {"": json.loads(text)}
    except (ValueError, RecursionError) as error:
        documents = {}
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                where = f"line {number}"
                documents[where] = Unread(where, "not JSON")
                with suppress(ValueError, RecursionError):
                    documents[where] = json.loads(line)
        if len(documents) < 2 or all(isinstance(document, Unread) for document in documents.values()):
            place = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
            raise BadRequest(f"not JSON{place}") from error
    for where, document in documents.items():
        if isinstance(document, Unread):
            yield where, document
        else:
            yield from _listed(_unwrapped(document), f"{where}, entry " if where else "entry ", product)


def _listed(document: JSON, place: str, product: str) -> Iterator[tuple[str, JSON]]:
    entries = document
    if isinstance(document, dict):
        lists = (document[name] for name in ("memories", "results", "items") if name in document)
        entries = next((value for value in lists if isinstance(value, list)), [document])
        total = document.get("total", document.get("count"))
        if "offset" in document and isinstance(total, int) and total > len(entries):
            reason = f"the list has {len(entries):,} of {total:,}: import the other pages too"
            yield "the end", Unread("the end", reason)
    if not isinstance(entries, list):
        raise BadRequest(f"not a file of {product}")
    yield from ((f"{place}{number}", value) for number, value in enumerate(entries, 1))


def _unwrapped(reply: JSON) -> JSON:
    """The content of a reply, without the object around it of Sekha (`data`) or a REST route (`result`)."""
    for name in ("result", "data"):
        if isinstance(reply, dict) and isinstance(reply.get(name), dict):
            reply = reply[name]
    return reply


def _claude_recall(entry: dict[str, JSON]) -> Item:
    optional = {name: entry.get(name) for name in ("timestamp", "metadata")}
    fields = present({"session": entry.get("sessionId"), **optional})
    return Item("", entry["id"], {"text": entry["content"], **fields})


def _hindsight(entry: dict[str, JSON]) -> Item | Unread:
    if entry.get("state") == "invalidated":
        return Unread("", "it was invalidated there")
    optional = {
        "type": entry.get("type") or entry.get("fact_type") or "world",
        "context": entry.get("context") or "general",
        "event_date": entry.get("event_date") or entry.get("occurred_start"),
        "event_end": entry.get("occurred_end"),
        "timestamp": entry.get("mentioned_at") or entry.get("date"),
        **{name: entry.get(name) for name in ("tags", "metadata", "document_id")},
    }
    return Item("", entry["id"], {"text": entry["text"], **present(optional)})


def _sekha(entry: dict[str, JSON]) -> Item | Unread:
    conversation = entry["conversation"]
    if not entry["messages"]:
        return Unread("", "a conversation without a message")
    messages = tuple(
        {
            "text": message["content"],
            "role": message["role"],
            "timestamp": message.get("timestamp"),
            "metadata": message.get("metadata") or {},
        }
        for message in entry["messages"]
    )
    container = {
        "label": conversation["label"],
        "folder": conversation.get("folder", "/"),
        "status": conversation.get("status", "active"),
        "importance": conversation.get("importance_score", 5),
        "timestamp": conversation.get("created_at"),
        "metadata": {"sekha_id": conversation["id"]},
    }
    return Item("", conversation["id"], container, messages)


def _mem0(entry: dict[str, JSON]) -> Item:
    """A memory of mem0. Its agent and app become metadata, and its run becomes the session."""
    owners = present({name: entry.get(name) for name in ("agent_id", "app_id", "actor_id", "role")})
    optional = {
        "metadata": {**(entry.get("metadata") or {}), **owners},
        "tags": entry.get("categories"),
        "session": entry.get("run_id"),
        "timestamp": entry.get("updated_at") or entry.get("created_at"),
        "expires_at": entry.get("expiration_date"),
    }
    text = entry["memory"] if "memory" in entry else entry["text"]
    return Item("", str(entry["id"]), {"text": text, "type": "world", **present(optional)})


CONVERTERS: dict[str, Callable[[dict[str, JSON]], Item | Unread]] = {
    "claude-recall": _claude_recall,
    "hindsight": _hindsight,
    "mem0": _mem0,
    "sekha": _sekha,
}


# -- the database of Claude Recall ---------------------------------------------------------------------------


def read_recall_file(source: Source) -> Iterator[Item | Unread]:
    """Yields the memories of Claude Recall's database, including superseded ones. Raises `BadRequest`.

    The file is not changed, and Claude Recall may be running.
    """
    if source.path is None:
        raise BadRequest("a database file cannot be piped: give its path")
    try:
        with closing(sqlite3.connect(files.sqlite_address(source.path, "mode=ro"), uri=True)) as connection:
            connection.text_factory = lambda text: text.decode("utf-8", "replace")
            yield from _rows_of_file(connection)
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_AUTH:
            raise BadRequest("not a Claude Recall file: it has no table `memories`") from error
        raise BadRequest(f"{source.path} cannot be read: {error}") from error


def _allowed(action: int, table: str | None, column: str | None, _: str | None, source: str | None) -> int:
    """A SQLite authorizer that allows only reading the table of memories.

    If the file has a view or virtual table of that name instead, reading it could run forever, without a way
    to interrupt it. `source` is the view or trigger that causes the access, if any.
    """
    own = action == sqlite3.SQLITE_READ and (table or "").lower() == "memories" and source is None
    looking = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_PRAGMA) and source is None
    return sqlite3.SQLITE_OK if own or looking else sqlite3.SQLITE_DENY


def _rows_of_file(connection: sqlite3.Connection) -> Iterator[Item | Unread]:
    connection.set_authorizer(_allowed)
    columns = [row[1] for row in connection.execute("PRAGMA table_info(memories)")]
    absent = [name for name in _NEEDED if name not in columns]
    if absent:
        raise BadRequest(f"not a Claude Recall file: the table `memories` lacks {', '.join(absent)}")
    chosen = [*_NEEDED, *(name for name in _OPTIONAL if name in columns)]
    select = f"SELECT rowid, {', '.join(chosen)} FROM memories ORDER BY timestamp, rowid"
    rows = [(no, dict(zip(chosen, values, strict=True))) for no, *values in connection.execute(select)]
    predecessors: dict[str, list[str]] = {}
    for _, row in rows:
        if row.get("superseded_by"):
            predecessors.setdefault(row["superseded_by"], []).append(row["key"])
    for no, row in rows:
        yield _item_of_row(no, row, tuple(predecessors.get(row["key"], ())))


def _item_of_row(no: int, row: dict[str, JSON], predecessors: tuple[str, ...]) -> Item | Unread:
    position = f"row {no}"
    try:
        value = json.loads(row["value"])
    except (ValueError, TypeError, RecursionError):
        value = row["value"]  # older versions of Claude Recall stored plain text instead of JSON
    text = _text(value)
    if text is None:
        return Unread(position, f"'{row['key']}' has no text in its value")
    if row.get("is_active") == 0 and not row.get("superseded_by"):
        return Unread(position, f"'{row['key']}' was switched off there without a replacement")
    kept_metadata = {name: row.get(name) for name in ("project_id", "file_path", "confidence_score", "scope")}
    fields = {
        "text": text,
        "type": row["type"],
        "timestamp": row["timestamp"],
        "context": str(row["project_id"]).rstrip("/").rsplit("/", 1)[-1] if row.get("project_id") else None,
        "metadata": present({**kept_metadata, "type": row["type"]}),
    }
    return Item(position, row["key"], present(fields), replaces=predecessors)


def _text(value: JSON, depth: int = 0) -> str | None:
    """The text of a memory's value: the value itself, or its first known text field; None without one."""
    if isinstance(value, str):
        return value if value.strip() else None
    if not isinstance(value, dict) or depth == 4:
        return None
    return next((text for name in _TEXTS if (text := _text(value.get(name), depth + 1)) is not None), None)
