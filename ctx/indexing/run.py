"""Indexes one source: scan, read, extract, chunk, store, delete.

A bad item becomes a problem in the report and does not end the run. Each batch is a transaction of the
catalog: if a run dies, the store is consistent and the next run completes it.
"""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

from ctx.clock import now_ms
from ctx.connectors.base import EVERY_TEXT, Connector, Problem, ScanLog
from ctx.connectors.base import Progress as Progress
from ctx.connectors.defaults import BINARY, WORKTREE
from ctx.errors import SourceError
from ctx.formats.extract import begin
from ctx.formats.table import TEXT_FORMAT
from ctx.indexing.chunk import chunk
from ctx.indexing.status import EMPTY, MAX_NAMED, Change, IndexReport, why_no_text
from ctx.models import Chunk, Content, Document, Extracted, Run, SourceItem, document_id
from ctx.store.base import Catalog
from ctx.text.strings import counted

# A transaction takes about 0.1 s: short for other writers, long enough to amortise the fsync.
BATCH_DOCUMENTS = 256
BATCH_CHARACTERS = 4_000_000

Items = Callable[[Mapping[str, str], ScanLog], Iterator[SourceItem]]
"""Replaces a connector's `scan` to read only part of a source."""

_NO_RUN = Run(finished_ms=0, ok=True, note=None, revision=None, signature="")


class _Batch:
    """Documents that are stored in one transaction."""

    def __init__(self) -> None:
        self.put: list[tuple[Document, list[Chunk]]] = []
        self.touch: list[tuple[str, str, str, int]] = []
        self.characters = 0

    def full(self) -> bool:
        return len(self.put) + len(self.touch) >= BATCH_DOCUMENTS or self.characters >= BATCH_CHARACTERS


class _Reading(NamedTuple):
    """An item that is being read. `extract()` waits for its text and returns it."""

    item: SourceItem
    content: Content
    digest: bytes
    extract: Callable[[], Extracted | None]


class _Known(Mapping[str, str]):
    """The fingerprints of a source by item id, read only when needed: after an edit of one file it would be
    slow to read the fingerprints of all files.
    """

    def __init__(self, catalog: Catalog, source: str) -> None:
        self._catalog = catalog
        self._source = source
        self._looked_up: dict[str, str | None] = {}

    def __getitem__(self, source_id: str) -> str:
        if source_id not in self._looked_up:
            self._looked_up[source_id] = self._catalog.fingerprints(self._source, [source_id]).get(source_id)
        fingerprint = self._looked_up[source_id]
        if fingerprint is None:
            raise KeyError(source_id)
        return fingerprint

    def below(self, tops: Iterable[str]) -> set[str]:
        """The known ids that are in `tops` or below one of the ids in `tops`."""
        return set(self._catalog.fingerprints(self._source, list(tops)))

    def __iter__(self) -> Iterator[str]:
        return iter(self._catalog.fingerprints(self._source))

    def __len__(self) -> int:
        return len(self._catalog.fingerprints(self._source))


class Window(NamedTuple):
    """Limits a run to new and changed items updated from `since_ms` to `until_ms` (milliseconds, inclusive),
    and to `limit` items. None means no limit.
    """

    since_ms: int | None = None
    until_ms: int | None = None
    limit: int | None = None

    def scan(
        self, connector: Connector, known: Mapping[str, str], _: Mapping[str, str], log: ScanLog
    ) -> Iterator[SourceItem]:
        """Yields the items in the window that are new or changed compared to `known`.

        The third argument, the fingerprints that the run gives, is ignored. It is empty until one run was
        complete, so runs with a `limit` would take the same items each time.
        """
        log.complete = False  # so that items outside the window are not deleted
        count = 0
        for item in connector.scan(known, log):
            if count == self.limit:
                return
            after_begin = self.since_ms is None or item.updated_ms >= self.since_ms
            if after_begin and (self.until_ms is None or item.updated_ms <= self.until_ms):
                count += 1
                yield item


class ConfigurationFile(NamedTuple):
    """The file that configures sources, as a path relative to the store's folder, so that a project can be
    copied or moved together with its store.
    """

    name: str
    folder: str  # the store's folder, with symbolic links resolved

    @classmethod
    def of(cls, path: str, folder: str) -> "ConfigurationFile":
        folder = os.path.realpath(folder)
        return cls(os.path.relpath(os.path.realpath(path), folder), folder)

    def beside(self, name: str) -> str:
        """The absolute path of a configuration file whose relative name was recorded."""
        return os.path.normpath(os.path.join(self.folder, name))


