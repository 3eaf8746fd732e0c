"""The interfaces of a store's two parts: the catalog stores documents, and the index searches them.

Every write to the catalog takes the next sequence number (`seq`). The index is derived from the catalog. It
remembers the last `seq` that it has applied, and can be deleted and rebuilt at any time.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import Event
from typing import TYPE_CHECKING

from ctx.models import Filters, Hit
from ctx.store.documents import Documents
from ctx.store.embeddings import Embeddings
from ctx.store.record import Closeable

if TYPE_CHECKING:  # numpy takes 70 ms, and a keyword search does not need it
    import numpy as np

IndexTurn = Callable[[Callable[[], bool]], AbstractContextManager[bool]]
"""A context manager factory. Only one process at a time runs the block of `turn(done)`.

It yields True if this process must do the work, and False if `done()` became true while it waited.
"""


class Catalog(Documents, Embeddings):
    """Documents, chunks and embeddings in a SQL database. Every method is one transaction and raises
    `StoreError`. Safe to use from several threads.

    `SqliteCatalog` and `ctx.cluster.catalog.PostgresCatalog` implement it.
    """

    def reach(self) -> None:
        """Raises `StoreError` if the database does not answer at once."""

    # -- several machines that share one catalog; a file belongs to one machine ------------------------------
    def identity(self) -> str | None:
        """A name that identifies a shared database; None for a file."""
        return None

    def turn(self, source: str, stop: Event | None) -> AbstractContextManager[Event | None]:
        """A context manager that keeps other machines from indexing this source. It yields the event that
        ends the run early. Raises `Busy` if another machine is indexing the source.
        """
        return nullcontext(stop)

    def index_turn(self, name: str) -> IndexTurn | None:
        """The lock for writing the shared index `name`; None if the lock in the store's folder is enough."""
        return None

    def elsewhere(self, source: str, source_ids: Sequence[str]) -> Mapping[str, str]:
        """source_id -> machine name, for those of the given documents that another machine stored. Such a
        document may exist on that machine although this machine does not see its file.
        """
        return {}

    def take_over(self, source: str) -> int:
        """Makes this machine the owner of all documents of a source, and forgets which configuration indexed
        it. The next run may then delete the documents that are gone. Returns how many documents belonged to
        another machine.
        """
        with self._writing() as write:
            write.connection.execute("UPDATE source SET configuration = NULL WHERE name = ?", (source,))
        return 0

    def server(self) -> tuple[bool, str] | None:
        """(whether the database server is healthy, a line that describes it); None for a file."""
        return None

    # -- maintenance -----------------------------------------------------------------------------------------
    def check(self) -> list[str]:
        """Reads the whole file and returns one line for each problem. A database server checks its own
        files.
        """
        return []

    def vacuum(self) -> None:
        """Returns the space of deleted rows to the file system. Does nothing for an engine that does this on
        its own.

        Takes seconds per gigabyte, and needs free disk space as large as the database. Raises `Busy`,
        `StoreError`.
        """


class Projection(Closeable):
    """Data that is derived from the catalog and can be rebuilt from it, such as a search index. This base
    class holds no data; it is for a machine that does not search.
    """

    def catch_up(self, catalog: Catalog) -> int:
        """Applies the catalog's new writes durably and returns the last seq applied. Only one process may
        call it at a time.
        """
        return catalog.seq()

    def check(self) -> list[str]:
        """Opens all files and returns one line for each problem. The next `catch_up` rebuilds damaged
        files.
        """
        return []

    def adopt(self) -> None:
        """Allows the next `catch_up` to rebuild an index that belongs to another catalog."""

    def close(self) -> None:
        """Closes the files."""


class SearchIndex(Projection):
    """Finds chunks. Searches may run in any thread and never wait for a writer."""

    def reach(self) -> None:
        """Raises `StoreError` if the engine does not answer at once."""

    def keyword(self, query: str, filters: Filters, k: int, *, prefix: bool = False) -> list[Hit]:
        """The k chunks that match the query's words best (BM25), best first. Any text is a valid query.
        Raises only `StoreError`.

        A query that is a single quoted phrase finds only text that contains the exact phrase. With `prefix`,
        the last word may be incomplete.
        """
        raise NotImplementedError

    def vocabulary(self, terms: Sequence[str], names: Sequence[str]) -> tuple[dict[str, float], list[str]]:
        """(term -> BM25's idf, for the terms that occur in the index; the names that are defined in code)."""
        raise NotImplementedError

    def resembling(self, words: Sequence[str]) -> str | None:
        """The word that occurs in most passages of the index; None if no word occurs."""
        raise NotImplementedError

    def definitions(self, names: Sequence[str], filters: Filters, k: int) -> list[Hit]:
        """At most k passages whose code defines one of the names, ordered by chunk number."""
        raise NotImplementedError

    def semantic(self, vector: "np.ndarray", filters: Filters, k: int, model: str) -> list[Hit]:
        """The k chunks nearest to a float32 unit vector by cosine similarity, best first. `model` made the
        vector; [] if the index has no vectors of it.
        """
        raise NotImplementedError

    def hold(self, model: str) -> bool:
        """Opens the vectors of this model and keeps them open, so that `semantic` can search them. Returns
        False if the index has no vectors of this model.
        """
        raise NotImplementedError

    def applied_seq(self) -> int:
        """The last seq that the index has applied; 0 if a part is missing, damaged or outdated."""
        raise NotImplementedError
