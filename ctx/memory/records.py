"""A memory as the outside sees it: the JSON record, the fields a caller may set, and a memory's other names."""

import hashlib
import math
import re
import uuid
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ctx.clock import parse_ms
from ctx.errors import BadRequest
from ctx.identity import TEXT_HASH_BYTES
from ctx.memory.rows import Memory, canonical
from ctx.types import JSON

MAX_TEXT_CHARS = 1_000_000
MAX_METADATA_CHARS = 256_000  # as JSON
MAX_METADATA_DEPTH = 32
MAX_TAGS = 100
MAX_NAME_CHARS = 500  # of a label, folder, context, type, tag, session
BANK_ID = re.compile(r"[\w.@:+-]{1,128}")
RESERVED_BANKS = frozenset(
    {"tools", "sse", "messages"}
)  # second path segments under /mcp/ that mean something else
STATUSES = ("active", "archived")

# What a column is called outside; the others keep their name, and `_HIDDEN` stay inside.
_PUBLIC = {
    "event_ms": "event_date",
    "created_ms": "created",
    "updated_ms": "updated",
    "accessed_ms": "last_accessed",
    "valid_from_ms": "valid_from",
    "valid_to_ms": "valid_to",
    "expires_ms": "expires_at",
    "deleted_ms": "deleted_at",
}
_HIDDEN = ("no", "seq", "term_count")
_COLUMN_OF = {name: column for column, name in _PUBLIC.items()}
# What makes two memories the same: not who said it, when, or how important it was thought.
_IDENTITY = (
    "kind",
    "parent",
    "ordinal",
    "role",
    "text",
    "type",
    "context",
    "folder",
    "label",
    "metadata",
    "tags",
    "event_ms",
)

_ALIAS_RECALL = re.compile(r"memory_(\d{1,15})_([a-z0-9]{1,32})")
_ALIAS_HINDSIGHT = re.compile(r"fact_([0-9a-f]{12})")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class Provenance(NamedTuple):
    """Who writes, by what tool and door: kept with each memory and in the journal."""

    pack: str | None = None
    client: str | None = None
    transport: str | None = None
    principal: str | None = None
    tool: str | None = None
    session: str | None = None

    def to_json(self) -> JSON:
        """Without what is unknown."""
        return {name: value for name, value in self._asdict().items() if value is not None}


UNKNOWN = Provenance()


def check_bank_id(bank: str) -> str:
    """The id itself. Raises `BadRequest` for one that is reserved or malformed."""
    if not isinstance(bank, str) or not BANK_ID.fullmatch(bank):
        raise BadRequest("a bank id has 1 to 128 letters, digits or . @ : + - _")
    if bank in RESERVED_BANKS or bank in (".", ".."):
        raise BadRequest(f"the bank id '{bank}' is reserved; choose another")
    return bank


def public_name(column: str) -> str:
    return _PUBLIC.get(column, column)


def to_json(memory: Memory, bank: str, given: Iterable[str] = ()) -> JSON:
    """The record. `given` are names it was explicitly given; `aliases` has one name for each dialect."""
    record: dict[str, JSON] = {"id": memory.id, "bank": bank}
    for column, value in zip(memory._fields, memory, strict=True):
        if column not in _HIDDEN and column != "id":
            record[_PUBLIC.get(column, column)] = value
    record["aliases"] = aliases(memory, given)
    return record


def aliases(memory: Memory, given: Iterable[str] = ()) -> dict[str, str]:
    """The memory's name in each dialect that does not use UUIDs; derived from id and time of creation, so it never changes."""
    bits = memory.id.replace("-", "")[:12]
    try:
        number = int(bits, 16)
    except ValueError:
        number = int(hashlib.sha256(memory.id.encode()).hexdigest()[:12], 16)
        bits = f"{number:012x}"
    found = {"claude-recall": f"memory_{memory.created_ms}_{_base36(number)}", "hindsight": f"fact_{bits}"}
    for name in given:
        if name.startswith("memory_"):
            found["claude-recall"] = name
        elif name.startswith("fact_"):
            found["hindsight"] = name
    return found


def creation_of(alias: str) -> int | None:
    """When the memory of a Claude Recall name was made, in milliseconds; None for other names."""
    match = _ALIAS_RECALL.fullmatch(alias)
    return int(match[1]) if match else None


