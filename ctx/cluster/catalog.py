"""The catalog in a PostgreSQL database, to which several processes on several machines write at once.

A writer locks the row of the source whose documents it writes, so that no two processes write the same
document. Different sources are written in parallel. Most of a write is done before it takes its `seq`. The
row that counts `seq` stays locked until the commit, so writes become visible in the order of their numbers.
"""

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from ctx.cluster.leases import Leases, turn, turn_or_done
from ctx.cluster.postgres import Connection, Database, native_tables
from ctx.errors import Busy, StoreError
from ctx.models import source_kind
from ctx.store import sqlite
from ctx.store.base import Catalog, IndexTurn
from ctx.store.record import Statements, marks, model_no_of, rows_among, slices
from ctx.store.write import Write

COMPONENT = "catalog"
OLDEST_VERSION = 6  # of the tables; earlier versions are of builds before the first release
TABLES = (
    native_tables("".join((sqlite.TABLES, *sqlite.MIGRATIONS[1:3])))  # a later one is a migration here, too
    + """
    DROP INDEX document_size;
    -- The machine that stored it, for a source that can differ between machines; else ''.
    ALTER TABLE document ADD COLUMN machine TEXT NOT NULL;
    ALTER TABLE pending ADD COLUMN claimed_until TIMESTAMPTZ;  -- until then, a machine is embedding it
    CREATE TABLE lease (
        name TEXT PRIMARY KEY, epoch BIGINT NOT NULL, owner TEXT NOT NULL, until TIMESTAMPTZ NOT NULL
    );
    CREATE TABLE sight (  -- the fingerprint that a machine has of a document that another one stored last
        document_no BIGINT REFERENCES document ON DELETE CASCADE, machine TEXT, fingerprint TEXT NOT NULL,
        PRIMARY KEY (document_no, machine)
    );
    INSERT INTO epoch VALUES (0, md5(random()::text || clock_timestamp()::text));
    CREATE SEQUENCE document_no;
    CREATE SEQUENCE chunk_no;
    -- A block of numbers in a row. A sequence alone gives one at a time, and others would come in between.
    CREATE FUNCTION take_numbers(sequence regclass, count bigint) RETURNS bigint LANGUAGE plpgsql AS $$
    DECLARE
        first bigint;
    BEGIN
        PERFORM pg_advisory_lock(7, sequence::oid::integer);
        first := nextval(sequence);
        PERFORM setval(sequence, first + count - 1);
        PERFORM pg_advisory_unlock(7, sequence::oid::integer);
        RETURN first;
    END $$;
    """
)

MOMENT_S = 0.5  # how long a health probe waits
SEEN_ALIKE = ("git", "web", "s3")  # types of sources that look the same from every machine
# The server's timeline and the identity of the tables. It changes when a standby is promoted, which may lose
# writes, and when a dump is restored.
_TIMELINE = "substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"
_LINE = f"'.' || ?::text || '.' || {_TIMELINE} || '.' || 'meta'::regclass::oid"


