"""Moves a catalog from one engine to another: documents, embeddings and how the sources went, under the same
ids.

It may be broken off and begun again: what is there already, and equal, is passed over. Documents go in the
order of their chunks, so that of two that score the same the same one comes first.
"""

import hashlib
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from ctx.errors import BadRequest, StoreError
from ctx.store.postgres_catalog import PostgresCatalog
from ctx.store.rows import StoredDocument
from ctx.store.sqlite_catalog import SqliteCatalog

SqlCatalog = SqliteCatalog | PostgresCatalog

BATCH = 64  # documents of one transaction
Progress = Callable[[str, int, int], None]
"""`progress(step, count, total)`"""


class Moved(NamedTuple):
    """What a move came to. `digest` is of all that was compared: ids, texts, chunks, metadata."""

    documents: int
    chunks: int
    embeddings: int
    passed_over: int
    digest: str


def check_target(origin: SqlCatalog, target: SqlCatalog) -> None:
    """Raises `BadRequest` where the target holds documents that the origin lacks. Changes nothing."""
    excess = _excess(origin, target)
    if excess:
        count = sum(map(len, excess.values()))
        raise BadRequest(
            f"documents that the store to be moved lacks: {count:,} (of {', '.join(excess)}); "
            "name an empty store, or drop them with --replace"
        )


def move(origin: SqlCatalog, target: SqlCatalog, *, progress: Progress) -> Moved:
    """Copies all of `origin` to `target`, drops what only that one holds, and compares the two. Nobody may
    write either meanwhile. Raises `StoreError` where the two are not equal afterwards.
    """
    for source, source_ids in _excess(origin, target).items():
        target.delete_documents(source, source_ids)
    total = origin.stats()["documents"]
    count = passed_over = 0
    ids = origin.ids()
    while batch := list(islice(ids, BATCH)):
        pairs = [(_document(origin, id), target.document(id)) for id in batch]
        news = [(entry.document, entry.chunks) for entry, twin in pairs if not _equal(entry, twin)]
        target.put_documents(news)
        count += len(batch)
        passed_over += len(batch) - len(news)
        progress("documents", count, total)
    embeddings = sum(_move_embeddings(origin, target, model, progress) for model in origin.models())
    for status in origin.statuses(None, ()):
        _move_runs(origin, target, status.name, status.last_indexed_ms)
    digests = [digest(catalog) for catalog in (origin, target)]
    if digests[0] != digests[1]:
        raise StoreError("what was moved is not what was there: was either written meanwhile? Run it again")
    stats = target.stats()
    return Moved(stats["documents"], stats["chunks"], embeddings, passed_over, digests[1])


def digest(catalog: SqlCatalog) -> str:
    """A digest of every document with its chunks, whatever engine keeps them and under which numbers."""
    total = hashlib.sha256()
    for entry in catalog.export():
        document = entry.document._replace(metadata={})
        metadata = sorted(entry.document.metadata.items())
        total.update(repr((tuple(document), metadata, [tuple(chunk) for chunk in entry.chunks])).encode())
    return total.hexdigest()


def _excess(origin: SqlCatalog, target: SqlCatalog) -> dict[str, list[str]]:
    """What only the target holds: source -> source_ids."""
    excess: dict[str, list[str]] = {}
    for status in target.statuses(None, ()):
        ours = origin.fingerprints(status.name)
        foreign = [source_id for source_id in target.fingerprints(status.name) if source_id not in ours]
        if foreign:
            excess[status.name] = foreign
    return excess


def _document(catalog: SqlCatalog, id: str) -> StoredDocument:
    entry = catalog.document(id)
    if entry is None:
        raise StoreError(
            "a document was deleted while the store was moved: stop whoever writes, and run it again"
        )
    return entry


def _equal(entry: StoredDocument, twin: StoredDocument | None) -> bool:
    return twin is not None and entry.document == twin.document and entry.chunks == twin.chunks


def _move_embeddings(origin: SqlCatalog, target: SqlCatalog, model: str, progress: Progress) -> int:
    """Copies the vectors of the texts that are pending in the target; how many."""
    count = 0
    total = target.pending_count(model)
    numbers = (chunk.chunk_no for chunk in list(target.pending_chunks(model)))
    while batch := list(islice(numbers, 10 * BATCH)):
        hashes = [text_hash for text_hash, _ in target.pending_texts(model, len(batch), batch)]
        vectors = origin.vectors_of(model, hashes)
        target.put_embeddings(model, list(vectors.items()))
        count += len(vectors)
        progress("embeddings", min(count, total), total)
    return count


def _move_runs(origin: SqlCatalog, target: SqlCatalog, source: str, succeeded_ms: int | None) -> None:
    run = origin.last_run(source)
    if run is None or run == target.last_run(source):
        return
    if succeeded_ms is not None and not run.ok:
        target.record_run(source, run._replace(finished_ms=succeeded_ms, ok=True, note=None))
    target.record_run(source, run)
