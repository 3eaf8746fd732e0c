"""The base class of a bank: transactions, memories by id or alias, repeated requests, and everything that
only reads: records, pages of records, counts, history and journal.
"""

import base64
import hashlib
import json
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Self

from ctx.errors import BadRequest, Conflict, NotFound, StoreError
from ctx.memory.columns import (
    ORDERS,
    Memory,
    canonical,
    last_moment,
    order_key,
    order_value,
    short_text,
    whole,
)
from ctx.memory.filters import Condition, compile_filter
from ctx.memory.language import SCREENED, screen_json
from ctx.memory.reader import FORGOTTEN, SCALAR, TAG, UNDELETED, Reader, visible
from ctx.memory.records import ALIAS_HINDSIGHT, ALIAS_RECALL, Provenance, aliases, public_name, to_json
from ctx.memory.writer import Writer
from ctx.models import JSON

if TYPE_CHECKING:
    from ctx.memory.store import MemoryStore

logger = logging.getLogger(__name__)

MAX_LIMIT = 1000
MAX_ID_CHARS = 500
MAX_KEY_CHARS = 200
_GROUPS = ("kind", "type", "context", "folder", "label", "status", "session", "role", "document_id")
_TAG = re.compile(r'metadata\.([^"\\.\x00-\x1f]{1,128})')
# Columns that ctx computes; the history does not show their changes.
_FOLLOWING = ("content_hash", "updated_ms", "gist")


