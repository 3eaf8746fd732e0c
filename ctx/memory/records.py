"""Converts memories to JSON records and to lines of an export, and creates their aliases."""

import hashlib
import re
import uuid
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from ctx.clock import iso_utc
from ctx.errors import BadRequest
from ctx.memory.columns import (
    CHECKS,
    COLUMNS,
    IDENTITY,
    LIST,
    PUBLIC,
    Memory,
    canonical,
    check_json,
    moment_ms,
    names,
    short_text,
    whole,
)
from ctx.memory.language import gist
from ctx.models import BANK, BANK_RULE, JSON, OWN_BANK, RESERVED_BANKS, TEXT_HASH_BYTES

ALIAS_RECALL = re.compile(r"memory_(\d{1,15})_([a-z0-9]{1,32})")
ALIAS_HINDSIGHT = re.compile(r"fact_([0-9a-f]{12})")


class Provenance(NamedTuple):
    """Who made a change, and with which tool. Stored with each memory and in the journal."""

    pack: str | None = None
    client: str | None = None
    transport: str | None = None
    principal: str | None = None
    tool: str | None = None
    session: str | None = None

    def to_json(self) -> JSON:
        """Only the known fields."""
        return {name: value for name, value in self._asdict().items() if value is not None}


UNKNOWN = Provenance()


def check_bank_id(bank: str) -> str:
    """Checks a bank id, and returns it. Raises `BadRequest` if it is reserved or malformed."""
    if not isinstance(bank, str) or not BANK.fullmatch(bank):
        raise BadRequest(f"a bank id has {BANK_RULE}")
    if bank in RESERVED_BANKS:
        raise BadRequest(f"the bank id '{bank}' is reserved; choose another")
    return bank


def check_nameable(bank: str) -> str:
    """As `check_bank_id`, but also refuses the private bank of a memory pack."""
    if check_bank_id(bank).startswith(OWN_BANK):
        raise BadRequest(f"the bank id '{bank}' is reserved; choose another")
    return bank


def no_bank(bank: str) -> str:
    """The message for an unknown bank."""
    return f"no memory bank called '{bank[:80]}'"


MOMENTS = frozenset(public for column, public in PUBLIC.items() if column.endswith("_ms"))
"""The fields of a record that are times in milliseconds."""


def public_name(column: str) -> str:
    return PUBLIC.get(column, column)


def to_json(memory: Memory, bank: str, given_names: Iterable[str] = ()) -> JSON:
    """The JSON record of a memory. Its `aliases` has the memory's name in each dialect (see `aliases`)."""
    return {
        "id": memory.id,
        "bank": bank,
        **{public: getattr(memory, column) for column, public in PUBLIC.items()},
        "timestamp": memory.uttered_ms,
        "said": iso(memory.uttered_ms),
        "happened": happened(memory),
        "contexts": all_contexts(memory),
        "aliases": aliases(memory, given_names),
    }


def iso(ms: int | None) -> str | None:
    """A time as ISO 8601 in UTC; None if it is unknown or outside the years 1 to 9999."""
    with suppress(OverflowError):
        return None if ms is None else iso_utc(ms)
    return None


def happened(memory: Memory) -> str | None:
    """When a memory's event happened: a day, days `FIRST/LAST`, or a moment; None if unknown."""
    if memory.event_ms is None:
        return None
    first, last = iso(memory.event_ms), iso(memory.event_last_ms)
    if first is None or last is None or last == first:
        return first[:10] if first and first.endswith("T00:00:00Z") else first
    return first[:10] if first[:10] == last[:10] else f"{first[:10]}/{last[:10]}"


def all_contexts(memory: Memory) -> list[str]:
    """All contexts in which a memory was said, in order."""
    return [*([memory.context] if memory.context else []), *memory.contexts]


