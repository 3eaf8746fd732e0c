"""What every catalog in SQL shares: the transactions it needs, what each kind of write does, and how the
sources went.

The SQL is the part that SQLite and PostgreSQL have in common, with `?` for a value. What they do not share is
a method of `Record` and of `Write`. A write takes its `seq` as late as it can: until it is over, projections
go no further.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from ctx.errors import StoreError
from ctx.lean import TYPE_CHECKING, Any, Protocol
from ctx.types import Run

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from ctx.items import Chunk, SourceStatus
    from ctx.store.rows import StoredDocument
    from ctx.store.write import Write

EVERY = 1 << 62  # above any number: together with a seq, "after all that was written at it"
TOO_LARGE = "a number or a text is larger than the catalog can hold"
NEVER_INDEXED = "not indexed yet"
# Documents read at once: short transactions, or the log could not be cut while a projection is built.
PAGE = 200
_MOVING = "moving"  # in `meta` from the first to the last write of a move into this store
_BOUND = 500  # values bound to one statement, about
_STRIDE = 16  # lists of values in a statement are as long as a multiple of this


if TYPE_CHECKING:  # shapes, each a class less that a search makes

    class Rows(Protocol):
        """The rows of a statement: a cursor of either engine."""

        @property
        def rowcount(self) -> int: ...

        def fetchone(self) -> Any: ...

        def fetchall(self) -> list[Any]: ...

        def __iter__(self) -> Iterator[Any]: ...

    class Statements(Protocol):
        """A connection within a transaction."""

        def execute(self, sql: str, values: Sequence[Any] = (), /) -> Rows: ...

        def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> Rows: ...
else:
    Statements = Any


class Record:
    """The catalog's transactions, and what it knows of its sources."""

    _latest: "list[StoredDocument]"  # of the last write, until a projection takes it

    def _reading(self) -> "AbstractContextManager[Statements]":
        """A transaction with a steady view of everything."""
        raise NotImplementedError

    def _glance(self) -> "AbstractContextManager[Statements]":
        """What one statement reads, which is a view of its own: without the cost of a transaction, if it has
        any.
        """
        return self._reading()

    def _writing(self) -> "AbstractContextManager[Write]":
        """A transaction that is committed at the end of the block, and rolled back on any exception."""
        raise NotImplementedError

    def _stream(self, statements: Statements, sql: str, values: Sequence[Any] = ()) -> Iterator[Any]:
        """Rows one after the other, however many there are, within the transaction."""
        raise NotImplementedError

    def _size_bytes(self, statements: Statements) -> int:
        """What all of it weighs where it is kept."""
        raise NotImplementedError

    def elsewhere(self, source: str, source_ids: Sequence[str]) -> Mapping[str, str]:
        """As the protocol has it. What one machine keeps, it stored."""
        return {}

    def server(self) -> tuple[bool, str] | None:
        """Of the server that keeps this: whether it is as it should be, and a line on it. None where a file
        does.
        """
        return None

    def take_over(self, source: str) -> int:
        """Counts the documents of a source as stored by this machine and by no configuration, so that whoever
        runs it next may find them gone; how many were another machine's.
        """
        with self._writing() as write:
            write.connection.execute("UPDATE source SET configuration = NULL WHERE name = ?", (source,))
        return 0

    def _seq_of(self, statements: Statements) -> int:
        """The number up to which no write is under way."""
        return current_seq(statements)

    def seq(self) -> int:
        with self._reading() as connection:
            return self._seq_of(connection)

    def given_seq(self) -> int:
        return self.seq()

    def history(self, seq: int) -> str | None:
        with self._reading() as connection:
            known_from = connection.execute(
                "SELECT value FROM meta WHERE key = 'deletions_known_from'"
            ).fetchone()[0]
            if not known_from <= seq <= self._seq_of(connection):
                return None
            row = connection.execute(
                "SELECT token FROM epoch WHERE start <= ? ORDER BY start DESC LIMIT 1", (seq,)
            ).fetchone()
        return str(row[0]) if row else None

    def unfinished(self) -> bool:
        """Whether a move into this store was begun and has not come to its end."""
        with self._reading() as connection:
            return is_unfinished(connection)

    def mark_unfinished(self, unfinished: bool) -> None:
        """Says so, or that it has."""
        with self._writing() as write:
            if unfinished:
                write.connection.execute(
                    f"INSERT INTO meta VALUES ('{_MOVING}', 1) ON CONFLICT (key) DO NOTHING"
                )
            else:
                write.connection.execute(f"DELETE FROM meta WHERE key = '{_MOVING}'")

    def record_run(self, source: str, run: Run) -> None:
        with self._writing() as write:
            write.connection.execute(
                "UPDATE source SET (finished_ms, ok, note, revision, signature, configuration, succeeded_ms) "
                "= (?, ?, ?, ?, ?, ?, coalesce(?, succeeded_ms)) WHERE no = ?",
                (
                    *(run.finished_ms, int(run.ok), run.note, run.revision, run.signature, run.configuration),
                    *(run.finished_ms if run.ok else None, write.sources([source])[source]),
                ),
            )

    def last_run(self, source: str) -> Run | None:
        with self._reading() as connection:
            row = connection.execute(
                "SELECT finished_ms, ok, note, revision, signature, configuration FROM source "
                "WHERE name = ? AND finished_ms IS NOT NULL",
                (source,),
            ).fetchone()
        return None if row is None else Run(row[0], bool(row[1]), *row[2:])

    def filled_sources(self) -> list[str]:
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT name FROM source WHERE EXISTS (SELECT 1 FROM document WHERE source_no = source.no)"
            ).fetchall()
        return sorted(row[0] for row in rows)

    def statuses(self, model: str | None, configured: Iterable[str]) -> "list[SourceStatus]":
        """As the protocol has it. A source whose last run failed is not healthy; `last_indexed_ms` is of the
        last that did not.

        A `model` of None (embeddings are off) leaves nothing pending.
        """
        from ctx.items import SourceStatus  # what a search has no use for

        names = set(configured)
        with self._reading() as connection:
            runs = connection.execute(
                "SELECT no, name, finished_ms, ok, note, revision, succeeded_ms FROM source"
            ).fetchall()
            sizes = _by_number(
                connection.execute(
                    "SELECT source_no, count(*), CAST(sum(chunk_count) AS BIGINT), "
                    "min(CASE WHEN chunk_count > 0 THEN stored_ms END) "
                    "FROM document GROUP BY source_no"
                )
            )
            model_no = None if model is None else model_no_of(connection, model)
            pending = _by_number(
                connection.execute(
                    "SELECT source_no, count(*), min(stored_ms) FROM pending WHERE model_no = ? GROUP BY "
                    "source_no",
                    (model_no,),
                )
            )
        if model is not None and model_no is None:  # nothing is embedded with it yet
            pending = {no: (chunks, oldest_ms) for no, (_, chunks, oldest_ms) in sizes.items()}
        statuses: dict[str, SourceStatus] = {}
        for no, name, finished_ms, ok, note, revision, succeeded_ms in runs:
            documents, chunks, _ = sizes.get(no, (0, 0, None))
            if name not in names and not documents:
                continue
            waiting, oldest_ms = pending.get(no, (0, None))
            statuses[name] = SourceStatus(
                name=name,
                configured=name in names,
                healthy=finished_ms is None or bool(ok),
                doc_count=documents,
                chunk_count=chunks,
                pending=waiting,
                last_indexed_ms=succeeded_ms,
                note=note if finished_ms is not None else NEVER_INDEXED,
                revision=revision,
                oldest_pending_ms=oldest_ms,
            )
        for name in names - statuses.keys():
            statuses[name] = SourceStatus(name, True, True, 0, 0, 0, None, NEVER_INDEXED)
        return sorted(statuses.values(), key=lambda status: (not status.configured, status.name))

    def ages(self, until_ms: int, span_ms: int, spans: int) -> dict[str, list[int]]:
        """How many documents of each source changed last within each of the `spans` before `until_ms`, the
        latest first.

        One more count at the end is of all that are older. What bears a date to come counts as the latest.
        """
        counts: dict[str, list[int]] = {}
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT s.name, CASE WHEN d.updated_ms > ? THEN 0 WHEN d.updated_ms <= ? THEN CAST(? AS "
                "BIGINT) "
                "ELSE (? - d.updated_ms) / ? END AS span, count(*) "
                "FROM document d JOIN source s ON s.no = d.source_no GROUP BY s.name, span",
                (until_ms, until_ms - spans * span_ms, spans, until_ms, span_ms),
            )
            for name, span, count in rows:
                counts.setdefault(name, [0] * (spans + 1))[span] = count
        return counts

    def pending_count(self, model: str) -> int:
        with self._reading() as connection:
            model_no = model_no_of(connection, model)
            if model_no is None:
                return chunk_total(connection)
            return int(
                connection.execute("SELECT count(*) FROM pending WHERE model_no = ?", (model_no,)).fetchone()[
                    0
                ]
            )

    def awaiting(self, model: str, chunk_nos: Sequence[int]) -> frozenset[int]:
        waiting: set[int] = set()
        with self._reading() as connection:
            model_no = model_no_of(connection, model)
            if model_no is None:
                return frozenset(chunk_nos)
            for nos in slices(chunk_nos):
                rows = connection.execute(
                    f"SELECT chunk_no FROM pending WHERE model_no = ? AND chunk_no IN ({marks(nos)})",
                    (model_no, *nos),
                )
                waiting.update(row[0] for row in rows)
        return frozenset(waiting)

    def stats(self) -> Mapping[str, int]:
        with self._reading() as connection:
            return {
                "documents": int(connection.execute("SELECT count(*) FROM document").fetchone()[0]),
                "chunks": chunk_total(connection),
                "embeddings": int(connection.execute("SELECT count(*) FROM embedding").fetchone()[0]),
                "size_bytes": self._size_bytes(connection),
            }


