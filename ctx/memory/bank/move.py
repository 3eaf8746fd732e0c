"""Moving a bank: its memories as lines of JSON, out and in."""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from ctx.errors import BadRequest, Conflict, NotFound
from ctx.memory.bank.base import BankView
from ctx.memory.columns import COLUMN_OF, SETTABLE, Memory
from ctx.memory.filters import EVERYTHING, compile_filter
from ctx.memory.gist import gist
from ctx.memory.reader import UNDELETED, Reader
from ctx.memory.records import content_hash, from_line, no_bank, to_line
from ctx.memory.screen import SCREENED
from ctx.memory.writer import Writer
from ctx.models import JSON

_BATCH = 200


class _Line(NamedTuple):
    """A line of an export, read."""

    number: int
    memory: Memory
    names: list[str]
    sessions: list[str]


class Moving(BankView):
    """What carries a bank elsewhere."""

    def export(self, filter: JSON = None, *, include_deleted: bool = False) -> Iterator[str]:
        """One line of JSON for each memory, superseded ones too, oldest first; no newline at its end.

        Imported into any bank and exported again, the lines are the same bytes. The journal and the history
        stay.
        """
        conditions = [EVERYTHING if include_deleted else UNDELETED, compile_filter(filter)]
        with self._view() as view:
            for memory in view.select(conditions, "m.created_ms, m.id"):
                yield _line_of(view, memory)

    def import_(self, lines: Iterable[str]) -> JSON:
        """Reads an export: `{"imported", "skipped", "conflicts"}`. Batches of 200 are each all or nothing.

        A memory that already exists is skipped, also if it was read, replaced or forgotten since. A memory
        with the same id and other content is a conflict: it is reported and not changed. An alias that
        another memory has here is not moved. Raises `BadRequest` with the number of an invalid line.
        """
        counts: dict[str, JSON] = {"imported": 0, "skipped": 0, "conflicts": []}
        admitted = map(self._admitted, _read(lines))
        while batch := list(islice(admitted, _BATCH)):
            self._take_in(batch, counts)
        return counts

    def absorb(self, bank: str, *, dry_run: bool = False) -> JSON:
        """Moves another bank's memories here with their history: `{"imported", "skipped", "conflicts"}`.

        Memories that already exist here are skipped. If a memory here has the same id and other content, it
        is reported and nothing is moved.
        """
        with self._view() as view:
            counts = _compared(view, Reader(view.engine, bank))[0]
        if dry_run or counts["conflicts"]:
            return counts
        with self._writing("merge") as writer:
            merged = Reader(writer.engine, bank, locked=True)
            if not merged.exists:
                raise NotFound(no_bank(bank))
            counts, nos = _compared(writer, merged)
            if not counts["conflicts"]:
                writer.take_over(merged, nos)
        return counts

    def _take_in(self, batch: Sequence[_Line], counts: dict[str, JSON]) -> None:
        vectors = self._embedding.packed([line.memory.text for line in batch])
        with self._writing("import") as writer:
            nos = []
            for line, packed in zip(batch, vectors, strict=True):
                stored = writer.row(line.memory.id)
                if stored is None:
                    nos.append(self._insert(writer, line, packed))
                    counts["imported"] += 1
                elif _holds(stored, line.memory):
                    counts["skipped"] += 1
                else:
                    counts["conflicts"].append(stored.id)
            writer.revive_bereft(nos, waiting=True)  # a line that is to come may be the successor's
        self._embedding.stored(vectors)

    def _admitted(self, line: _Line) -> _Line:
        """A line after the policy on secrets, with its own flags and those of its content."""
        memory = line.memory
        try:
            columns, flags = self._screened({name: getattr(memory, name) for name in SCREENED})
        except BadRequest as error:
            raise BadRequest(f"line {line.number}: {error.message}") from error
        memory = memory._replace(**columns, flags=sorted({*memory.flags, *flags}))
        if any(getattr(line.memory, name) != value for name, value in columns.items()):
            memory = memory._replace(gist=gist(memory.text))
            memory = memory._replace(content_hash=content_hash(memory))
        return line._replace(memory=memory)

    def _insert(self, writer: Writer, line: _Line, vectors: Sequence[bytes]) -> int:
        stored = writer.insert(line.memory, self._embedding.model, vectors)
        for name in line.names:
            try:
                writer.alias(stored, name)
            except Conflict:
                pass  # another memory has it here, and stays what it leads to
        for session in line.sessions:
            writer.join_session(stored.no, session)
        return stored.no


def _compared(view: Reader, merged: Reader) -> tuple[JSON, list[int]]:
    """The counts of a merge with another bank, and the numbers of the memories to move."""
    counts: dict[str, JSON] = {"imported": 0, "skipped": 0, "conflicts": []}
    nos = []
    for memory in merged.select([EVERYTHING]):
        stored = view.row(memory.id)
        if stored is None:
            nos.append(memory.no)
        elif _unread_line_of(view, stored) == _unread_line_of(merged, memory):
            counts["skipped"] += 1
        else:
            counts["conflicts"].append(memory.id)
    counts["imported"] = len(nos)
    return counts, nos


def _holds(stored: Memory, memory: Memory) -> bool:
    """Whether a stored memory is what a line tells of, whatever became of it here since."""
    return (
        all(getattr(stored, COLUMN_OF[name]) == getattr(memory, COLUMN_OF[name]) for name in SETTABLE)
        and (memory.superseded_by is None or memory.superseded_by == stored.superseded_by)
        and (memory.deleted_ms is None or stored.deleted_ms is not None)
    )


def _unread_line_of(view: Reader, memory: Memory) -> str:
    """The line of a memory without its read count."""
    unread = memory._replace(accessed_ms=memory.created_ms, access_count=0)
    return to_line(unread, view.aliases([memory.no]).get(memory.no, []), ())


def _line_of(view: Reader, memory: Memory) -> str:
    return to_line(memory, view.aliases([memory.no]).get(memory.no, []), view.sessions(memory.no))


def _read(lines: Iterable[str]) -> Iterator[_Line]:
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            yield _Line(number, *from_line(json.loads(text)))
        except (ValueError, RecursionError):
            raise BadRequest(f"line {number}: not JSON") from None
        except BadRequest as error:
            raise BadRequest(f"line {number}: {error.message}") from error
