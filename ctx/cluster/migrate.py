"""Copies a whole store to a shared database, or back to a file: catalog, memories, keys, sessions and script
values. All ids stay the same.

An interrupted migration can be run again; it skips the entries that are already copied. Documents are copied
in the order of their chunks, so that documents with equal scores keep their order.
"""

import hashlib
import os
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import replace as with_values
from itertools import islice
from typing import NamedTuple

from ctx.cluster import open_database
from ctx.cluster.memory_db import SharedScriptStore
from ctx.config import Config
from ctx.errors import BadRequest, StoreError
from ctx.memory.location import Location, locate
from ctx.memory.store import Progress, move_memories, open_rows
from ctx.memory.store import check_target as check_banks
from ctx.scripts.store import FileScriptStore, ScriptStore
from ctx.server.keys import KeyRing, Keys, open_keys
from ctx.store.base import Catalog
from ctx.store.sqlite import open_catalog

SAME = "both are the same store; name another one with --to or --from"
BATCH = 64  # documents per transaction
_WAIT_S = 60.0  # the longest wait for reading or writing all script values


class Report(NamedTuple):
    """The counts of a migration. The digests cover all documents (ids, texts, chunks and metadata) and all
    memories, which were compared.
    """

    documents: int
    chunks: int
    embeddings: int  # embeddings that were copied
    passed_over: int  # documents that the target already had
    digest: str
    banks: int = 0
    memories: int = 0
    memory_digest: str = ""
    keys: int = 0
    sessions: int = 0
    values: int = 0  # script values


def migrate(config: Config, origin: str, target: str, *, replace: bool, progress: Progress) -> Report:
    """Copies a store from `origin` to `target` and compares the two. Both are the URL of a database or the
    path of a file. The target is marked as unfinished from the first write to the last comparison.

    Nobody may write to either store meanwhile. Raises `BadRequest` if the target has data that the origin
    does not have, unless `replace`, which deletes that data. Raises `StoreError`.
    """
    files = {place: _located(config, place) for place in (origin, target) if "://" not in place}
    memories_of = {place: files[place].memory if place in files else place for place in (origin, target)}
    with (
        open_catalog(origin, config.db.path) as source,
        open_catalog(target, config.db.path) as goal,
        closing(open_rows(memories_of[origin])) as rows,
        closing(open_rows(memories_of[target])) as goal_rows,
    ):
        if source.unfinished():
            raise StoreError(
                "the source store is the target of an interrupted migration: finish that one first"
            )
        if not replace:
            check_target(source, goal)
            check_banks(rows, goal_rows)
        for store in (goal, goal_rows):
            store.mark_unfinished(True)
        if source.unfinished():
            for store in (goal, goal_rows):
                store.mark_unfinished(False)
            raise BadRequest(SAME)
        report = move(source, goal, progress=progress)
        memories = move_memories(rows, goal_rows, progress=progress)
        report = report._replace(
            banks=memories.banks,
            memories=memories.memories,
            memory_digest=memories.digest,
            keys=_moved_keys(_keys(origin, files), _keys(target, files)),
            sessions=memories.sessions,
            values=_moved_values(memories_of[origin], memories_of[target]),
        )
        for store in (goal_rows, goal):
            store.mark_unfinished(False)
        return report


def _located(config: Config, catalog: str) -> Location:
    """The location of the memories that belong to the catalog file `catalog`."""
    return locate(with_values(config, db=with_values(config.db, path=catalog)), os.environ)


def check_target(origin: Catalog, target: Catalog) -> None:
    """Raises `BadRequest` if the target has documents that the origin does not have. Changes nothing."""
    excess = _excess(origin, target)
    if excess:
        count = sum(map(len, excess.values()))
        raise BadRequest(
            f"the target has documents that the source does not have: {count:,} (of {', '.join(excess)}); "
            "choose an empty store, or delete them with --replace"
        )