def unfit(error: OverflowError | UnicodeEncodeError) -> StoreError:
    """Our error for what an engine's module says of a value that it cannot take."""
    if isinstance(error, OverflowError):
        return StoreError(TOO_LARGE)
    return StoreError("a text holds a lone surrogate, which is not Unicode text and cannot be stored")


def _by_number(rows: "Rows") -> dict[int, Sequence[Any]]:
    return {row[0]: row[1:] for row in rows}


def current_seq(connection: Statements) -> int:
    return int(connection.execute("SELECT value FROM meta WHERE key = 'seq'").fetchone()[0])


def is_unfinished(connection: Statements) -> bool:
    return connection.execute(f"SELECT 1 FROM meta WHERE key = '{_MOVING}'").fetchone() is not None


def source_no_of(connection: Statements, name: str) -> int | None:
    row = connection.execute("SELECT no FROM source WHERE name = ?", (name,)).fetchone()
    return int(row[0]) if row else None


def model_no_of(connection: Statements, name: str) -> int | None:
    row = connection.execute("SELECT no FROM model WHERE name = ?", (name,)).fetchone()
    return int(row[0]) if row else None


def chunk_total(connection: Statements) -> int:
    return int(connection.execute("SELECT coalesce(sum(chunk_count), 0) FROM document").fetchone()[0])