class Reading:
    """The operations that read a bank. `source` is recorded with every change."""

    def __init__(
        self, store: "MemoryStore", id: str, source: Provenance, memory_id: str | None = None
    ) -> None:
        self.id = id
        self.source = source
        self._store = store
        self._rows = store.rows
        self._embedding = store.embedding
        self._now = store.clock
        self._memory_id = memory_id

    def with_id(self, id: str) -> Self:
        """The same bank, but a new memory gets this id. Call only one `put` on the returned bank."""
        return type(self)(self._store, self.id, self.source, id)

    def _view(self) -> AbstractContextManager[Reader]:
        """A snapshot of the bank for reading. The bank need not exist."""
        return self._rows.reading(self.id)

    def _writing(self, op: str, *, durable: bool = True) -> AbstractContextManager[Writer]:
        """A transaction for one operation on the bank. Creates the bank if it does not exist."""
        return self._rows.writing(self.id, op, self._now(), self.source.to_json(), durable=durable)

    def _screened(self, columns: dict[str, JSON]) -> tuple[dict[str, JSON], set[str]]:
        """Applies the policy for secrets to `columns`. Returns the columns and the flags of their texts."""
        flags: set[str] = set()
        for name in SCREENED:
            if columns.get(name):
                columns[name], flags_of_value = screen_json(columns[name], self._store.secrets)
                flags |= flags_of_value
        return columns, flags

    def _shown(self, as_of: JSON, include_superseded: bool, forgotten: bool = False) -> Condition:
        if forgotten:
            return FORGOTTEN
        # A date without a time means the end of that day, so that memories of that day are included.
        as_of_ms = last_moment("as_of", as_of)
        return visible(self._now(), as_of_ms=as_of_ms, superseded=include_superseded)

    def _find(self, reader: Reader, id: str, *, deleted: bool = False) -> Memory | None:
        """The memory with this id, with an alias that a caller gave, or with a dialect's alias; else None.

        Deleted and expired memories are found only with `deleted`.
        """
        if not isinstance(id, str) or not 0 < len(id) <= MAX_ID_CHARS:
            raise BadRequest(f"id: must be a text of 1 to {MAX_ID_CHARS} characters")
        short_text("id", id)
        memory = reader.row(id.lower()) or reader.row_by_alias(id) or self._by_dialect(reader, id)
        if memory is None or deleted:
            return memory
        expired = memory.expires_ms is not None and memory.expires_ms <= self._now()
        return None if expired or memory.deleted_ms is not None else memory

    def _by_dialect(self, reader: Reader, id: str) -> Memory | None:
        if match := ALIAS_RECALL.fullmatch(id):
            condition = Condition("m.created_ms = ?", (int(match[1]),))
        elif match := ALIAS_HINDSIGHT.fullmatch(id):
            prefix = f"{match[1][:8]}-{match[1][8:]}"
            condition = Condition("m.id >= ? AND m.id < ?", (prefix, prefix + "\x7f"))
        else:
            return None
        memories = [memory for memory in reader.select([condition]) if id in aliases(memory).values()]
        return memories[0] if len(memories) == 1 else None

    def _must_find(self, reader: Reader, id: str, *, deleted: bool = False) -> Memory:
        if (memory := self._find(reader, id, deleted=deleted)) is None:
            hint = "search or list the bank to see ids"
            raise NotFound(f"no memory with the id '{id[:80]}' in this bank ({hint})")
        return memory

    def _records(self, reader: Reader, memories: Sequence[Memory]) -> list[JSON]:
        names = reader.aliases([memory.no for memory in memories]) if memories else {}
        return [to_json(memory, self.id, names.get(memory.no, ())) for memory in memories]

    def _count_reading(self, nos: Sequence[int]) -> None:
        try:
            if nos:  # a read must not create a bank
                with self._writing("touch", durable=False) as writer:
                    writer.touch(nos, self.source.session)
        except StoreError as error:
            # A search must not fail only because its access count cannot be written.
            logger.warning("memory=touch outcome=%s count=%d", error.word, len(nos))

    # -- reading ---------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Whether anything was ever written to the bank."""
        with self._view() as view:
            return view.exists

    def neighbours(self) -> list[str]:
        """The ids of all banks of the store, including this one."""
        with self._view() as view:
            return view.banks()

    def config(self) -> JSON:
        """The bank's configuration, such as `mission`, `skepticism`, `literalism` and `empathy` (1 to 5) for
        `synthesize`.
        """
        with self._view() as view:
            return view.bank.config

    def get(self, id: str, *, include_deleted: bool = False) -> JSON | None:
        """The record with this id or alias, even if it was superseded; None if there is none."""
        return self.get_many([id], include_deleted=include_deleted)[0]

    def get_many(self, ids: Sequence[str], *, include_deleted: bool = False) -> list[JSON | None]:
        """The records in the order of the ids; None for each id that does not exist."""
        _check_few(ids)
        with self._view() as view:
            memories = [self._find(view, id, deleted=include_deleted) for id in ids]
            records = iter(self._records(view, [memory for memory in memories if memory]))
            return [next(records) if memory else None for memory in memories]

    def children(self, id: str, *, limit: int = 1000, cursor: str | None = None) -> JSON:
        """The contents of a container, in order: `{"items", "cursor"}`. Raises `NotFound`."""
        with self._view() as view:
            filter = {"parent": self._must_find(view, id).id}
        return self.browse(filter, order="ordinal", limit=limit, cursor=cursor, include_superseded=True)

    def browse(
        self,
        filter: JSON = None,
        *,
        order: str = "-created",
        limit: int = 100,
        cursor: str | None = None,
        include_superseded: bool = False,
        as_of: JSON = None,
        forgotten: bool = False,
    ) -> JSON:
        """A page of records: `{"items", "cursor"}`; `cursor` is None on the last page.

        `order` is one of `ctx.memory.columns.ORDERS`, with `-` in front for descending. Pages neither repeat
        nor skip records while others write. `forgotten` lists only forgotten memories.
        """
        descending, name = order.startswith("-"), order.removeprefix("-")
        if name not in ORDERS:
            raise BadRequest(f"order: one of {', '.join(ORDERS)}, with '-' in front for descending")
        limit = whole("limit", limit, 1, MAX_LIMIT)
        conditions = [self._shown(as_of, include_superseded, forgotten), compile_filter(filter)]
        key, sign, direction = order_key(name), "<" if descending else ">", "DESC" if descending else "ASC"
        if cursor is not None:
            conditions.append(Condition(f"({key}, m.no) {sign} (?, ?)", _open_cursor(cursor, order)))
        with self._view() as view:
            memories = list(view.select(conditions, f"{key} {direction}, m.no {direction}", limit + 1))
            page = memories[:limit]
            records = self._records(view, page)
        return {"items": records, "cursor": _make_cursor(order, page[-1]) if len(memories) > limit else None}

    def every(self, filter: JSON = None, **options: JSON) -> Iterator[JSON]:
        """Yields all records that `browse` finds, reading one page at a time."""
        page: JSON = {"cursor": None, "items": ()}
        while True:
            page = self.browse(filter, limit=MAX_LIMIT, cursor=page["cursor"], **options)
            yield from page["items"]
            if page["cursor"] is None:
                return

    def ids_of(self, filter: JSON) -> list[str]:
        """The ids of all memories that match a filter, including replaced, forgotten and expired ones."""
        with self._view() as view:
            return [memory.id for memory in view.select([compile_filter(filter)])]

    def erased_ids(self) -> set[str]:
        """The ids of erased memories, from the journal."""
        with self._view() as view:
            return view.erased_ids()

    def count(
        self,
        filter: JSON = None,
        *,
        include_superseded: bool = False,
        as_of: JSON = None,
        forgotten: bool = False,
    ) -> int:
        """The number of records that `browse` finds."""
        with self._view() as view:
            return view.count([self._shown(as_of, include_superseded, forgotten), compile_filter(filter)])

    def stats(self, filter: JSON = None, *, group_by: str | None = None) -> JSON:
        """Statistics of visible memories: `{"count", "average_importance", "first_created", "last_created",
        "characters", "groups"}`. A group has the same keys and `value`.

        `group_by` is kind, type, context, folder, label, status, session, role, document_id, metadata.KEY or
        tags. Without it, `groups` is empty. A group's `value` may be null. When grouped by tags, a memory
        counts once for each of its tags.
        """
        column, values = _group_column(group_by)
        conditions = [visible(self._now()), compile_filter(filter)]
        with self._view() as view:
            [total] = view.summary(conditions, None) or [(None, 0, None, None, None, None)]
            groups = view.summary(conditions, column, values) if column else []
        return {**_summary(total), "groups": [{"value": row[0], **_summary(row)} for row in groups]}

    def contents(self, ids: Sequence[str]) -> JSON:
        """Container id -> `{"count", "characters", "first"}` of its contents; `first` is the text of the
        first one. Empty containers are left out.
        """
        _check_few(ids)
        names = ("count", "characters", "first")
        with self._view() as view:
            return {id: dict(zip(names, row, strict=True)) for id, row in view.contents(ids).items()}

    def sessions(self, id: str) -> list[str]:
        """The sessions that wrote or read a memory or its contents, sorted. Raises `NotFound`."""
        with self._view() as view:
            members = view.with_contents([self._must_find(view, id)])
            return sorted({session for member in members for session in view.sessions(member.no)})

    def history(self, id: str) -> list[JSON]:
        """All changes of a memory, even of a deleted one, oldest first: `{"version", "op", "op_id", "at",
        "by", "changed": {field: {"from", "to"}}}`. Raises `NotFound`.
        """
        with self._view() as view:
            memory = self._must_find(view, id, deleted=True)
            changes = view.history(memory.no)
        later: dict[str, JSON] = memory._asdict()
        entries = []
        for change in reversed(changes):
            before = change.pop("before")
            change["changed"] = {
                public_name(name): {"from": value, "to": later[name]}
                for name, value in before.items()
                if name not in _FOLLOWING
            }
            later |= before
            entries.append(change)
        return entries[::-1]

    def replaced_by_rule(self) -> list[JSON]:
        """The memories that language rules of earlier versions of ctx replaced, and that are still replaced:
        `{"id", "text", "by"}`.
        """
        replaced = []
        with self._view() as view:
            # In the journal, only a put that replaced a memory because of a language rule has a reason.
            puts = [line for line in view.journal() if line["op"] == "put"]
            by_rule = {line["op_id"] for line in puts if "reason" in line["detail"]}
            conditions = [UNDELETED, Condition("m.superseded_by IS NOT NULL", ())]
            for memory in list(view.select(conditions)) if by_rule else ():
                changes = view.history(memory.no)
                setting = [change["op_id"] for change in changes if "superseded_by" in change["before"]]
                if setting and setting[-1] in by_rule:
                    replaced.append({"id": memory.id, "text": memory.text, "by": memory.superseded_by})
        return replaced

    def journal(self, *, after: int = 0, limit: int = 100) -> list[JSON]:
        """The bank's operations in order: `{"no", "op", "op_id", "at", "by", "detail", "hash"}`."""
        after, limit = whole("after", after, 0, 2**53), whole("limit", limit, 1, MAX_LIMIT)
        with self._view() as view:
            return list(view.journal(after, limit))


