"""One index run of one source: scan, read, extract, chunk, store, delete.

A bad item is a line of the report, never the end of the run. Each batch is a transaction of the catalog, so a run that dies leaves
a store that opens, and the next run completes it.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from ctx.clock import now_ms
from ctx.connectors.base import Connector, Problem, ScanLog
from ctx.connectors.base import Progress as Progress  # of the whole run, and of a connector's own steps
from ctx.errors import SourceError
from ctx.formats.extract import extract
from ctx.identity import document_id
from ctx.indexing.chunk import chunk
from ctx.store.base import Catalog, Run
from ctx.types import Chunk, Content, Document, SourceItem

TEXT_FORMAT = 1  # raised when a new version would extract or cut the same bytes otherwise: everything is then read again
BATCH_DOCUMENTS = (
    256  # a transaction of about 0.1 s: short enough for other writers, long enough to amortise the fsync
)
BATCH_CHARACTERS = 4_000_000
SINGLE_LOOKUPS = 200  # of 30 us each; reading the fingerprints of a whole source of 20,000 files takes 20 ms


class IndexReport(NamedTuple):
    """What a run of one source did. `ok` is False where the source as a whole could not be read; `note` says why."""

    source: str
    ok: bool
    added: int
    updated: int
    unchanged: int
    deleted: int
    chunks: int
    skipped: int  # binary or empty of text
    problems: tuple[Problem, ...]
    note: str | None
    revision: str | None
    duration_s: float
    notes: tuple[Problem, ...] = ()  # what is worth knowing though nothing failed


class _Batch:
    """Documents on their way to the catalog."""

    def __init__(self) -> None:
        self.put: list[tuple[Document, list[Chunk]]] = []
        self.touch: list[tuple[str, str, str, int]] = []
        self.characters = 0

    def full(self) -> bool:
        return len(self.put) + len(self.touch) >= BATCH_DOCUMENTS or self.characters >= BATCH_CHARACTERS


class _Known(Mapping[str, str]):
    """The fingerprints of a source, looked up as they are asked for: an edit of one file must not read those of all."""

    def __init__(self, catalog: Catalog, source: str) -> None:
        self._catalog = catalog
        self._source = source
        self._found: dict[str, str | None] = {}
        self._all: dict[str, str] | None = None

    def get(self, source_id: str, default: str | None = None) -> str | None:  # type: ignore[override]
        if self._all is None and source_id not in self._found:
            if len(self._found) >= SINGLE_LOOKUPS:
                self._everything()
            else:
                self._found[source_id] = self._catalog.fingerprints(self._source, [source_id]).get(source_id)
        found = self._found.get(source_id) if self._all is None else self._all.get(source_id)
        return default if found is None else found

    def below(self, tops: Iterable[str]) -> set[str]:
        """The known ids that are one of `tops` or under one."""
        return set(self._catalog.fingerprints(self._source, list(tops)))

    def __getitem__(self, source_id: str) -> str:
        found = self.get(source_id)
        if found is None:
            raise KeyError(source_id)
        return found

    def __contains__(self, source_id: object) -> bool:
        return isinstance(source_id, str) and self.get(source_id) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._everything())

    def __len__(self) -> int:
        return len(self._everything())

    def _everything(self) -> dict[str, str]:
        if self._all is None:
            self._all = self._catalog.fingerprints(self._source)
        return self._all


class _Counts:
    def __init__(self) -> None:
        self.added = self.updated = self.touched = self.chunks = self.skipped = 0


def run_signature(connector: Connector, max_tokens: int, overlap_tokens: int) -> str:
    """What must be equal for a known fingerprint to mean "nothing to do": how the source is read, and how text is cut."""
    return f"{connector.signature}|{TEXT_FORMAT}|{max_tokens}|{overlap_tokens}"


def index_source(
    connector: Connector,
    catalog: Catalog,
    *,
    max_tokens: int,
    overlap_tokens: int = 0,
    full: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
    published: Callable[[], None] | None = None,
    stop: threading.Event | None = None,
    items: Callable[[Mapping[str, str], ScanLog], Iterator[SourceItem]] | None = None,
    clock: Callable[[], int] = now_ms,
) -> IndexReport:
    """Brings the catalog up to date with a source.

    `full` reads everything again. `published` is called after each batch, for a projection that wants to follow. `items` stands in for
    `connector.scan` where only some paths are looked at (watch mode): then nothing but `log.gone` is deleted. Raises `StoreError`.
    """
    began_s = time.monotonic()
    signature = run_signature(connector, max_tokens, overlap_tokens)
    last = catalog.last_run(connector.name)
    partial = items is not None
    existing: Mapping[str, str] = (
        _Known(catalog, connector.name) if partial else catalog.fingerprints(connector.name)
    )
    reread = full or last is None or last.signature != signature
    known = {} if reread else existing
    log = ScanLog(progress)
    counts = _Counts()
    kept: set[str] = set()  # there, but not readable this time: the last good version stays
    seen: set[str] = set()
    batch = _Batch()
    note = None
    ok = True

    def take(scan: Iterator[SourceItem]) -> None:
        for item in scan:
            if stop is not None and stop.is_set():
                log.complete = False
                break
            seen.add(item.source_id)
            if dry_run:
                counts.added += item.source_id not in existing
                counts.updated += item.source_id in existing
                continue
            if _read(
                item,
                connector.name,
                catalog,
                existing,
                reread,
                batch,
                counts,
                kept,
                log,
                max_tokens,
                overlap_tokens,
            ):
                seen.discard(item.source_id)  # nothing to index in it any more
            if batch.full():
                _store(catalog, batch)
                if progress:
                    progress(connector.name, len(seen), None)
                if published:
                    published()

    try:
        take((items or connector.scan)(known, log))
        if log.rescan and not (stop is not None and stop.is_set()):
            partial = False
            log = ScanLog(progress)
            existing = catalog.fingerprints(connector.name)
            known = {} if reread else existing
            take(connector.scan(known, log))
    except SourceError as error:
        ok = False
        note = error.message
        log.complete = False
    if not dry_run:
        _store(catalog, batch)
    gone = _gone(existing, seen | kept, log, partial=partial)
    if gone and not dry_run:
        catalog.delete_documents(connector.name, gone)
    # A look at single paths that found nothing new is no news: recording it would only wake whoever watches the store.
    news = not partial or seen or gone or log.problems
    if not dry_run and news and (stop is None or not stop.is_set()):
        finished = Run(
            finished_ms=clock(),
            ok=ok,
            note=note or _first_of([*log.problems, *log.notes]),
            revision=log.revision or (last.revision if last and (not ok or partial) else None),
            # A run that could not finish must not make the next one believe that everything was read the new way.
            signature=signature if (ok and log.complete) or not reread else (last.signature if last else ""),
        )
        catalog.record_run(connector.name, finished)
    if published and not dry_run:
        published()
    return IndexReport(
        source=connector.name,
        ok=ok,
        added=counts.added,
        updated=counts.updated,
        unchanged=len(log.unchanged) + counts.touched,
        deleted=len(gone),
        chunks=counts.chunks,
        skipped=counts.skipped,
        problems=tuple(log.problems),
        note=note,
        revision=log.revision,
        duration_s=time.monotonic() - began_s,
        notes=tuple(log.notes),
    )


def _read(
    item: SourceItem,
    source: str,
    catalog: Catalog,
    existing: Mapping[str, str],
    reread: bool,
    batch: _Batch,
    counts: _Counts,
    kept: set[str],
    log: ScanLog,
    max_tokens: int,
    overlap_tokens: int,
) -> bool:
    """Reads one item into the batch. True where it holds no text, so that an older version of it has to go."""
    present = item.source_id in existing
    try:
        content = item.read()
        digest = _content_hash(content)
        if (
            present
            and not reread
            and catalog.content_hashes(source, [item.source_id]).get(item.source_id) == digest
        ):
            batch.touch.append(
                (source, item.source_id, item.fingerprint, content.updated_ms or item.updated_ms)
            )
            counts.touched += 1
            return False
        extracted = extract(content, item.source_id)
    except SourceError as error:
        log.problem(item.source_id, error.message)
        kept.add(item.source_id)
        return False
    if extracted is None:
        counts.skipped += 1
        return True
    metadata = {**extracted.metadata, **content.metadata}
    document = Document(
        id=document_id(source, item.source_id),
        source=source,
        source_id=item.source_id,
        title=extracted.title,
        body=extracted.body,
        media_type=extracted.media_type,
        updated_ms=item.updated_ms if content.updated_ms is None else content.updated_ms,
        fingerprint=item.fingerprint,
        content_hash=digest,
        source_url=content.source_url,
        author=content.author,
        created_ms=content.created_ms,
        metadata=metadata,
    )
    chunks = chunk(extracted, extracted.title, max_tokens=max_tokens, overlap_tokens=overlap_tokens)
    batch.put.append((document, chunks))
    batch.characters += len(extracted.body)
    counts.chunks += len(chunks)
    if present:
        counts.updated += 1
    else:
        counts.added += 1
    return False


def _content_hash(content: Content) -> bytes:
    """Of everything that decides what is stored, so that a changed title or address counts as a change."""
    digest = hashlib.sha256(
        content.data if isinstance(content.data, bytes) else content.data.encode("utf-8", "surrogatepass")
    )
    rest = (content.media_type, content.title, content.author, content.created_ms, content.source_url)
    if any(part is not None for part in rest) or content.metadata:
        digest.update(
            repr((rest, sorted(content.metadata.items(), key=lambda pair: pair[0]))).encode(
                "utf-8", "surrogatepass"
            )
        )
    return digest.digest()


def _store(catalog: Catalog, batch: _Batch) -> None:
    if batch.put:
        catalog.put_documents(batch.put)
    if batch.touch:
        catalog.touch_documents(batch.touch)
    batch.put = []
    batch.touch = []
    batch.characters = 0


def _gone(existing: Mapping[str, str], present: set[str], log: ScanLog, *, partial: bool) -> list[str]:
    """The ids to delete: known and no longer there. A scan that did not see everything deletes only what it knows to be gone."""
    if partial:
        return sorted(source_id for source_id in log.gone if source_id in existing)
    if log.complete and len(log.unchanged) == len(existing):
        return []  # all that was known was seen: the usual run, spared three sets of all its ids
    known = set(existing)
    if not log.complete:
        return []
    missing = known - present - log.unchanged
    if log.withheld:
        prefixes = tuple(log.withheld)
        missing = {source_id for source_id in missing if not source_id.startswith(prefixes)}
    return sorted(missing)


def _first_of(problems: list[Problem]) -> str | None:
    if not problems:
        return None
    first = problems[0]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{first.source_id}: {first.message}{more}" if first.source_id else first.message + more