class PostgresCatalog(Catalog):
    """The `Catalog` in a PostgreSQL database. Opening creates missing tables and migrates old tables. Raises
    `StoreError`, `Busy`.
    """

    _unclaimed = " AND (p.claimed_until IS NULL OR p.claimed_until < clock_timestamp())"
    _fingerprint = (
        "CASE WHEN machine IN ('', ?) THEN fingerprint ELSE coalesce((SELECT s.fingerprint FROM sight s "
        "WHERE s.document_no = document.no AND s.machine = ?), '') END"
    )

    def __init__(self, url: str | Database, *, machine: str = "") -> None:
        """`url` is the database's URL, or an open database, which `close` will close. `machine` is the name
        of this machine. It is stored with documents that other machines may not see.
        """
        self.database = Database(url) if isinstance(url, str) else url
        self.machine = machine
        self._fingerprint_values = machine, machine
        self._epochs: dict[str, int] = {}  # source -> epoch of the lease that this process holds on it
        self._line: str | None = None  # the server's `_LINE` when this process began its epoch
        try:
            self.database.migrate(COMPONENT, (TABLES,), oldest=OLDEST_VERSION)
        except BaseException:
            self.database.close()
            raise

    def close(self) -> None:
        self.database.close()

    def reach(self) -> None:
        """Raises `StoreError` if the database does not answer at once."""
        with self.database.transaction(timeout_s=MOMENT_S):
            pass

    def _reading(self) -> AbstractContextManager[Connection]:
        return self.database.transaction()

    @contextmanager
    def _writing(self) -> Iterator["PostgresWrite"]:
        with self.database.transaction(write=True) as connection:
            write = PostgresWrite(connection, self._line, self.machine, self._epochs)
            yield write
        self._line = write.line

    def _leases(self) -> Leases:
        return Leases(self.database, f"{self.machine or 'a machine'} (process {os.getpid()})")

    def identity(self) -> str:
        """A name that identifies the database: the server's system identifier, which survives a failover, and
        the name of the database.
        """
        with self._reading() as connection:
            [name] = connection.execute("SELECT current_database()").fetchone()
            return f"{connection.native.system} {name}"

    def index_turn(self, name: str) -> IndexTurn:
        """See `Catalog`."""
        return partial(turn_or_done, self._leases(), f"index:{name}", "the index is being brought up to date")

    @contextmanager
    def turn(self, source: str, stop: threading.Event | None) -> Iterator[threading.Event]:
        """A context manager in which only this process writes documents of the source. It yields the event
        that ends the run early. Raises `Busy`.
        """
        leases = self._leases()
        with turn(leases, f"source:{source}", f"'{source}' is being indexed", stop) as (epoch, ending):
            self._epochs[source] = epoch
            try:
                yield ending
            finally:
                del self._epochs[source]

    def elsewhere(self, source: str, source_ids: Sequence[str]) -> Mapping[str, str]:
        sql = (
            "SELECT d.source_id, d.machine FROM document d JOIN source s ON s.no = d.source_no "
            "WHERE s.name = ? AND d.machine NOT IN ('', ?) AND d.source_id IN ({})"
        )
        with self._reading() as connection:
            return dict(rows_among(connection, sql, (source, self.machine), source_ids))

    def take_over(self, source: str) -> int:
        super().take_over(source)
        with self._writing() as write:
            cursor = write.connection.execute(
                "UPDATE document SET machine = ? WHERE source_no = ? AND machine NOT IN ('', ?)",
                (self.machine, write.source(source), self.machine),
            )
        return int(cursor.rowcount)

    def touch_documents(self, batch: Sequence[tuple[str, str, str, int]]) -> int:
        """See `Documents`. For a document that another machine stored, only records this machine's
        fingerprint. The file has another time on each machine, and so another fingerprint.
        """
        foreign = {
            (source, source_id)
            for source in {entry[0] for entry in batch}
            for source_id in self.elsewhere(source, [entry[1] for entry in batch if entry[0] == source])
        }
        if foreign:
            with self._writing() as write:
                write.connection.executemany(
                    "INSERT INTO sight SELECT d.no, ?, ? FROM document d JOIN source s ON s.no = d.source_no "
                    "WHERE s.name = ? AND d.source_id = ? AND d.machine NOT IN ('', ?) "
                    "ON CONFLICT (document_no, machine) DO UPDATE SET fingerprint = excluded.fingerprint",
                    [
                        (self.machine, fingerprint, source, source_id, self.machine)
                        for source, source_id, fingerprint, _ in batch
                        if (source, source_id) in foreign
                    ],
                )
        return super().touch_documents([entry for entry in batch if entry[:2] not in foreign])

    def claim(self, model: str, chunk_nos: Sequence[int], for_s: float) -> list[int]:
        with self._reading() as connection:
            model_no = model_no_of(connection, model)
        if model_no is None:
            return list(chunk_nos)  # for a new model, two machines may start with the same chunks
        sql = (
            "UPDATE pending SET claimed_until = clock_timestamp() + make_interval(secs => ?) "
            "WHERE model_no = ? AND chunk_no IN (SELECT p.chunk_no FROM pending p "
            f"WHERE p.model_no = ? AND p.chunk_no IN ({{}}){self._unclaimed} "
            "FOR UPDATE SKIP LOCKED) RETURNING chunk_no"
        )
        with self._writing() as write:
            rows = rows_among(write.connection, sql, (for_s, model_no, model_no), chunk_nos)
            claimed = {row[0] for row in rows}
        return [no for no in chunk_nos if no in claimed]

    def server(self) -> tuple[bool, str] | None:
        with self._reading() as connection:
            version, names, commit, process = connection.execute(
                "SELECT current_setting('server_version'), current_setting('synchronous_standby_names'), "
                "current_setting('synchronous_commit'), pg_backend_pid()"
            ).fetchone()
            standbys = connection.execute(
                "SELECT sync_state, coalesce(extract(epoch FROM replay_lag), 0)::float8 FROM "
                "pg_stat_replication"
            ).fetchall()
            backend = connection.native.info.backend_pid
        line = f"PostgreSQL {str(version).split()[0]}{'' if process == backend else ' behind a pooler'}"
        if standbys:
            healthy, words = _standbys_line(standbys, names, commit)
            return healthy, f"{line}, {words}"
        waiting = f", and synchronous_standby_names = '{names}' makes every write wait for one"
        return not names, f"{line}, no standby follows it{waiting if names else ''}"

    def _size_bytes(self, statements: Statements) -> int:
        return int(statements.execute("SELECT pg_database_size(current_database())").fetchone()[0])