def _group_column(group_by: str | None) -> tuple[str | None, tuple[JSON, ...]]:
    if group_by is None:
        return None, ()
    if group_by in _GROUPS:
        return f"m.{group_by}", ()
    if group_by == "tags":
        return TAG, ()
    match = _TAG.fullmatch(group_by) if isinstance(group_by, str) else None
    if match is None:
        raise BadRequest(f"group_by: one of {', '.join(_GROUPS)}, tags or metadata.KEY")
    path = f'$."{match[1]}"'
    return SCALAR, (path,) * SCALAR.count("?")


def _summary(row: Sequence[JSON]) -> dict[str, JSON]:
    _, count, mean, first_ms, last_ms, characters = row
    return {
        "count": count,
        "average_importance": None if mean is None else round(mean, 4),
        "first_created": first_ms,
        "last_created": last_ms,
        "characters": characters or 0,
    }


def _make_cursor(order: str, memory: Memory) -> str:
    entry = canonical([order, order_value(order.removeprefix("-"), memory), memory.no])
    return base64.urlsafe_b64encode(entry.encode()).decode()


def _open_cursor(cursor: str, order: str) -> tuple[JSON, int]:
    try:
        order_of_cursor, value, no = json.loads(base64.urlsafe_b64decode(cursor))
        if isinstance(value, int | float) and not abs(value) < 2**63:
            raise ValueError("no value of ours")
    except (ValueError, TypeError, AttributeError):
        message = "cursor: not from an earlier reply of this list (leave it out for the first page)"
        raise BadRequest(message) from None
    if order_of_cursor != order or isinstance(value, list | dict):
        raise BadRequest("cursor: it belongs to a list in another order (leave it out for the first page)")
    whole("cursor", no, -(2**63) + 1, 2**63 - 1)
    return value, no


