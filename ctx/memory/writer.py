"""The SQL that changes one bank within one transaction, and its journal."""

import hashlib
import uuid
from collections.abc import Iterable, Sequence

from ctx.errors import Conflict
from ctx.memory.columns import JSON_COLUMNS, Memory, canonical
from ctx.memory.filters import Condition
from ctx.memory.reader import COLUMN_NAMES, UNDELETED, Reader
from ctx.memory.schema import IN_NUMBERS, IN_TEXTS, Engine, listed
from ctx.memory.scores import segments, weighed_length
from ctx.models import JSON

_INSERT = (
    f"INSERT INTO memories (bank_no, {', '.join(COLUMN_NAMES[1:])}) VALUES "
    f"({', '.join('?' * len(COLUMN_NAMES))})"
    " ON CONFLICT DO NOTHING RETURNING no"
)
# `LIVE` selects the number of undeleted memories and of their terms; a condition must follow.
_COUNTS = "count(*), CAST(coalesce(sum(term_count), 0) AS BIGINT)"
LIVE = f"SELECT {_COUNTS} FROM memories WHERE deleted_ms IS NULL AND"
# Statements that delete the data of an erased memory, except its vectors. Its row is deleted last.
_BELONGINGS = (
    "DELETE FROM memory_aliases WHERE memory_no {}",
    "DELETE FROM memory_sessions WHERE memory_no {}",
    "DELETE FROM memory_history WHERE memory_no {}",
    "DELETE FROM memories WHERE no {}",
)