def _standbys_line(standbys: Sequence[tuple[str | None, float]], names: str, commit: str) -> tuple[bool, str]:
    """(whether a standby has every acknowledged write, a line that describes the standbys)."""
    followers = f"{len(standbys)} standby" if len(standbys) == 1 else f"{len(standbys)} standbys"
    if all(state is None for state, _ in standbys):
        hidden = "the user of [store] url may not see how far they follow: GRANT pg_monitor to it"
        return bool(names), f"{followers}, synchronous_commit = {commit}; {hidden}"
    synchronous = sum(state in ("sync", "quorum") for state, _ in standbys)
    behind_s = max(float(lag_s) for _, lag_s in standbys)
    line = f"{followers} ({synchronous} synchronous), at most {behind_s:.1f} s behind, "
    line += f"synchronous_commit = {commit}"
    if not synchronous:
        line += ": writes acknowledged just before the primary dies may be lost (synchronous_standby_names)"
    return bool(synchronous), line


class PostgresWrite(Write):
    """A write transaction, which runs in parallel with other writers."""

    connection: Connection

    def __init__(
        self, connection: Connection, line: str | None, machine: str, epochs: Mapping[str, int]
    ) -> None:
        super().__init__(connection)
        self.line = line
        self._machine = machine
        self._epochs = epochs

    def own_columns(self, source: str) -> dict[str, str]:
        return {"machine": "" if source_kind(source) in SEEN_ALIKE else self._machine}

    def supersede(self, document_nos: Sequence[int]) -> None:
        for nos in slices(document_nos):
            self.connection.execute(
                "INSERT INTO sight SELECT no, machine, fingerprint FROM document "
                f"WHERE no IN ({marks(nos)}) AND machine NOT IN ('', ?) "
                "ON CONFLICT (document_no, machine) DO UPDATE SET fingerprint = excluded.fingerprint",
                (*nos, self._machine),
            )

    def next_seq(self) -> int:
        """Takes the sequence number of this write. Other writers that need a number wait until this write
        commits.
        """
        row = self.connection.execute(
            f"UPDATE meta SET value = value + 1 WHERE key = 'seq' RETURNING value, {_LINE}",
            (self.connection.native.system,),
        ).fetchone()
        if row is None:
            raise StoreError("the catalog has lost count of its writes: restore a backup of the database")
        seq, line = int(row[0]), str(row[1])
        if line != self.line:
            # A failover may have lost writes with the numbers that follow, so a new epoch begins.
            self.connection.execute("INSERT INTO epoch VALUES (?, ?)", (seq, os.urandom(8).hex() + line))
            self.line = line
        return seq

    def take_turn(self) -> None:
        self.connection.execute("SELECT value FROM meta WHERE key = 'seq' FOR UPDATE")

    def numbers(self, documents: int, chunks: int) -> tuple[int, int]:
        if not documents and not chunks:
            return 0, 0
        row = self.connection.execute(
            "SELECT CASE WHEN ? > 0 THEN take_numbers('document_no', ?) ELSE 0 END, "
            "CASE WHEN ? > 0 THEN take_numbers('chunk_no', ?) ELSE 0 END",
            (documents, documents, chunks, chunks),
        ).fetchone()
        return int(row[0]), int(row[1])

    def sources(self, names: Iterable[str]) -> dict[str, int]:
        ordered = sorted(names)  # all writers lock in the same order, which prevents a deadlock
        numbers = self._locked(ordered) if len(ordered) == 1 else {}
        while len(numbers) < len(ordered):  # a source is new, or was deleted while this waited for its lock
            for name in ordered:
                self.connection.execute(
                    "INSERT INTO source (name) VALUES (?) ON CONFLICT DO NOTHING", (name,)
                )
            numbers = self._locked(ordered)
        return numbers

    def source(self, name: str) -> int | None:
        return self._locked([name]).get(name)

    def _locked(self, names: Sequence[str]) -> dict[str, int]:
        """name -> number of the sources that exist. Their rows stay locked until the commit. Raises `Busy` if
        another process is indexing one of them.
        """
        numbers = {}
        for name, no, epoch, owner in self.connection.execute(
            "SELECT s.name, s.no, l.epoch, l.owner FROM source s "
            "LEFT JOIN lease l ON l.name = 'source:' || s.name AND l.until > clock_timestamp() "
            f"WHERE s.name IN ({marks(names)}) ORDER BY s.name FOR UPDATE OF s",
            names,
        ):
            if self._epochs.get(name) != epoch:
                holder = f"by {owner}" if owner else "by no one any more: its turn ran out"
                raise Busy(f"'{name}' is being indexed {holder}: try again when it has finished")
            numbers[str(name)] = int(no)
        return numbers