def _check_few(ids: JSON) -> None:
    """Raises `BadRequest` unless `ids` is a list of at most `MAX_LIMIT` entries."""
    if not isinstance(ids, list | tuple) or len(ids) > MAX_LIMIT:
        raise BadRequest(f"ids: must be a list of at most {MAX_LIMIT}")


# -- repeated requests ---------------------------------------------------------------------------------------


class Request(NamedTuple):
    """An idempotency key and a digest of the call's arguments. A repeated call gets the stored reply."""

    key: str | None
    digest: str

    @classmethod
    def of(cls, key: JSON, op: str, arguments: dict[str, JSON]) -> "Request":
        """The request for a key and arguments. Raises `BadRequest` for a bad key."""
        try:
            content = json.dumps([op, arguments], sort_keys=True, default=str)
        except (TypeError, ValueError):
            raise BadRequest(f"{op}: the arguments are not JSON") from None
        digest = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
        return cls(given_name("idempotency_key", key), digest)

    def answered(self, reader: Reader) -> JSON | None:
        """The reply of the first call, with `repeated` set; None if this is the first call.

        Raises `Conflict` if the key was used for another request, or if the first call's memory was erased.
        """
        stored = reader.reply(self.key) if self.key is not None else None
        if stored is None:
            return None
        digest, reply = stored
        if reply is None:
            raise Conflict("the memory stored with this idempotency key was erased; choose a new key")
        if digest != self.digest:
            raise Conflict("the idempotency key was used for another request; choose a new key")
        return {**reply, "repeated": True}

    def keep(self, writer: Writer, reply: JSON) -> None:
        if self.key is not None:
            writer.keep_reply(self.key, self.digest, reply)


def given_name(name: str, value: JSON) -> str | None:
    """Checks an alias or key from a caller, and returns it. Raises `BadRequest`."""
    if value is not None and (not isinstance(value, str) or not 0 < len(value) <= MAX_KEY_CHARS):
        raise BadRequest(f"{name}: must be a text of 1 to {MAX_KEY_CHARS} characters")
    return short_text(name, value)