def run_signature(connector: Connector, max_tokens: int, overlap_tokens: int) -> str:
    """A text that describes how a source is read and how its text is cut. A known fingerprint means
    "unchanged" only if the last run had an equal signature.
    """
    return f"{connector.signature}|{TEXT_FORMAT}|{max_tokens}|{overlap_tokens}"


def read_alike(signature: str, other: str) -> bool:
    """Whether two signatures are equal, ignoring the path or address of the source, which differs between
    machines.
    """
    (place, _, rest), (other_place, _, other_rest) = signature.partition("|"), other.partition("|")
    return place.partition("@")[0] == other_place.partition("@")[0] and rest == other_rest


@dataclass(eq=False)
class IndexRun:
    """One run of one source; call `run` once.

    `full` reads everything again. `published` is called after each batch, to update an index. `items`
    replaces `connector.scan` to scan only some paths (watch mode); then only the ids in `log.gone` are
    deleted. All writes happen inside `writing()`. `configuration` is the file that configures the source; the
    run fails if another file configures the source differently.
    """

    connector: Connector
    catalog: Catalog
    _: KW_ONLY
    max_tokens: int
    overlap_tokens: int = 0
    full: bool = False
    dry_run: bool = False
    progress: Progress | None = None
    published: Callable[[], None] | None = None
    stop: threading.Event | None = None
    items: Items | None = None
    writing: Callable[[], AbstractContextManager[object]] = nullcontext
    configuration: ConfigurationFile | None = None
    clock: Callable[[], int] = now_ms

    def __post_init__(self) -> None:
        self._source = self.connector.name
        self._signature = run_signature(self.connector, self.max_tokens, self.overlap_tokens)
        self._last = self.catalog.last_run(self._source) or _NO_RUN
        self._reread = self.full or not read_alike(self._last.signature, self._signature)
        self._batch = _Batch()
        self._present: set[str] = set()
        self._added = self._updated = self._replaced = self._touched = 0
        self._chunks = self._skipped = self._empty = 0
        self._skips: list[Problem] = []
        # Empty items have their own list. Otherwise many empty items could fill the list of skipped items.
        self._voids: list[Problem] = []
        self._changes: list[Change] = []
        self._reading: _Reading | None = None
        self._total: int | None = None  # number of items in the source, counted when the first batch is full
        self._begin(partial=self.items is not None)
        self._first = self.items is None and not self._existing

    def _begin(self, *, partial: bool) -> None:
        self._partial = partial
        self._log = ScanLog(self.progress)
        self._existing: Mapping[str, str] = (
            _Known(self.catalog, self._source) if partial else self.catalog.fingerprints(self._source)
        )

    def run(self) -> IndexReport:
        """Brings the catalog up to date with the source and returns the report. Raises `StoreError`."""
        began_s = time.monotonic()
        note = None
        try:
            self._check_whose()
            self._take(self.items or self.connector.scan)
            if self._log.rescan and not self._stopped():
                self._begin(partial=False)
                self._take(self.connector.scan)
        except SourceError as error:
            self._finish_reading()
            note = error.message.removeprefix(f"{self._source}: ")  # callers name the source themselves
            self._log.complete = False
        departed = self._here(self._departed())
        for source_id in departed:
            self._changed("deleted", source_id)
        if not self.dry_run:
            self._end(note, departed)
        if not self._partial:
            self._note_defaults()
        unchanged = len(self._log.unchanged) + self._touched
        if self._log.news:
            unchanged = len(self._existing) - self._replaced - len(departed)
        return IndexReport(
            source=self._source,
            ok=note is None,
            added=self._added,
            updated=self._updated,
            unchanged=unchanged,
            deleted=len(departed),
            chunks=self._chunks,
            skipped=self._skipped + self._empty,
            empty=self._empty,
            problems=tuple(self._log.problems),
            note=note,
            revision=self._log.revision,
            duration_s=time.monotonic() - began_s,
            notes=tuple(self._log.notes),
            skips=tuple([*self._skips, *self._voids][:MAX_NAMED]),
            changes=tuple(self._changes),
        )

    def _note_defaults(self) -> None:
        """Adds notes to the report: about files that were left out because of their names, and if an older
        version of ctx indexed fewer files.
        """
        left_out = +self._log.left_out
        copies = left_out.pop(WORKTREE, 0)
        del left_out[BINARY]
        kinds = ", ".join(counted(count, kind) for kind, count in sorted(left_out.items()))
        if kinds:
            self._log.note("", f"left out: {kinds}; name them in `include_globs` to index them")
        if copies:
            self._log.note("", f"left out: {counted(copies, WORKTREE)}, which are copies of indexed files")
        last = self._last.signature
        every, every_before = (text.startswith(EVERY_TEXT) for text in (self._signature, last))
        if last and self._added and every and not every_before:
            self._log.note(
                "", "without `include_globs` every text file is indexed now, so the index has grown"
            )

    def _check_whose(self) -> None:
        """Raises `SourceError` if another configuration file, which still exists, configures this source
        differently. This run would delete the documents that are only in the other configuration's source.
        """
        ours, last = self.configuration, self._last
        if ours is None or last.configuration in (None, ours.name) or last.signature == self._signature:
            return
        other = ours.beside(last.configuration)
        if os.path.exists(other):
            raise SourceError(
                f"'{self._source}' in this index was read with {other}, which names other settings for it. "
                "Rename the source here, set another [db] path, or replace its documents with "
                "`ctx index --take-over`"
            )

    def _stopped(self) -> bool:
        return self.stop is not None and self.stop.is_set()

    def _take(self, scan: Callable[[Mapping[str, str], ScanLog], Iterator[SourceItem]]) -> None:
        for item in scan({} if self._reread else self._existing, self._log):
            if self._stopped():
                self._log.complete = False
                break
            self._present.add(item.source_id)
            self._read(item)
            if self._batch.full():
                with self.writing():
                    self._store()
                self._tell()
                if self.published:
                    self.published()
        self._finish_reading()

    def _tell(self) -> None:
        """Reports progress. The total number of items is counted once, and not at all if the run has only one
        batch.
        """
        if self.progress is None:
            return
        if self._total is None and self._log.expected is not None:
            self._total = self._log.expected()
        seen = len(self._present) + self._skipped + self._empty
        self.progress(self._source, seen - (self._reading is not None), self._total)

    def _read(self, item: SourceItem) -> None:
        """Begins to read one item, and puts the previous item into the batch. An item without text does not
        count as present, so a document that was stored for it earlier is deleted.
        """
        try:
            content = item.read()
            digest = _content_hash(content)
            stored = not self._reread and item.source_id in self._existing
            hashes = self.catalog.content_hashes(self._source, [item.source_id]) if stored else {}
            if hashes.get(item.source_id) == digest:  # only the fingerprint changed
                updated_ms = content.updated_ms or item.updated_ms
                self._batch.touch.append((self._source, item.source_id, item.fingerprint, updated_ms))
                self._touched += 1
                return
            extract = begin(content, item.source_id)
        except SourceError as error:
            self._log.problem(item.source_id, error.message)
            return  # the item counts as present, so its last good version stays in the catalog
        self._finish_reading()  # puts the previous item into the batch, while another process parses this one
        self._reading = _Reading(item, content, digest, extract)

    def _finish_reading(self) -> None:
        """Puts the item that is being read, if any, into the batch."""
        reading, self._reading = self._reading, None
        if reading is None:
            return
        item = reading.item
        try:
            extracted = reading.extract()
        except SourceError as error:
            self._log.problem(item.source_id, error.message)
            return
        if extracted is None:
            reason = why_no_text(reading.content)
            self._empty += reason == EMPTY
            self._skipped += reason != EMPTY
            names = self._voids if reason == EMPTY else self._skips
            if len(names) < MAX_NAMED:
                names.append(Problem(item.source_id, reason))
            self._present.discard(item.source_id)
            return
        self._put(item, reading.content, reading.digest, extracted)

    def _put(self, item: SourceItem, content: Content, digest: bytes, extracted: Extracted) -> None:
        document = Document(
            id=document_id(self._source, item.source_id),
            source=self._source,
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
            metadata={**extracted.metadata, **content.metadata},
            definitions=extracted.definitions,
        )
        if extracted.note:
            self._log.note(item.source_id, extracted.note)
        # A dry run reads items, to count only those with text, but does not chunk them.
        chunks: list[Chunk] = []
        if not self.dry_run:
            chunks = chunk(
                extracted, extracted.title, max_tokens=self.max_tokens, overlap_tokens=self.overlap_tokens
            )
        self._batch.put.append((document, chunks))
        self._batch.characters += len(extracted.body)
        self._chunks += len(chunks)
        known = item.source_id in self._existing
        self._replaced += known
        # If the first run was killed, its documents were never reported, so they count as new.
        if known and self._last is not _NO_RUN:
            self._updated += 1
            self._changed("updated", item.source_id)
        else:
            self._added += 1
            self._changed("added", item.source_id)

    def _changed(self, kind: str, source_id: str) -> None:
        if len(self._changes) < MAX_NAMED:
            self._changes.append(Change(kind, source_id))

    def _store(self) -> None:
        if self._batch.put and not self.dry_run:
            self.catalog.put_documents(self._batch.put)
        if self._batch.touch and not self.dry_run:
            self.catalog.touch_documents(self._batch.touch)
        self._batch = _Batch()

    def _departed(self) -> list[str]:
        """The ids to delete: known ids that the scan did not find. After an incomplete or partial scan, only
        the ids that the scan knows to be gone, if any.
        """
        log, existing = self._log, self._existing
        if self._partial:
            return sorted(source_id for source_id in log.gone if source_id in existing)
        if not log.complete:
            return []
        if len(log.unchanged) == len(existing):
            # The scan found all known items, which is the usual case; it is handled without building sets.
            return []
        departed = set(existing) - self._present - log.unchanged
        if log.withheld:
            prefixes = tuple(log.withheld)
            departed = {source_id for source_id in departed if not source_id.startswith(prefixes)}
        return sorted(departed)

    def _here(self, departed: list[str]) -> list[str]:
        """The ids to delete, except documents that another machine stored: only that machine can know whether
        they are gone.
        """
        machines = self.catalog.elsewhere(self._source, departed) if departed else {}
        if machines:
            names = ", ".join(sorted(set(machines.values())))
            self._log.note(
                "",
                f"{counted(len(machines), 'document')} of another machine ({names}) not here, and kept: "
                "index there, or `ctx index --take-over` where it is gone for good",
            )
        return [source_id for source_id in departed if source_id not in machines]

    def _end(self, note: str | None, departed: list[str]) -> None:
        """Stores the last batch, deletes documents and records the run."""
        news = bool(self._batch.put or self._batch.touch or departed)
        with self.writing():
            self._store()
            if departed:
                self.catalog.delete_documents(self._source, departed)
            self._record(note, departed)
            if news and self.published:
                self.published()
        if self._log.stored and not self._partial:  # a partial run does not store all items of the source
            self._log.stored()

    def _record(self, note: str | None, departed: list[str]) -> None:
        log, last = self._log, self._last
        # Do not record a partial run that found nothing: it would only notify all processes that watch the
        # store.
        news = not self._partial or self._present or departed or log.problems
        if not news or self._stopped():
            return
        signature, configuration = self._told_by(note is None)
        run = Run(
            finished_ms=self.clock(),
            ok=note is None,
            note=note or _first_of([*log.problems, *log.notes]),
            revision=log.revision or (last.revision if note or self._partial else None),
            signature=signature,
            configuration=configuration,
        )
        self.catalog.record_run(self._source, run)

    def _told_by(self, ok: bool) -> tuple[str, str | None]:
        """The signature and configuration to record for the next run.

        An incomplete run must not record a new signature, or documents read under the old signature would
        count as unchanged. A first run always records its own.
        """
        last = self._last
        read_anew = last.signature != self._signature and not self._first
        if read_anew and not (ok and self._log.complete):
            return last.signature, last.configuration
        return self._signature, self.configuration.name if self.configuration else last.configuration


def _content_hash(content: Content) -> bytes:
    """A hash of all data of an item that is stored, so that a changed title or URL counts as a change."""
    digest = hashlib.sha256(
        content.data if isinstance(content.data, bytes) else content.data.encode("utf-8", "surrogatepass")
    )
    attributes = (content.media_type, content.title, content.author, content.created_ms, content.source_url)
    if any(part is not None for part in attributes) or content.metadata:
        digest.update(repr((attributes, sorted(content.metadata.items()))).encode("utf-8", "surrogatepass"))
    return digest.digest()


def _first_of(problems: list[Problem]) -> str | None:
    if not problems:
        return None
    first = problems[0]
    suffix = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{first.source_id}: {first.message}{suffix}" if first.source_id else first.message + suffix
