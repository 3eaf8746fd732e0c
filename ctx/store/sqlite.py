"""The catalog in one SQLite file: documents, chunks, embeddings, and how the sources went."""

import os
from collections.abc import Iterable, Mapping

from ctx.errors import Busy, StoreError
from ctx.store.base import Run
from ctx.store.connections import chunk_total, model_no_of
from ctx.store.documents import Documents
from ctx.store.embeddings import Embeddings
from ctx.types import SourceStatus


class SqliteCatalog(Documents, Embeddings):
    """The `Catalog` in a SQLite file. Readers never wait: each call has a connection of its own, and one writes.

    Opening makes the file (unless `read_only`) and brings it up to date. Raises `StoreError`, and `Busy` where another process
    writes for longer than `timeout_s`.
    """

    def record_run(self, source: str, run: Run) -> None:
        with self._writing() as write:
            write.connection.execute(
                "UPDATE source SET (finished_ms, ok, note, revision, signature, succeeded_ms) = "
                "(?, ?, ?, ?, ?, CASE WHEN ? THEN ? ELSE succeeded_ms END) WHERE no = ?",
                (*run, run.ok, run.finished_ms, write.ensure_source(source)),
            )

    def last_run(self, source: str) -> Run | None:
        with self._reading() as connection:
            row = connection.execute(
                "SELECT finished_ms, ok, note, revision, signature FROM source WHERE name = ? AND finished_ms IS NOT NULL",
                (source,),
            ).fetchone()
        return None if row is None else Run(row[0], bool(row[1]), *row[2:])

    def statuses(self, model: str | None, configured: Iterable[str]) -> list[SourceStatus]:
        """As the protocol has it. A source whose last run failed is not healthy; `last_indexed_ms` is of the last that did not.

        A `model` of None (embeddings are off) leaves nothing pending.
        """
        names = set(configured)
        with self._reading() as connection:
            runs = {
                row[0]: row[1:]
                for row in connection.execute(
                    "SELECT no, name, finished_ms, ok, note, revision, succeeded_ms FROM source"
                )
            }
            sizes = {
                row[0]: row[1:]
                for row in connection.execute(
                    "SELECT source_no, count(*), sum(chunk_count), min(CASE WHEN chunk_count THEN stored_ms END) "
                    "FROM document GROUP BY source_no"
                )
            }
            model_no = None if model is None else model_no_of(connection, model)
            pending = {
                row[0]: row[1:]
                for row in connection.execute(
                    "SELECT source_no, count(*), min(stored_ms) FROM pending WHERE model_no = ? GROUP BY source_no",
                    (model_no,),
                )
            }
        statuses: dict[str, SourceStatus] = {}
        for no, (name, finished_ms, ok, note, revision, succeeded_ms) in runs.items():
            documents, chunks, oldest_ms = sizes.get(no, (0, 0, None))
            if name not in names and not documents:
                continue
            waiting: tuple[int, int | None] = (0, None)
            if model is not None:
                waiting = (chunks, oldest_ms) if model_no is None else pending.get(no, waiting)
            statuses[name] = SourceStatus(
                name=name,
                configured=name in names,
                healthy=finished_ms is None or bool(ok),
                doc_count=documents,
                chunk_count=chunks,
                pending=waiting[0],
                last_indexed_ms=succeeded_ms,
                note=note if finished_ms is not None else NEVER_INDEXED,
                revision=revision,
                oldest_pending_ms=waiting[1],
            )
        for name in names - statuses.keys():
            statuses[name] = SourceStatus(name, True, True, 0, 0, 0, None, NEVER_INDEXED)
        return sorted(statuses.values(), key=lambda status: (not status.configured, status.name))

    def ages(self, until_ms: int, span_ms: int, spans: int) -> dict[str, list[int]]:
        """How many documents of each source changed last within each of the `spans` before `until_ms`, the latest first.

        One more count at the end is of all that are older. What bears a date to come counts as the latest.
        """
        counts: dict[str, list[int]] = {}
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT s.name, min(?, max(0, (? - d.updated_ms) / ?)) AS span, count(*) "
                "FROM document d JOIN source s ON s.no = d.source_no GROUP BY s.name, span",
                (spans, until_ms, span_ms),
            )
            for name, span, count in rows:
                counts.setdefault(name, [0] * (spans + 1))[span] = count
        return counts

    def stats(self) -> Mapping[str, int]:
        with self._reading() as connection:
            size = connection.execute(
                "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
            ).fetchone()[0]
            counts = {
                "documents": int(connection.execute("SELECT count(*) FROM document").fetchone()[0]),
                "chunks": chunk_total(connection),
                "embeddings": int(connection.execute("SELECT count(*) FROM embedding").fetchone()[0]),
                "size_bytes": int(size),
            }
        try:
            counts["size_bytes"] += os.stat(self._path + "-wal").st_size
        except FileNotFoundError:
            pass  # nobody writes
        return counts

    def check(self) -> list[str]:
        """What is wrong with the file, a line each, after reading all of it: seconds for a million chunks. [] when it is whole."""
        try:
            with self._reading() as connection:
                problems = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(20)")]
        except Busy:
            raise
        except StoreError as error:
            return [error.message]
        return [] if problems == ["ok"] else problems


NEVER_INDEXED = "not indexed yet"
EVERY = 1 << 62  # above any number: together with a seq, "after all that was written at it"