def id_prefix_of(alias: str) -> str | None:
    """How the id of the memory of a Hindsight name begins; None for other names."""
    match = _ALIAS_HINDSIGHT.fullmatch(alias)
    return f"{match[1][:8]}-{match[1][8:]}" if match else None


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"


def content_hash(memory: Memory) -> str:
    """The same for memories that say the same."""
    said = canonical({name: getattr(memory, name) for name in _IDENTITY})
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[: 2 * TEXT_HASH_BYTES]


# -- fields a caller sets -----------------------------------------------------------------------------------------


def moment_ms(name: str, value: JSON) -> int | None:
    """Milliseconds of a time given as such or in ISO 8601."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return parse_ms(value)
        except ValueError:
            raise BadRequest(f"{name}: '{value[:40]}' is not an ISO 8601 date or time") from None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**53:
        raise BadRequest(f"{name}: give milliseconds since the epoch or an ISO 8601 text")
    return value


def body_text(name: str, value: JSON) -> str:
    if not isinstance(value, str) or not value.strip():
        raise BadRequest(f"{name}: a text with at least one character is needed")
    if len(value) > MAX_TEXT_CHARS:
        raise BadRequest(
            f"{name}: {len(value)} characters, at most {MAX_TEXT_CHARS} are kept; store it in parts"
        )
    _check_unicode(name, value)
    return value


def _check_unicode(name: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadRequest(f"{name}: half of a character (a lone surrogate) is not text") from None


def short_text(name: str, value: JSON) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > MAX_NAME_CHARS:
        raise BadRequest(f"{name}: a text of at most {MAX_NAME_CHARS} characters is needed")
    _check_unicode(name, value)
    return value


def _folder(name: str, value: JSON) -> str | None:
    folder = short_text(name, value)
    if folder is None:
        return None
    if not folder.startswith("/") or ".." in folder.split("/") or any(ord(one) < 32 for one in folder):
        raise BadRequest(f"{name}: a folder starts with '/' and has no '..'")
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
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 10:
        raise BadRequest(f"{name}: a number from 0 to 10")
    return value


def _ordinal(name: str, value: JSON) -> int | None:
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value < 2**53
        or value != int(value)
    ):
        raise BadRequest(f"{name}: a whole number from 0")
    return int(value)


def _metadata(name: str, value: JSON) -> JSON:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadRequest(f"{name}: a JSON object is needed")
    check_json(name, value, 0)
    if len(canonical(value)) > MAX_METADATA_CHARS:
        raise BadRequest(f"{name}: more than {MAX_METADATA_CHARS} characters of JSON")
    return value


def check_json(name: str, value: JSON, depth: int) -> None:
    """Raises `BadRequest` for what JSON cannot say, or says too deeply."""
    if depth > MAX_METADATA_DEPTH:
        raise BadRequest(f"{name}: nested more than {MAX_METADATA_DEPTH} deep")
    if isinstance(value, str):
        _check_unicode(name, value)
    elif isinstance(value, dict):
        for key, one in value.items():
            if not isinstance(key, str):
                raise BadRequest(f"{name}: keys are texts")
            _check_unicode(name, key)
            check_json(name, one, depth + 1)
    elif isinstance(value, list):
        for one in value:
            check_json(name, one, depth + 1)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise BadRequest(f"{name}: a number that is not finite")
    elif value is not None and not isinstance(value, bool | int):
        raise BadRequest(f"{name}: {type(value).__name__} is not JSON")


def _tags(name: str, value: JSON) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > MAX_TAGS:
        raise BadRequest(f"{name}: a list of at most {MAX_TAGS} texts")
    found = [short_text(name, one) for one in value]
    if not all(found):
        raise BadRequest(f"{name}: a tag is a text with at least one character")
    return list(dict.fromkeys(one for one in found if one))


_Check = Callable[[str, JSON], JSON]
# What `put` and `update` accept: public name -> check.
SETTABLE: dict[str, _Check] = {
    "kind": _kind,
    "parent": short_text,
    "ordinal": _ordinal,
    "role": short_text,
    "text": body_text,
    "type": short_text,
    "context": short_text,
    "folder": _folder,
    "label": short_text,
    "status": _status,
    "importance": _importance,
    "metadata": _metadata,
    "tags": _tags,
    "session": short_text,
    "event_date": moment_ms,
    "expires_at": moment_ms,
}
UPDATABLE = tuple(name for name in SETTABLE if name not in ("kind", "parent", "session"))


def columns(fields: dict[str, JSON], known: Iterable[str] = tuple(SETTABLE)) -> dict[str, JSON]:
    """Checked values by column. Raises `BadRequest` that names the field."""
    allowed = tuple(known)
    found = {}
    for name, value in fields.items():
        if name not in allowed:
            raise BadRequest(f"unknown field '{str(name)[:60]}' (known: {', '.join(allowed)})")
        found[_COLUMN_OF.get(name, name)] = SETTABLE[name](name, value)
    return found


def draft(fields: dict[str, JSON], now_ms: int, source: Provenance, new_id: Callable[[], str]) -> Memory:
    """A new memory from checked columns, not yet stored."""
    memory = Memory(
        no=0,
        seq=0,
        id=new_id(),
        kind="fact",
        parent=None,
        ordinal=None,
        role=None,
        text="",
        type=None,
        context=None,
        folder=None,
        label=None,
        status="active",
        importance=5,
        metadata={},
        tags=[],
        session=source.session,
        source=source._replace(session=None).to_json(),
        flags=[],
        event_ms=None,
        created_ms=now_ms,
        updated_ms=now_ms,
        accessed_ms=now_ms,
        access_count=0,
        valid_from_ms=now_ms,
        valid_to_ms=None,
        superseded_by=None,
        expires_ms=None,
        deleted_ms=None,
        content_hash="",
        version=1,
        term_count=0,
    )._replace(**fields)
    return memory._replace(content_hash=content_hash(memory))


# -- lines of an export -------------------------------------------------------------------------------------------

_EXPORTED = tuple(name for name in Memory._fields if name not in _HIDDEN)


def to_line(memory: Memory, given: Iterable[str], sessions: Iterable[str]) -> str:
    """A memory as one line of JSON: the same memory, the same bytes, whatever bank or file it is in."""
    record: dict[str, JSON] = {public_name(column): getattr(memory, column) for column in _EXPORTED}
    return canonical({**record, "names": sorted(given), "sessions": sorted(sessions)})


def from_line(record: JSON) -> tuple[Memory, list[str], list[str]]:
    """(memory, its given names, its sessions) of an exported line. Raises `BadRequest`."""
    if not isinstance(record, dict):
        raise BadRequest("a line of an export is a JSON object")
    wanted = {public_name(column) for column in _EXPORTED} | {"names", "sessions"}
    if missing := sorted(wanted - set(record)):
        raise BadRequest(f"the field '{missing[0]}' is missing")
    if unknown := sorted(set(record) - wanted):
        raise BadRequest(f"unknown field '{unknown[0][:60]}'")
    fields: dict[str, JSON] = {}
    for column in _EXPORTED:
        name = public_name(column)
        value = record[name]
        if name in SETTABLE:
            fields[column] = SETTABLE[name](name, value)
        elif column.endswith("_ms"):
            fields[column] = moment_ms(name, value)
        else:
            check_json(name, value, 0)
            fields[column] = value
    for name in ("created", "updated", "last_accessed", "valid_from"):
        if record[name] is None:
            raise BadRequest(f"{name}: a time is needed")
    for name in ("version", "access_count"):
        if (
            isinstance(record[name], bool)
            or not isinstance(record[name], int)
            or not 0 <= record[name] < 2**53
        ):
            raise BadRequest(f"{name}: a whole number is needed")
    if not isinstance(record["source"], dict):
        raise BadRequest("source: a JSON object is needed")
    _tags("flags", record["flags"])
    short_text("superseded_by", record["superseded_by"])
    try:
        fields["id"] = str(uuid.UUID(record["id"]))
    except (ValueError, AttributeError, TypeError):
        raise BadRequest("id: a UUID is needed") from None
    memory = Memory(no=0, seq=0, term_count=0, **fields)
    if content_hash(memory) != record["content_hash"]:
        raise BadRequest("content_hash: the content is not the one that was exported")
    return memory, _tags("names", record["names"]), _tags("sessions", record["sessions"])
