"""The columns of a memory, each declared once, and the checks of values that callers give.

The SQL table, the JSON record, the filters and the sort orders are derived from the class `Memory`. The
`Column` of each field says how the field is stored, checked and compared, and what callers call it. Times are
milliseconds since the epoch, UTC.
"""

import json
import math
import re
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, NamedTuple, get_type_hints

from ctx.clock import parse_ms
from ctx.errors import BadRequest
from ctx.models import JSON, is_number, is_whole

MAX_TEXT_CHARS = 1_000_000
MAX_METADATA_CHARS = 256_000  # the length of the metadata as JSON
MAX_METADATA_DEPTH = 32
MAX_NUMBER = 2**63 - 1  # larger numbers lose digits in SQLite and Lua
MAX_TAGS = 100
MAX_NAME_CHARS = 500  # longest label, folder, context, type, tag or session
STATUSES = ("active", "archived")

TEXT, NUMBER, TIME, LIST, OBJECT = "text", "number", "time", "list", "object"

Check = Callable[[str, JSON], JSON]


def canonical(value: JSON) -> str:
    """JSON with sorted keys and no spaces, so that equal values give equal texts."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)


# -- checks of a caller's values -----------------------------------------------------------------------------


def moment_ms(name: str, value: JSON, *, end_of_day: bool = False) -> int | None:
    """A time in milliseconds, from milliseconds or ISO 8601. Raises `BadRequest`.

    A date without a time means the first moment of the day, or with `end_of_day` the last.
    """
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return parse_ms(value, end_of_day=end_of_day)
        except ValueError:
            raise BadRequest(
                f"{name}: '{value[:40]}' is not an ISO 8601 date or time of the years 1 to 9999"
                " (write 2026-05-03 or 2026-05-03T14:30:00Z)"
            ) from None
    value = plain_number(value)
    if not is_whole(value) or abs(value) >= 2**53:
        raise BadRequest(f"{name}: give milliseconds since the epoch or an ISO 8601 text")
    return value


last_moment = partial(moment_ms, end_of_day=True)
"""As `moment_ms`, but a date without a time means the last moment of the day."""


def check_unicode(name: str, value: str) -> None:
    """Raises `BadRequest` for a text that UTF-8 cannot encode."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadRequest(f"{name}: has a lone surrogate, which is not valid text") from None


def body_text(name: str, value: JSON) -> str:
    """Checks the text of a memory, and returns it. Raises `BadRequest`."""
    if not isinstance(value, str) or not value.strip():
        raise BadRequest(f"{name}: must be a text with at least one character")
    if len(value) > MAX_TEXT_CHARS:
        raise BadRequest(f"{name}: more than {MAX_TEXT_CHARS} characters; store it in parts")
    check_unicode(name, value)
    return value


def short_text(name: str, value: JSON) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > MAX_NAME_CHARS:
        raise BadRequest(f"{name}: must be a text of at most {MAX_NAME_CHARS} characters")
    check_unicode(name, value)
    return value


def _folder(name: str, value: JSON) -> str | None:
    if (folder := short_text(name, value)) is None:
        return None
    if not folder.startswith("/") or ".." in folder.split("/") or any(ord(char) < 32 for char in folder):
        raise BadRequest(f"{name}: a folder must start with '/' and have no '..'")
    return "/" + "/".join(part for part in folder.split("/") if part)


def _status(name: str, value: JSON) -> str:
    if value not in STATUSES:
        raise BadRequest(f"{name}: one of {', '.join(STATUSES)}")
    return str(value)


def _kind(name: str, value: JSON) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[a-z][a-z0-9_-]{0,40}", value):
        raise BadRequest(f"{name}: a word in small letters (fact, conversation, message)")
    return value


def _importance(name: str, value: JSON) -> float | None:
    return None if value is None else plain_number(number(name, value, 0, 10))


def _ordinal(name: str, value: JSON) -> int | None:
    return None if value is None else whole(name, value, 0, 2**53 - 1)