def aliases(memory: Memory, given_names: Iterable[str] = ()) -> dict[str, str]:
    """Dialect -> name of a memory, for each dialect (product whose tools ctx offers) that does not use UUIDs.

    The name is one of `given_names`, else derived from the id and the time of creation, so it never changes.
    """
    bits = memory.id.replace("-", "")[:12]
    value, digits = int(bits, 16), ""
    while value or not digits:
        value, digit = divmod(value, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    names = {"claude-recall": f"memory_{memory.created_ms}_{digits}", "hindsight": f"fact_{bits}"}
    for name in given_names:
        for dialect, prefix in (("claude-recall", "memory_"), ("hindsight", "fact_")):
            if name.startswith(prefix):
                names[dialect] = name
    return names


def content_hash(memory: Memory) -> str:
    """The digest of a memory's content, which an import checks."""
    content = canonical({name: getattr(memory, name) for name in IDENTITY})
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[: 2 * TEXT_HASH_BYTES]


def draft(fields: dict[str, JSON], now_ms: int, source: Provenance, id: str) -> Memory:
    """Creates a memory from checked columns, without storing it. It is valid from the time it was said."""
    memory = Memory(
        id=id,
        metadata={},
        tags=[],
        session=source.session,
        source=source._replace(session=None).to_json(),
        flags=[],
        created_ms=now_ms,
        updated_ms=now_ms,
        accessed_ms=now_ms,
        contexts=[],
    )._replace(**fields)
    memory = memory._replace(valid_from_ms=memory.uttered_ms, gist=gist(memory.text))
    return memory._replace(content_hash=content_hash(memory))


# -- lines of an export --------------------------------------------------------------------------------------

_MANY = 1_000_000  # a list inside one line of an export may have at most this many entries
# Fields that lines from earlier versions of ctx lack. They are left out when empty, so that a memory still
# gives the same line.
_OPTIONAL = {PUBLIC[name] for name, column in COLUMNS.items() if column.since > 1 and name in PUBLIC}


def to_line(memory: Memory, given_names: Iterable[str], sessions: Iterable[str]) -> str:
    """A memory as one line of JSON. The same memory gives the same line in any bank and store."""
    record: dict[str, JSON] = {public: getattr(memory, column) for column, public in PUBLIC.items()}
    record = {name: value for name, value in record.items() if value or name not in _OPTIONAL}
    return canonical({**record, "names": sorted(given_names), "sessions": sorted(sessions)})


def from_line(record: JSON) -> tuple[Memory, list[str], list[str]]:
    """(memory, aliases that callers gave, sessions) of a parsed export line. Raises `BadRequest`."""
    if not isinstance(record, dict):
        raise BadRequest("a line of an export must be a JSON object")
    fields_of_line = {*PUBLIC.values(), "names", "sessions"}
    if absent := sorted(fields_of_line - _OPTIONAL - set(record)):
        raise BadRequest(f"the field '{absent[0]}' is missing")
    if unknown := sorted(set(record) - fields_of_line):
        raise BadRequest(f"unknown field '{unknown[0][:60]}'")
    fields = {column: _read(column, public, record) for column, public in PUBLIC.items() if public in record}
    try:
        fields["id"] = str(uuid.UUID(record["id"]))
    except (ValueError, AttributeError, TypeError):
        raise BadRequest("id: must be a UUID") from None
    memory = Memory(**{"contexts": [], **fields})
    memory = memory._replace(gist=gist(memory.text))
    if content_hash(memory) != record["content_hash"]:
        raise BadRequest("content_hash: the content differs from the exported content")
    return memory, names("names", record["names"], _MANY), names("sessions", record["sessions"], _MANY)


def _read(column: str, public: str, record: dict[str, JSON]) -> JSON:
    """Checks one field of a line, and returns its value. Raises `BadRequest`."""
    value = record[public]
    if COLUMNS[column].compared == LIST:
        return names(public, value, _MANY)
    if public == "metadata" and isinstance(value, dict):
        check_json(public, value, 0)
        return value
    if public in CHECKS:
        return CHECKS[public](public, value)
    if "NOT NULL" in COLUMNS[column].sql and value is None:
        raise BadRequest(f"{public}: must have a value")
    if column.endswith("_ms"):
        return moment_ms(public, value)
    if COLUMNS[column].sql.startswith("INTEGER"):
        return whole(public, value, 0, 2**53 - 1)
    if public == "source" and not isinstance(value, dict):
        raise BadRequest("source: must be a JSON object")
    if public == "superseded_by":
        return short_text(public, value)
    check_json(public, value, 0)
    return value
