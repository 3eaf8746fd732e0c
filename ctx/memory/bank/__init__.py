"""One bank (a named set of memories) with its rules: which memories count as equal, which memory replaces
another, and how search results are ordered. The modules that it uses only store and read data.

Texts are embedded before a transaction begins, so that a transaction never waits for an embedding model.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice

from ctx.errors import BadRequest, Conflict, NotFound
from ctx.memory.bank.change import Changing
from ctx.memory.bank.put import Putting
from ctx.memory.columns import COLUMN_OF, SETTABLE, Memory
from ctx.memory.filters import EVERYTHING, compile_filter
from ctx.memory.language import SCREENED, gist
from ctx.memory.reader import UNDELETED, Reader
from ctx.memory.records import content_hash, from_line, no_bank, to_line
from ctx.models import JSON

_Line = tuple[Memory, list[str], list[str]]


class MemoryBank(Putting, Changing):
    """One bank. Its methods change no other bank, except `absorb`. `source` is recorded with every change."""

    def export(self, filter: JSON = None, *, include_deleted: bool = False) -> Iterator[str]:
        """Yields a line of JSON, without a newline, for each memory, including superseded ones, oldest first.

        If the lines are imported into an empty bank, its export gives the same bytes. The journal and the
        history of changes are not exported.
        """
        conditions = [EVERYTHING if include_deleted else UNDELETED, compile_filter(filter)]
        with self._view() as view:
            for memory in view.select(conditions, "m.created_ms, m.id"):
                aliases = view.aliases([memory.no]).get(memory.no, [])
                yield to_line(memory, aliases, view.sessions(memory.no))

    def import_(self, lines: Iterable[str]) -> JSON:
        """Imports the lines of an export: `{"imported", "skipped", "conflicts"}`.

        Each batch of 200 lines is one transaction. A memory that already exists is skipped, even if it was
        read, replaced or forgotten since. If a memory has the same id but other content, the line is
        reported as a conflict and not imported. If another memory of this bank already has an imported alias,
        that alias is dropped. Raises `BadRequest` with the number of an invalid line.
        """
        counts: dict[str, JSON] = {"imported": 0, "skipped": 0, "conflicts": []}
        parsed = self._parsed(lines)
        while batch := list(islice(parsed, 200)):
            self._import_batch(batch, counts)
        return counts

    def _parsed(self, lines: Iterable[str]) -> Iterator[_Line]:
        """Parses each line to a memory, its aliases and its sessions."""
        for number, text in enumerate(lines, 1):
            if not text.strip():
                continue
            try:
                memory, aliases, sessions = from_line(json.loads(text))
                yield self._admitted(memory), aliases, sessions
            except (ValueError, RecursionError):
                raise BadRequest(f"line {number}: not JSON") from None
            except BadRequest as error:
                raise BadRequest(f"line {number}: {error.message}") from error

    def _admitted(self, memory: Memory) -> Memory:
        """Applies the policy for secrets to a memory, and adds flags for its content, such as secrets."""
        columns, flags = self._screened({name: getattr(memory, name) for name in SCREENED})
        admitted = memory._replace(**columns, flags=sorted({*memory.flags, *flags}))
        admitted = admitted._replace(gist=gist(admitted.text))
        return admitted._replace(content_hash=content_hash(admitted))

    def _import_batch(self, batch: Sequence[_Line], counts: dict[str, JSON]) -> None:
        vectors = self._embedding.packed([memory.text for memory, _, _ in batch])
        with self._writing("import") as writer:
            nos = []
            for (memory, aliases, sessions), packed in zip(batch, vectors, strict=True):
                stored = writer.row(memory.id)
                if stored is None:
                    stored = writer.insert(memory, self._embedding.model, packed)
                    for alias in aliases:
                        with suppress(Conflict):
                            writer.alias(stored, alias)
                    for session in sessions:
                        writer.join_session(stored.no, session)
                    nos.append(stored.no)
                elif _is_same(stored, memory):
                    counts["skipped"] += 1
                else:
                    counts["conflicts"].append(stored.id)
            writer.revive_bereft(nos, waiting=True)  # the memory that replaces it may be on a later line
            counts["imported"] += len(nos)
        self._embedding.stored(vectors)

    def absorb(self, bank: str, *, dry_run: bool = False) -> JSON:
        """Moves another bank's memories here with their history: `{"imported", "skipped", "conflicts"}`.

        Memories that already exist here are skipped. If a memory here has the same id and other content, it
        is reported and nothing is moved.
        """
        if dry_run:
            with self._view() as view:
                return _compared(view, Reader(view.engine, bank))[0]
        with self._writing("merge") as writer:
            merged = Reader(writer.engine, bank, locked=True)
            if not merged.exists:
                raise NotFound(no_bank(bank))
            counts, nos = _compared(writer, merged)
            if not counts["conflicts"]:
                writer.take_over(merged, nos)
        return counts


def _is_same(stored: Memory, memory: Memory) -> bool:
    """Whether a stored memory is the same as an imported one. It still is if it was read, replaced or
    deleted after it was stored.
    """
    return (
        all(getattr(stored, COLUMN_OF[name]) == getattr(memory, COLUMN_OF[name]) for name in SETTABLE)
        and (memory.superseded_by is None or memory.superseded_by == stored.superseded_by)
        and (memory.deleted_ms is None or stored.deleted_ms is not None)
    )


def _compared(view: Reader, merged: Reader) -> tuple[JSON, list[int]]:
    """The counts of a merge with another bank, and the numbers of the memories to move."""

    def unread_line(reader: Reader, memory: Memory) -> str:
        unread = memory._replace(accessed_ms=memory.created_ms, access_count=0)
        return to_line(unread, reader.aliases([memory.no]).get(memory.no, []), ())

    conflicts, nos, skipped = [], [], 0
    for memory in merged.select([EVERYTHING]):
        stored = view.row(memory.id)
        if stored is None:
            nos.append(memory.no)
        elif unread_line(view, stored) == unread_line(merged, memory):
            skipped += 1
        else:
            conflicts.append(memory.id)
    return {"imported": len(nos), "skipped": skipped, "conflicts": conflicts}, nos