class Writer(Reader):
    """Writes one operation (such as `put`) on a bank. Creates the bank if it does not exist."""

    def __init__(self, engine: Engine, bank: str, op: str, at_ms: int, actor: JSON) -> None:
        super().__init__(engine, bank, locked=True)
        while not self.exists:  # repeats only if another process creates or drops the bank meanwhile
            insert = "INSERT INTO memory_banks (bank, created_ms) VALUES (?, ?) ON CONFLICT DO NOTHING"
            self.run(insert, bank, at_ms)
            super().__init__(engine, bank, locked=True)
        self.op = op
        self.op_id = str(uuid.uuid4())
        self.at_ms = self.following_ms(at_ms)
        self._actor = actor
        self._ids: list[str] = []
        self._count = 0
        self._detail: dict[str, JSON] = {}
        self._live = self._live_terms = 0  # how much this operation changes the two counts of the bank

    def _add(self, table: str, *values: JSON, anew: bool = True) -> bool:
        """Adds a row to a table, and returns whether it was added. If not `anew`, a row with the same key may
        exist, which is then kept.
        """
        insert = f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})"
        cursor = self.run(insert if anew else f"{insert} ON CONFLICT DO NOTHING", *values)
        return int(cursor.rowcount) > 0

    # -- rows ------------------------------------------------------------------------------------------------
    def insert(self, memory: Memory, model: str | None, vectors: Sequence[bytes]) -> Memory:
        """Stores a new memory with its words and vectors. Returns it with `no`, `seq` and `term_count`."""
        parts = segments(memory)
        memory = memory._replace(seq=self.op_no, term_count=weighed_length(parts))
        no = self.scalar(_INSERT, self.bank_no, *map(_stored, COLUMN_NAMES[1:], memory[1:]))
        if no is None:
            raise Conflict(f"a memory with the id {memory.id} is there already")
        memory = memory._replace(no=no)
        if memory.deleted_ms is None:
            self._put_words(memory, parts)
        self.put_vectors(memory, model, vectors)
        self._note(memory, None)
        if memory.session:
            self.join_session(memory.no, memory.session)
        return memory

    def patch(self, memory: Memory, changes: dict[str, JSON]) -> Memory:
        """Writes changed columns as the next version, and updates the word index. Returns the new version."""
        changes = {name: value for name, value in changes.items() if getattr(memory, name) != value}
        if not changes:
            return memory
        changed = memory._replace(**changes, seq=self.op_no, version=memory.version + 1)
        parts: list[list[str]] = []
        if changed.deleted_ms is None:
            parts = segments(changed)
            changed = changed._replace(term_count=weighed_length(parts))
        columns = (*changes, "seq", "version", "term_count")
        update = f"UPDATE memories SET {', '.join(f'{name} = ?' for name in columns)}"
        values = [_stored(name, getattr(changed, name)) for name in columns]
        self.run(f"{update} WHERE no = ? AND bank_no = ?", *values, memory.no, self.bank_no)
        if memory.deleted_ms is None:
            self._drop_words(memory)
        if changed.deleted_ms is None:
            self._put_words(changed, parts)
        self._note(changed, {name: getattr(memory, name) for name in changes})
        return changed

    def delete(self, memories: Sequence[Memory]) -> int:
        """Marks memories as deleted, and makes the memories that they replaced current again.

        Returns how many were deleted.
        """
        for memory in memories:
            self.patch(memory, {"deleted_ms": self.at_ms})
        self._revive([memory.id for memory in memories])
        return len(memories)

    def purge(self, memories: Sequence[Memory]) -> None:
        """Erases memories with their history. Only their ids stay, in the journal."""
        self.engine.note_erasure()
        self.detail(erased=[memory.id for memory in memories])
        for memory in memories:
            if memory.deleted_ms is None:
                self._drop_words(memory)
                self._revive([memory.id])
            self.replace_vectors(memory, None, ())
            for sql in _BELONGINGS:
                self.run(sql.format("= ?"), memory.no)
            # Empty the stored replies that name an erased memory, but keep their idempotency keys: a repeated
            # request must not store the erased memory again.
            emptied = "UPDATE memory_replies SET request = '', reply = 'null'"
            self.run(f"{emptied} WHERE bank_no = ? AND instr(reply, ?) > 0", self.bank_no, memory.id)
            self._ids.append(memory.id)
        self._count += len(memories)
        self._count_purge()

    def _count_purge(self) -> None:
        """Makes caches load all vectors of the bank again."""
        self.run("UPDATE memory_banks SET purges = purges + 1 WHERE bank_no = ?", self.bank_no)

    def _revive(self, ids: Sequence[str]) -> None:
        """Makes the memories that these memories replaced current again."""
        condition = Condition(f"m.superseded_by {IN_TEXTS}", (listed(ids),))
        self.make_current(self.select([UNDELETED, condition]))

    def revive_bereft(self, nos: Iterable[int], *, waiting: bool = False) -> None:
        """Makes those of these memories current again whose successor is deleted or missing.

        With `waiting`, a missing successor does not count, because it may still be imported.
        """
        successor = "(SELECT 1 FROM memories s WHERE s.bank_no = m.bank_no AND s.id = m.superseded_by"
        gone = f"EXISTS {successor} AND s.deleted_ms IS NOT NULL)"
        if not waiting:
            gone = f"m.superseded_by IS NOT NULL AND NOT EXISTS {successor} AND s.deleted_ms IS NULL)"
        condition = Condition(f"m.no {IN_NUMBERS} AND {gone}", (listed(nos),))
        self.make_current(self.select([UNDELETED, condition]))

    def make_current(self, memories: Iterable[Memory]) -> int:
        """Marks memories as no longer replaced. Returns how many."""
        replaced = list(memories)
        for memory in replaced:
            self.patch(memory, {"valid_to_ms": None, "superseded_by": None})
        return len(replaced)

    def take_over(self, other: Reader, nos: Sequence[int]) -> None:
        """Moves memories of another bank into this one unchanged, with their history, and removes that bank.

        The other bank's remaining data is deleted. Its journal moves too, so that its operations can be
        undone here.
        """
        home, theirs, members = self.bank_no, other.bank_no, listed(nos)
        live, live_terms = self._first(f"{LIVE} no {IN_NUMBERS}", members)
        self._live += live
        self._live_terms += live_terms
        self.engine.move_words(nos, theirs, home)
        self.run(f"UPDATE memories SET bank_no = ?, seq = ? WHERE no {IN_NUMBERS}", home, self.op_no, members)
        moved = "UPDATE {} SET bank_no = ? WHERE bank_no = ?"
        of_members = f"{moved} AND memory_no {IN_NUMBERS}"
        self.run(of_members.format("memory_vectors"), home, theirs, members)
        # Aliases and idempotency keys of the other bank are dropped if this bank already has them.
        unless = " AND {0} NOT IN (SELECT {0} FROM memory_{1} WHERE bank_no = ?)".format
        aliases = of_members.format("memory_aliases") + unless("alias", "aliases")
        self.run(aliases, home, theirs, members, home)
        self.run(moved.format("memory_replies") + unless("key", "replies"), home, theirs, home)
        self.run(moved.format("memory_journal"), home, theirs)
        # Caches read only vectors with higher numbers than those they have, unless this count changes.
        self._count_purge()
        empty(self.engine, theirs)
        retire(self.engine, theirs)
        self._count += len(nos)
        self.detail(bank=other.bank.bank, bank_no=theirs)

    def touch(self, nos: Sequence[int], session: str | None) -> None:
        """Counts a read of these memories. Their `version` does not change."""
        update = (
            "UPDATE memories SET accessed_ms = CASE WHEN accessed_ms < ? THEN ? ELSE accessed_ms END,"
            f" access_count = access_count + 1 WHERE +bank_no = ? AND no {IN_NUMBERS}"
        )
        self.run(update, self.at_ms, self.at_ms, self.bank_no, listed(nos))
        if session:
            for no in nos:
                self.join_session(no, session)

    def join_session(self, memory_no: int, session: str) -> None:
        self._add("memory_sessions", memory_no, session, anew=False)

    def next_ordinal(self, parent: str) -> int:
        last = "SELECT coalesce(max(ordinal) + 1, 0) FROM memories WHERE bank_no = ? AND parent = ?"
        return int(self.scalar(last, self.bank_no, parent))

    def alias(self, memory: Memory, alias: str) -> None:
        """Gives a memory an alias. Raises `Conflict` if another memory has it."""
        if not self._add("memory_aliases", self.bank_no, alias, memory.no, anew=False):
            raise Conflict(f"another memory is called '{alias[:80]}'")

    def keep_reply(self, key: str, request: str, reply: JSON) -> None:
        self._add("memory_replies", self.bank_no, key, request, canonical(reply))

    def drop_replies(self, op_ids: Iterable[str] | None = None) -> None:
        """Drops the stored replies of these operations, or all, so that a repeated request runs again."""
        narrowed = "" if op_ids is None else f" AND json_extract(reply, '$.op_id') {IN_TEXTS}"
        values = () if op_ids is None else (listed(op_ids),)
        self.run(f"DELETE FROM memory_replies WHERE bank_no = ?{narrowed}", self.bank_no, *values)

    def configure(self, config: JSON) -> None:
        self.run("UPDATE memory_banks SET config = ? WHERE bank_no = ?", canonical(config), self.bank_no)
        self._detail["config"] = config
        self._count += 1

    # -- words and vectors -----------------------------------------------------------------------------------
    def _put_words(self, memory: Memory, parts: list[list[str]]) -> None:
        self.engine.put_words(self.bank_no, memory.no, parts)
        self._live += 1
        self._live_terms += memory.term_count

    def _drop_words(self, memory: Memory) -> None:
        self.engine.drop_words(self.bank_no, [memory.no])
        self._live -= 1
        self._live_terms -= memory.term_count

    def replace_vectors(self, memory: Memory, model: str | None, vectors: Sequence[bytes]) -> None:
        """Replaces the vectors of a memory. Without vectors, only the memory's words find it until it is
        embedded.
        """
        models = "model_no IN (SELECT model_no FROM memory_models)"
        delete = f"DELETE FROM memory_vectors WHERE bank_no = ? AND memory_no = ? AND {models}"
        self.run(delete, self.bank_no, memory.no)
        self.put_vectors(memory, model, vectors)

    def put_vectors(self, memory: Memory, model: str | None, vectors: Sequence[bytes]) -> None:
        """Stores vectors for a memory that has none."""
        if model is None or not vectors:
            return
        model_no = self.model_no(model)
        if model_no is None:
            self.run("INSERT INTO memory_models (model) VALUES (?) ON CONFLICT DO NOTHING", model)
            model_no = self.model_no(model)
        rows = [(self.bank_no, model_no, memory.no, *entry) for entry in enumerate(vectors)]
        self.connection.executemany("INSERT INTO memory_vectors VALUES (?, ?, ?, ?, ?)", rows)

    def embed(self, memory: Memory, model: str, vectors: Sequence[bytes]) -> None:
        """Adds vectors to a memory that has none. Caches see the change; `version` does not change."""
        self.replace_vectors(memory, model, vectors)
        update = "UPDATE memories SET seq = ? WHERE no = ? AND bank_no = ?"
        self.run(update, self.op_no, memory.no, self.bank_no)
        self._count += 1

    # -- the journal -----------------------------------------------------------------------------------------
    def detail(self, **entries: JSON) -> None:
        """Adds entries to the journal line. They must not contain the text of a memory. None is left out."""
        self._detail |= {name: entry for name, entry in entries.items() if entry is not None}

    def _note(self, memory: Memory, before: dict[str, JSON] | None) -> None:
        stored = None if before is None else canonical(before)
        self._add("memory_history", memory.no, memory.version, self.op_no, stored)
        self._ids.append(memory.id)
        self._count += 1

    @property
    def changed(self) -> bool:
        return self._count > 0

    def finish(self) -> None:
        """Writes the journal line and the bank's counts, if anything changed."""
        if not self._count:
            return
        detail: dict[str, JSON] = {"count": self._count, **self._detail}
        if self._ids:
            detail["ids"] = self._ids[:20]  # the detail has the first ids only; its digest covers all of them
            detail["digest"] = hashlib.sha256("\n".join(self._ids).encode()).hexdigest()
        actor, detail_text = canonical(self._actor), canonical(detail)
        line = (self.bank.head, self.op_id, self.op, str(self.at_ms), actor, detail_text)
        # `line` has the hash of the line before, so the hash covers it.
        link = hashlib.sha256("\n".join(line).encode()).hexdigest()
        entry = (self.op_id, self.op, self.at_ms, actor, detail_text, link)
        self._add("memory_journal", self.op_no, self.bank_no, *entry)
        update = "UPDATE memory_banks SET head = ?, seq = ?, live = live + ?, live_terms = live_terms + ?"
        counts = (self._live, self._live_terms)
        self.run(f"{update} WHERE bank_no = ?", link, self.op_no, *counts, self.bank_no)


def empty(engine: Engine, bank_no: int) -> None:
    """Removes a bank's memories with all their data, except the journal."""
    engine.empty_words(bank_no)
    for sql in _BELONGINGS:
        engine.connection.execute(sql.format("IN (SELECT no FROM memories WHERE bank_no = ?)"), (bank_no,))
    for table in ("memory_vectors", "memory_replies"):
        engine.connection.execute(f"DELETE FROM {table} WHERE bank_no = ?", (bank_no,))


def retire(engine: Engine, bank_no: int) -> None:
    """Removes an empty bank. Its row stays, so that its number is not used again: caches may know it."""
    engine.connection.execute(
        "UPDATE memory_banks SET bank = '/' || bank_no, config = '{}', live = 0, live_terms = 0, head = '',"
        " purges = purges + 1 WHERE bank_no = ?",
        (bank_no,),
    )


def _stored(column: str, value: JSON) -> JSON:
    """The value as it is stored in the table."""
    return canonical(value) if column in JSON_COLUMNS else value