def rows_after(
    connection: Statements, select: str, values: tuple[object, ...], seen: tuple[int, int], limit: int
) -> list[tuple[int, ...]]:
    """Rows of a table with (seq, no, …) after `seen`, in that order.

    Two queries, since one over the pair would walk all rows of a seq again for each page.
    """
    rows = connection.execute(
        f"{select} seq = ? AND no > ? ORDER BY no LIMIT ?", (*values, *seen, limit)
    ).fetchall()
    if len(rows) < limit:
        rows += connection.execute(
            f"{select} seq > ? ORDER BY seq, no LIMIT ?", (*values, seen[0], limit - len(rows))
        )
    return rows


def marks(values: Sequence[object]) -> str:
    """What stands between the brackets of `IN (…)`; of no values, what nothing is equal to."""
    return ", ".join("?" * len(values)) or "NULL"


def slices(values: Sequence[object]) -> Iterator[Sequence[object]]:
    """The values in runs for `IN (…)`, each filled up with its last one: an engine then prepares few
    statements, and finds them again.
    """
    for start in range(0, len(values), _BOUND):
        run = [*values[start : start + _BOUND]]
        yield run + run[-1:] * (-len(run) % _STRIDE)


def runs(numbers: Sequence[int]) -> Iterator[tuple[str, list[int]]]:
    """The numbers as runs without a gap, for `FROM (VALUES …) run` and as many as one statement takes: the
    rows of `VALUES`, and what is bound to them, the first of each run and the number behind its last.

    A run is looked for once, where `IN (…)` would look for each of its numbers.
    """
    present = set(numbers)
    behind = {number + 1 for number in present}
    bounds = [*chain.from_iterable(zip(sorted(present - behind), sorted(behind - present), strict=True))]
    for start in range(0, len(bounds), _BOUND):
        values = bounds[start : start + _BOUND]
        values += (0, 0) * (-len(values) // 2 % _STRIDE)
        yield ", ".join(("(?, ?)",) * (len(values) // 2)), values


def body_of(connection: Statements, document_no: int) -> str:
    return str(
        connection.execute("SELECT text FROM body WHERE document_no = ?", (document_no,)).fetchone()[0]
    )


def documents_after(
    connection: Statements, seen: tuple[int, int], limit: int
) -> list[tuple[int, int, int, int]]:
    """(seq, no, chunk_first, chunk_count) of the documents written after `seen`, a pair (seq, no)."""
    rows = rows_after(
        connection, "SELECT seq, no, chunk_first, chunk_count FROM document WHERE", (), seen, limit
    )
    return [(row[0], row[1], row[2], row[3]) for row in rows]


def chunks_between(connection: Statements, first: int, count: int) -> "tuple[Chunk, ...]":
    from ctx.items import Chunk

    rows = connection.execute(
        'SELECT no - ?, start, "end", start_line, end_line, heading, text_hash '
        "FROM chunk WHERE no BETWEEN ? AND ? ORDER BY no",
        (first, first, first + count - 1),
    )
    return tuple(map(Chunk._make, rows))


def metadata_of(text: object) -> Mapping[str, object]:
    import json  # 2 ms, and few documents have metadata

    value: Mapping[str, object] = json.loads(str(text))
    return value
