"""The base of all operations on a bank: read and write transactions, and lookup of a memory by its names."""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Self

from ctx.errors import BadRequest, NotFound, StoreError
from ctx.memory.columns import Memory, last_moment, short_text
from ctx.memory.embedding import Embedding
from ctx.memory.filters import Condition
from ctx.memory.reader import Reader, visible
from ctx.memory.records import Provenance, creation_of, id_prefix_of, to_json
from ctx.memory.reflect import LanguageModel
from ctx.memory.rows import MemoryRows
from ctx.memory.screen import SCREENED, screen_json
from ctx.memory.writer import Writer
from ctx.models import JSON

logger = logging.getLogger(__name__)

MAX_LIMIT = 1000
MAX_ID_CHARS = 500


class Resources(NamedTuple):
    """What all banks of a store share."""

    rows: MemoryRows
    embedding: Embedding
    clock: Callable[[], int]
    secrets: str
    language_model: LanguageModel | None
    consolidate: bool
    new_id: Callable[[], str]


class BankView:
    """One bank of a store; `source` says who works on it."""

    def __init__(self, resources: Resources, id: str, source: Provenance) -> None:
        self.id = id
        self.source = source
        self._resources = resources
        self._embedding = resources.embedding

    def with_id(self, id: str) -> Self:
        """The same bank for one `put`: what it stores has this id, as it had where it comes from."""
        return type(self)(self._resources._replace(new_id=lambda: id), self.id, self.source)

    def _view(self) -> AbstractContextManager[Reader]:
        """One snapshot of the bank, which may not be there."""
        return self._resources.rows.reading(self.id)

    def _writing(self, op: str, *, durable: bool = True) -> AbstractContextManager[Writer]:
        """One operation on the bank, which is made if it is not there."""
        return self._resources.rows.writing(self.id, op, self._now(), self.source.to_json(), durable=durable)

    def _now(self) -> int:
        return self._resources.clock()

    def _screened(self, columns: dict[str, JSON]) -> tuple[dict[str, JSON], set[str]]:
        """The columns after the policy on secrets, and the flags of their content."""
        flags: set[str] = set()
        for name in SCREENED:
            if columns.get(name):
                columns[name], flags_of_value = screen_json(columns[name], self._resources.secrets)
                flags |= flags_of_value
        return columns, flags

    def _flags_of(self, memory: Memory) -> list[str]:
        """The flags of all texts of a memory."""
        policy = "off" if self._resources.secrets == "off" else "flag"
        flags = [screen_json(getattr(memory, name), policy)[1] for name in SCREENED]
        return sorted(set().union(*flags))

    def _shown(self, as_of: JSON, include_superseded: bool) -> Condition:
        # A date means the end of that day, so that it includes what was said on it.
        as_of_ms = last_moment("as_of", as_of)
        return visible(self._now(), as_of_ms=as_of_ms, superseded=include_superseded)

    def _find(self, reader: Reader, id: str, *, deleted: bool = False) -> Memory | None:
        """The memory of an id, a given name or a dialect's name; not one that is deleted (unless asked) or
        expired.
        """
        check_id(id)
        memory = reader.row(id.lower()) or reader.row_by_alias(id) or self._by_dialect(reader, id)
        if memory is None or deleted:
            return memory
        expired = memory.expires_ms is not None and memory.expires_ms <= self._now()
        return None if expired or memory.deleted_ms is not None else memory

    def _by_dialect(self, reader: Reader, id: str) -> Memory | None:
        if (created_ms := creation_of(id)) is not None:
            for memory in reader.rows_created(created_ms):
                if to_json(memory, self.id)["aliases"]["claude-recall"] == id:
                    return memory
        if (prefix := id_prefix_of(id)) is not None:
            matches = reader.rows_with_prefix(prefix)
            return matches[0] if len(matches) == 1 else None
        return None

    def _must_find(self, reader: Reader, id: str, *, deleted: bool = False) -> Memory:
        memory = self._find(reader, id, deleted=deleted)
        if memory is None:
            raise NotFound(
                f"no memory with the id '{id[:80]}' in this bank (search or list the bank to see ids)"
            )
        return memory

    def _records(self, reader: Reader, memories: Sequence[Memory]) -> list[JSON]:
        aliases = reader.aliases([memory.no for memory in memories]) if memories else {}
        return [to_json(memory, self.id, aliases.get(memory.no, ())) for memory in memories]

    def _count_reading(self, nos: Sequence[int]) -> None:
        if not nos:
            return  # who looks into a bank that is not there makes none
        try:
            with self._writing("touch", durable=False) as writer:
                writer.touch(nos, self.source.session)
        except StoreError as error:
            # Who read what is not worth a failed recall.
            logger.warning("memory=touch outcome=%s count=%d", error.word, len(nos))


def check_id(id: JSON) -> None:
    """Raises `BadRequest` for what cannot name a memory."""
    if not isinstance(id, str) or not 0 < len(id) <= MAX_ID_CHARS:
        raise BadRequest(f"id: must be a text of 1 to {MAX_ID_CHARS} characters")
    short_text("id", id)