def number(name: str, value: JSON, low: float, high: float) -> float:
    """Checks a number, and returns it. Raises `BadRequest` if it is outside [low, high]."""
    if not is_number(value) or not low <= value <= high:
        raise BadRequest(f"{name}: must be a number from {low:g} to {high:g}")
    return value


def whole(name: str, value: JSON, low: int, high: int) -> int:
    """Checks a whole number (3.0 counts as 3), and returns it. Raises `BadRequest` outside [low, high]."""
    value = plain_number(value)
    if not is_whole(value) or not low <= value <= high:
        raise BadRequest(f"{name}: must be a whole number from {low} to {high}")
    return value


def plain_number(value: float | None) -> float | None:
    """The number, as an int if it is whole, because PostgreSQL returns 5 as 5.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _metadata(name: str, value: JSON) -> JSON:
    value = {} if value is None else value
    if not isinstance(value, dict):
        raise BadRequest(f"{name}: must be a JSON object")
    check_json(name, value, 0)
    if not fits_metadata(value):
        raise BadRequest(f"{name}: more than {MAX_METADATA_CHARS} characters of JSON")
    return value


def fits_metadata(value: JSON) -> bool:
    """Whether metadata is small enough to store."""
    return len(canonical(value)) <= MAX_METADATA_CHARS


def check_json(name: str, value: JSON, depth: int) -> None:
    """Raises `BadRequest` for a value that is not JSON or is nested too deeply. `depth` counts from 0."""
    if depth > MAX_METADATA_DEPTH:
        raise BadRequest(f"{name}: nested more than {MAX_METADATA_DEPTH} deep")
    if isinstance(value, str):
        check_unicode(name, value)
    elif isinstance(value, dict):
        for key, entry in value.items():
            if not isinstance(key, str):
                raise BadRequest(f"{name}: keys must be texts")
            check_unicode(name, key)
            check_json(name, entry, depth + 1)
    elif isinstance(value, list):
        for entry in value:
            check_json(name, entry, depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise BadRequest(f"{name}: a number that is not finite")
    elif value is not None and not isinstance(value, bool | int | float):
        raise BadRequest(f"{name}: {type(value).__name__} is not JSON")


def check_number(name: str, value: float) -> None:
    """Raises `BadRequest` for a number that SQLite or Lua cannot store exactly.

    Floats have the same limit as integers, because a larger integer may arrive as a float.
    """
    if not math.isfinite(value):
        raise BadRequest(f"{name}: a number that is not finite")
    if abs(value) > MAX_NUMBER:
        raise BadRequest(f"{name}: a number beyond {MAX_NUMBER} would lose digits; give it as a text")


def check_numbers(name: str, value: JSON) -> None:
    """Runs `check_number` on every number in a value, at any depth."""
    pending = [value]
    while pending:
        entry = pending.pop()
        if isinstance(entry, dict):
            pending += entry.values()
        elif isinstance(entry, list):
            pending += entry
        elif isinstance(entry, int | float):
            check_number(name, entry)


def names(name: str, value: JSON, most: int = MAX_TAGS) -> list[str]:
    """Checks a list of short texts, and returns it without duplicates. Raises `BadRequest`."""
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > most:
        raise BadRequest(f"{name}: a list of at most {most} texts")
    entries = [short_text(name, entry) for entry in value]
    if not all(entries):
        raise BadRequest(f"{name}: each entry must be a text with at least one character")
    return list(dict.fromkeys(entry for entry in entries if entry))


# -- the table -----------------------------------------------------------------------------------------------


class Column(NamedTuple):
    """How a field of a memory is stored, checked and compared.

    `sql` is the SQL type. `public` is the name that callers use; None for an internal field. `check` checks a
    caller's value; None if callers cannot set the field. `fixed`: the field never changes. `compared`: its
    type in filters. `identity`: the field is part of the content hash. `order`: the value used for NULL when
    sorting; None if memories cannot be sorted by the field. `since`: the schema version that added the field.
    """

    sql: str
    public: str | None = None
    check: Check | None = None
    fixed: bool = False
    compared: str | None = None
    identity: bool = False
    order: JSON = None
    since: int = 1


_REQUIRED = object()  # the `order` of a column that is never NULL


def _named(public: str, check: Check = short_text, sql: str = "TEXT", **more: Any) -> Column:
    """A text column. It is part of the content hash unless `more` says otherwise."""
    return Column(sql, public, check, compared=TEXT, **{"identity": True, **more})


def _valued(
    public: str, check: Check | None = None, compared: str = TIME, sql: str = "INTEGER", **more: Any
) -> Column:
    """A column with a number or a time, which may be absent."""
    return Column(sql, public, check, compared=compared, **more)


_measured = partial(Column, "INTEGER NOT NULL", compared=TIME)
_listed = partial(Column, "TEXT NOT NULL", compared=LIST, identity=True)
_MORE_CONTEXTS = Column("TEXT NOT NULL DEFAULT '[]'", "contexts", names, compared=LIST, since=2)


class Memory(NamedTuple):
    """A stored memory. The fields are the columns of the SQL table `memories`, in order.

    Times: the memory was said at `said_ms`, and stored at `created_ms`. The event it tells of happened from
    `event_ms` to `event_last_ms`. At `valid_to_ms` another memory (`superseded_by`) replaced it. At
    `deleted_ms` it was forgotten, which can be undone. From `expires_ms` on, searches no longer find it.
    `version` starts at 1 and grows with every change; a read is not a change.
    """

    no: Annotated[int, Column("INTEGER PRIMARY KEY AUTOINCREMENT")] = 0
    seq: Annotated[int, Column("INTEGER NOT NULL")] = 0
    id: Annotated[str, Column("TEXT NOT NULL", "id", compared=TEXT)] = ""
    kind: Annotated[str, _named("kind", _kind, "TEXT NOT NULL", fixed=True)] = "fact"
    parent: Annotated[str | None, _named("parent", fixed=True)] = None
    ordinal: Annotated[int | None, _valued("ordinal", _ordinal, NUMBER, identity=True, order=-1)] = None
    role: Annotated[str | None, _named("role")] = None
    text: Annotated[str, _named("text", body_text, "TEXT NOT NULL")] = ""
    type: Annotated[str | None, _named("type")] = None
    context: Annotated[str | None, _named("context")] = None
    folder: Annotated[str | None, _named("folder", _folder)] = None
    label: Annotated[str | None, _named("label", order="")] = None
    status: Annotated[str, _named("status", _status, "TEXT NOT NULL", identity=False)] = "active"
    importance: Annotated[float | None, _valued("importance", _importance, NUMBER, "", order=-1)] = 5
    metadata: Annotated[JSON, _listed("metadata", _metadata, compared=OBJECT)] = None
    tags: Annotated[list[str], _listed("tags", names)] = None  # type: ignore[assignment]  # see `draft`
    session: Annotated[str | None, _named("session", fixed=True, identity=False)] = None
    source: Annotated[JSON, _listed("source", compared=OBJECT, identity=False)] = None
    flags: Annotated[list[str], _listed("flags", identity=False)] = None  # type: ignore[assignment]
    event_ms: Annotated[int | None, _valued("event_date", moment_ms, identity=True, order=-(2**53))] = None
    created_ms: Annotated[int, _measured("created", order=_REQUIRED)] = 0
    updated_ms: Annotated[int, _measured("updated", order=_REQUIRED)] = 0
    accessed_ms: Annotated[int, _measured("last_accessed", order=_REQUIRED)] = 0
    access_count: Annotated[int, _measured("access_count", compared=NUMBER)] = 0
    valid_from_ms: Annotated[int, _measured("valid_from")] = 0
    valid_to_ms: Annotated[int | None, _valued("valid_to")] = None
    superseded_by: Annotated[str | None, Column("TEXT", "superseded_by", compared=TEXT)] = None
    expires_ms: Annotated[int | None, _valued("expires_at", moment_ms)] = None
    deleted_ms: Annotated[int | None, Column("INTEGER", "deleted_at")] = None
    content_hash: Annotated[str, Column("TEXT NOT NULL", "content_hash")] = ""
    version: Annotated[int, _measured("version", compared=NUMBER)] = 1
    term_count: Annotated[int, Column("INTEGER NOT NULL")] = 0
    said_ms: Annotated[int | None, _valued("timestamp", moment_ms, order=_REQUIRED, since=2)] = None
    event_last_ms: Annotated[int | None, _valued("event_end", last_moment, since=2)] = None
    contexts: Annotated[list[str], _MORE_CONTEXTS] = None  # type: ignore[assignment]
    document_id: Annotated[str | None, _named("document_id", identity=False, since=2)] = None
    gist: Annotated[str, Column("TEXT NOT NULL DEFAULT ''", since=2)] = ""

    @property
    def uttered_ms(self) -> int:
        """The time when it was said; if unknown, when it was stored."""
        return self.created_ms if self.said_ms is None else self.said_ms


COLUMNS: dict[str, Column] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(Memory, include_extras=True).items()
}
PUBLIC = {name: column.public for name, column in COLUMNS.items() if column.public}
COLUMN_OF = {public: name for name, public in PUBLIC.items()}
IDENTITY = tuple(name for name, column in COLUMNS.items() if column.identity)
CHECKS: dict[str, Check] = {
    column.public: column.check for column in COLUMNS.values() if column.public and column.check
}
SETTABLE = tuple(CHECKS)
UPDATABLE = tuple(name for name in SETTABLE if not COLUMNS[COLUMN_OF[name]].fixed)
COMPARED = {PUBLIC[name]: (column.compared, name) for name, column in COLUMNS.items() if column.compared}
JSON_COLUMNS = tuple(name for name, column in COLUMNS.items() if column.compared in (LIST, OBJECT))
ORDERS = {PUBLIC[name]: name for name, column in COLUMNS.items() if column.order is not None}


def order_key(name: str) -> str:
    """The SQL expression that sorts by a field, given its public name. Never NULL, so that paging works."""
    value, stand_in = column_sql("m", ORDERS[name]), COLUMNS[ORDERS[name]].order
    return value if stand_in is _REQUIRED else f"coalesce({value}, {stand_in!r})"


def order_value(name: str, memory: Memory) -> JSON:
    """The value that the expression of `order_key` has for this memory."""
    column = ORDERS[name]
    value = getattr(memory, column)
    if value is not None:
        return value
    return memory.created_ms if column == "said_ms" else COLUMNS[column].order


def column_sql(alias: str, column: str) -> str:
    """The SQL expression for a column. An unknown `said_ms` becomes the time of storing."""
    return f"coalesce({alias}.said_ms, {alias}.created_ms)" if column == "said_ms" else f"{alias}.{column}"


def table_sql(version: int) -> str:
    """The column definitions for `CREATE TABLE memories` of one version of the schema."""
    lines = [f"{name} {column.sql}".rstrip() for name, column in COLUMNS.items() if column.since == version]
    lines.insert(1, "bank_no INTEGER NOT NULL REFERENCES memory_banks (bank_no)")
    return ",\n      ".join([*lines, "UNIQUE (bank_no, id)"])


def added_sql(version: int) -> str:
    """The statements that add the columns that are new in a version of the schema."""
    return "\n".join(
        f"ALTER TABLE memories ADD COLUMN {name} {column.sql};"
        for name, column in COLUMNS.items()
        if column.since == version
    )


def checked(fields: dict[str, JSON], allowed: tuple[str, ...] = SETTABLE) -> dict[str, JSON]:
    """Checks a caller's fields. Returns column -> value. Raises `BadRequest`, which names the field."""
    values = {}
    for name, value in fields.items():
        if name not in allowed:
            raise BadRequest(f"unknown field '{str(name)[:60]}' (known: {', '.join(allowed)})")
        values[COLUMN_OF[name]] = CHECKS[name](name, value)
    if "contexts" in values:  # callers give all contexts; the first one is stored in a separate column
        contexts = values["contexts"]
        values.setdefault("context", contexts[0] if contexts else None)
        values["contexts"] = [context for context in contexts if context != values["context"]]
    return values
