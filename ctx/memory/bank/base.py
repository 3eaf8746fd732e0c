"""The base of all operations on a bank: transactions, finding a memory by its names, repeated requests."""

import hashlib
import json
import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Self

from ctx.errors import BadRequest, Conflict, NotFound, StoreError
from ctx.memory.columns import Memory, last_moment, short_text
from ctx.memory.filters import Condition
from ctx.memory.reader import Reader, visible
from ctx.memory.records import ALIAS_HINDSIGHT, ALIAS_RECALL, Provenance, aliases, to_json
from ctx.memory.screen import SCREENED, screen_json
from ctx.memory.writer import Writer
from ctx.models import JSON

if TYPE_CHECKING:
    from ctx.memory.store import MemoryStore

logger = logging.getLogger(__name__)

MAX_LIMIT = 1000
MAX_ID_CHARS = 500
MAX_KEY_CHARS = 200


class BankView:
    """One bank of a store. `source` is recorded with every change."""

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
        """The same bank, but new memories get this id. Use it for a single `put`."""
        return type(self)(self._store, self.id, self.source, id)

    def _view(self) -> AbstractContextManager[Reader]:
        """A snapshot of the bank for reading. The bank need not exist."""
        return self._rows.reading(self.id)

    def _writing(self, op: str, *, durable: bool = True) -> AbstractContextManager[Writer]:
        """A transaction for one operation on the bank. Creates the bank if it does not exist."""
        return self._rows.writing(self.id, op, self._now(), self.source.to_json(), durable=durable)

    def _screened(self, columns: dict[str, JSON]) -> tuple[dict[str, JSON], set[str]]:
        """Applies the policy for secrets to `columns`. Returns them and the flags of their content."""
        flags: set[str] = set()
        for name in SCREENED:
            if columns.get(name):
                columns[name], flags_of_value = screen_json(columns[name], self._store.secrets)
                flags |= flags_of_value
        return columns, flags

    def _shown(self, as_of: JSON, include_superseded: bool) -> Condition:
        # A date means the end of that day, so that memories of the day are included.
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
        memory = self._find(reader, id, deleted=deleted)
        if memory is None:
            raise NotFound(
                f"no memory with the id '{id[:80]}' in this bank (search or list the bank to see ids)"
            )
        return memory

    def _records(self, reader: Reader, memories: Sequence[Memory]) -> list[JSON]:
        names = reader.aliases([memory.no for memory in memories]) if memories else {}
        return [to_json(memory, self.id, names.get(memory.no, ())) for memory in memories]

    def _count_reading(self, nos: Sequence[int]) -> None:
        if not nos:
            return  # a read must not create a bank
        try:
            with self._writing("touch", durable=False) as writer:
                writer.touch(nos, self.source.session)
        except StoreError as error:
            # A search must not fail only because its access count cannot be written.
            logger.warning("memory=touch outcome=%s count=%d", error.word, len(nos))


class Request(NamedTuple):
    """An idempotency key with a digest of the call's arguments. A repeated call gets the stored reply."""

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
        kept_reply = reader.reply(self.key) if self.key is not None else None
        if kept_reply is None:
            return None
        if kept_reply[1] is None:
            raise Conflict("the memory stored with this idempotency key was erased; choose a new key")
        if kept_reply[0] != self.digest:
            raise Conflict("the idempotency key was used for another request; choose a new key")
        return {**kept_reply[1], "repeated": True}

    def keep(self, writer: Writer, reply: JSON) -> None:
        if self.key is not None:
            writer.keep_reply(self.key, self.digest, reply)


def given_name(name: str, value: JSON) -> str | None:
    """Checks a name that a caller gives, and returns it. Raises `BadRequest`."""
    if value is not None and (not isinstance(value, str) or not 0 < len(value) <= MAX_KEY_CHARS):
        raise BadRequest(f"{name}: must be a text of 1 to {MAX_KEY_CHARS} characters")
    return short_text(name, value)
