"""The two seams: a catalog keeps, an index finds.

The catalog is the record; every write of it takes the next `seq`. The index is derived: it remembers the
`seq` it has applied and catches up from the catalog, so it may be deleted at any moment. A search from the
command line needs neither these shapes, which are for the type checker there, nor the values of `rows.py`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ctx.code.symbols import Definition
from ctx.items import Chunk, Document, SourceStatus
from ctx.models import ChunkRow, Filters, Hit, Run, Span, StoredText
from ctx.store.rows import Listing, ModelShare, PendingChunk, StoredDocument, VectorBatch, VectorPosition

if TYPE_CHECKING:  # numpy costs 70 ms, and a keyword search from the command line needs none of it
    import numpy as np


class ReadCatalog(Protocol):
    """What a search reads of the system of record. Every method is one transaction; raises `StoreError`. Safe
    to call from several threads.
    """

    def seq(self) -> int:
        """The number of the last write that a projection has to apply (a run's record is none)."""
        ...

    def chunk_rows(self, chunk_nos: Sequence[int]) -> dict[int, ChunkRow]:
        """The rows of those chunks that still exist, by chunk_no."""
        ...

    def span_rows(self, spans: Sequence[Span]) -> dict[int, ChunkRow]:
        """The rows of the chunks of documents within spans of numbers, those that still exist, by
        chunk_no.
        """
        ...

    def chunks_of(self, document_no: int) -> Sequence[int]:
        """The numbers of a document's chunks as they are now, in order; none where it is gone."""
        ...

    def places(self, document_nos: Sequence[int]) -> list[tuple[int, str, str]]:
        """(number, source_id, media type) of the documents of these numbers that still exist."""
        ...

    def matching(self, media_type: Callable[[str], bool], path: Callable[[str], bool]) -> frozenset[int]:
        """The numbers of the documents whose media type and source_id both tests take."""
        ...

    def bodies(self, document_nos: Sequence[int]) -> dict[int, StoredText]:
        """The texts of the documents of these numbers that still exist, by number."""
        ...

    def media_types(self) -> dict[str, int]:
        """How many documents there are of each media type."""
        ...

    def definitions_of(self, document_nos: Sequence[int]) -> dict[int, list[Definition]]:
        """document_no -> its definitions in the order of their start; documents without any are missing."""
        ...

    def definitions_named(self, name: str, limit: int) -> list[tuple[int, Definition]]:
        """(document_no, definition) of those with this name, without what they are in; at most `limit`."""
        ...

    def complete(self, field: str, begun: str, source: str | None, limit: int) -> list[str]:
        """Values that begin so, in order: of `field` "source", "path" (of `source`, where given) or "id"."""
        ...

    def awaiting(self, model: str, chunk_nos: Sequence[int]) -> frozenset[int]:
        """Which of these chunks no embedding of `model` covers."""
        ...

    def pending_count(self, model: str) -> int: ...


class Catalog(ReadCatalog, Protocol):
    """The system of record. Every method is one transaction; raises `StoreError`. Safe to call from several
    threads.
    """

    def history(self, seq: int) -> str | None:
        """A name for the writes up to `seq`: the same as long as they are the same writes.

        A projection that has applied `seq` under another name saw another catalog (a restored backup, a new
        file) and starts over. None: `seq` is ahead of the catalog, or deletions after it are no longer known;
        it starts over then too.
        """
        ...

    # -- documents -------------------------------------------------------------------------------------------
    def fingerprints(self, source: str, below: Sequence[str] | None = None) -> dict[str, str]:
        """source_id -> fingerprint of every document of a source; with `below` only of those ids and what is
        under them (`id/…`).
        """
        ...

    def content_hashes(self, source: str, source_ids: Sequence[str]) -> dict[str, bytes]:
        """source_id -> content_hash, for those that exist."""
        ...

    def put_documents(self, batch: Sequence[tuple[Document, Sequence[Chunk]]]) -> int:
        """Stores or replaces whole documents with their chunks; the seq after it. A document keeps its
        document_no.
        """
        ...

    def touch_documents(self, batch: Sequence[tuple[str, str, str, int]]) -> int:
        """(source, source_id, fingerprint, updated_ms) of documents whose content is the same; the seq after
        it.
        """
        ...

    def delete_documents(self, source: str, source_ids: Sequence[str]) -> int:
        """Deletes; the seq after it. Unknown ids are passed over."""
        ...

    def delete_source(self, source: str) -> int:
        """Forgets a source with all its documents; the seq after it."""
        ...

    def elsewhere(self, source: str, source_ids: Sequence[str]) -> Mapping[str, str]:
        """source_id -> machine, of the documents that another machine stored: that they are not here does not
        mean they are gone.
        """
        ...

    def document(self, id: str) -> StoredDocument | None: ...

    def documents_since(self, seq: int) -> Iterator[StoredDocument]:
        """Documents whose last write is after `seq`, in order of seq: what a projection has yet to apply."""
        ...

    def take_batch(self) -> list[StoredDocument]:
        """What the last write of this process stored, handed over once: a projection that follows need not
        read it back.
        """
        ...

    def chunks_since(self, seq: int) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """(seq, document_no, chunk_nos) of the same documents, for a projection that needs no text."""
        ...

    def deletions_since(self, seq: int) -> Iterator[tuple[int, int]]:
        """(seq, document_no) of documents deleted after `seq`, in order of seq."""
        ...

    def export(self) -> Iterator[StoredDocument]:
        """Every document, by source and source_id."""
        ...

    def list_documents(self, after: tuple[str, str] | None, limit: int) -> list[Listing]:
        """Documents by source and source_id, those behind `after` (source, source_id); at most `limit`."""
        ...

    # -- embeddings ------------------------------------------------------------------------------------------
    def pending_texts(
        self, model: str, limit: int, chunk_nos: Sequence[int] | None = None
    ) -> list[tuple[bytes, str]]:
        """(text_hash, text to embed) of chunks that no embedding of `model` covers, oldest chunk first, each
        hash once.

        With `chunk_nos` of those chunks only, in their order.
        """
        ...

    def pending_chunks(self, model: str, after: int = 0) -> Iterator[PendingChunk]:
        """The chunks numbered above `after` that no embedding of `model` covers, by number."""
        ...

    def claim(self, model: str, chunk_nos: Sequence[int], for_s: float) -> list[int]:
        """Which of these chunks nobody embeds just now, in their order. Until `for_s` have passed nobody else
        is given them.
        """
        ...

    def put_embeddings(self, model: str, batch: "Sequence[tuple[bytes, np.ndarray]]") -> int:
        """Stores (text_hash, float32 vector of unit length); the seq after it.
        Known hashes are passed over.
        """
        ...

    def vectors_since(
        self, model: str, seq: int, after: VectorPosition | None = None
    ) -> Iterator[VectorBatch]:
        """The chunks whose document or embedding was written after `seq`, as far as they have one; some may
        come twice. `after`: only what comes behind there.
        """
        ...

    def vectors_of(self, model: str, hashes: Sequence[bytes]) -> "dict[bytes, np.ndarray]":
        """text_hash -> float32 vector, of those texts that have an embedding of this model."""
        ...

    def forget_embeddings(self, model: str) -> int:
        """Drops every embedding of a model (`ctx embed rebuild`); how many."""
        ...

    def model_shares(self, besides: Collection[str] = ()) -> list[ModelShare]:
        """What is held of each model but those of `besides`, the first one first."""
        ...

    def give_back(self) -> None:
        """Gives the room of what was deleted back to the system, where this engine does not do it by itself.

        Seconds for each gigabyte that stays, and as much room again while it lasts. Raises `Busy`,
        `StoreError`.
        """
        ...

    def trim_embeddings(self) -> int:
        """Deletes the embeddings of texts that no chunk holds any more, where they outnumber the others; how
        many.

        They are kept until then because texts come back: a branch is switched, a folder is mounted again.
        """
        ...

    # -- sources ---------------------------------------------------------------------------------------------
    def record_run(self, source: str, run: Run) -> None: ...

    def last_run(self, source: str) -> Run | None: ...

    def filled_sources(self) -> list[str]:
        """The names of the sources that hold documents, by name, configured or not."""
        ...

    def statuses(self, model: str | None, configured: Iterable[str]) -> list[SourceStatus]:
        """Of every source that is configured or still holds documents, configured ones first, by name."""
        ...

    def stats(self) -> Mapping[str, int]:
        """Counts of the whole store: documents, chunks, embeddings, size_bytes."""
        ...

    def close(self) -> None: ...


class Projection(Protocol):
    """What follows a catalog: it may be lost, and is built anew from it."""

    def catch_up(self, catalog: Catalog) -> int:
        """Applies what the catalog has and this lacks, durably; the seq applied. One writer at a time."""
        ...

    def feed(self, catalog: Catalog) -> None:
        """Takes in what was written since without publishing it, so that the engine can work beside a long
        run; `catch_up` publishes.
        """
        ...

    def check(self) -> list[str]:
        """What is wrong with the files, a line each, after reading all of them. The next `catch_up` builds
        anew what was found.
        """
        ...

    def adopt(self) -> None:
        """Has the next `catch_up` build anew an index that is another catalog's: it is left alone else."""
        ...

    def close(self) -> None: ...


class SearchIndex(Projection, Protocol):
    """A projection that finds chunks. Searches may run in any thread and never wait for a writer."""

    def reach(self) -> None:
        """Raises `StoreError` where it does not answer just now, which is not waited for."""
        ...

    def keyword(self, query: str, filters: Filters, k: int, *, prefix: bool = False) -> list[Hit]:
        """The k best chunks by words, best first. Any text is a query; raises only `StoreError`.

        A query that is one piece in quotes finds just what has its words side by side. `prefix`: its last
        word may be unfinished.
        """
        ...

    def vocabulary(self, terms: Sequence[str], names: Sequence[str]) -> tuple[dict[str, float], list[str]]:
        """How much each term tells (BM25's idf), for those that stand anywhere in the index; and which of the
        names some code defines.
        """
        ...

    def resembling(self, words: Sequence[str]) -> str | None:
        """Of these words the one that most texts of the index have; None where it has none of them."""
        ...

    def definitions(self, names: Sequence[str], filters: Filters, k: int) -> list[Hit]:
        """At most k passages whose code defines one of the names, by chunk number."""
        ...

    def semantic(
        self, vector: "np.ndarray", filters: Filters, k: int, *, model: str | None = None
    ) -> list[Hit]:
        """The k nearest chunks by cosine with a unit vector of float32, best first.

        `model` is whose vector it is, for a moment in which another one takes over; None: the one that
        answers now.
        """
        ...

    def both(
        self,
        query: str,
        vector: "Callable[[], np.ndarray]",
        filters: Filters,
        depths: tuple[int, int],
        *,
        prefix: bool = False,
        model: str | None = None,
    ) -> tuple[list[Hit], list[Hit]]:
        """What `keyword` and `semantic` give to these depths. Asking for the vector makes it, which may take
        longer than searching. An engine that is another program is asked once.
        """
        ...

    def hold(self, model: str) -> bool:
        """Whether `semantic` has vectors of this model in hand, so that a question may be put to it."""
        ...

    def applied_seq(self) -> int: ...
