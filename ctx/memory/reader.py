"""The SQL that reads one bank in one snapshot.

Each statement is restricted to the number of one bank, so it reads no rows or word frequencies of other
banks. A bank that does not exist has the number -1, which no row has.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from ctx.clock import DAY_MS
from ctx.memory.columns import JSON_COLUMNS, Memory, plain_number
from ctx.memory.filters import Condition, same
from ctx.memory.schema import IN_NUMBERS, IN_TEXTS, Engine, listed
from ctx.models import JSON
from ctx.store.record import EVERY

# A query reads at most this many entries of the word index; FTS5's bm25 takes 2 us for each.
MAX_POSTINGS = 10_000
ABSENT = -1  # the number of a bank that does not exist
TAG = "t.value"  # the `group` of `Reader.summary` for grouping by tags
# The `group` of `Reader.summary` for grouping by a value in the metadata. The SQL expression gives the value
# with a letter for its type in front. Each `?` is the path in the metadata. Lists, objects and null count as
# absent.
SCALAR = (
    "CASE WHEN json_type(m.metadata, ?) = 'text' THEN 's' || json_extract(m.metadata, ?)"
    " WHEN json_type(m.metadata, ?) IN ('integer', 'real') THEN 'n' || json_extract(m.metadata, ?)"
    " WHEN json_type(m.metadata, ?) = 'true' THEN 'n1' WHEN json_type(m.metadata, ?) = 'false' THEN 'n0' END"
)

# Type letter of `SCALAR` -> function that turns the text back into the value.
_SCALARS: dict[str, Callable[[str], JSON]] = {"s": str, "n": json.loads}
COLUMN_NAMES = Memory._fields
_JSON_INDEXES = tuple(COLUMN_NAMES.index(name) for name in JSON_COLUMNS)
_COLUMNS = ", ".join(f"m.{name}" for name in COLUMN_NAMES)
_SELECT = f"SELECT {_COLUMNS} FROM memories m"
_NUMBERED = f"m.no {IN_NUMBERS}"
_IMPORTANCE_INDEX = COLUMN_NAMES.index("importance")
UNDELETED = Condition("m.deleted_ms IS NULL", ())


class BankRow(NamedTuple):
    """A row of the table of banks. `live` counts undeleted memories, `live_terms` their terms (for BM25)."""

    bank_no: int
    bank: str
    created_ms: int = 0
    config: JSON = None
    live: int = 0
    live_terms: int = 0
    purges: int = 0
    seq: int = 0
    head: str = ""


# Forgotten memories can be restored, erased ones cannot.
FORGOTTEN = Condition("m.deleted_ms IS NOT NULL", ())


def visible(now_ms: int, *, as_of_ms: int | None = None, superseded: bool = False) -> Condition:
    """The condition for memories that are not deleted, expired or (unless `superseded`) superseded.

    With `as_of_ms`, the condition is: not deleted, and at that moment valid and not expired.
    """
    if as_of_ms is not None:
        return Condition(
            "m.deleted_ms IS NULL AND m.valid_from_ms <= ? AND (m.valid_to_ms IS NULL OR m.valid_to_ms > ?)"
            " AND (m.expires_ms IS NULL OR m.expires_ms > ?)",
            (as_of_ms, as_of_ms, as_of_ms),
        )
    undeleted = "m.deleted_ms IS NULL AND (m.expires_ms IS NULL OR m.expires_ms > ?)"
    return Condition(undeleted if superseded else f"{undeleted} AND m.valid_to_ms IS NULL", (now_ms,))


class Reader:
    """Reads one bank in one snapshot. `bank_no` is `ABSENT` if the bank does not exist."""

    def __init__(self, engine: Engine, bank: str, *, locked: bool = False) -> None:
        """`locked` locks the bank for other writers until the transaction ends, and sets `op_no` to the
        number of the next operation.
        """
        self.op_no = 0
        self.engine = engine
        self.connection = engine.connection
        select = f"SELECT {', '.join(BankRow._fields)} FROM memory_banks WHERE bank = ?"
        row = self._first(engine.holding(select) if locked else select, bank)
        self.bank = BankRow(ABSENT, bank, config={})
        if row is not None:
            if locked:
                *row, self.op_no = row
            self.bank = BankRow._make([*row[:3], json.loads(row[3]), *row[4:]])
        self.bank_no = self.bank.bank_no

    def following_ms(self, now_ms: int) -> int:
        """The time of the next operation in milliseconds, normally `now_ms`.

        If the clock was set back by at most a day, it is just after the last operation, so that memories
        keep their order.
        """
        rows = self._column(
            "SELECT at_ms FROM memory_journal WHERE bank_no = ? ORDER BY no DESC LIMIT 1", self.bank_no
        )
        set_back = rows and now_ms < rows[0] <= now_ms + DAY_MS
        return int(rows[0]) + 1 if set_back else now_ms

    @property
    def exists(self) -> bool:
        return self.bank_no != ABSENT

    # -- statements ------------------------------------------------------------------------------------------
    def run(self, sql: str, *values: JSON) -> JSON:
        """Runs a statement with its values and returns the driver's cursor."""
        return self.connection.execute(sql, values)

    def _column(self, sql: str, *values: JSON) -> list[JSON]:
        """The first value of each row."""
        return [row[0] for row in self.run(sql, *values)]

    def _first(self, sql: str, *values: JSON) -> JSON:
        """The first row; None without rows."""
        return self.run(sql, *values).fetchone()

    def scalar(self, sql: str, *values: JSON) -> JSON:
        """The first value of the first row; None without rows."""
        row = self._first(sql, *values)
        return row[0] if row else None

    # -- banks -----------------------------------------------------------------------------------------------
    def banks(self) -> list[str]:
        """The names of all banks of the store. The names of removed banks begin with a slash."""
        return self._column("SELECT bank FROM memory_banks WHERE bank NOT LIKE '/%' ORDER BY bank")

    def bank_counts(self, shown: Condition) -> dict[str, int]:
        """Bank -> number of memories that meet the condition (0 if none do), sorted by name."""
        select = (
            "SELECT b.bank, count(m.no) FROM memory_banks b"
            f" LEFT JOIN memories m ON m.bank_no = b.bank_no AND {shown.sql}"
            " WHERE b.bank NOT LIKE '/%' GROUP BY b.bank ORDER BY b.bank"
        )
        return dict(self.run(select, *shown.values))

    # -- rows ------------------------------------------------------------------------------------------------
    # The plus in `+bank_no` makes SQLite look up the memory numbers instead of scanning an index of the bank.
    def rows(self, nos: Iterable[int]) -> dict[int, Memory]:
        rows = self.run(f"{_SELECT} WHERE +m.bank_no = ? AND {_NUMBERED}", self.bank_no, listed(nos))
        return {memory.no: memory for memory in map(memory_of, rows)}

    def row(self, id: str) -> Memory | None:
        return next(self.select([Condition("m.id = ?", (id,))]), None)

    def row_by_alias(self, alias: str) -> Memory | None:
        named = "m.no = (SELECT memory_no FROM memory_aliases WHERE bank_no = ? AND alias = ?)"
        return next(self.select([Condition(named, (self.bank_no, alias))]), None)

    def same_gist(self, gist: str, now_ms: int) -> list[Memory]:
        """The visible memories with this gist, oldest first."""
        return list(self.select([same("m.gist", gist), visible(now_ms)]))

    def successors(self, ids: Iterable[str]) -> dict[str, str]:
        """Memory id -> id of the memory that replaced it. Memories that were not replaced are left out."""
        select = "SELECT id, superseded_by FROM memories WHERE bank_no = ? AND superseded_by IS NOT NULL"
        return dict(self.run(f"{select} AND id {IN_TEXTS}", self.bank_no, listed(ids)))

    def replaced_by(self, ids: Iterable[str]) -> dict[str, list[Memory]]:
        """Memory id -> the memories that it replaced, latest first. Ids that replaced none are left out."""
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
        return map(memory_of, self.run(f"{_SELECT} WHERE {clause} ORDER BY {order} LIMIT ?", *values, limit))

    def _where(self, conditions: Sequence[Condition]) -> tuple[str, tuple[JSON, ...]]:
        sql = " AND ".join(("m.bank_no = ?", *(f"({condition.sql})" for condition in conditions)))
        return sql, (self.bank_no, *(value for condition in conditions for value in condition.values))

    def numbers(self, conditions: Sequence[Condition], among: Sequence[int] | None = None) -> list[int]:
        """The numbers of the memories that meet all conditions; with `among`, only numbers in that list."""
        clause, values = self._where(conditions)
        if among is not None:
            clause, values = f"+{clause} AND {_NUMBERED}", (*values, listed(among))
        return self._column(f"SELECT m.no FROM memories m WHERE {clause}", *values)

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
        select = (
            f"SELECT {group or 'NULL'} AS name, count(*), avg(m.importance), min(m.created_ms),"
            f" max(m.created_ms), sum(length(m.text)) FROM {table} WHERE {clause} GROUP BY name"
        )
        groups = list(self.run(select, *group_values, *values))
        if group == SCALAR:
            groups = [(name and _SCALARS[name[0]](name[1:]), *figures) for name, *figures in groups]
        return sorted(groups, key=lambda row: (-row[1], row[0] is not None, isinstance(row[0], str), row[0]))

    def contents(self, ids: Sequence[str]) -> dict[str, tuple[int, int, str]]:
        """Container id -> (number of members, their characters, text of the first member)."""
        select = (
            "SELECT m.parent, count(*), sum(length(m.text)),"
            " (SELECT f.text FROM memories f WHERE f.bank_no = ? AND f.parent = m.parent"
            " AND f.deleted_ms IS NULL ORDER BY coalesce(f.ordinal, 0), f.no LIMIT 1)"
            " FROM memories m WHERE m.bank_no = ? AND m.deleted_ms IS NULL"
            f" AND m.parent {IN_TEXTS} GROUP BY m.parent"
        )
        return {row[0]: row[1:] for row in self.run(select, self.bank_no, self.bank_no, listed(ids))}

    def with_contents(self, memories: Sequence[Memory]) -> list[Memory]:
        """These memories and their contents at any depth, without duplicates. Includes deleted ones."""
        members: dict[int, Memory] = {}
        pending = {memory.no: memory for memory in memories}
        while pending:
            members |= pending
            ids = listed(memory.id for memory in pending.values())
            inside = self.select([Condition(f"m.parent {IN_TEXTS}", (ids,))])
            pending = {memory.no: memory for memory in inside if memory.no not in members}
        return list(members.values())

    def aliases(self, nos: Iterable[int]) -> dict[int, list[str]]:
        """Memory number -> its stored aliases. Memories without aliases are left out."""
        table = f"memory_aliases {self.engine.indexed_by('memory_aliases_by_memory')}"
        condition = f"memory_no {IN_NUMBERS} AND bank_no = ?"
        select = f"SELECT memory_no, alias FROM {table} WHERE {condition} ORDER BY alias"
        aliases: dict[int, list[str]] = {}
        for no, alias in self.run(select, listed(nos), self.bank_no):
            aliases.setdefault(no, []).append(alias)
        return aliases

    def sessions(self, memory_no: int) -> list[str]:
        select = "SELECT session FROM memory_sessions WHERE memory_no = ? ORDER BY session"
        return self._column(select, memory_no)

    def reply(self, key: str) -> tuple[str, JSON] | None:
        """(hash of the request, reply) stored under an idempotency key; None if there is none."""
        select = "SELECT request, reply FROM memory_replies WHERE bank_no = ? AND key = ?"
        row = self._first(select, self.bank_no, key)
        return (row[0], json.loads(row[1])) if row else None

    # -- words -----------------------------------------------------------------------------------------------
    def frequencies(self, words: Iterable[str]) -> dict[str, int]:
        """Term -> number of memories in the bank that contain it. Terms in no memory are left out."""
        return self.engine.frequencies(self.bank_no, words)

    def by_words(self, frequencies: dict[str, int], conditions: Sequence[Condition], k: int) -> list[int]:
        """Numbers of up to k memories that contain any of the terms, best first by FTS5's BM25.

        Reads at most about `MAX_POSTINGS` entries of the index: the most common terms are skipped, and if
        even the rarest is more common than that, only the newest memories are searched.
        """
        chosen: dict[str, int] = {}
        for word, count in sorted(frequencies.items(), key=lambda entry: (entry[1], entry[0])):
            if chosen and sum(chosen.values()) + count > MAX_POSTINGS:
                break
            chosen[word] = count
        if not chosen:
            return []
        first_no = 0
        if sum(chosen.values()) > MAX_POSTINGS:
            newest = "SELECT no FROM memories WHERE bank_no = ? ORDER BY created_ms DESC, no DESC"
            first_no = self.scalar(f"{newest} LIMIT 1 OFFSET ?", self.bank_no, MAX_POSTINGS) or 0
        likeliest = self.engine.likeliest(self.bank_no, chosen, first_no, k)
        passing = set(self.numbers(conditions, likeliest))
        if len(passing) == len(likeliest) or len(likeliest) < k:
            return [no for no in likeliest if no in passing]
        # The conditions excluded some memories. Search again with the conditions in the SQL statement, which
        # is slower: it looks up the row of each memory in the index.
        clause, values = self._where(conditions)
        return self.engine.likeliest(self.bank_no, chosen, first_no, k, clause, values)

    def words(self, nos: Iterable[int]) -> dict[int, list[list[str]]]:
        """Memory number -> its indexed terms, as `ctx.memory.scores.segments` returned them."""
        return self.engine.words(self.bank_no, nos)

    # -- vectors ---------------------------------------------------------------------------------------------
    def model_no(self, model: str) -> int | None:
        model_no: int | None = self.scalar("SELECT model_no FROM memory_models WHERE model = ?", model)
        return model_no

    def vectors(self, model_no: int, nos: Sequence[int] | None = None) -> Iterator[tuple[int, bytes]]:
        """(memory number, packed vector) of each passage of the bank, or only of `nos`, in order."""
        select = "SELECT memory_no, vector FROM memory_vectors WHERE bank_no = ? AND model_no = ?"
        narrowed, values = ("", ()) if nos is None else (f" AND memory_no {IN_NUMBERS}", (listed(nos),))
        order = " ORDER BY memory_no, ordinal"
        yield from self.engine.stream(select + narrowed + order, (self.bank_no, model_no, *values))

    def deleted(self) -> list[int]:
        """Numbers of deleted memories."""
        return self._column(
            f"SELECT no FROM memories {self.engine.indexed_by('memories_withdrawn')} WHERE bank_no = ?"
            " AND (deleted_ms IS NOT NULL OR valid_to_ms IS NOT NULL) AND deleted_ms IS NOT NULL",
            self.bank_no,
        )

    def changed_since(self, seq: int) -> list[tuple[int, bool]]:
        """(number, deleted?) of memories changed after `seq`."""
        table = f"memories {self.engine.indexed_by('memories_by_seq')}"
        select = f"SELECT no, deleted_ms IS NOT NULL FROM {table} WHERE bank_no = ? AND seq > ?"
        return [(no, bool(is_deleted)) for no, is_deleted in self.run(select, self.bank_no, seq)]

    def without_vectors(self, model: str, limit: int) -> list[tuple[str, Memory]]:
        """(bank, memory) of the memories in any bank that have no vector of the model, oldest first."""
        select = (
            f"SELECT b.bank, {_COLUMNS} FROM memories m JOIN memory_banks b ON b.bank_no = m.bank_no"
            " WHERE m.deleted_ms IS NULL AND NOT EXISTS (SELECT 1 FROM memory_vectors v"
            " WHERE v.bank_no = m.bank_no AND v.model_no = ? AND v.memory_no = m.no) ORDER BY m.no LIMIT ?"
        )
        return [(row[0], memory_of(row[1:])) for row in self.run(select, self.model_no(model) or -1, limit)]

    # -- history ---------------------------------------------------------------------------------------------
    def operation(self, op_id: JSON) -> int | None:
        """The number of an operation on this bank; None if unknown."""
        select = "SELECT no FROM memory_journal WHERE bank_no = ? AND op_id = ?"
        op_no: int | None = self.scalar(select, self.bank_no, op_id) if isinstance(op_id, str) else None
        return op_no

    def erased_ids(self) -> set[str]:
        """The ids of memories that were erased from this bank."""
        select = "SELECT detail FROM memory_journal WHERE bank_no = ? AND op = 'purge'"
        details = map(json.loads, self._column(select, self.bank_no))
        return {id for detail in details for id in detail.get("erased", ())}

    def changes_of(self, op_no: int) -> list[tuple[int, int, dict[str, JSON] | None]]:
        """(memory number, new version, old values) for each change by an operation.

        Sorted by memory, then latest version first. The old values are None if the memory was created.
        """
        select = (
            "SELECT h.memory_no, h.version, h.before FROM memory_history h"
            " JOIN memories m ON m.no = h.memory_no WHERE h.op_no = ? AND m.bank_no = ?"
            " ORDER BY h.memory_no, h.version DESC"
        )
        rows = self.run(select, op_no, self.bank_no)
        return [(no, version, before and json.loads(before)) for no, version, before in rows]

    def history(self, memory_no: int) -> list[dict[str, JSON]]:
        """All changes of one memory, oldest first: `{"version", "op", "op_id", "at", "by", "before"}`.

        `before` has the old values of changed columns; {} for its creation.
        """
        select = (
            "SELECT h.version, j.op, j.op_id, j.at_ms, j.actor, h.before FROM memory_history h"
            " JOIN memory_journal j ON j.no = h.op_no WHERE h.memory_no = ? ORDER BY h.version"
        )
        names = ("version", "op", "op_id", "at", "by", "before")
        changes = [dict(zip(names, row, strict=True)) for row in self.run(select, memory_no)]
        return [_parsed(change, "by", "before") for change in changes]

    def journal(self, after: int = 0, limit: int = EVERY) -> Iterator[dict[str, JSON]]:
        """The operations on the bank, in order: `{"no", "op", "op_id", "at", "by", "detail", "hash"}`.

        `hash` covers the entry and the hash of the previous entry.
        """
        select = "SELECT no, op, op_id, at_ms, actor, detail, hash FROM memory_journal WHERE bank_no = ?"
        names = ("no", "op", "op_id", "at", "by", "detail", "hash")
        for row in self.run(f"{select} AND no > ? ORDER BY no LIMIT ?", self.bank_no, after, limit):
            yield _parsed(dict(zip(names, row, strict=True)), "by", "detail")


def _parsed(row: dict[str, JSON], *names: str) -> dict[str, JSON]:
    """The row, with the JSON text in these columns parsed; {} for NULL."""
    return row | {name: json.loads(row[name] or "{}") for name in names}


def memory_of(row: Sequence[JSON]) -> Memory:
    """Converts a row with all columns to a memory."""
    fields = list(row)
    fields[_IMPORTANCE_INDEX] = plain_number(fields[_IMPORTANCE_INDEX])
    for index in _JSON_INDEXES:
        stored = fields[index]
        fields[index] = {} if stored == "{}" else [] if stored == "[]" else json.loads(stored)
    return Memory(*fields)
