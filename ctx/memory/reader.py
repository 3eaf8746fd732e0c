"""The SQL that reads one bank in one snapshot.

Each statement is restricted to the number of its bank, so it reads no rows or word frequencies of other
banks. A bank that does not exist has the number -1, which no row has.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ctx.clock import DAY_MS
from ctx.memory.columns import JSON_COLUMNS, Memory, plain_number
from ctx.memory.engine import IN_NUMBERS, IN_TEXTS, Engine, Posting, listed
from ctx.memory.filters import Condition
from ctx.models import JSON
from ctx.store.record import EVERY

# SQL for the numbers of a bank and of all banks that were merged into it, directly or indirectly.
LINEAGE = (
    "(WITH RECURSIVE lineage (no) AS (SELECT CAST(? AS BIGINT) UNION SELECT b.bank_no FROM memory_banks b"
    " JOIN lineage l ON CAST(json_extract(b.config, '$.merged_into') AS TEXT) = CAST(l.no AS TEXT)"
    " WHERE b.bank LIKE '/%') SELECT no FROM lineage)"
)
MAX_POSTINGS = 10_000  # entries of the word index per query; each takes 2 us in FTS5's bm25
ABSENT = -1  # the number of a bank that does not exist
TAG = "t.value"  # as a group of `Reader.summary`: each tag of a memory
# As a group of `Reader.summary`: the value at a path in the metadata, with a letter for its type. The path is
# the value of each `?`. Lists, objects and null count as absent.
SCALAR = (
    "CASE WHEN json_type(m.metadata, ?) = 'text' THEN 's' || json_extract(m.metadata, ?)"
    " WHEN json_type(m.metadata, ?) IN ('integer', 'real') THEN 'n' || json_extract(m.metadata, ?)"
    " WHEN json_type(m.metadata, ?) = 'true' THEN 'n1' WHEN json_type(m.metadata, ?) = 'false' THEN 'n0' END"
)

COLUMN_NAMES = Memory._fields
_JSON_INDEXES = tuple(COLUMN_NAMES.index(name) for name in JSON_COLUMNS)
_SELECT = "SELECT " + ", ".join(f"m.{name}" for name in COLUMN_NAMES) + " FROM memories m"
_NUMBERED = f"m.no {IN_NUMBERS}"
_IMPORTANCE_INDEX = COLUMN_NAMES.index("importance")
UNDELETED = Condition("m.deleted_ms IS NULL", ())


class BankRow(NamedTuple):
    """The row of a bank. `live` counts undeleted memories, `live_terms` their terms (for BM25)."""

    bank_no: int
    bank: str
    created_ms: int = 0
    config: JSON = None
    live: int = 0
    live_terms: int = 0
    purges: int = 0
    seq: int = 0
    head: str = ""


class Change(NamedTuple):
    """One change of a memory. `before` has the old values of changed columns; {} for its creation."""

    version: int
    op: str
    op_id: str
    at: int
    by: JSON
    before: dict[str, JSON]


class JournalLine(NamedTuple):
    """One operation on a bank. `by` and `detail` are JSON. `hash` covers this line and the hash of the line
    before.
    """

    no: int
    op: str
    op_id: str
    at: int
    by: str
    detail: str
    hash: str


_JOURNAL = "SELECT no, op, op_id, at_ms, actor, detail, hash FROM memory_journal"


FORGOTTEN = Condition("m.deleted_ms IS NOT NULL", ())  # can be restored


def visible(now_ms: int, *, as_of_ms: int | None = None, superseded: bool = False) -> Condition:
    """The condition for memories that are not deleted, expired or (unless `superseded`) superseded.

    With `as_of_ms`: not deleted, and valid and not expired at that moment.
    """
    if as_of_ms is not None:
        return Condition(
            "m.deleted_ms IS NULL AND m.valid_from_ms <= ? AND (m.valid_to_ms IS NULL OR m.valid_to_ms > ?)"
            " AND (m.expires_ms IS NULL OR m.expires_ms > ?)",
            (as_of_ms, as_of_ms, as_of_ms),
        )
    current = "" if superseded else " AND m.valid_to_ms IS NULL"
    return Condition(
        f"m.deleted_ms IS NULL AND (m.expires_ms IS NULL OR m.expires_ms > ?){current}", (now_ms,)
    )


class Reader:
    """Reads one bank in one snapshot. `bank_no` is `ABSENT` if the bank does not exist."""

    def __init__(self, engine: Engine, bank: str, *, locked: bool = False) -> None:
        """`locked` locks the bank for other writers until the transaction ends, and sets `op_no` to the
        number of the next operation.
        """
        self.op_no = 0
        self.engine = engine
        self.connection = engine.connection
        self.bank = self._bank_row(bank, locked=locked) or BankRow(ABSENT, bank, config={})
        self.bank_no = self.bank.bank_no

    @property
    def exists(self) -> bool:
        return self.bank_no != ABSENT

    def _bank_row(self, bank: str, *, locked: bool) -> BankRow | None:
        select = f"SELECT {', '.join(BankRow._fields)} FROM memory_banks WHERE bank = ?"
        if locked:
            select = self.engine.holding(select)
        row = self.connection.execute(select, (bank,)).fetchone()
        if row is None:
            return None
        if locked:
            *row, self.op_no = row
        return BankRow._make([*row[:3], json.loads(row[3]), *row[4:]])

    def banks(self) -> list[str]:
        """The names of all banks of the store. The names of removed banks begin with a slash."""
        cursor = self.connection.execute(
            "SELECT bank FROM memory_banks WHERE bank NOT LIKE '/%' ORDER BY bank"
        )
        return [row[0] for row in cursor]

    def bank_counts(self, shown: Condition) -> dict[str, int]:
        """For each bank, sorted by name: how many memories meet the condition, also if none do."""
        cursor = self.connection.execute(
            "SELECT b.bank, count(m.no) FROM memory_banks b"
            f" LEFT JOIN memories m ON m.bank_no = b.bank_no AND {shown.sql}"
            " WHERE b.bank NOT LIKE '/%' GROUP BY b.bank ORDER BY b.bank",
            shown.values,
        )
        return dict(cursor)

    # -- rows ------------------------------------------------------------------------------------------------
    # The plus in `+bank_no` keeps SQLite from using an index over the whole bank in place of the numbers.
    def rows(self, nos: Iterable[int]) -> dict[int, Memory]:
        cursor = self.connection.execute(
            f"{_SELECT} WHERE +m.bank_no = ? AND {_NUMBERED}", (self.bank_no, listed(nos))
        )
        return {memory.no: memory for memory in map(memory_of, cursor)}

    def _first(self, clause: str, *values: JSON) -> Memory | None:
        row = self.connection.execute(
            f"{_SELECT} WHERE m.bank_no = ? AND {clause}", (self.bank_no, *values)
        ).fetchone()
        return memory_of(row) if row else None

    def row(self, id: str) -> Memory | None:
        return self._first("m.id = ?", id)

    def row_by_alias(self, alias: str) -> Memory | None:
        return self._first(
            "m.no = (SELECT memory_no FROM memory_aliases WHERE bank_no = ? AND alias = ?)",
            self.bank_no,
            alias,
        )

    def same_gist(self, gist: str, now_ms: int) -> list[Memory]:
        """The visible memories with this gist, oldest first."""
        return list(self.select([Condition("m.gist = ?", (gist,)), visible(now_ms)]))

    def successors(self, ids: Iterable[str]) -> dict[str, str]:
        """For each id: the id of the memory that replaced it. Ids that were not replaced are left out."""
        cursor = self.connection.execute(
            "SELECT id, superseded_by FROM memories WHERE bank_no = ? AND superseded_by IS NOT NULL"
            f" AND id {IN_TEXTS}",
            (self.bank_no, listed(ids)),
        )
        return dict(cursor.fetchall())

    def replaced_by(self, ids: Iterable[str]) -> dict[str, list[Memory]]:
        """For each id: the memories that it replaced, latest first. Ids that replaced none are left out."""
        condition = Condition(f"m.superseded_by {IN_TEXTS}", (listed(ids),))
        replaced: dict[str, list[Memory]] = {}
        for memory in self.select([UNDELETED, condition], "m.valid_from_ms DESC, m.no DESC"):
            replaced.setdefault(memory.superseded_by or "", []).append(memory)
        return replaced

    def select(
        self, conditions: Sequence[Condition], order: str = "m.no", limit: int = EVERY
    ) -> Iterator[Memory]:
        """The memories that meet all conditions.

        `order` is inserted into the SQL, so it must never be a user's text.
        """
        clause, values = self._where(conditions)
        cursor = self.connection.execute(
            f"{_SELECT} WHERE {clause} ORDER BY {order} LIMIT ?", (*values, limit)
        )
        return map(memory_of, cursor)

    def _where(self, conditions: Sequence[Condition]) -> tuple[str, tuple[JSON, ...]]:
        sql = " AND ".join(("m.bank_no = ?", *(f"({condition.sql})" for condition in conditions)))
        return sql, (self.bank_no, *(value for condition in conditions for value in condition.values))

    def numbers(
        self,
        conditions: Sequence[Condition],
        among: Sequence[int] | None = None,
    ) -> list[int]:
        """The numbers of the memories that meet all conditions, of all or only those in `among`."""
        clause, values = self._where(conditions)
        if among is not None:
            clause, values = f"+{clause} AND {_NUMBERED}", (*values, listed(among))
        cursor = self.connection.execute(f"SELECT m.no FROM memories m WHERE {clause}", values)
        return [row[0] for row in cursor]

    def count(self, conditions: Sequence[Condition]) -> int:
        clause, values = self._where(conditions)
        return int(self.scalar(f"SELECT count(*) FROM memories m WHERE {clause}", *values))

    def summary(
        self, conditions: Sequence[Condition], group: str | None, group_values: Sequence[JSON] = ()
    ) -> list[JSON]:
        """Statistics by group, largest group first: `(value, count, mean importance, first created, last
        created, characters)`. Without a `group`, a single row.
        """
        clause, values = self._where(conditions)
        table = "memories m, json_each(m.tags) t" if group == TAG else "memories m"
        groups: list[JSON] = self.connection.execute(
            f"SELECT {group or 'NULL'} AS name, count(*), avg(m.importance), min(m.created_ms), "
            "max(m.created_ms),"
            f" sum(length(m.text)) FROM {table} WHERE {clause} GROUP BY name",
            (*group_values, *values),
        ).fetchall()
        if group == SCALAR:
            groups = [(_scalar(name), *figures) for name, *figures in groups]
        return sorted(groups, key=lambda row: (-row[1], row[0] is not None, isinstance(row[0], str), row[0]))

    def contents(self, ids: Sequence[str]) -> dict[str, tuple[int, int, str]]:
        """For each container, by id: the number of members, their characters, and the text of the first."""
        cursor = self.connection.execute(
            "SELECT m.parent, count(*), sum(length(m.text)),"
            " (SELECT f.text FROM memories f WHERE f.bank_no = ? AND f.parent = m.parent"
            " AND f.deleted_ms IS NULL ORDER BY coalesce(f.ordinal, 0), f.no LIMIT 1)"
            " FROM memories m WHERE m.bank_no = ? AND m.deleted_ms IS NULL"
            f" AND m.parent {IN_TEXTS} GROUP BY m.parent",
            (self.bank_no, self.bank_no, listed(ids)),
        )
        return {row[0]: (row[1], row[2], row[3]) for row in cursor}

    def with_contents(self, memories: Sequence[Memory]) -> list[Memory]:
        """These memories and their contents at any depth, without duplicates. Includes deleted ones."""
        members = {memory.no: memory for memory in memories}
        pending: Sequence[Memory] = memories
        while pending:
            ids = listed(memory.id for memory in pending)
            inside = self.select([Condition(f"m.parent {IN_TEXTS}", (ids,))])
            pending = [memory for memory in inside if memory.no not in members]
            members |= {memory.no: memory for memory in pending}
        return list(members.values())

    def aliases(self, nos: Iterable[int]) -> dict[int, list[str]]:
        """The stored aliases of memories, by number. Memories without aliases are left out."""
        aliases: dict[int, list[str]] = {}
        for no, alias in self.connection.execute(
            "SELECT memory_no, alias FROM memory_aliases "
            f"{self.engine.indexed_by('memory_aliases_by_memory')}"
            f" WHERE memory_no {IN_NUMBERS} AND bank_no = ? ORDER BY alias",
            (listed(nos), self.bank_no),
        ):
            aliases.setdefault(no, []).append(alias)
        return aliases

    def sessions(self, memory_no: int) -> list[str]:
        cursor = self.connection.execute(
            "SELECT session FROM memory_sessions WHERE memory_no = ? ORDER BY session", (memory_no,)
        )
        return [row[0] for row in cursor]

    def reply(self, key: str) -> tuple[str, JSON] | None:
        """(hash of the request, reply) stored under an idempotency key; None without one."""
        row = self.connection.execute(
            "SELECT request, reply FROM memory_replies WHERE bank_no = ? AND key = ?", (self.bank_no, key)
        ).fetchone()
        return (row[0], json.loads(row[1])) if row else None

    # -- words -----------------------------------------------------------------------------------------------
    def frequencies(self, words: Iterable[str]) -> dict[str, int]:
        """How many memories of the bank contain each term; terms in none are left out."""
        return self.engine.frequencies(self.bank_no, words)

    def by_words(self, frequencies: dict[str, int], conditions: Sequence[Condition], k: int) -> list[int]:
        """Numbers of up to k memories that contain any of the terms, best first by FTS5's BM25.

        Reads at most about `MAX_POSTINGS` entries of the index: the most common terms are skipped, and if
        even the rarest is more common than that, only the newest memories are searched.
        """
        posting = self._posting(frequencies)
        if posting is None:
            return []
        likeliest = self.engine.likeliest(self.bank_no, posting, k)
        passing = set(self.numbers(conditions, likeliest))
        if len(passing) == len(likeliest) or len(likeliest) < k:
            return [no for no in likeliest if no in passing]
        # The conditions excluded some memories. Search again with the conditions in the query, which is
        # slower: it looks up a row for each entry.
        clause, values = self._where(conditions)
        return self.engine.likeliest(self.bank_no, posting, k, clause, values)

    def _posting(self, frequencies: dict[str, int]) -> Posting | None:
        chosen: list[str] = []
        entries = 0
        for word in sorted(frequencies, key=lambda word: (frequencies[word], word)):
            if chosen and entries + frequencies[word] > MAX_POSTINGS:
                break
            chosen.append(word)
            entries += frequencies[word]
        if not chosen:
            return None
        terms = {word: frequencies[word] for word in chosen}
        if entries <= MAX_POSTINGS:
            return Posting(terms, 0)
        first_no = self.scalar(
            "SELECT no FROM memories WHERE bank_no = ? ORDER BY created_ms DESC, no DESC LIMIT 1 OFFSET ?",
            self.bank_no,
            MAX_POSTINGS,
        )
        return Posting(terms, first_no or 0)

    def words(self, nos: Iterable[int]) -> dict[int, list[list[str]]]:
        """The indexed terms of these memories, as `segments` returned them."""
        return self.engine.words(self.bank_no, nos)

    # -- vectors ---------------------------------------------------------------------------------------------
    def model_no(self, model: str) -> int | None:
        model_no: int | None = self.scalar("SELECT model_no FROM memory_models WHERE model = ?", model)
        return model_no

    def vectors(self, model_no: int, nos: Sequence[int] | None = None) -> Iterator[tuple[int, bytes]]:
        """(memory number, packed vector) of each passage of the bank, or only of `nos`, in order."""
        narrowed = "" if nos is None else f" AND memory_no {IN_NUMBERS}"
        values = () if nos is None else (listed(nos),)
        yield from self.engine.stream(
            "SELECT memory_no, vector FROM memory_vectors WHERE bank_no = ? AND model_no = ?"
            f"{narrowed} ORDER BY memory_no, ordinal",
            (self.bank_no, model_no, *values),
        )

    def deleted(self) -> list[int]:
        """Numbers of deleted memories."""
        cursor = self.connection.execute(
            f"SELECT no FROM memories {self.engine.indexed_by('memories_withdrawn')} WHERE bank_no = ?"
            " AND (deleted_ms IS NOT NULL OR valid_to_ms IS NOT NULL) AND deleted_ms IS NOT NULL",
            (self.bank_no,),
        )
        return [row[0] for row in cursor]

    def changed_since(self, seq: int) -> list[tuple[int, bool]]:
        """(number, deleted?) of memories changed after `seq`."""
        cursor = self.connection.execute(
            "SELECT no, deleted_ms IS NOT NULL"
            f" FROM memories {self.engine.indexed_by('memories_by_seq')}"
            " WHERE bank_no = ? AND seq > ?",
            (self.bank_no, seq),
        )
        return [(row[0], bool(row[1])) for row in cursor]

    def without_vectors(self, model: str, limit: int) -> list[tuple[str, Memory]]:
        """(bank, memory) of the memories in any bank that have no vector of the model, oldest first."""
        columns = ", ".join(f"m.{name}" for name in COLUMN_NAMES)
        cursor = self.connection.execute(
            f"SELECT b.bank, {columns} FROM memories m JOIN memory_banks b ON b.bank_no = m.bank_no"
            " WHERE m.deleted_ms IS NULL AND NOT EXISTS (SELECT 1 FROM memory_vectors v"
            " WHERE v.bank_no = m.bank_no AND v.model_no = ? AND v.memory_no = m.no) ORDER BY m.no LIMIT ?",
            (self.model_no(model) or -1, limit),
        )
        return [(row[0], memory_of(row[1:])) for row in cursor]

    # -- history ---------------------------------------------------------------------------------------------
    def operation(self, op_id: JSON) -> int | None:
        """The number of an operation on this bank, or on a bank merged into it; None if unknown."""
        if not isinstance(op_id, str):
            return None
        select = f"SELECT no FROM memory_journal WHERE bank_no IN {LINEAGE} AND op_id = ?"
        op_no: int | None = self.scalar(select, self.bank_no, op_id)
        return op_no

    def erased_ids(self) -> set[str]:
        """The ids of memories that were erased from this bank, or from a bank merged into it."""
        rows = self.connection.execute(
            f"SELECT detail FROM memory_journal WHERE bank_no IN {LINEAGE} AND op = 'purge'", (self.bank_no,)
        )
        return {id for row in rows for id in json.loads(row[0]).get("erased", ())}

    def changes_of(self, op_no: int) -> list[tuple[int, int, dict[str, JSON] | None]]:
        """(memory number, new version, old values) for each change by an operation.

        Sorted by memory, then latest version first. The old values are None if the memory was created.
        """
        cursor = self.connection.execute(
            "SELECT h.memory_no, h.version, h.before FROM memory_history h"
            " JOIN memories m ON m.no = h.memory_no WHERE h.op_no = ? AND m.bank_no = ?"
            " ORDER BY h.memory_no, h.version DESC",
            (op_no, self.bank_no),
        )
        return [(row[0], row[1], None if row[2] is None else json.loads(row[2])) for row in cursor]

    def history(self, memory_no: int) -> list[Change]:
        """All changes of one memory, oldest first."""
        cursor = self.connection.execute(
            "SELECT h.version, j.op, j.op_id, j.at_ms, j.actor, h.before FROM memory_history h"
            f" JOIN memory_journal j ON j.no = h.op_no WHERE h.memory_no = ? AND j.bank_no IN {LINEAGE} "
            "ORDER BY h.version",
            (memory_no, self.bank_no),
        )
        return [Change._make([*row[:4], json.loads(row[4]), json.loads(row[5] or "{}")]) for row in cursor]

    def following_ms(self, now_ms: int) -> int:
        """The time for the next operation, normally `now_ms`.

        If the clock was set back by at most a day, it is just after the last operation, so that memories
        keep their order.
        """
        last_ms = self.scalar(
            "SELECT at_ms FROM memory_journal WHERE bank_no = ? ORDER BY no DESC LIMIT 1", self.bank_no
        )
        set_back = last_ms is not None and now_ms < last_ms <= now_ms + DAY_MS
        return last_ms + 1 if set_back else now_ms

    def journal(self, after: int = 0, limit: int = EVERY) -> Iterator[JournalLine]:
        """The journal of the bank and of the banks that were merged into it, in order."""
        cursor = self.connection.execute(
            f"{_JOURNAL} WHERE bank_no IN {LINEAGE} AND no > ? ORDER BY no LIMIT ?",
            (self.bank_no, after, limit),
        )
        return map(JournalLine._make, cursor)

    def chains(self) -> Iterator[tuple[str, list[JournalLine]]]:
        """(last hash, lines) of each journal: that of the bank, and those of the banks merged into it.

        Each journal is a chain of hashes.
        """
        banks = self.connection.execute(
            f"SELECT bank_no, head FROM memory_banks WHERE bank_no IN {LINEAGE}", (self.bank_no,)
        ).fetchall()
        for bank_no, head in banks:
            cursor = self.connection.execute(f"{_JOURNAL} WHERE bank_no = ? ORDER BY no", (bank_no,))
            yield head, list(map(JournalLine._make, cursor))

    def scalar(self, sql: str, *values: JSON) -> JSON:
        """The first value of the first row of a statement's result; None without rows."""
        row = self.connection.execute(sql, values).fetchone()
        return row[0] if row else None


def memory_of(row: Sequence[JSON]) -> Memory:
    """Converts a row with all columns to a memory."""
    fields = list(row)
    fields[_IMPORTANCE_INDEX] = plain_number(fields[_IMPORTANCE_INDEX])
    for index in _JSON_INDEXES:
        stored = fields[index]
        fields[index] = {} if stored == "{}" else [] if stored == "[]" else json.loads(stored)
    return Memory(*fields)


def _scalar(name: str | None) -> JSON:
    """The value of a group by `SCALAR`: removes the letter for the type."""
    if name is None:
        return None
    return name[1:] if name[0] == "s" else json.loads(name[1:])