def move(origin: Catalog, target: Catalog, *, progress: Progress) -> Report:
    """Copies the catalog `origin` to `target`, deletes documents that only the target has, and compares the
    two. Nobody may write to either meanwhile. Raises `StoreError` if they differ afterwards.
    """
    for source, source_ids in _excess(origin, target).items():
        target.delete_documents(source, source_ids)
    total = origin.stats()["documents"]
    count = passed_over = 0
    ids = origin.ids()
    while batch := list(islice(ids, BATCH)):
        pairs = [(origin.document(id), target.document(id)) for id in batch]
        news = [
            (entry.document, entry.chunks)
            for entry, twin in pairs
            if entry and (twin is None or (twin.document, twin.chunks) != (entry.document, entry.chunks))
        ]
        target.put_documents(news)
        count += len(batch)
        passed_over += len(batch) - len(news)
        progress("documents", count, total)
    models = [share.model for share in origin.model_shares()]
    embeddings = sum(_move_embeddings(origin, target, model, progress) for model in models)
    for status in origin.statuses(None, ()):
        _move_runs(origin, target, status.name, status.last_indexed_ms)
    digests = [digest(catalog) for catalog in (origin, target)]
    if digests[0] != digests[1]:
        raise StoreError("the stores differ after the migration: was one written meanwhile? Run it again")
    stats = target.stats()
    return Report(stats["documents"], stats["chunks"], embeddings, passed_over, digests[1])


def digest(catalog: Catalog) -> str:
    """A SHA-256 over all documents with their chunks. It does not depend on the engine or on row numbers."""
    total = hashlib.sha256()
    for entry in catalog.export():
        document = entry.document._replace(metadata={})
        metadata = sorted(entry.document.metadata.items())
        total.update(repr((tuple(document), metadata, [tuple(chunk) for chunk in entry.chunks])).encode())
    return total.hexdigest()


def _excess(origin: Catalog, target: Catalog) -> dict[str, list[str]]:
    """source -> source_ids of the documents that only the target has."""
    excess: dict[str, list[str]] = {}
    for status in target.statuses(None, ()):
        ours = origin.fingerprints(status.name)
        foreign = [source_id for source_id in target.fingerprints(status.name) if source_id not in ours]
        if foreign:
            excess[status.name] = foreign
    return excess


def _move_embeddings(origin: Catalog, target: Catalog, model: str, progress: Progress) -> int:
    """Copies the vectors of the texts that have no embedding in the target. Returns the number copied."""
    count = 0
    total = target.pending_count(model)
    numbers = (chunk.chunk_no for chunk in list(target.pending_chunks(model)))
    while batch := list(islice(numbers, 10 * BATCH)):
        hashes = [text_hash for text_hash, _ in target.pending_texts(model, batch)]
        vectors = origin.vectors_of(model, hashes)
        target.put_embeddings(model, list(vectors.items()))
        count += len(vectors)
        progress("embeddings", min(count, total), total)
    return count


def _move_runs(origin: Catalog, target: Catalog, source: str, succeeded_ms: int | None) -> None:
    run = origin.last_run(source)
    if run is None or run == target.last_run(source):
        return
    if succeeded_ms is not None and not run.ok:
        target.record_run(source, run._replace(finished_ms=succeeded_ms, ok=True, note=None))
    target.record_run(source, run)


def _keys(place: str, files: Mapping[str, Location]) -> Keys:
    return KeyRing(files[place].memory, files[place].keys) if place in files else open_keys(place)


def _moved_keys(origin: Keys, target: Keys) -> int:
    """Copies the keys. A key that was revoked in the target after an earlier migration stays revoked."""
    with closing(origin) as source, closing(target) as goal:
        records = source.list()
        goal.add(records)
    return len(records)


def _moved_values(origin: str, target: str) -> int:
    with ExitStack() as opened:
        source, goal = (_open_values(opened, address) for address in (origin, target))
        rows = source.rows(time.monotonic() + _WAIT_S)
        goal.take_over(rows, time.monotonic() + _WAIT_S)
    return len(rows)


def _open_values(opened: ExitStack, place: str) -> ScriptStore:
    if "://" not in place:
        return opened.enter_context(closing(FileScriptStore(place)))
    database = opened.enter_context(open_database(place))
    return SharedScriptStore(database)
