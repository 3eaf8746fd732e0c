"""Reads the database of Claude Recall, `~/.claude-recall/claude-recall.db`, with values in JSON.

Source: https://github.com/raoulbia-ai/claude-recall/blob/main/src/memory/schema.sql (2026-11). Files of older
versions with fewer columns are read too.
"""

import json
import sqlite3
from collections.abc import Iterator

from ctx import files
from ctx.errors import BadRequest
from ctx.memory.imports import Item, Source, Unread, present
from ctx.models import JSON

SQLITE = b"SQLite format 3\0"
_TABLE = "memories"
_NEEDED = ("key", "value", "type", "timestamp")
_OPTIONAL = ("project_id", "file_path", "is_active", "superseded_by", "confidence_score", "scope")
_TEXTS = ("content", "text", "value", "raw", "description", "title", "what_should_do", "what_failed")
_MAX_DEPTH = 4


def read(source: Source) -> Iterator[Item | Unread]:
    """Yields the memories of the file, including superseded ones. Raises `BadRequest`.

    The file is not changed, and Claude Recall may be running.
    """
    if source.path is None:
        raise BadRequest("a database file cannot be piped: give its path")
    try:
        connection = sqlite3.connect(files.sqlite_address(source.path, "mode=ro"), uri=True)
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        try:
            yield from _rows(connection)
        finally:
            connection.close()
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_AUTH:
            raise BadRequest("not a Claude Recall file: it has no table `memories`") from error
        raise BadRequest(f"{source.path} cannot be read: {error}") from error


def _allowed(action: int, table: str | None, column: str | None, _: str | None, source: str | None) -> int:
    """A SQLite authorizer that allows only reading the table.

    A view or virtual table of that name could run forever, without a way to interrupt it. `source` is the
    view or trigger that causes the access, if any.
    """
    own = action == sqlite3.SQLITE_READ and (table or "").lower() == _TABLE and source is None
    looking = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_PRAGMA) and source is None
    return sqlite3.SQLITE_OK if own or looking else sqlite3.SQLITE_DENY


def _rows(connection: sqlite3.Connection) -> Iterator[Item | Unread]:
    connection.set_authorizer(_allowed)
    columns = [row[1] for row in connection.execute("PRAGMA table_info(memories)")]
    absent = [name for name in _NEEDED if name not in columns]
    if absent:
        raise BadRequest(f"not a Claude Recall file: the table `memories` lacks {', '.join(absent)}")
    chosen = [*_NEEDED, *(name for name in _OPTIONAL if name in columns)]
    rows = [
        (no, dict(zip(chosen, values, strict=True)))
        for no, *values in connection.execute(
            f"SELECT rowid, {', '.join(chosen)} FROM memories ORDER BY timestamp, rowid"
        )
    ]
    predecessors: dict[str, list[str]] = {}
    for _, row in rows:
        if row.get("superseded_by"):
            predecessors.setdefault(row["superseded_by"], []).append(row["key"])
    for no, row in rows:
        yield _item(no, row, tuple(predecessors.get(row["key"], ())))


def _item(no: int, row: dict[str, JSON], predecessors: tuple[str, ...]) -> Item | Unread:
    position = f"row {no}"
    try:
        value = json.loads(row["value"])
    except (ValueError, TypeError, RecursionError):
        value = row["value"]  # older versions stored plain text
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
    if not isinstance(value, dict) or depth == _MAX_DEPTH:
        return None
    return next((text for name in _TEXTS if (text := _text(value.get(name), depth + 1)) is not None), None)
